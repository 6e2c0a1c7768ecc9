//! Promises that no stock kernel is asked about: an error, unless the row says why.
//!
//! A row of SPECIFICATION.md names its tests by file. Tests of the crates that ask nothing of a
//! kernel (the head of the document names the others) are no matter of this rule. A row whose other
//! tests all are in `here` lines of `testing/places` needs the words *on this machine only*, with
//! the reason.

use std::path::Path;

use crate::test::NeverInGuests;

/// What a row says that is an exception.
const EXCEPTION: &str = "on this machine only";

/// The promises whose tests never run on a stock kernel.
pub(super) fn check(root: &Path) -> Result<Vec<String>, String> {
    let path = root.join("SPECIFICATION.md");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let never = NeverInGuests::load(root)?;
    let breaches = text.lines().enumerate().filter(|(_, row)| row.starts_with("| ")).filter_map(|(n, row)| {
        let kernel_tests: Vec<String> = tests_of(row).collect();
        let all_here = !kernel_tests.is_empty() && kernel_tests.iter().all(|test| never.has(test));
        (all_here && !row.contains(EXCEPTION)).then(|| {
            format!(
                "SPECIFICATION.md:{}: no stock kernel is asked: its tests are in `here` lines of testing/places, and the row \
                 does not say why (\"{EXCEPTION}: …\")",
                n + 1
            )
        })
    });
    Ok(breaches.collect())
}

/// The end-to-end tests that a row names, as `FILE::TEST`.
fn tests_of(row: &str) -> impl Iterator<Item = String> {
    let quoted = row.split('`').skip(1).step_by(2);
    quoted.filter_map(|quoted| quoted.strip_prefix("e2e/")?.split_once(".rs: ")).flat_map(|(file, names)| {
        let file = file.replace('/', "::");
        names.split(", ").map(move |name| format!("{file}::{name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_to_end_tests_of_a_row_are_named_by_file() {
        let row = "| 1 | A promise. | `e2e/usdt.rs: a, b`, `dif/src/opt.rs: c`, `e2e/fbt.rs: d` |";
        assert_eq!(tests_of(row).collect::<Vec<_>>(), ["usdt::a", "usdt::b", "fbt::d"]);
    }
}
