//! `dtrace --anonymous`: the command that was stored.

use dtrace::diagnostics::control;
use dtrace::options::Options;

use super::place::Places;
use super::spool::{self, Spool};
use super::state::State;
use super::words;
use crate::command::{self, Command, Mode, Named, Wrong};
use crate::{memory, output};

/// Bytes of the buffers of all CPUs together, where the enabling does not say how many one has.
const BUFFERS: u64 = 32 << 20;

/// The most memory of the process that traces a boot, besides its file, its buffers and its log. If
/// that is not enough, the session ends and says so.
const MEMORY: u64 = 64 << 20;
/// Of these, for what a session needs beside its programs, and for its end.
const OF_SESSION: u64 = 24 << 20;

/// An error for programs that a boot has no memory for, when they were compiled.
pub(crate) fn check_memory() -> Result<(), String> {
    memory::written().map_or(Ok(()), fits)
}

fn fits(written: u64) -> Result<(), String> {
    let most = MEMORY - OF_SESSION;
    if written <= most {
        return Ok(());
    }
    Err(format!(
        "the programs take {} MiB of memory, and {} MiB are for them at a boot: enable fewer probes",
        written >> 20,
        most >> 20
    ))
}

/// The command that was stored. An error is a message.
pub(crate) fn stored(options: &Options) -> Result<Command, String> {
    let places = Places::of(options);
    let shown = control::name_text(&places.enabling().to_string_lossy()).into_owned();
    let state = State::read(&places)?;
    let state = state.ok_or_else(|| format!("{shown} is not there: store an enabling with dtrace -A"))?;
    let wrong = |why: String| format!("{shown}: {why}");
    let mut command = command::parse(&state.words).map_err(|e| match e {
        Wrong::Usage(why) => wrong(why.unwrap_or_else(|| "there is no program".into())),
        Wrong::Words(why) | Wrong::Value(why) => wrong(why),
    })?;
    if command.mode != Mode::Trace || command.programs.is_empty() {
        return Err(wrong("there is no program".into()));
    }
    words::check_stored(&command).map_err(wrong)?;
    let mut files = state.files.into_iter();
    for program in &mut command.programs {
        if let Named::File(name) = program {
            let text = files.next().ok_or_else(|| wrong(format!("the text of {name} is missing")))?;
            *program = Named::Stored(name.clone(), text);
        }
    }
    command.at_boot = true;
    let size = &mut command.options.bufsize;
    if *size == Options::default().bufsize {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        size.0 = size.0.min(BUFFERS / cpus);
    }
    command.options.anonroot = options.anonroot.clone();
    // Whatever is made of the events.
    command.options.processids = true;
    Ok(command)
}

/// Where the events go. The programs are compiled: from here on memory is limited.
pub(crate) fn spool(command: &Command) -> Result<Spool, String> {
    memory::limit(MEMORY);
    let made = Spool::new(&Places::of(&command.options), command.options.anonsize.0);
    made.map_err(|e| format!("failed to keep what is traced: {e}"))
}

/// Messages are kept from now on.
pub(crate) fn begin() {
    output::keep_messages();
}

/// It has ended with a status. If nothing was traced, a claim says why.
pub(crate) fn end(options: &Options, status: u8) -> u8 {
    let messages = output::kept_messages();
    if status != 0 && !spool::has_begun() {
        // There may be no place for it: the messages were printed, too.
        let _ = spool::keep_error(&Places::of(options), &messages);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_leave_a_session_too_little_memory_are_refused() {
        fits(40 << 20).unwrap();
        let why = fits((40 << 20) + 1).unwrap_err();
        assert!(why.contains("take 40 MiB") && why.contains("enable fewer probes"), "{why}");
        assert!(memory::written().is_some_and(|bytes| bytes > 1 << 20));
    }
}
