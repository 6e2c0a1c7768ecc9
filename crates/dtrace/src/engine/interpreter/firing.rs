//! A firing of a probe, and the memory that it reads.

use std::sync::Arc;

use dif::ir::Space;
use dif::subr::PathOf;
use plane::builtin::Builtin;

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
    regions: Vec<(Space, u64, Vec<u8>)>,
    /// The files of a `struct path`.
    paths: Vec<(u64, String)>,
    /// The packets of a `struct sk_buff`: length and bytes.
    packets: Vec<(u64, (u32, Vec<u8>))>,
    /// What is known of a firing that was captured; `None` of one that is given, which has nothing
    /// else.
    pub(crate) captured: Option<Captured>,
}

/// What is known of a captured firing, besides what memory contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) builtins: Vec<Builtin>,
    /// Addresses that were unreadable.
    pub(crate) unreadable: Vec<(Space, u64)>,
    /// Paths by what they are of.
    pub(crate) paths: Vec<(PathOf, u64, Option<Vec<u8>>)>,
    /// Processes of which it is known whether the one that fired descends from them.
    pub(crate) ancestors: Vec<(i32, bool)>,
}

impl Captured {
    /// True if some of these bytes could not be read.
    pub(super) fn is_unreadable(&self, space: Space, address: u64, length: usize) -> bool {
        let end = address.saturating_add(length as u64);
        self.unreadable.iter().any(|(s, at)| *s == space && (address..end).contains(at))
    }
}

impl Memory {
    /// No memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds memory of the kernel at an address.
    #[must_use]
    pub fn kernel(mut self, address: u64, bytes: impl Into<Vec<u8>>) -> Memory {
        self.regions.push((Space::Kernel, address, bytes.into()));
        self
    }

    /// Adds memory of the process at an address.
    #[must_use]
    pub fn user(mut self, address: u64, bytes: impl Into<Vec<u8>>) -> Memory {
        self.regions.push((Space::User, address, bytes.into()));
        self
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

    /// The bytes from an address on, if all are in one region.
    pub(super) fn get(&self, space: Space, address: u64, length: usize) -> Option<&[u8]> {
        self.regions.iter().filter(|r| r.0 == space).find_map(|(_, start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..at.checked_add(length)?)
        })
    }
}
