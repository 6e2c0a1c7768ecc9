//! The pages of the documentation, and whether what they point to is there.
//!
//! A link of a page is relative to it, or leads to the web, of which nothing is asked. Its file is
//! one of the repository; what stands behind `#` is a heading of that file, as GitHub and mdBook
//! name it, or an anchor (`<a id="x">`). A chapter of the book links to nothing outside of the
//! book, because its pages are also read where the repository is not.

use std::fs;
use std::path::Path;

/// The folder of the book's chapters.
const BOOK: &str = "docs/book/src";

/// Every page of the repository's documentation, by its path from the top, sorted: the documents at
/// the top, those of `docs`, and the README of each folder.
pub(crate) fn pages() -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for (dir, deep) in [
        ("", false),
        ("docs", true),
        ("benches", false),
        ("scripts", false),
        ("fuzz", false),
        ("usdt", true),
        ("bindings", true),
    ] {
        find(dir, deep, &mut all)?;
    }
    all.sort();
    Ok(all)
}

fn find(dir: &str, deep: bool, all: &mut Vec<String>) -> Result<(), String> {
    let path = crate::root().join(dir);
    for entry in fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        if entry.path().is_dir() && deep && !name.ends_with("node_modules") {
            find(&name, deep, all)?;
        } else if name.ends_with(".md") {
            all.push(name);
        }
    }
    Ok(())
}

/// The lines of a page outside of fenced blocks, each with its number from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((n + 1, line))
    })
}

/// A line without what stands between backquotes, where nothing is a link. Two backquotes may have
/// one between them.
fn without_code(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find('`') {
        out.push_str(&rest[..at]);
        let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let inside = &rest[at + ticks..];
        let Some(end) = inside.find(&"`".repeat(ticks)) else { return out + inside };
        rest = &inside[end + ticks..];
    }
    out + rest
}

/// The targets of a page's links, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (n, line) in prose(text) {
        let line = without_code(line);
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                all.push((n, target.to_string()));
            }
        }
    }
    all
}

/// The name of a heading in links: small letters, digits, `-` and `_`, and `-` for a blank.
fn anchor(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    heading
        .trim()
        .chars()
        .filter(is_kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        .to_lowercase()
}

/// The anchors of a page.
fn anchors(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (_, line) in prose(text) {
        if let Some(heading) = line.strip_prefix('#') {
            // A heading's link shows its text alone.
            let heading = heading.trim_start_matches('#').replace("](", " (");
            all.push(anchor(&heading));
        }
        for word in ["<a id=\"", "<a name=\""] {
            all.extend(line.split(word).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_string())));
        }
    }
    all
}

