//! What test programs print: numbers, skips, times.
//!
//! ```text
//!  test e2e::fbt::x       ... ignored (REASON)    skipped, by the runner of `testing`
//!  skipped krate::tests::x: REASON                skipped, by a test of Rust's own runner
//!  test tests::x ... ok <1.234s>                  its time, by Rust's own runner
//!  repeated e2e::fbt::x: REASON                   run again, by the runner of `testing`
//!  time e2e::fbt::x 1.234s                        its time, by the runner of `testing`
//!  running 3 tests                                a program begins, with both
//!  ---- e2e::fbt::x ----                          why a test failed: the lines after it, by the runner of `testing`
//!  ---- tests::x stdout ----                      the same, by Rust's own runner
//!  test result: ok. 3 passed; 0 failed; …         the closing line of both
//! ```

/// A test that did not run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Skip {
    pub(crate) test: String,
    pub(crate) reason: String,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Failure {
    pub(crate) test: String,
    /// What it printed, and its panic.
    pub(crate) text: Vec<String>,
}

/// What the output of test programs says.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) passed: i64,
    pub(crate) failed: u64,
    pub(crate) failures: Vec<Failure>,
    /// Test programs that have begun.
    pub(crate) begun: usize,
    /// Test programs that have ended.
    pub(crate) programs: usize,
    /// Those of them that ran no test.
    pub(crate) without_tests: usize,
    pub(crate) skips: Vec<Skip>,
    /// The lines about tests that were run again.
    pub(crate) repeated: Vec<String>,
    /// Each test with its seconds.
    pub(crate) times: Vec<(String, f64)>,
    /// The facilities that `dtrace -vV` reports as missing, if its table is in the output.
    pub(crate) lacks: Option<Vec<String>>,
}

/// More failed tests of a machine are a defect that shows itself often: none of them is run again.
const MOST_REPEATED: usize = 4;

impl Report {
    pub(crate) fn read(output: &str) -> Report {
        let mut report = Report { lacks: missing_facilities(output), ..Report::default() };
        // Whether the line belongs to the last failure.
        let mut in_failure = false;
        for line in output.lines() {
            if let Some(test) = failed_test(line) {
                report.failures.push(Failure { test: test.into(), text: Vec::new() });
                in_failure = true;
                continue;
            }
            in_failure &= line != "failures:" && !line.starts_with("test result: ");
            match report.failures.last_mut() {
                Some(failure) if in_failure => failure.text.push(line.into()),
                _ => report.line(line),
            }
        }
        report
    }

