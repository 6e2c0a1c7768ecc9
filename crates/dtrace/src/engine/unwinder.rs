//! Makes the tables by which programs walk the stacks of processes ([`plane::unwind`]), aside from
//! the session.
//!
//! A program that meets an address space without tables asks for them and marks the stack as
//! incomplete. A thread answers:
//!
//! ```text
//!  program ──► wanted, bell ──► thread: what is mapped (reader) ──► the table of each file ──► chunks
//!  session ──► prepare(pid) ──►         ranges ──► directory                             └───► files, by inode
//!  program ──► unknown, bell ─► thread: which file it is (watcher) ──────────┘
//! ```
//!
//! A reader (`symbols`) reads the files for the thread, in the background: so neither a hostile
//! file nor a large one makes the session wait. Files are read one after the other, those first
//! that were asked for most recently, and each table is published as soon as it is made
//! ([`tables`]). Files with much code have another thread ([`aside`]): a table of a compiler takes
//! a second, and what all processes use does not wait for it.

mod aside;
mod entries;
mod file_map;
mod memory;
mod tables;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bpf_codegen::mir::MapRef;
use bpf_runtime::maps::Maps;
use bpf_sys::{Doorbell, Map, SysError};
use plane::unwind::{BUSY, Directory};
use proc::share::Owners;
use proc::watcher::{Change, Cursor, SharedWatcher};
use symbols::{Processes, Readers};

use crate::error::Error;
use aside::{Aside, MEMORY, READING};
use file_map::FileMaps;
use tables::{SWEEP, Tables};

/// After this time it is asked again for what could not be found.
const AGAIN: Duration = Duration::from_secs(1);

/// The interval at which changes of processes are looked at, if the session watches them.
const FOLLOW: Duration = Duration::from_millis(100);

/// The interval at which whoever waits for tables looks for an interrupt.
const POLL: Duration = Duration::from_millis(50);

/// The most processes whose mappings are read before the next table is made.
const PROCESSES: usize = 4;

/// What the session tells the thread.
enum Message {
    /// Make the tables of a process, and say when they are made.
    Prepare(u32, SyncSender<()>),
    /// Follow the changes of processes.
    Follow(SharedWatcher),
}

/// See the [module](self). The thread ends when this is dropped.
pub(crate) struct Unwinder {
    messages: Sender<Message>,
    /// Wakes the thread.
    wake: UnixStream,
    chunks: Arc<Map>,
    directory: Arc<Map>,
    bell: Arc<Doorbell>,
    files: FileMaps,
}

impl Unwinder {
    /// Starts the thread for the maps of a session, if they have tables. These maps belong to it
    /// from now on.
    pub(crate) fn take(maps: &mut Maps, limit: u64, readers: &Readers) -> Result<Option<Unwinder>, Error> {
        let taken = [
            MapRef::UnwindDirectory,
            MapRef::UnwindChunks,
            MapRef::UnwindRequests,
            MapRef::UnwindFiles,
            MapRef::UnwindUnknown,
        ];
        let [Some(directory), Some(chunks), Some(requests), Some(known), Some(unknown)] =
            taken.map(|at| maps.take(at))
        else {
            return Ok(None);
        };
        let (directory, chunks, bell) =
            (Arc::new(directory), Arc::new(chunks), Arc::new(Doorbell::over(requests)?));
        let failed = |e: io::Error| SysError::new("start a thread", e.raw_os_error().unwrap_or(0));
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        let (messages, received) = mpsc::channel();
        let memory = Arc::new(directory.mmap(true)?);
        let counters = Directory::new(memory.words()).and_then(Directory::counters);
        if let Some(counters) = counters {
            counters.set_subordinate(Owners::default().subordinate());
        }
        let files =
            FileMaps { known: Arc::new(known), unknown: Arc::new(unknown), directory: memory.clone() };
        let mut processes = Processes::new(readers);
        processes.set_limits(READING, MEMORY);
        processes.work_in_background();
        let tables = Tables::new(processes, memory, chunks.clone(), files.clone(), limit);
        let aside = Aside::new(wake.try_clone().map_err(failed)?, readers.clone());
        let mut thread = Answering {
            tables,
            bell: bell.clone(),
            woken,
            received,
            watcher: None,
            open: HashMap::new(),
            asked: Vec::new(),
            aside,
        };
        threads::spawn("unwinder", threads::LARGE_STACK, move || thread.run()).map_err(failed)?;
        Ok(Some(Unwinder { messages, wake, chunks, directory, bell, files }))
    }

