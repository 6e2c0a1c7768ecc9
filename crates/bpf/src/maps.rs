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
//!  stack store                                        the same, unless its stacks are too short: then a new one
//!  strings, program tables                            belong to programs, each program has its own
//! ```
//!
//! A bank is too small when it was made for BEGIN, END and ERROR alone, or when its rings cannot
//! hold the longest new record. CPUs that come online later share the existing indexes
//! ([`plane::control`]), and need nothing new.

mod create;
mod extend;
mod share;

use std::collections::BTreeMap;
use std::os::fd::AsFd;

pub use create::{Lowered, Maps};
use dif::ir::{Datum, IntBuiltin, Module, Op, Scope, VarTy};
use plane::control::{CONTROL_SIZE, PERCPU_STRIDE};
use plane::desc::AggFunc;
use plane::table::TableShape;
use plane::thread::ThreadShape;
use plane::{assoc, owned, ring, scratch, stacks};
pub use share::{Shared, TableLocation};

use crate::mir::{KsymId, MapRef};
use crate::sys::{Map, MapBtf, MapSpec, SysError};

/// The options of a session that determine the sizes of its maps, in bytes, as the user gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a ring.
    pub bufsize: u64,
    /// Bytes of all aggregation tables of a CPU, for both epochs.
    pub aggsize: u64,
    /// Bytes of all associative arrays.
    pub dynvarsize: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { bufsize: 4 << 20, aggsize: 4 << 20, dynvarsize: 1 << 20 }
    }
}

/// What the programs of a session need, beyond the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl Default for Needs {
    fn default() -> Self {
        Needs { cpus: 1, one_shot: false, slot_bytes: 0, levels: 1, preempt_count: None, threads: false }
    }
}

/// The kernel's per-CPU preempt count, or the per-CPU struct that contains it (`pcpu_hot`, 6.2 to
/// 6.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptCount {
    /// The variable.
    pub ksym: KsymId,
    /// Offset of the count in the variable.
    pub offset: i16,
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
    /// Bytes of the data: 8, or strsize.
    pub data: u32,
    /// Maximum number of elements.
    pub elements: u32,
    /// For a `self->` array: the location of the list heads in a thread.
    pub heads: Option<Heads>,
    /// Programs reach the array through a map of arrays, at this position.
    pub shared: Option<Shared>,
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
    /// The requested ring size exceeds the maximum.
    pub ring_capped: bool,
    /// Bytes of a string.
    pub strsize: u32,
    /// Bytes of a scratch slot; 0 when there are none.
    pub slot_size: u32,
    /// Frames of the longest stack; 0 when none is taken.
    pub stack_frames: u32,
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
    /// The context level at which the program's probes fire, if there is only one: 0 (thread) to 3
    /// (NMI).
    pub level: u32,
}

