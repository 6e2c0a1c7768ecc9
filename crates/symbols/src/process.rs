//! Names of addresses in processes, running or exited.
//!
//! A process is identified by its pid, and its program by a *time* at which it ran: the program of
//! a pid changes at `exec`, and an address is only meaningful together with its program. Time 0 is
//! that of an address without a time: the newest program that has it mapped.
//!
//! The address map is read when a process is first seen: by [`Processes::note`], which the tracer
//! calls when a process starts, otherwise at the first lookup. It is read again only if no mapping
//! contains an address (a library was loaded). The identity of the process is compared once per
//! batch, because the pid may have been reused, or the process may have executed another program.
//! The last map of an exited process is kept.
//!
//! With a watcher ([`Processes::set_watcher`]) a process that was never read has names too: the
//! watcher knows what it ran and had mapped, also after its end. It says which program a pid ran at
//! a time. If that program still runs, its map is read as above, because only the reader gets
//! handles of all its files; otherwise the address is looked up in the watcher's mappings
//! ([`watched`]). Without a watcher the time is of no use.
//!
//! This module does not read data of a process. All data that a process controls (its map, its
//! files, its perf map) is requested from the [reader](crate::reader), in as few requests as
//! possible: [`Processes::prepare`] takes all addresses of a batch. An object whose request failed
//! is not queried again for a minute.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use files::FileId;
use files::real::{RealFiles, RealInode, RealMapping};

use crate::client::{Interrupted, Limits, Reader};
use crate::name::Name;
use crate::object::{self, Lookup, Objects, RETRY_AFTER, report_failure};
use crate::pool::Readers;
use crate::wire::{self, Identity, MAX_NUMBERS, Request, Response};
use apart::FilesApart;
use proc::Caller;
use proc::maps::{self, Backing, Map, MappedFile, Mapping};
use proc::share::{Element, Owner, Owners, goes};
use proc::watcher::{Cursor, File, SharedWatcher};

/// Maximum number of address maps. The least recently used one of the user who has the most is
/// dropped first.
const MAX_PROCESSES: usize = 4096;

/// Maximum number of mappings of all processes.
const MAX_MAPPINGS: usize = 1 << 20;

/// End of the address space of a 32-bit process.
const END_OF_32_BIT: u64 = 1 << 32;

mod answered;
mod apart;
mod aside;
mod ask;
mod frames;
mod functions;
mod guests;
mod known_guests;
mod perf_map;
mod perf_maps;
mod real;
mod sources;
mod types;
mod unmapped;
mod usdt;
mod watched;

pub use answered::{Answered, answered, sample_answers};
pub use aside::{FrameReader, FrameRequest};
pub use frames::{CodeSource, MappedCode};
pub use functions::MappedText;
pub use known_guests::Guests;
use known_guests::KnownGuests;
use perf_map::PerfMap;

/// What is at an address.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A file, and the offset in it.
    File(FileId, u64),
    /// Memory behind a file, which is not the file's if it has no symbol there.
    Zeros(FileId, u64),
    /// The vdso, and the offset in it.
    Vdso(u64),
    /// Executable memory without a file.
    Anonymous,
}

/// Where an address is looked up.
enum Source {
    /// In a mapping that was read.
    Read(Mapping),
    /// In the watcher's mappings.
    Watched,
}

#[derive(Debug, Default)]
struct Process {
    identity: Option<Identity>,
    /// Whose it was when its map was read.
    owner: Option<Owner>,
    /// The watcher's number of the program.
    program: Option<u64>,
    /// How often the watcher had seen its mappings change when the map was read.
    changes: u64,
    mappings: Vec<Mapping>,
    /// The object of each file of the map.
    objects: Vec<FileId>,
    perf_map: Option<PerfMap>,
    /// Symbols of JIT code, valid in the batch `jit_batch`.
    jit: HashMap<u64, Lookup>,
    jit_batch: u64,
    /// Batch in which the identity was last compared.
    checked: u64,
    /// Batch in which the map was last read.
    read: u64,
    /// Batch of the last lookup.
    used: u64,
    /// When a request for the address map last failed.
    failed_at: Option<Instant>,
    /// When a request for JIT symbols last failed.
    jit_failed_at: Option<Instant>,
}

fn failed_recently(since: Option<Instant>) -> bool {
    since.is_some_and(|at| at.elapsed() < RETRY_AFTER)
}

