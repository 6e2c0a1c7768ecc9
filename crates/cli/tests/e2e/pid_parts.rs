//! Functions of which a compiler has moved a part elsewhere, because it is rarely executed: each is
//! one function.

use crate::Verdict::{self, Pass};
use crate::pid::{Programs, compiled};
use crate::tool::{Output, dtrace};
use crate::usdt;

tests! {
    a_function_in_two_parts_is_one_function
    a_part_that_catches_belongs_to_its_function
    functions_of_one_name_have_their_own_parts
    a_part_of_a_stripped_file_is_known_by_who_reaches_it
    what_is_called_is_a_function_whatever_its_name
    a_site_in_a_part_is_in_its_function
    a_part_that_only_exceptions_reach_belongs_to_its_function
    a_part_without_a_name_is_known_by_the_debug_information
}

/// `work` calls `rare` in a part of its own, and goes on behind it.
const COLD: &str = r#"
__attribute__((cold,noinline)) void rare(int n) { static volatile int k; k += n; }
volatile int sink;
__attribute__((noinline)) int work(int n)
{
    sink += n;
    if (n % 4 == 0) { rare(n); sink += 2; rare(n + 1); }
    sink++;
    return n;
}
int main(void) { for (int i = 0; i < 1000; i++) work(i); return 0; }
"#;

const COUNT: &str = "{ @[probefunc, probename] = count(); } END { printa(\"%s %s %@d\\n\", @); }";

/// The rows of counts by function and name, in order.
fn rows(o: &Output) -> Vec<&str> {
    let mut rows: Vec<&str> = o.out.lines().filter(|line| !line.is_empty()).collect();
    rows.sort_unstable();
    rows
}

fn a_function_in_two_parts_is_one_function() -> Verdict {
    let (_dir, program) = compiled!(Programs::new("parts", ("cc", COLD), &["-O2"]));
    for means in ["auto", "ret", "uretprobe"] {
        let script = format!("pid$target:a.out:work*:entry, pid$target:a.out:work*:return {COUNT}");
        let o = dtrace(&["-x", &format!("pidreturn={means}"), "-qc", &program, "-n", &script]).code(0);
        assert_eq!(rows(&o), ["work entry 1000", "work return 1000"], "{means}: {o:?}");
    }
    let script = "pid$target:a.out:work:return { @ = sum(arg1); }";
    let o = dtrace(&["-x", "pidreturn=ret", "-qc", &program, "-n", script]).code(0);
    assert_eq!(o.last_number(), 499_500, "{o:?}");
    let o = dtrace(&["-ln", "pid$target:a.out::entry", "-c", &program]).code(0);
    assert!(o.out.contains(" work ") && !o.out.contains("cold"), "{o:?}");
    let o = dtrace(&["-c", &program, "-n", "pid$target:a.out:work.cold:entry { }"]).code(1);
    assert!(o.err.contains("work.cold has no such probe: it is a part of work, whose entry"), "{o:?}");
    // The instructions of the part have their probes.
    let (_, address) = o.err.split_once("; -:").unwrap();
    let address: String = address.chars().take_while(char::is_ascii_hexdigit).collect();
    let script = format!("pid$target:a.out:-:{address} {{ @ = count(); }}");
    let o = dtrace(&["-qc", &program, "-n", &script]).code(0);
    assert_eq!(o.last_number(), 250, "{o:?}");
    Pass
}

/// `outer` catches in a part of its own. `mid` is left by an exception each third time.
const CATCHES: &str = r#"
#include <stdexcept>
#include <string>
__attribute__((noinline)) int thrower(int n) { if (n % 3 == 0) throw std::runtime_error("x" + std::to_string(n)); return n; }
__attribute__((noinline)) int mid(int n) { std::string s(n % 50, 'a'); return thrower(n) + (int)s.size(); }
int catches = 0;
__attribute__((noinline)) int outer(int n)
{
    try { return mid(n); }
    catch (std::exception &e) { __atomic_add_fetch(&catches, 1, __ATOMIC_RELAXED); return -1; }
}
int main() { for (int i = 0; i < 3000; i++) outer(i); return catches == 1000 ? 0 : 1; }
"#;

