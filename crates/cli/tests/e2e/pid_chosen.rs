//! Places of processes that no symbol tells: the implementation that was chosen of an indirect
//! function, and addresses.
//!
//! ARCH(x86-64): the instructions of [`PLACES`].

use std::process::{Child, Command, Stdio};

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::pid::{Programs, compiled};
use crate::tool::{LIMIT, Output, dtrace, finish, printed, start};
use crate::usdt::line;

tests! {
    indirect_functions_fire_where_their_implementations_are_called
    a_glob_has_the_choice_of_one_process
    a_resolver_that_cannot_be_known_is_said
    addresses_of_a_stripped_program_are_found_by_its_unwind_tables
}

/// Calls the function of its argument so often as the second says, by the address that the dynamic
/// linker gives, with nothing else after `main`.
const CALLER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
static char from[64] = "some words", to[64];
static wchar_t wide[64];
int main(int argc, char **argv)
{
    int calls = atoi(argv[2]);
    void *f = dlsym(RTLD_DEFAULT, argv[1]);
    if (!f)
        _exit(3);
    for (int i = 0; i < calls; i++) {
        if (strstr(argv[1], "chk"))
            ((void *(*)(void *, const void *, size_t, size_t))f)(to, from, 10, 64);
        else if (!strcmp(argv[1], "wmemset"))
            ((void *(*)(void *, wchar_t, size_t))f)(wide, 0, 10);
        else
            ((size_t (*)(const void *, const void *, size_t))f)(from, from, 10);
    }
    _exit(0);
}
"#;

fn indirect_functions_fire_where_their_implementations_are_called() -> Verdict {
    let (_programs, program) =
        compiled!(Programs::new("chosen", ("cc", CALLER), &["-O1", "-fno-builtin", "-Wl,-z,now", "-ldl"]));
    // The first ones have a record in libc, because it calls them. Of the others the resolver is
    // executed.
    for (n, function) in
        ["memcpy", "memchr", "memrchr", "__memcpy_chk", "__mempcpy_chk", "wmemset", "wmemcmp"]
            .iter()
            .enumerate()
    {
        let calls = 1000 + n;
        let command = format!("{program} {function} {calls}");
        // `dlsym` compares names in the dynamic linker, which has functions of its own.
        let script =
            format!("pid$target:libc:{function}:entry {{ @ = count(); }} END {{ printa(\"%@d\", @); }}");
        let o = dtrace(&["-x", "evaltime=main", "-qc", &command, "-n", &script]).code(0);
        assert_eq!((o.last_number(), &*o.err), (calls as i64, ""), "{function}: {o:?}");
    }
    Pass
}

/// Says where its `strlen` is in libc, and calls it a hundred times when a byte comes.
const CHOICE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static char text[64] = "words";
int main(void)
{
    size_t (*volatile f)(const char *) = strlen;
    Dl_info info;
    dladdr((void *)f, &info);
    printf("%ld\n", (long)f - (long)info.dli_fbase);
    fflush(stdout);
    getchar();
    for (int i = 0; i < 100; i++)
        f(text);
    _exit(0);
}
"#;

fn a_glob_has_the_choice_of_one_process() -> Verdict {
    let (_programs, program) =
        compiled!(Programs::new("choice", ("cc", CHOICE), &["-O1", "-fno-builtin", "-Wl,-z,now", "-ldl"]));
    let other = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512VL,-AVX512BW";
    for (glob, counts) in [(true, [100, 0]), (false, [100, 100])] {
        // Numbers of processes begin again at some time.
        let mut children = eventually("numbers in their order", LIMIT, || {
            let children = ["", other].map(|tunables| begun(&program, tunables));
            (children[0].id() < children[1].id()).then_some(children)
        });
        let places: Vec<String> = children.iter_mut().map(line).collect();
        if places[0] == places[1] {
            return Skip("there is one strlen for this processor".into());
        }
        let pids: Vec<String> = children.iter().map(|child| child.id().to_string()).collect();
        let description = match glob {
            true => "pid*:libc:strlen:entry".into(),
            false => pids.iter().map(|p| format!("pid{p}:libc:strlen:entry")).collect::<Vec<_>>().join(", "),
        };
        let script = format!("BEGIN {{ printf(\"on\\n\"); }} {description} {{ @[pid] = count(); }}");
        let mut tracer = start(&["-qp", &pids[0], "-p", &pids[1], "-n", &script]);
        printed(&mut tracer);
        children.iter_mut().for_each(|child| drop(child.stdin.take()));
        children.iter_mut().for_each(|child| drop(child.wait()));
        let o = finish(tracer).code(0);
        let count = |pid: &str| if o.out.contains(pid) { o.value_of(pid) } else { 0 };
        assert_eq!([count(&pids[0]), count(&pids[1])], counts, "{description}: {o:?}");
    }
    Pass
}

