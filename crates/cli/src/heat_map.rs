//! The files of `--heat`: heat maps of the distributions in aggregations.
//!
//! They are replaced as those of `--flame`, at the end and from time to time before.

use std::io;
use std::time::{Duration, Instant};

use dtrace::diagnostics::control;
use dtrace::events::{Event, Sink};
use dtrace::flame::Unnamed;
use dtrace::heat::{Format, Heat};

use crate::command::{Command, file_of};
use crate::drawing::{failed, replace, try_file};

/// How often files are written before the end.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);
/// Writing takes this part of the time at most.
const SHARE: u32 = 50;

/// What is drawn in a session.
pub(crate) struct HeatMap {
    heat: Heat,
    files: Vec<(String, Format)>,
    /// An interval has ended that is not written.
    changed: bool,
    next: Instant,
}

impl HeatMap {
    /// Prepares the files of a command; `None` if it has none.
    pub(crate) fn of(command: &Command) -> Result<Option<HeatMap>, String> {
        if command.heats.is_empty() {
            return Ok(None);
        }
        for (file, _) in &command.heats {
            try_file(&file_of(file)).map_err(|e| failed(file, &e))?;
        }
        let named = command.options.stacksymbols && !command.options.noresolve;
        let heat = Heat::new(if named { Unnamed::Unknown } else { Unnamed::Address });
        let next = Instant::now() + WRITTEN_EVERY;
        Ok(Some(HeatMap { heat, files: command.heats.clone(), changed: false, next }))
    }

    /// Receives an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        self.changed |= matches!(event, Event::Interval(_));
        // It fails for no event.
        let _ = self.heat.event(event);
    }

    /// Writes the files, but not too often.
    pub(crate) fn batch_end(&mut self) -> io::Result<()> {
        if !self.changed || Instant::now() < self.next || self.heat.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let written = self.write();
        self.next = Instant::now() + WRITTEN_EVERY.max(begun.elapsed() * SHARE);
        written.map_err(io::Error::other)
    }

    /// Writes the files at the end. The errors are messages.
    pub(crate) fn finish(&mut self) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        if self.heat.is_empty() {
            let file = self.files.first().map_or("", |(file, _)| file);
            wrong.push(format!(
                "--heat {}: no distribution has a value, as in @ = quantize(arg0); lquantize() and llquantize() are drawn too",
                control::name_text(file)
            ));
        }
        wrong.extend(self.write().err());
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    fn write(&mut self) -> Result<(), String> {
        self.changed = false;
        for (file, format) in &self.files {
            replace(&file_of(file), &format.write(&self.heat)).map_err(|e| failed(file, &e))?;
        }
        Ok(())
    }
}
