//! What assumes x86-64: files with the comment [`MARK`] at their head, the list of them in the book's internals, and files that name
//! something of x86 and lack the comment.

use std::collections::BTreeSet;
use std::fs;

/// The comment at the head of a file.
const MARK: &str = "ARCH(x86-64): ";

/// Words of the machine, in lower case.
const WORDS: [&str; 9] =
    ["x86", "amd64", "__x64_", "ia32", "endbr", "target_arch", "do_syscall_64", "int 0x80", "i387"];

/// The page that lists the files.
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
        if text.contains(MARK) {
            marked.insert(name);
        } else if let Some((line, word)) = word_of_the_machine(&text) {
            breaches.push(format!("{name}:{line}: {word} is of x86: the file needs the comment {MARK}WHAT"));
        }
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

/// A file of a machine's own, as the layers of its crate name it.
const OWN: &str = "machine/x86_64";

/// The first line that names something of the machine, outside of a file's tests.
fn word_of_the_machine(text: &str) -> Option<(usize, &'static str)> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().enumerate().find_map(|(number, line)| {
        let line = line.to_lowercase().replace(OWN, "");
        WORDS.into_iter().find(|word| line.contains(word)).map(|word| (number + 1, word))
    })
}

/// The files of the list: the first column of its table.
fn listed(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|l| l.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(file, _)| file.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_machine_are_found_outside_of_tests() {
        assert_eq!(word_of_the_machine("fn f() {}\nconst A: &str = \"__X64_sys\";\n"), Some((2, "__x64_")));
        assert_eq!(word_of_the_machine("fn f() {}\n#[cfg(test)]\nmod tests { x86 }\n"), None);
    }

    #[test]
    fn the_list_is_the_first_column_of_its_table() {
        let text = "# What\n\n| File | What |\n|---|---|\n| `a/b.rs` | B, as `c.rs` |\n\nNot `d.rs`.\n";
        assert_eq!(listed(text).into_iter().collect::<Vec<_>>(), ["a/b.rs"]);
    }
}
