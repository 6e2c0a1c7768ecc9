//! Events as structs of C.
//!
//! [`Current`] has what the struct that was returned last points to: the event itself is not kept.
//! Rows of an aggregation are one event each, as a program in C has one loop and no list of lists.

use std::collections::VecDeque;
use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Arc;

use dtrace::events::{
    Action, AggValue, Aggregation, Fault, Field, Firing, NoticeKind, Probe, Record, Value, normalized,
};
use dtrace::{Event, render};

/// What an event is.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum dt_kind {
    /// A record.
    DT_RECORD = 1,
    /// A row of an aggregation.
    DT_ROW = 2,
    /// A fault.
    DT_FAULT = 3,
    /// A loss.
    DT_LOSS = 4,
    /// A message.
    DT_NOTICE = 5,
    /// The end.
    DT_END = 6,
}

/// The form of a value.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum dt_form {
    /// A signed number.
    DT_SIGNED = 1,
    /// An unsigned number.
    DT_UNSIGNED = 2,
    /// A string.
    DT_STRING = 3,
    /// Memory.
    DT_BYTES = 4,
    /// An address with its name.
    DT_SYMBOL = 5,
    /// A stack.
    DT_STACK = 6,
}

/// A value.
#[repr(C)]
pub struct dt_value {
    /// Its form.
    pub form: dt_form,
    /// Its bits, if it is a number or an address.
    pub number: i64,
    /// Its text.
    pub text: *const c_char,
    /// Bytes of the text.
    pub length: usize,
    /// Its expression.
    pub name: *const c_char,
}

/// A bucket.
#[repr(C)]
pub struct dt_bucket {
    /// The least integer.
    pub low: i64,
    /// The greatest integer.
    pub high: i64,
    /// How many.
    pub count: i64,
}

/// An event.
#[repr(C)]
pub struct dt_event {
    /// What it is.
    pub kind: dt_kind,
    /// The CPU.
    pub cpu: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When.
    pub time: u64,
    /// The probe.
    pub probe: *const c_char,
    /// The aggregation.
    pub name: *const c_char,
    /// Values.
    pub values: *const dt_value,
    /// Their number.
    pub values_count: usize,
    /// The value of a row.
    pub result: i64,
    /// Buckets.
    pub buckets: *const dt_bucket,
    /// Their number.
    pub buckets_count: usize,
    /// A text.
    pub text: *const c_char,
}

