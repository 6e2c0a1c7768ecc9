//! Functions of processes: a program of the test is traced, and every count is known.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;
use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::tool::{LIMIT, Output, dtrace, finish, printed, start, workload};

tests! {
    entries_and_returns_of_a_function_have_its_arguments_and_its_value
    arguments_on_the_stack_are_read
    a_return_at_its_instruction_says_which_one
    an_offset_is_one_instruction
    modules_are_named_in_every_way
    a_glob_that_ends_with_the_id_of_a_process_means_it
    the_stack_and_the_registers_are_those_of_the_entry
    a_string_in_a_page_that_is_not_there_yet_is_read
    a_process_that_runs_is_traced_and_no_other
    a_file_that_no_path_leads_to_is_traced
    what_cannot_be_read_may_unwind_and_is_named
    all_threads_of_a_process_are_traced_and_a_thread_is_no_process
    everything_of_a_program_is_listed_and_fires
    jumps_across_functions_leave_a_traced_program_as_it_is
    exceptions_pass_through_traced_functions
    panics_pass_through_traced_functions
    a_target_that_dies_ends_tracing
    what_is_not_there_is_named_with_its_tag
}

const PROGRAM: &str = r#"
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#define PLAIN __attribute__((noinline, noclone))
PLAIN long add(long a, long b) { __asm__ volatile(""); return a + b; }
PLAIN long seventh(long a, long b, long c, long d, long e, long f, long g) { __asm__ volatile(""); return g + a; }
PLAIN long last(long a) { __asm__ volatile(""); if (a > 5) return add(a, 1000); return a; }
PLAIN void path(const char *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
PLAIN char *get(unsigned long n) { char *p = malloc(n); __asm__ volatile("" : : "r"(p) : "memory"); return p; }
PLAIN const char *same(const char *p) { __asm__ volatile("" : "+r"(p)); return p; }
/* The program's own first page, where nobody has looked yet. */
static const char *image(void) { return mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY), 0); }
static jmp_buf place;
static ucontext_t context;
static volatile int n, sum;
PLAIN void leap(int v) { longjmp(place, v); }
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int status;
    if (!strcmp(what, "wait")) {
        if (argc > 2)
            mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(argv[2], O_RDONLY), 0);
        getchar();
    } else if (!strcmp(what, "die")) {
        for (;;)
            if (add(n++, 1) == 5000)
                abort();
    } else if (!strcmp(what, "jump")) {
        for (n = 0; n < 20; n++) {
            int v = setjmp(place);
            if (!v)
                leap(n + 1);
            sum += v;
        }
        n = 0;
        getcontext(&context);
        if (n++ < 5)
            setcontext(&context);
        if (!vfork())
            _exit(3);
        wait(&status);
        if (!fork())
            _exit(11);
        wait(&status);
        printf("%d %d %d\n", sum, n, WEXITSTATUS(status));
        return 7;
    }
    for (long i = 0; i < 10; i++) {
        add(i, 100);
        seventh(1, 2, 3, 4, 5, 6, i);
        last(i);
    }
    path(image());
    same(image());
    for (int i = 0; i < 7; i++)
        free(get(12345));
    return 0;
}
"#;

/// Four threads and then the first one call `add`.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
__attribute__((noinline, noclone)) long add(long a, long b) { __asm__ volatile(""); return a + b; }
static void *calls(void *unused)
{
    getchar();
    for (int i = 0; i < 1000; i++)
        add(i, 1);
    return NULL;
}
int main(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, calls, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 10; i++)
        add(i, 2);
    return 0;
}
"#;

const THROWS: &str = r#"
#include <cstdio>
#include <stdexcept>
__attribute__((noinline)) int thrower(int i) { if (i % 3 == 0) throw std::runtime_error("x"); return i; }
__attribute__((noinline)) int through(int i) { return thrower(i) + 1; }
int main()
{
    int sum = 0, caught = 0;
    for (int i = 0; i < 30; i++)
        try { sum += through(i); } catch (std::exception &e) { caught++; }
    std::printf("%d %d\n", sum, caught);
    return 9;
}
"#;

