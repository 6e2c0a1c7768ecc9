//! `cpc`: `EVENT-MODE[-UMASK]-COUNT` fires each time a CPU has counted so many events.
//!
//! EVENT is a name of [`events`], MODE is `user`, `kernel` or `all`, UMASK is the unit mask of a
//! raw event of the processor, and COUNT is the number of events for a firing. Each probe has a
//! perf event on each CPU. arg0 is the kernel's program counter or 0, arg1 the user program counter
//! or 0.
//!
//! Events that this machine cannot count have no probes. A message says so if a script names one.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod events;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bpf_sys::Counter;
use probes::{
    Attributes, Class, Family, MatchError, Pattern, ProbeDesc, ProviderFacts, ProviderStability, Stability,
};
use system::System;

use crate::contract::method::Clock;
use crate::contract::{EnabledProbe, Env, Manual, ProbeList, ProbeSource, Provider, Role, Unit};
use crate::sample::Sample;
use events::{Event, Kind};

/// The provider.
pub(crate) struct Cpc {
    system: System,
    probes: ProbeList,
    counters: Arc<Counters>,
}

/// What the machine can count.
struct Counters {
    system: System,
    /// True if it has performance counters: it can count cycles.
    hardware: OnceLock<bool>,
    /// No counter is opened to see whether there is one.
    at_prompt: AtomicBool,
}

/// The count of the listed probes.
const LISTED: u64 = 1_000_000_000;

/// The least counts, so that a typing error does not stop the machine: of the processor's events
/// that of the original, of clocks 10,000 firings a second.
const LEAST_HARDWARE: u64 = 5_000;
const LEAST_TIME: u64 = 100_000;

/// The position of the unit mask in the number of a raw event.
const UMASK_SHIFT: u32 = 8;

const FORM: &str = "the form is EVENT-MODE[-UMASK]-COUNT, as in cpu_clock-all-1000000 or PAPI_tot_cyc-user-100000; \
                    `dtrace -l -P cpc` lists the events of this machine";

fn parse(name: &str) -> Result<(Counter, Kind, u64), MatchError> {
    let wrong = |message: String| MatchError::new(message).with_help(FORM);
    let parts: Vec<&str> = name.split('-').collect();
    let (event, mode, umask, count) = match parts[..] {
        [event, mode, count] => (event, mode, None, count),
        [event, mode, umask, count] => (event, mode, Some(umask), count),
        _ => return Err(wrong(format!("invalid event \"{name}\""))),
    };
    let Some(Event { kind, mut config }) = events::find(event) else {
        let help = events::nearest(event).map(|name| format!("did you mean \"{name}\"?"));
        let error = MatchError::new(format!("unknown event \"{event}\""));
        return Err(error.with_help(help.unwrap_or_else(|| FORM.into())));
    };
    let (user, kernel) = match mode {
        "user" => (true, false),
        "kernel" => (false, true),
        "all" => (true, true),
        _ => return Err(wrong(format!("unknown mode \"{mode}\": it is user, kernel or all"))),
    };
    if let Some(umask) = umask {
        let digits = umask.strip_prefix("0x").unwrap_or(umask);
        let mask = u8::from_str_radix(digits, 16).ok();
        match (kind, mask) {
            (Kind::Raw, Some(mask)) => config |= u64::from(mask) << UMASK_SHIFT,
            (Kind::Raw, None) => {
                return Err(wrong(format!("invalid unit mask \"{umask}\": it has two hexadecimal digits")));
            }
            _ => {
                return Err(wrong(format!("event \"{event}\" has no unit masks; those of the form rN have")));
            }
        }
    }
    let n: u64 = count
        .parse()
        .ok()
        .filter(|n| (1..=i64::MAX as u64).contains(n))
        .ok_or_else(|| wrong(format!("invalid count \"{count}\"")))?;
    let (least, unit) = match kind {
        Kind::Clock => (LEAST_TIME, " (nanoseconds)"),
        Kind::Software => (1, ""),
        Kind::Hardware | Kind::Cache | Kind::Raw => (LEAST_HARDWARE, ""),
    };
    if n < least {
        return Err(wrong(format!("count {n} is too small: that of {event} is at least {least}{unit}")));
    }
    let counter = Counter { name: event.to_string(), kind: kind.number(), config, user, kernel };
    Ok((counter, kind, n))
}

