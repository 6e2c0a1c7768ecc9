//! The tables in the kernel: which files have one, where it is, and which files wait for theirs.
//!
//! The table of a file is made once, however many processes have it mapped. Each table serves all
//! of these as soon as it is made, before the next one is read. Where the memory does not suffice,
//! the tables that were asked for least recently are removed, and their ranges wait for them again.
//!
//! A slot is for an address space, which a process shares with those that it forks. They may map
//! other code later. What they have all mapped is one list then; where they differ, a walk ends.
//!
//! Whoever has the most makes space for others: the address space, the table and the file of the
//! map that go are the ones that were asked for least recently of the user who has the most
//! ([`proc::share::goes`]). So the processes and files of a user, however many, take nothing from
//! others for long. Tables are made for root first, and for the others in turns.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bpf_runtime::maps::unwind_chunk;
use bpf_sys::{Map, Mmap};
use plane::shares::OTHERS;
use plane::unwind::{
    AMBIGUOUS, CHUNK_SHIFT, CHUNK_WORDS, CHUNKS, Directory, FIRST_RANGE, FileRecord, Load, MAX_LOADS,
    NO_TABLE, PAGE, PENDING, RANGES_END, RANGES_MAX, Range, UnknownFile, contents, key,
};
use proc::share::{Element, Owner, Owners, Payer, goes, in_turns};
use proc::watcher::SharedWatcher;
use symbols::{CodeLoad, CodeSource, FrameRequest, FrameTable, MappedCode, Processes};
use unwind::Place;

use super::entries::{File, Loaded, Space, Waiting};
use super::file_map::{FileMap, FileMaps, MAX_INODES};
use super::memory::Free;

/// The interval at which processes that have ended are looked for.
pub(super) const SWEEP: Duration = Duration::from_secs(10);

/// The code of a file, in bytes, up to which its table is made before those of larger files that
/// others wait for.
const SMALL: u64 = 4 << 20;

/// The most processes of an address space whose mappings are compared.
const MEMBERS: usize = 64;

/// The most address spaces.
const SPACES: usize = 4096;

/// As how many ranges an address space counts at least.
const SPACE: usize = 32;

/// The most files that are remembered, loaded or not.
const FILES: usize = 1 << 16;

/// The most files that are looked for before others are made.
const ASKED: usize = 16;

/// After this time of looking for files each user has one more at most before others are made. A
/// file that is on another machine, or hidden, takes longer alone.
const LOOKING: Duration = Duration::from_millis(100);

/// The least time between looking for processes that have ended because there are too many address
/// spaces: that reads each.
const FULL: Duration = Duration::from_secs(1);

/// What is in the kernel.
pub(super) struct Tables {
    processes: Processes,
    directory: Arc<Mmap>,
    ranges: Free,
    outer: Arc<Map>,
    /// The chunks, and what is free of each.
    chunks: Vec<(Mmap, Free)>,
    /// The most chunks.
    most: usize,
    files: HashMap<CodeSource, File>,
    /// Those that programs find by their inodes.
    inodes: FileMap<CodeSource>,
    waiting: HashMap<CodeSource, Waiting>,
    spaces: HashMap<u64, Space>,
    /// Counts requests.
    clock: u64,
    owners: Owners,
    /// When the last table was made for a user, in requests.
    turns: HashMap<Payer, u64>,
    /// When processes that have ended were looked for.
    swept: Option<Instant>,
}

/// Root's is root's, whoever has it besides.
fn add_owner(known: &mut Owner, other: &Owner) {
    if other.is_root() && !known.is_root() {
        *known = other.clone();
    }
}

/// What tells the contents of a file from others.
fn contents_of(processes: &Processes, source: CodeSource) -> Option<u64> {
    match source {
        CodeSource::File(id) => {
            let (size, changed) = processes.mapped_file(id)?.version()?;
            Some(contents(size, changed))
        }
        CodeSource::Vdso => Some(0),
        CodeSource::Vdso32(_) | CodeSource::Anonymous => None,
    }
}

/// The key of a process's address space.
fn key_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", proc::thread_with_memory(pid))).ok()?;
    let proc::Stat { code, stack, arguments, .. } = proc::parse_stat(&stat)?;
    (stack != 0).then(|| key(code, stack, arguments))
}

