//! The public library: a session, from program to results. It knows no command line.
//!
//! ```text
//!  compile(sources) ──► Program        no privilege, no kernel facility
//!  Session::start(program) ──► work … ──► finish
//!                              enable(more)
//!
//!  options    the table of -x options
//!  compile    texts to a module: syntax, check, lower
//!  libraries  the D libraries, and their dependencies
//!  assemble   clauses and probes to programs and ids
//!  prefault   programs that fault in user memory before probes read it
//!  load       creating maps and loading programs
//!  machine    the kernel side: maps, programs, links
//!  clocks     counting missing firings of clocks
//!  modules    probes of modules that are loaded later
//!  deadman    stopping a session that takes too much time of the CPUs
//!  session    a running session, from start to end
//!  reference  tables for the manual page
//! ```
//!
//! A program can do everything that the command can do: the command only parses arguments and
//! prints text.
//!
//! When a session symbolizes the first address of a process, it starts its own executable once
//! more, as a process that reads symbols (`symbols::entry`). That process does not reach `main`,
//! and a program that embeds this library needs no code for it. If the library is part of a shared
//! object, there is no such process, and addresses of processes are numbers.

mod assemble;
mod attach;
mod clocks;
mod compile;
mod cpp;
mod deadman;
mod error;
mod facts;
mod libraries;
pub mod list;
mod load;
mod machine;
mod modules;
pub mod options;
mod prefault;
pub mod reference;
mod session;
mod stop;

pub use consumer::Output;

pub use attach::Progress;
pub use compile::{Field, Macros, Program, Source, compile, compile_only, compile_with};
pub use deadman::{Alarm, Overload};
pub use error::Error;
pub use probes::{FieldKind, Pattern, ProbeInfo};
pub use proc::{Error as TargetError, Target};
pub use providers::Provider;
pub use session::{Notice, Session, Status};
pub use stop::Stopper;

pub use diagnostics::nearest;

/// Ends this process at once with an exit status, whatever its threads are doing. A process in the
/// background detaches the probes of its sessions. This function can be called from a signal
/// handler.
pub fn end_process(status: i32) -> ! {
    bpf::sys::end_process(status)
}

/// The kernel's facilities, one a line, probed now.
pub fn facilities() -> String {
    bpf::features::Features::running().table()
}
