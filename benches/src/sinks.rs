//! What sinks cost: a million records, a million rows of intervals with counts, and as many with
//! distributions, in each format and as what is sent to servers. Nothing is written anywhere.
//!
//! Each figure is of a process of its own, which the kernel measures: the time of the CPU, and the
//! most memory. A sink that does nothing shows what making the events takes, and is subtracted. A
//! round has every sink once, and the least of all rounds is the cost of the code: the machine may
//! do other work meanwhile.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dtrace::events::{
    Action, AddrForm, AggFunc, AggValue, Calls, Clock, Column, Event, Field, Firing, Growth, Host, Int,
    Interval, Needs, Part, Probe, Record, SinkError, Stack, Start, Symbol, SymbolName, Value,
};
use dtrace::formats::{Format, Kind, Snapshot};
use dtrace::metrics::Otlp;
use dtrace::{Message, Options, Output, Printer, Sink, flame, formats};

use crate::run::{Tools, figure};

/// The records, and the rows of intervals.
const EVENTS: u64 = 1_000_000;
/// The rows of an interval.
const KEYS: u64 = 100;
/// The series of the scrape that is timed, which are the most that there are.
const SERIES: u64 = 10_000;
/// The most seconds that a million records may take in a timeline, the most bytes of a slice there,
/// and the most milliseconds of a scrape.
const SECONDS: f64 = 1.0;
const SLICE: f64 = 40.0;
const SCRAPE: f64 = 50.0;

/// An output that counts its bytes.
struct Nowhere;

static BYTES: AtomicU64 = AtomicU64::new(0);

impl io::Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BYTES.fetch_add(bytes.len() as u64, Ordering::Relaxed);
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

/// A sink that does nothing.
struct Nothing;

impl Sink for Nothing {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        std::hint::black_box(event);
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }
}

/// A sink as it is fed.
enum Made {
    Stream(Box<dyn Sink>),
    /// Its content is made once, at the end.
    Snapshot(Box<dyn Snapshot>),
}

impl Made {
    fn sink(&mut self) -> &mut dyn Sink {
        match self {
            Made::Stream(sink) => &mut **sink,
            Made::Snapshot(sink) => &mut **sink,
        }
    }
}

fn int(n: u64) -> Value<'static> {
    Value::Int(Int::new(n, 8, true))
}

fn text(text: impl Into<Vec<u8>>) -> Value<'static> {
    Value::Str { text: text.into().into(), size: 16 }
}

/// Entries and returns of 300 system calls by 200 threads, 4 µs between two, with these values.
fn records(sink: &mut dyn Sink, count: u64, values: &[Field<'static>]) {
    let probe = |n: u64, name: &str| {
        let names = ["syscall", "vmlinux", &format!("function{n}"), name].map(Into::into);
        Arc::new(Probe::new(n as u32, names, Calls::System))
    };
    let probes: Vec<Arc<Probe>> =
        (0..600).map(|n| probe(n / 2, ["entry", "return"][n as usize % 2])).collect();
    for n in 0..count {
        let call = n / 2;
        let probe = &probes[(2 * (call % 300) + n % 2) as usize];
        let mut firing = Firing::new(5_000_000_000 + 4000 * n, 0, 1, Cow::Borrowed(probe));
        (firing.pid, firing.tid) = (Some(1000), Some(1000 + (call % 200) as u32));
        let _ = sink.event(&Event::Record(Record { firing, part: Part::WHOLE, fields: values.to_vec() }));
        // As a session with a buffer of a few thousand records.
        if n % 4096 == 4095 {
            let _ = sink.batch_end();
        }
    }
}

/// What the rows of intervals have.
#[derive(Clone, Copy)]
enum Rows {
    Counts,
    /// With five buckets that have something.
    Distributions,
    /// Ten frames in a key.
    Stacks,
}

impl Rows {
    fn function(self) -> AggFunc {
        match self {
            Rows::Counts | Rows::Stacks => AggFunc::Count,
            Rows::Distributions => AggFunc::Quantize,
        }
    }

    fn words(self, n: u64, key: u64) -> Vec<u64> {
        match self {
            Rows::Counts | Rows::Stacks => vec![n * (1 + key)],
            // The buckets of `quantize()` begin with 63 of negative values and one of 0.
            Rows::Distributions => {
                let mut words = vec![0; 127];
                (0..5).for_each(|b| words[70 + (key as usize + b) % 20] = n * (1 + b as u64));
                words
            }
        }
    }

    fn key(self, key: u64) -> Value<'static> {
        match self {
            Rows::Counts | Rows::Distributions => text(format!("process-{key}")),
            Rows::Stacks => {
                let frame = |n: u64| {
                    let name = format!("function{n}_{}", key % 7);
                    let name = SymbolName::new(Some("vmlinux".into()), Some(name.into()), 4);
                    Symbol::new(0xffff_8100_0000 + 4096 * key + n, None, AddrForm::Address, name)
                };
                Value::Stack(Stack { process: None, frames: (0..10).map(frame).collect() })
            }
        }
    }
}

