//! Loops over strings, and common operations at their end.
//!
//! A loop is `bpf_loop` with a callback that takes the addresses it works on. The decision that
//! shapes it: the state between iterations is in memory, in the *work area* of the scratch slot,
//! never in registers or on the stack. The verifier knows nothing about numbers loaded from there,
//! so all iterations look the same and the callback is verified once, however long strings are.
//! Each position is compared with its bound before it is used.

use plane::desc::string_storage;

use super::needs::WORK;
use crate::mir::{Alu, Builder, Helper, Jmp, Label, Operand, Size, V};
use crate::routines::words;

/// Runs the callback `name` up to `turns` times with these addresses. `body` builds the callback
/// from the iteration's number and the addresses, and must end in [`next`] or [`stop`].
pub(super) fn each(
    b: &mut Builder,
    name: &str,
    turns: impl Into<Operand>,
    addresses: &[V],
    body: impl FnOnce(&mut Builder, V, &[V]),
) {
    let n = addresses.len() as i16;
    let given = b.stack(8 * n as u32);
    for (i, address) in (0..).zip(addresses) {
        b.slot_store(Size::B8, given, 8 * i, *address);
    }
    let callback = b.sub_addr(name, 2, |b| {
        let (turn, given) = (b.param(0), b.param(1));
        let addresses: Vec<V> = (0..n).map(|i| b.load(Size::B8, given, 8 * i)).collect();
        body(b, turn, &addresses);
    });
    let turns = b.reg(turns);
    let (given, flags) = (b.slot_addr(given, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, callback, given, flags]);
}

/// Ends the iteration and continues the loop.
pub(super) fn next(b: &mut Builder) {
    b.exit(0);
}

/// Ends the loop.
pub(super) fn stop(b: &mut Builder) {
    b.exit(1);
}

/// The byte at `base + at`, where `at` is below `size`. Jumps to `beyond` otherwise.
pub(super) fn byte(b: &mut Builder, base: V, at: V, size: u32, beyond: Label) -> V {
    b.br(Jmp::Ge, at, size, beyond);
    let p = b.add(base, at);
    b.load(Size::B1, p, 0)
}

/// `work[at] += by`, for words. Returns the new value.
pub(super) fn step(b: &mut Builder, work: V, at: i16, by: i32) -> V {
    let old = b.load(Size::B8, work, at);
    let new = b.add(old, by);
    b.store(Size::B8, work, at, new);
    new
}

/// Copies `count` bytes at `source + from` to a string of zeros. The tests of the bounds never fail
/// and are for the verifier.
pub(super) fn put(b: &mut Builder, storage: u32, target: V, source: V, from: V, count: V) {
    let done = b.label();
    // The work area may be longer than a string.
    b.br(Jmp::Gt, from, storage.max(WORK), done);
    b.br(Jmp::Ge, count, storage, done);
    let source = b.add(source, from);
    b.call(Helper::PROBE_READ_KERNEL, &[target, count, source]);
    b.bind(done);
}

/// Clears a string to zeros.
pub(super) fn clear(b: &mut Builder, storage: u32, target: V) {
    words::zero(b, target, 0, storage);
}

/// Offset of the length in the work area, for [`append`] and [`prepend`].
pub(super) const LENGTH: i16 = 8;
/// Offset of their text. [`prepend`]ed text ends at the end of the area.
pub(super) const TEXT: i16 = 128;

/// Appends a character to the text in the work area, which has at most 64.
pub(super) fn append(b: &mut Builder, work: V, c: impl Into<Operand>) {
    let n = b.load(Size::B8, work, LENGTH);
    let n = b.and(n, 63);
    let p = b.add(work, n);
    b.store(Size::B1, p, TEXT, c);
    b.update(Alu::Add, n, 1);
    b.store(Size::B8, work, LENGTH, n);
}

/// Prepends a character to the text in the work area, which has at most 128.
pub(super) fn prepend(b: &mut Builder, work: V, c: impl Into<Operand>) {
    let n = b.load(Size::B8, work, LENGTH);
    let n = b.and(n, 127);
    // The last byte minus the length, in a form whose bounds the verifier sees.
    let at = b.xor(n, WORK as i32 - 1);
    let p = b.add(work, at);
    b.store(Size::B1, p, 0, c);
    b.update(Alu::Add, n, 1);
    b.store(Size::B8, work, LENGTH, n);
}

/// Copies the appended text to the string, which has less than `strsize` characters.
pub(super) fn put_appended(b: &mut Builder, strsize: u32, target: V, work: V) {
    let storage = string_storage(strsize);
    let count = b.load(Size::B8, work, LENGTH);
    shorten(b, strsize, count);
    clear(b, storage, target);
    let from = b.imm(i64::from(TEXT));
    put(b, storage, target, work, from, count);
}

/// Copies the prepended text to the string, which has less than `strsize` characters.
pub(super) fn put_prepended(b: &mut Builder, strsize: u32, target: V, work: V) {
    let storage = string_storage(strsize);
    let count = b.load(Size::B8, work, LENGTH);
    let end = b.imm(i64::from(WORK));
    let from = b.sub(end, count);
    shorten(b, strsize, count);
    clear(b, storage, target);
    put(b, storage, target, work, from, count);
}

/// Truncates a length to what a string can hold.
fn shorten(b: &mut Builder, strsize: u32, count: V) {
    b.if_(Jmp::Ge, count, strsize, |b| {
        b.set(count, i64::from(strsize) - 1);
    });
}
