//! The maps of a session: their sizes, which of them are needed, and their creation.
//!
//! A [`Plan`] contains every size that the routines compile into programs and that the maps must
//! match. It is one value, made before any code and any map, so that no size is computed twice.
//! Creating the maps may reduce sizes (`bufresize=auto`: halve until the maps fit). So maps are
//! created *first*, and code is generated for the actual sizes.
//!
//! Kernels before 6.7 reject array values above 4 MiB. A small [`Area`] is therefore one element
//! that is reached by address, which saves the look-up, its null test, and a key on the stack. A
//! large one is an array of `count` elements. In both cases its bytes in memory are the same, and
//! so is the consumer's view. A ring's element contains records only, so a ring of exactly 4 MiB
//! fits.
//!
//! **Extending a session.** Adding clauses to a running session changes nothing that loaded
//! programs refer to. The new programs are generated for a plan that extends the last one
//! ([`Plan::extend`]):
//!
//! ```text
//!  control page, doorbell, variables, aggregations   the same maps
//!  a new aggregation, array, scalar                   a map of its own; the first scalars of a session share one
//!  rings, per-CPU elements, scratch slots             the same, unless they are too small: then a new *bank* of them
//!  stack store, speculative buffers                   the same
//!  strings, program tables                            belong to programs, each program has its own
//! ```
//!
//! A bank is too small when it was made for BEGIN, END and ERROR alone, or when its rings cannot
//! hold the longest new record. CPUs that come online later share the existing indexes
//! ([`plane::control`]), and need nothing new.

mod extend;
mod share;

use dif::ir::{Datum, IntBuiltin, Module, Op, Scope, Subr, VarTy};
use plane::control::PERCPU_STRIDE;
use plane::desc::AggFunc;
use plane::ring::Policy;
use plane::speculation::SpeculationShape;
use plane::stacks::BlockShape;
use plane::table::{TABLE_MAX, TableShape};
use plane::thread::ThreadShape;
use plane::{assoc, owned, ring, scratch, siphash, stacks};

use crate::mir::MapRef;
use crate::target::PreemptCount;

/// What a session determines of its maps: the sizes in bytes, as the user gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a ring.
    pub bufsize: u64,
    /// What a full ring does.
    pub bufpolicy: Policy,
    /// Bytes of all aggregation tables of a CPU, for both epochs.
    pub aggsize: u64,
    /// Bytes of all associative arrays.
    pub dynvarsize: u64,
    /// The most bytes of the stack store.
    pub stacksize: u64,
    /// The key of the hash of stacks, which no process knows.
    pub stack_key: siphash::Key,
    /// Number of speculations at a time.
    pub nspec: u64,
    /// Bytes of a speculation on each CPU.
    pub specsize: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            bufsize: 4 << 20,
            bufpolicy: Policy::Switch,
            aggsize: 4 << 20,
            dynvarsize: 1 << 20,
            stacksize: 16 << 20,
            stack_key: [0; 2],
            nspec: 1,
            specsize: 32 << 10,
        }
    }
}

/// Memory for each array of the clauses of a library, as `dynvarsize` is for the arrays of
/// programs: what a program asks for is its own.
const LIBRARY_ARRAY: u64 = 1 << 20;

/// What the programs of a session need, beyond the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Number of CPU indexes: the CPUs online at start.
    pub cpus: u32,
    /// Only BEGIN, END and ERROR are enabled. One CPU index suffices, and the ring is sized by the
    /// records.
    pub one_shot: bool,
    /// Bytes of a scratch slot; 0 when no program takes one.
    pub slot_bytes: u32,
    /// Number of context levels that enabled probes reach, 1 to 4.
    pub levels: u32,
    /// How to find the context level, where a program's probes fire at several levels. Without it,
    /// [`Plan::level`] holds.
    pub preempt_count: Option<PreemptCount>,
    /// Records carry the thread's identity ([`plane::ring::flags::thread`]).
    pub threads: bool,
    /// Stacks of processes are walked by tables.
    pub unwind: bool,
    /// The frames of language runtimes in them are followed. Only with `unwind`.
    pub runtimes: bool,
    /// Number of processes that the set of processes has space for; 0 when there is none.
    pub processes: u32,
    /// The clauses of END. A ring has space for all their records at once, whatever `bufsize` says.
    pub end: Vec<u32>,
}

impl Default for Needs {
    fn default() -> Self {
        Needs {
            cpus: 1,
            one_shot: false,
            slot_bytes: 0,
            levels: 1,
            preempt_count: None,
            threads: false,
            unwind: false,
            runtimes: false,
            processes: 0,
            end: Vec::new(),
        }
    }
}

