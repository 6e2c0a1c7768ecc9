//! The watcher: which processes run which programs, now and a while ago.
//!
//! The kernel reports fork, exec, exit and executable mappings as perf's *side-band*, which needs
//! no program in the kernel: one event on each CPU that counts nothing, and its ring. The watcher
//! is the one owner of what follows from it.
//!
//! ```text
//!  ring of each CPU ──► merge by time ──► table: pid ──► images (start, execs) ──► mappings ──► files
//!  /proc, read once ──────────────────────► │                                        ended ones for a while
//!        LOST ──► /proc is read again ─────►│
//! ```
//!
//! *The first state* is read from `/proc` after the events are open, a part at a time
//! ([`Watcher::scan`]). A reading and the records overlap. That is no conflict: a record that is
//! applied after a reading of the same process repeats what the reading says, and an `exec`
//! replaces it and reports all mappings of the new program.
//!
//! *Blocked readings.* A process can keep the lock of its address space, and its map then cannot be
//! read. So another thread reads `/proc` ([`Caller`]). A reading that takes too long is abandoned,
//! and the process is read again when that thread has returned.
//!
//! *Merging.* A CPU writes its records in the order of time. The clock is read before the rings
//! are, and only records until then are applied. Later ones wait for the next call. A record whose
//! time was taken before that and which another CPU was still writing is applied by the next call,
//! out of order: the table accepts any order.
//!
//! *Losses.* A full ring counts what it loses. The watcher then reads `/proc` again: running
//! processes are known again, and those whose end was lost are ended. Processes that started and
//! ended meanwhile are unknown; [`Watcher::take_lost`] says that there may be some. While records
//! are lost all the time, `/proc` is read again once a second at most.
//!
//! *Changes.* Who acts on processes that start, execute programs, map files and end reads the
//! [changes](Watcher::changes) from its own place on.
//!
//! Pids are those of the pid namespace of the process that opens the watcher. Processes outside of
//! it are ignored.

mod changes;
mod file;
mod observe;
mod record;
mod ring;
mod table;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bpf_sys::SysError;
use ring::Ring;
use table::{Observation, Table};

use crate::{Call, Caller, Results};

pub use changes::{Change, Changes, Cursor, NO_IMAGE};
pub use file::File;
pub use record::{BUILD_ID, BuildId, Event, FileIdentity, NAMESPACES, Record, parse};
pub use table::{Generation, Image, Limits, Mapping, Object};

/// Bytes of a ring: about 200 processes that start, execute a program and end.
const RING: usize = 256 << 10;

/// Bytes of all rings. Machines with many CPUs have smaller ones.
const RINGS: usize = 16 << 20;

/// Bytes of the smallest ring.
const SMALLEST_RING: usize = 32 << 10;

/// The time after which the reading of a process is abandoned, if the session waits for it.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// The time after which it is abandoned if the session does not wait for it, but other processes
/// do.
const SCAN_PATIENCE: Duration = Duration::from_secs(1);

/// An abandoned reading that has not returned after this time is reported.
pub const BLOCKED: Duration = Duration::from_secs(2);

/// Processes that a thread reads at once.
const BATCH: usize = 256;

/// The one watcher of a session, with those who ask it.
pub type SharedWatcher = Arc<Mutex<Watcher>>;

/// Processes of this system, running and ended. See the [module](self).
#[derive(Debug)]
pub struct Watcher {
    rings: Vec<Ring>,
    ring_bytes: usize,
    /// Every record makes the descriptor readable.
    prompt: bool,
    /// Polls the descriptors of all rings.
    poll: OwnedFd,
    table: Table,
    /// Records after the horizon of the last update.
    pending: Vec<Record>,
    /// Pids that are still to be read from `/proc`.
    unread: Vec<u32>,
    batch: Option<Batch>,
    /// Readings that have arrived and are not applied.
    arrived: VecDeque<(u32, u64, Option<Observation>)>,
    /// Processes whose reading a record has overtaken.
    outdated: Vec<u32>,
    /// The times of the last records of processes that were applied since the batch was begun.
    records: HashMap<u32, u64>,
    /// Reads batches.
    scanner: Caller,
    /// Reads single processes.
    reader: Caller,
    /// Readings that were abandoned and have not returned.
    blocked: Vec<Blocked>,
    lost: u64,
    /// Something was lost since `/proc` was read.
    is_stale: bool,
    /// When reading `/proc` last began.
    read_at: u64,
}

