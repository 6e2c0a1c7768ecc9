//! Snapshots of aggregations: which side the programs leave, and the grace period after which
//! nobody writes it.
//!
//! ```text
//!  begin     the epoch advances: programs use the other side from now on; a thread waits for a grace period
//!  is_ready  the thread has ended
//!  complete  the side that was left; it must be emptied before the next snapshot begins
//! ```
//!
//! A grace period takes some 20 ms, and half a minute on an overloaded machine. The session does
//! not wait for it, because it must handle records, `exit()` and interrupts.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bpf_sys::GracePeriod;
use plane::control::Control;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pending: Option<Pending>,
    /// How many have begun.
    begun: u64,
}

/// A snapshot that has begun and is not merged.
#[derive(Debug)]
struct Pending {
    side: u32,
    wait: Wait,
}

/// How the grace period is awaited.
#[derive(Debug)]
enum Wait {
    /// There are no programs to wait for.
    Nothing,
    /// By a thread.
    Thread(Arc<GracePeriod>, Waiter),
    /// By the session itself, because no thread could be started.
    Here(Arc<GracePeriod>),
}

/// A thread that waits for a grace period.
#[derive(Debug)]
struct Waiter {
    thread: JoinHandle<()>,
    /// It has waited.
    done: Arc<AtomicBool>,
    /// Readable when the thread is about to end: it has the other end. `None` without descriptors.
    end: Option<PipeReader>,
}

impl Waiter {
    fn start(grace: &Arc<GracePeriod>) -> io::Result<Waiter> {
        let (end, other) = io::pipe().ok().unzip();
        let (grace, done) = (grace.clone(), Arc::new(AtomicBool::new(false)));
        let mine = done.clone();
        let wait = move || {
            wait_for_programs(&grace);
            mine.store(true, Ordering::Release);
            drop(other);
        };
        let thread = threads::spawn("grace", threads::SMALL_STACK, wait)?;
        Ok(Waiter { thread, done, end })
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) || self.thread.is_finished()
    }
}

impl Snapshots {
    /// Begins a snapshot, if none is pending. Without `grace` no program is running.
    pub(crate) fn begin(&mut self, control: Control<'_>, grace: Option<&Arc<GracePeriod>>) {
        if self.pending.is_some() {
            return;
        }
        // The flip comes first. After the grace period no program writes the side that it leaves.
        let side = control.flip();
        self.begun += 1;
        let wait = grace.map_or(Wait::Nothing, |grace| match Waiter::start(grace) {
            Ok(waiter) => Wait::Thread(grace.clone(), waiter),
            Err(_) => Wait::Here(grace.clone()),
        });
        self.pending = Some(Pending { side, wait });
    }

    /// True if the pending snapshot can be completed without waiting.
    pub(crate) fn is_ready(&self) -> bool {
        match self.pending.as_ref().map(|p| &p.wait) {
            Some(Wait::Thread(_, waiter)) => waiter.is_done(),
            Some(Wait::Nothing | Wait::Here(_)) => true,
            None => false,
        }
    }

    /// Readable when the pending snapshot is ready, if that can be waited for.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.pending.as_ref()?.wait {
            Wait::Thread(_, waiter) => Some(waiter.end.as_ref()?.as_fd()),
            Wait::Nothing | Wait::Here(_) => None,
        }
    }

    /// Completes the pending snapshot, after waiting for it. Returns the side that no program
    /// writes.
    pub(crate) fn complete(&mut self) -> Option<u32> {
        let Pending { side, wait } = self.pending.take()?;
        match wait {
            Wait::Nothing => {}
            // A thread that ended early has perhaps not waited.
            Wait::Thread(grace, waiter) => {
                waiter.thread.join().unwrap_or_else(|_| wait_for_programs(&grace));
            }
            Wait::Here(grace) => wait_for_programs(&grace),
        }
        Some(side)
    }

    /// How many have begun, and how many of them are merged.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.begun, self.begun - u64::from(self.pending.is_some()))
    }
}

/// Waits until every program that is running has ended.
pub(crate) fn wait_for_programs(grace: &GracePeriod) {
    // It fails only without memory.
    while grace.wait().is_err() {
        std::thread::sleep(Duration::from_millis(100));
    }
}
