//! Golden tests: programs in `tests/golden/*.d`, the checker's output in `*.out`. `UPDATE_GOLDEN=1`
//! rewrites the expected output.
//!
//! `tst.*` must be accepted, and the output is the typed program. `err.D_TAG.*` must be rejected
//! with that tag.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use check::{Context, Options};
use diagnostics::{Diagnostic, Sink, SourceKind, SourceMap};
use exercise::fixture;
use probes::{ArgType, Attributes, Catalog, ListCatalog, ProbeDesc, Version};
use syntax::ast::Program;
use syntax::macros::MacroEnv;
use syntax::{Libraries, ParseMode, SpecField};
use types::Types;

use crate::user_object;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Probes with arguments of all kinds.
pub(crate) fn catalog() -> ListCatalog {
    let mut list = ListCatalog::default();
    for name in ["BEGIN", "END", "ERROR"] {
        list.add(ProbeDesc::new("dtrace", "", "", name));
    }
    for function in ["read", "write", "openat"] {
        for name in ["entry", "return"] {
            list.add_with(ProbeDesc::new("syscall", "vmlinux", function, name), args(function, name));
        }
    }
    let task = || ArgType::text(0, "struct task_struct *");
    let probes = [
        ("touch", vec![task(), ArgType::text(1, "nothing_t"), ArgType::text(2, "void")]),
        ("look", vec![task().translated("struct seen *"), ArgType::text(0, "int").translated("short")]),
        (
            "mark",
            vec![
                ArgType::text(0, "string"),
                ArgType::text(1, "char [16]"),
                ArgType::text(2, "struct list_head"),
            ],
        ),
    ];
    for (name, args) in probes {
        list.add_with(ProbeDesc::new("kern", "vmlinux", "", name), args);
    }
    user_object::add(&mut list);
    // What the library of a test declares.
    for name in ["one", "two"] {
        let args = vec![ArgType::text(0, "int"), ArgType::text(1, "string")];
        list.add_with(ProbeDesc::new("stable", "vmlinux", "", name), args);
    }
    list
}

fn args(function: &str, name: &str) -> Vec<ArgType> {
    let text = ArgType::text;
    match (function, name) {
        (_, "return") => vec![text(0, "long"), text(1, "long")],
        ("read", _) => {
            vec![text(0, "unsigned int"), text(1, "char *").in_process(), text(2, "unsigned long")]
        }
        ("write", _) => {
            vec![text(0, "unsigned int"), text(1, "const char *").in_process(), text(2, "unsigned long")]
        }
        _ => {
            vec![
                text(0, "int"),
                text(1, "const char *").in_process(),
                text(2, "int"),
                text(3, "unsigned short"),
            ]
        }
    }
}

/// A text before `/* script */` is a library: `/* library */`.
fn with_library(text: &str) -> (Option<&str>, &str) {
    match text.split_once("/* script */") {
        Some((library, _)) if library.starts_with("/* library */") => {
            (Some(library), text.get(library.len()..).unwrap_or_default())
        }
        _ => (None, text),
    }
}

/// The error messages, and the output as text.
fn checked(texts: &[&str], change: impl FnOnce(&mut Options)) -> (Vec<Diagnostic>, String) {
    checked_with(texts, &|_| true, change)
}

/// The same where only some probes are visible to the programs.
fn checked_with(
    texts: &[&str],
    is_visible: &dyn Fn(&ProbeDesc) -> bool,
    change: impl FnOnce(&mut Options),
) -> (Vec<Diagnostic>, String) {
    let mut options = Options::default();
    change(&mut options);
    let (catalog, mut sink) = (catalog(), Sink::default());
    with_programs(texts, options, &catalog, &mut sink, |programs, cx, sink| {
        let filter = |_, id| catalog.by_id(id).is_some_and(|p| is_visible(&p.desc));
        let out = check::check_more(programs, 0, &filter, cx, sink);
        let complaints = std::mem::take(sink).into_sorted();
        let text = match complaints.is_empty() {
            true => check::dump::dump(&out, cx.types),
            false => complaints.iter().map(|d| d.render(cx.map, true) + "\n").collect(),
        };
        (complaints, text)
    })
}

