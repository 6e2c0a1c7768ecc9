//! Built-in variables: arguments, ids, clocks, names.
//!
//! The decision that shapes this module: a builtin is fetched once per clause, in the last block
//! that dominates all its uses. A predicate that fails therefore pays for nothing behind it,
//! `timestamp` is the same in the whole clause, and an argument that is used five times is loaded
//! once.

use std::collections::BTreeMap;
use std::ops::Range;

use dif::ir::{Function, IntBuiltin, Op, StrBuiltin};

use super::strings::Str;
use super::task::TaskLoads;
use super::{Clause, layout::FRAMES};
use crate::arch;
use crate::mir::{Alu, Builder, Helper, Jmp, Label, MapRef, Operand, Size, V};
use crate::program::{Index, PidNamespace};
use crate::routines::words::zero_bytes;
use crate::routines::{self, ThreadRef, ThreadStorage};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BuiltinKey {
    Int(IntBuiltin),
    Execname,
}

#[derive(Clone, Copy, Debug)]
enum Fetched {
    Int(Operand),
    Words(V, V),
}

/// Where each builtin of a clause is fetched, and the values fetched so far.
pub(crate) struct FetchPoints {
    /// The block that fetches each builtin, as a position in `idom`.
    points: BTreeMap<BuiltinKey, usize>,
    fetched: BTreeMap<BuiltinKey, Fetched>,
    /// The current task, valid within a block.
    task: Option<V>,
    /// The thread's value of `self->` (or 0), and the block that looked it up.
    thread: Option<(usize, V)>,
    /// Immediate dominators. Position 0 is the code before all blocks, position 1 is block `first`,
    /// and so on.
    idom: Vec<usize>,
    first: usize,
}

impl FetchPoints {
    /// The fetch points of a stretch of blocks that is entered at any of `entries`.
    pub(crate) fn new(
        f: &Function,
        blocks: &Range<usize>,
        entries: &[usize],
        tasks: &TaskLoads,
    ) -> FetchPoints {
        let idom = dominators(f, blocks, entries);
        let mut points: BTreeMap<BuiltinKey, usize> = BTreeMap::new();
        for (i, block) in (1..).zip(&f.blocks[blocks.clone()]) {
            for inst in &block.insts {
                if tasks.is_unused(inst) {
                    continue;
                }
                let keys: &[BuiltinKey] = match inst.op {
                    // The wall clock's time is computed from the other one.
                    Op::Builtin(b @ IntBuiltin::Walltimestamp) => {
                        &[BuiltinKey::Int(b), BuiltinKey::Int(IntBuiltin::Timestamp)]
                    }
                    Op::Builtin(b) => &[BuiltinKey::Int(b)],
                    Op::BuiltinStr(StrBuiltin::Execname) => &[BuiltinKey::Execname],
                    _ => continue,
                };
                for key in keys {
                    let point = points.entry(*key).or_insert(i);
                    *point = common_dominator(&idom, *point, i);
                }
            }
        }
        FetchPoints { points, fetched: BTreeMap::new(), task: None, thread: None, idom, first: blocks.start }
    }

    /// The state of the thread's variables, to be restored by [`FetchPoints::restore_thread`].
    pub(crate) fn known_thread(&self) -> Option<(usize, V)> {
        self.thread
    }

    /// Restores a state. The code emitted since may be skipped at run time.
    pub(crate) fn restore_thread(&mut self, known: Option<(usize, V)>) {
        self.thread = known;
    }

    /// Starts a block.
    pub(crate) fn enter(&mut self) {
        self.task = None;
    }
}

impl Clause<'_, '_> {
    /// The thread's variables ([`routines::self_vars`]). The look-up of a dominating block is
    /// reused. That applies to variables that are stored together. One that is stored alone is
    /// rarely looked up twice.
    pub(crate) fn self_vars(
        &mut self,
        home: ThreadStorage,
        create: bool,
        missing: Label,
    ) -> Option<ThreadRef> {
        let (plan, cpu) = (self.env.plan, self.firing.cpu);
        if home != ThreadStorage::Common {
            return routines::self_vars(self.b, plan, &cpu, (home, create), None, missing);
        }
        let here = self.block + 1 - self.fetches.first;
        let known = self.fetches.thread.filter(|(found, _)| dominates(&self.fetches.idom, *found, here));
        let known = known.map(|(_, value)| value);
        let thread = routines::self_vars(self.b, plan, &cpu, (home, create), known, missing)?;
        if known.is_none() {
            self.fetches.thread = Some((here, thread.value));
        }
        Some(thread)
    }
}

