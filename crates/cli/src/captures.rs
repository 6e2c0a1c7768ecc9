//! The files of captures: what is written to one, asked of one, and said about one.

use std::fs::File;
use std::io::{self, IsTerminal, Write};

use dtrace::capture::{Head, Replay};
use dtrace::diagnostics::{control, system_text};

use crate::command::{Command, file_of};
use crate::output::new_file;

/// The word that stands for the standard input and the standard output.
const STREAM: &str = "-";

/// Creates the file of `--capture`. An error is a message.
pub(crate) fn create(path: &str) -> Result<Box<dyn Write + Send>, String> {
    if path == STREAM {
        return match io::stdout().is_terminal() {
            true => Err("--capture -: it is no text: name a file, or send it to a program".into()),
            false => Ok(Box::new(io::stdout())),
        };
    }
    let shown = control::name_text(path);
    let file =
        new_file(&file_of(path)).map_err(|e| format!("failed to create {shown}: {}", system_text(&e)))?;
    Ok(Box::new(file))
}

/// Opens the capture of `--replay` or `--capture-info`. An error is a message.
pub(crate) fn open(command: &Command) -> Result<Option<Replay>, String> {
    let Some(path) = command.replay.as_ref().or(command.capture_info.as_ref()) else { return Ok(None) };
    let shown = control::name_text(path);
    let replay = match path == STREAM {
        true => Replay::open(Box::new(io::stdin())),
        false => {
            let file = File::open(file_of(path))
                .map_err(|e| format!("failed to open {shown}: {}", system_text(&e)))?;
            Replay::open(Box::new(io::BufReader::new(file)))
        }
    };
    replay.map(Some).map_err(|e| format!("{shown}: {e}"))
}

/// What `--capture-info` prints, and messages.
pub(crate) fn info(replay: Replay) -> Result<(String, Vec<String>), String> {
    let (head, counts, messages) = replay.counts().map_err(|e| e.to_string())?;
    let total: u64 = counts.iter().sum();
    let Head { tracer, release, machine, cpus, script, .. } = &head;
    let text = format!(
        "captured by dtrace {tracer}, on Linux {release} {machine}, {cpus} CPUs\nprobes: {}\nfirings: {total}\nscript:\n{script}\n",
        head.probes.len()
    );
    // What is in a file may come from anywhere.
    Ok((control::lines(&text).into_owned(), messages.lines()))
}

/// What `-l --replay` prints: the probes and their firings; and messages.
pub(crate) fn list(replay: Replay) -> Result<(String, Vec<String>), String> {
    let (head, counts, messages) = replay.counts().map_err(|e| e.to_string())?;
    let mut text = format!("{:>6} {:>10} PROBE\n", "ID", "FIRINGS");
    for ((id, name), count) in head.probes.iter().zip(counts) {
        text.push_str(&format!("{id:>6} {count:>10} {}\n", control::name_text(name)));
    }
    Ok((text, messages.lines()))
}
