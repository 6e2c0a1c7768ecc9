//! Stacks of real programs: their frames are those that a debugger shows, or they are known.
//!
//! A program sleeps again and again at one place, where both look at it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;
use testing::dir::Dir;
use testing::elf::{AFTER_CALL, Elf, GLOBAL_FUNCTION};
use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{lacks, no_clock, no_types};
use crate::pid::Programs;
use crate::symbols::{TestDir, one_call, waiting};
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start};

tests! {
    stacks_of_programs_of_c_are_those_of_a_debugger
    stacks_in_a_container_are_those_of_a_debugger
    stacks_of_go_are_those_of_a_debugger
    stacks_of_rust_are_those_of_a_debugger
    stacks_of_node_are_those_of_a_debugger
    stacks_of_postgres_are_those_of_a_debugger
    stacks_through_code_made_at_run_time_go_to_the_start
    stacks_in_the_code_of_the_kernel_go_to_the_start
    a_pid_that_is_used_again_has_stacks_of_its_own
}

/// A process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(command: &mut Command) -> Result<Running, String> {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Running).map_err(|e| e.to_string())
}

/// The addresses of a debugger's frames. `None`: there is no debugger.
pub(crate) fn debugger(pid: u32) -> Option<Vec<String>> {
    let pid = pid.to_string();
    let past = ["-ex", "set backtrace past-main on", "-ex", "frame apply all -q info frame"];
    let o = Command::new("gdb").args(["-batch", "-nx", "-p", &pid]).args(past).stdin(Stdio::null()).output();
    let text = String::from_utf8_lossy(&o.ok()?.stdout).into_owned();
    let frame = |text: &str| {
        // With debug information it also shows calls of which nothing is on the stack.
        let is_guess = text.contains("tail call frame") || text.contains("inlined into frame");
        let address = text.split("rip = ").nth(1)?.split([' ', ';']).next()?;
        // The caller of the first function is none.
        (!is_guess && address != "0x0").then(|| address.to_owned())
    };
    Some(text.split("Stack level ").skip(1).filter_map(frame).collect())
}

/// The frames at the next of these system calls of a process's first thread, and those that a
/// debugger shows.
fn compared(running: &Running, probes: &str, least: usize) -> Verdict {
    let pid = running.0.id().to_string();
    let script = format!("{probes} /tid == $target/ {{ ustack(127); exit(0); }}");
    let o = dtrace(&["-q", "-x", "stacksymbols=no", "-p", &pid, "-n", &script]).code(0);
    let Some(theirs) = debugger(running.0.id()).filter(|frames| frames.len() > 1) else {
        return Skip("no gdb".into());
    };
    let ours: Vec<&str> = o.out.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert!(ours.len() >= least, "{o:?}");
    assert_eq!(ours, theirs, "{o:?}");
    Pass
}

/// Waits until a program has slept in one of these system calls a few times, because it may call
/// otherwise what it has called often. False when it has ended.
#[track_caller]
fn settled(running: &mut Running, calls: &[i64]) -> bool {
    const SLEEPS: usize = 5;
    let pid = running.0.id();
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    // Each sleep has its number: it is a switch to another thread.
    let sleep = || -> Option<String> {
        let call: i64 = file("syscall").ok()?.split(' ').next()?.parse().ok()?;
        let status = file("status").ok()?;
        let switches = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        calls.contains(&call).then(|| switches.trim().to_owned())
    };
    let mut sleeps = BTreeSet::new();
    eventually("a program that sleeps", LIMIT, || {
        sleeps.extend(sleep());
        match running.0.try_wait().unwrap() {
            Some(_) => Some(false),
            None => (sleeps.len() >= SLEEPS).then_some(true),
        }
    })
}

const NAPS: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define OUT __attribute__((noinline, noclone))
OUT void nap(void)
{
    struct timespec t = { 0, 200000000 };
    for (;;) {
        nanosleep(&t, 0);
        __asm__ volatile("");
    }
}
OUT void handler(int signal) { nap(); __asm__ volatile(""); }
OUT int compare(const void *a, const void *b)
{
    char some[300];
    memset(some, 1, sizeof some);
    __asm__ volatile("" : : "r"(some) : "memory");
    nap();
    return *(const int *)a - *(const int *)b;
}
OUT void sort(void) { int two[2] = {2, 1}; qsort(two, 2, sizeof *two, compare); __asm__ volatile(""); }
OUT void aligned(int n)
{
    char some[n];
    _Alignas(64) char more[64];
    memset(some, 1, n);
    memset(more, 1, sizeof more);
    __asm__ volatile("" : : "r"(some), "r"(more) : "memory");
    raise(SIGUSR1);
    __asm__ volatile("" : : "r"(some), "r"(more) : "memory");
}
int main(int argc, char **argv)
{
    signal(SIGUSR1, handler);
    if (argc > 1)
        aligned(argc * 100);
    else
        sort();
    __asm__ volatile("");
    return 0;
}
"#;

