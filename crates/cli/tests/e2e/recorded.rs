//! Records of machines: `--record-system` writes one, and with `--system` `-e` and `-l` say for it
//! what they say on the machine itself.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use testing::dir::Dir;

use crate::Verdict::{self, Pass};
use crate::tool::{Output, binary, dtrace, finish};

tests! {
    a_list_for_a_record_is_that_of_its_machine compiling_for_a_record_says_what_it_says_on_its_machine
    tools_compile_for_a_record_as_on_its_machine a_record_is_asked_without_privilege
    a_record_is_small_private_and_tells_no_address damaged_and_foreign_records_are_refused
    what_would_trace_the_machine_of_a_record_is_refused a_record_of_a_program_is_smaller_and_says_the_same_of_it
}

/// A directory with the record of this machine.
fn record() -> (Dir, String) {
    let dir = Dir::new("recorded");
    let path = dir.join("machine").display().to_string();
    let o = dtrace(&["--record-system", &path]).code(0);
    assert_eq!(o.out, "", "{o:?}");
    (dir, path)
}

/// Whether the answer for the record is that of this machine: what is printed, in what order, and
/// the status.
#[track_caller]
fn same(path: &str, words: &[&str]) -> Output {
    let here = dtrace(words);
    let there = dtrace(&[&["--system", path], words].concat());
    let text = |o: &Output| (o.code, o.out.clone(), o.err.clone());
    if text(&here) != text(&there) {
        let lines = |o: &Output| o.out.lines().chain(o.err.lines()).map(String::from).collect::<Vec<_>>();
        let (here, there) = (lines(&here), lines(&there));
        let first = here.iter().zip(&there).find(|(a, b)| a != b);
        panic!("{words:?}: {} and {} lines, the first that differ: {first:?}", here.len(), there.len());
    }
    here
}

/// The words of a command with each of these after an option.
fn each<'a>(options: &'a str, option: &'a str, all: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(options).chain(all.iter().flat_map(|one| [option, one])).collect()
}

fn a_list_for_a_record_is_that_of_its_machine() -> Verdict {
    let (_dir, path) = record();
    // A list ends with an error where the kernel has no list of functions, so these are by
    // themselves.
    let all = ["dtrace", "profile", "cpc", "syscall", "sdt", "rawtp", "proc", "sched", "io", "tcp", "vminfo"];
    let o = same(&path, &each("-l", "-P", &all));
    assert!(o.out.lines().count() > 2000, "{o:?}");
    same(&path, &each("-l", "-P", &["fbt", "rawfbt"]));
    same(&path, &each("-lv", "-P", &["syscall", "sdt", "rawtp", "sched", "io", "profile"]));
    same(&path, &["-lvn", "fbt::vfs_*:"]);
    same(&path, &["-li", "1", "-i", "900", "-i", "1700"]);
    Pass
}

fn compiling_for_a_record_says_what_it_says_on_its_machine() -> Verdict {
    let (_dir, path) = record();
    // Errors of all programs are reported together, and what is said of programs without an error.
    let right = [
        "BEGIN { trace(curthread->pid); }",
        "syscall::openat:entry { trace(copyinstr(args[1])); }",
        "sched:::on-cpu { @[args[0]->pr_fname] = count(); }",
        "io:::start { @i = sum(args[0]->b_bcount); }",
        "rawtp:::sched_switch { trace(args[1]->comm); }",
        "sdt:::sched_switch { trace(args[3]); }",
        "profile-97 { @s[stack()] = count(); }",
        "tick-1s { trace(vtimestamp); trace(ipl); trace(cpu); trace(curcpu->cpu_id); }",
        "cpc:::page_faults-all-1 { trace(arg0); }",
    ];
    same(&path, &each("-ev", "-n", &right));
    let functions = [
        "fbt::vfs_read:entry { self->t = timestamp; }",
        "fbt::vfs_read:return /self->t/ { @ = quantize(timestamp - self->t); }",
        "fbt::vfs_*:entry { trace(stackdepth); }",
    ];
    same(&path, &each("-ev", "-n", &functions));
    let wrong = [
        "BEGIN { trace(curthread->no_such_member); }",
        "BEGIN { trace(((struct no_such_struct *)arg0)->x); }",
        "BEGIN { trace(`no_such_symbol); }",
        "BEGIN { trace((long)&`jiffies); }",
        "BEGIN { trace(`ext4`ext4_sync_fs); }",
        "syscall::no_such_call:entry",
        "fbt::no_such_function:entry",
        "fbt::do_syscall_64:entry { trace(stackdepth); }",
        "cpc:::cpu_cycles-all-1000000",
        "postgres*:::",
        "no_such_provider:::x",
    ];
    let o = same(&path, &each("-e", "-n", &wrong));
    assert!(o.code == Some(1) && o.err.contains("no_such_member") && o.err.contains("no_such_call"), "{o:?}");
    same(&path, &["-eSn", "syscall::read:entry { @[execname] = quantize(arg2); }"]);
    same(&path, &["-eZn", "no_such_provider:::x"]);
    Pass
}