/// True if block `x` dominates block `y`.
fn dominates(idom: &[usize], x: usize, mut y: usize) -> bool {
    while y > x {
        y = idom[y];
    }
    y == x
}

/// Whether a clause reads the clock, and whether it may read it before it reserves its record.
pub(crate) fn clock_before_reserve(f: &Function) -> (bool, bool) {
    let idom = dominators(f, &(0..f.blocks.len()), &[0]);
    let insts =
        || (1..).zip(&f.blocks).flat_map(|(i, b)| (0..).zip(&b.insts).map(move |(n, inst)| (i, n, &inst.op)));
    let reads = |op: &Op| matches!(op, Op::Builtin(IntBuiltin::Timestamp | IntBuiltin::Walltimestamp));
    let Some((block, place, _)) = insts().find(|(.., op)| **op == Op::Reserve) else {
        return (insts().any(|(.., op)| reads(op)), false);
    };
    let before = |(i, n, _): (usize, u32, &Op)| match i == block {
        true => n < place,
        false => !dominates(&idom, block, i),
    };
    let mut reading = insts().filter(|(.., op)| reads(op)).peekable();
    (reading.peek().is_some(), reading.any(before))
}

/// The nearest common dominator.
fn common_dominator(idom: &[usize], mut x: usize, mut y: usize) -> usize {
    while x != y {
        if x > y { x = idom[x] } else { y = idom[y] }
    }
    x
}

/// Immediate dominators. Edges only go forward.
fn dominators(f: &Function, blocks: &Range<usize>, entries: &[usize]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut idom: Vec<usize> = vec![NONE; blocks.len() + 1];
    idom[0] = 0;
    for entry in entries {
        idom[entry + 1 - blocks.start] = 0;
    }
    for (i, block) in (1..).zip(&f.blocks[blocks.clone()]) {
        block.term.for_each_edge(|to, _| {
            let Some(to) = (to.0 as usize).checked_sub(blocks.start).map(|t| t + 1) else { return };
            match idom.get(to) {
                Some(&NONE) => idom[to] = i,
                Some(known) => idom[to] = common_dominator(&idom, *known, i),
                None => {}
            }
        });
    }
    idom.iter_mut().filter(|a| **a == NONE).for_each(|a| *a = 0);
    idom
}

