//! Tools for disk I/O, with requests of known number and size on a loop device.

use crate::Verdict::{self, Pass};
use crate::blocks::{LoopDevice, run};
use crate::machine::no_types;
use crate::toolkit::{Program, distribution, lines_with, start};

tests! {
    bitesize_and_seeksize_show_the_sizes_and_distances_of_requests
    iosnoop_prints_each_request_of_a_device
    iotop_and_iopattern_sum_the_requests_of_a_device
    iosnoop_and_iotop_measure_the_times_of_requests
    iolatency_and_biotop_count_each_request_that_is_done
    rwtop_sums_what_a_program_reads_and_writes
}

/// A loop device, or why there is none.
pub(crate) fn device(test: &str) -> Result<LoopDevice, Verdict> {
    no_types().map_or_else(|| LoopDevice::new(test), Err)
}

fn bitesize_and_seeksize_show_the_sizes_and_distances_of_requests() -> Verdict {
    let device = match device("tk-sizes") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    // 40 requests of 192 KB, one behind the other. The first run leaves the program in memory.
    let command = format!("dd if=/dev/zero of={} bs=192k count=40 oflag=direct", device.path);
    run(&command).unwrap();
    let (sizes, distances) = (start("bitesize", &[]), start("seeksize", &[]));
    run(&command).unwrap();
    let (sizes, distances) = (sizes.end().code(0), distances.end().code(0));
    // Not the shell that runs it.
    let row = format!("  {command}");
    let count = |of: &[(String, i64)], value: &str| of.iter().find(|(v, _)| v == value).map(|(_, n)| *n);
    assert_eq!(count(&distribution(&sizes, &row), "131072"), Some(40), "{sizes:?}");
    assert_eq!(count(&distribution(&distances, &row), "0"), Some(39), "{distances:?}");
    Pass
}

/// `dd` under a name of its own.
pub(crate) fn dd() -> Program {
    Program::new("tkdd", Some("/bin/dd"))
}

/// Writes 5 requests of 192 KB, one behind the other. Returns the process id.
pub(crate) fn write(device: &LoopDevice, dd: &Program) -> u32 {
    dd.run(&["if=/dev/zero", &format!("of={}", device.path), "bs=192k", "count=5", "oflag=direct"])
}

/// `7 0`, the numbers of a loop device.
fn numbers(device: &LoopDevice) -> String {
    format!("7 {}", device.name().trim_start_matches("loop"))
}

fn iosnoop_prints_each_request_of_a_device() -> Verdict {
    let device = match device("tk-snoop") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let dd = dd();
    let options = ["-e", "-N", "-g", "-d", device.name(), "-n", &dd.name];
    let tracing = start("iosnoop", &options);
    let pid = write(&device, &dd);
    let o = tracing.end().code(0);
    let row = |n: u32| {
        let (name, numbers) = (device.name(), numbers(&device));
        format!(
            "{name} {numbers} 0 {pid} W {} 196608 {} <unknown> {} if=/dev/zero",
            384 * n,
            dd.name,
            dd.path().display()
        )
    };
    let lines = lines_with(&o, &format!(" {pid} "));
    assert_eq!(lines.len(), 5, "{o:?}");
    for (n, line) in (0..).zip(&lines) {
        assert!(line.starts_with(&row(n)), "{line}: {o:?}");
    }
    Pass
}

