//! `cargo xtask fuzz`: inputs that nobody has thought of, for everything that reads what others
//! have written.
//!
//! The targets are those of `fuzz/`, which libFuzzer runs too. Here they are run by the example
//! `fuzz` of the crate `exercise`, with the compiler that builds everything else; a run of all
//! tests does so for a second each.

use std::path::Path;
use std::process::{Command, Stdio};

/// How long each target is run among the tests, in seconds.
const SECONDS: &str = "1";

/// Of the help text.
pub(crate) const HELP: &str = "  fuzz [--seconds N] [--seed N] [--jobs N] [--guided] [TARGET...]
                run each fuzz target for N seconds (5) on changed real inputs; a failing one becomes a file below
                fuzz/cases, which the tests run from then on; --guided builds with counters, and follows what an
                input reaches; fuzz --case FILE TARGET repeats one
";

/// `cargo xtask fuzz …`
pub(crate) fn command(arguments: &[String]) -> Result<u8, String> {
    let guided = arguments.iter().any(|word| word == "--guided");
    let words: Vec<&String> = arguments.iter().filter(|word| *word != "--guided").collect();
    let target = crate::test::target_dir();
    let target = if guided { target.join("guided") } else { target };
    let mut cargo = Command::new("cargo");
    // All packages, as the tests are built: with fewer, features of dependencies differ, and much
    // is built twice.
    cargo.args(["build", "--workspace", "--example", "fuzz", "-q"]).current_dir(crate::root());
    cargo.env("CARGO_TARGET_DIR", &target);
    if guided {
        cargo.args(["--features", "exercise/guided"]).env("RUSTFLAGS", "-C instrument-coverage");
        cargo.env("LLVM_PROFILE_FILE", "/dev/null");
    }
    if !cargo.status().map_err(|e| format!("cargo: {e}"))?.success() {
        return Err("fuzz: the build failed".into());
    }
    let program = target.join("debug/examples/fuzz");
    let status = Command::new(&program).args(words).stdin(Stdio::null()).status();
    status.map(|s| s.code().unwrap_or(1) as u8).map_err(|e| format!("{}: {e}", program.display()))
}

/// Runs all targets for a moment, as a part of all tests: how many inputs there were, or what
/// failed.
pub(crate) fn moment(target: &Path, seed: u64) -> Result<String, String> {
    let program = target.join("debug/examples/fuzz");
    let out = Command::new(&program)
        .args(["--seconds", SECONDS, "--seed", &seed.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        println!("{text}");
        return Err("the fuzz targets (cargo xtask fuzz)".into());
    }
    Ok(text.lines().last().unwrap_or_default().to_owned())
}
