//! Processes that a test which failed has left running.
//!
//! A panic keeps a test from ending what it started. A `dtrace` that runs on disturbs the tests
//! that follow, which trace the whole machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long the ended processes may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Kills the processes that this one has started, and those that they have started. Waits until the
/// children of this one are gone. Returns how many were killed.
pub(crate) fn end() -> usize {
    let start = Instant::now();
    let mut killed = BTreeSet::new();
    loop {
        // A process may have forked meanwhile.
        let left = descendants(std::process::id());
        for pid in &left {
            // SAFETY: a signal to a process below this one, which nobody but its parent reaps.
            unsafe { libc::kill(*pid as libc::pid_t, libc::SIGKILL) };
            killed.insert(*pid);
        }
        // SAFETY: no status is asked for. Tests run one after the other: no other one waits.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        if left.is_empty() || start.elapsed() > LIMIT {
            return killed.len();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn descendants(of: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let stat = std::fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent(&String::from_utf8_lossy(&stat)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut left) = (BTreeSet::new(), vec![of]);
    while let Some(pid) = left.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                left.push(*child);
            }
        }
    }
    found
}

/// The parent in a line of `/proc/PID/stat`. The name may have blanks and parentheses.
fn parent(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_parent_follows_a_name_with_parentheses() {
        assert_eq!(parent("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (a"), None);
    }

    #[test]
    #[allow(clippy::unwrap_used)]
    fn children_and_their_children_are_found() {
        let mut shell = Command::new("sh").args(["-c", "sleep 100 & wait"]).spawn().unwrap();
        let start = Instant::now();
        let mut found = descendants(shell.id());
        while found.is_empty() && start.elapsed() < LIMIT {
            found = descendants(shell.id());
        }
        assert_eq!(found.len(), 1);
        assert!(descendants(std::process::id()).is_superset(&found));
        for pid in &found {
            // SAFETY: a signal to a process that this test has started.
            unsafe { libc::kill(*pid as libc::pid_t, libc::SIGKILL) };
        }
        shell.wait().unwrap();
    }
}
