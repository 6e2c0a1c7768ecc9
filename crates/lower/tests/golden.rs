//! Golden tests: D text in `tests/golden/*.d`, expected DIF text in `*.dif`. `UPDATE_GOLDEN=1`
//! rewrites the expected text. A text before `/* script */` is a library: `/* library */`.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use check::{Context, Options};
use diagnostics::{Sink, SourceKind, SourceMap};
use exercise::fixture;
use probes::{ArgType, ListCatalog, ProbeDesc};
use syntax::macros::MacroEnv;
use syntax::{ParseMode, SpecField};
use types::Types;

/// Probes, and those that the library of a test declares.
fn catalog() -> ListCatalog {
    let mut list = fixture::catalog();
    for name in ["one", "two", "never"] {
        list.add_with(ProbeDesc::new("stable", "vmlinux", "", name), vec![ArgType::text(0, "int")]);
    }
    list
}

fn lowered(text: &str) -> String {
    let mut libraries = syntax::Libraries::default();
    let script = text.find("/* script */").filter(|_| text.starts_with("/* library */"));
    let (library, text) = text.split_at(script.unwrap_or(0));
    if !library.is_empty() {
        libraries.add("library.d", library, true);
    }
    let mut map = SourceMap::default();
    let mut sink = Sink::default();
    let file = map.add(SourceKind::Script, "test.d", text);
    let mode = ParseMode::Specifier(SpecField::Name);
    let env = MacroEnv::default();
    let program = syntax::parse(&mut map, file, mode, &env, &(), &mut sink);
    libraries.load(&[text], &mut map, &env, &mut sink);
    let (types, catalog) = (Types::with_kernel(fixture::kernel()), catalog());
    let cx = Context {
        types: &types,
        catalog: &catalog,
        symbols: &fixture::KernelSymbols,
        map: &map,
        libraries: &libraries,
        definitions: &[],
        options: Options::default(),
        stop: &|| false,
    };
    let checked = check::check(&[program], &cx, &mut sink);
    if !sink.is_empty() {
        return sink.into_sorted().iter().map(|d| d.render(&map, true) + "\n").collect();
    }
    let mut module = match lower::lower(&checked) {
        Ok(module) => module,
        Err(error) => return format!("{error}\n"),
    };
    if let Err(error) = dif::verify(&module) {
        return format!("{error}\n{}", dif::text::print(&module, None));
    }
    let text = dif::text::print(&module, None);
    match dif::text::parse(&text).map(|read| dif::text::print(&read, None)) {
        Ok(again) if again == text => {}
        Ok(again) => return format!("read back as:\n{again}"),
        Err(error) => return format!("{error}\n{text}"),
    }
    dif::opt::optimize(&mut module);
    match dif::verify(&module) {
        Ok(()) => text,
        Err(error) => format!("optimized: {error}\n{text}"),
    }
}

#[test]
fn programs_lower_to_their_golden_dif() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    testing::golden::compare(&dir, "d", "dif", |_, text| lowered(text));
}
