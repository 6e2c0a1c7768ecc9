//! Families: the names that a provider answers for.
//!
//! Most providers have one name. A provider of process probes has a name for each process: a prefix
//! and the process id in decimal digits (`pid123`, `postgresql4567`). The decision that shapes this
//! type: what follows the prefix is a number without leading zeros, and the prefix does not end
//! with a digit. So a name is in at most one way a prefix and a number, `pidgin` is no name of the
//! family `pid`, and two names of a family are equal exactly where their numbers are.
//!
//! One provider has the names of all prefixes that no other provider has: that of the probes which
//! programs bring along. Its family has no prefix of its own.

use std::fmt;
use std::sync::Arc;

use crate::desc::FIELD_LIMITS;
use diagnostics::glob::{glob_matches, glob_matches_number, is_glob};

/// Decimal digits of the greatest number.
const DIGITS: usize = 10;

/// The names of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Family {
    prefix: Arc<str>,
    numbered: bool,
}

impl Family {
    /// The family that has this name only.
    pub fn one(name: impl Into<Arc<str>>) -> Family {
        Family { prefix: name.into(), numbered: false }
    }

    /// The family of a prefix and a process id: `pid` has `pid1`, `pid2` and so on.
    pub fn of_processes(prefix: impl Into<Arc<str>>) -> Family {
        Family { prefix: prefix.into(), numbered: true }
    }

    /// The family of all names that are a prefix and a process id. Other families come before it:
    /// what is a name of one of them means that one's provider.
    pub fn of_any_processes() -> Family {
        Family { prefix: "".into(), numbered: true }
    }

    /// True if it has the names of all prefixes.
    pub fn is_of_any(&self) -> bool {
        self.numbered && self.prefix.is_empty()
    }

    /// What one of its names begins with. The name, if there is one only.
    pub fn prefix_of<'a>(&'a self, name: &'a str) -> &'a str {
        let own = || split(name).map(|(prefix, _)| prefix).or_else(|| of_all(name));
        match own().filter(|_| self.is_of_any()) {
            Some(prefix) => prefix,
            None => &self.prefix,
        }
    }

    /// What all its names begin with. The name, if there is one only.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// True if it has a name for each process.
    pub fn is_of_processes(&self) -> bool {
        self.numbered
    }

    /// Why it cannot be the family of a provider.
    pub fn check(&self) -> Result<(), String> {
        let longest = self.prefix.len() + if self.numbered { DIGITS } else { 0 };
        let bad = |why: &str| Err(format!("the provider name \"{}\" {why}", self.prefix));
        match &*self.prefix {
            "" if self.numbered => Ok(()),
            "" => bad("is empty"),
            _ if longest >= FIELD_LIMITS[0] => bad("is too long"),
            name if is_glob(name) || name.contains([':', '/']) => {
                bad("has a character that descriptions do not have")
            }
            name if self.numbered && name.ends_with(|c: char| c.is_ascii_digit()) => {
                bad("ends with a digit, but process ids follow it")
            }
            _ => Ok(()),
        }
    }

