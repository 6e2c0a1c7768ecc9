//! Speculation: finding a free id, reserving in its ring, ending it. [`plane::speculation`]
//! describes the protocol and its reasons.

use plane::control::DropKind;
use plane::ring::{FLAGS, HEADER_SIZE, flags};
use plane::speculation::{
    ACTIVE, COMMITTING, CONSUMED, DISCARDING, GENERATION, INACTIVE, POSITIONS, RESERVE, SpeculationShape,
};

use super::record::{self, RecordRef, Reserve, RingTarget, commit, discard};
use super::{Clock, Firing, count_drop, element};
use crate::mir::{Alu, Arg, Builder, Jmp, Label, MapRef, Operand, Size, V};
use crate::plan::{Area, Plan};

/// An id that exists.
#[derive(Clone, Copy, Debug)]
pub struct SpeculationRef {
    /// The id less 1.
    pub index: V,
    /// Address of its state word.
    state: V,
    shape: SpeculationShape,
    rings: Area,
}

/// Finds an id. Jumps to `none` with the id 0, and to `bad` with an id that does not exist.
pub fn speculation_of(
    b: &mut Builder,
    plan: &Plan,
    id: V,
    none: Label,
    bad: Label,
) -> Option<SpeculationRef> {
    let (shape, rings) = (plan.speculation?, plan.speculation_rings()?);
    let index = b.sub(id, 1);
    let outside = b.label();
    b.br(Jmp::Ge, index, shape.count, outside);
    b.out_of_line(|b| {
        b.bind(outside);
        b.br(Jmp::Eq, id, 0, none);
        b.jmp(bad);
    });
    Some(of_index(b, shape, rings, index))
}

fn of_index(b: &mut Builder, shape: SpeculationShape, rings: Area, index: V) -> SpeculationRef {
    let base = b.map_value(MapRef::SpeculationControl, 0);
    let offset = b.shl(index, 3);
    let state = b.add(base, offset);
    SpeculationRef { index, state, shape, rings }
}

/// The state word. Jumps to `inactive` unless it is active.
fn active(b: &mut Builder, of: &SpeculationRef, inactive: Label) -> V {
    let word = b.load(Size::B8, of.state, 0);
    let state = b.and(word, 0xff);
    b.br(Jmp::Ne, state, ACTIVE, inactive);
    word
}

/// `speculation()`: an id, or 0 and a counted drop.
pub fn speculation(b: &mut Builder, plan: &Plan) -> V {
    let count = plan.speculation.map_or(0, |s| s.count);
    b.call_global("dt_speculation", &[], |b| {
        let firing = super::firing(b, plan);
        let (again, next, ended, taken, none, unavailable) =
            (b.label(), b.label(), b.label(), b.label(), b.label(), b.label());
        let (index, busy) = (b.copy(0), b.copy(0));
        b.bind(again);
        b.br(Jmp::Ge, index, count, none);
        let base = b.map_value(MapRef::SpeculationControl, 0);
        let offset = b.shl(index, 3);
        let state = b.add(base, offset);
        let word = b.load(Size::B8, state, 0);
        let low = b.and(word, 0xff);
        b.br(Jmp::Eq, low, ACTIVE, next);
        b.br(Jmp::Ne, low, INACTIVE, ended);
        let begun = b.or(word, ACTIVE);
        let old = b.cmpxchg(state, 0, word, begun);
        b.br(Jmp::Eq, old, word, taken);
        b.bind(next);
        b.update(Alu::Add, index, 1);
        b.jmp(again);
        b.bind(ended);
        b.set(busy, 1);
        b.jmp(next);
        b.bind(taken);
        let id = b.add(index, 1);
        b.exit(id);
        b.bind(none);
        b.br(Jmp::Eq, busy, 0, unavailable);
        count_drop(b, &firing, DropKind::SpeculationBusy);
        b.exit(0);
        b.bind(unavailable);
        count_drop(b, &firing, DropKind::SpeculationUnavailable);
        b.exit(0);
    })
}

/// Jumps to `refused` unless the speculation is active.
pub fn require_active(b: &mut Builder, of: &SpeculationRef, refused: Label) {
    active(b, of, refused);
}

/// Reserves a record in the ring of a speculation. Jumps to `refused` if the speculation is not
/// active, or if it is full: then a speculative drop is counted.
pub fn reserve_speculative(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    of: &SpeculationRef,
    what: &Reserve,
    refused: Label,
) -> RecordRef {
    let length = HEADER_SIZE + what.size;
    reserve_length(b, plan, firing, of, what, length.into(), refused)
}

/// The same as a function, which a program with many clauses has once.
pub fn reserve_speculative_by_call(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    of: &SpeculationRef,
    what: &Reserve,
    refused: Label,
) -> RecordRef {
    let (epid, length) = (b.reg(what.epid), b.imm(i64::from(HEADER_SIZE + what.size)));
    let slot = match what.clock {
        Clock::Slot(number) => number,
        // Cannot be: a program with functions for its clauses has a slot.
        Clock::Once | Clock::Register(_) => b.imm(0),
    };
    let (shape, rings) = (of.shape, of.rings);
    let stamp = b.call_global("dt_speculate", &[epid, length, slot, of.index].map(Arg::Word), |b| {
        let (epid, length, slot, index) = (b.param(0), b.param(1), b.param(2), b.param(3));
        let refused = b.label();
        let firing = super::firing(b, plan);
        b.br(Jmp::Ge, index, shape.count, refused);
        let of = of_index(b, shape, rings, index);
        let clock = Clock::Slot(slot);
        let what = Reserve { size: 0, epid: epid.into(), clock, time: None, flags: 0, exits: false };
        let record = reserve_length(b, plan, &firing, &of, &what, length.into(), refused);
        b.exit(record.stamp);
        b.bind(refused);
        b.exit(0);
    });
    b.br(Jmp::Eq, stamp, 0, refused);
    let header = reopen_speculative(b, plan, firing, of.index, what.size, stamp, refused);
    RecordRef { header, stamp, time: None, held: None }
}

