//! Buffer policies, sizes, and tracing of one CPU: what is recorded, dropped and printed.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_clock;
use crate::tool::{Output, cpus, dtrace, finish, printed, start, workload};

tests! {
    a_full_ring_ends_tracing_by_policy_fill a_full_ring_of_one_of_many_cpus_ends_tracing_exactly
    nothing_is_printed_before_the_end_by_policy_fill end_has_space_after_a_full_ring
    a_begin_that_fills_its_ring_is_followed_by_end_alone faults_fill_a_ring_too
    exit_and_the_end_of_a_target_end_a_session_that_fills
    a_ring_keeps_the_newest_records rings_of_all_cpus_keep_the_newest_records_in_the_order_of_time
    end_neither_overwrites_nor_is_overwritten end_has_space_for_all_its_records_whatever_bufsize_says exit_ends_a_flood_that_is_overwritten
    faults_are_overwritten_too records_of_divided_programs_are_whole_by_each_policy
    records_of_a_speculation_whose_commit_was_overwritten_are_drops
    committed_speculations_are_in_rings_that_are_read_at_the_end
    a_policy_is_set_by_a_pragma_and_not_while_tracing
    a_session_of_one_cpu_records_what_happens_there_exactly
    clocks_of_a_session_of_one_cpu_fire_there
    begin_and_end_fire_in_a_session_of_one_cpu a_cpu_that_is_not_online_is_an_error
    a_buffer_that_does_not_fit_is_halved_or_an_error
    a_buffer_that_holds_no_record_is_refused
}

/// The numbers of the lines that have one.
fn numbers(o: &Output) -> Vec<u64> {
    o.out.lines().filter_map(|l| l.trim().parse().ok()).collect()
}

/// The sum of the principal drops that were reported.
fn drops(o: &Output) -> u64 {
    let count = |l: &str| l.strip_prefix("dtrace: ")?.split_once(" drop")?.0.parse::<u64>().ok();
    o.err.lines().filter(|l| l.contains(" on CPU ")).filter_map(count).sum()
}

/// A firing is counted before it is recorded.
const COUNTED: &str = "syscall::getppid:entry /pid == $target || ppid == $target/ { @fired = count(); } \
     syscall::getppid:entry /pid == $target || ppid == $target/ { printf(\"%d\\n\", n++); } \
     END { printa(\"fired %@d\\n\", @fired); }";

fn fired(o: &Output) -> u64 {
    o.value_of("fired") as u64
}

fn a_full_ring_ends_tracing_by_policy_fill() -> Verdict {
    let target = workload("pinned", 100_000);
    let o = dtrace(&["-q", "-b", "16k", "-x", "bufpolicy=fill", "-c", &target, "-n", COUNTED]).code(0);
    let all = numbers(&o);
    // The first records, and nothing behind them.
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    // A record has 24 bytes and a word.
    assert_eq!(all.len(), (16 << 10) / 32, "{}", o.err);
    assert_eq!(all.len() as u64 + drops(&o), fired(&o), "{}", o.err);
    // The first drop ends tracing.
    assert_eq!(drops(&o), 1, "{}", o.err);
    Pass
}

fn a_full_ring_of_one_of_many_cpus_ends_tracing_exactly() -> Verdict {
    for size in ["4k", "64k", "1m"] {
        let script = format!(
            "{COUNTED} profile-4999hz {{ @fired = count(); }} profile-4999hz {{ printf(\"%d\\n\", n++); }}"
        );
        let target = workload("processes", 100_000);
        let script = if no_clock().is_some() { COUNTED } else { &script };
        let o = dtrace(&["-q", "-b", size, "-x", "bufpolicy=fill", "-c", &target, "-n", script]).code(0);
        let recorded = numbers(&o).len() as u64;
        assert!(drops(&o) > 0, "{size}: {}", o.err);
        assert_eq!(recorded + drops(&o), fired(&o), "{size}: {}", o.err);
    }
    Pass
}

