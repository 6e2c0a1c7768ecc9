//! `dtrace -A`: checks programs and stores them, or removes what is stored.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use dtrace::diagnostics::{control, raw};
use dtrace::{Source, System};

use super::boots;
use super::initramfs;
use super::place::{self, Places, REACHED, UNIT};
use super::state::State;
use super::words;
use crate::command::{Command, Named};
use crate::prepare::{compile, complain, complain_all, macros, sources};
use crate::secure;

/// The unit; `@COMMAND@` is this command.
const TEXT: &str = include_str!("dtrace-anonymous.service");

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

/// Removes a file. False: it was not there.
fn remove_file(path: &Path) -> Result<bool, String> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(format!("failed to remove {}: {}", shown(path), dtrace::diagnostics::system_text(&e))),
    }
}

/// Removes all that is stored and installed.
fn remove(places: &Places) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    let enabling = places.enabling();
    if enabling.symlink_metadata().is_ok() {
        place::check_dir(&places.stored()).map_err(|e| e.to_string())?;
    }
    if remove_file(&enabling)? {
        said.push(format!("cleaned up old anonymous enabling in {}", shown(&enabling)));
    }
    boots::forget(places);
    // What somebody else has put there stays.
    let _ = std::fs::remove_dir(places.stored());
    let [unit, link] = places.unit();
    let had_link = remove_file(&link)?;
    if remove_file(&unit)? || had_link {
        said.push(format!("cleaned up the unit {}", shown(&unit)));
    }
    let [unit, link] = places.reached();
    remove_file(&link)?;
    remove_file(&unit)?;
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
    let [unit, link] = places.unit();
    command_text()
        .and_then(|text| install_unit(&text, &unit, &link))
        .map_err(|e| format!("failed to install {UNIT}: {e}"))?;
    let [reached, link] = places.reached();
    install_unit(boots::UNIT, &reached, &link).map_err(|e| format!("failed to install {REACHED}: {e}"))?;
    said.push(format!("added the unit {}", shown(&unit)));
    let more = if in_initramfs { initramfs::install(places, state) } else { initramfs::remove(places) };
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

/// The text of the unit that executes this command.
fn command_text() -> io::Result<String> {
    let me = std::env::current_exe()?;
    let me = raw::text(std::os::unix::ffi::OsStringExt::into_vec(me.into_os_string()));
    if me.contains(['\n', '"', '\\', '%', '$']) {
        return Err(io::Error::other(format!("{}: a unit cannot name this file", control::name_text(&me))));
    }
    Ok(TEXT.replace("@COMMAND@", &format!("\"{me}\"")))
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
