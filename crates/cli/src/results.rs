//! The sink of a session: what is printed, in the format that was chosen, and files beside it.

use std::io::{self, Write};
use std::time::Duration;

use dtrace::capture::{Captured, Recorder, Snapshot};
use dtrace::events::{Event, SinkError, ThreadName};
use dtrace::formats::{self, Format, Kind};
use dtrace::options::{Options, OutputFormat};
use dtrace::{Needs, Printer, Program, Sink};

use crate::anonymous::boot;
use crate::anonymous::spool::Spool;
use crate::command::Command;
use crate::drawing::Drawing;
use crate::exports::{self, Exports};
use crate::live::{Kept, LiveResults};
use crate::output::{Output, Shown, Unprinted, to_stderr};

/// What is printed: by the option `oformat`, or by `--format`.
enum Printed {
    /// Text, or CSV.
    Text(Box<dyn Sink>),
    Json(Box<dyn Sink>),
    /// The text performs effects and has the messages; it gets no results.
    Other(Box<dyn Sink>, Box<dyn Sink>),
    /// `--live`
    Live(Box<LiveResults>),
    /// What was stored (`-A`) is traced: the events are kept for a claim.
    Kept(Box<Spool>),
    /// `--capture`: the firings are written to a file.
    Captured(Box<Capturing>),
}

/// The sink of a session that captures, with the messages beside.
pub(crate) type Capturing = Recorder<Box<dyn Write + Send>, Box<dyn Sink>>;

/// What is needed of records. A drawing needs nothing more than what it draws.
pub(crate) fn needs(options: &Options) -> Needs {
    let printed = printer(options.oformat).needs();
    // Whatever is made of events later.
    Needs { process_ids: printed.process_ids || options.events.is_some(), ..printed }
}

fn printer(format: OutputFormat) -> Printer {
    match format {
        OutputFormat::Json => Printer::Json,
        OutputFormat::Csv => Printer::Csv,
        OutputFormat::Text => Printer::Text,
    }
}

impl Printed {
    /// As a format prints; `sink` does.
    fn of(format: OutputFormat, sink: Box<dyn Sink>) -> Printed {
        match format {
            OutputFormat::Json => Printed::Json(sink),
            OutputFormat::Csv | OutputFormat::Text => Printed::Text(sink),
        }
    }
}

/// An error for a format that has nothing of what the programs deliver. Metrics need intervals.
fn fit_formats(
    command: &Command,
    program: &Program,
    target: u64,
    options: &mut Options,
) -> Result<(), String> {
    if let Some(text) = options.slices.first()
        && !command.formats.all().any(|format| format.name == "perfetto")
    {
        return Err(format!("-x slices={text}: it is of a timeline: name a file, as in --to FILE.pftrace"));
    }
    formats::fit_slices(options, program, target)?;
    for format in command.formats.all() {
        format.check(program).map_err(|why| format!("--format {}: {why}", format.name))?;
    }
    for option in exports::SERVERS.iter() {
        let Some(place) = (option.place)(options) else { continue };
        (option.check)(program).map_err(|why| format!("-x {}={place}: {why}", option.name))?;
        if option.intervals {
            options.every.get_or_insert(Duration::from_secs(1));
        }
    }
    Ok(())
}

/// Makes the sink of a format that is printed.
type MakeStream = fn(formats::Writer, &Options) -> Box<dyn Sink>;

