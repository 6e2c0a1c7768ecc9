//! Restricted machines, and machines that change during a session.

use std::os::unix::fs::PermissionsExt;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Verdict::{self, Pass, Skip};
use crate::machine::is_guest;
use crate::tool::{Output, binary, dtrace, finish, printed, printed_more, signal, start, under, workload};

tests! {
    compiling_needs_no_privilege a_missing_privilege_is_named two_sessions_do_not_affect_each_other
    a_reduced_buffer_size_is_reported capabilities_are_enough_without_root
    a_command_with_capabilities_of_its_file_obeys_no_environment_and_destroys_nothing
    a_pid_namespace_uses_its_own_process_ids progenyof_works_in_a_pid_namespace
    user_symbols_are_found_in_a_pid_namespace tracing_continues_when_a_cpu_goes_offline_and_online
    every_facility_is_listed a_user_namespace_is_told_from_a_kernel_that_lacks_something
    too_few_descriptors_are_told_from_a_kernel_that_lacks_something
    too_little_address_space_has_a_message
    a_session_without_more_memory_ends_with_its_aggregations
}

/// A wrapper that drops root privileges. `setpriv` is part of util-linux.
const NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];

fn reachable(o: &Output) -> bool {
    // Another user may not have access to the directory of the binary.
    !o.err.contains("Permission denied") || o.err.contains("dtrace:")
}

fn compiling_needs_no_privilege() -> Verdict {
    match under(&NOBODY, &["-e", "-n", "BEGIN { printf(\"x\"); }"]) {
        None => Skip("no setpriv".into()),
        Some(o) if !reachable(&o) => Skip("the binary is not readable to others".into()),
        Some(o) => {
            o.code(0);
            Pass
        }
    }
}

fn a_missing_privilege_is_named() -> Verdict {
    for probe in ["BEGIN", "syscall::getppid:entry", "syscall:::", "tick-1s"] {
        match under(&NOBODY, &["-qn", probe]) {
            None => return Skip("no setpriv".into()),
            Some(o) if !reachable(&o) => return Skip("the binary is not readable to others".into()),
            Some(o) => {
                let o = o.code(1);
                let says =
                    "dtrace: DTrace requires additional privileges: root, or CAP_BPF and CAP_PERFMON (";
                assert!(o.err.starts_with(says) && o.err.lines().count() == 1, "{probe}: {o:?}");
            }
        }
    }
    Pass
}

fn capabilities_are_enough_without_root() -> Verdict {
    let wrapper = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all,+bpf,+perfmon",
        "--ambient-caps=-all,+bpf,+perfmon",
        "--bounding-set=-all,+bpf,+perfmon",
    ];
    match under(&wrapper, &["-qn", "syscall:::entry { printf(\"x\\n\"); exit(0); }"]) {
        None => return Skip("no setpriv".into()),
        Some(o) if o.err.contains("setpriv:") => return Skip(o.err.trim().to_string()),
        Some(o) if !reachable(&o) => return Skip("the binary is not readable to others".into()),
        // The first call on every CPU may print before exit() takes effect.
        Some(o) => assert!(o.code(0).out.starts_with("x\n")),
    }
    // Debian's kernels reject clocks for all but root, by a sysctl. The message must name it.
    let strict = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .is_ok_and(|t| t.trim().parse::<i32>().is_ok_and(|n| n > 2));
    let o = under(&wrapper, &["-qn", "tick-10ms { printf(\"x\\n\"); exit(0); }"]);
    match o {
        Some(o) if strict => assert!(o.code(1).err.contains("kernel.perf_event_paranoid is 3")),
        Some(o) => assert_eq!(o.code(0).out, "x\n\n"),
        None => return Skip("no setpriv".into()),
    }
    Pass
}

