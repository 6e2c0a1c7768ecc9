//! What ran where, when, and how long it took: the file `testing/ran`.
//!
//! ```text
//!  round 3 490                                     the round, and the commit at which it began
//!  cli:e2e e2e::fbt::calls  here 1.2 496  6.1 11 480  6.12 9.5 496
//!                                          kernel, seconds, number of the commit
//! ```
//!
//! A commit is known by its number: how many commits lead to it (`git rev-list --count`), so that
//! it survives a rebase. A *round* is the time from the closing of one issue to the closing of the
//! next. In each, every test that may run in a guest runs on every kernel at least once; what has
//! not is *uncovered*.
//!
//! Tests that may run in a guest are recorded, and those that take long here; only passes and
//! skips: a failure covers nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::result::Name;

/// This machine, beside the kernels.
pub(crate) const HERE: &str = "here";

/// One run of a test on a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Past {
    pub(crate) seconds: f64,
    pub(crate) commit: u64,
}

/// The file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Record {
    pub(crate) round: u64,
    /// The commit that closed the round before: what ran at it covers nothing in this one.
    pub(crate) since: u64,
    rows: BTreeMap<Name, BTreeMap<String, Past>>,
}

fn path(root: &Path) -> PathBuf {
    root.join("testing/ran")
}

impl Record {
    /// Without a file, nothing has run.
    pub(crate) fn load(root: &Path) -> Result<Record, String> {
        match std::fs::read_to_string(path(root)) {
            Ok(text) => Record::parse(&text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Record::default()),
            Err(e) => Err(format!("testing/ran: {e}")),
        }
    }

    pub(crate) fn store(&self, root: &Path) -> Result<(), String> {
        std::fs::write(path(root), self.text()).map_err(|e| format!("testing/ran: {e}"))
    }

    fn parse(text: &str) -> Result<Record, String> {
        let mut record = Record::default();
        for (number, line) in text.lines().enumerate() {
            let fail = || format!("testing/ran:{}: {line}", number + 1);
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                ["round", round, since] => {
                    record.round = round.parse().map_err(|_| fail())?;
                    record.since = since.parse().map_err(|_| fail())?;
                }
                [program, test, runs @ ..] if runs.len().is_multiple_of(3) => {
                    let row = record.rows.entry(Name { program: (*program).into(), test: (*test).into() });
                    let row = row.or_default();
                    for run in runs.chunks(3) {
                        let [kernel, seconds, commit] = run else { return Err(fail()) };
                        let seconds: f64 = seconds.parse().map_err(|_| fail())?;
                        if !(0.0..1e6).contains(&seconds) {
                            return Err(fail());
                        }
                        let commit = commit.parse().map_err(|_| fail())?;
                        row.insert((*kernel).into(), Past { seconds, commit });
                    }
                }
                _ => return Err(fail()),
            }
        }
        Ok(record)
    }

    fn text(&self) -> String {
        let mut text = format!("round {} {}\n", self.round, self.since);
        for (name, row) in &self.rows {
            text.push_str(&name.to_string());
            for (kernel, past) in row {
                text.push_str(&format!(" {kernel} {} {}", past.seconds, past.commit));
            }
            text.push('\n');
        }
        text
    }

    pub(crate) fn past(&self, name: &Name, kernel: &str) -> Option<Past> {
        self.rows.get(name)?.get(kernel).copied()
    }

    /// Notes a run. A time that differs little from the last one is not changed, and neither is the
    /// file then, but for the commit.
    pub(crate) fn note(&mut self, name: &Name, kernel: &str, seconds: f64, commit: u64) {
        let row = self.rows.entry(name.clone()).or_default();
        let last = row.get(kernel).map(|past| past.seconds);
        let is_near = |last: f64| (seconds - last).abs() <= 0.5_f64.max(last / 2.0);
        let seconds = last.filter(|last| is_near(*last)).unwrap_or((seconds * 10.0).round() / 10.0);
        row.insert(kernel.into(), Past { seconds, commit });
    }

    /// Forgets the tests that are no more.
    pub(crate) fn keep_only(&mut self, names: &dyn Fn(&Name) -> bool) {
        self.rows.retain(|name, _| names(name));
    }

    /// Whether a test has run on a kernel in this round.
    pub(crate) fn covers(&self, name: &Name, kernel: &str) -> bool {
        self.past(name, kernel).is_some_and(|past| past.commit > self.since)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(test: &str) -> Name {
        Name { program: "cli:e2e".into(), test: test.into() }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = Record { round: 3, since: 490, ..Record::default() };
        record.note(&name("e2e::a"), HERE, 1.23, 496);
        record.note(&name("e2e::a"), "6.12", 11.0, 480);
        record.note(&name("e2e::b"), "7.2", 0.01, 496);
        let text = "round 3 490\ncli:e2e e2e::a 6.12 11 480 here 1.2 496\ncli:e2e e2e::b 7.2 0 496\n";
        assert_eq!(record.text(), text);
        assert_eq!(Record::parse(text).unwrap(), record);
        for wrong in ["cli:e2e e2e::a here 1", "p a here NaN 1", "p a here -1 1", "round 1 x"] {
            assert_eq!(Record::parse(wrong).unwrap_err(), format!("testing/ran:1: {wrong}"));
        }
    }

    #[test]
    fn a_test_is_covered_on_a_kernel_on_which_it_ran_in_the_round() {
        let mut record = Record { round: 1, since: 490, ..Record::default() };
        record.note(&name("a"), "6.1", 1.0, 490);
        record.note(&name("a"), "6.12", 1.0, 491);
        assert_eq!(["6.1", "6.12", "7.2"].map(|k| record.covers(&name("a"), k)), [false, true, false]);
    }

    #[test]
    fn a_time_changes_only_when_it_differs_much() {
        let mut record = Record::default();
        let mut seconds = |took: f64| {
            record.note(&name("a"), HERE, took, 1);
            record.past(&name("a"), HERE).unwrap().seconds
        };
        assert_eq!([4.0, 5.5, 2.5, 7.0, 0.3].map(&mut seconds), [4.0, 4.0, 4.0, 7.0, 0.3]);
    }
}
