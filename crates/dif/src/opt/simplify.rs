//! The forward walk: constants, copies, equal subexpressions, branches that are decided, block parameters that are no
//! choice, and `this->` variables whose value is at hand.
//!
//! Only edges that can still be taken count: a block that nothing reaches any more is not walked, and what it would have
//! passed on does not keep a parameter alive.

use std::collections::HashMap;

use super::dead::drop_marked;
use super::fold::{Folded, Known, fold};
use crate::dom::DomTree;
use crate::ir::{Block, Cond, Function, InstData, Module, Op, Scope, Term, Ty, Value, VarId};

/// Earlier occurrences of an operation that are looked at: one of the last few dominates, or none is likely to.
const OCCURRENCES: usize = 8;
/// Rules applied to one instruction in a row.
const STEPS: usize = 8;

/// The values of `this->` variables at some point.
type Locals = HashMap<VarId, Value>;

/// Simplifies in place; unreached blocks stay, emptied, until the function is normalized.
pub(super) fn run(module: &Module, function: &mut Function) {
    let n = function.blocks.len();
    let dom = DomTree::new(function);
    let mut walk = Walk {
        module,
        new: (0..function.values.len() as u32).map(Value).collect(),
        defs: vec![None; function.values.len()],
        types: std::mem::take(&mut function.values),
        seen: HashMap::new(),
        checked: HashMap::new(),
        dom,
        block: 0,
        out: Vec::new(),
        locals: Locals::new(),
    };
    let mut incoming: Vec<Vec<Way>> = vec![Vec::new(); n];
    let mut gone: Vec<Vec<bool>> = vec![Vec::new(); n];
    for b in 0..n {
        let ways = std::mem::take(&mut incoming[b]);
        if b != 0 && ways.is_empty() {
            function.blocks[b].insts.clear();
            function.blocks[b].term = Term::Return;
            continue;
        }
        walk.block = b;
        walk.locals = meet(&ways);
        let block = &mut function.blocks[b];
        let insts = std::mem::take(&mut block.insts);
        gone[b] = walk.params(&block.params, &ways, insts.first());
        insts.into_iter().for_each(|inst| walk.instruction(inst));
        block.insts = std::mem::take(&mut walk.out);
        walk.term(&mut block.term);
        let locals = std::mem::take(&mut walk.locals);
        block.term.for_each_edge(|to, args| {
            if let Some(list) = incoming.get_mut(to.0 as usize) {
                list.push(Way { args: args.to_vec(), locals: locals.clone() });
            }
        });
    }
    for b in 0..n {
        drop_marked(&mut function.blocks[b].params, &gone[b]);
        function.blocks[b].term.for_each_edge_mut(|to, args| {
            drop_marked(args, gone.get(to.0 as usize).map_or(&[], Vec::as_slice));
        });
    }
    function.values = walk.types;
}

/// One way into a block: the arguments given and what is known there.
#[derive(Clone)]
struct Way {
    args: Vec<Value>,
    locals: Locals,
}

/// What is known whichever way was taken.
fn meet(ways: &[Way]) -> Locals {
    let Some((first, rest)) = ways.split_first() else { return Locals::new() };
    let mut known = first.locals.clone();
    known.retain(|var, value| rest.iter().all(|w| w.locals.get(var) == Some(value)));
    known
}

struct Walk<'m> {
    module: &'m Module,
    /// What each value is replaced by; a replacement is never itself replaced, for it was walked before.
    new: Vec<Value>,
    defs: Vec<Option<Op>>,
    types: Vec<Ty>,
    /// Pure operations met, with the value they gave and the block they stand in.
    seen: HashMap<Op, Vec<(Value, usize)>>,
    /// Checks met, by condition.
    checked: HashMap<Value, Vec<usize>>,
    dom: DomTree,
    block: usize,
    out: Vec<InstData>,
    locals: Locals,
}

impl Known for Walk<'_> {
    fn def(&self, value: Value) -> Option<&Op> {
        self.defs.get(value.0 as usize)?.as_ref()
    }

    fn ty(&self, value: Value) -> Ty {
        self.types.get(value.0 as usize).copied().unwrap_or(Ty::Int)
    }

    fn constant(&mut self, n: i64) -> Value {
        let op = Op::Const(n);
        if let Some(v) = self.find(&op) {
            return v;
        }
        let v = Value(self.types.len() as u32);
        self.types.push(Ty::Int);
        self.new.push(v);
        self.defs.push(None);
        let (span, action) = self.out.last().map_or((None, 0), |i| (i.span, i.action));
        self.emit(InstData { op, result: Some(v), span, action });
        v
    }

    fn module(&self) -> &Module {
        self.module
    }
}

