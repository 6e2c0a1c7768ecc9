//! Records and aggregations as tables of comma-separated values (RFC 4180, with `\n` at the end of
//! lines).
//!
//! ```text
//!  time,cpu,probe,pid,tid,execname,arg0                 records: a column for each value
//!  5000000123,0,syscall:vmlinux:read:entry,7,7,bash,3
//!
//!  execname,@reads,@writes          numbers: a column for each aggregation
//!  bash,12,7
//!
//!  execname,aggregation,min,max,value      distributions, or values of each CPU: a line for each bucket
//!  bash,@size,1024,2047,3                  that is not empty
//! ```
//!
//! A record has the values of `trace()`, `print()`, `tracemem()` and the arguments of `printf()`,
//! named by their expressions. Those that have the same columns are one table, until one comes
//! that has others. What has no value (a `printf()` of a text, `exit()`, `clear()`) is no line.
//!
//! The columns of the key are named by their expressions. A stack is its frames with `;` between
//! them. A value that an aggregation does not have is an empty cell, or no line.
//!
//! Strings come from the processes that are traced. One that a spreadsheet may take for a formula
//! is between quotes, as one with control characters. Quotes change no byte of it, and a
//! spreadsheet may compute `"=1+1"` too: who must prevent that imports the column as text.

use events::{Action, AggValue, Aggregation, Field, Record, Row, Value, normalized};

use super::view::{View, symbol};
use super::{datum, pretty};
use crate::raw::printable;

/// Writes the rows of an event, after the names of the columns if it is the first one of a table.
pub(super) fn rows(out: &mut Vec<u8>, all: &Aggregation<'_>, view: View<'_>) {
    let long = is_long(all, view);
    if all.part.first {
        heading(out, all, long, view);
    }
    for row in &all.rows {
        match long {
            true => {
                let present = all.columns.iter().zip(&row.values).filter(|(_, value)| !value.absent);
                present.for_each(|(column, value)| each_value(out, row, &column.name, value, view));
            }
            false => {
                let mut line = Line::begin(out);
                keys(&mut line, row, view);
                row.values.iter().for_each(|value| line.number(value.number().filter(|_| !value.absent)));
                line.end();
            }
        }
    }
}

/// True for a table with a line for each bucket or CPU.
fn is_long(all: &Aggregation<'_>, view: View<'_>) -> bool {
    view.options.aggpercpu || all.columns.iter().any(|column| events::is_histogram(column.function))
}

fn heading(out: &mut Vec<u8>, all: &Aggregation<'_>, long: bool, view: View<'_>) {
    let mut line = Line::begin(out);
    let count = all.rows.first().map_or(all.keys.len(), |row| row.key.len());
    for n in 0..count {
        match all.keys.get(n).filter(|name| !name.is_empty()) {
            Some(name) => line.data(name.as_bytes()),
            None => line.cell(format!("key{}", n + 1).as_bytes()),
        }
    }
    if long {
        line.cell(b"aggregation");
        if view.options.aggpercpu {
            line.cell(b"cpu");
        }
        [b"min", b"max"].iter().for_each(|name| line.cell(*name));
        line.cell(b"value");
    } else {
        all.columns.iter().for_each(|column| line.cell(title(&column.name).as_bytes()));
    }
    line.end();
}

/// The name of an aggregation in the program.
fn title(name: &str) -> String {
    if name == "_" { "@".into() } else { format!("@{name}") }
}

/// The lines of a value: of all CPUs, and with `aggpercpu` of each.
fn each_value(out: &mut Vec<u8>, row: &Row<'_>, name: &str, value: &AggValue<'_>, view: View<'_>) {
    buckets(out, row, name, None, value, view);
    for (cpu, of_cpu) in value.each_cpu() {
        buckets(out, row, name, Some(cpu), &of_cpu, view);
    }
}

fn buckets(
    out: &mut Vec<u8>,
    row: &Row<'_>,
    name: &str,
    cpu: Option<u32>,
    value: &AggValue<'_>,
    view: View<'_>,
) {
    let mut write = |least, greatest, number| {
        let mut line = Line::begin(out);
        keys(&mut line, row, view);
        line.cell(title(name).as_bytes());
        if view.options.aggpercpu {
            line.number(cpu.map(i64::from));
        }
        [least, greatest, number].into_iter().for_each(|number| line.number(number));
        line.end();
    };
    match value.number() {
        Some(number) => write(None, None, Some(number)),
        None => {
            let full = value.buckets().zip(value.ranges()).filter(|((_, count), _)| *count != 0);
            full.for_each(|((_, count), (least, greatest))| {
                write(least, greatest, Some(normalized(count, value.normal)));
            });
        }
    }
}

fn keys(line: &mut Line<'_>, row: &Row<'_>, view: View<'_>) {
    row.key.iter().for_each(|key| line.value(key, view));
}

/// The names of the columns of records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    with_process: bool,
    names: Vec<Box<str>>,
}

/// A value of a record.
enum Cell<'a> {
    Value(&'a Value<'a>),
    Print(Vec<u8>),
    Memory(&'a [u8]),
}

