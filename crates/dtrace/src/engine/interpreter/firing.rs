//! A firing of a probe, and the memory that it reads.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dif::ir::Space;
use dif::subr::NameOf;
use plane::builtin::{Builtin, IntBuiltin};

/// A firing: which probe, and what its clauses find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firing {
    /// The probe, as in a description: `syscall::read:entry`. A field that is left out matches any
    /// probe that the program has enabled; the first one fires. Without such a probe nothing
    /// happens, as on a system where probes of others fire.
    pub probe: String,
    /// `timestamp`: monotonic nanoseconds. Records are printed in this order if they are consumed
    /// together.
    pub time: u64,
    /// `walltimestamp`: nanoseconds since 1970.
    pub walltime: u64,
    /// `vtimestamp`: CPU time of the thread, in nanoseconds.
    pub cputime: u64,
    /// `cpu`
    pub cpu: u32,
    /// `pid`
    pub pid: i32,
    /// `tid`; it owns the variables of `self->`.
    pub tid: i32,
    /// The process ids of the parent, its parent and so on: `ppid`, `progenyof()`.
    pub ancestors: Vec<i32>,
    /// `uid`
    pub uid: u32,
    /// `gid`
    pub gid: u32,
    /// `execname`, at most 15 bytes.
    pub execname: String,
    /// The thread is one of the kernel's.
    pub kernel_thread: bool,
    /// `ipl`: 0 in a thread, 1 in a soft interrupt, 2 in a hard interrupt, 3 in an NMI.
    pub level: u8,
    /// `arg0` and so on; those that are missing are 0.
    pub args: Vec<u64>,
    /// `errno`
    pub errno: i32,
    /// `uregs[]`
    pub registers: Vec<u64>,
    /// `curthread`
    pub curthread: u64,
    /// `stack()`: addresses, innermost first. The second one is `caller`.
    pub stack: Vec<u64>,
    /// `ustack()`, likewise; the second one is `ucaller`.
    pub ustack: Vec<u64>,
    /// The memory that can be read.
    pub memory: Arc<Memory>,
}

impl Firing {
    /// A firing of a probe; everything else is 0 or empty.
    pub fn of(probe: impl Into<String>) -> Firing {
        Firing { probe: probe.into(), ..Firing::default() }
    }
}

/// Memory of the kernel and of the current process. Firings may share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// By space and address; none overlaps or touches the next one.
    regions: Vec<Region>,
    /// The files of a `struct path`.
    paths: Vec<(u64, String)>,
    /// The packets of a `struct sk_buff`: length and bytes.
    packets: Vec<(u64, (u32, Vec<u8>))>,
    /// What is known of a firing that was captured; `None` of one that is given, which has nothing
    /// else.
    pub(crate) captured: Option<Captured>,
}

/// Bytes at an address of a space.
pub(crate) type Region = (Space, u64, Vec<u8>);

/// What is known of a captured firing, besides what memory contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Many firings have the same ones.
    pub(crate) builtins: Arc<[Builtin]>,
    pub(crate) execname: Option<Text>,
    /// Addresses that were unreadable, in their order.
    pub(crate) unreadable: Vec<(Space, u64)>,
    /// Names by what they are of; `None`: it could not be read.
    pub(crate) names: BTreeMap<(NameOf, u64), Option<Text>>,
    /// Arguments of processes by their address, likewise.
    pub(crate) arguments: BTreeMap<u64, Option<Text>>,
    /// What follows from stacks: `caller`, depths.
    pub(crate) of_stacks: Vec<(IntBuiltin, u64)>,
    /// The stack of the kernel is known, and that of the process.
    pub(crate) stacks: (bool, bool),
    /// Whether the process that fired descends from others.
    pub(crate) ancestors: BTreeMap<i32, bool>,
}

/// A text that was captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    /// It goes on, and how is not known.
    pub(crate) is_cut: bool,
}

impl Text {
    /// The text for who sees at most so many bytes of it; `None` if more had to be known.
    pub(super) fn up_to(&self, most: usize) -> Option<&[u8]> {
        (!self.is_cut || most <= self.bytes.len()).then_some(&self.bytes)
    }
}

impl Captured {
    /// True if some of these bytes could not be read.
    pub(super) fn is_unreadable(&self, space: Space, address: u64, length: usize) -> bool {
        let end = address.saturating_add(length as u64);
        let next = self.unreadable.partition_point(|at| *at < (space, address));
        self.unreadable.get(next).is_some_and(|(s, at)| *s == space && *at < end)
    }
}

/// The end of firings that were captured.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    firing: Mutex<Option<Firing>>,
    /// What remains is read for its end alone.
    pub(crate) is_over: AtomicBool,
}

