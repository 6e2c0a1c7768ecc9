//! Forked children of a process that traces.
//!
//! A child of `fork` without `exec` has copies of all descriptors of its parent. A program of BPF
//! stays attached as long as one of them is open, so probes would go on after the parent has closed
//! them, until the child ends. The `dtrace` command has no such children. A program that embeds the
//! library may (`multiprocessing` of Python): it asks for [`close_in_forked_children`].
//!
//! ```text
//!  KernelFd::new, drop ──► OPEN, a bit for each descriptor
//!  fork ──► prepare: waits until no descriptor comes or goes
//!           child:   closes those of OPEN; the number of the fork is another one
//!           parent:  descriptors may come and go again
//! ```
//!
//! **Why a table and not `/proc/self/fd`.** Other libraries of the process may have descriptors of
//! BPF, which are not ours to close. **Why bits.** The handler in the child may make system calls
//! only; a lock or a list could be in the middle of a change by a thread that the child does not
//! have. Bits take 128 KB of addresses, and memory only for the descriptors that there are.
//!
//! What else a child has of its parent are values: their memory was that of threads, processes and
//! mappings that the child does not have. [`OfProcess`] is for those that a child must not drop.
//! Mappings of kernel memory are not copied (`MADV_DONTFORK`).

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Words of the table: as many bits as a process can have descriptors where `fs.nr_open` is what
/// the kernel sets. One with a greater number is not closed in a child.
const WORDS: usize = 1 << 14;

/// Descriptors of BPF and perf that this process has open.
static OPEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// All words from this one on were always zero.
static USED: AtomicU32 = AtomicU32::new(0);

/// Forks and changes of this process.
static GATE: Gate = Gate { changes: AtomicU32::new(0), forking: AtomicU32::new(0) };

/// Forks wait for changes, and changes for forks.
struct Gate {
    /// Descriptors that come or go now, each in its thread.
    changes: AtomicU32,
    /// Threads that fork now.
    forking: AtomicU32,
}

/// See [`forks`].
static FORKS: AtomicU32 = AtomicU32::new(0);

/// How often, and how long each time in nanoseconds, a fork and a change wait for each other: 1 s
/// at most. A thread that holds what the other waits for must not stop both for ever; a descriptor
/// can then be left open in the child.
const LOOKS: u32 = 20_000;
const LOOK: libc::c_long = 50_000;

/// How many forks there were from the process that asked for [`close_in_forked_children`] to this
/// one. A value of another number is of another process.
pub fn forks() -> u32 {
    FORKS.load(SeqCst)
}

/// From now on children of `fork` close the descriptors of BPF and perf that they would inherit.
/// For a program that embeds the library and may fork; needed once.
pub fn close_in_forked_children() {
    static ASKED: Once = Once::new();
    // SAFETY: the handlers are functions of this program, and safe where they run: they use atomics
    // and system calls only. They stay registered, so a shared object that has them must not be
    // unloaded (the C library unregisters those of one that is).
    ASKED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
}

/// Waits until `number` is zero, or for so many looks. Returns how many are left.
fn wait_for_none(number: &AtomicU32, mut looks: u32) -> u32 {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: LOOK };
    while number.load(SeqCst) != 0 && looks > 0 {
        // SAFETY: reads its first argument only.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
        looks -= 1;
    }
    looks
}

impl Gate {
    /// A fork begins: no change is under way, and none begins until it is over; or one takes too
    /// long.
    fn begin_fork(&self) {
        self.forking.fetch_add(1, SeqCst);
        wait_for_none(&self.changes, LOOKS);
    }

    fn end_fork(&self) {
        self.forking.fetch_sub(1, SeqCst);
    }

    /// A change begins, as soon as no fork is under way, for which `wait` waits; or forks take too
    /// long.
    fn begin_change(&self, wait: impl Fn(&AtomicU32, u32) -> u32) {
        let mut looks = LOOKS;
        self.changes.fetch_add(1, SeqCst);
        // When one fork is over, another one may have begun, which did not see this change.
        while self.forking.load(SeqCst) != 0 && looks > 0 {
            self.changes.fetch_sub(1, SeqCst);
            looks = wait(&self.forking, looks);
            self.changes.fetch_add(1, SeqCst);
        }
    }

    fn end_change(&self) {
        self.changes.fetch_sub(1, SeqCst);
    }

    /// Nothing is under way.
    fn open(&self) {
        self.changes.store(0, SeqCst);
        self.forking.store(0, SeqCst);
    }
}

extern "C" fn before() {
    GATE.begin_fork();
}

extern "C" fn in_parent() {
    GATE.end_fork();
}

