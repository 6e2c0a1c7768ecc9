//! Reserving in a ring that is overwritten, and releasing its segments. [`plane::overwrite`]
//! describes the algorithm and its reasons.
//!
//! ARCH(x86-64): releasing a segment is an atomic addition without fetch, which BPF leaves
//! unordered on weaker machines.

use plane::control::RESERVE;
use plane::overwrite::{COUNT_BITS, COUNT_MAX, POSITION, SEGMENTS};
use plane::ring::{HEADER_SIZE, Policy};

use super::record::{RecordRef, Reserve, TRIES, retry, write_header, write_pad};
use super::{Firing, element, words};
use crate::mir::{Alu, Builder, Jmp, Label, Operand, Size, V};
use crate::plan::Plan;

/// The count of a writer in the segment of its record.
#[derive(Clone, Copy, Debug)]
pub struct WriterCount {
    /// Address of the CPU's control element.
    percpu: V,
    /// Bytes of a segment.
    segment: u32,
}

/// What a record of this CPU's ring holds; `None` by another policy.
pub fn held(plan: &Plan, firing: &Firing) -> Option<WriterCount> {
    let segment = plan.ring_size / SEGMENTS;
    (plan.policy == Policy::Ring).then_some(WriterCount { percpu: firing.percpu, segment })
}

/// Sets `at` to the position of a count in the word: that of the segment of `position`. Positions
/// are in units of 8 bytes here.
fn count_at(b: &mut Builder, at: V, position: V, segment: u32) {
    b.set(at, position);
    b.update(Alu::Rsh, at, i64::from((segment / 8).trailing_zeros()));
    b.update(Alu::And, at, i64::from(SEGMENTS) - 1);
    b.update(Alu::Mul, at, COUNT_BITS);
}

/// Jumps to `drop` unless the count at this position allows another writer.
fn check(b: &mut Builder, word: V, at: V, most: u32, drop: Label) {
    let count = b.shr(word, at);
    let count = b.and(count, i64::from(COUNT_MAX));
    b.br(Jmp::Gt, count, most, drop);
}

/// Reserves `length` bytes, zeroes the data if the length is a constant, and writes the header.
/// Jumps to `drop` where the record would overwrite one that is being written.
pub(super) fn reserve(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    what: &Reserve,
    length: Operand,
    drop: Label,
) -> RecordRef {
    let (size, segment) = (plan.ring_size, plan.ring_size / SEGMENTS);
    let place = i64::from(size / 8) - 1;
    let base = element(b, plan.rings(), firing.index, firing.words, drop);
    let (units, known) = match length {
        Operand::Imm(i) => (b.imm(i / 8), i),
        Operand::V(v) => (b.shr(v, 3), i64::from(HEADER_SIZE)),
    };
    let (again, next, within, fits, lost, pad, ready) =
        (b.label(), b.label(), b.label(), b.label(), b.label(), b.label(), b.label());
    let tries = b.copy(TRIES);
    // The record's start: the position, or the next segment's start behind a pad.
    let start = b.var();
    // The position of its segment's count, and one in the count of the segment that gets a pad.
    let (at, padded) = (b.var(), b.var());
    b.bind(again);
    let word = b.load(Size::B8, firing.percpu, RESERVE as i16);
    let position = b.shr(word, i64::from(POSITION));
    let offset = b.and(position, i64::from(segment / 8) - 1);
    b.set(start, position);
    b.set(padded, 0);
    let end = b.add(offset, units);
    b.br(Jmp::Gt, end, i64::from(segment / 8), next);
    count_at(b, at, start, segment);
    b.br(Jmp::Ne, offset, 0, within);
    check(b, word, at, 0, drop);
    b.bind(fits);
    let counts = b.copy(1);
    b.update(Alu::Lsh, counts, at);
    b.update(Alu::Add, counts, padded);
    // Positions have 32 bits: what is above is shifted out.
    let new = b.add(start, units);
    b.update(Alu::Lsh, new, i64::from(POSITION));
    let low = b.shl(word, i64::from(POSITION));
    let low = b.shr(low, i64::from(POSITION));
    b.update(Alu::Or, new, low);
    b.update(Alu::Add, new, counts);
    let old = b.cmpxchg(firing.percpu, RESERVE as i16, word, new);
    b.br(Jmp::Ne, old, word, lost);
    b.br(Jmp::Ne, padded, 0, pad);
    b.bind(ready);
    let from = b.and(start, place);
    let from = b.shl(from, 3);
    b.br(Jmp::Gt, from, i64::from(size) - known, drop); // cannot be
    let header = b.add(base, from);
    let high = b.shl(start, 24);
    let stamp = b.or(high, units);
    if matches!(length, Operand::Imm(_)) {
        words::zero(b, header, HEADER_SIZE as i16, what.size);
    }
    let time = write_header(b, plan, firing, what, header);
    b.out_of_line(|b| {
        b.bind(within);
        check(b, word, at, COUNT_MAX - 1, drop);
        b.jmp(fits);
    });
    b.out_of_line(|b| {
        b.bind(next);
        let rest = b.imm(i64::from(segment / 8));
        b.update(Alu::Sub, rest, offset);
        b.update(Alu::Add, start, rest);
        b.update(Alu::Lsh, start, i64::from(64 - POSITION));
        b.update(Alu::Rsh, start, i64::from(64 - POSITION));
        count_at(b, at, position, segment);
        check(b, word, at, COUNT_MAX - 1, drop);
        b.set(padded, 1);
        b.update(Alu::Lsh, padded, at);
        count_at(b, at, start, segment);
        check(b, word, at, 0, drop);
        b.jmp(fits);
    });
    retry(b, lost, tries, again, drop);
    b.out_of_line(|b| {
        b.bind(pad);
        let from = b.and(position, place);
        let from = b.shl(from, 3);
        let address = b.add(base, from);
        let rest = b.imm(i64::from(segment / 8));
        b.update(Alu::Sub, rest, offset);
        write_pad(b, address, position, 24, rest);
        let less = b.copy(0);
        b.update(Alu::Sub, less, padded);
        b.atomic_add(firing.percpu, RESERVE as i16, less);
        b.jmp(ready);
    });
    RecordRef { header, stamp, time: Some(time), held: held(plan, firing) }
}

/// Releases the segment of a record that is committed.
pub(super) fn release(b: &mut Builder, held: &WriterCount, stamp: V) {
    let position = b.shr(stamp, 24);
    let at = b.var();
    count_at(b, at, position, held.segment);
    let less = b.copy(-1);
    b.update(Alu::Lsh, less, at);
    b.atomic_add(held.percpu, RESERVE as i16, less);
}
