//! Policy ring: [`crate::overwrite`], with writers that are delayed for laps. The real reader takes
//! what is left when all have ended.
//!
//! A ring has two segments here, or four, so that a few firings make a lap. (With two, the segment
//! before the next one is the next one but one, which is the hardest case for pads.)

use std::sync::atomic::AtomicU64;

use super::explore::{Phase, Step, World};
use crate::overwrite::{POSITION, distance, oldest, position};
use crate::read::{Batch, take_newest};
use crate::ring::{PAD, origin, stamp};

/// Words of the largest ring here.
const WORDS: usize = 32;
/// Words of a header.
const HEADER: u64 = 3;
/// Lost exchanges after which a reservation is dropped; 8 in programs.
const TRIES: u8 = 2;

/// Cases that can occur.
mod seen {
    pub(super) const HELD: u32 = 1;
    pub(super) const PADDED: u32 = 2;
    pub(super) const LOST_RACE: u32 = 4;
    pub(super) const OUT_OF_TRIES: u32 = 8;
    pub(super) const CROWDED: u32 = 16;
    pub(super) const OVERWRITTEN: u32 = 32;
}

/// An injected fault, which the explorer must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// Reserves by load and store.
    PlainReserve,
    /// Enters a segment without a look at its count.
    NotHeld,
    /// Counts the writer after the reservation.
    CountsLate,
    /// Subtracts from the count before the commit.
    ReleasesEarly,
    /// Does not count the writer of a pad in the segment of the pad.
    PadNotHeld,
    /// Writes no pad.
    NoPad,
    /// Does not zero the data.
    NotZeroed,
    /// Does not subtract from the count when all is written.
    NotReleased,
    /// Does not limit a count.
    NoLimit,
    /// Does not count a drop.
    Uncounted,
}

#[derive(Clone, Copy)]
struct Setup {
    segments: u32,
    /// Words of a segment.
    segment: u64,
    /// The initial position, in words.
    start: u64,
    /// The most writers in a segment.
    most: u64,
    /// For each party the lengths of its records in words, by firing.
    records: &'static [&'static [u8]],
    mutation: Mutation,
}

#[derive(Clone)]
struct Overwrite {
    setup: Setup,
    state: State,
}

#[derive(Clone, Hash)]
struct State {
    word: u64,
    drops: u64,
    words: [u64; WORDS],
    /// The record for which each word is reserved; 0 for none.
    owner: [u8; WORDS],
    /// Reserved records and pads, in their order: id (0: a pad), position, length in words.
    log: Vec<(u8, u64, u8)>,
    parties: Vec<Party>,
}

#[derive(Clone, Hash)]
struct Party {
    fired: u8,
    at: At,
    /// The word that was loaded.
    word: u64,
    /// Positions in words.
    start: u64,
    tries: u8,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum At {
    Idle,
    Load,
    Drop,
    Exchange,
    Count,
    Pad,
    PadRelease,
    Write,
    Commit,
    Release,
    Done,
}

impl std::hash::Hash for Overwrite {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

impl Setup {
    fn size(&self) -> u64 {
        self.segment * u64::from(self.segments)
    }

    /// The lowest bit of the count of the segment of a position. Counts have 4 bits here too.
    fn unit(&self, position: u64) -> u64 {
        1 << (4 * (position / self.segment % u64::from(self.segments)))
    }

    fn count(&self, word: u64, position: u64) -> u64 {
        (word / self.unit(position)) & 15
    }

    fn place(&self, position: u64) -> usize {
        (position % self.size()) as usize
    }
}

impl State {
    fn own(&mut self, setup: &Setup, from: u64, to: u64, id: u8) -> Result<(), String> {
        for at in (from..to).map(|at| setup.place(at)) {
            if self.owner[at] != 0 {
                return Err(format!("record {id} reserved a word of record {}", self.owner[at]));
            }
            self.owner[at] = id;
        }
        Ok(())
    }

