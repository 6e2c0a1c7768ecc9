//! Scratch slots: see [`plane::scratch`].

use plane::control::{DropKind, SLOTS_TAKEN};
use plane::scratch::{BIT_MULTIPLIER, BIT_SHIFT, PUBLISHES, SLOTS, TRIES};

use super::{Firing, count_drop, element};
use crate::maps::Plan;
use crate::mir::{Alu, AtomicOp, Builder, Jmp, Label, Size, V};

/// A slot that this firing has taken.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Its memory, [`Plan::slot_size`] bytes, if that was asked for. It holds what the last user left.
    pub address: Option<V>,
    /// What it is in the mask, for [`release_slot`].
    pub bits: V,
    /// Its number among all slots: what a function of the same program gives to [`slot_at`].
    pub number: V,
}

/// What a slot is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// Its memory.
    pub memory: bool,
    /// Its clock, for which the consumer waits with later records (see [`plane::order`]).
    pub publishes: bool,
}

/// Takes a slot; none free is a counted drop and goes to `none`.
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

/// Gives a slot back.
pub fn release_slot(b: &mut Builder, firing: &Firing, slot: &Slot) {
    let keep = b.xor(slot.bits, -1);
    b.atomic(AtomicOp::And, Size::B8, firing.percpu, SLOTS_TAKEN as i16, keep);
}

/// The memory of the slot with this number, in a function that was given the number; to `bad` if there is none.
pub fn slot_at(b: &mut Builder, plan: &Plan, number: V, bad: Label) -> V {
    let key = b.stack(8);
    b.br(Jmp::Ge, number, plan.slots().count, bad);
    element(b, plan.slots(), number, key, bad)
}
