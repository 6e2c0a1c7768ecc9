//! Events to bytes; see [`crate::wire`] for the layout.

use std::io::{self, Write};

use plane::desc::{AddrForm, AggFunc};
use plane::shape::{Form, Shape};

use crate::aggregate::{AggValue, Column};
use crate::event::{
    Action, Aggregation, Calls, Change, Effect, Event, Fault, Field, Firing, Flow, Occasion, Probe, Record,
    Row, Setting, SettingValue, Start,
};
use crate::interval::{Growth, Interval};
use crate::part::Part;
use crate::sink::{Sink, SinkError};
use crate::value::{Format, Packet, Symbol, Value};
use crate::wire::{
    FRAME_MAX, MAGIC, UNKNOWN, VERSION, kind, put_bytes, put_int, put_list, put_option, put_sized, put_uint,
};

/// Bytes of buffered frames after which they are written within a batch.
const CHUNK: usize = 1 << 16;

/// Bytes after which the rows of an aggregation continue in another frame.
const ROWS: usize = 1 << 20;

/// A sink that encodes events. It performs no effects.
///
/// After a failed write the stream may end within a frame, so nothing is written any more and every
/// call returns an error.
#[derive(Debug)]
pub struct Encoder<W: Write> {
    out: W,
    pending: Vec<u8>,
    failed: Option<Failed>,
}

/// The first failure to write.
#[derive(Debug)]
struct Failed {
    kind: io::ErrorKind,
    text: String,
}

impl<W: Write + Send> Encoder<W> {
    /// An encoder whose stream begins now.
    pub fn new(out: W) -> Self {
        let mut pending = MAGIC.to_vec();
        pending.extend(VERSION.to_le_bytes());
        Encoder { out, pending, failed: None }
    }

    /// The output, without frames that are not written yet.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// The output.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// The output, after all frames were written. Without a flush of the output itself.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.write()?;
        Ok(self.out)
    }

    fn write(&mut self) -> io::Result<()> {
        self.unbroken()?;
        let done = self.out.write_all(&self.pending);
        // Frames that could not be written are discarded: the buffer must not grow without bound.
        self.pending.clear();
        self.latched(done)
    }

    /// Fails if the stream has failed before.
    fn unbroken(&self) -> io::Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(Failed { kind, text }) => {
                Err(io::Error::new(*kind, format!("the stream of events was cut short: {text}")))
            }
        }
    }

    /// Remembers a failure of the output: a frame after it would follow a part of a frame.
    fn latched(&mut self, done: io::Result<()>) -> io::Result<()> {
        done.inspect_err(|e| self.failed = Some(Failed { kind: e.kind(), text: e.to_string() }))
    }

    fn frame(&mut self, kind: u16, body: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let start = self.pending.len();
        self.pending.extend_from_slice(&[0; 4]);
        self.pending.extend_from_slice(&kind.to_le_bytes());
        body(&mut self.pending);
        let length = self.pending.len() - start - 4;
        if length > FRAME_MAX {
            self.pending.truncate(start);
            let text = format!("an event of {length} bytes is too long for a frame");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if let Some(place) = self.pending.get_mut(start..start + 4) {
            place.copy_from_slice(&(length as u32).to_le_bytes());
        }
        if self.pending.len() >= CHUNK { self.write() } else { Ok(()) }
    }

    /// Encodes the rows of an aggregation in as many frames as their length requires.
    fn aggregation(&mut self, all: &Aggregation<'_>) -> io::Result<()> {
        let mut rest = &all.rows[..];
        let mut first = all.part.first;
        loop {
            let (encoded, others) = some_rows(rest, put_row);
            let (count, done) = (rest.len() - others.len(), others.is_empty());
            rest = others;
            let part = Part { first, last: all.part.last && done };
            self.frame(kind::AGGREGATION, |out| {
                out.push(match all.occasion {
                    Occasion::Printa => 0,
                    Occasion::End => 1,
                    Occasion::Demand => 2,
                });
                put_part(out, part);
                put_option(out, all.format.as_deref(), put_format);
                put_list(out, &all.keys, |out, name| put_text(out, name));
                put_list(out, &all.columns, put_column);
                put_uint(out, count as u64);
                out.extend_from_slice(&encoded);
                put_option(out, all.time, put_uint);
            })?;
            if done {
                return Ok(());
            }
            first = false;
        }
    }

    /// Encodes the rows of an interval in as many frames as their length requires.
    fn interval(&mut self, all: &Interval<'_>) -> io::Result<()> {
        let mut rest = &all.rows[..];
        let mut first = all.part.first;
        loop {
            let (encoded, others) = some_rows(rest, put_growth);
            let (count, done) = (rest.len() - others.len(), others.is_empty());
            rest = others;
            let part = Part { first, last: all.part.last && done };
            self.frame(kind::INTERVAL, |out| {
                put_uint(out, all.begin);
                put_uint(out, all.end);
                put_part(out, part);
                put_list(out, &all.keys, |out, name| put_text(out, name));
                put_column(out, &all.column);
                put_uint(out, count as u64);
                out.extend_from_slice(&encoded);
                out.push(all.unsigned.into());
                put_uint(out, all.wall);
            })?;
            if done {
                return Ok(());
            }
            first = false;
        }
    }
}

