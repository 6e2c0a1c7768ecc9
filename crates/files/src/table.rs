//! The files that processes have mapped.
//!
//! A file is identified by device and inode: those below overlays where they are known
//! ([`crate::real`]), so that one file of two containers is one, else those that processes see. Its
//! path may now name another file, or be in a mount namespace that no longer exists. The table
//! therefore holds a handle of each file (`O_PATH`: neither opening nor closing it reaches a file
//! server). The handle outlives the process, its namespace and the file's link. The table also
//! holds the root of the process, in which its path and debug files are searched. At most
//! [`MAX_HANDLES`] handles are held; the least recently used file falls back to its path.
//!
//! A handle keeps a file system from being unmounted and a removed file on its disk, and a root
//! keeps the mounts of a container. So both are closed when no running process has used them for
//! [`KEEP`] ([`Files::due`], [`Files::close`], [`Files::close_roots`]). What was read of a file is
//! still known by its number. Its inode may then be that of another file; size and times tell.
//!
//! A file that a record of the kernel reported is known by build id and path. Its handle is opened
//! at once if the kernel has the path in its caches, which it has just after the mapping. Otherwise
//! the path is resolved when the file is read, and the build id says whether it is the right file.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diagnostics::control;
use proc::maps::MappedFile;
use proc::watcher::{self, BuildId};

use crate::open::{Handle, Root, RootKey, Stat};
use crate::real::RealInode;
use crate::sys;

/// Maximum number of file handles, if [`Files::set_max_handles`] says no other. A process maps 10
/// to 200 files, most of them shared.
const MAX_HANDLES: usize = 512;

/// Maximum number of roots. Processes outside of containers share one.
const MAX_ROOTS: usize = 64;

/// A handle or a root that no running process has used for this time is closed.
pub const KEEP: Duration = Duration::from_secs(10);

/// Maximum number of files. When it is exceeded, all are dropped.
const MAX_FILES: usize = 1 << 15;
const _: () = assert!(MAX_FILES <= 1 << 16, "see Files::unique_number");

/// The number of a file in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u32);

/// A file of the table.
#[derive(Debug)]
pub struct File {
    /// Base name, escaped for output.
    pub name: Arc<str>,
    /// The path in the root.
    pub path: Vec<u8>,
    /// The inode as processes see it; 0 if not known.
    pub inode: u64,
    /// The build id that the kernel reported.
    pub build_id: Option<BuildId>,
    handle: Option<OwnedFd>,
    /// What the file was when its handle was closed.
    closed: Option<Contents>,
    /// Since when no running process has it mapped.
    unused: Option<Instant>,
    root: RootKey,
    /// Time of the last use, in uses.
    used: u64,
}

/// Size, modification and change of a file: with the inode they tell whether it is another one.
type Contents = (u64, (i64, u32), (i64, u32));

fn contents(stat: &Stat) -> Contents {
    (stat.size, stat.modified, stat.changed)
}

/// The root of processes.
#[derive(Debug)]
struct HeldRoot {
    fd: OwnedFd,
    /// Order in which roots were held.
    order: u64,
    unused: Option<Instant>,
}

impl File {
    /// The `O_PATH` descriptor of the file.
    pub fn handle(&self) -> Option<&OwnedFd> {
        self.handle.as_ref()
    }

    /// The device that its status names, while it has a handle.
    pub fn device(&self) -> Option<(u32, u32)> {
        self.handle.as_ref().and_then(|fd| sys::stat(fd.as_fd(), false).ok()).map(|stat| stat.dev)
    }

    /// Its size and the time of its last change (`ctime`), which tell whether it was written anew:
    /// as they are, or as they were when its handle was closed.
    pub fn version(&self) -> Option<(u64, (i64, u32))> {
        let now = self.handle.as_ref().and_then(|fd| sys::stat(fd.as_fd(), false).ok());
        let (size, _, changed) = now.map(|stat| contents(&stat)).or(self.closed)?;
        Some((size, changed))
    }
}

