//! Files in memory with the probes of a running program: damaged, many, without end, those of other
//! libraries.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{dtrace, finish, printed, signal, start};
use crate::usdt::{line, next};
use crate::usdt_dynamic::{EXPECTED, PROGRAM, Programs, SCRIPT, joined, made, ready, trace, wait};
use crate::usdt_later::own;

tests! {
    files_in_memory_that_are_damaged_hide_no_probes
    hundreds_of_files_of_one_process_hide_no_other_process
    a_process_that_makes_probes_without_end_has_a_limit_that_is_its_own
    a_debugger_reads_the_probes_of_a_file_in_memory
    files_of_libstapsdt_are_read
}

/// Maps damaged copies of its file of probes, one cut off, and one by the name of another provider.
const DAMAGED: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "dtrace_usdt.h"
static int put(const char *name, const char *bytes, size_t length)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    return fd < 0 || write(fd, bytes, length) != (ssize_t)length ||
        mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED;
}
int main(void)
{
    static char file[8192], copy[8192];
    dtusdt_provider *provider = dtusdt_provider_new("tstdyn");
    dtusdt_probe *probe = dtusdt_probe_add(provider, "sane", "int");
    if (dtusdt_provider_enable(provider, NULL) != 0 || pread(dtusdt_provider_fd(provider), file, 8192, 0) != 8192)
        return 1;
    for (int i = 0; i < 96; i++) {
        memcpy(copy, file, sizeof (file));
        memset(copy + i * 16, i % 2 ? 0xff : 0x7f, 16);
        if (put("dtrace:tstdyn", copy, sizeof (copy)))
            return 2;
    }
    if (put("dtrace:tstdyn", file, 5) || put("dtrace:syscall", file, sizeof (file)) || put("dtrace:\033[31m:x y", file, 100) ||
        put("libstapsdt:q", "", 0))
        return 3;
    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    for (int i = 0; i < 7; i++)
        DTUSDT_PROBE(probe, i);
    puts("fired");
    fflush(stdout);
    getchar();
    return 0;
}
"#;

fn files_in_memory_that_are_damaged_hide_no_probes() -> Verdict {
    let programs = made!(Programs::new("damaged"));
    let program = made!(programs.compile(DAMAGED, false));
    let mut process = wait(&mut Command::new(&program));
    let pid = ready(&mut process);
    let o = dtrace(&["-ln", &format!("tstdyn{pid}:::sane")]).code(0);
    let of = |module: &str| o.out.lines().any(|l| l.split_whitespace().nth(2) == Some(module));
    // What a file is named says nothing: its notes name the provider.
    assert!(of("dtrace_tstdyn") && of("dtrace_syscall") && !o.out.contains('\x1b'), "{o:?}");
    let o = dtrace(&["-ln", &format!("syscall{pid}:::")]);
    assert_ne!(o.code, Some(0), "{o:?}");
    let script = "tstdyn*:dtrace_tstdyn:sane:sane { @ = sum(arg0); } END { printa(\"%@d\", @); }";
    assert_eq!(trace(&mut process, script, pid, "fired"), "21");
    next(&mut process);
    assert!(process.wait().unwrap().success());
    Pass
}

