//! The output of results: standard output or a file.
//!
//! A reader may stop reading without closing (a pager, a terminal after `^S`). A write then blocks for ever, and a second
//! interrupt must still end the command. So a write that a signal interrupted is not simply repeated, as the standard
//! library does: the number of interrupts is checked first. The signal handler is installed without
//! `SA_RESTART` for this.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interrupt;

/// Standard output was closed when the process began.
static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: a plain system call, which asks for the flags of a descriptor.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0 {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Called before `main`, and before Rust's runtime puts `/dev/null` in the place of a standard descriptor that is closed.
/// After that, results would vanish without an error, and nothing tells this from a user's own `/dev/null`.
// SAFETY: the C library calls the functions of this section once, on the first thread; this one needs nothing of Rust's
// runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// An open output.
pub(crate) struct Output(File);

impl Output {
    /// Standard output.
    pub(crate) fn stdout() -> io::Result<Output> {
        if CLOSED.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        Ok(Output(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// A file that is appended to.
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
                dtrace::end_process(1);
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
