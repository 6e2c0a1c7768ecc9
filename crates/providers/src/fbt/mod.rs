//! `fbt` and `rawfbt`: entry and return of every function that the kernel lets be traced.
//!
//! `rawfbt` has all of them. `fbt` has those that the source has: a copy or part of a function that
//! the compiler made (`vfs_read.isra.0`, `.part.0`, `.constprop.0`) may have other arguments than
//! the function in the source.
//!
//! One link attaches to the entries of all functions, and one to the returns (`kprobe_multi`). A
//! firing finds its probe by the cookie. Functions are attached to by address, because several may
//! have one name.

mod args;
mod context;
mod entries;
mod functions;
mod list;
mod method;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bpf_sys::features::Facility;
use probes::{
    Args, Attributes, Calls, Class, Family, FieldKind, MatchError, Pattern, ProbeDesc, ProviderFacts,
    ProviderStability, Stability, glob_escape, glob_matches, glob_prefix, is_glob,
};
use system::System;
use types::btf::{BtfKind, KernelBtf};

use crate::contract::method::{FunctionMethod, FunctionSites, Site};
use crate::contract::{
    EnabledProbe, Env, FoundProbe, LoadedModules, Manual, Names, ProbeSource, Provider, Role, Unit,
    UnloadedModules,
};
use crate::lock;
use context::{ByRegisters, ByTrampoline};
use functions::Function;
use list::List;

/// The list of functions that `fbt` and `rawfbt` share. It is read when one of them first needs it.
pub(crate) struct SharedList {
    system: System,
    list: OnceLock<Result<List, String>>,
    /// The kernel's types are asked instead.
    at_prompt: AtomicBool,
    /// The functions of the modules that were loaded last, with the number of that event.
    loaded: Mutex<Option<(u32, Arc<List>)>>,
}

/// Probes of modules that were loaded later, by id: the line of the function, and whether it is the
/// return.
#[derive(Clone)]
struct ModuleProbes {
    first_id: u32,
    list: Arc<List>,
    places: Arc<[(u32, bool)]>,
    /// The modules that are loaded.
    modules: BTreeSet<String>,
}

impl ModuleProbes {
    fn function(&self, id: u32) -> Option<(Function<'_>, bool)> {
        let (line, on_return) = *self.places.get(id.checked_sub(self.first_id)? as usize)?;
        Some((self.list.at(line)?, on_return))
    }
}

impl SharedList {
    fn list(&self) -> Result<&List, &str> {
        let list = self.list.get_or_init(|| List::read(&self.system));
        list.as_ref().map_err(String::as_str)
    }

    /// The functions of modules that were loaded later. The kernel's list has no index, so it is
    /// read again, once for both providers.
    fn of_modules(&self, loaded: &LoadedModules<'_>) -> Arc<List> {
        let mut last = lock(&self.loaded);
        match &*last {
            Some((sequence, list)) if *sequence == loaded.sequence => list.clone(),
            _ => {
                let listed = self.list.get().and_then(|list| list.as_ref().ok());
                let known = |module: &str| {
                    !loaded.unloaded.contains(module) && listed.is_some_and(|list| list.has_module(module))
                };
                let new: Vec<&String> = loaded.modules.iter().filter(|m| !known(m)).collect();
                let list = List::read(&self.system).unwrap_or_default();
                let list = Arc::new(list.only(|module| new.iter().any(|n| *n == module)));
                *last = Some((loaded.sequence, list.clone()));
                list
            }
        }
    }
}

/// One of the two providers.
pub(crate) struct Fbt {
    name: &'static str,
    /// It also has functions that the compiler made.
    clones: bool,
    shared: Arc<SharedList>,
    later: Mutex<Vec<ModuleProbes>>,
}

const NAMES: [&str; 2] = ["entry", "return"];

/// The names of the two, and whether each has functions that the compiler made.
const PROVIDERS: [(&str, bool); 2] = [("fbt", false), ("rawfbt", true)];