/// Has 600 providers at once, more than dtrace keeps files open of.
const MANY: &str = r#"
#include <stdio.h>
#include <unistd.h>
#include "dtrace_usdt.h"
int main(void)
{
    char name[32];
    for (int i = 0; i < 600; i++) {
        dtusdt_provider *provider = dtusdt_provider_new("tstdyn");
        snprintf(name, sizeof (name), "fire-%d", i);
        dtusdt_probe_add(provider, name, "int");
        if (dtusdt_provider_enable(provider, NULL) != 0 || close(dtusdt_provider_fd(provider)) != 0)
            return 1;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    return 0;
}
"#;

fn hundreds_of_files_of_one_process_hide_no_other_process() -> Verdict {
    let (programs, victims) = (made!(Programs::new("many")), made!(Programs::new("victim")));
    let name = own("tstdyn");
    let named = |text: &str| text.replace("tstdyn", &name);
    let program = made!(programs.compile(&named(MANY), false));
    let victim = made!(victims.compile(&named(PROGRAM), false));
    let mut process = wait(&mut Command::new(&program));
    ready(&mut process);
    let mut victim = wait(&mut Command::new(&victim));
    let pid = ready(&mut victim);
    let o = dtrace(&["-ln", &format!("{name}*:::")]).code(0);
    let provider = format!("{name}{pid}");
    let of_victim = o.out.lines().filter(|l| l.split_whitespace().nth(1) == Some(&provider)).count();
    assert_eq!(of_victim, 4, "{o:?}");
    let mut child = start(&["-qn", &format!("BEGIN {{ printf(\"begun\\n\"); }} {}", named(SCRIPT))]);
    printed(&mut child);
    next(&mut victim);
    assert_eq!(line(&mut victim), "10 0");
    signal(&child, 15);
    let o = finish(child).code(0);
    assert_eq!(joined(o.out.trim_start_matches("begun")), EXPECTED);
    for process in [&mut victim, &mut process] {
        next(process);
        assert!(process.wait().unwrap().success());
    }
    Pass
}

/// Makes a provider with its first line of input, and 700 of 30 probes each when its probe is
/// traced: 4,617 probes more than come of one process, in more files than dtrace keeps of a usual
/// process. When as many probes are traced as its argument says, it waits for a line; then it fires
/// what is traced three times, and says how many there are and what the sum of their arguments is.
const ENDLESS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "dtrace_usdt.h"
#define PROVIDERS 700
#define PROBES 30
static dtusdt_probe *probes[1 + PROVIDERS * PROBES];
static int count;
static int make(int number, int of)
{
    char name[32];
    dtusdt_provider *provider = dtusdt_provider_new("tstend");
    for (int i = 0; i < of; i++) {
        snprintf(name, sizeof (name), "fire-%d-%d", number, i);
        if ((probes[count++] = dtusdt_probe_add(provider, name, "int")) == NULL)
            return 0;
    }
    return dtusdt_provider_enable(provider, NULL) == 0 && close(dtusdt_provider_fd(provider)) == 0;
}
static void until_traced(int most)
{
    for (int traced = 0; traced < most; usleep(20000)) {
        traced = 0;
        for (int i = 0; i < count; i++)
            traced += dtusdt_enabled(probes[i]) != 0;
    }
}
int main(int argc, char **argv)
{
    alarm(240);
    if (argc < 2 || getchar() == EOF || !make(0, 1))
        return 1;
    until_traced(1);
    for (int i = 1; i <= PROVIDERS; i++) {
        if (!make(i, PROBES))
            return 2;
    }
    until_traced(atoi(argv[1]));
    puts("full");
    fflush(stdout);
    getchar();
    int fired = 0;
    long sum = 0;
    for (int i = 0; i < 3 * count; i++) {
        if (dtusdt_enabled(probes[i % count])) {
            DTUSDT_PROBE(probes[i % count], i);
            fired++;
            sum += i;
        }
    }
    printf("%d %ld\n", fired, sum);
    fflush(stdout);
    getchar();
    return 0;
}
"#;

/// Says by its probe that it is there until it is told that this was seen: the clauses of that
/// probe run. Then it fires ten times.
const LATER: &str = r#"
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
#include "dtrace_usdt.h"
int main(void)
{
    alarm(240);
    dtusdt_provider *provider = dtusdt_provider_new("tstend");
    dtusdt_probe *probe = dtusdt_probe_add(provider, "later", "int");
    if (dtusdt_provider_enable(provider, NULL) != 0)
        return 1;
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (struct pollfd input = { .fd = 0, .events = POLLIN }; poll(&input, 1, 20) == 0;)
        DTUSDT_PROBE(probe, 1000);
    for (int i = 0; i < 10; i++)
        DTUSDT_PROBE(probe, i);
    return 0;
}
"#;

fn a_process_that_makes_probes_without_end_has_a_limit_that_is_its_own() -> Verdict {
    const MOST: usize = 1 << 14;
    let (programs, others) = (made!(Programs::new("endless")), made!(Programs::new("besides")));
    // Another session with this provider would have its own limit.
    let name = own("tstend");
    let named = |text: &str| text.replace("tstend", &name);
    let program = made!(programs.compile(&named(ENDLESS), false));
    let other = made!(others.compile(&named(LATER), false));
    let script = "BEGIN { printf(\"begun\\n\"); } tstend*:::fire-* { @n = count(); @sum = sum(arg0); } \
        tstend*:::later /arg0 == 1000/ { printf(\"hello %d\\n\", pid); } \
        tstend*:::later /arg0 < 1000/ { @later[probeprov] = sum(arg0 + 100); } \
        END { printf(\"\\n\"); printa(\"%@d\", @n); printa(\" %@d\\n\", @sum); printa(\"%s %@d\\n\", @later); }";
    // With its messages.
    let mut child = start(&["-Zn", &named(script)]);
    printed(&mut child);
    let mut process = wait(Command::new(&program).arg(MOST.to_string()));
    let pid = process.id();
    let mut expected: Vec<String> = Vec::new();
    // All others are traced: one that comes while probes do, one beside a process that has too
    // many, and one after it.
    let later = |child: &mut Child, expected: &mut Vec<String>| {
        let mut other = wait(&mut Command::new(&other));
        let pid = ready(&mut other);
        let hello = format!("hello {pid}");
        while !line(child).ends_with(&hello) {
            assert!(child.try_wait().unwrap().is_none(), "dtrace has ended");
        }
        expected.push(format!("{name}{pid} 1045"));
        next(&mut other);
        assert!(other.wait().unwrap().success());
    };
    next(&mut process);
    later(&mut child, &mut expected);
    assert_eq!(line(&mut process), "full");
    later(&mut child, &mut expected);
    next(&mut process);
    let fired = line(&mut process);
    // Not one more than the limit: what was fired is what was traced when the others had come.
    assert_eq!(fired.split(' ').next(), Some(&*(3 * MOST).to_string()), "{fired}");
    next(&mut process);
    assert!(process.wait().unwrap().success());
    later(&mut child, &mut expected);
    signal(&child, 15);
    let o = finish(child).code(0);
    let lines: Vec<&str> = o.out.lines().filter(|l| l.starts_with(&name) || **l == fired).collect();
    assert_eq!(lines.first(), Some(&&*fired), "{o:?}");
    let mut found = lines.get(1..).unwrap_or_default().to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{o:?}");
    let message = format!(
        "dtrace: probes of dtrace_{name} in process {pid} of user 0 are not enabled: a process brings at most {MOST} while tracing"
    );
    assert_eq!(o.err.lines().filter(|l| **l == message).count(), 1, "{o:?}");
    Pass
}

/// A library as libstapsdt makes them: each probe is a function without a type or a size, of four
/// nops and a return; the notes are not loaded, and there are no semaphores. Arguments are whole
/// registers, whatever their size.
const STAPSDT: &str = r#"
    .text
    .globl request
    .byte 0x90
request: nop
    nop
    nop
    nop
    ret
    .globl none
none: nop
    nop
    nop
    nop
    ret
    .section .stapsdt.base,"a",@progbits
base: .byte 0
    .section .note.stapsdt,"",@note
    .balign 4
    .4byte 8, 2f - 1f, 3
    .asciz "stapsdt"
1:  .8byte request, base, 0
    .asciz "tstdyn", "request", "-4@%rdi 8@%rsi -1@%rdx"
2:  .balign 4
    .4byte 8, 4f - 3f, 3
    .asciz "stapsdt"
3:  .8byte none, base, 0
    .asciz "tstdyn", "none", ""
4:  .balign 4
"#;

/// One segment with code from the beginning of the file, a writable one 2 MiB behind it with the
/// dynamic section, and nothing else.
const LAYOUT: &str =
    "-Wl,-z,noseparate-code,-z,max-page-size=0x200000,-z,norelro,--hash-style=sysv,--build-id=none";

/// Loads [`STAPSDT`] as libstapsdt does, and asks as it does whether a probe is traced.
const LOADER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
typedef void probe(unsigned long, unsigned long, unsigned long);
static int enabled(probe *p) { return *(volatile unsigned char *)p != 0x90; }
int main(int argc, char **argv)
{
    char bytes[65536], path[64];
    FILE *file = fopen(argv[argc - 1], "r");
    size_t length = fread(bytes, 1, sizeof (bytes), file);
    int fd = memfd_create("libstapsdt:tstdyn", MFD_CLOEXEC), prepared = 0;
    snprintf(path, sizeof (path), "/proc/self/fd/%d", fd);
    if (write(fd, bytes, length) != (ssize_t)length)
        return 2;
    void *library = dlopen(path, RTLD_LAZY);
    if (library == NULL)
        return 3;
    probe *request = (probe *)dlsym(library, "request"), *none = (probe *)dlsym(library, "none");
    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    for (int i = 0; i < 10; i++) {
        if (enabled(request)) {
            prepared++;
            request((unsigned long)-i, (unsigned long)"/index.html", 0x12fe);
        }
        none(0, 0, 0);
    }
    printf("%d\n", prepared);
    fflush(stdout);
    getchar();
    return 0;
}
"#;

fn files_of_libstapsdt_are_read() -> Verdict {
    if cfg!(not(target_arch = "x86_64")) {
        return Skip("libstapsdt has probes for x86-64 only".into());
    }
    let programs = made!(Programs::new("stapsdt"));
    let program = made!(programs.compile(LOADER, false));
    let (source, library) = (programs.0.join("library.s"), programs.0.join("library.so"));
    std::fs::write(&source, STAPSDT).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-nostdlib", "-s", LAYOUT, "-o"]);
    let o = command.arg(&library).arg(&source).output().unwrap();
    assert!(o.status.success(), "{o:?}");
    let mut process = wait(Command::new(&program).arg(&library));
    let pid = ready(&mut process);
    let o = dtrace(&["-ln", &format!("tstdyn{pid}:libstapsdt_tstdyn::")]).code(0);
    assert_eq!(o.out.lines().count(), 3, "{o:?}");
    let script = "tstdyn*:::request { @r = sum(args[0]); @p[copyinstr(arg1), args[2]] = count(); } tstdyn*:::none { @n = count(); } \
        END { printa(\"%@d \", @r); printa(\"%s %d %@d \", @p); printa(\"%@d\\n\", @n); }";
    assert_eq!(trace(&mut process, script, pid, "10"), "-45 /index.html -2 10 10");
    next(&mut process);
    assert!(process.wait().unwrap().success());
    Pass
}

fn a_debugger_reads_the_probes_of_a_file_in_memory() -> Verdict {
    let programs = made!(Programs::new("gdb"));
    let program = made!(programs.compile(PROGRAM, false));
    let mut process = wait(&mut Command::new(&program));
    let pid = ready(&mut process);
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let is_file = |path: &PathBuf| std::fs::read_link(path).unwrap().to_string_lossy().contains("dtrace:");
    let file = descriptors.map(|entry| entry.path()).find(is_file).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let base = maps.lines().find(|l| l.contains("dtrace:")).and_then(|l| l.split('-').next()).unwrap();
    let read = format!("add-symbol-file {} -o 0x{base}", file.display());
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", "set confirm off", "-ex", &read]);
    for text in [
        "break -probe-stap tstdyn:request__start",
        "echo set\\n",
        "continue",
        "continue",
        "p $_probe_argc",
        "p (int)$_probe_arg0",
        "p (char *)$_probe_arg1",
        "detach",
    ] {
        command.args(["-ex", text]);
    }
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut debugger) = started else { return Skip("no C compiler or no gdb".into()) };
    let mut said = String::new();
    while !said.ends_with("set\n") {
        let next = line(&mut debugger);
        assert!(!next.is_empty() || debugger.try_wait().unwrap().is_none(), "{said}");
        said += &format!("{next}\n");
    }
    next(&mut process);
    let o = debugger.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&o.stdout);
    // It counts the semaphore up while it waits, so the program evaluates the arguments: it stops
    // the second time.
    for expected in ["$1 = 2\n", "$2 = -1\n", "\"/index.html\""] {
        assert!(text.contains(expected), "{said}{text}");
    }
    assert_eq!(line(&mut process), "2 0");
    next(&mut process);
    assert_eq!(line(&mut process), "2 0");
    assert!(process.wait().unwrap().success());
    Pass
}
