//! The verifier: what every module must satisfy, whatever produced it.
//!
//! It runs after the front end, after the optimizer (in tests and debug builds) and on parsed text.
//! The back end relies on it: no operand without a definition, no backward edge, no field outside
//! its record. Checking here, in terms of the form, has an advantage over leaving it to the
//! kernel's verifier: the message names an instruction.
//!
//! A *word* is an Int or a Ptr. When the form says Int for an operand that is only a number
//! (arithmetic, comparison, stores, records, keys, exit), a Ptr is also accepted. Loads require a
//! Ptr.

use std::fmt;

use crate::dom::DomTree;
use crate::ir::ARGS;
use crate::ir::{
    AggFunc, BinOp, Block, Datum, Field, Function, InstData, IntBuiltin, Module, Op, Scope, Space,
    StrBuiltin, Term, Ty, UREGS, Value, VarDesc, VarId, VarTy,
};
use crate::memory::VARS_MAX;
use crate::subr::Param;

/// A violation and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The function's name. Empty when a table of the module is invalid.
    pub function: String,
    /// The block.
    pub block: Option<Block>,
    /// The instruction's index in the block. `None` refers to the block's terminator or parameters.
    pub inst: Option<usize>,
    /// The message.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.function.is_empty() {
            write!(f, "{}: ", self.function)?;
        }
        if let Some(block) = self.block {
            write!(f, "b{}", block.0)?;
            if let Some(inst) = self.inst {
                write!(f, "[{inst}]")?;
            }
            write!(f, ": ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for VerifyError {}

type Check<T = ()> = Result<T, String>;

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(message()) }
}

/// Checks a module. Returns the first error.
pub fn verify(module: &Module) -> Result<(), VerifyError> {
    tables(module).map_err(|message| VerifyError {
        function: String::new(),
        block: None,
        inst: None,
        message,
    })?;
    for clause in &module.clauses {
        FunctionCheck::run(module, &clause.func, clause.record.as_ref().map(|r| r.size))?;
    }
    Ok(())
}

fn tables(m: &Module) -> Check {
    ensure(m.strsize > 0, || "strsize 0".into())?;
    ensure(m.scratchsize.is_multiple_of(8), || format!("scratchsize {} is no multiple of 8", m.scratchsize))?;
    ensure(m.strings.first().is_none_or(Vec::is_empty), || "string 0 is not empty".into())?;
    for (i, s) in m.strings.iter().enumerate() {
        ensure(!s.contains(&0) && s.len() < m.strsize as usize, || {
            format!("string {i} has a NUL or is too long")
        })?;
    }
    for (i, var) in m.vars.iter().enumerate() {
        match var.ty {
            VarTy::Bytes { size } => {
                ensure(size > 0 && i < VARS_MAX, || format!("variable {i} is an object of {size} bytes"))?;
            }
            VarTy::Int | VarTy::Str => {}
        }
        if let Some(key) = &var.key {
            ensure(var.scope != Scope::Clause, || format!("variable {i}: a clause-local array"))?;
            ensure(!key.is_empty(), || format!("variable {i}: an array without key columns"))?;
            key_columns(key, var.key_size, m.string_storage()).map_err(|e| format!("variable {i}: {e}"))?;
        } else {
            ensure(var.key_size == 0, || format!("variable {i}: a scalar with a key size"))?;
        }
    }
    for (i, agg) in m.aggs.iter().enumerate() {
        key_columns(&agg.key, agg.key_size, m.string_storage())
            .map_err(|e| format!("aggregation {i}: {e}"))?;
        if let AggFunc::Lquantize { step: 0, .. } = agg.func {
            return Err(format!("aggregation {i}: step 0"));
        }
    }
    for clause in &m.clauses {
        if let Some(record) = &clause.record {
            ensure(record.size.is_multiple_of(8), || {
                format!("{}: record of {} bytes", clause.func.name, record.size)
            })?;
        }
    }
    Ok(())
}

fn key_columns(columns: &[Field], size: u32, storage: u32) -> Check {
    ensure(size.is_multiple_of(8), || format!("key of {size} bytes"))?;
    let mut at = 0;
    for f in columns {
        ensure(f.offset >= at && f.offset.is_multiple_of(8), || format!("key column at {}", f.offset))?;
        datum(f.datum, storage)?;
        at = f.offset.saturating_add(f.datum.size());
        ensure(at <= size, || format!("key column ends at {at}, the key at {size}"))?;
    }
    Ok(())
}

