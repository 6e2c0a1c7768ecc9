//! Scratch slots: take and release of [`crate::scratch`], several firings on the mask of one CPU.
//!
//! There are two slots here, so that three parties find the mask full. A firing writes a mark into
//! its slot, reads it again, and releases the slot. The explorer keeps the owner of each slot
//! beside the memory.

use super::explore::{Phase, Step, World};

/// Slots per CPU; 8 in programs.
pub(super) const SLOTS: u64 = 2;
/// Tries to take one; 4 in programs.
const TRIES: u8 = 2;

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const NONE_FREE: u32 = 1 << 8;
    pub(in super::super) const LOST_RACE: u32 = 1 << 9;
    pub(in super::super) const SECOND_SLOT: u32 = 1 << 10;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// Takes by load and store.
    PlainTake,
    /// Releases by load and store.
    PlainRelease,
    /// A nesting counter instead of a mask: the slot of a firing is the depth that it found.
    Depth,
}

/// A CPU's mask and slots; `holders` is for the explorer.
#[derive(Clone, Hash, Default)]
pub(super) struct Slots {
    taken: u64,
    pub(super) drops: u64,
    memory: [[u64; 2]; SLOTS as usize],
    holders: [u8; SLOTS as usize],
}

impl Slots {
    /// A store into a slot.
    pub(super) fn store(&mut self, slot: usize, word: usize, value: u64) {
        self.memory[slot][word] = value;
    }

    /// A load from a slot.
    pub(super) fn load(&self, slot: usize, word: usize) -> u64 {
        self.memory[slot][word]
    }

    fn hold(&mut self, slot: usize, who: u8) -> Result<(), String> {
        match std::mem::replace(&mut self.holders[slot], who) {
            0 => Ok(()),
            other => Err(format!("slot {slot} has two owners, {other} and {who}")),
        }
    }

    /// The end: checks that all slots are free.
    pub(super) fn end(&self) -> Result<(), String> {
        if self.taken == 0 { Ok(()) } else { Err(format!("slots {:#b} are never given back", self.taken)) }
    }
}

/// Takes and releases a slot for a firing.
#[derive(Clone, Hash)]
pub(super) struct Taker {
    at: At,
    who: u8,
    found: u64,
    tries: u8,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum At {
    Load,
    Exchange,
    Drop,
    Held,
    Store,
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Call again.
    On,
    /// The slot is taken.
    Taken(usize),
    /// No slot was free: a counted drop.
    Dropped,
}

impl Taker {
    pub(super) fn new(who: u8) -> Taker {
        Taker { at: At::Load, who, found: 0, tries: TRIES }
    }

    /// The next access of `take_slot`.
    pub(super) fn take(&mut self, slots: &mut Slots, mutation: Mutation) -> Result<(Outcome, Step), String> {
        if mutation == Mutation::Depth {
            return self.descend(slots);
        }
        Ok(match self.at {
            At::Load => {
                self.found = slots.taken;
                let none = !self.found & ((1 << SLOTS) - 1) == 0;
                self.at = if none { At::Drop } else { At::Exchange };
                (Outcome::On, Step::seeing("load the mask", if none { seen::NONE_FREE } else { 0 }))
            }
            At::Exchange if slots.taken != self.found && mutation != Mutation::PlainTake => {
                self.tries -= 1;
                self.at = if self.tries == 0 { At::Drop } else { At::Load };
                (Outcome::On, Step::seeing("lose the mask", seen::LOST_RACE))
            }
            At::Exchange => {
                let free = !self.found;
                let bit = free & free.wrapping_neg();
                slots.taken = self.found | bit;
                let slot = bit.trailing_zeros() as usize;
                slots.hold(slot, self.who)?;
                (self.found, self.at) = (bit, At::Held);
                (
                    Outcome::Taken(slot),
                    Step::seeing("take a slot", if slot > 0 { seen::SECOND_SLOT } else { 0 }),
                )
            }
            At::Drop => {
                slots.drops += 1;
                (Outcome::Dropped, Step::of("count a scratch drop"))
            }
            At::Held | At::Store => return Err("taken already".into()),
        })
    }

    fn descend(&mut self, slots: &mut Slots) -> Result<(Outcome, Step), String> {
        if self.at == At::Drop {
            slots.taken -= 1;
            slots.drops += 1;
            return Ok((Outcome::Dropped, Step::of("count a scratch drop")));
        }
        let depth = slots.taken;
        slots.taken += 1;
        if depth >= SLOTS {
            self.at = At::Drop;
            return Ok((Outcome::On, Step::of("too deep")));
        }
        slots.hold(depth as usize, self.who)?;
        (self.found, self.at) = (1 << depth, At::Held);
        Ok((Outcome::Taken(depth as usize), Step::of("go deeper")))
    }

