//! The tests of `exercise` from outside, in one program: each further one would be linked with all
//! that is below it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// A target of the fuzzer has the sessions too, by a path of its own.
#![allow(clippy::duplicate_mod)]

// The targets of the fuzzer call the macro by this name.
extern crate exercise as libfuzzer_sys;

#[path = "../../crates/bpf-runtime/tests/session/mod.rs"]
mod session;

mod bounds;
mod constants;
mod growth;
#[path = "../../fuzz/targets.rs"]
mod list;
mod mutations;
mod programs;
mod targets;