/// `fbt` and `rawfbt`.
pub(crate) fn both(system: &System) -> [Fbt; 2] {
    let (list, at_prompt, loaded) = Default::default();
    let shared = Arc::new(SharedList { system: system.clone(), list, at_prompt, loaded });
    PROVIDERS.map(|(name, clones)| Fbt { name, clones, shared: shared.clone(), later: Mutex::default() })
}

impl Fbt {
    fn kernel(&self) -> &KernelBtf {
        self.shared.system.types()
    }

    /// The function of a position, and whether the probe is at the return. Line N of the list has
    /// positions 2N and 2N + 1.
    fn function(&self, position: u32) -> Option<(Function<'_>, bool)> {
        let (line, on_return) = (position / 2, position % 2 == 1);
        let list = self.shared.list().ok()?;
        list.at(line).filter(|f| self.has(f, on_return)).map(|f| (f, on_return))
    }

    fn has(&self, function: &Function<'_>, on_return: bool) -> bool {
        (self.clones || !function.is_clone()) && (!on_return || function.returns())
    }
}

impl ProbeSource for Fbt {
    fn positions(&self) -> u32 {
        self.shared.list().map_or(0, |list| 2 * list.lines())
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        NAMES.iter().any(|n| glob_matches(&pattern.name, n))
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        if self.shared.at_prompt.load(Ordering::Relaxed) {
            if List::exists(&self.shared.system) {
                self.each_typed(pattern, give);
            }
            return Ok(());
        }
        // Only a pattern that names the provider is told why it has no probes.
        let named = pattern.provider == self.name;
        let list = match self.shared.list() {
            Ok(list) => list,
            Err(why) if named => {
                let message = format!("this kernel does not say which functions can be traced: {why}");
                return Err(MatchError::new(message));
            }
            Err(_) => return Ok(()),
        };
        let mut any = false;
        self.each(list, pattern, &mut |position, desc| {
            any = true;
            give(FoundProbe::Computed(position, desc));
        });
        match (named && !any).then(|| self.explain(list, pattern)).flatten() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// The kernel's list is not read, which takes it tens of milliseconds: its types have the names
    /// of its functions, also of some that cannot be traced, such as those of its start.
    fn names(&self, pattern: &Pattern, field: FieldKind, give: &mut dyn FnMut(&str)) {
        let mut modules = vec![list::CORE.to_string()];
        modules.extend(self.kernel().modules());
        modules.retain(|module| glob_matches(&pattern.module, module));
        match field {
            FieldKind::Provider => give(self.name),
            FieldKind::Module => modules.iter().for_each(|module| give(module)),
            FieldKind::Function => modules.iter().for_each(|m| self.typed(m, &pattern.function, give)),
            FieldKind::Name => {
                NAMES.iter().filter(|name| glob_matches(&pattern.name, name)).for_each(|name| give(name));
            }
        }
    }

    fn may_have_probes(&self) -> bool {
        List::exists(&self.shared.system)
    }

    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>> {
        let (f, on_return) = self.function(position)?;
        Some(Arc::new(ProbeDesc::new(self.name, f.module, f.name, NAMES[usize::from(on_return)])))
    }

    fn follows_modules(&self) -> bool {
        true
    }

    fn added(&self, loaded: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        let list = self.shared.of_modules(loaded);
        let (mut places, mut found) = (Vec::new(), Vec::new());
        for (line, f) in list.starting("") {
            for on_return in [false, true].into_iter().filter(|end| self.has(&f, *end)) {
                places.push((line, on_return));
                found.push(ProbeDesc::new(self.name, f.module, f.name, NAMES[usize::from(on_return)]));
            }
        }
        let modules: BTreeSet<String> =
            loaded.modules.iter().filter(|m| list.has_module(m)).cloned().collect();
        if !modules.is_empty() {
            let (first_id, places) = (loaded.first_id, places.into());
            lock(&self.later).push(ModuleProbes { first_id, list: list.clone(), places, modules });
        }
        found
    }

    fn removed(&self, unloaded: &UnloadedModules<'_>) -> Vec<Pattern> {
        // What was never read has lost nothing.
        let Some(Ok(list)) = self.shared.list.get() else { return Vec::new() };
        let mut later = lock(&self.later);
        let known = |m: &str| list.has_module(m) || later.iter().any(|l| l.modules.contains(m));
        let modules = unloaded.modules.iter().filter(|m| known(m));
        let probes = |m: &String| Pattern { module: glob_escape(m), ..Pattern::default() };
        let probes = modules.map(probes).collect();
        // Nothing is planned for removed probes.
        for module in unloaded.modules {
            for l in &mut *later {
                l.modules.remove(module);
            }
        }
        later.retain(|l| !l.modules.is_empty());
        let has_some = |list: &List| unloaded.modules.iter().any(|m| list.has_module(m));
        lock(&self.shared.loaded).take_if(|(_, list)| has_some(list));
        probes
    }
}

impl Fbt {
    /// Calls `give` with the functions of a module that a pattern matches, as the kernel's types
    /// have them.
    fn typed(&self, module: &str, pattern: &str, give: &mut dyn FnMut(&str)) {
        let Some(btf) = self.kernel().module(module) else { return };
        let all = btf.with_prefix(BtfKind::Func, glob_prefix(pattern)).map(|(name, _)| name);
        let is_mine = |name: &&str| {
            let function = Function { name, module: list::CORE, site: 0 };
            glob_matches(pattern, name) && self.has(&function, false) && !function.is_tracer()
        };
        all.filter(is_mine).for_each(give);
    }

