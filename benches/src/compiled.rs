//! What all functions of the C library, probed for a followed process, cost compilations that
//! nobody traces: before, meanwhile, until the kernel has removed the places, and after. The floor
//! is one link of an empty program at the same places of the file.
//!
//! A set of processes has the links of files, so each program that starts is given every place. The
//! kernel removes a place from all processes that have mapped the file, one place after the other.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::elsewhere::places;
use crate::run::{Running, Tools, figure, median};
use crate::user::{Called, empty, mark};

/// How long the end of dtrace may take beside that of the link.
const OF_THE_FLOOR: f64 = 1.5;

/// Compilations of which the median is shown.
const TIMES: usize = 5;

/// Milliseconds of a compilation.
fn compiled(source: &Path) -> f64 {
    let begun = Instant::now();
    let mut command = Command::new("cc");
    command.args(["-c", "-o", "/dev/null"]).arg(source).stdin(Stdio::null()).stderr(Stdio::null());
    let done = command.status().is_ok_and(|status| status.success());
    if done { begun.elapsed().as_secs_f64() * 1e3 } else { f64::NAN }
}

fn several(source: &Path) -> f64 {
    median((0..TIMES).map(|_| compiled(source)).collect())
}

/// The processes that close what sessions have left to them. One that has ended and was not waited
/// for is none: it is known until the system's first process looks for it, which may be seconds
/// later, and has closed everything.
fn closing() -> BTreeSet<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let closes = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains("(dtrace-closer)") && !stat.contains(") Z ") && !stat.contains(") X ")
    };
    pids.filter(closes).collect()
}

/// Ends what traces, in a thread. Seconds until nothing of it is left, and the longest compilation
/// meanwhile.
fn ended(source: &Path, end: impl FnOnce() + Send) -> (f64, f64) {
    const LIMIT: Duration = Duration::from_secs(300);
    const LOOK: Duration = Duration::from_millis(2);
    // Those of other sessions on the machine.
    let others = closing();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            end();
            while !closing().is_subset(&others) {
                if begun.elapsed() > LIMIT {
                    return f64::NAN;
                }
                std::thread::sleep(LOOK);
            }
            begun.elapsed().as_secs_f64()
        });
        let mut longest = 0f64;
        while !ending.is_finished() {
            longest = longest.max(compiled(source));
        }
        (ending.join().unwrap_or(f64::NAN), longest)
    })
}

/// Measures both, one after the other.
pub(crate) fn compiled_elsewhere(tools: &Tools, called: &Called) {
    println!(
        "\ncompilations while all functions of the C library are probed for a followed process (ms, median of {TIMES})"
    );
    let source = std::env::temp_dir().join(format!("dtrace-bench-{}.c", std::process::id()));
    if std::fs::write(&source, "int main(void) { return 0; }\n").is_err() {
        return println!("  not measured: no file");
    }
    let places = match places(called) {
        Ok(places) => places,
        Err(e) => return println!("  not measured: {e}"),
    };
    println!(
        "  {:<28} {:>8} {:>8} {:>16} {:>8} {:>10}",
        "", "before", "during", "longest at end", "after", "end (s)"
    );
    let pid = called.pid().to_string();
    let ours =
        format!("BEGIN {{ printf(\"ready\\n\"); }} pid{pid}:libc::entry {{ @[probefunc] = count(); }}");
    let mut ends = Vec::new();
    for what in ["an empty program, one link", "dtrace"] {
        let before = several(&source);
        let (during, (end, longest)) = if what == "dtrace" {
            let Some(tracer) = Running::start(tools.dtrace(&["-x", "follow=all", "-p", &pid], &ours)) else {
                return println!("  not measured: dtrace does not run");
            };
            (several(&source), ended(&source, move || drop(tracer)))
        } else {
            let Some(link) = empty(called.file(), &places, None, false) else {
                return println!("  not measured: no such links");
            };
            // Not here: a compilation that is started meanwhile would have the descriptor, and its
            // exec be what closes the link.
            (several(&source), ended(&source, move || bpf_sys::close_in_background(vec![link])))
        };
        let after = several(&source);
        let shown = [before, during, longest, after].map(|ms| figure(ms, 0));
        let [before, during, longest, after] = &shown;
        println!("  {what:<28} {before:>8} {during:>8} {longest:>16} {after:>8} {:>10}", figure(end, 2));
        ends.push(end);
    }
    let ratio = ends.last().copied().unwrap_or(f64::NAN) / ends.first().copied().unwrap_or(f64::NAN);
    println!(
        "  {} places; dtrace ends in at most {OF_THE_FLOOR} of the link's time ({}): {}",
        places.len(),
        figure(ratio, 2),
        mark(ratio <= OF_THE_FLOOR)
    );
    by_processes(&source, called, &places);
    let _ = std::fs::remove_file(&source);
}

/// What it would cost if each of some processes had a link of its own: a link of a process sets its
/// places in no other, but the kernel asks each link at each mapping of the file.
fn by_processes(source: &Path, called: &Called, places: &[u64]) {
    const PROCESSES: [usize; 3] = [1, 8, 32];
    println!(
        "  {:<28} {:>8} {:>8} {:>16} {:>16}",
        "links of processes", "before", "during", "a link (ms)", "its end (ms)"
    );
    for count in PROCESSES {
        let mut waiting = Command::new("cat");
        waiting.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut processes: Vec<_> = (0..count).filter_map(|_| waiting.spawn().ok()).collect();
        let before = several(source);
        let begun = Instant::now();
        let links: Vec<_> =
            processes.iter().filter_map(|p| empty(called.file(), places, Some(p.id()), false)).collect();
        let each = |begun: Instant| begun.elapsed().as_secs_f64() * 1e3 / count as f64;
        let (attached, during) = (each(begun), several(source));
        let all = links.len() == count;
        let begun = Instant::now();
        drop(links);
        let closed = each(begun);
        for process in &mut processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        match all {
            true => println!(
                "  {count:<28} {:>8} {:>8} {:>16} {:>16}",
                figure(before, 0),
                figure(during, 0),
                figure(attached, 1),
                figure(closed, 1)
            ),
            false => println!("  {count:<28} not measured: no such links"),
        }
    }
}
