//! `args[]`: typed arguments of probes.

use crate::Verdict::{self, Pass};
use crate::machine::no_argument_types;
use crate::tool::{dtrace, workload};

tests! {
    argument_types_of_a_system_call_are_listed arguments_of_a_system_call_have_their_types
    typed_pointers_read_the_memory_of_the_process one_clause_sees_each_calls_argument_types
    an_invalid_argument_index_is_an_error
}

/// The argument types that `-lv` shows.
pub(crate) fn types(probe: &str) -> Vec<String> {
    let o = dtrace(&["-lvn", probe]).code(0);
    let types = o.out.split("Argument Types").nth(1).unwrap_or_default();
    types.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from).collect()
}

fn argument_types_of_a_system_call_are_listed() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let entry = types("syscall::openat:entry");
    let all = ["args[0]: int", "args[1]: userland const char *", "args[2]: int", "args[3]: umode_t"];
    assert_eq!(entry, all);
    assert_eq!(types("syscall::openat:return"), ["args[0]: long", "args[1]: long"]);
    assert_eq!(types("syscall::getppid:entry"), ["None"]);
    assert_eq!(types("syscall::stat64:entry")[1], "args[1]: userland struct stat64 *");
    Pass
}

/// The directory is -100 in the low half of a register. The upper half is undefined.
fn arguments_of_a_system_call_have_their_types() -> Verdict {
    let script = "syscall::openat:entry /pid == $target && args[0] == -100 && args[2] == 0x80000 && \
                  stringof(args[1]) == \"/etc/hostname-that-is-not-there\"/ { @[args[0]] = count(); } \
                  END { printa(\"%d %@d\\n\", @); }";
    let o = dtrace(&["-qc", &workload("open", 1234), "-n", script]);
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    assert_eq!(o.code(0).out.trim(), "-100 1234");
    Pass
}

/// A buffer of `x` with 1, 2, 4, ... 128 bytes, twice.
fn typed_pointers_read_the_memory_of_the_process() -> Verdict {
    let script = "syscall::write:entry /pid == $target && *args[1] == 'x'/ { @ = sum(args[2]); n++; } \
                  syscall::write:return /pid == $target && args[1] == 128/ { r++; } \
                  END { printf(\"%d %d \", n, r); printa(\"%@d\\n\", @); }";
    let o = dtrace(&["-qc", &workload("write", 16), "-n", script]);
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    assert_eq!(o.code(0).out.trim(), "16 2 510");
    Pass
}

/// One clause for calls whose first arguments have different types. Each call sees its own type.
fn one_clause_sees_each_calls_argument_types() -> Verdict {
    let script = "syscall::close:entry, syscall::openat:entry /pid == $target && args[0] == 0x7fff0001/ \
                  { @[probefunc, args[0]] = count(); } END { printa(\"%s %d %@d\\n\", @); }";
    let o = dtrace(&["-qc", &workload("badclose", 77), "-n", script]);
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    assert_eq!(o.code(0).out.trim(), "close 2147418113 77");
    let o = dtrace(&["-ln", "syscall::close:entry, syscall::openat:entry { trace(args[0]); }"]).code(0);
    assert_eq!(o.out.lines().count(), 3, "{o:?}");
    Pass
}

fn an_invalid_argument_index_is_an_error() -> Verdict {
    for (script, tag, says) in [
        ("syscall::getppid:entry { trace(args[0]); }", "D_ARGS_IDX", "the probe has no typed arguments"),
        ("syscall::read:return { trace(args[2]); }", "D_ARGS_IDX", "2 arguments, args[0] to args[1]"),
        ("syscall:::entry { trace(args[0]); }", "D_ARGS_MULTI", "an unstable set of probes"),
    ] {
        let tagged = dtrace(&["-xerrtags", "-en", script]).code(1);
        if !tagged.err.contains("D_ARGS_TYPE") {
            let o = dtrace(&["-en", script]).code(1);
            assert!(tagged.err.contains(tag) && o.err.contains(says), "{script}\n{}", o.err);
        }
    }
    Pass
}
