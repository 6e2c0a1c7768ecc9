//! The provider proc: each probe by count and by argument, with workloads of known size.

use crate::Verdict::{self, Pass};
use crate::tool::{Output, dtrace, suppressed, workload};

tests! {
    processes_and_threads_are_counted_at_creation_start_and_end
    a_process_exits_once_whichever_of_its_threads_is_last
    the_reason_of_an_exit_is_that_of_the_process
    programs_are_counted_by_path_and_error_also_of_a_thread_that_is_not_the_first
    programs_that_the_kernel_starts_are_counted_where_functions_can_be_traced
    signals_of_each_disposition_are_sent_discarded_handled_or_cleared
    faults_of_the_processor_have_a_code_and_an_address
}

fn run(name: &str, count: u32, script: &str) -> Output {
    dtrace(&["-q", "-c", &workload(name, count), "-n", script]).code(0)
}

/// The lines of the output, sorted.
fn lines(o: &Output) -> Vec<&str> {
    let mut all: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    all.sort_unstable();
    all
}

fn processes_and_threads_are_counted_at_creation_start_and_end() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let script = "\
        proc:::create /pid == $target/ { @[probename, args[0]->pr_ppid == $target && args[0]->pr_pid != pid] = count(); } \
        proc:::lwp-create /ppid == $target/ \
        { @[probename, args[1]->pr_pid == pid && args[0]->pr_lwpid != pid] = count(); } \
        proc:::start, proc:::exit /ppid == $target/ { @[probename, 1] = count(); } \
        proc:::start /ppid == $target && pid != tid/ { @[\"thread\", 1] = count(); } \
        proc:::lwp-start, proc:::lwp-exit /ppid == $target/ { @[probename, 1] = count(); } \
        END { printa(\"%s %d %@d\\n\", @); }";
    let o = run("families", 200, script);
    let expected = [
        "create 1 200",
        "exit 1 200",
        "lwp-create 1 400",
        "lwp-exit 1 600",
        "lwp-start 1 600",
        "start 1 200",
    ];
    assert_eq!(lines(&o), expected, "{o:?}");
    Pass
}

fn a_process_exits_once_whichever_of_its_threads_is_last() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let script = "proc:::exit, proc:::lwp-exit /ppid == $target/ { @[probename] = count(); @n[probename, pid] = count(); } \
        proc:::exit /ppid == $target/ { @[args[0] == CLD_EXITED ? \"exited\" : \"other\"] = count(); } \
        END { printa(\"%s %@d\\n\", @); printa(\"each %s %d %@d\\n\", @n); }";
    let o = run("races", 300, script);
    // Five threads on fewer CPUs: the kernel may suppress the firing of one that preempts
    // another's.
    let lost = suppressed(&o);
    let all = lines(&o);
    let counts = |prefix: &str| -> Vec<i64> {
        let of = all.iter().filter_map(|l| l.strip_prefix(prefix));
        of.map(|l| l.split(' ').next_back().unwrap().parse().unwrap()).collect()
    };
    for (name, each) in [("exit", 1), ("lwp-exit", 5)] {
        let total = counts(&format!("{name} "))[0];
        assert!(total <= 300 * each && total + lost >= 300 * each, "{name}: {o:?}");
        let processes = counts(&format!("each {name} "));
        assert_eq!(processes.iter().sum::<i64>(), total, "{o:?}");
        assert!(processes.iter().all(|count| *count <= each), "{name}: {o:?}");
    }
    assert_eq!(counts("exited "), counts("exit "), "{o:?}");
    Pass
}

fn the_reason_of_an_exit_is_that_of_the_process() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let o = run("ends", 1, "proc:::exit /ppid == $target/ { printf(\"reason %d\\n\", args[0]); }");
    let of = |prefix: &str| -> Vec<String> {
        let all = o.out.lines().filter(|l| !l.is_empty());
        match prefix {
            "" => all.filter(|l| !l.starts_with("reason")).map(str::to_string).collect(),
            _ => all.filter_map(|l| l.strip_prefix(prefix)).map(str::to_string).collect(),
        }
    };
    assert_eq!(of("reason "), of(""), "{o:?}");
    assert_eq!(of("").len(), 6, "{o:?}");
    assert_eq!(of("")[..4], ["1", "1", "2", "2"], "{o:?}");
    Pass
}

