//! A whole firing: takes a scratch slot, makes its string there, reserves, copies, commits,
//! releases the slot.
//!
//! `slots` and `rings` show that each of the two mechanisms is exact. This world checks their
//! order: the slot is held until the record that is copied from it is committed.

use super::explore::{Phase, Step, World};
use super::ring::{self, Drainer, Ring, Writer};
use super::slots::{self, Slots, Taker};

/// Words of the string; the record has as many and a header.
const STRING: u8 = 1;
/// Bytes of the ring.
const SIZE: u64 = 64;

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutation {
    None,
    /// Releases the slot before the record is written.
    EarlyRelease,
    /// A firing that finds the ring full keeps its slot.
    KeepsSlot,
}

/// Parties that fire once each, and a consumer.
#[derive(Clone, Hash)]
pub(super) struct Firings {
    ring: Ring,
    slots: Slots,
    parties: [Party; 3],
    drainer: Drainer,
    mutation: Mutation,
}

#[derive(Clone, Hash, PartialEq, Eq)]
enum At {
    Idle,
    Take,
    Make(u8),
    Reserve,
    Load(u8),
    Copy(u8, u64),
    Commit,
    Release,
    Done,
}

#[derive(Clone, Hash)]
struct Party {
    at: At,
    taker: Taker,
    slot: usize,
    writer: Writer,
}

impl Firings {
    pub(super) fn new(start: u64, drains: u8, mutation: Mutation) -> Firings {
        let party = |id: u8| Party {
            at: At::Idle,
            taker: Taker::new(id),
            slot: 0,
            writer: Writer::new(id, 3 + STRING),
        };
        let parties = [party(1), party(2), party(3)];
        let drainer = Drainer::new(drains);
        Firings { ring: Ring::new(start), slots: Slots::default(), parties, drainer, mutation }
    }
}

impl World for Firings {
    fn parties(&self) -> usize {
        self.parties.len() + 1
    }

    fn level(&self, party: usize) -> Option<u8> {
        (party < self.parties.len()).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        match self.parties.get(party).map(|p| &p.at) {
            None if self.drainer.finished() => Phase::Finished,
            Some(At::Done) => Phase::Finished,
            Some(At::Idle) => Phase::Idle,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        let whole = ring::Mutation::None;
        let Some(p) = self.parties.get_mut(party) else {
            return self.drainer.step(&mut self.ring, SIZE, whole);
        };
        let id = party as u64 + 1;
        let (next, step) = match p.at.clone() {
            At::Idle | At::Take => {
                let (outcome, step) = p.taker.take(&mut self.slots, slots::Mutation::None)?;
                let next = match outcome {
                    slots::Outcome::On => At::Take,
                    slots::Outcome::Dropped => At::Done,
                    slots::Outcome::Taken(slot) => {
                        p.slot = slot;
                        At::Make(0)
                    }
                };
                (next, step)
            }
            At::Make(word) => {
                self.slots.store(p.slot, usize::from(word), id);
                (
                    if word + 1 < STRING { At::Make(word + 1) } else { At::Reserve },
                    Step::of("make the string"),
                )
            }
            At::Reserve => {
                let (outcome, step) = p.writer.reserve(&mut self.ring, SIZE, whole)?;
                let next = match outcome {
                    ring::Outcome::On => At::Reserve,
                    ring::Outcome::Dropped if self.mutation == Mutation::KeepsSlot => At::Done,
                    ring::Outcome::Dropped => At::Release,
                    ring::Outcome::Reserved => {
                        if self.mutation == Mutation::EarlyRelease {
                            p.taker.release(&mut self.slots, slots::Mutation::None);
                        }
                        At::Load(0)
                    }
                };
                (next, step)
            }
            At::Load(word) => {
                let value = self.slots.load(p.slot, usize::from(word));
                (At::Copy(word, value), Step::of("load from the slot"))
            }
            At::Copy(word, value) => {
                p.writer.data(&mut self.ring, SIZE, word, value)?;
                let next = if word + 1 < STRING { At::Load(word + 1) } else { At::Commit };
                (next, Step::of("store into the record"))
            }
            At::Commit => {
                p.writer.commit(&mut self.ring, SIZE, whole)?;
                let released = self.mutation == Mutation::EarlyRelease;
                (if released { At::Done } else { At::Release }, Step::of("commit"))
            }
            At::Release => {
                let (_, step) = p.taker.release(&mut self.slots, slots::Mutation::None);
                (At::Done, step)
            }
            At::Done => return Err("fired already".into()),
        };
        p.at = next;
        if p.at == At::Done {
            // The state of a finished firing does not matter.
            (p.taker, p.writer, p.slot) = (Taker::new(0), Writer::new(0, 0), 0);
        }
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        self.slots.end()?;
        let fired = self.parties.len() as u64;
        self.ring.end(SIZE, fired - self.slots.drops)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    /// One record and a bit until the ring's end.
    const START: u64 = 24;

    #[test]
    fn a_string_reaches_the_consumer_whole() {
        holds(Firings::new(START, 2, Mutation::None), Schedule::Nested);
        let preempted = holds(Firings::new(START, 1, Mutation::None), Schedule::Preempted);
        let all =
            slots::seen::NONE_FREE | slots::seen::LOST_RACE | ring::seen::LOST_RACE | ring::seen::PADDED;
        assert_eq!(preempted.seen & all, all);
    }

    #[test]
    fn releasing_the_slot_before_the_commit_is_caught() {
        for schedule in [Schedule::Nested, Schedule::Preempted] {
            caught(Firings::new(START, 1, Mutation::EarlyRelease), schedule, "is torn");
        }
    }

    #[test]
    fn keeping_the_slot_after_a_drop_is_caught() {
        for schedule in [Schedule::Nested, Schedule::Preempted] {
            caught(Firings::new(START, 1, Mutation::KeepsSlot), schedule, "never given back");
        }
    }
}
