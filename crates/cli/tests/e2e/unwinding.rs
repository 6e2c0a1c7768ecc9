//! Stacks of programs without frame pointers: the chain of calls is known, or a debugger says it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::debuggers::debugger;
use crate::machine::{no_clock, no_types};
use crate::pid::Programs;
use crate::tool::{LIMIT, Output, dtrace, finish, printed, signal, start};
use crate::usdt::line;

tests! {
    stacks_go_through_code_without_frame_pointers
    a_clock_sees_the_whole_stack
    stacks_go_through_a_signal_handler_and_an_aligned_frame
    the_end_of_a_signal_handler_has_the_stack_that_it_returns_to
    a_call_of_no_function_has_its_caller
    a_frame_that_another_register_describes_has_its_caller
    a_stack_has_at_most_127_frames
    a_stack_in_a_catch_block_is_whole
    stacks_of_python_are_those_of_a_debugger
    a_process_that_is_seen_is_incomplete_until_its_tables_are_there
    processes_that_end_at_once_have_whole_stacks_when_their_file_is_known
    stacks_whose_mappings_are_being_changed_are_counted
    a_file_that_is_installed_anew_has_whole_stacks
    files_of_an_overlay_have_whole_stacks_in_processes_that_end_at_once
    files_below_another_root_have_whole_stacks_in_processes_that_end_at_once
    without_tables_stacks_are_walked_by_frame_pointers
    code_without_a_description_is_walked_by_frame_pointers
    stacks_below_probed_returns_have_the_true_addresses
}

const PROGRAM: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define OUT __attribute__((noinline, noclone))
volatile int spins;
OUT void mark(void) { syscall(SYS_getpgid, 0); __asm__ volatile(""); }
OUT void spin(void)
{
    clock_t end = clock() + spins * (CLOCKS_PER_SEC / 1000);
    while (spins && clock() < end)
        for (volatile int i = 0; i < 100000; i++);
    mark();
    __asm__ volatile("");
}
OUT int compare(const void *a, const void *b)
{
    char buffer[200];
    memset(buffer, 1, sizeof buffer);
    __asm__ volatile("" : : "r"(buffer) : "memory");
    spin();
    return *(const int *)a - *(const int *)b;
}
OUT void sort(void) { int two[2] = {2, 1}; qsort(two, 2, sizeof *two, compare); __asm__ volatile(""); }
OUT void third(void) { sort(); __asm__ volatile(""); }
OUT void second(void) { third(); __asm__ volatile(""); }
OUT void first(void) { second(); __asm__ volatile(""); }
OUT void handler(int signal) { mark(); __asm__ volatile(""); }
OUT void aligned(int n)
{
    char some[n];
    _Alignas(64) char buffer[64];
    memset(some, 1, n);
    memset(buffer, 1, sizeof buffer);
    __asm__ volatile("" : : "r"(some), "r"(buffer) : "memory");
    raise(SIGUSR1);
    __asm__ volatile("" : : "r"(some), "r"(buffer) : "memory");
}
OUT void absent(void (*none)(void)) { none(); __asm__ volatile(""); }
void by_register(void);
__asm__(".text\n.type by_register, @function\nby_register:\n.cfi_startproc\n"
        "lea 8(%rsp), %r10\n.cfi_def_cfa r10, 0\nsub $264, %rsp\nmov $121, %eax\nxor %edi, %edi\nsyscall\n"
        "lea -8(%r10), %rsp\n.cfi_def_cfa rsp, 8\nret\n.cfi_endproc\n.size by_register, . - by_register\n");
OUT void registers(void) { by_register(); __asm__ volatile(""); }
OUT void fault(int signal) { mark(); _exit(0); }
OUT void deep(int n) { if (n) deep(n - 1); else mark(); __asm__ volatile(""); }
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    signal(SIGUSR1, handler);
    if (!strcmp(what, "signal")) aligned(argc * 100);
    else if (!strcmp(what, "deep")) deep(300);
    else if (!strcmp(what, "register")) registers();
    else if (!strcmp(what, "absent")) { signal(SIGSEGV, fault); absent((void (*)(void))(long)(argc - 2)); }
    else if (!strcmp(what, "loop")) for (alarm(600);; usleep(10000)) first();
    else { spins = atoi(what); first(); }
    __asm__ volatile("");
    return 0;
}
"#;