const CATCHES: &str = r#"
#include <stdexcept>
#include <time.h>
__attribute__((noinline)) void nap() { timespec t = { 0, 200000000 }; for (;;) nanosleep(&t, nullptr); }
__attribute__((noinline)) void thrower(int n) { if (n) throw std::runtime_error("x"); }
__attribute__((noinline)) void catcher(int n)
{
    try { thrower(n); } catch (std::exception &e) { nap(); __asm__ volatile(""); }
}
int main(int argc, char **argv) { catcher(argc); __asm__ volatile(""); return 0; }
"#;

const NAP: &str = "syscall::clock_nanosleep:entry";

/// A program that was compiled, or the end of a test that is skipped.
macro_rules! compiled {
    ($built:expr) => {
        match no_types().map_or_else(|| $built, Err) {
            Ok(program) => program,
            Err(verdict) => return verdict,
        }
    };
}

fn stacks_of_programs_of_c_are_those_of_a_debugger() -> Verdict {
    let plain = ["-O2", "-fomit-frame-pointer"];
    let (_plain, program) = compiled!(Programs::new("naps", ("cc", NAPS), &plain));
    let fixed = Programs::new("naps-static", ("cc", NAPS), &[&plain[..], &["-static"]].concat());
    let (_static, fixed) = compiled!(fixed);
    let (_catch, catch) = compiled!(Programs::new("naps-catch", ("c++", CATCHES), &plain));
    for (command, least) in [
        (vec![&program], 9),
        (vec![&program, &program], 9),
        (vec![&fixed], 8),
        (vec![&fixed, &fixed], 8),
        (vec![&catch], 7),
    ] {
        let mut running = run(Command::new(command[0]).args(&command[1..])).unwrap();
        assert!(settled(&mut running, &[libc::SYS_clock_nanosleep]));
        match compared(&running, NAP, least) {
            Pass => {}
            other => return other,
        }
    }
    Pass
}

/// `box DIRECTORY PROGRAM`: executes a copy of the program, with copies of its libraries, in a root
/// of its own.
const BOX: &str = r#"
mount -t tmpfs none $1 && cp --parents -L $2 $(ldd $2 | grep -o '/[^ ]*') $1 || exit 77
exec chroot $1 $2
"#;

fn stacks_in_a_container_are_those_of_a_debugger() -> Verdict {
    let (dir, program) = compiled!(Programs::new("naps-box", ("cc", NAPS), &["-O2", "-fomit-frame-pointer"]));
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let script = dir.path().join("box");
    std::fs::write(&script, BOX).unwrap();
    let words = [
        std::ffi::OsStr::new("--mount"),
        "sh".as_ref(),
        script.as_os_str(),
        root.as_os_str(),
        program.as_ref(),
    ];
    let Ok(mut running) = run(Command::new("unshare").args(words)) else { return Skip("no unshare".into()) };
    if !settled(&mut running, &[libc::SYS_clock_nanosleep]) {
        assert_eq!(running.0.wait().unwrap().code(), Some(77));
        return Skip("no container can be made".into());
    }
    compared(&running, NAP, 9)
}

/// Compiles a program of another language. `Err`: there is no compiler.
fn built(test: &str, file: &str, source: &str, command: &[&str]) -> Result<(Programs, String), String> {
    let programs = Programs(Dir::new(&format!("debuggers-{test}")));
    std::fs::write(programs.path().join(file), source).unwrap();
    let o = Command::new(command[0])
        .args(&command[1..])
        .arg(file)
        .current_dir(programs.path())
        .env("GOCACHE", programs.path().join("cache"))
        .output()
        .map_err(|e| format!("{}: {e}", command[0]))?;
    assert!(o.status.success(), "{o:?}");
    let path = programs.path().join("program").display().to_string();
    Ok((programs, path))
}

const GO: &str = r#"
package main

import "syscall"

//go:noinline
func second(n int) int { t := syscall.Timespec{Nsec: 200000000}; syscall.Nanosleep(&t, nil); return n + 1 }

//go:noinline
func first(n int) int { return second(n) + 1 }

func main() { for i := 0; ; i++ { first(i) } }
"#;

