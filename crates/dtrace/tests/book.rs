//! The parts of the book (`docs/book`) that tables say: options, providers with their probes and
//! arguments, and the members of translated types. They stand in its chapters between two comments:
//!
//! ```text
//!  <!-- generated: options -->            the table of -x options
//!  <!-- generated: provider NAME -->      probes and arguments: of the manual's table, or of the block in lib/*.d
//!  <!-- generated: foreign -->            words of other systems that Linux has nothing for, with the reason
//!  <!-- generated: types -->              the structs of lib/*.d that arguments have, member by member
//!  <!-- end of generated -->
//! ```
//!
//! `UPDATE_BOOK=1 cargo test -p dtrace --test all book` writes them; without it the tests fail
//! where a chapter says otherwise.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use dtrace::options::{Obeyed, Row, Shape, TABLE};
use dtrace::reference::{
    FUNCTIONS, FunctionKind, LIBRARY_WORDS, MACROS, MANUALS, Manual, VARIABLES, VariableKind,
};

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end of generated -->";

/// The chapters: path and text.
fn chapters() -> Vec<(PathBuf, String)> {
    let (mut all, mut todo) = (Vec::new(), vec![Path::new(TOP).join("docs/book/src")]);
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                all.push((path.clone(), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    all
}

/// The files of `lib/` whose names are asked for.
fn libraries_of(is_asked_for: &dyn Fn(&str) -> bool) -> Vec<String> {
    let dir = std::fs::read_dir(Path::new(TOP).join("lib")).unwrap();
    let mut files: Vec<PathBuf> = dir.map(|e| e.unwrap().path()).collect();
    files.sort();
    files.retain(|f| is_asked_for(f.file_name().and_then(|name| name.to_str()).unwrap()));
    files.iter().map(|f| std::fs::read_to_string(f).unwrap()).collect()
}

/// The files of `lib/`.
fn libraries() -> Vec<String> {
    libraries_of(&|_| true)
}

/// The types of these libraries have a page of their own.
fn of_nfs(file: &str) -> bool {
    file.starts_with("nfs")
}

/// What the comment between `<!-- generated: ` and ` -->` asks for.
fn generated(what: &str) -> String {
    match what.split_once(' ') {
        None if what == "options" => options(),
        None if what == "foreign" => foreign(),
        None if what == "types" => types(&|name| !of_nfs(name) && name != "iscsi.d"),
        Some(("types", "nfs")) => types(&of_nfs),
        Some(("types", "iscsi")) => types(&|name| name == "iscsi.d"),
        Some(("provider", name)) => {
            let manual = MANUALS.iter().find(|m| m.name == name);
            manual.map_or_else(|| declared(name), |m| native(m))
        }
        _ => panic!("no table makes {what}"),
    }
}

/// A chapter with its generated parts as they should be.
fn refreshed(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(what) = line.strip_prefix(BEGIN).and_then(|l| l.strip_suffix(" -->")) else { continue };
        let _ = write!(out, "\n{}\n{END}\n", generated(what));
        assert!(lines.any(|l| l == END), "{what}: no {END}");
    }
    out
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("see DIAGNOSTICS", "see [errors](../troubleshooting/errors.md)")
}

fn options() -> String {
    let row = |row: &Row| {
        let value = match row.shape {
            Shape::Flag => "".into(),
            Shape::Size => "size".into(),
            Shape::Rate => "rate".into(),
            Shape::Int => "number".into(),
            Shape::Text => "text".into(),
            Shape::List => "text, more than once".into(),
            Shape::Word(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" "),
        };
        let default = if row.default.is_empty() { String::new() } else { format!("`{}`", row.default) };
        let by = if row.obeyed == Obeyed::Session { "" } else { " (the command)" };
        format!("| `{}` | {value} | {default} | {}{by} |\n", row.name, cell(row.help))
    };
    let rows: String = TABLE.iter().map(row).collect();
    format!("| Option | Value | Default | Does |\n|---|---|---|---|\n{rows}")
}

fn foreign() -> String {
    let variables = VARIABLES.iter().filter_map(|r| match r.kind {
        VariableKind::NotOnLinux(why) => Some((format!("`{}`", r.name), why)),
        _ => None,
    });
    let functions = FUNCTIONS.iter().filter_map(|r| match r.kind {
        FunctionKind::ActionNotOnLinux(why) | FunctionKind::SubroutineNotOnLinux(why) => {
            Some((format!("`{}()`", r.name), why))
        }
        _ => None,
    });
    let rows = variables.chain(functions).map(|(name, why)| format!("| {name} | {} |\n", cell(why)));
    format!("| Word | Why not here |\n|---|---|\n{}", rows.collect::<String>())
}

/// A provider that is written in Rust: as its table says.
fn native(manual: &Manual) -> String {
    let same = |m: &&&Manual| (m.probes, m.args) == (manual.probes, manual.args);
    if let Some(first) = MANUALS.iter().find(same).filter(|first| first.name != manual.name) {
        let help = cell(manual.help);
        let first_letter = help[..1].to_uppercase();
        return format!(
            "{first_letter}{}. Probes and arguments have the forms of `{}`.\n",
            &help[1..],
            first.name
        );
    }
    let mut out = String::from("| Probe | Fires |\n|---|---|\n");
    for (form, when) in manual.probes {
        let _ = writeln!(out, "| `{form}` | {} |", cell(when.strip_prefix("fires ").unwrap_or(when)));
    }
    out.push_str("\n| Argument | Is |\n|---|---|\n");
    for (name, what) in manual.args {
        let _ = writeln!(out, "| `{name}` | {} |", cell(what));
    }
    out
}

/// The provider blocks of a library: name, its body, and what follows.
fn blocks(text: &str) -> Vec<(&str, &str, &str)> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices("\nprovider ") {
        let (name, rest) = text[at + "\nprovider ".len()..].split_once(" {").unwrap();
        let (body, after) = rest.split_once("\n};").unwrap();
        all.push((name.split('[').next().unwrap(), body, after));
    }
    all
}

