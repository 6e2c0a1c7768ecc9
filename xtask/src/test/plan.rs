//! What runs where in a run: units for this machine and for each guest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::guests;
use super::options::{self, Options};
use super::places::{self, Places};
use super::programs::Program;
use super::record::{HERE, Record};
use super::result::Name;
use super::rotation::{Choice, TURNS};
use super::unit::Unit;

/// Guests in which only some end-to-end tests run, because of the kernel's command line: the name
/// of its list of skips, the kernel, the words, a part of the tests' names.
const SPECIAL: [(&str, &str, &str, &str); 1] =
    [("lockdown", "6.12", "lockdown=confidentiality", "e2e::restricted::a_locked_down")];

/// Tests that take less on average, in seconds, run in one process, where their program takes
/// several names.
const QUICK: f64 = 0.05;

/// The time of a test that never ran here.
const UNKNOWN: f64 = 0.02;

/// The static program, which end-to-end tests run instead of that of the workspace.
#[derive(Clone, Copy)]
pub(crate) struct Published<'a> {
    pub(crate) path: &'a Path,
    /// The only kernel in whose guest they do; `None`: everywhere.
    pub(crate) kernel: Option<&'a str>,
}

/// In which of these kernels' guests a run of everything tests the static program, if in one.
/// Building it takes over four minutes of a CPU, so only some commits do. Their distance has no
/// divisor in common with the [`TURNS`] of the tests, and each time all of these have had their
/// turn the kernels go on by one: so each test runs with it on each kernel.
pub(crate) fn turn_of_published<'a>(seed: u64, kernels: &[&'a str]) -> Option<&'a str> {
    let turn = seed.is_multiple_of(PUBLISHED_EACH).then_some(seed / PUBLISHED_EACH)?;
    let number = (turn + turn / TURNS).checked_rem(kernels.len() as u64)?;
    kernels.get(usize::try_from(number).ok()?).copied()
}

/// One commit of so many tests the static program.
const PUBLISHED_EACH: u64 = 5;

/// The variable by which end-to-end tests learn which program they run.
pub(crate) const BINARY: &str = "DTRACE_BIN";

/// What was built, and what is known of it.
pub(crate) struct Known<'a> {
    pub(crate) programs: &'a [Program],
    pub(crate) places: &'a Places,
    pub(crate) record: &'a Record,
    /// What failed in the last run, by machine, if only that is to run.
    pub(crate) failed: Option<&'a BTreeSet<(String, Name)>>,
    /// The program that end-to-end tests run, where it is not that of the workspace.
    pub(crate) published: Option<Published<'a>>,
    /// What decides which tests run in guests, and which cases tests generate.
    pub(crate) seed: u64,
}

/// What runs on this machine.
#[derive(Default)]
pub(crate) struct Here {
    /// One after the other, with nothing beside.
    pub(crate) alone: Vec<Unit>,
    pub(crate) beside: Vec<Unit>,
}

