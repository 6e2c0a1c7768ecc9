//! The sink of a session that nobody watches yet: its events are kept until somebody claims them.
//!
//! ```text
//!  session ── events ──> log ── thread ──> the socket of dtrace -a
//! ```
//!
//! Who connects is told what records ([`super::head`]), and says whether it claims that
//! ([`CLAIM`]); if it does not, another one may. There is one claim: the socket is gone then. It
//! gets the log and then what comes, in the same order. A byte from it ends the session
//! ([`STOP`], [`INTERRUPT`]), and so does its end: nobody else can claim.
//!
//! **The size is bounded** (`anonsize`). Records for which there is no space are counted, and what
//! is counted is said as drops of their CPUs: when there is space again, or at the end. An eighth
//! is for what END records and for the aggregations of the end. A result that comes in parts is
//! added as they come, so memory has a piece of it; it is taken back if it has no space as a whole.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dtrace::Sink;
use dtrace::events::socket::{Place, listen};
use dtrace::events::{
    Drop as Drops, DropKind, Encoder, Event, Notice, NoticeKind, Occasion, Probe, SinkError,
};

use super::log::Log;
use super::place::{self, Places};
use super::recordings;
use crate::interrupt;

/// Who has connected can read what is recorded, and claims it.
pub(crate) const CLAIM: u8 = b'c';
/// A claim ends the session, as `exit()` does.
pub(crate) const STOP: u8 = b'e';
/// A claim was interrupted, and the session is.
pub(crate) const INTERRUPT: u8 = b'i';

/// How long who has connected may take to claim.
const ANSWER: Duration = Duration::from_secs(5);

/// Bytes that are kept before they are added to the log between results.
const CHUNK: usize = 64 << 10;
/// How often the disk is looked for.
const TURN: Duration = Duration::from_secs(1);
/// The longest pause after what could not be copied to it, as to one that is full.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// How long a claim that reads nothing holds up the end of a system.
const LAST: Duration = Duration::from_secs(15);
/// How often what is on the disk is made to last.
const SYNC: Duration = Duration::from_secs(5);

/// A session of this process has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether a session of this process has begun.
pub(crate) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// See the [module](self).
pub(crate) struct Spool {
    places: Places,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    encoder: Encoder<Vec<u8>>,
    /// Bytes of the log: before the end, and at the end.
    limits: [u64; 2],
    /// Parts follow, of a record, of an aggregation, of an interval.
    open: [bool; 3],
    /// The result that they are of.
    begun: Option<Begun>,
    /// A part of the memory that all of the system has for files, while the log is there.
    most: Option<u64>,
    /// The result that is being delivered is left out.
    skips: bool,
    /// Records that the encoder has, by CPU.
    pending: BTreeMap<u32, u64>,
    /// What was not kept and is not said.
    lost: BTreeMap<(DropKind, u32), u64>,
    lost_intervals: u64,
    lost_aggregations: u64,
    is_ending: bool,
    next_turn: Instant,
    moving: Moving,
    next_sync: Instant,
    syncing: Option<JoinHandle<()>>,
}

/// A result that comes in parts.
#[derive(Clone, Copy)]
struct Begun {
    /// Where it begins in the log.
    at: u64,
    /// What it counts as.
    counted: Option<(DropKind, u32)>,
}

/// What the session and the thread share.
struct Shared {
    state: Mutex<State>,
    /// The claim, or its end.
    changed: Condvar,
    /// A byte here is read by the thread, which then looks at the state.
    wake: UnixStream,
}

struct State {
    log: Log,
    place: Place,
    claimed: bool,
    wanted: Wanted,
    /// Nothing comes any more.
    ended: bool,
    /// Nobody may claim it any more, or be given more.
    closed: bool,
    /// The claim has all, or has gone.
    served: bool,
}

