//! The list of all probes: those that have a position, in the order of ids, then those that running
//! processes describe; and what their names can be, for completions.

use std::sync::Arc;

use probes::{Family, FieldKind, Pattern, ProbeDesc, ProbeId, ProbeInfo};

use super::Registry;
use crate::contract::Provider;
use crate::lock;

/// A place in the list of all probes: see [`Registry::next_probe`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    provider: usize,
    /// The provider's first id and number of positions.
    range: Option<(u32, u32)>,
    position: u32,
}

impl Registry {
    /// Calls `give` with every probe that has a position, in the order of ids.
    pub fn each(&self, mut give: impl FnMut(ProbeId, &ProbeDesc)) {
        let removed = lock(&self.changes).removed.clone();
        for (provider, entry) in self.entries.iter().enumerate() {
            let first = self.base(provider);
            // A provider whose probes cannot be read has none.
            let _ = entry.provider.probes().matches(&Pattern::default(), &mut |found| {
                let Some(at) = found.position() else { return };
                let id = self.position_id(provider, first, at);
                if !removed.contains(&id) {
                    give(ProbeId(id), found.desc());
                }
            });
        }
    }

    /// The probe after a place in the list of all, in the order of ids; `None` at the end. Nothing
    /// is read before its provider's turn.
    pub fn next_probe(&self, cursor: &mut Cursor) -> Option<ProbeInfo> {
        while let Some(entry) = self.entries.get(cursor.provider) {
            let probes = entry.provider.probes();
            let (first, count) = match cursor.range {
                Some(range) => range,
                None => *cursor.range.insert((self.base(cursor.provider), probes.positions())),
            };
            while cursor.position < count {
                let position = cursor.position;
                cursor.position += 1;
                let id = self.position_id(cursor.provider, first, position);
                if lock(&self.changes).removed.contains(&id) {
                    continue;
                }
                if let Some(desc) = probes.at(position) {
                    return Some(ProbeInfo { id: ProbeId(id), desc });
                }
            }
            *cursor = Cursor { provider: cursor.provider + 1, ..Cursor::default() };
        }
        None
    }

    /// See [`Provider::at_prompt`](crate::Provider::at_prompt).
    pub fn at_prompt(&self) {
        self.entries.iter().for_each(|entry| entry.provider.at_prompt());
    }

    /// The provider of a family of this registry.
    pub fn of_family(&self, family: &Family) -> Option<&dyn Provider> {
        let entry = self.entries.iter().find(|entry| entry.family == *family);
        entry.map(|entry| entry.provider.as_ref())
    }

    /// Calls `give` with what a field of the probes is that a pattern matches, for a user who waits
    /// at a prompt: see [`ProbeSource::names`](crate::ProbeSource::names).
    pub fn names(&self, pattern: &Pattern, field: FieldKind, give: &mut dyn FnMut(&str)) {
        let asked = self.asked(pattern).map(|(_, entry)| entry.provider.probes());
        asked.filter(|probes| probes.may_have_probes()).for_each(|probes| probes.names(pattern, field, give));
    }

    /// The families of the providers, without those of which it is known at once that they have no
    /// probes here.
    pub fn families_here(&self) -> impl Iterator<Item = &Family> {
        self.entries
            .iter()
            .filter(|entry| entry.provider.probes().may_have_probes())
            .map(|entry| &entry.family)
    }

    /// The probes that files of running processes describe, which follow those that have a position
    /// in the list of all. They are valid in one session.
    pub fn running_probes(&self) -> Vec<ProbeInfo> {
        let mut all = Vec::new();
        for (provider, entry) in self.entries.iter().enumerate() {
            entry.provider.probes().running(&mut |desc| {
                if self.is_own(provider, &desc) {
                    all.push(self.made(Arc::new(desc)));
                }
            });
        }
        all
    }
}
