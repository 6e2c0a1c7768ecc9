//! The tests of one kernel, in its guest: booted once, and again only when it dies.
//!
//! A guest that dies (a panic) or that says nothing more loses only the unit that ran: the others
//! have told what became of them, and what is left runs in another guest, that unit last. A test
//! that ends two guests has failed. The units of a program that take several tests are taken apart
//! after the first death.
//!
//! Where the time of a guest goes, each measured once:
//!
//! | Measured | Found |
//! |---|---|
//! | QEMU's thread for the CPUs, in 36 tests of `each` rows on 6.1 and 7.2 | has work 91 and 94 % of the time: more tests at once in a guest would gain little |
//! | QEMU itself, in the same tests on 6.12 (samples of its thread) | translated code 49 %; looking up the next block of code 28 %; other parts of QEMU 16 %; this machine's kernel 6 % |
//! | the guest's CPU time, in 36 tests of other rows on 6.12 | kernel 65 %, programs 35 % |
//! | starting `dtrace` (95 MB) | 0.1 s once its file has been read, stripped or not |
//! | starting the end-to-end tests' program | 0.26 s for each test |
//! | a session with a probe of `fbt` | 0.4 s: half of it the kernel's list of functions, which it searches from its beginning for each page that is read |

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::agent::{self, Told};
use super::board::Board;
use super::result::{Name, Outcome, Result};
use super::unit::Unit;
use crate::vm::{Ended, Guest};

/// A guest says each ten seconds that it is alive: after so many without a word it is taken for
/// dead.
const SILENCE: u64 = 300;

/// Boots for one plan at most.
const BOOTS: usize = 8;

/// Lines of a console that are shown.
const CONSOLE: usize = 60;

/// A kernel with what runs on it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How the machine is called: the kernel, or the name of its list of skips.
    pub(crate) machine: String,
    pub(crate) kernel: String,
    /// Words for the kernel's command line.
    pub(crate) words: String,
    pub(crate) units: Vec<Unit>,
}

/// What became of a plan.
pub(crate) struct Ran {
    pub(crate) results: Vec<Result>,
    pub(crate) lacks: Option<Vec<String>>,
    /// What is wrong with the kernel or the guest.
    pub(crate) broken: Vec<String>,
    /// Boots that ended in a death or in silence.
    pub(crate) deaths: usize,
}

/// Boots a guest with a plan, and tells how it ended.
pub(crate) type Boot<'a> = dyn Fn(&[Unit], &mut Told<'_>) -> std::result::Result<Ended, String> + 'a;

/// Runs a plan in guests of a stock kernel. `dtrace` is asked for what the kernel lacks.
pub(crate) fn run(plan: &Plan, dtrace: &std::path::Path, board: &Board) -> std::result::Result<Ran, String> {
    let this = crate::own_program()?;
    run_in(plan, board, &|units, told| {
        let mut guest = Guest::new(&plan.kernel);
        guest.append.clone_from(&plan.words);
        // Should it say for ever that it is alive.
        guest.timeout =
            600 + units.iter().map(|u| 2 * u.deadline.as_secs() + 3 * u.expected as u64).sum::<u64>();
        guest.silence = Some(SILENCE);
        guest.cwd = PathBuf::from("/");
        guest.files = vec![(agent::PLAN.into(), agent::plan(dtrace, units).into_bytes())];
        let retry = format!("DTRACE_RETRY={}", u8::from(super::unit::retries()));
        let words = ["env".into(), retry, this.display().to_string(), "agent".into()];
        crate::vm::boot(&guest, &words, told)
    })
}

/// Runs a plan in guests that `boot` boots.
fn run_in(plan: &Plan, board: &Board, boot: &Boot<'_>) -> std::result::Result<Ran, String> {
    let mut ran = Ran { results: Vec::new(), lacks: None, broken: Vec::new(), deaths: 0 };
    let mut units = plan.units.clone();
    let mut blamed: BTreeMap<String, u32> = BTreeMap::new();
    let mut consoles = Vec::new();
    for number in 0..BOOTS {
        let mut told = Told::new(board, &plan.machine);
        let ended = boot(&units, &mut told)?;
        let fresh: BTreeSet<Name> = told.results.iter().map(|r| r.name.clone()).collect();
        ran.results.retain(|r| !fresh.contains(&r.name));
        ran.results.append(&mut told.results);
        ran.lacks = ran.lacks.or(told.lacks);
        let what = match ended {
            Ended::Status(0) => {
                survivors_are_flaky(&mut ran.results, &blamed, &consoles);
                return Ok(ran);
            }
            Ended::Status(code) => {
                ran.broken.push(format!("status {code}: {}", last(&told.other)));
                return Ok(ran);
            }
            Ended::Kernel(faults) => {
                ran.broken.push(format!("faults in the kernel's log:\n{faults}"));
                return Ok(ran);
            }
            Ended::Died(console) | Ended::Lost(console) => last(&console),
        };
        if crate::sys::interrupted() {
            return Ok(ran);
        }
        ran.deaths += 1;
        consoles.push(what.clone());
        let culprit = told.running.take();
        let name = culprit.as_deref().unwrap_or("no test");
        board.say(&format!("the guest {} has ended while {name} ran; its console:\n{what}", plan.machine));
        units = left(&units, &ran.results);
        let Some(culprit) = culprit else {
            ran.broken.push(format!("a guest has ended while no test ran:\n{what}"));
            // Two guests that do not even begin will not begin in a third one.
            if number > 0 || units.is_empty() {
                return Ok(ran);
            }
            continue;
        };
        let times = blamed.entry(culprit.clone()).or_default();
        *times += 1;
        let (suspects, mut others): (Vec<Unit>, Vec<Unit>) =
            units.into_iter().partition(|unit| unit.is_or_has(&culprit));
        for unit in suspects {
            if unit.tests.len() > 1 {
                others.extend(unit.tests.iter().map(|test| unit.single(test)));
            } else if *times > 1 {
                let name = Name { program: unit.program.clone(), test: unit.tests.concat() };
                let outcome = Outcome::Failed(format!("two guests have ended while it ran:\n{what}"));
                let result = Result { name, outcome, seconds: 0.0, repeated: Vec::new() };
                board.ended(&plan.machine, &culprit, unit.expected, std::slice::from_ref(&result));
                ran.results.push(result);
            } else {
                others.push(unit);
            }
        }
        units = others;
        if units.is_empty() {
            return Ok(ran);
        }
        // What failed in the guest that has ended has not run again, alone.
        let failed = ran.results.iter().filter(|r| r.has_failed());
        let failed: Vec<Unit> =
            failed.filter_map(|r| plan.units.iter().find_map(|u| u.single_of(&r.name))).collect();
        let again = failed.into_iter().filter(|unit| !blamed.contains_key(&unit.title()));
        units.extend(again.filter(|_| super::unit::retries()));
    }
    ran.broken.push(format!("{BOOTS} guests have ended before all tests had run"));
    Ok(ran)
}