/// Areas above this size are maps of several elements.
const DIRECT_MAX: u64 = 64 << 20;

/// Memory of `count` elements of `stride` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The map.
    pub map: MapRef,
    /// Offset of the area in an element, behind other areas that share the map.
    pub at: u32,
    /// Bytes of an element.
    pub stride: u32,
    /// Elements.
    pub count: u32,
}

impl Area {
    /// Total bytes.
    pub fn total(self) -> u64 {
        u64::from(self.stride) * u64::from(self.count)
    }

    /// True when the map has one element that holds the whole area. Code then has the address
    /// without a look-up. The kernel inlines look-ups at load, which moves the rest of the program
    /// each time. A kernel that does not allow elements of that size rejects the map, and the area
    /// is made smaller.
    pub fn direct(self) -> bool {
        self.total() <= DIRECT_MAX
    }
}

/// A column of a key, as far as comparing and hashing need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyColumn {
    /// 64-bit words.
    pub words: u32,
    /// The column is a zero-padded string: behind a word with a NUL, the rest is zero.
    pub string: bool,
}

impl KeyColumn {
    fn of(fields: &[dif::ir::Field]) -> Vec<KeyColumn> {
        fields
            .iter()
            .map(|f| KeyColumn {
                words: f.datum.size().div_ceil(8),
                string: matches!(f.datum, Datum::Str { .. } | Datum::Name { .. }),
            })
            .collect()
    }
}

/// The location of an aggregation's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableLocation {
    /// The map, named by the first aggregation in it.
    pub map: u32,
    /// Offset of the table in an element.
    pub at: u32,
    /// Bytes of an element.
    pub stride: u32,
}

/// A position in a map of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayPosition {
    /// The first array in the map, which names it.
    pub first: u32,
    /// The index in the map.
    pub index: u32,
}

/// An aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggPlan {
    /// Its function.
    pub func: AggFunc,
    /// Its tables.
    pub shape: TableShape,
    /// The columns of its key.
    pub columns: Vec<KeyColumn>,
    /// Number of CPU indexes for which it has tables: those of the bank it was created with, or 1.
    pub cpus: u32,
    /// The location of its tables.
    pub location: TableLocation,
}

/// An associative array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssocPlan {
    /// The columns of its key. The first word of the key of a `self->` array is the thread and
    /// level.
    pub columns: Vec<KeyColumn>,
    /// Bytes of the data: 8, or the storage of a string.
    pub data: u32,
    /// Maximum number of elements.
    pub elements: u32,
    /// For a `self->` array: the location of the list heads in a thread.
    pub heads: Option<Heads>,
    /// Programs reach the array through a map of arrays, at this position.
    pub shared: Option<ArrayPosition>,
}

/// The location of the list heads of a `self->` array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// At this offset of [`MapRef::SelfStore`].
    Together(u32),
    /// In [`MapRef::Heads`], because the array was added to a running session.
    Alone,
}

impl AssocPlan {
    /// Bytes of a value.
    pub fn value_size(&self) -> u32 {
        assoc::value_size(self.data) + if self.heads.is_some() { assoc::NODE } else { 0 }
    }

    /// Bytes of the key.
    pub fn key_size(&self) -> u32 {
        self.columns.iter().map(|c| 8 * c.words).sum()
    }
}

/// The location of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VarPlan {
    /// A scalar at this offset of [`MapRef::Globals`].
    Global(u32),
    /// A scalar at this offset of a level's struct in [`MapRef::SelfStore`].
    Thread(u32),
    /// A scalar of so many bytes in [`MapRef::Var`], because it was added to a running session.
    GlobalAlone(u32),
    /// A `self->` scalar in the task storage [`MapRef::Var`], because it was added to a running
    /// session.
    ThreadAlone(ThreadShape),
    /// An array in [`MapRef::Var`].
    Assoc(AssocPlan),
    /// A variable of a clause, in registers or in the scratch slot.
    Clause,
}

