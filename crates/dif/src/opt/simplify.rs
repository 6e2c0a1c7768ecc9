//! The forward walk. It finds constants, copies, equal subexpressions, decided branches, block
//! parameters with only one possible value, and `this->` variables with a known value.
//!
//! Only edges that can still be taken count. An unreachable block is not walked, and the values
//! that it would pass do not keep a parameter alive.

use std::collections::HashMap;

use super::dead::drop_marked;
use super::fold::{Context, Folded, fold};
use crate::dom::DomTree;
use crate::ir::{Block, Cond, Function, InstData, Module, Op, Scope, Space, Subr, Term, Ty, Value, VarId};

/// Maximum number of earlier occurrences of an operation that are compared. If none of the last few
/// dominates, an older one is unlikely to.
const OCCURRENCES: usize = 8;
/// Maximum number of rules applied to one instruction in sequence.
const STEPS: usize = 8;

/// The known values of `this->` variables at a point of the code.
type Locals = HashMap<VarId, Value>;

/// Simplifies in place. Unreachable blocks remain, empty, until the function is normalized.
pub(super) fn run(module: &Module, function: &mut Function) {
    let n = function.blocks.len();
    let dom = DomTree::new(function);
    let mut walk = Simplifier {
        module,
        new: (0..function.values.len() as u32).map(Value).collect(),
        defs: vec![None; function.values.len()],
        types: std::mem::take(&mut function.values),
        seen: HashMap::new(),
        checked: HashMap::new(),
        dom,
        stores: writes_memory(function),
        acts: changes_kernel_memory(function),
        block: 0,
        out: Vec::new(),
        locals: Locals::new(),
    };
    let mut incoming: Vec<Vec<InEdge>> = vec![Vec::new(); n];
    let mut gone: Vec<Vec<bool>> = vec![Vec::new(); n];
    for b in 0..n {
        let edges = std::mem::take(&mut incoming[b]);
        if b != 0 && edges.is_empty() {
            function.blocks[b].insts.clear();
            function.blocks[b].term = Term::Return;
            continue;
        }
        walk.block = b;
        walk.locals = meet(&edges);
        let block = &mut function.blocks[b];
        let insts = std::mem::take(&mut block.insts);
        gone[b] = walk.params(&block.params, &edges, insts.first());
        insts.into_iter().for_each(|inst| walk.instruction(inst));
        block.insts = std::mem::take(&mut walk.out);
        walk.term(&mut block.term);
        let locals = std::mem::take(&mut walk.locals);
        block.term.for_each_edge(|to, args| {
            if let Some(list) = incoming.get_mut(to.0 as usize) {
                list.push(InEdge { args: args.to_vec(), locals: locals.clone() });
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

/// True if the function may write to memory that an address of unknown space can reach.
fn writes_memory(function: &Function) -> bool {
    let writes = |op: &Op| {
        matches!(
            op,
            Op::Store { .. }
                | Op::Alloca(_)
                | Op::Copy { .. }
                | Op::CopyElem { .. }
                | Op::CopyObj { .. }
                | Op::StoreObj { .. }
                | Op::StrAddr { .. }
                | Op::StoreVar(..)
        )
    };
    function.blocks.iter().flat_map(|b| &b.insts).any(|i| writes(&i.op))
}

/// True if the function may wait, or act on the thread: a script that loads before and after wants
/// to see what changed.
fn changes_kernel_memory(function: &Function) -> bool {
    let changes = |op: &Op| matches!(op, Op::Call(Subr::Chill | Subr::Raise, _));
    function.blocks.iter().flat_map(|b| &b.insts).any(|i| changes(&i.op))
}

/// An incoming edge of a block: its arguments and the variables known there.
#[derive(Clone)]
struct InEdge {
    args: Vec<Value>,
    locals: Locals,
}

/// The values that are known on all incoming edges.
fn meet(edges: &[InEdge]) -> Locals {
    let Some((first, rest)) = edges.split_first() else { return Locals::new() };
    let mut known = first.locals.clone();
    known.retain(|var, value| rest.iter().all(|w| w.locals.get(var) == Some(value)));
    known
}

struct Simplifier<'m> {
    module: &'m Module,
    /// The replacement of each value. A replacement is never itself replaced, because it was walked
    /// before.
    new: Vec<Value>,
    defs: Vec<Option<Op>>,
    types: Vec<Ty>,
    /// Pure operations seen so far, with their result and block.
    seen: HashMap<Op, Vec<(Value, usize)>>,
    /// Checks seen so far, by condition.
    checked: HashMap<Value, Vec<usize>>,
    dom: DomTree,
    /// The function writes to D memory.
    stores: bool,
    /// The function gives the kernel's memory time or cause to change.
    acts: bool,
    block: usize,
    out: Vec<InstData>,
    locals: Locals,
}

impl Context for Simplifier<'_> {
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

impl Simplifier<'_> {
    fn lookup(&self, v: Value) -> Value {
        self.new.get(v.0 as usize).copied().unwrap_or(v)
    }

    /// The result of the same operation in a dominating block, if there is one.
    fn find(&self, op: &Op) -> Option<Value> {
        let found = self.seen.get(op)?;
        found
            .iter()
            .rev()
            .take(OCCURRENCES)
            .find(|(_, b)| self.dom.dominates(*b, self.block))
            .map(|(v, _)| *v)
    }

    /// True for an operation that gives the same result again in this firing. A number in the
    /// kernel's memory is read once: what a clause sees of it does not change while the clause
    /// runs, and where it was read once it does not fault. An address of unknown space may be one
    /// of D memory.
    fn is_repeatable(&self, op: &Op) -> bool {
        match op {
            Op::Load { addr, .. } => match self.ty(*addr) {
                _ if self.acts => false,
                Ty::Ptr(Space::Kernel) => true,
                Ty::Ptr(Space::Unknown) => !self.stores,
                _ => false,
            },
            op => op.is_pure(),
        }
    }

    fn emit(&mut self, inst: InstData) {
        if let Some(v) = inst.result {
            if self.is_repeatable(&inst.op) {
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

    /// Finds parameters for which every edge passes the same value or the same constant, and
    /// replaces them. Returns which parameters to remove.
    fn params(&mut self, params: &[Value], edges: &[InEdge], first: Option<&InstData>) -> Vec<bool> {
        params
            .iter()
            .enumerate()
            .map(|(i, param)| {
                let mut given = edges.iter().map(|w| w.args.get(i).copied());
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
            if !self.is_redundant(&inst.op) {
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
        if self.is_repeatable(&inst.op)
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

    /// Records the effect of an operation without result. Returns true when the operation is
    /// redundant.
    fn is_redundant(&mut self, op: &Op) -> bool {
        match op {
            Op::StoreVar(var, value) if self.is_local(*var) => {
                self.locals.insert(*var, *value) == Some(*value)
            }
            Op::FaultUnless(_, cond, _) => self.is_known_true(*cond),
            _ => false,
        }
    }

    fn is_local(&self, var: VarId) -> bool {
        self.module.vars.get(var.0 as usize).is_some_and(|v| v.scope == Scope::Clause && v.key.is_none())
    }

    /// True when the condition of a check is known to be true: it is a constant, or a dominating
    /// block has checked it.
    fn is_known_true(&mut self, cond: Value) -> bool {
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