/// True where the clauses of a library fire the probe.
fn is_fired(clauses: &str, probe: &str) -> bool {
    clauses.match_indices(&format!("{probe}(")).any(|(at, _)| {
        let before = clauses[..at].chars().next_back();
        before.is_some_and(|c| !c.is_ascii_alphanumeric() && c != '_')
    })
}

/// The types of a probe's arguments: those behind the colon, if the declaration translates.
fn arguments(declaration: &str) -> Vec<String> {
    let inside = declaration.split_once('(').unwrap().1.rsplit_once(')').unwrap().0;
    let list = inside.split_once(" :").map_or(inside, |(_, translated)| translated);
    let list = list.split(',').map(|a| a.split_whitespace().collect::<Vec<_>>().join(" "));
    list.filter(|a| !a.is_empty()).map(|a| a[..a.rfind([' ', '*']).unwrap() + 1].trim().to_string()).collect()
}

/// A provider of a library: probes with equal arguments in one row.
fn declared(name: &str) -> String {
    let libraries = libraries();
    let (_, body, clauses) =
        libraries.iter().flat_map(|l| blocks(l)).find(|b| b.0 == name).unwrap_or_else(|| panic!("{name}"));
    let documented = structs(&libraries);
    let in_nfs = structs(&libraries_of(&of_nfs));
    let in_iscsi = structs(&libraries_of(&|file| file == "iscsi.d"));
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for declaration in body.split("\tprobe ").skip(1) {
        let probe = declaration.split('(').next().unwrap();
        if !is_fired(clauses, probe) {
            continue;
        }
        let types = arguments(declaration);
        let args = types.iter().enumerate().map(|(n, ty)| {
            let link = ty.strip_suffix(" *").filter(|t| documented.iter().any(|(name, _)| name == t));
            link.map_or_else(
                || format!("`args[{n}]`: `{ty}`"),
                |t| {
                    let is_in = |all: &[(String, Vec<String>)]| all.iter().any(|(name, _)| name == t);
                    let page = match () {
                        () if is_in(&in_nfs) => "nfs-types.md",
                        () if is_in(&in_iscsi) => "iscsi.md",
                        () => "types.md",
                    };
                    format!("`args[{n}]`: [`{ty}`]({page}#{})", t.to_lowercase())
                },
            )
        });
        let args = args.collect::<Vec<_>>().join("; ");
        let probe = format!("`{}`", probe.replace("__", "-"));
        match rows.iter_mut().find(|r| r.0 == args) {
            Some(row) => row.1.push(probe),
            None => rows.push((args, vec![probe])),
        }
    }
    let mut out = format!("| Probes of `{name}` | Arguments with their types |\n|---|---|\n");
    for (args, probes) in rows {
        let _ = writeln!(out, "| {} | {args} |", probes.join(" "));
    }
    out
}

