//! Speculation: records that are printed only when they are committed.

use crate::Verdict::{self, Pass};
use crate::machine::{attaches_to_all_functions, no_clock, no_functions};
use crate::tool::{Output, dtrace, workload};

tests! {
    only_failed_calls_are_printed_with_their_whole_trace speculations_of_threads_are_separate
    a_speculation_takes_records_of_several_threads committed_records_are_in_the_place_of_the_commit
    discarded_and_unfinished_speculations_print_nothing rest_of_a_clause_is_skipped_without_a_speculation
    speculation_fails_when_all_are_in_use speculation_fails_while_ended_ones_are_busy
    an_ended_speculation_is_free_at_the_next_cleaning records_beyond_specsize_are_counted_as_dropped
    speculations_do_not_take_the_space_of_other_records ids_beyond_nspec_are_faults
    speculation_works_in_divided_programs the_most_speculations_are_found
    every_function_of_a_failed_call_is_printed a_cleaning_rate_that_is_too_high_is_reduced_and_reported
}

/// Traces each marked open, and keeps those that fail.
const OPENS: &str = "syscall::openat:entry /pid == $target && arg3 == 0123/ { self->id = speculation(); self->n++; } \
     syscall::openat:entry /self->id/ { speculate(self->id); printf(\"%d %d %s\\n\", tid, self->n, copyinstr(arg1)); } \
     syscall::openat:return /self->id/ { speculate(self->id); printf(\"%d %d = %d\\n\", tid, self->n, errno); } \
     syscall::openat:return /self->id && errno/ { commit(self->id); self->id = 0; } \
     syscall::openat:return /self->id/ { discard(self->id); self->id = 0; }";

/// The lines that are not empty, without those of the workload.
fn lines(o: &Output) -> Vec<&str> {
    o.out.lines().filter(|l| !l.is_empty()).collect()
}

/// Each call's lines are adjacent, and each thread's calls are in order.
#[track_caller]
fn check_calls(o: &Output, threads: usize, calls: usize) {
    let all = lines(o);
    assert_eq!(all.len(), 2 * threads * calls, "{o:?}");
    let mut last = std::collections::BTreeMap::new();
    for call in all.chunks(2) {
        let words: Vec<Vec<&str>> = call.iter().map(|l| l.split(' ').collect()).collect();
        assert_eq!(words[0][2], "/dt-no-such-file", "{call:?}");
        assert_eq!((&words[0][..2], words[1][3]), (&words[1][..2], "2"), "{call:?}");
        // The calls that succeed have odd numbers.
        let n: usize = words[0][1].parse().unwrap();
        let before = last.insert(words[0][0], n).unwrap_or(0);
        assert_eq!(n, before + 2, "{call:?}");
    }
    assert_eq!(last.len(), threads, "{o:?}");
}

// row subroutine.speculation, action.speculate, action.commit, action.discard
fn only_failed_calls_are_printed_with_their_whole_trace() -> Verdict {
    let o = dtrace(&["-q", "-x", "nspec=1024", "-c", &workload("opens", 300), "-n", OPENS]).code(0);
    check_calls(&o, 1, 300);
    assert!(!o.err.contains("spec"), "{o:?}");
    Pass
}

fn speculations_of_threads_are_separate() -> Verdict {
    let o =
        dtrace(&["-q", "-x", "nspec=1024", "-c", &workload("opens-by-threads", 100), "-n", OPENS]).code(0);
    check_calls(&o, 4, 100);
    assert!(!o.err.contains("spec"), "{o:?}");
    Pass
}

/// One speculation for all threads, which another process commits, on another CPU if there is one.
fn a_speculation_takes_records_of_several_threads() -> Verdict {
    let script = "BEGIN { s = speculation(); } \
                  syscall::openat:entry /pid == $target && arg3 == 0123/ { speculate(s); printf(\"%d\\n\", tid); } \
                  END { commit(s); }";
    let o =
        dtrace(&["-q", "-x", "specsize=1m", "-c", &workload("opens-by-threads", 500), "-n", script]).code(0);
    let all = lines(&o);
    assert_eq!(all.len(), 4 * 2 * 500, "{o:?}");
    let threads: std::collections::BTreeSet<&str> = all.into_iter().collect();
    assert_eq!(threads.len(), 4);
    assert!(!o.err.contains("spec"), "{o:?}");
    Pass
}

