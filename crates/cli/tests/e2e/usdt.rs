//! USDT: probes that programs bring along. The programs of the tests write their notes themselves,
//! so every operand is known.

use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;
use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{has, lacks};
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start};
use crate::usdt_later::own;

tests! {
    every_form_and_size_of_an_operand_is_read
    sites_of_one_probe_are_probes_of_their_functions
    a_semaphore_is_counted_up_while_the_probe_is_traced
    a_semaphore_is_counted_down_when_dtrace_is_killed
    a_function_that_begins_with_a_site_has_both_probes
    programs_of_all_kinds_are_traced
    a_library_is_traced_in_the_processes_that_a_description_names
    an_argument_that_cannot_be_read_is_a_fault
    what_a_program_says_of_itself_becomes_no_other_provider
    a_site_is_probed_where_the_kernel_spares_the_program
    types_are_those_of_the_operands
    what_a_process_does_not_describe_is_named_with_its_tag
}

/// Writes notes as SystemTap's `sys/sdt.h` does.
pub(crate) const NOTES: &str = r#"
#include <stdio.h>
#include <string.h>
#define NOTE(provider, name, semaphore, arguments) \
    ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 3\n" \
    "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b, _.stapsdt.base, " semaphore "\n" \
    ".asciz \"" provider "\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n994: .balign 4\n.popsection\n" \
    ".ifndef _.stapsdt.base\n.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
    ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.popsection\n.endif\n"
#define PLAIN __attribute__((noinline, noclone))
"#;

const PROGRAM: &str = r#"
__attribute__((section(".probes"), used)) volatile unsigned short tst_counted_semaphore;
volatile long table[4] __attribute__((used)) = { 11, 22, 33, 44 };
static int prepared;
PLAIN void plain(long a, int b)
{
    __asm__ volatile("990: nop\n" NOTE("tst", "plain__site", "0", "-8@%0 -4@%1") :: "r"(a), "r"(b));
}
PLAIN void counted(int i)
{
    if (__builtin_expect(tst_counted_semaphore, 0)) {
        prepared++;
        __asm__ volatile("990: nop\n" NOTE("tst", "counted", "tst_counted_semaphore", "-4@%0") :: "r"(i));
    }
}
PLAIN void registers(void)
{
    __asm__ volatile("mov $0x80f1f2f3f4f5f6f7, %%rbx\nmov %%rbx, %%r15\nmov $-5, %%rdx\n990: nop\n"
        NOTE("tst", "registers", "0", "8@%%rbx -8@%%rbx 4@%%ebx -4@%%ebx 2@%%bx -2@%%bx 1@%%bl -1@%%bl 1@%%bh -4@%%r15d -1@%%r15b -8@%%rdx")
        ::: "rbx", "rdx", "r15");
}
PLAIN void memory(volatile long *p)
{
    __asm__ volatile("mov %0, %%rax\nmov $2, %%rcx\n990: nop\n"
        NOTE("tst", "memory", "0", "-8@(%%rax) 8@8(%%rax) 8@8(%%rax,%%rcx,8) -4@(%%rax) 2@(%%rax) -1@(%%rax) 8@table(%%rip) 8@16+table(%%rip) 8@table+8(%%rip) -4@$-7 4@$-7")
        :: "r"(p) : "rax", "rcx", "memory");
}
PLAIN void bad(long p)
{
    __asm__ volatile("990: nop\n" NOTE("tst", "bad", "0", "8@(%0) 8f@%%xmm0 8@%0 8@nowhere(%%rip)") :: "r"(p));
}
static inline __attribute__((always_inline)) void everywhere(long a)
{
    __asm__ volatile("990: nop\n" NOTE("tst", "everywhere", "0", "-8@%0") :: "nor"(a));
}
PLAIN void one(long a) { everywhere(a); everywhere(a + 1); }
PLAIN void two(void) { everywhere(1000); }
int main(void)
{
    volatile long values[4] = { -3, 100, 200, 300 };
    if (table[0] != 11)
        return 1;
    getchar();
    for (int i = 0; i < 10; i++) {
        plain(i, -i);
        counted(i);
        registers();
        memory(values);
        bad(8);
        one(i);
        two();
    }
    printf("%d %d\n", prepared, tst_counted_semaphore);
    fflush(stdout);
    do {
        getchar();
        printf("%d %d\n", prepared, tst_counted_semaphore);
        fflush(stdout);
    } while (!feof(stdin));
    return 0;
}
"#;

