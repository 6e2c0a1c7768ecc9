//! The events of a session for whoever connects to a socket of the file system
//! (`-x events=unix:PATH`).
//!
//! ```text
//!  session ── events ──> chunk ──┬──> queue of a reader ──┬─ thread ──> its connection
//!                                └──> queue of another  ──┘
//! ```
//!
//! Each reader has a stream of its own, as a file has one: its head, the reports, the start and the
//! options that are in force, and then what comes. A frame is complete in itself, so there is
//! nothing else that a reader who joins later would lack. It joins between results: what is
//! delivered in parts (a record, the rows of an aggregation) it has as a whole or not at all.
//!
//! The session waits for no reader. A chunk for which a reader's queue has no space is lost to this
//! reader alone. The next chunk that it gets has a notice before it that says how many events are
//! missing there, and the sum of all readers is a [loss](Sink::losses) of the sink. Without a
//! reader nothing is encoded.
//!
//! **The size is bounded**: 16 readers with 4 MB each, in chunks that they share, or one chunk that
//! is larger; and 64 MB of what comes in parts, beyond which it is lost to all.
//!
//! At the end readers have a second to go on, and five in all, to take what their queues have.

mod place;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use place::{Place, listen};

use crate::encode::Encoder;
use crate::event::{Event, Notice, NoticeKind};
use crate::sink::{Needs, Sink, SinkError};
use crate::wire::{MAGIC, VERSION};

/// The most readers at a time.
const READERS: usize = 16;
/// The most bytes that wait for a reader, unless it is one chunk.
const QUEUE: usize = 4 << 20;
/// What a chunk in a queue needs beside its bytes.
const CHUNK_OVERHEAD: usize = 128;
/// Bytes after which a chunk is complete between results.
const CHUNK: usize = 64 << 10;
/// The most bytes of what comes in parts.
const LONGEST: usize = 64 << 20;
/// The most bytes of the reports that a later reader gets.
const REPORTS: usize = 1 << 20;
/// At the end: how long no reader may take anything, and how long all of it may take.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long nobody is accepted after that has failed: descriptors are short.
const PAUSE: Duration = Duration::from_millis(100);

/// A sink that serves its events at a socket.
#[derive(Debug)]
pub struct Socket {
    shared: Arc<Shared>,
    /// `None` after the end.
    thread: Option<JoinHandle<()>>,
    place: Place,
    encoder: Encoder<Vec<u8>>,
    /// Somebody reads what the encoder has.
    wanted: bool,
    /// The events that the encoder has.
    events: u64,
    /// The bytes and events that it has before the result that is being delivered.
    whole: (usize, u64),
    /// Events of a result that was too large.
    skipped: u64,
    /// What later readers get first, of what the encoder has.
    heads: Vec<Head>,
    /// Parts follow, of a record, of an aggregation, of an interval.
    open: [bool; 3],
    /// A loss is to be said, and was.
    losing: bool,
    told: bool,
}

/// A part of what a reader gets first.
#[derive(Debug)]
enum Head {
    Report(Vec<u8>),
    Start(Vec<u8>),
    Options(Vec<u8>),
}

/// What the session and the thread share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is a reader.
    any: AtomicBool,
    /// A byte here is read by the thread, which then looks at the state.
    wake: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    reports: Vec<u8>,
    start: Vec<u8>,
    options: Vec<u8>,
    readers: Vec<Reader>,
    /// Events that readers have lost, who have gone or not.
    lost: u64,
    closed: bool,
}

/// Bytes of whole frames.
#[derive(Clone, Debug)]
struct Chunk {
    bytes: Arc<Vec<u8>>,
    events: u64,
}

#[derive(Debug)]
struct Reader {
    stream: Arc<UnixStream>,
    queue: VecDeque<Chunk>,
    /// Of the queue.
    bytes: usize,
    /// Bytes of the first chunk that were written.
    written: usize,
    /// Events that it has lost since it was told.
    missed: u64,
}

/// The frames of an event.
fn frames(event: &Event<'_>) -> Vec<u8> {
    let mut encoder = headless();
    // A vector takes everything, and a notice is short.
    let _ = encoder.event(event);
    let _ = encoder.batch_end();
    std::mem::take(encoder.get_mut())
}

