//! Processes as the [watcher](proc::watcher) knows them: those that have ended, and earlier
//! programs of those that run.

use std::collections::{HashMap, HashSet};
use std::os::linux::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files::FileId;
use files::open::{ProcessDir, Root, RootKey};
use proc::watcher::{Change, Changes, Cursor, File, Image, Mapping, Object, SharedWatcher, Watcher};

use super::{Place, Process, Processes, Running};

/// The most processes in whose roots a file is looked for.
pub(super) const MOST: usize = 4096;

/// The time for which `/proc` is read in one call of [`Processes::watch`].
const SCAN: Duration = Duration::from_millis(2);

fn lock(watcher: &Mutex<Watcher>) -> MutexGuard<'_, Watcher> {
    watcher.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interval at which files are looked for that no running process has mapped.
pub(super) const CLOSE_INTERVAL: Duration = Duration::from_secs(2);

/// The time that the session waits for the root of a process.
pub(super) const ROOT_PATIENCE: Duration = Duration::from_millis(50);

/// Files that wait for the root of their mount namespace.
const MAX_WAITING: usize = 4096;

/// A file is looked for in the roots of so many processes that have mapped it since it was last
/// looked for.
const FEW: usize = 8;

/// The root of a process, if it is in this mount namespace. It may block: the root may be on a file
/// server.
fn root_in(pid: u32, namespace: u64) -> Option<(RootKey, Root)> {
    let root = ProcessDir::open(pid).ok()?.root().ok()?;
    let now = std::fs::metadata(format!("/proc/{pid}/ns/mnt")).ok()?.st_ino();
    (now == namespace).then_some((root.key().ok()?, root))
}

/// A program that a process runs or has run.
pub(super) struct Program {
    /// The watcher's number.
    pub(super) number: u64,
    /// The process still runs it.
    pub(super) runs: bool,
}

/// What the watcher has at an address.
struct ObjectPlace {
    /// The object, and the offset of the address in it.
    object: Object,
    offset: u64,
}

/// The program that a pid ran at a time; without a time, or if that is not known, the newest one
/// that has the address.
fn image_of(watcher: &Watcher, pid: u32, time: u64, addr: u64) -> Option<&Image> {
    let has = |image: &&Image| mapping_of(image, addr).is_some();
    watcher.image_at(pid, time).or_else(|| watcher.images(pid).iter().rev().find(has))
}

/// The mapping that has an address, or whose object begins there ([`base_of`]): an image has
/// mappings of code only, and a module is known by its lowest address.
fn mapping_of(image: &Image, addr: u64) -> Option<&Mapping> {
    let begins =
        |m: &&Mapping| matches!(m.object, Object::File(_)) && m.start.checked_sub(m.offset) == Some(addr);
    image.find(addr).or_else(|| image.mappings().find(begins))
}

/// The lowest address of the object that an address is in, if all of it is mapped as usual.
fn base_of(image: &Image, addr: u64) -> Option<u64> {
    let mapping = image.find(addr)?;
    let Object::File(file) = &mapping.object else { return Some(mapping.start) };
    let is_same = |object: &Object| matches!(object, Object::File(other) if other.path == file.path);
    let same = image.mappings().filter(|m| is_same(&m.object));
    same.map(|m| m.start.saturating_sub(m.offset)).min()
}

impl Processes {
    /// Uses a watcher of processes.
    pub fn set_watcher(&mut self, watcher: Option<SharedWatcher>) {
        self.watcher = watcher;
        self.followed = Cursor::default();
        // Without the root, paths are resolved only if a process of the namespace runs.
        let _ = self.objects.files_mut().hold_own_root();
        self.watch();
    }

    /// Takes what the watcher has seen, and holds the files that were mapped for the first time.
    /// The caller repeats the call, because files may be removed. Returns false while there are
    /// processes that were running before the watch began and are not read yet.
    pub fn watch(&mut self) -> bool {
        let Some(watcher) = &self.watcher else { return true };
        let (all, changes) = {
            let mut watcher = lock(watcher);
            watcher.update();
            (watcher.scan(Instant::now() + SCAN), watcher.changes(&mut self.followed))
        };
        self.follow(changes);
        let rooted = self.hold_waiting(Instant::now() + SCAN);
        let now = Instant::now();
        if self.closed_at.is_none_or(|at| at + CLOSE_INTERVAL <= now) {
            self.close_unused(now);
        }
        all && rooted
    }

    /// Closes the handles of files, and the roots, that no running process has used for a while
    /// ([`files::KEEP`]).
    pub(super) fn close_unused(&mut self, now: Instant) {
        let Some(watcher) = &self.watcher else { return };
        let (mut mapped, mut namespaces, mut programs) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut numbers = HashSet::new();
        for (_, image) in lock(watcher).running() {
            programs.insert(image.number);
            namespaces.insert(image.mount_namespace());
            for mapping in image.mappings() {
                if let Object::File(file) = &mapping.object {
                    numbers.insert(file.number);
                    mapped.extend(self.objects.files_mut().watched(file.number));
                }
            }
        }
        self.objects.files_mut().keep_watched(&numbers);
        let runs = |process: &&Process| process.program.is_some_and(|number| programs.contains(&number));
        mapped.extend(self.processes.values().filter(runs).flat_map(|process| &process.objects).copied());
        self.objects.close_unused(&mapped, &namespaces, now, &mut self.reader);
        self.closed_at = Some(now);
    }

