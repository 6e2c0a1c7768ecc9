//! The start of a session: when, and on which machine.

use events::{Clock, Host, Start};
use system::System;

/// The version of the tracer.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The name of this machine.
pub(crate) fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// The start of a session of this process, now. The consumer adds the options.
pub(super) fn start(system: &System, cpus: &[u32]) -> Start<'static> {
    let clock = Clock { time: bpf_sys::monotonic_ns(), wall: bpf_sys::wall_ns() };
    let host = Host::new(name(), system.release(), system.arch().to_owned(), cpus.len() as u32);
    Start::new(VERSION, clock, host)
}
