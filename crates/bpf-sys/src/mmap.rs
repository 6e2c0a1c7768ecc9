//! Shared memory of a map or perf event, as words.
//!
//! The kernel's programs change this memory while we read it, so no `&[u8]` of it exists. The only
//! view is of atomics, and copies are made word by word. For this reason all layouts of the data
//! plane consist of 64-bit words.

use crate::error::SysError;
use crate::fork::forks;
use crate::syscall::last_errno;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared mapping, unmapped on drop.
#[derive(Debug)]
pub struct Mmap {
    base: *mut u8,
    len: usize,
    writable: bool,
    forks: u32,
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
        Mmap::map(fd.as_fd().as_raw_fd(), offset, len, protection, libc::MAP_SHARED)
            .map_err(fail)
            .inspect(|base| {
                // A child of a fork would keep the map or event in the kernel. SAFETY: a mapping of
                // ours; only what a fork does with it changes.
                unsafe { libc::madvise(base.cast(), len, libc::MADV_DONTFORK) };
            })
            .map(|base| Mmap { base, len, writable, forks: forks() })
    }

    /// Memory of this process that is zero. A page takes memory when it is first written.
    pub fn anonymous(len: usize) -> Result<Mmap, SysError> {
        let fail = |errno| SysError::new(format!("map {len} bytes of memory"), errno);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Mmap::map(-1, 0, len, libc::PROT_READ | libc::PROT_WRITE, flags).map_err(fail).map(|base| Mmap {
            base,
            len,
            writable: true,
            forks: forks(),
        })
    }

    fn map(fd: RawFd, offset: libc::off_t, len: usize, protection: i32, flags: i32) -> Result<*mut u8, i32> {
        // SAFETY: a new mapping at an address that the kernel chooses. It overlaps nothing of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if base == libc::MAP_FAILED { Err(last_errno()) } else { Ok(base.cast()) }
    }

    /// Length of the mapping in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing is mapped. That never happens, because the kernel rejects empty mappings.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when the mapping is writable.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The mapping, also if it is read-only: then it must only be loaded from.
    fn view(&self) -> &[AtomicU64] {
        // SAFETY: a mapping is page-aligned and contains `len / 8` words. It lives as long as
        // `self`. The kernel's changes are compatible with atomic access.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 8) }
    }

    /// The whole mapping as 64-bit words. There are none if it is read-only, because a store would
    /// kill the process: see [`Mmap::load`] and [`Mmap::copy_words`].
    pub fn words(&self) -> &[AtomicU64] {
        if self.writable { self.view() } else { &[] }
    }

    /// The words of `len` bytes from byte `offset`. `None` when the range is not inside the mapping
    /// or not aligned to 8, or the mapping is read-only.
    pub fn slice(&self, offset: usize, len: usize) -> Option<&[AtomicU64]> {
        range(self.words(), offset, len)
    }

    /// The word at byte `offset`; `None` if the mapping is read-only.
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if offset.is_multiple_of(8) { self.words().get(offset / 8) } else { None }
    }

    /// The value of the word at byte `offset`, of any mapping.
    pub fn load(&self, offset: usize, order: Ordering) -> Option<u64> {
        if offset.is_multiple_of(8) { self.view().get(offset / 8).map(|word| word.load(order)) } else { None }
    }

    /// Copies words from byte `offset` on. Each word is copied atomically, in no order. False when
    /// out of bounds.
    pub fn copy_words(&self, offset: usize, out: &mut [u64]) -> bool {
        match range(self.view(), offset, out.len() * 8) {
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

/// The words of `len` bytes from byte `offset`.
fn range(words: &[AtomicU64], offset: usize, len: usize) -> Option<&[AtomicU64]> {
    if !offset.is_multiple_of(8) || !len.is_multiple_of(8) {
        return None;
    }
    words.get(offset / 8..offset.checked_add(len)? / 8)
}

impl Drop for Mmap {
    fn drop(&mut self) {
        // A child of a fork does not have it: other memory may be at its address.
        if self.forks == forks() {
            // SAFETY: exactly the mapping of `new`. Views borrow from `self`, so none is left.
            unsafe { libc::munmap(self.base.cast(), self.len) };
        }
    }
}
