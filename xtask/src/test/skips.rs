//! The skips that are expected of a machine: one checked-in list for each in `testing/skips`.
//!
//! ```text
//!  # a comment
//!  lacks raw_tp_cookie kprobe_multi            what `dtrace -vV` must report as missing, no more and no less
//!  fbt::functions_fire: does not list          the end of the test's name; a part of the reason
//!  ~order::rows_wait: ticks                    timing decides: the test may also run
//! ```
//!
//! A guest has the list of its kernel. The machine of the developer has the list with the same
//! missing facilities, if there is one. The skips of any other machine are derived from what it
//! lacks: `testing/skips/any` has the reasons, each with the facilities of which one must be
//! missing.
//!
//! ```text
//!  kprobe_multi fentry: does not list its functions      permitted where one of the two is missing
//!  -: in guests only                                     no matter of the kernel: permitted everywhere
//! ```
//!
//! "this kernel has no FACILITY" needs no line: it is permitted where the facility is missing.
//!
//! A skip that no line expects fails the run: a test that skips itself by mistake passes for ever.
//! So does a test that has run where a line expects its skip. Judged is what ran: in a guest, that
//! is what its turn was ([`super::rotation`]).

use std::fs;
use std::path::PathBuf;

use super::result::{Name, Outcome, Result};

/// A fallible result of this module: `Result` is that of a test.
type Fallible<T> = std::result::Result<T, String>;

/// The lists for machines that are no guests of the matrix.
const HOSTS: [&str; 1] = ["restricted"];

#[derive(Debug, Default, PartialEq)]
struct Line {
    /// The end of the test's path.
    test: String,
    /// A part of the reason.
    reason: String,
    /// Timing decides whether the test runs.
    sometimes: bool,
}

impl Line {
    /// Whether it is about a test: its name in its program, with the crate or the test target
    /// before it.
    fn is_of(&self, name: &Name) -> bool {
        let is_end =
            |path: &str| path.strip_suffix(&self.test).is_some_and(|p| p.is_empty() || p.ends_with("::"));
        let prefixes = name.program.split(':').map(|part| part.replace('-', "_"));
        is_end(&name.test) || prefixes.into_iter().any(|prefix| is_end(&format!("{prefix}::{}", name.test)))
    }

    fn expects(&self, name: &Name, reason: &str) -> bool {
        self.is_of(name) && reason.contains(&self.reason)
    }
}

/// The skips among results.
fn skips(results: &[Result]) -> impl Iterator<Item = (&Name, &str)> {
    results.iter().filter_map(|result| match &result.outcome {
        Outcome::Skipped(reason) => Some((&result.name, reason.as_str())),
        _ => None,
    })
}

/// A list.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) name: String,
    lacks: Vec<String>,
    lines: Vec<Line>,
}

/// Fails if a list cannot be read.
pub(crate) fn check() -> Fallible<()> {
    for name in crate::kernels::NAMES.into_iter().chain(["lockdown"]).chain(HOSTS) {
        Expected::load(name)?;
    }
    Permitted::load().map(|_| ())
}

fn path(name: &str) -> PathBuf {
    crate::root().join("testing/skips").join(name)
}

impl Expected {
    /// The list of this name.
    pub(crate) fn load(name: &str) -> Fallible<Expected> {
        let path = path(name);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Expected::parse(name, &text)
    }

    /// The list of a host that lacks these facilities.
    pub(crate) fn of_host(lacks: &[String]) -> Fallible<Option<Expected>> {
        for name in HOSTS {
            let list = Expected::load(name)?;
            if same(&list.lacks, lacks) {
                return Ok(Some(list));
            }
        }
        Ok(None)
    }