fn stacks_of_go_are_those_of_a_debugger() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_dir, program) = match built("go", "program.go", GO, &["go", "build", "-o", "program"]) {
        Ok(program) => program,
        Err(why) => return Skip(format!("no compiler of Go here: {why}")),
    };
    let mut running = run(&mut Command::new(&program)).unwrap();
    assert!(settled(&mut running, &[libc::SYS_nanosleep]));
    compared(&running, "syscall::nanosleep:entry", 8)
}

const RUST: &str = r#"
use std::time::Duration;
#[inline(never)]
fn second(n: &mut Vec<u32>) { n.push(1); std::thread::sleep(Duration::from_millis(200)); std::hint::black_box(n); }
#[inline(never)]
fn first(n: &mut Vec<u32>) { second(n); std::hint::black_box(n); }
fn main() { let mut n = Vec::new(); let mut f = || { first(&mut n); n.clear() }; loop { std::hint::black_box(&mut f)(); } }
"#;

fn stacks_of_rust_are_those_of_a_debugger() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_dir, program) = match built("rust", "program.rs", RUST, &["rustc", "-O"]) {
        Ok(program) => program,
        Err(why) => return Skip(format!("no compiler of Rust here: {why}")),
    };
    let mut running = run(&mut Command::new(&program)).unwrap();
    assert!(settled(&mut running, &[libc::SYS_clock_nanosleep]));
    compared(&running, NAP, 10)
}

fn stacks_of_node_are_those_of_a_debugger() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let Ok(mut running) = run(Command::new("node").args(["-e", "setInterval(() => {}, 200)"])) else {
        return Skip("no node here".into());
    };
    assert!(settled(&mut running, &[libc::SYS_epoll_wait, libc::SYS_epoll_pwait]));
    compared(&running, "syscall::epoll_wait:entry, syscall::epoll_pwait:entry", 8)
}

fn stacks_of_postgres_are_those_of_a_debugger() -> Verdict {
    const NOBODY: u32 = 65534;
    if let Some(skip) = no_types() {
        return skip;
    }
    let dir = Dir::new("debuggers-postgres");
    std::os::unix::fs::chown(&dir, Some(NOBODY), None).unwrap();
    let data = dir.join("data").display().to_string();
    let made = Command::new("initdb")
        .uid(NOBODY)
        .current_dir(&dir)
        .args(["-N", "-A", "trust", "-D", &data])
        .output();
    if !made.is_ok_and(|o| o.status.success()) {
        return Skip("no database here".into());
    }
    let mut command = Command::new("postgres");
    command.uid(NOBODY).current_dir(&dir).args(["--single", "-D", &data, "postgres"]);
    let mut running = run(command.stdin(Stdio::piped())).unwrap();
    // It waits a second each time.
    let mut queries = String::new();
    (0..600).for_each(|_| writeln!(queries, "select pg_sleep(1);").unwrap());
    running.0.stdin.as_mut().unwrap().write_all(queries.as_bytes()).unwrap();
    assert!(settled(&mut running, &[libc::SYS_epoll_wait]));
    compared(&running, "syscall::epoll_wait:entry", 15)
}

const SCRIPT: &str = "
function inner(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i ^ n); return s; }
function middle(n) { return inner(n) + 1; }
function outer(n) { return middle(n) + 1; }
const end = Date.now() + 2000;
let t = 0;
while (Date.now() < end) t += outer(100000);
require('fs').rmSync(`/tmp/perf-${process.pid}.map`);
";

/// The stacks that an aggregation has, and how often.
fn stacks(out: &str) -> Vec<(Vec<String>, u64)> {
    let (mut all, mut frames) = (Vec::new(), Vec::new());
    for line in out.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.parse() {
            Ok(count) => all.push((std::mem::take(&mut frames), count)),
            Err(_) => frames.push(line.to_owned()),
        }
    }
    all
}

fn stacks_through_code_made_at_run_time_go_to_the_start() -> Verdict {
    if let Some(skip) = no_clock().or_else(no_types) {
        return skip;
    }
    let dir = TestDir::new("jit");
    let script = dir.0.join("hot.js");
    std::fs::write(&script, SCRIPT).unwrap();
    if !Command::new("node").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return Skip("no node here".into());
    }
    let log = dir.0.join("v8.log");
    let (log, script) = (log.display(), script.display());
    let command =
        format!("node --perf-basic-prof --interpreted-frames-native-stack --logfile={log} {script}");
    let clause = "profile-997 /pid == $target && tid == $target && arg1/ { @[ustack(127)] = count(); }";
    // The symbols of node are many for an emulated CPU.
    let options = ["-q", "-x", "aggsize=8m", "-x", "symtimeout=60s"];
    let o = dtrace(&[&options[..], &["-c", &command, "-n", clause]].concat()).code(0);
    let (mut hot, mut whole) = (0, 0);
    for (frames, count) in stacks(&o.out) {
        let at = |name: &str| frames.iter().position(|frame| frame.contains(name));
        let Some(inner) = at("inner ") else { continue };
        hot += count;
        let calls = at("middle ") == Some(inner + 1) && at("outer ") == Some(inner + 2);
        let begins = frames.last().is_some_and(|frame| frame.contains("node`_start+"));
        whole += if calls && begins { count } else { 0 };
    }
    // Until the compiler has replaced it, the functions are called in another way.
    assert!(hot > 100 && whole * 100 >= hot * 95, "{whole} of {hot}: {}", o.err);
    Pass
}