const FLAGS: [&str; 2] = ["-O2", "-fomit-frame-pointer"];

/// A program that was compiled, or the end of a test that is skipped.
macro_rules! compiled {
    ($built:expr) => {
        match $built {
            Ok(program) => program,
            Err(verdict) => return verdict,
        }
    };
}

fn program(name: &str) -> Result<(Programs, String), Verdict> {
    no_types().map_or_else(|| Programs::new(name, ("cc", PROGRAM), &FLAGS), Err)
}

/// The functions of the first stack that was printed: `module` and function of each frame, without
/// the offset.
fn frames(o: &Output) -> Vec<(String, String)> {
    let lines = o.out.lines().map(str::trim).skip_while(|l| l.is_empty()).take_while(|l| !l.is_empty());
    // Without the value of an aggregation.
    let lines = lines.filter(|l| l.parse::<u64>().is_err());
    let split = |line: &str| {
        let (module, function) = line.split_once('`').unwrap_or((line, ""));
        (module.to_owned(), function.split('+').next().unwrap_or_default().to_owned())
    };
    lines.map(split).collect()
}

/// The functions of the program, from the first one of `names` on, must be these, and the stack
/// ends at the start.
fn assert_chain(o: &Output, names: &[&str]) {
    let frames = frames(o);
    let own: Vec<&str> =
        frames.iter().filter(|(module, _)| module == "program").map(|(_, name)| name.as_str()).collect();
    let from = own.iter().position(|name| names.first() == Some(name));
    let from = from.unwrap_or_else(|| panic!("{names:?}: {o:?}"));
    // A static program has the functions of libc too.
    let known = |name: &&&str| names.contains(*name);
    let own: Vec<&str> = own[from..].iter().filter(known).copied().collect();
    assert_eq!(own, names, "{o:?}");
    assert_eq!(frames.last().map(|(_, name)| name.as_str()), Some("_start"), "{o:?}");
    assert!(!o.out.contains("[incomplete]"), "{o:?}");
}

const CHAIN: [&str; 9] = ["mark", "spin", "compare", "sort", "third", "second", "first", "main", "_start"];

fn stacks_go_through_code_without_frame_pointers() -> Verdict {
    let (_dir, dynamic) = compiled!(program("chain"));
    let build = Programs::new("static", ("cc", PROGRAM), &["-O2", "-fomit-frame-pointer", "-static"]);
    let (_other, fixed) = compiled!(build);
    for program in [dynamic, fixed] {
        for (probe, chain) in [
            ("syscall::getpgid:entry", &CHAIN[..]),
            ("syscall::getpgid:return", &CHAIN[..]),
            ("rawtp:::sys_enter", &CHAIN[..]),
            ("pid$target:a.out:mark:entry", &CHAIN[..]),
            ("pid$target:a.out:spin:entry", &CHAIN[1..]),
            ("pid$target:a.out:compare:entry", &CHAIN[2..]),
        ] {
            let wanted = if probe.starts_with("rawtp") { "arg1 == 121 &&" } else { "" };
            let script = format!("{probe} /{wanted} pid == $target/ {{ ustack(100); exit(0); }}");
            let o = dtrace(&["-qc", &program, "-n", &script]).code(0);
            assert_chain(&o, chain);
        }
        let script = "pid$target:a.out:spin:entry { printf(\"%d %A\\n\", ustackdepth, ucaller); ustack(100); exit(0); }";
        let o = dtrace(&["-qc", &program, "-n", script]).code(0);
        let (head, stack) = o.out.split_once('\n').unwrap_or_else(|| panic!("{o:?}"));
        let depth: usize = head.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(depth, stack.lines().filter(|l| !l.trim().is_empty()).count(), "{o:?}");
        assert!(head.contains("`compare+"), "{o:?}");
    }
    Pass
}

fn a_clock_sees_the_whole_stack() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let (_dir, program) = compiled!(program("clock"));
    let command = format!("{program} 300");
    let script = "profile-997 /pid == $target && arg1/ { @[ustack(100)] = count(); } END { trunc(@, 1); }";
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    if o.out.trim().is_empty() {
        return Skip("the clock did not fire".into());
    }
    assert_chain(&o, &CHAIN[1..]);
    Pass
}

