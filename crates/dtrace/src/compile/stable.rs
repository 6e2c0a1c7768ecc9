//! Providers that D libraries define: a provider block declares their probes, and clauses of the
//! library fire them from others, their bases. [`check`] makes the clauses of a program those of
//! the bases; here the probes are listed.
//!
//! ```text
//!  Libraries::probes   the names, from an index: nothing is parsed before a description selects one
//!  exists              its library is parsed, and the bases are looked up: what is cheap to know
//! ```
//!
//! Of a family (`provider plockstat[pid]`) nothing is listed before a description names a process.
//! Then its library is parsed for this process, in which the bases are: they are looked up each
//! time, because a process may execute another program.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, ThreadId};

use check::pattern_of;
use diagnostics::{Sink, SourceMap, Span};
use probes::{
    ArgType, Args, Attributes, Catalog, Class, Family, FieldKind, MatchError, Pattern, ProbeDesc, ProbeInfo,
    ProviderFacts, ProviderStability, Stability, TypeRef, glob_matches,
};
use providers::{EnabledProbe, Env, FoundProbe, IdRange, Names, ProbeSource, Provider, Registry, Unit};
use syntax::ast::{Param, Program, ProviderProbe};
use syntax::library::{Declared, probe_name};
use syntax::{Libraries, derive};
use system::System;

/// The providers of a machine, those that the libraries define, and those of a user of the library.
/// `enables`: what is matched is to be enabled, and not only listed.
pub(crate) fn registry(
    system: &System,
    libraries: &Libraries,
    mut others: Vec<Box<dyn Provider>>,
    enables: bool,
) -> Result<Arc<Registry>, String> {
    let (mut probes, mut known): (Vec<(Family, Vec<String>)>, HashSet<_>) = Default::default();
    for Declared { provider, probe, of_processes, .. } in libraries.probes() {
        // Those of a provider come one after the other.
        if !known.insert((provider, probe)) {
            continue;
        }
        let name = probe_name(probe);
        match probes.iter_mut().rev().find(|(known, _)| known.prefix() == provider) {
            Some((_, all)) => all.push(name),
            None if of_processes => probes.push((Family::of_processes(provider), vec![name])),
            None => probes.push((Family::one(provider), vec![name])),
        }
    }
    // A provider of a program replaces that of a library.
    let given: Vec<Family> = others.iter().map(|p| p.facts().family).collect();
    probes.retain(|(family, _)| !given.iter().any(|given| given.overlaps(family)));
    let shared = Arc::new(LibraryProviders {
        libraries: Mutex::new((libraries.unparsed(), SourceMap::default())),
        registry: OnceLock::new(),
        bases: Mutex::default(),
    });
    for (family, names) in probes {
        let stability = libraries.provider_attributes(family.prefix()).fold(CONVENTION, with_attributes);
        let shared = shared.clone();
        others.push(match family.is_of_processes() {
            true => {
                Box::new(StableFamily { stability, family, names, shared, definitions: Mutex::default() })
            }
            false => Box::new(StableProvider {
                stability,
                source: StableSource {
                    provider: family.prefix().into(),
                    probes: names.iter().map(|_| OnceLock::new()).collect(),
                    names,
                    shared,
                    definitions: OnceLock::new(),
                    asked: Mutex::default(),
                },
            }),
        });
    }
    let registry = Arc::new(Registry::with(system, others)?);
    if enables {
        registry.will_enable();
    }
    let _ = shared.registry.set(Arc::downgrade(&registry));
    Ok(registry)
}

/// What the original promises of its stable providers.
const CONVENTION: ProviderStability = {
    let evolving = Attributes::new(Stability::Evolving, Stability::Evolving, Class::ISA);
    let private = Attributes::new(Stability::Private, Stability::Private, Class::Unknown);
    ProviderStability {
        provider: evolving,
        module: private,
        function: private,
        name: evolving,
        args: evolving,
    }
};

pub(crate) fn with_attributes(
    mut all: ProviderStability,
    (triple, field): (&str, &str),
) -> ProviderStability {
    let place = match field {
        "provider" => &mut all.provider,
        "module" => &mut all.module,
        "function" => &mut all.function,
        "name" => &mut all.name,
        "args" => &mut all.args,
        _ => return all,
    };
    *place = Attributes::parse(triple).unwrap_or(*place);
    all
}