/// What another thread reads: the time before a reading, and the reading.
type Reading = Call<(u64, Option<Observation>)>;

/// Processes that another thread reads.
#[derive(Debug)]
struct Batch {
    call: Reading,
    /// Those whose reading has not arrived, in the order in which they are read.
    pids: VecDeque<u32>,
    /// When the last reading arrived.
    since: Instant,
    stop: Arc<AtomicBool>,
}

/// An abandoned reading.
#[derive(Debug)]
struct Blocked {
    pid: u32,
    since: Instant,
    reported: bool,
    call: Reading,
}

/// Nanoseconds between two beginnings of reading all of `/proc`.
const READ_INTERVAL: u64 = 1_000_000_000;

fn last_error() -> SysError {
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or_default();
    SysError::new("wait for events of processes", errno)
}

impl Watcher {
    /// Opens the side-band of these CPUs. Nothing is read from `/proc` until [`Watcher::scan`].
    pub fn open(cpus: &[u32]) -> Result<Watcher, SysError> {
        let each = (RINGS / cpus.len().max(1)).clamp(SMALLEST_RING, RING);
        Watcher::open_with(cpus, each, Limits::default())
    }

    /// As [`Watcher::open`]; the descriptor is readable as soon as there is a record, of any
    /// process.
    pub fn open_prompt(cpus: &[u32]) -> Result<Watcher, SysError> {
        let each = (RINGS / cpus.len().max(1)).clamp(SMALLEST_RING, RING);
        Watcher::open_rings(cpus, each, Limits::default(), true)
    }

    /// As [`Watcher::open`], with rings of a given size (whole pages) and limits.
    pub fn open_with(cpus: &[u32], ring_bytes: usize, limits: Limits) -> Result<Watcher, SysError> {
        Watcher::open_rings(cpus, ring_bytes, limits, false)
    }

    fn open_rings(
        cpus: &[u32],
        ring_bytes: usize,
        limits: Limits,
        prompt: bool,
    ) -> Result<Watcher, SysError> {
        // SAFETY: plain call without memory; the descriptor is new.
        let poll = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                fd if fd < 0 => return Err(last_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let mut watcher = Watcher {
            rings: Vec::new(),
            ring_bytes,
            prompt,
            poll,
            table: Table::new(limits),
            pending: Vec::new(),
            unread: Vec::new(),
            batch: None,
            arrived: VecDeque::new(),
            outdated: Vec::new(),
            records: HashMap::new(),
            scanner: Caller::default(),
            reader: Caller::default(),
            blocked: Vec::new(),
            lost: 0,
            is_stale: false,
            read_at: 0,
        };
        cpus.iter().try_for_each(|cpu| watcher.add_cpu(*cpu))?;
        watcher.read_again();
        Ok(watcher)
    }

    fn add_cpu(&mut self, cpu: u32) -> Result<(), SysError> {
        let ring = Ring::open(cpu, self.ring_bytes, self.prompt)?;
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and the event is valid.
        let added =
            unsafe { libc::epoll_ctl(self.poll.as_raw_fd(), libc::EPOLL_CTL_ADD, ring.fd(), &raw mut event) };
        if added < 0 {
            return Err(last_error());
        }
        self.rings.push(ring);
        Ok(())
    }

    /// Closes the side-band of CPUs that are offline, and opens that of CPUs that came online. An
    /// event of a CPU that was offline reports nothing more. The first error is returned; what can
    /// be opened is.
    pub fn follow_cpus(&mut self, online: &[u32]) -> Result<(), SysError> {
        for ring in self.rings.extract_if(.., |ring| !online.contains(&ring.cpu())) {
            ring.read(&mut self.pending);
        }
        let mut result = Ok(());
        for cpu in online {
            if !self.rings.iter().any(|ring| ring.cpu() == *cpu) {
                match self.add_cpu(*cpu) {
                    // What ran there before is unknown.
                    Ok(()) => self.is_stale = true,
                    Err(e) => result = result.and(Err(e)),
                }
            }
        }
        result
    }

    /// A descriptor that is readable (poll) when a ring has many records. It is never necessary to
    /// wait for it: [`Watcher::update`] takes what is there.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.poll.as_fd()
    }

