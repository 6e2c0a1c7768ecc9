//! Programs are asked of a capture.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::io::Read;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capture::{Error as FileError, Firing as Stored, Head, Item, Reader, Snapshot};
use diagnostics::control;
use dif::ir::StrBuiltin;
use events::Host;
use plane::builtin::{Builtin, IntBuiltin};
use providers::{Role, Timing};
use system::{LARGEST_RECORD, RecordError, System};

use super::restore::{Restored, builtin};
use super::{instrument, names, probes, role};
use crate::compile::Program;
use crate::engine::interpreter::{Captured, CapturedNames, Ending, Firing, Interpreter, Memory, Missing};
use crate::options::{Options, nanoseconds};

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
    /// Times of the first and the last firing.
    times: Option<(u64, u64)>,
    /// The file is a snapshot.
    snapshot: Option<Snapshot>,
}

/// The most kinds of losses that are told apart.
const LOSSES: usize = 16;

/// The most variables that are listed.
const LISTED: usize = 20;

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
    /// compiled for [`Replay::system`], from `from` to `to` of its options; what is to be said
    /// before; and what is to be said at the end.
    pub fn interpreter(
        mut self,
        program: &Program,
        options: &Options,
    ) -> Result<(Interpreter, Vec<String>, Messages), ReplayError> {
        let (notes, ticks) = asks(program, self.head()).map_err(ReplayError::Program)?;
        let head = self.head().clone();
        let roles: Vec<Role> = head.probes.iter().map(|(_, name)| role(program, name)).collect();
        let asked: HashSet<String> = probes(program).iter().map(|probe| probe.desc.to_string()).collect();
        let enabled = head.probes.iter().map(|(_, name)| asked.contains(name)).collect();
        let end = Arc::new(Ending::default());
        let messages = Messages { found: self.found.clone(), missing: self.missing.clone() };
        let (time, walltime) = head.clock;
        let names = CapturedNames::default();
        let mut tracer = Firing { time, walltime, ..Firing::default() };
        let mut restored = Restored::default();
        // BEGIN fires before the others.
        let mut first = self.reader.next_item().map_err(ReplayError::File)?;
        if let Some(Item::Firing(stored)) = &first
            && roles.get(stored.probe as usize) == Some(&Role::Begin)
        {
            names.learn(names::of_firing(stored));
            tracer = restored.firing(stored.clone(), &head);
            first = None;
        }
        let (from, to) = cut(options, time).map_err(ReplayError::Program)?;
        // At the cut the process of BEGIN is the same.
        let at = |time: u64| {
            let passed = time.saturating_sub(tracer.time);
            let walltime = if tracer.walltime == 0 { 0 } else { tracer.walltime.saturating_add(passed) };
            Firing { time, walltime, ..tracer.clone() }
        };
        let cut_end = (to < u64::MAX).then(|| at(to));
        let tracer = at(from.max(tracer.time));
        let (missing, cpus) = (self.missing.clone(), head.cpus);
        let host = Host::new(head.host.clone(), head.release.clone(), head.machine.clone(), cpus);
        let (range, end_of, is_over) = ((from, to), end.clone(), false);
        let names_of = names.clone();
        let captured = Cut {
            replay: self,
            head,
            roles,
            enabled,
            restored,
            first,
            last: None,
            range,
            names: names_of,
            end: end_of,
            cut_end,
            is_over,
        };
        let firings = Ticking::new(captured, ticks, (tracer.time, tracer.walltime));
        let interpreter = Interpreter::new(firings)
            .with_tracer(tracer)
            .with_cpus(cpus)
            .with_host(host)
            .with_end(end)
            .with_names(names)
            .with_missing(missing);
        Ok((interpreter, notes, messages))
    }

    /// What a replay of a program would say before it runs, and what of its built-in variables is
    /// in no firing of its probes: the file is read to its end.
    pub fn preview(mut self, program: &Program) -> Result<Vec<String>, ReplayError> {
        let (mut notes, _) = asks(program, self.head()).map_err(ReplayError::Program)?;
        let mut known: Vec<Option<BTreeSet<Builtin>>> = vec![None; self.head().probes.len()];
        while let Some(stored) = self.next() {
            let Some(known) = known.get_mut(stored.probe as usize) else { continue };
            let known = known.get_or_insert_default();
            known.extend(stored.words.iter().map(|(word, _)| Builtin::Int(builtin(*word))));
            known.extend(stored.execname.iter().map(|_| Builtin::Str(StrBuiltin::Execname)));
        }
        let of_name: HashMap<&str, &BTreeSet<Builtin>> = self
            .head()
            .probes
            .iter()
            .zip(&known)
            .filter_map(|((_, name), known)| Some((name.as_str(), known.as_ref()?)))
            .collect();
        let (mut read, mut lacks) = (BTreeSet::new(), BTreeMap::new());
        for (checked, clause) in program.checked.clauses.iter().zip(&program.module.clauses) {
            for name in checked.probes.iter().map(|probe| probe.desc.to_string()) {
                let Some(known) = of_name.get(name.as_str()) else { continue };
                for asked in instrument::captured(&clause.func) {
                    read.insert(asked);
                    if !known.contains(&asked) {
                        lacks.entry(asked).or_insert_with(|| name.clone());
                    }
                }
            }
        }
        if !lacks.is_empty() {
            let shown =
                |(asked, name): (&Builtin, &String)| format!("{asked} in {}", control::name_text(name));
            notes.push(format!(
                "{} of {} variables that the program reads are not in the capture: {}",
                lacks.len(),
                read.len(),
                lacks.iter().take(LISTED).map(shown).collect::<Vec<_>>().join(", ")
            ));
        }
        notes.extend(Messages { found: self.found, missing: self.missing }.lines());
        Ok(notes)
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
                let first = found.times.map_or(firing.time, |(first, _)| first.min(firing.time));
                found.times = Some((first, found.times.map_or(0, |(_, last)| last).max(firing.time)));
                Some(firing)
            }
            Item::Loss(loss) => {
                // The words of a file are no lines of messages, and of few kinds.
                let mut what = control::name_text(&loss.what).into_owned();
                if !found.losses.contains_key(&what) && found.losses.len() >= LOSSES {
                    what = "things of other kinds".into();
                }
                let count = found.losses.entry(what).or_default();
                *count = count.saturating_add(loss.count);
                None
            }
            Item::Damage(bytes) => {
                found.damaged = found.damaged.saturating_add(bytes);
                None
            }
            Item::Snapshot(snapshot) => {
                found.snapshot = Some(snapshot);
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

    /// The time that the capture is about, in nanoseconds: of a snapshot all of it, else that from
    /// the first to the last firing that was read.
    pub fn span(&self) -> u64 {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, until) = match &found.snapshot {
            Some(snapshot) => (snapshot.from, snapshot.until),
            None => found.times.unwrap_or_default(),
        };
        until.saturating_sub(from)
    }

    /// Why the capture was written, if it is a snapshot.
    pub fn reason(&self) -> Option<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.snapshot.as_ref().map(|snapshot| String::from_utf8_lossy(&snapshot.reason).into_owned())
    }

    /// Firings that were read.
    pub fn fired(&self) -> u64 {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).fired
    }
}

