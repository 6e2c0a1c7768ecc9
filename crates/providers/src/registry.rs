//! All providers, and the catalog that the checker asks.

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

/// What of the running system a provider plans for.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Facilities of the running kernel, found by trying.
    pub features: &'a bpf::features::Features,
    /// Online CPUs.
    pub cpus: &'a [u32],
    /// Trace this CPU only (`-x cpu`).
    pub only_cpu: Option<u32>,
    /// How functions of the kernel are attached to (`-x fbtmeans`); `None`: as this kernel does it best.
    pub method: Option<AttachMethod>,
    /// So many functions at most are attached one by one (`-x fbtmax`).
    pub single_attach_limit: usize,
    /// Id of the first probe of the provider that plans ([`Registry::plan`] sets it).
    pub first: u32,
}

/// A probe that a session enables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledProbe {
    /// Its number.
    pub id: ProbeId,
    /// Its names.
    pub desc: Arc<ProbeDesc>,
    /// The `argN` that its clauses ask for, be it as `args[]`: bit N.
    pub args: u64,
    /// A clause gives the result of its function (`return()`).
    pub sets_result: bool,
}

/// A provider.
pub trait Provider {
    /// What is true of all its probes.
    fn facts(&self) -> ProviderFacts;

    /// False where the pattern's globs alone show that no probe of this provider fits, so that a script about others
    /// does not pay for its list.
    fn may_match(&self, pattern: &Pattern) -> bool {
        let _ = pattern;
        true
    }

    /// Its probes match only a description whose provider field names it ([`Pattern::names_provider`]): they fire for what
    /// another provider's probes fire for, and a description without a provider must not count that twice.
    fn only_by_name(&self) -> bool {
        false
    }

    /// How many ids are reserved for [`Provider::list`], where the list has a known limit. Its ids then do not depend on any
    /// list, and no other provider has to list it to know its own ids.
    fn reserved_ids(&self) -> Option<u32> {
        None
    }

    /// The probes it always has, in id order; none where it is [`Provider::probe_index`].
    fn list(&self) -> Vec<ProbeDesc> {
        Vec::new()
    }

    /// The length of [`Provider::list`], where that is known sooner than the list.
    fn count(&self) -> usize {
        self.list().len()
    }

    /// Itself, where its probes are too many to be listed for each question.
    fn probe_index(&self) -> Option<&dyn ProbeIndex> {
        None
    }

    /// Why it has no probes, where it has none.
    fn missing(&self) -> Option<MatchError> {
        None
    }

    /// The probe that a specific pattern names, where the provider makes probes on demand; an error says why it cannot.
    fn make(&self, pattern: &Pattern) -> Option<Result<ProbeDesc, MatchError>> {
        let _ = pattern;
        None
    }

    /// True where modules that are loaded later bring probes: [`Provider::later`] has them.
    fn follows_modules(&self) -> bool {
        false
    }

    /// The probes of these modules, which were loaded after [`Provider::list`] was asked.
    fn later(&self, modules: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        let _ = modules;
        Vec::new()
    }

    /// Modules were unloaded.
    fn modules_unloaded(&self) {}

    /// The types of a probe's `args[]`: see [`Catalog::args`].
    fn args(&self, probe: &ProbeDesc) -> Args {
        let _ = probe;
        Ok(Arc::new([]))
    }

    /// How the probes (all of this provider) are attached. An error says what is missing on this kernel.
    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String>;

    /// A unit of those of the probes before whose programs, in the same firing, a program can run that may wait for pages
    /// of the process; `None` where this kernel has none.
    fn before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Option<Unit> {
        let _ = (probes, env);
        None
    }
}

/// A provider that keeps its probes in a form of its own and says which of them a pattern matches. The place of a probe is
/// its id less that of the first; not every place has one.
pub trait ProbeIndex {
    /// All places are below this.
    fn places(&self) -> u32;

    /// Gives the probes that a pattern matches, with their places, in their order.
    fn each(&self, pattern: &Pattern, give: &mut dyn FnMut(u32, ProbeDesc));

    /// The probe of a place.
    fn at(&self, place: u32) -> Option<ProbeDesc>;
}

/// Modules that were loaded after the probes were listed.
#[derive(Clone, Copy, Debug)]
pub struct LoadedModules<'a> {
    /// Their names.
    pub modules: &'a BTreeSet<String>,
    /// Modules that were unloaded since the probes were listed: what was listed of them counts no more. Of others that are among
    /// the listed ones everything is known: they came while the list was read.
    pub gone: &'a BTreeSet<String>,
    /// How many there were before: providers that share a list read it once for each.
    pub number: u32,
    /// The id that the first probe of the provider gets; the others follow.
    pub first: u32,
}

