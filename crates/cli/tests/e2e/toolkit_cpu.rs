//! Tools for CPUs and the scheduler.

use crate::Verdict::{self, Pass};
use crate::machine::no_clock;
use crate::tool::{Output, suppressed, workload};
use crate::toolkit::{Program, distribution, lines_with, run, start};

tests! {
    hotuser_finds_the_function_that_takes_the_time hotkernel_counts_every_sample_once
    hotkernel_finds_the_function_that_takes_the_time
    cpuwalk_shows_the_cpu_of_a_pinned_process
    runqlat_has_a_wait_for_each_wakeup
    offcpu_shows_where_a_thread_waited
    wakeups_counts_who_wakes_whom
    cswstat_counts_switches_in_every_second
    topsyscall_ranks_the_calls_of_the_system
}

/// The rows of name, count and percentage.
fn shares(o: &Output) -> Vec<(String, i64, i64)> {
    let row = |l: &str| {
        let words: Vec<&str> = l.split_whitespace().collect();
        let [name, count, share] = words[..] else { return None };
        Some((name.to_string(), count.parse().ok()?, share.strip_suffix('%')?.parse().ok()?))
    };
    o.out.lines().filter_map(row).collect()
}

fn hotuser_finds_the_function_that_takes_the_time() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let command = workload("cputime", 1000);
    let name = std::env::current_exe().unwrap().file_name().unwrap().display().to_string();
    let o = run("hotuser", &["-l", "-c", &command]).code(0);
    let rows = shares(&o);
    let Some((library, count, _)) = rows.iter().max_by_key(|(_, count, _)| *count) else { panic!("{o:?}") };
    assert!(*count > 20, "{o:?}");
    // Where the clock is read by the kernel's page for it, that is in the list too.
    assert!(library == &name || library.contains("vdso"), "{o:?}");
    let o = run("hotuser", &["-c", &command]).code(0);
    let rows = shares(&o);
    assert!(rows.iter().any(|(function, ..)| function.starts_with(&format!("{name}`"))), "{o:?}");
    assert!(rows.iter().map(|(.., share)| share).sum::<i64>() <= 100, "{o:?}");
    Pass
}

fn hotkernel_counts_every_sample_once() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let program = Program::workload("tk");
    for words in [&[][..], &["-m"]] {
        let tracing = start("hotkernel", words);
        program.run(&["--workload", "cpucalls", "300000"]);
        let o = tracing.end().code(0);
        let rows = shares(&o);
        let samples: i64 = rows.iter().map(|(_, count, _)| count).sum();
        assert!(samples > 10, "{o:?}");
        for (name, count, share) in &rows {
            assert_eq!(*share, 100 * count / samples, "{name}: {o:?}");
        }
        if words == ["-m"] {
            assert!(rows.iter().any(|(name, ..)| name == "vmlinux"), "{o:?}");
        }
    }
    Pass
}

fn hotkernel_finds_the_function_that_takes_the_time() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let reads = Program::new("tkdd", Some("/bin/dd"));
    let numbers = |count: &str| {
        let tracing = start("hotkernel", &[]);
        if count != "0" {
            reads.run(&["if=/dev/urandom", "of=/dev/null", "bs=1M", &format!("count={count}")]);
        }
        let rows = shares(&tracing.end().code(0));
        // The kernel makes random numbers by ChaCha, whatever its functions are called.
        rows.iter().filter(|(name, ..)| name.contains("chacha")).map(|(_, count, _)| count).sum::<i64>()
    };
    let (idle, busy) = (numbers("0"), numbers("200"));
    assert!(busy >= 20 && busy > 4 * idle, "{idle} {busy}");
    Pass
}

/// Two threads that take turns, so many times.
pub(crate) fn pingpong(count: u32) {
    use std::io::{Read, Write};
    let (Ok((mut here, mut to_here)), Ok((mut there, mut to_there))) = (std::io::pipe(), std::io::pipe())
    else {
        return;
    };
    let other = std::thread::spawn(move || {
        for _ in 0..count {
            let _ = there.read(&mut [0]);
            let _ = to_here.write(b"x");
        }
    });
    for _ in 0..count {
        let _ = to_there.write(b"x");
        let _ = here.read(&mut [0]);
    }
    let _ = other.join();
}

fn cpuwalk_shows_the_cpu_of_a_pinned_process() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let program = Program::workload("tk");
    let tracing = start("cpuwalk", &[]);
    let path = program.path().display().to_string();
    let words = ["-c", "0", &path, "--workload", "spins", "1000"];
    let Ok(mut child) = std::process::Command::new("taskset").args(words).spawn() else {
        return Verdict::Skip("taskset is not installed".into());
    };
    child.wait().unwrap();
    let o = tracing.end().code(0);
    let rows = distribution(&o, &format!("{} {}", child.id(), program.name));
    assert!(rows.len() == 1 && rows[0].0 == "0" && rows[0].1 > 10, "{o:?}");
    Pass
}

