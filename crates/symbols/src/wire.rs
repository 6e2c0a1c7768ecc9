//! The protocol between a session and its reader: packets, one request at a time.
//!
//! ```text
//!  session                                     reader
//!     │ ◄──────────────────────────────── Ready │   once
//!     │ Request (and descriptors) ────────────► │
//!     │ ◄─ Response (and a descriptor), repeated │
//!     │ ◄────────────────────────────────── End │
//! ```
//!
//! A packet is a kind (one byte) and its fields, in little-endian order. A list is preceded by its
//! length. Both sides validate all input: the reader parses files of hostile programs, so the
//! session does not trust it either. A packet with bytes after its last field is malformed.
//! A request is preceded by what belongs to its client ([`Order`]): several share a reader.

mod codec;
pub(crate) mod functions;
pub(crate) mod lines;
pub(crate) mod list;
mod mappings;
pub(crate) mod types;
pub(crate) mod usdt;

use std::time::Duration;

use debuginfo::SourceFrame;
use files::open::RootKey;
use proc::maps::{Backing, MappedFile, Mapping};
use runtimes::{Instance, Runtime};

use crate::frames::CodeLoad;
use crate::functions::FunctionQuery;
use crate::usdt::ProbeSite;
use codec::{Reader, Writer, decode_all};
use functions::{Instructions, Running};
use list::{FileFunctions, Functions};

pub(crate) use codec::MAX_NAME;
pub(crate) use mappings::{add_mappings, mapping_packets};

/// Identifies the program that runs under a pid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Start time of the process in clock ticks since boot.
    pub(crate) start: u64,
    /// Start of the stack, which each `exec` randomizes; 0 if not readable.
    pub(crate) stack: u64,
    /// Device and inode of the executable; 0 if not readable.
    pub(crate) exe: (u32, u32, u64),
}

/// The file of a symbol request. The session sends the file's handle and root as descriptors, if it
/// holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRef {
    /// The session's number of the file.
    pub(crate) number: u64,
    /// The inode; 0 if only the build id is known.
    pub(crate) inode: u64,
    /// The build id that the file must have; empty if it is not known.
    pub(crate) build_id: Vec<u8>,
    pub(crate) path: Vec<u8>,
    /// Whether the packet carries the file's handle, and its root.
    pub(crate) handle: bool,
    pub(crate) root: bool,
}

/// A response may take so many times the CPU time that is allowed.
pub(crate) const WAITS: u32 = 10;

/// How long a response may take for which this CPU time is allowed.
pub fn wait_for(work: Duration) -> Duration {
    work * WAITS
}

/// A request with what its client has chosen: a reader works for several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The client's number.
    pub(crate) client: u64,
    /// The CPU time that the client allows for the response, in milliseconds.
    pub(crate) time: u64,
    /// The servers that are asked for debug files, with blanks between.
    pub(crate) servers: String,
    pub(crate) request: Request,
}

impl Order {
    /// The packet of a request.
    pub(crate) fn encode(client: u64, time: u64, servers: &str, request: &Request) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(client);
        w.u64(time);
        w.bytes(servers.as_bytes());
        request.write(&mut w);
        w.0
    }

    pub(crate) fn decode(packet: &[u8]) -> Option<Order> {
        decode_all(packet, |r| {
            Some(Order { client: r.u64()?, time: r.u64()?, servers: r.text()?, request: Request::read(r)? })
        })
    }
}