/// What the providers of all libraries share.
struct LibraryProviders {
    libraries: Mutex<(Libraries, SourceMap)>,
    /// The providers among which the bases are.
    registry: OnceLock<Weak<Registry>>,
    /// Whether the system has probes that match a description: many probes have the same base.
    bases: Mutex<HashMap<Pattern, bool>>,
}

impl LibraryProviders {
    fn has_base(&self, registry: &Registry, pattern: &Pattern) -> bool {
        if !pattern.names_provider() {
            return false;
        }
        if let Some(known) = lock(&self.bases).get(pattern) {
            return *known;
        }
        let found = registry.matches(pattern).is_ok_and(|found| !found.is_empty());
        lock(&self.bases).insert(pattern.clone(), found);
        found
    }
}

impl LibraryProviders {
    /// The probes that the libraries declare for a provider; of a family for the provider of a
    /// process.
    fn definitions(&self, provider: &str, pid: Option<u32>) -> Definitions {
        let mut shared = lock(&self.libraries);
        let (libraries, map) = &mut *shared;
        // The errors are reported where the program is compiled.
        libraries.load_provider(provider, pid, map, &mut Sink::default());
        let name = pid.map_or_else(|| provider.to_string(), |pid| format!("{provider}{pid}"));
        let mut all = Definitions::new();
        let declares = |library: &&syntax::library::Library| {
            derive::declared(&library.program).any(|(p, _)| p.name.text == name)
        };
        for library in libraries.parsed().iter().filter(declares) {
            define(&name, &library.program, map, &mut all);
        }
        if pid.is_some() {
            libraries.retain(|library| !declares(&library));
        }
        all
    }
}

fn define(provider: &str, library: &Program, map: &SourceMap, all: &mut Definitions) {
    let firings = derive::firings(library);
    for (provider, probe) in derive::declared(library).filter(|(p, _)| p.name.text == provider) {
        let name = probe_name(&probe.name.text);
        let args = args(probe, |span| map.snippet(span)).into();
        let mine = |f: &derive::Firing<'_>| {
            f.provider.name.text == provider.name.text && f.probe.name.text == probe.name.text
        };
        let clauses = firings.iter().filter(|f| mine(f)).map(alternative).collect();
        all.insert(name, Definition { args, clauses });
    }
}

/// A provider that a library defines.
struct StableProvider {
    stability: ProviderStability,
    source: StableSource,
}

/// Its probes: a position for each that is declared, whether or not it exists here.
struct StableSource {
    provider: Arc<str>,
    names: Vec<String>,
    probes: Vec<OnceLock<Arc<ProbeDesc>>>,
    shared: Arc<LibraryProviders>,
    definitions: OnceLock<Definitions>,
    asked: Mutex<HashMap<u32, Existence>>,
}

/// The probes of a provider, by name.
type Definitions = HashMap<String, Definition>;

/// A probe as its library has it.
#[derive(Default)]
struct Definition {
    args: Arc<[ArgType]>,
    clauses: Vec<Alternative>,
}

/// A clause that fires a probe.
struct Alternative {
    bases: Vec<Pattern>,
    conditions: Vec<Condition>,
}

/// A condition `defined(…)`.
struct Condition {
    pattern: Pattern,
    /// The argument that the probe must have.
    arg: Option<u64>,
    /// False: it must not.
    holds: bool,
}

