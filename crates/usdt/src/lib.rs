//! USDT: probes that programs and libraries bring along, and how they describe them in their files.
//!
//! ```text
//!  .note.stapsdt   bytes ──► Note       provider, name, address, semaphore, text of the arguments
//!  .note.usdt      bytes ──► Note       of the C port of DTrace: the same
//!  .SUNW_dof       bytes ──► DofSite    of the original
//!  .note.dtrace    bytes ──► Definition a provider as D text
//!  Machine         text  ──► Argument   size, sign, where the value is: a constant, a register, memory
//! ```
//!
//! The decision that shapes it: this crate reads bytes and text, and no files. Whoever reads the
//! file (a separate process, because the file is a traced process's) gives the bytes of a section,
//! and finds the symbols that arguments name.
//!
//! All of it may be hostile. Every reader is total: it has a result for all input, its memory is
//! bounded by that of the input, and nothing that is described is lost because a part of it is not
//! understood. An operand that cannot be read is an [`Argument`] that says so
//! ([`Source::Unreadable`]).
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! argument name note sum
//! arch/aarch64 arch/x86_64 definition dof port
//! arch
//! machine
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arch;
mod argument;
mod definition;
mod dof;
mod machine;
mod name;
mod note;
mod port;
mod sum;

pub use arch::Machine;
pub use argument::{Address, Argument, MAX_ARGUMENTS, Register, Source};
pub use definition::{Definition, definitions};
pub use dof::DofSite;
pub use name::{MAX_NAME, MAX_PROVIDER, probe_name, provider_name};
pub use note::{Note, Notes};
pub use port::{port_definitions, port_notes};