/// A request of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The programs that run under these pids now.
    Identities(Vec<u32>),
    /// The address map and the mapped files of a process.
    Process(u32),
    /// The symbols at offsets of a file.
    Symbols { file: FileRef, raw: bool, offsets: Vec<u64> },
    /// The functions of a file.
    Functions { file: FileRef, running: Option<Running>, query: FunctionQuery },
    /// Types of a file, and the address in the file at which an offset of it is.
    Types { file: FileRef, offset: u64, query: debuginfo::Query },
    /// The probes that a file describes.
    Sites(FileRef),
    /// The functions and source lines at offsets of a file.
    Lines { file: FileRef, raw: bool, offsets: Vec<u64> },
    /// Which of these processes run a file that describes probes of a provider, which may be a
    /// glob. `first`: files may have changed since the last request.
    Describing { provider: String, first: bool, pids: Vec<u32> },
    /// The symbols at offsets from the start of the vdso: of an image that was read from the memory
    /// of a process, or, where that is empty, of the reader's own.
    Vdso { raw: bool, image: Vec<u8>, offsets: Vec<u64> },
    /// The table by which stacks are walked through a file; of the vdso without one.
    Frames(Option<FileRef>),
    /// The same of an image that was read from the memory of a process.
    ImageFrames(Vec<u8>),
    /// The symbols of JIT code at addresses of a process. The session sends the perf map, if it
    /// holds it.
    Jit { pid: u32, start: u64, addrs: Vec<u64> },
    /// The symbols at addresses of the kernel of the guest whose machine is a process.
    Guest { pid: u32, addrs: Vec<u64> },
    /// The session has closed files or roots: all are sent again. The files with these numbers are
    /// closed. Those in `closed` can be found by their paths; of the others, the names are kept in
    /// memory.
    Forget { closed: Vec<u64>, without_path: Vec<u64> },
    /// The client has ended. All that is known of its files is dropped.
    Leave,
}

impl Request {
    /// The file that the reader opens for it.
    pub(crate) fn file(&self) -> Option<&FileRef> {
        match self {
            Request::Symbols { file, .. }
            | Request::Functions { file, .. }
            | Request::Types { file, .. }
            | Request::Sites(file)
            | Request::Lines { file, .. }
            | Request::Frames(Some(file)) => Some(file),
            _ => None,
        }
    }
}

/// The result of a lookup: the offset in the symbol, and the symbol's name.
pub(crate) type Lookup = Option<(u64, String)>;

/// What is known of a place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceName {
    /// The bytes from the start of the symbol, and its name.
    Symbol(u64, String),
    /// No symbol contains it. The address in the file, as its headers have it.
    Unnamed(Option<u64>),
}

impl From<Lookup> for PlaceName {
    fn from(found: Lookup) -> PlaceName {
        found.map_or(PlaceName::Unnamed(None), |(into, name)| PlaceName::Symbol(into, name))
    }
}

/// A packet of the reader's response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Response {
    /// The reader is ready.
    Ready,
    /// The program of each pid. `None`: no such process.
    Identities(Vec<Option<Identity>>),
    /// The process exists: its identity and its root.
    Process(Identity, RootKey),
    /// A root that was not sent before, with its descriptor.
    Root(RootKey),
    /// The next mapped file, with a handle if it was not sent before and can be opened.
    File(MappedFile),
    /// The next mappings. Files are numbered in the order in which they were sent.
    Mappings(Vec<Mapping>),
    /// The pid in the name of the process's perf map, with the map's handle.
    PerfMap(u32),
    /// The next symbols, in the order of the request.
    Symbols(Vec<PlaceName>),
    /// The next functions. Their instructions follow, so a function with instructions is the last
    /// one of its packet.
    Functions(Functions),
    /// The next instructions of the last function.
    Instructions(Instructions),
    /// What is known of the file whose functions were sent.
    FileFunctions(FileFunctions),
    /// The next bytes of an answer about types.
    Types(Vec<u8>),
    /// Where the code is of the file whose frames were asked for.
    CodeLoads(Vec<CodeLoad>),
    /// The language runtime in it.
    Runtime(Instance),
    /// The next bytes of its table.
    Frames(Vec<u8>),
    /// The next sites of probes.
    Sites(Vec<ProbeSite>),
    /// The next bytes of the definitions of providers: name NUL text NUL.
    Definitions(Vec<u8>),
    /// The functions and lines at the next offsets, in the order of the request.
    Lines(Vec<Vec<SourceFrame>>),
    /// Those of the processes.
    Describing(Vec<u32>),
    /// The end of the response, and why if the request failed.
    End(Option<Failure>),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) why: String,
    /// The reader lacked something, and the same request may succeed later.
    pub(crate) is_temporary: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure { why, is_temporary: false }
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Failure {
        why.to_owned().into()
    }
}

