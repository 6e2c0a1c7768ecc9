//! `--events`: prints the events of another session, from a file or from its socket.
//!
//! They are what somebody says: no [effect](Event::Effect) is performed. What came is printed
//! before more is waited for, so the results of a session that runs are seen as they come.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use dtrace::Sink;
use dtrace::diagnostics::{control, system_text};
use dtrace::events::{Event, ReadError, Reader, SinkError};

use crate::command::{Command, file_of};
use crate::exports;
use crate::interrupt::{self, Interrupts};
use crate::output::{Output, Shown};
use crate::results::Results;
use crate::to_stderr;

fn complain(text: impl std::fmt::Display) {
    to_stderr(format!("dtrace: {text}\n"));
}

/// What is read without waiting.
pub(crate) struct Ready(pub(crate) File);

impl Read for Ready {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match wait(&[self.0.as_raw_fd()], 0)? {
            true => self.0.read(bytes),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Waits until there is something to be read, for so many milliseconds; less than none: for ever.
pub(crate) fn wait(all: &[RawFd], milliseconds: libc::c_int) -> io::Result<bool> {
    let mut all: Vec<libc::pollfd> =
        all.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the array is as long as is said.
    match unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds) } {
        0.. if all.iter().any(|fd| fd.revents != 0) => Ok(true),
        0.. => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}

fn open(from: &str) -> io::Result<File> {
    match from.strip_prefix("unix:") {
        Some(path) => UnixStream::connect(path).map(|stream| File::from(OwnedFd::from(stream))),
        None => File::open(file_of(from)),
    }
}

/// Prints the events until they end, or an interrupt; the exit status.
pub(crate) fn print(command: &Command, from: &str, mut out: Output) -> io::Result<u8> {
    let name = control::name_text(from);
    let refused = |why: &dyn std::fmt::Display| {
        complain(format!("failed to read the events of '{name}': {why}"));
        Ok(1)
    };
    let file = match open(from) {
        Ok(file) => file,
        Err(e) => return refused(&system_text(&e)),
    };
    let interrupts = Interrupts::catch()?;
    interrupt::running(None);
    let awaited = [file.as_raw_fd(), interrupts.fd().as_raw_fd()];
    out.shown = Shown { quiet: command.options.quiet, verbose: command.verbose, resize: true };
    let mut sink = match Results::of_another(command, out) {
        Ok(sink) => sink,
        Err(why) => {
            complain(why);
            return Ok(1);
        }
    };
    let mut reader = Reader::new(BufReader::with_capacity(64 << 10, Ready(file)));
    let mut has_ended = false;
    let (mut has_rows, mut has_intervals) = (false, false);
    let mut wrong: Option<ReadError> = None;
    while interrupt::count() == 0 {
        let event = match reader.next_event() {
            Ok(Some(Event::Effect(_))) => continue,
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                sink.batch_end().and_then(|()| sink.flush())?;
                match wait(&awaited, -1) {
                    Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                    _ => continue,
                }
            }
            Err(e) => {
                wrong = Some(e);
                break;
            }
        };
        has_ended |= matches!(event, Event::End { .. });
        has_rows |= matches!(event, Event::Aggregation(_));
        has_intervals |= matches!(event, Event::Interval(_));
        if let Err(SinkError::Output(e) | SinkError::Effect(e)) = sink.event(&event) {
            return Err(e);
        }
    }
    sink.batch_end().and_then(|()| sink.flush())?;
    let mut failed = sink.finish_files().err().unwrap_or_default();
    if exports::need_intervals(&command.options) && has_rows && !has_intervals {
        failed.push(format!(
            "the events of '{name}' have no intervals of aggregations: trace with -x every=1s"
        ));
    }
    failed.iter().for_each(complain);
    match wrong {
        Some(e) => refused(&e),
        None if has_ended || interrupt::count() > 0 => Ok(u8::from(!failed.is_empty())),
        None => refused(&"they end before the session does"),
    }
}
