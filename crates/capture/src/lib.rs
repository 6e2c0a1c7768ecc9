//! Files of captures: firings of probes with what a program may ask of them later.
//!
//! ```text
//!  session ──► firings ──► Writer ──► file ──► Reader ──► firings ──► the interpreter ──► any sink
//! ```
//!
//! A capture is of a machine and a script. It has the machine as compiling sees it, so that a
//! program is compiled on another machine as it would have been on the first one, and each firing
//! with what the script read of it: its time, CPU and built-in variables, and the memory at each
//! address that was read, or that it was unreadable there. What the script did with that (records,
//! aggregations, variables) is not in it: a replay does it again.
//!
//! The decision that shapes it: *memory is captured by address, not by the instruction that read
//! it*. So another program than the captured one finds what both read, and what only it reads is
//! known to be missing; it is never taken for something else. The alternative, the values of each
//! instruction in order, is shorter and answers no other question than the one that was asked.
//!
//! ```text
//!  file     magic 8 bytes 0x89 "DTCP" CR LF 0x1a, version u32, blocks
//!  block    sync 8 bytes, kind u8, packing u8 (0 none, 1 deflate), 2 zeros, stored u32, unpacked u32, count u32,
//!           time of the first and of the last firing u64 u64, crc of the stored bytes u32, crc of this head u32,
//!           the stored bytes
//!
//!  kind     contents
//!   1 head     what was captured: see `Head`
//!   2 machine  place of the part u32, number of parts u32, bytes of the machine's record
//!   3 firings  firings; names and memory that repeat are in a table of the block
//!   4 loss     what is missing, in words, and how often
//!   5 end      exit status int
//!   6 snapshot from u64, until u64, wall u64, reason bytes: the file is a snapshot of a session's last moments
//! ```
//!
//! **A block is complete in itself** and has at most 1 MiB. One that is damaged is skipped: the
//! reader looks for the next `sync` with a head whose check sum is right, says how many bytes it
//! has skipped, and reads on. The heads of blocks are the index by time: who wants a part of a
//! capture passes over the blocks before it without unpacking them. What follows the known fields
//! of a block is skipped, and so are blocks of unknown kinds; anything else is a new version.
//!
//! **A reader allocates in proportion to what it reads**: a block at most, a firing at most
//! [`FIRING_MAX`] bytes of memory, of the machine at most the limit that its caller gives.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! model
//! wire
//! block
//! read write
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod block;
mod model;
mod read;
mod wire;
mod write;

pub use block::{BLOCK_MAX, MAGIC, VERSION, unchecked_block};
pub use model::{Content, Firing, Head, Loss, Place, Region, Snapshot, Symbol, Word};
pub use read::{Error, Item, Reader};
pub use wire::FIRING_MAX;
pub use write::Writer;
