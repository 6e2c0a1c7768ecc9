//! Bare tracepoints: those without an event, which tracefs does not list.
//!
//! They are found in the types of the kernel and its modules (`btf_trace_NAME`), and each is tried:
//! what is listed can be attached to. Finding them opens the types, which takes longer than reading
//! the list of events. So it is done only for a description that can match one of them and for a
//! list of all probes.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use probes::{Pattern, is_glob};
use system::System;
use types::btf::{BtfKind, KernelBtf};

use crate::contract::source::{LoadedModules, UnloadedModules};
use crate::lock;

/// The prefix of the names of prototypes in the kernel's types.
pub(super) const PROTOTYPE: &str = "btf_trace_";

/// The module of the kernel's own tracepoints.
const KERNEL: &str = "vmlinux";

/// The tracepoint that a thread passes when it is told to give up its CPU.
const NEED_RESCHED: &str = "sched_set_need_resched_tp";

/// Why no program can be at a tracepoint, though the kernel would attach it.
///
/// Where readers of RCU can be preempted, the end of a reader may tell its own thread to give up
/// the CPU (`rcu_read_unlock_special`, kernel/rcu/tree_plugin.h). The kernel runs a program as such
/// a reader and no longer counts it as running then (`__bpf_trace_run`, kernel/trace/bpf_trace.c).
/// So the program's end passes this tracepoint again, before the thread is marked, and again, until
/// the kernel's stack is exhausted: Linux 7.2 died of it.
pub(super) fn refusal(kernel: &KernelBtf, name: &str) -> Option<&'static str> {
    let is_preempted = || {
        let btf = kernel.vmlinux().ok()?;
        let task = btf.find(&[BtfKind::Struct], "task_struct")?;
        btf.member(task, "rcu_read_unlock_special")
    };
    (name == NEED_RESCHED && is_preempted().is_some()).then_some(
        "a program there would be called by its own end until the kernel's stack is exhausted, because readers of RCU can be \
         preempted on this kernel",
    )
}

/// Module and name of a tracepoint.
pub(super) type BareTracepoint = (String, String);

/// Removes tracepoints that cannot be attached to.
type TryAll = dyn Fn(&mut Vec<BareTracepoint>) + Send + Sync;

/// The bare tracepoints.
pub(super) struct BareTracepoints {
    /// Removes those that cannot be attached to.
    try_all: Box<TryAll>,
    /// They count as being there without a trial.
    pub(super) trusted: AtomicBool,
    /// Those that existed when they were first asked for.
    list: OnceLock<Vec<BareTracepoint>>,
    /// Those of modules that were loaded later.
    later: Mutex<Vec<BareTracepoint>>,
}

impl BareTracepoints {
    /// Those of a machine.
    pub(super) fn new(system: &System) -> BareTracepoints {
        let system = system.clone();
        BareTracepoints::trying(move |all| system.keep_existing(all))
    }

    fn trying(try_all: impl Fn(&mut Vec<BareTracepoint>) + Send + Sync + 'static) -> BareTracepoints {
        let (trusted, list, later) = Default::default();
        BareTracepoints { try_all: Box::new(try_all), trusted, list, later }
    }

    /// All, listed now if they were not. `is_event` is true for names of events.
    pub(super) fn all(&self, kernel: &KernelBtf, is_event: impl Fn(&str) -> bool) -> &[BareTracepoint] {
        self.list_without(kernel, is_event, &BTreeSet::new())
    }

    fn list_without(
        &self,
        kernel: &KernelBtf,
        is_event: impl Fn(&str) -> bool,
        later: &BTreeSet<String>,
    ) -> &[BareTracepoint] {
        self.list.get_or_init(|| {
            let modules = kernel.modules().into_iter().filter(|m| !later.contains(m));
            self.find(kernel, std::iter::once(KERNEL.to_owned()).chain(modules), is_event)
        })
    }

    /// False if no bare tracepoint can have a module that the pattern names.
    pub(super) fn may_be_in(&self, kernel: &KernelBtf, pattern: &Pattern) -> bool {
        let module = &pattern.module;
        let any = module.is_empty() || is_glob(module) || module == KERNEL;
        any || self.list.get().is_some() || kernel.modules().contains(module)
    }

    /// Those of modules that were loaded.
    pub(super) fn added(
        &self,
        kernel: &KernelBtf,
        is_event: impl Fn(&str) -> bool,
        modules: &LoadedModules<'_>,
    ) -> Vec<BareTracepoint> {
        // What is listed now has no module that is reported as loaded now.
        let listed = self.list_without(kernel, &is_event, modules.modules);
        let is_new =
            |m: &&String| modules.unloaded.contains(*m) || !listed.iter().any(|(module, _)| module == *m);
        let new = modules.modules.iter().filter(is_new).cloned();
        let is_known =
            |name: &str| listed.iter().any(|(module, n)| n == name && !modules.modules.contains(module));
        let added = self.find(kernel, new, |name| is_event(name) || is_known(name));
        lock(&self.later).extend(added.iter().cloned());
        added
    }

