//! Parts of strings, and letter case.

use plane::desc::string_storage;

use super::loops::{byte, clear, each, next, put, stop};
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Operand, Size, V};
use crate::routines::words;
use crate::routines::words::NULL;

const ONES: i64 = 0x0101_0101_0101_0101;
const SIGNS: u64 = 0x8080_8080_8080_8080;

pub(super) fn length(b: &mut Builder, storage: u32, s: V) -> V {
    words::length(b, s, storage)
}

/// `substr(s, from, count)` to `target`.
pub(super) fn substr(b: &mut Builder, storage: u32) {
    let (s, target) = (b.param(0), b.param(1));
    let len = length(b, storage, s);
    let (given_from, given_count) = (b.param(2), b.param(3));
    let (from, count) = (b.copy(given_from), b.copy(given_count));
    let (placed, empty) = (b.label(), b.label());
    b.br(Jmp::Sge, from, 0, placed);
    b.update(Alu::Add, from, len);
    b.br(Jmp::Sge, from, 0, placed);
    // A start before the string's start shortens the length, of which some must be left.
    b.br(Jmp::Sle, count, 0, empty);
    b.update(Alu::Add, count, from);
    b.br(Jmp::Sle, count, 0, empty);
    b.set(from, 0);
    b.bind(placed);
    b.br(Jmp::Sge, from, len, empty);
    let left = b.sub(len, from);
    b.if_(Jmp::Slt, count, 0, |b| {
        b.update(Alu::Add, count, left);
        b.br(Jmp::Sle, count, 0, empty);
    });
    b.if_(Jmp::Sgt, count, left, |b| {
        b.set(count, left);
    });
    clear(b, storage, target);
    put(b, storage, target, s, from, count);
    b.exit(0);
    b.bind(empty);
    clear(b, storage, target);
    b.exit(0);
}

/// Copies `s` to `target` with the character `c` at position `at`: see [`dif::subr`].
pub(super) fn set_char(b: &mut Builder, strsize: u32) {
    let storage = string_storage(strsize);
    let (s, target, given) = (b.param(0), b.param(1), b.param(2));
    let c = b.param(3);
    let (at, c) = (b.copy(given), b.and(c, 0xff));
    let done = b.label();
    let len = length(b, storage, s);
    b.if_(Jmp::Ne, c, 0, |b| {
        words::copy_words(b, target, s, storage);
        b.br(Jmp::Gt, at, len, done);
        // The last byte is a NUL.
        b.br(Jmp::Ge, at, strsize - 1, done);
        let place = b.add(target, at);
        b.store(Size::B1, place, 0, c);
        b.bind(done);
        b.exit(0);
    });
    // The characters before it stay.
    clear(b, storage, target);
    b.if_(Jmp::Gt, at, len, |b| {
        b.set(at, len);
    });
    let from = b.imm(0);
    put(b, storage, target, s, from, at);
    b.exit(0);
}

/// The first position of a byte, or -1. The string's end counts as a byte 0.
fn first(b: &mut Builder, storage: u32) {
    let (s, c) = (b.param(0), b.param(1));
    let c = b.and(c, 0xff);
    let pattern = b.mul(c, ONES);
    let (mask, before) = (b.var(), b.var());
    let found = b.label();
    words::each_word(b, &[s], storage, |b, s, at, passed| {
        let word = b.load(Size::B8, s[0], at);
        let differs = b.xor(word, pattern);
        let equal = words::zero_bytes(b, differs);
        b.set(mask, equal);
        let place = place(b, at, passed);
        b.set(before, place);
        b.br(Jmp::Ne, mask, 0, found);
    });
    b.exit(-1);
    b.bind(found);
    let within = words::length_in_word(b, mask);
    let at = b.add(within, before);
    b.exit(at);
}

/// The position of a word: see [`words::each_word`].
fn place(b: &mut Builder, at: i16, passed: Operand) -> Operand {
    match passed {
        Operand::Imm(n) => Operand::Imm(n + i64::from(at)),
        Operand::V(n) => Operand::V(b.add(n, i32::from(at))),
    }
}

/// The last position of a byte other than 0, or -1. The last word that contains the byte is
/// selected without a branch, because the verifier would verify the rest twice.
fn last(b: &mut Builder, storage: u32) {
    let (s, c) = (b.param(0), b.param(1));
    let c = b.and(c, 0xff);
    let pattern = b.mul(c, ONES);
    let low = b.imm(!SIGNS as i64);
    let (mask, before) = (b.copy(0), b.copy(0));
    words::each_word(b, &[s], storage, |b, s, at, passed| {
        let word = b.load(Size::B8, s[0], at);
        let differs = b.xor(word, pattern);
        // 0x80 in exactly those bytes that are zero.
        let sevens = b.and(differs, low);
        let carried = b.add(sevens, low);
        let either = b.or(carried, differs);
        let all = b.or(either, low);
        let equal = b.xor(all, -1);
        // 1 when there is one. A product, because newer verifiers fork on masks of all zeros or all
        // ones.
        let minus = b.neg(equal);
        let sign = b.or(equal, minus);
        let some = b.shr(sign, 63);
        let one = b.imm(1);
        let none = b.sub(one, some);
        let place = place(b, at, passed);
        let here = b.alu(Alu::Mul, some, place);
        b.update(Alu::Mul, mask, none);
        b.update(Alu::Or, mask, equal);
        b.update(Alu::Mul, before, none);
        b.update(Alu::Add, before, here);
    });
    b.if_(Jmp::Eq, mask, 0, |b| {
        b.exit(-1);
    });
    let turned = b.to_be64(mask);
    let behind = words::length_in_word(b, turned);
    let end = b.add(before, 7);
    let at = b.sub(end, behind);
    b.exit(at);
}

