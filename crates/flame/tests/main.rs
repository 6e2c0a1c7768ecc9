//! The tests of `flame` from outside, in one program: each further one would be linked with all
//! that is below it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

mod browser;
mod otlp;
mod pictures;
mod sink;
