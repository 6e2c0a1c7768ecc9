//! A line that says how far long work is. A terminal rewrites it; nothing else gets it.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dtrace::System;
use dtrace::diagnostics::control;

use crate::command::Command;
use crate::output;

/// Work that takes no longer shows nothing.
const QUICK: Duration = Duration::from_millis(500);
/// How often the line is written.
const EVERY: Duration = Duration::from_millis(200);

/// The line on standard error. It is gone when this is dropped.
pub(crate) struct ProgressLine<W: Write = io::Stderr> {
    /// `None`: it is no terminal.
    out: Option<W>,
    next: Instant,
    shown: bool,
}

impl ProgressLine {
    pub(crate) fn new() -> ProgressLine {
        let out = io::stderr();
        ProgressLine::on(out.is_terminal().then_some(out), QUICK)
    }
}

impl<W: Write> ProgressLine<W> {
    fn on(out: Option<W>, quick: Duration) -> ProgressLine<W> {
        ProgressLine { out, next: Instant::now() + quick, shown: false }
    }

    /// Shows how far the work is, but not too often.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let Some(out) = self.out.as_mut().filter(|_| Instant::now() >= self.next) else { return };
        // With one write: others write there too.
        let line = format!("\r\x1b[K{}", text());
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        self.shown = true;
        self.next = Instant::now() + EVERY;
    }

    /// The line goes away until it is shown again.
    fn clear(&mut self) {
        if let Some(out) = self.out.as_mut().filter(|_| self.shown) {
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
        self.shown = false;
    }
}

impl<W: Write> Drop for ProgressLine<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Waits of one piece of work follow each other within this time.
const BETWEEN: Duration = Duration::from_millis(500);
/// The most characters of a path, of which the end says the most.
const LONGEST_PATH: usize = 60;

/// What reading of symbols is waited for: of one file, or of many, each of which is quick.
struct Reading<W: Write> {
    line: Option<ProgressLine<W>>,
    last: Instant,
}

impl<W: Write> Reading<W> {
    /// A file is read, or one is read no more.
    fn show(&mut self, now: Instant, path: Option<&[u8]>, line: impl FnOnce() -> ProgressLine<W>) {
        if now.saturating_duration_since(self.last) > BETWEEN {
            self.line = None;
        }
        self.last = now;
        let Some(path) = path else {
            if let Some(line) = &mut self.line {
                line.clear();
            }
            return;
        };
        self.line.get_or_insert_with(line).show(|| {
            let path = control::name(path);
            let cut = path.chars().count().saturating_sub(LONGEST_PATH);
            let end: String = path.chars().skip(cut).collect();
            format!("reading {}{end}", if cut > 0 { "…" } else { "" })
        });
    }
}

/// A command of the session has the terminal too.
static COMMAND_RUNS: AtomicBool = AtomicBool::new(false);

/// The session runs: from now on nothing is shown if it has a command, which may print.
pub(crate) fn session_runs(command: &Command) {
    COMMAND_RUNS.store(command.runs_commands(), Ordering::Relaxed);
}

/// Shows which file of a process is read while this takes long: where its symbols are many, or a
/// server has them.
pub(crate) fn watch_reading(command: &Command, system: &System) {
    // A live table has the terminal.
    if command.is_live() || !io::stderr().is_terminal() {
        return;
    }
    let reading = Mutex::new(Reading { line: None, last: Instant::now() });
    system.readers().set_watch(Arc::new(move |path| {
        // What a script or a command has begun to print stays.
        if output::is_within_line() || COMMAND_RUNS.load(Ordering::Relaxed) {
            return;
        }
        let mut reading = reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.show(Instant::now(), path, ProgressLine::new);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_when_reading_takes_long_also_of_many_files() {
        let shown = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        struct Out(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);
        impl Write for Out {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.borrow_mut().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let new = |quick| {
            let out = Out(shown.clone());
            move || ProgressLine::on(Some(out), quick)
        };
        let now = Instant::now();
        let mut reading = Reading { line: None, last: now };
        let hour = Duration::from_secs(3600);
        reading.show(now, Some(b"/a"), new(hour));
        reading.show(now, None, new(Duration::ZERO));
        // The same work: it is still quick.
        reading.show(now + BETWEEN, Some(b"/b"), new(Duration::ZERO));
        reading.show(now + BETWEEN, None, new(Duration::ZERO));
        assert!(shown.borrow().is_empty());
        let long = format!("/{}", "x".repeat(100));
        reading.show(now + 3 * BETWEEN, Some(long.as_bytes()), new(Duration::ZERO));
        reading.show(now + 3 * BETWEEN, None, new(Duration::ZERO));
        let expected = format!("\r\x1b[Kreading …{}\r\x1b[K", "x".repeat(LONGEST_PATH));
        assert_eq!(String::from_utf8_lossy(&shown.borrow()), expected);
        drop(reading);
        assert_eq!(shown.borrow().len(), expected.len(), "it is cleared once");
    }

    #[test]
    fn a_line_is_rewritten_and_gone_at_the_end_and_only_a_terminal_gets_it() {
        let mut shown = Vec::new();
        let mut line = ProgressLine::on(Some(&mut shown), Duration::ZERO);
        line.show(|| "1 of 2".into());
        line.show(|| "too soon".into());
        drop(line);
        assert_eq!(shown, b"\r\x1b[K1 of 2\r\x1b[K");
        let mut quick = Vec::new();
        ProgressLine::on(Some(&mut quick), QUICK).show(|| "at once".into());
        assert_eq!(quick, b"");
        ProgressLine::<Vec<u8>>::on(None, Duration::ZERO).show(|| unreachable!());
    }
}
