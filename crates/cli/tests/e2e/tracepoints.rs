//! `rawtp` and `sdt`: the kernel's tracepoints, with raw arguments and as events.

use crate::Verdict::{self, Pass, Skip};
use crate::args::types;
use crate::machine::{is_guest, no_argument_types, no_events};
use crate::tool::{dtrace, finish, start, suppressed, workload};

tests! {
    tracepoints_are_listed_by_group arguments_of_raw_tracepoints_have_their_types
    args_of_an_event_has_its_members every_attach_method_counts_the_same_system_calls
    event_members_are_the_same_by_every_attach_method text_and_arrays_of_events_are_read
    all_tracepoints_can_be_enabled_at_once arguments_that_a_tracepoint_lacks_are_zero
    a_tracepoint_sees_the_self_variables_of_its_thread the_cost_of_a_slow_event_is_reported
    unknown_tracepoints_match_no_probe bare_tracepoints_are_listed_and_each_can_be_enabled
    bare_tracepoints_fire_as_often_as_events_at_the_same_place arguments_of_bare_tracepoints_are_exact
}

fn tracepoints_are_listed_by_group() -> Verdict {
    let o = dtrace(&["-ln", "rawtp:sched::sched_switch, sdt:sched::sched_switch"]);
    if let Some(skip) = no_events() {
        return skip;
    }
    let words: Vec<Vec<&str>> =
        o.out.lines().skip(1).map(|l| l.split_whitespace().skip(1).collect()).collect();
    assert_eq!(words, [["rawtp", "sched", "sched_switch"], ["sdt", "sched", "sched_switch"]]);
    for group in ["syscalls", "ftrace"] {
        let o = dtrace(&["-ln", &format!("sdt:{group}::")]);
        assert!(o.err.contains("No probe matches description"), "{o:?}");
    }
    Pass
}

fn arguments_of_raw_tracepoints_have_their_types() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let raw = types("rawtp:sched::sched_switch");
    assert_eq!(raw[..3], ["args[0]: bool", "args[1]: struct task_struct *", "args[2]: struct task_struct *"]);
    let event = types("sdt:sched::sched_switch");
    assert_eq!(event[..3], ["args[0]: char [16]", "args[1]: pid_t", "args[2]: int"]);
    Pass
}

/// `sched_process_exit` of the target's process: its task, and the members of the event.
fn args_of_an_event_has_its_members() -> Verdict {
    let script = "rawtp:sched::sched_process_exit /args[0]->pid == $target/ { a++; name = stringof(args[0]->comm); } \
                  sdt:sched::sched_process_exit /args[1] == $target/ { b++; event = stringof(args[0]); } \
                  END { printf(\"%d %d %d\\n\", a, b, name == event); }";
    let o = dtrace(&["-qc", &workload("getppid", 1), "-n", script]);
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let o = o.code(0);
    assert_eq!(o.out.trim(), "1 1 1", "{o:?}");
    Pass
}

/// The system calls of a process, counted by the provider, by the raw tracepoint, by an event
/// without arguments, by an event whose argument is the tracepoint's (`id`), and by an event whose
/// argument is only in the event's record (`args`).
fn every_attach_method_counts_the_same_system_calls() -> Verdict {
    let nr = libc::SYS_getppid;
    for probe in [
        "syscall::getppid:entry /pid == $target/".to_string(),
        format!("rawtp:raw_syscalls::sys_enter /pid == $target && args[1] == {nr}/"),
        format!("sdt:raw_syscalls::sys_enter /pid == $target && args[0] == {nr}/"),
        format!("sdt:raw_syscalls::sys_enter /pid == $target && args[0] == {nr} && args[1][0] == 0/"),
        format!(
            "rawtp:raw_syscalls::sys_enter, sdt:raw_syscalls::sys_enter /pid == $target && arg0 == {nr}/"
        ),
    ] {
        let o = dtrace(&["-qc", &workload("getppid", 2345), "-n", &format!("{probe} {{ @ = count(); }}")]);
        if let Some(skip) = no_argument_types() {
            return skip;
        }
        let lost = suppressed(&o);
        let n = o.code(0).last_number();
        assert!(n <= 2345 && n + lost >= 2345, "{probe}: {n}, {lost} suppressed");
    }
    Pass
}

