//! What a command does before it traces or stores: it reads its programs, compiles them, prepares
//! the targets and opens the output.

use dtrace::diagnostics::{control, raw, system_text};
use dtrace::options::{Options, OutputFormat};
use dtrace::{Field, Macros, Program, Provider, Setup, Source, System, TargetOutput, Targets};

use crate::command::{Command, Mode, Wanted};
use crate::output::{Output, to_stderr};
use crate::results;
use crate::secure;

pub(crate) fn complain(text: impl std::fmt::Display) {
    to_stderr(format!("dtrace: {text}\n"));
}

pub(crate) fn complain_all(messages: Vec<String>) -> u8 {
    messages.into_iter().for_each(complain);
    1
}

/// Reads all programs.
pub(crate) fn sources(command: &Command) -> Result<Vec<Source>, u8> {
    command.programs.iter().map(|p| p.read()).collect::<Result<_, _>>().map_err(|e| {
        complain(e);
        1
    })
}

/// The macro variables; `target` is the process of `$target`.
pub(crate) fn macros(command: &Command, target: u64) -> Macros {
    Macros { name: "dtrace".into(), args: command.operands.clone(), target }
}

/// Compiles programs. An error was said, and is the exit status.
pub(crate) fn compile(
    command: &Command,
    sources: &[Source],
    macros: &Macros,
    options: &mut Options,
    (system, providers): (&System, Vec<Box<dyn Provider>>),
) -> Result<Program, u8> {
    let traces = matches!(command.mode, Mode::Trace | Mode::Store);
    let shown_only = !traces || command.compile_only || command.replay.is_some();
    // A replay performs no snap().
    let snaps: fn(&Options) -> bool = if command.replay.is_some() { |_| true } else { |_| false };
    let setup = Setup { providers, needs: results::needs, shown_only, snaps, ..Setup::default() };
    let program = dtrace::compile_as(system, sources, macros, options, setup);
    program.map_err(|error| complain_all(error.messages(options.errtags)))
}

/// Creates and stops the processes of -c and -p. With -e, only where probes of the first one are
/// described. A list may have their probes without naming them (`web*:::`).
pub(crate) fn targets(command: &Command, sources: &[Source]) -> Result<Targets, u8> {
    let text = |source: &Source| match source {
        Source::Specifier(Field::Provider, text) => text.contains("$target"),
        Source::Script(_, text) | Source::Specifier(_, text) => text.contains("$target:"),
    };
    if command.compile_only && !sources.iter().any(text) {
        return Ok(Targets::default());
    }
    let mut options = command.options.clone();
    if command.mode != Mode::Trace || command.compile_only {
        options.postmortem = None;
    }
    let mut environment = options.environment();
    secure::restore(&mut environment);
    // What reads the format from standard output reads nothing else.
    let text = options.oformat == OutputFormat::Text && command.formats.printed.is_none();
    environment.output = match command.output {
        _ if command.is_live() => TargetOutput::Discarded,
        None if !text => TargetOutput::ToStderr,
        _ => TargetOutput::Inherited,
    };
    let wanted = command.targets.iter().map(|wanted| match wanted {
        Wanted::Run(text) => dtrace::Wanted::Command(raw::bytes(text)),
        Wanted::Pid(pid) => dtrace::Wanted::Pid(*pid),
    });
    let targets = Targets::make(wanted.collect(), &environment, &options, sources)
        .map_err(|e| complain_all(vec![e.to_string()]))?;
    for target in targets.all() {
        if let Some(note) = target.note() {
            complain(format!("pid {}: {note}", target.pid()));
        }
    }
    Ok(targets)
}

/// Opens the output. An error is a message.
pub(crate) fn output(command: &Command) -> Result<Output, String> {
    match &command.output {
        None => {
            Output::stdout().map_err(|e| format!("failed to open the standard output: {}", system_text(&e)))
        }
        Some(path) => {
            let shown = control::name_text(path);
            Output::append(path)
                .map_err(|e| format!("failed to open output file '{shown}': {}", system_text(&e)))
        }
    }
}
