//! The kernel's tracepoints: the list that `sdt` and `rawtp` share, formats of events, and types of
//! arguments.
//!
//! A tracepoint has two interfaces. The kernel's code passes it *arguments* (`prev`, `next`).
//! tracefs shows it as an *event* with a *group* and the fields of a record that is made from the
//! arguments (`prev_comm`, `next_pid`). A program on the tracepoint itself gets the arguments: this
//! is a raw tracepoint, which is cheap and detached at once. A program on the event gets the
//! record: this is a perf event, which costs half as much again and takes the kernel 75 ms to
//! detach. Some tracepoints have no event: see [`bare`].

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod bare;
mod event;
mod format;
mod mapped;
mod raw;
mod source;

use bare::{BareTracepoints, PROTOTYPE};
pub(crate) use event::Record;
pub use format::{EventMember, event_format};
pub(crate) use format::{Field, Format, Place};
pub(crate) use mapped::Mapped;
pub(crate) use raw::{RawProbe, raw_units};
pub(crate) use source::TracepointProbes;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use probes::{ArgType, Args, Attributes, Class, Pattern, ProviderStability, Stability, is_glob};
use system::System;
use types::btf::{Btf, BtfKind, Def, KernelBtf};

use crate::contract::source::{LoadedModules, UnloadedModules};
use crate::lock;

/// The format of an event.
pub(crate) fn format(system: &System, group: &str, event: &str) -> Option<Format> {
    Format::parse(&system.event_format(group, event)?)
}

/// Names of common probes that no tracepoint has.
const NOT_TRACEPOINT_NAMES: [&str; 5] = ["BEGIN", "END", "ERROR", "entry", "return"];

/// Longest list of arguments that the kernel passes (`MAX_BPF_FUNC_ARGS`).
const ARGS_MAX: usize = 12;

/// The kernel's tracepoints. Each list is read when it is first needed.
pub(crate) struct Tracepoints {
    system: System,
    events: OnceLock<Result<Vec<(String, String)>, String>>,
    changes: Mutex<EventChanges>,
    bare: BareTracepoints,
    /// The arguments of tracepoints that were asked for.
    args: Mutex<HashMap<String, Args>>,
}

/// Changes to the events since they were listed.
#[derive(Default)]
struct EventChanges {
    /// The last change that loaded modules, and the events that it added.
    loaded: (u32, Vec<(String, String)>),
    /// The last change that unloaded modules, and the events that it removed.
    unloaded: (u32, Vec<(String, String)>),
    /// The events that existed when they were last read.
    present: Option<HashSet<(String, String)>>,
}

impl EventChanges {
    fn known(&self, tracepoints: &Tracepoints) -> HashSet<(String, String)> {
        let listed = || tracepoints.events().unwrap_or_default().iter().cloned().collect();
        self.present.clone().unwrap_or_else(listed)
    }
}

impl Tracepoints {
    /// The tracepoints of this kernel.
    pub(crate) fn new(system: &System) -> Tracepoints {
        let (changes, args) = Default::default();
        let bare = BareTracepoints::new(system);
        Tracepoints { system: system.clone(), events: OnceLock::new(), changes, bare, args }
    }

    fn kernel(&self) -> &KernelBtf {
        self.system.types()
    }

    /// The format of an event.
    pub(crate) fn format(&self, group: &str, event: &str) -> Option<Format> {
        format(&self.system, group, event)
    }

    /// Reads the events that exist now. `None` if they cannot be read.
    fn events_now(&self) -> Option<HashSet<(String, String)>> {
        Some(self.system.events().ok()?.into_iter().collect())
    }

    /// Group and name of the tracepoints that are events, in the kernel's order; or why they cannot
    /// be listed.
    pub(crate) fn events(&self) -> Result<&[(String, String)], String> {
        self.events.get_or_init(|| self.system.events()).as_deref().map_err(Clone::clone)
    }

    /// Events of modules that were loaded: all that did not exist before. (tracefs does not say
    /// which module an event is of.)
    pub(crate) fn added(&self, modules: &LoadedModules<'_>) -> Vec<(String, String)> {
        let mut changes = lock(&self.changes);
        if changes.loaded.0 != modules.sequence {
            // Arguments that were unknown may be known now.
            lock(&self.args).retain(|_, args| args.is_ok());
            let known = changes.known(self);
            let now = self.events_now().unwrap_or_else(|| known.clone());
            changes.loaded = (modules.sequence, now.difference(&known).cloned().collect());
            changes.present = Some(now);
        }
        changes.loaded.1.clone()
    }

    /// Events of modules that were unloaded: all that no longer exist.
    pub(crate) fn removed(&self, modules: &UnloadedModules<'_>) -> Vec<(String, String)> {
        // What was never read has lost nothing.
        if self.events.get().is_none() {
            return Vec::new();
        }
        let mut changes = lock(&self.changes);
        if changes.unloaded.0 != modules.sequence {
            let known = changes.known(self);
            let now = self.events_now().unwrap_or_else(|| known.clone());
            changes.unloaded = (modules.sequence, known.difference(&now).cloned().collect());
            changes.present = Some(known.intersection(&now).cloned().collect());
        }
        changes.unloaded.1.clone()
    }

