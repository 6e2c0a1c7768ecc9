//! Kernel stacks: correct depth and caller, and no frames of the tracer, for every attach method.

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{dtrace, workload};

tests! {
    stacks_begin_at_the_probed_function stacks_of_many_clauses_are_the_same
    func_mod_and_sym_name_the_caller noresolve_prints_user_addresses_as_numbers
}

/// The printed frames, the depth and the caller.
struct StackSample {
    frames: Vec<String>,
    depth: usize,
    caller: String,
}

/// The stack at the first firing of a probe. `None` where this system shows no symbols.
fn seen(probe: &str, more: &[&str]) -> Option<StackSample> {
    let program =
        format!("{probe} {{ printf(\"depth %d caller %a\\n\", stackdepth, caller); stack(100); exit(0); }}");
    let workload = workload("getppid", 200);
    let mut words = vec!["-q", "-c", &workload];
    words.extend(more.iter().flat_map(|m| ["-n", m]));
    words.extend(["-n", &program]);
    let o = dtrace(&words).code(0);
    let mut lines = o.out.lines().map(str::trim).skip_while(|l| !l.starts_with("depth "));
    let head: Vec<&str> = lines.next().unwrap_or_else(|| panic!("{probe}: {o:?}")).split(' ').collect();
    let frames: Vec<String> =
        lines.skip_while(|l| l.is_empty()).take_while(|l| !l.is_empty()).map(String::from).collect();
    if frames.iter().any(|f| f.starts_with("0x")) {
        return None;
    }
    Some(StackSample { frames, depth: head[1].parse().unwrap(), caller: head[3].to_string() })
}

const WANTED: &str = "pid == $target && probefunc == \"getppid\"";

fn stacks_begin_at_the_probed_function() -> Verdict {
    let (entry, left) = (format!("syscall:::entry /{WANTED}/"), format!("syscall:::return /{WANTED}/"));
    let raw = "rawtp:::sys_enter /pid == $target/";
    let other = ["rawtp:::sys_enter { }", "rawtp:::sys_exit { }"];
    let probes: &[(&str, &[&str])] = &[
        // Attached to functions, where the kernel allows that.
        ("syscall::getppid:entry /pid == $target/", &[]),
        ("syscall::getppid:return /pid == $target/", &[]),
        // Attached to tracepoints, alone and with another user of the tracepoint.
        (&entry, &[]),
        (&entry, &other),
        (&left, &other),
        (raw, &[]),
    ];
    for (probe, more) in probes {
        let Some(StackSample { frames, depth, caller }) = seen(probe, more) else {
            return Skip("no kernel symbols".into());
        };
        assert_eq!(frames.len(), depth, "{probe}: {frames:?}");
        assert!(frames.len() >= 2, "{probe}: {frames:?}");
        assert!(!frames.iter().any(|f| f.contains("bpf") || f.contains("traceiter")), "{probe}: {frames:?}");
        assert!(
            frames.last().is_some_and(|f| f.starts_with("vmlinux`entry_SYSCALL_64")),
            "{probe}: {frames:?}"
        );
        // A function that has returned has no frame any more.
        let at = usize::from(!(probe.contains(":return") && frames[0].starts_with("vmlinux`do_syscall_64")));
        assert_eq!(caller, frames[at], "{probe}: {frames:?}");
    }
    Pass
}

fn stacks_of_many_clauses_are_the_same() -> Verdict {
    // Many clauses become separate functions, and the program captures the stack for all of them.
    let mut program = String::new();
    for n in 0..60 {
        program +=
            &format!("syscall:::entry /{WANTED}/ {{ @[{n} % 2, stackdepth, caller, stack()] = count(); }} ");
    }
    let o = dtrace(&["-q", "-c", &workload("getppid", 200), "-n", &program]).code(0);
    let counts: Vec<&str> = o.out.lines().map(str::trim).filter(|l| *l == "6000").collect();
    assert_eq!(counts.len(), 2, "two keys, 30 clauses of 200 calls each: {o:?}");
    assert!(!o.out.contains("bpf"), "{o:?}");
    Pass
}

fn func_mod_and_sym_name_the_caller() -> Verdict {
    let Some(StackSample { frames, .. }) = seen("syscall::getppid:entry /pid == $target/", &[]) else {
        return Skip("no kernel symbols".into());
    };
    let program = "syscall::getppid:entry /pid == $target/ { @[func(caller)] = count(); @m[mod(caller)] = count(); \
                   @s[sym(caller)] = count(); printf(\"%a %A\\n\", caller, arg0); exit(0); }";
    let o = dtrace(&["-q", "-c", &workload("getppid", 1), "-n", program]).code(0);
    let function = frames[1].split('+').next().unwrap();
    let keys: Vec<&str> = o.out.lines().filter_map(|l| l.trim().strip_suffix(" 1")).map(str::trim).collect();
    assert_eq!(keys, [function, "vmlinux", function], "{o:?}");
    assert!(o.out.starts_with(&frames[1]), "{o:?}");
    Pass
}

/// `-x noresolve`: user frames are printed as addresses, kernel frames with names.
fn noresolve_prints_user_addresses_as_numbers() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { ustack(3); usym(ucaller); umod(ucaller); printf(\" %A\", ucaller); \
                  sym((uintptr_t)curthread->stack); @[ufunc(ucaller)] = count(); stack(1); }";
    let run = |more: &[&str]| {
        let mut words = more.to_vec();
        let workload = workload("getppid", 2);
        words.extend(["-q", "-c", &workload, "-n", script]);
        dtrace(&words).code(0)
    };
    let (named, plain) = (run(&[]), run(&["-xnoresolve"]));
    let object = workload("getppid", 2);
    let object = object.split(' ').next().unwrap().rsplit('/').next().unwrap().to_string();
    assert!(named.out.contains("libc") || named.out.contains(&object), "{named:?}");
    assert!(!plain.out.contains("libc") && !plain.out.contains(&object), "{plain:?}");
    assert!(plain.out.contains("0x"), "{plain:?}");
    let kernel = |o: &str| o.lines().filter(|l| l.contains("vmlinux`")).count();
    assert_eq!(kernel(&named.out), kernel(&plain.out), "{plain:?}");
    Pass
}
