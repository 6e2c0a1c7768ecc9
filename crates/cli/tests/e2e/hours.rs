//! Sessions that run for long: what is printed and cleared again and again adds up to what fired,
//! and the memory does not grow.
//!
//! The time is some seconds. `DTRACE_HOURS_SECONDS=3600` makes it an hour, with the figures on
//! standard output.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Verdict::{self, Pass};
use crate::machine::is_guest;
use crate::tool::{LIMIT, Output, dtrace, finish_within, start, suppressed, workload};

tests! {
    printing_and_clearing_for_long_loses_no_count_and_takes_no_more_memory
    more_keys_than_fit_a_default_table_are_counted_exactly_in_a_larger_one
    keys_beyond_aggsize_are_counted_drops
}

/// How long a session runs.
fn seconds() -> u64 {
    std::env::var("DTRACE_HOURS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(6)
}

/// Ticks of [`SCRIPT`] in a second.
const TICKS: u64 = 50;

/// The most memory of its own of a process in kilobytes (pages of files come as they are touched):
/// until so many ticks were printed, and from then on until its end.
fn memory(child: &Child, printed: Arc<AtomicU64>, early_ticks: u64) -> JoinHandle<(u64, u64)> {
    let status = format!("/proc/{}/status", child.id());
    std::thread::spawn(move || {
        let (mut early, mut late) = (0, 0);
        let own = |status: String| -> Option<u64> {
            status.lines().find_map(|l| l.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok())
        };
        // A process that has ended has no memory.
        while let Some(kb) = std::fs::read_to_string(&status).ok().and_then(own) {
            let most = if printed.load(Ordering::Relaxed) < early_ticks { &mut early } else { &mut late };
            *most = kb.max(*most);
            std::thread::sleep(Duration::from_millis(50));
        }
        (early, late)
    })
}

/// The number of drops of a kind that were reported.
pub(crate) fn drops(o: &Output, kind: &str) -> u64 {
    let lines = o.err.lines().filter(|l| l.contains(kind));
    let number = |l: &str| l.strip_prefix("dtrace: ")?.split_whitespace().next()?.parse::<u64>().ok();
    lines.filter_map(number).sum()
}

/// All calls are counted by aggregations of every kind of use: printed and cleared, with keys that
/// come and go and are truncated, with a `self->` variable and an array, and normalized.
const SCRIPT: &str = r#"
syscall::getppid:entry /pid == $target/ { @count = count(); @sum = sum(1); @spread = quantize(arg0); self->n = arg0; }
syscall::getppid:entry /pid == $target/ { seen[tid, arg0] = 1; @keys[arg0] = count(); }
syscall::getppid:return /pid == $target && self->n/ { seen[tid, self->n] = 0; @names[execname, probefunc, cpu] = count(); }
syscall::getppid:return /pid == $target/ { self->n = 0; }
tick-20ms {
	printa("count %@d\n", @count); clear(@count);
	normalize(@sum, 1); printa("sum %@d\n", @sum); clear(@sum);
	clear(@spread);
	printa("key %d %@d\n", @keys); trunc(@keys);
	printa("name %s %s %d %@d\n", @names); trunc(@names);
	printf("tick\n");
}
END { printa("count %@d\n", @count); printa("sum %@d\n", @sum); printa("key %d %@d\n", @keys);
	printa("name %s %s %d %@d\n", @names); }
"#;

fn printing_and_clearing_for_long_loses_no_count_and_takes_no_more_memory() -> Verdict {
    let seconds = seconds();
    let target = workload("keys", seconds as u32);
    let words = ["-q", "-x", "switchrate=20ms", "-x", "aggsize=16m", "-x", "bufsize=1m"];
    let script = ["-c", &target, "-n", SCRIPT];
    let mut child = start(&[&words[..], &script[..]].concat());
    let printed = Arc::new(AtomicU64::new(0));
    let sums = summed(&mut child, printed.clone());
    let memory = memory(&child, printed, seconds * TICKS / 3);
    let o = finish_within(child, LIMIT + Duration::from_secs(seconds)).code(0);
    let (sums, (early, late)) = (sums.join().unwrap(), memory.join().unwrap());
    let of = |what: &str| sums.get(what).copied().unwrap_or_default();
    let calls = o.err.lines().find_map(|l| l.strip_prefix("calls ")?.parse().ok()).unwrap_or(0);
    // On kernels that preempt programs, the kernel suppresses firings and reports them.
    let suppressed = suppressed(&o) as u64;
    let dropped = drops(&o, "aggregation drop");
    let lost = drops(&o, "dynamic variable drop");
    println!(
        "         {seconds} s: {calls} calls, {} printed, {} ticks, dropped {dropped} and {lost}, suppressed {suppressed}; \
         {early} kB, then {late} kB",
        of("count"),
        of("tick")
    );
    for what in ["count", "sum", "key"] {
        let got = of(what);
        assert!(
            got <= calls && calls - got <= suppressed + dropped + lost,
            "{what}: {got} of {calls}\n{}",
            o.err
        );
    }
    if suppressed + dropped + lost == 0 {
        assert_eq!(
            (of("count"), of("sum"), of("key"), of("name")),
            (calls, calls, calls, calls),
            "{}",
            o.err
        );
    }
    assert!(calls > 0 && of("tick") > seconds * TICKS / 2, "{} ticks", of("tick"));
    // A session that is late once keeps a table of `aggsize` more.
    assert!(late <= early + early / 10 + (4 << 10) + (16 << 10), "{early} kB grew to {late} kB");
    Pass
}

/// The sums of the last words of the lines, by the first word, read as they come: an hour's lines
/// would not fit in memory. `ticks` counts the lines that say `tick`.
fn summed(child: &mut Child, ticks: Arc<AtomicU64>) -> JoinHandle<HashMap<String, u64>> {
    let out = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut sums: HashMap<String, u64> = HashMap::new();
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let mut words = line.split_whitespace();
            if let Some(first) = words.next() {
                ticks.fetch_add(u64::from(first == "tick"), Ordering::Relaxed);
                let value = words.next_back().map_or(1, |w| w.parse().unwrap_or_default());
                *sums.entry(first.into()).or_default() += value;
            }
        }
        sums
    })
}

