//! Reads large files in a thread of its own, one at a time: the tables of all others are made
//! meanwhile.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use symbols::{CodeSource, FrameReader, FrameRequest, FrameTable, Readers};

/// How long the reading of a file or a map may take. Nobody waits for it but targets.
pub(super) const READING: Duration = Duration::from_secs(10);

/// The memory of a reader.
pub(super) const MEMORY: u64 = 256 << 20;

/// What was read: see [`super::tables::Tables::settle`].
type Answer = (CodeSource, Option<Option<FrameTable>>);

/// What the thread gets and gives.
type Channels = (Sender<(CodeSource, FrameRequest)>, Receiver<Answer>);

/// The thread, which is started at the first file.
pub(super) struct Aside {
    /// Wakes whoever waits for results.
    wake: UnixStream,
    readers: Readers,
    thread: Option<Channels>,
    /// The file that is being read.
    current: Option<CodeSource>,
}

impl Aside {
    pub(super) fn new(wake: UnixStream, readers: Readers) -> Aside {
        Aside { wake, readers, thread: None, current: None }
    }

    /// True if a file can be given.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Reads a file. False if there is no thread.
    pub(super) fn read(&mut self, source: CodeSource, request: FrameRequest) -> bool {
        if self.thread.is_none() {
            self.thread = start(&self.wake, &self.readers).ok();
        }
        let sent = self.thread.as_ref().is_some_and(|(to, _)| to.send((source, request)).is_ok());
        self.current = sent.then_some(source);
        sent
    }

    /// What has been read. A file whose thread has ended could not be read.
    pub(super) fn take(&mut self) -> Option<Answer> {
        let current = self.current?;
        let (_, results) = self.thread.as_ref()?;
        let found = match results.try_recv() {
            Ok(found) => found,
            Err(mpsc::TryRecvError::Empty) => return None,
            Err(mpsc::TryRecvError::Disconnected) => {
                self.thread = None;
                (current, None)
            }
        };
        self.current = None;
        Some(found)
    }
}

fn start(wake: &UnixStream, readers: &Readers) -> io::Result<Channels> {
    let (wake, readers) = (wake.try_clone()?, readers.clone());
    let (to, requests) = mpsc::channel::<(CodeSource, FrameRequest)>();
    let (results, from) = mpsc::channel();
    let run = move || {
        let mut reader = FrameReader::new(&readers, READING, MEMORY);
        for (source, request) in requests {
            if results.send((source, reader.read(&request))).is_err() {
                return;
            }
            let _ = (&wake).write(&[0]);
        }
    };
    threads::spawn("unwinder-aside", threads::LARGE_STACK, run)?;
    Ok((to, from))
}
