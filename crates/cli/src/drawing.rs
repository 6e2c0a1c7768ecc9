//! The files of `--flame`: flame graphs and other profiles of the stacks in aggregations.
//!
//! That they can be written is tried before tracing starts.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use dtrace::diagnostics::{control, system_text};
use dtrace::events::{Event, Occasion, Sink};
use dtrace::flame::{Baseline, Flame, Format, Loss, Profile, read_folded};

use crate::command::{Command, file_of};
use crate::replacement::{failed, replace, try_file};

/// How often files are written while `printa()` prints.
const WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// What is drawn in a session.
pub(crate) struct Drawing {
    flame: Flame,
    files: Vec<(String, Format)>,
    before: Option<String>,
    /// A `printa()` has delivered rows that are not written.
    printed: bool,
    written: Option<Instant>,
}

impl Drawing {
    /// Prepares the files of a command; `None` if it has none.
    pub(crate) fn of(command: &Command) -> Result<Option<Drawing>, String> {
        if command.formats.flames.is_empty() {
            return Ok(None);
        }
        for (file, _) in &command.formats.flames {
            try_file(&file_of(file)).map_err(|e| failed(file, &e))?;
        }
        let baseline = match &command.flame_diff {
            None => None,
            Some(name) if name.starts_with('@') => Some(Baseline::Aggregation(name.clone())),
            Some(file) => Some(Baseline::Profile(Box::new(read(file)?))),
        };
        let options = &command.options;
        let mut flame = Flame::new(dtrace::formats::unnamed(options), baseline);
        flame.set_most_frames([options.kernel_frames(), options.user_frames(), options.jstackframes]);
        let (files, before) = (command.formats.flames.clone(), command.flame_diff.clone());
        Ok(Some(Drawing { flame, files, before, printed: false, written: None }))
    }

    /// Receives an event. True if its rows are drawn and need not be printed.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> bool {
        // It fails for no event.
        let _ = self.flame.event(event);
        let Event::Aggregation(all) = event else { return false };
        let drawn = Flame::draws(event);
        self.printed |= drawn && all.occasion == Occasion::Printa;
        drawn && all.format.is_none()
    }

    /// Writes the files after a `printa()`, but not too often.
    pub(crate) fn batch_end(&mut self) -> io::Result<()> {
        if !self.printed || self.written.is_some_and(|at| at.elapsed() < WRITTEN_EVERY) {
            return Ok(());
        }
        self.printed = false;
        let written = self.write();
        // From the end of the writing, which may take longer.
        self.written = Some(Instant::now());
        written.map_err(io::Error::other)
    }

    /// Writes the files at the end. The errors are messages.
    pub(crate) fn finish(&mut self) -> Result<(), Vec<String>> {
        let mut wrong: Vec<String> = self.flame.refused().map(ToString::to_string).collect();
        let before = self.before.as_deref().map(|name| control::name_text(name).into_owned());
        if !self.flame.compare() {
            wrong.push(format!(
                "--flame-diff {}: no such aggregation with stacks",
                before.unwrap_or_default()
            ));
        }
        if self.flame.profiles().is_empty() && wrong.is_empty() {
            let file = self.files.first().map_or("", |(file, _)| file);
            wrong.push(format!(
                "--flame {}: no aggregation with a stack in its key has a value, as in @[ustack()] = count()",
                control::name_text(file)
            ));
        }
        if let Err(e) = self.write() {
            wrong.push(e);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    fn write(&mut self) -> Result<(), String> {
        self.flame.compare();
        for (file, format) in &self.files {
            replace(&file_of(file), &format.write(&self.flame)).map_err(|e| failed(file, &e))?;
        }
        Ok(())
    }
}

/// `--flame-from`: draws a file of folded stacks.
pub(crate) fn draw(command: &Command, from: &str) -> Result<(), String> {
    if command.compile_only {
        return Ok(());
    }
    let mut profile = read(from)?;
    if let Some(before) = &command.flame_diff {
        profile.compare(&read(before)?);
    }
    for (file, format) in &command.formats.flames {
        let bytes = format.write_profiles(&[&profile], &Loss::default(), "");
        replace(&file_of(file), &bytes).map_err(|e| failed(file, &e))?;
    }
    Ok(())
}

/// Reads folded stacks.
fn read(file: &str) -> Result<Profile, String> {
    let shown = control::name_text(file);
    let unread = |e: io::Error| format!("failed to read '{shown}': {}", system_text(&e));
    let mut bytes = Vec::new();
    let opened = File::open(file_of(file)).map_err(unread)?;
    opened.take(Format::LONGEST_FOLDED + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > Format::LONGEST_FOLDED {
        return Err(format!("failed to read '{shown}': longer than {} MiB", Format::LONGEST_FOLDED >> 20));
    }
    let title = Path::new(file).file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    read_folded(&bytes, &control::name_text(&title)).map_err(|e| format!("failed to read '{shown}': {e}"))
}
