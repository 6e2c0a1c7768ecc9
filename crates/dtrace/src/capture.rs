//! Captures: firings with all that a script reads of them, of which programs are asked later.
//!
//! ```text
//!  script ──compile──► program ──instrumented──► session ──records──► Recorder ──► file
//!                                                                                  │
//!  any program ──compiled for the machine of the file──► interpreted session ◄──firings
//!                                                             │
//!                                                             └──► any sink
//! ```
//!
//! The decision that shapes it: *what is captured follows from the intermediate form of a script*.
//! Its clauses run in the kernel as they are, but record what they read instead of what they print
//! ([`instrument`]). So the replay of the script reads what the script would have read, and prints
//! what it would have printed, byte for byte; and a capture is an ordinary session, to which
//! policies, limits and the accounting of drops apply. A program other than the script finds what
//! both read. What only it reads is known to be missing: it is an invalid address, or 0, and the
//! replay says at the end what and how often ([`Replay::messages`]).
//!
//! Without a script, a capture has all that its probes have: the script is made ([`wide`]).
//!
//! What a capture does not have yet is refused when it begins: calls of interpreters (`jstack()`),
//! speculations, packets, and probes in processes (the machine of the file is the kernel's). In a
//! replay a `tick-1s` that was not captured fires in captured time; a `profile-97` fires only as it
//! was captured. Destructive actions are refused in both.
//!
//! Firings of which no predicate was true are left out, unless a predicate stores to a variable:
//! they change nothing in a replay. Where several CPUs write one variable of the script, its
//! clauses in the kernel saw these writes in another order than the replay, which has that of time.

mod flight;
mod instrument;
mod names;
mod recorder;
mod replay;
mod restore;
mod wide;

use std::collections::HashSet;
use std::sync::Arc;

use dif::ir::RecordDesc;
use plane::ring::Policy;
use probes::ProbeInfo;
use providers::Role;
use system::System;

use crate::compile::{Macros, Program, Setup, Source, compile_as};
use crate::error::{CompileError, Error};
use crate::options::Options;

pub use capture::{Error as FileError, Head, Snapshot};
pub use recorder::Recorder;
pub use replay::{Messages, Replay, ReplayError};

/// A program that is ready to be captured.
pub struct Captured {
    /// It records what the script reads.
    pub program: Program,
    /// What is captured, for the file.
    pub head: Head,
    /// The machine, for the file.
    pub machine: Vec<u8>,
    /// Options with which the session begins.
    pub options: Options,
}

/// Compiles a script so that its firings are captured. The session that runs the result has a
/// [`Recorder`] as its sink.
pub fn compile(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &Options,
) -> Result<Captured, CompileError> {
    compile_from(system, sources, macros, options, Means::Script)
}

/// What the clauses of the programs of a capture are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Those of a script, which does something with what it reads.
    Script,
    /// Those that read everything. Behind them may be the user's, for what they change and call.
    Everything,
}

/// `snap()` is of a capture that keeps the last moments.
fn snaps(options: &Options) -> bool {
    options.bufpolicy == Policy::Ring
}

fn compile_from(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    given: &Options,
    means: Means,
) -> Result<Captured, CompileError> {
    let mut options = given.clone();
    let setup = Setup { snaps, ..Setup::default() };
    let program = compile_as(system, sources, macros, &mut options, setup)?;
    let machine =
        machine(&program, system, (sources, macros, given)).map_err(|why| refused(&program, &why))?;
    let head = Head { target: macros.target, script: text(sources), ..Head::default() };
    instrumented(&program, options, head, machine, means)
}

/// The same for all that the probes of programs have, whatever their clauses say: see [`wide`].
pub fn compile_wide(
    system: &System,
    sources: &[Source],
    macros: &Macros,
    options: &Options,
) -> Result<Captured, CompileError> {
    let mut options = options.clone();
    let setup = Setup { snaps, ..Setup::default() };
    let asked = compile_as(system, sources, macros, &mut options, setup)?;
    let all = wide::program(&asked, options.capture, macros.target).map_err(|why| refused(&asked, &why))?;
    // The operands, the preprocessor and the stability are those of the programs.
    (options.defaultargs, options.amin, options.cpp) = (true, None, false);
    let mut programs = vec![Source::Script(GENERATED.into(), all)];
    // The clauses that say when the last moments are written, with what they depend on.
    let calls = |record: &RecordDesc| record.snaps() || record.exits();
    let clauses = &asked.module.clauses;
    if snaps(&options) && clauses.iter().any(|clause| clause.record.as_ref().is_some_and(calls)) {
        programs.extend_from_slice(sources);
    }
    let captured = compile_from(system, &programs, macros, &options, Means::Everything)?;
    Ok(Captured { head: Head { script: text(sources), ..captured.head }, ..captured })
}