/// Members that a table maps to the tracepoint's arguments equal those of the event's record. The
/// record is available when one of the requested members has no row (`prev_state`).
fn event_members_are_the_same_by_every_attach_method() -> Verdict {
    let clause = |also: &str| {
        format!(
            "sdt:sched::sched_switch /args[1] == $target/ {{ @[stringof(args[0]) != \"\", args[1] == pid, \
             args[2] > 0, args[6] >= 0{also}] = count(); }} END {{ printa(\"%d %d %d %d\\n\", @); }}"
        )
    };
    for also in ["", ", args[3] * 0"] {
        let o = dtrace(&["-qc", &workload("spawn", 20), "-n", &clause(also)]);
        if let Some(skip) = no_argument_types() {
            return skip;
        }
        let o = o.code(0);
        let lines: Vec<&str> = o.out.lines().filter(|l| !l.trim().is_empty()).collect();
        assert_eq!(lines, ["1 1 1 1"], "{also}: {o:?}");
    }
    Pass
}

/// A text that is elsewhere in the record (`filename`), with values of the tracepoint's arguments.
fn text_and_arrays_of_events_are_read() -> Verdict {
    let script = "sdt:sched::sched_process_exec /args[1] == pid && args[0] == \"/bin/true\" && progenyof($target)/ { n++; } \
                  sdt:task::task_newtask /stringof(args[1]) == execname/ { t++; } \
                  END { printf(\"%d %d\\n\", n, t > 0); }";
    let o = dtrace(&["-qc", &workload("spawn", 20), "-n", script]);
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    if suppressed(&o) == 0 {
        assert_eq!(o.code(0).out.trim(), "20 1");
    }
    Pass
}

/// Attaches to every tracepoint, and detaches.
fn all_tracepoints_can_be_enabled_at_once() -> Verdict {
    // Kernels without cookies need a program for each tracepoint.
    let everything = start(&["-qn", "rawtp:::, sdt:::, syscall::: { @ = count(); } BEGIN { exit(0); }"]);
    let o = finish(everything);
    if let Some(skip) = no_events() {
        return skip;
    }
    o.code(0);
    Pass
}

/// Raw arguments of tracepoints with one, two and more arguments. Others are 0.
fn arguments_that_a_tracepoint_lacks_are_zero() -> Verdict {
    let script = "rawtp:raw_syscalls::, rawtp:sched::sched_switch /pid == $target && probename == \"sys_enter\"/ \
                  { @[arg0 < 0, arg2, arg9] = count(); } END { printa(\"%d %d %d\\n\", @); }";
    let o = dtrace(&["-qc", &workload("getppid", 100), "-n", script]);
    if let Some(skip) = no_events() {
        return skip;
    }
    assert_eq!(o.code(0).out.trim(), "1 0 0");
    Pass
}

