//! The readers of a program: [processes](crate::reader) that all sessions share.
//!
//! Whoever reads files of traced processes (names of addresses, functions, types, probes, tables of
//! stacks) is a *client*. A client takes a reader for one request and gives it back, so that a few
//! processes serve many clients, and what one has read of a file the next need not read again.
//!
//! ```text
//!  client ──► queue ──► lease: one reader, one request ──► given back ──► idle
//!               ▲            │ deadline, crash, malformed response         │ for a while, or its memory is needed
//!               │            ▼                                             ▼
//!        who came first    killed                                        ended
//! ```
//!
//! **Memory.** A reader cannot use more than its limit (`RLIMIT_DATA`), and the limits of all
//! readers together are at most [`MEMORY`]. Readers with the same limit are a *class*: a client
//! with small files does not get a reader that may use a gigabyte. Those of clients for whose
//! answers nobody waits (tables of stacks are made in the background) are classes of their own: a
//! table needs all the memory of its reader, and would drop what others want to have again. At most
//! [`IN_CLASS`] readers of a class run, or [`IN_BACKGROUND`].
//!
//! **A slow or hostile file** keeps one reader until its client's deadline; then that reader is
//! killed. Meanwhile others use the other readers.
//!
//! **Fairness.** A client has one request at a time, and readers are given to clients in the order
//! in which they came. A client whose reader cannot be given yet does not delay another one whose
//! can.
//!
//! A reader that has an index of a file is preferred for that file. If the names of a file are in
//! the memory of one reader only (the file cannot be found by its path any more), the client waits
//! for that one.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::entry;
use crate::wire::{MAX_NUMBERS, Request};

/// The most memory of all readers of a program, in bytes. A client that needs more than half of it
/// gets one reader nevertheless.
const MEMORY: u64 = 11 << 28;

/// The most readers of a class.
const IN_CLASS: usize = 3;

/// The most readers of a class in the background.
const IN_BACKGROUND: usize = 2;

/// A reader that was not used for this time is ended, unless it is the only one of its class.
const IDLE: Duration = Duration::from_secs(30);

/// The most files whose indexes are remembered to be in a reader.
const MAX_FILES: usize = 1 << 15;

/// The most messages that wait for a reader. One that is not used for so long is ended.
const MAX_NOTICES: usize = 64;

/// The interval at which a client that waits asks whether it shall go on.
const POLL: Duration = Duration::from_millis(50);

/// Called while a request takes long, with the path of the file that is read, and without one when
/// it is over.
pub type ReadingWatch = Arc<dyn Fn(Option<&[u8]>) + Send + Sync>;

/// A reader process.
pub(crate) struct ReaderProcess {
    /// `None`: nobody reads, and all answers are in the socket.
    pub(crate) child: Option<Child>,
    pub(crate) socket: OwnedFd,
}

/// The readers that the sessions of a program share, as one session uses them. Cheap to clone.
/// Nothing is started before the first request.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    pool: Arc<Pool>,
    servers: Arc<str>,
}

impl Readers {
    /// Readers that nobody else uses.
    pub fn new() -> Readers {
        Readers::default()
    }

    /// Readers that nobody else uses, of this executable: for a library that is in a shared object
    /// ([`crate::entry`] has why). It must have this crate and its version. `Err`: it cannot be
    /// executed, or why it is refused.
    pub fn executed(executable: &Path) -> io::Result<Readers> {
        entry::check(executable)?;
        let mut pool = Pool::default();
        pool.executable = Some(executable.into());
        Ok(Readers { pool: Arc::new(pool), servers: Arc::default() })
    }

    /// The same readers for a session that asks these servers (debuginfod) for debug files, with
    /// blanks between: `https://` and `http://` addresses. Without this nobody is asked.
    #[must_use]
    pub fn with_servers(&self, urls: &str) -> Readers {
        Readers { pool: self.pool.clone(), servers: urls.into() }
    }

    /// Calls `watch` while somebody waits long for one of them. The first call counts.
    pub fn set_watch(&self, watch: ReadingWatch) {
        let _ = self.pool.watch.set(watch);
    }

    pub(crate) fn watch(&self) -> Option<&ReadingWatch> {
        self.pool.watch.get()
    }

