//! What the checker knows while it checks. The rules, above, read and change it.
//!
//! ```text
//!  scopes      what names mean: variables, aggregations, inlines, translators
//!  libraries   the items of libraries, at their names
//!  expansion   stored trees that are checked where they are used
//!  clause      the clause that is checked, and its probes
//!  matching    what descriptions match
//!  derived     what a program uses of the probes of libraries
//!  defined     the definitions of programs that were used
//!  recovery    what errors and missing probes leave undecided
//! ```

pub(crate) mod clause;
pub(crate) mod defined;
pub(crate) mod derived;
pub(crate) mod expansion;
pub(crate) mod libraries;
pub(crate) mod matching;
pub(crate) mod recovery;
pub(crate) mod scopes;
