//! -c and -p.

use std::time::Duration;

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, finish, settle, signal, start, workload};

tests! {
    a_command_is_traced_from_its_start target_is_its_pid a_missing_command a_missing_process follows_a_process
    a_killed_tracer_leaves_the_target_running
}

fn a_command_is_traced_from_its_start() -> Verdict {
    let o =
        dtrace(&["-q", "-c", "ls /", "-n", "syscall:::entry /pid == $target/ { @[probefunc] = count(); }"])
            .code(0);
    // The dynamic linker's first steps are seen; the exec that stopped it is not.
    assert!(o.out.contains("openat"), "{o:?}");
    assert!(!o.out.contains("execve"), "{o:?}");
    Pass
}

fn target_is_its_pid() -> Verdict {
    let o = dtrace(&["-q", "-c", "true", "-n", "BEGIN { printf(\"%d\\n\", $target); }"]).code(0);
    assert!(o.out.lines().next().unwrap().parse::<i32>().unwrap() > 1, "{o:?}");
    let o = dtrace(&["-qn", "BEGIN { printf(\"%d\\n\", $target); exit(0); }"]).code(0);
    assert_eq!(o.out, "0\n\n");
    Pass
}

fn a_missing_command() -> Verdict {
    let o = dtrace(&["-c", "/nonexistent/command", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("failed to execute /nonexistent/command: No such file or directory"), "{o:?}");
    Pass
}

fn a_missing_process() -> Verdict {
    let o = dtrace(&["-p", "1073741808", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("failed to grab pid 1073741808"), "{o:?}");
    Pass
}

fn follows_a_process() -> Verdict {
    let ms = if std::env::var_os("DTRACE_IN_VM").is_some() { 15000 } else { 1500 };
    let words = workload("sleep", ms);
    let mut parts = words.split(' ');
    let mut child = std::process::Command::new(parts.next().unwrap()).args(parts).spawn().unwrap();
    let pid = child.id().to_string();
    let o = dtrace(&["-q", "-p", &pid, "-n", "END { printf(\"%d\\n\", $target); }"]).code(0);
    child.wait().unwrap();
    assert_eq!(o.out.lines().next(), Some(pid.as_str()), "{o:?}");
    Pass
}

fn a_killed_tracer_leaves_the_target_running() -> Verdict {
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let pid = child.id().to_string();
    let tracer = start(&["-q", "-p", &pid, "-n", "syscall:::entry /pid == $target/ { @ = count(); }"]);
    settle();
    signal(&tracer, libc::SIGKILL);
    let _ = finish(tracer, Duration::from_secs(10));
    std::thread::sleep(Duration::from_millis(100));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let state = stat.rsplit(')').next().unwrap().trim().chars().next();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(state, Some('S'), "{stat}");
    Pass
}
