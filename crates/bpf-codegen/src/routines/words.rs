//! Memory in words: zeroing, copying and comparing strings and keys.
//!
//! Short memory is processed by a straight run of instructions. Long memory is processed by
//! functions that are verified once for all callers: a string of 4 KiB takes a thousand
//! instructions, which the verifier would otherwise process at each use. Very long memory is
//! processed by a loop of such runs, since offsets in loads and stores, and jumps, reach only 32
//! KiB.

use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, Operand, Size, StackSlot, V};

/// The first word of a NULL string; the others are zero.
pub(crate) const NULL: i64 = 0xff00;

/// Above this number of bytes, a function is used.
const INLINE: u32 = 64;
/// Above this number of bytes, a loop of runs of this size is used.
pub(crate) const RUN: u32 = 1024;

/// Reads a number at `base + off` of the kernel's memory, by a word of the stack. Jumps to `bad`
/// where it cannot be read.
pub(super) fn read_kernel(
    b: &mut Builder,
    (slot, at): (StackSlot, i16),
    (base, off): (V, i16),
    size: Size,
    bad: Label,
) -> V {
    read_by(b, Helper::PROBE_READ_KERNEL, (slot, at), (base, off.into()), size, bad)
}

/// The same by a helper: of the kernel's memory, or of the process's.
pub fn read_by(
    b: &mut Builder,
    helper: Helper,
    (slot, at): (StackSlot, i16),
    (base, off): (V, i32),
    size: Size,
    bad: Label,
) -> V {
    let (to, bytes) = (b.slot_addr(slot, at), b.imm(i64::from(size.bytes())));
    let from = b.add(base, off);
    let failed = b.call(helper, &[to, bytes, from]);
    b.br(Jmp::Ne, failed, 0, bad);
    b.slot_load(size, slot, at)
}

/// True for memory that is processed by a loop.
pub(crate) fn is_long(bytes: u32) -> bool {
    bytes > 2 * RUN
}

/// Calls `f` for each word of `bytes` (a multiple of 8) with pointers, an offset to the pointers,
/// and the number of bytes before the pointers.
pub(crate) fn each_word(
    b: &mut Builder,
    pointers: &[V],
    bytes: u32,
    mut f: impl FnMut(&mut Builder, &[V], i16, Operand),
) {
    if !is_long(bytes) {
        (0..bytes as i16).step_by(8).for_each(|at| f(b, pointers, at, Operand::Imm(0)));
        return;
    }
    let moving: Vec<V> = pointers.iter().map(|p| b.copy(*p)).collect();
    let passed = b.copy(0);
    b.loop_(|b, again| {
        (0..RUN as i16).step_by(8).for_each(|at| f(b, &moving, at, Operand::V(passed)));
        for p in &moving {
            b.update(Alu::Add, *p, RUN);
        }
        b.update(Alu::Add, passed, RUN);
        b.br(Jmp::Ne, passed, bytes / RUN * RUN, again);
    });
    (0..(bytes % RUN) as i16).step_by(8).for_each(|at| f(b, &moving, at, Operand::V(passed)));
}

/// Zeroes `bytes` (a multiple of 8) at `base + off`.
pub fn zero(b: &mut Builder, base: V, off: i16, bytes: u32) {
    if bytes <= INLINE {
        (0..bytes as i16).step_by(8).for_each(|at| b.store(Size::B8, base, off + at, 0));
        return;
    }
    let to = b.add(base, i32::from(off));
    b.call_global(&format!("zero_{bytes}"), &[Arg::Memory(to, bytes)], |b| {
        let to = b.param(0);
        each_word(b, &[to], bytes, |b, p, at, _| b.store(Size::B8, p[0], at, 0));
        b.exit(0);
    });
}

/// Copies `bytes` (a multiple of 8).
pub(crate) fn copy_words(b: &mut Builder, to: V, from: V, bytes: u32) {
    let run = |b: &mut Builder, to: V, from: V| {
        each_word(b, &[to, from], bytes, |b, p, at, _| {
            let word = b.load(Size::B8, p[1], at);
            b.store(Size::B8, p[0], at, word);
        });
    };
    if bytes <= INLINE {
        run(b, to, from);
        return;
    }
    let args = [Arg::Memory(to, bytes), Arg::Memory(from, bytes)];
    b.call_global(&format!("copy_{bytes}"), &args, |b| {
        let (to, from) = (b.param(0), b.param(1));
        run(b, to, from);
        b.exit(0);
    });
}

