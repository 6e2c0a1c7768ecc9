//! The reader: the process that reads the files of traced processes.
//!
//! It is a second instance of the same executable, started through [`crate::entry`]. Its standard
//! input is a socket. It inherits no other descriptor and no memory, and keeps few capabilities. It
//! handles one request after the other ([`crate::wire`]), of all clients of its pool
//! ([`crate::pool`]), until the socket is closed. Opening a file of a traced process may block for
//! ever, and parsing it may take much time or memory. Neither may affect the session. The session
//! therefore waits for a response for a limited time; then it kills and abandons the reader and
//! starts another. A memory limit ([`RLIMIT_DATA`](libc::RLIMIT_DATA)) bounds the reader's memory.
//!
//! ```text
//!  observe    identity, address map and file handles of a process
//!  elf        symbol tables          debug    separate debug files
//!  compressed symbol tables in stripped files
//!  functions  the functions of a file, their code
//!  servers    debug files from debuginfod
//!  split      files of split debug information
//!  types      types in debug information
//!  lines      functions and source lines in debug information
//!  usdt       the probes that a file describes
//!  describing which processes run a file that does
//!  perfmap    symbols of JIT code
//!  guest      symbols of the kernel of a guest
//!  index      cache of all indexes, bounded in memory
//! ```

mod compressed;
mod debug;
mod demangle;
mod describing;
mod elf;
mod extents;
mod frames;
mod functions;
mod guest;
mod index;
mod lines;
mod observe;
mod perfmap;
mod servers;
mod split;
mod types;
mod usdt;
mod whole;

pub use whole::{Files, Read, fetched, file_facts, functions_of_bytes, perf_map, process_ids};

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use debuginfo::SourceFrame;

use crate::frames::FrameTable;
use crate::functions::Function;
use crate::sys;
use crate::usdt::DescribedProbes;
use crate::wire::functions::{INSTRUCTIONS, Instructions};
use crate::wire::{self, Failure, FileRef, Order, PlaceName, Request, Response};
use files::open::{Handle, Root};

use describing::Descriptions;
use guest::Guests;
use index::Indexes;
use observe::SentObjects;

/// The time without a packet after which a reader ends: its session does not wait any more. `work`:
/// how long it may work.
fn alarm(work: Duration) -> Duration {
    wire::wait_for(work) + work + Duration::from_secs(1)
}

/// The most time that a client may name.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The most clients whose objects are recorded as sent.
const MAX_CLIENTS: usize = 256;

/// One of this many parts of memory is not for indexes, but for packets, read buffers and the
/// allocator.
const OTHER_MEMORY: u64 = 4;

struct Server {
    socket: Arc<OwnedFd>,
    /// The CPU time that the client allows.
    time: Duration,
    indexes: Indexes,
    /// What was sent to each client.
    sent: HashMap<u64, SentObjects>,
    described: Descriptions,
    guests: Guests,
}

