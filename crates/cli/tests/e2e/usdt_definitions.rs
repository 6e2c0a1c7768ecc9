//! The definitions that programs have of their probes: types, translators and stability.

use std::io::Write;
use std::process::Child;

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::tool::{LIMIT, Output, dtrace, finish, printed, signal, start};
use crate::usdt::{Programs, compiled, line, next, wait};

tests! {
    a_list_has_the_types_and_the_stability_of_the_definition
    two_versions_of_a_program_have_their_own_types_and_translators
    a_process_that_starts_later_has_its_own_definition
    a_definition_that_does_more_than_read_is_told_and_left_out
    why_a_definition_is_not_used_is_said_wherever_a_probe_is_matched
    a_list_has_the_probes_of_a_command_however_they_are_described
    a_clause_that_is_wrong_for_one_program_serves_the_others
    what_a_pointer_of_a_probe_points_to_is_written_before_it
    a_definition_may_use_the_types_of_c_that_d_has
    a_type_that_no_record_can_hold_leaves_its_program_out
    raw_arguments_are_in_the_order_of_the_definition
    raw_arguments_of_later_processes_are_in_the_order_of_their_definition
}

/// A definition: PROVIDER, the members of the struct behind its name, a factor.
fn definition(provider: &str, members: &str, factor: u32) -> String {
    format!(
        "#pragma D attributes Evolving/Evolving/Common provider {provider} provider
#pragma D attributes Evolving/Evolving/Common provider {provider} module
#pragma D attributes Evolving/Evolving/Common provider {provider} function
#pragma D attributes Evolving/Evolving/Common provider {provider} name
#pragma D attributes Stable/Stable/ISA provider {provider} args
/* The kernel has a struct of this name, and an enumerator. */
typedef struct file {{ char *name; {members} }} file_t;
typedef struct fileinfo {{ string fi_name; long fi_size; long fi_next; }} myinfo_t;
enum {{ PIDTYPE_MAX = {factor} }};
inline long times[long n] = n * PIDTYPE_MAX;
translator myinfo_t < file_t *f > {{
    fi_name = stringof(f->name);
    fi_size = times[f->size];
    fi_next = f->next != NULL ? f->next->size : -1;
}};
provider {provider} {{
    probe sent(file_t *f, int n) : (int n, myinfo_t *f);
    probe raw(file_t *f, char *text, short s);
    probe nothing();
}};
"
    )
}

