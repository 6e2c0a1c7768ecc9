//! The interface through which the checker queries probes.

use std::collections::BTreeSet;
use std::sync::Arc;

use diagnostics::Tag;
use types::TagKind;
use types::btf::Btf;

use crate::args::{ArgType, Args};
use crate::desc::{FieldKind, Pattern, ProbeDesc};
use crate::family::Family;
use crate::stability::{Attributes, ProviderStability};

/// The id of a probe, as `dtrace -l` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeId(pub u32);

/// A probe that a pattern matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeInfo {
    /// The id.
    pub id: ProbeId,
    /// The names, shared with the provider's list.
    pub desc: Arc<ProbeDesc>,
}

/// Properties that all probes of a provider share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderFacts {
    /// The names that it answers for.
    pub family: Family,
    /// True if `errno` is meaningful in its probes.
    pub has_errno: bool,
    /// The stability of its parts.
    pub stability: ProviderStability,
}

/// What the entry and return probes of a provider are the ends of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// Nothing: its probes are single events.
    #[default]
    None,
    /// System calls.
    System,
    /// Functions of the kernel.
    Kernel,
}

/// Why a pattern cannot be matched. (A pattern without matches is no error.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchError {
    /// The reason, in lower case: "invalid rate", "no permission to ...".
    pub message: String,
    /// Advice for the user.
    pub help: Option<String>,
    /// The tag of the error, if it has one of its own.
    pub tag: Option<Tag>,
    /// A matching probe may come later, so this is no error where descriptions need not match now.
    pub may_come: bool,
}

impl MatchError {
    /// An error without advice.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None, tag: None, may_come: false }
    }

    /// With advice.
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// With a tag of its own.
    pub fn tagged(self, tag: Tag) -> Self {
        Self { tag: Some(tag), ..self }
    }
}

/// The probes that a pattern matches, in the order of their ids.
pub type Matches = Result<Vec<ProbeInfo>, MatchError>;

/// A variable of a process.
#[derive(Clone, Debug)]
pub struct UserVariable {
    /// Its type.
    pub ty: (Arc<Btf>, u32),
    /// Where it is.
    pub place: VariablePlace,
}

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariablePlace {
    /// At this address of the process.
    Address(u64),
    /// So many bytes behind the beginning of the code of the program (`mm_struct.start_code`), in
    /// every process that runs it.
    BehindCode(u64),
}

/// The types and variables of a file that a process runs.
pub trait UserObject: std::fmt::Debug + Send + Sync {
    /// Identifies the file: types of one file are the same in all processes that run it.
    fn file(&self) -> u64;

    /// A struct, union, enum or (`None`) typedef. The error says why types are not known.
    fn find(&self, kind: Option<TagKind>, name: &str) -> Result<Option<(Arc<Btf>, u32)>, String>;

    /// A variable. The error says why types are not known.
    fn variable(&self, name: &str) -> Result<Option<UserVariable>, String>;

    /// Names that a misspelled one may have meant.
    fn like(&self, kind: Option<TagKind>, wrong: &str) -> Vec<String>;
}

/// What the file of a program says of a provider of its own. All of it is the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Identifies the text in a catalog: definitions with one text have one number.
    pub number: u32,
    /// The provider, without a process id.
    pub provider: String,
    /// The path of the file, of which there may be several.
    pub file: String,
    /// D: pragmas, types, inlines, translators and the provider block.
    pub text: Arc<str>,
}

/// All probes that exist or can be created. The crate `providers` implements it; tests use a list.
pub trait Catalog {
    /// The probes that a pattern matches; an empty list if there are none. Providers may create
    /// probes for a specific pattern.
    fn matches(&self, pattern: &Pattern) -> Matches;

    /// These patterns will be asked for next. A catalog may read what they need for all of them at
    /// once.
    fn announce(&self, patterns: &[Pattern]) {
        let _ = patterns;
    }

    /// The probes with names that a pattern matches which a library declares, and which do not
    /// exist on this system now. They may come with what they are derived from.
    fn absent(&self, pattern: &Pattern) -> Vec<ProbeInfo> {
        let _ = pattern;
        Vec::new()
    }

    /// The probe with an id.
    fn by_id(&self, id: ProbeId) -> Option<ProbeInfo>;

    /// The names of all providers.
    fn families(&self) -> Vec<Family>;

    /// True if the provider field of a pattern can match a provider.
    fn can_mean(&self, pattern: &Pattern, provider: &Family) -> bool {
        provider.matches(&pattern.provider)
    }

    /// True if a pattern can match probes of a family of processes, now or later.
    fn can_match_family(&self, pattern: &Pattern) -> bool {
        self.families().iter().any(|f| f.is_of_processes() && self.can_mean(pattern, f))
    }

    /// The properties of the provider that has this name.
    fn provider(&self, name: &str) -> Option<ProviderFacts>;

