//! x86-64.
//!
//! Sources: `struct pt_regs` in arch/x86/include/asm/ptrace.h, `syscall_get_arguments` in
//! arch/x86/include/asm/syscall.h.

use super::machine::{FastEntry, Machine, Mark};

/// Byte offsets in `struct pt_regs`.
pub mod regs {
    /// Frame pointer.
    pub const BP: i16 = 32;
    /// The caller's flags, as SYSCALL saves them.
    pub const R11: i16 = 48;
    /// A register that functions need not preserve.
    pub const R10: i16 = 56;
    /// Result of a function or system call.
    pub const AX: i16 = 80;
    /// The caller's return address, as SYSCALL saves it.
    pub const CX: i16 = 88;
    /// Number of the system call.
    pub const ORIG_AX: i16 = 120;
    /// Instruction pointer.
    pub const IP: i16 = 128;
    /// Code segment; its low two bits are the privilege level, 0 in the kernel.
    pub const CS: i16 = 136;
    /// Flags.
    pub const FLAGS: i16 = 144;
    /// Stack pointer.
    pub const SP: i16 = 152;
    /// Stack segment.
    pub const SS: i16 = 160;
}

/// The bit of the flags that is always set (`X86_EFLAGS_FIXED`, asm/processor-flags.h).
pub const FLAGS_FIXED: i64 = 2;
/// `thread_info.status` bit of a task in a 32-bit system call (`TS_COMPAT`, asm/thread_info.h).
const TS_COMPAT: i32 = 0x0002;
/// The bit of the system call number that x32 callers set (`__X32_SYSCALL_BIT`).
const X32_BIT: i32 = 0x4000_0000;
/// Code segment of 64-bit user code (`__USER_CS`).
pub const USER_CS: i32 = 0x33;
/// Code segment of 32-bit user code (`__USER32_CS`).
pub const USER32_CS: i32 = 0x23;
/// Bytes of a code or stack segment: on kernels with FRED, the word has other members in its upper
/// bits.
const SEGMENT: u8 = 2;

/// x86-64.
pub static X86_64: Machine = Machine {
    name: "x86_64",
    ip: regs::IP,
    sp: regs::SP,
    result: regs::AX,
    call: regs::ORIG_AX,
    call_bits: X32_BIT,
    mmap: 9,
    // r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss
    uregs: &[
        (0, 8),
        (8, 8),
        (16, 8),
        (24, 8),
        (32, 8),
        (40, 8),
        (48, 8),
        (56, 8),
        (64, 8),
        (72, 8),
        (80, 8),
        (88, 8),
        (96, 8),
        (104, 8),
        (112, 8),
        (120, 8),
        (128, 8),
        (136, SEGMENT),
        (144, 8),
        (152, 8),
        (160, SEGMENT),
    ],
    // di, si, dx, r10, r8, r9
    call_args: [112, 104, 96, 56, 72, 64],
    // bx, cx, dx, si, di, bp
    narrow_call_args: [40, 88, 96, 104, 112, 32],
    // di, si, dx, cx, r8, r9
    args: &[112, 104, 96, 88, 72, 64],
    // Behind the return address.
    stack_args: 8,
    // ax, bx, cx, di, si, r8 to r11
    go_args: &[80, 40, 88, 112, 104, 72, 64, 56, 48],
    // ax bx cx dx si di bp sp r8 to r15
    operands: &[80, 40, 88, 96, 104, 112, 32, 152, 72, 64, 56, 48, 24, 16, 8, 0],
    user: Mark { at: regs::CS, mask: 3, value: 3 },
    narrow: Mark { at: regs::CS, mask: 0xffff, value: USER32_CS },
    narrow_status: TS_COMPAT,
    fast_entry: Some(FastEntry {
        copies: [(regs::IP, regs::CX), (regs::FLAGS, regs::R11)],
        segment: (regs::CS, USER_CS),
    }),
    walks: true,
};