fn a_part_that_catches_belongs_to_its_function() -> Verdict {
    for words in [&["-O2"][..], &["-O2", "-s", "-rdynamic"]] {
        let (_dir, program) = compiled!(Programs::new("catches", ("c++", CATCHES), words));
        let of = |f: &str| format!("pid$target:a.out:{f}:entry, pid$target:a.out:{f}:return");
        let script = format!("{}, {} {COUNT}", of("outer*"), of("mid*"));
        let o = dtrace(&["-qc", &program, "-n", &script]).code(0);
        let right = ["mid entry 3000", "mid return 2000", "outer entry 3000", "outer return 3000"];
        assert_eq!(rows(&o), right, "{words:?}: {o:?}");
        let script = "pid$target:a.out:outer*:return /(int)arg1 == -1/ { @ = count(); }";
        let o = dtrace(&["-qc", &program, "-n", script]).code(0);
        assert_eq!(o.last_number(), 1000, "{words:?}: {o:?}");
    }
    Pass
}

/// Each file has a static function of this name, with a part that returns by itself.
fn one_of_a_name(file: &str, every: u32) -> String {
    format!(
        "extern volatile int sink; void rare(int);
         __attribute__((noinline)) static int same(int n)
         {{ if (__builtin_expect(n % {every} == 0, 0)) {{ rare(n); rare(n + 1); return -{every}; }} return n; }}
         int {file}(int n) {{ return same(n) + 1; }}"
    )
}

fn functions_of_one_name_have_their_own_parts() -> Verdict {
    let main = "__attribute__((cold,noinline)) void rare(int n) { static volatile int k; k += n; }
                volatile int sink; int first(int), second(int);
                int main(void) { for (int i = 0; i < 1000; i++) { first(i); second(i); } return 0; }";
    let dir = testing::dir::Dir::new("pid-same-sources");
    let files = [("first", 4), ("second", 5)].map(|(name, every)| {
        let path = dir.join(format!("{name}.c"));
        std::fs::write(&path, one_of_a_name(name, every)).unwrap();
        path.display().to_string()
    });
    let words = ["-O2", &files[0], &files[1]];
    let (_dir, program) = compiled!(Programs::new("same", ("cc", main), &words));
    let script = "pid$target:a.out:same:entry { @[\"entry\"] = count(); } pid$target:a.out:same:return { @[\"return\"] = count(); } \
                  pid$target:a.out:same:return /(int)arg1 < 0/ { @[(int)arg1 == -4 ? \"four\" : \"five\"] = count(); } \
                  END { printa(\"%s %@d\\n\", @); }";
    for means in ["ret", "uretprobe"] {
        let o = dtrace(&["-x", &format!("pidreturn={means}"), "-qc", &program, "-n", script]).code(0);
        assert_eq!(rows(&o), ["entry 2000", "five 200", "four 250", "return 2000"], "{means}: {o:?}");
    }
    Pass
}

/// What of a stripped library can be taken for a part, and what is one.
const LIBRARY: &str = r#"
#include <stdlib.h>
#define EXPORTED __attribute__((noinline,noclone))
volatile int sink;
__attribute__((cold,noinline)) static void rare(int n) { static volatile int k; k += n; }
/* A part that comes back, one that returns, and one that never does. */
EXPORTED int back(int n) { sink += n; if (n % 4 == 0) { rare(n); sink += 2; rare(n + 1); } sink++; return n; }
EXPORTED int own(int n) { if (__builtin_expect(n % 5 == 0, 0)) { rare(n); rare(n + 1); return -1; } return n; }
EXPORTED int never(int n) { if (n < 0) { rare(n); abort(); } return n; }
/* A function that is called, and the last call of another. */
__attribute__((noinline)) static int helper(int n) { sink += n; if (n > 3) sink *= 2; return n; }
EXPORTED int tail(int n) { if (n & 1) return helper(n); return n; }
EXPORTED int calls(int n) { return helper(n) + 1; }
/* One whose address is taken. */
__attribute__((noinline)) static int pointed(int n) { sink += n; return n; }
static int (*volatile table[])(int) = { pointed };
EXPORTED int last(int n) { sink--; return pointed(n); }
EXPORTED int through(int n) { return table[0](n) + 1; }
/* One that is only jumped to, by one function, and by two. */
__attribute__((noinline)) static int single(int n) { sink += n; return n; }
EXPORTED int jumps(int n) { sink--; return single(n); }
__attribute__((noinline)) static int shared(int n) { sink += n; return n; }
EXPORTED int one(int n) { sink--; return shared(n); }
EXPORTED int two(int n) { sink++; return shared(n + 1); }
"#;

const CALLS: &str = r#"
int back(int), own(int), never(int), tail(int), calls(int), last(int), through(int), jumps(int), one(int), two(int);
int main(void)
{
    for (int i = 0; i < 1000; i++) {
        back(i); own(i); never(i); tail(i); calls(i); last(i); through(i); jumps(i); one(i); two(i);
    }
    return 0;
}
"#;

const EXPORTS: [&str; 10] =
    ["back", "own", "never", "tail", "calls", "last", "through", "jumps", "one", "two"];

