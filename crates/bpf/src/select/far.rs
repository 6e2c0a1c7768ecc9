//! What a scratch slot holds for D's own memory: objects of `this->`, scratch memory, and room for their handling.
//!
//! It stands behind everything else, because it may be long: an offset in an instruction ends at 32 KiB, and what is near
//! the start of the slot is cheaper to reach.
//!
//! ```text
//!  objects  of this->, once for the clauses of probes and once for ERROR's
//!  word     an address on its way to becoming a number, and how many bytes follow it
//!  stage    an object on its way to a variable
//!  scratch  what fixed copies and alloca() take; as much again behind it, where alloca() is used: the verifier takes the
//!           longest length at the highest offset for possible. That half also holds what copyout() writes
//! ```

use dif::ir::{Clause, Function, Module, Op, Scope, Space, Ty, Value, VarTy};

/// Places of D's own memory in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Far {
    /// Two words.
    pub word: u32,
    /// Room for an object.
    pub stage: u32,
    /// Scratch memory.
    pub scratch: u32,
    /// The most that a clause can have of it.
    pub cap: u32,
}

/// What some clauses need of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Objects of `this->`.
    pub(crate) objects: bool,
    /// Addresses are looked up.
    pub(crate) word: bool,
    /// Bytes of the longest object that goes to a variable.
    pub(crate) stage: u32,
    /// Bytes of fixed copies.
    pub(crate) fixed: u32,
    /// Memory is taken by a length that only the firing knows.
    pub(crate) dynamic: bool,
}

impl Needs {
    pub(crate) fn any(self) -> bool {
        self != Needs::default()
    }
}

/// True when there is memory of D's own that a pointer might lead to.
pub(crate) fn has_own(module: &Module) -> bool {
    let object = |v: &dif::ir::VarDesc| matches!(v.ty, VarTy::Bytes { .. }) && v.key.is_none();
    let takes =
        |op: &Op| matches!(op, Op::Alloca(_) | Op::CopyElem { .. } | Op::CopyObj { .. } | Op::StrAddr { .. });
    module.vars.iter().any(object) || ops(module).any(takes)
}

fn ops(module: &Module) -> impl Iterator<Item = &Op> {
    module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).map(|i| &i.op)
}

/// What these clauses need; `own` is [`has_own`].
pub(crate) fn needs<'m>(module: &Module, own: bool, clauses: impl Iterator<Item = &'m Clause>) -> Needs {
    let this_objects = module.vars.iter().any(is_this_object);
    let mut out = Needs::default();
    for clause in clauses {
        let f = &clause.func;
        let defs = defs(f);
        out.fixed = out.fixed.max(module.fixed_scratch(f));
        let looked_up = |v: Value| {
            own && rooted(&defs, v).is_none()
                && matches!(
                    f.values.get(v.0 as usize),
                    Some(Ty::Ptr(Space::Unknown | Space::Static | Space::Scratch))
                )
        };
        for (_, inst) in f.instructions() {
            let mut pointers: Vec<Value> = Vec::new();
            match &inst.op {
                Op::AddrVar(v) => {
                    out.objects |= module.vars.get(v.0 as usize).is_some_and(is_this_object);
                }
                Op::Load { addr, .. }
                | Op::LoadStr { addr, .. }
                | Op::Store { addr, .. }
                | Op::CopyObj { addr, .. }
                | Op::StoreObj { addr, .. }
                | Op::RecordBytes { addr, .. } => pointers.push(*addr),
                Op::Call(_, args) => pointers.extend(args),
                Op::Copy { dst, src, len } => {
                    pointers.extend([*dst, *src]);
                    if f.values.get(dst.0 as usize) != Some(&Ty::Ptr(Space::Scratch))
                        && let Some(Op::Const(n)) = defs.get(len.0 as usize).copied().flatten()
                    {
                        out.stage = out.stage.max(u32::try_from(*n).unwrap_or(u32::MAX));
                    }
                }
                Op::CopyOut { src, .. } => {
                    out.dynamic = true;
                    pointers.push(*src);
                }
                Op::Alloca(_) => out.dynamic = true,
                _ => {}
            }
            if pointers.into_iter().any(looked_up) {
                out.word = true;
                out.objects |= this_objects;
            }
        }
    }
    out
}

/// An object of `this->`.
pub(crate) fn is_this_object(v: &dif::ir::VarDesc) -> bool {
    v.scope == Scope::Clause && v.key.is_none() && matches!(v.ty, VarTy::Bytes { .. })
}

/// The operation of each value.
pub(crate) fn defs(f: &Function) -> Vec<Option<&Op>> {
    let mut defs = vec![None; f.values.len()];
    for (_, inst) in f.instructions() {
        if let Some(r) = inst.result
            && let Some(slot) = defs.get_mut(r.0 as usize)
        {
            *slot = Some(&inst.op);
        }
    }
    defs
}

/// The variable whose address a pointer was computed from, where the code alone shows it: what [`super::Val::Place`] is.
fn rooted(defs: &[Option<&Op>], mut v: Value) -> Option<dif::ir::VarId> {
    // Each step goes to an earlier value.
    for _ in 0..defs.len() {
        v = match defs.get(v.0 as usize).copied().flatten()? {
            Op::AddrVar(var) => return Some(*var),
            Op::Bin(dif::ir::BinOp::Add | dif::ir::BinOp::Sub, a, _) | Op::AsInt(a) => *a,
            Op::AsPtr(Space::Static | Space::Unknown, a) => *a,
            _ => return None,
        };
    }
    None
}

/// Lays out behind `end`; the bytes of objects of `this->`, twice, at the offsets that are given back with it.
pub(crate) fn lay_out(module: &Module, needs: Needs, this: u32, end: &mut u32) -> (Far, [u32; 2]) {
    let mut take = |bytes: u32| {
        let at = *end;
        *end = end.saturating_add(bytes.div_ceil(8).saturating_mul(8));
        at
    };
    let this = if needs.objects { this } else { 0 };
    let objects = [take(this), take(this)];
    let word = take(if needs.word { 16 } else { 0 });
    let stage = take(needs.stage);
    let cap = needs.fixed + if needs.dynamic { module.scratchsize } else { 0 };
    // A word more: see `maps::object_room`.
    let bytes = if needs.dynamic {
        2 * cap + 8
    } else if cap > 0 {
        cap + 8
    } else {
        0
    };
    let scratch = take(bytes);
    (Far { word, stage, scratch, cap }, objects)
}
