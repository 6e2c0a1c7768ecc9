//! A machine of which nothing is known: a process makes no calls of its tracer's, and waits at its
//! exec.

use std::io;

use super::start::Main;

/// No bytes are an instruction.
pub(crate) const SYSCALL: &[u8] = &[];

fn unavailable<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "not available on this machine"))
}

/// There are none: nobody gets them.
#[derive(Clone, Copy)]
pub(crate) struct Registers;

impl Registers {
    pub(crate) fn of(_pid: i32) -> io::Result<Registers> {
        unavailable()
    }

    pub(crate) fn set(&self, _pid: i32) -> io::Result<()> {
        unavailable()
    }

    pub(crate) fn is_native(&self) -> bool {
        false
    }

    pub(crate) fn calling(&self, _at: u64, _number: i64, _arguments: [u64; 6]) -> Registers {
        *self
    }

    pub(crate) fn result(&self) -> i64 {
        0
    }
}

pub(crate) fn clear(_pid: i32) {}

pub(crate) fn set(_pid: i32, _addresses: &[u64]) -> io::Result<()> {
    unavailable()
}

pub(crate) fn reached(_pid: i32) -> Vec<u64> {
    Vec::new()
}

/// The instructions are not known.
pub(crate) fn start_passes(_code: &[u8], _address: u64) -> Option<Main> {
    None
}
