//! Names of addresses in processes, running or exited.
//!
//! A process is known by pid and *generation*: what runs under a pid changes at `exec`, and an address only means
//! something together with the program that had it. Generation 0 means "what runs now"; a tracer that records the
//! generation with each stack passes it instead.
//!
//! The address map is read when a process is first seen, best by [`Processes::note`] from whoever watches processes,
//! else at the first address. Afterwards it is looked at again only when an address is in no mapping (a library was
//! loaded), and once a batch for generation 0 (the pid may have been given to another process, or have executed
//! another program). A process that is gone keeps the map it had.
//!
//! Nothing of a process is read here: all that it decides (its map, its files, what it says about itself) is asked of the
//! [reader](crate::reader), in as few questions as there can be: [`Processes::prepare`] takes all addresses of a batch. What
//! made a reader late is left alone for a minute.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{Interrupted, Reader};
use crate::maps::{self, Backing, Map, Mapping};
use crate::name::Name;
use crate::object::{self, BARRED, Found, ObjectId, Objects, blame};
use crate::reader::Limits;
use crate::wire::{self, Answer, Identity, MAX_NUMBERS, Question};

/// Address maps kept; the one not used for longest goes first.
const MAX_PROCESSES: usize = 4096;

/// Mappings kept, of all processes.
const MAX_MAPPINGS: usize = 1 << 20;

/// Perf maps held.
const MAX_PERF_MAPS: usize = 128;

/// Where a 32-bit process has all that it has.
const NARROW: u64 = 1 << 32;

#[derive(Debug, Default)]
struct Process {
    identity: Option<Identity>,
    mappings: Vec<Mapping>,
    /// Of each file of the map.
    objects: Vec<ObjectId>,
    perf_map: Option<PerfMap>,
    /// Names of code made at run time, as of one batch.
    made: HashMap<u64, Found>,
    made_in: u64,
    /// Batch in which it was last compared with the process.
    checked: u64,
    /// Batch in which its map was last read.
    read: u64,
    /// Batch of the last lookup.
    used: u64,
    /// When looking at it, or reading its perf map, made a reader late.
    barred: Option<Instant>,
    made_barred: Option<Instant>,
}

/// The file in which a process names the code it makes.
#[derive(Debug)]
struct PerfMap {
    /// Base name of the file, the module of its symbols.
    name: Arc<str>,
    handle: Option<OwnedFd>,
}

impl PerfMap {
    fn of(pid: u32, handle: Option<OwnedFd>) -> PerfMap {
        PerfMap { name: format!("perf-{pid}.map").into(), handle }
    }
}

fn is_barred(since: Option<Instant>) -> bool {
    since.is_some_and(|at| at.elapsed() < BARRED)
}

/// The reader's answer about a process.
struct Observed {
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
    /// Reads nothing. An answer may take two seconds, the reader 256 MB.
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

    /// How long an answer about a process or a file may take, and how much memory reading may.
    pub fn set_limits(&mut self, time: Duration, memory: u64) {
        self.reader.set_limits(Limits { time, memory });
    }

    /// Asked while an answer is waited for: true ends the wait.
    pub fn set_interrupted(&mut self, interrupted: Option<Interrupted>) {
        self.reader.set_interrupted(interrupted);
    }

    /// Messages for the user about failures, since the last call.
    pub fn take_messages(&mut self) -> Vec<String> {
        self.reader.take_messages()
    }

    /// Print names as the linker has them (`_ZN…`), instead of demangled.
    pub fn set_raw_names(&mut self, raw: bool) {
        self.objects.set_raw_names(raw);
    }

    /// A new batch of addresses begins (a buffer is drained): what was read before may be out of date.
    pub fn begin_batch(&mut self) {
        self.batch += 1;
    }

    /// A process was seen: stores its address map and holds its files, so that its addresses can be resolved after its exit.
    /// To be called again after it loads a library or executes a program.
    pub fn note(&mut self, pid: u32, generation: u64) {
        let batch = self.batch;
        if let Some(observed) = self.observe(pid, generation) {
            self.keep(pid, generation, observed);
        }
        if let Some(process) = self.processes.get_mut(&(pid, generation)) {
            process.checked = batch;
        }
    }

    /// A pid is free for another process; answers for known generations stay.
    pub fn forget(&mut self, pid: u32) {
        self.remove((pid, 0));
    }

    fn remove(&mut self, key: (u32, u64)) {
        if let Some(process) = self.processes.remove(&key) {
            self.mappings -= process.mappings.len();
        }
    }

