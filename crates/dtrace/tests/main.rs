//! The tests of `dtrace` from outside, in one program: each further one would be linked with all
//! that is below it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod given;

mod book;
mod captures;
mod derived;
mod epochs;
mod interpreted;
mod intervals;
mod kernel_types;
mod systems;