/// A directory with the program, which is removed at the end.
pub(crate) struct Programs(pub(crate) testing::dir::Dir);

impl Programs {
    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Compiles a program. `Err`: the test is skipped.
    pub(crate) fn new(
        name: &str,
        source: (&str, &str),
        words: &[&str],
    ) -> Result<(Programs, String), Verdict> {
        if let Some(skip) = lacks(Facility::UprobePerf) {
            return Err(skip);
        }
        let programs = Programs(testing::dir::Dir::new(&format!("pid-{name}")));
        let (compiler, text) = source;
        let file = if compiler == "c++" { "program.cc" } else { "program.c" };
        std::fs::write(programs.0.join(file), text).unwrap();
        let done = Command::new(compiler)
            .current_dir(&programs.0)
            .args(["-o", "program", file])
            .args(words)
            .output();
        match done {
            Ok(o) if o.status.success() => {
                let path = programs.0.join("program").display().to_string();
                Ok((programs, path))
            }
            Ok(o) => panic!("{o:?}"),
            Err(e) => Err(Skip(format!("no C compiler: {compiler}: {e}"))),
        }
    }

    /// Compiles a shared library, of a language whose compiler has compiled the program. Returns
    /// its path.
    pub(crate) fn library(&self, name: &str, (compiler, text): (&str, &str), words: &[&str]) -> String {
        let file = format!("{name}.{}", if compiler == "c++" { "cc" } else { "c" });
        std::fs::write(self.0.join(&file), text).unwrap();
        let shared = ["-shared", "-fPIC", "-O1", "-o", name, &file];
        let done = Command::new(compiler).current_dir(&self.0).args(shared).args(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        self.0.join(name).display().to_string()
    }

    fn c(name: &str) -> Result<(Programs, String), Verdict> {
        Programs::new(name, ("cc", PROGRAM), &["-O2", "-fno-omit-frame-pointer"])
    }
}

/// A program that was compiled, or the end of a test that is skipped.
macro_rules! compiled {
    ($built:expr) => {
        match $built {
            Ok(program) => program,
            Err(verdict) => return verdict,
        }
    };
}

pub(crate) use compiled;

fn entries_and_returns_of_a_function_have_its_arguments_and_its_value() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("values"));
    // `last` calls `add` four times, with its argument and 1000.
    let script = "pid$target:a.out:add:entry { @entry[arg1] = count(); @first = sum(arg0); } \
                  pid$target:a.out:add:return { @value = sum(arg1); @calls = count(); } \
                  END { printa(\"%d %@d\\n\", @entry); printa(\"%@d %@d %@d\\n\", @first, @value, @calls); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "1000 4\n100 10\n75 5075 14", "{o:?}");
    Pass
}

fn arguments_on_the_stack_are_read() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("stack"));
    let script = "pid$target::seventh:entry { @[arg0, arg5] = sum(arg6); } END { printa(\"%d %d %@d\", @); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "1 6 45", "{o:?}");
    Pass
}