/// All files.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<File>,
    /// Files whose build id was not reported.
    by_inode: HashMap<((u32, u32), u64), FileId>,
    /// Files by what they are below overlays.
    by_real: HashMap<RealInode, FileId>,
    by_path: HashMap<Vec<u8>, FileId>,
    /// Files of the watcher, by its number and by identity.
    watched: HashMap<u64, FileId>,
    by_build_id: HashMap<(BuildId, Vec<u8>, RootKey), FileId>,
    roots: HashMap<RootKey, HeldRoot>,
    /// This process's root, which is not closed.
    own: RootKey,
    /// The roots of mount namespaces.
    namespaces: HashMap<u64, RootKey>,
    /// Files that have no names, instead of those that others have replaced.
    replaced: HashMap<FileId, FileId>,
    /// A handle or a root was closed since [`Files::take_closed`].
    has_closed: bool,
    handles: usize,
    max_handles: Option<usize>,
    clock: u64,
    /// The number of times that all files were dropped.
    era: u64,
    /// The number of this table.
    table: u32,
}

/// The number of the table that has a file, of the [number](Files::unique_number) of the file.
pub fn table_of(number: u64) -> u32 {
    (number >> 32) as u32
}

impl Files {
    /// True when `more` files would exceed the limit.
    pub fn is_full(&self, more: usize) -> bool {
        self.files.len() + more > MAX_FILES
    }

    /// Sets the maximum number of handles. A table from which files are read that only a handle
    /// leads to needs one for each file of a process.
    pub fn set_max_handles(&mut self, most: usize) {
        self.max_handles = Some(most);
    }

    /// Drops all files. Their ids become invalid.
    pub fn forget_all(&mut self) {
        let (era, max_handles, table) = (self.era + 1, self.max_handles, self.table);
        *self = Files { era, has_closed: true, max_handles, table, ..Files::default() };
    }

    /// Gives this table a number, which tells its files from those of other tables.
    pub fn set_number(&mut self, table: u32) {
        self.table = table;
    }

    /// A number that no other file ever has, also in other tables with numbers.
    pub fn unique_number(&self, id: FileId) -> u64 {
        u64::from(self.table) << 32 | (self.era & 0xffff) << 16 | u64::from(id.0 & 0xffff)
    }

    /// Stores the descriptor of a root. At the limit the one that was stored first is closed.
    pub fn hold_root(&mut self, key: RootKey, fd: OwnedFd) {
        if self.roots.len() >= MAX_ROOTS && !self.roots.contains_key(&key) {
            let others = self.roots.iter().filter(|(key, _)| **key != self.own);
            if let Some(first) = others.min_by_key(|(_, root)| root.order).map(|(key, _)| *key) {
                self.close_root(first);
            }
        }
        self.clock += 1;
        self.roots.insert(key, HeldRoot { fd, order: self.clock, unused: None });
    }

    fn close_root(&mut self, key: RootKey) {
        self.roots.remove(&key);
        self.namespaces.retain(|_, root| *root != key);
        self.has_closed = true;
    }

