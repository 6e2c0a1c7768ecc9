//! Timelines of sessions: what happened on each thread and CPU, in the form that Perfetto's viewer
//! and its SQL read (TrackEvent, protocol buffers).
//!
//! [`Timeline`] is a sink of [events](events), beside the one for text. The decision that shapes
//! the crate: *it is written while the events come*. Nothing of an event is kept but which calls
//! are open, and the texts that have a number. So a session can run for days, a file that was cut
//! short is a timeline too, and the memory is bounded.
//!
//! ```text
//!  Event::Record ───> annotations, stacks ──┐
//!           └───────> calls, pairs ─────────┼──> packets ──> bytes
//!  Event::Interval ─> counters ─────────────┘
//!
//!  field        the numbers of fields
//!  names        texts that have a number
//!  packets      packets as bytes, the clock
//!  calls        the open calls of a thread
//!  pairs        slices between any two probes
//!  stacks       call stacks
//!  annotations  what a record has
//!  counters     aggregations by interval
//!  threads      tracks, names and open calls of threads
//!  tracks       what events are on their tracks
//!  timeline     the sink
//! ```
//!
//! **Tracks**: each thread has one. An `entry` and its `return` are a slice on it, and any other
//! record is an instant with its values. CPUs have theirs if there are records of `on-cpu` and
//! `off-cpu`, and each [pair](Pair) of probes has some. Aggregations are counters by interval, and
//! messages (drops, faults) are instants.
//!
//! **Size**: a slice without values takes less than 40 bytes. Texts are written once, times are
//! differences, and tracks have small numbers.
//!
//! **Memory**: at most 65,536 threads, a million open calls, 65,536 open slices of pairs, 4 MB of
//! texts of each of four kinds, a million numbers of frames, 4,096 counters. Beyond, the
//! threads and slices are forgotten whose last record is the oldest, threads without open calls
//! first; texts are written where they occur, and counters are missing.
//! [`losses`](events::Sink::losses) says what has ended so.
//!
//! **Names are hostile**: a process chooses its own, and they are escaped and bounded. The strings
//! that a script records are data: they are written as they are where they are UTF-8.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! calls field
//! names
//! packets stacks
//! annotations counters pairs threads
//! tracks
//! timeline
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod annotations;
mod calls;
mod counters;
mod field;
mod names;
mod packets;
mod pairs;
mod stacks;
mod threads;
mod timeline;
mod tracks;

pub use pairs::{NoPair, Pair};
pub use timeline::Timeline;
