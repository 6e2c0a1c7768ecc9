//! Policy fill: a ring that is closed when a record does not fit, and read when tracing has ended.

use super::explore::{Phase, Step, World};
use super::ring::{Mutation, Outcome, Ring, Writer};

/// Bytes of the ring.
const SIZE: u64 = 64;

/// Added to the length of a record: its clause calls `exit()`.
const EXIT: u8 = 64;

/// Parties that record into one ring.
#[derive(Clone)]
pub(super) struct Fill {
    /// For each party the lengths of its records in words, by clause of its only firing, with
    /// [`EXIT`].
    records: &'static [&'static [u8]],
    mutation: Mutation,
    ring: Ring,
    parties: Vec<Party>,
}

#[derive(Clone, Hash)]
struct Party {
    clause: u8,
    begun: bool,
    ended: bool,
    writer: Option<Writer>,
    /// Data words written; [`NOT_YET`] before the record is reserved.
    written: u8,
}

const NOT_YET: u8 = 0xff;

impl std::hash::Hash for Fill {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.ring, &self.parties).hash(state);
    }
}

impl Fill {
    pub(super) fn new(records: &'static [&'static [u8]], mutation: Mutation) -> Fill {
        let party = Party { clause: 0, begun: false, ended: false, writer: None, written: NOT_YET };
        // The bytes of the longest record with exit(): here none has a pad before it.
        let exits = records.iter().flat_map(|r| r.iter()).filter(|r| **r > EXIT);
        let kept_for_exit = exits.map(|r| 8 * u64::from(r - EXIT)).max().unwrap_or(0);
        let mut ring = Ring::new(0);
        ring.kept_for_exit = kept_for_exit;
        Fill { records, mutation, ring, parties: vec![party; records.len()] }
    }

    fn id(&self, party: usize, clause: u8) -> u8 {
        let before: usize = self.records[..party].iter().map(|r| r.len()).sum();
        before as u8 + clause + 1
    }
}

impl World for Fill {
    fn parties(&self) -> usize {
        self.records.len()
    }

    fn level(&self, party: usize) -> Option<u8> {
        Some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let p = &self.parties[party];
        match (p.begun, p.ended) {
            (_, true) => Phase::Finished,
            (true, false) => Phase::Running,
            (false, false) => Phase::Idle,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        let clause = self.parties[party].clause;
        let (id, mutation) = (self.id(party, clause), self.mutation);
        let clauses = self.records[party];
        let Fill { ring, parties, .. } = self;
        let p = &mut parties[party];
        if !p.begun {
            // The activity is read once, at the start of a firing.
            (p.begun, p.ended) = (true, ring.stopped);
            return Ok(Step::of("read the activity"));
        }
        let record = clauses[usize::from(clause)];
        let exits = record > EXIT;
        let kept = if exits { 0 } else { ring.kept_for_exit };
        let writer = p.writer.get_or_insert_with(|| Writer::filling(id, record % EXIT, kept));
        let mut over = false;
        let step = if p.written == NOT_YET {
            let (outcome, step) = writer.reserve(ring, SIZE, mutation)?;
            over = outcome == Outcome::Dropped;
            if outcome == Outcome::Reserved {
                p.written = 0;
            } else if over && exits && ring.exits == 0 && !writer.is_out_of_tries() {
                return Err("the only exit() is lost".into());
            }
            step
        } else if p.written < writer.data_words() {
            writer.data(ring, SIZE, p.written, u64::from(id))?;
            p.written += 1;
            Step::of("write data")
        } else {
            writer.commit(ring, SIZE, mutation)?;
            over = true;
            Step::of("commit")
        };
        if over {
            let clause = clause + 1;
            let ended = usize::from(clause) == clauses.len();
            *p = Party { clause, begun: true, ended, writer: None, written: NOT_YET };
        }
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        if self.ring.refused && !self.ring.stopped {
            return Err("a full ring does not end tracing".into());
        }
        // The clauses of firings that began before tracing ended.
        let fired = self.parties.iter().map(|p| u64::from(p.clause)).sum();
        self.ring.end(SIZE, fired)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::super::ring::seen;
    use super::*;

    /// A record that does not fit behind the first one, and shorter ones that would.
    const MIXED: &[&[u8]] = &[&[4, 3], &[5, 3], &[4]];

    #[test]
    fn a_full_ring_ends_tracing_and_keeps_its_first_records() {
        holds(Fill::new(MIXED, Mutation::None), Schedule::Nested);
        let preempted = holds(Fill::new(MIXED, Mutation::None), Schedule::Preempted);
        let all = seen::FULL | seen::CLOSED | seen::LOST_CLOSE | seen::LOST_RACE | seen::OUT_OF_TRIES;
        assert_eq!(preempted.seen & all, all);
        // Without space behind the last record.
        holds(Fill::new(&[&[4, 4], &[4, 3], &[3]], Mutation::None), Schedule::Preempted);
    }

    #[test]
    fn a_full_ring_has_space_for_an_exit() {
        const BEHIND: &[&[u8]] = &[&[4, EXIT + 3], &[4, 3]];
        const TWO: &[&[u8]] = &[&[5, EXIT + 3], &[EXIT + 3]];
        for records in [BEHIND, TWO] {
            holds(Fill::new(records, Mutation::None), Schedule::Nested);
            let preempted = holds(Fill::new(records, Mutation::None), Schedule::Preempted);
            assert!(preempted.seen & (seen::CLOSED | seen::FULL) != 0);
        }
    }

    #[test]
    fn a_ring_that_is_closed_at_its_end_is_caught_by_an_exit() {
        caught(Fill::new(&[&[4, 3, EXIT + 3]], Mutation::ClosesAll), Schedule::Nested, "the only exit");
    }

    #[test]
    fn a_full_ring_that_is_not_closed_is_caught() {
        for schedule in [Schedule::Nested, Schedule::Preempted] {
            caught(Fill::new(MIXED, Mutation::NoClose), schedule, "after one that did not fit");
        }
    }

    #[test]
    fn closing_by_a_store_is_caught() {
        for schedule in [Schedule::Nested, Schedule::Preempted] {
            caught(Fill::new(MIXED, Mutation::PlainClose), schedule, "reserved a word of record");
        }
    }

    #[test]
    fn closing_without_a_pad_is_caught() {
        caught(Fill::new(MIXED, Mutation::NoClosingPad), Schedule::Nested, "is lost");
    }

    #[test]
    fn a_full_ring_that_does_not_end_tracing_is_caught() {
        caught(Fill::new(MIXED, Mutation::NoStop), Schedule::Nested, "does not end tracing");
    }

    #[test]
    fn drops_of_a_full_ring_that_are_not_counted_are_caught() {
        caught(Fill::new(MIXED, Mutation::Uncounted), Schedule::Nested, "dropped 0");
    }
}
