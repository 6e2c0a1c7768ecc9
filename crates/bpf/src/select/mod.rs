//! Instruction selection: a DIF clause becomes MIR.
//!
//! Each kind of operation has its own file. They share [`Clause`], the state of one clause's
//! translation. The decision that shapes selection: a DIF value is not always in a register.
//! Constants stay constants, a comparison is fused with the branch that uses it, strings have three
//! representations ([`strings`]). A value is materialized where an operation needs its bits.
//!
//! The state of a firing (which probe, which CPU, arguments) comes from the program around the
//! clause ([`Firing`]) and from the provider through [`Context`]. A clause fetches each builtin
//! once, in a block that dominates all its uses ([`builtin`]).
//!
//! ```text
//!  mod      blocks, block parameters, branches          strings   compare, measure, load, copy
//!  int      arithmetic, checks, loads                   effect    records, variables, aggregations, exit
//!  builtin  arguments, ids, clocks, names               fault     fault stubs and exits
//!  memory   objects, scratch memory, pointers           d_memory  their layout in a slot
//!  task     members of the current thread's task        layout    layout of a slot
//!  split    division of long clauses                    segment   translation of one segment
//! ```

pub(crate) mod builtin;
pub(crate) mod d_memory;
pub(crate) mod effect;
pub(crate) mod fault;
pub(crate) mod int;
pub(crate) mod layout;
mod memory;
pub(crate) mod segment;
pub(crate) mod split;
pub(crate) mod strings;
pub(crate) mod subr;
pub(crate) mod task;

use std::ops::Range;

use dif::ir::{Cond, Function, InstData, Op, Space, Term, Ty, Value, VarId};

use crate::mir::{Builder, Jmp, Label, Operand, V};
use crate::program::{Context, Index, Probe, Session};
use crate::regalloc::CodegenError;
use crate::routines::SlotRef;
pub(crate) use crate::routines::near;
use builtin::FetchPoints;
pub(crate) use builtin::clock_before_reserve;
use layout::SlotParts;
use split::Facts;
use strings::{Shape, Str};

/// The result of code generation.
pub(crate) type Result<T> = std::result::Result<T, CodegenError>;

/// The state of one firing, and where the generated code has it.
pub(crate) struct Firing<'e> {
    pub(crate) context: &'e dyn Context,
    /// The program's context argument.
    pub(crate) ctx: V,
    /// The index of the probe that fired.
    pub(crate) index: Index,
    /// The probes of the program, by index.
    pub(crate) probes: &'e [Probe],
    /// The program's table of probes, when there are several.
    pub(crate) table: Option<crate::program::ProbeTable>,
    /// CPU and per-CPU control element.
    pub(crate) cpu: crate::routines::Firing,
    /// Where its time is.
    pub(crate) clock: crate::routines::Clock,
    /// The scratch slot, when one was taken for its memory.
    pub(crate) slot: Option<SlotRef>,
    /// The offsets in the slot.
    pub(crate) parts: SlotParts,
    /// Stacks that the program captured, in a function.
    pub(crate) captured: Option<layout::Captured>,
    /// `this->` integers in registers.
    pub(crate) this: Vec<Option<V>>,
    /// The program has many clauses. Each resource that a clause needs is obtained in a function.
    pub(crate) divided: bool,
    /// `vtimestamp`, in the program itself. Functions of the program load it again.
    pub(crate) vtime: Option<V>,
    /// True for ERROR's clauses. A fault there is not reported again.
    pub(crate) in_error: bool,
}

/// A DIF value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Val {
    /// An integer or address.
    Int(Operand),
    /// A comparison that is emitted at its only use.
    Cmp(Cond, Operand, Operand),
    /// A string comparison that is emitted in the branch behind it.
    StrCmp(Cond, Str, Str),
    /// A string.
    Str(Str),
    /// An address in a variable that is an object: a constant offset, and an offset known at run
    /// time.
    Place(VarId, i64, Option<V>),
    /// Defined in another segment of the clause: see [`segment`].
    Saved,
}

/// The translation of one clause.
pub(crate) struct Clause<'e, 'b> {
    pub(crate) env: &'e Session<'e>,
    pub(crate) firing: &'b Firing<'b>,
    pub(crate) b: &'b mut Builder,
    pub(crate) f: &'e Function,
    /// Index of the clause in the module.
    pub(crate) number: usize,
    /// Id of this clause at probe index 0 of the program.
    pub(crate) epid_base: u32,
    pub(crate) values: Vec<Option<Val>>,
    pub(crate) facts: &'b Facts,
    pub(crate) fetches: FetchPoints,
    pub(crate) tasks: task::TaskLoads,
    pub(crate) block: usize,
    /// The blocks to translate, and their labels.
    blocks: Range<usize>,
    labels: Vec<Label>,
    /// The label at the end of the clause.
    pub(crate) end: Label,
    /// The segment of a long clause that is being translated.
    segment: Option<segment::SegmentState<'e>>,
    /// The reserved record.
    pub(crate) record: Option<effect::OpenRecord>,
    pub(crate) faults: fault::Faults,
    /// Amount of scratch memory taken: a constant, or a register where the clause takes more at run
    /// time.
    pub(crate) top: Operand,
    /// Action and position of the current instruction, for faults.
    pub(crate) at: (u16, u32),
}

