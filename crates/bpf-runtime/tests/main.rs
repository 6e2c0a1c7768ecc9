//! The tests of `bpf-runtime` from outside, in one program: each further one would be linked with
//! all that is below it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod session;

mod big;
mod differential;
mod golden;
mod heartbeat;
mod refusal;
mod routines;
mod subroutines;
mod unwind;
