//! Values whose update takes more than one addition: minimum and maximum, the 128-bit sum of
//! squares, and the id of a thread (`self->` arrays).

use super::explore::{Phase, Step, World};

/// Lost exchanges after which a sample is dropped; 8 in programs.
const TRIES: u8 = 2;

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const LOST_RACE: u32 = 1;
    pub(in super::super) const DROPPED: u32 = 2;
    pub(in super::super) const CARRIED: u32 = 4;
    pub(in super::super) const GIVEN_UP: u32 = 8;
}

/// The operation on the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Keeps the greater of word 0 and the sample.
    Extreme,
    /// Adds the sample, a low and a high word, to words 0 and 1.
    Wide,
    /// Assigns an id from the counter (word 1) to the thread (word 0), once.
    ThreadId,
}

/// Parties that each perform the operation with their samples.
#[derive(Clone, Hash)]
pub(super) struct Values {
    kind: Kind,
    plain: bool,
    words: [u64; 2],
    parties: [Party; 3],
    drops: u64,
    /// The greatest or the sum of the samples that were not dropped; or the id of the thread.
    expected: u128,
}

#[derive(Clone, Hash)]
struct Party {
    samples: Vec<u128>,
    at: u8,
    found: u64,
    tries: u8,
}

impl Values {
    /// `plain`: by load and store where programs exchange or fetch.
    pub(super) fn new(kind: Kind, word: u64, samples: [&[u128]; 3], plain: bool) -> Values {
        let party = |s: &[u128]| Party { samples: s.to_vec(), at: 0, found: 0, tries: TRIES };
        let [a, b, c] = samples;
        let expected = u128::from(word);
        Values { kind, plain, words: [word, 0], parties: [party(a), party(b), party(c)], drops: 0, expected }
    }

    fn extreme(&mut self, party: usize, sample: u128) -> (bool, Step) {
        let (stored, plain) = (sample as u64, self.plain);
        let p = &mut self.parties[party];
        match p.at {
            0 => {
                p.found = self.words[0];
                p.at = 1;
                (stored <= p.found, Step::of("load"))
            }
            1 if plain || self.words[0] == p.found => {
                self.words[0] = stored;
                (true, Step::of("exchange"))
            }
            1 => {
                p.found = self.words[0];
                p.tries -= 1;
                let given_up = stored <= p.found;
                p.at = if p.tries == 0 { 2 } else { 1 };
                (given_up, Step::seeing("lose", seen::LOST_RACE | if given_up { seen::GIVEN_UP } else { 0 }))
            }
            _ => {
                self.drops += 1;
                (true, Step::seeing("count a drop", seen::DROPPED))
            }
        }
    }

    fn wide(&mut self, party: usize, sample: u128) -> (bool, Step) {
        let (low, high) = (sample as u64, (sample >> 64) as u64);
        let plain = self.plain;
        let p = &mut self.parties[party];
        match p.at {
            // Mutation: reads the low word before it adds.
            0 if plain => {
                (p.found, p.at) = (self.words[0], 1);
                (false, Step::of("load the low word"))
            }
            0 | 1 => {
                if p.at == 0 {
                    p.found = self.words[0];
                }
                self.words[0] = self.words[0].wrapping_add(low);
                p.at = 2;
                (false, Step::of("add to the low word"))
            }
            _ => {
                let carried = p.found.checked_add(low).is_none();
                self.words[1] = self.words[1].wrapping_add(high).wrapping_add(u64::from(carried));
                (true, Step::seeing("add to the high word", if carried { seen::CARRIED } else { 0 }))
            }
        }
    }

    fn thread_id(&mut self, party: usize) -> Result<(bool, Step), String> {
        let plain = self.plain;
        let p = &mut self.parties[party];
        let (id, step) = match p.at {
            0 => {
                p.at = 1;
                (self.words[0], Step::of("load the id"))
            }
            1 => {
                self.words[1] += 1;
                (p.found, p.at) = (self.words[1], 2);
                (0, Step::of("count up"))
            }
            _ if self.words[0] != 0 && !plain => (self.words[0], Step::seeing("lose", seen::LOST_RACE)),
            _ => {
                self.words[0] = p.found;
                (p.found, Step::of("exchange the id"))
            }
        };
        if id != 0 {
            if self.expected != 0 && self.expected != u128::from(id) {
                return Err(format!("one thread with ids {} and {id}", self.expected));
            }
            self.expected = u128::from(id);
        }
        Ok((id != 0, step))
    }
}

impl World for Values {
    fn parties(&self) -> usize {
        self.parties.len()
    }

    fn level(&self, party: usize) -> Option<u8> {
        Some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let p = &self.parties[party];
        match p.at {
            0 if p.samples.is_empty() => Phase::Finished,
            0 => Phase::Idle,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        let sample = *self.parties[party].samples.first().ok_or("nothing left to do")?;
        let drops = self.drops;
        let (done, step) = match self.kind {
            Kind::Extreme => self.extreme(party, sample),
            Kind::Wide => self.wide(party, sample),
            Kind::ThreadId => self.thread_id(party)?,
        };
        if done {
            match self.kind {
                Kind::Extreme if self.drops == drops => self.expected = self.expected.max(sample),
                Kind::Wide => self.expected = self.expected.wrapping_add(sample),
                _ => {}
            }
            let p = &mut self.parties[party];
            p.samples.remove(0);
            (p.at, p.found, p.tries) = (0, 0, TRIES);
        }
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        let value = match self.kind {
            Kind::Wide => u128::from(self.words[0]) | u128::from(self.words[1]) << 64,
            _ => u128::from(self.words[0]),
        };
        if value == self.expected { Ok(0) } else { Err(format!("{value:#x}, not {:#x}", self.expected)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    const BOTH: [Schedule; 2] = [Schedule::Nested, Schedule::Preempted];

    #[test]
    fn concurrent_maxima_keep_the_greatest_sample() {
        let samples: [&[u128]; 3] = [&[4, 9], &[7, 8], &[5, 6]];
        let nested = holds(Values::new(Kind::Extreme, 3, samples, false), Schedule::Nested);
        let preempted = holds(Values::new(Kind::Extreme, 3, samples, false), Schedule::Preempted);
        assert_eq!(nested.seen & (seen::LOST_RACE | seen::GIVEN_UP), seen::LOST_RACE | seen::GIVEN_UP);
        assert_eq!(preempted.seen, seen::LOST_RACE | seen::GIVEN_UP | seen::DROPPED);
        for schedule in BOTH {
            caught(Values::new(Kind::Extreme, 3, [&[4], &[7], &[6]], true), schedule, ", not");
        }
    }

    #[test]
    fn both_words_of_a_sum_agree_when_no_update_runs() {
        let (half, most) = (1u128 << 63, u128::from(u64::MAX));
        let samples: [&[u128]; 3] = [&[half, 3 << 64], &[half, most], &[1 << 64 | half]];
        for schedule in BOTH {
            let report = holds(Values::new(Kind::Wide, 7, samples, false), schedule);
            assert_eq!(report.seen, seen::CARRIED);
            caught(Values::new(Kind::Wide, 7, samples, true), schedule, ", not");
        }
    }

    #[test]
    fn a_thread_gets_one_id_from_concurrent_firings() {
        for schedule in BOTH {
            let report = holds(Values::new(Kind::ThreadId, 0, [&[0], &[0], &[0]], false), schedule);
            assert_eq!(report.seen, seen::LOST_RACE);
            caught(Values::new(Kind::ThreadId, 0, [&[0], &[0], &[0]], true), schedule, "one thread with ids");
        }
    }
}
