//! Returns of functions, and offsets, where the plain case is not enough.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::pid::{Programs, compiled};
use crate::tool::{LIMIT, dtrace, finish, printed, start, unread};

tests! {
    a_caller_at_a_return_is_the_function_that_called
    returns_of_calls_that_are_too_deep_are_missed_with_a_message
    returns_of_a_function_that_calls_itself_are_all_there
    returns_are_moved_when_calls_are_nested_too_deep
    a_jump_over_a_lock_prefix_is_no_refusal
    a_return_whose_instruction_is_not_known_is_probed_all_the_same
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

fn returns_of_a_function_that_calls_itself_are_all_there() -> Verdict {
    let (_dir, program) = compiled!(program("itself"));
    let script = "pid$target:a.out:deep:return, pid$target:a.out:leaf:return { @[probefunc] = count(); } \
                  pid$target:a.out:deep:return { @v = sum(arg1); } END { printa(\"%s %@d\\n\", @); printa(\"%@d\", @v); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    assert_eq!(words, ["leaf", "1", "deep", "201", "20100"], "{o:?}");
    assert!(!o.err.contains("returns"), "{o:?}");
    Pass
}

/// Two functions that call each other, two hundred calls deep, each time a line is read.
const EACH_OTHER: &str = r#"
#include <stdio.h>
int odd(int n);
__attribute__((noinline)) int even(int n) { return n ? odd(n - 1) + 1 : 0; }
__attribute__((noinline)) int odd(int n) { return n ? even(n - 1) + 1 : 0; }
__attribute__((noinline)) void begin(void) { }
int main(void)
{
    for (int c; (c = getchar()) != EOF; putchar(c), fflush(stdout)) {
        if (c == 'b')
            begin();
        even(199);
    }
    return 0;
}
"#;

fn returns_are_moved_when_calls_are_nested_too_deep() -> Verdict {
    let (_dir, program) = compiled!(Programs::new("each-other", ("cc", EACH_OTHER), &["-O0"]));
    let mut target = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut lines, mut answers) = (target.stdin.take().unwrap(), target.stdout.take().unwrap());
    let mut round = |letter| {
        lines.write_all(letter).unwrap();
        answers.read_exact(&mut [0]).unwrap();
    };
    // A return at an instruction has its offset.
    let script = "BEGIN { printf(\"ready\\n\"); } pid$target:a.out:begin:entry { counts = 1; } \
                  pid$target:a.out:even:return /arg0 != 0 && !moved/ { moved = 1; printf(\"moved\\n\"); } \
                  pid$target:a.out:even:return, pid$target:a.out:odd:return /counts/ { @[probefunc] = count(); } \
                  END { printa(\"%s %@d\\n\", @); }";
    let mut child = start(&["-qp", &target.id().to_string(), "-n", script]);
    printed(&mut child);
    let ready = unread(&child);
    eventually("returns at instructions", LIMIT, || {
        round(b"a");
        (unread(&child) > ready || child.try_wait().unwrap().is_some()).then_some(())
    });
    round(b"b");
    drop(lines);
    target.wait().unwrap();
    let o = finish(child).code(0);
    let mut rows: Vec<&str> = o.out.lines().filter(|line| line.contains(' ')).collect();
    rows.sort_unstable();
    assert_eq!(rows, ["even 100", "odd 100"], "{o:?}");
    assert_eq!(o.err.matches("(uretprobe), until they were moved; ").count(), 1, "{o:?}");
    Pass
}

fn a_jump_over_a_lock_prefix_is_no_refusal() -> Verdict {
    // As an allocator does it where the program has one thread.
    const LOCKED: &str = r#"
int threads, taken;
__attribute__((noinline)) int take(int n)
{
    __asm__ volatile("cmpl $0, threads(%%rip)\nje 1f\nlock\n1: addl $1, taken(%%rip)" ::: "memory", "cc");
    return n;
}
int main(void) { for (int i = 0; i < 100; i++) take(i); return taken - 100; }
"#;
    let (_dir, program) = compiled!(Programs::new("lock", ("cc", LOCKED), &["-O2"]));
    for means in ["ret", "uretprobe"] {
        let script = "pid$target:a.out:take:return { @ = sum(arg1); }";
        let o = dtrace(&["-x", &format!("pidreturn={means}"), "-qc", &program, "-n", script]).code(0);
        assert_eq!(o.last_number(), 4950, "{means}: {o:?}");
    }
    Pass
}

fn a_return_whose_instruction_is_not_known_is_probed_all_the_same() -> Verdict {
    // It jumps into an instruction where its argument is negative.
    const HIDDEN: &str = r#"
__asm__(".globl hidden\n.type hidden, @function\nhidden: mov %edi, %eax\ntest %edi, %edi\njs 1f+1\nret\n"
        "1: mov $0xc3, %al\nret\n.size hidden, .-hidden\n");
int hidden(int n);
int main(void) { int sum = 0; for (int i = -10; i < 100; i++) sum += hidden(i); return sum == 4895 ? 0 : 1; }
"#;
    let (_dir, program) = compiled!(Programs::new("hidden", ("cc", HIDDEN), &["-O1"]));
    let script = "pid$target:a.out:hidden:return { @ = sum((int)arg1); @n = count(); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["4895", "110"], "{o:?}");
    let o = dtrace(&["-x", "pidreturn=ret", "-c", &program, "-n", script]).code(0);
    assert!(o.err.contains("left out: 1 (program`hidden:return): "), "{o:?}");
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
