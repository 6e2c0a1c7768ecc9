//! Programs are asked of a capture.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use capture::{Content, Error as FileError, Firing as Stored, Head, Item, Place, Reader, Word};
use dif::ir::{Space, StrBuiltin};
use dif::subr::PathOf;
use events::Host;
use plane::builtin::{Builtin, IntBuiltin};
use providers::Role;
use system::{LARGEST_RECORD, RecordError, System};

use super::{probes, role};
use crate::compile::Program;
use crate::engine::interpreter::{Captured, Firing, Interpreter, Memory, Missing};

/// Why a capture cannot be asked.
#[derive(Debug)]
pub enum ReplayError {
    /// The file is no capture, or is damaged.
    File(FileError),
    /// Its machine cannot be read.
    Machine(RecordError),
    /// The program asks what no replay does.
    Program(String),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::File(e) => e.fmt(f),
            ReplayError::Machine(e) => e.fmt(f),
            ReplayError::Program(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ReplayError {}

/// What was found while the firings were read.
#[derive(Debug, Default)]
struct Found {
    damaged: u64,
    losses: BTreeMap<String, u64>,
    /// The file was read to where it stops.
    exhausted: bool,
    /// There it has its end.
    ended: bool,
    failed: Option<String>,
    fired: u64,
}

/// A capture that a program is asked of.
pub struct Replay {
    reader: Reader<Box<dyn Read + Send>>,
    system: System,
    found: Arc<Mutex<Found>>,
    missing: Arc<Missing>,
}

/// What is left of a replay when its firings are with a session.
pub struct Messages {
    found: Arc<Mutex<Found>>,
    missing: Arc<Missing>,
}

impl Replay {
    /// Reads what was captured, and where.
    pub fn open(input: Box<dyn Read + Send>) -> Result<Replay, ReplayError> {
        let reader = Reader::open(input, LARGEST_RECORD).map_err(ReplayError::File)?;
        let system = System::recorded(reader.machine()).map_err(ReplayError::Machine)?;
        Ok(Replay { reader, system, found: Arc::default(), missing: Arc::default() })
    }

    /// What was captured.
    pub fn head(&self) -> &Head {
        self.reader.head()
    }

    /// The machine, for which programs are compiled.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The firings, for [`Session::interpret`](crate::Session::interpret) with a program that was
    /// compiled for [`Replay::system`]; what is to be said before; and what is to be said at the
    /// end.
    pub fn interpreter(
        mut self,
        program: &Program,
    ) -> Result<(Interpreter, Vec<String>, Messages), ReplayError> {
        let notes = asks(program, self.head()).map_err(ReplayError::Program)?;
        let head = self.head().clone();
        let roles: Vec<Role> = head.probes.iter().map(|(_, name)| role(program, name)).collect();
        let end = Arc::new(Mutex::new(None));
        let messages = Messages { found: self.found.clone(), missing: self.missing.clone() };
        let (time, walltime) = head.clock;
        let mut tracer = Firing { time, walltime, ..Firing::default() };
        // BEGIN fires before the others.
        let mut first = self.reader.next_item().map_err(ReplayError::File)?;
        if let Some(Item::Firing(stored)) = &first
            && roles.get(stored.probe as usize) == Some(&Role::Begin)
        {
            tracer = firing(stored, &head);
            first = None;
        }
        let (missing, cpus) = (self.missing.clone(), head.cpus);
        let host = Host::new(head.host.clone(), head.release.clone(), head.machine.clone(), cpus);
        let firings = Firings { replay: self, head, roles, first, end: end.clone() };
        let interpreter = Interpreter::new(firings)
            .with_tracer(tracer)
            .with_cpus(cpus)
            .with_host(host)
            .with_end(end)
            .with_missing(missing);
        Ok((interpreter, notes, messages))
    }

    /// Counts the firings of each probe, in the order of the file.
    pub fn counts(mut self) -> Result<(Head, Vec<u64>, Messages), ReplayError> {
        let mut counts = vec![0u64; self.head().probes.len()];
        while let Some(item) = self.next() {
            if let Some(count) = counts.get_mut(item.probe as usize) {
                *count += 1;
            }
        }
        let head = self.head().clone();
        Ok((head, counts, Messages { found: self.found, missing: self.missing }))
    }

    /// The next firing; notes what else the file says.
    fn next(&mut self) -> Option<Stored> {
        loop {
            let item = match self.reader.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => {
                    self.with(|found| found.exhausted = true);
                    return None;
                }
                Err(e) => {
                    self.with(|found| found.failed = Some(e.to_string()));
                    return None;
                }
            };
            if let Some(firing) = self.noted(item) {
                return Some(firing);
            }
        }
    }

    fn noted(&self, item: Item) -> Option<Stored> {
        self.with(|found| match item {
            Item::Firing(firing) => {
                found.fired += 1;
                Some(firing)
            }
            Item::Loss(loss) => {
                let count = found.losses.entry(loss.what).or_default();
                *count = count.saturating_add(loss.count);
                None
            }
            Item::Damage(bytes) => {
                found.damaged = found.damaged.saturating_add(bytes);
                None
            }
            Item::End(_) => {
                found.ended = true;
                None
            }
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Found) -> T) -> T {
        change(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Messages {
    /// What is missing in the capture, and what the program read that is not in it.
    pub fn lines(&self) -> Vec<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for (what, count) in &found.losses {
            all.push(format!("the capture lacks {count} {what}"));
        }
        if found.damaged > 0 {
            all.push(format!("{} bytes of the capture are damaged and were skipped", found.damaged));
        }
        if let Some(why) = &found.failed {
            all.push(format!("the capture could not be read to its end: {why}"));
        } else if found.exhausted && !found.ended {
            all.push("the capture has no end: it was cut short".into());
        }
        all.extend(self.missing.messages());
        all
    }

    /// Firings that were read.
    pub fn fired(&self) -> u64 {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).fired
    }
}

/// An error if a clause has no probe that was captured, or what no replay does; else what is to be
/// said.
fn asks(program: &Program, head: &Head) -> Result<Vec<String>, String> {
    if program.is_destructive() {
        return Err("a replay performs no destructive actions: leave them out".into());
    }
    let captured: HashSet<&str> = head.probes.iter().map(|(_, name)| name.as_str()).collect();
    let is_there = |name: &str| captured.contains(name);
    let own = |name: &str| role(program, name) != Role::Probe;
    for clause in &program.checked.clauses {
        let names: Vec<String> = clause.probes.iter().map(|probe| probe.desc.to_string()).collect();
        let mut names = names.iter().filter(|name| !own(name)).peekable();
        let Some(first) = names.peek().map(|name| (*name).clone()) else { continue };
        if !names.any(|name| is_there(name)) {
            return Err(format!("{first} is not in the capture: -l --replay lists the probes that are"));
        }
    }
    let all: Vec<String> = probes(program).iter().map(|probe| probe.desc.to_string()).collect();
    let lacks = all.iter().filter(|name| !own(name) && !is_there(name)).collect::<BTreeSet<_>>();
    Ok(lacks
        .first()
        .map(|first| format!("{} of {} probes are not in the capture: {first} …", lacks.len(), all.len()))
        .into_iter()
        .collect())
}

/// The firings of a capture.
struct Firings {
    replay: Replay,
    head: Head,
    roles: Vec<Role>,
    first: Option<Item>,
    end: Arc<Mutex<Option<Firing>>>,
}

impl Iterator for Firings {
    type Item = Firing;

    fn next(&mut self) -> Option<Firing> {
        loop {
            let first = self.first.take().and_then(|item| self.replay.noted(item));
            let stored = first.or_else(|| self.replay.next())?;
            let fired = firing(&stored, &self.head);
            match self.roles.get(stored.probe as usize) {
                Some(Role::Probe) => return Some(fired),
                Some(Role::End) => {
                    *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(fired);
                }
                _ => {}
            }
        }
    }
}

/// A firing as the interpreter executes it.
fn firing(stored: &Stored, head: &Head) -> Firing {
    let probe = head.probes.get(stored.probe as usize).map(|(_, name)| name.clone()).unwrap_or_default();
    let mut firing = Firing { time: stored.time, cpu: stored.cpu, ..Firing::of(probe) };
    let mut known = Captured::default();
    for (word, value) in &stored.words {
        let value = *value;
        let builtin = match *word {
            Word::Pid => {
                firing.pid = value as i32;
                IntBuiltin::Pid
            }
            Word::Ppid => {
                firing.ancestors = vec![value as i32];
                IntBuiltin::Ppid
            }
            Word::Tid => {
                firing.tid = value as i32;
                IntBuiltin::Tid
            }
            Word::Uid => {
                firing.uid = value as u32;
                IntBuiltin::Uid
            }
            Word::Gid => {
                firing.gid = value as u32;
                IntBuiltin::Gid
            }
            Word::Wall => {
                firing.walltime = value;
                IntBuiltin::Walltimestamp
            }
            Word::CpuTime => {
                firing.cputime = value;
                IntBuiltin::Vtimestamp
            }
            Word::Errno => {
                firing.errno = value as i32;
                IntBuiltin::Errno
            }
            Word::Level => {
                firing.level = value as u8;
                IntBuiltin::Ipl
            }
            Word::UserThread => {
                firing.kernel_thread = value == 0;
                IntBuiltin::UserThread
            }
            Word::CurThread => {
                firing.curthread = value;
                IntBuiltin::CurThread
            }
            Word::Arg(n) => {
                put(&mut firing.args, n, value);
                IntBuiltin::Arg(n)
            }
            Word::Register(n) => {
                put(&mut firing.registers, n, value);
                IntBuiltin::Ureg(n)
            }
        };
        known.builtins.push(Builtin::Int(builtin));
    }
    if let Some(name) = &stored.execname {
        firing.execname = String::from_utf8_lossy(name).into_owned();
        known.builtins.push(Builtin::Str(StrBuiltin::Execname));
    }
    let mut memory = Memory::new();
    for region in &stored.memory {
        let (at, bytes) = (
            region.address,
            match &region.content {
                Content::Bytes(bytes) => Some(bytes.clone()),
                Content::Unreadable => None,
            },
        );
        let path = match region.place {
            Place::Kernel | Place::User => {
                let space = if region.place == Place::User { Space::User } else { Space::Kernel };
                memory = match bytes {
                    Some(bytes) if space == Space::User => memory.user(at, bytes),
                    Some(bytes) => memory.kernel(at, bytes),
                    None => {
                        known.unreadable.push((space, at));
                        memory
                    }
                };
                continue;
            }
            Place::Ancestor => {
                known.ancestors.push((at as i32, bytes.is_some_and(|bytes| bytes.first() == Some(&1))));
                continue;
            }
            Place::Path => PathOf::File,
            Place::FullPath => PathOf::Full,
            Place::MountPath => PathOf::Mount,
            Place::DentryPath => PathOf::Dentry,
        };
        known.paths.push((path, at, bytes));
    }
    memory.captured = Some(known);
    firing.memory = Arc::new(memory);
    firing
}

/// Sets an element of a list.
fn put(all: &mut Vec<u64>, at: u8, value: u64) {
    let at = usize::from(at);
    if all.len() <= at {
        all.resize(at + 1, 0);
    }
    if let Some(place) = all.get_mut(at) {
        *place = value;
    }
}
