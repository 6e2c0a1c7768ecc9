//! Running the binary and looking at what came out.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The binary under test.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("DTRACE_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_dtrace")), PathBuf::from)
}

/// The command line of a workload: this runner, called again.
pub(crate) fn workload(name: &str, count: u32) -> String {
    let me = std::env::current_exe().unwrap();
    format!("{} --workload {name} {count}", me.display())
}

/// What a run left.
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

/// Runs `dtrace` with these words.
#[track_caller]
pub(crate) fn dtrace(words: &[&str]) -> Output {
    finish(start(words), Duration::from_secs(60))
}

/// Starts `dtrace` with these words.
#[track_caller]
pub(crate) fn start(words: &[&str]) -> Child {
    spawn(Command::new(binary()).args(words)).unwrap()
}

/// Runs `dtrace` with these words behind a command that changes its surroundings. `None`: there is no such command.
pub(crate) fn under(wrapper: &[&str], words: &[&str]) -> Option<Output> {
    let (command, before) = wrapper.split_first()?;
    let child = spawn(Command::new(command).args(before).arg(binary()).args(words)).ok()?;
    Some(finish(child, Duration::from_secs(60)))
}

fn spawn(command: &mut Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits for the end; a run that outlives `limit` is killed and fails the test.
#[track_caller]
pub(crate) fn finish(mut child: Child, limit: Duration) -> Output {
    let mut out = child.stdout.take().unwrap();
    let mut err = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.read_to_end(&mut bytes);
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
    let Some(status) = status else { panic!("no end after {limit:?}\nstdout:\n{out}\nstderr:\n{err}") };
    Output { out, err, code: status.code() }
}

/// Sends a signal.
pub(crate) fn signal(child: &Child, signal: i32) {
    // SAFETY: a process of ours that has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Waits until `dtrace` says on its standard error that probes matched, which is after they were enabled.
/// Used with scripts whose BEGIN prints; simpler and as good: a pause long enough for the slowest guest.
pub(crate) fn settle() {
    let ms = if std::env::var_os("DTRACE_IN_VM").is_some() { 4000 } else { 700 };
    std::thread::sleep(Duration::from_millis(ms));
}
