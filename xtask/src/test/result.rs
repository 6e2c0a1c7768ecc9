//! What becomes of a test, and its form on a line: results come out of guests as lines of text.

use super::process::{End, Ran};
use super::report::{Report, Said};

/// The name of a test in the whole workspace: its program and its name there.
///
/// ```text
///  cli:e2e e2e::fbt::functions_fire       a test program of a package
///  dif opt::tests::folds                  the unit tests of a package
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) program: String,
    pub(crate) test: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program, self.test)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    /// The machine cannot run it, for this reason.
    Skipped(String),
    /// Why it failed: what it printed, how it ended.
    Failed(String),
    /// It failed, for this reason, and passed when it ran again alone.
    Flaky(String),
}

/// What became of one test on one machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Result {
    pub(crate) name: Name,
    pub(crate) outcome: Outcome,
    pub(crate) seconds: f64,
    /// Lines about repetitions that the kernel's own reports explain (`testing::suppressed`).
    pub(crate) repeated: Vec<String>,
}

impl Result {
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    /// One line of five columns.
    pub(crate) fn to_line(&self) -> String {
        let (word, text) = match &self.outcome {
            Outcome::Passed => ("passed", ""),
            Outcome::Skipped(text) => ("skipped", text.as_str()),
            Outcome::Failed(text) => ("failed", text.as_str()),
            Outcome::Flaky(text) => ("flaky", text.as_str()),
        };
        let columns = [
            self.name.program.as_str(),
            &self.name.test,
            &format!("{:.3}", self.seconds),
            word,
            text,
            &self.repeated.join("\n"),
        ];
        columns.map(escape).join("\t")
    }

    /// The result on a line, if it is one.
    pub(crate) fn of_line(line: &str) -> Option<Result> {
        let columns: Vec<String> = line.split('\t').map(unescape).collect();
        let [program, test, seconds, word, text, repeated] = columns.try_into().ok()?;
        let outcome = match word.as_str() {
            "passed" => Outcome::Passed,
            "skipped" => Outcome::Skipped(text),
            "failed" => Outcome::Failed(text),
            "flaky" => Outcome::Flaky(text),
            _ => return None,
        };
        let repeated = repeated.lines().map(String::from).collect();
        Some(Result { name: Name { program, test }, outcome, seconds: seconds.parse().ok()?, repeated })
    }
}

/// A text without line ends and tabulators.
pub(crate) fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r")
}

pub(crate) fn unescape(text: &str) -> String {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                other => other.unwrap_or('\\'),
            },
            c => c,
        });
    }
    plain
}

/// Lines of a failed test's output that are kept.
const TAIL: usize = 40;

/// What became of the one test that a process ran.
pub(crate) fn of_single(name: &Name, ran: &Ran) -> Result {
    let report = Report::read(&ran.out);
    let said = match report.tests.as_slice() {
        [(test, said)] if *test == name.test => Some(said),
        _ => None,
    };
    let outcome = match (&ran.end, said) {
        (End::Status(0), Some(Said::Ok | Said::Ignored(_))) if !ran.left.is_empty() => {
            Outcome::Failed(format!("it leaves {}", ran.left.join("; ")))
        }
        (End::Status(0), Some(Said::Ok | Said::Ignored(_))) => {
            let skip = report.skip_of(&name.test);
            skip.map_or(Outcome::Passed, |reason| Outcome::Skipped(reason.into()))
        }
        _ => Outcome::Failed(why(ran, report.failure_of(&name.test))),
    };
    Result { name: name.clone(), outcome, seconds: ran.took.as_secs_f64(), repeated: report.repeated }
}

/// Why a process failed.
fn why(ran: &Ran, text: Option<String>) -> String {
    let end = match &ran.end {
        End::Status(_) if text.is_some() => String::new(),
        End::Status(code) => format!("status {code}\n"),
        End::Signal(signal) => format!("killed by signal {signal}\n"),
        End::Killed(why) => format!("{why}\n"),
    };
    let text = text.unwrap_or_else(|| tail(ran));
    let left: String = ran.left.iter().map(|what| format!("it leaves {what}\n")).collect();
    format!("{end}{}\n{left}", text.trim()).trim().to_owned()
}

