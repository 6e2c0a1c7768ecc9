//! Effects of a clause: records, variables, aggregations, stacks, `exit()`.
//!
//! The routines own the data structures. This module brings values into the form that the routines
//! take. Keys are whole words. Short keys are passed in registers, long keys are laid out in the
//! scratch slot.

use dif::ir::{Datum, FaultKind, Field, InstData, IntBuiltin, Op, Scope, Value, VarId, VarTy};

use super::clause::{Clause, OpenRecord, Str, Val};
use super::int::extend;
use super::layout::StackArea;
use crate::error::Result;
use crate::mir::{Alu, Jmp, MapRef, Operand, Size, V};
use crate::plan::VarPlan;
use crate::routines::words::{copy_words, exchange_null, words_of, zero};
use crate::routines::{self, InSlot, KEY_WORDS_MAX, Key, ThreadStorage, near};

/// The storage of a `this->` integer.
enum ThisInt {
    Register(V),
    Memory(V, i16),
}

/// A key in the form that the routines take.
pub(super) enum KeyBits {
    Words(Vec<V>),
    Slot(InSlot),
}

impl KeyBits {
    pub(super) fn key(&self) -> Key<'_> {
        match self {
            KeyBits::Words(w) => Key::Words(w),
            KeyBits::Slot(at) => Key::Memory(*at),
        }
    }
}

impl Clause<'_, '_> {
    pub(crate) fn effect(&mut self, inst: &InstData) -> Result<()> {
        match &inst.op {
            Op::Reserve => self.reserve(inst)?,
            Op::Speculate(id) => self.speculate(*id),
            Op::Commit => {
                if let Some(record) = self.record.take() {
                    routines::commit(self.b, &record);
                }
            }
            Op::Record(field, value) => self.record_field(*field, *value),
            Op::RecordPair(field, name, pid) if field.datum == Datum::Provider => {
                if let Some(record) = self.record {
                    let (base, at) = self.field(&record, *field);
                    let word = self.provider_word(*name, *pid);
                    self.b.store(Size::B8, base, at, word);
                }
            }
            Op::RecordPair(field, address, pid) => {
                if let Some(record) = self.record {
                    let (base, at) = self.field(&record, *field);
                    let (address, pid) = (self.int(*address), self.int(*pid));
                    self.b.store(Size::B8, base, at, address);
                    self.b.store(Size::B8, base, at + 8, pid);
                }
            }
            Op::LoadVar(var) => self.load_var(inst, *var)?,
            Op::StoreVar(var, value) => self.store_var(*var, *value)?,
            Op::LoadElem(var, key) => self.load_elem(inst, *var, key)?,
            Op::StoreElem(var, key, value) => self.store_elem(*var, key, Some(*value))?,
            Op::AddElem(var, key, value) => self.add_elem(inst, *var, key, *value)?,
            Op::DeleteElem(var, key) => self.store_elem(*var, key, None)?,
            Op::AddrVar(var) => self.set(inst, Val::Place(*var, 0, None)),
            Op::Store { size, addr, value } => self.store_mem(*size, *addr, *value),
            Op::Alloca(size) => self.alloca(inst, *size),
            Op::Copy { dst, src, len } => self.copy(*dst, *src, *len),
            Op::CopyElem { var, key, at } => self.copy_elem(inst, *var, key, *at),
            Op::CopyObj { addr, size, at } => self.copy_obj(inst, *addr, *size, *at),
            Op::StoreObj { var, key, addr } => self.store_obj(*var, key, *addr),
            Op::StrAddr { value, at } => self.str_addr(inst, *value, *at),
            Op::RecordBytes { field, addr, len } => self.record_bytes(*field, *addr, *len),
            Op::RecordPacket { field, skb } => self.record_packet(inst, *field, *skb)?,
            Op::CopyOut { src, addr, len } => self.copy_out(*src, *addr, *len),
            Op::CopyOutStr { value, addr, max } => self.copy_out_str(*value, *addr, *max),
            Op::Stack { user, frames, calls } => self.stack(inst, *user, (*frames, *calls)),
            Op::Aggregate { agg, key, args } => {
                let columns = &self.env.module.aggs[agg.0 as usize].key;
                let key = self.key(None, columns, key);
                let args: Vec<Operand> = args.iter().map(|a| self.int(*a)).collect();
                routines::aggregate(self.b, self.env.plan, &self.firing.cpu, agg.0, key.key(), &args);
            }
            Op::Exit(status) => {
                let status = self.reg(*status);
                routines::exit(self.b, &self.firing.cpu, status, self.firing.at_end);
            }
            Op::Snap => routines::snap(self.b, &self.firing.cpu),
            other => return self.error(inst.span, &format!("{other:?} is not compiled")),
        }
        Ok(())
    }

