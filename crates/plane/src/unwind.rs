//! Tables by which a program walks the stack of a process that keeps no frame pointers.
//!
//! A compiler describes, for each address of the code, where the caller's stack pointer was and
//! where the return address and the frame pointer are (`.eh_frame`). The consumer reduces that to
//! *rows* of eight bytes, which a program finds by a page index and a short binary search.
//!
//! The key decision: *only the consumer writes, and a program checks at the end of its walk that
//! nothing has changed that it used.* So nobody waits for a lock or a grace period. A walk that met
//! a change ends in [`INCOMPLETE`], which costs one stack of millions.
//!
//! ```text
//!  directory (one map)
//!    slots     key of an address space, state: version 16 | ranges 16 | first range 32
//!    wanted    address spaces that programs have met and found no slot or table for
//!    version   how often a table was removed
//!    shares    who has how many of the unknown files (`crate::shares`)
//!    ranges    start, end, table (first page 32 | pages 32), delta       sorted by start; behind those of a
//!              space one more, whose start is its language runtime: number 8 | address of the state 56, or 0
//!
//!  chunks (maps of CHUNK_WORDS words in a map of maps)
//!    pages     first row 32 | rows 32        one for each 4 KiB of a file's code
//!    rows      of each page, sorted by address; the first is for the first byte of the page
//!
//!  address ──► slot (by key) ──► range ──► page of the table ──► row
//! ```
//!
//! An address space is known by numbers that the kernel chooses when a program is executed, and
//! that both sides can read ([`key`]). So a process that was forked has the tables of its parent at
//! once.
//!
//! What a slot says is never changed in place: the consumer writes other ranges, and then the state
//! of the slot, whose version grows. Only then it uses the memory of the old ranges, or of a table
//! that they have named, for something else. So a walk that finds the slot as it was has read
//! nothing else either.
//!
//! Programs walk the same stacks again and again, and the search for a row is most of a walk. So
//! each CPU remembers the rows that it has found. The tag of one is made of the slot's key, the
//! slot's state and the address: a row that was found before a slot changed has another tag than
//! any that is looked for later, and nothing has to be removed. The tag is stored combined
//! (exclusive or) with the row: an interrupt between the two stores leaves a pair that has no tag,
//! never the row of another address.
//!
//! A process that has just executed a program, and one that has ended before the consumer has
//! looked, have no slot. Most files that they run are known, and only where they are mapped is not.
//! There the program asks the kernel for the mapping of an address (`bpf_find_vma`) and finds the
//! file by its inode:
//!
//! ```text
//!  files      device and inode ──► table, base, version of the contents, where the file's code is loaded
//!  unknown    device and inode ──► a process, and the address of a mapping        the consumer is asked for it
//! ```
//!
//! Contents are compared by size and time of change, because an inode is used again, and a file may
//! be written anew. The consumer removes a file from the map and changes the *version* of the
//! directory before it uses the memory of a table for something else; the version is part of the
//! tags of remembered rows, and a walk that finds it changed is [`INCOMPLETE`]. Nothing that is
//! found so is remembered for the next walk, in which the same address may be another file's. The
//! kernel tells where a mapping is once for each firing that runs with interrupts disabled, so a
//! stack of several objects is [`INCOMPLETE`] there until the process has a slot. It tells nothing
//! while the mappings of the process are being changed. Both are an error of their own (`EBUSY`),
//! and such stacks are counted ([`BUSY`]). Nothing is remembered of a refusal, so the next firing
//! asks again.
//!
//! The words of chunks have one number: [`CHUNK_WORDS`] times that of the chunk, plus the index in
//! it. The rows of a page are in one chunk, and so are all pages of a table.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shares::{self, Counters};

/// Bytes of code that one entry of a page index is for, as a power of two.
pub const PAGE_SHIFT: u32 = 12;
/// The same.
pub const PAGE: u64 = 1 << PAGE_SHIFT;

/// Words of a chunk, a power of two.
pub const CHUNK_WORDS: u32 = 1 << CHUNK_SHIFT;
/// The same, as a power of two: a chunk has 4 MiB, the most that every kernel allows.
pub const CHUNK_SHIFT: u32 = 19;
/// The most chunks of a session.
pub const CHUNKS: u32 = 256;

