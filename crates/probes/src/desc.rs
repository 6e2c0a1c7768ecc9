//! Probe descriptions: the four names of a probe, and the four globs that select probes.

use std::fmt;
use std::sync::Arc;

use crate::glob::{glob_matches, is_glob};

/// Names of the fields in order, as messages call them.
pub const FIELD_NAMES: [&str; 4] = ["provider", "module", "function", "name"];
/// Longest field, its NUL included.
pub const FIELD_LIMITS: [usize; 4] = [64, 64, 192, 64];

/// A field of a probe description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldKind {
    /// First.
    Provider,
    /// Second.
    Module,
    /// Third.
    Function,
    /// Fourth.
    Name,
}

/// The four names of a probe. Provider and name are never empty; module and function may be. A kernel has a hundred thousand
/// probes with few providers, modules and names: these are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeDesc {
    /// `syscall`
    pub provider: Arc<str>,
    /// `vmlinux`
    pub module: Arc<str>,
    /// `read`
    pub function: Arc<str>,
    /// `entry`
    pub name: Arc<str>,
}

impl ProbeDesc {
    /// The probe of these names.
    pub fn new(
        provider: impl Into<Arc<str>>,
        module: impl Into<Arc<str>>,
        function: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            provider: provider.into(),
            module: module.into(),
            function: function.into(),
            name: name.into(),
        }
    }

    /// The fields in order.
    pub fn fields(&self) -> [&str; 4] {
        [&self.provider, &self.module, &self.function, &self.name]
    }

    /// One of them.
    pub fn field(&self, field: FieldKind) -> &Arc<str> {
        match field {
            FieldKind::Provider => &self.provider,
            FieldKind::Module => &self.module,
            FieldKind::Function => &self.function,
            FieldKind::Name => &self.name,
        }
    }

    /// Position in the flow of a function, by its name: -1 return, 1 entry, 0 neither.
    pub fn flow(&self) -> i8 {
        let is = |word: &str| {
            *self.name == *word || self.name.strip_suffix(word).is_some_and(|rest| rest.ends_with('-'))
        };
        i8::from(is("entry")) - i8::from(is("return"))
    }
}

impl fmt::Display for ProbeDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.provider, self.module, self.function, self.name)
    }
}

/// Why a text is no description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescError {
    /// More fields than there are from this side.
    Overspecified,
    /// A field is longer than [`FIELD_LIMITS`] allow.
    TooLong(FieldKind),
    /// A field holds `/`.
    Slash(FieldKind),
}

impl fmt::Display for DescError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescError::Overspecified => write!(f, "Overspecified probe description"),
            DescError::TooLong(kind) => {
                let at = *kind as usize;
                write!(f, "Probe {} is longer than {} characters", FIELD_NAMES[at], FIELD_LIMITS[at] - 1)
            }
            DescError::Slash(kind) => {
                write!(f, "Probe {} may not contain a \"/\"", FIELD_NAMES[*kind as usize])
            }
        }
    }
}

/// Four globs; an empty one matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    /// Glob of the provider.
    pub provider: String,
    /// Glob of the module.
    pub module: String,
    /// Glob of the function.
    pub function: String,
    /// Glob of the name.
    pub name: String,
}

impl Pattern {
    /// Reads a description; with fewer than four fields the last one is `last` (`Name` in a clause, `Function` for
    /// `-f`, and so on) and the others stand to its left.
    pub fn parse(text: &str, last: FieldKind) -> Result<Pattern, DescError> {
        let parts: Vec<&str> = text.split(':').collect();
        let last = last as usize;
        let mut fields = [""; 4];
        // `a:b:c:d` is complete whatever the form, except that it may not reach beyond the form's last field.
        if parts.len() > last + 1 {
            return Err(DescError::Overspecified);
        }
        let start = last + 1 - parts.len();
        fields[start..=last].copy_from_slice(&parts);
        Pattern::from_fields(fields)
    }

    /// The pattern of four fields.
    pub fn from_fields(fields: [&str; 4]) -> Result<Pattern, DescError> {
        const KINDS: [FieldKind; 4] =
            [FieldKind::Provider, FieldKind::Module, FieldKind::Function, FieldKind::Name];
        for (at, kind) in KINDS.into_iter().enumerate() {
            if fields[at].len() >= FIELD_LIMITS[at] {
                return Err(DescError::TooLong(kind));
            }
            if fields[at].contains('/') {
                return Err(DescError::Slash(kind));
            }
        }
        let [provider, module, function, name] = fields.map(String::from);
        Ok(Pattern { provider, module, function, name })
    }