    /// Holds the files that were mapped for the first time, and drops the maps of programs that the
    /// watcher does not remember: nothing refers to them any more.
    fn follow(&mut self, Changes { list, missed }: Changes) {
        let mut again: HashMap<u64, (Vec<u32>, Arc<File>)> = HashMap::new();
        for change in list {
            match change {
                Change::Mapped { pid, file, first: true } => self.hold(pid, file),
                Change::Mapped { pid, file, .. } if self.roots.apart.has(&file) => {
                    again.entry(file.number).or_insert_with(|| (Vec::new(), file)).0.push(pid);
                }
                Change::Forgotten { pid, image } => self.drop_program(pid, image),
                _ => {}
            }
        }
        for (mut pids, file) in again.into_values() {
            // The last ones may still run.
            pids.reverse();
            pids.truncate(FEW);
            self.look_in_roots_of(pids, &file);
        }
        if missed {
            // The files that were missed are opened when their symbols are read.
            self.drop_forgotten();
        }
    }

    fn drop_program(&mut self, pid: u32, image: u64) {
        if self.processes.get(&pid).is_some_and(|p| p.program == Some(image)) {
            self.remove(pid);
        }
    }

    fn drop_forgotten(&mut self) {
        let Some(watcher) = &self.watcher else { return };
        let watcher = lock(watcher);
        let known = |pid: u32, image| watcher.images(pid).iter().any(|i| i.number == image);
        let is_forgotten =
            |(pid, p): (&u32, &super::Process)| p.program.filter(|image| !known(*pid, *image)).map(|_| *pid);
        let forgotten: Vec<u32> = self.processes.iter().filter_map(is_forgotten).collect();
        drop(watcher);
        forgotten.into_iter().for_each(|pid| self.remove(pid));
    }

    /// Holds a file. If the root of its mount namespace is not known, it waits for
    /// [`Processes::hold_waiting`].
    fn hold(&mut self, pid: u32, file: Arc<File>) {
        if self.has_root(&file) {
            self.hold_now(pid, &file);
        } else if self.roots.waiting.len() < MAX_WAITING {
            self.roots.waiting.push_back((pid, file));
        }
    }

    fn hold_now(&mut self, pid: u32, file: &File) {
        if self.objects.is_full(1) {
            self.forget_objects();
        }
        let id = self.objects.note_watched(file);
        if self.is_held(id) || file.build_id.is_none() {
            return;
        }
        self.hold_below(id, file, self.running(Some(file.mount_namespace), MOST));
        self.note_apart(id, file, &[pid]);
    }

    /// Notes that a file is not at its path, and whether it was found elsewhere.
    fn note_apart(&mut self, id: FileId, file: &File, processes: &[u32]) {
        let is_found = self.is_held(id);
        if let Some(text) = self.roots.apart.note(file, (processes, &mut self.owners), is_found) {
            self.reader.report_once("files in other roots", || text);
        }
    }

    fn is_held(&self, id: FileId) -> bool {
        self.objects.files().get(id).is_some_and(|known| known.handle().is_some())
    }

    /// Looks for a file in the root of a process that has mapped it, where it was not found at its
    /// path and no other process had its root: it may be alone there (`chroot`), and may have
    /// ended.
    fn look_in_roots_of(&mut self, pids: Vec<u32>, file: &File) {
        if self.objects.is_full(1) {
            self.forget_objects();
        }
        let id = self.objects.note_watched(file);
        if !self.is_held(id) {
            self.roots.apart.look();
            self.hold_below(id, file, pids.clone());
        }
        self.note_apart(id, file, &pids);
    }

    /// Files are looked for that only a running process leads to: [`Processes::watch`] finds the
    /// sooner the oftener it is called.
    pub fn is_looking(&self) -> bool {
        self.roots.apart.is_looking()
    }

    /// Holds the files that wait for the root of their mount namespace, until a time. The root is
    /// opened while a process of the namespace runs, because nothing else leads to it. True if no
    /// file waits.
    fn hold_waiting(&mut self, until: Instant) -> bool {
        let mut tried = HashSet::new();
        while let Some((pid, file)) = self.roots.waiting.pop_front() {
            if tried.insert(file.mount_namespace) {
                self.find_root(&file, None);
            }
            self.hold_now(pid, &file);
            if Instant::now() >= until {
                break;
            }
        }
        self.roots.waiting.is_empty()
    }

    /// True if the paths of a file's mount namespace can be resolved, or if that is not known.
    fn has_root(&mut self, file: &File) -> bool {
        file.mount_namespace == 0 || self.objects.files_mut().has_namespace_root(file.mount_namespace)
    }

    /// Applies the records until now, before addresses are looked up.
    pub(super) fn update_watcher(&mut self) {
        if let Some(watcher) = &self.watcher {
            lock(watcher).update();
        }
    }

