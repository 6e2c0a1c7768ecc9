//! The skips that are expected of a machine: one checked-in list for each in `testing/skips`.
//!
//! ```text
//!  # a comment
//!  lacks raw_tp_cookie kprobe_multi            what `dtrace -vV` must report as missing, no more and no less
//!  fbt::functions_fire: does not list          the end of the test's name; a part of the reason
//!  ~order::rows_wait: ticks                    timing decides: the test may also run
//! ```
//!
//! A guest has the list of its kernel. The machine of the developer has the list with the same missing facilities, if there
//! is one. The skips of any other machine are derived from what it lacks: `testing/skips/any` has the reasons, each with the
//! facilities of which one must be missing.
//!
//! ```text
//!  kprobe_multi fentry: does not list its functions      permitted where one of the two is missing
//!  -: in guests only                                     no matter of the kernel: permitted everywhere
//! ```
//!
//! "this kernel has no FACILITY" needs no line: it is permitted where the facility is missing.
//!
//! A skip that no line expects fails the run: a test that skips itself by mistake passes for ever. So does a test that has run
//! where a line expects its skip. (In a guest many tests do not run, because they run in that of another kernel.)

use std::fs;
use std::path::PathBuf;

use super::report::{Report, Skip};

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
    fn is_of(&self, test: &str) -> bool {
        test.strip_suffix(&self.test).is_some_and(|p| p.is_empty() || p.ends_with("::"))
    }

    fn expects(&self, skip: &Skip) -> bool {
        self.is_of(&skip.test) && skip.reason.contains(&self.reason)
    }
}

/// A list.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) name: String,
    lacks: Vec<String>,
    lines: Vec<Line>,
}

fn path(name: &str) -> PathBuf {
    crate::root().join("testing/skips").join(name)
}

impl Expected {
    /// The list of this name.
    pub(crate) fn load(name: &str) -> Result<Expected, String> {
        let path = path(name);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Expected::parse(name, &text)
    }

    /// The list of a host that lacks these facilities.
    pub(crate) fn of_host(lacks: &[String]) -> Result<Option<Expected>, String> {
        for name in HOSTS {
            let list = Expected::load(name)?;
            if same(&list.lacks, lacks) {
                return Ok(Some(list));
            }
        }
        Ok(None)
    }

