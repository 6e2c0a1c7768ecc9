//! One test program, run in a process group of its own with a deadline, and everything it leaves.
//!
//! ```text
//!  spawn ──▶ read both pipes until the process ends ──▶ family gone? ──▶ clean the directory ──▶ Ran
//!                 │ deadline, full disk                    │ no: after a grace period
//!                 └──▶ note the states of the family ──▶ kill the family
//! ```
//!
//! The *family* of a test is every process that has its mark in its environment (`DTRACE_TEST`), or
//! is in its process group: a daemon leaves the group and its parent, and keeps the environment.
//! What a process does to hide from both is ended by the final sweep ([`super::sweep`]).
//!
//! Nothing here waits for ever. A process that does not end after `SIGKILL` (an uninterruptible
//! wait) is reported with its state and left behind. What a test prints is read whatever its size,
//! and only its beginning and its end are kept.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::sys;

/// The environment variable by which the processes of a test are found.
const MARK: &str = "DTRACE_TEST";

/// How the name of a test's directory begins; the process id of the run follows.
const DIRECTORY: &str = "dtrace-test-";

/// Bytes of the beginning and of the end of each of the two outputs that are kept.
const KEPT: usize = 1 << 18;

/// How long what a test has started may take to end after it, and to be gone once killed, on a
/// machine that has nothing else to do.
const GRACE: Duration = Duration::from_secs(5);

/// How often the deadline and the disk are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Free bytes of a file system below which a test that has filled it is killed.
const RESERVE: u64 = 1 << 30;

/// Helpers of `dtrace` that outlive it on purpose: they close links, one grace period each.
const OUTLIVES: [&str; 1] = ["dtrace-closer"];

/// A test process to be.
pub(crate) struct Job<'a> {
    pub(crate) program: &'a Path,
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) directory: &'a Path,
    /// How long it may take on a machine that has nothing else to do.
    pub(crate) deadline: Duration,
}

/// How a test process ended.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Status(i32),
    Signal(i32),
    /// It was killed, for this reason; the text ends with the states of its processes.
    Killed(String),
}

/// What a test process did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) out: String,
    pub(crate) err: String,
    /// What it left and did not own up to: processes, mounts, loop devices.
    pub(crate) left: Vec<String>,
    pub(crate) took: Duration,
}

/// Where tests have their directories.
pub(crate) fn scratch() -> PathBuf {
    std::env::var_os("DTRACE_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Runs a job to its end.
pub(crate) fn run(job: &Job<'_>) -> Result<Ran, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let own = scratch().join(format!("{DIRECTORY}{mark}"));
    make_directory(&own)?;
    let begun = Instant::now();
    let spawned = Command::new(job.program)
        .args(&job.words)
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .env(MARK, &mark)
        // The tests of this program run it.
        .env_remove(super::sweep::SUPERVISED)
        .env("TMPDIR", &own)
        .current_dir(job.directory)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => {
            clean(&own);
            return Err(format!("{}: {e}", job.program.display()));
        }
    };
    let (end, out, err) = watch(&mut child, job, &own, &mark, begun);
    let took = begun.elapsed();
    let mut left = end_family(&child, &mark, matches!(end, End::Killed(_)));
    left.extend(clean(&own));
    Ok(Ran { end, out, err, left, took })
}

/// A directory in which each user may make files.
fn make_directory(path: &Path) -> Result<(), String> {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, mode))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads what a process prints until it has ended or has to be killed.
fn watch(child: &mut Child, job: &Job<'_>, own: &Path, mark: &str, begun: Instant) -> (End, String, String) {
    let mut out = child.stdout.take().map(Kept::of);
    let mut err = child.stderr.take().map(Kept::of);
    let ended = sys::end_of(child.id());
    let mut looked = begun;
    let end = loop {
        let mut fds: Vec<i32> = ended.iter().map(|fd| fd.as_raw_fd()).collect();
        fds.extend(out.iter().filter_map(Kept::open));
        fds.extend(err.iter().filter_map(Kept::open));
        sys::wait_for_any(&fds, if ended.is_some() { LOOK } else { LOOK / 10 });
        out.iter_mut().for_each(Kept::read);
        err.iter_mut().for_each(Kept::read);
        match child.try_wait() {
            Ok(Some(status)) => {
                break status.code().map_or(End::Signal(status.signal().unwrap_or(0)), End::Status);
            }
            Ok(None) => {}
            Err(e) => break End::Killed(e.to_string()),
        }
        if looked.elapsed() < LOOK {
            continue;
        }
        looked = Instant::now();
        if let Some(why) = must_end(job, own, begun) {
            break End::Killed(format!("{why}\n{}", states_of_family(child.id(), mark)));
        }
    };
    // A process that the test has left may hold the pipes: only what is in them is read.
    out.iter_mut().for_each(Kept::read);
    err.iter_mut().for_each(Kept::read);
    (end, out.map(Kept::text).unwrap_or_default(), err.map(Kept::text).unwrap_or_default())
}

