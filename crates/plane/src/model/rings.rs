//! Writers and a consumer on one ring: CPUs or threads that share it, or a thread and what interrupts it.

use super::explore::{Phase, Step, World};
use super::ring::{Broken, Drainer, Ring, Went, Writer};

/// Writers and a consumer.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// Bytes of the ring.
    pub(super) size: u64,
    /// The position it is at: shortly before its end, so that laps and pads come soon.
    pub(super) start: u64,
    /// For each party the words of its records, one firing after the other.
    pub(super) records: &'static [&'static [u8]],
    /// Drains of the consumer; what is left is taken at the end.
    pub(super) drains: u8,
    /// The last word of the record is not written, because the clause faults: one bit an id.
    pub(super) faults: u32,
    pub(super) broken: Broken,
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
        let Setup { size, broken, faults, .. } = self.setup;
        if party == self.setup.records.len() {
            return self.state.drainer.step(&mut self.state.ring, size, broken);
        }
        let fired = self.state.parties[party].fired;
        let id = self.id(party, fired);
        let length = self.setup.records[party][usize::from(fired)];
        let State { ring, parties, .. } = &mut self.state;
        let p = &mut parties[party];
        let writer = p.writer.get_or_insert_with(|| Writer::new(id, length));
        let over;
        let step = if p.written == NOT_YET {
            let (went, step) = writer.reserve(ring, size, broken)?;
            over = went == Went::Dropped;
            if went == Went::Reserved {
                p.written = 0;
                if broken == Broken::CommitFirst {
                    writer.commit(ring, size, broken)?;
                }
            }
            step
        } else {
            let fault = faults & 1 << id != 0 && p.written + 1 >= writer.data_words();
            if p.written < writer.data_words() && !fault {
                writer.data(ring, size, p.written, u64::from(id))?;
                p.written += 1;
                over = broken == Broken::CommitFirst && p.written == writer.data_words();
                Step::of("write data")
            } else if fault && ring.discarded & 1 << id == 0 {
                over = broken == Broken::NoDiscard;
                writer.flag(ring, size)?;
                Step::of("flag as discarded")
            } else {
                writer.commit(ring, size, broken)?;
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
            return Err("the ring is more than half full and nobody rings".into());
        }
        if setup.broken == Broken::NoStamp {
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

    /// Three that write records of four words into a ring of eight, one of which faults.
    const FULL: Setup = Setup {
        size: 64,
        start: 64,
        records: &[&[4], &[4], &[4]],
        drains: 2,
        faults: 0b100,
        broken: Broken::No,
    };

    /// Records of different length where a ring of sixteen words ends: pads, and a second lap.
    const LAPS: Setup = Setup {
        size: 128,
        start: 256 + 104,
        records: &[&[4, 5], &[5, 4]],
        drains: 2,
        faults: 0,
        broken: Broken::No,
    };

    fn breaks(setup: Setup, broken: Broken, words: &str) {
        caught(Rings::new(Setup { broken, ..setup }), Schedule::Preempted, words);
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
        breaks(FULL, Broken::PlainReserve, "reserved a word of record");
        caught(
            Rings::new(Setup { broken: Broken::PlainReserve, ..FULL }),
            Schedule::Nested,
            "reserved a word of record",
        );
    }

    #[test]
    fn a_commit_before_the_data_is_caught() {
        breaks(FULL, Broken::CommitFirst, "is torn");
    }

    #[test]
    fn writing_into_a_full_ring_is_caught() {
        breaks(FULL, Broken::NoFullRule, "reserved a word of record");
    }

    #[test]
    fn a_ring_must_be_twice_its_longest_record() {
        // After a record of three words one of six fits neither before the end nor, with the pad, behind it: never.
        let short = Setup { size: 64, start: 64, records: &[&[3, 6]], drains: 2, ..FULL };
        breaks(short, Broken::No, "an empty ring refused record 2");
        holds(Rings::new(Setup { size: 128, ..short }), Schedule::Preempted);
    }

    #[test]
    fn a_missing_pad_is_caught() {
        breaks(LAPS, Broken::NoPad, "is lost");
    }

    #[test]
    fn a_fault_that_leaves_its_record_open_is_caught() {
        breaks(FULL, Broken::NoDiscard, "is lost");
    }

    #[test]
    fn an_uncounted_drop_is_caught() {
        breaks(FULL, Broken::Uncounted, "fired 3, delivered 2, dropped 0");
    }

    #[test]
    fn a_commit_without_stamp_over_what_a_former_lap_left_is_caught() {
        breaks(FULL, Broken::NoStamp, "before it was committed");
    }

    #[test]
    fn giving_back_before_reading_is_caught() {
        breaks(FULL, Broken::GivesBackFirst, "");
    }

    #[test]
    fn silencing_the_bell_after_looking_is_caught() {
        breaks(FULL, Broken::SilencesLate, "nobody rings");
    }
}