impl Known<'_> {
    /// All tests.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.programs.iter().flat_map(Program::names).collect()
    }

    /// What runs these tests of a program. The caller sets what it expects of them.
    fn unit(&self, machine: &str, program: &Program, tests: Vec<String>) -> Unit {
        let mut environment = vec![("DTRACE_SEED".into(), self.seed.to_string())];
        let published = self.published.filter(|p| p.kernel.is_none_or(|kernel| kernel == machine));
        if let Some(published) = published.filter(|_| program.name == places::END_TO_END) {
            environment.push((BINARY.into(), published.path.display().to_string()));
        }
        Unit { environment, ..Unit::of(program, tests) }
    }

    fn takes(&self, options: &Options, machine: &str, name: &Name) -> bool {
        let failed = self.failed.is_none_or(|all| all.contains(&(machine.to_owned(), name.clone())));
        failed && options.takes(&name.to_string())
    }

    /// What the options leave for this machine.
    pub(crate) fn here(&self, options: &Options) -> Here {
        let mut here = Here::default();
        if options.no_host {
            return here;
        }
        for program in self.programs {
            let (mut together, mut sum) = (Vec::new(), 0.0);
            for test in &program.tests {
                let name = Name { program: program.name.clone(), test: test.clone() };
                if !self.takes(options, HERE, &name) {
                    continue;
                }
                let expected = self.record.past(&name, HERE).map_or(UNKNOWN, |past| past.seconds);
                if program.takes_names && expected < QUICK && !self.places.is_alone(&name) {
                    together.push(test.clone());
                    sum += expected;
                    continue;
                }
                let deadline = self.places.limit(&name, false);
                let unit = Unit { deadline, expected, ..self.unit(HERE, program, vec![test.clone()]) };
                if self.places.is_alone(&name) { here.alone.push(unit) } else { here.beside.push(unit) }
            }
            if !together.is_empty() {
                here.beside.push(Unit { expected: sum, ..self.unit(HERE, program, together) });
            }
        }
        here
    }

    /// What runs in guests: in each kernel's, and in the special ones.
    pub(crate) fn guests(&self, options: &Options) -> Vec<guests::Plan> {
        let names = self.names();
        let choice = Choice {
            places: self.places,
            record: self.record,
            seed: self.seed,
            budget: Options::budget(),
            all: options.named || options.uncovered || options.failed || options::all_on_each(),
        };
        let mut plans = Vec::new();
        for kernel in &options.kernels {
            let mut chosen = choice.of(kernel, &crate::kernels::NAMES, &names);
            chosen.retain(|name| self.takes(options, kernel, name));
            chosen.retain(|name| !options.uncovered || !self.record.covers(name, kernel));
            let units = self.guest_units(&choice, (kernel, kernel), &chosen);
            let (machine, words) = ((*kernel).into(), String::new());
            plans.push(guests::Plan { machine, kernel: (*kernel).into(), words, units });
        }
        for (machine, kernel, words, part) in SPECIAL {
            let is_of = |name: &&Name| name.test.starts_with(part) && self.takes(options, machine, name);
            let chosen: Vec<Name> = names.iter().filter(is_of).cloned().collect();
            if options.kernels.contains(&kernel) && !options.uncovered {
                let units = self.guest_units(&choice, (machine, kernel), &chosen);
                let (kernel, words) = (kernel.into(), words.into());
                plans.push(guests::Plan { machine: machine.into(), kernel, words, units });
            }
        }
        plans.retain(|plan| !plan.units.is_empty());
        // Those that take longest begin.
        let sum = |plan: &guests::Plan| plan.units.iter().map(|u| u.expected).sum::<f64>();
        plans.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
        plans
    }

    /// Of each program that takes several names the tests with the same rounds run in one process:
    /// in a guest a process costs about as much as a quick test.
    fn guest_units(&self, choice: &Choice<'_>, (machine, kernel): (&str, &str), names: &[Name]) -> Vec<Unit> {
        let mut together: BTreeMap<(&str, Option<&str>), Unit> = BTreeMap::new();
        let mut units = Vec::new();
        for program in self.programs {
            for name in names.iter().filter(|name| name.program == program.name) {
                let rounds = self.places.rounds(name);
                let expected = choice.expected(name, kernel);
                let deadline = self.places.limit(name, true);
                let mut unit =
                    Unit { deadline, expected, ..self.unit(machine, program, vec![name.test.clone()]) };
                unit.environment.extend(rounds.iter().map(|n| ("ROUNDS".to_owned(), (*n).to_owned())));
                if !program.takes_names || self.places.is_alone(name) {
                    units.push(unit);
                    continue;
                }
                let sum = together.entry((&program.name, rounds));
                let sum = sum.or_insert_with(|| Unit { tests: Vec::new(), expected: 0.0, ..unit.clone() });
                sum.tests.extend(unit.tests);
                sum.expected += expected;
                sum.deadline = sum.deadline.max(unit.deadline);
            }
        }
        // In the order in which they run here: what this machine has compiled for a test is not
        // compiled by an emulated CPU.
        let here = |unit: &Unit| {
            let times =
                unit.names().map(|name| self.record.past(&name, HERE).map_or(UNKNOWN, |past| past.seconds));
            times.sum::<f64>()
        };
        units.sort_by(|a, b| here(b).total_cmp(&here(a)));
        // The programs of the crates come first: what they find is nearer to its cause.
        together.into_values().chain(units).collect()
    }
}

/// The pairs of tests and kernels that have not run in this round.
pub(crate) fn uncovered(known: &Known<'_>) -> usize {
    let names = known.names();
    let open = |kernel: &str| {
        let able = names.iter().filter(|name| known.places.may_run_in(kernel, name));
        able.filter(|name| !known.record.covers(name, kernel)).count()
    };
    crate::kernels::NAMES.iter().map(|kernel| open(kernel)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_static_program_runs_each_test_in_the_guest_of_each_kernel_in_its_turn() {
        let kernels = ["6.1", "6.12", "7.2"];
        let period = PUBLISHED_EACH * TURNS * kernels.len() as u64;
        let turns: BTreeSet<_> = (0..period)
            .filter_map(|seed| turn_of_published(seed, &kernels).map(|kernel| (kernel, seed % TURNS)))
            .collect();
        assert_eq!(turns.len() as u64, TURNS * kernels.len() as u64);
        assert_eq!((turn_of_published(7, &kernels), turn_of_published(10, &[])), (None, None));
    }
}
