//! The examples of the documentation. Every `dtrace` command in the README, the one-liners and the
//! chapters of the book compiles, or fails where the block says `fails`. Every quoted file equals
//! the file. The tests named in SPECIFICATION.md and in the table of what all processes share
//! exist, and the numbers of the promises are unique.
//!
//! The commands are only compiled (`-e`), because their output depends on the machine. `cargo xtask
//! docs` runs them and inserts their output.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{binary, dtrace, finish};

tests! {
    commands_in_the_documentation_compile files_quoted_in_the_documentation_match_the_tree
    tests_named_in_the_specification_exist each_table_that_processes_share_names_a_test
    promises_have_unique_numbers
    the_manual_page_renders_without_warnings
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The documents with commands: the README, the one-liners and every chapter of the book.
fn documents() -> Vec<String> {
    let mut all = vec!["README.md".to_string(), "docs/oneliners.md".to_string()];
    let mut todo = vec!["docs/book/src".to_string()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(Path::new(ROOT).join(&dir)).into_iter().flatten().flatten() {
            let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
            match entry.path() {
                path if path.is_dir() => todo.push(name),
                path if path.extension().is_some_and(|e| e == "md") => all.push(name),
                _ => {}
            }
        }
    }
    all.sort();
    all
}

/// A block of a document that shows a terminal.
struct Block {
    at: String,
    fails: bool,
    lines: Vec<String>,
}

fn blocks(document: &str) -> std::io::Result<Vec<Block>> {
    let text = std::fs::read_to_string(Path::new(ROOT).join(document))?;
    let mut all = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```console") else { continue };
        let body = lines.by_ref().map(|(_, l)| l).take_while(|l| *l != "```").map(String::from);
        all.push(Block {
            at: format!("{document}:{}", n + 1),
            fails: info.trim() == "fails",
            lines: body.collect(),
        });
    }
    Ok(all)
}

/// The words of a command line, split like in a shell, up to the first redirection or pipe.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, '|' | '>' | ';') => break,
            (None, ' ') => all.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

fn commands_in_the_documentation_compile() -> Verdict {
    let mut count = 0;
    for document in documents() {
        let blocks = match blocks(&document) {
            Ok(blocks) => blocks,
            Err(e) => return Skip(format!("{document}: {e}")),
        };
        for block in blocks {
            for line in block.lines.iter().filter_map(|l| l.strip_prefix("# dtrace ")) {
                let words = words(line);
                // What has no program to compile: it says what there is, or reads a session's events.
                if words.iter().any(|w| w == "-vV" || w == "--events") {
                    continue;
                }
                let child = Command::new(binary())
                    .arg("-e")
                    .args(&words)
                    .current_dir(ROOT)
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                let o = finish(child);
                assert_eq!(o.code != Some(0), block.fails, "{}: dtrace {line}\n{}", block.at, o.err);
                count += 1;
            }
        }
    }
    assert!(count > 100, "only {count} commands found");
    Pass
}

/// Uses the formatter that is installed.
fn the_manual_page_renders_without_warnings() -> Verdict {
    let page = dtrace(&["--manual-page"]).code(0).out;
    let path = std::env::temp_dir().join(format!("e2e-manual-{}.1", std::process::id()));
    std::fs::write(&path, &page).unwrap();
    let mut ran = 0;
    for command in [&["mandoc", "-Tlint", "-Wwarning"][..], &["groff", "-man", "-ww", "-Tutf8"]] {
        let Ok(o) = Command::new(command[0]).args(&command[1..]).arg(&path).output() else { continue };
        // mandoc prints its warnings as output. groff prints the page, and its warnings as errors.
        let warnings = if command[0] == "mandoc" { &o.stdout } else { &o.stderr };
        assert!(warnings.is_empty(), "{}: {}", command[0], String::from_utf8_lossy(warnings));
        ran += 1;
    }
    let _ = std::fs::remove_file(&path);
    if ran == 0 { Skip("neither mandoc nor groff is installed".into()) } else { Pass }
}

fn files_quoted_in_the_documentation_match_the_tree() -> Verdict {
    let mut count = 0;
    for document in documents() {
        let Ok(blocks) = blocks(&document) else { return Skip(format!("no {document}")) };
        for block in blocks {
            let Some(path) = block.lines[0].strip_prefix("# cat ") else { continue };
            let file = std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
            assert_eq!(block.lines[1..].join("\n"), file.trim_end(), "{}: {path}", block.at);
            count += 1;
        }
    }
    assert!(count > 0);
    Pass
}