    /// Asks the reader for identity, map and files of a living process.
    fn observe(&mut self, pid: u32, generation: u64) -> Option<Observed> {
        let known = self.processes.get(&(pid, generation));
        if known.is_some_and(|p| is_barred(p.barred)) {
            return None;
        }
        let answers = match self.reader.ask(&Question::Process(pid), &[]) {
            Ok((answers, _)) => answers,
            Err(trouble) => {
                blame(&mut self.reader, trouble, &format!("the address map of process {pid}"));
                if trouble.is_its_own() {
                    self.processes.entry((pid, generation)).or_default().barred = Some(Instant::now());
                }
                return None;
            }
        };
        let files = answers.iter().filter(|(a, _)| matches!(a, Answer::File(_))).count();
        if self.objects.is_full(files) {
            self.objects.forget_all();
            self.processes.clear();
            self.mappings = 0;
        }
        let mut answers = answers.into_iter();
        let Some((Answer::Process(identity, root), _)) = answers.next() else { return None };
        let mut map = Map::default();
        let (mut objects, mut perf_map) = (Vec::new(), None);
        for answer in answers {
            match answer {
                (Answer::Root(key), Some(fd)) => self.objects.hold_root(key, fd),
                (Answer::File(file), handle) => {
                    objects.push(self.objects.note(&file, root, handle));
                    map.files.push(file);
                }
                (Answer::Mappings(more), _) => wire::add_mappings(&mut map, more).then_some(())?,
                (Answer::PerfMap(pid), handle) => perf_map = Some(PerfMap::of(pid, handle)),
                _ => {}
            }
        }
        Some(Observed { identity, mappings: map.mappings, objects, perf_map })
    }

