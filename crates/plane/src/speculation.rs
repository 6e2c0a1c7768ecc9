//! Speculation: records that are kept back until the program decides whether they are wanted.
//!
//! `speculation()` gives an id, `speculate(id)` directs the rest of a clause's record to the buffer
//! of that id, `commit(id)` prints what the buffer has, and `discard(id)` forgets it. Each id has a
//! *state word* that all CPUs share, and a ring of its own for each CPU index. The key decision:
//! *the rings of an id are not read while it is active*. So a record that is discarded costs the
//! consumer nothing, `specsize` bounds the data without a counter, and neither kind of record can
//! take the space of the other.
//!
//! ```text
//!            speculation()            commit()                drained, by the consumer
//!  INACTIVE ──────────────> ACTIVE ──────────────> COMMITTING ─────────────────────> INACTIVE
//!   (g)                      (g)  │                   │ the record does not fit        (g + 1)
//!                                 │ discard()         v
//!                                 └─────────────> DISCARDING ──────────────────────>
//!
//!  control (one element)                             rings (CPU index × ids)
//!    state words, by id        generation << 8 | state     as in crate::ring, each used by one
//!    for each CPU index, by id                             generation from its start
//!      +0 reserve   +8 consumed
//! ```
//!
//! **Commit is a record.** `commit()` changes the state, then writes a record with
//! [`COMMIT`](crate::ring::flags::COMMIT) and a word id | generation << 32 into the session's ring.
//! The consumer prints the records of the speculation where it meets this record, in the order of
//! their times. If the ring is full, the state becomes DISCARDING and a principal drop is counted:
//! the data is lost, the id is not. `discard()` needs no record, because it has no place in the
//! output.
//!
//! **Reserve, then check again.** A firing loads the state word, reserves, and loads the state word
//! once more. If it has changed, the firing commits its record as discarded. So whoever sees that
//! an id is not active any more also sees, in the reserve positions, all records that belong to it.
//! An id is free again when the consumer has met the record of its commit and has then taken
//! everything up to the reserve positions. That needs no grace period; a firing that was delayed
//! over all that finds another generation in the state word. Until then the id is *busy*.
//!
//! `discard()` does not free its id at once. The discarded records would be in front of those of
//! the next speculation, and take its space, until the consumer has moved the position. A program
//! cannot move it: a firing on another CPU may be between its reservation and its second look.
//!
//! A record that was reserved before the commit, but written later by a firing on another CPU, is
//! printed as soon as it is committed. Positions are never set back: a freed ring continues at its
//! next lap, by a compare-exchange. So an exchange by a firing that was delayed fails.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::control::{DropDelta, DropKind};
use crate::read::{Batch, take_ring};
use crate::ring::{RingWriter, flags, ring_size};

/// The id is free.
pub const INACTIVE: u8 = 0;
/// Records are accepted.
pub const ACTIVE: u8 = 1;
/// Committed; the consumer has not taken everything yet.
pub const COMMITTING: u8 = 2;
/// Discarded; the consumer has not taken everything yet.
pub const DISCARDING: u8 = 3;
/// Position of the generation in a state word.
pub const GENERATION: u32 = 8;
/// Offset of the reserve position in the words of a ring.
pub const RESERVE: u32 = 0;
/// Offset of the consumed position in the words of a ring.
pub const CONSUMED: u32 = 8;
/// Bytes of the words of a ring.
pub const POSITIONS: u32 = 16;
/// Bytes of the data of the record of a commit.
pub const COMMIT_SIZE: u32 = 8;
/// The most speculations at a time.
pub const COUNT_MAX: u32 = 1024;

/// The state of a state word.
pub const fn state(word: u64) -> u8 {
    word as u8
}

/// A state word of the same generation.
const fn with_state(word: u64, state: u8) -> u64 {
    word & !0xff | state as u64
}

/// The data of the record of a commit.
pub const fn commit_word(id: u32, word: u64) -> u64 {
    id as u64 | word >> GENERATION << 32
}

/// The sizes and offsets of the speculative buffers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculationShape {
    /// Number of ids, 0 to [`COUNT_MAX`]. The ids begin at 1. Without any, every `speculation()`
    /// finds none.
    pub count: u32,
    /// Number of CPU indexes.
    pub cpus: u32,
    /// Bytes of a ring.
    pub ring_size: u32,
    /// Bytes of a ring that one speculation may use.
    pub limit: u32,
}

