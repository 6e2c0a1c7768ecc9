//! Stacks of processes of 32 bits.

use std::process::Command;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::tool::{Output, dtrace};

tests! {
    stacks_of_32_bit_programs_are_walked_by_their_tables
    stacks_of_32_bit_programs_without_tables_are_walked_by_frame_pointers
    stacks_of_32_bit_programs_go_through_the_library_and_a_signal_handler
    a_stack_of_a_32_bit_program_that_nothing_describes_is_incomplete
}

/// A program that needs no library. Each function has another frame.
const PLAIN: &str = r#"
#define OUT __attribute__((noinline, noclone, used))
OUT int mark(int n)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(132), "b"(n) : "memory");
    return result;
}
OUT int third(int n) { volatile char room[100]; room[n % 100] = 1; int r = mark(0); __asm__ volatile(""); return r + room[n % 100]; }
OUT int second(int n) { _Alignas(64) volatile char room[64]; room[n % 64] = 2; int r = third(n + room[n % 64]); return r + room[3]; }
OUT int first(int a, int b, int c) { int r = second(a + b) + c; __asm__ volatile(""); return r * 2; }
OUT void begin(void)
{
    for (int i = 0; i < 10; i++) { first(i, 2, 3); __asm__ volatile(""); }
    __asm__ volatile("int $0x80" : : "a"(1), "b"(0));
}
__asm__(".text\n.globl _start\n.type _start, @function\n_start:\n.cfi_startproc\n.cfi_undefined eip\nxor %ebp, %ebp\ncall begin\nhlt\n"
        ".cfi_endproc\n.size _start, . - _start\n");
"#;

/// A program of the C library.
const LIBRARY: &str = r#"
#include <signal.h>
#include <string.h>
#include <unistd.h>
#define OUT __attribute__((noinline, noclone))
OUT void handler(int signal) { getpgid(0); __asm__ volatile(""); }
OUT int inner(int n) { for (int i = 0; i < n; i++) getpgid(0); return n; }
OUT int outer(int n) { return inner(n) + 1; }
int main(int argc, char **argv)
{
    signal(SIGUSR1, handler);
    if (argc > 1) raise(SIGUSR1);
    else outer(10);
    __asm__ volatile("");
    return 0;
}
"#;

/// Compiles a program in a directory of its own. `Err`: the test is skipped.
fn built(name: &str, source: &str, flags: &[&str]) -> Result<(testing::dir::Dir, String), Verdict> {
    if let Some(skip) = no_types() {
        return Err(skip);
    }
    let dir = testing::dir::Dir::new(&format!("narrow-{name}"));
    std::fs::write(dir.join("program.c"), source).unwrap();
    let words = ["-o", "program", "program.c", "-m32"];
    let done = Command::new("cc").current_dir(&*dir).args(words).args(flags).output();
    let path = dir.join("program").display().to_string();
    match done {
        Err(e) => return Err(Skip(format!("no C compiler: {e}"))),
        Ok(o) if !o.status.success() => {
            return Err(Skip(format!("no programs of 32 bits: {}", String::from_utf8_lossy(&o.stderr))));
        }
        Ok(_) => {}
    }
    match Command::new(&path).status() {
        Ok(_) => Ok((dir, path)),
        Err(e) => Err(Skip(format!("no programs of 32 bits: {e}"))),
    }
}

/// The functions of each stack that was printed, without their modules and offsets, and how often
/// it was met.
fn stacks(o: &Output) -> Vec<(Vec<String>, u64)> {
    let (mut all, mut frames) = (Vec::new(), Vec::new());
    for line in o.out.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.parse() {
            Ok(count) => all.push((std::mem::take(&mut frames), count)),
            Err(_) => {
                let name = line.split_once('`').map_or(line, |(_, name)| name);
                frames.push(name.split('+').next().unwrap_or_default().to_owned());
            }
        }
    }
    all
}

/// The stacks at a system call of a program.
fn traced(program: &str) -> Output {
    // The call of a number in the table of 32 bits has the name that it has there.
    let script = "syscall:::entry /pid == $target && probefunc == \"getpgid\"/ { @[ustack()] = count(); }";
    dtrace(&["-Zqc", program, "-n", script]).code(0)
}

const CHAIN: [&str; 6] = ["mark", "third", "second", "first", "begin", "_start"];

fn stacks_of_32_bit_programs_are_walked_by_their_tables() -> Verdict {
    let flags = ["-O2", "-fomit-frame-pointer", "-nostdlib", "-static", "-fno-pic", "-no-pie"];
    let (_dir, program) = match built("tables", PLAIN, &flags) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    let o = traced(&program);
    assert_eq!(stacks(&o), [(CHAIN.map(str::to_owned).to_vec(), 10)], "{o:?}");
    Pass
}

fn stacks_of_32_bit_programs_without_tables_are_walked_by_frame_pointers() -> Verdict {
    let flags = [
        "-O1",
        "-fno-omit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-fno-dwarf2-cfi-asm",
        "-nostdlib",
        "-static",
        "-fno-pic",
        "-no-pie",
    ];
    let source = PLAIN.replace(".cfi_startproc\\n.cfi_undefined eip\\n", "").replace(".cfi_endproc\\n", "");
    let (_dir, program) = match built("pointers", &source, &flags) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    let o = traced(&program);
    assert_eq!(stacks(&o), [(CHAIN.map(str::to_owned).to_vec(), 10)], "{o:?}");
    Pass
}

fn stacks_of_32_bit_programs_go_through_the_library_and_a_signal_handler() -> Verdict {
    let (_dir, program) = match built("library", LIBRARY, &["-O1", "-fomit-frame-pointer"]) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    let o = traced(&program);
    let all = stacks(&o);
    let [(frames, 10)] = &all[..] else { panic!("{all:?} {o:?}") };
    let from = frames.iter().position(|name| name == "inner").unwrap_or_else(|| panic!("{o:?}"));
    assert_eq!(frames[from..from + 3], ["inner", "outer", "main"], "{o:?}");
    assert!(frames[..from].contains(&"getpgid".to_owned()), "{o:?}");
    assert_eq!(frames.last().map(String::as_str), Some("_start"), "{o:?}");
    let o = traced(&format!("{program} signal"));
    let all = stacks(&o);
    let [(frames, 1)] = &all[..] else { panic!("{all:?} {o:?}") };
    let names = frames.iter().map(String::as_str);
    let own = names.filter(|name| ["handler", "__kernel_sigreturn", "main", "_start"].contains(name));
    let own: Vec<&str> = own.collect();
    assert_eq!(own, ["handler", "__kernel_sigreturn", "main", "_start"], "{o:?}");
    assert_eq!(frames[0], "__kernel_vsyscall", "{o:?}");
    Pass
}

fn a_stack_of_a_32_bit_program_that_nothing_describes_is_incomplete() -> Verdict {
    // The frame pointer is a register like others.
    let source = PLAIN
        .replace(".cfi_startproc\\n.cfi_undefined eip\\nxor %ebp, %ebp", "mov $0x1000, %ebp")
        .replace(".cfi_endproc\\n", "");
    let flags = [
        "-O1",
        "-fomit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-nostdlib",
        "-static",
        "-fno-pic",
        "-no-pie",
    ];
    let (_dir, program) = match built("nothing", &source, &flags) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    let o = traced(&program);
    let all = stacks(&o);
    let [(frames, 10)] = &all[..] else { panic!("{all:?} {o:?}") };
    let ends = (frames.first().map(String::as_str), frames.last().map(String::as_str));
    assert_eq!(ends, (Some("mark"), Some("[incomplete]")), "{o:?}");
    Pass
}