/// An encoder behind the head of its stream.
fn headless() -> Encoder<Vec<u8>> {
    let mut encoder = Encoder::new(Vec::new());
    let _ = encoder.batch_end();
    encoder.get_mut().clear();
    encoder
}

/// The first bytes of a stream.
fn magic() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

fn notice(text: String) -> Vec<u8> {
    frames(&Event::Notice(Notice { kind: NoticeKind::Failure, text: text.into(), time: None }))
}

impl Reader {
    fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.bytes.len() + CHUNK_OVERHEAD;
        self.queue.push_back(chunk);
    }

    /// Whether there is space for more. One who has lost something gets more when half of the
    /// queue is free, so that what is missing is missing in few places.
    fn has_space(&self, bytes: usize) -> bool {
        let most = if self.missed > 0 { QUEUE / 2 } else { QUEUE };
        self.queue.is_empty() || self.bytes + bytes + CHUNK_OVERHEAD <= most
    }

    /// Says what was lost at this place.
    fn tell(&mut self) {
        if self.missed > 0 {
            let missed = std::mem::take(&mut self.missed);
            let s = if missed == 1 { " is" } else { "s are" };
            let text = format!("{missed} event{s} missing here: this reader takes too few");
            self.push(Chunk { bytes: Arc::new(notice(text)), events: 0 });
        }
    }
}

impl State {
    /// What a reader gets first.
    fn first(&self) -> Vec<u8> {
        [&magic()[..], &self.reports, &self.start, &self.options].concat()
    }

    fn keep(&mut self, head: Head) {
        match head {
            Head::Report(bytes) if self.reports.len() + bytes.len() <= REPORTS => self.reports.extend(bytes),
            Head::Report(_) => {}
            Head::Start(bytes) => self.start = bytes,
            Head::Options(bytes) => self.options = bytes,
        }
    }

