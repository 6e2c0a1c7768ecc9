//! Adding a sample to an aggregation's value.
//!
//! Every word is changed by one atomic operation. Values of several words (count and sum of an
//! average, the halves of a square sum) are consistent once no program uses the table. The consumer
//! reads the table only then.
//!
//! ARCH(x86-64): adding to a value is an atomic addition without fetch, which BPF leaves unordered
//! on weaker machines.

use plane::desc::{AggFunc, QUANTIZE_BUCKETS, QUANTIZE_ZERO};
use plane::table::llquantize_steps;

use crate::mir::{Alu, Arg, Builder, Jmp, Label, Operand, Size, V};

/// Maximum number of lost compare-exchanges of a minimum or maximum. After that, the sample is
/// dropped.
const TRIES: u32 = 8;

/// A sample, and the value to which it is added.
pub(super) struct Sample {
    /// The address from which `offset` counts.
    pub(super) slot: V,
    /// Offset of the value.
    pub(super) offset: i16,
    /// Jumped to when the sample is dropped.
    pub(super) drop: Label,
    /// The sample.
    pub(super) value: Operand,
    /// The increment of a bucket.
    pub(super) increment: Operand,
}

pub(super) fn add_sample(b: &mut Builder, func: AggFunc, s: &Sample) {
    let at = |word: i16| s.offset + 8 * word;
    match func {
        AggFunc::Count => b.atomic_add(s.slot, at(0), 1),
        AggFunc::Sum => b.atomic_add(s.slot, at(0), s.value),
        AggFunc::Avg => {
            b.atomic_add(s.slot, at(0), 1);
            b.atomic_add(s.slot, at(1), s.value);
        }
        AggFunc::Min | AggFunc::Max => extreme(b, func, s),
        AggFunc::Stddev => {
            let value = b.reg(s.value);
            let (low, high) = square(b, value);
            b.atomic_add(s.slot, at(0), 1);
            b.atomic_add(s.slot, at(1), value);
            add_wide(b, s.slot, at(2), low, high);
        }
        AggFunc::Quantize => {
            let value = b.reg(s.value);
            let bucket = b.call_global("dt_quantize", &[Arg::Word(value)], quantize_body);
            add_to_bucket(b, s, bucket, QUANTIZE_BUCKETS);
        }
        AggFunc::Lquantize { base, limit, step } => {
            let value = b.reg(s.value);
            let buckets = func.value_size() / 8;
            let (above, below, known) = (b.label(), b.label(), b.label());
            let bucket = b.var();
            b.br(Jmp::Slt, value, base, below);
            b.br(Jmp::Sge, value, limit, above);
            let level = b.sub(value, i64::from(base));
            let level = b.alu(Alu::Div, level, u32::from(step.max(1)));
            b.set(bucket, level);
            b.update(Alu::Add, bucket, 1);
            b.bind(known);
            b.out_of_line(|b| {
                b.bind(below);
                b.set(bucket, 0);
                b.jmp(known);
            });
            b.out_of_line(|b| {
                b.bind(above);
                b.set(bucket, buckets - 1);
                b.jmp(known);
            });
            add_to_bucket(b, s, bucket, buckets);
        }
        AggFunc::Llquantize { factor, low, high, nsteps } => {
            let value = b.reg(s.value);
            let name = format!("dt_llquantize_{factor}_{low}_{high}_{nsteps}");
            let bucket = b.call_global(&name, &[Arg::Word(value)], |b| llquantize_body(b, func));
            add_to_bucket(b, s, bucket, func.value_size() / 8);
        }
    }
}

fn add_to_bucket(b: &mut Builder, s: &Sample, bucket: V, buckets: u32) {
    b.br(Jmp::Ge, bucket, buckets, s.drop); // cannot be
    let offset = b.shl(bucket, 3);
    let word = b.add(s.slot, offset);
    b.atomic_add(word, s.offset, s.increment);
}

