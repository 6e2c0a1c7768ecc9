//! What works on this system and, of what does not, why and what would make it work (`--check`);
//! what a report of a fault says of the system (`--version`).
//!
//! Nothing is concluded from a version: the facilities of the kernel are tried
//! ([`bpf_sys::features`]), and the providers are asked for their probes, as `-l` does. Only what
//! would make a thing work is a table (`NEEDS`), because that is not here to be tried.

use bpf_sys::features::{Facility, Features};
use bpf_sys::{Capabilities, Lockdown};
use probes::{Catalog, Family, FieldKind, Pattern};
use providers::Registry;
use symbols::KernelStatus;
use system::System;

/// Whether a thing works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It works; with what, in a few words.
    Works(String),
    /// A part of it works.
    Partly {
        /// What works.
        works: String,
        /// What does not, and why.
        why: String,
        /// What would make the rest work; empty where nothing is known.
        needs: String,
    },
    /// It does not work.
    Missing {
        /// Why.
        why: String,
        /// What would make it work; empty where nothing is known.
        needs: String,
    },
}

/// A thing that works here or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ability {
    /// Its name: that of a provider, of a facility.
    pub name: String,
    /// Its description, one line; empty where the name says all.
    pub help: String,
    /// Whether it works.
    pub state: State,
}

/// What works on a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Privileges, and settings of the system that take some away.
    pub system: Vec<Ability>,
    /// Facilities of the kernel. None was tried without the privilege to trace.
    pub facilities: Vec<Ability>,
    /// Providers. None was asked without the privilege to trace.
    pub providers: Vec<Ability>,
    /// Programs can be loaded and attached here.
    traces: bool,
}

/// Facilities without which nothing is traced.
const BASIS: [Facility; 3] = [Facility::RawTp, Facility::TestRun, Facility::MmapArray];

/// What would give a facility: `CONFIG_` options of the kernel, its version, privileges. Where two
/// words of a row are separated by a semicolon, the second says what is done without.
#[rustfmt::skip]
const NEEDS: &[(Facility, &str)] = &[
    (Facility::Btf, "a kernel with CONFIG_DEBUG_INFO_BTF=y; without it there are no types of the kernel"),
    (Facility::RawTp, "a kernel with CONFIG_BPF_SYSCALL=y, CONFIG_BPF_EVENTS=y and CONFIG_TRACEPOINTS=y"),
    (Facility::RawTpCookie, "Linux 6.10; without it each tracepoint has a program of its own"),
    (Facility::TpBtf, "Linux 5.5 with CONFIG_DEBUG_INFO_BTF=y; without it raw tracepoints are used, which cost more"),
    (Facility::TestRun, "Linux 5.10"),
    (Facility::Fentry, "a kernel with CONFIG_FUNCTION_TRACER=y, CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y and CONFIG_DEBUG_INFO_BTF=y"),
    (Facility::KprobeMulti, "Linux 5.18 with CONFIG_FPROBE=y; without it functions of the kernel are attached to one by one"),
    (Facility::KprobePerf, "a kernel with CONFIG_KPROBE_EVENTS=y"),
    (Facility::UprobePerf, "a kernel with CONFIG_UPROBE_EVENTS=y, and kernel.perf_event_paranoid below 3 or CAP_SYS_ADMIN"),
    (Facility::UprobeMulti, "Linux 6.6; without it places in processes are attached to one by one"),
    (Facility::UprobeProcess, "Linux 6.10; without it places of one process are attached to one by one"),
    (Facility::UprobeNop5, "another kernel; without it no probe is placed at such a nop"),
    (Facility::UprobeNop10, "a newer kernel; without it such nops are probed by a trap, which costs more"),
    (Facility::CpuClock, "a kernel with CONFIG_PERF_EVENTS=y and CONFIG_BPF_EVENTS=y, and kernel.perf_event_paranoid below 3 or CAP_SYS_ADMIN; \
                          without it there are no profile and tick"),
    (Facility::SideBand, "a kernel with CONFIG_PERF_EVENTS=y, and kernel.perf_event_paranoid below 3 or CAP_SYS_ADMIN; without it processes that \
                          have ended have no symbols"),
    (Facility::MapFiles, "CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN; without it deleted files have no symbols"),
    (Facility::TaskStorage, "Linux 5.11; without it there is no self->"),
    (Facility::Ringbuf, "Linux 5.8"),
    (Facility::MmapArray, "Linux 5.5"),
    (Facility::BigValues, "a newer kernel; without it buffers have at most 4 MB"),
    (Facility::BpfLoop, "Linux 5.17; without it there is no bio provider"),
    (Facility::GlobalFuncs, "Linux 5.6; without it very long clauses are refused"),
    (Facility::TaskBtf, "Linux 5.11 with CONFIG_DEBUG_INFO_BTF=y"),
    (Facility::PreemptCount, "a kernel whose types have its per-CPU preempt count; without it a firing inside a firing is found out otherwise"),
    (Facility::SleepableCalls, "a newer kernel; without it strings in pages that are not in memory are faults at the entry of a system call"),
    (Facility::ProbeRead, "a kernel that is not locked down to confidentiality; without it no kernel pointer can be followed"),
    (Facility::ProbeWriteUser, "CAP_SYS_ADMIN and a kernel that is not locked down and permits it; without it there are no copyout() and copyoutstr()"),
    (Facility::OverrideReturn, "a kernel with CONFIG_BPF_KPROBE_OVERRIDE=y; return() needs this or modify_return"),
    (Facility::ModifyReturn, "what fentry needs, and CONFIG_FUNCTION_ERROR_INJECTION=y; return() needs this or override_return"),
    (Facility::Kfuncs, "a newer kernel with CONFIG_DEBUG_INFO_BTF=y; without it kernel memory is read by checked reads, which cost more"),
    (Facility::Isa4, "Linux 6.6; without it signed division takes more instructions"),
];

