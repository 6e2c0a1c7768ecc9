//! When intervals end (`-x every`).
//!
//! A snapshot divides what was aggregated before it began from what came after it. The first
//! snapshot that begins at the end of an interval or later, for whatever reason, ends it, and its
//! time is the time of that end. So an interval may be a little longer than was asked for, and
//! nothing is in two of them. The next end is a multiple of the length after the start: what was
//! late does not move those that follow.

use std::time::Duration;

use events::Clock;

use crate::engine::Engine;
use crate::options::nanoseconds;

/// The shortest interval of a rate: a lower one would keep a CPU busy.
pub(super) const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// The interval of an option.
pub(super) fn interval(rate: Duration) -> Duration {
    rate.max(LEAST_INTERVAL)
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Intervals(Option<Every>);

struct Every {
    length: u64,
    /// When the interval is to end.
    next: u64,
    /// The snapshot that ends it, by its number, and when that began.
    ends: Option<(u64, Clock)>,
    /// The end of an interval whose snapshot was taken.
    ended: Option<Clock>,
}

impl Intervals {
    /// Intervals of this length. The first one begins at this time.
    pub(super) fn new(length: Duration, begin: u64, engine: &mut dyn Engine) -> Intervals {
        let length = nanoseconds(interval(length));
        let next = begin.saturating_add(length);
        engine.pause_at(next);
        Intervals(Some(Every { length, next, ends: None, ended: None }))
    }

    /// When the interval is to end.
    pub(super) fn next(&self) -> Option<u64> {
        self.0.as_ref().map(|every| every.next)
    }

    /// Whether a snapshot that begins now ends an interval.
    pub(super) fn is_due(&self, engine: &dyn Engine) -> bool {
        self.next().is_some_and(|next| engine.now() >= next)
    }

    /// Begins a snapshot, if none is pending.
    pub(super) fn begin_snapshot(&mut self, engine: &mut dyn Engine) {
        let (begun, merged) = engine.snapshots();
        // Before it begins: what fires later than this may be in the next interval.
        let now = engine.clock();
        engine.begin_snapshot();
        let Some(every) = &mut self.0 else { return };
        if begun == merged && now.time >= every.next {
            every.ends = Some((begun + 1, now));
            let passed = (now.time - every.next) / every.length + 1;
            every.next = every.next.saturating_add(every.length.saturating_mul(passed));
            engine.pause_at(every.next);
        }
    }

    /// The pending snapshot was taken.
    pub(super) fn snapshot_taken(&mut self, engine: &dyn Engine) {
        let (_, merged) = engine.snapshots();
        if let Some(every) = &mut self.0
            && let Some((_, end)) = every.ends.take_if(|(number, _)| *number <= merged)
        {
            every.ended = Some(end);
        }
    }

    /// The end of the interval that the last snapshot has completed, if it has.
    pub(super) fn take_ended(&mut self) -> Option<Clock> {
        self.0.as_mut()?.ended.take()
    }
}