fn a_return_at_its_instruction_says_which_one() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("ret"));
    // A jump to `add` is a return too: six calls return their argument, four jump.
    let script = "pid$target::last:return { @[arg0] = count(); } pid$target::add:return { @v = sum(arg1); } \
                  END { printa(\"%@d \", @); printa(\"%@d\", @v); }";
    let o = dtrace(&["-x", "pidreturn=ret", "-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["4", "6", "5075"], "{o:?}");
    let o = dtrace(&["-x", "pidreturn=uretprobe", "-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["10", "5075"], "{o:?}");
    Pass
}

fn an_offset_is_one_instruction() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("offset"));
    let o = dtrace(&["-ln", "pid$target:a.out:add:", "-c", &program]).code(0);
    let names: Vec<&str> = o.out.lines().skip(1).filter_map(|l| l.split_whitespace().last()).collect();
    assert!(names.starts_with(&["entry", "return", "0"]), "{o:?}");
    let offset = names.last().unwrap();
    let script = format!("pid$target:a.out:add:{offset} {{ @ = count(); }}");
    assert_eq!(dtrace(&["-qc", &program, "-n", &script]).code(0).last_number(), 14);
    // Every instruction of it is executed once a call; the glob matches `entry` too.
    let script = "pid$target:a.out:add:[0-9a-f]* { @[probename] = count(); } END { printa(\"%@d\\n\", @); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let counts: Vec<&str> = o.out.split_whitespace().collect();
    assert_eq!(counts, vec!["14"; names.len() - 1], "{o:?}");
    Pass
}

/// As in the original: its provider is looked for among those that the glob matches.
fn a_glob_that_ends_with_the_id_of_a_process_means_it() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("ends"));
    for provider in ["p*d$target", "*$target", "pi?$target", "[op]id$target", "p*$target"] {
        let script = format!("{provider}:a.out:add:entry {{ @[probeprov == \"pid$target\"] = count(); }}");
        let script = script.replace("\"pid$target\"", "strjoin(\"pid\", lltostr($target))");
        let o = dtrace(&["-qc", &program, "-n", &script]).code(0);
        assert_eq!(o.value_of("1"), 14, "{provider}: {o:?}");
    }
    let o = dtrace(&["-qc", &program, "-n", "q*d$target:a.out:add:entry {}"]).code(1);
    assert!(o.err.contains(":a.out:add:entry does not match any probes"), "{o:?}");
    Pass
}

fn modules_are_named_in_every_way() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("modules"));
    for module in ["libc.so.6", "libc.so", "libc", "libc*", "lib[c]", ""] {
        let script = format!("pid$target:{module}:malloc:entry /arg0 == 12345/ {{ @[probemod] = count(); }}");
        let o = dtrace(&["-qc", &program, "-n", &script]).code(0);
        assert_eq!(o.value_of("libc.so.6"), 7, "{module}: {o:?}");
    }
    for module in ["a.out", "program", "prog*"] {
        let o =
            dtrace(&["-qc", &program, "-n", &format!("pid$target:{module}:add:entry {{ @ = count(); }}")]);
        assert_eq!(o.code(0).last_number(), 14, "{module}");
    }
    Pass
}

fn the_stack_and_the_registers_are_those_of_the_entry() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("frames"));
    let script = "pid$target:libc:malloc:entry /arg0 == 12345/ { @[ustack(3)] = count(); \
                  @pc[ufunc(uregs[R_RIP]), uregs[R_RDI]] = count(); @caller[ufunc(ucaller)] = count(); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    let frames: Vec<&str> = words.iter().take(3).map(|w| w.split('+').next().unwrap_or("")).collect();
    assert_eq!(frames, ["libc.so.6`malloc", "program`get", "program`main"], "{o:?}");
    assert_eq!(
        words.get(3..),
        Some(&["7", "libc.so.6`malloc", "12345", "7", "program`get", "7"][..]),
        "{o:?}"
    );
    Pass
}

fn a_string_in_a_page_that_is_not_there_yet_is_read() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("pages"));
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    // After the return, and at the instruction that returns.
    for (probe, text, option) in
        [("path:entry", "arg0", "auto"), ("same:return", "arg1", "uretprobe"), ("same:return", "arg1", "ret")]
    {
        let script = format!("pid$target:a.out:{probe} {{ printf(\"%s\", copyinstr({text})); }}");
        let o = dtrace(&["-qc", &program, "-x", &format!("pidreturn={option}"), "-n", &script]).code(0);
        assert!(o.out.starts_with("\u{7f}ELF"), "{probe} {option}: {o:?}");
    }
    Pass
}

