//! Probes that programs make while they run (dynamic USDT), with the library for C.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;
use testing::dir::Dir;
use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start};
use crate::usdt::{line, next};
use crate::usdt_later::own;

tests! {
    a_program_in_c_makes_probes_while_it_runs
    a_program_in_cpp_makes_probes_in_an_unlinked_file
    probes_of_a_process_in_a_container_are_traced
    a_provider_that_is_made_again_is_the_one_that_is_traced
}

/// Waits for a line of its input before and after it fires. With a word it makes the file of its
/// probes in that directory.
pub(crate) const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "dtrace_usdt.h"
static int prepared;
static int prepare(int i) { prepared++; return i; }
int main(int argc, char **argv)
{
    dtusdt_provider *provider = dtusdt_provider_new("tstdyn");
    dtusdt_probe *start = dtusdt_probe_add(provider, "request-start", "int id, char *path");
    dtusdt_probe *many = dtusdt_probe_add(provider, "many", "int8_t, uint8_t, short, unsigned short s, const int i, unsigned, "
        "int64_t, unsigned long, int32_t, int16_t, signed char, struct thing *p");
    dtusdt_probe *none = dtusdt_probe_add(provider, "none", "");
    dtusdt_probe *child = dtusdt_probe_add(provider, "child", "int");
    if (dtusdt_probe_add(provider, "none", "int") || dtusdt_probe_add(provider, "a:b", "") || dtusdt_probe_add(provider, "x", "double") ||
        dtusdt_probe_add(provider, "x", "int); probe y(") || dtusdt_probe_add(provider, "x", "thing_t t") || dtusdt_provider_new("v2") ||
        dtusdt_provider_new("") || dtusdt_probe_add(provider, "x", "int,") || dtusdt_probe_add(provider, "x", "long short"))
        return 2;
    if (dtusdt_provider_enable(provider, argc > 1 ? argv[1] : NULL) != 0) {
        perror("enable");
        return 3;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    for (int i = 0; i < 10; i++) {
        DTUSDT_PROBE(start, prepare(-i), "/index.html");
        DTUSDT_PROBE(many, -1, -1, -2, -2, -3, -3, -4, -4, -5, -6, -7, (void *)8);
        DTUSDT_PROBE(none);
    }
    if (fork() == 0) {
        for (int i = 0; i < 5; i++)
            DTUSDT_PROBE(child, i);
        _exit(dtusdt_enabled(child) ? 1 : 0);
    }
    int status = 0;
    wait(&status);
    printf("%d %d\n", prepared, WEXITSTATUS(status));
    fflush(stdout);
    getchar();
    DTUSDT_PROBE(start, prepare(1), "/late");
    printf("%d %d\n", prepared, dtusdt_enabled(start));
    dtusdt_provider_free(provider);
    return 0;
}
"#;

/// What [`PROGRAM`] fires.
pub(crate) const SCRIPT: &str = "tstdyn*:::request-start { @r = sum(args[0]); @p[copyinstr(arg1)] = count(); } \
    tstdyn*:::many { @m[args[0], args[1], args[2], args[3], args[4], (int64_t)args[5], args[6], (int64_t)args[7], args[8], args[9], \
    (int64_t)args[10], (int64_t)args[11]] = count(); } tstdyn*:::none { @n = count(); } \
    END { printa(\"%@d \", @r); printa(\"%s %@d \", @p); printa(@m); printa(\"%@d\\n\", @n); }";

pub(crate) const EXPECTED: &str = "-45 /index.html 10 -1 255 -2 65534 -3 4294967293 -4 -4 -5 -6 -7 8 10 10";

/// A directory with programs.
pub(crate) struct Programs(pub(crate) Dir);

/// The library's directory in the sources.
pub(crate) fn sources(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../usdt").join(part)
}

impl Programs {
    /// `Err`: the test is skipped.
    pub(crate) fn new(name: &str) -> Result<Programs, Verdict> {
        if let Some(skip) = lacks(Facility::UprobePerf) {
            return Err(skip);
        }
        Ok(Programs(Dir::new(&format!("dynamic-{name}"))))
    }

    /// Compiles a program with the library.
    pub(crate) fn compile(&self, text: &str, is_cpp: bool) -> Result<String, Verdict> {
        let (compiler, file) = if is_cpp { ("c++", "program.cc") } else { ("cc", "program.c") };
        std::fs::write(self.0.join(file), text).unwrap();
        let c = sources("c");
        let mut command = Command::new(compiler);
        command.current_dir(&*self.0).args(["-O2", "-Wall", "-Wextra", "-Werror", "-o", "program", file]);
        command.arg("-I").arg(&c).args(["-x", "c"]).arg(c.join("dtrace_usdt.c"));
        match command.output() {
            Ok(o) if o.status.success() => Ok(self.0.join("program").display().to_string()),
            Ok(o) => panic!("{o:?}"),
            Err(e) => Err(Skip(format!("no C compiler: {e}"))),
        }
    }
}

/// What was made, or the end of a test that is skipped.
macro_rules! made {
    ($built:expr) => {
        match $built {
            Ok(made) => made,
            Err(verdict) => return verdict,
        }
    };
}
pub(crate) use made;

pub(crate) fn wait(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The process id that a program prints.
pub(crate) fn ready(child: &mut Child) -> u32 {
    let first = line(child);
    first.strip_prefix("ready ").and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{first}"))
}

pub(crate) fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Traces a process that waits, from its first line to its second. `printed` is what it prints
/// between them.
pub(crate) fn trace(process: &mut Child, script: &str, pid: u32, expected: &str) -> String {
    let script =
        format!("BEGIN {{ printf(\"begun\\n\"); }} {}", script.replace("dyn*", &format!("dyn{pid}")));
    let mut child = start(&["-qn", &script]);
    printed(&mut child);
    next(process);
    assert_eq!(line(process), expected);
    signal(&child, 15);
    let o = finish(child).code(0);
    joined(o.out.trim_start_matches("begun"))
}

/// Waits until the kernel has counted all semaphores of a process down: some kernels detach after
/// the tracer has ended.
pub(crate) fn wait_until_not_traced(pid: u32) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let data = maps.lines().find(|l| l.contains("dtrace:") && l.contains(" rw-p ")).unwrap();
    let at = u64::from_str_radix(data.split('-').next().unwrap(), 16).unwrap();
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    eventually("the end of the tracing", LIMIT, || {
        let mut semaphores = [0; 8];
        memory.read_exact_at(&mut semaphores, at).unwrap();
        if semaphores == [0; 8] { Ok(()) } else { Err(format!("{semaphores:?}")) }
    });
}

fn fired(command: &mut Command) {
    let mut process = wait(command);
    let pid = ready(&mut process);
    // Each is its own function, and another process's probes are not this one's.
    let o = dtrace(&["-ln", &format!("tstdyn{pid}:::")]).code(0);
    let mut names: Vec<&str> = o.out.lines().skip(1).filter_map(|l| l.split_whitespace().nth(4)).collect();
    names.sort_unstable();
    assert_eq!(names, ["child", "many", "none", "request-start"], "{o:?}");
    assert_eq!(trace(&mut process, SCRIPT, pid, "10 0"), EXPECTED);
    wait_until_not_traced(pid);
    next(&mut process);
    // While nobody traces it, its arguments are not evaluated.
    assert_eq!(line(&mut process), "10 0");
    assert!(process.wait().unwrap().success());
}

fn a_program_in_c_makes_probes_while_it_runs() -> Verdict {
    let programs = made!(Programs::new("c"));
    let program = made!(programs.compile(PROGRAM, false));
    fired(&mut Command::new(&program));
    // By all processes that run, and a fork has the probes of its parent.
    let name = own("tstdyn");
    let program = made!(programs.compile(&PROGRAM.replace("tstdyn", &name), false));
    let mut process = wait(&mut Command::new(&program));
    let pid = ready(&mut process);
    let script = "BEGIN { printf(\"begun\\n\"); } tstdyn*:::none { @[probeprov] = count(); } END { printa(\"%s %@d\\n\", @); }";
    let mut child = start(&["-qn", &script.replace("tstdyn", &name)]);
    printed(&mut child);
    next(&mut process);
    assert_eq!(line(&mut process), "0 0");
    // The process ends, and the session goes on.
    next(&mut process);
    assert_eq!(line(&mut process), "0 0");
    assert!(process.wait().unwrap().success());
    signal(&child, 15);
    let o = finish(child).code(0);
    assert_eq!(o.out.trim().lines().last(), Some(&*format!("{name}{pid} 10")), "{o:?}");
    Pass
}

fn a_program_in_cpp_makes_probes_in_an_unlinked_file() -> Verdict {
    let programs = made!(Programs::new("cpp"));
    let program = made!(programs.compile(PROGRAM, true));
    fired(Command::new(&program).arg(&*programs.0));
    let left = std::fs::read_dir(&*programs.0).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().contains("dtrace:")).count(), 0);
    Pass
}

