//! Functions of what a process maps and executes while it is traced.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bpf_sys::features::Facility;
use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::pid::{Programs, compiled};
use crate::tool::{LIMIT, dtrace, printed, start};

tests! {
    libraries_that_are_opened_later_have_their_probes
    a_process_may_open_any_number_of_libraries
    a_target_that_is_held_has_probes_in_constructors
    stacks_of_a_clause_whose_probes_come_later_have_names
    a_program_that_is_executed_has_its_probes
    a_target_goes_on_when_its_tracer_is_killed
    returns_are_moved_when_code_that_unwinds_is_loaded
}

/// Its constructor calls the function too.
const LIBRARY: &str = r#"
__attribute__((noinline, noclone)) long FUNCTION(long n) { __asm__ volatile(""); return n + 1; }
__attribute__((constructor)) static void begin(void) { FUNCTION(100); }
"#;

/// Opens the libraries of its arguments in turns, calls the function of each ten times, and closes
/// it. In the first round it waits until it is told, by a signal, that the first call was seen.
/// Before the last rounds it goes on until its input ends.
const OPENS: &str = r#"
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t seen;
static void told(int unused) { seen = 1; }
int main(int argc, char **argv)
{
    int rounds = atoi(argv[1]), waits = !strcmp(argv[2], "wait"), goes_on = !strcmp(argv[2], "input");
    struct pollfd input = { .fd = 0, .events = POLLIN };
    signal(SIGUSR1, told);
    for (int round = 0; round < rounds; round += !goes_on || poll(&input, 1, 0) != 0)
        for (int n = 3; n < argc; n++) {
            void *library = dlopen(argv[n], RTLD_NOW);
            long (*f)(long) = library ? (long (*)(long)) dlsym(library, "f") : NULL;
            if (!f)
                return 3;
            for (seen = 0; waits && round == 0 && !seen; usleep(1000))
                f(-1);
            for (long i = 0; i < 10; i++)
                f(i);
            dlclose(library);
        }
    return 9;
}
"#;

/// The program, with libraries of these names.
fn opens(name: &str, libraries: &[&str]) -> Result<(Programs, String, Vec<String>), Verdict> {
    let (dir, program) = Programs::new(name, ("cc", OPENS), &["-ldl"])?;
    let library = |name: &&str| dir.library(name, ("cc", LIBRARY), &["-DFUNCTION=f"]);
    let libraries = libraries.iter().map(library).collect();
    Ok((dir, program, libraries))
}

/// What a probe does that tells the program that it was seen.
const TELL: &str = "/arg0 == -1/ { raise(SIGUSR1); }";

fn libraries_that_are_opened_later_have_their_probes() -> Verdict {
    let (_dir, program, libraries) = compiled!(opens("later", &["libone.so", "libtwo.so.1"]));
    let command = format!("{program} 3 wait {}", libraries.join(" "));
    for module in
        ["libone*,pid$target:libtwo", "", "lib*", "lib[ot][nw]?.so*", "libone.so,pid$target:libtwo.so.1"]
    {
        let probes = format!("pid$target:{}:f:entry", module.replace(',', ":f:entry,"));
        let script = format!(
            "{probes} {TELL} {probes} /arg0 >= 0 && arg0 < 10/ {{ @[probemod] = count(); @sum[probemod] = sum(arg0); }} \
             END {{ printa(\"%s %@d %@d\\n\", @, @sum); }}"
        );
        // Without `-Z` a description must match something, as in the original.
        let o = dtrace(&["-x", "exithold=no", "-wZqc", &command, "-n", &script]).code(0);
        assert_eq!(o.out.trim(), "libone.so 30 135\nlibtwo.so.1 30 135", "{module}: {o:?}");
    }
    Pass
}