fn a_process_that_runs_is_traced_and_no_other() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("other"));
    let wait = |name: &str| {
        Command::new(&program).arg(name).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    };
    let (mut one, mut other) = (wait("wait"), wait("wait"));
    let script = "BEGIN { printf(\"%d\\n\", $target); } pid$target:a.out:add:entry { @[pid] = count(); } \
                  END { printa(\"%@d\", @); }";
    let mut child = start(&["-q", "-p", &one.id().to_string(), "-n", script]);
    printed(&mut child);
    for process in [&mut other, &mut one] {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    let o = finish(child).code(0);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), [&one.id().to_string(), "14"], "{o:?}");
    Pass
}

/// Traces the calls of `add` in a process that waits for the end of its input.
fn calls_of_add(process: &mut Child, module: &str) -> Output {
    let script = format!(
        "BEGIN {{ printf(\"%d\\n\", $target); }} pid$target:{module}:add:entry {{ @[pid == $target] = count(); }}"
    );
    let mut child = start(&["-q", "-p", &process.id().to_string(), "-n", &script]);
    printed(&mut child);
    drop(process.stdin.take());
    process.wait().unwrap();
    finish(child).code(0)
}

fn a_file_that_no_path_leads_to_is_traced() -> Verdict {
    let (dir, program) = compiled!(Programs::c("gone"));
    let other = |path: &Path| std::fs::copy("/bin/true", path).unwrap();
    let wait =
        || Command::new(&program).arg("wait").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // In a mount namespace of its own, where the path is that of another file here.
    let inner = dir.0.join("inner");
    std::fs::create_dir(&inner).unwrap();
    other(&inner.join("program"));
    let (from, to) = (dir.0.display(), inner.display());
    let script = format!("mount -t tmpfs none {to} && cp {from}/program {to} && exec {to}/program wait");
    let words = ["--mount", "sh", "-c", &script];
    let inside = Command::new("unshare").args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let Ok(mut inside) = inside else { return Skip("no unshare".into()) };
    let exe = format!("/proc/{}/exe", inside.id());
    // The root of this machine may be that of a `chroot`, and this path is from the root of the
    // namespace.
    let ended = eventually("the program inside", LIMIT, || {
        let ended = inside.try_wait().unwrap();
        let is_there = std::fs::read_link(&exe).is_ok_and(|exe| exe.ends_with("inner/program"));
        (is_there || ended.is_some()).then_some(ended)
    });
    if let Some(status) = ended {
        return Skip(format!("no mount namespace: {status}"));
    }
    assert_eq!(calls_of_add(&mut inside, "a.out").value_of("1"), 14);
    // Removed, and then another one at its path.
    let mut processes = [wait(), wait(), wait()];
    let [removed, replaced, named] = &mut processes;
    std::fs::remove_file(&program).unwrap();
    assert_eq!(calls_of_add(removed, "a.out").value_of("1"), 14);
    other(Path::new(&program));
    assert_eq!(calls_of_add(replaced, "a.out").value_of("1"), 14);
    assert_eq!(calls_of_add(named, "program").value_of("1"), 14);
    Pass
}

fn what_cannot_be_read_may_unwind_and_is_named() -> Verdict {
    let (dir, program) = compiled!(Programs::c("odd"));
    let odd = dir.0.join("program.c");
    let mut process = Command::new(&program).arg("wait").arg(odd).stdin(Stdio::piped()).spawn().unwrap();
    let maps = format!("/proc/{}/maps", process.id());
    eventually("the mapping", LIMIT, || std::fs::read_to_string(&maps).unwrap().contains("program.c"));
    let script = "BEGIN { trace(1); } pid$target::add:return { @[\"calls\"] = count(); }";
    let mut child = start(&["-v", "-p", &process.id().to_string(), "-n", script]);
    printed(&mut child);
    drop(process.stdin.take());
    process.wait().unwrap();
    let o = finish(child).code(0);
    assert_eq!(o.value_of("calls"), 14, "{o:?}");
    let left_out = o.err.lines().any(|l| l.contains("left out: 1 (program.c): the functions of "));
    let by = "are probed by the instructions that return: program.c: the functions of ";
    assert!(left_out && o.err.contains(by), "{o:?}");
    Pass
}

