//! Actions of the consumer: commands, redirected output, options set by a script, and actions that
//! need `-w`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::stacks::BY_POINTERS;
use crate::tool::{LIMIT, dtrace, workload};

tests! {
    destructive_actions_are_rejected_without_w system_output_appears_in_the_order_of_the_program
    system_output_follows_the_row_of_its_probe freopen_redirects_the_output_and_back
    a_failing_freopen_is_reported ftruncate_empties_a_file setopt_applies_to_later_output
    a_failing_setopt_is_reported raise_signals_the_current_process raise_of_an_invalid_signal_faults
    stop_stops_the_current_process chill_spins_for_the_given_time chill_beyond_its_budget_faults
    actions_that_linux_lacks_are_rejected_by_name jstack_prints_a_user_stack_with_its_own_defaults
    agghist_and_aggpack_print_aggregations_as_histograms
}

/// A file name that only this test uses.
fn file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("e2e-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn destructive_actions_are_rejected_without_w() -> Verdict {
    for action in ["system(\"true\")", "freopen(\"/dev/null\")", "raise(0)", "stop()", "chill(1)"] {
        let text = format!("BEGIN {{ {action}; exit(0); }}");
        let o = dtrace(&["-n", &text]).code(1);
        let last = o.err.lines().last().unwrap_or_default();
        assert_eq!(
            last, "dtrace: could not enable tracing: Destructive actions not allowed",
            "{action}: {o:?}"
        );
        assert_eq!(o.out, "", "{action}");
        dtrace(&["-e", "-n", &text]).code(0);
    }
    for (words, said) in [(["-w", "-n"], true), (["-x", "destructive"], true), (["-w", "-q"], false)] {
        let program = if words[1] == "-n" { vec![] } else { vec!["-n"] };
        let mut words: Vec<&str> = words.to_vec();
        words.extend(program);
        words.push("BEGIN { freopen(\"\"); exit(0); }");
        let o = dtrace(&words).code(0);
        assert_eq!(o.err.contains("dtrace: allowing destructive actions\n"), said, "{o:?}");
    }
    Pass
}

fn system_output_appears_in_the_order_of_the_program() -> Verdict {
    let text = "BEGIN { printf(\"a\\n\"); system(\"echo %s-%d; echo x >&2\", \"b\", 7); printf(\"c\\n\"); exit(0); }";
    let o = dtrace(&["-wqn", text]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("a\nb-7\nc\n\n", "x\n"));
    // The failure of a command is not reported.
    let o = dtrace(&["-wqn", "BEGIN { system(\"exit 3\"); exit(0); }"]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("\n", ""));
    Pass
}

fn system_output_follows_the_row_of_its_probe() -> Verdict {
    let o = dtrace(&["-wn", "BEGIN { system(\"echo hello\"); exit(0); }"]).code(0);
    let mut lines = o.out.lines();
    assert_eq!(lines.next(), Some("CPU     ID                    FUNCTION:NAME"));
    // The number of the CPU may be any.
    let row = format!(" {:>6} {:>32} hello", 1, ":BEGIN");
    assert_eq!(lines.next().and_then(|l| l.get(3..)), Some(row.as_str()));
    assert_eq!(lines.collect::<Vec<_>>(), ["", ""]);
    Pass
}

fn freopen_redirects_the_output_and_back() -> Verdict {
    let path = file("freopen");
    std::fs::write(&path, "before\n").unwrap();
    let text = format!(
        "BEGIN {{ printf(\"a\\n\"); freopen(\"%s\", \"{}\"); printf(\"b\\n\"); system(\"echo c\"); freopen(\"\"); \
         printf(\"d\\n\"); exit(0); }}",
        path.display()
    );
    let o = dtrace(&["-wqn", &text]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("a\nd\n\n", ""));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\nb\nc\n");
    // Without a second freopen(), the rest of the output is in the file too.
    let text = format!("BEGIN {{ @ = count(); freopen(\"{}\"); exit(0); }}", path.display());
    let o = dtrace(&["-wqn", &text]).code(0);
    assert_eq!(o.out, "", "{o:?}");
    let all = std::fs::read_to_string(&path).unwrap();
    assert_eq!(all, format!("before\nb\nc\n\n {:>16}\n", 1));
    let _ = std::fs::remove_file(&path);
    Pass
}

fn a_failing_freopen_is_reported() -> Verdict {
    let o = dtrace(&["-wqn", "BEGIN { freopen(\"/nosuch/%d\", 1); printf(\"on\\n\"); exit(0); }"]).code(0);
    assert_eq!(o.out, "on\n\n", "{o:?}");
    let said = "dtrace: error on enabled probe ID 1 (ID 1: dtrace:::BEGIN): couldn't freopen() \"/nosuch/1\": No such file or directory\n";
    assert_eq!(o.err, said);
    let o = dtrace(&["-xerrtags", "-wn", "BEGIN { freopen(\".\"); }"]).code(1);
    assert!(o.err.contains("[D_FREOPEN_INVALID] "), "{o:?}");
    Pass
}