fn a_command_with_capabilities_of_its_file_obeys_no_environment_and_destroys_nothing() -> Verdict {
    let dir = testing::dir::Dir::below(&testing::memory_dir(), "secure").unwrap();
    let copy = dir.join("dtrace");
    std::fs::copy(binary(), &copy).unwrap();
    for (path, mode) in [(&*dir, 0o755), (&*copy, 0o755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let capabilities = "cap_bpf,cap_perfmon,cap_syslog,cap_sys_ptrace,cap_dac_read_search+ep";
    match Command::new("setcap").arg(capabilities).arg(&copy).output() {
        Ok(o) if o.status.success() => {}
        Ok(o) => return Skip(String::from_utf8_lossy(&o.stderr).trim().into()),
        Err(_) => return Skip("no setcap".into()),
    }
    let copy = copy.to_str().unwrap().to_owned();
    let as_nobody = |program: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]).args(words);
        command.env("DEBUGINFOD_URLS", "none").env("GONE", "1").env("KEPT", "a b");
        let o = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (o.status.code(), text(o.stdout), text(o.stderr))
    };
    let words =
        ["-q", "-x", "debuginfod=env", "-x", "unsetenv=GONE", "-x", "setenv=NEW=1", "-c", "env", "-n"];
    let clause = ["syscall::write:entry /pid == $target/ { writes++; } END { printf(\"%d\", writes > 0); }"];
    let words = [&words[..], &clause].concat();
    // Who has the privileges is obeyed.
    let o = under(&["env", "DEBUGINFOD_URLS=none"], &words).unwrap().code(1);
    assert!(o.err.contains("\"none\": a server has an address with https://"), "{o:?}");
    let o = as_nobody(&copy, &words);
    if o.2.contains("Operation not permitted") && !o.2.contains("dtrace:") {
        return Skip(format!("capabilities of files: {}", o.2.trim()));
    }
    let lines: Vec<&str> = o.1.lines().collect();
    assert_eq!(o.0, Some(0), "{o:?}");
    for line in ["DEBUGINFOD_URLS=none", "KEPT=a b", "NEW=1", "1"] {
        assert!(lines.contains(&line), "{line}: {o:?}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("GONE=")), "{o:?}");
    for words in [
        &["-wqn", "BEGIN { system(\"id\"); exit(0); }"][..],
        &["-qn", "#pragma D option destructive\nBEGIN { system(\"id\"); exit(0); }"],
    ] {
        let o = as_nobody(&copy, words);
        assert_eq!((o.0, &*o.1), (Some(1), ""), "{o:?}");
        let said = "dtrace: destructive actions are for who has the privileges, not for who may execute a dtrace that has them";
        assert!(o.2.starts_with(said), "{o:?}");
    }
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let o = as_nobody(&copy, &["-V"]);
    assert_eq!((o.0, &*o.1), (Some(1), ""), "{o:?}");
    assert!(o.2.starts_with("dtrace: it is set-user-id or set-group-id"), "{o:?}");
    Pass
}

fn two_sessions_do_not_affect_each_other() -> Verdict {
    let mut other = start(&[
        "-qn",
        "BEGIN { printf(\"begun\\n\"); } syscall:::entry { @[execname, probefunc] = count(); } tick-1ms { n++; }",
    ]);
    printed(&mut other);
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 5000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @ = count(); n++; } END { printf(\"%d\\n\", n); }",
    ])
    .code(0);
    signal(&other, libc::SIGINT);
    let other = finish(other).code(0);
    assert_eq!(o.out.lines().next(), Some("5000"), "{o:?}");
    assert_eq!(o.last_number(), 5000, "{o:?}");
    let seen: i64 = other
        .out
        .lines()
        .filter(|l| l.contains("getppid"))
        .filter_map(|l| l.split_whitespace().last()?.parse::<i64>().ok())
        .sum();
    assert!(seen >= 5000, "{seen}");
    Pass
}

fn a_reduced_buffer_size_is_reported() -> Verdict {
    // No machine of the matrix has a tebibyte for each CPU.
    let o =
        dtrace(&["-b", "1t", "-n", "tick-10ms { exit(0); } syscall::getppid:entry { trace(1); }"]).code(0);
    assert!(o.err.contains("buffer size lowered to"), "{o:?}");
    let o =
        dtrace(&["-b", "1t", "-x", "bufresize=manual", "-n", "syscall::getppid:entry { trace(1); }"]).code(1);
    assert!(!o.err.is_empty(), "{o:?}");
    Pass
}

fn a_pid_namespace_uses_its_own_process_ids() -> Verdict {
    let script = "BEGIN { printf(\"%d %d\\n\", pid == $pid, $pid < 100); exit(0); }";
    match under(&["unshare", "--pid", "--fork", "--mount-proc"], &["-qn", script]) {
        None => Skip("no unshare".into()),
        Some(o) if o.err.contains("unshare:") => Skip(o.err.trim().to_string()),
        Some(o) => {
            assert_eq!(o.code(0).out, "1 1\n\n");
            Pass
        }
    }
}

