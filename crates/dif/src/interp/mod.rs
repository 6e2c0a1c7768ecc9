//! The interpreter: the second executor of DIF, and the oracle for the back end.
//!
//! It implements the form in the simplest way: values are in a vector, variables in ordered maps.
//! Aggregations are the words that the kernel tables contain, records are the bytes that the ring
//! contains. Keys and records are stored as *bytes* in the layout of [`plane::desc`], not as
//! values, because the back end must produce these bytes.
//!
//! A [`World`] provides what a firing reads from the system (ids, clock, memory, stacks). A
//! [`State`] is what persists between firings. Neither knows a kernel: a test can give the
//! interpreter and the back end the same world, and a recorded event can be a world too.
//!
//! The interpreter does not panic on a module that the verifier rejected: an undefined value reads
//! 0, a missing block ends the clause.

mod agg;
mod memory;
mod record;
mod state;
mod world;

use crate::eval;
use crate::ir::{
    Clause, FaultKind, InstData, IntBuiltin, Module, Op, Scope, Space, StrBuiltin, Term, Value, VarId, VarTy,
};
use crate::subr::{Call, Subr};
use plane::packet::Packet;
pub use state::{Capacity, Drops, Fault, Record, State, Val};
pub use world::{Outcome, Speculate, World};

/// Executes clauses of a module.
pub struct Interpreter<'m> {
    module: &'m Module,
    error: Vec<usize>,
    exits: Exits,
}

/// What `exit()` does, besides setting the status.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exits {
    /// Nothing; the first status stands.
    Nothing,
    /// No later clause of the firing runs; the first status stands.
    EndFirings,
    /// Each replaces the status.
    Replace,
}

impl<'m> Interpreter<'m> {
    /// Creates an interpreter for this module.
    pub fn new(module: &'m Module) -> Self {
        Self { module, error: Vec::new(), exits: Exits::Nothing }
    }

    /// Makes every fault fire ERROR, which has these clauses. Faults in these clauses are only
    /// counted.
    #[must_use]
    pub fn with_error(self, clauses: &[usize]) -> Self {
        Self { error: clauses.to_vec(), ..self }
    }

    /// Runs no clause after a clause that called `exit()`. This is the behaviour of a session that
    /// has not ended. In END and ERROR all clauses of the probe run.
    #[must_use]
    pub fn ending_at_exit(self) -> Self {
        Self { exits: Exits::EndFirings, ..self }
    }

    /// Fires END: `exit()` replaces the status.
    #[must_use]
    pub fn at_end(self) -> Self {
        Self { exits: Exits::Replace, ..self }
    }