fn a_process_may_open_any_number_of_libraries() -> Verdict {
    let names: Vec<String> = (0..40).map(|n| format!("lib{n}.so")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (_dir, program, libraries) = compiled!(opens("many", &names));
    if let Some(skip) = crate::machine::lacks(Facility::UprobeMulti) {
        return skip;
    }
    let command = format!("{program} 1 wait {}", libraries.join(" "));
    let script = format!(
        "pid$target:lib[0-9]*:f:entry {TELL} pid$target:lib[0-9]*:f:return /arg1 > 0 && arg1 <= 10/ {{ @[probemod] = count(); }} \
         END {{ printa(\"%@d\\n\", @); }}"
    );
    let o = dtrace(&["-x", "exithold=no", "-wZqc", &command, "-n", &script]).code(0);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["10"; 40], "{o:?}");
    Pass
}

fn a_target_that_is_held_has_probes_in_constructors() -> Verdict {
    let (_dir, program, libraries) = compiled!(opens("held", &["libone.so", "libtwo.so"]));
    let command = format!("{program} 3 runs {}", libraries.join(" "));
    let script = "pid$target:lib*:f:entry { @[probemod] = count(); @sum[probemod] = sum(arg0); } \
                  pid$target:libtwo:f:return { @value = sum(arg1); } \
                  END { printa(\"%s %@d %@d\\n\", @, @sum); printa(\"%@d\", @value); }";
    let o = dtrace(&["-Zqc", &command, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "libone.so 33 435\nlibtwo.so 33 435\n468", "{o:?}");
    // What matches something at the start is followed without `-Z`.
    let script = "pid$target::[bu][es][gl][ie][ne]*:entry /probefunc == \"begin\"/ { @[probemod] = count(); } \
                  END { printa(\"%s %@d\\n\", @); }";
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "libone.so 3\nlibtwo.so 3", "{o:?}");
    Pass
}

/// Nothing of the session shows a stack before the library is loaded, and the target ends right
/// after it was.
fn stacks_of_a_clause_whose_probes_come_later_have_names() -> Verdict {
    let (_dir, program, libraries) = compiled!(opens("stacks", &["libone.so"]));
    let command = format!("{program} 1 runs {}", libraries.join(" "));
    for (what, named) in [
        ("{ ustack(2); }", &["libone.so`f", "program`main+0x"][..]),
        ("{ @[ustack(2)] = count(); }", &["libone.so`f", "program`main+0x"]),
        ("{ @[ufunc(ucaller)] = count(); }", &["program`main"]),
    ] {
        let script = format!("pid$target:libone.so:f:entry /arg0 == 3/ {what}");
        let o = dtrace(&["-Zqc", &command, "-n", &script]).code(0);
        assert!(named.iter().all(|name| o.out.contains(name)), "{what}: {o:?}");
    }
    Pass
}

fn a_program_that_is_executed_has_its_probes() -> Verdict {
    let (dir, program, libraries) = compiled!(opens("exec", &["libone.so"]));
    let shell = dir.path().join("starts.sh").display().to_string();
    std::fs::write(&shell, format!("exec {program} 2 runs {}\n", libraries.join(" "))).unwrap();
    let command = format!("/bin/sh {shell}");
    let script = "pid$target:a.out:main:entry, pid$target::f:entry, pid$target:libc:dlopen:entry, pid$target:a.out:main:return \
                  { @[probemod, probefunc, probename] = count(); } END { printa(\"%s %s %s %@d\\n\", @); }";
    let o = dtrace(&["-Zqc", &command, "-n", script]).code(0);
    let mut lines: Vec<&str> = o.out.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    let expected =
        ["libc.so.6 dlopen entry 2", "libone.so f entry 22", "program main entry 1", "program main return 1"];
    assert_eq!(lines, expected, "{o:?}");
    // What the first program was asked for and the second one does not have is gone, without a
    // word.
    let script =
        "pid$target::*main:entry /probemod == \"program\" && probefunc == \"main\"/ { @ = count(); }";
    assert_eq!(dtrace(&["-qc", &command, "-n", script]).code(0).last_number(), 1);
    Pass
}

/// The exit status of a process that ends soon.
pub(crate) fn end_of(process: &mut Child) -> Option<i32> {
    eventually("the end of the process", LIMIT, || process.try_wait().unwrap()).code()
}

