//! Tools for disks and file systems, with requests of known number and size on a loop device.

use crate::Verdict::{self, Pass};
use crate::blocks::LoopDevice;
use crate::machine::no_types;
use crate::toolkit::{Held, Program, distribution, rows_with, run, start};
use crate::toolkit_io::{dd, device, write};

tests! {
    biosnoop_and_biostacks_show_each_request_and_who_starts_it
    places_queues_and_files_of_requests_are_counted
    fsrw_and_vopstat_show_operations_on_files
    vfsstat_counts_operations_in_intervals
    fsdist_and_its_kin_count_calls_by_file_system
    writeback_prints_the_pages_that_are_written
    pfilestat_sums_what_a_process_does_to_each_file
}

fn biosnoop_and_biostacks_show_each_request_and_who_starts_it() -> Verdict {
    let device = match device("tk-bio") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let dd = dd();
    let name = device.name();
    let snoop = start("biosnoop", &["-d", name, "-n", &dd.name]);
    let stacks = start("biostacks", &["-d", name]);
    let pid = write(&device, &dd);
    let (snoop, stacks) = (snoop.end().code(0), stacks.end().code(0));
    // Between the times of the start and of the request.
    let rows: Vec<String> = rows_with(&snoop, &format!(" {pid} "))
        .iter()
        .filter_map(|l| Some(l.split_once(' ')?.1.rsplit_once(' ')?.0.to_string()))
        .collect();
    let row = |n: u32| format!("{} {pid} {name} W {} 196608", dd.name, 384 * n);
    assert_eq!(rows, (0..5).map(row).collect::<Vec<_>>(), "{snoop:?}");
    let start = format!("{} writes ", dd.name);
    let bytes = |l: &String| l.strip_prefix(&start)?.strip_suffix(" bytes")?.parse::<u64>().ok();
    let sum: u64 = rows_with(&stacks, &start).iter().filter_map(bytes).sum();
    assert_eq!(sum, 983_040, "{stacks:?}");
    assert!(stacks.out.contains("submit_bio"), "{stacks:?}");
    Pass
}

fn places_queues_and_files_of_requests_are_counted() -> Verdict {
    let device = match device("tk-places") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let dd = dd();
    let tracing = ["hotspot", "iopending", "iofile", "iofileb"].map(|tool| start(tool, &[]));
    write(&device, &dd);
    let [places, pending, times, bytes] = tracing.map(|t| t.end().code(0));
    let near = |o, head: &str| distribution(o, &format!("{}, {head}", device.name()));
    // All is in the first 1000 MB. Others may read the device when it is closed.
    let rows = near(&places, "megabytes");
    assert!(rows.len() == 1 && rows[0].0 == "0" && rows[0].1 >= 5, "{places:?}");
    // One request is made after the other.
    let one = near(&pending, "requests").iter().find(|(v, _)| v == "1").map_or(0, |(_, n)| *n);
    assert!(one >= 5, "{pending:?}");
    // Direct I/O has no file. The program itself may be read too.
    let of = |o| -> Vec<String> {
        rows_with(o, &dd.name).into_iter().filter(|l| l.ends_with(" <unknown>")).collect()
    };
    let rows = of(&times);
    assert!(rows.len() == 1 && rows[0].starts_with(&format!("{} 5 ", dd.name)), "{times:?}");
    assert_eq!(of(&bytes), [format!("{} W 983040 <unknown>", dd.name)], "{bytes:?}");
    Pass
}

fn fsrw_and_vopstat_show_operations_on_files() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (device, mount) = match LoopDevice::with_files("tk-vop") {
        Ok(made) => made,
        Err(skip) => return skip,
    };
    let dd = dd();
    let file = format!("{mount}/file");
    let (each, counts) = (start("fsrw", &["-n", &dd.name]), start("vopstat", &[]));
    let pid = dd.run(&["if=/dev/zero", &format!("of={file}"), "bs=1000", "count=3", "status=none"]);
    let (each, counts) = (each.end().code(0), counts.end().code(0));
    drop(device);
    let row = format!("{pid} {} W 1000 ext4 {file}", dd.name);
    assert_eq!(rows_with(&each, &file), vec![row; 3], "{each:?}");
    let rows = rows_with(&counts, &mount);
    for (operation, count) in [("write", 3), ("create", 1)] {
        // What has no open file has no process either: its mount is where the root of a guest has it.
        let is = |l: &&String| l.starts_with("ext4 ") && l.ends_with(&format!("{mount} {operation} {count}"));
        assert_eq!(rows.iter().filter(is).count(), 1, "{operation}: {counts:?}");
    }
    Pass
}