/// A text for C: without the NULs that it may contain.
pub(crate) fn c_text(bytes: &[u8]) -> CString {
    let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// The event that was returned last, and the rows that follow it.
#[derive(Default)]
pub(crate) struct Current {
    seen: Option<Box<dt_event>>,
    texts: Texts,
    values: Vec<dt_value>,
    buckets: Vec<dt_bucket>,
    rows: Option<Rows>,
    probe: Option<(Arc<Probe>, CString)>,
}

/// Texts at addresses that stay.
#[derive(Default)]
struct Texts(Vec<Box<[u8]>>);

/// Rows that were not yet returned: one for each column.
struct Rows {
    of: Aggregation<'static>,
    left: VecDeque<(usize, usize)>,
}

impl Texts {
    /// The text with a NUL, which it may contain too.
    fn bytes(&mut self, bytes: &[u8]) -> *const c_char {
        if bytes.is_empty() {
            return c"".as_ptr();
        }
        let text: Box<[u8]> = bytes.iter().copied().chain([0]).collect();
        let at = text.as_ptr().cast();
        self.0.push(text);
        at
    }

    /// The text without the NULs in it.
    fn text(&mut self, text: &str) -> *const c_char {
        self.bytes(c_text(text.as_bytes()).as_bytes())
    }

    fn value(&mut self, name: &str, value: &Value<'_>) -> dt_value {
        let (form, number, bytes) = match value {
            Value::Int(int) if int.signed => (dt_form::DT_SIGNED, int.as_signed(), Vec::new()),
            Value::Int(int) => (dt_form::DT_UNSIGNED, int.as_unsigned() as i64, Vec::new()),
            Value::Str { text, .. } | Value::Name { text, .. } => (dt_form::DT_STRING, 0, text.to_vec()),
            Value::Bytes(bytes) => (dt_form::DT_BYTES, 0, bytes.to_vec()),
            Value::Symbol(symbol) => (dt_form::DT_SYMBOL, symbol.address as i64, symbol.text().into_bytes()),
            Value::Stack(stack) => {
                let frames: Vec<String> = stack.frames.iter().map(|frame| frame.text()).collect();
                (dt_form::DT_STACK, 0, frames.join("\n").into_bytes())
            }
            _ => (dt_form::DT_BYTES, 0, Vec::new()),
        };
        dt_value { form, number, length: bytes.len(), text: self.bytes(&bytes), name: self.text(name) }
    }

    fn memory(&mut self, name: &str, bytes: &[u8]) -> dt_value {
        let text = self.bytes(bytes);
        dt_value { form: dt_form::DT_BYTES, number: 0, length: bytes.len(), text, name: self.text(name) }
    }
}

fn empty(kind: dt_kind) -> dt_event {
    let none = c"".as_ptr();
    dt_event {
        kind,
        cpu: 0,
        pid: 0,
        tid: 0,
        time: 0,
        probe: none,
        name: none,
        values: ptr::null(),
        values_count: 0,
        result: 0,
        buckets: ptr::null(),
        buckets_count: 0,
        text: none,
    }
}

impl Current {
    /// There are rows that were not yet returned.
    pub(crate) fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    fn clear(&mut self) {
        self.texts.0.clear();
        self.values.clear();
        self.buckets.clear();
    }

    /// The struct, which has the values and buckets.
    fn set(&mut self, mut event: dt_event) -> *const dt_event {
        // Not NULL, as the header says.
        (event.values, event.values_count) = (self.values.as_ptr(), self.values.len());
        (event.buckets, event.buckets_count) = (self.buckets.as_ptr(), self.buckets.len());
        &raw const **self.seen.insert(Box::new(event))
    }

    /// An event as a struct; `None`: it has no such form.
    pub(crate) fn show(&mut self, event: Event<'static>) -> Option<*const dt_event> {
        self.clear();
        let text = |this: &mut Current, kind, text: &str, count: u64, time: Option<u64>| {
            let text = this.texts.text(text);
            let result = i64::try_from(count).unwrap_or(i64::MAX);
            dt_event { text, result, time: time.unwrap_or_default(), ..empty(kind) }
        };
        let seen = match event {
            Event::Record(record) => self.record(&record),
            Event::Aggregation(rows) => {
                let columns = rows.columns.len();
                let left = (0..rows.rows.len()).flat_map(|row| (0..columns).map(move |column| (row, column)));
                self.rows = Some(Rows { left: left.collect(), of: rows });
                return self.next_row();
            }
            Event::Fault(fault) => self.fault(&fault),
            Event::Drop(drop) => text(self, dt_kind::DT_LOSS, &drop.to_string(), drop.count, drop.time),
            Event::Suppressed(lost) => text(self, dt_kind::DT_LOSS, &lost.to_string(), lost.count, lost.time),
            // The command says them with -v only.
            Event::Notice(notice) if notice.kind == NoticeKind::Detail => return None,
            Event::Notice(notice) => text(self, dt_kind::DT_NOTICE, &notice.text, 0, notice.time),
            Event::Report(report) => text(self, dt_kind::DT_NOTICE, &report, 0, None),
            Event::End { status } => dt_event { result: status.into(), ..empty(dt_kind::DT_END) },
            _ => return None,
        };
        Some(self.set(seen))
    }

    /// The next row of the aggregation that was shown last.
    pub(crate) fn next_row(&mut self) -> Option<*const dt_event> {
        let mut rows = self.rows.take()?;
        let (row, column) = rows.left.pop_front()?;
        self.clear();
        let (of, column) = (rows.of.rows.get(row)?, (column, rows.of.columns.get(column)?));
        for (number, value) in of.key.iter().enumerate() {
            let name = rows.of.keys.get(number).map_or("", |name| name);
            let value = self.texts.value(name, value);
            self.values.push(value);
        }
        let value = of.values.get(column.0)?;
        let name = self.texts.text(&column.1.name);
        let result = value.number().unwrap_or_else(|| self.distribution(value));
        let time = rows.of.time.unwrap_or_default();
        let seen = dt_event { name, time, result, ..empty(dt_kind::DT_ROW) };
        self.rows = Some(rows).filter(|rows| !rows.left.is_empty());
        Some(self.set(seen))
    }

    /// The buckets as they are printed: each count is normalized. Returns their sum.
    fn distribution(&mut self, value: &AggValue<'_>) -> i64 {
        let counts = value.buckets().map(|(_, count)| normalized(count, value.normal));
        for ((low, high), count) in value.ranges().into_iter().zip(counts).filter(|(_, count)| *count != 0) {
            let (low, high) = (low.unwrap_or(i64::MIN), high.unwrap_or(i64::MAX));
            self.buckets.push(dt_bucket { low, high, count });
        }
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }

    /// The description of a probe, made once for records that follow each other.
    fn probe(&mut self, probe: &Arc<Probe>) -> *const c_char {
        if self.probe.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, probe)) {
            self.probe = Some((probe.clone(), c_text(probe.described().as_bytes())));
        }
        self.probe.as_ref().map_or(c"".as_ptr(), |(_, text)| text.as_ptr())
    }

    fn record(&mut self, record: &Record<'_>) -> dt_event {
        let Firing { time, cpu, pid, tid, .. } = record.firing;
        let mut printed = Vec::new();
        for Field { name, action } in &record.fields {
            match action {
                Action::Trace(value) => {
                    let value = self.texts.value(name, value);
                    self.values.push(value);
                }
                Action::Printf { format, args } => {
                    printed.extend_from_slice(&render(format, args));
                    for argument in args {
                        let value = self.texts.value(&argument.name, &argument.value);
                        self.values.push(value);
                    }
                }
                Action::Print { bytes, .. } | Action::Dump(bytes) => {
                    let value = self.texts.memory(name, bytes);
                    self.values.push(value);
                }
                Action::Packet(packet) => {
                    let value = self.texts.memory(name, &packet.bytes);
                    self.values.push(value);
                }
                _ => {}
            }
        }
        let text = self.texts.bytes(c_text(&printed).as_bytes());
        let probe = self.probe(&record.firing.probe);
        let (pid, tid) = (pid.unwrap_or_default(), tid.unwrap_or_default());
        dt_event { time, cpu, pid, tid, probe, text, ..empty(dt_kind::DT_RECORD) }
    }

    fn fault(&mut self, fault: &Fault<'_>) -> dt_event {
        let text = self.texts.text(&fault.to_string());
        let probe = fault.probe.as_ref().map_or(c"".as_ptr(), |probe| self.probe(probe));
        let result = i64::try_from(fault.count).unwrap_or(i64::MAX);
        dt_event { time: fault.time, cpu: fault.cpu, probe, text, result, ..empty(dt_kind::DT_FAULT) }
    }
}
