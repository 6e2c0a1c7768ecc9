//! Records: reserve, commit, discard, and fault records. [`plane::ring`] describes the layout and
//! its reasons.

use plane::control::{CONSUMED, DropKind, RESERVE, RUNG};
use plane::ring::{self, COMMIT, FAULT_SIZE, FLAGS, HEADER_SIZE, ORIGIN, Policy, TIME, flags};

use super::overwrite::{self, WriterCount, held};
use super::{Clock, Firing, count_drop, element, ring_doorbell, words};
use crate::mir::{Alu, Arg, AtomicOp, Builder, Helper, Jmp, Label, Operand, Size, V};
use crate::plan::Plan;

/// Maximum number of lost compare-exchanges. After that, the reservation counts as dropped. Each
/// loss means that another context reserved a record.
pub(super) const TRIES: u32 = 8;

/// A reserved record.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef {
    /// Address of the header. The data is at [`HEADER_SIZE`]. The verifier knows the record's whole
    /// length.
    pub header: V,
    /// The commit word to be written.
    pub stamp: V,
    /// The firing's time, where this function knows it.
    pub time: Option<V>,
    /// The segment that the record holds until it is committed, by policy ring.
    pub held: Option<WriterCount>,
}

/// The parameters of a reservation.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// Bytes of data, a multiple of 8.
    pub size: u32,
    /// The enabled probe.
    pub epid: Operand,
    /// How the firing reads its clock. The clock is read after the reservation at the earliest.
    /// Until then, no other context may learn of this firing ([`plane::order`]).
    pub clock: Clock,
    /// The firing's time, if the clause has already read the clock.
    pub time: Option<V>,
    /// Record flags.
    pub flags: u16,
    /// The clause calls `exit()`: the record may use the space that is kept for that.
    pub exits: bool,
}

/// Reserves a record and writes its header. When the ring is full, counts a principal drop and
/// jumps to `full`. The data is zero and may be written at `header + HEADER_SIZE + offset`, before
/// [`commit`] or [`discard`].
pub fn reserve(b: &mut Builder, plan: &Plan, firing: &Firing, what: &Reserve, full: Label) -> RecordRef {
    let length = HEADER_SIZE + what.size;
    reserve_length(b, plan, firing, what, length.into(), full)
}

/// The same as a function, which a program with many clauses has once.
pub fn reserve_by_call(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    what: &Reserve,
    full: Label,
) -> RecordRef {
    let (epid, length) = (b.reg(what.epid), b.imm(i64::from(HEADER_SIZE + what.size)));
    let slot = match what.clock {
        Clock::Slot(number) => number,
        // Cannot be: a program with functions for its clauses has a slot.
        Clock::Once | Clock::Register(_) => b.imm(0),
    };
    let name = if what.exits { "dt_reserve_exit" } else { "dt_reserve" };
    let exits = what.exits;
    let stamp = b.call_global(name, &[epid, length, slot].map(Arg::Word), |b| {
        let (epid, length, slot) = (b.param(0), b.param(1), b.param(2));
        let full = b.label();
        let firing = super::firing(b, plan);
        let clock = Clock::Slot(slot);
        let what = Reserve { size: 0, epid: epid.into(), clock, time: None, flags: 0, exits };
        let record = reserve_length(b, plan, &firing, &what, length.into(), full);
        b.exit(record.stamp);
        b.bind(full);
        b.exit(0);
    });
    b.br(Jmp::Eq, stamp, 0, full);
    let header = reopen(b, plan, firing, what.size, stamp, full);
    let held = held(plan, firing);
    if held.is_some() {
        words::zero(b, header, HEADER_SIZE as i16, what.size);
    }
    RecordRef { header, stamp, time: None, held }
}

/// The header of a record of `size` bytes of data, from its commit word. Jumps to `bad` if there is
/// none, which does not happen.
pub fn reopen(b: &mut Builder, plan: &Plan, firing: &Firing, size: u32, stamp: V, bad: Label) -> V {
    let base = match firing.ring {
        Some(base) => base,
        None => element(b, plan.rings(), firing.index, firing.words, bad),
    };
    header(b, base, plan.ring_size, size, stamp, bad)
}

/// The same in a ring of `ring_size` bytes at `base`.
pub(super) fn header(b: &mut Builder, base: V, ring_size: u32, size: u32, stamp: V, bad: Label) -> V {
    let last = i64::from(ring_size) - i64::from(HEADER_SIZE + size);
    let start = b.shr(stamp, 21);
    let at = b.and(start, i64::from(ring_size) - 8);
    b.br(Jmp::Gt, at, last, bad);
    b.add(base, at)
}

