//! The session's side of the [reader](crate::reader). A client takes a reader of the
//! [pool](crate::pool) for each request, starts it if need be, and waits for the response for a
//! limited time.
//!
//! ```text
//!            request                  response in time
//!   none ───────────► leased ──────────────────────────► given back
//!    ▲                   │ timeout, exit, or malformed response
//!    └───────────────────┘ killed and abandoned; the request fails
//! ```
//!
//! The object of the failed request counts as the cause of the failure, and the caller does not
//! query it again for a while ([`crate::process`]). An abandoned reader may sleep in the kernel,
//! where no signal ends it. It is therefore reaped without blocking.
//!
//! What a reader may take is the *work* of a request: CPU time of its process, so that neither
//! other processes nor a slow machine decide which symbols there are. A reader that waits does not
//! work. So the time of a response is limited too, and ten times as long where the work is limited
//! by the option `symtimeout`.
//!
//! A client waits for a reader as long as for a response. If none is free by then, the request was
//! not sent, and its object is not at fault.
//!
//! The total time that a session waits is bounded, even if traced processes prepare hostile files.
//! Each client has a [`Budget`] of ten deadlines, as long as a wait. A request that fails or is
//! slow costs its work, or half of the time that it took, and each minute adds one deadline. A
//! request waits no longer than the rest of the budget. So files of a server that does not answer
//! shorten the wait for further ones, and do not take the names of all others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entry;
use crate::pool::{Lease, Need, ReaderProcess, Readers, ReadingWatch};
use crate::sys;
use crate::wire::{Failure, Order, Request, Response, WAITS, wait_for};

/// The budget of a client, in deadlines: as long as a wait.
const DEADLINES: f64 = WAITS as f64;

/// The time after which the budget grows by one deadline.
const REFILL_INTERVAL: Duration = Duration::from_secs(60);

/// A response within this time does not cost budget.
const FREE_TIME: Duration = Duration::from_millis(50);

/// The time for which a wait continues after an interrupt. Most responses arrive within it.
const GRACE: Duration = Duration::from_millis(100);

/// The deadline after the first interrupt, when the session is about to end. The budget shrinks to
/// two of these deadlines.
const AFTER_INTERRUPT: Duration = Duration::from_millis(500);

/// The interval at which the wait polls for an interrupt. (A signal may be delivered to another
/// thread.)
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A list of functions may take this many deadlines in all.
const LIST_TIMES: u32 = 10;

/// The maximum number of packets in one response.
const MAX_PACKETS: usize = 1 << 18;

/// The maximum number of bytes in one response, as a part of the reader's memory: what they mean
/// takes several times as much.
const PART: u64 = 2;

/// Polled during a wait. True ends the wait.
pub type Interrupted = Arc<dyn Fn() -> bool + Send + Sync>;

/// The packets of a response, and why there are no more.
type Answer = (Vec<(Response, Option<OwnedFd>)>, Option<Failure>);

/// A request that is shown to who watches.
struct Watched {
    watch: ReadingWatch,
    path: Vec<u8>,
    begun: Instant,
    shown: bool,
}

impl Watched {
    fn poll(&mut self, now: Instant) {
        if now > self.begun + POLL_INTERVAL {
            self.shown = true;
            (self.watch)(Some(&self.path));
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.shown {
            (self.watch)(None);
        }
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The response did not arrive before the deadline, or the reader's alarm ended it.
    Timeout,
    /// The reader used more CPU time than it may.
    Working,
    /// The reader exited, or sent a malformed response.
    Failed,
    /// The user interrupted the wait.
    Interrupted,
    /// There is no reader.
    Unavailable,
}

impl RequestError {
    /// True when the process or file of the request counts as the cause of the failure. The caller
    /// then does not query it again for a while.
    pub(crate) fn excludes_object(self) -> bool {
        self != RequestError::Unavailable
    }
}

/// Limits of the requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The CPU time of the reader for a response.
    work: Duration,
    /// The time that the client waits for a response.
    wait: Duration,
    /// Bytes of memory of a reader.
    pub(crate) memory: u64,
}

impl Limits {
    /// A response may take this time, whatever the reader does meanwhile.
    pub(crate) fn of_time(time: Duration, memory: u64) -> Limits {
        Limits { work: time, wait: time, memory }
    }

    /// A response may take this CPU time of the reader.
    pub(crate) fn of_work(work: Duration, memory: u64) -> Limits {
        Limits { work, wait: wait_for(work), memory }
    }

