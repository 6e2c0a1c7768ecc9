//! The end of a run: nothing that it started is left, whatever happened.
//!
//! ```text
//!  xtask test               the supervisor: adopts and reaps orphans, and ends what is left when the run has ended
//!    └─ xtask test          the run (`DTRACE_SUPERVISED`)
//!         ├─ a test         in a process group of its own
//!         └─ QEMU
//! ```
//!
//! Whatever a process does to leave its test, it is still below the supervisor
//! (`PR_SET_CHILD_SUBREAPER`). Orphans have to be reaped at once, as by any init: tests wait for
//! processes to be gone. The run itself cannot do that, since it waits for children of its own. No
//! PID namespace: it would put every test on the path that translates process ids.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
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
    let this = crate::own_program()?;
    let run = std::process::Command::new(this)
        .args(std::env::args_os().skip(1))
        .env(SUPERVISED, "1")
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut told = false;
    let mut status = loop {
        match sys::reap_any() {
            sys::Reaped::Child(pid, status) if pid as u32 == run.id() => break status,
            sys::Reaped::Child(..) => {}
            sys::Reaped::Interrupted => {
                // A terminal tells both; who sends a signal to this process only, means the run.
                if sys::interrupted() && !told {
                    told = true;
                    sys::kill(run.id() as i32, libc::SIGTERM);
                }
            }
            sys::Reaped::None => return Err("the run is gone".into()),
        }
    };
    for left in sweep(run.id()) {
        eprintln!("failed: a test has left, hidden from the run: {left}");
        status = status.max(1);
    }
    Ok(Some(status))
}

/// Ends every process below this one, and removes what is left in the directories of the run's
/// tests. Returns what was found. What others of this machine have mounted or attached meanwhile is
/// theirs.
fn sweep(run: u32) -> Vec<String> {
    let mut found = end_descendants();
    found.extend(process::remove_directories_of(run));
    found
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

/// How long a program that tests compiled is kept after it was made.
const COMPILED_FOR: Duration = Duration::from_secs(30 * 86_400);

/// Removes what earlier runs have left: directories of tests whose run is gone, and compiled
/// programs that are old.
pub(crate) fn prune(target: &Path) {
    let all = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in all(&process::scratch()) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let words = name.strip_prefix("dtrace-test-").or_else(|| name.strip_prefix("dtrace-parent-"));
        let pid = words.and_then(|w| w.split('-').next()).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| process::stat_of(pid).is_none()) {
            process::clean(&entry.path());
        }
    }
    for entry in all(&target.join("compiled")) {
        let time = entry.metadata().and_then(|meta| meta.modified());
        if time.ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > COMPILED_FOR) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