impl SpeculationShape {
    /// The shape for `count` speculations of `bytes` bytes on each CPU. The longest record has
    /// `longest` bytes, header included; a record that exceeds `bytes` is a drop.
    pub fn new(count: u64, bytes: u64, cpus: u32, longest: u32) -> SpeculationShape {
        let count = count.min(u64::from(COUNT_MAX)) as u32;
        let ring_size = ring_size(bytes.max(longest.into()));
        let limit = (bytes & !7).min(ring_size.into()) as u32;
        SpeculationShape { count, cpus: cpus.max(1), ring_size, limit }
    }

    /// Offset of the state word of an index (an id less 1).
    pub const fn state(self, index: u32) -> u32 {
        8 * index
    }

    /// Offset of the words of a CPU index.
    pub const fn cpu(self, cpu: u32) -> u32 {
        (8 * self.count).next_multiple_of(64) + cpu * self.cpu_stride()
    }

    /// Bytes of the words of a CPU index.
    pub const fn cpu_stride(self) -> u32 {
        (POSITIONS * self.count).next_multiple_of(64)
    }

    /// Bytes of all rings.
    pub const fn bytes(self) -> u64 {
        self.ring_size as u64 * self.rings() as u64
    }

    /// Bytes of the control words. A map is not empty.
    pub const fn control_size(self) -> u32 {
        let size = self.cpu(self.cpus);
        if size == 0 { 8 } else { size }
    }

    /// Number of rings. That of a CPU index and an index has the number `cpu * count + index`. A
    /// map is not empty.
    pub const fn rings(self) -> u32 {
        let rings = self.cpus * self.count;
        if rings == 0 { 1 } else { rings }
    }
}

/// The speculative buffers of a session in memory.
#[derive(Clone, Copy, Debug)]
pub struct Speculations<'a> {
    shape: SpeculationShape,
    control: &'a [AtomicU64],
    rings: &'a [AtomicU64],
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is in the buffer.
    Stored,
    /// The id is not active.
    Inactive,
    /// The buffer is full: a speculative drop.
    Full,
}

