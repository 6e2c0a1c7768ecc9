//! Probe descriptions: the four names of a probe, and the four globs of a pattern.

use std::fmt;
use std::sync::Arc;

use diagnostics::glob::{glob_escape, glob_matches, is_glob};

/// The names of the fields in messages, in order.
pub const FIELD_NAMES: [&str; 4] = ["provider", "module", "function", "name"];
/// The maximum length of each field, including the terminating NUL.
pub const FIELD_LIMITS: [usize; 4] = [64, 64, 192, 64];

/// A field of a probe description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldKind {
    /// The first field.
    Provider,
    /// The second field.
    Module,
    /// The third field.
    Function,
    /// The fourth field.
    Name,
}

/// The four names of a probe. Provider and name are never empty; module and function may be. A
/// kernel has a hundred thousand probes with few distinct providers, modules and names, so the
/// strings are shared.
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
    /// The description with these names.
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

    /// One of the fields.
    pub fn field(&self, field: FieldKind) -> &Arc<str> {
        match field {
            FieldKind::Provider => &self.provider,
            FieldKind::Module => &self.module,
            FieldKind::Function => &self.function,
            FieldKind::Name => &self.name,
        }
    }

    /// The change of the call depth that `-F` shows, by the probe's name: 1 for entry, -1 for
    /// return, 0 otherwise.
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

/// Why a text is not a valid description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescError {
    /// More fields than the form allows.
    Overspecified,
    /// A field exceeds [`FIELD_LIMITS`].
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
    /// Parses a description. The last field given is `last` (`Name` in a clause, `Function` for
    /// `-f`, and so on), and the others are assigned to its left.
    pub fn parse(text: &str, last: FieldKind) -> Result<Pattern, DescError> {
        let parts: Vec<&str> = text.split(':').collect();
        let last = last as usize;
        let mut fields = [""; 4];
        // There are at most as many fields as the form has up to its last one.
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

    /// The pattern that matches exactly one probe. Glob characters in its names are escaped.
    pub fn exact(probe: &ProbeDesc) -> Pattern {
        let [provider, module, function, name] = probe.fields().map(glob_escape);
        Pattern { provider, module, function, name }
    }

    /// The globs in order.
    pub fn fields(&self) -> [&str; 4] {
        [&self.provider, &self.module, &self.function, &self.name]
    }

    /// True when the probe's names match.
    pub fn matches(&self, probe: &ProbeDesc) -> bool {
        // The fields in which probes of a list differ come first.
        glob_matches(&self.function, &probe.function)
            && glob_matches(&self.name, &probe.name)
            && glob_matches(&self.module, &probe.module)
            && glob_matches(&self.provider, &probe.provider)
    }

    /// True when the provider field restricts the providers: it has characters other than `*` and
    /// `?`.
    pub fn names_provider(&self) -> bool {
        self.provider.contains(|c| c != '*' && c != '?')
    }

    /// True when the name is given and no field has a glob character, so that a provider may create
    /// the probe.
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
    fn invalid_descriptions_are_rejected() {
        let e = |text: &str, last| Pattern::parse(text, last).unwrap_err();
        assert_eq!(e("a:b:c:d:e", FieldKind::Name), DescError::Overspecified);
        assert_eq!(e("a:b", FieldKind::Provider), DescError::Overspecified);
        assert_eq!(e(&"x".repeat(64), FieldKind::Name), DescError::TooLong(FieldKind::Name));
        assert_eq!(e("a/b:entry", FieldKind::Name), DescError::Slash(FieldKind::Function));
    }

    #[test]
    fn a_pattern_matches_when_each_of_its_fields_does() {
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
    fn a_pattern_of_wildcards_alone_names_no_provider() {
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
