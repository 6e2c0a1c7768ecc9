//! The list of all probes: those that have a position, in the order of ids, then those that running processes describe.

use std::sync::Arc;

use probes::{Pattern, ProbeDesc, ProbeId, ProbeInfo};

use super::Registry;
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

    /// The probe after a place in the list of all, in the order of ids; `None` at the end. Nothing is
    /// read before its provider's turn.
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

    /// The probes that files of running processes describe, which follow those that have a position in the list of all. They are
    /// valid in one session.
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
