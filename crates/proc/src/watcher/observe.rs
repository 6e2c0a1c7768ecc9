//! Reads processes from `/proc`: the first state, and again after a loss.
//!
//! Only pseudo files that the kernel writes are read, so no process can mislead the reader with
//! files of its own. But a process can block it: reading its map takes the lock of its address
//! space. So [`process`] is called in a thread that can be abandoned. All others take no lock that
//! a process can keep.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use super::record::NAMESPACES;
use super::table::Observation;
use crate::maps;
use crate::stat::{Stat, parse_stat};
use crate::survivor::thread_with_memory;

/// The pids in `/proc`. The newest are usually the last, which are read first.
pub(super) fn all() -> Vec<u32> {
    let Ok(dir) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pid = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    dir.filter_map(pid).collect()
}

fn read(path: &str, limit: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(limit).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Reads a process. `None` if it does not exist, has no address space (kernel threads, zombies), or
/// executes a program meanwhile.
pub(super) fn process(pid: u32) -> Option<Observation> {
    let thread = thread_with_memory(pid);
    let before = stat(pid, thread)?;
    // The address space is gone when the process exits. Kernel threads have none.
    let map = maps::read(File::open(format!("/proc/{thread}/maps")).ok()?, maps::MAX_READ).ok()?;
    if map.mappings.is_empty() {
        return None;
    }
    let namespaces = namespaces(thread);
    let after = stat(pid, thread)?;
    let same = (before.start, before.stack) == (after.start, after.stack);
    let tick = 1_000_000_000 / ticks_per_second().max(1);
    same.then_some(Observation {
        start: before.start.saturating_mul(tick),
        parent: before.parent,
        name: before.name,
        namespaces,
        map,
    })
}

/// Of a process, whose memory is that of a thread.
fn stat(pid: u32, thread: u32) -> Option<Stat> {
    let of = |id: u32| parse_stat(&read(&format!("/proc/{id}/stat"), 4096)?);
    let first = of(pid)?;
    Some(if thread == pid { first } else { Stat { stack: of(thread)?.stack, ..first } })
}

fn ticks_per_second() -> u64 {
    // SAFETY: plain call without memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100)
}

/// The inodes of a process's namespaces; 0 for unknown.
pub(super) fn namespaces(pid: u32) -> [u64; NAMESPACES.len()] {
    NAMESPACES.map(|kind| namespace(pid, kind).unwrap_or(0))
}

/// The inode of a process's mount namespace.
pub(super) fn mount_namespace(pid: u32) -> Option<u64> {
    namespace(pid, "mnt")
}

/// The inode of a namespace: `mnt:[4026531841]`.
fn namespace(pid: u32, kind: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// The path of a process's cgroup: the last line of its list has version 2, or else its first
/// hierarchy.
pub(super) fn cgroup(pid: u32) -> Option<Arc<str>> {
    let text = read(&format!("/proc/{pid}/cgroup"), 64 << 10)?;
    let line = text.split(|b| *b == b'\n').rfind(|line| !line.is_empty())?;
    let path = line.splitn(3, |b| *b == b':').nth(2)?;
    Some(String::from_utf8_lossy(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_with_its_code_and_namespaces() {
        let seen = process(std::process::id()).unwrap();
        assert!(seen.start > 0 && seen.namespaces.iter().all(|n| *n > 0), "{seen:?}");
        assert!(seen.map.files.iter().any(|f| f.path.ends_with(b".so.6") || f.inode > 0));
        assert!(cgroup(std::process::id()).is_some_and(|c| c.starts_with('/')));
    }
}
