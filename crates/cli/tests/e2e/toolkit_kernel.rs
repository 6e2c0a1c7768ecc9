//! Tools for memory and for locks of the kernel.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::stable_cgroup::Memory;
use crate::stable_counters::{Swap, swapped};
use crate::toolkit::{Held, Program, distribution, rows_with, start};
use crate::toolkit_net::me;

tests! {
    faults_and_events_of_memory_are_counted
    drsnoop_prints_who_has_to_free_memory
    compactsnoop_prints_each_zone_that_is_compacted
    slabratetop_counts_the_allocations_of_a_cache
    locks_of_the_kernel_are_shown_by_program_and_stack
    mutexes_of_the_kernel_are_shown_by_program
    pages_from_devices_have_a_line_for_each_process
    swapin_counts_the_pages_that_a_process_reads_from_swap
}

fn faults_and_events_of_memory_are_counted() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::workload("tk");
    let tracing =
        [&["minfbypid"][..], &["minfbyproc"], &["vmstatevents", "3600"]].map(|w| start(w[0], &w[1..]));
    let few = program.run(&["--workload", "touch", "0"]);
    let many = program.run(&["--workload", "touch", "2000"]);
    let [by_pid, by_program, events] = tracing.map(|t| t.end().code(0));
    let of = |pid: u32| number(rows_with(&by_pid, &program.name), &format!("{pid} {} ", program.name));
    // The program itself has as many faults each time, but for some that depend on its addresses.
    assert!((1950..2050).contains(&(of(many) - of(few))), "{by_pid:?}");
    let both = number(rows_with(&by_program, &program.name), &format!("{} ", program.name));
    // A process has the name of the one that creates it until it executes its program.
    assert!((0..100).contains(&(of(many) + of(few) - both).abs()), "{by_pid:?} {by_program:?}");
    assert!(number(rows_with(&events, "as_fault"), "as_fault ") >= 2000, "{events:?}");
    assert!(number(rows_with(&events, "zfod"), "zfod ") >= 2000, "{events:?}");
    Pass
}

/// Takes the pages of a file out of memory.
fn forget(file: &std::fs::File) {
    // SAFETY: a descriptor that is open.
    unsafe { libc::posix_fadvise(std::os::fd::AsRawFd::as_raw_fd(file), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn drsnoop_prints_who_has_to_free_memory() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let Some(group) = Memory::limited("4M") else { return Skip("no memory cgroup can be made here".into()) };
    let (device, mount) = match crate::blocks::LoopDevice::with_files("tk-reclaim") {
        Ok(made) => made,
        Err(skip) => return skip,
    };
    let file = format!("{mount}/file");
    // 6 MB that are not in memory, for a group that may have 4. A file in memory alone could not be
    // freed.
    crate::blocks::run(&format!("dd if=/dev/zero of={file} bs=64k count=96 conv=fsync")).unwrap();
    forget(&std::fs::File::open(&file).unwrap());
    let program = Program::new("tkdd", Some("/bin/dd"));
    let tracing = start("drsnoop", &["-n", &program.name]);
    let script = format!(
        "echo $$ >{}/cgroup.procs; exec {} if={file} of=/dev/null bs=64k status=none",
        group.0.display(),
        program.path().display(),
    );
    let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
    child.wait().unwrap();
    let o = tracing.end().code(0);
    drop(device);
    let rows = rows_with(&o, &format!(" {} {} group ", child.id(), program.name));
    let freed: u64 = rows.iter().filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert!(!rows.is_empty() && freed > 0, "{o:?}");
    Pass
}

fn compactsnoop_prints_each_zone_that_is_compacted() -> Verdict {
    let file = "/proc/sys/vm/compact_memory";
    if std::fs::OpenOptions::new().write(true).open(file).is_err() {
        return Skip("this kernel does not compact memory on demand".into());
    }
    let own = std::process::id().to_string();
    let tracing = start("compactsnoop", &["-p", &own]);
    let done = std::fs::write(file, "1");
    let o = tracing.end().code(0);
    if let Err(e) = done {
        return Skip(format!("{file}: {e}"));
    }
    let rows = rows_with(&o, &format!(" {} yes ", me()));
    // Time and result are the last words. A zone that is compacted on demand is to its end, or not
    // at all.
    let words = |l: &String| {
        let (rest, status) = l.rsplit_once(' ')?;
        rest.rsplit(' ').next()?.parse::<u64>().ok().map(|_| status.to_string())
    };
    let known = ["complete", "partial_skipped", "skipped", "contended", "success"];
    let right = rows.iter().filter_map(words).filter(|status| known.contains(&status.as_str())).count();
    assert!(!rows.is_empty() && right == rows.len(), "{o:?}");
    Pass
}

fn slabratetop_counts_the_allocations_of_a_cache() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::workload("tk");
    let (tracing, one) =
        (start("slabratetop", &["-C", "3600"]), start("slabratetop", &["-C", "-r", "1", "3600"]));
    // Each open file is an object of this cache.
    program.run(&["--workload", "opens", "3000"]);
    let (o, one) = (tracing.end().code(0), one.end().code(0));
    let rows = one.out.lines().skip_while(|l| !l.contains("CACHE")).skip(1).filter(|l| !l.trim().is_empty());
    assert_eq!(rows.count(), 1, "{one:?}");
    // 7.2 has a cache `bfilp` too.
    let mut rows = rows_with(&o, "filp ");
    rows.retain(|l| l.starts_with("filp "));
    let words: Vec<&str> = rows.first().map(|l| l.split(' ').collect()).unwrap_or_default();
    let ["filp", count, bytes] = words[..] else { panic!("{o:?}") };
    let (count, bytes): (u64, u64) = (count.parse().unwrap(), bytes.parse().unwrap());
    assert!(count >= 3000 && bytes >= 100 * count && bytes % count == 0, "{o:?}");
    Pass
}

/// Threads that write to one descriptor: the mutex of its position lets one of them in.
fn queue_up() {
    let place = Program::shell("tk");
    let file = std::fs::OpenOptions::new();
    let file = file.clone().write(true).create(true).truncate(true).open(place.file("shared")).unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                use std::io::Write;
                (0..300).for_each(|_| (&file).write_all(&[b'x'; 65536]).unwrap());
            });
        }
    });
}

