//! Types of programs: the test's own, compiled with debug information, so every value is known.

use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::tool::{Output, dtrace, finish, printed, start};

tests! {
    arguments_and_results_have_the_types_of_the_program
    names_are_scoped_to_the_file_that_has_them
    a_truth_value_has_one_byte_of_its_register
    one_clause_serves_two_builds_of_a_program
    several_processes_of_one_file_have_its_types
    programs_that_children_execute_have_their_types
    objects_of_cpp_and_rust_have_their_members
    types_that_a_program_has_as_btf_are_read
    types_that_a_program_has_as_ctf_are_read
    a_pointer_that_leads_nowhere_is_a_fault
    what_has_no_types_is_named_with_its_tag
}

const PROGRAM: &str = r#"
#include <stdio.h>
#define PLAIN __attribute__((noinline, noclone))
enum state { CLOSED, OPEN = 5 };
struct addr { unsigned short port; unsigned flag : 3, mode : 5; };
#ifdef SECOND
struct conn { long id; struct addr addr; enum state state; union { long l; char c[8]; } u; struct conn *next; int hist[4]; const char *name; };
#else
struct conn { const char *name; struct conn *next; enum state state; struct addr addr; int hist[4]; union { long l; char c[8]; } u; long id; };
#endif
typedef struct conn conn_t;
struct pair { long a, b; };
int counter = 7;
conn_t *head;
PLAIN long take(conn_t *c, int n, double d, unsigned char b, struct pair p)
{
    __asm__ volatile("" ::: "memory");
    counter++;
    return c->addr.port + n + (int)d + b + p.a;
}
PLAIN conn_t *find(const char *name) { __asm__ volatile("" ::"r"(name) : "memory"); return head; }
PLAIN double half(double d) { return d / 2; }
int main(int argc, char **argv)
{
    conn_t b = { .name = "second", .state = OPEN, .addr = { 443, 2, 17 }, .hist = { 5, 6, 7, 8 }, .u.c = "unionx", .id = 2 };
    conn_t a = { .name = "first", .next = &b, .addr = { 80, 5, 9 }, .hist = { 1, 2, 3, 4 }, .u.l = 99, .id = 1 };
    head = &a;
    if (argc > 1)
        getchar();
    for (int i = 0; i < 3; i++)
        take(find("x"), i, half(3), 200, (struct pair){ 1000, 1 });
    return 0;
}
"#;

const CPP: &str = r#"
namespace shop {
struct base { int id; virtual ~base() {} };
class item : public base { public: long price; static int all; };
int item::all = 3;
__attribute__((noinline)) long cost(item &i, const char *name) { __asm__ volatile("" ::: "memory"); return i.price + name[0]; }
}
int main() { shop::item i; i.price = 5; i.id = 42; return (int)shop::cost(i, "x") == 125 ? 0 : 1; }
"#;

const RUST: &str = r#"
pub struct Point { x: u32, y: i64 }
pub enum Shape { Empty, Dot(Point), Line { from: Point, to: Point } }
#[inline(never)]
#[unsafe(no_mangle)]
pub fn area(shape: &Shape, scale: u16) -> i64 {
    match shape { Shape::Empty => 0, Shape::Dot(p) => p.y + scale as i64, Shape::Line { from, to } => to.y - from.y + to.x as i64 }
}
fn main() {
    let p = |x, y| Point { x, y };
    let all = [Shape::Line { from: p(1, 2), to: p(3, 14) }, Shape::Dot(p(5, 6)), Shape::Empty];
    println!("{}", all.iter().map(|s| area(s, 7)).sum::<i64>());
}
"#;

/// A directory with programs, which is removed at the end.
pub(crate) struct Dir(testing::dir::Dir);

