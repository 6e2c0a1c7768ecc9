//! Aggregations: find-or-insert and add of [`crate::table`], and the two-epoch snapshot.
//!
//! A firing performs the accesses of the emitted `aggregate` and `dt_find_N`: the epoch and the
//! first slot. If that slot does not hold the key: the epoch again, bounded probing with claim,
//! key, publication and count of claims. Then the two additions of an `avg`. The consumer advances
//! the epoch, waits until every running firing has ended (the grace period), and takes the idle
//! side with the real [`take_table`]. Both keys have the same hash, the worst case, and a table has
//! two slots.

use std::sync::atomic::{AtomicU64, Ordering};

use super::explore::{Phase, Step, World};
use crate::desc::AggFunc;
use crate::read::take_table;
use crate::table::{BUSY, CLAIMED, EMPTY, KEY, STATE, TableShape, tag};

const FUNC: AggFunc = AggFunc::Avg;
const SHAPE: TableShape =
    TableShape { key_size: 8, value_size: 16, stride: 32, slots_log2: 1, table_size: 128 };
/// Words of both sides.
const WORDS: usize = 2 * SHAPE.table_size as usize / 8;
/// Slots that are tried; 24 in programs.
const PROBES: u8 = 2;
/// The hash of every key.
const HASH: u64 = 0x1234_5678;

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const FIRST_SLOT: u32 = 1;
    pub(in super::super) const CLAIM_LOST: u32 = 2;
    pub(in super::super) const FULL: u32 = 4;
    pub(in super::super) const EPOCH_TURNED: u32 = 8;
    pub(in super::super) const WAITED: u32 = 16;
    pub(in super::super) const TWICE: u32 = 32;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// Adds by load and store.
    PlainAdd,
    /// Claims by load and store.
    PlainClaim,
    /// Publishes the slot before its key is written.
    EarlyPublication,
    /// Does not count its claim.
    UncountedClaim,
    /// The snapshot does not wait for a grace period.
    NoGrace,
    /// The snapshot takes the side that is in use.
    LiveSide,
    /// Does not count a drop.
    Uncounted,
}

/// Key and value that each party adds in each firing.
type Samples = &'static [&'static [(u64, u64)]];

#[derive(Clone)]
pub(super) struct Tables {
    samples: Samples,
    mutation: Mutation,
    state: State,
}

#[derive(Clone, Hash)]
struct State {
    epoch: u64,
    drops: u64,
    words: [u64; WORDS],
    parties: [Party; 3],
    consumer: Consumer,
    /// Count and sum by key: of the samples that were not dropped, and of the snapshots.
    added: [(u64, u64); 2],
    taken: [(u64, u64); 2],
}

#[derive(Clone, Hash, Default)]
struct Party {
    fired: u8,
    at: At,
    side: u64,
    slot: u8,
    step: u8,
    found: u64,
}

#[derive(Clone, Copy, Hash, Default, PartialEq, Eq)]
enum At {
    #[default]
    Epoch,
    First,
    FirstKey,
    EpochAgain,
    State,
    Claim,
    Key,
    Publish,
    CountClaim,
    Compare,
    Count,
    CountStore,
    Sum,
    Drop,
}

#[derive(Clone, Hash)]
struct Consumer {
    at: Snapshot,
    left: u8,
    side: u64,
    /// Parties whose firing was running when the grace period began and has not ended, as bits.
    waits: u8,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum Snapshot {
    Flip,
    Grace,
    Take,
}

impl std::hash::Hash for Tables {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

impl Tables {
    pub(super) fn new(samples: Samples, snapshots: u8, mutation: Mutation) -> Tables {
        let state = State {
            epoch: 0,
            drops: 0,
            words: [0; WORDS],
            parties: Default::default(),
            consumer: Consumer { at: Snapshot::Flip, left: snapshots, side: 0, waits: 0 },
            added: [(0, 0); 2],
            taken: [(0, 0); 2],
        };
        Tables { samples, mutation, state }
    }

