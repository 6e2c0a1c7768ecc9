//! Interrupts (SIGINT, SIGTERM) at every moment of a trace: it ends soon, and leaves no helper
//! process behind.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{attaches_to_many_functions, is_guest, no_functions};
use crate::tool::{LIMIT, Output, cpu_time, dtrace, finish, printed_more, signal, start, unread};

tests! {
    a_signal_before_anything_is_attached_is_death_by_it
    a_target_that_never_ran_dies_with_an_interrupted_preparation
    an_interrupt_ends_a_trace_of_every_tracepoint_soon
    a_second_interrupt_ends_at_once_without_the_end_clauses
    a_second_interrupt_ends_at_once_though_nobody_reads
    an_interrupt_ends_the_enabling_of_all_functions
    an_interrupt_ends_a_trace_of_the_stacks_of_all_functions
    an_interrupt_ends_the_enabling_of_functions_one_by_one
    an_interrupt_ends_the_enabling_of_events_by_perf
    a_session_that_takes_most_of_the_time_says_so_early
}

/// Sends a signal, and gives what the run left. How long the end takes is a figure of the
/// benchmarks.
#[track_caller]
fn end(child: Child, number: i32) -> Output {
    signal(&child, number);
    finish(child)
}

/// A process that helps a tracer: it attaches for it, or closes what the kernel is slow to close.
struct Helper {
    pid: u32,
    parent: u32,
    name: String,
}

impl Helper {
    /// The helper with this number, if there is one.
    fn of(pid: u32) -> Option<Helper> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, after) = stat.split_once('(')?.1.rsplit_once(')')?;
        let parent = after.split_whitespace().nth(1)?.parse().ok()?;
        let name = name.to_owned();
        matches!(name.as_str(), "dtrace-attach" | "dtrace-closer").then_some(Helper { pid, parent, name })
    }

    /// All helpers, those of other tracers too.
    fn all() -> Vec<Helper> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(|p| Helper::of(p.file_name().to_str()?.parse().ok()?)).collect()
    }

    /// Its state, and where in the kernel it waits.
    fn state(&self) -> String {
        let text = |file| std::fs::read_to_string(format!("/proc/{}/{file}", self.pid)).unwrap_or_default();
        let status = text("status");
        let state = status.lines().find_map(|l| l.strip_prefix("State:")).unwrap_or("gone").trim();
        format!("{} {} {state} in {}\n{}", self.pid, self.name, text("wchan"), text("stack"))
    }
}

/// Waits until the helper processes of a tracer that has ended have ended too. Which of them are
/// its own is not to be seen, because each is a session of its own; so all that there are now must
/// end.
#[track_caller]
fn helpers_end() {
    let mut left = Helper::all();
    eventually("the end of the helper processes", LIMIT, || {
        left.retain(|helper| Helper::of(helper.pid).is_some());
        if left.is_empty() {
            return Ok(());
        }
        Err(left.iter().map(Helper::state).collect::<Vec<_>>().join("\n"))
    });
}

/// Waits until a tracer and its helpers have worked for so long, which is their CPU time, or until
/// it has printed something or ended.
#[track_caller]
fn worked(child: &mut Child, time: Duration) {
    let pid = child.id();
    eventually("the work of the enabling", LIMIT, || {
        let helpers = Helper::all().into_iter().filter(|helper| helper.parent == pid);
        let all: Duration = helpers.map(|helper| cpu_time(helper.pid)).sum();
        all + cpu_time(pid) >= time || unread(child) > 0 || child.try_wait().unwrap().is_some()
    });
}

/// Waits until a tracer has attached so many programs to something of their own, or has begun.
#[track_caller]
fn attached(child: &mut Child, links: usize) {
    let fds = format!("/proc/{}/fd", child.id());
    eventually("a program that is attached", LIMIT, || {
        let all = std::fs::read_dir(&fds).into_iter().flatten().flatten();
        let names = all.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let is_link = |name: &Path| {
            let name = name.to_string_lossy();
            name.contains("bpf_link") || name.contains("bpf-link") || name.contains("[perf_event]")
        };
        let count = names.filter(|name| is_link(name)).count();
        count >= links || unread(child) > 0 || child.try_wait().unwrap().is_some()
    });
}

/// Fails unless a run whose script prints `begun` ended as one does that a single signal found so
/// far.
#[track_caller]
fn ended_as_far_as_it_was(o: &Output) {
    match o.code {
        // Nothing was attached.
        None => assert_eq!(o.out, "", "{o:?}"),
        // It was attaching.
        Some(1) => assert!(o.out.is_empty() && o.err.contains("interrupted"), "{o:?}"),
        code => assert!(code == Some(0) && o.out.starts_with("begun\n"), "{o:?}"),
    }
}

