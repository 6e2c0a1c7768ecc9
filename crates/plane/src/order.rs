//! The order of records: the watermark, below which no further record will come.
//!
//! A firing reads the clock once. That value is `timestamp` in all its clauses and the time of all
//! its records. Records are printed in the order of their times. So the consumer may print a record
//! only when every firing that read an earlier clock has committed its records. The latest such
//! time is the *watermark*. The key decision: *a firing is visible to the consumer before it reads
//! the clock*, through an atomic operation that it performs anyway. A firing that is not visible
//! yet will read a later clock than the consumer did. There are two ways to become visible:
//!
//! ```text
//!  usual: one clause records                   a clause asks for the clock before another records
//!
//!    reserve     compare-exchange, RESERVE       take a slot    compare-exchange, SLOTS_TAKEN:
//!                                                               bits i and i + 8
//!    read the clock                              read the clock
//!    write, commit                               store it       CLOCKS[i], plain
//!                                                reserve, write, commit (each record)
//!                                                store 0        CLOCKS[i], plain
//!                                                release        atomic and, SLOTS_TAKEN
//! ```
//!
//! In the first case the reserved record itself holds the consumer back, at no cost. In the second
//! case a bit next to the slot's own bit says that its firing will read a clock and record.
//! [`crate::control::CLOCKS`] has the clock as soon as it is known. The consumer proceeds in the
//! other direction:
//!
//! ```text
//!  read the clock: `now`
//!  read the slots           free: now          with a clock: that clock
//!                           without a clock: the `now` of the last look at which this was not so
//!  read RESERVE of each ring, then take the committed records
//!                           all of them: now   up to a gap: the bound of the CPU's slots at the
//!                                              last look at which RESERVE was not beyond the gap
//!  watermark = the least of these bounds
//! ```
//!
//! Slots are read before rings, because a firing reserves while it holds its slot. So all records
//! of a firing that has released its slot are below RESERVE. After a gap there may be records of
//! firings that published their clocks and have ended. They had not reserved at the look that
//! bounds the gap. So that look saw their clocks, or they read the clock later. `model::order`
//! checks this in every order of steps, and checks that each step is needed.
//!
//! **Bounded.** A firing can be delayed for long (its thread lost the CPU, or `chill()`). So the
//! watermark is never further behind than the option `ordertimeout`. Records that come after that
//! time are printed late and counted ([`crate::control::DropKind::OutOfOrder`]).
//!
//! **Two readers of one clock.** `bpf_ktime_get_ns()` and `clock_gettime(CLOCK_MONOTONIC)` read the
//! same counter. But while the kernel adjusts the clock, two readers may use two slopes for some
//! nanoseconds (`ktime_get_mono_fast_ns()`, kernel/time/timekeeping.c), and the consumer's loads
//! may be executed before its read of the counter. [`SLACK`] is far more than either. On the
//! writer's side nothing is reordered: a locked instruction has completed before `rdtsc_ordered()`
//! reads the counter.

use std::collections::VecDeque;

/// Nanoseconds by which the watermark stays behind the bounds.
pub const SLACK: u64 = 1_000;

/// Lower bound for future records of the firing in a scratch slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotBound {
    known: u64,
}

impl SlotBound {
    /// The state before the first look; nothing had fired at `now`.
    pub fn new(now: u64) -> SlotBound {
        SlotBound { known: now }
    }

    /// Records a look at the slot after `now`. `taken`: by a firing that publishes its clock.
    /// `clock`: that clock, or 0 if it is not known yet. Returns the bound.
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

/// Number of looks that are kept while a record stays uncommitted.
const LOOKS: usize = 64;

/// Lower bound for future records of a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RingBound {
    /// The bound of the slots and the reserve position at each look, oldest first.
    looks: VecDeque<(u64, u64)>,
}

impl RingBound {
    /// The state before the first look; the reserve position was `reserve` after `now`.
    pub fn new(now: u64, reserve: u64) -> RingBound {
        RingBound { looks: VecDeque::from([(now, reserve)]) }
    }

    /// Records a look at the reserve position. `least` is the bound of the CPU index's slots, which
    /// were read before.
    pub fn look(&mut self, least: u64, reserve: u64) {
        // Dropping a look is safe: the previous one is a lower bound too.
        if self.looks.len() >= LOOKS || self.looks.back().is_some_and(|(_, last)| *last == reserve) {
            self.looks.pop_back();
        }
        self.looks.push_back((least, reserve));
    }

    /// The bound of all records from `position` on, which is the first position that is not
    /// committed.
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
    fn the_number_of_looks_is_bounded() {
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