/// Encodes rows until a frame has enough of them. Returns those that are left.
fn some_rows<R>(rows: &[R], put: impl Fn(&mut Vec<u8>, &R)) -> (Vec<u8>, &[R]) {
    let mut encoded = Vec::new();
    let mut rest = rows;
    while let Some((row, others)) = rest.split_first() {
        put(&mut encoded, row);
        rest = others;
        if encoded.len() >= ROWS {
            break;
        }
    }
    (encoded, rest)
}

impl<W: Write + Send> Sink for Encoder<W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.unbroken()?;
        let done = match event {
            Event::Start(start) => self.frame(kind::START, |out| put_start(out, start)),
            Event::Options(all) => self.frame(kind::OPTIONS, |out| put_list(out, all, put_setting)),
            Event::Record(record) => self.frame(kind::RECORD, |out| put_record(out, record)),
            Event::Aggregation(rows) => self.aggregation(rows),
            Event::Interval(rows) => self.interval(rows),
            Event::Effect(Effect::System(command)) => self.frame(kind::SYSTEM, |out| put_bytes(out, command)),
            Event::Effect(Effect::Freopen(path)) => self.frame(kind::FREOPEN, |out| {
                put_option(out, path.as_deref(), put_bytes);
            }),
            Event::Effect(Effect::Ftruncate) => self.frame(kind::FTRUNCATE, |_| {}),
            Event::Fault(fault) => self.frame(kind::FAULT, |out| put_fault(out, fault)),
            Event::Drop(drop) => self.frame(kind::DROP, |out| {
                out.push(drop.kind as u8);
                put_uint(out, drop.cpu.into());
                put_uint(out, drop.count);
                put_option(out, drop.time, put_uint);
            }),
            Event::Suppressed(suppressed) => self.frame(kind::SUPPRESSED, |out| {
                put_text(out, &suppressed.program);
                put_option(out, suppressed.cpu, |out, cpu| put_uint(out, cpu.into()));
                put_uint(out, suppressed.count);
                put_option(out, suppressed.time, put_uint);
            }),
            Event::Notice(notice) => self.frame(kind::NOTICE, |out| {
                out.push(notice.kind as u8);
                put_text(out, &notice.text);
                put_option(out, notice.time, put_uint);
            }),
            Event::Report(text) => self.frame(kind::REPORT, |out| put_text(out, text)),
            Event::Interrupt => self.frame(kind::INTERRUPT, |_| {}),
            Event::Stop => self.frame(kind::STOP, |_| {}),
            Event::End { status } => self.frame(kind::END, |out| put_int(out, (*status).into())),
        };
        Ok(done?)
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.write()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        let done = self.out.flush();
        self.latched(done)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_format(out: &mut Vec<u8>, format: &Format) {
    put_bytes(out, &format.bytes());
}

fn put_part(out: &mut Vec<u8>, part: Part) {
    out.push(u8::from(part.first) | u8::from(part.last) << 1);
}

