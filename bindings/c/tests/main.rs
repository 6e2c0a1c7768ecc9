//! Programs in C and in other languages that trace by the library, on the running kernel.
//!
//! The library is built beside this program, and this program, which is linked with it too, reads
//! symbols for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod header;
mod programs;

use std::process::ExitCode;

pub(crate) use testing::{Test, Verdict};

fn main() -> ExitCode {
    // What makes this program a reader is in the crate: it must be linked.
    assert!(!dtrace_rs::dt_version().is_null());
    testing::main(&[header::TESTS, programs::TESTS], |_| ExitCode::FAILURE)
}
