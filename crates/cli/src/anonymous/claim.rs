//! `dtrace -a`: prints what was recorded, and what comes.
//!
//! ```text
//!  find      the session that runs, or what one has left; what records says its version  nothing is taken yet
//!  Claim     Before ── Event::Start: the settings of the session ──> After              each event is printed
//! ```
//!
//! What could refuse the claim (files, formats, the version of the recording) is looked at before
//! anything is taken: afterwards the session has given it away.
//!
//! The text is that of a session: what `system()` and `freopen()` do is done now, in order with the
//! results, as it is where the consumer of a session runs. Options of the output are those of what
//! was stored, unless the claim has others.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use dtrace::Sink;
use dtrace::diagnostics::{control, system_text};
use dtrace::events::{Event, ReadError, Reader, Setting, SettingValue, SinkError, Start};
use dtrace::options::Options;

use super::clock::Correction;
use super::head::{self, Head, Unreadable};
use super::place::{self, Places};
use super::start::peer;
use super::{recordings, spool};
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

/// The most events before the beginning of a session: what `-v` says of its programs.
const MOST_EARLY: usize = 64;

/// What is claimed.
enum Claimed {
    /// A session that runs.
    Session(UnixStream),
    /// What one has left.
    File(File, PathBuf),
}

/// Why there is nothing to be printed.
enum Refusal {
    Nothing,
    /// It stays where it is.
    Failed(String),
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Refusal {
        Refusal::Failed(system_text(&e))
    }
}

