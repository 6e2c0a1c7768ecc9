//! Facts of a machine stand in folders `arch`, one folder or file a machine. Other files that
//! assume x86-64 are exceptions: each has the comment [`MARK`] at its head and is in the list of
//! the book's internals, of which no more than [`MOST`] may be there. A file that names something
//! of x86 in its code is found if it is neither.

use std::collections::BTreeSet;
use std::fs;

/// The comment at the head of a file.
const MARK: &str = "ARCH(x86-64): ";

/// Words of the machine, in lower case.
const WORDS: [&str; 9] =
    ["x86", "amd64", "__x64_", "ia32", "endbr", "target_arch", "do_syscall_64", "int 0x80", "i387"];

/// The exceptions that there are: they may become fewer, and none may be added. (The last was a
/// provider whose probes are of the machine's registers.)
const MOST: usize = 21;

/// The folders in which the machines are.
const FOLDER: &str = "/arch/";

/// The page that lists the exceptions.
const LIST: &str = "docs/book/src/internals/x86-64.md";

/// The breaches of `crates` and `lib`.
pub(super) fn breaches() -> Result<Vec<String>, String> {
    let root = crate::root();
    let mut files = Vec::new();
    super::walk(&root.join("crates"), &mut files)?;
    let libraries = fs::read_dir(root.join("lib")).map_err(|e| format!("lib: {e}"))?;
    files.extend(libraries.flatten().map(|entry| entry.path()));
    let mut marked = BTreeSet::new();
    let mut breaches = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        if !is_source(&name) {
            continue;
        }
        let text = fs::read_to_string(&file).map_err(|e| format!("{name}: {e}"))?;
        if name.contains(FOLDER) {
            if text.contains(MARK) {
                breaches.push(format!("{name}: it is in the folder of a machine, where {MARK}says nothing"));
            }
        } else if text.contains(MARK) {
            marked.insert(name);
        } else if let Some((line, word)) = word_of_the_machine(&text) {
            breaches.push(format!("{name}:{line}: {word} is of x86: it belongs to a folder {FOLDER}"));
        }
    }
    if marked.len() != MOST {
        let name = "xtask/src/tidy/arch.rs";
        breaches.push(format!(
            "{name}: {} files assume x86-64 outside of {FOLDER}, and not {MOST}",
            marked.len()
        ));
    }
    let text = fs::read_to_string(root.join(LIST)).map_err(|e| format!("{LIST}: {e}"))?;
    let listed = listed(&text);
    breaches.extend(marked.difference(&listed).map(|f| format!("{LIST}: {f} assumes x86-64")));
    breaches.extend(listed.difference(&marked).map(|f| format!("{LIST}: {f} has no {MARK}comment")));
    Ok(breaches)
}

fn is_source(name: &str) -> bool {
    let test = name.contains("/tests/") || name.ends_with("tests.rs") || name.ends_with("_test.rs");
    !test && (name.starts_with("lib/") || name.contains("/src/"))
}

/// The first line whose code names something of the machine, outside of a file's tests.
fn word_of_the_machine(text: &str) -> Option<(usize, &'static str)> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().enumerate().find_map(|(number, line)| {
        let line = line.split("//").next().unwrap_or_default().to_lowercase();
        WORDS.into_iter().find(|word| line.contains(word)).map(|word| (number + 1, word))
    })
}

/// The files of the list: the first column of its table.
fn listed(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|l| l.strip_prefix("| `")?.split_once("` |"));
    // The other table has folders.
    rows.map(|(file, _)| file.to_owned()).filter(|file| !file.ends_with("arch")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_machine_are_found_outside_of_tests() {
        assert_eq!(word_of_the_machine("fn f() {}\nconst A: &str = \"__X64_sys\";\n"), Some((2, "__x64_")));
        assert_eq!(word_of_the_machine("fn f() {}\n#[cfg(test)]\nmod tests { x86 }\n"), None);
        assert_eq!(word_of_the_machine("// as on x86\nuse crate::arch::Machine;\n"), None);
    }

    #[test]
    fn the_list_is_the_first_column_of_its_table() {
        let text = "# What\n\n| File | What |\n|---|---|\n| `a/src/arch` | A |\n| `a/b.rs` | B, as `c.rs` |\n\nNot `d.rs`.\n";
        assert_eq!(listed(text).into_iter().collect::<Vec<_>>(), ["a/b.rs"]);
    }
}
