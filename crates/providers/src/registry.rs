//! The registry of providers: it answers the checker's questions about probes, and hands out their ids.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use probes::{
    Args, Catalog, FieldKind, MatchError, Matches, Pattern, ProbeDesc, ProbeId, ProbeInfo, ProviderFacts,
};
use types::btf::KernelBtf;

use crate::sites::AttachMethod;
use crate::trace::Tracepoints;
use crate::unit::Unit;
use crate::{cpc, dtrace, fbt, profile, rawtp, sdt, syscall};

/// The environment that a provider plans for: the running system, and options.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Facilities of the running kernel.
    pub features: &'a bpf::features::Features,
    /// Online CPUs.
    pub cpus: &'a [u32],
    /// Trace this CPU only (`-x cpu`).
    pub only_cpu: Option<u32>,
    /// How to attach to functions of the kernel (`-x fbtmeans`). `None` chooses the best method of this kernel.
    pub method: Option<AttachMethod>,
    /// How many functions may be attached one by one at most (`-x fbtmax`).
    pub single_attach_limit: usize,
    /// The id of the provider's first probe. [`Registry::plan`] sets it.
    pub first: u32,
}

/// A probe that a session enables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledProbe {
    /// Its id.
    pub id: ProbeId,
    /// Its names.
    pub desc: Arc<ProbeDesc>,
    /// The arguments that its clauses use, as `argN` or `args[N]`: bit N.
    pub args: u64,
    /// A clause sets the result of the probed function (`return()`).
    pub sets_result: bool,
}

/// A provider.
pub trait Provider {
    /// Properties of all its probes.
    fn facts(&self) -> ProviderFacts;

    /// False if the pattern's globs alone show that it matches no probe of this provider. The provider is then not listed.
    fn may_match(&self, pattern: &Pattern) -> bool {
        let _ = pattern;
        true
    }

    /// True if its probes match only descriptions whose provider field names it ([`Pattern::names_provider`]). Its probes fire
    /// together with those of another provider, and a description without a provider must not count an event twice.
    fn only_by_name(&self) -> bool {
        false
    }

    /// How many ids are reserved for [`Provider::list`], if the length of that list has a known limit. The ids of other
    /// providers then do not depend on the list.
    fn reserved_ids(&self) -> Option<u32> {
        None
    }

    /// The probes that always exist, in the order of their ids. Empty if the provider has a [`Provider::probe_index`].
    fn list(&self) -> Vec<ProbeDesc> {
        Vec::new()
    }

    /// The length of [`Provider::list`]. Implemented where the length is cheaper than the list.
    fn count(&self) -> usize {
        self.list().len()
    }

    /// Its index of probes, if the probes are too many for a list.
    fn probe_index(&self) -> Option<&dyn ProbeIndex> {
        None
    }

    /// Why the provider has no probes on this system.
    fn missing(&self) -> Option<MatchError> {
        None
    }

    /// Why a pattern that names this provider matches none of its probes, if there is more to say.
    fn explain(&self, pattern: &Pattern) -> Option<MatchError> {
        let _ = pattern;
        None
    }

    /// Makes the probe that a pattern without globs names, if the provider makes probes on demand. An error says why it
    /// cannot.
    fn make(&self, pattern: &Pattern) -> Option<Result<ProbeDesc, MatchError>> {
        let _ = pattern;
        None
    }

    /// True if modules that are loaded later have probes of this provider: see [`Provider::probes_of`].
    fn follows_modules(&self) -> bool {
        false
    }

    /// The probes of modules that were loaded after the provider was listed.
    fn probes_of(&self, modules: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        let _ = modules;
        Vec::new()
    }

    /// Called after modules were unloaded.
    fn modules_unloaded(&self) {}

    /// The types of a probe's `args[]`: see [`Catalog::args`].
    fn args(&self, probe: &ProbeDesc) -> Args {
        let _ = probe;
        Ok(Arc::new([]))
    }

    /// Plans how to attach probes of this provider. An error says what this kernel lacks.
    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String>;

    /// Plans a program that runs before those of [`Provider::plan`] in the same firing and may sleep, to bring in pages of the
    /// process. `None` if this kernel has no such programs.
    fn before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Option<Unit> {
        let _ = (probes, env);
        None
    }
}

