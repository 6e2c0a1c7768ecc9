//! A session moves between threads. The kernel accepts ptrace requests only from the thread that
//! attached, so `proc` has one thread for them; a target works from whatever thread owns it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dtrace::options::Options;
use dtrace::{Session, Status, Target};

use crate::tool::{Losses, Output, Traced, collect_reports, compile, sink, take_reports, workload};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("threads::a_command_is_created_released_and_reaped_from_different_threads", of_a_command),
    ("threads::a_grabbed_process_is_released_and_runs_on_from_different_threads", of_a_process),
    ("threads::a_process_stays_traced_when_the_thread_that_grabbed_it_ends", held),
];

const LIMIT: Duration = testing::HANG_LIMIT;

/// Runs a step of a session in a thread of its own.
#[track_caller]
fn elsewhere<T: Send + 'static>(step: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(step).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Does a session's work until it is over or `enough` holds.
#[track_caller]
fn work(session: &mut Traced, enough: impl Fn() -> bool) -> Losses {
    let (start, mut losses) = (Instant::now(), Losses::default());
    while !enough() && session.work(None, Duration::from_millis(20)).unwrap() == Status::Working {
        assert!(start.elapsed() < LIMIT, "no end after {LIMIT:?}");
        collect_reports(session, &mut losses);
    }
    losses
}

fn quiet() -> Options {
    let mut options = Options::default();
    options.set("quiet", None).unwrap();
    options
}

/// With `ustack()` the target also stops at its exit, which a later thread resumes.
fn of_a_command() -> Verdict {
    const CALLS: u64 = 500;
    for keys in ["", "@[ustack(1)] = count(); "] {
        let target = elsewhere(|| workload(2, CALLS));
        let pid = target.pid() as u64;
        let mut options = quiet();
        let script = format!(
            "hits:::hit /pid == $target/ {{ {keys}@n = count(); @sums = sum(arg1); }} \
             END {{ trunc(@sums, 0); printa(\"hits %@d\\n\", @n); }}"
        );
        let program = compile(&script, &mut options, pid);
        let output = Output::default();
        let out = sink(&output);
        let session =
            elsewhere(move || Session::start(&program, options, vec![target], out).map(Box::new).unwrap());
        let mut session = elsewhere(move || {
            let mut session = session;
            work(&mut session, || false);
            session
        });
        let status =
            elsewhere(move || session.finish().map(|status| (status, take_reports(&mut session)))).unwrap();
        assert_eq!(status.0, 0, "{:?}", status.1);
        assert!(output.text().contains(&format!("hits {}\n", 2 * CALLS)), "{}", output.text());
    }
    Verdict::Pass
}

/// A process that answers each line with one line.
fn echo() -> std::process::Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn of_a_process() -> Verdict {
    let mut child = echo();
    let pid = child.id() as i32;
    let target = elsewhere(move || Target::grab(pid).unwrap());
    let mut options = quiet();
    let program = compile(
        "syscall::write:entry /pid == $target/ { printf(\"W %d\\n\", arg2); }",
        &mut options,
        pid as u64,
    );
    let output = Output::default();
    let out = sink(&output);
    let session =
        elsewhere(move || Session::start(&program, options, vec![target], out).map(Box::new).unwrap());
    let mut input = child.stdin.take().unwrap();
    let mut replies = BufReader::new(child.stdout.take().unwrap());
    let mut reply = || {
        let mut line = String::new();
        std::io::Write::write_all(&mut input, b"seven..\n").unwrap();
        replies.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(reply(), "seven..\n");
    let seen = output.clone();
    let mut session = elsewhere(move || {
        let mut session = session;
        work(&mut session, || seen.text() == "W 8\n");
        session
    });
    assert_eq!(elsewhere(move || session.finish().unwrap()), 0);
    // It runs on after the session, as no process of the tracer's.
    assert_eq!(reply(), "seven..\n");
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(output.text().trim_end(), "W 8");
    Verdict::Pass
}

/// The state of a process: `t` is stopped by its tracer.
fn state(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|l| l.strip_prefix("State:\t")).unwrap_or_default()[..1].into()
}

fn held() -> Verdict {
    let mut child = echo();
    let pid = child.id() as i32;
    let mut target = elsewhere(move || Target::grab(pid).unwrap());
    // The kernel would have released it with the thread that attached to it.
    assert_eq!(state(pid), "t");
    target.release();
    assert_ne!(state(pid), "t");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    Verdict::Pass
}
