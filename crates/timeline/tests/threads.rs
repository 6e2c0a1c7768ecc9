//! Threads that end, are named anew, or are too many.

use events::{Calls, Sink, ThreadName};
use timeline::{Pair, Timeline};

use crate::read::Track;
use crate::{Fed, int, probe, string, traced};

fn call(function: &str, name: &str) -> std::sync::Arc<events::Probe> {
    probe(&format!("syscall:vmlinux:{function}:{name}"), Calls::System)
}

#[test]
fn a_thread_that_exits_has_no_open_call() {
    let mut fed = Fed::new();
    let main = |name: &str| probe(&format!("pid7:a.out:main:{name}"), Calls::None);
    fed.fire(1, (7, 7), &main("entry"), vec![]);
    fed.fire(2, (7, 7), &call("exit_group", "entry"), vec![traced("arg0", int(0))]);
    fed.fire(5, (9, 9), &call("read", "entry"), vec![]);
    fed.fire(6, (9, 9), &probe("a:b:c:lwp-exit", Calls::None), vec![]);
    fed.fire(7, (8, 8), &call("read", "entry"), vec![]);
    fed.fire(9, (8, 8), &call("read", "return"), vec![]);
    let trace = fed.end();
    let expected = [("a.out`main", 0, 1, 2), ("exit_group", 1, 2, 2), ("read", 0, 5, 6), ("read", 0, 7, 9)];
    assert_eq!(trace.described(), expected.map(|(name, depth, a, b)| (name.to_string(), depth, a, b)));
    assert_eq!(fed.0.losses(), Vec::<String>::new());
}

#[test]
fn threads_that_have_exited_take_the_place_of_none_that_lives() {
    let mut fed = Fed::new();
    let (read, exit) = (call("read", "entry"), call("exit", "entry"));
    fed.fire(0, (1, 1), &read, vec![]);
    for tid in 2..140_000 {
        fed.fire(u64::from(tid), (2, tid), &exit, vec![]);
    }
    fed.fire(200_000, (1, 1), &call("read", "return"), vec![]);
    let trace = fed.end();
    assert_eq!(trace.described()[0], ("read".to_string(), 0, 0, 200_000));
    assert_eq!(fed.0.losses(), Vec::<String>::new());
}

#[test]
fn of_too_many_open_calls_those_end_whose_threads_were_seen_longest_ago() {
    let mut fed = Fed::new();
    let read = call("read", "entry");
    for tid in 1..=100_000 {
        fed.fire(u64::from(tid), (2, tid), &read, vec![]);
    }
    // The last ones still return.
    for tid in 90_000..=100_000 {
        fed.fire(u64::from(tid) + 200_000, (2, tid), &call("read", "return"), vec![]);
    }
    let trace = fed.end();
    let slices = trace.slices();
    assert_eq!(slices.len(), 100_000);
    let first = slices.iter().find(|slice| trace.tracks[&slice.track].tid == Some(1)).unwrap();
    assert_eq!((first.begin, first.end), (1, 1), "it ends with what is known of it");
    let returned = slices.iter().filter(|slice| slice.end == slice.begin + 200_000).count();
    assert_eq!(returned, 10_001);
    assert_eq!(fed.0.losses(), ["89,999 calls without a return"]);
}

#[test]
fn of_too_many_slices_of_pairs_those_end_that_are_open_for_longest() {
    let pair = Pair::parse("io:::start(1)..io:::done(1)").unwrap();
    let mut fed = Fed::of(Timeline::with_pairs(Vec::new(), vec![pair]));
    let (start, done) = (probe("io:::start", Calls::None), probe("io:::done", Calls::None));
    for n in 0..70_000 {
        fed.fire(n, (7, 7), &start, vec![traced("arg0", int(n as i64))]);
    }
    for n in 65_000..70_000 {
        fed.fire(n + 100_000, (7, 7), &done, vec![traced("arg0", int(n as i64))]);
    }
    let slices = fed.end().slices();
    let first = slices.iter().find(|slice| slice.name == "0").unwrap();
    assert_eq!((first.begin, first.end), (0, 65_536), "when there were too many");
    assert_eq!(slices.iter().filter(|slice| slice.end == slice.begin + 100_000).count(), 5000);
    assert_eq!(fed.0.losses(), ["65,000 begins of slices without an end"]);
}