/// The CPU's ring. Jumps to `bad` if there is none, which does not happen.
pub fn ring(b: &mut Builder, plan: &Plan, firing: &Firing, bad: Label) -> V {
    element(b, plan.rings(), firing.index, firing.words, bad)
}

/// Reserves `length` bytes, a number that the verifier need not know. It then knows of the record's
/// address that a header fits.
fn reserve_length(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    what: &Reserve,
    length: Operand,
    full: Label,
) -> RecordRef {
    let drop = b.label();
    b.out_of_line(|b| {
        b.bind(drop);
        count_drop(b, firing, DropKind::Principal);
        b.jmp(full);
    });
    let size = plan.ring_size;
    if plan.policy == Policy::Ring {
        return overwrite::reserve(b, plan, firing, what, length, drop);
    }
    // A flood of faults leaves space for the records of clauses, and both leave space for the
    // exit() that ends them. By policy fill, a full ring ends them, and faults need no limit.
    let fills = plan.policy == Policy::Fill;
    let most = match what.exits {
        true => size,
        false if fills || what.flags & flags::FAULT == 0 => size - plan.kept_for_exit,
        false => size - plan.kept_for_exit.max(size / 8),
    };
    let target = RingTarget {
        base: element(b, plan.rings(), firing.index, firing.words, drop),
        positions: firing.percpu,
        reserve: RESERVE as i16,
        consumed: CONSUMED as i16,
        size,
        most,
        rings_doorbell: !fills,
        fills,
    };
    reserve_in(b, plan, firing, what, length, &target, drop)
}

/// The ring in which a record is reserved.
pub(super) struct RingTarget {
    /// Its address.
    pub(super) base: V,
    /// The address of its positions, and their offsets.
    pub(super) positions: V,
    pub(super) reserve: i16,
    pub(super) consumed: i16,
    /// Its size.
    pub(super) size: u32,
    /// The most bytes in use.
    pub(super) most: u32,
    /// The doorbell is rung when it is half full.
    pub(super) rings_doorbell: bool,
    /// It is closed when it is full, at the most bytes in use, and that ends tracing.
    pub(super) fills: bool,
}

/// Reserves in a ring. Jumps to `drop` if it is full.
pub(super) fn reserve_in(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    what: &Reserve,
    length: Operand,
    target: &RingTarget,
    drop: Label,
) -> RecordRef {
    let RingTarget { base, positions, size, .. } = *target;
    let place = i64::from(size) - 8;
    let (last, words, known) = match length {
        Operand::Imm(i) => (Operand::Imm(i64::from(size) - i), Operand::Imm(i / 8), i),
        Operand::V(v) => {
            let whole = b.imm(i64::from(size));
            (b.sub(whole, v).into(), b.shr(v, 3).into(), i64::from(HEADER_SIZE))
        }
    };
    let (again, tight, fits, lost, pad, ready, half, go) =
        (b.label(), b.label(), b.label(), b.label(), b.label(), b.label(), b.label(), b.label());
    let tries = b.copy(TRIES);
    // The record's start: the position, or the ring's start behind a pad.
    let start = b.var();
    b.bind(again);
    let position = b.load(Size::B8, positions, target.reserve);
    let offset = b.and(position, place);
    b.set(start, position);
    b.br(Jmp::Gt, offset, last, tight);
    b.bind(fits);
    let end = b.add(start, length);
    let consumed = b.load(Size::B8, positions, target.consumed);
    let used = b.sub(end, consumed);
    // Signed: if this context was delayed since it read the position, the consumer may have passed
    // it. The exchange then fails.
    let full = if target.fills { b.label() } else { drop };
    b.br(Jmp::Sgt, used, target.most, full);
    let old = b.cmpxchg(positions, target.reserve, position, end);
    b.br(Jmp::Ne, old, position, lost);
    b.br(Jmp::Ne, start, position, pad);
    b.bind(ready);
    let at = b.and(start, place);
    b.br(Jmp::Gt, at, i64::from(size) - known, drop); // cannot be
    let header = b.add(base, at);
    let high = b.shl(start, 21);
    let stamp = b.or(high, words);
    let time = write_header(b, plan, firing, what, header);
    if target.rings_doorbell {
        b.br(Jmp::Sgt, used, size / 2, half);
    }
    b.bind(go);
    b.out_of_line(|b| {
        b.bind(tight);
        let rest = b.imm(i64::from(size));
        b.update(Alu::Sub, rest, offset);
        b.update(Alu::Add, start, rest);
        b.jmp(fits);
    });
    b.out_of_line(|b| {
        if !target.fills {
            return;
        }
        b.bind(full);
        b.if_(Jmp::Lt, position, target.most, |b| {
            let old = b.cmpxchg(positions, target.reserve, position, target.most);
            b.br(Jmp::Ne, old, position, lost);
            let address = b.add(base, offset);
            let whole = b.imm(i64::from(target.most));
            let rest = b.sub(whole, position);
            let rest = b.shr(rest, 3);
            write_pad(b, address, position, 21, rest);
        });
        let status = b.imm(0);
        super::exit(b, firing, status, false);
        b.jmp(drop);
    });
    retry(b, lost, tries, again, drop);
    b.out_of_line(|b| {
        b.bind(pad);
        let address = b.add(base, offset);
        let rest = b.sub(start, position);
        let rest = b.shr(rest, 3);
        write_pad(b, address, position, 21, rest);
        b.jmp(ready);
    });
    b.out_of_line(|b| {
        b.bind(half);
        if !target.rings_doorbell {
            return;
        }
        let rung = b.load(Size::B8, firing.percpu, RUNG as i16);
        b.br(Jmp::Ne, rung, 0, go);
        let rung = b.cmpxchg(firing.percpu, RUNG as i16, 0, 1);
        b.br(Jmp::Ne, rung, 0, go);
        ring_doorbell(b, firing);
        b.jmp(go);
    });
    RecordRef { header, stamp, time: Some(time), held: None }
}