/// Maximum number of integers in one packet.
pub(crate) const MAX_NUMBERS: usize = 4096;

/// A packet of symbols is sent when its names exceed this many bytes.
pub(crate) const NAMES: usize = crate::sys::PACKET - 2 * MAX_NAME;

impl Writer {
    fn identity(&mut self, i: &Identity) {
        self.u64(i.start);
        self.u64(i.stack);
        self.u32(i.exe.0);
        self.u32(i.exe.1);
        self.u64(i.exe.2);
    }
    fn file_ref(&mut self, file: &FileRef) {
        self.u64(file.number);
        self.u64(file.inode);
        self.bytes(&file.build_id);
        self.bytes(&file.path);
        self.u8(file.handle.into());
        self.u8(file.root.into());
    }
    fn root(&mut self, r: &RootKey) {
        self.u64(r.mount);
        self.u32(r.dev.0);
        self.u32(r.dev.1);
        self.u64(r.inode);
    }
}

impl Reader<'_> {
    fn identity(&mut self) -> Option<Identity> {
        let (start, stack) = (self.u64()?, self.u64()?);
        Some(Identity { start, stack, exe: (self.u32()?, self.u32()?, self.u64()?) })
    }
    fn file_ref(&mut self) -> Option<FileRef> {
        Some(FileRef {
            number: self.u64()?,
            inode: self.u64()?,
            build_id: self.bytes()?.into(),
            path: self.bytes()?.into(),
            handle: self.flag()?,
            root: self.flag()?,
        })
    }
    fn root(&mut self) -> Option<RootKey> {
        Some(RootKey { mount: self.u64()?, dev: (self.u32()?, self.u32()?), inode: self.u64()? })
    }
}

