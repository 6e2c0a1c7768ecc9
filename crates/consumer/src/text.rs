//! The renderer for DTrace's text format.
//!
//! A [`Renderer`] receives typed events in order and appends to a buffer. It does not see raw
//! records, and the consumer does not see text. JSON is another renderer, not a branch in this one.
//!
//! ```text
//!  mod        rows, headers, newlines, flow indentation
//!  datum      the default form of a value; hexdumps; stacks
//!  printf     formats
//!  histogram  the distributions of the quantize family
//!  net        %I and %P
//!  pretty     print()
//!  packed     agghist and aggpack
//!  table      aggregations in their default form
//!  time       %Y and %T
//! ```

mod datum;
mod histogram;
mod net;
mod packed;
mod pretty;
mod printf;
mod table;
mod time;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use diagnostics::control;
use plane::desc::AddrForm;
use plane::format::Piece;

use crate::agg::rows::Row;
use crate::options::Options;
use crate::pad::{Field, signed, string, unsigned};
use crate::record::{CallContext, Event, Flow, Item, Probe, Value};
use crate::symbolizer::{Process, Symbolizer};

/// The state that a renderer reads.
pub struct View<'a> {
    /// The current options.
    pub options: &'a Options,
    /// Symbol lookup.
    pub symbols: &'a mut dyn Symbolizer,
    /// The output is a terminal, which interprets control characters.
    pub terminal: bool,
}

impl<'a> View<'a> {
    pub(crate) fn new(options: &'a Options, symbols: &'a mut dyn Symbolizer, terminal: bool) -> Self {
        View { options, symbols, terminal }
    }

    /// A string that a program prints, escaped if the output is a terminal.
    pub(crate) fn data<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        if self.terminal { control::terminal(text) } else { Cow::Borrowed(text) }
    }

    /// The symbol of a kernel address, escaped for printing.
    pub(crate) fn kernel(&mut self, addr: u64, form: AddrForm) -> String {
        printable(self.symbols.kernel(addr, form))
    }

    /// The symbol of an address of a process, escaped for printing.
    pub(crate) fn user(&mut self, process: Process, addr: u64, form: AddrForm) -> String {
        printable(self.symbols.user(process, addr, form))
    }
}

/// A name with control characters escaped.
fn printable(name: String) -> String {
    match control::name(name.as_bytes()) {
        Cow::Borrowed(_) => name,
        Cow::Owned(escaped) => escaped,
    }
}

/// Formats events.
pub trait Renderer {
    /// A record begins.
    fn begin(&mut self, out: &mut Vec<u8>, event: &Event<'_>, view: &mut View<'_>);

    /// One item of a record. `printa()` and actions on aggregations are never passed here.
    fn item(&mut self, out: &mut Vec<u8>, item: &Item<'_>, view: &mut View<'_>);

    /// A `printa()`: its rows in order.
    fn printa(&mut self, out: &mut Vec<u8>, format: Option<&[Piece]>, rows: &[Row<'_>], view: &mut View<'_>);

    /// The record ends.
    fn end(&mut self, out: &mut Vec<u8>, view: &mut View<'_>);

    /// Prints the aggregations that no `printa()` has printed, at the end.
    fn aggregations(&mut self, out: &mut Vec<u8>, rows: &[Row<'_>], view: &mut View<'_>);
}

/// DTrace's text.
#[derive(Debug, Default)]
pub struct Text {
    heading: bool,
    /// The calls of `-F` that were entered and not left, of each thread: records of different
    /// threads interleave, calls do not.
    open: HashMap<CallContext, Vec<Call>>,
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
    let kernel = matches!(&*probe.provider, "fbt" | "rawfbt");
    if !kernel && &*probe.provider != "syscall" {
        return last;
    }
    let named = |name: &str| open.iter().rposition(|c| c.provider == probe.provider && &*c.function == name);
    let begun = || {
        let (begin, _) = BORDERS.iter().find(|(_, end)| kernel && *end == &*probe.function)?;
        named(begin)
    };
    named(&probe.function).or_else(begun).unwrap_or(if kernel { open.len() } else { last })
}

impl Text {
    /// A renderer that has printed nothing.
    pub fn new() -> Self {
        Self::default()
    }

    fn heading(&mut self, out: &mut Vec<u8>, options: &Options) {
        if std::mem::replace(&mut self.heading, true) {
            return;
        }
        if options.flowindent {
            out.extend_from_slice(b"CPU FUNCTION                                 \n");
        } else if !options.quiet {
            out.extend_from_slice(b"CPU     ID                    FUNCTION:NAME\n");
        }
    }

    /// `%3d %-41s `: the indentation, the arrow, and the function.
    fn flow_row(&mut self, out: &mut Vec<u8>, event: &Event<'_>) {
        let open = self.open.entry(event.context).or_default();
        let probe = event.probe;
        let syscall = *probe.provider == *"syscall";
        let mark = match event.flow {
            Flow::Entry if syscall => " => ",
            Flow::Entry => " -> ",
            Flow::Return if syscall => " <= ",
            Flow::Return => " <- ",
            Flow::None => "| ",
        };
        if event.flow == Flow::Return {
            open.truncate(left(open, probe));
        }
        let mut name = vec![b' '; 2 * open.len()];
        name.extend_from_slice(mark.as_bytes());
        name.extend_from_slice(control::name(probe.function.as_bytes()).as_bytes());
        if event.flow == Flow::None {
            name.push(b':');
            name.extend_from_slice(control::name(probe.name.as_bytes()).as_bytes());
        }
        if event.flow == Flow::Entry && open.len() < DEEPEST {
            open.push(Call { provider: probe.provider.clone(), function: probe.function.clone() });
        }
        signed(out, i64::from(event.cpu), Field::right(3));
        out.push(b' ');
        string(out, &name, Field::left(41));
        out.push(b' ');
    }
}

/// Formats a command or a file name.
pub(crate) fn formatted(format: &[Piece], args: &[Value<'_>], view: &mut View<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    // The text is passed to the system and not to a terminal.
    view.terminal = false;
    printf::printf(&mut out, format, args, view);
    out
}

impl Renderer for Text {
    fn begin(&mut self, out: &mut Vec<u8>, event: &Event<'_>, view: &mut View<'_>) {
        self.heading(out, view.options);
        if view.options.flowindent {
            self.flow_row(out, event);
        } else if !view.options.quiet {
            let probe = event.probe;
            unsigned(out, u64::from(event.cpu), crate::pad::Base::Decimal, Field::right(3));
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

    fn item(&mut self, out: &mut Vec<u8>, item: &Item<'_>, view: &mut View<'_>) {
        match item {
            Item::Trace(value) => datum::traced(out, value, view),
            Item::Print { shape, bytes } => pretty::print(out, shape, bytes, view),
            Item::Dump(bytes) => datum::hexdump(out, bytes),
            Item::Printf { format, args } => printf::printf(out, format, args, view),
            _ => {}
        }
    }

    fn printa(&mut self, out: &mut Vec<u8>, format: Option<&[Piece]>, rows: &[Row<'_>], view: &mut View<'_>) {
        datum::prepare(rows, view);
        match format {
            Some(format) => {
                for row in rows {
                    printf::printa(out, format, row, view);
                }
            }
            None => {
                out.push(b'\n');
                table::rows(out, rows, view);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>, view: &mut View<'_>) {
        if !view.options.quiet {
            out.push(b'\n');
        }
    }

    fn aggregations(&mut self, out: &mut Vec<u8>, rows: &[Row<'_>], view: &mut View<'_>) {
        datum::prepare(rows, view);
        table::rows(out, rows, view);
    }
}
