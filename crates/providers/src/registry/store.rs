//! Probes that come and go while sessions run.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use probes::{Family, Pattern, ProbeDesc, ProbeId, ProbeInfo};

use super::ids::OVERFLOW;
use super::{Entry, LaterProbe, Registry};
use crate::contract::{LoadedModules, ProbeStore, ProbesChanged, UnloadedModules};
use crate::lock;

impl ProbeStore for Registry {
    fn add(&self, probes: Vec<ProbeDesc>) -> Vec<ProbeInfo> {
        let base = *self.later_base.get_or_init(|| self.first_later_id());
        let found = |desc: ProbeDesc| Some((self.index_of(&desc.provider)?, Arc::new(desc)));
        self.entries.iter().for_each(|e| e.provider.probes().others_changed());
        let adding = lock(&self.adding);
        let mut changes = lock(&self.changes);
        let most = OVERFLOW.saturating_sub(base + changes.came) as usize;
        let probes = probes.into_iter().filter_map(found).take(most);
        let add = |(provider, desc): (usize, Arc<ProbeDesc>)| {
            let id = ProbeId(base + changes.add(provider, desc.clone()));
            ProbeInfo { id, desc }
        };
        let added = probes.map(add).collect();
        drop(adding);
        added
    }

    fn remove(&self, probes: &[ProbeId]) {
        let Some(base) = self.later_base.get() else { return };
        let mut changes = lock(&self.changes);
        probes.iter().filter_map(|id| id.0.checked_sub(*base)).for_each(|number| changes.remove(number));
    }

    fn modules_changed(
        &self,
        loaded: &BTreeSet<String>,
        unloaded: &BTreeSet<String>,
        patterns: &[&Pattern],
    ) -> ProbesChanged {
        let sequence = {
            let mut changes = lock(&self.changes);
            changes.sequence += 1;
            changes.unloaded.extend(unloaded.iter().cloned());
            changes.sequence
        };
        let mut changed = ProbesChanged::default();
        if !unloaded.is_empty() {
            let modules = UnloadedModules { modules: unloaded, sequence };
            for (provider, entry) in self.entries.iter().enumerate() {
                for pattern in entry.provider.probes().removed(&modules) {
                    changed.removed.extend(self.remove_matching(provider, &pattern));
                }
            }
        }
        if !loaded.is_empty() {
            self.later_base.get_or_init(|| self.first_later_id());
            self.entries.iter().for_each(|e| e.provider.probes().others_changed());
            let follows = |e: &Entry| e.provider.probes().follows_modules();
            let selected = |e: &Entry| follows(e) && patterns.iter().any(|p| e.may_match(p));
            for (provider, entry) in self.entries.iter().enumerate().filter(|(_, e)| selected(e)) {
                changed.added.extend(self.add_of_modules(provider, entry, loaded, sequence));
            }
        }
        changed
    }

    fn family(&self, name: &str) -> Option<&Family> {
        Registry::family(self, name)
    }
}

impl Registry {
    /// Removes the probes of a provider that a pattern matches, and gives their ids.
    fn remove_matching(&self, provider: usize, pattern: &Pattern) -> Vec<ProbeId> {
        let first = OnceCell::new();
        let mut removed = Vec::new();
        // What cannot be matched does not exist.
        let _ = self.entries[provider].provider.probes().matches(pattern, &mut |found| {
            if let Some(at) = found.position() {
                let first = *first.get_or_init(|| self.base(provider));
                removed.push(self.position_id(provider, first, at));
            }
        });
        let base = self.later_ids().start;
        let mut changes = lock(&self.changes);
        removed.retain(|id| changes.removed.insert(*id));
        let matches = |p: &LaterProbe| p.provider == provider && pattern.matches(&p.desc);
        let later = changes.later.iter().filter(|(_, probe)| matches(probe));
        let numbers: Vec<u32> = later.map(|(number, _)| *number).collect();
        for number in numbers {
            changes.remove(number);
            removed.push(base + number);
        }
        removed.into_iter().map(ProbeId).collect()
    }

    /// Adds the probes of a provider in modules that were loaded.
    fn add_of_modules(
        &self,
        provider: usize,
        entry: &Entry,
        modules: &BTreeSet<String>,
        sequence: u32,
    ) -> Vec<ProbeInfo> {
        // The source learns the ids before the probes are added.
        let _adding = lock(&self.adding);
        let first_id = self.later_ids().end;
        let unloaded = lock(&self.changes).unloaded.clone();
        let modules = LoadedModules { modules, unloaded: &unloaded, sequence, first_id };
        let found = entry.provider.probes().added(&modules).into_iter().map(Arc::new);
        let added: Vec<ProbeInfo> =
            (first_id..OVERFLOW).zip(found).map(|(id, desc)| ProbeInfo { id: ProbeId(id), desc }).collect();
        let mut changes = lock(&self.changes);
        for probe in &added {
            changes.add(provider, probe.desc.clone());
        }
        drop(changes);
        added
    }
}
