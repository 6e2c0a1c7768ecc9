//! The frames of CPython's interpreter in a stack of a process, and what its code objects are called.
//!
//! A function of Python has no frame on the stack of the processor: one call of the interpreter runs many of them. So behind a walk
//! by tables ([`crate::unwind`]) a program follows the interpreter's own list of frames, and stores a word for each:
//!
//! ```text
//!  word    frame   8 bits   the number of the frame of the stack whose function runs it
//!          instruction 24   the instruction in code units, all ones before the first
//!          place   32       where its code object is in the store, in words
//! ```
//!
//! A code object is memory of the process, which may be freed, or end with it, before the consumer sees the stack. So the program that
//! meets one for the first time copies what it is called into the *store*, one map, and remembers the place in a hash map:
//!
//! ```text
//!  store   +0      claimed  words ever reserved (fetch-add); a place is below this
//!  entry   +0      u32 first line     u32 bytes of the line table
//!          +8      u16 bytes of the file's name   u16 bytes of the function's   u8 u8 bytes of a character of each   u16 flags
//!          +16     the name of the file, that of the function, the line table; each from a whole word on
//!
//!  key     the address space (`unwind::key`), the code object, its first line, the addresses of its names and of its line table
//!  value   the place of its entry
//! ```
//!
//! The key has everything by which two code objects at one address can differ without a look at their strings. If two programs meet a code
//! object at the same time, the hash map has the place of the first, and both use it: a stack has one text and one id. A store that is full
//! has no place for a new code object: its word has the place 0, and a drop is counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the store, the most that every kernel allows in one element.
pub const STORE: u32 = 4 << 20;
/// The number of code objects that programs remember.
pub const CODES: u32 = 1 << 15;
/// Bytes of a key.
pub const KEY: u32 = 48;
/// Bytes before the first entry.
pub const FIRST: u32 = 8;
/// Bytes of an entry before its names.
pub const HEAD: u32 = 16;
/// The most bytes that a name may have, a power of two less one. Of a longer one the beginning is stored.
pub const NAME_MAX: u32 = 2047;
/// The most bytes of a line table, likewise. With a longer one the lines behind are not known.
pub const LINES_MAX: u32 = 32767;
/// The most bytes of an entry.
pub const ENTRY_MAX: u32 = HEAD + 2 * (NAME_MAX + 1) + LINES_MAX + 1;

/// Offsets in an entry.
pub const FIRST_LINE: u32 = 0;
/// The bytes of the line table.
pub const LINES_SIZE: u32 = 4;
/// The bytes of the name of the file.
pub const FILE_SIZE: u32 = 8;
/// The bytes of the name of the function.
pub const NAME_SIZE: u32 = 10;
/// The bytes of a character in the name of the file: 1, 2 or 4.
pub const FILE_WIDTH: u32 = 12;
/// The same of the function.
pub const NAME_WIDTH: u32 = 13;

/// Position of the instruction in a word.
pub const INSTRUCTION_SHIFT: u32 = 8;
/// The bits of an instruction, and the instruction before the first.
pub const NO_INSTRUCTION: u32 = (1 << 24) - 1;
/// Position of the place in a word.
pub const PLACE_SHIFT: u32 = 32;

/// A frame of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The number of the frame of the stack whose function runs it, from the innermost one.
    pub frame: u8,
    /// The instruction that it is at, in code units.
    pub instruction: Option<u32>,
    /// The place of its code object in the store, in words; 0 if it has none.
    pub place: u32,
}

impl Call {
    /// The frame in a word.
    pub fn of_word(word: u64) -> Call {
        let instruction = (word >> INSTRUCTION_SHIFT) as u32 & NO_INSTRUCTION;
        Call {
            frame: word as u8,
            instruction: (instruction != NO_INSTRUCTION).then_some(instruction),
            place: (word >> PLACE_SHIFT) as u32,
        }
    }

    /// The word of the frame.
    pub fn word(self) -> u64 {
        let instruction = self.instruction.unwrap_or(NO_INSTRUCTION).min(NO_INSTRUCTION);
        u64::from(self.frame)
            | u64::from(instruction) << INSTRUCTION_SHIFT
            | u64::from(self.place) << PLACE_SHIFT
    }
}

