//! `profile-RATE` on every CPU and `tick-RATE` on one.
//!
//! Each is a software CPU clock (perf) with a fixed *period*: a clock asked for a frequency keeps adjusting itself and
//! loses about one firing in a hundred. arg0 is the kernel program counter or 0, arg1 the user one or 0.

use std::rc::Rc;

use bpf::arch::regs;
use bpf::mir::{Alu, Builder, Jmp, Size, V};
use probes::{Attributes, MatchError, Pattern, ProbeDesc, ProviderFacts, ProviderStability};

use crate::registry::{EnabledProbe, Env, Provider};
use crate::unit::{Attach, Role, Unit};

/// The provider.
pub(crate) struct Profile;

/// Rates that exist without being asked for, in hertz.
const PROFILES: [u32; 7] = [97, 199, 499, 997, 1999, 4001, 4999];
const TICKS: [u32; 6] = [1, 10, 100, 500, 1000, 5000];

/// Shortest interval: 200 microseconds (5000 hz).
const SHORTEST: u64 = 200_000;

/// Unit names and nanoseconds; `hz` apart.
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

/// True for `tick`, and the interval in nanoseconds. `None` where the name is no probe of this provider at all.
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
    let wrong = |why: &str| MatchError {
        message: format!("invalid rate \"{rate}\": {why}"),
        help: Some(
            "a rate is an integer with hz, ns, us, ms, s, m, h or d, as in profile-997hz or tick-10s".into(),
        ),
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

impl Provider for Profile {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts {
            name: "profile".into(),
            has_errno: false,
            stability: ProviderStability::uniform(Attributes::EVOLVING),
        }
    }

    fn list(&self) -> Vec<ProbeDesc> {
        let probe = |kind: &str, rate: &u32| ProbeDesc::new("profile", "", "", format!("{kind}-{rate}"));
        PROFILES.iter().map(|r| probe("profile", r)).chain(TICKS.iter().map(|r| probe("tick", r))).collect()
    }

    fn make(&self, pattern: &Pattern) -> Option<Result<ProbeDesc, MatchError>> {
        if !pattern.module.is_empty() || !pattern.function.is_empty() {
            return None;
        }
        let made = parse(&pattern.name)?;
        Some(made.map(|_| ProbeDesc::new("profile", "", "", pattern.name.as_str())))
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let all: Vec<u32> =
            env.cpus.iter().copied().filter(|c| env.only_cpu.is_none_or(|only| only == *c)).collect();
        let mut units = Vec::new();
        for probe in probes {
            let Some(Ok((tick, period))) = parse(&probe.desc.name) else {
                return Err(format!("{}: not a rate", probe.desc));
            };
            let cpus = if tick { all.first().copied().into_iter().collect() } else { all.clone() };
            units.push(Unit {
                name: probe.desc.name.to_string(),
                role: Role::Probe,
                probes: vec![(0, probe.clone())],
                space: 1,
                context: Rc::new(Sample),
                attach: Attach::Clock { period, cpus, single: tick },
                interrupts: true,
            });
        }
        Ok(units)
    }
}

/// A firing of a perf event: the context begins with the interrupted registers.
struct Sample;

impl bpf::program::Context for Sample {
    fn arg(&self, b: &mut Builder, ctx: V, _index: bpf::program::Index, n: u8) -> V {
        if n > 1 {
            return b.imm(0);
        }
        // Kernel code runs at privilege level 0: arg0 is its counter, arg1 that of user code; the other one is 0.
        let done = b.label();
        let value = b.copy(0);
        let cs = b.load(Size::B8, ctx, regs::CS);
        let level = b.alu(Alu::And, cs, 3);
        b.br(if n == 0 { Jmp::Ne } else { Jmp::Eq }, level, 0, done);
        let ip = b.load(Size::B8, ctx, regs::IP);
        b.set(value, ip);
        b.bind(done);
        value
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
