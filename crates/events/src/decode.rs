//! Bytes to events; see [`crate::wire`] for the layout.
//!
//! The bytes may come from anywhere: nothing in them can cause a panic or an allocation that is
//! large in relation to them. The bound is this. A vector has at most twice the elements that were
//! read, each of which took bytes of the frame. In addition, each list that is being read has
//! reserved at most 1024 elements; lists nest no deeper than types ([`DEPTH`]). A dump of a string
//! prints the size that the string declares: the strings of a record, or of a row's key, declare no
//! more than [`RECORD_MAX`] together.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use plane::control::DropKind;
use plane::desc::{AddrForm, AggFunc, FaultKind, QUANTIZE_BUCKETS};
use plane::ring::RECORD_MAX;
use plane::shape::{DEPTH, Form, Member, Shape};

use crate::aggregate::{AggValue, Column};
use crate::event::{
    Action, Aggregation, Argument, Calls, Change, Clock, Drop, Effect, Event, Fault, Field, Firing, Flow,
    Host, Notice, NoticeKind, Occasion, Probe, Record, Row, Setting, SettingValue, Start, Suppressed,
};
use crate::interval::{Growth, Interval};
use crate::part::Part;
use crate::value::{Format, Int, Packet, Stack, Symbol, SymbolName, Value};
use crate::wire::{Bytes, FRAME_MAX, MAGIC, Malformed, VERSION, kind};

/// Why a stream could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading failed. The next call continues where it failed.
    Io(io::Error),
    /// The bytes are no stream of events.
    NotEvents,
    /// The stream has a version that this reader does not know.
    Version(u32),
    /// The stream ends within a frame. If it grows, the next call reads the rest of the frame.
    Truncated,
    /// A frame is longer than the limit.
    TooLong(u32),
    /// A frame is malformed. The next call reads the frame after it.
    Malformed {
        /// The frame, from 0.
        frame: u64,
        /// The offset in its body.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(e) => e.fmt(f),
            ReadError::NotEvents => f.write_str("not a stream of events"),
            ReadError::Version(version) => {
                write!(f, "events of version {version}; this reader knows version {VERSION}")
            }
            ReadError::Truncated => f.write_str("the stream ends within a frame"),
            ReadError::TooLong(length) => write!(f, "a frame of {length} bytes is too long"),
            ReadError::Malformed { frame, at, what } => write!(f, "frame {frame}, byte {at}: {what}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io(e) => Some(e),
            _ => None,
        }
    }
}

/// Reads the events of a stream.
///
/// A reader keeps its place. After an error of its input, and where the stream ends within a frame,
/// what was read of the frame is kept: the next call reads the rest of it. So a stream can be read
/// that is still being written, or that does not block. After a malformed frame the next call reads
/// the frame after it. A stream that is none, or has another version, or a frame that is too long,
/// has no place to continue at: each call returns the same error.
#[derive(Debug)]
pub struct Reader<R: Read> {
    from: R,
    /// The frame that is being read, or the head of the stream or of a frame.
    body: Vec<u8>,
    /// The last frame that was read, from which its event borrows.
    frame: Vec<u8>,
    state: State,
    frames: u64,
    skipped: u64,
    limit: usize,
}

/// What a reader reads next.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The head of the stream.
    Head,
    /// The length of a frame.
    Length,
    /// A frame of this length.
    Body(u32),
    /// Nothing: the bytes are no stream of events.
    NotEvents,
    /// Nothing: the stream has this version.
    Version(u32),
    /// Nothing: a frame has this length.
    TooLong(u32),
}

impl<R: Read> Reader<R> {
    /// A reader of a stream from its begin.
    pub fn new(from: R) -> Self {
        Reader {
            from,
            body: Vec::new(),
            frame: Vec::new(),
            state: State::Head,
            frames: 0,
            skipped: 0,
            limit: FRAME_MAX,
        }
    }

    /// The same with a lower limit of the length of frames, for streams that are not trusted.
    pub fn with_limit(from: R, limit: usize) -> Self {
        Reader { limit: limit.min(FRAME_MAX), ..Reader::new(from) }
    }