impl<'a> Speculations<'a> {
    /// A view of the memory; `None` if it is too small.
    pub fn new(
        shape: SpeculationShape,
        control: &'a [AtomicU64],
        rings: &'a [AtomicU64],
    ) -> Option<Speculations<'a>> {
        let bytes = u64::from(shape.ring_size) * u64::from(shape.rings());
        let enough =
            control.len() as u64 * 8 >= shape.control_size().into() && rings.len() as u64 * 8 >= bytes;
        enough.then_some(Speculations { shape, control, rings })
    }

    #[expect(clippy::indexing_slicing, reason = "offsets come from the shape, whose size new checks")]
    fn word(&self, offset: u32) -> &'a AtomicU64 {
        &self.control[offset as usize / 8]
    }

    /// The index of an id; `None` for one that does not exist.
    fn index(&self, id: u64) -> Option<u32> {
        u32::try_from(id.checked_sub(1)?).ok().filter(|i| *i < self.shape.count)
    }

    /// The reserve position, the consumed position and the memory of a ring.
    fn ring(&self, cpu: u32, index: u32) -> (&'a AtomicU64, &'a AtomicU64, &'a [AtomicU64]) {
        let at = self.shape.cpu(cpu) + POSITIONS * index;
        let words = self.shape.ring_size as usize / 8;
        let first = (cpu * self.shape.count + index) as usize * words;
        let memory = self.rings.get(first..first + words).unwrap_or_default();
        (self.word(at + RESERVE), self.word(at + CONSUMED), memory)
    }

    /// `speculation()`: an id, or the drop to count.
    pub fn begin(&self) -> Result<u32, DropKind> {
        let mut why = DropKind::SpeculationUnavailable;
        for index in 0..self.shape.count {
            let word = self.word(self.shape.state(index));
            let found = word.load(Ordering::SeqCst);
            match state(found) {
                INACTIVE => {
                    let active = with_state(found, ACTIVE);
                    if word.compare_exchange(found, active, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                        return Ok(index + 1);
                    }
                }
                ACTIVE => {}
                _ => why = DropKind::SpeculationBusy,
            }
        }
        Err(why)
    }

    /// True for 0 and for ids that exist. Others are faults.
    pub fn is_valid(&self, id: u64) -> bool {
        id == 0 || self.index(id).is_some()
    }

    /// True if the speculation is active.
    pub fn is_active(&self, id: u64) -> bool {
        let word = |index| self.word(self.shape.state(index)).load(Ordering::SeqCst);
        self.index(id).is_some_and(|index| state(word(index)) == ACTIVE)
    }

    /// `speculate()`: a record of so many bytes of data may be written.
    pub fn accepts(&self, id: u64, cpu: u32, size: u32) -> Written {
        let Some(index) = self.index(id).filter(|_| self.is_active(id)) else { return Written::Inactive };
        if self.writer(cpu, index).has_space(size) { Written::Stored } else { Written::Full }
    }

    /// Writes a record, without the contention for which programs in the kernel are made: for
    /// executors that fire one probe after the other.
    pub fn write(&self, id: u64, cpu: u32, time: u64, origin: u64, data: &[u8]) -> Written {
        match self.index(id) {
            Some(index) => match self.accepts(id, cpu, data.len() as u32) {
                Written::Stored if !self.writer(cpu, index).write(time, origin, data) => Written::Full,
                other => other,
            },
            None => Written::Inactive,
        }
    }

    fn writer(&self, cpu: u32, index: u32) -> RingWriter<'a> {
        let (reserve, consumed, memory) = self.ring(cpu % self.shape.cpus, index);
        RingWriter::bounded(memory, reserve, consumed, self.shape.limit.into())
    }

    /// `commit()` and `discard()`. Returns the data of the record that a commit writes.
    pub fn end(&self, id: u64, commit: bool) -> Option<u64> {
        let index = self.index(id)?;
        let word = self.word(self.shape.state(index));
        let found = word.load(Ordering::SeqCst);
        let next = with_state(found, if commit { COMMITTING } else { DISCARDING });
        let ended = state(found) == ACTIVE
            && word.compare_exchange(found, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        (ended && commit).then(|| commit_word(index + 1, next))
    }

    /// The record of a commit did not fit: its data is lost.
    pub fn lose(&self, id: u64) {
        if let Some(index) = self.index(id) {
            let word = self.word(self.shape.state(index));
            let found = word.load(Ordering::SeqCst);
            if state(found) == COMMITTING {
                word.store(with_state(found, DISCARDING), Ordering::SeqCst);
            }
        }
    }

    /// True if a speculation was committed or discarded and is not free yet.
    pub fn is_busy(&self) -> bool {
        (0..self.shape.count)
            .any(|i| state(self.word(self.shape.state(i)).load(Ordering::SeqCst)) >= COMMITTING)
    }

    /// Takes what is committed in the rings of an id. Returns true if that is everything that was
    /// reserved.
    fn take(&self, index: u32, out: &mut Batch) -> bool {
        fence(Ordering::SeqCst);
        let incomplete = (0..self.shape.cpus).filter(|cpu| !self.take_of_cpu(index, *cpu, out));
        incomplete.count() == 0
    }

    /// The same for a CPU index.
    fn take_of_cpu(&self, index: u32, cpu: u32, out: &mut Batch) -> bool {
        let (reserve, consumed, memory) = self.ring(cpu, index);
        let reserved = reserve.load(Ordering::SeqCst);
        take_ring(memory, consumed, reserved, out) == reserved
    }

    /// Lets the next speculation of an id begin at the start of its rings. False if a firing has
    /// reserved something meanwhile.
    fn restart(&self, index: u32) -> bool {
        (0..self.shape.cpus).all(|cpu| {
            let (reserve, consumed, _) = self.ring(cpu, index);
            let from = consumed.load(Ordering::Relaxed);
            let to = from.next_multiple_of(self.shape.ring_size.into());
            let moved = reserve.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if moved {
                consumed.store(to, Ordering::SeqCst);
            }
            moved
        })
    }
}

/// Takes the records of speculations: the consumer's side.
#[derive(Debug, Default)]
pub struct SpeculationReader {
    /// The state words of commits whose records were met, by index.
    met: Vec<u64>,
    /// By index: the last generation that was seen, and the time of the last look at which it had
    /// not begun.
    since: Vec<(u64, u64)>,
    /// The time of the last look.
    looked: u64,
}

