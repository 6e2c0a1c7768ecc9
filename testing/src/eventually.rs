//! Waiting for what another thread or process, or the kernel, does.
//!
//! A test does not guess how long that takes: it polls a condition. The deadline only ends a test
//! that hangs, so that it says what it waited for; it is no verdict on speed.

use std::convert::Infallible;
use std::fmt::Display;
use std::time::{Duration, Instant};

/// The usual deadline. What takes longer is considered to hang. The limit is generous, because
/// machines are slow, loaded, and paused.
pub const HANG_LIMIT: Duration = Duration::from_secs(300);

/// How long a wait pauses between two polls.
const PAUSE: Duration = Duration::from_millis(2);

/// What a condition says when it is polled.
pub trait Poll {
    /// What a condition gives that holds.
    type Value;
    /// What is known of a condition that does not hold.
    type State: Display;

    /// The value, or the state without one.
    fn value(self) -> Result<Self::Value, Option<Self::State>>;
}

impl<T> Poll for Option<T> {
    type Value = T;
    type State = Infallible;

    fn value(self) -> Result<T, Option<Infallible>> {
        self.ok_or(None)
    }
}

impl<T, S: Display> Poll for Result<T, S> {
    type Value = T;
    type State = S;

    fn value(self) -> Result<T, Option<S>> {
        self.map_err(Some)
    }
}

impl Poll for bool {
    type Value = ();
    type State = Infallible;

    fn value(self) -> Result<(), Option<Infallible>> {
        if self { Ok(()) } else { Err(None) }
    }
}

/// Polls a condition until it holds: until it gives `Some`, `Ok` or true. Panics after the
/// deadline, with `what` was waited for, and with the state that the last `Err` of the condition
/// names.
#[track_caller]
#[allow(clippy::panic)]
pub fn eventually<P: Poll>(
    what: impl Display,
    deadline: Duration,
    mut condition: impl FnMut() -> P,
) -> P::Value {
    let start = Instant::now();
    loop {
        match condition().value() {
            Ok(value) => return value,
            Err(state) if start.elapsed() >= deadline => {
                let state = state.map(|s| format!(": {s}")).unwrap_or_default();
                panic!("{what} did not come in {deadline:?}{state}")
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_condition_is_polled_until_it_holds_and_gives_its_value() {
        let mut left = 3;
        let mut poll = || {
            left -= 1;
            left
        };
        assert_eq!(eventually("a value", HANG_LIMIT, || (poll() == 0).then_some(5)), 5);
        assert_eq!(eventually("a value", HANG_LIMIT, || if poll() < -2 { Ok(6) } else { Err("no") }), 6);
        eventually("a truth", HANG_LIMIT, || poll() < -5);
        assert_eq!(left, -6);
    }

    #[test]
    fn a_condition_that_holds_is_polled_once_even_after_the_deadline() {
        let mut polls = 0;
        eventually("a poll", Duration::ZERO, || {
            polls += 1;
            true
        });
        assert_eq!(polls, 1);
    }

    #[test]
    fn the_deadline_says_what_did_not_come_and_the_last_state() {
        let message = |wait: &mut dyn FnMut()| {
            *catch_unwind(AssertUnwindSafe(wait)).unwrap_err().downcast::<String>().unwrap()
        };
        let limit = Duration::from_millis(5);
        let none = message(&mut || eventually("the line", limit, || None));
        assert_eq!(none, "the line did not come in 5ms");
        let mut polls = 0;
        let state = message(&mut || {
            eventually(format_args!("line {}", 7), limit, || {
                polls += 1;
                Err::<(), _>(format!("{polls} polls"))
            });
        });
        assert!(polls > 1);
        assert_eq!(state, format!("line 7 did not come in 5ms: {polls} polls"));
    }
}