    /// Gives a chunk to all readers. One that must come takes space that there is not.
    fn push(&mut self, bytes: Vec<u8>, events: u64, must: bool) {
        let chunk = Chunk { bytes: Arc::new(bytes), events };
        for reader in &mut self.readers {
            if must || reader.has_space(chunk.bytes.len()) {
                reader.tell();
                reader.push(chunk.clone());
            } else {
                reader.missed += events;
                self.lost += events;
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // If it is full, the thread is awake.
        let _ = (&self.wake).write(&[0]);
    }

    /// A reader has connected.
    fn join(&self, stream: UnixStream) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut state = self.lock();
        if state.readers.len() >= READERS {
            let text = format!("there are {READERS} readers of these events, which is the most");
            let _ = (&stream).write(&[magic(), notice(text)].concat());
            return;
        }
        let mut reader =
            Reader { stream: Arc::new(stream), queue: VecDeque::new(), bytes: 0, written: 0, missed: 0 };
        reader.push(Chunk { bytes: Arc::new(state.first()), events: 0 });
        state.readers.push(reader);
        self.any.store(true, Ordering::Release);
    }

    /// Writes a part of what a reader's queue has. False: it has gone.
    fn write(&self, stream: &Arc<UnixStream>) -> bool {
        let first = |state: &mut State| {
            let reader = state.readers.iter().find(|reader| Arc::ptr_eq(&reader.stream, stream))?;
            Some((reader.queue.front()?.clone(), reader.written))
        };
        // The session does not wait for the call.
        let Some((chunk, at)) = first(&mut self.lock()) else { return true };
        let n = match (&**stream).write(chunk.bytes.get(at..).unwrap_or_default()) {
            Ok(0) => return false,
            Ok(n) => n,
            Err(e) => {
                return matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            }
        };
        let mut state = self.lock();
        let Some(reader) = state.readers.iter_mut().find(|reader| Arc::ptr_eq(&reader.stream, stream)) else {
            return true;
        };
        reader.written += n;
        if reader.written >= chunk.bytes.len() {
            reader.written = 0;
            reader.bytes -= chunk.bytes.len() + CHUNK_OVERHEAD;
            reader.queue.pop_front();
        }
        true
    }

    /// Gives readers what their queues have, until the end.
    fn serve(&self, listener: &UnixListener, mut woken: &UnixStream) {
        let mut resumes = Instant::now();
        let mut end: Option<[Instant; 2]> = None;
        loop {
            let state = self.lock();
            let now = Instant::now();
            if state.closed {
                let until = end.get_or_insert(PATIENCE.map(|time| now + time));
                let is_done = state.readers.iter().all(|reader| reader.queue.is_empty());
                if is_done || until.iter().any(|until| now >= *until) {
                    return;
                }
            }
            let accepts = !state.closed && now >= resumes;
            let streams: Vec<Arc<UnixStream>> = state.readers.iter().map(|r| r.stream.clone()).collect();
            let wait = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
            let mut all: Vec<libc::pollfd> = state
                .readers
                .iter()
                .map(|r| wait(r.stream.as_raw_fd(), if r.queue.is_empty() { 0 } else { libc::POLLOUT }))
                .collect();
            drop(state);
            all.push(wait(woken.as_raw_fd(), libc::POLLIN));
            all.extend(accepts.then(|| wait(listener.as_raw_fd(), libc::POLLIN)));
            let timeout = match end {
                Some(until) => until.iter().min().map_or(0, |until| millis(*until - now)),
                None if accepts => -1,
                None => millis(PAUSE),
            };
            // SAFETY: the array is as long as is said.
            if unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, timeout) } < 0 {
                match io::Error::last_os_error().kind() {
                    io::ErrorKind::Interrupted => continue,
                    _ => return,
                }
            }
            let ready = |at: usize| all.get(at).map_or(0, |fd| fd.revents);
            if ready(streams.len()) != 0 {
                let _ = woken.read(&mut [0; 64]);
            }
            for (n, stream) in streams.iter().enumerate() {
                let gone = ready(n) & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
                if gone || (ready(n) & libc::POLLOUT != 0 && !self.write(stream)) {
                    let mut state = self.lock();
                    state.readers.retain(|reader| !Arc::ptr_eq(&reader.stream, stream));
                    self.any.store(!state.readers.is_empty(), Ordering::Release);
                } else if ready(n) != 0
                    && let Some([stalled, _]) = &mut end
                {
                    *stalled = Instant::now() + PATIENCE[0];
                }
            }
            if ready(streams.len() + 1) != 0 {
                match listener.accept() {
                    Ok((stream, _)) => self.join(stream),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => resumes = Instant::now() + PAUSE,
                }
            }
        }
    }
}

/// As `poll` has them, rounded up.
fn millis(time: Duration) -> libc::c_int {
    libc::c_int::try_from(time.as_millis()).map_or(libc::c_int::MAX, |n| n.saturating_add(1))
}