/// Handles requests until the socket is closed.
pub(crate) fn serve(socket: OwnedFd, memory: u64) -> io::Result<()> {
    sys::become_reader(memory);
    let socket = Arc::new(socket);
    // Where there is no memory for a thread, the alarm remains.
    let _ = sys::end_with(socket.clone());
    let indexes = Indexes::new(memory - memory / OTHER_MEMORY);
    let (time, sent, described, guests) = Default::default();
    let mut server = Server { socket, time, indexes, sent, described, guests };
    server.send(&Response::Ready, None)?;
    let mut packet = vec![0; sys::PACKET];
    loop {
        let (length, fds) = match sys::receive(server.socket.as_fd(), &mut packet, true) {
            Ok((0, _)) => return Ok(()),
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let order = packet.get(..length).and_then(Order::decode).ok_or(io::ErrorKind::InvalidData)?;
        server.time = Duration::from_millis(order.time).min(MAX_TIME);
        server.indexes.servers().choose(&order.servers, server.time);
        sys::set_alarm(Some(alarm(server.time)));
        let why = server.handle(order.client, order.request, fds)?;
        sys::set_alarm(None);
        server.send(&Response::End(why), None)?;
    }
}

impl Server {
    fn send(&self, response: &Response, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        sys::send(self.socket.as_fd(), &response.encode(), fd.as_slice(), true)
    }

    /// Handles a request. Returns why if the request failed.
    fn handle(&mut self, client: u64, request: Request, fds: Vec<OwnedFd>) -> io::Result<Option<Failure>> {
        let mut fds = fds.into_iter();
        match request {
            Request::Identities(pids) => {
                let all = pids.into_iter().map(observe::identity_of).collect();
                self.send(&Response::Identities(all), None)?;
            }
            Request::Process(pid) => self.process(client, pid)?,
            Request::Forget { closed, without_path } => {
                self.sent.remove(&client);
                self.indexes.close(&closed);
                self.indexes.close_and_keep(&without_path);
            }
            Request::Leave => {
                self.sent.remove(&client);
                self.indexes.drop_files(|number| u64::from(files::table_of(number)) == client);
            }
            Request::Symbols { file, raw, offsets } => {
                let (handle, root) = match self.descriptors(&file, &mut fds) {
                    Ok(both) => both,
                    Err(why) => return Ok(Some(why)),
                };
                match self.indexes.symbols(&file, handle, root, raw, &offsets) {
                    Ok(found) => self.symbols(found)?,
                    Err(why) => return Ok(Some(why)),
                }
            }
            Request::Functions { file, running, query } => {
                let (handle, root) = match self.descriptors(&file, &mut fds) {
                    Ok(both) => both,
                    Err(why) => return Ok(Some(why)),
                };
                let mut out = Functions::new(self.socket.as_fd(), self.time);
                match self.indexes.functions(&file, handle, root, (&query, running.as_ref()), &mut out)? {
                    Ok(file) => {
                        out.flush()?;
                        self.send(&Response::FileFunctions(file), None)?;
                    }
                    Err(why) => return Ok(Some(why)),
                }
            }
            Request::Types { file, offset, query } => {
                let (handle, root) = match self.descriptors(&file, &mut fds) {
                    Ok(both) => both,
                    Err(why) => return Ok(Some(why)),
                };
                match self.indexes.types(&file, handle, root, (offset, &query)) {
                    Ok((answer, base)) => {
                        for part in wire::types::encode(&answer, base).chunks(wire::types::PART) {
                            self.send(&Response::Types(part.to_vec()), None)?;
                        }
                    }
                    Err(why) => return Ok(Some(why)),
                }
            }
            Request::Frames(file) => {
                let (handle, root) = match file.as_ref().map(|file| self.descriptors(file, &mut fds)) {
                    Some(Ok(both)) => both,
                    Some(Err(why)) => return Ok(Some(why)),
                    None => (None, None),
                };
                match self.indexes.frames(file.as_ref(), handle, root) {
                    Ok(found) => self.frames(found)?,
                    Err(why) => return Ok(Some(why)),
                }
            }
            Request::ImageFrames(image) => match self.indexes.image_frames(image) {
                Ok(found) => self.frames(found)?,
                Err(why) => return Ok(Some(why)),
            },
            Request::Sites(file) => {
                let (handle, root) = match self.descriptors(&file, &mut fds) {
                    Ok(both) => both,
                    Err(why) => return Ok(Some(why)),
                };
                match self.indexes.sites(&file, handle, root) {
                    Ok(found) => self.sites(found)?,
                    Err(why) => return Ok(Some(why)),
                }
            }
            Request::Lines { file, raw, offsets } => {
                let (handle, root) = match self.descriptors(&file, &mut fds) {
                    Ok(both) => both,
                    Err(why) => return Ok(Some(why)),
                };
                match self.indexes.lines(&file, handle, root, raw, &offsets) {
                    Ok(found) => self.lines(found)?,
                    Err(why) => return Ok(Some(why)),
                }
            }
            Request::Describing { provider, first, pids } => {
                let found = self.described.processes(&provider, first, &pids);
                self.send(&Response::Describing(found), None)?;
            }
            Request::Vdso { raw, image, offsets } => match self.indexes.vdso(raw, image, &offsets) {
                Ok(found) => self.symbols(found)?,
                Err(why) => return Ok(Some(why)),
            },
            Request::Guest { pid, addrs } => match self.guests.symbols(pid, &addrs, self.time) {
                Ok(found) => self.symbols(found)?,
                Err(why) => return Ok(Some(why.into())),
            },
            Request::Jit { pid, start, addrs } => {
                let held = fds.next().map(Handle::from_fd);
                let (found, fresh) = self.indexes.jit_symbols(pid, start, held, &addrs);
                if let Some((pid, handle)) = fresh {
                    self.send(&Response::PerfMap(pid), Some(handle.fd()))?;
                }
                self.symbols(found)?;
            }
        }
        Ok(None)
    }

    /// The handle of a file and its root, which came with a request.
    fn descriptors(
        &mut self,
        file: &FileRef,
        fds: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<(Option<Handle>, Option<Root>), Failure> {
        let handle = file.handle.then(|| fds.next().map(Handle::from_fd)).flatten();
        let root = file.root.then(|| fds.next().map(Root::from_fd)).flatten();
        if (file.handle, file.root) != (handle.is_some(), root.is_some()) {
            // The kernel leaves out descriptors for which there is no number.
            self.indexes.close_oldest();
            return Err(index::temporary("too many open files"));
        }
        Ok((handle, root))
    }

    fn process(&mut self, client: u64, pid: u32) -> io::Result<()> {
        if self.sent.len() >= MAX_CLIENTS && !self.sent.contains_key(&client) {
            self.sent.clear();
        }
        let sent = self.sent.entry(client).or_default();
        let Some(process) = observe::process(pid, sent) else { return Ok(()) };
        let key = process.root.as_ref().map(|(key, _)| *key).unwrap_or_default();
        self.send(&Response::Process(process.identity, key), None)?;
        if let Some((key, root)) = &process.root
            && self.sent.entry(client).or_default().root(*key)
        {
            self.send(&Response::Root(*key), Some(root.fd()))?;
        }
        for (file, handle) in process.map.files.into_iter().zip(&process.files) {
            self.send(&Response::File(file), handle.as_ref().map(Handle::fd))?;
        }
        for response in wire::mapping_packets(&process.map.mappings) {
            self.send(&response, None)?;
        }
        if let Some((pid, handle)) = process.perf_map {
            self.send(&Response::PerfMap(pid), Some(handle.fd()))?;
        }
        Ok(())
    }

    fn frames(&self, found: Option<FrameTable>) -> io::Result<()> {
        let Some(FrameTable { table, loads, runtime }) = found else { return Ok(()) };
        let loads = loads.get(..loads.len().min(wire::MAX_NUMBERS / 4)).unwrap_or_default();
        self.send(&Response::CodeLoads(loads.to_vec()), None)?;
        if let Some(found) = runtime {
            self.send(&Response::Runtime(found), None)?;
        }
        for part in table.encode().chunks(wire::NAMES) {
            self.send(&Response::Frames(part.to_vec()), None)?;
        }
        Ok(())
    }

    fn sites(&self, found: DescribedProbes) -> io::Result<()> {
        let texts = found.providers.iter().flat_map(|p| [&p.provider, "\0", &p.text, "\0"]);
        let texts: Vec<u8> = texts.flat_map(str::bytes).collect();
        for part in texts.chunks(wire::types::PART) {
            self.send(&Response::Definitions(part.to_vec()), None)?;
        }
        let (mut part, mut bytes) = (Vec::new(), 0);
        for site in found.sites {
            let size = wire::usdt::size(&site);
            if bytes + size > wire::NAMES {
                self.send(&Response::Sites(std::mem::take(&mut part)), None)?;
                bytes = 0;
            }
            bytes += size;
            part.push(site);
        }
        self.send(&Response::Sites(part), None)
    }

    fn lines(&self, found: Vec<Vec<SourceFrame>>) -> io::Result<()> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for mut frames in found {
            let mut size: usize = frames.iter().map(wire::lines::size).sum();
            // The outermost one is the function itself.
            while size > wire::NAMES && frames.len() > 1 {
                size -= wire::lines::size(&frames.remove(0));
            }
            if bytes + size > wire::NAMES {
                self.send(&Response::Lines(std::mem::take(&mut part)), None)?;
                bytes = 0;
            }
            bytes += 4 + size;
            part.push(frames);
        }
        self.send(&Response::Lines(part), None)
    }

    fn symbols(&self, found: Vec<PlaceName>) -> io::Result<()> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for found in found {
            bytes += 16 + if let PlaceName::Symbol(_, name) = &found { name.len() } else { 0 };
            part.push(found);
            if bytes > wire::NAMES {
                self.send(&Response::Symbols(std::mem::take(&mut part)), None)?;
                bytes = 0;
            }
        }
        self.send(&Response::Symbols(part), None)
    }
}

