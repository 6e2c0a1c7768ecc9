//! The perf map of a process.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The file in which a process lists its JIT code.
#[derive(Debug)]
pub(super) struct PerfMap {
    /// Base name of the file, which is the module of its symbols.
    pub(super) name: Arc<str>,
    pub(super) handle: Option<OwnedFd>,
}

impl PerfMap {
    /// The file of this name.
    pub(super) fn of(pid: u32, handle: Option<OwnedFd>) -> PerfMap {
        PerfMap { name: format!("perf-{pid}.map").into(), handle }
    }
}