    /// What a request takes that has failed by one of the limits.
    pub(crate) fn exceeded(&self, error: RequestError) -> String {
        let (work, wait) = (self.work.as_millis(), self.wait.as_millis());
        match error {
            RequestError::Working => format!("more than {work} ms of CPU time (option symtimeout)"),
            _ if self.wait == wait_for(self.work) => {
                format!("longer than {wait} ms, {WAITS} times the option symtimeout")
            }
            _ => format!("longer than {wait} ms"),
        }
    }

    /// What a request costs that took this time and this work. Most of the time may be that of
    /// other processes.
    fn cost(&self, time: Duration, work: Duration) -> Duration {
        let waited = if self.wait > self.work { time / 2 } else { time };
        work.max(waited)
    }
}

/// When a response is too late.
#[derive(Clone, Copy)]
struct Deadline {
    time: Instant,
    /// On the clock of the reader's CPU time.
    work: Duration,
}

/// The time that the session may still wait.
struct Budget {
    /// Seconds. Negative if the last wait exceeded the budget.
    left: f64,
    refilled: Instant,
}

impl Budget {
    fn new(deadline: Duration) -> Budget {
        Budget { left: DEADLINES * deadline.as_secs_f64(), refilled: Instant::now() }
    }

    /// Refills the budget up to `now`. Its rest; `None`: it is spent.
    fn rest(&mut self, deadline: Duration, now: Instant) -> Option<Duration> {
        let deadline = deadline.as_secs_f64();
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.left = (self.left + deadline * passed / REFILL_INTERVAL.as_secs_f64()).min(DEADLINES * deadline);
        self.refilled = now;
        // A wait of the free time costs nothing, so that any number of them would follow.
        let least = FREE_TIME.as_secs_f64().min(deadline / 2.0);
        (self.left > least).then(|| Duration::from_secs_f64(self.left))
    }

    fn spend(&mut self, time: Duration) {
        self.left -= time.as_secs_f64();
    }
}

/// A client of the pool.
pub(crate) struct Reader {
    readers: Readers,
    /// The client's number.
    number: u32,
    limits: Limits,
    /// The time that the client waits for the answer of the last request: that of the limits, or
    /// the rest of the budget.
    wait: Duration,
    /// Nobody waits for the answers.
    background: bool,
    /// The reader that has the current request.
    lease: Option<Lease>,
    budget: Budget,
    interrupted: Option<Interrupted>,
    /// The start of the current interrupt. While it lasts, no wait exceeds [`GRACE`].
    interrupted_at: Option<Instant>,
    /// True after the first interrupt: see [`AFTER_INTERRUPT`].
    was_interrupted: bool,
    /// Who is shown what the current request reads.
    watched: Option<Watched>,
    messages: Vec<String>,
    /// The kinds of failure that were reported.
    reported: Vec<&'static str>,
    packet: Vec<u8>,
    /// The other end of the socket of [`Reader::answered`].
    unread: Option<OwnedFd>,
}

impl Reader {
    pub(crate) fn new(readers: &Readers, limits: Limits) -> Reader {
        Reader {
            readers: readers.clone(),
            number: readers.pool().enter(),
            limits,
            wait: limits.wait,
            background: false,
            lease: None,
            budget: Budget::new(limits.work),
            interrupted: None,
            interrupted_at: None,
            was_interrupted: false,
            watched: None,
            messages: Vec::new(),
            reported: Vec::new(),
            packet: Vec::new(),
            unread: None,
        }
    }

    /// A reader without a process, whose answer to the first request are these packets, whatever is
    /// in them. Further requests fail. `None`: they do not fit into a socket.
    pub(crate) fn answered(limits: Limits, packets: &[&[u8]]) -> Option<Reader> {
        let (ours, theirs) = sys::socket_pair().ok()?;
        for packet in packets {
            sys::send(theirs.as_fd(), packet, &[], false).ok()?;
        }
        let mut reader = Reader::new(&Readers::new(), limits);
        let need = Need { memory: limits.memory, background: false, file: None };
        let mut lease = reader.readers.pool().clone().lease(need, || false)?;
        lease.process = Some(ReaderProcess { child: None, socket: ours });
        reader.lease = Some(lease);
        // What is sent to one whose other end is closed is an error.
        reader.unread = Some(theirs);
        Some(reader)
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.wait = limits.wait;
        self.budget = Budget::new(limits.work);
    }

    pub(crate) fn set_interrupted(&mut self, interrupted: Option<Interrupted>) {
        self.interrupted = interrupted;
    }

