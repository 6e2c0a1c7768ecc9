//! Scratch slots. [`plane::scratch`] describes them.
//!
//! ARCH(x86-64): releasing a slot is an atomic operation without fetch, which BPF leaves unordered
//! on weaker machines.

use plane::control::{DropKind, SLOTS_TAKEN};
use plane::scratch::{BIT_MULTIPLIER, BIT_SHIFT, PUBLISHES, SLOTS, TRIES};

use super::{Firing, count_drop, element};
use crate::mir::{Alu, AtomicOp, Builder, Jmp, Label, Size, V};
use crate::plan::Plan;

/// A scratch slot that this firing has taken.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The slot's memory of [`Plan::slot_size`] bytes, if it was requested. It still contains the
    /// data of its last user.
    pub address: Option<V>,
    /// The slot's bits in the mask, for [`release_slot`].
    pub bits: V,
    /// The slot's number among all slots. A function of the same program passes it to [`slot_at`].
    pub number: V,
}

/// The purpose for which a slot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// Its memory.
    pub memory: bool,
    /// Its clock. The consumer holds later records back until the clock is cleared (see
    /// [`plane::order`]).
    pub publishes: bool,
}

/// Takes a slot. When none is free, counts a drop and jumps to `none`.
pub fn take_slot(b: &mut Builder, plan: &Plan, firing: &Firing, purpose: Purpose, none: Label) -> Slot {
    let (again, lost, drop) = (b.label(), b.label(), b.label());
    let all = (1i64 << SLOTS) - 1;
    let tries = b.copy(TRIES);
    let bit = b.var();
    b.bind(again);
    let taken = b.load(Size::B8, firing.percpu, SLOTS_TAKEN as i16);
    let free = b.xor(taken, all);
    let free = b.and(free, all);
    b.br(Jmp::Eq, free, 0, drop);
    let minus = b.neg(free);
    b.set(bit, free);
    b.update(Alu::And, bit, minus);
    let bits = match purpose.publishes {
        true => b.mul(bit, 1 | 1 << PUBLISHES),
        false => bit,
    };
    let next = b.or(taken, bits);
    let old = b.cmpxchg(firing.percpu, SLOTS_TAKEN as i16, taken, next);
    b.br(Jmp::Ne, old, taken, lost);
    let product = b.mul(bit, BIT_MULTIPLIER);
    let within = b.shr(product, BIT_SHIFT);
    let within = b.and(within, SLOTS - 1);
    let first = b.mul(firing.index, SLOTS);
    let number = b.add(first, within);
    let address = purpose.memory.then(|| element(b, plan.slots(), number, firing.words, drop));
    b.out_of_line(|b| {
        b.bind(lost);
        b.update(Alu::Sub, tries, 1);
        b.br(Jmp::Ne, tries, 0, again);
        b.bind(drop);
        count_drop(b, firing, DropKind::Scratch);
        b.jmp(none);
    });
    Slot { address, bits, number }
}

/// Releases a slot.
pub fn release_slot(b: &mut Builder, firing: &Firing, slot: &Slot) {
    let keep = b.xor(slot.bits, -1);
    b.atomic(AtomicOp::And, Size::B8, firing.percpu, SLOTS_TAKEN as i16, keep);
}

/// The memory of the slot with this number, in a function that has the number as a parameter. Jumps
/// to `bad` if there is none.
pub fn slot_at(b: &mut Builder, plan: &Plan, number: V, bad: Label) -> V {
    let key = b.stack(8);
    b.br(Jmp::Ge, number, plan.slots().count, bad);
    element(b, plan.slots(), number, key, bad)
}
