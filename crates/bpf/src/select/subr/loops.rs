//! Loops over strings, and what they end in.
//!
//! A loop is `bpf_loop` with a callback that is given the addresses it works on. The decision that shapes it: what a
//! loop carries from one turn to the next is in memory, in the *work area* of the scratch slot, never in registers or on
//! the stack. The verifier knows nothing of numbers that come from there, so every turn looks the same to it and it walks
//! the callback once, whatever `strsize` is; each place is compared with its bound before it is used.

use crate::mir::{Alu, Builder, Helper, Jmp, Label, Operand, Size, V};
use crate::routines::words;

/// Bytes of the work area.
pub(crate) const WORK: u32 = 256;

/// Runs the callback `name` up to `turns` times, with these addresses; `body` writes it: it gets the number of the turn
/// and the addresses, and ends in [`next`] or [`stop`].
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

/// The turn ends, the loop goes on.
pub(super) fn next(b: &mut Builder) {
    b.exit(0);
}

/// The loop ends.
pub(super) fn stop(b: &mut Builder) {
    b.exit(1);
}

/// The byte at `base + at`, once `at` is known to be below `size`; else to `beyond`.
pub(super) fn byte(b: &mut Builder, base: V, at: V, size: u32, beyond: Label) -> V {
    b.br(Jmp::Ge, at, size, beyond);
    let p = b.add(base, at);
    b.load(Size::B1, p, 0)
}

/// `work[at] += by`, for words; the new value.
pub(super) fn step(b: &mut Builder, work: V, at: i16, by: i32) -> V {
    let old = b.load(Size::B8, work, at);
    let new = b.add(old, by);
    b.store(Size::B8, work, at, new);
    new
}

/// Copies `count` bytes at `source + from` to a string of zeros; nothing when the numbers are out of bounds, which they
/// are not.
pub(super) fn put(b: &mut Builder, strsize: u32, target: V, source: V, from: V, count: V) {
    let done = b.label();
    // The work area may be longer than a string.
    b.br(Jmp::Gt, from, strsize.max(WORK), done);
    b.br(Jmp::Ge, count, strsize, done);
    let source = b.add(source, from);
    b.call(Helper::PROBE_READ_KERNEL, &[target, count, source]);
    b.bind(done);
}

/// Makes a string of zeros.
pub(super) fn clear(b: &mut Builder, strsize: u32, target: V) {
    words::zero(b, target, 0, strsize);
}

/// Where [`append`] and [`prepend`] count, in the work area.
pub(super) const LENGTH: i16 = 8;
/// Where their text is; [`prepend`]ed text ends with the area.
pub(super) const TEXT: i16 = 128;

/// Adds a character to the text of the work area, which is at most 64 long.
pub(super) fn append(b: &mut Builder, work: V, c: impl Into<Operand>) {
    let n = b.load(Size::B8, work, LENGTH);
    let n = b.and(n, 63);
    let p = b.add(work, n);
    b.store(Size::B1, p, TEXT, c);
    b.update(Alu::Add, n, 1);
    b.store(Size::B8, work, LENGTH, n);
}

/// Puts a character before the text of the work area, which is at most 128 long.
pub(super) fn prepend(b: &mut Builder, work: V, c: impl Into<Operand>) {
    let n = b.load(Size::B8, work, LENGTH);
    let n = b.and(n, 127);
    // The last byte less the length, in a form whose bounds the verifier sees.
    let at = b.xor(n, WORK as i32 - 1);
    let p = b.add(work, at);
    b.store(Size::B1, p, 0, c);
    b.update(Alu::Add, n, 1);
    b.store(Size::B8, work, LENGTH, n);
}

/// The text that was appended becomes the string.
pub(super) fn put_appended(b: &mut Builder, strsize: u32, target: V, work: V) {
    let count = b.load(Size::B8, work, LENGTH);
    shorten(b, strsize, count);
    clear(b, strsize, target);
    let from = b.imm(i64::from(TEXT));
    put(b, strsize, target, work, from, count);
}

/// The text that was prepended becomes the string.
pub(super) fn put_prepended(b: &mut Builder, strsize: u32, target: V, work: V) {
    let count = b.load(Size::B8, work, LENGTH);
    let end = b.imm(i64::from(WORK));
    let from = b.sub(end, count);
    shorten(b, strsize, count);
    clear(b, strsize, target);
    put(b, strsize, target, work, from, count);
}

/// A length is cut at what a string holds.
fn shorten(b: &mut Builder, strsize: u32, count: V) {
    let fits = b.label();
    b.br(Jmp::Lt, count, strsize, fits);
    b.set(count, i64::from(strsize) - 1);
    b.bind(fits);
}