fn runqlat_has_a_wait_for_each_wakeup() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("runqlat", &["-P"]);
    let pid = program.run(&["--workload", "sleeps", "200"]);
    let o = tracing.end().code(0);
    let waits = distribution(&o, &format!("{pid} {}", program.name)).iter().map(|(_, n)| n).sum::<i64>();
    assert!(waits >= 150, "{o:?}");
    // One distribution for all.
    let tracing = start("runqlat", &["-m"]);
    program.run(&["--workload", "sleeps", "200"]);
    let o = tracing.end().code(0);
    let waits = distribution(&o, "milliseconds").iter().map(|(_, n)| n).sum::<i64>();
    assert!(waits >= 150, "{o:?}");
    Pass
}

fn offcpu_shows_where_a_thread_waited() -> Verdict {
    let program = Program::workload("tk");
    // One wait is of so long: in the kernel, and in the C library, which calls it.
    for (options, kernel, user) in [(&["-k"][..], true, false), (&["-u"], false, true), (&[], true, true)] {
        let tracing = start("offcpu", &[options, &["-m", "500000", "-n", &program.name]].concat());
        let pid = program.run(&["--workload", "sleep", "2000"]);
        let o = tracing.end().code(0);
        let rows = lines_with(&o, &format!("{} (", program.name));
        let time = |l: &String| {
            let time = l.strip_prefix(&format!("{} ({pid}): ", program.name))?.strip_suffix(" us")?;
            time.parse::<i64>().ok()
        };
        let times: Vec<Option<i64>> = rows.iter().map(time).collect();
        assert!(times.len() == 1 && times[0].is_some_and(|t| t > 1_990_000), "{options:?}: {o:?}");
        assert_eq!(o.out.contains("hrtimer_nanosleep"), kernel, "{options:?}: {o:?}");
        assert_eq!(o.out.contains("libc.so.6`"), user, "{options:?}: {o:?}");
    }
    Pass
}

fn wakeups_counts_who_wakes_whom() -> Verdict {
    let program = Program::workload("tk");
    let counts = format!(
        "BEGIN {{ printf(\"on\\n\"); }} sched:::wakeup /execname == \"{0}\" && args[1]->pr_fname == \"{0}\"/ {{ @ = count(); }}",
        program.name
    );
    let mut counting = crate::tool::start(&["-qn", &counts]);
    crate::tool::printed(&mut counting);
    let tracing = start("wakeups", &["-n", &program.name]);
    let pid = program.run(&["--workload", "pingpong", "1000"]);
    let o = tracing.end().code(0);
    crate::tool::signal(&counting, libc::SIGINT);
    let counted = crate::tool::finish(counting).code(0);
    let row = format!("{pid} {0} {pid} {0} ", program.name);
    let lines = lines_with(&o, &program.name);
    let own: Vec<i64> = lines.iter().filter_map(|l| l.strip_prefix(&*row)?.parse().ok()).collect();
    // A thread that finds its byte does not sleep, and locks of the process wake threads too: the
    // probe says how many there were.
    let lost = suppressed(&o) + suppressed(&counted);
    assert!(own.len() == 1 && own[0] > 0, "{o:?}");
    assert!((own[0] - counted.last_number()).abs() <= lost, "{o:?} {counted:?}");
    Pass
}

fn cswstat_counts_switches_in_every_second() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("cswstat", &[]);
    program.run(&["--workload", "sleeps", "1000"]);
    let o = tracing.end().code(0);
    // The time is four words.
    let rows: Vec<Vec<String>> =
        o.out.lines().skip(1).map(|l| l.split_whitespace().skip(4).map(String::from).collect()).collect();
    let numbers = |row: &Vec<String>| -> Option<[i64; 3]> {
        let all = row.iter().map(|w| w.parse().ok()).collect::<Option<Vec<i64>>>()?;
        all.try_into().ok()
    };
    let rows: Vec<[i64; 3]> = rows.iter().filter_map(numbers).collect();
    assert!(rows.iter().map(|[number, ..]| number).sum::<i64>() >= 1500, "{o:?}");
    for [number, micros, nanos] in rows {
        assert!((number * nanos / 1000..=number * (nanos + 1) / 1000 + 1).contains(&micros), "{o:?}");
    }
    Pass
}

fn topsyscall_ranks_the_calls_of_the_system() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("topsyscall", &["-C", "-t", "1000", "3600"]);
    program.run(&["--workload", "getppid", "20000"]);
    let o = tracing.end().code(0);
    let rows: Vec<(&str, i64)> = o
        .out
        .lines()
        .filter_map(|l| match l.split_whitespace().collect::<Vec<_>>()[..] {
            [name, count] => Some((name, count.parse().ok()?)),
            _ => None,
        })
        .collect();
    let Some(((total, all), calls)) = rows.split_last() else { panic!("{o:?}") };
    assert_eq!(*total, "TOTAL", "{o:?}");
    assert_eq!(calls.iter().map(|(_, n)| n).sum::<i64>(), *all, "{o:?}");
    assert!(calls.is_sorted_by_key(|(_, n)| *n), "{o:?}");
    assert!(calls.iter().any(|(name, n)| *name == "getppid" && *n >= 20000), "{o:?}");
    Pass
}
