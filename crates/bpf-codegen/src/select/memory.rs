//! Memory access: loads and stores through pointers, objects. [`super::scratch`] takes scratch
//! memory.
//!
//! Where the code shows which variable contains an address ([`Val::Place`]), an access is a load or
//! store at the variable's storage, behind one comparison when the offset is computed. An access to
//! scratch memory takes two comparisons. Any other address is classified at run time: a negative
//! number is kernel memory, and a function looks up all others ([`crate::routines::resolve`]).
//!
//! ARCH(x86-64): the vsyscall page is among the last addresses. The kernel's compiler of programs
//! lets no load reach memory of a process.

use dif::ir::{FaultKind, InstData, Scope, Space, Ty, Value, VarId};
use dif::memory::{SCRATCH, address};

use super::clause::{Clause, Str, Val};
use super::int::extend;
use crate::error::Result;
use crate::mir::{Alu, Helper, Jmp, Label, MapRef, Operand, Size, V};
use crate::plan::VarPlan;
use crate::routines::{self, AddressSpace, InSlot, LookupState, Object, ObjectLocation, ThreadStorage};
use crate::select::d_memory::FRAME_ADDRESS;

/// In the last addresses, which differ only in so many bits, there are no objects of the kernel,
/// but the vsyscall page, whose direct load older kernels do not survive.
const LAST_BITS: i32 = 24;

/// The source of a read: an address for the kernel's helpers, and which helper.
struct Source {
    at: V,
    user: bool,
    /// Number of bytes up to the end, for D memory.
    left: Option<Operand>,
}

impl Clause<'_, '_> {
    fn address_space(&self) -> AddressSpace {
        let (module, plan, layout) = (self.env.module, self.env.plan, self.env.layout);
        let has_slot = self.firing.slot.is_some();
        let objects = (0u32..).map(VarId).zip(&module.vars).filter_map(|(id, v)| {
            let size = module.object_size(id).filter(|_| v.key.is_none())?;
            let location = match plan.vars.get(id.0 as usize)? {
                VarPlan::Global(at) => ObjectLocation::Map(MapRef::Globals, *at),
                VarPlan::GlobalAlone(_) => ObjectLocation::Map(MapRef::Var(id.0), 0),
                VarPlan::Thread(at) => ObjectLocation::Thread(ThreadStorage::Common, *at),
                VarPlan::ThreadAlone(shape) => ObjectLocation::Thread(ThreadStorage::Alone(id.0, *shape), 0),
                VarPlan::Clause if has_slot && layout.d_memory.word > self.firing.parts.objects => {
                    ObjectLocation::Slot(
                        self.firing.parts.objects + layout.this.get(id.0 as usize).copied()??,
                    )
                }
                VarPlan::Clause | VarPlan::Assoc(_) => return None,
            };
            Some(Object { high: (address(v.scope, id) >> 32) as u32, size, location })
        });
        AddressSpace {
            name: if self.firing.in_error { "_error" } else { "" },
            objects: objects.collect(),
            word: layout.d_memory.word,
            stage: layout.d_memory.stage,
            scratch: layout.d_memory.scratch,
            cap: layout.d_memory.cap,
            origin: layout.d_memory.frame.map(|at| at + FRAME_ADDRESS),
        }
    }

    /// The state of the firing that a look-up needs. `scratch` says whether scratch memory is
    /// searched.
    fn lookup(&mut self, scratch: bool) -> LookupState {
        let top = if scratch { self.top } else { Operand::Imm(0) };
        let top = self.b.reg(top);
        LookupState { slot: self.slot_ref().number, top }
    }

    fn space(&self, addr: Value) -> Space {
        match self.f.values[addr.0 as usize] {
            Ty::Ptr(space) => space,
            Ty::Int | Ty::Str => Space::Unknown,
        }
    }

    /// The fault label of an access to this address.
    fn bad(&mut self, addr: Value) -> Label {
        if let Some(Val::Place(var, at, more)) = self.values[addr.0 as usize] {
            let start = address(self.env.module.vars[var.0 as usize].scope, var) as i64;
            return self.fault_with(FaultKind::BadAddr, |b, value| {
                b.set(value, start.wrapping_add(at));
                if let Some(more) = more {
                    b.update(Alu::Add, value, more);
                }
            });
        }
        let at = self.int(addr);
        self.fault(FaultKind::BadAddr, at)
    }

