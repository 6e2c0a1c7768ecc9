//! The end of a run: what is judged, and the lines that say it.

use std::time::Duration;

use super::Fallible;
use super::flaky::{self, Flaky};
use super::guests;
use super::record::HERE;
use super::result::{Name, Outcome, Result};
use super::skips::{Expected, Permitted};
use super::unit::Unit;

/// How many of the slowest tests are printed.
const SLOWEST: usize = 25;

/// How many lines of a failed test are printed again at the end.
const FAILURE_LINES: usize = 30;

/// What ran on one machine.
pub(crate) struct Machine {
    pub(crate) name: String,
    planned: Vec<Name>,
    pub(crate) results: Vec<Result>,
    /// What its kernel lacks, if that is known.
    pub(crate) lacks: Option<Vec<String>>,
    broken: Vec<String>,
    deaths: usize,
    took: Duration,
    pub(crate) parts: Vec<(String, Duration)>,
}

impl Machine {
    pub(crate) fn new(name: &str, units: &[Unit], took: Duration) -> Machine {
        Machine {
            name: name.into(),
            planned: units.iter().flat_map(Unit::names).collect(),
            results: Vec::new(),
            lacks: None,
            broken: Vec::new(),
            deaths: 0,
            took,
            parts: Vec::new(),
        }
    }

    pub(crate) fn of_guest(plan: &guests::Plan, ran: Fallible<guests::Ran>, took: Duration) -> Machine {
        let mut machine = Machine::new(&plan.machine, &plan.units, took);
        match ran {
            Ok(ran) => {
                (machine.results, machine.lacks) = (ran.results, ran.lacks);
                (machine.broken, machine.deaths) = (ran.broken, ran.deaths);
            }
            Err(e) => machine.broken.push(e),
        }
        machine
    }

    /// What has happened, in one line.
    pub(crate) fn line(&self) -> String {
        let count = |is: fn(&Outcome) -> bool| self.results.iter().filter(|r| is(&r.outcome)).count();
        format!(
            "{}: {} passed, {} failed, {} skipped in {} s{}",
            self.name,
            count(|o| matches!(o, Outcome::Passed | Outcome::Flaky(_))),
            count(|o| matches!(o, Outcome::Failed(_))),
            count(|o| matches!(o, Outcome::Skipped(_))),
            self.took.as_secs(),
            if self.broken.is_empty() { String::new() } else { format!("; {}", self.broken.join("; ")) }
        )
    }

    /// The planned tests that have no outcome.
    fn without_outcome(&self) -> Vec<&Name> {
        let told: std::collections::BTreeSet<&Name> = self.results.iter().map(|r| &r.name).collect();
        self.planned.iter().filter(|name| !told.contains(name)).collect()
    }
}

/// What has been run: sums, breaches, times.
#[derive(Default)]
pub(crate) struct Run {
    /// Write the lists of skips anew instead of comparing.
    update: bool,
    /// Nothing was left out by options.
    is_whole: bool,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Lines about tests that were run again because of what the kernel reported.
    repeated: Vec<String>,
    /// Tests that failed and passed alone: the lines to commit.
    flaky: Vec<String>,
    /// Tests that fail at the parent commit too.
    before: Vec<String>,
    /// Tests that failed, with their machine, and the first lines of why.
    failures: Vec<String>,
    /// What makes the run fail.
    pub(crate) broken: Vec<String>,
    /// Each part with its time.
    pub(crate) parts: Vec<(String, Duration)>,
    /// Each test with its machine and seconds.
    times: Vec<(f64, String)>,
}

impl Run {
    pub(crate) fn new(update: bool, is_whole: bool) -> Run {
        Run { update, is_whole, ..Run::default() }
    }

    /// Adds a machine. `is_new` says whether a failed test does not fail at the parent commit.
    pub(crate) fn add(
        &mut self,
        machine: &Machine,
        is_new: &dyn Fn(&str, &Name) -> bool,
        flaky: &Flaky,
        round: u64,
    ) -> Fallible<()> {
        let day = flaky::day(now());
        let place = &machine.name;
        self.parts.push((format!("tests on {place}"), machine.took));
        self.parts.extend(machine.parts.iter().cloned());
        for result in &machine.results {
            self.times.push((result.seconds, format!("{place}  {}", result.name)));
            self.repeated.extend(result.repeated.iter().map(|line| format!("{place}  {line}")));
            match &result.outcome {
                Outcome::Passed => self.passed += 1,
                Outcome::Skipped(_) => self.skipped += 1,
                Outcome::Flaky(why) => {
                    self.passed += 1;
                    self.flaky.extend(flaky::line(result, place, &day, round));
                    if flaky.knows(result, round) {
                        self.broken.push(format!(
                            "{place}: {} is in testing/flaky and has flaked again",
                            result.name
                        ));
                        self.failures.push(failure(place, result, why));
                    }
                }
                Outcome::Failed(why) if is_new(place, &result.name) => {
                    self.failed += 1;
                    self.failures.push(failure(place, result, why));
                }
                Outcome::Failed(why) => {
                    self.failed += 1;
                    self.before.push(failure(place, result, why));
                }
            }
        }
        let count = machine.results.iter().filter(|r| r.has_failed()).count();
        if count > 0 {
            self.broken.push(format!("{place}: {count} tests failed"));
        }
        self.broken.extend(machine.broken.iter().map(|why| format!("{place}: {why}")));
        let without = machine.without_outcome();
        if !without.is_empty() {
            let some: Vec<String> = without.iter().take(5).map(|name| name.to_string()).collect();
            self.broken.push(format!(
                "{place}: {} tests have no outcome: {} …",
                without.len(),
                some.join(", ")
            ));
        }
        if machine.results.is_empty() {
            self.broken.push(format!("{place}: no test ran"));
        }
        if machine.deaths > 0 {
            println!(
                "{place}: {} guests ended before their tests did: their consoles are above",
                machine.deaths
            );
        }
        self.judge(machine)
    }

