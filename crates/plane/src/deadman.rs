//! The deadman: who stops a session that leaves the machine no time.
//!
//! Not the consumer, for it is the first that starves. So a clock on each CPU runs a program of ours in the kernel, the
//! *heartbeat*, which asks two things at each beat. How late am I? A CPU that serves our programs with interrupts off does not
//! serve clocks. And when did the consumer last give a sign of life? A thread of its that does nothing else counts
//! the `life` word up once a beat; when it cannot, nobody can work. Beyond a limit the heartbeat makes
//! ACTIVE to KILLED, and every program that starts from then on ends at its first test.
//!
//! ```text
//!  control page   life    signs of life so far                         consumer adds 1
//!                 alarm   which limit was passed, see [`Reason`]       heartbeats store
//!  per-CPU        last    when the beat before was; 0 for none         all: this CPU's heartbeat alone
//!                 seen    `life` at that beat
//!                 silent  ns for which `life` has stood
//!                 late    how late that beat was
//!                 shown_late     the most without a sign of life, since the consumer looked (it stores 0)
//!                 shown_silent   likewise
//! ```
//!
//! The decision that shapes it: *neither a pause of the whole machine nor an idle CPU is an overload.* A guest that its host
//! does not run for a minute finds its clock advanced by a minute, with the consumer silent all that time. So one late beat
//! is not enough, the one before must have been late too; and of the time between two beats no more than
//! [`Limits::most`] counts as silence. Some kernels serve the clocks of an idle CPU only when it has work again: then its
//! beats are late, and the consumer lives. So a late beat counts only when it saw no sign of life since the one before; of a
//! CPU that alone is overloaded the consumer learns, and measures. Two CPUs that share an element (see [`crate::control`]) see less lateness than there is, never more.

/// What a session may do to the machine. In nanoseconds; 0: without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Between two beats.
    pub interval: u64,
    /// A beat may be so late, when the consumer gives no sign of life either.
    pub late: u64,
    /// The consumer may be silent so long.
    pub silent: u64,
}

impl Limits {
    /// So much of the time since the last beat counts as silence.
    pub const fn most(self) -> u64 {
        self.interval.saturating_mul(5)
    }

    /// True when there is nothing to watch.
    pub const fn is_off(self) -> bool {
        self.interval == 0 || self.late == 0 && self.silent == 0
    }
}

/// Why a session was stopped; the number is the alarm word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A heartbeat was late, and the consumer silent.
    Late = 1,
    /// The consumer was silent.
    Silent = 2,
}

impl Reason {
    /// The reason in an alarm word.
    pub const fn of(word: u64) -> Option<Reason> {
        match word {
            1 => Some(Reason::Late),
            2 => Some(Reason::Silent),
            _ => None,
        }
    }
}

/// What a CPU's heartbeat knows of the beat before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heart {
    /// When it was; 0: there was none.
    pub last: u64,
    /// Signs of life that were seen.
    pub seen: u64,
    /// Nanoseconds without another.
    pub silent: u64,
    /// How late it was.
    pub late: u64,
}

impl Heart {
    /// A beat: the alarm, if there is one. This is what the program in the kernel does.
    pub fn beat(&mut self, now: u64, life: u64, limits: Limits) -> Option<Reason> {
        let since = if self.last == 0 { 0 } else { now.saturating_sub(self.last) };
        self.last = now;
        let before = std::mem::replace(&mut self.late, since.saturating_sub(limits.interval));
        if life == self.seen {
            self.silent += since.min(limits.most());
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

    /// Beats at these seconds, a sign of life before each where `alive`; the alarm and its second.
    fn alarm(seconds: impl IntoIterator<Item = u64>, alive: bool, limits: Limits) -> Option<(u64, Reason)> {
        let (mut heart, mut life) = (Heart::default(), 1);
        seconds.into_iter().find_map(|at| {
            life += u64::from(alive);
            heart.beat(at * S, life, limits).map(|why| (at, why))
        })
    }

    #[test]
    fn beats_in_time_and_a_consumer_that_lives_are_no_alarm() {
        assert_eq!(alarm(1..10_000, true, LIMITS), None);
    }

    #[test]
    fn a_consumer_that_is_silent_for_the_limit_is_an_alarm() {
        // The first beat sees the life it stands at.
        assert_eq!(alarm(100..200, false, LIMITS), Some((130, Reason::Silent)));
        assert_eq!(alarm(100..100_000, false, Limits { silent: 0, ..LIMITS }), None);
    }

    #[test]
    fn silence_is_counted_anew_after_a_sign_of_life() {
        let mut heart = Heart::default();
        let mut life = 1;
        for at in 1..1000 {
            life += u64::from(at % 29 == 0);
            assert_eq!(heart.beat(at * S, life, LIMITS), None, "{at}");
        }
    }

    #[test]
    fn a_second_late_beat_is_an_alarm() {
        assert_eq!(alarm([1, 2, 20, 21, 40], false, LIMITS), None);
        assert_eq!(alarm([1, 2, 20, 31], false, LIMITS), Some((31, Reason::Late)));
        assert_eq!(alarm([1, 3, 14], false, LIMITS), Some((14, Reason::Late)));
        assert_eq!(alarm([1, 3, 14], false, Limits { late: 0, ..LIMITS }), None);
    }

    #[test]
    fn an_idle_cpu_is_no_alarm() {
        assert_eq!(alarm([1, 3, 14, 74, 374, 3974], true, LIMITS), None);
    }

    #[test]
    fn a_pause_of_the_machine_is_no_alarm() {
        // An hour, and the consumer gets no time before the next beat either.
        assert_eq!(alarm([1, 2, 3602, 3603, 3604], false, LIMITS), None);
        assert_eq!(alarm([1, 2, 3602, 3603, 3604], true, LIMITS), None);
    }

    #[test]
    fn a_clock_that_goes_back_is_no_alarm() {
        assert_eq!(alarm([50, 49, 50, 51], true, LIMITS), None);
    }

    #[test]
    fn without_limits_there_is_nothing_to_watch() {
        assert!(Limits { late: 0, silent: 0, ..LIMITS }.is_off());
        assert!(Limits { interval: 0, ..LIMITS }.is_off());
        assert!(!LIMITS.is_off());
    }
}
