//! The ring of one CPU, to which the kernel writes the side-band of all processes of that CPU.
//!
//! The ring is mapped writable, so that the kernel does not overwrite records that were not read:
//! it counts them and writes a `LOST` record later. Records are multiples of 8 bytes, so the ring
//! is read as words.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use bpf_sys::{Mmap, PerfEvent, SysError, page_size};

use super::record::{self, Event, Record};

/// Offsets in the ring's first page (`struct perf_event_mmap_page`).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// The clock of records: that of a process's start time.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is valid; this clock exists since 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The bytes in a ring of this size that make its descriptor readable.
fn watermark(bytes: usize) -> u32 {
    u32::try_from(bytes / 8).unwrap_or(u32::MAX)
}

/// Tries with this number of pages, and with half of it as long as that is not permitted.
fn halving<T>(mut pages: usize, mut open: impl FnMut(usize) -> Result<T, SysError>) -> Result<T, SysError> {
    loop {
        match open(pages) {
            Err(e) if e.is_permission() && pages > 1 => pages /= 2,
            done => return done,
        }
    }
}

/// The side-band of one CPU.
#[derive(Debug)]
pub(super) struct Ring {
    cpu: u32,
    event: PerfEvent,
    memory: Mmap,
    page: usize,
}

impl Ring {
    /// Opens the side-band of a CPU with a ring of `bytes` (rounded to a power of two of pages).
    /// The ring becomes smaller if the limit of locked memory requires that. With `prompt` every
    /// record makes its descriptor readable.
    pub(super) fn open(cpu: u32, bytes: usize, prompt: bool) -> Result<Ring, SysError> {
        let page = page_size();
        let (event, memory) = halving(bytes.div_ceil(page).next_power_of_two(), |pages| {
            // The event has the watermark, so each size needs an event of its own.
            let event = PerfEvent::side_band(cpu, if prompt { 1 } else { watermark(pages * page) })?;
            let memory = Mmap::new(&event, 0, page * (pages + 1), true)?;
            Ok((event, memory))
        })?;
        event.enable()?;
        Ok(Ring { cpu, event, memory, page })
    }

    /// The CPU.
    pub(super) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// The event's descriptor, readable when an eighth of the ring is full, or at once.
    pub(super) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.memory.word(offset).map_or(0, |word: &AtomicU64| word.load(order))
    }

    /// Appends all records that are in the ring to `records`, and frees their space.
    pub(super) fn read(&self, records: &mut Vec<Record>) {
        let head = self.load(DATA_HEAD, Ordering::Acquire);
        let tail = self.load(DATA_TAIL, Ordering::Relaxed);
        let size = self.memory.len() - self.page;
        let length = head.wrapping_sub(tail).min(size as u64) as usize;
        if length == 0 {
            return;
        }
        let at = tail as usize & (size - 1);
        let mut words = vec![0u64; length / 8];
        let (first, rest) = words.split_at_mut(((size - at) / 8).min(length / 8));
        self.memory.copy_words(self.page + at, first);
        self.memory.copy_words(self.page, rest);
        if let Some(word) = self.memory.word(DATA_TAIL) {
            word.store(head, Ordering::Release);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut rest = &bytes[..];
        while let Some((record, after)) = record::parse(rest) {
            records.push(record);
            rest = after;
        }
        if !rest.is_empty() {
            // What the kernel wrote is not understood: what follows in the ring is unknown.
            records.push(Record { time: now(), event: Event::Lost(1) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_becomes_smaller_has_the_watermark_of_its_size() {
        let mut tried = Vec::new();
        let opened = halving(8, |pages| {
            tried.push((pages, watermark(pages * 4096)));
            if pages > 2 { Err(SysError::new("map", libc::EPERM)) } else { Ok(pages) }
        });
        assert_eq!(opened.unwrap(), 2);
        assert_eq!(tried, [(8, 4096), (4, 2048), (2, 1024)]);
        let other = || SysError::new("map", libc::EINVAL);
        assert!(halving(8, |_| Err::<(), _>(other())).is_err());
        assert!(halving(8, |_| Err::<(), _>(SysError::new("map", libc::EPERM))).is_err());
    }
}