fn datum(datum: Datum, storage: u32) -> Check {
    match datum {
        Datum::Int { size, .. } => {
            ensure(matches!(size, 1 | 2 | 4 | 8), || format!("an integer of {size} bytes"))
        }
        Datum::Whole { size, .. } => {
            ensure(matches!(size, 1 | 2 | 4), || format!("the whole of {size} bytes"))
        }
        Datum::Str { size } | Datum::Name { size } => {
            ensure(size >= 8 && size.is_multiple_of(8) && size <= storage, || {
                format!("a string field of {size} bytes")
            })
        }
        _ => Ok(()),
    }
}

/// The state of a path relative to its `Reserve` and `Commit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recording {
    Before,
    Open,
    After,
}

struct FunctionCheck<'a> {
    module: &'a Module,
    function: &'a Function,
    record_size: Option<u32>,
    /// Block and position of each value's definition. Parameters are at position 0, instruction `i`
    /// at `i + 1`.
    defs: Vec<Option<(usize, usize)>>,
    dom: DomTree,
}

impl<'a> FunctionCheck<'a> {
    fn run(module: &'a Module, function: &'a Function, record_size: Option<u32>) -> Result<(), VerifyError> {
        let fail = |block: usize, inst: Option<usize>| {
            move |message: String| VerifyError {
                function: function.name.clone(),
                block: Some(Block(block as u32)),
                inst,
                message,
            }
        };
        let entry = function.blocks.first().ok_or_else(|| fail(0, None)("no blocks".into()))?;
        ensure(entry.params.is_empty(), || "the entry has parameters".into()).map_err(fail(0, None))?;
        let n = function.blocks.len();
        for (b, block) in function.blocks.iter().enumerate() {
            let mut bad = None;
            block.term.for_each_edge(|to, _| {
                if to.0 as usize <= b || to.0 as usize >= n {
                    bad = Some(to);
                }
            });
            ensure(bad.is_none(), || format!("an edge to {bad:?} does not go forward"))
                .map_err(fail(b, None))?;
        }
        let dom = DomTree::new(function);
        let mut check =
            FunctionCheck { module, function, record_size, defs: vec![None; function.values.len()], dom };
        for (b, block) in function.blocks.iter().enumerate() {
            ensure(check.dom.is_reached(b), || "nothing leads here".into()).map_err(fail(b, None))?;
            for p in &block.params {
                check.define(*p, (b, 0)).map_err(fail(b, None))?;
            }
            for (i, inst) in block.insts.iter().enumerate() {
                if let Some(v) = inst.result {
                    check.define(v, (b, i + 1)).map_err(fail(b, Some(i)))?;
                }
            }
        }
        let mut recording = vec![None; n];
        recording[0] = Some(Recording::Before);
        for (b, block) in function.blocks.iter().enumerate() {
            // Only forward edges reach a block, so an earlier block has set its state.
            let mut state = recording[b].unwrap_or(Recording::Before);
            for (i, inst) in block.insts.iter().enumerate() {
                check.instruction(inst, (b, i + 1)).map_err(fail(b, Some(i)))?;
                state = check.recording(state, &inst.op).map_err(fail(b, Some(i)))?;
            }
            check.end(&block.term, b, state).map_err(fail(b, None))?;
            let mut clash = None;
            block.term.for_each_edge(|to, _| {
                let slot = &mut recording[to.0 as usize];
                if slot.is_some_and(|s| s != state) {
                    clash = Some(to);
                }
                *slot = Some(state);
            });
            ensure(clash.is_none(), || format!("ways to {clash:?} differ in what they reserved"))
                .map_err(fail(b, None))?;
        }
        Ok(())
    }

    fn define(&mut self, v: Value, at: (usize, usize)) -> Check {
        let slot = self.defs.get_mut(v.0 as usize).ok_or_else(|| format!("v{} has no type", v.0))?;
        ensure(slot.is_none(), || format!("v{} is defined twice", v.0))?;
        *slot = Some(at);
        Ok(())
    }