/// Whether a probe exists here.
#[derive(Clone)]
enum Existence {
    /// This thread is looking its bases up.
    Asked(ThreadId),
    /// If not, why.
    Known(Result<(), String>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StableSource {
    fn definitions(&self) -> &Definitions {
        self.definitions.get_or_init(|| self.shared.definitions(&self.provider, None))
    }

    /// The names of the probe at a position, whether or not it exists.
    fn names(&self, position: u32) -> Option<&Arc<ProbeDesc>> {
        let (name, probe) = (self.names.get(position as usize)?, self.probes.get(position as usize)?);
        let desc = || Arc::new(ProbeDesc::new(self.provider.clone(), "vmlinux", "", name.as_str()));
        Some(probe.get_or_init(desc))
    }

    /// The probe at a position, or why it does not exist here.
    fn probe(&self, position: u32) -> Result<&Arc<ProbeDesc>, String> {
        let Some(desc) = self.names(position) else { return Err("no such probe".into()) };
        let me = thread::current().id();
        let known = lock(&self.asked).get(&position).cloned();
        let exists = match known {
            Some(Existence::Known(known)) => known,
            Some(Existence::Asked(by)) if by == me => Err("it is derived from itself".into()),
            _ => {
                lock(&self.asked).insert(position, Existence::Asked(me));
                let found = self.exists(&desc.name);
                lock(&self.asked).insert(position, Existence::Known(found.clone()));
                found
            }
        };
        exists.map(|()| desc)
    }

    /// Why there are no probes of other systems that no library declares.
    fn reason(&self, pattern: &Pattern) -> Option<&'static str> {
        reason(&pattern.provider, &pattern.name).filter(|_| *pattern.provider == *self.provider)
    }

    fn exists(&self, name: &str) -> Result<(), String> {
        let definition = self.definitions().get(name).ok_or("its library has errors")?;
        let Some(registry) = self.shared.registry.get().and_then(Weak::upgrade) else {
            return Err("there are no probes".into());
        };
        let found = |pattern: &Pattern| self.shared.has_base(&registry, pattern);
        definition.has_base(&registry, &found).map_err(|missing| match &missing[..] {
            [] => match reason(&self.provider, name) {
                Some(why) => why.into(),
                None => "the library has no clause for it that fits this kernel".into(),
            },
            [only] => format!("this kernel has no {only}"),
            all => format!("this kernel has none of {}", all.join(", ")),
        })
    }
}

/// Why no kernel of Linux has a probe: the table beside this file.
fn reason(provider: &str, name: &str) -> Option<&'static str> {
    const TABLE: &str = include_str!("absent.txt");
    let rows = TABLE.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let is_mine = |probe: &str| {
        probe.split_once(':').is_some_and(|(of, glob)| of == provider && glob_matches(glob, name))
    };
    let mut mine = rows.filter(|(probe, _)| is_mine(probe));
    mine.next().map(|(_, why)| why.trim())
}

impl Definition {
    /// `Ok` if the system has a base of this probe. Else the bases that it lacks.
    fn has_base(&self, registry: &Registry, found: &dyn Fn(&Pattern) -> bool) -> Result<(), Vec<String>> {
        let holds = |c: &Condition| {
            let has = |n: u64, probe: &ProbeInfo| {
                registry.args(&probe.desc).is_ok_and(|args| n < args.len() as u64)
            };
            let is_there = match c.arg {
                None => found(&c.pattern),
                Some(n) => registry
                    .matches(&c.pattern)
                    .is_ok_and(|found| found.first().is_some_and(|probe| has(n, probe))),
            };
            is_there == c.holds
        };
        let mut missing: Vec<String> = Vec::new();
        for alternative in &self.clauses {
            if !alternative.conditions.iter().all(holds) {
                continue;
            }
            if alternative.bases.iter().any(found) {
                return Ok(());
            }
            for base in alternative.bases.iter().map(Pattern::to_string) {
                // Several clauses may have one base.
                if !missing.contains(&base) {
                    missing.push(base);
                }
            }
        }
        Err(missing)
    }
}

/// What makes a clause fire.
fn alternative(firing: &derive::Firing<'_>) -> Alternative {
    let conditions = derive::conditions(firing.clause.predicate.as_ref());
    Alternative {
        bases: firing.clause.probes.iter().filter_map(pattern_of).collect(),
        conditions: conditions
            .into_iter()
            .filter_map(|c| Some(Condition { pattern: pattern_of(c.probe)?, arg: c.arg, holds: c.holds }))
            .collect(),
    }
}

