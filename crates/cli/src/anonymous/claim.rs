//! `dtrace -a`: prints what was recorded, and what comes.
//!
//! The text is that of a session: what `system()` and `freopen()` do is done now, in order with the
//! results, as it is where the consumer of a session runs. Options of the output are those of what
//! was stored, unless the claim has others.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use dtrace::Sink;
use dtrace::diagnostics::system_text;
use dtrace::events::{Event, ReadError, Reader, Setting, SettingValue, SinkError};
use dtrace::options::Options;

use super::place::{self, Places};
use super::{log, spool};
use crate::command::Command;
use crate::drawing::Drawing;
use crate::exports::Exports;
use crate::interrupt::{self, Interrupts};
use crate::output::Output;
use crate::output::Shown;
use crate::prepare::{complain, complain_all};
use crate::results::Results;
use crate::stored::{Ready, wait};

/// Nothing is there to be claimed.
const NOTHING: &str = "could not enable tracing: No anonymous tracing state";

/// What is claimed.
enum Claimed {
    /// A session that runs.
    Session(UnixStream),
    /// What one has left.
    File(File, PathBuf),
}

impl Claimed {
    /// The session that runs, or else what one has left. `None`: there is nothing.
    fn find(places: &Places) -> io::Result<Option<Claimed>> {
        let socket = places.socket();
        if socket.symlink_metadata().is_ok() {
            place::check_dir(&places.run())?;
            if let Ok(stream) = UnixStream::connect(&socket) {
                // A session that ends now, without a claim, has closed it.
                stream.set_read_timeout(None)?;
                if begins(&stream)? {
                    return Ok(Some(Claimed::Session(stream)));
                }
            }
        }
        Ok(log::left(places)?.map(|(file, path)| Claimed::File(file, path)))
    }

    fn file(&self) -> io::Result<File> {
        match self {
            Claimed::Session(stream) => stream.try_clone().map(|stream| File::from(OwnedFd::from(stream))),
            Claimed::File(file, _) => file.try_clone(),
        }
    }

    /// Asks the session to end.
    fn ask(&self, what: u8) {
        if let Claimed::Session(stream) = self {
            // Without a session there is its end to be read.
            let _ = (&*stream).write(&[what]);
        }
    }
}

/// Waits until something can be read. False: that is the end.
fn begins(stream: &UnixStream) -> io::Result<bool> {
    let mut byte = 0u8;
    loop {
        // SAFETY: one byte of a valid place; it stays in the socket.
        let n = unsafe { libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
        match n {
            0.. => return Ok(n > 0),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted && interrupt::count() == 0 => {}
                e if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                e => return Err(e),
            },
        }
    }
}

