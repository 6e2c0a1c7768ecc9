//! Instruction selection: a DIF clause becomes MIR.
//!
//! Each kind of operation has its file; what they share is [`Clause`], the state of one clause's translation. The
//! decision that shapes it: a DIF value is not always a register. Constants stay constants, comparisons wait for the
//! branch that uses them, strings have four forms ([`strings`]); a value becomes bits where an operation wants bits.
//!
//! What a firing knows (which probe, which CPU, arguments) comes from the program around the clause ([`Firing`]) and from
//! the provider through [`Context`]; a clause fetches what it names, once, where all its uses are reached from
//! ([`builtin`]).
//!
//! ```text
//!  mod      blocks, block parameters, branches          strings  compare, measure, load, copy
//!  int      arithmetic, checks, loads                   effect   records, variables, aggregations, exit
//!  builtin  arguments, ids, clocks, names               fault    where a fault goes
//!  memory   objects, scratch memory, pointers           far      where they are in a slot
//!  task     members of the current thread's task
//! ```

pub(crate) mod builtin;
pub(crate) mod cut;
pub(crate) mod effect;
pub(crate) mod far;
pub(crate) mod fault;
pub(crate) mod int;
pub(crate) mod layout;
mod memory;
pub(crate) mod piece;
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
use builtin::Homes;
use cut::Facts;
use layout::SlotParts;
use strings::{Shape, Str};

/// What code generation may say.
pub(crate) type Result<T> = std::result::Result<T, CodegenError>;

/// What one firing knows, and where.
pub(crate) struct Firing<'e> {
    pub(crate) context: &'e dyn Context,
    /// The program's argument.
    pub(crate) ctx: V,
    /// Which probe fired.
    pub(crate) index: Index,
    /// The probes of the program, by index.
    pub(crate) probes: &'e [Probe],
    /// The program's table of probes, when there are several.
    pub(crate) table: Option<crate::program::ProbeTable>,
    /// CPU and control element.
    pub(crate) cpu: crate::routines::Firing,
    /// The scratch slot, when one was taken.
    pub(crate) slot: Option<SlotRef>,
    /// Where things are in it.
    pub(crate) parts: SlotParts,
    /// Stacks that the program captured, in a function.
    pub(crate) captured: Option<layout::Captured>,
    /// `this->` integers in registers.
    pub(crate) this: Vec<Option<V>>,
    /// The program has many clauses: what each needs is a function.
    pub(crate) divided: bool,
    /// `vtimestamp`, in the program itself; its functions ask for it.
    pub(crate) vtime: Option<V>,
    /// True for ERROR's clauses: a fault there is not reported again.
    pub(crate) in_error: bool,
}

/// A DIF value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Val {
    /// An integer or address.
    Int(Operand),
    /// A comparison that waits for its only use.
    Cmp(Cond, Operand, Operand),
    /// A comparison of strings that waits for the branch behind it.
    StrCmp(Cond, Str, Str),
    /// A string.
    Str(Str),
    /// An address in a variable that is an object: bytes known now, and bytes that the firing knows.
    Place(VarId, i64, Option<V>),
    /// Made in another piece of the clause: [`piece`].
    Saved,
}

/// The translation of one clause.
pub(crate) struct Clause<'e, 'b> {
    pub(crate) env: &'e Session<'e>,
    pub(crate) firing: &'b Firing<'b>,
    pub(crate) b: &'b mut Builder,
    pub(crate) f: &'e Function,
    /// Its position in the module.
    pub(crate) number: usize,
    /// Id of this clause at probe index 0 of the program.
    pub(crate) epid_base: u32,
    pub(crate) values: Vec<Option<Val>>,
    pub(crate) facts: &'b Facts,
    pub(crate) homes: Homes,
    pub(crate) tasks: task::TaskLoads,
    pub(crate) block: usize,
    /// The blocks that are translated, and their labels.
    blocks: Range<usize>,
    labels: Vec<Label>,
    /// Where the clause ends.
    pub(crate) end: Label,
    /// The piece of a long clause that this is.
    piece: Option<piece::Place<'e>>,
    /// The reserved record.
    pub(crate) record: Option<effect::Open>,
    pub(crate) faults: fault::Faults,
    /// How much scratch memory is taken: a constant, or a register where the clause takes more.
    pub(crate) top: Operand,
    /// Bookkeeping for the current instruction: action and position.
    pub(crate) at: (u16, u32),
}

/// Which clause is translated.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    /// Its position in the module.
    pub(crate) number: usize,
    /// Id of this clause at probe index 0 of the program.
    pub(crate) epid_base: u32,
}

/// Translates a clause; control goes on behind it whatever happens in it.
pub(crate) fn clause<'e>(
    env: &'e Session<'e>,
    firing: &Firing<'_>,
    b: &mut Builder,
    which: Which,
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
    /// Some blocks of a clause, of which it may begin at `entries`.
    fn new(
        env: &'e Session<'e>,
        firing: &'b Firing<'b>,
        b: &'b mut Builder,
        which: Which,
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
            homes: Homes::new(f, &blocks, entries, &tasks),
            tasks,
            block: blocks.start,
            blocks,
            labels,
            end,
            piece: None,
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

    /// Translates the blocks. `reserved`: the record that is reserved at the start of each block.
    fn run(&mut self, mut reserved: Vec<Option<effect::Open>>) -> Result<()> {
        let before = &self.f.blocks[..self.blocks.start];
        let mut offset = before.iter().map(|b| b.insts.len() as u32).sum();
        for i in self.blocks.clone() {
            let block = &self.f.blocks[i];
            self.block = i;
            self.record = reserved[i];
            let label = self.labels[i - self.blocks.start];
            self.b.bind(label);
            self.homes.enter();
            for (n, inst) in block.insts.iter().enumerate() {
                self.at = (inst.action, offset);
                offset += 1;
                let outer = self.b.set_span(inst.span);
                let last = n + 1 == block.insts.len();
                let result = self.inst(inst, last, &block.term);
                self.b.set_span(outer);
                result?;
            }
            self.fetch_homed(i);
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
                Some(Shape::Known) => Val::Str(Str::Known(Operand::V(self.b.var()))),
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

    /// A place of `bytes` bytes in the scratch slot, as loads and stores name it.
    pub(crate) fn place(&mut self, at: u32, bytes: u32) -> (V, i16) {
        let slot = self.slot();
        near(self.b, slot, at, bytes)
    }

    /// The scratch slot.
    pub(crate) fn slot(&mut self) -> V {
        self.slot_ref().address
    }

    /// The same with its number.
    pub(crate) fn slot_ref(&mut self) -> SlotRef {
        match self.firing.slot {
            Some(slot) => slot,
            // Cannot be: a program whose clauses need a slot takes one.
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
            _ => Str::Known(Operand::Imm(0)),
        }
    }

    /// Jumps to `yes` when the integers compare so.
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

    /// A block's parameters are written by nobody else, so the moves cannot meet each other.
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
                Some(Val::Str(Str::Known(Operand::V(dst)))) => {
                    if let Str::Known(id) = self.string(*a) {
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