/// What a code object is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The file, as the code object has it.
    pub file: String,
    /// The function, with the classes and functions that it is in.
    pub name: String,
    /// The line on which it begins.
    pub first_line: u32,
    /// Its line table, or the beginning of it.
    pub lines: Vec<u8>,
}

impl Code {
    /// The code object at a place of the store. `None`: there is none.
    pub fn read(store: &[AtomicU64], place: u32) -> Option<Code> {
        let at = usize::try_from(place).ok().filter(|at| *at >= (FIRST / 8) as usize)?;
        let word = |n: usize| Some(store.get(at.checked_add(n)?)?.load(Ordering::Relaxed).to_le_bytes());
        let head: Vec<u8> = [word(0)?, word(1)?].concat();
        let short = |at: u32| Some(u16::from_le_bytes(head.get(at as usize..)?.first_chunk().copied()?));
        let long = |at: u32| Some(u32::from_le_bytes(head.get(at as usize..)?.first_chunk().copied()?));
        let sizes = [u32::from(short(FILE_SIZE)?), u32::from(short(NAME_SIZE)?), long(LINES_SIZE)?];
        if sizes.iter().zip([NAME_MAX, NAME_MAX, LINES_MAX]).any(|(size, most)| *size > most) {
            return None;
        }
        let mut next = (HEAD / 8) as usize;
        let mut parts = sizes.into_iter().map(|size| {
            let words = size.div_ceil(8) as usize;
            let bytes: Option<Vec<[u8; 8]>> = (next..next + words).map(word).collect();
            next += words;
            let mut bytes = bytes?.concat();
            bytes.truncate(size as usize);
            Some(bytes)
        });
        let (file, name, lines) = (parts.next()??, parts.next()??, parts.next()??);
        let width = |at: u32| head.get(at as usize).copied();
        Some(Code {
            file: text(&file, width(FILE_WIDTH)?),
            name: text(&name, width(NAME_WIDTH)?),
            first_line: long(FIRST_LINE)?,
            lines,
        })
    }

    /// The line of an instruction. `None`: it has none, or the table does not say it. (CPython 3.11, `Objects/locations.md`.)
    pub fn line(&self, instruction: u32) -> Option<u32> {
        let mut bytes = self.lines.iter().copied();
        let (mut line, mut end) = (i64::from(self.first_line), 0u32);
        loop {
            let first = bytes.next()?;
            let kind = first >> 3 & 15;
            let mut known = true;
            match kind {
                0..=9 => drop(bytes.next()?),
                10..=12 => {
                    line += i64::from(kind) - 10;
                    bytes.next()?;
                    bytes.next()?;
                }
                13 => line += signed(&mut bytes)?,
                14 => {
                    line += signed(&mut bytes)?;
                    for _ in 0..3 {
                        unsigned(&mut bytes)?;
                    }
                }
                _ => known = false,
            }
            end += u32::from(first & 7) + 1;
            if instruction < end {
                return u32::try_from(line).ok().filter(|line| known && *line > 0);
            }
        }
    }
}

/// A number of the line table: six bits a byte, the lowest first; the seventh says that more follow.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63).checked_shl(shift)?;
        if byte & 64 == 0 {
            return Some(value);
        }
        shift += 6;
    }
}

/// The same with the sign in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned(bytes)?;
    let size = i64::from(value >> 1);
    Some(if value & 1 == 0 { size } else { -size })
}