#[test]
fn long_keys_that_begin_alike_are_of_different_slices() {
    let pair = Pair::parse("a:::start(1)..a:::done(1)").unwrap();
    let mut fed = Fed::of(Timeline::with_pairs(Vec::new(), vec![pair]));
    let (start, done) = (probe("a:::start", Calls::None), probe("a:::done", Calls::None));
    let key = |end: &str| traced("query", string(format!("{}{end}", "x".repeat(256)).as_bytes()));
    // The first ends first, although the second began last.
    for (time, probe, end) in
        [(10, &start, "first"), (20, &start, "second"), (30, &done, "first"), (70, &done, "second")]
    {
        fed.fire(time, (7, 7), probe, vec![key(end)]);
    }
    let mut times: Vec<_> = fed.end().slices().iter().map(|slice| (slice.begin, slice.end)).collect();
    times.sort_unstable();
    assert_eq!(times, [(10, 30), (20, 70)]);
    assert!(fed.0.losses().is_empty());
}

/// A description: process, thread, name.
type Named = (Option<u64>, Option<u64>, Option<String>);

/// The names of the last descriptions of threads and processes.
fn names(fed: &mut Fed) -> Vec<Named> {
    let trace = fed.end();
    let of = |track: &Track| (track.pid, track.tid, track.name.clone());
    let mut all: Vec<_> = trace.tracks.values().filter(|track| track.pid.is_some()).map(of).collect();
    all.sort();
    all
}

fn named(pid: u64, tid: Option<u64>, name: &str) -> Named {
    (Some(pid), tid, Some(name.into()))
}

#[test]
fn a_thread_has_its_newest_name_and_a_process_that_of_its_first_thread() {
    let tick = probe("profile:::97hz", Calls::None);
    let name = |text: &str| vec![traced("execname", string(text.as_bytes()))];
    let mut fed = Fed::new();
    fed.fire(1, (7, 8), &tick, name("worker"));
    assert_eq!(names(&mut fed), [named(7, None, "worker"), named(7, Some(8), "worker")]);
    fed.fire(2, (7, 7), &tick, name("server"));
    fed.fire(3, (7, 8), &tick, name("worker/2"));
    fed.fire(4, (7, 9), &tick, name("log"));
    let expected = [
        named(7, None, "server"),
        named(7, Some(7), "server"),
        named(7, Some(8), "worker/2"),
        named(7, Some(9), "log"),
    ];
    assert_eq!(names(&mut fed), expected);
    let before = fed.0.output().len();
    fed.fire(5, (7, 8), &tick, name("worker/2"));
    fed.fire(6, (7, 7), &tick, name("next"));
    assert_eq!(names(&mut fed)[..2], [named(7, None, "next"), named(7, Some(7), "next")]);
    let added = &fed.0.output()[before..];
    assert_eq!(added.windows(4).filter(|part| part == b"next").count(), 3, "both tracks and the record");
    assert_eq!(added.windows(8).filter(|part| part == b"worker/2").count(), 1, "the record alone");
}

#[test]
fn a_thread_that_has_executed_another_program_is_asked_for_anew() {
    static PROGRAM: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let ask: ThreadName =
        |pid, _| Some(format!("{pid}.{}", PROGRAM.load(std::sync::atomic::Ordering::Relaxed)).into_bytes());
    let mut fed = Fed::of(Timeline::new(Vec::new()));
    fed.0.set_thread_name(ask);
    fed.fire(1, (7, 7), &call("execve", "entry"), vec![]);
    assert_eq!(names(&mut fed), [named(7, None, "7.0"), named(7, Some(7), "7.0")]);
    PROGRAM.store(1, std::sync::atomic::Ordering::Relaxed);
    fed.fire(2, (7, 7), &call("execve", "return"), vec![]);
    assert_eq!(names(&mut fed), [named(7, None, "7.1"), named(7, Some(7), "7.1")]);
}