fn committed_records_are_in_the_place_of_the_commit() -> Verdict {
    let script = "BEGIN { a = speculation(); b = speculation(); } \
                  BEGIN { speculate(a); trace(\"first\"); } \
                  BEGIN { trace(\"second\"); } \
                  BEGIN { speculate(b); trace(\"third\"); } \
                  BEGIN { speculate(a); trace(\"fourth\"); } \
                  BEGIN { commit(b); } \
                  BEGIN { trace(\"fifth\"); } \
                  BEGIN { commit(a); } \
                  BEGIN { trace(\"sixth\"); exit(0); }";
    let o = dtrace(&["-q", "-x", "nspec=2", "-n", script]).code(0);
    assert_eq!(o.out, "secondthirdfifthfirstfourthsixth\n", "{o:?}");
    let script = "BEGIN { a = speculation(); speculate(a); } BEGIN { speculate(a); } BEGIN { commit(a); } BEGIN { exit(0); }";
    let o = dtrace(&["-n", script]).code(0);
    // speculate() alone makes the default action speculative.
    // The clause that ends the session records its own firing.
    assert_eq!(o.out.matches(":BEGIN").count(), 2, "{o:?}");
    Pass
}

fn discarded_and_unfinished_speculations_print_nothing() -> Verdict {
    let script = "BEGIN { a = speculation(); b = speculation(); } \
                  BEGIN { speculate(a); trace(\"discarded\"); } \
                  BEGIN { speculate(b); trace(\"unfinished\"); } \
                  BEGIN { discard(a); trace(\"printed\"); } \
                  BEGIN { commit(a); } \
                  BEGIN { speculate(a); trace(\"late\"); } \
                  BEGIN { exit(0); }";
    let o = dtrace(&["-q", "-x", "nspec=2", "-n", script]).code(0);
    assert_eq!(o.out, "printed\n", "{o:?}");
    Pass
}

fn rest_of_a_clause_is_skipped_without_a_speculation() -> Verdict {
    let script = "BEGIN { x = 1; speculate(0); x = 2; } \
                  BEGIN { y = 1; speculate(1); y = 2; trace(\"inactive\"); } \
                  BEGIN { commit(0); discard(0); z = 3; } BEGIN { commit(1); } \
                  BEGIN { printf(\"%d %d %d\", x, y, z); exit(0); }";
    let o = dtrace(&["-q", "-n", script]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("1 1 3\n", ""), "{o:?}");
    Pass
}

fn speculation_fails_when_all_are_in_use() -> Verdict {
    let script = "BEGIN { a = speculation(); b = speculation(); c = speculation(); \
                  printf(\"%d %d %d\", a, b, c); exit(0); }";
    let o = dtrace(&["-q", "-n", script]).code(0);
    assert_eq!(o.out, "1 0 0\n", "{o:?}");
    let words = "dtrace: 2 failed speculations (no speculative buffer available)\n";
    assert!(o.err.contains(words), "{o:?}");
    let o = dtrace(&["-q", "-x", "nspec=2", "-x", "droptags", "-n", script]).code(0);
    assert_eq!(o.out, "1 2 0\n", "{o:?}");
    let words = "[DTRACEDROP_SPECUNAVAIL] 1 failed speculation (no speculative buffer available)\n";
    assert!(o.err.contains(words), "{o:?}");
    // None may be under way.
    let script = "BEGIN { self->s = speculation(); trace(self->s); } BEGIN { speculate(self->s); trace(2); } \
                  BEGIN { commit(1); } BEGIN { exit(0); }";
    let o = dtrace(&["-q", "-x", "nspec=0", "-n", script]).code(0);
    assert_eq!(o.out, "0\n", "{o:?}");
    assert!(o.err.contains("illegal operation in action #1"), "{o:?}");
    assert!(o.err.ends_with("dtrace: 1 failed speculation (no speculative buffer available)\n"), "{o:?}");
    Pass
}