/// The arguments that a probe's declaration gives its clauses.
fn args<'a>(probe: &ProviderProbe, text: impl Fn(Span) -> &'a str) -> Vec<ArgType> {
    let name = |param: &Param| param.declarator.name.as_ref().map(|n| n.text.clone());
    let ty = |param: &Param| {
        let whole = text(param.span);
        let Some(name) = &param.declarator.name else { return whole.trim().to_string() };
        let at = (name.span.start - param.span.start) as usize;
        let (before, after) = (whole.get(..at), whole.get(at + name.text.len()..));
        format!("{} {}", before.unwrap_or(whole).trim(), after.unwrap_or_default().trim()).trim().to_string()
    };
    let natives = || probe.native.list.iter().filter(|p| ty(p) != "void");
    let Some(translated) = &probe.translated else {
        return (0..).zip(natives()).map(|(n, param)| ArgType::text(n, ty(param))).collect();
    };
    let from = |n: usize, param: &Param| {
        let named = name(param).and_then(|name_| natives().position(|p| name(p).as_ref() == Some(&name_)));
        named.unwrap_or(n.min(natives().count().saturating_sub(1)))
    };
    let each = translated.list.iter().filter(|p| ty(p) != "void").enumerate().filter_map(|(n, param)| {
        let from = from(n, param);
        let native = natives().nth(from).map(&ty)?;
        let shown = ty(param);
        let arg = ArgType::text(u8::try_from(from).ok()?, native.clone());
        let translated = (shown != native).then(|| TypeRef::Text(shown.into()));
        Some(ArgType { translated, ..arg })
    });
    each.collect()
}

impl Provider for StableProvider {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts {
            family: Family::one(self.source.provider.clone()),
            has_errno: true,
            stability: self.stability,
        }
    }

    fn names(&self) -> Names {
        Names { loose: true, ..Names::default() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.source
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        let definition = self.source.definitions().get(&*probe.name);
        definition.map(|d| d.args.clone()).ok_or_else(|| "its library has errors".into())
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        by_its_bases(probes)
    }
}

/// The clauses of derived probes are those of others, so none of them is planned.
fn by_its_bases(probes: &[EnabledProbe]) -> Result<Vec<Unit>, String> {
    match probes.first() {
        None => Ok(Vec::new()),
        Some(probe) => Err(format!("{} is attached by its bases", probe.desc)),
    }
}

impl ProbeSource for StableSource {
    fn ids(&self) -> IdRange {
        IdRange::Reserved(self.positions())
    }

    fn positions(&self) -> u32 {
        self.names.len() as u32
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        let is_loose = pattern.names_provider();
        let fits = |glob: &str, text: &str| is_loose || glob_matches(glob, text);
        fits(&pattern.module, "vmlinux")
            && fits(&pattern.function, "")
            && (self.names.iter().any(|name| glob_matches(&pattern.name, name))
                || self.reason(pattern).is_some())
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        if !self.may_match(pattern) {
            return Ok(());
        }
        let mut absent = None;
        for (at, name) in (0..).zip(&self.names) {
            if !glob_matches(&pattern.name, name) {
                continue;
            }
            match self.probe(at) {
                Ok(desc) => give(FoundProbe::Listed(at, desc)),
                Err(why) => absent = Some(why),
            }
        }
        let absent = absent.or_else(|| self.reason(pattern).map(String::from));
        match absent.filter(|_| pattern.is_specific()) {
            Some(why) => Err(MatchError::new(why)),
            None => Ok(()),
        }
    }

    fn absent(&self, pattern: &Pattern) -> Vec<(u32, Arc<ProbeDesc>)> {
        let named = (0..).zip(&self.names).filter(|(_, name)| glob_matches(&pattern.name, name));
        let absent = named.filter(|(at, _)| self.probe(*at).is_err());
        absent.filter_map(|(at, _)| Some((at, self.names(at)?.clone()))).collect()
    }

    /// A probe that exists remains, because programs have it; one that does not is looked up again.
    fn others_changed(&self) {
        lock(&self.shared.bases).retain(|_, found| *found);
        lock(&self.asked).retain(|_, exists| !matches!(exists, Existence::Known(Err(_))));
    }

    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>> {
        self.probe(position).ok().cloned()
    }
}

/// A family that a library defines: a provider for each process.
struct StableFamily {
    stability: ProviderStability,
    family: Family,
    names: Vec<String>,
    shared: Arc<LibraryProviders>,
    definitions: Mutex<HashMap<u32, Arc<Definitions>>>,
}

impl StableFamily {
    fn definitions(&self, pid: u32) -> Arc<Definitions> {
        let mut all = lock(&self.definitions);
        let parse = || Arc::new(self.shared.definitions(self.family.prefix(), Some(pid)));
        all.entry(pid).or_insert_with(parse).clone()
    }

