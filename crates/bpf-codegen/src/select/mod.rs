//! Instruction selection: a DIF clause becomes MIR.
//!
//! Each kind of operation has its own file. They share `Clause`, the state of one clause's
//! translation. The decision that shapes selection: a DIF value is not always in a register.
//! Constants stay constants, a comparison is fused with the branch that uses it, strings have three
//! representations (`strings`). A value is materialized where an operation needs its bits.
//!
//! The state of a firing (which probe, which CPU, arguments) comes from the program around the
//! clause ([`Firing`]) and from the provider through [`Context`](crate::context::Context). A clause
//! fetches each builtin once, in a block that dominates all its uses (`builtin`).
//!
//! ```text
//!  facts    of values: uses, NULL, representation       fetch     where builtins are fetched
//!  clause   the state of a clause, its values           blocks    blocks, block parameters, branches
//!           (the files below add their operations)      strings   compare, measure, load, copy
//!  int      arithmetic, checks, loads                   effect    records, variables, aggregations, exit
//!  builtin  arguments, ids, clocks, names               fault     fault stubs and exits
//!  memory   objects, pointers                           d_memory  their layout in a slot
//!  scratch  scratch memory
//!  task     members of the current thread's task        layout    layout of a slot
//!  split    division of long clauses                    segment   translation of one segment
//! ```

mod blocks;
mod builtin;
mod clause;
mod d_memory;
mod effect;
mod facts;
mod fault;
mod fetch;
mod int;
mod layout;
mod memory;
mod scratch;
mod segment;
mod split;
mod strings;
mod subr;
mod task;

pub use blocks::clause;
pub use clause::{ClauseInstance, Firing, FiringWalks, Walks};
pub use d_memory::{begin_scratch, keep_scratch, kept_scratch};
pub use facts::is_this_int;
pub use fault::REPORT;
pub use fetch::{clock_before_reserve, reserves};
pub use layout::{Layout, STATE_ARGS, STATE_ERRNO, SlotParts, StackArea, Stacks};
pub use segment::segment;
pub use split::{Division, END, Segment, SplitClause, needs_context, operations, stack_kind};
