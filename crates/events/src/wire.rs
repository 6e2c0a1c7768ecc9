//! The byte layout of encoded events.
//!
//! The decisions:
//!
//! - **A frame is complete in itself.** There is no table of strings or probes that an earlier
//!   frame defines, so a stream can be cut, joined and filtered at any frame. (Names repeat; a
//!   general compressor removes that.)
//! - **What is not known is skipped.** A reader skips frames of kinds that it does not know. Each
//!   structure (`{…}` below) begins with its length, so a reader also skips what follows the last
//!   field that it knows of a structure or a frame. Drops and notices of unknown kinds are skipped.
//!   An action or a value of an unknown kind is read as [`Action::Unknown`](crate::Action) or
//!   [`Value::Unknown`](crate::Value). So events, actions, values and fields can be added without a
//!   new version. A reader that knows an added field has a default for it, for streams that end
//!   before it. Anything else is a new version, and a reader rejects the versions that it does not
//!   know.
//! - **A reader allocates in proportion to what it reads.** The length of a frame is limited, the
//!   frame is read before anything is allocated for its contents, the count of a list is checked
//!   against the bytes that remain, and a list reserves at most 1024 elements before it reads them.
//!
//! ```text
//!  stream   magic      8 bytes     0x89 "DTEV" CR LF 0x1a
//!           version    u32         4
//!           frames
//!  frame    length     u32         bytes of kind and body
//!           kind       u16
//!           body       the fields of the kind, in order
//!
//!  uint     LEB128: 7 bits a byte, the lowest first; bit 7 is set in all bytes but the last
//!  int      zigzag (0, -1, 1, -2 … become 0, 1, 2, 3 …), as uint
//!  bytes    uint length, the bytes
//!  text     as bytes, in UTF-8
//!  option   byte 0; or byte 1 and the value
//!  list     uint count, the elements
//!  { … }    structure: uint length in bytes, the fields
//!  u16, u32 are little-endian
//! ```
//!
//! ```text
//!  kind             body
//!   1 start         version text, clock time uint, clock wall uint, host { name text, release text,
//!                   machine text, cpus uint }, list of setting
//!   2 options       list of setting
//!   3 record        firing, part, list of field
//!   4 aggregation   occasion (0 printa, 1 end, 2 demand), part, option of format bytes, key names list of
//!                   text, list of column, list of row, option of time uint
//!   5 system        command bytes
//!   6 freopen       option of path bytes
//!   7 ftruncate
//!   8 fault         time uint, cpu uint, epid uint, option of probe, kind uint (DTRACEFLT_*), action uint,
//!                   option of offset uint, value uint, count uint (of faults of the clause, of which it is the first)
//!   9 drop          kind byte (0 principal, 1 aggregation, 2 dynamic, 3 scratch, 4 stack, 5 error in ERROR,
//!                   6 doorbell, 7 speculation, 8 speculation busy, 9 speculation unavailable, 10 order),
//!                   cpu uint, count uint, option of time uint
//!  10 suppressed    program text, option of cpu uint, count uint, option of time uint
//!  11 notice        kind byte (0 failure, 1 lowered, 2 target, 3 unresponsive, 4 overload, 5 unavailable,
//!                   6 detail), text, option of time uint
//!  12 interrupt
//!  13 stop
//!  14 end           status int
//!  15 report        text
//!  16 interval      begin uint, end uint, part, key names list of text, column, list of row (with two values: increment and
//!                   total), unsigned byte, wall uint
//!
//!  setting          { name text; byte 0 and flag byte, 1 and number uint, or 2 and text }
//!  probe            { id uint, provider text, module text, function text, name text, calls byte (0 none,
//!                   1 system calls, 2 functions of the kernel) }
//!  firing           { time uint, cpu uint, option of thread uint, epid uint, probe, flow byte (0 none,
//!                   1 entry, 2 return), option of pid uint, option of tid uint }
//!  part             byte: bit 0 first, bit 1 last
//!  field            { name text, action }
//!  action           byte: 0 trace: value
//!                         1 print: shape, bytes, functions list of symbol
//!                         2 dump: bytes
//!                         3 printf: format bytes, list of { name text, value }
//!                         4 exit: status int
//!                         5 change: aggregation text; byte 0 clear, 1 trunc and int, 2 normalize and uint,
//!                           3 denormalize
//!                         6 nothing
//!                         7 packet: protocol uint, time uint, length uint, bytes
//!                         8 snap: value
//!                         255 unknown
//!  value            { byte: 0 integer: type byte (size | signed << 7), value: int if signed, else uint
//!                           1 string: bytes, size uint
//!                           2 name that a process chose: bytes, size uint
//!                           3 memory: bytes
//!                           4 stack: option of process uint, list of symbol
//!                           5 symbol
//!                           255 unknown }
//!  symbol           { address uint, option of process uint, form byte (0 symbol, 1 function, 2 module,
//!                   3 address), option of module text, option of symbol text, offset uint, option of path
//!                   text, option of source file text, option of line uint, inlined byte, interpreted byte, option of
//!                   address in the file uint }
//!  column           { name text, function }
//!  row              { key list of value, list of { function, normal uint, words, list of (cpu uint, words),
//!                   absent byte } } (the functions are those of the columns)
//!  words            list of uint
//!  function         byte: 0 count, 1 sum, 2 min, 3 max, 4 avg, 5 stddev, 6 quantize, 7 lquantize: base int, limit
//!                   int, step uint; 8 llquantize: factor uint, low uint, high uint, nsteps uint
//!  shape            name text, size uint, byte: 0 integer: signed byte; 1 char: signed byte; 2 float, 3 pointer,
//!                   4 function pointer, 5 enum: signed byte, list of (name text, value int); 6 string, 7 array: shape; 8 struct or union:
//!                   list of (name text, offset uint, option of (shift byte, width byte), shape)
//! ```
//!
//! Bits of integers, the words of aggregations and the fault kinds are those of [`crate::Int`],
//! [`crate::AggFunc`] and [`crate::FaultKind`].

