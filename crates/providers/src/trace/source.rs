//! The tracepoints as a source of probes, for `sdt` and `rawtp`.

use std::sync::Arc;

use probes::{MatchError, Pattern, ProbeDesc};

use super::{Tracepoints, may_match};
use crate::contract::source::{FoundProbe, IdRange, LoadedModules, ProbeList, ProbeSource, UnloadedModules};

/// How many ids `rawtp` has for tracepoints that are no events. They are more than the kernel has
/// (20 in Linux 7.2), so that the ids of the providers after it are known before the kernel's types
/// are read.
const BARE_IDS: u32 = 64;

/// The probes of a provider at tracepoints: one for each event, in the kernel's order; then, for
/// `rawtp`, one for each bare tracepoint.
pub(crate) struct TracepointProbes {
    provider: &'static str,
    tracepoints: Arc<Tracepoints>,
    events: ProbeList,
    /// `None` if the tracepoints must be events.
    bare: Option<ProbeList>,
}

impl TracepointProbes {
    /// The probes of a provider whose tracepoints must be events.
    pub(crate) fn of_events(provider: &'static str, tracepoints: Arc<Tracepoints>) -> TracepointProbes {
        let all = tracepoints.clone();
        let events = ProbeList::new(move || probes(provider, all.events().unwrap_or_default()));
        TracepointProbes { provider, tracepoints, events, bare: None }
    }

    /// The probes of a provider whose tracepoints need not be events.
    pub(crate) fn with_bare(provider: &'static str, tracepoints: Arc<Tracepoints>) -> TracepointProbes {
        let all = tracepoints.clone();
        let bare = Some(ProbeList::new(move || probes(provider, all.bare())));
        TracepointProbes { bare, ..TracepointProbes::of_events(provider, tracepoints) }
    }

    fn event_count(&self) -> u32 {
        self.tracepoints.events().unwrap_or_default().len() as u32
    }
}

fn probes(provider: &str, tracepoints: &[(String, String)]) -> Vec<ProbeDesc> {
    tracepoints.iter().map(|(module, name)| ProbeDesc::new(provider, &**module, "", &**name)).collect()
}

impl ProbeSource for TracepointProbes {
    fn ids(&self) -> IdRange {
        if self.bare.is_some() { IdRange::Estimated } else { IdRange::Counted }
    }

    fn positions(&self) -> u32 {
        self.event_count() + self.bare.as_ref().map_or(0, ProbeList::positions)
    }

    /// Without tracefs there are only bare tracepoints, and they are counted.
    fn estimate(&self) -> u32 {
        match self.tracepoints.events() {
            Ok(events) => events.len() as u32 + BARE_IDS,
            Err(_) => self.positions(),
        }
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        may_match(pattern)
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        self.events.matches(pattern, give)?;
        let Some(bare) = self.bare.as_ref().filter(|_| self.tracepoints.may_be_bare(pattern)) else {
            return Ok(());
        };
        let first = self.event_count();
        let mut any = false;
        for (at, desc) in (first..).zip(bare.probes()).filter(|(_, desc)| pattern.matches(desc)) {
            any = true;
            give(FoundProbe::Listed(at, desc));
        }
        let name = &pattern.name;
        if !any && pattern.is_specific() && pattern.module.is_empty() && self.tracepoints.has_prototype(name)
        {
            let why = match self.tracepoints.refusal(name) {
                Some(why) => format!("tracepoint {name} is left out: {why}"),
                None => format!("the kernel's types have tracepoint {name}, but the kernel does not"),
            };
            return Err(MatchError::new(why));
        }
        Ok(())
    }

    fn may_have_probes(&self) -> bool {
        self.bare.is_some() || self.tracepoints.events().is_ok()
    }

    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>> {
        match position.checked_sub(self.event_count()) {
            None => self.events.at(position),
            Some(bare) => self.bare.as_ref()?.at(bare),
        }
    }

    fn follows_modules(&self) -> bool {
        true
    }

    fn added(&self, modules: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        let mut added = self.tracepoints.added(modules);
        if self.bare.is_some() {
            added.extend(self.tracepoints.added_bare(modules));
        }
        probes(self.provider, &added)
    }

    fn removed(&self, modules: &UnloadedModules<'_>) -> Vec<Pattern> {
        let mut removed = self.tracepoints.removed(modules);
        if self.bare.is_some() {
            removed.extend(self.tracepoints.removed_bare(modules));
        }
        probes(self.provider, &removed).iter().map(Pattern::exact).collect()
    }
}
