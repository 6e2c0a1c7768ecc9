//! Records: one ring per CPU index, written by programs and drained by the consumer.
//!
//! A ring has `size` bytes (a power of two). Positions are byte counts that only increase; a
//! position is at offset `position & (size - 1)` of the ring. To record, a program *reserves* space
//! by compare-exchange on the CPU's reserve position, writes, and *commits* by an exchange of the
//! first word of the header. Reserving never waits and never overwrites. A program that is
//! interrupted between the two steps leaves an uncommitted record, and the consumer stops before
//! it. The key decision: the consumer trusts only the commit word, and that word is a stamp
//! computed from the position of the record. So no word of a previous lap can be mistaken for it.
//! Besides, the consumer zeroes records before it returns their space. So no *data* of a previous
//! lap can be seen either, and padding is always zero.
//!
//! ```text
//!  header, 24 bytes                                   commit word
//!   +0  commit  u64  0 until committed                 63            24 23  22        0
//!   +8  time    u64  the firing's clock, monotonic ns [ position / 8   |PAD| length / 8 ]
//!   +16 epid    u32
//!   +20 cpu     u16  the real CPU, not the index       length includes the header
//!   +22 flags   u16
//!   +24 data         a multiple of 8 bytes
//!
//!        consumed            end of the drained part         reserve
//!           v                        v                          v
//!  ─────────┬────────┬───────────────┬─────────┬────────────────┬──────────
//!   (zero)  │ record │ record        │ record  │ record         │ (zero)
//!           │ stamp  │ stamp         │ 0: not  │ stamp          │
//!           │        │               │ yet     │                │
//!  ─────────┴────────┴───────────────┴─────────┴────────────────┴──────────
//! ```
//!
//! A record never straddles the end of the ring. If it does not fit before the end, the writer also
//! reserves the rest and fills it with a pad. A pad is only a commit word, because the rest may be
//! as short as 8 bytes. So a ring is at least twice as long as its longest record; in a shorter
//! ring a record may not fit although the ring is empty.
//!
//! A full ring is a principal drop, counted on that CPU. The rings of speculations have the same
//! layout ([`crate::speculation`]).
//!
//! **Policy fill.** The consumer takes nothing until tracing has ended, so a ring keeps its first
//! records. A writer whose record does not fit *closes* the ring before it counts the drop: it
//! moves the reserve position to the end of the ring by compare-exchange, and writes a pad there.
//! So later records do not fit either, however short they are: the ring has everything that was
//! recorded on its CPU up to a moment, and nothing after it. Then the writer ends tracing like
//! `exit()`. The ring is read after the grace period and before END, so END has an empty ring. A
//! ring is closed before the bytes that are kept for `exit()`: the status of an `exit()` that comes
//! when the ring is full is in a record too.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::{CONSUMED, PerCpu, RESERVE};
use crate::overwrite;

/// What a full ring does (the option `bufpolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It refuses records until the consumer has read others, which it does all the time.
    #[default]
    Switch,
    /// It ends tracing. It is read after that.
    Fill,
    /// Its oldest records are overwritten. It is read when tracing has ended. See
    /// [`crate::overwrite`].
    Ring,
}

/// Bytes of a record's header.
pub const HEADER_SIZE: u32 = 24;
/// Offset of the commit word in a record.
pub const COMMIT: u32 = 0;
/// Offset of the time in a record.
pub const TIME: u32 = 8;
/// Offset of the word that holds epid, CPU and flags.
pub const ORIGIN: u32 = 16;
/// Offset of the flags (u16) in a record.
pub const FLAGS: u32 = 22;
/// The smallest ring.
pub const RING_MIN: u32 = 4096;
/// The longest record, including the header: the limit of the length field of the commit word.
pub const RECORD_MAX: u32 = ((1 << 23) - 1) * 8;

/// The bytes of a ring that are kept for clauses with `exit()`, of which the longest record has so
/// many bytes of data: twice the record, because one that does not fit before the ring's end takes
/// the remaining bytes too.
pub fn kept_for_exit(longest: u32) -> u32 {
    2 * (HEADER_SIZE + longest)
}

