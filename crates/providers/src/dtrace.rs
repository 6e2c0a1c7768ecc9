//! `dtrace`: BEGIN, END, ERROR.
//!
//! None of them is attached. BEGIN and END are raw-tracepoint programs that the session runs itself
//! (`BPF_PROG_TEST_RUN`), so that they run in the session's process, as in the original. ERROR is
//! part of every program that may fault, and takes its arguments from the fault.

use std::sync::Arc;

use probes::{Attributes, Class, Family, ProbeDesc, ProviderFacts, ProviderStability, Stability};

use crate::contract::method::Run;
use crate::contract::{
    EnabledProbe, Env, Manual, Names, NoArguments, ProbeList, ProbeSource, Provider, Role, Unit,
};

/// The provider.
pub(crate) struct Dtrace(ProbeList);

impl Dtrace {
    /// The provider.
    pub(crate) fn new() -> Dtrace {
        let list = || NAMES.iter().map(|(name, _)| ProbeDesc::new("dtrace", "", "", *name)).collect();
        Dtrace(ProbeList::new(list).reserve(NAMES.len()))
    }
}

const NAMES: [(&str, Role); 3] = [("BEGIN", Role::Begin), ("END", Role::End), ("ERROR", Role::Error)];

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "dtrace",
    help: "the beginning and the end of tracing, and faults of clauses",
    probes: &[
        ("BEGIN", "fires once, before every other probe"),
        ("END", "fires once, after every other probe"),
        ("ERROR", "fires when a clause faults"),
    ],
    args: &[
        ("arg1", "in ERROR: epid of the enabled probe that faulted"),
        ("arg2", "in ERROR: number of the action that faulted; 0 is the predicate"),
        ("arg3", "in ERROR: offset in the intermediate code of the clause (-S)"),
        ("arg4", "in ERROR: kind of the fault, see DIAGNOSTICS"),
        ("arg5", "in ERROR: the address, where the fault has one"),
    ],
};

impl Provider for Dtrace {
    fn facts(&self) -> ProviderFacts {
        let stable = Attributes { name: Stability::Stable, data: Stability::Stable, class: Class::Common };
        ProviderFacts {
            family: Family::one("dtrace"),
            has_errno: false,
            stability: ProviderStability::uniform(stable),
        }
    }

    fn names(&self) -> Names {
        Names { alone: true, ..Names::default() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.0
    }

    fn role(&self, probe: &ProbeDesc) -> Role {
        NAMES.iter().find(|(name, _)| *name == &*probe.name).map_or(Role::Probe, |(_, role)| *role)
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let unit = |probe: &EnabledProbe| Unit {
            name: probe.desc.name.to_string(),
            role: self.role(&probe.desc),
            probes: vec![(0, probe.clone())],
            space: 1,
            context: Arc::new(NoArguments),
            method: Arc::new(Run),
            interrupts: false,
        };
        Ok(probes.iter().map(unit).collect())
    }
}
