//! The probe table: the probes that come while a session runs. A program that serves them finds
//! what it must know about the probe that fired in a row of this table.
//!
//! ```text
//!  map of maps, CHUNKS entries      chunk: an array of CHUNK_ROWS rows of ROW bytes
//!    [0] ──► rows 0–511             row  +0  generation  u32   0: no site
//!    [1] ──► rows 512–1023               +4  id          u32   of the probe
//!    [2] ──► the spare                   +8  names       4 × u32   interned
//!    [3]     empty                       +24 epid        u32   of the first clause; the n-th has epid + n
//!                                        +28 pid         u32   of a probe of a process, else 0
//!                                        +32 data        u64   for the context
//!                                        +40 clauses     3 × u64   bit n: the n-th clause is enabled
//! ```
//!
//! The attach cookie of a site is the generation and the row ([`cookie`]). The program compares the
//! generations before it reads anything else, and ends where they differ.
//!
//! ```text
//!  arrival   members ──► links are attached ──► generation (release)       all sites of an arrival begin at once
//!  removal   generation = 0 ──► links are closed ──► grace period          no program reads the row any more
//!                           ──► every ring is drained, a snapshot merged   no record or key of the site is to come
//!                           ──► the row and the enabled-probe ids are free
//! ```
//!
//! The key decision: a generation is used once, and never for another site of the row. So a firing
//! that the kernel delayed before the program began finds another generation, however late it is.
//! One that is in the program is awaited by the grace period before the row is written again. And a
//! link may be attached before its sites are complete: until the generation is there, nothing
//! fires. The model is `crate::model::sites`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a row.
pub const ROW: u32 = 64;
/// Rows of a chunk; a power of two.
pub const CHUNK_ROWS: u32 = 512;
/// Chunks of a table.
pub const CHUNKS: u32 = 256;

/// Offset of the generation.
pub const GENERATION: u32 = 0;
/// Offset of the probe's id.
pub const ID: u32 = 4;
/// Offset of the four interned names.
pub const NAMES: u32 = 8;
/// Offset of the enabled-probe id of the first clause.
pub const EPID: u32 = 24;
/// Offset of the process id.
pub const PID: u32 = 28;
/// Offset of the word for the context.
pub const DATA: u32 = 32;
/// Offset of the bits of the clauses.
pub const CLAUSES: u32 = 40;
/// The greatest number of clauses of a program.
pub const CLAUSES_MAX: usize = 192;

const WORDS: usize = ROW as usize / 8;

/// The cookie of a site.
pub const fn cookie(row: u32, generation: u32) -> u64 {
    (generation as u64) << 32 | row as u64
}

/// The members of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The probe's id.
    pub id: u32,
    /// Interned provider, module, function, name.
    pub names: [u32; 4],
    /// The enabled-probe id of the first clause.
    pub epid: u32,
    /// The process of a probe of a process, else 0.
    pub pid: u32,
    /// For the context.
    pub data: u64,
    /// Bit n: the n-th clause is enabled.
    pub clauses: [u64; 3],
}

impl Site {
    fn words(&self) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [a, b, c, d] = self.names;
        let [x, y, z] = self.clauses;
        [pair(0, self.id), pair(a, b), pair(c, d), pair(self.epid, self.pid), self.data, x, y, z]
    }
}

/// The mapped memory of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a>(&'a [AtomicU64]);