/// Rows that a CPU remembers, as a power of two: their 16 KiB are half of the most that the kernel
/// allows.
pub const FOUND_SHIFT: u32 = 10;
/// Bytes of a row that is remembered: its tag combined with the row, and the row.
pub const FOUND: u32 = 16;
/// Offset of the row.
pub const FOUND_ROW: u32 = 8;
/// Bytes of the rows that a CPU remembers.
pub const FOUND_BYTES: u32 = FOUND << FOUND_SHIFT;

/// The last frame of a stack whose other frames are not known.
pub const INCOMPLETE: u64 = 1;

/// How the caller's frame is found. The canonical frame address (CFA) is the stack pointer of the
/// caller; the return address is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Nothing is known here: the frame pointer is tried.
    None = 0,
    /// The CFA is the stack pointer plus the offset.
    Sp = 1,
    /// The CFA is the frame pointer plus the offset.
    Bp = 2,
    /// In a procedure linkage table: the CFA is the stack pointer plus 8, and plus 8 more from the
    /// instruction on whose offset in its entry of 16 bytes is the offset of the row.
    Plt = 3,
    /// The function has aligned its stack: the CFA is in memory, at the frame pointer plus the
    /// offset.
    Realigned = 4,
    /// The frame that the kernel makes for the handler of a signal: the interrupted stack pointer
    /// is in memory, at the stack pointer plus the offset, with the other registers around it.
    Signal = 5,
    /// The outermost function.
    End = 6,
    /// There is a rule, which no row can express.
    Unknown = 7,
    /// The function has saved the stack pointer of its entry: it is in memory, at the stack pointer
    /// plus the offset, and the CFA is above its return address (code of cryptography, written by
    /// hand).
    Saved = 8,
    /// The CFA is another register plus the offset without its low four bits, which are the number
    /// of the register's word in the registers that the kernel saves. What it was is known in the
    /// innermost frame only. (A loop that touches the pages of a large frame, the first
    /// instructions of a function that aligns its stack.)
    Register = 9,
}

impl Kind {
    /// The kind of a number.
    pub fn of(number: u64) -> Option<Kind> {
        use Kind::*;
        [None, Sp, Bp, Plt, Realigned, Signal, End, Unknown, Saved, Register]
            .get(usize::try_from(number).ok()?)
            .copied()
    }
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FramePointer {
    /// In its register: the function has not changed it.
    Same,
    /// At the CFA plus so many words.
    AtCfa(i8),
    /// At the frame pointer plus so many words.
    AtBp(i8),
}

/// What is known of the code from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// How the CFA is found.
    pub kind: Kind,
    /// The offset that this needs.
    pub offset: i32,
    /// How the caller's frame pointer is found.
    pub bp: FramePointer,
}

impl Rule {
    /// Nothing is known.
    pub const NONE: Rule = Rule::of(Kind::None);
    /// The outermost function.
    pub const END: Rule = Rule::of(Kind::End);
    /// A rule that no row can express.
    pub const UNKNOWN: Rule = Rule::of(Kind::Unknown);

    const fn of(kind: Kind) -> Rule {
        Rule { kind, offset: 0, bp: FramePointer::Same }
    }

    /// The row of this rule, from an offset in a page on.
    pub fn row(self, low: u16) -> u64 {
        let (mode, words) = match self.bp {
            FramePointer::Same => (0, 0),
            FramePointer::AtCfa(words) => (BP_AT_CFA, words),
            FramePointer::AtBp(words) => (BP_AT_BP, words),
        };
        u64::from(low) & (PAGE - 1)
            | (self.kind as u64) << KIND_SHIFT
            | u64::from(words as u8) << BP_SHIFT
            | mode << BP_MODE_SHIFT
            | u64::from(self.offset as u32) << OFFSET_SHIFT
    }

    /// The rule of a row.
    pub fn of_row(row: u64) -> Rule {
        let words = (row >> BP_SHIFT) as u8 as i8;
        let bp = match row >> BP_MODE_SHIFT & BP_MODES {
            BP_AT_CFA => FramePointer::AtCfa(words),
            BP_AT_BP => FramePointer::AtBp(words),
            _ => FramePointer::Same,
        };
        let kind = Kind::of(row >> KIND_SHIFT & KINDS).unwrap_or(Kind::Unknown);
        Rule { kind, offset: (row >> OFFSET_SHIFT) as i32, bp }
    }
}

