//! The stack store of [`crate::stacks`]: finding or storing a stack, and the eviction of a side.
//!
//! A firing performs the accesses of the emitted `dt_stack_N`: the side, the slots until the id or
//! a free one, the reservation of words, the doorbell, the entry, the claim of a slot by its place,
//! the id. Then it commits a record with the id, which it has reserved before or after that. (Only
//! the world with gaps takes reserving and committing apart.) The consumer replaces the side, waits
//! until every running firing has ended (the grace period), reads the old side with the real
//! [`Side`], forgets what it may, and drains the records up to the first that is not committed.
//! Every record must resolve to the stack that its firing saw, and the doorbell must be rung for
//! each side that becomes half full. All ids have the same first slot, the worst case.
//!
//! The time of a record is the number of evictions before its firing began. What the consumer knows
//! of the times of future records is modelled in [`super::order`]: here the least time of a record
//! that is not consumed and of a firing that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use super::explore::{Phase, Step, World};
use crate::stacks::{BlockShape, ENTRY_LEAST, PCS, Side};

/// Two slots, and words for two entries.
const SHAPE: BlockShape = BlockShape { size: 64 + 2 * 16 + 2 * 8 * ENTRY_LEAST, slots: 2 };
/// Words of a side.
const WORDS: usize = SHAPE.size as usize / 8;
/// Word of the first slot.
const SLOTS: usize = 8;
/// Slots that are tried; 32 in programs.
const PROBES: u8 = 2;

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const FOUND: u32 = 1;
    pub(in super::super) const CLAIM_LOST: u32 = 2;
    pub(in super::super) const FULL: u32 = 4;
    pub(in super::super) const STORED_TWICE: u32 = 8;
    pub(in super::super) const WAITED: u32 = 16;
    pub(in super::super) const EVICTED: u32 = 32;
    pub(in super::super) const FORGOTTEN: u32 = 64;
    pub(in super::super) const OLD_SIDE: u32 = 128;
    pub(in super::super) const GAP: u32 = 256;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// Writes the id before the entry is complete.
    EarlyId,
    /// Reserves words by load and store.
    PlainReserve,
    /// Claims a slot by load and store.
    PlainClaim,
    /// The eviction does not wait for a grace period.
    NoGrace,
    /// Stacks are forgotten before the records that name them are drained.
    EarlyForget,
    /// Stacks are forgotten after a drain, even one that stopped at a record that was not
    /// committed.
    CountedDrains,
    /// Rings the doorbell after the stack is stored, and not if another program has stored it.
    LateDoorbell,
    /// The old side is freed without being read.
    Unread,
    /// Does not count a drop.
    Uncounted,
}

/// The ids that each party meets.
type Firings = &'static [&'static [u64]];

#[derive(Clone)]
pub(super) struct Store {
    firings: Firings,
    mutation: Mutation,
    /// Records are reserved and committed in two steps: by the first party before it takes the
    /// stack, by others after it.
    gaps: bool,
    state: State,
}

#[derive(Clone, Hash)]
struct State {
    /// Every side, until it is freed.
    sides: Vec<Option<[u64; WORDS]>>,
    /// The doorbell was rung for these sides, as bits.
    rung: u8,
    drops: u64,
    parties: [Party; 3],
    consumer: Consumer,
    /// The records that are not drained.
    records: Vec<Record>,
    /// Number of drained records, with and without a stack.
    resolved: u64,
    none: u64,
}

#[derive(Clone, Hash)]
struct Record {
    party: usize,
    time: u8,
    /// Once it is committed. 0: no stack.
    id: Option<u64>,
}

#[derive(Clone, Hash, Default)]
struct Party {
    fired: u8,
    /// When the firing began.
    time: u8,
    at: At,
    side: usize,
    slot: u8,
    step: u8,
    place: u64,
    claimed: u64,
}

