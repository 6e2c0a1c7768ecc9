//! The session's side of the [reader](crate::reader): begins it when the first question is asked, and never waits for it
//! longer than it may.
//!
//! ```text
//!             ask                      answered in time
//!   none ───────────► running ──────────────────────────► running
//!    ▲                   │ late, ended, or made no sense
//!    └───────────────────┘ killed, left behind; the question has no answer
//! ```
//!
//! What was asked about last is to blame for a reader that is late, and whoever asks remembers that ([`crate::process`]). A reader
//! that is left behind may sleep in the kernel, where no signal ends it; it is waited for only by asking whether it has
//! ended.
//!
//! The time that a session waits is bounded, whatever the processes that it sees have prepared: it has a [`Budget`] of eight
//! deadlines. A failure costs a deadline, a slow answer what it took, and each minute brings one deadline back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entry;
use crate::reader::Limits;
use crate::sys;
use crate::wire::{Answer, Question};

/// Deadlines that a session may wait in all.
const DEADLINES: f64 = 8.0;

/// After so long it has one more.
const REFILL: Duration = Duration::from_secs(60);

/// A faster answer is free of charge.
const FREE: Duration = Duration::from_millis(50);

/// An interrupted wait goes on for so long: most answers are nearly there.
const GRACE: Duration = Duration::from_millis(100);

/// Once the user has interrupted, the session is about to end: an answer may take so long, and two of them are waited for.
const HURRIED: Duration = Duration::from_millis(500);

/// The interval at which an interrupt is polled for, where no signal interrupts the wait.
const LOOK: Duration = Duration::from_millis(50);

/// Packets that one answer may have.
const MAX_PACKETS: usize = 1 << 18;

/// Asked while waiting: true ends the wait.
pub type Interrupted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The answer is late.
    Late,
    /// The reader ended, or sent a malformed answer.
    Ended,
    /// The user has interrupted.
    Interrupted,
    /// There is no reader.
    Unavailable,
}

impl Trouble {
    /// True when the process or file of the question caused the failure, so that it is not queried again soon.
    pub(crate) fn is_its_own(self) -> bool {
        self != Trouble::Unavailable
    }
}

struct Running {
    child: Child,
    socket: OwnedFd,
}

/// The time that may be spent on waiting.
struct Budget {
    /// Seconds. Below 0 where the last wait took more than there was.
    left: f64,
    refilled: Instant,
}

impl Budget {
    fn new(deadline: Duration) -> Budget {
        Budget { left: DEADLINES * deadline.as_secs_f64(), refilled: Instant::now() }
    }

    /// True when there is some.
    fn has(&mut self, deadline: Duration, now: Instant) -> bool {
        let deadline = deadline.as_secs_f64();
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.left = (self.left + deadline * passed / REFILL.as_secs_f64()).min(DEADLINES * deadline);
        self.refilled = now;
        self.left > 0.0
    }

    fn spend(&mut self, time: Duration) {
        self.left -= time.as_secs_f64();
    }
}

/// A reader, and what replaces it.
pub(crate) struct Reader {
    limits: Limits,
    running: Option<Running>,
    /// Killed and not seen to have ended.
    left: Vec<Child>,
    budget: Budget,
    interrupted: Option<Interrupted>,
    /// When an interrupt was first seen; until it is over, nothing is waited for beyond [`GRACE`].
    since: Option<Instant>,
    /// There was an interrupt: see [`HURRIED`].
    hurried: bool,
    messages: Vec<String>,
    /// Kinds of failure that were reported.
    told: Vec<&'static str>,
    packet: Vec<u8>,
}

impl Reader {
    pub(crate) fn new(limits: Limits) -> Reader {
        Reader {
            limits,
            running: None,
            left: Vec::new(),
            budget: Budget::new(limits.time),
            interrupted: None,
            since: None,
            hurried: false,
            messages: Vec::new(),
            told: Vec::new(),
            packet: Vec::new(),
        }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.budget = Budget::new(limits.time);
    }

    pub(crate) fn set_interrupted(&mut self, interrupted: Option<Interrupted>) {
        self.interrupted = interrupted;
    }

    /// What the user should know, since the last call.
    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Tells something, once for its kind.
    pub(crate) fn tell(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        if !self.told.contains(&kind) {
            self.told.push(kind);
            self.messages.push(text());
        }
    }