/// The header of a record of `size` bytes of data, from the index of its speculation and its commit
/// word. Jumps to `bad` if there is none, which does not happen.
pub fn reopen_speculative(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    index: V,
    size: u32,
    stamp: V,
    bad: Label,
) -> V {
    let (Some(shape), Some(rings)) = (plan.speculation, plan.speculation_rings()) else { return b.imm(0) };
    b.br(Jmp::Ge, index, shape.count, bad);
    let cpu = cpu(b, plan, firing, shape);
    let base = ring(b, shape, rings, firing, (cpu, index), bad);
    record::header(b, base, shape.ring_size, size, stamp, bad)
}

/// The CPU index for the rings. They were made for the CPUs that were online then, so there may be
/// fewer.
fn cpu(b: &mut Builder, plan: &Plan, firing: &Firing, shape: SpeculationShape) -> V {
    if plan.cpus <= shape.cpus {
        return firing.index;
    }
    let ok = b.label();
    let index = b.copy(firing.index);
    b.br(Jmp::Lt, index, shape.cpus, ok);
    b.update(Alu::Mod, index, shape.cpus);
    b.br(Jmp::Lt, index, shape.cpus, ok);
    // Never reached, but the verifier does not know the bound of a modulus.
    b.set(index, 0);
    b.bind(ok);
    index
}

/// The address of a ring.
fn ring(
    b: &mut Builder,
    shape: SpeculationShape,
    rings: Area,
    firing: &Firing,
    (cpu, index): (V, V),
    bad: Label,
) -> V {
    let first = b.mul(cpu, shape.count);
    let number = b.add(first, index);
    element(b, rings, number, firing.words, bad)
}

fn reserve_length(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    of: &SpeculationRef,
    what: &Reserve,
    length: Operand,
    refused: Label,
) -> RecordRef {
    let SpeculationRef { index, state, shape, rings } = *of;
    let word = active(b, of, refused);
    let full = b.label();
    b.out_of_line(|b| {
        b.bind(full);
        // While the consumer frees the id, a ring seems to be full.
        let now = b.load(Size::B8, state, 0);
        b.br(Jmp::Ne, now, word, refused);
        count_drop(b, firing, DropKind::Speculation);
        b.jmp(refused);
    });
    if let Operand::Imm(length) = length
        && length > i64::from(shape.limit)
    {
        b.jmp(full);
        let none = b.imm(0);
        return RecordRef { header: none, stamp: none, time: None, held: None };
    }
    let cpu = cpu(b, plan, firing, shape);
    let base = ring(b, shape, rings, firing, (cpu, index), full);
    let control = b.map_value(MapRef::SpeculationControl, shape.cpu(0));
    let of_cpu = b.mul(cpu, shape.cpu_stride());
    let of_index = b.mul(index, POSITIONS);
    let positions = b.add(control, of_cpu);
    let positions = b.add(positions, of_index);
    let target = RingTarget {
        base,
        positions,
        reserve: RESERVE as i16,
        consumed: CONSUMED as i16,
        size: shape.ring_size,
        most: shape.limit,
        rings_doorbell: false,
        fills: false,
    };
    let record = record::reserve_in(b, plan, firing, what, length, &target, full);
    let (changed, go) = (b.label(), b.label());
    let now = b.load(Size::B8, state, 0);
    b.br(Jmp::Ne, now, word, changed);
    b.bind(go);
    b.out_of_line(|b| {
        b.bind(changed);
        discard(b, &record);
        b.jmp(refused);
    });
    record
}

/// `commit()` or `discard()` of a speculation, by a clause with this id. Jumps to `done` if the
/// speculation is not active.
pub fn end_speculation(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    of: &SpeculationRef,
    commits: Option<(&Reserve, bool)>,
    done: Label,
) {
    let word = active(b, of, done);
    let next = if commits.is_some() { COMMITTING } else { DISCARDING };
    let ended = b.add(word, i32::from(next - ACTIVE));
    let old = b.cmpxchg(of.state, 0, word, ended);
    b.br(Jmp::Ne, old, word, done);
    let Some((what, by_call)) = commits else { return };
    let lost = b.label();
    let reserve = if by_call { record::reserve_by_call } else { record::reserve };
    let record = reserve(b, plan, firing, what, lost);
    let generation = b.shr(word, i64::from(GENERATION));
    let high = b.shl(generation, 32);
    let id = b.add(of.index, 1);
    let data = b.or(high, id);
    b.store(Size::B8, record.header, HEADER_SIZE as i16, data);
    b.store(Size::B2, record.header, FLAGS as i16, flags::COMMIT);
    commit(b, &record);
    let state = of.state;
    b.out_of_line(|b| {
        b.bind(lost);
        let lost = b.add(word, i32::from(DISCARDING - ACTIVE));
        b.store(Size::B8, state, 0, lost);
        b.jmp(done);
    });
}
