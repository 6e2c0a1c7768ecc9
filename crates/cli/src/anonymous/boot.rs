//! `dtrace --anonymous`: the command that was stored.

use dtrace::diagnostics::control;
use dtrace::options::Options;

use super::place::Places;
use super::spool::{self, Spool};
use super::state::State;
use super::words;
use crate::command::{self, Command, Mode, Named, Wrong};
use crate::output;

/// Bytes of the buffers of all CPUs together, where the enabling does not say how many one has.
const BUFFERS: u64 = 32 << 20;

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

/// Where the events go.
pub(crate) fn spool(command: &Command) -> Result<Spool, String> {
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