impl Clause<'_, '_> {
    /// Fetches the builtins whose fetch point is this block and that are not fetched yet.
    pub(crate) fn fetch_shared(&mut self, block: usize) {
        let block = block.checked_add(1).map_or(0, |i| i - self.fetches.first);
        let due: Vec<BuiltinKey> = self
            .fetches
            .points
            .iter()
            .filter(|(key, point)| **point == block && !self.fetches.fetched.contains_key(key))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            match key {
                BuiltinKey::Int(b) => {
                    self.builtin(b);
                }
                BuiltinKey::Execname => {
                    self.builtin_str(StrBuiltin::Execname);
                }
            }
        }
    }

    /// The clause's time, if it is already fetched.
    pub(crate) fn time_read(&self) -> Option<V> {
        match self.fetches.fetched.get(&BuiltinKey::Int(IntBuiltin::Timestamp)) {
            Some(Fetched::Int(Operand::V(v))) => Some(*v),
            _ => None,
        }
    }

    /// The current block knows the firing's time: uses that it dominates need not read the clock.
    pub(crate) fn know_time(&mut self, time: V) {
        let here = self.block + 1 - self.fetches.first;
        let key = BuiltinKey::Int(IntBuiltin::Timestamp);
        let fetch = self.fetches.points.get(&key);
        if fetch.is_some_and(|fetch| dominates(&self.fetches.idom, here, *fetch)) {
            self.fetches.fetched.entry(key).or_insert(Fetched::Int(Operand::V(time)));
        }
    }

    pub(crate) fn builtin(&mut self, which: IntBuiltin) -> Operand {
        if let Some(Fetched::Int(known)) = self.fetches.fetched.get(&BuiltinKey::Int(which)) {
            return *known;
        }
        let value = self.fetch(which);
        self.fetches.fetched.insert(BuiltinKey::Int(which), Fetched::Int(value));
        value
    }

    fn fetch(&mut self, which: IntBuiltin) -> Operand {
        let (context, ctx) = (self.firing.context, self.firing.ctx);
        let index = self.firing.index;
        Operand::V(match which {
            IntBuiltin::Arg(n) => context.arg(self.b, ctx, index, n),
            IntBuiltin::Errno => context.errno(self.b, ctx, index),
            IntBuiltin::Pid => self.pid_tgid(true),
            IntBuiltin::Tid => self.pid_tgid(false),
            IntBuiltin::Ppid => self.parent(),
            IntBuiltin::Uid => {
                let both = self.b.call(Helper::GET_CURRENT_UID_GID, &[]);
                self.b.low32(both)
            }
            IntBuiltin::Gid => {
                let both = self.b.call(Helper::GET_CURRENT_UID_GID, &[]);
                self.b.shr(both, 32)
            }
            IntBuiltin::Cpu => self.firing.cpu.cpu,
            IntBuiltin::Timestamp => self.firing.clock.read(self.b, &self.firing.cpu),
            IntBuiltin::Walltimestamp => {
                let Operand::V(now) = self.builtin(IntBuiltin::Timestamp) else { return Operand::Imm(0) };
                self.b.add(now, self.env.target.wall_offset)
            }
            IntBuiltin::Epid => return self.epid(),
            IntBuiltin::ProbeId => return self.probe_fact(0),
            IntBuiltin::StackDepth => self.stack_depth(false),
            IntBuiltin::UstackDepth => self.stack_depth(true),
            IntBuiltin::Caller => self.caller(false),
            IntBuiltin::Ucaller => self.caller(true),
            IntBuiltin::Ipl => match self.env.target.preempt_count {
                Some(at) => routines::level_of(self.b, at),
                None => self.b.imm(i64::from(self.env.plan.level)),
            },
            IntBuiltin::Vtimestamp => match self.firing.vtime {
                Some(value) => value,
                None => routines::vtime_frozen(self.b),
            },
            IntBuiltin::UserThread => self.user_thread(),
            IntBuiltin::Ureg(n) => self.user_register(n),
            // A plain number, unlike the result of the BTF-typed helper. The program may do any
            // arithmetic with it.
            IntBuiltin::CurThread => self.b.call(Helper::GET_CURRENT_TASK, &[]),
        })
    }

    /// Id of the enabled probe.
    pub(crate) fn epid(&mut self) -> Operand {
        match self.firing.index {
            Index::Const(i) => Operand::Imm(i64::from(self.epid_base + i)),
            // A subtraction of the negative, because an addition would link the two registers:
            // kernels around 6.12 then lose the bound of the index when a clause compares the sum.
            Index::V(v) => Operand::V(self.b.sub(v, -i64::from(self.epid_base))),
        }
    }

    fn pid_tgid(&mut self, process: bool) -> V {
        if let Some(PidNamespace { dev, ino }) = self.env.target.pid_namespace {
            // { u32 pid, u32 tgid }: zero for tasks outside the namespace.
            let buffer = self.b.stack(8);
            let (dev, ino) = (self.b.imm(dev as i64), self.b.imm(ino as i64));
            let (to, size) = (self.b.slot_addr(buffer, 0), self.b.imm(8));
            self.b.call(Helper::GET_NS_CURRENT_PID_TGID, &[dev, ino, to, size]);
            return self.b.slot_load(Size::B4, buffer, if process { 4 } else { 0 });
        }
        let both = self.b.call(Helper::GET_CURRENT_PID_TGID, &[]);
        if process { self.b.shr(both, 32) } else { self.b.low32(both) }
    }

    /// The current task, typed by BTF where the kernel supports it.
    pub(crate) fn task(&mut self) -> V {
        if let Some(task) = self.fetches.task {
            return task;
        }
        let helper =
            if self.env.target.task_btf { Helper::GET_CURRENT_TASK_BTF } else { Helper::GET_CURRENT_TASK };
        let task = self.b.call(helper, &[]);
        self.fetches.task = Some(task);
        task
    }

    /// The parent's process id in the initial namespace. A process has one id in each namespace.
    /// Finding the parent's id in our namespace takes a walk that the verifier of old kernels does
    /// not accept.
    fn parent(&mut self) -> V {
        let Some(at) = self.env.target.task else { return self.b.imm(0) };
        let task = self.task();
        if self.env.target.task_btf {
            let parent = self.b.load(Size::B8, task, at.real_parent);
            return self.b.load(Size::B4, parent, at.tgid);
        }
        let parent = self.read_kernel(task, at.real_parent, 8);
        self.read_kernel(parent, at.tgid, 4)
    }

    /// A checked read of a kernel word, 0 when the read fails.
    fn read_kernel(&mut self, base: V, off: i16, size: u32) -> V {
        let buffer = self.b.stack(8);
        self.b.slot_store(Size::B8, buffer, 0, 0);
        let from = self.b.add(base, i32::from(off));
        let (to, bytes) = (self.b.slot_addr(buffer, 0), self.b.imm(i64::from(size)));
        self.b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, from]);
        self.b.slot_load(Size::B8, buffer, 0)
    }

    /// The number of innermost frames that belong to the tracer.
    pub(super) fn skipped(&mut self, user: bool) -> Operand {
        if user {
            return Operand::Imm(0);
        }
        let (context, ctx) = (self.firing.context, self.firing.ctx);
        routines::tracer_frames(self.b, self.env.target, context, ctx)
    }

    /// The flags of `bpf_get_stack`: the number of frames to skip, and user or kernel stack.
    fn stack_flags(&mut self, user: bool, skip: u8) -> V {
        const USER_STACK: i64 = 1 << 8;
        let skip = i64::from(skip) | if user { USER_STACK } else { 0 };
        match self.skipped(user) {
            Operand::Imm(own) => self.b.imm(own + skip),
            Operand::V(own) => self.b.add(own, skip),
        }
    }

    /// The address of the stack that the program captured for this function.
    pub(super) fn captured(&mut self, user: bool) -> Option<V> {
        let at = self.firing.captured?.of(user)?;
        let slot = self.slot();
        Some(self.b.add(slot, at))
    }

    fn stack_depth(&mut self, user: bool) -> V {
        if let Some(place) = self.captured(user) {
            return self.b.load(Size::B8, place, 0);
        }
        if !self.firing.context.has_stacks() {
            return self.b.imm(0);
        }
        let ctx = self.firing.ctx;
        let slot = self.slot();
        let at = self.firing.parts.buffer;
        let flags = self.stack_flags(user, 0);
        let b = &mut *self.b;
        let buffer = b.add(slot, at);
        let size = b.imm(i64::from(FRAMES) * 8);
        let bytes = b.call(Helper::GET_STACK, &[ctx, buffer, size, flags]);
        let (depth, done) = (b.var(), b.label());
        b.set(depth, 0);
        b.br(Jmp::Sle, bytes, 0, done);
        let frames = b.shr(bytes, 3);
        b.set(depth, frames);
        b.bind(done);
        depth
    }

    /// The caller of the probed function (for user stacks, the second frame). 0 where there is
    /// none.
    fn caller(&mut self, user: bool) -> V {
        let frame = if user { 1 } else { self.firing.context.caller_frame() };
        if let Some(place) = self.captured(user) {
            let (pc, none) = (self.b.copy(0), self.b.label());
            let count = self.b.load(Size::B8, place, 0);
            self.b.br(Jmp::Le, count, i64::from(frame), none);
            let pc_at = routines::CAPTURED_BUFFER + plane::stacks::PCS + 8 * u32::from(frame);
            let found = self.b.load(Size::B8, place, pc_at as i16);
            self.b.set(pc, found);
            self.b.bind(none);
            return pc;
        }
        if !self.firing.context.has_stacks() {
            return self.b.imm(0);
        }
        let ctx = self.firing.ctx;
        let flags = self.stack_flags(user, frame);
        let b = &mut *self.b;
        let buffer = b.stack(8);
        b.slot_store(Size::B8, buffer, 0, 0);
        let (to, size) = (b.slot_addr(buffer, 0), b.imm(8));
        let bytes = b.call(Helper::GET_STACK, &[ctx, to, size, flags]);
        let (pc, done) = (b.copy(0), b.label());
        b.br(Jmp::Sle, bytes, 0, done);
        let found = b.slot_load(Size::B8, buffer, 0);
        b.set(pc, found);
        b.bind(done);
        pc
    }

    fn user_thread(&mut self) -> V {
        let Some(at) = self.env.target.task else { return self.b.imm(0) };
        let task = self.task();
        let flags = self.b.load(Size::B4, task, at.flags);
        let bit = self.b.shr(flags, arch::PF_KTHREAD_BIT);
        let bit = self.b.and(bit, 1);
        self.b.xor(bit, 1)
    }

    /// `uregs[n]`, under the condition of [`IntBuiltin::UserThread`].
    fn user_register(&mut self, n: u8) -> V {
        let task = self.task();
        if let Some(saved) = arch::UREGS_SAVED.get(usize::from(n)) {
            let regs = self.b.call(Helper::TASK_PT_REGS, &[task]);
            // On kernels with FRED, the word of a segment register has other members in its upper
            // bits.
            let segment = matches!(*saved, arch::regs::CS | arch::regs::SS);
            return self.b.load(if segment { Size::B2 } else { Size::B8 }, regs, *saved);
        }
        let Some(at) = self.env.target.thread else { return self.b.imm(0) };
        let (size, at) = match usize::from(n) - arch::UREGS_SAVED.len() {
            0 => (Size::B2, at.ds),
            1 => (Size::B2, at.es),
            2 => (Size::B2, at.fs),
            3 => (Size::B2, at.gs),
            _ => (Size::B8, at.trap_nr),
        };
        self.b.load(size, task, at)
    }

    pub(crate) fn builtin_str(&mut self, which: StrBuiltin) -> Str {
        let column = match which {
            StrBuiltin::Execname => return self.execname(),
            StrBuiltin::ProbeProv => 1,
            StrBuiltin::ProbeMod => 2,
            StrBuiltin::ProbeFunc => 3,
            StrBuiltin::ProbeName => 4,
        };
        Str::Interned(self.probe_fact(column))
    }

    fn execname(&mut self) -> Str {
        if let Some(Fetched::Words(w0, w1)) = self.fetches.fetched.get(&BuiltinKey::Execname) {
            return Str::Comm(*w0, *w1);
        }
        let words = match self.env.target.task {
            Some(at) if self.env.target.task_btf => {
                let task = self.task();
                (self.b.load(Size::B8, task, at.comm), self.b.load(Size::B8, task, at.comm + 8))
            }
            _ => {
                let buffer = self.b.stack(16);
                let (to, size) = (self.b.slot_addr(buffer, 0), self.b.imm(16));
                self.b.call(Helper::GET_CURRENT_COMM, &[to, size]);
                (self.b.slot_load(Size::B8, buffer, 0), self.b.slot_load(Size::B8, buffer, 8))
            }
        };
        let (mut w0, mut w1) = cut(self.b, words);
        if self.env.module.strsize < 16 {
            // At most what a string of one word holds.
            w0 = self.b.and(w0, i64::MAX >> 7);
            w1 = self.b.imm(0);
        }
        self.fetches.fetched.insert(BuiltinKey::Execname, Fetched::Words(w0, w1));
        Str::Comm(w0, w1)
    }

    /// A fact about the probe: column 0 is the id, columns 1 to 4 are the interned parts of the
    /// name.
    fn probe_fact(&mut self, column: usize) -> Operand {
        let facts = self.firing.probes;
        let fact = |p: &crate::program::Probe| match column {
            0 => p.id,
            n => p.names[n - 1],
        };
        match self.firing.index {
            Index::Const(i) => Operand::Imm(i64::from(facts.get(i as usize).map_or(0, fact))),
            Index::V(index) => {
                let first = facts.first().map_or(0, fact);
                if facts.iter().all(|p| fact(p) == first) {
                    return Operand::Imm(i64::from(first));
                }
                let Some(table) = self.firing.table else { return Operand::Imm(0) };
                Operand::V(table.fact(self.b, index, column))
            }
        }
    }
}

