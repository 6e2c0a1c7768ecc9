//! All tests of the workspace on this machine's kernel.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::report::{self, Report};
use super::skips::{Expected, Permitted};
use super::{Run, target_dir};

/// What `cargo test` printed.
pub(super) struct Host {
    good: bool,
    report: Report,
    took: Duration,
}

/// All packages, whatever fails.
const ALL: [&str; 3] = ["test", "--workspace", "--no-fail-fast"];
/// What is run of a package: all but the examples in its documentation.
const TARGETS: [&str; 4] = ["--lib", "--bins", "--tests", "--examples"];

impl Host {
    pub(super) fn run_tests() -> Result<Host, String> {
        println!("== this machine's kernel");
        let (mut tee, start) = (Tee(Vec::new()), Instant::now());
        // Rust's own runner prints the time of each test only when it is told that it may use what is unstable. The compilers
        // of the tests are not those of cargo, which links with one.
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("PATH={}:{path}", crate::compilers::dir().display());
        let runner = format!("target.'cfg(all())'.runner = ['env', 'RUSTC_BOOTSTRAP=1', '{path}']");
        let options = ["--", "-Zunstable-options", "--report-time"];
        let tests = [&["--config", &runner][..], &ALL, &TARGETS, &options];
        let documentation = [&ALL[..], &["--doc"]];
        let good = passing(Command::new("cargo").args(tests.concat()), &mut tee)?
            & passing(Command::new("cargo").args(documentation.concat()), &mut tee)?;
        let report = Report::read(&String::from_utf8_lossy(&tee.0));
        Ok(Host { good, report, took: start.elapsed() })
    }

    /// Runs the tests that failed again, one by one, when nothing else runs any more.
    pub(super) fn repeat_failures(&mut self) -> Result<(), String> {
        let (mut tee, mut good) = (Tee(Vec::new()), true);
        let names = self.report.to_repeat();
        for name in &names {
            println!("== again: {name}");
            let words = [&ALL[..], &TARGETS, &["--", "--exact", name]].concat();
            good &= passing(Command::new("cargo").args(words), &mut tee)?;
        }
        if good && !names.is_empty() {
            self.report.repeat(&Report::read(&String::from_utf8_lossy(&tee.0)));
            self.good = self.report.failed == 0;
        }
        Ok(())
    }

    /// Adds the results to the run, and compares the skips with those that are expected of this machine.
    pub(super) fn add_to(mut self, run: &mut Run) -> Result<(), String> {
        if !self.good {
            run.broken.push("tests on this machine's kernel".into());
        }
        run.parts.push(("this machine's kernel".into(), self.took));
        let report = &mut self.report;
        run.add("here", report);
        let dtrace = target_dir().join("debug/dtrace");
        let table = Command::new(dtrace).arg("-vV").output().map_err(|e| e.to_string())?;
        report.lacks = report::missing_facilities(&String::from_utf8_lossy(&table.stdout));
        let lacks = report.lacks.clone().unwrap_or_default();
        if report.is_empty() {
            run.broken.push("no test ran on this machine's kernel".into());
        }
        match Expected::of_host(&lacks)? {
            Some(list) => run.judge(&list, report),
            None => {
                let breaches = Permitted::load()?.breaches(report, &lacks);
                run.broken.extend(breaches.into_iter().map(|breach| format!("testing/skips/any: {breach}")));
                Ok(())
            }
        }
    }
}

/// How long test programs may print nothing: one that hangs fails the run, and does not keep it from its end.
const SILENCE: Duration = Duration::from_secs(600);

/// Runs a command, its standard output through `tee`; whether it succeeded.
fn passing(command: &mut Command, tee: &mut Tee) -> Result<bool, String> {
    let mut child = command
        .current_dir(crate::root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{command:?}: {e}"))?;
    let (sender, received) = channel();
    if let Some(mut out) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut bytes = [0; 1 << 12];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
    }
    // While cargo builds, nothing is printed there.
    let mut limit = Duration::MAX;
    loop {
        match received.recv_timeout(limit) {
            Ok(bytes) => tee.write_all(&bytes).map_err(|e| e.to_string())?,
            Err(RecvTimeoutError::Timeout) => {
                println!("== nothing was printed for {} s: what cargo runs is killed", SILENCE.as_secs());
                kill_descendants(child.id());
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        limit = SILENCE;
    }
    child.wait().map(|s| s.success()).map_err(|e| e.to_string())
}

/// Kills what a process has started, and what that has started.
fn kill_descendants(pid: u32) {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    let words: Vec<String> = found.iter().skip(1).map(u32::to_string).collect();
    if !words.is_empty() {
        let _ = Command::new("kill").arg("-KILL").args(words).status();
    }
}

/// The parent of a process: the second field behind its name, which is in parentheses.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A writer that copies its data to the terminal and keeps it.
struct Tee(Vec<u8>);

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        std::io::stdout().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_killed_and_the_command_goes_on() {
        let mut child = Command::new("sh").args(["-c", "sleep 1000; exit 7"]).spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            kill_descendants(child.id());
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
            assert!(begun.elapsed() < Duration::from_secs(100));
        };
        assert_eq!(status.code(), Some(7));
    }
}
