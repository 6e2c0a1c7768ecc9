//! Which tests run in which guest: those that a kernel is most likely to break in each, the others
//! in turn.
//!
//! An emulated CPU takes hours for all tests on each kernel. A run takes, for each kernel,
//!
//! 1. the tests of the `each` rows of [`super::places`];
//! 2. a twelfth of the others, so that twelve commits in a row run every test on every kernel. The
//!    seed decides which: it is the number of the commit (`DTRACE_SEED` repeats another one's
//!    choice);
//! 3. those that have not run there for longest, by their recorded times, as long as the budget
//!    lasts.

use super::places::Places;
use super::record::Record;
use super::result::Name;

/// The parts in which the tests take turns: each runs on each kernel within so many commits.
pub(crate) const TURNS: u64 = 12;

/// The time of a test that has not run on a kernel yet, in seconds.
const UNKNOWN: f64 = 4.0;

/// What decides.
pub(crate) struct Choice<'a> {
    pub(crate) places: &'a Places,
    pub(crate) record: &'a Record,
    pub(crate) seed: u64,
    /// Seconds of a guest for the tests of a kernel. The first two groups run whatever it is.
    pub(crate) budget: f64,
    /// All tests that may run there, whatever the budget.
    pub(crate) all: bool,
}

impl Choice<'_> {
    /// The time that a test takes on a kernel, as far as it is known.
    pub(crate) fn expected(&self, name: &Name, kernel: &str) -> f64 {
        self.record.past(name, kernel).map_or(UNKNOWN, |past| past.seconds)
    }

    /// The tests of a kernel's guest.
    pub(crate) fn of(&self, kernel: &str, kernels: &[&str], names: &[Name]) -> Vec<Name> {
        let able = names.iter().filter(|name| self.places.may_run_in(kernel, name));
        // Each kernel has another part of the same run.
        let index = kernels.iter().position(|k| *k == kernel).unwrap_or(0) as u64;
        let turn = (self.seed + index * TURNS / kernels.len().max(1) as u64) % TURNS;
        let (mut chosen, mut others): (Vec<&Name>, Vec<&Name>) =
            able.partition(|name| self.all || self.places.is_on_each(name) || hash(0, name) % TURNS == turn);
        let mut sum: f64 = chosen.iter().map(|name| self.expected(name, kernel)).sum();
        others.sort_by_key(|name| {
            (self.record.past(name, kernel).map_or(0, |past| past.commit), hash(self.seed, name))
        });
        for name in others {
            let expected = self.expected(name, kernel);
            if sum + expected <= self.budget {
                sum += expected;
                chosen.push(name);
            }
        }
        chosen.into_iter().cloned().collect()
    }
}

/// A number of a test (FNV-1a, then mixed): of its name alone, so that a test that is added moves
/// no other one.
fn hash(seed: u64, name: &Name) -> u64 {
    let bytes = name.program.bytes().chain([b' ']).chain(name.test.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

    fn names() -> Vec<Name> {
        let name = |n| Name { program: "cli:e2e".into(), test: format!("e2e::m{}::test_{n}", n % 7) };
        (0..600).map(name).collect()
    }

    fn chosen(seed: u64, kernel: &str, budget: f64, record: &Record) -> Vec<Name> {
        let places = Places::default();
        Choice { places: &places, record, seed, budget, all: false }.of(kernel, &KERNELS, &names())
    }

    #[test]
    fn twelve_commits_in_a_row_run_every_test_on_every_kernel_whatever_the_budget() {
        let record = Record::default();
        for kernel in KERNELS {
            for first in [0, 5, 496] {
                let all: BTreeSet<Name> =
                    (first..first + TURNS).flat_map(|seed| chosen(seed, kernel, 0.0, &record)).collect();
                assert_eq!(all.len(), names().len());
            }
        }
    }

    #[test]
    fn a_run_takes_about_a_twelfth_for_each_kernel_and_another_one_for_each() {
        let record = Record::default();
        for seed in 0..TURNS {
            let of = KERNELS.map(|kernel| chosen(seed, kernel, 0.0, &record));
            for tests in &of {
                assert!((20..=80).contains(&tests.len()), "{}", tests.len());
            }
            assert!(of[0] != of[1] && of[1] != of[2] && of[0] != of[2]);
            assert_eq!(of[0], chosen(seed, KERNELS[0], 0.0, &record));
        }
    }

    #[test]
    fn the_budget_goes_to_the_tests_that_have_not_run_for_longest() {
        let mut record = Record::default();
        for (number, name) in names().iter().enumerate() {
            record.note(name, "6.1", 1.0, if number < 100 { 3 } else { 10 + number as u64 });
        }
        let of_turn = chosen(4, "6.1", 0.0, &record);
        let tests = chosen(4, "6.1", 200.0, &record);
        assert_eq!(tests.len(), 200);
        let mut added = tests.iter().filter(|name| !of_turn.contains(name));
        let newest = added.clone().map(|name| record.past(name, "6.1").unwrap().commit).max().unwrap();
        assert!(
            added.all(|name| record.past(name, "6.1").unwrap().commit <= newest) && newest < 260,
            "{newest}"
        );
    }
}