    /// Frames of unknown kinds that were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next event; `None` at the end of the stream.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, ReadError> {
        loop {
            match self.state {
                State::Head => {
                    self.state = match self.fill(12) {
                        Ok(true) => self.head(),
                        Err(ReadError::Io(e)) => return Err(ReadError::Io(e)),
                        // A stream that has ended within its head, or has none.
                        Ok(false) | Err(_) => return Err(ReadError::NotEvents),
                    };
                    self.body.clear();
                }
                State::Length => {
                    if !self.fill(4)? {
                        return Ok(None);
                    }
                    let length = self.body.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
                    self.body.clear();
                    self.state = match length as usize > self.limit {
                        true => State::TooLong(length),
                        false => State::Body(length),
                    };
                }
                State::Body(length) => {
                    if length > 0 && !self.fill(length as usize)? {
                        return Err(ReadError::Truncated);
                    }
                    self.state = State::Length;
                    let frame = self.frames;
                    self.frames += 1;
                    let Some((kind, _)) = self.body.split_first_chunk::<2>() else {
                        self.body.clear();
                        return Err(ReadError::Malformed { frame, at: 0, what: "no kind" });
                    };
                    let kind = u16::from_le_bytes(*kind);
                    std::mem::swap(&mut self.frame, &mut self.body);
                    self.body.clear();
                    if is_unknown(kind, &self.frame) {
                        self.skipped += 1;
                        continue;
                    }
                    let body = self.frame.get(2..).unwrap_or_default();
                    return event(kind, &mut Bytes::new(body))
                        .map(Some)
                        .map_err(|Malformed { at, what }| ReadError::Malformed { frame, at, what });
                }
                State::NotEvents => return Err(ReadError::NotEvents),
                State::Version(version) => return Err(ReadError::Version(version)),
                State::TooLong(length) => return Err(ReadError::TooLong(length)),
            }
        }
    }

    /// What follows the head of the stream.
    fn head(&self) -> State {
        match (self.body.strip_prefix(&MAGIC), self.body.last_chunk()) {
            (Some(_), Some(version)) if u32::from_le_bytes(*version) == VERSION => State::Length,
            (Some(_), Some(version)) => State::Version(u32::from_le_bytes(*version)),
            _ => State::NotEvents,
        }
    }

    /// Reads until the buffer has this many bytes. False if the stream ends before the first of
    /// them. The buffer grows as bytes arrive, and not by the length that the frame states.
    fn fill(&mut self, length: usize) -> Result<bool, ReadError> {
        while self.body.len() < length {
            let left = (length - self.body.len()) as u64;
            // What was read before an error stays in the buffer.
            match self.from.by_ref().take(left).read_to_end(&mut self.body) {
                Ok(0) if self.body.is_empty() => return Ok(false),
                Ok(0) => return Err(ReadError::Truncated),
                Ok(_) => {}
                Err(e) => return Err(ReadError::Io(e)),
            }
        }
        Ok(true)
    }
}

type Read1<T> = Result<T, Malformed>;

/// True for a frame that says something which this version does not know.
fn is_unknown(kind: u16, frame: &[u8]) -> bool {
    let known = match kind {
        kind::DROP => DropKind::ALL.len(),
        kind::NOTICE => NoticeKind::ALL.len(),
        _ => return !(kind::START..=kind::INTERVAL).contains(&kind),
    };
    frame.get(2).is_some_and(|kind| usize::from(*kind) >= known)
}

fn event<'a>(kind: u16, b: &mut Bytes<'a>) -> Read1<Event<'a>> {
    Ok(match kind {
        kind::START => Event::Start(start(b)?),
        kind::OPTIONS => Event::Options(b.list(4, setting)?),
        kind::RECORD => Event::Record(record(b)?),
        kind::AGGREGATION => Event::Aggregation(aggregation(b)?),
        kind::INTERVAL => Event::Interval(interval(b)?),
        kind::SYSTEM => Event::Effect(Effect::System(b.bytes()?.into())),
        kind::FREOPEN => Event::Effect(Effect::Freopen(b.option(Bytes::bytes)?.map(Cow::Borrowed))),
        kind::FTRUNCATE => Event::Effect(Effect::Ftruncate),
        kind::FAULT => Event::Fault(fault(b)?),
        kind::DROP => {
            let Some(kind) = DropKind::ALL.get(usize::from(b.byte()?)) else {
                return b.wrong("an unknown kind of drop");
            };
            Event::Drop(Drop { kind: *kind, cpu: b.narrow()?, count: b.uint()?, time: time(b)? })
        }
        kind::SUPPRESSED => Event::Suppressed(Suppressed {
            program: text(b)?,
            cpu: b.option(Bytes::narrow)?,
            count: b.uint()?,
            time: time(b)?,
        }),
        kind::NOTICE => {
            let Some(kind) = NoticeKind::ALL.get(usize::from(b.byte()?)) else {
                return b.wrong("an unknown kind of notice");
            };
            Event::Notice(Notice { kind: *kind, text: text(b)?, time: time(b)? })
        }
        kind::REPORT => Event::Report(text(b)?),
        kind::INTERRUPT => Event::Interrupt,
        kind::STOP => Event::Stop,
        kind::END => Event::End { status: b.narrow_int()? },
        _ => return b.wrong("an unknown kind of event"),
    })
}

