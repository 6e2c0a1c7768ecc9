//! Snapshots of rings that are overwritten, while programs write them.
//!
//! [`crate::overwrite`] keeps writers from records that are being written, and has no way to keep
//! them from one that is being read. The key decision: *the reader lets itself be overtaken, and
//! finds out*. It copies a ring and then looks at the reserve position again. What was in segments
//! that were entered meanwhile is not used. So programs never wait for a reader and know nothing of
//! one; a snapshot costs them nothing, and the reader at most some of the oldest segments.
//!
//! ```text
//!  wait until no firing runs that began before `until`      (order: the published clocks)
//!  position of each ring                                    the ends of what is read
//!  copy a ring; position again                              what was entered is overtaken
//!  records from the oldest segment that was not, to the end
//!  of those the ones that are later than the oldest of every ring, until `until`
//! ```
//!
//! A record that is not committed when its ring is copied is waited for, because its firing runs or
//! is interrupted; after a while it is left out and counted.
//!
//! **What a snapshot has is complete.** On a CPU with few firings a ring reaches further back than
//! on a busy one. The records from before the oldest of the busiest ring are left out: in the time
//! that a snapshot is about, nothing is missing of any CPU.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use crate::control::RESERVE;
use crate::overwrite::{SEGMENTS, distance, oldest, position};
use crate::read::{Batch, RingReader, Rings, every};
use crate::ring::{HEADER_SIZE, TIME, read_stamp};

/// A snapshot of rings.
#[derive(Debug, Default)]
pub struct Newest {
    /// The records, in the order of time.
    pub batch: Batch,
    /// Every record of a time from this one on, until the end of the snapshot, is in it.
    pub from: u64,
    /// Records that were not complete in time, and rings that were overtaken as a whole.
    pub unread: u64,
}

/// How often the reader looks again at what has not happened yet, and how long it waits in between.
const LOOKS: u32 = 200;
const WAIT: Duration = Duration::from_micros(50);

/// Records of a full ring whose times are looked at. Its order is that of time, but for firings in
/// interrupts: their records come before those of the firing that was interrupted.
const FIRST: u32 = 16;

/// Calls `look` until it has something, for some milliseconds.
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..LOOKS {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::sleep(WAIT);
    }
    None
}

