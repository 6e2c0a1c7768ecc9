//! Sessions whose clauses with `args[]` had probes in processes that have ended.

use std::io::Write;
use std::process::Child;

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::tool::{LIMIT, dtrace, finish, signal, start};
use crate::usdt::{Programs, compiled, line, wait};
use crate::usdt_later::own;

tests! {
    clauses_with_arguments_are_what_they_were_when_their_processes_have_ended
}

/// A version of a program, whose definition gives its probe these arguments.
fn version(programs: &Programs, (name, provider): (&str, &str), text: &str) -> Result<String, Verdict> {
    let (script, header) = (programs.path(&format!("{name}.d")), programs.path(&format!("{provider}.h")));
    std::fs::write(&script, text.replace("PROVIDER", provider)).unwrap();
    dtrace(&["-h", "-s", &script, "-o", &header]).code(0);
    let upper = provider.to_uppercase();
    let text = format!(
        "{}
#include <stdio.h>
#include \"{provider}.h\"
int main(void)
{{
    static struct item item = {{ .size = 4 }};
    while (getchar() == '?') {{
        {upper}_HIT(&item, 10);
        puts(\"asked\");
        fflush(stdout);
    }}
    return 0;
}}
",
        text.split("provider").next().unwrap_or_default()
    );
    programs.compile(name, &text, &[])
}

fn end(mut process: Child) {
    drop(process.stdin.take());
    process.wait().unwrap();
}

/// One version is there at the start. It ends, and each that comes then has arguments that no other
/// has, so that all clauses are checked once more.
fn clauses_with_arguments_are_what_they_were_when_their_processes_have_ended() -> Verdict {
    let (programs, provider) = (compiled!(Programs::new("gone")), own("tstgone"));
    let make = |name: &str, members: &str, args: &str| {
        let text = format!(
            "struct item {{ {members} }};\nprovider PROVIDER {{ probe hit(struct item *p, int n){args}; }};\n"
        );
        version(&programs, (name, &provider), &text)
    };
    let all = [
        ("first", "int size;", ""),
        ("second", "long before; int size;", ""),
        ("third", "char before[40]; long size;", " : (struct item *p, int n, int n)"),
        ("fourth", "short size;", " : (struct item *p, short n)"),
    ];
    let mut files = Vec::new();
    for (name, members, args) in all {
        files.push(compiled!(make(name, members, args)));
    }
    let mut first = wait(&files[0]);
    let rows = programs.path("rows");
    let script = format!(
        "{provider}*:::hit {{ printf(\"=%s %d %d\\n\", execname, args[0]->size, args[1]); @sizes[sizeof(args[1])] = count(); }}
         {provider}*:::hit {{ self->last = args[0]->size; @[execname] = max(args[1]); }}
         {provider}*:::hit /self->last != 4/ {{ printf(\"=wrong %d\\n\", self->last); }}
         BEGIN {{ printf(\"ready\\n\"); }} END {{ printa(\"+%s %@d\\n\", @); }}"
    );
    let session = start(&["-Zqo", &rows, "-n", &script]);
    let read = || std::fs::read_to_string(&rows).unwrap_or_default();
    eventually("the beginning", LIMIT, || read().contains("ready"));
    let seen = |name: &str, process: &mut Child| {
        eventually(format_args!("a row of {name}"), LIMIT, || {
            process.stdin.as_mut().unwrap().write_all(b"?").unwrap();
            assert_eq!(line(process), "asked");
            read().contains(&format!("={name} "))
        });
    };
    seen("first", &mut first);
    end(first);
    for (file, (name, ..)) in files.iter().zip(all).skip(1) {
        let mut process = wait(file);
        seen(name, &mut process);
        end(process);
    }
    signal(&session, 15);
    let o = finish(session).code(0);
    let text = read();
    let mut found: Vec<&str> = text.lines().filter(|l| l.starts_with(['=', '+'])).collect();
    found.sort_unstable();
    found.dedup();
    let names = ["first", "fourth", "second", "third"];
    let expected: Vec<String> = (names.iter().map(|name| format!("+{name} 10")))
        .chain(names.iter().map(|name| format!("={name} 4 10")))
        .collect();
    assert_eq!(found, expected, "{o:?}");
    assert_eq!(o.err, "", "{o:?}");
    Pass
}
