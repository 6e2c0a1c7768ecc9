//! Stress test: a clock at 4999 hertz on each CPU, every system call at entry and return, strings,
//! a `self->` variable, and a uprobe that the test attaches. Every record and every sum is checked.
//!
//! ```text
//!  one record      once, or counted as dropped; its string belongs to its number
//!  all records     + drops = firings, which aggregations count in separate clauses (a clause whose record is dropped
//!                  has no other effect)
//!  aggregations    = the calls of the workload, minus the firings that the kernel suppressed
//! ```
//!
//! On a kernel that preempts inside tracepoint programs (7.2 by default), the kernel runs no second
//! instance of a program that is preempted. Those firings are counted in the kernel's
//! `recursion_misses` only. A uprobe loses none on any kernel.

use std::collections::HashMap;
use std::time::Duration;

use bpf_sys::features::{Facility, Features};
use dtrace::Session;
use dtrace::options::Options;
use plane::control::DropKind;
use testing::{HANG_LIMIT, cpu_time, eventually};

use crate::tool::{Losses, Output, collect_reports, compile, run_to_end, sink, workload};
use crate::workload::{pack, text_of};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("stress::every_record_and_sum_is_exact_when_the_rings_are_large", large_rings),
    ("stress::drops_are_counted_when_the_rings_are_full", small_rings),
];

const SCRIPT: &str = r#"
syscall:::entry /pid == $target/ { @entries[probefunc] = count(); }
syscall:::return /pid == $target/ { @returns[probefunc] = count(); }
syscall::getppid:entry /pid == $target/ { @ids[arg0] = sum(arg1); }
syscall::getppid:entry /pid == $target/ { printf("G %d %d\n", arg0, arg1); }
syscall::chdir:entry /pid == $target/ { self->mark = arg1; }
syscall::chdir:entry /pid == $target/ { printf("E %d %s\n", arg1, copyinstr(arg0)); }
syscall::chdir:return /pid == $target/ { printf("R %d %d\n", self->mark, errno); }
syscall::chdir:return /pid == $target/ { self->mark = 0; }
hits:::hit /pid == $target/ { @hits[arg0] = count(); @sums = sum(arg1); @most = max(arg1); @spread = avg(arg1); }
hits:::hit /pid == $target/ { printf("U %d %d %s\n", arg0, arg1, copyinstr(arg2)); }
profile-4999hz { @samples = count(); }
profile-4999hz { printf("P %d %d %s\n", cpu, pid, execname); }
END
{
	printa("entries %s %@d\n", @entries); printa("returns %s %@d\n", @returns);
	printa("ids %d %@d\n", @ids); printa("hits %d %@d\n", @hits);
	printa("sums %@d\n", @sums); printa("most %@d\n", @most); printa("spread %@d\n", @spread);
	printa("samples %@d\n", @samples);
}
"#;

const THREADS: u64 = 4;

/// Rounds of each thread, which take some seconds.
fn rounds() -> u64 {
    if std::env::var_os("DTRACE_IN_VM").is_some() { 1500 } else { 25_000 }
}

/// The result of a run.
struct Run {
    lines: Vec<Vec<String>>,
    losses: Losses,
    /// Firings that the kernel suppressed, by program.
    suppressed: HashMap<String, u64>,
    pid: i32,
}

/// Unless the session reads `at_once`, it begins when the workload has worked for a while, or
/// ended.
fn run(bufsize: &str, rounds: u64, at_once: bool) -> Run {
    let mut options = Options::default();
    for (name, value) in [("bufsize", bufsize), ("strsize", "192"), ("switchrate", "50hz")] {
        options.set(name, Some(value)).unwrap();
    }
    options.set("quiet", None).unwrap();
    let target = workload(THREADS, rounds);
    let pid = target.pid();
    let program = compile(SCRIPT, &mut options, pid as u64);
    let output = Output::default();
    let mut session = Session::start(&program, options, vec![target], sink(&output)).unwrap();
    if !at_once {
        eventually("the work of the workload", HANG_LIMIT, || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            cpu_time(pid as u32) > Duration::from_millis(100) || stat.is_empty() || stat.contains(") Z ")
        });
    }
    let mut losses = run_to_end(&mut session, Duration::from_secs(400));
    let suppressed = session.suppressed().unwrap().into_iter().collect();
    session.finish().unwrap();
    collect_reports(&mut session, &mut losses);
    testing::suppressed::counted();
    let words = |l: &str| l.split(' ').map(String::from).collect();
    Run { lines: output.text().lines().map(words).collect(), losses, suppressed, pid }
}

