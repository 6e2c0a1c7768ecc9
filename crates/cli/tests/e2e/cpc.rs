//! cpc: counts, modes, and messages where the hardware cannot count.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_clock;
use crate::tool::{dtrace, workload};

tests! {
    cpc_is_listed cpc_counts_every_page_fault cpc_counts_in_portions
    cpc_modes_count_kernel_and_user_separately missing_hardware_counters_are_reported
    cpc_names_are_checked
}

fn cpc_is_listed() -> Verdict {
    let o = dtrace(&["-l", "-P", "cpc"]).code(0);
    for event in ["cpu_clock", "page_faults", "context_switches"] {
        assert!(o.out.contains(&format!(" {event}-all-1000000000\n")), "{o:?}");
    }
    // A probe made on demand, by another name.
    let o = dtrace(&["-l", "-n", "cpc:::faults-user-10"]).code(0);
    assert!(o.out.contains(" faults-user-10\n"), "{o:?}");
    Pass
}

/// Pages that the workload touches first.
const PAGES: u32 = 20_000;

fn cpc_counts_every_page_fault() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let program = "syscall::getppid:entry /pid == $target/ { touches = arg0; } \
                   cpc:::page_faults-user-1 /pid == $target && touches && !arg0 && arg1/ { @ = count(); }";
    let o = dtrace(&["-q", "-c", &workload("touch", PAGES), "-n", program]).code(0);
    assert_eq!(o.last_number(), i64::from(PAGES), "{o:?}");
    Pass
}

fn cpc_counts_in_portions() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // Each CPU counts separately, and counts all processes. The last portion of each CPU may be
    // incomplete.
    let program = "cpc:::minor_faults-all-1000 { @ = count(); }";
    let o = dtrace(&["-q", "-c", &workload("touch", PAGES), "-n", program]).code(0);
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as i64);
    let n = o.last_number();
    assert!(n >= i64::from(PAGES / 1000) - cpus, "{n} times 1000 faults: {o:?}");
    Pass
}

fn cpc_modes_count_kernel_and_user_separately() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let program = "cpc:::cpu_clock-user-1000000 /arg0 || !arg1/ { @bad = count(); } \
                   cpc:::cpu_clock-kernel-1000000 /arg1 || !arg0/ { @bad = count(); } \
                   cpc:::cpu_clock-user-1000000 { @all = count(); } \
                   END { printa(\"bad %@d\\n\", @bad); printa(\"all %@d\\n\", @all); }";
    let o = dtrace(&["-q", "-c", &workload("cputime", 300), "-n", program]).code(0);
    assert!(!o.out.contains("bad ") && o.out.contains("all "), "{o:?}");
    Pass
}

fn missing_hardware_counters_are_reported() -> Verdict {
    let o = dtrace(&["-en", "cpc:::PAPI_tot_cyc-all-1000000 { }"]);
    if o.code == Some(0) {
        return Skip("this machine has performance counters".into());
    }
    let o = o.code(1);
    assert!(o.err.contains("\"PAPI_tot_cyc\" is counted by the processor"), "{o:?}");
    assert!(o.err.contains("no performance counters"), "{o:?}");
    Pass
}

fn cpc_names_are_checked() -> Verdict {
    for (name, why) in [
        ("cpu_clok-all-1000000", "unknown event \"cpu_clok\""),
        ("page_fault-all-1", "did you mean \"page_faults\"?"),
        ("cpu_clock-both-1000000", "unknown mode \"both\""),
        ("instructions-all-4999", "at least 5000"),
    ] {
        let o = dtrace(&["-en", &format!("cpc:::{name} {{ }}")]).code(1);
        assert!(o.err.contains(why), "{name}: {o:?}");
    }
    Pass
}
