//! What eight bytes can express of the rules of call frame information, a file for each machine.
//! The rows have the registers of x86-64 ([`plane::unwind::Kind`]), and a walk by them is a
//! facility of that machine: files of others have no table.

mod x86_64;

pub(crate) use x86_64::{Bytes, Machine, rule};