    /// As [`Fbt::each`], from the kernel's types.
    fn each_typed(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) {
        for module in std::iter::once(list::CORE.to_string()).chain(self.kernel().modules()) {
            if !glob_matches(&pattern.module, &module) {
                continue;
            }
            self.typed(&module, &pattern.function, &mut |function| {
                for name in NAMES.iter().filter(|name| glob_matches(&pattern.name, name)) {
                    give(FoundProbe::Made(Arc::new(ProbeDesc::new(self.name, &*module, function, *name))));
                }
            });
        }
    }

    /// Calls `give` with each probe that a pattern matches and with its position, in the order of
    /// positions.
    fn each(&self, list: &List, pattern: &Pattern, give: &mut dyn FnMut(u32, ProbeDesc)) {
        let provider: Arc<str> = self.name.into();
        let names = NAMES.map(|name| glob_matches(&pattern.name, name).then(|| Arc::<str>::from(name)));
        let mut module: (Arc<str>, bool) = (Arc::default(), false);
        let functions = list.starting(glob_prefix(&pattern.function));
        for (line, f) in functions {
            if !glob_matches(&pattern.function, f.name) {
                continue;
            }
            // The functions of a module follow each other.
            if *module.0 != *f.module {
                module = (f.module.into(), glob_matches(&pattern.module, f.module));
            }
            if !module.1 {
                continue;
            }
            let mut function: Option<Arc<str>> = None;
            for ((on_return, name), position) in [false, true].into_iter().zip(&names).zip(2 * line..) {
                if let Some(name) = name.as_ref().filter(|_| self.has(&f, on_return)) {
                    let function = function.get_or_insert_with(|| f.name.into()).clone();
                    let desc = ProbeDesc::new(provider.clone(), module.0.clone(), function, name.clone());
                    give(position, desc);
                }
            }
        }
    }