#[derive(Clone, Copy, Hash, Default, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    Side,
    Find,
    Reserve,
    ReserveStore,
    Doorbell,
    Head,
    Frame,
    Claim,
    ClaimStore,
    Recheck,
    Id,
    Commit,
    Drop,
    CommitNone,
}

#[derive(Clone, Hash)]
struct Consumer {
    at: Evict,
    /// Evictions to come.
    left: u8,
    /// Parties whose firing was running when the grace period began and has not ended, as bits.
    waits: u8,
    /// Evicted stacks, and the evictions and drains before their eviction.
    kept: BTreeMap<u64, (u8, u8)>,
    evictions: u8,
    drains: u8,
    /// Every record of a firing that began before so many evictions is drained.
    complete: u8,
}

#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum Evict {
    Replace,
    Grace,
    Read,
    Forget,
    Drain,
}

impl std::hash::Hash for Store {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

/// The only frame of a stack.
fn frame(id: u64) -> u64 {
    id | 1 << 63
}

/// Finds a stack in a side with the consumer's code.
fn find(side: &[u64; WORDS], id: u64) -> Option<u64> {
    let memory: Vec<AtomicU64> = side.iter().map(|w| AtomicU64::new(*w)).collect();
    Side::new(&memory, SHAPE).find(id).and_then(|s| s.pcs.first().copied())
}

impl Store {
    pub(super) fn new(firings: Firings, evictions: u8, mutation: Mutation) -> Store {
        let consumer = Consumer {
            at: Evict::Replace,
            left: evictions,
            waits: 0,
            kept: BTreeMap::new(),
            evictions: 0,
            drains: 0,
            complete: 0,
        };
        let state = State {
            sides: vec![Some([0; WORDS])],
            rung: 0,
            drops: 0,
            parties: Default::default(),
            consumer,
            records: Vec::new(),
            resolved: 0,
            none: 0,
        };
        Store { firings, mutation, gaps: false, state }
    }

    /// With records that are not committed at once.
    pub(super) fn with_gaps(self) -> Store {
        Store { gaps: true, ..self }
    }

