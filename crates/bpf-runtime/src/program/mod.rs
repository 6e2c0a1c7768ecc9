//! A program: the code around the clauses of the probes that one attachment serves.
//!
//! ```text
//!  first       what the provider counts at every firing: Context         clocks only
//!  gate        ends the program unless the session has this activity     3 instructions
//!  process     ends the program unless the process is in the set     probes of many processes only
//!  index       which probe fired (constant, or from the context): Context
//!  union       ends the program if no clause wants the probe             many probes only
//!  CPU, slot   the resources that the clauses need
//!  clauses     in order, each behind the test of its probe set; behind one with exit(), the gate again
//!  release     releases the slot
//! ```
//!
//! Big programs have their clauses in functions: see `parts`.
//!
//! The decision that shapes programs: providers differ in three questions (which probe, which
//! argument, which error), which they answer through [`bpf_codegen::context::Context`] at code
//! generation. So a provider emits three loads and knows nothing of records, and this crate knows
//! nothing of providers.
//!
//! The result names its maps ([`bpf_codegen::mir::MapRef`]). [`Compiled::image`] replaces them by
//! descriptors.

mod clauses;
mod clock;
mod compile;
mod dispatch;
mod facts;
mod image;
mod parts;
mod prefault;
mod service;
mod spec;

pub use compile::compile;
pub use image::{Compiled, must_avoid_private_stack};
pub use prefault::{Stretch, prefault};
pub use service::{end_of_thread, enter, heartbeat, inherit, leave, vtime_switch};
pub use spec::{ClauseUse, ErrorProbe, ProgramSpec};