    fn fire(&mut self, party: usize) -> Step {
        let mutation = self.mutation;
        let State { epoch, words, parties, drops, added, consumer, .. } = &mut self.state;
        let p = &mut parties[party];
        let (key, value) = self.samples[party][usize::from(p.fired)];
        let table = (p.side * u64::from(SHAPE.table_size) / 8) as usize;
        let slot = table + SHAPE.slot(u32::from(p.slot)) as usize / 8;
        let (state, key_at) = (slot + STATE as usize / 8, slot + KEY as usize / 8);
        let value_at = slot + SHAPE.value() as usize / 8;
        let mut over = None;
        let step = match p.at {
            At::Epoch => {
                p.side = *epoch & 1;
                p.at = At::First;
                Step::of("load the epoch")
            }
            At::First => {
                p.at = if words[state] == tag(HASH) { At::FirstKey } else { At::EpochAgain };
                Step::of("load the first slot's state")
            }
            At::FirstKey => {
                p.at = if words[key_at] == key { At::Count } else { At::EpochAgain };
                Step::seeing(
                    "load the first slot's key",
                    if words[key_at] == key { seen::FIRST_SLOT } else { 0 },
                )
            }
            At::EpochAgain => {
                let turned = if p.side != *epoch & 1 { seen::EPOCH_TURNED } else { 0 };
                p.side = *epoch & 1;
                p.at = At::State;
                Step::seeing("load the epoch again", turned)
            }
            At::State => {
                p.at = match words[state] {
                    EMPTY => At::Claim,
                    found if found == tag(HASH) => At::Compare,
                    _ => next(p),
                };
                Step::of("load a slot's state")
            }
            At::Claim if words[state] != EMPTY && mutation != Mutation::PlainClaim => {
                p.at = next(p);
                Step::seeing("lose a claim", seen::CLAIM_LOST)
            }
            At::Claim => {
                words[state] = BUSY;
                p.at = if mutation == Mutation::EarlyPublication { At::Publish } else { At::Key };
                Step::of("claim a slot")
            }
            At::Key => {
                words[key_at] = key;
                let published = mutation == Mutation::EarlyPublication;
                p.at = if published { At::CountClaim } else { At::Publish };
                Step::of("write the key")
            }
            At::Publish => {
                words[state] = tag(HASH);
                p.at = match mutation {
                    Mutation::EarlyPublication => At::Key,
                    Mutation::UncountedClaim => At::Count,
                    _ => At::CountClaim,
                };
                Step::of("publish the slot")
            }
            At::CountClaim => {
                words[table + CLAIMED as usize / 8] += 1;
                p.at = At::Count;
                Step::of("count the claim")
            }
            At::Compare => {
                p.at = if words[key_at] == key { At::Count } else { next(p) };
                Step::of("compare the key")
            }
            At::Count if mutation == Mutation::PlainAdd => {
                (p.found, p.at) = (words[value_at], At::CountStore);
                Step::of("load the count")
            }
            At::CountStore => {
                words[value_at] = p.found + 1;
                p.at = At::Sum;
                Step::of("store the count")
            }
            At::Count => {
                words[value_at] += 1;
                p.at = At::Sum;
                Step::of("add to the count")
            }
            At::Sum => {
                words[value_at + 1] += value;
                over = Some(true);
                Step::of("add to the sum")
            }
            At::Drop => {
                *drops += u64::from(mutation != Mutation::Uncounted);
                over = Some(false);
                Step::seeing("count a drop", seen::FULL)
            }
        };
        if let Some(stored) = over {
            *p = Party { fired: p.fired + 1, ..Party::default() };
            consumer.waits &= !(1 << party);
            if stored {
                let sum = &mut added[usize::from(key != 0)];
                *sum = (sum.0 + 1, sum.1 + value);
            }
        }
        step
    }

    fn snapshot(&mut self) -> Result<Step, String> {
        let State { epoch, parties, consumer, .. } = &mut self.state;
        Ok(match consumer.at {
            Snapshot::Flip => {
                consumer.side = *epoch & 1;
                *epoch += u64::from(self.mutation != Mutation::LiveSide);
                consumer.at = Snapshot::Grace;
                Step::of("turn the epoch")
            }
            Snapshot::Grace => {
                let firing = (0..).zip(parties.iter()).filter(|(_, p)| p.at != At::Epoch);
                consumer.waits = firing.fold(0, |waits, (i, _)| waits | 1u8 << i);
                let waits = if consumer.waits != 0 { seen::WAITED } else { 0 };
                if self.mutation == Mutation::NoGrace {
                    consumer.waits = 0;
                }
                consumer.at = Snapshot::Take;
                Step::seeing("begin a grace period", waits)
            }
            Snapshot::Take => {
                let side = std::mem::take(&mut consumer.side);
                (consumer.at, consumer.left) = (Snapshot::Flip, consumer.left - 1);
                let seen = self.state.take(side)?;
                Step::seeing("take the idle side", seen)
            }
        })
    }
}

impl State {
    fn take(&mut self, side: u64) -> Result<u32, String> {
        let memory: Vec<AtomicU64> = self.words.iter().map(|w| AtomicU64::new(*w)).collect();
        let mut entries = Vec::new();
        take_table((&memory, 0, SHAPE.table_size), (FUNC, SHAPE), (side as u32, 1), &mut |_, key, words| {
            let key = key.try_into().map_or(u64::MAX, u64::from_le_bytes);
            entries.push((key, words[0], words[1]));
        });
        for (word, now) in self.words.iter_mut().zip(&memory) {
            *word = now.load(Ordering::Relaxed);
        }
        let from = (side * u64::from(SHAPE.table_size) / 8) as usize;
        if self.words[from..from + SHAPE.table_size as usize / 8].iter().any(|w| *w != 0) {
            return Err("a side that was taken is not empty".into());
        }
        for (key, count, sum) in &entries {
            let taken = match key {
                0 => &mut self.taken[0],
                5 => &mut self.taken[1],
                _ => return Err(format!("key {key} was never added to")),
            };
            *taken = (taken.0 + count, taken.1 + sum);
        }
        Ok(if entries.len() == 2 && entries[0].0 == entries[1].0 { seen::TWICE } else { 0 })
    }
}

/// The next slot to try, or the end of probing.
fn next(p: &mut Party) -> At {
    p.step += 1;
    if p.step == PROBES {
        return At::Drop;
    }
    p.slot = (p.slot + p.step) & (SHAPE.slots() as u8 - 1);
    At::State
}

impl World for Tables {
    fn parties(&self) -> usize {
        self.samples.len() + 1
    }