/// The structs that translators make: name of the type, and its lines.
fn structs(libraries: &[String]) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for text in libraries {
        for part in text.split("\ntypedef struct ").skip(1) {
            let Some((body, end)) = part.split_once("\n} ") else { continue };
            let Some((head, body)) = body.split_once('\n').filter(|(head, _)| head.ends_with('{')) else {
                continue;
            };
            let name = end.split(';').next().unwrap();
            if text.contains(&format!("translator {name} <")) || head.starts_with("processor") {
                all.push((name.to_string(), body.lines().map(String::from).collect()));
            }
        }
    }
    all.sort();
    all
}

fn types(is_asked_for: &dyn Fn(&str) -> bool) -> String {
    let mut out = String::new();
    for (name, lines) in structs(&libraries_of(is_asked_for)) {
        let _ = write!(out, "## {name}\n\n| Member | Type | Is |\n|---|---|---|\n");
        for line in lines {
            let Some((declaration, comment)) = line.split_once(';') else { continue };
            let comment = comment.trim().trim_start_matches("/*").trim_end_matches("*/").trim();
            let declaration = declaration.trim();
            let at = declaration.rfind([' ', '*']).unwrap() + 1;
            let _ = writeln!(
                out,
                "| `{}` | `{}` | {} |",
                &declaration[at..],
                declaration[..at].trim(),
                cell(comment)
            );
        }
        out.push('\n');
    }
    out.trim_end().to_string() + "\n"
}

#[test]
fn the_generated_parts_of_the_book_are_what_the_tables_say() {
    for (path, text) in chapters() {
        let new = refreshed(&text);
        if std::env::var_os("UPDATE_BOOK").is_some() {
            std::fs::write(&path, new).unwrap();
            continue;
        }
        let how = "UPDATE_BOOK=1 cargo test -p dtrace --test all book";
        assert!(new == text, "{} is not what the tables say: {how}", path.display());
    }
}

#[test]
fn every_provider_has_a_page_in_the_book() {
    let text: String = chapters().into_iter().map(|c| c.1).collect();
    let pages: BTreeSet<String> = text
        .lines()
        .filter_map(|l| {
            Some(l.strip_prefix(BEGIN)?.strip_prefix("provider ")?.strip_suffix(" -->")?.to_string())
        })
        .collect();
    let mut there: BTreeSet<String> = MANUALS.iter().map(|m| m.name.to_string()).collect();
    there.extend(libraries().iter().flat_map(|l| blocks(l)).map(|b| b.0.to_string()));
    assert_eq!(pages, there);
}

/// Names that D has for the libraries alone begin with an underscore.
#[test]
fn every_word_of_the_tables_is_in_the_book() {
    let text: String = chapters().into_iter().map(|c| c.1).collect();
    let is_in = |form: String| text.contains(&form);
    let words = VARIABLES.iter().map(|r| (r.name, ["`", "`"]));
    let words = words.chain(LIBRARY_WORDS.iter().map(|w| (w.name.split('[').next().unwrap(), ["`", "`"])));
    let words = words.chain(FUNCTIONS.iter().map(|r| (r.name, ["`", "("])));
    let words = words.chain(MACROS.iter().map(|m| (m.0, ["`$", "`"])));
    // `arg3` is between `arg0` and `arg9`.
    let named =
        |w: &&str| !w.starts_with('_') && w.strip_prefix("arg").is_none_or(|n| n.parse::<u8>().is_err());
    let missing: Vec<&str> = words
        .filter(|(name, _)| named(name))
        .filter(|(name, [open, close])| {
            !is_in(format!("{open}{name}{close}")) && !is_in(format!("{open}{name}["))
        })
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "no chapter of docs/book names {missing:?}");
}