fn time(b: &mut Bytes<'_>) -> Read1<Option<u64>> {
    b.option(Bytes::uint)
}

fn text<'a>(b: &mut Bytes<'a>) -> Read1<Cow<'a, str>> {
    Ok(Cow::Borrowed(b.text()?))
}

fn shared(b: &mut Bytes<'_>) -> Read1<Arc<str>> {
    Ok(b.text()?.into())
}

fn part(b: &mut Bytes<'_>) -> Read1<Part> {
    let bits = b.byte()?;
    Ok(Part { first: bits & 1 != 0, last: bits & 2 != 0 })
}

fn start<'a>(b: &mut Bytes<'a>) -> Read1<Start<'a>> {
    Ok(Start {
        version: text(b)?,
        clock: Clock { time: b.uint()?, wall: b.uint()? },
        host: b.sized(|b| {
            Ok(Host { name: text(b)?, release: text(b)?, machine: text(b)?, cpus: b.narrow()? })
        })?,
        settings: b.list(4, setting)?,
    })
}

fn setting<'a>(b: &mut Bytes<'a>) -> Read1<Setting<'a>> {
    b.sized(|b| {
        let name = text(b)?;
        let value = match b.byte()? {
            0 => SettingValue::Flag(b.flag()?),
            1 => SettingValue::Number(b.uint()?),
            2 => SettingValue::Text(text(b)?),
            _ => return b.wrong("an unknown kind of option"),
        };
        Ok(Setting { name, value })
    })
}

fn probe(b: &mut Bytes<'_>) -> Read1<Arc<Probe>> {
    b.sized(|b| {
        let id = b.narrow()?;
        let names = [shared(b)?, shared(b)?, shared(b)?, shared(b)?];
        let calls = match b.byte()? {
            0 => Calls::None,
            1 => Calls::System,
            2 => Calls::Kernel,
            _ => Calls::None,
        };
        Ok(Arc::new(Probe::new(id, names, calls)))
    })
}

fn firing<'a>(b: &mut Bytes<'a>) -> Read1<Firing<'a>> {
    b.sized(|b| {
        Ok(Firing {
            time: b.uint()?,
            cpu: b.narrow()?,
            thread: b.option(Bytes::narrow)?,
            epid: b.narrow()?,
            probe: Cow::Owned(probe(b)?),
            flow: match b.byte()? {
                0 => Flow::None,
                1 => Flow::Entry,
                2 => Flow::Return,
                _ => Flow::None,
            },
            pid: b.option(Bytes::narrow)?,
            tid: b.option(Bytes::narrow)?,
        })
    })
}

fn record<'a>(b: &mut Bytes<'a>) -> Read1<Record<'a>> {
    let firing = firing(b)?;
    b.begin_strings(RECORD_MAX);
    Ok(Record { firing, part: part(b)?, fields: b.list(3, field)? })
}

fn format<'a>(b: &mut Bytes<'a>) -> Read1<Cow<'a, Format>> {
    let bytes = b.bytes()?;
    match Format::from_bytes(bytes) {
        Ok(format) => Ok(Cow::Owned(format)),
        Err(_) => b.wrong("a malformed format"),
    }
}

fn field<'a>(b: &mut Bytes<'a>) -> Read1<Field<'a>> {
    b.sized(|b| Ok(Field { name: text(b)?, action: action(b)? }))
}

fn action<'a>(b: &mut Bytes<'a>) -> Read1<Action<'a>> {
    Ok(match b.byte()? {
        0 => Action::Trace(value(b)?),
        1 => Action::Print {
            shape: Cow::Owned(Arc::new(shape(b, DEPTH)?)),
            bytes: b.bytes()?.into(),
            functions: b.list(SYMBOL, symbol)?,
        },
        2 => Action::Dump(b.bytes()?.into()),
        3 => {
            let argument = |b: &mut Bytes<'a>| b.sized(|b| Ok(Argument { name: text(b)?, value: value(b)? }));
            Action::Printf { format: format(b)?, args: b.list(4, argument)? }
        }
        4 => Action::Exit(b.narrow_int()?),
        5 => {
            let aggregation = text(b)?;
            let change = match b.byte()? {
                0 => Change::Clear,
                1 => Change::Trunc(b.int()?),
                2 => Change::Normalize(b.uint()?),
                3 => Change::Denormalize,
                _ => return b.wrong("an unknown change of an aggregation"),
            };
            Action::Change { aggregation, change }
        }
        6 => Action::Nothing,
        7 => Action::Packet(Packet {
            protocol: b.narrow()?,
            time: b.uint()?,
            length: b.narrow()?,
            bytes: b.bytes()?.into(),
        }),
        8 => Action::Snap(value(b)?),
        _ => Action::Unknown,
    })
}

