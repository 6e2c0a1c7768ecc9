//! Call frame information (`.eh_frame`, `.debug_frame`) as tables of rows that a program in the
//! kernel can walk ([`plane::unwind`] has their form).
//!
//! A debugger evaluates the instructions of a compiler's call frame information, a small machine
//! for each function. A program in the kernel cannot, so it is done once for each file:
//!
//! ```text
//!  sections ──► entries ──► rules: start, end, how to find the caller ──► pages of rows ──► chunks of the kernel
//!               read           arch: what eight bytes can express           table
//! ```
//!
//! The decision that shapes the crate: *it reads bytes and nothing else.* The sections come from a
//! file that a traced process chose, so whoever opens it bounds what is read, and the crate bounds
//! what becomes of it ([`MAX_RULES`]): it never panics, and takes memory in proportion to the bytes
//! it was given. What it cannot express becomes [`Kind::Unknown`](plane::unwind::Kind::Unknown),
//! where a walk ends honestly, and never a guess.
//!
//! Beside it, [`landing_pads`] reads where exceptions come back to functions, outside of their
//! code.
//!
//! `gimli` decodes the sections. Of what it gives, three shapes of rules need expressions, and are
//! known by their bytes (`arch`): entries of procedure linkage tables, functions that align their
//! stack, and the frames of signal handlers.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! arch/x86_64 table
//! arch
//! read
//! landing
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arch;
mod landing;
mod read;
mod table;

pub use landing::{LandingPad, landing_pads};
pub use read::{MAX_RULES, Sections, read};
pub use table::{Builder, Place, Table};
