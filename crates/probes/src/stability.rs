//! Stability attributes: the stability of an interface's name and data, and its dependency class.

use std::fmt;

use crate::desc::Pattern;
use diagnostics::glob::is_glob;

macro_rules! levels {
    ($(#[$doc:meta])* $name:ident { $($variant:ident)* }) => {
        $(#[$doc])*
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($variant,)*
        }

        impl $name {
            /// Every level, lowest first.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The level's name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => stringify!($variant),)*
                }
            }

            /// The level of a name, in any case.
            pub fn from_name(word: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|level| level.name().eq_ignore_ascii_case(word))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

levels! {
    /// Stability levels, lowest first.
    Stability { Internal Private Obsolete External Unstable Evolving Stable Standard }
}

levels! {
    /// Dependency classes, narrowest first.
    Class { Unknown CPU Platform Group ISA Common }
}

/// The triple of an interface: stability of its name, of its data, and its dependency class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// The stability of the name.
    pub name: Stability,
    /// The stability of the data.
    pub data: Stability,
    /// The dependency class.
    pub class: Class,
}

impl Attributes {
    /// `Stable/Stable/Common`: most of D.
    pub const STABLE: Attributes = Attributes::new(Stability::Stable, Stability::Stable, Class::Common);
    /// `Evolving/Evolving/Common`.
    pub const EVOLVING: Attributes = Attributes::new(Stability::Evolving, Stability::Evolving, Class::Common);
    /// `Unstable/Unstable/Common`: a description without a provider.
    pub const UNSTABLE: Attributes = Attributes::new(Stability::Unstable, Stability::Unstable, Class::Common);
    /// `Private/Private/Unknown`: kernel symbols and types.
    pub const PRIVATE: Attributes = Attributes::new(Stability::Private, Stability::Private, Class::Unknown);

    /// The attributes with these components.
    pub const fn new(name: Stability, data: Stability, class: Class) -> Self {
        Self { name, data, class }
    }

    /// The minimum of each component: the attributes of an expression of both.
    #[must_use]
    pub fn min(self, other: Attributes) -> Attributes {
        Attributes {
            name: self.name.min(other.name),
            data: self.data.min(other.data),
            class: self.class.min(other.class),
        }
    }

    /// Parses `Evolving/Evolving/Common`, in any case.
    pub fn parse(text: &str) -> Option<Attributes> {
        let mut words = text.split('/');
        let out = Attributes {
            name: Stability::from_name(words.next()?)?,
            data: Stability::from_name(words.next()?)?,
            class: Class::from_name(words.next()?)?,
        };
        words.next().is_none().then_some(out)
    }

    /// True when no component is below `least` (`-xamin`).
    pub fn at_least(self, least: Attributes) -> bool {
        self.name >= least.name && self.data >= least.data && self.class >= least.class
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.name, self.data, self.class)
    }
}

/// The triples of a provider: of itself, its module, function and name fields, and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderStability {
    /// The provider.
    pub provider: Attributes,
    /// Module names.
    pub module: Attributes,
    /// Function names.
    pub function: Attributes,
    /// Probe names.
    pub name: Attributes,
    /// Arguments.
    pub args: Attributes,
}

impl ProviderStability {
    /// All five the same.
    pub const fn uniform(a: Attributes) -> Self {
        Self { provider: a, module: a, function: a, name: a, args: a }
    }

    /// The attributes of a description: the minimum over the fields that it states. Fields that are
    /// empty or globs are ignored. For a description without a provider, `facts` is `None` and the
    /// result is [`Attributes::UNSTABLE`].
    pub fn of_description(facts: Option<&ProviderStability>, pattern: &Pattern) -> Attributes {
        const OPEN: ProviderStability = ProviderStability::uniform(Attributes::UNSTABLE);
        let facts = facts.unwrap_or(&OPEN);
        let fields = [
            (&pattern.module, facts.module),
            (&pattern.function, facts.function),
            (&pattern.name, facts.name),
        ];
        let stated = fields.into_iter().filter(|(text, _)| !text.is_empty() && !is_glob(text));
        stated.fold(facts.provider, |least, (_, a)| least.min(a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_are_written_read_and_compared() {
        let evolving = Attributes::parse("Evolving/Stable/ISA").unwrap();
        assert_eq!(evolving.to_string(), "Evolving/Stable/ISA");
        assert_eq!(evolving.min(Attributes::PRIVATE), Attributes::PRIVATE);
        assert_eq!(evolving.min(Attributes::STABLE), evolving);
        assert!(!evolving.at_least(Attributes::STABLE));
        assert_eq!(Attributes::parse("evolving/STABLE/isa"), Some(evolving));
        assert!(Attributes::parse("Evolving/Stable").is_none());
        assert!(Attributes::parse("Evolving/Stable/ISA/x").is_none());
    }

    #[test]
    fn a_description_has_the_minimum_stability_of_its_stated_fields() {
        let facts = ProviderStability {
            module: Attributes::PRIVATE,
            ..ProviderStability::uniform(Attributes::EVOLVING)
        };
        let of = |text: &str, facts: Option<&ProviderStability>| {
            let pattern = Pattern::parse(text, crate::FieldKind::Name).unwrap();
            ProviderStability::of_description(facts, &pattern)
        };
        assert_eq!(of("io:::start", Some(&facts)), Attributes::EVOLVING);
        assert_eq!(of("io:genunix::start", Some(&facts)), Attributes::PRIVATE);
        assert_eq!(of("io:gen*::start", Some(&facts)), Attributes::EVOLVING);
        assert_eq!(of("BEGIN", None), Attributes::UNSTABLE);
    }
}