    fn fire(&mut self, party: usize) -> Result<Step, String> {
        let (mutation, gaps) = (self.mutation, self.gaps);
        let State { sides, rung, parties, drops, consumer, records, .. } = &mut self.state;
        let newest = sides.len() - 1;
        let p = &mut parties[party];
        let id = self.firings[party][usize::from(p.fired)];
        if p.at == At::Start {
            (p.time, p.at) = (consumer.evictions, At::Side);
            if gaps && party == 0 {
                records.push(Record { party, time: p.time, id: None });
                return Ok(Step::of("reserve a record"));
            }
        }
        if p.at == At::Side {
            p.side = newest;
            (p.at, p.slot, p.step) = (At::Find, 0, 0);
            return Ok(Step::of("look up the side"));
        }
        let Some(Some(side)) = sides.get_mut(p.side) else {
            return Err("a program uses a side that was freed".into());
        };
        let slot = SLOTS + 2 * usize::from(p.slot);
        let entry = p.place as usize;
        let mut over = false;
        let step = match p.at {
            At::Start | At::Side => Step::of(""),
            At::Find if side[slot] == id => {
                p.at = At::Commit;
                Step::seeing("find the stack", seen::FOUND)
            }
            At::Find if side[slot] == 0 => {
                p.at = At::Reserve;
                Step::of("find a free slot")
            }
            At::Find => {
                p.at = next(p, At::Find);
                Step::of("find another stack")
            }
            At::Reserve if mutation == Mutation::PlainReserve => {
                (p.claimed, p.at) = (side[0], At::ReserveStore);
                Step::of("load the reserved words")
            }
            At::Reserve | At::ReserveStore => {
                let before = if p.at == At::Reserve { side[0] } else { p.claimed };
                side[0] = before + u64::from(ENTRY_LEAST);
                p.place = before + u64::from(SHAPE.entries() / 8);
                p.claimed = before;
                p.at = if crosses_middle(before) && mutation != Mutation::LateDoorbell {
                    At::Doorbell
                } else {
                    reserved(p, mutation)
                };
                Step::of("reserve words")
            }
            At::Doorbell => {
                *rung |= 1 << p.side;
                p.at = reserved(p, mutation);
                Step::of("ring the doorbell")
            }
            At::Head => {
                side[entry] = 1 << 32;
                p.at = At::Frame;
                Step::of("write the head")
            }
            At::Frame => {
                side[entry + PCS as usize / 8] = frame(id);
                p.at = if mutation == Mutation::EarlyId { At::Commit } else { At::Claim };
                Step::of("write the frame")
            }
            At::Claim if side[slot + 1] != 0 => {
                p.at = At::Recheck;
                Step::seeing("lose a claim", seen::CLAIM_LOST)
            }
            At::Claim if mutation == Mutation::PlainClaim => {
                p.at = At::ClaimStore;
                Step::of("find that the slot is free")
            }
            At::Claim | At::ClaimStore => {
                side[slot + 1] = p.place;
                p.at = At::Id;
                Step::of("claim the slot")
            }
            At::Recheck if side[slot] == id => {
                p.at = At::Commit;
                Step::seeing("find the stack of another program", seen::STORED_TWICE)
            }
            At::Recheck => {
                p.at = next(p, At::Claim);
                Step::of("find another stack")
            }
            At::Id => {
                side[slot] = id;
                p.at = if mutation == Mutation::EarlyId { At::Head } else { At::Commit };
                if crosses_middle(p.claimed) && mutation == Mutation::LateDoorbell {
                    *rung |= 1 << p.side;
                }
                Step::of("write the id")
            }
            At::Drop => {
                *drops += u64::from(mutation != Mutation::Uncounted);
                p.at = At::CommitNone;
                Step::seeing("count a drop", seen::FULL)
            }
            At::Commit | At::CommitNone => {
                let id = if p.at == At::Commit { id } else { 0 };
                let mine = records.iter_mut().find(|r| r.party == party && r.id.is_none());
                over = mine.is_some() || !gaps;
                match mine {
                    Some(mine) => mine.id = Some(id),
                    None => records.push(Record { party, time: p.time, id: Some(id).filter(|_| !gaps) }),
                }
                Step::of(if over { "commit the record" } else { "reserve a record" })
            }
        };
        if over {
            *p = Party { fired: p.fired + 1, ..Party::default() };
            consumer.waits &= !(1 << party);
        }
        Ok(step)
    }

