//! Files that are not at their path any more, or not in the root of their mount namespace: as the
//! kernel names them by device and inode, for programs that have met them in a process, or by their
//! build id.
//!
//! The watcher knows the path from the root of the process, which may have ended. What is there by
//! now need not be the file: one that was installed anew with the build id of before is another
//! one, an overlay shows a device of its own, and the process may have had another root (`chroot`).
//! So the path is looked up in the roots of processes that run, and the kernel's device and inode
//! say which is the file.

use std::time::Instant;

use files::FileId;
use files::real::{Lookup, RealInode, find_below, find_shown};
use proc::maps::MappedFile;
use proc::watcher::{File, PATIENCE};

use super::watched::{MOST, ROOT_PATIENCE};
use super::{Place, Processes};

impl Processes {
    /// The file with this device and inode, as the kernel knows it, that a process has mapped at an
    /// address, or had, if it has ended.
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
        if self.reader.is_interrupted(Instant::now()) {
            return None;
        }
        let path = self.objects.files().get(id)?.path.clone();
        let mut processes = vec![pid, std::process::id()];
        processes.extend(self.running(None, MOST));
        let look = {
            let path = path.clone();
            move |how| find_shown(&processes, (&path, how), real, Instant::now() + PATIENCE)
        };
        let cached = look.clone();
        let shown = match self.roots.caller.call(PATIENCE, move || cached(Lookup::Cached))? {
            None => self.roots.asking.call(PATIENCE, move || look(Lookup::Any))??,
            Some(shown) => shown,
        };
        if self.objects.is_full(1) {
            self.forget_objects();
        }
        let file = MappedFile { dev: shown.seen.dev, inode: shown.seen.inode, path };
        self.objects.hold_root(shown.key, shown.root.into_fd());
        Some(self.objects.note_real(&file, shown.key, Some(shown.handle.into_fd()), real))
    }

    /// Holds a file of a process that has a root of its own in its mount namespace, if one of these
    /// processes has this root and runs. The reader compares its build id.
    pub(super) fn hold_below(&mut self, id: FileId, file: &File, processes: Vec<u32>) {
        let Some(root) = self.objects.files().namespace_root(file.mount_namespace) else { return };
        let now = Instant::now();
        if self.reader.is_interrupted(now) {
            return;
        }
        let path = file.path.to_vec();
        let until = now + ROOT_PATIENCE;
        let look = move || find_below(&processes, &path, root, until);
        if let Some(shown) = self.roots.caller.call(ROOT_PATIENCE, look).flatten() {
            self.objects.hold_root(shown.key, shown.root.into_fd());
            self.objects.files_mut().hold_below(id, shown.key, shown.handle.into_fd());
        }
    }
}
