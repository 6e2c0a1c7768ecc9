//! The last records of a session in the core file of its target.
//!
//! A workload makes a known number of calls and dies of a signal. The core file is what this kernel
//! makes by itself, so the machine's `core_pattern` must be the name of a file in the process's own
//! directory, `core` and what may follow; it is not changed, except in a guest, which is ours.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{Output, dtrace, finish, workload};

tests! {
    the_core_of_a_program_that_crashes_has_the_last_records_and_the_totals
    a_signal_of_any_thread_is_waited_for
    a_signal_is_waited_for_when_the_first_thread_has_exited
    a_signal_that_is_handled_or_ignored_or_makes_no_core_changes_nothing
    a_target_that_executes_another_program_loses_the_memory_and_says_so
    nothing_is_done_to_a_process_that_runs_already
    a_process_whose_mmap_never_returns_is_traced_and_left_alone
    no_target_is_harmed_by_the_death_of_dtrace_while_it_makes_the_memory
    postmortem_without_a_process_that_is_held_is_refused
    a_file_without_records_is_refused_with_the_reason
}

/// A directory in which a core file is made, and removed at the end.
struct Cores(PathBuf);

impl Drop for Cores {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// A place for core files. `Err`: the kernel of this machine gives them to a program.
fn cores(name: &str) -> Result<Cores, Verdict> {
    let pattern = || std::fs::read_to_string(PATTERN).unwrap_or_default().trim().to_string();
    let is_plain = |text: &str| text.starts_with("core") && !text.contains('/');
    if !is_plain(&pattern()) && crate::machine::is_guest() {
        let _ = std::fs::write(PATTERN, "core");
    }
    if !is_plain(&pattern()) {
        return Err(Skip("core_pattern of this machine is no name of a file that begins with core".into()));
    }
    let path = std::env::temp_dir().join(format!("dtrace-cores-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    Ok(Cores(path))
}

impl Cores {
    /// Runs dtrace in the directory, without a limit on core files.
    fn run(&self, words: &[&str]) -> Output {
        finish(self.start(words))
    }

    fn start(&self, words: &[&str]) -> std::process::Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""]).arg(crate::tool::binary());
        command.args(words).current_dir(&self.0).stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    }

    /// The core files.
    fn files(&self) -> Vec<String> {
        let list = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        list.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("core"))
            .map(|path| path.to_str().unwrap().to_string())
            .collect()
    }

    #[track_caller]
    fn core(&self, o: &Output) -> String {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}\n{}\n{}", o.out, o.err);
        files[0].clone()
    }
}