fn counter(name: &str, Event { kind, config }: Event) -> Counter {
    Counter { name: name.to_owned(), kind: kind.number(), config, user: true, kernel: true }
}

/// The events of the processor that a machine may be unable to count, and the count with which that
/// is tried.
pub fn hardware_counters() -> Vec<(Counter, u64)> {
    let hardware = events::all().iter().filter(|(_, event)| event.kind.is_hardware());
    hardware.map(|(name, event)| (counter(name, *event), LISTED)).collect()
}

impl Cpc {
    /// The provider. Nothing is looked up yet.
    pub(crate) fn new(system: &System) -> Cpc {
        let counters = Arc::new(Counters {
            system: system.clone(),
            hardware: OnceLock::new(),
            at_prompt: AtomicBool::new(false),
        });
        let list = ProbeList::new({
            let counters = counters.clone();
            move || counters.listed()
        });
        let list = list.reserve(events::all().len());
        let probes = list.on_demand({
            let counters = counters.clone();
            move |pattern| counters.on_demand(pattern)
        });
        Cpc { system: system.clone(), probes, counters }
    }
}

impl Counters {
    /// True if it is known that this machine cannot count an event.
    fn is_missing(&self, counter: &Counter, count: u64) -> bool {
        !self.at_prompt.load(Ordering::Relaxed) && self.system.lacks_counter(counter, count)
    }

    fn has_hardware(&self) -> bool {
        if self.at_prompt.load(Ordering::Relaxed) {
            let has = |device: &str| Path::new("/sys/bus/event_source/devices").join(device).exists();
            // Processors with two kinds of cores have two devices.
            return has("cpu") || has("cpu_core");
        }
        *self
            .hardware
            .get_or_init(|| parse("cpu_cycles-all-1000000").is_ok_and(|(c, _, n)| !self.is_missing(&c, n)))
    }

    fn made(&self, name: &str) -> Result<(), MatchError> {
        let (counter, kind, count) = parse(name)?;
        if !kind.is_hardware() || !self.is_missing(&counter, count) {
            return Ok(());
        }
        Err(if self.has_hardware() {
            MatchError::new(format!("this processor does not count \"{}\"", counter.name))
        } else {
            MatchError::new(format!(
                "\"{}\" is counted by the processor, and this machine has no performance counters",
                counter.name
            ))
            .with_help(
                "virtual machines often hide them; the kernel's own events work: cpu_clock, task_clock, \
                 page_faults, context_switches, cpu_migrations",
            )
        })
    }

    /// The probes of all events that can be counted.
    fn listed(&self) -> Vec<ProbeDesc> {
        let hardware = self.has_hardware();
        let counted = |event: &Event, name: &String| {
            !event.kind.is_hardware() || hardware && !self.is_missing(&counter(name, *event), LISTED)
        };
        let listed = events::all().iter().filter(|(name, event)| counted(event, name));
        listed.map(|(name, _)| ProbeDesc::new("cpc", "", "", format!("{name}-all-{LISTED}"))).collect()
    }

    /// Any other event, mode or count, where the provider is named.
    fn on_demand(&self, pattern: &Pattern) -> Option<Result<ProbeDesc, MatchError>> {
        if pattern.provider != "cpc" || !pattern.module.is_empty() || !pattern.function.is_empty() {
            return None;
        }
        let made = self.made(&pattern.name);
        Some(made.map(|()| ProbeDesc::new("cpc", "", "", pattern.name.as_str())))
    }
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "cpc",
    help: "counters of the kernel and of the processor",
    probes: &[(
        "EVENT-MODE[-UMASK]-COUNT",
        "fires each time a CPU has counted COUNT events; MODE is user, kernel or all, UMASK a unit mask of a \
         processor's own event rN",
    )],
    args: &[
        ("arg0", "address in the kernel that was interrupted; 0 where the process was"),
        ("arg1", "address in the process that was interrupted; 0 where the kernel was"),
    ],
};