/// The probes of a provider that has too many of them for a list. A probe's position is its id minus the provider's first id.
/// A position may have no probe.
pub trait ProbeIndex {
    /// The number of positions.
    fn positions(&self) -> u32;

    /// Calls `give` with each probe that a pattern matches and with its position, in the order of positions.
    fn for_each(&self, pattern: &Pattern, give: &mut dyn FnMut(u32, ProbeDesc));

    /// The probe at a position.
    fn get(&self, position: u32) -> Option<ProbeDesc>;
}

/// Modules that were loaded after the providers were listed.
#[derive(Clone, Copy, Debug)]
pub struct LoadedModules<'a> {
    /// Their names.
    pub modules: &'a BTreeSet<String>,
    /// Modules that were unloaded since the providers were listed. Their listed probes no longer exist. A module that is not
    /// among them and was listed was loaded while the list was read: its probes are known.
    pub unloaded: &'a BTreeSet<String>,
    /// Counts the events of loading. Providers that share a list read it once for each event.
    pub sequence: u32,
    /// The id of the first new probe of the provider. The others follow.
    pub first_id: u32,
}

struct Entry {
    provider: Box<dyn Provider>,
    /// The probes that always exist, once they are needed.
    list: OnceCell<Vec<Arc<ProbeDesc>>>,
}

impl Entry {
    fn may_match_later(&self, pattern: &Pattern) -> bool {
        self.provider.follows_modules()
            && self.provider_matches(pattern, &self.provider.facts().name)
            && self.provider.may_match(pattern)
    }

    /// True if the pattern's provider field selects this provider, whose name is `name`.
    fn provider_matches(&self, pattern: &Pattern, name: &str) -> bool {
        pattern.matches_provider(name) && (pattern.names_provider() || !self.provider.only_by_name())
    }

    /// How many ids the provider takes.
    fn size(&self) -> u32 {
        match (self.provider.reserved_ids(), self.provider.probe_index(), self.list.get()) {
            (Some(reserved), ..) => reserved,
            (_, Some(probes), _) => probes.positions(),
            (.., Some(list)) => list.len() as u32,
            _ => self.provider.count() as u32,
        }
    }

    fn list(&self) -> &[Arc<ProbeDesc>] {
        self.list.get_or_init(|| self.provider.list().into_iter().map(Arc::new).collect())
    }
}

/// All providers. It divides the ids of probes into ranges, in this order:
///
/// ```text
///  reserved    for each provider whose list has a known limit, as many ids as that limit
///  on demand   ON_DEMAND_IDS ids for probes that are made on demand, valid in one session
///  counted     the other providers: tracepoints, then functions; each has as many ids as probes
///  modules     probes of modules that are loaded while a session runs, valid in one session
///  OVERFLOW    probes for which their range is too small
/// ```
///
/// So an id means the same probe in every session while the kernel has the same modules, ids are small, and a description that
/// names one provider lists no other: for a function the tracepoints are counted, for a tracepoint nothing is.
pub struct Registry {
    entries: Vec<Entry>,
    /// Probes that were made on demand, in the order of their ids.
    on_demand: RefCell<Vec<Arc<ProbeDesc>>>,
    /// Probes of modules that were loaded later, in the order of their ids, and the id of the first one.
    later: RefCell<Vec<ModuleProbe>>,
    later_base: OnceCell<u32>,
    load_events: Cell<u32>,
    /// Modules that were unloaded since the providers were listed.
    unloaded: RefCell<BTreeSet<String>>,
}

/// A probe of a module that was loaded later.
struct ModuleProbe {
    desc: Arc<ProbeDesc>,
    /// The module was unloaded.
    unloaded: bool,
}

/// How many ids are reserved for probes that are made on demand. Their range stands before the counted ones, so that a script
/// that names such a probe does not count the functions of the kernel.
const ON_DEMAND_IDS: u32 = 300;

/// The first id of probes for which their range is too small.
const OVERFLOW: u32 = 1 << 30;
/// The lower bits of such an id are the probe's position. The higher bits are 0 for probes made on demand, else 1 more than the
/// provider's index.
const OVERFLOW_BITS: u32 = 20;

