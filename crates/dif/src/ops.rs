//! Properties of operations that every pass needs: the values an operation uses, and its effects.
//!
//! They are defined once, as exhaustive matches, so that a new [`Op`] does not compile until all
//! its properties are stated. With a catch-all arm in each pass instead, an optimizer would one day
//! delete a store.

use crate::ir::{Block, BlockData, Function, InstData, Module, Op, Term, Ty, Value, VarDesc, VarId};
use crate::subr::{Effect, Subr};

impl Op {
    /// Calls `f` for each operand, in order.
    pub fn for_each_use(&self, mut f: impl FnMut(Value)) {
        match self {
            Op::Const(_)
            | Op::StrConst(_)
            | Op::Null
            | Op::Builtin(_)
            | Op::BuiltinStr(_)
            | Op::LoadVar(_)
            | Op::AddrVar(_)
            | Op::Stack { .. }
            | Op::Reserve
            | Op::Commit
            | Op::Snap => {}
            Op::Bin(_, a, b)
            | Op::Cmp(_, a, b)
            | Op::StrCmp(_, a, b)
            | Op::RecordPair(_, a, b)
            | Op::Store { size: _, addr: a, value: b }
            | Op::FaultUnless(_, a, b) => {
                f(*a);
                f(*b);
            }
            Op::Copy { dst: a, src: b, len: c }
            | Op::CopyOut { src: a, addr: b, len: c }
            | Op::CopyOutStr { value: a, addr: b, max: c } => [*a, *b, *c].into_iter().for_each(f),
            Op::Un(_, v)
            | Op::Ext { value: v, .. }
            | Op::AsPtr(_, v)
            | Op::AsInt(v)
            | Op::Load { addr: v, .. }
            | Op::StrLen(v)
            | Op::StoreVar(_, v)
            | Op::Alloca(v)
            | Op::StrAddr { value: v, at: _ }
            | Op::CopyObj { addr: v, .. }
            | Op::Record(_, v)
            | Op::Speculate(v)
            | Op::RecordPacket { skb: v, .. }
            | Op::Exit(v) => f(*v),
            Op::LoadStr { addr, max } | Op::RecordBytes { addr, len: max, .. } => {
                f(*addr);
                max.iter().copied().for_each(f);
            }
            Op::LoadElem(_, key) | Op::DeleteElem(_, key) | Op::CopyElem { key, .. } | Op::Call(_, key) => {
                key.iter().copied().for_each(f);
            }
            Op::StoreElem(_, key, v) | Op::AddElem(_, key, v) | Op::StoreObj { var: _, key, addr: v } => {
                key.iter().copied().for_each(&mut f);
                f(*v);
            }
            Op::Aggregate { agg: _, key, args } => key.iter().chain(args).copied().for_each(f),
        }
    }

    /// Replaces each operand by the result of `f`.
    pub fn map_uses(&mut self, mut f: impl FnMut(Value) -> Value) {
        match self {
            Op::Const(_)
            | Op::StrConst(_)
            | Op::Null
            | Op::Builtin(_)
            | Op::BuiltinStr(_)
            | Op::LoadVar(_)
            | Op::AddrVar(_)
            | Op::Stack { .. }
            | Op::Reserve
            | Op::Commit
            | Op::Snap => {}
            Op::Bin(_, a, b)
            | Op::Cmp(_, a, b)
            | Op::StrCmp(_, a, b)
            | Op::RecordPair(_, a, b)
            | Op::Store { size: _, addr: a, value: b }
            | Op::FaultUnless(_, a, b) => {
                *a = f(*a);
                *b = f(*b);
            }
            Op::Copy { dst: a, src: b, len: c }
            | Op::CopyOut { src: a, addr: b, len: c }
            | Op::CopyOutStr { value: a, addr: b, max: c } => {
                *a = f(*a);
                *b = f(*b);
                *c = f(*c);
            }
            Op::Un(_, v)
            | Op::Ext { value: v, .. }
            | Op::AsPtr(_, v)
            | Op::AsInt(v)
            | Op::Load { addr: v, .. }
            | Op::StrLen(v)
            | Op::StoreVar(_, v)
            | Op::Alloca(v)
            | Op::StrAddr { value: v, at: _ }
            | Op::CopyObj { addr: v, .. }
            | Op::Record(_, v)
            | Op::Speculate(v)
            | Op::RecordPacket { skb: v, .. }
            | Op::Exit(v) => *v = f(*v),
            Op::LoadStr { addr, max } | Op::RecordBytes { addr, len: max, .. } => {
                *addr = f(*addr);
                max.iter_mut().for_each(|v| *v = f(*v));
            }
            Op::LoadElem(_, key) | Op::DeleteElem(_, key) | Op::CopyElem { key, .. } | Op::Call(_, key) => {
                key.iter_mut().for_each(|v| *v = f(*v));
            }
            Op::StoreElem(_, key, value)
            | Op::AddElem(_, key, value)
            | Op::StoreObj { var: _, key, addr: value } => {
                key.iter_mut().for_each(|v| *v = f(*v));
                *value = f(*value);
            }
            Op::Aggregate { agg: _, key, args } => key.iter_mut().chain(args).for_each(|v| *v = f(*v)),
        }
    }