    /// The maps that programs use.
    pub(crate) fn fds(&self) -> [(MapRef, RawFd); 5] {
        [
            (MapRef::UnwindDirectory, self.directory.as_fd().as_raw_fd()),
            (MapRef::UnwindChunks, self.chunks.as_fd().as_raw_fd()),
            (MapRef::UnwindRequests, self.bell.map().as_raw_fd()),
            (MapRef::UnwindFiles, self.files.known.as_fd().as_raw_fd()),
            (MapRef::UnwindUnknown, self.files.unknown.as_fd().as_raw_fd()),
        ]
    }

    fn send(&self, message: Message) {
        // A thread that has ended answers nothing; stacks are then incomplete, and say so.
        if self.messages.send(message).is_ok() {
            let _ = (&self.wake).write(&[0]);
        }
    }

    /// Makes the tables of a process. Waits for them until a limit or an interrupt.
    pub(crate) fn prepare(&self, pid: u32, limit: Duration, interrupted: &dyn Fn() -> bool) {
        let (done, made) = mpsc::sync_channel(1);
        self.send(Message::Prepare(pid, done));
        wait(&made, limit, interrupted);
    }

    /// How many stacks are incomplete because the kernel could not tell a mapping at that time.
    pub(crate) fn busy(&self) -> u64 {
        // What cannot be read is not said.
        let memory = self.directory.mmap(false).ok();
        memory.and_then(|memory| memory.load(BUSY as usize, Ordering::Relaxed)).unwrap_or_default()
    }

    /// Lets the thread follow what processes map.
    pub(crate) fn follow(&self, watcher: SharedWatcher) {
        self.send(Message::Follow(watcher));
    }
}

/// Waits for a message, at most until a limit or an interrupt.
fn wait(made: &Receiver<()>, limit: Duration, interrupted: &dyn Fn() -> bool) {
    let until = Instant::now() + limit;
    while !interrupted() {
        let left = until.saturating_duration_since(Instant::now());
        let is_over = made.recv_timeout(left.min(POLL)) != Err(RecvTimeoutError::Timeout);
        if is_over || left.is_zero() {
            return;
        }
    }
}

/// The thread.
struct Answering {
    tables: Tables,
    bell: Arc<Doorbell>,
    woken: UnixStream,
    received: Receiver<Message>,
    watcher: Option<(SharedWatcher, Cursor)>,
    /// Address spaces whose tables are being made, and whether they have got some.
    open: HashMap<u64, bool>,
    /// Address spaces for which nothing more was found, until when.
    asked: Vec<(u64, Instant)>,
    aside: Aside,
}

impl Answering {
    fn run(&mut self) {
        let mut sweep = Instant::now() + SWEEP;
        let mut is_busy = false;
        loop {
            let now = Instant::now();
            let next = self.asked.iter().map(|(_, at)| *at).chain(self.tables.next_asked()).min();
            let limit = next.unwrap_or(sweep).min(sweep).saturating_duration_since(now);
            let follows = self.watcher.is_some() && !self.tables.is_empty();
            let limit = if follows { limit.min(FOLLOW) } else { limit };
            let limit = if is_busy { Duration::ZERO } else { limit + Duration::from_millis(1) };
            let fds = [self.bell.map().as_raw_fd(), self.woken.as_raw_fd()];
            if proc::poll_readable(&fds, limit).is_err() || !self.messages() {
                return;
            }
            self.follow_changes();
            let now = Instant::now();
            let directory = self.tables.directory();
            self.asked.retain(|(key, at)| {
                let waits = *at > now;
                if !waits {
                    directory.answered(*key);
                }
                waits
            });
            self.bell.silence();
            is_busy = self.hear() | self.work();
            self.close();
            if now >= sweep {
                self.tables.sweep();
                sweep = now + SWEEP;
            }
        }
    }