/// Stores the sample ([`plane::table::to_stored`]) if it is greater than the stored value.
fn extreme(b: &mut Builder, func: AggFunc, s: &Sample) {
    let value = b.reg(s.value);
    let stored = if func == AggFunc::Min {
        let most = b.imm(i64::MAX);
        b.sub(most, value)
    } else {
        b.xor(value, i64::MIN)
    };
    let (better, done) = (b.label(), b.label());
    let found = b.load(Size::B8, s.slot, s.offset);
    b.br(Jmp::Gt, stored, found, better);
    b.bind(done);
    b.out_of_line(|b| {
        b.bind(better);
        let expected = b.copy(found);
        b.repeat(TRIES, |b| {
            let old = b.cmpxchg(s.slot, s.offset, expected, stored);
            b.br(Jmp::Eq, old, expected, done);
            b.set(expected, old);
            b.br(Jmp::Le, stored, expected, done);
        });
        b.jmp(s.drop);
    });
}

/// The square of a signed value, as low and high word.
fn square(b: &mut Builder, value: V) -> (V, V) {
    // value| without a branch. i64::MIN becomes 2^63, which is correct as an unsigned number.
    let sign = b.sar(value, 63);
    let magnitude = b.xor(value, sign);
    let magnitude = b.sub(magnitude, sign);
    let h = b.shr(magnitude, 32);
    let l = b.low32(magnitude);
    let (ll, hl, hh) = (b.mul(l, l), b.mul(h, l), b.mul(h, h));
    // square = hh << 64 + hl << 33 + ll
    let middle = b.shl(hl, 33);
    let low = b.add(ll, middle);
    let high = b.copy(hh);
    let over = b.shr(hl, 31);
    b.update(Alu::Add, high, over);
    b.if_(Jmp::Lt, low, ll, |b| {
        b.update(Alu::Add, high, 1);
    });
    (low, high)
}

/// Adds 128 bits. The old low word shows whether the addition overflowed.
fn add_wide(b: &mut Builder, base: V, at: i16, low: V, high: V) {
    let old = b.atomic_fetch(crate::mir::AtomicOp::Add, Size::B8, base, at, low);
    let sum = b.add(old, low);
    let carried = b.copy(high);
    b.if_(Jmp::Lt, sum, old, |b| {
        b.update(Alu::Add, carried, 1);
    });
    b.atomic_add(base, at + 8, carried);
}

/// [`plane::desc::quantize_bucket`]: a binary search for the highest bit. A function of its own,
/// because each of the 127 results would be a path for the verifier. Its result is one unknown
/// number.
fn quantize_body(b: &mut Builder) {
    let value = b.param(0);
    let zero = b.label();
    // bucket = origin + sign * log2(magnitude)
    let (origin, sign, magnitude) = (b.copy(QUANTIZE_ZERO + 1), b.copy(1), b.copy(value));
    b.br(Jmp::Eq, value, 0, zero);
    b.if_(Jmp::Slt, value, 0, |b| {
        b.set(origin, QUANTIZE_ZERO - 1);
        b.set(sign, -1);
        let minus = b.neg(value);
        b.set(magnitude, minus);
    });
    let n = b.copy(0);
    for shift in [32, 16, 8, 4, 2, 1] {
        b.if_(Jmp::Ge, magnitude, 1i64 << shift, |b| {
            b.update(Alu::Rsh, magnitude, shift);
            b.update(Alu::Add, n, shift);
        });
    }
    // i64::MIN alone has bit 63. It shares the last bucket with -2^62.
    b.if_(Jmp::Gt, n, QUANTIZE_ZERO - 1, |b| b.set(n, QUANTIZE_ZERO - 1));
    b.update(Alu::Mul, n, sign);
    b.update(Alu::Add, n, origin);
    b.exit(n);
    b.bind(zero);
    b.exit(QUANTIZE_ZERO);
}

/// [`plane::table::llquantize_bucket`] with its loop over magnitudes unrolled.
fn llquantize_body(b: &mut Builder, func: AggFunc) {
    let value = b.param(0);
    let steps = llquantize_steps(func);
    for (i, step) in steps.iter().enumerate() {
        b.if_(Jmp::Slt, value, step.below, |b| {
            if i == 0 {
                b.exit(0);
            } else {
                let above = b.sub(value, step.from);
                let width = b.reg(step.width);
                let within = b.alu(Alu::Div, above, width);
                let bucket = b.add(within, step.first);
                b.exit(bucket);
            }
        });
    }
    b.exit(steps.last().map_or(0, |s| s.after));
}
