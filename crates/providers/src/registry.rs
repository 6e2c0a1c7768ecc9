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

use crate::sites::Means;
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
    pub means: Option<Means>,
    /// So many functions at most are attached one by one (`-x fbtmax`).
    pub one_by_one: usize,
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
    pub gives: bool,
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

    /// The probes it always has, in id order; none where it is [`Provider::kept`].
    fn list(&self) -> Vec<ProbeDesc> {
        Vec::new()
    }

    /// Itself, where its probes are too many to be listed for each question.
    fn kept(&self) -> Option<&dyn Kept> {
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
    fn later(&self, modules: &Arrival<'_>) -> Vec<ProbeDesc> {
        let _ = modules;
        Vec::new()
    }

    /// Modules were unloaded.
    fn went(&self) {}

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
pub trait Kept {
    /// Where its ids begin: the same on every system, so that no provider has to be counted for it.
    fn first_id(&self) -> u32;

    /// Gives the probes that a pattern matches, with their places, in their order.
    fn each(&self, pattern: &Pattern, give: &mut dyn FnMut(u32, ProbeDesc));

    /// The probe of a place.
    fn at(&self, place: u32) -> Option<ProbeDesc>;
}

/// Modules that were loaded after the probes were listed.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
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
    fn may_come(&self, pattern: &Pattern) -> bool {
        self.provider.follows_modules()
            && pattern.matches_provider(&self.provider.facts().name)
            && self.provider.may_match(pattern)
    }

    fn list(&self) -> &[Arc<ProbeDesc>] {
        self.list.get_or_init(|| self.provider.list().into_iter().map(Arc::new).collect())
    }
}

/// All providers.
pub struct Registry {
    entries: Vec<Entry>,
    /// Probes made on demand, in the order they were made; their ids begin at [`MADE`].
    made: RefCell<Vec<Arc<ProbeDesc>>>,
    /// Probes of modules that came later, in the order they came; their ids begin at [`LATER`].
    later: RefCell<Vec<Later>>,
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

/// Ids from here on are those of probes made on demand: a script that asks for one need not wait until the functions of the
/// kernel are counted.
const MADE: u32 = 500_000;

/// Ids from here on are those of probes that came with modules which were loaded later.
pub const LATER: u32 = 2_000_000;

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
            Box::new(rawtp::Rawtp(tracepoints.clone())),
            Box::new(sdt::Sdt::new(tracepoints)),
        ];
        all.extend(others);
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

    /// Whether modules that are loaded later can bring probes that a pattern matches.
    pub fn may_come(&self, pattern: &Pattern) -> bool {
        self.entries.iter().any(|e| e.may_come(pattern))
    }

    /// Modules were loaded: takes in their probes, of providers that one of the patterns may mean. Their ids.
    pub fn came(&self, modules: &BTreeSet<String>, patterns: &[&Pattern]) -> Range<u32> {
        let from = self.later_end();
        let number = self.arrivals.replace(self.arrivals.get() + 1);
        for entry in self.entries.iter().filter(|e| patterns.iter().any(|p| e.may_come(p))) {
            let (first, gone) = (self.later_end(), &*self.gone.borrow());
            let found = entry.provider.later(&Arrival { modules, gone, number, first });
            let found = found.into_iter().map(|desc| Later { desc: Arc::new(desc), gone: false });
            self.later.borrow_mut().extend(found);
        }
        from..self.later_end()
    }

    /// Modules were unloaded: what they brought matches nothing any more.
    pub fn went(&self, modules: &BTreeSet<String>) {
        self.gone.borrow_mut().extend(modules.iter().cloned());
        for later in self.later.borrow_mut().iter_mut() {
            later.gone |= modules.contains(&*later.desc.module);
        }
        // Who was never asked for a list knows nothing that could be wrong.
        for entry in self.entries.iter().filter(|e| e.list.get().is_some()) {
            entry.provider.went();
        }
    }

    /// The id that the next probe of a later module gets.
    pub fn later_end(&self) -> u32 {
        LATER + self.later.borrow().len() as u32
    }

    /// Gives every probe there is, in id order; those that are made on demand are none. None is kept, so that a list takes
    /// no more memory than its longest line.
    pub fn each(&self, mut give: impl FnMut(ProbeId, &ProbeDesc)) {
        for (index, entry) in self.entries.iter().enumerate() {
            let first = self.base(index);
            for (id, desc) in (first..).zip(entry.list()) {
                give(ProbeId(id), desc);
            }
            if let Some(kept) = entry.provider.kept() {
                kept.each(&Pattern::default(), &mut |at, desc| give(ProbeId(first + at), &desc));
            }
        }
    }

    /// Id of a provider's first probe.
    fn base(&self, index: usize) -> u32 {
        if let Some(kept) = self.entries[index].provider.kept() {
            return kept.first_id();
        }
        1 + self.entries[..index].iter().map(|e| e.list().len() as u32).sum::<u32>()
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
        self.info(MADE + at as u32, &made[at])
    }
}

