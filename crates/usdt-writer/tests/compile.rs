//! Headers and objects as compilers, linkers and gdb see them: programs are built with every
//! standard and optimization, run without a tracer, and the notes are read by `readelf`.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

use diagnostics::{Sink, SourceKind, SourceMap};
use syntax::{MacroEnv, ParseMode};
use testing::skipped;
use usdt_writer::{Definitions, Processor, TypesOfSystem, define, header, object};

const DEFINITION: &str = "\
typedef struct req { int id; char *path; } req_t;
typedef unsigned short port_t;
#pragma D attributes Evolving/Evolving/Common provider web provider
provider web {
	probe start(int a, const char *s);
	probe request__done(req_t *R, uint8_t c, int64_t n);
	probe none();
	probe many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l);
	probe kinds(char c, unsigned char uc, short s, port_t us, int i, unsigned u, long l, size_t z,
	    float f, double d, string st, _Bool b);
	probe odd(widget_t w, enum color e);
};
";

/// Each probe is passed once.
const PROGRAM: &str = r#"
#include "web.h"
#include <stdio.h>
#include <stddef.h>
enum color { RED, GREEN };
struct req { int id; char *path; };
static int global = 7;
static void start(int x, const char *s) { WEB_START(x, s); }
int main(int argc, char **argv)
{
	struct req r;
	char buf[4] = "abc";
	int evaluated = argc - 1;
	r.id = 5;
	r.path = buf;
	start(41 + argc, argv[0]);
	WEB_NONE();
	WEB_REQUEST_DONE(&r, (unsigned char)(200 + argc), -(long)argc);
	if (WEB_MANY_ENABLED())
		printf("enabled\n");
	WEB_MANY(argc, argc + 1, global, argc + 3, argc + 4, argc + 5, argc + 6, argc + 7, argc + 8, argc + 9, argc + 10,
	    evaluated++);
	WEB_KINDS((char)(-argc), 200 + argc, -3 * argc, 65535, argc, 4000000000u, -1L * argc, sizeof(r), 1.5f * (float)argc,
	    argc * 2.5, buf, argc == 1);
	if (argc > 5)
		WEB_ODD(global, GREEN);
	printf("%d\n", evaluated);
	return 0;
}
"#;

/// Name of each probe, and the sizes of its arguments.
const SITES: [(&str, &str); 6] = [
    ("kinds", "-1 1 -2 2 -4 4 -8 8 4 8 8 1"),
    ("many", "-4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4"),
    ("none", ""),
    ("odd", "-8 -4"),
    ("request__done", "8 1 -8"),
    ("start", "-4 8"),
];

struct NoTypes;

impl TypesOfSystem for NoTypes {
    fn has(&self, _: &str) -> bool {
        false
    }
}

fn definitions() -> Definitions {
    let (mut map, mut sink, mut all) = (SourceMap::default(), Sink::default(), Definitions::default());
    let file = map.add(SourceKind::Script, "web.d", DEFINITION);
    let tree = syntax::parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &(), &mut sink);
    define(&tree, &map, &NoTypes, &mut all, &mut sink);
    assert!(sink.is_empty(), "{:?}", sink.into_sorted());
    all
}

/// A directory with the header.
struct Dir(testing::dir::Dir);

