//! The memory of the command, and how a session ends that gets no more of it.
//!
//! ```text
//!  less than the reserve is left   the session ends with its next look: it prints its aggregations, and says why it ends
//!  a request is refused            the reserve is given back, the request is made again, and the session ends
//!  and is refused again            the same with the reserve for the end, in which rows are sorted and printed: a quarter of the limit
//!  and is refused once more        whoever can do without gets the error (`try_reserve`); for others the standard library aborts
//! ```
//!
//! A reserve is address space that nobody has touched, so it costs no memory. It helps where a
//! limit refuses requests (`ulimit -v`); the limit of a cgroup refuses nothing, and ends a process
//! instead. No sign tells reliably that this is near: what a cgroup has (`memory.current`) includes
//! files that the kernel would drop first, and its pressure is that of the others in it too. So
//! what the maps of a session need is compared with that limit before they are made
//! (`bpf_runtime::needed`), and nothing is done later.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

#[cfg(target_env = "musl")]
use dlmalloc::GlobalDlmalloc as Heap;
#[cfg(not(target_env = "musl"))]
use std::alloc::System as Heap;

/// Bytes whose lack ends a session.
const RESERVE: usize = 1 << 20;

/// Bytes that remain for its end, at least.
const LEAST_FOR_END: usize = 4 << 20;

/// Where nothing limits the address space, or the memory, when a session begins.
const FOR_END: usize = 64 << 20;

/// How often a refused request is made again.
const RETRIES: usize = 100;

/// The reserve, until it is given back.
static KEPT: Reserve = Reserve::none();
/// The reserve for the end.
static FOR_THE_END: Reserve = Reserve::none();
/// A request was refused while there was a reserve to keep.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Nothing is left to give back: a request that is refused is not made again. On a busy machine
/// each try takes a turn of all others, and what is lost then may be thousands of keys.
static SPENT: AtomicBool = AtomicBool::new(false);

/// The allocator of the command, with a reserve: that of the C library, or where that is musl,
/// dlmalloc (in Rust).
pub struct Memory;

/// Address space that is kept.
struct Reserve {
    at: AtomicPtr<u8>,
    bytes: AtomicUsize,
}

impl Reserve {
    const fn none() -> Reserve {
        Reserve { at: AtomicPtr::new(null_mut()), bytes: AtomicUsize::new(0) }
    }

    /// Keeps so much, if there is as much. What was kept before is given back.
    fn keep(&self, bytes: usize) {
        self.give_back();
        self.bytes.store(bytes, Ordering::SeqCst);
        self.at.store(take(bytes), Ordering::SeqCst);
    }

    /// True if there was something to give back.
    fn give_back(&self) -> bool {
        let at = self.at.swap(null_mut(), Ordering::SeqCst);
        give_back(at, self.bytes.load(Ordering::SeqCst));
        !at.is_null()
    }

    #[cfg(test)]
    fn is_none(&self) -> bool {
        self.at.load(Ordering::SeqCst).is_null()
    }
}

/// Takes address space from the system, not from the heap: whoever gives a large block back to the
/// heap changes how it deals with others.
fn take(bytes: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory, which nobody else uses.
    let taken = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    if taken == libc::MAP_FAILED { null_mut() } else { taken.cast() }
}

fn give_back(taken: *mut u8, bytes: usize) {
    if !taken.is_null() {
        // SAFETY: `take` has mapped so much there, and whoever takes it out of a `Reserve` is the
        // only one who has it.
        unsafe { libc::munmap(taken.cast(), bytes) };
    }
}

/// Keeps a reserve from now on. A session begins.
pub(crate) fn keep() {
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|which| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel fills the struct.
        unsafe { libc::getrlimit(which, &raw mut limit) };
        limit.rlim_cur
    });
    let quarter = usize::try_from(limits[0].min(limits[1]) / 4).unwrap_or(usize::MAX);
    FOR_THE_END.keep(quarter.clamp(LEAST_FOR_END, FOR_END));
    KEPT.keep(RESERVE);
    SPENT.store(false, Ordering::SeqCst);
}

/// Limits the memory that this process writes from now on.
pub(crate) fn limit(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the kernel reads the struct.
    unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) };
}

/// Bytes of memory that this process writes, as the kernel counts them for that limit.
pub(crate) fn written() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The session is to end: the reserve is given back.
fn end() {
    if KEPT.give_back() {
        SHORT.store(true, Ordering::SeqCst);
    }
}

/// True when a request was refused since [`keep`], or one of the reserve's size would be. The C
/// library makes requests of its own, and ends the process where they are refused; so a session
/// ends before all is used.
pub(crate) fn is_short() -> bool {
    if !SHORT.load(Ordering::SeqCst) {
        let more = take(RESERVE);
        if more.is_null() { end() } else { give_back(more, RESERVE) }
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
    if !first.is_null() || SPENT.load(Ordering::SeqCst) {
        return first;
    }
    end();
    let again = with_retries(&request);
    if !again.is_null() {
        return again;
    }
    FOR_THE_END.give_back();
    let last = with_retries(&request);
    SPENT.fetch_or(last.is_null(), Ordering::SeqCst);
    last
}

/// A request that is made again: the thread that has taken a reserve may be about to give it back.
fn with_retries(request: &impl Fn() -> *mut u8) -> *mut u8 {
    for _ in 0..RETRIES {
        let again = request();
        if !again.is_null() {
            return again;
        }
        std::thread::yield_now();
    }
    null_mut()
}

// SAFETY: every block is the heap's, with the layout that the caller gives; a request that fails
// has changed nothing, so it can be made again. Nothing here allocates or panics.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        with_reserve(|| unsafe { Heap.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        with_reserve(|| unsafe { Heap.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises. A block that could not be resized is still there.
        with_reserve(|| unsafe { Heap.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { Heap.dealloc(block, layout) }
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
            if tries.get() == 1 { null_mut() } else { unsafe { Heap.alloc(block) } }
        };
        assert!(!is_short());
        let given = with_reserve(request);
        assert!(!given.is_null() && is_short() && KEPT.is_none() && !FOR_THE_END.is_none());
        // SAFETY: it was allocated with this layout.
        unsafe { Heap.dealloc(given, block) };
        assert_eq!(tries.get(), 2);
        // The second is given back when it is refused again, and what is refused once more is
        // refused.
        assert!(
            with_reserve(|| {
                tries.set(tries.get() + 1);
                null_mut()
            })
            .is_null()
        );
        assert_eq!(tries.get(), 3 + 2 * RETRIES);
        assert!(FOR_THE_END.is_none());
        // From then on nothing helps, and each request is made once.
        let refused = || {
            tries.set(tries.get() + 1);
            null_mut()
        };
        assert!(with_reserve(refused).is_null());
        assert_eq!(tries.get(), 4 + 2 * RETRIES);
    }
}
