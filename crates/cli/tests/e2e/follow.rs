//! Following: what traced processes fork, execute and load.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass};
use crate::machine::lacks;
use crate::many::{Waiting, numbers, trace};
use crate::pid::{Programs, compiled};
use crate::pid_later::end_of;
use crate::tool::{dtrace, printed, printed_more, start};

tests! {
    programs_that_followed_processes_execute_have_their_probes
    children_of_a_target_are_held_where_they_execute
    a_target_with_held_children_goes_on_when_its_tracer_is_killed
    forks_are_followed_with_or_without_their_programs
    libraries_that_processes_of_a_glob_open_later_have_their_probes
    libraries_that_followed_children_open_have_their_probes
    a_target_of_a_set_is_followed_where_it_executes
}

/// Does what its arguments say, one after the other: `i` waits for the end of its input, `cN` calls
/// `add` N times, `w` calls it until the process is told by a signal that this was seen, `o` opens
/// a library, whose function is `add` from then on, `f` forks a child that does what comes until
/// `e`, and waits for it, `x` executes the program of the next argument with those until `.`.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t seen;
static void told(int unused) { seen = 1; }
__attribute__((noinline, noclone)) long add(long n) { __asm__ volatile(""); return n + 1; }
int main(int argc, char **argv)
{
    long (*volatile f)(long) = add;
    int in_child = 0;
    signal(SIGUSR1, told);
    for (char **arg = argv + 1; *arg; arg++)
        switch (**arg) {
        case 'i':
            getchar();
            break;
        case 'c':
            for (long n = 0; n < atoi(*arg + 1); n++)
                f(n);
            break;
        case 'w':
            for (seen = 0; !seen; usleep(1000))
                f(-1);
            break;
        case 'o': {
            void *library = dlopen(*++arg, RTLD_NOW);
            f = library ? (long (*)(long)) dlsym(library, "f") : NULL;
            if (!f)
                return 3;
            break;
        }
        case 'f':
            if (!fork()) {
                in_child = 1;
                break;
            }
            while (**arg != 'e')
                arg++;
            wait(NULL);
            break;
        case 'x': {
            char **end = ++arg;
            while (*end && **end != '.')
                end++;
            *end = NULL;
            execv(*arg, arg);
            return 4;
        }
        case 'e':
            if (in_child)
                _exit(0);
        }
    return 0;
}
"#;

/// Its constructor calls the function too.
const LIBRARY: &str = r#"
__attribute__((noinline, noclone)) long f(long n) { __asm__ volatile(""); return n + 1; }
__attribute__((constructor)) static void begin(void) { f(100); }
"#;

fn program(name: &str) -> Result<(Programs, String), Verdict> {
    Programs::new(&format!("follow-{name}"), ("cc", PROGRAM), &["-O2", "-ldl"])
}

/// A script of the shell, one line for each run of a program.
fn script(dir: &Path, program: &str, runs: &[&str]) -> String {
    let path = dir.join("runs.sh").display().to_string();
    std::fs::write(&path, runs.iter().map(|run| format!("{program} {run}\n")).collect::<String>()).unwrap();
    format!("/bin/sh {path}")
}

