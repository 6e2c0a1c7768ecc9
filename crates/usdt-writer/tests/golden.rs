//! Golden tests: definitions in `tests/golden/*.d`, the header or the errors in `*.out`.
//! `UPDATE_GOLDEN=1` rewrites the expected output.
//!
//! `tst.*` must be accepted. `err.D_TAG.*` must be rejected with that tag and no other.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use diagnostics::{Sink, SourceKind, SourceMap};
use syntax::{Libraries, MacroEnv, ParseMode, TypeNames};
use usdt_writer::{Definitions, TypesOfSystem, define, header};

struct System(Libraries);

impl TypesOfSystem for System {
    fn has(&self, name: &str) -> bool {
        self.0.is_type(name)
    }
}

/// The header, or the errors with their tags.
fn outcome(name: &str, text: &str) -> Result<String, Vec<(String, String)>> {
    let (mut map, mut sink, mut all) = (SourceMap::default(), Sink::default(), Definitions::default());
    let system = System(Libraries::embedded());
    let file = map.add(SourceKind::Script, name, text);
    let tree = syntax::parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &system.0, &mut sink);
    define(&tree, &map, &system, &mut all, &mut sink);
    match sink.is_empty() {
        true => Ok(header(&all, &name.replace(".d", ".h"))),
        false => {
            let shown = |d: diagnostics::Diagnostic| (d.tag.name().to_string(), d.render(&map, true));
            Err(sink.into_sorted().into_iter().map(shown).collect())
        }
    }
}

#[test]
fn definitions_give_the_expected_headers_and_errors() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "d"));
    files.sort();
    assert!(files.len() > 15);
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let output = match outcome(&name, &fs::read_to_string(&file).unwrap()) {
            Ok(_) if name.starts_with("err.") => format!("{name} is accepted"),
            Ok(header) => header,
            Err(errors) => {
                let tag = name.split('.').nth(1).unwrap();
                if !name.starts_with("err.") || errors.iter().any(|(t, _)| t != tag) {
                    wrong.push(format!("{name}: {errors:#?}"));
                }
                errors.into_iter().map(|(_, text)| text + "\n").collect()
            }
        };
        let expected = file.with_extension("out");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&expected, &output).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != output {
            wrong.push(format!("{name}: not as expected; UPDATE_GOLDEN=1 shows the difference:\n{output}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_description_has_a_greatest_size() {
    let probes: String = (0..4000).map(|n| format!("probe a_probe_{n}(int a);")).collect();
    let errors = outcome("long.d", &format!("provider long_one {{ {probes} }};")).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].1.contains("the description of provider long_one is longer than 64 KiB"), "{errors:?}");
}
