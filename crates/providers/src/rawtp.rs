//! `rawtp:GROUP::NAME`: the kernel's tracepoints, with the arguments that the kernel's code passes them.
//!
//! The types of arguments are those of the prototypes in BTF (`btf_trace_NAME`), the groups those of tracefs. Without tracefs, the
//! list is that of the prototypes, and the group is `vmlinux`.

use std::rc::Rc;

use probes::{Args, Pattern, ProbeDesc, ProviderFacts};

use crate::manual::Manual;
use crate::registry::{EnabledProbe, Env, LoadedModules, Provider};
use crate::trace::{self, RawProbe, Tracepoints, raw_units};
use crate::unit::Unit;

/// The provider.
pub(crate) struct Rawtp(pub(crate) Rc<Tracepoints>);

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "rawtp",
    help: "tracepoints of the kernel and its modules, as the kernel calls them",
    probes: &[("rawtp:GROUP::TRACEPOINT", "fires when the kernel passes the tracepoint")],
    args: &[(
        "arg0 ... arg9",
        "what the kernel passes, mostly pointers to its structs; args[] has the types",
    )],
};

impl Provider for Rawtp {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts { name: "rawtp".into(), has_errno: false, stability: trace::stability() }
    }

    fn only_by_name(&self) -> bool {
        true
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        trace::may_match(pattern)
    }

    fn list(&self) -> Vec<ProbeDesc> {
        match self.0.events() {
            Ok(events) => {
                events.iter().map(|(group, name)| ProbeDesc::new("rawtp", &**group, "", &**name)).collect()
            }
            Err(_) => {
                let names = self.0.typed_names().into_iter();
                names.map(|name| ProbeDesc::new("rawtp", "vmlinux", "", name)).collect()
            }
        }
    }

    fn count(&self) -> usize {
        self.0.events().map_or_else(|_| self.0.typed_names().len(), <[_]>::len)
    }

    fn follows_modules(&self) -> bool {
        true
    }

    fn probes_of(&self, loaded: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        let probe = |(group, name): &(String, String)| ProbeDesc::new("rawtp", &**group, "", &**name);
        self.0.added_by(loaded).iter().map(probe).collect()
    }

    fn modules_unloaded(&self) {
        self.0.modules_unloaded();
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        self.0.args(&probe.name)
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let raw = |p: &EnabledProbe| RawProbe { probe: p.clone(), args: argument_count(&self.0, p) };
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
