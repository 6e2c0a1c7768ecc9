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
use dtrace::formats::{Format, Kind};
use dtrace::options::{Options, OutputFormat};
use dtrace::{Json, Message, MessageKind, Needs, Sink, Text};

use crate::drawing::Drawing;
use crate::exports::Exports;
use crate::interrupt::Writer;

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

impl Shown {
    /// Prints messages to standard error.
    fn print(self, messages: &[Message]) {
        let Shown { quiet, verbose, resize } = self;
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
    }
}

/// An open output.
pub(crate) struct Output {
    file: Writer,
    pub(crate) shown: Shown,
}

impl Output {
    fn new(file: File) -> Output {
        Output { file: Writer(file), shown: Shown::default() }
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
        io::IsTerminal::is_terminal(&self.file.0)
    }

    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        self.shown.print(messages);
        Ok(())
    }
}

/// What is printed: by the option `oformat`, or by `--format`.
enum Printed {
    Text(Text<Output>),
    Json(Json<Output>),
    /// The text performs effects and has the messages; it gets no results.
    Other(Box<dyn Sink>, Text<Unprinted>),
}

/// What a format needs of records. A drawing needs nothing more than what it draws.
pub(crate) fn needs(format: OutputFormat) -> Needs {
    match format {
        OutputFormat::Json => Json::<Output>::NEEDS,
        OutputFormat::Text | OutputFormat::Csv => Needs::default(),
    }
}

/// The sink of a session: what is printed, what is drawn instead, and other files.
pub(crate) struct Results {
    printed: Printed,
    drawing: Option<Drawing>,
    exports: Exports,
}

impl Results {
    pub(crate) fn new(
        format: OutputFormat,
        out: Output,
        drawing: Option<Drawing>,
        exports: Exports,
    ) -> Results {
        let printed = match format {
            OutputFormat::Json => Printed::Json(Json::new(out)),
            OutputFormat::Csv => Printed::Text(Text::csv(out)),
            OutputFormat::Text => Printed::Text(Text::new(out)),
        };
        Results { printed, drawing, exports }
    }

    /// Prints in a format that is a stream. An error is a message.
    pub(crate) fn in_format(
        format: &Format,
        out: Output,
        drawing: Option<Drawing>,
        exports: Exports,
        options: &Options,
    ) -> Result<Results, String> {
        let name = format.name;
        let Kind::Stream(make) = format.kind else {
            return Err(format!("--format {name}: it is written to a file: --format {name}=FILE"));
        };
        if format.binary && dtrace::Output::is_terminal(&out) {
            return Err(format!("--format {name}: it is no text: name a file, as in --format {name}=FILE"));
        }
        let text = Text::new(Unprinted(out.shown));
        Ok(Results { printed: Printed::Other(make(Box::new(out.file), options), text), drawing, exports })
    }

    /// For events that were stored: nothing is performed.
    pub(crate) fn of_stored_events(format: OutputFormat, out: Output) -> Results {
        let printed = match format {
            OutputFormat::Json => Printed::Json(Json::of_stored_events(out)),
            OutputFormat::Csv => Printed::Text(Text::csv_of_stored_events(out)),
            OutputFormat::Text => Printed::Text(Text::of_stored_events(out)),
        };
        Results { printed, drawing: None, exports: Exports::none() }
    }

    /// Writes the files, at the end. The errors are messages.
    pub(crate) fn finish_files(&mut self) -> Result<(), Vec<String>> {
        let drawn = self.drawing.as_mut().map_or(Ok(()), Drawing::finish);
        let mut wrong = drawn.err().unwrap_or_default();
        wrong.extend(self.exports.finish().err().unwrap_or_default());
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

impl Sink for Results {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.exports.event(event);
        let drawn = self.drawing.as_mut().is_some_and(|drawing| drawing.event(event));
        match &mut self.printed {
            // JSON has every event, and so may other formats.
            Printed::Json(json) => json.event(event),
            Printed::Other(sink, text) => {
                let printed = sink.event(event);
                let is_result =
                    matches!(event, Event::Record(_) | Event::Aggregation(_) | Event::Interval(_));
                if is_result { printed } else { text.event(event).and(printed) }
            }
            Printed::Text(_) if drawn => Ok(()),
            Printed::Text(text) => text.event(event),
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        let drawn = self.drawing.as_mut().map_or(Ok(()), Drawing::batch_end);
        self.exports.batch_end();
        let printed = match &mut self.printed {
            Printed::Text(text) => text.batch_end(),
            Printed::Json(json) => json.batch_end(),
            Printed::Other(sink, text) => text.batch_end().and(sink.batch_end()),
        };
        printed.and(drawn)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.exports.flush();
        match &mut self.printed {
            Printed::Text(text) => text.flush(),
            Printed::Json(json) => json.flush(),
            Printed::Other(sink, text) => text.flush().and(sink.flush()),
        }
    }

    fn aborted(&mut self) {
        self.exports.aborted();
        match &mut self.printed {
            Printed::Text(text) => text.aborted(),
            Printed::Json(json) => json.aborted(),
            Printed::Other(sink, text) => {
                text.aborted();
                sink.aborted();
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The output of text that is not printed: it has the messages.
pub(crate) struct Unprinted(Shown);

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
