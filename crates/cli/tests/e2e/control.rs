//! Control characters in names that other processes choose, printed to pipes and to terminals.
//! Files that a session creates and reads.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{binary, dtrace, pseudo_terminal, workload};

tests! {
    names_of_processes_are_escaped names_with_characters_for_layout_are_escaped strings_are_escaped_at_a_terminal messages_escape_what_they_quote
    a_fifo_without_a_reader_does_not_block headers_come_from_the_script_s_directory
    a_preprocessor_in_the_current_directory_is_not_run
}

/// The calls of a process whose name contains control characters, with each way to print the name.
const NAMES: &str = "syscall::getppid:entry /pid == $target/ { @[execname] = count(); trace(execname); \
     printf(\"|%s|\", execname); @s[strjoin(execname, \"\")] = count(); }";

/// A row of an aggregation. Columns are bytes.
fn row(key: &str) -> String {
    format!("  {key}{} {:>16}\n", " ".repeat(50 - key.len()), 1)
}

fn names_of_processes_are_escaped() -> Verdict {
    let o = dtrace(&["-q", "-c", &workload("renamed", 1), "-n", NAMES]).code(0);
    // Data that the program prints is not changed when it is written to a pipe.
    let (name, data) = ("\\033[31m\\nx\\302\\233", "\x1b[31m\nx\u{9b}");
    assert_eq!(o.out, format!("{name}|{data}|\n{}{}", row(name), row(data)), "{o:?}");
    Pass
}

fn names_with_characters_for_layout_are_escaped() -> Verdict {
    let o = dtrace(&["-q", "-c", &workload("marked", 1), "-n", NAMES]).code(0);
    let name = "a\\342\\200\\256b\\357\\273\\277c\\363\\240\\201\\201";
    let data = "a\u{202e}b\u{feff}c\u{e0041}";
    assert_eq!(o.out, format!("{name}|{data}|\n{}{}", row(name), row(data)), "{o:?}");
    let o = dtrace(&["-q", "--format", "json", "-c", &workload("marked", 1), "-n", NAMES]).code(0);
    assert!(o.out.is_ascii() && o.out.contains("a\\u202eb\\ufeffc\\udb40\\udc41"), "{o:?}");
    let o = dtrace(&["-c", &format!("/nonexistent/{data}"), "-n", "BEGIN"]).code(1);
    assert!(o.err.contains(name) && o.err.is_ascii(), "{o:?}");
    Pass
}

/// Both ends of a pseudo-terminal in raw mode.
fn terminal() -> Option<(File, OwnedFd)> {
    let (ours, theirs) = pseudo_terminal(24, 80)?;
    let fd = theirs.as_raw_fd();
    // SAFETY: the C library fills a termios of ours, and reads it.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        libc::tcgetattr(fd, &raw mut settings);
        libc::cfmakeraw(&raw mut settings);
        libc::tcsetattr(fd, libc::TCSANOW, &raw const settings);
    }
    Some((ours, theirs))
}

fn strings_are_escaped_at_a_terminal() -> Verdict {
    let Some((mut ours, theirs)) = terminal() else { return Skip("no pseudo-terminal".into()) };
    let mut command = Command::new(binary());
    command.args(["-q", "-c", &workload("renamed", 1), "-n", NAMES]);
    command.args(["-n", "BEGIN { printf(\"\\033[1m%s\\t\\n\", \"a\\033b\\tc\"); }"]);
    command.stdin(Stdio::null()).stdout(Stdio::from(theirs)).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    let reader = std::thread::spawn(move || {
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        // Closing a pseudo-terminal is reported as an error.
        while let Ok(length @ 1..) = ours.read(&mut part) {
            all.extend_from_slice(&part[..length]);
        }
        String::from_utf8_lossy(&all).into_owned()
    });
    assert!(child.wait().unwrap().success());
    let out = reader.join().unwrap();
    let name = "\\033[31m\\nx\\302\\233";
    let data = "\\033[31m\nx\\302\\233";
    // The escape in the format belongs to the program.
    let expected = format!("\x1b[1ma\\033b\tc\t\n{name}|{data}|\n{}{}", row(name), row(data));
    assert_eq!(out, expected);
    Pass
}

