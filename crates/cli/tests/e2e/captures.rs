//! Captures: what a replay prints is what a session has printed.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use testing::dir::Dir;

use crate::Verdict::{self, Pass};
use crate::tool::{Output, binary, dtrace, finish, workload};

tests! {
    a_replay_prints_paths_of_returns_as_a_session_does
    a_replay_prints_calls_and_bytes_as_a_session_does
    a_replay_prints_programs_that_are_executed_as_a_session_does
    a_replay_prints_memory_of_the_kernel_and_of_a_process_as_a_session_does
    a_replay_prints_faults_and_error_as_a_session_does
    a_replay_prints_stacks_and_names_of_addresses_as_a_session_does
    a_replay_prints_an_exit_as_a_session_does
    a_replay_prints_variables_of_threads_as_a_session_does
    a_replay_needs_no_privilege_and_writes_every_format
    a_capture_is_private_and_replaces_no_file another_program_is_asked_of_a_capture
    a_capture_goes_through_a_pipe damaged_captures_are_read_around_the_damage
    a_capture_that_does_not_start_leaves_no_file what_a_file_says_forges_no_lines
    options_that_go_with_no_capture_are_refused what_cannot_be_captured_is_refused_before_anything_is_traced
}

/// A directory with a script, and the words that capture it.
struct Script {
    dir: Dir,
}

