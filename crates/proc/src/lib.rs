//! Processes: creating, stopping and tracing them with ptrace, and watching all of the system by
//! perf's side-band. This crate knows nothing of probes.
//!
//! ```text
//!  Target::create              -c: fork; the process stops at the end of exec
//!  Target::create_at           -c: the same, and then it runs to a Moment of its start
//!  Target::grab                -p: stop a running process
//!  Target::release             detach: the process runs
//!  Target::release_with        the process runs, and is held where it changes and at its exit, until it is resumed
//!  Target::poll_fd             readable when the process is held at its exit or has ended
//!  Target::exit_status         how the process ended
//!
//!  watcher::Watcher            what every process runs and has mapped, also a while after its end
//!  maps                        the address map of one process, from /proc
//!  memory                      the limits of its memory, and what it has
//!  Selection                   which processes are meant, by id, name, user and cgroup
//!  containers                  containers and pods by their control groups
//!  share                       whose a process is, and how much it may have of what all use
//!  Caller                      calls that a process can block, in a thread that can be abandoned
//! ```
//!
//! The one decision: a target is held by `PTRACE_SEIZE` and nothing else. A seized process in an
//! event stop has no pending signal. When the tracer dies, in whatever way, the kernel detaches the
//! process, and the process continues unchanged. (With `PTRACE_TRACEME` the `SIGTRAP` of the exec
//! would kill the process. With `SIGSTOP` the process would stay stopped.) Nothing is written
//! into a target, but where the session asks for memory in it ([`Target::create_with_memory`]). One
//! thread (`tracer`) makes all ptrace and wait calls, because the kernel accepts them only from the
//! thread that has seized the process. So any thread can use a target.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! arch/start caller containers exec maps memory namespace phase poll refusal stat watcher/record
//! survivor
//! arch/other arch/x86_64 selection watcher/file watcher/ring
//! arch
//! image
//! share start watcher/changes
//! grab
//! inject
//! tracer+tracer/children+tracer/limits
//! tracer/create tracer/fatal
//! target
//! watcher/table
//! watcher/observe
//! watcher
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arch;
mod caller;
pub mod containers;
mod exec;
mod grab;
mod image;
mod inject;
pub mod maps;
pub mod memory;
mod namespace;
mod phase;
mod poll;
mod refusal;
mod selection;
pub mod share;
mod start;
mod stat;
mod survivor;
mod target;
mod tracer;
pub mod watcher;

/// Commands of this program that are no targets run with the limit on descriptors that it was
/// started with.
pub use bpf_sys::with_original_fd_limit;
pub use caller::{Call, Caller, MOST_BLOCKED, Results};
pub use exec::TargetOutput;
pub use image::{linker_hook, main_in, places_of};
pub use namespace::{
    Identities, PidNamespace, identities, in_initial_namespace, pid_namespace, proc_has_initial_ids,
    thread_name,
};
pub use phase::{ExitStatus, Hold, signal_name, taken};
pub use poll::poll_readable;
pub use refusal::{field_in, may_trace_all};
pub use selection::{Selection, is_in_cgroup, real_user};
pub use start::Moment;
pub use stat::{Stat, parse_stat};
pub use survivor::thread_with_memory;
pub use target::{Environment, Error, Target};
