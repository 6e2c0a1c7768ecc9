//! The order of records: the algorithm of [`crate::order`], firings against a consumer that prints.
//!
//! Other worlds show that rings and slots are exact. So a ring is a list of times here, a record is
//! reserved and committed in one step each, and a slot is taken in one step. This world checks when
//! a firing reads the clock and in which order the consumer reads slots and rings. The bounds are
//! the real ones of [`crate::order`]. The property: records are printed in the order of time.

use super::explore::{Phase, Step, World};
use crate::order::{RingBound, SlotBound};

/// Records a ring has here.
const RECORDS: usize = 4;
/// Scratch slots a CPU has here.
const SLOTS: usize = 2;
/// CPUs.
const CPUS: usize = 2;

/// Cases that can occur.
mod seen {
    pub(super) const HELD: u32 = 1;
    pub(super) const GAP: u32 = 2;
    pub(super) const PUBLISHED: u32 = 4;
    pub(super) const UNKNOWN: u32 = 8;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mutation {
    None,
    /// A firing that publishes nothing reads the clock before it reserves.
    ClockBeforeReserve,
    /// A firing reads the clock before it takes the slot.
    ClockBeforeSlot,
    /// A firing releases its slot before it reserves.
    ReleaseBeforeReserve,
    /// A firing does not clear its clock.
    NoClear,
    /// A firing clears its clock after it has released the slot.
    ClearLate,
    /// The consumer reads the rings before the slots.
    RingsFirst,
    /// The consumer reads the clock after the slots and rings.
    LateClock,
    /// The consumer treats a slot without a clock as free.
    IgnoreUnknown,
    /// The consumer assumes that records after a gap have clocks that were read after the gap.
    GapWithoutSlots,
    /// The consumer assumes that the records of a ring are in order.
    AssumeRingOrder,
}

/// The kind of a firing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Reserves, then reads the clock.
    Reserves,
    /// Publishes the clock, then makes this many records.
    Publishes(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Idle,
    Take,
    Clock,
    Store,
    Reserve,
    Commit,
    Forget,
    Release,
    Done,
}

#[derive(Clone, Hash)]
struct Party {
    cpu: usize,
    kind: Kind,
    at: At,
    slot: usize,
    time: u8,
    place: usize,
    made: u8,
}

/// A CPU: its ring, and its slots with the clocks in them.
#[derive(Clone, Default, Hash)]
struct Cpu {
    /// 0: not committed.
    records: [u8; RECORDS],
    reserve: usize,
    consumed: usize,
    taken: [bool; SLOTS],
    clocks: [u8; SLOTS],
}

/// Firings and a consumer.
#[derive(Clone, Hash)]
struct Order {
    clock: u8,
    cpus: [Cpu; CPUS],
    parties: Vec<Party>,
    consumer: Consumer,
    mutation: Mutation,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum DrainAt {
    Now,
    /// Only in a mutation.
    NowAgain,
    /// The mask of a slot, and its clock.
    Mask(usize, usize),
    SlotClock(usize, usize),
    Reserve(usize),
    Take(usize),
}

#[derive(Clone, Hash)]
struct Consumer {
    at: DrainAt,
    drains: u8,
    now: u8,
    taken: bool,
    least: u64,
    /// Of the slots of each CPU.
    slots_least: [u64; CPUS],
    reserved: [usize; CPUS],
    slots: [[SlotBound; SLOTS]; CPUS],
    rings: [RingBound; CPUS],
    held: Vec<u8>,
    printed: Vec<u8>,
}

impl Order {
    fn new(parties: &[(usize, Kind)], drains: u8, mutation: Mutation) -> Order {
        let party = |&(cpu, kind): &(usize, Kind)| Party {
            cpu,
            kind,
            at: At::Idle,
            slot: 0,
            time: 0,
            place: 0,
            made: 0,
        };
        let bound = || SlotBound::new(0);
        let consumer = Consumer {
            at: DrainAt::Now,
            drains,
            now: 0,
            taken: false,
            least: 0,
            slots_least: [0; CPUS],
            reserved: [0; CPUS],
            slots: std::array::from_fn(|_| std::array::from_fn(|_| bound())),
            rings: std::array::from_fn(|_| RingBound::new(0, 0)),
            held: Vec::new(),
            printed: Vec::new(),
        };
        let parties = parties.iter().map(party).collect();
        Order { clock: 0, cpus: Default::default(), parties, consumer, mutation }
    }

