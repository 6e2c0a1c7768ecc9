//! The stack store: each different stack is stored once, with as many words as it has frames.
//!
//! A record or key holds 8 bytes, the hash of the stack; 0 means that the stack could not be taken.
//! The key decision: a 64-bit hash of the stack *is* the id. The kernel's own stack maps use 32
//! bits and either lose or overwrite stacks that collide. Here two of a million stacks collide with
//! probability 3e-8, and nothing is ever overwritten. So an id names the same stack until the
//! session ends, however often the stack is evicted and stored again.
//!
//! The same addresses mean other code in another process, and in another program of the same
//! process. So the hash of a user stack includes the process and its *generation*: when the leader
//! started, and how many programs it has executed. The entry has a time at which that generation
//! ran, which is when the stack was stored. The time, not the generation, says which program it
//! was, because what the kernel reports about processes (perf's side-band) has times and no such
//! numbers.
//!
//! A process can write any addresses on its stack. So the hash has a random key in each session
//! ([`crate::siphash`]), without which nobody can make two stacks with one id.
//!
//! A store is one *side* at a time: an array of blocks, the only inner map of a map of maps. A
//! stack is in the block that the low bits of its id select. Sides of a session differ only in the
//! number of their blocks.
//!
//! ```text
//!  block                                             entry (whole words)
//!    0  claimed  words ever reserved   fetch-add      +0  tgid     u32   0 for kernel stacks
//!    8  mask     blocks of the side - 1; block 0      +4  nframes  u16, ncalls u16
//!   64  slots    id u64, place u64                    +8  time     u64   when it was stored; 0 for kernel stacks
//!    …  words    entries                              +16 pcs[nframes], calls[ncalls] ([`crate::calls`])
//!
//!  a program:  finds id in a slot                                            ──► writes id
//!              else reserves words ──► writes the entry ──► place: 0 -> p    ──► id: 0 -> id
//!              (no slot, no words: a counted stack drop, and the id 0)
//! ```
//!
//! An id in a slot means that its entry is complete. If two programs store one stack at the same
//! time, its words are reserved twice, which does no harm. The program whose reservation makes a
//! block half full rings the doorbell, right after the reservation, whatever comes of its stack.
//!
//! **Eviction.** The consumer replaces a side that is half full by an empty one, of twice the size
//! if the old one filled quickly, up to the limit of the session:
//!
//! ```text
//!  new side in the map of maps ──► grace period ──► reads every stack of the old side ──► frees it
//! ```
//!
//! A program that found a stack in the old side may write its id later, but it ends before the
//! grace period does. So every id that was or will be written has its stack in the new side, in the
//! old side, or with the consumer, which asks in this order: its own memory, the new side, the old
//! side. A stack that a program meets again is stored again, under the same id.
//!
//! **Forgetting.** The consumer forgets an evicted stack when no record or key can still name it:
//! - A record with its id was written by a firing that ended before the eviction, or by one that
//!   stored the stack again. The first one's time is before the eviction. So all of them are
//!   consumed when every record until the time of the eviction is
//!   ([`crate::read::RingReader::complete_until`]). A drain alone proves nothing: it stops at a
//!   record that is not committed, and records behind it in the ring may be old.
//! - A key with its id in a table of aggregations was written by such a firing. It has left the
//!   table when a snapshot that began after the eviction is merged. The consumer knows the keys
//!   that it has.
//!
//! [`crate::model`] explores this.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::siphash;

/// Offset of the process (tgid, the tracer's namespace).
pub const TGID: u32 = 0;
/// Offset of the number of frames, and above it that of the frames of an interpreter.
pub const NFRAMES: u32 = 4;
/// Offset of the time of storing, in nanoseconds since boot. A program has the generation there
/// while it computes the hash.
pub const TIME: u32 = 8;
/// Offset of the frames.
pub const PCS: u32 = 16;
/// Maximum number of frames of a stack (`kernel.perf_event_max_stack`'s default).
pub const FRAMES_MAX: u32 = 127;
/// Stands in a stack of the kernel for the frames of a guest that was interrupted.
pub const GUEST: u64 = 2;
/// Follows a stack of the kernel that the program has walked otherwise than the kernel.
pub const DIFFERS: u64 = 3;
/// Position of the number of frames of an interpreter above that of frames.
pub const CALLS_SHIFT: u32 = 16;
/// Maximum number of frames of an interpreter.
pub const CALLS_MAX: u32 = FRAMES_MAX;