impl Claimed {
    /// The session that runs, or else what one has left. Nothing is taken if it cannot be read.
    fn find(places: &Places) -> Result<(Claimed, Head), Refusal> {
        let socket = places.socket();
        if socket.symlink_metadata().is_ok() {
            place::check_dir(&places.run())?;
            if let Ok(stream) = UnixStream::connect(&socket)
                && let Some(head) = of_session(&stream)?
            {
                return Ok((Claimed::Session(stream), head));
            }
        }
        let (mut file, path) = recordings::left(places)?.ok_or(Refusal::Nothing)?;
        let name = control::name_text(&path.to_string_lossy()).into_owned();
        let unread = |why: &dyn std::fmt::Display, what: &str| {
            Refusal::Failed(format!("failed to read what was recorded in {name}: {why}{what}"))
        };
        let mut bytes = [0; head::LENGTH];
        match file.read_exact(&mut bytes) {
            Err(e) if e.kind() != ErrorKind::UnexpectedEof => return Err(unread(&system_text(&e), "")),
            _ => {}
        }
        match Head::of(&bytes) {
            Ok(head) => Ok((Claimed::File(file, path), head)),
            Err(why @ Unreadable::Foreign) => Err(unread(&why, ": remove the file")),
            Err(why) => Err(unread(&why, ": claim it with that one, or remove the file")),
        }
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

    /// Whether nothing was recorded.
    fn is_empty(&self) -> bool {
        match self {
            Claimed::Session(_) => false,
            Claimed::File(file, _) => recordings::is_empty(file),
        }
    }
}

/// Claims from the session that has a socket. `None`: it ends now, or somebody else has it. An
/// error: it cannot be read here, and goes on.
fn of_session(mut stream: &UnixStream) -> Result<Option<Head>, Refusal> {
    let mut bytes = [0; head::LENGTH];
    match stream.read_exact(&mut bytes) {
        Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        read => read?,
    }
    let head = Head::of(&bytes).map_err(|why| {
        let program = peer(stream).map_or_else(|| "it".into(), |pid| format!("/proc/{pid}/exe -a"));
        Refusal::Failed(format!("{why}: it goes on; claim it with {program}"))
    })?;
    match stream.write_all(&[spool::CLAIM]) {
        Ok(()) => Ok(begins(stream)?.then_some(head)),
        // A session that ends now, without a claim, has closed it.
        Err(_) => Ok(None),
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
                e if e.kind() == ErrorKind::Interrupted && interrupt::count() == 0 => {}
                e if e.kind() == ErrorKind::ConnectionReset => return Ok(false),
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

/// Where the results go.
type Files = (Option<Drawing>, Exports);

/// How far the printing is.
enum Stage {
    /// The settings of the session are not known, by which its messages are shown.
    Before(Box<(Output, Files)>, Vec<Event<'static>>),
    After(Box<Results>),
    /// It has failed.
    Over,
}

/// Why the printing ends.
enum Failure {
    Output(io::Error),
    Message(String),
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Output(e)
    }
}

/// What is printed of a recording.
struct Printing<'a> {
    command: &'a Command,
    known: Head,
    correction: Correction,
    stage: Stage,
    /// The exit status of the session, when it has ended.
    status: Option<i32>,
}

impl Printing<'_> {
    fn event(&mut self, mut event: Event<'_>) -> Result<(), Failure> {
        match &mut event {
            Event::Start(start) => {
                apply(&mut start.settings, &self.command.options);
                self.correction = Correction::of(start, self.known);
            }
            Event::Options(all) => apply(all, &self.command.options),
            Event::End { status } => self.status = Some(*status),
            _ => {}
        }
        self.correction.apply(&mut event);
        match (&mut self.stage, &event) {
            (Stage::After(sink), _) => deliver(sink, &event)?,
            (Stage::Before(..), Event::Start(start)) => self.begin(start, &event)?,
            (Stage::Before(_, early), _) if early.len() < MOST_EARLY => early.push(event.into_owned()),
            (Stage::Before(..) | Stage::Over, _) => {
                return Err(Failure::Message("what was recorded does not begin with a session".into()));
            }
        }
        Ok(())
    }

    /// The settings are known.
    fn begin(&mut self, start: &Start<'_>, event: &Event<'_>) -> Result<(), Failure> {
        let Stage::Before(to, early) = std::mem::replace(&mut self.stage, Stage::Over) else { return Ok(()) };
        let (mut out, files) = *to;
        let quiet = is_quiet(&start.settings);
        out.shown = Shown { quiet, verbose: self.command.verbose, resize: true };
        let mut sink = Results::of_claim(self.command, out, files).map_err(Failure::Message)?;
        early.iter().chain([event]).try_for_each(|event| deliver(&mut sink, event))?;
        self.stage = Stage::After(Box::new(sink));
        Ok(())
    }

    /// What came is shown before more is waited for.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stage {
            Stage::After(sink) => sink.batch_end().and_then(|()| sink.flush()),
            Stage::Before(..) | Stage::Over => Ok(()),
        }
    }

    /// Writes the files. The errors are messages.
    fn finish(&mut self) -> io::Result<Vec<String>> {
        self.flush()?;
        match &mut self.stage {
            Stage::After(sink) => Ok(sink.finish_files().err().unwrap_or_default()),
            Stage::Before(..) | Stage::Over => Ok(Vec::new()),
        }
    }
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

/// Claims; the exit status.
pub(crate) fn claim(command: &Command, out: Output) -> io::Result<u8> {
    let places = Places::of(&command.options);
    // What cannot be written is said before there is anything to be lost.
    let files = Results::check_claim(command, &out)
        .and_then(|()| Ok((Drawing::of(command)?, Exports::of(command, &command.options)?)));
    let files = match files {
        Ok(files) => files,
        Err(why) => return Ok(complain_all(vec![why])),
    };
    let (claimed, known) = match Claimed::find(&places) {
        Ok(found) => found,
        Err(Refusal::Nothing) => return Ok(nothing(&places)),
        Err(Refusal::Failed(why)) => return Ok(refused(&why)),
    };
    let stage = Stage::Before(Box::new((out, files)), Vec::new());
    let correction = Correction::default();
    let mut printing = Printing { command, known, correction, stage, status: None };
    match print(&mut printing, &claimed) {
        Ok(end) => finish(printing, claimed, end),
        Err(Failure::Output(e)) => Err(e),
        Err(Failure::Message(why)) => Ok(complain_all(vec![why])),
    }
}