    /// True when the operation has a result.
    pub fn has_result(&self) -> bool {
        match self {
            Op::Const(_)
            | Op::StrConst(_)
            | Op::Null
            | Op::Bin(..)
            | Op::Un(..)
            | Op::Cmp(..)
            | Op::StrCmp(..)
            | Op::Ext { .. }
            | Op::AsPtr(..)
            | Op::AsInt(_)
            | Op::Builtin(_)
            | Op::BuiltinStr(_)
            | Op::Load { .. }
            | Op::LoadStr { .. }
            | Op::StrLen(_)
            | Op::Call(..)
            | Op::LoadVar(_)
            | Op::LoadElem(..)
            | Op::AddElem(..)
            | Op::AddrVar(_)
            | Op::Alloca(_)
            | Op::CopyElem { .. }
            | Op::CopyObj { .. }
            | Op::StrAddr { .. }
            | Op::Stack { .. } => true,
            Op::StoreVar(..)
            | Op::Store { .. }
            | Op::Copy { .. }
            | Op::StoreObj { .. }
            | Op::RecordBytes { .. }
            | Op::RecordPacket { .. }
            | Op::CopyOut { .. }
            | Op::CopyOutStr { .. }
            | Op::StoreElem(..)
            | Op::DeleteElem(..)
            | Op::Reserve
            | Op::Speculate(_)
            | Op::Record(..)
            | Op::RecordPair(..)
            | Op::Commit
            | Op::Aggregate { .. }
            | Op::Exit(_)
            | Op::Snap
            | Op::FaultUnless(..) => false,
        }
    }

    /// Calls `f` for each operand that must not be NULL if it is a string.
    pub fn for_each_text(&self, mut f: impl FnMut(Value)) {
        match self {
            // These store NULL, or treat it as the empty string.
            Op::StoreVar(..) | Op::StrCmp(..) => {}
            Op::StoreElem(_, key, _) => key.iter().copied().for_each(f),
            // NULL means: continue with the previous string.
            Op::Call(Subr::Strtok, args) => args.iter().skip(1).copied().for_each(f),
            _ => self.for_each_use(&mut f),
        }
    }

    /// The number of bytes behind a NULL string at which the operation reads it: that is the
    /// address of the fault. `None` for 0.
    pub fn null_offset(&self) -> Option<Value> {
        match self {
            Op::Call(Subr::Tail | Subr::SetChar, args) => args.get(1).copied(),
            _ => None,
        }
    }

    /// True when the operation alone can end the clause by a fault; see also [`Function::nulls`].
    pub fn may_fault(&self) -> bool {
        match self {
            Op::Bin(op, ..) => op.divides(),
            Op::Load { .. }
            | Op::LoadStr { .. }
            | Op::Alloca(_)
            | Op::CopyObj { .. }
            | Op::Store { .. }
            | Op::Copy { .. }
            | Op::StoreObj { .. }
            | Op::RecordBytes { .. }
            | Op::RecordPacket { .. }
            | Op::CopyOut { .. }
            | Op::CopyOutStr { .. }
            | Op::Speculate(_)
            | Op::FaultUnless(..) => true,
            Op::Call(subr, _) => subr.row().faults,
            _ => false,
        }
    }