impl Dir {
    /// `Err`: the test is skipped.
    pub(crate) fn new(name: &str) -> Result<Dir, Verdict> {
        if let Some(skip) = lacks(Facility::UprobePerf) {
            return Err(skip);
        }
        let dir = testing::dir::Dir::new(&format!("types-{name}"));
        for (name, text) in [("p.c", PROGRAM), ("p.cc", CPP), ("p.rs", RUST)] {
            std::fs::write(dir.join(name), text).unwrap();
        }
        Ok(Dir(dir))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Result<(), Verdict> {
        match Command::new(words[0]).args(&words[1..]).current_dir(&self.0).output() {
            Ok(o) if o.status.success() => Ok(()),
            Ok(o) => panic!("{words:?}: {o:?}"),
            Err(e) if matches!(words[0], "cc" | "c++") => {
                Err(Skip(format!("no C compiler: {}: {e}", words[0])))
            }
            Err(e) => Err(Skip(format!("no {}: {e}", words[0]))),
        }
    }

    /// A program of C.
    pub(crate) fn c(name: &str, words: &[&str]) -> Result<(Dir, String), Verdict> {
        let dir = Dir::new(name)?;
        dir.run(&[&["cc", "-g", "-o", "program", "p.c"], words].concat())?;
        let program = dir.path("program");
        Ok((dir, program))
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.0.join(file).display().to_string()
    }
}

/// What was built, or the end of a test that is skipped.
macro_rules! built {
    ($built:expr) => {
        match $built {
            Ok(program) => program,
            Err(verdict) => return verdict,
        }
    };
}
pub(crate) use built;

pub(crate) fn lines(o: &Output) -> Vec<&str> {
    o.out.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// Names, a chain of pointers, bit-fields, an array, an enumerator, a union, arguments behind ones
/// of other classes.
pub(crate) const MEMBERS: &str = "pid$target:a.out:take:entry { \
     printf(\"%s %s %d %d %d %d %d %s %d %d\\n\", stringof(args[0]->name), stringof(args[0]->next->name), \
         args[0]->next->addr.port, args[0]->addr.flag, args[0]->addr.mode, args[0]->hist[2], \
         args[0]->next->state == OPEN, stringof(args[0]->next->u.c), args[1], args[3]); }";

pub(crate) const EXPECTED: [&str; 3] = [
    "first second 443 5 9 3 1 unionx 0 200",
    "first second 443 5 9 3 1 unionx 1 200",
    "first second 443 5 9 3 1 unionx 2 200",
];

fn arguments_and_results_have_the_types_of_the_program() -> Verdict {
    for level in ["-O0", "-O2"] {
        let (_dir, program) = built!(Dir::c("args", &[level]));
        let o = dtrace(&["-qc", &program, "-n", MEMBERS]).code(0);
        assert_eq!(lines(&o), EXPECTED, "{level}: {o:?}");
        let script = "pid$target:a.out:take:return { @[args[1]] = count(); } \
                      pid$target:a.out:find:return { this->c = args[1]; @n[this->c->next->id] = sum(args[1]->id); }";
        let o = dtrace(&["-qc", &program, "-n", script]).code(0);
        assert_eq!((o.value_of("1281"), o.value_of("1283"), o.value_of("2")), (1, 1, 3), "{level}: {o:?}");
    }
    let (_dir, program) = built!(Dir::c("list", &["-O2"]));
    let probes = "pid$target:a.out:take:entry, pid$target:a.out:find:return";
    let o = dtrace(&["-lvn", probes, "-c", &program]).code(0);
    let types: Vec<&str> = lines(&o).into_iter().filter(|line| line.starts_with("args[")).collect();
    let expected = [
        "args[0]: userland conn_t *",
        "args[1]: int",
        "args[2]: double",
        "args[3]: unsigned char",
        "args[4]: struct pair",
        "args[0]: uint64_t",
        "args[1]: userland conn_t *",
    ];
    assert_eq!(types, expected, "{o:?}");
    Pass
}

fn names_are_scoped_to_the_file_that_has_them() -> Verdict {
    let (_dir, program) = built!(Dir::c("names", &["-O2"]));
    let script = "pid$target:a.out:take:entry { @a[((struct a.out`conn *)arg0)->next->id, \
         ((program`conn_t *)arg0)->addr.port, sizeof (struct pid`a.out`conn), a.out`head->id, *&a.out`counter] = count(); \
         @b[offsetof(struct a.out`conn, next)] = count(); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let all: Vec<Vec<&str>> = lines(&o).iter().map(|line| line.split_whitespace().collect()).collect();
    let row = |n| vec!["2", "80", "56", "1", n, "1"];
    assert_eq!(all, [row("7"), row("8"), row("9"), vec!["8", "3"]], "{o:?}");
    // Outside of clauses of its probes, a name says which process it means.
    let script =
        "BEGIN { printf(\"%d %d\", sizeof (struct pid`a.out`conn), sizeof (pid`a.out`conn_t)); exit(0); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "56 56", "{o:?}");
    // There the memory is not that of the process.
    let o = dtrace(&["-qc", &program, "-n", "BEGIN { trace(pid`a.out`counter); }"]).code(1);
    assert!(o.err.contains("a variable of a process is read in clauses of its own probes"), "{o:?}");
    let o = dtrace(&["-qc", &program, "-n", "BEGIN { trace(sizeof (struct a.out`conn)); }"]).code(1);
    assert!(o.err.contains("failed to resolve type struct a.out`conn: Unknown type name"), "{o:?}");
    Pass
}

fn a_truth_value_has_one_byte_of_its_register() -> Verdict {
    const FLAGS: &str = "#include <stdbool.h>\n\
        __attribute__((noinline, noclone)) void flag(bool b) { __asm__ volatile(\"\" :: \"r\"(b) : \"memory\"); }\n\
        int main(void) { void (*call)(long) = (void (*)(long))flag; __asm__(\"\" : \"+r\"(call)); \
            for (long n = 0; n < 10; n++) call(n % 5 == 0 | 0x5500 * n); return 0; }\n";
    let dir = built!(Dir::new("flags"));
    std::fs::write(dir.0.join("flags.c"), FLAGS).unwrap();
    built!(dir.run(&["cc", "-g", "-O2", "-o", "flags", "flags.c"]));
    let script = "pid$target:a.out:flag:entry { @[args[0]] = count(); }";
    let o = dtrace(&["-qc", &dir.path("flags"), "-n", script]).code(0);
    assert_eq!((o.value_of("0"), o.value_of("1")), (8, 2), "{o:?}");
    Pass
}

/// A process that waits for the end of its input.
fn waiting(program: &str) -> Child {
    Command::new(program).arg("wait").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

fn one_clause_serves_two_builds_of_a_program() -> Verdict {
    let (dir, program) = built!(Dir::c("builds", &["-O2"]));
    built!(dir.run(&["cc", "-g", "-O1", "-DSECOND", "-o", "second", "p.c"]));
    let second = dir.path("second");
    let mut all = [waiting(&program), waiting(&second), waiting(&program)];
    // The layouts differ, and the addresses of the variable.
    let script = "pid$1:a.out:take:entry, pid$2:a.out:take:entry, pid$3:a.out:take:entry { \
         @[stringof(args[0]->next->name), ((struct a.out`conn *)arg0)->addr.port, a.out`head->u.l, args[0]->hist[3], \
         pid] = count(); } BEGIN { printf(\"ready\\n\"); } END { printa(\"%s %d %d %d %d %@d\\n\", @); }";
    let pids = all.each_ref().map(|process| process.id().to_string());
    let mut child = start(&["-qn", script, &pids[0], &pids[1], &pids[2]]);
    printed(&mut child);
    for process in &mut all {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    crate::tool::signal(&child, libc::SIGINT);
    let o = finish(child).code(0);
    let mut rows: Vec<String> = lines(&o).into_iter().filter(|l| *l != "ready").map(String::from).collect();
    let mut expected: Vec<String> = pids.iter().map(|pid| format!("second 80 99 4 {pid} 3")).collect();
    rows.sort();
    expected.sort();
    assert_eq!(rows, expected, "{o:?}");
    Pass
}

fn several_processes_of_one_file_have_its_types() -> Verdict {
    let (dir, program) = built!(Dir::c("several", &["-O2"]));
    // A probe is of all files of one name.
    std::fs::create_dir(dir.path("other")).unwrap();
    built!(dir.run(&["cc", "-g", "-O1", "-DSECOND", "-o", "other/program", "p.c"]));
    let mut all = [waiting(&program), waiting(&program), waiting(&dir.path("other/program"))];
    let pids = all.each_ref().map(|process| process.id().to_string());
    let [one, two, other] = &pids;
    let (same, different) = (format!("-xprocesses={one},{two}"), format!("-xprocesses={one},{other}"));
    for (processes, clause, text) in [
        (&different, "trace(args[1]);", "2 files have this function, each with types of its own"),
        (&different, "trace(((struct a.out`conn *)arg0)->id);", "run several files \"a.out\""),
        (&same, "trace(((struct a.out`con *)arg0)->id);", "failed to resolve type struct a.out`con"),
    ] {
        let o = dtrace(&[processes, "-qn", &format!("pid*:a.out:take:entry {{ {clause} }}")]).code(1);
        assert!(o.err.contains(text), "{clause}: {o:?}");
    }
    let script = "pid*:a.out:take:entry { @[stringof(args[0]->next->name), ((a.out`conn_t *)arg0)->addr.port, \
         args[0]->hist[3], args[3]] = count(); @variables[a.out`counter, a.out`head->next->id, *&a.out`head->id] = count(); } \
         pid*:a.out:take:return { @returns[a.out`counter] = count(); } BEGIN { printf(\"ready\\n\"); } \
         END { printa(\"%s %d %d %d %@d\\n\", @); printa(\"%d %d %d %@d\\n\", @variables); printa(\"%d %@d\\n\", @returns); }";
    let mut child = start(&[&same, "-qn", script]);
    printed(&mut child);
    for process in &mut all {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    crate::tool::signal(&child, libc::SIGINT);
    let o = finish(child).code(0);
    let rows: Vec<&str> = lines(&o).into_iter().filter(|l| *l != "ready").collect();
    // Each process has the program at another address.
    let expected = ["second 80 4 200 6", "7 2 1 2", "8 2 1 2", "9 2 1 2", "8 2", "9 2", "10 2"];
    assert_eq!(rows, expected, "{o:?}");
    Pass
}

fn programs_that_children_execute_have_their_types() -> Verdict {
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let (dir, program) = built!(Dir::c("children", &["-O2"]));
    std::fs::create_dir(dir.path("other")).unwrap();
    built!(dir.run(&["cc", "-g", "-O1", "-DSECOND", "-o", "other/program", "p.c"]));
    // The probes of both builds have the same names.
    let other = dir.path("other/program");
    let runs = dir.path("runs.sh");
    std::fs::write(&runs, format!("{program}\n{other}\n{program}\n")).unwrap();
    let command = format!("/bin/sh {runs}");
    let script = "PROVIDER:program:take:entry { @[stringof(args[0]->name), args[0]->id, args[0]->addr.port, args[1]] = count(); } \
                  PROVIDER:program:find:return { @found[args[1]->next->id] = count(); }";
    for (provider, follow) in [("pid$target", "exec"), ("pid$target", "all"), ("pid*", "exec")] {
        let (script, follow) = (script.replace("PROVIDER", provider), format!("follow={follow}"));
        let o = dtrace(&["-Zqx", &follow, "-c", &command, "-n", &script]).code(0);
        let words = |line: &&str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut rows: Vec<String> = lines(&o).iter().map(words).collect();
        rows.sort();
        let expected = ["2 9", "first 1 80 0 3", "first 1 80 1 3", "first 1 80 2 3"];
        assert_eq!((&rows[..], &*o.err), (&expected.map(String::from)[..], ""), "{provider} {follow}");
    }
    Pass
}

fn objects_of_cpp_and_rust_have_their_members() -> Verdict {
    let dir = built!(Dir::new("other"));
    built!(dir.run(&["c++", "-g", "-O1", "-o", "cpp", "p.cc"]));
    let script = "pid$target:a.out:shop*cost*:entry { printf(\"%d %d %s %d %d\", args[0]->price, args[0]->id, \
         stringof(args[1]), ((struct a.out`shop::item *)arg0)->price, a.out`shop::item::all); }";
    let o = dtrace(&["-qc", &dir.path("cpp"), "-n", script]).code(0);
    assert_eq!(o.out.trim(), "5 42 x 5 3", "{o:?}");
    built!(dir.run(&["rustc", "--edition=2024", "-g", "-C", "opt-level=1", "-o", "rust", "p.rs"]));
    let script = "pid$target:a.out:area:entry { printf(\"%d %d %d\\n\", args[0]->Line.to.y, args[0]->Dot.__0.x, args[1]); } \
                  pid$target:a.out:area:return { printf(\"%d\\n\", args[1]); }";
    let o = dtrace(&["-qc", &dir.path("rust"), "-n", script]).code(0);
    // The program prints the sum.
    let all = lines(&o).into_iter().filter(|line| *line != "28");
    let words: Vec<Vec<&str>> = all.map(|line| line.split(' ').collect()).collect();
    // The members of the variant that it is.
    assert_eq!((words[0][0], words[2][1], words[4][2]), ("14", "5", "7"), "{o:?}");
    assert_eq!([words[1][0], words[3][0], words[5][0]], ["15", "13", "0"], "{o:?}");
    Pass
}

fn types_that_a_program_has_as_btf_are_read() -> Verdict {
    let dir = built!(Dir::new("btf"));
    let words = ["-gbtf", "-O2", "-o", "program", "p.c"];
    if !Command::new("cc").args(words).current_dir(&dir.0).output().is_ok_and(|o| o.status.success()) {
        return Skip("no compiler with -gbtf".into());
    }
    let script = "pid$target:a.out:take:entry { printf(\"%s %s %d %d %d %d %d\\n\", stringof(args[0]->name), \
         stringof(args[0]->next->name), ((struct a.out`conn *)arg0)->next->addr.port, args[0]->addr.mode, \
         args[0]->hist[2], args[0]->next->state == OPEN, args[1]); }";
    let o = dtrace(&["-qc", &dir.path("program"), "-n", script]).code(0);
    let expected = [0, 1, 2].map(|n| format!("first second 443 9 3 1 {n}"));
    assert_eq!(lines(&o), expected, "{o:?}");
    Pass
}

fn types_that_a_program_has_as_ctf_are_read() -> Verdict {
    let dir = built!(Dir::new("ctf"));
    let all = "-Wl,--ctf-variables";
    for (strip, words) in
        [(false, &["-rdynamic"][..]), (false, &[all]), (false, &["-no-pie", all]), (true, &["-rdynamic"])]
    {
        let words = [&["-gctf", "-O2", "-o", "program", "p.c"], words].concat();
        if !Command::new("cc").args(&words).current_dir(&dir.0).output().is_ok_and(|o| o.status.success()) {
            return Skip("no compiler with -gctf, or no linker that reads CTF".into());
        }
        if strip {
            // What refers to symbols of the dynamic linker stays.
            built!(dir.run(&["strip", "program"]));
        }
        let o = dtrace(&["-qc", &dir.path("program"), "-n", MEMBERS]).code(0);
        assert_eq!(lines(&o), EXPECTED, "{words:?}: {o:?}");
        let script = "pid$target:a.out:take:entry { @[((struct a.out`conn *)arg0)->next->id, a.out`head->u.l, \
             sizeof (a.out`conn_t), a.out`head->next->state == OPEN, *&a.out`counter] = count(); } \
             pid$target:a.out:find:return { @n[args[1]->next->addr.mode, stringof(a.out`head->name)] = sum(args[1]->id); }";
        let o = dtrace(&["-qc", &dir.path("program"), "-n", script]).code(0);
        let rows: Vec<Vec<&str>> = lines(&o).iter().map(|line| line.split_whitespace().collect()).collect();
        let row = |counter| vec!["2", "99", "56", "1", counter, "1"];
        assert_eq!(rows, [row("7"), row("8"), row("9"), vec!["17", "first", "3"]], "{words:?}: {o:?}");
    }
    // Types are there without an option of the linker, and what has them is not.
    built!(dir.run(&["cc", "-gctf", "-O2", "-o", "program", "p.c"]));
    let script = "pid$target:a.out:take:entry { @[((a.out`conn_t *)arg0)->next->addr.port] = count(); }";
    let o = dtrace(&["-qc", &dir.path("program"), "-n", script]).code(0);
    assert_eq!(lines(&o), ["443                3"], "{o:?}");
    let o = dtrace(&["-qc", &dir.path("program"), "-n", MEMBERS]).code(1);
    assert!(o.err.contains("the debug information has no such function"), "{o:?}");
    Pass
}

fn a_pointer_that_leads_nowhere_is_a_fault() -> Verdict {
    let (_dir, program) = built!(Dir::c("nowhere", &["-O2"]));
    // The last one has no successor. An address of the kernel is none of the process.
    let script = "pid$target:a.out:take:entry { trace(args[0]->next->next->id); } \
         pid$target:a.out:take:entry { trace(((struct a.out`conn *)(uintptr_t)curthread)->id); } \
         ERROR { @[arg4] = count(); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert_eq!(lines(&o), ["1                6"], "{o:?}");
    Pass
}

fn what_has_no_types_is_named_with_its_tag() -> Verdict {
    let (dir, program) = built!(Dir::c("nothing", &["-O2"]));
    for (script, tag, text) in [
        ("trace(args[2]);", "D_ARGS_TYPE", "args[2], of type \"double\", cannot be read"),
        ("trace(args[4].a);", "D_ARGS_TYPE", "args[4], of type \"struct pair\", cannot be read"),
        ("trace(args[9]);", "D_ARGS_IDX", "index 9 is out of range"),
        ("trace(args[0]->nme);", "D_TYPE_MEMBER", "nme is not a member of conn_t"),
        ("trace(((struct a.out`con *)arg0)->id);", "D_TYPE_ERR", "failed to resolve type struct a.out`con"),
        ("trace(((struct nosuch.so`con *)arg0)->id);", "D_TYPE_ERR", "runs no file \"nosuch.so\""),
        ("trace(a.out`conter);", "D_IDENT_UNDEF", "failed to resolve a.out`conter: Unknown symbol name"),
        ("a.out`counter = 1;", "D_OP_WRITE", "can only be applied to a writable variable"),
    ] {
        let script = format!("pid$target:a.out:take:entry {{ {script} }}");
        let o = dtrace(&["-xerrtags", "-qc", &program, "-n", &script]).code(1);
        assert!(o.err.contains(&format!("[{tag}]")) && o.err.contains(text), "{script}: {o:?}");
    }
    built!(dir.run(&["cc", "-o", "plain", "p.c"]));
    let script = "pid$target:a.out:take:entry { trace(a.out`counter); }";
    let o = dtrace(&["-xerrtags", "-qc", &dir.path("plain"), "-n", script]).code(1);
    assert!(o.err.contains("[D_SYM_NOTYPES]") && o.err.contains("it has no debug information"), "{o:?}");
    let o = dtrace(&["-xerrtags", "-qc", &program, "-n", "pid$target:a.out:half:return { trace(args[1]); }"]);
    assert!(o.err.contains("a floating-point number is returned"), "{o:?}");
    let o = dtrace(&["-xerrtags", "-qc", &program, "-n", "pid$target:a.out:take:0 { trace(args[0]); }"]);
    assert!(o.err.contains("at an instruction inside of a function"), "{o:?}");
    Pass
}
