//! Measures enabling all probes together and disabling them, and checks that no cost remains
//! afterwards.

use crate::run::{Running, Tools, figure, median};
use crate::session::{Rounds, Session, floor, ours, run};

/// The providers whose probes are all enabled, if the tracer has the provider.
const PROVIDERS: [&str; 3] = ["syscall:::", "sdt:::", "rawtp:::"];

/// The descriptions that match a probe.
fn matching_descriptions(tools: &Tools) -> Vec<&'static str> {
    let lists = |d: &&str| {
        let mut command = std::process::Command::new(&tools.dtrace);
        command.args(["-l", "-n", d]).output().is_ok_and(|o| o.status.success())
    };
    PROVIDERS.into_iter().filter(lists).collect()
}

/// Measures enabling and exit. The floor attaches as many raw tracepoints.
pub(crate) fn all(tools: &Tools) {
    const ROUNDS: usize = 7;
    let descriptions = matching_descriptions(tools);
    println!("\n{} enabled together (median of {ROUNDS})", descriptions.join(" and "));
    let clauses = format!("{} {{ @[probeprov] = count(); }}", descriptions.join(","));
    let (mut mine, mut least) = (Rounds::default(), Rounds::default());
    for _ in 0..ROUNDS {
        mine.0.extend(run(ours(tools, &[], &clauses)));
        let Some(last) = mine.0.last() else { continue };
        least.0.extend(run(floor(&["raw", &last.links.to_string()])));
    }
    println!("{}", Rounds::heading());
    println!("{}\n{}", mine.line("dtrace"), least.line("floor, raw tracepoints"));
    println!(
        "  exit {} ms of 500; of the floor's: enable {}, exit {}",
        figure(mine.of(|s| s.exit), 0),
        figure(mine.of(|s| s.enable) / least.of(|s| s.enable), 2),
        figure(mine.of(|s| s.exit) / least.of(|s| s.exit), 2)
    );
    let exits: Vec<String> = mine.0.iter().map(|s: &Session| figure(s.exit, 0)).collect();
    let floors: Vec<String> = least.0.iter().map(|s: &Session| figure(s.exit, 0)).collect();
    println!("  each exit, ms: dtrace {}; floor {}", exits.join(" "), floors.join(" "));
}

/// Minimum, median and maximum of some figures.
struct Spread(f64, f64, f64);

fn spread(all: &[f64]) -> Spread {
    let least = all.iter().copied().fold(f64::NAN, f64::min);
    let most = all.iter().copied().fold(f64::NAN, f64::max);
    Spread(least, median(all.to_vec()), most)
}

/// Measures the loop before any probe was enabled, while all are, and after each of many times that
/// all were enabled and disabled.
pub(crate) fn off(tools: &Tools) {
    const ROUNDS: usize = 10;
    let mut descriptions = matching_descriptions(tools);
    descriptions.push("profile-997");
    let clauses = descriptions.join(",");
    println!(
        "\nzero effect when off: {clauses} enabled and disabled {ROUNDS} times; a loop of getppid, ns a call"
    );
    let many = |before: &dyn Fn()| -> Vec<f64> {
        let once = |_| {
            before();
            tools.loop_ns()
        };
        (0..ROUNDS).map(once).collect()
    };
    let before = many(&|| ());
    // Nothing runs between these measurements either. They show the noise of the machine.
    let again = many(&|| ());
    let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {clauses} {{ @[probeprov] = count(); }}");
    let on = Running::start(tools.dtrace(&["-x", "switchrate=10ms"], &script)).map(|_tracer| tools.loop_ns());
    let after = many(&|| {
        run(ours(tools, &[], &format!("{clauses} {{ @[probeprov] = count(); }}")));
    });
    println!("  {:<34} {:>8} {:>8} {:>8}", "", "least", "median", "most");
    for (name, all) in
        [("before anything", &before), ("the same again: the noise", &again), ("after", &after)]
    {
        let Spread(least, middle, most) = spread(all);
        println!("  {name:<34} {:>8} {:>8} {:>8}", figure(least, 1), figure(middle, 1), figure(most, 1));
    }
    println!("  {:<34} {:>8}", "while everything is enabled, once", figure(on.unwrap_or(f64::NAN), 1));
    let (a, b, c) = (spread(&before), spread(&again), spread(&after));
    println!(
        "  after over before: least {:+.1} %, median {:+.1} %; noise: least {:+.1} %, median {:+.1} %",
        (c.0 / a.0 - 1.0) * 100.0,
        (c.1 / a.1 - 1.0) * 100.0,
        (b.0 / a.0 - 1.0) * 100.0,
        (b.1 / a.1 - 1.0) * 100.0
    );
}
