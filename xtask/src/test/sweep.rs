//! The end of a run: nothing that it started is left, whatever happened.
//!
//! ```text
//!  xtask test               the supervisor: adopts and reaps orphans, and ends what is left when the run has ended
//!    └─ xtask test          the run (`DTRACE_SUPERVISED`)
//!         ├─ a test         in a process group of its own
//!         └─ QEMU
//! ```
//!
//! Whatever a process does to leave its test, it is still below the supervisor (`PR_SET_CHILD_SUBREAPER`). Orphans have to be
//! reaped at once, as by any init: tests wait for processes to be gone. The run itself cannot do that, since it waits for
//! children of its own. No PID namespace: it would put every test on the path that translates process ids.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::process;
use crate::sys;

/// How long killed processes may take to be gone.
const LIMIT: Duration = Duration::from_secs(10);

/// The environment variable of the run that has a supervisor.
pub(crate) const SUPERVISED: &str = "DTRACE_SUPERVISED";

/// Runs this program again, with the same words, as the run: its exit status. `None` in the run.
pub(crate) fn supervise() -> Result<Option<u8>, String> {
    if std::env::var_os(SUPERVISED).is_some() {
        sys::end_with_parent();
        return Ok(None);
    }
    sys::adopt_orphans()?;
    // The run has them too, and ends in order.
    sys::note_interrupts();
    let before = Before::now();
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let run = std::process::Command::new(this)
        .args(std::env::args_os().skip(1))
        .env(SUPERVISED, "1")
        .spawn()
        .map_err(|e| e.to_string())?;
    let status = loop {
        match sys::reap_any() {
            Some((pid, status)) if pid as u32 == run.id() => break status,
            Some(_) => {}
            None => return Err("the run is gone".into()),
        }
    };
    for left in before.restore() {
        eprintln!("ended at the last: {left}");
    }
    Ok(Some(status))
}

/// What a machine had before the run.
struct Before {
    mounts: Vec<PathBuf>,
    loops: Vec<(PathBuf, PathBuf)>,
    pins: Vec<PathBuf>,
}

impl Before {
    fn now() -> Before {
        Before { mounts: process::mounts_below(Path::new("/")), loops: process::loop_devices(), pins: pins() }
    }

    /// Ends every process below this one, and removes the mounts, the loop devices and the pinned BPF objects that came
    /// since. Returns what was found.
    fn restore(&self) -> Vec<String> {
        let mut found = end_descendants();
        for mount in process::mounts_below(Path::new("/")).iter().rev().filter(|m| !self.mounts.contains(m)) {
            found.push(format!("the mount {}", mount.display()));
            sys::detach_mount(mount);
        }
        for (device, file) in process::loop_devices().iter().filter(|l| !self.loops.contains(l)) {
            found.push(format!("the loop device {} of {}", device.display(), file.display()));
            sys::detach_loop_device(device);
        }
        for pin in pins().iter().filter(|p| !self.pins.contains(p)) {
            found.push(format!("the pinned BPF object {}", pin.display()));
            let _ = std::fs::remove_file(pin);
        }
        found
    }
}

/// The BPF objects that are pinned at the usual place.
fn pins() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
    all.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

/// Kills what is below this process, and reaps it. Returns what was alive.
fn end_descendants() -> Vec<String> {
    let (begun, mut found) = (Instant::now(), BTreeMap::new());
    loop {
        let below = descendants(std::process::id());
        let alive: Vec<u32> = below.iter().copied().filter(|pid| is_alive(*pid)).collect();
        for pid in &alive {
            if !process::outlives(*pid) {
                found.entry(*pid).or_insert_with(|| process::describe(*pid));
            }
            sys::kill(*pid as i32, libc::SIGKILL);
        }
        below.iter().for_each(|pid| sys::reap(*pid as i32));
        if alive.is_empty() || begun.elapsed() > LIMIT {
            return found.into_values().collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_alive(pid: u32) -> bool {
    process::stat_of(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

fn descendants(of: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in process::pids() {
        if let Some(stat) = process::stat_of(pid) {
            children.entry(stat.parent).or_default().push(pid);
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

/// How long a program that tests compiled is kept without being used.
const COMPILED_FOR: Duration = Duration::from_secs(30 * 86_400);

/// Removes what earlier runs have left: directories of tests whose run is gone, and compiled programs that are old.
pub(crate) fn prune(target: &Path) {
    let all = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in all(&process::scratch()) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let words = name.strip_prefix("dtrace-test-").or_else(|| name.strip_prefix("dtrace-parent-"));
        let Some(pid) = words.and_then(|w| w.split('-').next()).and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if process::stat_of(pid).is_none() {
            for mount in process::mounts_below(&entry.path()).iter().rev() {
                sys::detach_mount(mount);
            }
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    for entry in all(&target.join("compiled")) {
        let time = entry.metadata().and_then(|meta| meta.modified());
        if time.ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > COMPILED_FOR) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
