//! What a probe at a nop does to the program that has it.
//!
//! Some kernels replace a nop of several bytes by a call, and one of them overwrites what is below the stack pointer. A function may
//! have values there (the red zone, 128 bytes). No version number tells which kernel does what, so a function of our own tells it: it
//! fills its red zone, comes to the nop, and counts the words that are not as they were.
//!
//! ARCH(x86-64): the function, its nops and the red zone.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use super::trials::{Outcome, uprobe_at};

/// The nops that kernels replace.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
const NOP10: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// Kernels replace the nop at its first trap or some later one.
const CALLS: usize = 32;

pub(super) fn nop5() -> Outcome {
    spares_red_zone(&NOP5)
}

pub(super) fn nop10() -> Outcome {
    spares_red_zone(&NOP10)
}

/// The code of the function, and where the nop is in it. The result is the number of changed words.
fn code(nop: &[u8]) -> (Vec<u8>, u64) {
    const FILL: [u8; 26] = [
        0x48, 0xb8, 0x5a, 0x5a, 0x96, 0x69, 0xc3, 0x3c, 0xa5, 0xa5, // mov $pattern,%rax
        0x48, 0xc7, 0xc1, 0xf0, 0xff, 0xff, 0xff, // mov $-16,%rcx
        0x48, 0x89, 0x04, 0xcc, // again: mov %rax,(%rsp,%rcx,8)
        0x48, 0xff, 0xc1, // inc %rcx
        0x75, 0xf7, // jne again
    ];
    const COUNT: [u8; 25] = [
        0x48, 0xc7, 0xc1, 0xf0, 0xff, 0xff, 0xff, // mov $-16,%rcx
        0x31, 0xd2, // xor %edx,%edx
        0x48, 0x39, 0x04, 0xcc, // again: cmp %rax,(%rsp,%rcx,8)
        0x74, 0x02, // je same
        0xff, 0xc2, // inc %edx
        0x48, 0xff, 0xc1, // same: inc %rcx
        0x75, 0xf3, // jne again
        0x89, 0xd0, // mov %edx,%eax
        0xc3, // ret
    ];
    ([&FILL, nop, &COUNT].concat(), FILL.len() as u64)
}

/// Tries a probe at a nop.
fn spares_red_zone(nop: &[u8]) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Err("only x86-64 has these nops".into());
    }
    let (code, at) = code(nop);
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
        // SAFETY: the mapping is executable and has a function of this type: see `code`. It writes below the stack pointer only, in
        // its red zone, and only registers that a function may change.
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
        let counted = |nop: &[u8]| Mapped::new(&code(nop).0).unwrap().call();
        assert_eq!((counted(&NOP5), counted(&NOP10)), (0, 0));
        // A call and a return leave the return address: call next; next: add $8,%rsp.
        assert_eq!(counted(&[0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 8]), 1);
    }
}
