//! The blocks of a clause: their parameters, their instructions in order, the branches between
//! them.

use std::ops::Range;

use dif::ir::{Cond, Function, InstData, Op, Space, Term, Ty, Value};
use dif::memory::SCRATCH;

use super::clause::{Clause, ClauseInstance, Faults, Firing, OpenRecord, Str, Val};
use super::facts::{Facts, Shape};
use super::fetch::FetchPoints;
use super::task::TaskLoads;
use crate::error::Result;
use crate::mir::{Builder, Operand};
use crate::session::Session;

/// Translates a clause. Control always continues behind it.
pub fn clause<'e>(
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
    c.start_scratch(false);
    c.run(vec![None; f.blocks.len()])?;
    let end = c.end;
    b.bind(end);
    Ok(())
}

impl<'e, 'b> Clause<'e, 'b> {
    /// Prepares the translation of some blocks of a clause, which is entered at any of `entries`.
    pub(super) fn new(
        env: &'e Session<'e>,
        firing: &'b Firing<'b>,
        b: &'b mut Builder,
        which: ClauseInstance,
        (f, facts): (&'e Function, &'b Facts),
        blocks: Range<usize>,
        entries: &[usize],
    ) -> Self {
        let tasks = TaskLoads::new(f, env.target);
        let end = b.label();
        let labels = blocks.clone().map(|_| b.label()).collect();
        let faults = Faults::new(b);
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
            origin: Operand::Imm(SCRATCH as i64),
            base: Operand::Imm(0),
            keeps: false,
            top: Operand::Imm(0),
            at: (0, 0),
        }
    }

    pub(super) fn parameters(&mut self, params: &[Value]) {
        for p in params {
            let value = match self.saved_at(*p) {
                Some(_) => Val::Saved,
                None => self.parameter(*p),
            };
            self.values[p.0 as usize] = Some(value);
        }
    }

    /// Translates the blocks. `reserved` is the record that is reserved at the start of each block.
    pub(super) fn run(&mut self, mut reserved: Vec<Option<OpenRecord>>) -> Result<()> {
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
                    self.write_string(s, base, off, self.env.module.string_storage(), false);
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
                    self.write_string(value, base, off, self.env.module.string_storage(), false);
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
