//! Tests of the library on the running kernel, for cases that need a program around the library and
//! so cannot be tested through the command.
//!
//! A test target with the runner of [`testing`]. With `--workload` it is itself the workload.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod advice;
mod arrivals;
mod beginners;
mod embedded;
mod engines;
mod family;
mod forked;
mod growing;
mod later;
mod results;
mod stress;
mod threads;
mod together;
mod tool;
mod wide;
mod workload;

use std::process::ExitCode;

pub(crate) use testing::{Test, Verdict};

fn main() -> ExitCode {
    let code = testing::main(
        &[
            advice::TESTS,
            arrivals::TESTS,
            beginners::TESTS,
            embedded::TESTS,
            engines::TESTS,
            family::TESTS,
            forked::TESTS,
            growing::TESTS,
            results::TESTS,
            stress::TESTS,
            threads::TESTS,
            together::TESTS,
            wide::TESTS,
        ],
        workload::run,
    );
    tool::remove_copy();
    code
}