impl<'a> Chunk<'a> {
    /// A chunk; `None` if the memory is too small.
    pub fn new(memory: &'a [AtomicU64]) -> Option<Chunk<'a>> {
        memory.get(..CHUNK_ROWS as usize * WORDS).map(Chunk)
    }

    fn row(&self, row: u32) -> &[AtomicU64] {
        let first = (row % CHUNK_ROWS) as usize * WORDS;
        self.0.get(first..first + WORDS).unwrap_or_default()
    }

    /// Writes the members of a row that no program reads. Its generation stays 0.
    pub fn write(&self, row: u32, site: &Site) {
        for (word, value) in self.row(row).iter().zip(site.words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Gives a row its generation: from now on the site fires.
    pub fn publish(&self, row: u32, generation: u32) {
        if let Some(word) = self.row(row).first() {
            let id = word.load(Ordering::Relaxed) >> 32;
            word.store(id << 32 | u64::from(generation), Ordering::Release);
        }
    }

    /// Takes the generation from a row: from now on the site does not fire. A program may still
    /// read the members.
    pub fn withdraw(&self, row: u32) {
        self.publish(row, 0);
    }
}

/// The rows of a table: which are free, and the generations.
#[derive(Debug, Default)]
pub struct Rows {
    /// Rows that exist.
    installed: u32,
    /// Rows that were used before, the lowest first: so the last chunks become free.
    free: BinaryHeap<Reverse<u32>>,
    /// The first row that was never used.
    next: u32,
    generation: u32,
    /// How many rows of each chunk are in use or wait for their release.
    used: Vec<u32>,
}

impl Rows {
    /// Another chunk exists.
    pub fn installed(&mut self) {
        self.installed += CHUNK_ROWS;
        self.used.push(0);
    }

    /// Takes the last chunks away of which no row is in use, except one. The result is the number
    /// of chunks that remain. A chunk that is installed in their place begins without generations.
    pub fn trim(&mut self) -> u32 {
        while let [.., 0, 0] = self.used[..] {
            self.used.pop();
            self.installed -= CHUNK_ROWS;
        }
        if self.next > self.installed {
            self.free.retain(|Reverse(row)| *row < self.installed);
            self.next = self.installed;
        }
        self.used.len() as u32
    }

    /// The number of rows that can be taken now.
    pub fn available(&self) -> usize {
        self.free.len() + (self.installed - self.next) as usize
    }

    /// The number of rows that are in use or wait for their release.
    pub fn used(&self) -> usize {
        self.next as usize - self.free.len()
    }

    /// The number of chunks of which a row was used.
    pub fn chunks_used(&self) -> u32 {
        self.next.div_ceil(CHUNK_ROWS)
    }

    /// Takes a free row and its generation. `None` if no row is free, or every generation was used.
    pub fn take(&mut self) -> Option<(u32, u32)> {
        let generation = self.generation.checked_add(1)?;
        let row = match self.free.pop() {
            Some(Reverse(row)) => row,
            None if self.next < self.installed => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.generation = generation;
        self.used.get_mut((row / CHUNK_ROWS) as usize).into_iter().for_each(|used| *used += 1);
        Some((row, generation))
    }

    /// Gives a row back, whose site was removed and released (see [`Removal`]), or was never
    /// published.
    pub fn give_back(&mut self, row: u32) {
        self.free.push(Reverse(row));
        self.used.get_mut((row / CHUNK_ROWS) as usize).into_iter().for_each(|used| *used -= 1);
    }
}

/// How far a round of removals is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The links are being closed; then a grace period.
    Closing,
    /// Rings have records of the sites.
    Draining,
    /// A snapshot that begins now has the last keys of the sites.
    Merging,
}

/// Sites that were removed. They are released in rounds: all that were removed before a round
/// begins share its grace period, drain and snapshot.
#[derive(Debug)]
pub struct Removal<T> {
    waiting: Vec<T>,
    round: Option<(Stage, Vec<T>)>,
}

impl<T> Default for Removal<T> {
    fn default() -> Removal<T> {
        Removal { waiting: Vec::new(), round: None }
    }
}

impl<T> Removal<T> {
    /// Adds a site whose row has lost its generation.
    pub fn add(&mut self, site: T) {
        self.waiting.push(site);
    }

    /// True if a site waits for its release.
    pub fn is_pending(&self) -> bool {
        self.round.is_some() || !self.waiting.is_empty()
    }

    /// Begins a round, if sites wait for one and none is in progress. The caller closes their
    /// links, waits for a grace period, and calls [`Removal::closed`].
    pub fn begin(&mut self) -> Option<&mut [T]> {
        if self.round.is_some() || self.waiting.is_empty() {
            return None;
        }
        let (_, sites) = self.round.insert((Stage::Closing, std::mem::take(&mut self.waiting)));
        Some(sites)
    }

    /// The stage of the current round.
    pub fn stage(&self) -> Option<Stage> {
        self.round.as_ref().map(|(stage, _)| *stage)
    }

    /// The links are closed, and a grace period has passed since.
    pub fn closed(&mut self) {
        self.advance(Stage::Closing, Stage::Draining);
    }

    /// A drain that began after [`Removal::closed`] took every record.
    pub fn drained(&mut self) {
        self.advance(Stage::Draining, Stage::Merging);
    }

    /// A snapshot that began after [`Removal::drained`] is merged. Returns the sites of the round:
    /// their rows and ids are free.
    pub fn merged(&mut self) -> Vec<T> {
        match self.round.take() {
            Some((Stage::Merging, sites)) => sites,
            other => {
                self.round = other;
                Vec::new()
            }
        }
    }

    fn advance(&mut self, from: Stage, to: Stage) {
        if let Some((stage, _)) = &mut self.round
            && *stage == from
        {
            *stage = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_members_at_their_offsets() {
        let memory: Vec<AtomicU64> = (0..CHUNK_ROWS as usize * WORDS).map(|_| AtomicU64::default()).collect();
        let chunk = Chunk::new(&memory).unwrap();
        let site =
            Site { id: 0x11, names: [1, 2, 3, 4], epid: 0x22, pid: 0x33, data: 0x44, clauses: [5, 6, 7] };
        chunk.write(CHUNK_ROWS + 3, &site);
        chunk.publish(CHUNK_ROWS + 3, 0x55);
        let words = memory[3 * WORDS..4 * WORDS].iter().map(|w| w.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let u32_at = |at: u32| u32::from_le_bytes(bytes[at as usize..][..4].try_into().unwrap());
        let u64_at = |at: u32| u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap());
        assert_eq!((u32_at(GENERATION), u32_at(ID), u32_at(EPID), u32_at(PID)), (0x55, 0x11, 0x22, 0x33));
        assert_eq!([0, 1, 2, 3].map(|n| u32_at(NAMES + 4 * n)), [1, 2, 3, 4]);
        assert_eq!((u64_at(DATA), [0, 1, 2].map(|n| u64_at(CLAUSES + 8 * n))), (0x44, [5, 6, 7]));
        chunk.withdraw(CHUNK_ROWS + 3);
        assert_eq!(memory[3 * WORDS].load(Ordering::Relaxed), 0x11 << 32);
        assert_eq!(cookie(7, 0x55), 0x55_0000_0007);
    }

    #[test]
    fn a_generation_is_used_once() {
        let mut rows = Rows::default();
        assert_eq!(rows.take(), None);
        rows.installed();
        assert_eq!((rows.take(), rows.take()), (Some((0, 1)), Some((1, 2))));
        rows.give_back(0);
        assert_eq!(rows.take(), Some((0, 3)));
        assert_eq!((rows.used(), rows.available(), rows.chunks_used()), (2, CHUNK_ROWS as usize - 2, 1));
        rows.generation = u32::MAX;
        assert_eq!(rows.take(), None);
    }

    #[test]
    fn chunks_without_rows_in_use_are_taken_away_except_one() {
        let mut rows = Rows::default();
        (0..4).for_each(|_| rows.installed());
        let taken: Vec<u32> = (0..3 * CHUNK_ROWS).filter_map(|_| rows.take()).map(|(row, _)| row).collect();
        assert_eq!((taken.len(), rows.trim()), (3 * CHUNK_ROWS as usize, 4));
        // The last chunk in use keeps those before it.
        taken.iter().filter(|row| **row != CHUNK_ROWS + 5).for_each(|row| rows.give_back(*row));
        assert_eq!((rows.trim(), rows.used()), (3, 1));
        rows.give_back(CHUNK_ROWS + 5);
        assert_eq!((rows.trim(), rows.used(), rows.available()), (1, 0, CHUNK_ROWS as usize));
        // No row of the others is taken, and the generations continue.
        assert_eq!(rows.take(), Some((0, 3 * CHUNK_ROWS + 1)));
        let rest: Vec<u32> = std::iter::from_fn(|| rows.take()).map(|(row, _)| row).collect();
        assert!(rest.len() == CHUNK_ROWS as usize - 1 && rest.iter().all(|row| *row < CHUNK_ROWS));
        rows.installed();
        assert_eq!(rows.take().map(|(row, _)| row), Some(CHUNK_ROWS));
    }

    #[test]
    fn a_site_that_is_removed_during_a_round_waits_for_the_next() {
        let mut removal = Removal::default();
        removal.add(1);
        removal.add(2);
        assert_eq!(removal.begin(), Some(&mut [1, 2][..]));
        removal.add(3);
        assert_eq!(removal.begin(), None);
        // No stage is passed over.
        removal.drained();
        assert_eq!((removal.merged(), removal.stage()), (vec![], Some(Stage::Closing)));
        removal.closed();
        removal.drained();
        assert_eq!(removal.merged(), [1, 2]);
        assert!(removal.is_pending());
        assert_eq!(removal.begin(), Some(&mut [3][..]));
    }
}