/// A directory with programs, which is removed at the end.
pub(crate) struct Programs(testing::dir::Dir);

impl Programs {
    /// `Err`: the test is skipped.
    pub(crate) fn new(name: &str) -> Result<Programs, Verdict> {
        if let Some(skip) = lacks(Facility::UprobePerf) {
            return Err(skip);
        }
        Ok(Programs(testing::dir::Dir::new(&format!("usdt-{name}"))))
    }

    /// The path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Compiles a file.
    pub(crate) fn compile(&self, name: &str, text: &str, words: &[&str]) -> Result<String, Verdict> {
        let file = format!("{name}.c");
        std::fs::write(self.0.join(&file), format!("{NOTES}{text}")).unwrap();
        let done =
            Command::new("cc").current_dir(&self.0).args(["-O2", "-o", name, &file]).args(words).output();
        match done {
            Ok(o) if o.status.success() => Ok(self.0.join(name).display().to_string()),
            Ok(o) => panic!("{o:?}"),
            Err(e) => Err(Skip(format!("no C compiler: {e}"))),
        }
    }

    /// The program of the tests.
    pub(crate) fn program(name: &str) -> Result<(Programs, String), Verdict> {
        let programs = Programs::new(name)?;
        let program = programs.compile("program", PROGRAM, &[])?;
        Ok((programs, program))
    }
}

/// What was compiled, or the end of a test that is skipped.
macro_rules! compiled {
    ($built:expr) => {
        match $built {
            Ok(program) => program,
            Err(verdict) => return verdict,
        }
    };
}
pub(crate) use compiled;

pub(crate) fn wait(program: &str) -> Child {
    Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn next(child: &mut Child) {
    use std::io::Write;
    let _ = child.stdin.as_mut().unwrap().write_all(b"\n");
}

/// Reads a line that a program prints.
pub(crate) fn line(child: &mut Child) -> String {
    use std::io::Read;
    let mut text = String::new();
    let mut byte = [0];
    while child.stdout.as_mut().unwrap().read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        text.push(char::from(byte[0]));
    }
    text
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn every_form_and_size_of_an_operand_is_read() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("forms"));
    let list = |n: usize| (0..n).map(|n| format!("(int64_t)args[{n}]")).collect::<Vec<_>>().join(", ");
    let script = format!(
        "tst$target:::registers {{ @r[{}] = count(); }} tst$target:::memory {{ @m[{}] = count(); }} \
         tst$target:::plain-site {{ @a = sum(arg0); @b = sum(args[1]); @c = count(); }} \
         END {{ printa(@r); printa(@m); printa(\"%@d %@d %@d\", @a, @b, @c); }}",
        list(12),
        list(11)
    );
    let o = dtrace(&["-qc", &program, "-n", &script]).code(0);
    let whole = 0x80f1_f2f3_f4f5_f6f7_u64;
    let registers = [
        whole as i64,
        whole as i64,
        0xf4f5_f6f7,
        0xf4f5_f6f7_u32 as i32 as i64,
        0xf6f7,
        0xf6f7_u16 as i16 as i64,
        0xf7,
        0xf7_u8 as i8 as i64,
        0xf6,
        0xf4f5_f6f7_u32 as i32 as i64,
        0xf7_u8 as i8 as i64,
        -5,
    ];
    let memory = [-3, 100, 300, -3, 0xfffd, -3, 11, 33, 22, -7, 0xffff_fff9];
    let mut expected: Vec<String> = registers.iter().map(|n: &i64| n.to_string()).collect();
    expected.push("10".into());
    expected.extend(memory.iter().map(|n: &i64| n.to_string()));
    expected.extend(["10", "45", "-45", "10"].map(str::to_owned));
    let found: Vec<&str> = words(&o.out).into_iter().skip_while(|w| *w != expected[0]).collect();
    assert_eq!(found, expected, "{o:?}");
    Pass
}