    /// What the entry and return probes of the provider of this name are the ends of.
    fn calls(&self, name: &str) -> Calls {
        let _ = name;
        Calls::None
    }

    /// The distinct values of a field of a provider's probes, for "did you mean".
    fn known(&self, provider: &Family, field: FieldKind) -> Vec<String>;

    /// The types of a file that the processes of a provider run (`a.out`, `libc`). `None` if the
    /// provider is not one of processes; the error says in words what is not there.
    fn object(&self, provider: &str, object: &str) -> Option<Result<Arc<dyn UserObject>, String>> {
        let _ = (provider, object);
        None
    }

    /// What the file that has a probe says of its provider.
    fn definition(&self, probe: &ProbeDesc) -> Option<Arc<Definition>> {
        let _ = probe;
        None
    }

    /// The types of a probe's `args[]`. Called only if a clause uses `args[n]` or a list prints
    /// types. A provider may therefore compute them lazily, and should cache results that thousands
    /// of probes share.
    fn args(&self, probe: &ProbeDesc) -> Args {
        let _ = probe;
        Ok(Arc::new([]))
    }
}

/// A catalog backed by a list, for tests and for compiling without a kernel.
#[derive(Clone, Debug, Default)]
pub struct ListCatalog {
    /// The probes, in the order of their ids.
    pub probes: Vec<ProbeInfo>,
    /// The providers.
    pub providers: Vec<ProviderFacts>,
    /// Arguments of probes.
    pub args: Vec<(ProbeDesc, Arc<[ArgType]>)>,
    /// Files that processes run, by the names of their providers and their own.
    pub objects: Vec<(String, String, Arc<dyn UserObject>)>,
}

impl ListCatalog {
    /// Adds a probe and, when it is the first of its provider, a provider of that name.
    pub fn add(&mut self, desc: ProbeDesc) -> &mut Self {
        if !self.providers.iter().any(|p| p.family.contains(&desc.provider)) {
            self.providers.push(ProviderFacts {
                family: Family::one(desc.provider.clone()),
                has_errno: &*desc.provider == "syscall",
                stability: ProviderStability::uniform(Attributes::STABLE),
            });
        }
        let id = ProbeId(self.probes.len() as u32 + 1);
        self.probes.push(ProbeInfo { id, desc: Arc::new(desc) });
        self
    }

    /// As [`ListCatalog::add`], with arguments.
    pub fn add_with(&mut self, desc: ProbeDesc, args: Vec<ArgType>) -> &mut Self {
        self.args.push((desc.clone(), args.into()));
        self.add(desc)
    }
}

impl Catalog for ListCatalog {
    fn matches(&self, pattern: &Pattern) -> Matches {
        Ok(self.probes.iter().filter(|p| pattern.matches(&p.desc)).cloned().collect())
    }

    fn by_id(&self, id: ProbeId) -> Option<ProbeInfo> {
        self.probes.iter().find(|p| p.id == id).cloned()
    }

    fn families(&self) -> Vec<Family> {
        self.providers.iter().map(|p| p.family.clone()).collect()
    }

    fn provider(&self, name: &str) -> Option<ProviderFacts> {
        self.providers.iter().find(|p| p.family.contains(name)).cloned()
    }

    fn calls(&self, name: &str) -> Calls {
        match name {
            "syscall" => Calls::System,
            "fbt" | "rawfbt" => Calls::Kernel,
            _ => Calls::None,
        }
    }

    fn known(&self, provider: &Family, field: FieldKind) -> Vec<String> {
        let of = self.probes.iter().filter(|p| provider.contains(&p.desc.provider));
        let all: BTreeSet<&str> = of.map(|p| &**p.desc.field(field)).filter(|f| !f.is_empty()).collect();
        all.into_iter().map(String::from).collect()
    }

    fn object(&self, provider: &str, object: &str) -> Option<Result<Arc<dyn UserObject>, String>> {
        let mut objects = self.objects.iter().filter(|(p, ..)| p == provider).peekable();
        objects.peek()?;
        let found = objects.find(|(_, name, _)| name == object).map(|(.., found)| found.clone());
        Some(found.ok_or_else(|| format!("{provider} runs no file \"{object}\"")))
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        let found = self.args.iter().find(|(desc, _)| desc == probe);
        Ok(found.map_or_else(|| Arc::new([]) as Arc<[ArgType]>, |(_, args)| args.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_probes_of_a_list() {
        let mut list = ListCatalog::default();
        list.add(ProbeDesc::new("dtrace", "", "", "BEGIN"))
            .add(ProbeDesc::new("syscall", "vmlinux", "read", "entry"));
        let matched = list.matches(&Pattern::parse("syscall:::", FieldKind::Name).unwrap()).unwrap();
        assert_eq!(matched.len(), 1);
        assert_eq!(matched[0].id, ProbeId(2));
        assert!(list.provider("syscall").unwrap().has_errno);
        assert_eq!(list.known(&Family::one("syscall"), FieldKind::Function), ["read"]);
    }
}