/// Checks `path.rs: name, name` in SPECIFICATION.md, and the benchmarks.
fn tests_named_in_the_specification_exist() -> Verdict {
    let root = Path::new(ROOT);
    let Ok(text) = std::fs::read_to_string(root.join("SPECIFICATION.md")) else {
        return Skip("no SPECIFICATION.md".into());
    };
    let benches = std::fs::read_to_string(root.join("benches/src/sections.rs")).unwrap_or_default();
    for quoted in text.split('`').skip(1).step_by(2) {
        if let Some(bench) = quoted.strip_prefix("cargo xtask bench ") {
            assert!(benches.contains(&format!("(\"{bench}\",")), "no benchmark {bench}");
        }
    }
    let count = tests_named_in("SPECIFICATION.md", &text);
    assert!(count > 60, "only {count} tests found");
    Pass
}

/// The tests that a text names exist; how many.
fn tests_named_in(document: &str, text: &str) -> usize {
    let mut count = 0;
    for quoted in text.split('`').skip(1).step_by(2) {
        if let Some((path, names)) = quoted.split_once(".py: ") {
            let path = Path::new(ROOT).join("bindings").join(format!("{path}.py"));
            let source =
                std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{document} names {path:?}: {e}"));
            for name in names.split(", ") {
                assert!(source.contains(&format!("def {name}(")), "{document} names {path:?}: {name}");
                count += 1;
            }
            continue;
        }
        let Some((path, names)) = quoted.split_once(".rs: ") else { continue };
        let path = match path.split_once('/') {
            Some(("e2e", rest)) => format!("cli/tests/e2e/{rest}.rs"),
            Some(("model", rest)) => format!("plane/src/model/{rest}.rs"),
            _ => format!("{path}.rs"),
        };
        let source = std::fs::read_to_string(Path::new(ROOT).join("crates").join(&path))
            .unwrap_or_else(|e| panic!("{document} names {path}: {e}"));
        for name in names.split(", ") {
            let there = [format!("fn {name}("), format!("::{name}\"")].iter().any(|t| source.contains(t));
            assert!(there, "{document} names {path}: {name}, which is not there");
            count += 1;
        }
    }
    count
}

fn each_table_that_processes_share_names_a_test() -> Verdict {
    const DOCUMENT: &str = "docs/book/src/internals/shares.md";
    let Ok(text) = std::fs::read_to_string(Path::new(ROOT).join(DOCUMENT)) else {
        return Skip(format!("no {DOCUMENT}"));
    };
    let rows = text.lines().skip_while(|line| !line.ends_with("| Test |")).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 12, "only {} tables found", rows.len());
    for row in rows {
        let test = row.trim_end_matches(" |").rsplit("| ").next().unwrap_or_default();
        assert!(tests_named_in(DOCUMENT, test) > 0, "{DOCUMENT} names no test of: {row}");
    }
    Pass
}

/// The numbers of `| 12 | A promise …` in the tables of the specification.
fn promises_have_unique_numbers() -> Verdict {
    let Ok(text) = std::fs::read_to_string(Path::new(ROOT).join("SPECIFICATION.md")) else {
        return Skip("no SPECIFICATION.md".into());
    };
    let mut seen = std::collections::BTreeSet::new();
    let mut in_table = false;
    for line in text.lines() {
        // Every row of a table that begins with a column of numbers is a promise.
        let Some(cells) = line.strip_prefix("| ") else {
            in_table &= line.starts_with("|--");
            continue;
        };
        let (number, rest) = cells.split_once(" |").unwrap_or_default();
        if number == "#" {
            in_table = true;
            continue;
        }
        if !in_table {
            assert!(number.parse::<u32>().is_err(), "a promise is not in a table with a column #: {line}");
            continue;
        }
        let number: u32 =
            number.parse().unwrap_or_else(|_| panic!("a promise of SPECIFICATION.md has no number: {line}"));
        assert!(seen.insert(number), "SPECIFICATION.md has two promises of number {number}");
        assert!(rest.contains('`'), "promise {number} of SPECIFICATION.md names no test");
    }
    assert!(seen.len() > 60, "only {} promises found", seen.len());
    Pass
}