/// Records of one source: the numbers received.
#[derive(Default)]
struct Received {
    by_thread: HashMap<u64, Vec<bool>>,
    count: u64,
    /// Number of records that followed a later one of their thread.
    out_of_order: u64,
}

impl Received {
    fn note(&mut self, thread: u64, seq: u64, rounds: u64, line: &[String]) {
        assert!((1..=THREADS).contains(&thread) && seq < rounds, "no such number: {line:?}");
        let seen = self.by_thread.entry(thread).or_insert_with(|| vec![false; rounds as usize]);
        assert!(!seen[seq as usize], "twice: {line:?}");
        self.out_of_order += u64::from(seen.get(seq as usize + 1).copied().unwrap_or(false));
        seen[seq as usize] = true;
        self.count += 1;
    }
}

#[track_caller]
fn check(run: &Run, rounds: u64) -> u64 {
    let known = THREADS * rounds;
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("no number: {text}"));
    let mut seen: HashMap<&str, Received> = HashMap::new();
    let mut sums: HashMap<String, u64> = HashMap::new();
    let (mut samples, mut unmarked) = (0, 0);
    for line in &run.lines {
        let word = |i: usize| line.get(i).unwrap_or_else(|| panic!("short: {line:?}")).as_str();
        let mark = || (number(word(1)) >> 32, number(word(1)) & 0xffff_ffff);
        match word(0) {
            "" => {}
            "G" => seen.entry("G").or_default().note(number(word(1)), number(word(2)), rounds, line),
            "E" => {
                let (thread, seq) = mark();
                assert_eq!(word(2), text_of(thread, seq), "{line:?}");
                seen.entry("E").or_default().note(thread, seq, rounds, line);
            }
            "R" => {
                assert_eq!(word(2), "2", "ENOENT: {line:?}");
                // The entry was suppressed.
                match word(1) {
                    "0" => unmarked += 1,
                    _ => seen.entry("R").or_default().note(mark().0, mark().1, rounds, line),
                }
            }
            "U" => {
                let (thread, seq) = (number(word(1)), number(word(2)));
                assert_eq!(word(3), text_of(thread, seq), "{line:?}");
                seen.entry("U").or_default().note(thread, seq, rounds, line);
            }
            "P" => {
                assert!(number(word(1)) < 4096, "{line:?}");
                let name = line[3..].join(" ");
                // Threads may be nameless.
                let plain = name.chars().all(|c| c.is_ascii_graphic() || c == ' ');
                assert!(plain && name.len() < 16, "{line:?}");
                assert!(word(2) != run.pid.to_string() || name.starts_with("library"), "{line:?}");
                samples += 1;
            }
            "sums" | "most" | "spread" | "samples" => {
                sums.insert(word(0).into(), number(word(1)));
            }
            "entries" | "returns" | "ids" | "hits" => {
                sums.insert(format!("{} {}", word(0), word(1)), number(word(2)));
            }
            _ => panic!("what is {line:?}?"),
        }
    }
    let sum = |name: &str| sums.get(name).copied().unwrap_or(0);
    let count = |source: &str| seen.get(source).map_or(0, |s| s.count);
    // `syscall:vmlinux:read:entry and 806 more`
    let suppressed = |name: &str| {
        let of = run.suppressed.iter().find(|(program, _)| {
            program.starts_with("syscall:")
                && program.split(' ').next().is_some_and(|first| first.ends_with(name))
        });
        *of.unwrap_or_else(|| panic!("no program of {name}: {:?}", run.suppressed)).1
    };
    for (kind, n) in &run.losses.others {
        // A firing that finds no slot has no effect. It counts like a suppressed one.
        assert!(matches!(kind, DropKind::Scratch | DropKind::Doorbell), "{n} {kind:?}");
    }
    let scratch: u64 = run.losses.others.iter().filter(|o| o.0 == DropKind::Scratch).map(|o| o.1).sum();

    let missing = |what: &str| format!("{what}: {sums:?}, suppressed {:?}, {:?}", run.suppressed, run.losses);
    // The calls of the workload.
    for thread in 1..=THREADS {
        assert_eq!(sum(&format!("hits {thread}")), rounds, "{}", missing("hits"));
    }
    let all = rounds * (rounds - 1) / 2;
    assert_eq!(sum("sums"), THREADS * all, "sum of the numbers");
    assert_eq!(sum("most"), rounds - 1, "greatest number");
    assert_eq!(sum("spread"), all / rounds, "average number");
    for (at, program) in [("entries", ":entry"), ("returns", ":return")] {
        for call in ["getppid", "chdir"] {
            let got = sum(&format!("{at} {call}"));
            let missed = suppressed(program) + scratch;
            assert!(got <= known && known - got <= missed, "{at} {call}: {got} of {known}, missed {missed}");
        }
    }
    if sum("entries getppid") == known {
        for thread in 1..=THREADS {
            assert_eq!(sum(&format!("ids {thread}")), all, "sum of thread {thread}'s numbers");
        }
    }
    assert!(unmarked <= suppressed(":entry") + scratch, "{unmarked} returns without entry");

    // Suppressed firings were reported.
    let all_suppressed: u64 = run.suppressed.values().sum();
    assert!(
        run.losses.suppressed >= all_suppressed,
        "{} reported of {all_suppressed}",
        run.losses.suppressed
    );

    // Records and drops add up to the firings.
    let hits = THREADS * rounds;
    let fired = sum("entries getppid") + sum("entries chdir") + sum("returns chdir") + hits + sum("samples");
    let recorded = count("G") + count("E") + count("R") + unmarked + count("U") + samples;
    assert_eq!(recorded + run.losses.records, fired, "recorded {recorded}, dropped {}", run.losses.records);
    for (source, aggregated) in [("G", sum("entries getppid")), ("E", sum("entries chdir")), ("U", hits)] {
        assert!(count(source) <= aggregated, "{source}: {} of {aggregated}", count(source));
    }
    assert!(samples > 0 && sum("samples") >= samples, "{samples} samples of {}", sum("samples"));
    let out_of_order: u64 = seen.values().map(|s| s.out_of_order).sum();
    println!(
        "         {recorded} records, {} dropped, {} samples, {out_of_order} out of order, suppressed {:?}, others {:?}",
        run.losses.records, samples, run.suppressed, run.losses.others
    );
    recorded
}

/// Facilities that this kernel lacks.
fn lacking() -> Option<Verdict> {
    let features = Features::running();
    [Facility::UprobePerf, Facility::CpuClock, Facility::TaskStorage]
        .into_iter()
        .find(|f| !features.has(*f))
        .map(|f| Verdict::Skip(format!("this kernel has no {}", f.name())))
}

fn large_rings() -> Verdict {
    if let Some(skip) = lacking() {
        return skip;
    }
    let run = run("32m", rounds(), true);
    check(&run, rounds());
    Verdict::Pass
}

fn small_rings() -> Verdict {
    if let Some(skip) = lacking() {
        return skip;
    }
    let rounds = rounds() / 8;
    let run = run("16k", rounds, false);
    let recorded = check(&run, rounds);
    assert!(run.losses.records > 0, "{recorded} records and no drop in a ring of 16k");
    // The sums above rely on a thread's and a call's number being packed into one argument.
    assert_eq!(pack(1, 2) & 0xffff_ffff, 2);
    Verdict::Pass
}
