//! The provider `sched`, against what the kernel itself counts.

use std::collections::HashMap;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{Output, dtrace, suppressed, workload};

tests! {
    switches_of_a_thread_are_those_that_the_kernel_counts
    a_thread_that_could_go_on_is_preempted_at_each_switch times_off_and_on_a_cpu_add_up
    a_thread_leaves_its_queue_and_comes_back_once_for_each_sleep
    wakeups_name_the_thread_that_is_woken ticks_name_the_thread_that_runs
    changes_of_priority_have_the_thread_and_the_new_priority
    a_yield_of_the_only_thread_remains_on_its_cpu
}

/// The name and the numbers of each line.
fn numbers(o: &Output) -> HashMap<String, Vec<i64>> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_string(), words.map(|w| w.parse().ok()).collect::<Option<Vec<i64>>>()?))
    };
    o.out.lines().filter_map(row).collect()
}

fn one(numbers: &HashMap<String, Vec<i64>>, name: &str) -> i64 {
    numbers.get(name).and_then(|n| n.first()).copied().unwrap_or(0)
}

/// A reason to skip where a probe does not exist. Its description then says why.
fn lacks(probe: &str) -> Option<Verdict> {
    let o = dtrace(&["-ln", probe]);
    let why = o.err.lines().next().and_then(|l| l.split_once("does not match any probes: "));
    (o.code != Some(0)).then(|| Skip(why.map_or(&*o.err, |(_, why)| why).to_string()))
}

