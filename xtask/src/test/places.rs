//! Where tests run, beside what, and for how long: the table `testing/places`.
//!
//! ```text
//!  # a comment
//!  guest  bpf-runtime:all/routines::  0  WHY     of a crate's program: runs in guests, with so many rounds (0: as it has)
//!  each   fbt::  WHY                             in each guest in each run: a kernel is most likely to break it
//!  here   packages::  WHY                        in no guest
//!  only   6.12  flow::a_tree  WHY                in the guest of this kernel alone
//!  alone  deadman::  WHY                         owns the machine: no other test and no guest beside it
//!  limit  120 many::five_hundred  WHY            may take so many seconds here, and five times as many in a guest
//! ```
//!
//! A pattern is the beginning of a test's name: of an end-to-end test without `e2e::`, of any other
//! test `PROGRAM/NAME`. The first row of a verb that names a test decides. Each row says why.
//!
//! Every end-to-end test and every test of a `guest` row may run in a guest, in its turn
//! ([`super::rotation`]).

use std::path::Path;
use std::time::Duration;

use super::result::Name;

/// The program of the end-to-end tests.
pub(crate) const END_TO_END: &str = "cli:e2e";

/// How long a test may take here and in a guest, unless a row says otherwise.
const LIMIT: [u64; 2] = [60, 300];

#[derive(Debug)]
struct Row {
    verb: String,
    /// A kernel or a number, where the verb has one.
    value: String,
    pattern: String,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Places {
    rows: Vec<Row>,
}

/// The verbs, and whether each has a value before or behind its pattern.
const VERBS: [(&str, bool); 6] =
    [("guest", true), ("each", false), ("here", false), ("only", true), ("alone", false), ("limit", true)];

impl Places {
    pub(crate) fn load(root: &Path) -> Result<Places, String> {
        let path = root.join("testing/places");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Places::parse(&text)
    }

    fn parse(text: &str) -> Result<Places, String> {
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let fail = |what: &str| Err(format!("testing/places:{}: {what}: {line}", number + 1));
            let mut words = line.split_whitespace();
            let Some(verb) = words.next().filter(|w| !w.starts_with('#')) else { continue };
            let Some((_, has_value)) = VERBS.iter().find(|(v, _)| *v == verb) else {
                return fail("no such verb");
            };
            let value = if *has_value { words.next() } else { Some("") };
            let (Some(value), Some(pattern)) = (value, words.next()) else { return fail("too few words") };
            if words.next().is_none() {
                return fail("no reason");
            }
            let is_right = match verb {
                "only" => crate::kernels::NAMES.contains(&value),
                "guest" | "limit" => value.parse::<u32>().is_ok(),
                _ => true,
            };
            if !is_right {
                return fail("no such kernel or number");
            }
            rows.push(Row { verb: verb.into(), value: value.into(), pattern: pattern.into() });
        }
        Ok(Places { rows })
    }

    fn row(&self, verb: &str, name: &Name) -> Option<&Row> {
        self.rows.iter().find(|row| row.verb == verb && row.names(name))
    }

    /// Whether a test may run in the guest of this kernel.
    pub(crate) fn may_run_in(&self, kernel: &str, name: &Name) -> bool {
        let known = name.program == END_TO_END || self.row("guest", name).is_some();
        let here = self.row("here", name).is_some();
        known && !here && self.row("only", name).is_none_or(|row| row.value == kernel)
    }

    /// Whether a test runs in each guest in each run.
    pub(crate) fn is_on_each(&self, name: &Name) -> bool {
        self.row("each", name).is_some()
    }

    pub(crate) fn is_alone(&self, name: &Name) -> bool {
        self.row("alone", name).is_some()
    }

    /// How long a test may take.
    pub(crate) fn limit(&self, name: &Name, in_guest: bool) -> Duration {
        let [here, guest] = match self.row("limit", name).and_then(|row| row.value.parse().ok()) {
            Some(seconds) => [seconds, seconds * 5],
            None => LIMIT,
        };
        Duration::from_secs(if in_guest { guest.max(LIMIT[1]) } else { here })
    }

    /// The rounds of a test's generated cases in a guest.
    pub(crate) fn rounds(&self, name: &Name) -> Option<&str> {
        let row = self.row("guest", name)?;
        (row.value != "0").then_some(row.value.as_str())
    }

    /// The rows that name no test, and would be kept for ever.
    pub(crate) fn idle(&self, names: &[Name]) -> Vec<String> {
        let idle = self.rows.iter().filter(|row| !names.iter().any(|name| row.names(name)));
        idle.map(|row| format!("testing/places: \"{} {}\" names no test", row.verb, row.pattern)).collect()
    }
}

impl Row {
    fn names(&self, name: &Name) -> bool {
        if let Some((program, test)) = self.pattern.split_once('/') {
            return program == name.program && name.test.starts_with(test);
        }
        let test = name.test.strip_prefix("e2e::").unwrap_or(&name.test);
        name.program == END_TO_END && test.starts_with(&self.pattern)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(program: &str, test: &str) -> Name {
        Name { program: program.into(), test: test.into() }
    }

    #[test]
    fn rows_say_where_a_test_runs_beside_what_and_how_long() {
        let places = Places::parse(
            "# a comment\n\
             guest 6 bpf-runtime:all/differential:: it compares with the kernel\n\
             guest 0 files/ it reads the kernel's tables\n\
             each fbt:: attaching\n\
             here packages:: it compiles servers\n\
             only 6.12 flow::tree it needs functions\n\
             alone deadman:: it starves the machine\n\
             limit 120 many:: a hundred processes\n",
        )
        .unwrap();
        let [fbt, flow, packages] =
            ["e2e::fbt::x", "e2e::flow::tree", "e2e::packages::x"].map(|t| name(END_TO_END, t));
        let [differential, golden] = ["differential::x", "golden::x"].map(|t| name("bpf-runtime:all", t));
        let on = |n: &Name| ["6.1", "6.12"].map(|kernel| places.may_run_in(kernel, n));
        assert_eq!([&fbt, &flow, &packages].map(on), [[true; 2], [false, true], [false; 2]]);
        assert_eq!([&differential, &golden, &name("files", "a")].map(on), [[true; 2], [false; 2], [true; 2]]);
        assert_eq!((places.rounds(&differential), places.rounds(&name("files", "a"))), (Some("6"), None));
        assert!(places.is_on_each(&fbt) && !places.is_on_each(&flow));
        assert!(places.is_alone(&name(END_TO_END, "e2e::deadman::x")) && !places.is_alone(&fbt));
        let many = name(END_TO_END, "e2e::many::x");
        let limits = [&many, &fbt].map(|n| [false, true].map(|guest| places.limit(n, guest).as_secs()));
        assert_eq!(limits, [[120, 600], [60, 300]]);
        assert_eq!(places.idle(&[fbt, flow, packages, differential, many]).len(), 2);
    }

    #[test]
    fn a_row_that_is_not_whole_is_an_error_with_its_line() {
        for text in
            ["\neach fbt::", "here", "beside fbt:: x", "limit 5", "limit 12O a why", "only 6.13 a why"]
        {
            let error = Places::parse(text).unwrap_err();
            assert!(error.starts_with("testing/places:"), "{error}");
        }
    }
}
