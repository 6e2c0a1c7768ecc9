//! Counting the firings of clocks that were due and that no program served.
//!
//! The kernel delays or skips timer interrupts and does not count them: those of an idle CPU after
//! some hundred firings, those of a virtual CPU while its host runs something else, and each one
//! during another program on its CPU. So a clock's program counts the firings that it serves,
//! before it tests the session's state, in a word for each CPU
//! ([`bpf_codegen::routines::count_served`]). The number of firings that were due follows from the
//! time: the kernel's timer counts whole periods of the monotonic clock since the event started on
//! its CPU.
//!
//! ```text
//!  start     the event's timer starts; the event's own counter of nanoseconds gives the time
//!  ACTIVE    firings that are missing before this are not reported
//!  report    missing = due - served - missing at ACTIVE; reported = missing - reported before
//! ```
//!
//! A firing may be due and not served yet, and the start is known to some microseconds. So up to
//! [`TOLERANCE`] missing firings are not reported, and while the session runs the last one is not
//! counted. When a CPU goes offline, its clock is dropped together with what was missing since the
//! last report.

use bpf_sys::{Link, Mmap, monotonic_ns};
use providers::method::Schedule;

/// The greatest number of missing firings that is not reported: the error of measurement.
const TOLERANCE: i64 = 2;

/// The counters of served firings of a clock's program.
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

/// When the firings of a schedule are due.
trait Due {
    fn due(self, since_start: u64) -> i64;
    fn nearest(self, since_start: u64) -> i64;
    fn before_active(self, since_start: u64) -> i64;
    fn tolerance(self) -> i64;
}

impl Due for Schedule {
    /// How many firings should have been served at this time after the start.
    fn due(self, since_start: u64) -> i64 {
        match self.interval < self.period {
            // The last one may still be served by a later run.
            true => self.nearest(since_start) - 1,
            false => (since_start / self.period.max(1)) as i64,
        }
    }

    /// The number of periods that the program computes at this time after the start. It allows for
    /// a small difference between the timer and its clock.
    fn nearest(self, since_start: u64) -> i64 {
        (since_start.saturating_add(self.interval / 2) / self.period.max(1)) as i64
    }

    /// How many firings are not expected if the session became active at this time after the start.
    fn before_active(self, since_start: u64) -> i64 {
        if self.interval >= self.period {
            return self.due(since_start);
        }
        // The first run of the program skips the periods that have passed if they are more than
        // one.
        let first = since_start.div_ceil(self.interval.max(1)) * self.interval;
        match self.nearest(first) {
            0 | 1 => 0,
            passed => passed,
        }
    }

    /// The greatest number of missing firings that is not reported.
    fn tolerance(self) -> i64 {
        if self.interval < self.period { 0 } else { TOLERANCE }
    }
}

/// A clock on one CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock {
    cpu: u32,
    schedule: Schedule,
    /// When its timer started.
    start: u64,
    /// The counter's value at the start.
    served: i64,
    /// Firings that were missing, or are not expected, because the session was not active yet.
    before: i64,
    /// Missing firings that were reported.
    reported: i64,
}

impl CpuClock {
    /// The clock of a CPU, whose event `link` has.
    pub(crate) fn new(cpu: u32, schedule: Schedule, served: &Served, link: &Link) -> CpuClock {
        let start = start_of(link, schedule.interval);
        CpuClock { cpu, schedule, start, served: served.on(cpu), before: 0, reported: 0 }
    }

    /// The session has become active.
    pub(crate) fn become_active(&mut self, served: &Served, now: u64) {
        self.before = self.schedule.before_active(now.saturating_sub(self.start));
        if self.schedule.tolerance() > 0 {
            self.before -= served.on(self.cpu) - self.served;
        }
    }

    /// The number of missing firings that were not reported before. `last`: the session ends, so no
    /// firing is still to be served.
    pub(crate) fn take_missing(&mut self, served: &Served, now: u64, last: bool) -> u64 {
        self.take(self.missing(served.on(self.cpu), now), last)
    }

    fn take(&mut self, missing: i64, last: bool) -> u64 {
        if missing <= self.schedule.tolerance() {
            return 0;
        }
        let unserved = i64::from(!last && self.schedule.tolerance() > 0);
        let more = missing - unserved - self.reported;
        if more <= 0 {
            return 0;
        }
        self.reported += more;
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

/// When an event's timer started: now minus the nanoseconds that the event has counted. If reading
/// takes long, the time of the count is uncertain, and the event is read again.
fn start_of(link: &Link, interval: u64) -> u64 {
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
        if took <= EXACT.min(interval / 4) {
            break;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FAST: Schedule = Schedule { period: 10 * MS, interval: 10 * MS };
    const SLOW: Schedule = Schedule { period: 1000 * MS, interval: 250 * MS };

    fn clock(schedule: Schedule, before: i64) -> CpuClock {
        CpuClock { cpu: 0, schedule, start: 5, served: 7, before, reported: 0 }
    }

    #[test]
    fn missing_firings_within_the_error_of_measurement_are_not_reported() {
        let clock = clock(FAST, 0);
        assert_eq!(clock.missing(7 + 10, 5 + 100 * MS), 0);
        assert_eq!(clock.missing(7 + 10, 5 + 99 * MS), -1);
        assert_eq!(clock.missing(7 + 3, 5 + 100 * MS), 7);
    }

    #[test]
    fn firings_missing_before_the_session_is_active_are_not_reported() {
        let mut clock = clock(FAST, 0);
        clock.before = FAST.before_active(50 * MS);
        assert_eq!(clock.missing(7, 5 + 100 * MS), 5);
        // The program skips the periods before its first run.
        for (active, first) in
            [(0, 0), (800, 0), (1100, 0), (1300, 0), (1600, 0), (1700, 0), (1800, 2), (5300, 5), (5900, 6)]
        {
            assert_eq!(SLOW.before_active(active * MS), first, "{active}");
        }
    }

    #[test]
    fn a_missing_firing_is_reported_once() {
        let mut clock = clock(FAST, 0);
        let reported = [(2, false), (3, false), (3, false), (10, false), (9, false), (10, true), (10, true)]
            .map(|(missing, last)| clock.take(missing, last));
        assert_eq!(reported, [0, 2, 0, 7, 0, 1, 0]);
        let mut slow = self::clock(SLOW, 0);
        assert_eq!([0, 1, 1, 2].map(|missing| slow.take(missing, false)), [0, 1, 0, 1]);
    }

    #[test]
    fn a_slow_clock_may_fire_late_within_its_period() {
        let clock = clock(SLOW, 0);
        for (at, due) in [(500, 0), (1000, 0), (1800, 0), (1900, 1), (2800, 1), (2900, 2)] {
            assert_eq!(clock.missing(7, 5 + at * MS), due, "{at}");
        }
    }
}
