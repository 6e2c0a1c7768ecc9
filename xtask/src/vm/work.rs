//! The directory of a running guest: what it shares with this machine, and its console.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

const PREFIX: &str = "dtrace-vm-";

/// It is removed with the value.
pub(super) struct Work {
    pub(super) dir: PathBuf,
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Work {
    /// A new one. The first removes those of processes that are gone, killed with their guests.
    pub(super) fn new(kernel: &str) -> io::Result<Work> {
        // Guests of one process run side by side.
        static BOOTS: AtomicU32 = AtomicU32::new(0);
        static FIRST: Once = Once::new();
        let all = std::env::temp_dir();
        FIRST.call_once(|| remove_left(&all));
        let number = BOOTS.fetch_add(1, Ordering::Relaxed);
        let work = Work { dir: all.join(format!("{PREFIX}{}-{number}-{kernel}", std::process::id())) };
        let _ = fs::remove_dir_all(&work.dir);
        fs::create_dir_all(work.share())?;
        Ok(work)
    }

    /// What the guest sees at `/mnt/vmout`.
    pub(super) fn share(&self) -> PathBuf {
        self.dir.join("out")
    }
}

/// Whether a process runs.
pub(crate) fn is_alive(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

fn remove_left(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|n| n.split('-').next()?.parse().ok());
        if process.is_some_and(|p| !is_alive(p)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_processes_that_are_gone_are_removed() {
        let all = std::env::temp_dir().join(format!("xtask-work-{}", std::process::id()));
        let mine = format!("{PREFIX}{}-0-6.12", std::process::id());
        // No process has the first number: the kernel's limit is 4194304.
        for name in [&format!("{PREFIX}4194305-0-6.12"), &mine, "another", "dtrace-vm-x"] {
            fs::create_dir_all(all.join(name).join("out")).unwrap();
        }
        remove_left(&all);
        let mut left: Vec<_> = fs::read_dir(&all).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["another", mine.as_str(), "dtrace-vm-x"]);
        fs::remove_dir_all(all).unwrap();
    }
}
