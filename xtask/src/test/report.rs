//! What one test program prints: outcomes, skips, times.
//!
//! ```text
//!  test e2e::fbt::x       ... ignored (REASON)    skipped, by the runner of `testing`
//!  skipped krate::tests::x: REASON                skipped, by a test of Rust's own runner
//!  test tests::x ... ok <1.234s>                  its outcome and its time, by Rust's own runner
//!  repeated e2e::fbt::x: REASON                   run again, by the runner of `testing`
//!  time e2e::fbt::x 1.234s                        its time, by the runner of `testing`
//!  ---- e2e::fbt::x ----                          why a test failed: the lines after it, by the runner of `testing`
//!  ---- tests::x stdout ----                      the same, by Rust's own runner
//!  test result: ok. 3 passed; 0 failed; …         the closing line of both
//! ```
//!
//! With one thread the name of a test is printed before it runs, so what it prints is between its
//! name and its outcome.

/// What a program says of a test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Ok,
    Ignored(String),
    Failed,
}

/// What the output of a test program says.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The tests that have an outcome.
    pub(crate) tests: Vec<(String, Said)>,
    /// Skips by tests of Rust's own runner, which counts them as passed: the path of the test from
    /// its crate on, the reason.
    pub(crate) skips: Vec<(String, String)>,
    /// What failed tests printed, and their panics.
    pub(crate) failures: Vec<(String, Vec<String>)>,
    /// The lines about tests that were run again.
    pub(crate) repeated: Vec<String>,
    times: Vec<(String, f64)>,
    /// The test whose name is printed, and not its outcome.
    running: Option<String>,
}

impl Report {
    pub(crate) fn read(output: &str) -> Report {
        let mut report = Report::default();
        // Whether the line belongs to the last failure.
        let mut in_failure = false;
        for line in output.lines() {
            if let Some(test) = failed_test(line) {
                report.failures.push((test.into(), Vec::new()));
                in_failure = true;
                continue;
            }
            in_failure &= line != "failures:" && !line.starts_with("test result: ");
            match report.failures.last_mut() {
                Some((_, text)) if in_failure => text.push(line.into()),
                _ => report.line(line),
            }
        }
        report
    }

    fn line(&mut self, line: &str) {
        if let Some((name, seconds)) = line.strip_prefix("time ").and_then(|l| l.split_once(' '))
            && let Some(seconds) = seconds.strip_suffix('s').and_then(|s| s.parse().ok())
        {
            self.times.push((name.into(), seconds));
            return;
        }
        let named = line.strip_prefix("test ").and_then(|l| l.split_once(" ... "));
        let rest = match named {
            Some((name, rest)) => {
                // Rust's own runner says so of a test that has to panic.
                let name = name.trim();
                self.running = Some(name.strip_suffix(" - should panic").unwrap_or(name).to_owned());
                rest
            }
            None => line,
        };
        if let Some(line) = rest.strip_prefix("repeated ") {
            self.repeated.push(line.into());
        } else if let Some((test, reason)) = self.skip_in(rest) {
            if !self.skips.iter().any(|(t, _)| t == test) {
                self.skips.push((test.into(), reason.trim().into()));
            }
        } else if let Some((said, seconds)) = outcome(rest)
            && let Some(name) = self.running.take()
        {
            self.times.extend(seconds.map(|s| (name.clone(), s)));
            self.tests.push((name, said));
        }
    }

    /// The path of a test and its reason, in a line that tells of a skip. What something else printed
    /// without an end of its line may be before it: the kernel on the console of a guest, or a thread
    /// on standard error. Then it is the skip of the test that runs, or none.
    fn skip_in<'a>(&self, rest: &'a str) -> Option<(&'a str, &'a str)> {
        if let Some(skip) = rest.strip_prefix("skipped ") {
            return skip.split_once(": ");
        }
        let running = self.running.as_deref()?;
        rest.match_indices("skipped ").find_map(|(at, word)| {
            let (path, reason) = rest.get(at + word.len()..)?.split_once(": ")?;
            path.ends_with(running).then_some((path, reason))
        })
    }

    /// The time of a test, 0 where it is not told.
    pub(crate) fn seconds(&self, test: &str) -> f64 {
        self.times.iter().find(|(name, _)| name == test).map_or(0.0, |(_, seconds)| *seconds)
    }

    /// Why a test was skipped, if it was.
    pub(crate) fn skip_of(&self, test: &str) -> Option<&str> {
        let ignored = self.tests.iter().find_map(|(name, said)| match said {
            Said::Ignored(reason) if name == test => Some(reason.as_str()),
            _ => None,
        });
        let is_of = |path: &str| path.strip_suffix(test).is_some_and(|p| p.is_empty() || p.ends_with("::"));
        ignored.or_else(|| {
            let mut all = self.skips.iter();
            all.find(|(path, _)| is_of(path)).map(|(_, reason)| reason.as_str())
        })
    }

    /// What a failed test printed.
    pub(crate) fn failure_of(&self, test: &str) -> Option<String> {
        let (_, text) = self.failures.iter().find(|(name, _)| name == test)?;
        Some(text.join("\n").trim().to_owned())
    }
}