fn mutexes_of_the_kernel_are_shown_by_program() -> Verdict {
    let [sums, times] = ["lockbyproc", "lockbydist"].map(|tool| start(tool, &[]));
    queue_up();
    let (sums, times) = (sums.end().code(0), times.end().code(0));
    let me = me();
    let name = me.split_once(' ').unwrap().1;
    let sum = number(rows_with(&sums, name), &format!("{name} "));
    let rows = distribution(&times, &format!("{name}, nanoseconds"));
    // Each tool has the time of a wait for itself. A row has those from its value to twice of that.
    let least: i64 = rows.iter().map(|(value, count)| value.parse::<i64>().unwrap() * count).sum();
    assert!(least > 0 && sum >= least / 2 && sum <= 4 * least, "{sum} {least} {sums:?} {times:?}");
    Pass
}

/// Threads that write to one file: its lock lets one of them in.
fn contend() {
    let place = Program::shell("tk");
    let path = place.file("shared");
    std::fs::write(&path, "").unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                use std::io::Write;
                let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
                (0..300).for_each(|_| file.write_all(&[b'x'; 65536]).unwrap());
            });
        }
    });
}

fn locks_of_the_kernel_are_shown_by_program_and_stack() -> Verdict {
    let own = std::process::id().to_string();
    let stacks = start("klockstat", &["-p", &own]);
    contend();
    let stacks = stacks.end().code(0);
    // A kind, how often, how long.
    let rows: Vec<Vec<&str>> = stacks
        .out
        .lines()
        .filter(|l| l.contains(" times, "))
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert!(
        rows.iter().any(|r| r[0] == "rw-block" || r[0] == "rw-spin" || r[0] == "spin-spin"),
        "{stacks:?}"
    );
    for row in &rows {
        assert!(row[1].parse::<u64>().is_ok_and(|n| n > 0) && row[3].parse::<u64>().is_ok(), "{stacks:?}");
    }
    assert!(stacks.out.contains("vmlinux`"), "{stacks:?}");
    Pass
}

fn swapin_counts_the_pages_that_a_process_reads_from_swap() -> Verdict {
    if !crate::machine::is_guest() {
        return Skip("changes what all processes use: in guests only".into());
    }
    let device = match crate::blocks::LoopDevice::new("tk-swap") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let _swap = match Swap::on(&device) {
        Ok(swap) => swap,
        Err(skip) => return skip,
    };
    // Pages that the process wrote stay in memory too until the space is needed: it has less than they take.
    let Some(group) = Memory::limited("4M") else { return Skip("no memory cgroup can be made here".into()) };
    std::fs::write(group.0.join("memory.swap.max"), "max").unwrap();
    let program = Program::workload("tk");
    let held = Held::new(&format!(
        "echo $$ >{}/cgroup.procs; exec {} --workload swapped 1500",
        group.0.display(),
        program.path().display()
    ));
    let pid = held.id();
    let tracing = start("swapin", &["3600"]);
    let before = swapped();
    held.run();
    let after = swapped();
    let o = tracing.end().code(0);
    let own = number(rows_with(&o, &program.name), &format!("{pid} {} ", program.name));
    assert!(own > 0 && own <= after.0 - before.0, "{own} {before:?} {after:?} {o:?}");
    let others: i64 =
        rows_with(&o, "").iter().filter_map(|l| l.rsplit_once(' ')?.1.parse::<i64>().ok()).sum();
    assert!(others >= after.0 - before.0, "{before:?} {after:?} {o:?}");
    Pass
}

/// The number behind the text with which a line begins.
fn number(lines: Vec<String>, start: &str) -> i64 {
    lines.iter().find_map(|l| l.strip_prefix(start)?.trim().parse().ok()).unwrap_or(0)
}

fn pages_from_devices_have_a_line_for_each_process() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (device, mount) = match crate::blocks::LoopDevice::with_files("tk-pgpgin") {
        Ok(made) => made,
        Err(skip) => return skip,
    };
    let file = format!("{mount}/file");
    // 1 MB that is on the device and not in memory.
    let made = crate::blocks::run(&format!("dd if=/dev/zero of={file} bs=64k count=16 conv=fsync"));
    made.unwrap();
    let fd = std::fs::File::open(&file).unwrap();
    forget(&fd);
    let program = Program::new("tkdd", Some("/bin/dd"));
    let tracing = ["pgpginbypid", "pgpginbyproc"].map(|tool| start(tool, &[]));
    let pid = program.run(&[&format!("if={file}"), "of=/dev/null", "bs=64k", "status=none"]);
    let [by_pid, by_program] = tracing.map(|t| t.end().code(0));
    drop((fd, device));
    let pages = number(rows_with(&by_pid, &program.name), &format!("{pid} {} ", program.name));
    // The program itself and its libraries may be read too.
    assert!((256..2000).contains(&pages), "{by_pid:?}");
    assert_eq!(number(rows_with(&by_program, &program.name), &format!("{} ", program.name)), pages);
    Pass
}
