//! The state of a target, which its handle shares with the tracing thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a target ended, as the wait status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Unknown: the kernel reports the status to the parent only (`-p`).
    Unknown,
    /// `exit(status)`.
    Exited(i32),
    /// Killed by a signal.
    Signaled(i32),
    /// Unknown: another part of this program has waited for it, as `waitpid(-1)` does.
    Taken,
}

/// The name of a signal, as in `SIGTERM`.
pub fn signal_name(signal: i32) -> String {
    // The numbers are those of every newer architecture too.
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal - 1).ok().and_then(|at| NAMES.get(at)) {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}

/// The words for [`ExitStatus::Taken`], of a process.
pub fn taken() -> &'static str {
    "another part of this program has waited for it, as waitpid(-1) does: a program that traces waits for its own children by their ids"
}

/// When a released target is held again, and for how long at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// At its exit, with its address space.
    pub exit: bool,
    /// After it has executed another program, before that runs; and where the first thread gets
    /// `SIGCHLD` from the kernel itself, if its dynamic linker's list of libraries is complete
    /// then. (The kernel sends another `SIGCHLD` for children.)
    pub changes: bool,
    /// What its first thread forks is held after it has executed a program, and where its first
    /// thread gets such a `SIGCHLD`; and so are the children of these.
    pub forks: bool,
    /// Where a signal is about to end it with a core file, whatever thread gets it: all threads
    /// stay traced. Until [`Target::resume_fatal`](crate::Target::resume_fatal).
    pub fatal: bool,
    /// For how long at most.
    pub limit: Duration,
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
    /// Stopped where it has executed another program or changed its libraries.
    Changing,
    /// Stopped at its exit, with its address space.
    Exiting,
    /// The process has ended.
    Ended(ExitStatus),
}

/// Memory that a target has mapped for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) address: u64,
    pub(crate) size: u64,
}

/// State that the thread and a target share.
#[derive(Debug)]
pub(crate) struct TargetState {
    phase: Mutex<Phase>,
    /// Why the target is not held at the moment that was asked for.
    note: Mutex<Option<String>>,
    /// When the phase was last set.
    since: Mutex<Instant>,
    /// A thread ends the phase `Changing` that lasts too long.
    pub(crate) timed: AtomicBool,
    /// Its children that are held, and since when.
    children: Mutex<Vec<(i32, Instant)>>,
    /// A thread ends the holding of children that lasts too long.
    pub(crate) times_children: AtomicBool,
    /// The memory that it has mapped for the session.
    pub(crate) memory: Mutex<Option<Memory>>,
    /// Why it has none.
    lost: Mutex<Option<String>>,
    /// Its threads that are held with the signals that will end it.
    fatal: Mutex<Vec<(i32, i32)>>,
    /// The tracing thread does not have it any more.
    over: AtomicBool,
    /// Readable when the target has reached its moment, has changed, is at its exit or has ended.
    event: OwnedFd,
}

impl TargetState {
    pub(crate) fn new() -> io::Result<Arc<TargetState>> {
        // SAFETY: a plain system call; the descriptor is ours.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let (phase, since) = (Mutex::new(Phase::Held), Mutex::new(Instant::now()));
        let (note, timed, children, times_children) = Default::default();
        let (memory, lost, fatal, over) = Default::default();
        Ok(Arc::new(TargetState {
            phase,
            note,
            since,
            timed,
            children,
            times_children,
            memory,
            lost,
            fatal,
            over,
            event,
        }))
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

    /// When the phase was last set.
    pub(crate) fn since(&self) -> Instant {
        *lock(&self.since)
    }

    pub(crate) fn set(&self, phase: Phase) {
        *lock(&self.since) = Instant::now();
        *lock(&self.phase) = phase;
        if matches!(phase, Phase::Held | Phase::Changing | Phase::Exiting | Phase::Ended(_)) {
            self.ring();
        }
    }

    fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of a valid word.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// A child is held.
    pub(crate) fn add_child(&self, id: i32) {
        lock(&self.children).push((id, Instant::now()));
        self.ring();
    }

    /// The children that are held. The descriptor is unreadable until the next event; what else has
    /// happened is to be looked at after this.
    pub(crate) fn held_children(&self) -> Vec<i32> {
        if lock(&self.children).is_empty() {
            return Vec::new();
        }
        self.clear();
        lock(&self.children).iter().map(|(id, _)| *id).collect()
    }

    /// The child that has been held for longest.
    pub(crate) fn first_child(&self) -> Option<(i32, Instant)> {
        lock(&self.children).first().copied()
    }

    /// A child is held no more. False if it was not.
    pub(crate) fn remove_child(&self, id: i32) -> bool {
        let mut children = lock(&self.children);
        let before = children.len();
        children.retain(|(child, _)| *child != id);
        children.len() < before
    }

    /// No child is held any more. Gives those that were.
    pub(crate) fn remove_children(&self) -> Vec<i32> {
        std::mem::take(&mut *lock(&self.children)).into_iter().map(|(id, _)| id).collect()
    }

    /// It has no memory for the session any more.
    pub(crate) fn set_lost(&self, why: String) {
        *lock(&self.lost) = Some(why);
        self.ring();
    }

    /// Why it has no memory for the session any more, once.
    pub(crate) fn take_lost(&self) -> Option<String> {
        lock(&self.lost).take()
    }

    /// A thread is held with a signal that will end the process.
    pub(crate) fn add_fatal(&self, thread: i32, signal: i32) {
        lock(&self.fatal).push((thread, signal));
        self.ring();
    }

    /// The first thread that is held with a signal that will end the process.
    pub(crate) fn fatal(&self) -> Option<(i32, i32)> {
        lock(&self.fatal).first().copied()
    }

    /// True while a thread is held with such a signal.
    pub(crate) fn holds(&self, thread: i32) -> bool {
        lock(&self.fatal).iter().any(|(held, _)| *held == thread)
    }

    /// The threads that are held so, and are not any more.
    pub(crate) fn take_fatal(&self) -> Vec<(i32, i32)> {
        let all = std::mem::take(&mut *lock(&self.fatal));
        if !all.is_empty() {
            self.clear();
        }
        all
    }

    /// The tracing thread does not have it any more: no time limit matters.
    pub(crate) fn leave(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// False when the tracing thread does not have it any more.
    pub(crate) fn is_traced(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
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
