//! The start of a session: when, and on which machine.

use std::time::{SystemTime, UNIX_EPOCH};

use events::{Clock, Host, Start};

/// The version of the tracer.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The start of a session of this process, now. The consumer adds the options.
pub(super) fn start(cpus: &[u32]) -> Start<'static> {
    let fact = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim_end().to_owned()
    };
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock =
        Clock { time: bpf_sys::monotonic_ns(), wall: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX) };
    let host = Host::new(fact("hostname"), fact("osrelease"), std::env::consts::ARCH, cpus.len() as u32);
    Start::new(VERSION, clock, host)
}
