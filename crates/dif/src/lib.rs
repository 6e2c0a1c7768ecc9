//! The intermediate form: builder, verifier, optimizer, text form, interpreter. This crate knows
//! neither D nor BPF.
//!
//! A [`ir::Function`] is one clause. It consists of basic blocks in SSA form with block parameters,
//! without back edges (D has no loops). Every value is a 64-bit integer, a pointer with an address
//! space, or a string. The eBPF back end and the interpreter both execute the form, and must agree:
//! the same DIF and the same inputs give the same values and the same faults.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! interp/agg subr/name text text/lex
//! ir
//! interp/state
//! interp/world
//! subr/call
//! subr/action subr/address subr/args subr/file subr/number subr/path subr/text
//! subr/json
//! subr
//! interp
//! dom memory ops opt/dead opt/flow opt/fold text/names user_access
//! builder interp/memory interp/record opt/simplify text/parse text/print verify
//! generate+generate/body+generate/memory opt text/action text/operation
//! ```

pub mod builder;
mod dom;
#[cfg(any(test, feature = "generate"))]
pub mod generate;
pub mod interp;
pub mod ir;
pub mod memory;
mod ops;
pub mod opt;
pub mod subr;
pub mod text;
pub mod user_access;
pub mod verify;

/// The arithmetic of pure operations.
pub use arith as eval;
pub use builder::{BuildError, FunctionBuilder};
pub use verify::{VerifyError, verify};
