//! `cargo xtask tidy`: the house rules that a program can check.
//!
//! Directions of dependencies between crates and, within a crate, between files; file length, width
//! of comments, no `unwrap` outside tests, an essay at the head of every module; error numbers, providers and
//! language runtimes by name, threads that could get signals, what assumes x86-64; files of tests that no program has, promises
//! that no stock kernel is asked about, flakes that are over. Prints each breach as
//! `file:line: what`; exit status 1 when there is one.

mod ambient;
mod arch;
mod comments;
mod promises;
mod provider_names;
mod runtime_names;
mod threads;

use std::fs;
use std::path::{Path, PathBuf};

/// The crates; each may depend on those before it.
const CRATES: &[&str] = &[
    "arith",
    "diagnostics",
    "syntax",
    "types",
    "probes",
    "plane",
    "runtimes",
    "unwind",
    "capture",
    "threads",
    "events",
    "protobuf",
    "flame",
    "heat",
    "live",
    "metrics",
    "postmortem",
    "check",
    "dif",
    "lower",
    "bpf-sys",
    "bpf-codegen",
    "bpf-runtime",
    "proc",
    "files",
    "text",
    "usdt",
    "debuginfo",
    "symbols",
    "system",
    "providers",
    "consumer",
    "timeline",
    "usdt-writer",
    "dtrace",
    "cli",
];

/// The crates that depend on no other.
const ALONE: &[&str] = &["capture", "protobuf", "runtimes", "text", "threads", "usdt"];

/// Crates that a crate must not depend on although they are before it.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("syntax", &["types"]),
    ("plane", &["syntax", "types", "probes"]),
    ("unwind", &["arith", "diagnostics", "syntax", "types", "probes"]),
    ("events", &["syntax", "types", "probes"]),
    ("flame", &["arith", "syntax", "types", "probes", "plane"]),
    ("heat", &["arith", "syntax", "types", "probes", "plane"]),
    ("live", &["arith", "syntax", "types", "probes", "plane", "heat"]),
    ("metrics", &["arith", "syntax", "types", "probes", "flame", "heat", "live"]),
    ("postmortem", &["arith", "syntax", "types", "probes", "plane", "flame", "heat", "live", "metrics"]),
    ("dif", &["syntax", "types", "probes", "check"]),
    ("bpf-sys", &["arith", "diagnostics", "syntax", "probes", "plane", "check", "dif", "lower"]),
    ("bpf-codegen", &["syntax", "types", "probes", "check", "lower"]),
    ("bpf-runtime", &["syntax", "types", "probes", "check", "lower"]),
    ("system", &["syntax", "probes", "check", "dif", "lower", "bpf-codegen", "bpf-runtime"]),
    ("providers", &["syntax", "check", "dif", "lower", "bpf-runtime"]),
    (
        "consumer",
        &["syntax", "types", "check", "dif", "lower", "bpf-sys", "bpf-codegen", "bpf-runtime", "providers"],
    ),
    (
        "timeline",
        &[
            "arith",
            "syntax",
            "types",
            "plane",
            "check",
            "dif",
            "lower",
            "bpf-sys",
            "bpf-codegen",
            "bpf-runtime",
            "proc",
            "files",
            "symbols",
            "providers",
        ],
    ),
    (
        "usdt-writer",
        &[
            "arith",
            "types",
            "plane",
            "events",
            "check",
            "dif",
            "lower",
            "bpf-sys",
            "bpf-codegen",
            "bpf-runtime",
            "proc",
            "files",
            "text",
            "symbols",
            "providers",
            "consumer",
        ],
    ),
    (
        "cli",
        &[
            "syntax",
            "types",
            "check",
            "dif",
            "lower",
            "bpf-sys",
            "bpf-codegen",
            "bpf-runtime",
            "providers",
            "consumer",
            "usdt-writer",
            "symbols",
            "text",
            "files",
            "proc",
            "plane",
        ],
    ),
];

/// Crates beside `crates/` that the same rules are for, except directions: they depend on `dtrace`.
const BESIDE: &[&str] = &["bindings/c", "bindings/python"];

/// Lines a file may have; tables of data may be longer.
const LONGEST: usize = 700;