    /// Jumps to `bad` always, in a form that leaves the code behind reachable for the verifier.
    fn never(&mut self, bad: Label) {
        let zero = self.b.imm(0);
        self.b.br(Jmp::Eq, zero, 0, bad);
    }

    // ---- places in variables

    /// The address of an object, as base and offset. Jumps to `missing` when the thread has no
    /// variables.
    fn storage(&mut self, var: VarId, create: bool, missing: Label) -> (V, u32) {
        match self.env.plan.vars[var.0 as usize] {
            VarPlan::Global(at) => (self.b.map_value(MapRef::Globals, at), 0),
            VarPlan::Thread(at) => match self.self_vars(ThreadStorage::Common, create, missing) {
                Some(thread) => (thread.vars, at),
                None => (self.b.imm(0), 0),
            },
            VarPlan::ThreadAlone(shape) => {
                match self.self_vars(ThreadStorage::Alone(var.0, shape), create, missing) {
                    Some(thread) => (thread.vars, 0),
                    None => (self.b.imm(0), 0),
                }
            }
            VarPlan::Clause => {
                let at = self.env.layout.this[var.0 as usize].unwrap_or(0);
                (self.slot(), self.firing.parts.objects + at)
            }
            VarPlan::GlobalAlone(_) | VarPlan::Assoc(_) => (self.b.map_value(MapRef::Var(var.0), 0), 0),
        }
    }

    /// A pointer to `bytes` bytes in a variable, with an offset for the instruction. Jumps to `bad`
    /// when they are not all inside.
    fn object_place(
        &mut self,
        (var, at, more): (VarId, i64, Option<V>),
        bytes: u32,
        create: bool,
        (bad, missing): (Label, Label),
    ) -> (V, i16) {
        let size = self.env.module.object_size(var).unwrap_or(0);
        let last = i64::from(size) - i64::from(bytes);
        let mut known = at;
        if last < 0 || more.is_none() && !(0..=last).contains(&at) {
            self.never(bad);
            known = 0;
        }
        let off = more.map(|more| {
            let off = self.b.add(more, at);
            self.b.br(Jmp::Gt, off, last.max(0), bad);
            known = 0;
            off
        });
        let (base, start) = self.storage(var, create, missing);
        let at = i64::from(start) + known;
        let base = off.map_or(base, |off| self.b.add(base, off));
        match i16::try_from(at) {
            Ok(at) if at < i16::MAX - 8 => (base, at),
            _ => (self.b.add(base, at), 0),
        }
    }

    /// A pointer to `bytes` bytes of scratch memory.
    fn scratch_place(&mut self, addr: V, bytes: u32, bad: Label) -> V {
        let (cap, at) = (self.env.layout.d_memory.cap, self.env.layout.d_memory.scratch);
        let start = self.b.reg(self.origin);
        let off = self.b.sub(addr, start);
        if cap < bytes {
            self.never(bad);
        }
        self.b.br(Jmp::Gt, off, cap.saturating_sub(bytes), bad);
        let end = self.b.add(off, bytes);
        let top = self.top;
        let over = self.b.reg(top);
        self.b.br(Jmp::Gt, end, over, bad);
        let slot = self.slot();
        let first = self.b.add(slot, at);
        self.b.add(first, off)
    }

    // ---- loads and stores