    fn record_packet(&mut self, inst: &InstData, field: Field, skb: Value) -> Result<()> {
        let Some(record) = self.record else { return Ok(()) };
        let Some(offsets) = self.env.target.packet else {
            return self
                .error(inst.span, "pcap( ) needs the kernel's types, and this kernel gives none (no BTF)");
        };
        let addr = self.int(skb);
        let bad = self.fault(FaultKind::BadAddr, addr);
        let addr = self.b.reg(addr);
        let to = self.b.add(record.header, plane::ring::HEADER_SIZE + field.offset);
        let failed = routines::packet(self.b, &offsets, to, field.datum.size(), addr);
        self.b.br(Jmp::Ne, failed, 0, bad);
        Ok(())
    }

    fn reserve(&mut self, inst: &InstData) -> Result<()> {
        let Some(desc) = &self.env.module.clauses[self.number].record else {
            return self.error(inst.span, "a record without a description");
        };
        let epid = self.epid();
        let (clock, time) = (self.firing.clock, self.time_read());
        let (size, exits) = (desc.size, desc.exits());
        let what = routines::Reserve { size, epid, clock, time, flags: 0, exits };
        let (plan, cpu) = (self.env.plan, self.firing.cpu);
        let full = match exits && plan.policy != plane::ring::Policy::Switch {
            true => self.refused_exit(),
            false => self.end,
        };
        let reserve = if self.firing.divided { routines::reserve_by_call } else { routines::reserve };
        let record = reserve(self.b, plan, &cpu, &what, full);
        self.save_record(&record);
        if let Some(time) = record.time {
            self.know_time(time);
        }
        self.record = Some(record);
        Ok(())
    }

    /// Directs the clause to a speculation. Its record, if it has one, is reserved there.
    fn speculate(&mut self, id: Value) {
        let id = self.reg(id);
        let bad = self.fault(FaultKind::IllegalOp, Operand::V(id));
        let (plan, cpu, end) = (self.env.plan, self.firing.cpu, self.end);
        let Some(of) = routines::speculation_of(self.b, plan, id, end, bad) else { return };
        let Some(desc) = &self.env.module.clauses[self.number].record else {
            return routines::require_active(self.b, &of, end);
        };
        let epid = self.epid();
        let (clock, time) = (self.firing.clock, self.time_read());
        let what = routines::Reserve { size: desc.size, epid, clock, time, flags: 0, exits: false };
        let reserve = match self.firing.divided {
            true => routines::reserve_speculative_by_call,
            false => routines::reserve_speculative,
        };
        let record = reserve(self.b, plan, &cpu, &of, &what, end);
        self.save_record(&record);
        self.save_speculation(of.index);
        if let Some(time) = record.time {
            self.know_time(time);
        }
        self.record = Some(record);
    }

    fn record_field(&mut self, field: Field, value: Value) {
        let Some(record) = self.record else { return };
        let (base, at) = self.field(&record, field);
        match field.datum {
            Datum::Str { size } | Datum::Name { size } => {
                let s = self.string(value);
                // The free bytes of a ring are zero.
                self.write_string(s, base, at, size, true);
            }
            Datum::Interned => {
                let id = self.interned(value);
                self.b.store(Size::B4, base, at, id);
            }
            datum => {
                let bits = self.int(value);
                let w = Size::of(datum.size()).unwrap_or(Size::B8);
                self.b.store(w, base, at, narrow(bits, w));
            }
        }
    }

    /// The address of a field of a record.
    fn field(&mut self, record: &OpenRecord, field: Field) -> (V, i16) {
        near(self.b, record.header, plane::ring::HEADER_SIZE + field.offset, field.datum.size())
    }

    /// The index of an interned string.
    fn interned(&mut self, value: Value) -> Operand {
        match self.string(value) {
            Str::Interned(id) => id,
            // The checker interns only strings that are compile-time constants.
            Str::Comm(..) | Str::Bytes(..) => Operand::Imm(0),
        }
    }