fn ftruncate_empties_a_file() -> Verdict {
    let path = file("ftruncate");
    let name = path.display().to_string();
    let text = "BEGIN { printf(\"lost\\n\"); ftruncate(); printf(\"kept\\n\"); exit(0); }";
    let o = dtrace(&["-q", "-o", &name, "-n", text]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("", ""));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\n\n");
    // Output to a pipe is not truncated.
    let o = dtrace(&["-qn", text]).code(0);
    assert_eq!(o.out, "lost\nkept\n\n");
    let text = format!(
        "BEGIN {{ freopen(\"{name}\"); printf(\"1\\n\"); ftruncate(); printf(\"2\\n\"); freopen(\"\"); exit(0); }}"
    );
    dtrace(&["-wqn", &text]).code(0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n");
    let _ = std::fs::remove_file(&path);
    Pass
}

fn setopt_applies_to_later_output() -> Verdict {
    let text = "BEGIN { @[\"b\"] = sum(1); @[\"a\"] = sum(2); printa(\"%s\", @); setopt(\"aggsortkey\"); \
                printa(\"%s\", @); setopt(\"aggsortkey\", \"no\"); printa(\"%s\", @); exit(0); }";
    let o = dtrace(&["-qn", text]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("baabba\n", ""));
    // Every option that may change while tracing is accepted.
    let o = dtrace(&[
        "-n",
        "BEGIN { setopt(\"quiet\"); setopt(\"switchrate\", \"10ms\"); setopt(\"aggrate\", \"100hz\"); \
         setopt(\"stackindent\", \"3\"); setopt(\"rawbytes\"); setopt(\"aggzoom\", \"true\"); setopt(\"agghist\"); \
         setopt(\"aggpack\"); setopt(\"flowindent\", \"no\"); } BEGIN { printf(\"quiet\"); exit(0); }",
    ])
    .code(0);
    assert!(o.out.ends_with("quiet\n") && !o.err.contains("error"), "{o:?}");
    Pass
}

fn a_failing_setopt_is_reported() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { setopt(\"bufsize\", \"1m\"); setopt(\"nosuch\"); setopt(\"aggrate\", \"often\"); exit(0); }",
    ])
    .code(0);
    let at = "dtrace: error on enabled probe ID 1 (ID 1: dtrace:::BEGIN): couldn't set option ";
    let said = format!(
        "{at}\"bufsize\" to \"1m\": Operation illegal when tracing is active\n{at}\"nosuch\" to \"1\": Invalid option name\n\
         {at}\"aggrate\" to \"often\": Invalid value for specified option\n"
    );
    assert_eq!(o.err, said);
    Pass
}

fn raise_signals_the_current_process() -> Verdict {
    let o = dtrace(&[
        "-w",
        "-c",
        &workload("getppid", 1000),
        "-n",
        "syscall::getppid:entry /pid == $target && ++n == 7/ { raise(10); } END { trace(n); }",
    ])
    .code(0);
    // The signal ends the process on its return from the kernel, so no call follows.
    assert!(o.err.contains(" terminated by SIGUSR1\n"), "{o:?}");
    assert_eq!(o.last_number(), 7, "{o:?}");
    Pass
}

fn raise_of_an_invalid_signal_faults() -> Verdict {
    let o =
        dtrace(&["-wqn", "BEGIN { raise(65); } BEGIN { raise(-1); } BEGIN { raise(0); exit(0); }"]).code(0);
    let said = |epid: u32| {
        format!(
            "dtrace: error on enabled probe ID {epid} (ID 1: dtrace:::BEGIN): illegal operation in action #1 at DIF offset 1\n"
        )
    };
    assert_eq!(o.err, said(1) + &said(2));
    Pass
}

