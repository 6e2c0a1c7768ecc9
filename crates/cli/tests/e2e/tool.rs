//! Running the binary, and checking its output.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use testing::cpu_time;
use testing::eventually;

/// The binary under test.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("DTRACE_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_dtrace")), PathBuf::from)
}

/// Both ends of a new pseudo-terminal of so many rows and columns: ours, and that of a program. Who
/// executes one gives it no end but its own. `None`: there are none here.
pub(crate) fn pseudo_terminal(rows: u16, columns: u16) -> Option<(File, OwnedFd)> {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (name, mode) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: the C library returns two new descriptors that nothing else owns, and reads the size;
    // plain system calls on them.
    unsafe {
        if libc::openpty(&raw mut ours, &raw mut theirs, name, mode, &raw const size) != 0 {
            return None;
        }
        for end in [ours, theirs] {
            libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        Some((File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)))
    }
}

/// The command line of a workload, which is this runner itself.
pub(crate) fn workload(name: &str, count: u32) -> String {
    let me = std::env::current_exe().unwrap();
    format!("{} --workload {name} {count}", me.display())
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) out: String,
    pub(crate) err: String,
    /// `None`: killed by a signal.
    pub(crate) code: Option<i32>,
}

impl Output {
    /// Fails unless the run ended with `code`.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Output {
        assert_eq!(self.code, Some(code), "\nstdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// The first integer of the last line that is not blank.
    #[track_caller]
    pub(crate) fn last_number(&self) -> i64 {
        let line = self.out.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("");
        line.split_whitespace()
            .rev()
            .find_map(|w| w.parse().ok())
            .unwrap_or_else(|| panic!("no number in {line:?}\nstdout:\n{}\nstderr:\n{}", self.out, self.err))
    }

    /// The last word of the line whose first word is `key`.
    #[track_caller]
    pub(crate) fn value_of(&self, key: &str) -> i64 {
        self.out
            .lines()
            .find(|l| l.split_whitespace().next() == Some(key))
            .and_then(|l| l.split_whitespace().last()?.parse().ok())
            .unwrap_or_else(|| panic!("no value for {key}\nstdout:\n{}\nstderr:\n{}", self.out, self.err))
    }
}

/// Number of firings that `dtrace` reports as suppressed by the kernel.
pub(crate) fn suppressed(o: &Output) -> i64 {
    testing::suppressed::count(&o.err, "")
}

/// Number of firings of a program or clock that `dtrace` reports as suppressed by the kernel.
pub(crate) fn suppressed_of(o: &Output, program: &str) -> i64 {
    testing::suppressed::count(&o.err, program)
}

/// A run that takes longer is considered to hang.
pub(crate) const LIMIT: Duration = testing::HANG_LIMIT;

/// Runs `dtrace` with these arguments.
#[track_caller]
pub(crate) fn dtrace(words: &[&str]) -> Output {
    finish(start(words))
}

/// Starts `dtrace` with these arguments.
#[track_caller]
pub(crate) fn start(words: &[&str]) -> Child {
    spawn(Command::new(binary()).args(words)).unwrap()
}

/// Runs `dtrace` with these arguments under a wrapper command. `None` when the wrapper is not
/// installed.
pub(crate) fn under(wrapper: &[&str], words: &[&str]) -> Option<Output> {
    let (command, before) = wrapper.split_first()?;
    let child = spawn(Command::new(command).args(before).arg(binary()).args(words)).ok()?;
    Some(finish(child))
}

pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits for the end. A run that exceeds [`LIMIT`] is killed and fails the test.
#[track_caller]
pub(crate) fn finish(child: Child) -> Output {
    finish_within(child, LIMIT)
}

/// Like [`finish`], with another limit. Reads the standard output unless the caller has taken it.
#[track_caller]
pub(crate) fn finish_within(mut child: Child, limit: Duration) -> Output {
    let out = child.stdout.take();
    let mut err = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.map(|mut out| out.read_to_end(&mut bytes));
        bytes
    });
    let err_reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = err.read_to_end(&mut bytes);
        bytes
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let out = String::from_utf8_lossy(&reader.join().unwrap()).into_owned();
    let err = String::from_utf8_lossy(&err_reader.join().unwrap()).into_owned();
    testing::suppressed::note_messages(&err);
    let Some(status) = status else { panic!("no end after {limit:?}\nstdout:\n{out}\nstderr:\n{err}") };
    Output { out, err, code: status.code() }
}

/// Sends a signal.
pub(crate) fn signal(child: &Child, signal: i32) {
    // SAFETY: a process of ours that has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Waits until `child` has printed something, or has ended. Where BEGIN prints, all probes are
/// enabled then.
#[track_caller]
pub(crate) fn printed(child: &mut Child) {
    printed_more(child, 0);
}

/// Waits until more than so many bytes of the output of `child` are in its pipe. [`finish`] reads
/// the pipe later. Returns the number of bytes.
#[track_caller]
pub(crate) fn printed_more(child: &mut Child, than: i32) -> i32 {
    eventually("a line that is printed", LIMIT, || {
        let bytes = unread(child);
        (bytes > than || child.try_wait().unwrap().is_some()).then_some(bytes)
    })
}

/// Number of bytes in the pipe.
pub(crate) fn unread(child: &Child) -> i32 {
    let pipe = child.stdout.as_ref().unwrap();
    let mut bytes = 0;
    // SAFETY: a plain system call on a descriptor of ours; it writes an int.
    unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(pipe), libc::FIONREAD, &raw mut bytes) };
    bytes
}

/// The CPUs on which this thread may run.
pub(crate) fn cpus() -> Vec<usize> {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the kernel fills a plain bit array, and CPUs are below its size.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size, &raw mut allowed);
        (0..8 * size).filter(|cpu| libc::CPU_ISSET(*cpu, &allowed)).collect()
    }
}

/// Lets a thread run on one CPU alone; 0 is this thread.
pub(crate) fn pin(thread: i32, cpu: usize) {
    // SAFETY: the kernel reads a plain bit array.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