/// Waits until a tracer has more to print than its pipe takes, which nobody reads.
#[track_caller]
fn pipe_is_full(child: &Child) {
    let reader = child.stdout.as_ref().unwrap().as_raw_fd();
    // Another end for writing of the same pipe, which is closed before the pipe is read to its end.
    let writer = File::options().write(true).open(format!("/proc/self/fd/{reader}")).unwrap();
    let mut poll = libc::pollfd { fd: writer.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one element, which lives across the call.
    eventually("a full pipe", LIMIT, || unsafe { libc::poll(&raw mut poll, 1, 0) } == 0);
}

/// A guest, where all functions may be traced: nobody should do that where others work.
fn no_guest() -> Option<Verdict> {
    if !is_guest() {
        return Some(Skip("slows the machine down: in guests only".into()));
    }
    no_functions()
}

const ENDS: &str = "BEGIN { printf(\"begun\\n\"); } END { printf(\"ended\\n\"); } ";

/// Waits until a script with [`ENDS`] and a clause that prints `tick` has printed so many of these.
#[track_caller]
fn ticked(child: &mut Child, ticks: i32) {
    printed_more(child, ("begun\n".len() as i32) + ticks * ("tick\n".len() as i32) - 1);
}

fn a_signal_before_anything_is_attached_is_death_by_it() -> Verdict {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let path = std::env::temp_dir().join(format!("dtrace-interrupts-{}", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string that lives across the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let child = start(&["-s", path.to_str().unwrap()]);
        // It reads the script, which nobody writes: the file can be opened for writing once it
        // reads.
        let script = eventually("a reader of the script", LIMIT, || {
            File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path)
        });
        let o = end(child, number);
        drop(script);
        let _ = std::fs::remove_file(&path);
        assert_eq!((o.code, o.out.as_str(), o.err.as_str()), (None, "", ""), "{o:?}");
    }
    Pass
}

fn a_target_that_never_ran_dies_with_an_interrupted_preparation() -> Verdict {
    use std::os::unix::fs::PermissionsExt;
    let dir = std::env::temp_dir().join(format!("dtrace-preparation-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    // A preprocessor that keeps the preparation waiting, until the test closes the pipe.
    let pipe = path("pipe");
    let name = std::ffi::CString::new(pipe.as_str()).unwrap();
    // SAFETY: a string that lives across the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let held = File::options().read(true).write(true).open(&pipe).unwrap();
    std::fs::write(path("cpp"), format!("#!/bin/sh\nread line <{pipe}\n")).unwrap();
    std::fs::set_permissions(path("cpp"), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(path("x.d"), "BEGIN { }").unwrap();
    let marker = format!("sleep\0{}.5\0", 86400 + std::process::id());
    let alive = || {
        std::fs::read_dir("/proc").into_iter().flatten().flatten().any(|process| {
            std::fs::read(process.path().join("cmdline")).is_ok_and(|line| line == marker.as_bytes())
        })
    };
    let target = marker.trim_end_matches('\0').replace('\0', " ");
    let cpp = format!("-xcpppath={}", path("cpp"));
    for s in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL] {
        let child = start(&["-q", "-C", &cpp, "-c", &target, "-s", &path("x.d")]);
        eventually("the target", LIMIT, alive);
        signal(&child, s);
        let o = finish(child);
        assert_eq!(o.code, None, "{o:?}");
        eventually(format_args!("the end of the target after signal {s}"), LIMIT, || !alive());
    }
    drop(held);
    let _ = std::fs::remove_dir_all(&dir);
    Pass
}

fn an_interrupt_ends_a_trace_of_every_tracepoint_soon() -> Verdict {
    let script = format!(
        "{ENDS} rawtp:::, sdt:::, syscall::: {{ @[probeprov] = count(); }} \
         rawtp:::sys_enter /!seen/ {{ seen = 1; printf(\"tick\\n\"); }}"
    );
    let mut child = start(&["-q", "-Zn", &script]);
    ticked(&mut child, 1);
    let o = end(child, libc::SIGTERM).code(0);
    assert!(o.out.contains("ended\n") && o.out.contains("rawtp"), "{o:?}");
    helpers_end();
    Pass
}

/// Interrupts a tracer that has more to print than its pipe takes, twice: as long as nobody reads,
/// the end that the first signal begins does not end. Gives what the run left.
#[track_caller]
fn interrupted_twice(script: &str) -> Output {
    let mut child = start(&["-q", "-Zn", script]);
    pipe_is_full(&child);
    signal(&child, libc::SIGINT);
    signal(&child, libc::SIGTERM);
    eventually("the end after two signals", LIMIT, || child.try_wait().unwrap());
    finish(child).code(1)
}

fn a_second_interrupt_ends_at_once_without_the_end_clauses() -> Verdict {
    let rows = "tick-1ms { printf(\"%65536s\\n\", \"x\"); }";
    let o = interrupted_twice(&format!("{ENDS} {rows} rawtp::: {{ @[probename] = count(); }}"));
    helpers_end();
    assert!(o.out.starts_with("begun\n") && !o.out.contains("ended"), "{}", o.err);
    Pass
}

fn a_second_interrupt_ends_at_once_though_nobody_reads() -> Verdict {
    let rows = "tick-1ms { printf(\"%65536s\\n\", \"x\"); }";
    let o = interrupted_twice(rows);
    assert!(!o.err.contains("failed"), "{}", o.err);
    Pass
}

fn an_interrupt_ends_the_enabling_of_all_functions() -> Verdict {
    if let Some(skip) = no_guest() {
        return skip;
    }
    if !attaches_to_many_functions() {
        return Skip("this kernel attaches to functions one by one".into());
    }
    for ms in [0, 300, 1500, 3000] {
        let mut child = start(&["-qn", "BEGIN { printf(\"begun\\n\"); } fbt::: { @ = count(); }"]);
        worked(&mut child, Duration::from_millis(ms));
        let o = end(child, libc::SIGTERM);
        println!("         after {ms} ms: {:?} {}", o.code, o.err.trim_end());
        ended_as_far_as_it_was(&o);
        helpers_end();
    }
    // Nothing is stuck: the next one works.
    dtrace(&["-qn", "fbt::vfs_*:entry { @ = count(); } BEGIN { exit(0); }"]).code(0);
    Pass
}

fn an_interrupt_ends_a_trace_of_the_stacks_of_all_functions() -> Verdict {
    if let Some(skip) = no_guest() {
        return skip;
    }
    if !attaches_to_many_functions() {
        return Skip("this kernel attaches to functions one by one".into());
    }
    // What there is to print takes its time, which is not the signal's.
    let script = format!(
        "{ENDS} fbt:::entry {{ @[stack()] = count(); }} tick-100ms {{ printf(\"tick\\n\"); }} END {{ trunc(@); }}"
    );
    let mut child = start(&["-qn", &script]);
    // The script traces for as long as so many ticks take, which a busy machine may delay.
    ticked(&mut child, 20);
    let o = end(child, libc::SIGTERM).code(0);
    println!("         {}", o.err.lines().last().unwrap_or_default());
    helpers_end();
    Pass
}

fn an_interrupt_ends_the_enabling_of_functions_one_by_one() -> Verdict {
    if let Some(skip) = no_guest() {
        return skip;
    }
    for means in ["kprobe", "fentry"] {
        let option = format!("fbtmeans={means}");
        let script = "BEGIN { printf(\"begun\\n\"); } fbt::vfs_*:entry { @ = count(); }";
        for links in [1, 10] {
            let mut child = start(&["-q", "-x", &option, "-x", "fbtmax=1000", "-n", script]);
            attached(&mut child, links);
            let o = end(child, libc::SIGINT);
            ended_as_far_as_it_was(&o);
            helpers_end();
        }
    }
    Pass
}

fn an_interrupt_ends_the_enabling_of_events_by_perf() -> Verdict {
    if let Some(skip) = no_guest() {
        return skip;
    }
    let mut child = start(&["-qn", "BEGIN { printf(\"begun\\n\"); } sdt::: { @ = sum(arg0); }"]);
    attached(&mut child, 1);
    let o = end(child, libc::SIGINT);
    ended_as_far_as_it_was(&o);
    println!("         {:?} {}", o.code, o.err.lines().next().unwrap_or_default());
    helpers_end();
    Pass
}

fn a_session_that_takes_most_of_the_time_says_so_early() -> Verdict {
    if let Some(skip) = no_guest() {
        return skip;
    }
    if !attaches_to_many_functions() {
        return Skip("this kernel attaches to functions one by one".into());
    }
    // An idle guest calls few functions.
    let mut load: Vec<Child> = (0..2)
        .map(|_| {
            let mut dd = std::process::Command::new("dd");
            dd.args(["if=/dev/zero", "of=/dev/null", "bs=1"]).stderr(std::process::Stdio::null());
            dd.spawn().unwrap()
        })
        .collect();
    let mut child = start(&["-q", "-o", "/dev/null", "-n", "fbt:::entry { @[stack()] = count(); }"]);
    // The message comes while the session runs.
    let (to, lines) = std::sync::mpsc::channel();
    let err = BufReader::new(child.stderr.take().unwrap());
    std::thread::spawn(move || err.lines().map_while(Result::ok).try_for_each(|line| to.send(line).ok()));
    let mut seen = Vec::new();
    let said = loop {
        match lines.recv_timeout(LIMIT) {
            Ok(line) if line.contains("% of the CPUs' time or more") => break true,
            Ok(line) => seen.push(line),
            Err(_) => break false,
        }
    };
    for dd in &mut load {
        dd.kill().unwrap();
        dd.wait().unwrap();
    }
    signal(&child, libc::SIGTERM);
    let status = child.wait().unwrap();
    assert!(said && status.code() == Some(0), "{status}: {seen:?}");
    helpers_end();
    Pass
}
