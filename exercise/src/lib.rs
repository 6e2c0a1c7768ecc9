//! Random D programs, and the compiler stages that must handle them.
//!
//! ```text
//!  choices    the source of randomness: a seed, or the bytes of a fuzzer
//!  generate   a program by D's grammar, nearly always valid
//!  mutate     a program of the tokens of others, nearly always invalid
//!  stages     text to DIF, without a kernel
//!  fixture    a miniature kernel
//!  defined    programs for a provider whose definition may be any text
//!  fuzz       the targets of the fuzzer as functions, their inputs, and changes of inputs
//! ```
//!
//! Used by the tests of this crate, which also run in the guests of the matrix, and by the targets
//! under `fuzz/`. Both call the same functions, so that a test can repeat what a fuzzer finds. This
//! crate knows no kernel; only its tests do.

pub mod choices;
pub mod defined;
pub mod fixture;
pub mod fuzz;
pub mod generate;
pub mod mutate;
pub mod stages;
