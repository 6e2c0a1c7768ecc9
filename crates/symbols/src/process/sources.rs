//! The functions and source lines at addresses of processes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use files::FileId;

use super::{Place, Processes};
use crate::sources::SourceFrame;

impl Processes {
    /// Functions and source lines are looked up from now on. Without it, [`Processes::sources`] has
    /// none.
    pub fn set_sources(&mut self, on: bool) {
        self.with_sources = on;
    }

    /// Resolves the functions and lines at these addresses (pid, time, address) with one request
    /// per file.
    pub fn prepare_sources(&mut self, wanted: &[(u32, u64, u64)]) {
        if !self.with_sources {
            return;
        }
        let mut offsets: HashMap<FileId, HashSet<u64>> = HashMap::new();
        for &(pid, time, addr) in wanted {
            if let Some(Place::File(id, offset)) = self.place_of(pid, time, addr)
                && self.objects.known_sources(id, offset).is_none()
            {
                offsets.entry(id).or_default().insert(offset);
            }
        }
        for (id, offsets) in offsets {
            let offsets: Vec<u64> = offsets.into_iter().collect();
            self.objects.resolve_sources(id, &offsets, &mut self.reader);
        }
    }

    /// The functions at an address of a process and where they are in their source, the innermost
    /// first. The last one has the code, and the others were put inline there. Empty if nothing is
    /// known.
    pub fn sources(&mut self, pid: u32, time: u64, addr: u64) -> Arc<[SourceFrame]> {
        if !self.with_sources {
            return Arc::default();
        }
        let Some(Place::File(id, offset)) = self.place_of(pid, time, addr) else { return Arc::default() };
        if self.objects.known_sources(id, offset).is_none() {
            self.objects.resolve_sources(id, &[offset], &mut self.reader);
        }
        self.objects.known_sources(id, offset).cloned().unwrap_or_default()
    }
}
