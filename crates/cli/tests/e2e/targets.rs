//! Targets: -c and -p.

use std::process::{Child, Command};

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{LIMIT, Output, dtrace, finish, printed, signal, start, under, workload};

tests! {
    a_command_is_traced_from_its_start the_target_macro_is_the_pid_of_the_command
    a_missing_command_is_an_error a_missing_process_is_an_error
    the_session_ends_when_its_process_ends a_killed_tracer_leaves_the_target_running a_command_ends_with_its_session_and_other_targets_go_on
    the_first_of_several_targets_is_the_target_macro the_session_ends_with_the_last_of_its_targets
    two_hundred_processes_are_targets_with_few_descriptors commands_have_the_limits_that_dtrace_was_given
    a_process_that_cannot_be_a_target_is_refused_with_the_reason
    targets_in_a_pid_namespace_are_those_of_its_numbers a_target_that_ignores_an_interrupt_runs_on
    a_command_that_leaves_a_process_behind_ends_the_session a_command_has_words_and_the_standard_input
}

fn a_command_is_traced_from_its_start() -> Verdict {
    let script = "syscall:::entry /pid == $target/ { @[probefunc] = count(); }";
    let o = dtrace(&["-x", "evaltime=exec", "-q", "-c", "ls /", "-n", script]).code(0);
    // The dynamic linker's first calls are traced. The exec at which the target was stopped is not.
    assert!(o.out.contains("openat"), "{o:?}");
    assert!(!o.out.contains("execve"), "{o:?}");
    Pass
}

fn the_target_macro_is_the_pid_of_the_command() -> Verdict {
    let o = dtrace(&["-q", "-c", "true", "-n", "BEGIN { printf(\"%d\\n\", $target); }"]).code(0);
    assert!(o.out.lines().next().unwrap().parse::<i32>().unwrap() > 1, "{o:?}");
    let o = dtrace(&["-qn", "BEGIN { printf(\"%d\\n\", $target); exit(0); }"]).code(0);
    assert_eq!(o.out, "0\n\n");
    Pass
}

