//! The frames of a language runtime in a stack of a process, and what its code objects are called:
//! the same for every runtime.
//!
//! A function that an interpreter runs has no frame on the stack of the processor: one call of the
//! interpreter runs many of them. So behind a walk by tables ([`crate::unwind`]) a program follows
//! the interpreter's own list of frames, and stores a word for each:
//!
//! ```text
//!  word    frame   8 bits   the number of the frame of the stack whose function runs it
//!          line    24       0 if it is not known
//!          place   32       where its code object is in the store, in words; 0 if it cannot be read
//! ```
//!
//! A code object is memory of the process, which may be freed, or end with it, before the consumer
//! sees the stack. So the program that meets one copies what it is called into the *store*, one
//! map, unless that is there already: a hash map has the places by the keyed hash of the content.
//! So the store has each function of a file once, however many processes run it.
//!
//! ```text
//!  store   +0      claimed  words ever reserved (fetch-add); a place is below this
//!          +8      shares   of the words, by user and process (`crate::shares`)
//!  entry   +0      u32 first line     u16 bytes of the file's name   u16 bytes of the function's
//!          +8      u8 u8 bytes of a character of each
//!          +16     the name of the file, and that of the function from a whole word on; zeros up to whole words
//!
//!  codes   siphash of the entry ──► its place
//!  found   for each CPU: a tag combined with a word, the word, as in [`crate::unwind`]
//! ```
//!
//! If two programs store a code object at the same time, the hash map has the place of the first,
//! and both use it: a stack has one text and one id. No process hides the names of others, as
//! [`crate::shares`] says. In a store that is full, or of which the process has its share, a new
//! code object has the place [`NO_SPACE`], and a drop is counted. An entry takes [`ENTRY_LEAST`]
//! words at least, so the hash map is never full before the store is.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shares;

/// Bytes of the store, the most that every kernel allows in one element.
pub const STORE: u32 = 4 << 20;
/// The most code objects.
pub const CODES: u32 = 1 << 15;
/// Bytes of a key: the hash.
pub const KEY: u32 = 8;
/// Offset of the counters of who has how many of the words.
pub const SHARES_AT: u32 = 8;
/// Bytes before the first entry.
pub const FIRST: u32 = SHARES_AT + shares::BYTES;
/// The words of all entries.
pub const WORDS: u32 = (STORE - FIRST) / 8;
/// Bytes of an entry before its names.
pub const HEAD: u32 = 16;
/// The most bytes that a name may have. Of a longer one the beginning is stored.
pub const NAME_MAX: u32 = 2040;
/// The most bytes of an entry.
pub const ENTRY_MAX: u32 = HEAD + 2 * NAME_MAX;
/// The least words of an entry.
pub const ENTRY_LEAST: u32 = 16;
/// The place of a code object for which there is no space.
pub const NO_SPACE: u32 = u32::MAX;

/// Positions in the first word of an entry: the bytes of the names. Below them is the first line.
pub const FILE_SIZE_SHIFT: u32 = 32;
/// The same of the function.
pub const NAME_SIZE_SHIFT: u32 = 48;
/// Position in the second word: the bytes of a character in the name of the function. Below is that
/// of the file.
pub const NAME_WIDTH_SHIFT: u32 = 8;

/// Position of the line in a word.
pub const LINE_SHIFT: u32 = 8;
/// Position of the place in a word.
pub const PLACE_SHIFT: u32 = 32;

/// Words that a CPU remembers, as a power of two.
pub const FOUND_SHIFT: u32 = 10;
/// Bytes of one: the tag combined with the word, and the word.
pub const FOUND: u32 = 16;
/// Offset of the word.
pub const FOUND_VALUE: u32 = 8;
/// Bytes of the words that a CPU remembers.
pub const FOUND_BYTES: u32 = FOUND << FOUND_SHIFT;

/// A frame of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The number of the frame of the stack whose function runs it, from the innermost one.
    pub frame: u8,
    /// Its line.
    pub line: Option<u32>,
    /// The place of its code object in the store, in words; 0 if it has none.
    pub place: u32,
}

impl Call {
    /// The frame in a word.
    pub fn of_word(word: u64) -> Call {
        let line = (word >> LINE_SHIFT) as u32 & 0xff_ffff;
        Call { frame: word as u8, line: (line != 0).then_some(line), place: (word >> PLACE_SHIFT) as u32 }
    }

    /// The word of the frame. A line has 24 bits.
    pub fn word(self) -> u64 {
        let line = self.line.unwrap_or(0) & 0xff_ffff;
        u64::from(self.frame) | u64::from(line) << LINE_SHIFT | u64::from(self.place) << PLACE_SHIFT
    }
}

