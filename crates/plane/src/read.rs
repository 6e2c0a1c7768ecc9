//! The consumer side of rings and tables: draining and emptying, over plain memory.
//!
//! [`RingReader::drain`] removes committed records from every ring and returns them in the order of
//! time. A record is held back until no earlier record can come ([`crate::order`]), but not longer
//! than a given limit. The key decision: one stable sort of the records of all rings instead of a
//! heap of cursors. The records of each ring are almost sorted runs, and the sort merges runs in
//! linear time.
//!
//! [`take_table`] empties the idle side of an aggregation. The caller has advanced the epoch and
//! waited for a grace period, so nobody else uses that memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::control::{CLOCKS, CONSUMED, DropDelta, DropKind, PerCpu, RESERVE, RUNG, SLOTS_TAKEN};
use crate::desc::AggFunc;
use crate::order::{RingBound, SLACK, SlotBound};
use crate::overwrite;
use crate::ring::{COMMIT, HEADER_SIZE, ORIGIN, TIME, flags, read_stamp};
use crate::scratch::{PUBLISHES, SLOTS, slot_of};
use crate::table::{BUSY, CLAIMED, EMPTY, KEY, STATE, TableShape, from_stored, shows_itself};

/// A record taken out of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds, monotonic.
    pub time: u64,
    /// The enabled probe.
    pub epid: u32,
    /// The CPU it was made on.
    pub cpu: u16,
    /// [`crate::ring::flags`].
    pub flags: u16,
    start: usize,
    len: usize,
}

/// Records in time order, with their bytes.
#[derive(Debug, Default)]
pub struct Batch {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

impl Batch {
    /// The records in time order, each with its data.
    pub fn iter(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        self.records.iter().map(|r| (r, self.data(r)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records from `from` on.
    pub fn after(&self, from: usize) -> &[Record] {
        self.records.get(from..).unwrap_or_default()
    }

    /// The data of one of its records.
    pub fn data(&self, record: &Record) -> &[u8] {
        self.bytes.get(record.start..record.start + record.len).unwrap_or_default()
    }

    /// The memory that it takes, in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len() + size_of_val(self.records.as_slice())
    }

    /// Keeps some of the records.
    pub(crate) fn retain(&mut self, keeps: impl FnMut(&Record) -> bool) {
        self.records.retain(keeps);
    }

    /// Sorts the records by time.
    pub(crate) fn sort(&mut self) {
        self.records.sort_by_key(|r| r.time);
    }

    /// Adds the record in these words, its header first.
    #[inline]
    pub(crate) fn push_words(&mut self, record: &[AtomicU64]) {
        let Some((header, data)) = record.split_first_chunk::<{ HEADER_SIZE as usize / 8 }>() else { return };
        let word = |offset: u32| header.get(offset as usize / 8).map_or(0, |w| w.load(Ordering::Relaxed));
        let origin = word(ORIGIN);
        let start = self.bytes.len();
        for w in data {
            self.bytes.extend_from_slice(&w.load(Ordering::Relaxed).to_le_bytes());
        }
        self.records.push(Record {
            time: word(TIME),
            epid: origin as u32,
            cpu: (origin >> 32) as u16,
            flags: (origin >> 48) as u16,
            start,
            len: 8 * data.len(),
        });
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: &Record, data: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(data);
        self.records.push(Record { start, ..record.clone() });
    }
}

/// A set of rings that were created together: one for each CPU index.
#[derive(Clone, Copy, Debug)]
pub struct Rings<'a> {
    /// Their memory, `size` bytes each.
    pub memory: &'a [AtomicU64],
    /// Bytes of a ring.
    pub size: u32,
    /// Their control elements.
    pub percpu: PerCpu<'a>,
}

/// Number of times that a word is read again while a running firing is about to write it. The reads
/// take microseconds; a firing usually takes less.
const SPINS: u32 = 200;

/// Number of looks that [`RingReader::pass`] keeps.
const PASSES: usize = 16;

/// Lower bounds for the times of future records of a CPU index.
#[derive(Debug)]
struct Bounds {
    ring: RingBound,
    slots: [SlotBound; SLOTS as usize],
    /// The reserve position at the last look.
    reserved: u64,
}

/// Drains the rings of a session.
#[derive(Debug, Default)]
pub struct RingReader {
    /// Removed from the rings, and later than the watermark.
    held: Batch,
    /// The bounds of each ring.
    bounds: Vec<Bounds>,
    /// The lower bound over all slots at the last look.
    slots: u64,
    /// The clock of the last look.
    looked: u64,
    /// The time of the last record returned.
    given: u64,
    /// Number of records that were returned after a later one, by CPU.
    late: BTreeMap<u16, u64>,
    /// The last drain held records back because of a firing that had not ended.
    waits: bool,
    /// See [`RingReader::complete_until`], without the records that are held back.
    complete: u64,
    /// By ring that is overwritten, what [`take_newest`] has returned.
    taken: Vec<Option<u64>>,
    /// Looks at rings that are overwritten, oldest first: the bound of the slots, and the
    /// positions. `None`: nothing was ever written. (Position 0 occurs again after 32 GiB.)
    passed: VecDeque<(u64, Vec<Option<u64>>)>,
    /// By ring that is overwritten, whether a look has found it written.
    written: Vec<bool>,
}

impl RingReader {
    /// A reader of rings that were empty at `now` (monotonic nanoseconds).
    pub fn new(now: u64) -> RingReader {
        RingReader { looked: now, ..RingReader::default() }
    }