fn programs_are_counted_by_path_and_error_also_of_a_thread_that_is_not_the_first() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let script = "proc:::exec /ppid == $target/ { @[probename, args[0]] = count(); } \
        proc:::exec-failure /ppid == $target/ { @e[probename, args[0]] = count(); } \
        proc:::exec-success, proc:::exit /ppid == $target/ { @[probename, execname] = count(); } \
        proc:::exec-success /ppid == $target && pid != tid/ { @[probename, \"not the first\"] = count(); } \
        END { printa(\"%s %s %@d\\n\", @); printa(\"%s %d %@d\\n\", @e); }";
    let o = run("programs", 1, script);
    let expected = [
        "exec /bin/test 3",
        "exec /etc/passwd 2",
        "exec /etc/passwd/program 1",
        "exec /nowhere/program 3",
        "exec-failure 13 2",
        "exec-failure 2 3",
        "exec-failure 20 1",
        "exec-success test 3",
        "exit test 3",
    ];
    assert_eq!(lines(&o), expected, "{o:?}");
    Pass
}

fn programs_that_the_kernel_starts_are_counted_where_functions_can_be_traced() -> Verdict {
    if let Some(skip) = crate::machine::no_functions() {
        return skip;
    }
    // The kernel looks for a module of this address family, which has had none for long.
    let script = "proc:::exec /args[0] == \"/sbin/modprobe\"/ { self->in = 1; @ = count(); } \
        proc:::exec-success /self->in/ { @a = count(); self->in = 0; } \
        proc:::exec-failure /self->in && args[0] > 0/ { @a = count(); self->in = 0; } \
        END { printa(\"exec %@d\\n\", @); printa(\"result %@d\\n\", @a); }";
    let o = run("family19", 5, script);
    assert_eq!(lines(&o), ["exec 5", "result 5"], "{o:?}");
    Pass
}

fn signals_of_each_disposition_are_sent_discarded_handled_or_cleared() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let script = "\
        proc:::signal-send, proc:::signal-discard \
        /pid == $target && args[2] != SIGCHLD || ppid == $target/ \
        { @[probename, args[2], args[1]->pr_pid == pid && args[0]->pr_lwpid == tid] = count(); } \
        proc:::signal-handle /pid == $target/ { @h[args[0], args[1]->si_code, args[1]->si_pid == pid, \
        (uint64_t)args[2]] = count(); } \
        proc:::signal-handle /ppid == $target/ { @[probename, args[0], args[2] == NULL] = count(); } \
        proc:::signal-clear /pid == $target/ { @[probename, args[0], 1] = count(); } \
        END { printa(\"%s %d %d %@d\\n\", @); printa(\"handle %d %d %d %d %@d\\n\", @h); }";
    let o = run("signals", 1, script);
    let handler = o.value_of("handler");
    let handled = |signal: i32, count: i32| format!("handle {signal} -6 1 {handler} {count}");
    let mut expected: Vec<String> = [
        "signal-clear 14 1 7",
        // SIGCHLD of the child, to its parent.
        "signal-discard 12 1 4",
        "signal-discard 17 0 1",
        "signal-discard 28 1 3",
        "signal-handle 15 1 1",
        // Blocked: sent six times, and handled once.
        "signal-send 1 1 6",
        "signal-send 10 1 5",
        "signal-send 14 1 7",
        "signal-send 15 1 1",
    ]
    .map(str::to_string)
    .to_vec();
    expected.extend([handled(1, 1), handled(10, 5), format!("handler {handler}")]);
    expected.sort_unstable();
    assert_eq!(lines(&o), expected, "{o:?}");
    Pass
}

fn faults_of_the_processor_have_a_code_and_an_address() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let script = "proc:::fault /ppid == $target/ { @[args[0], args[1]->si_signo, \
        args[1]->si_addr == 0x1230] = count(); } END { printa(\"%d %d %d %@d\\n\", @); }";
    let o = run("faults", 1, script);
    let all = lines(&o);
    let mut expected = vec!["6 11 1 1", "5 11 0 1"];
    if cfg!(target_arch = "x86_64") {
        expected.extend(["1 4 0 1", "3 5 0 1", "8 8 0 1"]);
    }
    expected.sort_unstable();
    assert_eq!(all, expected, "{o:?}");
    Pass
}