fn a_part_of_a_stripped_file_is_known_by_who_reaches_it() -> Verdict {
    let whole = format!("{LIBRARY}{CALLS}");
    // A library is moved when it is loaded, so that addresses in data are relocations; a program
    // that is not has them as they are.
    for words in
        [&["-O2", "-s", "-rdynamic", "-fPIE", "-pie"][..], &["-O2", "-s", "-rdynamic", "-fno-pie", "-no-pie"]]
    {
        let (_dir, program) = compiled!(Programs::new("stripped", ("cc", &whole), words));
        let descriptions: Vec<String> = EXPORTS
            .iter()
            .flat_map(|f| ["entry", "return"].map(|name| format!("pid$target:a.out:{f}:{name}")))
            .collect();
        let script = format!("{} {COUNT}", descriptions.join(","));
        let mut right: Vec<String> =
            EXPORTS.iter().flat_map(|f| ["entry", "return"].map(|name| format!("{f} {name} 1000"))).collect();
        right.sort_unstable();
        for means in ["ret", "uretprobe"] {
            let o = dtrace(&["-x", &format!("pidreturn={means}"), "-qc", &program, "-n", &script]).code(0);
            assert_eq!(rows(&o), right, "{words:?} {means}: {o:?}");
        }
        let script = "pid$target:a.out:own:return { @ = sum((int)arg1); }";
        let o = dtrace(&["-x", "pidreturn=ret", "-qc", &program, "-n", script]).code(0);
        assert_eq!(o.last_number(), 400_000 - 200, "{words:?}: {o:?}");
        let script =
            "pid$target:a.out:own:return /(int)arg1 == -1 && (arg0 < 0 || arg0 > 256)/ { @ = count(); }";
        let o = dtrace(&["-x", "pidreturn=ret", "-qc", &program, "-n", script]).code(0);
        assert_eq!(o.last_number(), 200, "{words:?}: {o:?}");
    }
    Pass
}

/// As LLVM does it where it outlines cold code: what is outlined has the name of a part, and is
/// called.
const OUTLINED: &str = r#"
int outlined(int n) __asm__("work.cold.1");
volatile int sink;
__attribute__((noinline)) int outlined(int n) { sink += n; return n; }
__attribute__((noinline)) int work(int n) { if (n % 10 == 0) return outlined(n) + 1; return n; }
int main(void) { for (int i = 0; i < 1000; i++) work(i); return 0; }
"#;

fn what_is_called_is_a_function_whatever_its_name() -> Verdict {
    let (_dir, program) = compiled!(Programs::new("outlined", ("cc", OUTLINED), &["-O2"]));
    let script = format!("pid$target:a.out:work*:entry, pid$target:a.out:work*:return {COUNT}");
    for means in ["ret", "uretprobe"] {
        let o = dtrace(&["-x", &format!("pidreturn={means}"), "-qc", &program, "-n", &script]).code(0);
        let right =
            ["work entry 1000", "work return 1000", "work.cold.1 entry 100", "work.cold.1 return 100"];
        assert_eq!(rows(&o), right, "{means}: {o:?}");
    }
    Pass
}

/// The site is where only the fourth call comes.
const SITE: &str = r#"
__attribute__((cold,noinline)) void rare(int n) { static volatile int k; k += n; }
volatile int sink;
PLAIN int work(int n)
{
    if (n % 4 == 0) { rare(n); __asm__ volatile("990: nop\n" NOTE("tst", "site", "0", "-4@%0") :: "r"(n)); rare(n); }
    sink++;
    return n;
}
int main(void) { for (int i = 0; i < 1000; i++) work(i); return 0; }
"#;

fn a_site_in_a_part_is_in_its_function() -> Verdict {
    let programs = usdt::compiled!(usdt::Programs::new("site"));
    let program = usdt::compiled!(programs.compile("site", SITE, &["-O2"]));
    let o = dtrace(&["-qc", &program, "-n", "tst$target:site:work:site { @[probefunc] = count(); }"]).code(0);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["work", "250"], "{o:?}");
    Pass
}

