//! Targets: -c and -p.

use std::time::{Duration, Instant};

use crate::Verdict::{self, Pass};
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start};

tests! {
    a_command_is_traced_from_its_start the_target_macro_is_the_pid_of_the_command
    a_missing_command_is_an_error a_missing_process_is_an_error
    the_session_ends_when_its_process_ends a_killed_tracer_leaves_the_target_running
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
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let state = || stat().rsplit(')').next().unwrap().trim().chars().next();
        // The target may be about to sleep.
        let begun = Instant::now();
        while state() != Some('S') && begun.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (stat, state) = (stat(), state());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state, Some('S'), "{stat}");
    }
    Pass
}