/// The workloads: so many calls of getppid, with their numbers as arguments, and an end.
pub(crate) fn run(name: &str, count: u32) -> Option<ExitCode> {
    let calls = || {
        for n in 0..count {
            // SAFETY: a system call without arguments; the number is for the tracer.
            unsafe { libc::syscall(libc::SYS_getppid, n) };
        }
    };
    // SAFETY: a signal to this process.
    let die = |signal| unsafe {
        libc::raise(signal);
    };
    let crash = || {
        // SAFETY: none: the fault is what the test wants.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(16).write_volatile(1) };
    };
    extern "C" fn nothing(_: i32) {}
    match name {
        "crash" => {
            calls();
            // The runtime has a handler, which finds no overflow of a stack and removes itself.
            crash();
        }
        "abort" => {
            calls();
            std::process::abort();
        }
        "crash-in-thread" => {
            let others: Vec<_> = (0..3).map(|_| std::thread::spawn(std::thread::park)).collect();
            let _ = std::thread::spawn(move || {
                for n in 0..count {
                    // SAFETY: as above.
                    unsafe { libc::syscall(libc::SYS_getppid, n) };
                }
                std::process::abort();
            })
            .join();
            drop(others);
        }
        "abort-after-first" => {
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(100));
                for n in 0..count {
                    // SAFETY: as above.
                    unsafe { libc::syscall(libc::SYS_getppid, n) };
                }
                std::process::abort();
            });
            // SAFETY: ends this thread alone.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        "harmless" => {
            // SAFETY: a handler that does nothing.
            unsafe {
                libc::signal(libc::SIGQUIT, nothing as extern "C" fn(i32) as usize);
                libc::signal(libc::SIGSYS, libc::SIG_IGN);
            }
            for _ in 0..10 {
                die(libc::SIGQUIT);
                die(libc::SIGSYS);
            }
            calls();
            die(libc::SIGTERM);
        }
        "exec-and-abort" => {
            use std::os::unix::process::CommandExt;
            let me = std::env::current_exe().ok()?;
            let _ = Command::new(me).args(["--workload", "abort", &count.to_string()]).exec();
        }
        // Into a file of the directory, which is new.
        "says-its-mask" => {
            use std::io::Write;
            let mut file = std::fs::File::create_new(format!("ran-{}", std::process::id())).ok()?;
            let status = std::fs::read_to_string("/proc/self/status").ok()?;
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?.trim();
            writeln!(file, "begun {blocked}").ok()?;
            calls();
            writeln!(file, "done").ok()?;
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

const SCRIPT: &str =
    "syscall::getppid:entry /pid == $target/ { printf(\"call %d\\n\", arg0); @calls = count(); }";

#[track_caller]
fn check_calls(cores: &Cores, o: &Output, count: u64, signal: &str) {
    assert!(o.err.contains(&format!("gets {signal}: the last records are in its memory")), "{}", o.err);
    let core = cores.core(o);
    let found = dtrace(&["--postmortem", &core]).code(0);
    let calls = |text: &str| -> Vec<u64> {
        text.lines().filter_map(|line| line.split_once("call ")?.1.trim().parse().ok()).collect()
    };
    assert_eq!(calls(&o.out), (0..count).collect::<Vec<_>>(), "{}", o.err);
    let calls = calls(&found.out);
    let cut = count - calls.len() as u64;
    assert_eq!(calls, (cut..count).collect::<Vec<_>>(), "{}\n{}", found.out, found.err);
    assert!(cut > 0, "the memory was too large for the test");
    assert_eq!(found.last_number() as u64, count);
    assert!(found.err.contains(signal), "{}", found.err);
    let json = dtrace(&["--postmortem", &core, "--format", "json"]).code(0);
    assert!(json.out.lines().all(|line| line.starts_with('{')), "{}", json.out);
    assert_eq!(json.out.matches("\"demand\"").count(), 1, "{}", json.out);
}

fn of_workload(name: &str, workload_name: &str, signal: &str) -> Verdict {
    let cores = match cores(name) {
        Ok(cores) => cores,
        Err(skip) => return skip,
    };
    let command = workload(workload_name, 500);
    let o = cores.run(&["-x", "postmortem=16k", "-c", &command, "-n", SCRIPT]);
    check_calls(&cores, &o, 500, signal);
    Pass
}

fn the_core_of_a_program_that_crashes_has_the_last_records_and_the_totals() -> Verdict {
    of_workload("crash", "crash", "SIGSEGV")
}

fn a_signal_of_any_thread_is_waited_for() -> Verdict {
    of_workload("thread", "crash-in-thread", "SIGABRT")
}

fn a_signal_is_waited_for_when_the_first_thread_has_exited() -> Verdict {
    of_workload("first", "abort-after-first", "SIGABRT")
}

fn a_target_that_executes_another_program_loses_the_memory_and_says_so() -> Verdict {
    let cores = match cores("exec") {
        Ok(cores) => cores,
        Err(skip) => return skip,
    };
    let command = workload("exec-and-abort", 500);
    let o = cores.run(&["-x", "postmortem=16k", "-c", &command, "-n", SCRIPT]);
    let message = "has no memory for the last records any more: it has executed another program";
    assert!(o.err.contains(message) && !o.err.contains("gets SIGABRT"), "{}", o.err);
    assert_eq!(o.last_number(), 500);
    let o = dtrace(&["-x", "errtags", "--postmortem", &cores.core(&o)]).code(1);
    assert!(o.err.contains("[D_CORE_NONE]"), "{}", o.err);
    Pass
}

fn a_signal_that_is_handled_or_ignored_or_makes_no_core_changes_nothing() -> Verdict {
    let cores = match cores("harmless") {
        Ok(cores) => cores,
        Err(skip) => return skip,
    };
    let o = cores.run(&["-x", "postmortem=16k", "-c", &workload("harmless", 7), "-n", SCRIPT]).code(0);
    assert!(o.err.contains("terminated by SIGTERM"), "{}", o.err);
    assert!(!o.err.contains("the last records"), "{}", o.err);
    assert_eq!((o.last_number(), cores.files().len()), (7, 0));
    Pass
}

fn nothing_is_done_to_a_process_that_runs_already() -> Verdict {
    use std::io::Write;
    let mut command = Command::new("cat");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut process = command.spawn().unwrap();
    let pid = process.id().to_string();
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    // It has its buffers when it has copied a line.
    process.stdin.as_mut().unwrap().write_all(b"begun\n").unwrap();
    assert_eq!(crate::usdt::line(&mut process), "begun");
    let before = maps();
    for words in [&["-p", &pid][..], &["-c", "true", "-p", &pid]] {
        let o = dtrace(&[&["-x", "postmortem=1m", "-n", "BEGIN { exit(0); }"], words].concat()).code(1);
        let reason =
            format!("failed to set option 'postmortem': pid {pid} runs already, and no memory is made");
        assert!(o.err.contains(&reason), "{}", o.err);
    }
    assert_eq!(before, maps());
    process.kill().unwrap();
    let _ = process.wait();
    Pass
}

/// A filter makes each mmap of the process wait for a supervisor that never answers, kills it, or
/// sends it a signal.
const FILTERS: &str = r#"
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char what = argv[1][0];
    unsigned action = what == 'k' ? SECCOMP_RET_KILL_PROCESS : what == 't' ? SECCOMP_RET_TRAP : SECCOMP_RET_USER_NOTIF;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { 4, code };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, what == 'n' ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &filter) < 0)
        return 77;
    write(1, "ready\n", 6);
    char byte;
    while (read(0, &byte, 1) == 1) {
        for (int i = 0; i < 100; i++)
            syscall(__NR_getppid);
        write(1, "done\n", 5);
    }
    return 0;
}
"#;

