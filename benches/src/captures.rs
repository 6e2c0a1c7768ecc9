//! Captures: what a captured system call costs beside a clause that traces as much, the bytes of a
//! firing on the disk, what is lost, and how fast a capture is replayed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::calls::BATCH;
use crate::run::{Cost, Tools, dropped, figure, whole};

/// What a capture may cost of a clause that traces as much, and for every system call, in
/// nanoseconds.
const OF_CLAUSE: f64 = 1.2;
const OF_ALL: f64 = 500.0;
/// The most bytes of a firing on the disk, and the least firings that are replayed in a second.
const BYTES: f64 = 40.0;
const REPLAYED: f64 = 1e6;
/// The most MiB of a replay of ten million firings.
const MEMORY: f64 = 256.0;
/// Calls that make ten million firings, and firings a second of which none may be lost.
const CALLS: u64 = 5_000_000;
const RATE: u64 = 200_000;

/// What a captured system call has (`docs/book/src/output/capture.md`), traced by a clause.
const TRACED: &str = "trace(timestamp); trace(walltimestamp); trace(vtimestamp); trace(pid); trace(tid); \
                      trace(ppid); trace(uid); trace(gid); trace(execname); trace(curthread); trace(errno); \
                      trace(arg0); trace(arg1); trace(arg2); trace(arg3); trace(arg4); trace(arg5);";

/// The file of a capture, which is removed.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        Place(std::env::temp_dir().join(format!("dtrace-bench-{}.cap", std::process::id())))
    }

    fn size(&self) -> f64 {
        self.0.metadata().map_or(f64::NAN, |m| m.len() as f64)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The loop of the traced process.
fn target(words: &str) -> Option<String> {
    Some(format!("{} --loop {words}", std::env::current_exe().ok()?.display()))
}

/// A capture of some probes while a loop runs; what the loop has said, and the messages.
fn captured(tools: &Tools, file: &Path, probes: &str, words: &str) -> Option<(f64, String)> {
    let mut command = Command::new(&tools.dtrace);
    command.args(["-b", "4m", "-x", "switchrate=10ms", "--capture"]).arg(file).args(["-n", probes]);
    said(command.args(["-c", &target(words)?]))
}

/// What a traced loop has said, and the messages of its tracer.
fn said(command: &mut Command) -> Option<(f64, String)> {
    let out = command.stdin(Stdio::null()).output().ok().filter(|out| out.status.success())?;
    let lines = String::from_utf8_lossy(&out.stdout).into_owned();
    let ns = lines.lines().rev().find_map(|line| line.trim().parse().ok())?;
    Some((ns, String::from_utf8_lossy(&out.stderr).into_owned()))
}

/// The firings that a capture has.
fn firings(said: &str) -> f64 {
    let after = said.split("captured ").nth(1).and_then(|rest| rest.split(' ').next());
    after.and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}

/// The section.
pub(crate) fn captures(tools: &Tools) {
    costs(tools);
    let place = Place::new();
    losses(tools, &place);
    long(tools, &place);
}

fn costs(tools: &Tools) {
    const ROUNDS: usize = 5;
    println!("\ncaptures: what they add to getppid, entry and return (ns a call, least of {ROUNDS} rounds)");
    println!("  {:<44} {:>7} {:>8} {:>8} {:>6}", "", "bare", "clause", "capture", "ratio");
    let place = Place::new();
    for probes in ["syscall::getppid:", "syscall:::"] {
        let [mut bare, mut clause, mut capture] = [f64::NAN; 3];
        for _ in 0..ROUNDS {
            bare = bare.min(tools.loop_ns());
            let script = format!("{probes} {{ {TRACED} }}");
            let Some(target) = target("getppid") else { return };
            let mut command = tools
                .dtrace(&["-b", "4m", "-x", "switchrate=10ms", "-o", "/dev/null", "-c", &target], &script);
            clause = clause.min(said(&mut command).map_or(f64::NAN, |(ns, _)| ns));
            capture =
                capture.min(captured(tools, &place.0, probes, "getppid").map_or(f64::NAN, |(ns, _)| ns));
            let _ = std::fs::remove_file(&place.0);
        }
        println!(
            "  {:<44} {:>7} {:>8} {:>8} {:>6}",
            probes,
            figure(bare, 0),
            figure(clause - bare, 0),
            figure(capture - bare, 0),
            figure((capture - bare) / (clause - bare), 2)
        );
    }
    println!("  goals: a ratio of {OF_CLAUSE}, and {OF_ALL} ns for all system calls");
}

fn losses(tools: &Tools, place: &Place) {
    const SECONDS: u64 = 5;
    // A call is two firings.
    let calls = RATE / 2;
    let words = format!("getppid {} 0 {calls}", SECONDS * calls / u64::from(BATCH));
    let Some((_, said)) = captured(tools, &place.0, "syscall::getppid:", &words) else {
        println!("  {RATE} firings a second: not captured");
        return;
    };
    let (all, lost) = (firings(&said), dropped(&said, " drop"));
    println!("  {RATE} firings a second for {SECONDS} s: {} captured, {lost} dropped", figure(all, 0));
    let _ = std::fs::remove_file(&place.0);
}

fn long(tools: &Tools, place: &Place) {
    // As fast as they are not dropped.
    let words = format!("getppid {} 0 {RATE}", CALLS / u64::from(BATCH));
    let Some((_, said)) = captured(tools, &place.0, "syscall::getppid:", &words) else { return };
    let (all, lost) = (firings(&said), dropped(&said, " drop"));
    println!(
        "  {} firings ({lost} dropped), {} bytes each on the disk (goal: {BYTES})",
        figure(all, 0),
        figure(place.size() / all, 1)
    );
    for (what, script) in [
        ("@ = count()", "syscall::getppid:entry { @ = count(); }"),
        (
            "a latency",
            "syscall::getppid:entry { self->t = timestamp; } syscall::getppid:return /self->t/ \
             { @[execname] = quantize(timestamp - self->t); self->t = 0; }",
        ),
    ] {
        let Some(cost) = replayed(tools, &place.0, script) else { continue };
        println!(
            "  replay, {what:<12} {:>6} million firings a second, {:>6} MiB (goals: {}, {MEMORY})",
            figure(all / cost.seconds / 1e6, 2),
            figure(cost.peak_kb / 1024.0, 1),
            figure(REPLAYED / 1e6, 0)
        );
    }
}

fn replayed(tools: &Tools, file: &Path, script: &str) -> Option<Cost> {
    let mut command = Command::new(&tools.dtrace);
    command.args(["-q", "--replay"]).arg(file).args(["-n", script]);
    whole(command)
}