    pub(crate) fn load(&mut self, inst: &InstData, size: u8, signed: bool, addr: Value) -> Result<()> {
        if self.load_of_task(inst, size, signed, addr) {
            return Ok(());
        }
        let w = Size::of(u32::from(size)).unwrap_or(Size::B8);
        let bad = self.bad(addr);
        let raw = match (self.values[addr.0 as usize], self.space(addr)) {
            (Some(Val::Place(var, at, more)), _) => {
                let (missing, done) = (self.b.label(), self.b.label());
                let (base, off) = self.object_place((var, at, more), u32::from(size), false, (bad, missing));
                let loaded = self.b.load(w, base, off);
                if self.env.module.vars[var.0 as usize].scope == Scope::Thread {
                    let raw = self.b.copy(loaded);
                    self.b.out_of_line(|b| {
                        b.bind(missing);
                        b.set(raw, 0);
                        b.jmp(done);
                    });
                    self.b.bind(done);
                    raw
                } else {
                    loaded
                }
            }
            (_, Space::Scratch) => {
                let addr = self.reg(addr);
                let pointer = self.scratch_place(addr, u32::from(size), bad);
                self.b.load(w, pointer, 0)
            }
            _ => {
                let len = Operand::Imm(i64::from(size));
                let source = self.source(addr, len, bad, false);
                self.read_number(w, &source, bad)
            }
        };
        let value = if signed && size < 8 { extend(self.b, size * 8, true, raw) } else { raw };
        self.set(inst, Val::Int(Operand::V(value)));
        Ok(())
    }

    pub(crate) fn load_str(&mut self, inst: &InstData, addr: Value, max: Option<Value>) -> Result<()> {
        let bad = self.bad(addr);
        let Some(result) = inst.result else { return Ok(()) };
        let temp = self.temp(result);
        let Str::Bytes(base, off) = temp else { return Ok(()) };
        let longest = i64::from(self.env.module.strsize) - 1;
        let source = self.source(addr, Operand::Imm(1), bad, true);
        let max = match max.map(|m| self.int(m)) {
            None => Operand::Imm(longest),
            Some(Operand::Imm(m)) => Operand::Imm((m as u64).min(longest as u64) as i64),
            some => some.unwrap_or(Operand::Imm(longest)),
        };
        let mut limit = max;
        if let Some(left) = source.left {
            let (m, within) = (self.b.copy(max), self.b.label());
            self.b.br(Jmp::Le, m, left, within);
            self.b.set(m, left);
            self.b.bind(within);
            limit = Operand::V(m);
        }
        self.load_string(source.at, source.user, limit, base, off, bad);
        self.set(inst, Val::Str(temp));
        Ok(())
    }

    pub(crate) fn store_mem(&mut self, size: u8, addr: Value, value: Value) {
        let w = Size::of(u32::from(size)).unwrap_or(Size::B8);
        let bad = self.bad(addr);
        let missing = self.b.label();
        let bits = match self.int(value) {
            Operand::Imm(i) => Operand::Imm(dif::eval::ext(size * 8, true, i)),
            other => other,
        };
        match (self.values[addr.0 as usize], self.space(addr)) {
            (Some(Val::Place(var, at, more)), _) => {
                let (base, off) = self.object_place((var, at, more), u32::from(size), true, (bad, missing));
                self.b.store(w, base, off, bits);
            }
            (_, Space::Scratch) => {
                let addr = self.reg(addr);
                let pointer = self.scratch_place(addr, u32::from(size), bad);
                self.b.store(w, pointer, 0, bits);
            }
            (_, space @ (Space::Unknown | Space::Static)) if self.env.layout.has_d_memory => {
                let (addr, bits) = (self.reg(addr), self.b.reg(bits));
                let (areas, at) = (self.address_space(), self.lookup(space == Space::Unknown));
                let done = routines::store(self.b, self.env.plan, &areas, (addr, w), bits, at);
                self.b.br(Jmp::Eq, done, 0, bad);
            }
            // Other addresses cannot be written.
            _ => self.never(bad),
        }
        self.b.bind(missing);
    }

    // ---- reading any number of bytes