/// The program that a process runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// The watcher's number.
    number: u64,
    /// How often its mappings have changed.
    changes: u64,
}

/// The reader's response about a process.
struct Snapshot {
    identity: Identity,
    program: Option<Running>,
    mappings: Vec<Mapping>,
    objects: Vec<FileId>,
    perf_map: Option<PerfMap>,
}

/// The roots of mount namespaces whose files the watcher reports.
#[derive(Default)]
struct NamespaceRoots {
    /// Opens them.
    caller: Caller,
    /// Makes calls that may ask a file server: what blocks them keeps no others from being made.
    asking: Caller,
    /// Files of namespaces whose root is not held, in the order in which they were mapped.
    /// Each with the process that has mapped it.
    waiting: VecDeque<(u32, Arc<File>)>,
    /// Files that were not found at their path there.
    apart: FilesApart,
}

/// Names of addresses in processes.
pub struct Processes {
    processes: HashMap<u32, Process>,
    objects: Objects,
    reader: Reader,
    watcher: Option<SharedWatcher>,
    /// When files were last looked for that no process has mapped.
    closed_at: Option<Instant>,
    /// How far the watcher's changes were followed.
    followed: Cursor,
    roots: NamespaceRoots,
    real: RealFiles,
    mappings: usize,
    /// The vdsos of processes of 32 bits, by hashes of them.
    vdsos: HashMap<u64, Vec<u8>>,
    guests: KnownGuests,
    batch: u64,
    /// Functions and source lines are looked up.
    with_sources: bool,
    owners: Owners,
    /// Whose the perf maps are that are held.
    perf_map_owners: HashMap<u32, Owner>,
}

impl Default for Processes {
    /// With readers that nobody else uses.
    fn default() -> Self {
        Self::new(&Readers::new())
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Processes({} known)", self.processes.len())
    }
}

impl Processes {
    /// Reads nothing. The limits of a reader are two seconds of CPU time per response and 256 MB.
    pub fn new(readers: &Readers) -> Processes {
        let limits = Limits::of_work(Duration::from_secs(2), 256 << 20);
        let reader = Reader::new(readers, limits);
        let mut objects = Objects::default();
        objects.files_mut().set_number(reader.number());
        Processes {
            processes: HashMap::new(),
            objects,
            reader,
            watcher: None,
            closed_at: None,
            followed: Cursor::default(),
            roots: NamespaceRoots::default(),
            real: RealFiles::default(),
            mappings: 0,
            vdsos: HashMap::new(),
            guests: KnownGuests::default(),
            batch: 0,
            with_sources: false,
            owners: Owners::default(),
            perf_map_owners: HashMap::new(),
        }
    }

    /// Sets the time limit of a response and the memory limit of the reader.
    pub fn set_limits(&mut self, time: Duration, memory: u64) {
        self.reader.set_limits(Limits::of_time(time, memory));
    }

    /// As [`Processes::set_limits`], by the CPU time that the reader uses for a response. One that
    /// only waits is given [longer](crate::wait_for).
    pub fn set_work_limits(&mut self, work: Duration, memory: u64) {
        self.reader.set_limits(Limits::of_work(work, memory));
    }

    /// Nobody waits for the answers: others get readers first.
    pub fn work_in_background(&mut self) {
        self.reader.work_in_background();
    }

    /// Sets how many files are held at once. A file in memory can be read only while it is held.
    pub fn set_max_handles(&mut self, most: usize) {
        self.objects.files_mut().set_max_handles(most);
    }

    /// Sets the function that is polled during a wait. True ends the wait.
    pub fn set_interrupted(&mut self, interrupted: Option<Interrupted>) {
        self.reader.set_interrupted(interrupted);
    }

    /// The user has interrupted the session: from now on waits are short.
    pub fn interrupt(&mut self) {
        self.reader.shorten_waits();
    }

    /// Messages for the user about failures since the last call.
    pub fn take_messages(&mut self) -> Vec<String> {
        self.reader.take_messages()
    }

    /// Chooses between mangled names (`_ZN…`) and demangled ones.
    pub fn set_raw_names(&mut self, raw: bool) {
        self.objects.set_raw_names(raw);
    }

    /// Starts a new batch of addresses (a buffer is drained). Identities are compared again in it.
    pub fn begin_batch(&mut self) {
        self.batch += 1;
        self.update_watcher();
    }

