//! Definitions of programs, which may say anything.

use std::cell::Cell;
use std::sync::Arc;

use check::{Context, Definition, Options};
use diagnostics::{Sink, SourceKind, SourceMap};
use exercise::defined::Defined;
use probes::{ArgType, ListCatalog, ProbeDesc};
use syntax::{Libraries, MacroEnv, ParseMode};
use testing::{HANG_LIMIT, eventually};
use types::Types;

use crate::running::{Gone, Running};

/// Definitions with their probes, for scripts.
struct World {
    map: SourceMap,
    libraries: Libraries,
    catalog: Defined,
    definitions: Vec<Definition>,
    /// After so many questions the check is told to stop.
    questions: Cell<usize>,
}

impl World {
    /// Each definition is that of a program with these probes.
    fn new(texts: &[&str], probes: &[&str]) -> World {
        let (map, libraries) = (SourceMap::default(), Libraries::embedded());
        let (catalog, definitions) = (Defined(ListCatalog::default()), Vec::new());
        let questions = Cell::new(usize::MAX);
        let mut world = World { map, libraries, catalog, definitions, questions };
        for (number, text) in texts.iter().enumerate() {
            for name in probes {
                let desc = ProbeDesc::new("app", format!("v{number}"), "f", *name);
                world.catalog.0.add_with(desc, [0, 1].map(|n| ArgType::text(n, "uint64_t")).into());
            }
            let (program, faults) = world.parse(SourceKind::Library, &format!("app of /app{number}"), text);
            let (number, program, faults) = (number as u32, Arc::new(program), faults.into_sorted());
            world.definitions.push(Definition { number, program, faults });
        }
        world
    }

    fn parse(&mut self, kind: SourceKind, name: &str, text: &str) -> (syntax::ast::Program, Sink) {
        let (mut sink, env) = (Sink::default(), MacroEnv::default());
        let file = self.map.add(kind, name, text);
        let tree = syntax::parse(&mut self.map, file, ParseMode::Script, &env, &self.libraries, &mut sink);
        (tree, sink)
    }

