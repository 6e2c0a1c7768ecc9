//! The front end takes time in proportion to the length of the text, whatever constructs the text
//! repeats.
//!
//! A text with `4n` parts is compared with one with `n` parts. Four times the time is linear.
//! Sixteen times the time is quadratic, for example a list that is searched from its start for
//! every part. The figure is CPU time of the thread (`/proc/thread-self/schedstat`), so a loaded
//! machine does not affect it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write;

use exercise::stages;

/// Number of parts in the smaller text.
const PARTS: usize = 2500;
/// Maximum ratio: between 4 (linear) and 16 (quadratic).
const RATIO_MAX: f64 = 9.0;
/// Below this time a ratio is noise.
const NOISE_NS: f64 = 20e6;

fn repeat(n: usize, mut part: impl FnMut(&mut String, usize)) -> String {
    let mut text = String::new();
    (0..n).for_each(|i| part(&mut text, i));
    text
}

/// A text with `n` repetitions of a construct.
enum Text {
    /// This part `n` times; `~` is replaced by the index.
    Each(&'static str),
    /// The same, with text before and after.
    List(&'static str, &'static str, &'static str),
    Custom(fn(usize) -> String),
}

use Text::{Custom, Each, List};

impl Text {
    fn make(&self, n: usize) -> String {
        let parts = |part: &str| repeat(n, |text, i| text.push_str(&part.replace('~', &i.to_string())));
        match self {
            Each(part) => parts(part),
            List(before, part, after) => format!("{before}{}{after}", parts(part)),
            Custom(make) => make(n),
        }
    }
}

const TEXTS: &[(&str, Text)] = &[
    ("typedefs", Each("typedef int t~;\n")),
    (
        "typedefs of typedefs",
        Custom(|n| {
            format!("typedef int t0;\n{}", repeat(n, |t, i| writeln!(t, "typedef t{i} t{};", i + 1).unwrap()))
        }),
    ),
    ("structs", Each("struct s~ { int a; int b; };\n")),
    (
        "structs of structs",
        Custom(|n| {
            let rest = repeat(n, |t, i| writeln!(t, "struct s{} {{ struct s{i} *p; }};", i + 1).unwrap());
            format!("struct s0 {{ int a; }};\n{rest}")
        }),
    ),
    ("members", List("struct s {\n", "int m~;\n", "};\n")),
    (
        "members used",
        Custom(|n| {
            let members = repeat(n, |t, i| writeln!(t, "int m{i};").unwrap());
            let uses = repeat(n, |t, i| writeln!(t, "v.m{i} = 1;").unwrap());
            format!("struct s {{ {members} }};\nstruct s v;\nBEGIN {{ {uses} }}\n")
        }),
    ),
    ("enumerators", List("enum e {\n", "E~,\n", "};\n")),
    ("enumerators with values", List("enum e {\n", "E~ = ~,\n", "};\n")),
    (
        "enumerators of enumerators",
        Custom(|n| {
            let rest = repeat(n, |t, i| writeln!(t, "E{} = E{i} + 1,", i + 1).unwrap());
            format!("enum e {{ E0 = 1,\n{rest} }};\n")
        }),
    ),
    ("enums", Each("enum e~ { A~, B~ };\n")),
    ("variables declared", Each("int v~;\n")),
    ("self variables declared", Each("self int v~;\n")),
    ("arrays declared", Each("int v~[int, string];\n")),
    ("inlines", Each("inline int I~ = ~ + 1;\n")),
    (
        "inlines used",
        Custom(|n| {
            let all = repeat(n, |t, i| writeln!(t, "inline int I{i} = {i};").unwrap());
            let uses = repeat(n, |t, i| writeln!(t, "BEGIN {{ x = I{i}; }}").unwrap());
            all + &uses
        }),
    ),
    ("inline parameters", List("inline int f[", "int p~, ", "int z] = z;\n")),
    ("clauses", Each("BEGIN { x = 1; }\n")),
    ("clauses with predicates", Each("BEGIN /x == ~/ { x = 1; }\n")),
    ("clauses with variables", Each("BEGIN { v~ = 1; self->w~ = 1; this->u~ = v~; }\n")),
    ("clauses with aggregations", Each("BEGIN { @a~[pid] = count(); }\n")),
    (
        "clauses printing aggregations",
        Custom(|n| {
            let made = repeat(n, |t, i| writeln!(t, "BEGIN {{ @a{i} = count(); }}").unwrap());
            made + &repeat(n, |t, i| writeln!(t, "END {{ printa(@a{i}); }}").unwrap())
        }),
    ),
    ("clauses in one line", Each("BEGIN { trace(1); }")),
    ("descriptions", List("BEGIN", ", END", "{ x = 1; }\n")),
    ("statements", List("BEGIN {\n", "x = ~;\n", "}\n")),
    ("statements in one line", List("BEGIN {", "trace(~);", "}\n")),
    ("branches", List("BEGIN {\n", "if (x == ~) { x = ~; }\n", "}\n")),
    (
        "translators",
        Custom(|n| {
            repeat(n, |t, i| {
                writeln!(t, "struct o{i} {{ int a; }}; translator struct o{i} < int X > {{ a = X; }};")
                    .unwrap();
            })
        }),
    ),
    (
        "translators used",
        Custom(|n| {
            repeat(n, |t, i| {
                writeln!(t, "struct o{i} {{ int a; }}; translator struct o{i} < int X > {{ a = X; }};")
                    .unwrap();
                writeln!(t, "BEGIN {{ trace(xlate <struct o{i}> (1).a); }}").unwrap();
            })
        }),
    ),
    ("macro variables", List("BEGIN {\n", "trace($pid);\n", "}\n")),
    ("line markers", Each("# ~ \"file~.d\"\nBEGIN { x = 1; }\n")),
    ("line markers with errors", Each("# ~ \"file~.d\"\nBEGIN { trace(y); }\n")),
    ("pragmas", Each("#pragma D option quiet\n")),
    ("attributes", Each("int w~;\n#pragma D attributes Stable/Stable/Common w~\n")),
    ("comments", Each("/* comment */\n// comment\n")),
    ("a long comment", List("/*", "word word word *\n", "*/\n")),
    ("a comment that is not closed", List("/*", "word word word *\n", "\n")),
    ("a long string", List("BEGIN { trace(\"", "words \\n ", "\"); }\n")),
    ("strings that are not closed", Each("BEGIN { trace(\"abc); }\n")),
    ("a long name", List("BEGIN { trace(", "name", "); }\n")),
    ("a long description", List("syscall:", "name", "::entry { trace(1); }\n")),
    ("a sum in parts", List("BEGIN {", "x = 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8;", "}\n")),
    ("arguments", List("BEGIN { printf(\"\"", ", ~", "); }\n")),
    (
        "conversions",
        Custom(|n| {
            let format = "%d ".repeat(n);
            format!("BEGIN {{ printf(\"{format}\"{}); }}\n", ", 1".repeat(n))
        }),
    ),
    ("keys", List("BEGIN { @a[0", ", ~", "] = count(); }\n")),
    ("unknown names", Each("BEGIN { trace(unknown~); }\n")),
    ("unknown names beside variables", Each("BEGIN { v~ = 1; trace(unknown~); }\n")),
    ("unknown functions", Each("BEGIN { unknown~(); }\n")),
    ("unknown types", Each("unknown~ *v~;\n")),
    ("unknown probes", Each("nosuch~:::x { trace(1); }\n")),
    ("unknown aggregations", Each("BEGIN { printa(@a~); }\n")),
    ("unknown self variables", Each("BEGIN { self->v~ = 1; trace(self->u~); }\n")),
    ("syntax errors", Each("BEGIN { x = ; }\n")),
    ("syntax errors in one line", List("BEGIN {", "x = ;", "}\n")),
    ("closing braces", Each("}")),
    ("opening braces", Each("BEGIN { ")),
    ("opening parentheses", Each("BEGIN { x = ( ; }\n")),
    ("signs", Each("%%")),
    ("colons", Each(":")),
    ("casts", List("BEGIN {\n", "x = (int)(char)(short)~;\n", "}\n")),
    (
        "casts to own types",
        Custom(|n| {
            let types = repeat(n, |t, i| writeln!(t, "typedef int t{i};").unwrap());
            let uses = repeat(n, |t, i| writeln!(t, "x = (t{i})1; y = (x) + 1;").unwrap());
            format!("{types} BEGIN {{ {uses} }}\n")
        }),
    ),
    ("parenthesized names", List("BEGIN { ", "v~ = 1; x = (v~) + 1;\n", "}\n")),
    ("parenthesized names that are nothing", List("BEGIN { ", "x = (n~) + 1;\n", "}\n")),
    ("word stars", Each("w~*x;\n")),
    ("backslashes", Each("\\\n")),
    ("a long control line", List("#pragma ", "word \\\n", "\n")),
];

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn time(text: &str) -> f64 {
    let before = cpu_ns().unwrap();
    stages::errors(text);
    cpu_ns().unwrap() - before
}

#[test]
fn compile_time_grows_linearly_with_the_length_of_the_text() {
    if cpu_ns().is_none() {
        testing::skipped!("no /proc/thread-self/schedstat");
        return;
    }
    let only = std::env::var("ONLY").unwrap_or_default();
    let parts: usize = std::env::var("PARTS").ok().and_then(|n| n.parse().ok()).unwrap_or(PARTS);
    let mut slow = Vec::new();
    for (what, text) in TEXTS.iter().filter(|(what, _)| what.contains(&only)) {
        let (small, large) = (text.make(parts), text.make(4 * parts));
        let best = |text: &str| time(text).min(time(text));
        let (small, large) = (best(&small), best(&large));
        println!("{what}: {:.1} ms, {:.1} ms, {:.1} times", small / 1e6, large / 1e6, large / small);
        if large > small * RATIO_MAX + NOISE_NS {
            slow.push(*what);
        }
    }
    assert!(slow.is_empty(), "more than linear in the number of: {}", slow.join(", "));
}
