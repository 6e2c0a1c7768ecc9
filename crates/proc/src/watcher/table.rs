//! What is known about processes: the state that records and readings of `/proc` change.
//!
//! ```text
//!  pid ──► images, oldest first          an image: one program of one process, from fork or exec to exec or exit
//!           (start, exec) ──► mappings   a fork shares its parent's until one of them changes
//!                                │
//!                                └─► File, by number      kept as long as an image refers to it
//! ```
//!
//! A pid has several images when it executes programs or is reused. An image that has ended is kept
//! for a limited time and number, because its addresses are looked up after its end. Nothing here
//! makes a system call, so all orders of records can be tested.
//!
//! Processes choose how much they map and how long the paths are, so everything has a limit in
//! bytes ([`Limits`]). Each image is charged for all of its mappings and paths, also for those that
//! it shares: the sum is more than what is used, never less.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::size_of;
use std::sync::Arc;

use super::changes::{Entry, Log, NO_IMAGE};
use super::file::{File, FileKey, Files};
use super::record::{Event, FileIdentity, NAMESPACES, Record};
use crate::maps::{self, Backing, Kind, Map};

/// What backs a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A file.
    File(Arc<File>),
    /// The vdso.
    Vdso,
    /// Executable memory without a file: JIT code.
    Anonymous,
}

/// A mapping that can hold code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// What is mapped.
    pub object: Object,
}

/// The program of a process: which of the processes that had this pid, and which of its programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation {
    /// Start of the process in nanoseconds since boot: to a clock tick if it was running when the
    /// watch began.
    pub start: u64,
    /// Programs that it has executed since the watch began or since its start.
    pub execs: u32,
}

/// One program of a process.
#[derive(Clone, Debug)]
pub struct Image {
    /// A number that no other image of the watcher has.
    pub number: u64,
    /// Which program.
    pub generation: Generation,
    /// The parent when the process was first seen; 0 if it is outside of the pid namespace.
    pub parent: u32,
    /// The process's name.
    pub name: Box<[u8]>,
    /// Inodes of its namespaces, in the order of [`NAMESPACES`]; 0 for unknown.
    pub namespaces: [u64; NAMESPACES.len()],
    /// The path of its cgroup when it was last read, or its parent's at the fork.
    pub cgroup: Option<Arc<str>>,
    /// When it began (by fork or exec), in nanoseconds since boot; 0 if that was not seen.
    pub began: u64,
    /// When it ended (by exec or exit), in nanoseconds since boot.
    pub ended: Option<u64>,
    /// Its first thread has ended. Others may run.
    leader_ended: bool,
    /// How often its mappings changed.
    pub changes: u64,
    /// By their first address, without overlaps.
    mappings: Arc<BTreeMap<u64, Mapping>>,
    /// What it is charged for.
    bytes: usize,
}

/// What a mapping is charged for.
fn bytes_of(mapping: &Mapping) -> usize {
    let path = match &mapping.object {
        Object::File(file) => size_of::<File>() + file.path.len(),
        Object::Vdso | Object::Anonymous => 0,
    };
    size_of::<(u64, Mapping)>() + path
}

impl Image {
    /// The inode of its mount namespace; 0 for unknown.
    pub fn mount_namespace(&self) -> u64 {
        self.namespaces[MOUNT]
    }