    fn consume(&mut self) -> Result<Step, String> {
        let State { sides, parties, consumer, .. } = &mut self.state;
        Ok(match consumer.at {
            Evict::Replace => {
                sides.push(Some([0; WORDS]));
                consumer.at = Evict::Grace;
                Step::of("replace the side")
            }
            Evict::Grace => {
                let firing = (0..).zip(parties.iter()).filter(|(_, p)| p.at != At::Start);
                consumer.waits = firing.fold(0, |waits, (i, _)| waits | 1u8 << i);
                let waits = if consumer.waits != 0 { seen::WAITED } else { 0 };
                if self.mutation == Mutation::NoGrace {
                    consumer.waits = 0;
                }
                consumer.at = Evict::Read;
                Step::seeing("begin a grace period", waits)
            }
            Evict::Read => {
                let old = sides.len() - 2;
                let Some(side) = sides[old].take() else { return Err("no old side".into()) };
                let memory: Vec<AtomicU64> = side.iter().map(|w| AtomicU64::new(*w)).collect();
                let ids = Side::new(&memory, SHAPE).stacks();
                let ids: BTreeSet<u64> =
                    ids.map(|(id, _)| id).filter(|_| self.mutation != Mutation::Unread).collect();
                let any = if ids.is_empty() { 0 } else { seen::EVICTED };
                let then = (consumer.evictions, consumer.drains);
                consumer.kept.extend(ids.into_iter().map(|id| (id, then)));
                consumer.evictions += 1;
                consumer.at = Evict::Forget;
                Step::seeing("read the old side and free it", any)
            }
            Evict::Forget => {
                let before = consumer.kept.len();
                let (drains, complete) = (consumer.drains, consumer.complete);
                consumer.kept.retain(|_, (evictions, then)| match self.mutation {
                    Mutation::EarlyForget => false,
                    Mutation::CountedDrains => drains <= *then,
                    _ => complete <= *evictions,
                });
                let forgotten = if consumer.kept.len() < before { seen::FORGOTTEN } else { 0 };
                consumer.at = Evict::Drain;
                Step::seeing("forget stacks", forgotten)
            }
            Evict::Drain => {
                consumer.at = if consumer.left > 1 { Evict::Replace } else { Evict::Drain };
                consumer.left -= 1;
                let seen = self.state.drain()?;
                let State { consumer, records, parties, .. } = &mut self.state;
                let left = records.iter().map(|r| r.time);
                let running = parties.iter().filter(|p| p.at != At::Start).map(|p| p.time);
                consumer.complete = left.chain(running).min().unwrap_or(consumer.evictions);
                consumer.drains += 1;
                Step::seeing("drain the records", seen)
            }
        })
    }
}

impl State {
    fn drain(&mut self) -> Result<u32, String> {
        let mut seen = 0;
        let all = self.records.len();
        let committed = self.records.iter().take_while(|r| r.id.is_some()).count();
        if self.records.iter().skip(committed).any(|r| r.id.is_some()) {
            seen |= seen::GAP;
        }
        for id in self.records.drain(..committed.min(all)).filter_map(|r| r.id) {
            if id == 0 {
                self.none += 1;
                continue;
            }
            let in_sides = || self.sides.iter().rev().flatten().find_map(|side| find(side, id));
            let found = match self.consumer.kept.get(&id) {
                Some(_) => Some(frame(id)),
                None => in_sides(),
            };
            if found != Some(frame(id)) {
                return Err(format!("a record names stack {id}, which is {found:x?}"));
            }
            if self.sides.iter().flatten().count() > 1 {
                seen |= seen::OLD_SIDE;
            }
            self.resolved += 1;
        }
        Ok(seen)
    }
}

/// A reservation after `before` words makes the side half full.
fn crosses_middle(before: u64) -> bool {
    let middle = u64::from(SHAPE.words() / 2);
    before < middle && before + u64::from(ENTRY_LEAST) >= middle
}

/// Where a firing continues after its reservation of words.
fn reserved(p: &mut Party, mutation: Mutation) -> At {
    (p.slot, p.step) = (0, 0);
    match p.claimed <= u64::from(SHAPE.words() - ENTRY_LEAST) {
        true if mutation == Mutation::EarlyId => At::Claim,
        true => At::Head,
        false => At::Drop,
    }
}

/// The next slot to try, or the end of probing.
fn next(p: &mut Party, then: At) -> At {
    p.step += 1;
    if p.step == PROBES {
        return At::Drop;
    }
    p.slot = (p.slot + p.step) & 1;
    then
}

impl World for Store {
    fn parties(&self) -> usize {
        self.firings.len() + 1
    }