fn progenyof_works_in_a_pid_namespace() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { printf(\"%d %d %d %d\\n\", progenyof(1), progenyof(pid), \
        progenyof($target + 1), progenyof(0)); }";
    let target = workload("getppid", 1);
    match under(&["unshare", "--pid", "--fork", "--mount-proc"], &["-q", "-c", &target, "-n", script]) {
        None => Skip("no unshare".into()),
        Some(o) if o.err.contains("unshare:") => Skip(o.err.trim().to_string()),
        Some(o) => {
            assert_eq!(o.code(0).out, "1 1 0 0\n\n");
            Pass
        }
    }
}

fn user_symbols_are_found_in_a_pid_namespace() -> Verdict {
    let script = "profile-997hz /pid == $target && arg1/ { @[ufunc(arg1)] = count(); }";
    let target = workload("cputime", 400);
    match under(&["unshare", "--pid", "--fork", "--mount-proc"], &["-q", "-c", &target, "-n", script]) {
        None => Skip("no unshare".into()),
        Some(o) if o.err.contains("unshare:") => Skip(o.err.trim().to_string()),
        Some(o) => {
            let o = o.code(0);
            assert!(o.out.contains("e2e-"), "{o:?}");
            Pass
        }
    }
}

/// The file that takes the second CPU offline and online.
const SECOND: &str = "/sys/devices/system/cpu/cpu1/online";

/// Brings the CPU online again at the end of the test.
struct CpuOnline;

impl Drop for CpuOnline {
    fn drop(&mut self) {
        let _ = std::fs::write(SECOND, "1");
    }
}

/// Keeps CPU 1 busy until told to stop, because a host may not run an idle CPU's clock.
fn busy(stop: &AtomicBool) {
    // SAFETY: an all-zero set is valid; the system call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(1, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn tracing_continues_when_a_cpu_goes_offline_and_online() -> Verdict {
    if std::fs::write(SECOND, "1").is_err() {
        return Skip("no CPU can be taken away here".into());
    }
    let back = CpuOnline;
    if std::fs::write(SECOND, "0").is_err() {
        return Skip("this kernel does not let CPU 1 go".into());
    }
    // The session ends when profile fires on the CPU that came online.
    let script =
        "BEGIN { printf(\"begun\\n\"); } profile-97hz /cpu == 1/ { printf(\"cpu %d\\n\", cpu); exit(0); }";
    let mut child = start(&["-qn", script]);
    printed(&mut child);
    drop(back);
    let back = CpuOnline;
    let stop = AtomicBool::new(false);
    let o = std::thread::scope(|s| {
        s.spawn(|| busy(&stop));
        let o = std::panic::catch_unwind(AssertUnwindSafe(|| finish(child)));
        stop.store(true, Ordering::Relaxed);
        o.unwrap_or_else(|e| std::panic::resume_unwind(e))
    });
    assert!(o.code(0).out.starts_with("begun\ncpu 1\n"));
    let mut child = start(&["-qn", "tick-10hz { printf(\"tick\\n\"); } profile-97hz { @[cpu] = count(); }"]);
    let before = printed_more(&mut child, 0);
    // tick runs on the first CPU, which usually cannot go offline. Taking CPU 1 offline must not
    // disturb it. The output may still be from before.
    let _ = std::fs::write(SECOND, "0");
    let then = printed_more(&mut child, before);
    printed_more(&mut child, then + 5 * 10);
    drop(back);
    signal(&child, libc::SIGINT);
    let o = finish(child).code(0);
    // CPU 1 was offline for 485 firings, which were not due; before and after it may have missed
    // some.
    let missing = crate::profile::reported(&o.err, "profile-97hz");
    assert!(missing.get(&1).is_none_or(|n| *n < 300), "{o:?}");
    Pass
}

fn every_facility_is_listed() -> Verdict {
    let o = dtrace(&["-vV"]).code(0);
    for word in ["tp_btf", "kprobe_multi", "ringbuf", "task_storage"] {
        assert!(o.out.contains(word), "{word}: {o:?}");
    }
    print!("{}", o.out);
    Pass
}

fn a_user_namespace_is_told_from_a_kernel_that_lacks_something() -> Verdict {
    for probe in [
        "BEGIN",
        "syscall::getppid:entry",
        "syscall:::",
        "tick-1s",
        "rawtp:::sched_switch",
        "fbt::vfs_read:entry",
    ] {
        match under(&["unshare", "--user", "--map-root-user"], &["-qn", probe]) {
            None => return Skip("no unshare".into()),
            Some(o) if o.err.contains("unshare:") => return Skip(o.err.trim().to_string()),
            // Some lists are hidden there.
            Some(o) if o.err.contains("does not match any probes") => {
                o.code(1);
            }
            Some(o) => {
                let o = o.code(1);
                let privilege =
                    "dtrace: DTrace requires additional privileges: root, or CAP_BPF and CAP_PERFMON (";
                let why = "capabilities of a user namespace do not count here";
                assert!(o.err.starts_with(privilege) && o.err.contains(why), "{probe}: {o:?}");
            }
        }
    }
    Pass
}

fn too_few_descriptors_are_told_from_a_kernel_that_lacks_something() -> Verdict {
    let scripts = [
        "BEGIN { exit(0); }",
        "syscall:::entry { @[execname] = count(); } tick-10ms { exit(0); }",
        "syscall::getppid:entry, BEGIN { exit(0); }",
        "profile-97hz { @[stack()] = count(); } tick-10ms { exit(0); }",
        "sdt:::sched_switch, rawtp:::sched_switch { self->x = 1; } tick-10ms { exit(0); }",
    ];
    for script in scripts {
        // An emulated CPU is slow.
        for limit in [4, 6, 8, 10, 12, 14, 16, 20, 24, 28].into_iter().step_by(if is_guest() { 3 } else { 1 })
        {
            // The hard limit as well, and without the privilege to raise it.
            let shell = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
            let wrapper = ["sh", "-c", &shell];
            let Some(o) = under(&wrapper, &["-qn", script]) else { return Skip("no shell".into()) };
            // The loader has not found the C library.
            if o.code == Some(127) {
                continue;
            }
            let said = o.err.contains("oo many open files");
            assert!(o.code == Some(0) || o.code == Some(1) && said, "{limit} {script}: {o:?}");
        }
    }
    Pass
}

fn too_little_address_space_has_a_message() -> Verdict {
    let wrapper = ["sh", "-c", "ulimit -v 31000; exec \"$0\" \"$@\""];
    let Some(o) = under(&wrapper, &["-qn", "syscall:::entry { @[execname] = count(); }"]) else {
        return Skip("no shell".into());
    };
    // A loader that finds no place for a program with all that debugging needs says so itself.
    if o.err.contains("loading shared libraries") || o.err.contains("map segment") {
        return Skip(format!("the program does not fit into so little memory: {}", o.err.trim()));
    }
    let o = o.code(1);
    let says =
        "dtrace: could not enable tracing: less than 32 MiB of memory are allowed: raise `ulimit -v`\n";
    assert_eq!(o.err, says, "{o:?}");
    Pass
}

fn a_session_without_more_memory_ends_with_its_aggregations() -> Verdict {
    let script = "BEGIN { @begun[\"begun\"] = count(); printf(\"on\\n\"); } \
                  tick-1ms { @[n++, \"key\"] = count(); } END { printf(\"keys %d\\n\", n); }";
    let mut child = start(&["-qx", "aggrate=50ms", "-n", script]);
    printed(&mut child);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let bytes = (size + 256) << 10;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: a process of ours that has not been waited for, and a valid struct.
    let done =
        unsafe { libc::prlimit(child.id() as i32, libc::RLIMIT_AS, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(done, 0);
    let o = finish(child).code(1);
    let says = "dtrace: processing aborted: no more memory: raise `ulimit -v`, or lower what grows (-x aggsize, -b)\n";
    assert!(o.err.ends_with(says), "{}", o.err);
    assert_eq!(o.value_of("begun"), 1);
    // Each key has a row, or is said to be lost.
    let is_row = |line: &&str| line.split_whitespace().count() == 3 && line.ends_with(" 1");
    let rows = o.out.lines().filter(is_row).count() as i64;
    let dropped =
        |line: &str| line.strip_prefix("dtrace: ")?.split_once(" aggregation drop")?.0.parse::<i64>().ok();
    let lost: i64 = o.err.lines().filter_map(dropped).sum();
    assert!(rows > 0 && rows + lost == o.value_of("keys"), "{rows} rows, {lost} lost: {o:?}");
    Pass
}
