//! Rows are printed in the order of their timestamps, whichever CPU or clause writes them.

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::machine::is_guest;
use crate::tool::{LIMIT, Output, dtrace, workload};

tests! {
    rows_of_parallel_writers_are_in_the_order_of_timestamp
    rows_of_interrupts_and_interrupted_clauses_are_in_the_order_of_timestamp
    clauses_of_one_firing_have_one_timestamp
    walltimestamp_is_timestamp_and_a_constant
    rows_of_error_are_in_the_order_of_timestamp
    later_rows_wait_for_a_firing_that_is_delayed
    a_row_that_comes_too_late_is_printed_and_counted
    rows_of_begin_are_printed_before_a_target_runs
}

/// Calls of each of four processes, together more than 200,000; a quarter in a guest, which has
/// more than one interrupt in the same number of calls.
fn calls() -> u32 {
    if is_guest() { 13_000 } else { 52_000 }
}
/// The process is one of the four.
const OURS: &str = "syscall::getppid:entry /ppid == $target/";

/// The first number of each row.
#[track_caller]
fn times(o: &Output) -> Vec<u64> {
    let first = |line: &str| line.split_whitespace().next().map(|w| w.parse().unwrap());
    o.out.lines().filter_map(first).collect()
}

/// Fails where a row is earlier than the previous one, or where losses are reported.
#[track_caller]
fn in_order(o: &Output) -> Vec<u64> {
    let times = times(o);
    let wrong = times.windows(2).filter(|w| w[0] > w[1]).count();
    assert_eq!(wrong, 0, "of {} rows\n{}", times.len(), o.err);
    assert!(!o.err.contains(" drop") && !o.err.contains("out of order"), "{}", o.err);
    times
}

/// Runs a script while four processes make calls.
#[track_caller]
fn traced(calls: u32, script: &str) -> Output {
    let target = workload("processes", calls);
    let words = ["-q", "-b", "32m", "-x", "switchrate=5ms", "-c", &target, "-n", script];
    dtrace(&words).code(0)
}

fn rows_of_parallel_writers_are_in_the_order_of_timestamp() -> Verdict {
    let o = traced(calls(), &format!("{OURS} {{ printf(\"%d\\n\", timestamp); }}"));
    assert_eq!(in_order(&o).len(), 4 * calls() as usize);
    Pass
}

/// Covers both kinds of firings: those that reserve before they read the clock, and those that
/// publish the clock.
fn rows_of_interrupts_and_interrupted_clauses_are_in_the_order_of_timestamp() -> Verdict {
    let o = traced(
        calls(),
        &format!(
            "profile-4999hz {{ printf(\"%d tick\\n\", timestamp); }} \
         profile-4999hz /timestamp % 2/ {{ printf(\"%d tick\\n\", timestamp); }} \
         syscall::getppid:return /ppid == $target/ {{ printf(\"%d\\n\", timestamp); }} \
         {OURS} {{ self->t = timestamp; }} {OURS} {{ printf(\"%d %s\\n\", self->t, execname); self->t = 0; }}"
        ),
    );
    in_order(&o);
    let of_calls = o.out.lines().filter(|l| !l.is_empty() && !l.ends_with(" tick")).count();
    assert_eq!(of_calls, 8 * calls() as usize);
    Pass
}

fn clauses_of_one_firing_have_one_timestamp() -> Verdict {
    let o = traced(
        calls(),
        &format!(
            "{OURS} {{ printf(\"%d a\\n\", timestamp); }} \
         syscall::getppid:entry /ppid == $target && timestamp > 0/ {{ printf(\"%d b\\n\", timestamp); }}"
        ),
    );
    let times = in_order(&o);
    assert_eq!(times.len(), 8 * calls() as usize);
    assert!(times.chunks(2).all(|pair| pair[0] == pair[1]), "two times in one firing");
    // Without records too.
    let o = traced(
        calls(),
        &format!(
            "uint64_t wrong; {OURS} {{ self->t = timestamp; }} {OURS} {{ wrong += timestamp != self->t; self->t = 0; n++; }} \
         END {{ printf(\"%d %d\\n\", n > 0, wrong); }}"
        ),
    );
    assert_eq!(o.out, "1 0\n\n");
    Pass
}