    /// The type of an operand, after checking that it is defined on every path to `at`.
    fn operand(&self, v: Value, at: (usize, usize)) -> Check<Ty> {
        let def = self
            .defs
            .get(v.0 as usize)
            .copied()
            .flatten()
            .ok_or_else(|| format!("v{} is not defined", v.0))?;
        let before = if def.0 == at.0 { def.1 < at.1 } else { self.dom.dominates(def.0, at.0) };
        ensure(before, || format!("v{} is not defined on every way here", v.0))?;
        Ok(self.function.values[v.0 as usize])
    }

    fn word(&self, v: Value, at: (usize, usize)) -> Check {
        ensure(self.operand(v, at)? != Ty::Str, || format!("v{} is a string", v.0))
    }

    fn string(&self, v: Value, at: (usize, usize)) -> Check {
        ensure(self.operand(v, at)? == Ty::Str, || format!("v{} is no string", v.0))
    }

    fn pointer(&self, v: Value, at: (usize, usize)) -> Check {
        ensure(matches!(self.operand(v, at)?, Ty::Ptr(_)), || format!("v{} is no pointer", v.0))
    }

    fn instruction(&self, inst: &InstData, at: (usize, usize)) -> Check {
        let gives = self.op(&inst.op, at)?;
        match (inst.result, gives) {
            (None, None) => Ok(()),
            (Some(v), Some(ty)) => {
                let has = self.function.values[v.0 as usize];
                ensure(has == ty, || format!("v{} is {has:?}, the operation gives {ty:?}", v.0))
            }
            (Some(_), None) => Err("a result of an operation that has none".into()),
            (None, Some(_)) => Err("the result is missing".into()),
        }
    }