/// A test in which a guest ended, and which passed in another guest, is flaky: the console says
/// why.
fn survivors_are_flaky(results: &mut [Result], blamed: &BTreeMap<String, u32>, consoles: &[String]) {
    let is_blamed = |name: &Name| blamed.contains_key(&name.to_string());
    for result in results.iter_mut().filter(|r| r.outcome == Outcome::Passed && is_blamed(&r.name)) {
        result.outcome = Outcome::Flaky(format!("a guest ended while it ran:\n{}", consoles.join("\n")));
    }
}

/// What has no result yet. A unit whose title changes because some of its tests have one keeps its
/// place.
fn left(units: &[Unit], results: &[Result]) -> Vec<Unit> {
    let done: BTreeSet<(&str, &str)> =
        results.iter().map(|r| (r.name.program.as_str(), r.name.test.as_str())).collect();
    let rest = units.iter().map(|unit| {
        let is_left = |test: &&String| !done.contains(&(unit.program.as_str(), test.as_str()));
        Unit { tests: unit.tests.iter().filter(is_left).cloned().collect(), ..unit.clone() }
    });
    rest.filter(|unit| !unit.tests.is_empty()).collect()
}

fn last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(CONSOLE)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    fn unit(program: &str, tests: &[&str]) -> Unit {
        Unit {
            program: program.into(),
            path: "/t".into(),
            directory: "/".into(),
            tests: tests.iter().map(|t| t.to_string()).collect(),
            environment: Vec::new(),
            deadline: Duration::from_secs(1),
            expected: 1.0,
        }
    }

    /// Runs units in guests that die when they come to one of these tests.
    fn with_deadly(units: Vec<Unit>, deadly: &[&str]) -> (Ran, Vec<String>) {
        let plan = Plan { machine: "m".into(), kernel: "k".into(), words: String::new(), units };
        let booted = RefCell::new(Vec::new());
        let ran = run_in(&plan, &Board::new(), &|units, told| {
            let titles: Vec<String> = units.iter().map(Unit::title).collect();
            booted.borrow_mut().push(titles.join(", "));
            for unit in units {
                writeln!(told, "@begins {}", unit.title()).unwrap();
                if unit.tests.iter().any(|test| deadly.contains(&test.as_str())) {
                    return Ok(Ended::Died("Kernel panic".into()));
                }
                for test in &unit.tests {
                    let name = Name { program: unit.program.clone(), test: test.clone() };
                    let result =
                        Result { name, outcome: Outcome::Passed, seconds: 1.0, repeated: Vec::new() };
                    writeln!(told, "@result {}", result.to_line()).unwrap();
                }
                writeln!(told, "@ended 1 {}", unit.title()).unwrap();
            }
            Ok(Ended::Status(0))
        });
        (ran.unwrap(), booted.into_inner())
    }

    #[test]
    fn a_guest_that_dies_loses_only_what_ran_and_a_test_that_ends_two_has_failed() {
        let (ran, booted) =
            with_deadly(vec![unit("p", &["a"]), unit("p", &["b"]), unit("p", &["c"])], &["b"]);
        assert_eq!(booted, ["p a, p b, p c", "p c, p b"]);
        assert_eq!((ran.deaths, ran.results.len(), ran.broken.len()), (2, 3, 0));
        let failed: Vec<String> =
            ran.results.iter().filter(|r| r.has_failed()).map(|r| r.name.to_string()).collect();
        assert_eq!(failed, ["p b"]);
    }

    #[test]
    fn a_program_in_which_a_guest_dies_is_taken_apart() {
        let (ran, booted) = with_deadly(vec![unit("p", &["a", "b"]), unit("q", &["c"])], &["a"]);
        assert_eq!(booted, ["p (2 tests), q c", "q c, p a, p b", "p b, p a"]);
        assert_eq!(ran.results.iter().filter(|r| r.has_failed()).count(), 1);
        assert_eq!(ran.results.len(), 3);
    }

    #[test]
    fn guests_that_do_not_come_up_are_not_booted_for_ever() {
        let plan = Plan {
            machine: "m".into(),
            kernel: "k".into(),
            words: String::new(),
            units: vec![unit("p", &["a"])],
        };
        let ran = run_in(&plan, &Board::new(), &|_, _| Ok(Ended::Lost("no root".into()))).unwrap();
        assert!(ran.deaths == 2 && ran.broken.len() == 2 && ran.broken[0].contains("no root"));
    }
}