    fn parse(name: &str, text: &str) -> Fallible<Expected> {
        let mut list = Expected { name: name.into(), ..Expected::default() };
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if let Some(lacks) = line.strip_prefix("lacks ") {
                list.lacks.extend(lacks.split_whitespace().map(String::from));
                continue;
            }
            let (test, reason) =
                line.split_once(": ").ok_or_else(|| format!("testing/skips/{name}: no reason: {line}"))?;
            let sometimes = test.starts_with('~');
            let test = test.trim_start_matches('~').into();
            list.lines.push(Line { test, reason: reason.trim().into(), sometimes });
        }
        Ok(list)
    }

    /// What differs between the list and what ran on the machine, one breach a line.
    pub(crate) fn breaches(&self, results: &[Result], lacks: Option<&[String]>) -> Vec<String> {
        let mut breaches = Vec::new();
        if let Some(lacks) = lacks
            && !same(&self.lacks, lacks)
        {
            breaches.push(format!("it lacks {}; expected: {}", lacks.join(" "), self.lacks.join(" ")));
        }
        for (name, reason) in skips(results) {
            if !self.lines.iter().any(|line| line.expects(name, reason)) {
                breaches.push(format!("unexpected skip of {name}: {reason}"));
            }
        }
        for line in self.lines.iter().filter(|l| !l.sometimes) {
            let has_run = results.iter().any(|r| line.is_of(&r.name) && !r.has_failed());
            if has_run && !skips(results).any(|(name, reason)| line.expects(name, reason)) {
                breaches.push(format!("{} was not skipped (\"{}\")", line.test, line.reason));
            }
        }
        breaches
    }

    /// Writes the list anew from what ran. Lines of tests that did not run stay, as do those whose
    /// skip depends on timing.
    pub(crate) fn update(name: &str, results: &[Result], lacks: Option<&[String]>) -> Fallible<()> {
        let path = path(name);
        let old = fs::read_to_string(&path).unwrap_or_default();
        let list = Expected::parse(name, &old)?;
        let mut text: String = old.lines().filter(|l| l.starts_with('#')).map(|l| format!("{l}\n")).collect();
        text.push_str(&format!("lacks {}\n", lacks.unwrap_or(&list.lacks).join(" ")));
        let stays = |line: &&Line| {
            line.sometimes
                || !results.iter().any(|r| line.is_of(&r.name))
                || skips(results).any(|(name, reason)| line.expects(name, reason))
        };
        for line in list.lines.iter().filter(stays) {
            let mark = if line.sometimes { "~" } else { "" };
            text.push_str(&format!("{mark}{}: {}\n", line.test, line.reason));
        }
        for (name, reason) in skips(results) {
            if !list.lines.iter().any(|line| line.expects(name, reason)) {
                let test = name.test.strip_prefix("e2e::").unwrap_or(&name.test);
                text.push_str(&format!("{test}: {reason}\n"));
            }
        }
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Which skips a machine may make that has no list.
#[derive(Debug, Default)]
pub(crate) struct Permitted {
    /// Facilities, none for a reason that has nothing to do with the kernel, and a part of the
    /// reason.
    lines: Vec<(Vec<String>, String)>,
}

impl Permitted {
    pub(crate) fn load() -> Fallible<Permitted> {
        let path = path("any");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Permitted::parse(&text)
    }

    fn parse(text: &str) -> Fallible<Permitted> {
        let mut lines = Vec::new();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (facilities, reason) =
                line.split_once(": ").ok_or_else(|| format!("testing/skips/any: no reason: {line}"))?;
            let facilities = facilities.split_whitespace().filter(|f| *f != "-").map(String::from).collect();
            lines.push((facilities, reason.trim().into()));
        }
        Ok(Permitted { lines })
    }

    /// Whether a machine that lacks these facilities may skip for this reason.
    fn permits(&self, reason: &str, lacks: &[String]) -> bool {
        let missing = |facility: &str| lacks.iter().any(|l| l == facility);
        if let Some((_, rest)) = reason.split_once("this kernel has no ") {
            let facility: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if missing(&facility) {
                return true;
            }
        }
        let mut fitting = self.lines.iter().filter(|(_, part)| reason.contains(part.as_str()));
        fitting.any(|(facilities, _)| facilities.is_empty() || facilities.iter().any(|f| missing(f)))
    }

    /// The skips of a machine that its missing facilities do not explain, one a line.
    pub(crate) fn breaches(&self, results: &[Result], lacks: &[String]) -> Vec<String> {
        let unexplained = skips(results).filter(|(_, reason)| !self.permits(reason, lacks));
        let lacks = lacks.join(" ");
        unexplained
            .map(|(name, reason)| format!("unexpected skip of {name}: {reason} (the machine lacks {lacks})"))
            .collect()
    }
}

