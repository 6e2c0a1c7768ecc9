//! x86-64.
//!
//! ARCH(x86-64): the instruction of a system call, the registers of its arguments, the debug registers.

use std::io;

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