fn speculation_fails_while_ended_ones_are_busy() -> Verdict {
    let script =
        "BEGIN { a = speculation(); discard(a); b = speculation(); printf(\"%d %d\", a, b); exit(0); }";
    let o = dtrace(&["-q", "-n", script]).code(0);
    assert_eq!(o.out, "1 0\n", "{o:?}");
    assert!(o.err.contains("dtrace: 1 failed speculation (available buffer still busy)\n"), "{o:?}");
    Pass
}

fn an_ended_speculation_is_free_at_the_next_cleaning() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // Buffers are read once a minute otherwise.
    let script = "BEGIN { s = speculation(); commit(s); } \
                  tick-100ms /s = speculation()/ { n++; } \
                  tick-100ms { speculate(s); printf(\"%d\\n\", n); } \
                  tick-100ms { commit(s); } \
                  tick-100ms /n == 5/ { exit(0); }";
    let o = dtrace(&["-q", "-x", "switchrate=1m", "-x", "cleanrate=100hz", "-n", script]).code(0);
    assert_eq!(lines(&o), ["1", "2", "3", "4", "5"], "{o:?}");
    Pass
}

fn records_beyond_specsize_are_counted_as_dropped() -> Verdict {
    // Records of 32 bytes.
    let script = "BEGIN { s = speculation(); } \
                  syscall::getppid:entry /pid == $target/ { n++; speculate(s); trace(n); stored++; } \
                  END { commit(s); } END { printf(\" stored %d of %d\", stored, n); }";
    let command = workload("pinned", 1000);
    let o = dtrace(&["-q", "-x", "specsize=3200", "-c", &command, "-n", script]).code(0);
    let all: String = (1..=100).map(|n| n.to_string()).collect();
    assert_eq!(o.out.trim(), format!("{all} stored 100 of 1000"), "{o:?}");
    assert!(o.err.contains("dtrace: 900 speculative drops\n"), "{o:?}");
    Pass
}

fn speculations_do_not_take_the_space_of_other_records() -> Verdict {
    let script = "BEGIN { s = speculation(); } \
                  syscall::getppid:entry /pid == $target/ { speculate(s); trace(1); } \
                  syscall::getppid:entry /pid == $target && ++n % 100 == 0/ { trace(n); }";
    let words =
        ["-q", "-x", "bufsize=4k", "-x", "specsize=32k", "-c", &workload("getppid", 10_000), "-n", script];
    let o = dtrace(&words).code(0);
    assert!(o.err.contains("speculative drops") && !o.err.contains("drops on CPU"), "{o:?}");
    Pass
}

fn ids_beyond_nspec_are_faults() -> Verdict {
    for action in ["commit", "discard", "speculate"] {
        for id in ["2", "-1"] {
            let o = dtrace(&[
                "-q",
                "-n",
                &format!("BEGIN {{ {action}({id}); trace(\"on\"); }} BEGIN {{ exit(0); }}"),
            ]);
            match action {
                "commit" => assert!(o.err.contains("may not follow commit"), "{o:?}"),
                _ => assert!(o.err.contains("illegal operation in action #1") && o.out == "\n", "{o:?}"),
            }
        }
    }
    let o = dtrace(&["-q", "-n", "BEGIN { commit(2); } BEGIN { exit(0); }"]).code(0);
    assert!(o.err.contains("illegal operation in action #1"), "{o:?}");
    Pass
}

