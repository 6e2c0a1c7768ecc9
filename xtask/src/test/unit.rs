//! Runs units: the tests that one process runs. The same code runs on this machine and in a guest.
//!
//! A unit is one test, run alone by its name, or the quick tests of a program that takes several
//! names, where a process for each would cost more than the tests. When such a program fails as a
//! whole (it hangs, it dies), its tests that have no outcome are run one by one: what is to blame
//! is found, and the others are not lost.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use super::process::{self, End, Job};
use super::programs::Program;
use super::result::{self, Name, Outcome, Result, escape, unescape};

/// What one process runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) program: String,
    pub(crate) path: PathBuf,
    pub(crate) directory: PathBuf,
    /// At least one. More than one only where the program takes several names.
    pub(crate) tests: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// How long one test may take.
    pub(crate) deadline: Duration,
    /// How long it is expected to take, in seconds.
    pub(crate) expected: f64,
}

/// The name of what is wrong with a program as a whole.
const WHOLE: &str = "(as a whole)";

impl Unit {
    pub(crate) fn of(program: &Program, tests: Vec<String>) -> Unit {
        Unit {
            program: program.name.clone(),
            path: program.path.clone(),
            directory: program.directory.clone(),
            tests,
            environment: Vec::new(),
            deadline: Duration::from_secs(60),
            expected: 0.0,
        }
    }

    /// Its tests by their names in the workspace.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.tests.iter().map(|test| self.name(test))
    }

    fn name(&self, test: &str) -> Name {
        Name { program: self.program.clone(), test: test.into() }
    }

    /// The same for one of its tests.
    pub(crate) fn single(&self, test: &str) -> Unit {
        Unit { tests: vec![test.into()], ..self.clone() }
    }

    /// The same for a test of its, if it has it.
    pub(crate) fn single_of(&self, name: &Name) -> Option<Unit> {
        let has = self.program == name.program && self.tests.contains(&name.test);
        has.then(|| self.single(&name.test))
    }

    pub(crate) fn title(&self) -> String {
        match self.tests.as_slice() {
            [test] => self.name(test).to_string(),
            tests => format!("{} ({} tests)", self.program, tests.len()),
        }
    }

    /// Whether this is its title, or that of one of its tests alone.
    pub(crate) fn is_or_has(&self, title: &str) -> bool {
        self.title() == title || self.tests.iter().any(|test| self.name(test).to_string() == title)
    }

    /// One line: the plan of a guest is a file of them.
    pub(crate) fn to_line(&self) -> String {
        let environment: Vec<String> = self.environment.iter().map(|(n, v)| format!("{n}={v}")).collect();
        [
            self.program.as_str(),
            &self.path.to_string_lossy(),
            &self.directory.to_string_lossy(),
            &self.deadline.as_secs().to_string(),
            &self.expected.to_string(),
            &environment.join(" "),
            &self.tests.join(" "),
        ]
        .map(escape)
        .join("\t")
    }

    pub(crate) fn of_line(line: &str) -> Option<Unit> {
        let columns: Vec<String> = line.split('\t').map(unescape).collect();
        let [program, path, directory, deadline, expected, environment, tests] = columns.try_into().ok()?;
        let pair = |word: &str| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
        Some(Unit {
            program,
            path: path.into(),
            directory: directory.into(),
            tests: tests.split(' ').map(String::from).collect(),
            environment: environment.split(' ').filter_map(pair).collect(),
            deadline: Duration::from_secs(deadline.parse().ok()?),
            expected: expected.parse().ok()?,
        })
    }

    /// Its command line, behind the program. `RUSTC_BOOTSTRAP` lets Rust's own runner report times.
    fn words(&self) -> Vec<String> {
        let options = ["-Zunstable-options", "--report-time", "--exact"];
        options.iter().map(|word| word.to_string()).chain(self.tests.iter().cloned()).collect()
    }

    fn run(&self) -> std::result::Result<process::Ran, String> {
        let mut environment = self.environment.clone();
        environment.push(("RUSTC_BOOTSTRAP".into(), "1".into()));
        environment.push(("CARGO_MANIFEST_DIR".into(), self.directory.display().to_string()));
        let path = std::env::var("PATH").unwrap_or_default();
        environment.push(("PATH".into(), format!("{}:{path}", crate::compilers::dir().display())));
        let limit = match self.tests.len() {
            1 => self.deadline,
            // Of tests that never ran here nothing is expected.
            count => self.deadline + Duration::from_secs_f64(3.0 * self.expected + 2.0 * count as f64),
        };
        let words = self.words();
        process::run(&Job {
            program: &self.path,
            words,
            environment,
            directory: &self.directory,
            deadline: limit,
        })
    }
}

