//! Probes of D libraries: what is wrong in a library, and which probes exist.
#![allow(clippy::unwrap_used, clippy::panic)]

use dtrace::interpreter::GivenProbes;
use dtrace::options::Options;
use dtrace::{Field, Macros, Program, Provider, Source};

/// A directory of libraries, each a name and a text.
struct Directory(testing::dir::Dir);

impl Directory {
    fn new(name: &str, files: &[(&str, &str)]) -> Directory {
        let path = testing::dir::Dir::new(&format!("derived-{name}"));
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Directory(path)
    }
}

fn compile(name: &str, files: &[(&str, &str)], script: &str) -> Result<Program, String> {
    compile_by(Options::default(), name, files, script)
}

fn compile_by(options: Options, name: &str, files: &[(&str, &str)], script: &str) -> Result<Program, String> {
    compile_in(&Directory::new(name, files), options, script)
}

fn compile_in(directory: &Directory, mut options: Options, script: &str) -> Result<Program, String> {
    options.set("libdir", Some(&directory.0.display().to_string())).unwrap();
    let base = GivenProbes::new("base").probe("vmlinux", "f", "one", &["int"]);
    let base = base.probe("vmlinux", "f", "two", &["string"]);
    let providers: Vec<Box<dyn Provider>> = vec![Box::new(base)];
    let source = Source::Specifier(Field::Name, script.into());
    dtrace::compile_with(&dtrace::System::live(), &[source], &Macros::default(), &mut options, providers)
        .map_err(|e| e.to_string().replace(&format!("{}/", directory.0.display()), ""))
}

/// The message about a library.
#[track_caller]
fn refused(name: &str, library: &str, expected: &[&str]) {
    let message = compile(name, &[("mine.d", library)], "BEGIN").err().unwrap_or_default();
    for part in expected {
        assert!(message.contains(part), "{name}: {message}");
    }
}

#[test]
fn errors_in_a_library_are_reported_with_file_and_line() {
    refused(
        "member",
        "provider a { probe p(int); };\nbase:::one { p(curthread->no_such_member); }\n",
        &["mine.d\", line 2", "no_such_member"],
    );
    refused(
        "provider",
        "provider a { probe p(); };\nbose:::one { p(); }\n",
        &["mine.d\", line 2", "there is no provider bose", "did you mean `base`"],
    );
    refused("unnamed", "provider a { probe p(); };\n:::one { p(); }\n", &["must name the provider"]);
    refused(
        "loop",
        "provider a { probe p(); probe q(); };\na:::p { q(); }\na:::q { p(); }\nbase:::one { p(); }\n",
        &["mine.d\", line", "may not be derived from itself"],
    );
    for (name, action) in
        [("trace", "trace(1)"), ("count", "@ = count()"), ("speculate", "speculate(1)"), ("stop", "stop()")]
    {
        let library = format!("provider a {{ probe p(); }};\nbase:::one {{ {action}; p(); }}\n");
        refused(name, &library, &["mine.d\", line 2", "may only assign its own variables, test and fire"]);
    }
    refused(
        "count",
        "provider a { probe p(int); };\nbase:::one { p(1, 2); }\n",
        &["p( ) prototype mismatch"],
    );
    refused(
        "type",
        "provider a { probe p(int); };\nbase:::one { p(\"x\"); }\n",
        &["argument #1 is incompatible"],
    );
    refused("twice", "provider a { probe p(); probe p(); };\nbase:::one { p(); }\n", &["declared already"]);
}

#[test]
fn types_of_parameters_that_are_not_known_are_errors_of_the_library_where_a_script_names_the_probe() {
    let library = "typedef struct out { int o_n; } out_t;\n\
                   provider a {\n\
                   probe fine(int N);\n\
                   probe native(struct nosuch *S);\n\
                   probe missing(struct task_struct *T : out_t *T);\n\
                   probe name(struct task_struct *T : nosuchinfo_t *T);\n\
                   };\n\
                   base:::one { fine(1); native((struct nosuch *)curthread); missing(curthread); name(curthread); }\n";
    let files = [("mine.d", library)];
    let message = |script: &str| compile("types", &files, script).err().unwrap_or_default();
    assert_eq!(message("a:::fine { trace(arg0); }"), "");
    assert_eq!(message("base:::one"), "");
    for (script, line, what) in [
        ("a:::native", 4, "no struct nosuch definition is available"),
        ("a:::native { trace(args[0]->x); }", 4, "no struct nosuch definition is available"),
        ("a:::missing { trace(args[0]->o_n); }", 5, "translator for args[0] of probe missing"),
        ("a:::name { trace(1); }", 6, "nosuchinfo_t"),
        ("a:::", 4, "no struct nosuch definition is available"),
    ] {
        let message = message(script);
        assert!(
            message.contains(&format!("mine.d\", line {line}")) && message.contains(what),
            "{script}: {message}"
        );
        assert!(!message.contains("in action list"), "{script}: {message}");
    }
}

