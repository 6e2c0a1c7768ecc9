//! SIGINT, SIGTERM and SIGHUP, from the start of a trace to its end.
//!
//! What one of them does depends on how far the trace is:
//!
//! ```text
//!  PREPARING  nothing is attached yet     the process dies of the signal, as without a handler; so do targets of -c, which have not run yet
//!  ATTACHING  programs are being attached the enabling stops at the next step; what was attached is detached in the background;
//!                                         while output is being written, the second ends the process at once: nobody may be reading it
//!  RUNNING    the session works           the first stops all probes at once, then the session ends as after exit();
//!                                         the second ends the process at once, and the kernel's slow work is left to the background
//! ```
//!
//! SIGUSR1 asks a capture that keeps the last moments for a snapshot; elsewhere it is not caught.
//!
//! The handler itself stops the probes and ends the process: where probes leave the machine hardly
//! any time, the thread that works for the session may be seconds away from looking at a flag.
//! Everything it does is async-signal-safe.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use dtrace::Stopper;

/// Signals since the start. Written by the handler.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Snapshots that were asked for. Written by the handler.
static SNAPSHOTS: AtomicU32 = AtomicU32::new(0);
/// Signals that the session has begun to end for.
static HANDLED: AtomicU32 = AtomicU32::new(0);
/// The descriptor the handler writes to.
static EVENT: AtomicI32 = AtomicI32::new(-1);
/// How far the trace is: a [`Phase`].
static PHASE: AtomicU8 = AtomicU8::new(0);
/// Whether a thread is writing output, which may wait for a reader for ever.
static WRITES: AtomicBool = AtomicBool::new(false);
/// Stops the probes of the session that runs. It is never freed: the handler may have read it.
static STOPPER: AtomicPtr<Stopper> = AtomicPtr::new(std::ptr::null_mut());

/// How far a trace is; see the [module](self).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Preparing = 0,
    Attaching = 1,
    Running = 2,
}

/// Catches interrupts. The handlers stay until the process ends.
pub(crate) struct Interrupts {
    event: OwnedFd,
}

extern "C" fn handler(signal: libc::c_int) {
    let phase = PHASE.load(Ordering::SeqCst);
    if phase == Phase::Preparing as u8 {
        // SAFETY: both are async-signal-safe. The signal comes once more when the handler returns,
        // and ends the process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        return;
    }
    let count = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    if count > 1 && (phase == Phase::Running as u8 || WRITES.load(Ordering::SeqCst)) {
        dtrace::live::leave();
        dtrace::end_process(1);
    }
    if phase == Phase::Running as u8
        // SAFETY: null, or one that lives for ever.
        && let Some(stopper) = unsafe { STOPPER.load(Ordering::SeqCst).as_ref() }
    {
        stopper.stop();
    }
    wake();
}

/// SIGUSR1 of a capture that keeps the last moments.
extern "C" fn snapshot(_: libc::c_int) {
    SNAPSHOTS.fetch_add(1, Ordering::SeqCst);
    wake();
}

/// Makes the descriptor readable. It is async-signal-safe.
pub(crate) fn wake() {
    let one = 1u64;
    // SAFETY: write is async-signal-safe; eight bytes of a valid word. An error changes nothing:
    // the count is what counts. errno is put back, because the interrupted code may be about to
    // read it.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(EVENT.load(Ordering::SeqCst), (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

/// Writes output. The second signal ends the process then, whenever it comes and whichever thread
/// it meets: a write may wait for a reader for ever, and only signals that meet its own thread end
/// the wait.
pub(crate) fn while_writing<T>(write: impl FnOnce() -> T) -> T {
    WRITES.store(true, Ordering::SeqCst);
    // It came before the handler could see this write.
    if count() > 1 {
        dtrace::live::leave();
        dtrace::end_process(1);
    }
    let done = write();
    WRITES.store(false, Ordering::SeqCst);
    done
}

/// A file whose writes the second signal ends: see [`while_writing`].
#[derive(Debug)]
pub(crate) struct Writer(pub(crate) File);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match while_writing(|| self.0.write(bytes)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many came since attaching began.
pub(crate) fn count() -> u32 {
    COUNT.load(Ordering::SeqCst)
}

/// How many snapshots were asked for by SIGUSR1.
pub(crate) fn snapshots() -> u32 {
    SNAPSHOTS.load(Ordering::SeqCst)
}

/// The session begins to end for those that came so far.
pub(crate) fn handle() {
    HANDLED.store(count(), Ordering::SeqCst);
}

/// True when one came that nothing was done about yet.
pub(crate) fn is_pending() -> bool {
    count() > HANDLED.load(Ordering::SeqCst)
}

/// From now on something is attached.
pub(crate) fn attaching() {
    PHASE.store(Phase::Attaching as u8, Ordering::SeqCst);
}

/// From now on the session works.
pub(crate) fn running(stopper: Option<Stopper>) {
    if let Some(stopper) = stopper {
        STOPPER.store(Box::into_raw(Box::new(stopper)), Ordering::SeqCst);
    }
    PHASE.store(Phase::Running as u8, Ordering::SeqCst);
}

extern "C" fn nothing(_: libc::c_int) {}

/// A write beyond the limit of a file's size (`ulimit -f`) is an error with a message: by default
/// its signal kills. It is handled and not ignored, because commands that are run would inherit
/// that.
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

/// Signals that end a process and that nothing here waits for.
const DEADLY: [libc::c_int; 15] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGSYS,
    libc::SIGPWR,
];

extern "C" fn leave_and_end(signal: libc::c_int) {
    dtrace::live::leave();
    // SAFETY: a plain call; what the signal does now is what it does by default.
    unsafe { libc::raise(signal) };
}

/// From now on a signal that ends the process leaves the terminal as it was.
pub(crate) fn leave_terminal() {
    for signal in DEADLY {
        // SAFETY: an all-zero sigaction is valid; the handler is async-signal-safe and lives for
        // ever. One that is handled or ignored stays so, but for the stack's overflow, whose
        // message the screen would cover.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            let is_of_runtime = [libc::SIGSEGV, libc::SIGBUS].contains(&signal);
            if old.sa_sigaction == libc::SIG_DFL || is_of_runtime && old.sa_sigaction != libc::SIG_IGN {
                action.sa_sigaction = leave_and_end as extern "C" fn(libc::c_int) as usize;
                action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

impl Interrupts {
    /// Starts to catch.
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
            // SAFETY: an all-zero sigaction is valid; the handler is async-signal-safe and lives
            // for ever. A signal that was ignored when we started (nohup) stays ignored.
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

    /// From now on SIGUSR1 asks for a snapshot.
    pub(crate) fn catch_snapshots(&self) {
        // SAFETY: an all-zero sigaction is valid; the handler is async-signal-safe and lives for
        // ever.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = snapshot as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        }
    }

    /// Makes the descriptor unreadable until the next signal. Look at the counts after it.
    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: reads at most eight bytes into a valid word, and does not wait.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Readable after the first interrupt.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
