//! Shared memory of a map or of a perf event, as words.
//!
//! The kernel's programs change this memory while we look at it, so there is no `&[u8]` of it anywhere: the only view
//! is of atomics, and copying goes word by word. All layouts of the data plane are 64-bit words for this reason.

use super::{SysError, last_errno};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A shared mapping, unmapped on drop.
#[derive(Debug)]
pub struct Mmap {
    base: *mut u8,
    len: usize,
    writable: bool,
}

// SAFETY: the memory is only reached through atomics, and the mapping lives as long as the value.
unsafe impl Send for Mmap {}
// SAFETY: as above.
unsafe impl Sync for Mmap {}

impl Mmap {
    /// Maps `len` bytes of `fd` from `offset` (both multiples of the page size).
    pub fn new(fd: &impl AsFd, offset: usize, len: usize, writable: bool) -> Result<Mmap, SysError> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let fail = |errno| SysError::new(format!("map {len} bytes of kernel memory"), errno);
        let offset = libc::off_t::try_from(offset).map_err(|_| fail(libc::EINVAL))?;
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(fail(last_errno()));
        }
        Ok(Mmap { base: base.cast(), len, writable })
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing is mapped (never, in practice: the kernel refuses empty mappings).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when our stores are allowed; storing into a read-only mapping kills the process.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// All of it.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: a mapping is page-aligned and `len / 8` words lie in it; it lives as long as `self`; the kernel
        // changes it only in ways that atomics allow for.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 8) }
    }

    /// All of it, as 32-bit words.
    pub fn words32(&self) -> &[AtomicU32] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 4) }
    }

    /// The words of `len` bytes from byte `offset`; `None` when not wholly inside or not aligned to 8.
    pub fn slice(&self, offset: usize, len: usize) -> Option<&[AtomicU64]> {
        if !offset.is_multiple_of(8) || !len.is_multiple_of(8) {
            return None;
        }
        self.words().get(offset / 8..offset.checked_add(len)? / 8)
    }

    /// The word at byte `offset`.
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if offset.is_multiple_of(8) { self.words().get(offset / 8) } else { None }
    }

    /// Copies words from byte `offset` on, each whole, without order among them. False when out of bounds.
    pub fn copy_words(&self, offset: usize, out: &mut [u64]) -> bool {
        match self.slice(offset, out.len() * 8) {
            Some(from) => {
                for (to, word) in out.iter_mut().zip(from) {
                    *to = word.load(Ordering::Relaxed);
                }
                true
            }
            None => false,
        }
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; views borrow from `self`, so none is left.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