    /// Executes one firing. The clauses run in the given order and share their `this->` variables.
    /// A fault ends only its own clause. Faults are also recorded in the state.
    pub fn fire(&self, clauses: &[usize], state: &mut State, world: &mut dyn World) -> Vec<Outcome> {
        state.prepare(self.module);
        let (mut locals, mut rest) = (self.locals(), None);
        // A program ends before it counts the firing where it has no clause for the probe.
        state.firings += u64::from(!clauses.is_empty());
        let mut scratch = self.scratch(state);
        let mut outcomes = Vec::with_capacity(clauses.len());
        for index in clauses {
            if self.exits == Exits::EndFirings && state.exit.is_some() {
                break;
            }
            let own = (&mut locals, &mut rest, &mut scratch);
            let Some(outcome) = self.run(*index, own, state, world, false) else {
                continue;
            };
            world.ended(&outcome, false, state);
            if let Outcome::Faulted(fault) = &outcome
                && !self.error.is_empty()
            {
                world.error(Some(fault));
                let (mut own, mut own_rest, kept) = (self.locals(), None, scratch.kept);
                for index in &self.error {
                    let own = (&mut own, &mut own_rest, &mut scratch);
                    if let Some(outcome) = self.run(*index, own, state, world, true) {
                        world.ended(&outcome, true, state);
                    }
                }
                scratch.kept = kept;
                world.error(None);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// The scratch memory of the next firing.
    fn scratch(&self, state: &State) -> Scratch {
        let keeps_at_most = u64::from(self.module.scratch_kept());
        let serial = if keeps_at_most > 0 { state.firings } else { 0 };
        Scratch { serial, memory: Vec::new(), kept: 0, keeps_at_most }
    }

    fn locals(&self) -> Vec<Option<Val>> {
        self.module.vars.iter().map(|_| None).collect()
    }

    fn run(
        &self,
        index: usize,
        (locals, rest, scratch): (&mut Vec<Option<Val>>, &mut Option<Vec<u8>>, &mut Scratch),
        state: &mut State,
        world: &mut dyn World,
        in_error: bool,
    ) -> Option<Outcome> {
        let clause = self.module.clauses.get(index)?;
        let values = vec![Val::Int(0); clause.func.values.len()];
        let module = self.module;
        let (base, fixed) = (scratch.kept, module.fixed_scratch(&clause.func) as usize);
        let top = base + fixed;
        let size = top + module.scratchsize as usize;
        // Memory that is zero already is quicker than to fill it.
        match scratch.memory.is_empty() {
            true => scratch.memory = vec![0; size],
            false => scratch.memory.resize(size, 0),
        }
        let keeps = module.keeps_scratch(&clause.func);
        if keeps {
            scratch.kept = top.min(scratch.keeps_at_most as usize);
        }
        let frame = Frame {
            module,
            clause,
            index,
            values,
            locals,
            rest,
            state,
            world,
            in_error,
            at_end: self.exits == Exits::Replace,
            record: None,
            offset: 0,
            scratch,
            base,
            keeps,
            top,
        };
        Some(frame.run())
    }
}

/// The scratch memory of a firing.
struct Scratch {
    /// The number of the firing.
    serial: u64,
    memory: Vec<u8>,
    /// Bytes that the clauses so far keep.
    kept: usize,
    /// A clause that keeps memory faults beyond this.
    keeps_at_most: u64,
}

/// Why a clause stops before its end.
enum Stop {
    Fault(FaultKind, u64),
    Full,
    Skip,
}

struct Frame<'a> {
    module: &'a Module,
    clause: &'a Clause,
    index: usize,
    values: Vec<Val>,
    locals: &'a mut Vec<Option<Val>>,
    rest: &'a mut Option<Vec<u8>>,
    state: &'a mut State,
    world: &'a mut dyn World,
    /// True in a clause of ERROR.
    in_error: bool,
    /// True where `exit()` replaces the status.
    at_end: bool,
    record: Option<Record>,
    /// Position of the running instruction in block order.
    offset: u32,
    scratch: &'a mut Scratch,
    /// Bytes of scratch memory that earlier clauses of the firing keep.
    base: usize,
    /// What the clause takes is kept for those behind it.
    keeps: bool,
    /// Bytes of scratch memory taken so far.
    top: usize,
}

impl Frame<'_> {
    fn run(mut self) -> Outcome {
        let blocks = &self.clause.func.blocks;
        let mut starts = Vec::with_capacity(blocks.len());
        let mut count = 0;
        for b in blocks {
            starts.push(count);
            count += b.insts.len() as u32;
        }
        let mut at = 0;
        while let Some(block) = blocks.get(at) {
            for (i, inst) in block.insts.iter().enumerate() {
                self.offset = starts[at] + i as u32;
                match self.step(inst) {
                    Ok(()) => {}
                    Err(Stop::Full) => {
                        self.state.drops.principal += 1;
                        return Outcome::Dropped;
                    }
                    Err(Stop::Skip) => return Outcome::Skipped,
                    Err(Stop::Fault(kind, value)) => {
                        let fault = Fault {
                            clause: self.index,
                            kind,
                            value,
                            action: inst.action,
                            offset: self.offset,
                        };
                        self.state.discarded = self.record.take();
                        if self.in_error {
                            self.state.drops.double_error += 1;
                        } else {
                            self.state.faults.push(fault.clone());
                        }
                        return Outcome::Faulted(fault);
                    }
                }
            }
            let (to, args) = match &block.term {
                Term::Jump(to, args) => (to, args),
                Term::Branch { cond, then, other } => {
                    let way = if self.int(*cond) != 0 { then } else { other };
                    (&way.0, &way.1)
                }
                Term::Return => return Outcome::Completed,
                Term::PredicateFalse => return Outcome::PredicateFalse,
            };
            let next = to.0 as usize;
            if next <= at || next >= blocks.len() {
                return Outcome::Completed;
            }
            let given: Vec<Val> = args.iter().map(|a| self.get(*a)).collect();
            for (param, value) in blocks[next].params.iter().zip(given) {
                self.set(*param, value);
            }
            at = next;
        }
        Outcome::Completed
    }

    fn get(&self, v: Value) -> Val {
        self.values.get(v.0 as usize).cloned().unwrap_or(Val::Int(0))
    }

    fn set(&mut self, v: Value, value: Val) {
        if let Some(slot) = self.values.get_mut(v.0 as usize) {
            *slot = value;
        }
    }

    fn int(&self, v: Value) -> i64 {
        match self.values.get(v.0 as usize) {
            Some(Val::Int(n)) => *n,
            _ => 0,
        }
    }

    fn text(&self, v: Value) -> &[u8] {
        match self.values.get(v.0 as usize) {
            Some(Val::Str(s)) => s,
            _ => b"",
        }
    }

    fn step(&mut self, inst: &InstData) -> Result<(), Stop> {
        let mut null = false;
        inst.op.for_each_text(|v| null |= self.values.get(v.0 as usize) == Some(&Val::Null));
        if null {
            let at = inst.op.null_offset().map_or(0, |n| self.int(n));
            return Err(Stop::Fault(FaultKind::BadAddr, at as u64));
        }
        let value = match &inst.op {
            Op::Const(n) => Val::Int(*n),
            Op::StrConst(id) => Val::Str(self.module.strings.get(id.0 as usize).cloned().unwrap_or_default()),
            Op::Null => Val::Null,
            Op::Bin(op, a, b) => Val::Int(
                eval::bin(*op, self.int(*a), self.int(*b)).ok_or(Stop::Fault(FaultKind::DivZero, 0))?,
            ),
            Op::Un(op, v) => Val::Int(eval::un(*op, self.int(*v))),
            Op::Cmp(c, a, b) => Val::Int(eval::cmp(*c, self.int(*a), self.int(*b)).into()),
            Op::StrCmp(c, a, b) => Val::Int(eval::str_cmp(*c, self.text(*a), self.text(*b)).into()),
            Op::Ext { bits, signed, value } => Val::Int(eval::ext(*bits, *signed, self.int(*value))),
            Op::AsPtr(_, v) | Op::AsInt(v) => Val::Int(self.int(*v)),
            Op::Builtin(IntBuiltin::Epid) => Val::Int(self.world.epid(self.index)),
            Op::Builtin(b) => Val::Int(self.world.builtin(*b)),
            Op::BuiltinStr(b) => Val::Str(self.builtin_str(*b)),
            Op::Load { size, signed, addr } => Val::Int(self.load(*size, *signed, *addr)?),
            Op::LoadStr { addr, max } => Val::Str(self.load_str(*addr, *max)?),
            Op::StrLen(v) => Val::Int(self.text(*v).len() as i64),
            Op::Call(subr, args) => self.call(*subr, args)?,
            Op::LoadVar(var) => self.load_var(*var),
            Op::AddrVar(var) => Val::Int(self.address_of(*var)),
            Op::Alloca(size) => Val::Int(self.alloca(*size)?),
            Op::CopyElem { var, key, at } => Val::Int(self.copy_elem(*var, key, *at)),
            Op::CopyObj { addr, size, at } => Val::Int(self.copy_obj(*addr, *size, *at)?),
            Op::StrAddr { value, at } => Val::Int(self.str_addr(*value, *at)),
            Op::LoadElem(var, key) => {
                let id = self.element(*var, key);
                self.state.elements.get(&id).cloned().unwrap_or_else(|| self.zero(*var))
            }
            Op::AddElem(var, key, v) => {
                let (id, by) = (self.element(*var, key), self.int(*v));
                let old = match self.state.elements.get(&id) {
                    Some(Val::Int(old)) => *old,
                    _ => 0,
                };
                let sum = Val::Int(old.wrapping_add(by));
                self.store_element(id.clone(), sum.clone());
                if self.state.elements.contains_key(&id) { sum } else { Val::Int(0) }
            }
            Op::Stack { user, frames, .. } => Val::Int(self.world.stack(*user, *frames) as i64),
            effect => return self.effect(effect),
        };
        if let Some(v) = inst.result {
            self.set(v, value);
        }
        Ok(())
    }

    fn effect(&mut self, op: &Op) -> Result<(), Stop> {
        match op {
            Op::StoreVar(var, v) => {
                let value = self.get(*v);
                self.store_var(*var, value);
            }
            Op::StoreElem(var, key, v) => {
                let (id, value) = (self.element(*var, key), self.get(*v));
                self.store_element(id, value);
            }
            Op::Store { size, addr, value } => self.store(*size, *addr, *value)?,
            Op::Copy { dst, src, len } => self.copy(*dst, *src, *len)?,
            Op::StoreObj { var, key, addr } => self.store_obj(*var, key, *addr)?,
            Op::CopyOut { src, addr, len } => self.copy_out(*src, *addr, *len)?,
            Op::CopyOutStr { value, addr, max } => self.copy_out_str(*value, *addr, *max)?,
            Op::RecordBytes { field, addr, len } => {
                let all = field.datum.size() as usize;
                let wanted = len.and_then(|len| usize::try_from(self.int(len) as u64).ok());
                let some = wanted.filter(|n| (1..all).contains(n)).unwrap_or(all);
                let mut bytes = self.bytes_at(*addr, some)?;
                bytes.resize(all, 0);
                self.put_record(*field, &bytes);
            }
            Op::RecordPacket { field, skb } => {
                let addr = self.int(*skb) as u64;
                let Some((length, bytes)) = self.world.packet(addr) else {
                    return Err(Stop::Fault(FaultKind::BadAddr, addr));
                };
                let packet = Packet { length, bytes: &bytes };
                self.put_record(*field, &packet.write(plane::packet::limit(field.datum.size())));
            }
            Op::DeleteElem(var, key) => {
                let id = self.element(*var, key);
                self.state.elements.remove(&id);
            }
            Op::Reserve => {
                let size = self.clause.record.as_ref().map_or(0, |r| r.size);
                if self.state.records.len() >= self.state.capacity.records
                    || !self.world.reserve(self.index, size)
                {
                    return Err(Stop::Full);
                }
                let (data, written) = (vec![0; size as usize], vec![false; size as usize]);
                self.record = Some(Record { clause: self.index, speculation: 0, data, written });
            }
            Op::Speculate(id) => {
                let (id, size) = (self.int(*id), self.clause.record.as_ref().map(|r| r.size));
                match self.world.speculate(id, size) {
                    Speculate::Accepted => {}
                    Speculate::Refused => return Err(Stop::Skip),
                    Speculate::Invalid => return Err(Stop::Fault(FaultKind::IllegalOp, id as u64)),
                }
                self.record = size.map(|size| {
                    let (data, written) = (vec![0; size as usize], vec![false; size as usize]);
                    Record { clause: self.index, speculation: id as u64, data, written }
                });
            }
            Op::Record(field, v) => self.write_record(*field, &[*v]),
            Op::RecordPair(field, a, p) => self.write_record(*field, &[*a, *p]),
            Op::Commit => {
                let record = self.record.take();
                self.state.records.extend(record);
            }
            Op::Aggregate { agg, key, args } => {
                if let Some(desc) = self.module.aggs.get(agg.0 as usize) {
                    let key = self.key(&desc.key, desc.key_size, key);
                    let args: Vec<i64> = args.iter().map(|a| self.int(*a)).collect();
                    self.state.aggregate(agg.0 as usize, desc.func, key, &args);
                }
            }
            Op::Exit(v) => {
                let status = self.int(*v) as i32;
                if self.at_end || self.state.exit.is_none() {
                    self.state.exit = Some(status);
                }
            }
            Op::Snap => self.state.snaps += 1,
            Op::FaultUnless(kind, cond, value) if self.int(*cond) == 0 => {
                return Err(Stop::Fault(*kind, self.int(*value) as u64));
            }
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, subr: Subr, args: &[Value]) -> Result<Val, Stop> {
        let values: Vec<Val> = args.iter().map(|v| self.get(*v)).collect();
        let spaces: Vec<Space> = args.iter().map(|v| self.space(*v)).collect();
        let strsize = self.module.strsize as usize;
        let mut rest = self.rest.take();
        let mut memory = self.memory();
        let world = &mut memory;
        let mut call = Call { args: &values, spaces: &spaces, strsize, world, rest: &mut rest };
        let result = (subr.row().run)(&mut call);
        *self.rest = rest;
        result.map_err(|(kind, value)| Stop::Fault(kind, value))
    }

    fn builtin_str(&mut self, builtin: StrBuiltin) -> Vec<u8> {
        let longest = match builtin {
            StrBuiltin::Execname => 15,
            _ => usize::MAX,
        };
        let mut text = self.world.builtin_str(builtin);
        let nul = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        text.truncate(nul.min(longest).min(self.longest()));
        text
    }

    /// Maximum length of a string.
    fn longest(&self) -> usize {
        self.module.strsize.saturating_sub(1) as usize
    }

    /// The value of a variable that was never assigned.
    fn zero(&self, var: VarId) -> Val {
        let Some(desc) = self.module.vars.get(var.0 as usize) else { return Val::Int(0) };
        match desc.ty {
            VarTy::Str if desc.begins_null() => Val::Null,
            VarTy::Str => Val::Str(Vec::new()),
            VarTy::Bytes { size } => Val::Bytes(vec![0; size as usize]),
            _ => Val::Int(0),
        }
    }

    fn scope(&self, var: VarId) -> Scope {
        self.module.vars.get(var.0 as usize).map_or(Scope::Global, |v| v.scope)
    }

    fn load_var(&mut self, var: VarId) -> Val {
        let stored = match self.scope(var) {
            Scope::Global => self.state.globals.get(&var).cloned(),
            Scope::Thread => self.state.threads.get(&(self.world.context(), var)).cloned(),
            Scope::Clause => self.locals.get(var.0 as usize).cloned().flatten(),
        };
        stored.unwrap_or_else(|| self.zero(var))
    }

    fn store_var(&mut self, var: VarId, value: Val) {
        match self.scope(var) {
            Scope::Global => {
                self.state.globals.insert(var, value);
            }
            Scope::Thread => {
                let place = (self.world.context(), var);
                // Zero is what a thread has that assigned nothing. Otherwise threads that have
                // ended would take memory for as long as the session runs.
                if value == self.zero(var) {
                    self.state.threads.remove(&place);
                } else {
                    self.state.threads.insert(place, value);
                }
            }
            Scope::Clause => {
                if let Some(slot) = self.locals.get_mut(var.0 as usize) {
                    *slot = Some(value);
                }
            }
        }
    }

    fn store_element(&mut self, id: state::ElementId, value: Val) {
        if self.state.elements.contains_key(&id) || self.state.elements.len() < self.state.capacity.elements {
            self.state.elements.insert(id, value);
        } else {
            self.state.drops.dynamic += 1;
        }
    }

    /// The key of an array's element.
    fn element(&mut self, var: VarId, key: &[Value]) -> state::ElementId {
        let owner = match self.scope(var) {
            Scope::Thread => Some(self.world.context()),
            _ => None,
        };
        let bytes = match self.module.vars.get(var.0 as usize) {
            Some(desc) => self.key(desc.key.as_deref().unwrap_or_default(), desc.key_size, key),
            None => Vec::new(),
        };
        state::ElementId { var, owner, key: bytes }
    }
}

#[cfg(test)]
mod tests;