fn needs(facility: Facility) -> String {
    NEEDS.iter().find(|(f, _)| *f == facility).map_or(String::new(), |(_, text)| text.to_string())
}

impl Report {
    /// Tries everything. What is tried is closed again at once.
    pub fn of(machine: &System) -> Report {
        let missing = bpf_sys::missing_privilege();
        let mut report = Report { system: settings(machine, missing.as_deref()), ..Report::default() };
        if missing.is_none() {
            let features = machine.features();
            report.facilities = Facility::ALL.iter().map(|f| facility(*f, features)).collect();
            report.providers = providers(&crate::list::providers_of(machine), features);
            report.traces = BASIS.iter().all(|f| features.has(*f));
        }
        report
    }

    /// True if programs can be loaded and attached here.
    pub fn can_trace(&self) -> bool {
        self.traces
    }
}

/// Privileges and settings.
fn settings(machine: &System, missing: Option<&str>) -> Vec<Ability> {
    let ability = |name: &str, help: &str, state| Ability { name: name.into(), help: help.into(), state };
    let works = |text: &str| State::Works(text.into());
    let lacks = |why: &str, needs: &str| State::Missing { why: why.into(), needs: needs.into() };
    let privilege = match missing {
        None => State::Works(privileges()),
        Some(why) => lacks(
            why,
            "run it as root (sudo dtrace --check), or with the capabilities CAP_BPF and CAP_PERFMON. Nothing else could be tried",
        ),
    };
    let lockdown = match Lockdown::of_this_kernel() {
        Lockdown::None => works("none"),
        Lockdown::Integrity => State::Partly {
            works: "tracing".into(),
            why: "integrity: programs may not write to processes, so there are no copyout() and copyoutstr()"
                .into(),
            needs: "boot without lockdown= and, where it forces one, without secure boot".into(),
        },
        Lockdown::Confidentiality => State::Partly {
            works: "system calls, tracepoints, processes".into(),
            why: "confidentiality: programs may not read the kernel's memory, and there is no fbt".into(),
            needs: "boot without lockdown= and, where it forces one, without secure boot".into(),
        },
    };
    let caps = Capabilities::of_this_thread();
    let paranoid = match bpf_sys::perf_paranoid() {
        None => lacks("the kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS=y"),
        // Debian's own level; the capability for perf events does not suffice for it.
        Some(level) if level > 2 && !caps.sys_admin => lacks(
            &format!("it is {level}: clocks and counters are refused to all but root"),
            "sysctl kernel.perf_event_paranoid=2, or root",
        ),
        Some(level) => State::Works(format!("{level}, which takes nothing away")),
    };
    let mut kernel = machine.symbols();
    let symbols = match kernel.load() {
        KernelStatus::Ready(count) => State::Works(count.to_string()),
        KernelStatus::Hidden => {
            lacks("the kernel hides its addresses", "CAP_SYSLOG, and sysctl kernel.kptr_restrict=1 or 0")
        }
        KernelStatus::Unavailable(why) => lacks(why, "a kernel with CONFIG_KALLSYMS=y, and /proc"),
        KernelStatus::Unread => lacks("they were not read", ""),
    };
    let tracefs = match machine.why_no_events() {
        None => works("events and functions of the kernel are listed there"),
        Some(why) => lacks(&why, "root, and a kernel with CONFIG_TRACING=y"),
    };
    vec![
        ability("privileges", "", privilege),
        ability("lockdown", "", lockdown),
        ability("perf_event_paranoid", "", paranoid),
        ability("symbols", "names of the kernel's addresses", symbols),
        ability("tracefs", "", tracefs),
    ]
}

