//! The data plane's contract: what is recorded where, in memory that kernel programs and the consumer share.
//! Knows neither D nor BPF.
//!
//! Two sides meet here. The back end (`bpf`) emits programs that write these structures; the consumer reads them. Both
//! take every offset, size and state from this crate, so that neither can drift. The algorithms of the kernel side are
//! written a second time here as Rust state machines ([`model`]), which the model explorer runs through every
//! interleaving of nested and preempted contexts.
//!
//! ```text
//!  descriptions   desc      what a record, a key, an aggregation value is made of
//!  control page   control   activity, epoch, exit status, drop counters
//!  records        ring      one ring a CPU: reserve by compare-exchange, commit by exchange
//!  aggregations   table     open addressing, one table a CPU and epoch
//! ```

pub mod desc;
pub mod format;