/// Between the two calls of the workload, with the kernel's own counts of the thread's switches.
const SWITCHES: &str = "
syscall::getppid:entry /pid == $target && !self->in/
{
	self->voluntary = curthread->nvcsw; self->forced = curthread->nivcsw; self->in = 1;
}
sched:::off-cpu, sched:::on-cpu, sched:::sleep, sched:::preempt /self->in == 1/ { @[probename] = count(); }
syscall::getppid:return /pid == $target && self->in == 1/ { self->in = 2; }
syscall::getppid:return /pid == $target/ { calls++; self->in = calls == 1; }
syscall::getppid:entry /pid == $target && calls == 1/
{
	self->in = 0;
	printf(\"kernel %d %d\\n\", curthread->nvcsw - self->voluntary, curthread->nivcsw - self->forced);
}
END { printa(\"%s %@d\\n\", @); }";

fn switches_of_a_thread_are_those_that_the_kernel_counts() -> Verdict {
    let (voluntary, _) = switches("sleeps", 200);
    assert!(voluntary > 0);
    Pass
}

/// The kernel mostly notices on the return to user mode that a thread has had its time. The
/// tracepoint's own flag is false there.
fn a_thread_that_could_go_on_is_preempted_at_each_switch() -> Verdict {
    let (_, forced) = switches("preempted", 300);
    assert!(forced > 0);
    Pass
}

/// Compares the firings in a workload's first thread with the kernel's counts, and returns these.
fn switches(name: &str, count: u32) -> (i64, i64) {
    let o = dtrace(&["-q", "-c", &workload(name, count), "-n", SWITCHES]).code(0);
    let n = numbers(&o);
    let Some([voluntary, forced]) = n.get("kernel").map(Vec::as_slice) else { panic!("{o:?}") };
    assert_eq!(one(&n, "off-cpu"), voluntary + forced, "{o:?}");
    assert_eq!(one(&n, "on-cpu"), voluntary + forced, "{o:?}");
    assert_eq!(one(&n, "sleep"), *voluntary, "{o:?}");
    assert_eq!(one(&n, "preempt"), *forced, "{o:?}");
    (*voluntary, *forced)
}

fn times_off_and_on_a_cpu_add_up() -> Verdict {
    let script = "
        syscall::getppid:entry /pid == $target && !from/ { from = timestamp; self->on = timestamp; }
        sched:::off-cpu /self->on/ { @on = sum(timestamp - self->on); self->off = timestamp; self->on = 0; }
        sched:::on-cpu /self->off/ { @off = sum(timestamp - self->off); self->on = timestamp; self->off = 0; }
        syscall::getppid:return /pid == $target && from/ { calls++; }
        syscall::getppid:entry /pid == $target && calls == 1/
        { @on = sum(timestamp - self->on); printf(\"all %d\\n\", timestamp - from); self->on = 0; }
        END { printa(\"on %@d\\n\", @on); printa(\"off %@d\\n\", @off); }";
    let o = dtrace(&["-q", "-c", &workload("sleeps", 100), "-n", script]).code(0);
    let n = numbers(&o);
    assert_eq!(one(&n, "on") + one(&n, "off"), one(&n, "all"), "{o:?}");
    // It slept for 100 ms.
    assert!(one(&n, "off") >= 100_000_000, "{o:?}");
    Pass
}

fn a_thread_leaves_its_queue_and_comes_back_once_for_each_sleep() -> Verdict {
    if let Some(skip) = lacks("sched:::enqueue") {
        return skip;
    }
    let script = "
        syscall::getppid:return /pid == $target/ { calls++; who = tid; }
        sched:::enqueue, sched:::dequeue /calls == 1 && args[0]->pr_lwpid == who/
        { @[probename] = count(); @cpus[args[2]->cpu_id >= 0 && args[2]->cpu_id < 4096 && args[1]->pr_pid == $target] = count(); }
        sched:::sleep /calls == 1 && tid == who/ { @[probename] = count(); }
        END { printa(\"%s %@d\\n\", @); printa(\"right%d %@d\\n\", @cpus); }";
    let o = dtrace(&["-q", "-c", &workload("sleeps", 200), "-n", script]).code(0);
    let n = numbers(&o);
    assert_eq!(one(&n, "enqueue"), one(&n, "dequeue"), "{o:?}");
    // It may migrate too.
    assert!(one(&n, "sleep") > 0 && one(&n, "dequeue") >= one(&n, "sleep"), "{o:?}");
    assert_eq!(one(&n, "right1"), one(&n, "enqueue") + one(&n, "dequeue"), "{o:?}");
    Pass
}

fn wakeups_name_the_thread_that_is_woken() -> Verdict {
    // Two threads wake each other, so that no wake-up is made by a process in which no program
    // runs, as those that supervise a machine. The first thread sleeps in read, and the other one
    // wakes it by each of its writes at most once.
    let script = "
        syscall::read:entry /tid == $target/ { self->in = 1; }
        syscall::read:return /tid == $target/ { self->in = 0; }
        sched:::sleep /self->in/ { @[probename] = count(); slept = 1; }
        syscall::write:entry /pid == $target && tid != $target && arg2 == 1/ { self->writes = 1; @writes = count(); }
        syscall::write:return { self->writes = 0; }
        sched:::wakeup /self->writes && args[0]->pr_lwpid == $target/
        { @[probename] = count(); @right[args[1]->pr_pid == $target && arg0 != (uintptr_t)curthread] = count(); }
        END { printa(\"%s %@d\\n\", @); printa(\"right%d %@d\\n\", @right); printa(\"writes %@d\\n\", @writes); }";
    let o = dtrace(&["-q", "-c", &workload("pingpong", 200), "-n", script]).code(0);
    let n = numbers(&o);
    let (lost, wakeups) = (suppressed(&o), one(&n, "wakeup"));
    assert_eq!((one(&n, "writes"), one(&n, "right1")), (200, wakeups), "{o:?}");
    // A thread is sometimes woken before it sleeps.
    assert!(one(&n, "sleep") > 0 && wakeups + lost >= one(&n, "sleep") && wakeups <= 200, "{o:?}");
    Pass
}

fn ticks_name_the_thread_that_runs() -> Verdict {
    if let Some(skip) = lacks("sched:::tick") {
        return skip;
    }
    let script = "
        sched:::tick /pid == $target/ { @[args[0]->pr_lwpid == tid && args[1]->pr_pid == pid] = count(); }
        END { printa(\"right%d %@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &workload("spins", 1000), "-n", script]).code(0);
    let n = numbers(&o);
    assert!(one(&n, "right1") > 0 && one(&n, "right0") == 0, "{o:?}");
    Pass
}

fn changes_of_priority_have_the_thread_and_the_new_priority() -> Verdict {
    if let Some(skip) = crate::machine::no_functions() {
        return skip;
    }
    let script =
        "sched:::change-pri /pid == $target && args[1]->pr_pid == $target/ { printf(\"%d\\n\", args[2]); }";
    let o = dtrace(&["-q", "-c", &workload("nicer", 3), "-n", script]).code(0);
    let all: Vec<&str> = o.out.split_whitespace().collect();
    assert_eq!(all, ["121", "122", "123", "89"], "{o:?}");
    Pass
}

fn a_yield_of_the_only_thread_remains_on_its_cpu() -> Verdict {
    if let Some(skip) = lacks("sched:::remain-cpu") {
        return skip;
    }
    let script =
        "sched:::remain-cpu /pid == $target/ { @[probename] = count(); } END { printa(\"%s %@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &workload("yields", 1000), "-n", script]).code(0);
    assert!((1..=1100).contains(&one(&numbers(&o), "remain-cpu")), "{o:?}");
    Pass
}
