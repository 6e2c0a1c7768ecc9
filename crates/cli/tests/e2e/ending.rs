//! How a session ends: `exit()` in every place, signals at every moment, outputs that cannot be
//! written; and what the actions on the output do until then, in the order of the records.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::tool::{LIMIT, Output, cpu_time, dtrace, finish, printed, signal, start, under, unread, workload};

tests! {
    exit_is_not_lost_in_a_full_buffer exits_on_all_cpus_end_a_flood
    a_target_does_not_inherit_an_ignored_sigpipe
    the_status_is_that_of_the_first_exit_or_of_end_and_never_that_of_the_target
    each_signal_ends_a_flood_with_its_results an_ignored_signal_stays_ignored
    a_signal_at_any_moment_ends_the_session
    effects_of_a_clause_are_in_order effects_of_all_cpus_are_in_the_order_of_the_records
    options_that_change_the_layout_apply_within_a_row
    an_output_that_cannot_be_written_ends_the_session
}

/// A script whose one firing records more than its buffer of 4 KB takes.
fn overflow(last: &str) -> String {
    let clause = "syscall::getppid:entry /pid == $1/";
    format!("{} {clause} {{ {last} }}", format!("{clause} {{ trace(1); }} ").repeat(200))
}

/// The consumer executes a command of BEGIN while the target fires, so it reads nothing of the
/// firing meanwhile.
fn exit_is_not_lost_in_a_full_buffer() -> Verdict {
    for (last, ends, code) in [("printf(\"leaving\"); exit(3);", true, 3), ("printf(\"staying\");", false, 0)]
    {
        let over = file("over");
        let wait = format!("echo begun; until [ -e {} ]; do sleep 0.01; done", over.display());
        let script =
            format!("BEGIN {{ system(\"{wait}\"); }} {} END {{ printf(\"|end\"); }}", overflow(last));
        let calls = format!("read line; exec {}", workload("getppid", 1));
        let mut target = Command::new("sh").args(["-c", &calls]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = target.id().to_string();
        // Not by -p: that process would wait for its tracer.
        let mut tracer = start(&["-wq", "-b", "4k", "-n", &script, &pid]);
        printed(&mut tracer);
        drop(target.stdin.take());
        target.wait().unwrap();
        std::fs::write(&over, "").unwrap();
        if !ends {
            signal(&tracer, libc::SIGINT);
        }
        let o = finish(tracer).code(code);
        let _ = std::fs::remove_file(&over);
        // The newline after it is that of the signal.
        let rows = o.out.strip_prefix("begun\n").unwrap().trim_start_matches('\n');
        let (ones, rest) = rows.split_at(rows.find(|c| c != '1').unwrap());
        let dropped = 201 - ones.len() - usize::from(rest.contains("ing|"));
        // Of 200 records and the last one, 4096 bytes take less than 128.
        assert!((100..=128).contains(&ones.len()), "{o:?}");
        assert!(!ends || rest == "leaving|end\n", "{o:?}");
        assert!(o.err.contains(&format!("dtrace: {dropped} drop")), "{o:?}");
    }
    Pass
}

fn exits_on_all_cpus_end_a_flood() -> Verdict {
    // Four processes, each of whose firings overflows the buffer of its CPU.
    let clause = "syscall::getppid:entry /ppid == $target/";
    let script = format!(
        "{} {clause} {{ n++; }} syscall::getppid:entry /ppid == $target && n > 100/ \
         {{ printf(\"%d|\", cpu); exit(cpu + 10); }} END {{ printf(\"end\"); }}",
        format!("{clause} {{ printf(\"x\"); }} ").repeat(130)
    );
    let o = dtrace(&["-q", "-b", "4k", "-n", &script, "-c", &workload("processes", 52_000)]);
    assert!(o.err.contains(" drops on CPU "), "{}", o.err);
    let rows: Vec<&str> = o.out.split('|').map(|row| row.trim_start_matches('x')).collect();
    let (end, exits) = rows.split_last().unwrap();
    // Only firings that had begun come after the first exit().
    assert!(
        *end == "end\n" && (1..=std::thread::available_parallelism().unwrap().get()).contains(&exits.len())
    );
    // The status is that of the first exit(). Of two CPUs that are in one at the same time, either
    // may be first.
    let is_of = |cpu: &&str| o.code == cpu.parse::<i32>().ok().map(|cpu| cpu + 10);
    assert!(exits.iter().any(is_of), "{exits:?} {:?} {}", o.code, o.err);
    Pass
}

fn a_target_does_not_inherit_an_ignored_sigpipe() -> Verdict {
    let ignored = |out: &str| {
        let line = out.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap_or_default();
        u64::from_str_radix(line.trim(), 16).unwrap_or(u64::MAX) >> (libc::SIGPIPE - 1) & 1
    };
    let o = dtrace(&["-q", "-c", "grep SigIgn /proc/self/status", "-n", "BEGIN"]).code(0);
    assert_eq!(ignored(&o.out), 0, "{o:?}");
    let o = dtrace(&["-wqn", "BEGIN { system(\"grep SigIgn /proc/self/status\"); exit(0); }"]).code(0);
    assert_eq!(ignored(&o.out), 0, "{o:?}");
    Pass
}

fn the_status_is_that_of_the_first_exit_or_of_end_and_never_that_of_the_target() -> Verdict {
    for (program, target, status) in [
        ("BEGIN { exit(300); }", None, 300 & 255),
        ("BEGIN { exit(-1); }", None, 255),
        ("BEGIN { exit(1); } END { exit(2); } END { exit(3); }", None, 3),
        ("BEGIN { exit(1); exit(2); }", None, 1),
        ("BEGIN", Some("false"), 0),
        ("BEGIN { exit(4); }", Some("false"), 4),
        ("END { exit(5); }", Some("false"), 5),
        ("syscall::exit_group:entry /pid == $target/ { exit(6); }", Some("false"), 6),
    ] {
        for format in ["text", "json"] {
            let mut words = vec!["-q", "--format", format, "-n", program];
            words.extend(target.iter().flat_map(|target| ["-c", target]));
            let o = dtrace(&words).code(status);
            assert_eq!(
                o.out.contains("{\"event\":\"end\",\"status\":"),
                format == "json",
                "{program}: {o:?}"
            );
        }
    }
    Pass
}

/// Sends a signal, and gives what the run left. How long the end takes is a figure of the
/// benchmarks.
#[track_caller]
fn ended_by(child: Child, number: i32) -> Output {
    signal(&child, number);
    finish(child)
}

/// Two processes that call getppid() until the end of the test.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Load {
        let me = std::env::current_exe().unwrap();
        let calls = ["--workload", "getppid", &u32::MAX.to_string()];
        let start = |_| Command::new(&me).args(calls).spawn().unwrap();
        Load((0..2).map(start).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn each_signal_ends_a_flood_with_its_results() -> Verdict {
    let script = "BEGIN { printf(\"begun\\n\"); } END { printf(\"ended\\n\"); } \
                  syscall:::entry { @[probename] = count(); } syscall::getppid:entry { printf(\"line|\"); }";
    let _load = Load::start();
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        for format in ["text", "json"] {
            let path = file("flood");
            let name = path.to_str().unwrap();
            let words = ["-q", "-b", "64k", "--format", format, "-o", name, "-n", script];
            let mut child = start(&words);
            eventually("a line", LIMIT, || {
                assert!(child.try_wait().unwrap().is_none(), "it ends before a line");
                std::fs::read_to_string(&path).is_ok_and(|text| text.contains("line|"))
            });
            let o = ended_by(child, number).code(0);
            let text = std::fs::read_to_string(&path).unwrap();
            let _ = std::fs::remove_file(&path);
            // Everything that was recorded, then END, then the aggregation.
            let (rows, rest) = text.split_at(text.find("ended").unwrap());
            assert!(rows.contains("line|") && !rest.contains("line|"), "{number} {format}: {}", o.err);
            let last = rest.trim_end().lines().last().unwrap();
            match format {
                "text" => assert!(last.trim_start().starts_with("entry "), "{last}"),
                _ => assert_eq!(last, "{\"event\":\"end\",\"status\":0}"),
            }
            assert!(!o.err.contains("failed") && !o.err.contains("aborted"), "{}", o.err);
        }
    }
    Pass
}

fn an_ignored_signal_stays_ignored() -> Verdict {
    // As under nohup: the signal of BEGIN is sent to dtrace itself.
    let words = ["-wqn", "BEGIN { raise(1); } tick-100ms { printf(\"ran on\"); exit(0); }"];
    let o = under(&["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""], &words).unwrap().code(0);
    assert_eq!(o.out, "ran on\n", "{o:?}");
    let o = dtrace(&words);
    assert!(!o.out.contains("ran on"), "{o:?}");
    Pass
}

fn a_signal_at_any_moment_ends_the_session() -> Verdict {
    let script = "BEGIN { printf(\"begun|\"); } tick-1ms { printf(\"row|\"); } syscall:::entry { @ = count(); } \
                  END { printf(\"ended|\"); }";
    let words = ["-q", "-x", "switchrate=1ms", "-n", script];
    // A moment is an amount of work, the CPU time of the session: of its start, or from there on.
    let mut child = start(&words);
    printed(&mut child);
    let start_takes = cpu_time(child.id());
    ended_by(child, libc::SIGINT).code(0);
    let mut complete = 0;
    for moment in 0..40 {
        let number = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP][moment as usize % 3];
        let mut child = start(&words);
        let work = if moment < 20 {
            start_takes * moment / 20
        } else {
            printed(&mut child);
            cpu_time(child.id()) + Duration::from_micros(100) * (moment - 20)
        };
        eventually("the work of a session", LIMIT, || {
            cpu_time(child.id()) >= work || moment < 20 && unread(&child) > 0
        });
        let o = ended_by(child, number);
        match o.code {
            // Before anything was attached.
            None => assert_eq!(o.out, "", "{o:?}"),
            // While it was attached.
            Some(1) => assert!(!o.out.contains("ended|"), "{o:?}"),
            code => {
                assert_eq!(code, Some(0), "{o:?}");
                let rows = o.out.trim_start_matches("begun|").trim_start_matches("row|");
                let rest = rows.trim_start_matches('\n').trim_start_matches("row|");
                assert!(o.out.starts_with("begun|") && rest.starts_with("ended|\n"), "{o:?}");
                complete += 1;
            }
        }
        assert!(!o.err.contains("panicked"), "{o:?}");
    }
    println!("         {complete} of 40 had begun");
    assert!(complete >= 20);
    Pass
}

/// A file name that only this test uses.
fn file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("e2e-ending-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn effects_of_a_clause_are_in_order() -> Verdict {
    let (path, output) = (file("effects"), file("output"));
    let (name, out) = (path.to_str().unwrap(), output.to_str().unwrap());
    let clause = |truncate: &str| {
        format!(
            "BEGIN {{ printf(\"1\"); freopen(\"{name}\"); printf(\"2\"); system(\"printf 3\"); printf(\"4\"); \
             freopen(\"\"); printf(\"5\"); system(\"printf 6\"); {truncate} printf(\"7\"); freopen(\"{name}\"); \
             printf(\"8\"); ftruncate(); printf(\"9\"); freopen(\"\"); printf(\"10\"); exit(0); }}"
        )
    };
    // A pipe, which is not truncated; then a file, which is.
    let o = dtrace(&["-wqn", &clause("ftruncate();")]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("156710\n", ""));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "9");
    for (truncate, expected) in [("", "156710\n"), ("ftruncate();", "710\n")] {
        let to = format!("exec \"$0\" \"$@\" >{out}");
        under(&["sh", "-c", &to], &["-wqn", &clause(truncate)]).unwrap().code(0);
        assert_eq!(std::fs::read_to_string(&output).unwrap(), expected);
    }
    // A command writes to the standard output, whatever file -o names.
    let _ = std::fs::remove_file(&output);
    let o = dtrace(&["-o", out, "-wqn", &clause("")]).code(0);
    assert_eq!(o.out, "6");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "15710\n");
    // Of the structured formats, JSON keeps what commands write out of its lines.
    let o = dtrace(&["--format", "json", "-wqn", &clause("")]).code(0);
    assert!(o.out.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{o:?}");
    assert_eq!(o.err, "36");
    let in_file = std::fs::read_to_string(&path).unwrap();
    assert!(in_file.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{in_file}");
    assert!(in_file.contains("\"text\":\"9\"") && !in_file.contains("\"text\":\"8\""), "{in_file}");
    for path in [path, output] {
        let _ = std::fs::remove_file(path);
    }
    Pass
}

fn effects_of_all_cpus_are_in_the_order_of_the_records() -> Verdict {
    let path = file("cpus");
    let script = format!(
        "syscall::getppid:entry /ppid == $target/ {{ printf(\"%d\\n\", timestamp); system(\"echo %d\", timestamp); \
         freopen(\"{}\"); printf(\"%d\\n\", timestamp); freopen(\"\"); printf(\"%d\\n\", timestamp); }}",
        path.display()
    );
    let calls = 25;
    let o = dtrace(&["-wq", "-c", &workload("processes", calls), "-n", &script]).code(0);
    let times = |text: &str| -> Vec<u64> { text.split_whitespace().map(|t| t.parse().unwrap()).collect() };
    let in_file = times(&std::fs::read_to_string(&path).unwrap());
    let _ = std::fs::remove_file(&path);
    assert_eq!(in_file.len(), 4 * calls as usize);
    assert!(in_file.is_sorted());
    let expected: Vec<u64> = in_file.iter().flat_map(|time| [*time; 3]).collect();
    assert_eq!(times(&o.out), expected);
    Pass
}

fn options_that_change_the_layout_apply_within_a_row() -> Verdict {
    // The newline that ends a row belongs to what is not quiet.
    let o = dtrace(&[
        "-n",
        "BEGIN { printf(\"a\"); setopt(\"quiet\"); printf(\"b\"); } BEGIN { printf(\"c\"); setopt(\"quiet\", \"no\"); } \
         BEGIN { printf(\"d\"); exit(0); }",
    ])
    .code(0);
    let rows: Vec<&str> = o.out.lines().collect();
    assert!(rows[1].ends_with(" :BEGIN abc") && rows[2].ends_with(" :BEGIN d"), "{o:?}");
    // Frames, and the order of rows.
    let script = "BEGIN { @[\"b\"] = sum(1); @[\"a\"] = sum(2); printa(\"%s\", @); setopt(\"aggsortkey\"); printa(\"%s\", @); \
                  setopt(\"aggsortrev\"); printa(\"%s\", @); exit(0); }";
    assert_eq!(dtrace(&["-qn", script]).code(0).out, "baabba\n");
    // A change of another CPU's record counts from there on.
    let script =
        "tick-10ms /!quiet/ { setopt(\"quiet\"); quiet = 1; } tick-20ms /quiet/ { printf(\"x\"); exit(0); }";
    let o = dtrace(&["-n", script]).code(0);
    assert!(o.out.ends_with("x\n"), "{o:?}");
    Pass
}

fn an_output_that_cannot_be_written_ends_the_session() -> Verdict {
    let says = "dtrace: processing aborted: failed to write the output: No space left on device\n";
    let sh = |redirect: &str, words: &[&str]| {
        let script = format!("exec \"$0\" \"$@\" {redirect}");
        under(&["sh", "-c", &script], words).unwrap()
    };
    for program in [
        "BEGIN { printf(\"%d\", 1); exit(3); }",
        "BEGIN { exit(3); } END { printf(\"%d\", 1); }",
        "BEGIN { printf(\"%d\", 1); } tick-1h { }",
        "BEGIN { printf(\"%d\", 1); system(\"true\"); exit(3); }",
        "BEGIN { @ = count(); exit(3); }",
        "BEGIN { @ = count(); printa(@); } tick-1h { }",
    ] {
        for format in ["text", "json", "csv"] {
            let o = sh(">/dev/full", &["-wq", "--format", format, "-n", program]).code(1);
            assert_eq!(o.err, says, "{format} {program}");
            // A reader that has gone is no error.
            let o = sh("| true", &["-wq", "--format", format, "-n", program]).code(0);
            assert_eq!(o.err, "", "{format} {program}");
        }
    }
    // A file that freopen() opened is an output like the first.
    let program = "BEGIN { freopen(\"/dev/full\"); printf(\"x\"); freopen(\"\"); printf(\"y\"); exit(3); }";
    let o = dtrace(&["-wqn", program]).code(1);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("", says));
    // Messages that nobody sees end nothing.
    for redirect in ["2>/dev/full", "2>&-"] {
        let o = sh(redirect, &["-n", "BEGIN { printf(\"x\"); exit(3); }"]).code(3);
        assert!(o.out.contains(":BEGIN x\n"), "{o:?}");
    }
    Pass
}
