//! SIGINT, SIGTERM and SIGHUP as a readable descriptor, and their number.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Interrupts since the start. Written by the handler.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Interrupts that were handled: the end of the session has begun.
static HEARD: AtomicU32 = AtomicU32::new(0);
/// The descriptor the handler writes to.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// Catches interrupts. The handlers stay until the process ends.
pub(crate) struct Interrupts {
    event: OwnedFd,
}

extern "C" fn handler(_: libc::c_int) {
    COUNT.fetch_add(1, Ordering::SeqCst);
    let one = 1u64;
    // SAFETY: write is async-signal-safe; eight bytes of a valid word. An error has no effect, because the count is
    // enough. errno is restored, because the interrupted code may read it next.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(EVENT.load(Ordering::SeqCst), (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

/// The number of interrupts since the start.
pub(crate) fn count() -> u32 {
    COUNT.load(Ordering::SeqCst)
}

/// Marks all interrupts so far as handled.
pub(crate) fn hear() {
    HEARD.store(count(), Ordering::SeqCst);
}

/// True when an interrupt is not handled yet.
pub(crate) fn is_pending() -> bool {
    count() > HEARD.load(Ordering::SeqCst)
}

extern "C" fn nothing(_: libc::c_int) {}

/// A write beyond the limit of a file's size (`ulimit -f`) is an error with a message: by default its signal kills. It is
/// handled and not ignored, because commands that are run would inherit that.
pub(crate) fn outlive_file_size_limit() {
    // SAFETY: an all-zero sigaction is valid; the handler does nothing and lives for ever.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut old);
        if old.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
        }
    }
}

impl Interrupts {
    /// Starts to catch. SIGPIPE is ignored, so that a closed pipe is an error of the write.
    pub(crate) fn catch() -> io::Result<Interrupts> {
        // SAFETY: a plain system call; the descriptor is ours.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            EVENT.store(fd, Ordering::SeqCst);
            OwnedFd::from_raw_fd(fd)
        };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: an all-zero sigaction is valid; the handler is async-signal-safe and lives for ever. A signal that
            // was ignored when we started (nohup) stays ignored.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                if old.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
        Ok(Interrupts { event })
    }

    /// Readable after the first interrupt.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
