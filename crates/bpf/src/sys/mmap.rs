//! Shared memory of a map or perf event, as words.
//!
//! The kernel's programs change this memory while we read it, so no `&[u8]` of it exists. The only
//! view is of atomics, and copies are made word by word. For this reason all layouts of the data
//! plane consist of 64-bit words.

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

// SAFETY: the memory is accessed only through atomics, and the mapping lives as long as the value.
unsafe impl Send for Mmap {}
// SAFETY: as above.
unsafe impl Sync for Mmap {}

impl Mmap {
    /// Maps `len` bytes of `fd` from `offset` (both multiples of the page size).
    pub fn new(fd: &impl AsFd, offset: usize, len: usize, writable: bool) -> Result<Mmap, SysError> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let fail = |errno| SysError::new(format!("map {len} bytes of kernel memory"), errno);
        let offset = libc::off_t::try_from(offset).map_err(|_| fail(libc::EINVAL))?;
        // SAFETY: a new mapping at an address that the kernel chooses. It overlaps nothing of ours.
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

    /// Length of the mapping in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing is mapped. That never happens, because the kernel rejects empty mappings.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when the mapping is writable. A store to a read-only mapping kills the process.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The whole mapping as 64-bit words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: a mapping is page-aligned and contains `len / 8` words. It lives as long as
        // `self`. The kernel's changes are compatible with atomic access.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 8) }
    }

    /// The whole mapping as 32-bit words.
    pub fn words32(&self) -> &[AtomicU32] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 4) }
    }

    /// The words of `len` bytes from byte `offset`. `None` when the range is not inside the mapping
    /// or not aligned to 8.
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

    /// Copies words from byte `offset` on. Each word is copied atomically, in no order. False when
    /// out of bounds.
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
        // SAFETY: exactly the mapping of `new`. Views borrow from `self`, so none is left.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