/// What the words behind a test's name say, with the time.
fn outcome(words: &str) -> Option<(Said, Option<f64>)> {
    let (word, time) = words.rsplit_once(" <").unwrap_or((words, ""));
    let seconds = time.strip_suffix("s>").and_then(|s| s.parse().ok());
    match word {
        "ok" => Some((Said::Ok, seconds)),
        "FAILED" => Some((Said::Failed, seconds)),
        _ => {
            let reason = words.strip_prefix("ignored")?.trim_start_matches(',').trim();
            let reason = reason.strip_prefix('(').and_then(|r| r.strip_suffix(')')).unwrap_or(reason);
            Some((Said::Ignored(reason.into()), None))
        }
    }
}

/// The test whose failure is told in the following lines.
fn failed_test(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name))
}

/// The facilities with the answer "no" in the first table of `dtrace -vV`.
pub(crate) fn missing_facilities(output: &str) -> Option<Vec<String>> {
    let (_, table) = output.split_once("dtrace for Linux ")?;
    let rows = table.lines().skip(2).take_while(|l| l.starts_with("  "));
    let lacks = rows.filter_map(|row| {
        let mut words = row.split_whitespace();
        let (name, answer) = (words.next()?, words.next()?);
        (answer == "no").then(|| name.to_owned())
    });
    Some(lacks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test tests::quick ... ok <0.001s>
test kernel::hidden ... skipped bpf::kernel::hidden: no symbols: none
ok <0.002s>
skipped bpf::kernel::other: no clock
test kernel::other ... ok <0.003s>
test kernel::odd - should panic ... FAILED <0.250s>
test e2e::fbt::calls      ... ignored (the kernel has none, at all (5))
test e2e::fbt::long       ... repeated e2e::fbt::long: up to 5 firings; it failed: 4
repeated e2e::fbt::long: up to 3 firings; it failed: 2
ok
test e2e::fbt::hangs      ... begun
time e2e::fbt::long 12.345s
";

    #[test]
    fn outcomes_skips_and_times_of_both_runners_are_read() {
        let r = Report::read(OUTPUT);
        let said = |name: &str, said: Said| (name.to_owned(), said);
        assert_eq!(
            r.tests,
            [
                said("tests::quick", Said::Ok),
                said("kernel::hidden", Said::Ok),
                said("kernel::other", Said::Ok),
                said("kernel::odd", Said::Failed),
                said("e2e::fbt::calls", Said::Ignored("the kernel has none, at all (5)".into())),
                said("e2e::fbt::long", Said::Ok),
            ]
        );
        let skips = ["kernel::hidden", "kernel::other", "e2e::fbt::calls", "tests::quick", "hidden", "idden"]
            .map(|t| r.skip_of(t));
        let [hidden, other, calls] =
            ["no symbols: none", "no clock", "the kernel has none, at all (5)"].map(Some);
        assert_eq!(skips, [hidden, other, calls, None, hidden, None]);
        let times = ["tests::quick", "kernel::hidden", "kernel::odd", "e2e::fbt::long", "e2e::fbt::calls"]
            .map(|t| r.seconds(t));
        assert_eq!(times, [0.001, 0.002, 0.25, 12.345, 0.0]);
        let repeated = ["up to 5 firings; it failed: 4", "up to 3 firings; it failed: 2"];
        assert_eq!(r.repeated, repeated.map(|why| format!("e2e::fbt::long: {why}")));
    }

    #[test]
    fn what_else_is_printed_in_the_line_of_a_skip_hides_it_not() {
        let r = Report::read(
            "test a::links ... [ 12.5] random: crng done skipped krate::a::links: no program: try\nok <0.1s>\n\
             test a::says ... it has skipped krate::a::links: twice\nok <0.1s>\n",
        );
        assert_eq!(r.skip_of("a::links"), Some("no program: try"));
        assert_eq!(r.skip_of("a::says"), None);
        assert_eq!(r.tests.len(), 2);
    }

    #[test]
    fn failed_tests_are_read_with_what_they_printed() {
        let r = Report::read(
            "\
test e2e::io::merged ... FAILED
test e2e::io::split  ... ok

failures:

---- e2e::io::merged ----
crates/cli/tests/e2e/io.rs:5:5: assertion failed
  left: 1

---- tests::slow stdout ----
thread 'tests::slow' panicked at src/lib.rs:1:1

failures:
    e2e::io::merged

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
",
        );
        let text = "crates/cli/tests/e2e/io.rs:5:5: assertion failed\n  left: 1";
        assert_eq!(r.failure_of("e2e::io::merged").as_deref(), Some(text));
        assert!(r.failure_of("tests::slow").is_some() && r.failure_of("e2e::io::split").is_none());
    }

    #[test]
    fn missing_facilities_are_those_with_the_answer_no() {
        let table = "dtrace: Sun D 1.13\ndtrace for Linux 0.1.0\nkernel 6.1.0-50-amd64\n  btf               yes\n  \
                     raw_tp_cookie     no   cannot attach\n  kprobe_multi      no   cannot attach\n  array value up to 9\n\n  x no\n";
        assert_eq!(missing_facilities(table), Some(vec!["raw_tp_cookie".into(), "kprobe_multi".into()]));
        assert_eq!(missing_facilities(""), None);
    }
}