    /// True when an operand may be a NULL string but must not be. `nulls` is the result of
    /// [`Function::nulls`].
    pub fn takes_null(&self, nulls: &[bool]) -> bool {
        let mut takes = false;
        self.for_each_text(|v| takes |= nulls.get(v.0 as usize).copied().unwrap_or(false));
        takes
    }

    /// True when the operation has no effect, and the same operands give the same value anywhere in
    /// a clause of one firing. A fault due to its operands is not counted as an effect here.
    pub fn is_pure(&self) -> bool {
        match self {
            Op::Const(_)
            | Op::StrConst(_)
            | Op::Null
            | Op::Bin(..)
            | Op::Un(..)
            | Op::Cmp(..)
            | Op::StrCmp(..)
            | Op::Ext { .. }
            | Op::AsPtr(..)
            | Op::AsInt(_)
            | Op::Builtin(_)
            | Op::BuiltinStr(_)
            | Op::AddrVar(_)
            | Op::StrLen(_) => true,
            Op::Call(subr, _) => subr.row().effect == Effect::None,
            Op::Load { .. }
            | Op::LoadStr { .. }
            | Op::LoadVar(_)
            | Op::LoadElem(..)
            | Op::Alloca(_)
            | Op::CopyElem { .. }
            | Op::CopyObj { .. }
            | Op::StrAddr { .. }
            | Op::Stack { .. }
            | Op::StoreVar(..)
            | Op::Store { .. }
            | Op::Copy { .. }
            | Op::StoreObj { .. }
            | Op::RecordBytes { .. }
            | Op::RecordPacket { .. }
            | Op::CopyOut { .. }
            | Op::CopyOutStr { .. }
            | Op::StoreElem(..)
            | Op::AddElem(..)
            | Op::DeleteElem(..)
            | Op::Reserve
            | Op::Speculate(_)
            | Op::Record(..)
            | Op::RecordPair(..)
            | Op::Commit
            | Op::Aggregate { .. }
            | Op::Exit(_)
            | Op::Snap
            | Op::FaultUnless(..) => false,
        }
    }

    /// True when the operation can be removed if its value is unused and it cannot fault. An unused
    /// stack need not be captured. Dropping an unused load of a missing array element loses
    /// nothing.
    pub fn is_removable(&self) -> bool {
        match self {
            Op::Call(subr, _) => subr.row().effect != Effect::Changes,
            // These write scratch memory, whose address other operations may have.
            Op::CopyElem { .. } | Op::CopyObj { .. } | Op::StrAddr { .. } => false,
            Op::AddElem(..) => false,
            _ => self.has_result(),
        }
    }
}

impl Term {
    /// Calls `f` for each edge, with the target block and the arguments.
    pub fn for_each_edge(&self, mut f: impl FnMut(Block, &[Value])) {
        match self {
            Term::Jump(block, args) => f(*block, args),
            Term::Branch { cond: _, then, other } => {
                f(then.0, &then.1);
                f(other.0, &other.1);
            }
            Term::Return | Term::PredicateFalse => {}
        }
    }

    /// Like [`Term::for_each_edge`], with mutable access.
    pub fn for_each_edge_mut(&mut self, mut f: impl FnMut(&mut Block, &mut Vec<Value>)) {
        match self {
            Term::Jump(block, args) => f(block, args),
            Term::Branch { cond: _, then, other } => {
                f(&mut then.0, &mut then.1);
                f(&mut other.0, &mut other.1);
            }
            Term::Return | Term::PredicateFalse => {}
        }
    }

    /// Calls `f` for each value used: the condition, then the arguments.
    pub fn for_each_use(&self, mut f: impl FnMut(Value)) {
        if let Term::Branch { cond, .. } = self {
            f(*cond);
        }
        self.for_each_edge(|_, args| args.iter().copied().for_each(&mut f));
    }