/// `cargo xtask tidy`
pub(crate) fn command() -> Result<u8, String> {
    let mut breaches = crate::test::expired_flakes(&crate::root())?;
    breaches.extend(promises::check(&crate::root())?);
    for (index, krate) in CRATES.iter().enumerate() {
        let dir = crate::root().join("crates").join(krate);
        dependencies(&dir, krate, index, &mut breaches)?;
        breaches.extend(crate::layers::check(&dir)?);
        breaches.extend(tests_left_out(&dir)?);
        let mut files = Vec::new();
        walk(&dir.join("src"), &mut files)?;
        for file in files {
            source(&file, &mut breaches)?;
        }
    }
    for name in BESIDE {
        let dir = crate::root().join(name);
        breaches.extend(crate::layers::check(&dir)?);
        breaches.extend(tests_left_out(&dir)?);
        let mut files = Vec::new();
        walk(&dir.join("src"), &mut files)?;
        files.iter().try_for_each(|file| source(file, &mut breaches))?;
    }
    breaches.extend(tests_left_out(&crate::root().join("exercise"))?);
    breaches.extend(arch::breaches()?);
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
        if at >= index || forbidden || ALONE.contains(&krate) {
            breaches.push(format!(
                "{}: [dependencies] line {line}: {krate} must not know {dependency}",
                manifest.display()
            ));
        }
    }
    Ok(())
}

/// Files of tests that no program has. Where a crate has one program for all of them
/// (`autotests = false`), a file that its `main.rs` does not declare is not even compiled.
fn tests_left_out(dir: &Path) -> Result<Vec<String>, String> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let (manifest, main) = (read("Cargo.toml"), read("tests/main.rs"));
    if !manifest.contains("autotests = false") {
        return Ok(Vec::new());
    }
    let mut breaches = Vec::new();
    let entries = fs::read_dir(dir.join("tests")).map_err(|e| format!("{}: {e}", dir.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_declared = main.lines().any(|line| line == format!("mod {name};"));
        let is_target = manifest.contains(&format!("path = \"tests/{name}.rs\""));
        if path.extension().is_some_and(|e| e == "rs") && !is_declared && !is_target {
            breaches
                .push(format!("{}: tests/main.rs does not declare it: its tests do not run", path.display()));
        }
    }
    Ok(breaches)
}

pub(crate) fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
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
    for number in comments::breaches(&text) {
        breaches.push(format!("{name}:{number}: a comment is wider than 100 columns"));
    }
    if !text.starts_with("//!") {
        breaches.push(format!("{name}:1: no essay at its head"));
    }
    for (number, line) in text.lines().enumerate().filter(|(_, l)| is_errno_literal(l)) {
        breaches.push(format!("{name}:{}: an error number has a name: {}", number + 1, line.trim()));
    }
    let is_test = name.ends_with("tests.rs") || name.contains("/tests/") || name.ends_with("_test.rs");
    if !is_test {
        breaches.extend(provider_names::breaches(&name, &text));
        // What is for a language names it.
        if !name.starts_with("bindings/") {
            breaches.extend(runtime_names::breaches(&name, &text));
        }
        breaches.extend(ambient::breaches(&name, &text));
        breaches.extend(threads::breaches(&name, &text));
    }
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

/// True for `const EINTR: i32 = 4;`: libc and `bpf_sys::errno` have the names.
fn is_errno_literal(line: &str) -> bool {
    let Some(rest) = line.split_once("const E").map(|(_, rest)| rest) else { return false };
    let Some((name, value)) = rest.split_once(": i32 = ") else { return false };
    let is_number = value.trim_end_matches(';').chars().all(|c| c.is_ascii_digit());
    const NOT_ERRORS: [&str; 1] = ["XPONENT"];
    is_number
        && name.chars().all(|c| c.is_ascii_uppercase())
        && name != "NOTSUPP"
        && !NOT_ERRORS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_as_a_literal_is_found() {
        assert!(is_errno_literal("    const EINTR: i32 = 4;"));
        assert!(!is_errno_literal("pub const ENOTSUPP: i32 = 524;"));
        assert!(!is_errno_literal("use libc::EINTR;"));
        assert!(!is_errno_literal("const EARLY: u32 = 4;"));
    }
}