    /// Reads the clock; every reading is different.
    fn read_clock(&mut self) -> u8 {
        self.clock += 1;
        self.clock
    }

    fn fire(&mut self, party: usize) -> Step {
        let mutation = self.mutation;
        let mut p = self.parties[party].clone();
        let records = match p.kind {
            Kind::Reserves => 1,
            Kind::Publishes(n) => n,
        };
        let publishes = p.kind != Kind::Reserves;
        let early = publishes && mutation == Mutation::ClockBeforeSlot
            || !publishes && mutation == Mutation::ClockBeforeReserve;
        let cpu = &mut self.cpus[p.cpu];
        let at = match p.at {
            At::Idle if early => At::Clock,
            At::Idle if publishes => At::Take,
            At::Idle => At::Reserve,
            at => at,
        };
        let (next, did) = match at {
            At::Take => {
                // There are as many slots as firings.
                p.slot = cpu.taken.iter().position(|t| !t).unwrap_or(0);
                cpu.taken[p.slot] = true;
                if !early {
                    p.time = cpu.clocks[p.slot];
                }
                let next = if early { At::Store } else { At::Clock };
                (if p.time != 0 && !early { At::Reserve } else { next }, "take a slot")
            }
            At::Clock => {
                p.time = self.read_clock();
                let next = match (publishes, early) {
                    (true, true) => At::Take,
                    (true, false) => At::Store,
                    (false, true) => At::Reserve,
                    (false, false) => At::Commit,
                };
                (next, "read the clock")
            }
            At::Store => {
                cpu.clocks[p.slot] = p.time;
                let leaves = mutation == Mutation::ReleaseBeforeReserve;
                (if leaves { At::Forget } else { At::Reserve }, "store the clock")
            }
            At::Reserve => {
                p.place = cpu.reserve;
                cpu.reserve += 1;
                let next = if p.time == 0 { At::Clock } else { At::Commit };
                (next, "reserve")
            }
            At::Commit => {
                cpu.records[p.place] = p.time;
                p.made += 1;
                let next = match publishes {
                    _ if p.made < records => At::Reserve,
                    true if mutation == Mutation::ReleaseBeforeReserve => At::Done,
                    true if matches!(mutation, Mutation::NoClear | Mutation::ClearLate) => At::Release,
                    true => At::Forget,
                    false => At::Done,
                };
                (next, "commit")
            }
            At::Forget => {
                cpu.clocks[p.slot] = 0;
                (if mutation == Mutation::ClearLate { At::Done } else { At::Release }, "clear the clock")
            }
            At::Release => {
                cpu.taken[p.slot] = false;
                let next = match mutation {
                    Mutation::ClearLate => At::Forget,
                    Mutation::ReleaseBeforeReserve => At::Reserve,
                    _ => At::Done,
                };
                (next, "release the slot")
            }
            At::Idle | At::Done => (At::Done, "nothing"),
        };
        p.at = next;
        if next == At::Done {
            (p.slot, p.time, p.place) = (0, 0, 0);
        }
        self.parties[party] = p;
        Step::of(did)
    }

    /// The consumer's next step after slot `slot` of a CPU.
    fn behind_slot(&self, cpu: usize, slot: usize) -> DrainAt {
        let publish = self.parties.iter().filter(|p| p.cpu == cpu && p.kind != Kind::Reserves).count();
        if slot < publish {
            return DrainAt::Mask(cpu, slot);
        }
        match self.mutation == Mutation::RingsFirst {
            true if cpu + 1 < CPUS => self.behind_slot(cpu + 1, 0),
            true => DrainAt::Take(0),
            false => DrainAt::Reserve(cpu),
        }
    }