    /// A provider: the index of an interned string, and the process id above it.
    fn provider_word(&mut self, name: Value, pid: Value) -> Operand {
        match (self.interned(name), self.int(pid)) {
            (Operand::Imm(name), Operand::Imm(pid)) => Operand::Imm(name | pid << 32),
            (name, Operand::Imm(0)) => name,
            (name, pid) => {
                let pid = self.b.reg(pid);
                let above = self.b.shl(pid, 32);
                Operand::V(self.b.alu(Alu::Or, above, name))
            }
        }
    }

    // ---- scalar variables

    fn load_var(&mut self, inst: &InstData, var: VarId) -> Result<()> {
        let Some(result) = inst.result else { return Ok(()) };
        let is_string = self.env.module.vars[var.0 as usize].ty == VarTy::Str;
        let storage = self.env.plan.string_storage;
        let value = match (&self.env.plan.vars[var.0 as usize], is_string) {
            (VarPlan::Global(_) | VarPlan::GlobalAlone(_), false) => {
                let base = self.global(var);
                Val::Int(Operand::V(self.b.load(Size::B8, base, 0)))
            }
            (VarPlan::Global(_) | VarPlan::GlobalAlone(_), true) => {
                let from = self.global(var);
                self.snapshot(result, from, storage)
            }
            (VarPlan::Thread(_) | VarPlan::ThreadAlone(_), _) => {
                let (home, at) = self.thread_storage_of(var);
                let (missing, done) = (self.b.label(), self.b.label());
                // The path to `missing` needs the temporary too.
                let temp = is_string.then(|| self.temp(result));
                let thread = self.self_vars(home, false, missing);
                let value = if let Some(temp) = temp {
                    let Str::Bytes(base, off) = temp else { return Ok(()) };
                    if let Some(thread) = thread {
                        let to = self.b.add(base, i32::from(off));
                        let from = self.b.add(thread.vars, at);
                        copy_words(self.b, to, from, storage);
                    }
                    self.b.out_of_line(|b| {
                        b.bind(missing);
                        zero(b, base, off, storage);
                        b.jmp(done);
                    });
                    Val::Str(temp)
                } else {
                    let bits = self.b.var();
                    match thread {
                        Some(thread) => {
                            let (vars, at) = near(self.b, thread.vars, at, 8);
                            let loaded = self.b.load(Size::B8, vars, at);
                            self.b.set(bits, loaded);
                        }
                        None => self.b.set(bits, 0),
                    }
                    self.b.out_of_line(|b| {
                        b.bind(missing);
                        b.set(bits, 0);
                        b.jmp(done);
                    });
                    Val::Int(Operand::V(bits))
                };
                self.b.bind(done);
                if let Some(Str::Bytes(base, off)) = temp {
                    exchange_null(self.b, base, off);
                }
                value
            }
            (VarPlan::Clause, false) => match self.this_int(var) {
                // A copy, because the variable may change before the value is used.
                Some(ThisInt::Register(v)) => Val::Int(Operand::V(self.b.copy(v))),
                Some(ThisInt::Memory(base, at)) => Val::Int(Operand::V(self.b.load(Size::B8, base, at))),
                None => Val::Int(Operand::Imm(0)),
            },
            (VarPlan::Clause, true) => {
                let (base, at) = self.this_string(var);
                let from = self.b.add(base, i32::from(at));
                self.snapshot(result, from, storage)
            }
            (VarPlan::Assoc(_), _) => return self.error(inst.span, "an array used as a scalar"),
        };
        self.set(inst, value);
        Ok(())
    }

    /// The address of a global scalar.
    fn global(&mut self, var: VarId) -> V {
        match self.env.plan.vars[var.0 as usize] {
            VarPlan::Global(at) => self.b.map_value(MapRef::Globals, at),
            _ => self.b.map_value(MapRef::Var(var.0), 0),
        }
    }

    /// The storage of a `self->` scalar, and its offset in a level's struct.
    fn thread_storage_of(&self, var: VarId) -> (ThreadStorage, u32) {
        match self.env.plan.vars[var.0 as usize] {
            VarPlan::Thread(at) => (ThreadStorage::Common, at),
            VarPlan::ThreadAlone(shape) => (ThreadStorage::Alone(var.0, shape), 0),
            _ => (ThreadStorage::Common, 0),
        }
    }