    /// The arguments of a tracepoint, from its prototype in the kernel's types.
    pub(crate) fn args(&self, name: &str) -> Args {
        let mut known = lock(&self.args);
        if let Some(found) = known.get(name) {
            return found.clone();
        }
        let found = self.prototype(name);
        known.insert(name.into(), found.clone());
        found
    }

    fn prototype(&self, name: &str) -> Args {
        self.kernel().vmlinux().map_err(|e| format!("cannot read the kernel's types: {e}"))?;
        let found = self.typedef(name);
        let args = found.and_then(|(btf, id)| parameters(&btf, id));
        args.ok_or_else(|| format!("the kernel's types have no prototype of tracepoint {name}"))
    }

    fn typedef(&self, name: &str) -> Option<(Arc<Btf>, u32)> {
        self.kernel().find(&[BtfKind::Typedef], &format!("{PROTOTYPE}{name}"))
    }

    /// True if the kernel's types have a prototype of this name.
    pub(crate) fn has_prototype(&self, name: &str) -> bool {
        self.typedef(name).is_some()
    }

    /// Why a program cannot be at a tracepoint that is no event, though the kernel would attach it.
    pub(crate) fn refusal(&self, name: &str) -> Option<&'static str> {
        bare::refusal(self.kernel(), name)
    }

    fn is_event(&self) -> impl Fn(&str) -> bool {
        let names: HashSet<&str> = self.events().unwrap_or_default().iter().map(|(_, n)| &**n).collect();
        move |name| names.contains(name)
    }

    /// Module and name of the tracepoints that are no events. Without tracefs, these are all.
    pub(crate) fn bare(&self) -> &[(String, String)] {
        self.bare.all(self.kernel(), self.is_event())
    }

    /// Bare tracepoints are not tried.
    pub(crate) fn at_prompt(&self) {
        self.bare.trusted.store(true, Ordering::Relaxed);
    }

    /// False if no bare tracepoint matches a pattern. Reads no types.
    pub(crate) fn may_be_bare(&self, pattern: &Pattern) -> bool {
        let is_event = |n: &str| self.events().unwrap_or_default().iter().any(|(_, name)| name == n);
        let name = &pattern.name;
        let is_only_event = !name.is_empty() && !is_glob(name) && is_event(name);
        !is_only_event && self.bare.may_be_in(self.kernel(), pattern)
    }

    /// Bare tracepoints of modules that were loaded.
    pub(crate) fn added_bare(&self, modules: &LoadedModules<'_>) -> Vec<(String, String)> {
        let events = self.events_now().unwrap_or_default();
        let names: HashSet<&str> = events.iter().map(|(_, name)| &**name).collect();
        self.bare.added(self.kernel(), |name| names.contains(name), modules)
    }

    /// Bare tracepoints of modules that were unloaded.
    pub(crate) fn removed_bare(&self, modules: &UnloadedModules<'_>) -> Vec<(String, String)> {
        self.bare.removed(modules)
    }
}

/// The arguments of `typedef void (*btf_trace_NAME)(void *, ...)`, whose first is not the
/// tracepoint's.
fn parameters(btf: &Arc<Btf>, typedef: u32) -> Option<Arc<[ArgType]>> {
    let Some(Def::Pointer(proto)) = btf.def(btf.resolve(typedef)) else { return None };
    let Some(Def::FuncProto { params, .. }) = btf.def(proto) else { return None };
    let arg = |(n, ty): (u8, u32)| match btf.def(btf.resolve(ty)) {
        // Passed by value: the content of the register.
        Some(Def::Sou { .. } | Def::Array { .. }) => ArgType::text(n, "uint64_t"),
        _ => ArgType::btf(n, btf, ty),
    };
    Some((0..).zip(params.skip(1).map(|p| p.ty)).take(ARGS_MAX).map(arg).collect())
}

/// False if a pattern matches no tracepoint of any kernel.
pub(crate) fn may_match(pattern: &Pattern) -> bool {
    let name = &*pattern.name;
    let word = is_glob(name) || !NOT_TRACEPOINT_NAMES.contains(&name) && !name.contains('-');
    (pattern.function.is_empty() || is_glob(&pattern.function)) && word
}

/// The stability of tracepoints: that they exist is evolving, their arguments are private.
pub(crate) fn stability() -> ProviderStability {
    let evolving = Attributes::new(Stability::Evolving, Stability::Evolving, Class::ISA);
    let unknown = Attributes::new(Stability::Private, Stability::Private, Class::Unknown);
    ProviderStability {
        provider: evolving,
        module: unknown,
        function: unknown,
        name: evolving,
        args: Attributes::new(Stability::Private, Stability::Private, Class::ISA),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probes::FieldKind;

    #[test]
    fn common_descriptions_do_not_list_tracepoints() {
        let may = |text: &str| may_match(&Pattern::parse(text, FieldKind::Name).unwrap());
        for text in ["BEGIN", "tick-1s", "read:entry", "syscall:::entry", "profile-97"] {
            assert!(!may(text), "{text}");
        }
        for text in ["sched_switch", "sched::sched_*", "rawtp:::", ":::"] {
            assert!(may(text), "{text}");
        }
    }
}