    /// The source of a read of `len` bytes. Jumps to `bad` when they certainly cannot be read. With
    /// `left`, the source also says how many bytes D memory has there.
    fn source(&mut self, addr: Value, len: Operand, bad: Label, left: bool) -> Source {
        if let Some(Val::Place(var, at, more)) = self.values[addr.0 as usize] {
            let size = i64::from(self.env.module.object_size(var).unwrap_or(0));
            let bytes = match len {
                Operand::Imm(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX),
                Operand::V(len) => {
                    self.b.br(Jmp::Gt, len, size, bad);
                    let end = match more {
                        Some(more) => self.b.add(more, len),
                        None => len,
                    };
                    let end = self.b.add(end, at);
                    self.b.br(Jmp::Gt, end, size, bad);
                    0
                }
            };
            // A thread without variables gets them, zeroed. Where that fails, the failure is
            // counted and the read faults.
            let (base, off) = self.object_place((var, at, more), bytes, true, (bad, bad));
            let rest = left.then(|| match more {
                None => Operand::Imm((size - at).max(0)),
                Some(more) => {
                    let all = self.b.imm(size - at);
                    Operand::V(self.b.sub(all, more))
                }
            });
            let at = self.b.add(base, i32::from(off));
            return Source { at, user: false, left: rest };
        }
        let space = self.space(addr);
        let address = self.reg(addr);
        match space {
            Space::User => Source { at: address, user: true, left: None },
            Space::Kernel => Source { at: address, user: false, left: None },
            Space::Scratch => {
                let (cap, at) = (self.env.layout.d_memory.cap, self.env.layout.d_memory.scratch);
                let (start, top) = (self.b.reg(self.origin), self.top);
                let off = self.b.sub(address, start);
                self.b.br(Jmp::Gt, off, cap, bad);
                // Clamped to the maximum, so that the sum does not overflow.
                match len {
                    Operand::V(len) => self.b.br(Jmp::Gt, len, cap, bad),
                    Operand::Imm(_) => {}
                }
                let end = self.b.add(off, len);
                let top = self.b.reg(top);
                self.b.br(Jmp::Gt, end, top, bad);
                let rest = left.then(|| Operand::V(self.b.sub(top, off)));
                if self.firing.slot.is_none() {
                    return Source { at: address, user: false, left: rest };
                }
                let slot = self.slot();
                let first = self.b.add(slot, at);
                Source { at: self.b.add(first, off), user: false, left: rest }
            }
            Space::Static | Space::Unknown if self.env.layout.has_d_memory => {
                let (at, rest) = (self.b.copy(address), self.b.copy(i64::from(i32::MAX)));
                let found = self.b.label();
                let kernel = if space == Space::Unknown { found } else { bad };
                self.b.br(Jmp::Slt, address, 0, kernel);
                let (areas, lookup) = (self.address_space(), self.lookup(space == Space::Unknown));
                let len = self.b.reg(len);
                let number = routines::resolve(self.b, self.env.plan, &areas, address, len, lookup);
                self.b.br(Jmp::Eq, number, 0, bad);
                self.b.set(at, number);
                if left {
                    let slot = self.slot();
                    let words = self.b.add(slot, areas.word);
                    let known = self.b.load(Size::B8, words, 8);
                    self.b.set(rest, known);
                }
                self.b.bind(found);
                Source { at, user: false, left: left.then_some(Operand::V(rest)) }
            }
            Space::Static | Space::Unknown => {
                self.b.br(Jmp::Sge, address, 0, bad);
                if space == Space::Static {
                    self.never(bad);
                }
                Source { at: address, user: false, left: None }
            }
        }
    }

    /// Reads into memory whose bounds the verifier knows.
    fn read(&mut self, dst: V, len: Operand, source: &Source, bad: Label) {
        let len = self.b.reg(len);
        let helper = if source.user { Helper::PROBE_READ_USER } else { Helper::PROBE_READ_KERNEL };
        let failed = self.b.call(helper, &[dst, len, source.at]);
        self.b.br(Jmp::Ne, failed, 0, bad);
    }

