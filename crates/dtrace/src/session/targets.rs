//! The targets of a session (`-c`, `-p`): when they run, and when their address maps are read.
//!
//! A program can live for less than a millisecond, and its addresses are symbolized after its end.
//! So if a session shows addresses of processes, a target stays seized while it runs, and stops at
//! its exit (`PTRACE_EVENT_EXIT`), when its mappings still exist. The session then reads the
//! target's map and resumes the target. While the target is seized, no debugger can attach to it,
//! and the tracer passes on the signals to its first thread. `-x exithold=no` avoids that: the
//! target is then known as all other processes are, by the watcher, which sees its code but
//! neither its data nor the names of its JIT code ([`super::watch`]).
//!
//! A target with probes of its functions also stops where it has executed a program, and where its
//! first thread has loaded a library ([`crate::session::linker`]); one that may describe probes,
//! where its first thread has mapped a file of them that the program has made
//! ([`crate::session::file_stops`]). It runs on when the probes of what is new are attached. What
//! other threads load, and all of it with `-x exithold=no`, is told by the watcher, a little later.
//!
//! With `-x follow=exec` and `all`, what the first threads of targets and of their children fork
//! stays traced too, and stops where it executes a program.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use events::Sink;
use providers::method::Detached;

use super::Notice;
use super::state::{ProgramKey, Running};
use crate::error::Error;
use crate::options::Options;
use crate::session::file_stops::FileStops;
use crate::session::linker::LinkerStops;

/// How long a target is held at its exit, in addition to the time limit for reading its map.
const HOLD: Duration = Duration::from_secs(5);

/// The tables of a target may take this many time limits: it has many files.
const PREPARE_TIMES: u32 = 10;

/// The CPU time for reading about one process or file.
pub(super) fn symtimeout(options: &Options) -> Duration {
    options.symtimeout.max(Duration::from_millis(1))
}

fn program_of(pid: u32) -> Option<ProgramKey> {
    let of = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((of.dev(), of.ino(), of.size(), of.ctime(), of.ctime_nsec()))
}

impl<S: Sink> Running<S> {
    /// Releases the targets. If their addresses are symbolized, each is held at its exit.
    pub(super) fn release_targets(&mut self) -> Result<(), Error> {
        let fatal = self.begin_postmortem()?;
        let names = self.consumer.names_user_addresses() && !self.options.noresolve;
        self.hold_exits = names && self.options.exithold;
        // The limit matters when the session is blocked, for example by an output that is not read.
        let limit = symbols::wait_for(symtimeout(&self.options)) + HOLD;
        if self.hold_exits {
            for target in &self.targets {
                self.consumer.note(target.pid() as u32);
            }
        }
        if let Some(watch) = &self.watch {
            watch.read(self.targets.iter().map(|target| target.pid() as u32));
        }
        self.prepare_stacks();
        let followed = self.targets_with_probes();
        if !followed.is_empty() {
            self.linker = LinkerStops::load(&self.program.system);
            let linker = self.linker.iter_mut();
            let registry = &self.program.registry;
            let loading = || followed.iter().filter(|pid| registry.follows_loading(**pid));
            linker.for_each(|linker| loading().for_each(|pid| linker.follow(*pid)));
            if registry.follows_described(&self.program.later_patterns()) {
                self.files = FileStops::attach(self.program.system.types());
            }
        }
        // A program that gives privileges gets them only where its tracer may trace all.
        let forks = self.options.follow.programs() && proc::may_trace_all();
        for target in &mut self.targets {
            let changes = followed.contains(&(target.pid() as u32));
            target.release_with(proc::Hold {
                exit: self.hold_exits,
                changes,
                forks: changes && forks,
                fatal,
                limit,
            });
        }
        Ok(())
    }

    /// Makes the tables for stacks of targets, if there are stacks.
    pub(super) fn prepare_stacks(&self) {
        for target in &self.targets {
            let limit = symtimeout(&self.options) * PREPARE_TIMES;
            self.engine.prepare_stacks(target.pid() as u32, limit, &*self.interrupted);
        }
    }

