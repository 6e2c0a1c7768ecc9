//! The registry of providers: one source of probes, over those of all providers.
//!
//! ```text
//!  own                the providers of this system
//!  Catalog::matches   the probes that a description matches, and what is made for it; why there are none
//!  Catalog::by_id     the probe of an id
//!  Registry::each     all probes that exist now, in the order of ids, one at a time: see [`every`]
//!  store              the probes that come and go: what sources of changes see of the registry
//!  processes          what providers of probes in processes are told and asked
//! ```
//!
//! It stores no probe that a provider can compute: only those that were made on demand and those
//! that came later. Ids are made from positions: see [`ids`].

mod every;
mod ids;
mod manuals;
mod own;
mod processes;
mod store;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use probes::{
    Args, Calls, Catalog, Definition, Family, FieldKind, MatchError, Matches, Pattern, ProbeDesc, ProbeId,
    ProbeInfo, ProviderFacts, UserObject,
};
use symbols::Readers;
use system::System;

use crate::contract::{ChangeSource, EnabledProbe, Env, FoundProbe, Names, Provider, Role, Timing, Unit};
use crate::lock;
pub use every::Cursor;
pub use ids::may_be_of_no_thread;
use ids::{OVERFLOW, Place};
pub use manuals::MANUALS;

struct Entry {
    provider: Box<dyn Provider>,
    family: Family,
    names: Names,
    calls: Calls,
    /// It is one of this system, and not brought by a library or a user of the library.
    is_own: bool,
}

impl Entry {
    fn new(provider: Box<dyn Provider>, is_own: bool) -> Entry {
        let (family, names, calls) = (provider.facts().family, provider.names(), provider.calls());
        Entry { provider, family, names, calls, is_own }
    }

    /// True if the pattern's provider field selects this provider.
    fn is_selected(&self, pattern: &Pattern) -> bool {
        self.family.matches(&pattern.provider) && (pattern.names_provider() || !self.names.only_by_provider)
    }

    /// True if probes of this provider can match the pattern.
    fn may_match(&self, pattern: &Pattern) -> bool {
        self.is_selected(pattern) && self.provider.probes().may_match(pattern)
    }

    fn may_match_later(&self, pattern: &Pattern) -> bool {
        (self.provider.probes().follows_modules()
            || self.provider.changes().is_some()
            || self.follows_processes())
            && self.may_match(pattern)
    }

    fn follows_processes(&self) -> bool {
        self.provider.processes().is_some()
    }
}

/// All providers.
pub struct Registry {
    entries: Vec<Entry>,
    made: Mutex<MadeProbes>,
    changes: Mutex<Changes>,
    /// Held while probes that came get their ids.
    adding: Mutex<()>,
    /// The id of the first probe that came later.
    later_base: OnceLock<u32>,
    /// By what files of processes are read.
    readers: OnceLock<Readers>,
}

/// Probes that were made on demand.
#[derive(Default)]
struct MadeProbes {
    /// By number.
    probes: Vec<Arc<ProbeDesc>>,
    numbers: HashMap<Arc<ProbeDesc>, u32>,
}

impl MadeProbes {
    /// The number of a probe. A probe that is made again keeps its number.
    fn number(&mut self, desc: Arc<ProbeDesc>) -> (u32, Arc<ProbeDesc>) {
        if let Some((known, number)) = self.numbers.get_key_value(&desc) {
            return (*number, known.clone());
        }
        let number = self.probes.len() as u32;
        self.probes.push(desc.clone());
        self.numbers.insert(desc.clone(), number);
        (number, desc)
    }
}

/// How the probes differ from those of the start.
#[derive(Default)]
struct Changes {
    /// Counts the changes.
    sequence: u32,
    /// Probes that came, by number.
    later: BTreeMap<u32, LaterProbe>,
    /// How many have come.
    came: u32,
    /// Ids of probes that no longer exist, of those that existed at the start.
    removed: HashSet<u32>,
    /// Modules that were unloaded.
    unloaded: BTreeSet<String>,
}

impl Changes {
    /// The number of a new probe.
    fn add(&mut self, provider: usize, desc: Arc<ProbeDesc>) -> u32 {
        let number = self.came;
        self.later.insert(number, LaterProbe { desc, provider });
        self.came += 1;
        number
    }

    fn remove(&mut self, number: u32) {
        self.later.remove(&number);
    }
}

/// How a pattern selects probes of a provider, by its name.
#[derive(Clone, Copy)]
struct ByName {
    /// Only those that the provider says.
    is_only: bool,
    /// None: the pattern would have to name the provider.
    is_excluded: bool,
    /// Module and function do not count.
    is_loose: bool,
}

