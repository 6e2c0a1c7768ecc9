//! The section `speculation`: a record that is speculated beside the same record without
//! speculation.

use crate::run::{Running, Tools, figure, median};

/// The same record, written to the principal buffer.
const PLAIN: &str = "syscall::getppid:entry { trace(arg0); }";

/// Written to the buffer of a speculation that is active all the time. A new one begins before its
/// buffer is full, so that every record is written.
const SPECULATED: &str = "BEGIN { current = speculation(); } syscall::getppid:entry { speculate(current); trace(arg0); } \
                          tick-20ms { discard(current); current = speculation(); }";

/// Buffers that are never full, and nothing that wakes the session in the loop.
const OPTIONS: [&str; 10] = [
    "-x",
    "bufsize=64m",
    "-x",
    "switchrate=20ms",
    "-x",
    "nspec=8",
    "-x",
    "specsize=32m",
    "-x",
    "cleanrate=1000hz",
];

pub(crate) fn speculation(tools: &Tools) {
    const ROUNDS: usize = 25;
    println!(
        "\nspeculation: a loop of getppid, a record of each call (ns a call, {ROUNDS} interleaved rounds)"
    );
    let measure = |text: &str| {
        let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {text}");
        let tracer = Running::start(tools.dtrace(&OPTIONS, &script));
        tracer.map_or(f64::NAN, |_tracer| tools.loop_ns())
    };
    let (mut bare, mut plain, mut speculated, mut more) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(tools.loop_ns());
        let pair = (measure(PLAIN), measure(SPECULATED));
        plain.push(pair.0);
        speculated.push(pair.1);
        more.push(pair.1 - pair.0);
    }
    let least = |all: &[f64]| all.iter().copied().fold(f64::NAN, f64::min);
    println!("  {:<36} {:>7} {:>7}", "", "least", "median");
    for (what, all) in [("bare", &bare), ("a record", &plain), ("a speculated record", &speculated)] {
        println!("  {what:<36} {:>7} {:>7}", figure(least(all), 0), figure(median(all.clone()), 0));
    }
    println!(
        "  a speculated record costs {} ns more by the least figures, {} ns by the median of the differences",
        figure(least(&speculated) - least(&plain), 1),
        figure(median(more), 1)
    );
}