/// Offset of the number of reserved words in a block.
pub const CLAIMED: u32 = 0;
/// Offset of the mask of block numbers in block 0.
pub const MASK: u32 = 8;
/// Offset of the first slot.
pub const SLOTS: u32 = 64;
/// Bytes of a slot: an id, and the place of its entry.
pub const SLOT: u32 = 16;
/// Offset of the place in a slot: the entry's offset in the block in words, or 0.
pub const PLACE: u32 = 8;
/// Slots that are tried. Step `i` advances by `i` slots.
pub const PROBES: u32 = 32;
/// The least words of an entry, so that the slots of a block suffice for its entries.
pub const ENTRY_LEAST: u32 = 6;
/// The block that a stack is in is in the low bits of its id, and its first slot from this bit on.
pub const SLOT_SHIFT: u32 = 32;

/// The largest block, and the size at which a store starts if its limit allows it.
pub const BLOCK_MAX: u64 = 1 << 20;
/// The smallest block.
pub const BLOCK_MIN: u64 = 1 << 14;

/// Bytes of an entry of at most `frames` frames, those of an interpreter among them.
pub const fn value_size(frames: u32) -> u32 {
    PCS + 8 * frames
}

/// The words to be reserved for an entry.
pub const fn entry_words(frames: u32) -> u32 {
    let words = PCS / 8 + frames;
    if words < ENTRY_LEAST { ENTRY_LEAST } else { words }
}

/// The generation of a process: the start of its leader in nanoseconds since boot, and the number
/// of programs that it has executed. Processes of one pid differ in the first, its programs in the
/// second.
pub const fn generation(start: u64, execs: u64) -> u64 {
    start.wrapping_add(execs.wrapping_mul(GENERATION_FACTOR))
}

/// By what the number of programs is multiplied in a [`generation`]. It is odd, so all programs of
/// one process differ. Its small multiples are far from each other (it is 2^64 divided by the
/// golden ratio), so the sums of two processes are not equal because one started a little later and
/// executed more programs.
pub const GENERATION_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The id of a stack: the hash of its entry, as it is before the time replaces the generation.
/// Kernel stacks have process and generation 0.
pub fn id(key: siphash::Key, tgid: u32, generation: u64, pcs: &[u64], calls: &[u64]) -> u64 {
    let head = [head(tgid, pcs.len(), calls.len()), generation];
    siphash::hash(key, head.into_iter().chain(pcs.iter().chain(calls).copied())).max(1)
}

/// The first word of an entry.
fn head(tgid: u32, frames: usize, calls: usize) -> u64 {
    u64::from(tgid) | (frames as u64) << 32 | (calls as u64) << (32 + CALLS_SHIFT)
}

/// The layout of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockShape {
    /// Bytes of a block.
    pub size: u32,
    /// Slots, a power of two.
    pub slots: u32,
}

impl BlockShape {
    /// The shape of the blocks of a store that may have `limit` bytes.
    pub fn new(limit: u64) -> BlockShape {
        let side = (limit / 2).clamp(BLOCK_MIN, BLOCK_MAX);
        let size = 1 << side.ilog2();
        BlockShape { size, slots: size / 64 }
    }

    /// The most blocks of a side of a store that may have `limit` bytes: a power of two.
    pub fn blocks_max(self, limit: u64) -> u32 {
        let blocks = (limit / 2 / u64::from(self.size.max(1))).clamp(1, 1 << 16);
        1 << blocks.ilog2()
    }

    /// Offset of the first entry.
    pub const fn entries(self) -> u32 {
        SLOTS + SLOT * self.slots
    }

    /// Words for entries.
    pub const fn words(self) -> u32 {
        (self.size - self.entries()) / 8
    }

    /// The slot to be tried first.
    pub const fn first_slot(self, id: u64) -> u32 {
        (id >> SLOT_SHIFT) as u32 & (self.slots - 1)
    }
}

/// A stack read from the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Process (tgid, the tracer's namespace; 0 outside of it); 0 for kernel stacks.
    pub tgid: u32,
    /// A time at which the process ran the program whose stack this is, in nanoseconds since boot;
    /// 0 if it is not known, and for kernel stacks.
    pub time: u64,
    /// Return addresses, innermost first.
    pub pcs: Vec<u64>,
    /// Frames of an interpreter, innermost first: [`crate::calls::Call`].
    pub calls: Vec<u64>,
}