/// A clause as a program uses it.
#[derive(Clone, Copy)]
pub(crate) struct ClauseInstance {
    /// Index of the clause in the module.
    pub(crate) number: usize,
    /// Id of this clause at probe index 0 of the program.
    pub(crate) epid_base: u32,
}

/// Translates a clause. Control always continues behind it.
pub(crate) fn clause<'e>(
    env: &'e Session<'e>,
    firing: &Firing<'_>,
    b: &mut Builder,
    which: ClauseInstance,
) -> Result<()> {
    let f = &env.module.clauses[which.number].func;
    let facts = Facts::new(f, &env.layout.null_vars);
    let mut c = Clause::new(env, firing, b, which, (f, &facts), 0..f.blocks.len(), &[0]);
    for block in &f.blocks {
        c.parameters(&block.params);
    }
    c.start_scratch();
    c.run(vec![None; f.blocks.len()])?;
    let end = c.end;
    b.bind(end);
    Ok(())
}

impl<'e, 'b> Clause<'e, 'b> {
    /// Prepares the translation of some blocks of a clause, which is entered at any of `entries`.
    fn new(
        env: &'e Session<'e>,
        firing: &'b Firing<'b>,
        b: &'b mut Builder,
        which: ClauseInstance,
        (f, facts): (&'e Function, &'b Facts),
        blocks: Range<usize>,
        entries: &[usize],
    ) -> Self {
        let tasks = task::TaskLoads::new(f, env.target);
        let end = b.label();
        let labels = blocks.clone().map(|_| b.label()).collect();
        let faults = fault::Faults::new(b);
        Clause {
            env,
            firing,
            b,
            f,
            number: which.number,
            epid_base: which.epid_base,
            values: vec![None; f.values.len()],
            facts,
            fetches: FetchPoints::new(f, &blocks, entries, &tasks),
            tasks,
            block: blocks.start,
            blocks,
            labels,
            end,
            segment: None,
            record: None,
            faults,
            top: Operand::Imm(0),
            at: (0, 0),
        }
    }

    fn parameters(&mut self, params: &[Value]) {
        for p in params {
            let value = match self.saved_at(*p) {
                Some(_) => Val::Saved,
                None => self.parameter(*p),
            };
            self.values[p.0 as usize] = Some(value);
        }
    }

    /// Translates the blocks. `reserved` is the record that is reserved at the start of each block.
    fn run(&mut self, mut reserved: Vec<Option<effect::OpenRecord>>) -> Result<()> {
        let before = &self.f.blocks[..self.blocks.start];
        let mut offset = before.iter().map(|b| b.insts.len() as u32).sum();
        for i in self.blocks.clone() {
            let block = &self.f.blocks[i];
            self.block = i;
            self.record = reserved[i];
            let label = self.labels[i - self.blocks.start];
            self.b.bind(label);
            self.fetches.enter();
            for (n, inst) in block.insts.iter().enumerate() {
                self.at = (inst.action, offset);
                offset += 1;
                let outer = self.b.set_span(inst.span);
                let last = n + 1 == block.insts.len();
                let result = self.inst(inst, last, &block.term);
                self.b.set_span(outer);
                result?;
            }
            self.fetch_shared(i);
            let record = self.record;
            block.term.for_each_edge(|to, _| reserved[to.0 as usize] = record);
            self.term(&block.term)?;
        }
        self.finish_faults()
    }

    fn parameter(&mut self, p: Value) -> Val {
        match self.f.values[p.0 as usize] {
            Ty::Int | Ty::Ptr(_) => Val::Int(Operand::V(self.b.var())),
            Ty::Str => match self.facts.temps.shape[p.0 as usize] {
                Some(Shape::Interned) => Val::Str(Str::Interned(Operand::V(self.b.var()))),
                Some(Shape::Comm) => Val::Str(Str::Comm(self.b.var(), self.b.var())),
                _ => Val::Str(self.temp(p)),
            },
        }
    }

    /// The temporary of a string value.
    pub(crate) fn temp(&mut self, v: Value) -> Str {
        let number = self.facts.temps.of[v.0 as usize].unwrap_or(0);
        let strsize = self.env.module.strsize;
        let (base, off) = self.place(self.firing.parts.temps + number * strsize, strsize);
        Str::Bytes(base, off)
    }

