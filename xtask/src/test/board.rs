//! What runs where, what has ended, how long it may take still: one line that is rewritten on a
//! terminal, a line a minute elsewhere, so that a silent run is never taken for a hang.
//!
//! A failure is printed when it is known, whatever the output is.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::result::{Outcome, Result};
use super::unit::{Unit, Watcher};
use crate::sys;

/// How often the line is printed where there is no terminal.
const QUIET: Duration = Duration::from_secs(60);

/// How often it is rewritten on one.
const LIVELY: Duration = Duration::from_millis(200);

/// Columns of the line on a terminal.
const COLUMNS: usize = 150;

/// One machine of a run.
#[derive(Default)]
struct Machine {
    planned: usize,
    /// Seconds of what is planned and has not ended.
    left: f64,
    /// Units that run at once.
    at_once: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
    running: Vec<String>,
}

struct State {
    machines: BTreeMap<String, Machine>,
    printed: Instant,
    /// Whether an unfinished line is on the terminal.
    open: bool,
}

/// The progress of all machines.
pub(crate) struct Board {
    state: Mutex<State>,
    begun: Instant,
    terminal: bool,
}

impl Board {
    pub(crate) fn new() -> Board {
        let state = State { machines: BTreeMap::new(), printed: Instant::now(), open: false };
        Board { state: Mutex::new(state), begun: Instant::now(), terminal: sys::is_terminal() }
    }

    /// Announces what will run on a machine.
    pub(crate) fn plan(&self, machine: &str, units: &[Unit], at_once: usize) {
        let mut state = self.lock();
        let planned = state.machines.entry(machine.into()).or_default();
        planned.planned += units.iter().map(|u| u.tests.len()).sum::<usize>();
        planned.left += units.iter().map(|u| u.expected).sum::<f64>();
        planned.at_once = at_once;
    }

    pub(crate) fn begins(&self, machine: &str, title: &str) {
        let mut state = self.lock();
        state.machines.entry(machine.into()).or_default().running.push(title.into());
        self.show(&mut state);
    }

    pub(crate) fn ended(&self, machine: &str, title: &str, expected: f64, results: &[Result]) {
        let mut state = self.lock();
        let of = state.machines.entry(machine.into()).or_default();
        of.running.retain(|running| running != title);
        of.left = (of.left - expected).max(0.0);
        let mut failures = Vec::new();
        for result in results {
            match &result.outcome {
                Outcome::Passed | Outcome::Flaky(_) => of.passed += 1,
                Outcome::Skipped(_) => of.skipped += 1,
                Outcome::Failed(why) => {
                    of.failed += 1;
                    failures.push(format!("failed on {machine}: {}\n{why}", result.name));
                }
            }
        }
        failures.iter().for_each(|text| self.say_in(&mut state, text));
        self.show(&mut state);
    }

    /// Prints lines beside the progress.
    pub(crate) fn say(&self, text: &str) {
        self.say_in(&mut self.lock(), text);
    }

    fn say_in(&self, state: &mut State, text: &str) {
        let clear = if state.open { "\r\x1b[K" } else { "" };
        state.open = false;
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{clear}{text}");
    }

    /// Shows where the run is, when it is time for that.
    pub(crate) fn tick(&self) {
        self.show(&mut self.lock());
    }

    fn show(&self, state: &mut State) {
        let pause = if self.terminal { LIVELY } else { QUIET };
        if state.printed.elapsed() < pause {
            return;
        }
        state.printed = Instant::now();
        let line = line(&state.machines, self.begun.elapsed());
        let mut out = std::io::stdout().lock();
        let _ = if self.terminal {
            state.open = true;
            let line: String = line.chars().take(COLUMNS).collect();
            write!(out, "\r\x1b[K{line}")
        } else {
            writeln!(out, "{line}")
        };
        let _ = out.flush();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All machines in one line.
fn line(machines: &BTreeMap<String, Machine>, elapsed: Duration) -> String {
    let sum = |of: fn(&Machine) -> usize| machines.values().map(of).sum::<usize>();
    let [passed, failed, skipped, planned] =
        [sum(|m| m.passed), sum(|m| m.failed), sum(|m| m.skipped), sum(|m| m.planned)];
    let left = planned.saturating_sub(passed + failed + skipped);
    let longest = machines.values().map(|m| m.left / m.at_once.max(1) as f64).fold(0.0, f64::max);
    let running: Vec<String> = machines
        .iter()
        .filter(|(_, m)| !m.running.is_empty())
        .map(|(name, m)| {
            format!("{name}: {}", m.running.iter().map(|t| short(t)).collect::<Vec<_>>().join(", "))
        })
        .collect();
    let clock = |seconds: u64| format!("{}:{:02}", seconds / 60, seconds % 60);
    format!(
        "{}  {passed} passed, {failed} failed, {skipped} skipped, {left} left, about {} more; {}",
        clock(elapsed.as_secs()),
        clock(longest as u64),
        running.join("; ")
    )
}

/// A test's name without its program.
fn short(title: &str) -> &str {
    let name = title.split_once(" e2e::").map_or(title, |(_, name)| name);
    name.char_indices().nth(60).map_or(name, |(at, _)| name.get(..at).unwrap_or(name))
}

/// The board as one machine sees it.
pub(crate) struct Of<'a> {
    pub(crate) board: &'a Board,
    pub(crate) machine: &'a str,
}

impl Watcher for Of<'_> {
    fn begins(&self, unit: &Unit) {
        self.board.begins(self.machine, &unit.title());
    }

    fn ended(&self, unit: &Unit, results: &[Result]) {
        self.board.ended(self.machine, &unit.title(), unit.expected, results);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_runs_where_and_what_is_left() {
        let here = Machine {
            planned: 10,
            left: 90.0,
            at_once: 3,
            passed: 4,
            failed: 1,
            skipped: 2,
            running: vec!["cli:e2e e2e::fbt::x".into(), "dif (45 tests)".into()],
        };
        let guest = Machine {
            planned: 5,
            left: 70.0,
            at_once: 1,
            running: vec!["files a".into()],
            ..Machine::default()
        };
        let machines = BTreeMap::from([("here".into(), here), ("6.12".into(), guest)]);
        assert_eq!(
            line(&machines, Duration::from_secs(75)),
            "1:15  4 passed, 1 failed, 2 skipped, 8 left, about 1:10 more; 6.12: files a; here: fbt::x, dif (45 tests)"
        );
    }
}