/// The times at which a part of a capture begins and ends that began at this time. `Err`: it ends
/// before it begins.
fn cut(options: &Options, begun: u64) -> Result<(u64, u64), String> {
    let after = |passed: Duration| begun.saturating_add(nanoseconds(passed));
    let (from, to) = (options.from.map_or(0, after), options.to.map_or(u64::MAX, after));
    if to < from {
        return Err("option to: it is before the time of from".into());
    }
    Ok((from, to))
}

/// Probes of clocks with their intervals.
type Clocks = Vec<(String, u64)>;

/// An error if a clause has no probe that was captured, or what no replay does; else what is to be
/// said, and the clocks that fire in captured time, with their intervals.
fn asks(program: &Program, head: &Head) -> Result<(Vec<String>, Clocks), String> {
    if program.is_destructive() {
        return Err("a replay performs no destructive actions: leave them out".into());
    }
    let captured: HashSet<&str> = head.probes.iter().map(|(_, name)| name.as_str()).collect();
    // Those that were not captured, with their clocks, and how many there are in all.
    let (mut all, mut of): (BTreeMap<String, Option<Timing>>, usize) = (BTreeMap::new(), 0);
    for probe in probes(program).iter().filter(|probe| program.registry.role(&probe.desc) == Role::Probe) {
        of += 1;
        let name = probe.desc.to_string();
        if !captured.contains(name.as_str()) {
            all.insert(name, program.registry.timing(&probe.desc));
        }
    }
    for clause in &program.checked.clauses {
        let names: Vec<String> = clause.probes.iter().map(|probe| probe.desc.to_string()).collect();
        let lacks =
            |name: &String| all.get(name).is_some_and(|timing| !matches!(timing, Some(Timing::Tick(_))));
        let Some(first) = names.first().filter(|_| names.iter().all(lacks)) else { continue };
        let shown = control::name_text(first);
        return Err(match all.get(first) {
            Some(Some(Timing::EveryCpu)) => format!(
                "{shown} is not in the capture, and what runs on each CPU is not known then: a tick fires in captured time"
            ),
            _ => format!("{shown} is not in the capture: -l --replay lists the probes that are"),
        });
    }
    let ticks = all.iter().filter_map(|(name, timing)| match timing {
        Some(Timing::Tick(interval)) => Some((name.clone(), (*interval).max(1))),
        _ => None,
    });
    let ticks: Vec<_> = ticks.collect();
    let mut lacks = all.iter().filter(|(_, timing)| timing.is_none()).map(|(name, _)| name);
    let count = lacks.clone().count();
    let of = of - ticks.len();
    let note = lacks.next().map(|first| {
        format!("{count} of {of} probes are not in the capture: {} …", control::name_text(first))
    });
    Ok((note.into_iter().collect(), ticks))
}