impl Walk<'_> {
    fn lookup(&self, v: Value) -> Value {
        self.new.get(v.0 as usize).copied().unwrap_or(v)
    }

    /// A value that has already been given by the same operation on every way here.
    fn find(&self, op: &Op) -> Option<Value> {
        let found = self.seen.get(op)?;
        found
            .iter()
            .rev()
            .take(OCCURRENCES)
            .find(|(_, b)| self.dom.dominates(*b, self.block))
            .map(|(v, _)| *v)
    }

    fn emit(&mut self, inst: InstData) {
        if let Some(v) = inst.result {
            if inst.op.is_pure() {
                self.seen.entry(inst.op.clone()).or_default().push((v, self.block));
            }
            if let Some(slot) = self.defs.get_mut(v.0 as usize) {
                *slot = Some(inst.op.clone());
            }
        }
        self.out.push(inst);
    }

    fn replace(&mut self, old: Value, new: Value) {
        if let Some(slot) = self.new.get_mut(old.0 as usize) {
            *slot = new;
        }
    }

    /// Parameters that every way gives the same value, or the same constant, are no parameters; which are gone.
    fn params(&mut self, params: &[Value], ways: &[Way], first: Option<&InstData>) -> Vec<bool> {
        params
            .iter()
            .enumerate()
            .map(|(i, param)| {
                let mut given = ways.iter().map(|w| w.args.get(i).copied());
                let Some(Some(one)) = given.next() else { return false };
                let rest: Vec<Option<Value>> = given.collect();
                if rest.iter().all(|g| *g == Some(one)) {
                    self.replace(*param, one);
                    return true;
                }
                let Some(op @ (Op::Const(_) | Op::StrConst(_) | Op::Null)) = self.def(one).cloned() else {
                    return false;
                };
                if !rest.iter().all(|g| g.and_then(|v| self.def(v)) == Some(&op)) {
                    return false;
                }
                let (span, action) = first.map_or((None, 0), |f| (f.span, f.action));
                self.emit(InstData { op, result: Some(*param), span, action });
                true
            })
            .collect()
    }

    fn instruction(&mut self, mut inst: InstData) {
        inst.op.map_uses(|v| self.lookup(v));
        let Some(result) = inst.result else {
            if !self.settled(&inst.op) {
                self.emit(inst);
            }
            return;
        };
        let ty = self.ty(result);
        for _ in 0..STEPS {
            if let Op::LoadVar(var) = inst.op
                && let Some(known) = self.locals.get(&var).copied()
            {
                if self.ty(known) == ty {
                    return self.replace(result, known);
                }
                inst.op = Op::AsInt(known);
            }
            match fold(self, &inst.op, ty) {
                Folded::Same => break,
                Folded::Value(v) => return self.replace(result, v),
                Folded::Op(op) => inst.op = op,
            }
        }
        if inst.op.is_pure()
            && let Some(v) = self.find(&inst.op)
            && self.ty(v) == ty
        {
            return self.replace(result, v);
        }
        if let Op::LoadVar(var) = inst.op
            && self.is_local(var)
        {
            self.locals.insert(var, result);
        }
        self.emit(inst);
    }

    /// Takes note of an operation without result; true when it does nothing.
    fn settled(&mut self, op: &Op) -> bool {
        match op {
            Op::StoreVar(var, value) if self.is_local(*var) => {
                self.locals.insert(*var, *value) == Some(*value)
            }
            Op::FaultUnless(_, cond, _) => self.holds(*cond),
            _ => false,
        }
    }

    fn is_local(&self, var: VarId) -> bool {
        self.module.vars.get(var.0 as usize).is_some_and(|v| v.scope == Scope::Clause && v.key.is_none())
    }

    /// True when the condition of a check is known to hold: a constant, or checked before on every way here.
    fn holds(&mut self, cond: Value) -> bool {
        if let Some(Op::Const(n)) = self.def(cond) {
            return *n != 0;
        }
        let before = self.checked.entry(cond).or_default();
        if before.iter().rev().take(OCCURRENCES).any(|b| self.dom.dominates(*b, self.block)) {
            return true;
        }
        before.push(self.block);
        false
    }

    fn term(&mut self, term: &mut Term) {
        term.map_uses(|v| self.lookup(v));
        let Term::Branch { cond, then, other } = term else { return };
        for _ in 0..STEPS {
            match self.defs.get(cond.0 as usize).and_then(Option::as_ref) {
                Some(Op::AsInt(v) | Op::AsPtr(_, v)) => *cond = *v,
                Some(Op::Cmp(Cond::Ne, v, zero)) if self.is_zero(*zero) => *cond = *v,
                Some(Op::Cmp(Cond::Eq, v, zero)) if self.is_zero(*zero) => {
                    *cond = *v;
                    std::mem::swap(then, other);
                }
                _ => break,
            }
        }
        let decided = match self.def(*cond) {
            Some(Op::Const(n)) => Some(*n != 0),
            _ if then == other => Some(true),
            _ => None,
        };
        if let Some(truth) = decided {
            let (to, args) = std::mem::replace(if truth { then } else { other }, (Block(0), Vec::new()));
            *term = Term::Jump(to, args);
        }
    }

    fn is_zero(&self, v: Value) -> bool {
        matches!(self.def(v), Some(Op::Const(0)))
    }
}