extern "C" fn in_child() {
    let used = USED.load(SeqCst) as usize;
    for (number, word) in OPEN.iter().enumerate().take(used) {
        let mut open = word.swap(0, SeqCst);
        while open != 0 {
            let fd = number * 64 + open.trailing_zeros() as usize;
            // SAFETY: a descriptor of a `KernelFd`, whose owner is of the other process.
            unsafe { libc::close(fd as RawFd) };
            open &= open - 1;
        }
    }
    GATE.open();
    FORKS.fetch_add(1, SeqCst);
}

/// While it lives, a descriptor comes or goes, and a fork waits.
pub(crate) struct Change(u32);

impl Change {
    pub(crate) fn begin() -> Change {
        GATE.begin_change(wait_for_none);
        Change(forks())
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // The child begins at zero.
        if self.0 == forks() {
            GATE.end_change();
        }
    }
}

/// Notes that a descriptor is open or not. True if it was noted as open.
fn note(fd: RawFd, is_open: bool) -> bool {
    let Ok(fd) = usize::try_from(fd) else { return false };
    let (index, bit) = (fd / 64, 1 << (fd % 64));
    let Some(word) = OPEN.get(index) else { return false };
    let old = if is_open {
        USED.fetch_max(index as u32 + 1, SeqCst);
        word.fetch_or(bit, SeqCst)
    } else {
        word.fetch_and(!bit, SeqCst)
    };
    old & bit != 0
}

/// A descriptor of BPF or perf, closed on drop by the process that made it.
#[derive(Debug)]
pub struct KernelFd {
    fd: ManuallyDrop<OwnedFd>,
    forks: u32,
}

impl KernelFd {
    /// One that has just come: the caller has begun a [`Change`] before.
    pub(crate) fn new(fd: OwnedFd, _: &Change) -> KernelFd {
        note(fd.as_raw_fd(), true);
        KernelFd { fd: ManuallyDrop::new(fd), forks: forks() }
    }
}

impl Drop for KernelFd {
    // Not once for each type that has one.
    #[inline(never)]
    fn drop(&mut self) {
        let _change = Change::begin();
        // In a child it is closed, and the number may be another's.
        if self.forks == forks() {
            note(self.fd.as_raw_fd(), false);
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

impl AsFd for KernelFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for KernelFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A value that a forked child does not drop: it stands for threads, processes and memory that the
/// child does not have.
#[derive(Debug)]
pub struct OfProcess<T> {
    value: ManuallyDrop<T>,
    forks: u32,
}

impl<T> OfProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> OfProcess<T> {
        OfProcess { value: ManuallyDrop::new(value), forks: forks() }
    }

    /// False in a child of the process that made it.
    pub fn is_here(&self) -> bool {
        self.forks == forks()
    }

    /// The value.
    pub fn into_inner(mut self) -> T {
        // SAFETY: `self` is forgotten, so the value is neither used nor dropped here again.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        std::mem::forget(self);
        value
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for OfProcess<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_noted_while_it_is_open() {
        let (file, change) = (std::fs::File::open("/dev/null").unwrap(), Change::begin());
        let fd = KernelFd::new(file.into(), &change);
        drop(change);
        let number = fd.as_raw_fd();
        let word = &OPEN[number as usize / 64];
        assert_ne!(word.load(SeqCst) & 1 << (number % 64), 0);
        drop(fd);
        assert_eq!(word.load(SeqCst) & 1 << (number % 64), 0);
    }

    #[test]
    fn a_change_waits_for_the_fork_that_begins_when_another_one_is_over() {
        let gate = Gate { changes: AtomicU32::new(0), forking: AtomicU32::new(0) };
        gate.begin_fork();
        let waits = std::cell::Cell::new(0);
        gate.begin_change(|forking, looks| {
            // No fork waits for a change that waits itself.
            assert_eq!(gate.changes.load(SeqCst), 0);
            waits.set(waits.get() + 1);
            gate.end_fork();
            if waits.get() < 3 {
                // Seen to be over, and begun again.
                gate.begin_fork();
            }
            assert_eq!(forking.load(SeqCst), u32::from(waits.get() < 3));
            looks
        });
        assert_eq!((waits.get(), gate.changes.load(SeqCst)), (3, 1));
        gate.end_change();
        assert_eq!((gate.changes.load(SeqCst), gate.forking.load(SeqCst)), (0, 0));
    }

    #[test]
    fn numbers_that_the_table_does_not_have_are_not_noted() {
        for fd in [-1, WORDS as RawFd * 64, RawFd::MAX] {
            assert!(!note(fd, true) && !note(fd, false), "{fd}");
        }
    }
}