    /// The servers of debug files.
    pub(crate) fn servers(&self) -> &str {
        &self.servers
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

/// What a client needs a reader for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The limit of the reader's memory.
    pub(crate) memory: u64,
    /// Nobody waits for the answer.
    pub(crate) background: bool,
    /// The file that is read.
    pub(crate) file: Option<u64>,
}

/// What a reader is to be told before its next request.
#[derive(Clone, Debug, Default)]
struct Notices {
    /// Each with its client.
    list: Vec<(u64, Request)>,
    /// The reader may have such a file open, so it is told at once.
    urgent: bool,
}

/// A place for a reader.
struct Slot {
    number: u64,
    memory: u64,
    /// `None`: a client has it.
    idle: Option<ReaderProcess>,
    /// Its clients work in the background.
    background: bool,
    /// When it was given back.
    since: Instant,
    /// Files whose indexes it may have.
    files: HashSet<u64>,
    /// Those that no other reader can read.
    kept: HashSet<u64>,
    notices: Notices,
}

/// A client that waits.
#[derive(Clone, Copy)]
struct Ticket {
    number: u64,
    need: Need,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    waiting: Vec<Ticket>,
    /// Readers that were killed and are not yet reaped.
    killed: Vec<Child>,
    /// The number of the last slot or ticket.
    last: u64,
    /// The number of the last client.
    client: u32,
    /// The number of clients that there are.
    clients: usize,
    /// The process that this is of: [`bpf_sys::forks`].
    forks: u32,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
    /// A reader was given back, or a ticket.
    changed: Condvar,
    /// What readers execute; `None`: this executable.
    executable: Option<PathBuf>,
    watch: OnceLock<ReadingWatch>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} readers)", self.lock().slots.len())
    }
}

/// A reader that a client has. Where it is not given back, it is killed.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    /// The number of its place; 0: it was given back.
    number: u64,
    /// `None`: it is to be started.
    pub(crate) process: Option<ReaderProcess>,
    /// What it is told first: each with its client.
    pub(crate) notices: Vec<(u64, Request)>,
}

/// How a client gets a reader.
enum Grant {
    /// This one is idle.
    Idle(usize),
    /// After these are ended, one is started.
    Start(Vec<u64>),
}

/// What tells a class from others: the limit of memory, and whether nobody waits for the answers.
type Class = (u64, bool);

impl Need {
    fn class(&self) -> Class {
        (self.memory, self.background)
    }
}

impl Slot {
    fn class(&self) -> Class {
        (self.memory, self.background)
    }
}

impl State {
    /// A forked child begins without readers: those of its parent go on, and are the parent's.
    fn follow_forks(&mut self) {
        let forks = bpf_sys::forks();
        if self.forks != forks {
            *self = State { forks, last: self.last, client: self.client, ..State::default() };
        }
    }

    fn end(&mut self, is_due: impl Fn(&Slot) -> bool) {
        let due = self.slots.extract_if(.., |slot| slot.idle.is_some() && is_due(slot));
        let due: Vec<ReaderProcess> = due.filter_map(|slot| slot.idle).collect();
        due.into_iter().for_each(|process| self.kill(process));
    }

    fn kill(&mut self, ReaderProcess { child, socket }: ReaderProcess) {
        drop(socket);
        if let Some(mut child) = child {
            let _ = child.kill();
            self.killed.push(child);
        }
        self.reap();
    }

