//! Tests of the library on the running kernel, for cases that need a program around the library and
//! so cannot be tested through the command.
//!
//! A test target with the runner of [`testing`]. With `--workload` it is itself the workload.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod growing;
mod stress;
mod tool;
mod wide;
mod workload;

use std::process::ExitCode;

pub(crate) use testing::{Test, Verdict};

fn main() -> ExitCode {
    testing::main("library", &[growing::TESTS, stress::TESTS, wide::TESTS], workload::run)
}
