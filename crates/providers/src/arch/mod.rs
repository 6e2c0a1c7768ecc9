//! What providers know of machines, a folder each: the system calls, and functions of the kernel.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod calls;
mod functions;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as own;
#[cfg(target_arch = "x86_64")]
use x86_64 as own;

pub(crate) use functions::{NORETURN, TRACER};
pub(crate) use own::{CALLS, MARK, is_mark};
