//! A session of very many epochs: the memory of this process does not grow, and what is printed
//! adds up to what fired. It has a process of its own, because other tests in the process would
//! take memory.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dtrace::events::{Event, SinkError};
use dtrace::interpreter::{Firing, GivenProbes, Interpreter, Memory};
use dtrace::options::Options;
use dtrace::provider::Provider;
use dtrace::{Field, Macros, Message, Session, Sink, Source, Status, Text};

/// In each epoch: keys, elements of arrays, `self->` variables, strings and processes that were
/// never seen before, and a speculation.
const SCRIPT: &str = r#"
t:::hit { @keys[execname, pid, arg0] = count(); @stacks[stack(4)] = sum(1); @all = count(); @spread = quantize(arg0); }
t:::hit { self->n = arg0; self->text = copyinstr(arg1); seen[tid, self->text] = arg0; self->array[arg0] = 1; }
t:::hit { self->id = speculation(); }
t:::hit /self->id/ { speculate(self->id); printf("%d %s\n", pid, self->text); stack(4); }
t:::hit /self->id && arg0 % 2/ { commit(self->id); }
t:::hit /self->id && !(arg0 % 2)/ { discard(self->id); }
t:::done { seen[tid, self->text] = 0; self->array[self->n] = 0; self->n = 0; self->text = 0; self->id = 0; }
t:::tick
{
	printa(@all); clear(@all); clear(@spread);
	normalize(@keys, 1); printa(@keys); trunc(@keys);
	printa("%k %@d\n", @stacks); trunc(@stacks, 3);
}
"#;

/// A hundred thousand in a release build, which takes some seconds.
const EPOCHS: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
const HITS: u64 = 2;

/// The firings of an epoch.
fn epoch(n: u64) -> impl Iterator<Item = Firing> {
    let time = move |at: u64| 1000 * n + at;
    let of = move |name: &str, hit: u64| Firing {
        time: time(10 * hit),
        pid: (2 + HITS * n + hit) as i32,
        tid: (2 + HITS * n + hit) as i32,
        execname: format!("p{n}"),
        args: vec![HITS * n + hit + 1, 0x1000],
        stack: (0..4).map(|frame| 0xffff_ffff_8100_0000 + (n % 100) * 64 + frame).collect(),
        memory: Arc::new(Memory::new().user(0x1000, format!("text {n} {hit}\0"))),
        ..Firing::of(format!("t:::{name}"))
    };
    let hits = (0..HITS)
        .flat_map(move |hit| [of("hit", hit), Firing { time: time(10 * hit + 5), ..of("done", hit) }]);
    hits.chain([Firing { time: time(900), ..Firing::of("t:::tick") }])
}

/// Text that nobody reads.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl dtrace::Output for Nowhere {
    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        panic!("{messages:?}");
    }
}

/// The sums of the values of `@all` and `@keys`, and the number of records with text.
#[derive(Default)]
struct Sums {
    all: u64,
    keys: u64,
    records: u64,
}

impl Sink for Sums {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        match event {
            Event::Aggregation(a) => {
                let sum = a
                    .rows
                    .iter()
                    .flat_map(|r| &r.values)
                    .map(|v| v.words.first().copied().unwrap_or(0))
                    .sum::<u64>();
                match &*a.columns[0].name {
                    "all" => self.all += sum,
                    "keys" => self.keys += sum,
                    _ => {}
                }
            }
            Event::Record(r) => self.records += u64::from(r.fields.len() == 2),
            _ => {}
        }
        Ok(())
    }
}

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn memory_is_flat_over_very_many_epochs_and_the_sums_are_exact() {
    if !testing::alone!() {
        return;
    }
    let mut options = Options::default();
    // Pages of buffers take memory when they are first written.
    for (name, value) in [
        ("quiet", None),
        ("nspec", Some("2")),
        ("strsize", Some("32")),
        ("bufsize", Some("64k")),
        ("specsize", Some("16k")),
    ] {
        options.set(name, value).unwrap();
    }
    let probes =
        ["hit", "done", "tick"].iter().fold(GivenProbes::new("t"), |p, name| p.probe("", "", name, &[]));
    let source = Source::Specifier(Field::Name, SCRIPT.into());
    let providers = vec![Box::new(probes) as Box<dyn Provider>];
    let program =
        dtrace::compile_with(&dtrace::System::live(), &[source], &Macros::default(), &mut options, providers)
            .unwrap_or_else(|e| panic!("{e}"));
    let reached = Arc::new(AtomicU64::new(0));
    let now = reached.clone();
    let firings = (0..EPOCHS).inspect(move |n| now.store(*n, Ordering::Relaxed)).flat_map(epoch);
    let sink = (Text::new(Nowhere), Sums::default());
    let mut session = Session::interpret(&program, options, Interpreter::new(firings), sink).unwrap();
    let mut warm = None;
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {
        if reached.load(Ordering::Relaxed) == EPOCHS / 10 && warm.is_none() {
            warm = Some(resident());
        }
    }
    let (warm, end) = (warm.unwrap(), resident());
    println!("{warm} KiB after {} epochs, {end} KiB after {EPOCHS}", EPOCHS / 10);
    session.finish().unwrap();
    let Sums { all, keys, records } = session.sink().1;
    assert_eq!((all, keys, records), (HITS * EPOCHS, HITS * EPOCHS, HITS * EPOCHS / 2));
    assert!(end <= warm + 1024, "{warm} KiB grew to {end} KiB");
}