    /// Reads a number.
    ///
    /// Where programs can load from kernel memory directly, they do, and use the helper only where
    /// that gives 0: 0 is also what such a load gives for memory that cannot be read. The helper
    /// takes many times the time of the load.
    fn read_number(&mut self, w: Size, source: &Source, bad: Label) -> V {
        let raw = self.b.var();
        let done = self.b.label();
        if let Some(direct) = self.env.target.direct_load.filter(|_| !source.user) {
            // 0 instead of an address among the last, without a branch: each makes the verifier's
            // work more.
            let end = self.b.sar(source.at, LAST_BITS);
            let end = self.b.add(end, 1);
            let negative = self.b.neg(end);
            let other = self.b.or(end, negative);
            let mask = self.b.sar(other, 63);
            let at = self.b.and(source.at, mask);
            let number = self.b.imm(i64::from(direct.number));
            let pointer = self.b.kfunc(direct.cast, &[at, number]);
            let loaded = self.b.load(w, pointer, 0);
            self.b.set(raw, loaded);
            // The helper is not out of line: so the verifier first follows the path on which it
            // knows less of the number, and need not follow the other one to the end of the
            // program.
            self.b.br(Jmp::Ne, raw, 0, done);
        }
        let buffer = self.b.stack(8);
        let dst = self.b.slot_addr(buffer, 0);
        self.read(dst, Operand::Imm(w.bytes().into()), source, bad);
        let loaded = self.b.slot_load(w, buffer, 0);
        self.b.set(raw, loaded);
        self.b.bind(done);
        raw
    }

    /// Reads `count` bytes at an address into memory whose bounds the verifier knows. Faults when
    /// they cannot be read.
    pub(crate) fn read_bytes(&mut self, dst: V, addr: Value, count: i64) {
        let bad = self.bad(addr);
        let len = Operand::Imm(count);
        let source = self.source(addr, len, bad, false);
        self.read(dst, len, &source, bad);
    }

    /// The same for a length in a register that is known to fit that memory.
    pub(crate) fn read_some(&mut self, dst: V, addr: Value, len: V) {
        let bad = self.bad(addr);
        let source = self.source(addr, Operand::V(len), bad, false);
        self.read(dst, Operand::V(len), &source, bad);
    }

    pub(crate) fn record_bytes(&mut self, field: dif::ir::Field, addr: Value, len: Option<Value>) {
        let Some(record) = self.record else { return };
        let bad = self.bad(addr);
        let all = i64::from(field.datum.size());
        let len = match len.map(|len| self.int(len)) {
            None => Operand::Imm(all),
            Some(Operand::Imm(n)) => Operand::Imm(if (1..all).contains(&n) { n } else { all }),
            // The free bytes of a ring are zero.
            Some(Operand::V(n)) => {
                let (len, whole, done) = (self.b.copy(n), self.b.label(), self.b.label());
                self.b.br(Jmp::Eq, len, 0, whole);
                self.b.br(Jmp::Gt, len, all, whole);
                self.b.out_of_line(|b| {
                    b.bind(whole);
                    b.set(len, all);
                    b.jmp(done);
                });
                self.b.bind(done);
                Operand::V(len)
            }
        };
        let source = self.source(addr, len, bad, false);
        let dst = self.b.add(record.header, plane::ring::HEADER_SIZE + field.offset);
        self.read(dst, len, &source, bad);
    }

    pub(crate) fn str_addr(&mut self, inst: &InstData, value: Value, at: u32) {
        let s = self.string(value);
        let to = self.fixed_place(at);
        self.write_string(s, to, 0, self.env.module.string_storage(), false);
        self.fixed(inst, at);
    }

    pub(crate) fn copy_elem(&mut self, inst: &InstData, var: VarId, key: &[Value], at: u32) {
        let (missing, done) = (self.b.label(), self.b.label());
        let (plan, cpu) = (self.env.plan, self.firing.cpu);
        let bytes = self.env.module.object_size(var).unwrap_or(0).div_ceil(8) * 8;
        // Computed before any jump to `missing`.
        let to = self.fixed_place(at);
        let key = self.array_key(var, key, false, missing);
        routines::assoc_load_bytes(self.b, plan, &cpu, var, key.key(), to);
        self.b.out_of_line(|b| {
            b.bind(missing);
            crate::routines::words::zero(b, to, 0, bytes);
            b.jmp(done);
        });
        self.b.bind(done);
        self.fixed(inst, at);
    }

    pub(crate) fn copy_obj(&mut self, inst: &InstData, addr: Value, size: u32, at: u32) {
        let bad = self.bad(addr);
        let to = self.fixed_place(at);
        if !size.is_multiple_of(8) {
            let last = self.b.add(to, size / 8 * 8);
            self.b.store(Size::B8, last, 0, 0);
        }
        let len = Operand::Imm(i64::from(size));
        let source = self.source(addr, len, bad, false);
        self.read(to, len, &source, bad);
        let address = self.fixed_address(at);
        self.set(inst, Val::Int(address));
    }