fn put_start(out: &mut Vec<u8>, start: &Start<'_>) {
    put_text(out, &start.version);
    put_uint(out, start.clock.time);
    put_uint(out, start.clock.wall);
    put_sized(out, |out| {
        for text in [&start.host.name, &start.host.release, &start.host.machine] {
            put_text(out, text);
        }
        put_uint(out, start.host.cpus.into());
    });
    put_list(out, &start.settings, put_setting);
}

fn put_setting(out: &mut Vec<u8>, setting: &Setting<'_>) {
    put_sized(out, |out| {
        put_text(out, &setting.name);
        match &setting.value {
            SettingValue::Flag(flag) => out.extend_from_slice(&[0, u8::from(*flag)]),
            SettingValue::Number(number) => {
                out.push(1);
                put_uint(out, *number);
            }
            SettingValue::Text(text) => {
                out.push(2);
                put_text(out, text);
            }
        }
    });
}

fn put_probe(out: &mut Vec<u8>, probe: &Probe) {
    put_sized(out, |out| {
        put_uint(out, probe.id.into());
        for name in [&probe.provider, &probe.module, &probe.function, &probe.name] {
            put_bytes(out, name.as_bytes());
        }
        out.push(match probe.calls {
            Calls::None => 0,
            Calls::System => 1,
            Calls::Kernel => 2,
        });
    });
}

fn put_record(out: &mut Vec<u8>, record: &Record<'_>) {
    put_firing(out, &record.firing);
    put_part(out, record.part);
    put_list(out, &record.fields, put_field);
}

fn put_firing(out: &mut Vec<u8>, firing: &Firing<'_>) {
    let Firing { time, cpu, thread, epid, probe, flow, pid, tid } = firing;
    let number = |out: &mut Vec<u8>, number: u32| put_uint(out, number.into());
    put_sized(out, |out| {
        put_uint(out, *time);
        number(out, *cpu);
        put_option(out, *thread, |out, thread| put_uint(out, thread.into()));
        number(out, *epid);
        put_probe(out, probe);
        out.push(match flow {
            Flow::None => 0,
            Flow::Entry => 1,
            Flow::Return => 2,
        });
        put_option(out, *pid, number);
        put_option(out, *tid, number);
    });
}

fn put_field(out: &mut Vec<u8>, field: &Field<'_>) {
    put_sized(out, |out| {
        put_text(out, &field.name);
        match &field.action {
            Action::Trace(value) => {
                out.push(0);
                put_value(out, value);
            }
            Action::Print { shape, bytes, functions } => {
                out.push(1);
                put_shape(out, shape);
                put_bytes(out, bytes);
                put_list(out, functions, put_symbol);
            }
            Action::Dump(bytes) => {
                out.push(2);
                put_bytes(out, bytes);
            }
            Action::Printf { format, args } => {
                out.push(3);
                put_format(out, format);
                put_list(out, args, |out, arg| {
                    put_sized(out, |out| {
                        put_text(out, &arg.name);
                        put_value(out, &arg.value);
                    });
                });
            }
            Action::Exit(status) => {
                out.push(4);
                put_int(out, (*status).into());
            }
            Action::Snap(reason) => {
                out.push(8);
                put_value(out, reason);
            }
            Action::Change { aggregation, change } => {
                out.push(5);
                put_text(out, aggregation);
                match change {
                    Change::Clear => out.push(0),
                    Change::Trunc(count) => {
                        out.push(1);
                        put_int(out, *count);
                    }
                    Change::Normalize(by) => {
                        out.push(2);
                        put_uint(out, *by);
                    }
                    Change::Denormalize => out.push(3),
                }
            }
            Action::Nothing => out.push(6),
            Action::Packet(Packet { protocol, time, length, bytes }) => {
                out.push(7);
                put_uint(out, (*protocol).into());
                put_uint(out, *time);
                put_uint(out, (*length).into());
                put_bytes(out, bytes);
            }
            Action::Unknown => out.push(UNKNOWN),
        }
    });
}

fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    put_sized(out, |out| match value {
        Value::Int(int) => {
            out.extend_from_slice(&[0, int.size | u8::from(int.signed) << 7]);
            if int.signed { put_int(out, int.bits as i64) } else { put_uint(out, int.bits) }
        }
        Value::Str { text, size } => {
            out.push(1);
            put_bytes(out, text);
            put_uint(out, (*size).into());
        }
        Value::Name { text, size } => {
            out.push(2);
            put_bytes(out, text);
            put_uint(out, (*size).into());
        }
        Value::Bytes(bytes) => {
            out.push(3);
            put_bytes(out, bytes);
        }
        Value::Stack(stack) => {
            out.push(4);
            put_option(out, stack.process, |out, pid| put_uint(out, pid.into()));
            put_list(out, &stack.frames, put_symbol);
        }
        Value::Symbol(symbol) => {
            out.push(5);
            put_symbol(out, symbol);
        }
        Value::Unknown => out.push(UNKNOWN),
    });
}

fn put_symbol(out: &mut Vec<u8>, symbol: &Symbol) {
    put_sized(out, |out| {
        put_uint(out, symbol.address);
        put_option(out, symbol.process, |out, pid| put_uint(out, pid.into()));
        out.push(match symbol.form {
            AddrForm::Symbol => 0,
            AddrForm::Function => 1,
            AddrForm::Module => 2,
            AddrForm::Address => 3,
            AddrForm::Guest => 4,
        });
        for name in [&symbol.name.module, &symbol.name.symbol] {
            put_option(out, name.as_deref(), |out, name| put_bytes(out, name.as_bytes()));
        }
        put_uint(out, symbol.name.offset);
        for text in [&symbol.name.path, &symbol.name.file] {
            put_option(out, text.as_deref(), put_text);
        }
        put_option(out, symbol.name.line, |out, line| put_uint(out, line.into()));
        out.push(symbol.name.inlined.into());
        out.push(symbol.name.interpreted.into());
        put_option(out, symbol.name.in_file, put_uint);
    });
}

fn put_fault(out: &mut Vec<u8>, fault: &Fault<'_>) {
    put_uint(out, fault.time);
    put_uint(out, fault.cpu.into());
    put_uint(out, fault.epid.into());
    put_option(out, fault.probe.as_deref(), |out, probe| put_probe(out, probe));
    put_uint(out, fault.kind as u64);
    put_uint(out, fault.action.into());
    put_option(out, fault.offset, |out, offset| put_uint(out, offset.into()));
    put_uint(out, fault.value);
    put_uint(out, fault.count);
}

fn put_row(out: &mut Vec<u8>, row: &Row<'_>) {
    put_sized(out, |out| {
        put_list(out, &row.key, put_value);
        put_list(out, &row.values, put_agg_value);
    });
}

fn put_growth(out: &mut Vec<u8>, row: &Growth<'_>) {
    put_sized(out, |out| {
        put_list(out, &row.key, put_value);
        put_list(out, &[&row.increment, &row.total], |out, value| put_agg_value(out, value));
    });
}

fn put_agg_value(out: &mut Vec<u8>, value: &AggValue<'_>) {
    put_sized(out, |out| {
        put_function(out, value.function);
        put_uint(out, value.normal);
        put_list(out, &value.words, |out, word| put_uint(out, *word));
        put_list(out, &value.cpus, |out, (cpu, words)| {
            put_uint(out, (*cpu).into());
            put_list(out, words, |out, word| put_uint(out, *word));
        });
        out.push(u8::from(value.absent));
    });
}

fn put_column(out: &mut Vec<u8>, column: &Column<'_>) {
    put_sized(out, |out| {
        put_text(out, &column.name);
        put_function(out, column.function);
    });
}

fn put_function(out: &mut Vec<u8>, function: AggFunc) {
    match function {
        AggFunc::Count => out.push(0),
        AggFunc::Sum => out.push(1),
        AggFunc::Min => out.push(2),
        AggFunc::Max => out.push(3),
        AggFunc::Avg => out.push(4),
        AggFunc::Stddev => out.push(5),
        AggFunc::Quantize => out.push(6),
        AggFunc::Lquantize { base, limit, step } => {
            out.push(7);
            put_int(out, base.into());
            put_int(out, limit.into());
            put_uint(out, step.into());
        }
        AggFunc::Llquantize { factor, low, high, nsteps } => {
            out.push(8);
            [factor, low, high, nsteps].into_iter().for_each(|n| put_uint(out, n.into()));
        }
    }
}