fn begun(program: &str, tunables: &str) -> Child {
    let mut command = Command::new(program);
    command.env("GLIBC_TUNABLES", tunables).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Resolvers that choose by what may change later, by another function, and never.
const RESOLVERS: &str = r#"
int later = 0;
__attribute__((noinline, noclone)) long one(long a) { __asm__ volatile(""); return a + 1; }
__attribute__((noinline, noclone)) long two(long a) { __asm__ volatile(""); return a + 2; }
__attribute__((noinline, noclone)) static int asked(void) { __asm__ volatile(""); return 1; }
static void *by_variable(void) { return later ? (void *)two : (void *)one; }
static void *by_call(void) { return asked() ? (void *)two : (void *)one; }
static void *by_nothing(void) { return (void *)two; }
long varies(long) __attribute__((ifunc("by_variable")));
long calls(long) __attribute__((ifunc("by_call")));
long fixed(long) __attribute__((ifunc("by_nothing")));
"#;

const USER: &str = r#"
extern int later;
long varies(long), calls(long), fixed(long);
int main(void)
{
    later = 1;
    long sum = 0;
    for (int i = 0; i < 10; i++)
        sum += varies(i) + calls(i) + fixed(i) + fixed(i);
    return sum == 225 ? 0 : 1;
}
"#;

fn a_resolver_that_cannot_be_known_is_said() -> Verdict {
    let dir = testing::dir::Dir::new("resolvers-library");
    std::fs::write(dir.join("library.c"), RESOLVERS).unwrap();
    let library = dir.join("libresolvers.so");
    let done = Command::new("cc")
        .current_dir(&*dir)
        .args(["-O1", "-fPIC", "-fvisibility=default", "-shared", "-o", "libresolvers.so", "library.c"])
        .output();
    if !done.is_ok_and(|o| o.status.success()) {
        return Verdict::Skip("no compiler of C with indirect functions".into());
    }
    let library = library.display().to_string();
    let rpath = format!("-Wl,-rpath,{}", dir.display());
    let (_programs, program) =
        compiled!(Programs::new("resolvers", ("cc", USER), &["-O1", &library, &rpath, "-Wl,-z,now"]));
    let fires = |function: &str| {
        let script = format!(
            "pid$target:libresolvers.so:{function}:entry {{ @ = count(); }} END {{ printa(\"%@d\", @); }}"
        );
        dtrace(&["-x", "evaltime=main", "-qc", &program, "-n", &script])
    };
    // The 20 calls, and the ten of `calls`, which has the same implementation.
    let o = fires("fixed").code(0);
    assert_eq!((o.last_number(), &*o.err), (30, ""), "{o:?}");
    // Both implementations have probes by their own names.
    let o = fires("one").code(0);
    assert_eq!((o.last_number(), &*o.err), (10, ""), "{o:?}");
    for (function, why) in [
        ("varies", "its resolver reads memory that may have changed since"),
        ("calls", "its resolver calls other functions"),
    ] {
        let o = fires(function).code(1);
        assert!(o.err.contains(&format!("libresolvers.so`{function} has no such probe: {why}")), "{o:?}");
    }
    Pass
}

/// Two functions that differ in that one has call frame information. Prints their addresses in the
/// file, and calls them.
const PLACES: &str = r#"
#include <stdio.h>
long add(long, long), bare(long, long);
extern char __executable_start;
__asm__(".text\n"
        ".globl add\n.type add,@function\nadd:\n.cfi_startproc\n"
        "push %rbp\nmov %rsp,%rbp\nlea (%rdi,%rsi),%rax\npop %rbp\nret\n"
        ".cfi_endproc\n.size add,.-add\n"
        ".globl bare\n.type bare,@function\nbare:\n"
        "push %rbp\nmov %rsp,%rbp\nlea (%rdi,%rsi),%rax\npop %rbp\nret\n"
        ".size bare,.-bare\n");
int main(int argc, char **argv)
{
    long sum = 0;
    printf("%lx %lx\n", (long)add - (long)&__executable_start, (long)bare - (long)&__executable_start);
    for (long i = 0; i < 1000; i++)
        sum += add(i, 1) + bare(i, 2);
    return sum != 1002000;
}
"#;

fn addresses_of_a_stripped_program_are_found_by_its_unwind_tables() -> Verdict {
    let (_named, named) = compiled!(Programs::new("places", ("cc", PLACES), &["-O1", "-pie", "-fPIE"]));
    let (_programs, stripped) =
        compiled!(Programs::new("stripped", ("cc", PLACES), &["-O1", "-pie", "-fPIE", "-s"]));
    let addresses = |program: &str| {
        let o = Command::new(program).output().unwrap();
        let text = String::from_utf8(o.stdout).unwrap();
        let addresses = text.split_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap());
        <[u64; 2]>::try_from(addresses.collect::<Vec<_>>()).unwrap()
    };
    let at = |program: &str, address: u64| {
        let script = format!(
            "pid$target:a.out:-:{address:x} {{ @n = count(); @s = sum(arg0); @m = max(arg1); }} \
             END {{ printa(\"%@d %@d %@d\", @n, @s, @m); }}"
        );
        dtrace(&["-xerrtags", "-qc", program, "-n", &script])
    };
    let nowhere = |o: Output| {
        assert!(o.err.contains("[D_PROC_OFF]"), "{o:?}");
        assert!(o.err.contains("no function of program is at this address"), "{o:?}");
    };
    for program in [&named, &stripped] {
        let [add, bare] = addresses(program);
        // The places of its instructions: `push` has one byte, `mov` three.
        for offset in [0, 1, 4, 8, 9] {
            let o = at(program, add + offset).code(0);
            assert!(o.out.ends_with("\n1000 499500 1\n"), "{offset}: {o:?}");
            assert_eq!(o.err, "", "{offset}");
        }
        let o = at(program, add + 2).code(1);
        let why = format!(
            "begins at {:x}
",
            add + 2
        );
        assert!(o.err.contains("[D_PROC_ALIGN]") && o.err.contains(&why), "{o:?}");
        nowhere(at(program, 0x12).code(1));
        let in_bare = at(program, bare + 4);
        match program == &named {
            true => assert!(in_bare.out.ends_with("\n1000 499500 2\n"), "{in_bare:?}"),
            false => nowhere(in_bare.code(1)),
        }
    }
    Pass
}
