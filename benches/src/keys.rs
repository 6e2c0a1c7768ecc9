//! A million keys: the time to sort and print them, and the memory that they take.

use std::process::{Command, Stdio};

use crate::calls::BATCH;
use crate::run::{Tools, dropped, figure, median};

/// The target: seconds from the end of the workload to the end of the process.
const TARGET: f64 = 1.5;

/// A run: seconds and CPU seconds of printing, peak memory, keys, drops.
struct Keys {
    seconds: f64,
    cpu: f64,
    peak_mb: f64,
    printed: u64,
    dropped: u64,
}

/// Every call is a key of its own. What is measured is what follows END: the last snapshot, which
/// has the keys since the one before, sorting and printing into a file.
pub(crate) fn keys(tools: &Tools) {
    const CALLS: u64 = 1_000_000;
    const ROUNDS: usize = 3;
    println!(
        "\nkeys: {CALLS} keys, sorted and printed into a file (median of {ROUNDS}; target {TARGET} s, no drop)"
    );
    for (what, options, key) in [
        ("number", &["-x", "aggsize=128m"][..], "n++"),
        (
            "number, program, function",
            &["-x", "aggsize=512m", "-x", "strsize=32"],
            "n++, execname, probefunc",
        ),
        ("number, in aggsize=1m", &["-x", "aggsize=1m", "-x", "aggrate=1h"], "n++"),
    ] {
        let rounds: Vec<Keys> = (0..ROUNDS).filter_map(|_| once(tools, options, key, CALLS)).collect();
        let of = |value: fn(&Keys) -> f64| median(rounds.iter().map(value).collect());
        let count = |value: fn(&Keys) -> u64| rounds.iter().map(value).max().unwrap_or_default();
        println!(
            "  {what:<28} {:>6} s, {:>6} s of CPU, {:>5} MB at most, {} printed, {} dropped",
            figure(of(|k| k.seconds), 2),
            figure(of(|k| k.cpu), 2),
            figure(of(|k| k.peak_mb), 0),
            count(|k| k.printed),
            count(|k| k.dropped),
        );
    }
}

fn once(tools: &Tools, options: &[&str], key: &str, calls: u64) -> Option<Keys> {
    let me = std::env::current_exe().ok()?;
    let target = format!("{} --loop getppid {}", me.display(), calls / u64::from(BATCH));
    let script = format!(
        "long n; syscall::getppid:entry /pid == $target/ {{ @[{key}] = count(); }} END {{ printf(\"at %d\\n\", timestamp); }}"
    );
    let file = std::env::temp_dir().join(format!("dtrace-keys-{}", std::process::id()));
    let mut command: Command = tools.dtrace(options, &script);
    command
        .args(["-c", &target, "-o"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().ok()?;
    let at_end = watch(child.id());
    let out = child.wait_with_output().ok()?;
    let end = bpf_sys::monotonic_ns();
    let text = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    let (text, said) = (text.ok()?, String::from_utf8_lossy(&out.stderr).into_owned());
    let (usage, peak_kb) = at_end.join().ok()?;
    let begun: u64 = text.lines().find_map(|l| l.strip_prefix("at ")?.trim().parse().ok())?;
    // Of the samples of CPU time, the last before END and the last one of all.
    let before = usage.iter().take_while(|(time, _)| *time <= begun).last().map_or(0.0, |(_, cpu)| *cpu);
    let cpu = usage.last().map_or(f64::NAN, |(_, cpu)| cpu - before);
    let dropped = dropped(&said, "aggregation drop");
    let printed = text.lines().filter(|l| l.split_whitespace().last() == Some("1")).count() as u64;
    let seconds = end.checked_sub(begun)? as f64 / 1e9;
    Some(Keys { seconds, cpu, peak_mb: peak_kb / 1e3, printed, dropped })
}

/// Samples the CPU seconds of a process with their time, until its end, and its peak memory.
fn watch(pid: u32) -> std::thread::JoinHandle<(Vec<(u64, f64)>, f64)> {
    std::thread::spawn(move || {
        let (mut usage, mut peak) = (Vec::new(), 0.0f64);
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        while let Some(ns) = read("schedstat").and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok())
        {
            usage.push((bpf_sys::monotonic_ns(), ns / 1e9));
            let status = read("status").unwrap_or_default();
            let most = status
                .lines()
                .find_map(|l| l.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
            let Some(most) = most else { break };
            peak = peak.max(most);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        (usage, peak)
    })
}