    /// Messages for the user since the last call.
    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Adds a message for the user. Each kind is reported once.
    pub(crate) fn report_once(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        if !self.reported.contains(&kind) {
            self.reported.push(kind);
            self.messages.push(text());
        }
    }

    /// The limits of the last request, for messages.
    pub(crate) fn limits(&self) -> Limits {
        Limits { wait: self.wait, ..self.limits }
    }

    /// The client's number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// From now on nobody waits for the answers.
    pub(crate) fn work_in_background(&mut self) {
        self.background = true;
    }

    /// The pid of the only reader that is idle.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> Option<u32> {
        self.readers.pool().pids().first().copied()
    }

    /// Tells all readers which files are closed: see [`Request::Forget`].
    pub(crate) fn forget(&mut self, closed: &[u64], without_path: &[u64]) {
        self.readers.pool().forget(self.number, closed, without_path);
        self.tell_urgent();
    }

    /// Tells readers at once which may have a file open that is closed. One that does not answer is
    /// killed.
    fn tell_urgent(&mut self) {
        while let Some(lease) = self.readers.pool().clone().lease_urgent() {
            self.lease = Some(lease);
            match self.notices() {
                Ok(()) => self.give_back(None),
                Err(_) => self.lease = None,
            }
        }
    }

    /// Gives the reader back, which may have an index of this file.
    fn give_back(&mut self, file: Option<u64>) {
        while let Some(lease) = self.lease.take() {
            self.lease = lease.give_back(file);
            if self.lease.is_some() && self.notices().is_err() {
                self.lease = None;
            }
        }
    }

    /// Takes a reader, and starts it if need be.
    fn take(&mut self, file: Option<u64>) -> Result<(), RequestError> {
        let need = Need { memory: self.limits.memory, background: self.background, file };
        let (pool, begun) = (self.readers.pool().clone(), Instant::now());
        let deadline = begun + self.wait;
        let lease = pool.lease(need, || {
            let now = Instant::now();
            self.is_interrupted(now);
            now < self.until(deadline)
        });
        let Some(lease) = lease else {
            // As what a reader takes for an answer: else each request would wait as long.
            self.budget.spend(self.limits.cost(begun.elapsed(), Duration::ZERO));
            if self.interrupted_at.is_none() {
                let seconds = self.wait.as_secs_f64();
                self.report_once("busy", || {
                    format!("all processes that read symbols were busy for {seconds} s: some addresses of processes are shown as numbers")
                });
            }
            return Err(RequestError::Unavailable);
        };
        self.lease = Some(lease);
        Ok(())
    }

    /// Starts the reader and waits until it is ready.
    fn start(&mut self) -> Result<(), RequestError> {
        match spawn(self.readers.pool().executable(), self.limits.memory) {
            Ok(process) => {
                if let Some(lease) = &mut self.lease {
                    lease.process = Some(process);
                }
            }
            Err(why) => {
                self.lease = None;
                self.budget.spend(self.limits.work);
                self.report_once("spawn", || cannot_begin(&why));
                return Err(RequestError::Unavailable);
            }
        }
        // Whatever the budget is: the file that is asked for is not at fault.
        match self.receive(self.deadline(self.limits.wait)) {
            Ok((_, (Response::Ready, _))) => Ok(()),
            // No request was sent, so no object caused this failure.
            Err(error @ RequestError::Interrupted) => {
                self.abandon(error);
                Err(RequestError::Unavailable)
            }
            _ => {
                self.abandon(RequestError::Failed);
                self.report_once("begin", || {
                    "the process that reads symbols does not begin: addresses of processes are shown as numbers".into()
                });
                Err(RequestError::Unavailable)
            }
        }
    }

