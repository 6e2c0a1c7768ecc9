//! The tests of `consumer` from outside, in one program: each further one would be linked with all
//! that is below it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "../../events/tests/generate/mod.rs"]
mod generate;

mod aggregations;
mod control;
mod json;
mod malformed;
mod packed;
mod rows;
mod stored;
