//! Writers and a consumer on one ring: CPUs or threads that share it, or a thread and its
//! interrupts.

use super::explore::{Phase, Step, World};
use super::ring::{Drainer, Mutation, Outcome, Ring, Writer};

/// Writers and a consumer.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// Bytes of the ring.
    pub(super) size: u64,
    /// The initial position: shortly before the end of the ring, so that laps and pads occur soon.
    pub(super) start: u64,
    /// For each party the lengths of its records in words, by firing.
    pub(super) records: &'static [&'static [u8]],
    /// Drains of the consumer; the rest is taken at the end.
    pub(super) drains: u8,
    /// Records whose last word is not written, because the clause faults: one bit per id.
    pub(super) faults: u32,
    pub(super) mutation: Mutation,
}

#[derive(Clone)]
pub(super) struct Rings {
    setup: Setup,
    state: State,
}

#[derive(Clone, Hash)]
struct State {
    ring: Ring,
    parties: [Party; 4],
    drainer: Drainer,
}

#[derive(Clone, Hash)]
struct Party {
    fired: u8,
    writer: Option<Writer>,
    /// Data words written; 0xff before it is reserved.
    written: u8,
}

/// Not reserved yet.
const NOT_YET: u8 = 0xff;

impl std::hash::Hash for Rings {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

impl Rings {
    pub(super) fn new(setup: Setup) -> Rings {
        let party = Party { fired: 0, writer: None, written: NOT_YET };
        let parties = std::array::from_fn(|_| party.clone());
        let drainer = Drainer::new(setup.drains);
        Rings { setup, state: State { ring: Ring::new(setup.start), parties, drainer } }
    }

    fn id(&self, party: usize, firing: u8) -> u8 {
        let before: usize = self.setup.records[..party].iter().map(|r| r.len()).sum();
        before as u8 + firing + 1
    }
}

impl World for Rings {
    fn parties(&self) -> usize {
        self.setup.records.len() + 1
    }

