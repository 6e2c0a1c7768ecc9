//! Reads captures, also damaged ones.

use std::fmt;
use std::io::{self, Read};

use crate::block::{HEAD, Head as BlockHead, MAGIC, SYNC, VERSION, kind};
use crate::model::{Firing, Head, Loss, Snapshot};
use crate::wire::{self, Bytes, Table};

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// Reading it failed.
    Input(io::Error),
    /// It is no capture.
    NoCapture,
    /// It is of a version that this reader does not know.
    Version(u32),
    /// What all else depends on is missing or damaged: the part.
    Damaged(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input(e) => e.fmt(f),
            Error::NoCapture => f.write_str("this is no capture: --capture writes one"),
            Error::Version(n) => {
                write!(f, "a capture of version {n}, and this dtrace reads version {VERSION}")
            }
            Error::Damaged(part) => write!(f, "the capture is damaged: {part} cannot be read"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Input(e)
    }
}

/// Something in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A firing.
    Firing(Firing),
    /// Something is missing.
    Loss(Loss),
    /// So many bytes are damaged, and were skipped.
    Damage(u64),
    /// The capture is a snapshot.
    Snapshot(Snapshot),
    /// The capture ended, with the exit status of the session. A capture without it was cut short.
    End(i32),
}

/// Reads a capture from a file or a stream.
pub struct Reader<R: Read> {
    input: R,
    head: Head,
    machine: Vec<u8>,
    /// What was read, and how much of it was used.
    ahead: Vec<u8>,
    used: usize,
    /// Items of the block that was read last, the next one last.
    items: Vec<Item>,
    skipped: u64,
    /// Bytes of all blocks whose contents were damaged, and bytes that were skipped for them.
    distrusted: (u64, u64),
}

/// How often a byte is looked at in blocks that are damaged, besides so many bytes: heads that
/// claim the same bytes again and again are passed over with what they claim.
const LOOKS: u64 = 4;
const FREE_LOOKS: u64 = 16 << 20;

