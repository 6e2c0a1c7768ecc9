//! Creating, stopping and tracing processes with ptrace. This crate knows nothing of probes.
//!
//! ```text
//!  Target::create              -c: fork; the process stops at the end of exec
//!  Target::grab                -p: stop a running process
//!  Target::release             detach: the process runs
//!  Target::release_until_exit  the process runs, and is held at its exit until Target::resume_exit
//!  Target::poll_fd             readable when the process is held at its exit or has ended
//!  Target::exit_status         how the process ended
//! ```
//!
//! The one decision: a target is held by `PTRACE_SEIZE` and nothing else. A seized process in an
//! event stop has no pending signal. When the tracer dies, in whatever way, the kernel detaches the
//! process, and the process continues unchanged. (With `PTRACE_TRACEME` the `SIGTRAP` of the exec
//! would kill the process. With `SIGSTOP` the process would stay stopped.) Nothing is ever written
//! into a target. One thread (`tracer`) makes all ptrace and wait calls, because the kernel accepts
//! them only from the thread that has seized the process. So any thread can use a target.

mod namespace;
mod poll;
mod target;
mod tracer;

pub use namespace::{Identities, PidNamespace, identities, in_initial_namespace, pid_namespace};
pub use poll::poll_readable;
pub use target::{Error, ExitStatus, Target, signal_name};