    fn drain(&mut self) -> Result<Step, String> {
        let mutation = self.mutation;
        let now = match self.consumer.at {
            DrainAt::Now | DrainAt::NowAgain => self.read_clock(),
            _ => self.consumer.now,
        };
        let next = match self.consumer.at {
            DrainAt::Now if mutation == Mutation::RingsFirst => DrainAt::Reserve(0),
            DrainAt::Now => self.behind_slot(0, 0),
            DrainAt::Mask(cpu, slot) => DrainAt::SlotClock(cpu, slot),
            DrainAt::SlotClock(cpu, slot) => self.behind_slot(cpu, slot + 1),
            DrainAt::Reserve(cpu) if cpu + 1 < CPUS && mutation == Mutation::RingsFirst => {
                DrainAt::Reserve(cpu + 1)
            }
            DrainAt::Reserve(cpu) if cpu + 1 < CPUS => self.behind_slot(cpu + 1, 0),
            DrainAt::Reserve(_) if mutation == Mutation::RingsFirst => self.behind_slot(0, 0),
            DrainAt::Reserve(_) if mutation == Mutation::LateClock => DrainAt::NowAgain,
            DrainAt::Reserve(_) | DrainAt::NowAgain => DrainAt::Take(0),
            DrainAt::Take(cpu) => DrainAt::Take(cpu + 1),
        };
        let c = &mut self.consumer;
        let at = std::mem::replace(&mut c.at, next);
        let mut seen = 0;
        let did = match at {
            DrainAt::Now => {
                (c.now, c.least, c.slots_least) = (now, now.into(), [now.into(); CPUS]);
                "read the clock (consumer)"
            }
            DrainAt::NowAgain => {
                let again = |bound: u64| if bound == c.now.into() { now.into() } else { bound };
                c.least = again(c.least);
                for cpu in 0..CPUS {
                    c.rings[cpu].look(again(c.slots_least[cpu]), c.reserved[cpu] as u64);
                }
                "read the clock again (consumer)"
            }
            DrainAt::Mask(cpu, slot) => {
                c.taken = self.cpus[cpu].taken[slot];
                "read a slot's bit"
            }
            DrainAt::SlotClock(cpu, slot) => {
                let clock = self.cpus[cpu].clocks[slot];
                seen |= match (c.taken, clock) {
                    (true, 0) => seen::UNKNOWN,
                    (true, _) => seen::PUBLISHED,
                    _ => 0,
                };
                let taken = c.taken && (clock != 0 || mutation != Mutation::IgnoreUnknown);
                c.taken = false;
                let bound = c.slots[cpu][slot].look(now.into(), taken, clock.into());
                c.least = c.least.min(bound);
                c.slots_least[cpu] = c.slots_least[cpu].min(bound);
                "read a slot's clock"
            }
            DrainAt::Reserve(cpu) => {
                c.reserved[cpu] = self.cpus[cpu].reserve;
                let slots =
                    if mutation == Mutation::GapWithoutSlots { now.into() } else { c.slots_least[cpu] };
                c.rings[cpu].look(slots, c.reserved[cpu] as u64);
                "read a reserve position"
            }
            DrainAt::Take(cpu) => {
                let ring = &mut self.cpus[cpu];
                let mut last = 0;
                // In one step: a committed record stays committed.
                while let Some(time) =
                    ring.records[ring.consumed..c.reserved[cpu]].first().filter(|t| **t != 0)
                {
                    c.held.push(*time);
                    last = *time;
                    ring.consumed += 1;
                }
                let gap = ring.consumed < c.reserved[cpu];
                let bound = match mutation {
                    Mutation::AssumeRingOrder if gap => last.into(),
                    _ => c.rings[cpu].bound(ring.consumed as u64),
                };
                c.least = c.least.min(bound);
                seen |= if gap { seen::GAP } else { 0 };
                if cpu + 1 == CPUS {
                    let watermark = c.least;
                    seen |= self.print(watermark)?;
                }
                "take what is committed"
            }
        };
        Ok(Step::seeing(did, seen))
    }

    /// Prints the records up to the watermark; the end of a drain.
    fn print(&mut self, watermark: u64) -> Result<u32, String> {
        let c = &mut self.consumer;
        c.held.sort_unstable();
        let ready = c.held.partition_point(|t| u64::from(*t) <= watermark);
        for time in c.held.drain(..ready) {
            if let Some(last) = c.printed.last().filter(|last| **last > time) {
                return Err(format!("{time} is printed after {last}"));
            }
            c.printed.push(time);
        }
        c.drains -= 1;
        (c.at, c.now, c.least, c.slots_least, c.reserved) = (DrainAt::Now, 0, 0, [0; CPUS], [0; CPUS]);
        Ok(if c.held.is_empty() { 0 } else { seen::HELD })
    }
}

impl World for Order {
    fn parties(&self) -> usize {
        self.parties.len() + 1
    }

    fn level(&self, party: usize) -> Option<u8> {
        (party < self.parties.len()).then_some(party as u8)
    }