/// Negative, zero or positive when the string at `p` is less than, equal to, or greater than the
/// string at `q`.
pub(crate) fn compare(b: &mut Builder, p: V, q: V, bytes: u32) -> V {
    let args = [Arg::Memory(p, bytes), Arg::Memory(q, bytes)];
    b.call_global(&format!("compare_{bytes}"), &args, |b| {
        let (x, y) = (b.var(), b.var());
        let differ = b.label();
        let params = [b.param(0), b.param(1)];
        each_word(b, &params, bytes, |b, p, at, _| {
            let v = b.load(Size::B8, p[0], at);
            b.set(x, v);
            let v = b.load(Size::B8, p[1], at);
            b.set(y, v);
            b.br(Jmp::Ne, x, y, differ);
        });
        let equal = b.label();
        b.bind(equal);
        b.exit(0);
        b.bind(differ);
        // NULL and the empty string.
        let both = b.or(x, y);
        b.br(Jmp::Eq, both, NULL, equal);
        let (x, y) = (b.to_be64(x), b.to_be64(y));
        b.if_(Jmp::Ge, x, y, |b| {
            b.exit(1);
        });
        b.exit(-1);
    })
}

/// Exchanges NULL and the empty string at `base + off`: between their forms as values and as stored
/// in variables of which zeros are what was never assigned.
pub(crate) fn exchange_null(b: &mut Builder, base: V, off: i16) {
    let first = b.load(Size::B1, base, off);
    b.if_(Jmp::Eq, first, 0, |b| {
        let word = b.load(Size::B8, base, off);
        let other = b.alu(Alu::Xor, word, NULL);
        b.store(Size::B8, base, off, other);
    });
}

/// The words of a constant string, with its NUL, zero-padded.
pub(crate) fn words_of(text: &[u8]) -> Vec<u64> {
    let mut out = vec![0u64; text.len() / 8 + 1];
    for (i, byte) in text.iter().enumerate() {
        out[i / 8] |= u64::from(*byte) << (8 * (i % 8));
    }
    out
}

/// Number of bytes before the NUL of the string at `p`, which has at most `bytes`.
pub(crate) fn length(b: &mut Builder, p: V, bytes: u32) -> V {
    b.call_global("strlen", &[Arg::Memory(p, bytes)], |b| {
        let p = b.param(0);
        let (mask, before) = (b.var(), b.var());
        let found = b.label();
        each_word(b, &[p], bytes, |b, p, at, passed| {
            let word = b.load(Size::B8, p[0], at);
            let zero = zero_bytes(b, word);
            b.set(mask, zero);
            match passed {
                Operand::Imm(n) => b.set(before, n + i64::from(at)),
                Operand::V(n) => {
                    let sum = b.add(n, i32::from(at));
                    b.set(before, sum);
                }
            }
            b.br(Jmp::Ne, mask, 0, found);
        });
        b.exit(i64::from(bytes) - 1);
        b.bind(found);
        let within = length_in_word(b, mask);
        let length = b.add(within, before);
        b.exit(length);
    })
}

/// 0x80 in each byte of `w` that is zero. Only the lowest is exact, bytes above a zero byte may be
/// wrong.
pub(crate) fn zero_bytes(b: &mut Builder, w: V) -> V {
    let low = b.sub(w, 0x0101_0101_0101_0101_i64);
    let inverse = b.xor(w, -1);
    let t = b.and(low, inverse);
    b.and(t, 0x8080_8080_8080_8080_u64)
}

/// Number of bytes before the first zero byte, from the mask of [`zero_bytes`], which is not 0.
pub(crate) fn length_in_word(b: &mut Builder, mask: V) -> V {
    let negative = b.neg(mask);
    let lowest = b.and(mask, negative);
    let bit = b.shr(lowest, 7);
    let below = b.sub(bit, 1);
    let ones = b.and(below, 0x0101_0101_0101_0101_i64);
    let sum = b.mul(ones, 0x0101_0101_0101_0101_i64);
    b.shr(sum, 56)
}

/// Jumps to `end` when the word's last byte is NUL, because the rest of a padded string is then
/// zero.
pub(crate) fn end_of_string(b: &mut Builder, word: V, end: Label) {
    let top = b.shr(word, 56);
    b.br(Jmp::Eq, top, 0, end);
}