    /// A copy of a string variable. The variable may change before the value is used.
    fn snapshot(&mut self, result: Value, from: V, storage: u32) -> Val {
        let temp = self.temp(result);
        if let Str::Bytes(base, off) = temp {
            let to = self.b.add(base, i32::from(off));
            copy_words(self.b, to, from, storage);
        }
        Val::Str(temp)
    }

    /// The storage of a `this->` integer.
    fn this_int(&mut self, var: VarId) -> Option<ThisInt> {
        if let Some(at) = self.env.layout.this[var.0 as usize] {
            let (base, at) = self.place(self.firing.parts.this + at, 8);
            return Some(ThisInt::Memory(base, at));
        }
        self.firing.this[var.0 as usize].map(ThisInt::Register)
    }

    /// The address of a `this->` string.
    fn this_string(&mut self, var: VarId) -> (V, i16) {
        let at = self.env.layout.this[var.0 as usize].unwrap_or(0);
        self.place(self.firing.parts.this + at, self.env.module.string_storage())
    }

    fn store_var(&mut self, var: VarId, value: Value) -> Result<()> {
        let is_string = self.env.module.vars[var.0 as usize].ty == VarTy::Str;
        let storage = self.env.plan.string_storage;
        match &self.env.plan.vars[var.0 as usize] {
            VarPlan::Global(_) | VarPlan::GlobalAlone(_) => {
                let base = self.global(var);
                if is_string {
                    let s = self.string(value);
                    self.write_string(s, base, 0, storage, false);
                } else {
                    let bits = self.int(value);
                    self.b.store(Size::B8, base, 0, bits);
                }
            }
            VarPlan::Thread(_) | VarPlan::ThreadAlone(_) => {
                let (home, at) = self.thread_storage_of(var);
                let missing = self.b.label();
                let bits = if is_string { Operand::Imm(0) } else { self.int(value) };
                if let Some(thread) = self.self_vars(home, true, missing) {
                    let (vars, at) = near(self.b, thread.vars, at, storage.max(8));
                    if is_string {
                        let s = self.string(value);
                        self.write_string(s, vars, at, storage, false);
                        exchange_null(self.b, vars, at);
                    } else {
                        self.b.store(Size::B8, vars, at, bits);
                    }
                }
                self.b.bind(missing);
            }
            VarPlan::Clause if is_string => {
                let s = self.string(value);
                let (base, at) = self.this_string(var);
                self.write_string(s, base, at, storage, false);
            }
            VarPlan::Clause => {
                let bits = self.int(value);
                match self.this_int(var) {
                    Some(ThisInt::Register(v)) => self.b.set(v, bits),
                    Some(ThisInt::Memory(base, at)) => self.b.store(Size::B8, base, at, bits),
                    None => {}
                }
            }
            VarPlan::Assoc(_) => return self.error(None, "an array used as a scalar"),
        }
        Ok(())
    }

    // ---- keys and arrays