    fn phase(&self, party: usize) -> Phase {
        match self.parties.get(party).map(|p| p.at) {
            None if self.consumer.drains == 0 => Phase::Finished,
            Some(At::Done) => Phase::Finished,
            Some(At::Idle) => Phase::Idle,
            _ => Phase::Running,
        }
    }

    fn step(&mut self, party: usize) -> Result<Step, String> {
        if party < self.parties.len() { Ok(self.fire(party)) } else { self.drain() }
    }

    fn end(&self) -> Result<u32, String> {
        let mut last = self.clone();
        last.consumer.drains = 1;
        for cpu in &mut last.cpus {
            last.consumer.held.extend(&cpu.records[cpu.consumed..cpu.reserve]);
        }
        if last.consumer.held.contains(&0) {
            return Err("a record is never committed".into());
        }
        let fired: u8 = self.parties.iter().map(|p| p.made).sum();
        last.print(u64::MAX)?;
        match last.consumer.printed.len() == usize::from(fired) {
            true => Ok(0),
            false => Err(format!("fired {fired}, printed {}", last.consumer.printed.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Schedule, caught, holds};
    use super::*;

    /// Two firings that reserve first on one CPU, and one on another CPU.
    const RESERVE: &[(usize, Kind)] = &[(0, Kind::Reserves), (0, Kind::Reserves), (1, Kind::Reserves)];
    /// One that publishes and makes two records; on its CPU and on another one, one that reserves
    /// first.
    const MIXED: &[(usize, Kind)] = &[(0, Kind::Publishes(2)), (0, Kind::Reserves), (1, Kind::Reserves)];
    /// Two that publish, on two CPUs.
    const PUBLISH: &[(usize, Kind)] = &[(0, Kind::Publishes(1)), (1, Kind::Publishes(1))];
    /// Two that publish on one CPU, and one on another that reserves first.
    const SLOTS_AGAIN: &[(usize, Kind)] =
        &[(0, Kind::Publishes(1)), (0, Kind::Publishes(1)), (1, Kind::Reserves)];

    fn breaks(parties: &[(usize, Kind)], mutation: Mutation) {
        caught(Order::new(parties, 2, mutation), Schedule::Preempted, "is printed after");
    }

    #[test]
    fn records_are_printed_in_the_order_of_their_clocks() {
        for parties in [RESERVE, MIXED, PUBLISH] {
            let nested = parties.iter().map(|(_, kind)| (0, *kind)).collect::<Vec<_>>();
            holds(Order::new(&nested, 2, Mutation::None), Schedule::Nested);
            let preempted = holds(Order::new(parties, 2, Mutation::None), Schedule::Preempted);
            let all =
                seen::HELD | seen::GAP | if parties == RESERVE { 0 } else { seen::PUBLISHED | seen::UNKNOWN };
            assert_eq!(preempted.seen & all, all);
        }
    }

    #[test]
    fn reading_the_clock_before_reserving_is_caught() {
        breaks(RESERVE, Mutation::ClockBeforeReserve);
    }

    #[test]
    fn reading_the_clock_before_publishing_is_caught() {
        breaks(MIXED, Mutation::ClockBeforeSlot);
    }

    #[test]
    fn releasing_the_slot_before_reserving_is_caught() {
        breaks(PUBLISH, Mutation::ReleaseBeforeReserve);
    }

    #[test]
    fn leaving_the_clock_in_the_slot_is_caught() {
        breaks(SLOTS_AGAIN, Mutation::NoClear);
    }

    #[test]
    fn clearing_the_clock_after_the_release_is_caught() {
        breaks(SLOTS_AGAIN, Mutation::ClearLate);
    }

    #[test]
    fn reading_rings_before_slots_is_caught() {
        breaks(MIXED, Mutation::RingsFirst);
    }

    #[test]
    fn reading_the_consumer_clock_after_the_slots_is_caught() {
        breaks(RESERVE, Mutation::LateClock);
    }

    #[test]
    fn ignoring_slots_without_a_clock_is_caught() {
        breaks(MIXED, Mutation::IgnoreUnknown);
    }

    #[test]
    fn bounding_a_gap_without_slots_is_caught() {
        breaks(MIXED, Mutation::GapWithoutSlots);
    }

    #[test]
    fn assuming_that_a_ring_is_in_order_is_caught() {
        breaks(RESERVE, Mutation::AssumeRingOrder);
    }
}