impl Registry {
    /// The providers of this system.
    pub fn new(kernel: Arc<KernelBtf>) -> Registry {
        Registry::with(kernel, Vec::new())
    }

    /// The providers of this system, and those of a user of the library.
    pub fn with(kernel: Arc<KernelBtf>, others: Vec<Box<dyn Provider>>) -> Registry {
        let tracepoints = Rc::new(Tracepoints::new(kernel.clone()));
        let mut all: Vec<Box<dyn Provider>> = vec![
            Box::new(dtrace::Dtrace),
            Box::new(profile::Profile::new(kernel.clone())),
            Box::new(cpc::Cpc::new()),
            Box::new(syscall::Syscall::new(kernel.clone())),
        ];
        all.extend(others);
        all.push(Box::new(sdt::Sdt::new(tracepoints.clone())));
        all.push(Box::new(rawtp::Rawtp(tracepoints)));
        all.extend(fbt::both(&kernel).map(|p| Box::new(p) as Box<dyn Provider>));
        Registry::of(all)
    }

    fn of(providers: Vec<Box<dyn Provider>>) -> Registry {
        let entries =
            providers.into_iter().map(|provider| Entry { provider, list: OnceCell::new() }).collect();
        Registry {
            entries,
            on_demand: RefCell::default(),
            later: RefCell::default(),
            later_base: OnceCell::new(),
            load_events: Cell::default(),
            unloaded: RefCell::default(),
        }
    }