    fn level(&self, party: usize) -> Option<u8> {
        (party < self.samples.len()).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let Some(samples) = self.samples.get(party) else {
            return match &self.state.consumer {
                c if c.left == 0 => Phase::Finished,
                c if c.at == Snapshot::Take && c.waits != 0 => Phase::Waiting,
                _ => Phase::Running,
            };
        };
        let p = &self.state.parties[party];
        match p.at {
            At::Epoch if usize::from(p.fired) == samples.len() => Phase::Finished,
            At::Epoch => Phase::Idle,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        if party < self.samples.len() { Ok(self.fire(party)) } else { self.snapshot() }
    }

    fn end(&self) -> Result<u32, String> {
        let mut last = self.state.clone();
        let seen = last.take(0)? | last.take(1)?;
        let fired: usize = self.samples.iter().map(|s| s.len()).sum();
        let counted = last.added[0].0 + last.added[1].0 + last.drops;
        if last.taken != last.added || counted != fired as u64 {
            return Err(format!(
                "fired {fired}, added {:?}, taken {:?}, dropped {}",
                last.added, last.taken, last.drops
            ));
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    /// Three parties: two add to one key, one to another.
    const THREE: Samples = &[&[(5, 10), (5, 20)], &[(5, 30)], &[(0, 40)]];
    /// Two parties, with more firings and snapshots.
    const TWO: Samples = &[&[(5, 10), (0, 20)], &[(5, 30), (5, 40)]];

    fn breaks(samples: Samples, mutation: Mutation, words: &str) {
        caught(Tables::new(samples, 1, mutation), Schedule::Preempted, words);
    }

    #[test]
    fn sums_are_exact_through_snapshots() {
        holds(Tables::new(THREE, 2, Mutation::None), Schedule::Nested);
        let three = holds(Tables::new(THREE, 1, Mutation::None), Schedule::Preempted);
        let two = holds(Tables::new(TWO, 2, Mutation::None), Schedule::Preempted);
        let all = seen::FIRST_SLOT | seen::CLAIM_LOST | seen::EPOCH_TURNED | seen::WAITED | seen::TWICE;
        assert_eq!(two.seen & all, all);
        assert_eq!(three.seen, all | seen::FULL);
    }

    #[test]
    fn adding_by_load_and_store_is_caught() {
        breaks(THREE, Mutation::PlainAdd, "taken");
        caught(Tables::new(THREE, 1, Mutation::PlainAdd), Schedule::Nested, "taken");
    }

    #[test]
    fn claiming_by_load_and_store_is_caught() {
        breaks(THREE, Mutation::PlainClaim, "");
    }

    #[test]
    fn publishing_before_the_key_is_written_is_caught() {
        breaks(THREE, Mutation::EarlyPublication, "taken");
    }

    #[test]
    fn an_uncounted_claim_is_caught() {
        breaks(THREE, Mutation::UncountedClaim, "not empty");
    }

    #[test]
    fn a_snapshot_without_grace_period_is_caught() {
        breaks(TWO, Mutation::NoGrace, "");
        caught(Tables::new(TWO, 1, Mutation::NoGrace), Schedule::Nested, "");
    }

    #[test]
    fn a_snapshot_of_the_side_in_use_is_caught() {
        breaks(TWO, Mutation::LiveSide, "");
    }

    #[test]
    fn an_uncounted_drop_is_caught() {
        breaks(THREE, Mutation::Uncounted, "dropped 0");
    }
}
