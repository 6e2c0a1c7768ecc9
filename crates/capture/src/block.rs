//! The frames of blocks.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// The first bytes of a file. As in PNG: the first byte is no text, and a transfer that changes
/// line ends destroys it.
pub const MAGIC: [u8; 8] = *b"\x89DTCP\r\n\x1a";

/// The version of the layout.
pub const VERSION: u32 = 2;

/// The most bytes of a block, unpacked and as it is stored.
pub const BLOCK_MAX: usize = 1 << 20;

/// The first bytes of a block: what compressed data and text rarely have.
pub(crate) const SYNC: [u8; 8] = *b"\xf5DTblk\x1a\xfa";

/// Bytes of a block's head.
pub(crate) const HEAD: usize = 48;

/// How hard the contents are packed: the level at which packing costs a third of what making a
/// firing costs.
const LEVEL: u8 = 1;

pub(crate) mod kind {
    pub(crate) const HEAD: u8 = 1;
    pub(crate) const MACHINE: u8 = 2;
    pub(crate) const FIRINGS: u8 = 3;
    pub(crate) const LOSS: u8 = 4;
    pub(crate) const END: u8 = 5;
    pub(crate) const SNAPSHOT: u8 = 6;
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u8,
    packed: bool,
    /// Bytes that follow.
    pub(crate) stored: usize,
    unpacked: usize,
    /// Firings.
    pub(crate) count: u32,
    /// Times of the first and the last firing.
    pub(crate) times: (u64, u64),
    sum: u32,
}

/// The bytes of a block.
pub(crate) fn block(kind: u8, contents: &[u8], count: u32, times: (u64, u64)) -> Vec<u8> {
    let packed = compress_to_vec(contents, LEVEL);
    let packs = packed.len() < contents.len();
    let stored = if packs { &packed[..] } else { contents };
    let mut out = Vec::with_capacity(HEAD + stored.len());
    out.extend(SYNC);
    out.extend([kind, u8::from(packs), 0, 0]);
    for number in [stored.len() as u32, contents.len() as u32, count] {
        out.extend(number.to_le_bytes());
    }
    out.extend(times.0.to_le_bytes());
    out.extend(times.1.to_le_bytes());
    out.extend(crc32fast::hash(stored).to_le_bytes());
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out.extend(stored);
    out
}

/// A block of a kind with these contents, whatever they are: for tests of readers.
#[doc(hidden)]
pub fn unchecked_block(kind: u8, contents: &[u8]) -> Vec<u8> {
    block(kind, contents, 0, (0, 0))
}

impl Head {
    /// Reads the head of a block; `None` if these bytes are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Head> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if !bytes.starts_with(&SYNC) || crc32fast::hash(bytes.get(..HEAD - 4)?) != word(HEAD - 4)? {
            return None;
        }
        let packed = match *bytes.get(9)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let head = Head {
            kind: *bytes.get(8)?,
            packed,
            stored: word(12)? as usize,
            unpacked: word(16)? as usize,
            count: word(20)?,
            times: (long(24)?, long(32)?),
            sum: word(40)?,
        };
        let fits = head.stored <= BLOCK_MAX && head.unpacked <= BLOCK_MAX;
        (fits && (packed || head.stored == head.unpacked)).then_some(head)
    }

    /// The contents; `None` if they are damaged.
    pub(crate) fn contents(&self, stored: &[u8]) -> Option<Vec<u8>> {
        if stored.len() != self.stored || crc32fast::hash(stored) != self.sum {
            return None;
        }
        let contents = match self.packed {
            false => stored.to_vec(),
            true => decompress_to_vec_with_limit(stored, self.unpacked).ok()?,
        };
        (contents.len() == self.unpacked).then_some(contents)
    }
}
