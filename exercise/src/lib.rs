//! Programs in D made at random, and the stages of the compiler that must bear them.
//!
//! ```text
//!  choices    where randomness comes from: a seed, or the bytes of a fuzzer
//!  generate   a program by D's grammar, nearly always valid
//!  mutate     a program made of the tokens of others, nearly always wrong
//!  stages     text to DIF, without a kernel
//!  fixture    a kernel in miniature
//! ```
//!
//! For the tests beside it, which also run in the guests of the matrix, and for the targets under `fuzz/`. Both use the same
//! functions, so that what a fuzzer finds is repeated by a test. Knows no kernel; the tests do.

pub mod choices;
pub mod fixture;
pub mod generate;
pub mod mutate;
pub mod stages;