/// Why a process that runs has to be killed, if so.
fn must_end(job: &Job<'_>, own: &Path, begun: Instant) -> Option<String> {
    if sys::interrupted() {
        return Some("interrupted".into());
    }
    let limit = job.deadline.mul_f64(load());
    if begun.elapsed() > limit {
        return Some(format!("no end after {} s", limit.as_secs()));
    }
    let (all, free) = sys::space(own).ok()?;
    if free < RESERVE.min(all / 20) && size_of(own) > free.max(1 << 20) {
        return Some("it has filled the disk of its directory".into());
    }
    None
}

/// By how much a deadline is longer on this machine now: runnable threads for each CPU, at least 1.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let average: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1.0);
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    (average / cpus as f64).clamp(1.0, 10.0)
}

/// Bytes of the files below a directory of the same file system, without following links.
fn size_of(dir: &Path) -> u64 {
    let device =
        |path: &Path| fs::symlink_metadata(path).map(|m| std::os::unix::fs::MetadataExt::dev(&m)).ok();
    let own = device(dir);
    let (mut sum, mut left) = (0, vec![dir.to_path_buf()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            sum += std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
            if meta.is_dir() && device(&entry.path()) == own {
                left.push(entry.path());
            }
        }
    }
    sum
}

/// Ends what a process has left. Returns what did not end by itself, unless the process was killed,
/// and what did not end at all.
fn end_family(child: &Child, mark: &str, was_killed: bool) -> Vec<String> {
    let pid = child.id();
    let mut left = Vec::new();
    if !was_killed {
        let staying = in_grace(|| family(pid, mark).into_iter().filter(|pid| !outlives(*pid)).collect());
        left.extend(staying.iter().map(|pid| states(&[*pid]).trim_end().to_owned()));
    }
    let remaining = in_grace(|| {
        let remaining = family(pid, mark);
        remaining.iter().for_each(|pid| sys::kill(*pid as i32, libc::SIGKILL));
        remaining
    });
    if remaining.is_empty() {
        // Killed, it has no status that anybody asks for.
        sys::reap(pid as i32);
    }
    // Links are closed in the kernel, one grace period each, whatever signal has come.
    let others: Vec<u32> = remaining.into_iter().filter(|pid| !outlives(*pid)).collect();
    if !others.is_empty() {
        left.push(format!("killed, and still there:\n{}", states(&others)));
    }
    left
}

/// Looks until nothing is left, for a grace period at most. Returns what is left.
fn in_grace<T>(mut look: impl FnMut() -> Vec<T>) -> Vec<T> {
    let begun = Instant::now();
    loop {
        let left = look();
        if left.is_empty() || begun.elapsed() >= GRACE.mul_f64(load()) {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is one that outlives its test on purpose.
pub(crate) fn outlives(pid: u32) -> bool {
    OUTLIVES.contains(&name_of(pid).as_str())
}

/// The living processes that belong to a test.
pub(crate) fn family(root: u32, mark: &str) -> Vec<u32> {
    let entry = format!("{MARK}={mark}");
    let is_marked = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|word| word == entry.as_bytes())
    };
    let all = pids().filter(|pid| {
        stat_of(*pid)
            .is_some_and(|stat| !matches!(stat.state, 'Z' | 'X') && (stat.group == root || is_marked(*pid)))
    });
    all.collect()
}

/// The processes of this machine.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Some fields of `/proc/PID/stat`.
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: u32,
    group: u32,
}

