//! Tools for memory and interrupts.

use std::collections::HashMap;

use crate::Verdict::{self, Pass, Skip};
use crate::blocks::run;
use crate::machine::no_types;
use crate::stable_cgroup::Memory;
use crate::toolkit::{Program, lines_with, start};

tests! {
    pagefaults_and_vmbypid_count_the_faults_of_a_process
    oomsnoop_prints_each_process_that_is_killed
    intrstat_counts_about_the_interrupts_that_the_kernel_counts
}

fn pagefaults_and_vmbypid_count_the_faults_of_a_process() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::workload("tk");
    let (faults, events) = (start("pagefaults", &["-n", &program.name]), start("vmbypid", &[]));
    let (few, many) =
        (program.run(&["--workload", "touch", "0"]), program.run(&["--workload", "touch", "2000"]));
    let (faults, events) = (faults.end().code(0), events.end().code(0));
    let row = |pid: u32| -> Vec<i64> {
        let lines = lines_with(&faults, &program.name);
        let start = format!("{pid} {} ", program.name);
        let Some(row) = lines.iter().find_map(|l| l.strip_prefix(&start)) else { panic!("{faults:?}") };
        row.split(' ').map(|w| w.parse().unwrap()).collect()
    };
    // The program itself has as many faults each time, but for some that depend on its addresses.
    let (few_counts, many_counts) = (row(few), row(many));
    for column in [0, 3] {
        let more = many_counts[column] - few_counts[column];
        assert!((1950..2050).contains(&more), "column {column}: {faults:?}");
    }
    let event = |pid: u32, name: &str| -> i64 {
        let start = format!("{pid} {} {name} ", program.name);
        let lines = lines_with(&events, &program.name);
        lines.iter().find_map(|l| l.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
    };
    for (column, name) in [(0, "as_fault"), (3, "zfod")] {
        assert_eq!(
            (event(few, name), event(many, name)),
            (few_counts[column], many_counts[column]),
            "{events:?}"
        );
    }
    Pass
}

fn oomsnoop_prints_each_process_that_is_killed() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let Some(group) = Memory::new() else { return Skip("no memory cgroup can be made here".into()) };
    let program = Program::workload("tk");
    let tracing = start("oomsnoop", &[]);
    let script = format!(
        "echo $$ >{}/cgroup.procs; exec {} --workload eats 64",
        group.0.display(),
        program.path().display()
    );
    let mut pids = Vec::new();
    for _ in 0..2 {
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        child.wait().unwrap();
        pids.push(child.id());
    }
    let o = tracing.end().code(0);
    let lines = lines_with(&o, &program.name);
    assert_eq!(lines.len(), 2, "{o:?}");
    for (line, pid) in lines.iter().zip(pids) {
        // The time is four words. A limit of 16 MB is reached.
        let words: Vec<&str> = line.split(' ').skip(4).collect();
        let [by, by_name, victim, name, size, resident] = words[..] else { panic!("{o:?}") };
        let (pid, own) = (pid.to_string(), program.name.as_str());
        assert_eq!([by, by_name, victim, name], [&pid, own, &pid, own], "{o:?}");
        let [size, resident] = [size, resident].map(|w| w.parse::<i64>().unwrap());
        assert!(size > 16384 && (8192..=size).contains(&resident), "{o:?}");
    }
    Pass
}

/// The count of each interrupt with a number, of all CPUs, and the names behind it.
pub(crate) fn interrupts() -> HashMap<u32, (i64, String)> {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap();
    let cpus = text.lines().next().unwrap_or("").split_whitespace().count();
    let row = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let count = words.iter().take(cpus).filter_map(|w| w.parse::<i64>().ok()).sum();
        Some((number.trim().parse().ok()?, (count, words.get(cpus..)?.join(" "))))
    };
    text.lines().filter_map(row).collect()
}

fn intrstat_counts_about_the_interrupts_that_the_kernel_counts() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::shell("tk");
    let before = interrupts();
    let tracing = start("intrstat", &["-C", "3600"]);
    let inside = interrupts();
    // A disk, or a server of files, has something to do.
    let file = program.file("file");
    let _ = run(&format!(
        "dd if=/dev/zero of={file} bs=64k count=64 conv=fsync; cat /usr/bin/* | head -c 8000000 >{file}; sync -f {file}"
    ));
    let inside_end = interrupts();
    let o = tracing.end().code(0);
    let after = interrupts();
    let mut counted: HashMap<u32, i64> = HashMap::new();
    for line in o.out.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [number, .., count, _, _] = words[..] else { continue };
        let (Ok(number), Ok(count)) = (number.parse::<u32>(), count.parse::<i64>()) else { continue };
        assert!(before.get(&number).is_some_and(|(_, names)| names.contains(words[1])), "{line}: {o:?}");
        *counted.entry(number).or_default() += count;
    }
    let of =
        |all: &HashMap<u32, (i64, String)>, number| all.get(&number).map_or(0, |(n, _): &(i64, String)| *n);
    for (number, (_, names)) in &after {
        // Several devices may share one: each has a row then.
        if names.contains(',') {
            continue;
        }
        let least = of(&inside_end, *number) - of(&inside, *number);
        let limit = of(&after, *number) - of(&before, *number);
        let count = counted.get(number).copied().unwrap_or(0);
        // A host may run no program, nor count an event, in interrupts that come while certain
        // threads run. The number of those is that of no other source. One of six runs of 1,500
        // interrupts lacked 200.
        assert!(
            (least - (least / 4).max(2)..=limit).contains(&count),
            "{number} {names}: {least} {count} {limit} {o:?}"
        );
    }
    Pass
}