    /// The offset of the copy that a value is the address of: see [`dif::ir::Op::CopyObj`].
    pub(crate) fn copied_object(&mut self, v: Value) -> V {
        let made = |i: &InstData| match i.op {
            dif::ir::Op::CopyObj { at, .. } if i.result == Some(v) => Some(at),
            _ => None,
        };
        let at = match self.int(v) {
            Operand::Imm(address) => (address as u64).wrapping_sub(SCRATCH) as u32,
            // Behind what other clauses keep, or the value was defined in another segment of the
            // clause.
            Operand::V(_) => self.f.instructions().find_map(|(_, i)| made(i)).unwrap_or(0),
        };
        self.fixed_place(at)
    }

    pub(crate) fn store_obj(&mut self, var: VarId, key: &[Value], addr: Value) {
        let bad = self.bad(addr);
        let size = self.env.module.object_size(var).unwrap_or(0);
        let image = InSlot { slot: self.slot_ref(), offset: self.firing.parts.image };
        let data = self.firing.parts.image + plane::assoc::DATA;
        let to = self.b.add(image.slot.address, data);
        if !size.is_multiple_of(8) {
            self.b.store(Size::B8, to, (size / 8 * 8) as i16, 0);
        }
        let len = Operand::Imm(i64::from(size));
        let source = self.source(addr, len, bad, false);
        self.read(to, len, &source, bad);
        let missing = self.b.label();
        let (plan, cpu) = (self.env.plan, self.firing.cpu);
        let key = self.array_key(var, key, true, missing);
        routines::assoc_store_bytes(self.b, plan, &cpu, var, key.key(), (to, false), image);
        self.b.bind(missing);
    }

    pub(crate) fn copy(&mut self, dst: Value, src: Value, len: Value) {
        // What this path fetches is unknown on the paths around it.
        let known = self.fetches.known_thread();
        self.copy_checked(dst, src, len);
        self.fetches.restore_thread(known);
    }

    fn copy_checked(&mut self, dst: Value, src: Value, len: Value) {
        let (bad_dst, bad_src, done) = (self.bad(dst), self.bad(src), self.b.label());
        let len = self.int(len);
        let d_memory = self.env.layout.d_memory;
        match (self.values[dst.0 as usize], self.space(dst), len) {
            (_, Space::Scratch, len) => {
                let to = self.reg(dst);
                let start = self.b.reg(self.origin);
                let off = self.b.sub(to, start);
                let len = match len {
                    Operand::Imm(0) => return,
                    Operand::Imm(n) if n as u64 <= u64::from(d_memory.each) => {
                        // A constant length does not need the second part.
                        self.b.br(Jmp::Gt, off, d_memory.cap - n as u32, bad_dst);
                        Operand::Imm(n)
                    }
                    Operand::Imm(_) => {
                        self.never(bad_dst);
                        self.b.br(Jmp::Gt, off, 0, bad_dst);
                        Operand::Imm(0)
                    }
                    Operand::V(len) => {
                        self.b.br(Jmp::Eq, len, 0, done);
                        self.b.br(Jmp::Gt, len, d_memory.each, bad_dst);
                        self.b.br(Jmp::Gt, off, d_memory.cap, bad_dst);
                        Operand::V(len)
                    }
                };
                let end = self.b.add(off, len);
                let top = self.top;
                let top = self.b.reg(top);
                self.b.br(Jmp::Gt, end, top, bad_dst);
                if d_memory.cap > 0 {
                    let source = self.source(src, len, bad_src, false);
                    let slot = self.slot();
                    let first = self.b.add(slot, d_memory.scratch);
                    let to = self.b.add(first, off);
                    self.read(to, len, &source, bad_src);
                }
            }
            (Some(Val::Place(var, at, more)), _, Operand::Imm(n)) => {
                // Within one object the bytes may overlap. A copy from another object cannot fail
                // half way.
                let direct = matches!(self.values[src.0 as usize], Some(Val::Place(from, ..)) if from != var);
                // The destination is checked first. A source that cannot be read must leave the
                // destination unchanged.
                let (base, off) = self.object_place((var, at, more), n as u32, true, (bad_dst, done));
                let source = self.source(src, len, bad_src, false);
                let to = self.b.add(base, i32::from(off));
                if direct {
                    self.read(to, len, &source, bad_src);
                } else {
                    let stage = self.stage(len, &source, bad_src);
                    let len = self.b.reg(len);
                    self.b.call(Helper::PROBE_READ_KERNEL, &[to, len, stage]);
                }
            }
            (_, space @ (Space::Unknown | Space::Static), Operand::Imm(n))
                if self.env.layout.has_d_memory =>
            {
                let to = self.reg(dst);
                let (areas, at) = (self.address_space(), self.lookup(space == Space::Unknown));
                let plan = self.env.plan;
                let bytes = self.b.imm(n);
                self.b.br(Jmp::Slt, to, 0, bad_dst);
                let known = routines::resolve(self.b, plan, &areas, to, bytes, at);
                self.b.br(Jmp::Eq, known, 0, bad_dst);
                let source = self.source(src, len, bad_src, false);
                self.stage(len, &source, bad_src);
                let copied = routines::unstage(self.b, plan, &areas, to, n as u32, at);
                self.b.br(Jmp::Eq, copied, 0, bad_dst);
            }
            _ => self.never(bad_dst),
        }
        self.b.bind(done);
    }