struct Entry {
    provider: Box<dyn Provider>,
    /// The probes it always has, once they were asked for.
    list: OnceCell<Vec<Arc<ProbeDesc>>>,
}

impl Entry {
    fn may_match_later(&self, pattern: &Pattern) -> bool {
        self.provider.follows_modules()
            && self.is_meant(pattern, &self.provider.facts().name)
            && self.provider.may_match(pattern)
    }

    /// The pattern's provider field allows this provider, whose name is given.
    fn is_meant(&self, pattern: &Pattern, name: &str) -> bool {
        pattern.matches_provider(name) && (pattern.names_provider() || !self.provider.only_by_name())
    }

    /// How many ids its probes take.
    fn size(&self) -> u32 {
        match (self.provider.reserved_ids(), self.provider.probe_index(), self.list.get()) {
            (Some(reserved), ..) => reserved,
            (_, Some(kept), _) => kept.places(),
            (.., Some(list)) => list.len() as u32,
            _ => self.provider.count() as u32,
        }
    }

    fn list(&self) -> &[Arc<ProbeDesc>] {
        self.list.get_or_init(|| self.provider.list().into_iter().map(Arc::new).collect())
    }
}

/// All providers.
///
/// ```text
///  1           providers whose lists have a limit: each has as many ids reserved as its list can have
///  made        MADE ids for probes made on demand, good in their session only
///  counted     the other providers: tracepoints, then functions, each after as many ids as the one before it has
///  later       probes of modules that are loaded while a session runs, good in their session only
///  SPILL       what finds no id in its range
/// ```
///
/// So an id means the same probe in every session as long as the kernel has the same modules; ids are as small as they can be;
/// and naming a provider lists no other one: to name a function, the tracepoints are counted, to name a tracepoint, nothing is.
pub struct Registry {
    entries: Vec<Entry>,
    /// Probes made on demand, in the order they were made.
    made: RefCell<Vec<Arc<ProbeDesc>>>,
    /// Probes of modules that came later, in the order they came, and the id of the first one.
    later: RefCell<Vec<Later>>,
    later_base: OnceCell<u32>,
    arrivals: Cell<u32>,
    /// Modules that were unloaded meanwhile.
    gone: RefCell<BTreeSet<String>>,
}

/// A probe of a module that came later.
struct Later {
    desc: Arc<ProbeDesc>,
    /// The module was unloaded.
    gone: bool,
}

/// So many ids are reserved for probes made on demand: a script that asks for one need not wait until the functions of the
/// kernel are counted.
const MADE: u32 = 300;

/// Ids from here on are those of probes for which their range is too small.
const SPILL: u32 = 1 << 30;
/// The lower bits of such an id are the probe's place; the others say whose: 0 for probes made on demand, else a provider.
const SPILL_BITS: u32 = 20;

impl Registry {
    /// The providers of this system.
    pub fn new(kernel: Arc<KernelBtf>) -> Registry {
        Registry::with(kernel, Vec::new())
    }

