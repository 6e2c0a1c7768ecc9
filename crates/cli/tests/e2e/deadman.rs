//! Sessions whose tracer gets no CPU time are stopped from the kernel.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{is_guest, no_clock};
use crate::tool::{LIMIT, Output, cpu_time, finish, signal, start};

tests! {
    a_tracer_that_gets_no_cpu_time_is_aborted
    a_starved_destructive_session_is_reported_and_continues
    heartbeats_run_only_while_probes_are_enabled a_script_that_starves_the_machine_is_stopped
}

/// Waits until the tracer has written BEGIN's output. The session is active from then on.
fn active(out: &Path) {
    eventually("BEGIN's output", LIMIT, || {
        std::fs::read_to_string(out).map_or(true, |text| text.contains("begun"))
    });
}

fn file(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dtrace-deadman-{test}-{}", std::process::id()));
    std::fs::write(&path, "").unwrap();
    path
}

/// Starts a tracer with enabled probes.
fn tracer(out: &Path, options: &[&str]) -> Child {
    let script =
        "BEGIN { printf(\"begun\\n\"); } syscall::getppid:entry { n++; } END { printf(\"ended\\n\"); }";
    let path = out.to_str().unwrap();
    // A host that pauses the machine makes clocks late, which is not tested here.
    let limits = ["-x", "deadmaninterval=50ms", "-x", "deadmanuser=500ms", "-x", "deadmantimeout=0"];
    let words: Vec<&str> = ["-q", "-o", path]
        .into_iter()
        .chain(limits)
        .chain(options.iter().copied())
        .chain(["-n", script])
        .collect();
    let child = start(&words);
    active(out);
    child
}

/// Stops the tracer for six times the limit, so that it gives no sign of life. The machine's clocks
/// continue. On some hosts a clock runs only on a busy CPU, so this process keeps its CPU busy, for
/// some heartbeats at least.
fn without_time(child: &Child) {
    signal(child, libc::SIGSTOP);
    let (begun, busy) = (Instant::now(), cpu_time(std::process::id()));
    while begun.elapsed() < Duration::from_secs(3)
        || cpu_time(std::process::id()) - busy < Duration::from_millis(500)
    {}
    signal(child, libc::SIGCONT);
}

fn took(out: &Path, child: Child) -> (String, Output) {
    let o = finish(child);
    let text = std::fs::read_to_string(out).unwrap_or_default();
    let _ = std::fs::remove_file(out);
    (text, o)
}

fn a_tracer_that_gets_no_cpu_time_is_aborted() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let out = file("aborted");
    let child = tracer(&out, &[]);
    without_time(&child);
    let (text, o) = took(&out, child);
    let o = o.code(1);
    assert_eq!(text, "begun\n", "{o:?}");
    let said = "dtrace: the tracer got no time for more than 500ms (deadmanuser)\n\
                dtrace: processing aborted: Abort due to systemic unresponsiveness\n";
    assert!(o.err.ends_with(said), "{o:?}");
    Pass
}

fn a_starved_destructive_session_is_reported_and_continues() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let out = file("told");
    let child = tracer(&out, &["-w"]);
    without_time(&child);
    signal(&child, libc::SIGINT);
    let (text, o) = took(&out, child);
    let o = o.code(0);
    assert_eq!(text, "begun\n\nended\n\n", "{o:?}");
    assert!(o.err.contains("dtrace: the tracer got no time for more than 500ms (deadmanuser)\n"), "{o:?}");
    assert!(!o.err.contains("aborted"), "{o:?}");
    Pass
}

/// Perf events that a process has open.
fn perf_events(child: &Child) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    all.filter(|fd| {
        let to = fd.as_ref().ok().and_then(|fd| std::fs::read_link(fd.path()).ok());
        to.is_some_and(|to| to.to_string_lossy().contains("[perf_event]"))
    })
    .count()
}

fn heartbeats_run_only_while_probes_are_enabled() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let traces = "syscall::getppid:entry { n++; }";
    for (script, options, each, one) in [
        ("", vec![], 0, 0),
        ("tick-10s { n++; }", vec![], 0, 1),
        (traces, vec!["-x", "deadmaninterval=0"], 0, 0),
        (traces, vec!["-x", "deadmanuser=0", "-x", "deadmantimeout=0"], 0, 0),
        (traces, vec![], 1, 0),
    ] {
        let out = file("events");
        let script = format!("BEGIN {{ printf(\"begun\\n\"); }} {script}");
        let mut words = vec!["-q", "-o", out.to_str().unwrap()];
        words.extend(&options);
        words.extend(["-n", &script]);
        let child = start(&words);
        active(&out);
        let events = perf_events(&child);
        let cpus = online();
        signal(&child, libc::SIGINT);
        took(&out, child).1.code(0);
        assert_eq!(events, each * cpus + one, "{script} {options:?}");
    }
    Pass
}

/// CPUs that are online.
fn online() -> usize {
    // SAFETY: takes no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

/// Every context switch searches a text of half a page in a text of a page. That takes a million
/// comparisons with interrupts disabled, so the tracer waits longer than the limits for a CPU. The
/// test runs in guests only, because it would disturb other users of a machine.
fn a_script_that_starves_the_machine_is_stopped() -> Verdict {
    if !is_guest() {
        return Skip("overloads the machine: in guests only".into());
    }
    if let Some(skip) = no_clock() {
        return skip;
    }
    let twice = "s = strjoin(s, s); ";
    let script = format!(
        "BEGIN {{ s = \"aaaaaaaaaaaaaaaa\"; }} BEGIN {{ {} }} BEGIN {{ u = strjoin(substr(s, 2048), \"b\"); }}
         rawtp:::sched_switch {{ this->n = index(s, u); }} rawtp:::sched_switch {{ this->n = index(s, u); }}",
        twice.repeat(8)
    );
    let limits = ["deadmaninterval=50ms", "deadmantimeout=100ms", "deadmanuser=2s"];
    let words = ["-q", "-x", "strsize=8k"].into_iter().chain(limits.iter().flat_map(|l| ["-x", l]));
    let words: Vec<&str> = words.chain(["-n", &script]).collect();
    let o = finish(start(&words)).code(1);
    assert!(o.err.ends_with("dtrace: processing aborted: Abort due to systemic unresponsiveness\n"), "{o:?}");
    let why = ["(deadmantimeout)\n", "(deadmanuser)\n", "(deadmanshare)\n"];
    assert!(why.iter().any(|w| o.err.contains(w)), "{o:?}");
    Pass
}