/// The part of `caught` has what catches, and returns by itself: nothing jumps there, but the table
/// of exceptions leads to it.
const PADS: &str = r##"
volatile int sink;
extern "C" __attribute__((noinline)) int thrower(int n) { if (n % 3 == 0) throw n; sink += n; return n; }
extern "C" int caught(int n);
__asm__(R"(
    .text
    .globl caught
    .type caught, @function
caught:
    .cfi_startproc
    .cfi_personality 0x9b, DW.ref.__gxx_personality_v0
    .cfi_lsda 0x1b, .Ltable
    pushq %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset 3, -16
    movl %edi, %ebx
.Lbegin:
    call thrower
.Lend:
    movl %ebx, %eax
    popq %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size caught, .-caught
    .section .text.unlikely, "ax", @progbits
    .type caught.cold, @function
caught.cold:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    .cfi_offset 3, -16
    nop
.Lpad:
    movq %rax, %rdi
    call __cxa_begin_catch@plt
    call __cxa_end_catch@plt
    movl $-1, %eax
    popq %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size caught.cold, .-caught.cold
    .section .gcc_except_table, "a", @progbits
    .balign 4
.Ltable:
    .byte 0x1b
    .long caught.cold - .
    .byte 0x9b
    .uleb128 .Ltypes - .Lheader
.Lheader:
    .byte 1
    .uleb128 .Lactions - .Lsites
.Lsites:
    .uleb128 .Lbegin - caught
    .uleb128 .Lend - .Lbegin
    .uleb128 .Lpad - caught.cold
    .uleb128 1
.Lactions:
    .byte 1, 0
    .balign 4
    .long 0
.Ltypes:
    .text
)");
int main()
{
    int count = 0;
    try { thrower(3); } catch (int) { count--; }
    for (int i = 0; i < 3000; i++) count += caught(i) == -1;
    return count != 999;
}
"##;

fn a_part_that_only_exceptions_reach_belongs_to_its_function() -> Verdict {
    for words in [&["-O2"][..], &["-O2", "-s", "-rdynamic"]] {
        let (_dir, program) = compiled!(Programs::new("pads", ("c++", PADS), words));
        let script = format!("pid$target:a.out:caught*:entry, pid$target:a.out:caught*:return {COUNT}");
        // No frame whose return the kernel has replaced is unwound: `caught` catches.
        for means in ["auto", "ret", "uretprobe"] {
            let means = format!("pidreturn={means}");
            let o = dtrace(&["-x", &means, "-qc", &program, "-n", &script]).code(0);
            assert_eq!(rows(&o), ["caught entry 3000", "caught return 3000"], "{words:?} {means}: {o:?}");
            let script = "pid$target:a.out:caught:return /(int)arg1 == -1/ { @ = count(); }";
            let o = dtrace(&["-x", &means, "-qc", &program, "-n", script]).code(0);
            assert_eq!(o.last_number(), 1000, "{words:?} {means}: {o:?}");
        }
    }
    Pass
}

/// `work` comes back from its part, and goes on.
const COMES_BACK: &str = r#"
__attribute__((cold,noinline)) void rare(int n) { static volatile int k; k += n; }
volatile int sink, other;
__attribute__((noinline)) int work(int n)
{
    sink += n;
    if (n % 4 == 0) { rare(n); sink += 2; rare(n + 1); }
    for (int i = 0; i < n % 7; i++) { sink ^= i; other += sink; if (other > 1000) other -= 1000; }
    return n * 2;
}
int main(void) { for (int i = 0; i < 1000; i++) work(i); return 0; }
"#;

/// Neither a symbol nor the tables of unwinders tell of the part.
fn a_part_without_a_name_is_known_by_the_debug_information() -> Verdict {
    let words = ["-O2", "-g", "-rdynamic", "-fno-asynchronous-unwind-tables"];
    let (dir, whole) = compiled!(Programs::new("ranges", ("cc", COMES_BACK), &words));
    let run = |words: &[&str]| {
        let o = std::process::Command::new("objcopy").args(words).current_dir(dir.path()).output();
        o.is_ok_and(|o| o.status.success())
    };
    let made = run(&["-N", "work.cold", "program", "own"])
        && run(&["--only-keep-debug", "-N", "work.cold", "program", "beside.debug"])
        && run(&["--strip-all", "program", "beside"])
        && run(&["--add-gnu-debuglink=beside.debug", "beside"]);
    if !made {
        return Verdict::Skip("no objcopy".into());
    }
    let script = format!(
        "pid$target:a.out:work*:entry, pid$target:a.out:work*:return {COUNT} \
         pid$target:a.out:work:return {{ @sum = sum(arg1); }} END {{ printa(\"%@d\\n\", @sum); }}"
    );
    let beside = |name: &str| dir.path().join(name).display().to_string();
    for program in [whole, beside("own"), beside("beside")] {
        for means in ["ret", "uretprobe"] {
            let o = dtrace(&["-x", &format!("pidreturn={means}"), "-qc", &program, "-n", &script]).code(0);
            assert_eq!(
                rows(&o),
                ["999000", "work entry 1000", "work return 1000"],
                "{program} {means}: {o:?}"
            );
        }
    }
    Pass
}
