//! Tells the command which commit it is built from: that of `DTRACE_COMMIT` if it is set (for
//! packages, which are built from an archive), else that of the repository around it, else none.
//!
//! The repository's files are read, so no program is run and nothing is asked over a network. One
//! commit gives one text, so builds of it are alike.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=DTRACE_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("DTRACE_COMMIT").ok().and_then(|commit| short(commit.trim()));
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Not for tests: each commit would build what links the command again.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(|| of_repository(&top)).flatten());
    let commit = commit.unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=DTRACE_COMMIT={commit}");
}

/// The commit that is checked out in a directory. What it depends on is watched.
fn of_repository(top: &Path) -> Option<String> {
    let git = match fs::read_to_string(top.join(".git")) {
        // A work tree of its own: the file says where its directory is.
        Ok(text) => top.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => top.join(".git"),
    };
    // What all work trees share.
    let common =
        fs::read_to_string(git.join("commondir")).map_or_else(|_| git.clone(), |dir| git.join(dir.trim()));
    let head = watched(git.join("HEAD"))?;
    let commit = match head.trim().strip_prefix("ref: ") {
        None => head.trim().to_string(),
        Some(name) => match watched(common.join(name)) {
            Some(commit) => commit.trim().to_string(),
            None => {
                // A file of this name replaces the line with the next commit.
                println!("cargo::rerun-if-changed={}", common.join("refs/heads").display());
                let packed = watched(common.join("packed-refs"))?;
                let line = packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' '));
                line?.to_string()
            }
        },
    };
    short(&commit)
}

/// The first characters of a commit.
fn short(commit: &str) -> Option<String> {
    let is_commit = commit.len() >= 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    is_commit.then(|| commit[..12].to_string())
}

/// The text of a file, whose changes run this program again.
fn watched(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(&path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}
