//! `cargo xtask wheel`: the package `dtrace` of Python as a wheel in `target/wheels`.
//!
//! ```text
//!  the static program that is published ─────────▶ python/dtrace/bin/dtrace ──┐
//!  maturin (of PyPI, unless one is on PATH): the library of bindings/python ──┴─▶ wheel
//! ```
//!
//! The program in it reads the symbols of processes for the library, so both are of one tree.
//! `--test` installs the wheel in a new virtual environment and runs examples of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{io, run};

/// The lines of `cargo xtask help`.
pub(crate) const HELP: &str = "  wheel [--test]
                build the package of Python and make its wheel in target/wheels; fails above 12 MB; --test installs
                it in a new virtual environment and traces with it
";

/// The greatest size of the wheel, in bytes.
const MOST: u64 = 12_000_000;

/// `cargo xtask wheel [--test]`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let test = match args {
        [] => false,
        [word] if word == "--test" => true,
        _ => return Err("wheel: there is no option but --test".into()),
    };
    let tree = crate::root();
    let target = crate::test::target_dir();
    let package = tree.join("bindings/python");
    let (built, bin) = (crate::dist::program::of(&tree)?, package.join("python/dtrace/bin"));
    io(&bin, std::fs::create_dir_all(&bin))?;
    io(&built, std::fs::copy(&built, bin.join("dtrace")))?;

    let wheels = target.join("wheels");
    let _ = std::fs::remove_dir_all(&wheels);
    let maturin = maturin(&target.join("maturin"))?;
    let mut build = Command::new(maturin);
    build.args(["build", "--profile", "library", "--locked", "--quiet", "--out"]).arg(&wheels);
    succeed(build.env("CARGO_TARGET_DIR", &target).current_dir(&package))?;
    let wheel = only_file(&wheels)?;
    let size = io(&wheel, wheel.metadata())?.len();
    println!("{size:>10}  {}", wheel.display());
    if size > MOST {
        return Err(format!("the wheel has {size} bytes, more than {MOST}"));
    }
    if test {
        install(&wheel, &target.join("wheel-test"), &package.join("examples"))?;
    }
    Ok(0)
}

/// Runs a command whose messages are the user's.
fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{command:?}: {e}")),
    }
}

/// maturin on `PATH`, or that of PyPI in an environment of its own.
fn maturin(environment: &Path) -> Result<PathBuf, String> {
    if run(Command::new("maturin").arg("--version")).is_ok() {
        return Ok("maturin".into());
    }
    let maturin = environment.join("bin/maturin");
    if run(Command::new(&maturin).arg("--version")).is_err() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
        let pip = ["-m", "pip", "install", "--quiet", "maturin>=1.9,<2"];
        run(Command::new(environment.join("bin/python3")).args(pip))?;
    }
    Ok(maturin)
}

fn only_file(directory: &Path) -> Result<PathBuf, String> {
    let mut files = io(directory, std::fs::read_dir(directory))?.flatten().map(|entry| entry.path());
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(file),
        _ => Err(format!("{}: there is not one wheel", directory.display())),
    }
}

/// Installs the wheel in a new environment, and runs examples there that need no more.
fn install(wheel: &Path, environment: &Path, examples: &Path) -> Result<(), String> {
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
    let python = environment.join("bin/python3");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-index"]).arg(wheel))?;
    for example in ["command.py", "latency.py", "flame.py"] {
        let out = run(Command::new(&python).arg(examples.join(example)).current_dir(environment))?;
        println!("{example}:\n{out}");
    }
    // The command is there, and it is that which reads symbols.
    run(Command::new(&python).args(["-m", "dtrace", "-qn", "BEGIN { exit(0); }"]))?;
    let names = "import dtrace; (stack,) = next(iter(dtrace.run('syscall::uname:entry /pid == $target/ { @[ustack()] = count(); }', command='uname'))).key; assert 'uname' in stack[0].name, stack";
    run(Command::new(&python).args(["-c", names])).map(|_| ())
}