fn vfsstat_counts_operations_in_intervals() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let dd = dd();
    let tracing = start("vfsstat", &["3600"]);
    let file = format!("of={}", dd.file("out"));
    dd.run(&["if=/dev/zero", &file, "bs=100", "count=5000", "status=none"]);
    let o = tracing.end().code(0);
    let rows: Vec<Vec<u64>> = o
        .out
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().skip(4).filter_map(|w| w.parse().ok()).collect())
        .filter(|r: &Vec<u64>| r.len() == 6)
        .collect();
    let [row] = &rows[..] else { panic!("{o:?}") };
    assert!(row[0] >= 5000 && row[1] >= 5000 && row[2] >= 2 && row[3] >= 1, "{o:?}");
    Pass
}

fn fsdist_and_its_kin_count_calls_by_file_system() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (device, mount) = match LoopDevice::with_files("tk-dist") {
        Ok(made) => made,
        Err(skip) => return skip,
    };
    let held =
        Held::new(&format!("exec dd if=/dev/zero of={mount}/file bs=1000 count=7 conv=fsync status=none"));
    let pid = held.id();
    let tools = [
        &["ext4dist", "-p", &pid][..],
        &["xfsdist", "-p", &pid],
        &["btrfsdist", "-p", &pid],
        &["fsdist", "-p", &pid, "-m"],
        &["fsdist", "-p", &pid, "-t", "tmpfs"],
    ];
    let tracing = tools.map(|words| start(words[0], &words[1..]));
    held.run();
    let [ext4, xfs, btrfs, all, other] = tracing.map(|t| t.end().code(0));
    drop(device);
    let count = |o, what: &str| distribution(o, what).iter().map(|(_, n)| n).sum::<i64>();
    for (what, number) in [("write", 7), ("fsync", 1)] {
        assert_eq!(count(&ext4, what), number, "{what}: {ext4:?}");
        assert_eq!(count(&all, what), number, "{what}: {all:?}");
    }
    for o in [&xfs, &btrfs, &other] {
        assert!(!o.out.contains("write") && o.out.contains("microseconds of a call"), "{o:?}");
    }
    assert!(all.out.contains("milliseconds of a call"), "{all:?}");
    Pass
}

fn writeback_prints_the_pages_that_are_written() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (device, mount) = match LoopDevice::with_files("tk-wb") {
        Ok(made) => made,
        Err(skip) => return skip,
    };
    let name = format!("7:{}", device.name().trim_start_matches("loop"));
    let tracing = start("writeback", &[]);
    // 256 pages of 4 KB.
    let _ = crate::blocks::run(&format!("dd if=/dev/zero of={mount}/file bs=64k count=16; sync -f {mount}"));
    let o = tracing.end().code(0);
    drop(device);
    // The time of day is four words.
    let rows = rows_with(&o, &format!(" {name} "));
    let pages = rows.iter().filter_map(|l| l.split(' ').rev().nth(1)?.parse::<i64>().ok()).sum::<i64>();
    assert!(rows.iter().any(|l| l.contains(&format!("{name} sync "))), "{o:?}");
    assert!(pages >= 256, "{o:?}");
    Pass
}

fn pfilestat_sums_what_a_process_does_to_each_file() -> Verdict {
    let place = Program::shell("tk");
    let file = place.file("out");
    let held = Held::new(&format!("exec dd if=/dev/zero of={file} bs=1000 count=7 status=none"));
    let tracing = start("pfilestat", &["-p", &held.id()]);
    held.run();
    let o = tracing.end().code(0);
    // Without the time.
    let rows = |path: &str| -> Vec<String> {
        let row = |l: &String| {
            let words: Vec<&str> = l.split(' ').collect();
            [&words[..2], &words[3..]].concat().join(" ")
        };
        rows_with(&o, path).iter().map(row).collect()
    };
    assert_eq!(rows(&file), [format!("1 write 7 7000 {file}")], "{o:?}");
    assert_eq!(rows("/dev/zero"), ["0 read 7 7000 /dev/zero"], "{o:?}");
    let refused = run("pfilestat", &[]).code(2);
    assert!(refused.err.starts_with("pfilestat: a process id is needed\n"), "{refused:?}");
    Pass
}