    /// The targets whose functions have probes, if targets are held.
    fn targets_with_probes(&self) -> BTreeSet<u32> {
        if self.processes.is_none() || !self.options.exithold {
            return BTreeSet::new();
        }
        let (registry, patterns) = (&self.program.registry, self.program.later_patterns());
        let (all, every) = (registry.processes(&patterns), registry.follows_all(&patterns));
        let targets = self.targets.iter().map(|target| target.pid() as u32);
        targets.filter(|pid| every || all.contains(pid)).collect()
    }

    /// Enables the probes of what targets have loaded or executed that wait for it, and resumes
    /// them.
    pub(super) fn follow_targets(&mut self) -> Result<(), Error> {
        for at in 0..self.targets.len() {
            for pid in self.targets.get(at).map(proc::Target::held_children).unwrap_or_default() {
                let done = self.enable_program_of(pid as u32);
                self.targets.get(at).into_iter().for_each(|target| target.resume_child(pid));
                done?;
            }
            let Some(target) = self.targets.get(at).filter(|target| target.has_changed()) else { continue };
            let pid = target.pid() as u32;
            let done = self.enable_changes_of(pid);
            self.linker.iter_mut().for_each(|linker| linker.follow(pid));
            self.targets.get_mut(at).into_iter().for_each(proc::Target::resume_change);
            done?;
        }
        Ok(())
    }

    /// Enables the probes of the program that a child has executed, which is held. A set has them
    /// already if another of its processes has executed it.
    fn enable_program_of(&mut self, pid: u32) -> Result<(), Error> {
        let sets = self.engine.sets_of(pid);
        let patterns = self.shapes.patterns(&self.program);
        if self.program.registry.follows_all(&patterns) {
            return self.enable_changes_of(pid);
        }
        let known = program_of(pid).map(|program| (sets, program));
        if sets == 0 || known.is_some_and(|known| self.programs.contains(&known)) {
            return Ok(());
        }
        self.enable_changes_of(pid)?;
        self.programs.extend(known);
        Ok(())
    }

    /// Enables the probes of what a process has loaded or executed that is held.
    fn enable_changes_of(&mut self, pid: u32) -> Result<(), Error> {
        let patterns = self.shapes.patterns(&self.program);
        let process = (pid, self.engine.sets_of(pid));
        let changes = self.program.registry.clone().process_changed(process, &patterns);
        // It does not run.
        for (pid, _) in self.program.registry.take_unwinding() {
            self.engine.close_links(&[Detached::Returns(pid)]);
        }
        self.apply_and_settle(changes)
    }

    /// Reads the address maps of targets that are held at their exit, and resumes them.
    pub(super) fn read_maps_at_exit(&mut self) {
        for target in self.targets.iter_mut().filter(|t| t.is_exiting()) {
            self.consumer.note(target.pid() as u32);
            target.resume_exit();
        }
    }

    /// Reports the targets that have ended. Returns true if there were targets and all have ended.
    pub(super) fn targets_ended(&mut self) -> bool {
        let mut left = 0;
        let had = !self.targets.is_empty();
        let mut ended = Vec::new();
        for (at, target) in self.targets.iter_mut().enumerate() {
            let pid = target.pid();
            match target.exit_status() {
                None => left += 1,
                Some(status) => ended.push((at, pid, status)),
            }
        }
        for (_, pid, status) in &ended {
            let text = match status {
                proc::ExitStatus::Exited(0) | proc::ExitStatus::Unknown => format!("pid {pid} has exited"),
                proc::ExitStatus::Exited(status) => format!("pid {pid} exited with status {status}"),
                proc::ExitStatus::Taken => format!("pid {pid} has exited: {}", proc::taken()),
                proc::ExitStatus::Signaled(signal) => {
                    format!("pid {pid} terminated by {}", proc::signal_name(*signal))
                }
            };
            self.report(&Notice::Target(text));
            self.linker.iter_mut().for_each(|linker| linker.forget(*pid as u32));
        }
        if left == 0 {
            self.files = None;
        }
        // A target that has ended is removed, or it would be reported again.
        if left > 0 {
            for (at, ..) in ended.iter().rev() {
                self.targets.remove(*at);
            }
        }
        had && left == 0
    }
}
