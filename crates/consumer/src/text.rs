//! The sink for DTrace's text format.
//!
//! [`Text`] renders events and nothing else: it has no access to the session, to records or to
//! symbols. So the same text is rendered from events that were written to a file. What the options
//! select about the layout is here; the order of rows and `trunc()` are the consumer's.
//!
//! Results are buffered and written at the end of a batch. Messages are kept until the session is
//! about to wait, so that they follow the results that were printed before.
//!
//! ```text
//!  mod        rows, headers, newlines, flow indentation; effects
//!  datum      the default form of a value; hexdumps; stacks
//!  printf     formats
//!  histogram  the distributions of the quantize family
//!  net        %I and %P
//!  pretty     print()
//!  csv        aggregations as tables of comma-separated values
//!  packed     agghist and aggpack
//!  table      aggregations in their default form
//!  time       %Y and %T
//!  view       what the form of a value depends on
//! ```

mod csv;
mod datum;
mod histogram;
mod net;
mod packed;
mod pretty;
mod printf;
mod table;
mod time;
mod view;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use diagnostics::control;
use events::{
    Action, Aggregation, Argument, Calls, Event, Field as EventField, Firing, Flow, Format, Needs,
    NoticeKind, Occasion, Probe, Record, Row, Shape, Sink, SinkError, Symbol,
};

use crate::message::{Message, MessageKind};
use crate::options::Options;
use crate::output::{Effects, Output};
use crate::pad::{Field, WIDEST_TRACED, signed, string, unsigned};
use crate::raw::CallContext;
use view::View;

/// DTrace's text, written to an [`Output`].
pub struct Text<W: Output> {
    out: Effects<W>,
    options: Options,
    heading: bool,
    /// The calls of `-F` that were entered and not left, of each thread: records of different
    /// threads interleave, calls do not.
    open: HashMap<CallContext, Vec<Call>>,
    /// Rows that wait for the other parts of their `printa()`, in the forms that need all of them.
    held: Vec<Row<'static>>,
    form: Option<packed::Form>,
    /// Effects are performed, and the resolver is called.
    performs: bool,
    /// Aggregations in their default form are tables of comma-separated values.
    csv: Option<csv::Tables>,
    /// It was said that a traced width was too large.
    limited: bool,
}

/// A call that was entered.
#[derive(Debug)]
struct Call {
    provider: Arc<str>,
    function: Arc<str>,
}

/// The maximum depth. Entries without returns (tail calls, a predicate on returns) would exceed it.
const DEEPEST: usize = 512;

/// The functions at the start and the end of an interrupt. The interrupted thread has the entry of
/// the first and the return of the second. Calls between them belong to the interrupt.
const BORDERS: [(&str, &str); 2] = [("irq_enter_rcu", "irq_exit_rcu"), ("irq_enter", "irq_exit")];

/// The number of calls that remain open after a return. The original closes the innermost call,
/// which is right where every return is seen. Some are not (a tail call, a function that does not
/// return, a predicate that changes its value). Then a return closes the call of the same function
/// and all calls inside it. The return of a kernel function whose entry was not seen closes
/// nothing, except at the [end of an interrupt](BORDERS).
fn left(open: &[Call], probe: &Probe) -> usize {
    let last = open.len().saturating_sub(1);
    if probe.calls == Calls::None {
        return last;
    }
    let kernel = probe.calls == Calls::Kernel;
    let named = |name: &str| open.iter().rposition(|c| c.provider == probe.provider && &*c.function == name);
    let begun = || {
        let (begin, _) = BORDERS.iter().find(|(_, end)| kernel && *end == &*probe.function)?;
        named(begin)
    };
    named(&probe.function).or_else(begun).unwrap_or(if kernel { open.len() } else { last })
}

/// The context whose calls a record belongs to. The idle thread of a CPU has no id.
fn context(firing: &Firing<'_>) -> CallContext {
    firing.thread.map_or(CallContext::Cpu(firing.cpu), CallContext::Thread)
}