    fn line(&mut self, line: &str) {
        if let Some(closing) = line.strip_prefix("test result: ") {
            let [passed, failed, ignored] =
                [" passed", " failed", " ignored"].map(|word| number_before(closing, word));
            self.passed += passed as i64;
            self.failed += failed;
            self.programs += 1;
            self.without_tests += usize::from(passed + failed + ignored == 0);
            return;
        }
        if line
            .strip_prefix("running ")
            .and_then(|l| l.strip_suffix(" tests").or(l.strip_suffix(" test")))
            .is_some()
        {
            self.begun += 1;
            return;
        }
        if let Some((name, seconds)) = line.strip_prefix("time ").and_then(|l| l.split_once(' '))
            && let Some(seconds) = seconds.strip_suffix('s').and_then(|s| s.parse().ok())
        {
            self.times.push((name.into(), seconds));
            return;
        }
        // With one thread, the name of the running test is on the line already.
        let repeated = line.strip_prefix("repeated ");
        if let Some(line) = repeated.or_else(|| line.split_once(" ... repeated ").map(|(_, line)| line)) {
            self.repeated.push(line.into());
            return;
        }
        let skip = line.strip_prefix("skipped ").or_else(|| line.split_once(" ... skipped ").map(|(_, s)| s));
        if let Some((test, reason)) = skip.and_then(|s| s.split_once(": ")) {
            // A test of Rust's own runner returns, and counts as passed.
            if !self.skips.iter().any(|s| s.test == test) {
                self.passed -= 1;
                self.skips.push(Skip { test: test.into(), reason: reason.trim().into() });
            }
            return;
        }
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ")) else {
            return;
        };
        let name = name.trim();
        if let Some(reason) = outcome.strip_prefix("ignored") {
            let reason = reason.trim_start_matches(',').trim();
            let reason = reason.strip_prefix('(').and_then(|r| r.strip_suffix(')')).unwrap_or(reason);
            self.skips.push(Skip { test: name.into(), reason: reason.into() });
        } else if let Some((_, time)) = outcome.rsplit_once(" <")
            && let Some(seconds) = time.strip_suffix("s>").and_then(|s| s.parse().ok())
        {
            self.times.push((name.into(), seconds));
        }
    }

    /// The tests of a program that was killed, and that need not run again: those that passed and those that were skipped.
    /// The program has the runner of `testing`, and is the first in the output.
    pub(crate) fn of_killed_program(output: &str) -> (Report, Vec<String>) {
        let mut report = Report::default();
        let (mut names, mut running) = (Vec::new(), "");
        for line in output.lines() {
            if line.starts_with("test result: ") {
                // It has ended.
                return Default::default();
            }
            let mut outcome = line;
            if let Some((name, rest)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ")) {
                (running, outcome) = (name.trim(), rest);
            }
            // What the test itself prints is between its name and its outcome.
            let skipped = outcome.starts_with("ignored (");
            if running.is_empty() || !skipped && outcome != "ok" {
                continue;
            }
            report.passed += i64::from(!skipped);
            if skipped {
                report.line(line);
            }
            names.push(std::mem::take(&mut running).to_owned());
        }
        (report, names)
    }

    /// The tests that may be run again: those that failed, if they are few and no program was killed.
    pub(crate) fn to_repeat(&self) -> Vec<String> {
        let whole = self.begun == self.programs && self.failed == self.failures.len() as u64;
        let few = self.failures.len() <= MOST_REPEATED;
        if whole && few { self.failures.iter().map(|f| f.test.clone()).collect() } else { Vec::new() }
    }

    /// Takes the failed tests for passed, if all of them passed in `second`.
    pub(crate) fn repeat(&mut self, second: &Report) {
        let all =
            second.passed >= self.failures.len() as i64 && second.failed == 0 && second.skips.is_empty();
        if !all || second.begun != second.programs {
            return;
        }
        for Failure { test, text } in std::mem::take(&mut self.failures) {
            let text: Vec<&str> = text.iter().map(|l| l.trim()).filter(|l| !l.is_empty()).collect();
            self.repeated.push(format!("{test}: passed alone; it failed: {}", text.join("; ")));
            self.failed -= 1;
            self.passed += 1;
        }
    }

    /// Whether it has no test.
    pub(crate) fn is_empty(&self) -> bool {
        (self.passed, self.failed) == (0, 0) && self.skips.is_empty()
    }

    /// Adds another report of the same machine.
    pub(crate) fn add(&mut self, other: &Report) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend_from_slice(&other.failures);
        self.begun += other.begun;
        self.programs += other.programs;
        self.without_tests += other.without_tests;
        self.skips.extend_from_slice(&other.skips);
        self.repeated.extend_from_slice(&other.repeated);
        self.times.extend_from_slice(&other.times);
        self.lacks = self.lacks.take().or_else(|| other.lacks.clone());
    }
}

/// The test whose failure is told in the following lines.
fn failed_test(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name))
}