/// How the reading ended.
#[derive(Default)]
struct End {
    /// The user has enough.
    is_asked: bool,
    wrong: Option<ReadError>,
}

/// Prints the events until they end, or the user has enough.
fn print(printing: &mut Printing<'_>, claimed: &Claimed) -> Result<End, Failure> {
    let file = claimed.file()?;
    let interrupts = Interrupts::catch()?;
    interrupt::running(None);
    if printing.command.compile_only {
        claimed.ask(spool::STOP);
    }
    let awaited = [file.as_raw_fd(), interrupts.fd().as_raw_fd()];
    let mut reader = Reader::new(io::BufReader::with_capacity(64 << 10, Ready(file)));
    let mut end = End::default();
    loop {
        let event = match reader.next_event() {
            Ok(None) => return Ok(end),
            Err(ReadError::Io(e)) if e.kind() == ErrorKind::WouldBlock => None,
            Err(e) => return Ok(End { wrong: Some(e), ..end }),
            Ok(event) => event,
        };
        if interrupt::count() > 0 && !std::mem::replace(&mut end.is_asked, true) {
            claimed.ask(spool::INTERRUPT);
            // What a session has left is printed until then.
            if matches!(claimed, Claimed::File(..)) {
                return Ok(end);
            }
        }
        if let Some(event) = event {
            printing.event(event)?;
            continue;
        }
        interrupts.clear();
        printing.flush()?;
        match wait(&awaited, -1) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e.into()),
            _ => {}
        }
    }
}

/// Says what is to be said of the end, and removes what was delivered; the exit status.
fn finish(mut printing: Printing<'_>, claimed: Claimed, end: End) -> io::Result<u8> {
    let failed = printing.finish()?;
    failed.iter().for_each(complain);
    let (status, is_empty) = (printing.status, claimed.is_empty());
    // The machine was killed while it was written, or before anything was.
    // A session that does not read our last word resets the connection, behind all that it says.
    let is_reset = |e: &ReadError| {
        status.is_some() && matches!(e, ReadError::Io(e) if e.kind() == ErrorKind::ConnectionReset)
    };
    let is_cut = |e: &ReadError| matches!(e, ReadError::Truncated) || is_empty || is_reset(e);
    let wrong = end.wrong.filter(|e| !is_cut(e));
    // What was not delivered is there for another claim.
    let is_done = wrong.is_none() && failed.is_empty() && !(end.is_asked && status.is_none());
    if let (Claimed::File(file, path), true) = (&claimed, is_done) {
        recordings::remove(path, file)?;
    }
    match wrong {
        Some(e) => complain(format!("failed to read what was recorded: {e}")),
        None if status.is_none() && !end.is_asked => {
            complain("what was recorded ends before its session does: dtrace or the machine was killed");
        }
        None => {}
    }
    Ok(match status {
        Some(status) if failed.is_empty() => status as u8,
        None if end.is_asked => 0,
        _ => 1,
    })
}

/// There is nothing, or what the boot has said instead.
fn nothing(places: &Places) -> u8 {
    let path = places.error();
    match place::open(&path) {
        Ok(Some(file)) => {
            let mut bytes = Vec::new();
            let _ = file.take(1 << 20).read_to_end(&mut bytes);
            crate::to_stderr(String::from_utf8_lossy(&bytes));
            complain(NOTHING);
            let _ = std::fs::remove_file(path);
            1
        }
        Ok(None) => complain_all(vec![NOTHING.into()]),
        Err(e) => refused(&system_text(&e)),
    }
}

fn refused(why: &str) -> u8 {
    complain_all(vec![format!("could not enable tracing: {why}")])
}