    /// True if it has this name.
    pub fn contains(&self, name: &str) -> bool {
        match name.strip_prefix(&*self.prefix) {
            _ if self.is_of_any() => split(name).is_some() || self.is_of_several(name),
            Some(rest) if self.numbered => number(rest).is_some() || self.is_of_several(name),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }

    /// True for the name of the provider of probes that fire in several processes: the prefix, and
    /// a glob of process ids (`pid*`, `pid12?`). In the family of all prefixes it is one of these
    /// and `*`.
    pub fn is_of_several(&self, name: &str) -> bool {
        if self.is_of_any() {
            return of_all(name).is_some();
        }
        let rest = name.strip_prefix(&*self.prefix).filter(|_| self.numbered);
        rest.is_some_and(is_glob) && self.matches(name)
    }

    /// The process id in one of its names.
    pub fn pid(&self, name: &str) -> Option<u32> {
        if self.is_of_any() {
            return split(name).map(|(_, pid)| pid);
        }
        name.strip_prefix(&*self.prefix).filter(|_| self.numbered).and_then(number)
    }

    /// The name for a process. `None` if it has one name only, or those of all prefixes.
    pub fn name_of(&self, pid: u32) -> Option<String> {
        (self.numbered && !self.is_of_any()).then(|| format!("{}{pid}", self.prefix))
    }

    /// Its name that has the process id of another name. Its only name, if it has one only.
    pub fn name_like(&self, other: &str) -> Option<String> {
        if !self.numbered {
            return Some(self.prefix.to_string());
        }
        if self.is_of_any() {
            return None;
        }
        let digits = other.len() - other.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        number(other.get(other.len() - digits..)?).and_then(|pid| self.name_of(pid))
    }

    /// True if the provider field of a description matches one of its names.
    pub fn matches(&self, glob: &str) -> bool {
        match self.numbered {
            true if self.is_of_any() && is_glob(glob) => {
                // What ends a name is a digit.
                !glob.ends_with(|c: char| !c.is_ascii_digit() && !matches!(c, '*' | '?' | ']'))
            }
            true if self.is_of_any() => glob.is_empty() || self.contains(glob),
            true => glob_matches_number(glob, &self.prefix, DIGITS),
            false => glob_matches(glob, &self.prefix),
        }
    }

    /// True if a name can be in both.
    pub fn overlaps(&self, other: &Family) -> bool {
        match (self.numbered, other.numbered) {
            // What both have is the other's.
            _ if self.is_of_any() || other.is_of_any() => self.is_of_any() && other.is_of_any(),
            // No prefix ends with a digit, so a name of both has the same prefix.
            (true, true) => self.prefix == other.prefix,
            (_, false) => self.contains(&other.prefix),
            (false, true) => other.contains(&self.prefix),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_of_any() { "PROVIDER" } else { &self.prefix })?;
        if self.numbered { f.write_str("*") } else { Ok(()) }
    }
}

/// The number of decimal digits without leading zeros.
pub(crate) fn number(digits: &str) -> Option<u32> {
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let canonical = all && (digits.len() == 1 || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| canonical)
}

/// The prefix and the process id of a name. A glob is no name.
fn split(name: &str) -> Option<(&str, u32)> {
    let (prefix, digits) =
        name.split_at_checked(name.trim_end_matches(|c: char| c.is_ascii_digit()).len())?;
    let pid = number(digits)?;
    (!prefix.is_empty() && !is_glob(prefix)).then_some((prefix, pid))
}

/// The prefix in a name that means all processes.
fn of_all(name: &str) -> Option<&str> {
    let prefix = name.strip_suffix('*')?;
    let ends_with_digit = prefix.ends_with(|c: char| c.is_ascii_digit());
    (!prefix.is_empty() && !ends_with_digit && !is_glob(prefix)).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_of_processes_has_its_prefix_with_a_number() {
        let pid = Family::of_processes("pid");
        for (name, number) in [("pid1", Some(1)), ("pid0", Some(0)), ("pid4294967295", Some(u32::MAX))] {
            assert_eq!((pid.pid(name), pid.contains(name)), (number, true), "{name}");
        }
        for name in ["pid", "pidgin", "pid01", "pid1x", "pid+1", "pid-1", "pid4294967296", "rpid1", "pid1 "] {
            assert_eq!((pid.pid(name), pid.contains(name)), (None, false), "{name}");
        }
        assert_eq!((pid.name_of(42).as_deref(), pid.to_string().as_str()), (Some("pid42"), "pid*"));
        for name in ["pid*", "pid12?", "pid[1-3]*"] {
            assert!(pid.is_of_several(name) && pid.contains(name) && pid.pid(name).is_none(), "{name}");
        }
        for name in ["*", "p*", "pid1", "pid*x", "pid", ""] {
            assert!(!pid.is_of_several(name), "{name}");
        }
        let fbt = Family::one("fbt");
        assert!(fbt.contains("fbt") && !fbt.contains("fbt1") && fbt.pid("fbt1").is_none());
        assert_eq!((fbt.name_of(42), fbt.to_string()), (None, "fbt".into()));
        assert_eq!((pid.name_like("pdi12"), pid.name_like("pdi")), (Some("pid12".into()), None));
        assert_eq!(fbt.name_like("ftb12").as_deref(), Some("fbt"));
    }

    #[test]
    fn a_glob_matches_a_family_where_it_matches_one_of_its_names() {
        let pid = Family::of_processes("pid");
        for glob in
            ["", "*", "pid*", "p*1", "pid123", "pid[0-9]*", "*2*", "pid??", "?????", "pi[d-e]4*", "pid0"]
        {
            assert!(pid.matches(glob), "{glob}");
        }
        for glob in
            ["pid", "pidgin", "pid*x", "fbt*", "pid0?", "pid\\*", "pid[a-z]*", "??", "pid123456789012", "x*"]
        {
            assert!(!pid.matches(glob), "{glob}");
        }
        assert!(Family::one("fbt").matches("*bt") && !Family::one("fbt").matches("fbt1"));
    }

    #[test]
    fn a_glob_that_matches_a_name_matches_its_family() {
        let family = Family::of_processes("ab");
        let parts = ["a", "b", "*", "?", "1", "20", "[0-2]", "[!1]", "\\2", "ab", ""];
        let names: Vec<String> = (0..200u32).filter_map(|n| family.name_of(n)).collect();
        for n in 0..parts.len().pow(4) {
            let part = |k: u32| parts[n / parts.len().pow(k) % parts.len()];
            let glob: String = (0..4).map(part).collect();
            if names.iter().any(|name| glob_matches(&glob, name)) {
                assert!(family.matches(&glob), "{glob}");
            }
        }
    }

    #[test]
    fn a_family_of_all_prefixes_has_every_name_that_ends_with_a_process() {
        let any = Family::of_any_processes();
        for (name, prefix, pid) in [("a1", "a", 1), ("v2_34", "v2_", 34), ("libc-x20", "libc-x", 20)] {
            assert_eq!((any.pid(name), any.contains(name), any.prefix_of(name)), (Some(pid), true, prefix));
            assert!(any.matches(name));
        }
        for name in ["", "a", "12", "a01", "a1x", "syscall", "a4294967296"] {
            assert_eq!((any.pid(name), any.contains(name)), (None, false), "{name}");
        }
        for (glob, matches) in [
            ("", true),
            ("a*", true),
            ("a?", true),
            ("a[12]", true),
            ("*7", true),
            ("*x", false),
            ("a", false),
        ] {
            assert_eq!(any.matches(glob), matches, "{glob}");
        }
        for glob in ["*", "a1*", "a?", "[ab]*1", "a?*", "a**"] {
            assert!(!any.is_of_several(glob) && !any.contains(glob), "{glob}");
        }
        assert!(any.is_of_several("ab*") && any.contains("ab*") && any.pid("ab*").is_none());
        assert_eq!(any.prefix_of("ab*"), "ab");
        let pid = Family::of_processes("pid");
        assert!(!any.overlaps(&pid) && !pid.overlaps(&any) && any.overlaps(&any));
        assert_eq!(
            (any.name_of(1), any.name_like("pdi1"), any.to_string()),
            (None, None, "PROVIDER*".into())
        );
        assert!(any.check().is_ok() && !pid.is_of_any() && pid.prefix_of("pid1") == "pid");
    }

    #[test]
    fn families_overlap_where_a_name_is_in_both() {
        let (one, many) = (Family::one, Family::of_processes);
        assert!(many("pid").overlaps(&many("pid")) && one("fbt").overlaps(&one("fbt")));
        assert!(many("pid").overlaps(&one("pid7")) && one("pid7").overlaps(&many("pid")));
        assert!(!many("pid").overlaps(&one("pidgin")) && !one("pidgin").overlaps(&many("pid")));
        assert!(!many("pid").overlaps(&many("pidgin")) && !one("fbt").overlaps(&one("rawfbt")));
    }

    #[test]
    fn a_name_that_no_description_can_have_is_no_family() {
        let why = |f: Family| f.check().unwrap_err();
        assert!(why(Family::one("")).contains("is empty"));
        assert!(why(Family::one("a".repeat(64))).contains("too long"));
        assert!(why(Family::of_processes("a".repeat(54))).contains("too long"));
        assert!(why(Family::one("a*")).contains("a character"));
        assert!(why(Family::one("a:b")).contains("a character"));
        assert!(why(Family::of_processes("v2")).contains("ends with a digit"));
        assert!(Family::one("v2").check().is_ok() && Family::of_processes("a".repeat(53)).check().is_ok());
    }
}