fn number_before(line: &str, word: &str) -> u64 {
    let before = line.find(word).and_then(|at| line.get(..at)).unwrap_or_default();
    before.split_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or(0)
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
dtrace: Sun D 1.13
dtrace for Linux 0.1.0
kernel 6.1.0-50-amd64
  btf               yes
  raw_tp_cookie     no   cannot attach
  kprobe_multi      no   cannot attach
  array value up to 1073741824
  lockdown          none

running 3 tests
test tests::quick ... ok <0.001s>
test kernel::hidden ... skipped bpf::kernel::hidden: no symbols: none
ok <0.002s>
skipped bpf::kernel::other: no clock
test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test e2e::fbt::calls      ... ignored (the kernel has none, at all (5))
test e2e::fbt::long       ... repeated e2e::fbt::long: up to 5 firings; it failed: 4
repeated e2e::fbt::long: up to 3 firings; it failed: 2
ok
time e2e::fbt::long 12.345s
test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn numbers_skips_and_times_of_both_runners_are_read() {
        let r = Report::read(OUTPUT);
        assert_eq!((r.passed, r.failed), (6, 1));
        assert_eq!((r.programs, r.without_tests), (2, 0));
        let skip = |test: &str, reason: &str| Skip { test: test.into(), reason: reason.into() };
        assert_eq!(
            r.skips,
            [
                skip("bpf::kernel::hidden", "no symbols: none"),
                skip("bpf::kernel::other", "no clock"),
                skip("e2e::fbt::calls", "the kernel has none, at all (5)"),
            ]
        );
        assert_eq!(r.times, [("tests::quick".into(), 0.001), ("e2e::fbt::long".into(), 12.345)]);
        let repeated = ["up to 5 firings; it failed: 4", "up to 3 firings; it failed: 2"];
        assert_eq!(r.repeated, repeated.map(|why| format!("e2e::fbt::long: {why}")));
        assert_eq!(r.lacks, Some(vec!["raw_tp_cookie".into(), "kprobe_multi".into()]));
    }

    /// Two programs, in which tests failed.
    const FAILED: &str = "\
running 2 tests
test e2e::io::merged ... FAILED
test e2e::io::split  ... ok

failures:

---- e2e::io::merged ----
crates/cli/tests/e2e/io.rs:5:5: assertion failed
  left: 1

failures:
    e2e::io::merged

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
running 1 test
test tests::slow ... FAILED

failures:

---- tests::slow stdout ----
thread 'tests::slow' panicked at src/lib.rs:1:1

failures:
    tests::slow

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn failed_tests_are_read_with_what_they_printed() {
        let r = Report::read(FAILED);
        assert_eq!((r.passed, r.failed, r.begun, r.programs), (1, 2, 2, 2));
        let names: Vec<&str> = r.failures.iter().map(|f| f.test.as_str()).collect();
        assert_eq!(names, ["e2e::io::merged", "tests::slow"]);
        let text = r.failures.first().map_or(&[][..], |f| &f.text);
        assert_eq!(text, ["crates/cli/tests/e2e/io.rs:5:5: assertion failed", "  left: 1", ""]);
        assert_eq!(r.to_repeat(), names);
    }

    #[test]
    fn tests_are_run_again_when_few_failed_and_no_program_was_killed() {
        let killed = Report::read(&format!("{FAILED}running 3 tests\n"));
        assert!(killed.to_repeat().is_empty());
        let untold =
            Report::read(&format!("{FAILED}running 1 test\ntest result: FAILED. 0 passed; 1 failed\n"));
        assert!(untold.to_repeat().is_empty());
        let many = Report::read(&FAILED.repeat(3));
        assert_eq!((many.failures.len(), many.to_repeat().len()), (6, 0));
    }

    #[test]
    fn failed_tests_pass_when_all_of_them_pass_alone() {
        let one = "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        let outcome = |second: &str| {
            let mut report = Report::read(FAILED);
            report.repeat(&Report::read(second));
            (report.passed, report.failed, report.repeated.len())
        };
        assert_eq!(outcome(&one.repeat(2)), (3, 0, 2));
        assert_eq!(outcome(one), (1, 2, 0));
        assert_eq!(outcome(&format!("{}{FAILED}", one.repeat(2))), (1, 2, 0));
        assert_eq!(outcome(&format!("{}running 1 test\n", one.repeat(2))), (1, 2, 0));
        let mut report = Report::read(FAILED);
        report.repeat(&Report::read(&one.repeat(2)));
        let line = "e2e::io::merged: passed alone; it failed: crates/cli/tests/e2e/io.rs:5:5: assertion failed; left: 1";
        assert_eq!(report.repeated.first().map(String::as_str), Some(line));
    }

    #[test]
    fn a_killed_program_has_the_tests_that_passed_or_were_skipped_before() {
        let output = "\
dtrace for Linux 0.1.0

running 5 tests
test e2e::fbt::long       ... ok
test e2e::fbt::none       ... ignored (the kernel has none)
test e2e::fbt::wrong      ... FAILED
test e2e::fbt::talks      ...          after 300 ms: ok
ok
test e2e::fbt::dies       ... begun
";
        let (report, names) = Report::of_killed_program(output);
        assert_eq!(names, ["e2e::fbt::long", "e2e::fbt::none", "e2e::fbt::talks"]);
        assert_eq!((report.passed, report.failed, report.programs, report.skips.len()), (2, 0, 0, 1));
        // One that has ended runs again whole.
        let closing = "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n";
        let (report, names) = Report::of_killed_program(&format!("{output}{closing}"));
        assert!(names.is_empty() && report.is_empty());
    }

    #[test]
    fn a_report_without_tests_is_empty() {
        let closing =
            |passed| format!("test result: ok. {passed} passed; 0 failed; 0 ignored; 9 filtered out");
        assert!(Report::read(&closing(0)).is_empty());
        assert_eq!(Report::read(&format!("{}\n{}\n", closing(0), closing(4))).without_tests, 1);
        assert!(!Report::read(&closing(1)).is_empty());
        // Skipped, and counted as passed.
        assert!(!Report::read(&format!("skipped a: no root\n{}", closing(1))).is_empty());
    }
}