fn all_threads_of_a_process_are_traced_and_a_thread_is_no_process() -> Verdict {
    let (_dir, program) = compiled!(Programs::new("threads", ("cc", THREADS), &["-O2", "-pthread"]));
    let wait = || Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
    let mut process = wait();
    assert_eq!(calls_of_add(&mut process, "a.out").value_of("1"), 4010);
    let mut process = wait();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    eventually("five threads", LIMIT, || threads().count() >= 5);
    let ids = threads().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let thread = ids.max_by_key(|id| id.parse::<u32>().unwrap() != process.id()).unwrap();
    let o = dtrace(&["-xerrtags", "-n", &format!("pid{thread}:a.out:add:entry")]).code(1);
    let says = format!("{thread} is a thread of process {}", process.id());
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(o.err.contains("[D_PROC_GRAB]") && o.err.contains(&says), "{o:?}");
    Pass
}

fn everything_of_a_program_is_listed_and_fires() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("all"));
    let o = dtrace(&["-ln", "pid$target:a.out::entry", "-c", &program]).code(0);
    for name in ["main", "add", "seventh", "last", "path", "get", "leap"] {
        let row = |l: &str| l.split_whitespace().skip(2).eq(["program", name, "entry"]);
        assert!(o.out.lines().any(row), "{name}: {o:?}");
    }
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    let script =
        "pid$target:::entry { @[probefunc] = count(); } pid$target:::return { @r[probefunc] = count(); }";
    for means in ["auto", "ret"] {
        let means = format!("pidreturn={means}");
        let o = dtrace(&["-x", &means, "-qc", &program, "-n", script]).code(0);
        let counts: Vec<&str> =
            o.out.lines().filter(|l| l.split_whitespace().next() == Some("add")).collect();
        assert_eq!(counts.len(), 2, "{o:?}");
        assert!(counts.iter().all(|l| l.ends_with(" 14")), "{o:?}");
        assert!(!o.err.contains("SIG"), "{o:?}");
    }
    Pass
}

fn jumps_across_functions_leave_a_traced_program_as_it_is() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("jumps"));
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    let command = format!("{program} jump");
    for means in ["auto", "ret"] {
        let means = format!("pidreturn={means}");
        let script = "pid$target:::entry, pid$target:::return { @ = count(); }";
        let o = dtrace(&["-x", &means, "-c", &command, "-n", script]).code(0);
        assert!(o.out.contains("210 6 11\n") && o.err.contains("exited with status 7"), "{means}: {o:?}");
    }
    Pass
}

fn exceptions_pass_through_traced_functions() -> Verdict {
    let (_dir, program) = compiled!(Programs::new("throws", ("c++", THROWS), &["-O1"]));
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    let script = "pid$target:::entry, pid$target:::return { @all = count(); } \
                  pid$target:a.out:through*:entry, pid$target:a.out:through*:return { @[probename] = count(); }";
    let o = dtrace(&["-c", &program, "-n", script]).code(0);
    assert!(o.out.contains("320 10\n") && o.err.contains("exited with status 9"), "{o:?}");
    assert_eq!((o.value_of("entry"), o.value_of("return")), (30, 20), "{o:?}");
    Pass
}

/// A function that panics for every third number.
#[inline(never)]
fn panics_sometimes(n: u32) -> u32 {
    if std::hint::black_box(n).is_multiple_of(3) { panic!("{n}") } else { n }
}

/// Calls it with so many numbers, and says how many panics were caught and the sum of the other
/// numbers.
pub(crate) fn catch_panics(count: u32) {
    std::panic::set_hook(Box::new(|_| {}));
    let results: Vec<_> = (0..count).map(|n| std::panic::catch_unwind(|| panics_sometimes(n))).collect();
    let sum: u32 = results.iter().flatten().sum();
    println!("caught {} of {count}, {sum}", results.iter().filter(|r| r.is_err()).count());
}