fn put_shape(out: &mut Vec<u8>, shape: &Shape) {
    put_bytes(out, shape.name.as_bytes());
    put_uint(out, shape.size.into());
    match &shape.form {
        Form::Int { signed } => out.extend_from_slice(&[0, u8::from(*signed)]),
        Form::Char { signed } => out.extend_from_slice(&[1, u8::from(*signed)]),
        Form::Float => out.push(2),
        Form::Pointer => out.push(3),
        Form::FunctionPointer => out.push(4),
        Form::Enum { signed, names } => {
            out.extend_from_slice(&[5, u8::from(*signed)]);
            put_list(out, names, |out, (name, value)| {
                put_bytes(out, name.as_bytes());
                put_int(out, *value);
            });
        }
        Form::String => out.push(6),
        Form::Array(element) => {
            out.push(7);
            put_shape(out, element);
        }
        Form::Sou(members) => {
            out.push(8);
            put_list(out, members, |out, member| {
                put_bytes(out, member.name.as_bytes());
                put_uint(out, member.offset.into());
                put_option(out, member.bits, |out, (shift, width)| out.extend_from_slice(&[shift, width]));
                put_shape(out, &member.shape);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Reader;
    use crate::event::Firing;
    use crate::generate::Generator;
    use crate::value::SymbolName;
    use crate::wire::grown;

    /// A version before it had no such field. Its symbols are read with a default.
    #[test]
    fn symbols_that_end_before_an_added_field_are_those_of_no_interpreter() {
        let mut name = SymbolName::new(None, Some("f".into()), 0);
        (name.inlined, name.interpreted) = (true, true);
        let symbol = Symbol::new(7, Some(2), AddrForm::Address, name);
        let probe = std::borrow::Cow::Owned(Probe::new(1, [(); 4].map(|()| "p".into()), Calls::None).into());
        let field = |symbol: &Symbol| Field {
            name: "".into(),
            action: Action::Trace(Value::Symbol(symbol.clone().into())),
        };
        let record = |symbol: &Symbol| {
            let firing = Firing::new(0, 0, 1, std::borrow::Cow::clone(&probe));
            Event::Record(Record { firing, part: Part::WHOLE, fields: vec![field(symbol)] })
        };
        let mut encoder = Encoder::new(Vec::new());
        encoder.event(&record(&symbol)).unwrap();
        let mut stream = encoder.into_inner().unwrap();
        assert_eq!(Reader::new(&stream[..]).next_event().unwrap(), Some(record(&symbol)));
        // The symbol is at the end of the frame. Lengths are those of the frame, the field, the
        // value and the symbol.
        let mut encoded = Vec::new();
        put_symbol(&mut encoded, &symbol);
        assert!(stream.ends_with(&encoded));
        let at = stream.len() - encoded.len();
        for place in [MAGIC.len() + 4, at - 5, at - 2, at] {
            stream[place] -= 2;
        }
        // Two fields were added.
        assert_eq!((stream.pop(), stream.pop()), (Some(0), Some(1)));
        let mut earlier = symbol.clone();
        earlier.name.interpreted = false;
        assert_eq!(Reader::new(&stream[..]).next_event().unwrap(), Some(record(&earlier)));
    }

    /// A later version adds fields to every structure. This one reads the events without them.
    #[test]
    fn fields_that_a_later_version_adds_to_structures_are_skipped() {
        for (seed, added) in (0..600).flat_map(|seed| [(seed, &[9, 0][..]), (seed, &[7; 200])]) {
            let event = Generator::new(seed).event();
            let mut encoder = Encoder::new(Vec::new());
            grown::BY.set(added);
            encoder.event(&event).unwrap();
            grown::BY.set(&[]);
            encoder.flush().unwrap();
            let mut reader = Reader::new(&encoder.get_ref()[..]);
            assert_eq!(reader.next_event().unwrap(), Some(event), "seed {seed}");
        }
    }
}
