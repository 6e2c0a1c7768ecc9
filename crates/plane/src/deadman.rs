//! The deadman: stops a session that overloads the machine.
//!
//! The consumer cannot do this, because it is the first process that starves. So a timer on each
//! CPU runs a program of the session, the *heartbeat*. Each beat checks two things. First, how late
//! it is: a CPU that runs our programs with interrupts disabled does not run timers. Second, when
//! the consumer last proved that it runs: one of its threads does nothing but increment the `life`
//! word once per beat. If a limit is exceeded, the heartbeat changes ACTIVE to KILLED. Every
//! program that starts after that ends at its first test.
//!
//! ```text
//!  control page   life    increments by the consumer so far            consumer adds 1
//!                 alarm   the limit that was exceeded, see [`Reason`]  heartbeats store
//!  per-CPU        last    time of the previous beat; 0 for none        all: this CPU's heartbeat
//!                 seen    `life` at that beat
//!                 silent  ns for which `life` has not changed
//!                 late    lateness of that beat
//!                 shown_late     greatest `late` of beats that saw no change of `life` since
//!                                the consumer last read it (the consumer stores 0)
//!                 shown_silent   greatest `silent`, likewise
//! ```
//!
//! The key decision: *neither a pause of the whole machine nor an idle CPU is an overload.* If a
//! host suspends a guest for a minute, the guest's clock advances by a minute and the consumer is
//! silent for all that time. So one late beat is not enough; the previous beat must have been late
//! too. And of the time between two beats at most [`Limits::max_step`] counts as silence. Some
//! kernels run the timers of an idle CPU only when it has work again. Then its beats are late
//! although the consumer runs. So a late beat counts only if `life` has not changed since the
//! previous one. If a single CPU is overloaded, the consumer sees the lateness and measures the
//! load. Two CPUs that share an element (see [`crate::control`]) see less lateness than there is,
//! never more.

/// Limits on the load that a session may cause, in nanoseconds; 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time between two beats.
    pub interval: u64,
    /// The lateness of a beat, while the consumer is silent too.
    pub late: u64,
    /// The silence of the consumer.
    pub silent: u64,
}

impl Limits {
    /// The most time between two beats that counts as silence.
    pub const fn max_step(self) -> u64 {
        self.interval.saturating_mul(5)
    }

    /// True if there is no limit to check.
    pub const fn is_off(self) -> bool {
        self.interval == 0 || self.late == 0 && self.silent == 0
    }
}

/// The reason for which a session was stopped; its number is the alarm word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A heartbeat was late, and the consumer silent.
    Late = 1,
    /// The consumer was silent.
    Silent = 2,
}

impl Reason {
    /// Decodes an alarm word.
    pub const fn of(word: u64) -> Option<Reason> {
        match word {
            1 => Some(Reason::Late),
            2 => Some(Reason::Silent),
            _ => None,
        }
    }
}

/// The state of a CPU's heartbeat after its last beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeartbeatState {
    /// Time of the beat; 0 if there was none.
    pub last: u64,
    /// The `life` word at that beat.
    pub seen: u64,
    /// Nanoseconds since that word changed.
    pub silent: u64,
    /// Lateness of the beat.
    pub late: u64,
}

impl HeartbeatState {
    /// Processes a beat and returns the alarm, if it raises one. The kernel program does the same.
    pub fn beat(&mut self, now: u64, life: u64, limits: Limits) -> Option<Reason> {
        let since = if self.last == 0 { 0 } else { now.saturating_sub(self.last) };
        self.last = now;
        let before = std::mem::replace(&mut self.late, since.saturating_sub(limits.interval));
        if life == self.seen {
            self.silent += since.min(limits.max_step());
        } else {
            (self.seen, self.silent) = (life, 0);
        }
        if limits.silent != 0 && self.silent >= limits.silent {
            return Some(Reason::Silent);
        }
        let again = before >= limits.interval;
        let alone = self.silent != 0;
        (limits.late != 0 && alone && again && self.late >= limits.late).then_some(Reason::Late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const LIMITS: Limits = Limits { interval: S, late: 10 * S, silent: 30 * S };

    /// Beats at these seconds. With `alive` the consumer runs before each of them. Returns the
    /// first alarm and its second.
    fn alarm(seconds: impl IntoIterator<Item = u64>, alive: bool, limits: Limits) -> Option<(u64, Reason)> {
        let (mut state, mut life) = (HeartbeatState::default(), 1);
        seconds.into_iter().find_map(|at| {
            life += u64::from(alive);
            state.beat(at * S, life, limits).map(|why| (at, why))
        })
    }

    #[test]
    fn beats_in_time_with_a_running_consumer_raise_no_alarm() {
        assert_eq!(alarm(1..10_000, true, LIMITS), None);
    }

    #[test]
    fn a_consumer_that_is_silent_for_the_limit_raises_an_alarm() {
        // The first beat finds `life` as it is.
        assert_eq!(alarm(100..200, false, LIMITS), Some((130, Reason::Silent)));
        assert_eq!(alarm(100..100_000, false, Limits { silent: 0, ..LIMITS }), None);
    }

    #[test]
    fn silence_is_reset_when_the_consumer_runs() {
        let mut state = HeartbeatState::default();
        let mut life = 1;
        for at in 1..1000 {
            life += u64::from(at % 29 == 0);
            assert_eq!(state.beat(at * S, life, LIMITS), None, "{at}");
        }
    }

    #[test]
    fn a_second_late_beat_raises_an_alarm() {
        assert_eq!(alarm([1, 2, 20, 21, 40], false, LIMITS), None);
        assert_eq!(alarm([1, 2, 20, 31], false, LIMITS), Some((31, Reason::Late)));
        assert_eq!(alarm([1, 3, 14], false, LIMITS), Some((14, Reason::Late)));
        assert_eq!(alarm([1, 3, 14], false, Limits { late: 0, ..LIMITS }), None);
    }

    #[test]
    fn late_beats_of_an_idle_cpu_raise_no_alarm() {
        assert_eq!(alarm([1, 3, 14, 74, 374, 3974], true, LIMITS), None);
    }

    #[test]
    fn a_pause_of_the_machine_raises_no_alarm() {
        // An hour; the consumer does not run before the next beat either.
        assert_eq!(alarm([1, 2, 3602, 3603, 3604], false, LIMITS), None);
        assert_eq!(alarm([1, 2, 3602, 3603, 3604], true, LIMITS), None);
    }

    #[test]
    fn a_clock_that_goes_back_raises_no_alarm() {
        assert_eq!(alarm([50, 49, 50, 51], true, LIMITS), None);
    }

    #[test]
    fn the_deadman_is_off_without_limits_or_interval() {
        assert!(Limits { late: 0, silent: 0, ..LIMITS }.is_off());
        assert!(Limits { interval: 0, ..LIMITS }.is_off());
        assert!(!LIMITS.is_off());
    }
}
