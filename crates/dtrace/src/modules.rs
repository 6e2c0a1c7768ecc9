//! Modules that are loaded while a session runs: their probes are enabled for descriptions that
//! match them (`-Z`).
//!
//! The kernel sends an event when a module is ready ([`bpf::sys::ModuleEvents`]). Then the lists of
//! probes are read again. The clauses whose descriptions match a new probe are enabled once more,
//! for the new probes only. They use the variables and aggregations of the session, as with
//! [`Session::enable`](crate::Session::enable).

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use bpf::sys::{ModuleEvents, modules};

use crate::compile::Program;

/// Watches for modules that are loaded or unloaded.
pub(crate) struct ModuleWatcher {
    events: ModuleEvents,
    /// The modules whose probes are known.
    known: BTreeSet<String>,
    /// The modules are read even without an event: one may have been loaded before the first event,
    /// or was being loaded at the last reading.
    read_again: bool,
}

/// Modules that were loaded since the last call of [`ModuleWatcher::take_new`].
pub(crate) struct NewModules {
    /// Their names.
    pub(crate) modules: BTreeSet<String>,
    /// Ids of their probes, of the providers that a description can match.
    pub(crate) probes: Range<u32>,
}

impl ModuleWatcher {
    /// Starts to watch, if a description of the program can match probes of later modules.
    pub(crate) fn new(program: &Program) -> Result<Option<ModuleWatcher>, String> {
        let Some(known) = program.modules.as_ref().filter(|_| !program.module_patterns().is_empty()) else {
            return Ok(None);
        };
        // This kernel has no modules.
        if modules().is_err() {
            return Ok(None);
        }
        let failed = |e| format!("probes of modules that are loaded later are not enabled: {e}");
        let events = ModuleEvents::listen().map_err(failed)?;
        Ok(Some(ModuleWatcher { events, known: known.as_ref().clone(), read_again: true }))
    }

    /// A descriptor that is readable when a module was loaded or unloaded.
    pub(crate) fn poll_fd(&self) -> RawFd {
        self.events.as_fd().as_raw_fd()
    }

    /// The modules that were loaded since the last call, if any.
    pub(crate) fn take_new(&mut self, program: &Program) -> Option<NewModules> {
        let events = self.events.take();
        if !events.any && !std::mem::take(&mut self.read_again) {
            return None;
        }
        let bpf::sys::Modules { live, loading } = modules().ok()?;
        let mut unloaded: BTreeSet<String> = self.known.difference(&live).cloned().collect();
        unloaded.extend(events.gone);
        if !unloaded.is_empty() {
            program.registry.modules_unloaded(&unloaded);
            self.known.retain(|m| !unloaded.contains(m));
        }
        let loaded: BTreeSet<String> = live.difference(&self.known).cloned().collect();
        unloaded.iter().chain(&loaded).for_each(|m| program.kernel.invalidate(m));
        // A module may need others, which are loaded first. And tracepoints do not name their
        // module. So the probes are read when no module is being loaded.
        self.read_again = loading;
        if loaded.is_empty() || loading {
            return None;
        }
        self.known = live;
        let patterns = program.module_patterns();
        let probes = program.registry.modules_loaded(&loaded, &patterns.iter().collect::<Vec<_>>());
        (!probes.is_empty()).then_some(NewModules { modules: loaded, probes })
    }
}

impl NewModules {
    /// The detail for `-v`: how many of the probes are enabled.
    pub(crate) fn enabled_message(&self, matched: usize) -> String {
        let names: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        let (s, was) = if names.len() == 1 { ("", "was") } else { ("s", "were") };
        let probes = if matched == 1 { "probe" } else { "probes" };
        format!("module{s} {} {was} loaded: matched {matched} {probes}", names.join(", "))
    }

    /// The message if they cannot be enabled.
    pub(crate) fn failed_message(&self, why: &str) -> String {
        let names: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        let s = if names.len() == 1 { "" } else { "s" };
        format!("probes of module{s} {} are not enabled: {why}", names.join(", "))
    }
}
