//! The order of records: how the consumer knows that no earlier record will come.
//!
//! A firing reads the clock once. That reading is `timestamp` in all its clauses and the time of all its records, and
//! records are printed in the order of their times. So the consumer may print a record only when every firing that read an
//! earlier clock has delivered. The latest such time is the *watermark*. The decision that shapes it: *a firing is
//! visible to the consumer before it reads the clock*, by an atomic operation that it makes anyway. Whoever is not visible
//! yet will read a clock later than the consumer's own. There are two ways to be visible:
//!
//! ```text
//!  the usual way, one clause that records      clauses that record after another one has asked for the clock
//!
//!    reserve     compare-exchange, RESERVE       take a slot    compare-exchange, SLOTS_TAKEN: bits i and i + 8
//!    read the clock                              read the clock
//!    write, commit                               store it       CLOCKS[i], plain
//!                                                reserve, write, commit (each record)
//!                                                store 0        CLOCKS[i], plain
//!                                                give back      atomic and, SLOTS_TAKEN
//! ```
//!
//! In the first, the reserved record itself holds the consumer back, at no cost. In the second, a bit beside the slot's own
//! in the mask says that its firing will read a clock and record, and [`crate::control::CLOCKS`] has the clock as soon as it is
//! known. The consumer goes the other way:
//!
//! ```text
//!  read the clock: `now`
//!  look at the slots        not taken: now       with a clock: that clock       without: the `now` of the last look
//!                                                                               at which it was not without
//!  look at RESERVE of each ring; then take what is committed
//!                           all of it: now       up to a gap: the least of the CPU's slots at the last look at which
//!                                                RESERVE was not yet beyond the gap
//!  watermark = the least of all these
//! ```
//!
//! Slots before rings, because a firing reserves while it has its slot: a slot that was given back has left all its records below
//! RESERVE. Behind a gap may be records, committed or not, of firings that published and have gone; they had not reserved at the
//! look that bounds the gap, so that look saw their clocks, or they read them later. `model::order` tries this in every order of steps,
//! and with each step missing or moved.
//!
//! **Bounded.** A firing can be held up for long (its thread lost the CPU, `chill()`). So the watermark is never further
//! behind than the option `ordertimeout`; what comes later than that is printed where it comes, and counted
//! ([`crate::control::DropKind::OutOfOrder`]).
//!
//! **Two clocks that are nearly one.** `bpf_ktime_get_ns()` and `clock_gettime(CLOCK_MONOTONIC)` read the same counter, but while
//! the kernel adjusts the clock two readers may use two slopes for some nanoseconds (`ktime_get_mono_fast_ns()`,
//! kernel/time/timekeeping.c), and the consumer's loads may run ahead of its reading of the counter. [`SLACK`] is far more than
//! either. On the writer's side nothing is reordered: a locked instruction is complete before `rdtsc_ordered()` reads the
//! counter.

use std::collections::VecDeque;

/// The watermark stays so many nanoseconds behind the clock.
pub const SLACK: u64 = 1_000;

/// What a slot, by looks at it, says of records to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotBound {
    known: u64,
}

impl SlotBound {
    /// Before the first look; nothing had fired at `now`.
    pub fn new(now: u64) -> SlotBound {
        SlotBound { known: now }
    }

    /// A look at it after `now`: is it taken by a firing that will record, and what is that firing's clock, 0 for none yet. Gives
    /// what all records to come through the slot will not be before.
    pub fn look(&mut self, now: u64, taken: bool, clock: u64) -> u64 {
        match (taken, clock) {
            (true, 0) => self.known,
            (true, clock) => {
                self.known = now;
                clock
            }
            (false, _) => {
                self.known = now;
                now
            }
        }
    }
}

/// Looks that are remembered while a record stays uncommitted.
const LOOKS: usize = 64;

/// What a ring, by looks at its reserve position, says of records to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RingBound {
    /// Of each look what records to come will not be before, and the reserve position; the oldest first.
    looks: VecDeque<(u64, u64)>,
}

impl RingBound {
    /// Before the first drain; the ring was at `reserve` after `now`.
    pub fn new(now: u64, reserve: u64) -> RingBound {
        RingBound { looks: VecDeque::from([(now, reserve)]) }
    }

    /// A look at the reserve position, after the slots of the CPU index said that nothing to come through them is before `least`.
    pub fn look(&mut self, least: u64, reserve: u64) {
        // A look that is forgotten leaves the older one, which is a lower bound too.
        if self.looks.len() >= LOOKS || self.looks.back().is_some_and(|(_, last)| *last == reserve) {
            self.looks.pop_back();
        }
        self.looks.push_back((least, reserve));
    }

    /// All is taken up to `position`, and what is there is not committed or not reserved. Gives what all records from there
    /// on will not be before.
    pub fn bound(&mut self, position: u64) -> u64 {
        while self.looks.get(1).is_some_and(|(_, reserve)| *reserve <= position) {
            self.looks.pop_front();
        }
        match self.looks.front() {
            Some((least, reserve)) if *reserve <= position => *least,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_without_a_clock_is_bounded_by_the_last_look_before_it() {
        let mut slot = SlotBound::new(10);
        assert_eq!(slot.look(20, true, 0), 10);
        assert_eq!(slot.look(30, true, 25), 25);
        assert_eq!(slot.look(40, true, 0), 30);
        assert_eq!(slot.look(50, false, 0), 50);
        assert_eq!(slot.look(60, true, 0), 50);
    }

    #[test]
    fn a_gap_is_bounded_by_the_last_look_before_its_reservation() {
        let mut ring = RingBound::new(10, 0);
        ring.look(20, 64);
        ring.look(30, 128);
        assert_eq!(ring.bound(0), 10);
        assert_eq!(ring.bound(96), 20);
        ring.look(40, 128);
        assert_eq!(ring.bound(96), 20);
        assert_eq!(ring.bound(128), 40);
    }

    #[test]
    fn looks_are_bounded_and_forgotten_ones_bound_from_below() {
        let mut ring = RingBound::new(1, 0);
        for i in 1..1000 {
            ring.look(1 + i, 8 * i);
        }
        assert!(ring.looks.len() <= LOOKS);
        assert_eq!(ring.bound(0), 1);
        assert!((2..=500).contains(&ring.bound(8 * 500)));
        assert_eq!(ring.bound(8 * 999), 1000);
    }
}