/// The tools are shell scripts that call `dtrace`: each calls one that compiles, here and for the
/// record, and compares.
fn tools_compile_for_a_record_as_on_its_machine() -> Verdict {
    let (dir, path) = record();
    let (bin, wrapper) = (binary(), dir.join("dtrace"));
    let text = format!(
        "#!/bin/sh\n{0} -e \"$@\" >here 2>&1\necho $? >>here\n{0} --system {path} -e \"$@\" >there 2>&1\necho $? >>there\n",
        bin.display()
    );
    std::fs::write(&wrapper, text).unwrap();
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");
    let mut compared = 0;
    for tool in
        std::fs::read_dir(scripts).unwrap().map(|e| e.unwrap().path()).filter(|p| p.extension().is_none())
    {
        // One traces nothing, and the processes of the other are not in a record.
        if tool.ends_with("dtrace-toolkit") || tool.ends_with("bashreadline") {
            continue;
        }
        let _ = (std::fs::remove_file(dir.join("here")), std::fs::remove_file(dir.join("there")));
        let mut command = Command::new(&tool);
        command.env("PATH", format!("{}:/usr/bin:/bin", dir.display())).current_dir(&*dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let o = finish(command.spawn().unwrap());
        // Some need to be told what to trace.
        let Ok(here) = std::fs::read_to_string(dir.join("here")) else {
            assert_ne!(o.code, Some(0), "{}: {o:?}", tool.display());
            continue;
        };
        assert_eq!(std::fs::read_to_string(dir.join("there")).unwrap(), here, "{}", tool.display());
        compared += 1;
    }
    assert!(compared >= 110, "{compared}");
    Pass
}

fn a_record_is_asked_without_privilege() -> Verdict {
    const NOBODY: u32 = 65534;
    let (dir, path) = record();
    // Somebody else may read it.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::set_permissions(&*dir, PermissionsExt::from_mode(0o755)).unwrap();
    for words in
        [["-lP", "sdt"], ["-lP", "syscall"], ["-eSn", "sched:::on-cpu { @[args[0]->pr_fname] = count(); }"]]
    {
        let mut command = Command::new(binary());
        command.args(["--system", &path]).args(words).uid(NOBODY).gid(NOBODY).current_dir("/");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let o = finish(child.unwrap());
        let root = dtrace(&[&["--system", &*path][..], &words].concat());
        assert_eq!((o.code, &o.out, &o.err), (root.code, &root.out, &root.err), "{words:?}");
    }
    Pass
}

fn a_record_is_small_private_and_tells_no_address() -> Verdict {
    let (_dir, path) = record();
    let meta = std::fs::metadata(&path).unwrap();
    println!("{} bytes", meta.len());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert!((100 << 10..5 << 20).contains(&meta.len()), "{}", meta.len());
    let o = dtrace(&["--record-system", &path]).code(1);
    assert!(o.err.contains("File exists"), "{o:?}");
    // The kernel's text is where it is without randomization, wherever it is here.
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let line = text.lines().find(|l| l.ends_with(" vfs_read")).unwrap_or_default();
    let at = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).unwrap_or(0);
    let start = text.lines().find(|l| l.ends_with(" T _text")).and_then(|l| l.split(' ').next());
    let start = start.and_then(|at| u64::from_str_radix(at, 16).ok()).unwrap_or(0);
    if at > 0 && start > 0 {
        let o = dtrace(&["--system", &path, "-eSn", "BEGIN { trace((long)&`vfs_read); }"]).code(0);
        let expected = 0xffff_ffff_8100_0000_u64.wrapping_add(at.wrapping_sub(start)) as i64;
        assert!(
            o.err.contains(&expected.to_string()) || o.err.contains(&format!("{expected:#x}")),
            "{expected:#x} {o:?}"
        );
    }
    Pass
}

