//! Tools for the scheduler, samples of CPUs, interrupts and the kernel's queues of work.

use std::process::Stdio;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{no_clock, no_types};
use crate::tool::Output;
use crate::toolkit::{Program, distribution, rows_with, run, start};

tests! {
    cpudist_has_a_time_for_each_time_on_a_cpu
    runqlen_and_runocc_show_threads_that_wait
    runqslower_prints_each_wait_of_a_program
    samples_are_counted_by_process_thread_and_priority
    cputimes_sums_the_time_of_a_program
    loads_prints_the_load_averages_or_why_it_cannot
    offwaketime_and_wakeuptime_show_who_woke_a_thread
    interrupts_are_counted_by_handler_and_cpu
    softirqs_counts_what_the_kernel_counts
    xcallsbypid_counts_interrupts_of_a_process
    wqlat_shows_the_work_of_the_queues
}

/// All counts of the distribution below a line.
fn all(o: &Output, of: &str) -> i64 {
    distribution(o, of).iter().map(|(_, n)| n).sum()
}

/// The last number of the line that begins with this text.
fn number(o: &Output, of: &str) -> i64 {
    let lines = rows_with(o, of);
    let line = lines.iter().find(|l| l.starts_with(of));
    line.and_then(|l| l.rsplit(' ').next()?.trim_end_matches('%').parse().ok()).unwrap_or(0)
}

fn cpudist_has_a_time_for_each_time_on_a_cpu() -> Verdict {
    let program = Program::workload("tk");
    let (by_process, whole) = (start("cpudist", &["-P"]), start("cpudist", &["-m"]));
    let pid = program.run(&["--workload", "sleeps", "200"]);
    let (by_process, whole) = (by_process.end().code(0), whole.end().code(0));
    let of = format!("{pid} {}", program.name);
    assert!((200..=400).contains(&all(&by_process, &of)), "{by_process:?}");
    assert!(all(&whole, "milliseconds on a CPU") >= 200, "{whole:?}");
    Pass
}

fn runqlen_and_runocc_show_threads_that_wait() -> Verdict {
    if let Some(skip) = no_clock().or_else(no_types) {
        return skip;
    }
    let program = Program::workload("tk");
    let (lengths, shares) = (start("runqlen", &["-C"]), start("runocc", &[]));
    // Two threads that share a CPU for a second of its time.
    program.run(&["--workload", "preempted", "700"]);
    let (lengths, shares) = (lengths.end().code(0), shares.end().code(0));
    let rows: Vec<Vec<i64>> = lengths
        .out
        .lines()
        .skip_while(|l| !l.contains("BUSY%"))
        .skip(1)
        .filter_map(|l| l.split_whitespace().map(|w| w.parse().ok()).collect())
        .filter(|r: &Vec<i64>| r.len() == 3)
        .collect();
    assert!(rows.iter().any(|r| r[1] >= 1 && r[2] > 0) && rows.iter().all(|r| r[2] <= 100), "{lengths:?}");
    for row in &rows {
        assert!(all(&lengths, &format!("CPU {}", row[0])) > 0, "{lengths:?}");
    }
    let percents: Vec<i64> = shares
        .out
        .lines()
        .filter_map(|l| l.trim_end().strip_suffix('%')?.rsplit(' ').next()?.parse().ok())
        .collect();
    assert!(percents.iter().any(|p| *p > 0) && percents.iter().all(|p| *p <= 100), "{shares:?}");
    Pass
}

fn runqslower_prints_each_wait_of_a_program() -> Verdict {
    let program = Program::workload("tk");
    let every = start("runqslower", &["-n", &program.name, "0"]);
    let none = start("runqslower", &["-n", &program.name, "3600000"]);
    let pid = program.run(&["--workload", "sleeps", "200"]);
    let (every, none) = (every.end().code(0), none.end().code(0));
    let rows = rows_with(&every, &format!(" {pid} {pid} {} ", program.name));
    assert!(rows.len() >= 150, "{every:?}");
    assert_eq!(rows_with(&none, &program.name), [""; 0], "{none:?}");
    Pass
}

fn samples_are_counted_by_process_thread_and_priority() -> Verdict {
    if let Some(skip) = no_clock().or_else(no_types) {
        return skip;
    }
    let program = Program::workload("tk");
    let tracing = ["sampleproc", "threaded", "pridist", "priclass"].map(|tool| start(tool, &[]));
    // A nice value of 5 is a priority of 125, where this process has none.
    // SAFETY: no pointers.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let priority = (120 + (own + 5).min(19)).to_string();
    let path = program.path().display().to_string();
    let mut command = std::process::Command::new("nice");
    let Ok(mut child) =
        command.args(["-n", "5", &path, "--workload", "cputime", "700"]).stdout(Stdio::null()).spawn()
    else {
        return Skip("nice is not installed".into());
    };
    child.wait().unwrap();
    let pid = child.id();
    let [samples, threads, priorities, classes] = tracing.map(|t| t.end().code(0));
    let of = format!("{pid} {}", program.name);
    let rows = rows_with(&samples, &of);
    let [row] = &rows[..] else { panic!("{samples:?}") };
    let counts: Vec<&str> = row.split(' ').skip(2).collect();
    assert!(counts[0].parse::<i64>().unwrap() > 10, "{samples:?}");
    let ids: Vec<(String, i64)> = distribution(&threads, &of);
    assert!(ids.len() == 1 && ids[0].0 == (pid % 128).to_string(), "{threads:?}");
    let own: Vec<String> = distribution(&priorities, &of).into_iter().map(|(v, _)| v).collect();
    assert!(own.contains(&priority), "{priorities:?}");
    assert!(classes.out.contains(&format!(" {priority} |")), "{classes:?}");
    Pass
}