impl SpeculationReader {
    /// Replaces each commit in a batch by the records of its speculation.
    pub fn splice(&mut self, batch: Batch, all: &Speculations<'_>) -> Batch {
        if batch.iter().all(|(r, _)| r.flags & flags::COMMIT == 0) {
            return batch;
        }
        let mut out = Batch::default();
        for (record, data) in batch.iter() {
            if record.flags & flags::COMMIT == 0 {
                out.push(record, data);
                continue;
            }
            let given = data.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let Some(index) = all.index(given & u64::from(u32::MAX)) else { continue };
            let word = all.word(all.shape.state(index)).load(Ordering::SeqCst);
            if state(word) == COMMITTING && commit_word(index + 1, word) == given {
                self.met.resize(all.shape.count as usize, 0);
                if let Some(met) = self.met.get_mut(index as usize) {
                    *met = word;
                }
                take_sorted(all, index, &mut out);
            }
        }
        out
    }

    /// Looks at the speculations that are not free, and returns a time at which none of them had
    /// begun: they have no record from before that time. `now` is a reading of the clock from
    /// before this call.
    pub fn oldest(&mut self, now: u64, all: &Speculations<'_>) -> u64 {
        self.since.resize(all.shape.count as usize, (u64::MAX, 0));
        let mut oldest = now;
        for (index, (generation, since)) in (0..).zip(&mut self.since) {
            let word = all.word(all.shape.state(index)).load(Ordering::SeqCst);
            if state(word) == INACTIVE {
                (*generation, *since) = (word >> GENERATION, now);
            } else if word >> GENERATION != *generation {
                (*generation, *since) = (word >> GENERATION, self.looked);
            }
            if state(word) != INACTIVE {
                oldest = oldest.min(*since);
            }
        }
        self.looked = now;
        oldest
    }

    /// Counts the records of speculations whose commit was overwritten, by CPU index: there is no
    /// place for them in the output. By policy ring, `batch` is all that is left, so a commit that
    /// is not in it was overwritten. No program may be running. Call it after
    /// [`SpeculationReader::splice`].
    pub fn lose_overwritten(&mut self, all: &Speculations<'_>) -> Vec<DropDelta> {
        self.met.resize(all.shape.count as usize, 0);
        let mut lost = Vec::new();
        for (index, met) in (0..).zip(&mut self.met) {
            let word = all.word(all.shape.state(index)).load(Ordering::SeqCst);
            if state(word) != COMMITTING || *met == word {
                continue;
            }
            // It is free at the next cleaning.
            *met = word;
            for cpu in 0..all.shape.cpus {
                let mut records = Batch::default();
                all.take_of_cpu(index, cpu, &mut records);
                let count = records.iter().filter(|(r, _)| r.flags & flags::DISCARD == 0).count() as u64;
                if count > 0 {
                    lost.push(DropDelta { kind: DropKind::Speculation, cpu, count });
                }
            }
        }
        lost
    }

    /// Frees the ids of speculations that ended and of which everything is taken. Adds records
    /// that were still being written when their speculation was committed.
    pub fn clean(&mut self, out: &mut Batch, all: &Speculations<'_>) {
        for index in 0..all.shape.count {
            let word = all.word(all.shape.state(index));
            let found = word.load(Ordering::SeqCst);
            let met = self.met.get(index as usize) == Some(&found);
            let taken = match state(found) {
                COMMITTING if met => take_sorted(all, index, out),
                DISCARDING => all.take(index, &mut Batch::default()),
                _ => continue,
            };
            if taken && all.restart(index) {
                word.store((found >> GENERATION).wrapping_add(1) << GENERATION, Ordering::SeqCst);
            }
        }
    }
}

