//! How a guest ended: what its console and its kernel's log say.

/// How a guest ended.
pub(crate) enum Ended {
    /// The command's exit status.
    Status(u8),
    /// The command ended, and the kernel's log has faults: these.
    Kernel(String),
    /// The kernel died, with the whole console.
    Died(String),
    /// No exit status for another reason, with the console's last lines.
    Lost(String),
}

/// The emulator's fault for certain: a CPU has run kernel text that another has just patched.
const EMULATOR: &str = "Oops: int3";

/// What a kernel writes to its console when it dies.
const DEATH: [&str; 2] = ["Kernel panic", "Oops"];

/// How a guest ended, from its status, the limit that it exceeded, its console, and its kernel's
/// log.
pub(super) fn ending(status: Option<u8>, limit: Option<&str>, console: &str, log: &str) -> Ended {
    let dead = status.is_none() && DEATH.iter().any(|word| console.contains(word));
    if dead || console.contains(EMULATOR) || log.contains(EMULATOR) {
        return Ended::Died(console.to_owned());
    }
    let lines: Vec<&str> = console.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(60)..).unwrap_or_default().join("\n");
    let Some(status) = status else {
        let why = limit.unwrap_or("no exit status");
        return Ended::Lost(format!("{tail}\n{why}"));
    };
    // The log is written after the command, so a guest with a status has one.
    let faults = if log.is_empty() { Some("no kernel log".into()) } else { kernel_faults(log) };
    faults.map_or(Ended::Status(status), Ended::Kernel)
}

/// What the kernel logs when it has found an error of its own, or when it made no progress.
const FAULTS: [&str; 15] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Kernel panic",
    "general protection fault",
    "unable to handle",
    "unhandled",
    "detected stall",
    "expedited stall",
    "lockup",
    "blocked for more than",
    "scheduling while atomic",
    "possible recursive locking",
    "corruption",
    "refcount_t:",
];

/// Lines of the log that are printed after a fault.
const AFTER_FAULT: usize = 30;

/// The faults in a kernel log, each with the lines after it.
fn kernel_faults(log: &str) -> Option<String> {
    let mut shown = String::new();
    let mut left = 0;
    for line in log.lines() {
        if FAULTS.iter().any(|f| line.contains(f)) {
            left = AFTER_FAULT;
        }
        if left > 0 {
            shown.push_str(line);
            shown.push('\n');
            left -= 1;
        }
    }
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "[    0.293993] \tRCU CPU stall warnings timeout set to 120 (rcu_cpu_stall_timeout).\n\
                        [    1.635998] AMD-Vi: AMD IOMMUv2 functionality not available on this system - This is not a bug.\n";

    #[test]
    fn a_guest_with_a_clean_log_ends_with_the_status_of_its_command() {
        assert!(matches!(ending(Some(3), None, "", BOOT), Ended::Status(3)));
    }

    #[test]
    fn a_fault_in_the_kernel_log_is_the_end_even_if_the_command_succeeded() {
        for line in [
            "[   99.1] WARNING: CPU: 0 PID: 7 at kernel/trace/bpf_trace.c:1 x+0x1/0x2",
            "[   99.1] BUG: scheduling while atomic: dtrace/7/0x2",
            "[   99.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[   99.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[   99.1] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 21 jiffies s: 5 root: 0x2/.",
            "[   99.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
            "[   99.1] Oops: general protection fault, probably for non-canonical address",
        ] {
            let Ended::Kernel(faults) = ending(Some(0), None, "", &format!("{BOOT}{line}\nmore\n")) else {
                panic!("{line}")
            };
            assert_eq!(faults, format!("{line}\nmore\n"));
        }
        assert!(matches!(ending(Some(0), None, "", ""), Ended::Kernel(_)));
    }

    #[test]
    fn a_guest_without_a_status_whose_console_has_a_panic_or_an_oops_has_died() {
        let panic = "[  812.4] Oops: 0002 [#1] PREEMPT SMP NOPTI\n[  812.5] RIP: 0010:kmem_cache_alloc_lru_noprof+0x8a\n\
                     [  812.9] Kernel panic - not syncing: Fatal exception in interrupt\n";
        for console in [panic, "Oops: int3: 0000 [#1]\nKernel panic", "Kernel panic - not syncing"] {
            let Ended::Died(whole) = ending(None, None, console, "") else { panic!("{console}") };
            assert_eq!(whole, console);
        }
        assert!(matches!(ending(Some(0), None, "", "Oops: int3: 0000 [#1]"), Ended::Died(_)));
        // A command that ended, and a guest that made no progress: no death.
        assert!(matches!(ending(Some(0), None, "Oops: 0002 [#1]", "Oops: 0002 [#1]"), Ended::Kernel(_)));
        assert!(matches!(ending(None, Some("no end after 300 s"), "", ""), Ended::Lost(_)));
        assert!(matches!(ending(None, None, "reboot: Restarting system", ""), Ended::Lost(_)));
    }
}
