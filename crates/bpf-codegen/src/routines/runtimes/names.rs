//! What the frames of a runtime are called: the words that each CPU remembers, and the store
//! ([`plane::calls`]).
//!
//! A code object is known by its content. An entry of the store with its names is made, hashed with
//! the key of the session, and stored unless it is there: so all processes that run one file share
//! its functions, and what a process does with its memory later does not matter. That costs a
//! microsecond and more, so each CPU remembers the words that it has made. They are looked for by a
//! tag of everything that can differ.

use plane::calls::{
    CODES, ENTRY_LEAST, ENTRY_MAX, FIRST, FOUND, FOUND_SHIFT, FOUND_VALUE, NO_SPACE, SHARES_AT, STORE, WORDS,
};
use plane::control::DropKind;
use plane::unwind::KEY_FACTOR;

use crate::mir::{Alu, AtomicOp, Builder, Helper, Jmp, Label, MapRef, Size, StackSlot, V};
use crate::plan::Plan;
use crate::routines::shares;
use crate::routines::siphash::siphash;
use crate::routines::{count_drop, firing};

/// A tag of nothing yet.
pub(super) fn tag(b: &mut Builder, plan: &Plan) -> V {
    b.imm(plan.stack_key[0] as i64)
}

/// Adds a word to a tag.
pub(super) fn mix(b: &mut Builder, tag: V, word: V) {
    b.update(Alu::Xor, tag, word);
    let factor = b.imm(KEY_FACTOR as i64);
    b.update(Alu::Mul, tag, factor);
    let high = b.shr(tag, 32);
    b.update(Alu::Xor, tag, high);
}

/// Ends the function with the word of a tag, if it is among those that this CPU remembers.
/// Otherwise returns where it comes to.
pub(super) fn exit_with_remembered(b: &mut Builder, plan: &Plan, remembered: V, tag: V) -> V {
    let last = b.imm((plan.stack_key[1] | 1) as i64);
    b.update(Alu::Mul, tag, last);
    let number = b.shr(tag, 64 - i64::from(FOUND_SHIFT));
    let offset = b.shl(number, i64::from(FOUND.trailing_zeros()));
    let memory = b.add(remembered, offset);
    let value = b.load(Size::B8, memory, FOUND_VALUE as i16);
    let mark = b.load(Size::B8, memory, 0);
    let mark = b.xor(mark, value);
    b.if_(Jmp::Eq, mark, tag, |b| {
        b.exit(value);
    });
    memory
}

/// Remembers the word of a tag.
pub(super) fn remember(b: &mut Builder, memory: V, tag: V, value: V) {
    let mark = b.xor(tag, value);
    b.store(Size::B8, memory, 0, mark);
    b.store(Size::B8, memory, FOUND_VALUE as i16, value);
}

/// Ends the function with the place of an entry of so many words in the store, where it is stored
/// if it is new; with [`NO_SPACE`] if it cannot be stored.
pub(super) fn exit_with_entry(b: &mut Builder, plan: &Plan, entry: V, words: V) {
    let (new, full, known) = (b.label(), b.label(), b.label());
    let id = siphash(b, plan.stack_key, entry, words, ENTRY_MAX / 8);
    let (key, value) = (b.stack(8), b.stack(8));
    b.slot_store(Size::B8, key, 0, id);
    exit_with_place(b, key, new);

    b.bind(new);
    let store = b.map_value(MapRef::RuntimeNames, 0);
    let taken = b.copy(words);
    b.if_(Jmp::Lt, taken, i64::from(ENTRY_LEAST), |b| {
        b.set(taken, i64::from(ENTRY_LEAST));
    });
    let counters = b.map_value(MapRef::RuntimeNames, SHARES_AT);
    shares::take(b, shares::Table { counters, most: WORDS, key: plan.stack_key }, taken, full);
    let before = b.atomic_fetch(AtomicOp::Add, Size::B8, store, 0, taken);
    b.br(Jmp::Gt, before, i64::from((STORE - FIRST - ENTRY_MAX) / 8), full);
    let place = b.add(before, i64::from(FIRST / 8));
    let offset = b.shl(place, 3);
    let to = b.add(store, offset);
    let bytes = b.shl(words, 3);
    b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, entry]);
    b.slot_store(Size::B8, value, 0, place);
    const NOEXIST: i64 = 1;
    let (map, at, to, flags) =
        (b.map(MapRef::RuntimeCodes), b.slot_addr(key, 0), b.slot_addr(value, 0), b.imm(NOEXIST));
    let failed = b.call(Helper::MAP_UPDATE_ELEM, &[map, at, to, flags]);
    b.br(Jmp::Eq, failed, 0, known);
    // Another program was faster: all use its place.
    exit_with_place(b, key, known);
    b.bind(known);
    b.exit(place);
    b.bind(full);
    let firing = firing(b, plan);
    count_drop(b, &firing, DropKind::Strings);
    b.exit(i64::from(NO_SPACE));
}

/// Ends the function with the place of a content that is stored. Jumps to `none` if it is not.
fn exit_with_place(b: &mut Builder, key: StackSlot, none: Label) {
    let (map, at) = (b.map(MapRef::RuntimeCodes), b.slot_addr(key, 0));
    let found = b.call(Helper::MAP_LOOKUP_ELEM, &[map, at]);
    b.br(Jmp::Eq, found, 0, none);
    let place = b.load(Size::B8, found, 0);
    b.exit(place);
}

const _: () = assert!(STORE / 8 / ENTRY_LEAST <= CODES);