    /// Sends a request. Returns the response's packets without the final one, each with its
    /// descriptor, and the reason if the reader could not complete the request.
    pub(crate) fn query(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Answer, RequestError> {
        self.show(request);
        let answer = self.ask(request, fds);
        self.watched = None;
        answer
    }

    fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Answer, RequestError> {
        let now = Instant::now();
        if self.is_interrupted(now) && self.interrupted_at.is_some_and(|since| now > since + GRACE) {
            // The request was not sent, so its object is not at fault. Requests succeed again after
            // the interrupt was handled.
            return Err(RequestError::Unavailable);
        }
        let Some(rest) = self.budget.rest(self.limits.work, now) else {
            let seconds = DEADLINES * self.limits.work.as_secs_f64();
            self.report_once("budget", || {
                format!("reading symbols has cost {seconds} s: for now addresses of processes are shown as numbers")
            });
            return Err(RequestError::Unavailable);
        };
        self.wait = self.limits.wait.min(rest);
        let file = request.file().map(|file| file.number);
        match (&self.unread, &self.lease) {
            (None, _) => self.take(file)?,
            // Its only answer was given.
            (Some(_), None) => return Err(RequestError::Unavailable),
            (Some(_), Some(_)) => {}
        }
        // The wait for a reader is nobody's fault.
        let now = Instant::now();
        if self.lease.as_ref().is_some_and(|lease| lease.process.is_none()) {
            self.start()?;
        }
        let begun = self.work();
        let response =
            self.notices().and_then(|()| self.exchange(self.number.into(), request, fds, self.wait));
        let (time, work) = (now.elapsed(), self.work().saturating_sub(begun));
        self.budget.spend(self.limits.cost(time.saturating_sub(FREE_TIME), work.saturating_sub(FREE_TIME)));
        match response {
            Ok(response) if self.unread.is_none() => {
                self.give_back(file);
                Ok(response)
            }
            Ok(response) => {
                self.lease = None;
                Ok(response)
            }
            Err(error) => Err(self.abandon(error)),
        }
    }

    /// Tells the reader what has happened since its last request.
    fn notices(&mut self) -> Result<(), RequestError> {
        let notices = self.lease.as_mut().map(|lease| std::mem::take(&mut lease.notices)).unwrap_or_default();
        for (client, notice) in notices {
            // The object of the request is not at fault.
            self.exchange(client, &notice, &[], self.limits.wait).map_err(|_| RequestError::Unavailable)?;
        }
        Ok(())
    }

    #[allow(clippy::type_complexity)]
    fn exchange(
        &mut self,
        client: u64,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        wait: Duration,
    ) -> Result<(Vec<(Response, Option<OwnedFd>)>, Option<Failure>), RequestError> {
        // A list of functions may be long. While it arrives, the reader works.
        let is_list = matches!(request, Request::Functions { .. });
        let last = Deadline {
            time: Instant::now() + LIST_TIMES * wait,
            work: self.work() + LIST_TIMES * self.limits.work,
        };
        let mut deadline = self.deadline(wait);
        let time = u64::try_from(self.limits.work.as_millis()).unwrap_or(u64::MAX);
        let packet = Order::encode(client, time, self.readers.servers(), request);
        let process = self.process().ok_or(RequestError::Unavailable)?;
        // The reader has completed all earlier requests, so the socket buffer has space.
        if sys::send(process.socket.as_fd(), &packet, fds, false).is_err() {
            return Err(self.why_it_ended());
        }
        let mut responses = Vec::new();
        let mut left = self.limits.memory / PART;
        while responses.len() < MAX_PACKETS {
            let (length, response) = self.receive(deadline)?;
            left = left.checked_sub(length as u64).ok_or(RequestError::Failed)?;
            match response {
                (Response::End(why), _) => return Ok((responses, why)),
                response => responses.push(response),
            }
            if is_list {
                let next = self.deadline(wait);
                deadline = Deadline { time: next.time.min(last.time), work: next.work.min(last.work) };
            }
        }
        Err(RequestError::Failed)
    }

    /// Shows a request to who watches while it takes long.
    fn show(&mut self, request: &Request) {
        let file = request.file().filter(|_| !self.background);
        let watched = self.readers.watch().zip(file);
        self.watched = watched.map(|(watch, file)| Watched {
            watch: watch.clone(),
            path: file.path.clone(),
            begun: Instant::now(),
            shown: false,
        });
    }

    /// The reader of the current request.
    fn process(&self) -> Option<&ReaderProcess> {
        self.lease.as_ref()?.process.as_ref()
    }

    /// Polls for an interrupt and records its start.
    /// True if the user has interrupted the session, which waits no longer than a little from then
    /// on.
    pub(crate) fn is_interrupted(&mut self, now: Instant) -> bool {
        if let Some(watched) = &mut self.watched {
            watched.poll(now);
        }
        let is_interrupted = self.interrupted.as_ref().is_some_and(|f| f());
        self.interrupted_at = if is_interrupted { self.interrupted_at.or(Some(now)) } else { None };
        if is_interrupted {
            self.shorten_waits();
        }
        is_interrupted
    }

    /// Applies the limits after the first interrupt, which may have come during no wait.
    pub(crate) fn shorten_waits(&mut self) {
        if !std::mem::replace(&mut self.was_interrupted, true) {
            let Limits { work, wait, .. } = &mut self.limits;
            (*work, *wait) = ((*work).min(AFTER_INTERRUPT), (*wait).min(AFTER_INTERRUPT));
            self.budget.left = self.budget.left.min(2.0 * self.limits.work.as_secs_f64());
        }
    }

    /// The CPU time that the reader has used. One that has ended works no more.
    fn work(&self) -> Duration {
        let child = self.process().and_then(|process| process.child.as_ref());
        child.and_then(|child| sys::cpu_time(child.id())).unwrap_or_default()
    }

    fn deadline(&self, wait: Duration) -> Deadline {
        let wait = wait.min(self.limits.wait);
        Deadline { time: Instant::now() + wait, work: self.work() + self.limits.work }
    }

    /// The end of a wait with this deadline, which an interrupt brings nearer.
    fn until(&self, deadline: Instant) -> Instant {
        self.interrupted_at.map_or(deadline, |since| deadline.min(since + GRACE))
    }

    /// The next packet, with its descriptor, and how many bytes it has.
    #[allow(clippy::type_complexity)]
    fn receive(&mut self, deadline: Deadline) -> Result<(usize, (Response, Option<OwnedFd>)), RequestError> {
        self.packet.resize(sys::PACKET, 0);
        loop {
            let running =
                self.lease.as_ref().and_then(|l| l.process.as_ref()).ok_or(RequestError::Unavailable)?;
            match sys::receive(running.socket.as_fd(), &mut self.packet, false) {
                Ok((0, _)) => return Err(self.why_it_ended()),
                Ok((length, fds)) => {
                    let response =
                        self.packet.get(..length).and_then(Response::decode).ok_or(RequestError::Failed)?;
                    return Ok((length, (response, fds.into_iter().next())));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // It ended before it had read the request.
                Err(_) => return Err(self.why_it_ended()),
            }
            let now = Instant::now();
            self.is_interrupted(now);
            let until = self.until(deadline.time);
            if now >= until {
                let is_late = now >= deadline.time;
                return Err(if is_late { RequestError::Timeout } else { RequestError::Interrupted });
            }
            let left = deadline.work.saturating_sub(self.work());
            if left.is_zero() {
                return Err(RequestError::Working);
            }
            let wait = (until - now).min(left).min(POLL_INTERVAL) + Duration::from_millis(1);
            let running = self.process().ok_or(RequestError::Unavailable)?;
            sys::wait_for(running.socket.as_fd(), false, wait).map_err(|_| RequestError::Failed)?;
        }
    }

    /// Why the reader closed its socket: its alarm ended it, or something else did. A session that
    /// is not scheduled for long, on a busy machine, sees this before its own deadline.
    fn why_it_ended(&mut self) -> RequestError {
        let process = self.lease.as_mut().and_then(|lease| lease.process.as_mut());
        let Some(ReaderProcess { child, .. }) = process else { return RequestError::Unavailable };
        let Some(child) = child else { return RequestError::Failed };
        // The socket is closed a little before the process is one that has ended.
        for _ in 0..100 {
            match child.try_wait() {
                Ok(Some(status)) if status.signal() == Some(libc::SIGALRM) => return RequestError::Timeout,
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => break,
            }
        }
        RequestError::Failed
    }

    /// Kills the reader and abandons it.
    fn abandon(&mut self, error: RequestError) -> RequestError {
        // The caller charges the time of the wait. A reader that failed at once is charged a
        // deadline.
        if self.lease.take().is_some() && error == RequestError::Failed {
            self.budget.spend(self.limits.work);
        }
        error
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.lease = None;
        self.readers.pool().leave(self.number);
        self.tell_urgent();
    }
}

fn spawn(executable: Option<&Path>, memory: u64) -> io::Result<ReaderProcess> {
    let mut command = entry::command(executable, memory)?;
    let (ours, theirs) = sys::socket_pair()?;
    let child = command
        .arg0("dtrace: symbols")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A separate process group: ^C at the terminal must not reach the reader.
        .process_group(0)
        .spawn()?;
    Ok(ReaderProcess { child: Some(child), socket: ours })
}

/// The message that there is no reader.
fn cannot_begin(e: &io::Error) -> String {
    let limit = matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    let way_out = if limit { ": raise `ulimit -n`" } else { "" };
    let why = diagnostics::system_text(e);
    format!(
        "cannot begin the process that reads symbols ({why}{way_out}): addresses of processes are shown as numbers"
    )
}

#[cfg(test)]
mod tests;
