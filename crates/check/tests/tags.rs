//! Every error tag of D is raised by a test, or `docs/coverage/excused.txt` gives the reason why
//! none can raise it.
//!
//! A golden test `err.TAG.name` of this crate raises its tag. A comment `row tag.TAG` names a tag
//! that another test raises. An excuse is an error when the sources raise its tag.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use diagnostics::Tag;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, wanted: &dyn Fn(&Path) -> bool, found: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, wanted, found);
        } else if wanted(&path) && path.extension().is_some_and(|e| e == "rs" || e == "d") {
            found(&path, &fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

fn excused() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/coverage/excused.txt")).unwrap();
    let rows = text.lines().filter_map(|l| l.strip_prefix("tag.")?.split_once(char::is_whitespace));
    rows.filter(|(_, why)| !why.trim().is_empty()).map(|(tag, _)| tag.to_string()).collect()
}

#[test]
fn every_tag_is_raised_by_a_test_or_excused_with_a_reason() {
    let in_tests = |p: &Path| p.components().any(|c| c.as_os_str() == "tests");
    let (mut tested, mut raised) = (BTreeSet::new(), BTreeSet::new());
    sources(&root().join("crates"), &|_| true, &mut |path, text| {
        if in_tests(path) {
            let name = path.file_name().unwrap().to_string_lossy();
            tested.extend(name.strip_prefix("err.").and_then(|n| n.split('.').next()).map(String::from));
            let rows = text.lines().filter(|l| l.contains("row tag."));
            let words = rows.flat_map(|l| l.split([' ', ',']));
            tested.extend(words.filter_map(|w| w.strip_prefix("tag.")).map(String::from));
        } else {
            let word = |rest: &str| -> String {
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
            };
            raised.extend(text.split("Tag::").skip(1).map(word));
        }
    });
    let excused = excused();
    let mut wrong = Vec::new();
    for tag in Tag::ALL.iter().map(|t| t.name()) {
        match (tested.contains(tag), excused.contains(tag)) {
            (false, false) => wrong.push(format!("{tag}: no test raises it and no excuse is given")),
            (true, true) => wrong.push(format!("{tag}: excused, but a test raises it")),
            (false, true) if raised.contains(tag) => {
                wrong.push(format!("{tag}: excused, but the sources raise it"));
            }
            _ => {}
        }
    }
    for tag in &excused {
        if !Tag::ALL.iter().any(|t| t.name() == tag) {
            wrong.push(format!("{tag}: excused, but no tag"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
