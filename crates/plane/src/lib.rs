//! The contract of the data plane: the layout of the memory that kernel programs and the consumer
//! share. This crate knows neither D nor BPF.
//!
//! The back end (`bpf-codegen`) emits programs that write these structures. The consumer reads
//! them. Both take every offset, size and state from this crate, so that the two sides cannot
//! diverge. The algorithms of the kernel side are written a second time here, as Rust state
//! machines (`model`). The model explorer runs them through every interleaving of nested and
//! preempted contexts.
//!
//! ```text
//!  descriptions   desc      columns of records and keys; values of aggregations
//!                 shape     the type tree that print() shows
//!                 format    formats of printf() and printa()
//!                 packet    the packets of pcap()
//!                 address   network addresses
//!                 builtin   built-in variables: what a program asks of a firing
//!  control page   control   activity, epoch, exit status, drop counters
//!                 deadman   stops a session that overloads the machine
//!  records        ring      one ring per CPU: reserve by compare-exchange, commit by exchange
//!                 overwrite  rings that keep the newest records
//!                 newest    snapshots of them while they are written
//!                 order     the watermark: no earlier record will come
//!                 read      consumer side: committed records, in the order of time
//!                 speculation   records that are kept back until they are committed
//!  aggregations   table     open addressing, one table per CPU and epoch
//!                 read      consumer side: merges and empties the idle tables
//!  variables      assoc     associative arrays with a sequence word per element
//!                 thread    `self->`: one value per thread, one struct per context level
//!                 owned     elements of `self->` arrays: one list per thread and level
//!                 vtime     the CPU time of a thread
//!  stacks         stacks    stores each stack once, under its hash
//!                 unwind    tables by which stacks of processes are walked
//!                 calls     frames of a language runtime in them
//!                 siphash   the keyed hash of stacks
//!  tables         shares    who has how much of a table that programs fill
//!  scratch        scratch   memory of one firing
//!  probes         probe_table   rows of the probes that come while a session runs
//!                 processes   the processes that a program at places in files serves
//!  verification   model     the algorithms above in every interleaving
//! ```
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! address builtin deadman format names order overwrite owned packet probe_table processes scratch shape shares siphash thread vtime
//! calls unwind
//! assoc control desc
//! ring table
//! read stacks
//! newest speculation
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod address;
pub mod assoc;
pub mod builtin;
pub mod calls;
pub mod control;
pub mod deadman;
pub mod desc;
pub mod format;
pub mod names;
pub mod newest;
pub mod order;
pub mod overwrite;
pub mod owned;
pub mod packet;
pub mod probe_table;
pub mod processes;
pub mod read;
pub mod ring;
pub mod scratch;
pub mod shape;
pub mod shares;
pub mod siphash;
pub mod speculation;
pub mod stacks;
pub mod table;
pub mod thread;
pub mod unwind;
pub mod vtime;

#[cfg(test)]
mod model;
