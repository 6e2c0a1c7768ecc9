//! Files that processes map: which file it is, a handle that outlives the process, and how it is
//! opened safely. This crate knows nothing of probes or symbols.
//!
//! ```text
//!  address maps (proc::maps) ─┐             ┌─► handle (O_PATH), path, root     for reading it
//!  records (proc::watcher) ───┴─► Files ────┤
//!                                           └─► build id                       is it the file that was mapped?
//!  real    which file it is below overlays
//!  open    opens a file that a process controls, in steps that each can be refused
//! ```
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! sys
//! open
//! real
//! table
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod open;
pub mod real;
mod sys;
mod table;

pub use table::{File, FileId, Files, KEEP, table_of};
