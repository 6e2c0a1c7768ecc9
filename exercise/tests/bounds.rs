//! Mutated programs through the front end and the back end's first half: no panic, and bounded
//! time, memory and output.
//!
//! `ROUNDS=20000 cargo test --release -p exercise --test all bounds:: -- --nocapture` runs more of
//! them, for minutes. The texts are the programs of the golden tests, the book, the D libraries and
//! the end-to-end tests, with their words mixed. Memory is the largest increase of the process's
//! peak (`VmHWM`), which is reset before each program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use exercise::choices::Choices;
use exercise::mutate::mutate;
use exercise::stages;

/// Programs of a run, unless `ROUNDS` names another number.
const ROUNDS: u64 = 300;
/// Processor time, as the machine may be busy.
const NS_MAX: f64 = 2e9;
const KB_MAX: u64 = 100 << 10;
const OUTPUT_MAX: usize = 1 << 20;

fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// The programs, sorted by path.
fn seeds() -> Vec<String> {
    let top = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for dir in ["crates/syntax/tests", "crates/check/tests", "crates/lower/tests", "lib", "docs"] {
        files(&top.join(dir), "d", &mut found);
    }
    found.sort();
    let mut texts: Vec<String> = found.iter().filter_map(|f| std::fs::read_to_string(f).ok()).collect();
    // Commands of the documents: `# dtrace -n 'program'`.
    let mut chapters = Vec::new();
    files(&top.join("docs/book/src"), "md", &mut chapters);
    chapters.sort();
    for chapter in chapters {
        let text = std::fs::read_to_string(chapter).unwrap_or_default();
        texts
            .extend(text.split("-n '").skip(1).filter_map(|rest| Some(rest.split_once('\'')?.0.to_string())));
    }
    // Programs of the end-to-end tests: their string literals with an action list.
    let mut tests = Vec::new();
    files(&top.join("crates/cli/tests/e2e"), "rs", &mut tests);
    tests.sort();
    for file in tests {
        let text = std::fs::read_to_string(file).unwrap_or_default().replace("\\\"", "\u{1}");
        let literals = text.split('"').skip(1).step_by(2).filter(|l| l.contains('{') && l.contains('}'));
        texts.extend(literals.map(|l| l.replace('\u{1}', "\"").replace("\\n", "\n")));
    }
    assert!(texts.len() > 300, "{}", texts.len());
    texts
}

/// Nanoseconds that this thread has computed for.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// A value of `/proc/self/status` in KiB.
fn status_kb(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// Compiles so many mutations; prints the largest figures.
fn run(rounds: u64) {
    let seeds = seeds();
    let (mut slowest, mut largest, mut longest, mut compiled) = ((0.0, 0), (0, 0), (0, 0), 0);
    for seed in 0..rounds {
        let mut choices = Choices::seed(seed);
        let (a, b) = (choices.below(seeds.len()), choices.below(seeds.len()));
        let text = mutate(&seeds[a], &seeds[b], &mut choices);
        // Resets the peak; where that is not allowed the figure is of all programs so far.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let (before, started) = (status_kb("VmRSS"), cpu_ns());
        let result = std::panic::catch_unwind(|| {
            let errors = stages::errors(&text);
            let compiled = errors.is_empty() && stages::compile(&text, 256, None).is_ok();
            (errors.iter().map(String::len).sum::<usize>(), compiled)
        });
        let (ns, kb) = (cpu_ns() - started, status_kb("VmHWM").saturating_sub(before));
        let Ok((output, is_program)) = result else { panic!("seed {seed}:\n{text}") };
        compiled += u64::from(is_program);
        if ns > slowest.0 {
            slowest = (ns, seed);
        }
        largest = largest.max((kb, seed));
        longest = longest.max((output, seed));
        assert!(ns < NS_MAX, "seed {seed}: {:.1} s\n{text}", ns / 1e9);
        assert!(kb < KB_MAX, "seed {seed}: {kb} KiB\n{text}");
        assert!(output < OUTPUT_MAX, "seed {seed}: {output} bytes of errors\n{text}");
    }
    println!(
        "{rounds} programs, {compiled} compiled; at most {:.1} ms (seed {}), {} KiB (seed {}), {} bytes of errors (seed {})",
        slowest.0 / 1e6,
        slowest.1,
        largest.0,
        largest.1,
        longest.0,
        longest.1
    );
}

#[test]
fn mutated_programs_take_bounded_time_memory_and_output() {
    // Other tests would take memory.
    if !testing::alone!() {
        return;
    }
    run(std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS));
}