    /// Takes the session's messages. False if there is no session any more.
    fn messages(&mut self) -> bool {
        let mut bytes = [0; 64];
        while let Ok(1..) = io::Read::read(&mut self.woken, &mut bytes) {}
        loop {
            match self.received.try_recv() {
                Ok(Message::Prepare(pid, done)) => {
                    self.tables.make(pid);
                    let _ = done.send(());
                }
                Ok(Message::Follow(watcher)) => {
                    let cursor = watcher.lock().unwrap_or_else(PoisonError::into_inner).cursor();
                    self.tables.watch(watcher.clone());
                    self.watcher = Some((watcher, cursor));
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Learns what processes map that were asked for once.
    fn follow_changes(&mut self) {
        let Some((watcher, cursor)) = &mut self.watcher else { return };
        let changes = watcher.lock().unwrap_or_else(PoisonError::into_inner).changes(cursor);
        let mapped = changes.list.iter().filter_map(|change| match change {
            Change::Mapped { pid, .. } => Some(*pid),
            _ => None,
        });
        let known: HashSet<u32> = self.tables.members().collect();
        let pids: HashSet<u32> = mapped.filter(|pid| known.contains(pid)).collect();
        for pid in pids {
            self.tables.observe(pid);
        }
    }

    /// Learns what some of the processes map that programs ask for. True if there may be more of
    /// them.
    fn hear(&mut self) -> bool {
        let more_files = self.tables.identify_files();
        let is_new =
            |key: &u64| !self.open.contains_key(key) && self.asked.iter().all(|(asked, _)| asked != key);
        let wanted = self.tables.directory().wanted().filter(|(key, _)| is_new(key));
        let wanted: Vec<(u64, u32)> = self.tables.in_turns(wanted.collect(), PROCESSES);
        for (key, pid) in &wanted {
            let changed = self.tables.observe(*pid).is_some_and(|(found, changed)| changed && found == *key);
            self.open.insert(*key, changed);
        }
        more_files || wanted.len() == PROCESSES
    }

    /// Makes a table. True if there is another one to be made now.
    fn work(&mut self) -> bool {
        if let Some((source, table)) = self.aside.take() {
            let keys = self.tables.settle(source, table);
            self.got(&keys);
        }
        if self.aside.is_idle()
            && let Some(source) = self.tables.next(false)
        {
            let request = self.tables.request(source);
            if !request.is_some_and(|request| self.aside.read(source, request)) {
                let keys = self.tables.settle(source, None);
                self.got(&keys);
            }
        }
        if let Some(source) = self.tables.next(true) {
            let keys = self.tables.load(source);
            self.got(&keys);
        }
        self.tables.next(true).is_some() || self.aside.is_idle() && self.tables.next(false).is_some()
    }

    fn got(&mut self, keys: &[u64]) {
        for key in keys {
            if let Some(changed) = self.open.get_mut(key) {
                *changed = true;
            }
        }
    }

    /// Lets programs ask again for address spaces that have all tables: at once if these are new,
    /// for they may lack others by now.
    fn close(&mut self) {
        let done = self.open.keys().copied().filter(|key| !self.tables.waits(*key));
        for key in done.collect::<Vec<u64>>() {
            match self.open.remove(&key) {
                Some(true) => self.tables.directory().answered(key),
                _ => self.asked.push((key, Instant::now() + AGAIN)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_tables_ends_with_them_or_at_a_limit_or_an_interrupt() {
        let (done, made) = mpsc::sync_channel(1);
        let hour = Duration::from_secs(3600);
        let asked = std::cell::Cell::new(0);
        wait(&made, hour, &|| {
            asked.set(asked.get() + 1);
            asked.get() == 3
        });
        assert_eq!(asked.get(), 3);
        wait(&made, Duration::ZERO, &|| false);
        done.send(()).unwrap();
        wait(&made, hour, &|| false);
        assert_eq!(made.try_recv(), Err(TryRecvError::Empty));
        // The thread has ended.
        drop(done);
        wait(&made, hour, &|| false);
    }
}