fn a_missing_command_is_an_error() -> Verdict {
    let o = dtrace(&["-c", "/nonexistent/command", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("failed to execute /nonexistent/command: No such file or directory"), "{o:?}");
    Pass
}

fn a_missing_process_is_an_error() -> Verdict {
    let o = dtrace(&["-p", "1073741808", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("failed to grab pid 1073741808"), "{o:?}");
    Pass
}

fn the_session_ends_when_its_process_ends() -> Verdict {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id().to_string();
    let script = "BEGIN { printf(\"begun\\n\"); } END { printf(\"%d\\n\", $target); }";
    // Blanks before the number, as some programs print it.
    let mut tracer = start(&["-q", "-p", &format!("  {pid}"), "-n", script]);
    printed(&mut tracer);
    let follows = tracer.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    let o = finish(tracer).code(0);
    assert!(follows && o.out.starts_with(&format!("begun\n{pid}\n")), "{o:?}");
    Pass
}

fn a_killed_tracer_leaves_the_target_running() -> Verdict {
    // When addresses are symbolized, the target stays attached.
    for value in ["count()", "count(); @s[ustack()] = count()"] {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id().to_string();
        let script =
            format!("BEGIN {{ printf(\"begun\\n\"); }} syscall:::entry /pid == $target/ {{ @ = {value}; }}");
        let mut tracer = start(&["-q", "-p", &pid, "-n", &script]);
        printed(&mut tracer);
        signal(&tracer, libc::SIGKILL);
        let _ = finish(tracer);
        // The target may be about to sleep.
        wait_for_state(&pid, 'S');
        child.kill().unwrap();
        child.wait().unwrap();
    }
    Pass
}

/// A command was started for its session; a process that ran before was not.
fn a_command_ends_with_its_session_and_other_targets_go_on() -> Verdict {
    // When addresses are symbolized, the targets stay attached.
    for value in ["count()", "count(); @s[ustack()] = count()"] {
        let sleepers = Sleepers::new(1);
        let other = sleepers.pid(0);
        let script = format!(
            "BEGIN {{ printf(\"%d\\n\", $target); }} syscall:::entry /pid == $target/ {{ @ = {value}; }} \
             syscall::clock_nanosleep:entry /pid == $target/ {{ exit(3); }}"
        );
        let o = dtrace(&["-q", "-c", "sleep 1000", "-p", &other, "-n", &script]).code(3);
        let command: i32 = o.out.lines().next().and_then(|pid| pid.parse().ok()).unwrap();
        eventually("the end of the command", LIMIT, || {
            // SAFETY: no signal is sent.
            unsafe { libc::kill(command, 0) == -1 }
        });
        wait_for_state(&other, 'S');
    }
    Pass
}

/// Processes that sleep, which are killed at the end.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn new(count: usize) -> Sleepers {
        Sleepers((0..count).map(|_| Command::new("sleep").arg("1000").spawn().unwrap()).collect())
    }

    fn pid(&self, at: usize) -> String {
        self.0[at].id().to_string()
    }

    fn kill(&mut self) {
        for mut child in self.0.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until a process is in a state.
pub(crate) fn wait_for_state(pid: &str, wanted: char) {
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    eventually(format_args!("state {wanted} of {pid}"), LIMIT, || {
        let stat = stat();
        let has = stat.rsplit(')').next().unwrap().trim().starts_with(wanted);
        if has { Ok(()) } else { Err(stat) }
    });
}

fn the_first_of_several_targets_is_the_target_macro() -> Verdict {
    let (three, four) = (workload("getppid", 3), workload("getppid", 4));
    let script = "syscall::getppid:entry /progenyof($target)/ { @a = count(); } \
                  syscall::getppid:entry /ppid == $pid/ { @b[pid == $target] = count(); } \
                  END { printa(\"%@d\\n\", @a); printa(\"%d %@d\\n\", @b); }";
    let o = dtrace(&["-q", "-c", &three, "-c", &four, "-n", script]).code(0);
    // The descendants of the other targets are not those of the first one.
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["3", "1", "3", "0", "4"], "{o:?}");
    // In the order of the command line, also where both options are used.
    let sleeper = Sleepers::new(1);
    let script = "BEGIN { printf(\"%d\\n\", $target); exit(0); }";
    let o = dtrace(&["-q", "-p", &sleeper.pid(0), "-c", &three, "-n", script]).code(0);
    assert_eq!(o.out.trim(), sleeper.pid(0), "{o:?}");
    let o = dtrace(&["-q", "-c", &three, "-p", &sleeper.pid(0), "-n", script]).code(0);
    assert_ne!(o.out.trim(), sleeper.pid(0), "{o:?}");
    Pass
}

fn the_session_ends_with_the_last_of_its_targets() -> Verdict {
    let mut sleepers = Sleepers::new(1);
    let pid = sleepers.pid(0);
    let script = "BEGIN { printf(\"begun\\n\"); } tick-10ms /++n == 30/ { printf(\"later\\n\"); }";
    // The process is named twice, and is one target.
    let words = ["-c", "true", "-p", &pid, "-p", &pid, "-c", "false", "-qn", script];
    let mut tracer = start(&words);
    crate::tool::printed_more(&mut tracer, 6);
    let follows = tracer.try_wait().unwrap().is_none();
    sleepers.kill();
    let o = finish(tracer).code(0);
    assert!(follows && o.out.starts_with("begun\nlater\n"), "{o:?}");
    let words = ["-c", "true", "-p", &pid, "-n", "BEGIN"];
    assert!(dtrace(&words).code(1).err.contains(&format!("failed to grab pid {pid}: No such process")));
    Pass
}

fn two_hundred_processes_are_targets_with_few_descriptors() -> Verdict {
    let mut sleepers = Sleepers::new(200);
    let pids: Vec<String> = (0..200).map(|at| sleepers.pid(at)).collect();
    for value in ["1", "ustack()"] {
        let script = format!(
            "BEGIN {{ printf(\"begun\\n\"); }} syscall::exit_group:entry /pid == $target/ {{ trace({value}); }}"
        );
        let mut words: Vec<&str> = pids.iter().flat_map(|pid| ["-p", pid]).collect();
        words.extend(["-n", &script]);
        let shell = "ulimit -Sn 256; exec \"$0\" \"$@\"";
        let mut tracer = Command::new("sh");
        tracer.args(["-c", shell]).arg(crate::tool::binary()).args(&words);
        tracer.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        let mut tracer = tracer.stderr(std::process::Stdio::piped()).spawn().unwrap();
        // The header comes first.
        crate::tool::printed_more(&mut tracer, 60);
        pids.iter().for_each(|pid| wait_for_state(pid, 'S'));
        if value != "1" {
            sleepers.kill();
        } else {
            signal(&tracer, libc::SIGINT);
        }
        let o = finish(tracer).code(0);
        let ended = pids.iter().filter(|pid| o.err.contains(&format!("pid {pid} has exited"))).count();
        assert_eq!(ended, if value == "1" { 0 } else { 200 }, "{o:?}");
    }
    Pass
}

fn commands_have_the_limits_that_dtrace_was_given() -> Verdict {
    let script = std::env::temp_dir().join(format!("dt-limit-{}", std::process::id()));
    std::fs::write(&script, "ulimit -Sn\nulimit -Hn\n").unwrap();
    let command = format!("sh {}", script.display());
    let wrapper = ["sh", "-c", "ulimit -Sn 300; ulimit -Hn 4000; exec \"$0\" \"$@\""];
    let seen = |words: &[&str]| under(&wrapper, words).unwrap().code(0);
    let o = seen(&["-qc", &command, "-n", "BEGIN"]);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["300", "4000"], "{o:?}");
    let o = seen(&["-wqn", &format!("BEGIN {{ system(\"{command}\"); exit(0); }}")]);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["300", "4000"], "{o:?}");
    std::fs::remove_file(script).unwrap();
    Pass
}

