//! The memory in a core file: its segments, and why a file is none.
//!
//! Only what the kernel writes is read: a 64-bit, little-endian ELF file of type `ET_CORE` with a
//! table of segments. The table may have as many entries as the file has bytes for; it is read in
//! pieces, and nothing is allocated by its length.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at an offset.
pub trait ReadAt {
    /// Reads what is there, at most the buffer's length; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), rest.get(..length)) {
            to.copy_from_slice(from);
        }
        Ok(length)
    }
}

/// Why a core file has no events of a session.
#[derive(Debug)]
pub enum CoreError {
    /// It could not be read.
    Io(io::Error),
    /// It is compressed, by this program.
    Compressed(&'static str),
    /// It is no core file, but this.
    NotCore(&'static str),
    /// It is a core file of a machine that this version does not know.
    Foreign,
    /// It contradicts itself.
    Malformed(&'static str),
    /// It ends before the memory with the events, or in it: that has this many bytes, of which so
    /// many are there.
    Truncated(u64, u64),
    /// It ends before some of its segments, and what is there has no such memory.
    Incomplete,
    /// There is no memory with events in it.
    NoMemory,
    /// There is, and nothing was written to it.
    NotWritten,
    /// There is, and it is damaged.
    Damaged,
}

impl CoreError {
    /// Its tag, as errors of programs have one.
    pub fn tag(&self) -> &'static str {
        match self {
            CoreError::Io(_) => "D_CORE_READ",
            CoreError::Compressed(_) => "D_CORE_COMPRESSED",
            CoreError::NotCore(_) => "D_CORE_FORMAT",
            CoreError::Foreign => "D_CORE_MACHINE",
            CoreError::Malformed(_) => "D_CORE_MALFORMED",
            CoreError::Truncated(..) | CoreError::Incomplete => "D_CORE_TRUNCATED",
            CoreError::NoMemory => "D_CORE_NONE",
            CoreError::NotWritten => "D_CORE_EMPTY",
            CoreError::Damaged => "D_CORE_DAMAGED",
        }
    }
}

impl fmt::Display for CoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoreError::Io(e) => f.write_str(&diagnostics::system_text(e)),
            CoreError::Compressed(by) => write!(
                f,
                "it is compressed: decompress it first ({by} -d; systemd's: coredumpctl dump PID -o core)"
            ),
            CoreError::NotCore(what) => write!(f, "it is no core file: {what}"),
            CoreError::Foreign => f.write_str("it is the core file of a machine with other words or byte order"),
            CoreError::Malformed(what) => write!(f, "it is malformed: {what}"),
            CoreError::Truncated(length, there) => {
                write!(f, "it is truncated: of {length} bytes of records it has {there}")?;
                f.write_str(" (ulimit -c, a full disk)")
            }
            CoreError::Incomplete => {
                f.write_str("it is truncated, and what is there has no records (ulimit -c, a full disk)")
            }
            CoreError::NoMemory => f.write_str(
                "it has no records of a session: the process was no target of a session with -x postmortem=SIZE, or its \
                 coredump_filter left out private memory",
            ),
            CoreError::NotWritten => f.write_str(
                "it has the memory for records, and none were written: the core file was not made by a signal that a session \
                 held (gcore, a child of the target, a session that had ended)",
            ),
            CoreError::Damaged => f.write_str("the records in it are damaged: their checksum is wrong"),
        }
    }
}

impl std::error::Error for CoreError {}

impl From<io::Error> for CoreError {
    fn from(e: io::Error) -> Self {
        CoreError::Io(e)
    }
}

/// What is at the begin of files that are taken for core files: the bytes, and the program that
/// decompresses them.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
];

const ET_CORE: u16 = 4;
const PT_LOAD: u32 = 1;
/// So many segments that their number is elsewhere.
const PN_XNUM: u16 = 0xffff;
const FILE_HEAD: usize = 64;
const SEGMENT: usize = 56;

/// Reads as much as there is.
pub(crate) fn read_most(from: &dyn ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let Some(at) = offset.checked_add(done as u64) else { break };
        match from.read_at(rest, at) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // A seek to there is refused.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u16::from_le_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Memory of the process in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it is in the file.
    pub(crate) offset: u64,
    /// Its bytes in the file.
    pub(crate) length: u64,
}

/// Calls a function for each segment of memory that is in the file and not executable.
pub(crate) fn segments(
    from: &dyn ReadAt,
    mut each: impl FnMut(Segment) -> Result<(), CoreError>,
) -> Result<(), CoreError> {
    let mut head = [0; FILE_HEAD];
    let length = read_most(from, &mut head, 0)?;
    let there = head.get(..length).unwrap_or_default();
    if let Some((_, by)) = COMPRESSED.iter().find(|(magic, _)| there.starts_with(magic)) {
        return Err(CoreError::Compressed(by));
    }
    if !there.starts_with(b"\x7fELF") {
        return Err(CoreError::NotCore(if length == 0 { "it is empty" } else { "it is no ELF file" }));
    }
    // EI_CLASS, EI_DATA.
    if there.get(4..6) != Some(&[2, 1]) {
        return Err(CoreError::Foreign);
    }
    if length < FILE_HEAD {
        return Err(CoreError::Incomplete);
    }
    if u16_at(&head, 16) != ET_CORE {
        return Err(CoreError::NotCore("it is a program, a library or an object file"));
    }
    let (table, sections) = (u64_at(&head, 32), u64_at(&head, 40));
    let (size, mut count) = (u16_at(&head, 54), u32::from(u16_at(&head, 56)));
    if usize::from(size) != SEGMENT {
        return Err(CoreError::Malformed("the size of an entry of its table of segments is wrong"));
    }
    if count == u32::from(PN_XNUM) {
        let mut section = [0; FILE_HEAD];
        if read_most(from, &mut section, sections)? < FILE_HEAD {
            return Err(CoreError::Incomplete);
        }
        // `sh_info` of the first section.
        count = u32_at(&section, 44);
    }
    let mut entry = [0; SEGMENT * 64];
    let mut at = table;
    let mut left = count as usize;
    while left > 0 {
        let wanted = left.min(64) * SEGMENT;
        let bytes = entry.get_mut(..wanted).unwrap_or_default();
        let length = read_most(from, bytes, at)?;
        for bytes in entry.get(..length).unwrap_or_default().chunks_exact(SEGMENT) {
            let (kind, flags) = (u32_at(bytes, 0), u32_at(bytes, 4));
            let segment = Segment { offset: u64_at(bytes, 8), length: u64_at(bytes, 32) };
            // PF_X: no code, whose files have the bytes of a head too.
            let is_data = kind == PT_LOAD && flags & 1 == 0 && segment.length > 0;
            if is_data {
                each(segment)?;
            }
        }
        if length < wanted {
            return Err(CoreError::Incomplete);
        }
        left -= wanted / SEGMENT;
        at = at.checked_add(wanted as u64).ok_or(CoreError::Malformed("where its table of segments is"))?;
    }
    Ok(())
}
