//! Records: reserve, commit, discard, and fault records. [`plane::ring`] describes the layout and
//! its reasons.

use plane::control::{CONSUMED, DropKind, RESERVE, RUNG};
use plane::ring::{self, COMMIT, FAULT_SIZE, FLAGS, HEADER_SIZE, ORIGIN, TIME, flags};

use super::{Clock, Firing, count_drop, element, ring_doorbell};
use crate::maps::Plan;
use crate::mir::{Alu, Arg, AtomicOp, Builder, Helper, Jmp, Label, Operand, Size, V};

/// Maximum number of lost compare-exchanges. After that, the reservation counts as dropped. Each
/// loss means that another context reserved a record.
const TRIES: u32 = 8;

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
    let stamp = b.call_global("dt_reserve", &[epid, length, slot].map(Arg::Word), |b| {
        let (epid, length, slot) = (b.param(0), b.param(1), b.param(2));
        let full = b.label();
        let firing = super::firing(b, plan);
        let what = Reserve { size: 0, epid: epid.into(), clock: Clock::Slot(slot), time: None, flags: 0 };
        let record = reserve_length(b, plan, &firing, &what, length.into(), full);
        b.exit(record.stamp);
        b.bind(full);
        b.exit(0);
    });
    b.br(Jmp::Eq, stamp, 0, full);
    let header = reopen(b, plan, firing, what.size, stamp, full);
    RecordRef { header, stamp, time: None }
}

/// The header of a record of `size` bytes of data, from its commit word. Jumps to `bad` if there is
/// none, which does not happen.
pub fn reopen(b: &mut Builder, plan: &Plan, firing: &Firing, size: u32, stamp: V, bad: Label) -> V {
    let last = i64::from(plan.ring_size) - i64::from(HEADER_SIZE + size);
    let base = match firing.ring {
        Some(base) => base,
        None => element(b, plan.rings(), firing.index, firing.words, bad),
    };
    let start = b.shr(stamp, 21);
    let at = b.and(start, i64::from(plan.ring_size) - 8);
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
    let size = plan.ring_size;
    let place = i64::from(size) - 8;
    let (last, words, known) = match length {
        Operand::Imm(i) => (Operand::Imm(i64::from(size) - i), Operand::Imm(i / 8), i),
        Operand::V(v) => {
            let whole = b.imm(i64::from(size));
            (b.sub(whole, v).into(), b.shr(v, 3).into(), i64::from(HEADER_SIZE))
        }
    };
    let drop = b.label();
    b.out_of_line(|b| {
        b.bind(drop);
        count_drop(b, firing, DropKind::Principal);
        b.jmp(full);
    });
    let base = element(b, plan.rings(), firing.index, firing.words, drop);
    let (again, tight, fits, lost, pad, ready, half, go) =
        (b.label(), b.label(), b.label(), b.label(), b.label(), b.label(), b.label(), b.label());
    let tries = b.copy(TRIES);
    // The record's start: the position, or the ring's start behind a pad.
    let start = b.var();
    b.bind(again);
    let position = b.load(Size::B8, firing.percpu, RESERVE as i16);
    let offset = b.and(position, place);
    b.set(start, position);
    b.br(Jmp::Gt, offset, last, tight);
    b.bind(fits);
    let end = b.add(start, length);
    let consumed = b.load(Size::B8, firing.percpu, CONSUMED as i16);
    let used = b.sub(end, consumed);
    // A flood of faults leaves space for the records of clauses, above all for the exit() that ends
    // it.
    let most = if what.flags & flags::FAULT == 0 { size } else { size - size / 8 };
    // Signed: if this context was delayed since it read the position, the consumer may have passed
    // it. The exchange then fails.
    b.br(Jmp::Sgt, used, most, drop);
    let old = b.cmpxchg(firing.percpu, RESERVE as i16, position, end);
    b.br(Jmp::Ne, old, position, lost);
    b.br(Jmp::Ne, start, position, pad);
    b.bind(ready);
    let at = b.and(start, place);
    b.br(Jmp::Gt, at, i64::from(size) - known, full); // cannot be
    let header = b.add(base, at);
    let high = b.shl(start, 21);
    let stamp = b.or(high, words);
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
    b.br(Jmp::Sgt, used, size / 2, half);
    b.bind(go);
    b.out_of_line(|b| {
        b.bind(tight);
        let rest = b.imm(i64::from(size));
        b.update(Alu::Sub, rest, offset);
        b.update(Alu::Add, start, rest);
        b.jmp(fits);
    });
    b.out_of_line(|b| {
        b.bind(lost);
        b.update(Alu::Sub, tries, 1);
        b.br(Jmp::Ne, tries, 0, again);
        b.jmp(drop);
    });
    b.out_of_line(|b| {
        b.bind(pad);
        let address = b.add(base, offset);
        let rest = b.sub(start, position);
        let rest = b.shr(rest, 3);
        let high = b.shl(position, 21);
        let word = b.or(high, rest);
        let word = b.or(word, ring::PAD as i64);
        b.xchg(address, 0, word);
        b.jmp(ready);
    });
    b.out_of_line(|b| {
        b.bind(half);
        let rung = b.load(Size::B8, firing.percpu, RUNG as i16);
        b.br(Jmp::Ne, rung, 0, go);
        let rung = b.cmpxchg(firing.percpu, RUNG as i16, 0, 1);
        b.br(Jmp::Ne, rung, 0, go);
        ring_doorbell(b, firing);
        b.jmp(go);
    });
    RecordRef { header, stamp, time: Some(time) }
}

/// Commits a record.
pub fn commit(b: &mut Builder, record: &RecordRef) {
    b.atomic(AtomicOp::Xchg, Size::B8, record.header, COMMIT as i16, record.stamp);
}

/// Commits a record as discarded, because its clause faulted.
pub fn discard(b: &mut Builder, record: &RecordRef) {
    b.store(Size::B2, record.header, FLAGS as i16, flags::DISCARD);
    commit(b, record);
}

/// Writes a fault record. `head` is [`ring::Fault::head`] (a constant), `value` the address or
/// offending value.
pub fn fault_record(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    epid: Operand,
    head: impl Into<Operand>,
    value: V,
) {
    let epid = b.reg(epid);
    let head = b.reg(head);
    let args = [epid, head, value].map(Arg::Word);
    b.call_global("dt_fault", &args, |b| {
        let (epid, head, value) = (b.param(0), b.param(1), b.param(2));
        let firing = super::firing(b, plan);
        let full = b.label();
        let (clock, epid) = (Clock::Once, Operand::V(epid));
        let what = Reserve { size: FAULT_SIZE, epid, clock, time: None, flags: flags::FAULT };
        let record = reserve(b, plan, &firing, &what, full);
        b.store(Size::B8, record.header, HEADER_SIZE as i16, head);
        b.store(Size::B8, record.header, HEADER_SIZE as i16 + 8, value);
        commit(b, &record);
        b.bind(full);
        b.exit(0);
    });
    let _ = firing;
}