#[track_caller]
fn refused(pid: &str, why: &str) {
    let o = dtrace(&["-p", pid, "-n", "BEGIN"]).code(1);
    assert_eq!(o.err, format!("dtrace: failed to grab pid {pid}: {why}\n"));
}

fn a_process_that_cannot_be_a_target_is_refused_with_the_reason() -> Verdict {
    let mut zombie = Command::new("true").spawn().unwrap();
    wait_for_state(&zombie.id().to_string(), 'Z');
    refused(&zombie.id().to_string(), "zombie process");
    zombie.wait().unwrap();
    refused(&zombie.id().to_string(), "No such process");
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (send, thread) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: no arguments.
        send.send(unsafe { libc::gettid() }).unwrap();
        _ = ended.recv();
    });
    let me = std::process::id();
    refused(&thread.recv().unwrap().to_string(), &format!("it is a thread of pid {me}"));
    drop(end);
    // A session that names addresses stays attached.
    let sleeper = Sleepers::new(1);
    let script = "BEGIN { printf(\"begun\\n\"); } syscall::exit_group:entry { @[ustack()] = count(); }";
    let mut tracer = start(&["-qp", &sleeper.pid(0), "-n", script]);
    printed(&mut tracer);
    wait_for_state(&sleeper.pid(0), 'S');
    refused(&sleeper.pid(0), &format!("process is traced by pid {}", tracer.id()));
    signal(&tracer, libc::SIGINT);
    finish(tracer).code(0);
    dtrace(&["-qp", &sleeper.pid(0), "-n", "BEGIN { exit(0); }"]).code(0);
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        refused("2", "system process");
    }
    Pass
}

