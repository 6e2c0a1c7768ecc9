//! Processes that map, unmap and execute files while a session runs, as a source of probes.
//!
//! The watcher tells of mappings and programs. (It is not told when a process unmaps a file: no
//! code of it runs any more, and that is seen when the process next maps one.) What follows from a
//! change is the providers' matter ([`Registry::process_changed`]). A target that is held tells of
//! its changes itself, before it runs on: see the session's targets.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use probes::Pattern;
use proc::watcher::{Change as Seen, Changes, Cursor, SharedWatcher};
use providers::{Change, Follow, Registry};

/// See the [module](self).
pub(crate) struct ProcessChanges {
    watcher: SharedWatcher,
    followed: Cursor,
    /// Which processes matter besides those that descriptions mean.
    follow: Follow,
    /// What happened between the matching and the first look is not known.
    is_first: bool,
    /// Processes that changed and were not looked at.
    waiting: Waiting,
    /// Processes that end, with the number of looks to come. The kernel tells of an end before it
    /// is one: until then the process is there, without memory.
    ending: BTreeMap<u32, u32>,
}

/// Processes in turns: one that changes all the time does not come again before all others that
/// wait.
#[derive(Default)]
struct Waiting {
    pids: BTreeSet<u32>,
    /// The one whose turn it was.
    last: u32,
}

impl Waiting {
    fn next(&mut self) -> Option<u32> {
        let after = self.pids.range((Bound::Excluded(self.last), Bound::Unbounded)).next();
        let pid = *after.or_else(|| self.pids.first())?;
        self.pids.remove(&pid);
        self.last = pid;
        Some(pid)
    }
}

/// So many times a process that ends is looked at again.
const LOOKS: u32 = 10;

impl ProcessChanges {
    /// Follows the watcher from now on.
    pub(crate) fn new(watcher: SharedWatcher, follow: Follow) -> ProcessChanges {
        let followed = watcher.lock().unwrap_or_else(PoisonError::into_inner).cursor();
        let (waiting, ending) = Default::default();
        ProcessChanges { watcher, followed, follow, is_first: true, waiting, ending }
    }

    /// The processes that changed: of these, of those that are followed, or of all. `Err`: perhaps
    /// every one of these, and of those that run if processes are followed.
    fn changed(&mut self, all: &BTreeSet<u32>, every: bool) -> Result<BTreeSet<u32>, Vec<u32>> {
        let (Changes { list, missed }, running) = {
            let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
            watcher.update();
            let changes = watcher.changes(&mut self.followed);
            let programs = self.follow.programs() && (changes.missed || self.is_first);
            let running: Vec<u32> =
                if programs { watcher.running().map(|(pid, _)| pid).collect() } else { Vec::new() };
            (changes, running)
        };
        if std::mem::take(&mut self.is_first) || missed {
            return Err(running);
        }
        let ended = list.iter().filter_map(|change| match change {
            Seen::Ended { pid, .. } => Some(*pid).filter(|pid| every || all.contains(pid)),
            _ => None,
        });
        self.ending.extend(ended.map(|pid| (pid, LOOKS)));
        let programs = every || self.follow.programs();
        let pid = |change: Seen| match change {
            Seen::Executed { pid, .. } | Seen::Mapped { pid, .. } => {
                Some(pid).filter(|pid| programs || all.contains(pid))
            }
            // What a process forks has its files.
            Seen::Started { pid, .. } => Some(pid).filter(|_| every),
            Seen::Ended { .. } | Seen::Forgotten { .. } => None,
        };
        Ok(list.into_iter().filter_map(pid).collect())
    }

    /// The changes since the last call. `sets` gives the sets in which a process is.
    pub(crate) fn changes(
        &mut self,
        registry: &Registry,
        patterns: &[Pattern],
        sets: &mut dyn FnMut(u32) -> u64,
    ) -> Vec<Change> {
        // The session has other work to do. What is not looked at in this time is at the next call.
        const LOOK: Duration = Duration::from_millis(50);
        let (all, every) = (registry.processes(patterns), registry.follows_all(patterns));
        match self.changed(&all, every) {
            Ok(changed) => self.waiting.pids.extend(changed),
            Err(running) => {
                self.waiting.pids.extend(all.iter().copied());
                self.waiting.pids.extend(running);
                self.waiting.pids.extend(registry.running(patterns));
            }
        }
        self.ending.retain(|pid, looks| {
            self.waiting.pids.insert(*pid);
            *looks -= 1;
            *looks > 0 && (every || all.contains(pid))
        });
        let (begun, mut changes) = (Instant::now(), Vec::new());
        while let Some(pid) = self.waiting.next() {
            changes.extend(registry.process_changed((pid, sets(pid)), patterns));
            if begun.elapsed() > LOOK {
                break;
            }
        }
        registry.close_unmapped();
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_changes_all_the_time_waits_for_its_turn() {
        let mut waiting = Waiting { pids: [3, 5, 9].into(), last: 0 };
        let mut seen = Vec::new();
        while let Some(pid) = waiting.next() {
            seen.push(pid);
            // It changes again whenever it was looked at.
            if seen.len() < 6 {
                waiting.pids.insert(3);
            }
        }
        assert_eq!(seen, [3, 5, 9, 3, 3, 3]);
    }
}