pub(crate) fn stat_of(pid: u32) -> Option<Stat> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // The name may have blanks and parentheses.
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    let (parent, group) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Stat { state, parent, group })
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// A process in one line: its id, its name and its arguments.
pub(crate) fn describe(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    let words: String = words.chars().take(200).collect();
    format!("process {pid} ({}): {}", name_of(pid), words.trim())
}

/// The states of a family. `/proc` may wait for a process that holds the lock of its own memory:
/// then for a time only.
fn states_of_family(root: u32, mark: &str) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mark = mark.to_owned();
    // It ends with the process that it waits for.
    std::thread::spawn(move || sender.send(states(&family(root, &mark))));
    let got = receiver.recv_timeout(GRACE);
    // What holds the lock is most likely in the group.
    sys::kill(-(root as i32), libc::SIGKILL);
    got.unwrap_or_else(|_| "its processes do not let their memory be read".into())
}

/// What processes do: where they wait, with their kernel stacks, as far as `/proc` shows them.
fn states(pids: &[u32]) -> String {
    let mut text = String::new();
    for pid in pids {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let state = stat_of(*pid).map_or('-', |stat| stat.state);
        text.push_str(&format!("{} state {state}, in {}\n", describe(*pid), read("wchan").trim()));
        let status = read("status");
        let shown = ["Threads:", "SigPnd:", "SigBlk:", "voluntary_ctxt_switches:"];
        for line in status.lines().filter(|l| shown.iter().any(|s| l.starts_with(s))) {
            text.push_str(&format!("    {line}\n"));
        }
        read("stack").lines().take(12).for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

/// Removes a test's directory with what is mounted and attached below it. Returns what was.
pub(crate) fn clean(own: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for mount in mounts_below(own).iter().rev() {
        left.push(format!("the mount {}", mount.display()));
        sys::detach_mount(mount);
    }
    // One that was detached while another process had it open goes when that closes it.
    let attached = in_grace(|| {
        let all = loop_devices().into_iter();
        all.filter(|(_, file)| file.starts_with(own)).collect()
    });
    for (device, file) in attached {
        left.push(format!("the loop device {} of {}", device.display(), file.display()));
        sys::detach_loop_device(&device);
    }
    let _ = fs::remove_dir_all(own);
    left
}

/// Removes the directories that the tests of a run have left. Returns what was mounted or attached
/// there.
pub(crate) fn remove_directories_of(run: u32) -> Vec<String> {
    let all = fs::read_dir(scratch()).into_iter().flatten().flatten();
    let prefix = format!("{DIRECTORY}{run}-");
    let own = all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    own.flat_map(|entry| clean(&entry.path())).collect()
}

/// Mounts below a directory, in the order in which they were mounted.
pub(crate) fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = text.lines().filter_map(|line| line.split(' ').nth(4));
    // proc_pid_mountinfo(5): a blank is written as \040.
    places.map(|place| PathBuf::from(place.replace("\\040", " "))).filter(|p| p.starts_with(dir)).collect()
}

/// Loop devices that have a file, with its path.
pub(crate) fn loop_devices() -> Vec<(PathBuf, PathBuf)> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let used = all.filter_map(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((Path::new("/dev").join(entry.file_name()), PathBuf::from(file.trim())))
    });
    used.collect()
}

/// A pipe, and the beginning and the end of what came out of it.
struct Kept<R> {
    pipe: R,
    at_end: bool,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes between the two that were not kept.
    dropped: u64,
}

impl<R: Read + AsRawFd> Kept<R> {
    fn of(pipe: R) -> Kept<R> {
        sys::never_block(&pipe);
        Kept { pipe, at_end: false, head: Vec::new(), tail: VecDeque::new(), dropped: 0 }
    }

