//! The bytes of a blob, either owned or memory-mapped from sysfs.
//!
//! The kernel's own BTF is mapped where possible (6.16 and later). This avoids a copy of 5 MB, and
//! the mapping does not count as our memory. Regular files are always read, never mapped:
//! truncating a mapped file would kill the process by SIGBUS. Files in `/sys/kernel/btf` cannot be
//! truncated.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The sysfs directory of the kernel's BTF.
pub(super) const KERNEL_DIR: &str = "/sys/kernel/btf";

/// Maximum size, more than any kernel needs. The limit rejects `/dev/zero`.
const MAX_SIZE: u64 = 1 << 30;

pub(super) enum Data {
    Owned(Vec<u8>),
    Mapped(Mapping),
}

impl Data {
    pub(super) fn open(path: &Path) -> io::Result<Data> {
        let mut file = std::fs::File::open(path)?;
        if path.starts_with(KERNEL_DIR)
            && let Some(mapping) = Mapping::of(&file)
        {
            return Ok(Data::Mapped(mapping));
        }
        let size = file.metadata()?.len();
        if size > MAX_SIZE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too big for BTF"));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        file.by_ref().take(MAX_SIZE).read_to_end(&mut bytes)?;
        Ok(Data::Owned(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Data::Owned(bytes) => bytes,
            Data::Mapped(mapping) => mapping.bytes(),
        }
    }
}

/// A read-only mapping of a sysfs file.
pub(super) struct Mapping {
    start: *const u8,
    len: usize,
}

// SAFETY: the kernel never writes the memory after creating it, so any thread may read it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: &std::fs::File) -> Option<Mapping> {
        let len = usize::try_from(file.metadata().ok()?.len()).ok().filter(|n| *n > 0)?;
        // SAFETY: a new private read-only mapping of a descriptor that we own. It overlaps no
        // memory of ours.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        (start != libc::MAP_FAILED).then_some(Mapping { start: start.cast(), len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `start` maps `len` readable bytes until the drop, and the kernel's BTF never
        // changes or shrinks.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `of` mapped; no slice outlives `self`.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.len) };
    }
}