const VDSO: &str = r#"
#include <time.h>
__attribute__((noinline, noclone)) long ask(void)
{
    struct timespec t;
    long n = 0;
    for (int i = 0; i < 10000000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        n += t.tv_nsec;
    }
    return n;
}
int main(void) { return ask() == 1; }
"#;

fn stacks_in_the_code_of_the_kernel_go_to_the_start() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let (_dir, program) = compiled!(Programs::new("vdso", ("cc", VDSO), &["-O2", "-fomit-frame-pointer"]));
    let clause = "profile-997 /pid == $target && arg1/ { @[ustack(127)] = count(); }";
    let o = dtrace(&["-qc", &program, "-n", clause]).code(0);
    let inside: Vec<_> = stacks(&o.out).into_iter().filter(|(f, _)| f[0].starts_with("[vdso]`")).collect();
    if inside.is_empty() {
        return Skip("the clock is read by a system call here".into());
    }
    for (frames, _) in &inside {
        let has = |name: &str| frames.iter().any(|frame| frame.contains(name));
        assert!(has("program`ask+") && has("program`main+"), "{o:?}");
        assert!(frames.last().is_some_and(|frame| frame.starts_with("program`_start+")), "{o:?}");
    }
    Pass
}

/// Runs a program that waits for its byte as the process with this number, which no other process
/// has. The status of its end.
fn run_as(pid: u32, path: &str) -> std::io::Result<i32> {
    let path = std::ffi::CString::new(path).unwrap();
    let (read, mut write) = std::io::pipe()?;
    write.write_all(b"x")?;
    let (numbers, arguments) = ([pid as libc::pid_t], [path.as_ptr(), std::ptr::null()]);
    // SAFETY: all zero is a valid value. What it points to lives across the call, which makes a
    // copy of this process; the copy makes system calls only.
    unsafe {
        let mut how: libc::clone_args = std::mem::zeroed();
        how.exit_signal = libc::SIGCHLD as u64;
        (how.set_tid, how.set_tid_size) = (numbers.as_ptr() as u64, 1);
        match libc::syscall(libc::SYS_clone3, &raw mut how, size_of_val(&how)) {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                libc::dup2(read.as_raw_fd(), 0);
                libc::execv(path.as_ptr(), arguments.as_ptr());
                libc::_exit(127)
            }
            made => {
                let mut status = 0;
                assert_eq!(libc::waitpid(made as libc::pid_t, &raw mut status, 0), made as libc::pid_t);
                Ok(status)
            }
        }
    }
}

/// Two programs that have the same addresses, and different names for them, run one after the other
/// with the same pid.
fn a_pid_that_is_used_again_has_stacks_of_its_own() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    let dir = TestDir::new("reuse");
    let program = |name: &str| {
        let symbols = vec![(format!("in_{name}"), 0, 200, GLOBAL_FUNCTION)];
        dir.program(name, &Elf { symbols, ..one_call() })
    };
    let programs = [program("older"), program("newer")];
    let script = "BEGIN { printf(\"begun\\n\"); } syscall::getppid:entry /substr(execname, 0, 6) == \"dtsym_\"/ \
                  { @[pid, ustack(1)] = count(); @one[ustack(1)] = count(); }";
    let mut tracer = start(&["-qn", script]);
    printed(&mut tracer);
    let mut child = waiting(&programs[0]);
    let pid = child.id();
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    child.wait().unwrap();
    let again = run_as(pid, &programs[1]);
    signal(&tracer, libc::SIGINT);
    let o = finish(tracer).code(0);
    match again {
        Ok(status) => assert_eq!(status, 0),
        Err(e) => return Skip(format!("no pid can be used again here: {e}")),
    }
    let count = |name: &str| o.out.matches(&format!("`in_{name}+{AFTER_CALL:#x}")).count();
    // Each process has a row in both aggregations.
    assert_eq!((count("older"), count("newer")), (2, 2), "{o:?}");
    Pass
}
