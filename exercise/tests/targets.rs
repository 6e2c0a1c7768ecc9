//! The targets of the fuzzer (`fuzz/`): what has failed once passes, and some inputs of each, so
//! that they stay buildable in every place where tests run. `cargo xtask fuzz` tries more of them,
//! in each run of the tests too.
//!
//! `ROUNDS=n` sets the number of rounds, `START=n` the first seed. `SEED=n` runs one seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use exercise::choices::Choices;
use exercise::fuzz::case::Case;
use exercise::fuzz::change::change;

use crate::list::TARGETS;
use crate::session::rounds;

#[test]
fn cases_that_failed_once_pass() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/cases");
    let mut count = 0;
    for (name, target) in TARGETS {
        for entry in std::fs::read_dir(dir.join(name)).into_iter().flatten() {
            let path = entry.unwrap().path();
            let case = Case::parse(&std::fs::read_to_string(&path).unwrap());
            let case = case.unwrap_or_else(|| panic!("{}: no case", path.display()));
            let passed = catch_unwind(AssertUnwindSafe(|| case.run(*target)));
            assert!(passed.is_ok(), "{}", path.display());
            count += 1;
        }
    }
    let there = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let stored: usize = there.map(|dir| std::fs::read_dir(dir).unwrap().count()).sum();
    assert_eq!(count, stored, "there is a directory of a target that does not exist");
}

#[test]
fn each_target_takes_any_input() {
    let file = ["/bin/true", "/proc/self/exe"].iter().find_map(|path| std::fs::read(path).ok()).unwrap();
    let file = &file[..file.len().min(32 << 10)];
    for (name, target) in TARGETS {
        for seed in rounds(12) {
            let mut random = Choices::seed(seed);
            let choices = (0..64).map(|_| random.bits() as u8).collect();
            let mut pool = vec![file.to_vec(), file[file.len() / 2..].to_vec(), b"text 12 -3\n".to_vec()];
            pool.iter_mut().for_each(|bytes| change(bytes, file, &mut random));
            let case = Case { choices, pool };
            let passed = catch_unwind(AssertUnwindSafe(|| case.run(*target)));
            assert!(passed.is_ok(), "SEED={seed} of {name}");
        }
    }
}