    fn keep(&mut self, pid: u32, generation: u64, observed: Observed) {
        let Observed { identity, mappings, objects, perf_map } = observed;
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

    /// Sees to it that the process is known as far as it can be.
    fn look(&mut self, pid: u32, generation: u64) {
        let batch = self.batch;
        match self.processes.get_mut(&(pid, generation)) {
            None => {
                // What was noted without a generation is better than nothing, as the process may be gone.
                self.note(pid, generation);
                if generation != 0 && !self.processes.contains_key(&(pid, generation)) {
                    self.inherit(pid, generation);
                }
                // Also when there is nothing to know: not to be asked again in this batch.
                let process = self.processes.entry((pid, generation)).or_default();
                (process.checked, process.read, process.used) = (batch, batch, batch);
            }
            Some(process) => {
                process.used = batch;
                if generation == 0 && process.checked != batch {
                    self.check(&[pid]);
                }
            }
        }
    }

    /// Takes what is known of a process without its generation.
    fn inherit(&mut self, pid: u32, generation: u64) {
        let Some(p) = self.processes.get(&(pid, 0)) else { return };
        let Some(identity) = p.identity else { return };
        let perf_map = p.perf_map.as_ref().map(|map| {
            let handle = map.handle.as_ref().and_then(|fd| fd.try_clone().ok());
            PerfMap { name: map.name.clone(), handle }
        });
        let observed =
            Observed { identity, mappings: p.mappings.clone(), objects: p.objects.clone(), perf_map };
        self.keep(pid, generation, observed);
    }

    /// Compares what is known of these pids with what runs under them now.
    fn check(&mut self, pids: &[u32]) {
        let batch = self.batch;
        for part in pids.chunks(MAX_NUMBERS / 2) {
            for pid in part {
                if let Some(process) = self.processes.get_mut(&(*pid, 0)) {
                    process.checked = batch;
                }
            }
            let answers = match self.reader.ask(&Question::Identities(part.to_vec()), &[]) {
                Ok((answers, _)) => answers,
                Err(trouble) => return blame(&mut self.reader, trouble, "what runs"),
            };
            let list = |(answer, _)| match answer {
                Answer::Identities(list) => list,
                _ => Vec::new(),
            };
            let now: Vec<Option<Identity>> = answers.into_iter().flat_map(list).collect();
            for (pid, now) in part.iter().zip(now) {
                let known = self.processes.get(&(*pid, 0)).and_then(|p| p.identity);
                if now.is_some() && now != known {
                    self.note(*pid, 0);
                }
            }
        }
    }

    /// The mapping of an address; the map is read again, once a batch, when there is none.
    fn place(&mut self, pid: u32, generation: u64, addr: u64) -> Option<Mapping> {
        self.look(pid, generation);
        for again in [false, true] {
            let process = self.processes.get(&(pid, generation))?;
            if let Some(mapping) = maps::find(&process.mappings, addr) {
                return Some(*mapping);
            }
            if again || process.read == self.batch {
                return None;
            }
            let known = process.identity;
            // Only if it is still the same program: a later one says nothing about an address of an earlier.
            match self.observe(pid, generation) {
                Some(now) if known.is_none_or(|k| k == now.identity) => self.keep(pid, generation, now),
                // It may have been noted since, under no generation, and be gone.
                _ if generation != 0
                    && known.is_some()
                    && self.processes.get(&(pid, 0)).is_some_and(|p| p.identity == known) =>
                {
                    self.inherit(pid, generation);
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

    /// Reads what the names of these addresses (pid, generation, address) need, a file once for all of them. Names are then
    /// had without asking.
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
        self.check(&pids);
        let mut offsets: HashMap<ObjectId, HashSet<u64>> = HashMap::new();
        let mut made: HashMap<(u32, u64), Vec<u64>> = HashMap::new();
        for &(pid, generation, addr) in wanted {
            let Some(mapping) = self.place(pid, generation, addr) else { continue };
            if mapping.backing == Backing::Anonymous {
                made.entry((pid, generation)).or_default().push(addr);
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
        for ((pid, generation), addrs) in made {
            self.ask_made(pid, generation, addrs);
        }
    }

    /// What an address of a process is called.
    pub fn name(&mut self, pid: u32, generation: u64, addr: u64) -> Name {
        let Some(mapping) = self.place(pid, generation, addr) else { return Name::unknown(addr) };
        match mapping.backing {
            Backing::Vdso => {
                let found = match addr {
                    0..NARROW => None,
                    _ => self.objects.vdso(addr - mapping.start, &mut self.reader),
                };
                named(addr, Some("[vdso]".into()), found)
            }
            Backing::Anonymous => self.made(pid, generation, addr),
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

    /// What the addresses of a stack are called.
    pub fn names(&mut self, pid: u32, generation: u64, addrs: &[u64]) -> Vec<Name> {
        self.prepare(&addrs.iter().map(|addr| (pid, generation, *addr)).collect::<Vec<_>>());
        addrs.iter().map(|addr| self.name(pid, generation, *addr)).collect()
    }

    /// Start of the function that an address is in, else the address: what `ufunc()` and `usym()` aggregate by.
    pub fn func_start(&mut self, pid: u32, generation: u64, addr: u64) -> u64 {
        self.name(pid, generation, addr).start()
    }

    /// Lowest mapping of the object that an address is in, else the address: what `umod()` aggregates by.
    pub fn module_start(&mut self, pid: u32, generation: u64, addr: u64) -> u64 {
        let Some(mapping) = self.place(pid, generation, addr) else { return addr };
        let object = self.object(pid, generation, &mapping);
        let Some(process) = self.processes.get(&(pid, generation)) else { return addr };
        let same = |m: &&Mapping| object.is_some() && self.object(pid, generation, m) == object;
        process.mappings.iter().find(same).map_or(mapping.start, |m| m.start)
    }

    fn made(&mut self, pid: u32, generation: u64, addr: u64) -> Name {
        let known = |processes: &HashMap<(u32, u64), Process>, batch| {
            let process = processes.get(&(pid, generation)).filter(|p| p.made_in == batch)?;
            process.made.get(&addr).cloned()
        };
        let found = known(&self.processes, self.batch).unwrap_or_else(|| {
            self.ask_made(pid, generation, vec![addr]);
            known(&self.processes, self.batch).flatten()
        });
        let map = self.processes.get(&(pid, generation)).and_then(|p| p.perf_map.as_ref());
        let module = map.filter(|_| found.is_some()).map(|map| map.name.clone());
        named(addr, module, found)
    }

    /// Asks for names of code made at run time; they hold for this batch.
    fn ask_made(&mut self, pid: u32, generation: u64, mut addrs: Vec<u64>) {
        let batch = self.batch;
        let Some(process) = self.processes.get_mut(&(pid, generation)) else { return };
        if std::mem::replace(&mut process.made_in, batch) != batch {
            process.made.clear();
        }
        addrs.retain(|addr| !process.made.contains_key(addr));
        addrs.sort_unstable();
        addrs.dedup();
        let Some(Identity { start, .. }) = process.identity else { return };
        if is_barred(process.made_barred) {
            return;
        }
        for part in addrs.chunks(MAX_NUMBERS) {
            let question = Question::Made { pid, start, addrs: part.to_vec() };
            let held = process.perf_map.as_ref().and_then(|map| map.handle.as_ref()).map(AsFd::as_fd);
            match self.reader.ask(&question, held.as_slice()) {
                Ok((mut answers, _)) => {
                    if let Some((Answer::PerfMap(pid), handle)) = answers.first_mut() {
                        process.perf_map = Some(PerfMap::of(*pid, handle.take()));
                    }
                    let found = object::symbols(answers).into_iter();
                    let found = found.map(|f| f.map(|(delta, name)| (Arc::from(name), delta)));
                    let all = found.chain(std::iter::repeat(None));
                    process.made.extend(part.iter().copied().zip(all));
                }
                Err(trouble) => {
                    if trouble.is_its_own() {
                        process.made_barred = Some(Instant::now());
                    }
                    return blame(&mut self.reader, trouble, &format!("the perf map of process {pid}"));
                }
            }
        }
    }
}

fn named(addr: u64, module: Option<Arc<str>>, found: Found) -> Name {
    let (symbol, offset) = found.map_or((None, 0), |(name, offset)| (Some(name), offset));
    Name { addr, module, symbol, offset }
}

/// Where our own vdso lies.
pub fn own_vdso_base() -> Option<u64> {
    let map = maps::parse(&std::fs::read("/proc/self/maps").ok()?);
    map.mappings.into_iter().find(|m| m.backing == Backing::Vdso).map(|m| m.start)
}

#[cfg(test)]
mod tests;
