//! Whether a test that failed in a guest fails at the parent commit too: what runs in turn may have
//! been broken long before the change that meets it.
//!
//! The parent is built in a copy of this tree with its build tree, so that only what the commits
//! differ in is compiled.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::board::Board;
use super::guests::{self, Plan};
use super::programs;
use super::result::{Name, Result};

/// More failures than this are a defect that shows everywhere, and of the change.
const MOST: usize = 5;

/// A machine and the tests that failed there, as units of the present tree.
pub(crate) struct Blamed {
    pub(crate) plan: Plan,
    pub(crate) failed: Vec<Name>,
}

/// Of failed tests those that fail at the parent commit too, with their machines.
pub(crate) fn fail_before(
    root: &Path,
    all: &[Blamed],
    board: &Board,
) -> std::result::Result<Vec<(String, Name)>, String> {
    let count: usize = all.iter().map(|b| b.failed.len()).sum();
    if count == 0 || count > MOST {
        return Ok(Vec::new());
    }
    let parent = std::env::var("DTRACE_PARENT").unwrap_or_else(|_| "HEAD^".into());
    board.say(&format!("building {parent}, to see whether what failed in a guest failed before"));
    let copy = Copy::of(root, &parent)?;
    let programs = programs::build(&copy.0, &[])?;
    let mut before = Vec::new();
    for Blamed { plan, failed } in all {
        let mut units = Vec::new();
        for name in failed {
            let program = programs.iter().find(|p| p.name == name.program && p.tests.contains(&name.test));
            let unit = plan.units.iter().find(|u| u.program == name.program && u.tests.contains(&name.test));
            if let (Some(program), Some(unit)) = (program, unit) {
                let mut single = unit.single(&name.test);
                // The parent has its own program, which is not the one that is published.
                single.environment.retain(|(name, _)| name != super::plan::BINARY);
                let (path, directory) = (program.path.clone(), program.directory.clone());
                units.push(super::unit::Unit { path, directory, ..single });
            }
        }
        if units.is_empty() {
            continue;
        }
        let plan = Plan { units, ..plan.clone() };
        let dtrace = copy.0.join("target/debug/dtrace");
        let ran = guests::run(&plan, &dtrace, board)?;
        let failures = ran.results.into_iter().filter(Result::has_failed);
        before.extend(failures.map(|result| (plan.machine.clone(), result.name)));
    }
    Ok(before)
}

/// A copy of the tree at another commit, removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn of(root: &Path, commit: &str) -> std::result::Result<Copy, String> {
        let place = super::process::scratch().join(format!("dtrace-parent-{}", std::process::id()));
        let copy = Copy(place.clone());
        std::fs::create_dir_all(place.join("target")).map_err(|e| format!("{}: {e}", place.display()))?;
        // With the times of the files: cargo then knows what is built.
        run(Command::new("git").args(["clone", "-q", "--no-checkout"]).arg(root).arg(place.join("clone")))?;
        run(Command::new("mv").arg(place.join("clone/.git")).arg(&place))?;
        let listed = run(Command::new("git").args(["ls-files", "-z"]).current_dir(root))?;
        let files = place.join("files");
        std::fs::write(&files, listed).map_err(|e| e.to_string())?;
        let tar = "tar --null -T \"$1/files\" -cf - | tar -xf - -C \"$1\"";
        run(Command::new("sh").args(["-c", tar, "sh"]).arg(&place).current_dir(root))?;
        let debug = super::target_dir().join("debug");
        run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(debug).arg(place.join("target")))?;
        run(Command::new("git").args(["reset", "-q"]).current_dir(&place))?;
        run(Command::new("git").args(["stash", "-q"]).current_dir(&place))?;
        run(Command::new("git").args(["checkout", "-q", commit]).current_dir(&place))?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> std::result::Result<Vec<u8>, String> {
    let out = command.stderr(Stdio::piped()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&out.stderr).trim()))
}
