//! Where output goes: a buffer, what it is handed over to, and what a script may do with that.
//!
//! `freopen()` puts a file in the place of the first output, and `freopen("")` gives that back. A command of `system()`
//! writes where the output goes at that moment, after all that was printed before it: so the buffer is handed over first.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::process::{Command, Stdio};

/// A place for output.
pub trait Output: Write {
    /// `ftruncate()`: a file becomes empty, and what comes next stands at its start. Anything else stays as it is.
    fn truncate(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Vec<u8> {
    fn truncate(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}

impl Output for File {
    fn truncate(&mut self) -> io::Result<()> {
        if self.metadata()?.is_file() {
            self.set_len(0)?;
            self.rewind()?;
        }
        Ok(())
    }
}

impl<T: Output + ?Sized> Output for &mut T {
    fn truncate(&mut self) -> io::Result<()> {
        (**self).truncate()
    }
}

impl<T: Output + ?Sized> Output for Box<T> {
    fn truncate(&mut self) -> io::Result<()> {
        (**self).truncate()
    }
}

/// Output is handed over when this much has gathered within a batch.
const CHUNK: usize = 1 << 16;

/// The output of a consumer.
pub(crate) struct Destination<W> {
    /// What a program gave.
    pub(crate) first: W,
    /// What `freopen()` put in its place.
    file: Option<File>,
    /// Not handed over yet.
    pub(crate) pending: Vec<u8>,
}

impl<W: Output> Destination<W> {
    pub(crate) fn new(first: W) -> Self {
        Destination { first, file: None, pending: Vec::new() }
    }

    fn current(&mut self) -> &mut dyn Output {
        match &mut self.file {
            Some(file) => file,
            None => &mut self.first,
        }
    }

    /// Writes the buffer out.
    pub(crate) fn hand_over(&mut self) -> io::Result<()> {
        // What could not be written is gone, as with C's stdio: keeping it would print it twice, or grow without bound.
        let pending = std::mem::take(&mut self.pending);
        let result = self.current().write_all(&pending);
        self.pending = pending;
        self.pending.clear();
        result
    }

    /// Writes the buffer out when it is long.
    pub(crate) fn hand_over_chunk(&mut self) -> io::Result<()> {
        if self.pending.len() >= CHUNK { self.hand_over() } else { Ok(()) }
    }

    /// Writes everything out.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.current().flush()
    }

    /// `ftruncate()`: what was printed before it is gone, too.
    pub(crate) fn truncate(&mut self) -> io::Result<()> {
        self.flush()?;
        self.current().truncate()
    }

    /// `freopen()`: to the end of a file, or back. The outer error is one of the output that there was.
    pub(crate) fn reopen(&mut self, path: Option<&[u8]>) -> io::Result<io::Result<()>> {
        use std::os::unix::ffi::OsStrExt;
        self.flush()?;
        let Some(path) = path else {
            self.file = None;
            return Ok(Ok(()));
        };
        let opened = OpenOptions::new().append(true).create(true).open(std::ffi::OsStr::from_bytes(path));
        Ok(opened.map(|file| self.file = Some(file)))
    }

    /// `system()`: runs a command of the shell and waits for it. The outer error is one of the output.
    pub(crate) fn run(&mut self, command: &[u8]) -> io::Result<io::Result<()>> {
        use std::os::unix::ffi::OsStrExt;
        self.flush()?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(std::ffi::OsStr::from_bytes(command));
        if let Some(file) = &self.file {
            match file.try_clone() {
                Ok(file) => shell.stdout(Stdio::from(file)),
                Err(e) => return Ok(Err(e)),
            };
        }
        Ok(shell.status().map(|_| ()))
    }
}
