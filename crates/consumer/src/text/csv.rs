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
//! that has others. A record whose statements print an aggregation or run a command has its line
//! behind those. What has no value (a `printf()` of a text, `exit()`, `clear()`) is no line.
//!
//! The columns of the key are named by their expressions. A stack is its frames with `;` between
//! them. A value that an aggregation does not have is an empty cell, or no line.
//!
//! Strings come from the processes that are traced. One that a spreadsheet may take for a formula
//! is between quotes, as one with control characters. Quotes change no byte of it, and a
//! spreadsheet may compute `"=1+1"` too: who must prevent that imports the column as text.

use events::{Action, AggValue, Aggregation, Effect, Field, Firing, Record, Row, Value, normalized};

use super::view::{View, symbol};
use super::{datum, pretty};
use crate::raw::printable;

/// The rows of an event, after the names of the columns if it is the first one of a table.
fn rows(out: &mut Vec<u8>, all: &Aggregation<'_>, view: View<'_>) {
    let long = is_long(all, view);
    if all.part.first {
        heading(out, all, long, view);
    }
    for row in &all.rows {
        match long {
            true => {
                let present = all.columns.iter().zip(&row.values).filter(|(_, value)| !value.absent);
                present.for_each(|(column, value)| each_value(out, row, &column.title(), value, view));
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
        all.columns.iter().for_each(|column| line.cell(column.title().as_bytes()));
    }
    line.end();
}

/// The lines of a value: of all CPUs, and with `aggpercpu` of each.
fn each_value(out: &mut Vec<u8>, row: &Row<'_>, title: &str, value: &AggValue<'_>, view: View<'_>) {
    buckets(out, row, title, None, value, view);
    for (cpu, of_cpu) in value.each_cpu() {
        buckets(out, row, title, Some(cpu), &of_cpu, view);
    }
}

fn buckets(
    out: &mut Vec<u8>,
    row: &Row<'_>,
    title: &str,
    cpu: Option<u32>,
    value: &AggValue<'_>,
    view: View<'_>,
) {
    let mut write = |least, greatest, number| {
        let mut line = Line::begin(out);
        keys(&mut line, row, view);
        line.cell(title.as_bytes());
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

/// The tables of an output.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// There is one in the file.
    any: bool,
    /// The same of the first output, while another one is written.
    any_in_first: Option<bool>,
    /// The columns of the table of records that is being written.
    columns: Option<Columns>,
    row: RecordLine,
}

/// The names of the columns of records.
#[derive(Debug)]
struct Columns {
    with_process: bool,
    names: Vec<Box<str>>,
}

/// The line of a record, whose parts come one by one.
#[derive(Debug, Default)]
struct RecordLine {
    is_open: bool,
    with_process: bool,
    cells: Vec<u8>,
    /// How many values it has.
    count: usize,
    /// Their names, if they are not those of the table.
    others: Option<Vec<Box<str>>>,
    /// It has a value, or it is of an empty clause.
    is_shown: bool,
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

impl Tables {
    /// Writes the line of a record, once all its parts are there, after the names of the columns if
    /// it has others than the table before. An empty clause has a line without values.
    pub(super) fn record(&mut self, out: &mut Vec<u8>, record: &Record<'_>, view: View<'_>) {
        if record.part.first {
            self.end_line(out);
            self.begin_line(&record.firing);
        }
        let Tables { columns, row, .. } = self;
        let cells = cells(&record.fields);
        row.is_shown |=
            !cells.is_empty() || record.fields.iter().any(|field| field.action == Action::Nothing);
        let mut line = Line { out: &mut row.cells, first: false };
        for (name, cell) in &cells {
            let known = columns.as_ref().map_or(&[][..], |columns| &columns.names);
            match &mut row.others {
                Some(names) => names.push((*name).into()),
                None if known.get(row.count).is_some_and(|known| **known == **name) => {}
                None => {
                    let before = known.iter().take(row.count).cloned();
                    row.others = Some(before.chain([(*name).into()]).collect());
                }
            }
            row.count += 1;
            match cell {
                Cell::Value(value) => line.value(value, view),
                Cell::Print(text) => line.data(text.trim_ascii_end()),
                Cell::Memory(bytes) => line.memory(bytes),
            }
        }
        if record.part.last {
            self.end_line(out);
        }
    }

    fn begin_line(&mut self, firing: &Firing<'_>) {
        let Tables { columns, row, .. } = self;
        row.with_process = firing.pid.is_some();
        let fits = columns.as_ref().is_some_and(|columns| columns.with_process == row.with_process);
        (row.is_open, row.is_shown, row.count) = (true, false, 0);
        row.others = if fits { None } else { Some(Vec::new()) };
        row.cells.clear();
        let mut line = Line::begin(&mut row.cells);
        line.cell(firing.time.to_string().as_bytes());
        line.cell(firing.cpu.to_string().as_bytes());
        line.data(firing.probe.described().as_bytes());
        if row.with_process {
            line.number(firing.pid.map(i64::from));
            line.number(firing.tid.map(i64::from));
        }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.row.is_open) || !self.row.is_shown {
            return;
        }
        if self.columns.as_ref().is_none_or(|columns| columns.names.len() != self.row.count) {
            self.end_table();
        }
        if let Some(names) = self.row.others.take() {
            self.begin_table(out);
            let with_process = self.row.with_process;
            let mut line = Line::begin(out);
            let of_process: &[&str] = if with_process { &["pid", "tid"] } else { &[] };
            ["time", "cpu", "probe"].iter().chain(of_process).for_each(|name| line.cell(name.as_bytes()));
            for (n, name) in names.iter().enumerate() {
                match name.is_empty() {
                    true => line.cell(format!("value{}", n + 1).as_bytes()),
                    false => line.data(name.as_bytes()),
                }
            }
            line.end();
            self.columns = Some(Columns { with_process, names });
        }
        out.extend_from_slice(&self.row.cells);
        out.push(b'\n');
    }

    /// The next table is behind an empty line, unless it is the first one.
    fn begin_table(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.any, true) {
            out.push(b'\n');
        }
    }

    /// Something else follows the table of records. The names of a line that has begun are kept.
    pub(super) fn end_table(&mut self) {
        let columns = self.columns.take();
        if self.row.others.is_none() {
            let names = columns.iter().flat_map(|columns| &columns.names).take(self.row.count);
            self.row.others = Some(names.cloned().collect());
        }
    }

    /// Writes the rows of an event, after the names of the columns if it is the first one of a
    /// table.
    pub(super) fn aggregation(&mut self, out: &mut Vec<u8>, all: &Aggregation<'_>, view: View<'_>) {
        if all.rows.is_empty() {
            return;
        }
        if all.part.first {
            self.begin_table(out);
        }
        self.end_table();
        rows(out, all, view);
    }

    /// Before something is done to the output, which may become another file. A command of
    /// `system()` runs before the line of its record is there.
    pub(super) fn before(&mut self, out: &mut Vec<u8>, effect: &Effect<'_>) {
        if !matches!(effect, Effect::System(_)) {
            self.end_line(out);
        }
        self.end_table();
    }

    /// Something was done to the output. A file of `freopen()` may have text.
    pub(super) fn after(&mut self, effect: &Effect<'_>, has_text: bool) {
        match effect {
            Effect::Freopen(Some(_)) => {
                self.any_in_first.get_or_insert(self.any);
                self.any = has_text;
            }
            Effect::Freopen(None) => self.any = self.any_in_first.take().unwrap_or(self.any),
            Effect::Ftruncate => self.any = false,
            _ => {}
        }
    }
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