    /// True if handles or roots were closed since the last call: who sent them may have to send
    /// them again.
    pub fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.has_closed)
    }

    /// The file of a number of the watcher.
    pub fn watched(&self, number: u64) -> Option<FileId> {
        self.watched.get(&number).copied()
    }

    /// Forgets numbers of the watcher other than these, if there are many. A file with such a
    /// number is found by what identifies it.
    pub fn keep_watched(&mut self, numbers: &HashSet<u64>) {
        if self.watched.len() > MAX_FILES.max(2 * numbers.len()) {
            self.watched.retain(|number, _| numbers.contains(number));
            self.watched.shrink_to_fit();
        }
    }

    /// Files with a handle that no running process has had mapped for [`KEEP`], where `mapped` are
    /// those that one has mapped.
    pub fn due(&mut self, mapped: &HashSet<FileId>, now: Instant) -> Vec<FileId> {
        let mut due = Vec::new();
        for (number, file) in (0..).zip(&mut self.files).filter(|(_, file)| file.handle.is_some()) {
            if mapped.contains(&FileId(number)) {
                file.unused = None;
            } else if *file.unused.get_or_insert(now) + KEEP <= now {
                due.push(FileId(number));
            }
        }
        due
    }

    /// True if a file can be found by its path after its handle is closed: it has a name, in this
    /// process's root.
    pub fn has_path(&self, id: FileId) -> bool {
        let Some(file) = self.get(id).filter(|file| file.root == self.own) else { return false };
        let handle = file.handle.as_ref().and_then(|fd| fd.try_clone().ok()).map(Handle::from_fd);
        handle.and_then(|handle| handle.stat_cached().ok()).is_none_or(|stat| stat.links > 0)
    }

    /// Closes the handle of a file.
    pub fn close(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(id.0 as usize) else { return };
        let Some(handle) = file.handle.take().map(Handle::from_fd) else { return };
        file.closed = handle.stat_cached().ok().map(|stat| contents(&stat));
        file.unused = None;
        self.handles -= 1;
        self.has_closed = true;
    }

    /// Closes roots that no running process has used for [`KEEP`]. `mapped` as for [`Files::due`];
    /// `namespaces` are the mount namespaces of running processes. The number of another namespace
    /// may be that of one that has ended.
    pub fn close_roots(&mut self, mapped: &HashSet<FileId>, namespaces: &HashSet<u64>, now: Instant) {
        let own = self.own;
        self.namespaces.retain(|namespace, root| namespaces.contains(namespace) || *root == own);
        let used = self.namespaces.values().copied();
        let of = |id: &FileId| self.get(*id).map(|file| file.root);
        let mut used: HashSet<RootKey> = used.chain(mapped.iter().filter_map(of)).chain([own]).collect();
        used.extend(self.files.iter().filter(|file| file.handle.is_some()).map(|file| file.root));
        let mut due = Vec::new();
        for (key, root) in &mut self.roots {
            if used.contains(key) {
                root.unused = None;
            } else if *root.unused.get_or_insert(now) + KEEP <= now {
                due.push(*key);
            }
        }
        due.into_iter().for_each(|key| self.close_root(key));
    }

    /// Paths of this mount namespace are resolved in this root.
    pub fn set_namespace_root(&mut self, namespace: u64, key: RootKey) {
        if namespace != 0 && self.roots.contains_key(&key) {
            self.namespaces.insert(namespace, key);
        }
    }

    /// True if the paths of a mount namespace can be resolved.
    pub fn has_namespace_root(&self, namespace: u64) -> bool {
        self.namespaces.contains_key(&namespace)
    }

    /// Stores this process's root, for the paths of its mount namespace.
    pub fn hold_own_root(&mut self) -> std::io::Result<()> {
        use std::os::linux::fs::MetadataExt;
        let namespace = std::fs::metadata("/proc/self/ns/mnt")?.st_ino();
        let root = Root::own()?;
        let key = root.key()?;
        self.hold_root(key, root.into_fd());
        self.own = key;
        self.set_namespace_root(namespace, key);
        Ok(())
    }

    /// As [`Files::note`], for a file that is known below overlays. Two that processes see may be
    /// one.
    pub fn note_real(
        &mut self,
        file: &MappedFile,
        root: RootKey,
        handle: Option<OwnedFd>,
        real: RealInode,
    ) -> FileId {
        // A handle keeps the inode from being used again.
        let known = self.by_real.get(&real).copied();
        if let Some(id) = known.filter(|id| self.get(*id).is_some_and(|f| f.handle.is_some())) {
            self.by_inode.insert((file.dev, file.inode), id);
            return id;
        }
        let id = self.note(file, root, handle);
        self.by_real.insert(real, id);
        id
    }

    /// True if a file that is below no overlay is this one. What a mount shows of devices and
    /// inodes is not enough: a process may have made it.
    pub fn is_real(&self, id: FileId, real: RealInode) -> bool {
        let known = self.get(id).filter(|file| file.handle.is_some());
        known.is_some_and(|file| file.device() == Some(real.dev) && file.inode == real.inode)
    }

    /// The file that a process was seen to have mapped, below overlays.
    pub fn of_real(&self, real: RealInode) -> Option<FileId> {
        let id = self.by_real.get(&real).copied()?;
        // A handle keeps the inode from being used again.
        self.get(id).is_some_and(|file| file.handle.is_some()).then_some(id)
    }

    /// The file of a line of an address map. A handle comes with the file's first occurrence.
    pub fn note(&mut self, file: &MappedFile, root: RootKey, handle: Option<OwnedFd>) -> FileId {
        let id = if file.inode == 0 {
            self.by_path.get(&file.path).copied()
        } else {
            self.by_inode.get(&(file.dev, file.inode)).copied()
        };
        let now = handle.as_ref().and_then(|fd| Handle::from_fd(fd.try_clone().ok()?).stat_cached().ok());
        // Without a handle the inode may have been reused by another file.
        let same = |id: &FileId| {
            self.get(*id).is_some_and(|known| match known.closed {
                _ if known.handle.is_some() => true,
                None => known.path == file.path,
                before => before == now.as_ref().map(contents),
            })
        };
        let id = id.filter(same).unwrap_or_else(|| {
            let id = self.push(&file.path, file.inode, None, root);
            match file.inode {
                0 => self.by_path.insert(file.path.clone(), id),
                inode => self.by_inode.insert((file.dev, inode), id),
            };
            id
        });
        if let Some(handle) = handle {
            self.hold(id, handle);
        }
        id
    }

    /// The file that the watcher reported. Its handle is opened if that does not block.
    pub fn note_watched(&mut self, file: &watcher::File) -> FileId {
        let root = self.namespaces.get(&file.mount_namespace).copied().unwrap_or_default();
        if let Some(id) = self.watched.get(&file.number).copied() {
            let known = self.get(id);
            if known.is_some_and(|known| known.handle.is_none() && known.closed.is_some()) {
                return self.after_closing(id, file, root);
            }
            // The root of its namespace may have become known since.
            let known = known.is_some_and(|known| known.handle.is_some() || known.root == root);
            if known || root == RootKey::default() {
                return id;
            }
        }
        let id = self.find_watched(file, root);
        self.watched.insert(file.number, id);
        id
    }

    /// The root of a mount namespace.
    pub fn namespace_root(&self, namespace: u64) -> Option<RootKey> {
        self.namespaces.get(&namespace).copied()
    }

    /// Holds a file that the watcher reported and that has no handle, as it was found in another
    /// root than that of its mount namespace.
    pub fn hold_below(&mut self, id: FileId, root: RootKey, handle: OwnedFd) {
        if let Some(file) = self.files.get_mut(id.0 as usize).filter(|file| file.handle.is_none()) {
            file.root = root;
            self.hold(id, handle);
        }
    }

    /// A file whose handle was closed. Without a build id another file at its path, with its inode,
    /// is not told from it by the watcher: then neither has names.
    fn after_closing(&mut self, id: FileId, file: &watcher::File, root: RootKey) -> FileId {
        let closed = self.get(id).and_then(|known| known.closed);
        let is_other = |(stat, _): (Stat, Handle)| closed != Some(contents(&stat));
        if file.build_id.is_some() || !self.find_cached(file, root).is_some_and(is_other) {
            return id;
        }
        if let Some(nameless) = self.replaced.get(&id) {
            return *nameless;
        }
        let nameless = self.push(&file.path, 0, None, root);
        self.replaced.insert(id, nameless);
        nameless
    }

    fn find_cached(&self, file: &watcher::File, root: RootKey) -> Option<(Stat, Handle)> {
        let fd = self.roots.get(&root)?.fd.try_clone().ok()?;
        let handle = Root::from_fd(fd).find_cached(&file.path).ok()?;
        let stat = handle.stat_cached().ok().filter(|stat| stat.regular)?;
        // Devices differ on btrfs and overlayfs, inodes do not.
        (file.inode == 0 || file.inode == stat.inode).then_some((stat, handle))
    }

    /// A file with a build id is known by it, its path and its root, and never by the inode that
    /// its path has: the path is that of a process whose root may be another one (`chroot`), so it
    /// may lead to a file of others. The reader compares the build id. Other files are known by
    /// their inode.
    fn find_watched(&mut self, file: &watcher::File, root: RootKey) -> FileId {
        let found = self.find_cached(file, root);
        let Some((stat, handle)) = found else { return self.find_by_path(file, root) };
        if file.build_id.is_some() {
            let id = self.find_by_path(file, root);
            if let Some(known) = self.files.get_mut(id.0 as usize).filter(|known| known.handle.is_none()) {
                known.inode = stat.inode;
            }
            self.hold(id, handle.into_fd());
            return id;
        }
        let key = (stat.dev, stat.inode);
        let same = |id: &FileId| {
            let known = self.get(*id);
            known.is_some_and(|known| known.handle.is_some() || known.closed == Some(contents(&stat)))
        };
        let id = self.by_inode.get(&key).copied().filter(same).unwrap_or_else(|| {
            let id = self.push(&file.path, stat.inode, None, root);
            self.by_inode.insert(key, id);
            id
        });
        self.hold(id, handle.into_fd());
        id
    }

    /// A file without a handle: by inode if it is known, by build id and path otherwise.
    fn find_by_path(&mut self, file: &watcher::File, root: RootKey) -> FileId {
        let path = file.path.to_vec();
        let Some(build_id) = file.build_id else {
            let id = self.note(&MappedFile { dev: file.dev, inode: file.inode, path }, root, None);
            if let Some(known) = self.files.get_mut(id.0 as usize).filter(|f| f.root == RootKey::default()) {
                known.root = root;
            }
            return id;
        };
        let key = (build_id, path, root);
        if let Some(id) = self.by_build_id.get(&key) {
            return *id;
        }
        let id = self.push(&file.path, 0, Some(build_id), root);
        self.by_build_id.insert(key, id);
        id
    }

    fn push(&mut self, path: &[u8], inode: u64, build_id: Option<BuildId>, root: RootKey) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        let base = path.rsplit(|b| *b == b'/').next().filter(|n| !n.is_empty()).unwrap_or(path);
        let name = control::name(base).into();
        let used = self.clock;
        let (path, handle, closed, unused) = (path.to_vec(), None, None, None);
        self.files.push(File { name, path, inode, build_id, handle, closed, unused, root, used });
        id
    }

    fn hold(&mut self, id: FileId, handle: OwnedFd) {
        if self.get(id).is_none_or(|file| file.handle.is_some()) {
            return;
        }
        if self.handles >= self.max_handles.unwrap_or(MAX_HANDLES) {
            let held = (0..).zip(&self.files).filter(|(_, file)| file.handle.is_some());
            if let Some((oldest, _)) = held.min_by_key(|(_, file)| file.used) {
                self.close(FileId(oldest));
            }
        }
        if let Some(file) = self.files.get_mut(id.0 as usize) {
            file.handle = Some(handle);
            file.unused = None;
            self.handles += 1;
        }
    }

    /// A file.
    pub fn get(&self, id: FileId) -> Option<&File> {
        self.files.get(id.0 as usize)
    }

    /// Counts a use of a file: its handle is kept longer.
    pub fn touch(&mut self, id: FileId) {
        self.clock += 1;
        if let Some(file) = self.files.get_mut(id.0 as usize) {
            file.used = self.clock;
        }
    }

    /// The root in which a file's path is resolved.
    pub fn root(&self, file: &File) -> Option<&OwnedFd> {
        self.roots.get(&file.root).filter(|_| file.root != RootKey::default()).map(|root| &root.fd)
    }
}

#[cfg(test)]
mod tests;
