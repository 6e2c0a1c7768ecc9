//! Returns of functions, and offsets, where the plain case is not enough.

use crate::Verdict::{self, Pass};
use crate::pid::{Programs, compiled};
use crate::tool::dtrace;

tests! {
    a_caller_at_a_return_is_the_function_that_called
    returns_of_calls_that_are_too_deep_are_missed_with_a_message
    an_offset_is_looked_for_in_each_function_of_a_glob
    a_function_that_never_returns_has_no_return
}

const PROGRAM: &str = r#"
#include <stdlib.h>
int leaf(int n) { return n + 1; }
int middle(int n) { int m = leaf(n); return m + 1; }
int deep(int n) { return n > 0 ? deep(n - 1) + 1 : 0; }
int main(int argc, char **argv) { (void)argv; return middle(argc) + deep(200) == 203 ? 0 : 1; }
"#;

fn program(name: &str) -> Result<(Programs, String), Verdict> {
    Programs::new(name, ("cc", PROGRAM), &["-O0"])
}

fn a_caller_at_a_return_is_the_function_that_called() -> Verdict {
    let (_dir, program) = compiled!(program("callers"));
    for means in ["uretprobe", "ret"] {
        let script = "pid$target:a.out:leaf:return { ufunc(ucaller); }";
        let o = dtrace(&["-x", &format!("pidreturn={means}"), "-qc", &program, "-n", script]).code(0);
        assert_eq!(o.out.trim(), "program`middle", "{means}: {o:?}");
    }
    Pass
}

fn returns_of_calls_that_are_too_deep_are_missed_with_a_message() -> Verdict {
    let (_dir, program) = compiled!(program("deep"));
    let script = "pid$target:a.out:deep:entry { @e = count(); } pid$target:a.out:deep:return { @r = count(); } \
                  END { printa(\"%@d \", @e); printa(\"%@d\", @r); }";
    let o = dtrace(&["-x", "pidreturn=ret", "-qc", &program, "-n", script]).code(0);
    assert_eq!((o.out.trim(), o.err.contains("returns are missing")), ("201 201", false), "{o:?}");
    let o = dtrace(&["-x", "pidreturn=uretprobe", "-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "201 64", "{o:?}");
    assert_eq!(o.err.matches("returns are missing in process").count(), 1, "{o:?}");
    Pass
}

fn an_offset_is_looked_for_in_each_function_of_a_glob() -> Verdict {
    let (_dir, program) = compiled!(program("offsets"));
    // Behind the push of the frame pointer. `_start` begins with an instruction of two bytes.
    let o = dtrace(&["-ln", "pid$target:a.out:*:1", "-c", &program]).code(0);
    for function in ["leaf", "middle", "deep", "main"] {
        let of = |line: &str| line.split_whitespace().nth(3) == Some(function);
        assert_eq!(o.out.lines().filter(|l| of(l)).count(), 1, "{function}: {o:?}");
    }
    let o = dtrace(&["-qc", &program, "-n", "pid$target:a.out:dee*:1 { @ = count(); }"]).code(0);
    assert_eq!(o.last_number(), 201, "{o:?}");
    let o = dtrace(&["-qc", &program, "-n", "pid$target:a.out:dee*:2 { @ = count(); }"]).code(1);
    assert!(o.err.contains("no instruction of deep begins at 2"), "{o:?}");
    Pass
}

fn a_function_that_never_returns_has_no_return() -> Verdict {
    let (_dir, program) = compiled!(program("never"));
    let o =
        dtrace(&["-x", "errtags", "-qc", &program, "-n", "pid$target:libc:abort:return { @ = count(); }"])
            .code(1);
    assert!(o.err.contains("abort has no such probe: it never returns"), "{o:?}");
    Pass
}
