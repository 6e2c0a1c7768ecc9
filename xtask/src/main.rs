//! Project tasks: virtual machines, the test run, benchmarks, the output in the documents,
//! coverage, tidy, what is published.
//!
//! `cargo xtask help` lists them. Each task is one module; this file dispatches.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod api;
mod apt;
mod boot;
mod compilers;
mod coverage;
mod dist;
mod docs;
mod fuzz;
mod install;
mod kernels;
mod layers;
mod long;
mod qemu;
mod sys;
mod test;
mod tidy;
mod vm;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

/// The top directory of the repository.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// The file of this program. A build of the whole workspace may replace it while it runs, where the
/// features of a dependency differ: then it is the new file, of the same source.
pub(crate) fn own_program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("this program's file: {e}"))?;
    Ok(replaced_by(&own).unwrap_or(own))
}

/// The file that has the place of one that is no longer there, as the kernel names that
/// (`proc_pid_exe(5)`).
fn replaced_by(own: &std::path::Path) -> Option<PathBuf> {
    let path = own.to_str()?.strip_suffix(" (deleted)")?;
    Some(path.into())
}

/// The directory of downloaded kernels and of QEMU: `DTRACE_VM_DIR`; or below `DTRACE_CACHE`, if
/// that directory exists; or below `target`.
pub(crate) fn vm_dir() -> PathBuf {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    vm_dir_of(named("DTRACE_VM_DIR"), named("DTRACE_CACHE"))
}

fn vm_dir_of(own: Option<PathBuf>, cache: Option<PathBuf>) -> PathBuf {
    let cached = || cache.filter(|dir| dir.is_dir()).map(|dir| dir.join("vm"));
    own.or_else(cached).unwrap_or_else(|| root().join("target/vm"))
}

/// Builds for release and runs the benchmarks, here or in a guest.
fn bench(args: &[String]) -> Result<u8, String> {
    let status = std::process::Command::new("cargo")
        .args(["build", "--release", "-q", "-p", "cli", "-p", "benches"])
        .current_dir(root())
        .status();
    if !status.map_err(|e| format!("cargo: {e}"))?.success() {
        return Err("bench: the build failed".into());
    }
    let harness = test::target_dir().join("release/benches");
    match args {
        [vm, kernel, sections @ ..] if vm == "--vm" => {
            let mut words = vec!["env".to_string()];
            // The guest sees this machine's files.
            for name in ["DTRACE_PEERS", "DTRACE_BIN", "ROUNDS"] {
                words.extend(std::env::var(name).map(|value| format!("{name}={value}")));
            }
            words.push(harness.display().to_string());
            words.extend_from_slice(sections);
            let options = ["--kernel", kernel, "--timeout", "1800", "--"].map(String::from);
            vm::command(&[&options, &words[..]].concat())
        }
        _ => {
            let status = std::process::Command::new(&harness).args(args).status();
            status.map(|s| s.code().unwrap_or(1) as u8).map_err(|e| format!("{}: {e}", harness.display()))
        }
    }
}

/// Builds `dtrace` for release and refreshes the documents' output.
fn docs(args: &[String]) -> Result<u8, String> {
    // A guest has no cargo.
    if !args.iter().any(|a| a == "--inside") {
        let status = std::process::Command::new("cargo")
            .args(["build", "--release", "-q", "-p", "cli"])
            .current_dir(root())
            .status();
        if !status.map_err(|e| format!("cargo: {e}"))?.success() {
            return Err("docs: the build failed".into());
        }
    }
    docs::command(args)
}

const HELP: &str = "\
cargo xtask TASK
  vm [--kernel 6.1|6.12|7.2] [--mem MIB] [--cpus N] [--timeout S] [--append WORDS] [--root DIR] -- COMMAND
                boot a stock Debian kernel on this machine's root (read-only) and run COMMAND in it
@TEST@@FUZZ@  bench [--vm KERNEL] [SECTION...]
                build for release and compare with bpftrace and the minimal cost, here or in a guest
  docs [--check] [--vm KERNEL] [DOCUMENT:LINE...]
                run the commands of the README and the book, put their output in, and report what changed in
                more than figures; --check writes nothing; --vm makes the blocks that need this kernel
  coverage      print the rows of D that no test names
  tidy          check the house rules that a program can check
  layers CRATE  print the layers that the files of a crate have by their imports, and its loops
  install [--prefix DIR] [--destdir DIR] [--library]
                build for release and install the binary, the D libraries, the toolkit and the manual pages;
                the library for C
                (/usr/local); nothing else is changed
@DIST@@WHEEL@@LONG@@BOOT@  kernels       download and unpack the kernels and QEMU, and replace those of which there is a newer release
";

fn help() -> String {
    HELP.replace("@TEST@", test::options::HELP)
        .replace("@FUZZ@", fuzz::HELP)
        .replace("@DIST@", dist::HELP)
        .replace("@WHEEL@", wheel::HELP)
        .replace("@LONG@", long::HELP)
        .replace("@BOOT@", boot::HELP)
}

fn main() -> ExitCode {
    let done = compilers::called().map_or_else(task, compilers::compile);
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the task that the command line names: the exit status.
fn task() -> Result<u8, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some("boot") => boot::command(rest),
        Some("vm") => vm::command(rest),
        Some("test") => test::command(rest),
        // In a guest.
        Some("agent") => test::agent::command(rest),
        Some("bench") => bench(rest),
        Some("fuzz") => fuzz::command(rest),
        Some("coverage") => coverage::command(),
        Some("docs") => docs(rest),
        Some("tidy") => tidy::command(),
        Some("install") => install::command(rest),
        Some("dist") => dist::command(rest),
        Some("wheel") => wheel::command(rest),
        Some("size") => dist::size(rest),
        Some("layers") => layers::command(rest),
        Some("long") => long::command(rest),
        Some("kernels") => kernels::command(),
        Some("help") | None => {
            print!("{}", help());
            Ok(0)
        }
        Some(other) => Err(format!("no task {other}\n{}", help())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_directory_that_exists_is_used_unless_another_one_is_named() {
        let (own, cache) = (|| Some(PathBuf::from("/own")), |dir: &str| Some(PathBuf::from(dir)));
        assert_eq!(vm_dir_of(own(), cache("/")), PathBuf::from("/own"));
        assert_eq!(vm_dir_of(None, cache("/")), PathBuf::from("/vm"));
        let built = root().join("target/vm");
        assert_eq!(
            (vm_dir_of(None, cache("/no such directory")), vm_dir_of(None, None)),
            (built.clone(), built)
        );
    }

    #[test]
    fn a_replaced_program_is_the_file_that_took_its_place() {
        let of = |own: &str| replaced_by(std::path::Path::new(own));
        assert_eq!(of("/target/debug/xtask (deleted)"), Some(PathBuf::from("/target/debug/xtask")));
        assert_eq!(of("/target/debug/xtask"), None);
    }
}
