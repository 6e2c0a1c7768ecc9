//! The files of a capture that keeps the last moments: when one is written besides that of the end,
//! and what it is called.
//!
//! ```text
//!  SIGUSR1            FILE.TIME.signal     always
//!  snap("reason")     FILE.TIME.reason     at most one in `snaprate`, and `snapmax` of them
//!  exit(), ^C, end    FILE
//! ```
//!
//! A clause may call `snap()` in each of a million firings, so calls have limits and a user's
//! signal has none. What is refused is counted, and said at the end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dtrace::capture::Snapshot;
use dtrace::diagnostics::{control, system_text};
use dtrace::options::{Options, Policy};
use dtrace::{Error, Session};

use crate::command::file_of;
use crate::interrupt;
use crate::output::new_file;
use crate::results::Results;
use crate::to_stderr;

/// See the [module](self).
pub(crate) struct Flight {
    path: PathBuf,
    rate: Duration,
    /// Files that `snap()` may still write.
    left: u64,
    most: u64,
    last: Option<Instant>,
    /// Calls of `snap()`, and signals, that were seen.
    snaps: u64,
    signals: u32,
    refused: u64,
    quiet: bool,
}

impl Flight {
    /// Of a session that captures to a file, if it keeps the last moments.
    pub(crate) fn of(path: Option<&String>, options: &Options) -> Option<Flight> {
        let path = path.filter(|_| options.bufpolicy == Policy::Ring)?;
        Some(Flight {
            path: file_of(path).to_path_buf(),
            rate: options.snaprate,
            left: options.snapmax,
            most: options.snapmax,
            last: None,
            snaps: 0,
            signals: 0,
            refused: 0,
            quiet: options.quiet,
        })
    }

    /// Writes what was asked for since the last call.
    pub(crate) fn turn(&mut self, session: &mut Session<Results>) -> Result<(), Error> {
        let signals = interrupt::snapshots();
        if signals != self.signals {
            self.signals = signals;
            self.write(session, Some("signal"))?;
        }
        let snaps = session.snaps();
        let new = snaps.wrapping_sub(std::mem::replace(&mut self.snaps, snaps));
        if new == 0 {
            return Ok(());
        }
        let waits = self.last.is_some_and(|last| last.elapsed() < self.rate);
        if waits || self.left == 0 {
            self.refused += new;
            if let Some(recorder) = session.sink_mut().recorder() {
                recorder.pass_snaps();
            }
            return Ok(());
        }
        (self.last, self.left) = (Some(Instant::now()), self.left - 1);
        self.refused += new - 1;
        self.write(session, None)
    }

