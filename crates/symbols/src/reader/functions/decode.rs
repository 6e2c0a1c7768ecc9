//! Reads and decodes the code of functions, in the order of addresses.

use text::{Function as Code, LONGEST};

use crate::reader::elf::Elf;
use crate::reader::elf::code::Region;

/// Code that is read at once.
const WINDOW: u64 = 1 << 20;
/// Bytes of code that may be decoded beyond a multiple of the file's.
pub(super) const EXTRA: u64 = 16 << 20;
/// How often each byte of the file's code may be decoded, on average. (A part of a function may
/// have a symbol of its own.)
const TIMES: u64 = 4;
/// What a symbol inside a function costs, in bytes of code.
const SYMBOL: u64 = 8;

/// Where a function is.
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Bytes of code that are decoded at most.
pub(super) fn most(regions: &[Region], extra: u64) -> u64 {
    let code = regions.iter().map(|r| r.end - r.start).fold(0, u64::saturating_add);
    code.saturating_mul(TIMES).saturating_add(extra)
}

pub(super) struct Decoder<'a> {
    elf: &'a Elf,
    /// The bytes in memory, and the offset of the first.
    window: Vec<u8>,
    at: u64,
    /// Bytes that may still be decoded.
    left: u64,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(elf: &'a Elf, regions: &[Region], extra: u64) -> Decoder<'a> {
        Decoder { elf, window: Vec::new(), at: 0, left: most(regions, extra) }
    }

    /// Calls a function with the decoded code, or with the reason why there is none.
    pub(super) fn with(
        &mut self,
        function: &Place,
        inside: &[u64],
        then: impl FnOnce(Result<Code<'_>, String>),
    ) {
        let (offset, address) = (function.offset, function.address);
        if !self.elf.is_native() {
            return then(Err("its machine code is not that of this processor in 64 bits".into()));
        }
        // One byte more makes the function too long.
        let size = function.size.min(LONGEST as u64 + 1);
        let cost = size.saturating_add(SYMBOL.saturating_mul(inside.len() as u64));
        let Some(left) = self.left.checked_sub(cost) else {
            return then(Err("the functions of its file overlap too much".into()));
        };
        self.left = left;
        match self.bytes(offset, size) {
            Some(bytes) => then(Ok(Code::decode(bytes, address, inside))),
            None => then(Err("its code cannot be read".into())),
        }
    }

    fn bytes(&mut self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        if offset < self.at || end > self.at + self.window.len() as u64 {
            let length = self.elf.size().checked_sub(offset)?.min(size.max(WINDOW));
            self.window.resize(usize::try_from(length).ok()?, 0);
            self.at = offset;
            if self.elf.read_at(offset, &mut self.window).is_err() {
                self.window.clear();
                return None;
            }
        }
        let from = usize::try_from(offset - self.at).ok()?;
        self.window.get(from..from.checked_add(usize::try_from(size).ok()?)?)
    }
}