    /// The mappings, by address.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.values()
    }

    /// The mapping that contains an address.
    pub fn find(&self, addr: u64) -> Option<&Mapping> {
        let (_, mapping) = self.mappings.range(..=addr).next_back()?;
        (addr < mapping.end).then_some(mapping)
    }

    /// The mappings that overlap these addresses, the highest first.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Mapping> {
        self.mappings.range(..end).rev().map(|(_, m)| m).take_while(move |m| m.end > start)
    }

    /// Adds a mapping. What it overlaps is no longer mapped there.
    fn map(&mut self, new: Mapping, limits: &Limits) {
        if self.mappings.get(&new.start) == Some(&new) {
            return;
        }
        self.changes = self.changes.saturating_add(1);
        let replaced: Vec<u64> = self.overlapping(new.start, new.end).map(|m| m.start).collect();
        let (mut bytes, list) = (self.bytes, Arc::make_mut(&mut self.mappings));
        let mut insert = |list: &mut BTreeMap<u64, Mapping>, mapping: Mapping| {
            bytes += bytes_of(&mapping);
            list.insert(mapping.start, mapping);
        };
        let mut freed = 0;
        for old in replaced.iter().filter_map(|start| list.remove(start)).collect::<Vec<_>>() {
            freed += bytes_of(&old);
            if old.end > new.end {
                let offset = old.offset.saturating_add(new.end - old.start);
                insert(list, Mapping { start: new.end, offset, ..old.clone() });
            }
            if old.start < new.start {
                insert(list, Mapping { end: new.start, ..old });
            }
        }
        insert(list, new);
        self.bytes = bytes.saturating_sub(freed);
        // A process that maps code without end loses the names of its highest addresses.
        while list.len() > limits.each || self.bytes > limits.bytes / 8 {
            let Some((_, last)) = list.pop_last() else { break };
            self.bytes = self.bytes.saturating_sub(bytes_of(&last));
        }
    }
}

/// A reading of a running process.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    /// Start in nanoseconds since boot, to a clock tick.
    pub(super) start: u64,
    pub(super) parent: u32,
    pub(super) name: Vec<u8>,
    pub(super) namespaces: [u64; NAMESPACES.len()],
    pub(super) map: Map,
}

/// How much is remembered.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Images that have ended.
    pub images: usize,
    /// Images of one pid that have ended.
    pub programs: usize,
    /// Nanoseconds for which an image is kept after its end.
    pub time: u64,
    /// Bytes of all images. Those that have ended are dropped first, the oldest first. An image may
    /// have an eighth.
    pub bytes: usize,
    /// Mappings of one image. The kernel's default limit is 65,530.
    pub each: usize,
}

impl Default for Limits {
    /// 32,768 images and 128 MB, for an hour.
    fn default() -> Limits {
        Limits { images: 1 << 15, programs: 256, time: 3_600_000_000_000, bytes: 128 << 20, each: 1 << 16 }
    }
}

/// A process read from `/proc` is the one that a record reported if their starts differ by less (a
/// tick of the start time, and the time between start and record).
pub(super) const SAME_START: u64 = 1_000_000_000;

/// All processes.
#[derive(Debug)]
pub(super) struct Table {
    processes: HashMap<u32, Vec<Image>>,
    /// Images that have ended, oldest first: time, pid, number.
    ended: VecDeque<(u64, u32, u64)>,
    /// What all images are charged for.
    bytes: usize,
    /// Mappings that were not recorded, because the limit was reached.
    refused: u64,
    files: Files,
    pub(super) log: Log,
    limits: Limits,
    next: u64,
}

impl Table {
    pub(super) fn new(limits: Limits) -> Table {
        Table {
            processes: HashMap::new(),
            ended: VecDeque::new(),
            bytes: 0,
            refused: 0,
            files: Files::default(),
            log: Log::default(),
            limits,
            next: 0,
        }
    }