/// A probe that came later.
struct LaterProbe {
    desc: Arc<ProbeDesc>,
    provider: usize,
}

/// The enabled probes of one provider.
pub struct ProviderProbes<'a> {
    registry: &'a Registry,
    provider: usize,
    /// The probes, in the order of their ids.
    pub probes: Vec<EnabledProbe>,
}

impl ProviderProbes<'_> {
    /// The names that the provider answers for.
    pub fn family(&self) -> &Family {
        &self.registry.entries[self.provider].family
    }

    /// Plans how to attach them.
    pub fn plan(&self, env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let env = Env { first: self.registry.base(self.provider), ..*env };
        self.registry.entries[self.provider].provider.plan(&self.probes, &env)
    }

    /// Plans the program that runs before the others for some of them: see [`Provider::before`].
    pub fn before(&self, some: &[EnabledProbe], env: &Env<'_>) -> Option<Unit> {
        self.registry.entries[self.provider].provider.before(some, env)
    }

    /// See [`Provider::all_before`].
    pub fn all_before(&self, some: &[EnabledProbe], env: &Env<'_>) -> Vec<Unit> {
        self.registry.entries[self.provider].provider.all_before(some, env)
    }
}

impl Registry {
    /// The providers of a machine.
    pub fn new(system: &System) -> Registry {
        Registry::of(own::providers(system, Vec::new()))
    }

    /// The providers of this system, and those of a user of the library. An error names two that
    /// answer for one name.
    pub fn with(system: &System, others: Vec<Box<dyn Provider>>) -> Result<Registry, String> {
        let registry = Registry::of(own::providers(system, others));
        registry.check_families()?;
        Ok(registry)
    }

    fn of(mut entries: Vec<Entry>) -> Registry {
        ids::sort(&mut entries);
        let (made, changes, adding) = Default::default();
        Registry { entries, made, changes, adding, later_base: OnceLock::new(), readers: OnceLock::new() }
    }

    fn check_families(&self) -> Result<(), String> {
        for (index, Entry { family, .. }) in self.entries.iter().enumerate() {
            family.check()?;
            if let Some(other) = self.entries[..index].iter().find(|e| e.family.overlaps(family)) {
                return Err(format!("two providers answer for one name: {} and {family}", other.family));
            }
        }
        Ok(())
    }

    /// The provider of a name. That of all names that end with a process id has what no other has.
    fn index_of(&self, name: &str) -> Option<usize> {
        let of = |any: bool| {
            self.entries.iter().position(|e| e.family.is_of_any() == any && e.family.contains(name))
        };
        of(false).or_else(|| of(true))
    }

    /// The providers with probes that a pattern can match. That of all names is not asked for a
    /// name that another has.
    fn asked(&self, pattern: &Pattern) -> impl Iterator<Item = (usize, &Entry)> {
        let named = self.index_of(&pattern.provider);
        let is_of_other =
            move |n: usize, e: &Entry| e.family.is_of_any() && named.is_some_and(|named| named != n);
        self.entries.iter().enumerate().filter(move |(n, e)| !is_of_other(*n, e) && e.may_match(pattern))
    }

    /// True if a probe that a provider gives has one of its names, and not one of another
    /// provider's: what programs say of themselves is not trusted.
    fn is_own(&self, provider: usize, desc: &ProbeDesc) -> bool {
        !self.entries[provider].family.is_of_any() || self.index_of(&desc.provider) == Some(provider)
    }

    /// The provider that answers for this name.
    pub fn get(&self, name: &str) -> Option<&dyn Provider> {
        Some(self.entries[self.index_of(name)?].provider.as_ref())
    }

    /// When a probe fires.
    pub fn role(&self, probe: &ProbeDesc) -> Role {
        self.get(&probe.provider).map_or(Role::Probe, |p| p.role(probe))
    }

    /// When time alone fires a probe.
    pub fn timing(&self, probe: &ProbeDesc) -> Option<Timing> {
        self.get(&probe.provider).and_then(|p| p.timing(probe))
    }