fn cputimes_sums_the_time_of_a_program() -> Verdict {
    let program = Program::workload("tk");
    let (each, sums) = (start("cputimes", &["-a", "3600"]), start("cputimes", &["3600"]));
    // Half a second of its CPU time. It leaves the CPU when it ends.
    program.run(&["--workload", "cputime", "500"]);
    let (each, sums) = (each.end().code(0), sums.end().code(0));
    let own = number(&each, &format!("{} ", program.name));
    // What a process does last, before it ends, is its own too: these do little else.
    let short = Program::workload("ts");
    let ends = start("cputimes", &["-a", "3600"]);
    (0..40).for_each(|_| _ = short.run(&["--workload", "cputime", "5"]));
    let ends = ends.end().code(0);
    assert!(number(&ends, &format!("{} ", short.name)) >= 200_000, "{ends:?}");
    // The host may take CPU time that no thread has used.
    assert!((480_000..60_000_000).contains(&own), "{each:?}");
    assert!(number(&sums, "PROCESS ") >= 480_000 && number(&sums, "KERNEL ") > 0, "{sums:?}");
    Pass
}

fn loads_prints_the_load_averages_or_why_it_cannot() -> Verdict {
    let has_variables =
        crate::tool::dtrace(&["-qn", "BEGIN { exit(defined(`avenrun) ? 0 : 3); }"]).code == Some(0);
    let o = run("loads", &[]);
    if !has_variables {
        assert!(o.code == Some(1) && o.out.contains("has functions only"), "{o:?}");
        return Pass;
    }
    let lines = rows_with(&o.code(0), "load average: ");
    let numbers: Vec<f64> =
        lines[0].split("load average: ").nth(1).unwrap().split(", ").map(|w| w.parse().unwrap()).collect();
    let kernel = std::fs::read_to_string("/proc/loadavg").unwrap();
    let kernel: Vec<f64> = kernel.split(' ').take(3).map(|w| w.parse().unwrap()).collect();
    // The kernel changes them every five seconds.
    assert!(numbers.iter().zip(kernel).all(|(a, b)| (a - b).abs() < 1.0), "{lines:?}");
    Pass
}

fn offwaketime_and_wakeuptime_show_who_woke_a_thread() -> Verdict {
    let program = Program::workload("tk");
    let waits = start("offwaketime", &["-m", "500000", "-n", &program.name]);
    let wakes = start("wakeuptime", &["-n", &program.name]);
    let pid = program.run(&["--workload", "sleep", "2000"]);
    let (waits, wakes) = (waits.end().code(0), wakes.end().code(0));
    // A timer wakes it, in an interrupt. Where a probe does not know that it is in one, the waker is
    // the program that is interrupted.
    let knows = crate::machine::has(bpf_sys::features::Facility::PreemptCount);
    let time = |l: &String| l.rsplit_once(": ")?.1.strip_suffix(" us")?.parse::<i64>().ok();
    let rows = rows_with(&waits, &format!("{} ({pid}), woken by ", program.name));
    assert!(rows.len() == 1 && time(&rows[0]).is_some_and(|t| t > 1_990_000), "{waits:?}");
    assert!(!knows || rows[0].contains("woken by an interrupt: "), "{waits:?}");
    assert!(waits.out.contains("hrtimer_nanosleep") && waits.out.contains("libc.so.6`"), "{waits:?}");
    let rows = rows_with(&wakes, &format!(" wakes {}: ", program.name));
    assert!(!knows || rows.iter().any(|l| l.starts_with("an interrupt wakes ")), "{wakes:?}");
    let all: i64 = rows.iter().filter_map(time).sum();
    assert!(all > 1_990_000 && wakes.out.contains("hrtimer_wakeup"), "{wakes:?}");
    Pass
}

/// The distribution below the line that is this text.
fn under(o: &Output, title: &str) -> Vec<(String, i64)> {
    let lines: Vec<&str> = o.out.lines().skip_while(|l| l.trim() != title).collect();
    let rest = Output { out: lines.join("\n"), err: String::new(), code: Some(0) };
    distribution(&rest, title)
}