    /// The provider of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Provider> {
        self.entries.iter().map(|e| e.provider.as_ref()).find(|p| p.facts().name == name)
    }

    /// Plans how to attach probes of a provider.
    pub fn plan(&self, provider: &str, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let at = self.entries.iter().position(|e| e.provider.facts().name == provider);
        let index = at.ok_or_else(|| format!("no provider {provider}"))?;
        let env = Env { first: self.base(index), ..*env };
        self.entries[index].provider.plan(probes, &env)
    }

    /// A test of which probes a pattern selects: those whose names match, except of providers that it would have to name.
    pub fn selects<'a>(&self, pattern: &'a Pattern) -> impl Fn(&ProbeDesc) -> bool + use<'a> {
        let excluded = self.entries.iter().filter(|e| e.provider.only_by_name() && !pattern.names_provider());
        let excluded: Vec<String> = excluded.map(|e| e.provider.facts().name).collect();
        move |desc| !excluded.iter().any(|name| **name == *desc.provider) && pattern.matches(desc)
    }

    /// True if modules that are loaded later can have probes that a pattern matches.
    pub fn may_match_later(&self, pattern: &Pattern) -> bool {
        self.entries.iter().any(|e| e.may_match_later(pattern))
    }

    /// Adds the probes of modules that were loaded, of the providers that one of the patterns selects. Gives their ids.
    pub fn modules_loaded(&self, modules: &BTreeSet<String>, patterns: &[&Pattern]) -> Range<u32> {
        // This counts every provider: all ids of listed probes are below.
        self.later_base.get_or_init(|| self.counted(self.entries.len()));
        let from = self.later_ids().end;
        let sequence = self.load_events.replace(self.load_events.get() + 1);
        for entry in self.entries.iter().filter(|e| patterns.iter().any(|p| e.may_match_later(p))) {
            let (first_id, unloaded) = (self.later_ids().end, &*self.unloaded.borrow());
            let found = entry.provider.probes_of(&LoadedModules { modules, unloaded, sequence, first_id });
            let found = found.into_iter().map(|desc| ModuleProbe { desc: Arc::new(desc), unloaded: false });
            self.later.borrow_mut().extend(found);
        }
        from..self.later_ids().end
    }

    /// Removes the probes of modules that were unloaded: no pattern matches them any more.
    pub fn modules_unloaded(&self, modules: &BTreeSet<String>) {
        self.unloaded.borrow_mut().extend(modules.iter().cloned());
        for later in self.later.borrow_mut().iter_mut() {
            later.unloaded |= modules.contains(&*later.desc.module);
        }
        // A provider that was never listed has nothing to remove.
        for entry in self.entries.iter().filter(|e| e.list.get().is_some()) {
            entry.provider.modules_unloaded();
        }
    }

    /// The ids of probes of modules that were loaded later.
    pub fn later_ids(&self) -> Range<u32> {
        self.later_base.get().map_or(0..0, |base| *base..*base + self.later.borrow().len() as u32)
    }

    /// True if an id is that of a probe of a module that was loaded later.
    pub fn is_later(&self, id: ProbeId) -> bool {
        self.later_base.get().is_some_and(|base| (*base..OVERFLOW).contains(&id.0))
    }

    /// Calls `give` with every listed probe, in the order of ids. Probes of an index are not stored, so that `-l` needs little
    /// memory.
    pub fn each(&self, mut give: impl FnMut(ProbeId, &ProbeDesc)) {
        for (index, entry) in self.entries.iter().enumerate() {
            let first = self.base(index);
            for (place, desc) in (0..).zip(entry.list()) {
                give(ProbeId(self.id(index, first, place)), desc);
            }
            if let Some(probes) = entry.provider.probe_index() {
                probes.for_each(&Pattern::default(), &mut |at, desc| give(ProbeId(first + at), &desc));
            }
        }
    }

    /// The id of a provider's first probe.
    fn base(&self, index: usize) -> u32 {
        match self.entries[index].provider.reserved_ids() {
            Some(_) => self.reserved(index),
            None => self.counted(index),
        }
    }

    /// The first id after the reserved ids of the providers before this one.
    fn reserved(&self, index: usize) -> u32 {
        1 + self.entries[..index].iter().filter_map(|e| e.provider.reserved_ids()).sum::<u32>()
    }

    /// The first id after those of the counted providers before this one.
    fn counted(&self, index: usize) -> u32 {
        let before = self.entries[..index].iter().filter(|e| e.provider.reserved_ids().is_none());
        self.on_demand_base() + ON_DEMAND_IDS + before.map(Entry::size).sum::<u32>()
    }

    /// The id of the first probe that is made on demand.
    fn on_demand_base(&self) -> u32 {
        self.reserved(self.entries.len())
    }

    /// The id of a provider's probe at a position of its list. `first` is the provider's first id.
    fn id(&self, index: usize, first: u32, place: u32) -> u32 {
        match self.entries[index].provider.reserved_ids() {
            Some(reserved) if place >= reserved => OVERFLOW + ((index as u32 + 1) << OVERFLOW_BITS) + place,
            _ => first + place,
        }
    }

    fn info(&self, id: u32, desc: &Arc<ProbeDesc>) -> ProbeInfo {
        ProbeInfo { id: ProbeId(id), desc: desc.clone() }
    }

    fn on_demand_probe(&self, desc: ProbeDesc) -> ProbeInfo {
        let mut made = self.on_demand.borrow_mut();
        let at = made.iter().position(|d| **d == desc).unwrap_or_else(|| {
            made.push(Arc::new(desc));
            made.len() - 1
        });
        let base = if at < ON_DEMAND_IDS as usize { self.on_demand_base() } else { OVERFLOW };
        self.info(base + at as u32, &made[at])
    }
}