/// The privileges that this process has of those that matter.
pub fn privileges() -> String {
    let caps = Capabilities::of_this_thread();
    let all = [
        ("CAP_BPF", caps.bpf),
        ("CAP_PERFMON", caps.perfmon),
        ("CAP_SYS_ADMIN", caps.sys_admin),
        ("CAP_SYSLOG", caps.syslog),
        ("CAP_SYS_PTRACE", caps.sys_ptrace),
        ("CAP_DAC_READ_SEARCH", caps.dac_read_search),
        ("CAP_SYS_RESOURCE", caps.sys_resource),
    ];
    let mut text: Vec<&str> = all.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    if text.is_empty() {
        text.push("none that matter to tracing");
    }
    match bpf_sys::missing_privilege() {
        Some(why) => format!("{} ({why})", text.join(", ")),
        None => text.join(", "),
    }
}

/// The level of lockdown, and `kernel.perf_event_paranoid`.
pub fn restrictions() -> String {
    let paranoid = bpf_sys::perf_paranoid().map_or("?".into(), |level| level.to_string());
    format!("lockdown {}, perf_event_paranoid {paranoid}", Lockdown::of_this_kernel())
}

/// The names of the facilities that this kernel has, and of those that it lacks, tried now.
pub fn facilities(machine: &System) -> [Vec<&'static str>; 2] {
    let features = machine.features();
    let (has, lacks): (Vec<Facility>, Vec<Facility>) = Facility::ALL.iter().partition(|f| features.has(**f));
    [has, lacks].map(|all| all.into_iter().map(Facility::name).collect())
}

fn facility(facility: Facility, features: &Features) -> Ability {
    let state = match features.why_not(facility) {
        None => State::Works(String::new()),
        Some(why) => State::Missing { why: why.into(), needs: needs(facility) },
    };
    let help = facility.description().trim_end_matches('.').into();
    Ability { name: facility.name().into(), help, state }
}

