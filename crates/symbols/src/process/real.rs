//! Files that are not at their path any more, or not in the root of their mount namespace: as the kernel names them by device and inode, for
//! programs that have met them in a process, or by their build id.
//!
//! The watcher knows the path from the root of the process, which may have ended. What is there by now need not be the file: one that was installed anew with the
//! build id of before is another one, an overlay shows a device of its own, and the process may have had another root (`chroot`). So the path is looked up in the
//! roots of processes that run, and the kernel's device and inode say which is the file.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use files::FileId;
use files::real::{RealInode, find_below, find_shown};
use proc::maps::MappedFile;
use proc::watcher::{File, PATIENCE};

use super::watched::ROOT_PATIENCE;
use super::{Place, Processes};

/// The most processes in whose roots a file is looked for.
const MOST: usize = 4096;

/// After this time a file is looked for again that was found nowhere: it may have been installed, or a process with its root runs by now.
const AGAIN: Duration = Duration::from_secs(5);

/// The most files of which it is remembered that they were not found.
const MISSING: usize = 1024;

/// What is looked for in the roots of processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sought {
    /// A file of this device and inode.
    Real((u32, u32), u64),
    /// One at a path, of a process in a mount namespace.
    Below(u64, Vec<u8>),
}

/// What was found nowhere, and when it is looked for again: to look takes a call for each root and each layer, and a process may map any
/// number of files that are nowhere.
#[derive(Debug, Default)]
pub(super) struct Missing(HashMap<Sought, Instant>);

impl Missing {
    fn is_missing(&self, sought: &Sought, now: Instant) -> bool {
        self.0.get(sought).is_some_and(|again| now < *again)
    }

    fn add(&mut self, sought: Sought, now: Instant) {
        if self.0.len() >= MISSING {
            self.0.retain(|_, again| now < *again);
        }
        if self.0.len() < MISSING {
            self.0.insert(sought, now + AGAIN);
        }
    }
}

impl Processes {
    /// The file with this device and inode, as the kernel knows it, that a process has mapped at an address, or had, if it has ended.
    pub fn real_file_at(&mut self, pid: u32, addr: u64, dev: (u32, u32), inode: u64) -> Option<FileId> {
        let real = RealInode { dev, inode };
        if let Some(id) = self.objects.files().of_real(real) {
            return Some(id);
        }
        self.begin_batch();
        let id = match self.place_of(pid, 0, addr)? {
            Place::File(id, _) => id,
            Place::Zeros(..) | Place::Vdso(_) | Place::Anonymous => return None,
        };
        // The process may have another one there by now, or one that looks like it.
        if self.objects.files().is_real(id, real) {
            return Some(id);
        }
        self.find_real(pid, id, real)
    }

    fn find_real(&mut self, pid: u32, id: FileId, real: RealInode) -> Option<FileId> {
        let (sought, now) = (Sought::Real(real.dev, real.inode), Instant::now());
        if self.roots.missing.is_missing(&sought, now) || self.reader.is_interrupted(now) {
            return None;
        }
        let path = self.objects.files().get(id)?.path.clone();
        let mut processes = vec![pid, std::process::id()];
        processes.extend(self.running(None, MOST));
        let mine = path.clone();
        let until = now + PATIENCE;
        let shown = self.roots.caller.call(PATIENCE, move || find_shown(&processes, &mine, real, until));
        let Some(shown) = shown.flatten() else {
            self.roots.missing.add(sought, Instant::now());
            return None;
        };
        if self.objects.is_full(1) {
            self.forget_objects();
        }
        let file = MappedFile { dev: shown.seen.dev, inode: shown.seen.inode, path };
        self.objects.hold_root(shown.key, shown.root.into_fd());
        Some(self.objects.note_real(&file, shown.key, Some(shown.handle.into_fd()), real))
    }

    /// Holds a file of a process that has a root of its own in its mount namespace, if a process with this root runs. The reader compares its build id.
    pub(super) fn hold_below(&mut self, id: FileId, file: &File) {
        let Some(root) = self.objects.files().namespace_root(file.mount_namespace) else { return };
        let (sought, now) = (Sought::Below(file.mount_namespace, file.path.to_vec()), Instant::now());
        if self.roots.missing.is_missing(&sought, now) || self.reader.is_interrupted(now) {
            return;
        }
        let (processes, path) = (self.running(Some(file.mount_namespace), MOST), file.path.to_vec());
        let until = now + ROOT_PATIENCE;
        match self
            .roots
            .caller
            .call(ROOT_PATIENCE, move || find_below(&processes, &path, root, until))
            .flatten()
        {
            Some(shown) => {
                self.objects.hold_root(shown.key, shown.root.into_fd());
                self.objects.files_mut().hold_below(id, shown.key, shown.handle.into_fd());
            }
            None => self.roots.missing.add(sought, Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_nowhere_is_looked_for_again_after_a_while() {
        let (mut missing, now) = (Missing::default(), Instant::now());
        let sought = |n: u64| Sought::Real((8, 1), n);
        (0..2 * MISSING as u64).for_each(|n| missing.add(sought(n), now));
        assert_eq!(missing.0.len(), MISSING);
        assert!(missing.is_missing(&sought(0), now) && !missing.is_missing(&sought(0), now + AGAIN));
        assert!(!missing.is_missing(&Sought::Below(1, b"/a".to_vec()), now));
        missing.add(sought(1 << 20), now + AGAIN);
        assert_eq!(missing.0.len(), 1);
    }
}
