//! Built-in variables: arguments, ids, clocks, names.
//!
//! The decision that shapes this module: a builtin is fetched once per clause, in the last block
//! that dominates all its uses. A predicate that fails therefore pays for nothing behind it,
//! `timestamp` is the same in the whole clause, and an argument that is used five times is loaded
//! once.

use dif::ir::{FaultKind, InstData, IntBuiltin, StrBuiltin, Value};
use plane::stacks;
use plane::unwind::INCOMPLETE;

use super::clause::{Clause, Str, Val, Walks};
use super::fetch::{BuiltinKey, Fetched, dominates};
use super::int::extend;
use crate::arch;
use crate::context::Index;
use crate::mir::{Builder, Helper, Label, Operand, Size, V};
use crate::routines::words::zero_bytes;
use crate::routines::{self, Numbered, ThreadRef, ThreadStorage, Walk};
use crate::target::{PidNamespace, WalkMode};

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
            IntBuiltin::Arg(n) if context.is_in_memory(n) => {
                let at = self.b.copy(0);
                let bad = self.fault_with(FaultKind::BadAddr, |b, value| b.set(value, at));
                context.operand(self.b, ctx, n, at, bad)
            }
            IntBuiltin::Arg(n) => context.arg(self.b, ctx, index, n),
            IntBuiltin::Errno => context.errno(self.b, ctx, index),
            IntBuiltin::Pid => self.number(Numbered::Process),
            IntBuiltin::Tid => self.number(Numbered::Thread),
            IntBuiltin::Ppid => self.parent(),
            IntBuiltin::Uid => {
                let both = self.b.call(Helper::GET_CURRENT_UID_GID, &[]);
                self.b.low32(both)
            }
            IntBuiltin::Gid => {
                let both = self.b.call(Helper::GET_CURRENT_UID_GID, &[]);
                self.b.shr(both, 32)
            }
            // A value of its own for the verifier. What it learns of a sum of a copy
            // (`cpu + 1 == x`) it applies to the others, and 6.12's forgets their bounds then: that
            // of the index which finds this CPU's ring.
            IntBuiltin::Cpu => self.b.and(self.firing.cpu.cpu, i32::MAX),
            IntBuiltin::Timestamp => self.firing.clock.read(self.b, &self.firing.cpu),
            IntBuiltin::Walltimestamp => {
                let Operand::V(now) = self.builtin(IntBuiltin::Timestamp) else { return Operand::Imm(0) };
                self.b.add(now, self.env.target.wall_offset)
            }
            IntBuiltin::Epid => return self.compared_epid(),
            IntBuiltin::ProbeId => return self.probe_fact(0),
            IntBuiltin::ProviderPid if context.is_of_any_process() => self.number(Numbered::Process),
            IntBuiltin::ProviderPid => return self.probe_fact(5),
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

    /// Id of the enabled probe, as a value that a clause may compare.
    ///
    /// Kernels from 6.18 link the sum with the index also where it is a subtraction. A comparison
    /// that cannot hold then gives the index bounds that it does not have. Shifts end the link.
    fn compared_epid(&mut self) -> Operand {
        match self.epid() {
            Operand::V(id) => {
                let above = self.b.shl(id, 1);
                Operand::V(self.b.shr(above, 1))
            }
            constant => constant,
        }
    }

    /// Id of the enabled probe.
    pub(crate) fn epid(&mut self) -> Operand {
        match self.firing.index {
            Index::Const(i) => Operand::Imm(i64::from(self.epid_base + i)),
            // A subtraction of the negative, because an addition would link the two registers:
            // kernels around 6.12 then lose the bound of the index when a clause compares the sum.
            Index::V(v) => Operand::V(self.b.sub(v, -i64::from(self.epid_base))),
            Index::Row { at, .. } => {
                let first = routines::row_epid(self.b, at);
                Operand::V(self.b.sub(first, -i64::from(self.epid_base)))
            }
        }
    }

    fn number(&mut self, of: Numbered) -> V {
        routines::current_number(self.b, self.env.target, of)
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

    /// Emits a direct load of a number of the task, if that is possible.
    pub(crate) fn load_of_task(&mut self, inst: &InstData, size: u8, signed: bool, addr: Value) -> bool {
        let Some(at) = self.tasks.direct(addr, size, self.env.target) else { return false };
        let Some(width) = Size::of(u32::from(size)) else { return false };
        let task = self.task();
        let raw = self.b.load(width, task, at);
        let value = match signed && size < 8 {
            true => extend(self.b, size * 8, true, raw),
            false => raw,
        };
        self.set(inst, Val::Int(Operand::V(value)));
        true
    }

    /// The parent's process id; 0 if it has none in the tracer's namespace.
    fn parent(&mut self) -> V {
        let Some(at) = self.env.target.task else { return self.b.imm(0) };
        let (task, typed) = (self.task(), self.env.target.task_btf);
        let parent = match typed {
            true => self.b.load(Size::B8, task, at.real_parent),
            false => self.read_kernel(task, at.real_parent, 8),
        };
        match self.env.target.pid_namespace {
            Some(PidNamespace { ino, numbers: Some(numbers), .. }) => {
                routines::number_of(self.b, (parent, typed), Numbered::Process, ino, numbers)
            }
            Some(_) => self.b.imm(0),
            None if typed => self.b.load(Size::B4, parent, at.tgid),
            None => self.read_kernel(parent, at.tgid, 4),
        }
    }

    /// The generation of the current process; 0 where it is not known.
    pub(super) fn generation(&mut self) -> Operand {
        let Some(at) = self.env.target.generation else { return Operand::Imm(0) };
        let task = self.task();
        let (start, execs) = if self.env.target.task_btf {
            let leader = self.b.load(Size::B8, task, at.leader);
            (self.b.load(Size::B8, leader, at.start), self.b.load(Size::B8, task, at.execs))
        } else {
            let leader = self.read_kernel(task, at.leader, 8);
            (self.read_kernel(leader, at.start, 8), self.read_kernel(task, at.execs, 8))
        };
        Operand::V(routines::generation(self.b, start, execs))
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

    /// The address of the firing's stack, walked here unless that is done; `None` where this
    /// context has no stacks.
    pub(super) fn walked(&mut self, user: bool) -> Option<V> {
        let area = self.env.layout.stacks.of(user)?;
        let walks = self.firing.walks.of(user);
        if walks != Walks::Done && !self.firing.context.has_stacks() {
            return None;
        }
        let slot = self.slot();
        let place = self.b.add(slot, area.at);
        let (target, context, ctx) = (self.env.target, self.firing.context, self.firing.ctx);
        let what =
            Walk { target, context, ctx, user, plan: self.env.plan, frames: area.frames, calls: area.calls };
        match walks {
            Walks::Here => routines::walk(self.b, place, &what),
            Walks::Once => routines::walk_once(self.b, place, &what),
            Walks::Done => {}
        }
        Some(place)
    }

    /// The marks that can be behind the last frame of a walked stack, and are none.
    fn marks(&self, user: bool) -> &'static [u64] {
        match (user, self.env.target.kernel_walk.map(|walk| walk.mode)) {
            (true, _) if self.env.plan.unwind => &[INCOMPLETE],
            (true, _) | (false, None | Some(WalkMode::Auto)) => &[],
            (false, Some(WalkMode::Own)) => &[INCOMPLETE],
            (false, Some(WalkMode::Check)) => &[INCOMPLETE, stacks::DIFFERS],
        }
    }

    fn stack_depth(&mut self, user: bool) -> V {
        match self.walked(user) {
            Some(place) => routines::stack_depth(self.b, place, self.marks(user)),
            None => self.b.imm(0),
        }
    }

    /// The caller of the probed function. 0 where there is none.
    fn caller(&mut self, user: bool) -> V {
        let context = self.firing.context;
        let frame = if user { context.user_caller_frame() } else { context.caller_frame() };
        match self.walked(user) {
            Some(place) => routines::stack_frame(self.b, place, frame, self.marks(user)),
            None => self.b.imm(0),
        }
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
        let machine = self.b.machine();
        if let Some((saved, bytes)) = machine.uregs.get(usize::from(n)) {
            let regs = self.b.call(Helper::TASK_PT_REGS, &[task]);
            let value = self.b.load(if *bytes == 2 { Size::B2 } else { Size::B8 }, regs, *saved);
            return match *saved == machine.ip {
                true => match self.firing.context.moved_by(self.b, self.firing.ctx) {
                    Some(moved) => self.b.sub(value, moved),
                    None => value,
                },
                false => value,
            };
        }
        let Some(at) = self.env.target.thread else { return self.b.imm(0) };
        let (size, at) = match usize::from(n) - machine.uregs.len() {
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
        // At most what a string holds.
        let longest = self.env.module.strsize.saturating_sub(1);
        let kept = |bytes: u32| i64::from_le_bytes((u64::MAX >> (64 - 8 * bytes)).to_le_bytes());
        match longest {
            0 => (w0, w1) = (self.b.imm(0), self.b.imm(0)),
            1..=7 => (w0, w1) = (self.b.and(w0, kept(longest)), self.b.imm(0)),
            8 => w1 = self.b.imm(0),
            9..=14 => w1 = self.b.and(w1, kept(longest - 8)),
            _ => {}
        }
        self.fetches.fetched.insert(BuiltinKey::Execname, Fetched::Words(w0, w1));
        Str::Comm(w0, w1)
    }

    /// A fact about the probe: column 0 is the id, columns 1 to 4 are the interned parts of the
    /// name, column 5 is the process of the provider.
    fn probe_fact(&mut self, column: usize) -> Operand {
        let facts = self.firing.probes;
        let fact = |p: &crate::context::Probe| match column {
            0 => p.id,
            5 => p.pid,
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
            Index::Row { at, .. } => Operand::V(routines::row_fact(self.b, at, column)),
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