fn a_process_whose_mmap_never_returns_is_traced_and_left_alone() -> Verdict {
    use std::io::Write;
    let programs = crate::usdt::compiled!(crate::usdt::Programs::new("filters"));
    let program = crate::usdt::compiled!(programs.compile("filters", FILTERS, &[]));
    for what in ["n", "k", "t"] {
        let mut command = Command::new(&program);
        command.arg(what).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut process = command.spawn().unwrap();
        if crate::usdt::line(&mut process) != "ready" {
            let _ = process.wait();
            return Skip("this kernel has no such filter".into());
        }
        let pid = process.id().to_string();
        let o = dtrace(&["-x", "postmortem=1m", "-p", &pid, "-n", "BEGIN { exit(0); }"]).code(1);
        assert!(o.err.contains("runs already"), "{what} {o:?}");
        let script = "syscall::getppid:entry /pid == $target/ { @ = count(); } BEGIN { printf(\"begun\\n\"); } \
                      END { printa(\"%@d\\n\", @); }";
        let mut session = crate::tool::start(&["-qp", &pid, "-n", script]);
        crate::tool::printed(&mut session);
        process.stdin.as_mut().unwrap().write_all(b".").unwrap();
        assert_eq!(crate::usdt::line(&mut process), "done", "{what}");
        drop(process.stdin.take());
        let o = finish(session).code(0);
        assert_eq!(o.last_number(), 100, "{what} {o:?}");
        assert_eq!(process.wait().unwrap().code(), Some(0), "{what}");
    }
    Pass
}

/// The process that dtrace has created.
fn child_of(pid: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    children
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .next()
}

