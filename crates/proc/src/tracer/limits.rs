//! The time limits of targets that are held: a session may be blocked and never resume them.
//!
//! A thread waits for each limit, until the target is held no more: it has been resumed, or the
//! session has ended.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use super::{Command, Queue, Thread, request};
use crate::phase::{Phase, TargetState, lock};

/// A count of what the tracing thread has done, for threads that wait for that or a time.
#[derive(Default)]
pub(super) struct Changes {
    count: Mutex<u64>,
    more: Condvar,
}

impl Changes {
    /// The tracing thread has done something.
    pub(super) fn tell(&self) {
        let mut count = lock(&self.count);
        *count = count.wrapping_add(1);
        self.more.notify_all();
    }

    pub(super) fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Waits until there is more than this, or for so long.
    pub(super) fn wait(&self, seen: u64, limit: Duration) {
        let count = lock(&self.count);
        drop(self.more.wait_timeout_while(count, limit, |count| *count == seen));
    }
}

/// Waits until a limit has passed, of which `left` says what is left. False if the target is not
/// held any more, as `holds` says of it. Who waits has neither the queue nor the target, which may
/// both end.
pub(super) fn passes(
    (queue, target): (&Weak<Queue>, &Weak<TargetState>),
    holds: impl Fn(&TargetState) -> bool,
    left: impl Fn(&Queue) -> Duration,
) -> bool {
    loop {
        let (Some(queue), Some(target)) = (queue.upgrade(), target.upgrade()) else { return false };
        let changes = queue.changes.clone();
        // Before it is looked at: what changes meanwhile ends the wait.
        let seen = changes.count();
        if !target.is_traced() || !holds(&target) {
            return false;
        }
        let left = left(&queue);
        if left.is_zero() {
            return true;
        }
        drop((queue, target));
        changes.wait(seen, left);
    }
}

impl Thread {
    /// Resumes a target at its exit after the time limit, because the session may be blocked and
    /// never resume it. A session may have many targets to resume, so the time counts from its last
    /// resume.
    pub(super) fn resume_exit_after(&mut self, pid: i32, limit: Duration) {
        let Some(shared) = self.tracees.get(&pid).map(|tracee| tracee.shared.clone()) else { return };
        let (queue, target) = (Arc::downgrade(&self.queue), Arc::downgrade(&shared));
        let begun = Instant::now();
        let body = move || {
            let left = |queue: &Queue| {
                let since = lock(&queue.last_resume).map_or(begun, |last| last.max(begun));
                limit.saturating_sub(since.elapsed())
            };
            if passes((&queue, &target), |target| target.phase() == Phase::Exiting, left)
                && let Some(queue) = queue.upgrade()
            {
                request(&queue, |reply| Command::ResumeExit(pid, reply));
            }
        };
        if threads::spawn("hold", threads::SMALL_STACK, body).is_err() {
            // Without a thread the time limit could not be kept.
            self.release(pid, None);
        }
    }

    /// Resumes a target that has changed after the time limit, likewise. One thread does that for a
    /// target.
    pub(super) fn resume_change_after(&mut self, pid: i32, limit: Duration) {
        let Some(shared) = self.tracees.get(&pid).map(|tracee| tracee.shared.clone()) else { return };
        if shared.timed.swap(true, Ordering::SeqCst) {
            return;
        }
        let (queue, timed) = (Arc::downgrade(&self.queue), Arc::downgrade(&shared));
        let body = move || loop {
            let left =
                || timed.upgrade().map_or(limit, |target| limit.saturating_sub(target.since().elapsed()));
            if passes((&queue, &timed), |target| target.phase() == Phase::Changing, |_| left()) {
                let Some(queue) = queue.upgrade() else { return };
                request(&queue, |reply| Command::ResumeChange(pid, reply));
            }
            let Some(target) = timed.upgrade().filter(|target| target.is_traced()) else { return };
            if target.phase() != Phase::Changing {
                target.timed.store(false, Ordering::SeqCst);
                // It may have changed meanwhile, and seen that there is a thread.
                if target.phase() != Phase::Changing || target.timed.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        };
        if threads::spawn("hold", threads::SMALL_STACK, body).is_err() {
            shared.timed.store(false, Ordering::SeqCst);
            self.resume_change(pid);
        }
    }
}
