//! The syscall provider: exact numbers, 32-bit callers, errors.

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{dtrace, workload};

tests! {
    calls_of_one_system_call_are_counted_exactly every_system_call_is_counted_once
    each_entry_has_one_return failed_calls_set_errno a_32_bit_call_fires_the_probe_of_its_own_table
    arguments_of_32_bit_calls_are_zero_extended copyinstr_reads_the_path_of_a_call
    system_calls_are_matched_by_globs probefunc_names_each_of_many_calls
    calls_are_aggregated_by_execname every_firing_is_recorded_once_in_time_order
    recorded_and_dropped_firings_add_up
}

fn calls_of_one_system_call_are_counted_exactly() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 12345),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @ = count(); }",
    ])
    .code(0);
    assert_eq!(o.last_number(), 12345, "{o:?}");
    Pass
}

fn every_system_call_is_counted_once() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 1000),
        "-n",
        "syscall:::entry /pid == $target/ { @[probefunc] = count(); } \
         syscall::getppid:entry /pid == $target/ { @one = count(); } END { printa(\"one %@d\\n\", @one); }",
    ])
    .code(0);
    assert_eq!(o.value_of("getppid"), 1000, "{o:?}");
    assert_eq!(o.value_of("one"), 1000, "{o:?}");
    Pass
}

fn each_entry_has_one_return() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 777),
        "-n",
        "syscall::getppid: /pid == $target/ { @[probename] = count(); }",
    ])
    .code(0);
    assert_eq!((o.value_of("entry"), o.value_of("return")), (777, 777), "{o:?}");
    Pass
}

fn failed_calls_set_errno() -> Verdict {
    let script = "syscall::close:return /pid == $target && errno == 9/ { @[arg0 == -1, arg1 == -1] = count(); } \
                  END { printa(\"%d %d %@d\\n\", @); }";
    for extra in ["", " syscall::execve:return { @x = count(); }"] {
        // The second form cannot attach to functions. The result must be the same.
        let o = dtrace(&["-q", "-c", &workload("badclose", 321), "-n", &format!("{script}{extra}")]).code(0);
        assert!(o.out.contains("1 1 321\n"), "{o:?}");
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 50),
        "-n",
        "syscall::getppid:return /pid == $target && errno == 0 && arg0 == arg1 && arg0 > 0/ { @ = count(); }",
    ])
    .code(0);
    assert_eq!(o.last_number(), 50, "{o:?}");
    Pass
}

fn a_32_bit_call_fires_the_probe_of_its_own_table() -> Verdict {
    let status = std::process::Command::new("sh").arg("-c").arg(workload("getppid32", 1)).status().unwrap();
    if !status.success() {
        return Skip("this kernel takes no 32-bit system calls".into());
    }
    for extra in ["", "syscall::execve:entry { @x = count(); }"] {
        let script = format!(
            "syscall::getppid:entry,syscall::semget:entry /pid == $target/ {{ @[probefunc] = count(); }} {extra}"
        );
        let o = dtrace(&["-q", "-c", &workload("getppid32", 400), "-n", &script]).code(0);
        assert_eq!(o.value_of("getppid"), 400, "{o:?}");
        assert!(!o.out.contains("semget"), "{o:?}");
    }
    Pass
}

// row expression.arguments
fn arguments_of_32_bit_calls_are_zero_extended() -> Verdict {
    for extra in ["", "syscall::execve:entry { @x = count(); }"] {
        let script = format!(
            "syscall::close:entry /pid == $target && arg0 == 0xfffffff0/ {{ @n = count(); }} {extra} \
                     END {{ printa(\"n %@d\\n\", @n); }}"
        );
        let o = dtrace(&["-q", "-c", &workload("close32", 20), "-n", &script]).code(0);
        if o.err.contains("status 77") {
            return Skip("this kernel takes no 32-bit system calls".into());
        }
        assert_eq!(o.value_of("n"), 20, "{o:?}");
    }
    Pass
}

fn copyinstr_reads_the_path_of_a_call() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("open", 30),
        "-n",
        "syscall::openat:entry /pid == $target/ { @[copyinstr(arg1)] = count(); }",
    ])
    .code(0);
    assert_eq!(o.value_of("/etc/hostname-that-is-not-there"), 30, "{o:?}");
    Pass
}

// row description.globs
fn system_calls_are_matched_by_globs() -> Verdict {
    let o = dtrace(&["-ln", "syscall::*read*:entry"]).code(0);
    let names: Vec<&str> = o.out.lines().skip(1).filter_map(|l| l.split_whitespace().nth(3)).collect();
    for name in ["read", "pread64", "readv", "process_vm_readv", "readlinkat"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(names.iter().all(|n| n.contains("read")), "{names:?}");
    let first = o.out.lines().next().unwrap();
    assert_eq!(first, "   ID   PROVIDER            MODULE                          FUNCTION NAME");
    Pass
}

fn probefunc_names_each_of_many_calls() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 64),
        "-n",
        "syscall:::entry /pid == $target && probefunc == \"getppid\"/ { @[probeprov, probemod, probefunc, probename] = count(); }",
    ])
    .code(0);
    assert_eq!(o.value_of("syscall"), 64, "{o:?}");
    assert!(o.out.contains("vmlinux"), "{o:?}");
    Pass
}

fn calls_are_aggregated_by_execname() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 99),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[pid, execname] = count(); } END { printf(\"%d\\n\", $target); }",
    ])
    .code(0);
    let target = o.out.lines().next().unwrap().to_string();
    assert_eq!(o.out.lines().filter(|l| l.split_whitespace().next() == Some(&target)).count(), 2, "{o:?}");
    assert_eq!(o.last_number(), 99, "{o:?}");
    Pass
}

/// Every firing is one record, in time order.
fn every_firing_is_recorded_once_in_time_order() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-b",
        "16m",
        "-c",
        &workload("threads", 10_000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { printf(\"r %d\\n\", timestamp); }",
    ])
    .code(0);
    let times: Vec<u64> = o.out.lines().filter_map(|l| l.strip_prefix("r ")?.parse().ok()).collect();
    assert_eq!(times.len(), 40_000, "{}", o.err);
    let inversions = times.windows(2).filter(|w| w[0] > w[1]).count();
    assert!(inversions * 100 < times.len(), "{inversions} inversions");
    Pass
}

/// Recorded + dropped = fired.
fn recorded_and_dropped_firings_add_up() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-b",
        "4k",
        "-x",
        "switchrate=1s",
        "-c",
        &workload("getppid", 100_000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { printf(\"r\\n\"); }",
    ])
    .code(0);
    let records = o.out.lines().filter(|l| *l == "r").count() as u64;
    let dropped: u64 = o
        .err
        .lines()
        .filter(|l| l.contains(" drop") && l.contains(" on CPU "))
        .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum();
    assert!(dropped > 0, "{}", o.err);
    assert_eq!(records + dropped, 100_000, "{}", o.err);
    Pass
}