/// `docs/book/src/a/../b.md` without `..`; `None` above the top.
fn plain(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// What is wrong with a link of a page; `None`: nothing.
fn wrong(page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let dir = Path::new(page).parent().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    let path = if file.is_empty() { Some(page.to_string()) } else { plain(&format!("{dir}/{file}")) };
    let Some(path) = path.filter(|p| crate::root().join(p).exists()) else {
        return Some("there is no such file".into());
    };
    if page.starts_with(BOOK) && !path.starts_with(BOOK) {
        return Some("it leads out of the book".into());
    }
    if fragment.is_empty() {
        return None;
    }
    match super::text_of(&path) {
        Ok(text) if anchors(&text).iter().any(|a| a == fragment) => None,
        Ok(_) => Some("there is no such heading".into()),
        Err(e) => Some(e),
    }
}

/// The links of the documentation that lead nowhere: `page:line: target: why`.
pub(crate) fn broken() -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for page in pages()? {
        for (line, target) in links(&super::text_of(&page)?) {
            all.extend(wrong(&page, &target).map(|why| format!("{page}:{line}: {target}: {why}")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::text_of;
    use super::*;

    /// A page of more lines is not read to its end.
    const LONGEST_CHAPTER: usize = 400;
    const LONGEST_ARCHITECTURE: usize = 200;

    #[test]
    fn every_link_of_the_documentation_leads_to_a_file_and_a_heading() {
        let bad = broken().unwrap();
        assert!(bad.is_empty(), "{}", bad.join("\n"));
        let count: usize = pages().unwrap().iter().map(|p| links(&text_of(p).unwrap()).len()).sum();
        assert!(count > 200, "only {count} links found");
    }

    #[test]
    fn every_chapter_is_in_the_summary_once_and_is_of_a_readable_size() {
        let summary = links(&text_of(&format!("{BOOK}/SUMMARY.md")).unwrap());
        let listed: Vec<String> = summary.into_iter().map(|(_, target)| format!("{BOOK}/{target}")).collect();
        let once: BTreeSet<&String> = listed.iter().collect();
        assert_eq!(listed.len(), once.len(), "a chapter is listed twice");
        let pages = pages().unwrap();
        let chapters: BTreeSet<&String> =
            pages.iter().filter(|p| p.starts_with(BOOK) && !p.ends_with("/SUMMARY.md")).collect();
        assert_eq!(chapters, once);
        for chapter in chapters {
            let lines = text_of(chapter).unwrap().lines().count();
            assert!(lines <= LONGEST_CHAPTER, "{chapter} has {lines} lines");
        }
        let lines = text_of("ARCHITECTURE.md").unwrap().lines().count();
        assert!(lines <= LONGEST_ARCHITECTURE, "ARCHITECTURE.md has {lines} lines");
    }

    /// The words between backquotes that are paths: with a folder, or with the ending of a source.
    #[test]
    fn every_file_that_a_recipe_names_exists() {
        let text = text_of("ARCHITECTURE.md").unwrap();
        let recipes = text.split_once("\n## Recipes\n").unwrap().1.split("\n## ").next().unwrap();
        let mut count = 0;
        for word in recipes.split('`').skip(1).step_by(2) {
            let is_path = word.contains('/') && !word.contains([' ', '*', '<', '|', '=']);
            if is_path && word.chars().next().is_some_and(|c| c.is_ascii_lowercase()) {
                assert!(crate::root().join(word).exists(), "a recipe names {word}, which is not there");
                count += 1;
            }
        }
        assert!(count > 40, "only {count} files found");
    }

    /// Recipes, and a word that the sources have for what the recipe was followed for once.
    const EXAMPLES: [(&str, &str); 9] = [
        ("**A built-in variable**", "Ipl"),
        ("**A subroutine**", "Rindex"),
        ("**An action**", "Tracemem"),
        ("**An option**", "FaultLines"),
        ("**An output format**", "Speedscope"),
        ("**An output format**", "speedscope"),
        ("**Of its own crate**", "HeatMap"),
        ("**A provider**", "Cpc"),
        ("**A runtime for `jstack()`**", "Cpython3_11"),
    ];

    #[test]
    fn recipes_name_every_file_in_which_their_examples_are() {
        let architecture = text_of("ARCHITECTURE.md").unwrap();
        let mut sources = Vec::new();
        for krate in fs::read_dir(crate::root().join("crates")).unwrap() {
            crate::tidy::walk(&krate.unwrap().path().join("src"), &mut sources).unwrap();
        }
        for (title, word) in EXAMPLES {
            let recipe = architecture.split_once(title).unwrap().1.split("\n\n").next().unwrap();
            let mut count = 0;
            for source in &sources {
                let name = source.strip_prefix(crate::root()).unwrap().display().to_string();
                let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
                let text = fs::read_to_string(source).unwrap();
                if is_test || !has_word(&text, word) {
                    continue;
                }
                assert!(
                    recipe.contains(&format!("`{name}`")),
                    "{title}: {word} is in {name}, which it does not name"
                );
                count += 1;
            }
            assert!(count > 0, "{title}: nothing has the word {word}");
        }
    }

    fn has_word(text: &str, word: &str) -> bool {
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        text.match_indices(word).any(|(at, _)| {
            !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
        })
    }

    #[test]
    fn every_benchmark_has_a_section_of_results() {
        let results = text_of("benches/README.md").unwrap();
        let headings: String = results.lines().filter(|l| l.starts_with("## ")).collect();
        let sections = text_of("benches/src/sections.rs").unwrap();
        let names = sections.split("(\"").skip(1).filter_map(|s| s.split_once("\", Place::")).map(|s| s.0);
        let names: Vec<&str> = names.collect();
        assert!(names.len() > 15, "{names:?}");
        let missing: Vec<_> = names.iter().filter(|n| !headings.contains(&format!("`{n}`"))).collect();
        assert!(missing.is_empty(), "benches/README.md has no results of {missing:?}");
    }

    #[test]
    fn links_and_anchors_are_found_as_a_browser_finds_them() {
        let text = "# The `-x` option: all\n[a](b.md#c) `[no](link)` ``x` [no](y)`` [d](#e)\n```\n[no](f)\n```\n<a id=\"here\"></a>\n";
        assert_eq!(links(text), [(2, "b.md#c".to_string()), (2, "#e".to_string())]);
        assert_eq!(anchors(text), ["the--x-option-all", "here"]);
        assert_eq!(plain("docs/book/../a.md").as_deref(), Some("docs/a.md"));
        assert_eq!(plain("../a.md"), None);
        assert!(
            wrong("README.md", "no/such.md").is_some() && wrong("README.md", "CHANGELOG.md#no").is_some()
        );
        assert!(wrong("README.md", "CHANGELOG.md#changelog").is_none());
        assert!(wrong("docs/book/src/README.md", "../../../README.md").is_some());
    }
}