/// Position of the kind in a row; below it is the offset of the code in its page.
pub const KIND_SHIFT: u32 = 12;
/// The bits of the kind.
pub const KINDS: u64 = 15;
/// Position of the words of the frame pointer's place, a signed byte.
pub const BP_SHIFT: u32 = 16;
/// Position of what they are counted from.
pub const BP_MODE_SHIFT: u32 = 24;
/// The bits of that.
pub const BP_MODES: u64 = 3;
/// The frame pointer is at the CFA.
pub const BP_AT_CFA: u64 = 1;
/// The frame pointer is at the frame pointer.
pub const BP_AT_BP: u64 = 2;
/// Position of the offset, 32 bits.
pub const OFFSET_SHIFT: u32 = 32;

/// Bytes of the directory, the most that every kernel allows in one element.
pub const DIRECTORY: u32 = 4 << 20;
/// Slots of address spaces, a power of two.
pub const SLOTS: u32 = 8192;
/// Bytes of a slot: its key and its state.
pub const SLOT: u32 = 16;
/// Slots that are tried.
pub const PROBES: u32 = 16;
/// Offset of the address spaces that are wanted: their keys, and a process of each.
pub const WANTED: u32 = SLOTS * SLOT;
/// The number of places for them, a power of two.
pub const WANTED_MAX: u32 = 1024;
/// Bytes of a place.
pub const WANTED_SIZE: u32 = 16;
/// Bytes of a range.
pub const RANGE: u32 = 32;
/// The same, as a power of two.
pub const RANGE_SHIFT: u32 = 5;
/// Offset of the number of times that a table was removed.
pub const VERSION: u32 = WANTED + WANTED_SIZE * WANTED_MAX;
/// Offset of the number of stacks that are [`INCOMPLETE`] because the kernel could not tell a
/// mapping at that time.
pub const BUSY: u32 = VERSION + 8;
/// Offset of the counters of who has how many of the files that the consumer is asked for.
pub const SHARES_AT: u32 = BUSY + 8;
/// The number of the first range: they are counted from the start of the directory.
pub const FIRST_RANGE: u32 = (SHARES_AT + shares::BYTES) / RANGE + 1;
/// The number behind the last range, a power of two.
pub const RANGES_END: u32 = DIRECTORY / RANGE;
/// The most ranges of an address space.
pub const RANGES_MAX: u32 = 4095;
const _: () = assert!(BUSY + 8 <= FIRST_RANGE * RANGE);
const _: () = assert!(RANGES_END.is_power_of_two() && SLOTS.is_power_of_two() && RANGES_MAX < 1 << 16);

/// Offsets in a range.
pub const RANGE_END: u32 = 8;
/// The first page of the table, and the number of its pages above; or one of the words below.
pub const RANGE_TABLE: u32 = 16;
/// What is added to an address for its offset in the pages of the table.
pub const RANGE_DELTA: u32 = 24;
/// Position of the number of a language runtime in a word, above the address of its state.
pub const RUNTIME_SHIFT: u32 = 56;

/// The table of a range is not there yet.
pub const PENDING: u64 = 0;
/// The range has no table and never will: the frame pointer is tried.
pub const NO_TABLE: u64 = 1;
/// Processes of one address space have different code here: a walk ends.
pub const AMBIGUOUS: u64 = 2;

/// The key of a slot that was used.
pub const DELETED: u64 = 1;

/// The multiplier of [`key`].
pub const KEY_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key of an address space, by members of `mm_struct` that `/proc/PID/stat` shows: where its
/// code, its stack and its arguments begin. The kernel chooses them at random when it executes a
/// program.
pub fn key(start_code: u64, start_stack: u64, arg_start: u64) -> u64 {
    let mixed = start_stack.wrapping_mul(KEY_FACTOR).wrapping_add(start_code);
    mixed.wrapping_mul(KEY_FACTOR).wrapping_add(arg_start) | 2
}

