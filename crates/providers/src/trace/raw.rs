//! Programs on raw tracepoints.
//!
//! One program serves all tracepoints with the same number of arguments, because the kernel refuses
//! a program that reads more arguments than its tracepoint has. The program tells the tracepoints
//! apart by a cookie. On kernels where raw tracepoints have no cookie, each tracepoint has a copy
//! of the program, and each copy has a number.

use std::collections::BTreeMap;
use std::sync::Arc;

use bpf_codegen::context::{Context, Index, StackStart};
use bpf_codegen::mir::{Builder, Const, Helper, Label, Size, V};
use bpf_sys::features::Facility;

use crate::contract::method::Tracepoints;
use crate::contract::{EnabledProbe, Env, Role, Unit};

/// A probe on a tracepoint.
pub(crate) struct RawProbe {
    /// The probe.
    pub(crate) probe: EnabledProbe,
    /// The number of arguments of the tracepoint; 0 if no clause uses one.
    pub(crate) args: u8,
}

/// Plans units for probes on raw tracepoints.
pub(crate) fn raw_units(provider: &str, probes: Vec<RawProbe>, env: &Env<'_>) -> Result<Vec<Unit>, String> {
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    if !env.features.has(Facility::RawTp) {
        return Err("this kernel lets no program attach to raw tracepoints".into());
    }
    let cookies = env.features.has(Facility::RawTpCookie);
    let mut by_count: BTreeMap<u8, Vec<EnabledProbe>> = BTreeMap::new();
    for p in probes {
        by_count.entry(p.args).or_default().push(p.probe);
    }
    Ok(by_count.into_iter().map(|(args, probes)| unit(provider, args, probes, cookies)).collect())
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
        context: Arc::new(RawContext {
            args,
            selector: match (probes.len(), cookies) {
                (1, _) => ProbeSelector::Only,
                (_, true) => ProbeSelector::Cookie,
                (_, false) => ProbeSelector::Copy,
            },
        }),
        method: Arc::new(Tracepoints { names, cookies }),
        probes: (0..).zip(probes).collect(),
        interrupts: true,
    }
}

/// The context of a program on raw tracepoints: the arguments, 64 bits each.
struct RawContext {
    args: u8,
    selector: ProbeSelector,
}

/// How a program finds its probe.
enum ProbeSelector {
    Only,
    Cookie,
    Copy,
}

impl Context for RawContext {
    fn index(&self, b: &mut Builder, ctx: V, _out: Label) -> Index {
        match self.selector {
            ProbeSelector::Only => Index::Const(0),
            ProbeSelector::Cookie => Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx])),
            ProbeSelector::Copy => Index::V(b.constant(Const::Copy)),
        }
    }

    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        if n < self.args { b.load(Size::B8, ctx, 8 * i16::from(n)) } else { b.imm(0) }
    }

    fn shape(&self) -> Option<String> {
        Some(format!("raw tracepoint, {} arguments", self.args))
    }

    /// The program and `bpf_trace_runN`. Some kernels differ: see [`Context::behind_tracepoint`].
    fn tracer_frames(&self) -> u8 {
        2
    }

    fn behind_tracepoint(&self) -> bool {
        true
    }

    fn stack_start(&self) -> Option<StackStart> {
        Some(StackStart::Caller)
    }
}