    /// An address of `bytes` bytes in the scratch slot, as base and offset for loads and stores.
    pub(crate) fn place(&mut self, at: u32, bytes: u32) -> (V, i16) {
        let slot = self.slot();
        near(self.b, slot, at, bytes)
    }

    /// The scratch slot.
    pub(crate) fn slot(&mut self) -> V {
        self.slot_ref().address
    }

    /// The scratch slot, with its number.
    pub(crate) fn slot_ref(&mut self) -> SlotRef {
        match self.firing.slot {
            Some(slot) => slot,
            // Unreachable: a program whose clauses need a slot takes one.
            None => SlotRef { address: self.b.imm(0), number: self.b.imm(0) },
        }
    }

    pub(crate) fn set(&mut self, inst: &InstData, value: Val) {
        if let Some(r) = inst.result {
            self.values[r.0 as usize] = Some(value);
            self.save(r);
        }
    }

    pub(crate) fn uses(&self, inst: &InstData) -> u32 {
        inst.result.map_or(0, |r| self.facts.uses[r.0 as usize])
    }

    pub(crate) fn error<T>(&self, span: Option<diagnostics::Span>, message: &str) -> Result<T> {
        Err(CodegenError { span, message: message.to_owned() })
    }

    /// The bits of an integer value.
    pub(crate) fn int(&mut self, v: Value) -> Operand {
        match self.values[v.0 as usize] {
            Some(Val::Int(o)) => o,
            Some(Val::Cmp(cond, x, y)) => {
                let result = self.b.var();
                let done = self.b.label();
                self.b.set(result, 1);
                self.branch_ints(cond, x, y, done);
                self.b.set(result, 0);
                self.b.bind(done);
                Operand::V(result)
            }
            Some(Val::Place(var, at, more)) => {
                let start = dif::memory::address(self.env.module.vars[var.0 as usize].scope, var) as i64;
                let bits = self.b.imm(start.wrapping_add(at));
                Operand::V(more.map_or(bits, |more| self.b.add(bits, more)))
            }
            Some(Val::Saved) => self.saved_int(v),
            _ => Operand::Imm(0),
        }
    }

    /// The bits of an integer value, in a register.
    pub(crate) fn reg(&mut self, v: Value) -> V {
        let o = self.int(v);
        self.b.reg(o)
    }

    /// A string value.
    pub(crate) fn string(&mut self, v: Value) -> Str {
        match self.values[v.0 as usize] {
            Some(Val::Str(s)) => s,
            Some(Val::Saved) => self.saved_string(v),
            _ => Str::Interned(Operand::Imm(0)),
        }
    }

    /// Jumps to `yes` when the comparison of the integers holds.
    pub(crate) fn branch_ints(&mut self, cond: Cond, x: Operand, y: Operand, yes: Label) {
        let jmp = match cond {
            Cond::Eq => Jmp::Eq,
            Cond::Ne => Jmp::Ne,
            Cond::Slt => Jmp::Slt,
            Cond::Sle => Jmp::Sle,
            Cond::Sgt => Jmp::Sgt,
            Cond::Sge => Jmp::Sge,
            Cond::Ult => Jmp::Lt,
            Cond::Ule => Jmp::Le,
            Cond::Ugt => Jmp::Gt,
            Cond::Uge => Jmp::Ge,
        };
        match (x, y) {
            (Operand::Imm(a), Operand::Imm(c)) => {
                if dif::eval::cmp(cond, a, c) {
                    self.b.jmp(yes);
                }
            }
            (Operand::Imm(a), Operand::V(c)) => self.b.br(jmp.swap(), c, a, yes),
            (Operand::V(a), c) => self.b.br(jmp, a, c, yes),
        }
    }

    fn term(&mut self, term: &Term) -> Result<()> {
        match term {
            Term::Return | Term::PredicateFalse => {
                let end = self.end;
                self.b.jmp(end);
            }
            Term::Jump(to, args) => self.edge(*to, args),
            Term::Branch { cond, then, other } => {
                let yes = self.b.label();
                match self.values[cond.0 as usize] {
                    Some(Val::Cmp(c, x, y)) => self.branch_ints(c, x, y, yes),
                    Some(Val::StrCmp(c, x, y)) => self.branch_strings(c, x, y, yes),
                    _ => {
                        let x = self.int(*cond);
                        self.branch_ints(Cond::Ne, x, Operand::Imm(0), yes);
                    }
                }
                self.edge(other.0, &other.1);
                self.b.bind(yes);
                self.edge(then.0, &then.1);
            }
        }
        Ok(())
    }