    /// The providers of this system, and others.
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
        // They keep their probes themselves.
        all.extend(fbt::both(&kernel).map(|p| Box::new(p) as Box<dyn Provider>));
        Registry::of(all)
    }

    fn of(providers: Vec<Box<dyn Provider>>) -> Registry {
        let entries =
            providers.into_iter().map(|provider| Entry { provider, list: OnceCell::new() }).collect();
        Registry {
            entries,
            made: RefCell::default(),
            later: RefCell::default(),
            later_base: OnceCell::new(),
            arrivals: Cell::default(),
            gone: RefCell::default(),
        }
    }

    /// The provider of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Provider> {
        self.entries.iter().map(|e| e.provider.as_ref()).find(|p| p.facts().name == name)
    }

    /// How the probes of a provider are attached.
    pub fn plan(&self, provider: &str, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let at = self.entries.iter().position(|e| e.provider.facts().name == provider);
        let index = at.ok_or_else(|| format!("no provider {provider}"))?;
        let env = Env { first: self.base(index), ..*env };
        self.entries[index].provider.plan(probes, &env)
    }

    /// Which probes a pattern selects: those whose names match, except of providers that it has to name and does not.
    pub fn selects<'a>(&self, pattern: &'a Pattern) -> impl Fn(&ProbeDesc) -> bool + use<'a> {
        let excluded = self.entries.iter().filter(|e| e.provider.only_by_name() && !pattern.names_provider());
        let excluded: Vec<String> = excluded.map(|e| e.provider.facts().name).collect();
        move |desc| !excluded.iter().any(|name| **name == *desc.provider) && pattern.matches(desc)
    }

    /// Whether modules that are loaded later can bring probes that a pattern matches.
    pub fn may_match_later(&self, pattern: &Pattern) -> bool {
        self.entries.iter().any(|e| e.may_match_later(pattern))
    }

    /// Modules were loaded: takes in their probes, of providers that one of the patterns may mean. Their ids.
    pub fn modules_loaded(&self, modules: &BTreeSet<String>, patterns: &[&Pattern]) -> Range<u32> {
        // Now every provider is counted: whatever is asked for later has its ids below.
        self.later_base.get_or_init(|| self.counted(self.entries.len()));
        let from = self.later_ids().end;
        let number = self.arrivals.replace(self.arrivals.get() + 1);
        for entry in self.entries.iter().filter(|e| patterns.iter().any(|p| e.may_match_later(p))) {
            let (first, gone) = (self.later_ids().end, &*self.gone.borrow());
            let found = entry.provider.later(&LoadedModules { modules, gone, number, first });
            let found = found.into_iter().map(|desc| Later { desc: Arc::new(desc), gone: false });
            self.later.borrow_mut().extend(found);
        }
        from..self.later_ids().end
    }

    /// Modules were unloaded: what they brought matches nothing any more.
    pub fn modules_unloaded(&self, modules: &BTreeSet<String>) {
        self.gone.borrow_mut().extend(modules.iter().cloned());
        for later in self.later.borrow_mut().iter_mut() {
            later.gone |= modules.contains(&*later.desc.module);
        }
        // Who was never asked for a list knows nothing that could be wrong.
        for entry in self.entries.iter().filter(|e| e.list.get().is_some()) {
            entry.provider.modules_unloaded();
        }
    }

    /// The ids of probes of later modules.
    pub fn later_ids(&self) -> Range<u32> {
        self.later_base.get().map_or(0..0, |base| *base..*base + self.later.borrow().len() as u32)
    }

    /// Whether an id is that of a probe of a later module.
    pub fn is_later(&self, id: ProbeId) -> bool {
        self.later_base.get().is_some_and(|base| (*base..SPILL).contains(&id.0))
    }

    /// Gives every probe there is, in id order; those that are made on demand are none. None is kept, so that a list takes
    /// no more memory than its longest line.
    pub fn each(&self, mut give: impl FnMut(ProbeId, &ProbeDesc)) {
        for (index, entry) in self.entries.iter().enumerate() {
            let first = self.base(index);
            for (place, desc) in (0..).zip(entry.list()) {
                give(ProbeId(self.id(index, first, place)), desc);
            }
            if let Some(kept) = entry.provider.probe_index() {
                kept.each(&Pattern::default(), &mut |at, desc| give(ProbeId(first + at), &desc));
            }
        }
    }

    /// Id of a provider's first probe.
    fn base(&self, index: usize) -> u32 {
        match self.entries[index].provider.reserved_ids() {
            Some(_) => self.reserved(index),
            None => self.counted(index),
        }
    }

    /// The first id after those that are reserved for the providers before this one.
    fn reserved(&self, index: usize) -> u32 {
        1 + self.entries[..index].iter().filter_map(|e| e.provider.reserved_ids()).sum::<u32>()
    }

    /// The first id after all that the providers before this one can have, where none is reserved for this one.
    fn counted(&self, index: usize) -> u32 {
        let before = self.entries[..index].iter().filter(|e| e.provider.reserved_ids().is_none());
        self.made_base() + MADE + before.map(Entry::size).sum::<u32>()
    }

    /// Id of the first probe that is made on demand.
    fn made_base(&self) -> u32 {
        self.reserved(self.entries.len())
    }

    /// The id of a listed probe of a provider whose first id is given.
    fn id(&self, index: usize, first: u32, place: u32) -> u32 {
        match self.entries[index].provider.reserved_ids() {
            Some(reserved) if place >= reserved => SPILL + ((index as u32 + 1) << SPILL_BITS) + place,
            _ => first + place,
        }
    }

    fn info(&self, id: u32, desc: &Arc<ProbeDesc>) -> ProbeInfo {
        ProbeInfo { id: ProbeId(id), desc: desc.clone() }
    }

    fn made_id(&self, desc: ProbeDesc) -> ProbeInfo {
        let mut made = self.made.borrow_mut();
        let at = made.iter().position(|d| **d == desc).unwrap_or_else(|| {
            made.push(Arc::new(desc));
            made.len() - 1
        });
        let base = if at < MADE as usize { self.made_base() } else { SPILL };
        self.info(base + at as u32, &made[at])
    }
}

