//! The kernel's events, as tracefs lists and describes them: what `syscall`, `sdt` and `rawtp` have in common.

mod format;

pub(crate) use format::Format;

use std::fs;

/// The format of an event.
pub(crate) fn format(group: &str, event: &str) -> Option<Format> {
    if [group, event].iter().any(|n| n.is_empty() || n.contains('/') || n.starts_with('.')) {
        return None;
    }
    let root = bpf::sys::tracefs().ok()?;
    Format::parse(&fs::read_to_string(root.join("events").join(group).join(event).join("format")).ok()?)
}
