//! Project chores: the VM tier, the test run, benchmarks, tidy, generated pages.
//!
//! `cargo xtask help` lists them. Each chore is one module; this file only hands out the words.

mod coverage;
mod kernels;
mod test;
mod tidy;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

/// The repository's top.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// Where what is downloaded and booted lives.
pub(crate) fn vm_dir() -> PathBuf {
    std::env::var_os("DTRACE_VM_DIR").map_or_else(|| root().join("target/vm"), PathBuf::from)
}

/// Builds for release and runs the harness under `benches/`.
fn bench(args: &[String]) -> Result<u8, String> {
    let cargo = |words: &[&str]| {
        let status = std::process::Command::new("cargo")
            .args(words)
            .args(args_after(words, args))
            .current_dir(root())
            .status();
        status.map(|s| s.code().unwrap_or(1) as u8).map_err(|e| format!("cargo: {e}"))
    };
    match cargo(&["build", "--release", "-p", "cli"])? {
        0 => cargo(&["run", "--release", "-q", "-p", "benches", "--"]),
        code => Ok(code),
    }
}

/// The user's words follow only a command that ends in `--`.
fn args_after<'a>(words: &[&str], args: &'a [String]) -> &'a [String] {
    if words.last() == Some(&"--") { args } else { &[] }
}

const HELP: &str = "\
cargo xtask CHORE
  vm [--kernel 6.1|6.12|7.2] [--mem MIB] [--cpus N] [--timeout S] [--append WORDS] [--root DIR] -- COMMAND
                boot a stock Debian kernel on this machine's root (read-only) and run COMMAND in it
  test [--host|--vm] [KERNEL...]
                run every test here, and those that need a kernel in each guest
  bench [start|event|rows|exit]
                build for release and compare with bpftrace and the floor
  coverage      print the rows of D that no test names
  tidy          check the house rules that a program can check
  kernels       download and unpack the kernels
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let done = match args.first().map(String::as_str) {
        Some("vm") => vm::command(rest),
        Some("test") => test::command(rest),
        Some("bench") => bench(rest),
        Some("coverage") => coverage::command(),
        Some("tidy") => tidy::command(),
        Some("kernels") => kernels::fetch(&kernels::NAMES).map(|()| 0),
        Some("help") | None => {
            print!("{HELP}");
            Ok(0)
        }
        Some(other) => Err(format!("no chore {other}\n{HELP}")),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}
