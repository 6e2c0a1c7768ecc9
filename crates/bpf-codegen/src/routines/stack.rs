//! The store of stacks: a stack that [`super::walk`] has walked into the scratch slot is hashed,
//! and stored once. [`plane::stacks`] describes the store.
//!
//! An entry of the store has two words before its frames. They are written over the two words
//! before the first frame of the stack, which are own frames or unused. An entry with frames of a
//! language runtime ([`super::runtimes`]) is made apart: other values of the firing need the frames
//! that these would be behind.

use plane::control::DropKind;
use plane::stacks::{
    self, CALLS_SHIFT, FRAMES_MAX, GENERATION_FACTOR, NFRAMES, PCS, PLACE, PROBES, SLOT, SLOT_SHIFT, SLOTS,
    TGID, TIME,
};

use super::siphash::siphash;
use super::walk::{FRAMES, call_area, first_frame};
use super::{count_drop, near, ring_doorbell};
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, MapRef, Operand, Size, V};
use crate::plan::Plan;

/// Stores the first `frames` frames of the stack at `place`. Returns their id, or 0 when there is
/// no stack. When the store is full, counts a stack drop and returns 0. `process`: the process (in
/// the tracer's namespace) and its [`generation`] for user stacks, zeros for kernel stacks.
pub fn keep_stack(b: &mut Builder, plan: &Plan, place: V, frames: u32, process: (Operand, Operand)) -> V {
    let frames = frames.clamp(1, plan.stack_frames.clamp(1, FRAMES_MAX));
    let (none, fewer, id) = (b.label(), b.label(), b.copy(0));
    let all = b.load(Size::B8, place, 0);
    b.br(Jmp::Eq, all, 0, none);
    let count = b.copy(all);
    b.br(Jmp::Le, count, frames, fewer);
    b.set(count, frames);
    b.bind(fewer);
    let base = first_frame(b, place);
    let entry = b.add(base, FRAMES - PCS);
    write_head(b, entry, count, process);
    let kept = keep_entry(b, plan, entry, count, frames);
    b.set(id, kept);
    b.bind(none);
    id
}

/// Writes the head of an entry: how many frames it has, and of which process.
fn write_head(b: &mut Builder, entry: V, counts: V, (tgid, generation): (Operand, Operand)) {
    let tgid = b.reg(tgid);
    b.store(Size::B4, entry, TGID as i16, tgid);
    b.store(Size::B4, entry, NFRAMES as i16, counts);
    let generation = b.reg(generation);
    b.store(Size::B8, entry, TIME as i16, generation);
}

/// Stores an entry that has so many words, at most `most`, behind its head. Returns its id, or 0.
fn keep_entry(b: &mut Builder, plan: &Plan, entry: V, words: V, most: u32) -> V {
    let args = [Arg::Memory(entry, stacks::value_size(most)), Arg::Word(words)];
    b.call_global(&format!("dt_stack_{most}"), &args, |b| {
        let (entry, count) = (b.param(0), b.param(1));
        let id = hash(b, plan, entry, count, most);
        store(b, plan, entry, count, most, id);
    })
}

/// How much of a stack and of the frames of a language runtime in it the area has.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// The most frames of the stack.
    pub most: u32,
    /// The most frames of a language runtime.
    pub calls: u32,
}

/// [`keep_stack`] with the frames of a language runtime, of a process.
pub fn keep_calls(
    b: &mut Builder,
    plan: &Plan,
    place: V,
    frames: u32,
    (area, process): (Calls, (Operand, Operand)),
) -> V {
    let most = frames.clamp(1, area.most).min(area.calls);
    let at = call_area(area.most, area.calls);
    let (none, fewer, few, id) = (b.label(), b.label(), b.label(), b.copy(0));
    let count = b.load(Size::B8, place, 0);
    b.br(Jmp::Eq, count, 0, none);
    b.br(Jmp::Le, count, most, fewer);
    b.set(count, most);
    b.bind(fewer);
    let calls = b.load(Size::B8, place, at.at as i16);
    b.br(Jmp::Le, calls, most, few);
    b.set(calls, most);
    b.bind(few);
    let entry = b.add(place, at.joined());
    let first = first_frame(b, place);
    let (from, to, bytes) = (b.add(first, FRAMES), b.add(entry, PCS), b.shl(count, 3));
    b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, from]);
    let offset = b.shl(count, 3);
    let to = b.add(entry, offset);
    let (from, to, bytes) = (b.add(place, at.at + 8), b.add(to, PCS), b.shl(calls, 3));
    b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, from]);
    let above = b.shl(calls, i64::from(CALLS_SHIFT));
    let counts = b.or(above, count);
    write_head(b, entry, counts, process);
    let words = b.add(count, calls);
    let kept = keep_entry(b, plan, entry, words, 2 * most);
    b.set(id, kept);
    b.bind(none);
    id
}

/// The generation of a process ([`plane::stacks::generation`]) from its parts.
pub fn generation(b: &mut Builder, start: V, execs: V) -> V {
    let mixed = b.mul(execs, GENERATION_FACTOR as i64);
    b.add(mixed, start)
}

/// The id of an entry: [`plane::stacks::id`].
fn hash(b: &mut Builder, plan: &Plan, entry: V, count: V, frames: u32) -> V {
    let words = b.add(count, i64::from(PCS / 8));
    let h = siphash(b, plan.stack_key, entry, words, PCS / 8 + frames);
    let done = b.label();
    b.br(Jmp::Ne, h, 0, done);
    b.set(h, 1);
    b.bind(done);
    h
}