    /// Checks the operands. Returns the type of the result.
    fn op(&self, op: &Op, at: (usize, usize)) -> Check<Option<Ty>> {
        Ok(match op {
            Op::Const(_) => Some(Ty::Int),
            Op::StrConst(id) => {
                let n = self.module.strings.len();
                ensure((id.0 as usize) < n, || format!("string {} of {n}", id.0))?;
                Some(Ty::Str)
            }
            Op::Null => Some(Ty::Str),
            Op::Bin(op, a, b) => {
                self.word(*a, at)?;
                self.word(*b, at)?;
                match (op, self.operand(*a, at)?) {
                    (BinOp::Add | BinOp::Sub, ptr @ Ty::Ptr(_)) => Some(ptr),
                    _ => Some(Ty::Int),
                }
            }
            Op::Un(_, v) => {
                self.word(*v, at)?;
                Some(Ty::Int)
            }
            Op::Cmp(_, a, b) => {
                self.word(*a, at)?;
                self.word(*b, at)?;
                Some(Ty::Int)
            }
            Op::StrCmp(_, a, b) => {
                self.string(*a, at)?;
                self.string(*b, at)?;
                Some(Ty::Int)
            }
            Op::Ext { bits, signed: _, value } => {
                ensure(matches!(bits, 8 | 16 | 32), || format!("an extension of {bits} bits"))?;
                self.word(*value, at)?;
                Some(Ty::Int)
            }
            Op::AsPtr(space, v) => {
                self.word(*v, at)?;
                Some(Ty::Ptr(*space))
            }
            Op::AsInt(v) => {
                self.pointer(*v, at)?;
                Some(Ty::Int)
            }
            Op::Builtin(IntBuiltin::Arg(n)) if *n >= ARGS => return Err(format!("arg{n}")),
            Op::Builtin(IntBuiltin::Ureg(n)) if *n >= UREGS => return Err(format!("ureg{n}")),
            Op::Builtin(_) => Some(Ty::Int),
            Op::BuiltinStr(_) => Some(Ty::Str),
            Op::Load { size, signed: _, addr } => {
                ensure(matches!(size, 1 | 2 | 4 | 8), || format!("a load of {size} bytes"))?;
                self.pointer(*addr, at)?;
                Some(Ty::Int)
            }
            Op::LoadStr { addr, max } => {
                self.pointer(*addr, at)?;
                max.map_or(Ok(()), |v| self.word(v, at))?;
                Some(Ty::Str)
            }
            Op::StrLen(v) => {
                self.string(*v, at)?;
                Some(Ty::Int)
            }
            Op::Call(subr, args) => {
                let row = subr.row();
                ensure(row.params.len() == args.len(), || format!("{}() of {}", row.name, args.len()))?;
                for (param, v) in row.params.iter().zip(args) {
                    match param {
                        Param::Int => self.word(*v, at)?,
                        Param::Str => self.string(*v, at)?,
                        Param::Ptr => self.pointer(*v, at)?,
                    }
                }
                Some(row.result)
            }
            Op::AddrVar(var) => {
                let var = self.scalar(*var)?;
                ensure(matches!(var.ty, VarTy::Bytes { .. }), || format!("{} is no object", var.name))?;
                Some(Ty::Ptr(Space::Static))
            }
            Op::Store { size, addr, value } => {
                ensure(matches!(size, 1 | 2 | 4 | 8), || format!("a store of {size} bytes"))?;
                self.pointer(*addr, at)?;
                self.word(*value, at)?;
                None
            }
            Op::Alloca(size) => {
                self.word(*size, at)?;
                Some(Ty::Ptr(Space::Scratch))
            }
            Op::Copy { dst, src, len } => {
                self.pointer(*dst, at)?;
                self.pointer(*src, at)?;
                self.word(*len, at)?;
                let scratch = self.operand(*dst, at)? == Ty::Ptr(Space::Scratch);
                let constant = matches!(self.definition(*len), Some(Op::Const(1..=0x10_0000)));
                ensure(scratch || constant, || "a copy of unknown length to a variable".into())?;
                None
            }
            Op::CopyElem { var, key, at: place } => {
                self.object(*var, key, at)?;
                ensure(place.is_multiple_of(8), || format!("a copy at {place}"))?;
                Some(Ty::Ptr(Space::Scratch))
            }
            Op::CopyObj { addr, size, at: place } => {
                self.pointer(*addr, at)?;
                ensure(place.is_multiple_of(8), || format!("a copy at {place}"))?;
                ensure((1..=0x10_0000).contains(size), || format!("a copy of {size} bytes"))?;
                Some(Ty::Ptr(Space::Scratch))
            }
            Op::StoreObj { var, key, addr } => {
                self.object(*var, key, at)?;
                self.pointer(*addr, at)?;
                None
            }
            Op::StrAddr { value, at: place } => {
                self.string(*value, at)?;
                ensure(place.is_multiple_of(8), || format!("a string at {place}"))?;
                Some(Ty::Ptr(Space::Scratch))
            }
            Op::RecordBytes { field, addr, len } => {
                self.record_field(*field)?;
                ensure(matches!(field.datum, Datum::Bytes { .. }), || "not a field of bytes".into())?;
                self.pointer(*addr, at)?;
                len.iter().try_for_each(|len| self.word(*len, at))?;
                None
            }
            Op::RecordPacket { field, skb } => {
                self.record_field(*field)?;
                let fits = |size| size > plane::packet::size(0);
                ensure(matches!(field.datum, Datum::Bytes { size } if fits(size)), || {
                    "not a field of a packet".into()
                })?;
                self.word(*skb, at)?;
                None
            }
            Op::CopyOut { src, addr, len } => {
                self.pointer(*src, at)?;
                self.word(*addr, at)?;
                self.word(*len, at)?;
                None
            }
            Op::CopyOutStr { value, addr, max } => {
                self.string(*value, at)?;
                self.word(*addr, at)?;
                self.word(*max, at)?;
                None
            }
            Op::LoadVar(var) => Some(value_type(self.scalar(*var)?)?),
            Op::StoreVar(var, v) => {
                self.store(self.scalar(*var)?, *v, at)?;
                None
            }
            Op::LoadElem(var, key) => {
                let var = self.array(*var, key, at)?;
                Some(value_type(var)?)
            }
            Op::StoreElem(var, key, v) => {
                let var = self.array(*var, key, at)?;
                self.store(var, *v, at)?;
                None
            }
            Op::AddElem(var, key, v) => {
                let var = self.array(*var, key, at)?;
                ensure(var.ty == VarTy::Int, || format!("{} has no integers", var.name))?;
                self.word(*v, at)?;
                Some(Ty::Int)
            }
            Op::DeleteElem(var, key) => {
                self.array(*var, key, at)?;
                None
            }
            Op::Stack { .. } => Some(Ty::Int),
            Op::Reserve | Op::Commit | Op::Snap => None,
            Op::Speculate(id) => {
                self.word(*id, at)?;
                None
            }
            Op::Record(field, v) => {
                self.record_field(*field)?;
                ensure(field.datum.values() == 1, || "this field has two values".into())?;
                self.column(*field, &mut [*v].iter(), at)?;
                None
            }
            Op::RecordPair(field, addr, pid) => {
                self.record_field(*field)?;
                ensure(field.datum.values() == 2, || "this field has one value".into())?;
                self.column(*field, &mut [*addr, *pid].iter(), at)?;
                None
            }
            Op::Aggregate { agg, key, args } => {
                let n = self.module.aggs.len();
                let desc = self
                    .module
                    .aggs
                    .get(agg.0 as usize)
                    .ok_or_else(|| format!("aggregation {} of {n}", agg.0))?;
                self.key(&desc.key, key, at)?;
                let arity = match desc.func {
                    AggFunc::Count => 0..=0,
                    AggFunc::Sum | AggFunc::Min | AggFunc::Max | AggFunc::Avg | AggFunc::Stddev => 1..=1,
                    AggFunc::Quantize | AggFunc::Lquantize { .. } | AggFunc::Llquantize { .. } => 1..=2,
                };
                ensure(arity.contains(&args.len()), || format!("{}() of {}", desc.func.name(), args.len()))?;
                args.iter().try_for_each(|v| self.word(*v, at))?;
                None
            }
            Op::Exit(v) => {
                self.word(*v, at)?;
                None
            }
            Op::FaultUnless(_, cond, value) => {
                self.word(*cond, at)?;
                self.word(*value, at)?;
                None
            }
        })
    }

