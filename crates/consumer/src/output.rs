//! The destination of output, its buffer, and the actions that change it.
//!
//! `freopen()` replaces the initial output by a file, and `freopen("")` restores it. A command of
//! `system()` writes to the current output, after everything that was printed before it. So the
//! buffer is written first. A file that gets packets gets no text ([`crate::capture`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use diagnostics::control;
use events::{Effect, NoticeKind, Packet, SinkError, Suppressed};

use crate::capture::{Captures, Redirection};
use crate::message::{Message, MessageKind};
use crate::suppressions::Suppressions;

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

    /// Messages that are not part of the results, in order: faults, drops, notices. They go to
    /// standard error, as the command writes them without `-v`, unless the output does something
    /// else.
    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        let is_shown = |m: &&Message| m.kind != MessageKind::Notice(NoticeKind::Detail);
        let shown = messages.iter().filter(is_shown);
        let lines: String = shown.map(|m| format!("dtrace: {}\n", control::lines(&m.text))).collect();
        io::stderr().write_all(lines.as_bytes())
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

impl Output for io::Stdout {
    fn is_terminal(&self) -> bool {
        io::IsTerminal::is_terminal(self)
    }
}

/// Nothing is printed, and effects are performed all the same.
impl Output for io::Sink {
    fn messages(&mut self, _: &[Message]) -> io::Result<()> {
        Ok(())
    }
}

impl<T: Output + ?Sized> Output for &mut T {
    fn truncate(&mut self) -> io::Result<()> {
        (**self).truncate()
    }

    fn is_terminal(&self) -> bool {
        (**self).is_terminal()
    }

    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        (**self).messages(messages)
    }
}

impl<T: Output + ?Sized> Output for Box<T> {
    fn truncate(&mut self) -> io::Result<()> {
        (**self).truncate()
    }

    fn is_terminal(&self) -> bool {
        (**self).is_terminal()
    }

    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        (**self).messages(messages)
    }
}

/// Bytes of buffered output after which the buffer is written within a batch.
const CHUNK: usize = 1 << 16;

/// An output on which the [effects](Effect) of a program are performed: what is written follows
/// `freopen()`, and a command of `system()` writes after it. For sinks that have the output, as
/// [`Text`](crate::Text) does.
pub struct Effects<W> {
    /// The initial output.
    pub(crate) first: W,
    /// The file of the last `freopen()`.
    file: Option<Redirection>,
    captures: Captures,
    /// Output that is not written yet.
    pub(crate) pending: Vec<u8>,
    /// The current output is a terminal.
    pub(crate) terminal: bool,
    /// The output of commands goes to standard error, because it does not have the output's format.
    pub(crate) commands_to_stderr: bool,
    /// Messages that are not delivered yet.
    messages: Vec<Message>,
    suppressions: Suppressions,
}

impl<W: Output> Effects<W> {
    /// An output, before the first effect.
    pub fn new(first: W) -> Self {
        let terminal = first.is_terminal();
        Effects {
            first,
            file: None,
            captures: Captures::new(),
            pending: Vec::new(),
            terminal,
            commands_to_stderr: false,
            messages: Vec::new(),
            suppressions: Suppressions::default(),
        }
    }

    /// Performs an effect, after everything that was written before it.
    pub fn perform(&mut self, effect: &Effect<'_>) -> Result<(), SinkError> {
        let done = match effect {
            Effect::System(command) => self.run(command)?,
            Effect::Freopen(path) => self.reopen(path.as_deref())?,
            Effect::Ftruncate => self.truncate()?,
            _ => Ok(()),
        };
        done.map_err(SinkError::Effect)
    }

    /// The initial output. What was written is perhaps not there before a flush.
    pub fn output(&self) -> &W {
        &self.first
    }