    /// The descriptor, if there may be more to read.
    fn open(&self) -> Option<i32> {
        (!self.at_end).then(|| self.pipe.as_raw_fd())
    }

    /// Reads what is in the pipe; of a writer that never pauses, as much as it wrote by now.
    fn read(&mut self) {
        let mut bytes = [0; 1 << 16];
        for _ in 0..64 {
            match self.pipe.read(&mut bytes) {
                Ok(0) => {
                    self.at_end = true;
                    return;
                }
                Ok(count) => self.keep(bytes.get(..count).unwrap_or_default()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let more = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..more);
        self.dropped += more as u64;
    }

    fn text(mut self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.dropped > 0 {
            text.push_str(&format!("\n[{} bytes are left out]\n", self.dropped));
        }
        text.push_str(&String::from_utf8_lossy(self.tail.make_contiguous()));
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: u64) -> Ran {
        let job = Job {
            program: Path::new("/bin/sh"),
            words: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            directory: Path::new("/"),
            deadline: Duration::from_secs(deadline),
        };
        run(&job).unwrap()
    }

    #[test]
    fn a_process_has_a_status_its_output_and_a_directory_that_is_removed() {
        let ran = shell("echo $TMPDIR; echo no >&2; touch $TMPDIR/a; exit 3", 60);
        assert_eq!((ran.end, ran.err.as_str()), (End::Status(3), "no\n"));
        assert!(ran.left.is_empty() && !Path::new(ran.out.trim()).exists(), "{:?}", ran.left);
    }

    #[test]
    fn a_process_that_aborts_has_its_signal() {
        assert_eq!(shell("kill -ABRT $$", 60).end, End::Signal(libc::SIGABRT));
    }

    #[test]
    fn a_process_past_its_deadline_is_killed_with_its_children_and_their_states_are_told() {
        let ran = shell("echo begun; (exec sleep 1000) & wait", 1);
        let End::Killed(why) = ran.end else { panic!("{:?}", ran.end) };
        assert!(why.starts_with("no end after ") && why.contains("sleep 1000 state S"), "{why}");
        assert!(ran.out == "begun\n" && ran.left.is_empty(), "{:?}", ran.left);
    }

    #[test]
    fn a_daemon_that_a_process_leaves_is_told_and_killed() {
        let ran = shell(
            "setsid --fork sleep 1002 >/dev/null 2>&1; until pgrep -x -f 'sleep 1002' >/dev/null; do :; done",
            60,
        );
        assert_eq!(ran.end, End::Status(0));
        let [left] = ran.left.as_slice() else { panic!("{:?}", ran.left) };
        assert!(left.contains("(sleep): sleep 1002"), "{left}");
        let pid = left.split(' ').nth(1).and_then(|pid| pid.parse().ok()).unwrap();
        assert!(stat_of(pid).is_none_or(|stat| stat.state == 'Z'));
    }

    #[test]
    fn of_a_hundred_megabytes_the_beginning_and_the_end_are_kept() {
        let ran = shell("echo first; yes 0123456789 | head -c 100000000; echo; echo last", 60);
        assert_eq!(ran.end, End::Status(0));
        assert!(ran.out.starts_with("first\n") && ran.out.ends_with("\nlast\n"));
        assert!(ran.out.contains(" bytes are left out]\n") && ran.out.len() < 3 * KEPT);
    }

    #[test]
    fn bytes_are_kept_from_both_ends_whatever_the_sizes_of_the_reads() {
        let file = || fs::File::open("/dev/null").unwrap();
        let all: Vec<u8> = (0..3 * KEPT).map(|i| b'a' + (i % 23) as u8).collect();
        for size in [1000, KEPT - 1, KEPT, KEPT + 1, 3 * KEPT] {
            let mut kept = Kept::of(file());
            all.chunks(size).for_each(|bytes| kept.keep(bytes));
            assert_eq!((kept.head.as_slice(), kept.dropped), (&all[..KEPT], KEPT as u64), "{size}");
            assert_eq!(kept.tail.make_contiguous(), &all[2 * KEPT..]);
        }
    }
}