    /// Divides probes by their providers, which are in the order of their names. A provider gets
    /// the probes of all names that it answers for.
    pub fn by_provider(
        &self,
        probes: impl Iterator<Item = EnabledProbe>,
    ) -> Result<Vec<ProviderProbes<'_>>, String> {
        let empty = |provider| ProviderProbes { registry: self, provider, probes: Vec::new() };
        let mut all: Vec<ProviderProbes<'_>> = (0..self.entries.len()).map(empty).collect();
        // Probes of one provider mostly follow each other, and share its name.
        let mut last: Option<(Arc<str>, usize)> = None;
        for probe in probes {
            let name = &probe.desc.provider;
            let known = last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, name)).map(|(_, index)| *index);
            let provider = match known {
                Some(provider) => provider,
                None => self.index_of(name).ok_or_else(|| format!("no provider {name}"))?,
            };
            if known.is_none() {
                last = Some((name.clone(), provider));
            }
            all[provider].probes.push(probe);
        }
        all.retain(|p| !p.probes.is_empty());
        all.sort_by_key(|p| &self.entries[p.provider].family);
        Ok(all)
    }

    /// A test of which probes a pattern selects: those whose names match, except of providers that
    /// it would have to name.
    pub fn selects<'a>(&self, pattern: &'a Pattern) -> impl Fn(&ProbeDesc) -> bool + use<'a> {
        let excluded = self.entries.iter().filter(|e| e.names.only_by_provider && !pattern.names_provider());
        let excluded: Vec<Family> = excluded.map(|e| e.family.clone()).collect();
        let loose = self.entries.iter().filter(|e| pattern.names_provider() && e.names.loose);
        let loose: Vec<Family> = loose.map(|e| e.family.clone()).collect();
        let otherwise = self.entries.iter().filter(|e| e.family.matches(&pattern.provider));
        let otherwise: Vec<_> =
            otherwise.filter_map(|e| e.provider.probes().matched_otherwise(pattern)).collect();
        let only = |e: &&Entry| {
            e.family.matches(&pattern.provider) && e.provider.probes().selects_only_matched(pattern)
        };
        let only: Vec<Family> = self.entries.iter().filter(only).map(|e| e.family.clone()).collect();
        let others: Vec<Family> =
            self.entries.iter().map(|e| e.family.clone()).filter(|f| !f.is_of_any()).collect();
        let by_name = Pattern { module: String::new(), function: String::new(), ..pattern.clone() };
        let of_name = move |name: &str| {
            let has = |all: &[Family]| all.iter().any(|f| f.contains(name));
            ByName {
                is_only: has(&only) && !has(&others),
                is_excluded: has(&excluded),
                is_loose: has(&loose),
            }
        };
        // Probes of one provider mostly follow each other.
        let last: RefCell<Option<(Arc<str>, ByName)>> = RefCell::default();
        move |desc| {
            let mut last = last.borrow_mut();
            let known = last.as_ref().filter(|(name, _)| *name == desc.provider).map(|(_, known)| *known);
            let ByName { is_only, is_excluded, is_loose } = known.unwrap_or_else(|| {
                let found = of_name(&desc.provider);
                *last = Some((desc.provider.clone(), found));
                found
            });
            let is_otherwise = || otherwise.iter().any(|probes| probes.contains(desc));
            match is_only {
                true => is_otherwise(),
                false => {
                    !is_excluded
                        && (pattern.matches(desc) || is_otherwise() || is_loose && by_name.matches(desc))
                }
            }
        }
    }

    /// True if a pattern can match probes that come later.
    pub fn may_match_later(&self, pattern: &Pattern) -> bool {
        self.entries.iter().any(|e| e.may_match_later(pattern))
    }

    /// True if one of the patterns can match probes that programs describe, also in files that they
    /// make while they run.
    pub fn follows_described(&self, patterns: &[Pattern]) -> bool {
        patterns.iter().any(|pattern| self.asked(pattern).any(|(_, entry)| entry.family.is_of_any()))
    }

    /// True if modules that are loaded later can have probes that a pattern matches.
    pub fn may_match_modules(&self, pattern: &Pattern) -> bool {
        let follows = |e: &Entry| e.provider.probes().follows_modules() && e.may_match(pattern);
        self.entries.iter().any(follows)
    }

    /// The sources of changes of the providers whose probes one of the patterns can match. Loaded
    /// modules are not among them.
    pub fn change_sources(&self, patterns: &[Pattern]) -> Vec<Box<dyn ChangeSource>> {
        let may = |e: &Entry| patterns.iter().any(|p| e.may_match(p));
        let open = |e: &Entry| e.provider.changes().filter(|_| may(e))?();
        self.entries.iter().filter_map(open).collect()
    }

    /// The family of the provider that answers for a name.
    pub fn family(&self, name: &str) -> Option<&Family> {
        Some(&self.entries[self.index_of(name)?].family)
    }

    /// The ids of probes that came later.
    pub fn later_ids(&self) -> Range<u32> {
        self.later_base.get().map_or(0..0, |base| *base..*base + lock(&self.changes).came)
    }

    /// True if an id is that of a probe that came later.
    pub fn is_later(&self, id: ProbeId) -> bool {
        self.later_base.get().is_some_and(|base| (*base..OVERFLOW).contains(&id.0))
    }

    fn made(&self, desc: Arc<ProbeDesc>) -> ProbeInfo {
        let (number, desc) = lock(&self.made).number(desc);
        ProbeInfo { id: ProbeId(self.made_id(number)), desc }
    }
}

