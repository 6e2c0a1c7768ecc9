//! `dtrace -A`: checks programs and stores them, or removes what is stored.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use dtrace::diagnostics::{control, raw};
use dtrace::{Source, System};

use super::boots;
use super::initramfs;
use super::place::{self, Places};
use super::state::State;
use super::words;
use crate::command::{Command, Named};
use crate::prepare::{compile, complain, complain_all, macros, sources};
use crate::secure;

/// The word by which a unit saves what was recorded: see [`start`](super::start::save).
pub(crate) const SAVE: &str = "--anonymous-save";

/// The units, the targets that start them, and their texts; `@COMMAND@` is this command. The first
/// traces.
const UNITS: [(&str, &str, &str); 3] = [
    ("dtrace-anonymous.service", "sysinit.target", include_str!("dtrace-anonymous.service")),
    // A boot that came up is known by it.
    ("dtrace-anonymous-reached.service", "multi-user.target", boots::UNIT),
    ("dtrace-anonymous-saved.service", "multi-user.target", include_str!("dtrace-anonymous-saved.service")),
];

/// Checks and stores the programs of a command, or removes what is stored; the exit status.
pub(crate) fn store(command: &Command, system: &System) -> u8 {
    let places = Places::of(&command.options);
    let done = match command.programs.is_empty() {
        true => remove(&places),
        false => match checked(command, system) {
            Ok(state) => install(&places, &state, command.options.initramfs),
            Err(status) => return status,
        },
    };
    match done {
        Ok(said) => {
            said.into_iter().for_each(complain);
            0
        }
        Err(why) => complain_all(vec![why]),
    }
}

/// What is to be stored. An error was said, and is the exit status.
fn checked(command: &Command, system: &System) -> Result<State, u8> {
    let sources = sources(command)?;
    let mut options = command.options.clone();
    let program = compile(command, &sources, &macros(command, 0), &mut options, (system, Vec::new()))?;
    let refused = |text: &str| Err(complain_all(vec![text.into()]));
    // The programs may have set some.
    words::check_options(&options).map_err(|why| complain_all(vec![why]))?;
    if program.is_destructive() && !options.destructive {
        return refused("could not enable tracing: Destructive actions not allowed");
    }
    if options.destructive && secure::is_secure() {
        return refused("destructive actions are for who has the privileges (-w)");
    }
    program.check_limits(&options).map_err(|e| complain_all(e.messages(&program.map, options.errtags)))?;
    super::boot::check_memory().map_err(|why| complain_all(vec![why]))?;
    for (n, title) in program.titles.iter().enumerate() {
        let count = program.matched(n);
        if !options.quiet {
            complain(format!("{title} matched {count} probe{}", if count == 1 { "" } else { "s" }));
        }
    }
    let text = |(named, source): (&Named, Source)| match (named, source) {
        (Named::File(_), Source::Script(_, text)) => Some(text),
        _ => None,
    };
    let files = command.programs.iter().zip(sources).filter_map(text).collect();
    Ok(State { words: command.stored.clone(), files })
}

fn shown(path: &Path) -> String {
    control::name_text(&path.to_string_lossy()).into_owned()
}

/// Removes all that is stored and installed.
fn remove(places: &Places) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    let enabling = places.enabling();
    if enabling.symlink_metadata().is_ok() {
        place::check_dir(&places.stored()).map_err(|e| e.to_string())?;
    }
    if place::remove(&enabling)? {
        said.push(format!("cleaned up old anonymous enabling in {}", shown(&enabling)));
    }
    boots::forget(places);
    // What somebody else has put there stays.
    let _ = std::fs::remove_dir(places.stored());
    for (n, (name, target, _)) in UNITS.iter().enumerate() {
        let [unit, link] = places.unit(name, target);
        let had_link = place::remove(&link)?;
        if (place::remove(&unit)? || had_link) && n == 0 {
            said.push(format!("cleaned up the unit {}", shown(&unit)));
        }
    }
    said.extend(initramfs::remove(places)?);
    if said.is_empty() {
        said.push(format!("no anonymous enabling in {}", shown(&enabling)));
    }
    Ok(said)
}

/// Stores an enabling and installs what traces it at the boot.
fn install(places: &Places, state: &State, in_initramfs: bool) -> Result<Vec<String>, String> {
    if in_initramfs {
        initramfs::check(places)?;
    }
    if places.is_real {
        let me = std::env::current_exe().map_err(|e| format!("this program's file: {e}"))?;
        place::check_program(&me).map_err(|e| {
            format!("root executes this program at each boot: {}", dtrace::diagnostics::system_text(&e))
        })?;
    }
    let mut said = Vec::new();
    let enabling = places.enabling();
    let is_old = enabling.symlink_metadata().is_ok();
    let failed = |e: io::Error| format!("failed to store the anonymous enabling: {e}");
    state.write(places).map_err(failed)?;
    boots::forget(places);
    if is_old {
        said.push(format!("cleaned up old anonymous enabling in {}", shown(&enabling)));
    }
    said.push(format!("saved anonymous enabling in {}", shown(&enabling)));
    for (n, (name, target, text)) in UNITS.iter().enumerate() {
        let [unit, link] = places.unit(name, target);
        command_text(text)
            .and_then(|text| install_unit(&text, &unit, &link))
            .map_err(|e| format!("failed to install {name}: {e}"))?;
        if n == 0 {
            said.push(format!("added the unit {}", shown(&unit)));
        }
    }
    let more = if in_initramfs { initramfs::install(places) } else { initramfs::remove(places) };
    match more {
        Ok(more) => said.extend(more),
        // The rest is stored, and the next boot is traced.
        Err(why) => {
            said.into_iter().for_each(complain);
            return Err(why);
        }
    }
    said.push("reboot to enable changes".into());
    Ok(said)
}

/// The text of a unit that executes this command.
fn command_text(text: &str) -> io::Result<String> {
    let me = std::env::current_exe()?;
    let me = raw::text(std::os::unix::ffi::OsStringExt::into_vec(me.into_os_string()));
    if me.contains(['\n', '"', '\\', '%', '$']) {
        return Err(io::Error::other(format!("{}: a unit cannot name this file", control::name_text(&me))));
    }
    Ok(text.replace("@COMMAND@", &format!("\"{me}\"")))
}

fn install_unit(text: &str, unit: &Path, link: &Path) -> io::Result<()> {
    for dir in [unit, link].iter().filter_map(|path| path.parent()) {
        std::fs::create_dir_all(dir)?;
    }
    place::replace(unit, 0o644, |file| file.write_all(&raw::bytes(text)))?;
    match std::fs::remove_file(link) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    std::os::unix::fs::symlink(Path::new("..").join(unit.file_name().unwrap_or_default()), link)
}