/// The settings of the output that the claim has are put in the place of those of what was stored.
fn apply(all: &mut [Setting<'_>], given: &Options) {
    let defaults = Options::default();
    for setting in all {
        let text = given.text(&setting.name);
        if text == defaults.text(&setting.name) {
            continue;
        }
        setting.value = match (&setting.value, text.parse()) {
            (SettingValue::Flag(_), _) => SettingValue::Flag(text == "yes"),
            (SettingValue::Number(_), Ok(number)) => SettingValue::Number(number),
            _ => SettingValue::Text(text.into()),
        };
    }
}

/// Whether a session prints only what is traced.
fn is_quiet(all: &[Setting<'_>]) -> bool {
    all.iter().any(|s| s.name == "quiet" && s.value == SettingValue::Flag(true))
}

/// Claims; the exit status.
pub(crate) fn claim(command: &Command, out: Output) -> io::Result<u8> {
    let places = Places::of(&command.options);
    // What cannot be written is said before there is anything to be lost.
    let files =
        Drawing::of(command).and_then(|drawing| Ok((drawing, Exports::of(command, &command.options)?)));
    let mut files = match files {
        Ok(files) => Some(files),
        Err(why) => return Ok(complain_all(vec![why])),
    };
    let claimed = match Claimed::find(&places) {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return Ok(nothing(&places)),
        Err(e) => return Ok(refused(&e)),
    };
    let file = claimed.file()?;
    let interrupts = Interrupts::catch()?;
    interrupt::running(None);
    if command.compile_only {
        claimed.ask(spool::STOP);
    }
    let awaited = [file.as_raw_fd(), interrupts.fd().as_raw_fd()];
    let mut reader = Reader::new(io::BufReader::with_capacity(64 << 10, Ready(file)));
    // Its messages are shown as the options of the session say, which come before them.
    let mut early: Vec<Event<'static>> = Vec::new();
    let (mut out, mut sink): (Option<Output>, Option<Results>) = (Some(out), None);
    let (mut status, mut asked) = (None, false);
    let wrong = loop {
        let mut event = match reader.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => break None,
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                if interrupt::count() > 0 && !std::mem::replace(&mut asked, true) {
                    claimed.ask(spool::INTERRUPT);
                }
                interrupts.clear();
                sink.as_mut().map_or(Ok(()), |sink| sink.batch_end().and_then(|()| sink.flush()))?;
                match wait(&awaited, -1) {
                    Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                    _ => continue,
                }
            }
            Err(e) => break Some(e),
        };
        // What a session has left is printed until the user has enough.
        if interrupt::count() > 0 && !std::mem::replace(&mut asked, true) {
            claimed.ask(spool::INTERRUPT);
            if matches!(claimed, Claimed::File(..)) {
                break None;
            }
        }
        match &mut event {
            Event::Start(start) => apply(&mut start.settings, &command.options),
            Event::Options(all) => apply(all, &command.options),
            Event::End { status: end } => status = Some(*end),
            _ => {}
        }
        let Some(sink) = &mut sink else {
            let quiet = match &event {
                Event::Start(start) => Some(is_quiet(&start.settings)),
                _ => None,
            };
            early.push(event.into_owned());
            if let Some(quiet) = quiet
                && let (Some(mut out), Some(files)) = (out.take(), files.take())
            {
                out.shown = Shown { quiet, verbose: command.verbose, resize: true };
                let mut made = match Results::of_claim(command, out, files) {
                    Ok(made) => made,
                    Err(why) => return Ok(complain_all(vec![why])),
                };
                for event in early.drain(..) {
                    deliver(&mut made, &event)?;
                }
                sink = Some(made);
            }
            continue;
        };
        deliver(sink, &event)?;
    };
    let mut failed = Vec::new();
    if let Some(sink) = &mut sink {
        sink.batch_end().and_then(|()| sink.flush())?;
        failed = sink.finish_files().err().unwrap_or_default();
    }
    failed.iter().for_each(complain);
    // The machine was killed while it was written.
    let wrong = wrong.filter(|e| !matches!(e, ReadError::Truncated));
    // What was not delivered is there for another claim.
    let is_done = wrong.is_none() && failed.is_empty() && !(asked && status.is_none());
    if let (Claimed::File(_, path), true) = (&claimed, is_done) {
        std::fs::remove_file(path)?;
    }
    match wrong {
        Some(e) => complain(format!("failed to read what was recorded: {e}")),
        None if status.is_none() && !asked => {
            complain("what was recorded ends before its session does: dtrace or the machine was killed");
        }
        None => {}
    }
    Ok(match status {
        Some(status) if failed.is_empty() => status as u8,
        None if asked => 0,
        _ => 1,
    })
}

fn deliver(sink: &mut Results, event: &Event<'_>) -> io::Result<()> {
    match sink.event(event) {
        Err(SinkError::Output(e)) => Err(e),
        // As a session does.
        Err(SinkError::Effect(e)) => {
            complain(e);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// There is nothing, or what the boot has said instead.
fn nothing(places: &Places) -> u8 {
    let path = places.error();
    match place::open(&path) {
        Ok(Some(file)) => {
            use std::io::Read;
            let mut bytes = Vec::new();
            let _ = file.take(1 << 20).read_to_end(&mut bytes);
            crate::to_stderr(String::from_utf8_lossy(&bytes));
            complain(NOTHING);
            let _ = std::fs::remove_file(path);
            1
        }
        Ok(None) => complain_all(vec![NOTHING.into()]),
        Err(e) => refused(&e),
    }
}

fn refused(e: &io::Error) -> u8 {
    let why = system_text(e);
    complain_all(vec![format!("could not enable tracing: {why}")])
}
