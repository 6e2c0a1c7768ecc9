//! The files of processes that have ended, where there is no watcher: whoever asks for the maps of
//! processes, and not for names of addresses, needs a file as long as one of them has it mapped.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use super::Processes;
use super::watched::CLOSE_INTERVAL;

impl Processes {
    /// Closes the handles of files, and the roots, that no process has had mapped for a while
    /// ([`files::KEEP`]), of those whose maps were read and that run. The maps of all others are
    /// dropped. The caller repeats the call; most calls do nothing and return false.
    pub fn close_unmapped(&mut self, now: Instant) -> bool {
        if self.closed_at.is_some_and(|at| now < at + CLOSE_INTERVAL) {
            return false;
        }
        self.closed_at = Some(now);
        let has_ended = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists();
        let ended: Vec<u32> = self.processes.keys().copied().filter(has_ended).collect();
        ended.into_iter().for_each(|pid| self.remove(pid));
        let mapped: HashSet<_> = self.processes.values().flat_map(|p| &p.objects).copied().collect();
        self.objects.close_unmapped(&mapped, now, &mut self.reader);
        true
    }
}
