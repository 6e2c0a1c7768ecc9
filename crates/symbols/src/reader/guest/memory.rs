//! The memory of a process that may be that of a guest.

use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;

use files::open::ProcessDir;
use proc::maps;

use super::tables::Image;

/// Bytes of a page, of this machine and of the guest.
pub(super) const PAGE: u64 = 4096;

/// Pages that are looked at together.
const TOGETHER: usize = 512;

/// A smaller mapping is not the memory of a guest.
const SMALLEST: u64 = 16 << 20;

/// Mappings at most.
const MOST_REGIONS: usize = 1024;

pub(super) trait Memory {
    /// The mappings that may be a guest's memory.
    fn regions(&self) -> &[Range<u64>];

    /// Which of so many pages were used and are in memory.
    fn used(&self, from: u64, count: usize) -> Vec<bool>;

    /// Fills the buffer, or returns false.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

/// The memory of a process that runs.
pub(super) struct ProcessMemory {
    regions: Vec<Range<u64>>,
    contents: File,
    pages: File,
}

impl ProcessMemory {
    pub(super) fn open(pid: u32) -> io::Result<ProcessMemory> {
        let dir = ProcessDir::open(pid)?;
        let mut regions = Vec::new();
        maps::each_line(dir.maps()?, maps::MAX_READ, |line| {
            regions.extend(region(line));
            if regions.len() == MOST_REGIONS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(ProcessMemory { regions, contents: dir.memory()?, pages: dir.pages()? })
    }
}

/// The addresses in a line of `/proc/PID/maps`, if it may be a guest's memory: whoever runs a guest
/// may write all of it.
fn region(line: &[u8]) -> Option<Range<u64>> {
    let head = std::str::from_utf8(line.get(..line.len().min(64))?.split(|b| *b == b' ').next()?).ok()?;
    let (start, end) = head.split_once('-')?;
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let range = hex(start)?..hex(end)?;
    let is_writable = line.get(head.len()..)?.starts_with(b" rw");
    (is_writable && range.end.checked_sub(range.start)? >= SMALLEST).then_some(range)
}

impl Memory for ProcessMemory {
    fn regions(&self) -> &[Range<u64>] {
        &self.regions
    }

    fn used(&self, from: u64, count: usize) -> Vec<bool> {
        /// The page is in memory (`Documentation/admin-guide/mm/pagemap.rst`).
        const PRESENT: u64 = 1 << 63;
        let mut words = vec![0; 8 * count];
        if self.pages.read_exact_at(&mut words, from / PAGE * 8).is_err() {
            return vec![false; count];
        }
        let is_present =
            |word: &[u8]| word.first_chunk().is_some_and(|w| u64::from_le_bytes(*w) & PRESENT != 0);
        words.chunks_exact(8).map(is_present).collect()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        self.contents.read_exact_at(into, at).is_ok()
    }
}

/// Calls with each page that is used, until that returns false. `check` ends it with a reason.
pub(super) fn each_page(
    memory: &impl Memory,
    check: &dyn Fn() -> Result<(), String>,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> Result<(), String> {
    let mut buffer = vec![0; TOGETHER * PAGE as usize];
    for region in memory.regions() {
        let mut at = region.start;
        while at < region.end {
            check()?;
            let count = TOGETHER.min(((region.end - at) / PAGE) as usize).max(1);
            for run in runs(&memory.used(at, count)) {
                let from = at + run.start as u64 * PAGE;
                let Some(pages) = buffer.get_mut(..run.len() * PAGE as usize) else { continue };
                let is_whole = memory.read(from, pages);
                for (place, page) in
                    (from..).step_by(PAGE as usize).zip(pages.chunks_exact_mut(PAGE as usize))
                {
                    if (is_whole || memory.read(place, page)) && !each(place, page) {
                        return Ok(());
                    }
                }
            }
            at += count as u64 * PAGE;
        }
    }
    Ok(())
}

/// The parts without a false.
fn runs(used: &[bool]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut at = 0;
    for run in used.chunk_by(|a, b| a == b) {
        if run.first() == Some(&true) {
            runs.push(at..at + run.len());
        }
        at += run.len();
    }
    runs
}

/// A kernel's image in one mapping of a process.
pub(super) struct Within<'a, M> {
    pub(super) memory: &'a M,
    pub(super) region: &'a Range<u64>,
    /// How far an address of the process is from that of the kernel.
    pub(super) delta: u64,
}

impl<M: Memory> Image for Within<'_, M> {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let at = at.wrapping_add(self.delta);
        let end = at.checked_add(into.len() as u64);
        at >= self.region.start && end.is_some_and(|end| end <= self.region.end) && self.memory.read(at, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_writable_mappings_may_be_the_memory_of_a_guest() {
        for (line, is_one) in [
            ("7f0000000000-7f0020000000 rw-p 00000000 00:00 0 ", true),
            ("7f0000000000-7f0020000000 rw-s 00000000 00:01 7 /memfd:ram (deleted)", true),
            ("7f0000000000-7f0020000000 r--p 00000000 00:00 0 ", false),
            ("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ", false),
            ("7f0020000000-7f0000000000 rw-p 00000000 00:00 0 ", false),
            ("x-y rw-p", false),
            ("", false),
        ] {
            assert_eq!(region(line.as_bytes()).is_some(), is_one, "{line}");
        }
        assert_eq!(runs(&[true, true, false, true]), [0..2, 3..4]);
        assert_eq!(runs(&[false]), []);
    }
}