fn stacks_go_through_a_signal_handler_and_an_aligned_frame() -> Verdict {
    let (_dir, program) = compiled!(program("signal"));
    let command = format!("{program} signal");
    let script = "syscall::getpgid:entry /pid == $target/ { ustack(100); exit(0); }";
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    assert_chain(&o, &["mark", "handler", "aligned", "main", "_start"]);
    Pass
}

fn the_end_of_a_signal_handler_has_the_stack_that_it_returns_to() -> Verdict {
    let (_dir, program) = compiled!(program("signal-end"));
    let command = format!("{program} signal");
    // The system call is the last instruction of its function.
    let script = "syscall::rt_sigreturn:entry /pid == $target/ { ustack(100); exit(0); }";
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    assert_chain(&o, &["aligned", "main", "_start"]);
    Pass
}

fn a_call_of_no_function_has_its_caller() -> Verdict {
    let (_dir, program) = compiled!(program("absent"));
    let command = format!("{program} absent");
    let script = "syscall::getpgid:entry /pid == $target/ { ustack(100); exit(0); }";
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    assert_chain(&o, &["mark", "fault", "absent", "main", "_start"]);
    assert!(o.out.lines().any(|line| line.trim() == "0x0"), "{o:?}");
    Pass
}

fn a_frame_that_another_register_describes_has_its_caller() -> Verdict {
    let (_dir, program) = compiled!(program("register"));
    let command = format!("{program} register");
    let script = "syscall::getpgid:entry /pid == $target/ { ustack(100); exit(0); }";
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    assert_chain(&o, &["by_register", "registers", "main", "_start"]);
    Pass
}

fn a_stack_has_at_most_127_frames() -> Verdict {
    let (_dir, program) = compiled!(program("deep"));
    let command = format!("{program} deep");
    let script =
        "syscall::getpgid:entry /pid == $target/ { printf(\"%d\\n\", ustackdepth); ustack(127); exit(0); }";
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    let deep = o.out.lines().filter(|l| l.contains("program`deep+")).count();
    assert!(o.out.starts_with("127\n") && (124..=126).contains(&deep), "{deep}: {o:?}");
    Pass
}

const CATCHES: &str = r#"
#include <stdexcept>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) void mark() { syscall(SYS_getpgid, 0); __asm__ volatile(""); }
__attribute__((noinline)) void thrower(int n) { if (n) throw std::runtime_error("x"); }
__attribute__((noinline)) void catcher(int n)
{
    try { thrower(n); } catch (std::exception &e) { mark(); __asm__ volatile(""); }
}
int main(int argc, char **argv) { catcher(argc); __asm__ volatile(""); return 0; }
"#;

fn a_stack_in_a_catch_block_is_whole() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_dir, program) = compiled!(Programs::new("catch", ("c++", CATCHES), &FLAGS));
    let script = "syscall::getpgid:entry /pid == $target/ { ustack(100); exit(0); }";
    // A reader that is not optimized needs more than the two seconds of `symtimeout` on an emulated
    // CPU.
    let o = dtrace(&["-x", "symtimeout=60s", "-qc", &program, "-n", script]).code(0);
    let own: Vec<String> = frames(&o).into_iter().filter(|(m, _)| m == "program").map(|(_, f)| f).collect();
    // The compiler may put what is after a catch into a part of its own.
    let own: Vec<&str> = own.iter().map(|name| name.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(own, ["mark()", "catcher(int)", "main", "_start"], "{o:?}");
    Pass
}

