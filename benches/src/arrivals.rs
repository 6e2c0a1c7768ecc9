//! Probes of a known shape that come while a session runs: our own CPU time for each, and what
//! remains when they have gone.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dtrace::options::Options;
use dtrace::{Field, Macros, Provider, Session, Source};

use crate::run::Tools;

// The provider of the library's tests.
#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../crates/dtrace/tests/library/later.rs"]
mod later;

use later::{ATTACHING, Later, cpu_time, fire};

/// Results that nobody reads.
struct Quiet;

impl dtrace::Sink for Quiet {
    fn event(&mut self, _: &dtrace::events::Event<'_>) -> Result<(), dtrace::events::SinkError> {
        Ok(())
    }
}

/// Resident memory in KiB and the number of descriptors.
fn resources() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    (kib, std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count))
}

pub(crate) fn arrivals(_: &Tools) {
    const ALL: usize = 1000;
    println!("\narrivals: {ALL} probes of a known shape, one by one, each a raw tracepoint");
    if let Err(e) = measure(ALL) {
        println!("  not measured: {e}");
    }
}

fn measure(all: usize) -> Result<(), String> {
    let later = Later::new();
    let mut options = Options::default();
    for (name, value) in
        [("zdefs", None), ("quiet", None), ("aggrate", Some("20ms")), ("switchrate", Some("20ms"))]
    {
        options.set(name, value).map_err(|e| e.to_string())?;
    }
    let source = Source::Specifier(Field::Name, "later:::hit /pid == $pid/ { @ = count(); }".into());
    let providers = vec![Box::new(later.clone()) as Box<dyn Provider>];
    let program =
        dtrace::compile_with(&dtrace::System::live(), &[source], &Macros::default(), &mut options, providers);
    let program = program.map_err(|e| e.to_string())?;
    let mut session = Session::start(&program, options, Vec::new(), Quiet).map_err(|e| format!("{e:?}"))?;
    let work = |session: &mut Session<Quiet>, time: Duration| {
        let end = Instant::now() + time;
        loop {
            session
                .work(None, end.saturating_duration_since(Instant::now()))
                .map_err(|e| format!("{e:?}"))?;
            if Instant::now() >= end {
                return Ok::<(), String>(());
            }
        }
    };
    let name = |n: usize| format!("place_{n}");
    for round in 0..3 {
        // The first round loads the program and grows what is kept.
        later.add(&[&name(0)]);
        work(&mut session, Duration::from_millis(200))?;
        let before = resources();
        let (attach, start, mut own) = (ATTACHING.load(Ordering::Relaxed), Instant::now(), Duration::ZERO);
        for n in 1..=all {
            let begun = cpu_time();
            later.add(&[&name(n)]);
            work(&mut session, Duration::ZERO)?;
            own += cpu_time() - begun;
        }
        let wall = start.elapsed();
        let kernel = Duration::from_nanos(ATTACHING.load(Ordering::Relaxed) - attach);
        fire();
        let during = resources();
        for n in 0..=all {
            later.remove(&[&name(n)]);
            work(&mut session, Duration::ZERO)?;
        }
        work(&mut session, Duration::from_secs(3))?;
        let after = resources();
        let each = own.saturating_sub(kernel) / all as u32;
        println!(
            "  round {round}: own CPU {each:?} each (bound 500 us), attaching {:?} each, {wall:?} in all; \
             resident {} / {} / {} KiB, descriptors {} / {} / {} before, with and after them",
            kernel / all as u32,
            before.0,
            during.0,
            after.0,
            before.1,
            during.1,
            after.1
        );
    }
    session.finish().map_err(|e| format!("{e:?}"))?;
    Ok(())
}