fn a_record_of_a_program_is_smaller_and_says_the_same_of_it() -> Verdict {
    let dir = Dir::new("recorded-program");
    // Of a program that does not compile the record has all.
    let all = dir.join("all").display().to_string();
    let wrong = "BEGIN { trace(nothing); }";
    let o = dtrace(&["--record-system", &all, "-n", wrong]).code(0);
    assert!(o.err.contains("nothing") && o.err.contains("all of this machine is recorded"), "{o:?}");
    same(&all, &["-en", wrong]);
    let whole = std::fs::metadata(&all).unwrap().len();
    let programs = [
        "syscall::read:entry { @[execname] = quantize(arg2); }",
        "proc:::exec-success { trace(curpsinfo->pr_psargs); }",
        "sched:::off-cpu { @[args[1]->pr_fname, ((struct task_struct *)curthread)->mm->total_vm] = count(); }",
        "BEGIN { print(*((struct task_struct *)curthread)->cred); }",
    ];
    for (n, program) in programs.iter().enumerate() {
        let path = dir.join(n.to_string()).display().to_string();
        let o = dtrace(&["--record-system", &path, "-n", program]).code(0);
        assert_eq!(o.out, "", "{o:?}");
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(size < whole / 4, "{program}: {size} of {whole} bytes");
        for words in [&["-e", "-v"][..], &["-eS"], &["-l"], &["-lv"]] {
            same(&path, &[words, &["-n", program]].concat());
        }
    }
    // What it was not asked is not there.
    let path = dir.join("0").display().to_string();
    let o = dtrace(&["--system", &path, "-en", "BEGIN { trace(((struct file *)0)->f_flags); }"]).code(1);
    assert!(o.err.contains("struct file"), "{o:?}");
    Pass
}

fn damaged_and_foreign_records_are_refused() -> Verdict {
    let (dir, path) = record();
    let bytes = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8], why: &str| {
        let wrong = dir.join("wrong").display().to_string();
        std::fs::write(&wrong, bytes).unwrap();
        let o = dtrace(&["--system", &wrong, "-l"]).code(1);
        assert!(o.err.contains(why) && o.err.contains("wrong") && o.err.lines().count() == 1, "{o:?}");
    };
    refused(&bytes[..bytes.len() - 1], "its checksum is wrong");
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 4;
    refused(&changed, "its checksum is wrong");
    refused(b"", "it is no record of a machine");
    refused(b"#!/bin/sh\n", "it is no record of a machine");
    changed[8] = 9;
    refused(&changed, "version 9");
    let o = dtrace(&["--system", "/nonexistent", "-l"]).code(1);
    assert!(o.err.contains("failed to open /nonexistent: No such file"), "{o:?}");
    Pass
}

fn what_would_trace_the_machine_of_a_record_is_refused() -> Verdict {
    for (words, why) in [
        (&["-n", "BEGIN"][..], "which cannot be traced: add -e"),
        (&["-Sn", "BEGIN"], "which cannot be traced: add -e"),
        (&["-en", "BEGIN", "-p", "1"], "leave out -c and -p"),
        (&["-ln", "BEGIN", "-c", "true"], "leave out -c and -p"),
        (&["--record-system", "x"], "leave out"),
    ] {
        let o = dtrace(&[&["--system", "/nonexistent"], words].concat()).code(1);
        assert!(o.err.contains(why) && o.out.is_empty(), "{words:?}: {o:?}");
    }
    let o = dtrace(&["--record-system", "/nonexistent/x", "-n", "BEGIN", "-p", "1"]).code(1);
    assert!(o.err.contains("leave out -c and -p"), "{o:?}");
    Pass
}
