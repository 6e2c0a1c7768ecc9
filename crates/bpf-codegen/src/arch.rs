//! Machine dependence: the layout of saved registers and the calling conventions.
//!
//! x86-64 is the only machine so far. Another machine needs another set of these constants.
//! Sources: `struct pt_regs` in arch/x86/include/asm/ptrace.h, `syscall_get_arguments` in
//! arch/x86/include/asm/syscall.h.
//!
//! ARCH(x86-64): the layout of `struct pt_regs`, the registers of arguments of calls and functions.

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
    /// Size of the structure in bytes.
    pub const SIZE: u32 = 168;
}

/// Offsets of those registers of `uregs[]` that an entry into the kernel saves, by index: r15 r14
/// r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss. The indexes behind them
/// are registers that the thread structure holds.
pub const UREGS_SAVED: [i16; 21] =
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160];
/// The bit of `task_struct.flags` that marks a kernel thread (`PF_KTHREAD`, linux/sched.h).
pub const PF_KTHREAD_BIT: i64 = 21;

/// The bit of `task_struct.flags` of a task that runs a guest (`PF_VCPU`, linux/sched.h).
pub const PF_VCPU: i64 = 1;
/// The bit of the flags that is always set (`X86_EFLAGS_FIXED`, asm/processor-flags.h).
pub const FLAGS_FIXED: i64 = 2;

/// Offsets of the arguments of a 64-bit system call: di, si, dx, r10, r8, r9.
pub const SYSCALL_ARGS: [i16; 6] = [112, 104, 96, 56, 72, 64];
/// Offsets of the arguments of a 32-bit system call: bx, cx, dx, si, di, bp. Only the low halves
/// count.
pub const SYSCALL_ARGS_32: [i16; 6] = [40, 88, 96, 104, 112, 32];
/// Offsets of the arguments of a kernel or user function: di, si, dx, cx, r8, r9.
pub const FUNCTION_ARGS: [i16; 6] = [112, 104, 96, 88, 72, 64];
/// Offsets of the integers that a function of Go is passed and returns (its ABIInternal): ax, bx, cx, di, si, r8 to r11.
pub const GO_ARGS: [i16; 9] = [80, 40, 88, 112, 104, 72, 64, 56, 48];

/// `thread_info.status` bit of a task in a 32-bit system call (`TS_COMPAT`, asm/thread_info.h).
pub const TS_COMPAT: i32 = 0x0002;
/// The bit of the system call number that x32 callers set (`__X32_SYSCALL_BIT`).
pub const X32_BIT: i32 = 0x4000_0000;
/// Code segment of 64-bit user code (`__USER_CS`).
pub const USER_CS: i32 = 0x33;
/// Code segment of 32-bit user code (`__USER32_CS`).
pub const USER32_CS: i32 = 0x23;
