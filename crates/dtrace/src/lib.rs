//! The public library: a session, from program to results. Knows no command line.
//!
//! ```text
//!  compile(sources) ──► Program        no privilege, no kernel facility
//!  Session::start(program) ──► work … ──► finish
//!                              enable(more)
//!
//!  options    the table of -x options
//!  compile    texts to a module: syntax, check, lower
//!  libraries  which D libraries there are, and which their dependencies allow
//!  assemble   clauses and probes to programs and ids
//!  pages      which user memory is brought before which probes
//!  load       making maps and programs
//!  machine    the kernel side: maps, programs, links
//!  deadman    who stops a session that leaves the machine no time
//!  session    the life of it
//!  reference  tables for the manual page
//! ```
//!
//! Everything the command can do, a program can: the command is words in and words out around this crate.
//!
//! When the first address of a process is to be named, a session runs the executable that it is part of once more, as a process
//! that reads symbols (`symbols::entry`). That one never gets to `main`, and a program that embeds this library has nothing to
//! do for it. Where the library is part of a shared object there is no such process, and addresses of processes are numbers.

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
mod pages;
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

/// Ends this process at once with an exit status, whatever its threads are doing, and leaves what its sessions have in the kernel
/// to a process in the background, which detaches it. May be called from a signal handler.
pub fn end_process(status: i32) -> ! {
    bpf::sys::end_process(status)
}

/// The kernel's facilities, one a line, tried now.
pub fn facilities() -> String {
    bpf::features::Features::running().table()
}
