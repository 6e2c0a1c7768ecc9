//! What is before the events in the memory of a process.
//!
//! ```text
//!   0  magic      16 bytes
//!  16  version    u32       1
//!  20  crc        u32       of the events
//!  24  size       u64       of the memory, with this head
//!  32  length     u64       of the events; 0: none were written
//!  40  kept       u64       events
//!  48  cut        u64       older events, which there was no space for
//!  56  pid        u32       the process, as the tracer saw it
//!  60  tid        u32       the thread that had the signal
//!  64  signal     u32       the signal
//!  68  zero       u32
//!  72  wall       u64       when they were written: nanoseconds since 1970
//!  80  zero       48 bytes
//! 128  the events, a stream of `events::Encoder`
//! ```
//!
//! Numbers are little-endian. The memory begins at a page, and so does the head in a core file's
//! segment. A head that says that nothing was written stands in it from the start: a core file that
//! was made otherwise (`gcore`, a process that was not held) can then be told from one without the
//! memory.

/// The first bytes: no text, and unlikely in any program but this one, which has them in its code
/// and never at the begin of a page of memory without a file.
const MAGIC: [u8; 16] = *b"\x89DTrace\x00postmort";
const VERSION: u32 = 1;

/// Bytes of the head.
pub const HEAD: usize = 128;

/// What the memory says of its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the memory, with the head.
    pub size: u64,
    /// Bytes of the events; 0 if none were written.
    pub length: u64,
    /// The checksum of the events.
    pub crc: u32,
    /// The number of records and other events that are there.
    pub kept: u64,
    /// The number of older ones, for which there was no space.
    pub cut: u64,
    /// The process.
    pub pid: u32,
    /// The thread that had the signal.
    pub tid: u32,
    /// The signal.
    pub signal: u32,
    /// When the events were written, in nanoseconds since 1970.
    pub wall: u64,
}

/// The head of memory to which nothing was written.
pub fn blank(size: u64) -> [u8; HEAD] {
    Head { size, ..Head::default() }.bytes()
}

impl Head {
    /// The bytes of the memory's begin.
    pub fn bytes(&self) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        let mut at = out.iter_mut();
        let mut put = |bytes: &[u8]| at.by_ref().zip(bytes).for_each(|(to, from)| *to = *from);
        // A `zip` takes one element too many of its first part where the second is shorter: none
        // is.
        let all = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &self.crc.to_le_bytes(),
            &self.size.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.kept.to_le_bytes(),
            &self.cut.to_le_bytes(),
            &self.pid.to_le_bytes(),
            &self.tid.to_le_bytes(),
            &self.signal.to_le_bytes(),
            &[0; 4],
            &self.wall.to_le_bytes(),
        ]
        .concat();
        put(&all);
        out
    }

    /// Reads a head. `None`: it is none, or one of another version.
    pub(crate) fn read(bytes: &[u8]) -> Option<Head> {
        let head = bytes.get(..HEAD)?;
        let u32_at = |at: usize| head.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        let u64_at = |at: usize| head.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        if !head.starts_with(&MAGIC) || u32_at(16)? != VERSION {
            return None;
        }
        Some(Head {
            crc: u32_at(20)?,
            size: u64_at(24)?,
            length: u64_at(32)?,
            kept: u64_at(40)?,
            cut: u64_at(48)?,
            pid: u32_at(56)?,
            tid: u32_at(60)?,
            signal: u32_at(64)?,
            wall: u64_at(72)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Head { size: 1, length: 2, crc: 3, kept: 4, cut: 5, pid: 6, tid: 7, signal: 8, wall: 9 };
        assert_eq!(Head::read(&head.bytes()), Some(head));
        assert_eq!(Head::read(&blank(4096)), Some(Head { size: 4096, ..Head::default() }));
        assert_eq!(Head::read(&[0; HEAD]), None);
        assert_eq!(Head::read(&head.bytes()[..HEAD - 1]), None);
    }
}
