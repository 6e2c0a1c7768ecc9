//! The interpreter: the second thing that executes DIF, and the oracle for the first.
//!
//! It does what the form says in the plainest way: values in a vector, variables in ordered maps, aggregations as the
//! words the kernel tables hold, records as the bytes the ring holds. Keys and records are kept as *bytes* in the layout
//! of [`plane::desc`], not as values, because it is the bytes that the back end must get right.
//!
//! What a firing sees of the system (ids, clock, memory, stacks) comes from a [`World`]; what stays between firings is a
//! [`State`]. Neither knows a kernel: a test gives both sides the same world, a recorded event can be one too.
//!
//! A module that the verifier refused does not make the interpreter panic: an undefined value reads 0, a missing block
//! ends the clause.

mod agg;
mod memory;
mod state;

use crate::eval;
use crate::ir::{
    Clause, Datum, FaultKind, Field, InstData, IntBuiltin, Module, Op, Scope, Space, StrBuiltin, Term, Value,
    VarId, VarTy,
};
use crate::subr::{Call, PathOf, Subr};
pub use state::{Drops, Fault, Rec, Room, State, Val};

/// What a firing sees of the system. The defaults are an empty world: zeros, and no readable memory.
pub trait World {
    /// An integer of the firing; must not change during a clause.
    fn builtin(&mut self, _builtin: IntBuiltin) -> i64 {
        0
    }

    /// Id of the enabled probe that a clause of this number serves in this firing.
    fn epid(&mut self, _clause: usize) -> i64 {
        self.builtin(IntBuiltin::Epid)
    }

    /// A string of the firing; must not change during a firing.
    fn builtin_str(&mut self, _builtin: StrBuiltin) -> Vec<u8> {
        Vec::new()
    }

    /// Fills `buffer` from memory; false when a byte of it cannot be read.
    fn read(&mut self, _space: Space, _addr: u64, _buffer: &mut [u8]) -> bool {
        false
    }

    /// Writes memory of the current process; false when it cannot be written.
    fn write_user(&mut self, _addr: u64, _bytes: &[u8]) -> bool {
        false
    }

    /// A path of the `struct path` at an address; `None` when it cannot be read.
    fn path(&mut self, _addr: u64, _of: PathOf) -> Option<Vec<u8>> {
        None
    }

    /// Whether the current process is this one or a descendant of it.
    fn descends(&mut self, _pid: i32) -> bool {
        false
    }

    /// A random number.
    fn random(&mut self) -> u32 {
        0
    }

    /// Sends a signal to the current process; false for one that there is not.
    fn raise(&mut self, _signal: i64) -> bool {
        true
    }

    /// Gives the result of the function that fired the probe.
    fn give(&mut self, _result: i64) {}

    /// Holds the CPU; false when it was held too long already.
    fn chill(&mut self, _nanoseconds: u64) -> bool {
        true
    }

    /// Takes the stack; the id of its entry, 0 when it could not be taken.
    fn stack(&mut self, _user: bool, _frames: u32) -> u64 {
        0
    }

    /// Whose `self->` variables these are: a thread and its context level.
    fn context(&mut self) -> (u64, u8) {
        (0, 0)
    }

    /// From here on the firing is that of ERROR for this fault; with `None`, it is again what it was.
    fn error(&mut self, _fault: Option<&Fault>) {}
}

/// How a clause ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end.
    Done,
    /// Its predicate did not hold.
    PredicateFalse,
    /// Its record found no room; nothing happened.
    Dropped,
    /// It faulted.
    Faulted(Fault),
}

/// Runs clauses of a module.
pub struct Interpreter<'m> {
    module: &'m Module,
    error: Vec<usize>,
    gated: bool,
}

impl<'m> Interpreter<'m> {
    /// For this module.
    pub fn new(module: &'m Module) -> Self {
        Self { module, error: Vec::new(), gated: false }
    }

    /// Every fault fires ERROR, which has these clauses. What faults in them is only counted.
    #[must_use]
    pub fn with_error(self, clauses: &[usize]) -> Self {
        Self { error: clauses.to_vec(), ..self }
    }

    /// Nothing runs behind a clause that called `exit()`: so it is while a session is active. Clauses of BEGIN, END and
    /// ERROR run to their probe's end.
    #[must_use]
    pub fn gated(self) -> Self {
        Self { gated: true, ..self }
    }

