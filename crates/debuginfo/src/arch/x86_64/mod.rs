//! x86-64.

pub(crate) mod convention;
pub(crate) mod go;