/// Runs a shell script as the first process of a pid namespace, with `dtrace` in `$0`.
pub(crate) fn in_namespace(script: &str) -> Option<Output> {
    let words = ["--pid", "--fork", "--mount-proc", "sh", "-c", script];
    let child = Command::new("unshare")
        .args(words)
        .arg(crate::tool::binary())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    Some(finish(child.ok()?)).filter(|o| !o.err.contains("unshare:"))
}

fn targets_in_a_pid_namespace_are_those_of_its_numbers() -> Verdict {
    // The first process of the namespace.
    let Some(o) = in_namespace("\"$0\" -qp 1 -n 'BEGIN { trace($target); exit(0); }'; echo $?") else {
        return Skip("no pid namespaces".into());
    };
    assert_eq!(o.code(0).out.split_whitespace().collect::<Vec<_>>(), ["1", "0"]);
    // One outside of it.
    let outside = std::process::id();
    let o = in_namespace(&format!("\"$0\" -qp {outside} -n BEGIN; echo $?")).unwrap().code(0);
    assert_eq!(
        (&*o.out, &*o.err),
        ("1\n", &*format!("dtrace: failed to grab pid {outside}: No such process\n"))
    );
    // From outside it is a process like any other.
    let mut inside = Command::new("unshare");
    let mut inside = inside.args(["--pid", "--fork", "--kill-child", "sleep", "1000"]).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", inside.id());
    let pid = eventually("the process inside", LIMIT, || {
        let list = std::fs::read_to_string(&children).unwrap();
        Some(list.trim().to_string()).filter(|pid| !pid.is_empty())
    });
    let o = dtrace(&["-qp", &pid, "-n", "BEGIN { trace($target); exit(0); }"]).code(0);
    inside.kill().unwrap();
    inside.wait().unwrap();
    assert_eq!(o.out.trim(), pid);
    Pass
}

fn a_target_that_ignores_an_interrupt_runs_on() -> Verdict {
    let mut child = Command::new("sh").args(["-c", "trap '' INT; exec sleep 1000"]).spawn().unwrap();
    let pid = child.id().to_string();
    let script = "BEGIN { printf(\"begun\\n\"); } syscall::exit_group:entry { @[ustack()] = count(); }";
    let mut tracer = start(&["-qp", &pid, "-n", script]);
    printed(&mut tracer);
    // Both get it, as from a terminal.
    // SAFETY: a child that was not reaped.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    signal(&tracer, libc::SIGINT);
    finish(tracer).code(0);
    wait_for_state(&pid, 'S');
    child.kill().unwrap();
    child.wait().unwrap();
    Pass
}

fn a_command_that_leaves_a_process_behind_ends_the_session() -> Verdict {
    let script = "syscall::getppid:entry /progenyof($target)/ { @ = count(); }";
    let o = dtrace(&["-c", "setsid --fork sleep 2", "-n", script]).code(0);
    assert!(o.err.contains(" has exited\n") && !o.err.contains("status"), "{o:?}");
    Pass
}

fn a_command_has_words_and_the_standard_input() -> Verdict {
    // No shell and no quotes, as in the original.
    let o = dtrace(&["-qc", "echo  'a  b' \"$HOME\" ; \tc", "-n", "BEGIN"]).code(0);
    assert_eq!(o.out, "'a b' \"$HOME\" ; c\n\n");
    let shell = ["sh", "-c", "echo of the input | \"$0\" \"$@\""];
    let o = under(&shell, &["-qc", "cat", "-n", "BEGIN"]).unwrap().code(0);
    assert_eq!(o.out, "of the input\n\n");
    // The status of the command is told, and is not that of dtrace.
    let o = dtrace(&["-c", "false", "-n", "BEGIN"]).code(0);
    assert!(o.err.contains(" exited with status 1\n"), "{o:?}");
    let o = dtrace(&["-c", "/", "-n", "BEGIN"]).code(1);
    assert_eq!(o.err, "dtrace: failed to execute /: Permission denied\n");
    Pass
}
