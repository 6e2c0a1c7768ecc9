//! The engine of an interpreted session.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bpf_sys::{Mmap, SysError};
use consumer::SlotSink;
use dif::interp::State;
use dif::ir::Module;
use events::Clock;
use plane::control::{
    ACTIVITY, Activity, CONTROL_SIZE, Control, DropDelta, DropKind, DropTracker, PERCPU_STRIDE, PerCpu,
    SNAPS, activity_word,
};
use plane::desc::AggId;
use plane::newest::{Newest, complete_from, copy_newest};
use plane::read::{Batch, RingReader, Rings};
use plane::ring::{self, HEADER_SIZE, Policy, RingWriter, kept_for_exit, ring_size};
use plane::speculation::{SpeculationReader, SpeculationShape, Speculations};
use plane::stacks::Stack;
use plane::table::merge;
use probes::{Catalog, FieldKind, Pattern, ProbeInfo};
use providers::{Registry, Role};

use super::Interpreter;
use super::firing::{Ending, Firing};
use super::missing::Missing;
use super::world::{Firer, FiringWorld};
use crate::compile::Program;
use crate::engine::{Between, Enabled, EnabledRange, Engine, Firings, Loading, probe};
use crate::error::Error;
use crate::load::assemble::provider_pid;
use crate::load::attach::AttachObserver;
use crate::options::Options;
use crate::session::Notice;
use crate::session::stop::Stopper;

/// The clauses that were enabled together. As programs in the kernel, they share the variables of
/// `this->` in a firing, and their ERROR sees their faults only.
#[derive(Default)]
struct Batched {
    probes: Vec<EnabledProbe>,
    /// Their places by their ids: thousands may be enabled.
    places: HashMap<u32, usize>,
    error: Option<usize>,
}

struct EnabledProbe {
    probe: ProbeInfo,
    role: Role,
    /// The provider without the process id that follows, and this id; 0 if none does.
    provider: (Arc<str>, u32),
    /// Clause and enabled-probe id, in the order of the program.
    clauses: Vec<(usize, u32)>,
    /// The clauses alone.
    numbers: Vec<usize>,
}

impl EnabledProbe {
    fn firer(&self) -> Firer<'_> {
        Firer { probe: &self.probe, provider: &self.provider, epids: &self.clauses }
    }
}

/// Speculative buffers.
struct SpeculativeMemory {
    shape: SpeculationShape,
    control: Arc<[AtomicU64]>,
    rings: Mmap,
    reader: SpeculationReader,
    /// Records that were lost because the record of their commit was overwritten.
    lost: Vec<DropDelta>,
}

impl SpeculativeMemory {
    fn new(shape: SpeculationShape) -> Result<SpeculativeMemory, SysError> {
        let control = zeros(shape.control_size().into());
        let rings = Mmap::anonymous(shape.ring_size as usize * shape.rings() as usize)?;
        Ok(SpeculativeMemory {
            shape,
            control,
            rings,
            reader: SpeculationReader::default(),
            lost: Vec::new(),
        })
    }

    fn all(&self) -> Option<Speculations<'_>> {
        Speculations::new(self.shape, &self.control, self.rings.words())
    }

    fn complete(&mut self, batch: Batch, newest: bool) -> Batch {
        let SpeculativeMemory { shape, control, rings, reader, lost } = self;
        let Some(all) = Speculations::new(*shape, control, rings.words()) else { return batch };
        let mut batch = reader.splice(batch, &all);
        if newest {
            lost.append(&mut reader.lose_overwritten(&all));
        }
        reader.clean(&mut batch, &all);
        batch
    }
}