impl Request {
    fn write(&self, w: &mut Writer) {
        match self {
            Request::Identities(pids) => {
                w.u8(1);
                w.list(pids, |w, pid| w.u32(*pid));
            }
            Request::Process(pid) => {
                w.u8(2);
                w.u32(*pid);
            }
            Request::Symbols { file, raw, offsets } => {
                w.u8(3);
                w.file_ref(file);
                w.u8((*raw).into());
                w.numbers(offsets);
            }
            Request::Vdso { raw, image, offsets } => {
                w.u8(4);
                w.u8((*raw).into());
                w.bytes(image);
                w.numbers(offsets);
            }
            Request::Jit { pid, start, addrs } => {
                w.u8(5);
                w.u32(*pid);
                w.u64(*start);
                w.numbers(addrs);
            }
            Request::Functions { file, running, query } => {
                w.u8(7);
                w.file_ref(file);
                w.running(running.as_ref());
                w.query(query);
            }
            Request::Types { file, offset, query } => {
                w.u8(8);
                w.file_ref(file);
                w.u64(*offset);
                w.types_query(query);
            }
            Request::Frames(file) => {
                w.u8(9);
                w.list(file.as_slice(), Writer::file_ref);
            }
            Request::ImageFrames(image) => {
                w.u8(13);
                w.bytes(image);
            }
            Request::Sites(file) => {
                w.u8(10);
                w.file_ref(file);
            }
            Request::Lines { file, raw, offsets } => {
                w.u8(11);
                w.file_ref(file);
                w.u8((*raw).into());
                w.numbers(offsets);
            }
            Request::Describing { provider, first, pids } => {
                w.u8(12);
                w.bytes(provider.as_bytes());
                w.u8((*first).into());
                w.list(pids, |w, pid| w.u32(*pid));
            }
            Request::Forget { closed, without_path } => {
                w.u8(6);
                w.numbers(closed);
                w.numbers(without_path);
            }
            Request::Leave => w.u8(14),
            Request::Guest { pid, addrs } => {
                w.u8(15);
                w.u32(*pid);
                w.numbers(addrs);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn encode(&self) -> Vec<u8> {
        Order::encode(7, 2000, "https://x", self)
    }

    #[cfg(test)]
    pub(crate) fn decode(packet: &[u8]) -> Option<Request> {
        let order = Order::decode(packet)?;
        let is_right = (order.client, order.time, &*order.servers) == (7, 2000, "https://x");
        is_right.then_some(order.request)
    }

    fn read(r: &mut Reader<'_>) -> Option<Request> {
        Some(match r.u8()? {
            1 => Request::Identities(r.list(Reader::u32)?),
            2 => Request::Process(r.u32()?),
            3 => Request::Symbols { file: r.file_ref()?, raw: r.flag()?, offsets: r.numbers()? },
            4 => Request::Vdso { raw: r.flag()?, image: r.bytes()?.into(), offsets: r.numbers()? },
            5 => Request::Jit { pid: r.u32()?, start: r.u64()?, addrs: r.numbers()? },
            7 => Request::Functions { file: r.file_ref()?, running: r.running()?, query: r.query()? },
            8 => Request::Types { file: r.file_ref()?, offset: r.u64()?, query: r.types_query()? },
            9 => {
                let mut files = r.list(Reader::file_ref)?;
                let file = files.pop();
                files.is_empty().then_some(Request::Frames(file))?
            }
            10 => Request::Sites(r.file_ref()?),
            13 => Request::ImageFrames(r.bytes()?.into()),
            11 => Request::Lines { file: r.file_ref()?, raw: r.flag()?, offsets: r.numbers()? },
            12 => Request::Describing { provider: r.text()?, first: r.flag()?, pids: r.list(Reader::u32)? },
            6 => Request::Forget { closed: r.numbers()?, without_path: r.numbers()? },
            14 => Request::Leave,
            15 => Request::Guest { pid: r.u32()?, addrs: r.numbers()? },
            _ => return None,
        })
    }
}

impl Response {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Response::Ready => w.u8(1),
            Response::Identities(all) => {
                w.u8(2);
                w.list(all, |w, identity| match identity {
                    None => w.u8(0),
                    Some(identity) => {
                        w.u8(1);
                        w.identity(identity);
                    }
                });
            }
            Response::Process(identity, root) => {
                w.u8(3);
                w.identity(identity);
                w.root(root);
            }
            Response::Root(root) => {
                w.u8(4);
                w.root(root);
            }
            Response::File(file) => {
                w.u8(5);
                w.u32(file.dev.0);
                w.u32(file.dev.1);
                w.u64(file.inode);
                w.bytes(&file.path);
            }
            Response::Mappings(list) => {
                w.u8(6);
                w.list(list, |w, m| {
                    let (kind, file) = match m.backing {
                        Backing::File(file) => (0, file),
                        Backing::Vdso => (1, 0),
                        Backing::Anonymous => (2, 0),
                        Backing::Zeros(file) => (3, file),
                    };
                    w.u8(kind);
                    w.u32(file);
                    w.u64(m.start);
                    w.u64(m.end);
                    w.u64(m.offset);
                    w.u8(m.is_code.into());
                });
            }
            Response::PerfMap(pid) => {
                w.u8(7);
                w.u32(*pid);
            }
            Response::Symbols(list) => {
                w.u8(8);
                w.list(list, |w, found| match found {
                    PlaceName::Unnamed(None) => w.u8(0),
                    PlaceName::Symbol(delta, name) => {
                        w.u8(1);
                        w.u64(*delta);
                        w.bytes(name.as_bytes());
                    }
                    PlaceName::Unnamed(Some(address)) => {
                        w.u8(2);
                        w.u64(*address);
                    }
                });
            }
            Response::Functions(list) => {
                w.u8(10);
                list.encode(&mut w);
            }
            Response::Instructions(part) => {
                w.u8(11);
                w.bytes(&part.0);
            }
            Response::FileFunctions(file) => {
                w.u8(12);
                w.file(file);
            }
            Response::Types(part) => {
                w.u8(13);
                w.bytes(part);
            }
            Response::CodeLoads(list) => {
                w.u8(14);
                w.list(list, |w, load| {
                    [load.offset, load.size, load.addr].into_iter().for_each(|n| w.u64(n))
                });
            }
            Response::Runtime(Instance { runtime, state }) => {
                w.u8(20);
                w.u8(runtime.number());
                w.u64(*state);
            }
            Response::Frames(part) => {
                w.u8(15);
                w.bytes(part);
            }
            Response::Sites(list) => {
                w.u8(16);
                w.list(list, Writer::site);
            }
            Response::Definitions(part) => {
                w.u8(19);
                w.bytes(part);
            }
            Response::Lines(list) => {
                w.u8(17);
                w.list(list, |w, frames| w.list(frames, Writer::source_frame));
            }
            Response::Describing(pids) => {
                w.u8(18);
                w.list(pids, |w, pid| w.u32(*pid));
            }
            Response::End(why) => {
                w.u8(9);
                w.u8(why.is_some().into());
                w.u8(why.as_ref().is_some_and(|failure| failure.is_temporary).into());
                w.bytes(why.as_ref().map_or("", |failure| &failure.why).as_bytes());
            }
        }
        w.0
    }

    pub(crate) fn decode(packet: &[u8]) -> Option<Response> {
        decode_all(packet, |r| {
            Some(match r.u8()? {
                1 => Response::Ready,
                2 => Response::Identities(r.list(|r| match r.flag()? {
                    false => Some(None),
                    true => r.identity().map(Some),
                })?),
                3 => Response::Process(r.identity()?, r.root()?),
                4 => Response::Root(r.root()?),
                5 => Response::File(MappedFile {
                    dev: (r.u32()?, r.u32()?),
                    inode: r.u64()?,
                    path: r.bytes()?.into(),
                }),
                6 => Response::Mappings(r.list(|r| {
                    let (kind, file) = (r.u8()?, r.u32()?);
                    let backing = match kind {
                        0 => Backing::File(file),
                        1 => Backing::Vdso,
                        2 => Backing::Anonymous,
                        3 => Backing::Zeros(file),
                        _ => return None,
                    };
                    let (start, end, offset) = (r.u64()?, r.u64()?, r.u64()?);
                    let is_code = r.flag()?;
                    (start < end).then_some(Mapping { start, end, offset, backing, is_code })
                })?),
                7 => Response::PerfMap(r.u32()?),
                8 => Response::Symbols(r.list(|r| match r.u8()? {
                    0 => Some(PlaceName::Unnamed(None)),
                    1 => Some(PlaceName::Symbol(r.u64()?, r.text()?)),
                    2 => Some(PlaceName::Unnamed(Some(r.u64()?))),
                    _ => None,
                })?),
                9 => match (r.flag()?, r.flag()?, r.text()?) {
                    (true, is_temporary, why) => Response::End(Some(Failure { why, is_temporary })),
                    (false, ..) => Response::End(None),
                },
                10 => Response::Functions(Functions::decode(r)?),
                11 => Response::Instructions(Instructions(r.bytes()?.into())),
                12 => Response::FileFunctions(r.file()?),
                13 => Response::Types(r.bytes()?.into()),
                14 => Response::CodeLoads(
                    r.list(|r| Some(CodeLoad { offset: r.u64()?, size: r.u64()?, addr: r.u64()? }))?,
                ),
                15 => Response::Frames(r.bytes()?.into()),
                16 => Response::Sites(r.list(Reader::site)?),
                17 => Response::Lines(r.list(|r| r.list(Reader::source_frame))?),
                18 => Response::Describing(r.list(Reader::u32)?),
                19 => Response::Definitions(r.bytes()?.into()),
                20 => Response::Runtime(Instance { runtime: Runtime::of_number(r.u8()?)?, state: r.u64()? }),
                _ => return None,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let (build_id, path) = (vec![1, 0xab], b"/usr/bin/\xffx".into());
        let file = FileRef { number: 7, inode: 9, build_id, path, handle: true, root: false };
        vec![
            Request::Identities(vec![1, u32::MAX]),
            Request::Process(12),
            Request::Symbols { file: file.clone(), raw: true, offsets: vec![0, u64::MAX] },
            Request::Lines { file: file.clone(), raw: false, offsets: vec![7] },
            Request::Frames(None),
            Request::ImageFrames(vec![1, 2]),
            Request::Frames(Some(file)),
            Request::Describing { provider: "postgresql*".into(), first: true, pids: vec![1, u32::MAX] },
            Request::Vdso { raw: false, image: vec![3], offsets: vec![] },
            Request::Jit { pid: 3, start: 4, addrs: vec![5] },
            Request::Guest { pid: 6, addrs: vec![u64::MAX] },
            Request::Forget { closed: vec![7, 1 << 40], without_path: vec![9] },
            Request::Leave,
        ]
    }

    fn responses() -> Vec<Response> {
        let identity = Identity { start: 1, stack: 2, exe: (3, 4, 5) };
        let root = RootKey { mount: 6, dev: (7, 8), inode: 9 };
        let named = SourceFrame { function: Some("f".into()), file: Some("f.c".into()), line: Some(7) };
        let mapping =
            |backing| Mapping { start: 0x1000, end: 0x2000, offset: 0x3000, backing, is_code: true };
        vec![
            Response::Ready,
            Response::Identities(vec![None, Some(identity)]),
            Response::Process(identity, root),
            Response::Root(root),
            Response::File(MappedFile { dev: (1, 2), inode: 3, path: b"/x".into() }),
            Response::Mappings(
                [Backing::File(5), Backing::Vdso, Backing::Anonymous, Backing::Zeros(9)].map(mapping).into(),
            ),
            Response::PerfMap(1),
            Response::CodeLoads(vec![CodeLoad { offset: 1, size: 2, addr: u64::MAX }]),
            Response::Frames(vec![1, 2, 3]),
            Response::Runtime(Instance { runtime: Runtime::ALL[0], state: u64::MAX }),
            Response::Lines(vec![Vec::new(), vec![SourceFrame::default(), named]]),
            Response::Describing(vec![1, u32::MAX]),
            Response::Symbols(vec![
                PlaceName::Unnamed(None),
                PlaceName::Symbol(5, "name".into()),
                PlaceName::Unnamed(Some(u64::MAX)),
            ]),
            Response::End(None),
            Response::End(Some("why".into())),
            Response::End(Some(Failure { why: "busy".into(), is_temporary: true })),
        ]
    }

    #[test]
    fn packets_decode_to_what_was_encoded() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for response in responses() {
            assert_eq!(Response::decode(&response.encode()), Some(response));
        }
    }

    #[test]
    fn a_damaged_packet_is_rejected_without_allocating_its_claimed_size() {
        let requests = requests().iter().map(|q| (q.encode(), true)).collect::<Vec<_>>();
        let responses = responses().iter().map(|a| (a.encode(), false)).collect::<Vec<_>>();
        for (packet, is_request) in requests.into_iter().chain(responses) {
            let decodes = |packet: &[u8]| {
                let (request, response) =
                    (Order::decode(packet).is_some(), Response::decode(packet).is_some());
                if is_request { request } else { response }
            };
            for cut in 0..packet.len() {
                assert!(!decodes(&packet[..cut]));
            }
            assert!(!decodes(&[&packet[..], &[0]].concat()));
            for at in 0..packet.len() {
                for bits in [0xff, 0x80, 1] {
                    let mut damaged = packet.clone();
                    damaged[at] ^= bits;
                    // Either result is right, but a list of four billion items must not be
                    // allocated.
                    decodes(&damaged);
                }
            }
        }
        assert_eq!(Response::decode(&[]), None);
        assert_eq!(Response::decode(&[6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
