//! Processes and the files that they run, as the providers of their probes need them.
//!
//! ```text
//!  kernel   what the running kernel does at places in processes
//!  object   the files that a process runs, each held once
//!  read     the processes that a description means
//!  lists    the functions of their files
//! ```

pub(crate) mod kernel;
pub(crate) mod lists;
pub(crate) mod object;
pub(crate) mod read;
