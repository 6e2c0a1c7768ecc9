//! Layout of D memory in a scratch slot: objects of `this->`, scratch memory, and the buffers that
//! accesses need.
//!
//! D memory is what a D pointer can point to without being an address of the kernel or the process.
//! It is placed behind everything else in the slot, because it may be long: an offset in an
//! instruction ends at 32 KiB, and memory near the start of the slot is cheaper to reach.
//!
//! ```text
//!  objects  of this->, once for the clauses of probes and once for ERROR's
//!  word     the result of an address look-up: the machine address, and the number of bytes that follow it
//!  stage    a buffer for an object that is copied to a variable
//!  frame    where clauses keep scratch memory for those behind them: the state of the firing's scratch memory
//!  scratch  memory of fixed-size copies and of alloca(); after what earlier clauses of the firing keep. Where alloca() is used,
//!           as much again as a clause may take follows, because the verifier combines the greatest length with the highest
//!           offset. copyout() uses that second part as a buffer
//! ```

use dif::ir::{Clause, Function, Module, Op, Scope, Space, Ty, Value, VarTy};
use dif::memory::{SCRATCH, SCRATCH_BITS};

use crate::mir::{Builder, Size, V};
use crate::routines::{SlotRef, near};

/// Begins the scratch memory of a firing, in the slot with this number: nothing is kept, and its
/// address has a serial number: no firing has that of an earlier one in this slot for 2^26 firings,
/// and those of other slots are far away.
pub fn begin_scratch(b: &mut Builder, memory: &DMemory, slot: SlotRef) {
    let Some(frame) = memory.frame else { return };
    let (words, at) = near(b, slot.address, frame, FRAME_BYTES);
    let before = b.load(Size::B8, words, at + FRAME_SERIAL as i16);
    let firings = b.add(before, 1);
    b.store(Size::B8, words, at + FRAME_SERIAL as i16, firings);
    // The numbers of slots are far from each other.
    let slots = b.mul(slot.number, SLOT_DISTANCE);
    let serial = b.add(firings, slots);
    let high = b.shl(serial, 16 + SCRATCH_BITS);
    let shifted = b.shr(high, 16);
    let tag = b.imm(SCRATCH as i64);
    let address = b.or(tag, shifted);
    b.store(Size::B8, words, at + FRAME_ADDRESS as i16, address);
    b.store(Size::B8, words, at + FRAME_KEPT as i16, 0);
}

/// The number of bytes that the clauses so far keep. ERROR's clauses keep theirs for each other
/// only: [`keep_scratch`] gives the firing its own number back.
pub fn kept_scratch(b: &mut Builder, memory: &DMemory, slot: V) -> Option<V> {
    let (words, at) = near(b, slot, memory.frame? + FRAME_KEPT, 8);
    let kept = b.load(Size::B8, words, at);
    Some(b.copy(kept))
}

/// See [`kept_scratch`].
pub fn keep_scratch(b: &mut Builder, memory: &DMemory, slot: V, kept: V) {
    let Some(frame) = memory.frame else { return };
    let (words, at) = near(b, slot, frame + FRAME_KEPT, 8);
    b.store(Size::B8, words, at, kept);
}

/// An odd number near 2^26 divided by the golden ratio.
const SLOT_DISTANCE: u32 = 41_475_557;

/// Offsets of D memory in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DMemory {
    /// Two words for the result of an address look-up.
    pub word: u32,
    /// A buffer for an object.
    pub stage: u32,
    /// Scratch memory.
    pub scratch: u32,
    /// Bytes of scratch memory, of all clauses of a firing.
    pub cap: u32,
    /// Bytes of scratch memory that a clause may take.
    pub each: u32,
    /// Bytes up to which clauses may keep scratch memory: behind them there is space for one that
    /// takes all it may.
    pub kept: u32,
    /// The words of [`FRAME_SERIAL`] and those after it, if a clause keeps scratch memory.
    pub frame: Option<u32>,
}

/// Number of the slot's firings.
pub(crate) const FRAME_SERIAL: u32 = 0;
/// The address of the firing's scratch memory.
pub(crate) const FRAME_ADDRESS: u32 = 8;
/// Bytes that the clauses so far keep.
pub(crate) const FRAME_KEPT: u32 = 16;
/// Bytes that the clauses before the running one keep, for the functions of a split clause.
pub(crate) const FRAME_BASE: u32 = 24;
const FRAME_BYTES: u32 = 32;

/// The D memory that some clauses need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Objects of `this->`.
    pub(crate) objects: bool,
    /// The clauses look up addresses.
    pub(crate) word: bool,
    /// Bytes of the longest object that is copied to a variable.
    pub(crate) stage: u32,
    /// Bytes of fixed-size copies.
    pub(crate) fixed: u32,
    /// The clauses take memory whose length is known only at run time.
    pub(crate) dynamic: bool,
}

impl Needs {
    pub(crate) fn any(self) -> bool {
        self != Needs::default()
    }
}

/// True when the program has D memory that a pointer may point to.
pub(crate) fn has_d_memory(module: &Module) -> bool {
    let object = |v: &dif::ir::VarDesc| matches!(v.ty, VarTy::Bytes { .. }) && v.key.is_none();
    let takes =
        |op: &Op| matches!(op, Op::Alloca(_) | Op::CopyElem { .. } | Op::CopyObj { .. } | Op::StrAddr { .. });
    module.vars.iter().any(object) || ops(module).any(takes)
}

fn ops(module: &Module) -> impl Iterator<Item = &Op> {
    module.clauses.iter().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts).map(|i| &i.op)
}

/// The D memory that these clauses need. `own` is the result of [`has_d_memory`].
pub(crate) fn needs<'m>(module: &Module, own: bool, clauses: impl Iterator<Item = &'m Clause>) -> Needs {
    let this_objects = module.vars.iter().any(is_this_object);
    let mut out = Needs::default();
    for clause in clauses {
        let f = &clause.func;
        let defs = defs(f);
        out.fixed = out.fixed.max(module.fixed_scratch(f));
        let looked_up = |v: Value| {
            own && base_object(&defs, v).is_none()
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

/// True for an object of `this->`.
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

/// The variable from whose address a pointer is computed, where the code alone shows it. Such a
/// pointer becomes a [`super::Val::Place`].
fn base_object(defs: &[Option<&Op>], mut v: Value) -> Option<dif::ir::VarId> {
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

/// Lays out D memory behind `end`. `this` is the number of bytes of the objects of `this->`, which
/// are laid out twice. Returns their two offsets too.
pub(crate) fn lay_out(module: &Module, needs: Needs, this: u32, end: &mut u32) -> (DMemory, [u32; 2]) {
    let mut take = |bytes: u32| {
        let at = *end;
        *end = end.saturating_add(bytes.div_ceil(8).saturating_mul(8));
        at
    };
    let this = if needs.objects { this } else { 0 };
    let objects = [take(this), take(this)];
    let word = take(if needs.word { 16 } else { 0 });
    let stage = take(needs.stage);
    let each = needs.fixed + if needs.dynamic { module.scratchsize } else { 0 };
    let kept = module.scratch_kept();
    let frame = (kept > 0).then(|| take(FRAME_BYTES));
    let cap = kept.saturating_add(each);
    // One more word: see `maps::object_space`.
    let bytes = if needs.dynamic {
        cap.saturating_add(each).saturating_add(8)
    } else if cap > 0 {
        cap.saturating_add(8)
    } else {
        0
    };
    let scratch = take(bytes);
    (DMemory { word, stage, scratch, cap, each, kept, frame }, objects)
}