    /// Replaces each used value by the result of `f`.
    pub fn map_uses(&mut self, mut f: impl FnMut(Value) -> Value) {
        if let Term::Branch { cond, .. } = self {
            *cond = f(*cond);
        }
        self.for_each_edge_mut(|_, args| args.iter_mut().for_each(|v| *v = f(*v)));
    }
}

impl Function {
    /// The status of its `exit()`, where it is a constant.
    pub fn exit_status(&self) -> Option<i64> {
        let exits = |op: &Op| if let Op::Exit(status) = op { Some(*status) } else { None };
        let status = self.instructions().find_map(|(_, inst)| exits(&inst.op))?;
        let defined = self.instructions().find(|(_, inst)| inst.result == Some(status));
        defined.and_then(|(_, inst)| if let Op::Const(n) = inst.op { Some(n) } else { None })
    }
}

impl VarDesc {
    /// A variable of the clauses of a library, which no program can name.
    pub fn is_of_library(&self) -> bool {
        self.name.starts_with('%')
    }
}

impl Module {
    /// True when a clause uses speculations.
    pub fn speculates(&self) -> bool {
        let uses = |op: &Op| match op {
            Op::Speculate(_) => true,
            Op::Call(subr, _) => matches!(subr, Subr::Speculation | Subr::Commit | Subr::Discard),
            _ => false,
        };
        self.clauses.iter().flat_map(|c| c.func.instructions()).any(|(_, inst)| uses(&inst.op))
    }

    /// Bytes of the longest record, without its header.
    pub fn longest_record(&self) -> u32 {
        self.clauses.iter().filter_map(|c| Some(c.record.as_ref()?.size)).max().unwrap_or(0)
    }

    /// Bytes of the longest record of a clause with `exit()`, without its header; `None` if there
    /// is no such clause.
    pub fn longest_exit(&self) -> Option<u32> {
        let records = self.clauses.iter().filter_map(|c| c.record.as_ref());
        records.filter(|r| r.exits()).map(|r| r.size).max()
    }

    /// For each variable, whether it may be a NULL string: one is assigned to it, or it is one from
    /// the beginning ([`VarDesc::begins_null`]).
    pub fn null_vars(&self) -> Vec<bool> {
        let mut vars: Vec<bool> = self.vars.iter().map(VarDesc::begins_null).collect();
        // Each round finds at least one more variable.
        loop {
            let before = vars.clone();
            for f in self.clauses.iter().map(|c| &c.func) {
                let stores = |op: &Op| matches!(op, Op::StoreVar(..) | Op::StoreElem(..));
                if !f.instructions().any(|(_, i)| stores(&i.op)) {
                    continue;
                }
                let nulls = f.nulls(&vars);
                for (_, inst) in f.instructions() {
                    if let Op::StoreVar(var, v) | Op::StoreElem(var, _, v) = &inst.op
                        && nulls.get(v.0 as usize) == Some(&true)
                        && let Some(held) = vars.get_mut(var.0 as usize)
                    {
                        *held = true;
                    }
                }
            }
            if vars == before {
                return vars;
            }
        }
    }
}

impl Function {
    /// Sorts the blocks so that every edge goes forward, removes unreachable blocks, and numbers
    /// values in the order of their definition. `Err` names a block on a cycle.
    pub fn normalize(&mut self) -> Result<(), Block> {
        let order = self.topological_order()?;
        let mut place = vec![None; self.blocks.len()];
        for (new, old) in order.iter().enumerate() {
            place[old.0 as usize] = Some(Block(new as u32));
        }
        let mut old_blocks: Vec<Option<BlockData>> =
            std::mem::take(&mut self.blocks).into_iter().map(Some).collect();
        self.blocks = order.iter().filter_map(|b| old_blocks[b.0 as usize].take()).collect();
        for block in &mut self.blocks {
            block.term.for_each_edge_mut(|to, _| {
                if let Some(Some(new)) = place.get(to.0 as usize) {
                    *to = *new;
                }
            });
        }
        self.renumber_values();
        Ok(())
    }