    /// The limits of a question, for messages.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The id of the reader's process, while there is one.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|r| r.child.id())
    }

    /// Begins a reader.
    fn begin(&mut self) -> Result<(), Trouble> {
        self.bury();
        match spawn(self.limits) {
            Ok(running) => self.running = Some(running),
            Err(why) => {
                self.budget.spend(self.limits.time);
                self.tell("spawn", || {
                    format!("cannot begin the process that reads symbols ({why}): addresses of processes are shown as numbers")
                });
                return Err(Trouble::Unavailable);
            }
        }
        match self.receive(self.deadline()) {
            Ok((Answer::Ready, _)) => Ok(()),
            // Nothing was asked yet, so nothing is to blame.
            Err(trouble @ Trouble::Interrupted) => {
                self.give_up(trouble);
                Err(Trouble::Unavailable)
            }
            _ => {
                self.give_up(Trouble::Ended);
                self.tell("begin", || {
                    "the process that reads symbols does not begin: addresses of processes are shown as numbers".into()
                });
                Err(Trouble::Unavailable)
            }
        }
    }

    /// Asks; all answers but the end, each with its descriptor; and why the reader could not answer.
    #[allow(clippy::type_complexity)]
    pub(crate) fn ask(
        &mut self,
        question: &Question,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<(Answer, Option<OwnedFd>)>, Option<String>), Trouble> {
        let now = Instant::now();
        if self.is_interrupted(now) && self.since.is_some_and(|since| now > since + GRACE) {
            // Not even begun. Nobody is to blame, and there is a reader when the interrupt was heard.
            return Err(Trouble::Unavailable);
        }
        if !self.budget.has(self.limits.time, now) {
            let seconds = DEADLINES * self.limits.time.as_secs_f64();
            self.tell("budget", || {
                format!("reading symbols has cost {seconds} s: for now addresses of processes are shown as numbers")
            });
            return Err(Trouble::Unavailable);
        }
        if self.running.is_none() {
            self.begin()?;
        }
        let answer = self.talk(question, fds);
        self.budget.spend(now.elapsed().saturating_sub(FREE));
        answer.map_err(|trouble| self.give_up(trouble))
    }

    #[allow(clippy::type_complexity)]
    fn talk(
        &mut self,
        question: &Question,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<(Answer, Option<OwnedFd>)>, Option<String>), Trouble> {
        let deadline = self.deadline();
        let running = self.running.as_ref().ok_or(Trouble::Unavailable)?;
        // The reader has answered all before this, so there is space in the socket.
        sys::send(running.socket.as_fd(), &question.encode(), fds, false).map_err(|_| Trouble::Ended)?;
        let mut answers = Vec::new();
        while answers.len() < MAX_PACKETS {
            match self.receive(deadline)? {
                (Answer::End(why), _) => return Ok((answers, why)),
                answer => answers.push(answer),
            }
        }
        Err(Trouble::Ended)
    }

    /// Whether the user wants to go on, and since when.
    fn is_interrupted(&mut self, now: Instant) -> bool {
        let is_interrupted = self.interrupted.as_ref().is_some_and(|f| f());
        self.since = if is_interrupted { self.since.or(Some(now)) } else { None };
        if is_interrupted && !std::mem::replace(&mut self.hurried, true) {
            self.limits.time = self.limits.time.min(HURRIED);
            self.budget.left = self.budget.left.min(2.0 * self.limits.time.as_secs_f64());
        }
        is_interrupted
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time
    }

    fn receive(&mut self, deadline: Instant) -> Result<(Answer, Option<OwnedFd>), Trouble> {
        self.packet.resize(sys::PACKET, 0);
        loop {
            let running = self.running.as_ref().ok_or(Trouble::Unavailable)?;
            match sys::receive(running.socket.as_fd(), &mut self.packet, false) {
                Ok((0, _)) => return Err(Trouble::Ended),
                Ok((length, fds)) => {
                    let answer = Answer::decode(&self.packet[..length]).ok_or(Trouble::Ended)?;
                    return Ok((answer, fds.into_iter().next()));
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Trouble::Ended),
            }
            let now = Instant::now();
            self.is_interrupted(now);
            let until = self.since.map_or(deadline, |since| deadline.min(since + GRACE));
            if now >= until {
                return Err(if now >= deadline { Trouble::Late } else { Trouble::Interrupted });
            }
            let wait = (until - now).min(LOOK) + Duration::from_millis(1);
            let running = self.running.as_ref().ok_or(Trouble::Unavailable)?;
            sys::wait_for(running.socket.as_fd(), false, wait).map_err(|_| Trouble::Ended)?;
        }
    }

    /// Kills the reader and abandons it.
    fn give_up(&mut self, trouble: Trouble) -> Trouble {
        if let Some(Running { mut child, socket }) = self.running.take() {
            drop(socket);
            let _ = child.kill();
            self.left.push(child);
            self.bury();
            // The wait is paid for; a reader that ended at once costs as much.
            if trouble == Trouble::Ended {
                self.budget.spend(self.limits.time);
            }
        }
        trouble
    }

    /// Takes note of readers that have ended.
    fn bury(&mut self) {
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for Reader {
    /// A reader whose socket is closed ends by itself, unless it is stuck.
    fn drop(&mut self) {
        self.give_up(Trouble::Interrupted);
        // A killed process is there for a moment more; one that sleeps in the kernel stays, and is the system's.
        for _ in 0..20 {
            self.bury();
            if self.left.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

fn spawn(limits: Limits) -> Result<Running, String> {
    let (path, (name, value)) = entry::executable(limits)?;
    let text = |e: std::io::Error| e.to_string();
    let (ours, theirs) = sys::socket_pair().map_err(text)?;
    let child = Command::new(path)
        .arg0("dtrace: symbols")
        .env(name, value)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // ^C at the terminal is not for it.
        .process_group(0)
        .spawn()
        .map_err(text)?;
    Ok(Running { child, socket: ours })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // A little comes back, and one wait that takes more than that is a debt.
        assert!(budget.has(deadline, at(1)));
        budget.spend(deadline);
        assert!(!budget.has(deadline, at(2)));
        assert!(!budget.has(deadline, at(59)));
        assert!(budget.has(deadline, at(62)));
        // Never more than there was.
        assert!(budget.has(deadline, at(1_000_000)));
        assert_eq!(budget.left, 16.0);
    }
}
