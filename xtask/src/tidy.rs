//! `cargo xtask tidy`: the house rules that a program can check.
//!
//! Directions of dependencies between crates, file length, no `unwrap` outside tests, an essay at the head of every
//! module. Prints each breach as `file:line: what`; exit status 1 when there is one.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates; each may depend on those before it.
const CRATES: [&str; 16] = [
    "arith",
    "diagnostics",
    "syntax",
    "types",
    "probes",
    "plane",
    "check",
    "dif",
    "lower",
    "bpf",
    "symbols",
    "proc",
    "providers",
    "consumer",
    "dtrace",
    "cli",
];

/// Crates that a crate must not depend on although they are before it.
const FORBIDDEN: [(&str, &[&str]); 7] = [
    ("syntax", &["types"]),
    ("plane", &["syntax", "types", "probes"]),
    ("dif", &["syntax", "types", "probes", "check"]),
    ("bpf", &["syntax", "probes", "check", "lower"]),
    ("providers", &["syntax", "check", "dif", "lower"]),
    ("consumer", &["syntax", "types", "check", "dif", "lower", "bpf", "providers"]),
    (
        "cli",
        &[
            "syntax",
            "types",
            "check",
            "dif",
            "lower",
            "bpf",
            "providers",
            "consumer",
            "symbols",
            "proc",
            "plane",
        ],
    ),
];

/// Lines a file may have; tables of data may be longer.
const LONGEST: usize = 700;

/// `cargo xtask tidy`
pub(crate) fn command() -> Result<u8, String> {
    let mut breaches = Vec::new();
    for (index, krate) in CRATES.iter().enumerate() {
        let dir = crate::root().join("crates").join(krate);
        dependencies(&dir, krate, index, &mut breaches)?;
        let mut files = Vec::new();
        walk(&dir.join("src"), &mut files)?;
        for file in files {
            source(&file, &mut breaches)?;
        }
    }
    for breach in &breaches {
        println!("{breach}");
    }
    println!("tidy: {} breaches", breaches.len());
    Ok(u8::from(!breaches.is_empty()))
}

fn dependencies(dir: &Path, krate: &str, index: usize, breaches: &mut Vec<String>) -> Result<(), String> {
    let manifest = dir.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let used = text.split("[dependencies]").nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
    for (line, dependency) in
        used.lines().enumerate().filter_map(|(n, l)| Some((n, l.split(['.', ' ', '=']).next()?)))
    {
        let Some(at) = CRATES.iter().position(|r| *r == dependency) else { continue };
        let forbidden = FORBIDDEN.iter().any(|(of, not)| *of == krate && not.contains(&dependency));
        if at >= index || forbidden {
            breaches.push(format!(
                "{}: [dependencies] line {line}: {krate} must not know {dependency}",
                manifest.display()
            ));
        }
    }
    Ok(())
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn source(file: &Path, breaches: &mut Vec<String>) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let name = file.strip_prefix(crate::root()).unwrap_or(file).display().to_string();
    let lines = text.lines().count();
    if lines > LONGEST && !text.contains("#[rustfmt::skip]") {
        breaches.push(format!("{name}:{lines}: longer than {LONGEST} lines"));
    }
    if !text.starts_with("//!") {
        breaches.push(format!("{name}:1: no essay at its head"));
    }
    let is_test = name.ends_with("tests.rs") || name.contains("/tests/") || name.ends_with("_test.rs");
    let code = text.split("#[cfg(test)]").next().unwrap_or("");
    for (number, line) in code.lines().enumerate().filter(|_| !is_test) {
        let line = line.split("//").next().unwrap_or("");
        if [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!("].iter().any(|w| line.contains(w))
        {
            breaches.push(format!("{name}:{}: {}", number + 1, line.trim()));
        }
    }
    Ok(())
}