/// The position of the number of a slot in its key.
pub const KEY_SHIFT: u32 = 40;
/// The position of the place among those that are wanted in a key.
pub const WANTED_SHIFT: u32 = 20;

/// What is known of the addresses from `start` to `end` (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    /// See [`RANGE_TABLE`].
    pub table: u64,
    /// See [`RANGE_DELTA`].
    pub delta: u64,
}

/// The most files of [`crate::unwind`]'s map of files.
pub const FILES: u32 = 2048;
/// The most files that the consumer is asked for at once.
pub const UNKNOWN_FILES: u32 = 512;
/// Bytes of the key of a file: device, inode.
pub const FILE_KEY: u32 = 16;
/// Offset of the inode.
pub const FILE_INODE: u32 = 8;
/// Bytes of what is known of a file.
pub const FILE: u32 = FILE_LOADS + FILE_LOAD * MAX_LOADS;
/// Offset of the base of its table, behind the word of the table: [`RANGE_TABLE`].
pub const FILE_BASE: u32 = 8;
/// Offset of the [version of its contents](contents).
pub const FILE_CONTENTS: u32 = 16;
/// Offset of the parts of the file that are loaded as code.
pub const FILE_LOADS: u32 = 24;
/// The most parts.
pub const MAX_LOADS: u32 = 4;
/// Bytes of a part: the offset of its first page, its bytes from there on, and what is added to an
/// offset for the address.
pub const FILE_LOAD: u32 = 24;
/// Bytes of what is known of a file that the consumer is asked for: process, address, the number of
/// its share.
pub const UNKNOWN_FILE: u32 = 24;

/// What tells contents of a file from others: its size, and when it was changed (`ctime`, seconds
/// and nanoseconds), which no user can set.
pub fn contents(size: u64, (seconds, nanoseconds): (i64, u32)) -> u64 {
    let mixed = size.wrapping_mul(KEY_FACTOR).wrapping_add(seconds as u64);
    mixed.wrapping_mul(KEY_FACTOR).wrapping_add(u64::from(nanoseconds))
}

/// A part of a file that is loaded as code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Load {
    /// The offset of its first page.
    pub offset: u64,
    pub bytes: u64,
    /// What is added to an offset for the address.
    pub moved: u64,
}

/// What programs know of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRecord {
    /// See [`RANGE_TABLE`].
    pub table: u64,
    /// The address of the first page of the table.
    pub base: u64,
    /// See [`contents`].
    pub contents: u64,
    /// At most [`MAX_LOADS`].
    pub loads: Vec<Load>,
}

impl FileRecord {
    /// The value of the map.
    pub fn bytes(&self) -> Vec<u8> {
        let loads = self.loads.iter().copied().chain(std::iter::repeat(Load::default()));
        let loads = loads.take(MAX_LOADS as usize).flat_map(|load| [load.offset, load.bytes, load.moved]);
        [self.table, self.base, self.contents].into_iter().chain(loads).flat_map(u64::to_ne_bytes).collect()
    }
}

/// The key of a file. The device is in the kernel's own encoding.
pub fn file_key((major, minor): (u32, u32), inode: u64) -> [u8; FILE_KEY as usize] {
    let device = u64::from(major << 20 | minor & 0xf_ffff);
    let mut key = [0; FILE_KEY as usize];
    let (first, second) = key.split_at_mut(FILE_INODE as usize);
    first.copy_from_slice(&device.to_ne_bytes());
    second.copy_from_slice(&inode.to_ne_bytes());
    key
}

/// A file that the consumer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct UnknownFile {
    pub device: (u32, u32),
    pub inode: u64,
    /// A process that has it mapped.
    pub process: u32,
    /// Where the mapping begins.
    pub start: u64,
    /// The number by which its share is given back.
    pub share: u64,
}

impl UnknownFile {
    /// Of an element of the map.
    pub fn decode(key: &[u8], value: &[u8]) -> Option<UnknownFile> {
        let word =
            |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let device = word(key, 0)? as u32;
        Some(UnknownFile {
            device: (device >> 20, device & 0xf_ffff),
            inode: word(key, FILE_INODE as usize)?,
            process: word(value, 0)? as u32,
            start: word(value, 8)?,
            share: word(value, 16)?,
        })
    }
}