/// The least size of a ring: twice the longest record, and what is kept for `exit()`; by policy
/// ring, a segment for the longest record. A record that does not fit before the ring's end also
/// takes the remaining bytes, which are fewer than its length. In a shorter ring, a record might
/// not fit even when the ring is empty.
///
/// All records of END fit too, of which `end` has the bytes of data, 0 for a clause that does not
/// record: END fires once, into rings that were read. By policy ring half of a segment may be lost
/// to a pad, and END must not overwrite what it has recorded.
pub fn least(policy: Policy, longest: u32, exit: Option<u32>, end: impl Iterator<Item = u32>) -> u32 {
    // Faults are recorded even where no clause records.
    let longest = u64::from(HEADER_SIZE + longest.max(FAULT_SIZE));
    let fault = HEADER_SIZE + FAULT_SIZE;
    let each = |size: u32| u64::from(fault) + if size == 0 { 0 } else { u64::from(HEADER_SIZE + size) };
    let all: u64 = end.map(each).sum();
    ring_size(match policy {
        Policy::Ring => overwrite::least_ring(longest).max(4 * all),
        Policy::Switch | Policy::Fill => {
            longest + all.max(longest) + u64::from(exit.map_or(0, kept_for_exit))
        }
    })
}

/// Bits of a record's flags.
pub mod flags {
    /// The clause faulted after its reservation; the record is ignored.
    pub const DISCARD: u16 = 1;
    /// The data is a [`super::Fault`]; the epid is that of the clause that faulted.
    pub const FAULT: u16 = 2;
    /// The data is a word id | generation << 32: the speculation with this id is committed here.
    pub const COMMIT: u16 = 4;
    /// The bits from this one on are the low bits of the thread id, in sessions that need it
    /// ([`thread`]).
    pub const THREAD: u32 = 3;

    /// The low bits of the thread id, from the flags; 0 if there are none.
    pub const fn thread(flags: u16) -> u16 {
        flags >> THREAD
    }
}

/// The bit of a commit word that marks a pad.
pub const PAD: u64 = 1 << 23;

/// Bytes of a fault record's data.
pub const FAULT_SIZE: u32 = 16;

/// The commit word of a record of `length` bytes (header included) at `position`; both multiples of
/// 8.
pub const fn stamp(position: u64, length: u32) -> u64 {
    position << 21 | (length as u64) >> 3
}

/// Decodes a commit word if it belongs to `position`: the length in bytes, and whether it is a pad.
pub const fn read_stamp(word: u64, position: u64) -> Option<(u32, bool)> {
    let length = ((word & (PAD - 1)) << 3) as u32;
    if length != 0 && word >> 24 == (position << 21) >> 24 { Some((length, word & PAD != 0)) } else { None }
}

/// The origin word of a header.
pub const fn origin(epid: u32, cpu: u16, flags: u16) -> u64 {
    epid as u64 | (cpu as u64) << 32 | (flags as u64) << 48
}

/// The largest ring: the kernel refuses variable offsets of 2^29 and more (`BPF_MAX_VAR_OFF`).
pub const RING_MAX: u32 = 1 << 28;

/// The size of a ring for `bytes` asked for: the power of two not below it, from [`RING_MIN`] to
/// [`RING_MAX`].
pub fn ring_size(bytes: u64) -> u32 {
    bytes.clamp(u64::from(RING_MIN), u64::from(RING_MAX)).next_power_of_two() as u32
}

/// Data of a fault record.
///
/// ```text
///  +0 kind u16   +2 action u16   +4 offset u32   +8 value u64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// [`crate::desc::FaultKind`]'s number.
    pub kind: u16,
    /// The action, 0 for the predicate.
    pub action: u16,
    /// DIF offset.
    pub offset: u32,
    /// Address or offending value.
    pub value: u64,
}

impl Fault {
    /// Reads the data of a fault record; `None` if it is too short.
    pub fn read(data: &[u8]) -> Option<Fault> {
        let word = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?));
        let (head, value) = (word(0)?, word(8)?);
        Some(Fault { kind: head as u16, action: (head >> 16) as u16, offset: (head >> 32) as u32, value })
    }

    /// The first word of its data.
    pub const fn head(kind: u16, action: u16, offset: u32) -> u64 {
        kind as u64 | (action as u64) << 16 | (offset as u64) << 32
    }
}

/// Writes one ring, without the contention for which programs in the kernel are made: for
/// executors that fire one probe after the other.
#[derive(Clone, Copy, Debug)]
pub struct RingWriter<'a> {
    /// The ring, of a size that [`ring_size`] gives.
    pub memory: &'a [AtomicU64],
    /// The reserve position.
    pub reserve: &'a AtomicU64,
    /// The consumed position.
    pub consumed: &'a AtomicU64,
    /// The most bytes in use.
    pub limit: u64,
    /// The oldest records are overwritten.
    overwrites: bool,
}

