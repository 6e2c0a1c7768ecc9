//! The session's side of the [reader](crate::reader). It starts the reader at the first request and
//! waits for each response for a limited time.
//!
//! ```text
//!            request                  response in time
//!   none ───────────► running ──────────────────────────► running
//!    ▲                   │ timeout, exit, or malformed response
//!    └───────────────────┘ killed and abandoned; the request fails
//! ```
//!
//! The object of the failed request counts as the cause of the failure, and the caller does not
//! query it again for a while ([`crate::process`]). An abandoned reader may sleep in the kernel,
//! where no signal ends it. It is therefore reaped without blocking.
//!
//! The total time that a session waits is bounded, even if traced processes prepare hostile files.
//! The session has a [`Budget`] of eight deadlines. A failure costs one deadline, a slow response
//! costs the time it took, and each minute adds one deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::entry;
use crate::reader::{Limits, servers};
use crate::sys;
use crate::wire::{Failure, Request, Response};

/// The budget of a session, in deadlines.
const DEADLINES: f64 = 8.0;

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

/// The maximum number of bytes in one response, as a part of the reader's memory: what they mean takes several times as much.
const PART: u64 = 2;

/// Polled during a wait. True ends the wait.
pub type Interrupted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The response did not arrive before the deadline, or the reader's alarm ended it.
    Timeout,
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

struct ReaderProcess {
    /// `None`: nobody reads, and all answers are in the socket ([`Reader::answered`]).
    child: Option<Child>,
    socket: OwnedFd,
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

    /// Refills the budget up to `now`. True when it is positive.
    fn has(&mut self, deadline: Duration, now: Instant) -> bool {
        let deadline = deadline.as_secs_f64();
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.left = (self.left + deadline * passed / REFILL_INTERVAL.as_secs_f64()).min(DEADLINES * deadline);
        self.refilled = now;
        self.left > 0.0
    }

    fn spend(&mut self, time: Duration) {
        self.left -= time.as_secs_f64();
    }
}

/// The current reader process, and the state that outlives it when it is replaced.
pub(crate) struct Reader {
    limits: Limits,
    running: Option<ReaderProcess>,
    /// Readers that were killed and are not yet reaped.
    killed: Vec<Child>,
    budget: Budget,
    interrupted: Option<Interrupted>,
    /// The start of the current interrupt. While it lasts, no wait exceeds [`GRACE`].
    interrupted_at: Option<Instant>,
    /// True after the first interrupt: see [`AFTER_INTERRUPT`].
    was_interrupted: bool,
    messages: Vec<String>,
    /// The kinds of failure that were reported.
    reported: Vec<&'static str>,
    packet: Vec<u8>,
    /// The other end of the socket of [`Reader::answered`].
    unread: Option<OwnedFd>,
}

impl Reader {
    pub(crate) fn new(limits: Limits) -> Reader {
        Reader {
            limits,
            running: None,
            killed: Vec::new(),
            budget: Budget::new(limits.time),
            interrupted: None,
            interrupted_at: None,
            was_interrupted: false,
            messages: Vec::new(),
            reported: Vec::new(),
            packet: Vec::new(),
            unread: None,
        }
    }

    /// A reader without a process, whose answer to the first request are these packets, whatever is in them. Further requests fail.
    /// `None`: they do not fit into a socket.
    pub(crate) fn answered(limits: Limits, packets: &[&[u8]]) -> Option<Reader> {
        let (ours, theirs) = sys::socket_pair().ok()?;
        for packet in packets {
            sys::send(theirs.as_fd(), packet, &[], false).ok()?;
        }
        let mut reader = Reader::new(limits);
        reader.running = Some(ReaderProcess { child: None, socket: ours });
        // What is sent to one whose other end is closed is an error.
        reader.unread = Some(theirs);
        Some(reader)
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.budget = Budget::new(limits.time);
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

    /// The limits of a request, for messages.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The pid of the running reader.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(|r| Some(r.child.as_ref()?.id()))
    }