/// Intervals of a second with so many rows in all, and so many in each.
fn intervals(sink: &mut dyn Sink, rows: Rows, count: u64, keys: u64) {
    let names: Vec<Value<'static>> = (0..keys).map(|key| rows.key(key)).collect();
    for n in 0..count / keys {
        let begin = 5_000_000_000 + n * 1_000_000_000;
        let value = |n: u64, key: u64| AggValue {
            function: rows.function(),
            words: rows.words(n, key).into(),
            normal: 1,
            cpus: Vec::new(),
            absent: false,
        };
        let growth = |key: u64| Growth {
            key: vec![names[key as usize].clone()],
            increment: value(1, key),
            total: value(n + 1, key),
        };
        let column = Column { name: "calls".into(), function: rows.function() };
        let mut all = Interval::new(begin, begin + 1_000_000_000, column, (0..keys).map(growth).collect());
        (all.keys, all.unsigned) = (vec!["execname".into()], true);
        let _ = sink.event(&Event::Interval(all));
        let _ = sink.batch_end();
    }
}

/// A sink by the name of its format, or by the option that sends what it makes.
fn make(name: &str) -> Option<Made> {
    let options = Options::default();
    Some(match name {
        "nothing" => Made::Stream(Box::new(Nothing)),
        "text" => Made::Stream(Printer::Text.of_stored_events(Box::new(Nowhere))),
        "-x otlp" => Made::Stream(Box::new(Otlp::new(Nowhere))),
        "-x otlpprofiles" => Made::Stream(Box::new(flame::Otlp::new(formats::unnamed(&options), Nowhere))),
        name => match Format::find(name)?.kind {
            Kind::Stream(make) => Made::Stream(make(Box::new(Nowhere), &options)),
            Kind::Snapshot(make) => Made::Snapshot(make("x.svg", &options)),
            Kind::Flame(_) => return None,
        },
    })
}

/// What feeding a sink has cost.
#[derive(Clone, Copy)]
struct Cost {
    /// Seconds of a CPU.
    time: f64,
    /// The most memory, in MiB.
    memory: f64,
    /// The bytes that were written.
    bytes: f64,
}

impl Cost {
    const NONE: Cost = Cost { time: f64::INFINITY, memory: f64::INFINITY, bytes: 0.0 };

    fn least(self, other: Cost) -> Cost {
        let (time, memory) = (self.time.min(other.time), self.memory.min(other.memory));
        Cost { time, memory, bytes: other.bytes }
    }

    /// What is beyond another cost.
    fn beyond(self, other: Cost) -> Cost {
        let (time, memory) = (self.time - other.time, self.memory - other.memory);
        Cost { time, memory, bytes: self.bytes }
    }
}

/// Feeds a sink in a process of its own. `None`: there is none, or the process has failed.
fn measure(name: &str, feed: &dyn Fn(&mut dyn Sink)) -> Option<Cost> {
    let (mut reader, mut writer) = io::pipe().ok()?;
    // SAFETY: this program has one thread. The child ends without the destructors of the parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fed = make(name).map(|mut made| {
            let clock = Clock { time: 5_000_000_000, wall: 1_767_323_045_000_000_000 };
            let start = Start::new("1", clock, Host::new("host", "7.0", "x86_64", 2));
            let sink = made.sink();
            let _ = sink.event(&Event::Start(start));
            feed(sink);
            let _ = sink.flush();
            if let Made::Snapshot(sink) = &made {
                let _ = Nowhere.write_all(&sink.bytes().unwrap_or_default());
            }
        });
        let _ = writer.write_all(&BYTES.load(Ordering::Relaxed).to_le_bytes());
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(fed.is_none())) };
    }
    drop(writer);
    let mut bytes = [0; 8];
    let read = reader.read_exact(&mut bytes);
    let mut status = 0;
    // SAFETY: zeros are a struct of numbers, and the call writes one of its own.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child of this process; both pointers are of this frame.
    let ended = unsafe { libc::wait4(child, &raw mut status, 0, &raw mut usage) };
    if child < 0 || ended != child || status != 0 || read.is_err() {
        return None;
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Some(Cost {
        time: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        memory: usage.ru_maxrss as f64 / 1024.0,
        bytes: u64::from_le_bytes(bytes) as f64,
    })
}

