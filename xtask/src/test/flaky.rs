//! Tests that failed once and passed alone: the file `testing/flaky`, which is evidence and no
//! excuse.
//!
//! ```text
//!  # a comment
//!  cli:e2e e2e::usdt_later::x | 6.12 | 2026-11-28 | round 5 | assertion failed: left: 1
//!  test, machine, day, the round in which the line expires, the first line of why
//! ```
//!
//! A test that flakes for the first time passes, and the run prints the line to commit. One that is
//! in the file and flakes again, on whichever machine, fails the run: its defect is to be found
//! now. A line expires after [`ROUNDS`] rounds ([`super::record`]), that is, when so many issues
//! have been closed without another flake; `cargo xtask tidy` asks for its removal then.

use std::path::Path;

use super::result::{Outcome, Result};

/// Rounds for which a line holds.
const ROUNDS: u64 = 2;

/// The name of the file.
const FILE: &str = "testing/flaky";

struct Line {
    test: String,
    machine: String,
    expires: u64,
}

/// The file.
pub(crate) struct Flaky(Vec<Line>);

impl Flaky {
    /// Without a file, no test is known.
    pub(crate) fn load(root: &Path) -> std::result::Result<Flaky, String> {
        match std::fs::read_to_string(root.join(FILE)) {
            Ok(text) => Flaky::parse(&text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Flaky(Vec::new())),
            Err(e) => Err(format!("{FILE}: {e}")),
        }
    }

    fn parse(text: &str) -> std::result::Result<Flaky, String> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns: Vec<&str> = line.splitn(5, " | ").collect();
            let [test, machine, _, expires, _] = columns.as_slice() else {
                return Err(format!("{FILE}:{}: not five columns: {line}", number + 1));
            };
            let expires = expires.strip_prefix("round ").and_then(|n| n.trim().parse().ok());
            let expires = expires.ok_or_else(|| format!("{FILE}:{}: no round: {line}", number + 1))?;
            lines.push(Line { test: (*test).into(), machine: (*machine).into(), expires });
        }
        Ok(Flaky(lines))
    }

    /// Whether a test is known to flake.
    pub(crate) fn knows(&self, result: &Result, round: u64) -> bool {
        let test = result.name.to_string();
        self.0.iter().any(|l| l.test == test && round < l.expires)
    }

    /// The lines that have expired.
    pub(crate) fn expired(&self, round: u64) -> Vec<String> {
        let old = self.0.iter().filter(|line| line.expires <= round);
        old.map(|l| {
            format!("{FILE}: {} has not flaked on {} for {ROUNDS} rounds: remove it", l.test, l.machine)
        })
        .collect()
    }
}

/// The line to commit for a test that has flaked.
pub(crate) fn line(result: &Result, machine: &str, day: &str, round: u64) -> Option<String> {
    let Outcome::Flaky(why) = &result.outcome else { return None };
    let why: Vec<&str> = why.lines().map(str::trim).filter(|l| !l.is_empty()).take(3).collect();
    let why: String = why.join("; ").chars().take(200).collect();
    Some(format!("{} | {machine} | {day} | round {} | {why}", result.name, round + ROUNDS))
}

/// The day of a time in seconds since 1970, in UTC (Howard Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms").
pub(crate) fn day(seconds: u64) -> String {
    let z = seconds / 86_400 + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{:02}", doy - (153 * mp + 2) / 5 + 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::result::Name;
    use super::*;

    #[test]
    fn a_test_is_known_until_its_line_expires() {
        let name = Name { program: "cli:e2e".into(), test: "e2e::a::b".into() };
        let outcome = Outcome::Flaky("\n  left: 1 | 2\n right: 3\n".into());
        let result = Result { name, outcome, seconds: 1.0, repeated: Vec::new() };
        let line = line(&result, "6.12", "2026-11-28", 3).unwrap();
        assert_eq!(line, "cli:e2e e2e::a::b | 6.12 | 2026-11-28 | round 5 | left: 1 | 2; right: 3");
        let flaky = Flaky::parse(&format!("# why\n\n{line}\n")).unwrap();
        assert_eq!([4, 5].map(|round| flaky.knows(&result, round)), [true, false]);
        assert_eq!([4, 5].map(|round| flaky.expired(round).len()), [0, 1]);
        assert!(Flaky::parse("a | b | c").is_err() && Flaky::parse("a | b | c | soon | d").is_err());
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let days = [0, 951_782_400, 951_868_800, 1_796_000_000].map(day);
        assert_eq!(days, ["1970-01-01", "2000-02-29", "2000-03-01", "2026-11-30"]);
    }
}