impl Catalog for Registry {
    fn announce(&self, patterns: &[Pattern]) {
        for entry in &self.entries {
            let own: Vec<Pattern> = patterns.iter().filter(|p| entry.may_match(p)).cloned().collect();
            if !own.is_empty() {
                entry.provider.probes().announce(&own);
            }
        }
    }

    fn matches(&self, pattern: &Pattern) -> Matches {
        let mut all = Vec::new();
        let mut refused: Option<MatchError> = None;
        let removed = lock(&self.changes).removed.clone();
        for (provider, entry) in self.asked(pattern) {
            // The providers before this one are counted only if a probe of this one matches.
            let first = OnceCell::new();
            let matched = entry.provider.probes().matches(pattern, &mut |found| {
                if !self.is_own(provider, found.desc()) {
                    return;
                }
                all.push(match found {
                    FoundProbe::Made(desc) => self.made(desc),
                    FoundProbe::Listed(at, _) | FoundProbe::Computed(at, _) => {
                        let first = *first.get_or_init(|| self.base(provider));
                        let id = ProbeId(self.position_id(provider, first, at));
                        ProbeInfo { id, desc: found.shared() }
                    }
                });
            });
            refused = matched.err().or(refused);
        }
        if !removed.is_empty() {
            all.retain(|p| !removed.contains(&p.id.0));
        }
        let selects = self.selects(pattern);
        let base = self.later_ids().start;
        for (number, later) in &lock(&self.changes).later {
            let desc = Some(&later.desc).filter(|desc| selects(desc));
            all.extend(desc.map(|desc| ProbeInfo { id: ProbeId(base + number), desc: desc.clone() }));
        }
        match refused {
            Some(e) if all.is_empty() => Err(e),
            _ => Ok(all),
        }
    }

    fn absent(&self, pattern: &Pattern) -> Vec<ProbeInfo> {
        let mut all = Vec::new();
        for (provider, entry) in self.asked(pattern) {
            let found = entry.provider.probes().absent(pattern);
            if !found.is_empty() {
                let first = self.base(provider);
                let id = |at| ProbeId(self.position_id(provider, first, at));
                all.extend(found.into_iter().map(|(at, desc)| ProbeInfo { id: id(at), desc }));
            }
        }
        all
    }

    fn by_id(&self, id: ProbeId) -> Option<ProbeInfo> {
        let desc = match self.place(id.0)? {
            Place::Position { provider, position } => {
                self.entries.get(provider)?.provider.probes().at(position)?
            }
            Place::Made(number) => lock(&self.made).probes.get(number as usize)?.clone(),
            Place::Later(number) => lock(&self.changes).later.get(&number)?.desc.clone(),
        };
        Some(ProbeInfo { id, desc })
    }

    fn families(&self) -> Vec<Family> {
        self.entries.iter().map(|e| e.family.clone()).collect()
    }

    fn can_mean(&self, pattern: &Pattern, provider: &Family) -> bool {
        let entry = self.entries.iter().find(|e| e.family == *provider);
        entry.is_some_and(|e| e.is_selected(pattern))
    }

    fn provider(&self, name: &str) -> Option<ProviderFacts> {
        self.get(name).map(|p| p.facts())
    }

    fn calls(&self, name: &str) -> Calls {
        self.index_of(name).and_then(|at| self.entries.get(at)).map_or(Calls::None, |entry| entry.calls)
    }

    fn known(&self, provider: &Family, field: FieldKind) -> Vec<String> {
        let Some(entry) = self.entries.iter().find(|e| e.family == *provider) else { return Vec::new() };
        let mut all: BTreeSet<Arc<str>> = BTreeSet::new();
        // A provider whose probes cannot be read has none.
        let _ = entry.provider.probes().matches(&Pattern::default(), &mut |found| {
            let name = found.desc().field(field);
            if !name.is_empty() && !all.contains(name) {
                all.insert(name.clone());
            }
        });
        all.iter().map(|name| name.to_string()).collect()
    }

    fn object(&self, provider: &str, object: &str) -> Option<Result<Arc<dyn UserObject>, String>> {
        self.get(provider)?.processes()?.object(provider, object)
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        self.get(&probe.provider).map_or_else(|| Ok(Arc::new([]) as Arc<[_]>), |p| p.args(probe))
    }

    fn definition(&self, probe: &ProbeDesc) -> Option<Arc<Definition>> {
        self.get(&probe.provider)?.processes()?.definition(probe)
    }
}

#[cfg(test)]
mod tests;