fn probes_of_a_process_in_a_container_are_traced() -> Verdict {
    let programs = made!(Programs::new("box"));
    let program = made!(programs.compile(PROGRAM, false));
    let words = ["--pid", "--fork", "--mount-proc", "--ipc", "--net", "--uts", &program];
    let mut command = Command::new("unshare");
    let Ok(mut process) = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        return Skip("no unshare".into());
    };
    let first = line(&mut process);
    if !first.starts_with("ready") {
        return Skip(format!("unshare: {}", process.wait().unwrap()));
    }
    assert_eq!(first, "ready 1");
    // Its number outside: the only child of `unshare`.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.id())).unwrap();
    let pid: u32 = children.trim().parse().unwrap();
    assert_eq!(trace(&mut process, SCRIPT, pid, "10 0"), EXPECTED);
    next(&mut process);
    assert!(process.wait().unwrap().success());
    Pass
}

/// Makes its provider anew many times, then several at once, and fires each of those that are left
/// three times.
const AGAIN: &str = r#"
#include <stdio.h>
#include <unistd.h>
#include "dtrace_usdt.h"
int main(void)
{
    dtusdt_provider *providers[100];
    dtusdt_probe *probes[100];
    char name[32];
    for (int i = 0; i < 1100; i++) {
        int at = i < 1000 ? 0 : i - 1000;
        snprintf(name, sizeof (name), "fire-%d", i);
        if (i > 0 && i <= 1000)
            dtusdt_provider_free(providers[0]);
        providers[at] = dtusdt_provider_new("tstdyn");
        probes[at] = dtusdt_probe_add(providers[at], name, "int");
        if (dtusdt_provider_enable(providers[at], NULL) != 0)
            return 1;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    for (int i = 0; i < 300; i++)
        DTUSDT_PROBE(probes[i % 100], i);
    puts("fired");
    fflush(stdout);
    getchar();
    return 0;
}
"#;

fn a_provider_that_is_made_again_is_the_one_that_is_traced() -> Verdict {
    let programs = made!(Programs::new("again"));
    let program = made!(programs.compile(AGAIN, false));
    let mut process = wait(&mut Command::new(&program));
    let pid = ready(&mut process);
    let o = dtrace(&["-ln", &format!("tstdyn{pid}:dtrace_tstdyn::fire-*")]).code(0);
    let mut names: Vec<&str> = o.out.lines().skip(1).filter_map(|l| l.split_whitespace().nth(4)).collect();
    names.sort_unstable();
    let expected: Vec<String> = (1000..1100).map(|i| format!("fire-{i}")).collect();
    assert_eq!(names, expected);
    let script = "tstdyn*:::fire-1000 { @first = sum(arg0); } tstdyn*:::fire-* { @all = sum(args[0]); @n = count(); } \
                  END { printa(\"%@d\", @first); printa(\" %@d\", @all); printa(\" %@d\", @n); }";
    // 0 + 100 + 200, and 0 to 299.
    assert_eq!(trace(&mut process, script, pid, "fired"), "300 44850 300");
    next(&mut process);
    assert!(process.wait().unwrap().success());
    Pass
}
