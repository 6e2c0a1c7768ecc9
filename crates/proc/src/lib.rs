//! Creating, stopping and following processes. Knows no probes.
//!
//! ```text
//!  Target::create              -c: fork, stop at the end of exec
//!  Target::grab                -p: stop a running process
//!  Target::release             let it run
//!  Target::release_until_exit  let it run, and hold it at its exit until Target::let_go
//!  Target::poll_fd             readable once the process is held at its exit or has ended; Target::ended says how
//! ```
//!
//! The one decision: a target is held by `PTRACE_SEIZE` and nothing else. A seized process that waits in an event stop
//! has no signal pending, so when the tracer dies, however it dies, the kernel detaches it and it goes on as if nothing
//! had been. (With `PTRACE_TRACEME` the process would be killed by the exec's `SIGTRAP`; with `SIGSTOP` it would stay
//! stopped.) Nothing is ever written into a target. All ptrace and wait calls are made by one thread (`tracer`), because the
//! kernel serves only the thread that has seized: so a target can be handed from thread to thread.

mod namespace;
mod target;
mod tracer;
mod wait;

pub use namespace::{Identities, PidNamespace, identities, in_initial_namespace, pid_namespace};
pub use target::{Ended, Error, Target, signal_name};
pub use wait::poll_readable;
