//! A line that says how far long work is. A terminal rewrites it; nothing else gets it.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

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
        let _ = write!(out, "\r\x1b[K{}", text()).and_then(|()| out.flush());
        self.shown = true;
        self.next = Instant::now() + EVERY;
    }
}

impl<W: Write> Drop for ProgressLine<W> {
    fn drop(&mut self) {
        if let Some(out) = self.out.as_mut().filter(|_| self.shown) {
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
