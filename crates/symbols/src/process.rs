//! Names of addresses in processes, running or exited.
//!
//! A process is identified by pid and *generation*. The program of a pid changes at `exec`, and an
//! address is only meaningful together with its program. Generation 0 is the program that runs now.
//! A tracer that records the generation with each stack passes that generation.
//!
//! The address map is read when a process is first seen: by [`Processes::note`], which the tracer
//! calls when a process starts, otherwise at the first lookup. It is read again only if no mapping
//! contains an address (a library was loaded). For generation 0 the identity is compared once per
//! batch, because the pid may have been reused, or the process may have executed another program.
//! The last map of an exited process is kept.
//!
//! This module does not read data of a process. All data that a process controls (its map, its
//! files, its perf map) is requested from the [reader](crate::reader), in as few requests as
//! possible: [`Processes::prepare`] takes all addresses of a batch. An object whose request failed
//! is not queried again for a minute.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{Interrupted, Reader};
use crate::maps::{self, Backing, Map, Mapping};
use crate::name::Name;
use crate::object::{self, Lookup, ObjectId, Objects, RETRY_AFTER, report_failure};
use crate::reader::Limits;
use crate::wire::{self, Identity, MAX_NUMBERS, Request, Response};

/// Maximum number of address maps. The least recently used one is dropped first.
const MAX_PROCESSES: usize = 4096;

/// Maximum number of mappings of all processes.
const MAX_MAPPINGS: usize = 1 << 20;

/// Maximum number of open perf maps.
const MAX_PERF_MAPS: usize = 128;

/// End of the address space of a 32-bit process.
const END_OF_32_BIT: u64 = 1 << 32;

#[derive(Debug, Default)]
struct Process {
    identity: Option<Identity>,
    mappings: Vec<Mapping>,
    /// The object of each file of the map.
    objects: Vec<ObjectId>,
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

/// The file in which a process lists its JIT code.
#[derive(Debug)]
struct PerfMap {
    /// Base name of the file, which is the module of its symbols.
    name: Arc<str>,
    handle: Option<OwnedFd>,
}

impl PerfMap {
    fn of(pid: u32, handle: Option<OwnedFd>) -> PerfMap {
        PerfMap { name: format!("perf-{pid}.map").into(), handle }
    }
}

fn failed_recently(since: Option<Instant>) -> bool {
    since.is_some_and(|at| at.elapsed() < RETRY_AFTER)
}

/// The reader's response about a process.
struct Snapshot {
    identity: Identity,
    mappings: Vec<Mapping>,
    objects: Vec<ObjectId>,
    perf_map: Option<PerfMap>,
}

/// Names of addresses in processes.
pub struct Processes {
    processes: HashMap<(u32, u64), Process>,
    objects: Objects,
    reader: Reader,
    mappings: usize,
    batch: u64,
}

impl Default for Processes {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Processes({} known)", self.processes.len())
    }
}

impl Processes {
    /// Reads nothing. The limits of the reader are two seconds per response and 256 MB.
    pub fn new() -> Processes {
        let limits = Limits { time: Duration::from_secs(2), memory: 256 << 20 };
        Processes {
            processes: HashMap::new(),
            objects: Objects::default(),
            reader: Reader::new(limits),
            mappings: 0,
            batch: 0,
        }
    }

    /// Sets the time limit of a response and the memory limit of the reader.
    pub fn set_limits(&mut self, time: Duration, memory: u64) {
        self.reader.set_limits(Limits { time, memory });
    }

    /// Sets the function that is polled during a wait. True ends the wait.
    pub fn set_interrupted(&mut self, interrupted: Option<Interrupted>) {
        self.reader.set_interrupted(interrupted);
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
    }

    /// Stores the address map of a process and holds its files, so that its addresses can be
    /// resolved after its exit. The caller repeats the call after the process loads a library or
    /// executes a program.
    pub fn note(&mut self, pid: u32, generation: u64) {
        let batch = self.batch;
        if let Some(snapshot) = self.observe(pid, generation) {
            self.store(pid, generation, snapshot);
        }
        if let Some(process) = self.processes.get_mut(&(pid, generation)) {
            process.checked = batch;
        }
    }

