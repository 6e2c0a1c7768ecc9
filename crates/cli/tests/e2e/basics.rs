//! BEGIN, END, and the exact columns of the output.

use crate::Verdict::{self, Pass};
use crate::tool::dtrace;

tests! {
    a_begin_clause_prints_hello_world a_header_and_rows_are_printed_by_default
    an_empty_clause_prints_its_row end_runs_once the_argument_of_exit_is_the_exit_status
    quiet_mode_prints_no_header trace_formats_a_number_by_its_size printf_applies_its_conversions
    very_large_widths_are_those_of_c_unless_they_are_traced
    strings_are_compared_measured_and_printed clauses_run_in_program_order
    no_clause_of_a_firing_runs_behind_exit a_clause_runs_only_when_its_predicate_is_true
    arithmetic_follows_the_rules_of_d begin_sees_its_own_probe_name
}

// row unit.program
fn a_begin_clause_prints_hello_world() -> Verdict {
    let o = dtrace(&["-n", "BEGIN { printf(\"Hello World!\\n\"); exit(0); }"]).code(0);
    assert!(o.out.contains("Hello World!\n"), "{o:?}");
    assert_eq!(o.err, "dtrace: description 'BEGIN ' matched 1 probe\n");
    Pass
}

// row format.header, format.row
fn a_header_and_rows_are_printed_by_default() -> Verdict {
    let o = dtrace(&["-n", "BEGIN { trace(1); exit(0); }"]).code(0);
    let lines: Vec<&str> = o.out.lines().collect();
    assert_eq!(lines[0], "CPU     ID                    FUNCTION:NAME");
    let row = lines[1];
    assert_eq!(&row[3..44], "      1                           :BEGIN ", "{o:?}");
    assert_eq!(&row[44..], "        1", "{o:?}");
    Pass
}

// row unit.empty-clause
fn an_empty_clause_prints_its_row() -> Verdict {
    let o = dtrace(&["-n", "BEGIN", "-n", "BEGIN { x = 1; exit(0); }"]).code(0);
    let rows = o.out.lines().filter(|l| l.contains(":BEGIN")).count();
    // Both clauses record: the empty clause its row, exit() its status.
    assert_eq!(rows, 2, "{o:?}");
    let o = dtrace(&["-n", "BEGIN { x = 1; }", "-n", "BEGIN { exit(0); }"]).code(0);
    assert_eq!(
        o.out.lines().filter(|l| l.contains(":BEGIN")).count(),
        1,
        "assignments record nothing: {o:?}"
    );
    Pass
}

fn end_runs_once() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { exit(0); } END { printf(\"end %d\\n\", 7); }"]).code(0);
    assert_eq!(o.out, "end 7\n\n");
    Pass
}

fn the_argument_of_exit_is_the_exit_status() -> Verdict {
    dtrace(&["-qn", "BEGIN { exit(3); }"]).code(3);
    // The first one stands, and one of END replaces it, as in the original.
    dtrace(&["-qn", "BEGIN { exit(1); } BEGIN { exit(2); }"]).code(1);
    dtrace(&["-qn", "BEGIN { exit(1); exit(2); }"]).code(1);
    dtrace(&["-qn", "BEGIN { exit(1); } END { exit(2); }"]).code(2);
    dtrace(&["-qn", "BEGIN { exit(0); } END { exit(2); }"]).code(2);
    dtrace(&["-qn", "BEGIN { exit(1); } END { exit(0); }"]).code(0);
    dtrace(&["-qn", "BEGIN { exit(4); x = *(int *)0; } END { }"]).code(4);
    dtrace(&["-qn", "END { exit(5); }", "-c", "true"]).code(5);
    Pass
}

// row format.quiet
fn quiet_mode_prints_no_header() -> Verdict {
    let o = dtrace(&["-q", "-n", "BEGIN { printf(\"a\"); trace(5); trace(\"b\"); exit(0); }"]).code(0);
    assert_eq!(o.out, "a5b\n", "{o:?}");
    assert_eq!(o.err, "");
    Pass
}

// row format.trace-integer
fn trace_formats_a_number_by_its_size() -> Verdict {
    let o = dtrace(&[
        "-n",
        "BEGIN { trace((char)-1); trace((short)2); trace(3); trace((long)4); trace(\"str\"); exit(0); }",
    ])
    .code(0);
    let row = o.out.lines().nth(1).unwrap();
    let expected = format!(" {:3} {:5} {:8} {:16}  {:<33}", -1, 2, 3, 4, "str");
    assert_eq!(row[44..].trim_end(), expected.trim_end(), "{o:?}");
    Pass
}

// row conversion.d, conversion.x, conversion.s
fn printf_applies_its_conversions() -> Verdict {
    let script = "BEGIN { printf(\"%d|%5d|%-5d|%05d|%x|%X|%o|%#x|%c|%s|%10s|%-10s|%%|%u|%lld|%i\\n\", \
                  42, 42, 42, 42, 255, 255, 8, 255, 'A', \"s\", \"right\", \"left\", -1, (long long)-5, 7); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    assert_eq!(o.out, "42|   42|42   |00042|ff|FF|10|0xff|A|s|     right|left      |%|4294967295|-5|7\n\n");
    Pass
}