    /// Processes that run, in a mount namespace or in any, those that have begun last first.
    pub(super) fn running(&self, namespace: Option<u64>, most: usize) -> Vec<u32> {
        let Some(watcher) = &self.watcher else { return Vec::new() };
        let watcher = lock(watcher);
        let inside =
            watcher.running().filter(|(_, i)| namespace.is_none_or(|wanted| wanted == i.mount_namespace()));
        let mut all: Vec<(u64, u32)> = inside.map(|(pid, image)| (image.generation.start, pid)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().take(most).map(|(_, pid)| pid).collect()
    }

    /// The program of a pid at a time. Without a time, or if the watcher does not know what ran
    /// then, the newest one that has an address mapped.
    pub(super) fn watched_program(&self, pid: u32, time: u64, addr: u64) -> Option<Program> {
        let watcher = lock(self.watcher.as_ref()?);
        let image = image_of(&watcher, pid, time, addr)?;
        Some(Program { number: image.number, runs: image.ended.is_none() })
    }

    /// The program that a pid runs.
    pub(super) fn running_program(&self, pid: u32) -> Option<Running> {
        let mut watcher = lock(self.watcher.as_ref()?);
        watcher.update();
        let image = watcher.images(pid).last().filter(|image| image.ended.is_none())?;
        Some(Running { number: image.number, changes: image.changes })
    }

    /// False if the map of a process that was read has all code of the program that it runs, or if
    /// the process has ended.
    pub(super) fn is_worth_reading(&self, pid: u32) -> bool {
        let Some(watcher) = &self.watcher else { return true };
        let mut watcher = lock(watcher);
        watcher.update();
        let Some(image) = watcher.images(pid).last() else { return true };
        let is_current = |p: &super::Process| p.program == Some(image.number) && p.changes == image.changes;
        image.ended.is_none() && !self.processes.get(&pid).is_some_and(is_current)
    }

    /// True if the map of a process that was read is that of the program that it runs.
    pub(super) fn is_program_current(&self, pid: u32) -> bool {
        let Some(watcher) = &self.watcher else { return false };
        let known = self.processes.get(&pid).and_then(|p| p.program);
        let runs = lock(watcher).images(pid).last().filter(|i| i.ended.is_none()).map(|i| i.number);
        known.is_some() && known == runs
    }

    fn find_watched(&self, pid: u32, time: u64, addr: u64) -> Option<ObjectPlace> {
        let mut watcher = lock(self.watcher.as_ref()?);
        watcher.read_if_unread(pid);
        let mapping = mapping_of(image_of(&watcher, pid, time, addr)?, addr)?;
        let object = mapping.object.clone();
        let offset = if let Object::File(_) = object { mapping.offset } else { 0 };
        // Below its start are those bytes of the file that are no code.
        Some(ObjectPlace { object, offset: offset.saturating_add(addr).saturating_sub(mapping.start) })
    }

    pub(super) fn watched_place(&mut self, pid: u32, time: u64, addr: u64) -> Option<Place> {
        let ObjectPlace { object, offset } = self.find_watched(pid, time, addr)?;
        match object {
            Object::Vdso => Some(Place::Vdso(offset)),
            Object::Anonymous => Some(Place::Anonymous),
            Object::File(file) => {
                self.find_root(&file, Some(pid));
                if self.objects.is_full(1) {
                    self.forget_objects();
                }
                Some(Place::File(self.objects.note_watched(&file), offset))
            }
        }
    }

    /// Gets the root of a file's mount namespace from a process that runs in it: this one, if it
    /// does.
    fn find_root(&mut self, file: &File, pid: Option<u32>) {
        let namespace = file.mount_namespace;
        if self.has_root(file) {
            return;
        }
        let Some(witness) = self.witness(namespace, pid) else { return };
        if let Some(Some((key, root))) =
            self.roots.caller.call(ROOT_PATIENCE, move || root_in(witness, namespace))
        {
            let files = self.objects.files_mut();
            files.hold_root(key, root.into_fd());
            files.set_namespace_root(namespace, key);
        }
    }

    /// A process that runs in a mount namespace: this one, else the youngest. (The one that made
    /// the namespace may still have the root of before.)
    fn witness(&self, namespace: u64, pid: Option<u32>) -> Option<u32> {
        let watcher = lock(self.watcher.as_ref()?);
        let inside = watcher.running().filter(|(_, image)| image.mount_namespace() == namespace);
        inside
            .max_by_key(|(other, image)| (Some(*other) == pid, image.generation.start, *other))
            .map(|(pid, _)| pid)
    }

    pub(super) fn watched_module_start(&self, pid: u32, time: u64, addr: u64) -> u64 {
        let base = |watcher: &SharedWatcher| {
            let mut watcher = lock(watcher);
            watcher.read_if_unread(pid);
            base_of(image_of(&watcher, pid, time, addr)?, addr)
        };
        self.watcher.as_ref().and_then(base).unwrap_or(addr)
    }
}

#[cfg(test)]
mod tests;