fn messages_escape_what_they_quote() -> Verdict {
    let shown = "\\033[31m\\nx";
    let o = dtrace(&["-s", "/nonexistent/\x1b[31m\nx"]).code(1);
    assert_eq!(o.err, format!("dtrace: failed to open /nonexistent/{shown}: No such file or directory\n"));
    let o = dtrace(&["-o", "/nonexistent/\x1b[31m\nx", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains(&format!("output file '/nonexistent/{shown}': ")), "{o:?}");
    let o = dtrace(&["-c", "/nonexistent/\x1b[31mx", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("failed to execute /nonexistent/\\033[31mx: "), "{o:?}");
    for words in
        [&["-n", "BEGIN { trace(\"\x1b\"x); }"][..], &["-n", "no\x1b:::"], &["-x", "\x1b=1", "-n", "BEGIN"]]
    {
        let o = dtrace(words).code(1);
        assert!(o.err.contains("\\033") && !o.err.contains('\x1b'), "{o:?}");
    }
    let script = "BEGIN { freopen(\"/nosuch/%s\", \"\x1b\"); exit(0); }";
    let o = dtrace(&["-wqn", script]).code(0);
    assert!(o.err.contains("couldn't freopen() \"/nosuch/\\033\": "), "{o:?}");
    Pass
}

/// A directory for one test.
fn place(test: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("e2e-control-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn a_fifo_without_a_reader_does_not_block() -> Verdict {
    let dir = place("fifo");
    let path = dir.join("fifo");
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the string outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let script = format!("BEGIN {{ freopen(\"{}\"); printf(\"on\\n\"); exit(0); }}", path.display());
    let o = dtrace(&["-wqn", &script]).code(0);
    std::fs::remove_dir_all(dir).unwrap();
    assert!(o.err.ends_with(": no process has it open for reading\n"), "{o:?}");
    assert_eq!(o.out, "on\n\n");
    Pass
}

fn has_preprocessor() -> bool {
    Command::new("cpp").arg("--version").output().is_ok()
}

fn headers_come_from_the_script_s_directory() -> Verdict {
    if !has_preprocessor() {
        return Skip("this machine has no C preprocessor".into());
    }
    let dir = place("headers");
    let (scripts, current) = (dir.join("scripts"), dir.join("current"));
    for dir in [&scripts, &current] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(scripts.join("x.d"), "#include \"x.h\"\nBEGIN { printf(\"%d\\n\", X); exit(0); }\n")
        .unwrap();
    std::fs::write(current.join("x.h"), "#define X 2\n").unwrap();
    let run = || {
        let mut command = Command::new(binary());
        command.args(["-q", "-C", "-s", "../scripts/x.d"]).current_dir(&current).stdin(Stdio::null());
        let o = command.output().unwrap();
        (o.status.code(), String::from_utf8(o.stdout).unwrap(), String::from_utf8(o.stderr).unwrap())
    };
    let (code, _, said) = run();
    assert!(code == Some(1) && said.contains("x.h: No such file or directory"), "{said}");
    std::fs::write(scripts.join("x.h"), "#define X 1\n").unwrap();
    let (code, out, said) = run();
    std::fs::remove_dir_all(dir).unwrap();
    assert_eq!((code, out.as_str()), (Some(0), "1\n\n"), "{said}");
    Pass
}

fn a_preprocessor_in_the_current_directory_is_not_run() -> Verdict {
    use std::os::unix::fs::PermissionsExt;
    if !has_preprocessor() {
        return Skip("this machine has no C preprocessor".into());
    }
    let dir = place("cpp");
    std::fs::write(dir.join("cpp"), "#!/bin/sh\ntouch run\n").unwrap();
    std::fs::set_permissions(dir.join("cpp"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(dir.join("x.d"), "BEGIN { exit(0); }\n").unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(binary());
    command.args(["-q", "-C", "-s", "x.d"]).current_dir(&dir).env("PATH", format!(".::{path}"));
    let o = command.stdin(Stdio::null()).output().unwrap();
    let run = dir.join("run").exists();
    std::fs::remove_dir_all(dir).unwrap();
    assert!(o.status.success() && !run, "{o:?}");
    Pass
}
