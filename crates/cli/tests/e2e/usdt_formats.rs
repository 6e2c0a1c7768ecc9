//! Probes that programs describe otherwise than by SystemTap's notes: those of the C port's
//! headers, and DOF.

use crate::Verdict::{self, Pass};
use crate::tool::dtrace;
use crate::usdt::{Programs, compiled};

tests! {
    notes_of_the_c_port_are_probes
    dof_is_read
}

const PORT: &str = r#"
PLAIN void port(int a, long *b)
{
    __asm__ volatile("990: nop\n.pushsection .note.usdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 1\n"
        "991: .asciz \"usdt\"\n992: .balign 4\n993: .8byte 990b, 0\n.asciz \"tstport\"\n.asciz \"sent__now\"\n"
        ".byte 2\n.asciz \"-4@%0 -8@(%1)\"\n994: .balign 4\n"
        ".4byte 992f-991f, 994f-993f, 2\n991: .asciz \"usdt\"\n992: .balign 4\n993: .8byte 990b, 0\n"
        ".asciz \"tstport\"\n.asciz \"sent__now\"\n.byte 0\n.byte 0\n994: .balign 4\n.popsection\n" :: "r"(a), "r"(b) : "memory");
}
/* probe sent__now(int a, long b) : (long b, int a, int a); */
__asm__(".pushsection .note.usdt,\"\",\"note\"\n.balign 4\n.4byte 5, 2f-1f, 1\n.asciz \"prov\"\n.balign 4\n"
    "1: .asciz \"tstport\"\n.balign 4\n.4byte 0x05050500,0x01010000,0x01010000,0x05050500,0x06060400,1\n"
    ".asciz \"sent-now\"\n.byte 2\n.asciz \"int\"\n.asciz \"long\"\n"
    ".byte 3\n.asciz \"long\"\n.byte 1\n.asciz \"int\"\n.byte 0\n.asciz \"int\"\n.byte 0\n.balign 4\n2: .popsection\n");
int main(void)
{
    for (int i = 1; i <= 10; i++) {
        volatile long b = -2 * i;
        port(i, (long *)&b);
    }
    return 0;
}
"#;

fn notes_of_the_c_port_are_probes() -> Verdict {
    let programs = compiled!(Programs::new("port"));
    let program = compiled!(programs.compile("port", PORT, &[]));
    let script = "tstport$target:port:port:sent-now { @ = sum(arg0); @b = sum(args[0]); @a = sum(args[2]); @n = count(); } \
                  END { printa(\"%@d %@d %@d %@d\", @, @b, @a, @n); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "-110 -110 55 10", "{o:?}");
    // What the definition says of it.
    let o = dtrace(&["-lvc", &program, "-n", "tstport$target:::sent-now"]).code(0);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    let types = ["args[0]:", "long", "args[1]:", "int", "args[2]:", "int"];
    assert!(words.windows(types.len()).any(|part| part == types), "{o:?}");
    assert!(o.out.contains("Dependency Class: ISA") && o.out.contains("Identifier Names: Stable"), "{o:?}");
    Pass
}

/// The linker's addresses are those of the file: `.SUNW_dof` as `dtrace -G` of the original writes
/// it.
const DOF: &str = r#"
__attribute__((noinline, noclone)) void fires(const char *text, int n, short s)
{
    __asm__ volatile(".globl tst_site\ntst_site: nop\nnop\nnop\nnop\nnop\n" :: "D"(text), "S"(n), "d"(s));
}
__asm__(".pushsection .SUNW_dof,\"\",\"progbits\"\n"
    "0: .byte 0x7f,0x44,0x4f,0x46,2,1,2,2,8,8,0,0,0,0,0,0\n"
    ".4byte 0,64,32,4\n.8byte 64,9f-0b,9f-0b,0\n"
    ".4byte 8,1,1,0\n.8byte 1f-0b,2f-1f\n"
    ".4byte 16,8,1,48\n.8byte 2f-0b,3f-2f\n"
    ".4byte 18,4,1,4\n.8byte 3f-0b,4f-3f\n"
    ".4byte 15,4,1,44\n.8byte 4f-0b,9f-4f\n"
    "1: .asciz \"\"\n.asciz \"tstdof\"\n.asciz \"fires\"\n.asciz \"done-now\"\n.asciz \"char *\"\n.asciz \"int\"\n.asciz \"short\"\n.balign 8\n"
    "2: .8byte fires\n.4byte 8,14,23,0,0,0\n.byte 3,0\n.2byte 1\n.4byte 0,0,0\n"
    "3: .4byte tst_site-fires\n.balign 8\n"
    "4: .4byte 0,1,0,2,1,0,0,0,0,0,0\n"
    "9: .popsection\n");
int main(void)
{
    for (int i = 1; i <= 10; i++)
        fires("text", -i, 3);
    return 0;
}
"#;

fn dof_is_read() -> Verdict {
    let programs = compiled!(Programs::new("dof"));
    let program = compiled!(programs.compile("dof", DOF, &[]));
    let script = "tstdof$target:dof:fires:done-now { @[args[2]] = sum(args[1]); @n = count(); } \
                  END { printa(\"%d %@d\", @); printa(\" %@d\", @n); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "3 -55 10", "{o:?}");
    Pass
}