/// A side of the store, in memory that programs change.
#[derive(Clone, Copy, Debug)]
pub struct Side<'m> {
    memory: &'m [AtomicU64],
    shape: BlockShape,
}

impl<'m> Side<'m> {
    /// The side in `memory`, whose whole blocks are used.
    pub fn new(memory: &'m [AtomicU64], shape: BlockShape) -> Side<'m> {
        Side { memory, shape }
    }

    /// Writes the header of a new side, whose memory is zero. The number of its blocks is a power
    /// of two.
    pub fn begin(self) {
        let mask = self.blocks().count() as u64 - 1;
        if let Some(word) = self.memory.get(MASK as usize / 8) {
            word.store(mask, Ordering::Release);
        }
    }

    fn blocks(self) -> std::slice::ChunksExact<'m, AtomicU64> {
        self.memory.chunks_exact((self.shape.size as usize / 8).max(1))
    }

    /// True when a block is half full.
    pub fn is_half_full(self) -> bool {
        let half = u64::from(self.shape.words() / 2);
        self.blocks().any(|b| b.first().is_some_and(|claimed| claimed.load(Ordering::Relaxed) >= half))
    }

    /// The stack of an id, if it is stored.
    pub fn find(self, id: u64) -> Option<Stack> {
        let number = id & (self.blocks().count() as u64).checked_sub(1)?;
        let block = self.blocks().nth(usize::try_from(number).ok()?)?;
        let mut slot = self.shape.first_slot(id);
        for step in 1..=PROBES {
            match slot_words(block, slot)? {
                (0, 0) => return None,
                (found, place) if found == id => return entry(block, place),
                // Another stack, perhaps one that is just being stored.
                _ => slot = (slot + step) & (self.shape.slots - 1),
            }
        }
        None
    }

    /// Every stored stack with its id.
    pub fn stacks(self) -> impl Iterator<Item = (u64, Stack)> + 'm {
        let slots = self.shape.slots;
        self.blocks().flat_map(move |block| {
            (0..slots).filter_map(move |slot| {
                let (id, place) = slot_words(block, slot).filter(|(id, _)| *id != 0)?;
                Some((id, entry(block, place)?))
            })
        })
    }
}

/// The id and the place in a slot. Where there is an id, there is its place.
fn slot_words(block: &[AtomicU64], slot: u32) -> Option<(u64, u64)> {
    let at = (SLOTS + SLOT * slot) as usize / 8;
    let id = block.get(at)?.load(Ordering::Acquire);
    Some((id, block.get(at + PLACE as usize / 8)?.load(Ordering::Acquire)))
}

