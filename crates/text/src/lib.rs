//! The machine code of a function: where probes can be, from its bytes alone.
//!
//! A user probe is a breakpoint in the code of a program. The kernel carries out the instruction
//! below the breakpoint in one of two ways: it *emulates* it, or it executes a copy and takes a
//! trap after it (*single step*), which costs 12 µs instead of 0.8. It refuses some instructions,
//! and a few it carries out wrongly. This crate says for each instruction which of these it is,
//! before anything is attached, and finds the instructions that the probes of a function are at.
//!
//! ```text
//!  bytes, address, entries ──► Function ──► entry(kernel, uses)   the place of the entry probe
//!                                │    │
//!                                │    ├───► go_entry(kernel, uses) the same for a function of Go
//!                                │    ├───► returns(kernel)       each `ret`, each jump out of the function
//!                                │    └───► offset(kernel, n)     the probe at an offset
//!                                └─ instructions, branch targets, jump tables
//!  bytes of one instruction ───────────► uprobe::step(kernel)     emulated, single-stepped, or a `Refusal`
//! ```
//!
//! The crate knows no files, no processes and no BPF: all functions are pure. It never panics,
//! whatever the bytes are, and its work is bounded by their number.
//!
//! # Decisions
//!
//! **The kernel's rules are read from its source** (`arch_uprobe_analyze_insn` and `insn_is_nop` of
//! x86, Linux 6.1 to 7.2), and `tests/kernel.rs` compares them with the running kernel: for every
//! opcode, and for every function of libc. Where kernels differ, the caller says what its kernel
//! does ([`Kernel`]), by trial.
//!
//! **What the kernel accepts and does wrong is refused too.** The kernel compares the opcode of an
//! instruction with those of jumps, calls and returns, and does not look whether the instruction
//! has a VEX or EVEX prefix. So it takes `vpcmpeqd` (`c5 f9 76 c0`) for a jump and does not execute
//! it, which was seen on 6.18 and 7.2.
//!
//! **A function is decoded from its beginning to its end, in one pass.** Compilers put no data
//! between the instructions of a function. Where that is not so (an instruction does not decode,
//! the last one is longer than the function, a branch leads into an instruction, other than over
//! its `lock` prefix), the positions of the instructions are not certain, so there are no return
//! and no offset probes. The entry is certain.
//!
//! **An entry probe may be some instructions after the entry**, where these change nothing that the
//! clauses read, and nothing else can jump between. See [`entry`].
//!
//! **A function may have parts elsewhere** ([`Function::with_parts`]): a jump between them is no
//! return. Which parts are its own the caller says; what refers to what in a stretch of code is in
//! [`references`].
//!
//! **A jump through a table has unknown targets.** Their number and place need the bounds of the
//! table, which is data. So in such a function the entry probe stays at the first instruction.
//!
//! **The code of a machine is a folder of `arch`.** x86-64 is the only one so far; the rest is
//! about no machine.
//!
//! # Files
//!
//! Lowest first; a file imports only from lines before its own (`cargo xtask tidy` checks that).
//!
//! ```layers
//! refusal
//! arch/x86_64/condition arch/x86_64/encoding arch/x86_64/references
//! arch/x86_64/uprobe
//! arch/x86_64/function arch/x86_64/resolver
//! arch/x86_64/entry arch/x86_64/returns
//! arch/x86_64/go
//! arch/x86_64
//! arch
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arch;
mod refusal;

pub use arch::*;
pub use refusal::{PlaceRefusal, Refusal};