fn programs_that_followed_processes_execute_have_their_probes() -> Verdict {
    let (dir, program) = compiled!(program("exec"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let clauses = "pid$target:program:add:entry /arg0 == -1/ { raise(SIGUSR1); } \
                   pid$target:program:add:entry /arg0 >= 0/ { @n[\"calls\"] = count(); } \
                   pid$target:program:main:entry { @n[\"runs\"] = count(); } \
                   END { printa(\"%s %@d\\n\", @n); }";
    // The first run is found when it has begun, and later ones have the probes from the first
    // instruction on.
    let waits = script(dir.path(), &program, &["w c3", "c3", "c3"]);
    for follow in ["follow=exec", "follow=all"] {
        let o = dtrace(&["-x", "exithold=no", "-x", follow, "-wZqc", &waits, "-n", clauses]).code(0);
        let counts = numbers(&o);
        assert_eq!((counts["calls"], counts["runs"]), (9, 2), "{follow}: {o:?}");
    }
    let runs = script(dir.path(), &program, &["c3"; 3]);
    for follow in ["follow=none", "follow=fork"] {
        let o = dtrace(&["-x", follow, "-wZqc", &runs, "-n", clauses]).code(0);
        assert_eq!(numbers(&o), BTreeMap::new(), "{follow}: {o:?}");
    }
    Pass
}

fn children_of_a_target_are_held_where_they_execute() -> Verdict {
    let (dir, program) = compiled!(program("held"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    // The child of a child executes too, and the last run is another file.
    let other = dir.path().join("other").display().to_string();
    std::fs::copy(&program, &other).unwrap();
    let nested = format!("f x {program} c30 f x {program} c300 . e . e c3");
    let runs = script(dir.path(), &program, &["c3", &nested, &format!("x {other} c3000 .")]);
    let clauses = "pid$target:program:main:entry, pid$target:other:main:entry { @n[\"runs\"] = count(); } \
                   pid$target:program:add:entry, pid$target:other:add:entry { @n[\"calls\"] = count(); } \
                   END { printa(\"%s %@d\\n\", @n); }";
    for follow in ["follow=exec", "follow=all"] {
        let o = dtrace(&["-x", follow, "-Zqc", &runs, "-n", clauses]).code(0);
        let counts = numbers(&o);
        assert_eq!((counts["runs"], counts["calls"]), (6, 3336), "{follow}: {o:?}");
    }
    Pass
}

fn a_target_with_held_children_goes_on_when_its_tracer_is_killed() -> Verdict {
    let (dir, program) = compiled!(program("killed"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let path = dir.path().join("loop.sh").display().to_string();
    std::fs::write(
        &path,
        format!("read x; for a in 1 2 3 4; do for b in $(seq 25); do {program} c1; done; done; exit 9\n"),
    )
    .unwrap();
    // The tracer is killed when it has seen so many of the programs.
    for programs in [0, 1, 10, 40] {
        let mut shell = Command::new("sh").arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        let pid = shell.id().to_string();
        let clauses = "BEGIN { printf(\"on\\n\"); } pid$target:program:main:entry { @ = count(); printf(\"main\\n\"); }";
        let mut tracer = start(&["-Zqx", "follow=all", "-p", &pid, "-n", clauses]);
        printed(&mut tracer);
        drop(shell.stdin.take());
        let lines = "on\n".len() + programs * "main\n".len();
        printed_more(&mut tracer, lines as i32 - 1);
        tracer.kill().unwrap();
        tracer.wait().unwrap();
        assert_eq!(end_of(&mut shell), Some(9), "{programs}");
    }
    Pass
}

fn forks_are_followed_with_or_without_their_programs() -> Verdict {
    let (_dir, program) = compiled!(program("fork"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    // 5 calls of its own, 50 in a child, 500 in a program that a child executes, 5000 in a child of
    // that one.
    let command = format!("{program} f c50 e f x {program} c500 f c5000 e . e c5");
    let clauses = "pid$target:a.out:add:entry { @ = count(); } END { printa(\"calls %@d\\n\", @); }";
    for (follow, calls) in [("none", 5), ("fork", 5555), ("exec", 505), ("all", 5555)] {
        let o = dtrace(&["-x", &format!("follow={follow}"), "-qc", &command, "-n", clauses]).code(0);
        assert_eq!(numbers(&o)["calls"], calls, "{follow}: {o:?}");
    }
    Pass
}

fn libraries_that_processes_of_a_glob_open_later_have_their_probes() -> Verdict {
    let (dir, program) = compiled!(program("glob"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let library = dir.library("liblater.so", ("cc", LIBRARY), &[]);
    // A link for each process, and a set.
    for count in [2, 12] {
        let mut waiting = Waiting::default();
        let mut wanted = BTreeMap::new();
        for calls in 1..=count {
            let pid =
                waiting.add(Command::new(&program).args(["i", "o", &library, "w", &format!("c{calls}")]));
            wanted.insert(format!("pid{pid}"), calls);
        }
        let list: Vec<String> = wanted.keys().map(|name| name.replace("pid", "")).collect();
        let selection = format!("processes={}", list.join(","));
        // It runs the same file and is not asked for.
        waiting.add(Command::new(&program).args(["i", "o", &library, "c1000"]));
        let clauses = "BEGIN { printf(\"on\\n\"); } pid*:liblater:f:entry /arg0 == -1/ { raise(SIGUSR1); } \
                       pid*:liblater:f:entry /arg0 >= 0 && arg0 < 100/ { @[probeprov] = count(); }";
        let o = trace(&mut waiting, &["-wZqx", &selection, "-n", clauses]);
        assert_eq!(numbers(&o), wanted, "{count}: {o:?}");
    }
    Pass
}

fn libraries_that_followed_children_open_have_their_probes() -> Verdict {
    let (dir, program) = compiled!(program("children"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let library = dir.library("libchild.so", ("cc", LIBRARY), &[]);
    // The second child has the probes when it opens the library.
    let command = format!("{program} f o {library} w c30 e f o {library} c300 e c7");
    let clauses = "pid$target:libchild:f:entry /arg0 == -1/ { raise(SIGUSR1); } \
                   pid$target:libchild:f:entry /arg0 >= 0 && pid != $target/ { @ = count(); } \
                   END { printa(\"calls %@d\\n\", @); }";
    let o = dtrace(&["-x", "follow=all", "-x", "exithold=no", "-wZqc", &command, "-n", clauses]).code(0);
    // The constructor of the second one too.
    assert_eq!(numbers(&o)["calls"], 331, "{o:?}");
    Pass
}

fn a_target_of_a_set_is_followed_where_it_executes() -> Verdict {
    let (dir, program) = compiled!(program("set"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let path = dir.path().join("exec.sh").display().to_string();
    std::fs::write(&path, format!("exec {program} c4 f c40 e\n")).unwrap();
    let clauses = "pid$target:a.out:add:entry { @ = count(); } END { printa(\"calls %@d\\n\", @); }";
    for (follow, calls) in [("none", 4), ("fork", 44), ("exec", 4), ("all", 44)] {
        let follow = format!("follow={follow}");
        let o = dtrace(&["-x", &follow, "-Zqc", &format!("/bin/sh {path}"), "-n", clauses]).code(0);
        assert_eq!(numbers(&o)["calls"], calls, "{follow}: {o:?}");
    }
    Pass
}
