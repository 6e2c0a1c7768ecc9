//! What the tracing of processes knows of a machine: registers, the instruction of a system call,
//! and breakpoints.
//!
//! ```text
//!  SYSCALL                          an instruction that a process needs for a call of the kernel
//!  Registers::of, set, calling …    a process makes a call of its tracer's
//!  start_passes                     the function that the first code of a program passes on
//!  set, clear, reached              breakpoints in registers of a thread: nothing is written into a process
//! ```
//!
//! One file a machine; x86-64 is the only one that is known.
//! Where a machine has none, each of these is an error that says so, and whoever asks does without.

#[cfg(not(target_arch = "x86_64"))]
mod other;
mod start;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
use other as own;
#[cfg(target_arch = "x86_64")]
use x86_64 as own;

pub(crate) use own::{Registers, SYSCALL, clear, reached, set, start_passes};
pub(crate) use start::Main;
