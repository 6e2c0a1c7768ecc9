//! x86-64.

use std::io;

use super::start::Main;
use crate::exec::check;

/// `syscall`.
pub(crate) const SYSCALL: &[u8] = &[0x0f, 0x05];
/// The code segment of a 64-bit process.
const CODE_64: u64 = 0x33;

/// The registers of a thread that is stopped.
#[derive(Clone, Copy)]
pub(crate) struct Registers(libc::user_regs_struct);

impl Registers {
    /// Those of a thread.
    pub(crate) fn of(pid: i32) -> io::Result<Registers> {
        // SAFETY: all-zero is valid for a struct of numbers.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the struct.
        check(unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0usize, &raw mut regs) } as i64)?;
        Ok(Registers(regs))
    }

    /// Gives them to a thread.
    pub(crate) fn set(&self, pid: i32) -> io::Result<()> {
        let regs = self.0;
        // SAFETY: the kernel reads the struct.
        check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0usize, &raw const regs) } as i64).map(drop)
    }

    /// The program has the width of this one.
    pub(crate) fn is_native(&self) -> bool {
        self.0.cs == CODE_64
    }

    /// These, where a system call begins at an instruction for it. No call is restarted on the way.
    pub(crate) fn calling(&self, at: u64, number: i64, arguments: [u64; 6]) -> Registers {
        let mut regs = self.0;
        (regs.rip, regs.rax, regs.orig_rax) = (at, number as u64, u64::MAX);
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = arguments;
        Registers(regs)
    }

    /// What a system call has returned.
    pub(crate) fn result(&self) -> i64 {
        self.0.rax as i64
    }
}

/// The number of debug registers that hold an address.
const BREAKPOINTS: usize = 4;
/// The register that says which breakpoints were reached.
const STATUS: usize = 6;
/// The register that enables breakpoints. All other bits zero: execution of one byte.
const CONTROL: usize = 7;

fn place(register: usize) -> usize {
    std::mem::offset_of!(libc::user, u_debugreg) + register * size_of::<u64>()
}

fn write(pid: i32, register: usize, value: u64) -> io::Result<()> {
    // SAFETY: plain system call on a traced process; the data is a number.
    check(unsafe { libc::ptrace(libc::PTRACE_POKEUSER, pid, place(register), value) } as i64).map(drop)
}

/// The value of a debug register; 0 if it cannot be read.
fn read(pid: i32, register: usize) -> u64 {
    let mut value = 0u64;
    // SAFETY: the kernel writes eight bytes to a valid word (the plain call, not the C library's,
    // which returns the value in place of an error).
    let done = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKUSER, pid, place(register), &raw mut value)
    };
    if done < 0 { 0 } else { value }
}

/// Removes the breakpoints of a thread.
pub(crate) fn clear(pid: i32) {
    // A process that died meanwhile has none.
    _ = write(pid, CONTROL, 0);
    // Writing to one that is not in use would reserve it.
    for register in (0..BREAKPOINTS).filter(|register| read(pid, *register) != 0) {
        _ = write(pid, register, 0);
    }
    _ = write(pid, STATUS, 0);
}

/// Sets breakpoints in the place of those that were there, at most four.
pub(crate) fn set(pid: i32, addresses: &[u64]) -> io::Result<()> {
    clear(pid);
    let mut enabled = 0;
    for (register, address) in addresses.iter().take(BREAKPOINTS).enumerate() {
        write(pid, register, *address)?;
        enabled |= 1 << (2 * register);
    }
    write(pid, CONTROL, enabled).inspect_err(|_| clear(pid))
}

/// The addresses of the breakpoints that a thread has reached since it was asked last.
pub(crate) fn reached(pid: i32) -> Vec<u64> {
    let status = read(pid, STATUS) & ((1 << BREAKPOINTS) - 1);
    if status != 0 {
        _ = write(pid, STATUS, 0);
    }
    let is_reached = |register: &usize| status & (1 << register) != 0;
    (0..BREAKPOINTS).filter(is_reached).map(|register| read(pid, register)).collect()
}

/// Decodes `_start` of glibc (`address` is that of the first byte of `code`): what is in `%rdi`
/// when `__libc_start_main` is called.
pub(crate) fn start_passes(code: &[u8], address: u64) -> Option<Main> {
    let mut at = 0;
    let mut main = None;
    while let Some(rest) = code.get(at..) {
        let near = |from: usize, length: usize| {
            let distance = number(rest, from)? as i32;
            Some(address.wrapping_add((at + length) as u64).wrapping_add(i64::from(distance) as u64))
        };
        at += match rest {
            [0xf3, 0x0f, 0x1e, 0xfa, ..] => 4,                    // endbr64
            [0x31, 0xed | 0xc9, ..] => 2,                         // xor %ebp,%ebp; xor %ecx,%ecx
            [0x49, 0x89, 0xd1, ..] => 3,                          // mov %rdx,%r9
            [0x5e | 0x50 | 0x54, ..] => 1,                        // pop %rsi; push %rax; push %rsp
            [0x48, 0x89, 0xe2, ..] => 3,                          // mov %rsp,%rdx
            [0x48, 0x83, 0xe4, 0xf0, ..] => 4,                    // and $-16,%rsp
            [0x45, 0x31, 0xc0, ..] => 3,                          // xor %r8d,%r8d
            [0x49, 0xc7, 0xc0, ..] | [0x48, 0xc7, 0xc1, ..] => 7, // mov $x,%r8; mov $x,%rcx
            [0x4c, 0x8d, 0x05, ..] | [0x48, 0x8d, 0x0d, ..] => 7, // lea x(%rip),%r8; lea x(%rip),%rcx
            [0x4c, 0x8b, 0x05, ..] | [0x48, 0x8b, 0x0d, ..] => 7, // mov x(%rip),%r8; mov x(%rip),%rcx
            [0x48, 0xc7, 0xc7, ..] => {
                // mov $main,%rdi
                let value = number(rest, 3)? as i32;
                main = Some(Main::At(i64::from(value) as u64));
                7
            }
            [0xbf, ..] => {
                // mov $main,%edi
                main = Some(Main::At(number(rest, 1)?.into()));
                5
            }
            [0x48, 0x8d, 0x3d, ..] => {
                // lea main(%rip),%rdi
                main = Some(Main::At(near(3, 7)?));
                7
            }
            [0x48, 0x8b, 0x3d, ..] => {
                // mov main@GOTPCREL(%rip),%rdi
                main = Some(Main::Behind(near(3, 7)?));
                7
            }
            // call
            [0xff, 0x15, ..] | [0xe8, ..] | [0x67, 0xe8, ..] => return main,
            _ => return None,
        };
    }
    None
}

/// The four bytes at an offset.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
