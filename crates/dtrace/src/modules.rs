//! Modules that are loaded while a session runs: their probes, for descriptions that wait (`-Z`).
//!
//! The kernel tells when a module is ready ([`bpf::sys::ModuleEvents`]); nothing is looked at before. Then the lists of probes are
//! read again, and the clauses whose descriptions match a new one are enabled once more, for the new ones alone: with the
//! variables and aggregations of the session, as [`Session::enable`](crate::Session::enable) does it for a text.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use bpf::sys::{ModuleEvents, modules};

use crate::compile::Program;

/// Looks out for modules.
pub(crate) struct Modules {
    events: ModuleEvents,
    /// Those whose probes are known.
    known: BTreeSet<String>,
    /// Look even without an event: a module may have been loaded while the session was made, or one was being loaded
    /// when last looked.
    again: bool,
}

/// Modules that were loaded since the last look.
pub(crate) struct NewModules {
    /// Modules.
    pub(crate) modules: BTreeSet<String>,
    /// Ids of their probes, of providers that a description may mean.
    pub(crate) probes: Range<u32>,
}

impl Modules {
    /// Begins to look out where a description of the program waits; an error says why that cannot be.
    pub(crate) fn of(program: &Program) -> Result<Option<Modules>, String> {
        let Some(known) = program.modules.as_ref().filter(|_| !program.waiting().is_empty()) else {
            return Ok(None);
        };
        // A kernel without modules gets none.
        if modules().is_err() {
            return Ok(None);
        }
        let missing = |e| format!("modules that are loaded later bring no probes: {e}");
        let events = ModuleEvents::listen().map_err(missing)?;
        Ok(Some(Modules { events, known: known.as_ref().clone(), again: true }))
    }

    /// Becomes readable when something happens to a module.
    pub(crate) fn poll_fd(&self) -> RawFd {
        self.events.as_fd().as_raw_fd()
    }

    /// The modules that were loaded since the last call, if any.
    pub(crate) fn look(&mut self, program: &Program) -> Option<NewModules> {
        let heard = self.events.take();
        if !heard.any && !std::mem::take(&mut self.again) {
            return None;
        }
        let bpf::sys::Modules { live, loading } = modules().ok()?;
        let mut gone: BTreeSet<String> = self.known.difference(&live).cloned().collect();
        gone.extend(heard.gone);
        if !gone.is_empty() {
            program.registry.modules_unloaded(&gone);
            self.known.retain(|m| !gone.contains(m));
        }
        let came: BTreeSet<String> = live.difference(&self.known).cloned().collect();
        gone.iter().chain(&came).for_each(|m| program.kernel.invalidate(m));
        // Modules come in rows, for one needs another. And a tracepoint does not tell its module: none may be half there.
        self.again = loading;
        if came.is_empty() || loading {
            return None;
        }
        self.known = live;
        let waiting = program.waiting();
        let probes = program.registry.modules_loaded(&came, &waiting.iter().collect::<Vec<_>>());
        (!probes.is_empty()).then_some(NewModules { modules: came, probes })
    }
}

impl NewModules {
    /// What `-v` says when so many of the probes are enabled.
    pub(crate) fn tell(&self, matched: usize) -> String {
        let names: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        let (s, probes) =
            (if names.len() == 1 { "" } else { "s" }, if matched == 1 { "probe" } else { "probes" });
        format!("module{s} {} came: matched {matched} {probes}", names.join(", "))
    }

    /// What is said when they cannot be.
    pub(crate) fn failed(&self, why: &str) -> String {
        let names: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        let s = if names.len() == 1 { "" } else { "s" };
        format!("probes of module{s} {} are not enabled: {why}", names.join(", "))
    }
}