/// What the claim wants of the session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Stop,
    Interrupt,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // If it is full, the thread is awake.
        let _ = (&self.wake).write(&[0]);
    }

    /// The claim wants something: the session looks at it.
    fn want(&self, wanted: Wanted) {
        let mut state = self.lock();
        if state.wanted == Wanted::Nothing {
            state.wanted = wanted;
        }
        drop(state);
        interrupt::wake();
    }

    /// Waits for the first who claims. `None`: it is closed.
    fn accept(&self, listener: &UnixListener, woken: &UnixStream) -> Option<UnixStream> {
        loop {
            let ready =
                wait([(listener.as_raw_fd(), libc::POLLIN), (woken.as_raw_fd(), libc::POLLIN)], None)?;
            if self.is_closed(woken, ready[1]) {
                return None;
            }
            if ready[0] == 0 {
                continue;
            }
            let Ok((mut stream, _)) = listener.accept() else { continue };
            let head = self.lock().log.head().bytes();
            let greeted = stream.set_nonblocking(true).and_then(|()| stream.write_all(&head));
            if greeted.is_err() || !self.is_claimed_by(&stream, woken)? {
                continue;
            }
            let mut state = self.lock();
            if state.closed {
                return None;
            }
            state.claimed = true;
            state.place.remove();
            // What cannot be renamed is removed at the end.
            let _ = state.log.claim();
            return Some(stream);
        }
    }

    /// Whether who has connected claims. `None`: it is closed.
    fn is_claimed_by(&self, mut stream: &UnixStream, woken: &UnixStream) -> Option<bool> {
        let end = Instant::now() + ANSWER;
        let mut answer = [0];
        loop {
            let waited = [(stream.as_raw_fd(), libc::POLLIN), (woken.as_raw_fd(), libc::POLLIN)];
            let ready = wait(waited, Some(end))?;
            if self.is_closed(woken, ready[1]) {
                return None;
            }
            match stream.read(&mut answer) {
                Ok(1) => return Some(answer == [CLAIM]),
                Err(e) if is_again(&e) && Instant::now() < end => {}
                _ => return Some(false),
            }
        }
    }

    /// Whether nobody may claim any more; looked at when the thread was woken.
    fn is_closed(&self, mut woken: &UnixStream, ready: libc::c_short) -> bool {
        if ready != 0 {
            let _ = woken.read(&mut [0; 64]);
        }
        self.lock().closed
    }

    /// Gives the claim what there is, and what comes.
    fn serve(&self, mut stream: &UnixStream, mut woken: &UnixStream) {
        let (mut chunk, mut said) = (vec![0; CHUNK], [0; 16]);
        loop {
            let state = self.lock();
            let (is_empty, is_over) = (state.log.length() == 0, state.ended);
            let is_over = is_over && is_empty || state.closed;
            drop(state);
            if is_over {
                return;
            }
            let events = libc::POLLIN | if is_empty { 0 } else { libc::POLLOUT };
            let waited = [(stream.as_raw_fd(), events), (woken.as_raw_fd(), libc::POLLIN)];
            let Some(ready) = wait(waited, None) else { return };
            if ready[1] != 0 {
                let _ = woken.read(&mut [0; 64]);
            }
            if ready[0] & !libc::POLLOUT != 0 {
                match stream.read(&mut said) {
                    Ok(0) => return,
                    Ok(n) => {
                        let is_stop = said.get(..n).unwrap_or_default().contains(&STOP);
                        self.want(if is_stop { Wanted::Stop } else { Wanted::Interrupt });
                    }
                    Err(e) if is_again(&e) => {}
                    Err(_) => return,
                }
            }
            if ready[0] & libc::POLLOUT == 0 {
                continue;
            }
            // The session may add to it meanwhile.
            let Ok(n) = self.lock().log.next(&mut chunk) else { return };
            match stream.write(chunk.get(..n).unwrap_or_default()) {
                Ok(n) if self.lock().log.take(n).is_ok() => {}
                Err(e) if is_again(&e) => {}
                _ => return,
            }
        }
    }
}