/// END's clauses run before the end prints: until then the tracer has not written the row of BEGIN.
fn nothing_is_printed_before_the_end_by_policy_fill() -> Verdict {
    let script = "int ticks; BEGIN { printf(\"begin\\n\"); } syscall::write:entry /pid == $pid/ { shown += index(copyinstr(arg1, 16), \"begin\") == 0; } \
                  tick-10ms /++ticks == 1/ { printf(\"row\\n\"); } tick-10ms /ticks == 50/ { exit(0); } \
                  END { printf(\"shown %d\\n\", shown); }";
    for (policy, shown) in [("fill", 0), ("switch", 1)] {
        let policy = format!("bufpolicy={policy}");
        let o = dtrace(&["-q", "-x", &policy, "-x", "switchrate=1ms", "-n", script]).code(0);
        assert_eq!(o.out.trim_end(), format!("begin\nrow\nshown {shown}"), "{o:?}");
    }
    Pass
}

fn end_has_space_after_a_full_ring() -> Verdict {
    // The records of END, and a pad, take nearly the whole ring.
    let target = workload("pinned", 10_000);
    let script = "syscall::getppid:entry /pid == $target/ { printf(\"%d\\n\", n++); } \
         END { printf(\"%s|\\n\", strjoin(\"e\", \"n\")); } END { printf(\"%s|\\n\", strjoin(\"d\", \"\")); }";
    let words = ["-q", "-b", "8k", "-x", "strsize=1900", "-x", "bufpolicy=fill", "-c", &target, "-n", script];
    let o = dtrace(&words).code(0);
    assert!(o.out.trim_end().ends_with("\nen|\nd|"), "{o:?}");
    assert_eq!(
        (numbers(&o).len(), o.err.as_str()),
        (256, "dtrace: 1 drop on CPU 0\n".replace('0', cpu_of(&o)).as_str())
    );
    Pass
}

/// The CPU of the first drop.
fn cpu_of(o: &Output) -> &str {
    o.err.lines().next().and_then(|l| l.split_whitespace().last()).unwrap_or("0")
}

fn a_begin_that_fills_its_ring_is_followed_by_end_alone() -> Verdict {
    let one = "BEGIN { printf(\"%s\\n\", strjoin(\"a\", \"b\")); }";
    let script = format!(
        "{one} {one} {one} {one} syscall:::entry {{ printf(\"not this\\n\"); }} END {{ printf(\"end\\n\"); }}"
    );
    let words = ["-q", "-b", "4k", "-x", "strsize=1900", "-x", "bufpolicy=fill", "-n", &script];
    let o = dtrace(&words).code(0);
    assert_eq!(o.out, "ab\nab\nend\n\n", "{o:?}");
    assert_eq!(drops(&o), 2, "{o:?}");
    Pass
}

fn faults_fill_a_ring_too() -> Verdict {
    let target = workload("pinned", 10_000);
    let script = "syscall::getppid:entry /pid == $target/ { @ = count(); } \
         syscall::getppid:entry /pid == $target/ { trace(*(int *)0); } END { printa(\"fired %@d\\n\", @); }";
    let o = dtrace(&[
        "-q",
        "-b",
        "4k",
        "-x",
        "faultlines=all",
        "-x",
        "bufpolicy=fill",
        "-c",
        &target,
        "-n",
        script,
    ])
    .code(0);
    let faults = o.err.lines().filter(|l| l.contains("error on enabled probe")).count() as u64;
    assert!(faults > 10 && drops(&o) > 0, "{o:?}");
    // Of a fault that finds no space for its message, the record of the clause may have found it.
    assert_eq!(faults + drops(&o), fired(&o), "{o:?}");
    Pass
}

