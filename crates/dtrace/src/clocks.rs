//! Firings of clocks that were due and that no program served.
//!
//! The kernel holds clocks back, and counts nowhere what it held back: that of an idle CPU after some hundred firings, that of a virtual
//! CPU while its host runs something else, and each while another program runs on its CPU. So a clock's program counts the firings that
//! it serves, first of all and whatever the session's state, in a word for each CPU ([`bpf::routines::count_served`]). How many were
//! due is known: the kernel's timer counts whole periods of the monotonic clock from the moment at which the event was started on
//! its CPU.
//!
//! ```text
//!  start        the event's timer starts; its own counter of nanoseconds says when that was
//!  ACTIVE       what is missing until here is nobody's loss
//!  now and then due - served - missing at ACTIVE, less what was told before
//! ```
//!
//! A firing may be due and about to be served, and the start is known to some microseconds: so up to [`TOLERANCE`] missing firings are
//! none, and while the session runs the last one is not counted. A clock of a CPU that goes offline goes with what was told of it.

use bpf::sys::{Link, Mmap, monotonic_ns};

/// So many missing firings are within the error of measurement.
const TOLERANCE: i64 = 2;

/// The counters of a clock's program.
pub(crate) struct Served {
    /// The probe's name.
    pub(crate) name: String,
    /// A word for each CPU.
    pub(crate) memory: Mmap,
}

impl Served {
    /// How many firings were served on a CPU.
    fn on(&self, cpu: u32) -> i64 {
        let word = self.memory.words().get(cpu as usize);
        word.map_or(0, |w| w.load(std::sync::atomic::Ordering::Relaxed) as i64)
    }
}

/// The times at which a clock is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Nanoseconds between two firings.
    pub(crate) period: u64,
    /// Nanoseconds between two interrupts of the timer: less than the period where a firing may be late by some of them.
    pub(crate) chance: u64,
}

impl Schedule {
    /// How many firings should have been served so long after the start.
    fn due(self, since_start: u64) -> i64 {
        match self.chance < self.period {
            // The last one may still be served at a later chance.
            true => self.nearest(since_start) - 1,
            false => (since_start / self.period.max(1)) as i64,
        }
    }

    /// The number of periods that the program sees: its clock and the timer may differ a little.
    fn nearest(self, since_start: u64) -> i64 {
        (since_start.saturating_add(self.chance / 2) / self.period.max(1)) as i64
    }

    /// How many firings are no loss where the session became active so long after the start.
    fn before_active(self, since_start: u64) -> i64 {
        if self.chance >= self.period {
            return self.due(since_start);
        }
        // At the first chance the program leaves out what has passed, if that is more than one period.
        let first = since_start.div_ceil(self.chance.max(1)) * self.chance;
        match self.nearest(first) {
            0 | 1 => 0,
            passed => passed,
        }
    }

    /// How many firings must be missing at least to be a loss.
    fn tolerance(self) -> i64 {
        if self.chance < self.period { 0 } else { TOLERANCE }
    }
}

/// A clock of one CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock {
    cpu: u32,
    schedule: Schedule,
    /// When its timer started.
    start: u64,
    /// The counter's value then.
    served: i64,
    /// Firings that are no loss: those before the session was active.
    before: i64,
    /// What was told.
    told: i64,
}

impl CpuClock {
    /// The clock of a CPU that `link` holds.
    pub(crate) fn new(cpu: u32, schedule: Schedule, served: &Served, link: &Link) -> CpuClock {
        let start = start_of(link, schedule.chance);
        CpuClock { cpu, schedule, start, served: served.on(cpu), before: 0, told: 0 }
    }

    /// The session is active from now on.
    pub(crate) fn become_active(&mut self, served: &Served, now: u64) {
        self.before = self.schedule.before_active(now.saturating_sub(self.start));
        if self.schedule.tolerance() > 0 {
            self.before -= served.on(self.cpu) - self.served;
        }
    }