    /// Removes committed records. `rings` is the memory of all rings, `size` bytes each. `now` is a
    /// reading of the monotonic clock from before this call. A record is held back at most until it
    /// is `hold` nanoseconds old. Without `hold` all records are returned; no program may be
    /// running.
    pub fn drain(
        &mut self,
        rings: &[AtomicU64],
        size: u32,
        percpu: PerCpu<'_>,
        now: u64,
        hold: Option<u64>,
    ) -> Batch {
        self.drain_all(&[Rings { memory: rings, size, percpu }], now, hold)
    }

    /// Like [`RingReader::drain`], for several sets of rings: in a session to which programs were
    /// added. New sets come last.
    pub fn drain_all(&mut self, sets: &[Rings<'_>], now: u64, hold: Option<u64>) -> Batch {
        self.look(sets, now);
        let mut least = self.slots;
        let mut fresh = std::mem::take(&mut self.held);
        for ((set, index), bounds) in every(sets).zip(&mut self.bounds) {
            let words = set.size as usize / 8;
            let Some(ring) = set.memory.get(index as usize * words..(index as usize + 1) * words) else {
                continue;
            };
            let consumed = set.percpu.word(index, CONSUMED);
            let position = take_ring(ring, consumed, bounds.reserved, &mut fresh);
            least = least.min(bounds.ring.bound(position));
        }
        fresh.records.sort_by_key(|r| r.time);
        let latest = now.saturating_sub(SLACK);
        self.complete = least.saturating_sub(SLACK);
        let watermark = match hold {
            Some(hold) => least.saturating_sub(SLACK).max(now.saturating_sub(hold)),
            None => u64::MAX,
        };
        let ready = fresh.records.partition_point(|r| r.time <= watermark);
        self.waits = fresh.records.get(ready).is_some_and(|r| r.time <= latest);
        if ready < fresh.records.len() {
            let mut held = Batch::default();
            for r in fresh.records.get(ready..).unwrap_or_default() {
                held.push(r, fresh.bytes.get(r.start..r.start + r.len).unwrap_or_default());
            }
            self.held = held;
            fresh.records.truncate(ready);
        }
        for r in fresh.records.iter().take_while(|r| r.time < self.given) {
            if r.flags & flags::DISCARD == 0 {
                *self.late.entry(r.cpu).or_default() += 1;
            }
        }
        self.given = fresh.records.last().map_or(self.given, |r| r.time.max(self.given));
        fresh
    }

    /// Looks at rings that are overwritten and not read yet, so that [`RingReader::complete_until`]
    /// advances: what was recorded before a look is gone when every ring was written once more
    /// since. `now` is a reading of the clock from before this call.
    pub fn pass(&mut self, sets: &[Rings<'_>], now: u64) {
        // The slots first: see `order`. The positions of a look are those of rings by other
        // policies.
        self.look(sets, now);
        let position = |(set, index): (&Rings<'_>, u32)| {
            overwrite::position(set.percpu.word(index, RESERVE).load(Ordering::SeqCst))
        };
        let positions: Vec<u64> = every(sets).map(position).collect();
        self.written.resize(self.written.len().max(positions.len()), false);
        self.written.iter_mut().zip(&positions).for_each(|(written, at)| *written |= *at != 0);
        let sizes = || every(sets).map(|(set, _)| u64::from(set.size));
        // A ring without a record at that look has lost none. Later rings had none either.
        let is_gone = |(size, (then, now)): (u64, (&Option<u64>, &u64))| {
            then.is_none_or(|then| overwrite::distance(*now, then) >= size)
        };
        let all_gone = |then: &[Option<u64>]| sizes().zip(then.iter().zip(&positions)).all(is_gone);
        while let Some((least, _)) = self.passed.front().filter(|(_, then)| all_gone(then)) {
            self.complete = self.complete.max(least.saturating_sub(SLACK));
            self.passed.pop_front();
        }
        // Without a look, the one before it is a bound too.
        if self.passed.len() < PASSES {
            let looked = positions.iter().zip(&self.written).map(|(at, written)| written.then_some(*at));
            self.passed.push_back((self.slots, looked.collect()));
        }
    }

    /// Takes the records of rings that are overwritten ([`crate::overwrite`]), in the order of
    /// time. No program may be running. `now` is a reading of the monotonic clock.
    pub fn take_newest(&mut self, sets: &[Rings<'_>], now: u64) -> Batch {
        let mut batch = Batch::default();
        for (i, (set, index)) in every(sets).enumerate() {
            let words = set.size as usize / 8;
            let Some(ring) = set.memory.get(index as usize * words..(index as usize + 1) * words) else {
                continue;
            };
            let word = set.percpu.word(index, RESERVE).load(Ordering::SeqCst);
            self.taken.resize(self.taken.len().max(i + 1), None);
            if let Some(taken) = self.taken.get_mut(i) {
                *taken = Some(take_newest(ring, overwrite::SEGMENTS, word, *taken, &mut batch));
            }
        }
        batch.sort();
        self.complete = now;
        batch
    }

    /// Every record with a time below this one was given by the last drain, or is overwritten.
    pub fn complete_until(&self) -> u64 {
        let held = self.held.records.iter().map(|r| r.time).min().unwrap_or(u64::MAX);
        self.complete.min(held)
    }

    /// Notes which firings are running and the reserve positions of the rings. `now` is a reading
    /// of the clock from before this call. Call it before probes start to fire: then records from
    /// before are not held back by later firings.
    pub fn look(&mut self, sets: &[Rings<'_>], now: u64) {
        fence(Ordering::SeqCst);
        let mut least = now;
        for (i, (set, index)) in every(sets).enumerate() {
            if self.bounds.len() <= i {
                // New rings were empty at the last look.
                let consumed = set.percpu.word(index, CONSUMED).load(Ordering::Relaxed);
                self.bounds.push(Bounds {
                    ring: RingBound::new(self.looked, consumed),
                    slots: std::array::from_fn(|_| SlotBound::new(self.looked)),
                    reserved: consumed,
                });
            }
            let Some(bounds) = self.bounds.get_mut(i) else { continue };
            // The slots are read before the ring: see `order`.
            let slots = look_at_slots(set.percpu, index, now, &mut bounds.slots);
            least = least.min(slots);
            // The doorbell is reset before the position is read. So a writer that found it rung has
            // reserved before, and its record is below `reserved`. In the other order a ring could
            // fill without a doorbell (shown by `model`).
            set.percpu.word(index, RUNG).store(0, Ordering::SeqCst);
            bounds.reserved = set.percpu.word(index, RESERVE).load(Ordering::SeqCst);
            bounds.ring.look(slots, bounds.reserved);
        }
        self.slots = least;
        self.looked = now;
    }

    /// No firing that had not ended at the last look has a time before this one.
    pub(crate) fn running_since(&self) -> u64 {
        self.slots
    }

    /// True if the last drain held records back because of a firing that had not ended. Another
    /// drain soon may return them.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Counts of records that were returned after a later one, since the last call.
    pub fn take_late(&mut self) -> Vec<DropDelta> {
        let late = std::mem::take(&mut self.late).into_iter();
        late.map(|(cpu, count)| DropDelta { kind: DropKind::OutOfOrder, cpu: cpu.into(), count }).collect()
    }
}

pub(crate) fn every<'a>(sets: &'a [Rings<'a>]) -> impl Iterator<Item = (&'a Rings<'a>, u32)> {
    sets.iter().flat_map(|s| (0..s.percpu.count()).map(move |index| (s, index)))
}

/// A lower bound for the times of future records of all firings that hold a slot of a CPU index.
fn look_at_slots(percpu: PerCpu<'_>, index: u32, now: u64, bounds: &mut [SlotBound]) -> u64 {
    let mut least = now;
    let mut spins = SPINS;
    for bit in (0..SLOTS).map(|slot| 1u64 << slot) {
        let slot = slot_of(bit);
        let Some(bound) = bounds.get_mut(slot as usize) else { continue };
        let look = || {
            let taken = percpu.word(index, SLOTS_TAKEN).load(Ordering::SeqCst) & bit << PUBLISHES != 0;
            (taken, percpu.word(index, CLOCKS + 8 * slot).load(Ordering::SeqCst))
        };
        let mut seen = look();
        while seen == (true, 0) && spins > 0 {
            spins -= 1;
            std::hint::spin_loop();
            seen = look();
        }
        least = least.min(bound.look(now, seen.0, seen.1));
    }
    least
}

/// Removes the committed records of one ring up to `reserved`. Returns the position of the first
/// record that is not committed, or `reserved`.
pub(crate) fn take_ring(ring: &[AtomicU64], consumed: &AtomicU64, reserved: u64, out: &mut Batch) -> u64 {
    let mask = ring.len() as u64 * 8 - 1;
    let at = |position: u64| ((position & mask) / 8) as usize;
    let mut position = consumed.load(Ordering::Relaxed);
    let mut spins = SPINS;
    while position < reserved {
        let place = at(position);
        let Some(stamp) = ring.get(place + COMMIT as usize / 8) else { break };
        let stamp = stamp.load(Ordering::Acquire);
        let Some((length, pad)) = read_stamp(stamp, position) else {
            if spins == 0 {
                break;
            }
            spins -= 1;
            std::hint::spin_loop();
            continue;
        };
        let words = length as usize / 8;
        let Some(record) = ring.get(place..place + words) else { break };
        if !pad {
            out.push_words(record);
        }
        // Free space is zero, so padding never holds data of an earlier record.
        record.iter().for_each(|w| w.store(0, Ordering::Relaxed));
        position += u64::from(length);
    }
    consumed.store(position, Ordering::Release);
    position
}

/// Takes the records of a ring whose writers have all ended, the oldest first. `word` is the word
/// at RESERVE, `taken` what this returned before for this ring: records before it were taken.
/// Returns the position behind the last record.
pub(crate) fn take_newest(
    ring: &[AtomicU64],
    segments: u32,
    word: u64,
    taken: Option<u64>,
    out: &mut Batch,
) -> u64 {
    let size = ring.len() as u64 * 8;
    let (segment, end) = (size / u64::from(segments), overwrite::position(word));
    let first = overwrite::oldest(end, size, segments);
    let mut left = overwrite::distance(end, first);
    if let Some(taken) = taken {
        left = left.min(overwrite::distance(end, taken));
    }
    while left > 0 {
        let at = overwrite::distance(end, left);
        let place = (at & (size - 1)) as usize / 8;
        let rest = segment - (at & (segment - 1));
        let stamp = ring.get(place).map_or(0, |word| word.load(Ordering::Acquire));
        let found = read_stamp(stamp, at).filter(|(length, _)| u64::from(*length) <= rest.min(left));
        let length = match found {
            Some((length, pad)) => {
                let record = ring.get(place..place + length as usize / 8).unwrap_or_default();
                if !pad {
                    out.push_words(record);
                }
                u64::from(length)
            }
            // Never written, because the ring has not been full.
            None => rest.min(left),
        };
        left -= length;
    }
    end
}

/// Receives a slot of a table: CPU index, key, value.
pub type TableSink<'a> = dyn FnMut(u32, &[u8], &[u64]) + 'a;

/// Empties the tables of one side. The memory holds the tables of both sides for `n` CPU indices,
/// starting at an offset, with a stride in bytes. `sink` receives each key with its value in the
/// words of [`AggFunc`], and the CPU index of its table. A key may occur several times.
pub fn take_table(
    (memory, at, stride): (&[AtomicU64], u32, u32),
    (func, shape): (AggFunc, TableShape),
    (side, n): (u32, u32),
    sink: &mut TableSink<'_>,
) {
    let table_words = shape.table_size as usize / 8;
    let mut key = Vec::with_capacity(shape.key_size as usize);
    let mut value = Vec::with_capacity(shape.value_size as usize / 8);
    for cpu in 0..n {
        let first = TableShape::table_index(side, cpu, n) as usize * (stride as usize / 8) + at as usize / 8;
        let Some(table) = memory.get(first..first + table_words) else { continue };
        let Some(claimed) = table.get(CLAIMED as usize / 8) else { continue };
        let claimed = claimed.swap(0, Ordering::Acquire);
        let mut left = if shape.key_size == 0 { 1 } else { claimed };
        for index in 0..shape.slots() {
            if left == 0 {
                break;
            }
            let begin = shape.slot(index) as usize / 8;
            let Some(slot) = table.get(begin..begin + shape.stride as usize / 8) else { break };
            let (Some(state), Some((first, words))) =
                (slot.get(STATE as usize / 8), slot.split_at_checked(shape.value() as usize / 8))
            else {
                break;
            };
            let state = state.load(Ordering::Acquire);
            let full = match shape.key_size {
                0 if shows_itself(func) => words.first().is_some_and(|w| w.load(Ordering::Relaxed) != 0),
                0 => state != EMPTY,
                _ => state != EMPTY && state != BUSY,
            };
            if full {
                key.clear();
                for w in first.get(KEY as usize / 8..).unwrap_or_default() {
                    key.extend_from_slice(&w.load(Ordering::Relaxed).to_le_bytes());
                }
                value.clear();
                value.extend(words.iter().map(|w| from_stored(func, w.load(Ordering::Relaxed))));
                sink(cpu, &key, &value);
            }
            if full || state != EMPTY {
                slot.iter().for_each(|w| w.store(0, Ordering::Relaxed));
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::PERCPU_STRIDE;
    use crate::ring::{PAD, origin, stamp};

    const SIZE: u32 = 4096;
    /// No limit.
    const HOLD: Option<u64> = Some(u64::MAX);

    /// The earliest clock reading at which a record of `time` may be returned.
    fn after(time: u64) -> u64 {
        time + SLACK
    }

    fn words(bytes: u32) -> Vec<AtomicU64> {
        (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
    }

    /// Writes a record of one data word at `position`; uncommitted when `time` is 0.
    fn record(ring: &[AtomicU64], position: u64, time: u64, cpu: u16) {
        let at = (position % u64::from(SIZE) / 8) as usize;
        ring[at + 1].store(time, Ordering::Relaxed);
        ring[at + 2].store(origin(7, cpu, 0), Ordering::Relaxed);
        ring[at + 3].store(time * 10, Ordering::Relaxed);
        if time != 0 {
            ring[at].store(stamp(position, 32), Ordering::Relaxed);
        }
    }

    fn times(batch: &Batch) -> Vec<u64> {
        batch
            .iter()
            .map(|(r, data)| {
                assert_eq!(data, (r.time * 10).to_le_bytes());
                r.time
            })
            .collect()
    }

    #[test]
    fn rings_are_merged_by_time_and_left_empty() {
        let (rings, control) = (words(2 * SIZE), words(2 * PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 2).unwrap();
        record(&rings, 0, 10, 0);
        record(&rings, 32, 30, 0);
        record(&rings[SIZE as usize / 8..], 0, 20, 1);
        percpu.word(0, RESERVE).store(64, Ordering::Relaxed);
        percpu.word(1, RESERVE).store(32, Ordering::Relaxed);
        let mut reader = RingReader::default();
        assert_eq!(times(&reader.drain(&rings, SIZE, percpu, after(25), HOLD)), [10, 20]);
        assert!(rings.iter().all(|w| w.load(Ordering::Relaxed) == 0));
        assert_eq!(percpu.word(0, CONSUMED).load(Ordering::Relaxed), 64);
        assert_eq!(times(&reader.drain(&rings, SIZE, percpu, after(40), HOLD)), [30]);
    }

    #[test]
    fn sets_of_rings_are_merged_by_time() {
        let (old, new) = (words(SIZE), words(2 * SIZE));
        let (old_control, new_control) = (words(PERCPU_STRIDE), words(PERCPU_STRIDE));
        let old_set = || Rings { memory: &old, size: SIZE, percpu: PerCpu::new(&old_control, 1).unwrap() };
        let mut reader = RingReader::default();
        record(&old, 0, 10, 0);
        old_set().percpu.word(0, RESERVE).store(32, Ordering::Relaxed);
        assert_eq!(times(&reader.drain_all(&[old_set()], after(15), HOLD)), [10]);
        // A ring of another size comes; what is in it counts from its first drain on.
        let new_set = Rings { memory: &new, size: 2 * SIZE, percpu: PerCpu::new(&new_control, 1).unwrap() };
        record(&old, 32, 40, 0);
        record(&new, 0, 30, 0);
        record(&new, 32, 50, 0);
        old_set().percpu.word(0, RESERVE).store(64, Ordering::Relaxed);
        new_set.percpu.word(0, RESERVE).store(64, Ordering::Relaxed);
        assert_eq!(times(&reader.drain_all(&[old_set(), new_set], after(45), HOLD)), [30, 40]);
        assert_eq!(times(&reader.drain_all(&[old_set(), new_set], after(60), HOLD)), [50]);
    }

    #[test]
    fn an_uncommitted_record_holds_back_later_records() {
        let (rings, control) = (words(2 * SIZE), words(2 * PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 2).unwrap();
        let mut reader = RingReader::default();
        let drain =
            |reader: &mut RingReader, now| times(&reader.drain(&rings, SIZE, percpu, after(now), HOLD));
        record(&rings, 0, 10, 0);
        percpu.word(0, RESERVE).store(32, Ordering::Relaxed);
        reader.look(&[Rings { memory: &rings, size: SIZE, percpu }], after(10));
        record(&rings, 32, 0, 0);
        record(&rings, 64, 12, 0);
        record(&rings[SIZE as usize / 8..], 0, 11, 1);
        percpu.word(0, RESERVE).store(96, Ordering::Relaxed);
        percpu.word(1, RESERVE).store(32, Ordering::Relaxed);
        assert_eq!(drain(&mut reader, 5000), [10]);
        assert!(reader.waits());
        record(&rings, 32, 11, 0);
        assert_eq!(drain(&mut reader, 6000), [11, 11, 12]);
        assert!(!reader.waits());
    }

    #[test]
    fn a_published_clock_holds_back_later_records() {
        let (rings, control) = (words(SIZE), words(PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 1).unwrap();
        let mut reader = RingReader::default();
        let drain = |reader: &mut RingReader, now| times(&reader.drain(&rings, SIZE, percpu, now, HOLD));
        for (i, time) in [10, 20].into_iter().enumerate() {
            record(&rings, 32 * i as u64, after(time), 0);
        }
        percpu.word(0, RESERVE).store(64, Ordering::Relaxed);
        // The last slot, whose bit is not in the place of its number.
        let bit = 1u64 << (SLOTS - 1);
        percpu.word(0, SLOTS_TAKEN).store(bit | bit << PUBLISHES, Ordering::Relaxed);
        assert_eq!(drain(&mut reader, 5000), [0; 0]);
        percpu.word(0, CLOCKS + 8 * slot_of(bit)).store(after(after(15)), Ordering::Relaxed);
        assert_eq!(drain(&mut reader, 6000), [after(10)]);
        // It commits and releases the slot.
        record(&rings, 64, after(15), 0);
        percpu.word(0, RESERVE).store(96, Ordering::Relaxed);
        percpu.word(0, CLOCKS + 8 * slot_of(bit)).store(0, Ordering::Relaxed);
        // A firing that does not publish holds nothing back.
        percpu.word(0, SLOTS_TAKEN).store(bit, Ordering::Relaxed);
        assert_eq!(drain(&mut reader, 7000), [after(15), after(20)]);
        assert_eq!(reader.take_late(), []);
    }

    #[test]
    fn records_that_come_after_the_limit_are_returned_and_counted() {
        let (rings, control) = (words(SIZE), words(PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 1).unwrap();
        let mut reader = RingReader::default();
        let drain =
            |reader: &mut RingReader, now| times(&reader.drain(&rings, SIZE, percpu, now, Some(5000)));
        percpu.word(0, SLOTS_TAKEN).store(1 | 1 << PUBLISHES, Ordering::Relaxed);
        percpu.word(0, CLOCKS).store(1500, Ordering::Relaxed);
        record(&rings, 0, 2000, 0);
        percpu.word(0, RESERVE).store(32, Ordering::Relaxed);
        assert_eq!(drain(&mut reader, 6999), [0; 0]);
        assert_eq!(drain(&mut reader, 7000), [2000]);
        record(&rings, 32, 1500, 3);
        record(&rings, 64, 2000, 3);
        percpu.word(0, RESERVE).store(96, Ordering::Relaxed);
        percpu.word(0, SLOTS_TAKEN).store(0, Ordering::Relaxed);
        assert_eq!(drain(&mut reader, 8000), [1500, 2000]);
        let late = DropDelta { kind: DropKind::OutOfOrder, cpu: 3, count: 1 };
        assert_eq!(reader.take_late(), [late]);
        assert_eq!(reader.take_late(), []);
    }

    #[test]
    fn pads_are_skipped_and_stamps_of_earlier_laps_are_ignored() {
        let (rings, control) = (words(SIZE), words(PERCPU_STRIDE));
        let percpu = PerCpu::new(&control, 1).unwrap();
        let near = u64::from(SIZE) - 16;
        percpu.word(0, CONSUMED).store(near, Ordering::Relaxed);
        percpu.word(0, RESERVE).store(near + 16 + 64, Ordering::Relaxed);
        rings[near as usize / 8].store(stamp(near, 16) | PAD, Ordering::Relaxed);
        record(&rings, near + 16, 5, 0);
        rings[4].store(stamp(32, 32), Ordering::Relaxed); // a lap ago
        let mut reader = RingReader::default();
        assert_eq!(times(&reader.drain(&rings, SIZE, percpu, 9, None)), [5]);
        assert_eq!(percpu.word(0, CONSUMED).load(Ordering::Relaxed), near + 16 + 32);
    }

    #[test]
    fn take_table_returns_each_key_and_zeroes_the_table() {
        let shape = TableShape::new(AggFunc::Count, 8, 1024);
        let memory = words(shape.total(1) as u32);
        let base = shape.table_size as usize / 8; // side 1
        memory[base].store(2, Ordering::Relaxed);
        for (slot, key) in [(0, 5u64), (3, 6)] {
            let at = base + shape.slot(slot) as usize / 8;
            memory[at].store(crate::table::tag(key), Ordering::Relaxed);
            memory[at + 1].store(key, Ordering::Relaxed);
            memory[at + 2].store(key * 100, Ordering::Relaxed);
        }
        let mut got = Vec::new();
        take_table((&memory, 0, shape.table_size), (AggFunc::Count, shape), (1, 1), &mut |_, k, v| {
            got.push((k[0], v[0]))
        });
        assert_eq!(got, [(5, 500), (6, 600)]);
        assert!(memory.iter().all(|w| w.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn keyless_values_are_returned_only_if_they_have_data() {
        for (func, state, word, expected) in [
            (AggFunc::Count, 0, 3u64, Some(3)),
            (AggFunc::Count, 0, 0, None),
            (AggFunc::Sum, 1, 0, Some(0)),
            (AggFunc::Min, 1, i64::MAX as u64 - 4, Some(4)),
            (AggFunc::Min, 0, 0, None),
        ] {
            let shape = TableShape::new(func, 0, 1024);
            let memory = words(shape.total(1) as u32);
            let at = shape.slot(0) as usize / 8;
            memory[at].store(state, Ordering::Relaxed);
            memory[at + 1].store(word, Ordering::Relaxed);
            let mut got = None;
            take_table((&memory, 0, shape.table_size), (func, shape), (0, 1), &mut |_, _, v| {
                got = Some(v[0])
            });
            assert_eq!(got, expected, "{func:?}");
        }
    }
}
