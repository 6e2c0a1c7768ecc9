//! What sinks cost: a million records, and a million rows of intervals, as text, JSON, CSV,
//! timelines and metrics. Nothing is written anywhere.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use dtrace::events::{
    Action, AggFunc, AggValue, Calls, Clock, Column, Event, Field, Firing, Growth, Host, Int, Interval, Part,
    Probe, Record, Start, Value,
};
use dtrace::formats::{Format, Kind};
use dtrace::metrics::Otlp;
use dtrace::{Message, Options, Output, Printer, Sink};

use crate::run::{Tools, figure, median};

/// The records, and the rows of intervals.
const EVENTS: u64 = 1_000_000;
/// The rows of an interval.
const KEYS: u64 = 100;
/// The most that a million records may take in a timeline.
const SECONDS: f64 = 1.0;

/// An output that keeps nothing.
struct Nowhere;

impl io::Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Nowhere {
    fn messages(&mut self, _: &[Message]) -> io::Result<()> {
        Ok(())
    }
}

fn int(n: u64) -> Value<'static> {
    Value::Int(Int::new(n, 8, true))
}

/// Entries and returns of 300 system calls by 200 threads, 4 µs between two, with these values.
fn records(sink: &mut dyn Sink, values: &[Field<'static>]) {
    let probe = |n: u64, name: &str| {
        let names = ["syscall", "vmlinux", &format!("function{n}"), name].map(Into::into);
        Arc::new(Probe::new(n as u32, names, Calls::System))
    };
    let probes: Vec<Arc<Probe>> =
        (0..600).map(|n| probe(n / 2, ["entry", "return"][n as usize % 2])).collect();
    for n in 0..EVENTS {
        let call = n / 2;
        let probe = &probes[(2 * (call % 300) + n % 2) as usize];
        let mut firing = Firing::new(5_000_000_000 + 4000 * n, 0, 1, Cow::Borrowed(probe));
        (firing.pid, firing.tid) = (Some(1000), Some(1000 + (call % 200) as u32));
        let _ = sink.event(&Event::Record(Record { firing, part: Part::WHOLE, fields: values.to_vec() }));
    }
}

/// Intervals of a second with a count of each key.
fn intervals(sink: &mut dyn Sink) {
    let value = |n: u64| AggValue {
        function: AggFunc::Count,
        words: vec![n].into(),
        normal: 1,
        cpus: Vec::new(),
        absent: false,
    };
    for n in 0..EVENTS / KEYS {
        let begin = 5_000_000_000 + n * 1_000_000_000;
        let growth = |key: u64| Growth {
            key: vec![Value::Str { text: format!("process-{key}").into_bytes().into(), size: 16 }],
            increment: value(1 + key),
            total: value((n + 1) * (1 + key)),
        };
        let column = Column { name: "calls".into(), function: AggFunc::Count };
        let mut all = Interval::new(begin, begin + 1_000_000_000, column, (0..KEYS).map(growth).collect());
        (all.keys, all.unsigned) = (vec!["execname".into()], true);
        let _ = sink.event(&Event::Interval(all));
        let _ = sink.batch_end();
    }
}

/// A sink of the table, or one that the table does not have.
fn make(name: &str) -> Option<Box<dyn Sink>> {
    let options = Options::default();
    Some(match name {
        "text" => Printer::Text.of_stored_events(Box::new(Nowhere)),
        "otlp" => Box::new(Otlp::new(io::sink())),
        name => match Format::find(name)?.kind {
            Kind::Stream(make) => make(Box::new(io::sink()), &options),
            Kind::Snapshot(make) => make("x", &options),
            Kind::Flame(_) => return None,
        },
    })
}

/// The time of a sink.
fn seconds(name: &str, feed: &dyn Fn(&mut dyn Sink)) -> f64 {
    let one = |_| {
        let mut sink = make(name)?;
        let clock = Clock { time: 5_000_000_000, wall: 1_767_323_045_000_000_000 };
        let start = Start::new("1", clock, Host::new("host", "7.0", "x86_64", 2));
        let _ = sink.event(&Event::Start(start));
        let begun = Instant::now();
        feed(&mut *sink);
        let _ = sink.flush();
        Some(begun.elapsed().as_secs_f64())
    };
    median((0..3).filter_map(one).collect())
}

pub(crate) fn sinks(_: &Tools) {
    let values = |name: &str, value| Field { name: Cow::Owned(name.into()), action: Action::Trace(value) };
    let name = Value::Str { text: b"bash"[..].into(), size: 16 };
    let both = [values("execname", name), values("arg0", int(3))];
    println!(
        "\nsinks: {EVENTS} records, without values and with two (median of 3; making the events is a part)"
    );
    for name in ["text", "json", "csv", "perfetto"] {
        let [none, two] = [&both[..0], &both].map(|values| seconds(name, &|sink| records(sink, values)));
        let verdict = match name {
            "perfetto" if none <= SECONDS => "reached: at most 1 s",
            "perfetto" => "MISSED: at most 1 s",
            _ => "",
        };
        println!("  {name:<11} {:>6} s {:>6} s  {verdict}", figure(none, 2), figure(two, 2));
    }
    println!("\nsinks: {EVENTS} rows of intervals, {KEYS} in each");
    for name in ["json", "perfetto", "prometheus", "graphite", "statsd", "influx", "otlp"] {
        println!("  {name:<11} {:>6} s", figure(seconds(name, &intervals), 2));
    }
}
