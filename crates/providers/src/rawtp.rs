//! `rawtp:GROUP::NAME`: the kernel's tracepoints, with the arguments that the kernel's code passes
//! them.
//!
//! The types of arguments are those of the prototypes in BTF (`btf_trace_NAME`), the groups those
//! of tracefs. A tracepoint that is no event has its module in place of a group; the kernel itself
//! is `vmlinux`. Without tracefs, all tracepoints are listed so.

use std::sync::Arc;

use probes::{Args, Family, ProbeDesc, ProviderFacts};

use crate::contract::{EnabledProbe, Env, Manual, Names, ProbeSource, Provider, Unit};
use crate::trace::{self, RawProbe, TracepointProbes, Tracepoints, raw_units};

/// The provider.
pub(crate) struct Rawtp {
    tracepoints: Arc<Tracepoints>,
    probes: TracepointProbes,
}

impl Rawtp {
    /// The provider over these tracepoints.
    pub(crate) fn new(tracepoints: Arc<Tracepoints>) -> Rawtp {
        Rawtp { probes: TracepointProbes::with_bare("rawtp", tracepoints.clone()), tracepoints }
    }
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "rawtp",
    help: "tracepoints of the kernel and its modules, as the kernel calls them",
    probes: &[
        ("rawtp:GROUP::TRACEPOINT", "fires when the kernel passes the tracepoint"),
        (
            "rawtp:MODULE::TRACEPOINT",
            "the same, of a tracepoint that is no event; MODULE is vmlinux for the kernel itself",
        ),
    ],
    args: &[(
        "arg0 ... arg9",
        "what the kernel passes, mostly pointers to its structs; args[] has the types",
    )],
};

impl Provider for Rawtp {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts { family: Family::one("rawtp"), has_errno: false, stability: trace::stability() }
    }

    fn names(&self) -> Names {
        Names { only_by_provider: true, ..Names::default() }
    }

    fn at_prompt(&self) {
        self.tracepoints.at_prompt();
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        self.tracepoints.args(&probe.name)
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let raw =
            |p: &EnabledProbe| RawProbe { probe: p.clone(), args: argument_count(&self.tracepoints, p) };
        raw_units("rawtp", probes.iter().map(raw).collect(), env)
    }
}

/// How many arguments a probe's program may read: none if no clause uses one.
fn argument_count(tracepoints: &Tracepoints, probe: &EnabledProbe) -> u8 {
    if probe.args == 0 {
        return 0;
    }
    match tracepoints.args(&probe.desc.name) {
        Ok(args) => args.len() as u8,
        // Unknown. The kernel checks the ones that the clauses use.
        Err(_) => (64 - probe.args.leading_zeros()) as u8,
    }
}
