//! Watching the processes of the system, in a session that prints addresses of processes.
//!
//! A process may end before its addresses are printed. The watcher (`proc::watcher`) knows what it
//! had mapped. The session opens it before the first probe is attached, and only if a program
//! prints addresses of processes by name, or describes probes of processes that may map more files.
//! From then on the session takes the records regularly, because a ring is bounded and because a
//! file can be held only as long as its path exists. Where probes depend on them, each record wakes
//! the session, but not sooner than [`PAUSE`] after it has looked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bpf_sys::SysError;
use consumer::Consumer;
use events::Sink;
use proc::watcher::{BLOCKED, SharedWatcher, Watcher};

use super::Notice;
use crate::engine::Engine;

/// The interval at which records are taken if no ring fills. It bounds how long a file may exist
/// and not be held.
const INTERVAL: Duration = Duration::from_millis(100);

/// The shortest time between two looks at records that wake the session, on a system with many.
const PAUSE: Duration = Duration::from_millis(2);

/// The interval for a watcher that was opened to name addresses, and whose records do not wake the
/// session.
pub(super) const SOON: Duration = Duration::from_millis(10);

/// The watcher of a session.
pub(super) struct Watch {
    pub(super) watcher: SharedWatcher,
    /// Its records wake the session.
    pub(super) prompt: bool,
    pub(super) interval: Duration,
    pub(super) looked: Instant,
    /// A process that blocks the reading of its map was reported.
    pub(super) told_blocked: bool,
    /// The watcher's descriptor.
    poll: OwnedFd,
    pub(super) next: Instant,
    /// The consumer names addresses by it.
    names: bool,
    /// The unwinder follows it.
    unwinds: bool,
}

impl Watch {
    /// Opens a watcher if the consumer has a use for it, or the probes of processes have: they need
    /// to know at once.
    pub(super) fn begin<S: Sink>(
        consumer: &mut Consumer<S>,
        cpus: &[u32],
        (engine, prompt): (&dyn Engine, bool),
    ) -> Option<Watch> {
        if !prompt && !consumer.wants_watcher() {
            return None;
        }
        match Watch::open(cpus, prompt) {
            Ok(mut watch) => {
                watch.serve(consumer, engine);
                Some(watch)
            }
            Err(why) => {
                if consumer.wants_watcher() {
                    consumer.report(&Notice::Unavailable(cannot_watch(&why)).event(engine.now()));
                }
                None
            }
        }
    }

    pub(super) fn open(cpus: &[u32], prompt: bool) -> Result<Watch, SysError> {
        let watcher = if prompt { Watcher::open_prompt(cpus) } else { Watcher::open(cpus) }?;
        let poll = watcher.poll_fd().try_clone_to_owned();
        let errno = |e: std::io::Error| e.raw_os_error().unwrap_or_default();
        let poll = poll.map_err(|e| SysError::new("watch processes", errno(e)))?;
        let (watcher, now) = (Arc::new(Mutex::new(watcher)), Instant::now());
        let (told_blocked, names, unwinds) = Default::default();
        let interval = INTERVAL;
        Ok(Watch { watcher, prompt, interval, looked: now, told_blocked, poll, next: now, names, unwinds })
    }

    /// Gives the watcher to what names addresses and walks stacks, as soon as each is there. True
    /// if stacks are walked from now on.
    pub(super) fn serve<S: Sink>(&mut self, consumer: &mut Consumer<S>, engine: &dyn Engine) -> bool {
        if !consumer.wants_watcher() {
            return false;
        }
        if !std::mem::replace(&mut self.names, true) {
            consumer.set_watcher(self.watcher.clone());
        }
        let walked = self.unwinds;
        self.unwinds = self.unwinds || engine.follow_stacks(self.watcher.clone());
        self.unwinds && !walked
    }

    /// The watcher.
    pub(super) fn shared(&self) -> SharedWatcher {
        self.watcher.clone()
    }

    /// Readable when records should be taken.
    pub(super) fn poll_fd(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        (!self.prompt || now >= self.looked + PAUSE).then(|| self.poll.as_fd())
    }

    /// Reads processes from `/proc` now, because they may end before their turn comes.
    pub(super) fn read(&self, pids: impl Iterator<Item = u32>) {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        pids.for_each(|pid| watcher.read_if_unread(pid));
    }

    /// When records are to be taken at the latest.
    pub(super) fn next(&self) -> Instant {
        if self.prompt { self.next.min(self.looked + PAUSE) } else { self.next }
    }
}

/// The message that processes cannot be watched.
pub(super) fn cannot_watch(why: &SysError) -> String {
    format!("{why}: addresses of processes that have ended are shown as numbers")
}

/// The message that a process blocks the reading of its map.
pub(super) fn cannot_read(pid: u32) -> String {
    let ms = BLOCKED.as_millis();
    format!(
        "reading the address map of process {pid} takes longer than {ms} ms: its addresses are shown as numbers"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_what_follows_and_what_is_missing() {
        let (permission, files) = (1, 24);
        let text = |errno| cannot_watch(&SysError::new("open the event of processes on CPU 0", errno));
        let says = "cannot open the event of processes on CPU 0: ";
        let follows = ": addresses of processes that have ended are shown as numbers";
        assert!(text(permission).starts_with(says) && text(permission).ends_with(follows));
        assert!(text(files).contains("raise `ulimit -n`"), "{}", text(files));
    }
}