    fn disown(&mut self, setup: &Setup, from: u64, to: u64) {
        (from..to).for_each(|at| self.owner[setup.place(at)] = 0);
    }

    fn write(&mut self, setup: &Setup, at: u64, id: u8, value: u64) -> Result<(), String> {
        let at = setup.place(at);
        if self.owner[at] != id {
            return Err(format!("record {id} wrote a word that is not its own"));
        }
        self.words[at] = value;
        Ok(())
    }
}

impl Overwrite {
    fn new(setup: Setup) -> Overwrite {
        let party = Party { fired: 0, at: At::Idle, word: 0, start: 0, tries: 0 };
        let state = State {
            word: setup.start << POSITION,
            drops: 0,
            words: [0; WORDS],
            owner: [0; WORDS],
            log: Vec::new(),
            parties: vec![party; setup.records.len()],
        };
        Overwrite { setup, state }
    }

    fn fired(&self) -> u64 {
        self.setup.records.iter().map(|r| r.len() as u64).sum()
    }
}

impl World for Overwrite {
    fn parties(&self) -> usize {
        self.setup.records.len()
    }

    fn level(&self, party: usize) -> Option<u8> {
        Some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        match self.state.parties[party].at {
            At::Idle => Phase::Idle,
            At::Done => Phase::Finished,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        let setup = self.setup;
        let mutation = setup.mutation;
        let before: usize = setup.records[..party].iter().map(|r| r.len()).sum();
        let mut p = self.state.parties[party].clone();
        let id = (before + usize::from(p.fired) + 1) as u8;
        let length = u64::from(setup.records[party][usize::from(p.fired)]);
        let s = &mut self.state;
        let reserved = position(p.word) / 8;
        let pads = p.start != reserved;
        let end = p.start + length;
        let mut over = false;
        let step = match p.at {
            At::Idle | At::Load => {
                if p.at == At::Idle {
                    p.tries = TRIES;
                }
                p.word = s.word;
                let reserved = position(p.word) / 8;
                let within = reserved % setup.segment;
                p.start = reserved;
                if within + length > setup.segment {
                    p.start += setup.segment - within;
                }
                let enters = p.start.is_multiple_of(setup.segment);
                let here = setup.count(p.word, p.start);
                let crowded = mutation != Mutation::NoLimit
                    && (!enters && here >= setup.most
                        || p.start != reserved && setup.count(p.word, reserved) >= setup.most);
                let held = enters && here != 0 && mutation != Mutation::NotHeld;
                p.at = if crowded || held { At::Drop } else { At::Exchange };
                let seen = if held { seen::HELD } else { 0 } | if crowded { seen::CROWDED } else { 0 };
                Step::seeing("load the word", seen)
            }
            At::Drop => {
                s.drops += u64::from(mutation != Mutation::Uncounted);
                over = true;
                Step::of("count a drop")
            }
            At::Exchange if s.word != p.word && mutation != Mutation::PlainReserve => {
                p.tries -= 1;
                p.at = if p.tries == 0 { At::Drop } else { At::Load };
                let out = if p.tries == 0 { seen::OUT_OF_TRIES } else { 0 };
                Step::seeing("lose the word", seen::LOST_RACE | out)
            }
            At::Exchange => {
                let mut counts = p.word & ((1 << POSITION) - 1);
                if mutation != Mutation::CountsLate {
                    counts += setup.unit(p.start);
                }
                if pads && mutation != Mutation::PadNotHeld {
                    counts += setup.unit(reserved);
                }
                s.own(&setup, reserved, end, id)?;
                s.word = end << POSITION | counts;
                if pads {
                    s.log.push((0, reserved, (p.start - reserved) as u8));
                }
                s.log.push((id, p.start, length as u8));
                p.at = match mutation {
                    Mutation::CountsLate => At::Count,
                    _ if pads => At::Pad,
                    _ => At::Write,
                };
                Step::of("exchange the word")
            }
            At::Count => {
                s.word += setup.unit(p.start);
                p.at = if pads { At::Pad } else { At::Write };
                Step::of("count the writer")
            }
            At::Pad => {
                if mutation != Mutation::NoPad {
                    let word = stamp(8 * reserved, 8 * (p.start - reserved) as u32) | PAD;
                    s.write(&setup, reserved, id, word)?;
                }
                s.disown(&setup, reserved, p.start);
                p.at = if mutation == Mutation::PadNotHeld { At::Write } else { At::PadRelease };
                Step::seeing("write the pad", seen::PADDED)
            }
            At::PadRelease => {
                s.word -= setup.unit(reserved);
                p.at = At::Write;
                Step::of("release the segment of the pad")
            }
            // One step, because no other party may access these words: `write` checks that.
            At::Write => {
                if mutation != Mutation::NotZeroed {
                    (p.start + HEADER..end).try_for_each(|at| s.write(&setup, at, id, 0))?;
                }
                s.write(&setup, p.start + 1, id, u64::from(id))?;
                s.write(&setup, p.start + 2, id, origin(u32::from(id), 0, 0))?;
                // The last word of a record is padding, which the clause does not write.
                (p.start + HEADER..end - 1).try_for_each(|at| s.write(&setup, at, id, u64::from(id)))?;
                p.at = if mutation == Mutation::ReleasesEarly { At::Release } else { At::Commit };
                Step::of("write the record")
            }
            At::Commit => {
                s.write(&setup, p.start, id, stamp(8 * p.start, 8 * length as u32))?;
                s.disown(&setup, p.start, end);
                over = matches!(mutation, Mutation::ReleasesEarly | Mutation::NotReleased);
                p.at = At::Release;
                Step::of("commit")
            }
            At::Release => {
                s.word -= setup.unit(p.start);
                over = mutation != Mutation::ReleasesEarly;
                p.at = At::Commit;
                Step::of("release the segment")
            }
            At::Done => return Err("fired already".into()),
        };
        if over {
            let fired = p.fired + 1;
            let at = if usize::from(fired) == setup.records[party].len() { At::Done } else { At::Idle };
            p = Party { fired, at, word: 0, start: 0, tries: 0 };
        }
        s.parties[party] = p;
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        let (s, setup) = (&self.state, &self.setup);
        if s.word & ((1 << POSITION) - 1) != 0 {
            return Err("a writer is still counted".into());
        }
        let memory: Vec<AtomicU64> =
            s.words.iter().take(setup.size() as usize).map(|w| AtomicU64::new(*w)).collect();
        let mut batch = Batch::default();
        let end = take_newest(&memory, setup.segments, s.word, None, &mut batch);
        let first = oldest(end, 8 * setup.size(), setup.segments);
        let kept = |at: u64| distance(end, 8 * at) <= distance(end, first);
        for (_, at, length) in s.log.iter().filter(|(id, at, _)| *id == 0 && kept(*at)) {
            let pad = stamp(8 * at, 8 * u32::from(*length)) | PAD;
            if s.words[setup.place(*at)] != pad {
                return Err("there is no pad at the end of a segment".into());
            }
        }
        let records = || s.log.iter().filter(|(id, ..)| *id != 0);
        let expected: Vec<u8> = records().filter(|(_, at, _)| kept(*at)).map(|(id, ..)| *id).collect();
        let got: Vec<u8> = batch.iter().map(|(r, _)| r.time as u8).collect();
        if got != expected {
            return Err(format!("the newest records are {expected:?}, read were {got:?}"));
        }
        for (r, data) in batch.iter() {
            let words: Vec<u64> =
                data.chunks_exact(8).filter_map(|c| Some(u64::from_le_bytes(c.try_into().ok()?))).collect();
            let (last, before) = words.split_last().ok_or("a record without data")?;
            if u64::from(r.epid) != r.time || before.iter().any(|w| *w != r.time) || *last != 0 {
                return Err(format!("record {} is torn", r.time));
            }
        }
        let count = records().count() as u64;
        if count + s.drops != self.fired() {
            return Err(format!("fired {}, recorded {count}, dropped {}", self.fired(), s.drops));
        }
        Ok(if expected.len() < count as usize { seen::OVERWRITTEN } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    /// Two segments of two records, and laps.
    const LAPS: Setup = Setup {
        segments: 2,
        segment: 8,
        start: 0,
        most: 15,
        records: &[&[4], &[4, 4], &[4, 4, 4]],
        mutation: Mutation::None,
    };

    /// Records of different lengths, so that segments end in pads.
    const PADS: Setup = Setup { records: &[&[4], &[5, 4], &[4, 5]], ..LAPS };

    /// Four segments of one record.
    const FOUR: Setup = Setup { segments: 4, records: &[&[5], &[6, 5], &[5, 6]], ..LAPS };

    fn breaks(setup: Setup, mutation: Mutation, words: &str) {
        caught(Overwrite::new(Setup { mutation, ..setup }), Schedule::Preempted, words);
    }

    #[test]
    fn the_newest_records_are_whole_and_every_other_one_is_overwritten_or_counted() {
        for setup in [LAPS, PADS, FOUR] {
            let nested = holds(Overwrite::new(setup), Schedule::Nested);
            let preempted = holds(Overwrite::new(setup), Schedule::Preempted);
            let all = seen::HELD | seen::OVERWRITTEN;
            assert_eq!(nested.seen & all, all);
            let all = all | seen::LOST_RACE | seen::OUT_OF_TRIES;
            assert_eq!(preempted.seen & all, all);
        }
        assert_eq!(holds(Overwrite::new(PADS), Schedule::Nested).seen & seen::PADDED, seen::PADDED);
        // Near the greatest position.
        holds(Overwrite::new(Setup { start: (1 << 32) - 8, ..LAPS }), Schedule::Nested);
    }

    #[test]
    fn a_writer_alone_drops_nothing() {
        let setup = Setup { records: &[&[4, 5, 6, 8, 4, 4, 5, 4, 7, 8]], ..PADS };
        let seen = holds(Overwrite::new(setup), Schedule::Nested).seen;
        assert_eq!(seen, seen::PADDED | seen::OVERWRITTEN);
    }

    #[test]
    fn more_writers_than_a_count_has_are_dropped() {
        let crowded = Setup { most: 1, ..LAPS };
        let seen = holds(Overwrite::new(crowded), Schedule::Preempted).seen;
        assert_eq!(seen & seen::CROWDED, seen::CROWDED);
    }

    #[test]
    fn a_reservation_by_load_and_store_is_caught() {
        breaks(LAPS, Mutation::PlainReserve, "");
    }

    #[test]
    fn entering_a_segment_that_a_writer_holds_is_caught() {
        for schedule in [Schedule::Nested, Schedule::Preempted] {
            let world = Overwrite::new(Setup { mutation: Mutation::NotHeld, ..LAPS });
            caught(world, schedule, "reserved a word of record");
        }
    }

    #[test]
    fn counting_the_writer_after_its_reservation_is_caught() {
        breaks(LAPS, Mutation::CountsLate, "reserved a word of record");
    }

    #[test]
    fn releasing_the_segment_before_the_commit_is_caught() {
        breaks(LAPS, Mutation::ReleasesEarly, "reserved a word of record");
    }

    #[test]
    fn a_pad_in_a_segment_that_its_writer_does_not_hold_is_caught() {
        breaks(PADS, Mutation::PadNotHeld, "reserved a word of record");
    }

    #[test]
    fn a_missing_pad_is_caught() {
        breaks(PADS, Mutation::NoPad, "no pad");
    }

    #[test]
    fn data_of_the_last_lap_is_caught() {
        breaks(PADS, Mutation::NotZeroed, "is torn");
    }

    #[test]
    fn a_segment_that_is_not_released_is_caught() {
        breaks(LAPS, Mutation::NotReleased, "still counted");
    }

    #[test]
    fn an_uncounted_drop_is_caught() {
        breaks(LAPS, Mutation::Uncounted, "dropped 0");
    }
}