impl<R: Read> Reader<R> {
    /// Reads what was captured, and on which machine: of its record at most `limit` bytes.
    pub fn open(mut input: R, limit: usize) -> Result<Reader<R>, Error> {
        let mut first = [0; 12];
        read_all(&mut input, &mut first)?.then_some(()).ok_or(Error::NoCapture)?;
        let (magic, version) = first.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Error::NoCapture);
        }
        let version = version.try_into().map_or(0, u32::from_le_bytes);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let (head, machine) = (Head::default(), Vec::new());
        let (ahead, used, items, skipped, distrusted) = (Vec::new(), 0, Vec::new(), 0, (0, 0));
        let mut reader = Reader { input, head, machine, ahead, used, items, skipped, distrusted };
        let head = match reader.block()? {
            Some(Block { kind: kind::HEAD, contents, .. }) => wire::head(&mut Bytes(&contents)),
            _ => None,
        };
        reader.head = head.filter(|_| reader.skipped == 0).ok_or(Error::Damaged("what was captured"))?;
        let damaged = || Error::Damaged("the machine");
        let mut next = 0u32;
        loop {
            let Some(Block { kind: kind::MACHINE, contents, .. }) = reader.block()? else {
                return Err(damaged());
            };
            let (numbers, bytes) = contents.split_at_checked(8).ok_or_else(damaged)?;
            let word = |at: usize| -> Option<u32> {
                Some(u32::from_le_bytes(numbers.get(at..at + 4)?.try_into().ok()?))
            };
            let (at, parts) = (word(0).ok_or_else(damaged)?, word(4).ok_or_else(damaged)?);
            if at != next || reader.skipped > 0 || reader.machine.len() + bytes.len() > limit {
                return Err(damaged());
            }
            reader.machine.extend_from_slice(bytes);
            next += 1;
            if next >= parts {
                return Ok(reader);
            }
        }
    }

    /// What was captured.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The record of the machine.
    pub fn machine(&self) -> &[u8] {
        &self.machine
    }

    /// The next item; `None` at the end of the file.
    pub fn next_item(&mut self) -> Result<Option<Item>, Error> {
        loop {
            if let Some(item) = self.items.pop() {
                return Ok(Some(item));
            }
            let block = self.block()?;
            match block.as_ref().map(|block| items(block, &self.head)) {
                Some(Some(items)) => self.items = items,
                // The sums are right, so a writer has written it: another one than ours.
                Some(None) => self.skipped += block.map_or(0, |block| block.length),
                None if self.skipped == 0 => return Ok(None),
                None => {}
            }
            if self.skipped > 0 {
                return Ok(Some(Item::Damage(std::mem::take(&mut self.skipped))));
            }
        }
    }

    /// The next block that is whole. Counts what it skips.
    fn block(&mut self) -> Result<Option<Block>, Error> {
        loop {
            let begin = self.look(HEAD)?;
            if begin.len() < HEAD {
                let rest = begin.len();
                self.pass(rest);
                return Ok(None);
            }
            let Some(head) = BlockHead::read(begin) else {
                self.skip();
                continue;
            };
            let length = HEAD + head.stored;
            let stored = self.look(length)?.get(HEAD..length);
            match stored.and_then(|stored| head.contents(stored)) {
                Some(contents) => {
                    self.used += length;
                    return Ok(Some(Block { kind: head.kind, contents, length: length as u64 }));
                }
                None => self.skip_block(head.stored),
            }
        }
    }

    /// Reads until there are so many bytes that are not used, or the input ends.
    fn look(&mut self, bytes: usize) -> Result<&[u8], Error> {
        let missing = bytes.saturating_sub(self.ahead.len() - self.used) as u64;
        if missing > 0 {
            // No more is moved than is looked at.
            self.ahead.drain(..self.used);
            self.used = 0;
            self.input.by_ref().take(missing).read_to_end(&mut self.ahead)?;
        }
        Ok(self.unused())
    }

    fn unused(&self) -> &[u8] {
        self.ahead.get(self.used..).unwrap_or_default()
    }

    /// Skips bytes.
    fn pass(&mut self, bytes: usize) {
        let bytes = bytes.min(self.ahead.len() - self.used);
        self.skipped += bytes as u64;
        self.used += bytes;
    }

    /// Goes on behind the head of a block with so many bytes of damaged contents: the next block
    /// may begin within these, where some were lost.
    fn skip_block(&mut self, stored: usize) {
        let before = self.skipped;
        self.distrusted.0 += stored as u64;
        let is_hostile = self.distrusted.0 > FREE_LOOKS + LOOKS * self.distrusted.1;
        match is_hostile {
            true => self.pass(HEAD + stored),
            false => self.skip(),
        }
        self.distrusted.1 += self.skipped - before;
    }

    /// Goes on behind the first byte, to where a block may begin.
    fn skip(&mut self) {
        let behind = self.unused().get(1..).unwrap_or_default();
        let found = behind.windows(SYNC.len()).position(|bytes| bytes == SYNC);
        // The last bytes may be the first ones of a sync.
        let by = found.unwrap_or_else(|| behind.len().saturating_sub(SYNC.len() - 1)) + 1;
        self.pass(by);
    }
}

/// A block whose sums are right.
struct Block {
    kind: u8,
    contents: Vec<u8>,
    /// Its bytes in the file.
    length: u64,
}

/// Fills a buffer; false if the input ends before.
fn read_all(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// The items of a block, the last one first; `None` if it is malformed.
fn items(block: &Block, head: &Head) -> Option<Vec<Item>> {
    let mut bytes = Bytes(&block.contents);
    Some(match block.kind {
        kind::FIRINGS => {
            let (count, mut time, mut table) = (bytes.narrow::<u32>()?, bytes.uint()?, Table::default());
            let (mut all, mut total) = (Vec::new(), 0usize);
            for _ in 0..count {
                let firing = wire::firing(&mut bytes, time, &mut table)?;
                total += firing.size();
                if firing.probe as usize >= head.probes.len() || total > wire::ITEMS_MAX {
                    return None;
                }
                time = firing.time;
                all.push(Item::Firing(firing));
            }
            all.reverse();
            all
        }
        kind::LOSS => vec![Item::Loss(wire::loss(&mut bytes)?)],
        kind::SNAPSHOT => vec![Item::Snapshot(wire::snapshot(&mut bytes)?)],
        kind::END => vec![Item::End(bytes.int()? as i32)],
        _ => Vec::new(),
    })
}