/// Ends the function: finds the id in the store, or stores the entry. The steps and their order are
/// those of [`plane::stacks`].
fn store(b: &mut Builder, plan: &Plan, entry: V, count: V, frames: u32, id: V) {
    let (new, drop, claimed, no_ring) = (b.label(), b.label(), b.label(), b.label());
    let shape = plan.stack_block;
    let block = block(b, id, drop);
    probe(b, plan, block, id, |b, slot, next| {
        let found = b.load(Size::B8, slot, SLOTS as i16);
        let other = b.label();
        b.br(Jmp::Ne, found, id, other);
        b.exit(id);
        b.bind(other);
        b.br(Jmp::Eq, found, 0, new);
        b.jmp(next);
    });
    b.bind(drop);
    let firing = super::firing(b, plan);
    count_drop(b, &firing, DropKind::Stack);
    b.exit(0);

    b.bind(new);
    let words = b.add(count, i64::from(PCS / 8));
    let enough = b.label();
    b.br(Jmp::Ge, words, stacks::ENTRY_LEAST, enough);
    b.set(words, stacks::ENTRY_LEAST);
    b.bind(enough);
    let before = b.atomic_fetch(crate::mir::AtomicOp::Add, Size::B8, block, stacks::CLAIMED as i16, words);
    let after = b.add(before, words);
    let middle = i64::from(shape.words() / 2);
    b.br(Jmp::Ge, before, middle, no_ring);
    b.br(Jmp::Lt, after, middle, no_ring);
    let firing = super::firing(b, plan);
    ring_doorbell(b, &firing);
    b.bind(no_ring);
    b.br(Jmp::Gt, before, i64::from(shape.words()) - i64::from(stacks::entry_words(frames)), drop);
    // A process whose generation is known gets the time instead, by which its program is found.
    let timeless = b.label();
    let generation = b.load(Size::B8, entry, TIME as i16);
    b.br(Jmp::Eq, generation, 0, timeless);
    let time = b.call(Helper::KTIME_GET_BOOT_NS, &[]);
    b.store(Size::B8, entry, TIME as i16, time);
    b.bind(timeless);
    let place = b.add(before, shape.entries() / 8);
    let offset = b.shl(place, 3);
    let to = b.add(block, offset);
    let bytes = b.shl(count, 3);
    b.update(Alu::Add, bytes, PCS);
    let (copy, size) = (b.label(), i64::from(stacks::value_size(frames)));
    b.br(Jmp::Le, bytes, size, copy);
    b.set(bytes, size);
    b.bind(copy);
    b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, entry]);
    probe(b, plan, block, id, |b, slot, next| {
        let (base, at) = near(b, slot, SLOTS + PLACE, 8);
        let old = b.cmpxchg(base, at, 0, place);
        b.br(Jmp::Eq, old, 0, claimed);
        // Perhaps another program has stored the same stack meanwhile.
        let found = b.load(Size::B8, slot, SLOTS as i16);
        b.br(Jmp::Ne, found, id, next);
        b.exit(id);
        b.bind(claimed);
        b.xchg(slot, SLOTS as i16, id);
        b.exit(id);
    });
    b.jmp(drop);
}

/// The block of an id. Jumps to `none` if there is none, which does not happen.
fn block(b: &mut Builder, id: V, none: Label) -> V {
    let key = b.stack(8);
    b.slot_store(Size::B8, key, 0, 0);
    let (sides, first) = (b.map(MapRef::Stacks), b.slot_addr(key, 0));
    let side = b.call(Helper::MAP_LOOKUP_ELEM, &[sides, first]);
    b.br(Jmp::Eq, side, 0, none);
    let first = b.slot_addr(key, 0);
    let block = b.call(Helper::MAP_LOOKUP_ELEM, &[side, first]);
    b.br(Jmp::Eq, block, 0, none);
    let found = b.label();
    let mask = b.load(Size::B8, block, stacks::MASK as i16);
    let number = b.and(mask, id);
    b.br(Jmp::Eq, number, 0, found);
    b.slot_store(Size::B4, key, 0, number);
    let at = b.slot_addr(key, 0);
    let other = b.call(Helper::MAP_LOOKUP_ELEM, &[side, at]);
    b.br(Jmp::Eq, other, 0, none);
    b.set(block, other);
    b.bind(found);
    block
}

/// Tries the slots of an id. `each` gets the address of the block plus the offset of the slot among
/// the slots, and the label to continue with the next slot. Falls through after the last one.
fn probe(b: &mut Builder, plan: &Plan, block: V, id: V, each: impl FnOnce(&mut Builder, V, Label)) {
    let (again, next) = (b.label(), b.label());
    let mask = i64::from(plan.stack_block.slots) - 1;
    let number = b.shr(id, i64::from(SLOT_SHIFT));
    let step = b.copy(1);
    b.bind(again);
    b.update(Alu::And, number, mask);
    let offset = b.mul(number, i64::from(SLOT));
    let slot = b.add(block, offset);
    each(b, slot, next);
    b.bind(next);
    b.update(Alu::Add, number, step);
    b.update(Alu::Add, step, 1);
    b.br(Jmp::Le, step, i64::from(PROBES), again);
}