impl Catalog for Registry {
    fn matches(&self, pattern: &Pattern) -> Matches {
        let mut found = Vec::new();
        let mut refused = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let facts = entry.provider.facts();
            if !entry.is_meant(pattern, &facts.name) || !entry.provider.may_match(pattern) {
                continue;
            }
            let before = found.len();
            if let Some(kept) = entry.provider.probe_index() {
                let first = OnceCell::new();
                kept.each(pattern, &mut |at, desc| {
                    let first = first.get_or_init(|| self.base(index));
                    found.push(self.info(first + at, &Arc::new(desc)));
                });
                if found.len() == before && pattern.provider == facts.name {
                    refused = entry.provider.missing();
                }
                continue;
            }
            let mut wanted = (0..).zip(entry.list()).filter(|(_, desc)| pattern.matches(desc)).peekable();
            // Ids of earlier providers are counted only when a probe of this one is really wanted.
            if wanted.peek().is_some() {
                let base = self.base(index);
                found.extend(wanted.map(|(at, desc)| self.info(self.id(index, base, at), desc)));
            }
            if entry.list().is_empty() && pattern.provider == facts.name {
                refused = entry.provider.missing();
            }
            if found.len() == before && pattern.is_specific() {
                match entry.provider.make(pattern) {
                    Some(Ok(desc)) => found.push(self.made_id(desc)),
                    Some(Err(e)) => refused = Some(e),
                    None => {}
                }
            }
        }
        let selects = self.selects(pattern);
        for (id, later) in self.later_ids().zip(self.later.borrow().iter()) {
            if !later.gone && selects(&later.desc) {
                found.push(self.info(id, &later.desc));
            }
        }
        match refused {
            Some(e) if found.is_empty() => Err(e),
            _ => Ok(found),
        }
    }

    fn by_id(&self, id: ProbeId) -> Option<ProbeInfo> {
        let made = |at: u32| Some(self.info(id.0, self.made.borrow().get(at as usize)?));
        if let Some(spilt) = id.0.checked_sub(SPILL) {
            let (whose, place) = (spilt >> SPILL_BITS, spilt & ((1 << SPILL_BITS) - 1));
            return match whose.checked_sub(1) {
                None if place >= MADE => made(place),
                None => None,
                Some(index) => {
                    let entry = self.entries.get(index as usize)?;
                    let place = entry.provider.reserved_ids().filter(|r| place >= *r).map(|_| place)?;
                    Some(self.info(id.0, entry.list().get(place as usize)?))
                }
            };
        }
        let is_made = self.made_base()..self.made_base() + MADE;
        if is_made.contains(&id.0) {
            return made(id.0 - is_made.start);
        }
        if self.is_later(id) {
            let place = id.0 - self.later_ids().start;
            return Some(self.info(id.0, &self.later.borrow().get(place as usize)?.desc));
        }
        let reserved = id.0 < is_made.start;
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.provider.reserved_ids().is_some() != reserved {
                continue;
            }
            let place = id.0.checked_sub(self.base(index))?;
            if place < entry.size() {
                return match entry.provider.probe_index() {
                    Some(kept) => Some(self.info(id.0, &Arc::new(kept.at(place)?))),
                    None => Some(self.info(id.0, entry.list().get(place as usize)?)),
                };
            }
        }
        None
    }

    fn can_mean(&self, pattern: &Pattern, provider: &str) -> bool {
        let entry = self.entries.iter().find(|e| e.provider.facts().name == provider);
        entry.is_some_and(|e| e.is_meant(pattern, provider))
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
            Some(kept) => {
                let mut all = Vec::new();
                kept.each(&Pattern::default(), &mut |_, d| all.push(of(&d)));
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
        let base = r.made_base();
        let made = find(&r, "profile:::profile-123");
        assert_eq!(made[0].0, base);
        assert_eq!(find(&r, "profile-123hz")[0].0, base + 1);
        assert_eq!(find(&r, "profile:::profile-123"), made);
        assert_eq!(r.by_id(ProbeId(base)).unwrap().desc.name.as_ref(), "profile-123");
        assert_eq!(r.by_id(ProbeId(base + 2)), None);
        assert_eq!(Registry::new(KernelBtf::running()).by_id(ProbeId(base)), None);
        for n in 0..=MADE {
            let last = find(&r, &format!("tick-{}s", 2 + n))[0].clone();
            assert_eq!(r.by_id(ProbeId(last.0)).unwrap().desc.to_string(), last.1);
            assert_eq!(last.0 >= SPILL, 2 + n >= MADE, "{last:?}");
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