/// The directory, in memory that programs read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directory<'m>(&'m [AtomicU64]);

impl Range {
    /// The range behind those of an address space: which language runtime it runs, by its number,
    /// and the address of the state of that. An address at which no memory of a process is counts
    /// as none.
    pub fn of_runtime(runtime: Option<(u8, u64)>) -> Range {
        let (number, state) = runtime.filter(|(_, state)| state >> RUNTIME_SHIFT == 0).unwrap_or_default();
        Range { start: state | u64::from(number) << RUNTIME_SHIFT, end: 0, table: NO_TABLE, delta: 0 }
    }
}

impl<'m> Directory<'m> {
    /// The directory in `memory`.
    pub fn new(memory: &'m [AtomicU64]) -> Option<Directory<'m>> {
        (memory.len() >= (DIRECTORY / 8) as usize).then_some(Directory(memory))
    }

    fn word(self, offset: u32) -> Option<&'m AtomicU64> {
        self.0.get((offset / 8) as usize)
    }

    /// The offsets of the slots of a key, in the order in which they are tried.
    fn slots(key: u64) -> impl Iterator<Item = u32> {
        let first = (key >> KEY_SHIFT) as u32;
        (0..PROBES).map(move |step| (first.wrapping_add(step) & (SLOTS - 1)) * SLOT)
    }

    fn find(self, key: u64) -> Option<u32> {
        let is = |at: &u32| self.word(*at).is_some_and(|word| word.load(Ordering::Relaxed) == key);
        Directory::slots(key).find(is)
    }

    /// Writes ranges. No slot that programs can see has them.
    pub fn write(self, first: u32, ranges: &[Range]) {
        for (range, number) in ranges.iter().zip(first..RANGES_END) {
            let words = [range.start, range.end, range.table, range.delta];
            for (value, at) in words.into_iter().zip((number * RANGE..).step_by(8)) {
                if let Some(word) = self.word(at) {
                    word.store(value, Ordering::Relaxed);
                }
            }
        }
    }

    /// Gives an address space these ranges, and the one behind them, which is that of its
    /// interpreter. False if it has no slot.
    pub fn publish(self, key: u64, first: u32, count: u32) -> bool {
        let is_free =
            |at: &u32| self.word(*at).is_some_and(|word| matches!(word.load(Ordering::Relaxed), 0 | DELETED));
        let Some(at) = self.find(key).or_else(|| Directory::slots(key).find(is_free)) else { return false };
        let (Some(slot), Some(state)) = (self.word(at), self.word(at + 8)) else { return false };
        let version = (state.load(Ordering::Relaxed) >> 48).wrapping_add(1);
        state.store(version << 48 | u64::from(count & 0xffff) << 32 | u64::from(first), Ordering::SeqCst);
        slot.store(key, Ordering::SeqCst);
        true
    }

    /// Removes an address space. Its ranges can be used for another.
    pub fn remove(self, key: u64) {
        let Some(at) = self.find(key) else { return };
        if let (Some(slot), Some(state)) = (self.word(at), self.word(at + 8)) {
            slot.store(DELETED, Ordering::SeqCst);
            let version = (state.load(Ordering::Relaxed) >> 48).wrapping_add(1);
            state.store(version << 48, Ordering::SeqCst);
        }
    }