/// The sizes and locations that the kernel side of a session depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The bank of rings, per-CPU elements and scratch slots.
    pub bank: u32,
    /// The bank serves BEGIN, END and ERROR only.
    pub one_shot: bool,
    /// Number of CPU indexes.
    pub cpus: u32,
    /// Bytes of a ring, a power of two; 0 when nothing is recorded.
    pub ring_size: u32,
    /// The least size of a ring: space for the longest record at any position.
    pub ring_least: u32,
    /// The bytes of a ring that only clauses with `exit()` may use; 0 when there are none. The
    /// `exit()` that is to end a flood of records must not be lost with them.
    pub kept_for_exit: u32,
    /// The requested ring size exceeds the maximum.
    pub ring_capped: bool,
    /// `aggsize` exceeds the most that tables have, for aggregations that this plan has added.
    pub aggs_capped: bool,
    /// `dynvarsize` exceeds the most that arrays have, for arrays that this plan has added.
    pub arrays_capped: bool,
    /// What a full ring does. For END this is never [`Policy::Fill`]: it runs when tracing has
    /// ended and the rings are empty.
    pub policy: Policy,
    /// Bytes of a string.
    pub string_storage: u32,
    /// Bytes of a scratch slot; 0 when there are none.
    pub slot_size: u32,
    /// The speculative buffers, if the session has any.
    pub speculation: Option<SpeculationShape>,
    /// Frames of the longest stack; 0 when none is taken.
    pub stack_frames: u32,
    /// The blocks of the stack store.
    pub stack_block: BlockShape,
    /// The key of the hash of stacks.
    pub stack_key: siphash::Key,
    /// Bytes of the global scalars.
    pub globals_size: u32,
    /// The layout of `self->`, if it is used.
    pub thread: Option<ThreadShape>,
    /// By [`plane::desc::AggId`].
    pub aggs: Vec<AggPlan>,
    /// By [`dif::ir::VarId`].
    pub vars: Vec<VarPlan>,
    /// The session keeps CPU-time accounts of threads, for `vtimestamp`.
    pub vtime: bool,
    /// See [`Needs::preempt_count`].
    pub preempt_count: Option<PreemptCount>,
    /// See [`Needs::threads`].
    pub threads: bool,
    /// See [`Needs::unwind`].
    pub unwind: bool,
    /// See [`Needs::runtimes`].
    pub runtimes: bool,
    /// See [`Needs::processes`].
    pub processes: u32,
    /// The context level at which the program's probes fire, if there is only one: 0 (thread) to 3
    /// (NMI).
    pub level: u32,
}

impl Plan {
    /// Computes the plan of a session.
    pub fn new(module: &Module, options: &Options, needs: &Needs) -> Plan {
        let cpus = if needs.one_shot { 1 } else { needs.cpus.max(1) };
        let ring_least = least_ring(module, options.bufpolicy, &needs.end);
        let mut plan = Plan {
            bank: 0,
            one_shot: needs.one_shot,
            cpus,
            ring_size: plan_ring(module, options, needs.one_shot).max(ring_least),
            ring_least,
            kept_for_exit: kept_for_exit(module),
            ring_capped: !needs.one_shot && options.bufsize > u64::from(ring::RING_MAX),
            aggs_capped: false,
            arrays_capped: false,
            policy: options.bufpolicy,
            string_storage: module.string_storage(),
            slot_size: slot_size(needs),
            speculation: plan_speculation(module, options, needs.cpus),
            stack_frames: stack_frames(module),
            stack_block: BlockShape::new(options.stacksize),
            stack_key: options.stack_key,
            globals_size: 0,
            thread: None,
            aggs: Vec::new(),
            vars: Vec::new(),
            vtime: reads_vtime(module),
            preempt_count: needs.preempt_count,
            threads: needs.threads,
            unwind: needs.unwind,
            runtimes: needs.runtimes,
            processes: needs.processes,
            level: 0,
        };
        plan.add_aggs(module, options);
        plan.add_vars(module, options, needs.levels);
        plan
    }

    /// Per-CPU control elements.
    pub fn percpu(&self) -> Area {
        Area { map: MapRef::PerCpu, at: 0, stride: PERCPU_STRIDE, count: self.cpus }
    }

    /// The rings.
    pub fn rings(&self) -> Area {
        Area { map: MapRef::Rings, at: 0, stride: self.ring_size, count: self.cpus }
    }

    /// The rings of speculations.
    pub fn speculation_rings(&self) -> Option<Area> {
        let shape = self.speculation?;
        let (stride, count) = (shape.ring_size, shape.rings());
        Some(Area { map: MapRef::SpeculationRings, at: 0, stride, count })
    }

    /// The scratch slots.
    pub fn slots(&self) -> Area {
        Area { map: MapRef::Slots, at: 0, stride: self.slot_size, count: self.cpus * scratch::SLOTS }
    }

