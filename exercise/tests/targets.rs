//! The targets of the fuzzer (`fuzz/`), each with some hundred inputs: parts of a program of this machine,
//! changed, and random bytes. So they stay buildable, and what they assert is tried in every test run.
//!
//! `ROUNDS=n` sets the number of rounds, `START=n` the first seed. `SEED=n` runs one seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use exercise::choices::Choices;
use exercise::fuzz::Source;

/// The targets. They are roots of crates elsewhere, and have no main function there.
#[allow(unused_attributes, clippy::module_inception)]
#[path = "../../fuzz/fuzz_targets"]
mod targets {
    pub(crate) mod check;
    pub(crate) mod debuginfo;
    pub(crate) mod events;
    pub(crate) mod frames;
    pub(crate) mod functions;
    pub(crate) mod lines;
    pub(crate) mod programs;
    pub(crate) mod sideband;
    pub(crate) mod syntax;
    pub(crate) mod text;
    pub(crate) mod usdt;
}

/// Strings of bytes: the whole file, parts of it, and random ones, most of them with some bytes changed.
fn pool(file: &[u8], choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
    (0..6)
        .map(|n| {
            let mut bytes = match n {
                0 => file.to_vec(),
                1..4 => {
                    let start = choices.below(file.len());
                    let most = choices.below(4096);
                    file.iter().skip(start).take(most).copied().collect()
                }
                _ => (0..choices.below(300)).map(|_| choices.bits() as u8 >> choices.below(8)).collect(),
            };
            for _ in 0..choices.below(12) {
                let at = choices.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = [0, 1, 0x7f, 0x80, 0xff, choices.bits() as u8][choices.below(6)];
                }
            }
            bytes
        })
        .collect()
}

fn run(target: fn(&mut Source<'_>), rounds: u64) {
    let number = |name| std::env::var(name).ok().and_then(|s: String| s.parse::<u64>().ok());
    let start = number("SEED").or(number("START")).unwrap_or(0);
    let rounds = if number("SEED").is_some() { 1 } else { number("ROUNDS").unwrap_or(rounds) };
    let file = ["/bin/true", "/proc/self/exe"].iter().find_map(|path| std::fs::read(path).ok()).unwrap();
    let file = &file[..file.len().min(64 << 10)];
    for seed in start..start + rounds {
        let mut choices = Choices::seed(seed);
        let pool = pool(file, &mut choices);
        let mut source = Source { choices, pool: &pool };
        assert!(catch_unwind(AssertUnwindSafe(|| target(&mut source))).is_ok(), "SEED={seed}");
    }
}

#[test]
fn text_is_parsed_or_rejected() {
    run(targets::syntax::run, 1000);
    run(targets::check::run, 100);
}

#[test]
fn programs_of_the_grammar_are_compiled() {
    run(targets::programs::run, 10);
}

#[test]
fn events_of_any_bytes_are_read_or_rejected() {
    run(targets::events::run, 1000);
}

#[test]
fn records_of_side_bands_are_applied() {
    run(targets::sideband::run, 1000);
}

#[test]
fn call_frame_information_gives_a_table_or_none() {
    run(targets::frames::run, 1000);
}

#[test]
fn files_have_functions_whose_probes_are_in_them() {
    run(targets::functions::run, 500);
}

#[test]
fn probes_in_any_code_are_at_instructions() {
    run(targets::text::run, 1000);
}

#[test]
fn notes_of_usdt_have_arguments_within_bounds() {
    run(targets::usdt::run, 1000);
}

#[test]
fn debug_information_gives_types_or_errors() {
    run(targets::debuginfo::run, 1000);
}

#[test]
fn debug_information_gives_lines_or_errors() {
    run(targets::lines::run, 1000);
}