/// Parses programs, and gives them with all that checking gets.
pub(crate) fn with_programs<T>(
    texts: &[&str],
    options: Options,
    catalog: &dyn Catalog,
    sink: &mut Sink,
    f: impl FnOnce(&[Program], &Context<'_>, &mut Sink) -> T,
) -> T {
    let mut map = SourceMap::default();
    let env = MacroEnv { args: options.operands.clone(), ..MacroEnv::default() };
    let mut libraries = Libraries::embedded();
    let split: Vec<_> = texts.iter().map(|text| with_library(text)).collect();
    for library in split.iter().filter_map(|(library, _)| *library) {
        libraries.add("library.d", library, true);
    }
    let texts: Vec<&str> = split.iter().map(|(_, text)| *text).collect();
    let programs: Vec<_> = texts
        .iter()
        .map(|text| {
            let file = map.add(SourceKind::Script, "test.d", *text);
            let script = text.starts_with("/* script");
            let mode = if script { ParseMode::Script } else { ParseMode::Specifier(SpecField::Name) };
            syntax::parse(&mut map, file, mode, &env, &Libraries::embedded(), sink)
        })
        .collect();
    let types = Types::with_kernel(fixture::kernel());
    libraries.load(&texts, &mut map, &env, sink);
    let cx = Context {
        types: &types,
        catalog,
        symbols: &fixture::KernelSymbols,
        map: &map,
        libraries: &libraries,
        definitions: &[],
        options,
        stop: &|| false,
    };
    f(&programs, &cx, sink)
}

pub(crate) fn inputs() -> Vec<PathBuf> {
    testing::golden::inputs(&root().join("tests/golden"), "d")
}

/// The settings in the comments at the beginning of a file: `/* operand: x */`, `/* amin:
/// Stable/Stable/Common */`, `/* version: 1.5 */`.
pub(crate) fn settings(source: &str, options: &mut Options) {
    for line in source.lines().map_while(|l| l.strip_prefix("/* ")?.split_once(": ")) {
        let value = line.1.split(' ').next().unwrap_or_default();
        match line.0 {
            "operand" => options.operands.push(value.to_string()),
            "amin" => options.amin = Attributes::parse(value),
            "version" => options.version = Version::parse(value),
            _ => {}
        }
    }
}

/// The tag in a file's name.
fn tag_of_name(file: &Path) -> Option<&str> {
    file.file_name()?.to_str()?.strip_prefix("err.")?.split('.').next()
}

// tst.args.types.d:
// row builtin.args
// tst.conditional.d:
// row expression.conditional, expression.conditional-constant
// tst.integers.d:
// row expression.compare-sign, type.cast, type.sizeof
// tst.updates.d:
// row expression.assignment, expression.step
// tst.if.else.d:
// row if.blocks, if.nested
// tst.inline.parameters.d:
// row inline.parameterised, inline.expression, inline.constant
// tst.translators.d:
// row translator.static, translator.dynamic, translator.defined
// err.D_CAST_INVAL.string.d:
// row type.cast-refused
// tst.memory.d, tst.kernel.d:
// row type.offsetof, type.stringof, expression.address-of, variable.external-enumerator
// row expression.pointer-arithmetic
// tst.strings.d:
// row expression.short-circuit, variable.implicit-type, variable.declared
// err.D_VAR_UNDEF.*:
// row variable.undefined-read
#[test]
fn programs_check_to_their_golden_output() {
    let mut wrong = Vec::new();
    testing::golden::compare(&root().join("tests/golden"), "d", "out", |input, source| {
        let (complaints, got) = checked(&[source], |o| settings(source, o));
        match tag_of_name(input) {
            Some(tag) if !complaints.iter().any(|d| d.tag.name() == tag) => {
                wrong.push(format!("{} does not give {tag}:\n{got}", input.display()));
            }
            None if !complaints.is_empty() => wrong.push(format!("{}:\n{got}", input.display())),
            _ => {}
        }
        got
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_program_keeps_its_bases_when_others_come_that_it_does_not_see() {
    let text = |bases: &str, more: &str| {
        let library = format!(
            "/* library */\nprovider stable {{ probe one(int n, string s); }};\n{bases} {{ one((int)args[0], \"x\"); }}\n\
             syscall::openat:entry /{more}/ {{ one(2, \"y\"); }}\n"
        );
        format!("{library}/* script */\nstable:::one {{ trace(arg0); }}\n")
    };
    let get = |text: String| {
        let (complaints, out) = checked_with(&[&text], &|p| &*p.function != "write", |_| {});
        assert!(complaints.is_empty(), "{out}");
        out
    };
    let without = get(text("syscall::read:entry", "1"));
    assert_eq!(get(text("syscall::read:entry, syscall::write:entry", "1")), without);
    assert_eq!(get(text("syscall::read:entry", "!defined(syscall::write:entry)")), without);
}

#[test]
fn every_tag_that_the_checker_raises_has_a_golden_file() {
    // Tags that no program text can cause: the parser reports the error first, or only a bug of
    // ours can cause it.
    const NONE: [&str; 2] = ["D_DECL_SCOPE", "D_UNKNOWN"];
    let have: BTreeSet<String> = inputs().iter().filter_map(|f| tag_of_name(f).map(String::from)).collect();
    let mut missing = BTreeSet::new();
    let mut paths = vec![root().join("src")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for rest in text.split("Tag::").skip(1) {
            let tag: String =
                rest.chars().take_while(|c| c.is_ascii_uppercase() || matches!(c, '_' | '0'..='9')).collect();
            if tag.starts_with("D_") && !have.contains(&tag) && !NONE.contains(&tag.as_str()) {
                missing.insert(tag);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn programs_of_a_session_share_variables_in_order() {
    let (complaints, text) = checked(
        &["BEGIN { x = 1L; @a[execname] = count(); }", "END { trace(x); @a[copyinstr(arg0)] = count(); }"],
        |_| {},
    );
    assert!(complaints.is_empty(), "{text}");
    assert!(text.contains("agg @a: count [str256@0]"), "{text}");
    let (complaints, _) = checked(&["END { trace(x); }", "BEGIN { x = 1L; }"], |_| {});
    assert_eq!(complaints[0].tag.name(), "D_IDENT_UNDEF");
}

#[test]
fn zdefs_and_empty_allow_clauses_without_probes_and_actions() {
    let (complaints, _) = checked(&["nowhere:::x {}"], |o| o.zdefs = true);
    assert!(complaints.is_empty());
    let (complaints, _) = checked(&["/* */"], |o| o.empty = true);
    assert!(complaints.is_empty());
}

#[test]
fn clauses_without_probes_are_deferred_when_their_types_are_unknown() {
    let wait = |texts: &[&str]| checked(texts, |o| o.zdefs = true);
    // The clause is left out, and so is a clause that depends on it.
    let (complaints, text) = wait(&["nowhere:::x { self->n = args[0]; @a[args[1]] = count(); }
        nowhere:::y /self->n/ { printa(@a); this->m = self->n; }
        nowhere:::z { other = 1; } BEGIN { trace(pid); }"]);
    assert!(complaints.is_empty(), "{text}");
    assert!(!text.contains("self->n") && text.contains("other"), "{text}");
    // Other errors are reported at once.
    let (complaints, _) = wait(&["nowhere:::x { trace(args[0]); trace(nosuch); }"]);
    assert_eq!(complaints[0].tag.name(), "D_IDENT_UNDEF");
    // A clause with probes cannot be deferred.
    let (complaints, _) = wait(&["nowhere:::x { self->n = args[0]; } END { trace(self->n); }"]);
    assert_eq!(complaints[0].tag.name(), "D_VAR_UNDEF");
    assert!(complaints[0].message.contains("waits for its probes"), "{}", complaints[0].message);
    let (complaints, text) =
        wait(&["self int n; nowhere:::x { self->n = args[0]; } END { trace(self->n); }"]);
    assert!(complaints.is_empty(), "{text}");
}

#[test]
fn strings_take_words_in_records_and_have_strsize_bytes() {
    let (_, text) =
        checked(&["BEGIN { trace(copyinstr(arg0)); trace(sizeof (string)); }"], |o| o.strsize = 50);
    assert!(text.contains("str56@0") && text.contains("50:size_t"), "{text}");
}

/// The stack is as large as a main thread's: an unoptimized build needs several kilobytes per
/// level.
#[test]
fn deep_nesting_is_rejected_and_long_chains_are_accepted() {
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(deep_nesting);
    thread.unwrap().join().unwrap();
}

fn deep_nesting() {
    let chain = format!("BEGIN {{ trace(pid{}); }}", " + 1".repeat(400));
    let (complaints, text) = checked(&[&chain], |_| {});
    assert!(complaints.is_empty(), "{text}");
    let arms: String = (0..200).map(|i| format!("pid == {i} ? \"{i}\" : ")).collect();
    let (complaints, text) = checked(&[&format!("BEGIN {{ trace({arms} execname); }}")], |_| {});
    assert!(complaints.is_empty(), "{text}");
    let chain = format!("BEGIN {{ trace(pid{}); }}", " + pid".repeat(1_000));
    let (complaints, _) = checked(&[&chain], |_| {});
    assert_eq!(complaints[0].tag.name(), "D_SYNTAX");
}

#[test]
fn a_type_and_a_value_of_a_library_may_have_one_name() {
    let (mut map, mut sink, env) = (SourceMap::default(), Sink::default(), MacroEnv::default());
    let mut libraries = Libraries::default();
    let text = "inline struct mine *mine = (struct mine *)arg0;\n\
        inline int side[struct mine *M] = M->a + EXTRA;\nenum more { EXTRA = 2 };\n\
        translator struct mine < int I > { a = I; };\nstruct mine { int a; };\n";
    libraries.add("x.d", text, false);
    let program = "BEGIN { trace(side[mine]); trace(xlate <struct mine *> (3)->a); }";
    libraries.load(&[program], &mut map, &env, &mut sink);
    let file = map.add(SourceKind::Script, "test.d", program);
    let tree = syntax::parse(&mut map, file, ParseMode::Script, &env, &libraries, &mut sink);
    let (types, catalog, options) = (Types::new(), catalog(), Options::default());
    let cx = Context {
        types: &types,
        catalog: &catalog,
        symbols: &(),
        map: &map,
        libraries: &libraries,
        definitions: &[],
        options,
        stop: &|| false,
    };
    check::check(&[tree], &cx, &mut sink);
    let complaints: Vec<String> = sink.into_sorted().iter().map(|d| d.render(&map, true)).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}