/// The firings of a part of a capture.
struct Cut {
    replay: Replay,
    head: Head,
    roles: Vec<Role>,
    /// Whether the program has enabled each probe.
    enabled: Vec<bool>,
    restored: Restored,
    first: Option<Item>,
    /// The last firing, if nothing asks for it: time passes until then.
    last: Option<Stored>,
    /// The times of the first and the last firing.
    range: (u64, u64),
    names: CapturedNames,
    end: Arc<Ending>,
    /// The firing of END if the capture goes on behind this part.
    cut_end: Option<Firing>,
    is_over: bool,
}

impl Iterator for Cut {
    type Item = Firing;

    fn next(&mut self) -> Option<Firing> {
        loop {
            if self.is_over {
                return None;
            }
            let first = self.first.take().and_then(|item| self.replay.noted(item));
            let Some(stored) = first.or_else(|| self.replay.next()) else {
                return self.last.take().map(|last| self.restored.firing(last, &self.head));
            };
            let (from, to) = self.range;
            if stored.time > to {
                // What follows is not read.
                self.is_over = true;
                *self.end.firing() = self.cut_end.take();
                return None;
            }
            self.names.learn(names::of_firing(&stored));
            let probe = stored.probe as usize;
            let is_over = self.end.is_over.load(Ordering::Relaxed);
            match self.roles.get(probe) {
                Some(Role::Probe) if stored.time < from || is_over => {}
                Some(Role::Probe) if self.enabled.get(probe) == Some(&false) => self.last = Some(stored),
                Some(Role::Probe) => {
                    self.last = None;
                    return Some(self.restored.firing(stored, &self.head));
                }
                Some(Role::End) => {
                    let mut end = self.restored.firing(stored, &self.head);
                    end.time = end.time.max(from);
                    *self.end.firing() = Some(end);
                }
                _ => {}
            }
        }
    }
}

/// Clocks of the program that were not captured fire between captured firings, at their own rates.
struct Ticking {
    captured: Cut,
    ahead: Option<Firing>,
    /// When the next one fires, its interval and its name, the first one first.
    clocks: BinaryHeap<Reverse<(u64, u64, String)>>,
    /// When tracing began: the clock of `timestamp`, and since 1970.
    began: (u64, u64),
    /// Time passes no further.
    ended: bool,
}

impl Ticking {
    fn new(captured: Cut, clocks: Vec<(String, u64)>, began: (u64, u64)) -> Ticking {
        let clock =
            |(name, interval): (String, u64)| Reverse((began.0.saturating_add(interval), interval, name));
        let clocks = clocks.into_iter().map(clock).collect();
        Ticking { captured, ahead: None, clocks, began, ended: false }
    }

    /// The firing of the first clock that is due at a time or before it.
    fn tick(&mut self, until: u64) -> Option<Firing> {
        let Reverse((time, interval, name)) =
            self.clocks.peek_mut().filter(|clock| clock.0.0 <= until).map(PeekMut::pop)?;
        let next = time.checked_add(interval);
        self.clocks.extend(next.map(|next| Reverse((next, interval, name.clone()))));
        let walltime = self.began.1.saturating_add(time - self.began.0);
        let mut memory = Memory::default();
        let builtins = [Builtin::Int(IntBuiltin::Walltimestamp)].into();
        memory.captured = Some(Captured { builtins, ..Captured::default() });
        Some(Firing { time, walltime, memory: Arc::new(memory), ..Firing::of(name) })
    }
}

impl Iterator for Ticking {
    type Item = Firing;

    fn next(&mut self) -> Option<Firing> {
        if self.clocks.is_empty() || self.captured.end.is_over.load(Ordering::Relaxed) {
            return self.captured.next();
        }
        if self.ahead.is_none() && !self.ended {
            self.ahead = self.captured.next();
            self.ended = self.ahead.is_none();
        }
        let until = match &self.ahead {
            Some(firing) => firing.time,
            // Until END.
            None => self.captured.end.firing().as_ref().map_or(0, |end| end.time),
        };
        self.tick(until).or_else(|| self.ahead.take())
    }
}