    fn level(&self, party: usize) -> Option<u8> {
        (party < self.setup.records.len()).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let Some(records) = self.setup.records.get(party) else {
            return if self.state.drainer.finished() { Phase::Finished } else { Phase::Running };
        };
        let p = &self.state.parties[party];
        match p.writer {
            Some(_) => Phase::Running,
            None if usize::from(p.fired) == records.len() => Phase::Finished,
            None => Phase::Idle,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        let Setup { size, mutation, faults, .. } = self.setup;
        if party == self.setup.records.len() {
            return self.state.drainer.step(&mut self.state.ring, size, mutation);
        }
        let fired = self.state.parties[party].fired;
        let id = self.id(party, fired);
        let length = self.setup.records[party][usize::from(fired)];
        let State { ring, parties, .. } = &mut self.state;
        let p = &mut parties[party];
        let writer = p.writer.get_or_insert_with(|| Writer::new(id, length));
        let over;
        let step = if p.written == NOT_YET {
            let (outcome, step) = writer.reserve(ring, size, mutation)?;
            over = outcome == Outcome::Dropped;
            if outcome == Outcome::Reserved {
                p.written = 0;
                if mutation == Mutation::CommitFirst {
                    writer.commit(ring, size, mutation)?;
                }
            }
            step
        } else {
            let fault = faults & 1 << id != 0 && p.written + 1 >= writer.data_words();
            if p.written < writer.data_words() && !fault {
                writer.data(ring, size, p.written, u64::from(id))?;
                p.written += 1;
                over = mutation == Mutation::CommitFirst && p.written == writer.data_words();
                Step::of("write data")
            } else if fault && ring.discarded & 1 << id == 0 {
                over = mutation == Mutation::NoDiscard;
                writer.flag(ring, size)?;
                Step::of("flag as discarded")
            } else {
                writer.commit(ring, size, mutation)?;
                over = true;
                Step::of("commit")
            }
        };
        if over {
            *p = Party { fired: fired + 1, writer: None, written: NOT_YET };
        }
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        let (ring, setup) = (&self.state.ring, &self.setup);
        let used = ring.reserve - ring.consumed;
        if used > setup.size / 2 && ring.rung == 0 && !self.state.drainer.gap {
            return Err("the ring is more than half full and the doorbell is silent".into());
        }
        if setup.mutation == Mutation::NoStamp {
            return Ok(0);
        }
        let fired = setup.records.iter().map(|r| r.len() as u64).sum();
        ring.end(setup.size, fired)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::super::ring::seen;
    use super::*;

    /// Three parties that write records of four words into a ring of eight words; one faults.
    const FULL: Setup = Setup {
        size: 64,
        start: 64,
        records: &[&[4], &[4], &[4]],
        drains: 2,
        faults: 0b100,
        mutation: Mutation::None,
    };

    /// Records of different lengths at the end of a ring of sixteen words: pads, and a second lap.
    const LAPS: Setup = Setup {
        size: 128,
        start: 256 + 104,
        records: &[&[4, 5], &[5, 4]],
        drains: 2,
        faults: 0,
        mutation: Mutation::None,
    };

    fn breaks(setup: Setup, mutation: Mutation, words: &str) {
        caught(Rings::new(Setup { mutation, ..setup }), Schedule::Preempted, words);
    }

    #[test]
    fn a_ring_of_two_records_is_exact() {
        let nested = holds(Rings::new(FULL), Schedule::Nested);
        let preempted = holds(Rings::new(FULL), Schedule::Preempted);
        let all = seen::FULL | seen::LOST_RACE | seen::GAP | seen::RUNG | seen::DISCARDED;
        assert_eq!(nested.seen & all, all);
        let all = all | seen::OUT_OF_TRIES | seen::PASSED;
        assert_eq!(preempted.seen & all, all);
    }

    #[test]
    fn laps_and_pads_are_exact() {
        let nested = holds(Rings::new(LAPS), Schedule::Nested);
        let preempted = holds(Rings::new(LAPS), Schedule::Preempted);
        assert_eq!(nested.seen & preempted.seen & seen::PADDED, seen::PADDED);
    }

    #[test]
    fn a_reservation_by_load_and_store_is_caught() {
        breaks(FULL, Mutation::PlainReserve, "reserved a word of record");
        caught(
            Rings::new(Setup { mutation: Mutation::PlainReserve, ..FULL }),
            Schedule::Nested,
            "reserved a word of record",
        );
    }

    #[test]
    fn a_commit_before_the_data_is_caught() {
        breaks(FULL, Mutation::CommitFirst, "is torn");
    }

    #[test]
    fn writing_into_a_full_ring_is_caught() {
        breaks(FULL, Mutation::NoFullRule, "reserved a word of record");
    }

    #[test]
    fn a_ring_must_be_twice_its_longest_record() {
        // After a record of three words one of six fits neither before the end nor, with the pad,
        // behind it: never.
        let short = Setup { size: 64, start: 64, records: &[&[3, 6]], drains: 2, ..FULL };
        breaks(short, Mutation::None, "an empty ring refused record 2");
        holds(Rings::new(Setup { size: 128, ..short }), Schedule::Preempted);
    }

    #[test]
    fn a_missing_pad_is_caught() {
        breaks(LAPS, Mutation::NoPad, "is lost");
    }

    #[test]
    fn a_fault_that_leaves_its_record_uncommitted_is_caught() {
        breaks(FULL, Mutation::NoDiscard, "is lost");
    }

    #[test]
    fn an_uncounted_drop_is_caught() {
        breaks(FULL, Mutation::Uncounted, "fired 3, delivered 2, dropped 0");
    }

    #[test]
    fn a_commit_word_without_stamp_is_caught() {
        breaks(FULL, Mutation::NoStamp, "before it was committed");
    }

    #[test]
    fn returning_space_before_reading_is_caught() {
        breaks(FULL, Mutation::GivesBackFirst, "");
    }

    #[test]
    fn resetting_the_doorbell_after_reading_the_position_is_caught() {
        breaks(FULL, Mutation::SilencesLate, "the doorbell is silent");
    }
}