fn value<'a>(b: &mut Bytes<'a>) -> Read1<Value<'a>> {
    b.sized(value_fields)
}

fn value_fields<'a>(b: &mut Bytes<'a>) -> Read1<Value<'a>> {
    Ok(match b.byte()? {
        0 => Value::Int(int(b)?),
        1 => Value::Str { text: b.bytes()?.into(), size: b.declare()? },
        2 => Value::Name { text: b.bytes()?.into(), size: b.declare()? },
        3 => Value::Bytes(b.bytes()?.into()),
        4 => Value::Stack(Stack { process: b.option(Bytes::narrow)?, frames: b.list(SYMBOL, symbol)? }),
        5 => Value::Symbol(Box::new(symbol(b)?)),
        _ => Value::Unknown,
    })
}

fn int(b: &mut Bytes<'_>) -> Read1<Int> {
    let kind = b.byte()?;
    let (size, signed) = (kind & 0x7f, kind & 0x80 != 0);
    if !matches!(size, 1 | 2 | 4 | 8) {
        return b.wrong("an integer of an unknown size");
    }
    let bits = if signed { b.int()? as u64 } else { b.uint()? };
    let int = Int::whole(bits, size, signed);
    if int.bits == bits { Ok(int) } else { b.wrong("an integer that is not as its type has it") }
}

/// The least number of bytes of a symbol.
const SYMBOL: usize = 10;

fn symbol(b: &mut Bytes<'_>) -> Read1<Symbol> {
    b.sized(|b| {
        let (address, process) = (b.uint()?, b.option(Bytes::narrow)?);
        let form = match b.byte()? {
            0 => AddrForm::Symbol,
            1 => AddrForm::Function,
            2 => AddrForm::Module,
            3 => AddrForm::Address,
            4 => AddrForm::Guest,
            _ => return b.wrong("an unknown form of a symbol"),
        };
        let name = SymbolName {
            module: b.option(shared)?,
            symbol: b.option(shared)?,
            offset: b.uint()?,
            path: b.option(shared)?,
            file: b.option(shared)?,
            line: b.option(Bytes::narrow)?,
            inlined: b.byte()? != 0,
            // Streams of earlier versions of the tracer end before it.
            interpreted: !b.is_at_end() && b.byte()? != 0,
            in_file: if b.is_at_end() { None } else { b.option(Bytes::uint)? },
        };
        Ok(Symbol { address, process, form, name })
    })
}

fn fault<'a>(b: &mut Bytes<'a>) -> Read1<Fault<'a>> {
    Ok(Fault {
        time: b.uint()?,
        cpu: b.narrow()?,
        epid: b.narrow()?,
        probe: b.option(probe)?.map(Cow::Owned),
        kind: FaultKind::from_code(b.uint()?),
        action: b.narrow()?,
        offset: b.option(Bytes::narrow)?,
        value: b.uint()?,
        // Streams of earlier versions of the tracer end before it.
        count: if b.is_at_end() { 1 } else { b.uint()?.max(1) },
    })
}

fn column<'a>(b: &mut Bytes<'a>) -> Read1<Column<'a>> {
    b.sized(|b| Ok(Column { name: text(b)?, function: function(b)? }))
}

fn row<'a>(b: &mut Bytes<'a>) -> Read1<Row<'a>> {
    b.begin_strings(RECORD_MAX);
    b.sized(|b| Ok(Row { key: b.list(2, value)?, values: b.list(5, agg_value)? }))
}

fn interval<'a>(b: &mut Bytes<'a>) -> Read1<Interval<'a>> {
    let (begin, end, part) = (b.uint()?, b.uint()?, part(b)?);
    let (keys, column) = (b.list(1, text)?, column(b)?);
    let function = column.function;
    let rows = b.list(3, |b| {
        let Row { key, values } = row(b)?;
        match <[AggValue<'a>; 2]>::try_from(values) {
            Ok([increment, total]) if increment.function == function && total.function == function => {
                Ok(Growth { key, increment, total })
            }
            _ => b.wrong("a row without an increment and a total of the aggregation"),
        }
    })?;
    // Streams of earlier versions of the tracer end before these.
    let unsigned = !b.is_at_end() && b.byte()? != 0;
    let wall = if b.is_at_end() { 0 } else { b.uint()? };
    Ok(Interval { begin, end, wall, part, keys, column, unsigned, rows })
}