fn is_again(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Waits until something is ready, or until a time. `None`: that fails.
fn wait<const N: usize>(
    all: [(RawFd, libc::c_short); N],
    end: Option<Instant>,
) -> Option<[libc::c_short; N]> {
    let mut all = all.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    loop {
        let left = |end: Instant| end.saturating_duration_since(Instant::now()).as_millis() + 1;
        let left = end.map_or(-1, |end| left(end).min(60_000) as libc::c_int);
        // SAFETY: the array is as long as is said.
        if unsafe { libc::poll(all.as_mut_ptr(), N as libc::nfds_t, left) } >= 0 {
            return Some(all.map(|fd| fd.revents));
        }
        if io::Error::last_os_error().kind() != ErrorKind::Interrupted {
            return None;
        }
    }
}

impl Spool {
    /// Prepares the log and the socket; at most so many bytes.
    pub(crate) fn new(places: &Places, limit: u64) -> io::Result<Spool> {
        let log = Log::new(places)?;
        let made = listen(&places.socket()).and_then(|(listener, place)| {
            let pair = listener.set_nonblocking(true).and_then(|()| UnixStream::pair());
            let (wake, woken) = pair.inspect_err(|_| place.remove())?;
            wake.set_nonblocking(true).and_then(|()| woken.set_nonblocking(true))?;
            Ok((listener, place, wake, woken))
        });
        let (listener, place, wake, woken) = made.inspect_err(|_| log.remove())?;
        let most = log.most_in_memory();
        let wanted = Wanted::Nothing;
        let state = State { log, place, claimed: false, wanted, ended: false, closed: false, served: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), wake });
        let served = shared.clone();
        let body = move || {
            let claim = served.accept(&listener, &woken);
            drop(listener);
            if let Some(stream) = claim {
                served.changed.notify_all();
                served.serve(&stream, &woken);
                served.lock().served = true;
                served.changed.notify_all();
                // If the claim has gone, nobody has what comes.
                served.want(Wanted::Stop);
            }
        };
        let thread = std::thread::Builder::new().name("claim".into()).spawn(body)?;
        Ok(Spool {
            places: places.clone(),
            shared,
            thread: Some(thread),
            encoder: Encoder::new(Vec::new()),
            limits: [limit - limit / 8, limit],
            open: [false; 3],
            begun: None,
            most,
            skips: false,
            pending: BTreeMap::new(),
            lost: BTreeMap::new(),
            lost_intervals: 0,
            lost_aggregations: 0,
            is_ending: false,
            next_turn: Instant::now(),
            moving: Moving { next: Instant::now(), pause: Duration::ZERO },
            next_sync: Instant::now() + SYNC,
            syncing: None,
        })
    }

    /// Looks for the disk, and at what the claim wants. True: the session is to end.
    pub(crate) fn turn(&mut self) -> bool {
        let now = Instant::now();
        let mut state = self.shared.lock();
        if !state.claimed && now >= self.next_turn {
            self.next_turn = now + TURN;
            if now >= self.moving.next {
                self.moving.attempt(&mut state.log, &self.places);
            }
            self.most = state.log.most_in_memory();
            // An old note is better than none.
            let _ = state.log.note_clock();
        }
        let lasting =
            (state.log.is_on_disk() && !state.claimed && now >= self.next_sync).then(|| state.log.file());
        let wanted = state.wanted;
        drop(state);
        if let Some(file) = lasting {
            self.next_sync = now + SYNC;
            // A disk that is slow would stop the session. The thread ends with the call.
            let sync = move || drop(file.sync_data());
            if self.syncing.as_ref().is_none_or(JoinHandle::is_finished) {
                self.syncing = std::thread::Builder::new().name("sync".into()).spawn(sync).ok();
            }
        }
        wanted != Wanted::Nothing
    }

    /// Whether the claim was interrupted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.shared.lock().wanted == Wanted::Interrupt
    }

    fn is_full(&self) -> bool {
        let [before, at_end] = self.limits;
        let limit = if self.is_ending { at_end } else { before };
        let state = self.shared.lock();
        // What fills the memory of /run stops the boot.
        let limit = self.most.map_or(limit, |most| limit.min(most));
        state.log.space() + self.encoder.get_ref().len() as u64 >= limit
    }

    /// Encodes an event behind the others.
    fn encode(&mut self, event: &Event<'_>) {
        let before = self.encoder.get_ref().len();
        let encoded = self.encoder.event(event);
        // A vector takes everything.
        let _ = self.encoder.batch_end();
        if encoded.is_err() {
            // It is too long for a frame.
            self.encoder.get_mut().truncate(before);
            self.count(event);
        } else if let Some((_, cpu)) = counted(event) {
            *self.pending.entry(cpu).or_default() += 1;
        }
    }

    /// Counts an event that is not kept.
    fn count(&mut self, event: &Event<'_>) {
        match (event, counted(event)) {
            (Event::Drop(drop), _) => *self.lost.entry((drop.kind, drop.cpu)).or_default() += drop.count,
            (Event::Interval(all), _) => self.lost_intervals += u64::from(all.part.last),
            // Those of a record are a part of it.
            (Event::Aggregation(all), _) if all.occasion == Occasion::End => {
                self.lost_aggregations += u64::from(all.part.last);
            }
            (_, Some(key)) => *self.lost.entry(key).or_default() += 1,
            _ => {}
        }
    }

    /// Says what was lost.
    fn say(&mut self) {
        for ((kind, cpu), count) in std::mem::take(&mut self.lost) {
            self.encode(&Event::Drop(Drops::new(kind, cpu, count)));
        }
        let intervals = std::mem::take(&mut self.lost_intervals);
        let aggregations = std::mem::take(&mut self.lost_aggregations);
        for (lost, what) in
            [(intervals, "intervals of aggregations"), (aggregations, "aggregations of the end")]
        {
            if lost == 0 {
                continue;
            }
            let text = format!("{lost} {what} were not kept: raise anonsize");
            self.encode(&Event::Notice(Notice { kind: NoticeKind::Failure, text: text.into(), time: None }));
        }
    }

    /// Adds what is encoded to the log.
    fn send(&mut self) {
        let bytes = std::mem::take(self.encoder.get_mut());
        let pending = std::mem::take(&mut self.pending);
        if bytes.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        let (added, claimed) = (state.log.add(&bytes), state.claimed);
        drop(state);
        if added.is_err() {
            for (cpu, count) in pending {
                *self.lost.entry((DropKind::Principal, cpu)).or_default() += count;
            }
            if let Some(begun) = self.begun.take() {
                self.take_back(begun);
            }
        }
        if claimed {
            self.shared.wake();
        }
    }

    fn is_open(&self) -> bool {
        self.open != [false; 3]
    }

    /// Adds the parts so far of a result. If there is no space for it, those that were added are
    /// taken back and the rest is left out, unless a claim may have them.
    fn send_parts(&mut self) {
        let Some(begun) = self.begun.filter(|_| self.is_full()) else { return self.send() };
        if self.shared.lock().claimed {
            return self.send();
        }
        // It is the only one that the encoder has.
        let is_first = !std::mem::take(&mut self.pending).is_empty();
        self.encoder.get_mut().clear();
        self.begun = None;
        if let Some(key) = begun.counted.filter(|_| is_first) {
            *self.lost.entry(key).or_default() += 1;
        }
        self.take_back(begun);
    }

    /// Takes the parts of a result out of the log, and leaves out the rest.
    fn take_back(&mut self, begun: Begun) {
        let mut state = self.shared.lock();
        let had_parts = state.log.end() > begun.at;
        state.log.cut(begun.at);
        drop(state);
        if let Some(key) = begun.counted.filter(|_| had_parts) {
            *self.lost.entry(key).or_default() += 1;
        }
        self.skips = true;
    }

    /// The session has ended: who has claimed it gets the rest, else it is kept for a later claim.
    /// What can only be in memory is kept here until it is claimed or the system goes down.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.finish_within(LAST, || interrupt::count() > 0)
    }

    /// `is_over`: the system goes down, so a claim has so long.
    fn finish_within(&mut self, last: Duration, is_over: impl Fn() -> bool) -> Result<(), String> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let mut state = self.shared.lock();
        state.ended = true;
        self.shared.wake();
        let kept = loop {
            if state.claimed {
                break None;
            }
            let is_over = is_over();
            let is_due = is_over || Instant::now() >= self.moving.next;
            let is_moved = is_due && self.moving.attempt(&mut state.log, &self.places);
            if is_moved || is_over {
                state.closed = true;
                let kept = state.log.keep();
                // Who waits for the end of the socket waits for the file.
                state.place.remove();
                break Some(kept);
            }
            let waited = self.shared.changed.wait_timeout(state, TURN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let (mut end, mut has_given_up, mut left) = (None, false, state.log.length());
        while kept.is_none() && !state.served && !thread.is_finished() {
            // A claim that reads has as long again.
            let now_left = state.log.length();
            if now_left < left {
                (left, end) = (now_left, None);
            }
            if is_over() && *end.get_or_insert_with(|| Instant::now() + last) <= Instant::now() {
                has_given_up = true;
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, TURN.min(last));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.closed = true;
        drop(state);
        self.shared.wake();
        let _ = thread.join();
        if let Some(kept) = kept {
            return kept.map_err(|e| format!("failed to keep what was recorded: {e}"));
        }
        let state = self.shared.lock();
        state.log.remove();
        if !has_given_up || state.log.length() == 0 {
            return Ok(());
        }
        Err(format!(
            "the claim does not read, and the system goes down after {} s: {} bytes that were recorded are lost",
            last.as_secs(),
            state.log.length()
        ))
    }
}

/// When the log is copied to the disk. It is tried again after an error, and what is in memory is
/// there until the machine goes down.
struct Moving {
    next: Instant,
    /// The pause after the last error.
    pause: Duration,
}

impl Moving {
    /// Whether the log is on the disk now.
    fn attempt(&mut self, log: &mut Log, places: &Places) -> bool {
        let Err(e) = log.move_to_disk(places) else { return true };
        self.pause = pause_after(e.kind(), self.pause);
        self.next = Instant::now() + self.pause;
        false
    }
}

/// How long the disk is left alone after an error. One that is not there may be there soon.
fn pause_after(kind: ErrorKind, before: Duration) -> Duration {
    match kind {
        ErrorKind::ReadOnlyFilesystem | ErrorKind::Unsupported | ErrorKind::NotFound => Duration::ZERO,
        _ => (before * 2).clamp(TURN, LONGEST_PAUSE),
    }
}

/// Whether a probe fires after all others.
fn is_end(probe: &Probe) -> bool {
    (&*probe.provider, &*probe.name) == ("dtrace", "END")
}

/// What an event counts as, if it is not kept.
fn counted(event: &Event<'_>) -> Option<(DropKind, u32)> {
    match event {
        Event::Record(record) if record.part.first => Some((DropKind::Principal, record.firing.cpu)),
        Event::Fault(fault) => Some((DropKind::Principal, fault.cpu)),
        _ => None,
    }
}

impl Sink for Spool {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        if matches!(event, Event::Start(_)) {
            BEGUN.store(true, Ordering::Relaxed);
        }
        let may_skip = matches!(
            event,
            Event::Record(_)
                | Event::Aggregation(_)
                | Event::Interval(_)
                | Event::Effect(_)
                | Event::Fault(_)
                | Event::Drop(_)
        );
        self.is_ending |= match event {
            Event::Record(record) => is_end(&record.firing.probe),
            Event::Stop => true,
            _ => false,
        };
        // What comes in parts is kept as a whole or not at all.
        let was_open = self.is_open();
        if !was_open && may_skip {
            let is_full = self.is_full();
            let was = std::mem::replace(&mut self.skips, is_full);
            if was && !self.skips {
                self.say();
            }
        }
        match event {
            Event::Record(record) => self.open[0] = !record.part.last,
            Event::Aggregation(rows) => self.open[1] = !rows.part.last,
            Event::Interval(rows) => self.open[2] = !rows.part.last,
            Event::End { .. } => {
                self.open = [false; 3];
                self.say();
            }
            _ => {}
        }
        if !was_open && self.is_open() && !self.skips {
            self.send();
            let at = self.shared.lock().log.end();
            self.begun = Some(Begun { at, counted: counted(event) });
        }
        match self.skips && may_skip {
            true => self.count(event),
            false => self.encode(event),
        }
        let is_long = self.encoder.get_ref().len() >= CHUNK;
        match self.is_open() {
            true if is_long => self.send_parts(),
            true => {}
            false => {
                self.begun = None;
                if is_long {
                    self.send();
                }
            }
        }
        Ok(())
    }

    fn batch_end(&mut self) -> io::Result<()> {
        if !self.is_open() {
            self.send();
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.batch_end()
    }
}

impl Drop for Spool {
    /// A session that did not begin leaves nothing; one that was aborted leaves what there is.
    fn drop(&mut self) {
        self.send();
        if has_begun() {
            let _ = self.finish();
            return;
        }
        let Some(thread) = self.thread.take() else { return };
        let mut state = self.shared.lock();
        (state.ended, state.closed) = (true, true);
        state.place.remove();
        state.log.remove();
        drop(state);
        self.shared.wake();
        let _ = thread.join();
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;

/// Keeps the messages of a session that did not begin, for a claim.
pub(crate) fn keep_error(places: &Places, messages: &str) -> io::Result<()> {
    if recordings::is_recording(places) {
        return Ok(());
    }
    place::private_dir(&places.run())?;
    place::replace(&places.error(), 0o600, |file| file.write_all(messages.as_bytes()))
}