fn more_keys_than_fit_a_default_table_are_counted_exactly_in_a_larger_one() -> Verdict {
    // A million takes the emulated CPU of a guest minutes.
    let keys = if is_guest() { 20_000 } else { 200_000 };
    let o = dtrace(&[
        "-q",
        "-x",
        "aggsize=64m",
        "-x",
        "aggrate=1h",
        "-c",
        &workload("getppid", keys),
        "-n",
        "long i; syscall::getppid:entry /pid == $target/ { @[i % 1000, i] = sum(i + 1); i++; }",
    ])
    .code(0);
    assert!(!o.err.contains("drop"), "{}", o.err);
    let rows: Vec<Vec<u64>> = o
        .out
        .lines()
        .map(|l| l.split_whitespace().filter_map(|w| w.parse().ok()).collect())
        .filter(|row: &Vec<u64>| row.len() == 3)
        .collect();
    assert_eq!(rows.len(), keys as usize);
    assert!((1..).zip(&rows).all(|(n, row)| row[..] == [(n - 1) % 1000, n - 1, n]), "sorted by value");
    Pass
}

fn keys_beyond_aggsize_are_counted_drops() -> Verdict {
    let calls: u32 = if is_guest() { 20_000 } else { 200_000 };
    let o = dtrace(&[
        "-q",
        "-x",
        "aggsize=64k",
        "-x",
        "aggrate=1h",
        "-c",
        &workload("threads", calls / 4),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[tid, self->n++] = count(); }",
    ])
    .code(0);
    let counted = o.out.lines().filter_map(|l| l.split_whitespace().nth(2)?.parse::<u64>().ok()).sum::<u64>();
    let dropped = drops(&o, "aggregation drop");
    assert!(dropped > 0, "{}", o.err);
    assert_eq!(counted + dropped, u64::from(calls), "{}", o.err);
    // Half of the memory is for each epoch; a slot of a count with two numbers has 32 bytes.
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    assert!(counted <= cpus * (32 << 10) / 32, "{counted} keys in 64k");
    Pass
}