/// The program of a definition, which fires `count` times at a line of input and prints when it is
/// done. At each line with a question mark before it fires once, with 0.
fn text(provider: &str, members: &str, values: &str, count: u32) -> String {
    let upper = provider.to_uppercase();
    format!(
        "typedef struct file {{ char *name; {members} }} file_t;
#include \"{provider}.h\"
static char text[] = \"text\";
PLAIN void go(file_t *f, int i)
{{
    {upper}_SENT(f, i);
    {upper}_RAW(f, text, -i);
    {upper}_NOTHING();
}}
int main(void)
{{
    static char first[] = \"first\";
    file_t b = {{ .name = text, .size = 41 }}, a = {{ .name = first, .next = &b, {values} }};
    text[0] = 't';
    first[0] = 'f';
    while (getchar() == '?') {{
        go(&a, 0);
        puts(\"asked\");
        fflush(stdout);
    }}
    for (int i = 1; i <= {count}; i++)
        go(&a, i);
    puts(\"done\");
    fflush(stdout);
    while (getchar() != EOF);
    return 0;
}}
"
    )
}

/// Two orders of the members behind the name.
const OLD: &str = "int size; struct file *next;";
const NEW: &str = "long before; struct file *next; int bits : 4; int size;";

/// Compiles a program. `edit` changes its header.
fn program(
    programs: &Programs,
    (name, provider): (&str, &str),
    (members, values, factor, count): (&str, &str, u32, u32),
    edit: impl Fn(String) -> String,
) -> Result<String, Verdict> {
    let (script, header) = (programs.path(&format!("{name}.d")), programs.path(&format!("{provider}.h")));
    std::fs::write(&script, definition(provider, members, factor)).unwrap();
    dtrace(&["-h", "-s", &script, "-o", &header]).code(0);
    std::fs::write(&header, edit(std::fs::read_to_string(&header).unwrap())).unwrap();
    programs.compile(name, &text(provider, members, values, count), &[])
}

/// Nobody but the tracer reads what the pointers point to.
fn what_a_pointer_of_a_probe_points_to_is_written_before_it() -> Verdict {
    let programs = compiled!(Programs::new("written"));
    let (script, header) = (programs.path("wrote.d"), programs.path("wrote.h"));
    let definition = "typedef struct pair { int a, b; } pair_t; provider wrote { probe both(pair_t *p, char *s, int i); probe none(); };";
    std::fs::write(&script, definition).unwrap();
    dtrace(&["-h", "-s", &script, "-o", &header]).code(0);
    let text = "typedef struct pair { int a, b; } pair_t;
#include \"wrote.h\"
int main(int argc, char **argv)
{
    for (int i = 0; i < 100; i++) {
        pair_t pair;
        char text[8];
        pair.a = argc + i;
        pair.b = 7;
        text[0] = 'x';
        text[1] = 0;
        WROTE_BOTH(&pair, text, i);
        WROTE_NONE();
    }
    return 0;
}
";
    let clause = "wrote$target:::both { @[args[0]->b, copyinstr(arg1), args[0]->a - args[2]] = count(); } \
                  END { printa(\"%d %s %d %@d\\n\", @); }";
    for optimized in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        let program = compiled!(programs.compile("wrote", text, &[optimized]));
        let o = dtrace(&["-q", "-c", &program, "-n", clause]).code(0);
        assert_eq!(o.out.trim(), "7 x 1 100", "{optimized} {o:?}");
    }
    Pass
}

fn a_definition_may_use_the_types_of_c_that_d_has() -> Verdict {
    let programs = compiled!(Programs::new("ctypes"));
    let (script, header) = (programs.path("ctypes.d"), programs.path("ctypes.h"));
    let definition =
        "provider ctypes { probe all(bool a, time_t b, off_t c, uint d, mode_t e, socklen_t f, char *g); };";
    std::fs::write(&script, definition).unwrap();
    dtrace(&["-h", "-s", &script, "-o", &header]).code(0);
    let text =
        "#include \"ctypes.h\"\nint main(void) { CTYPES_ALL(1, -2, -3, 4, 5, 6, \"seven\"); return 0; }\n";
    let program = compiled!(programs.compile("ctypes", text, &[]));
    let o = dtrace(&["-lvn", "ctypes$target:::all", "-c", &program]).code(0);
    let of = |n: usize| {
        let start = format!("args[{n}]: ");
        o.out.lines().find_map(|line| line.trim().strip_prefix(&start).map(str::to_owned))
    };
    let types: Vec<String> = (0..7).filter_map(of).collect();
    assert_eq!(types, ["bool", "time_t", "off_t", "uint", "mode_t", "socklen_t", "userland char *"], "{o:?}");
    assert!(!o.out.contains("is not used"), "{o:?}");
    let clause = "ctypes$target:::all { printf(\"%d %d %d %d %d %d %s\", args[0], args[1], args[2], args[3], args[4], args[5], copyinstr((uintptr_t)args[6])); }";
    let o = dtrace(&["-q", "-c", &program, "-n", clause]).code(0);
    assert_eq!(o.out.trim(), "1 -2 -3 4 5 6 seven", "{o:?}");
    Pass
}

/// As typed ones are: those of the site, in the order in which the definition passes them on.
fn raw_arguments_are_in_the_order_of_the_definition() -> Verdict {
    let programs = compiled!(Programs::new("order"));
    let (script, header) = (programs.path("order.d"), programs.path("order.h"));
    let definition = "provider order { probe turned(int i, int j) : (int j, int i, int i, int j); \
                      probe last(int i, int j) : (int j); probe plain(int i, int j); probe none(); };";
    std::fs::write(&script, definition).unwrap();
    dtrace(&["-h", "-s", &script, "-o", &header]).code(0);
    let text = "#include \"order.h\"\nint main(void) { ORDER_TURNED(10, 4); ORDER_LAST(10, 4); ORDER_PLAIN(10, 4); ORDER_NONE(); return 0; }\n";
    let program = compiled!(programs.compile("order", text, &[]));
    let clauses = "order$target:::turned { printf(\"%d %d %d %d %d %d %d %d|\", arg0, arg1, arg2, arg3, arg4, args[0], args[2], args[3]); } \
                   order$target:::last { printf(\"%d %d|\", arg0, arg1); } order$target:::plain { printf(\"%d %d %d\\n\", arg0, arg1, arg2); } \
                   order$target:::last, order$target:::turned, order$target:::plain { @[probename, arg0, arg1] = count(); } \
                   END { printa(\"%s %d %d %@d\\n\", @); }";
    let o = dtrace(&["-q", "-x", "aggsortkey", "-c", &program, "-n", clauses]).code(0);
    assert_eq!(
        o.out.trim(),
        "4 10 10 4 0 4 10 4|4 0|10 4 0\nlast 4 0 1\nplain 10 4 1\nturned 4 10 1",
        "{o:?}"
    );
    // One description of several probes, by themselves and by an inline.
    for clauses in [
        "order$target::: { @[probename, arg0, arg1] = count(); }",
        "inline int one = arg0; inline int two = arg1; order$target::: { @[probename, one, two] = count(); }",
        "order$target:::plain, order$target::: { @[probename, arg0, arg1] = count(); }",
        "order*::: /pid == $target/ { @[probename, arg0, arg1] = count(); }",
    ] {
        let text = format!("{clauses} END {{ printa(\"%s %d %d\\n\", @); }}");
        let o = dtrace(&["-q", "-x", "aggsortkey", "-c", &program, "-n", &text]).code(0);
        assert_eq!(o.out.trim(), "last 4 0\nnone 0 0\nplain 10 4\nturned 4 10", "{clauses} {o:?}");
    }
    Pass
}

/// What was compiled for the first of them does not serve the others.
fn raw_arguments_of_later_processes_are_in_the_order_of_their_definition() -> Verdict {
    let (programs, provider) = (compiled!(Programs::new("orders")), own("tstorder"));
    let make = |name: &str, order: &str| {
        let (script, header) = (programs.path(&format!("{name}.d")), programs.path(&format!("{provider}.h")));
        std::fs::write(&script, format!("provider {provider} {{ probe hit(int i, int j){order}; }};"))
            .unwrap();
        dtrace(&["-h", "-s", &script, "-o", &header]).code(0);
        let upper = provider.to_uppercase();
        let text = format!(
            "#include <stdio.h>
#include \"{provider}.h\"
int main(void)
{{
    while (getchar() == '?') {{
        {upper}_HIT(10, 4);
        puts(\"asked\");
        fflush(stdout);
    }}
    return 0;
}}
"
        );
        programs.compile(name, &text, &[])
    };
    let all = [("plain", ""), ("turned", " : (int j, int i)"), ("last", " : (int j)")];
    let rows = programs.path("rows");
    let script = format!(
        "{provider}*:::hit {{ printf(\"=%s %d %d\\n\", execname, arg0, arg1); }} BEGIN {{ printf(\"ready\\n\"); }}"
    );
    let mut files = Vec::new();
    for (name, order) in all {
        files.push(compiled!(make(name, order)));
    }
    let session = start(&["-Zqo", &rows, "-n", &script]);
    let read = || std::fs::read_to_string(&rows).unwrap_or_default();
    eventually("the beginning", LIMIT, || read().contains("ready"));
    let mut processes = Vec::new();
    for (file, (name, _)) in files.iter().zip(all) {
        let mut process = wait(file);
        eventually("a row of each program", LIMIT, || {
            process.stdin.as_mut().unwrap().write_all(b"?").unwrap();
            assert_eq!(line(&mut process), "asked");
            read().contains(&format!("={name} "))
        });
        processes.push(process);
    }
    let mut o = end(session, processes);
    o.out = read();
    let mut found = marked(&o);
    found.dedup();
    assert_eq!(found, ["=last 4 0", "=plain 10 4", "=turned 4 10"], "{o:?}");
    Pass
}

/// A provider that no other run of these tests on this machine has.
fn own(name: &str) -> String {
    format!("{name}{}x", std::process::id())
}

/// A program fires.
fn fire(process: &mut Child) {
    next(process);
    assert_eq!(line(process), "done");
}

/// Ends programs and the session.
fn end(session: Child, processes: Vec<Child>) -> Output {
    for mut process in processes {
        drop(process.stdin.take());
        let _ = process.wait();
    }
    signal(&session, 15);
    finish(session).code(0)
}

/// The lines of an output that begin with `=`, sorted.
fn marked(o: &Output) -> Vec<&str> {
    let mut all: Vec<&str> = o.out.lines().filter(|l| l.starts_with('=')).collect();
    all.sort_unstable();
    all
}

/// The stability and the arguments that a list shows.
fn described(o: &Output) -> Vec<&str> {
    let words = ["Identifier Names:", "Dependency Class:", "args[", "None", "("];
    o.out.lines().map(str::trim).filter(|l| words.iter().any(|w| l.starts_with(w))).collect()
}

fn a_list_has_the_types_and_the_stability_of_the_definition() -> Verdict {
    let (programs, provider) = (compiled!(Programs::new("defined")), own("tstlist"));
    let app = compiled!(program(&programs, ("app", &provider), (OLD, ".size = 7", 2, 1), |h| h));
    let stability = |names: &'static str, class: &'static str| [names, class];
    let expected = |args: &[&'static str]| {
        let mut all: Vec<&str> = Vec::new();
        all.extend(stability("Identifier Names: Evolving", "Dependency Class: Common"));
        all.extend(stability("Identifier Names: Stable", "Dependency Class: ISA"));
        all.extend(args);
        all
    };
    for (name, args) in [
        ("sent", &["args[0]: int", "args[1]: myinfo_t *"][..]),
        ("raw", &["args[0]: userland file_t *", "args[1]: userland char *", "args[2]: short"]),
        ("nothing", &["None"]),
    ] {
        let description = format!("{provider}$target:::{name}");
        let o = dtrace(&["-lvn", &description, "-c", &app]).code(0);
        assert_eq!(described(&o), expected(args), "{o:?}");
        let o = dtrace(&["-evn", &format!("{description} {{}}"), "-c", &app]).code(0);
        assert!(described(&o).ends_with(&expected(args)), "{o:?}");
    }
    Pass
}

const CLAUSES: &str =
    ":::sent { @[args[0], args[1]->fi_name, args[1]->fi_size, args[1]->fi_next] = count(); } ";
const RAW: &str =
    ":::raw { @raw[stringof(args[0]->name), args[0]->size, stringof(args[1]), args[2]] = count(); } ";
const PRINTS: &str = "BEGIN { printf(\"ready\\n\"); } \
    END { printa(\"=sent %d %s %d %d %@d\\n\", @); printa(\"=raw %s %d %s %d %@d\\n\", @raw); }";

/// What both versions say, once each.
const BOTH: [&str; 6] = [
    "=raw first 1007 text -1 1",
    "=raw first 7 text -1 1",
    "=raw first 7 text -2 1",
    "=sent 1 first 100700 41 1",
    "=sent 1 first 14 41 1",
    "=sent 2 first 14 41 1",
];

/// What they say of firings with 0.
const FIRST: [&str; 4] = [
    "=raw first 1007 text 0 1",
    "=raw first 7 text 0 1",
    "=sent 0 first 100700 41 1",
    "=sent 0 first 14 41 1",
];

fn versions(provider: &str) -> Result<(Programs, String, String), Verdict> {
    let programs = Programs::new(provider)?;
    let old = program(&programs, ("old", provider), (OLD, ".size = 7", 2, 2), |h| h)?;
    let new = program(&programs, ("new", provider), (NEW, ".before = 9, .size = 1007", 100, 1), |h| h)?;
    Ok((programs, old, new))
}

fn two_versions_of_a_program_have_their_own_types_and_translators() -> Verdict {
    let provider = own("tsttwo");
    let (_programs, old, new) = compiled!(versions(&provider));
    let (mut old, mut new) = (wait(&old), wait(&new));
    let script = format!("{provider}*{CLAUSES}{provider}*{RAW}{PRINTS}");
    let mut session = start(&["-qn", &script]);
    printed(&mut session);
    fire(&mut old);
    fire(&mut new);
    let o = end(session, vec![old, new]);
    // A slow machine says how far it is.
    let complaints: Vec<&str> = o.err.lines().filter(|line| !line.starts_with("dtrace: enabled ")).collect();
    assert_eq!((marked(&o), complaints), (BOTH.to_vec(), vec![]), "{o:?}");
    Pass
}

fn a_process_that_starts_later_has_its_own_definition() -> Verdict {
    let provider = own("tstlater");
    let (programs, old, new) = compiled!(versions(&provider));
    let script = format!(
        "{provider}*:::sent {{ printf(\"=sent %d %s %d %d 1\\n\", args[0], args[1]->fi_name, args[1]->fi_size, args[1]->fi_next); }} \
         {provider}*:::raw {{ printf(\"=raw %s %d %s %d 1\\n\", stringof(args[0]->name), args[0]->size, stringof(args[1]), args[2]); }} \
         BEGIN {{ printf(\"ready\\n\"); }}"
    );
    let rows = programs.path("rows");
    let session = start(&["-Zqo", &rows, "-n", &script]);
    let read = || std::fs::read_to_string(&rows).unwrap_or_default();
    eventually("the beginning", LIMIT, || read().contains("ready"));
    let (mut old, mut new) = (wait(&old), wait(&new));
    // What fires while nobody traces it is not seen.
    eventually("the first row of each probe", LIMIT, || {
        for process in [&mut old, &mut new] {
            process.stdin.as_mut().unwrap().write_all(b"?").unwrap();
            assert_eq!(line(process), "asked");
        }
        let rows = read();
        FIRST.iter().all(|row| rows.contains(row))
    });
    fire(&mut old);
    fire(&mut new);
    let mut o = end(session, vec![old, new]);
    o.out = read();
    let all: Vec<&str> = marked(&o).into_iter().filter(|row| !FIRST.contains(row)).collect();
    assert_eq!((all, &*o.err), (BOTH.to_vec(), ""), "{o:?}");
    Pass
}

/// What is wrong is a sentence on the standard error, and the probes have the arguments of their
/// sites.
fn a_definition_that_does_more_than_read_is_told_and_left_out() -> Verdict {
    for (name, from, to, says) in [
        ("call", "stringof(f->name)", "system(f->name)  ", "this is a call of system( )"),
        ("assigns", "times[f->size]", "f->size = 12  ", "this is an assignment"),
        ("variable", "times[f->size]", "self->x + `xxx", "this is a variable"),
        ("symbol", "times[f->size]", "(long)`jiffies", "this is a symbol of the kernel"),
        ("member", "times[f->size]", "times[f->sixe]", "sixe is not a member of file_t"),
        ("syntax", "times[f->size]", "times[f->size ", "syntax error"),
        ("itself", "n \\\\052 PIDTYPE_MAX", "times[n - 1] ", "times"),
    ] {
        let provider = own(&format!("tst{name}"));
        let programs = compiled!(Programs::new(&provider));
        let edit = |header: String| {
            assert!(header.contains(from), "{header}");
            header.replace(from, to)
        };
        let app = compiled!(program(&programs, ("app", &provider), (OLD, ".size = 7", 2, 1), edit));
        let mut app = wait(&app);
        let o = dtrace(&["-lvn", &format!("{provider}*:::raw")]).code(0);
        let all = described(&o);
        let (told, args) = all.split_last().unwrap();
        assert!(told.contains("is not used: ") && told.contains(says), "{name}: {o:?}");
        assert!(told.contains(&format!("{provider}_ of ")) || told.contains(", line "), "{name}: {told}");
        assert!(
            args.ends_with(&["args[0]: uint64_t", "args[1]: uint64_t", "args[2]: int16_t"]),
            "{name}: {o:?}"
        );
        let script = format!(
            "{provider}*:::raw {{ @ = sum(args[2]); @n = count(); }} BEGIN {{ printf(\"ready\\n\"); }} END {{ printa(\"\\n=%@d %@d\\n\", @, @n); }}"
        );
        let mut session = start(&["-n", &script]);
        printed(&mut session);
        fire(&mut app);
        let o = end(session, vec![app]);
        assert_eq!(marked(&o), ["=-1 1"], "{name}: {o:?}");
        assert!(o.err.contains("is not used: ") && o.err.contains(says), "{name}: {o:?}");
    }
    Pass
}

/// A program that does not use `args` is told too, once for each definition; an error that comes of
/// it has the reason.
fn why_a_definition_is_not_used_is_said_wherever_a_probe_is_matched() -> Verdict {
    let provider = own("tsttold");
    let programs = compiled!(Programs::new(&provider));
    let edit = |header: String| header.replace("stringof(f->name)", "system(f->name)  ");
    let app = compiled!(program(&programs, ("app", &provider), (OLD, ".size = 7", 2, 1), edit));
    let why = format!("the definition of provider {provider} is not used: ");
    let clause = format!("{provider}$target:::raw");
    let o = dtrace(&["-n", &format!("{clause} {{ @ = count(); }} {clause} {{ @n = count(); }}"), "-c", &app]);
    assert!(o.err.matches(&why).count() == 1 && o.err.contains("this is a call of system( )"), "{o:?}");
    let o = dtrace(&["-n", &format!("{clause} {{ trace(args[0]->size); }}"), "-c", &app]).code(1);
    assert!(o.err.contains("operator -> must be applied to a pointer"), "{o:?}");
    assert!(o.err.contains(&format!("= help: {why}")), "{o:?}");
    Pass
}

fn a_list_has_the_probes_of_a_command_however_they_are_described() -> Verdict {
    let provider = own("tstheld");
    let programs = compiled!(Programs::new(&provider));
    let app = compiled!(program(&programs, ("app", &provider), (OLD, ".size = 7", 2, 1), |h| h));
    for (option, description) in [
        ("-P", format!("{provider}$target")),
        ("-n", format!("{provider}$target:::")),
        ("-n", format!("{provider}*:::")),
        ("-P", format!("{provider}*")),
    ] {
        let o = dtrace(&["-l", option, &description, "-c", &app]).code(0);
        let names: Vec<&str> = o.out.lines().skip(1).filter_map(|l| l.split_whitespace().last()).collect();
        for name in ["sent", "raw", "nothing"] {
            assert!(names.contains(&name), "{description}: {o:?}");
        }
    }
    let mut process = wait(&app);
    let o = dtrace(&["-l", "-P", &format!("{provider}$target"), "-p", &process.id().to_string()]).code(0);
    assert!(o.out.contains(" sent\n"), "{o:?}");
    dtrace(&["-e", "-P", &format!("{provider}$target"), "-c", &app]).code(0);
    drop(process.stdin.take());
    process.wait().unwrap();
    Pass
}

/// A glob matches a program without the member that the clause names: it is told, and the other is
/// traced.
fn a_clause_that_is_wrong_for_one_program_serves_the_others() -> Verdict {
    let provider = own("tstwrong");
    let (_programs, old, new) = compiled!(versions(&provider));
    let (mut old, mut new) = (wait(&old), wait(&new));
    let script = format!(
        "{provider}*:::raw {{ @ = sum(args[0]->before); @n = count(); }} BEGIN {{ printf(\"ready\\n\"); }} \
         END {{ printa(\"\\n=%@d %@d\\n\", @, @n); }}"
    );
    let mut session = start(&["-n", &script]);
    printed(&mut session);
    fire(&mut old);
    fire(&mut new);
    let o = end(session, vec![old, new]);
    assert_eq!(marked(&o), ["=9 1"], "{o:?}");
    assert!(o.err.contains("is left out: ") && o.err.contains("before is not a member of"), "{o:?}");
    let script = format!("{provider}*:::raw {{ @ = sum(args[0]->nowhere); }}");
    let (_programs, old, new) = compiled!(versions(&provider));
    let processes = vec![wait(&old), wait(&new)];
    let o = dtrace(&["-qn", &script]).code(1);
    assert!(o.err.contains("nowhere is not a member of"), "{o:?}");
    for mut process in processes {
        let _ = process.kill();
        let _ = process.wait();
    }
    Pass
}

/// Whoever describes a type of 4 GB ends no session: `size-ok` is traced, and the other one is left
/// out with a message.
fn a_type_that_no_record_can_hold_leaves_its_program_out() -> Verdict {
    let (programs, provider) = (compiled!(Programs::new("sizes")), own("tstsize"));
    let make = |name: &str, size: &str| {
        let (script, header) = (programs.path(&format!("{name}.d")), programs.path(&format!("{provider}.h")));
        let text = format!(
            "typedef struct sized {{ char v[{size}]; }} sized_t; provider {provider} {{ probe hit(sized_t *p); }};"
        );
        std::fs::write(&script, text).unwrap();
        dtrace(&["-h", "-s", &script, "-o", &header]).code(0);
        let upper = provider.to_uppercase();
        let text = format!(
            "typedef struct sized {{ char v[{size}]; }} sized_t;
#include \"{provider}.h\"
int main(void)
{{
    static char text[16] = \"here\";
    while (getchar() == '?') {{
        {upper}_HIT((sized_t *)text);
        puts(\"asked\");
        fflush(stdout);
    }}
    for (int i = 0; i < 10; i++)
        {upper}_HIT((sized_t *)text);
    puts(\"done\");
    fflush(stdout);
    while (getchar() != EOF);
    return 0;
}}
"
        );
        programs.compile(name, &text, &[])
    };
    let (small, huge) = (compiled!(make("small", "16")), compiled!(make("huge", "0xffffffff")));
    let mut first = wait(&small);
    let rows = programs.path("rows");
    let script = format!(
        "{provider}*:::hit /pid == $1/ {{ @ = count(); tracemem(args[0], sizeof(*args[0])); }} \
         {provider}*:::hit /pid != $1/ {{ printf(\"late\\n\"); tracemem(args[0], sizeof(*args[0])); }} \
         BEGIN {{ printf(\"ready\\n\"); }} END {{ printa(\"\\n=%@d\\n\", @); }}"
    );
    let session = start(&["-Zo", &rows, "-n", &script, &first.id().to_string()]);
    let read = || std::fs::read_to_string(&rows).unwrap_or_default();
    eventually("the beginning", LIMIT, || read().contains("ready"));
    let huge = wait(&huge);
    let mut late = wait(&small);
    // Programs are matched in the order in which they have started.
    eventually("a row of the last one", LIMIT, || {
        late.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        assert_eq!(line(&mut late), "asked");
        read().contains("late")
    });
    fire(&mut first);
    let mut o = end(session, vec![first, huge, late]);
    o.out = read();
    assert_eq!(marked(&o), ["=10"], "{o:?}");
    let size = "tracemem( ) of 4294967295 bytes: a record holds at most 262144";
    assert!(o.err.contains("probes of huge are not enabled: ") && o.err.contains(size), "{o:?}");
    Pass
}