    /// Reaps killed readers that have exited. One may sleep in the kernel, where no signal ends it,
    /// so this does not wait.
    fn reap(&mut self) {
        self.killed.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// How a client would get a reader now. `None`: not yet.
    fn grant(&self, need: &Need) -> Option<Grant> {
        let is_for = |slot: &Slot| slot.class() == need.class();
        let class = || self.slots.iter().filter(|slot| is_for(slot));
        if let Some(file) = need.file
            && let Some(at) = self.slots.iter().position(|s| is_for(s) && s.kept.contains(&file))
        {
            return self.slots.get(at)?.idle.is_some().then_some(Grant::Idle(at));
        }
        let has = |slot: &Slot| need.file.is_some_and(|file| slot.files.contains(&file));
        let idle = self.slots.iter().enumerate().filter(|(_, s)| is_for(s) && s.idle.is_some());
        if let Some((at, _)) = idle.max_by_key(|(_, slot)| (has(slot), slot.since)) {
            return Some(Grant::Idle(at));
        }
        if class().count() >= if need.background { IN_BACKGROUND } else { IN_CLASS } {
            return None;
        }
        let mut used: u64 = self.slots.iter().map(|slot| slot.memory).fold(0, u64::saturating_add);
        let is_large = need.memory > MEMORY / 2 && class().count() == 0;
        let fits = |used: u64| used.saturating_add(need.memory) <= MEMORY || is_large;
        // What is in the memory of one reader only stays there.
        let can_end = |slot: &&Slot| slot.idle.is_some() && slot.kept.is_empty();
        let mut others: Vec<&Slot> = self.slots.iter().filter(can_end).collect();
        others.sort_by_key(|slot| std::cmp::Reverse(slot.since));
        let mut end = Vec::new();
        while !fits(used) {
            let oldest = others.pop()?;
            used -= oldest.memory;
            end.push(oldest.number);
        }
        Some(Grant::Start(end))
    }

    /// True if nobody who came before could have what this client needs.
    fn is_first(&self, ticket: &Ticket) -> bool {
        let mut before = self.waiting.iter().take_while(|other| other.number != ticket.number);
        let class = ticket.need.class();
        !before.any(|other| other.need.class() == class && self.grant(&other.need).is_some())
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.follow_forks();
        state
    }

    /// What readers execute; `None`: this executable.
    pub(crate) fn executable(&self) -> Option<&Path> {
        self.executable.as_deref()
    }

    /// Another client, whose number no other one has.
    pub(crate) fn enter(&self) -> u32 {
        let mut state = self.lock();
        state.clients += 1;
        state.client = state.client.wrapping_add(1);
        state.client
    }

    /// A client has ended. Without clients there are no readers.
    pub(crate) fn leave(&self, client: u32) {
        let mut state = self.lock();
        state.clients = state.clients.saturating_sub(1);
        if state.clients == 0 {
            state.end(|_| true);
        }
        let is_of = |number: &u64| files::table_of(*number) == client;
        state.tell(client.into(), &Request::Leave, is_of);
        for slot in &mut state.slots {
            for files in [&mut slot.files, &mut slot.kept] {
                files.retain(|number| !is_of(number));
            }
        }
    }

    /// Takes a reader. Waits for it while `go_on` is true.
    pub(crate) fn lease(self: &Arc<Pool>, need: Need, mut go_on: impl FnMut() -> bool) -> Option<Lease> {
        let mut state = self.lock();
        state.reap();
        state.last += 1;
        let ticket = Ticket { number: state.last, need };
        state.waiting.push(ticket);
        loop {
            let grant = if state.is_first(&ticket) { state.grant(&need) } else { None };
            if let Some(grant) = grant {
                state.waiting.retain(|other| other.number != ticket.number);
                let lease = self.take(&mut state, &need, grant);
                // Another one may be first now.
                self.changed.notify_all();
                return Some(lease);
            }
            state = self.changed.wait_timeout(state, POLL).unwrap_or_else(PoisonError::into_inner).0;
            drop(state);
            let goes_on = go_on();
            state = self.lock();
            if !goes_on {
                state.waiting.retain(|other| other.number != ticket.number);
                self.changed.notify_all();
                return None;
            }
        }
    }

    fn take(self: &Arc<Pool>, state: &mut State, need: &Need, grant: Grant) -> Lease {
        let pool = self.clone();
        if let Grant::Idle(at) = grant
            && let Some(slot) = state.slots.get_mut(at)
        {
            let notices = std::mem::take(&mut slot.notices).list;
            return Lease { pool, number: slot.number, process: slot.idle.take(), notices };
        }
        if let Grant::Start(ended) = grant {
            state.end(|slot| ended.contains(&slot.number));
        }
        state.last += 1;
        let number = state.last;
        state.slots.push(Slot {
            number,
            memory: need.memory,
            idle: None,
            background: need.background,
            since: Instant::now(),
            files: HashSet::new(),
            kept: HashSet::new(),
            notices: Notices::default(),
        });
        Lease { pool, number, process: None, notices: Vec::new() }
    }

    /// Tells all readers of a client's closed files, before their next requests. See
    /// [`Request::Forget`]. The caller tells those that may have one open at once
    /// ([`Pool::lease_urgent`]).
    pub(crate) fn forget(&self, client: u32, closed: &[u64], without_path: &[u64]) {
        let mut state = self.lock();
        let mut rest = without_path.to_vec();
        for part in closed.chunks(MAX_NUMBERS).chain(closed.is_empty().then_some(&[][..])) {
            let is_gone = |number: &u64| part.contains(number) || without_path.contains(number);
            let request = Request::Forget { closed: part.to_vec(), without_path: std::mem::take(&mut rest) };
            state.tell(client.into(), &request, is_gone);
        }
        for slot in &mut state.slots {
            for number in without_path.iter().filter(|number| slot.files.contains(number)) {
                slot.kept.insert(*number);
            }
            for number in closed {
                slot.files.remove(number);
                slot.kept.remove(number);
            }
        }
    }

    /// Takes a reader that is idle and is to be told something at once.
    pub(crate) fn lease_urgent(self: &Arc<Pool>) -> Option<Lease> {
        let mut state = self.lock();
        let is_urgent = |slot: &Slot| slot.idle.is_some() && slot.notices.urgent;
        let at = state.slots.iter().position(is_urgent)?;
        let need = Need { memory: 0, background: false, file: None };
        Some(self.take(&mut state, &need, Grant::Idle(at)))
    }

    #[cfg(test)]
    pub(crate) fn pids(&self) -> Vec<u32> {
        let pid = |slot: &Slot| slot.idle.as_ref().and_then(|process| Some(process.child.as_ref()?.id()));
        self.lock().slots.iter().filter_map(pid).collect()
    }
}

impl State {
    /// `has`: it is about this file.
    fn tell(&mut self, client: u64, notice: &Request, has: impl Fn(&u64) -> bool) {
        for slot in &mut self.slots {
            slot.notices.urgent |= slot.idle.is_none() || slot.files.iter().any(&has);
            let list = &mut slot.notices.list;
            // What says the same is said once.
            if list.last() != Some(&(client, notice.clone())) {
                list.push((client, notice.clone()));
            }
        }
        self.end(|slot| slot.notices.list.len() > MAX_NOTICES);
    }
}

impl Lease {
    /// Gives the reader back, which may have an index of this file. If it is to be told something
    /// at once, it is not given back.
    pub(crate) fn give_back(mut self, file: Option<u64>) -> Option<Lease> {
        let pool = self.pool.clone();
        let mut state = pool.lock();
        let now = Instant::now();
        let Some(slot) = state.slots.iter_mut().find(|slot| slot.number == self.number) else {
            drop(state);
            return None;
        };
        if slot.notices.urgent {
            self.notices = std::mem::take(&mut slot.notices).list;
            drop(state);
            return Some(self);
        }
        let Some(process) = self.process.take() else {
            drop(state);
            return None;
        };
        (slot.idle, slot.since) = (Some(process), now);
        if slot.files.len() >= MAX_FILES {
            slot.files.clear();
        }
        slot.files.extend(file);
        let class = slot.class();
        let is_of = |s: &Slot| s.class() == class;
        let newest = state.slots.iter().filter(|s| is_of(s)).max_by_key(|s| s.since);
        let newest = newest.map(|slot| slot.number);
        state.end(|s| is_of(s) && s.kept.is_empty() && Some(s.number) != newest && now >= s.since + IDLE);
        if state.clients == 0 {
            state.end(|_| true);
        }
        drop(state);
        pool.changed.notify_all();
        self.number = 0;
        None
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        let mut state = self.pool.lock();
        if let Some(process) = self.process.take()
            && state.slots.iter().any(|slot| slot.number == self.number)
        {
            state.kill(process);
        }
        state.slots.retain(|slot| slot.number != self.number);
        drop(state);
        self.pool.changed.notify_all();
    }
}

impl Drop for Pool {
    /// Kills the readers. (A reader that is not blocked also exits when its socket is closed.)
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.follow_forks();
        state.end(|_| true);
        // A killed process needs a moment to exit. One that sleeps uninterruptibly in the kernel is
        // left to init.
        for _ in 0..20 {
            state.reap();
            if state.killed.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

#[cfg(test)]
mod tests;
