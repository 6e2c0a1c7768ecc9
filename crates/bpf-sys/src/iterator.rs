//! Iterators: programs that the kernel runs for each object of a kind, when a descriptor is read.
//!
//! ```text
//!  Prog (AttachType::TraceIter, BTF id of bpf_iter_KIND) ──► link, for one process ──► descriptor ──► bytes that the
//!                                                                                       program writes by bpf_seq_write
//! ```

use std::fs::File;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::AttachType;
use crate::error::SysError;
use crate::prog::Prog;
use crate::syscall::{Cmd, bpf_fd, raw};

#[repr(C)]
struct IteratorLinkAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    info: u64,
    info_len: u32,
    pad: u32,
}

/// `union bpf_iter_link_info`, for tasks (kernels from 6.1).
#[repr(C)]
struct TaskInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
    pad: u32,
}

#[repr(C)]
struct CreateAttr {
    link_fd: u32,
    flags: u32,
}

/// Runs an iterator program over the objects of one process, by its pid in this pid namespace.
/// Returns what the program writes, at most `limit` bytes.
pub fn iterate_process(prog: &Prog, pid: u32, limit: u64) -> Result<Vec<u8>, SysError> {
    let fail = |errno| SysError::new(format!("iterate over process {pid}"), errno);
    let task = TaskInfo { tid: 0, pid, pid_fd: 0, pad: 0 };
    let mut attr = IteratorLinkAttr {
        prog_fd: raw(prog),
        target_fd: 0,
        attach_type: AttachType::TraceIter as u32,
        flags: 0,
        info: (&raw const task) as u64,
        info_len: size_of::<TaskInfo>() as u32,
        pad: 0,
    };
    // SAFETY: the attribute of the command; `info` is the address of `task`, which outlives the
    // call.
    let link = unsafe { bpf_fd(Cmd::LinkCreate, &mut attr) }.map_err(fail)?;
    let mut attr = CreateAttr { link_fd: raw(&link), flags: 0 };
    // SAFETY: no addresses.
    let fd = unsafe { bpf_fd(Cmd::IterCreate, &mut attr) }.map_err(fail)?;
    let mut bytes = Vec::new();
    // Not a copy of the descriptor, which a forked child would have without knowing of it. SAFETY:
    // the file is never dropped, and `fd` outlives it.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd.as_raw_fd()) });
    let read = (&*file).take(limit).read_to_end(&mut bytes);
    read.map_err(|e| fail(e.raw_os_error().unwrap_or_default()))?;
    Ok(bytes)
}