    /// Nothing else writes a block's parameters, so the moves cannot conflict.
    fn edge(&mut self, to: dif::ir::Block, args: &[Value]) {
        let f = self.f;
        let to = to.0 as usize;
        for (p, a) in f.blocks[to].params.iter().zip(args) {
            if self.saved_at(*p).is_some() {
                self.pass(*p, *a);
                continue;
            }
            match self.values[p.0 as usize] {
                Some(Val::Int(Operand::V(dst))) => {
                    let value = self.int(*a);
                    self.b.set(dst, value);
                }
                Some(Val::Str(Str::Interned(Operand::V(dst)))) => {
                    if let Str::Interned(id) = self.string(*a) {
                        self.b.set(dst, id);
                    }
                }
                Some(Val::Str(Str::Comm(d0, d1))) => {
                    if let Str::Comm(s0, s1) = self.string(*a) {
                        self.b.set(d0, s0);
                        self.b.set(d1, s1);
                    }
                }
                Some(Val::Str(Str::Bytes(base, off))) => {
                    let s = self.string(*a);
                    self.write_string(s, base, off, self.env.module.strsize, false);
                }
                _ => {}
            }
        }
        match to.checked_sub(self.blocks.start).and_then(|i| self.labels.get(i)).copied() {
            Some(label) => self.b.jmp(label),
            None => self.leave_to(to),
        }
    }

    fn inst(&mut self, inst: &InstData, last: bool, term: &Term) -> Result<()> {
        if self.tasks.is_unused(inst) {
            self.set(inst, Val::Int(Operand::Imm(0)));
            return Ok(());
        }
        self.check_nulls(inst);
        match &inst.op {
            Op::Null => self.null(inst),
            Op::Const(i) => self.set(inst, Val::Int(Operand::Imm(*i))),
            Op::StrConst(id) => {
                let s = self.constant(*id);
                self.set(inst, Val::Str(s));
            }
            Op::Bin(op, x, y) => self.bin(inst, *op, *x, *y),
            Op::Un(op, x) => self.un(inst, *op, *x),
            Op::Cmp(cond, x, y) => {
                let (x, y) = (self.int(*x), self.int(*y));
                let waits = self.uses(inst) == 1;
                self.set(inst, Val::Cmp(*cond, x, y));
                if !waits && let Some(r) = inst.result {
                    let bits = self.int(r);
                    self.set(inst, Val::Int(bits));
                }
            }
            Op::StrCmp(cond, x, y) => {
                let (x, y) = (self.string(*x), self.string(*y));
                let branched = matches!(term, Term::Branch { cond, .. } if Some(*cond) == inst.result);
                if last && branched && self.uses(inst) == 1 {
                    self.set(inst, Val::StrCmp(*cond, x, y));
                } else {
                    let result = self.b.var();
                    let done = self.b.label();
                    self.b.set(result, 1);
                    self.branch_strings(*cond, x, y, done);
                    self.b.set(result, 0);
                    self.b.bind(done);
                    self.set(inst, Val::Int(Operand::V(result)));
                }
            }
            Op::Ext { bits, signed, value } => self.ext(inst, *bits, *signed, *value),
            Op::AsPtr(_, v) | Op::AsInt(v) => {
                let kept = match (&inst.op, self.values[v.0 as usize]) {
                    (Op::AsInt(_) | Op::AsPtr(Space::Static | Space::Unknown, _), Some(Val::Place(..))) => {
                        self.values[v.0 as usize]
                    }
                    _ => None,
                };
                let value = match kept {
                    Some(place) => place,
                    None => Val::Int(self.int(*v)),
                };
                self.set(inst, value);
            }
            Op::Builtin(which) => {
                let value = self.builtin(*which);
                self.set(inst, Val::Int(value));
            }
            Op::BuiltinStr(which) => {
                let mut value = self.builtin_str(*which);
                if let (Str::Comm(..), Some(r)) = (value, inst.result)
                    && self.facts.temps.shape[r.0 as usize] == Some(Shape::Bytes)
                    && let Str::Bytes(base, off) = self.temp(r)
                {
                    self.write_string(value, base, off, self.env.module.strsize, false);
                    value = Str::Bytes(base, off);
                }
                self.set(inst, Val::Str(value));
            }
            Op::Load { size, signed, addr } => self.load(inst, *size, *signed, *addr)?,
            Op::LoadStr { addr, max } => self.load_str(inst, *addr, *max)?,
            Op::StrLen(s) => {
                let s = self.string(*s);
                let len = self.string_length(s);
                self.set(inst, Val::Int(len));
            }
            Op::Call(subr, args) => self.call(inst, *subr, args)?,
            Op::FaultUnless(kind, cond, value) => {
                let (cond, value) = (self.int(*cond), self.int(*value));
                let bad = self.fault(*kind, value);
                self.branch_ints(Cond::Eq, cond, Operand::Imm(0), bad);
            }
            _ => self.effect(inst)?,
        }
        Ok(())
    }
}