/// A tracepoint sees the value that a system call stored in the same thread.
fn a_tracepoint_sees_the_self_variables_of_its_thread() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { self->n = 7; } \
                  rawtp:raw_syscalls::sys_exit /self->n == 7/ { n++; self->n = 0; } END { printf(\"%d\\n\", n); }";
    let o = dtrace(&["-qc", &workload("getppid", 300), "-n", script]);
    if let Some(skip) = no_events() {
        return skip;
    }
    let n = o.last_number();
    assert!(n <= 300 && n + suppressed(&o) >= 300, "{o:?}");
    Pass
}

/// An event that needs perf reports its cost. Members that a table maps to the tracepoint's
/// arguments do not need perf.
fn the_cost_of_a_slow_event_is_reported() -> Verdict {
    for (member, by_perf) in [(3, true), (1, false)] {
        let script = format!("sdt:sched::sched_switch {{ @ = sum(args[{member}]); }} BEGIN {{ exit(0); }}");
        let o = dtrace(&["-vqn", &script]);
        if let Some(skip) = no_argument_types() {
            return skip;
        }
        let said = o.err.contains("1 event by perf, for the fields of their records");
        assert_eq!(said, by_perf, "{o:?}");
        o.code(0);
    }
    Pass
}

fn unknown_tracepoints_match_no_probe() -> Verdict {
    if let Some(skip) = no_events() {
        return skip;
    }
    let o = dtrace(&["-en", "rawtp:sched::sched_swich"]).code(1);
    assert!(o.err.contains("did you mean `sched_switch`?"), "{o:?}");
    let o = dtrace(&["-xerrtags", "-en", "rawtp:sched::sched_switch { trace(args[9]); }"]).code(1);
    assert!(o.err.contains("D_ARGS_IDX") || o.err.contains("D_ARGS_TYPE"), "{o:?}");
    Pass
}

/// The names of the kernel's own tracepoints that are no events.
fn bare() -> Vec<String> {
    let o = dtrace(&["-ln", "rawtp:vmlinux::"]).code(0);
    o.out.lines().skip(1).filter_map(|l| l.split_whitespace().nth(3)).map(String::from).collect()
}

fn bare_tracepoints_are_listed_and_each_can_be_enabled() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let bare = bare();
    assert!(bare.iter().any(|name| name == "sched_update_nr_running_tp"), "{bare:?}");
    let events = dtrace(&["-ln", "sdt:::"]).code(0).out;
    for name in &bare {
        assert!(!events.lines().any(|l| l.split_whitespace().nth(3) == Some(name)), "{name} is an event");
    }
    let o = dtrace(&["-n", "rawtp:vmlinux:: { @ = count(); } BEGIN { exit(0); }"]).code(0);
    let matched = format!("matched {} probes", bare.len() + 1);
    assert!(o.err.contains(&matched) || o.out.contains(&matched), "{matched}: {o:?}");
    // Each by its name, several in a session: each session reads the kernel's types.
    for some in bare.chunks(16) {
        let clauses: String = some.iter().map(|name| format!("rawtp:::{name} {{ @ = count(); }} ")).collect();
        let o = dtrace(&["-n", &format!("{clauses} BEGIN {{ exit(0); }}")]).code(0);
        let matched = format!("matched {} probes", some.len() + 1);
        assert!(o.err.contains(&matched) && !o.err.contains("cannot be attached"), "{some:?}: {o:?}");
    }
    let types = types("rawtp:::sched_update_nr_running_tp");
    assert_eq!(types, ["args[0]: struct rq *", "args[1]: int"]);
    Pass
}

/// A thread passes `sched_exit_tp` each time that it continues after a switch, and the target
/// begins and ends off its CPU. (Both probes fire in the target. The switch to it is made by
/// another thread, which a machine may exempt from tracing.)
fn bare_tracepoints_fire_as_often_as_events_at_the_same_place() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    if !bare().iter().any(|name| name == "sched_exit_tp") {
        return Skip("this kernel has no tracepoint sched_exit_tp".into());
    }
    let script = "rawtp:sched::sched_switch /args[1]->pid == $target/ { switches++; }
        rawtp:::sched_exit_tp /args[0] && tid == $target/ { exits++; }
        END { printf(\"switches %d\\nexits %d\\n\", switches, exits); }";
    let o = dtrace(&["-qc", &workload("spawn", 20), "-n", script]).code(0);
    let (switches, exits) = (o.value_of("switches"), o.value_of("exits"));
    // Where threads are preempted inside of programs, the kernel suppresses firings and counts
    // them.
    assert!(switches > 0 && (switches - exits).abs() <= suppressed(&o), "{o:?}");
    Pass
}

/// The number of runnable threads of a CPU is what it was before and the change. (A machine may
/// exempt a few threads from tracing.)
fn arguments_of_bare_tracepoints_are_exact() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let script = "int known[int], before[int]; BEGIN { changes = wrong = 0; }
        rawtp:vmlinux::sched_update_nr_running_tp { this->rq = args[0]; }
        rawtp:vmlinux::sched_update_nr_running_tp /known[this->rq->cpu]/ {
            changes++;
            wrong += before[this->rq->cpu] + args[1] != this->rq->nr_running;
        }
        rawtp:vmlinux::sched_update_nr_running_tp {
            known[this->rq->cpu] = 1;
            before[this->rq->cpu] = this->rq->nr_running;
        }
        END { printf(\"changes %d\\nwrong %d\\n\", changes, wrong); }";
    let o = dtrace(&["-qc", &workload("spawn", 20), "-n", script]).code(0);
    let (changes, wrong) = (o.value_of("changes"), o.value_of("wrong"));
    // A firing that is missing makes the next one of its CPU wrong, and where arguments are wrong
    // all are.
    let right = changes - wrong;
    assert!(right >= 20, "{o:?}");
    assert!(!is_guest() || wrong <= suppressed(&o), "{o:?}");
    Pass
}
