//! The system call `bpf(2)`, and the forms in which it takes descriptors, memory and names.

use crate::fork::{Change, KernelFd};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Commands of `bpf(2)`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Cmd {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgLoad = 5,
    TestRun = 10,
    ProgNextId = 11,
    MapNextId = 12,
    ProgFdById = 13,
    MapFdById = 14,
    InfoByFd = 15,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    BtfFdById = 19,
    MapFreeze = 22,
    BtfNextId = 23,
    MapLookupBatch = 24,
    MapUpdateBatch = 26,
    LinkCreate = 28,
    LinkFdById = 30,
    LinkNextId = 31,
    EnableStats = 32,
    IterCreate = 33,
}

/// Calls `bpf(2)`. Retries at most a few times on EAGAIN, which means that a signal interrupted the
/// verification.
///
/// # Safety
/// `T` must be `repr(C)` without padding and must be the attribute of `cmd`. Every address in it
/// must be valid for what the kernel reads or writes there.
pub(crate) unsafe fn bpf<T>(cmd: Cmd, attr: &mut T) -> Result<i32, i32> {
    const RETRIES: u32 = 5;
    for attempt in 0.. {
        // SAFETY: the caller guarantees `attr`. The kernel reads and writes at most
        // `size_of::<T>()` bytes of it.
        let r = unsafe {
            libc::syscall(libc::SYS_bpf, cmd as i32, std::ptr::from_mut(attr), std::mem::size_of::<T>())
        };
        if r >= 0 {
            return Ok(r as i32);
        }
        let errno = last_errno();
        if errno != libc::EAGAIN || attempt >= RETRIES {
            return Err(errno);
        }
    }
    Err(libc::EAGAIN)
}

/// Like [`bpf`], for commands that return a new file descriptor and charge memory. Before 5.11,
/// memory is charged against RLIMIT_MEMLOCK, and exceeding it returns EPERM. In that case the limit
/// is raised (once in a process) and the command is repeated.
///
/// # Safety
/// As [`bpf`]. The command must return a file descriptor that nothing else owns.
pub(crate) unsafe fn bpf_fd<T>(cmd: Cmd, attr: &mut T) -> Result<KernelFd, i32> {
    let change = Change::begin();
    // SAFETY: guaranteed by the caller.
    let mut r = unsafe { bpf(cmd, attr) };
    if r == Err(libc::EPERM) && raise_memlock() {
        // SAFETY: as above.
        r = unsafe { bpf(cmd, attr) };
    }
    // SAFETY: the kernel just created this descriptor for us.
    r.map(|fd| KernelFd::new(unsafe { OwnedFd::from_raw_fd(fd) }, &change))
}

/// Raises RLIMIT_MEMLOCK to infinity on the first call. True when that changed the limit.
fn raise_memlock() -> bool {
    static TRIED: AtomicBool = AtomicBool::new(false);
    if TRIED.swap(true, Ordering::Relaxed) {
        return false;
    }
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `old` is a valid rlimit to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut old) } != 0
        || old.rlim_cur == libc::RLIM_INFINITY
    {
        return false;
    }
    let new = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `new` is a valid rlimit to read from.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const new) == 0 }
}

pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) fn raw(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd() as u32
}

pub(crate) fn addr<T>(slice: &[T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_ptr() as u64 }
}

pub(crate) fn addr_mut<T>(slice: &mut [T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_mut_ptr() as u64 }
}

/// A name for the kernel: at most 15 characters of `[A-Za-z0-9_.]`, NUL-terminated. Other
/// characters become `_`.
pub(crate) fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out[..15].iter_mut().zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() || from == b'_' || from == b'.' { from } else { b'_' };
    }
    out
}

pub(crate) fn name_text(name: &[u8; 16]) -> String {
    String::from_utf8_lossy(until_nul(name)).into_owned()
}

/// The bytes up to the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_are_truncated_and_sanitized() {
        assert_eq!(name_text(&object_name("syscall:::entry and more")), "syscall___entry");
        assert_eq!(name_text(&object_name("a.b")), "a.b");
    }
}