    /// Drops generation 0 of a pid, which another process may reuse. Other generations stay.
    pub fn forget(&mut self, pid: u32) {
        self.remove((pid, 0));
    }

    fn remove(&mut self, key: (u32, u64)) {
        if let Some(process) = self.processes.remove(&key) {
            self.mappings -= process.mappings.len();
        }
    }

    /// Requests identity, map and files of a running process from the reader.
    fn observe(&mut self, pid: u32, generation: u64) -> Option<Snapshot> {
        let known = self.processes.get(&(pid, generation));
        if known.is_some_and(|p| failed_recently(p.failed_at)) {
            return None;
        }
        let responses = match self.reader.query(&Request::Process(pid), &[]) {
            Ok((responses, _)) => responses,
            Err(error) => {
                report_failure(&mut self.reader, error, &format!("the address map of process {pid}"));
                if error.excludes_object() {
                    self.processes.entry((pid, generation)).or_default().failed_at = Some(Instant::now());
                }
                return None;
            }
        };
        let files = responses.iter().filter(|(a, _)| matches!(a, Response::File(_))).count();
        if self.objects.is_full(files) {
            self.objects.forget_all();
            self.processes.clear();
            self.mappings = 0;
        }
        let mut responses = responses.into_iter();
        let Some((Response::Process(identity, root), _)) = responses.next() else { return None };
        let mut map = Map::default();
        let (mut objects, mut perf_map) = (Vec::new(), None);
        for response in responses {
            match response {
                (Response::Root(key), Some(fd)) => self.objects.hold_root(key, fd),
                (Response::File(file), handle) => {
                    objects.push(self.objects.note(&file, root, handle));
                    map.files.push(file);
                }
                (Response::Mappings(more), _) => wire::add_mappings(&mut map, more).then_some(())?,
                (Response::PerfMap(pid), handle) => perf_map = Some(PerfMap::of(pid, handle)),
                _ => {}
            }
        }
        Some(Snapshot { identity, mappings: map.mappings, objects, perf_map })
    }

