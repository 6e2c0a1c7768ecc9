//! `dtrace`: BEGIN, END, ERROR.
//!
//! None of them is attached. BEGIN and END are raw-tracepoint programs that the session runs itself (`BPF_PROG_TEST_RUN`), so
//! that they run in the session's process, as in the original. ERROR is part of every program that may fault, and takes its
//! arguments from the fault.

use std::rc::Rc;

use probes::{Attributes, Class, Pattern, ProbeDesc, ProviderFacts, ProviderStability, Stability};

use crate::manual::Manual;
use crate::registry::{EnabledProbe, Env, Provider};
use crate::unit::{Attach, NoArguments, Role, Unit};

/// The provider.
pub(crate) struct Dtrace;

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
            name: "dtrace".into(),
            has_errno: false,
            stability: ProviderStability::uniform(stable),
        }
    }

    fn reserved_ids(&self) -> Option<u32> {
        Some(NAMES.len() as u32)
    }

    fn list(&self) -> Vec<ProbeDesc> {
        NAMES.iter().map(|(name, _)| ProbeDesc::new("dtrace", "", "", *name)).collect()
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let unit = |probe: &EnabledProbe| {
            let role = NAMES.iter().find(|(n, _)| *n == &*probe.desc.name).map(|(_, r)| *r)?;
            Some(Unit {
                name: probe.desc.name.to_string(),
                role,
                probes: vec![(0, probe.clone())],
                space: 1,
                context: Rc::new(NoArguments),
                attach: Attach::Run,
                interrupts: false,
            })
        };
        Ok(probes.iter().filter_map(unit).collect())
    }

    fn make(&self, _: &Pattern) -> Option<Result<ProbeDesc, probes::MatchError>> {
        None
    }
}