/// The entry at a place, `None` when it is malformed.
fn entry(block: &[AtomicU64], place: u64) -> Option<Stack> {
    let word = |at: usize| Some(block.get(at)?.load(Ordering::Relaxed));
    let place = usize::try_from(place).ok().filter(|place| *place != 0)?;
    let at = |offset: u32| place.checked_add(offset as usize / 8);
    let head = word(at(TGID)?)?;
    let counts = (head >> 32) as u32;
    let frames = Some(counts & 0xffff).filter(|n| (1..=FRAMES_MAX).contains(n))?;
    let calls = Some(counts >> CALLS_SHIFT).filter(|n| *n <= CALLS_MAX)?;
    let mut words = (0..frames + calls).map(|i| word(at(PCS + 8 * i)?));
    let pcs = words.by_ref().take(frames as usize).collect::<Option<_>>()?;
    Some(Stack { tgid: head as u32, time: word(at(TIME)?)?, pcs, calls: words.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores a stack as a program does, in memory that no program changes.
    fn store(memory: &[AtomicU64], shape: BlockShape, stack: &Stack) -> Option<u64> {
        let Stack { tgid, time, pcs, calls } = stack;
        let id = id([1, 2], *tgid, *time, pcs, calls);
        let count = memory.len() / (shape.size as usize / 8);
        let block = memory.chunks_exact(shape.size as usize / 8).nth(id as usize & (count - 1))?;
        let words = entry_words((pcs.len() + calls.len()) as u32);
        let at = block[0].fetch_add(u64::from(words), Ordering::Relaxed) as u32;
        let place = shape.entries() / 8 + at;
        if at + words > shape.words() {
            return None;
        }
        let head = head(*tgid, pcs.len(), calls.len());
        for (i, word) in [head, *time].iter().chain(pcs).chain(calls).enumerate() {
            block[place as usize + i].store(*word, Ordering::Relaxed);
        }
        let mut slot = shape.first_slot(id);
        for step in 1..=PROBES {
            let word = ((SLOTS + SLOT * slot) / 8) as usize;
            if block[word].load(Ordering::Relaxed) == 0 {
                block[word + 1].store(u64::from(place), Ordering::Relaxed);
                block[word].store(id, Ordering::Relaxed);
                return Some(id);
            }
            slot = (slot + step) & (shape.slots - 1);
        }
        None
    }

    #[test]
    fn stacks_of_another_process_program_or_start_have_another_id() {
        let pcs = [0x1000, 0x2000];
        let of = |tgid, start, execs| id([1, 2], tgid, generation(start, execs), &pcs, &[]);
        let (first, rest) = pcs.split_at(1);
        let ids = [
            of(7, 5, 1),
            of(8, 5, 1),
            of(7, 6, 1),
            of(7, 5, 2),
            of(7, 5, 0),
            id([1, 2], 0, 0, &pcs, &[]),
            id([1, 2], 7, generation(5, 1), first, rest),
        ];
        for (n, id) in ids.iter().enumerate() {
            assert!(!ids[..n].contains(id), "{n} {ids:x?}");
        }
    }

    #[test]
    fn programs_of_one_process_have_different_generations_however_many_it_executes() {
        let of = |execs: u64| generation(5, execs);
        for execs in (0..70_000).chain([1 << 32, 1 << 52, 1 << 63]) {
            assert!(execs == 1 || of(execs) != of(1), "{execs}");
            assert!(execs == 4096 || of(execs) != of(4096), "{execs}");
        }
    }

    fn memory(bytes: u32) -> Vec<AtomicU64> {
        (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn stored_stacks_of_every_length_are_found_in_sides_of_every_size() {
        let shape = BlockShape::new(0);
        for blocks in [1, 2, 8] {
            let memory = memory(shape.size * blocks);
            let side = Side::new(&memory, shape);
            side.begin();
            assert_eq!(memory[1].load(Ordering::Relaxed), u64::from(blocks) - 1);
            let mut stored = Vec::new();
            for n in 0..12 * u64::from(blocks) {
                let pcs: Vec<u64> = (0..n % 20 + 1).map(|i| n << 32 | i).collect();
                let calls = (0..n % 7).collect();
                let stack = Stack { tgid: n as u32 % 3, time: n % 2, pcs, calls };
                stored.push((store(&memory, shape, &stack).unwrap(), stack));
            }
            for (id, stack) in &stored {
                assert_eq!(side.find(*id).as_ref(), Some(stack));
            }
            assert_eq!(side.stacks().count(), stored.len());
            assert_eq!(side.find(12345), None);
        }
    }

    #[test]
    fn a_block_has_slots_for_all_entries_that_fit() {
        for limit in [0, 1 << 15, 100_000, 1 << 21, 1 << 30] {
            let shape = BlockShape::new(limit);
            assert!(shape.slots.is_power_of_two() && shape.size.is_power_of_two());
            assert!(shape.words() / ENTRY_LEAST <= shape.slots);
            assert!(shape.words() >= entry_words(FRAMES_MAX));
            let all = 2 * u64::from(shape.size) * u64::from(shape.blocks_max(limit));
            assert!(all <= limit.max(2 * BLOCK_MIN) && 2 * all > limit.min(1 << 37), "{limit}: {all}");
        }
    }

    #[test]
    fn a_malformed_side_is_read_without_a_panic() {
        let shape = BlockShape::new(0);
        let memory = memory(shape.size);
        let side = Side::new(&memory, shape);
        for (id, place, head) in [
            (7, u64::MAX, 0),
            (7, 1 << 20, 0),
            (7, u64::from(shape.size) / 8 - 1, 5 << 32),
            (7, 1000, u64::MAX),
            (7, 1000, 0x80_0001 << 32),
            (7, 0, 1 << 32),
        ] {
            memory[SLOTS as usize / 8].store(id, Ordering::Relaxed);
            memory[SLOTS as usize / 8 + 1].store(place, Ordering::Relaxed);
            memory[1000].store(head, Ordering::Relaxed);
            if let Some(word) = usize::try_from(place).ok().and_then(|p| memory.get(p)) {
                word.store(head, Ordering::Relaxed);
            }
            assert_eq!(side.find(id), None);
            assert_eq!(side.stacks().count(), 0);
        }
        assert_eq!(Side::new(&[], shape).find(1), None);
    }
}