impl<'a> RingWriter<'a> {
    /// A writer of the ring of a CPU index.
    pub fn new(memory: &'a [AtomicU64], percpu: PerCpu<'a>, index: u32) -> RingWriter<'a> {
        let (reserve, consumed) = (percpu.word(index, RESERVE), percpu.word(index, CONSUMED));
        RingWriter { memory, reserve, consumed, limit: memory.len() as u64 * 8, overwrites: false }
    }

    /// A writer of a ring with speculative records, which uses at most `limit` bytes.
    pub fn bounded(
        memory: &'a [AtomicU64],
        reserve: &'a AtomicU64,
        consumed: &'a AtomicU64,
        limit: u64,
    ) -> RingWriter<'a> {
        RingWriter { memory, reserve, consumed, limit, overwrites: false }
    }

    /// The same by another policy.
    #[must_use]
    pub fn by(self, policy: Policy) -> RingWriter<'a> {
        RingWriter { overwrites: policy == Policy::Ring, ..self }
    }

    fn bytes(&self) -> u64 {
        self.memory.len() as u64 * 8
    }

    /// The pad before a record of this length (header included), and the position of the record;
    /// `None` if the ring is too full.
    fn place(&self, length: u64) -> Option<(u64, u64)> {
        let reserved = self.reserve.load(Ordering::Relaxed);
        if self.overwrites {
            let (position, segment) =
                (overwrite::position(reserved), self.bytes() / u64::from(overwrite::SEGMENTS));
            let left = segment - (position & (segment - 1));
            let pad = if length > left { left } else { 0 };
            return (length <= segment).then_some((pad, position + pad));
        }
        let consumed = self.consumed.load(Ordering::Acquire);
        let left = self.bytes() - (reserved & (self.bytes() - 1));
        let pad = if length > left { left } else { 0 };
        (reserved + pad + length - consumed <= self.limit).then_some((pad, reserved + pad))
    }

    /// The same with another limit.
    pub fn limited(self, limit: u64) -> RingWriter<'a> {
        RingWriter { limit, ..self }
    }

    /// True if a record with so many bytes of data fits.
    pub fn has_space(&self, size: u32) -> bool {
        self.place(u64::from(HEADER_SIZE) + u64::from(size)).is_some()
    }

    /// Closes the ring, which was never read, at its limit: nothing fits any more.
    pub fn close(&self) {
        let (reserved, end) = (self.reserve.load(Ordering::Relaxed), self.limit);
        if reserved < end {
            self.put(reserved, stamp(reserved, (end - reserved) as u32) | PAD);
            self.reserve.store(end, Ordering::Release);
        }
    }

    fn put(&self, at: u64, value: u64) {
        if let Some(word) = self.memory.get(((at & (self.bytes() - 1)) / 8) as usize) {
            word.store(value, Ordering::Release);
        }
    }

    /// Writes a record. Its data is a multiple of 8 bytes. Returns false if it does not fit.
    pub fn write(&self, time: u64, origin: u64, data: &[u8]) -> bool {
        let length = HEADER_SIZE + data.len() as u32;
        let Some((pad, position)) = self.place(length.into()) else { return false };
        let stamp = |at, length| match self.overwrites {
            true => stamp(overwrite::distance(at, 0), length),
            false => stamp(at, length),
        };
        let put = |at: u64, value: u64| self.put(at, value);
        let end = position + u64::from(length);
        if self.overwrites {
            // Before it is written, as programs do: who reads meanwhile finds out. Positions have
            // 32 bits.
            self.reserve.store(end >> 3 << overwrite::POSITION, Ordering::SeqCst);
        }
        if pad > 0 {
            put(position - pad, stamp(position - pad, pad as u32) | PAD);
        }
        let words = data.chunks_exact(8).filter_map(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
        (position + u64::from(HEADER_SIZE)..).step_by(8).zip(words).for_each(|(at, w)| put(at, w));
        put(position + u64::from(TIME), time);
        put(position + u64::from(ORIGIN), origin);
        put(position + u64::from(COMMIT), stamp(position, length));
        if !self.overwrites {
            self.reserve.store(end, Ordering::Release);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_valid_only_at_its_position() {
        let word = stamp(0x1234_5678, 48);
        assert_eq!(read_stamp(word, 0x1234_5678), Some((48, false)));
        assert_eq!(read_stamp(word, 0x1234_5678 + 4096), None);
        assert_eq!(read_stamp(0, 0), None);
        assert_eq!(read_stamp(stamp(8, 16) | PAD, 8), Some((16, true)));
        // The longest length does not touch the pad bit.
        assert_eq!(read_stamp(stamp(64, RECORD_MAX), 64), Some((RECORD_MAX, false)));
    }

    #[test]
    fn ring_sizes_are_rounded_up_to_powers_of_two() {
        assert_eq!(ring_size(4 << 20), 4 << 20);
        assert_eq!(ring_size((4 << 20) - 1), 4 << 20);
        assert_eq!(ring_size(0), RING_MIN);
        assert_eq!(ring_size(u64::MAX), RING_MAX);
    }

    #[test]
    fn the_reader_returns_what_the_writer_wrote_until_the_ring_is_full() {
        use crate::control::PERCPU_STRIDE;
        let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (memory, control) = (words(RING_MIN), words(PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 1).unwrap();
        let writer = RingWriter::new(&memory, percpu, 0);
        let mut reader = crate::read::RingReader::new(0);
        let mut time = 0;
        // Lengths that do not divide the ring, so that records are padded at its end.
        for round in 0..50u64 {
            let data = |time: u64| vec![time as u8; 8 * (time as usize % 9)];
            let from = time;
            while writer.write(time, origin(7, 3, 0), &data(time)) {
                time += 1;
            }
            assert!(!writer.has_space(8 * (time as u32 % 9)) && time > from, "round {round}");
            let batch = reader.drain(&memory, RING_MIN, percpu, u64::MAX, None);
            let got: Vec<(u64, Vec<u8>)> = batch.iter().map(|(r, d)| (r.time, d.to_vec())).collect();
            assert_eq!(got, (from..time).map(|t| (t, data(t))).collect::<Vec<_>>());
            assert!(batch.iter().all(|(r, _)| (r.epid, r.cpu) == (7, 3)));
        }
        assert!(memory.iter().all(|w| w.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_closed_ring_refuses_short_records_and_keeps_what_it_has() {
        use crate::control::PERCPU_STRIDE;
        let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        // With space behind the records, and without.
        for (each, count) in [(480, 8), (104, 32)] {
            let (memory, control) = (words(RING_MIN), words(PERCPU_STRIDE));
            let percpu = PerCpu::new(&control, 1).unwrap();
            let writer = RingWriter::new(&memory, percpu, 0);
            let recorded = (0..).take_while(|t| writer.write(*t, origin(1, 0, 0), &vec![1; each])).count();
            assert_eq!(recorded, count);
            assert_eq!(writer.has_space(0), each == 480);
            writer.close();
            writer.close();
            assert!(!writer.has_space(0) && !writer.write(99, origin(1, 0, 0), &[]));
            let mut reader = crate::read::RingReader::new(0);
            assert_eq!(reader.drain(&memory, RING_MIN, percpu, u64::MAX, None).len(), count);
            // END.
            assert!(writer.write(100, origin(1, 0, 0), &vec![1; each]));
            assert_eq!(reader.drain(&memory, RING_MIN, percpu, u64::MAX, None).len(), 1);
        }
    }

    #[test]
    fn the_newest_records_are_read_once_in_their_order() {
        use crate::control::PERCPU_STRIDE;
        use crate::read::{RingReader, Rings};
        let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let data = |time: u64| vec![time as u8; 8 * (time as usize % 9)];
        for count in [0, 1, 10, 40, 100, 1000, 12345] {
            let (memory, control) = (words(RING_MIN), words(PERCPU_STRIDE));
            let percpu = PerCpu::new(&control, 1).unwrap();
            let writer = RingWriter::new(&memory, percpu, 0).by(Policy::Ring);
            let write = |time| assert!(writer.write(time, origin(7, 3, 0), &data(time)));
            (0..count).for_each(write);
            let mut reader = RingReader::new(0);
            let mut times = || {
                let rings = Rings { memory: &memory, size: RING_MIN, percpu };
                let batch = reader.take_newest(&[rings], 0);
                assert!(batch.iter().all(|(r, d)| d == data(r.time)));
                batch.iter().map(|(r, _)| r.time).collect::<Vec<_>>()
            };
            let got = times();
            // A record has 24 to 88 bytes, a segment 512.
            assert_eq!(got, (count - got.len() as u64..count).collect::<Vec<_>>());
            assert!(got.len() as u64 >= count.min(7 * 512 / 88), "{count}: {}", got.len());
            assert!(times().is_empty());
            (count..count + 3).for_each(write);
            assert_eq!(times(), (count..count + 3).collect::<Vec<_>>());
            (0..1000).for_each(write);
            assert!(times().ends_with(&[998, 999]));
        }
    }

    #[test]
    fn positions_continue_behind_their_greatest_value() {
        use crate::control::PERCPU_STRIDE;
        use crate::read::{RingReader, Rings};
        let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (memory, control) = (words(RING_MIN), words(PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 1).unwrap();
        let before = (1u64 << 32) - 128;
        percpu.word(0, RESERVE).store(before << overwrite::POSITION, Ordering::Relaxed);
        let writer = RingWriter::new(&memory, percpu, 0).by(Policy::Ring);
        (0..60).for_each(|time| assert!(writer.write(time, origin(7, 3, 0), &[0; 8])));
        let rings = Rings { memory: &memory, size: RING_MIN, percpu };
        let batch = RingReader::new(0).take_newest(&[rings], 0);
        assert!(batch.iter().map(|(r, _)| r.time).eq(0..60));
    }

    #[test]
    fn what_is_overwritten_in_every_ring_is_complete() {
        use crate::control::PERCPU_STRIDE;
        use crate::order::SLACK;
        use crate::read::{RingReader, Rings};
        let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (memory, control) = (words(3 * RING_MIN), words(3 * PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 3).unwrap();
        let write = |index: u32, count: u32| {
            let memory = &memory[index as usize * 512..(index as usize + 1) * 512];
            let writer = RingWriter::new(memory, percpu, index).by(Policy::Ring);
            (0..count).for_each(|_| assert!(writer.write(1, origin(7, 3, 0), &[0; 8])));
        };
        let mut reader = RingReader::new(0);
        let mut pass = |now| {
            reader.pass(&[Rings { memory: &memory, size: RING_MIN, percpu }], SLACK + now);
            reader.complete_until()
        };
        // The third ring is never written. Before the first look, nothing was.
        assert_eq!(pass(10), 0);
        (0..2).for_each(|index| write(index, 10));
        assert_eq!(pass(20), 10);
        write(0, 128);
        assert_eq!(pass(30), 10);
        write(1, 127);
        assert_eq!(pass(40), 10);
        write(1, 1);
        assert_eq!(pass(50), 20);
        (0..100).for_each(|time| assert_eq!(pass(60 + time), 20));
        (0..2).for_each(|index| write(index, 1000));
        assert!(pass(200) >= 50);
    }

    #[test]
    fn a_ring_whose_position_has_wrapped_to_zero_is_not_empty() {
        use crate::control::PERCPU_STRIDE;
        use crate::order::SLACK;
        use crate::read::{RingReader, Rings};
        let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (memory, control) = (words(RING_MIN), words(PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 1).unwrap();
        // 32 records of 4 words before the end of the positions.
        percpu.word(0, RESERVE).store(((1u64 << 32) - 128) << overwrite::POSITION, Ordering::Relaxed);
        let write = |count: u32| {
            let writer = RingWriter::new(&memory, percpu, 0).by(Policy::Ring);
            (0..count).for_each(|_| assert!(writer.write(1, origin(7, 3, 0), &[0; 8])));
        };
        let mut reader = RingReader::new(0);
        let mut pass = |now| {
            reader.pass(&[Rings { memory: &memory, size: RING_MIN, percpu }], SLACK + now);
            reader.complete_until()
        };
        assert_eq!(pass(10), 0);
        write(32);
        assert_eq!(overwrite::position(percpu.word(0, RESERVE).load(Ordering::Relaxed)), 0);
        assert_eq!(pass(20), 0);
        // 129 records have overwritten what was there at the first look, not at the second one.
        write(97);
        assert_eq!(pass(30), 10);
        write(31);
        assert_eq!(pass(40), 20);
    }

    #[test]
    fn a_record_longer_than_a_segment_is_refused() {
        use crate::control::PERCPU_STRIDE;
        let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (memory, control) = (words(RING_MIN), words(PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 1).unwrap();
        let writer = RingWriter::new(&memory, percpu, 0).by(Policy::Ring);
        assert!(writer.has_space(512 - 24) && !writer.has_space(512 - 16));
        assert!(!writer.write(1, origin(7, 3, 0), &[0; 512 - 16]));
        assert!(writer.write(1, origin(7, 3, 0), &[0; 512 - 24]));
    }
}
