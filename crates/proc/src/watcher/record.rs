//! Records of perf's side-band: what the kernel reports about processes (linux/perf_event.h).
//!
//! ```text
//!  +0  u32 kind   u16 misc   u16 size    the header; size includes it
//!  +8  fields of the kind, strings padded with NUL to a multiple of 8
//!  -8  u64 time                          the event's clock (sample_id_all with PERF_SAMPLE_TIME only)
//! ```
//!
//! The kernel writes the records, but names and paths in them are chosen by processes. The parser
//! accepts any bytes: what is not a whole record of a known kind is [`Event::Other`] or rejected.

/// The bytes of a build id. The kernel reports at most 20.
pub const BUILD_ID: usize = 20;

/// The build id of an ELF file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BuildId {
    length: u8,
    bytes: [u8; BUILD_ID],
}

impl BuildId {
    /// A build id of 1 to 20 bytes.
    pub fn new(id: &[u8]) -> Option<BuildId> {
        let mut bytes = [0; BUILD_ID];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        (!id.is_empty()).then_some(BuildId { length: id.len() as u8, bytes })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl std::fmt::Debug for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// How a record identifies a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// The file's build id.
    BuildId(BuildId),
    /// Device (major, minor) and inode, where the kernel could not read a build id. All zero for
    /// memory without a file.
    Inode((u32, u32), u64),
}

/// Kinds of namespaces, in the order of the record's list.
pub const NAMESPACES: [&str; 7] = ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"];

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process or thread was created.
    Fork {
        /// The new process or thread.
        pid: u32,
        /// The new thread.
        tid: u32,
        /// Its parent, or the same process for a thread.
        ppid: u32,
    },
    /// A thread ended.
    Exit {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread has a new name.
    Comm {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// By an `exec`: the process has a new program.
        exec: bool,
        /// The name.
        name: Vec<u8>,
    },
    /// Executable memory was mapped.
    Map {
        /// The process.
        pid: u32,
        /// First address.
        start: u64,
        /// Address after the last one.
        end: u64,
        /// File offset of `start`.
        offset: u64,
        /// The file.
        file: FileIdentity,
        /// Its path from the process's root; `//anon` or a name in brackets for other memory.
        path: Vec<u8>,
    },
    /// The ring was full, and so many records are missing before this one.
    Lost(u64),
    /// A record of another kind.
    Other,
}

impl Event {
    /// The process that it is about.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Event::Fork { pid, .. }
            | Event::Exit { pid, .. }
            | Event::Comm { pid, .. }
            | Event::Map { pid, .. } => Some(*pid),
            Event::Lost(_) | Event::Other => None,
        }
    }
}

/// A record: the event and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds of the event's clock.
    pub time: u64,
    /// What happened.
    pub event: Event,
}

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;

/// The COMM record is an exec's.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// The MMAP2 record has a build id and no inode.
const MISC_BUILD_ID: u16 = 1 << 14;

/// Bytes of the header.
const HEADER: usize = 8;

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    /// The rest up to the first NUL.
    fn string(&mut self) -> Vec<u8> {
        self.0.split(|b| *b == 0).next().unwrap_or_default().to_vec()
    }
}

/// Takes the first record of a buffer. Returns the record and the bytes after it; `None` if the
/// buffer does not start with a whole record. A record whose fields are malformed is
/// [`Event::Other`].
pub fn parse(buffer: &[u8]) -> Option<(Record, &[u8])> {
    let mut header = Fields(buffer);
    let (kind, misc, size) = (header.u32()?, header.u16()?, header.u16()?);
    let (record, rest) = buffer.split_at_checked(usize::from(size))?;
    let body = record.get(HEADER..)?;
    let Some((fields, time)) = body.split_last_chunk::<8>() else {
        return Some((Record { time: 0, event: Event::Other }, rest));
    };
    let time = u64::from_ne_bytes(*time);
    let event = event(kind, misc, Fields(fields)).unwrap_or(Event::Other);
    Some((Record { time, event }, rest))
}

fn event(kind: u32, misc: u16, mut f: Fields<'_>) -> Option<Event> {
    Some(match kind {
        FORK => {
            let (pid, ppid, tid) = (f.u32()?, f.u32()?, f.u32()?);
            Event::Fork { pid, tid, ppid }
        }
        EXIT => {
            let (pid, _parent, tid) = (f.u32()?, f.u32()?, f.u32()?);
            Event::Exit { pid, tid }
        }
        COMM => {
            let exec = misc & MISC_COMM_EXEC != 0;
            Event::Comm { pid: f.u32()?, tid: f.u32()?, exec, name: f.string() }
        }
        MMAP2 => {
            let (pid, _tid) = (f.u32()?, f.u32()?);
            let (start, length, offset) = (f.u64()?, f.u64()?, f.u64()?);
            let mut identity = Fields(f.take(24)?);
            let file = if misc & MISC_BUILD_ID != 0 {
                let length = usize::from(*identity.take(4)?.first()?);
                FileIdentity::BuildId(BuildId::new(identity.take(BUILD_ID)?.get(..length)?)?)
            } else {
                FileIdentity::Inode((identity.u32()?, identity.u32()?), identity.u64()?)
            };
            f.take(8)?;
            let end = start.checked_add(length).filter(|end| *end > start)?;
            Event::Map { pid, start, end, offset, file, path: f.string() }
        }
        LOST => {
            let _id = f.u64()?;
            Event::Lost(f.u64()?)
        }
        _ => Event::Other,
    })
}

#[cfg(test)]
pub(crate) mod tests;