impl Ending {
    /// The firing of END, where the others leave it.
    pub(crate) fn firing(&self) -> MutexGuard<'_, Option<Firing>> {
        self.firing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// No memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Memory of these regions. Where they overlap, the bytes are those of the one that begins
    /// first, or is given first.
    pub(crate) fn of(mut regions: Vec<Region>) -> Memory {
        regions.sort_by_key(|(space, start, _)| (*space, *start));
        let mut all: Vec<Region> = Vec::with_capacity(regions.len());
        for (space, start, bytes) in regions {
            match all.last_mut() {
                Some((known, from, before)) if *known == space && start - *from <= before.len() as u64 => {
                    let common = before.len() - (start - *from) as usize;
                    before.extend_from_slice(bytes.get(common..).unwrap_or_default());
                }
                _ => all.push((space, start, bytes)),
            }
        }
        Memory { regions: all, ..Memory::default() }
    }

    fn with(self, region: Region) -> Memory {
        let mut regions = self.regions;
        regions.push(region);
        Memory { regions: Memory::of(regions).regions, ..self }
    }

    /// Adds memory of the kernel at an address.
    #[must_use]
    pub fn kernel(self, address: u64, bytes: impl Into<Vec<u8>>) -> Memory {
        self.with((Space::Kernel, address, bytes.into()))
    }

    /// Adds memory of the process at an address.
    #[must_use]
    pub fn user(self, address: u64, bytes: impl Into<Vec<u8>>) -> Memory {
        self.with((Space::User, address, bytes.into()))
    }

    /// Adds a `struct path` of the kernel at an address: that of this file, on the root's mount.
    #[must_use]
    pub fn path(mut self, address: u64, file: impl Into<String>) -> Memory {
        self.paths.push((address, file.into()));
        self
    }

    /// Adds a `struct sk_buff` of the kernel at an address, with this packet.
    #[must_use]
    pub fn packet(mut self, address: u64, bytes: impl Into<Vec<u8>>) -> Memory {
        let bytes = bytes.into();
        self.packets.push((address, (bytes.len() as u32, bytes)));
        self
    }

    /// Length and bytes of the packet of the `struct sk_buff` at an address.
    pub(super) fn packet_at(&self, address: u64) -> Option<&(u32, Vec<u8>)> {
        self.packets.iter().find(|(at, _)| *at == address).map(|(_, packet)| packet)
    }

    /// The file of the `struct path` at an address.
    pub(super) fn file(&self, address: u64) -> Option<&str> {
        self.paths.iter().find(|(at, _)| *at == address).map(|(_, file)| file.as_str())
    }

    /// The bytes from an address on.
    pub(super) fn get(&self, space: Space, address: u64, length: usize) -> Option<&[u8]> {
        let behind = self.regions.partition_point(|(s, start, _)| (*s, *start) <= (space, address));
        let (found, start, bytes) = self.regions.get(behind.checked_sub(1)?)?;
        let at = usize::try_from(address.checked_sub(*start)?).ok()?;
        (*found == space).then(|| bytes.get(at..at.checked_add(length)?))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_lie_in_several_regions_are_read_at_once() {
        let memory =
            Memory::new().kernel(0x1004, [5, 6, 7, 8]).kernel(0x1000, [1, 2, 3, 4]).kernel(0x1002, [9; 3]);
        assert_eq!(memory.get(Space::Kernel, 0x1001, 6), Some(&[2, 3, 4, 5, 6, 7][..]));
        assert_eq!(memory.get(Space::Kernel, 0x1001, 8), None);
        assert_eq!(memory.get(Space::Kernel, 0xfff, 1), None);
        assert_eq!(memory.get(Space::User, 0x1001, 1), None);
        let last = Memory::new().user(u64::MAX, [1]).user(u64::MAX - 1, [2]);
        assert_eq!(last.get(Space::User, u64::MAX - 1, 2), Some(&[2, 1][..]));
        // A file may say anything.
        let beyond = Memory::new().user(u64::MAX, [1]).user(u64::MAX, [7, 8, 9]);
        assert_eq!(beyond.get(Space::User, u64::MAX, 1), Some(&[1][..]));
    }

    #[test]
    fn a_firing_with_a_hundred_thousand_regions_and_unreadable_addresses_is_read_in_no_time() {
        const COUNT: u64 = 300_000;
        let regions = (0..COUNT).rev().map(|n| (Space::User, n * 16, vec![n as u8])).collect();
        let memory = Memory::of(regions);
        let unreadable = (0..COUNT).map(|n| (Space::User, n * 16 + 8)).collect();
        let captured = Captured { unreadable, ..Captured::default() };
        for n in 0..COUNT {
            assert_eq!(memory.get(Space::User, n * 16, 1), Some(&[n as u8][..]));
            assert!(captured.is_unreadable(Space::User, n * 16 + 4, 8));
            assert!(!captured.is_unreadable(Space::User, n * 16, 8));
        }
    }
}