    /// The address spaces that programs have asked for: the key, and a process that has it.
    pub fn wanted(self) -> impl Iterator<Item = (u64, u32)> + use<'m> {
        (0..WANTED_MAX).filter_map(move |number| {
            let at = WANTED + WANTED_SIZE * number;
            let key = self.word(at)?.load(Ordering::SeqCst);
            let process = self.word(at + 8)?.load(Ordering::SeqCst);
            (key != 0).then_some((key, process as u32))
        })
    }

    /// Who has how many of the files that the consumer is asked for.
    pub fn counters(self) -> Option<Counters<'m>> {
        Counters::new(self.0, SHARES_AT)
    }

    /// A table was removed: no program uses what it has found of it before. Its memory can be used
    /// for another.
    pub fn removed(self) {
        if let Some(word) = self.word(VERSION) {
            word.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many stacks programs have left [`INCOMPLETE`] because the kernel could not tell a
    /// mapping at that time.
    pub fn busy(self) -> u64 {
        self.word(BUSY).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Lets programs ask for a key again.
    pub fn answered(self, key: u64) {
        let at = WANTED + WANTED_SIZE * (key >> WANTED_SHIFT & u64::from(WANTED_MAX - 1)) as u32;
        if let Some(word) = self.word(at).filter(|word| word.load(Ordering::SeqCst) == key) {
            word.store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_runtime_and_the_address_of_its_state() {
        assert_eq!(Range::of_runtime(Some((3, 0x7f00_1234_5678))).start, 3 << 56 | 0x7f00_1234_5678);
        assert_eq!(Range::of_runtime(Some((3, u64::MAX))).start, 0);
        assert_eq!(Range::of_runtime(None).start, 0);
    }

    #[test]
    fn a_row_has_its_rule_and_place() {
        for kind in 0..9 {
            let kind = Kind::of(kind).unwrap();
            for bp in [FramePointer::Same, FramePointer::AtCfa(-128), FramePointer::AtBp(127)] {
                for offset in [0, 8, -8, i32::MAX, i32::MIN] {
                    let rule = Rule { kind, offset, bp };
                    for low in [0, 1, 4095] {
                        let row = rule.row(low);
                        assert_eq!((Rule::of_row(row), row & (PAGE - 1)), (rule, u64::from(low)));
                    }
                }
            }
        }
        assert_eq!(Rule::of_row(u64::MAX).kind, Kind::Unknown);
    }

    #[test]
    fn a_file_that_is_asked_for_has_the_key_that_it_is_given() {
        let key = file_key((259, 70_001), 1 << 40 | 5);
        let value: Vec<u8> = [77u64, 0x7f00_0000_1000, 9].into_iter().flat_map(u64::to_ne_bytes).collect();
        let asked = UnknownFile::decode(&key, &value).unwrap();
        assert_eq!((asked.device, asked.inode), ((259, 70_001), 1 << 40 | 5));
        assert_eq!((asked.process, asked.start, asked.share), (77, 0x7f00_0000_1000, 9));
        assert_eq!(file_key(asked.device, asked.inode), key);
        assert_eq!(UnknownFile::decode(&key, &value[1..]), None);
        let load = Load { offset: 1, bytes: 2, moved: 3 };
        let record = FileRecord { loads: vec![load; 9], ..FileRecord::default() };
        assert_eq!(record.bytes().len(), FILE as usize);
        assert_ne!(contents(4096, (1, 5)), contents(4096, (2, 5)));
        assert_ne!(contents(4096, (1, 5)), contents(4096, (1, 6)));
        assert_ne!(contents(4096, (1, 5)), contents(4097, (1, 5)));
    }

    #[test]
    fn a_slot_has_another_version_after_each_change() {
        let memory: Vec<AtomicU64> = (0..DIRECTORY / 8).map(|_| AtomicU64::new(0)).collect();
        let directory = Directory::new(&memory).unwrap();
        let state =
            |key| directory.find(key).map(|at| directory.word(at + 8).unwrap().load(Ordering::Relaxed));
        let (one, two) = (key(1, 2, 3), key(1, 2, 4));
        assert!(one != two && one > DELETED);
        assert!(directory.publish(one, FIRST_RANGE, 2));
        assert_eq!(state(one), Some(1 << 48 | 2 << 32 | u64::from(FIRST_RANGE)));
        assert_eq!(state(two), None);
        assert!(directory.publish(one, FIRST_RANGE + 2, 3));
        assert_eq!(state(one), Some(2 << 48 | 3 << 32 | u64::from(FIRST_RANGE + 2)));
        directory.remove(one);
        assert_eq!(state(one), None);
        // As many as have the same slots.
        let alike = |n: u64| 0x1234 << KEY_SHIFT | n << 1 | 2;
        for n in 0..u64::from(PROBES) {
            assert!(directory.publish(alike(2 * n + 1), FIRST_RANGE, 1), "{n}");
        }
        assert!(!directory.publish(alike(99), FIRST_RANGE, 1));
        directory.remove(alike(5));
        assert!(directory.publish(alike(99), FIRST_RANGE, 1));
        assert!(Directory::new(&memory[1..]).is_none());
    }
}
