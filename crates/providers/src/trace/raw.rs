//! Programs on tracepoints themselves.
//!
//! One program serves all tracepoints that pass the same number of arguments: the kernel refuses a program that reads more
//! than a tracepoint passes. It tells them apart by a cookie; where raw tracepoints carry none, each has a copy of
//! the program, which knows its number.

use std::collections::BTreeMap;
use std::rc::Rc;

use bpf::features::Facility;
use bpf::mir::{Builder, Const, Helper, Label, Size, V};
use bpf::program::{Context, Index};

use crate::registry::{EnabledProbe, Env};
use crate::unit::{Attach, Role, Unit};

/// A probe on a tracepoint.
pub(crate) struct RawProbe {
    /// It.
    pub(crate) probe: EnabledProbe,
    /// So many arguments are passed; 0 where nobody asks for one.
    pub(crate) args: u8,
}

/// The units of probes on tracepoints.
pub(crate) fn raw_units(provider: &str, probes: Vec<RawProbe>, env: &Env<'_>) -> Result<Vec<Unit>, String> {
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    if !env.features.has(Facility::RawTp) {
        return Err("this kernel lets no program attach to raw tracepoints".into());
    }
    let cookies = env.features.has(Facility::RawTpCookie);
    let mut alike: BTreeMap<u8, Vec<EnabledProbe>> = BTreeMap::new();
    for p in probes {
        alike.entry(p.args).or_default().push(p.probe);
    }
    Ok(alike.into_iter().map(|(args, probes)| unit(provider, args, probes, cookies)).collect())
}

fn unit(provider: &str, args: u8, probes: Vec<EnabledProbe>, cookies: bool) -> Unit {
    let names: Vec<_> = probes.iter().map(|p| p.desc.name.clone()).collect();
    let name = match &probes[..] {
        [only] => format!("{provider}_{}", only.desc.name),
        _ => format!("{provider}_{args}"),
    };
    Unit {
        name,
        role: Role::Probe,
        space: probes.len() as u32,
        context: Rc::new(Passed {
            args,
            which: match (probes.len(), cookies) {
                (1, _) => Which::Only,
                (_, true) => Which::Cookie,
                (_, false) => Which::Copy,
            },
        }),
        attach: match probes.len() == 1 || cookies {
            true => Attach::Tracepoints(names),
            false => Attach::EachTracepoint(names),
        },
        probes: (0..).zip(probes).collect(),
        interrupts: true,
    }
}

/// What a raw tracepoint passes.
struct Passed {
    args: u8,
    which: Which,
}

/// How a program knows its probe.
enum Which {
    Only,
    Cookie,
    Copy,
}

impl Context for Passed {
    fn index(&self, b: &mut Builder, ctx: V, _out: Label) -> Index {
        match self.which {
            Which::Only => Index::Const(0),
            Which::Cookie => Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx])),
            Which::Copy => Index::V(b.constant(Const::Copy)),
        }
    }

    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        if n < self.args { b.load(Size::B8, ctx, 8 * i16::from(n)) } else { b.imm(0) }
    }

    /// The program, `bpf_trace_runN`; it is not so everywhere.
    fn tracer_frames(&self) -> u8 {
        2
    }

    fn behind_tracepoint(&self) -> bool {
        true
    }
}
