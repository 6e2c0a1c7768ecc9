//! arm64.
//!
//! Sources: `struct pt_regs` in arch/arm64/include/asm/ptrace.h, `syscall_get_arguments` in
//! arch/arm64/include/asm/syscall.h, the procedure call standard (AAPCS64), `abi-internal.md` of
//! the compiler of Go.
//!
//! Stacks are not walked by tables here.

use super::machine::{Machine, Mark};

/// Byte offsets in `struct pt_regs`, behind the registers x0 to x30.
mod regs {
    pub(super) const SP: i16 = 248;
    pub(super) const PC: i16 = 256;
    pub(super) const PSTATE: i16 = 264;
    /// The first argument of a system call.
    pub(super) const ORIG_X0: i16 = 272;
    pub(super) const SYSCALLNO: i16 = 280;
}

/// The offset of xN.
const fn x(n: i16) -> i16 {
    8 * n
}

/// The first registers, of eight bytes each.
const fn numbered<const N: usize>() -> [i16; N] {
    let mut all = [0; N];
    let mut n = 0;
    while n < N {
        all[n] = x(n as i16);
        n += 1;
    }
    all
}

const UREGS: [(i16, u8); 34] = {
    let mut all = [(0, 8); 34];
    let mut n = 0;
    while n < all.len() {
        all[n].0 = x(n as i16);
        n += 1;
    }
    all
};

/// arm64.
pub static AARCH64: Machine = Machine {
    name: "aarch64",
    ip: regs::PC,
    sp: regs::SP,
    result: x(0),
    call: regs::SYSCALLNO,
    call_bits: 0,
    mmap: 222,
    // x0 to x30, sp, pc, pstate
    uregs: &UREGS,
    call_args: [regs::ORIG_X0, x(1), x(2), x(3), x(4), x(5)],
    narrow_call_args: [regs::ORIG_X0, x(1), x(2), x(3), x(4), x(5)],
    args: &numbered::<8>(),
    // The return address is in a register.
    stack_args: 0,
    go_args: &numbered::<16>(),
    // x0 to x30, sp
    operands: &numbered::<32>(),
    // PSR_MODE_MASK: EL0t.
    user: Mark { at: regs::PSTATE, mask: 15, value: 0 },
    // PSR_MODE32_BIT.
    narrow: Mark { at: regs::PSTATE, mask: 16, value: 16 },
    narrow_status: 0,
    fast_entry: None,
    walks: false,
};
