//! The sections: start, cost per event, rows, enable and exit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::calls::BATCH;
use crate::floor::{sys_enter, sys_enter_walk};
use crate::run::{Running, Tools, dropped, figure, lines_with, median, whole};

/// A section's code.
type Section = fn(&Tools);

/// Where a section runs when none is named: on this machine or in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Machine,
    Guest,
    Both,
}

/// Name, place and code of each section. Sections that require that no probe was enabled before
/// come first.
pub(crate) const ALL: [(&str, Place, Section); 25] = [
    ("off", Place::Machine, crate::all::off),
    ("all", Place::Machine, crate::all::all),
    ("start", Place::Machine, start),
    ("event", Place::Machine, event),
    ("rows", Place::Machine, rows),
    ("output", Place::Machine, crate::output::output),
    ("keys", Place::Machine, crate::keys::keys),
    ("exit", Place::Machine, exit),
    ("second", Place::Machine, crate::second::second),
    ("long", Place::Machine, crate::long::long),
    ("flame", Place::Machine, crate::flame::flame),
    ("sinks", Place::Machine, crate::sinks::sinks),
    ("captures", Place::Machine, crate::captures::captures),
    ("disabled", Place::Machine, crate::disabled::disabled),
    ("arrivals", Place::Machine, crate::arrivals::arrivals),
    ("speculation", Place::Machine, crate::speculation::speculation),
    ("stable", Place::Both, crate::stable::stable),
    ("user", Place::Machine, crate::user::user),
    ("compile", Place::Machine, crate::user::compile),
    ("usdt", Place::Machine, crate::usdt::usdt),
    ("stacks", Place::Machine, crate::stacks::stacks),
    ("list", Place::Both, crate::guest::list),
    ("firing", Place::Guest, crate::guest::firing),
    ("vfs", Place::Guest, crate::guest::vfs),
    ("functions", Place::Guest, crate::guest::functions),
];

/// Measures wall time and peak memory of a program that prints nothing and exits.
fn start(tools: &Tools) {
    const ROUNDS: usize = 11;
    println!("\nstart to exit of BEGIN {{ exit(0); }} (median of {ROUNDS})");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        ours.extend(whole(tools.dtrace(&[], "BEGIN { exit(0); }")));
        // The peer needs a third of a second each time, so it runs in fewer rounds.
        if let Some(peer) = tools.peer.as_ref().filter(|_| round % 3 == 0) {
            theirs.extend(whole(peer.command("BEGIN { exit(); }")));
        }
    }
    for (name, costs) in [("dtrace", &ours), ("peer", &theirs)] {
        let ms = median(costs.iter().map(|c| c.seconds * 1e3).collect());
        let kb = median(costs.iter().map(|c| c.peak_kb).collect());
        println!("  {name:<8} {:>8} ms {:>8} MiB", figure(ms, 1), figure(kb / 1024.0, 1));
    }
}

/// The same program in both languages.
struct Program {
    what: &'static str,
    ours: &'static str,
    theirs: &'static str,
}

const PROGRAMS: [Program; 11] = [
    Program {
        what: "@ = count(), this call",
        ours: "syscall::getppid:entry { @ = count(); }",
        theirs: "tracepoint:syscalls:sys_enter_getppid { @ = count(); }",
    },
    Program {
        what: "@[execname] = count(), every call",
        ours: "syscall:::entry { @[execname] = count(); }",
        theirs: "tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }",
    },
    Program {
        what: "@[probefunc] = count(), every call",
        ours: "syscall:::entry { @[probefunc] = count(); }",
        theirs: "tracepoint:raw_syscalls:sys_enter { @[args.id] = count(); }",
    },
    Program {
        what: "@ = count(), another call",
        ours: "syscall::swapon:entry { @ = count(); }",
        theirs: "tracepoint:syscalls:sys_enter_swapon { @ = count(); }",
    },
    Program {
        what: "@ = quantize(arg0), this call",
        ours: "syscall::getppid:entry { @ = quantize(arg0); }",
        theirs: "tracepoint:raw_syscalls:sys_enter /args.id == 110/ { @ = hist(args.args[0]); }",
    },
    Program {
        what: "@[pid, execname] = count(), this call",
        ours: "syscall::getppid:entry { @[pid, execname] = count(); }",
        theirs: "tracepoint:syscalls:sys_enter_getppid { @[pid, comm] = count(); }",
    },
    Program {
        what: "@[pid, execname, probefunc] = count()",
        ours: "syscall::getppid:entry { @[pid, execname, probefunc] = count(); }",
        theirs: "tracepoint:syscalls:sys_enter_getppid { @[pid, comm, probe] = count(); }",
    },
    Program {
        what: "printf(\"%d %s\\n\", pid, execname)",
        ours: "syscall::getppid:entry { printf(\"%d %s\\n\", pid, execname); }",
        theirs: "tracepoint:syscalls:sys_enter_getppid { printf(\"%d %s\\n\", pid, comm); }",
    },
    Program {
        what: "a record of 32 bytes",
        ours: "syscall::getppid:entry { trace(arg0); trace(arg1); }",
        theirs: "tracepoint:syscalls:sys_enter_getppid { printf(\"%llu %llu\\n\", pid, tid); }",
    },
    Program {
        what: "@ = quantize(timestamp - self->t)",
        ours: "syscall::getppid:entry { self->t = timestamp; } syscall::getppid:return /self->t/ \
               { @ = quantize(timestamp - self->t); self->t = 0; }",
        theirs: "tracepoint:syscalls:sys_enter_getppid { @t[tid] = nsecs; } \
                 tracepoint:syscalls:sys_exit_getppid /@t[tid]/ { @ = hist(nsecs - @t[tid]); delete(@t, tid); }",
    },
    Program {
        what: "@[stack()] = count(), this call",
        ours: "syscall::getppid:entry { @[stack()] = count(); }",
        theirs: "tracepoint:syscalls:sys_enter_getppid { @[kstack] = count(); }",
    },
];

