//! The memory of the command, and how a session ends that gets no more of it.
//!
//! ```text
//!  less than the reserve is left   the session ends with its next look: it prints its aggregations, and says why it ends
//!  a request is refused            the reserve is given back, the request is made again, and the session ends
//!  and is refused again            whoever can do without gets the error (`try_reserve`); for others the standard library aborts
//! ```
//!
//! The reserve is address space that nobody has touched, so it costs no memory. It helps where a limit refuses requests (`ulimit -v`); the
//! limit of a cgroup refuses nothing, and ends a process instead.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Bytes that remain for the end of a session.
const RESERVE: usize = 1 << 20;

/// How often a refused request is made again.
const RETRIES: usize = 100;

/// The reserve, until it is given back.
static KEPT: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// A request was refused while there was a reserve to keep.
static SHORT: AtomicBool = AtomicBool::new(false);

/// The allocator of the command: that of the system, with a reserve.
pub struct Memory;

/// Takes the reserve from the system, not from the heap: whoever gives a large block back to the heap changes how it deals with others.
fn take() -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which nobody else uses.
    let taken = unsafe { libc::mmap(null_mut(), RESERVE, access, kind, -1, 0) };
    if taken == libc::MAP_FAILED { null_mut() } else { taken.cast() }
}

fn give_back(kept: *mut u8) {
    if !kept.is_null() {
        // SAFETY: `take` has mapped so much there, and whoever takes it out of `KEPT` is the only one who has it.
        unsafe { libc::munmap(kept.cast(), RESERVE) };
    }
}

/// Keeps a reserve from now on. A session begins.
pub(crate) fn keep() {
    give_back(KEPT.swap(take(), Ordering::SeqCst));
}

/// The session is to end: the reserve is given back.
fn end() {
    let kept = KEPT.swap(null_mut(), Ordering::SeqCst);
    if !kept.is_null() {
        SHORT.store(true, Ordering::SeqCst);
        give_back(kept);
    }
}

/// True when a request was refused since [`keep`], or one of the reserve's size would be. The C library makes requests of its own, and ends
/// the process where they are refused; so a session ends before all is used.
pub(crate) fn is_short() -> bool {
    if !SHORT.load(Ordering::SeqCst) {
        let more = take();
        if more.is_null() { end() } else { give_back(more) }
    }
    SHORT.load(Ordering::SeqCst)
}

/// True when a request was refused since [`keep`], or a session was ended before one was.
pub(crate) fn was_short() -> bool {
    SHORT.load(Ordering::SeqCst)
}

/// A request, which is made again when it was refused and the reserve is given back.
fn with_reserve(request: impl Fn() -> *mut u8) -> *mut u8 {
    let first = request();
    if !first.is_null() {
        return first;
    }
    end();
    for _ in 0..RETRIES {
        // The thread that has taken the reserve may be about to give it back.
        let again = request();
        if !again.is_null() {
            return again;
        }
        std::thread::yield_now();
    }
    null_mut()
}

// SAFETY: every block is the system's, with the layout that the caller gives; a request that fails has changed nothing, so it can be made
// again. Nothing here allocates or panics.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        with_reserve(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        with_reserve(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises. A block that could not be resized is still there.
        with_reserve(|| unsafe { System.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_takes_the_reserve_and_is_made_again() {
        keep();
        let tries = std::cell::Cell::new(0);
        let block = Layout::new::<u64>();
        let request = || {
            tries.set(tries.get() + 1);
            // SAFETY: the size is not zero.
            if tries.get() == 1 { null_mut() } else { unsafe { System.alloc(block) } }
        };
        assert!(!is_short());
        let given = with_reserve(request);
        assert!(!given.is_null() && is_short() && KEPT.load(Ordering::SeqCst).is_null());
        // SAFETY: it was allocated with this layout.
        unsafe { System.dealloc(given, block) };
        assert_eq!(tries.get(), 2);
        // There is none any more, and what is refused again is refused.
        assert!(
            with_reserve(|| {
                tries.set(tries.get() + 1);
                null_mut()
            })
            .is_null()
        );
        assert_eq!(tries.get(), 3 + RETRIES);
    }
}
