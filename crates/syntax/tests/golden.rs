//! Golden tests of the parser.
//!
//! The tree of `x.d` is compared with `x.tree`. Its errors, printed with tags, are compared with
//! `x.err`; without such a file there must be none. `UPDATE_GOLDEN=1` writes both files. The first
//! lines may set options of the parser: `// mode: name|function|module|provider`, `// args: a b`
//! (operands), `// set: defaultargs pspec spans`, `// types: foo_t bar_t`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use diagnostics::{Sink, SourceKind, SourceMap};
use syntax::{MacroEnv, ParseMode, SpecField, TypeNames, parse};

struct Typedefs(Vec<String>);

impl TypeNames for Typedefs {
    fn is_type(&self, name: &str) -> bool {
        self.0.iter().any(|n| n == name)
    }
}

fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.strip_prefix("// ")?.strip_prefix(name)?.strip_prefix(": "))
}

fn read(name: &str, text: &str) -> (String, String) {
    let mode = match directive(text, "mode") {
        None => ParseMode::Script,
        Some("name") => ParseMode::Specifier(SpecField::Name),
        Some("function") => ParseMode::Specifier(SpecField::Function),
        Some("module") => ParseMode::Specifier(SpecField::Module),
        Some("provider") => ParseMode::Specifier(SpecField::Provider),
        Some(other) => panic!("{name}: mode {other}?"),
    };
    let set = directive(text, "set").unwrap_or("");
    let macros = MacroEnv {
        name: name.to_owned(),
        args: directive(text, "args").map_or(Vec::new(), |a| a.split(' ').map(str::to_owned).collect()),
        pid: 100,
        target: 42,
        default_args: set.contains("defaultargs"),
        probe_spec_first: set.contains("pspec"),
        ..MacroEnv::default()
    };
    let types =
        Typedefs(directive(text, "types").map_or(Vec::new(), |a| a.split(' ').map(str::to_owned).collect()));
    let mut map = SourceMap::default();
    let file = map.add(SourceKind::Script, name, text);
    let mut sink = Sink::default();
    let program = parse(&mut map, file, mode, &macros, &types, &mut sink);
    let tree = if set.contains("spans") { program.dump_spans() } else { program.dump() };
    let mut errors: Vec<String> = sink.into_sorted().iter().map(|d| d.render(&map, true) + "\n").collect();
    errors.dedup();
    (tree, errors.join("\n"))
}

// literals.d:
// row token.integer-forms, token.character
// expressions.d:
// row token.operators, token.slash, token.splice, token.identifier, token.keyword-as-member
// row expression.precedence, expression.comma, token.aggregation-unnamed
// clauses.d:
// row unit.comment, description.list, description.number, description.characters
// pspec.d:
// row description.type-or-probe
// definitions.d:
// row unit.control-line
// macros.d, macros_default.d:
// row macro.defaultargs, description.macro-in-field
// spec_*.d:
// row unit.no-braces
#[test]
fn golden_programs_have_the_expected_trees_and_errors() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "d"))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    let mut wrong = Vec::new();
    for path in names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let (tree, errors) = read(&name, &text);
        for (extension, got) in [("tree", tree), ("err", errors)] {
            let file = path.with_extension(extension);
            let want = std::fs::read_to_string(&file).unwrap_or_default();
            if got == want {
                continue;
            }
            if !update {
                wrong.push(format!("{}\n--- expected\n{want}--- got\n{got}", file.display()));
            } else if got.is_empty() {
                let _ = std::fs::remove_file(&file);
            } else {
                std::fs::write(&file, got).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