    /// Why a pattern matches no function, if there is more to say.
    fn explain(&self, list: &List, pattern: &Pattern) -> Option<MatchError> {
        let name = pattern.function.as_str();
        if is_glob(name) || name.is_empty() || !NAMES.contains(&pattern.name.as_str()) {
            return None;
        }
        let found = list.starting(name).map(|(_, f)| f).find(|f| f.name == name);
        let why = match found {
            Some(f) if !glob_matches(&pattern.module, f.module) => {
                format!("{name} is a function of module {}", f.module)
            }
            Some(f) if !f.returns() => format!("{name} never returns"),
            Some(f) if f.is_clone() => format!("{name} is made by the compiler: it is a probe of rawfbt"),
            Some(_) => return None,
            None if is_function(&self.shared.system, name) => {
                format!(
                    "{name} is a function of the kernel that cannot be traced: the kernel does not list it as traceable"
                )
            }
            None => return None,
        };
        Some(MatchError::new(why))
    }
}

impl Fbt {
    fn unit(&self, method: FunctionMethod, on_return: bool, group: Vec<(Site, &EnabledProbe)>) -> Unit {
        let single = group.len() == 1;
        let (sites, probes): (Vec<Site>, Vec<&EnabledProbe>) = group.into_iter().unzip();
        Unit {
            name: format!("{}_{}", self.name, NAMES[usize::from(on_return)]),
            role: Role::Probe,
            space: sites.len() as u32,
            probes: (0..).zip(probes.into_iter().cloned()).collect(),
            context: match method {
                FunctionMethod::Fentry | FunctionMethod::Modify => {
                    Arc::new(ByTrampoline { on_return, single })
                }
                FunctionMethod::Multi | FunctionMethod::Kprobe => Arc::new(ByRegisters { on_return, single }),
            },
            method: method.of(FunctionSites { on_return, whole: false, sites }),
            interrupts: true,
        }
    }
}

const PROBES: &[(&str, &str)] = &[
    ("MODULE:FUNCTION:entry", "fires when the function is called; MODULE is vmlinux for the kernel itself"),
    ("MODULE:FUNCTION:return", "fires when the function returns"),
];
const ARGS: &[(&str, &str)] = &[
    ("arg0 ... arg9", "in entry: the arguments of the function; args[] has them with their types"),
    ("arg1", "in return: the result; args[1] has it with its type"),
    ("arg0", "in return: always 0"),
];

/// The entry of `fbt` in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "fbt",
    help: "functions of the kernel and its modules, under the names that they have in the source",
    probes: PROBES,
    args: ARGS,
};

/// The entry of `rawfbt` in the manual page.
pub(crate) const RAW_MANUAL: Manual = Manual {
    name: "rawfbt",
    help: "as fbt, and the parts and copies of functions that the compiler made (.isra.0, .part.0, .constprop.0), \
           whose arguments can differ from the source",
    probes: PROBES,
    args: ARGS,
};

/// True if the kernel's symbol table has a function of this name. Read only to explain an error.
fn is_function(system: &System, name: &str) -> bool {
    let mut symbols = system.symbols();
    symbols.symbols().any(|s| s.name == name && matches!(s.kind, 't' | 'T' | 'w' | 'W'))
}

impl Provider for Fbt {
    fn facts(&self) -> ProviderFacts {
        let a = |name, data, class| Attributes { name, data, class };
        let private = a(Stability::Private, Stability::Private, Class::Unknown);
        ProviderFacts {
            family: Family::one(self.name),
            has_errno: false,
            stability: ProviderStability {
                provider: a(Stability::Evolving, Stability::Evolving, Class::ISA),
                module: private,
                function: private,
                name: a(Stability::Evolving, Stability::Evolving, Class::ISA),
                args: a(Stability::Private, Stability::Private, Class::ISA),
            },
        }
    }

    fn calls(&self) -> Calls {
        Calls::Kernel
    }

    fn names(&self) -> Names {
        Names { only_by_provider: self.clones, ..Names::default() }
    }

    fn at_prompt(&self) {
        self.shared.at_prompt.store(true, Ordering::Relaxed);
    }