#[test]
fn two_files_may_not_declare_one_provider() {
    let text = "provider a { probe p(); };\nbase:::one { p(); }\n";
    let message = compile("files", &[("x.d", text), ("y.d", text)], "a:::p").err().unwrap();
    assert!(message.contains("y.d\", line 1: provider a is declared by two libraries"), "{message}");
}

#[test]
fn a_file_that_declares_a_provider_of_the_system_is_the_one_that_is_refused() {
    let text = "provider proc { probe p(); };\nbase:::one { p(); }\n";
    let message = compile("proc", &[("mine.d", text)], "proc:::").err().unwrap();
    assert!(message.contains("mine.d\", line 1: provider proc is declared by two libraries"), "{message}");
}

#[test]
fn a_library_whose_probes_have_too_many_bases_is_refused() {
    use std::fmt::Write;
    // Each probe fires the next one twice.
    let mut text = String::from("provider a {");
    (0..60).for_each(|n| write!(text, "probe p{n}();").unwrap());
    text.push_str("};\nbase:::one { p0(); }\n");
    (1..60).for_each(|n| writeln!(text, "a:::p{0} {{ p{n}(); p{n}(); }}", n - 1).unwrap());
    refused("bases", &text, &["mine.d\", line 12: probe description a:::p9 has more than 256 bases"]);
}

#[test]
fn a_probe_without_a_base_is_absent_with_the_reason() {
    let library = "provider a { probe p(); probe q(); };\nbase:::three { p(); }\n\
                   base:::one /!defined(base:::two)/ { q(); }\n";
    let files = [("mine.d", library)];
    let message = |script: &str| compile("absent", &files, script).err().unwrap();
    assert!(message("a:::p").contains("this kernel has no base:::three"), "{}", message("a:::p"));
    assert!(message("a:::q").contains("no clause for it that fits this kernel"), "{}", message("a:::q"));
}

#[test]
fn a_probe_without_a_base_is_no_error_where_a_description_need_not_match() {
    let files = [(
        "mine.d",
        "provider a { probe p(int); probe q(); };\nbase:::three { p(1); }\nbase:::one { q(); }\n",
    )];
    let compiled = |script: &str| {
        let mut options = Options::default();
        options.set("zdefs", None).unwrap();
        compile_by(options, "zdefs", &files, script)
    };
    for script in
        ["a:::p { trace(args[0]); }", "a:::p, a:::q { trace(1); }", "a:::p { x = arg0; } a:::q { trace(2); }"]
    {
        let program = compiled(script).unwrap();
        assert_eq!(program.matched(0), script.matches("q").count(), "{script}");
    }
    assert!(compiled("a:::r { trace(1); }").is_ok());
}

#[test]
fn a_library_can_ask_which_arguments_a_probe_has() {
    let library = |condition: &str| {
        format!("provider a {{ probe p(int); }};\nbase:::one /{condition}/ {{ p(args[0]); }}\n")
    };
    let absent = |condition: &str| {
        let files = [("mine.d", &*library(condition))];
        compile("arguments", &files, "a:::p").err().unwrap_or_default()
    };
    assert_eq!(absent("defined(base:::one, args[0])"), "");
    assert_eq!(absent("!defined(base:::one, args[1]) && !defined(base:::three, args[0])"), "");
    assert_eq!(absent("defined(base:::one, args[1]) ? args[1] : 1"), "");
    assert!(absent("defined(base:::one, args[1])").contains("no clause for it that fits this kernel"));
    assert!(absent("!defined(base:::one, args[0])").contains("no clause for it that fits this kernel"));
    for wrong in ["x", "args", "args[x]", "args[0"] {
        let message = absent(&format!("defined(base:::one, {wrong})"));
        assert!(message.contains("syntax error near"), "{wrong}: {message}");
    }
}

