//! x86-64.

pub(crate) mod condition;
mod encoding;
pub mod entry;
pub(crate) mod function;
mod go;
pub mod references;
pub mod resolver;
pub mod returns;
pub mod uprobe;

/// `EM_X86_64`.
pub(crate) const EM: u16 = 62;
