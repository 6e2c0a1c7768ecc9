//! For any text, every stage ends without a panic, and the verifier of the running kernel accepts
//! what compiles. The texts are the programs of the golden tests with their words mixed.
//!
//! `ROUNDS=n` sets the number of rounds, `START=n` the first seed. `SEED=n` runs one seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use exercise::choices::Choices;
use exercise::mutate::mutate;
use exercise::stages::{self, Compiled};

use crate::session::{self, Run, Setup, privileged, rounds};

/// Programs of the golden tests, sorted by path.
fn seeds() -> Vec<String> {
    let top = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    for crate_name in ["syntax", "check", "lower"] {
        let dir = top.join(crate_name).join("tests/golden");
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        files.extend(entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "d")));
    }
    files.sort();
    let texts: Vec<String> = files.iter().filter_map(|f| std::fs::read_to_string(f).ok()).collect();
    assert!(texts.len() > 50);
    texts
}

fn mutation(seeds: &[String], seed: u64) -> String {
    let mut choices = Choices::seed(seed);
    let (a, b) = (choices.below(seeds.len()), choices.below(seeds.len()));
    mutate(&seeds[a], &seeds[b], &mut choices)
}

/// False when the program exceeds a limit of the back end.
fn accepted(module: dif::ir::Module, what: &str) -> bool {
    let setup = Setup::new(module);
    if let Some(e) = session::limit(&setup) {
        println!("{what}: a limit: {e}");
        return false;
    }
    Run::new(setup);
    true
}

#[test]
fn the_front_end_does_not_panic_on_mutated_programs() {
    let seeds = seeds();
    let mut compiled = 0;
    for seed in rounds(1200) {
        let text = mutation(&seeds, seed);
        stages::parse(&text);
        match std::panic::catch_unwind(|| stages::compile(&text, 64, None)) {
            Ok(Ok(Compiled::Module(..))) => compiled += 1,
            Ok(Ok(Compiled::Rejected(_))) => {}
            Ok(Err(e)) => panic!("seed {seed}: {e}"),
            Err(_) => panic!("seed {seed}:\n{text}"),
        }
    }
    println!("{compiled} compiled");
}

#[test]
fn the_kernel_verifier_accepts_mutated_programs_that_compile() {
    if !privileged("the_kernel_verifier_accepts_mutated_programs_that_compile") {
        return;
    }
    let seeds = seeds();
    let mut loaded = 0;
    for seed in rounds(800) {
        let text = mutation(&seeds, seed);
        let strsize = [61, 256, 10, 1024][seed as usize % 4];
        if let Ok(Compiled::Module(module, _)) = stages::compile(&text, strsize, None) {
            // Printed when the test fails.
            println!("seed {seed}:\n{text}");
            loaded += u32::from(accepted(*module, &format!("seed {seed}")));
        }
    }
    // In a small number of rounds, all programs may be rejected.
    assert!(loaded > 0 || std::env::var_os("SEED").is_some() || std::env::var_os("ROUNDS").is_some());
}

#[test]
fn the_kernel_verifier_accepts_generated_programs() {
    if !privileged("the_kernel_verifier_accepts_generated_programs") {
        return;
    }
    let mut loaded = 0;
    for seed in rounds(120) {
        let text = exercise::generate::program(&mut Choices::seed(seed), &Default::default());
        let strsize = [61, 256, 10, 1024][seed as usize % 4];
        match stages::compile(&text, strsize, None) {
            Ok(Compiled::Module(module, _)) => {
                println!("seed {seed}:\n{text}");
                loaded += u32::from(accepted(*module, &format!("seed {seed}")));
            }
            Ok(Compiled::Rejected(_)) => {}
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    // In a small number of rounds, all programs may be rejected.
    assert!(loaded > 0 || std::env::var_os("SEED").is_some() || std::env::var_os("ROUNDS").is_some());
}
