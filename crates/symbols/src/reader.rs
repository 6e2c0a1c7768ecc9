//! The reader: the process that looks at what traced processes made.
//!
//! It is this same executable, begun anew by [`crate::entry`], with a socket as its standard input and nothing else of its
//! owner: no descriptor, no memory, few rights. It answers one question after the other ([`crate::wire`]) until the socket is
//! closed. Opening a file of a traced process may wait for ever, parsing it may take long or much memory, and neither may do
//! harm to the session: so the owner waits for an answer for a limited time, and then leaves the reader behind, killed, and
//! begins another. A memory limit ([`RLIMIT_DATA`](libc::RLIMIT_DATA)) ends a reader that takes too much.
//!
//! ```text
//!  observe    identity, address map and handles of a process
//!  elf        symbol tables          debug    separate files with symbols
//!  perfmap    names of code that was made at run time
//!  index      all indexes, within a bound of memory
//! ```

mod debug;
mod demangle;
mod elf;
mod index;
mod observe;
mod perfmap;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::maps::{self, Backing};
use crate::open::{Handle, Root};
use crate::sys;
use crate::wire::{self, Answer, Found, Question};

use index::Indexes;
use observe::SentObjects;

/// Limits of a reader, as its owner gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How long the owner waits for an answer.
    pub(crate) time: Duration,
    /// Bytes of memory.
    pub(crate) memory: u64,
}

/// Memory that is not for indexes: packets, what is being read, the allocator's own.
const OTHER_MEMORY: u64 = 4;

struct Server {
    socket: OwnedFd,
    limits: Limits,
    indexes: Indexes,
    sent: SentObjects,
}

/// Answers questions until the socket is closed.
pub(crate) fn serve(socket: OwnedFd, limits: Limits) -> io::Result<()> {
    sys::become_reader(limits.memory);
    let indexes = Indexes::new(limits.memory - limits.memory / OTHER_MEMORY);
    let mut server = Server { socket, limits, indexes, sent: SentObjects::default() };
    server.say(&Answer::Ready, None)?;
    let mut packet = vec![0; sys::PACKET];
    loop {
        let (length, fds) = match sys::receive(server.socket.as_fd(), &mut packet, true) {
            Ok((0, _)) => return Ok(()),
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let question = Question::decode(&packet[..length]).ok_or(io::ErrorKind::InvalidData)?;
        sys::end_in(Some(server.limits.time * 2 + Duration::from_secs(1)));
        let why = server.answer(question, fds)?;
        sys::end_in(None);
        server.say(&Answer::End(why), None)?;
    }
}

impl Server {
    fn say(&self, answer: &Answer, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        sys::send(self.socket.as_fd(), &answer.encode(), fd.as_slice(), true)
    }

    /// Answers a question; why that could not be done.
    fn answer(&mut self, question: Question, fds: Vec<OwnedFd>) -> io::Result<Option<String>> {
        let mut fds = fds.into_iter();
        match question {
            Question::Identities(pids) => {
                let open = |pid: u32| crate::open::ProcessDir::open(pid).ok();
                let all = pids.into_iter().map(|pid| observe::identity(&open(pid)?)).collect();
                self.say(&Answer::Identities(all), None)?;
            }
            Question::Process(pid) => self.process(pid)?,
            Question::Symbols { file, raw, offsets } => {
                let handle = file.handle.then(|| fds.next().map(Handle::from_fd)).flatten();
                let root = file.root.then(|| fds.next().map(Root::from_fd)).flatten();
                match self.indexes.symbols(&file, handle, root, raw, &offsets) {
                    Ok(found) => self.symbols(found)?,
                    Err(why) => return Ok(Some(why)),
                }
            }
            Question::Vdso { raw, offsets } => match self.indexes.vdso(raw, &offsets) {
                Ok(found) => self.symbols(found)?,
                Err(why) => return Ok(Some(why)),
            },
            Question::Made { pid, start, addrs } => {
                let held = fds.next().map(Handle::from_fd);
                let (found, fresh) = self.indexes.made(pid, start, held, &addrs);
                if let Some((pid, handle)) = fresh {
                    self.say(&Answer::PerfMap(pid), Some(handle.fd()))?;
                }
                self.symbols(found)?;
            }
        }
        Ok(None)
    }

    fn process(&mut self, pid: u32) -> io::Result<()> {
        let Some(process) = observe::process(pid, &mut self.sent) else { return Ok(()) };
        let key = process.root.as_ref().map(|(key, _)| *key).unwrap_or_default();
        self.say(&Answer::Process(process.identity, key), None)?;
        if let Some((key, root)) = &process.root
            && self.sent.root(*key)
        {
            self.say(&Answer::Root(*key), Some(root.fd()))?;
        }
        for (file, handle) in process.map.files.into_iter().zip(&process.files) {
            self.say(&Answer::File(file), handle.as_ref().map(Handle::fd))?;
        }
        for answer in wire::packets_of(&process.map.mappings) {
            self.say(&answer, None)?;
        }
        if let Some((pid, handle)) = process.perf_map {
            self.say(&Answer::PerfMap(pid), Some(handle.fd()))?;
        }
        Ok(())
    }

    fn symbols(&self, found: Vec<Found>) -> io::Result<()> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for found in found {
            bytes += 16 + found.as_ref().map_or(0, |(_, name)| name.len());
            part.push(found);
            if bytes > wire::NAMES {
                self.say(&Answer::Symbols(std::mem::take(&mut part)), None)?;
                bytes = 0;
            }
        }
        self.say(&Answer::Symbols(part), None)
    }
}

/// The image of our own vdso, which every process of our kind has.
fn own_vdso() -> Option<Vec<u8>> {
    let map = maps::parse(&std::fs::read("/proc/self/maps").ok()?);
    let vdso = map.mappings.iter().find(|m| m.backing == Backing::Vdso)?;
    let mut image = vec![0; usize::try_from(vdso.end - vdso.start).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, vdso.start).ok()?;
    Some(image)
}