    /// The `self->` arrays from variable `first` on.
    pub fn owned(&self, first: u32) -> impl Iterator<Item = (u32, Heads)> {
        (0..).zip(&self.vars).skip(first as usize).filter_map(|(i, v)| match v {
            VarPlan::Assoc(a) => Some((i, a.heads?)),
            _ => None,
        })
    }

    /// The nodes of a `self->` array.
    pub fn nodes(&self, var: u32) -> Area {
        let (stride, count) = match self.vars.get(var as usize) {
            Some(VarPlan::Assoc(a)) => (owned::node_size(a.key_size()), owned::nodes(a.elements)),
            _ => (owned::KEY, 1),
        };
        Area { map: MapRef::Nodes(var), at: 0, stride, count }
    }

    /// The tables of an aggregation, `None` for an unknown one.
    pub fn agg(&self, agg: u32) -> Option<Area> {
        let AggPlan { location, cpus, .. } = self.aggs.get(agg as usize)?;
        Some(Area {
            map: MapRef::Agg(location.map),
            at: location.at,
            stride: location.stride,
            count: 2 * cpus,
        })
    }

    /// Halves the size of `what`, false when the size is minimal.
    pub fn halve(&mut self, what: SizeOption) -> bool {
        match what {
            SizeOption::Buffer if self.ring_size > self.ring_least => {
                self.ring_size /= 2;
                true
            }
            SizeOption::Speculation => match &mut self.speculation {
                Some(shape) if shape.ring_size > ring::RING_MIN => {
                    shape.ring_size /= 2;
                    shape.limit = shape.limit.min(shape.ring_size);
                    true
                }
                _ => false,
            },
            SizeOption::Aggregation(map) => self.halve_aggs(map),
            SizeOption::Dynamic(v) => match self.vars.get_mut(v as usize) {
                Some(VarPlan::Assoc(a)) if a.elements > 16 => {
                    a.elements /= 2;
                    true
                }
                _ => false,
            },
            SizeOption::Buffer | SizeOption::Fixed => false,
        }
    }

    /// The maps to create, each with the size that may be reduced to make it fit: all maps of a
    /// session, or those that the plan `before` does not have.
    pub fn wanted(&self, before: Option<&Plan>) -> Vec<(MapRef, SizeOption)> {
        let new_bank = before.is_none_or(|b| b.bank != self.bank);
        let grew = |of: fn(&Plan) -> u32| of(self) > before.map_or(0, of);
        let stacks = self.stack_frames > 0 && before.is_none_or(|b| b.stack_frames == 0);
        let mut out = Vec::new();
        if before.is_none() {
            // exit() uses the doorbell too, so there is always one.
            out.extend([(MapRef::Control, SizeOption::Fixed), (MapRef::Doorbell, SizeOption::Fixed)]);
        }
        for (wanted, map, sized) in [
            (new_bank, MapRef::PerCpu, SizeOption::Fixed),
            (new_bank && self.ring_size > 0, MapRef::Rings, SizeOption::Buffer),
            (grew(|p| u32::from(p.speculation.is_some())), MapRef::SpeculationControl, SizeOption::Fixed),
            (grew(|p| u32::from(p.speculation.is_some())), MapRef::SpeculationRings, SizeOption::Speculation),
            (
                if new_bank { self.slot_size > 0 } else { grew(|p| p.slot_size) },
                MapRef::Slots,
                SizeOption::Fixed,
            ),
            (grew(|p| p.globals_size), MapRef::Globals, SizeOption::Fixed),
            (grew(|p| u32::from(p.thread.is_some())), MapRef::SelfStore, SizeOption::Fixed),
            (stacks, MapRef::StackSide, SizeOption::Fixed),
            (stacks, MapRef::Stacks, SizeOption::Fixed),
            (grew(|p| u32::from(p.vtime)), MapRef::Vtime, SizeOption::Fixed),
            (grew(|p| u32::from(p.unwind)), MapRef::UnwindDirectory, SizeOption::Fixed),
            (grew(|p| u32::from(p.unwind)), MapRef::UnwindRequests, SizeOption::Fixed),
            (grew(|p| u32::from(p.unwind)), MapRef::UnwindFound, SizeOption::Fixed),
            (grew(|p| u32::from(p.unwind)), MapRef::UnwindFiles, SizeOption::Fixed),
            (grew(|p| u32::from(p.unwind)), MapRef::UnwindUnknown, SizeOption::Fixed),
            (grew(|p| u32::from(p.unwind)), MapRef::UnwindChunk, SizeOption::Fixed),
            (grew(|p| u32::from(p.unwind)), MapRef::UnwindChunks, SizeOption::Fixed),
            (grew(|p| u32::from(p.runtimes)), MapRef::RuntimeCodes, SizeOption::Fixed),
            (grew(|p| u32::from(p.runtimes)), MapRef::RuntimeFound, SizeOption::Fixed),
            (grew(|p| u32::from(p.runtimes)), MapRef::RuntimeNames, SizeOption::Fixed),
            (grew(|p| u32::from(p.processes > 0)), MapRef::Processes, SizeOption::Fixed),
        ] {
            if wanted {
                out.push((map, sized));
            }
        }
        let had = before.map_or((0, 0), |b| (b.aggs.len() as u32, b.vars.len() as u32));
        let first = |a: &u32| self.aggs.get(*a as usize).is_some_and(|agg| agg.location.map == *a);
        let aggs = (had.0..self.aggs.len() as u32).filter(first);
        out.extend(aggs.map(|a| (MapRef::Agg(a), SizeOption::Aggregation(a))));
        out.extend((0..).zip(&self.vars).skip(had.1 as usize).filter_map(|(i, v)| match v {
            VarPlan::Assoc(_) => Some((MapRef::Var(i), SizeOption::Dynamic(i))),
            VarPlan::GlobalAlone(_) | VarPlan::ThreadAlone(_) => Some((MapRef::Var(i), SizeOption::Fixed)),
            VarPlan::Global(_) | VarPlan::Thread(_) | VarPlan::Clause => None,
        }));
        out.extend(self.arrays(had.1).map(|first| (MapRef::Arrays(first), SizeOption::Fixed)));
        // Behind the arrays, whose size may have been reduced.
        for (i, heads) in self.owned(had.1) {
            out.push((MapRef::Nodes(i), SizeOption::Fixed));
            if heads == Heads::Alone {
                out.push((MapRef::Heads(i), SizeOption::Fixed));
            }
        }
        out
    }
}