/// Adds the records of a speculation in the order of their times.
fn take_sorted(all: &Speculations<'_>, index: u32, out: &mut Batch) -> bool {
    let mut taken = Batch::default();
    let complete = all.take(index, &mut taken);
    taken.sort();
    taken.iter().for_each(|(record, data)| out.push(record, data));
    complete
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{PERCPU_STRIDE, PerCpu};
    use crate::read::RingReader;
    use crate::ring::{RING_MIN, origin};

    struct Memory {
        shape: SpeculationShape,
        control: Vec<AtomicU64>,
        rings: Vec<AtomicU64>,
        principal: Vec<AtomicU64>,
        percpu: Vec<AtomicU64>,
        ring_reader: RingReader,
        reader: SpeculationReader,
    }

    impl Memory {
        fn new(count: u64, bytes: u64) -> Memory {
            let words = |bytes: u32| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
            let shape = SpeculationShape::new(count, bytes, 2, 64);
            Memory {
                shape,
                control: words(shape.control_size()),
                rings: words(shape.rings() * shape.ring_size),
                principal: words(RING_MIN),
                percpu: words(PERCPU_STRIDE),
                ring_reader: RingReader::default(),
                reader: SpeculationReader::default(),
            }
        }

        fn all(&self) -> Speculations<'_> {
            Speculations::new(self.shape, &self.control, &self.rings).unwrap()
        }

        fn plain(&self, time: u64, flags: u16, data: &[u8]) {
            let percpu = PerCpu::new(&self.percpu, 1).unwrap();
            assert!(RingWriter::new(&self.principal, percpu, 0).write(time, origin(1, 0, flags), data));
        }

        fn speculate(&self, id: u32, cpu: u32, time: u64) -> Written {
            self.all().write(id.into(), cpu, time, origin(2, cpu as u16, 0), &[])
        }

        fn commit(&self, id: u32, time: u64) {
            let word = self.all().end(id.into(), true).unwrap();
            self.plain(time, flags::COMMIT, &word.to_le_bytes());
        }

        /// The times of the records that the consumer gets.
        fn drain(&mut self) -> Vec<u64> {
            let percpu = PerCpu::new(&self.percpu, 1).unwrap();
            let batch = self.ring_reader.drain(&self.principal, RING_MIN, percpu, u64::MAX, None);
            let all = Speculations::new(self.shape, &self.control, &self.rings).unwrap();
            let mut batch = self.reader.splice(batch, &all);
            self.reader.clean(&mut batch, &all);
            batch.iter().map(|(r, _)| r.time).collect()
        }
    }

    #[test]
    fn committed_records_are_in_the_place_of_the_commit_in_the_order_of_time() {
        let mut m = Memory::new(2, 4096);
        let (a, b) = (m.all().begin().unwrap(), m.all().begin().unwrap());
        assert_eq!((a, b), (1, 2));
        assert_eq!(m.all().begin(), Err(DropKind::SpeculationUnavailable));
        for (id, cpu, time) in [(a, 1, 12), (b, 0, 13), (a, 0, 11), (b, 1, 14)] {
            assert_eq!(m.speculate(id, cpu, time), Written::Stored);
        }
        m.plain(20, 0, &[]);
        m.commit(a, 21);
        m.plain(22, 0, &[]);
        assert_eq!(m.speculate(a, 0, 23), Written::Inactive);
        assert_eq!(m.all().begin(), Err(DropKind::SpeculationBusy));
        assert_eq!(m.drain(), [20, 11, 12, 22]);
        assert_eq!(m.all().end(b.into(), false), None);
        assert_eq!(m.drain(), []);
        assert_eq!(m.all().begin(), Ok(1));
    }

    #[test]
    fn specsize_bounds_each_speculation_on_each_cpu() {
        // Four headers of 24 bytes fit in 100 bytes.
        let mut m = Memory::new(1, 100);
        for round in 0..300 {
            let id = m.all().begin().unwrap();
            for cpu in 0..2 {
                let written: Vec<_> = (0..5).map(|i| m.speculate(id, cpu, 10 * round + i)).collect();
                assert_eq!(written, [[Written::Stored; 4].as_slice(), &[Written::Full]].concat());
            }
            match round % 2 {
                0 => m.commit(id, 10 * round + 9),
                _ => assert_eq!(m.all().end(id.into(), false), None),
            }
            assert_eq!(m.drain().len(), if round % 2 == 0 { 8 } else { 0 });
        }
        assert!(m.rings.iter().all(|w| w.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_commit_without_a_record_loses_the_data_and_not_the_id() {
        let mut m = Memory::new(1, 4096);
        let id = m.all().begin().unwrap();
        m.speculate(id, 0, 1);
        assert!(m.all().end(id.into(), true).is_some());
        m.all().lose(id.into());
        assert_eq!(m.drain(), []);
        assert_eq!(m.all().begin(), Ok(1));
    }

    #[test]
    fn an_id_is_busy_until_an_unfinished_record_is_committed() {
        let mut m = Memory::new(1, 4096);
        let id = m.all().begin().unwrap();
        m.speculate(id, 0, 1);
        m.speculate(id, 0, 2);
        // The second record is not committed yet.
        let stamp = m.rings[3].swap(0, Ordering::Relaxed);
        m.commit(id, 3);
        assert_eq!(m.drain(), [1]);
        assert_eq!(m.all().begin(), Err(DropKind::SpeculationBusy));
        m.rings[3].store(stamp, Ordering::Relaxed);
        assert_eq!(m.drain(), [2]);
        assert_eq!(m.all().begin(), Ok(1));
    }

    #[test]
    fn no_record_is_older_than_the_oldest_speculation_in_use() {
        let m = Memory::new(2, 4096);
        let mut reader = SpeculationReader::default();
        assert_eq!(reader.oldest(10, &m.all()), 10);
        assert_eq!(m.all().begin(), Ok(1));
        assert_eq!((reader.oldest(20, &m.all()), reader.oldest(30, &m.all())), (10, 10));
        assert_eq!(m.all().begin(), Ok(2));
        assert_eq!(reader.oldest(40, &m.all()), 10);
        m.all().end(1, false);
        reader.clean(&mut Batch::default(), &m.all());
        assert_eq!(reader.oldest(50, &m.all()), 30);
        // Another speculation with the same id, which this look sees for the first time.
        assert_eq!(m.all().begin(), Ok(1));
        m.all().end(2, false);
        reader.clean(&mut Batch::default(), &m.all());
        assert_eq!(reader.oldest(60, &m.all()), 50);
        m.all().end(1, false);
        reader.clean(&mut Batch::default(), &m.all());
        assert_eq!(m.all().begin(), Ok(1));
        assert_eq!(reader.oldest(70, &m.all()), 60);
    }

    #[test]
    fn records_of_a_speculation_whose_commit_was_overwritten_are_counted_once() {
        let mut m = Memory::new(3, 4096);
        let [lost, met, open] = [11, 12, 13].map(|_| m.all().begin().unwrap());
        for (id, cpu, time) in [(lost, 1, 21), (lost, 1, 22), (lost, 0, 23), (met, 0, 24), (open, 0, 25)] {
            assert_eq!(m.speculate(id, cpu, time), Written::Stored);
        }
        // Nobody finds the record of this one.
        assert!(m.all().end(lost.into(), true).is_some());
        m.commit(met, 30);
        let percpu = PerCpu::new(&m.percpu, 1).unwrap();
        let batch = m.ring_reader.drain(&m.principal, RING_MIN, percpu, u64::MAX, None);
        let all = Speculations::new(m.shape, &m.control, &m.rings).unwrap();
        let mut batch = m.reader.splice(batch, &all);
        let of = |cpu, count| DropDelta { kind: DropKind::Speculation, cpu, count };
        assert_eq!(m.reader.lose_overwritten(&all), [of(0, 1), of(1, 2)]);
        m.reader.clean(&mut batch, &all);
        assert_eq!(batch.iter().map(|(r, _)| r.time).collect::<Vec<_>>(), [24]);
        assert_eq!(m.reader.lose_overwritten(&all), []);
        // Both that ended are free again.
        assert!(!m.all().is_busy() && m.all().begin().is_ok() && m.all().begin().is_ok());
    }

    #[test]
    fn ids_that_do_not_exist_are_invalid() {
        let m = Memory::new(2, 4096);
        let valid: Vec<bool> = [0, 1, 2, 3, u64::MAX].into_iter().map(|id| m.all().is_valid(id)).collect();
        assert_eq!(valid, [true, true, true, false, false]);
        assert_eq!(m.all().end(3, true), None);
        assert_eq!(m.all().end(0, false), None);
    }

    #[test]
    fn commits_that_no_program_wrote_are_ignored() {
        let mut m = Memory::new(1, 4096);
        m.plain(1, flags::COMMIT, &commit_word(1, 0).to_le_bytes());
        m.plain(2, flags::COMMIT, &commit_word(9, 0).to_le_bytes());
        m.plain(3, flags::COMMIT, &[]);
        m.plain(4, 0, &[]);
        assert_eq!(m.drain(), [4]);
    }
}