    /// Applies all records until now, and readings that have arrived, in the order of their times.
    pub fn update(&mut self) {
        while self.collect(Instant::now()) {}
        let horizon = ring::now();
        for ring in &self.rings {
            ring.read(&mut self.pending);
        }
        self.pending.sort_by_key(|record| record.time);
        let later = self.pending.split_off(self.pending.partition_point(|r| r.time <= horizon));
        let mut orphans: Vec<(u32, u32, u64)> = Vec::new();
        for record in std::mem::replace(&mut self.pending, later) {
            while self.arrived.front().is_some_and(|(_, time, _)| *time < record.time) {
                self.apply_reading();
            }
            if let Some(pid) = record.event.pid().filter(|_| self.batch.is_some()) {
                self.records.insert(pid, record.time);
            }
            match record.event {
                Event::Lost(count) => {
                    self.lost = self.lost.saturating_add(count);
                    self.is_stale = true;
                }
                Event::Fork { pid, tid, ppid } if pid == tid => {
                    let time = record.time;
                    let is_unread = self.is_unread(ppid) || orphans.iter().any(|(child, ..)| *child == ppid);
                    self.table.apply(record);
                    if is_unread {
                        self.refresh_namespaces(pid);
                        orphans.push((pid, ppid, time));
                    }
                }
                Event::Comm { pid, exec: true, .. } => {
                    self.table.apply(record);
                    self.refresh_namespaces(pid);
                }
                _ => self.table.apply(record),
            }
        }
        while !self.arrived.is_empty() {
            self.apply_reading();
        }
        // The child of a process that was not read before has what its parent had. A reading is of
        // now, so it comes after all records: the parent may have executed another program since.
        for (pid, parent, time) in orphans {
            // What records have told of a parent that cannot be read is a part of what it has.
            let is_known = self.read_pending(parent);
            let has_all = self.table.inherit(pid, parent, time) && is_known;
            if !has_all && !self.read_now(pid) && !self.is_unread(pid) {
                self.unread.push(pid);
            }
        }
        // Processes that block their reading must not prevent the next one for ever.
        let is_complete = self.unread.is_empty() && self.batch.is_none();
        let interval = if is_complete { READ_INTERVAL } else { 10 * READ_INTERVAL };
        let is_due = horizon.saturating_sub(self.read_at) >= interval;
        if self.is_stale && is_due {
            self.read_again();
        }
        self.table.trim(horizon);
    }

    /// Reads the namespaces of a process that has executed a program, if it still runs: what enters
    /// other namespaces executes a program next. (The kernel could record them, but that makes
    /// each process 20 us slower.) If it has ended, and its parent was not read before the fork,
    /// those of the parent are the best guess: paths cannot be resolved without one.
    fn refresh_namespaces(&mut self, pid: u32) {
        let Some(image) = self.table.current_mut(pid) else { return };
        let known = image.mount_namespace();
        let of = |pid| observe::mount_namespace(pid).map(|now| (pid, now));
        let found = of(pid).or_else(|| of(image.parent).filter(|_| known == 0));
        if let Some((from, _)) = found.filter(|(_, now)| *now != known) {
            image.namespaces = observe::namespaces(from);
        }
    }

