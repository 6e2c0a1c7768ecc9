//! Enumerates the kernel's BPF objects: the ids of all programs, maps, links and BTF objects,
//! including those of other processes.
//!
//! Tests compare the lists before and after a session, to show that no object remains.

use crate::error::SysError;
use crate::fork::KernelFd;
use crate::syscall::{Cmd, addr, bpf, bpf_fd, until_nul};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Kinds of numbered BPF objects.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Prog,
    Map,
    Link,
    Btf,
}

#[repr(C)]
struct IdAttr {
    id: u32,
    next_id: u32,
    flags: u32,
    pad: u32,
}

/// The ids of all objects of a kind, ascending. Needs CAP_SYS_ADMIN.
pub fn ids(kind: ObjectKind) -> Result<Vec<u32>, SysError> {
    let cmd = match kind {
        ObjectKind::Prog => Cmd::ProgNextId,
        ObjectKind::Map => Cmd::MapNextId,
        ObjectKind::Link => Cmd::LinkNextId,
        ObjectKind::Btf => Cmd::BtfNextId,
    };
    let mut out = Vec::new();
    let mut attr = IdAttr { id: 0, next_id: 0, flags: 0, pad: 0 };
    loop {
        // SAFETY: no addresses.
        match unsafe { bpf(cmd, &mut attr) } {
            Ok(_) => out.push(attr.next_id),
            Err(libc::ENOENT) => return Ok(out),
            Err(errno) => return Err(SysError::new(format!("list the kernel's {kind:?} ids"), errno)),
        }
        attr.id = attr.next_id;
    }
}

/// Opens the object with this id. Needs CAP_SYS_ADMIN.
pub fn fd_by_id(kind: ObjectKind, id: u32) -> Result<KernelFd, SysError> {
    let cmd = match kind {
        ObjectKind::Prog => Cmd::ProgFdById,
        ObjectKind::Map => Cmd::MapFdById,
        ObjectKind::Link => Cmd::LinkFdById,
        ObjectKind::Btf => Cmd::BtfFdById,
    };
    let mut attr = IdAttr { id, next_id: 0, flags: 0, pad: 0 };
    // SAFETY: no addresses. The command returns a new descriptor.
    unsafe { bpf_fd(cmd, &mut attr) }.map_err(|errno| SysError::new(format!("open {kind:?} {id}"), errno))
}

#[repr(C)]
struct BtfAttr {
    btf: u64,
    log_buf: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    pad: u32,
}

/// A loaded BTF object, closed on drop.
#[derive(Debug)]
pub struct BtfObject {
    fd: KernelFd,
}

impl AsFd for BtfObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for BtfObject {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Loads a BTF object built by [`crate::btf::Builder`].
pub fn btf_load(bytes: &[u8]) -> Result<BtfObject, SysError> {
    let mut attr =
        BtfAttr { btf: addr(bytes), log_buf: 0, size: bytes.len() as u32, log_size: 0, log_level: 0, pad: 0 };
    // SAFETY: the kernel reads `size` bytes of `bytes`.
    match unsafe { bpf_fd(Cmd::BtfLoad, &mut attr) } {
        Ok(fd) => Ok(BtfObject { fd }),
        Err(errno) => {
            let mut log = vec![0u8; 16 << 10];
            attr.log_buf = log.as_mut_ptr() as u64;
            attr.log_size = log.len() as u32;
            attr.log_level = 1;
            // SAFETY: as above, and the kernel writes at most `log_size` bytes of `log`.
            if let Ok(fd) = unsafe { bpf_fd(Cmd::BtfLoad, &mut attr) } {
                return Ok(BtfObject { fd });
            }
            let text = String::from_utf8_lossy(until_nul(&log));
            let last = text.lines().next_back().map(str::to_owned);
            Err(SysError::new("load our BTF", errno).or_hint(|| last))
        }
    }
}

/// Enables the kernel's run counts and times of all programs while the descriptor is open. That
/// costs each run some ns.
pub fn enable_run_stats() -> Result<KernelFd, SysError> {
    #[repr(C)]
    struct StatsAttr {
        kind: u32,
        pad: u32,
    }
    let mut attr = StatsAttr { kind: 0, pad: 0 };
    // SAFETY: no addresses. The command returns a new descriptor.
    unsafe { bpf_fd(Cmd::EnableStats, &mut attr) }
        .map_err(|errno| SysError::new("turn on run statistics", errno))
}