    /// Reverse postorder from the entry. The blocks of `then` come before the blocks of `other`.
    fn topological_order(&self) -> Result<Vec<Block>, Block> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        let mut marks = vec![Mark::New; self.blocks.len()];
        let mut order = Vec::with_capacity(self.blocks.len());
        let mut stack = vec![(Block(0), false)];
        while let Some((block, leaving)) = stack.pop() {
            let Some(mark) = marks.get_mut(block.0 as usize) else { return Err(block) };
            if leaving {
                *mark = Mark::Done;
                order.push(block);
                continue;
            }
            match *mark {
                Mark::Done => continue,
                Mark::Open => return Err(block),
                Mark::New => *mark = Mark::Open,
            }
            stack.push((block, true));
            // The stack reverses the order: `other` is pushed last, so it is walked first and ends
            // up later.
            let mut cycle = None;
            self.blocks[block.0 as usize].term.for_each_edge(|to, _| match marks.get(to.0 as usize) {
                Some(Mark::New) => stack.push((to, false)),
                Some(Mark::Done) => {}
                Some(Mark::Open) | None => cycle = Some(to),
            });
            if let Some(block) = cycle {
                return Err(block);
            }
        }
        order.reverse();
        Ok(order)
    }

    fn renumber_values(&mut self) {
        let mut new_of: Vec<Option<Value>> = vec![None; self.values.len()];
        let mut types = Vec::with_capacity(self.values.len());
        let old_types = &self.values;
        let mut define = |v: &mut Value| {
            if let (Some(slot), Some(ty)) = (new_of.get_mut(v.0 as usize), old_types.get(v.0 as usize)) {
                let new = Value(types.len() as u32);
                types.push(*ty);
                *slot = Some(new);
                *v = new;
            }
        };
        for block in &mut self.blocks {
            block.params.iter_mut().for_each(&mut define);
            block.insts.iter_mut().filter_map(|i| i.result.as_mut()).for_each(&mut define);
        }
        // A use of an undefined value keeps a number outside the table, for the verifier to detect.
        let count = types.len() as u32;
        let lookup = |v: Value| new_of.get(v.0 as usize).copied().flatten().unwrap_or(Value(count + v.0));
        for block in &mut self.blocks {
            block.insts.iter_mut().for_each(|i| i.op.map_uses(lookup));
            block.term.map_uses(lookup);
        }
        self.values = types;
    }

    /// For each value, whether it may be a NULL string. `vars` says which variables may be NULL
    /// ([`Module::null_vars`]).
    pub fn nulls(&self, vars: &[bool]) -> Vec<bool> {
        let held = |var: &VarId| vars.get(var.0 as usize).copied().unwrap_or(true);
        let mut nulls = vec![false; self.values.len()];
        // Blocks are in topological order: all arguments of a block are visited before the block.
        for block in &self.blocks {
            for inst in &block.insts {
                let null = match &inst.op {
                    Op::Null => true,
                    Op::LoadVar(var) | Op::LoadElem(var, _) => held(var),
                    Op::Call(subr, _) => subr.row().may_be_null,
                    _ => false,
                };
                if let Some(v) = inst.result.map(|v| v.0 as usize)
                    && self.values.get(v) == Some(&Ty::Str)
                {
                    nulls[v] = null;
                }
            }
            block.term.for_each_edge(|to, args| {
                let params = self.blocks.get(to.0 as usize).map_or(&[][..], |b| &b.params);
                for (param, arg) in params.iter().zip(args) {
                    let null = nulls.get(arg.0 as usize).copied().unwrap_or(false);
                    if let Some(slot) = nulls.get_mut(param.0 as usize) {
                        *slot |= null;
                    }
                }
            });
        }
        nulls
    }

    /// True when an operation can end the clause by a fault. `vars` is the result of
    /// [`Module::null_vars`].
    pub fn may_fault(&self, vars: &[bool]) -> bool {
        let nulls = self.nulls(vars);
        self.instructions().any(|(_, inst)| inst.op.may_fault() || inst.op.takes_null(&nulls))
    }

    /// Every instruction with its position in block order, which is the *offset* of its fault.
    pub fn instructions(&self) -> impl Iterator<Item = (u32, &InstData)> {
        self.blocks.iter().flat_map(|b| &b.insts).enumerate().map(|(i, inst)| (i as u32, inst))
    }
}