    /// Starts to read all of `/proc` again.
    fn read_again(&mut self) {
        let before = ring::now();
        let all = observe::all();
        let exists: HashSet<u32> = all.iter().copied().collect();
        if !exists.is_empty() {
            self.table.end_others(|pid| exists.contains(&pid), before);
        }
        (self.unread, self.read_at, self.is_stale) = (all, before, false);
    }

    /// Reads processes from `/proc` that were not read yet, until a time. Returns true when all are
    /// read that can be read now.
    pub fn scan(&mut self, until: Instant) -> bool {
        self.take_returned();
        loop {
            if self.batch.is_none() && !self.begin() {
                return true;
            }
            self.abandon_late();
            self.collect(until);
            self.update();
            while let Some(pid) = self.outdated.pop() {
                self.read(pid);
            }
            if Instant::now() >= until {
                return self.batch.is_none() && self.unread.is_empty();
            }
        }
    }

    /// Begins to read processes. False if all are read, or too many readings are blocked.
    fn begin(&mut self) -> bool {
        let blocked = |pid: &u32| self.blocked.iter().any(|reading| reading.pid == *pid);
        let first = self.unread.len().saturating_sub(BATCH);
        let pids: VecDeque<u32> = self.unread.drain(first..).rev().filter(|pid| !blocked(pid)).collect();
        if pids.is_empty() {
            return false;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (list, stopped) = (pids.clone(), stop.clone());
        let call = self.scanner.begin(move |results| {
            for pid in list {
                let time = ring::now();
                if stopped.load(Ordering::Relaxed) || !results.send((time, observe::process(pid))) {
                    break;
                }
            }
        });
        let Some(call) = call else {
            self.unread.extend(pids.into_iter().rev());
            return false;
        };
        self.records.clear();
        self.batch = Some(Batch { call, pids, since: Instant::now(), stop });
        true
    }

    /// Waits until a time for the next reading of the batch. False if there is none by then.
    fn collect(&mut self, until: Instant) -> bool {
        let Some(batch) = &mut self.batch else { return false };
        let Some((time, seen)) = batch.call.wait(until) else { return false };
        batch.since = Instant::now();
        self.arrived.extend(batch.pids.pop_front().map(|pid| (pid, time, seen)));
        self.batch.take_if(|batch| batch.pids.is_empty());
        true
    }

    /// Applies the first reading that has arrived.
    fn apply_reading(&mut self) {
        let Some((pid, time, seen)) = self.arrived.pop_front() else { return };
        match seen {
            // It does not have what a record has told since.
            Some(_) if self.records.get(&pid).is_some_and(|last| *last > time) => self.outdated.push(pid),
            Some(seen) => self.table.observed(pid, seen, time),
            None => {}
        }
    }

    /// Abandons a batch whose next reading takes too long. Its thread ends after that reading.
    fn abandon_late(&mut self) {
        let Some(batch) = self.batch.take_if(|batch| batch.since.elapsed() >= SCAN_PATIENCE) else { return };
        batch.stop.store(true, Ordering::Relaxed);
        self.scanner.abandon();
        let mut pids = batch.pids;
        if let Some(pid) = pids.pop_front() {
            self.blocked.push(Blocked { pid, since: batch.since, reported: false, call: batch.call });
        }
        self.unread.extend(pids.into_iter().rev());
    }

    /// Processes whose abandoned reading has returned can be read again.
    fn take_returned(&mut self) {
        let unread = &mut self.unread;
        self.blocked.retain(|reading| {
            let returned = reading.call.has_returned();
            if returned && !unread.contains(&reading.pid) {
                unread.push(reading.pid);
            }
            !returned
        });
    }

    /// The processes whose reading is found to be blocked since the last call, by pid: they have
    /// names only for what they map later.
    pub fn take_blocked(&mut self) -> Vec<u32> {
        self.take_returned();
        let late = self.blocked.iter_mut().filter(|r| !r.reported && r.since.elapsed() >= BLOCKED);
        late.map(|reading| {
            reading.reported = true;
            reading.pid
        })
        .collect()
    }

    /// Reads one process from `/proc` now. The reading is refused (false) if the process does not
    /// exist, executes a program meanwhile, or blocks the reading.
    pub fn read(&mut self, pid: u32) -> bool {
        self.update();
        self.read_now(pid)
    }

    fn read_now(&mut self, pid: u32) -> bool {
        if self.blocked.iter().any(|reading| reading.pid == pid) {
            return false;
        }
        let read = move |results: Results<_>| {
            results.send((ring::now(), observe::process(pid)));
        };
        let Some(call) = self.reader.begin(read) else { return false };
        let since = Instant::now();
        match call.wait(since + PATIENCE) {
            Some((time, Some(seen))) => {
                // Behind the records that were written before it: the process may have executed a
                // program since the last ones.
                self.arrived.push_back((pid, time, Some(seen)));
                self.update();
            }
            Some((_, None)) => return false,
            None => {
                self.reader.abandon();
                self.blocked.push(Blocked { pid, since, reported: false, call });
                return false;
            }
        }
        true
    }

    /// Reads a process from `/proc` if it is still to be read.
    pub fn read_if_unread(&mut self, pid: u32) {
        self.update();
        self.read_pending(pid);
    }

    fn is_unread(&self, pid: u32) -> bool {
        self.unread.contains(&pid) || self.batch.as_ref().is_some_and(|batch| batch.pids.contains(&pid))
    }

    /// False if it is still to be read and cannot be read now.
    fn read_pending(&mut self, pid: u32) -> bool {
        if !self.is_unread(pid) {
            return true;
        }
        self.unread.retain(|p| *p != pid);
        self.read_now(pid)
    }

    /// The images of a pid, oldest first. The last one is the current one unless it has ended.
    pub fn images(&self, pid: u32) -> &[Image] {
        self.table.images(pid)
    }

    /// The image that a pid ran at a time (nanoseconds since boot, and not 0). `None` if that is
    /// not known. The kernel writes the record of an exec before the new program runs, and of a
    /// fork before the process does.
    pub fn image_at(&self, pid: u32, time: u64) -> Option<&Image> {
        self.table.image_at(pid, time).filter(|_| time != 0)
    }

    /// The newest image of a pid that has an address mapped. Different programs of a pid rarely map
    /// the same address, because the kernel chooses addresses at random.
    pub fn image_with(&self, pid: u32, addr: u64) -> Option<&Image> {
        self.images(pid).iter().rev().find(|image| image.find(addr).is_some())
    }

    /// The processes that run, with their current image.
    pub fn running(&self) -> impl Iterator<Item = (u32, &Image)> {
        self.table.running()
    }

    /// The cgroup of a process: of a running one read now, of one that has ended what was known.
    pub fn cgroup(&mut self, pid: u32) -> Option<Arc<str>> {
        self.update();
        if let Some(image) = self.table.current_mut(pid)
            && let Some(path) = observe::cgroup(pid)
        {
            image.cgroup = Some(path);
        }
        self.images(pid).last()?.cgroup.clone()
    }

    /// A cursor for [`Watcher::changes`] that begins with what happens from now on.
    pub fn cursor(&self) -> Cursor {
        self.table.log.end()
    }

    /// The changes since the last call with this cursor, as far as records were applied
    /// ([`Watcher::update`]).
    pub fn changes(&self, cursor: &mut Cursor) -> Changes {
        self.table.log.read(cursor)
    }

    /// The number of records that were lost or had no space since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost).saturating_add(self.table.take_refused())
    }
}

/// Applies records to an empty table, for tests and fuzzing. Returns the images of each process.
pub fn replay(records: Vec<Record>) -> Vec<(u32, Vec<Image>)> {
    let mut table = Table::new(Limits { each: 64, images: 64, ..Limits::default() });
    for record in records {
        let time = record.time;
        table.apply(record);
        table.trim(time);
    }
    table.all()
}

#[cfg(test)]
mod tests;