impl Catalog for Registry {
    fn matches(&self, pattern: &Pattern) -> Matches {
        let mut found = Vec::new();
        let mut refused = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let facts = entry.provider.facts();
            if !entry.provider_matches(pattern, &facts.name) || !entry.provider.may_match(pattern) {
                continue;
            }
            let before = found.len();
            if let Some(probes) = entry.provider.probe_index() {
                let first = OnceCell::new();
                probes.for_each(pattern, &mut |at, desc| {
                    let first = first.get_or_init(|| self.base(index));
                    found.push(self.info(first + at, &Arc::new(desc)));
                });
                if found.len() == before && pattern.provider == facts.name {
                    refused = entry.provider.missing().or_else(|| entry.provider.explain(pattern));
                }
                continue;
            }
            let mut wanted = (0..).zip(entry.list()).filter(|(_, desc)| pattern.matches(desc)).peekable();
            // The providers before this one are counted only if a probe of this one matches.
            if wanted.peek().is_some() {
                let base = self.base(index);
                found.extend(wanted.map(|(at, desc)| self.info(self.id(index, base, at), desc)));
            }
            if entry.list().is_empty() && pattern.provider == facts.name {
                refused = entry.provider.missing();
            }
            if found.len() == before && pattern.is_specific() {
                match entry.provider.make(pattern) {
                    Some(Ok(desc)) => found.push(self.on_demand_probe(desc)),
                    Some(Err(e)) => refused = Some(e),
                    None => {}
                }
            }
        }
        let selects = self.selects(pattern);
        for (id, later) in self.later_ids().zip(self.later.borrow().iter()) {
            if !later.unloaded && selects(&later.desc) {
                found.push(self.info(id, &later.desc));
            }
        }
        match refused {
            Some(e) if found.is_empty() => Err(e),
            _ => Ok(found),
        }
    }

    fn by_id(&self, id: ProbeId) -> Option<ProbeInfo> {
        let made = |at: u32| Some(self.info(id.0, self.on_demand.borrow().get(at as usize)?));
        if let Some(rest) = id.0.checked_sub(OVERFLOW) {
            let (whose, place) = (rest >> OVERFLOW_BITS, rest & ((1 << OVERFLOW_BITS) - 1));
            return match whose.checked_sub(1) {
                None if place >= ON_DEMAND_IDS => made(place),
                None => None,
                Some(index) => {
                    let entry = self.entries.get(index as usize)?;
                    let place = entry.provider.reserved_ids().filter(|r| place >= *r).map(|_| place)?;
                    Some(self.info(id.0, entry.list().get(place as usize)?))
                }
            };
        }
        let on_demand_ids = self.on_demand_base()..self.on_demand_base() + ON_DEMAND_IDS;
        if on_demand_ids.contains(&id.0) {
            return made(id.0 - on_demand_ids.start);
        }
        if self.is_later(id) {
            let place = id.0 - self.later_ids().start;
            return Some(self.info(id.0, &self.later.borrow().get(place as usize)?.desc));
        }
        let reserved = id.0 < on_demand_ids.start;
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.provider.reserved_ids().is_some() != reserved {
                continue;
            }
            let place = id.0.checked_sub(self.base(index))?;
            if place < entry.size() {
                return match entry.provider.probe_index() {
                    Some(probes) => Some(self.info(id.0, &Arc::new(probes.get(place)?))),
                    None => Some(self.info(id.0, entry.list().get(place as usize)?)),
                };
            }
        }
        None
    }

    fn can_mean(&self, pattern: &Pattern, provider: &str) -> bool {
        let entry = self.entries.iter().find(|e| e.provider.facts().name == provider);
        entry.is_some_and(|e| e.provider_matches(pattern, provider))
    }

    fn provider_names(&self) -> Vec<String> {
        self.entries.iter().map(|e| e.provider.facts().name).collect()
    }

    fn provider(&self, name: &str) -> Option<ProviderFacts> {
        self.get(name).map(|p| p.facts())
    }

    fn known(&self, provider: &str, field: FieldKind) -> Vec<String> {
        let Some(entry) = self.entries.iter().find(|e| e.provider.facts().name == provider) else {
            return Vec::new();
        };
        let of = |d: &ProbeDesc| d.field(field).clone();
        let mut all: Vec<Arc<str>> = match entry.provider.probe_index() {
            Some(probes) => {
                let mut all = Vec::new();
                probes.for_each(&Pattern::default(), &mut |_, d| all.push(of(&d)));
                all
            }
            None => entry.list().iter().map(|d| of(d)).collect(),
        };
        all.retain(|f| !f.is_empty());
        all.sort_unstable();
        all.dedup();
        all.iter().map(|f| f.to_string()).collect()
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        self.get(&probe.provider).map_or_else(|| Ok(Arc::new([]) as Arc<[_]>), |p| p.args(probe))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use probes::FieldKind;

    fn find(r: &Registry, text: &str) -> Vec<(u32, String)> {
        let pattern = Pattern::parse(text, FieldKind::Name).unwrap();
        // A kernel without functions says so.
        r.matches(&pattern).unwrap_or_default().iter().map(|p| (p.id.0, p.desc.to_string())).collect()
    }

    #[test]
    fn begin_end_and_error_are_the_first_three() {
        let r = Registry::new(KernelBtf::running());
        assert_eq!(find(&r, "BEGIN"), [(1, "dtrace:::BEGIN".into())]);
        assert_eq!(find(&r, "dtrace:::").len(), 3);
        assert_eq!(find(&r, "dtrace:::NOSUCH"), []);
    }

    #[test]
    fn ids_grow_and_are_found_again() {
        let r = Registry::new(KernelBtf::running());
        let mut all: Vec<(u32, String)> = Vec::new();
        r.each(|id, desc| all.push((id.0, desc.to_string())));
        assert!(all.is_sorted_by(|a, b| a.0 < b.0));
        for (id, name) in &all {
            assert_eq!(&r.by_id(ProbeId(*id)).unwrap().desc.to_string(), name);
        }
        assert_eq!(r.by_id(ProbeId(0)), None);
        assert_eq!(r.by_id(ProbeId(all.last().unwrap().0 + 2)), None);
    }

    #[test]
    fn an_id_does_not_depend_on_what_was_asked_before() {
        let mut listed: HashMap<String, u32> = HashMap::new();
        Registry::new(KernelBtf::running()).each(|id, desc| {
            listed.insert(desc.to_string(), id.0);
        });
        for text in ["fbt::vfs_read:", "rawfbt::vfs_read:", "rawtp:sched::", "sdt:sched::", "syscall:::"] {
            for (id, name) in find(&Registry::new(KernelBtf::running()), text) {
                assert_eq!(listed.get(&name), Some(&id), "{name}");
                let found = Registry::new(KernelBtf::running()).by_id(ProbeId(id)).unwrap();
                assert_eq!(found.desc.to_string(), name);
            }
        }
    }

    #[test]
    fn lists_keep_to_the_ids_that_are_reserved_for_them() {
        for entry in &Registry::new(KernelBtf::running()).entries {
            let facts = entry.provider.facts();
            if let Some(reserved) = entry.provider.reserved_ids() {
                assert!(entry.list().len() <= reserved as usize, "{}", facts.name);
            }
        }
    }

    #[test]
    fn probes_made_on_demand_have_ids_of_their_session() {
        let r = Registry::new(KernelBtf::running());
        let base = r.on_demand_base();
        let made = find(&r, "profile:::profile-123");
        assert_eq!(made[0].0, base);
        assert_eq!(find(&r, "profile-123hz")[0].0, base + 1);
        assert_eq!(find(&r, "profile:::profile-123"), made);
        assert_eq!(r.by_id(ProbeId(base)).unwrap().desc.name.as_ref(), "profile-123");
        assert_eq!(r.by_id(ProbeId(base + 2)), None);
        assert_eq!(Registry::new(KernelBtf::running()).by_id(ProbeId(base)), None);
        for n in 0..=ON_DEMAND_IDS {
            let last = find(&r, &format!("tick-{}s", 2 + n))[0].clone();
            assert_eq!(r.by_id(ProbeId(last.0)).unwrap().desc.to_string(), last.1);
            assert_eq!(last.0 >= OVERFLOW, 2 + n >= ON_DEMAND_IDS, "{last:?}");
        }
    }

    #[test]
    fn raw_providers_match_only_where_they_are_named() {
        let r = Registry::new(KernelBtf::running());
        let providers = |text: &str| -> BTreeSet<String> {
            find(&r, text).iter().map(|(_, name)| name.split(':').next().unwrap().to_string()).collect()
        };
        for text in [":::", "*:::", "**:::", "::vfs_read:entry", ":sched::sched_switch", "?*:sched::"] {
            assert!(!providers(text).iter().any(|p| p.starts_with("raw")), "{text}");
        }
        // Where the kernel has tracepoints and functions at all.
        for (plain, raw) in [
            ("sdt:sched::", ["raw*:sched::", "rawtp:sched::"]),
            ("fbt::vfs_read:", ["*fbt::vfs_read:", "raw*::vfs_read:"]),
        ] {
            let there = !find(&r, plain).is_empty();
            for text in raw {
                assert_eq!(providers(text).iter().any(|p| p.starts_with("raw")), there, "{text}");
            }
        }
        let everything = Pattern::default();
        let raw = ProbeDesc::new("rawfbt", "vmlinux", "vfs_read", "entry");
        assert!(!r.selects(&everything)(&raw) && r.selects(&Pattern::exact(&raw))(&raw));
        assert!(!r.can_mean(&everything, "rawfbt") && r.can_mean(&everything, "fbt"));
    }
}