    /// Compares the skips of a machine with what is expected of it.
    fn judge(&mut self, machine: &Machine) -> Fallible<()> {
        let (results, lacks) = (&machine.results, machine.lacks.as_deref());
        let list = match machine.name.as_str() {
            HERE => {
                let lacks = lacks.unwrap_or_default();
                match Expected::of_host(lacks)? {
                    Some(list) => list,
                    None => {
                        let breaches = Permitted::load()?.breaches(results, lacks);
                        self.broken.extend(breaches.into_iter().map(|b| format!("testing/skips/any: {b}")));
                        return Ok(());
                    }
                }
            }
            kernel => Expected::load(kernel)?,
        };
        if self.update {
            return Expected::update(&list.name, results, lacks);
        }
        let breaches = list.breaches(results, lacks);
        self.broken.extend(breaches.into_iter().map(|b| format!("testing/skips/{}: {b}", list.name)));
        Ok(())
    }

    /// Adds the examples in the documentation: how many passed, or why not.
    pub(crate) fn documentation(&mut self, ran: Fallible<usize>) {
        match ran {
            Ok(passed) => self.passed += passed,
            Err(why) => {
                self.failed += 1;
                self.broken.push(why);
            }
        }
    }

    /// Notes that no guest can run. Root can install what they need: then it is a failure.
    pub(crate) fn without_guests(&mut self, why: &str, root: bool, guests: usize) {
        if root {
            self.broken
                .push(format!("the guests' kernels and programs cannot be fetched (--host: without): {why}"));
            return;
        }
        println!("skipped: the guests: not root: {why}");
        self.skipped += guests;
    }

    /// The closing lines.
    pub(crate) fn print(&mut self) {
        println!("duration by part");
        for (part, took) in &self.parts {
            println!("  {:>5} s  {part}", took.as_secs());
        }
        println!("slowest tests");
        self.times.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (seconds, test) in self.times.iter().take(SLOWEST) {
            println!("  {seconds:>7.1} s  {test}");
        }
        self.repeated.iter().for_each(|line| println!("repeated: {line}"));
        for line in &self.flaky {
            println!("flaky: it failed, and passed alone; the line for testing/flaky:\n{line}");
        }
        self.before.iter().for_each(|line| println!("failed at the parent commit too: {line}"));
        self.failures.iter().for_each(|failure| println!("failed test: {failure}"));
        self.broken.iter().for_each(|what| println!("failed: {what}"));
        if !self.is_whole {
            println!("(a part of the tests)");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
    }
}

fn failure(machine: &str, result: &Result, why: &str) -> String {
    let text: String = why.lines().take(FAILURE_LINES).map(|l| format!("\n    {l}")).collect();
    format!("{machine}  {}:{text}", result.name)
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |t| t.as_secs())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn kernels_that_root_cannot_fetch_fail_the_run() {
        let mut run = Run::default();
        run.without_guests("no network", false, 3);
        assert_eq!((run.broken.len(), run.skipped), (0, 3));
        run.without_guests("no network", true, 3);
        assert_eq!((run.broken.len(), run.skipped), (1, 3));
    }

    fn machine(results: &[(&str, Outcome)]) -> Machine {
        let program = super::super::programs::Program {
            name: "p".into(),
            path: "/p".into(),
            directory: "/".into(),
            takes_names: true,
            tests: Vec::new(),
        };
        let names = results.iter().map(|(name, _)| name.to_string()).collect();
        let mut machine = Machine::new("7.2", &[Unit::of(&program, names)], Duration::from_secs(1));
        let result = |(name, outcome): &(&str, Outcome)| Result {
            name: Name { program: "p".into(), test: (*name).into() },
            outcome: outcome.clone(),
            seconds: 1.0,
            repeated: Vec::new(),
        };
        machine.results = results.iter().map(result).collect();
        machine
    }

    #[test]
    fn a_run_fails_for_a_failure_a_test_without_an_outcome_and_a_known_flake() {
        let flaky = Flaky::load(Path::new("/nonexistent")).unwrap();
        let judged = |machine: &Machine, flaky: &Flaky| {
            let mut run = Run::default();
            run.add(machine, &|_, _| true, flaky, 0).unwrap();
            run
        };
        let good = machine(&[("a", Outcome::Passed), ("b", Outcome::Flaky("x".into()))]);
        let run = judged(&good, &flaky);
        assert_eq!((run.passed, run.broken.len(), run.flaky.len()), (2, 0, 1));
        let failed = judged(&machine(&[("a", Outcome::Failed("x".into()))]), &flaky);
        assert_eq!((failed.failed, failed.broken.len()), (1, 1));
        let mut lost = machine(&[("a", Outcome::Passed), ("b", Outcome::Passed)]);
        lost.results.pop();
        assert!(judged(&lost, &flaky).broken[0].contains("1 tests have no outcome: p b"));
        assert!(judged(&machine(&[]), &flaky).broken[0].contains("no test ran"));
    }
}