    /// The probes of a process that a pattern matches. Their module is the file of the process in
    /// which bases are.
    fn probes_of(&self, pid: u32, pattern: &Pattern) -> Result<Vec<ProbeDesc>, MatchError> {
        let Some(registry) = self.shared.registry.get().and_then(Weak::upgrade) else {
            return Err(MatchError::new("there are no probes"));
        };
        let definitions = self.definitions(pid);
        // Many probes have the same bases.
        let looked_up: RefCell<HashMap<Pattern, Result<Arc<ProbeDesc>, MatchError>>> = RefCell::default();
        let look_up = |base: &Pattern| {
            let none = || MatchError::new(format!("there is no {base}"));
            let found = registry.matches(base);
            found.and_then(|found| found.first().map(|p| p.desc.clone()).ok_or_else(none))
        };
        let base = |base: &Pattern| {
            if let Some(known) = looked_up.borrow().get(base) {
                return known.clone();
            }
            let found = look_up(base);
            looked_up.borrow_mut().insert(base.clone(), found.clone());
            found
        };
        let in_process = |desc: &Arc<ProbeDesc>| {
            let digits = desc.provider.trim_start_matches(|c: char| !c.is_ascii_digit());
            digits.parse() == Ok(pid)
        };
        let all = self.names.iter().filter_map(|name| definitions.get(name));
        let mut bases = all.flat_map(|definition| &definition.clauses).flat_map(|clause| &clause.bases);
        let file = bases.find_map(|at| base(at).ok().filter(in_process));
        // A probe with bases in the kernel only is one of a process in which the others have
        // theirs.
        let Some(file) = file.map(|desc| desc.module.clone()) else {
            let why = looked_up.into_inner().into_values().find_map(Result::err);
            let why = why.unwrap_or_else(|| MatchError::new("its library has errors"));
            return Err(MatchError { may_come: true, ..why });
        };
        let mut out = Vec::new();
        for name in self.names.iter().filter(|name| glob_matches(&pattern.name, name)) {
            let Some(definition) = definitions.get(name) else { continue };
            if definition.has_base(&registry, &|at| base(at).is_ok()).is_ok() {
                out.push(ProbeDesc::new(pattern.provider.as_str(), file.clone(), "", name.as_str()));
            }
        }
        let why = looked_up.into_inner().into_values().find_map(Result::err);
        match why.filter(|_| out.is_empty()) {
            Some(why) => Err(MatchError { may_come: true, ..why }),
            None => Ok(out),
        }
    }
}

impl Provider for StableFamily {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts { family: self.family.clone(), has_errno: true, stability: self.stability }
    }

    fn names(&self) -> Names {
        Names { loose: true, ..Names::default() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        self
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        let pid = self.family.pid(&probe.provider).ok_or("no such provider")?;
        let definitions = self.definitions(pid);
        definitions.get(&*probe.name).map(|d| d.args.clone()).ok_or_else(|| "its library has errors".into())
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        by_its_bases(probes)
    }
}

impl ProbeSource for StableFamily {
    fn ids(&self) -> IdRange {
        IdRange::Reserved(0)
    }

    fn positions(&self) -> u32 {
        0
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        let is_named = self.family.pid(&pattern.provider).is_some();
        is_named && self.names.iter().any(|name| glob_matches(&pattern.name, name))
    }

    /// The library's probes, whether or not the process has their bases.
    fn names(&self, pattern: &Pattern, field: FieldKind, give: &mut dyn FnMut(&str)) {
        match field {
            FieldKind::Provider => give(&pattern.provider),
            FieldKind::Module | FieldKind::Function => {}
            FieldKind::Name => {
                let names = self.names.iter().filter(|name| glob_matches(&pattern.name, name));
                names.for_each(|name| give(name));
            }
        }
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        let Some(pid) = self.family.pid(&pattern.provider) else { return Ok(()) };
        self.probes_of(pid, pattern)?.into_iter().for_each(|desc| give(FoundProbe::Made(Arc::new(desc))));
        Ok(())
    }

    fn at(&self, _: u32) -> Option<Arc<ProbeDesc>> {
        None
    }
}
