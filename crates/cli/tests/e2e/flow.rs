//! `-F`: calls indented by entry and return.

use crate::Verdict::{self, Pass};
use crate::tool::{Output, dtrace, workload};

tests! { calls_are_indented_to_the_column clauses_of_one_firing_are_marked }

/// The rows without the CPU, which is one and the same.
#[track_caller]
fn rows(o: &Output) -> Vec<&str> {
    let mut lines = o.out.lines();
    assert_eq!(lines.next(), Some("CPU FUNCTION                                 "), "{o:?}");
    let rows: Vec<&str> = lines.take_while(|l| !l.is_empty()).collect();
    let cpu = rows.first().and_then(|r| r.get(..3)).unwrap_or_else(|| panic!("no rows: {o:?}"));
    assert!(rows.iter().all(|r| r.get(..3) == Some(cpu)), "more than one CPU: {o:?}");
    rows.iter().map(|r| r.get(4..).unwrap_or_default()).collect()
}

fn calls_are_indented_to_the_column() -> Verdict {
    let program = "syscall::getppid:entry, syscall::getppid:return /pid == $target/ { }";
    let o = dtrace(&["-F", "-c", &workload("pinned", 3), "-n", program]).code(0);
    let call = [format!("{:<41} ", " => getppid"), format!("{:<41} ", " <= getppid")];
    assert_eq!(rows(&o), [&call[0], &call[1], &call[0], &call[1], &call[0], &call[1]], "{o:?}");
    Pass
}

fn clauses_of_one_firing_are_marked() -> Verdict {
    let program = "syscall::getppid:entry /pid == $target/ { } \
                   syscall::getppid:entry /pid == $target/ { trace(1); } \
                   syscall::getppid:return /pid == $target/ { trace(2); } \
                   syscall::getppid:return /pid == $target/ { trace(3); }";
    let o = dtrace(&["-F", "-c", &workload("pinned", 1), "-n", program]).code(0);
    let expected = [
        format!("{:<41} ", " => getppid"),
        format!("{:<41}  {:>8}", "  | getppid:entry", 1),
        format!("{:<41}  {:>8}", "  | getppid:return", 2),
        format!("{:<41}  {:>8}", " <= getppid", 3),
    ];
    assert_eq!(rows(&o), expected, "{o:?}");
    Pass
}