impl Plan {
    /// Computes the plan of a session.
    pub fn new(module: &Module, options: &Options, needs: &Needs) -> Plan {
        let cpus = if needs.one_shot { 1 } else { needs.cpus.max(1) };
        let ring_least = least_ring(module);
        let mut plan = Plan {
            bank: 0,
            one_shot: needs.one_shot,
            cpus,
            ring_size: plan_ring(module, options, needs.one_shot).max(ring_least),
            ring_least,
            ring_capped: !needs.one_shot && options.bufsize > u64::from(ring::RING_MAX),
            strsize: module.strsize,
            slot_size: slot_size(needs),
            stack_frames: stack_frames(module),
            globals_size: 0,
            thread: None,
            aggs: Vec::new(),
            vars: Vec::new(),
            vtime: reads_vtime(module),
            preempt_count: needs.preempt_count,
            threads: needs.threads,
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
    fn halve(&mut self, what: SizeOption) -> bool {
        match what {
            SizeOption::Buffer if self.ring_size > self.ring_least => {
                self.ring_size /= 2;
                true
            }
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
    fn wanted(&self, before: Option<&Plan>) -> Vec<(MapRef, SizeOption)> {
        let new_bank = before.is_none_or(|b| b.bank != self.bank);
        let grew = |of: fn(&Plan) -> u32| of(self) > before.map_or(0, of);
        let mut out = Vec::new();
        if before.is_none() {
            // exit() uses the doorbell too, so there is always one.
            out.extend([(MapRef::Control, SizeOption::Fixed), (MapRef::Doorbell, SizeOption::Fixed)]);
        }
        for (wanted, map, sized) in [
            (new_bank, MapRef::PerCpu, SizeOption::Fixed),
            (new_bank && self.ring_size > 0, MapRef::Rings, SizeOption::Buffer),
            (
                if new_bank { self.slot_size > 0 } else { grew(|p| p.slot_size) },
                MapRef::Slots,
                SizeOption::Fixed,
            ),
            (grew(|p| p.globals_size), MapRef::Globals, SizeOption::Fixed),
            (grew(|p| u32::from(p.thread.is_some())), MapRef::SelfStore, SizeOption::Fixed),
            (grew(|p| p.stack_frames), MapRef::Stacks, SizeOption::Fixed),
            (grew(|p| u32::from(p.vtime)), MapRef::Vtime, SizeOption::Fixed),
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

    fn create(
        &self,
        map: MapRef,
        thread_btf: Option<MapBtf<'_>>,
        made: &BTreeMap<MapRef, Map>,
    ) -> Result<Map, SysError> {
        let area = |name, area: Area| {
            // Sizes beyond the limits of an element or map fail in the kernel with E2BIG, and may
            // then be reduced.
            let total = u32::try_from(area.total()).unwrap_or(u32::MAX);
            if area.direct() {
                Map::create(&MapSpec::mmapable(name, total, 1))
            } else {
                Map::create(&MapSpec::mmapable(name, area.stride, area.count))
            }
        };
        match map {
            MapRef::PerCpu => area("dt_percpu", self.percpu()),
            MapRef::Rings => area("dt_rings", self.rings()),
            MapRef::Slots => area("dt_slots", self.slots()),
            MapRef::Agg(a) => {
                let none = Area { map, at: 0, stride: 8, count: 1 };
                area(&format!("dt_agg{a}"), self.agg(a).unwrap_or(none))
            }
            MapRef::Doorbell => Map::create(&MapSpec::ringbuf("dt_doorbell", page_size())),
            MapRef::Globals => Map::create(&MapSpec::mmapable("dt_globals", self.globals_size, 1)),
            MapRef::SelfStore => {
                let size = self.thread.map_or(8, ThreadShape::value_size);
                match thread_btf {
                    Some(btf) => Map::create(&MapSpec::task_storage("dt_self", size, btf)),
                    None => task_storage("dt_self", size),
                }
            }
            MapRef::Stacks => Map::create(&MapSpec::hash(
                "dt_stacks",
                8,
                stacks::value_size(self.stack_frames),
                stacks::STACKS,
            )),
            MapRef::Var(v) => match self.vars.get(v as usize) {
                Some(VarPlan::Assoc(a)) => Map::create(&MapSpec::hash(
                    &format!("dt_var{v}"),
                    a.key_size(),
                    a.value_size(),
                    a.elements,
                )),
                Some(VarPlan::GlobalAlone(size)) => {
                    Map::create(&MapSpec::mmapable(&format!("dt_var{v}"), *size, 1))
                }
                Some(VarPlan::ThreadAlone(shape)) => task_storage(&format!("dt_var{v}"), shape.value_size()),
                _ => Err(SysError::new(format!("create a map for variable {v}"), libc::EINVAL)),
            },
            MapRef::Arrays(first) => self.create_arrays(first, made),
            MapRef::Vtime => task_storage("dt_vtime", plane::vtime::SIZE),
            MapRef::Nodes(v) => area(&format!("dt_nodes{v}"), self.nodes(v)),
            MapRef::Heads(v) => task_storage(&format!("dt_heads{v}"), owned::HEADS),
            MapRef::EmptyProgArray => Map::create(&MapSpec::prog_array("dt_no_program")),
            MapRef::Control
            | MapRef::Strings
            | MapRef::TracerFunctions
            | MapRef::Table(_)
            | MapRef::Served => Map::create(&MapSpec::mmapable("dt_control", CONTROL_SIZE, 1)),
        }
    }
}

/// Creates a task storage of so many bytes, with the BTF that the kernel requires.
fn task_storage(name: &str, bytes: u32) -> Result<Map, SysError> {
    let mut b = crate::btf::Builder::new();
    let key = b.i32();
    let value = b.words("dt_self", bytes.div_ceil(8));
    let object = b.load()?;
    let btf = MapBtf { btf: object.as_fd(), key: key.0, value: value.0 };
    Map::create(&MapSpec::task_storage(name, bytes, btf))
}

/// The option that determines the size of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeOption {
    Fixed,
    Buffer,
    Aggregation(u32),
    Dynamic(u32),
}

/// The least size of a ring: twice the longest record. A record that does not fit before the ring's
/// end also takes the remaining bytes, which are fewer than its length. In a shorter ring, a record
/// might not fit even when the ring is empty.
fn least_ring(module: &Module) -> u32 {
    // Faults are recorded even where no clause records.
    let records = module.clauses.iter().filter_map(|c| c.record.as_ref());
    let longest = ring::HEADER_SIZE + records.map(|r| r.size).max().unwrap_or(0).max(ring::FAULT_SIZE);
    ring::ring_size(2 * u64::from(longest))
}

fn plan_ring(module: &Module, options: &Options, one_shot: bool) -> u32 {
    if !one_shot {
        return ring::ring_size(options.bufsize);
    }
    let each = |r: &dif::ir::RecordDesc| u64::from(ring::HEADER_SIZE + r.size);
    let fault = u64::from(ring::HEADER_SIZE + ring::FAULT_SIZE);
    let records = module.clauses.iter().filter_map(|c| c.record.as_ref());
    let all = records.map(each).sum::<u64>() + fault * module.clauses.len() as u64;
    // Twice, so that padding at the end never costs a record. ERROR may fire for every clause.
    let bytes = (4 * all).next_power_of_two();
    ring::ring_size(bytes.min(options.bufsize.max(u64::from(ring::RING_MIN))))
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

    /// Plans the variables that the plan does not have yet. `dynvarsize` applies to them alone. The
    /// first global scalars of the session share a map, and so do the first `self->` scalars.
    fn add_vars(&mut self, module: &Module, options: &Options, levels: u32) {
        let new = module.vars.get(self.vars.len()..).unwrap_or_default();
        let arrays = new.iter().filter(|v| v.key.is_some()).count().max(1) as u64;
        let space = options.dynvarsize / arrays;
        let levels = levels.clamp(1, plane::thread::LEVELS_MAX);
        let (globals_together, threads_together) = (self.globals_size == 0, self.thread.is_none());
        let mut thread = 0;
        let (mut any_thread, mut owned_arrays) = (false, 0);
        for v in new {
            let size = match v.ty {
                VarTy::Int { .. } => 8,
                VarTy::Str => self.strsize,
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
                    let heads = owned.then_some(if threads_together {
                        owned_arrays += 1;
                        Heads::Together(owned_arrays - 1)
                    } else {
                        Heads::Alone
                    });
                    let mut array = AssocPlan { columns, data: size, elements: 0, heads, shared: None };
                    array.elements = assoc::elements(space, array.key_size(), size, owned);
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

fn page_size() -> u32 {
    // SAFETY: no memory is involved.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
