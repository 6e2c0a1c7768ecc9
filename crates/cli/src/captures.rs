//! The files of captures: what is written to one, asked of one, and said about one.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use dtrace::capture::{Captured, Replay};
use dtrace::diagnostics::{control, system_text};
use dtrace::options::Policy;

use crate::command::{Command, file_of};
use crate::flight;
use crate::output::{Shown, new_file};
use crate::results::Results;

/// The word that stands for the standard input and the standard output.
const STREAM: &str = "-";

/// A new file that is removed again if the session does not start.
pub(crate) struct NewFile {
    path: PathBuf,
    /// Its device and inode.
    id: (u64, u64),
}

impl NewFile {
    /// The session has started.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The sink of `--capture`, which writes a new file, or to the standard output. An error is a
/// message.
pub(crate) fn sink(
    path: &str,
    captured: &Captured,
    shown: Shown,
) -> Result<(Results, Option<NewFile>), String> {
    let name = control::name_text(path);
    let failed = |e| format!("failed to write {name}: {}", system_text(&e));
    if path == STREAM && captured.options.bufpolicy == Policy::Ring {
        return Err(
            "--capture -: the last moments are written to files: name one, or leave out bufpolicy=ring"
                .into(),
        );
    }
    if path == STREAM {
        if io::stdout().is_terminal() {
            return Err("--capture -: it is no text: name a file, or send it to a program".into());
        }
        let results = Results::captured(Box::new(io::stdout()), captured, shown).map_err(failed)?;
        return Ok((results, None));
    }
    let path = file_of(path).to_path_buf();
    let file = new_file(&path).map_err(|e| format!("failed to create {name}: {}", system_text(&e)))?;
    let meta = file.metadata().map_err(failed)?;
    let new = NewFile { path, id: (meta.dev(), meta.ino()) };
    let results = Results::captured(Box::new(file), captured, shown).map_err(failed)?;
    Ok((results, Some(new)))
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

/// The most characters of a name in a file that are shown.
const NAME: usize = 300;

/// The most bytes of a script that are shown.
const SCRIPT: usize = 256 << 10;

/// A name that is in a file: what is in one may come from anywhere.
fn shown(name: &str) -> String {
    let cut = name.char_indices().nth(NAME).map(|(at, _)| at);
    let more = if cut.is_some() { "…" } else { "" };
    format!("{}{more}", control::name_text(name.get(..cut.unwrap_or(name.len())).unwrap_or_default()))
}

/// What `--capture-info` prints, and messages.
pub(crate) fn info(replay: Replay) -> Result<(String, Vec<String>), String> {
    let (head, counts, messages) = replay.counts().map_err(|e| e.to_string())?;
    let total: u64 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    let [tracer, host, release, machine] =
        [&head.tracer, &head.host, &head.release, &head.machine].map(|name| shown(name));
    let mut text = format!(
        "captured by dtrace {tracer}, on {host}, Linux {release} {machine}, {} CPUs\nprobes: {}\nfirings: {total}\ntime: {}\n",
        head.cpus,
        head.probes.len(),
        flight::seconds(messages.span())
    );
    if let Some(reason) = messages.reason() {
        text.push_str(&format!("the last moments, written for: {}\n", control::name_text(&reason)));
    }
    text.push_str("script:\n");
    // Its lines are none of ours.
    for line in head.script.lines() {
        text.push_str(&format!("    {}\n", control::lines(line)));
        if text.len() > SCRIPT {
            text.push_str("    …\n");
            break;
        }
    }
    Ok((text, messages.lines()))
}

/// What `-l --replay` prints: the probes and their firings; and messages.
pub(crate) fn list(replay: Replay) -> Result<(String, Vec<String>), String> {
    let (head, counts, messages) = replay.counts().map_err(|e| e.to_string())?;
    let mut text = format!("{:>6} {:>10} PROBE\n", "ID", "FIRINGS");
    for ((id, name), count) in head.probes.iter().zip(counts) {
        text.push_str(&format!("{id:>6} {count:>10} {}\n", shown(name)));
    }
    Ok((text, messages.lines()))
}
