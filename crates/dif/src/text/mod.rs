//! The text form of a module. `-S` prints it, tests and fuzzers write it.
//!
//! There is one line per instruction, with types at definitions only, so that a listing reads like
//! assembly. The printer prints everything in a module except its spans. With a source map it
//! prints them as `; line:column` comments. So a parsed module equals the printed one, except for
//! spans. The parser checks only syntax; [`crate::verify`] checks the rest.
//!
//! ```text
//! module strsize 256
//! string s0 = ""
//! var var0 = self "t" int
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
