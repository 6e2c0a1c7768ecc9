//! The intermediate form: builder, verifier, optimizer, text form, interpreter. Knows neither D nor BPF.
//!
//! A [`ir::Function`] is one clause: basic blocks in SSA form with block parameters, without back edges (D has no
//! loops), every value a 64-bit integer, a pointer with an address space, or a string. Two things execute it, the eBPF
//! back end and the interpreter here, and they must agree: same DIF, same inputs, same values, same faults.

pub mod builder;
mod dom;
#[cfg(any(test, feature = "generate"))]
pub mod generate;
pub mod interp;
pub mod ir;
pub mod memory;
mod ops;
pub mod opt;
pub mod reach;
pub mod subr;
pub mod text;
pub mod verify;

/// What pure operations compute.
pub use arith as eval;
pub use builder::{BuildError, FunctionBuilder};
pub use verify::{VerifyError, verify};
