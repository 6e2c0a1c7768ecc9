//! What can be asked of the boot, and of a claim.

use dtrace::options::{Options, OutputFormat};

use crate::command::{Command, Mode};
use crate::exports::SERVERS;

/// An error for options that mean nothing together.
pub(crate) fn check(c: &Command) -> Result<(), String> {
    let wrong = |text: &str| Err(text.into());
    let defaults = Options::default();
    if c.at_boot {
        return Ok(());
    }
    if c.mode != Mode::Store && (c.options.initramfs || c.options.anonsize.0 != defaults.anonsize.0) {
        return wrong("the options anonsize and initramfs are of anonymous tracing: add -A");
    }
    if !c.claims && c.options.anonroot.is_some() && !matches!(c.mode, Mode::Store | Mode::Boot) {
        return wrong("the option anonroot is of anonymous tracing: add -A or -a");
    }
    match c.mode {
        Mode::Store if c.claims => {
            wrong("-A stores what the boot traces, and -a claims it: leave out one of them")
        }
        Mode::Store => check_stored(c),
        Mode::Boot if c.claims || !c.programs.is_empty() => {
            wrong("--anonymous traces what -A has stored: leave out -a and the programs")
        }
        Mode::Trace if c.claims => check_claim(c),
        _ if c.claims => {
            wrong("-a claims what was traced since the boot: leave out -l and what else does not trace")
        }
        _ => Ok(()),
    }
}

/// Whether a command has files that are no programs, or no text.
fn reads_or_writes(c: &Command) -> bool {
    let files = [&c.capture, &c.replay, &c.capture_info, &c.system, &c.record_system];
    let more = [&c.flame_from, &c.postmortem, &c.events];
    files.iter().chain(&more).any(|file| file.is_some())
}

/// An error for what a boot cannot do.
pub(crate) fn check_stored(c: &Command) -> Result<(), String> {
    let wrong = |text: &str| Err(text.into());
    if !c.targets.is_empty() {
        return wrong("-A traces from the boot on, when there is no process yet: leave out -c and -p");
    }
    if c.compile_only {
        return wrong("-A compiles before it stores: leave out -e");
    }
    if c.output.is_some() || c.writes_files() || c.has_live() || c.formats.printed.is_some() {
        return wrong(PRINTS);
    }
    if reads_or_writes(c) {
        return wrong(FILES);
    }
    check_options(&c.options)
}

const PRINTS: &str =
    "-A stores what dtrace -a prints: leave out -o, --live and formats, and give them to dtrace -a";
const FILES: &str = "-A stores programs: leave out the options that read or write a file of a session";

/// An error for an option that a boot cannot obey, wherever it was set.
pub(crate) fn check_options(options: &Options) -> Result<(), String> {
    let wrong = |text: &str| Err(text.into());
    if options.oformat != OutputFormat::Text {
        return wrong(PRINTS);
    }
    if options.postmortem.is_some() {
        return wrong(FILES);
    }
    if let Some(server) = SERVERS.iter().find(|server| (server.place)(options).is_some()) {
        return Err(format!("-x {}: there is no server at the boot: give it to dtrace -a", server.name));
    }
    if options.cpp {
        return wrong("-C: there is no preprocessor at the boot: store what it prints (cpp FILE > FILE.d)");
    }
    if !options.libdir.is_empty() {
        return wrong("-L: libraries are not stored: put what they declare before the program");
    }
    if !options.debuginfod.is_empty() {
        return wrong("-x debuginfod: there is no server at the boot");
    }
    if options.deadmaninterval.is_zero() {
        return wrong("-x deadmaninterval=0: nobody could end what takes all CPUs of a boot");
    }
    Ok(())
}

/// An error for what a claim cannot do.
fn check_claim(c: &Command) -> Result<(), String> {
    let wrong = |text: &str| Err(text.into());
    if !c.programs.is_empty() {
        return wrong("could not enable tracing: can't claim anonymous state and enable probes");
    }
    if !c.targets.is_empty() {
        return wrong("-a claims what was traced since the boot: leave out -c and -p");
    }
    if reads_or_writes(c) || c.has_live() {
        return wrong(
            "-a claims what was traced since the boot: leave out --live and the options that read or write a file of a session",
        );
    }
    Ok(())
}