fn panics_pass_through_traced_functions() -> Verdict {
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    // All of this program, which is great, takes long to decode. These are the functions that a
    // panic leaves, and the unwinder's.
    let all = ["a.out:*panic*", "libgcc_s:"];
    let all = all.map(|of| format!("pid$target:{of}:entry, pid$target:{of}:return {{ @all = count(); }}"));
    let own = "pid$target:a.out:*panics_sometimes";
    let script = format!("{} {own}:entry, {own}:return {{ @[probename] = count(); }}", all.join(" "));
    let o = dtrace(&["-c", &workload("panics", 30), "-n", &script]).code(0);
    assert!(o.out.contains("caught 10 of 30, 300\n") && !o.err.contains("status"), "{o:?}");
    assert_eq!((o.value_of("entry"), o.value_of("return")), (30, 20), "{o:?}");
    Pass
}

fn a_target_that_dies_ends_tracing() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("dies"));
    let command = format!("{program} die");
    let script = "pid$target:a.out:add:entry { @ = count(); } pid$target:a.out:add:return { @r = count(); }";
    let o = dtrace(&["-c", &command, "-n", script]).code(0);
    assert!(o.err.contains("terminated by SIGABRT"), "{o:?}");
    let counts: Vec<&str> = o.out.split_whitespace().collect();
    assert_eq!(counts, ["5000", "5000"], "{o:?}");
    // So does one that is killed while it is traced.
    let mut one = Command::new(&program).arg("wait").stdin(Stdio::piped()).spawn().unwrap();
    let mut child = start(&[
        "-p",
        &one.id().to_string(),
        "-n",
        "BEGIN { trace(1); } pid$target:a.out::entry { @ = count(); }",
    ]);
    printed(&mut child);
    one.kill().unwrap();
    one.wait().unwrap();
    finish(child).code(0);
    Pass
}

// row tag.D_PROC_ALIGN, tag.D_PROC_CREATEFAIL, tag.D_PROC_FUNC, tag.D_PROC_GRAB, tag.D_PROC_LIB
// row tag.D_PROC_NAME, tag.D_PROC_OFF
fn what_is_not_there_is_named_with_its_tag() -> Verdict {
    let (_dir, program) = compiled!(Programs::c("tags"));
    for (description, tag, says) in [
        ("pid$target:a.out:add:enter", "D_PROC_NAME", "it is entry, return, or the offset of an instruction"),
        ("pid$target:a.out:ad:entry", "D_PROC_FUNC", "no function \"ad\" in program"),
        ("pid$target:libq:add:entry", "D_PROC_LIB", "it runs program, libc.so.6"),
        ("pid$target:a.out:add:fffff", "D_PROC_OFF", "add has only 0x"),
        ("pid$target:a.out:main:2", "D_PROC_ALIGN", "instructions begin at "),
        ("pid$target:libc:pthread_spin_lock:entry", "D_PROC_CREATEFAIL", "the prefix lock"),
        ("pid4194305:a.out:main:entry", "D_PROC_GRAB", "there is no process 4194305"),
    ] {
        let o = dtrace(&["-xerrtags", "-c", &program, "-n", description]).code(1);
        assert!(o.err.contains(&format!("[{tag}]")), "{description}: {o:?}");
        let o = dtrace(&["-c", &program, "-n", description]).code(1);
        assert!(o.err.contains(says) && o.err.contains("command line:1:1"), "{description}: {o:?}");
    }
    // A similar name helps, in a library too, and once for each name.
    for (description, near) in [
        ("pid$target:a.out:ad:entry,pid$target:a.out:ad:return", "add"),
        ("pid$target:libc:mallc:entry", "malloc"),
        ("pid$target::mallc:entry", "malloc"),
    ] {
        let o = dtrace(&["-c", &program, "-n", description]).code(1);
        let helps = o.err.matches(&format!("= help: did you mean `{near}`?\n")).count();
        assert_eq!(helps, description.split(',').count(), "{description}: {o:?}");
    }
    // With -Z what may come later is no error.
    dtrace(&["-Zc", &program, "-n", "pid$target:libq:add:entry { }"]).code(0);
    Pass
}