fn interrupts_are_counted_by_handler_and_cpu() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let place = Program::shell("tk");
    let numbers = || crate::toolkit_memory::interrupts().values().map(|(n, _)| n).sum::<i64>();
    let outer = numbers();
    let tracing = [&["hardirqs", "-d"][..], &["intbycpu"], &["intoncpu"]].map(|w| start(w[0], &w[1..]));
    // A disk, or a server of files, has something to do.
    let file = place.file("file");
    let _ =
        crate::blocks::run(&format!("dd if=/dev/zero of={file} bs=64k count=64 conv=fsync; sync -f {file}"));
    let [handlers, cpus, times] = tracing.map(|t| t.end().code(0));
    let limit = numbers() - outer;
    let rows = cpus.out.lines().skip_while(|l| !l.contains("INTERRUPTS")).skip(1);
    let by_cpu: i64 = rows.filter_map(|l| l.split_whitespace().nth(1)?.parse::<i64>().ok()).sum();
    assert!(by_cpu > 0, "{cpus:?}");
    // Each handler has a row, and a distribution with as many times. They are those of the kernel.
    let known = std::fs::read_to_string("/proc/interrupts").unwrap();
    let rows = handlers.out.lines().skip_while(|l| !l.contains("HANDLER")).skip(1);
    let mut by_handler = 0;
    for row in rows.take_while(|l| !l.trim().is_empty()) {
        let words: Vec<&str> = row.split_whitespace().collect();
        let (name, count) = (words[..words.len() - 2].join(" "), words[words.len() - 2]);
        let count: i64 = count.parse().unwrap();
        assert!(
            known.contains(&name) && words[words.len() - 1].parse::<u64>().is_ok(),
            "{row}: {handlers:?}"
        );
        let times: i64 = under(&handlers, &name).iter().map(|(_, n)| n).sum();
        assert_eq!(times, count, "{name}: {handlers:?}");
        by_handler += count;
    }
    // One begins before the other, and ends before it.
    assert!(by_handler > 0 && by_handler <= 4 * limit, "{by_handler} {limit} {handlers:?}");
    assert!(times.out.contains("nanoseconds") && times.out.contains("Distribution"), "{times:?}");
    // Devices that share an interrupt have a handler each, which runs.
    assert!(by_cpu <= 4 * limit, "{by_cpu} {limit} {cpus:?}");
    Pass
}

fn softirqs_counts_what_the_kernel_counts() -> Verdict {
    let program = Program::workload("tk");
    let counted = || -> i64 {
        let text = std::fs::read_to_string("/proc/softirqs").unwrap();
        let line = text.lines().find(|l| l.trim_start().starts_with("TIMER:")).unwrap();
        line.split_whitespace().skip(1).filter_map(|w| w.parse::<i64>().ok()).sum()
    };
    let before = counted();
    let tracing = start("softirqs", &["-d"]);
    let inside = counted();
    program.run(&["--workload", "spins", "700"]);
    let inside_end = counted();
    let o = tracing.end().code(0);
    let after = counted();
    let rows = rows_with(&o, "TIMER ");
    let count = rows.iter().find_map(|l| l.split(' ').nth(1)?.parse::<i64>().ok()).unwrap_or(0);
    // A host may run no program in interrupts that come while certain threads run.
    let least = inside_end - inside;
    assert!((least - least / 4 - 2..=after - before).contains(&count) && count > 0, "{least} {o:?}");
    assert_eq!(all(&o, "TIMER").signum(), 1, "{o:?}");
    Pass
}

fn xcallsbypid_counts_interrupts_of_a_process() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    if crate::tool::cpus().len() < 2 || crate::tool::dtrace(&["-ln", "sysinfo:::xcalls"]).code != Some(0) {
        return Skip("there is one CPU, or no probe of interrupts between CPUs".into());
    }
    let program = Program::workload("tk");
    let tracing = start("xcallsbypid", &[]);
    // Each barrier interrupts the CPU of its other thread, if that runs.
    let pid = program.run(&["--workload", "barriers", "400"]);
    let o = tracing.end().code(0);
    let own = number(&o, &format!("{pid} {} ", program.name));
    assert!(own >= 20, "{o:?}");
    Pass
}

fn wqlat_shows_the_work_of_the_queues() -> Verdict {
    let tracing = start("wqlat", &[]);
    // What frees programs of the kernel's virtual machine is such work.
    for _ in 0..3 {
        crate::tool::dtrace(&["-qn", "syscall::getppid:entry { @ = count(); } tick-10ms { exit(0); }"]);
    }
    // That waits for its grace period.
    crate::tool::dtrace(&["-qn", "tick-500ms { exit(0); }"]);
    let o = tracing.end().code(0);
    let rows: Vec<Vec<String>> = o
        .out
        .lines()
        .filter(|l| l.contains('`'))
        .map(|l| l.split_whitespace().map(String::from).collect())
        .collect();
    let free = rows.iter().find(|r| r[0].contains("bpf_") && r[0].contains("_deferred"));
    let count = free.and_then(|r| r.get(1)?.parse::<i64>().ok());
    assert!(rows.iter().all(|r| r.len() == 4) && count.is_some_and(|n| n >= 1), "{o:?}");
    Pass
}