fn cells<'a>(fields: &'a [Field<'a>]) -> Vec<(&'a str, Cell<'a>)> {
    let mut all = Vec::with_capacity(fields.len());
    for Field { name, action } in fields {
        match action {
            Action::Trace(value) => all.push((&**name, Cell::Value(value))),
            Action::Printf { args, .. } => {
                all.extend(args.iter().map(|arg| (&*arg.name, Cell::Value(&arg.value))));
            }
            Action::Print { shape, bytes, functions } => {
                let mut text = Vec::new();
                pretty::print(&mut text, shape, bytes, functions);
                all.push((name, Cell::Print(text)));
            }
            Action::Dump(bytes) => all.push((name, Cell::Memory(bytes))),
            Action::Packet(packet) => all.push((name, Cell::Memory(&packet.bytes))),
            _ => {}
        }
    }
    all
}

/// Writes the line of a record, after the names of the columns if it has others than the table that
/// is `open`. An empty clause has a line without values.
pub(super) fn record(
    out: &mut Vec<u8>,
    record: &Record<'_>,
    open: &mut Option<Columns>,
    tables: &mut bool,
    view: View<'_>,
) {
    let cells = cells(&record.fields);
    if cells.is_empty() && !record.fields.iter().any(|field| field.action == Action::Nothing) {
        return;
    }
    let firing = &record.firing;
    let with_process = firing.pid.is_some();
    let same = |columns: &Columns| {
        columns.with_process == with_process
            && columns.names.iter().map(|name| &**name).eq(cells.iter().map(|(name, _)| *name))
    };
    if !open.as_ref().is_some_and(same) {
        if std::mem::replace(tables, true) {
            out.push(b'\n');
        }
        let mut line = Line::begin(out);
        let of_process: &[&str] = if with_process { &["pid", "tid"] } else { &[] };
        ["time", "cpu", "probe"].iter().chain(of_process).for_each(|name| line.cell(name.as_bytes()));
        for (n, (name, _)) in cells.iter().enumerate() {
            match name.is_empty() {
                true => line.cell(format!("value{}", n + 1).as_bytes()),
                false => line.data(name.as_bytes()),
            }
        }
        line.end();
        let names = cells.iter().map(|(name, _)| (*name).into()).collect();
        *open = Some(Columns { with_process, names });
    }
    let mut line = Line::begin(out);
    line.cell(firing.time.to_string().as_bytes());
    line.cell(firing.cpu.to_string().as_bytes());
    line.data(firing.probe.described().as_bytes());
    if with_process {
        line.number(firing.pid.map(i64::from));
        line.number(firing.tid.map(i64::from));
    }
    for (_, cell) in &cells {
        match cell {
            Cell::Value(value) => line.value(value, view),
            Cell::Print(text) => line.data(text.trim_ascii_end()),
            Cell::Memory(bytes) => line.memory(bytes),
        }
    }
    line.end();
}

/// The cells of a line.
struct Line<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> Line<'o> {
    fn begin(out: &'o mut Vec<u8>) -> Self {
        Line { out, first: true }
    }

    /// A cell.
    fn cell(&mut self, text: &[u8]) {
        self.written(text, false);
    }

    /// A cell whose text is chosen by the program that is traced, or by the script.
    fn data(&mut self, text: &[u8]) {
        self.written(text, matches!(text.first(), Some(b'=' | b'+' | b'-' | b'@')));
    }

    /// Writes a cell. It is quoted if it could be read as more than one, if a reader could remove
    /// blanks from it, and if it has control characters.
    fn written(&mut self, text: &[u8], quoted: bool) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        let special = |byte: &u8| matches!(byte, b',' | b'"' | ..b' ' | 0x7f);
        let blank = text.first() == Some(&b' ') || text.last() == Some(&b' ');
        if !quoted && !blank && !text.iter().any(special) {
            self.out.extend_from_slice(text);
            return;
        }
        self.out.push(b'"');
        for byte in text {
            if *byte == b'"' {
                self.out.push(b'"');
            }
            self.out.push(*byte);
        }
        self.out.push(b'"');
    }

    fn value(&mut self, value: &Value<'_>, view: View<'_>) {
        match value {
            Value::Int(int) => self.cell(int.value().to_string().as_bytes()),
            Value::Bytes(bytes) => match printable(bytes) {
                Some(text) => self.data(&view.data(text)),
                None => self.memory(bytes),
            },
            Value::Stack(stack) => {
                let frames: Vec<Vec<u8>> = stack.frames.iter().map(symbol).collect();
                self.data(&frames.join(&b';'));
            }
            other => self.data(&datum::words(other, view)),
        }
    }

    fn memory(&mut self, bytes: &[u8]) {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.cell(digits.as_bytes());
    }

    fn number(&mut self, number: Option<i64>) {
        self.cell(number.map_or(String::new(), |number| number.to_string()).as_bytes());
    }

    fn end(self) {
        self.out.push(b'\n');
    }
}