    /// The initial output.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.first
    }

    /// The initial output. What was not flushed is discarded.
    pub fn into_output(self) -> W {
        self.first
    }

    /// The output of text.
    fn current(&mut self) -> &mut dyn Output {
        match &mut self.file {
            Some(redirection) if !redirection.is_capture() => &mut redirection.file,
            _ => &mut self.first,
        }
    }

    /// Whether the file of a `freopen()` has something.
    pub(crate) fn has_text(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.file.metadata().is_ok_and(|m| m.is_file() && m.len() > 0))
    }

    /// Packets are about to be printed. The output becomes a capture if it is a file that has no
    /// text.
    pub(crate) fn expect_packets(&mut self) {
        let blank = is_blank(&self.pending);
        if let Some(file) = self.file.as_mut().filter(|file| file.is_new()) {
            if blank {
                file.set_capture(&self.captures);
            }
            if file.is_capture() {
                self.terminal = self.first.is_terminal();
            } else {
                file.set_text();
            }
        }
    }

    /// Adds a packet to the output. Returns false if that is no capture.
    pub(crate) fn add_packet(&mut self, packet: &Packet<'_>) -> io::Result<bool> {
        let added = self.file.as_mut().is_some_and(|file| file.add(packet));
        if added {
            self.hand_over_chunk()?;
        }
        Ok(added)
    }

    /// Writes the buffer.
    pub(crate) fn hand_over(&mut self) -> io::Result<()> {
        let packets = self.file.as_mut().map_or(Ok(()), Redirection::write_packets);
        if let Some(file) = self.file.as_mut().filter(|file| file.is_new() && !self.pending.is_empty()) {
            file.set_text();
        }
        // Output that could not be written is discarded, as in C's stdio. Otherwise parts would be
        // printed twice, or the buffer would grow without bound.
        let pending = std::mem::take(&mut self.pending);
        let result = self.current().write_all(&pending);
        self.pending = pending;
        self.pending.clear();
        packets.and(result)
    }

    /// Writes the buffer when it is long.
    pub(crate) fn hand_over_chunk(&mut self) -> io::Result<()> {
        let packets = self.file.as_ref().map_or(0, Redirection::waiting);
        if self.pending.len().max(packets) >= CHUNK { self.hand_over() } else { Ok(()) }
    }

    /// Writes the buffer and flushes the output. The ends of rows wait for what decides whether a
    /// new file has text.
    pub(crate) fn write_out(&mut self) -> io::Result<()> {
        if self.file.as_ref().is_some_and(Redirection::is_new) && is_blank(&self.pending) {
            return Ok(());
        }
        self.end()
    }

    /// Writes the whole buffer and flushes the output.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.current().flush()
    }

    /// Keeps a message until the session is about to wait.
    pub(crate) fn note(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Firings were suppressed: see [`crate::suppressions`].
    pub(crate) fn note_suppressed(&mut self, suppressed: &Suppressed<'_>, quiet: bool) {
        self.messages.extend(self.suppressions.add(suppressed, quiet));
    }

    /// Tracing has ended: says how many firings were suppressed.
    pub(crate) fn sum_up(&mut self) {
        self.messages.extend(self.suppressions.sums());
    }

    /// Writes the buffer, and the messages.
    pub(crate) fn flush_with_messages(&mut self) -> io::Result<()> {
        let flushed = self.write_out();
        if self.messages.is_empty() {
            return flushed;
        }
        let mut messages = std::mem::take(&mut self.messages);
        // Messages about the session come first.
        messages.sort_by_key(|m| m.kind.is_about_records());
        let sent = self.first.messages(&messages);
        flushed.and(sent)
    }

    /// `ftruncate()`: output that was printed before it is removed as well. The outer error is one
    /// of writing that output.
    fn truncate(&mut self) -> io::Result<io::Result<()>> {
        self.end()?;
        Ok(match &mut self.file {
            Some(file) => file.truncate(),
            None => self.first.truncate(),
        })
    }

    /// `freopen()`: appends to a file from now on, or restores the initial output. The outer error
    /// is one of writing the previous output.
    fn reopen(&mut self, path: Option<&[u8]>) -> io::Result<io::Result<()>> {
        use std::os::unix::ffi::OsStrExt;
        self.end()?;
        let opened = match path {
            Some(path) => match open_without_waiting(std::ffi::OsStr::from_bytes(path)) {
                Ok(file) => Some(file),
                Err(e) => return Ok(Err(e)),
            },
            None => None,
        };
        if let Some(left) = self.file.take() {
            left.leave(&mut self.captures);
        }
        self.terminal = opened.as_ref().map_or(self.first.is_terminal(), Output::is_terminal);
        self.file = opened.map(Redirection::new);
        Ok(Ok(()))
    }

    /// `system()`: runs a shell command and waits for it. The outer error is one of writing the
    /// output.
    fn run(&mut self, command: &[u8]) -> io::Result<io::Result<()>> {
        use std::os::unix::ffi::OsStrExt;
        self.end()?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(std::ffi::OsStr::from_bytes(command));
        if self.commands_to_stderr {
            match io::stderr().as_fd().try_clone_to_owned() {
                Ok(stderr) => shell.stdout(Stdio::from(stderr)),
                Err(e) => return Ok(Err(e)),
            };
        } else if let Some(redirection) = self.file.as_ref().filter(|file| !file.is_capture()) {
            match redirection.file.try_clone() {
                Ok(file) => shell.stdout(Stdio::from(file)),
                Err(e) => return Ok(Err(e)),
            };
        }
        Ok(proc::with_original_fd_limit(&mut shell).status().map(|_| ()))
    }
}

impl<W: Output> Write for Effects<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        self.hand_over_chunk().map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()
    }
}

