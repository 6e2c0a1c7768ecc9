//! The test programs of the workspace: built, and listed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::process::{self, End, Job};
use super::result::Name;

/// How long a program may take to list its tests.
const LISTING: Duration = Duration::from_secs(60);

/// A built test program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// `PACKAGE` for unit tests, `PACKAGE:TARGET` for others.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The directory of the package, in which its tests run.
    pub(crate) directory: PathBuf,
    /// Whether it takes the names of several tests. That of `libtest-mimic` takes one.
    pub(crate) takes_names: bool,
    pub(crate) tests: Vec<String>,
}

impl Program {
    /// Its tests by their names in the workspace.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.tests.iter().map(|test| Name { program: self.name.clone(), test: test.clone() })
    }
}

/// Builds the test programs of the workspace, or only those of these targets, and lists their
/// tests.
pub(crate) fn build(root: &Path, targets: &[String]) -> Result<Vec<Program>, String> {
    let mut command = Command::new("cargo");
    // All packages, whatever the targets: with fewer, features of dependencies differ, and much is
    // built twice.
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics", "-q"]);
    for target in targets {
        match target.split_once(':') {
            Some((_, test)) => command.args(["--test", test]),
            None => command.arg("--lib"),
        };
    }
    let out = command
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo test: {e}"))?;
    if !out.status.success() {
        return Err("cargo test --no-run failed".into());
    }
    let mut programs: Vec<Program> =
        String::from_utf8_lossy(&out.stdout).lines().filter_map(program_of).collect();
    // Examples are built, and have no tests.
    for program in &mut programs {
        (program.tests, program.takes_names) = list(program)?;
    }
    programs.retain(|program| !program.tests.is_empty());
    unique(&programs)?;
    Ok(programs)
}

/// Runs the examples in the documentation: how many passed, or why the run fails. They are no
/// program of their own.
pub(crate) fn documentation(root: &Path) -> Result<usize, String> {
    let out = Command::new("cargo")
        .args(["test", "--workspace", "--doc", "--quiet", "--no-fail-fast"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo test --doc: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        println!("{text}");
        return Err("the examples in the documentation (cargo test --workspace --doc)".into());
    }
    let closing = text
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<usize>().ok());
    Ok(closing.sum())
}

/// Fails if two programs have one name: the results would be mixed.
fn unique(programs: &[Program]) -> Result<(), String> {
    let mut paths = BTreeMap::new();
    for program in programs {
        if let Some(other) = paths.insert(&program.name, &program.path) {
            let (a, b) = (other.display(), program.path.display());
            return Err(format!("two test programs are called {}: {a} and {b}", program.name));
        }
    }
    Ok(())
}

/// The program in a line of cargo's, if it tells of one (The Cargo Book, "External tools",
/// `compiler-artifact`).
fn program_of(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |value: &Value| value.as_str().map(String::from);
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(text(&message["executable"])?);
    let id = text(&message["package_id"])?;
    // path+file:///a/b#0.1.0, or path+file:///a/b#name@0.1.0
    let (place, version) = id.rsplit_once('#')?;
    let package = match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next()?,
    };
    let target = text(&message["target"]["name"])?;
    let kind = text(&message["target"]["kind"][0])?;
    let name = match kind.as_str() {
        "test" => format!("{package}:{target}"),
        "bin" => format!("{package}:bin-{target}"),
        _ => package.into(),
    };
    let directory = PathBuf::from(text(&message["manifest_path"])?).parent()?.to_path_buf();
    Some(Program { name, path, directory, takes_names: false, tests: Vec::new() })
}

/// The tests of a program, and whether it takes several names.
fn list(program: &Program) -> Result<(Vec<String>, bool), String> {
    let run = |words: &[&str]| {
        let ran = process::run(&Job {
            program: &program.path,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            environment: Vec::new(),
            directory: &program.directory,
            deadline: LISTING,
        })?;
        match ran.end {
            End::Status(0) => Ok(ran.out),
            end => Err(format!("{} {}: {end:?}", program.path.display(), words.join(" "))),
        }
    };
    let listed = run(&["--list", "--format", "terse"])?;
    let tests: Vec<String> =
        listed.lines().filter_map(|l| l.strip_suffix(": test")).map(String::from).collect();
    let takes_names = !tests.is_empty() && run(&["--help"])?.contains("[FILTERS...]");
    Ok((tests, takes_names))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_in_the_messages_of_cargo_are_named_by_package_and_target() {
        let line = |id: &str, kind: &str, target: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///r/{id}\",\"manifest_path\":\"/r/crates/a/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"{target}\"}},\"profile\":{{\"test\":true}},\"executable\":\"/t/{target}-1\"}}"
            )
        };
        for (id, kind, target, name) in [
            ("crates/cli#0.1.0", "test", "e2e", "cli:e2e"),
            ("crates/cli#0.1.0", "bin", "dtrace", "cli:bin-dtrace"),
            ("crates/dtrace#0.1.0", "lib", "dtrace", "dtrace"),
            ("usdt/rust#dtrace-usdt@0.1.0", "lib", "dtrace_usdt", "dtrace-usdt"),
        ] {
            let program = program_of(&line(id, kind, target)).unwrap();
            assert_eq!(program.name, name);
            assert_eq!(program.directory, Path::new("/r/crates/a"));
        }
        let plain = line("a#1", "lib", "a").replace("\"test\":true", "\"test\":false");
        assert!(program_of(&plain).is_none() && program_of("warning").is_none());
    }
}
