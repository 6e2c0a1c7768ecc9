//! Modules that are loaded and unloaded while a session runs (`-Z`), as a source of probes.
//!
//! The kernel sends an event when a module is ready ([`bpf_sys::ModuleEvents`]). Then the lists of
//! probes are read again.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bpf_sys::{ModuleChanges, ModuleEvents, Modules, modules};
use probes::Pattern;
use providers::{Change, ChangeSource, ProbeStore, ProbesChanged};
use types::btf::KernelBtf;

use crate::compile::Program;

/// Watches for modules that are loaded or unloaded.
pub(crate) struct ModuleWatcher {
    events: ModuleEvents,
    kernel: Arc<KernelBtf>,
    seen: Seen,
}

/// What is known of the modules.
struct Seen {
    /// The modules whose probes are known.
    known: BTreeSet<String>,
    /// Modules that were unloaded, of which that was not told yet.
    gone: BTreeSet<String>,
    /// The modules are read even without an event: one may have been loaded before the first event,
    /// or was being loaded at the last reading, or they could not be read.
    read_again: bool,
}

impl Seen {
    fn new(known: BTreeSet<String>) -> Seen {
        Seen { known, gone: BTreeSet::new(), read_again: true }
    }

    /// The modules that were unloaded and those that were loaded, after these events.
    fn changes(
        &mut self,
        events: ModuleChanges,
        read: impl FnOnce() -> Option<Modules>,
    ) -> (BTreeSet<String>, BTreeSet<String>) {
        self.gone.extend(events.gone);
        if !events.any && !self.read_again {
            return Default::default();
        }
        self.read_again = true;
        let Some(Modules { live, loading }) = read() else { return Default::default() };
        let mut unloaded: BTreeSet<String> = self.known.difference(&live).cloned().collect();
        unloaded.append(&mut self.gone);
        self.known.retain(|m| !unloaded.contains(m));
        let loaded: BTreeSet<String> = live.difference(&self.known).cloned().collect();
        // A module may need others, which are loaded first. And tracepoints do not name their
        // module. So the probes are read when no module is being loaded.
        self.read_again = loading;
        if loading || loaded.is_empty() {
            return (unloaded, BTreeSet::new());
        }
        self.known = live;
        (unloaded, loaded)
    }
}

impl ModuleWatcher {
    /// Starts to watch, if a description of the program can match probes of later modules.
    pub(crate) fn new(program: &Program) -> Result<Option<ModuleWatcher>, String> {
        let follows = |p: &Pattern| program.registry.may_match_modules(p);
        let wanted = program.later_patterns().iter().any(follows);
        let Some(known) = program.modules.as_ref().filter(|_| wanted) else {
            return Ok(None);
        };
        // This kernel has no modules.
        if modules().is_err() {
            return Ok(None);
        }
        let failed = |e| format!("probes of modules that are loaded later are not enabled: {e}");
        let events = ModuleEvents::listen().map_err(failed)?;
        let kernel = program.system.types().clone();
        Ok(Some(ModuleWatcher { events, kernel, seen: Seen::new(known.as_ref().clone()) }))
    }
}

impl ChangeSource for ModuleWatcher {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn changes(&mut self, store: &dyn ProbeStore, patterns: &[Pattern]) -> Vec<Change> {
        let mut changes = Vec::new();
        let patterns: Vec<&Pattern> = patterns.iter().collect();
        let (unloaded, loaded) = self.seen.changes(self.events.take(), || modules().ok());
        unloaded.iter().chain(&loaded).for_each(|m| self.kernel.invalidate(m));
        if !unloaded.is_empty() {
            let probes = store.modules_changed(&BTreeSet::new(), &unloaded, &patterns);
            changes.push(change(&unloaded, ["was unloaded", "were unloaded"], probes));
        }
        if !loaded.is_empty() {
            let probes = store.modules_changed(&loaded, &BTreeSet::new(), &patterns);
            changes.push(change(&loaded, ["was loaded", "were loaded"], probes));
        }
        changes
    }
}

fn change(modules: &BTreeSet<String>, [one, many]: [&'static str; 2], probes: ProbesChanged) -> Change {
    let names: Vec<&str> = modules.iter().map(String::as_str).collect();
    let (s, event) = if names.len() == 1 { ("", one) } else { ("s", many) };
    Change { subject: format!("module{s} {}", names.join(", ")), event, probes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn events_are_not_lost_when_the_modules_cannot_be_read() {
        let mut seen = Seen::new(set(&["a", "b"]));
        fn live(names: &[&str], loading: bool) -> impl FnOnce() -> Option<Modules> {
            let live = set(names);
            move || Some(Modules { live, loading })
        }
        let event = |gone: &[&str]| ModuleChanges { any: true, gone: set(gone) };
        let nothing = ModuleChanges::default;
        // One may have been loaded before the first event.
        assert_eq!(seen.changes(nothing(), live(&["a", "b"], false)), (set(&[]), set(&[])));
        assert_eq!(seen.changes(nothing(), || panic!("read without an event")), (set(&[]), set(&[])));
        // `a` was unloaded and loaded again.
        assert_eq!(seen.changes(event(&["a"]), || None), (set(&[]), set(&[])));
        assert_eq!(seen.changes(nothing(), || None), (set(&[]), set(&[])));
        assert_eq!(seen.changes(nothing(), live(&["a", "b"], false)), (set(&["a"]), set(&["a"])));
        assert_eq!(seen.changes(nothing(), || panic!("read without an event")), (set(&[]), set(&[])));
        // While one is being loaded, only those that were unloaded are told.
        assert_eq!(seen.changes(event(&[]), live(&["b", "c"], true)), (set(&["a"]), set(&[])));
        assert_eq!(seen.changes(nothing(), live(&["b", "c", "d"], false)), (set(&[]), set(&["c", "d"])));
    }
}
