//! Children of targets, which are held where they execute programs.
//!
//! The kernel traces what a traced thread forks, and stops the child before its first instruction.
//! So a child is known by this stop: whose it is does not matter. It is held at each exec until the
//! session has looked at its new program, and where the kernel tells of a mapping (`SIGCHLD` of the
//! kernel itself, as for targets). It belongs to whichever target asked for that and still runs.
//!
//! ```text
//!  first stop ──► runs ──► exec, mapping: held ──► resumed, or time limit ──► runs ──► ends
//!                  │ signals are passed on, group stops last
//!                  └─ no target asks any more: detached at its next stop
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::limits::passes;
use super::{Command, Thread, is_from_kernel, request};
use crate::grab::ptrace;
use crate::phase::{Hold, TargetState};
use crate::start::is_stop;

/// The events of ptrace that follow what a first thread forks.
pub(super) const FORKS: i32 = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;

impl Thread {
    /// A target that asks for the programs of its children.
    fn asks(&self) -> Option<(Arc<TargetState>, Hold)> {
        let asks = |hold: &Hold| hold.forks;
        self.tracees
            .values()
            .find_map(|t| Some((t.shared.clone(), t.hold.filter(asks).filter(|_| t.traced)?)))
    }

    /// Takes an event of a child. False if the process is none.
    pub(super) fn child_event(&mut self, id: i32, status: i32) -> bool {
        let (event, signal) = (status >> 16, (status >> 8) & 0xff);
        if self.tracees.contains_key(&id) || self.threads.contains_key(&id) {
            return false;
        }
        let known = self.children.contains(&id);
        if !libc::WIFSTOPPED(status) {
            self.changing.remove(&id);
            return self.children.remove(&id);
        }
        // The first stop of any other process that is traced was waited for.
        if !known && event != libc::PTRACE_EVENT_STOP {
            return false;
        }
        let Some((shared, hold)) = self.asks() else {
            self.children.remove(&id);
            self.changing.remove(&id);
            ptrace(libc::PTRACE_DETACH, id, if event == 0 { signal } else { 0 });
            return true;
        };
        if !known {
            self.children.insert(id);
            ptrace(libc::PTRACE_SETOPTIONS, id, FORKS | libc::PTRACE_O_TRACEEXEC);
        }
        match event {
            libc::PTRACE_EVENT_STOP if is_stop(signal) => ptrace(libc::PTRACE_LISTEN, id, 0),
            libc::PTRACE_EVENT_EXEC => self.hold_child(id, &shared, hold),
            libc::PTRACE_EVENT_STOP if self.changing.remove(&id) => self.hold_child(id, &shared, hold),
            0 if signal == libc::SIGCHLD && is_from_kernel(id) => {
                // From an event stop the process runs on unchanged, should the tracer die.
                self.changing.insert(id);
                ptrace(libc::PTRACE_INTERRUPT, id, 0);
                ptrace(libc::PTRACE_CONT, id, 0);
            }
            0 => ptrace(libc::PTRACE_CONT, id, signal),
            _ => ptrace(libc::PTRACE_CONT, id, 0),
        }
        true
    }

    fn hold_child(&self, id: i32, shared: &Arc<TargetState>, hold: Hold) {
        shared.add_child(id);
        self.resume_children_after(shared, hold.limit);
    }

    /// Lets a child run on that is held.
    pub(super) fn resume_child(&mut self, id: i32) {
        let held = self.tracees.values().filter(|tracee| tracee.shared.remove_child(id)).count();
        if held > 0 && self.children.contains(&id) {
            ptrace(libc::PTRACE_CONT, id, 0);
        }
    }

    /// Children that wait for a target which has ended, or is not traced any more, run on.
    pub(super) fn resume_children_of(&mut self, shared: &TargetState) {
        for id in shared.remove_children() {
            if self.children.contains(&id) {
                ptrace(libc::PTRACE_CONT, id, 0);
            }
        }
    }

    /// Resumes the children of a target after the time limit, because the session may be blocked.
    /// One thread does that for a target.
    fn resume_children_after(&self, shared: &Arc<TargetState>, limit: Duration) {
        if shared.times_children.swap(true, Ordering::SeqCst) {
            return;
        }
        let (queue, timed) = (Arc::downgrade(&self.queue), Arc::downgrade(shared));
        let body = move || loop {
            // It lives as long as the target, which may have more children.
            let left = || {
                let first = timed.upgrade().and_then(|target| target.first_child());
                first.map_or(limit.max(Duration::from_millis(1)), |(_, since)| {
                    limit.saturating_sub(since.elapsed())
                })
            };
            if !passes((&queue, &timed), |_| true, |_| left()) {
                return;
            }
            let (Some(queue), Some(target)) = (queue.upgrade(), timed.upgrade()) else { return };
            if let Some((id, since)) = target.first_child()
                && since.elapsed() >= limit
            {
                request(&queue, |reply| Command::ResumeChild(id, reply));
            }
        };
        if threads::spawn("hold", threads::SMALL_STACK, body).is_err() {
            shared.times_children.store(false, Ordering::SeqCst);
            for id in shared.remove_children() {
                ptrace(libc::PTRACE_CONT, id, 0);
            }
        }
    }
}