    /// Starts a reader and waits until it is ready.
    fn start(&mut self) -> Result<(), RequestError> {
        self.reap();
        match spawn(self.limits) {
            Ok(running) => self.running = Some(running),
            Err(why) => {
                self.budget.spend(self.limits.time);
                self.report_once("spawn", || cannot_begin(&why));
                return Err(RequestError::Unavailable);
            }
        }
        match self.receive(self.deadline()) {
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

    /// True if a reader process runs.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Sends a request. Returns the response's packets without the final one, each with its
    /// descriptor, and the reason if the reader could not complete the request.
    #[allow(clippy::type_complexity)]
    pub(crate) fn query(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<(Response, Option<OwnedFd>)>, Option<Failure>), RequestError> {
        let now = Instant::now();
        if self.is_interrupted(now) && self.interrupted_at.is_some_and(|since| now > since + GRACE) {
            // The request was not sent, so its object is not at fault. Requests succeed again after
            // the interrupt was handled.
            return Err(RequestError::Unavailable);
        }
        if !self.budget.has(self.limits.time, now) {
            let seconds = DEADLINES * self.limits.time.as_secs_f64();
            self.report_once("budget", || {
                format!("reading symbols has cost {seconds} s: for now addresses of processes are shown as numbers")
            });
            return Err(RequestError::Unavailable);
        }
        if self.running.is_none() {
            // One without a process has answered.
            if self.unread.is_some() {
                return Err(RequestError::Unavailable);
            }
            self.start()?;
        }
        let response = self.exchange(request, fds);
        self.budget.spend(now.elapsed().saturating_sub(FREE_TIME));
        response.map_err(|error| self.abandon(error))
    }

    #[allow(clippy::type_complexity)]
    fn exchange(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<(Response, Option<OwnedFd>)>, Option<Failure>), RequestError> {
        // A list of functions may be long. While it arrives, the reader works.
        let is_list = matches!(request, Request::Functions { .. });
        let last = Instant::now() + LIST_TIMES * self.limits.time;
        let mut deadline = self.deadline();
        let running = self.running.as_ref().ok_or(RequestError::Unavailable)?;
        // The reader has completed all earlier requests, so the socket buffer has space.
        if sys::send(running.socket.as_fd(), &request.encode(), fds, false).is_err() {
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
                deadline = self.deadline().min(last);
            }
        }
        Err(RequestError::Failed)
    }

    /// Polls for an interrupt and records its start.
    fn is_interrupted(&mut self, now: Instant) -> bool {
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
            self.limits.time = self.limits.time.min(AFTER_INTERRUPT);
            self.budget.left = self.budget.left.min(2.0 * self.limits.time.as_secs_f64());
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time
    }

    /// The next packet, with its descriptor, and how many bytes it has.
    #[allow(clippy::type_complexity)]
    fn receive(&mut self, deadline: Instant) -> Result<(usize, (Response, Option<OwnedFd>)), RequestError> {
        self.packet.resize(sys::PACKET, 0);
        loop {
            let running = self.running.as_ref().ok_or(RequestError::Unavailable)?;
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
            let until = self.interrupted_at.map_or(deadline, |since| deadline.min(since + GRACE));
            if now >= until {
                return Err(if now >= deadline { RequestError::Timeout } else { RequestError::Interrupted });
            }
            let wait = (until - now).min(POLL_INTERVAL) + Duration::from_millis(1);
            let running = self.running.as_ref().ok_or(RequestError::Unavailable)?;
            sys::wait_for(running.socket.as_fd(), false, wait).map_err(|_| RequestError::Failed)?;
        }
    }

    /// Why the reader closed its socket: its alarm ended it, or something else did. A session that is not
    /// scheduled for long, on a busy machine, sees this before its own deadline.
    fn why_it_ended(&mut self) -> RequestError {
        let Some(ReaderProcess { child, .. }) = &mut self.running else { return RequestError::Unavailable };
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
        if let Some(ReaderProcess { child, socket }) = self.running.take() {
            drop(socket);
            if let Some(mut child) = child {
                let _ = child.kill();
                self.killed.push(child);
            }
            self.reap();
            // The caller charges the time of the wait. A reader that failed at once is charged a
            // deadline.
            if error == RequestError::Failed {
                self.budget.spend(self.limits.time);
            }
        }
        error
    }

    /// Reaps killed readers that have exited.
    fn reap(&mut self) {
        self.killed.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for Reader {
    /// Kills the reader. (A reader that is not blocked also exits when its socket is closed.)
    fn drop(&mut self) {
        self.abandon(RequestError::Interrupted);
        // A killed process needs a moment to exit. One that sleeps uninterruptibly in the kernel is
        // left to init.
        for _ in 0..20 {
            self.reap();
            if self.killed.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// The servers that readers ask for debug files, with blanks between.
static DEBUG_SERVERS: Mutex<String> = Mutex::new(String::new());

/// Names the servers (debuginfod) that readers of this process ask for debug files from now on, with blanks between: `https://` and `http://` addresses.
/// Without this nobody is asked.
pub fn set_debug_servers(urls: &str) {
    *DEBUG_SERVERS.lock().unwrap_or_else(PoisonError::into_inner) = urls.into();
}

fn spawn(limits: Limits) -> io::Result<ReaderProcess> {
    let servers = DEBUG_SERVERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (path, (name, value)) = entry::executable(limits)?;
    let (ours, theirs) = sys::socket_pair()?;
    let child = Command::new(path)
        .arg0("dtrace: symbols")
        .env(name, value)
        .env(servers::VARIABLE, servers)
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
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_named_as_the_reason_why_there_are_no_symbols() {
        let text = cannot_begin(&io::Error::from_raw_os_error(libc::EMFILE));
        assert!(text.contains("(Too many open files: raise `ulimit -n`)"), "{text}");
        assert!(cannot_begin(&io::Error::other("x")).contains("symbols (x): addresses"));
    }

    #[test]
    fn an_answer_of_more_bytes_than_half_the_memory_of_a_reader_is_refused() {
        let limits = |memory| Limits { time: Duration::from_secs(2), memory };
        let packet = Response::Frames(vec![7; 1000]).encode();
        let end = Response::End(None).encode();
        let bytes = 3 * packet.len() as u64 + end.len() as u64;
        let answered = |memory| {
            let packets = [&packet[..], &packet, &packet, &end];
            Reader::answered(limits(memory), &packets).unwrap().query(&Request::Frames(None), &[])
        };
        assert_eq!(answered(PART * bytes).unwrap().0.len(), 3);
        assert_eq!(answered(PART * bytes - 1).unwrap_err(), RequestError::Failed);
    }

    #[test]
    fn a_budget_is_spent_and_recovers_slowly() {
        let (deadline, begun) = (Duration::from_secs(2), Instant::now());
        let mut budget = Budget { refilled: begun, ..Budget::new(deadline) };
        let at = |seconds| begun + Duration::from_secs(seconds);
        for _ in 0..8 {
            assert!(budget.has(deadline, begun));
            budget.spend(deadline);
        }
        assert!(!budget.has(deadline, begun));
        // A wait that exceeds the refilled budget makes it negative.
        assert!(budget.has(deadline, at(1)));
        budget.spend(deadline);
        assert!(!budget.has(deadline, at(2)));
        assert!(!budget.has(deadline, at(59)));
        assert!(budget.has(deadline, at(62)));
        // The budget never exceeds its initial value.
        assert!(budget.has(deadline, at(1_000_000)));
        assert_eq!(budget.left, 16.0);
    }
}