    /// Checks with this world.
    fn with<T>(&self, f: impl FnOnce(&Context<'_>) -> T) -> T {
        f(&Context {
            types: &Types::new(),
            catalog: &self.catalog,
            symbols: &(),
            map: &self.map,
            libraries: &self.libraries,
            definitions: &self.definitions,
            options: Options::default(),
            stop: &|| {
                self.questions.set(self.questions.get().saturating_sub(1));
                self.questions.get() == 0
            },
        })
    }

    /// Checks a script; the errors.
    fn check(&mut self, script: &str) -> (check::Checked, Vec<String>) {
        let (tree, mut sink) = self.parse(SourceKind::Script, "test.d", script);
        let checked = self.with(|cx| check::check(&[tree], cx, &mut sink));
        let complaints = sink.into_sorted().iter().map(|d| d.render(&self.map, true)).collect();
        (checked, complaints)
    }
}

/// The types of `args[]` of the probes `sent` of these definitions, and the messages; then what a
/// script that uses them is told.
fn checked(texts: &[&str], script: &str) -> (Vec<Vec<String>>, Vec<String>, Vec<String>, usize) {
    let mut world = World::new(texts, &["sent"]);
    let (mut names, mut messages) = (Vec::new(), Vec::new());
    for probe in &world.catalog.0.probes {
        let (found, faults) = world.with(|cx| check::defined_types(cx, &probe.desc));
        names.push(found.unwrap_or_default());
        messages.extend(faults);
    }
    if script.is_empty() {
        return (names, messages, Vec::new(), 0);
    }
    let (checked, complaints) = world.check(script);
    messages.extend(checked.left_out);
    (names, messages, complaints, checked.clauses.len())
}

const GOOD: &str = "typedef struct file { char *name; int size; } file_t;
typedef struct info { string name; int size; } info_t;
inline int twice[int n] = n * 2;
translator info_t < file_t *f > { name = stringof(f->name); size = twice[f->size]; };
provider app { probe sent(file_t *f, short n) : (info_t *f, short n, file_t *f); };
";

#[test]
fn arguments_have_the_types_of_the_definition() {
    let (names, messages, complaints, clauses) =
        checked(&[GOOD], "app:::sent { trace(args[0]->size); trace(args[1]); trace(args[2]->size); }");
    assert_eq!(names, [["info_t *", "short", "userland file_t *"]]);
    assert_eq!((messages, complaints, clauses), (vec![], vec![], 1));
}

#[test]
fn a_clause_that_runs_keeps_the_definitions_of_programs_that_have_ended() {
    let other = GOOD
        .replace("int size", "char before; int size")
        .replace("(info_t *f, short n", "(short n, info_t *f");
    let mut world = World::new(&[GOOD, &other], &["sent"]);
    let script = "app:::sent { trace(arg0); trace(arg1); @[probemod] = count(); } app:v0::sent { trace(args[0]->size); }";
    let (tree, _) = world.parse(SourceKind::Script, "test.d", script);
    let trees = [tree];
    let (first, sound) = world.with(|cx| {
        let mut sink = Sink::default();
        let checked = check::check(&trees, cx, &mut sink);
        assert!(sink.is_empty());
        let text = check::dump::dump(&checked, cx.types);
        (checked, text)
    });
    assert_eq!(first.clauses.len(), 3, "{sound}");
    let again = world.with(|cx| {
        let (mut sink, gone) = (Sink::default(), Gone(world.catalog.0.clone()));
        let cx = Context { catalog: &gone, options: cx.options.clone(), ..*cx };
        let seen = Running { record: &first.record, came: &[] };
        let checked = check::check_more(&trees, 1, &seen, &cx, &mut sink);
        assert!(sink.is_empty());
        check::dump::dump(&checked, cx.types)
    });
    assert_eq!(again, sound);
}

#[test]
fn names_of_a_definition_mean_nothing_elsewhere() {
    let other = GOOD.replace("int size", "char before; int size").replace("n * 2", "n * 3");
    for (script, tag) in [
        ("app:v0::sent { trace(((file_t *)0)->size); }", "D_TYPE_ERR"),
        ("app:v0::sent { trace(twice[1]); }", "D_IDENT_UNDEF"),
        ("app:v0::sent { trace(sizeof (struct info)); }", "D_SIZEOF_TYPE"),
        ("app:v0::sent { trace(xlate <info_t *> (args[2])->size); }", "D_TYPE_ERR"),
        ("struct file { int x; }; app:v0::sent { trace(args[2]->x); }", "D_TYPE_MEMBER"),
    ] {
        let uses = script.replace("{ trace", "{ trace(args[0]->size); trace");
        let (_, messages, complaints, _) = checked(&[GOOD, &other], &uses);
        assert!(complaints.len() == 1 && complaints[0].contains(tag), "{script}: {complaints:?}");
        assert_eq!(messages, [""; 0], "{script}");
    }
    // What scripts declare is nothing to a definition, and definitions with the same names have
    // their own.
    let script = "struct file { int x; }; typedef int file_t; int twice; \
                  app:::sent { twice = args[0]->size; trace(args[2]->size); }";
    let (names, messages, complaints, clauses) = checked(&[GOOD, &other], script);
    assert_eq!(names[0], names[1]);
    assert_eq!((messages, complaints, clauses), (vec![], vec![], 2));
}

#[test]
fn a_definition_only_reads() {
    for (what, says) in [
        ("copyout(f, 1, 1)", "call of copyout( )"),
        ("(raise(9), 1)", "call of raise( )"),
        ("f->size++", "assignment"),
        ("--f->size", "assignment"),
        ("(f->size = 1)", "assignment"),
        ("self->x", "variable"),
        ("this->x", "variable"),
        ("x", "no parameter"),
        ("args[0]", "no parameter"),
        ("curthread->pid", "no parameter"),
        ("`jiffies", "symbol of the kernel"),
        ("sizeof (struct vmlinux`task_struct)", "type of another file"),
        ("sizeof (char [f->size++])", "assignment"),
        ("sizeof (struct { char a[system(\"x\")]; })", "call of system( )"),
        ("strtok(\"a\", \"b\")", "call of strtok( )"),
        ("(int)defined(syscall:::entry)", "probe"),
    ] {
        let text = GOOD.replace("twice[f->size]", what);
        let (names, messages, ..) = checked(&[&text], "");
        assert_eq!(names, [[""; 0]], "{what}");
        assert!(messages.len() == 1, "{what}: {messages:?}");
        let message = &messages[0];
        assert!(message.contains(says) && message.contains("\"app of /app0\", line 4"), "{what}: {message}");
    }
    for item in ["int x;", "self int y;", "BEGIN { exit(0); }", "string names[int];"] {
        let (names, messages, ..) = checked(&[&format!("{item}\n{GOOD}")], "");
        assert_eq!((names, messages.len()), (vec![vec![]], 1), "{item}");
    }
}

#[test]
fn a_clause_serves_the_programs_for_which_it_is_right() {
    let other = GOOD.replace("int size", "int length").replace("f->size", "f->length");
    let other = other.replace("size = ", "length = ");
    let bad = GOOD.replace("twice[f->size]", "system(\"x\")");
    let (_, messages, complaints, clauses) =
        checked(&[GOOD, &other, &bad], "app:::sent { trace(args[0]->size); }");
    assert_eq!((complaints, clauses), (vec![], 1));
    assert!(messages.iter().any(|m| m.starts_with("app:v1:f:sent is left out: ")), "{messages:?}");
    assert!(messages.iter().any(|m| m.starts_with("app:v2:f:sent is left out: ")), "{messages:?}");
    let (_, _, complaints, clauses) = checked(&[GOOD, &other], "app:::sent { trace(args[0]->nowhere); }");
    assert_eq!(clauses, 0);
    assert!(complaints.len() == 1 && complaints[0].contains("nowhere"), "{complaints:?}");
}

/// A description may match probes whose definition passes arguments on in different orders.
#[test]
fn raw_arguments_of_each_probe_are_in_the_order_of_its_definition() {
    let text = "provider app { probe turned(int i, int j) : (int j, int i); probe last(int i, int j) : (int j); \
                probe first(int i, int j) : (int i); probe plain(int i, int j); probe also(int i, int j); };";
    let names = ["also", "first", "last", "plain", "turned"];
    for (script, expected) in [
        ("app::: { trace(arg0); }", &["also 0", "first 0", "last 1", "plain 0", "turned 1"][..]),
        ("app::: { trace(arg1); }", &["also 1", "first -", "last -", "plain 1", "turned 0"]),
        ("app:::plain, app::: { trace(arg0); }", &["also 0", "first 0", "last 1", "plain 0", "turned 1"]),
        ("inline int x = arg1; app:::t*, app:::*i* { trace(x); }", &["first -", "plain 1", "turned 0"]),
    ] {
        let (checked, complaints) = World::new(&[text], &names).check(script);
        assert!(complaints.is_empty() && checked.left_out.is_empty(), "{script}: {:?}", checked.left_out);
        let mut found = Vec::new();
        for clause in &checked.clauses {
            let body = format!("{:?}", clause.body);
            let arg = ["0", "1"].into_iter().find(|n| body.contains(&format!("Builtin(Int(Arg({n})))")));
            found.extend(clause.probes.iter().map(|p| format!("{} {}", p.desc.name, arg.unwrap_or("-"))));
        }
        found.sort_unstable();
        assert_eq!(found, expected, "{script}");
    }
}

#[test]
fn a_definition_does_not_take_long() {
    let mut doubling = String::from("inline int a0[int n] = n;\n");
    for n in 1..40 {
        doubling.push_str(&format!("inline int a{n}[int n] = a{}[n] + a{}[n];\n", n - 1, n - 1));
    }
    let stars = format!("typedef char {}p;\n", "*".repeat(60_000));
    let parens = format!("inline int x = {}1{};\n", "(".repeat(30_000), ")".repeat(30_000));
    let nested = format!("{}int a;{}\n", "struct { ".repeat(6_000), " } b;".repeat(6_000));
    let arrays = format!("typedef char big{};\n", "[4294967295]".repeat(5_000));
    let wide = format!("struct w {{ {} }};\n", "long a[9223372036854775807];".repeat(2_000));
    let many: String = (0..1500).map(|n| format!("struct s{n} {{ struct s{} *p; }};\n", n + 1)).collect();
    let forward = "struct a { struct b x; }; struct b { struct a x; };\n".to_owned();
    for (name, text) in [
        ("doubling", doubling),
        ("stars", stars),
        ("parens", parens),
        ("nested", nested),
        ("arrays", arrays),
        ("wide", wide),
        ("many", many),
        ("forward", forward),
    ] {
        let text = format!("{text}{GOOD}");
        let answer = std::thread::spawn(move || {
            checked(&[&text, GOOD], "app:::sent { trace(args[0]->size); }");
        });
        eventually(format_args!("an answer to {name}"), HANG_LIMIT, || answer.is_finished());
        answer.join().unwrap();
    }
}

#[test]
fn the_check_of_many_definitions_can_be_stopped_between_any_two() {
    // Each of them is wrong, so that each that is checked is said to be.
    let texts: Vec<String> =
        (0..300).map(|n| GOOD.replace("int size", &format!("nothing_{n} size"))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let script = "app:::sent { trace(args[0]); }";
    let mut world = World::new(&texts, &["sent"]);
    let (whole, _) = world.check(script);
    assert!(!whole.is_stopped && whole.left_out.len() >= texts.len(), "{}", whole.left_out.len());
    for most in [1, 10, texts.len()] {
        world.questions.set(most);
        let (stopped, _) = world.check(script);
        // More than one question is asked for each definition.
        assert!(stopped.is_stopped && stopped.left_out.len() < most, "{most}: {:?}", stopped.left_out);
    }
}

/// Parts of definitions in any order: whatever they are, there is an answer, and a good definition
/// beside them is used.
#[test]
fn any_text_has_an_answer() {
    const WORDS: [&str; 40] = [
        "typedef",
        "struct",
        "union",
        "enum",
        "file",
        "file_t",
        "info_t",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ",",
        "*",
        "<",
        ">",
        "=",
        "->",
        ".",
        ":",
        "1",
        "0x7fffffffffffffff",
        "-",
        "+",
        "int",
        "char",
        "string",
        "inline",
        "translator",
        "provider",
        "app",
        "probe",
        "sent",
        "f",
        "size",
        "twice",
        "\"x\"",
        "\n#pragma D attributes Stable/Stable/ISA provider app args\n",
    ];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let tokens: Vec<&str> = GOOD.split_inclusive([' ', '\n', ';']).collect();
    for _ in 0..400 {
        let mut all: Vec<&str> = tokens.clone();
        for _ in 0..1 + random(4) {
            let (at, word) = (random(all.len()), WORDS[random(WORDS.len())]);
            match random(4) {
                0 => drop(all.remove(at)),
                1 => all.insert(at, word),
                2 => all[at] = word,
                _ => {
                    let other = random(all.len());
                    all.swap(at, other);
                }
            }
        }
        let text = all.concat();
        let (names, messages, ..) = checked(&[&text, GOOD], "app:v1::sent { trace(args[0]->size); }");
        assert_eq!(names[1], ["info_t *", "short", "userland file_t *"], "{text}");
        assert!(messages.len() <= 2, "{messages:?}");
    }
}
