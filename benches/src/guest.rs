//! Sections that are measured in a guest: probes on functions of the kernel. Times in an emulated
//! guest are long and not proportional to those of a machine, so only the ratios within one boot
//! are meaningful.

use std::process::Command;

use crate::run::{Running, Tools, figure, median, whole};
use crate::session::{Rounds, Session, floor, ours, run, theirs};

/// Number of interleaved rounds of each section: `ROUNDS`, or two in a guest, since an emulated
/// guest needs up to a minute for one.
fn rounds() -> usize {
    std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// Prints a ratio and the target that it should reach.
fn ratio(what: &str, value: f64, at_most: f64) {
    let mark = match value {
        v if v.is_nan() => "",
        v if v <= at_most => "reached",
        _ => "MISSED",
    };
    println!("  {what:<52} {:>6}  (at most {at_most}) {mark}", figure(value, 2));
}

/// Measures the entry probes of all functions.
pub(crate) fn functions(tools: &Tools) {
    println!(
        "\nall function entries: fbt:::entry {{ @[probemod] = count(); }}, kprobe:* {{ @ = count(); }} (median of {})",
        rounds()
    );
    let [mut least, mut mine, mut peers] = [const { Rounds(Vec::new()) }; 3];
    for _ in 0..rounds() {
        least.0.extend(run(floor(&["multi", "entry", ""])));
        if least.0.is_empty() {
            println!("  no kprobe_multi by address here: not measured");
            return;
        }
        mine.0.extend(run(ours(tools, &[], "fbt:::entry { @[probemod] = count(); }")));
        peers.0.extend(theirs(tools, "kprobe:* { @ = count(); }").and_then(run));
    }
    println!("{}", Rounds::heading());
    println!("{}\n{}\n{}", least.line("floor, kprobe_multi"), mine.line("dtrace"), peers.line("peer"));
    let whole = |r: &Rounds| r.of(Session::until_exit);
    ratio("enable + exit, of the peer's", whole(&mine) / whole(&peers), 0.6);
    ratio("enable + exit, of the floor's", whole(&mine) / whole(&least), 1.3);
    ratio("memory, MiB", mine.of(|s| s.peak_kb / 1024.0), 100.0);
}

/// Measures entry and return probes of seventy-five functions.
pub(crate) fn vfs(tools: &Tools) {
    println!("\nfbt::vfs_*: entry and return, until the last program is gone (median of {})", rounds());
    let means = ["multi", "fentry", "kprobe"];
    let mut floors = [const { Rounds(Vec::new()) }; 3];
    let [mut mine, mut peers] = [const { Rounds(Vec::new()) }; 2];
    for _ in 0..rounds() {
        for (rounds, means) in floors.iter_mut().zip(means) {
            // The floor attaches functions one by one only when `kprobe_multi` is not available.
            if means == "multi" || !has_multi() {
                rounds.0.extend(run(floor(&[means, "both", "vfs_"])));
            }
        }
        mine.0.extend(run(ours(tools, &[], "fbt::vfs_*: { @ = count(); }")));
        peers.0.extend(theirs(tools, "kprobe:vfs_*, kretprobe:vfs_* { @ = count(); }").and_then(run));
    }
    println!("{}", Rounds::heading());
    for (rounds, means) in floors.iter().zip(means).filter(|(r, _)| !r.0.is_empty()) {
        println!("{}", rounds.line(&format!("floor, {means}")));
    }
    println!("{}\n{}", mine.line("dtrace"), peers.line("peer"));
    let unloaded = |r: &Rounds| r.of(Session::until_unloaded);
    let each = |r: &Rounds| r.0.iter().map(|s| figure(s.until_unloaded(), 0)).collect::<Vec<_>>().join(" ");
    let best = floors.iter().filter(|r| !r.0.is_empty()).map(each).collect::<Vec<_>>().join("; ");
    println!("  each, enable + gone, ms: dtrace {}; floor {best}", each(&mine));
    for (rounds, means) in floors.iter().zip(means).filter(|(r, _)| !r.0.is_empty()) {
        ratio(&format!("enable + gone, of the floor's ({means})"), unloaded(&mine) / unloaded(rounds), 1.3);
    }
    ratio("enable + gone, of the peer's", unloaded(&mine) / unloaded(&peers), 1.0);
    ratio("dtrace's own exit, s", mine.of(|s| s.exit) / 1e3, 1.0);
}

/// True when many functions can be probed with one link, by address.
fn has_multi() -> bool {
    let list = bpf_sys::tracefs().map(|t| t.join("available_filter_functions_addrs").exists());
    list.unwrap_or(false)
}

/// Measures one firing of a probe on `vfs_read`.
pub(crate) fn firing(tools: &Tools) {
    println!(
        "\ncost of a firing of vfs_read's entry: a loop of read (ns a call, least of {} interleaved rounds)",
        rounds()
    );
    let [mut bare, mut mine, mut peers, mut port] = [f64::NAN; 4];
    let ready = "BEGIN { printf(\"ready\\n\"); }";
    let traced = |least: &mut f64, command: Option<Command>| {
        if let Some(_tracer) = command.and_then(Running::start) {
            *least = least.min(tools.loop_of("read"));
        }
    };
    for _ in 0..rounds() {
        bare = bare.min(tools.loop_of("read"));
        let script = format!("{ready} fbt::vfs_read:entry {{ @ = count(); }}");
        traced(&mut mine, Some(tools.dtrace(&["-x", "switchrate=10ms"], &script)));
        traced(&mut port, tools.port.as_ref().map(|p| p.command(&script)));
        let script = format!("{ready} kprobe:vfs_read {{ @ = count(); }}");
        traced(&mut peers, tools.peer.as_ref().map(|p| p.command(&script)));
    }
    for (name, ns) in [("untraced", bare), ("dtrace", mine), ("peer", peers), ("the C port", port)] {
        println!("  {name:<24} {:>8} {:>8} more", figure(ns, 0), figure(ns - bare, 0));
    }
    ratio("a firing, of the peer's", (mine - bare) / (peers - bare), 0.7);
    ratio("a firing, of the C port's", (mine - bare) / (port - bare), 1.0);
}

/// Measures the list of all probes.
pub(crate) fn list(tools: &Tools) {
    const ROUNDS: usize = 5;
    println!("\nthe list of all probes (median of {ROUNDS})");
    let [mut raw, mut mine, mut verbose] = [const { Vec::new() }; 3];
    let dtrace = |flag: &str| {
        let mut command = Command::new(&tools.dtrace);
        command.arg(flag);
        whole(command)
    };
    // Another process can reach the mount through our descriptor.
    let ours = format!("/proc/{}/", std::process::id());
    let functions = bpf_sys::tracefs().map(|t| t.join("available_filter_functions"));
    let functions = functions.map(|f| f.to_string_lossy().replace("/proc/self/", &ours));
    for _ in 0..ROUNDS {
        let mut cat = Command::new("cat");
        cat.args(functions.iter()).arg("/proc/kallsyms");
        raw.extend(whole(cat));
        mine.extend(dtrace("-l"));
        verbose.extend(dtrace("-lv"));
    }
    let ms = |costs: &[crate::run::Cost]| median(costs.iter().map(|c| c.seconds * 1e3).collect());
    let mib = |costs: &[crate::run::Cost]| median(costs.iter().map(|c| c.peak_kb / 1024.0).collect());
    for (name, costs) in [("cat of the kernel's lists", &raw), ("dtrace -l", &mine), ("dtrace -lv", &verbose)]
    {
        println!("  {name:<26} {:>8} ms {:>8} MiB", figure(ms(costs), 0), figure(mib(costs), 1));
    }
    ratio("-l, of the kernel's lists", ms(&mine) / ms(&raw), 2.0);
}