impl Tables {
    /// Nothing yet, with at most `limit` bytes of chunks.
    pub(super) fn new(
        processes: Processes,
        directory: Arc<Mmap>,
        chunks: Arc<Map>,
        maps: FileMaps,
        limit: u64,
    ) -> Tables {
        Tables {
            processes,
            directory,
            ranges: Free::new(FIRST_RANGE, RANGES_END - FIRST_RANGE),
            outer: chunks,
            chunks: Vec::new(),
            most: (limit >> (CHUNK_SHIFT + 3)).clamp(1, u64::from(CHUNKS)) as usize,
            files: HashMap::new(),
            inodes: FileMap::new(maps),
            waiting: HashMap::new(),
            spaces: HashMap::new(),
            clock: 0,
            owners: Owners::default(),
            turns: HashMap::new(),
            swept: None,
        }
    }

    /// Uses what a watcher of processes sees.
    pub(super) fn watch(&mut self, watcher: SharedWatcher) {
        self.processes.set_watcher(Some(watcher));
    }

    /// True if no address space is known.
    pub(super) fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    pub(super) fn directory(&self) -> Directory<'_> {
        // The map has this size.
        Directory::new(self.directory.words()).unwrap_or_default()
    }

    /// The processes whose mappings are known.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> {
        self.spaces.values().flat_map(|space| space.members.keys().copied())
    }

    /// Learns what a process has mapped. Returns its address space, whose files
    /// [wait](Tables::wait_for) for their tables, and whether programs know more of it by now.
    /// `None`: that could not be read, or it executes another program meanwhile.
    pub(super) fn observe(&mut self, pid: u32) -> Option<(u64, bool)> {
        let owner = self.owners.of(pid);
        self.observe_of(pid, &owner)
    }

    fn observe_of(&mut self, pid: u32, owner: &Owner) -> Option<(u64, bool)> {
        self.clock += 1;
        let key = key_of(pid)?;
        let code = self.processes.code(pid).ok()?;
        // It has executed another program meanwhile, which will be asked for.
        if key_of(pid) != Some(key) {
            return None;
        }
        if self.spaces.len() >= SPACES && !self.spaces.contains_key(&key) {
            if self.swept.is_none_or(|at| at.elapsed() >= FULL) {
                self.sweep();
            }
            if self.spaces.len() >= SPACES {
                self.remove_space(key);
            }
        }
        let (members, ranges) = Default::default();
        let new = || Space { members, owner: owner.clone(), used: 0, first: 0, ranges };
        let space = self.spaces.entry(key).or_insert_with(new);
        add_owner(&mut space.owner, owner);
        space.used = self.clock;
        if space.members.len() >= MEMBERS && !space.members.contains_key(&pid) {
            space.members.pop_first();
        }
        space.members.insert(pid, code.clone());
        code.iter().for_each(|code| self.wait_for(code, owner));
        // What other processes have is there at once.
        Some((key, self.publish(key)))
    }

    /// So many of these address spaces and their processes: root's first, the others in turns.
    pub(super) fn in_turns(&mut self, mut wanted: Vec<(u64, u32)>, most: usize) -> Vec<(u64, u32)> {
        if wanted.len() > most {
            let pids: HashSet<u32> = wanted.iter().map(|(_, pid)| *pid).collect();
            let pids: Vec<u32> = pids.into_iter().collect();
            let turns = self.owners.in_turns(&pids).into_iter().map(|owner| owner.pid).zip(0usize..);
            let turns: HashMap<u32, usize> = turns.collect();
            wanted.sort_by_key(|(_, pid)| turns.get(pid).copied());
            wanted.truncate(most);
        }
        wanted
    }

    /// Lets a file wait for its table, unless that is in the kernel.
    fn wait_for(&mut self, code: &MappedCode, owner: &Owner) {
        let (clock, source) = (self.clock, code.source);
        if let Some(file) = self.files.get_mut(&source) {
            file.used = clock;
            add_owner(&mut file.owner, owner);
            if file.loaded.is_some() || file.none_until.is_some_and(|until| Instant::now() < until) {
                return;
            }
        }
        let new = || {
            let contents = contents_of(&self.processes, source);
            Waiting { clock, bytes: 0, is_read: false, contents, owner: owner.clone() }
        };
        let waiting = self.waiting.entry(source).or_insert_with(new);
        waiting.clock = clock;
        add_owner(&mut waiting.owner, owner);
        if let CodeSource::File(_) = source {
            waiting.bytes = waiting.bytes.max(code.end.saturating_sub(code.start));
        }
    }

    /// The file whose table is made next: of those that are small, else of all, one of root's, or
    /// of the user for whom none was made for the longest time, that was asked for most recently.
    pub(super) fn next(&self, is_small: bool) -> Option<CodeSource> {
        let some = self.waiting.iter().filter(|(_, file)| (file.bytes <= SMALL) == is_small && !file.is_read);
        let turn = |owner: &Owner| match owner.payer() {
            Payer::Root => 0,
            user => self.turns.get(&user).copied().unwrap_or(0),
        };
        let order =
            |file: &Waiting| (!file.owner.is_root(), turn(&file.owner), Reverse(file.clock), file.bytes);
        some.min_by_key(|(_, file)| order(file)).map(|(source, _)| *source)
    }

    /// True if files of an address space wait for their tables.
    pub(super) fn waits(&self, key: u64) -> bool {
        let Some(space) = self.spaces.get(&key) else { return false };
        space.members.values().flatten().any(|code| self.waiting.contains_key(&code.source))
    }

    /// Makes the table of a file. Returns the address spaces that have got something by it.
    pub(super) fn load(&mut self, source: CodeSource) -> Vec<u64> {
        let table = self.processes.frames(source);
        self.settle(source, table.ok())
    }

    /// What is needed to read a file elsewhere. `None`: it is no file that can be read.
    pub(super) fn request(&mut self, source: CodeSource) -> Option<FrameRequest> {
        let CodeSource::File(id) = source else { return None };
        let request = self.processes.frame_request(id)?;
        self.waiting.get_mut(&source)?.is_read = true;
        Some(request)
    }

    /// Makes all tables of a process that the user has named: they are root's.
    pub(super) fn make(&mut self, pid: u32) {
        let Some((key, _)) = self.observe_of(pid, &Owner::new(pid, 0, "")) else { return };
        let members = self.spaces.get(&key).map(|space| &space.members);
        let code = members.and_then(|members| members.get(&pid)).cloned().unwrap_or_default();
        for source in code.into_iter().map(|code| code.source) {
            if self.waiting.contains_key(&source) {
                self.load(source);
            }
        }
    }

    /// A file has this table; `None`: it could not be read; within: it has none. Returns the
    /// address spaces that have got something by it.
    pub(super) fn settle(&mut self, source: CodeSource, table: Option<Option<FrameTable>>) -> Vec<u64> {
        let none = || (self.clock, None, Owner::nobody());
        let waiting = self.waiting.remove(&source);
        let (used, before, owner) = waiting.map_or_else(none, |w| (w.clock, w.contents, w.owner));
        self.clock += 1;
        self.turns.insert(owner.payer(), self.clock);
        if self.files.get(&source).is_some_and(|file| file.loaded.is_some()) {
            self.publish_file(source);
            return Vec::new();
        }
        // It may have been written anew while it was read.
        let contents = before.filter(|before| contents_of(&self.processes, source) == Some(*before));
        let mut file = File { loaded: None, none_until: None, has_none: false, contents, used, owner };
        match table {
            // Perhaps it can be read later.
            None => file.none_until = Some(Instant::now() + SWEEP),
            Some(None) => (file.none_until, file.has_none) = (Some(Instant::now() + 360 * SWEEP), true),
            Some(Some(table)) => file.loaded = self.place(table, &file.owner, used),
        }
        self.files.insert(source, file);
        self.publish_file(source);
        let users = self.users(source);
        users.into_iter().filter(|key| self.publish(*key)).collect()
    }

    /// The address spaces that have a file mapped.
    fn users(&self, source: CodeSource) -> Vec<u64> {
        let has = |space: &Space| space.members.values().flatten().any(|code| code.source == source);
        self.spaces.iter().filter(|(_, space)| has(space)).map(|(key, _)| *key).collect()
    }

    /// Writes a table to chunks. `None` if there is no space for it, and [none that others
    /// leave](goes) to its owner.
    fn place(&mut self, file: FrameTable, owner: &Owner, used: u64) -> Option<Loaded> {
        let mut places: Vec<Place> = Vec::new();
        for words in file.table.parts() {
            match self.take(words, owner, used) {
                Some(word) => places.push(Place { word, words }),
                None => {
                    self.give(&places);
                    return None;
                }
            }
        }
        for (place, words) in places.iter().zip(file.table.words(&places)) {
            let (chunk, at) = (place.word >> CHUNK_SHIFT, place.word & (CHUNK_WORDS - 1));
            let (memory, _) = self.chunks.get(chunk as usize)?;
            for (to, from) in memory.words().get(at as usize..)?.iter().zip(&words) {
                to.store(*from, Ordering::Relaxed);
            }
        }
        let (base, pages) = (file.table.base(), file.table.pages());
        // The rows are in the kernel.
        let file = FrameTable { loads: file.loads, runtime: file.runtime, ..FrameTable::default() };
        Some(Loaded { places, base, pages, file })
    }

    /// Takes words of a chunk, of a new one or of files that [go](goes) if need be.
    fn take(&mut self, words: u32, owner: &Owner, used: u64) -> Option<u32> {
        loop {
            for (number, (_, free)) in (0u32..).zip(&mut self.chunks) {
                if let Some(at) = free.take(words) {
                    return Some(number * CHUNK_WORDS + at);
                }
            }
            if words > CHUNK_WORDS || !(self.add_chunk() || self.evict(owner, used)) {
                return None;
            }
        }
    }

    fn give(&mut self, places: &[Place]) {
        for place in places {
            if let Some((_, free)) = self.chunks.get_mut((place.word >> CHUNK_SHIFT) as usize) {
                free.give(place.word & (CHUNK_WORDS - 1), place.words);
            }
        }
    }

    /// Creates a chunk. False if there is no memory for it, or as many as there may be.
    fn add_chunk(&mut self) -> bool {
        if self.chunks.len() >= self.most {
            return false;
        }
        let created = unwind_chunk().and_then(|chunk| {
            let memory = chunk.mmap(true)?;
            self.outer.set_fd(self.chunks.len() as u32, chunk.as_fd())?;
            Ok(memory)
        });
        match created {
            Ok(memory) => {
                self.chunks.push((memory, Free::new(0, CHUNK_WORDS)));
                true
            }
            Err(_) => {
                self.most = self.chunks.len();
                false
            }
        }
    }

    /// Removes the table that [goes](goes) for this owner, who asked for another at `used`. False
    /// if there is none.
    fn evict(&mut self, owner: &Owner, used: u64) -> bool {
        let loaded = self.files.iter().filter(|(_, file)| file.loaded.is_some());
        let loaded = loaded.map(|(source, file)| Element::new(*source, &file.owner, file.words(), file.used));
        let Some(source) = goes(loaded, |file| file.is_left_by(owner, used)) else { return false };
        let Some(loaded) = self.files.remove(&source).and_then(|file| file.loaded) else { return false };
        if self.inodes.remove(source) {
            // What was found without a range, and remembered.
            self.directory().removed();
        }
        let users = self.users(source);
        // Programs do not find the table any more, and a walk that has found it sees that.
        users.into_iter().for_each(|key| {
            self.publish(key);
        });
        self.give(&loaded.places);
        true
    }

    /// Finds out which files programs have met: what a process has mapped, or had, if it has ended.
    /// True if there are more, which are those of users who have had their turn.
    pub(super) fn identify_files(&mut self) -> bool {
        let now = Instant::now();
        let all = self.inodes.unknown(now);
        let mut by_process: HashMap<u32, Vec<UnknownFile>> = HashMap::new();
        all.iter().for_each(|asked| by_process.entry(asked.process).or_default().push(*asked));
        // Root's may have ended, but the program knew it. A user's may have the number of one by
        // now.
        let is_root = |files: &[UnknownFile]| files.iter().all(|asked| asked.share & OTHERS == 0);
        let owner = |(pid, files): (&u32, &Vec<UnknownFile>)| {
            if is_root(files) { Owner::new(*pid, 0, "") } else { self.owners.of(*pid) }
        };
        let owners = in_turns(by_process.iter().map(owner).collect());
        let in_turns = owners.into_iter().flat_map(|owner| {
            let files = by_process.remove(&owner.pid).unwrap_or_default();
            files.into_iter().map(move |asked| (asked, owner.clone()))
        });
        let (mut looked, mut had, begun) = (0, HashSet::new(), Instant::now());
        for (asked, owner) in in_turns {
            if looked >= ASKED {
                break;
            }
            // Who has files that take long waits for the next time, and nobody else for them.
            if !had.insert(owner.payer()) && begun.elapsed() >= LOOKING {
                continue;
            }
            looked += 1;
            self.clock += 1;
            let Some((source, bytes)) = self.source_of(&asked) else {
                self.inodes.not_found(&asked, Instant::now());
                continue;
            };
            self.inodes.found(&asked, source, Instant::now());
            self.wait_for(&MappedCode { start: 0, end: bytes, offset: 0, source }, &owner);
            if !self.waiting.contains_key(&source) {
                self.publish_file(source);
            }
        }
        all.len() > looked
    }

    /// The file that a program has met, and its size.
    fn source_of(&mut self, asked: &UnknownFile) -> Option<(CodeSource, u64)> {
        if (asked.device, asked.inode) == ((0, 0), 0) {
            return Some((CodeSource::Vdso, 0));
        }
        let id = self.processes.real_file_at(asked.process, asked.start, asked.device, asked.inode)?;
        let (size, _) = self.processes.mapped_file(id)?.version()?;
        Some((CodeSource::File(id), size))
    }

    /// When it can be asked again for a file that was not found.
    pub(super) fn next_asked(&self) -> Option<Instant> {
        self.inodes.next()
    }

    /// Tells programs that meet a file what it has, if they have asked for it.
    fn publish_file(&mut self, source: CodeSource) {
        if !self.inodes.is_asked(source) {
            return;
        }
        let is_known = self.record(source).is_some_and(|record| {
            let mut is_known = self.inodes.publish(source, &record);
            // Each one that goes leaves a place at least, and this file needs no more.
            for _ in 0..MAX_INODES {
                if is_known || !self.remove_oldest(source) {
                    break;
                }
                is_known = self.inodes.publish(source, &record);
            }
            is_known
        });
        if !is_known {
            self.inodes.postpone(source, Instant::now());
        }
    }

    /// Programs do not find the file of who has the most any more that was asked for least
    /// recently, but for one. They ask for it again.
    fn remove_oldest(&mut self, but: CodeSource) -> bool {
        let all = self.inodes.published().map(|source| match self.files.get(&source) {
            Some(file) => Element::new(source, &file.owner, 1, file.used),
            None => Element { key: source, owner: None, amount: 1, used: 0 },
        });
        goes(all, |file| file.key != but).is_some_and(|source| self.inodes.remove(source))
    }

    /// What programs are told. `None`: there is nothing yet, or the file was written anew since its
    /// table was made.
    fn record(&self, source: CodeSource) -> Option<FileRecord> {
        let file = self.files.get(&source)?;
        let contents = file.contents.filter(|known| contents_of(&self.processes, source) == Some(*known))?;
        let Some(loaded) = &file.loaded else {
            return file.has_none.then(|| FileRecord { table: NO_TABLE, contents, ..FileRecord::default() });
        };
        let first = loaded.places.first()?;
        let load = |load: &CodeLoad| {
            let offset = load.offset & !(PAGE - 1);
            let bytes = load.size.saturating_add(load.offset - offset);
            Load { offset, bytes, moved: load.addr.wrapping_sub(load.offset) }
        };
        let loads: Vec<Load> = loaded.file.loads.iter().map(load).collect();
        // A file with more is found when its processes are looked at.
        (loads.len() <= MAX_LOADS as usize).then(|| FileRecord {
            table: u64::from(first.word) | u64::from(loaded.pages) << 32,
            base: loaded.base,
            contents,
            loads,
        })
    }

    /// Writes the ranges of an address space. True if they are others.
    fn publish(&mut self, key: u64) -> bool {
        let Some(space) = self.spaces.get(&key) else { return false };
        let mut ranges = self.ranges_of(space);
        let count = ranges.len() as u32;
        ranges.push(self.runtime_of(space));
        let changed = ranges != space.ranges;
        if changed {
            let Some(first) = self.take_ranges(ranges.len() as u32, key) else {
                self.remove(key);
                return false;
            };
            let directory = self.directory();
            directory.write(first, &ranges);
            if !directory.publish(key, first, count) {
                self.ranges.give(first, ranges.len() as u32);
                self.remove(key);
                return false;
            }
            if let Some(space) = self.spaces.get_mut(&key) {
                let old = (space.first, space.ranges.len() as u32);
                (space.first, space.ranges) = (first, ranges);
                if old.1 > 0 {
                    self.ranges.give(old.0, old.1);
                }
            }
        }
        changed
    }

    /// The ranges of what all processes of an address space have mapped, sorted.
    fn ranges_of(&self, space: &Space) -> Vec<Range> {
        let mut all: Vec<MappedCode> = space.members.values().flatten().copied().collect();
        all.sort_unstable_by_key(|code| (code.start, code.end, code.offset));
        all.dedup();
        let mut ranges: Vec<Range> = Vec::new();
        for code in all {
            let range = self.range(&code);
            match ranges.last_mut() {
                // Processes of this address space differ here.
                Some(last) if last.end > range.start => {
                    let end = last.end.max(range.end);
                    *last = Range { start: last.start, end, table: AMBIGUOUS, delta: 0 };
                }
                _ => ranges.push(range),
            }
        }
        ranges.truncate(RANGES_MAX as usize);
        ranges
    }

    /// The range that says which language runtime an address space has, and where the state of that
    /// is, if all its processes have it.
    fn runtime_of(&self, space: &Space) -> Range {
        let of = |code: &MappedCode| {
            let file = &self.files.get(&code.source)?.loaded.as_ref()?.file;
            let distance = file.runtime?.state.wrapping_sub(file.address(code.offset)?);
            Some((file.runtime?.runtime.number(), code.start.wrapping_add(distance)))
        };
        let mut all = space.members.values().map(|code| code.iter().find_map(of));
        let first = all.next().flatten();
        Range::of_runtime(first.filter(|_| all.all(|other| other == first)))
    }

    fn range(&self, code: &MappedCode) -> Range {
        let MappedCode { start, end, offset, source } = *code;
        let file = self.files.get(&source);
        let (table, delta) = match file.and_then(|file| file.loaded.as_ref()) {
            Some(Loaded { places, base, pages, file }) => match (file.address(offset), places.first()) {
                (Some(addr), Some(place)) => {
                    let delta = addr.wrapping_sub(start).wrapping_sub(*base);
                    (u64::from(place.word) | u64::from(*pages) << 32, delta)
                }
                _ => (NO_TABLE, 0),
            },
            None if file.is_some_and(|file| file.none_until.is_some()) => (NO_TABLE, 0),
            None => (PENDING, 0),
        };
        Range { start, end, table, delta }
    }

    /// Takes ranges for an address space. Others make space for it, if need be.
    fn take_ranges(&mut self, count: u32, key: u64) -> Option<u32> {
        loop {
            match self.ranges.take(count) {
                None if self.remove_space(key) => {}
                taken => return taken,
            }
        }
    }

    /// Removes the address space of who has the most ranges that was asked for least recently, but
    /// for one. False if there is none.
    fn remove_space(&mut self, but: u64) -> bool {
        let amount = |space: &Space| space.ranges.len().max(SPACE);
        let spaces = self.spaces.iter();
        let all = spaces.map(|(key, space)| Element::new(*key, &space.owner, amount(space), space.used));
        goes(all, |space| space.key != but).inspect(|key| self.remove(*key)).is_some()
    }

    /// Removes an address space.
    fn remove(&mut self, key: u64) {
        self.directory().remove(key);
        if let Some(space) = self.spaces.remove(&key)
            && !space.ranges.is_empty()
        {
            self.ranges.give(space.first, space.ranges.len() as u32);
        }
    }

    /// Removes processes that have ended or execute another program, and address spaces without
    /// any.
    pub(super) fn sweep(&mut self) {
        let keys: Vec<u64> = self.spaces.keys().copied().collect();
        for key in keys {
            if let Some(space) = self.spaces.get_mut(&key) {
                space.members.retain(|pid, _| key_of(*pid) == Some(key));
                if space.members.is_empty() {
                    self.remove(key);
                }
            }
        }
        // What nobody has mapped any more need not wait.
        let mapped = self.spaces.values().flat_map(|space| space.members.values().flatten());
        let mapped: HashSet<CodeSource> = mapped.map(|code| code.source).collect();
        let inodes = &self.inodes;
        self.waiting
            .retain(|source, file| file.is_read || mapped.contains(source) || inodes.is_asked(*source));
        if self.files.len() > FILES {
            self.files.retain(|_, file| file.loaded.is_some());
        }
        self.turns.retain(|_, turn| *turn + SPACES as u64 > self.clock);
        self.swept = Some(Instant::now());
    }
}
