//! Faults: ERROR fires, the rest of the clause is dropped, the next clause runs.

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, workload};

tests! {
    division_by_zero a_bad_user_address a_bad_kernel_address error_probe_has_its_arguments a_fault_in_a_predicate
    a_fault_in_error_is_counted records_before_a_fault_are_gone
}

// row unit.fault-ends-clause
fn division_by_zero() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { trace(1); z = 0; x = 5 / z; printf(\"no\"); } BEGIN { printf(\"next %d\\n\", x); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "next 0\n\n", "{o:?}");
    let line = o.err.lines().next().unwrap();
    assert!(
        line.starts_with(
            "dtrace: error on enabled probe ID 1 (ID 1: dtrace:::BEGIN): divide-by-zero in action #3"
        ),
        "{o:?}"
    );
    Pass
}

fn a_bad_user_address() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { s = copyinstr(1); printf(\"no\"); } END { printf(\"end\\n\"); } BEGIN { exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "end\n\n", "{o:?}");
    assert!(o.err.contains("invalid address (0x1) in action #1"), "{o:?}");
    Pass
}

// row expression.load-fault
fn a_bad_kernel_address() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { x = *(int *)0x10; printf(\"no\"); } BEGIN { exit(0); }"]).code(0);
    assert!(o.err.contains("invalid address (0x10) in action #1"), "{o:?}");
    assert_eq!(o.out, "\n");
    Pass
}

fn error_probe_has_its_arguments() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { z = 0; } BEGIN { trace(1); x = 1 / z; } \
         ERROR { printf(\"%d %d %d %d\\n\", arg1, arg2, arg4, arg5); } BEGIN { exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "2 2 4 0\n\n", "{o:?}");
    assert!(o.err.contains("divide-by-zero"), "the message stays: {o:?}");
    Pass
}

// row predicate.fault
fn a_fault_in_a_predicate() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { z = 0; } BEGIN /1 \u{25} z/ { printf(\"no\"); } BEGIN { exit(0); }"])
        .code(0);
    assert!(o.err.contains("divide-by-zero in predicate"), "{o:?}");
    Pass
}

fn a_fault_in_error_is_counted() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { z = 0; x = 1 / z; } ERROR { y = 1 / z; } BEGIN { exit(0); }"]).code(0);
    assert!(o.err.contains("1 error in ERROR probe enabling"), "{o:?}");
    Pass
}

// row unit.fault-discards-record
fn records_before_a_fault_are_gone() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 100),
        "-n",
        "syscall::getppid:entry /pid == $target/ { n++; printf(\"r %d\\n\", 10 / (n % 2)); }",
    ])
    .code(0);
    assert_eq!(o.out.lines().filter(|l| *l == "r 10").count(), 50, "{o:?}");
    assert_eq!(o.err.lines().filter(|l| l.contains("divide-by-zero")).count(), 50, "{o:?}");
    Pass
}
