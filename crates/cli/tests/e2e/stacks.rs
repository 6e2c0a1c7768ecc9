//! Stacks: correct depth and caller, no frames of the tracer, for every attach method; the store.

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{dtrace, workload};

tests! {
    stacks_begin_at_the_probed_function stacks_of_many_clauses_are_the_same
    func_mod_and_sym_name_the_caller noresolve_prints_user_addresses_as_numbers
    frames_are_addresses_without_stacksymbols
    stacks_that_are_read_make_space_for_others stacks_beyond_the_limit_are_counted_drops
    stacks_of_records_resolve_after_their_eviction values_of_a_firing_share_its_stack
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

fn frames_are_addresses_without_stacksymbols() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target && !n++/ { stack(2); ustack(2); @s[stack(1)] = count(); @u[ustack(1)] = count(); \
                  printf(\"%A|\", ucaller); sym((uintptr_t)curthread->stack); func(caller); }";
    let run = |more: &[&str]| {
        let workload = workload("stacks", 1);
        dtrace(&[more, &["-q", BY_POINTERS, "-c", &workload, "-n", script]].concat()).code(0).out
    };
    let is_address =
        |line: &str| line.trim().strip_prefix("0x").is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok());
    let plain = run(&["-xstacksymbols=no"]);
    // The frames of two stacks and two keys; other addresses have their names.
    assert_eq!(plain.lines().filter(|line| is_address(line)).count(), 6, "{plain}");
    assert!(plain.contains("vmlinux`"), "{plain}");
    let named = run(&[]);
    // The workload makes up frames of its own, but not those of the kernel.
    assert!(named.lines().filter(|line| is_address(line)).count() <= 3, "{named}");
    Pass
}

/// The workload makes up chains of frame pointers, of which the tables of its code know nothing.
pub(crate) const BY_POINTERS: &str = "-xunwindsize=0";

/// The frames that the workload gives to stack `n`, behind the innermost one.
fn frames_of(n: u64) -> Vec<u64> {
    (0..n % 19 + 1).map(|i| 0x10_0000_0000 + (n << 8) + i).collect()
}

/// The number of a stack of the workload.
#[track_caller]
fn stack_number(frames: &[u64]) -> u64 {
    let n = (frames[1] - 0x10_0000_0000) >> 8;
    assert_eq!(frames[1..], frames_of(n), "{frames:x?}");
    n
}

/// The rows of an aggregation with a stack as key: frames and count.
fn rows(out: &str) -> Vec<(Vec<u64>, u64)> {
    let (mut rows, mut frames) = (Vec::new(), Vec::new());
    for line in out.lines().map(str::trim).filter(|l| !l.is_empty()) {
        match line.strip_prefix("0x") {
            Some(hex) => frames.push(u64::from_str_radix(hex, 16).unwrap()),
            None => rows.push((std::mem::take(&mut frames), line.parse().unwrap())),
        }
    }
    rows
}

const KEYS: &str = "syscall::getppid:entry /pid == $target/ { @[ustack()] = count(); }";

/// Traces a workload of stacks that the session has time to read, so that none is dropped. On a
/// machine where it has not, the workload runs once more and gives it more time.
fn without_drops(count: u64, size: &str, script: &str) -> String {
    let run = |pace: &str| {
        let (size, words) = (format!("-xstacksize={size}"), workload(pace, count as u32));
        let options = ["-q", "-xnoresolve", BY_POINTERS, "-xswitchrate=10s"];
        dtrace(&[&options[..], &[&size, "-c", &words, "-n", script]].concat()).code(0)
    };
    let mut o = run("stacks");
    if !o.err.is_empty() {
        o = run("stacks-slowly");
    }
    assert_eq!(o.err, "");
    o.out
}

/// Many more stacks than the store has space for, all of them twice.
fn stacks_that_are_read_make_space_for_others() -> Verdict {
    const COUNT: u64 = 20_000;
    let out = without_drops(COUNT, "1m", KEYS);
    // The runtime's own calls of getppid have other stacks.
    let rows = rows(&out).into_iter().filter(|(frames, _)| frames.get(1).is_some_and(|f| f >> 36 == 1));
    let mut seen = Vec::new();
    for (frames, count) in rows {
        assert_eq!(count, 2, "{frames:x?}");
        seen.push(stack_number(&frames));
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=COUNT).collect::<Vec<_>>());
    Pass
}