impl Catalog for Registry {
    fn matches(&self, pattern: &Pattern) -> Matches {
        let mut found = Vec::new();
        let mut refused = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let facts = entry.provider.facts();
            if !pattern.matches_provider(&facts.name) || !entry.provider.may_match(pattern) {
                continue;
            }
            let before = found.len();
            if let Some(kept) = entry.provider.kept() {
                let first = kept.first_id();
                kept.each(pattern, &mut |at, desc| found.push(self.info(first + at, &Arc::new(desc))));
                if found.len() == before && pattern.provider == facts.name {
                    refused = entry.provider.missing();
                }
                continue;
            }
            let mut wanted = (0..).zip(entry.list()).filter(|(_, desc)| pattern.matches(desc)).peekable();
            // Ids of earlier providers are counted only when a probe of this one is really wanted.
            if wanted.peek().is_some() {
                let base = self.base(index);
                found.extend(wanted.map(|(at, desc)| self.info(base + at, desc)));
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
        for (id, later) in (LATER..).zip(self.later.borrow().iter()) {
            if !later.gone && pattern.matches(&later.desc) {
                found.push(self.info(id, &later.desc));
            }
        }
        match refused {
            Some(e) if found.is_empty() => Err(e),
            _ => Ok(found),
        }
    }

    fn by_id(&self, id: ProbeId) -> Option<ProbeInfo> {
        if let Some(at) = id.0.checked_sub(LATER) {
            return self.later.borrow().get(at as usize).map(|later| self.info(id.0, &later.desc));
        }
        let at = id.0.checked_sub(MADE);
        if let Some(desc) = at.and_then(|at| self.made.borrow().get(at as usize).cloned()) {
            return Some(self.info(id.0, &desc));
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let base = self.base(index);
            if let Some(kept) = entry.provider.kept() {
                match id.0.checked_sub(base).and_then(|at| kept.at(at)) {
                    Some(desc) => return Some(self.info(id.0, &Arc::new(desc))),
                    None => continue,
                }
            }
            if let Some(desc) = id.0.checked_sub(base).and_then(|at| entry.list().get(at as usize)) {
                return Some(self.info(id.0, desc));
            }
        }
        None
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
        let mut all: Vec<Arc<str>> = match entry.provider.kept() {
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
    use super::*;
    use probes::FieldKind;

    fn find(r: &Registry, text: &str) -> Vec<(u32, String)> {
        let pattern = Pattern::parse(text, FieldKind::Name).unwrap();
        r.matches(&pattern).unwrap().iter().map(|p| (p.id.0, p.desc.to_string())).collect()
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
        let all = find(&r, ":::");
        assert!(all.is_sorted_by(|a, b| a.0 < b.0));
        for (at, (id, name)) in all.iter().enumerate() {
            // Functions have holes.
            assert!(*id == at as u32 + 1 || *id >= 20_000, "{id} {name}");
            assert_eq!(&r.by_id(ProbeId(*id)).unwrap().desc.to_string(), name);
        }
        let made = find(&r, "profile:::profile-123");
        assert_eq!(made[0].0, MADE);
        assert_eq!(find(&r, "profile-123hz")[0].0, MADE + 1);
        assert_eq!(find(&r, "profile:::profile-123"), made);
        assert_eq!(r.by_id(ProbeId(made[0].0)).unwrap().desc.name.as_ref(), "profile-123");
        assert_eq!(r.by_id(ProbeId(0)), None);
    }
}
