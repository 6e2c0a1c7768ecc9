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
use std::sync::atomic::{AtomicBool, Ordering};

use dtrace::diagnostics::control;
use dtrace::events::{Event, NoticeKind, SinkError};
use dtrace::options::OutputFormat;
use dtrace::{Json, Message, MessageKind, Needs, Sink, Text};

use crate::drawing::Drawing;
use crate::heat_map::HeatMap;
use crate::interrupt;

/// Standard output was closed when the process began.
static CLOSED: AtomicBool = AtomicBool::new(false);

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

/// Prints what is no result. What it quotes of others cannot control a terminal.
pub(crate) fn to_stderr(text: impl Display) {
    let _ = write!(std::io::stderr(), "{}", control::lines(&text.to_string()));
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

/// An open output.
pub(crate) struct Output {
    file: File,
    pub(crate) shown: Shown,
}

impl Output {
    fn new(file: File) -> Output {
        Output { file, shown: Shown::default() }
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
        self.file.truncate()
    }

    fn is_terminal(&self) -> bool {
        io::IsTerminal::is_terminal(&self.file)
    }

    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        let Shown { quiet, verbose, resize } = self.shown;
        let is_shown = |message: &&Message| match message.kind {
            MessageKind::Notice(NoticeKind::Lowered) => resize,
            MessageKind::Notice(NoticeKind::Target | NoticeKind::Unavailable) => !quiet,
            MessageKind::Notice(NoticeKind::Detail) => verbose,
            _ => true,
        };
        let mut text = String::new();
        for message in messages.iter().filter(is_shown) {
            text.push_str(&format!("dtrace: {message}\n"));
            if text.len() >= AT_ONCE {
                to_stderr(std::mem::take(&mut text));
            }
        }
        if !text.is_empty() {
            to_stderr(text);
        }
        Ok(())
    }
}

/// What is printed, by the option `oformat`.
enum Printed {
    Text(Text<Output>),
    Json(Json<Output>),
}

/// What a format needs of records. A drawing needs nothing more than what it draws.
pub(crate) fn needs(format: OutputFormat) -> Needs {
    match format {
        OutputFormat::Json => Json::<Output>::NEEDS,
        OutputFormat::Text | OutputFormat::Csv => Needs::default(),
    }
}

/// The sink of a session: what is printed, and what is drawn.
pub(crate) struct Results {
    printed: Printed,
    drawing: Option<Drawing>,
    heat_map: Option<HeatMap>,
}

impl Results {
    pub(crate) fn new(
        format: OutputFormat,
        out: Output,
        drawing: Option<Drawing>,
        heat_map: Option<HeatMap>,
    ) -> Results {
        let printed = match format {
            OutputFormat::Json => Printed::Json(Json::new(out)),
            OutputFormat::Csv => Printed::Text(Text::csv(out)),
            OutputFormat::Text => Printed::Text(Text::new(out)),
        };
        Results { printed, drawing, heat_map }
    }

    /// For events that were stored: nothing is performed.
    pub(crate) fn of_stored_events(format: OutputFormat, out: Output) -> Results {
        let printed = match format {
            OutputFormat::Json => Printed::Json(Json::of_stored_events(out)),
            OutputFormat::Csv => Printed::Text(Text::csv_of_stored_events(out)),
            OutputFormat::Text => Printed::Text(Text::of_stored_events(out)),
        };
        Results { printed, drawing: None, heat_map: None }
    }

    /// Writes what is drawn, at the end. The errors are messages.
    pub(crate) fn finish_drawings(&mut self) -> Result<(), Vec<String>> {
        let drawn = self.drawing.as_mut().map_or(Ok(()), Drawing::finish);
        let mapped = self.heat_map.as_mut().map_or(Ok(()), HeatMap::finish);
        match (drawn, mapped) {
            (Err(mut all), Err(more)) => {
                all.extend(more);
                Err(all)
            }
            (drawn, mapped) => drawn.and(mapped),
        }
    }
}

impl Sink for Results {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.heat_map.iter_mut().for_each(|heat_map| heat_map.event(event));
        let drawn = self.drawing.as_mut().is_some_and(|drawing| drawing.event(event));
        match &mut self.printed {
            // JSON has every event.
            Printed::Json(json) => json.event(event),
            Printed::Text(_) if drawn => Ok(()),
            Printed::Text(text) => text.event(event),
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        let drawn = self.drawing.as_mut().map_or(Ok(()), Drawing::batch_end);
        let mapped = self.heat_map.as_mut().map_or(Ok(()), HeatMap::batch_end);
        let printed = match &mut self.printed {
            Printed::Text(text) => text.batch_end(),
            Printed::Json(json) => json.batch_end(),
        };
        printed.and(drawn).and(mapped)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.printed {
            Printed::Text(text) => text.flush(),
            Printed::Json(json) => json.flush(),
        }
    }

    fn aborted(&mut self) {
        match &mut self.printed {
            Printed::Text(text) => text.aborted(),
            Printed::Json(json) => json.aborted(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match interrupt::while_writing(|| self.file.write(bytes)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