    /// How many more firings are missing than were told before; with `last`, none is under way.
    pub(crate) fn take_missing(&mut self, served: &Served, now: u64, last: bool) -> u64 {
        self.take(self.missing(served.on(self.cpu), now), last)
    }

    fn take(&mut self, missing: i64, last: bool) -> u64 {
        if missing <= self.schedule.tolerance() {
            return 0;
        }
        let under_way = i64::from(!last && self.schedule.tolerance() > 0);
        let more = missing - under_way - self.told;
        if more <= 0 {
            return 0;
        }
        self.told += more;
        more as u64
    }

    fn missing(&self, served: i64, now: u64) -> i64 {
        let due = self.schedule.due(now.saturating_sub(self.start)).max(self.before) - self.before;
        due - (served - self.served)
    }

    /// Its CPU.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }
}

/// When an event's timer started: now, less the nanoseconds that the event has counted. It is asked several times where the answer
/// takes long, for the moment to which it belongs is known no better.
fn start_of(link: &Link, chance: u64) -> u64 {
    const TRIES: usize = 5;
    const EXACT: u64 = 50_000;
    let mut best = (u64::MAX, monotonic_ns());
    for _ in 0..TRIES {
        let before = monotonic_ns();
        let Some(counted) = link.event().and_then(|e| e.count().ok()) else { break };
        let took = monotonic_ns().saturating_sub(before);
        if took < best.0 {
            best = (took, (before + took / 2).saturating_sub(counted));
        }
        if took <= EXACT.min(chance / 4) {
            break;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FAST: Schedule = Schedule { period: 10 * MS, chance: 10 * MS };
    const SLOW: Schedule = Schedule { period: 1000 * MS, chance: 250 * MS };

    fn clock(schedule: Schedule, before: i64) -> CpuClock {
        CpuClock { cpu: 0, schedule, start: 5, served: 7, before, told: 0 }
    }

    #[test]
    fn what_is_within_the_error_of_measurement_is_no_loss() {
        let clock = clock(FAST, 0);
        assert_eq!(clock.missing(7 + 10, 5 + 100 * MS), 0);
        assert_eq!(clock.missing(7 + 10, 5 + 99 * MS), -1);
        assert_eq!(clock.missing(7 + 3, 5 + 100 * MS), 7);
    }

    #[test]
    fn firings_before_the_session_is_active_are_no_loss() {
        let mut clock = clock(FAST, 0);
        clock.before = FAST.before_active(50 * MS);
        assert_eq!(clock.missing(7, 5 + 100 * MS), 5);
        // The program leaves out what passed till its first chance.
        for (active, first) in
            [(0, 0), (800, 0), (1100, 0), (1300, 0), (1600, 0), (1700, 0), (1800, 2), (5300, 5), (5900, 6)]
        {
            assert_eq!(SLOW.before_active(active * MS), first, "{active}");
        }
    }

    #[test]
    fn a_loss_is_told_once_and_the_firing_under_way_at_the_end() {
        let mut clock = clock(FAST, 0);
        let told = [(2, false), (3, false), (3, false), (10, false), (9, false), (10, true), (10, true)]
            .map(|(missing, last)| clock.take(missing, last));
        assert_eq!(told, [0, 2, 0, 7, 0, 1, 0]);
        let mut slow = self::clock(SLOW, 0);
        assert_eq!([0, 1, 1, 2].map(|missing| slow.take(missing, false)), [0, 1, 0, 1]);
    }

    #[test]
    fn a_slow_clock_is_late_and_not_lost_within_its_period() {
        let clock = clock(SLOW, 0);
        for (at, due) in [(500, 0), (1000, 0), (1800, 0), (1900, 1), (2800, 1), (2900, 2)] {
            assert_eq!(clock.missing(7, 5 + at * MS), due, "{at}");
        }
    }
}