/// dtrace is killed at another moment each time, most often while its target maps the memory. A
/// target that has not begun ends with it; one that has begun runs to its end, and has the mask of
/// signals that it was started with.
fn no_target_is_harmed_by_the_death_of_dtrace_while_it_makes_the_memory() -> Verdict {
    use std::time::{Duration, Instant};
    let rounds: u32 = std::env::var("DTRACE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let dir = Cores(std::env::temp_dir().join(format!("dtrace-killed-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).unwrap();
    let command = workload("says-its-mask", 1);
    let words = ["-q", "-x", "postmortem=16k", "-c", &command, "-n", "END { exit(0); }"];
    let mut mapped = 0;
    for round in 0..rounds {
        let mut session = dir.start(&words);
        let mut target = None;
        testing::eventually("the target", testing::HANG_LIMIT, || {
            target = child_of(session.id());
            target.is_some() || session.try_wait().unwrap().is_some()
        });
        let Some(target) = target else { continue };
        // The exec and the mmap take about a millisecond; the rest of the start takes tens of them.
        let wait = Duration::from_micros(u64::from(match round % 4 {
            3 => round * 7919 % 60_000,
            _ => round * 7919 % 2_000,
        }));
        let begun = Instant::now();
        while begun.elapsed() < wait {
            std::hint::spin_loop();
        }
        let maps = std::fs::read_to_string(format!("/proc/{target}/maps")).unwrap_or_default();
        mapped += u32::from(maps.lines().any(|line| is_memory(line, 16 << 10)));
        session.kill().unwrap();
        let _ = session.wait();
        testing::eventually("the end of the target", testing::HANG_LIMIT, || {
            !std::path::Path::new(&format!("/proc/{target}")).exists() || is_zombie(target)
        });
    }
    let all = std::fs::read_dir(&dir.0).unwrap().map(|entry| entry.unwrap().path());
    for path in all {
        assert_eq!(std::fs::read_to_string(path).unwrap(), "begun 0000000000000000\ndone\n");
    }
    assert!(mapped > 0, "no kill came behind the mmap");
    Pass
}

fn is_memory(line: &str, size: u64) -> bool {
    let Some((range, rest)) = line.split_once(' ') else { return false };
    let Some((start, end)) = range.split_once('-') else { return false };
    let at = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    rest.starts_with("rw-p") && rest.trim_end().ends_with(" 0") && at(end) - at(start) == size
}

fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

fn postmortem_without_a_process_that_is_held_is_refused() -> Verdict {
    let o = dtrace(&["-x", "postmortem=1m", "-n", "BEGIN { exit(0); }"]).code(1);
    let reason =
        "failed to set option 'postmortem': it needs a process that is held when a signal ends it: -c";
    assert!(o.err.contains(reason), "{}", o.err);
    let o =
        dtrace(&["-x", "postmortem=1m", "-x", "bufpolicy=ring", "-c", "true", "-n", "BEGIN { exit(0); }"])
            .code(1);
    assert!(o.err.contains("bufpolicy=fill and ring do not"), "{}", o.err);
    let o = dtrace(&["-x", "postmortem=1m", "-c", "prlimit --core=0 true", "-n", "END { trace(1); }"]);
    assert_eq!(o.code, Some(0), "{}", o.err);
    Pass
}

fn a_file_without_records_is_refused_with_the_reason() -> Verdict {
    let o = dtrace(&["-x", "errtags", "--postmortem", "/bin/true"]).code(1);
    let reason =
        "dtrace: failed to read core file '/bin/true': [D_CORE_FORMAT] it is no core file: it is a program";
    assert!(o.err.contains(reason), "{}", o.err);
    let o = dtrace(&["--postmortem", "/dev/zero"]).code(1);
    assert!(o.err.contains("it is no core file: it is no regular file"), "{}", o.err);
    let o = dtrace(&["--postmortem", "/nonexistent"]).code(1);
    assert!(o.err.contains("No such file"), "{}", o.err);
    let o = dtrace(&["--postmortem", "core", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("leave out the programs"), "{}", o.err);
    let cores = match cores("plain") {
        Ok(cores) => cores,
        Err(skip) => return skip,
    };
    let o = cores.run(&["-qc", &workload("abort", 1), "-n", "END { trace(1); }"]);
    let o = dtrace(&["-x", "errtags", "--postmortem", &cores.core(&o)]).code(1);
    assert!(o.err.contains("[D_CORE_NONE] it has no records of a session"), "{}", o.err);
    Pass
}