    fn store(&mut self, pid: u32, generation: u64, snapshot: Snapshot) {
        let Snapshot { identity, mappings, objects, perf_map } = snapshot;
        let key = (pid, generation);
        let before = self.processes.get(&key).map_or(0, |p| p.mappings.len());
        while (self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&key))
            || self.mappings + mappings.len() > MAX_MAPPINGS + before
        {
            let others = self.processes.iter().filter(|(k, _)| **k != key);
            let Some(oldest) = others.min_by_key(|(_, p)| p.used).map(|(k, _)| *k) else { break };
            self.remove(oldest);
        }
        let held = self.processes.values().filter(|p| p.perf_map.is_some()).count();
        let batch = self.batch;
        let process = self.processes.entry(key).or_default();
        if process.identity != Some(identity) {
            *process = Process::default();
        }
        process.identity = Some(identity);
        if perf_map.is_some() && (held < MAX_PERF_MAPS || process.perf_map.is_some()) {
            process.perf_map = perf_map;
        }
        self.mappings = self.mappings - before + mappings.len();
        (process.mappings, process.objects) = (mappings, objects);
        (process.read, process.used) = (batch, batch);
    }

    /// Reads the process if it is not known yet, or, for generation 0, if its identity changed.
    fn update(&mut self, pid: u32, generation: u64) {
        let batch = self.batch;
        match self.processes.get_mut(&(pid, generation)) {
            None => {
                // The process may have exited. Generation 0 may then have its map.
                self.note(pid, generation);
                if generation != 0 && !self.processes.contains_key(&(pid, generation)) {
                    self.copy_current(pid, generation);
                }
                // An entry without a map prevents another request in this batch.
                let process = self.processes.entry((pid, generation)).or_default();
                (process.checked, process.read, process.used) = (batch, batch, batch);
            }
            Some(process) => {
                process.used = batch;
                if generation == 0 && process.checked != batch {
                    self.revalidate(&[pid]);
                }
            }
        }
    }

    /// Copies the data of generation 0 to another generation.
    fn copy_current(&mut self, pid: u32, generation: u64) {
        let Some(p) = self.processes.get(&(pid, 0)) else { return };
        let Some(identity) = p.identity else { return };
        let perf_map = p.perf_map.as_ref().map(|map| {
            let handle = map.handle.as_ref().and_then(|fd| fd.try_clone().ok());
            PerfMap { name: map.name.clone(), handle }
        });
        let snapshot =
            Snapshot { identity, mappings: p.mappings.clone(), objects: p.objects.clone(), perf_map };
        self.store(pid, generation, snapshot);
    }

    /// Compares the stored identities of these pids with the current ones. Reads processes again
    /// that differ.
    fn revalidate(&mut self, pids: &[u32]) {
        let batch = self.batch;
        for part in pids.chunks(MAX_NUMBERS / 2) {
            for pid in part {
                if let Some(process) = self.processes.get_mut(&(*pid, 0)) {
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
                let known = self.processes.get(&(*pid, 0)).and_then(|p| p.identity);
                if now.is_some() && now != known {
                    self.note(*pid, 0);
                }
            }
        }
    }

    /// The mapping that contains an address. If there is none, the map is read again, once per
    /// batch.
    fn mapping_of(&mut self, pid: u32, generation: u64, addr: u64) -> Option<Mapping> {
        self.update(pid, generation);
        for again in [false, true] {
            let process = self.processes.get(&(pid, generation))?;
            if let Some(mapping) = maps::find(&process.mappings, addr) {
                return Some(*mapping);
            }
            if again || process.read == self.batch {
                return None;
            }
            let known = process.identity;
            // Only if the program is still the same. The map of a later program does not apply to
            // the address.
            match self.observe(pid, generation) {
                Some(now) if known.is_none_or(|k| k == now.identity) => self.store(pid, generation, now),
                // The process may have exited after generation 0 was read again.
                _ if generation != 0
                    && known.is_some()
                    && self.processes.get(&(pid, 0)).is_some_and(|p| p.identity == known) =>
                {
                    self.copy_current(pid, generation);
                }
                _ => {}
            }
            let batch = self.batch;
            self.processes.get_mut(&(pid, generation))?.read = batch;
        }
        None
    }

    fn object(&self, pid: u32, generation: u64, mapping: &Mapping) -> Option<ObjectId> {
        let Backing::File(number) = mapping.backing else { return None };
        self.processes.get(&(pid, generation))?.objects.get(number as usize).copied()
    }

    /// Resolves these addresses (pid, generation, address) with one request per file. Later lookups
    /// of them need no request.
    pub fn prepare(&mut self, wanted: &[(u32, u64, u64)]) {
        let batch = self.batch;
        let stale = |p: &Process| p.checked != batch;
        let mut pids: Vec<u32> = wanted
            .iter()
            .filter(|(pid, generation, _)| {
                *generation == 0 && self.processes.get(&(*pid, 0)).is_some_and(stale)
            })
            .map(|(pid, ..)| *pid)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        self.revalidate(&pids);
        let mut offsets: HashMap<ObjectId, HashSet<u64>> = HashMap::new();
        let mut jit: HashMap<(u32, u64), Vec<u64>> = HashMap::new();
        for &(pid, generation, addr) in wanted {
            let Some(mapping) = self.mapping_of(pid, generation, addr) else { continue };
            if mapping.backing == Backing::Anonymous {
                jit.entry((pid, generation)).or_default().push(addr);
            } else if let Some(id) = self.object(pid, generation, &mapping) {
                let offset = mapping.file_offset(addr);
                if self.objects.known(id, offset).is_none() {
                    offsets.entry(id).or_default().insert(offset);
                }
            }
        }
        for (id, offsets) in offsets {
            let offsets: Vec<u64> = offsets.into_iter().collect();
            self.objects.resolve(id, &offsets, &mut self.reader);
        }
        for ((pid, generation), addrs) in jit {
            self.query_jit(pid, generation, addrs);
        }
    }

    /// The name of an address of a process.
    pub fn name(&mut self, pid: u32, generation: u64, addr: u64) -> Name {
        let Some(mapping) = self.mapping_of(pid, generation, addr) else { return Name::unknown(addr) };
        match mapping.backing {
            Backing::Vdso => {
                let found = match addr {
                    0..END_OF_32_BIT => None,
                    _ => self.objects.vdso(addr - mapping.start, &mut self.reader),
                };
                named(addr, Some("[vdso]".into()), found)
            }
            Backing::Anonymous => self.jit_name(pid, generation, addr),
            Backing::File(_) => {
                let Some(id) = self.object(pid, generation, &mapping) else { return Name::unknown(addr) };
                let offset = mapping.file_offset(addr);
                if self.objects.known(id, offset).is_none() {
                    self.objects.resolve(id, &[offset], &mut self.reader);
                }
                let found = self.objects.known(id, offset).cloned().flatten();
                named(addr, self.objects.name(id), found)
            }
        }
    }

    /// The names of the addresses of a stack.
    pub fn names(&mut self, pid: u32, generation: u64, addrs: &[u64]) -> Vec<Name> {
        self.prepare(&addrs.iter().map(|addr| (pid, generation, *addr)).collect::<Vec<_>>());
        addrs.iter().map(|addr| self.name(pid, generation, *addr)).collect()
    }

    /// Start of the function that contains an address, otherwise the address: the key of `ufunc()`
    /// and `usym()`.
    pub fn func_start(&mut self, pid: u32, generation: u64, addr: u64) -> u64 {
        self.name(pid, generation, addr).start()
    }

    /// Lowest mapping of the object that contains an address, otherwise the address: the key of
    /// `umod()`.
    pub fn module_start(&mut self, pid: u32, generation: u64, addr: u64) -> u64 {
        let Some(mapping) = self.mapping_of(pid, generation, addr) else { return addr };
        let object = self.object(pid, generation, &mapping);
        let Some(process) = self.processes.get(&(pid, generation)) else { return addr };
        let same = |m: &&Mapping| object.is_some() && self.object(pid, generation, m) == object;
        process.mappings.iter().find(same).map_or(mapping.start, |m| m.start)
    }

    fn jit_name(&mut self, pid: u32, generation: u64, addr: u64) -> Name {
        let known = |processes: &HashMap<(u32, u64), Process>, batch| {
            let process = processes.get(&(pid, generation)).filter(|p| p.jit_batch == batch)?;
            process.jit.get(&addr).cloned()
        };
        let found = known(&self.processes, self.batch).unwrap_or_else(|| {
            self.query_jit(pid, generation, vec![addr]);
            known(&self.processes, self.batch).flatten()
        });
        let map = self.processes.get(&(pid, generation)).and_then(|p| p.perf_map.as_ref());
        let module = map.filter(|_| found.is_some()).map(|map| map.name.clone());
        named(addr, module, found)
    }

    /// Requests symbols of JIT code. They are valid in this batch.
    fn query_jit(&mut self, pid: u32, generation: u64, mut addrs: Vec<u64>) {
        let batch = self.batch;
        let Some(process) = self.processes.get_mut(&(pid, generation)) else { return };
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
                    let found = found.map(|f| f.map(|(delta, name)| (Arc::from(name), delta)));
                    let all = found.chain(std::iter::repeat(None));
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
    let (symbol, offset) = found.map_or((None, 0), |(name, offset)| (Some(name), offset));
    Name { addr, module, symbol, offset }
}

/// The address of this process's own vdso.
pub fn own_vdso_base() -> Option<u64> {
    let map = maps::parse(&std::fs::read("/proc/self/maps").ok()?);
    map.mappings.into_iter().find(|m| m.backing == Backing::Vdso).map(|m| m.start)
}

#[cfg(test)]
mod tests;