fn stacks_of_python_are_those_of_a_debugger() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // The interpreter calls otherwise what it has called often. It sleeps for so long as it is
    // told, for both.
    let code = "import time\ndef f():\n  n = 0\n  while True:\n    n += 1\n    time.sleep(0.001 if n < 300 else float(input('ready\\n')))\nprint(max([1], key=lambda n: f()))";
    let mut python = Command::new("python3");
    let Ok(mut python) = python.args(["-c", code]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    else {
        return Skip("no python3".into());
    };
    assert_eq!(line(&mut python), "ready");
    let pid = python.id().to_string();
    let script = "BEGIN { printf(\"begun\\n\"); } syscall::clock_nanosleep:entry /pid == $target/ { ustack(127); exit(0); }";
    let mut tracer = start(&["-q", "-x", "stacksymbols=no", "-p", &pid, "-n", script]);
    printed(&mut tracer);
    python.stdin.as_mut().unwrap().write_all(b"1000\n").unwrap();
    let o = finish(tracer).code(0);
    let theirs = debugger(python.id());
    let _ = python.kill();
    let _ = python.wait();
    let Some(theirs) = theirs.filter(|frames| frames.len() > 1) else { return Skip("no gdb".into()) };
    let ours: Vec<&str> = o.out.lines().skip(1).map(str::trim).filter(|l| !l.is_empty()).collect();
    assert!(ours.len() > 8, "{o:?}");
    assert_eq!(ours, theirs, "{o:?}");
    Pass
}

fn a_process_that_is_seen_is_incomplete_until_its_tables_are_there() -> Verdict {
    let (dir, program) = compiled!(program("seen"));
    // It is no target of the session.
    let mut process = Command::new(&program).arg("loop").spawn().unwrap();
    let pid = process.id();
    let script = format!("syscall::getpgid:entry /pid == {pid}/ {{ printf(\"=\\n\"); ustack(100); }}");
    let rows = dir.path().join("rows");
    let tracer = start(&["-qo", rows.to_str().unwrap(), "-n", &script]);
    let read = || std::fs::read_to_string(&rows).unwrap_or_default();
    let is_whole = |stack: &&str| ["`mark+", "`main+", "`_start+"].iter().all(|frame| stack.contains(frame));
    eventually("fifty whole stacks", LIMIT, || match read().split("=\n").filter(is_whole).count() {
        50.. => Ok(()),
        count => Err(format!("{count} in {}", read())),
    });
    signal(&tracer, libc::SIGTERM);
    finish(tracer).code(0);
    let _ = process.kill();
    let _ = process.wait();
    // All are incomplete before the first that is whole, and none behind it.
    let text = read();
    let all: Vec<bool> = text
        .split("=\n")
        .skip(1)
        .map(|stack| {
            assert!(is_whole(&stack) != stack.contains("[incomplete]"), "{stack}");
            is_whole(&stack)
        })
        .collect();
    assert!(all.is_sorted(), "{text}");
    Pass
}

/// It ends after three system calls, before anybody could look at it.
const SHORT: &str = r#"
#include <sys/syscall.h>
#include <unistd.h>
#define OUT __attribute__((noinline, noclone))
OUT long inner(long n) { long sum = 0; for (long i = 0; i < n; i++) sum += syscall(SYS_getpgid, 0); return sum; }
OUT long outer(long n) { return inner(n) + 1; }
int main(void) { return outer(3) == 0; }
"#;

/// How many processes run when the file is known.
const SHORT_PROCESSES: usize = 100;

/// Shell: runs a program until its file is known (a file `known`), and some times more.
fn until_known(program: &str, known: &Path) -> String {
    let known = known.display();
    format!(
        "n=0; run() {{ {program}; n=$((n+1)); }}; while [ ! -e {known} ]; do run; done; \
         for i in $(seq {SHORT_PROCESSES}); do run; done; echo $n >{known}.part; mv {known}.part {known}.runs\n"
    )
}