#[test]
fn modules_and_functions_of_scripts_for_other_systems_match() {
    let files = [("mine.d", "provider a { probe p(); };\nbase:::one { p(); }\n")];
    for script in ["a:::p", "a:genunix::p", "a::function:p", "a:::", ":::p", "p"] {
        assert_eq!(compile("loose", &files, script).unwrap().matched(0), 1, "{script}");
    }
    assert!(compile("loose", &files, ":genunix::p").is_err());
}

#[test]
fn a_library_declares_variables_of_its_own() {
    let library = "struct _pair { int a; int b; };\ntypedef struct pair { int sum; } pair_t;\n\
                   translator pair_t < struct _pair *P > { sum = P->a + P->b; };\n\
                   provider a { probe p(struct _pair *P : pair_t *P); };\n\
                   this struct _pair pair;\nself struct _pair last;\n\
                   base:::one /self->last.a != 5/ { this->pair.a = args[0]; this->pair.b = 2; p(&this->pair); \
                   self->last.a = args[0]; }\n";
    let files = [("mine.d", library)];
    for script in [
        "a:::p { trace(args[0]->sum); }",
        "a:::p { this->pair = 5; self->last = \"other\"; trace(args[0]->sum); } a:::p /this->pair/ { trace(1); }",
    ] {
        assert_eq!(compile("declared", &files, script).err(), None, "{script}");
    }
    // They are none of the script's.
    let message = compile("private", &files, "a:::p { trace(this->pair.a); }").err().unwrap_or_default();
    assert!(message.contains("this->pair has not yet been declared"), "{message}");
}

#[test]
fn globals_that_a_file_with_a_provider_declares_are_its_own() {
    let one = "provider a { probe p(int); };\nint g;\nbase:::one { g = args[0]; p(g); }\n";
    let two =
        "provider b { probe q(int); };\nstring g[int];\nbase:::one { g[1] = \"x\"; q(strlen(g[1])); }\n";
    let files = [("x.d", one), ("y.d", two)];
    let compiled = |script: &str| compile("globals", &files, script);
    assert_eq!(compiled("a:::p { trace(arg0); } b:::q { trace(args[0]); }").err(), None);
    // A program may have a variable or an inline of that name.
    assert_eq!(compiled("inline int g = 2; a:::p, b:::q { trace(arg0 + g); }").err(), None);
    assert_eq!(compiled("a:::p { g = \"text\"; trace(g); } b:::q { trace(arg0); }").err(), None);
    let message = compiled("a:::p { trace(g); }").err().unwrap_or_default();
    assert!(message.contains("failed to resolve g"), "{message}");
}

#[test]
fn the_address_of_a_string_argument_is_an_error_and_not_0() {
    let library = "provider a { probe p(int, string); };\nbase:::two { p(1, args[0]); }\n";
    let message = |script: &str| compile("string", &[("mine.d", library)], script).err().unwrap_or_default();
    assert_eq!(message("a:::p { trace(arg0); trace(args[1]); trace(strlen(args[1])); }"), "");
    let text = message("a:::p { trace(arg1); }");
    assert!(text.contains("arg1 of a:vmlinux::p is a string: use args[ ]"), "{text}");
}

#[test]
fn a_conflict_of_providers_is_reported_with_the_file_whatever_the_program_uses() {
    let text = "\nprovider proc { probe mine(); };\nbase:::one { mine(); }\n";
    for script in ["BEGIN", "proc:::mine", "proc:::create"] {
        let message = compile("conflict", &[("mine.d", text)], script).err().unwrap_or_default();
        assert!(
            message.contains("mine.d\", line 2: provider proc is declared by two libraries"),
            "{message}"
        );
    }
    let text = "\nprovider syscall { probe mine(); };\nbase:::one { mine(); }\n";
    let message = compile("system", &[("mine.d", text)], "BEGIN").err().unwrap_or_default();
    assert!(message.contains("mine.d\", line 2: provider syscall is one of the system"), "{message}");
}

#[test]
fn a_library_that_is_no_regular_file_is_an_error_and_does_not_block() {
    let files = Directory::new("fifo", &[("mine.d", "inline int mine = 1;")]);
    let path = std::ffi::CString::new(files.0.join("x.d").display().to_string()).unwrap();
    // SAFETY: a path that lives across the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let message = compile_in(&files, Options::default(), "BEGIN { trace(mine); }").err().unwrap();
    assert!(message.contains("x.d': not a regular file"), "{message}");
}
