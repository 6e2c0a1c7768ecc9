//! `sdt:GROUP::NAME`: the kernel's tracepoints as events. Their arguments are the members of the event's record, in order.
//!
//! If no clause uses an argument, or a table has those that are used ([`Mapped`]), the program is attached to the raw tracepoint,
//! and one program serves many. Else each event has a perf event and a program, and the kernel takes some 75 ms to detach each.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use bpf::features::Facility;
use probes::{ArgType, Args, Pattern, ProbeDesc, ProviderFacts};

use crate::manual::Manual;
use crate::registry::{EnabledProbe, Env, LoadedModules, Provider};
use crate::trace::{self, Format, Mapped, RawProbe, Record, Tracepoints, raw_units};
use crate::unit::{Attach, Role, Unit};

/// The greatest number of arguments that the language has.
const ARGS_MAX: usize = 32;

/// The provider.
pub(crate) struct Sdt {
    tracepoints: Rc<Tracepoints>,
    /// Formats of events that were asked for.
    formats: RefCell<HashMap<String, Option<Rc<Format>>>>,
}

impl Sdt {
    /// The provider over these tracepoints.
    pub(crate) fn new(tracepoints: Rc<Tracepoints>) -> Sdt {
        Sdt { tracepoints, formats: RefCell::default() }
    }

    fn format(&self, probe: &ProbeDesc) -> Result<Rc<Format>, String> {
        let mut known = self.formats.borrow_mut();
        let read = || trace::format(&probe.module, &probe.name).map(Rc::new);
        let found = known.entry(format!("{}:{}", probe.module, probe.name)).or_insert_with(read);
        found.clone().ok_or_else(|| format!("tracefs has no format of event {}:{}", probe.module, probe.name))
    }

    /// Plans the unit of a probe whose clauses use arguments.
    fn with_arguments(&self, probe: &EnabledProbe, env: &Env<'_>) -> Result<Unit, String> {
        let format = self.format(&probe.desc)?;
        let raw = env.features.has(Facility::RawTp).then(|| self.tracepoints.args(&probe.desc.name));
        let mapped = raw.and_then(|p| Mapped::of(&probe.desc.name, &format, probe.args, &p));
        let mapped = mapped.filter(|m| !m.reads_memory() || env.features.has(Facility::ProbeRead));
        let (context, attach): (Rc<dyn bpf::program::Context>, Attach) = match mapped {
            Some(mapped) => (Rc::new(mapped), Attach::Tracepoints(vec![probe.desc.name.clone()])),
            None => {
                let name = format!("{}:{}", probe.desc.module, probe.desc.name);
                let fields = format.fields.iter().take(ARGS_MAX).cloned().collect();
                (Rc::new(Record(fields)), Attach::Event { id: format.id, name })
            }
        };
        Ok(Unit {
            name: format!("sdt_{}", probe.desc.name),
            role: Role::Probe,
            probes: vec![(0, probe.clone())],
            space: 1,
            context,
            attach,
            interrupts: true,
        })
    }
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "sdt",
    help: "tracepoints of the kernel and its modules, as events with a record",
    probes: &[("sdt:GROUP::TRACEPOINT", "fires when the kernel passes the tracepoint")],
    args: &[(
        "arg0 ... arg9",
        "the members of the event's record, in their order; args[] has them with their types",
    )],
};

impl Provider for Sdt {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts { name: "sdt".into(), has_errno: false, stability: trace::stability() }
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        trace::may_match(pattern)
    }

    fn list(&self) -> Vec<ProbeDesc> {
        let events = self.tracepoints.events().unwrap_or_default();
        events.iter().map(|(group, name)| ProbeDesc::new("sdt", &**group, "", &**name)).collect()
    }

    fn count(&self) -> usize {
        self.tracepoints.events().map_or(0, <[_]>::len)
    }

    fn follows_modules(&self) -> bool {
        true
    }

    fn probes_of(&self, loaded: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        let probe = |(group, name): &(String, String)| ProbeDesc::new("sdt", &**group, "", &**name);
        self.tracepoints.added_by(loaded).iter().map(probe).collect()
    }

    fn modules_unloaded(&self) {
        self.tracepoints.modules_unloaded();
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        let format = self.format(probe)?;
        let fields = format.fields.iter().take(ARGS_MAX);
        Ok((0..).zip(fields).map(|(n, f)| ArgType::text(n, f.ty.clone())).collect())
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let (without, with): (Vec<_>, Vec<_>) = probes.iter().partition(|p| p.args == 0);
        let raw = without.into_iter().map(|p| RawProbe { probe: p.clone(), args: 0 });
        let mut units = raw_units("sdt", raw.collect(), env)?;
        for probe in with {
            units.push(self.with_arguments(probe, env)?);
        }
        Ok(units)
    }
}