fn a_target_goes_on_when_its_tracer_is_killed() -> Verdict {
    let (_dir, program, libraries) = compiled!(opens("killed", &["libone.so", "libtwo.so"]));
    for n in 0..8u64 {
        let mut command = Command::new(&program);
        let mut process =
            command.args(["50", "input"]).args(&libraries).stdin(Stdio::piped()).spawn().unwrap();
        let pid = process.id().to_string();
        let script = "BEGIN { printf(\"%d\\n\", $target); } pid$target:lib*:f:entry { @ = count(); }";
        let mut tracer = start(&["-Zq", "-p", &pid, "-n", script]);
        printed(&mut tracer);
        // At another moment each time.
        std::thread::sleep(Duration::from_micros(3000 + 1700 * n));
        // Its main thread is gone at once, and the one that traces with it.
        tracer.kill().unwrap();
        tracer.wait().unwrap();
        // It opens them fifty times more.
        drop(process.stdin.take());
        assert_eq!(end_of(&mut process), Some(9), "{n}");
    }
    Pass
}

/// A program in C, without code that unwinds, that opens a library in C++. That one throws through
/// a function of the program.
const PLAIN: &str = r#"
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
static volatile sig_atomic_t seen;
static void told(int unused) { seen = 1; }
__attribute__((noinline, noclone)) int through(int (*f)(int), int n) { int v = f(n); __asm__ volatile(""); return v + 1; }
static int plain(int n) { return n; }
int main(int argc, char **argv)
{
    signal(SIGUSR1, told);
    for (int i = 0; i < 5; i++)
        through(plain, i);
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*run)(int (*)(int (*)(int), int)) = library ? (int (*)(int (*)(int (*)(int), int))) dlsym(library, "run") : 0;
    if (!run)
        return 3;
    for (; argc > 2 && !seen; usleep(1000))
        through(plain, -1);
    return run(through);
}
"#;

const THROWS: &str = r#"
#include <stdexcept>
static int thrower(int n) { if (n % 3 == 0) throw std::runtime_error("x"); return n; }
extern "C" int run(int (*through)(int (*)(int), int))
{
    int sum = 0, caught = 0;
    for (int n = 0; n < 30; n++)
        try { sum += through(thrower, n); } catch (std::exception &e) { caught++; }
    return caught == 10 && sum == 300 + 20 ? 9 : 1;
}
"#;

fn returns_are_moved_when_code_that_unwinds_is_loaded() -> Verdict {
    let (dir, program) = compiled!(Programs::new("unwinds", ("cc", PLAIN), &["-ldl"]));
    if Command::new("c++").arg("--version").output().is_err() {
        return Verdict::Skip("no C compiler: c++".into());
    }
    let library = dir.library("libthrows.so", ("c++", THROWS), &[]);
    let script = "pid$target:a.out:through:return /arg1 > 0/ { @ = count(); @value = sum(arg1); } \
                  END { printa(\"%@d %@d\", @, @value); }";
    let status = "pid$target:a.out:main:return { printf(\"%d \", arg1); }";
    // Held where it loads the library: 5 returns before it, 20 of 30 calls after it.
    let o = dtrace(&["-qc", &format!("{program} {library}"), "-n", script, "-n", status]).code(0);
    assert_eq!(o.out.trim(), "9 25 335", "{o:?}");
    // Not held: it waits for a return whose instruction is known.
    let command = format!("{program} {library} wait");
    let tell = "pid$target:a.out:through:return /arg0 != 0/ { raise(SIGUSR1); }";
    // Without `-q`, which keeps warnings back.
    let o = dtrace(&["-x", "exithold=no", "-wc", &command, "-n", script, "-n", tell]).code(0);
    assert!(o.out.contains("25 335") && o.err.contains("exited with status 9"), "{o:?}");
    assert!(o.err.contains("has loaded code that unwinds through frames (it runs lib"), "{o:?}");
    Pass
}
