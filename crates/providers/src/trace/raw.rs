//! Programs on tracepoints themselves.
//!
//! One program serves all tracepoints that pass the same number of arguments: the kernel refuses a program that reads more
//! than a tracepoint passes. It tells them apart by a cookie; where raw tracepoints carry none, each has a program of its
//! own, which knows what it is.

use std::collections::BTreeMap;
use std::rc::Rc;

use bpf::features::Facility;
use bpf::mir::{Builder, Helper, Label, Size, V};
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
    if !env.features.has(Facility::RawTpCookie) {
        return Ok(probes.into_iter().map(|p| unit(provider, p.args, vec![p.probe])).collect());
    }
    let mut alike: BTreeMap<u8, Vec<EnabledProbe>> = BTreeMap::new();
    for p in probes {
        alike.entry(p.args).or_default().push(p.probe);
    }
    Ok(alike.into_iter().map(|(args, probes)| unit(provider, args, probes)).collect())
}

fn unit(provider: &str, args: u8, probes: Vec<EnabledProbe>) -> Unit {
    let names = probes.iter().map(|p| p.desc.name.clone()).collect();
    let name = match &probes[..] {
        [only] => format!("{provider}_{}", only.desc.name),
        _ => format!("{provider}_{args}"),
    };
    Unit {
        name,
        role: Role::Probe,
        space: probes.len() as u32,
        context: Rc::new(Passed { args, single: probes.len() == 1 }),
        probes: (0..).zip(probes).collect(),
        attach: Attach::Tracepoints(names),
        interrupts: true,
    }
}

/// What a raw tracepoint passes.
struct Passed {
    args: u8,
    single: bool,
}

impl Context for Passed {
    fn index(&self, b: &mut Builder, ctx: V, _out: Label) -> Index {
        if self.single {
            return Index::Const(0);
        }
        Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx]))
    }

    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        if n < self.args { b.load(Size::B8, ctx, 8 * i16::from(n)) } else { b.imm(0) }
    }

    /// The program, `bpf_trace_runN`, `__bpf_trace_NAME`.
    fn own_frames(&self) -> u8 {
        3
    }
}