/// The text of a `printf()` with the default options. The resolver is not called: `%I` and `%P` are
/// numbers.
pub fn render(format: &Format, args: &[Argument<'_>]) -> Vec<u8> {
    let (mut out, options) = (Vec::new(), Options::default());
    printf::printf(&mut out, format, args, View { options: &options, terminal: false, resolves: false });
    out
}

/// The text of a `print()`, with a newline at the end.
pub fn render_print(shape: &Shape, bytes: &[u8], functions: &[Symbol]) -> Vec<u8> {
    let mut out = Vec::new();
    pretty::print(&mut out, shape, bytes, functions);
    out
}

/// The text of a `printf()` or of a `print()`, as [`render`] and [`render_print`] have it; `None`
/// for another action.
pub fn render_action(action: &Action<'_>) -> Option<Vec<u8>> {
    match action {
        Action::Printf { format, args } => Some(render(format, args)),
        Action::Print { shape, bytes, functions } => Some(render_print(shape, bytes, functions)),
        _ => None,
    }
}

/// Formats a command or a file name.
pub(crate) fn formatted(format: &Format, args: &[Argument<'_>], options: &Options) -> Vec<u8> {
    let mut out = Vec::new();
    // The text is passed to the system and not to a terminal.
    printf::printf(&mut out, format, args, View { options, terminal: false, resolves: true });
    out
}

/// Writes the text of a `printf()`.
pub(crate) fn write_printf(
    out: &mut Vec<u8>,
    format: &Format,
    args: &[Argument<'_>],
    options: &Options,
    resolves: bool,
) {
    printf::printf(out, format, args, View { options, terminal: false, resolves });
}

/// Writes the text of a row of a `printa()` with a format.
pub(crate) fn write_printa(
    out: &mut Vec<u8>,
    format: &Format,
    row: &Row<'_>,
    options: &Options,
    resolves: bool,
) {
    printf::printa(out, format, row, View { options, terminal: false, resolves });
}

impl<W: Output> Text<W> {
    /// Text for an output. Effects are performed: commands are run, and output is redirected.
    pub fn new(out: W) -> Self {
        Text {
            out: Effects::new(out),
            options: Options::default(),
            heading: false,
            open: HashMap::new(),
            held: Vec::new(),
            form: None,
            performs: true,
            csv: None,
            limited: false,
        }
    }

    /// What a table of comma-separated values has.
    pub const CSV_NEEDS: Needs = Needs { process_ids: true, printed: false };

    /// As [`Text::new`], with records and aggregations in their default form as tables of
    /// comma-separated values, and no empty lines besides those between the tables.
    pub fn csv(out: W) -> Self {
        Text { csv: Some(csv::Tables::default()), ..Text::new(out) }
    }

    /// Text of events that were stored. Effects are not performed: no command is run, no file is
    /// opened, and the output has what was redirected. The resolver is not called: `%I` and `%P`
    /// print numbers.
    pub fn of_stored_events(out: W) -> Self {
        Text { performs: false, ..Text::new(out) }
    }

    /// The same, with aggregations as tables of comma-separated values.
    pub fn csv_of_stored_events(out: W) -> Self {
        Text { performs: false, ..Text::csv(out) }
    }

    /// The initial output.
    pub fn output(&self) -> &W {
        &self.out.first
    }

    /// The initial output.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.out.first
    }

    /// The initial output.
    pub fn into_output(self) -> W {
        self.out.first
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let is_packet = |field: &EventField<'_>| matches!(field.action, Action::Packet(_));
        if self.performs && record.fields.iter().any(is_packet) {
            self.out.expect_packets();
        }
        let Text { out, options, performs, csv, .. } = self;
        if let Some(csv) = csv {
            for EventField { action, .. } in &record.fields {
                if let Action::Packet(packet) = action
                    && out.add_packet(packet)?
                {
                    return Ok(());
                }
            }
            let view = View { options, terminal: out.terminal, resolves: *performs };
            csv.record(&mut out.pending, record, view);
            return Ok(());
        }
        if record.part.first {
            self.begin(&record.firing);
        }
        let Text { out, options, performs, .. } = self;
        let view = View { options, terminal: out.terminal, resolves: *performs };
        let mut limited = false;
        for EventField { action, .. } in &record.fields {
            if let Action::Packet(packet) = action
                && !out.add_packet(packet)?
            {
                datum::hexdump(&mut out.pending, &packet.bytes);
            }
            let out = &mut out.pending;
            match action {
                Action::Trace(value) => datum::traced(out, value, view),
                Action::Print { shape, bytes, functions } => pretty::print(out, shape, bytes, functions),
                Action::Dump(bytes) => datum::hexdump(out, bytes),
                Action::Printf { format, args } => limited |= printf::printf(out, format, args, view),
                // Exits, snaps and changes have no text, and unknown actions none that is known.
                _ => {}
            }
        }
        if record.part.last && !options.quiet {
            out.pending.push(b'\n');
        }
        self.say_limited(limited);
        Ok(())
    }

    /// Says, once, that a traced width was too large.
    fn say_limited(&mut self, limited: bool) {
        if limited && !std::mem::replace(&mut self.limited, true) {
            let text =
                format!("a width or precision that * takes from a traced value is {WIDEST_TRACED} at most");
            self.out.note(Message { kind: MessageKind::Notice(NoticeKind::Failure), text });
        }
    }

    fn begin(&mut self, firing: &Firing<'_>) {
        let Text { out, options, heading, .. } = self;
        let out = &mut out.pending;
        if !std::mem::replace(heading, true) {
            if options.flowindent {
                out.extend_from_slice(b"CPU FUNCTION                                 \n");
            } else if !options.quiet {
                out.extend_from_slice(b"CPU     ID                    FUNCTION:NAME\n");
            }
        }
        if options.flowindent {
            self.flow_row(firing);
        } else if !options.quiet {
            let probe = &firing.probe;
            unsigned(out, u64::from(firing.cpu), crate::pad::Base::Decimal, Field::right(3));
            out.push(b' ');
            unsigned(out, u64::from(probe.id), crate::pad::Base::Decimal, Field::right(6));
            out.push(b' ');
            // `%32s` of function:name, without an intermediate string.
            let function = control::name(probe.function.as_bytes());
            let name = control::name(probe.name.as_bytes());
            let length = function.len() + 1 + name.len();
            crate::pad::fill(out, b' ', 32usize.saturating_sub(length));
            out.extend_from_slice(function.as_bytes());
            out.push(b':');
            out.extend_from_slice(name.as_bytes());
            out.push(b' ');
        }
    }

    /// `%3d %-41s `: the indentation, the arrow, and the function.
    fn flow_row(&mut self, firing: &Firing<'_>) {
        let open = self.open.entry(context(firing)).or_default();
        let out = &mut self.out.pending;
        let probe = &*firing.probe;
        let syscall = probe.calls == Calls::System;
        let mark = match firing.flow {
            Flow::Entry if syscall => " => ",
            Flow::Entry => " -> ",
            Flow::Return if syscall => " <= ",
            Flow::Return => " <- ",
            Flow::None => "| ",
        };
        if firing.flow == Flow::Return {
            open.truncate(left(open, probe));
        }
        let mut name = vec![b' '; 2 * open.len()];
        name.extend_from_slice(mark.as_bytes());
        name.extend_from_slice(control::name(probe.function.as_bytes()).as_bytes());
        if firing.flow == Flow::None {
            name.push(b':');
            name.extend_from_slice(control::name(probe.name.as_bytes()).as_bytes());
        }
        if firing.flow == Flow::Entry && open.len() < DEEPEST {
            open.push(Call { provider: probe.provider.clone(), function: probe.function.clone() });
        }
        signed(out, i64::from(firing.cpu), Field::right(3));
        out.push(b' ');
        string(out, &name, Field::left(41));
        out.push(b' ');
    }

    fn aggregation(&mut self, all: &Aggregation<'_>) {
        let Text { out, options, held, form, performs, csv, .. } = self;
        let view = View { options, terminal: out.terminal, resolves: *performs };
        let out = &mut out.pending;
        if let Some(format) = &all.format {
            let limited =
                all.rows.iter().fold(false, |limited, row| printf::printa(out, format, row, view) | limited);
            csv.iter_mut().for_each(csv::Tables::end_table);
            return self.say_limited(limited);
        }
        if let Some(csv) = csv {
            return csv.aggregation(out, all, view);
        }
        if all.part.first {
            held.clear();
            *form = all.rows.first().and_then(|row| packed::form(row, view));
            if all.occasion == Occasion::Printa {
                out.push(b'\n');
            }
        }
        match *form {
            None => all.rows.iter().for_each(|row| table::row(out, row, view)),
            Some(form) if all.part.first && all.part.last => packed::rows(out, &all.rows, form, view),
            Some(form) => {
                held.extend(all.rows.iter().cloned().map(Row::into_owned));
                if all.part.last {
                    packed::rows(out, &std::mem::take(held), form, view);
                }
            }
        }
    }
}

impl<W: Output + Send> Sink for Text<W> {
    fn needs(&self) -> Needs {
        if self.csv.is_some() { Self::CSV_NEEDS } else { Needs::default() }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        match event {
            Event::Start(start) => self.options.apply(&start.settings),
            Event::Options(settings) => self.options.apply(settings),
            Event::Record(record) => self.record(record)?,
            Event::Aggregation(rows) => self.aggregation(rows),
            Event::Effect(effect) if self.performs => {
                self.csv.iter_mut().for_each(|csv| csv.before(&mut self.out.pending, effect));
                self.out.perform(effect)?;
                let has_text = self.out.has_text();
                self.csv.iter_mut().for_each(|csv| csv.after(effect, has_text));
            }
            Event::Fault(fault) => self.out.note(fault.into()),
            Event::Drop(drop) => self.out.note(Message::dropped(drop, self.options.droptags)),
            Event::Suppressed(suppressed) if self.performs => {
                self.out.note_suppressed(suppressed, self.options.quiet);
            }
            // What is stored may have no end.
            Event::Suppressed(suppressed) => self.out.note(suppressed.into()),
            Event::Notice(notice) => self.out.note(notice.into()),
            Event::Interrupt | Event::Stop => {
                if let Event::Stop = event {
                    self.out.sum_up();
                }
                if self.csv.is_none() {
                    self.out.pending.push(b'\n');
                }
            }
            Event::End { .. } => self.out.end()?,
            Event::Report(text) => self.out.pending.extend_from_slice(text.as_bytes()),
            _ => {}
        }
        Ok(self.out.hand_over_chunk()?)
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.out.write_out()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush_with_messages()
    }

    fn aborted(&mut self) {
        self.out.sum_up();
    }
}