impl Provider for Cpc {
    fn facts(&self) -> ProviderFacts {
        let a = |class| Attributes { name: Stability::Evolving, data: Stability::Evolving, class };
        let private =
            Attributes { name: Stability::Private, data: Stability::Private, class: Class::Unknown };
        ProviderFacts {
            family: Family::one("cpc"),
            has_errno: false,
            stability: ProviderStability {
                provider: a(Class::Common),
                module: private,
                function: private,
                name: a(Class::CPU),
                args: a(Class::Common),
            },
        }
    }

    fn at_prompt(&self) {
        self.counters.at_prompt.store(true, Ordering::Relaxed);
    }

    fn lacks(&self) -> Option<(String, String)> {
        (!self.counters.has_hardware()).then(|| {
            (
                "events that the processor counts: this machine has no performance counters".into(),
                "a machine that shows the counters of its processor; of a virtual one they are an option of its host".into(),
            )
        })
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let cpus: Vec<u32> =
            env.cpus.iter().copied().filter(|c| env.only_cpu.is_none_or(|only| only == *c)).collect();
        let unit = |probe: &EnabledProbe| {
            let (event, kind, period) =
                parse(&probe.desc.name).map_err(|e| format!("{}: {}", probe.desc, e.message))?;
            Ok(Unit {
                name: probe.desc.name.to_string(),
                role: Role::Probe,
                probes: vec![(0, probe.clone())],
                space: 1,
                context: Arc::new(Sample {
                    late: None,
                    slow: None,
                    counted: event.is_clock().then(|| self.system.cpu_numbers_end()),
                }),
                method: Arc::new(Clock {
                    due: event.is_clock().then_some(period),
                    event,
                    period,
                    cpus: cpus.clone(),
                    single: false,
                    optional: false,
                }),
                // The kernel counts its own events in the thread that causes them.
                interrupts: kind != Kind::Software,
            })
        };
        probes.iter().map(unit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_events_modes_masks_and_counts() {
        let (counter, kind, count) = parse("cpu_clock-all-1000000").unwrap();
        assert_eq!((counter.kind, counter.config, counter.user, counter.kernel), (1, 0, true, true));
        assert_eq!((kind, count), (Kind::Clock, 1_000_000));
        let (counter, ..) = parse("PAPI_tot_ins-user-5000").unwrap();
        assert_eq!((counter.kind, counter.config, counter.user, counter.kernel), (0, 1, true, false));
        let (counter, ..) = parse("rc2-kernel-01-10000").unwrap();
        assert_eq!((counter.kind, counter.config, counter.user, counter.kernel), (4, 0x1c2, false, true));
        assert_eq!(parse("page_faults-all-1").unwrap().2, 1);
    }

    #[test]
    fn wrong_names_say_why() {
        for (name, why) in [
            ("cpu_clock", "invalid event"),
            ("cpu_clok-all-1000000", "unknown event"),
            ("cpu_clock-both-1000000", "unknown mode"),
            ("cpu_clock-all-many", "invalid count"),
            ("cpu_clock-all-0", "invalid count"),
            ("cpu_clock-all-4999", "at least 100000 (nanoseconds)"),
            ("PAPI_tot_cyc-all-4999", "at least 5000"),
            ("PAPI_tot_cyc-all-0x1-5000", "no unit masks"),
            ("rc2-all-xyz-5000", "unit mask"),
            ("a-b-c-d-e", "invalid event"),
        ] {
            let error = parse(name).unwrap_err();
            assert!(error.message.contains(why), "{name}: {}", error.message);
            assert!(error.help.is_some());
        }
        assert_eq!(parse("cpu-cycles-all-5000").unwrap_err().message, "unknown event \"cpu\"");
    }
}
