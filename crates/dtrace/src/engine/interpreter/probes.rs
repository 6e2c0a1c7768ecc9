//! Probes that the caller gives.

use std::sync::Arc;

use ::probes::{
    ArgType, Args, Attributes, Family, MatchError, Pattern, ProbeDesc, ProviderFacts, ProviderStability,
};
use providers::{EnabledProbe, Env, FoundProbe, Names, ProbeSource, Provider, Unit};

/// A provider whose probes the caller lists: for programs whose probes this system does not have,
/// or shows only to root. It cannot be attached. A provider of the same name is replaced:
///
/// ```
/// # use dtrace::interpreter::GivenProbes;
/// # use dtrace::{Field, Macros, Provider, Source, options::Options};
/// let fbt = GivenProbes::new("fbt").probe("vmlinux", "vfs_read", "entry", &["struct file *", "char *", "size_t"]);
/// let source = Source::Specifier(Field::Name, "fbt::vfs_read:entry { @ = sum(args[2]); }".into());
/// let providers: Vec<Box<dyn Provider>> = vec![Box::new(fbt)];
/// # let mut options = Options::default();
/// let program = dtrace::compile_with(&dtrace::System::live(), &[source], &Macros::default(), &mut options, providers);
/// # assert_eq!(program.ok().unwrap().matched(0), 1);
/// ```
#[derive(Clone, Debug)]
pub struct GivenProbes {
    name: String,
    probes: Vec<(Arc<ProbeDesc>, Arc<[ArgType]>)>,
}

impl GivenProbes {
    /// A provider without probes.
    pub fn new(provider: &str) -> GivenProbes {
        GivenProbes { name: provider.into(), probes: Vec::new() }
    }

    /// Adds a probe, with the types of `args[]` in D.
    #[must_use]
    pub fn probe(mut self, module: &str, function: &str, name: &str, args: &[&str]) -> GivenProbes {
        let args = (0..).zip(args).map(|(n, ty)| ArgType::text(n, (*ty).to_owned())).collect();
        let desc = ProbeDesc::new(self.name.as_str(), module, function, name);
        self.probes.push((Arc::new(desc), args));
        self
    }
}

impl Provider for GivenProbes {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts {
            family: Family::one(self.name.as_str()),
            has_errno: true,
            stability: ProviderStability::uniform(Attributes::EVOLVING),
        }
    }

    fn names(&self) -> Names {
        Names { replaces: true, ..Names::default() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        self
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        let found = self.probes.iter().find(|(desc, _)| **desc == *probe);
        Ok(found.map_or_else(|| Arc::new([]) as Arc<[_]>, |(_, args)| args.clone()))
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let probe = probes.first().map(|p| p.desc.to_string()).unwrap_or_default();
        Err(format!("{probe} is a given probe, which the interpreter alone can fire"))
    }
}

impl ProbeSource for GivenProbes {
    fn positions(&self) -> u32 {
        u32::try_from(self.probes.len()).unwrap_or(u32::MAX)
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        for (at, (desc, _)) in (0..).zip(&self.probes) {
            if pattern.matches(desc) {
                give(FoundProbe::Listed(at, desc));
            }
        }
        Ok(())
    }

    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>> {
        self.probes.get(position as usize).map(|(desc, _)| desc.clone())
    }
}
