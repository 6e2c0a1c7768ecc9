//! The static program of a release.
//!
//! It is a static-pie for musl: no loader and no library of the machine takes part.
//! `.cargo/config.toml` has what is peculiar to that target, so that `cargo build --target` makes
//! the same program; here are only those things that depend on where it is built. Paths are
//! replaced by names, because messages of panics contain them.
//!
//! It is built with its symbols, for [`super::size`], and stripped afterwards, also of the tables
//! by which a panic would walk its stack: the program aborts at a panic, and
//! `-C force-unwind-tables=no` leaves those of every function into which a function of the standard
//! library was inlined, which are most.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::TARGET;

/// A built program.
pub(crate) struct Built {
    pub(crate) with_symbols: PathBuf,
    pub(crate) stripped: PathBuf,
}

/// The time of a release in seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the commit.
pub(crate) fn time(tree: &Path) -> Result<u64, String> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            crate::apt::run(git.args(["log", "-1", "--format=%ct"]).current_dir(tree))?
        }
    };
    text.trim().parse().map_err(|_| format!("SOURCE_DATE_EPOCH is no number of seconds: {text}"))
}

/// The path of the program as it is published, which is built if it is not there.
pub(crate) fn of(tree: &Path) -> Result<PathBuf, String> {
    Ok(build(tree, time(tree)?)?.stripped)
}

/// Why it cannot be built here.
pub(crate) fn can_be_built() -> Result<(), String> {
    let installed =
        crate::apt::run(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))?;
    match Path::new(installed.trim()).is_dir() {
        true => Ok(()),
        false => {
            Err(format!("the standard library for {TARGET} is not installed: rustup target add {TARGET}"))
        }
    }
}

/// Builds it, and strips a copy.
pub(crate) fn build(tree: &Path, time: u64) -> Result<Built, String> {
    can_be_built()?;
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let home = home.map_err(|_| "neither CARGO_HOME nor HOME is set")?;
    let places = [(tree.display().to_string(), "dtrace"), (home, "cargo")];
    let flags: Vec<String> =
        places.iter().map(|(from, to)| format!("{:?}", format!("--remap-path-prefix={from}={to}"))).collect();
    let prefixes: Vec<String> =
        places.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "-q", "-p", "cli", "--bin", "dtrace", "--target", TARGET])
        .args([
            "--config",
            &format!("target.{TARGET}.rustflags=[{}]", flags.join(",")),
            "--config",
            "profile.release.strip='none'",
        ])
        .env(format!("CFLAGS_{}", TARGET.replace('-', "_")), prefixes.join(" "))
        .env("SOURCE_DATE_EPOCH", time.to_string())
        // They would replace those of the configuration.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(tree)
        .status();
    if !status.map_err(|e| format!("cargo: {e}"))?.success() {
        return Err("the build of the static program failed".into());
    }
    let directory = crate::test::target_dir().join(TARGET).join("release");
    let (with_symbols, stripped) = (directory.join("dtrace"), directory.join("stripped/dtrace"));
    crate::apt::io(&stripped, std::fs::create_dir_all(directory.join("stripped")))?;
    let tables =
        ["--remove-section=.eh_frame", "--remove-section=.gcc_except_table", "--remove-section=.comment"];
    crate::apt::run(
        Command::new("strip").arg("--strip-all").args(tables).arg("-o").arg(&stripped).arg(&with_symbols),
    )?;
    // Packed relocations need musl 1.2.4, which an older Rust does not bring.
    crate::apt::run(Command::new(&stripped).arg("-V"))
        .map_err(|e| format!("the static program does not start ({e}): is this Rust older than 1.93?"))?;
    Ok(Built { with_symbols, stripped })
}