/// The words of a comm, zeroed behind the NUL. Kernels leave other bytes there, and the helper of
/// 6.1 copies them. The code has no branch, so that the rest of the clause is verified once.
fn cut(b: &mut Builder, (w0, w1): (V, V)) -> (V, V) {
    // The lowest 0x80 marks the NUL. The bytes below it stay. Without a NUL the mask is 0 - 1, so
    // all bytes stay.
    let mut mark = |w: V| {
        let zero = zero_bytes(b, w);
        let minus = b.neg(zero);
        b.and(zero, minus)
    };
    let (in_first, in_second) = (mark(w0), mark(w1));
    let mut below = |w: V, mark: V| {
        let bit = b.shr(mark, 7);
        let keep = b.sub(bit, 1);
        b.and(w, keep)
    };
    let (first, second) = (below(w0, in_first), below(w1, in_second));
    // The lowest bit minus one is negative only when there is no bit.
    let none = b.sub(in_first, 1);
    let none = b.sar(none, 63);
    (first, b.and(second, none))
}

impl crate::program::ProbeTable {
    /// Column `column` of row `index`. The program's prologue has tested the bound of `index`.
    pub(crate) fn fact(&self, b: &mut Builder, index: V, column: usize) -> V {
        let base = b.map_value(MapRef::Table(self.number), self.rows + 4 * column as u32);
        let off = b.alu(Alu::Mul, index, self.stride);
        let row = b.add(base, off);
        b.load(Size::B4, row, 0)
    }
}