    /// Lays out a key. `thread` is the key's first word, if it has one.
    fn key(&mut self, thread: Option<V>, columns: &[Field], values: &[Value]) -> KeyBits {
        let words: u32 =
            columns.iter().map(|f| f.datum.size().div_ceil(8)).sum::<u32>() + u32::from(thread.is_some());
        if words as usize <= KEY_WORDS_MAX {
            let mut out: Vec<V> = thread.into_iter().collect();
            let mut values = values.iter();
            for field in columns {
                let count = field.datum.size().div_ceil(8);
                match field.datum {
                    Datum::Str { .. } | Datum::Name { .. } => {
                        let s = values.next().map_or(Str::Interned(Operand::Imm(0)), |v| self.string(*v));
                        out.extend(self.string_words(s, count));
                    }
                    Datum::UserAddr(_) | Datum::Address { .. } => {
                        for v in values.by_ref().take(2) {
                            out.push(self.reg(*v));
                        }
                    }
                    Datum::Provider => {
                        if let (Some(name), Some(pid)) = (values.next(), values.next()) {
                            let word = self.provider_word(*name, *pid);
                            out.push(self.b.reg(word));
                        }
                    }
                    Datum::Bytes { .. } => {
                        if let Some(from) = values.next().map(|v| self.copied_object(*v)) {
                            out.extend((0..count as i16).map(|i| self.b.load(Size::B8, from, 8 * i)));
                        }
                    }
                    datum => {
                        if let Some(v) = values.next() {
                            let bits = self.key_int(datum, *v);
                            out.push(self.b.reg(bits));
                        }
                    }
                }
            }
            return KeyBits::Words(out);
        }
        let place = InSlot { slot: self.slot_ref(), offset: self.firing.parts.key };
        let slot = place.slot.address;
        let mut start = place.offset;
        if let Some(thread) = thread {
            let (base, at) = near(self.b, slot, start, 8);
            self.b.store(Size::B8, base, at, thread);
            start += 8;
        }
        let mut values = values.iter();
        for field in columns {
            let (slot, to) = near(self.b, slot, start + field.offset, field.datum.size());
            match field.datum {
                Datum::Str { size } | Datum::Name { size } => {
                    if let Some(v) = values.next() {
                        let s = self.string(*v);
                        self.write_string(s, slot, to, size, false);
                    }
                }
                Datum::UserAddr(_) | Datum::Address { .. } => {
                    for (i, v) in (0..2).zip(values.by_ref()) {
                        let bits = self.int(*v);
                        self.b.store(Size::B8, slot, to + 8 * i, bits);
                    }
                }
                Datum::Provider => {
                    if let (Some(name), Some(pid)) = (values.next(), values.next()) {
                        let word = self.provider_word(*name, *pid);
                        self.b.store(Size::B8, slot, to, word);
                    }
                }
                Datum::Bytes { size } => {
                    if let Some(from) = values.next().map(|v| self.copied_object(*v)) {
                        let to = self.b.add(slot, i32::from(to));
                        copy_words(self.b, to, from, size.next_multiple_of(8));
                    }
                }
                datum => {
                    if let Some(v) = values.next() {
                        let bits = self.key_int(datum, *v);
                        self.b.store(Size::B8, slot, to, bits);
                    }
                }
            }
        }
        KeyBits::Slot(place)
    }

    /// An integer column, zero-extended from its size.
    fn key_int(&mut self, datum: Datum, v: Value) -> Operand {
        match datum {
            Datum::Interned => self.interned(v),
            _ => match (self.int(v), datum.size()) {
                (o, 8) => o,
                (Operand::Imm(i), size) => Operand::Imm(dif::eval::ext(size as u8 * 8, false, i)),
                (Operand::V(v), size) => Operand::V(extend(self.b, size as u8 * 8, false, v)),
            },
        }
    }

    /// The first `count` words of a string.
    fn string_words(&mut self, s: Str, count: u32) -> Vec<V> {
        match s {
            Str::Interned(id) if self.text(id).is_some() => {
                let mut bits = self.text(id).map(words_of).unwrap_or_default();
                bits.resize(count as usize, 0);
                bits.into_iter().map(|w| self.b.imm(w as i64)).collect()
            }
            Str::Comm(w0, w1) => {
                let mut out = vec![w0, w1];
                while out.len() < count as usize {
                    out.push(self.b.imm(0));
                }
                out.truncate(count as usize);
                out
            }
            other => {
                let (base, off) = self.address(other);
                (0..count as i16).map(|i| self.b.load(Size::B8, base, off + 8 * i)).collect()
            }
        }
    }

    pub(super) fn array_key(
        &mut self,
        var: VarId,
        key: &[Value],
        create: bool,
        missing: crate::mir::Label,
    ) -> KeyBits {
        let module = self.env.module;
        let desc = &module.vars[var.0 as usize];
        let thread = if desc.scope == Scope::Thread {
            let thread = self.self_vars(ThreadStorage::Common, create, missing);
            thread.map(|t| routines::self_key_word(self.b, &t))
        } else {
            None
        };
        self.key(thread, desc.key.as_deref().unwrap_or(&[]), key)
    }

