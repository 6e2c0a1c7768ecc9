//! Memory that outlives a process that runs a target: what it ran last.
//!
//! ```text
//!  +0 inputs so far   +8 nanoseconds of CPU time   +16 bytes of the input   +24 the input, as `Case::encode` has it
//! ```

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use exercise::fuzz::case::Case;

const SIZE: usize = 4 << 20;
const HEAD: usize = 24;

/// The memory, in a file.
pub(crate) struct SharedMemory(*mut u8);

// SAFETY: the words are atomic; the input is written by one process and read when that has ended.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub(crate) fn create(dir: &Path) -> Result<SharedMemory, String> {
        let text = |e: std::io::Error| format!("{}: {e}", dir.display());
        std::fs::create_dir_all(dir).map_err(text)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(dir.join("input")).map_err(text)?;
        file.set_len(SIZE as u64).map_err(text)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file of this size; it stays for the life of the process.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), SIZE, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            Err(text(std::io::Error::last_os_error()))
        } else {
            Ok(SharedMemory(memory.cast()))
        }
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        // SAFETY: aligned, inside of the mapping, which stays.
        unsafe { &*self.0.cast::<AtomicU64>().add(n) }
    }

    pub(crate) fn begin(&self) {
        (0..3).for_each(|n| self.word(n).store(0, SeqCst));
    }

    /// Notes an input before it is run.
    pub(crate) fn note(&self, case: &Case) {
        let bytes = case.encode();
        let length = bytes.len().min(SIZE - HEAD);
        // SAFETY: inside of the mapping; nobody reads it while this process runs.
        unsafe { self.0.add(HEAD).copy_from_nonoverlapping(bytes.as_ptr(), length) };
        self.word(2).store(length as u64, SeqCst);
        self.word(0).fetch_add(1, SeqCst);
    }

    pub(crate) fn set_cpu(&self, time: Duration) {
        self.word(1).store(time.as_nanos() as u64, SeqCst);
    }

    pub(crate) fn count(&self) -> u64 {
        self.word(0).load(SeqCst)
    }

    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.word(1).load(SeqCst))
    }

    /// The input that was noted last.
    pub(crate) fn case(&self) -> Option<Case> {
        let length = (self.word(2).load(SeqCst) as usize).min(SIZE - HEAD);
        // SAFETY: inside of the mapping; the process that wrote it has ended.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.add(HEAD), length) };
        Case::decode(bytes)
    }
}