/// Binds `lost`, where an exchange was lost to another context: another try from `again`, or a
/// drop.
pub(super) fn retry(b: &mut Builder, lost: Label, tries: V, again: Label, drop: Label) {
    b.out_of_line(|b| {
        b.bind(lost);
        b.update(Alu::Sub, tries, 1);
        b.br(Jmp::Ne, tries, 0, again);
        b.jmp(drop);
    });
}

/// Writes a pad of so many words at its address. Its stamp has the position, shifted by so many
/// bits.
pub(super) fn write_pad(b: &mut Builder, address: V, position: V, shift: i64, words: V) {
    let high = b.shl(position, shift);
    let stamp = b.or(high, words);
    let stamp = b.or(stamp, ring::PAD as i64);
    b.xchg(address, 0, stamp);
}

/// Writes the header of a record, except the commit word. Returns the firing's time.
pub(super) fn write_header(b: &mut Builder, plan: &Plan, firing: &Firing, what: &Reserve, header: V) -> V {
    let time = what.time.unwrap_or_else(|| what.clock.read(b, firing));
    b.store(Size::B8, header, TIME as i16, time);
    b.store(Size::B4, header, ORIGIN as i16, what.epid);
    b.store(Size::B2, header, ORIGIN as i16 + 4, firing.cpu);
    let flags: Operand = match plan.threads {
        true => {
            let id = b.call(Helper::GET_CURRENT_PID_TGID, &[]);
            let id = b.shl(id, i64::from(flags::THREAD));
            b.or(id, i64::from(what.flags)).into()
        }
        false => what.flags.into(),
    };
    b.store(Size::B2, header, FLAGS as i16, flags);
    time
}

/// Commits a record.
pub fn commit(b: &mut Builder, record: &RecordRef) {
    b.atomic(AtomicOp::Xchg, Size::B8, record.header, COMMIT as i16, record.stamp);
    if let Some(held) = &record.held {
        overwrite::release(b, held, record.stamp);
    }
}

/// Commits a record as discarded, because its clause faulted.
pub fn discard(b: &mut Builder, record: &RecordRef) {
    b.store(Size::B2, record.header, FLAGS as i16, flags::DISCARD);
    commit(b, record);
}

/// Writes a fault record. `head` is [`ring::Fault::head`] (a constant), `value` the address or
/// offending value. `slot` is the number of the slot with the firing's clock, if the firing
/// publishes that: then the fault has the time of the firing's other records. Else the clock was
/// not read before, or no other record has its time.
pub fn fault_record(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    epid: Operand,
    head: impl Into<Operand>,
    value: V,
    slot: Option<V>,
) {
    let epid = b.reg(epid);
    let head = b.reg(head);
    let args: Vec<Arg> = [epid, head, value].into_iter().chain(slot).map(Arg::Word).collect();
    b.call_global("dt_fault", &args, |b| {
        let (epid, head, value) = (b.param(0), b.param(1), b.param(2));
        let clock = slot.map_or(Clock::Once, |_| Clock::Slot(b.param(3)));
        let firing = super::firing(b, plan);
        let full = b.label();
        let epid = Operand::V(epid);
        let what = Reserve { size: FAULT_SIZE, epid, clock, time: None, flags: flags::FAULT, exits: false };
        let record = reserve(b, plan, &firing, &what, full);
        b.store(Size::B8, record.header, HEADER_SIZE as i16, head);
        b.store(Size::B8, record.header, HEADER_SIZE as i16 + 8, value);
        commit(b, &record);
        b.bind(full);
        b.exit(0);
    });
    let _ = firing;
}
