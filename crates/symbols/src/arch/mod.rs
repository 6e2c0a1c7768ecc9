//! What the files of a machine's programs and its kernel have, a file for each.
//!
//! Only code that [`text`] decodes is read as code.

mod x86_64;

pub(crate) use x86_64::{EM, EM_32, IRELATIVE, NARROW_CALLS};