fn stacks_beyond_the_limit_are_counted_drops() -> Verdict {
    const COUNT: u64 = 5_000;
    let words = workload("stacks-at-once", COUNT as u32);
    let options = ["-q", "-xnoresolve", BY_POINTERS, "-xstacksize=32k"];
    let o = dtrace(&[&options[..], &["-c", &words, "-n", KEYS]].concat()).code(0);
    let rows = rows(&o.out);
    let of_stacks = rows.iter().filter(|(frames, _)| frames.get(1).is_some_and(|f| f >> 36 == 1));
    of_stacks.clone().for_each(|(frames, _)| _ = stack_number(frames));
    let empty: u64 = rows.iter().filter(|(frames, _)| frames.is_empty()).map(|(_, n)| n).sum();
    assert_eq!(of_stacks.map(|(_, n)| n).sum::<u64>() + empty, 2 * COUNT);
    let dropped =
        |line: &str| line.strip_prefix("dtrace: ")?.split_once(" stack drop")?.0.parse::<u64>().ok();
    assert_eq!(o.err.lines().filter_map(dropped).sum::<u64>(), empty, "{}", o.err);
    assert!(empty > 0, "{}", o.err);
    Pass
}

fn stacks_of_records_resolve_after_their_eviction() -> Verdict {
    const COUNT: u64 = 4_000;
    let script = "syscall::getppid:entry /pid == $target/ { ustack(); printf(\"end\\n\"); }";
    // The records are read long after the store has been emptied several times.
    let out = without_drops(COUNT, "512k", script);
    let hex = |l: &str| u64::from_str_radix(l.trim().strip_prefix("0x")?, 16).ok();
    let stacks = out.split("end\n").map(|s| s.lines().filter_map(hex).collect::<Vec<_>>());
    let stacks = stacks.filter(|frames| frames.get(1).is_some_and(|f| f >> 36 == 1));
    let seen: Vec<u64> = stacks.map(|frames| stack_number(&frames)).collect();
    assert_eq!(seen, (1..=COUNT).chain(1..=COUNT).collect::<Vec<_>>());
    Pass
}

fn values_of_a_firing_share_its_stack() -> Verdict {
    // Predicates decide which clause walks the stack first.
    let script = "int n; syscall::getppid:entry /pid == $target/ { n++; } \
                  syscall::getppid:entry /pid == $target && n % 2/ { @a[stack(3)] = count(); } \
                  syscall::getppid:entry /pid == $target && n % 3/ { @b[stackdepth, ustackdepth] = count(); } \
                  syscall::getppid:entry /pid == $target/ { @c[caller, ucaller] = count(); @d[stack()] = count(); \
                  @e[ustack(2)] = count(); } END { printa(\"a %@d\\n\", @a); printa(\"b %d %d %@d\\n\", @b); \
                  printa(\"c %a %x %@d\\n\", @c); printa(\"d %@d\\n\", @d); printa(\"e %@d\\n\", @e); }";
    let o = dtrace(&["-q", "-c", &workload("getppid", 6000), "-n", script]).code(0);
    let sum = |of: &str| -> u64 {
        let lines = o.out.lines().filter(|l| l.starts_with(of));
        lines.filter_map(|l| l.split(' ').next_back()?.parse::<u64>().ok()).sum()
    };
    for (of, all) in [("a", 3000), ("b", 4000), ("c", 6000), ("d", 6000), ("e", 6000)] {
        assert_eq!(sum(of), all, "{of}: {o:?}");
    }
    Pass
}