    fn load_elem(&mut self, inst: &InstData, var: VarId, key: &[Value]) -> Result<()> {
        let Some(result) = inst.result else { return Ok(()) };
        let (missing, done) = (self.b.label(), self.b.label());
        let (plan, cpu) = (self.env.plan, self.firing.cpu);
        let is_string = self.env.module.vars[var.0 as usize].ty == VarTy::Str;
        // The path to `missing` needs the temporary too.
        let temp = is_string.then(|| self.temp(result));
        let key = self.array_key(var, key, false, missing);
        let value = if let Some(temp) = temp {
            let Str::Bytes(base, off) = temp else { return Ok(()) };
            let to = self.b.add(base, i32::from(off));
            routines::assoc_load_bytes(self.b, plan, &cpu, var, key.key(), to);
            self.b.out_of_line(|b| {
                b.bind(missing);
                zero(b, base, off, plan.string_storage);
                b.jmp(done);
            });
            Val::Str(temp)
        } else {
            let loaded = routines::assoc_load_int(self.b, plan, &cpu, var, key.key());
            let bits = self.b.copy(loaded);
            self.b.out_of_line(|b| {
                b.bind(missing);
                b.set(bits, 0);
                b.jmp(done);
            });
            Val::Int(Operand::V(bits))
        };
        self.b.bind(done);
        if let Some(Str::Bytes(base, off)) = temp {
            exchange_null(self.b, base, off);
        }
        self.set(inst, value);
        Ok(())
    }

    fn add_elem(&mut self, inst: &InstData, var: VarId, key: &[Value], value: Value) -> Result<()> {
        let missing = self.b.label();
        let (plan, cpu, sum) = (self.env.plan, self.firing.cpu, self.b.copy(0));
        let key = self.array_key(var, key, true, missing);
        let by = self.int(value);
        let added = routines::assoc_add(self.b, plan, &cpu, var, key.key(), by);
        self.b.set(sum, added);
        self.b.bind(missing);
        self.set(inst, Val::Int(Operand::V(sum)));
        Ok(())
    }

    fn store_elem(&mut self, var: VarId, key: &[Value], value: Option<Value>) -> Result<()> {
        let missing = self.b.label();
        let (plan, cpu) = (self.env.plan, self.firing.cpu);
        let key = self.array_key(var, key, value.is_some(), missing);
        match value {
            None => routines::assoc_delete(self.b, plan, &cpu, var, key.key()),
            Some(v) if self.env.module.vars[var.0 as usize].ty == VarTy::Str => {
                let image = InSlot { slot: self.slot_ref(), offset: self.firing.parts.image };
                let slot = image.slot.address;
                let s = self.string(v);
                let from = match s {
                    // The routine copies the storage of a string. A comm has fewer, so it is
                    // written to the data's place first.
                    Str::Comm(..) => {
                        let (base, at) =
                            near(self.b, slot, image.offset + plane::assoc::DATA, plan.string_storage);
                        self.write_string(s, base, at, plan.string_storage, false);
                        self.b.add(base, i32::from(at))
                    }
                    _ => {
                        let (from, off) = self.address(s);
                        self.b.add(from, i32::from(off))
                    }
                };
                routines::assoc_store_bytes(self.b, plan, &cpu, var, key.key(), (from, true), image);
            }
            Some(v) => {
                let bits = self.int(v);
                routines::assoc_store_int(self.b, plan, &cpu, var, key.key(), bits);
            }
        }
        self.b.bind(missing);
        Ok(())
    }

    fn stack(&mut self, inst: &InstData, user: bool, (frames, calls): (u32, bool)) {
        let id = match self.walked(user) {
            Some(place) => {
                let process = match user {
                    true => (self.builtin(IntBuiltin::Pid), self.generation()),
                    false => (Operand::Imm(0), Operand::Imm(0)),
                };
                let area = self.env.layout.stacks.user.filter(|_| calls && self.env.plan.runtimes);
                match area {
                    Some(StackArea { frames: most, calls, .. }) => {
                        let area = routines::Calls { most, calls };
                        routines::keep_calls(self.b, self.env.plan, place, frames, (area, process))
                    }
                    None => routines::keep_stack(self.b, self.env.plan, place, frames, process),
                }
            }
            None => self.b.imm(0),
        };
        self.set(inst, Val::Int(Operand::V(id)));
    }
}

/// Truncates a constant to the width of the store.
fn narrow(bits: Operand, w: Size) -> Operand {
    match (bits, w) {
        (Operand::Imm(i), Size::B1) => Operand::Imm(i64::from(i as i8)),
        (Operand::Imm(i), Size::B2) => Operand::Imm(i64::from(i as i16)),
        (Operand::Imm(i), Size::B4) => Operand::Imm(i64::from(i as i32)),
        (other, _) => other,
    }
}
