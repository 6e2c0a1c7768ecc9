//! The text form: what `-S` prints, and what tests and fuzzers write.
//!
//! One line an instruction, types at definitions only, so that a listing reads like assembly. The printer says
//! everything a module holds but its spans (those become `; line:column` comments when a source map is at hand), so a
//! module read back equals the one printed, spans apart. The parser knows syntax only; whether the module makes sense
//! is for [`crate::verify`].
//!
//! ```text
//! module strsize 256
//! string s0 = ""
//! var var0 = self "t" u64
//! agg agg0 = "_" quantize [0:str(16)] size 16
//!
//! clause "clause_0" record 8 {
//!     does trace 0:i64
//! b0:
//!     v0:int = loadvar var0
//!     branch v0, b1, b2
//! b1:
//!   action 1
//!     reserve
//!     record 0:i64, v0
//!     commit
//!     return
//! b2:
//!     predfalse
//! }
//! ```

mod action;
mod lex;
mod names;
mod operation;
mod parse;
mod print;

pub use parse::{ParseError, parse};
pub use print::{print, print_function};