fn event(tools: &Tools) {
    const ROUNDS: usize = 5;
    println!("\ncost of an event: a loop of getppid (ns a call, least of {ROUNDS} interleaved rounds)");
    println!(
        "  {:<36} {:>7} {:>7} {:>7} {:>7} {:>8} {:>6}",
        "", "bare", "floor", "dtrace", "peer", "+floor", "ratio"
    );
    for q in PROGRAMS {
        // `f64::min` prefers any number to NaN, and NaN is printed as not measured.
        let [mut bare, mut least, mut ours, mut theirs] = [f64::NAN; 4];
        for _ in 0..ROUNDS {
            bare = bare.min(tools.loop_ns());
            if let Some(_link) = sys_enter() {
                least = least.min(tools.loop_ns());
            }
            let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {}", q.ours);
            if let Some(_tracer) = Running::start(tools.dtrace(&["-x", "switchrate=10ms"], &script)) {
                ours = ours.min(tools.loop_ns());
            }
            let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {}", q.theirs);
            if let Some(_tracer) = tools.peer.as_ref().and_then(|p| Running::start(p.command(&script))) {
                theirs = theirs.min(tools.loop_ns());
            }
        }
        let ratio = (ours - bare) / (theirs - bare);
        println!(
            "  {:<36} {:>7} {:>7} {:>7} {:>7} {:>8} {:>6}",
            q.what,
            figure(bare, 0),
            figure(least, 0),
            figure(ours, 0),
            figure(theirs, 0),
            figure(ours - least, 1),
            figure(ratio, 2)
        );
    }
    let [mut bare, mut walk] = [f64::NAN; 2];
    for _ in 0..ROUNDS {
        bare = bare.min(tools.loop_ns());
        if let Some(_link) = sys_enter_walk() {
            walk = walk.min(tools.loop_ns());
        }
    }
    println!(
        "  {:<36} {:>7} {:>7}",
        "a walk of the stack and nothing else",
        figure(bare, 0),
        figure(walk, 0)
    );
    println!(
        "  +floor: dtrace over the floor; ratio: what dtrace adds to a bare call over what the peer adds"
    );
}

/// Measures records at full speed: the number of calls, of printed rows, and of reported drops.
fn rows(tools: &Tools) {
    const CALLS: u64 = 3_000_000;
    const ROUNDS: usize = 3;
    println!(
        "\nrows: {CALLS} getppid calls at full speed on one CPU, a record each (4 MB buffers, best of {ROUNDS})"
    );
    let (mut ours, mut theirs) = (None, None);
    for _ in 0..ROUNDS {
        ours = better(ours, our_rows(tools, CALLS));
        theirs = better(theirs, their_rows(tools, CALLS));
    }
    show_rows("dtrace", CALLS, ours);
    show_rows("peer", CALLS, theirs);
}

/// The one with the higher rate.
fn better(a: Option<Rows>, b: Option<Rows>) -> Option<Rows> {
    a.into_iter().chain(b).max_by(|a, b| a.rate().total_cmp(&b.rate()))
}

/// The rows of one tracer.
struct Rows {
    printed: u64,
    dropped: u64,
    seconds: f64,
}

impl Rows {
    /// Rows printed per second.
    fn rate(&self) -> f64 {
        self.printed as f64 / self.seconds
    }
}

fn show_rows(name: &str, calls: u64, rows: Option<Rows>) {
    let Some(rows) = rows else {
        println!("  {name:<8} -");
        return;
    };
    let (Rows { printed, dropped, seconds }, rate) = (&rows, rows.rate() / 1e6);
    let missing = calls as i64 - (printed + dropped) as i64;
    println!(
        "  {name:<8} {rate:5.2} million rows/s: {printed} printed + {dropped} dropped, {missing} unaccounted for ({seconds:.2} s)"
    );
}