fn very_large_widths_are_those_of_c_unless_they_are_traced() -> Verdict {
    let script = "BEGIN { printf(\"%10000000d|%.10000000d|%-2000000s|\", 1, 1, \"a\"); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    let columns: Vec<&str> = o.out.split('|').collect();
    assert_eq!(columns[0].len(), 10_000_000);
    assert!(columns[0].trim_start() == "1" && columns[0].starts_with(' '));
    assert!(columns[1].len() == 10_000_000 && columns[1].trim_start_matches('0') == "1");
    assert!(columns[2].len() == 2_000_000 && columns[2].trim_end() == "a");
    assert!(o.err.is_empty(), "{}", o.err);
    // What a process may choose is limited, and that is said once.
    let script = "BEGIN { x = 1 << 30; printf(\"%*d|%*d|\", x, 1, -x, 1); printf(\"%*d\", x, 1); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    assert_eq!(o.out.len(), 3 * (1 << 20) + 3);
    assert_eq!(o.err, "dtrace: a width or precision that * takes from a traced value is 1048576 at most\n");
    let o = dtrace(&["-qn", "BEGIN { printf(\"%67108865d\", 1); exit(0); }"]).code(1);
    assert!(o.err.contains("conversion #1 has a width or precision that is larger than 67108864\n"), "{o:?}");
    Pass
}

// row type.string, format.trace-string, expression.compare-string
fn strings_are_compared_measured_and_printed() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { x = \"hello\"; printf(\"%s %d %d %d\\n\", x, strlen(x), x == \"hello\", x < \"help\"); \
         printf(\"%s %d\\n\", execname, execname == \"dtrace\"); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "hello 5 1 1\ndtrace 1\n\n");
    Pass
}

// row unit.order, unit.clause
fn clauses_run_in_program_order() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { printf(\"1\"); } BEGIN { printf(\"2\"); }",
        "-n",
        "BEGIN { printf(\"3\"); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "123\n");
    Pass
}

fn no_clause_of_a_firing_runs_behind_exit() -> Verdict {
    for (script, printed, status) in [
        ("BEGIN { exit(3); printf(\"same\"); } BEGIN { printf(\"second\"); exit(4); }", "same", 3),
        // A clause with `if` is several.
        ("BEGIN { if (1) { exit(3); printf(\"same\"); } printf(\"after\"); }", "same", 3),
        (
            "BEGIN { if (0) { exit(3); } else { printf(\"else\"); } printf(\"|after\"); exit(2); }",
            "else|after",
            2,
        ),
        // A fault of a clause may end the session too.
        ("BEGIN { trace(*(int *)0); } BEGIN { printf(\"second\"); exit(0); } ERROR { exit(1); }", "", 1),
        // All of ERROR and of END run.
        ("BEGIN { trace(*(int *)0); } ERROR { exit(1); } ERROR { printf(\"error\"); exit(2); }", "error", 1),
        ("BEGIN { exit(1); } END { printf(\"a\"); exit(2); } END { printf(\"b\"); }", "ab", 2),
        ("BEGIN { exit(1); } END { exit(2); exit(3); } END { printf(\"b\"); }", "b", 2),
        ("BEGIN { exit(1); } END { exit(2); trace(*(int *)0); } ERROR { exit(5); }", "", 5),
        ("tick-10ms { exit(7); } tick-10ms { printf(\"second\"); }", "", 7),
    ] {
        let o = dtrace(&["-qn", script]).code(status);
        assert_eq!(o.out.trim_end(), printed, "{script}: {o:?}");
    }
    Pass
}

// row predicate.scalar
fn a_clause_runs_only_when_its_predicate_is_true() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN /0/ { printf(\"no\"); } BEGIN /pid == $pid && ppid > 0/ { printf(\"yes\"); } BEGIN { exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "yes\n");
    Pass
}

// row expression.width, expression.division, expression.shift
fn arithmetic_follows_the_rules_of_d() -> Verdict {
    let script = "BEGIN { one = 1; big = 2147483647; m = -7; \
                  printf(\"%d %d %d %d %d %d\\n\", (int)(one << 33), (big + one), ((one << 33) >> 33), m % 3, m / 2, m >> 1); \
                  printf(\"%d %d %d\\n\", one ? 5 : 6, 1 ^^ one, !one); \
                  v = (uint16_t)1000; z = (uint64_t)65000; \
                  printf(\"%d %d\\n\", z < -(uint16_t)1000, z < -v); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    assert_eq!(o.out, "0 -2147483648 1 -1 -3 -4\n5 0 0\n1 1\n\n");
    Pass
}

fn begin_sees_its_own_probe_name() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { printf(\"[%s][%s][%s][%s] %d\\n\", probeprov, probemod, probefunc, probename, id); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "[dtrace][][][BEGIN] 1\n\n");
    Pass
}