/// What makes the sink of a format that is printed. An error is a message.
fn stream(format: &Format, out: &Output) -> Result<MakeStream, String> {
    let name = format.name;
    let Kind::Stream(make) = format.kind else {
        return Err(format!("--format {name}: it is written to a file: --format {name}=FILE"));
    };
    if format.binary && dtrace::Output::is_terminal(out) {
        return Err(format!("--format {name}: it is no text: name a file, as in --format {name}=FILE"));
    }
    Ok(make)
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
        let printed = Printed::of(format, printer(format).sink(Box::new(out)));
        Results { printed, drawing, exports }
    }

    /// What a session prints, draws and writes. `live`: the text of the program, how often it was
    /// narrowed, and what was printed before. An error is a message.
    pub(crate) fn of_session(
        command: &Command,
        program: &Program,
        (options, target): (&mut Options, u64),
        out: Output,
        live: impl FnOnce() -> (String, usize, Kept),
    ) -> Result<Results, String> {
        // Nothing is traced with -e.
        if command.compile_only {
            return Ok(Results::new(OutputFormat::Text, out, None, Exports::none()));
        }
        fit_formats(command, program, target, options)?;
        let (drawing, exports) = (Drawing::of(command)?, Exports::of(command, options)?);
        match command.formats.printed {
            None if command.is_live() => {
                let (text, depth, before) = live();
                let live = LiveResults::new(out, command.output.is_some(), (&text, depth), before);
                Ok(Results::live(live, drawing, exports))
            }
            None => Ok(Results::new(options.oformat, out, drawing, exports)),
            Some(printed) => Results::in_format(printed, out, drawing, exports, options),
        }
    }

    /// Shows what happens in the terminal; the text comes at the end.
    pub(crate) fn live(live: LiveResults, drawing: Option<Drawing>, exports: Exports) -> Results {
        Results { printed: Printed::Live(Box::new(live)), drawing, exports }
    }

    /// Captures to a file.
    pub(crate) fn captured(
        file: Box<dyn Write + Send>,
        captured: &Captured,
        shown: Shown,
    ) -> io::Result<Results> {
        let text = Printer::Text.sink(Box::new(Unprinted(shown)));
        let recorder = Recorder::new(file, captured, text)?;
        Ok(Results {
            printed: Printed::Captured(Box::new(recorder)),
            drawing: None,
            exports: Exports::none(),
        })
    }

    /// Keeps the events for a claim. An error is a message.
    pub(crate) fn kept(command: &Command) -> Result<Results, String> {
        let printed = Printed::Kept(Box::new(boot::spool(command)?));
        Ok(Results { printed, drawing: None, exports: Exports::none() })
    }

    /// What keeps the events for a claim.
    pub(crate) fn spool_mut(&mut self) -> Option<&mut Spool> {
        match &mut self.printed {
            Printed::Kept(spool) => Some(spool),
            _ => None,
        }
    }

    /// An error for what a claim cannot print, before it takes anything.
    pub(crate) fn check_claim(command: &Command, out: &Output) -> Result<(), String> {
        command.formats.printed.map_or(Ok(()), |format| stream(format, out).map(drop))
    }

    /// For a claim: it prints as a session does.
    pub(crate) fn of_claim(
        command: &Command,
        out: Output,
        (drawing, exports): (Option<Drawing>, Exports),
    ) -> Result<Results, String> {
        let options = &command.options;
        match command.formats.printed {
            Some(format) => Results::in_format(format, out, drawing, exports, options),
            None => Ok(Results::new(options.oformat, out, drawing, exports)),
        }
    }

    /// What writes the captures.
    pub(crate) fn recorder(&mut self) -> Option<&mut Capturing> {
        match &mut self.printed {
            Printed::Captured(recorder) => Some(recorder),
            _ => None,
        }
    }

    /// The last moments that were captured, if only those are.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        match &self.printed {
            Printed::Captured(recorder) => recorder.snapshot(),
            _ => None,
        }
    }

    /// Firings that were captured.
    pub(crate) fn firings(&self) -> Option<u64> {
        match &self.printed {
            Printed::Captured(recorder) => Some(recorder.written()),
            _ => None,
        }
    }

    /// What is shown in the terminal.
    pub(crate) fn live_mut(&mut self) -> Option<&mut LiveResults> {
        match &mut self.printed {
            Printed::Live(live) => Some(live),
            _ => None,
        }
    }

    /// Prints in a format that is a stream. An error is a message.
    pub(crate) fn in_format(
        format: &Format,
        out: Output,
        drawing: Option<Drawing>,
        exports: Exports,
        options: &Options,
    ) -> Result<Results, String> {
        let make = stream(format, &out)?;
        let text = Printer::Text.sink(Box::new(Unprinted(out.shown)));
        Ok(Results { printed: Printed::Other(make(Box::new(out), options), text), drawing, exports })
    }

    /// For events that were stored: nothing is performed.
    pub(crate) fn of_stored_events(format: OutputFormat, out: Output) -> Results {
        let printed = Printed::of(format, printer(format).of_stored_events(Box::new(out)));
        Results { printed, drawing: None, exports: Exports::none() }
    }

    /// For the stored events of another session, with the formats and files that a command wants of
    /// them. An error is a message.
    pub(crate) fn of_another(command: &Command, out: Output) -> Result<Results, String> {
        let options = &command.options;
        let (drawing, exports) = (Drawing::of(command)?, Exports::of(command, options)?);
        match command.formats.printed {
            Some(format) => Results::in_format(format, out, drawing, exports, options),
            None => Ok(Results { drawing, exports, ..Results::of_stored_events(options.oformat, out) }),
        }
    }

    /// Writes the files, at the end. The errors are messages.
    pub(crate) fn finish_files(&mut self) -> Result<(), Vec<String>> {
        let drawn = self.drawing.as_mut().map_or(Ok(()), Drawing::finish);
        let mut wrong = drawn.err().unwrap_or_default();
        if let Printed::Kept(spool) = &mut self.printed {
            wrong.extend(spool.finish().err());
        }
        let mut losses = self.exports.losses();
        if let Printed::Other(sink, _) = &self.printed {
            losses.extend(if self.exports.is_quiet() { Vec::new() } else { sink.losses() });
        }
        losses.iter().for_each(|lost| to_stderr(format!("dtrace: {lost}\n")));
        let finished = self.exports.finish();
        let has_failed = !wrong.is_empty() || finished.is_err();
        wrong.extend(finished.err().unwrap_or_default());
        if has_failed { Err(wrong) } else { Ok(()) }
    }
}