    /// The images of a pid, oldest first.
    pub(super) fn images(&self, pid: u32) -> &[Image] {
        self.processes.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// The image of a pid at a time: the first one that had not ended before.
    pub(super) fn image_at(&self, pid: u32, time: u64) -> Option<&Image> {
        let image = self.images(pid).iter().find(|image| image.ended.is_none_or(|ended| time < ended))?;
        (image.began <= time).then_some(image)
    }

    /// All images, by pid.
    pub(super) fn all(self) -> Vec<(u32, Vec<Image>)> {
        self.processes.into_iter().collect()
    }

    /// Pids of processes that run.
    pub(super) fn running(&self) -> impl Iterator<Item = (u32, &Image)> {
        self.processes.iter().filter_map(|(pid, images)| {
            images.last().filter(|i| i.ended.is_none()).map(|image| (*pid, image))
        })
    }

    pub(super) fn current_mut(&mut self, pid: u32) -> Option<&mut Image> {
        self.processes.get_mut(&pid)?.last_mut().filter(|i| i.ended.is_none())
    }

    /// Mappings that were not recorded since the last call, because the limit was reached.
    pub(super) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    fn push(&mut self, pid: u32, image: Image) {
        self.bytes = self.bytes.saturating_add(image.bytes);
        let images = self.processes.entry(pid).or_default();
        images.push(image);
        if images.len() > self.limits.programs.saturating_add(1) {
            // Its place in `ended` finds nothing later.
            let oldest = images.remove(0);
            self.dropped(pid, &oldest);
        }
    }

    fn dropped(&mut self, pid: u32, image: &Image) {
        self.bytes = self.bytes.saturating_sub(image.bytes);
        self.log.add(Entry::Forgotten { pid, image: image.number });
    }

    fn new_image(&mut self, generation: Generation) -> Image {
        self.next += 1;
        Image {
            number: self.next,
            generation,
            parent: 0,
            name: Box::default(),
            namespaces: [0; NAMESPACES.len()],
            cgroup: None,
            began: 0,
            ended: None,
            leader_ended: false,
            changes: 0,
            mappings: Arc::default(),
            bytes: size_of::<Image>(),
        }
    }

    /// True if so many bytes can be added. Drops images that have ended for it.
    fn has_space(&mut self, bytes: usize) -> bool {
        while self.bytes.saturating_add(bytes) > self.limits.bytes && self.drop_oldest() {}
        let fits = self.bytes.saturating_add(bytes) <= self.limits.bytes;
        self.refused = self.refused.saturating_add(u64::from(!fits));
        fits
    }

    /// Adds a mapping to the current image of a process.
    fn add(&mut self, pid: u32, mapping: Mapping) {
        if !self.has_space(bytes_of(&mapping)) {
            return;
        }
        let limits = self.limits;
        let Some(image) = self.current_mut(pid) else { return };
        let before = image.bytes;
        image.map(mapping, &limits);
        let after = image.bytes;
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
    }

    /// A process has mapped this file.
    fn intern(&mut self, pid: u32, key: FileKey<'_>) -> Arc<File> {
        let (file, first) = self.files.intern(key);
        self.log.add(Entry::Mapped { pid, file: Arc::downgrade(&file), first });
        file
    }

    /// The current image of a process that a record is about. A process whose start was not
    /// reported starts now.
    fn current_or_new(&mut self, pid: u32, time: u64) -> Option<&mut Image> {
        match self.processes.get_mut(&pid).and_then(|images| images.last_mut()) {
            None => {
                let image = self.new_image(Generation { start: time, execs: 0 });
                self.begin(pid, image);
            }
            // Only the first thread has ended, and others run. A record from before its end, which
            // another CPU has written, says nothing about that.
            Some(image) if image.ended.is_some_and(|ended| time > ended) => image.ended = None,
            Some(_) => {}
        }
        self.current_mut(pid)
    }

    /// Ends the current image of a process.
    fn end(&mut self, pid: u32, time: u64) {
        let Some(image) = self.current_mut(pid) else { return };
        image.ended = Some(time);
        let number = image.number;
        self.ended.push_back((time, pid, number));
        self.log.add(Entry::Ended { pid, image: number });
    }

    /// A process begins.
    fn begin(&mut self, pid: u32, image: Image) {
        self.log.add(Entry::Started { pid, image: image.number });
        self.push(pid, image);
    }

    /// Applies a record.
    pub(super) fn apply(&mut self, record: Record) {
        let time = record.time;
        // A process outside of this pid namespace has pid 0, or none at all while it ends.
        let is_foreign = |pid: u32| pid == 0 || pid == u32::MAX;
        match record.event {
            Event::Fork { pid, tid, ppid } if pid == tid && pid != ppid && !is_foreign(pid) => {
                self.fork(pid, ppid, time);
            }
            Event::Exit { pid, tid } if !is_foreign(pid) => {
                let Some(image) = self.current_mut(pid) else {
                    // It began before there were records, and nobody has asked for it.
                    if pid == tid {
                        self.log.add(Entry::Ended { pid, image: NO_IMAGE });
                    }
                    return;
                };
                image.leader_ended |= pid == tid;
                // Which thread is the last one is not reported. One that runs on and maps a file
                // makes the process current again.
                if image.leader_ended {
                    self.end(pid, time);
                }
            }
            Event::Comm { pid, tid, exec, name } if pid == tid && !is_foreign(pid) => {
                if exec {
                    self.exec(pid, time);
                }
                if let Some(image) = self.current_or_new(pid, time) {
                    image.name = name.into();
                }
            }
            Event::Map { pid, start, end, offset, file, path } if !is_foreign(pid) => {
                let Some(kind) = maps::kind(&path) else { return };
                let mount_namespace = self.current_mut(pid).map_or(0, |i| i.namespaces[MOUNT]);
                let object = match kind {
                    Kind::Vdso => Object::Vdso,
                    Kind::Memory => Object::Anonymous,
                    Kind::File(path) => {
                        let (dev, inode, build_id) = match file {
                            FileIdentity::BuildId(id) => ((0, 0), 0, Some(id)),
                            FileIdentity::Inode(dev, inode) => (dev, inode, None),
                        };
                        Object::File(
                            self.intern(pid, FileKey { path, dev, inode, build_id, mount_namespace }),
                        )
                    }
                };
                self.current_or_new(pid, time);
                self.add(pid, Mapping { start, end, offset, object });
            }
            _ => {}
        }
    }

    fn fork(&mut self, pid: u32, parent: u32, time: u64) {
        let from = self.processes.get(&parent).and_then(|images| images.last()).cloned();
        // The process may be known already: read from /proc meanwhile, or by a record of another
        // CPU that came first.
        let known = self.current_mut(pid).filter(|i| i.generation.start.saturating_add(SAME_START) > time);
        if let Some(image) = known {
            image.parent = parent;
            if image.generation.execs == 0
                && let Some(from) = from
            {
                let own = std::mem::replace(&mut image.mappings, from.mappings);
                let before = std::mem::replace(&mut image.bytes, from.bytes);
                self.bytes = self.bytes.saturating_sub(before).saturating_add(from.bytes);
                own.values().for_each(|mapping| self.add(pid, mapping.clone()));
            }
            return;
        }
        // If its end was not reported, it ends now.
        self.end(pid, time);
        let mut image = self.new_image(Generation { start: time, execs: 0 });
        (image.parent, image.began) = (parent, time);
        if let Some(from) = from {
            if self.has_space(from.bytes) {
                (image.mappings, image.bytes) = (from.mappings, from.bytes);
            }
            (image.name, image.namespaces, image.cgroup) = (from.name, from.namespaces, from.cgroup);
        }
        self.begin(pid, image);
    }

    /// A process that was forked at this time gets what its parent had mapped then, besides what it
    /// has mapped itself. False if that may not be all: the parent's program has ended, so it was
    /// not read.
    pub(super) fn inherit(&mut self, pid: u32, parent: u32, time: u64) -> bool {
        let from = self.image_at(parent, time).filter(|image| !image.mappings.is_empty());
        let Some(from) = from.cloned() else { return false };
        let is_whole = from.ended.is_none();
        if !self.has_space(from.bytes) {
            return is_whole;
        }
        let limits = self.limits;
        let images = self.processes.get_mut(&pid).into_iter().flatten();
        let Some(image) = images.rev().find(|image| image.began == time) else { return is_whole };
        let before = image.bytes;
        let own = std::mem::replace(&mut image.mappings, from.mappings);
        image.bytes = from.bytes;
        image.changes = image.changes.saturating_add(1);
        own.values().for_each(|mapping| image.map(mapping.clone(), &limits));
        if image.mount_namespace() == 0 {
            image.namespaces = from.namespaces;
        }
        let after = image.bytes;
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        is_whole
    }

    fn exec(&mut self, pid: u32, time: u64) {
        // The thread that executes a program takes the pid of the leader, which ends then.
        let is_it = |i: &&Image| i.ended.is_none_or(|at| at.saturating_add(SAME_START) > time);
        let last = self.images(pid).last().filter(is_it).cloned();
        self.end(pid, time);
        let mut image = self.new_image(Generation { start: time, execs: 0 });
        image.began = time;
        if let Some(old) = last {
            let Generation { start, execs } = old.generation;
            image.generation = Generation { start, execs: execs.saturating_add(1) };
            (image.parent, image.namespaces, image.cgroup) = (old.parent, old.namespaces, old.cgroup);
        }
        self.log.add(Entry::Executed { pid, image: image.number });
        self.push(pid, image);
    }

    /// Applies a reading of a running process. It is about a time at which all records until `time`
    /// had been applied; later ones are applied after it.
    pub(super) fn observed(&mut self, pid: u32, seen: Observation, time: u64) {
        let mount_namespace = seen.namespaces[MOUNT];
        let files = seen.map.files.iter();
        let files: Vec<_> = files
            .map(|f| {
                let (path, dev, inode) = (&f.path[..], f.dev, f.inode);
                self.intern(pid, FileKey { path, dev, inode, build_id: None, mount_namespace })
            })
            .collect();
        let object = |backing| match backing {
            Backing::File(number) => {
                files.get(number as usize).cloned().map_or(Object::Anonymous, Object::File)
            }
            Backing::Vdso => Object::Vdso,
            // No code is in the zeros behind a file.
            Backing::Anonymous | Backing::Zeros(_) => Object::Anonymous,
        };
        let has_code = |m: &&maps::Mapping| !matches!(m.backing, Backing::Zeros(_));
        let mappings = seen.map.mappings.iter().filter(has_code).take(self.limits.each).map(|m| Mapping {
            start: m.start,
            end: m.end,
            offset: m.offset,
            object: object(m.backing),
        });
        let mappings: Vec<Mapping> = mappings.collect();
        let is_same_process = |image: &Image| image.generation.start.abs_diff(seen.start) < SAME_START;
        // A program whose code is nowhere where it was is another one: its exec was lost.
        let is_same_program = |image: &Image| {
            let same =
                |m: &Mapping| image.overlapping(m.start, m.end).any(|n| names_same(&n.object, &m.object));
            image.mappings.is_empty() || mappings.is_empty() || mappings.iter().any(same)
        };
        let current = self.current_mut(pid);
        let (process, program) = match &current {
            Some(image) => (is_same_process(image), is_same_program(image)),
            None => (false, false),
        };
        if !process {
            self.end(pid, time);
            let mut image = self.new_image(Generation { start: seen.start, execs: 0 });
            image.began = seen.start;
            self.begin(pid, image);
        } else if !program {
            self.exec(pid, time);
        }
        let Some(image) = self.current_mut(pid) else { return };
        (image.parent, image.name, image.namespaces) = (seen.parent, seen.name.into(), seen.namespaces);
        // Mappings that are gone are kept, where nothing else is now: stacks may have addresses in
        // them.
        mappings.into_iter().for_each(|mapping| self.add(pid, mapping));
    }

    /// Ends the processes that run according to the table and do not exist: their end was lost.
    pub(super) fn end_others(&mut self, exists: impl Fn(u32) -> bool, before: u64) {
        let gone =
            |(pid, image): (u32, &Image)| (!exists(pid) && image.generation.start < before).then_some(pid);
        let gone: Vec<u32> = self.running().filter_map(gone).collect();
        gone.into_iter().for_each(|pid| self.end(pid, before));
    }

    /// Drops images that ended too long ago or are too many.
    pub(super) fn trim(&mut self, now: u64) {
        while let Some(&(time, ..)) = self.ended.front() {
            let within = self.ended.len() <= self.limits.images && self.bytes <= self.limits.bytes;
            if within && now.saturating_sub(time) <= self.limits.time {
                break;
            }
            self.drop_oldest();
        }
    }

    /// Drops the image that ended first. False if none has ended.
    fn drop_oldest(&mut self) -> bool {
        let Some((time, pid, number)) = self.ended.pop_front() else { return false };
        let Some(images) = self.processes.get_mut(&pid) else { return true };
        let ended = |i: &Image| i.number == number && i.ended == Some(time);
        let image = images.iter().position(ended).map(|at| images.remove(at));
        if images.is_empty() {
            self.processes.remove(&pid);
        }
        if let Some(image) = image {
            self.dropped(pid, &image);
        }
        true
    }
}

/// Place of the mount namespace in [`NAMESPACES`].
pub(super) const MOUNT: usize = 5;

fn names_same(one: &Object, other: &Object) -> bool {
    match (one, other) {
        (Object::File(a), Object::File(b)) => a.path == b.path,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
