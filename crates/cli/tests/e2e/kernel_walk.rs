//! Stacks of the kernel that programs walk by the kernel's own tables are those that the kernel's
//! helper finds.
//!
//! With `-x kstackwalk=check` both walk each stack, in one firing; a stack whose frames differ ends
//! in `[differs]`, one that the program could not walk to its end in `[incomplete]`.

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{has, no_functions};
use crate::tool::{Output, dtrace, suppressed, workload};

tests! {
    walks_by_both_ways_have_the_same_frames_at_tracepoints walks_by_both_ways_have_the_same_frames_in_interrupts
    walks_by_both_ways_have_the_same_frames_at_functions all_ways_show_the_same_stack
    what_walks_the_kernels_stack_is_said
}

const CHECK: [&str; 5] = ["-q", "-x", "stackframes=120", "-x", "kstackwalk=check"];

/// Why programs of this kernel do not walk its stacks themselves, if so.
fn no_tables() -> Option<Verdict> {
    let o =
        dtrace(&["-v", "-q", "-n", "profile-997 { @[stack()] = count(); } tick-1ms { exit(0); }"]).code(0);
    let way = o.err.lines().find(|line| line.contains("stacks of the kernel"));
    let why = way.unwrap_or_else(|| panic!("{o:?}")).split_once("by its helper: ")?.1;
    Some(Skip(format!("the kernel's helper walks: {why}")))
}

/// How many stacks were walked, and how many of them not to the end.
fn same(o: &Output, what: &str) -> (i64, i64) {
    assert!(!o.out.contains("[differs]"), "{what}: {}", differing(&o.out));
    let (mut walked, mut incomplete, mut is_incomplete) = (0, 0, false);
    for line in o.out.lines().map(str::trim) {
        match line.parse::<i64>() {
            Ok(count) => {
                walked += count;
                incomplete += if is_incomplete { count } else { 0 };
                is_incomplete = false;
            }
            Err(_) => is_incomplete |= line == "[incomplete]",
        }
    }
    println!("         {what}: {walked} stacks, {incomplete} of them by the helper alone");
    (walked, incomplete)
}

/// The stacks that differ, with nothing else.
fn differing(text: &str) -> String {
    text.split("\n\n").filter(|stack| stack.contains("[differs]")).take(3).collect::<Vec<_>>().join("\n\n")
}

fn walks_by_both_ways_have_the_same_frames_at_tracepoints() -> Verdict {
    if let Some(skip) = no_tables() {
        return skip;
    }
    let calls = 50_000;
    for probes in ["rawtp:::sys_enter,rawtp:::sys_exit", "syscall:::entry,syscall:::return"] {
        let script = format!("{probes} /pid == $target/ {{ @[stack()] = count(); }}");
        let workload = workload("getppid", calls);
        let o = dtrace(&[&CHECK[..], &["-c", &workload, "-n", &script]].concat()).code(0);
        let (walked, incomplete) = same(&o, probes);
        let fired = walked + suppressed(&o);
        assert!(fired >= 2 * i64::from(calls) && incomplete == 0, "{walked}, {incomplete}: {}", o.err);
    }
    // Others have stacks of every depth, in threads of the kernel, in interrupts, and with modules.
    let workload = workload("processes", 300);
    let script = "rawtp:::sched_*,rawtp:::irq*,rawtp:::softirq*,rawtp:::timer*,rawtp:::hrtimer*,rawtp:::kmem*,rawtp:::mm_* \
                  { @[stack()] = count(); }";
    let o = dtrace(&[&CHECK[..], &["-x", "stacksize=64m", "-c", &workload, "-n", script]].concat()).code(0);
    let (walked, _) = same(&o, "other tracepoints");
    assert!(walked >= 1_000, "{walked}: {}", o.err);
    Pass
}

fn walks_by_both_ways_have_the_same_frames_in_interrupts() -> Verdict {
    if let Some(skip) = no_tables() {
        return skip;
    }
    for probes in ["profile-4999", "cpc:::cpu_clock-all-100000"] {
        let script = format!("{probes} {{ @[stack()] = count(); n++; }} tick-10ms /n > 5000/ {{ exit(0); }}");
        let o = dtrace(&[&CHECK[..], &["-n", &script]].concat()).code(0);
        let (walked, incomplete) = same(&o, probes);
        assert!(walked > 0 && incomplete * 10 < walked, "{walked}, {incomplete}: {}", o.err);
    }
    Pass
}

fn walks_by_both_ways_have_the_same_frames_at_functions() -> Verdict {
    if let Some(skip) = no_functions().or_else(no_tables) {
        return skip;
    }
    let calls = 20_000;
    let ways =
        [("multi", Facility::KprobeMulti), ("fentry", Facility::Fentry), ("kprobe", Facility::KprobePerf)];
    for (means, _) in ways.into_iter().filter(|(_, facility)| has(*facility)) {
        let option = format!("fbtmeans={means}");
        for probe in ["fbt::vfs_write:entry", "fbt::vfs_write:return"] {
            let script = format!("{probe} /pid == $target/ {{ @[stack()] = count(); }}");
            let workload = workload("write", calls);
            let o = dtrace(&[&CHECK[..], &["-x", &option, "-c", &workload, "-n", &script]].concat()).code(0);
            let (walked, incomplete) = same(&o, &format!("{means}, {probe}"));
            assert!(walked > 0 && incomplete == 0, "{walked}, {incomplete}: {o:?}");
        }
    }
    Pass
}

/// The frames of one stack by each way.
fn all_ways_show_the_same_stack() -> Verdict {
    let calls = 100;
    let shown = |way: &str| {
        let option = format!("kstackwalk={way}");
        let workload = workload("getppid", calls);
        let script =
            "rawtp:::sys_enter /pid == $target && arg1 == 110/ { @[stackdepth, caller, stack()] = count(); }";
        let o = dtrace(&["-q", "-x", &option, "-c", &workload, "-n", script]).code(0);
        o.out.lines().map(str::trim).map(String::from).collect::<Vec<_>>()
    };
    let helper = shown("helper");
    assert!(helper.iter().any(|line| *line == calls.to_string()), "{helper:?}");
    assert_eq!(shown("auto"), helper);
    if let Some(skip) = no_tables() {
        return skip;
    }
    for way in ["orc", "check"] {
        assert_eq!(shown(way), helper, "{way}");
    }
    Pass
}

fn what_walks_the_kernels_stack_is_said() -> Verdict {
    let said = |more: &[&str], script: &str| {
        let o = dtrace(&[more, &["-v", "-n", script]].concat()).code(0);
        let line =
            o.err.lines().find(|line| line.contains("stacks of the kernel are walked")).map(String::from);
        line.unwrap_or_default()
    };
    let takes = "profile-997 { @[stack()] = count(); } tick-1ms { exit(0); }";
    let helper = said(&["-xkstackwalk=helper"], takes);
    assert!(helper.ends_with("walked by its helper: -x kstackwalk=helper"), "{helper}");
    let way = said(&[], takes);
    assert!(way.contains(" rows (ORC)") || way.contains("by its helper: "), "{way}");
    assert_eq!(said(&[], "profile-997 { @ = count(); } tick-1ms { exit(0); }"), "");
    Pass
}