/// The name of the program that captures everything.
const GENERATED: &str = "capture";

/// The text of programs.
fn text(sources: &[Source]) -> String {
    let texts = sources.iter().map(|source| match source {
        Source::Script(_, text) | Source::Specifier(_, text) => text.as_str(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn refused(program: &Program, why: &str) -> CompileError {
    let error = Error::Setting(format!("the script cannot be captured: {why}"));
    CompileError { error, map: program.map.clone() }
}

/// The same for a program that was compiled with providers of its own, for a machine that is not
/// the running one or is not recorded: `machine` is what the file has of it.
pub fn of_program(
    program: &Program,
    options: Options,
    head: Head,
    machine: Vec<u8>,
) -> Result<Captured, CompileError> {
    instrumented(program, options, head, machine, Means::Script)
}

fn instrumented(
    program: &Program,
    mut options: Options,
    head: Head,
    machine: Vec<u8>,
    means: Means,
) -> Result<Captured, CompileError> {
    let refused = |why: &str| refused(program, why);
    if program.is_destructive() {
        return Err(refused("destructive actions cannot be captured"));
    }
    if options.zdefs {
        return Err(refused("probes that come later (-Z) cannot be captured yet"));
    }
    let mut captured = program.clone();
    let mut checked = (*program.checked).clone();
    let mut module = (*program.module).clone();
    for (checked, clause) in checked.clauses.iter_mut().zip(&mut module.clauses) {
        let instrumented = match means {
            Means::Everything if checked.program > 0 => instrument::trigger(clause),
            _ => instrument::instrument(&program.module, clause, means == Means::Script)
                .map_err(|why| refused(&why))?,
        };
        *clause = instrumented.clause;
        checked.record = clause.record.clone();
        checked.names = instrumented.names;
        // What is recorded is of the probe that fires.
        checked.derived = None;
    }
    dif::opt::optimize(&mut module);
    let verified = dif::verify::verify(&module).map_err(|e| Error::Internal(e.to_string()));
    let limited = verified.and_then(|()| bpf_runtime::limits::check(&module).map_err(Error::Codegen));
    limited.map_err(|error| CompileError { error, map: program.map.clone() })?;
    (captured.checked, captured.module) = (Arc::new(checked), Arc::new(module));
    captured.captures = true;
    // Nothing is shown. Each record is read while the session runs, or its last ones are kept.
    (options.flowindent, options.every) = (false, None);
    if options.bufpolicy == Policy::Fill {
        options.bufpolicy = Policy::Switch;
    }
    let probes = probes(program).iter().map(|probe| (probe.id.0, probe.desc.to_string())).collect();
    Ok(Captured { program: captured, head: Head { probes, ..head }, machine, options })
}

/// The probes of a program, each once.
fn probes(program: &Program) -> Vec<ProbeInfo> {
    let mut seen = HashSet::new();
    let all = program.checked.clauses.iter().flat_map(|clause| clause.probes.iter());
    all.filter(|probe| seen.insert(probe.id.0)).cloned().collect()
}

/// The record of the machine, for which the program compiles as it does here.
fn machine(
    program: &Program,
    system: &System,
    (sources, macros, options): (&[Source], &Macros, &Options),
) -> Result<Vec<u8>, String> {
    if !options.container.is_empty() {
        // It is of this machine.
        return Err("-x container cannot be captured: name the container in a predicate, as in /containerid == \"...\"/".into());
    }
    let record = system.record(&providers::hardware_counters());
    let again = System::synthetic(record.clone());
    let mut options = options.clone();
    let setup = Setup { shown_only: true, snaps, ..Setup::default() };
    let same = compile_as(&again, sources, macros, &mut options, setup).is_ok_and(|again| {
        let listed = |program: &Program| -> Vec<String> {
            probes(program).iter().map(|probe| format!("{} {}", probe.id.0, probe.desc)).collect()
        };
        listed(&again) == listed(program)
            && dif::text::print(&again.module, None) == dif::text::print(&program.module, None)
    });
    match same {
        true => Ok(record.to_bytes()),
        false => Err("its probes or the addresses that it names are not those of a record of this machine \
             (probes in processes and variables of the kernel cannot be captured yet)"
            .into()),
    }
}

/// The role of a probe that is named with colons.
fn role(program: &Program, name: &str) -> Role {
    let mut parts = name.splitn(4, ':');
    let mut next = || parts.next().unwrap_or_default();
    let desc = probes::ProbeDesc::new(next(), next(), next(), next());
    program.registry.role(&desc)
}
