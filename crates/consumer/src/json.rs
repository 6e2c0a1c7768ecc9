//! The sink for JSON: one object a line for each event.
//!
//! `docs/events.schema.json` describes the lines; tests validate every line against it. The
//! decisions:
//!
//! - **Every event is a line**, errors and drops too, in the order in which they happen. Messages
//!   are also written to standard error, as text does: who filters the lines still sees that
//!   results are incomplete.
//! - **What a program prints is there twice where it has a format**: as the formatted text and as
//!   typed values with names.
//! - **Integers have all their digits.** They are JSON numbers of up to 64 bits, which RFC 8259
//!   allows. A reader that knows only doubles rounds those above 2^53. Addresses are hexadecimal
//!   strings.
//! - **A string that is not UTF-8 is `{"bytes": "hexadecimal digits"}`**, with all its bytes. Any
//!   other string is a JSON string, so the two differ in type.
//! - **The output of `system()` goes to standard error**: it is not JSON.
//!
//! There is no tree of values: events are written as they come, into the buffer of the output. (A
//! serialization library would need a wrapper type for each type of events, and the text of a
//! probe, which is half of a line, could not be kept from one record to the next.)
//!
//! ```text
//!  mod    events
//!  value  values, frames, buckets, print()
//!  write  the syntax
//! ```

mod value;
mod write;

use std::io;
use std::sync::Arc;

use events::{
    Action, AggFunc, Aggregation, Argument, Change, Effect, Event, Fault, Field, Flow, Growth, Interval,
    Needs, Notice, NoticeKind, Occasion, Probe, Record, Row, Setting, SettingValue, Sink, SinkError, Start,
};

use crate::message::Message;
use crate::options::Options;
use crate::output::{Effects, Output};
use crate::text::{write_printa, write_printf};
use write::{Object, key, object};

/// JSON, written to an [`Output`].
pub struct Json<W: Output> {
    out: Effects<W>,
    options: Options,
    /// Effects are performed, and the resolver is called.
    performs: bool,
    /// The probe of the last record, and the begin of a line of it, up to the time.
    probe: Option<(Arc<Probe>, Vec<u8>)>,
    /// The time of the record whose parts surround the next event.
    within: Option<u64>,
    /// A formatted text.
    formatted: Vec<u8>,
}

impl<W: Output> Json<W> {
    /// A line has the process and the thread.
    pub const NEEDS: Needs = Needs { process_ids: true, printed: false };

    /// JSON for an output. Effects are performed: commands are run, and output is redirected.
    pub fn new(out: W) -> Self {
        let mut out = Effects::new(out);
        out.commands_to_stderr = true;
        Json {
            out,
            options: Options::default(),
            performs: true,
            probe: None,
            within: None,
            formatted: Vec::new(),
        }
    }

    /// JSON of events that were stored. Effects are not performed, and the resolver is not called.
    pub fn of_stored_events(out: W) -> Self {
        Json { performs: false, ..Json::new(out) }
    }

    /// The initial output.
    pub fn output(&self) -> &W {
        &self.out.first
    }