/// True if text has only the ends of rows.
fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|b| *b == b'\n')
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
    use crate::pcapng;

    #[test]
    fn a_fifo_that_nobody_reads_is_an_error() {
        let path = std::env::temp_dir().join(format!("consumer-fifo-{}", std::process::id()));
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a plain system call; the name ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut out = Effects::new(Vec::new());
        let e = out.reopen(Some(path.as_os_str().as_bytes())).unwrap().unwrap_err();
        assert_eq!(e.to_string(), "no process has it open for reading");
        // With a reader it is an output that waits for it.
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        out.reopen(Some(path.as_os_str().as_bytes())).unwrap().unwrap();
        // SAFETY: as above, on a descriptor that is open.
        let status = unsafe { libc::fcntl(out.file.as_ref().unwrap().file.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(status & libc::O_NONBLOCK, 0);
        drop(reader);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_written_follows_the_effects_before_it() {
        let path = std::env::temp_dir().join(format!("consumer-effects-{}", std::process::id()));
        let mut out = Effects::new(Vec::new());
        out.write_all(b"first").unwrap();
        out.perform(&Effect::Freopen(Some(path.as_os_str().as_bytes().into()))).unwrap();
        out.write_all(b"second ").unwrap();
        out.perform(&Effect::System(b"echo third"[..].into())).unwrap();
        out.perform(&Effect::Freopen(None)).unwrap();
        out.write_all(b" fourth").unwrap();
        assert!(matches!(
            out.perform(&Effect::Freopen(Some(b"/nowhere/x"[..].into()))),
            Err(SinkError::Effect(_))
        ));
        out.flush().unwrap();
        assert_eq!(out.into_output(), b"first fourth");
        assert_eq!(std::fs::read(&path).unwrap(), b"second third\n");
        std::fs::remove_file(path).unwrap();
    }

    fn packet() -> Packet<'static> {
        Packet { protocol: 1, time: 1, length: 3, bytes: b"abc".as_slice().into() }
    }

    /// A file, and an output that is redirected to it.
    fn redirected(name: &str, before: &[u8]) -> (std::path::PathBuf, Effects<Vec<u8>>) {
        let path = std::env::temp_dir().join(format!("consumer-{name}-{}", std::process::id()));
        std::fs::write(&path, before).unwrap();
        let mut out = Effects::new(Vec::new());
        out.reopen(Some(path.as_os_str().as_bytes())).unwrap().unwrap();
        (path, out)
    }

    /// Prints a packet, as text does, and returns whether it is in the file.
    fn captured(out: &mut Effects<Vec<u8>>) -> bool {
        out.expect_packets();
        out.add_packet(&packet()).unwrap()
    }

    #[test]
    fn the_end_of_a_row_does_not_decide_that_a_file_has_text() {
        let (path, mut out) = redirected("capture", b"");
        out.pending.push(b'\n');
        out.write_out().unwrap();
        assert!(captured(&mut out));
        out.pending.extend(b"row");
        out.write_out().unwrap();
        // The end of the row is where the row is.
        assert_eq!(out.first, b"\nrow");
        assert!(pcapng::is_capture(&std::fs::read(&path).unwrap()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_ends_of_rows_that_waited_are_written_at_the_end() {
        let (path, mut out) = redirected("ends", b"");
        out.pending.extend(b"\n\n");
        out.write_out().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        out.end().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\n\n");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_with_text_gets_no_packets_until_it_is_emptied() {
        let (path, mut out) = redirected("text", b"text");
        assert!(!captured(&mut out));
        out.perform(&Effect::Ftruncate).unwrap();
        assert!(captured(&mut out));
        std::fs::remove_file(path).unwrap();
        let (path, mut out) = redirected("more-text", b"");
        out.pending.extend(b"more");
        assert!(!captured(&mut out));
        std::fs::remove_file(path).unwrap();
        assert!(!captured(&mut Effects::new(Vec::new())));
    }

    #[test]
    fn a_section_is_continued_unless_someone_else_has_changed_the_file() {
        let (path, mut out) = redirected("continued", b"");
        let name = path.as_os_str().as_bytes().to_vec();
        let sections = || {
            let file = std::fs::read(&path).unwrap();
            file.windows(4).filter(|w| pcapng::is_capture(w)).count()
        };
        for _ in 0..3 {
            assert!(captured(&mut out));
            out.reopen(None).unwrap().unwrap();
            out.reopen(Some(&name)).unwrap().unwrap();
        }
        assert_eq!(sections(), 1);
        let more = std::fs::read(&path).unwrap();
        std::fs::write(&path, more.repeat(2)).unwrap();
        assert!(captured(&mut out));
        out.end().unwrap();
        assert_eq!(sections(), 3);
        std::fs::remove_file(&path).unwrap();
    }
}