fn walltimestamp_is_timestamp_and_a_constant() -> Verdict {
    let o = traced(
        calls(),
        &format!(
            "{OURS} {{ printf(\"%d %d\\n\", timestamp, walltimestamp - timestamp); }} \
         syscall::getppid:entry /ppid == $target && walltimestamp % 2/ {{ printf(\"%d %d\\n\", timestamp, walltimestamp - timestamp); }}"
        ),
    );
    in_order(&o);
    let offsets: std::collections::BTreeSet<&str> =
        o.out.lines().filter_map(|l| l.split_whitespace().nth(1)).collect();
    assert_eq!(offsets.len(), 1, "{offsets:?}");
    Pass
}

fn rows_of_error_are_in_the_order_of_timestamp() -> Verdict {
    let o = traced(
        1000,
        &format!(
            "{OURS} {{ printf(\"%d\\n\", timestamp); }} {OURS} {{ this->x = *(int *)0; printf(\"%d\\n\", timestamp); }} \
         ERROR {{ printf(\"%d\\n\", timestamp); }} ERROR {{ printf(\"%d\\n\", timestamp); }}"
        ),
    );
    let times = times(&o);
    assert!(times.is_sorted(), "of {} rows", times.len());
    // A row of the clause before the fault, and two of ERROR.
    assert_eq!(times.len(), 3 * 4 * 1000);
    Pass
}

/// A call that is held up after it has read its clock, and the machine's clocks meanwhile. The call
/// goes on when a condition holds, or when `chill()` may hold a CPU no longer; then it is held up
/// again in another run. In the condition, `t` is the call's time, `later` the number of rows that
/// were recorded at a later time, and `shown` the time in what the tracer has written last.
#[track_caller]
fn held_up(ordertimeout: &str, until: &str) -> Output {
    let call = "syscall::getppid:entry /pid == $target";
    let hold = format!("{call} && !({until})/ {{ chill(10000000); }} ").repeat(49);
    let script = format!(
        "uint64_t t, shown, later; \
         profile-499hz {{ printf(\"%d\\n\", timestamp); }} profile-499hz /t && timestamp > t/ {{ later++; }} \
         syscall::write:entry /pid == $pid && t/ {{ shown = strtoll(copyinstr(arg1, 24)); }} \
         {call}/ {{ t = timestamp; }} {hold} \
         {call}/ {{ printf(\"%d late %d\\n\", timestamp, {until}); exit(0); }}"
    );
    let order = format!("ordertimeout={ordertimeout}");
    let target = workload("getppid", 1);
    let words = ["-qw", "-x", "switchrate=10ms", "-x", &order, "-c", &target, "-n", &script];
    eventually(format_args!("a call that is held up until {until}"), LIMIT, || {
        let o = dtrace(&words).code(0);
        if o.out.lines().any(|l| l.ends_with(" late 1")) { Ok(o) } else { Err(format!("{o:?}")) }
    })
}

fn later_rows_wait_for_a_firing_that_is_delayed() -> Verdict {
    let o = held_up("60s", "later >= 5");
    let times = in_order(&o);
    let late = o.out.lines().position(|l| l.ends_with("late 1")).unwrap();
    assert!(late + 5 < times.len(), "{} rows after it", times.len() - late - 1);
    Pass
}

fn a_row_that_comes_too_late_is_printed_and_counted() -> Verdict {
    let o = held_up("20ms", "shown > t");
    let times = times(&o);
    assert!(o.err.contains("dtrace: 1 record out of order on CPU "), "{o:?}");
    assert_eq!(times.windows(2).filter(|w| w[0] > w[1]).count(), 1, "{o:?}");
    Pass
}

/// Even when probes of other processes fire all the time.
fn rows_of_begin_are_printed_before_a_target_runs() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        "/bin/echo target",
        "-n",
        "BEGIN { printf(\"begin\\n\"); } syscall:::entry, profile-4999hz { @ = count(); this->t = timestamp; } \
         syscall:::entry, profile-4999hz /timestamp == 0/ { trace(1); }",
    ])
    .code(0);
    let (begin, target) = (o.out.find("begin"), o.out.find("target"));
    assert!(begin.is_some() && begin < target, "{o:?}");
    Pass
}