    /// Writes a file. What is wrong with that is a message: tracing goes on.
    fn write(&self, session: &mut Session<Results>, reason: Option<&str>) -> Result<(), Error> {
        let part = beside(&self.path, &format!("{}.part", std::process::id()));
        let failed = |e: &std::io::Error| {
            let shown = control::name_text(&part.to_string_lossy()).into_owned();
            complain(&format!("failed to write {shown}: {}", system_text(e)));
        };
        let file = match new_file(&part) {
            Ok(file) => file,
            Err(e) => {
                failed(&e);
                return Ok(());
            }
        };
        let written = snapshot(session, file, reason);
        let (firings, snapshot) = match written {
            Ok(written) => written,
            Err(Error::Output(e)) => {
                failed(&e);
                let _ = std::fs::remove_file(&part);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        // What cannot be named stays where it is.
        let to = place(&part, &self.path, &snapshot).unwrap_or(part);
        if !self.quiet {
            let shown = control::name_text(&to.to_string_lossy()).into_owned();
            complain(&format!("wrote {shown}: {}", held(firings, &snapshot)));
        }
        Ok(())
    }

    /// Says at the end what wrote no file of its own.
    pub(crate) fn finish(&self, session: &Session<Results>) {
        // Since the last turn, and in END: their moment is in the file of the end.
        let late = session.snaps().saturating_sub(self.snaps);
        if late > 0 && !self.quiet {
            let shown = control::name_text(&self.path.to_string_lossy()).into_owned();
            let calls = if late == 1 { "call" } else { "calls" };
            complain(&format!("{late} {calls} of snap() came at the end: {shown} has it"));
        }
        if self.refused > 0 && !self.quiet {
            let calls = if self.refused == 1 { "call" } else { "calls" };
            complain(&format!(
                "{} {calls} of snap() wrote no file of their own: at most one in {} s and {} in all are written (-x snaprate, snapmax)",
                self.refused,
                self.rate.as_secs_f64(),
                self.most
            ));
        }
    }
}

fn complain(text: &str) {
    to_stderr(format!("dtrace: {text}\n"));
}

/// Delivers the last moments to a file.
fn snapshot(
    session: &mut Session<Results>,
    file: File,
    reason: Option<&str>,
) -> Result<(u64, Snapshot), Error> {
    if let Some(recorder) = session.sink_mut().recorder() {
        recorder.begin_snapshot(Box::new(file));
    }
    let delivered = session.snapshot();
    // Also after an error, so that the next one does not go to this file.
    let ended = match session.sink_mut().recorder() {
        Some(recorder) => {
            recorder.end_snapshot(reason).cloned().map(|snapshot| (recorder.written(), snapshot))
        }
        None => Ok(Default::default()),
    };
    delivered.and(ended.map_err(Error::Output))
}

/// Gives a file its name, which no other one has.
fn place(part: &Path, path: &Path, snapshot: &Snapshot) -> std::io::Result<PathBuf> {
    let taken = path.file_name().map_or(0, |name| name.len()) + TIME_AND_NUMBER;
    let reason = word(&snapshot.reason, LONGEST_NAME.saturating_sub(taken).min(REASON));
    let name = format!("{}.{reason}", time(snapshot.wall));
    let mut to = beside(path, &name);
    let mut n = 2;
    while let Err(e) = std::fs::hard_link(part, &to) {
        match e.kind() {
            // Two in a millisecond.
            std::io::ErrorKind::AlreadyExists if n <= 100 => {
                to = beside(path, &format!("{name}-{n}"));
                n += 1;
            }
            // A file system without links.
            _ if to.symlink_metadata().is_err() => return std::fs::rename(part, &to).map(|()| to),
            _ => return Err(e),
        }
    }
    std::fs::remove_file(part)?;
    Ok(to)
}

/// The path of a file whose name begins with that of another one.
fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}

/// The most characters of a reason in a name, and of a name.
const REASON: usize = 64;
const LONGEST_NAME: usize = 255;
/// Characters of a name that are neither the file's nor the reason's: `.TIME.` and `-100`.
const TIME_AND_NUMBER: usize = 26;

/// A reason as a part of a name: what is no letter, digit, `-` or `_` becomes `_`.
fn word(reason: &[u8], most: usize) -> String {
    let plain = |byte: &u8| {
        if byte.is_ascii_alphanumeric() || b"-_".contains(byte) { char::from(*byte) } else { '_' }
    };
    let word: String = reason.iter().take(most).map(plain).collect();
    if word.is_empty() { "snap".into() } else { word }
}

/// A time as a part of a name, in UTC: `20260228T235959.123Z`.
fn time(wall: u64) -> String {
    let (millis, seconds) = (wall / 1_000_000 % 1000, wall / 1_000_000_000);
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{:02}T{hour:02}{minute:02}{second:02}.{millis:03}Z", days + 1)
}

/// What a file of the last moments has.
pub(crate) fn held(firings: u64, snapshot: &Snapshot) -> String {
    let s = if firings == 1 { "" } else { "s" };
    format!("{firings} firing{s} of the last {}", seconds(snapshot.until.saturating_sub(snapshot.from)))
}

/// A time in seconds.
pub(crate) fn seconds(nanoseconds: u64) -> String {
    format!("{:.3} s", Duration::from_nanos(nanoseconds).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_times_are_parts_of_names() {
        assert_eq!(word(b"../../etc/passwd\n\x1b[2J", REASON), "______etc_passwd___2J");
        assert_eq!(word("größe 1-2_3".as_bytes(), REASON), "gr____e_1-2_3");
        assert_eq!((word(b"", REASON), word(&[b'a'; 1000], REASON).len()), ("snap".into(), REASON));
        assert_eq!(time(0), "19700101T000000.000Z");
        assert_eq!(time(951_782_399_123_456_789), "20000228T235959.123Z");
        assert_eq!(time(951_782_400_000_000_000), "20000229T000000.000Z");
        assert_eq!(time(1_735_689_599_999_000_000), "20241231T235959.999Z");
        assert_eq!(beside(Path::new("/var/lib/x"), "t.r"), Path::new("/var/lib/x.t.r"));
    }
}
