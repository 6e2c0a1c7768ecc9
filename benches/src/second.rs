//! A session beside another of the same program: what it costs when the machine is known.

use std::time::Instant;

use dtrace::{Bytes, Options, Session, System, Text};

use crate::run::{Tools, figure, median};

const SCRIPT: &str = "syscall:::entry { @ = count(); }";
const ROUNDS: usize = 21;
const MOST_MS: f64 = 2.0;
const MOST_MIB: f64 = 2.0;

type Quiet = Session<Text<Vec<u8>>>;

/// Maps so small that the kernel clears their pages in no time.
const SMALL: Bytes = Bytes(64 << 10);

fn session(system: &System, maps: Option<Bytes>) -> Option<Quiet> {
    let usual = Options { quiet: true, ..Options::default() };
    let options = match maps {
        Some(size) => Options { bufsize: size, aggsize: size, ..usual },
        None => usual,
    };
    let begun = Session::builder(system).program(SCRIPT).options(options).start(Text::new(Vec::new()));
    begun.map_err(|e| println!("  not measured: {e}")).ok()
}

/// Anonymous memory of this process in MiB: maps that are shared with the kernel are not in it.
fn anonymous() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |kb| kb / 1024.0)
}

/// CPU time of this process in ms.
fn cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Measures the start of a session while another one of this process runs, and its memory.
pub(crate) fn second(_: &Tools) {
    println!("\na second session of {SCRIPT} in one program (median of {ROUNDS})");
    let system = System::live();
    let begun = Instant::now();
    let Some(_first) = session(&system, None) else { return };
    println!("  the first: {} ms", figure(begun.elapsed().as_secs_f64() * 1e3, 1));
    for (what, maps) in [("with the usual maps", None), ("with maps of 64 KB", Some(SMALL))] {
        let (mut times, mut cpus, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let before = anonymous();
        for _ in 0..ROUNDS {
            let (begun, worked) = (Instant::now(), cpu());
            let Some(session) = session(&system, maps) else { return };
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            cpus.push(cpu() - worked);
            held.push(session);
        }
        // A figure of many: what the allocator has asked for in advance is in it only once.
        let each = (anonymous() - before) / ROUNDS as f64;
        let time = median(times);
        let reached = match (maps, time <= MOST_MS && each <= MOST_MIB) {
            (None, _) => "",
            (_, true) => ": reached",
            (_, false) => ": MISSED",
        };
        println!(
            "  a further one {what}: {} ms ({} of the CPU), {} MiB of memory besides maps{reached}",
            figure(time, 2),
            figure(median(cpus), 2),
            figure(each, 2)
        );
    }
}
