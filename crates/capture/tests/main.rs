//! All tests of the crate from outside.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;
mod files;