/// The first bytes of a stream. As in PNG: the first byte is no text, and a transfer that changes
/// line ends destroys it.
pub const MAGIC: [u8; 8] = *b"\x89DTEV\r\n\x1a";

/// The version of the layout.
pub const VERSION: u32 = 4;

/// The maximum length of a frame. The largest record has 64 MiB.
pub const FRAME_MAX: usize = 1 << 28;

/// The kinds of frames.
pub(crate) mod kind {
    pub(crate) const START: u16 = 1;
    pub(crate) const OPTIONS: u16 = 2;
    pub(crate) const RECORD: u16 = 3;
    pub(crate) const AGGREGATION: u16 = 4;
    pub(crate) const SYSTEM: u16 = 5;
    pub(crate) const FREOPEN: u16 = 6;
    pub(crate) const FTRUNCATE: u16 = 7;
    pub(crate) const FAULT: u16 = 8;
    pub(crate) const DROP: u16 = 9;
    pub(crate) const SUPPRESSED: u16 = 10;
    pub(crate) const NOTICE: u16 = 11;
    pub(crate) const INTERRUPT: u16 = 12;
    pub(crate) const STOP: u16 = 13;
    pub(crate) const END: u16 = 14;
    pub(crate) const REPORT: u16 = 15;
    pub(crate) const INTERVAL: u16 = 16;
}

pub(crate) fn put_uint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_int(out: &mut Vec<u8>, value: i64) {
    put_uint(out, (value << 1 ^ value >> 63) as u64);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

pub(crate) fn put_list<T>(out: &mut Vec<u8>, all: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_uint(out, all.len() as u64);
    for one in all {
        put(out, one);
    }
}

/// The kind of an action or a value that the reader did not know.
pub(crate) const UNKNOWN: u8 = 255;

/// Writes a structure: its length and its fields.
pub(crate) fn put_sized(out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    // Most structures are short, so that their length is one byte.
    out.push(0);
    fields(out);
    #[cfg(test)]
    grown::add(out);
    let length = (out.len() - start - 1) as u64;
    match out.get_mut(start) {
        Some(place) if length < 0x80 => *place = length as u8,
        _ => {
            let mut prefix = Vec::with_capacity(10);
            put_uint(&mut prefix, length);
            out.splice(start..=start, prefix);
        }
    }
}

/// What a later version adds to structures, for tests.
#[cfg(test)]
pub(crate) mod grown {
    use std::cell::Cell;

    thread_local! {
        /// The bytes that are added at the end of each structure.
        pub(crate) static BY: Cell<&'static [u8]> = const { Cell::new(&[]) };
    }

    pub(super) fn add(out: &mut Vec<u8>) {
        out.extend_from_slice(BY.get());
    }
}

/// A malformed body: the offset of the error in the frame's body, and what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) at: usize,
    pub(crate) what: &'static str,
}