impl Dir {
    fn new(name: &str, files: &[(&str, &str)]) -> Dir {
        let dir = Dir(testing::dir::Dir::new(&format!("header-{name}")));
        std::fs::write(dir.file("web.h"), header(&definitions(), "web.h")).unwrap();
        for (name, text) in files {
            std::fs::write(dir.file(name), text).unwrap();
        }
        dir
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn run(&self, words: &str) -> Output {
        let mut words = words.split_whitespace();
        let out = Command::new(words.next().unwrap()).args(words).current_dir(&self.0).output();
        out.unwrap()
    }

    fn succeeds(&self, words: &str) -> String {
        let out = self.run(words);
        assert!(out.status.success(), "{words}: {out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// The sites of a file: name, arguments, address of the semaphore.
    fn sites(&self, file: &str) -> Vec<(String, String, u64)> {
        let text = self.succeeds(&format!("readelf -nW {file}"));
        let mut sites: Vec<(String, String, u64)> = Vec::new();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            let Some(name) = line.strip_prefix("Name: ") else { continue };
            let place = lines.next().unwrap();
            let semaphore = place.rsplit("0x").next().unwrap();
            let arguments = lines.next().unwrap().trim_start_matches("Arguments:").trim();
            assert!(!place.contains("Location: 0x0000000000000000"), "{place}");
            assert!(!place.contains("Base: 0x0000000000000000"), "{place}");
            sites.push((name.into(), arguments.into(), u64::from_str_radix(semaphore, 16).unwrap()));
        }
        // The compiler may copy a site.
        sites.sort();
        sites
    }

    /// The sites of [`PROGRAM`] are there, and the program does what it does without them.
    fn is_right(&self, program: &str, how: &str) {
        assert_eq!(self.succeeds(&format!("./{program}")), "1\n", "{how}");
        let sites = self.sites(program);
        let sizes = |text: &str| {
            let all: Vec<&str> = text.split(' ').map(|a| a.split('@').next().unwrap()).collect();
            all.join(" ")
        };
        let mut got: Vec<(&str, String)> = sites.iter().map(|(n, a, _)| (&**n, sizes(a))).collect();
        got.dedup();
        let expected: Vec<(&str, String)> = SITES.iter().map(|(n, a)| (*n, a.to_string())).collect();
        assert_eq!(got, expected, "{how}");
        // A memory operand would need a symbol, which `strip` removes.
        assert!(sites.iter().all(|(_, a, _)| !a.contains('(')), "{how}: {sites:?}");
        let many = sites.iter().find(|(n, ..)| n == "many");
        assert!(many.is_some_and(|(.., semaphore)| *semaphore > 0), "{how}: {sites:?}");
        let text = self.succeeds(&format!("readelf -p .note.dtrace {program}"));
        let copies = 1 + usize::from(how.contains("web.o"));
        assert_eq!(text.matches("provider web {").count(), copies, "{how}: {text}");
    }
}

/// True if there is this compiler.
fn has(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok()
}

const WARNINGS: &str = "-Wall -Wextra -Wpedantic -Werror";

fn every_standard(dir: &Dir, c: &str, cxx: &str, standards: &[&str]) {
    for standard in standards {
        let (compiler, file) = if standard.contains("++") { (cxx, "p.cc") } else { (c, "p.c") };
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            let how = format!("{compiler} -std={standard} {level} {WARNINGS} {file} -o p");
            dir.succeeds(&how);
            dir.is_right("p", &how);
        }
    }
}

#[test]
fn gcc_compiles_the_header_without_a_warning_in_every_standard() {
    if !has("cc") || !has("c++") {
        return skipped!("no C or C++ compiler");
    }
    let dir = Dir::new("gcc", &[("p.c", PROGRAM), ("p.cc", PROGRAM)]);
    every_standard(&dir, "cc", "c++", &["c89", "c99", "gnu17", "c2x", "c++98", "c++11", "c++17", "c++23"]);
}

#[test]
fn clang_compiles_the_header_without_a_warning_in_every_standard() {
    if !has("clang") || !has("clang++") {
        return skipped!("no clang");
    }
    let dir = Dir::new("clang", &[("p.c", PROGRAM), ("p.cc", PROGRAM)]);
    every_standard(&dir, "clang", "clang++", &["c89", "c99", "gnu17", "c2x", "c++98", "c++17"]);
}

#[test]
fn sites_are_complete_however_the_program_is_linked() {
    if !has("cc") {
        return skipped!("no C compiler");
    }
    let dir = Dir::new("linked", &[("p.c", PROGRAM)]);
    for flags in [
        "-O2 -flto",
        "-O2 -flto -flto-partition=max -fPIE -pie",
        "-O2 -static",
        "-O2 -no-pie",
        "-Os -fPIC -fvisibility=hidden",
        "-O2 -ffunction-sections -fdata-sections -Wl,--gc-sections",
        "-O2 -flto -ffunction-sections -Wl,--gc-sections",
        "-O2 -fcf-protection=full -fstack-protector-all -fno-omit-frame-pointer",
        "-O0 -fPIC -fno-omit-frame-pointer -g3",
        "-O2 -fsanitize=undefined",
        "-O2 -s",
    ] {
        let how = format!("cc {WARNINGS} {flags} p.c -o p");
        dir.succeeds(&how);
        dir.is_right("p", &how);
    }
}

#[test]
fn pointers_are_taken_for_integers_without_a_warning() {
    if !has("cc") || !has("c++") {
        return skipped!("no C or C++ compiler");
    }
    let program = "#include \"web.h\"\n\
        int main(int argc, char **argv) { WEB_START(argv, argv[0]); WEB_REQUEST_DONE(0, &argc, argv);\n\
        WEB_ODD(argv, argv); return 0; }\n";
    let dir = Dir::new("pointers", &[("p.c", program), ("p.cc", program)]);
    for compiler in ["cc -std=c89 p.c", "cc -std=c2x -O2 p.c", "c++ -std=c++98 p.cc", "c++ -O2 p.cc"] {
        dir.succeeds(&format!("{compiler} {WARNINGS} -o p"));
        dir.succeeds("./p");
        assert_eq!(names(&dir.sites("p")), ["odd", "request__done", "start"]);
    }
}

/// Names of the sites, in order.
fn names(sites: &[(String, String, u64)]) -> Vec<&str> {
    sites.iter().map(|(name, ..)| &**name).collect()
}

#[test]
fn templates_and_inline_functions_have_their_sites_once_for_each_copy_that_is_linked() {
    if !has("c++") {
        return skipped!("no C++ compiler");
    }
    let shared = r#"
#include "web.h"
template <class T> T twice(T x) { WEB_START((int)x, "template"); return x + x; }
inline int shared(int x) { if (WEB_MANY_ENABLED()) WEB_NONE(); return x; }
int other(int);
struct Whole { int v; Whole(int x) : v(x) { WEB_ODD(v, 1); } };
"#;
    let a = "#include \"a.h\"\n\
        int main() { Whole w(1); return twice(2) + (int)twice(2L) + shared(1) + other(1) - 13; }\n";
    let b = "#include \"a.h\"\nint other(int x) { return twice(x) + shared(x) + Whole(x).v; }\n";
    let dir = Dir::new("templates", &[("a.h", shared), ("a.cc", a), ("b.cc", b)]);
    // Both files have `twice<int>`, `shared` and the constructor; the linker takes one of each.
    dir.succeeds("c++ -O0 -std=c++11 a.cc b.cc -o p");
    assert_eq!(dir.run("./p").status.code(), Some(0));
    assert_eq!(names(&dir.sites("p")), ["none", "odd", "start", "start"]);
    for flags in ["-O2", "-O2 -flto", "-O0 -fPIC"] {
        dir.succeeds(&format!("c++ {flags} -std=c++11 a.cc b.cc -o p"));
        assert_eq!(dir.run("./p").status.code(), Some(0));
        let sites = dir.sites("p");
        assert!(names(&sites).len() >= 4, "{flags}: {sites:?}");
        let semaphores: std::collections::BTreeSet<_> = sites.iter().map(|(n, _, s)| (n, s)).collect();
        assert_eq!(semaphores.len(), 3, "{flags}: one semaphore for each probe: {sites:?}");
    }
}

#[test]
fn gdb_reads_the_probes_and_their_arguments() {
    if !has("cc") || !has("gdb") {
        return skipped!("no C compiler or no gdb");
    }
    let dir = Dir::new("gdb", &[("p.c", PROGRAM)]);
    dir.succeeds("cc -O2 p.c -o p");
    std::fs::write(
        dir.file("commands"),
        "set confirm off\nset debuginfod enabled off\nset startup-with-shell off\ninfo probes stap web\n\
         break -probe-stap web:start\nbreak -probe-stap web:request__done\nbreak -probe-stap web:many\n\
         break -probe-stap web:kinds\nrun\n\
         printf \"start %d %d\\n\", $_probe_argc, $_probe_arg0\ncontinue\n\
         printf \"done %d %d\\n\", $_probe_arg1, $_probe_arg2\ncontinue\n\
         printf \"many %d %d %d %d\\n\", $_probe_argc, $_probe_arg1, $_probe_arg2, $_probe_arg10\ncontinue\n\
         printf \"kinds %d %d %d %d %d\\n\", $_probe_arg0, $_probe_arg1, $_probe_arg2, $_probe_arg3, $_probe_arg4\n\
         printf \"reals %#lx %#lx %d\\n\", $_probe_arg8, $_probe_arg9, $_probe_arg11\n\
         printf \"string %s\\n\", (char *)$_probe_arg10\ncontinue\n",
    )
    .unwrap();
    let text = dir.succeeds("gdb -nx -batch -x commands ./p");
    assert_eq!(text.lines().filter(|l| l.starts_with("stap ") && l.contains(" web ")).count(), 6, "{text}");
    for line in [
        "start 2 42",
        "done 201 -1",
        "many 12 2 7 11",
        "kinds -1 201 -3 65535 1",
        // The bits of 1.5f and 2.5.
        "reals 0x3fc00000 0x4004000000000000 1",
        "string abc",
        // gdb counts itself in the semaphore.
        "enabled",
    ] {
        assert!(text.lines().any(|l| l.trim() == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn a_probe_is_enabled_while_its_semaphore_is_not_0() {
    if !has("cc") {
        return skipped!("no C compiler");
    }
    let program = "#include \"web.h\"\n#include <stdio.h>\n\
        int main(void) { int n, all = 0; for (n = 0; n < 100; n++) {\n\
        if (n == 40) web_start_semaphore++; if (n == 70) web_start_semaphore--;\n\
        if (WEB_START_ENABLED()) all++; if (WEB_NONE_ENABLED()) all += 1000; }\n\
        printf(\"%d\\n\", all); return 0; }\n";
    let dir = Dir::new("enabled", &[("p.c", program)]);
    for flags in ["-O0", "-O3", "-O2 -flto -fwhole-program", "-O2 -static"] {
        dir.succeeds(&format!("cc {flags} p.c -o p"));
        assert_eq!(dir.succeeds("./p"), "30\n", "{flags}");
    }
}

#[test]
fn the_object_links_with_the_header_and_with_one_that_only_declares() {
    if !has("cc") {
        return skipped!("no C compiler");
    }
    // As the header of another `dtrace`.
    let declares = "extern unsigned short web_start_semaphore __attribute__((unused, section(\".probes\")));\n\
        int main(void) { return web_start_semaphore; }\n";
    let library = "#include \"web.h\"\nint f(int x) { WEB_START(x, \"\"); return x; }\n";
    let files = [("p.c", PROGRAM), ("declares.c", declares), ("library.c", library)];
    let dir = Dir::new("object", &files);
    std::fs::write(dir.file("web.o"), object(&definitions(), Processor::NATIVE).unwrap()).unwrap();
    for flags in ["-O2", "-O2 -flto", "-O2 -static", "-O2 -fPIE -pie"] {
        // A program without the object's semaphores does not link.
        assert!(!dir.run(&format!("cc {flags} declares.c -o d")).status.success());
        dir.succeeds(&format!("cc {flags} -Wl,--fatal-warnings declares.c web.o -o d"));
        dir.succeeds("./d");
        for order in ["p.c web.o", "web.o p.c"] {
            let how = format!("cc {flags} -Wl,--fatal-warnings {order} -o p");
            dir.succeeds(&how);
            assert_eq!(dir.succeeds("./p"), "1\n", "{how}");
            dir.is_right("p", &how);
        }
    }
    dir.succeeds("cc -O2 -fPIC -shared library.c web.o -o library.so");
    let symbols = dir.succeeds("readelf -W --dyn-syms library.so");
    assert!(!symbols.contains("semaphore"), "the semaphores are hidden: {symbols}");
    let stack = dir.succeeds("readelf -lW d");
    assert!(stack.lines().any(|l| l.contains("GNU_STACK") && l.contains("RW ")), "{stack}");
    let notes = dir.succeeds("readelf -nW web.o");
    assert!(notes.contains("IBT, SHSTK") || cfg!(not(target_arch = "x86_64")), "{notes}");
    let description = dir.succeeds("readelf -p .note.dtrace web.o");
    assert!(description.contains("provider web { probe start(int a, const char *s);"), "{description}");
}

#[test]
fn two_versions_of_a_definition_are_two_notes() {
    if !has("cc") {
        return skipped!("no C compiler");
    }
    let a = "#include \"web.h\"\nint b(void);\nint main(void) { WEB_NONE(); return b(); }\n";
    let b = "#include \"changed.h\"\nint b(void) { WEB_NONE(); return 0; }\n";
    let dir = Dir::new("versions", &[("a.c", a), ("b.c", b)]);
    let first = std::fs::read_to_string(dir.file("web.h")).unwrap();
    let changed = DEFINITION.replace("probe none();", "probe none(); probe added(int n);");
    let (mut map, mut sink, mut all) = (SourceMap::default(), Sink::default(), Definitions::default());
    let file = map.add(SourceKind::Script, "web.d", changed);
    let tree = syntax::parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &(), &mut sink);
    define(&tree, &map, &NoTypes, &mut all, &mut sink);
    let second = header(&all, "changed.h");
    assert_ne!(first, second);
    std::fs::write(dir.file("changed.h"), second).unwrap();
    dir.succeeds("cc -O2 a.c b.c -o p");
    dir.succeeds("./p");
    assert_eq!(names(&dir.sites("p")), ["none", "none"]);
    let text = dir.succeeds("readelf -p .note.dtrace p");
    assert_eq!(text.matches("provider web {").count(), 2, "{text}");
}

#[test]
fn the_sites_of_arm64_assemble() {
    let compiler = "aarch64-linux-gnu-gcc";
    if !has(compiler) {
        return skipped!("no compiler for arm64");
    }
    let program = PROGRAM.replace("#include <stdio.h>", "int printf(const char *, ...);");
    let dir = Dir::new("arm64", &[("p.c", &program)]);
    for level in ["-O0", "-O2", "-O2 -fPIC"] {
        dir.succeeds(&format!("{compiler} {level} {WARNINGS} -ffreestanding -c p.c -o p.o"));
        let text = dir.succeeds("readelf -nW p.o");
        assert!(text.matches("Provider: web").count() >= SITES.len(), "{level}: {text}");
        assert!(text.contains("Arguments: 8@x") && !text.contains("@w"), "{level}: {text}");
    }
}

/// The header has no site for a machine without a format, and its macros are statements all the
/// same.
#[test]
fn a_machine_without_sites_has_empty_macros() {
    if !has("cc") {
        return skipped!("no C compiler");
    }
    let program = PROGRAM.replace("#include <stdio.h>", "int printf(const char *, ...);");
    let dir = Dir::new("empty", &[("p.c", &program)]);
    // Each argument is evaluated once, as with sites.
    dir.succeeds("cc -O2 -Wall -Wextra -Wpedantic -Werror -U__x86_64__ -U__aarch64__ p.c -o p");
    assert_eq!(dir.succeeds("./p"), "1\n");
    assert_eq!(dir.sites("p"), []);
}
