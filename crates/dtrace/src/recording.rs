//! Records of a machine: all that compiling asks of it, or what some programs asked.
//!
//! ```text
//!  machine ──► whole record ──► a machine that is watched ──► compile, list ──► what it was asked for ──► record
//!                                                                │                                            │
//!                                                                └──────────── the same answers? ◄────────────┘
//! ```
//!
//! What is asked of types and lists is noted where it is asked. Symbols are looked up by name in
//! one text, so those are kept that are words of the programs or their libraries. Whether that was
//! all is tried: if the smaller record says something else, the whole one is taken.

use std::collections::HashSet;

use system::{Record, System};

use crate::compile::{Macros, Program, Setup, Source, compile_as};
use crate::error::CompileError;
use crate::list;
use crate::options::Options;

/// All that compiling programs asks of a machine, as the bytes that [`System::recorded`] reads; and
/// what could not be read, and why.
pub fn record_system(system: &System) -> (Vec<u8>, Vec<String>) {
    let record = system.record(&providers::hardware_counters());
    (record.to_bytes(), missing(&record))
}

/// As [`record_system`], of what compiling these programs and listing their probes asks: some ten
/// or hundred kilobytes instead of megabytes. Where they describe functions of the kernel, the
/// whole list of these is in it.
pub fn record_program(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &Options,
) -> Result<(Vec<u8>, Vec<String>), CompileError> {
    let whole = system.record(&providers::hardware_counters());
    let watched = System::watched(whole.clone());
    let (program, said) = ask(&watched, sources, macros, options)?;
    let words = words(&program);
    let record = watched.asked(|name| words.contains(name)).unwrap_or_default();
    let again = ask(&System::synthetic(record.clone()), sources, macros, options);
    let missing = missing(&whole);
    let record = if again.is_ok_and(|(_, again)| again == said) { record } else { whole };
    Ok((record.to_bytes(), missing))
}

/// What could not be read, and why.
fn missing(record: &Record) -> Vec<String> {
    let mut missing = Vec::new();
    if record.types.is_empty() {
        missing.push("types (BTF)".to_owned());
    }
    let parts = [
        ("symbols", record.symbols.as_ref().err()),
        ("functions", record.functions.as_ref().err()),
        ("events", record.events.as_ref().err()),
    ];
    missing.extend(parts.into_iter().filter_map(|(part, why)| Some(format!("{part}: {}", why?))));
    missing
}

/// Asks a machine all that `-e` and `-l` with `-v` ask for programs, and returns what these say.
fn ask(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &Options,
) -> Result<(Program, Vec<u8>), CompileError> {
    let setup = Setup { shown_only: true, ..Setup::default() };
    let program = compile_as(system, sources, macros, &mut options.clone(), setup)?;
    let mut said = Vec::new();
    for n in 0..sources.len() {
        said.extend(program.stability(n).into_bytes());
        said.extend(program.descriptions(n).into_bytes());
    }
    // Nothing is written outside of memory.
    let _ = list::described(&mut said, &program, true);
    said.extend(program.unmatched().join("\n").into_bytes());
    said.extend(dif::text::print(&program.module, None).into_bytes());
    Ok((program, said))
}

/// The words of the programs and of what they use of the libraries.
fn words(program: &Program) -> HashSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let texts = program.map.texts();
    texts
        .flat_map(|text| text.split(|c| !is_part(c)))
        .filter(|word| !word.is_empty())
        .map(String::from)
        .collect()
}