fn same(a: &[String], b: &[String]) -> bool {
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    sorted(a) == sorted(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# a machine\nlacks a b\nfbt::calls: does not list\n~order::rows: ticks\n";

    fn result(test: &str, outcome: Outcome) -> Result {
        let name = Name { program: "cli:e2e".into(), test: test.into() };
        Result { name, outcome, seconds: 0.1, repeated: Vec::new() }
    }

    /// In them both tests of the list have run, or skipped themselves.
    fn results(skips: &[(&str, &str)]) -> Vec<Result> {
        let mut all: Vec<Result> =
            skips.iter().map(|(test, reason)| result(test, Outcome::Skipped((*reason).into()))).collect();
        for test in ["e2e::fbt::calls", "e2e::order::rows"] {
            if !skips.iter().any(|(skipped, _)| *skipped == test) {
                all.push(result(test, Outcome::Passed));
            }
        }
        all
    }

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|l| (*l).to_owned()).collect()
    }

    #[test]
    fn a_run_with_the_skips_of_its_list_has_no_breach() -> Fallible<()> {
        let list = Expected::parse("x", LIST)?;
        let calls = ("e2e::fbt::calls", "the kernel does not list its functions");
        assert_eq!(list.breaches(&results(&[calls]), Some(&words(&["b", "a"]))), [""; 0]);
        let both = results(&[calls, ("e2e::order::rows", "3 ticks")]);
        assert_eq!(list.breaches(&both, Some(&words(&["a", "b"]))), [""; 0]);
        Ok(())
    }

    #[test]
    fn unexpected_and_missing_skips_and_facilities_are_breaches() -> Fallible<()> {
        let list = Expected::parse("x", LIST)?;
        let calls = ("e2e::fbt::calls", "the kernel does not list its functions");
        let other = ("e2e::fbt::other", "the kernel does not list its functions");
        let reason = ("e2e::order::rows", "no clock");
        for (lacks, skips, breach) in [
            (&["a", "b"][..], &[calls, other][..], "unexpected skip of cli:e2e e2e::fbt::other"),
            (&["a", "b"], &[calls, reason], "unexpected skip of cli:e2e e2e::order::rows: no clock"),
            (&["a", "b"], &[], "fbt::calls was not skipped"),
            (&["a"], &[calls], "it lacks a; expected: a b"),
        ] {
            let breaches = list.breaches(&results(skips), Some(&words(lacks)));
            assert!(breaches.len() == 1 && breaches[0].starts_with(breach), "{breaches:?}");
        }
        // It did not run at all.
        assert_eq!(list.breaches(&[], Some(&words(&["a", "b"]))), [""; 0]);
        // The name of another test that ends the same way is another test.
        assert!(Expected::parse("x", "lacks\ncalls: none\n").is_err());
        let list = Expected::parse("x", "calls: none\n")?;
        let skipped = result("e2e::all_calls", Outcome::Skipped("none".into()));
        let all = [skipped, result("calls", Outcome::Passed)];
        assert_eq!(list.breaches(&all, None).len(), 2);
        Ok(())
    }

    #[test]
    fn a_line_may_begin_with_the_crate_or_the_target_of_a_test() -> Fallible<()> {
        let list = Expected::parse("x", "files::real::tests::a: none\nunwind::b: none\n")?;
        let name = |program: &str, test: &str| Name { program: program.into(), test: test.into() };
        let lines = &list.lines;
        assert!(
            lines[0].is_of(&name("files", "real::tests::a"))
                && !lines[0].is_of(&name("proc", "real::tests::a"))
        );
        assert!(
            lines[1].is_of(&name("bpf-runtime:unwind", "b"))
                && !lines[1].is_of(&name("bpf-runtime:big", "b"))
        );
        Ok(())
    }

    #[test]
    fn a_skip_is_permitted_where_the_facility_is_missing_that_it_needs() -> Fallible<()> {
        let permitted = Permitted::parse("# any\na b: does not list\n-: in guests only\n")?;
        let lacks = words;
        for (reason, missing, is) in [
            ("the kernel does not list its functions", &["b"][..], true),
            ("the kernel does not list its functions", &["c"], false),
            ("this kernel has no sleepable_calls: refused", &["sleepable_calls"], true),
            ("this kernel has no sleepable_calls: refused", &["sleepable"], false),
            ("slows the machine down: in guests only", &[], true),
            ("something else", &["a", "b"], false),
        ] {
            assert_eq!(permitted.permits(reason, &lacks(missing)), is, "{reason}");
            let skipped = result("e2e::x", Outcome::Skipped(reason.into()));
            assert_eq!(permitted.breaches(&[skipped], &lacks(missing)).len(), usize::from(!is));
        }
        Ok(())
    }

    /// What the known machines skip would be permitted without their lists.
    #[test]
    fn the_skips_of_every_list_are_explained_by_what_it_lacks() -> Fallible<()> {
        let permitted = Permitted::load()?;
        for name in crate::kernels::NAMES.into_iter().chain(["lockdown"]).chain(HOSTS) {
            let list = Expected::load(name)?;
            for line in &list.lines {
                assert!(
                    permitted.permits(&line.reason, &list.lacks),
                    "{name}: {}: {}",
                    line.test,
                    line.reason
                );
            }
        }
        Ok(())
    }

    /// A facility whose name is misspelt would permit nothing.
    #[test]
    fn every_facility_of_the_permitted_skips_exists() -> Fallible<()> {
        let path = crate::root().join("crates/bpf-sys/src/features/mod.rs");
        let facilities = fs::read_to_string(path).map_err(|e| e.to_string())?;
        for facility in Permitted::load()?.lines.iter().flat_map(|(all, _)| all) {
            assert!(facilities.contains(&format!(" {facility} ")), "{facility}");
        }
        Ok(())
    }

    #[test]
    fn every_list_of_the_tree_can_be_read() -> Fallible<()> {
        check()
    }
}
