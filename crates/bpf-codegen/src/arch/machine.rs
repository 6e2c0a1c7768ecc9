//! What the code generator has to know of a machine.

/// Bits of a saved register that say something of the code that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The offset of the register.
    pub at: i16,
    /// The bits.
    pub mask: i64,
    /// What they are where that is so.
    pub value: i32,
}

/// How a system call is known to be one of a 64-bit program by its saved registers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastEntry {
    /// Registers that are equal.
    pub copies: [(i16, i16); 2],
    /// The register that has the value, in its low two bytes.
    pub segment: (i16, i32),
}

/// A machine. Offsets are those of `struct pt_regs`.
#[derive(Debug, PartialEq, Eq)]
pub struct Machine {
    /// What it is called.
    pub name: &'static str,
    /// The instruction pointer.
    pub ip: i16,
    /// The stack pointer.
    pub sp: i16,
    /// The result of a function or system call.
    pub result: i16,
    /// The number of the system call, whose low four bytes count.
    pub call: i16,
    /// The bits of the number that say whose program it is, and not which call.
    pub call_bits: i32,
    /// The number of the system call `mmap`.
    pub mmap: i32,
    /// The registers of `uregs[]` that an entry into the kernel saves, by index, each with its
    /// bytes. The indexes behind them are registers that the thread structure holds.
    pub uregs: &'static [(i16, u8)],
    /// The arguments of a 64-bit system call.
    pub call_args: [i16; 6],
    /// The arguments of a 32-bit system call. Only the low halves count.
    pub narrow_call_args: [i16; 6],
    /// The arguments of a kernel or user function.
    pub args: &'static [i16],
    /// Bytes from the stack pointer to the first argument on the stack, at the first instruction of
    /// a function.
    pub stack_args: i64,
    /// The integers that a function of Go is passed and returns (its ABIInternal).
    pub go_args: &'static [i16],
    /// The registers of operands of USDT, in the order of their numbers.
    pub operands: &'static [i16],
    /// Code of a process ran, and not the kernel.
    pub user: Mark,
    /// Code of 32 bits ran.
    pub narrow: Mark,
    /// The bits of `thread_info.status` of a task in a 32-bit system call, where the kernel has
    /// that member.
    pub narrow_status: i32,
    /// See [`FastEntry`]. `None`: there is no such way.
    pub fast_entry: Option<FastEntry>,
    /// Stacks are walked by tables, those of processes and the kernel's. On others the kernel's
    /// helper walks them, by frame pointers.
    pub walks: bool,
}