/// Runs these lines of the shell, which run the program again and again. The stacks of the last
/// processes are whole behind each of these files, which is written when some are.
fn short_lived(dir: &Path, lines: &str, known: &[PathBuf]) -> Verdict {
    let (rows, script) = (dir.join("rows"), dir.join("loop.sh"));
    std::fs::write(&script, lines).unwrap();
    let command = format!("sh {}", script.display());
    let clause = "syscall::getpgid:entry /execname == \"program\"/ { printf(\"=\\n\"); ustack(); }";
    let tracer = start(&["-qvo", rows.to_str().unwrap(), "-c", &command, "-n", clause]);
    let read = || std::fs::read_to_string(&rows).unwrap_or_default();
    let is_whole = |stack: &&str| {
        let frames = ["`inner+", "`outer+", "`main+", "`_start+"];
        frames.iter().all(|frame| stack.contains(frame)) && !stack.contains("[incomplete]")
    };
    // Each stack is behind such a line, also one without frames.
    let mut before = 1;
    for known in known {
        eventually("nine whole stacks", LIMIT, || {
            match read().split("=\n").skip(before).filter(is_whole).count() {
                9.. => Ok(()),
                count => Err(format!("{count} in {}", read())),
            }
        });
        std::fs::write(known, "").unwrap();
        let runs = || std::fs::read_to_string(known.with_extension("runs")).map_err(|e| e.to_string());
        let mut count = 0;
        eventually("the runs", LIMIT, || runs().map(|runs| count = runs.trim().parse::<usize>().unwrap()));
        before += 3 * count;
    }
    let o = finish(tracer).code(0);
    // Another tracer may read the mappings of a process while its stack is walked. That is counted.
    let counted = o.err.lines().find(|line| line.contains("could not tell what the process had mapped"));
    let busy =
        counted.and_then(|line| line.split_whitespace().find_map(|word| word.parse().ok())).unwrap_or(0);
    let text = read();
    let all: Vec<&str> = text.split("=\n").skip(1).collect();
    let last = &all[all.len() - 3 * SHORT_PROCESSES..];
    let missing: Vec<&&str> = last.iter().filter(|stack| !is_whole(stack)).collect();
    assert!(
        missing.len() <= busy,
        "{} of {}, {busy} busy: {missing:#?}\n{}",
        missing.len(),
        last.len(),
        o.err
    );
    Pass
}

/// True if what begins there is on an overlay: then its layers may be out of reach.
fn is_on_overlay(dir: &Path) -> bool {
    let system = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir).output();
    system.is_ok_and(|o| o.stdout.starts_with(b"overlay"))
}

const ON_OVERLAY: &str = "a file of an overlay is known when a process that runs it was looked at, where its layers cannot be reached";

fn processes_that_end_at_once_have_whole_stacks_when_their_file_is_known() -> Verdict {
    let built = no_types().map_or_else(|| Programs::new("short", ("cc", SHORT), &FLAGS), Err);
    let (dir, program) = compiled!(built);
    if is_on_overlay(dir.path()) {
        return Skip(ON_OVERLAY.into());
    }
    let known = dir.path().join("known");
    short_lived(dir.path(), &until_known(&program, &known), &[known])
}

fn stacks_whose_mappings_are_being_changed_are_counted() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // The kernel looks for a free place while it holds the lock of the mappings.
    let clause = "rawtp:::vm_unmapped_area /execname == \"date\"/ { @[ustack()] = count(); }";
    let dir = testing::dir::Dir::below(&testing::memory_dir(), "changing").unwrap();
    let script = dir.join("dates.sh");
    std::fs::write(&script, "for i in 1 2 3; do date; done >/dev/null\n").unwrap();
    let o = dtrace(&["-vqc", &format!("sh {}", script.display()), "-n", clause]).code(0);
    let said = o.err.lines().find(|line| line.contains("could not tell what the process had mapped"));
    assert!(o.out.contains("[incomplete]") && said.is_some(), "{o:?}");
    Pass
}

/// A directory in memory, in which this user can mount what no other process sees. The lines are
/// run in it.
fn in_mounts(name: &str, known: &[&str], lines: impl Fn(&Path) -> String) -> Verdict {
    let built = no_types().map_or_else(|| Programs::new(name, ("cc", SHORT), &FLAGS), Err);
    let (_programs, program) = compiled!(built);
    let dir = testing::dir::Dir::below(&testing::memory_dir(), name).unwrap();
    for name in ["lower", "upper", "work", "root"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    std::fs::copy(program, dir.join("lower/program")).unwrap();
    if is_on_overlay(&dir) {
        return Skip(ON_OVERLAY.into());
    }
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return Skip("no mount namespaces here".into());
    }
    let inside = dir.join("inside.sh");
    std::fs::write(&inside, lines(&dir)).unwrap();
    let known: Vec<PathBuf> = known.iter().map(|name| dir.join("root").join(name)).collect();
    short_lived(&dir, &format!("exec unshare --mount sh {}\n", inside.display()), &known)
}