/// A packet of functions is sent when this time has passed since the last one, so that the session
/// sees that the reader works.
const PACKET_INTERVAL: Duration = Duration::from_millis(100);

/// Sends functions in packets.
struct Functions<'a> {
    socket: BorrowedFd<'a>,
    time: Duration,
    part: Vec<Function>,
    bytes: usize,
    sent: Instant,
}

impl<'a> Functions<'a> {
    fn new(socket: BorrowedFd<'a>, time: Duration) -> Functions<'a> {
        Functions { socket, time, part: Vec::new(), bytes: 0, sent: Instant::now() }
    }

    fn send(&mut self, response: &Response) -> io::Result<()> {
        sys::send(self.socket, &response.encode(), &[], true)?;
        self.sent = Instant::now();
        sys::set_alarm(Some(alarm(self.time)));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.bytes = 0;
        let part = std::mem::take(&mut self.part);
        self.send(&Response::Functions(wire::list::Functions::of(&part)))
    }
}

impl functions::Output for Functions<'_> {
    type Error = io::Error;

    fn function(&mut self, function: Function, instructions: Option<Instructions>) -> io::Result<()> {
        let size = wire::functions::size(&function);
        if self.bytes + size > wire::NAMES && !self.part.is_empty() {
            self.flush()?;
        }
        self.bytes += size;
        self.part.push(function);
        if let Some(Instructions(all)) = instructions {
            self.flush()?;
            for part in all.chunks(INSTRUCTIONS) {
                self.send(&Response::Instructions(Instructions(part.to_vec())))?;
            }
        }
        self.pause()
    }

    fn pause(&mut self) -> io::Result<()> {
        if self.sent.elapsed() > PACKET_INTERVAL { self.flush() } else { Ok(()) }
    }
}
