//! Where results go.
//!
//! A reader may stop reading and stay (a pager, a terminal after `^S`): a write then waits for ever, and the user who
//! interrupts twice must still get the prompt back. So a write that a signal ended is not simply made again, as the
//! standard library does: the number of interrupts is looked at first. The signal handler is installed without
//! `SA_RESTART` for this.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use crate::interrupt;

/// An open output.
pub(crate) struct Output(File);

impl Output {
    /// Standard output.
    pub(crate) fn stdout() -> io::Result<Output> {
        Ok(Output(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// A file, at its end.
    pub(crate) fn append(path: &str) -> io::Result<Output> {
        Ok(Output(File::options().append(true).create(true).open(crate::command::file_of(path))?))
    }
}

impl dtrace::Output for Output {
    fn truncate(&mut self) -> io::Result<()> {
        self.0.truncate()
    }

    fn is_terminal(&self) -> bool {
        io::IsTerminal::is_terminal(&self.0)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if interrupt::count() > 1 {
                return Err(io::Error::other("interrupted"));
            }
            match self.0.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