/// What a code object is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The file, as the code object has it.
    pub file: String,
    /// The function, with the classes and functions that it is in.
    pub name: String,
}

impl Code {
    /// The code object at a place of the store. `None`: there is none.
    pub fn read(store: &[AtomicU64], place: u32) -> Option<Code> {
        let at = usize::try_from(place).ok().filter(|at| *at >= (FIRST / 8) as usize)?;
        let word = |n: usize| Some(store.get(at.checked_add(n)?)?.load(Ordering::Relaxed));
        let (head, widths) = (word(0)?, word(1)?);
        let mut next = (HEAD / 8) as usize;
        let mut name = |size: u64, width: u64| {
            let size = (size as u16) as usize;
            if size > NAME_MAX as usize {
                return None;
            }
            let words = size.div_ceil(8);
            let bytes: Option<Vec<[u8; 8]>> =
                (next..next + words).map(|n| Some(word(n)?.to_le_bytes())).collect();
            next += words;
            let mut bytes = bytes?.concat();
            bytes.truncate(size);
            Some(text(&bytes, width as u8))
        };
        let file = name(head >> FILE_SIZE_SHIFT, widths)?;
        Some(Code { file, name: name(head >> NAME_SIZE_SHIFT, widths >> NAME_WIDTH_SHIFT)? })
    }
}

/// The characters of a name, each of `width` bytes: Latin-1, or the numbers of characters. A
/// process may have written anything there.
fn text(bytes: &[u8], width: u8) -> String {
    let char_of = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    match width {
        2 => {
            let units =
                bytes.chunks_exact(2).filter_map(|c| c.first_chunk().copied().map(u16::from_le_bytes));
            units.map(|unit| char_of(unit.into())).collect()
        }
        4 => {
            let units =
                bytes.chunks_exact(4).filter_map(|c| c.first_chunk().copied().map(u32::from_le_bytes));
            units.map(char_of).collect()
        }
        _ => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_its_frame_line_and_place() {
        for frame in [0, 1, 126, 255] {
            for line in [None, Some(1), Some(12345), Some(0xff_ffff)] {
                for place in [0, 1, STORE / 8, u32::MAX] {
                    let call = Call { frame, line, place };
                    assert_eq!(Call::of_word(call.word()), call);
                }
            }
        }
    }

    /// Writes an entry as a program does. Returns its place.
    fn store(memory: &[AtomicU64], (file, file_width): (&[u8], u8), (name, name_width): (&[u8], u8)) -> u32 {
        let head = 7 | (file.len() as u64) << FILE_SIZE_SHIFT | (name.len() as u64) << NAME_SIZE_SHIFT;
        let widths = u64::from(file_width) | u64::from(name_width) << NAME_WIDTH_SHIFT;
        let mut bytes = [head, widths].map(u64::to_le_bytes).concat();
        for part in [file, name] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
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
        let memory = memory(FIRST as usize / 8 + 64);
        let wide: Vec<u8> = "Größe.λ".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let wider: Vec<u8> = "f\u{1f40d}".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        let one = store(&memory, (b"/srv/app.py", 1), (&wide, 2));
        let two = store(&memory, (&[b'a', 0xe9], 1), (&wider, 4));
        let code = Code::read(&memory, one).unwrap();
        assert_eq!((&*code.file, &*code.name), ("/srv/app.py", "Größe.λ"));
        let code = Code::read(&memory, two).unwrap();
        assert_eq!((&*code.file, &*code.name), ("aé", "f\u{1f40d}"));
        assert_eq!(Code::read(&memory, 0), None);
        // A surrogate is no character.
        let half = store(&memory, (&[0, 0xd8], 2), (b"", 1));
        assert_eq!(Code::read(&memory, half).unwrap().file, "\u{fffd}");
    }

    #[test]
    fn a_malformed_store_is_read_without_a_panic() {
        let memory = memory(FIRST as usize / 8 + 8);
        for words in [[u64::MAX; 2], [0x7f9 << FILE_SIZE_SHIFT, 0], [0x7f8 << NAME_SIZE_SHIFT, 0]] {
            memory[2].store(words[0], Ordering::Relaxed);
            memory[3].store(words[1], Ordering::Relaxed);
            assert_eq!(Code::read(&memory, 2), None);
        }
        for place in [7, 8, u32::MAX] {
            assert_eq!(Code::read(&memory, place), None);
        }
        assert_eq!(Code::read(&[], 1), None);
    }
}