/// What is told while units run.
pub(crate) trait Watcher: Sync {
    fn begins(&self, unit: &Unit);
    fn ended(&self, unit: &Unit, results: &[Result]);
}

/// Runs units, so many at once, those that are expected to take longest first. Returns the results
/// in no order.
pub(crate) fn run_all(mut units: Vec<Unit>, at_once: usize, watcher: &dyn Watcher) -> Vec<Result> {
    // The last is taken first.
    units.sort_by(|a, b| a.expected.total_cmp(&b.expected));
    let (left, done) = (Mutex::new(units), Mutex::new(Vec::new()));
    let take = || left.lock().ok().and_then(|mut left| left.pop());
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some(unit) = take().filter(|_| !crate::sys::interrupted()) {
                    let results = run(&unit, watcher);
                    if let Ok(mut done) = done.lock() {
                        done.extend(results);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}

/// Runs one unit.
pub(crate) fn run(unit: &Unit, watcher: &dyn Watcher) -> Vec<Result> {
    watcher.begins(unit);
    let mut results = match (unit.run(), unit.tests.as_slice()) {
        (Ok(ran), [test]) => vec![result::of_single(&unit.name(test), &ran)],
        (Ok(ran), _) => {
            let mut results = result::of_whole(&unit.program, &ran);
            results.extend(of_the_whole(unit, &ran, &results));
            results
        }
        (Err(e), tests) => tests
            .iter()
            .map(|test| Result {
                name: unit.name(test),
                outcome: Outcome::Failed(e.clone()),
                seconds: 0.0,
                repeated: Vec::new(),
            })
            .collect(),
    };
    let told: BTreeSet<&str> = results.iter().map(|r| r.name.test.as_str()).collect();
    let missing: Vec<Unit> =
        unit.tests.iter().filter(|t| !told.contains(t.as_str())).map(|t| unit.single(t)).collect();
    watcher.ended(unit, &results);
    for single in missing {
        if crate::sys::interrupted() {
            break;
        }
        results.extend(run(&single, watcher));
    }
    results
}

/// What is wrong with a program as a whole, beside its tests.
fn of_the_whole(unit: &Unit, ran: &process::Ran, results: &[Result]) -> Option<Result> {
    let has_failures = results.iter().any(Result::has_failed);
    let why = match &ran.end {
        // Rust's own runner ends so when a test has failed.
        End::Status(101) if has_failures => None,
        End::Status(0) => None,
        End::Status(code) => Some(format!("status {code}")),
        End::Signal(signal) => Some(format!("killed by signal {signal}")),
        End::Killed(why) => Some(why.clone()),
    };
    let left = (!ran.left.is_empty()).then(|| format!("it leaves {}", ran.left.join("; ")));
    let text: Vec<String> = why.into_iter().chain(left).collect();
    (!text.is_empty()).then(|| Result {
        name: unit.name(WHOLE),
        outcome: Outcome::Failed(format!("{}\n{}", text.join("\n"), ran.err.trim())),
        seconds: ran.took.as_secs_f64(),
        repeated: Vec::new(),
    })
}

/// Whether failed tests are run again.
pub(crate) fn retries() -> bool {
    std::env::var_os("DTRACE_RETRY").is_none_or(|value| value != "0")
}

/// Runs the tests that have failed again, once, one after the other, when nothing else runs. Those
/// that pass are flaky.
pub(crate) fn retry(units: &[Unit], results: &mut [Result], watcher: &dyn Watcher) {
    let unit_of = |name: &Name| {
        if name.test == WHOLE {
            let all = units.iter().filter(|u| u.program == name.program);
            return all.max_by_key(|u| u.tests.len()).cloned();
        }
        units.iter().find_map(|u| u.single_of(name))
    };
    for at in 0..results.len() {
        let Some(Result { name, outcome: Outcome::Failed(first), .. }) = results.get(at) else { continue };
        let (Some(unit), first) = (unit_of(name), first.clone()) else { continue };
        if crate::sys::interrupted() {
            return;
        }
        let again = run(&unit, watcher);
        let passes = again.iter().all(|r| matches!(r.outcome, Outcome::Passed | Outcome::Skipped(_)));
        let passes = passes && again.iter().any(|r| r.outcome == Outcome::Passed);
        if let Some(result) = results.get_mut(at).filter(|_| passes) {
            result.outcome = Outcome::Flaky(first);
        }
    }
}