/// The time includes start, all calls, the last drain and the end.
fn our_rows(tools: &Tools, calls: u64) -> Option<Rows> {
    let me = std::env::current_exe().ok()?;
    let target = format!("{} --loop getppid {}", me.display(), calls / u64::from(BATCH));
    let script = "syscall::getppid:entry /pid == $target/ { trace(timestamp); }";
    let file = std::env::temp_dir().join(format!("dtrace-rows-{}", std::process::id()));
    let start = Instant::now();
    let out = Command::new(&tools.dtrace)
        .args(["-b", "4m", "-c", &target, "-n", script, "-o"])
        .arg(&file)
        .stdin(Stdio::null())
        .output();
    let seconds = start.elapsed().as_secs_f64();
    let text = std::fs::read(&file);
    let _ = std::fs::remove_file(&file);
    let (out, text) = (out.ok().filter(|o| o.status.success())?, text.ok()?);
    let dropped = dropped(&String::from_utf8_lossy(&out.stderr), " drop");
    Some(Rows { printed: lines_with(&text, "getppid:entry"), dropped, seconds })
}

/// The time includes only the calls, not start and end of the peer. The peer does not report its
/// drops.
fn their_rows(tools: &Tools, calls: u64) -> Option<Rows> {
    let script = "BEGIN { printf(\"ready\\n\"); } tracepoint:syscalls:sys_enter_getppid /comm == \"benches\"/ \
                  { printf(\"%llu\\n\", nsecs); }";
    let mut command = tools.peer.as_ref()?.command(script);
    command.env("BPFTRACE_PERF_RB_PAGES", "1024");
    let tracer = Running::start(command)?;
    let start = Instant::now();
    let me = std::env::current_exe().ok()?;
    let batches = (calls / u64::from(BATCH)).to_string();
    Command::new(me).args(["--loop", "getppid", &batches]).stdout(Stdio::null()).status().ok()?;
    let seconds = start.elapsed().as_secs_f64();
    Some(Rows { printed: tracer.end(), dropped: 0, seconds })
}

/// Measures enabling and exit with every system call probed, entry and return. Exit is the time
/// from `exit()` to the end of the process.
fn exit(tools: &Tools) {
    println!(
        "\nevery system call, entry and return, for 0.3 s: exit() to the end of the process, and all in all"
    );
    // Each tracer's own clock reports when exit() was called.
    let ours = "syscall::: { @[probefunc] = count(); } \
                tick-300ms { printf(\"at %d \", timestamp); exit(0); }";
    let theirs = "tracepoint:syscalls:sys_* { @[probe] = count(); } \
                  interval:ms:300 { printf(\"at %llu \", nsecs(monotonic)); exit(); }";
    let rounds: Vec<Exit> = (0..5).filter_map(|_| exit_once(tools.dtrace(&[], ours))).collect();
    show_exit("dtrace", "median of 5", &rounds);
    let once = tools.peer.as_ref().and_then(|p| exit_once(p.command(theirs)));
    show_exit("peer", "once", &once.into_iter().collect::<Vec<_>>());
    println!(
        "\nevery tracepoint and every system call, while two processes call: a signal to the end of the process"
    );
    let script = "BEGIN { printf(\"begun\\n\"); } rawtp:::, sdt:::, syscall::: { @[probeprov] = count(); }";
    for (name, signal) in [("SIGINT", libc::SIGINT), ("SIGTERM", libc::SIGTERM)] {
        let rounds: Vec<f64> =
            (0..5).filter_map(|_| signalled(tools.dtrace(&["-Z"], script), signal)).collect();
        println!("  {name:<8} {:>8} ms (median of 5)", figure(median(rounds), 1));
    }
}

/// The milliseconds from a signal to the end of a tracer that has printed its first line.
fn signalled(mut command: Command, signal: i32) -> Option<f64> {
    let mut load: Vec<Child> = (0..2).filter_map(|_| caller().spawn().ok()).collect();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut out = BufReader::new(child.stdout.take()?);
    let begun = out.read_line(&mut String::new());
    let start = Instant::now();
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
    let rest = out.read_to_end(&mut Vec::new());
    let end = child.wait();
    let took = start.elapsed().as_secs_f64() * 1e3;
    for process in &mut load {
        let _ = process.kill();
        let _ = process.wait();
    }
    (begun.is_ok_and(|bytes| bytes > 0) && rest.is_ok() && end.is_ok()).then_some(took)
}

/// A process that calls `getppid` until it is killed.
fn caller() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.args(["--loop", "getppid", &u64::MAX.to_string()]).stdout(Stdio::null());
    command
}

/// Times in milliseconds.
struct Exit {
    after: f64,
    whole: f64,
}

fn show_exit(name: &str, how: &str, rounds: &[Exit]) {
    let after = median(rounds.iter().map(|e| e.after).collect());
    let whole = median(rounds.iter().map(|e| e.whole).collect());
    println!("  {name:<8} {:>8} ms, {:>8} ms ({how})", figure(after, 1), figure(whole, 0));
}

fn exit_once(mut command: Command) -> Option<Exit> {
    let start = Instant::now();
    let out = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let (end, whole) = (bpf_sys::monotonic_ns(), start.elapsed().as_secs_f64() * 1e3);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (_, rest) = text.split_once("at ")?;
    let called: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(Exit { after: end.checked_sub(called)? as f64 / 1e6, whole })
}
