//! Stopping a session from any thread and from a handler of a signal, at any time.
//!
//! ```text
//!  stop ──► asked ──► before and during the start: the start ends with an error
//!             ├─────► stopper: the probes, as soon as there are any
//!             └─────► bell: whoever waits for the session
//! ```
//!
//! The stopper and the bell come after the session: who adds one looks whether it was asked before,
//! and who asks looks what is there. Whatever comes first, one of both sees the other.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use dtrace::Stopper;

/// See the module.
#[derive(Default)]
pub(crate) struct Stop {
    asked: AtomicBool,
    /// The start is over.
    begun: AtomicBool,
    stopper: OnceLock<Stopper>,
    /// An eventfd, readable from the moment on at which it was asked.
    bell: OnceLock<OwnedFd>,
}

impl Stop {
    /// Only what a handler of a signal may do.
    pub(crate) fn ask(&self) {
        self.asked.store(true, SeqCst);
        self.act();
    }

    fn act(&self) {
        if !self.asked.load(SeqCst) {
            return;
        }
        if let Some(stopper) = self.stopper.get() {
            stopper.stop();
        }
        if let Some(bell) = self.bell.get() {
            let one = 1u64;
            // SAFETY: the C library's errno of this thread, which is as before after this; eight
            // bytes of a valid word.
            unsafe {
                let errno = *libc::__errno_location();
                libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8);
                *libc::__errno_location() = errno;
            }
        }
    }

    /// True if the start is to end.
    pub(crate) fn ends_start(&self) -> bool {
        self.asked.load(SeqCst) && !self.begun.load(SeqCst)
    }

    /// The session has begun, and is stopped by this.
    pub(crate) fn begin(&self, stopper: Stopper) {
        let _ = self.stopper.set(stopper);
        self.begun.store(true, SeqCst);
        self.act();
    }

    /// What is readable when it was asked. It is made once.
    pub(crate) fn bell(&self) -> io::Result<BorrowedFd<'_>> {
        if self.bell.get().is_none() {
            // SAFETY: a plain system call; the descriptor is new and ours.
            let bell = unsafe {
                let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
                if fd < 0 {
                    return Err(io::Error::last_os_error());
                }
                OwnedFd::from_raw_fd(fd)
            };
            let _ = self.bell.set(bell);
            self.act();
        }
        self.bell.get().map(AsFd::as_fd).ok_or_else(|| io::Error::other("no bell"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(stop: &Stop) -> bool {
        let fd = stop.bell().unwrap().as_raw_fd();
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut entry, 1, 0) == 1 }
    }

    #[test]
    fn a_stop_before_the_start_is_not_lost() {
        let stop = Stop::default();
        assert!(!stop.ends_start());
        stop.ask();
        assert!(stop.ends_start() && rings(&stop));
    }

    #[test]
    fn the_bell_rings_from_the_stop_on() {
        let stop = Stop::default();
        assert!(!rings(&stop));
        stop.ask();
        assert!(rings(&stop) && rings(&stop));
    }
}