fn aggregation<'a>(b: &mut Bytes<'a>) -> Read1<Aggregation<'a>> {
    let mut all = Aggregation {
        occasion: match b.byte()? {
            0 => Occasion::Printa,
            1 => Occasion::End,
            2 => Occasion::Demand,
            _ => return b.wrong("an unknown occasion"),
        },
        part: part(b)?,
        time: None,
        format: b.option(format)?,
        keys: b.list(1, text)?,
        columns: b.list(3, column)?,
        rows: b.list(3, row)?,
    };
    all.time = time(b)?;
    let functions =
        |row: &Row<'_>| row.values.iter().map(|v| v.function).eq(all.columns.iter().map(|c| c.function));
    match all.rows.iter().all(functions) {
        true => Ok(all),
        false => b.wrong("a row whose values are not those of the columns"),
    }
}

fn agg_value<'a>(b: &mut Bytes<'a>) -> Read1<AggValue<'a>> {
    b.sized(|b| {
        let (function, normal) = (function(b)?, b.uint()?.max(1));
        let words = |b: &mut Bytes<'a>| {
            let words = b.list(1, Bytes::uint)?;
            if words.len() as u64 != word_count(function) {
                return b.wrong("a value whose words are not those of its function");
            }
            Ok(Cow::Owned(words))
        };
        let (words, cpus) = (words(b)?, b.list(2, |b| Ok((b.narrow()?, words(b)?)))?);
        Ok(AggValue { function, normal, words, cpus, absent: b.flag()? })
    })
}

/// The words of a value of a function whose parameters are checked.
fn word_count(function: AggFunc) -> u64 {
    match function {
        AggFunc::Count | AggFunc::Sum | AggFunc::Min | AggFunc::Max => 1,
        AggFunc::Avg => 2,
        AggFunc::Stddev => 4,
        AggFunc::Quantize => u64::from(QUANTIZE_BUCKETS),
        AggFunc::Lquantize { base, limit, step } => {
            (i64::from(limit) - i64::from(base)).unsigned_abs() / u64::from(step.max(1)) + 2
        }
        AggFunc::Llquantize { low, high, nsteps, .. } => {
            u64::from(high - low.min(high) + 1) * u64::from(nsteps) + 2
        }
    }
}

fn function(b: &mut Bytes<'_>) -> Read1<AggFunc> {
    Ok(match b.byte()? {
        0 => AggFunc::Count,
        1 => AggFunc::Sum,
        2 => AggFunc::Min,
        3 => AggFunc::Max,
        4 => AggFunc::Avg,
        5 => AggFunc::Stddev,
        6 => AggFunc::Quantize,
        7 => {
            let (base, limit, step) = (b.narrow_int()?, b.narrow_int()?, b.narrow()?);
            if base >= limit || step == 0 {
                return b.wrong("parameters that lquantize() does not accept");
            }
            AggFunc::Lquantize { base, limit, step }
        }
        8 => {
            let (factor, low, high, nsteps) = (b.narrow()?, b.narrow()?, b.narrow()?, b.narrow()?);
            if factor < 2 || low > high || high == u16::MAX || nsteps == 0 {
                return b.wrong("parameters that llquantize() does not accept");
            }
            AggFunc::Llquantize { factor, low, high, nsteps }
        }
        _ => return b.wrong("an unknown function"),
    })
}

fn shape(b: &mut Bytes<'_>, depth: u32) -> Read1<Shape> {
    let Some(below) = depth.checked_sub(1) else { return b.wrong("a type too deep") };
    let (name, size) = (shared(b)?, b.narrow()?);
    let form = match b.byte()? {
        0 => Form::Int { signed: b.flag()? },
        1 => Form::Char { signed: b.flag()? },
        2 => Form::Float,
        3 => Form::Pointer,
        4 => Form::FunctionPointer,
        5 => {
            let signed = b.flag()?;
            Form::Enum { signed, names: b.list(2, |b| Ok((shared(b)?, b.int()?)))?.into() }
        }
        6 => Form::String,
        7 => Form::Array(Arc::new(shape(b, below)?)),
        8 => {
            let member = |b: &mut Bytes<'_>| {
                Ok(Member {
                    name: shared(b)?,
                    offset: b.narrow()?,
                    bits: b.option(|b| Ok((b.byte()?, b.byte()?)))?,
                    shape: shape(b, below)?,
                })
            };
            Form::Sou(b.list(6, member)?.into())
        }
        _ => return b.wrong("an unknown form of a type"),
    };
    Ok(Shape { name, size, form })
}