fn a_file_that_is_installed_anew_has_whole_stacks() -> Verdict {
    in_mounts("anew", &["known", "again"], |dir| {
        // Another inode with the same build id.
        let program = dir.join("lower/program").display().to_string();
        let runs = |known| until_known(&program, &dir.join("root").join(known));
        let install = format!("cp {program} {program}.new && mv {program}.new {program}\n");
        runs("known") + &install + &runs("again")
    })
}

fn files_of_an_overlay_have_whole_stacks_in_processes_that_end_at_once() -> Verdict {
    in_mounts("overlay", &["known"], |dir| {
        let (at, known) = (dir.display(), dir.join("root/known"));
        let runs = until_known("./program", &known);
        format!(
            "cd {at} && mkdir merged && mount -t overlay -o lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work overlay merged && \
             cd merged || exit 9\n{runs}"
        )
    })
}

fn files_below_another_root_have_whole_stacks_in_processes_that_end_at_once() -> Verdict {
    in_mounts("below", &["known"], |dir| {
        std::fs::copy(dir.join("lower/program"), dir.join("root/program")).unwrap();
        std::fs::write(dir.join("root/loop.sh"), until_known("/program", Path::new("/known"))).unwrap();
        format!(
            "cd {}/root && for d in bin lib lib64 usr; do [ ! -d /$d ] || mkdir $d && mount --rbind /$d $d; done; \
             exec chroot . sh /loop.sh\n",
            dir.display()
        )
    })
}

fn without_tables_stacks_are_walked_by_frame_pointers() -> Verdict {
    let (_dir, program) = compiled!(program("without"));
    let script = "syscall::getpgid:entry /pid == $target/ { ustack(100); exit(0); }";
    let o = dtrace(&["-q", "-x", "unwindsize=0", "-c", &program, "-n", script]).code(0);
    assert!(frames(&o).len() < 6 && !o.out.contains("[incomplete]"), "{o:?}");
    Pass
}

fn code_without_a_description_is_walked_by_frame_pointers() -> Verdict {
    let flags = ["-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let built = no_types().map_or_else(|| Programs::new("bare", ("cc", PROGRAM), &flags), Err);
    let (_dir, program) = compiled!(built);
    // At the entry of a function its frame is not made yet. The code of libc between them has a
    // description.
    for (function, chain) in [("mark", &CHAIN[..]), ("spin", &CHAIN[1..]), ("compare", &CHAIN[2..])] {
        let script = format!("pid$target:a.out:{function}:entry {{ ustack(100); exit(0); }}");
        let o = dtrace(&["-qc", &program, "-n", &script]).code(0);
        assert_chain(&o, chain);
    }
    Pass
}

fn stacks_below_probed_returns_have_the_true_addresses() -> Verdict {
    let (_dir, program) = compiled!(program("returns"));
    let returns = ["spin", "compare", "third", "first"]
        .map(|f| format!("pid$target:a.out:{f}:return {{ @ = count(); }}"));
    let returns = returns.join(" ");
    for (probe, chain) in [
        ("syscall::getpgid:entry /pid == $target/", &CHAIN[..]),
        ("pid$target:a.out:mark:entry", &CHAIN[..]),
        ("pid$target:a.out:spin:entry", &CHAIN[1..]),
        ("pid$target:a.out:spin:return", &CHAIN[2..]),
        ("pid$target:a.out:second:return", &CHAIN[6..]),
    ] {
        let script = format!("{returns} {probe} {{ ustack(100); exit(0); }}");
        let o = dtrace(&["-q", "-x", "pidreturn=uretprobe", "-c", &program, "-n", &script]).code(0);
        assert_chain(&o, chain);
    }
    // Recursion: each frame has a return of its own, as far as the kernel probes them (64).
    let command = format!("{program} deep");
    let script = "pid$target:a.out:deep:return { @ = count(); } syscall::getpgid:entry /pid == $target/ { ustack(40); exit(0); }";
    let o = dtrace(&["-q", "-x", "pidreturn=uretprobe", "-c", &command, "-n", script]).code(0);
    assert!(o.out.lines().filter(|l| l.contains("program`deep+")).count() >= 37, "{o:?}");
    Pass
}
