//! `sdt:GROUP::NAME`: the kernel's tracepoints as events. Their arguments are the members of the
//! event's record, in order.
//!
//! If no clause uses an argument, or a table has those that are used ([`Mapped`]), the program is
//! attached to the raw tracepoint, and one program serves many. Else each event has a perf event
//! and a program, and the kernel takes some 75 ms to detach each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bpf_sys::features::Facility;
use probes::{ArgType, Args, Family, ProbeDesc, ProviderFacts};

use crate::contract::method::{Event, Method, Tracepoints as RawTracepoints};
use crate::contract::{EnabledProbe, Env, Manual, ProbeSource, Provider, Role, Unit};
use crate::lock;
use crate::trace::{self, Format, Mapped, RawProbe, Record, TracepointProbes, Tracepoints, raw_units};

/// The greatest number of arguments that the language has.
const ARGS_MAX: usize = 32;

/// The provider.
pub(crate) struct Sdt {
    tracepoints: Arc<Tracepoints>,
    probes: TracepointProbes,
    /// Formats of events that were asked for.
    formats: Mutex<HashMap<String, Option<Arc<Format>>>>,
}

impl Sdt {
    /// The provider over these tracepoints.
    pub(crate) fn new(tracepoints: Arc<Tracepoints>) -> Sdt {
        let probes = TracepointProbes::of_events("sdt", tracepoints.clone());
        Sdt { tracepoints, probes, formats: Mutex::default() }
    }

    fn format(&self, probe: &ProbeDesc) -> Result<Arc<Format>, String> {
        let mut known = lock(&self.formats);
        let read = || self.tracepoints.format(&probe.module, &probe.name).map(Arc::new);
        let found = known.entry(format!("{}:{}", probe.module, probe.name)).or_insert_with(read);
        found.clone().ok_or_else(|| format!("tracefs has no format of event {}:{}", probe.module, probe.name))
    }

    /// Plans the unit of a probe whose clauses use arguments.
    fn with_arguments(&self, probe: &EnabledProbe, env: &Env<'_>) -> Result<Unit, String> {
        let format = self.format(&probe.desc)?;
        let raw = env.features.has(Facility::RawTp).then(|| self.tracepoints.args(&probe.desc.name));
        let mapped = raw.and_then(|p| Mapped::of(&probe.desc.name, &format, probe.args, &p));
        let mapped = mapped.filter(|m| !m.reads_memory() || env.features.has(Facility::ProbeRead));
        let cookies = env.features.has(Facility::RawTpCookie);
        let (context, method): (Arc<dyn bpf_codegen::context::Context>, Arc<dyn Method>) = match mapped {
            Some(mapped) => {
                (Arc::new(mapped), Arc::new(RawTracepoints { names: vec![probe.desc.name.clone()], cookies }))
            }
            None => {
                let fields = format.fields.iter().take(ARGS_MAX).cloned().collect();
                (Arc::new(Record(fields)), Arc::new(Event { id: format.id }))
            }
        };
        Ok(Unit {
            name: format!("sdt_{}", probe.desc.name),
            role: Role::Probe,
            probes: vec![(0, probe.clone())],
            space: 1,
            context,
            method,
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
        ProviderFacts { family: Family::one("sdt"), has_errno: false, stability: trace::stability() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
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
