//! What a record has, as annotations of its event.

use consumer::{render, render_print};
use diagnostics::control;
use events::{Action, AddrForm, Field, Value};
use protobuf::Message;

use crate::field::{annotation, event, interned};
use crate::names::{self, Names};
use crate::stacks::{self, Stacks};

/// The most bytes of memory that are shown.
const LONGEST: usize = 4096;

/// The texts and stacks that are in annotations.
#[derive(Debug)]
pub(crate) struct Annotations {
    names: Names,
    stacks: Stacks,
    /// The memory of one annotation.
    one: Message,
}

impl Annotations {
    pub(crate) fn new() -> Annotations {
        let names = Names::new(interned::ANNOTATION_NAMES);
        Annotations { names, stacks: Stacks::new(), one: Message::default() }
    }

    /// The annotations and the call stack of a record, as fields of an event.
    pub(crate) fn write(&mut self, fields: &[Field<'_>], fresh: &mut Message, event: &mut Message) {
        let shown = self.call_stack(fields, fresh, event);
        let mut out = Out { names: &mut self.names, fresh, event, one: &mut self.one };
        for (n, field) in fields.iter().enumerate() {
            let unnamed = is_unnamed(&field.name).then(|| format!("arg{n}"));
            let name = unnamed.as_deref().unwrap_or(&field.name);
            match &field.action {
                Action::Trace(_) if shown.contains(&Some(n)) => {}
                Action::Trace(value) => out.value(name, value),
                Action::Print { shape, bytes, functions } => {
                    out.text(name, render_print(shape, bytes, functions).trim_ascii());
                }
                Action::Dump(bytes) => out.text(name, memory(bytes).as_bytes()),
                Action::Packet(packet) => out.text("packet", memory(&packet.bytes).as_bytes()),
                Action::Printf { format, args } => {
                    out.text("printf", render(format, args).trim_ascii());
                    for arg in args.iter().filter(|arg| !is_unnamed(&arg.name)) {
                        out.value(&arg.name, &arg.value);
                    }
                }
                Action::Snap(reason) => out.value("snap", reason),
                Action::Exit(status) => {
                    let status = i64::from(*status) as u64;
                    out.annotation("exit", |to| to.present(annotation::SIGNED, status));
                }
                _ => {}
            }
        }
    }

    /// Makes the first stack of a process and the first of the kernel the call stack of the event.
    /// Returns which fields these are: others are texts.
    fn call_stack(
        &mut self,
        fields: &[Field<'_>],
        fresh: &mut Message,
        event: &mut Message,
    ) -> [Option<usize>; 2] {
        let stack = |field: &Field<'_>, of_process: bool| match &field.action {
            Action::Trace(Value::Stack(stack)) => stack.process.is_some() == of_process,
            _ => false,
        };
        let shown = [true, false].map(|of| fields.iter().position(|field| stack(field, of)));
        let all = shown.iter().filter_map(|n| match &fields.get((*n)?)?.action {
            Action::Trace(Value::Stack(stack)) => Some(stack),
            _ => None,
        });
        match self.stacks.number(all, fresh) {
            Some(number) => {
                event.number(event::CALLSTACK, number);
                shown
            }
            None => [None; 2],
        }
    }
}

/// Where the annotations of an event go.
struct Out<'a> {
    names: &'a mut Names,
    fresh: &'a mut Message,
    event: &'a mut Message,
    /// The annotation that is being made.
    one: &'a mut Message,
}

impl Out<'_> {
    fn annotation(&mut self, name: &str, value: impl FnOnce(&mut Message)) {
        self.one.clear();
        let name = names::plain(name.as_bytes());
        match self.names.number(&name, self.fresh) {
            Some(number) => self.one.number(annotation::NAME_NUMBER, number),
            None => self.one.bytes(annotation::NAME, name.as_bytes()),
        }
        value(self.one);
        self.event.message(event::ANNOTATIONS, self.one);
    }

    /// A text: that of a program where it is UTF-8, else with its bytes escaped.
    fn text(&mut self, name: &str, text: &[u8]) {
        self.annotation(name, |out| match std::str::from_utf8(text) {
            Ok(text) => out.bytes(annotation::TEXT, text.as_bytes()),
            Err(_) => out.bytes(annotation::TEXT, control::name(text).as_bytes()),
        });
    }

    fn value(&mut self, name: &str, value: &Value<'_>) {
        match value {
            Value::Int(int) => self.annotation(name, |out| match int.signed {
                true => out.present(annotation::SIGNED, int.as_signed() as u64),
                false => out.present(annotation::UNSIGNED, int.as_unsigned()),
            }),
            Value::Str { text, .. } => self.text(name, text),
            Value::Name { text, .. } => self.text(name, names::plain(text).as_bytes()),
            Value::Bytes(bytes) => match printable(bytes) {
                Some(text) => self.text(name, text),
                None => self.text(name, memory(bytes).as_bytes()),
            },
            Value::Symbol(symbol) if symbol.name.symbol.is_none() && symbol.form == AddrForm::Address => {
                self.annotation(name, |out| out.present(annotation::POINTER, symbol.address));
            }
            Value::Symbol(symbol) => self.text(name, names::plain(symbol.text().as_bytes()).as_bytes()),
            Value::Stack(stack) if stack.frames.is_empty() => {}
            Value::Stack(stack) => self.text(name, stacks::text(stack).as_bytes()),
            _ => {}
        }
    }
}

/// Whether an expression is no name of its value: a literal text is none.
fn is_unnamed(expression: &str) -> bool {
    expression.is_empty() || expression.starts_with('"')
}

/// Memory as text, if it is that up to its NULs.
fn printable(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at_checked(end)?;
    let is_text = text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n'));
    (!text.is_empty() && is_text && rest.iter().all(|byte| *byte == 0)).then_some(text)
}

/// Memory as hexadecimal digits.
fn memory(bytes: &[u8]) -> String {
    let mut text: String = bytes.iter().take(LONGEST).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > LONGEST {
        text.push('…');
    }
    text
}
