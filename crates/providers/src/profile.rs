//! `profile-RATE` on every CPU and `tick-RATE` on one.
//!
//! Each is a software CPU clock of perf with a fixed *period*. (A clock with a frequency adjusts
//! its period and loses about one firing in a hundred.) arg0 is the kernel's program counter or 0,
//! arg1 the user program counter or 0, arg2 the lateness of the firing in nanoseconds, from the
//! time at which the kernel's timer was due.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bpf_sys::Counter;
use bpf_sys::features::Facility;
use probes::{Attributes, Family, MatchError, Pattern, ProbeDesc, ProviderFacts, ProviderStability};
use system::System;

use crate::contract::method::Clock;
use crate::contract::{
    EnabledProbe, Env, Manual, Names, ProbeList, ProbeSource, Provider, Role, Timing, Unit,
};
use crate::sample::{Due, Sample, Slow};

/// The provider.
pub(crate) struct Profile {
    system: System,
    /// The number of the next slow clock, so that no two share a word of the control page.
    clocks: AtomicU32,
    probes: ProbeList,
}

impl Profile {
    /// The provider, with the types of a machine's kernel.
    pub(crate) fn new(system: &System) -> Profile {
        let probes = ProbeList::new(listed).reserve(PROFILES.len() + TICKS.len()).on_demand(on_demand);
        Profile { system: system.clone(), clocks: AtomicU32::new(0), probes }
    }

    fn due(&self) -> Option<Due> {
        let btf = self.system.types().vmlinux().ok()?;
        let at = |path: &str| btf.field(path).map(|f| f.offset());
        Some(Due {
            event: i16::try_from(at("bpf_perf_event_data_kern.event")?).ok()?,
            expires: i32::try_from(at("perf_event.hw.hrtimer.node.expires")?).ok()?,
        })
    }
}

/// Rates of the listed probes, in hertz.
const PROFILES: [u32; 7] = [97, 199, 499, 997, 1999, 4001, 4999];
const TICKS: [u32; 6] = [1, 10, 100, 500, 1000, 5000];

/// The shortest interval: 200 microseconds (5000 hz).
const SHORTEST: u64 = 200_000;

/// The program of a tick of this period or longer runs several times a period, at this interval:
/// see [`bpf_codegen::routines::slow_clock`].
const SLOW: u64 = 1_000_000_000;
const CHANCE: u64 = 250_000_000;

