//! The data plane's contract: what is recorded where, in memory that kernel programs and the consumer share.
//! Knows neither D nor BPF.
//!
//! Two sides meet here. The back end (`bpf`) emits programs that write these structures; the consumer reads them. Both
//! take every offset, size and state from this crate, so that neither can drift. The algorithms of the kernel side are
//! written a second time here as Rust state machines (`model`), which the model explorer runs through every
//! interleaving of nested and preempted contexts.
//!
//! ```text
//!  descriptions   desc      what a record, a key, an aggregation value is made of
//!                 shape     what print() shows of a type
//!  control page   control   activity, epoch, exit status, drop counters
//!                 deadman   who stops a session that leaves the machine no time
//!  records        ring      one ring a CPU: reserve by compare-exchange, commit by exchange
//!                 order     how the consumer knows that no earlier record will come
//!                 read      the consumer's side: committed records, in order of time
//!  aggregations   table     open addressing, one table a CPU and epoch
//!                 snapshot  the consumer's side: merging and emptying the idle tables
//!  variables      assoc     associative arrays under a sequence word
//!                 thread    `self->`: one value a thread, one struct a context level
//!                 owned     elements of `self->` arrays, a list a thread and level
//!                 vtime     a thread's time on the CPU
//!  stacks         stacks    each stack once, under its hash
//!  scratch        scratch   memory of one firing
//!  proof          model     the algorithms above in every interleaving
//! ```

pub mod assoc;
pub mod control;
pub mod deadman;
pub mod desc;
pub mod format;
pub mod order;
pub mod owned;
pub mod read;
pub mod ring;
pub mod scratch;
pub mod shape;
pub mod stacks;
pub mod table;
pub mod thread;
pub mod vtime;

#[cfg(test)]
mod model;
