//! The start of a session: when, and on which machine.

use events::{Clock, Host, Start};
use system::System;

/// The version of the tracer.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The start of a session of this process, now. The consumer adds the options.
pub(super) fn start(system: &System, cpus: &[u32]) -> Start<'static> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clock = Clock { time: bpf_sys::monotonic_ns(), wall: bpf_sys::wall_ns() };
    let host =
        Host::new(name.trim_end().to_owned(), system.release(), system.arch().to_owned(), cpus.len() as u32);
    Start::new(VERSION, clock, host)
}