    /// The initial output.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.out.first
    }

    /// A line of an event.
    fn line(&mut self, event: &str, members: impl FnOnce(&mut Object<'_>)) {
        let out = &mut self.out.pending;
        object(out, |o| {
            o.text(key!("event"), event);
            members(o);
        });
        out.push(b'\n');
    }

    fn record(&mut self, record: &Record<'_>) {
        let Json { out, options, performs, probe, within, formatted } = self;
        let firing = &record.firing;
        *within = Some(firing.time).filter(|_| !record.part.last);
        if probe.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, &firing.probe)) {
            let mut json = Vec::new();
            json.extend_from_slice(br#"{"event":"record","probe":"#);
            write_probe(&mut json, &firing.probe);
            json.extend_from_slice(key!("time").as_bytes());
            *probe = Some(((*firing.probe).clone(), json));
        }
        let out = &mut out.pending;
        if let Some((_, begin)) = probe {
            out.extend_from_slice(begin);
        }
        write::unsigned(out, firing.time);
        let mut o = Object::of(out);
        o.unsigned(key!("cpu"), firing.cpu);
        o.some_unsigned(key!("pid"), firing.pid);
        o.some_unsigned(key!("tid"), firing.tid);
        match firing.flow {
            Flow::None => {}
            Flow::Entry => o.text(key!("flow"), "entry"),
            Flow::Return => o.text(key!("flow"), "return"),
        }
        part(&mut o, record.part);
        let shown = record.fields.iter().filter(|field| field.action != Action::Nothing);
        o.list(key!("fields"), shown, |out, field| {
            write_field(out, field, |out, format, args| {
                formatted.clear();
                write_printf(formatted, format, args, options, *performs);
                value::bytes(out, formatted);
            });
        });
        o.end();
        out.push(b'\n');
    }

    fn aggregation(&mut self, all: &Aggregation<'_>) {
        let Json { out, options, performs, formatted, .. } = self;
        let out = &mut out.pending;
        object(out, |o| {
            o.text(key!("event"), "aggregation");
            match all.occasion {
                Occasion::Printa => o.text(key!("occasion"), "printa"),
                Occasion::End => o.text(key!("occasion"), "end"),
                Occasion::Demand => o.text(key!("occasion"), "demand"),
            }
            o.some_unsigned(key!("time"), all.time);
            part(o, all.part);
            o.list(key!("keys"), &all.keys, |out, name| write::string(out, name));
            o.list(key!("aggregations"), &all.columns, |out, column| {
                object(out, |o| {
                    o.text(key!("name"), &column.name);
                    function(o, column.function);
                });
            });
            o.list(key!("rows"), &all.rows, |out, row: &Row<'_>| {
                object(out, |o| {
                    o.list(key!("key"), &row.key, value::value);
                    o.list(key!("values"), &row.values, value::aggregated);
                });
            });
            if let Some(format) = &all.format {
                formatted.clear();
                for row in &all.rows {
                    write_printa(formatted, format, row, options, *performs);
                }
                value::bytes(o.member(key!("text")), formatted);
            }
        });
        out.push(b'\n');
    }

    fn interval(&mut self, all: &Interval<'_>) {
        self.line("interval", |o| {
            o.unsigned(key!("begin"), all.begin);
            o.unsigned(key!("time"), all.end);
            if all.wall != 0 {
                o.unsigned(key!("wall"), all.wall);
            }
            part(o, all.part);
            o.list(key!("keys"), &all.keys, |out, name| write::string(out, name));
            o.object(key!("aggregation"), |o| {
                o.text(key!("name"), &all.column.name);
                function(o, all.column.function);
            });
            if all.unsigned {
                o.flag(key!("unsigned"), true);
            }
            o.list(key!("rows"), &all.rows, |out, row: &Growth<'_>| {
                object(out, |o| {
                    o.list(key!("key"), &row.key, value::value);
                    value::aggregated(o.member(key!("increment")), &row.increment);
                    value::aggregated(o.member(key!("total")), &row.total);
                });
            });
        });
    }

    fn fault(&mut self, fault: &Fault<'_>) {
        let message = Message::from(fault).text;
        self.line("fault", |o| {
            o.unsigned(key!("time"), fault.time);
            o.unsigned(key!("cpu"), fault.cpu);
            if let Some(probe) = &fault.probe {
                write_probe(o.member(key!("probe")), probe);
            }
            o.unsigned(key!("fault"), fault.kind as u64);
            match fault.action {
                0 => o.flag(key!("predicate"), true),
                action => o.unsigned(key!("action"), action),
            }
            o.some_unsigned(key!("offset"), fault.offset);
            value::address(o.member(key!("value")), fault.value);
            o.some_unsigned(key!("count"), Some(fault.count).filter(|count| *count > 1));
            o.text(key!("message"), &message);
        });
    }

    /// An effect is written to the output that it changes.
    fn effect(&mut self, effect: &Effect<'_>) -> Result<(), SinkError> {
        let within = self.within;
        self.line("effect", |o| {
            o.some_unsigned(key!("time"), within);
            match effect {
                Effect::System(command) => {
                    o.text(key!("effect"), "system");
                    value::bytes(o.member(key!("command")), command);
                }
                Effect::Freopen(path) => {
                    o.text(key!("effect"), "freopen");
                    if let Some(path) = path {
                        value::bytes(o.member(key!("path")), path);
                    }
                }
                Effect::Ftruncate => o.text(key!("effect"), "ftruncate"),
                _ => o.text(key!("effect"), "unknown"),
            }
        });
        if self.performs { self.out.perform(effect) } else { Ok(()) }
    }

    fn start(&mut self, start: &Start<'_>) {
        self.options.apply(&start.settings);
        self.line("start", |o| {
            o.text(key!("version"), &start.version);
            o.object(key!("clock"), |o| {
                o.unsigned(key!("time"), start.clock.time);
                o.unsigned(key!("wall"), start.clock.wall);
            });
            o.object(key!("host"), |o| {
                o.text(key!("name"), &start.host.name);
                o.text(key!("release"), &start.host.release);
                o.text(key!("machine"), &start.host.machine);
                o.unsigned(key!("cpus"), start.host.cpus);
            });
            settings(o, &start.settings);
        });
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        self.message(notice.into(), "notice", |o| {
            o.some_unsigned(key!("time"), notice.time);
            o.text(key!("kind"), notice_kind(notice.kind));
        });
    }

    fn message(&mut self, message: Message, event: &str, members: impl FnOnce(&mut Object<'_>)) {
        self.line(event, |o| {
            members(o);
            o.text(key!("message"), &message.text);
        });
        self.out.note(message);
    }
}