/// Units and their nanoseconds, except `hz`.
const UNITS: [(&str, u64); 14] = [
    ("ns", 1),
    ("nsec", 1),
    ("us", 1_000),
    ("usec", 1_000),
    ("ms", 1_000_000),
    ("msec", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("hour", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("day", 86_400_000_000_000),
];

/// True for `tick`, and the interval in nanoseconds. `None` if the name is no probe of this
/// provider.
fn parse(name: &str) -> Option<Result<(bool, u64), MatchError>> {
    let (kind, rate) = name.split_once('-')?;
    let tick = match kind {
        "tick" => true,
        "profile" => false,
        _ => return None,
    };
    Some(interval(rate).map(|ns| (tick, ns)))
}

fn interval(rate: &str) -> Result<u64, MatchError> {
    let digits = rate.len() - rate.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let wrong = |why: &str| {
        MatchError::new(format!("invalid rate \"{rate}\": {why}")).with_help(
            "a rate is an integer with hz, ns, us, ms, s, m, h or d, as in profile-997hz or tick-10s",
        )
    };
    let n: u64 = rate[..digits].parse().map_err(|_| wrong("not a number"))?;
    let unit = rate[digits..].to_ascii_lowercase();
    let ns = match unit.as_str() {
        "" | "hz" => 1_000_000_000u64.checked_div(n).ok_or_else(|| wrong("zero"))?,
        _ => {
            let scale = UNITS.iter().find(|(u, _)| *u == unit).ok_or_else(|| wrong("unknown unit"))?.1;
            n.checked_mul(scale).filter(|ns| *ns <= i64::MAX as u64).ok_or_else(|| wrong("too long"))?
        }
    };
    if ns < SHORTEST { Err(wrong("faster than 5000 hz (200 us)")) } else { Ok(ns) }
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "profile",
    help: "clocks",
    probes: &[
        ("profile-RATE", "fires at this rate on every CPU"),
        ("tick-RATE", "fires at this rate on one CPU"),
    ],
    args: &[
        ("arg0", "address in the kernel that was interrupted; 0 where the process was"),
        ("arg1", "address in the process that was interrupted; 0 where the kernel was"),
        ("arg2", "nanoseconds by which the firing is late"),
    ],
};

fn listed() -> Vec<ProbeDesc> {
    let probe = |kind: &str, rate: &u32| ProbeDesc::new("profile", "", "", format!("{kind}-{rate}"));
    PROFILES.iter().map(|r| probe("profile", r)).chain(TICKS.iter().map(|r| probe("tick", r))).collect()
}

/// Any other rate.
fn on_demand(pattern: &Pattern) -> Option<Result<ProbeDesc, MatchError>> {
    if !pattern.module.is_empty() || !pattern.function.is_empty() {
        return None;
    }
    let made = parse(&pattern.name)?;
    Some(made.map(|_| ProbeDesc::new("profile", "", "", pattern.name.as_str())))
}

impl Provider for Profile {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts {
            family: Family::one("profile"),
            has_errno: false,
            stability: ProviderStability::uniform(Attributes::EVOLVING),
        }
    }

    fn attached_by(&self) -> &'static [Facility] {
        &[Facility::CpuClock]
    }

    fn names(&self) -> Names {
        Names { alone: true, ..Names::default() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
    }

    fn timing(&self, probe: &ProbeDesc) -> Option<Timing> {
        let (is_tick, period) = parse(&probe.name)?.ok()?;
        Some(if is_tick { Timing::Tick(period) } else { Timing::EveryCpu })
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let all: Vec<u32> =
            env.cpus.iter().copied().filter(|c| env.only_cpu.is_none_or(|only| only == *c)).collect();
        let late_by = self.due().filter(|_| env.features.has(Facility::ProbeRead));
        let mut units = Vec::new();
        for probe in probes {
            let Some(Ok((tick, period))) = parse(&probe.desc.name) else {
                return Err(format!("{}: not a rate", probe.desc));
            };
            let cpus = if tick { all.first().copied().into_iter().collect() } else { all.clone() };
            let chances = period.div_ceil(CHANCE);
            let slow = (tick && period >= SLOW).then(|| Slow {
                clock: self.clocks.fetch_add(1, Ordering::Relaxed),
                period,
                chance: period / chances,
            });
            let (due, chance) = (period, slow.map_or(period, |s| s.chance));
            units.push(Unit {
                name: probe.desc.name.to_string(),
                role: Role::Probe,
                probes: vec![(0, probe.clone())],
                space: 1,
                context: Arc::new(Sample {
                    late: late_by,
                    slow,
                    counted: Some(self.system.cpu_numbers_end()),
                }),
                method: Arc::new(Clock {
                    event: Counter::clock(),
                    period: chance,
                    due: Some(due),
                    cpus,
                    single: tick,
                    optional: false,
                }),
                interrupts: true,
            });
        }
        Ok(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_every_unit() {
        let ns = |name: &str| parse(name).unwrap().unwrap();
        assert_eq!(ns("profile-1000"), (false, 1_000_000));
        assert_eq!(ns("profile-997hz"), (false, 1_003_009));
        assert_eq!(ns("tick-1s"), (true, 1_000_000_000));
        assert_eq!(ns("tick-1sec"), (true, 1_000_000_000));
        assert_eq!(ns("tick-200us"), (true, 200_000));
        assert_eq!(ns("tick-10ms"), (true, 10_000_000));
        assert_eq!(ns("tick-2min"), (true, 120_000_000_000));
        assert_eq!(ns("tick-1d"), (true, 86_400_000_000_000));
        assert_eq!(ns("tick-500000ns"), (true, 500_000));
    }

    #[test]
    fn wrong_rates_say_why() {
        let why = |name: &str| parse(name).unwrap().unwrap_err().message;
        assert!(why("profile-5001").contains("faster"));
        assert!(why("tick-0").contains("zero"));
        assert!(why("tick-10parsec").contains("unknown unit"));
        assert!(why("tick-").contains("not a number"));
        assert!(why("tick-99999999999d").contains("too long"));
        assert!(parse("tock-1").is_none());
    }
}
