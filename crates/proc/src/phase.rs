//! The state of a target, which its handle shares with the tracing thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a target ended, as the wait status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Unknown: the kernel reports the status to the parent only (`-p`).
    Unknown,
    /// `exit(status)`.
    Exited(i32),
    /// Killed by a signal.
    Signaled(i32),
}

/// The state of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Seized, while not all of its threads have stopped.
    Stopping,
    /// Stopped by the tracer.
    Held,
    /// Seized and running.
    Running,
    /// Detached and running. A child is still to be reaped.
    Detached,
    /// Stopped at its exit, with its address space.
    Exiting,
    /// The process has ended.
    Ended(ExitStatus),
}

/// State that the thread and a target share.
#[derive(Debug)]
pub(crate) struct Shared {
    phase: Mutex<Phase>,
    /// Why the target is not held at the moment that was asked for.
    note: Mutex<Option<String>>,
    /// Readable when the target has reached its moment, is at its exit or has ended.
    event: OwnedFd,
}

impl Shared {
    pub(crate) fn new() -> io::Result<Arc<Shared>> {
        // SAFETY: a plain system call; the descriptor is ours.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Arc::new(Shared { phase: Mutex::new(Phase::Held), note: Mutex::default(), event }))
    }

    pub(crate) fn phase(&self) -> Phase {
        *lock(&self.phase)
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Why the target is not held at the moment that was asked for.
    pub(crate) fn note(&self) -> Option<String> {
        lock(&self.note).clone()
    }

    pub(crate) fn set_note(&self, note: Option<String>) {
        *lock(&self.note) = note;
    }

    pub(crate) fn set(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        if matches!(phase, Phase::Held | Phase::Exiting | Phase::Ended(_)) {
            let one = 1u64;
            // SAFETY: eight bytes of a valid word.
            unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Makes the descriptor unreadable until the next event.
    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes into a valid word. If there is nothing to read, the error is ignored.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