    fn level(&self, party: usize) -> Option<u8> {
        (party < self.firings.len()).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        let Some(firings) = self.firings.get(party) else {
            return match &self.state.consumer {
                c if c.left == 0 => Phase::Finished,
                c if c.at == Evict::Read && c.waits != 0 => Phase::Waiting,
                _ => Phase::Running,
            };
        };
        let p = &self.state.parties[party];
        match p.at {
            At::Start if usize::from(p.fired) == firings.len() => Phase::Finished,
            At::Start => Phase::Idle,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        if party < self.firings.len() { self.fire(party) } else { self.consume() }
    }

    fn end(&self) -> Result<u32, String> {
        let mut last = self.state.clone();
        let seen = last.drain()?;
        let fired: usize = self.firings.iter().map(|f| f.len()).sum();
        let State { resolved, none, drops, rung, .. } = last;
        if none != drops || resolved + drops != fired as u64 {
            return Err(format!("fired {fired}, resolved {resolved}, no stack {none}, dropped {drops}"));
        }
        for (i, side) in last.sides.iter().enumerate() {
            let half = side.is_some_and(|side| side[0] >= u64::from(SHAPE.words() / 2));
            if half && rung & 1 << i == 0 {
                return Err("a side is half full without a doorbell".into());
            }
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    /// Two parties meet one stack, a third another one.
    const THREE: Firings = &[&[5, 6], &[5], &[6]];
    /// Two parties meet stacks again after evictions.
    const TWO: Firings = &[&[5, 6, 5], &[5, 7]];
    /// Records behind those of others.
    const GAP: Firings = &[&[5, 7], &[6]];

    fn breaks(firings: Firings, evictions: u8, mutation: Mutation, words: &str) {
        caught(Store::new(firings, evictions, mutation), Schedule::Preempted, words);
    }

    #[test]
    fn every_recorded_id_resolves_through_evictions() {
        holds(Store::new(THREE, 2, Mutation::None), Schedule::Nested);
        let three = holds(Store::new(THREE, 1, Mutation::None), Schedule::Preempted);
        let two = holds(Store::new(TWO, 2, Mutation::None), Schedule::Preempted);
        let all = seen::FOUND | seen::CLAIM_LOST | seen::STORED_TWICE | seen::WAITED | seen::EVICTED;
        assert_eq!(three.seen & all, all);
        let all = all | seen::FULL | seen::FORGOTTEN;
        assert_eq!(two.seen & all, all);
    }

    #[test]
    fn an_id_before_its_entry_is_caught() {
        breaks(THREE, 1, Mutation::EarlyId, "names stack");
    }

    #[test]
    fn reserving_words_by_load_and_store_is_caught() {
        breaks(THREE, 1, Mutation::PlainReserve, "");
        caught(Store::new(THREE, 1, Mutation::PlainReserve), Schedule::Nested, "");
    }

    #[test]
    fn claiming_a_slot_by_load_and_store_is_caught() {
        breaks(THREE, 1, Mutation::PlainClaim, "");
    }

    #[test]
    fn an_eviction_without_grace_period_is_caught() {
        breaks(TWO, 1, Mutation::NoGrace, "freed");
        caught(Store::new(TWO, 1, Mutation::NoGrace), Schedule::Nested, "freed");
    }

    #[test]
    fn a_side_that_is_freed_without_being_read_is_caught() {
        breaks(TWO, 1, Mutation::Unread, "names stack");
    }

    #[test]
    fn forgetting_a_stack_before_its_records_are_drained_is_caught() {
        breaks(TWO, 1, Mutation::EarlyForget, "names stack");
    }

    #[test]
    fn forgetting_a_stack_after_a_drain_that_stopped_at_a_gap_is_caught() {
        let world = |mutation| Store::new(GAP, 2, mutation).with_gaps();
        caught(world(Mutation::CountedDrains), Schedule::Preempted, "names stack");
        let found = holds(world(Mutation::None), Schedule::Preempted);
        assert_eq!(found.seen & (seen::GAP | seen::FORGOTTEN), seen::GAP | seen::FORGOTTEN);
    }

    #[test]
    fn a_doorbell_that_only_the_program_rings_that_stores_the_stack_is_caught() {
        breaks(&[&[5], &[5]], 1, Mutation::LateDoorbell, "without a doorbell");
    }

    #[test]
    fn an_uncounted_drop_is_caught() {
        breaks(&[&[5, 6, 7]], 1, Mutation::Uncounted, "dropped 0");
    }
}