/// The last lines of what a process printed.
fn tail(ran: &Ran) -> String {
    let last = |text: &str| {
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
    };
    format!("{}\n{}", last(&ran.out), last(&ran.err))
}

/// What a process that ran all tests of a program says of them. The tests that it says nothing of
/// are missing: it has not come to them, or it was in them when it ended.
pub(crate) fn of_whole(program: &str, ran: &Ran) -> Vec<Result> {
    let report = Report::read(&ran.out);
    let result = |(test, said): &(String, Said)| {
        let outcome = match (said, report.skip_of(test)) {
            (Said::Failed, _) => Outcome::Failed(report.failure_of(test).unwrap_or_default()),
            (_, Some(reason)) => Outcome::Skipped(reason.into()),
            (_, None) => Outcome::Passed,
        };
        let name = Name { program: program.into(), test: test.clone() };
        Result { name, outcome, seconds: report.seconds(test), repeated: Vec::new() }
    };
    report.tests.iter().map(result).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ran(end: End, out: &str) -> Ran {
        Ran { end, out: out.into(), err: "oh\n".into(), left: Vec::new(), took: Duration::from_secs(2) }
    }

    fn name() -> Name {
        Name { program: "cli:e2e".into(), test: "e2e::a::b".into() }
    }

    #[test]
    fn a_result_is_read_as_it_was_written_whatever_its_text() {
        for outcome in [
            Outcome::Passed,
            Outcome::Skipped("no\tclock".into()),
            Outcome::Failed("left: \"a\\n\"\n right: 2\r\n\\".into()),
            Outcome::Flaky(String::new()),
        ] {
            let repeated = vec!["one: two".to_string(), "three".into()];
            let result = Result { name: name(), outcome, seconds: 1.5, repeated };
            let line = result.to_line();
            assert!(!line.contains('\n'));
            assert_eq!(Result::of_line(&line), Some(result));
        }
        assert_eq!(Result::of_line("hello"), None);
    }

    #[test]
    fn a_single_test_passes_only_if_it_ran_and_left_nothing() {
        const OK: &str = "running 1 test\ntest e2e::a::b ... ok\ntest result: ok. 1 passed; 0 failed;\n";
        let outcome = |ran: &Ran| of_single(&name(), ran).outcome;
        assert_eq!(outcome(&ran(End::Status(0), OK)), Outcome::Passed);
        let none = "running 0 tests\ntest result: ok. 0 passed; 0 failed;\n";
        assert!(matches!(outcome(&ran(End::Status(0), none)), Outcome::Failed(_)));
        assert!(matches!(outcome(&ran(End::Status(1), OK)), Outcome::Failed(why) if why.contains("oh")));
        let died = outcome(&ran(End::Signal(6), ""));
        assert!(matches!(died, Outcome::Failed(why) if why.starts_with("killed by signal 6")));
        let mut leaves = ran(End::Status(0), OK);
        leaves.left.push("process 7 (sleep): sleep 9".into());
        assert_eq!(outcome(&leaves), Outcome::Failed("it leaves process 7 (sleep): sleep 9".into()));
        let skip = "test e2e::a::b ... ignored (no clock)\ntest result: ok. 0 passed; 0 failed; 1 ignored;\n";
        assert_eq!(outcome(&ran(End::Status(0), skip)), Outcome::Skipped("no clock".into()));
        let skip = "test e2e::a::b ... skipped krate::e2e::a::b: no types\nok\n";
        assert_eq!(outcome(&ran(End::Status(0), skip)), Outcome::Skipped("no types".into()));
    }

    #[test]
    fn of_a_program_that_died_the_tests_it_told_of_are_known() {
        let out = "\
running 4 tests
test tests::a ... ok <0.250s>
skipped krate::tests::b: no clock
test tests::b ... ok <0.001s>
test tests::c ... FAILED <0.010s>
";
        let results = of_whole("krate", &ran(End::Signal(9), out));
        let told: Vec<_> = results.iter().map(|r| (r.name.test.as_str(), &r.outcome)).collect();
        assert_eq!(told[0], ("tests::a", &Outcome::Passed));
        assert_eq!(told[1], ("tests::b", &Outcome::Skipped("no clock".into())));
        assert_eq!(told[2], ("tests::c", &Outcome::Failed(String::new())));
        assert_eq!((told.len(), results[0].seconds), (3, 0.25));
    }
}