/// The characters of a string of Python, each of `width` bytes. A process may have written anything there.
fn text(bytes: &[u8], width: u8) -> String {
    match width {
        2 => {
            let units =
                bytes.chunks_exact(2).filter_map(|c| c.first_chunk().copied().map(u16::from_le_bytes));
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        4 => {
            let units =
                bytes.chunks_exact(4).filter_map(|c| c.first_chunk().copied().map(u32::from_le_bytes));
            units.map(|c| char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_its_frame_instruction_and_place() {
        for frame in [0, 1, 126, 255] {
            for instruction in [None, Some(0), Some(12345), Some(NO_INSTRUCTION - 1)] {
                for place in [0, 1, STORE / 8, u32::MAX] {
                    let call = Call { frame, instruction, place };
                    assert_eq!(Call::of_word(call.word()), call);
                }
            }
        }
    }

    /// Writes an entry as a program does. Returns its place.
    fn store(
        memory: &[AtomicU64],
        (file, file_width): (&[u8], u8),
        (name, name_width): (&[u8], u8),
        lines: &[u8],
    ) -> u32 {
        let mut bytes = Vec::new();
        bytes.extend(7u32.to_le_bytes());
        bytes.extend((lines.len() as u32).to_le_bytes());
        bytes.extend((file.len() as u16).to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend([file_width, name_width, 0, 0]);
        for part in [file, name, lines] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(8), 0xee);
        }
        let words = bytes.len() as u64 / 8;
        let place = memory[0].fetch_add(words, Ordering::Relaxed) + u64::from(FIRST / 8);
        for (word, bytes) in memory[place as usize..].iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap()), Ordering::Relaxed);
        }
        place as u32
    }

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn code_objects_are_read_as_they_were_stored() {
        let memory = memory(64);
        let wide: Vec<u8> = "Größe.λ".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let wider: Vec<u8> = "f\u{1f40d}".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        let one = store(&memory, (b"/srv/app.py", 1), (&wide, 2), &[1, 2, 3]);
        let two = store(&memory, (&[b'a', 0xe9], 1), (&wider, 4), &[]);
        let code = Code::read(&memory, one).unwrap();
        assert_eq!((&*code.file, &*code.name, code.first_line), ("/srv/app.py", "Größe.λ", 7));
        assert_eq!(code.lines, [1, 2, 3]);
        let code = Code::read(&memory, two).unwrap();
        assert_eq!((&*code.file, &*code.name), ("aé", "f\u{1f40d}"));
        assert_eq!(Code::read(&memory, 0), None);
    }

    #[test]
    fn a_malformed_store_is_read_without_a_panic() {
        let memory = memory(8);
        for words in [[u64::MAX; 2], [0, u64::MAX], [u64::from(u32::MAX) << 32, 0], [0, 0x7ff_07ff]] {
            memory[2].store(words[0], Ordering::Relaxed);
            memory[3].store(words[1], Ordering::Relaxed);
            assert_eq!(Code::read(&memory, 2), None);
        }
        assert_eq!(Code::read(&memory, 7), None);
        assert_eq!(Code::read(&memory, u32::MAX), None);
        assert_eq!(Code::read(&[], 1), None);
    }

    #[test]
    fn lines_are_those_of_the_interpreter() {
        // What `code.co_linetable` and `code.co_lines()` of Python 3.11.2 are for:
        //   def f(a):
        //       b = (a +
        //            a)
        //       if b:
        //           return [x for x in
        //                   range(b)]
        //
        //
        //       return b
        let lines = [
            128, 0, 216, 9, 10, 216, 9, 10, 241, 3, 1, 10, 11, 128, 65, 224, 7, 8, 240, 0, 2, 5, 26, 240, 2,
            1, 16, 26, 240, 0, 1, 16, 26, 221, 16, 21, 144, 97, 145, 8, 148, 8, 240, 3, 1, 16, 26, 241, 0, 1,
            16, 26, 244, 0, 1, 16, 26, 240, 0, 1, 9, 26, 240, 8, 0, 12, 13, 128, 72,
        ];
        let code = Code { first_line: 1, lines: lines.to_vec(), ..Code::default() };
        let of = [(0, 1), (1, 2), (2, 3), (3, 2), (6, 4), (8, 5), (10, 6), (24, 5), (33, 9), (35, 0)];
        for (from, to) in of.iter().zip(of.iter().skip(1)) {
            for instruction in from.0..to.0 {
                assert_eq!(code.line(instruction), Some(from.1), "{instruction}");
            }
        }
        assert_eq!(code.line(35), None);
        // Two instructions without a line (kind 15), then the line before (kind 13, -1).
        let none = Code { first_line: 5, lines: vec![0xf9, 0xe8, 0x03], ..Code::default() };
        assert_eq!([0, 1, 2, 3].map(|i| none.line(i)), [None, None, Some(4), None]);
        // A table that ends early, and one of continuations without an end.
        let broken = Code {
            first_line: 1,
            lines: vec![0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f],
            ..Code::default()
        };
        assert_eq!(broken.line(0), None);
        assert_eq!(Code::default().line(0), None);
    }
}
