//! arm64.

mod functions;
mod syscalls;

pub(crate) use functions::{MARK, is_mark};
pub(crate) use syscalls::CALLS;