fn exit_and_the_end_of_a_target_end_a_session_that_fills() -> Verdict {
    let target = workload("getppid", 100);
    let o = dtrace(&["-q", "-x", "bufpolicy=fill", "-c", &target, "-n", COUNTED]).code(0);
    assert_eq!((numbers(&o).len(), fired(&o), o.err.as_str()), (100, 100, ""));
    let script = "BEGIN { printf(\"1\\n\"); exit(7); } END { printf(\"2\\n\"); }";
    let o = dtrace(&["-q", "-x", "bufpolicy=fill", "-n", script]).code(7);
    assert_eq!(o.out, "1\n2\n\n");
    let script = "syscall::getppid:entry /pid == $target && ++n == 50/ { trace(n); exit(3); }";
    let o =
        dtrace(&["-q", "-b", "4k", "-x", "bufpolicy=fill", "-c", &workload("getppid", 1000), "-n", script])
            .code(3);
    assert_eq!(o.out, "50\n");
    Pass
}

/// The bytes of a row of a number.
const ROW: u64 = 32;

/// The rows are the last ones of `total`, and as many as a ring of so many bytes has.
#[track_caller]
fn newest(rows: &[u64], total: u64, bytes: u64) {
    assert_eq!(rows, (total - rows.len() as u64..total).collect::<Vec<_>>(), "of {total}");
    let full = bytes / ROW;
    let least = (full - full / 8).min(total);
    assert!((least..=full).contains(&(rows.len() as u64)), "{} rows of {total}", rows.len());
}

fn a_ring_keeps_the_newest_records() -> Verdict {
    for (size, bytes, calls) in [("4k", 4 << 10, 100_000), ("64k", 64 << 10, 100_003), ("1m", 1 << 20, 1000)]
    {
        let words = ["-q", "-b", size, "-x", "bufpolicy=ring", "-x", "switchrate=1ms"];
        let target = workload("pinned", calls);
        let script = "syscall::getppid:entry /pid == $target/ { printf(\"%d\\n\", n++); }";
        let o = dtrace(&[&words[..], &["-c", &target, "-n", script]].concat()).code(0);
        newest(&numbers(&o), calls.into(), bytes);
        // What is overwritten is no drop.
        assert_eq!(o.err, "", "{size}");
    }
    Pass
}

fn rings_of_all_cpus_keep_the_newest_records_in_the_order_of_time() -> Verdict {
    const CALLS: u32 = 50_000;
    let clock = match no_clock() {
        Some(_) => "",
        None => {
            "profile-4999hz { @fired[cpu + 1000] = count(); } profile-4999hz { printf(\"row %d %d %d\\n\", timestamp, cpu + 1000, t[cpu]++); }"
        }
    };
    let script = format!(
        "syscall::getppid:entry /ppid == $target/ {{ @fired[cpu] = count(); }} \
         syscall::getppid:entry /ppid == $target/ {{ printf(\"row %d %d %d\\n\", timestamp, cpu, c[cpu]++); }} {clock} \
         END {{ printa(\"fired %d %@d\\n\", @fired); }}"
    );
    let target = workload("processes", CALLS);
    let o = dtrace(&["-q", "-b", "64k", "-x", "bufpolicy=ring", "-c", &target, "-n", &script]).code(0);
    let number = |w: &str| w.parse::<u64>().unwrap();
    let words = |key| {
        o.out
            .lines()
            .filter_map(move |l| l.strip_prefix(key))
            .map(move |l| l.split(' ').map(number).collect::<Vec<_>>())
    };
    let rows: Vec<Vec<u64>> = words("row ").collect();
    assert!(rows.is_sorted_by_key(|r| r[0]), "{} rows", rows.len());
    let mut calls = 0;
    for fired in words("fired ") {
        let [key, total] = fired[..] else { panic!("{fired:?}") };
        let of: Vec<u64> = rows.iter().filter(|r| r[1] == key).map(|r| r[2]).collect();
        assert_eq!(
            of,
            (total - drops(&o) - of.len() as u64..total - drops(&o)).collect::<Vec<_>>(),
            "{key} {}",
            o.err
        );
        calls += if key < 1000 { total } else { 0 };
    }
    // An emulated machine suppresses firings of the clock.
    assert_eq!((calls, drops(&o)), (4 * u64::from(CALLS), 0), "{}", o.err);
    // A ring of 64 KiB has some 1300 rows.
    assert!(rows.len() > 1000, "{}", rows.len());
    Pass
}

