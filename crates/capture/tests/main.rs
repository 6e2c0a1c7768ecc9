//! All tests of the crate from outside.

mod damage;
mod files;