    /// One firing: the clauses run in the order given and share their `this->` variables, a fault ends only its own.
    /// Faults are also left in the state.
    pub fn fire(&self, clauses: &[usize], state: &mut State, world: &mut dyn World) -> Vec<Outcome> {
        state.prepare(self.module);
        let (mut locals, mut rest) = (self.locals(), None);
        let mut outcomes = Vec::with_capacity(clauses.len());
        for index in clauses {
            if self.gated && state.exit.is_some() {
                break;
            }
            let Some(outcome) = self.run(*index, (&mut locals, &mut rest), state, world, false) else {
                continue;
            };
            if let Outcome::Faulted(fault) = &outcome
                && !self.error.is_empty()
            {
                world.error(Some(fault));
                let (mut own, mut own_rest) = (self.locals(), None);
                for index in &self.error {
                    self.run(*index, (&mut own, &mut own_rest), state, world, true);
                }
                world.error(None);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn locals(&self) -> Vec<Option<Val>> {
        self.module.vars.iter().map(|_| None).collect()
    }

    fn run(
        &self,
        index: usize,
        (locals, rest): (&mut Vec<Option<Val>>, &mut Option<Vec<u8>>),
        state: &mut State,
        world: &mut dyn World,
        in_error: bool,
    ) -> Option<Outcome> {
        let clause = self.module.clauses.get(index)?;
        let values = vec![Val::Int(0); clause.func.values.len()];
        let module = self.module;
        let top = module.fixed_scratch(&clause.func) as usize;
        let scratch = vec![0; top + module.scratchsize as usize];
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
            record: None,
            offset: 0,
            scratch,
            top,
        };
        Some(frame.run())
    }
}

/// Why a clause stops in the middle.
enum Stop {
    Fault(FaultKind, u64),
    Full,
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
    /// A clause of ERROR.
    in_error: bool,
    record: Option<Rec>,
    /// Position of the running instruction in block order.
    offset: u32,
    /// Scratch memory, all that there may be.
    scratch: Vec<u8>,
    /// How much of it was taken.
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
                    Err(Stop::Fault(kind, value)) => {
                        let fault = Fault {
                            clause: self.index,
                            kind,
                            value,
                            action: inst.action,
                            offset: self.offset,
                        };
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
                Term::Return => return Outcome::Done,
                Term::PredicateFalse => return Outcome::PredicateFalse,
            };
            let next = to.0 as usize;
            if next <= at || next >= blocks.len() {
                return Outcome::Done;
            }
            let given: Vec<Val> = args.iter().map(|a| self.get(*a)).collect();
            for (param, value) in blocks[next].params.iter().zip(given) {
                self.set(*param, value);
            }
            at = next;
        }
        Outcome::Done
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
            return Err(Stop::Fault(FaultKind::BadAddr, 0));
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
            Op::Stack { user, frames } => Val::Int(self.world.stack(*user, *frames) as i64),
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
            Op::DeleteElem(var, key) => {
                let id = self.element(*var, key);
                self.state.elements.remove(&id);
            }
            Op::Reserve => {
                if self.state.records.len() >= self.state.room.records {
                    return Err(Stop::Full);
                }
                let size = self.clause.record.as_ref().map_or(0, |r| r.size) as usize;
                self.record =
                    Some(Rec { clause: self.index, data: vec![0; size], written: vec![false; size] });
            }
            Op::Record(field, v) => self.write_record(*field, &[*v]),
            Op::RecordUserAddr(field, a, p) => self.write_record(*field, &[*a, *p]),
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
                self.state.exit.get_or_insert(status);
            }
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
        let mut reach = self.reach();
        let world = &mut reach;
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

    /// Bytes of the longest string.
    fn longest(&self) -> usize {
        self.module.strsize.saturating_sub(1) as usize
    }

    /// What a variable that was never assigned reads.
    fn zero(&self, var: VarId) -> Val {
        match self.module.vars.get(var.0 as usize).map(|v| v.ty) {
            Some(VarTy::Str) => Val::Str(Vec::new()),
            Some(VarTy::Bytes { size }) => Val::Bytes(vec![0; size as usize]),
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
                self.state.threads.insert((self.world.context(), var), value);
            }
            Scope::Clause => {
                if let Some(slot) = self.locals.get_mut(var.0 as usize) {
                    *slot = Some(value);
                }
            }
        }
    }

    fn store_element(&mut self, id: state::ElementId, value: Val) {
        if self.state.elements.contains_key(&id) || self.state.elements.len() < self.state.room.elements {
            self.state.elements.insert(id, value);
        } else {
            self.state.drops.dynamic += 1;
        }
    }

    /// The place of an array's element.
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

    /// A key in its layout: zero-padded words.
    fn key(&mut self, columns: &[Field], size: u32, values: &[Value]) -> Vec<u8> {
        let mut bytes = vec![0; size as usize];
        let mut values = values.iter();
        for field in columns {
            let taken = if let Datum::UserAddr(_) = field.datum { 2 } else { 1 };
            let given: Vec<Value> = values.by_ref().take(taken).copied().collect();
            let text = self.column(field.datum, &given);
            put(&mut bytes, field.offset, &text);
        }
        bytes
    }

    fn write_record(&mut self, field: Field, values: &[Value]) {
        let bytes = self.column(field.datum, values);
        self.put_record(field, &bytes);
    }

    fn put_record(&mut self, field: Field, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            put(&mut record.data, field.offset, bytes);
            let start = (field.offset as usize).min(record.written.len());
            let end = (start + bytes.len()).min(record.written.len());
            record.written[start..end].fill(true);
        }
    }

    /// The bytes of one column.
    fn column(&mut self, datum: Datum, values: &[Value]) -> Vec<u8> {
        let word = |i: usize| values.get(i).map_or(0, |v| self.int(*v)).to_le_bytes();
        match datum {
            Datum::Int { size, .. } => word(0)[..usize::from(size).min(8)].to_vec(),
            Datum::KernelStack { .. } | Datum::UserStack { .. } | Datum::KernelAddr(_) => word(0).to_vec(),
            Datum::UserAddr(_) => [word(0), word(1)].concat(),
            Datum::Str { size } => {
                let mut text = values.first().map_or(&b""[..], |v| self.text(*v)).to_vec();
                text.truncate(size.saturating_sub(1) as usize);
                text.resize(size as usize, 0);
                text
            }
            Datum::Interned => {
                let text = values.first().map_or(&b""[..], |v| self.text(*v)).to_vec();
                self.state.intern(&text).to_le_bytes().to_vec()
            }
            Datum::Bytes { size } => match values.first() {
                // A copy, which can be read.
                Some(addr) => self.bytes_at(*addr, size as usize).unwrap_or_default(),
                None => Vec::new(),
            },
        }
    }
}

fn put(bytes: &mut [u8], offset: u32, data: &[u8]) {
    let start = offset as usize;
    if let Some(place) = bytes.get_mut(start..start.saturating_add(data.len())) {
        place.copy_from_slice(data);
    }
}

#[cfg(test)]
mod tests;