impl Socket {
    /// Listens at a path, for this user alone: nobody else may connect from the first moment on. A
    /// socket to which nobody listens is replaced. The name is removed at the end.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Socket> {
        let (listener, place) = listen(path.as_ref())?;
        // From here on what fails removes the name.
        let (wake, woken) = UnixStream::pair().inspect_err(|_| place.remove())?;
        let shared = Arc::new(Shared { state: Mutex::default(), any: AtomicBool::new(false), wake });
        let mut socket = Socket {
            shared,
            thread: None,
            place,
            encoder: headless(),
            wanted: false,
            events: 0,
            whole: (0, 0),
            skipped: 0,
            heads: Vec::new(),
            open: [false; 3],
            losing: false,
            told: false,
        };
        let started = listener
            .set_nonblocking(true)
            .and_then(|()| socket.shared.wake.set_nonblocking(true))
            .and_then(|()| woken.set_nonblocking(true))
            .and_then(|()| {
                let shared = socket.shared.clone();
                threads::spawn("events", threads::LARGE_STACK, move || shared.serve(&listener, &woken))
            });
        match started {
            Ok(thread) => socket.thread = Some(thread),
            Err(e) => {
                socket.place.remove();
                return Err(e);
            }
        }
        Ok(socket)
    }

    /// How many readers there are.
    pub fn readers(&self) -> usize {
        self.shared.lock().readers.len()
    }

    /// Gives what the encoder has to the readers.
    fn send(&mut self, must: bool) {
        let bytes = std::mem::take(self.encoder.get_mut());
        let events = std::mem::take(&mut self.events);
        let skipped = std::mem::take(&mut self.skipped);
        if bytes.is_empty() && skipped == 0 {
            return;
        }
        let mut state = self.shared.lock();
        self.heads.drain(..).for_each(|head| state.keep(head));
        let before = state.lost;
        if skipped > 0 {
            let n = state.readers.len() as u64;
            state.lost += skipped * n;
            state.readers.iter_mut().for_each(|reader| reader.missed += skipped);
        }
        if !bytes.is_empty() {
            state.push(bytes, events, must);
        }
        self.losing |= state.lost > before;
        drop(state);
        self.shared.wake();
    }

    /// Leaves out the result that is being delivered.
    fn skip(&mut self) {
        let (bytes, events) = self.whole;
        self.encoder.get_mut().truncate(bytes);
        self.skipped = self.events - events;
        self.events = events;
    }

    /// Encodes an event behind the others.
    fn encode(&mut self, event: &Event<'_>) {
        let at = self.encoder.get_ref().len();
        let encoded = self.encoder.event(event);
        // A vector takes everything.
        let _ = self.encoder.batch_end();
        self.events += 1;
        let (whole, _) = self.whole;
        // An event that is too long for a frame is an error.
        if encoded.is_err() || self.encoder.get_ref().len() - whole > LONGEST {
            self.skip();
            return;
        }
        let make = match event {
            Event::Report(_) => Head::Report,
            Event::Start(_) => Head::Start,
            Event::Options(_) => Head::Options,
            _ => return,
        };
        let bytes = self.encoder.get_ref().get(at..).unwrap_or_default().to_vec();
        self.heads.push(make(bytes));
    }

    /// Ends the streams of all readers, after they had time to take them.
    fn close(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.place.remove();
        self.send(true);
        let mut state = self.shared.lock();
        state.readers.iter_mut().for_each(Reader::tell);
        state.closed = true;
        drop(state);
        self.shared.wake();
        let _ = thread.join();
        let mut state = self.shared.lock();
        let readers = std::mem::take(&mut state.readers);
        state.lost += readers.iter().flat_map(|r| &r.queue).map(|chunk| chunk.events).sum::<u64>();
    }
}

impl Sink for Socket {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        let is_first = self.open == [false; 3];
        if is_first && self.encoder.get_ref().is_empty() && self.skipped == 0 {
            self.wanted = self.shared.any.load(Ordering::Acquire);
        }
        if is_first {
            self.whole = (self.encoder.get_ref().len(), self.events);
        }
        match event {
            Event::Record(record) => self.open[0] = !record.part.last,
            Event::Aggregation(rows) => self.open[1] = !rows.part.last,
            Event::Interval(rows) => self.open[2] = !rows.part.last,
            // Whatever was open ends.
            Event::End { .. } => self.open = [false; 3],
            _ => {}
        }
        let is_end = matches!(event, Event::End { .. });
        if is_end {
            self.send(false);
            self.whole = (0, 0);
        }
        if self.wanted && self.skipped == 0 {
            self.encode(event);
        } else if self.wanted {
            self.skipped += 1;
        } else if matches!(event, Event::Start(_) | Event::Options(_) | Event::Report(_)) {
            // Who has joined meanwhile lacks it.
            self.encode(event);
            self.send(true);
        }
        let is_whole = self.open == [false; 3];
        if is_whole && (self.skipped > 0 || self.encoder.get_ref().len() >= CHUNK) {
            self.send(false);
        }
        if is_end {
            self.close();
        }
        if self.losing && !std::mem::replace(&mut self.told, true) {
            let text = "a reader takes too few events and loses some, which are counted";
            return Err(SinkError::Effect(io::Error::other(text)));
        }
        Ok(())
    }

    /// Whatever is made of them later.
    fn needs(&self) -> Needs {
        Needs { process_ids: true, printed: false }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        if self.open == [false; 3] {
            self.send(false);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.batch_end()
    }

    fn losses(&self) -> Vec<String> {
        match self.shared.lock().lost {
            0 => Vec::new(),
            1 => vec!["1 event was lost to a reader that took too few".into()],
            lost => vec![format!("{lost} events were lost to readers that took too few")],
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}
