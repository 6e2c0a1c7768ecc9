//! `cargo xtask coverage`: the rows of D that no test names.
//!
//! `docs/coverage/rows.txt` has the rows and says how a test names one; `docs/coverage/excused.txt`
//! has those that need no test yet, each with its reason. A row that is neither tested nor excused
//! is printed, and so is an excuse that is no longer needed; then the exit status is 1.
//!
//! Tests are the files under a `tests` directory, and the code after `#[cfg(test)]` in a source
//! file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How a test names a row.
enum Named {
    /// By a comment with the row's name.
    Comment,
    /// By one of these texts.
    Text(Vec<String>),
}

/// The text of all tests.
#[derive(Default)]
struct Tests {
    text: String,
    /// Names of files.
    files: BTreeSet<String>,
    /// Rows that comments name.
    rows: BTreeSet<String>,
}

/// `cargo xtask coverage`
pub(crate) fn command() -> Result<u8, String> {
    let dir = crate::root().join("docs/coverage");
    let rows = parse_rows(&read(&dir.join("rows.txt"))?);
    let excuses = parse_excuses(&read(&dir.join("excused.txt"))?);
    let mut tests = Tests::default();
    tests.walk(&crate::root().join("crates"), false)?;
    let mut complaints = Vec::new();
    let mut covered = 0;
    for (row, named) in &rows {
        match (tests.names(row, named), excuses.get(row)) {
            (true, None) => covered += 1,
            (false, Some(_)) => {}
            (true, Some(_)) => complaints.push(format!("{row}: excused, but a test names it")),
            (false, None) => complaints.push(format!("{row}: no test names it")),
        }
    }
    let unknown = |row: &&String| !rows.contains_key(*row);
    complaints.extend(excuses.keys().filter(unknown).map(|r| format!("{r}: excused, but no row")));
    complaints.extend(tests.rows.iter().filter(unknown).map(|r| format!("{r}: named by a test, but no row")));
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!(
        "coverage: {} rows, {covered} named by tests, {} excused, {} to be mended",
        rows.len(),
        excuses.len(),
        complaints.len()
    );
    Ok(u8::from(!complaints.is_empty()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Lines that are neither empty nor comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'))
}

fn parse_rows(text: &str) -> BTreeMap<String, Named> {
    lines(text)
        .map(|line| match line.split_once(" = ") {
            None => (line.to_owned(), Named::Comment),
            Some((row, texts)) => {
                (row.to_owned(), Named::Text(texts.split(" || ").map(str::to_owned).collect()))
            }
        })
        .collect()
}

/// `ROW  REASON`
fn parse_excuses(text: &str) -> BTreeMap<String, String> {
    lines(text)
        .filter_map(|l| l.split_once(char::is_whitespace))
        .map(|(row, why)| (row.to_owned(), why.trim().to_owned()))
        .collect()
}

/// The rows that comments name: `row a.b, c.d` up to the end of the line.
fn rows_named(text: &str) -> impl Iterator<Item = String> {
    let comment = |line: &str| {
        let at = ["// row ", "/* row ", "# row "].iter().find_map(|m| Some(line.find(m)? + m.len()))?;
        line.get(at..).map(|l| l.trim_end_matches("*/").trim().to_owned())
    };
    text.lines()
        .filter_map(comment)
        .flat_map(|names| names.split(',').map(|n| n.trim().to_owned()).collect::<Vec<_>>())
}

impl Tests {
    fn walk(&mut self, dir: &Path, in_tests: bool) -> Result<(), String> {
        for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() {
                self.walk(&path, in_tests || name == "tests" || name == "golden")?;
                continue;
            }
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if in_tests || name == "tests.rs" || name.ends_with("_tests.rs") {
                self.add(&text);
                self.files.insert(name);
            } else if let Some(at) = text.find("#[cfg(test)]").filter(|_| name.ends_with(".rs")) {
                self.add(&text[at..]);
            }
        }
        Ok(())
    }

    fn add(&mut self, text: &str) {
        self.rows.extend(rows_named(text));
        self.text.push_str(text);
    }

    fn names(&self, row: &str, named: &Named) -> bool {
        if self.rows.contains(row) {
            return true;
        }
        match (named, row.strip_prefix("tag.")) {
            (Named::Text(texts), _) => texts.iter().any(|t| self.text.contains(t.as_str())),
            (Named::Comment, Some(tag)) => self.files.iter().any(|f| f.starts_with(&format!("err.{tag}."))),
            (Named::Comment, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_by_comments_texts_and_files() {
        let rows = parse_rows("# x\na.b\nc.d = cd( || dc(\ntag.D_X\n");
        let mut tests = Tests::default();
        tests.add("f(); // row a.b, e.f\n");
        let names = |tests: &Tests, row: &str| tests.names(row, &rows[row]);
        assert!(names(&tests, "a.b") && !names(&tests, "c.d") && !names(&tests, "tag.D_X"));
        tests.add("dc(1)");
        tests.files.insert("err.D_X.why.d".into());
        assert!(names(&tests, "c.d") && names(&tests, "tag.D_X"));
        assert!(tests.rows.contains("e.f"));
    }

    #[test]
    fn an_excuse_has_a_reason() {
        let excuses = parse_excuses("a.b  a later issue\nno-reason\n");
        assert_eq!(excuses.get("a.b").map(String::as_str), Some("a later issue"));
        assert_eq!(excuses.len(), 1);
    }
}
