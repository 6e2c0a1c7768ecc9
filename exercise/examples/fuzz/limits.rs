//! What an input may take: memory and CPU time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Bytes that are allocated, and the most since [`begin`].
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, and how much of it is used.
pub(crate) struct Counting;

fn add(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    if now > MOST.load(Relaxed) {
        MOST.store(now, Relaxed);
    }
}

// SAFETY: all requests are passed on as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Relaxed);
        add(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Measures from now on.
pub(crate) fn begin() -> usize {
    let now = NOW.load(Relaxed);
    MOST.store(now, Relaxed);
    now
}

/// The most bytes that were allocated since `begun`, besides what was then.
pub(crate) fn most(begun: usize) -> usize {
    MOST.load(Relaxed).saturating_sub(begun)
}

/// CPU time of this process outside of the kernel: another tracer of this machine makes system
/// calls slow.
pub(crate) fn cpu_time() -> Duration {
    // SAFETY: all-zero is a valid struct, which the kernel fills.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    Duration::new(used.ru_utime.tv_sec as u64, 1000 * used.ru_utime.tv_usec as u32)
}

/// Ends an allocation of more than the machine should give to one input.
pub(crate) fn bound_memory() {
    let most = 6 << 30;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the kernel reads the struct.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
}