/// A few words of memory that are zero.
fn zeros(bytes: u64) -> Arc<[AtomicU64]> {
    (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

/// The least size of a ring for a program.
fn least_ring(program: &Program, policy: Policy) -> u32 {
    let module = &program.module;
    let is_end = |p: &ProbeInfo| program.registry.role(&p.desc) == Role::End;
    let clauses = program.checked.clauses.iter().zip(&module.clauses);
    let end = clauses.filter(|(checked, _)| checked.probes.iter().any(is_end));
    let sizes = end.map(|(_, clause)| clause.record.as_ref().map_or(0, |r| r.size));
    ring::least(policy, module.longest_record(), module.longest_exit(), sizes)
}

/// See the [module](super).
pub(crate) struct InterpreterEngine {
    module: Arc<Module>,
    registry: Arc<Registry>,
    attached: Vec<Batched>,
    loaded: Vec<Batched>,
    firings: Peekable<Box<dyn Iterator<Item = Firing> + Send>>,
    /// Firings from this time on wait.
    pause: u64,
    exhausted: bool,
    /// The ids of the probes that descriptions of firings mean.
    known: HashMap<String, Option<u32>>,
    tracer: Firing,
    end: Option<Arc<Ending>>,
    missing: Arc<Missing>,
    last_time: u64,
    /// The time of the day of the firings, and the time of the one that has it.
    wall: (u64, u64),
    state: State,
    control: Arc<[AtomicU64]>,
    percpu: Arc<[AtomicU64]>,
    /// A buffer may be large: its pages take memory when they are written.
    rings: Mmap,
    cpus: u32,
    ring_size: u32,
    policy: Policy,
    /// Tracing has ended.
    quiescent: bool,
    reader: RingReader,
    /// The speculative buffers, if a clause speculates: shape, control words, rings, reader.
    speculations: Option<SpeculativeMemory>,
    /// `nspec` and `specsize`.
    speculation_options: (u64, u64),
    tracker: DropTracker,
    /// The values of aggregations since the last snapshot, by aggregation, CPU and key.
    aggregations: BTreeMap<(u32, u32, Vec<u8>), Vec<u64>>,
    /// Snapshots that have begun, and those that were taken.
    snapshots: (u64, u64),
    stacks: BTreeMap<u64, Stack>,
    random: u64,
    threads: bool,
    /// The program records what it reads.
    captures: bool,
    /// There are records that were not drained.
    undrained: bool,
}

/// How many firings without a record are executed before the session sees to other things.
const AT_ONCE: usize = 1000;

impl InterpreterEngine {
    /// Enables a program.
    pub(crate) fn new(
        program: &Program,
        options: &Options,
        interpreter: Interpreter,
    ) -> Result<(InterpreterEngine, Enabled), Error> {
        let Interpreter { firings, tracer, cpus, end, missing, .. } = interpreter;
        let policy = options.bufpolicy;
        let ring_size = ring_size(options.bufsize.0).max(least_ring(program, policy));
        let mut engine = InterpreterEngine {
            module: program.module.clone(),
            registry: program.registry.clone(),
            attached: Vec::new(),
            loaded: Vec::new(),
            firings: firings.peekable(),
            pause: u64::MAX,
            exhausted: false,
            known: HashMap::new(),
            last_time: tracer.time,
            wall: (tracer.walltime, tracer.time),
            tracer,
            end,
            missing,
            state: State::new(&program.module),
            control: zeros(CONTROL_SIZE.into()),
            percpu: zeros(u64::from(PERCPU_STRIDE) * u64::from(cpus)),
            rings: Mmap::anonymous(ring_size as usize * cpus as usize)?,
            cpus,
            ring_size,
            policy,
            quiescent: false,
            reader: RingReader::default(),
            speculations: None,
            speculation_options: (options.nspec, options.specsize.0),
            tracker: DropTracker::default(),
            aggregations: BTreeMap::new(),
            snapshots: (0, 0),
            stacks: BTreeMap::new(),
            random: 1,
            threads: options.flowindent,
            captures: program.captures,
            undrained: false,
        };
        let enabled = engine.enable(program, 1)?;
        Ok((engine, enabled))
    }

    /// Takes the clauses of a program that do not run yet.
    fn enable(&mut self, program: &Program, first: u32) -> Result<Enabled, Error> {
        let clauses = program.checked.clauses.get(program.running..).unwrap_or_default();
        let mut batch = Batched::default();
        for info in clauses.iter().flat_map(|c| c.probes.iter()) {
            batch.places.entry(info.id.0).or_insert_with(|| {
                let role = self.registry.role(&info.desc);
                let family = self.registry.family(&info.desc.provider);
                let strsize = program.module.strsize as usize;
                let pid = family.map_or(0, |f| provider_pid(&info.desc, f, strsize));
                let name = family.filter(|_| pid != 0).map(|f| f.prefix_of(&info.desc.provider).into());
                let provider = (name.unwrap_or_else(|| info.desc.provider.clone()), pid);
                let (clauses, numbers) = (Vec::new(), Vec::new());
                batch.probes.push(EnabledProbe { probe: info.clone(), role, provider, clauses, numbers });
                batch.probes.len() - 1
            });
        }
        let (mut ranges, mut next) = (Vec::new(), first);
        for (clause, checked) in (program.running..).zip(clauses) {
            for (n, info) in (next..).zip(checked.probes.iter()) {
                let row = batch.places.get(&info.id.0).and_then(|at| batch.probes.get_mut(*at));
                if let Some(row) = row {
                    row.clauses.push((clause, n));
                    row.numbers.push(clause);
                }
            }
            let calls = |p: &ProbeInfo| self.registry.calls(&p.desc.provider);
            let shown = |p| checked.derived.as_ref().map_or(p, |derived| &derived.probe);
            let row = |p| Some(probe(shown(p).id, &shown(p).desc, calls(shown(p))));
            let probes = checked.probes.iter().map(row).collect();
            ranges.push(EnabledRange { first: next, clause, probes });
            let count = u32::try_from(checked.probes.len()).ok();
            let too_many = || Error::Provider("too many enabled probes".into());
            next = count.and_then(|n| next.checked_add(n)).ok_or_else(too_many)?;
        }
        batch.error = batch.probes.iter().position(|p| p.role == Role::Error);
        self.module = program.module.clone();
        if self.speculations.is_none() && self.module.speculates() {
            let longest = HEADER_SIZE + self.module.longest_record();
            let (count, bytes) = self.speculation_options;
            let shape = SpeculationShape::new(count, bytes, self.cpus, longest);
            self.speculations = Some(SpeculativeMemory::new(shape)?);
        }
        for text in &self.module.strings {
            self.state.intern(text);
        }
        for text in batch.probes.iter().flat_map(|p| p.probe.desc.fields().map(str::to_owned)) {
            let longest = (self.module.strsize as usize).saturating_sub(1);
            let text = text.as_bytes();
            self.state.intern(&text[..text.len().min(longest)]);
        }
        let mut providers = Vec::new();
        for EnabledProbe { probe, provider: (prefix, pid), .. } in &batch.probes {
            if *pid != 0 {
                let prefix = self.state.intern(prefix.as_bytes());
                providers.push((prefix, *pid, probe.desc.provider.clone()));
            }
        }
        let strings = self.state.interned.iter().map(|s| s.as_slice().into()).collect();
        self.known.clear();
        self.loaded.push(batch);
        Ok(Enabled { sites: Vec::new(), shape: None, ranges, strings, providers, next })
    }

    /// The id of the probe that a firing's description means: of the enabled ones, the first that
    /// matches.
    fn meant(&mut self, text: &str) -> Option<u32> {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let probes = self.attached.iter().flat_map(|b| &b.probes).filter(|p| p.role == Role::Probe);
        let pattern = Pattern::parse(text, FieldKind::Name).ok();
        let found = pattern.and_then(|pattern| {
            // A captured probe has its own name, which may have the characters of a pattern.
            let rank = |p: &&EnabledProbe| (p.probe.desc.to_string() != text, p.probe.id.0);
            let named = |p: &&EnabledProbe| !rank(p).0 || pattern.matches(&p.probe.desc);
            probes.filter(named).min_by_key(rank).map(|p| p.probe.id.0)
        });
        self.known.insert(text.to_owned(), found);
        found
    }

    /// Executes one firing.
    fn fire(&mut self, firing: &Firing) {
        self.last_time = self.last_time.max(firing.time);
        if firing.walltime != 0 {
            self.wall = (firing.walltime, firing.time);
        }
        let Some(probe) = self.meant(&firing.probe) else { return };
        for batch in 0..self.attached.len() {
            self.fire_in(batch, firing, |batch| batch.places.get(&probe).copied());
        }
    }

    /// The firing of END, where the firings have one: it comes after all others.
    fn end_firing(&mut self) -> Option<Firing> {
        let end = self.end.clone()?;
        end.is_over.store(true, Ordering::Relaxed);
        while self.firings.next().is_some() {}
        end.firing().take()
    }

    /// Executes BEGIN or END of some batches, in the process of the tracer.
    fn run(&mut self, batches: std::ops::Range<usize>, role: Role) {
        let end = if role == Role::End { self.end_firing() } else { None };
        let firing = match end {
            Some(end) => Firing { time: self.last_time.max(end.time), ..end },
            None => Firing { time: self.last_time, ..self.tracer.clone() },
        };
        for batch in batches {
            self.fire_in(batch, &firing, |batch| batch.probes.iter().position(|p| p.role == role));
        }
    }

    fn fire_in(&mut self, batch: usize, firing: &Firing, place: impl Fn(&Batched) -> Option<usize>) {
        let Some(batch) = self.attached.get(batch) else { return };
        let Some(enabled) = place(batch).and_then(|at| batch.probes.get(at)) else { return };
        let error = batch.error.and_then(|at| batch.probes.get(at));
        let Some(percpu) = PerCpu::new(&self.percpu, self.cpus) else { return };
        let index = firing.cpu % self.cpus;
        let words = self.ring_size as usize / 8;
        let at = index as usize * words;
        let memory = self.rings.words().get(at..at + words).unwrap_or_default();
        let kept = u64::from(self.module.longest_exit().map_or(0, kept_for_exit));
        let mut world = FiringWorld {
            firing,
            fires: enabled.firer(),
            error: error.map(EnabledProbe::firer),
            fault: None,
            module: &self.module,
            ring: RingWriter::new(memory, percpu, index).by(self.policy),
            // A ring that is too small for that has space for other records all the same.
            kept_for_exit: kept.min(u64::from(self.ring_size) / 4),
            speculations: self.speculations.as_ref().and_then(SpeculativeMemory::all),
            stacks: &mut self.stacks,
            random: &mut self.random,
            threads: self.threads,
            // When END fires, the rings are empty.
            policy: if self.quiescent { Policy::Switch } else { self.policy },
            filled: false,
            dropped: 0,
            speculative_drops: Vec::new(),
            written: false,
            keeps_discarded: self.captures,
            missing: &self.missing,
        };
        let mut interpreter = dif::interp::Interpreter::new(&self.module);
        if let Some(error) = error {
            interpreter = interpreter.with_error(&error.numbers);
        }
        let at_end = enabled.role == Role::End;
        interpreter = if at_end { interpreter.at_end() } else { interpreter.ending_at_exit() };
        // What is there at the end of this firing is its own.
        self.state.exit = None;
        interpreter.fire(&enabled.numbers, &mut self.state, &mut world);
        self.undrained |= world.written;
        let filled = world.filled;
        let drops = std::mem::take(&mut self.state.drops);
        let count = |kind: DropKind, n: u64| {
            if n > 0 {
                percpu.word(index, kind.offset()).fetch_add(n, Ordering::Relaxed);
            }
        };
        count(DropKind::Principal, drops.principal + world.dropped);
        world.speculative_drops.iter().for_each(|kind| count(*kind, 1));
        count(DropKind::Dynamic, drops.dynamic);
        count(DropKind::Aggregation, drops.aggregation);
        count(DropKind::DoubleError, drops.double_error);
        self.keep_aggregations(firing.cpu);
        self.follow_exit(at_end);
        let snaps = std::mem::take(&mut self.state.snaps);
        if let Some(word) = self.control.get(SNAPS as usize / 8) {
            word.fetch_add(snaps, Ordering::SeqCst);
        }
        if filled && let Some(control) = self.control() {
            control.become_state(Activity::Draining);
        }
    }

    /// True if the records in the rings are consumed now.
    fn reads_rings(&self) -> bool {
        self.policy == Policy::Switch || self.quiescent
    }

    /// Moves the values of a firing to those of its CPU.
    fn keep_aggregations(&mut self, cpu: u32) {
        for ((id, table), desc) in (0..).zip(&mut self.state.aggregations).zip(&self.module.aggs) {
            for (key, words) in std::mem::take(table) {
                match self.aggregations.entry((id, cpu, key)) {
                    Entry::Occupied(mut known) => merge(desc.func, known.get_mut(), &words),
                    Entry::Vacant(new) => drop(new.insert(words)),
                }
            }
        }
    }

    /// An exit() of a clause ends the session, or in END gives it another status.
    fn follow_exit(&self, at_end: bool) {
        let (Some(status), Some(word)) = (self.state.exit, self.control.get(ACTIVITY as usize / 8)) else {
            return;
        };
        let found = word.load(Ordering::SeqCst);
        if at_end || Activity::of(found).may_become(Activity::Draining) {
            let new = activity_word(Activity::Draining, status as u32);
            // If it fails, another thread has just ended the session.
            let _ = word.compare_exchange(found, new, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

impl Engine for InterpreterEngine {
    fn attach(&mut self, _observer: &mut AttachObserver<'_>) -> Result<(), Error> {
        self.attached.append(&mut self.loaded);
        Ok(())
    }

    fn run_begin(&mut self) -> Result<(), Error> {
        self.run(0..self.attached.len(), Role::Begin);
        Ok(())
    }

    fn load_more(
        &mut self,
        program: &Program,
        _options: &Options,
        loading: Loading,
        _interrupted: &dyn Fn() -> bool,
        _between: &mut Between<'_>,
    ) -> Result<Enabled, Error> {
        self.enable(program, loading.first)
    }

    fn adopt(&mut self, _interrupted: &dyn Fn() -> bool) -> Result<Vec<u32>, Error> {
        let from = self.attached.len();
        self.attached.append(&mut self.loaded);
        self.run(from..self.attached.len(), Role::Begin);
        Ok(Vec::new())
    }

    fn control(&self) -> Option<Control<'_>> {
        Control::new(&self.control)
    }

    /// The time of the last firing.
    fn now(&self) -> u64 {
        self.last_time
    }

    fn clock(&self) -> Clock {
        let (wall, time) = self.wall;
        let passed = self.last_time.saturating_sub(time);
        Clock { time: self.last_time, wall: if wall == 0 { 0 } else { wall.saturating_add(passed) } }
    }

    fn first_time(&mut self) -> u64 {
        self.firings.peek().map_or(self.last_time, |firing| firing.time)
    }

    fn pause_at(&mut self, time: u64) {
        self.pause = time;
    }

    fn stopper(&self) -> Result<Stopper, Error> {
        Ok(Stopper::of_memory(self.control.clone()))
    }

    fn firings(&self) -> Firings {
        if self.exhausted { Firings::Exhausted } else { Firings::Ready }
    }

    /// Executes firings until one has recorded something, so that it is consumed before the next
    /// one. By another policy than switch, records are consumed when tracing has ended.
    fn drain(&mut self, _hold: Option<Duration>) -> Result<Batch, Error> {
        for _ in 0..AT_ONCE {
            if self.undrained && self.reads_rings() || self.activity().0 != Activity::Active {
                break;
            }
            if self.firings.peek().is_some_and(|firing| firing.time >= self.pause) {
                self.last_time = self.last_time.max(self.pause);
                break;
            }
            match self.firings.next() {
                Some(firing) => self.fire(&firing),
                None => self.exhausted = true,
            }
            if self.exhausted {
                break;
            }
        }
        self.undrained = false;
        let Some(percpu) = PerCpu::new(&self.percpu, self.cpus) else { return Ok(Batch::default()) };
        let newest = self.reads_rings() && self.policy == Policy::Ring;
        let batch = match self.reads_rings() {
            true if self.policy == Policy::Ring => {
                let (memory, size) = (self.rings.words(), self.ring_size);
                self.reader.take_newest(&[Rings { memory, size, percpu }], u64::MAX)
            }
            true => self.reader.drain(self.rings.words(), self.ring_size, percpu, u64::MAX, None),
            false => Batch::default(),
        };
        Ok(match &mut self.speculations {
            Some(speculations) => speculations.complete(batch, newest),
            None => batch,
        })
    }

    fn newest(&mut self) -> Newest {
        let Some(percpu) = PerCpu::new(&self.percpu, self.cpus) else { return Newest::default() };
        let set = Rings { memory: self.rings.words(), size: self.ring_size, percpu };
        let times = (self.tracer.time, self.last_time);
        copy_newest(&mut self.reader, &[set], times, &|| u64::MAX)
    }

    fn complete_from(&self) -> u64 {
        let Some(percpu) = PerCpu::new(&self.percpu, self.cpus) else { return 0 };
        let set = Rings { memory: self.rings.words(), size: self.ring_size, percpu };
        complete_from(&[set], self.tracer.time)
    }

    fn speculates(&self) -> bool {
        self.speculations.is_some()
    }

    fn begin_snapshot(&mut self) {
        self.snapshots.0 = self.snapshots.1 + 1;
    }

    fn snapshot_is_ready(&self) -> bool {
        self.snapshots.0 > self.snapshots.1
    }

    fn snapshots(&self) -> (u64, u64) {
        self.snapshots
    }

    fn take_snapshot(&mut self, sink: &mut SlotSink<'_>) {
        self.snapshots.1 = self.snapshots.0;
        for ((id, cpu, key), words) in std::mem::take(&mut self.aggregations) {
            sink(AggId(id), cpu, &key, &words);
        }
    }

    fn stack(&self, id: u64) -> Option<Stack> {
        self.stacks.get(&id).cloned()
    }

    fn drops(&mut self) -> Vec<DropDelta> {
        let mut all = self.reader.take_late();
        all.extend(self.speculations.as_mut().map(|s| std::mem::take(&mut s.lost)).unwrap_or_default());
        all.extend(PerCpu::new(&self.percpu, self.cpus).map(|p| self.tracker.deltas(p)).unwrap_or_default());
        all
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    fn quiesce(&mut self) -> Result<(), Error> {
        self.quiescent = true;
        Ok(())
    }

    fn run_end(&mut self) -> Result<(), Error> {
        self.run(0..self.attached.len(), Role::End);
        Ok(())
    }
}