/// The option that determines the size of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOption {
    /// None: the size cannot be reduced.
    Fixed,
    /// `bufsize`.
    Buffer,
    /// `specsize`.
    Speculation,
    /// `aggsize`, for the aggregations in this map.
    Aggregation(u32),
    /// `dynvarsize`, for this array.
    Dynamic(u32),
}

/// The least size of a ring: see [`ring::least`].
fn least_ring(module: &Module, policy: Policy, end: &[u32]) -> u32 {
    let clauses = end.iter().filter_map(|clause| module.clauses.get(*clause as usize));
    let end = clauses.map(|c| c.record.as_ref().map_or(0, |r| r.size));
    ring::least(policy, module.longest_record(), module.longest_exit(), end)
}

/// The bytes of a ring that are kept for clauses with `exit()`.
fn kept_for_exit(module: &Module) -> u32 {
    module.longest_exit().map_or(0, ring::kept_for_exit)
}

fn plan_ring(module: &Module, options: &Options, one_shot: bool) -> u32 {
    if !one_shot {
        return ring::ring_size(options.bufsize);
    }
    let each = |r: &dif::ir::RecordDesc| u64::from(ring::HEADER_SIZE + r.size);
    let fault = u64::from(ring::HEADER_SIZE + ring::FAULT_SIZE);
    let records = module.clauses.iter().filter_map(|c| c.record.as_ref());
    let operations = module.clauses.iter().flat_map(|c| c.func.instructions());
    let commits = operations.filter(|(_, i)| matches!(i.op, Op::Call(Subr::Commit, _))).count() as u64;
    let all = records.map(each).sum::<u64>() + fault * (module.clauses.len() as u64 + commits);
    // Twice, so that padding at the end never costs a record. ERROR may fire for every clause.
    let bytes = (4 * all).next_power_of_two();
    ring::ring_size(bytes.min(options.bufsize.max(u64::from(ring::RING_MIN))))
}

/// The speculative buffers of a module that speculates.
fn plan_speculation(module: &Module, options: &Options, cpus: u32) -> Option<SpeculationShape> {
    let longest = ring::HEADER_SIZE + module.longest_record();
    module.speculates().then(|| SpeculationShape::new(options.nspec, options.specsize, cpus, longest))
}

fn stack_frames(module: &Module) -> u32 {
    let insts = module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
    insts
        .filter_map(|i| match i.op {
            Op::Stack { frames, .. } => Some(frames.clamp(1, stacks::FRAMES_MAX)),
            _ => None,
        })
        .max()
        .unwrap_or(0)
}

