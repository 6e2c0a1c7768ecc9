//! Providers of processes, on a machine that is not the running one: it has no processes to ask.

use std::sync::Arc;

use bpf_sys::features::Facility;
use probes::{Calls, MatchError, Pattern, ProbeDesc, ProviderFacts, is_glob};
use system::System;

use crate::contract::{EnabledProbe, Env, FoundProbe, IdRange, Names, ProbeSource, Provider, Unit};

/// A provider, or what stands in its place on a machine that is not live: the same names, and no
/// probes.
pub(crate) fn unless_live(system: &System, provider: Box<dyn Provider>) -> Box<dyn Provider> {
    if system.is_live() { provider } else { Box::new(Elsewhere(provider)) }
}

struct Elsewhere(Box<dyn Provider>);

impl Provider for Elsewhere {
    fn facts(&self) -> ProviderFacts {
        self.0.facts()
    }

    fn calls(&self) -> Calls {
        self.0.calls()
    }

    fn names(&self) -> Names {
        self.0.names()
    }

    fn attached_by(&self) -> &'static [Facility] {
        self.0.attached_by()
    }

    fn probes(&self) -> &dyn ProbeSource {
        self
    }

    fn plan(&self, _: &[EnabledProbe], _: &Env<'_>) -> Result<Vec<Unit>, String> {
        Ok(Vec::new())
    }
}

impl ProbeSource for Elsewhere {
    fn ids(&self) -> IdRange {
        self.0.probes().ids()
    }

    fn positions(&self) -> u32 {
        0
    }

    fn matches(&self, pattern: &Pattern, _: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        // A glob may mean none, as where no process runs.
        match pattern.names_provider() && !is_glob(&pattern.provider) {
            true => {
                let error = MatchError::new("the record of a machine has no processes");
                Err(MatchError { may_come: true, ..error })
            }
            false => Ok(()),
        }
    }

    fn at(&self, _: u32) -> Option<Arc<ProbeDesc>> {
        None
    }
}
