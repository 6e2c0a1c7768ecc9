//! Golden tests: input files with expected output beside them. `UPDATE_GOLDEN=1` rewrites the
//! expected output.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// The files of a directory with this extension, sorted. There must be at least one.
pub fn inputs(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", dir.display());
    files
}

/// Compares the output for each file `*.from` with its `*.to`. Reports all files that differ.
pub fn compare(dir: &Path, from: &str, to: &str, mut answer: impl FnMut(&Path, &str) -> String) {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    for input in inputs(dir, from) {
        let got = answer(&input, &fs::read_to_string(&input).unwrap());
        let output = input.with_extension(to);
        if update {
            fs::write(&output, &got).unwrap();
        } else if fs::read_to_string(&output).unwrap_or_default() != got {
            wrong.push(format!("{}:\n{got}", input.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
