//! The tests of `check` from outside, in one program: each further one would be linked with all
//! that is below it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod user_object;

mod defined;
mod golden;
mod running;
mod tags;
mod translators;