    /// The next access of `release_slot`; true when it is done.
    pub(super) fn release(&mut self, slots: &mut Slots, mutation: Mutation) -> (bool, Step) {
        let slot = self.found.trailing_zeros() as usize;
        match (mutation, self.at) {
            (Mutation::Depth, _) => {
                slots.taken -= 1;
                slots.holders[slot] = 0;
                (true, Step::of("come back up"))
            }
            (Mutation::PlainRelease, At::Held) => {
                (self.found, self.at) = (slots.taken & !self.found, At::Store);
                slots.holders[slot] = 0;
                (false, Step::of("load the mask"))
            }
            (Mutation::PlainRelease, _) => {
                slots.taken = self.found;
                (true, Step::of("store the mask"))
            }
            _ => {
                slots.taken &= !self.found;
                slots.holders[slot] = 0;
                (true, Step::of("release the slot"))
            }
        }
    }
}

/// Firings on one mask.
#[derive(Clone, Hash)]
pub(super) struct Firings {
    slots: Slots,
    parties: [Party; 4],
    ran: u64,
    /// Number of firings of each party.
    firings: [u8; 4],
    mutation: u8,
}

#[derive(Clone, Hash, Default)]
struct Party {
    fired: u8,
    taker: Option<Taker>,
    slot: Option<usize>,
    marked: u8,
}

impl Firings {
    /// `firings` of each party; a later one has the higher level.
    pub(super) fn new(firings: [u8; 4], mutation: Mutation) -> Firings {
        let mutation = mutation as u8;
        Firings { slots: Slots::default(), parties: Default::default(), ran: 0, firings, mutation }
    }

    fn mutation(&self) -> Mutation {
        [Mutation::None, Mutation::PlainTake, Mutation::PlainRelease, Mutation::Depth]
            [usize::from(self.mutation)]
    }
}

impl World for Firings {
    fn parties(&self) -> usize {
        4
    }

    fn level(&self, party: usize) -> Option<u8> {
        Some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let p = &self.parties[party];
        match p.taker {
            Some(_) => Phase::Running,
            None if p.fired == self.firings[party] => Phase::Finished,
            None => Phase::Idle,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        let mutation = self.mutation();
        let p = &mut self.parties[party];
        let who = 1 + party as u8;
        let taker = p.taker.get_or_insert_with(|| Taker::new(who));
        let Some(slot) = p.slot else {
            let (outcome, step) = taker.take(&mut self.slots, mutation)?;
            match outcome {
                Outcome::Taken(slot) => p.slot = Some(slot),
                Outcome::Dropped => *p = Party { fired: p.fired + 1, ..Party::default() },
                Outcome::On => {}
            }
            return Ok(step);
        };
        let mark = u64::from(who);
        match p.marked {
            0 => self.slots.store(slot, 0, mark),
            1 if self.slots.load(slot, 0) != mark => {
                return Err(format!("{who} found the mark of {}", self.slots.load(slot, 0)));
            }
            1 => {}
            _ => {
                let (done, step) = taker.release(&mut self.slots, mutation);
                if done {
                    *p = Party { fired: p.fired + 1, ..Party::default() };
                    self.ran += 1;
                }
                return Ok(step);
            }
        }
        p.marked += 1;
        Ok(Step::of("use the slot"))
    }

    fn end(&self) -> Result<u32, String> {
        self.slots.end()?;
        let fired: u64 = self.firings.iter().map(|f| u64::from(*f)).sum();
        if self.ran + self.slots.drops != fired {
            return Err(format!("fired {fired}, ran {}, dropped {}", self.ran, self.slots.drops));
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    const FIRINGS: [u8; 4] = [2, 2, 1, 0];

    #[test]
    fn a_slot_has_one_owner() {
        let nested = holds(Firings::new([2, 2, 2, 2], Mutation::None), Schedule::Nested);
        let preempted = holds(Firings::new(FIRINGS, Mutation::None), Schedule::Preempted);
        let all = seen::NONE_FREE | seen::LOST_RACE | seen::SECOND_SLOT;
        assert_eq!(preempted.seen, all);
        // An interrupt has released its slot when the interrupted party continues, so the mask is
        // unchanged.
        assert_eq!(nested.seen, all & !seen::LOST_RACE);
    }

    #[test]
    fn taking_by_load_and_store_is_exact_only_while_firings_nest() {
        holds(Firings::new(FIRINGS, Mutation::PlainTake), Schedule::Nested);
        caught(Firings::new(FIRINGS, Mutation::PlainTake), Schedule::Preempted, "");
        caught(Firings::new([1, 1, 0, 0], Mutation::PlainTake), Schedule::Preempted, "never given back");
    }

    #[test]
    fn releasing_by_load_and_store_is_exact_only_while_firings_nest() {
        holds(Firings::new(FIRINGS, Mutation::PlainRelease), Schedule::Nested);
        caught(Firings::new(FIRINGS, Mutation::PlainRelease), Schedule::Preempted, "");
    }

    #[test]
    fn a_nesting_counter_is_exact_only_while_firings_nest() {
        holds(Firings::new([2, 2, 2, 2], Mutation::Depth), Schedule::Nested);
        caught(Firings::new(FIRINGS, Mutation::Depth), Schedule::Preempted, "two owners");
    }
}