    /// Reads an object to the stage buffer.
    fn stage(&mut self, len: Operand, source: &Source, bad: Label) -> V {
        let at = self.env.layout.d_memory.stage;
        let slot = self.slot();
        let stage = self.b.add(slot, at);
        self.read(stage, len, source, bad);
        stage
    }

    // ---- memory of the process

    /// The bytes are copied through the second part of scratch memory.
    pub(crate) fn copy_out(&mut self, src: Value, addr: Value, len: Value) {
        let (bad_src, bad) = (self.bad(src), self.bad(addr));
        let full = self.fault(FaultKind::NoScratch, Operand::Imm(0));
        let (done, limit, d_memory) = (self.b.label(), self.limit(), self.env.layout.d_memory);
        let known = self.fetches.known_thread();
        let len = self.reg(len);
        // An unsigned comparison below 1, after which the verifier knows that the length is at
        // least 1.
        self.b.br(Jmp::Lt, len, 1, done);
        self.b.br(Jmp::Gt, len, limit, full);
        let source = self.source(src, Operand::V(len), bad_src, false);
        let slot = self.slot();
        let through = self.b.add(slot, d_memory.scratch + d_memory.cap);
        self.read(through, Operand::V(len), &source, bad_src);
        let to = self.reg(addr);
        let failed = self.b.call(Helper::PROBE_WRITE_USER, &[to, through, len]);
        self.b.br(Jmp::Ne, failed, 0, bad);
        self.b.bind(done);
        self.fetches.restore_thread(known);
    }

    pub(crate) fn copy_out_str(&mut self, value: Value, addr: Value, max: Value) {
        let bad = self.bad(addr);
        let done = self.b.label();
        let s = self.string(value);
        let most = if let Str::Comm(..) = s { 16 } else { i64::from(self.env.module.string_storage()) };
        let long = self.string_length(s);
        let (from, off) = self.address(s);
        let from = self.b.add(from, i32::from(off));
        let len = self.b.copy(long);
        self.b.update(Alu::Add, len, 1);
        let (max, short, within) = (self.reg(max), self.b.label(), self.b.label());
        self.b.br(Jmp::Le, len, max, short);
        self.b.set(len, max);
        self.b.bind(short);
        self.b.br(Jmp::Lt, len, 1, done);
        self.b.br(Jmp::Le, len, most, within);
        self.b.set(len, most);
        self.b.bind(within);
        let to = self.reg(addr);
        let failed = self.b.call(Helper::PROBE_WRITE_USER, &[to, from, len]);
        self.b.br(Jmp::Ne, failed, 0, bad);
        self.b.bind(done);
    }
}