impl Script {
    fn new(text: &str) -> Script {
        let dir = Dir::new("captures");
        std::fs::write(dir.join("script.d"), text).unwrap();
        std::fs::write(dir.join("job.sh"), JOB).unwrap();
        Script { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// The words that capture the script, and more of them.
    fn captured(&self, more: &[&str]) -> Output {
        let (file, script) = (self.path("file"), self.path("script.d"));
        let words = ["--capture", &*file, "--capture-for", &*script];
        dtrace(&[&words[..], more].concat())
    }

    /// Captures the script over a command.
    #[track_caller]
    fn capture(&self, command: &str) -> Output {
        let o = self.captured(&["-c", command]).code(0);
        assert!(o.out.is_empty() && o.err.contains("captured "), "{o:?}");
        assert!(!o.err.contains("drop"), "{o:?}");
        o
    }

    #[track_caller]
    fn replay(&self) -> Output {
        dtrace(&["-q", "--replay", &self.path("file"), "-s", &self.path("script.d")])
    }
}

/// Scripts whose output is the same each time that a command runs. Each is a test of its own: a capture
/// records the machine, which takes an emulated CPU a minute.
macro_rules! replays {
    ($(fn $name:ident() $text:expr;)*) => {
        $(fn $name() -> Verdict {
            replays_as_a_session($text)
        })*
    };
}

replays! {
    // Of a failure the path is read when the call returns.
    fn a_replay_prints_paths_of_returns_as_a_session_does()
    "syscall::openat:entry /pid == $target/ { self->path = arg1; }
     syscall::openat:return /self->path/ { printf(\"%s %s %d\\n\", execname, copyinstr(self->path), errno); self->path = 0; }";
    fn a_replay_prints_calls_and_bytes_as_a_session_does()
    "syscall::read:return, syscall::write:return, syscall::close:return
     /pid == $target/ { @calls[probefunc] = count(); @bytes[probefunc] = quantize(arg0); }";
    fn a_replay_prints_programs_that_are_executed_as_a_session_does()
    "proc:::exec-success /progenyof($target)/ { printf(\"%s|%s\\n\", execname, curpsinfo->pr_psargs); }";
    fn a_replay_prints_memory_of_the_kernel_and_of_a_process_as_a_session_does()
    "syscall::write:entry /pid == $target/ { trace(stringof(curthread->comm)); trace(fds[arg0].fi_oflags & 3); }
     syscall::write:entry /pid == $target && arg0 == 1/ { tracemem(copyin(arg1, arg2 < 100 ? arg2 : 100), 16); }";
    // A fault is reported; its clause ends and ERROR fires.
    fn a_replay_prints_faults_and_error_as_a_session_does()
    "int n;
     syscall::openat:return /pid == $target/ { n++; trace(execname); this->bad = copyinstr(8); trace(n); }
     ERROR { printf(\"ERROR %d %x\\n\", arg4, arg5); }
     END { printf(\"%d calls\\n\", n); }";
    // Names are those that the addresses had.
    fn a_replay_prints_stacks_and_names_of_addresses_as_a_session_does()
    "syscall::openat:entry /pid == $target && execname == \"cat\"/
     { @[stack(5)] = count(); @[ustack(6)] = count(); @[func(caller), ufunc(ucaller), umod(ucaller)] = count(); }
     syscall::openat:return /pid == $target && execname == \"cat\" && errno/
     { printf(\"%a %d\", caller, stackdepth); stack(); ustack(); usym(ucaller); }";
    fn a_replay_prints_an_exit_as_a_session_does()
    "BEGIN { printf(\"begin\\n\"); }
     syscall::exit_group:entry /pid == $target/ { exit(3); }
     END { printf(\"end\\n\"); }";
    fn a_replay_prints_variables_of_threads_as_a_session_does()
    "syscall:::entry /pid == $target/ { self->calls++; @[probefunc] = count(); }
     syscall::exit_group:entry /pid == $target/ { printf(\"%d\\n\", self->calls); }";
}

/// What is traced: a process that executes a program, and another in its place.
const JOB: &str = "/bin/true\nexec cat /nonexistent/of/a/capture /etc/passwd\n";

#[track_caller]
fn replays_as_a_session(text: &str) -> Verdict {
    let script = Script::new(text);
    let command = &format!("sh {}", script.path("job.sh"));
    let live = dtrace(&["-q", "-s", &script.path("script.d"), "-c", command]);
    let captured = script.captured(&["-q", "-c", command]);
    let replay = script.replay();
    // The command's own output is there when it runs.
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let printed = |o: &Output| o.out.replace(&passwd, "");
    assert_eq!(captured.code, live.code, "{text}: {captured:?}");
    assert_eq!(printed(&captured), "", "{text}: {captured:?}");
    assert_eq!(printed(&replay), printed(&live), "{text}: {replay:?} {live:?}");
    assert_eq!(replay.code, live.code, "{text}: {replay:?}");
    let reported = |o: &Output| {
        // Each engine numbers enabled probes in its own way.
        let known = |line: &str| line.split_once("(ID ").map(|(_, rest)| rest.to_owned());
        o.err.lines().filter(|line| line.contains("error on")).map(known).collect::<Vec<_>>()
    };
    assert_eq!(reported(&replay), reported(&live), "{text}");
    Pass
}

/// The path is read when the call returns: it is in memory then.
const OPENS: &str = "syscall::openat:entry /pid == $target/ { self->path = arg1; }
     syscall::openat:return /self->path/ { printf(\"%s %s\\n\", execname, copyinstr(self->path)); self->path = 0; }";

fn a_replay_needs_no_privilege_and_writes_every_format() -> Verdict {
    let script = Script::new(OPENS);
    script.capture("cat /dev/null");
    // Somebody else may read it.
    std::fs::set_permissions(script.path("file"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::set_permissions(&*script.dir, PermissionsExt::from_mode(0o755)).unwrap();
    let ask = |more: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["-q", "--replay", &script.path("file"), "-s", &script.path("script.d")]).args(more);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        finish(child.unwrap()).code(0)
    };
    let o = ask(&[]);
    assert!(o.out.contains("cat ") && o.err.is_empty(), "{o:?}");
    let lines = o.out.lines().filter(|line| line.starts_with("cat ")).count();
    let json = ask(&["--format", "json"]);
    assert_eq!(
        json.out.lines().filter(|line| line.contains("\"copyinstr(self->path)\"")).count(),
        lines,
        "{json:?}"
    );
    Pass
}

fn a_capture_is_private_and_replaces_no_file() -> Verdict {
    let script = Script::new(OPENS);
    script.capture("cat /dev/null");
    let meta = std::fs::metadata(script.path("file")).unwrap();
    println!("{} bytes", meta.len());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let o = script.captured(&["-c", "true"]).code(1);
    assert!(o.err.contains("File exists"), "{o:?}");
    assert_eq!(std::fs::metadata(script.path("file")).unwrap().len(), meta.len());
    Pass
}

/// A user without privileges.
const NOBODY: u32 = 65534;

fn a_capture_that_does_not_start_leaves_no_file() -> Verdict {
    let script = Script::new("syscall::getppid:entry { @ = count(); }");
    std::fs::set_permissions(&*script.dir, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = Command::new(binary());
    command.args(["--capture", &script.path("file"), "--capture-for", &script.path("script.d")]);
    command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let o = finish(command.spawn().unwrap()).code(1);
    // It fails where the kernel is first asked for something.
    assert!(o.err.contains("matched 1 probe") && o.err.contains("requires additional privileges"), "{o:?}");
    assert!(!script.dir.join("file").exists(), "{o:?}");
    Pass
}

fn what_a_file_says_forges_no_lines() -> Verdict {
    let script = Script::new(&format!("{OPENS}\n/*\ndtrace: \u{1b}[2Jall is well */\n"));
    script.capture("cat /dev/null");
    let o = dtrace(&["--capture-info", &script.path("file")]).code(0);
    assert!(o.out.contains(r"    dtrace: \033[2Jall is well */"), "{o:?}");
    assert!(!o.out.lines().any(|line| line.starts_with("dtrace:")), "{o:?}");
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(o.out.lines().next().unwrap().contains(&format!(", on {}, Linux ", name.trim_end())), "{o:?}");
    Pass
}

fn another_program_is_asked_of_a_capture() -> Verdict {
    let script = Script::new(OPENS);
    script.capture("cat /dev/null");
    let file = script.path("file");
    let all = script.replay();
    let count = all.out.lines().filter(|line| line.starts_with("cat ")).count();
    assert!(count > 0, "{all:?}");
    let o = dtrace(&["-q", "--replay", &file, "-n", "syscall::openat:return { @ = count(); }"]).code(0);
    assert_eq!(o.last_number(), count as i64, "{o:?}");
    // What it reads beyond that is said, and not taken for something else.
    let o = dtrace(&["-q", "--replay", &file, "-n", "syscall::openat:return { @ = sum(uid); }"]).code(0);
    assert!(o.err.contains("not in the capture, and 0 or empty in this replay: uid"), "{o:?}");
    let o = dtrace(&["--replay", &file, "-n", "syscall::close:entry"]).code(1);
    assert!(o.err.contains(":close:entry is not in the capture"), "{o:?}");
    let o = dtrace(&["-w", "--replay", &file, "-n", "syscall::openat:return { stop(); }"]).code(1);
    assert!(o.err.contains("a replay performs no destructive actions"), "{o:?}");
    let o = dtrace(&["-l", "--replay", &file]).code(0);
    let row = o.out.lines().find(|line| line.ends_with(":openat:return")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some(&*count.to_string()), "{o:?}");
    let o = dtrace(&["--capture-info", &file]).code(0);
    assert!(
        o.out.contains(&format!("firings: {}\n", 2 * count)) && o.out.contains("copyinstr(self->path)"),
        "{o:?}"
    );
    Pass
}

fn a_capture_goes_through_a_pipe() -> Verdict {
    let script = Script::new("syscall::getppid:entry /pid == $target/ { @ = count(); }");
    let (bin, path) = (binary().display().to_string(), script.path("script.d"));
    let calls = workload("getppid", 100);
    let line = format!(
        "'{bin}' -q --capture - --capture-for '{path}' -c '{calls}' | tee '{}' | '{bin}' -q --replay - -s '{path}'",
        script.path("file")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let o = finish(shell.spawn().unwrap()).code(0);
    assert_eq!(o.last_number(), 100, "{o:?}");
    // The stream is the file.
    assert_eq!(script.replay().code(0).out, o.out);
    Pass
}

fn damaged_captures_are_read_around_the_damage() -> Verdict {
    let script = Script::new(OPENS);
    script.capture("cat /dev/null");
    let file = script.path("file");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let o = script.replay().code(0);
    assert!(o.out.contains("cat ") && o.err.contains("it was cut short"), "{o:?}");
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    std::fs::write(&file, &changed).unwrap();
    let o = script.replay().code(1);
    assert!(o.err.contains("the capture is damaged: the machine cannot be read"), "{o:?}");
    std::fs::write(&file, b"no capture").unwrap();
    let o = script.replay().code(1);
    assert!(o.err.contains("this is no capture: --capture writes one"), "{o:?}");
    Pass
}

fn options_that_go_with_no_capture_are_refused() -> Verdict {
    for (words, why) in [
        (&["--capture-for", "x"][..], "add --capture FILE"),
        (&["--capture", "x", "--capture-for", "x", "-n", "BEGIN"], "leave out -s, -n"),
        (&["--capture", "x", "--capture-for", "x", "-e"], "leave out -l and -e"),
        (&["--capture", "x", "--capture-for", "x", "--replay", "x"], "no other option"),
        (&["--replay", "x", "-n", "BEGIN", "-p", "1"], "leave out -c and -p"),
        (&["--replay", "/nonexistent", "-n", "BEGIN"], "failed to open /nonexistent"),
    ] {
        let o = dtrace(words).code(1);
        assert!(o.err.contains(why) && o.out.is_empty(), "{words:?}: {o:?}");
    }
    Pass
}

fn what_cannot_be_captured_is_refused_before_anything_is_traced() -> Verdict {
    for (text, why) in [
        ("syscall::openat:entry { jstack(); }", "jstack() cannot be captured yet"),
        ("syscall::openat:entry { printf(\"%A\", arg0); }", "%A cannot be captured yet"),
        ("syscall::openat:entry { stop(); }", "destructive actions cannot be captured"),
        ("pid$target:a.out:main:entry { trace(arg0); }", "probes in processes"),
    ] {
        let script = Script::new(text);
        let o = script.captured(&["-w", "-c", &workload("getppid", 1)]).code(1);
        assert!(o.err.contains(why), "{text}: {o:?}");
        assert!(!script.dir.join("file").exists(), "{text}");
    }
    Pass
}