    /// The pattern that matches one probe alone (glob characters in its names are escaped).
    pub fn exact(probe: &ProbeDesc) -> Pattern {
        let escape = |s: &str| {
            s.chars().flat_map(|c| is_glob(&c.to_string()).then_some('\\').into_iter().chain([c])).collect()
        };
        Pattern {
            provider: escape(&probe.provider),
            module: escape(&probe.module),
            function: escape(&probe.function),
            name: escape(&probe.name),
        }
    }

    /// The globs in order.
    pub fn fields(&self) -> [&str; 4] {
        [&self.provider, &self.module, &self.function, &self.name]
    }

    /// True when the probe's names match.
    pub fn matches(&self, probe: &ProbeDesc) -> bool {
        self.fields().iter().zip(probe.fields()).all(|(glob, text)| glob_matches(glob, text))
    }

    /// True when a provider of this name can have probes for it.
    pub fn matches_provider(&self, provider: &str) -> bool {
        glob_matches(&self.provider, provider)
    }

    /// True when the provider field says which providers are meant: it has more than wildcards that match everything.
    pub fn names_provider(&self) -> bool {
        self.provider.contains(|c| c != '*' && c != '?')
    }

    /// True when no field has a glob character or is empty where a name must stand, so that a provider may make the
    /// probe it names.
    pub fn is_specific(&self) -> bool {
        !self.name.is_empty() && !self.fields().iter().any(|f| is_glob(f))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.provider, self.module, self.function, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // row description.right-aligned, description.empty-field
    #[test]
    fn fields_are_aligned_to_the_right() {
        let p = |text, last| Pattern::parse(text, last).unwrap().to_string();
        assert_eq!(p("BEGIN", FieldKind::Name), ":::BEGIN");
        assert_eq!(p("read:entry", FieldKind::Name), "::read:entry");
        assert_eq!(p("syscall::read:entry", FieldKind::Name), "syscall::read:entry");
        assert_eq!(p("syscall:::", FieldKind::Name), "syscall:::");
        assert_eq!(p("", FieldKind::Name), ":::");
        assert_eq!(p("read", FieldKind::Function), "::read:");
        assert_eq!(p("syscall::read", FieldKind::Function), "syscall::read:");
        assert_eq!(p("syscall", FieldKind::Provider), "syscall:::");
    }

    // row description.overspecified
    #[test]
    fn wrong_descriptions_are_refused() {
        let e = |text: &str, last| Pattern::parse(text, last).unwrap_err();
        assert_eq!(e("a:b:c:d:e", FieldKind::Name), DescError::Overspecified);
        assert_eq!(e("a:b", FieldKind::Provider), DescError::Overspecified);
        assert_eq!(e(&"x".repeat(64), FieldKind::Name), DescError::TooLong(FieldKind::Name));
        assert_eq!(e("a/b:entry", FieldKind::Name), DescError::Slash(FieldKind::Function));
    }

    #[test]
    fn a_pattern_matches_by_field() {
        let read = ProbeDesc::new("syscall", "vmlinux", "read", "entry");
        for (text, expected) in [
            ("syscall::read:entry", true),
            ("syscall:::", true),
            (":::", true),
            ("syscall::*read*:entry", true),
            ("syscall::write:entry", false),
            ("entry", true),
            ("sys*::r[a-f]ad:e*", true),
        ] {
            assert_eq!(Pattern::parse(text, FieldKind::Name).unwrap().matches(&read), expected, "{text}");
        }
        assert_eq!(read.to_string(), "syscall:vmlinux:read:entry");
    }

    #[test]
    fn a_provider_is_named_by_more_than_wildcards() {
        let names = |text| Pattern::parse(text, FieldKind::Name).unwrap().names_provider();
        assert!(["fbt:::", "raw*:::", "*fbt:::", "[rs]*:::"].into_iter().all(names));
        assert!(!["read:entry", ":::", "*:::", "?*:::"].into_iter().any(names));
    }

    #[test]
    fn an_exact_pattern_escapes_globs() {
        let odd = ProbeDesc::new("p", "m", "operator*", "entry");
        let pattern = Pattern::exact(&odd);
        assert!(pattern.matches(&odd));
        assert!(!pattern.matches(&ProbeDesc::new("p", "m", "operatorx", "entry")));
    }

    #[test]
    fn flow_is_read_from_the_name() {
        let flow = |name| ProbeDesc::new("p", "", "f", name).flow();
        assert_eq!((flow("entry"), flow("return"), flow("query-entry"), flow("reentry")), (1, -1, 1, 0));
    }
}