    fn attached_by(&self) -> &'static [Facility] {
        &[Facility::KprobeMulti, Facility::Fentry, Facility::KprobePerf]
    }

    fn probes(&self) -> &dyn ProbeSource {
        self
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        match &*probe.name {
            "entry" => args::at_entry(self.kernel(), &probe.module, &probe.function),
            _ => args::at_return(self.kernel(), &probe.module, &probe.function),
        }
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let method = method::choose(env).map_err(|why| format!("{}: {why}", self.name))?;
        method::confirm(method, probes.len(), env.single_attach_limit)?;
        let mut sides: [(Vec<&EnabledProbe>, Vec<Function<'_>>); 2] = Default::default();
        let later = lock(&self.later);
        let find = |id: u32| {
            let listed = id.checked_sub(env.first).and_then(|at| self.function(at));
            listed.or_else(|| later.iter().find_map(|l| l.function(id)))
        };
        for probe in probes {
            let Some((function, on_return)) = find(probe.id.0) else {
                return Err(format!("{}: not one of the kernel's functions", probe.desc));
            };
            let (side, called) = &mut sides[usize::from(on_return)];
            side.push(probe);
            called.push(function);
        }
        // Entries and returns together, so that the kernel's code is read once.
        let all: Vec<Function<'_>> = sides.iter().flat_map(|(_, called)| called.iter().copied()).collect();
        let mut addresses = entries::of(&all, &self.shared.system).into_iter();
        let mut units = Vec::new();
        for (on_return, (side, called)) in [false, true].into_iter().zip(sides) {
            if side.is_empty() {
                continue;
            }
            let many = side.iter().filter(|p| p.sets_result).count() > 1;
            let mut groups: Vec<(FunctionMethod, Vec<(Site, &EnabledProbe)>)> = Vec::new();
            for ((probe, function), address) in side.into_iter().zip(called).zip(addresses.by_ref()) {
                let (method, btf) = match probe
                    .sets_result
                    .then(|| method::modify_return_target(self.kernel(), &function, env))
                {
                    None => method::of_function(method, self.kernel(), &function, address, env),
                    Some(Ok(id)) => (FunctionMethod::Modify, id),
                    // Of many functions, those whose result cannot be set are left out.
                    Some(Err(_)) if many => (FunctionMethod::Modify, 0),
                    Some(Err(why)) => return Err(format!("return( ) in {}: {why}", probe.desc)),
                };
                let site = |index| Site { index, address, btf, symbol: None, probe: probe.desc.clone() };
                match groups.iter_mut().find(|(m, _)| *m == method) {
                    Some((_, group)) => group.push((site(group.len() as u32), probe)),
                    None => groups.push((method, vec![(site(0), probe)])),
                }
            }
            units.extend(groups.into_iter().map(|(method, group)| self.unit(method, on_return, group)));
        }
        Ok(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_modules_are_forgotten_when_all_that_came_together_were_unloaded() {
        let set = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<BTreeSet<String>>();
        let [fbt, _] = both(&System::live());
        assert!(fbt.shared.list.set(Ok(List::of("vfs_read\nvfs_write\n".into()))).is_ok());
        let list = List::of("first\t[a]\nsecond\t[b]\n".into());
        *lock(&fbt.shared.loaded) = Some((1, Arc::new(list)));
        let (modules, none) = (set(&["a", "b", "without"]), set(&[]));
        let loaded = LoadedModules { modules: &modules, unloaded: &none, sequence: 1, first_id: 100 };
        let names: Vec<String> = fbt.added(&loaded).iter().map(ProbeDesc::to_string).collect();
        assert_eq!(
            names,
            ["fbt:a:first:entry", "fbt:a:first:return", "fbt:b:second:entry", "fbt:b:second:return"]
        );
        let removed = |names: &[&str]| {
            let modules = set(names);
            let patterns = fbt.removed(&UnloadedModules { modules: &modules, sequence: 2 });
            patterns.into_iter().map(|p| p.module).collect::<Vec<_>>()
        };
        assert_eq!(removed(&["without"]), [""; 0]);
        assert_eq!(removed(&["a"]), ["a"]);
        assert_eq!(lock(&fbt.later).len(), 1, "functions of b may be planned");
        assert_eq!(removed(&["b"]), ["b"]);
        assert!(lock(&fbt.later).is_empty() && lock(&fbt.shared.loaded).is_none());
        assert_eq!(removed(&["a", "b"]), [""; 0]);
    }
}
