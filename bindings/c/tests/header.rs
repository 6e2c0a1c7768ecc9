//! The header that is written by hand, and the code.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] =
    &[("header::the_header_declares_what_the_code_defines", declares), ("header::is_complete", is_complete)];

const HEADER: &str = include_str!("../dtrace.h");

/// The declarations of a header, each on one line, without comments and preprocessor.
fn declarations(header: &str) -> BTreeSet<String> {
    let mut text = String::new();
    let mut rest = header;
    while let Some((code, comment)) = rest.split_once("/*") {
        text.push_str(code);
        rest = comment.split_once("*/").unwrap().1;
    }
    text.push_str(rest);
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    let code: String = lines.filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let code = code.replace("extern \"C\" {", "").replace("}  // extern \"C\"", "");
    let (mut all, mut depth, mut one) = (BTreeSet::new(), 0, String::new());
    for c in code.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        one.push(c);
        if c == ';' && depth == 0 {
            let mut words = one.split_whitespace().collect::<Vec<_>>().join(" ");
            for (from, to) in [
                ("( ", "("),
                (" )", ")"),
                (", }", " }"),
                ("* ", "*"),
                ("struct dt_", "dt_"),
                ("enum dt_", "dt_"),
            ] {
                words = words.replace(from, to);
            }
            all.insert(words.trim().to_owned());
            one.clear();
        }
    }
    all
}

fn declares() -> Verdict {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        documentation: false,
        usize_is_size_t: true,
        style: cbindgen::Style::Both,
        no_includes: true,
        ..cbindgen::Config::default()
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["src/lib.rs", "src/session.rs", "src/event.rs"];
    let builder =
        sources.iter().fold(cbindgen::Builder::new().with_config(config), |b, s| b.with_src(dir.join(s)));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let (ours, theirs) = (declarations(HEADER), declarations(std::str::from_utf8(&made).unwrap()));
    assert!(ours.len() > 20, "{ours:?}");
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let foreign: Vec<_> = ours.difference(&theirs).collect();
    assert!(
        missing.is_empty() && foreign.is_empty(),
        "not in the header: {missing:#?}\nonly there: {foreign:#?}"
    );
    Verdict::Pass
}

/// Each function has a comment, and the manual page has each.
fn is_complete() -> Verdict {
    let page = include_str!("../../../docs/libdtrace-rs.3");
    let (mut before, mut functions) = ("", 0);
    for line in HEADER.lines() {
        let name = line.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap();
        if name.starts_with("dt_") && line.ends_with(");") && !line.starts_with(' ') {
            assert!(before.ends_with("*/"), "{line}");
            assert!(page.contains(&format!("\\fB{name}\\fR(")), "{name}");
            functions += 1;
        }
        before = line;
    }
    assert!(functions > 10);
    Verdict::Pass
}