fn stop_stops_the_current_process() -> Verdict {
    let o = dtrace(&[
        "-wq",
        "-xswitchrate=20ms",
        "-c",
        &workload("getppid", 1000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { n++; } syscall::getppid:entry /pid == $target && n == 5/ { stop(); } \
         tick-100ms /n == 5 && !seen++/ { printf(\"%d \", n); \
         system(\"until grep -q 'State:.T' /proc/%d/status; do sleep 0.05; done; echo stopped\", $target); \
         system(\"kill -CONT %d\", $target); } END { printf(\"%d\", n); }",
    ])
    .code(0);
    assert_eq!(o.out, "5 stopped\n1000\n", "{o:?}");
    Pass
}

fn chill_spins_for_the_given_time() -> Verdict {
    // All clauses of a firing share one reading of the clock, so the end is another probe's.
    let text = "BEGIN { t = timestamp; chill(20000000); exit(0); } END { printf(\"%d\", timestamp - t); }";
    let o = dtrace(&["-wqn", text]).code(0);
    let held: u64 = o.out.trim().parse().unwrap();
    assert!(held >= 20_000_000, "{o:?}");
    assert_eq!(o.err, "");
    Pass
}

fn chill_beyond_its_budget_faults() -> Verdict {
    let text = "BEGIN { chill(0); } BEGIN { chill(500000001); } BEGIN { chill(-1); } BEGIN { exit(0); }";
    let o = dtrace(&["-wqn", text]).code(0);
    let said = |epid: u32| {
        format!(
            "dtrace: error on enabled probe ID {epid} (ID 1: dtrace:::BEGIN): illegal operation in action #1 at DIF offset 1\n"
        )
    };
    assert_eq!(o.err, said(2) + &said(3));
    // Together they exceed the time for which the CPU may be held in a second. All clauses of BEGIN
    // run on one CPU.
    let text =
        "BEGIN { chill(260000000); } BEGIN { chill(260000000); } BEGIN { chill(1); } BEGIN { exit(0); }";
    eventually("a run without a pause", LIMIT, || {
        let begun = Instant::now();
        let o = dtrace(&["-wqn", text]).code(0);
        // If the machine pauses between the two, a new second begins.
        let paused = o.err.is_empty() && begun.elapsed() >= Duration::from_secs(1);
        assert!(o.err == said(2) || paused, "{o:?}");
        !paused
    });
    Pass
}

fn actions_that_linux_lacks_are_rejected_by_name() -> Verdict {
    for call in ["panic()", "breakpoint()"] {
        let o = dtrace(&["-wn", &format!("BEGIN {{ {call}; }}")]).code(1);
        let name = call.split('(').next().unwrap_or_default();
        assert!(o.err.contains(&format!("{name}() is not available on Linux\n")), "{o:?}");
    }
    Pass
}

fn jstack_prints_a_user_stack_with_its_own_defaults() -> Verdict {
    let run = |options: &[&str], clause: &str| {
        let program = format!("syscall::getppid:entry /pid == $target && !n++/ {{ {clause} }}");
        // Its frames are its own: whether a library's frame pointer points to one is a matter of
        // luck.
        let work = workload("stacks", 1);
        let mut words = vec!["-q", BY_POINTERS];
        words.extend(options);
        words.extend(["-c", work.as_str(), "-n", program.as_str()]);
        dtrace(&words).code(0).out
    };
    let out = run(&[], "printf(\"%k|%k\", jstack(9), ustack(9));");
    let (j, u) = out.trim_end_matches('\n').split_once('|').unwrap_or_default();
    assert_eq!(j.trim_end(), u.trim_end(), "{out}");
    // All frames, unless the option for jstack limits them.
    let all = run(&[], "jstack();").trim().lines().count();
    assert_eq!(all, 3);
    assert_eq!(run(&["-xustackframes=1"], "jstack();").trim().lines().count(), all);
    assert_eq!(run(&["-xjstackframes=1"], "jstack();").trim().lines().count(), 1);
    // The count follows in the next line.
    let keyed = run(&["-xjstackframes=9"], "@[jstack(1, 100)] = count(); exit(0);");
    assert_eq!(keyed.trim().lines().count(), 2, "{keyed}");
    Pass
}

fn agghist_and_aggpack_print_aggregations_as_histograms() -> Verdict {
    let text = "BEGIN { @[\"demerit\"] = sum(-10); @[\"wtf\"] = sum(10); @[\"bot\"] = sum(20); printa(@); \
                setopt(\"aggzoom\"); printa(@); exit(0); }";
    let o = dtrace(&["-qn", text, "-xagghist"]).code(0);
    let expected = "\n
              key  ------------- Distribution ------------- count    
          demerit                @@@@@|                     -10      
              wtf                     |@@@@@                10       
              bot                     |@@@@@@@@@@           20       
\n
              key  ------------- Distribution ------------- count    
          demerit           @@@@@@@@@@|                     -10      
              wtf                     |@@@@@@@@@@           10       
              bot                     |@@@@@@@@@@@@@@@@@@@  20       
\n";
    assert_eq!(o.out, expected);
    let text = "BEGIN { @x = quantize(1 << 32); @y[1] = quantize(1); @z[\"mumble\"] = quantize(1); \
                @xx[\"foo\", (char)1, (short)2, (long)3] = quantize(1); @neg = lquantize(-10, -10, 20, 1, -1); \
                @neg = lquantize(-5, -10, 20, 1, 1); @neg = lquantize(0, -10, 20, 1, 1); exit(0); } \
                END { setopt(\"aggzoom\", \"true\"); printa(@neg); setopt(\"aggzoom\", \"false\"); printa(@neg); }";
    let o = dtrace(&["-qn", text, "-xaggpack"]).code(0);
    let expected = "\n
     min .--------------------------------. max      | count
   < -10 : V    X    X                    : >= 20    | 1
\n
     min .--------------------------------. max      | count
   < -10 : v    x    x                    : >= 20    | 1
\n
        min .---. max        | count
 2147483648 : X : 8589934592 | 1

      key  min .---. max  | count
        1    0 : X : 2    | 1

              key  min .---. max  | count
           mumble    0 : X : 2    | 1

                                         key  min .---. max  | count
              foo   1     2                3    0 : X : 2    | 1
";
    assert_eq!(o.out, expected);
    Pass
}
