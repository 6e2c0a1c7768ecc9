//! What this machine lacks, found without a run of dtrace.
//!
//! A test that needs a facility asks here first and is skipped without it. Then it expects that its
//! run succeeds: a run that fails is a failure of the test, whatever its message is.

use std::io::Read;
use std::path::Path;

use bpf_sys::features::{Facility, Features};

use crate::Verdict::{self, Skip};

/// Why the running kernel lacks a facility, if so.
pub(crate) fn lacks(facility: Facility) -> Option<Verdict> {
    let why = Features::running().why_not(facility)?;
    Some(Skip(format!("this kernel has no {}: {why}", facility.name())))
}

/// Whether the running kernel has a facility.
pub(crate) fn has(facility: Facility) -> bool {
    Features::running().has(facility)
}

/// Skips a test that needs a clock.
pub(crate) fn no_clock() -> Option<Verdict> {
    lacks(Facility::CpuClock)
}

/// Skips a test that needs the kernel's types.
pub(crate) fn no_types() -> Option<Verdict> {
    lacks(Facility::Btf)
}

/// Skips a test that needs the kernel's events.
pub(crate) fn no_events() -> Option<Verdict> {
    let events = tracefs().join("events/sched/sched_switch/format");
    unreadable(&events).map(|why| Skip(format!("the kernel does not list its events: {why}")))
}

/// Skips a test that needs arguments of system calls or events with their types.
pub(crate) fn no_argument_types() -> Option<Verdict> {
    no_events().or_else(no_types)
}

/// Skips a test that needs the kernel's functions: a list of them, and a way to attach to them.
pub(crate) fn no_functions() -> Option<Verdict> {
    no_function_list().or_else(|| {
        let ways = [Facility::KprobeMulti, Facility::Fentry, Facility::KprobePerf];
        if ways.into_iter().any(has) { None } else { lacks(Facility::KprobePerf) }
    })
}

/// Skips a test that needs the list of the functions that can be traced.
pub(crate) fn no_function_list() -> Option<Verdict> {
    let list = tracefs().join("available_filter_functions");
    unreadable(&list).map(|why| Skip(format!("the kernel does not list its functions: {why}")))
}

/// Whether one link attaches to many functions on this kernel.
pub(crate) fn attaches_to_many_functions() -> bool {
    has(Facility::KprobeMulti)
}

/// A guest of the matrix, which nobody else uses.
pub(crate) fn is_guest() -> bool {
    std::env::var_os("DTRACE_IN_VM").is_some()
}

/// The directory of the kernel's events and functions.
fn tracefs() -> &'static Path {
    // Without tracefs, nothing is there.
    bpf_sys::tracefs().unwrap_or(Path::new("/sys/kernel/tracing"))
}

/// Why the first byte of a file cannot be read, if so.
fn unreadable(path: &Path) -> Option<String> {
    let name = path.file_name().unwrap_or_default().display().to_string();
    let read = std::fs::File::open(path).and_then(|mut f| f.read(&mut [0; 1]));
    match read {
        Ok(0) => Some(format!("{name} is empty")),
        Ok(_) => None,
        Err(e) => Some(format!("{name}: {e}")),
    }
}

/// Whether a test is to attach to all functions: on one kernel of the guests, because it takes half
/// a minute on an emulated CPU, and for a while the next tests are slow. Other tests do it on the
/// others.
pub(crate) fn attaches_to_all_functions(version: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_version =
        release.strip_prefix(version).is_some_and(|r| !r.starts_with(|c: char| c.is_ascii_digit()));
    attaches_to_many_functions() && (!is_guest() || is_version)
}