/// Each provider, with how many probes it has.
fn providers(registry: &Registry, features: &Features) -> Vec<Ability> {
    let families = registry.families();
    let state = |family: &Family| {
        let provider = registry.of_family(family);
        let missing = provider.and_then(|p| unattached(p.attached_by(), features));
        missing.unwrap_or_else(|| match family.is_of_processes() {
            true => State::Works("of each process".into()),
            false => listed(registry, family.prefix(), provider.and_then(|p| p.lacks())),
        })
    };
    let ability =
        |family: &Family| Ability { name: family.to_string(), help: String::new(), state: state(family) };
    let mut all: Vec<Ability> = families.iter().map(ability).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Why programs cannot be attached to the probes of a provider, if none of its ways is there. What
/// each way lacks stands with the facilities, once: several providers have the same ways.
fn unattached(ways: &[Facility], features: &Features) -> Option<State> {
    if ways.is_empty() || ways.iter().any(|way| features.has(*way)) {
        return None;
    }
    let names: Vec<&str> = ways.iter().map(|way| way.name()).collect();
    let (why, needs) = match names.as_slice() {
        [only] => (format!("this kernel has no {only}"), format!("{only}, see below")),
        _ => (format!("this kernel has none of {}", names.join(", ")), "one of them, see below".into()),
    };
    Some(State::Missing { why, needs })
}

/// The probes of a provider with one name.
fn listed(registry: &Registry, provider: &str, lacks_some: Option<(String, String)>) -> State {
    let pattern = Pattern { provider: provider.into(), ..Pattern::default() };
    let found = registry.matches(&pattern);
    let absent = registry.absent(&pattern);
    let lacks = |text: String| State::Missing { why: text, needs: String::new() };
    let found = match found {
        Err(why) => return lacks(why.message),
        Ok(found) => found.len(),
    };
    // The first of those that are not here says why, as -n does.
    let names: Vec<&str> = absent.iter().map(|probe| &**probe.desc.field(FieldKind::Name)).collect();
    let why = absent.first().and_then(|probe| {
        let refused = registry.matches(&Pattern::exact(&probe.desc)).err()?;
        Some(format!("{}: {}", probe.desc.name, refused.message))
    });
    match (found, why, lacks_some) {
        (0, why, _) => lacks(why.unwrap_or_else(|| "this kernel has none of its probes".into())),
        (_, None, None) => State::Works(probes_text(found)),
        (_, None, Some((why, needs))) => State::Partly { works: probes_text(found), why, needs },
        (_, Some(why), _) => {
            let more =
                if names.len() > 1 { format!(" (and {} more)", names.len() - 1) } else { String::new() };
            let needs = if why.contains("fbt:") { "functions of the kernel: see fbt" } else { "" };
            State::Partly { works: probes_text(found), why: format!("{why}{more}"), needs: needs.into() }
        }
    }
}

fn probes_text(count: usize) -> String {
    format!("{count} probe{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_facility_says_what_would_give_it_once() {
        let of_table: Vec<Facility> = NEEDS.iter().map(|(facility, _)| *facility).collect();
        assert_eq!(of_table, Facility::ALL);
        assert!(NEEDS.iter().all(|(_, text)| text.len() > 5 && !text.ends_with('.')));
    }

    #[test]
    fn without_privilege_nothing_is_tried_and_the_report_says_so() {
        let report = settings(&System::live(), Some("needs CAP_BPF, or root"));
        let State::Missing { why, needs } = &report[0].state else { panic!("{report:?}") };
        assert_eq!((&*report[0].name, &**why), ("privileges", "needs CAP_BPF, or root"));
        assert!(needs.contains("sudo") && needs.contains("Nothing else could be tried"));
    }

    #[test]
    fn a_provider_without_a_way_to_attach_names_each_way() {
        let machine = System::live();
        let features = machine.features();
        let registry = crate::list::providers_of(&machine);
        assert_eq!(unattached(&[], features), None);
        for family in registry.families() {
            let ways = registry.of_family(&family).map_or(&[][..], |p| p.attached_by());
            let state = unattached(ways, features);
            let is_attached = ways.is_empty() || ways.iter().any(|way| features.has(*way));
            assert_eq!(state.is_none(), is_attached, "{family}: {state:?}");
            if let Some(State::Missing { why, needs }) = state {
                assert!(ways.iter().all(|way| why.contains(way.name())), "{why}");
                assert!(needs.ends_with(", see below"), "{needs}");
            }
        }
    }
}
