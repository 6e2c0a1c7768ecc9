//! What a probe at a nop does to the program that has it.
//!
//! Some kernels replace a nop of several bytes by a call, and one of them overwrites what is below
//! the stack pointer. A function may have values there (the red zone, 128 bytes). No version number
//! tells which kernel does what, so a function of our own tells it: it fills its red zone, comes to
//! the nop, and counts the words that are not as they were.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use super::trials::{Outcome, uprobe_at};
use crate::arch::{NOP5, NOP10, red_zone};

/// Kernels replace the nop at its first trap or some later one.
const CALLS: usize = 32;

pub(super) fn nop5() -> Outcome {
    spares_red_zone(NOP5)
}

pub(super) fn nop10() -> Outcome {
    spares_red_zone(NOP10)
}

/// Tries a probe at a nop.
fn spares_red_zone(nop: &[u8]) -> Outcome {
    let (code, at) = red_zone(nop).ok_or("not available on this machine, which has no such nops")?;
    let mapped = Mapped::new(&code).map_err(|e| format!("map code: {e}"))?;
    let _link = uprobe_at(&mapped.path(), at)?;
    match (0..CALLS).map(|_| mapped.call()).max() {
        Some(0) => Ok(()),
        changed => {
            let words = changed.unwrap_or_default();
            Err(format!("the kernel overwrites {words} words of the red zone, where a program has values"))
        }
    }
}

/// A file in memory with code, mapped.
struct Mapped {
    file: File,
    memory: *mut libc::c_void,
    length: usize,
}

impl Mapped {
    fn new(code: &[u8]) -> std::io::Result<Mapped> {
        let error = std::io::Error::last_os_error;
        // SAFETY: the name is a string. Older kernels do not know the second flag.
        let fd = unsafe {
            match libc::memfd_create(c"dtrace-nops".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_EXEC) {
                -1 => libc::memfd_create(c"dtrace-nops".as_ptr(), libc::MFD_CLOEXEC),
                fd => fd,
            }
        };
        if fd < 0 {
            return Err(error());
        }
        // SAFETY: a descriptor of ours that nothing else owns.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(code)?;
        let (length, protection) = (code.len(), libc::PROT_READ | libc::PROT_EXEC);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_PRIVATE, fd, 0) };
        if memory == libc::MAP_FAILED {
            return Err(error());
        }
        Ok(Mapped { file, memory, length })
    }

    fn path(&self) -> std::ffi::OsString {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    fn call(&self) -> u32 {
        // SAFETY: the mapping is executable and has a function of this type: see `red_zone`. It
        // writes below the stack pointer only, in its red zone, and only registers that a function
        // may change.
        let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(self.memory) };
        function()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        unsafe { libc::munmap(self.memory, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_counts_the_words_that_something_changes() {
        let counted = |nop: &[u8]| Mapped::new(&red_zone(nop).unwrap().0).unwrap().call();
        assert_eq!((counted(NOP5), counted(NOP10)), (0, 0));
        // A call and a return leave the return address: call next; next: add $8,%rsp.
        assert_eq!(counted(&[0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 8]), 1);
    }
}