fn reads_vtime(module: &Module) -> bool {
    let insts = module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
    insts.into_iter().any(|i| i.op == Op::Builtin(IntBuiltin::Vtimestamp))
}

fn slot_size(needs: &Needs) -> u32 {
    if needs.slot_bytes == 0 { 0 } else { scratch::slot_size(needs.slot_bytes) }
}

/// Bytes that an object takes. An object with an address is followed by one unused word, because
/// the kernel's helper reads one byte too many when it reads a string up to the end of an object.
fn object_space(size: u32, element: bool) -> u32 {
    size.div_ceil(8) * 8 + if element { 0 } else { 8 }
}

impl Plan {
    /// Plans the aggregations that the plan does not have yet. `aggsize` applies to them alone.
    fn add_aggs(&mut self, module: &Module, options: &Options) {
        let new = module.aggs.get(self.aggs.len()..).unwrap_or_default();
        let keyed = new.iter().filter(|a| a.key_size > 0).count().max(1) as u64;
        let space = options.aggsize / 2 / keyed;
        self.aggs_capped = space > TABLE_MAX && new.iter().any(|a| a.key_size > 0);
        let cpus = self.cpus;
        self.aggs.extend(new.iter().map(|a| AggPlan {
            func: a.func,
            shape: TableShape::new(a.func, a.key_size, space),
            columns: KeyColumn::of(&a.key),
            cpus,
            location: TableLocation::default(),
        }));
        self.share_aggs(self.aggs.len() - new.len());
    }

    /// Plans the variables that the plan does not have yet. `dynvarsize` applies to those of
    /// programs. The first global scalars of the session share a map, and so do the first `self->`
    /// scalars.
    fn add_vars(&mut self, module: &Module, options: &Options, levels: u32) {
        let new = module.vars.get(self.vars.len()..).unwrap_or_default();
        let arrays = new.iter().filter(|v| v.key.is_some() && !v.is_of_library()).count().max(1) as u64;
        let each = options.dynvarsize / arrays;
        let levels = levels.clamp(1, plane::thread::LEVELS_MAX);
        let (globals_together, threads_together) = (self.globals_size == 0, self.thread.is_none());
        let mut thread = 0;
        let (mut any_thread, mut owned_arrays) = (false, 0);
        self.arrays_capped = false;
        for v in new {
            let size = match v.ty {
                VarTy::Int => 8,
                VarTy::Str => self.string_storage,
                VarTy::Bytes { size } => object_space(size, v.key.is_some()),
            };
            any_thread |= v.scope == Scope::Thread;
            self.vars.push(match (&v.key, v.scope) {
                (Some(key), scope) => {
                    let mut columns = KeyColumn::of(key);
                    if scope == Scope::Thread {
                        columns.insert(0, KeyColumn { words: 1, string: false });
                    }
                    let owned = scope == Scope::Thread;
                    let space = if v.is_of_library() { LIBRARY_ARRAY } else { each };
                    let heads = owned.then_some(if threads_together {
                        owned_arrays += 1;
                        Heads::Together(owned_arrays - 1)
                    } else {
                        Heads::Alone
                    });
                    let mut array = AssocPlan { columns, data: size, elements: 0, heads, shared: None };
                    array.elements = assoc::elements(space, array.key_size(), size, owned);
                    self.arrays_capped |= assoc::exceeds_most(space, array.key_size(), size, owned);
                    VarPlan::Assoc(array)
                }
                (None, Scope::Global) if !globals_together => VarPlan::GlobalAlone(size),
                (None, Scope::Global) => {
                    self.globals_size += size;
                    VarPlan::Global(self.globals_size - size)
                }
                (None, Scope::Thread) if !threads_together => {
                    VarPlan::ThreadAlone(ThreadShape { levels, level_size: size, arrays: 0 })
                }
                (None, Scope::Thread) => {
                    thread += size;
                    VarPlan::Thread(thread - size)
                }
                (None, Scope::Clause) => VarPlan::Clause,
            });
        }
        self.share_arrays(self.vars.len() - new.len());
        if threads_together && any_thread {
            let shape = ThreadShape { levels, level_size: thread, arrays: owned_arrays };
            self.thread = Some(shape);
            for var in &mut self.vars {
                if let VarPlan::Assoc(AssocPlan { heads: Some(Heads::Together(at)), .. }) = var {
                    *at = shape.heads(*at);
                }
            }
        }
    }
}