impl Sink for Results {
    fn set_thread_name(&mut self, ask: ThreadName) {
        self.exports.set_thread_name(ask);
        if let Printed::Other(sink, _) = &mut self.printed {
            sink.set_thread_name(ask);
        }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        for text in self.exports.event(event) {
            to_stderr(format!("dtrace: {text}\n"));
        }
        let drawn = self.drawing.as_mut().is_some_and(|drawing| drawing.event(event));
        match &mut self.printed {
            // JSON has every event, and so may other formats.
            Printed::Json(json) => json.event(event),
            Printed::Other(sink, text) => {
                let printed = match sink.event(event) {
                    Err(SinkError::Effect(e)) => {
                        // What the format does not have.
                        to_stderr(format!("dtrace: {e}\n"));
                        Ok(())
                    }
                    done => done,
                };
                let is_result =
                    matches!(event, Event::Record(_) | Event::Aggregation(_) | Event::Interval(_));
                if is_result { printed } else { text.event(event).and(printed) }
            }
            Printed::Text(_) | Printed::Live(_) if drawn => Ok(()),
            Printed::Text(text) => text.event(event),
            Printed::Live(live) => live.event(event),
            Printed::Kept(spool) => spool.event(event),
            Printed::Captured(recorder) => recorder.event(event),
        }
    }

    fn window(&mut self, from: u64, unread: u64) -> io::Result<()> {
        self.recorder().map_or(Ok(()), |recorder| recorder.window(from, unread))
    }

    fn batch_end(&mut self) -> io::Result<()> {
        let drawn = self.drawing.as_mut().map_or(Ok(()), Drawing::batch_end);
        self.exports.batch_end();
        let printed = match &mut self.printed {
            Printed::Text(text) => text.batch_end(),
            Printed::Json(json) => json.batch_end(),
            Printed::Other(sink, text) => text.batch_end().and(sink.batch_end()),
            Printed::Live(live) => live.batch_end(),
            Printed::Kept(spool) => spool.batch_end(),
            Printed::Captured(recorder) => recorder.batch_end(),
        };
        printed.and(drawn)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.exports.flush();
        match &mut self.printed {
            Printed::Text(text) => text.flush(),
            Printed::Json(json) => json.flush(),
            Printed::Other(sink, text) => text.flush().and(sink.flush()),
            Printed::Live(live) => live.flush(),
            Printed::Kept(spool) => spool.flush(),
            Printed::Captured(recorder) => recorder.flush(),
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
            Printed::Live(live) => live.aborted(),
            Printed::Kept(spool) => spool.aborted(),
            Printed::Captured(recorder) => recorder.aborted(),
        }
    }
}