/// The least cost of each sink in some rounds, beyond that of the one that does nothing; that one's
/// as it is.
fn all(names: &[&'static str], feed: &dyn Fn(&mut dyn Sink), rounds: usize) -> HashMap<&'static str, Cost> {
    let mut found: HashMap<&str, Cost> = HashMap::new();
    for _ in 0..rounds {
        for name in ["nothing"].iter().chain(names) {
            let Some(cost) = measure(name, feed) else { continue };
            let least = found.entry(*name).or_insert(Cost::NONE);
            *least = least.least(cost);
        }
    }
    let nothing = found.get("nothing").copied().unwrap_or(Cost::NONE);
    found
        .into_iter()
        .map(|(name, cost)| (name, if name == "nothing" { cost } else { cost.beyond(nothing) }))
        .collect()
}

fn verdict(value: f64, most: f64, unit: &str) -> String {
    let word = if value <= most { "reached" } else { "MISSED" };
    format!("{word}: at most {most} {unit}")
}

pub(crate) fn sinks(_: &Tools) {
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let field = |name: &str, value| Field { name: Cow::Owned(name.into()), action: Action::Trace(value) };
    let both = [field("execname", text(*b"bash")), field("arg0", int(3))];
    let names = ["text", "json", "csv", "events", "perfetto"];
    println!(
        "\nsinks: a million records, CPU time and most memory beyond making them (the least of {rounds}):\n  \
         without values, with two; bytes of each; with a tenth of the records"
    );
    let of = |count: u64, n: usize| {
        let values = &both[..n];
        all(&names, &move |sink| records(sink, count, values), rounds)
    };
    let (none, two, few) = (of(EVENTS, 0), of(EVENTS, 2), of(EVENTS / 10, 2));
    for name in ["nothing"].iter().chain(&names) {
        let [none, two, few] =
            [&none, &two, &few].map(|found| found.get(name).copied().unwrap_or(Cost::NONE));
        let more = match *name {
            "perfetto" => {
                let slice = 2.0 * none.bytes / EVENTS as f64;
                let time = verdict(none.time, SECONDS, "s");
                format!("{time}; {} bytes a slice, {}", figure(slice, 1), verdict(slice, SLICE, "bytes"))
            }
            _ => String::new(),
        };
        println!(
            "  {name:<16} {:>6} s {:>6} s  {:>6} bytes  {:>6} MiB {:>6} MiB  {more}",
            figure(none.time, 2),
            figure(two.time, 2),
            figure(two.bytes / EVENTS as f64, 1),
            figure(two.memory, 1),
            figure(few.memory, 1),
        );
    }
    let of_counts = [
        "json",
        "events",
        "perfetto",
        "prometheus",
        "openmetrics",
        "graphite",
        "statsd",
        "influx",
        "-x otlp",
    ];
    let of_distributions = [&of_counts[..], &["heat"]].concat();
    for (what, names, rows) in [
        ("counts", &of_counts[..], Rows::Counts),
        ("distributions of five buckets", &of_distributions, Rows::Distributions),
        ("counts of stacks of ten frames", &["-x otlpprofiles"], Rows::Stacks),
    ] {
        println!(
            "\nsinks: a million rows of intervals, {KEYS} in each, {what}: CPU time, memory with all and with a tenth"
        );
        let of = |count: u64| all(names, &move |sink| intervals(sink, rows, count, KEYS), rounds);
        let (full, few) = (of(EVENTS), of(EVENTS / 10));
        for name in ["nothing"].iter().chain(names) {
            let [full, few] = [&full, &few].map(|found| found.get(name).copied().unwrap_or(Cost::NONE));
            println!(
                "  {name:<16} {:>6} s  {:>6} MiB {:>6} MiB",
                figure(full.time, 2),
                figure(full.memory, 1),
                figure(few.memory, 1),
            );
        }
    }
    scrape(rounds);
}

/// The content for Prometheus with the most series: the time of making it, which a scrape never
/// waits for, because it is made when an interval has ended.
fn scrape(rounds: usize) {
    let Some(Made::Snapshot(mut sink)) = make("prometheus") else { return };
    intervals(&mut *sink, Rows::Counts, SERIES, SERIES);
    let (mut least, mut bytes) = (f64::INFINITY, 0);
    for _ in 0..rounds.max(5) {
        let begun = cpu();
        bytes = sink.bytes().unwrap_or_default().len();
        least = least.min((cpu() - begun) * 1e3);
    }
    println!(
        "\nsinks: the text of {SERIES} series, {bytes} bytes: {} ms  {}",
        figure(least, 2),
        verdict(least, SCRAPE, "ms")
    );
}

/// The time that this process has had a CPU, in seconds.
fn cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one struct of this frame.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
