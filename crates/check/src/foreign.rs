//! Words of scripts for other systems, and what Linux has instead.
//!
//! The table is [`foreign.txt`](../foreign.txt): one row a word. It is read only where a word means
//! nothing here, so nothing is prepared.

use diagnostics::glob::glob_matches;
use probes::Pattern;

const TABLE: &str = include_str!("foreign.txt");

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The provider of a description.
    Provider,
    /// The function of a description.
    Function,
    /// A provider of functions of the kernel.
    Functions,
    /// A system call: a function of the provider that the row of the next kind names.
    Call,
    /// The provider of system calls.
    Calls,
    /// An identifier, or a symbol of the kernel.
    Variable,
    /// A type.
    Type,
    /// A member of a struct.
    Member,
}

impl Kind {
    const ALL: [(Kind, &'static str); 8] = [
        (Kind::Provider, "provider"),
        (Kind::Function, "function"),
        (Kind::Functions, "functions"),
        (Kind::Call, "call"),
        (Kind::Calls, "calls"),
        (Kind::Variable, "variable"),
        (Kind::Type, "type"),
        (Kind::Member, "member"),
    ];
}

fn rows() -> impl Iterator<Item = (Kind, &'static str, &'static str)> {
    TABLE.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        let (kind, word, text) = (columns.next()?, columns.next()?, columns.next()?);
        let (kind, _) = Kind::ALL.into_iter().find(|(_, name)| *name == kind)?;
        Some((kind, word, text))
    })
}

/// What Linux has in the place of a word: a text for "help".
pub(crate) fn word(kind: Kind, word: &str) -> Option<String> {
    let (_, _, text) = rows().find(|(k, glob, _)| *k == kind && glob_matches(glob, word))?;
    Some(format!("a word of other systems; Linux has {text}"))
}

/// What Linux has in the place of a member, if `has` says that the type has what the row begins
/// with.
pub(crate) fn member(name: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let help = word(Kind::Member, name)?;
    let (_, text) = help.split_once('`')?;
    let first = text.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    has(first).then_some(help)
}

/// What Linux has in the place of a description.
pub(crate) fn description(pattern: &Pattern) -> Option<String> {
    let function = pattern.function.as_str();
    let has = |of: Kind| rows().any(|(kind, word, _)| kind == of && glob_matches(&pattern.provider, word));
    let is_call = has(Kind::Calls);
    let provider = pattern.provider.as_str();
    // Other providers have functions of processes and tracepoints, whose names mean something else.
    let is_function = provider.is_empty() || has(Kind::Functions);
    let of_function = || match function {
        "" | "*" => None,
        _ => (is_call && !provider.is_empty())
            .then(|| word(Kind::Call, function))
            .flatten()
            .or_else(|| is_function.then(|| word(Kind::Function, function)).flatten()),
    };
    let of_provider = || match provider {
        "" | "*" => None,
        _ => word(Kind::Provider, provider),
    };
    of_provider().or_else(of_function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_has_a_kind_a_word_and_a_text_and_no_word_twice() {
        let lines = TABLE.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
        assert_eq!(lines.count(), rows().count());
        assert!(rows().count() > 100);
        let mut seen = HashSet::new();
        for (kind, word, text) in rows() {
            assert!(seen.insert((kind.name(), word)), "{word}");
            assert!(!word.is_empty() && !word.contains(' '), "{word}");
            assert!(!text.is_empty() && !text.ends_with('.') && !text.contains(".."), "{word}: {text}");
            // A kernel symbol has a backquote of its own.
            let outside: String = text.split("``").step_by(2).collect();
            assert!(outside.matches('`').count().is_multiple_of(2), "{word}: {text}");
        }
    }

    #[test]
    fn no_row_is_hidden_by_a_row_before_it() {
        let all: Vec<_> = rows().collect();
        for (n, (kind, word, _)) in all.iter().enumerate() {
            let hides = |(k, glob, _): &&(Kind, &str, &str)| k == kind && glob_matches(glob, word);
            assert_eq!(all[..n].iter().find(hides), None, "{word}");
        }
    }

    #[test]
    fn a_member_is_proposed_to_a_type_that_has_it() {
        assert!(member("t_procp", |name| !name.is_empty()).is_some());
        assert_eq!(member("t_procp", |_| false), None);
        assert_eq!(member("no_such_member", |_| true), None);
    }

    #[test]
    fn descriptions_of_other_systems_are_known_by_their_provider_or_their_function() {
        let says = |fields: [&str; 4]| description(&Pattern::from_fields(fields).unwrap());
        let function = says(["fbt", "", "fop_read", "entry"]).unwrap();
        assert!(function.contains("`fsinfo:::read`"), "{function}");
        assert!(says(["fbt", "zfs", "zio_done", "return"]).unwrap().contains("zfs"));
        assert!(says(["syscall", "", "open_nocancel", "entry"]).unwrap().contains("arg1"));
        assert!(says(["vfs", "namei", "lookup", "entry"]).unwrap().contains("fsinfo"));
        assert!(says(["*", "", "fop_read", "entry"]).unwrap().contains("fsinfo"));
        assert_eq!(says(["pid1", "libc", "fop_read", "entry"]), None);
        assert_eq!(says(["spamd*", "", "", "start"]), None);
        assert_eq!(says(["fbt", "", "exec_binprm", "entry"]), None);
        assert_eq!(says(["fbt", "", "", "entry"]), None);
        assert_eq!(says(["fbt", "", "no_such_function_anywhere", "entry"]), None);
        assert_eq!(says(["", "", "", "BEGIN"]), None);
    }

    impl Kind {
        fn name(self) -> &'static str {
            Kind::ALL.iter().find(|(kind, _)| *kind == self).unwrap().1
        }
    }
}
