//! The destination of output, its buffer, and the actions that change it.
//!
//! `freopen()` replaces the initial output by a file, and `freopen("")` restores it. A command of
//! `system()` writes to the current output, after everything that was printed before it. So the
//! buffer is written first.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

/// A destination of output.
pub trait Output: Write {
    /// `ftruncate()`: truncates a file; the next write starts at offset 0. Other outputs are
    /// unchanged.
    fn truncate(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// True for a terminal, which interprets control characters. Called once, when the output is
    /// opened.
    fn is_terminal(&self) -> bool {
        false
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

    fn is_terminal(&self) -> bool {
        io::IsTerminal::is_terminal(self)
    }
}

impl<T: Output + ?Sized> Output for &mut T {
    fn truncate(&mut self) -> io::Result<()> {
        (**self).truncate()
    }

    fn is_terminal(&self) -> bool {
        (**self).is_terminal()
    }
}

impl<T: Output + ?Sized> Output for Box<T> {
    fn truncate(&mut self) -> io::Result<()> {
        (**self).truncate()
    }

    fn is_terminal(&self) -> bool {
        (**self).is_terminal()
    }
}

/// Bytes of buffered output after which the buffer is written within a batch.
const CHUNK: usize = 1 << 16;

/// The output of a consumer.
pub(crate) struct Destination<W> {
    /// The initial output.
    pub(crate) first: W,
    /// The file of the last `freopen()`.
    file: Option<File>,
    /// Output that is not written yet.
    pub(crate) pending: Vec<u8>,
    /// The current output is a terminal.
    pub(crate) terminal: bool,
}

impl<W: Output> Destination<W> {
    pub(crate) fn new(first: W) -> Self {
        let terminal = first.is_terminal();
        Destination { first, file: None, pending: Vec::new(), terminal }
    }

    fn current(&mut self) -> &mut dyn Output {
        match &mut self.file {
            Some(file) => file,
            None => &mut self.first,
        }
    }

    /// Writes the buffer.
    pub(crate) fn hand_over(&mut self) -> io::Result<()> {
        // Output that could not be written is discarded, as in C's stdio. Otherwise parts would be
        // printed twice, or the buffer would grow without bound.
        let pending = std::mem::take(&mut self.pending);
        let result = self.current().write_all(&pending);
        self.pending = pending;
        self.pending.clear();
        result
    }

    /// Writes the buffer when it is long.
    pub(crate) fn hand_over_chunk(&mut self) -> io::Result<()> {
        if self.pending.len() >= CHUNK { self.hand_over() } else { Ok(()) }
    }

    /// Writes the buffer and flushes the output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.current().flush()
    }

    /// `ftruncate()`: output that was printed before it is removed as well.
    pub(crate) fn truncate(&mut self) -> io::Result<()> {
        self.flush()?;
        self.current().truncate()
    }

    /// `freopen()`: appends to a file from now on, or restores the initial output. The outer error
    /// is one of writing the previous output.
    pub(crate) fn reopen(&mut self, path: Option<&[u8]>) -> io::Result<io::Result<()>> {
        use std::os::unix::ffi::OsStrExt;
        self.flush()?;
        let Some(path) = path else {
            self.file = None;
            self.terminal = self.first.is_terminal();
            return Ok(Ok(()));
        };
        Ok(open_without_waiting(std::ffi::OsStr::from_bytes(path)).map(|file| {
            self.terminal = Output::is_terminal(&file);
            self.file = Some(file);
        }))
    }

    /// `system()`: runs a shell command and waits for it. The outer error is one of writing the
    /// output.
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

/// Opens a file for appending and creates it if necessary, as C's `freopen()` does. A FIFO without
/// a reader is an error. Waiting for a reader would stop the consumer until a signal arrives.
fn open_without_waiting(path: &std::ffi::OsStr) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ENXIO) => io::Error::new(e.kind(), "no process has it open for reading"),
            _ => e,
        })?;
    // Writes block as on any other output.
    let fd = file.as_raw_fd();
    // SAFETY: system calls on the status flags of a descriptor that this function owns.
    let done = unsafe {
        let status = libc::fcntl(fd, libc::F_GETFL);
        status >= 0 && libc::fcntl(fd, libc::F_SETFL, status & !libc::O_NONBLOCK) >= 0
    };
    if done { Ok(file) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_fifo_that_nobody_reads_is_an_error() {
        let path = std::env::temp_dir().join(format!("consumer-fifo-{}", std::process::id()));
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a plain system call; the name ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut out = Destination::new(Vec::new());
        let e = out.reopen(Some(path.as_os_str().as_bytes())).unwrap().unwrap_err();
        assert_eq!(e.to_string(), "no process has it open for reading");
        // With a reader it is an output that waits for it.
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        out.reopen(Some(path.as_os_str().as_bytes())).unwrap().unwrap();
        // SAFETY: as above, on a descriptor that is open.
        let status = unsafe { libc::fcntl(out.file.as_ref().unwrap().as_raw_fd(), libc::F_GETFL) };
        assert_eq!(status & libc::O_NONBLOCK, 0);
        drop(reader);
        std::fs::remove_file(path).unwrap();
    }
}