    fn variable(&self, var: VarId) -> Check<&'a VarDesc> {
        let n = self.module.vars.len();
        self.module.vars.get(var.0 as usize).ok_or_else(|| format!("variable {} of {n}", var.0))
    }

    fn scalar(&self, var: VarId) -> Check<&'a VarDesc> {
        let desc = self.variable(var)?;
        ensure(desc.key.is_none(), || format!("{} is an array", desc.name))?;
        Ok(desc)
    }

    fn array(&self, var: VarId, key: &[Value], at: (usize, usize)) -> Check<&'a VarDesc> {
        let desc = self.variable(var)?;
        let columns = desc.key.as_ref().ok_or_else(|| format!("{} is no array", desc.name))?;
        self.key(columns, key, at)?;
        Ok(desc)
    }

    /// Checks that a variable is an array of objects.
    fn object(&self, var: VarId, key: &[Value], at: (usize, usize)) -> Check {
        let var = self.array(var, key, at)?;
        ensure(matches!(var.ty, VarTy::Bytes { .. }), || format!("{} has no objects", var.name))
    }

    fn store(&self, var: &VarDesc, v: Value, at: (usize, usize)) -> Check {
        match var.ty {
            VarTy::Bytes { .. } => Err(format!("{} is an object", var.name)),
            VarTy::Int => self.word(v, at),
            VarTy::Str => self.string(v, at),
        }
    }

    fn key(&self, columns: &[Field], values: &[Value], at: (usize, usize)) -> Check {
        let mut values = values.iter();
        columns.iter().try_for_each(|f| self.column(*f, &mut values, at))?;
        ensure(values.len() == 0, || format!("{} key values too many", values.len()))
    }

    /// Takes the values of one column and checks that they fit it.
    fn column(&self, field: Field, values: &mut std::slice::Iter<'_, Value>, at: (usize, usize)) -> Check {
        let mut next = || values.next().copied().ok_or_else(|| "a column has no value".to_string());
        match field.datum {
            Datum::Int { .. }
            | Datum::Whole { .. }
            | Datum::KernelStack { .. }
            | Datum::UserStack { .. }
            | Datum::KernelAddr(_) => self.word(next()?, at),
            Datum::UserAddr(_) | Datum::Address { .. } => {
                self.word(next()?, at)?;
                self.word(next()?, at)
            }
            Datum::Bytes { size } => {
                let v = next()?;
                self.pointer(v, at)?;
                // Only a copy is known to be readable, at a known address.
                let copied = matches!(self.definition(v), Some(Op::CopyObj { size: n, .. }) if *n == size);
                ensure(copied, || format!("v{} is no copy of {size} bytes", v.0))
            }
            Datum::Interned => self.interned(next()?, at),
            Datum::Provider => {
                self.interned(next()?, at)?;
                self.word(next()?, at)
            }
            Datum::Str { size } | Datum::Name { size } => {
                let v = next()?;
                self.string(v, at)?;
                // A column shorter than a string accepts only a value that is known to fit, so
                // nothing truncates it.
                let longest = match self.definition(v) {
                    Some(Op::StrConst(id)) => self.module.strings.get(id.0 as usize).map_or(0, Vec::len),
                    Some(Op::BuiltinStr(StrBuiltin::Execname)) => 15.min(self.module.strsize as usize - 1),
                    _ => self.module.strsize as usize - 1,
                };
                ensure(longest < size as usize, || format!("v{} may not fit {size} bytes", v.0))
            }
        }
    }

    /// Checks that a string is known before the firing.
    fn interned(&self, v: Value, at: (usize, usize)) -> Check {
        self.string(v, at)?;
        let known = match self.definition(v) {
            Some(Op::StrConst(_)) => true,
            Some(Op::BuiltinStr(b)) => *b != StrBuiltin::Execname,
            _ => false,
        };
        ensure(known, || format!("v{} is neither a constant nor a probe name", v.0))
    }

    fn definition(&self, v: Value) -> Option<&'a Op> {
        let (block, place) = self.defs.get(v.0 as usize).copied().flatten()?;
        self.function.blocks.get(block)?.insts.get(place.checked_sub(1)?).map(|i| &i.op)
    }

    fn record_field(&self, field: Field) -> Check {
        let size = self.record_size.ok_or("the clause has no record")?;
        datum(field.datum, self.module.string_storage())?;
        ensure(field.offset.is_multiple_of(field.datum.align()), || format!("a field at {}", field.offset))?;
        let end = field.offset.saturating_add(field.datum.size());
        ensure(end <= size, || format!("a field ends at {end}, the record at {size}"))
    }

    fn recording(&self, state: Recording, op: &Op) -> Check<Recording> {
        match (op, state) {
            (Op::Reserve, Recording::Before) => {
                ensure(self.record_size.is_some(), || "the clause has no record".into())?;
                Ok(Recording::Open)
            }
            (Op::Speculate(_), Recording::Before) if self.record_size.is_none() => Ok(state),
            (Op::Speculate(_), Recording::Before) => Ok(Recording::Open),
            (Op::Reserve | Op::Speculate(_), _) => Err("a second reserve".into()),
            (
                Op::Record(..) | Op::RecordPair(..) | Op::RecordBytes { .. } | Op::RecordPacket { .. },
                Recording::Open,
            ) => Ok(state),
            (Op::Commit, Recording::Open) => Ok(Recording::After),
            (Op::Snap, Recording::Before | Recording::Open) => Err("a snap before its record".into()),
            (
                Op::Record(..)
                | Op::RecordPair(..)
                | Op::RecordBytes { .. }
                | Op::RecordPacket { .. }
                | Op::Commit,
                _,
            ) => Err("nothing is reserved".into()),
            _ => Ok(state),
        }
    }

    fn end(&self, term: &Term, block: usize, state: Recording) -> Check {
        let at = (block, usize::MAX);
        if let Term::Branch { cond, .. } = term {
            self.word(*cond, at)?;
        }
        let mut result = Ok(());
        term.for_each_edge(|to, args| {
            if result.is_ok() {
                result = self.edge(to, args, at);
            }
        });
        result?;
        match term {
            Term::Return => ensure(state != Recording::Open, || "the record is not committed".into()),
            Term::PredicateFalse => {
                ensure(state == Recording::Before, || "a record before the predicate".into())
            }
            Term::Jump(..) | Term::Branch { .. } => Ok(()),
        }
    }

    fn edge(&self, to: Block, args: &[Value], at: (usize, usize)) -> Check {
        let params = &self.function.blocks[to.0 as usize].params;
        ensure(params.len() == args.len(), || {
            format!("{} arguments for the {} of b{}", args.len(), params.len(), to.0)
        })?;
        for (p, a) in params.iter().zip(args) {
            let (want, has) = (self.function.values[p.0 as usize], self.operand(*a, at)?);
            ensure(want == has, || format!("v{} is {has:?}, b{} wants {want:?}", a.0, to.0))?;
        }
        Ok(())
    }
}

fn value_type(var: &VarDesc) -> Check<Ty> {
    match var.ty {
        VarTy::Int => Ok(Ty::Int),
        VarTy::Str => Ok(Ty::Str),
        VarTy::Bytes { .. } => Err(format!("{} is an object", var.name)),
    }
}