impl<W: Output + Send> Sink for Json<W> {
    fn needs(&self) -> Needs {
        Self::NEEDS
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        match event {
            Event::Start(start) => self.start(start),
            Event::Options(all) => {
                self.options.apply(all);
                self.line("options", |o| settings(o, all));
            }
            Event::Record(record) => self.record(record),
            Event::Aggregation(rows) => self.aggregation(rows),
            Event::Interval(rows) => self.interval(rows),
            Event::Effect(effect) => self.effect(effect)?,
            Event::Fault(fault) => {
                self.fault(fault);
                self.out.note(fault.into());
            }
            Event::Drop(drop) => {
                let words = drop.kind.words().map_or("OTHER", |words| words.tag).to_ascii_lowercase();
                self.message(Message::dropped(drop, self.options.droptags), "drop", |o| {
                    o.some_unsigned(key!("time"), drop.time);
                    o.text(key!("kind"), &words);
                    o.unsigned(key!("cpu"), drop.cpu);
                    o.unsigned(key!("count"), drop.count);
                });
            }
            Event::Suppressed(suppressed) => {
                let message = Message::from(suppressed);
                self.line("suppressed", |o| {
                    o.some_unsigned(key!("time"), suppressed.time);
                    o.text(key!("program"), &suppressed.program);
                    o.some_unsigned(key!("cpu"), suppressed.cpu);
                    o.unsigned(key!("count"), suppressed.count);
                    o.text(key!("message"), &message.text);
                });
                match self.performs {
                    true => self.out.note_suppressed(suppressed, self.options.quiet),
                    // What is stored may have no end.
                    false => self.out.note(message),
                }
            }
            Event::Notice(notice) => self.notice(notice),
            Event::Report(text) => self.line("report", |o| o.text(key!("text"), text)),
            Event::Interrupt => self.line("interrupt", |_| {}),
            Event::Stop => {
                self.out.sum_up();
                self.line("stop", |_| {});
            }
            Event::End { status } => self.line("end", |o| o.signed(key!("status"), *status)),
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

fn write_probe(out: &mut Vec<u8>, probe: &Probe) {
    object(out, |o| {
        o.unsigned(key!("id"), probe.id);
        o.text(key!("provider"), &probe.provider);
        o.text(key!("module"), &probe.module);
        o.text(key!("function"), &probe.function);
        o.text(key!("name"), &probe.name);
    });
}

/// Which part of the whole this is: what is not the first or not the last one says so.
fn part(o: &mut Object<'_>, part: events::Part) {
    if !part.first {
        o.flag(key!("first"), false);
    }
    if !part.last {
        o.flag(key!("last"), false);
    }
}

/// Writes a field; `printf` writes a formatted text.
fn write_field(
    out: &mut Vec<u8>,
    field: &Field<'_>,
    mut printf: impl FnMut(&mut Vec<u8>, &events::Format, &[Argument<'_>]),
) {
    // The begin is one text, because many records have many fields.
    let begin = |out: &mut Vec<u8>, begin: &str| out.extend_from_slice(begin.as_bytes());
    match &field.action {
        Action::Trace(value) => {
            begin(out, r#"{"action":"trace""#);
            let mut o = Object::of(out);
            o.some_text(key!("name"), &field.name);
            value::value(o.member(key!("value")), value);
            return o.end();
        }
        Action::Printf { format, args } => {
            begin(out, r#"{"action":"printf","text":"#);
            printf(out, format, args);
            let mut o = Object::of(out);
            o.list(key!("args"), args, |out, arg| {
                object(out, |o| {
                    o.some_text(key!("name"), &arg.name);
                    value::value(o.member(key!("value")), &arg.value);
                });
            });
            return o.end();
        }
        _ => {}
    }
    let action = |o: &mut Object<'_>, action| {
        o.text(key!("action"), action);
        o.some_text(key!("name"), &field.name);
    };
    object(out, |o| match &field.action {
        Action::Print { shape, bytes, functions } => {
            action(o, "print");
            o.text(key!("type"), &shape.name);
            value::shaped(o.member(key!("value")), shape, bytes, functions);
        }
        Action::Dump(bytes) => {
            action(o, "tracemem");
            value::memory(o.member(key!("value")), bytes);
        }
        Action::Packet(packet) => {
            action(o, "pcap");
            o.unsigned(key!("protocol"), packet.protocol);
            o.unsigned(key!("walltime"), packet.time);
            o.unsigned(key!("length"), packet.length);
            value::memory(o.member(key!("value")), &packet.bytes);
        }
        Action::Exit(status) => {
            action(o, "exit");
            o.signed(key!("value"), *status);
        }
        Action::Snap(reason) => {
            action(o, "snap");
            value::value(o.member(key!("value")), reason);
        }
        Action::Change { aggregation, change } => {
            match change {
                Change::Clear => o.text(key!("action"), "clear"),
                Change::Trunc(count) => {
                    o.text(key!("action"), "trunc");
                    o.signed(key!("count"), *count);
                }
                Change::Normalize(by) => {
                    o.text(key!("action"), "normalize");
                    o.unsigned(key!("normal"), *by);
                }
                Change::Denormalize => o.text(key!("action"), "denormalize"),
            }
            o.text(key!("aggregation"), aggregation);
        }
        _ => o.text(key!("action"), "unknown"),
    });
}

/// The function of an aggregation, with its parameters.
fn function(o: &mut Object<'_>, function: AggFunc) {
    o.text(key!("function"), function.name());
    match function {
        AggFunc::Lquantize { base, limit, step } => {
            o.signed(key!("base"), base);
            o.signed(key!("limit"), limit);
            o.unsigned(key!("step"), step);
        }
        AggFunc::Llquantize { factor, low, high, nsteps } => {
            o.unsigned(key!("factor"), factor);
            o.unsigned(key!("low"), low);
            o.unsigned(key!("high"), high);
            o.unsigned(key!("nsteps"), nsteps);
        }
        _ => {}
    }
}

fn settings(o: &mut Object<'_>, all: &[Setting<'_>]) {
    o.object(key!("options"), |o| {
        for Setting { name, value } in all {
            match value {
                SettingValue::Flag(flag) => o.named(name).extend_from_slice(match flag {
                    true => b"true",
                    false => b"false",
                }),
                SettingValue::Number(number) => write::unsigned(o.named(name), *number),
                SettingValue::Text(text) => write::string(o.named(name), text),
                _ => o.named(name).extend_from_slice(b"null"),
            }
        }
    });
}

fn notice_kind(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Failure => "failure",
        NoticeKind::Lowered => "lowered",
        NoticeKind::Target => "target",
        NoticeKind::Unresponsive => "unresponsive",
        NoticeKind::Overload => "overload",
        NoticeKind::Unavailable => "unavailable",
        NoticeKind::Detail => "detail",
        _ => "other",
    }
}
