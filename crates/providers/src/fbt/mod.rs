//! `fbt` and `rawfbt`: entry and return of every function that the kernel lets be traced.
//!
//! `rawfbt` has all of them; `fbt` those whose name is that of the source. What the compiler copied or cut out
//! (`vfs_read.isra.0`, `.part.0`, `.constprop.0`) need not have the arguments of the source.
//!
//! All functions hang on one link an end (`kprobe_multi`, by address): a firing knows its probe by the link's cookie. The
//! addresses keep functions of one name apart.

mod args;
mod context;
mod entries;
mod functions;
mod means;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use probes::{
    Args, Attributes, Class, MatchError, Pattern, ProbeDesc, ProviderFacts, ProviderStability, Stability,
    glob_matches,
};
use types::btf::KernelBtf;

use crate::registry::{EnabledProbe, Env, Provider};
use crate::sites::{Means, Site, Sites};
use crate::unit::{Attach, Role, Unit};
use context::{ByRegisters, ByTrampoline};
use functions::Function;

/// What `fbt` and `rawfbt` share: the list, read when the first of them needs it.
#[derive(Default)]
pub(crate) struct Shared {
    functions: OnceCell<Result<Vec<Function>, String>>,
}

impl Shared {
    fn functions(&self) -> Result<&[Function], &str> {
        let list = self.functions.get_or_init(functions::read);
        list.as_deref().map_err(String::as_str)
    }
}

/// One of the two providers.
pub(crate) struct Fbt {
    name: &'static str,
    /// Clones are among its functions.
    clones: bool,
    shared: Rc<Shared>,
    kernel: Arc<KernelBtf>,
    /// Number of its function and end, by its place in the list.
    places: OnceCell<Vec<(u32, bool)>>,
}

const NAMES: [&str; 2] = ["entry", "return"];

/// `fbt` and `rawfbt`.
pub(crate) fn both(kernel: &Arc<KernelBtf>) -> [Fbt; 2] {
    let shared = Rc::new(Shared::default());
    [("fbt", false), ("rawfbt", true)].map(|(name, clones)| Fbt {
        name,
        clones,
        shared: shared.clone(),
        kernel: kernel.clone(),
        places: OnceCell::new(),
    })
}

impl Fbt {
    fn places(&self) -> &[(u32, bool)] {
        self.places.get_or_init(|| {
            let functions = self.shared.functions().unwrap_or_default();
            let mine = (0..).zip(functions).filter(|(_, f)| self.clones || !f.is_clone());
            let ends = |(at, f): (u32, &Function)| {
                std::iter::once((at, false)).chain(f.returns().then_some((at, true)))
            };
            mine.flat_map(ends).collect()
        })
    }
}

impl Fbt {
    fn unit(&self, means: Means, on_return: bool, group: Vec<(Site, &EnabledProbe)>) -> Unit {
        let single = group.len() == 1;
        let (sites, probes): (Vec<Site>, Vec<&EnabledProbe>) = group.into_iter().unzip();
        Unit {
            name: format!("{}_{}", self.name, NAMES[usize::from(on_return)]),
            role: Role::Probe,
            space: sites.len() as u32,
            probes: (0..).zip(probes.into_iter().cloned()).collect(),
            context: match means {
                Means::Fentry => Rc::new(ByTrampoline { on_return, single }),
                Means::Multi | Means::Kprobe => Rc::new(ByRegisters { on_return, single }),
            },
            attach: Attach::Sites(Rc::new(Sites { means, on_return, sites })),
            interrupts: true,
        }
    }
}

impl Provider for Fbt {
    fn facts(&self) -> ProviderFacts {
        let a = |name, data, class| Attributes { name, data, class };
        let private = a(Stability::Private, Stability::Private, Class::Unknown);
        ProviderFacts {
            name: self.name.into(),
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

    fn may_match(&self, pattern: &Pattern) -> bool {
        NAMES.iter().any(|n| glob_matches(&pattern.name, n))
    }

    fn list(&self) -> Vec<ProbeDesc> {
        let functions = self.shared.functions().unwrap_or_default();
        let provider: Arc<str> = self.name.into();
        let names = NAMES.map(Arc::<str>::from);
        let probe = |(at, on_return): &(u32, bool)| {
            let f = functions.get(*at as usize)?;
            let name = names[usize::from(*on_return)].clone();
            Some(ProbeDesc::new(provider.clone(), f.module.clone(), f.name.clone(), name))
        };
        self.places().iter().filter_map(probe).collect()
    }

    fn missing(&self) -> Option<MatchError> {
        let why = self.shared.functions().err()?;
        Some(MatchError {
            message: format!("this kernel does not say which functions can be traced: {why}"),
            help: None,
        })
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        match &*probe.name {
            "entry" => args::at_entry(&self.kernel, &probe.module, &probe.function),
            _ => args::at_return(&self.kernel, &probe.module, &probe.function),
        }
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let means = means::choose(env).map_err(|why| format!("{}: {why}", self.name))?;
        means::confirm(means, probes.len(), env.one_by_one)?;
        let functions = self.shared.functions()?;
        let mut units = Vec::new();
        for on_return in [false, true] {
            let mut side: Vec<&EnabledProbe> = Vec::new();
            let mut called: Vec<&Function> = Vec::new();
            for probe in probes {
                let place = probe.id.0.checked_sub(env.first).and_then(|at| self.places().get(at as usize));
                let function = place.and_then(|(function, _)| functions.get(*function as usize));
                let (Some((_, end)), Some(function)) = (place, function) else {
                    return Err(format!("{}: not one of the kernel's functions", probe.desc));
                };
                if *end == on_return {
                    called.push(function);
                    side.push(probe);
                }
            }
            if side.is_empty() {
                continue;
            }
            let addresses = entries::of(&called);
            let mut groups: Vec<(Means, Vec<(Site, &EnabledProbe)>)> = Vec::new();
            for ((probe, function), address) in side.into_iter().zip(called).zip(addresses) {
                let (means, btf) = means::of_function(means, &self.kernel, function, address, env);
                let site = (Site { address, btf, probe: probe.desc.clone() }, probe);
                match groups.iter_mut().find(|(m, _)| *m == means) {
                    Some((_, group)) => group.push(site),
                    None => groups.push((means, vec![site])),
                }
            }
            units.extend(groups.into_iter().map(|(means, group)| self.unit(means, on_return, group)));
        }
        Ok(units)
    }
}