fn end_neither_overwrites_nor_is_overwritten() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { printf(\"%d\\n\", n++); } \
         END { printf(\"%s %d|\\n\", strjoin(\"e\", \"n\"), n); } END { printf(\"%s|\\n\", strjoin(\"d\", \"\")); }";
    let words = ["-q", "-b", "16k", "-x", "strsize=1900", "-x", "bufpolicy=ring"];
    let o = dtrace(&[&words[..], &["-c", &workload("pinned", 10_000), "-n", script]].concat()).code(0);
    newest(&numbers(&o), 10_000, 16 << 10);
    assert!(o.out.ends_with("\n9999\nen 10000|\nd|\n\n") && o.err.is_empty(), "{o:?}");
    Pass
}

fn exit_ends_a_flood_that_is_overwritten() -> Verdict {
    let script = "BEGIN { printf(\"0\\n\"); } syscall::getppid:entry /pid == $target/ { printf(\"%d\\n\", ++n); } \
         syscall::getppid:entry /pid == $target && n == 5000/ { exit(3); } END { printf(\"end\\n\"); }";
    let words = ["-q", "-b", "4k", "-x", "bufpolicy=ring", "-c"];
    let o = dtrace(&[&words[..], &[&workload("pinned", 100_000), "-n", script]].concat()).code(3);
    assert!(o.out.ends_with("\n4999\n5000\nend\n\n") && o.err.is_empty(), "{o:?}");
    let o = dtrace(&[&words[..], &[&workload("getppid", 3), "-n", script]].concat()).code(0);
    assert_eq!(o.out, "0\n1\n2\n3\nend\n\n");
    Pass
}

fn faults_are_overwritten_too() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { trace(*(int *)0); } \
         syscall::getppid:entry /pid == $target && ++n == 5000/ { printf(\"last\\n\"); }";
    let words = [
        "-q",
        "-b",
        "4k",
        "-x",
        "bufpolicy=ring",
        "-x",
        "faultlines=all",
        "-c",
        &workload("pinned", 5000),
        "-n",
        script,
    ];
    let o = dtrace(&words).code(0);
    assert_eq!(o.out.trim(), "last");
    let faults = o.err.lines().filter(|l| l.contains("error on enabled probe")).count();
    // The clause's own record, which is discarded, takes space too.
    assert!((30..=102).contains(&faults) && drops(&o) == 0, "{faults}: {}", o.err);
    Pass
}

fn records_of_divided_programs_are_whole_by_each_policy() -> Verdict {
    let sums: String = (0..300).map(|i| format!("x += y * {i}; ")).collect();
    let traces: String = (0..40).map(|i| format!("printf(\"%d \", i % {}); ", i + 1)).collect();
    let many: String = (0..60)
        .map(|i| format!("syscall::getppid:entry /pid == $target/ {{ printf(\"{i} %s\\n\", i % 2 ? \"odd\" : \"evenly\"); }} "))
        .collect();
    let script = format!(
        "BEGIN {{ y = 1; }} syscall::getppid:entry /pid == $target/ {{ {sums} i++; {traces} {sums} printf(\"%d\\n\", i); }} {many}"
    );
    let row = |i: u64| (1..=40).map(|n| format!("{} ", i % n)).collect::<String>() + &i.to_string();
    let group = |i: u64| {
        let word = if i % 2 == 1 { "odd" } else { "evenly" };
        [vec![row(i)], (0..60).map(|n| format!("{n} {word}")).collect()].concat()
    };
    for (policy, calls) in [("fill", 3000), ("ring", 3000), ("switch", 10)] {
        let option = format!("bufpolicy={policy}");
        let words = ["-q", "-b", "256k", "-x", &option, "-c", &workload("pinned", calls), "-n", &script];
        let o = dtrace(&words).code(0);
        let lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
        let all = || (1..=u64::from(calls)).flat_map(group);
        match policy {
            "ring" => {
                assert_eq!((o.err.as_str(), lines.len() > 700), ("", true), "{}", lines.len());
                assert!(all().skip(61 * calls as usize - lines.len()).eq(lines.iter().copied()), "{policy}");
            }
            _ => assert!(all().take(lines.len()).eq(lines.iter().copied()) && lines.len() >= 610, "{policy}"),
        }
    }
    Pass
}

fn committed_speculations_are_in_rings_that_are_read_at_the_end() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { s = speculation(); n++; } \
         syscall::getppid:entry /pid == $target/ { speculate(s); printf(\"%d\\n\", n); } \
         syscall::getppid:entry /pid == $target && n % 10 == 0/ { commit(s); s = 0; } \
         syscall::getppid:entry /pid == $target/ { discard(s); }";
    for policy in ["fill", "ring"] {
        let option = format!("bufpolicy={policy}");
        let words = [
            "-q",
            "-x",
            "nspec=1024",
            "-x",
            "specsize=4k",
            "-x",
            &option,
            "-c",
            &workload("pinned", 1000),
            "-n",
            script,
        ];
        let o = dtrace(&words).code(0);
        assert_eq!(numbers(&o), (1..=100).map(|n| 10 * n).collect::<Vec<_>>(), "{policy}: {}", o.err);
        assert_eq!(o.err, "", "{policy}");
    }
    Pass
}

/// Ten speculations of three records each are committed, then what follows overwrites the commits.
fn records_of_a_speculation_whose_commit_was_overwritten_are_drops() -> Verdict {
    let script = "int n; syscall::getppid:entry /pid == $target && n < 30 && n % 3 == 0/ { s = speculation(); } \
         syscall::getppid:entry /pid == $target && n < 30/ { speculate(s); printf(\"speculated %d\\n\", n); } \
         syscall::getppid:entry /pid == $target && n < 30 && n % 3 == 2/ { commit(s); s = 0; } \
         syscall::getppid:entry /pid == $target/ { n++; } \
         syscall::getppid:entry /pid == $target && n > 30/ { printf(\"%d\\n\", n); }";
    let target = workload("pinned", 2000);
    let words = ["-q", "-b", "4k", "-x", "bufpolicy=ring", "-x", "nspec=16", "-c", &target, "-n", script];
    let o = dtrace(&words).code(0);
    assert!(!o.out.contains("speculated") && o.out.ends_with("2000\n\n"), "{o:?}");
    let drops = |l: &str| l.strip_prefix("dtrace: ")?.split_once(" speculative drop")?.0.parse::<u64>().ok();
    assert_eq!(o.err.lines().filter_map(drops).sum::<u64>(), 30, "{o:?}");
    Pass
}

fn a_policy_is_set_by_a_pragma_and_not_while_tracing() -> Verdict {
    let script = format!("#pragma D option bufpolicy=fill\n#pragma D option bufsize=4k\n{COUNTED}");
    let o = dtrace(&["-q", "-c", &workload("pinned", 10_000), "-n", &script]).code(0);
    assert_eq!((numbers(&o).len(), drops(&o)), (128, 1), "{o:?}");
    let o = dtrace(&["-qn", "BEGIN { setopt(\"bufpolicy\", \"fill\"); exit(0); }"]);
    assert!(o.err.contains("bufpolicy"), "{o:?}");
    Pass
}

fn a_session_of_one_cpu_records_what_happens_there_exactly() -> Verdict {
    let &[first, second, ..] = &cpus()[..] else { return Skip("one CPU".into()) };
    let target = workload("hop", 1000);
    let script = "syscall::sched_setaffinity:entry /pid == $target/ { @[cpu] = count(); printf(\"%d\\n\", cpu); } \
         syscall::sched_setaffinity:entry /pid == $target/ { @all = count(); } END { printa(\"all %@d\\n\", @all); }";
    for cpu in [first, second] {
        let option = format!("cpu={cpu}");
        let o = dtrace(&["-q", "-x", &option, "-c", &target, "-n", script]);
        if o.code == Some(77) {
            return Skip("threads cannot be moved to another CPU here".into());
        }
        let o = o.code(0);
        // The calls visit the two CPUs in turn; the first call is where the process began.
        let all = o.value_of("all");
        assert!((500..=501).contains(&all), "{o:?}");
        let rows: Vec<u64> = numbers(&o);
        assert_eq!(rows, vec![cpu as u64; all as usize], "{o:?}");
        let keys: Vec<&str> = o.out.lines().filter(|l| l.split_whitespace().count() == 2).collect();
        assert!(
            keys.iter().any(|l| l
                .split_whitespace()
                .eq([cpu.to_string(), all.to_string()].iter().map(String::as_str))),
            "{o:?}"
        );
        assert_eq!(keys.len(), 2, "{o:?}");
    }
    Pass
}

fn clocks_of_a_session_of_one_cpu_fire_there() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    for cpu in cpus().into_iter().take(2) {
        let option = format!("cpu={cpu}");
        let script = "profile-997hz { @p[cpu] = count(); } tick-499hz { @t[cpu] = count(); } \
             tick-10ms /++n == 20/ { exit(0); } \
             END { printa(\"profile %d %@d\\n\", @p); printa(\"tick %d %@d\\n\", @t); }";
        // Some kernels run no program of a clock on an idle CPU.
        let busy = format!("exec {}", workload("occupies", cpu as u32));
        let mut busy = std::process::Command::new("sh").args(["-c", &busy]).spawn().unwrap();
        let o = dtrace(&["-q", "-x", &option, "-n", script]);
        busy.kill().unwrap();
        busy.wait().unwrap();
        let o = o.code(0);
        let lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
        assert_eq!(lines.len(), 2, "{o:?}");
        for (line, name) in lines.iter().zip(["profile", "tick"]) {
            assert!(line.starts_with(&format!("{name} {cpu} ")), "{o:?}");
        }
        assert!(o.value_of("profile") > 10, "{o:?}");
    }
    Pass
}

fn begin_and_end_fire_in_a_session_of_one_cpu() -> Verdict {
    for cpu in cpus().into_iter().take(2) {
        let option = format!("cpu={cpu}");
        let script = "BEGIN { printf(\"begin\\n\"); } END { printf(\"end\\n\"); } BEGIN { exit(2); }";
        let o = dtrace(&["-q", "-x", &option, "-n", script]).code(2);
        assert_eq!(o.out, "begin\nend\n\n");
    }
    Pass
}

fn a_cpu_that_is_not_online_is_an_error() -> Verdict {
    let o = dtrace(&["-x", "cpu=4095", "-n", "BEGIN"]).code(1);
    assert_eq!(o.err, "dtrace: failed to set option 'cpu': there is no CPU 4095 online\n");
    let o = dtrace(&["-n", "#pragma D option cpu=4095\nBEGIN"]).code(1);
    assert_eq!(o.err, "dtrace: failed to set option 'cpu': there is no CPU 4095 online\n");
    let o = dtrace(&["-xerrtags", "-n", "#pragma D option cpu=-1\nBEGIN"]).code(1);
    assert!(o.err.contains("[D_PRAGMA_OPTSET] failed to set option 'cpu' to '-1': Invalid value"), "{o:?}");
    Pass
}

fn end_has_space_for_all_its_records_whatever_bufsize_says() -> Verdict {
    const ALL: usize = 20;
    let clause = |n| format!("END {{ printf(\"end %d %s\\n\", {n}, strjoin(\"a\", execname)); }} ");
    let end: String = (0..ALL).map(clause).collect();
    for (begin, policy) in ["BEGIN { exit(0); }", "syscall:::entry { exit(0); }"]
        .into_iter()
        .flat_map(|begin| ["switch", "fill", "ring"].map(|policy| (begin, policy)))
    {
        let policy = format!("bufpolicy={policy}");
        let script = format!("{begin} {end}");
        let o = dtrace(&["-q", "-b", "4100", "-x", "strsize=4000", "-x", &policy, "-n", &script]).code(0);
        assert!(!o.err.contains("drop"), "{begin} {policy}: {}", o.err);
        let rows: Vec<String> = (0..ALL).map(|n| format!("end {n} adtrace")).collect();
        let printed: Vec<&str> = o.out.lines().filter(|l| l.starts_with("end ")).collect();
        assert_eq!(printed, rows, "{begin} {policy}");
    }
    Pass
}

/// As in the original: what is enabled must fit the buffer that was asked for, not the larger one
/// that there is.
fn a_buffer_that_holds_no_record_is_refused() -> Verdict {
    for (size, script) in [
        ("0", "BEGIN { exit(0); }"),
        ("1", "BEGIN { exit(0); }"),
        ("15", "BEGIN { exit(0); }"),
        ("64", "BEGIN { exit(0); } tick-1hz { trace(strjoin(execname, \"x\")); }"),
    ] {
        for policy in ["switch", "fill", "ring"] {
            let option = format!("bufpolicy={policy}");
            let o = dtrace(&["-q", "-b", size, "-x", &option, "-n", script]).code(1);
            let says = "dtrace: could not enable tracing: Enabling exceeds size of buffer\n";
            assert_eq!((&*o.out, &*o.err), ("", says), "{size} {policy} {script}");
        }
    }
    // The buffer of aggregations is asked too.
    for (size, code) in [("8", 1), ("64k", 0)] {
        let o =
            dtrace(&["-qx", &format!("aggsize={size}"), "-n", "BEGIN { @ = count(); exit(0); }"]).code(code);
        assert_eq!(o.err.contains("Enabling exceeds size of buffer"), code == 1, "{size} {o:?}");
    }
    for size in ["16", "28", "32"] {
        for policy in ["switch", "fill", "ring"] {
            let option = format!("bufpolicy={policy}");
            let o = dtrace(&[
                "-q",
                "-b",
                size,
                "-x",
                &option,
                "-n",
                "BEGIN { trace(7); }",
                "-n",
                "END { trace(8); }",
                "-n",
                "BEGIN { exit(0); }",
            ])
            .code(0);
            assert_eq!((o.out.trim_end(), &*o.err), ("78", ""), "{size} {policy}");
        }
    }
    // What records nothing needs none.
    let o = dtrace(&[
        "-q",
        "-b",
        "0",
        "-c",
        &workload("getppid", 5),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @ = count(); }",
    ]);
    assert_eq!(o.code(0).last_number(), 5);
    Pass
}

fn a_buffer_that_does_not_fit_is_halved_or_an_error() -> Verdict {
    let script = "BEGIN { printf(\"begin\\n\"); } syscall::getppid:entry /pid == $target/ { trace(1); }";
    let target = workload("getppid", 10);
    for policy in ["switch", "fill", "ring"] {
        let option = format!("bufpolicy={policy}");
        let words = ["-q", "-b", "1t", "-x", &option, "-c", &target, "-n", script];
        let mut child = start(&words);
        printed(&mut child);
        let o = finish(child).code(0);
        assert_eq!(o.out, "begin\n1111111111\n", "{o:?}");
        assert!(o.err.starts_with("dtrace: buffer size lowered to "), "{o:?}");
        let o = dtrace(&[&words[..], &["-x", "bufresize=manual"]].concat()).code(1);
        assert!(
            o.out.is_empty() && o.err.contains("a buffer has 256m at most (bufresize is manual)"),
            "{o:?}"
        );
    }
    Pass
}