/// Many clauses, and a long one: programs that are divided into functions.
fn speculation_works_in_divided_programs() -> Verdict {
    let sums: String = (0..300).map(|i| format!("x += y * {i}; ")).collect();
    let traces: String = (0..40).map(|i| format!("printf(\"%d \", x % {}); ", i + 1)).collect();
    let many: String = (0..60).map(|i| format!("BEGIN {{ speculate(b); printf(\"{i} \"); }} ")).collect();
    let script = format!(
        "BEGIN {{ a = speculation(); b = speculation(); y = 1; }} \
         BEGIN {{ {sums} speculate(a); {traces} {sums} printf(\"%d\\n\", x); }} {many} \
         BEGIN {{ commit(b); }} BEGIN {{ printf(\"\\n\"); }} BEGIN {{ commit(a); }} BEGIN {{ exit(0); }}"
    );
    let o = dtrace(&["-q", "-x", "nspec=2", "-n", &script]).code(0);
    let want: Vec<String> = (0..60).map(|i| i.to_string()).collect();
    let mut found = o.out.lines();
    assert_eq!(found.next().unwrap().split_whitespace().collect::<Vec<_>>(), want, "{o:?}");
    let sum = 300 * 299 / 2;
    let want: Vec<String> = (1..=40).map(|i| sum % i).chain([2 * sum]).map(|n: i32| n.to_string()).collect();
    assert_eq!(found.next().unwrap().split_whitespace().collect::<Vec<_>>(), want, "{o:?}");
    Pass
}

fn the_most_speculations_are_found() -> Verdict {
    let script = "int last; syscall::getppid:entry /pid == $target/ { s = speculation(); last = s > last ? s : last; } \
                  END { printf(\"%d %d\", last, s); }";
    let words =
        ["-q", "-x", "nspec=1024", "-x", "specsize=4k", "-c", &workload("pinned", 1030), "-n", script];
    let o = dtrace(&words).code(0);
    assert!(o.out.contains("1024 0"), "{o:?}");
    assert!(o.err.contains("dtrace: 6 failed speculations (no speculative buffer available)\n"), "{o:?}");
    Pass
}

/// Every function that runs in a call of the workload, if the call fails.
fn every_function_of_a_failed_call_is_printed() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let functions = match attaches_to_all_functions("6.12") {
        true => "fbt:::entry",
        false => "fbt::path_openat:entry",
    };
    let script = format!(
        "syscall::openat:entry /pid == $target && arg3 == 0123/ {{ self->id = speculation(); n++; }} \
         {functions} /self->id/ {{ speculate(self->id); printf(\"%d %s\\n\", n, probefunc); }} \
         syscall::openat:return /self->id && errno/ {{ commit(self->id); self->id = 0; kept++; }} \
         syscall::openat:return /self->id/ {{ discard(self->id); self->id = 0; }} \
         END {{ printf(\"kept %d of %d\\n\", kept, n); }}"
    );
    let words = ["-q", "-x", "nspec=64", "-x", "specsize=256k", "-c", &workload("opens", 20), "-n", &script];
    let o = dtrace(&words).code(0);
    assert!(o.out.contains("kept 20 of 40\n"), "{o:?}");
    // A call may look up its path twice.
    let mut opens: Vec<&str> = lines(&o).into_iter().filter(|l| l.ends_with(" path_openat")).collect();
    opens.dedup();
    // The calls that fail have even numbers.
    let want: Vec<String> = (1..=20).map(|i| format!("{} path_openat", 2 * i)).collect();
    assert_eq!(opens, want, "{o:?}");
    Pass
}

fn a_cleaning_rate_that_is_too_high_is_reduced_and_reported() -> Verdict {
    let text = "BEGIN { exit(0); }";
    let run = |rates: &[&str]| {
        let rates = rates.iter().flat_map(|rate| ["-x", *rate]);
        dtrace(&["-q", "-n", text].into_iter().chain(rates).collect::<Vec<_>>()).code(0)
    };
    let o = run(&["cleanrate=5000hz", "statusrate=100us"]);
    assert_eq!(o.err, "dtrace: cleaning rate reduced to 1000 hz\ndtrace: status rate reduced to 1000 hz\n");
    assert_eq!(run(&["cleanrate=1000hz", "statusrate=1ms"]).err, "");
    Pass
}