fn sites_of_one_probe_are_probes_of_their_functions() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("sites"));
    let script = "tst$target:::everywhere { @[probefunc] = sum(arg0); @all = count(); } \
                  tst$target:a.out:one: { @one = count(); } \
                  END { printa(\"%s %@d\\n\", @); printa(\"%@d \", @all); printa(\"%@d\\n\", @one); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let found: Vec<&str> = words(&o.out).into_iter().skip_while(|w| *w != "one").collect();
    assert_eq!(found, ["one", "100", "two", "10000", "30", "20"], "{o:?}");
    let o = dtrace(&["-ln", "tst$target:program::everywhere", "-c", &program]).code(0);
    let functions: Vec<&str> = o.out.lines().skip(1).filter_map(|l| words(l).get(3).copied()).collect();
    assert_eq!(functions, ["one", "two"], "{o:?}");
    Pass
}

fn a_semaphore_is_counted_up_while_the_probe_is_traced() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("semaphore"));
    let (mut process, mut other) = (wait(&program), wait(&program));
    let script = "BEGIN { printf(\"%d\\n\", $target); } tst$target:::counted { @ = sum(arg0); } END { printa(\"sum %@d\", @); }";
    let mut child = start(&["-q", "-p", &process.id().to_string(), "-n", script]);
    printed(&mut child);
    for process in [&mut process, &mut other] {
        next(process);
    }
    assert_eq!(line(&mut process), "10 1");
    // The same file in another process is as it was.
    assert_eq!(line(&mut other), "0 0");
    signal(&child, 15);
    let o = finish(child).code(0);
    assert!(o.out.trim_end().ends_with("sum 45"), "{o:?}");
    next(&mut process);
    assert_eq!(line(&mut process), "10 0");
    drop(other.stdin.take());
    for mut process in [process, other] {
        process.wait().unwrap();
    }
    Pass
}

fn a_semaphore_is_counted_down_when_dtrace_is_killed() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("killed"));
    let mut process = wait(&program);
    let script =
        format!("BEGIN {{ printf(\"begun\\n\"); }} tst{}:::counted {{ @ = count(); }}", process.id());
    let mut child = start(&["-qn", &script]);
    printed(&mut child);
    next(&mut process);
    assert_eq!(line(&mut process), "10 1");
    signal(&child, 9);
    child.wait().unwrap();
    // The kernel closes what the tracer had before others see that it has ended, or soon after.
    eventually("the semaphore's way down", LIMIT, || {
        next(&mut process);
        match line(&mut process) {
            line if line == "10 0" => Ok(()),
            line => Err(line),
        }
    });
    process.wait().unwrap();
    Pass
}

/// The kernel has one uprobe for a place, with one semaphore, and refuses whoever comes with
/// another.
fn a_function_that_begins_with_a_site_has_both_probes() -> Verdict {
    let programs = compiled!(Programs::new("both"));
    let text = r#"
        __attribute__((section(".probes"), used)) volatile unsigned short tst_at_semaphore;
        PLAIN void at(long a)
        {
            __asm__ volatile("990: nop\n" NOTE("tst", "at", "tst_at_semaphore", "-8@%0") :: "r"(a));
        }
        int main(void)
        {
            int on = 0;
            for (int i = 0; i < 100; i++) {
                at(i);
                on += tst_at_semaphore;
            }
            printf("on %d\n", on);
            return 0;
        }"#;
    let program = compiled!(programs.compile("both", text, &["-fcf-protection=none"]));
    for (option, probe) in [
        ("pidreturn=ret", "entry"),
        ("pidreturn=uretprobe", "return"),
        ("pidreturn=ret", "return"),
        ("pidreturn=ret", "0"),
    ] {
        for provider in ["tst$target", "tst*"] {
            let pid = format!("pid$target:a.out:at:{probe} {{ @a = count(); }}");
            let usdt = format!("{provider}:::at {{ @b = count(); @c = sum(arg0); }}");
            for clauses in [[&*pid, &*usdt], [&*usdt, &*pid]] {
                let script =
                    format!("{} END {{ printa(\"%@d %@d %@d\\n\", @a, @b, @c); }}", clauses.join(" "));
                let o = dtrace(&["-q", "-x", option, "-c", &program, "-n", &script]).code(0);
                assert!(o.out.contains("on 100\n"), "{option} {script}: {o:?}");
                assert!(o.out.contains("100 100 4950\n"), "{option} {script}: {o:?}");
            }
        }
    }
    Pass
}