    fn parse(name: &str, text: &str) -> Result<Expected, String> {
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

    /// What differs between the list and a machine's whole run, one breach a line.
    pub(crate) fn breaches(&self, report: &Report) -> Vec<String> {
        let mut breaches = Vec::new();
        if let Some(lacks) = report.lacks.as_deref()
            && !same(&self.lacks, lacks)
        {
            breaches.push(format!("it lacks {}; expected: {}", lacks.join(" "), self.lacks.join(" ")));
        }
        for skip in &report.skips {
            if !self.lines.iter().any(|l| l.expects(skip)) {
                breaches.push(format!("unexpected skip of {}: {}", skip.test, skip.reason));
            }
        }
        for line in self.lines.iter().filter(|l| !l.sometimes) {
            if report.times.iter().any(|(test, _)| line.is_of(test))
                && !report.skips.iter().any(|s| line.expects(s))
            {
                breaches.push(format!("{} was not skipped (\"{}\")", line.test, line.reason));
            }
        }
        breaches
    }

    /// Writes the list anew from a whole run; lines whose skip depends on timing stay.
    pub(crate) fn update(name: &str, report: &Report) -> Result<(), String> {
        let path = path(name);
        let old = fs::read_to_string(&path).unwrap_or_default();
        let list = Expected::parse(name, &old)?;
        let mut text: String = old.lines().filter(|l| l.starts_with('#')).map(|l| format!("{l}\n")).collect();
        let lacks = report.lacks.as_ref().unwrap_or(&list.lacks);
        text.push_str(&format!("lacks {}\n", lacks.join(" ")));
        for line in list.lines.iter().filter(|l| l.sometimes) {
            text.push_str(&format!("~{}: {}\n", line.test, line.reason));
        }
        for skip in &report.skips {
            let known = list.lines.iter().find(|l| l.expects(skip));
            match known {
                Some(line) if line.sometimes => {}
                Some(line) => text.push_str(&format!("{}: {}\n", line.test, line.reason)),
                None => text.push_str(&format!("{}: {}\n", skip.test, skip.reason)),
            }
        }
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Which skips a machine may make that has no list.
#[derive(Debug, Default)]
pub(crate) struct Permitted {
    /// Facilities, none for a reason that has nothing to do with the kernel, and a part of the reason.
    lines: Vec<(Vec<String>, String)>,
}

impl Permitted {
    pub(crate) fn load() -> Result<Permitted, String> {
        let path = path("any");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Permitted::parse(&text)
    }

    fn parse(text: &str) -> Result<Permitted, String> {
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
    pub(crate) fn breaches(&self, report: &Report, lacks: &[String]) -> Vec<String> {
        let unexplained = report.skips.iter().filter(|skip| !self.permits(&skip.reason, lacks));
        let line = |skip: &Skip| {
            format!(
                "unexpected skip of {}: {} (the machine lacks {})",
                skip.test,
                skip.reason,
                lacks.join(" ")
            )
        };
        unexplained.map(line).collect()
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

    /// In it both tests of the list have run, or skipped themselves.
    fn report(lacks: &[&str], skips: &[(&str, &str)]) -> Report {
        let times = vec![("e2e::fbt::calls".into(), 0.1), ("e2e::order::rows".into(), 0.1)];
        let skips = skips.iter().map(|(t, r)| Skip { test: (*t).into(), reason: (*r).into() }).collect();
        let lacks = Some(lacks.iter().map(|l| (*l).into()).collect());
        Report { skips, lacks, times, ..Report::default() }
    }

    #[test]
    fn a_run_with_the_skips_of_its_list_has_no_breach() -> Result<(), String> {
        let list = Expected::parse("x", LIST)?;
        let calls = ("e2e::fbt::calls", "the kernel does not list its functions");
        assert_eq!(list.breaches(&report(&["b", "a"], &[calls])), [""; 0]);
        assert_eq!(list.breaches(&report(&["a", "b"], &[calls, ("e2e::order::rows", "3 ticks")])), [""; 0]);
        Ok(())
    }

    #[test]
    fn unexpected_and_missing_skips_and_facilities_are_breaches() -> Result<(), String> {
        let list = Expected::parse("x", LIST)?;
        let calls = ("e2e::fbt::calls", "the kernel does not list its functions");
        let other = ("e2e::fbt::other", "the kernel does not list its functions");
        let reason = ("e2e::order::rows", "no clock");
        for (report, breach) in [
            (report(&["a", "b"], &[calls, other]), "unexpected skip of e2e::fbt::other"),
            (report(&["a", "b"], &[calls, reason]), "unexpected skip of e2e::order::rows: no clock"),
            (report(&["a", "b"], &[]), "fbt::calls was not skipped"),
            (report(&["a"], &[calls]), "it lacks a; expected: a b"),
        ] {
            let breaches = list.breaches(&report);
            assert!(breaches.len() == 1 && breaches[0].starts_with(breach), "{breaches:?}");
        }
        // It did not run at all.
        let elsewhere = Report { times: Vec::new(), ..report(&["a", "b"], &[]) };
        assert_eq!(list.breaches(&elsewhere), [""; 0]);
        // The name of another test that ends the same way is another test.
        let list = Expected::parse("x", "lacks\ncalls: none\n");
        assert!(list.is_err());
        let list = Expected::parse("x", "calls: none\n")?;
        let mut all = report(&[], &[("e2e::all_calls", "none")]);
        all.times.push(("calls".into(), 0.1));
        assert_eq!(list.breaches(&all).len(), 2);
        Ok(())
    }

    #[test]
    fn a_skip_is_permitted_where_the_facility_is_missing_that_it_needs() -> Result<(), String> {
        let permitted = Permitted::parse("# any\na b: does not list\n-: in guests only\n")?;
        let lacks = |all: &[&str]| all.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        for (reason, missing, is) in [
            ("the kernel does not list its functions", &["b"][..], true),
            ("the kernel does not list its functions", &["c"], false),
            ("this kernel has no sleepable_calls: refused", &["sleepable_calls"], true),
            ("this kernel has no sleepable_calls: refused", &["sleepable"], false),
            ("slows the machine down: in guests only", &[], true),
            ("something else", &["a", "b"], false),
        ] {
            assert_eq!(permitted.permits(reason, &lacks(missing)), is, "{reason}");
            let report = report(missing, &[("e2e::x", reason)]);
            assert_eq!(permitted.breaches(&report, &lacks(missing)).len(), usize::from(!is));
        }
        Ok(())
    }

    /// What the known machines skip would be permitted without their lists.
    #[test]
    fn the_skips_of_every_list_are_explained_by_what_it_lacks() -> Result<(), String> {
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
    fn every_facility_of_the_permitted_skips_exists() -> Result<(), String> {
        let path = crate::root().join("crates/bpf-sys/src/features/mod.rs");
        let facilities = fs::read_to_string(path).map_err(|e| e.to_string())?;
        for facility in Permitted::load()?.lines.iter().flat_map(|(all, _)| all) {
            assert!(facilities.contains(&format!(" {facility} ")), "{facility}");
        }
        Ok(())
    }

    #[test]
    fn every_list_of_the_tree_can_be_read() -> Result<(), String> {
        for name in crate::kernels::NAMES.into_iter().chain(["lockdown"]).chain(HOSTS) {
            Expected::load(name)?;
        }
        Ok(())
    }
}
