//! System state that limits what a process may trace: capabilities, lockdown, sysctls.

use std::fmt;

const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The effective capabilities of this thread that matter to tracing.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub bpf: bool,
    pub perfmon: bool,
    pub sys_admin: bool,
    pub sys_ptrace: bool,
    pub sys_resource: bool,
    pub syslog: bool,
    pub dac_read_search: bool,
}

impl Capabilities {
    /// Reads the calling thread's capabilities. They are not cached, because a thread can drop
    /// them.
    pub fn of_this_thread() -> Capabilities {
        std::fs::read_to_string("/proc/thread-self/status").map(|s| Self::parse(&s)).unwrap_or_default()
    }

    fn parse(status: &str) -> Capabilities {
        let mask = status
            .lines()
            .find_map(|l| l.strip_prefix("CapEff:"))
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0);
        let has = |cap: u32| mask >> cap & 1 == 1;
        Capabilities {
            bpf: has(CAP_BPF),
            perfmon: has(CAP_PERFMON),
            sys_admin: has(CAP_SYS_ADMIN),
            sys_ptrace: has(CAP_SYS_PTRACE),
            sys_resource: has(CAP_SYS_RESOURCE),
            syslog: has(CAP_SYSLOG),
            dac_read_search: has(CAP_DAC_READ_SEARCH),
        }
    }

    /// True when tracing programs may be loaded and attached.
    pub fn can_trace(&self) -> bool {
        self.sys_admin || (self.bpf && self.perfmon)
    }
}

/// The kernel's lockdown level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// No lockdown, or the kernel does not report it.
    None,
    /// Root cannot modify the kernel: no `bpf_probe_write_user`.
    Integrity,
    /// Root cannot read kernel memory either: no checked reads, no kprobes.
    Confidentiality,
}

impl Lockdown {
    /// Reads the level. It is not cached, because it can rise.
    pub fn of_this_kernel() -> Lockdown {
        std::fs::read_to_string("/sys/kernel/security/lockdown").map_or(Lockdown::None, |s| Self::parse(&s))
    }

    fn parse(text: &str) -> Lockdown {
        if text.contains("[confidentiality]") {
            Lockdown::Confidentiality
        } else if text.contains("[integrity]") {
            Lockdown::Integrity
        } else {
            Lockdown::None
        }
    }
}

impl fmt::Display for Lockdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lockdown::None => "none",
            Lockdown::Integrity => "integrity",
            Lockdown::Confidentiality => "confidentiality",
        })
    }
}

/// `kernel.perf_event_paranoid`.
pub fn perf_paranoid() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

/// The kernel's release, as `uname -r`.
pub fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or("?".into(), |s| s.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_parsed_from_the_effective_mask() {
        let c = Capabilities::parse("CapPrm:\tffff\nCapEff:\t000000c000000000\n");
        assert!(c.bpf && c.perfmon && c.can_trace() && !c.sys_admin);
        assert!(!Capabilities::parse("CapEff:\t0000008000000000\n").can_trace());
        assert!(!Capabilities::parse("").can_trace());
    }

    #[test]
    fn the_lockdown_level_is_the_word_in_brackets() {
        assert_eq!(Lockdown::parse("none [integrity] confidentiality\n"), Lockdown::Integrity);
        assert_eq!(Lockdown::parse("[none] integrity confidentiality\n"), Lockdown::None);
        assert_eq!(Lockdown::parse("none integrity [confidentiality]\n"), Lockdown::Confidentiality);
    }
}
