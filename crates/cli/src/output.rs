//! The output of results: standard output or a file; and of messages: standard error.
//!
//! A reader may stop reading without closing (a pager, a terminal after `^S`). A write then blocks
//! for ever, and a second interrupt must still end the command. So a write that a signal
//! interrupted is not simply repeated, as the standard library does: the number of interrupts is
//! checked first. The signal handler is installed without `SA_RESTART` for this.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use dtrace::diagnostics::control;
use dtrace::events::NoticeKind;
use dtrace::{Message, MessageKind};

use crate::interrupt::Writer;

/// Standard output was closed when the process began.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// The last line of results that a terminal has got is not complete.
static WITHIN_LINE: AtomicBool = AtomicBool::new(false);

/// Whether the terminal shows the beginning of a line of results.
pub(crate) fn is_within_line() -> bool {
    WITHIN_LINE.load(Ordering::Relaxed)
}

extern "C" fn look_at_stdout() {
    // SAFETY: a plain system call, which asks for the flags of a descriptor.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0 {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Called before `main`, and before Rust's runtime puts `/dev/null` in the place of a standard
/// descriptor that is closed. After that, results would vanish without an error, and nothing tells
/// this from a user's own `/dev/null`.
// SAFETY: the C library calls the functions of this section once, on the first thread; this one
// needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// Messages that are kept beside: `None`, none are.
static KEPT: Mutex<Option<String>> = Mutex::new(None);
/// The most bytes of them.
const MOST_KEPT: usize = 64 << 10;

/// Keeps the messages from now on, beside printing them.
pub(crate) fn keep_messages() {
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(String::new());
}

/// The messages that were kept. More are not.
pub(crate) fn kept_messages() -> String {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
}

/// Prints what is no result. What it quotes of others cannot control a terminal.
pub(crate) fn to_stderr(text: impl Display) {
    let text = text.to_string();
    let shown = control::lines(&text);
    let _ = write!(std::io::stderr(), "{shown}");
    if let Some(kept) = &mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner)
        && kept.len() + shown.len() <= MOST_KEPT
    {
        kept.push_str(&shown);
    }
}

/// The messages that are printed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shown {
    /// Only those that say that results are incomplete.
    pub(crate) quiet: bool,
    /// Details, too.
    pub(crate) verbose: bool,
    /// Sizes that were lowered.
    pub(crate) resize: bool,
}

/// Bytes of messages in one write. There can be ten thousands of faults, and where every function
/// is traced, each write causes hundreds of firings. Written one by one, they would block the main
/// loop for minutes.
const AT_ONCE: usize = 64 << 10;

impl Shown {
    /// Whether a message is one of them.
    pub(crate) fn has(self, message: &Message) -> bool {
        match message.kind {
            MessageKind::Notice(NoticeKind::Lowered) => self.resize,
            MessageKind::Notice(NoticeKind::Target | NoticeKind::Unavailable) => !self.quiet,
            MessageKind::Notice(NoticeKind::Detail) => self.verbose,
            _ => true,
        }
    }

    /// Prints messages to standard error.
    fn print(self, messages: &[Message]) {
        let mut text = String::new();
        for message in messages.iter().filter(|message| self.has(message)) {
            text.push_str(&format!("dtrace: {message}\n"));
            if text.len() >= AT_ONCE {
                to_stderr(std::mem::take(&mut text));
            }
        }
        if !text.is_empty() {
            to_stderr(text);
        }
    }
}

/// An open output.
pub(crate) struct Output {
    file: Writer,
    is_terminal: bool,
    pub(crate) shown: Shown,
}

impl Output {
    fn new(file: File) -> Output {
        let is_terminal = io::IsTerminal::is_terminal(&file);
        Output { file: Writer(file), is_terminal, shown: Shown::default() }
    }

    /// Standard output.
    pub(crate) fn stdout() -> io::Result<Output> {
        if CLOSED.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        Ok(Output::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// A file that is appended to.
    pub(crate) fn append(path: &str) -> io::Result<Output> {
        Ok(Output::new(File::options().append(true).create(true).open(crate::command::file_of(path))?))
    }
}

impl dtrace::Output for Output {
    fn truncate(&mut self) -> io::Result<()> {
        self.file.0.truncate()
    }

    fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        self.shown.print(messages);
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        if let Some(last) = bytes.get(..written).and_then(<[u8]>::last).filter(|_| self.is_terminal) {
            WITHIN_LINE.store(*last != b'\n', Ordering::Relaxed);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The output of text that is not printed: it has the messages.
pub(crate) struct Unprinted(pub(crate) Shown);

impl Write for Unprinted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl dtrace::Output for Unprinted {
    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        self.0.print(messages);
        Ok(())
    }
}

/// Creates a file that did not exist. Whoever can write to this directory must not choose what a
/// file of root's is, by a link or by a file that he holds open; and what the programs ask is for
/// its owner alone.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut new = File::options();
    new.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    new.open(path)
}

/// Writes such a file.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    new_file(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_of_ours_is_new_and_private() {
        let dir = std::env::temp_dir().join(format!("cli-new-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
        write_new(path("new").as_ref(), b"text").unwrap();
        let mode = std::fs::metadata(path("new")).unwrap().permissions().mode();
        assert_eq!((std::fs::read(path("new")).unwrap(), mode & 0o777), (b"text".to_vec(), 0o600));
        symlink(path("target"), path("link")).unwrap();
        for taken in ["new", "link"] {
            let e = write_new(path(taken).as_ref(), b"other").unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(!std::path::Path::new(&path("target")).exists());
        assert_eq!(std::fs::read(path("new")).unwrap(), b"text");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