fn programs_of_all_kinds_are_traced() -> Verdict {
    let programs = compiled!(Programs::new("kinds"));
    let script = "tst$target:::plain-site { @a = sum(arg0); @b = sum(arg1); } tst$target:::memory { @t = sum(arg7); } \
                  tst$target:::counted { @c[probefunc] = count(); } \
                  END { printa(\"%@d %@d %@d \", @a, @b, @t); printa(\"%s %@d\", @c); }";
    let kinds: [(&str, &[&str], &str); 5] = [
        ("pie", &["-fPIE", "-pie"], "counted"),
        ("fixed", &["-fno-pie", "-no-pie"], "counted"),
        ("static", &["-static"], "counted"),
        ("section", &["-ffunction-sections", "-Wl,--gc-sections"], "counted"),
        ("optimized", &["-O3"], "counted"),
    ];
    for (name, flags, function) in kinds {
        let program = compiled!(programs.compile(name, PROGRAM, flags));
        let o = dtrace(&["-qc", &program, "-n", script]).code(0);
        let found: Vec<&str> = words(&o.out).into_iter().skip_while(|w| *w != "45").collect();
        assert_eq!(found, ["45", "-45", "330", function, "10"], "{name}: {o:?}");
    }
    // Without symbols a site has no function, and no symbol of an operand is known.
    let program = compiled!(programs.compile("stripped", PROGRAM, &["-s"]));
    let script = "tst$target::-:plain-site { @a = sum(arg0); } tst$target:::counted { @c[probefunc] = count(); } \
                  END { printa(\"%@d \", @a); printa(\"%s %@d\", @c); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let found: Vec<&str> = words(&o.out).into_iter().skip_while(|w| *w != "45").collect();
    assert_eq!(found, ["45", "-", "10"], "{o:?}");
    Pass
}

fn a_library_is_traced_in_the_processes_that_a_description_names() -> Verdict {
    const LIBRARY: &str = "PLAIN void in_library(long a) { __asm__ volatile(\"990: nop\\n\" \
                           NOTE(\"tstlib\", \"called\", \"0\", \"-8@%0\") :: \"r\"(a)); }";
    const USER: &str = "void in_library(long a);\nint main(void) { puts(\"loaded\"); fflush(stdout); getchar(); for (int i = 0; i < 7; i++) in_library(i); getchar(); }";
    let programs = compiled!(Programs::new("library"));
    let name = own("tstlib");
    let library = LIBRARY.replace("tstlib", &name);
    compiled!(programs.compile("libtst.so.1", &library, &["-shared", "-fPIC", "-Wl,-soname,libtst.so.1"]));
    let program = compiled!(programs.compile("user", USER, &["./libtst.so.1", "-Wl,-rpath,$ORIGIN"]));
    let (mut one, mut two) = (wait(&program), wait(&program));
    assert_eq!([line(&mut one), line(&mut two)], ["loaded", "loaded"]);
    let (first, second) = (one.id(), two.id());
    let script = format!(
        "BEGIN {{ printf(\"begun\\n\"); }} {name}*:libtst::called {{ @all[probeprov] = sum(arg0); }} \
         {name}{first}::in_library:called {{ @one = count(); }} \
         END {{ printa(\"%s %@d\\n\", @all); printa(\"%@d\\n\", @one); }}"
    );
    let mut child = start(&["-qn", &script]);
    printed(&mut child);
    for process in [&mut one, &mut two] {
        next(process);
        next(process);
        process.wait().unwrap();
    }
    signal(&child, 15);
    let o = finish(child).code(0);
    let mut both = [format!("{name}{first} 21"), format!("{name}{second} 21")];
    both.sort();
    let mut lines: Vec<&str> = o.out.lines().filter(|l| l.starts_with(&name)).collect();
    lines.sort_unstable();
    assert_eq!(lines, both, "{o:?}");
    assert_eq!(o.out.trim_end().lines().last(), Some("7"), "{o:?}");
    Pass
}

