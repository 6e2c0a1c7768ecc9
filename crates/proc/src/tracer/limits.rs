//! The time limits of targets that are held: a session may be blocked and never resume them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Command, Queue, Thread, request};
use crate::phase::{Phase, lock};

impl Thread {
    /// Resumes a target at its exit after the time limit, because the session may be blocked and
    /// never resume it. A session may have many targets to resume, so the time counts from its last
    /// resume.
    pub(super) fn resume_exit_after(&mut self, pid: i32, limit: Duration) {
        let queue = Arc::downgrade(&self.queue);
        let begun = Instant::now();
        let body = move || {
            let queue: Arc<Queue> = loop {
                let Some(queue) = Weak::upgrade(&queue) else { return };
                let since = lock(&queue.last_resume).map_or(begun, |last| last.max(begun));
                let left = limit.saturating_sub(since.elapsed());
                if left.is_zero() {
                    break queue;
                }
                drop(queue);
                std::thread::sleep(left);
            };
            request(&queue, |reply| Command::ResumeExit(pid, reply));
        };
        let thread = std::thread::Builder::new().name("hold".into()).stack_size(64 << 10);
        if thread.spawn(body).is_err() {
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
            let Some(shared) = timed.upgrade() else { return };
            let left = limit.saturating_sub(shared.since().elapsed());
            if shared.phase() != Phase::Changing {
                shared.timed.store(false, Ordering::SeqCst);
                // It may have changed meanwhile, and seen that there is a thread.
                if shared.phase() != Phase::Changing || shared.timed.swap(true, Ordering::SeqCst) {
                    return;
                }
            } else if left.is_zero() {
                let Some(queue) = queue.upgrade() else { return };
                request(&queue, |reply| Command::ResumeChange(pid, reply));
            }
            drop(shared);
            std::thread::sleep(left.max(Duration::from_millis(1)));
        };
        let thread = std::thread::Builder::new().name("hold".into()).stack_size(64 << 10);
        if thread.spawn(body).is_err() {
            shared.timed.store(false, Ordering::SeqCst);
            self.resume_change(pid);
        }
    }
}