    /// Those of modules that were unloaded.
    pub(super) fn removed(&self, modules: &UnloadedModules<'_>) -> Vec<BareTracepoint> {
        let is_of = |bare: &&BareTracepoint| modules.modules.contains(&bare.0);
        let listed = self.list.get().map(Vec::as_slice).unwrap_or_default();
        let mut removed: Vec<_> = listed.iter().filter(is_of).cloned().collect();
        let mut later = lock(&self.later);
        removed.extend(later.iter().filter(is_of).cloned());
        later.retain(|bare| !is_of(&bare));
        removed
    }

    /// The bare tracepoints of modules, in their order and then in that of the names.
    fn find(
        &self,
        kernel: &KernelBtf,
        modules: impl Iterator<Item = String>,
        is_event: impl Fn(&str) -> bool,
    ) -> Vec<BareTracepoint> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for module in modules {
            let Some(btf) = kernel.module(&module) else { continue };
            let prototypes = btf.with_prefix(BtfKind::Typedef, PROTOTYPE);
            let mut names: Vec<&str> =
                prototypes.filter_map(|(name, _)| name.strip_prefix(PROTOTYPE)).collect();
            names.sort_unstable();
            names.retain(|name| refusal(kernel, name).is_none());
            let new = names.into_iter().filter(|n| !is_event(n) && seen.insert((*n).to_owned()));
            found.extend(new.map(|name| (module.clone(), name.to_owned())));
        }
        if !self.trusted.load(Ordering::Relaxed) {
            (self.try_all)(&mut found);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use types::btf::Btf;
    use types::btf::synth::Builder;

    /// The types of a kernel or a module with these prototypes.
    fn write(dir: &Path, module: &str, prototypes: &[&str]) {
        let base = Btf::open(&dir.join(KERNEL), None).ok();
        let mut b = base.as_ref().map_or_else(Builder::default, Builder::extending);
        let void = b.proto(0, &[("__data", 0)]);
        let pointer = b.pointer(void);
        for name in prototypes {
            b.typedef(&format!("btf_trace_{name}"), pointer);
        }
        std::fs::write(dir.join(module), b.finish()).unwrap();
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    fn text(tracepoints: &[BareTracepoint]) -> Vec<String> {
        tracepoints.iter().map(|(module, name)| format!("{module}:{name}")).collect()
    }

    #[test]
    fn bare_tracepoints_are_those_of_the_types_without_events_that_can_be_opened() {
        let dir = std::env::temp_dir().join(format!("dt-bare-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write(&dir, "vmlinux", &["b_tp", "an_event", "ghost", "a_tp"]);
        write(&dir, "first", &["m_tp", "a_tp"]);
        let kernel = KernelBtf::at(&dir);
        let bare = BareTracepoints::trying(|all| all.retain(|(_, n)| n != "ghost"));
        let is_event = |name: &str| name == "an_event";
        assert_eq!(text(bare.all(&kernel, is_event)), ["vmlinux:a_tp", "vmlinux:b_tp", "first:m_tp"]);

        // A module comes, goes, and comes again.
        write(&dir, "later", &["l_tp", "an_event"]);
        let change = |names, unloaded| {
            bare.added(
                &kernel,
                is_event,
                &LoadedModules { modules: names, unloaded, sequence: 1, first_id: 1 },
            )
        };
        let (later, none) = (set(&["later", "first"]), set(&[]));
        assert_eq!(text(&change(&later, &none)), ["later:l_tp"], "those of the module `first` are listed");
        let gone = bare.removed(&UnloadedModules { modules: &later, sequence: 2 });
        assert_eq!(text(&gone), ["first:m_tp", "later:l_tp"]);
        assert_eq!(text(&change(&later, &later)), ["first:m_tp", "later:l_tp"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_tracepoint_that_the_end_of_its_program_passes_is_left_out() {
        for (member, left) in [
            ("rcu_read_unlock_special", vec!["vmlinux:a_tp"]),
            ("pid", vec!["vmlinux:a_tp", "vmlinux:sched_set_need_resched_tp"]),
        ] {
            let dir = std::env::temp_dir().join(format!("dt-bare-{member}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let mut b = Builder::default();
            let int = b.int("int", 4, 1);
            b.sou(false, "task_struct", 4, &[(member, int, 0)]);
            let void = b.proto(0, &[("__data", 0)]);
            let pointer = b.pointer(void);
            for name in [NEED_RESCHED, "a_tp"] {
                b.typedef(&format!("btf_trace_{name}"), pointer);
            }
            std::fs::write(dir.join(KERNEL), b.finish()).unwrap();
            let bare = BareTracepoints::trying(|_| ());
            assert_eq!(text(bare.all(&KernelBtf::at(&dir), |_| false)), left);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }

    #[test]
    fn modules_that_come_before_the_list_is_read_are_not_in_it() {
        let dir = std::env::temp_dir().join(format!("dt-bare-first-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write(&dir, "vmlinux", &["a_tp"]);
        write(&dir, "later", &["l_tp"]);
        let kernel = KernelBtf::at(&dir);
        let bare = BareTracepoints::trying(|_| ());
        assert_eq!(bare.removed(&UnloadedModules { modules: &set(&["later"]), sequence: 1 }), []);
        let (later, none) = (set(&["later"]), set(&[]));
        let loaded = LoadedModules { modules: &later, unloaded: &none, sequence: 2, first_id: 1 };
        assert_eq!(text(&bare.added(&kernel, |_| false, &loaded)), ["later:l_tp"]);
        assert_eq!(text(bare.all(&kernel, |_| false)), ["vmlinux:a_tp"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
