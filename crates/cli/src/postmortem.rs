//! `--postmortem`: prints the last events of a session from the core file of a process that it
//! held.
//!
//! A core file is what a process and its program say: nothing of it is performed, and what is
//! printed cannot control a terminal. What was redirected is in the output, addresses have the
//! names that the session gave them.

use std::fs::File;
use std::io;

use dtrace::Sink;
use dtrace::diagnostics::control;
use dtrace::events::{Event, Reader, SinkError};
use dtrace::postmortem::{CoreError, CoreEvents, find};

use crate::command::{Command, file_of};
use crate::output::{Output, Shown};
use crate::results::Results;
use crate::to_stderr;

fn complain(text: impl std::fmt::Display) {
    to_stderr(format!("dtrace: {text}\n"));
}

/// Says why a core file could not be read, or not as a whole.
fn refuse(command: &Command, path: &str, error: &CoreError) -> u8 {
    let tag = match command.options.errtags {
        true => format!("[{}] ", error.tag()),
        false => String::new(),
    };
    complain(format!("failed to read core file '{}': {tag}{error}", control::name_text(path)));
    1
}

/// Prints the events of a core file; the exit status.
pub(crate) fn print(command: &Command, path: &str, mut out: Output) -> io::Result<u8> {
    let read = || -> Result<CoreEvents, CoreError> {
        let file = File::open(file_of(path))?;
        // A device or a pipe has no offsets, and may have no end.
        if !file.metadata()?.is_file() {
            return Err(CoreError::NotCore("it is no regular file"));
        }
        find(&file)
    };
    let found = match read() {
        Ok(found) => found,
        Err(e) => return Ok(refuse(command, path, &e)),
    };
    let quiet = command.options.quiet;
    let head = &found.head;
    if !quiet {
        let signal = dtrace::signal_name(head.signal as i32);
        let cut = match head.cut {
            0 => String::new(),
            cut => format!(", {cut} before them did not fit"),
        };
        complain(format!(
            "pid {}, thread {}, {signal}: the last {} events of the session{cut}",
            head.pid, head.tid, head.kept
        ));
    }
    out.shown = Shown { quiet, verbose: command.verbose, resize: false };
    let mut sink = Results::of_stored_events(command.options.oformat, out);
    let mut wrong = found.wrong;
    let mut reader = Reader::with_limit(&found.events[..], found.events.len());
    loop {
        let event = match reader.next_event() {
            Ok(Some(Event::Effect(_))) => continue,
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(e) => {
                // What is truncated ends within an event.
                wrong = wrong.or(Some(CoreError::Damaged));
                if command.verbose {
                    complain(e);
                }
                break;
            }
        };
        if let Err(SinkError::Output(e) | SinkError::Effect(e)) = sink.event(&event) {
            return Err(e);
        }
    }
    sink.batch_end().and_then(|()| sink.flush())?;
    Ok(wrong.map_or(0, |e| refuse(command, path, &e)))
}