fn iotop_and_iopattern_sum_the_requests_of_a_device() -> Verdict {
    let device = match device("tk-top") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let dd = dd();
    let (top, pattern) = (
        start("iotop", &["-C", "-d", device.name(), "3600"]),
        start("iopattern", &["-d", device.name(), "3600"]),
    );
    let pid = write(&device, &dd);
    let (top, pattern) = (top.end().code(0), pattern.end().code(0));
    let (me, name, numbers) = (std::process::id(), device.name(), numbers(&device));
    let row = format!("0 {pid} {me} {} {name} {numbers} W 983040", dd.name);
    assert_eq!(lines_with(&top, &dd.name), [row], "{top:?}");
    let sums = lines_with(&top, "disk_w:");
    assert!(sums.len() == 1 && sums[0].ends_with("disk_w: 960 KB"), "{top:?}");
    // The load, where the kernel shows it, between the time and the sums.
    let load = sums[0].split_once(", load: ").and_then(|(_, rest)| rest.split_once(", "));
    let shown = load.map(|(load, _)| load.parse::<f64>().unwrap());
    assert_eq!(shown.is_some(), crate::kernel::address("avenrun").is_some(), "{top:?}");
    assert!(shown.is_none_or(|load| (0.0..1000.0).contains(&load)), "{top:?}");
    // The first request has none before it. Others may read the device when it is closed.
    let rows = lines_with(&pattern, " 960");
    assert!(rows.len() == 1 && rows[0].ends_with(" 960"), "{pattern:?}");
    if rows[0].contains(" 5 ") {
        assert_eq!(rows, ["20 80 5 196608 196608 196608 0 960"], "{pattern:?}");
    }
    Pass
}

fn iosnoop_and_iotop_measure_the_times_of_requests() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match device("tk-times") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let dd = dd();
    let snoop = start("iosnoop", &["-D", "-o", "-s", "-t", "-d", device.name(), "-n", &dd.name]);
    let tops = ["-D", "-o", "-P"].map(|option| start("iotop", &["-C", option, "-d", device.name(), "3600"]));
    let pid = write(&device, &dd);
    let snoop = snoop.end().code(0);
    let tops = tops.map(|top| top.end().code(0));
    let rows = lines_with(&snoop, &format!(" {pid} W "));
    assert_eq!(rows.len(), 5, "{snoop:?}");
    for row in &rows {
        let words: Vec<u64> = row.split(' ').take(4).map(|w| w.parse().unwrap()).collect();
        let [began, ended, elapsed, disk] = words[..] else { panic!("{snoop:?}") };
        // Each is rounded down.
        assert!(ended >= began && (ended - began).abs_diff(elapsed) <= 1 && disk <= elapsed, "{snoop:?}");
    }
    for top in tops {
        let (name, numbers) = (device.name(), numbers(&device));
        let row = format!("0 {pid} {} {} {name} {numbers} W ", std::process::id(), dd.name);
        let rows = lines_with(&top, &dd.name);
        assert!(rows.len() == 1 && rows[0].starts_with(&row), "{top:?}");
    }
    Pass
}

fn iolatency_and_biotop_count_each_request_that_is_done() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match device("tk-done") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let dd = dd();
    let (latency, top) = (start("iolatency", &["-D", "-d", device.name()]), start("biotop", &["-C", "3600"]));
    let pid = write(&device, &dd);
    let (latency, top) = (latency.end().code(0), top.end().code(0));
    let rows = distribution(&latency, &format!("{} write", device.name()));
    assert_eq!(rows.iter().map(|(_, n)| n).sum::<i64>(), 5, "{latency:?}");
    let (name, numbers) = (device.name(), numbers(&device));
    let row = format!("{pid} {} W {numbers} {name} 983040 5 ", dd.name);
    let rows = lines_with(&top, &format!(" {name} "));
    let rows: Vec<&String> = rows.iter().filter(|l| l.contains(&dd.name)).collect();
    assert!(rows.len() == 1 && rows[0].starts_with(&row), "{top:?}");
    Pass
}

fn rwtop_sums_what_a_program_reads_and_writes() -> Verdict {
    let program = Program::workload("tk");
    let bytes = start("rwtop", &["-C", "-n", &program.name, "3600"]);
    let calls = start("rwtop", &["-C", "-c", "-n", &program.name, "3600"]);
    let pid = program.run(&["--workload", "write", "8"]);
    let (bytes, calls) = (bytes.end().code(0), calls.end().code(0));
    let row = |n: u32| format!("0 {pid} {} {} W {n}", std::process::id(), program.name);
    assert_eq!(lines_with(&bytes, " W "), [row(255)], "{bytes:?}");
    assert_eq!(lines_with(&calls, " W "), [row(8)], "{calls:?}");
    Pass
}
