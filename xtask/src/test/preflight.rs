//! What a run needs, looked at before anything is built: disk, memory, clock, root, `/dev/kvm`.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sys;

const GB: u64 = 1_000_000_000;

/// Bytes of a clean clone's build tree, the kernels and the largest test's directory.
const DISK: u64 = 8 * GB;

/// Bytes that a run needs beside a build tree that is there.
const DISK_BUILT: u64 = 3 * GB;

/// Bytes of two guests, and of what is built or tested beside them.
const MEMORY: u64 = 6 * GB;

/// Prints a line for each; too little of something is an error.
pub(crate) fn check(root: &Path, target: &Path, guests: bool) -> Result<(), String> {
    let mut lacks = Vec::new();
    let is_built = target.join("debug/deps").is_dir();
    let (_, free) = sys::space(if target.is_dir() { target } else { root })?;
    println!("disk: {:.1} GB free at {}", free as f64 / 1e9, target.display());
    lacks.extend(too_little_disk(free, is_built, target));
    let (_, free) = sys::space(&super::process::scratch())?;
    println!("disk: {:.1} GB free at {}", free as f64 / 1e9, super::process::scratch().display());
    if free < GB {
        lacks.push(format!(
            "{} needs 1 GB for the tests' files: set DTRACE_TEST_DIR",
            super::process::scratch().display()
        ));
    }
    let memory = available_memory().unwrap_or(0);
    println!("memory: {:.1} GB available", memory as f64 / 1e9);
    if guests && memory < MEMORY {
        lacks.push(format!(
            "{} GB of memory are available, two guests and a build need {} (--host leaves the guests out)",
            memory / GB,
            MEMORY / GB
        ));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let newest = fs::metadata(root.join("Cargo.toml")).and_then(|m| m.modified()).ok();
    let newest = newest.and_then(|t| t.duration_since(UNIX_EPOCH).ok()).map_or(0, |t| t.as_secs());
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    println!("clock: {} (source {})", super::flaky::day(now), source.unwrap_or_default().trim());
    if now < newest {
        lacks.push("the clock is behind the files: cargo would build nothing anew".into());
    }
    println!("root: {}", if super::is_root() { "yes" } else { "no: most tests are skipped" });
    let kvm = if Path::new("/dev/kvm").exists() { "there" } else { "not there" };
    println!("/dev/kvm: {kvm} (guests are emulated all the same; one test traces it)");
    if lacks.is_empty() { Ok(()) } else { Err(lacks.join("\n")) }
}

fn too_little_disk(free: u64, is_built: bool, target: &Path) -> Option<String> {
    let needed = if is_built { DISK_BUILT } else { DISK };
    (free < needed).then(|| {
        format!(
            "{:.1} GB of disk are missing ({} needed at {}). What may be removed: {}, target/compiled, target/vm of this \
             and of other checkouts, and /tmp/dtrace-*",
            (needed - free) as f64 / 1e9,
            needed / GB,
            target.display(),
            if is_built { "target/release, target/debug/incremental" } else { "target of other checkouts" }
        )
    })
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_disk_says_how_much_is_missing_and_what_may_be_removed() {
        let target = Path::new("/r/target");
        assert_eq!(too_little_disk(DISK, false, target), None);
        assert_eq!(too_little_disk(DISK_BUILT, true, target), None);
        let said = too_little_disk(DISK - 1_500_000_000, false, target).unwrap_or_default();
        assert!(said.starts_with("1.5 GB of disk are missing") && said.contains("may be removed"), "{said}");
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
