//! What a machine's instructions are needed for, a file for each: a system call of a child that
//! shares memory, and a function with a nop.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as own;
#[cfg(target_arch = "x86_64")]
use x86_64 as own;

pub(crate) use own::{NOP5, NOP10, raw, red_zone};