    /// Stores the address map of a process and holds its files, so that its addresses can be
    /// resolved after its exit. The caller repeats the call after the process loads a library or
    /// executes a program.
    pub fn note(&mut self, pid: u32) {
        let batch = self.batch;
        if let Some(snapshot) = self.observe(pid) {
            self.store(pid, snapshot);
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.checked = batch;
        }
    }

    /// As [`Processes::note`], for a process of which an address was seen. Nothing is read if the
    /// watcher says that the stored map has all of its code, or that it has ended.
    pub fn see(&mut self, pid: u32) {
        if self.is_worth_reading(pid) {
            self.note(pid);
        }
    }

    fn remove(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            self.mappings -= process.mappings.len();
        }
    }

    /// Drops all objects, and the processes that refer to them.
    fn forget_objects(&mut self) {
        self.objects.forget_all();
        self.processes.clear();
        self.mappings = 0;
        if self.watcher.is_some() {
            let _ = self.objects.files_mut().hold_own_root();
        }
    }

    /// Requests identity, map and files of a running process from the reader.
    fn observe(&mut self, pid: u32) -> Option<Snapshot> {
        let before = self.running_program(pid);
        let known = self.processes.get(&pid);
        if known.is_some_and(|p| failed_recently(p.failed_at)) {
            return None;
        }
        if self.objects.files_mut().take_closed() {
            self.reader.forget(&[], &[]);
        }
        let responses = match self.reader.query(&Request::Process(pid), &[]) {
            Ok((responses, _)) => responses,
            Err(error) => {
                report_failure(&mut self.reader, error, &format!("the address map of process {pid}"));
                if error.excludes_object() {
                    self.processes.entry(pid).or_default().failed_at = Some(Instant::now());
                }
                return None;
            }
        };
        let files = responses.iter().filter(|(a, _)| matches!(a, Response::File(_))).count();
        if self.objects.is_full(files) {
            self.forget_objects();
        }
        let mut responses = responses.into_iter();
        let Some((Response::Process(identity, root), _)) = responses.next() else { return None };
        let mut map = Map::default();
        let (mut handles, mut perf_map) = (Vec::new(), None);
        for response in responses {
            match response {
                (Response::Root(key), Some(fd)) => self.objects.hold_root(key, fd),
                (Response::File(file), handle) => {
                    handles.push(handle);
                    map.files.push(file);
                }
                (Response::Mappings(more), _) => wire::add_mappings(&mut map, more).then_some(())?,
                (Response::PerfMap(pid), handle) => perf_map = Some(PerfMap::of(pid, handle)),
                _ => {}
            }
        }
        // Without an exec meanwhile, this is the map of that program.
        let is_same = |now: Option<Running>| now.map(|p| p.number) == before.map(|p| p.number);
        let mut program = before.filter(|_| is_same(self.running_program(pid)));
        // On an anonymous device (an overlay's is one) a new file may be one that is known.
        let is_anonymous = |(file, handle): (&MappedFile, &Option<_>)| handle.is_some() && file.dev.0 == 0;
        let mut real = HashMap::new();
        if program.is_some() && map.files.iter().zip(&handles).any(is_anonymous) {
            real = self.real_files(pid, &map);
            program = before.filter(|_| is_same(self.running_program(pid)));
        }
        let mut objects = Vec::new();
        for ((number, file), handle) in (0..).zip(&map.files).zip(handles) {
            let real = real.get(&number).copied().filter(|_| program.is_some());
            objects.push(match real {
                Some(real) => self.objects.note_real(file, root, handle, real),
                None => self.objects.note(file, root, handle),
            });
        }
        Some(Snapshot { identity, program, mappings: map.mappings, objects, perf_map })
    }

    /// The real files of a process's map, by their index in it.
    fn real_files(&mut self, pid: u32, map: &Map) -> HashMap<u32, RealInode> {
        // Without the privilege or the kernel's help each overlay's file is a file of its own.
        let all = self.real.of_process(pid).unwrap_or_default();
        let number = |real: &RealMapping| match maps::find(&map.mappings, real.start)?.backing {
            Backing::File(number) => Some((number, real.file)),
            _ => None,
        };
        all.iter().filter_map(number).collect()
    }

    fn store(&mut self, pid: u32, snapshot: Snapshot) {
        let Snapshot { identity, program, mappings, objects, perf_map } = snapshot;
        let before = self.processes.get(&pid).map_or(0, |p| p.mappings.len());
        while (self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid))
            || self.mappings + mappings.len() > MAX_MAPPINGS + before
        {
            let Some(oldest) = self.least_useful(pid) else { break };
            self.remove(oldest);
        }
        let perf_map = perf_map.filter(|_| self.may_hold_perf_map(pid));
        let batch = self.batch;
        let process = self.processes.entry(pid).or_default();
        if process.identity != Some(identity) {
            *process = Process { owner: Some(self.owners.of(pid)), ..Process::default() };
        }
        process.identity = Some(identity);
        (process.program, process.changes) = program.map_or((None, 0), |p| (Some(p.number), p.changes));
        if perf_map.is_some() {
            process.perf_map = perf_map;
        }
        self.mappings = self.mappings - before + mappings.len();
        (process.mappings, process.objects) = (mappings, objects);
        (process.read, process.used) = (batch, batch);
        // Later it may have ended. Only processes that change theirs have another one than the
        // kernel's.
        if self.vdsos.is_empty() {
            self.read_narrow_vdso(pid);
        }
    }

    /// The process whose map makes space for that of another one: see [`goes`]. One without a map
    /// has no owner yet.
    fn least_useful(&self, but: u32) -> Option<u32> {
        let all = self.processes.iter().map(|(pid, p)| {
            let (owner, amount) = (p.owner.as_ref(), p.mappings.len().max(1));
            Element { key: *pid, owner, amount, used: p.used }
        });
        goes(all, |element| element.key != but)
    }

    /// Reads the process if it is not known yet, or if its identity changed.
    fn update(&mut self, pid: u32) {
        let batch = self.batch;
        match self.processes.get_mut(&pid) {
            None => {
                self.note(pid);
                // An entry without a map prevents another request in this batch.
                let process = self.processes.entry(pid).or_default();
                (process.checked, process.read, process.used) = (batch, batch, batch);
            }
            Some(process) => {
                process.used = batch;
                if process.checked != batch && !self.is_program_current(pid) {
                    self.revalidate(&[pid]);
                }
            }
        }
    }

    /// Compares the stored identities of these pids with the current ones. Reads processes again
    /// that differ.
    fn revalidate(&mut self, pids: &[u32]) {
        let batch = self.batch;
        for part in pids.chunks(MAX_NUMBERS / 2) {
            for pid in part {
                if let Some(process) = self.processes.get_mut(pid) {
                    process.checked = batch;
                }
            }
            let responses = match self.reader.query(&Request::Identities(part.to_vec()), &[]) {
                Ok((responses, _)) => responses,
                Err(error) => return report_failure(&mut self.reader, error, "what runs"),
            };
            let list = |(response, _)| match response {
                Response::Identities(list) => list,
                _ => Vec::new(),
            };
            let now: Vec<Option<Identity>> = responses.into_iter().flat_map(list).collect();
            for (pid, now) in part.iter().zip(now) {
                let known = self.processes.get(pid).and_then(|p| p.identity);
                if now.is_some() && now != known {
                    self.note(*pid);
                }
            }
        }
    }

    /// The mapping that contains an address. If there is none, the map is read again, once per
    /// batch.
    fn mapping_of(&mut self, pid: u32, addr: u64) -> Option<Mapping> {
        self.update(pid);
        for again in [false, true] {
            let process = self.processes.get(&pid)?;
            if let Some(mapping) = maps::find(&process.mappings, addr) {
                return Some(*mapping);
            }
            if again || process.read == self.batch {
                return None;
            }
            let known = process.identity;
            // Only if the program is still the same. The map of a later program does not apply to
            // the address.
            if let Some(now) = self.observe(pid)
                && known.is_none_or(|known| known == now.identity)
            {
                self.store(pid, now);
            }
            let batch = self.batch;
            self.processes.get_mut(&pid)?.read = batch;
        }
        None
    }

    /// What is at an address of a process.
    fn place_of(&mut self, pid: u32, time: u64, addr: u64) -> Option<Place> {
        match self.source_of(pid, time, addr) {
            Source::Read(mapping) => self.place(pid, &mapping, addr),
            Source::Watched => self.watched_place(pid, time, addr),
        }
    }

    /// Where an address is looked up. The map of the program that has it comes first, if that was
    /// read while the program ran: it has handles of all files.
    fn source_of(&mut self, pid: u32, time: u64, addr: u64) -> Source {
        let Some(program) = self.watched_program(pid, time, addr) else {
            return self.mapping_of(pid, addr).map_or(Source::Watched, Source::Read);
        };
        let is_known = |p: &&Process| p.program == Some(program.number);
        let known = self.processes.get(&pid).filter(is_known);
        if let Some(mapping) = known.and_then(|p| maps::find(&p.mappings, addr)) {
            return Source::Read(*mapping);
        }
        if !program.runs {
            return Source::Watched;
        }
        let found = self.mapping_of(pid, addr);
        // It may have executed another program meanwhile.
        let read = self.processes.get(&pid).and_then(|p| p.program);
        found.filter(|_| read.is_none_or(|read| read == program.number)).map_or(Source::Watched, Source::Read)
    }

    fn place(&self, pid: u32, mapping: &Mapping, addr: u64) -> Option<Place> {
        Some(match mapping.backing {
            Backing::File(_) => Place::File(self.object(pid, mapping)?, mapping.file_offset(addr)),
            Backing::Zeros(_) => Place::Zeros(self.object(pid, mapping)?, mapping.file_offset(addr)),
            Backing::Vdso => Place::Vdso(addr - mapping.start),
            Backing::Anonymous => Place::Anonymous,
        })
    }

    fn object(&self, pid: u32, mapping: &Mapping) -> Option<FileId> {
        self.processes.get(&pid)?.objects.get(mapping.backing.file()? as usize).copied()
    }

    /// Resolves these addresses (pid, time, address) with one request per file. Later lookups
    /// of them need no request.
    pub fn prepare(&mut self, wanted: &[(u32, u64, u64)]) {
        let batch = self.batch;
        let stale = |p: &Process| p.checked != batch;
        let mut pids: Vec<u32> = wanted
            .iter()
            .map(|(pid, ..)| *pid)
            .filter(|pid| self.processes.get(pid).is_some_and(stale))
            .collect();
        pids.sort_unstable();
        pids.dedup();
        self.update_watcher();
        pids.retain(|pid| !self.is_program_current(*pid));
        self.revalidate(&pids);
        let mut offsets: HashMap<FileId, HashSet<u64>> = HashMap::new();
        let mut jit: HashMap<u32, Vec<u64>> = HashMap::new();
        for &(pid, time, addr) in wanted {
            match self.place_of(pid, time, addr) {
                Some(Place::Anonymous) => jit.entry(pid).or_default().push(addr),
                Some(Place::File(id, offset) | Place::Zeros(id, offset))
                    if self.objects.known(id, offset).is_none() =>
                {
                    offsets.entry(id).or_default().insert(offset);
                }
                _ => {}
            }
        }
        for (id, offsets) in offsets {
            let offsets: Vec<u64> = offsets.into_iter().collect();
            self.objects.resolve(id, &offsets, &mut self.reader);
        }
        for (pid, addrs) in jit {
            self.query_jit(pid, addrs);
        }
    }

    /// The name of an address of a process.
    pub fn name(&mut self, pid: u32, time: u64, addr: u64) -> Name {
        match self.place_of(pid, time, addr) {
            None => Name::unknown(addr),
            Some(Place::Vdso(offset)) => {
                let found = match addr {
                    0..END_OF_32_BIT => self.narrow_vdso_symbol(pid, offset),
                    _ => self.objects.vdso(offset, None, &mut self.reader),
                };
                named(addr, Some("[vdso]".into()), found)
            }
            Some(Place::Anonymous) => self.jit_name(pid, addr),
            Some(place @ (Place::File(id, offset) | Place::Zeros(id, offset))) => {
                if self.objects.known(id, offset).is_none() {
                    self.objects.resolve(id, &[offset], &mut self.reader);
                }
                let found = self.objects.known(id, offset).cloned().unwrap_or(Lookup::Unnamed(None));
                if matches!((&found, place), (Lookup::Unnamed(_), Place::Zeros(..))) {
                    return Name::unknown(addr);
                }
                Name { path: self.objects.path(id), ..named(addr, self.objects.name(id), found) }
            }
        }
    }

    /// The names of the addresses of a stack.
    pub fn names(&mut self, pid: u32, time: u64, addrs: &[u64]) -> Vec<Name> {
        self.prepare(&addrs.iter().map(|addr| (pid, time, *addr)).collect::<Vec<_>>());
        addrs.iter().map(|addr| self.name(pid, time, *addr)).collect()
    }

    /// Start of the function that contains an address, otherwise the address: the key of `ufunc()`
    /// and `usym()`.
    pub fn func_start(&mut self, pid: u32, time: u64, addr: u64) -> u64 {
        self.name(pid, time, addr).start()
    }

    /// Lowest mapping of the object that contains an address, otherwise the address: the key of
    /// `umod()`.
    pub fn module_start(&mut self, pid: u32, time: u64, addr: u64) -> u64 {
        let mapping = match self.source_of(pid, time, addr) {
            Source::Read(mapping) => mapping,
            Source::Watched => return self.watched_module_start(pid, time, addr),
        };
        if matches!(mapping.backing, Backing::Zeros(_)) && self.name(pid, time, addr).symbol.is_none() {
            return addr;
        }
        let object = self.object(pid, &mapping);
        let Some(process) = self.processes.get(&pid) else { return addr };
        let same = |m: &&Mapping| object.is_some() && self.object(pid, m) == object;
        process.mappings.iter().find(same).map_or(mapping.start, |m| m.start)
    }

    fn jit_name(&mut self, pid: u32, addr: u64) -> Name {
        let known = |processes: &HashMap<u32, Process>, batch| {
            let process = processes.get(&pid).filter(|p| p.jit_batch == batch)?;
            process.jit.get(&addr).cloned().filter(|found| matches!(found, Lookup::Symbol(..)))
        };
        let found = known(&self.processes, self.batch).or_else(|| {
            self.query_jit(pid, vec![addr]);
            known(&self.processes, self.batch)
        });
        let map = self.processes.get(&pid).and_then(|p| p.perf_map.as_ref());
        let module = map.filter(|_| found.is_some()).map(|map| map.name.clone());
        named(addr, module, found.unwrap_or(Lookup::Unnamed(None)))
    }

    /// Requests symbols of JIT code. They are valid in this batch.
    fn query_jit(&mut self, pid: u32, mut addrs: Vec<u64>) {
        let batch = self.batch;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if std::mem::replace(&mut process.jit_batch, batch) != batch {
            process.jit.clear();
        }
        addrs.retain(|addr| !process.jit.contains_key(addr));
        addrs.sort_unstable();
        addrs.dedup();
        let Some(Identity { start, .. }) = process.identity else { return };
        if failed_recently(process.jit_failed_at) {
            return;
        }
        for part in addrs.chunks(MAX_NUMBERS) {
            let request = Request::Jit { pid, start, addrs: part.to_vec() };
            let held = process.perf_map.as_ref().and_then(|map| map.handle.as_ref()).map(AsFd::as_fd);
            match self.reader.query(&request, held.as_slice()) {
                Ok((mut responses, _)) => {
                    if let Some((Response::PerfMap(pid), handle)) = responses.first_mut() {
                        process.perf_map = Some(PerfMap::of(*pid, handle.take()));
                    }
                    let found = object::symbols(responses).into_iter();
                    let all = found.map(Lookup::from).chain(std::iter::repeat(Lookup::Unnamed(None)));
                    process.jit.extend(part.iter().copied().zip(all));
                }
                Err(error) => {
                    if error.excludes_object() {
                        process.jit_failed_at = Some(Instant::now());
                    }
                    return report_failure(
                        &mut self.reader,
                        error,
                        &format!("the perf map of process {pid}"),
                    );
                }
            }
        }
    }
}

fn named(addr: u64, module: Option<Arc<str>>, found: Lookup) -> Name {
    let name = Name { module, ..Name::unknown(addr) };
    match found {
        Lookup::Symbol(symbol, offset) => Name { symbol: Some(symbol), offset, ..name },
        Lookup::Unnamed(in_file) => Name { in_file, ..name },
    }
}

/// The address of this process's own vdso.
pub fn own_vdso_base() -> Option<u64> {
    let map = maps::parse(&std::fs::read("/proc/self/maps").ok()?);
    map.mappings.into_iter().find(|m| m.backing == Backing::Vdso).map(|m| m.start)
}

#[cfg(test)]
mod tests;