/// `strchr(s, c)` or `strrchr(s, c)` to `target`.
pub(super) fn from_byte(b: &mut Builder, storage: u32, backward: bool) {
    let (s, target, c) = (b.param(0), b.param(1), b.param(2));
    let args = [Arg::Memory(s, storage), Arg::Word(c)];
    let at = if backward {
        b.call_global("dt_last", &args, |b| last(b, storage))
    } else {
        b.call_global("dt_first", &args, |b| first(b, storage))
    };
    suffix(b, storage, target, s, at);
    b.exit(0);
}

/// The string from position `at` on. NULL when `at` is negative.
pub(super) fn suffix(b: &mut Builder, storage: u32, target: V, s: V, at: V) {
    clear(b, storage, target);
    b.if_else(
        Jmp::Lt,
        at,
        storage,
        |b| {
            // At least the NUL is left, which is not copied.
            let end = b.imm(i64::from(storage) - 1);
            let count = b.sub(end, at);
            put(b, storage, target, s, at, count);
        },
        |b| {
            b.store(Size::B8, target, 0, NULL);
        },
    );
}

/// `strjoin(x, y)` to `target`, which must have space for a second string behind it. The second
/// part is copied only up to the end of the first string, but the verifier knows only that the copy
/// starts somewhere in the first string. Returns 1 when the strings do not fit.
pub(super) fn strjoin(b: &mut Builder, strsize: u32) {
    let storage = string_storage(strsize);
    let (x, y, target) = (b.param(0), b.param(1), b.param(2));
    let (lx, ly) = (length(b, storage, x), length(b, storage, y));
    let sum = b.add(lx, ly);
    b.if_(Jmp::Lt, sum, strsize, |b| {
        let all = b.imm(i64::from(storage));
        b.call(Helper::PROBE_READ_KERNEL, &[target, all, x]);
        b.if_(Jmp::Lt, lx, storage, |b| {
            let rest = b.sub(all, lx);
            let behind = b.add(target, lx);
            b.call(Helper::PROBE_READ_KERNEL, &[behind, rest, y]);
        });
        b.exit(0);
    });
    b.exit(1);
}

/// Offset in the work area of the flag that the string of [`memstr`] has ended.
const ENDED: i16 = 0;

/// Replaces each NUL in the first bytes of `target` by a character. When the character is NUL, the
/// first NUL ends the string.
pub(super) fn memstr(b: &mut Builder, storage: u32) {
    let (target, separator, count, work) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let separator = b.and(separator, 0xff);
    b.store(Size::B8, work, ENDED, 0);
    b.store(Size::B8, work, ENDED + 8, separator);
    each(b, "dt_separate", count, &[target, work], |b, turn, addresses| {
        let &[target, work] = addresses else { return };
        let (end, on, put) = (b.label(), b.label(), b.label());
        let c = byte(b, target, turn, storage, end);
        let ended = b.load(Size::B8, work, ENDED);
        let separator = b.load(Size::B8, work, ENDED + 8);
        b.br(Jmp::Ne, ended, 0, put);
        b.br(Jmp::Ne, c, 0, on);
        b.br(Jmp::Ne, separator, 0, put);
        b.store(Size::B8, work, ENDED, 1);
        b.bind(put);
        let p = b.add(target, turn);
        b.store(Size::B1, p, 0, separator);
        b.bind(on);
        next(b);
        b.bind(end);
        stop(b);
    });
    b.exit(0);
}

/// `toupper(s)` or `tolower(s)` to `target`, eight letters at a time.
pub(super) fn letters(b: &mut Builder, storage: u32, from: u8) {
    let (s, target) = (b.param(0), b.param(1));
    let low = b.imm(!SIGNS as i64);
    let at_least = b.imm((0x80 - i64::from(from)) * ONES);
    let more_than = b.imm((0x80 - i64::from(from) - 26) * ONES);
    let signs = b.imm(SIGNS as i64);
    words::each_word(b, &[s, target], storage, |b, p, at, _| {
        let word = b.load(Size::B8, p[0], at);
        let sevens = b.and(word, low);
        // The top bit of each byte: set when the byte is at least the first letter, at most the
        // last, and ASCII.
        let reached = b.add(sevens, at_least);
        let passed = b.add(sevens, more_than);
        let between = b.xor(reached, passed);
        let letter = b.and(between, signs);
        let other = b.xor(word, -1);
        let letter = b.and(letter, other);
        let flip = b.shr(letter, 2);
        let turned = b.xor(word, flip);
        b.store(Size::B8, p[1], at, turned);
    });
    b.exit(0);
}