fn an_argument_that_cannot_be_read_is_a_fault() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("faults"));
    let script = "tst$target:::bad { trace(arg0); } ERROR { @[arg4, arg5] = count(); } END { printa(\"%d %d %@d\", @); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let found = words(&o.out);
    // DTRACEFLT_BADADDR, at address 8.
    assert!(found.ends_with(&["1", "8", "10"]), "{o:?}");
    // The argument beside it is read, and those that nobody can read are faults only where they are
    // used.
    let script = "tst$target:::bad { @ = sum(arg2); } tst$target:::bad { @f = sum(arg1); } tst$target:::bad { @s = sum(arg3); } \
                  ERROR { @e = count(); } END { printa(\"%@d \", @); printa(\"%@d\", @e); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert!(words(&o.out).ends_with(&["80", "20"]), "{o:?}");
    Pass
}

fn what_a_program_says_of_itself_becomes_no_other_provider() -> Verdict {
    const HOSTILE: &str = r#"
#define SITE(provider, name) __asm__ volatile("990: nop\n" NOTE(provider, name, "0", "8@$1"))
int main(void)
{
    SITE("syscall", "entry"); SITE("pid", "entry"); SITE("v2", "named"); SITE("a:b", "named"); SITE("a*", "named");
    SITE("", "named"); SITE("fine", "x:y"); SITE("fine", ""); SITE("fine", "named");
    SITE("fine", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    puts("ready");
    fflush(stdout);
    getchar();
}
"#;
    let programs = compiled!(Programs::new("hostile"));
    let program = compiled!(programs.compile("hostile", HOSTILE, &[]));
    let mut process = wait(&program);
    let pid = process.id();
    // The loader has mapped it then.
    assert_eq!(line(&mut process), "ready");
    let of = |provider: String| {
        let o = dtrace(&["-lP", &provider]);
        let named: Vec<String> =
            o.out.lines().skip(1).filter_map(|l| Some(words(l).get(1)?.to_string())).collect();
        named.into_iter().filter(|name| name.ends_with(&pid.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(of(format!("v2*{pid}")), [format!("v2_{pid}")]);
    assert_eq!(of(format!("fine{pid}")), [format!("fine{pid}")]);
    assert!(of(format!("a*{pid}")).is_empty());
    // Its name has the process behind it, and so is not that of the system's provider.
    assert_eq!(of(format!("sysc*{pid}")), [format!("syscall{pid}")]);
    assert!(of("syscall".into()).is_empty());
    // One that is called `pid` is none: what there is are the functions of the process.
    let o = dtrace(&["-ln", &format!("pi*{pid}:hostile:main:entry")]).code(0);
    assert_eq!(o.out.lines().skip(1).count(), 1, "{o:?}");
    drop(process.stdin.take());
    process.wait().unwrap();
    Pass
}

/// Sites at nops that some kernels replace by a call, in a function with values below the stack
/// pointer.
fn a_site_is_probed_where_the_kernel_spares_the_program() -> Verdict {
    const SITES: &str = r#"
volatile long table[2] __attribute__((used)) = { 11, 22 };
long nops(void);
__asm__(".globl nops\nnops: mov $77, %rax\nmov %rax, -8(%rsp)\nmov %rax, -16(%rsp)\nmov %rax, -128(%rsp)\n"
    "990: .byte 0x0f, 0x1f, 0x44, 0, 0\n" NOTE("tst", "five", "0", "8@8+table(%rip)")
    "990: nop\n.byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n" NOTE("tst", "one", "0", "8@table(%rip)")
    "990: .byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n" NOTE("tst", "ten", "0", "8@%rax")
    "mov -8(%rsp), %rax\nadd -16(%rsp), %rax\nadd -128(%rsp), %rax\nret\n");
int main(void)
{
    int intact = table[1] == 22;
    for (int i = 0; i < 40; i++)
        intact &= nops() == 231;
    __asm__ volatile("990: lock incl (%%rsp)\n" NOTE("tst", "locked", "0", "8@$1") ::: "memory");
    __asm__ volatile("990: mov %%rsp, %%rsp\n" NOTE("tst", "other", "0", "8@$1") ::);
    printf("intact %d 1\n", intact);
    return 0;
}
"#;
    let programs = compiled!(Programs::new("sites-left-out"));
    let program = compiled!(programs.compile("left", SITES, &[]));
    let script = "tst$target::: { @[probename, arg0] = count(); } END { printa(\"%s %d %@d\\n\", @); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let mut lines: Vec<&str> = o.out.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    let (five, ten) = (has(Facility::UprobeNop5), has(Facility::UprobeNop10));
    let wanted = [
        (five, "five 22 40"),
        (true, "intact 1 1"),
        (true, "one 11 40"),
        (true, "other 1 1"),
        (ten, "ten 77 40"),
    ];
    let wanted: Vec<&str> = wanted.into_iter().filter_map(|(there, line)| there.then_some(line)).collect();
    assert_eq!(lines, wanted, "{o:?}");
    let o = dtrace(&["-c", &program, "-n", "tst$target:::locked {}"]).code(1);
    assert!(o.err.contains("left`locked has no such probe"), "{o:?}");
    Pass
}

fn types_are_those_of_the_operands() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("types"));
    let types = |name: &str| {
        let o = dtrace(&["-lvn", &format!("tst$target:::{name}"), "-c", &program]).code(0);
        let all = o
            .out
            .lines()
            .filter_map(|l| Some(l.trim().strip_prefix("args[")?.split_once(": ")?.1.to_owned()));
        all.collect::<Vec<String>>()
    };
    assert_eq!(types("plain-site"), ["int64_t", "int32_t"]);
    assert_eq!(
        types("registers"),
        [
            "uint64_t", "int64_t", "uint32_t", "int32_t", "uint16_t", "int16_t", "uint8_t", "int8_t",
            "uint8_t", "int32_t", "int8_t", "int64_t"
        ]
    );
    let unreadable = types("bad");
    assert_eq!(unreadable.len(), 4);
    assert!(unreadable[1].contains("%xmm0 is a floating-point value"), "{unreadable:?}");
    assert!(unreadable[3].contains("the file has no symbol nowhere"), "{unreadable:?}");
    Pass
}

// row tag.D_PROC_USDT
fn what_a_process_does_not_describe_is_named_with_its_tag() -> Verdict {
    let (_dir, program) = compiled!(Programs::program("errors"));
    for (description, tag, says) in [
        ("tsx$target:::plain-site", "D_PROC_USDT", "has no probes of the provider \"tsx\""),
        ("tsx$target:::plain-site", "D_PROC_USDT", "its files describe tst"),
        ("tst$target:::nothing", "D_PDESC_ZERO", "does not match any probes"),
        ("tst999999999:::plain-site", "D_PROC_GRAB", "there is no process 999999999"),
    ] {
        let o = dtrace(&["-xerrtags", "-c", &program, "-n", &format!("{description} {{}}")]).code(1);
        assert!(o.err.contains(&format!("[{tag}]")), "{description}: {o:?}");
        let o = dtrace(&["-c", &program, "-n", &format!("{description} {{}}")]).code(1);
        assert!(o.err.contains(says), "{description}: {o:?}");
    }
    Pass
}