/// Copies the newest records of rings that are overwritten, up to the time `until`. The rings were
/// empty at the time `begun`. `now` reads the clock of the records.
pub fn copy_newest(
    reader: &mut RingReader,
    sets: &[Rings<'_>],
    (begun, until): (u64, u64),
    now: &dyn Fn() -> u64,
) -> Newest {
    let all_ended = soon(|| {
        reader.look(sets, now());
        (reader.running_since() > until).then_some(())
    });
    let reserved = |(set, index): (&Rings<'_>, u32)| set.percpu.word(index, RESERVE).load(Ordering::SeqCst);
    let ends: Vec<u64> = every(sets).map(reserved).map(position).collect();
    let mut out = Newest { from: begun, unread: u64::from(all_ended.is_none()), ..Newest::default() };
    for ((set, index), end) in every(sets).zip(ends) {
        let Some(ring) = ring(set, index) else { continue };
        if copy_ring(ring, set.percpu.word(index, RESERVE), end, &mut out).is_none() {
            (out.from, out.unread) = (until, out.unread + 1);
        }
    }
    let from = out.from;
    out.batch.retain(|record| (from..=until).contains(&record.time));
    out.batch.sort();
    out
}

/// The time from which on rings that are overwritten have every record. No program may be running.
/// They were empty at the time `begun`.
pub fn complete_from(sets: &[Rings<'_>], begun: u64) -> u64 {
    let first = |(set, index): (&Rings<'_>, u32)| {
        let end = position(set.percpu.word(index, RESERVE).load(Ordering::SeqCst));
        let ring = ring(set, index)?;
        first_time(ring, oldest(end, ring.len() as u64 * 8, SEGMENTS), end)
    };
    every(sets).filter_map(first).map(|time| time.saturating_add(1)).fold(begun, u64::max)
}

fn ring<'a>(set: &Rings<'a>, index: u32) -> Option<&'a [AtomicU64]> {
    let words = set.size as usize / 8;
    set.memory.get(index as usize * words..(index as usize + 1) * words)
}

/// The latest time of the first records of a ring that was full. Their firings may have had records
/// before them. `None`: nothing was overwritten yet.
fn first_time(ring: &[AtomicU64], first: u64, end: u64) -> Option<u64> {
    let (mut left, mut seen, mut latest) = (distance(end, first), 0, None);
    while left > 0 && seen < FIRST {
        let at = distance(end, left);
        let place = place(ring, at);
        let length = match read_stamp(ring.get(place)?.load(Ordering::Acquire), at) {
            Some((length, true)) => length.into(),
            Some((length, false)) => {
                seen += 1;
                let time = ring.get(place + TIME as usize / 8)?.load(Ordering::Relaxed);
                latest = latest.max(Some(time));
                length.into()
            }
            // Positions before the first lap are beyond the end.
            None if at > end => return None,
            // It is being written. Those behind it are later.
            None => 8,
        };
        left = left.saturating_sub(length);
    }
    latest
}

/// The word of a ring at which a position is.
fn place(ring: &[AtomicU64], position: u64) -> usize {
    (position & (ring.len() as u64 * 8 - 1)) as usize / 8
}

/// Adds the records of a ring before `end`. `None`: all of it was overwritten meanwhile.
fn copy_ring(ring: &[AtomicU64], reserve: &AtomicU64, end: u64, out: &mut Newest) -> Option<()> {
    let size = ring.len() as u64 * 8;
    let segment = size / u64::from(SEGMENTS);
    // In the order of addresses: the stamp of a record before its data.
    let copy: Vec<AtomicU64> = ring.iter().map(|word| AtomicU64::new(word.load(Ordering::Acquire))).collect();
    fence(Ordering::SeqCst);
    let first = oldest(position(reserve.load(Ordering::SeqCst)), size, SEGMENTS);
    let mut left = distance(end, first);
    if left > size {
        return None;
    }
    if let Some(time) = first_time(&copy, first, end) {
        out.from = out.from.max(time.saturating_add(1));
    }
    while left > 0 {
        let at = distance(end, left);
        let rest = (segment - (at & (segment - 1))).min(left);
        let known = |stamp| read_stamp(stamp, at).filter(|(length, _)| u64::from(*length) <= rest);
        let place = place(ring, at);
        let stamp = copy.get(place)?.load(Ordering::Relaxed);
        // Positions before the first lap are beyond the end; they may be of the lap before position
        // 0 came again.
        let is_behind = at > end;
        let found = match known(stamp) {
            None if !is_behind => {
                let late = soon(|| known(ring.get(place)?.load(Ordering::Acquire)));
                late.filter(|(length, _)| {
                    let words = place..place + *length as usize / 8;
                    let pairs = copy.get(words.clone()).into_iter().flatten();
                    for (to, from) in pairs.zip(ring.get(words).into_iter().flatten()) {
                        to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
                    }
                    fence(Ordering::SeqCst);
                    let now = oldest(position(reserve.load(Ordering::SeqCst)), size, SEGMENTS);
                    (left..=size).contains(&distance(end, now))
                })
            }
            known => known,
        };
        left -= match found {
            Some((length, pad)) => {
                let is_record = !pad && length >= HEADER_SIZE;
                if let Some(record) = copy.get(place..place + length as usize / 8).filter(|_| is_record) {
                    out.batch.push_words(record);
                }
                u64::from(length)
            }
            // Never written, because the ring has not been full.
            None if is_behind => rest,
            None => {
                out.unread += 1;
                // Its length is not known: stamps tell where the next one begins.
                let next = (8..rest).step_by(8).find(|skipped| {
                    let at = at + skipped;
                    let stamp = copy.get(place + *skipped as usize / 8);
                    stamp.is_some_and(|stamp| read_stamp(stamp.load(Ordering::Relaxed), at).is_some())
                });
                next.unwrap_or(rest)
            }
        };
    }
    // What was copied late may have been overwritten since.
    let now = oldest(position(reserve.load(Ordering::SeqCst)), size, SEGMENTS);
    (distance(end, now) <= size).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{PERCPU_STRIDE, PerCpu};
    use crate::ring::{Policy, RING_MIN, RingWriter, origin};

    const CPUS: u32 = 2;

    fn words(bytes: u32) -> Vec<AtomicU64> {
        (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
    }

    struct Machine {
        rings: Vec<AtomicU64>,
        control: Vec<AtomicU64>,
    }

    impl Machine {
        fn new() -> Machine {
            Machine { rings: words(CPUS * RING_MIN), control: words(CPUS * PERCPU_STRIDE) }
        }

        fn set(&self) -> Rings<'_> {
            let percpu = PerCpu::new(&self.control, CPUS).unwrap();
            Rings { memory: &self.rings, size: RING_MIN, percpu }
        }

        /// Writes records with these times, of two words of data each.
        fn write(&self, cpu: u32, times: impl Iterator<Item = u64>) {
            let set = self.set();
            let words = RING_MIN as usize / 8;
            let ring = &self.rings[cpu as usize * words..][..words];
            let writer = RingWriter::new(ring, set.percpu, cpu).by(Policy::Ring);
            for time in times {
                let data = [time.to_le_bytes(), (!time).to_le_bytes()].concat();
                assert!(writer.write(time, origin(1, cpu as u16, 0), &data));
            }
        }

        fn newest(&self, until: u64) -> (Vec<u64>, u64, u64) {
            let mut reader = RingReader::new(0);
            let newest = copy_newest(&mut reader, &[self.set()], (5, until), &|| u64::MAX);
            let check = |(record, data): (&crate::read::Record, &[u8])| {
                assert_eq!(data, [record.time.to_le_bytes(), (!record.time).to_le_bytes()].concat());
                record.time
            };
            (newest.batch.iter().map(check).collect(), newest.from, newest.unread)
        }
    }

    #[test]
    fn rings_that_were_never_full_have_everything_since_they_were_empty() {
        let machine = Machine::new();
        machine.write(0, 10..20);
        machine.write(1, 15..25);
        let expected: Vec<u64> = (10..15).chain((15..20).flat_map(|n| [n, n])).chain(20..25).collect();
        assert_eq!(machine.newest(100), (expected, 5, 0));
        assert_eq!(complete_from(&[machine.set()], 5), 5);
    }

    #[test]
    fn a_snapshot_has_what_is_complete_on_every_cpu_and_takes_nothing_away() {
        let machine = Machine::new();
        // Of 40 bytes each: 12 in a segment of 512 bytes.
        machine.write(0, 1000..2000);
        machine.write(1, [6, 7, 1950, 1990].into_iter());
        let (times, from, unread) = machine.newest(1995);
        let kept = 2000 - from;
        // The first ones are left out, because of firings in interrupts.
        let first = u64::from(FIRST);
        assert!((7 * 12 - first + 1..=8 * 12 - first + 1).contains(&kept), "{from}");
        let expected: Vec<u64> =
            (from..=1995).flat_map(|n| vec![n; 1 + usize::from(n == 1950 || n == 1990)]).collect();
        assert_eq!((&times, unread), (&expected, 0));
        assert_eq!(complete_from(&[machine.set()], 5), from);
        assert_eq!(machine.newest(1995).0, times);
        machine.write(0, 2000..2001);
        let (later, ..) = machine.newest(3000);
        assert_eq!(later.last(), Some(&2000));
    }

    #[test]
    fn a_record_that_is_not_committed_is_left_out_and_those_behind_it_are_not() {
        let machine = Machine::new();
        machine.write(0, 1000..2000);
        let set = machine.set();
        let end = position(set.percpu.word(0, RESERVE).load(Ordering::Relaxed));
        let at = machine.rings.iter().position(|w| read_stamp(w.load(Ordering::Relaxed), end - 80).is_some());
        machine.rings[at.unwrap()].store(0, Ordering::Relaxed);
        let (times, _, unread) = machine.newest(3000);
        assert_eq!((unread, &times[times.len() - 3..]), (1, &[1996, 1997, 1999][..]));
    }

    #[test]
    fn records_that_are_overwritten_while_they_are_read_are_never_taken_for_others() {
        let machine = Machine::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| machine.write(0, 10..200_000));
            while !writer.is_finished() {
                // Each is read whole, and in order: `newest` checks the data.
                let (times, ..) = machine.newest(u64::MAX - 1);
                assert!(times.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{times:?}");
            }
        });
        assert_eq!(machine.newest(u64::MAX - 1).0.last(), Some(&199_999));
    }
}
