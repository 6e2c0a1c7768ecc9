//! Threads that get no signals, as a library starts them in the program of somebody else.
//!
//! The kernel delivers a signal of a process to any thread that does not block it. In a thread of
//! ours that would be wrong in two ways. A handler of the program would run on a stack of 64 KB,
//! which is enough for the thread and perhaps not for the handler. And a program that takes its
//! signals by `sigwait` or a `signalfd` blocks them in all of its threads: one that does not would
//! have the default action, which ends the program.
//!
//! A new thread has the signal mask of the one that starts it. So the mask is changed around the
//! start: no moment is left in which the new thread has another one.
//!
//! ```text
//!  spawn ──► block ──► clone ──► the mask as before
//!                        └──► the new thread: blocked from its first instruction
//! ```
//!
//! Signals that an instruction of the thread itself raises ([`SYNCHRONOUS`]) stay as they are: the
//! kernel would end the program without asking a handler that is there for that, as the one of the
//! standard library that reports the overflow of a stack.
//!
//! A program that such a thread executes begins with its mask. The programs that the library
//! executes from threads (readers of symbols, the server of metrics) [accept](accept_signals) all
//! signals when they begin.
//!
//! `cargo xtask tidy` finds threads of libraries that are not started here.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// The stack of a thread that does as much as a main thread.
pub const LARGE_STACK: usize = 2 << 20;

/// The stack of a thread that waits, or makes a system call.
pub const SMALL_STACK: usize = 64 << 10;

/// Signals that are the fault of the thread that gets them.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The mask that the thread had, which it has again on drop.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn begin() -> Blocked {
        // SAFETY: both sets are local; all-zero is a valid one.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            for signal in SYNCHRONOUS {
                libc::sigdelset(&raw mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Blocked(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is local.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

fn builder(name: &str, stack: usize) -> Builder {
    Builder::new().name(name.into()).stack_size(stack)
}

/// Starts a thread with a name and so many bytes of stack, which gets no signals.
pub fn spawn<T: Send + 'static>(
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::begin();
    builder(name, stack).spawn(body)
}

/// The same in a scope.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _blocked = Blocked::begin();
    builder(name, stack).spawn_scoped(scope, body)
}

/// From now on this thread, and those that it starts, accept every signal: for the beginning of a
/// program that a thread without signals has executed.
pub fn accept_signals() {
    // SAFETY: the set is local; all-zero is a valid one.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that this thread blocks, by number.
    fn blocked() -> Vec<i32> {
        // SAFETY: the kernel fills the set; nothing is changed.
        let now = unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now);
            now
        };
        // SAFETY: the set is valid.
        (1..=64).filter(|signal| unsafe { libc::sigismember(&raw const now, *signal) } == 1).collect()
    }

    #[test]
    fn a_thread_has_all_signals_blocked_and_who_starts_it_none_more() {
        let before = blocked();
        let of_thread = spawn("one", SMALL_STACK, blocked).unwrap().join().unwrap();
        let of_scoped = std::thread::scope(|scope| {
            spawn_scoped(scope, "two", SMALL_STACK, blocked).unwrap().join().unwrap()
        });
        assert_eq!((&of_thread, blocked()), (&of_scoped, before));
        for signal in (1..32).chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
            let expected =
                ![libc::SIGKILL, libc::SIGSTOP].contains(&signal) && !SYNCHRONOUS.contains(&signal);
            assert_eq!(of_thread.contains(&signal), expected, "{signal}");
        }
    }

    #[test]
    fn a_program_can_accept_signals_again() {
        let accepting = || {
            accept_signals();
            blocked()
        };
        assert_eq!(spawn("one", SMALL_STACK, accepting).unwrap().join().unwrap(), Vec::<i32>::new());
    }
}