/// Reads the primitives of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    all: &'a [u8],
    rest: &'a [u8],
    /// Bytes after the structure that is being read.
    beyond: usize,
    /// The bytes that strings may still declare; see [`Bytes::declare`].
    declarable: u32,
}

/// Elements for which a list reserves memory before it has read them.
const RESERVED: usize = 1024;

impl<'a> Bytes<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Self {
        Bytes { all, rest: all, beyond: 0, declarable: 0 }
    }

    pub(crate) fn wrong<T>(&self, what: &'static str) -> Result<T, Malformed> {
        Err(Malformed { at: self.all.len() - self.rest.len() - self.beyond, what })
    }

    /// True behind the last byte of the structure that is being read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let Some((first, rest)) = self.rest.split_first() else { return self.wrong("end in a byte") };
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.wrong("a flag that is neither 0 nor 1"),
        }
    }

    pub(crate) fn uint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.wrong("a number of more than 64 bits")
    }

    /// A uint of a narrower type.
    pub(crate) fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        let value = self.uint()?;
        T::try_from(value).or_else(|_| self.wrong("a number out of range"))
    }

    pub(crate) fn int(&mut self) -> Result<i64, Malformed> {
        let bits = self.uint()?;
        Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    pub(crate) fn narrow_int<T: TryFrom<i64>>(&mut self) -> Result<T, Malformed> {
        let value = self.int()?;
        T::try_from(value).or_else(|_| self.wrong("a number out of range"))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length: usize = self.narrow()?;
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return self.wrong("a length beyond the end");
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).or_else(|_| self.wrong("a text that is not UTF-8"))
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A structure. Bytes after the fields that are read are skipped.
    pub(crate) fn sized<T>(
        &mut self,
        fields: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        let inner = self.bytes()?;
        let (after, beyond) = (self.rest, self.beyond);
        (self.rest, self.beyond) = (inner, beyond + after.len());
        let read = fields(self);
        (self.rest, self.beyond) = (after, beyond);
        read
    }

    /// Begins a record or a key, whose strings declare no more than `limit` bytes together.
    pub(crate) fn begin_strings(&mut self, limit: u32) {
        self.declarable = limit;
    }

    /// The declared size of a string.
    pub(crate) fn declare(&mut self) -> Result<u32, Malformed> {
        let size: u32 = self.narrow()?;
        let Some(rest) = self.declarable.checked_sub(size) else {
            return self.wrong("strings longer than any record");
        };
        self.declarable = rest;
        Ok(size)
    }

    /// A list whose elements have at least `least` bytes each.
    pub(crate) fn list<T>(
        &mut self,
        least: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count: usize = self.narrow()?;
        if count > self.rest.len() / least.max(1) {
            return self.wrong("a count beyond the end");
        }
        let mut all = Vec::with_capacity(count.min(RESERVED));
        for _ in 0..count {
            all.push(read(self)?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_as_they_were_written() {
        let mut values: Vec<u64> = (0..64).flat_map(|n| [1 << n, (1 << n) - 1, !0 >> n]).collect();
        values.push(0);
        for value in values {
            let mut out = Vec::new();
            put_uint(&mut out, value);
            put_int(&mut out, value as i64);
            put_int(&mut out, (value as i64).wrapping_neg());
            let mut bytes = Bytes::new(&out);
            assert_eq!(bytes.uint(), Ok(value));
            assert_eq!(bytes.int(), Ok(value as i64));
            assert_eq!(bytes.int(), Ok((value as i64).wrapping_neg()));
        }
    }

    #[test]
    fn numbers_counts_and_lengths_beyond_their_limits_are_rejected() {
        assert!(Bytes::new(&[0xff; 9]).uint().is_err());
        assert!(Bytes::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]).uint().is_err());
        assert!(Bytes::new(&[3, 1, 2]).bytes().is_err());
        assert!(Bytes::new(&[3, 1, 2]).list(1, Bytes::byte).is_err());
        assert_eq!(Bytes::new(&[2, 1, 2]).list(1, Bytes::byte), Ok(vec![1, 2]));
        let mut most = Vec::new();
        put_uint(&mut most, u64::MAX);
        assert!(Bytes::new(&most).list(1, Bytes::byte).is_err());
        assert!(Bytes::new(&most).bytes().is_err());
        assert!(Bytes::new(&[1, 0xff]).text().is_err());
        assert!(Bytes::new(&[2]).flag().is_err());
    }
}
