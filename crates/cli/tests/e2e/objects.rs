//! Printing of memory: `print()`, `trace()` of objects, `tracemem()`, formats of arrays and
//! floating point.

use crate::Verdict::{self, Pass};
use crate::tool::dtrace;

tests! {
    print_shows_scalars_with_their_type print_shows_the_members_of_structs
    print_shows_the_elements_of_arrays print_shows_bit_fields print_shows_kernel_objects
    trace_shows_objects_as_bytes_or_text structs_are_keys_by_value tracemem_dumps_memory
    floating_point_members_are_printed print_of_an_invalid_address_faults
}

/// The output of a quiet BEGIN before the final newline.
fn prints(before: &str, body: &str) -> String {
    let o = dtrace(&["-qn", &format!("{before} BEGIN {{ {body} exit(0); }}")]).code(0);
    assert_eq!(o.err, "", "{o:?}");
    o.out.strip_suffix('\n').unwrap_or(&o.out).to_string()
}

fn print_shows_scalars_with_their_type() -> Verdict {
    let out = prints(
        "enum simpson { homer, marge, bart, lisa, maggie };",
        "print((char)'a'); print((int)-1); print((unsigned int)23); print((short)456); print((unsigned short)789); \
         print((long)1234); print((ulong_t)56789); print((void *)0x1234); print(\"hello\"); print(bart); \
         print((enum simpson)4); print((enum simpson)7); print(probename); print(0);",
    );
    let expected = "char 'a'\nint 0xffffffff\nunsigned int 0x17\nshort 0x1c8\nunsigned short 0x315\nlong 0x4d2\n\
                    ulong_t 0xddd5\nvoid * 0x1234\nstring \"hello\"\nenum simpson bart\nenum simpson maggie\n\
                    enum simpson 7\nstring \"BEGIN\"\nint 0\n";
    assert_eq!(out, expected);
    Pass
}

fn print_shows_the_members_of_structs() -> Verdict {
    let out = prints(
        "typedef struct forward forward_t; typedef struct foo { int a; void *b; struct { uint64_t alpha; uint64_t beta; } c; \
         ushort_t d; int e; forward_t *f; void (*g)(); union { int i; char c; } u; } foo_t;",
        "this->s = (foo_t *)alloca(sizeof (foo_t)); this->s->a = 1; this->s->b = (void *)2; this->s->c.alpha = 3; \
         this->s->c.beta = 4; this->s->d = 5; this->s->e = 6; this->s->f = (void *)7; this->s->g = (void *)8; \
         this->s->u.i = 'x'; print(*this->s);",
    );
    let expected = "foo_t {
    int a = 0x1
    void *b = 0x2
    struct c = {
        uint64_t alpha = 0x3
        uint64_t beta = 0x4
    }
    ushort_t d = 0x5
    int e = 0x6
    forward_t *f = 0x7
    void (*)() g = 0x8
    union u = {
        int i = 0x78
        char c = 'x'
    }
}
";
    assert_eq!(out.replace("(*)(void)", "(*)()"), expected);
    Pass
}

fn print_shows_the_elements_of_arrays() -> Verdict {
    let out = prints(
        "typedef struct bar { int alpha; } bar_t; typedef struct foo { int a[3]; char b[30]; bar_t c[2]; char d[3]; } foo_t;",
        "this->f = (foo_t *)alloca(sizeof (foo_t)); bcopy(\"\", this->f, 0); this->f->a[0] = 1; this->f->a[1] = 2; \
         this->f->a[2] = 3; this->f->b[0] = 'a'; this->f->b[1] = 'b'; this->f->b[2] = 0; this->f->c[0].alpha = 5; \
         this->f->c[1].alpha = 6; this->f->d[0] = 4; this->f->d[1] = 0; this->f->d[2] = 0; print(this->f->a); \
         print(this->f->b); print(this->f->c); print(*this->f);",
    );
    let expected = "int [3] [ 0x1, 0x2, 0x3 ]
char [30] \"ab\"
bar_t [2] [ \n    bar_t {
        int alpha = 0x5
    }, \n    bar_t {
        int alpha = 0x6
    }
]
foo_t {
    int [3] a = [ 0x1, 0x2, 0x3 ]
    char [30] b = [ \"ab\" ]
    bar_t [2] c = [ \n        bar_t {
            int alpha = 0x5
        }, \n        bar_t {
            int alpha = 0x6
        }
    ]
    char [3] d = [ '\\004', '\\0', '\\0' ]
}
";
    assert_eq!(out, expected);
    Pass
}

fn print_shows_bit_fields() -> Verdict {
    let out = prints(
        "typedef struct foo { int a:4; int b:7; int c:1; int d:2; } foo_t;",
        "this->s = (int *)alloca(16); *this->s = 1 | 5 << 4 | 2 << 12; print(*(foo_t *)this->s);",
    );
    assert_eq!(
        out,
        "foo_t {\n    int a :4 = 0x1\n    int b :7 = 0x5\n    int c :1 = 0\n    int d :2 = 0x2\n}\n"
    );
    Pass
}

/// A type of the kernel, of an existing object: the task that runs `dtrace`.
fn print_shows_kernel_objects() -> Verdict {
    let out = prints("", "print(*curthread); print(curthread->comm); printf(\"%d\", pid);");
    let pid = out.lines().last().and_then(|l| l.parse::<u32>().ok()).unwrap_or_default();
    assert!(out.starts_with("struct task_struct {\n    struct thread_info thread_info = {\n"), "{out:.300}");
    assert!(out.contains(&format!("\n    pid_t tgid = 0x{pid:x}\n")), "{pid} {}", out.len());
    assert!(out.contains("\n    char [16] comm = [ \"dtrace\" ]\n"), "{}", out.len());
    assert!(out.contains("\n}\nchar [16] \"dtrace\"\n"), "{}", out.len());
    Pass
}

fn trace_shows_objects_as_bytes_or_text() -> Verdict {
    let dump = |row: &str| {
        format!("\n             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n{row}\n")
    };
    let fill = "this->p = (char *)alloca(16); this->p[0] = 'h'; this->p[1] = 'i'; this->p[2] = 0; this->p[3] = 0; \
                this->p[4] = 7;";
    let before = "struct four { char c[4]; }; struct five { char c[5]; };";
    // Text followed by NULs only is text. Everything else is a dump.
    let four = "trace(*(struct four *)this->p); trace(((struct four *)this->p)->c);";
    assert_eq!(prints(before, &format!("{fill} {four}")), "hihi");
    let five = "trace(*(struct five *)this->p);";
    let row = "         0: 68 69 00 00 07                                   hi...";
    assert_eq!(prints(before, &format!("{fill} {five}")), dump(row));
    let o = dtrace(&[
        "-q",
        "-xrawbytes",
        "-n",
        &format!("{before} BEGIN {{ {fill} trace(*(struct four *)this->p); exit(0); }}"),
    ]);
    let row = "         0: 68 69 00 00                                      hi..";
    assert_eq!(o.code(0).out, format!("{}\n", dump(row)));
    // Bytes that begin with a NUL are no text.
    let zero = "this->p = (char *)alloca(8); *(long *)this->p = 0; trace(*(struct four *)this->p);";
    assert_eq!(
        prints(before, zero),
        dump("         0: 00 00 00 00                                      ....")
    );
    // The characters of an array of no known size end with a NUL.
    let unsized_name = "((struct linux_dirent64 *)((char *)&curthread->comm - offsetof(struct linux_dirent64, d_name)))->d_name";
    let shown = prints(
        "",
        &format!("trace({unsized_name}); printf(\"|\"); trace(*&{unsized_name}); print({unsized_name});"),
    );
    assert_eq!(shown, "dtrace|dtracestring \"dtrace\"\n");
    // Others cannot be shown.
    let o = dtrace(&["-qn", "BEGIN { trace(((struct poll_list *)0)->entries); }"]).code(1);
    assert!(
        o.err.contains("trace( ) may not be applied to a value of unknown size of type \"struct pollfd []\""),
        "{o:?}"
    );
    Pass
}

fn tracemem_dumps_memory() -> Verdict {
    let fill = "this->p = (char *)alloca(32); *(uint64_t *)this->p = 0x6867666564636261; \
                *(uint64_t *)(this->p + 8) = 0x7f00; *(uint64_t *)(this->p + 16) = 0x2041;";
    let head = "\n             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n";
    let first = "         0: 61 62 63 64 65 66 67 68 00 7f 00 00 00 00 00 00  abcdefgh........\n";
    let rows = format!("{head}{first}        10: 41 20                                            A \n");
    let three = format!("{head}         0: 61 62 63                                         abc\n");
    let all = format!("{head}{first}");
    for (call, expected) in [
        ("tracemem(this->p, 18);", &rows),
        ("tracemem(this->p, 16, 3);", &three),
        ("this->n = 3; tracemem(this->p, 16, this->n);", &three),
        // A length of 0 or beyond the object means the whole object.
        ("tracemem(this->p, 16, 0);", &all),
        ("tracemem(this->p, 16, 17);", &all),
        ("tracemem(this->p, 16, -1);", &all),
        ("printm(16, memref(this->p, 3));", &three),
        ("printm(16, memref(this->p, 99));", &all),
        ("m = memref(this->p, 3); printm(16, m);", &three),
        // Bytes beyond the length need not be readable.
        ("this->q = (char *)alloca(8); bcopy(this->p, this->q, 8); tracemem(this->q, 4000, 3);", &three),
        (
            "this->q = (char *)alloca(8); bcopy(this->p, this->q, 8); this->n = 3; tracemem(this->q, 4000, this->n);",
            &three,
        ),
    ] {
        assert_eq!(&prints("", &format!("{fill} {call}")), expected, "{call}");
    }
    Pass
}

// row conversion.f, conversion.g, conversion.e, format.print
fn floating_point_members_are_printed() -> Verdict {
    let out = prints(
        "struct n { float f; double d; char name[8]; };",
        "this->p = (char *)alloca(24); *(int *)this->p = 0x3fc00000; *(long *)(this->p + 8) = 0xbff4000000000000; \
         *(long *)(this->p + 16) = 0x636261; this->n = (struct n *)this->p; \
         printf(\"%f %g %e %.2f %s|\", this->n->f, this->n->d, this->n->d, this->n->f, this->n->name); \
         print(this->n->f); print(*this->n);",
    );
    let expected = "1.500000 -1.25 -1.250000e+00 1.50 abc|float +1.5000000e+00
struct n {
    float f = +1.5000000e+00
    double d = -1.250000000000000e+00
    char [8] name = [ \"abc\" ]
}
";
    assert_eq!(out, expected);
    Pass
}

fn print_of_an_invalid_address_faults() -> Verdict {
    for (call, at) in [
        ("tracemem(8, 16)", "0x8"),
        ("tracemem(alloca(8), 64, 9)", "0x5d01000000000000"),
        ("tracemem(0xffff800000000000, 4)", "0xffff800000000000"),
        ("print(*(struct s *)16)", "0x10"),
        ("trace(*(struct s *)0)", "0x0"),
    ] {
        let text = format!("struct s {{ int x[5]; }}; BEGIN {{ {call}; }} BEGIN {{ exit(0); }}");
        let o = dtrace(&["-qn", &text]).code(0);
        assert!(o.err.contains(&format!("invalid address ({at}) in action #1")), "{call}: {o:?}");
        assert_eq!(o.out, "\n", "{call}");
    }
    Pass
}

fn structs_are_keys_by_value() -> Verdict {
    let script = "struct point { char c; int x; }; struct point p, q; int near[struct point]; \
        BEGIN { p.c = 1; p.x = 7; q.x = 7; *(int *)&q = 0x55aa5501; \
        near[p] = 5; near[q] += 3; self->m[1, p] = \"one\"; \
        printf(\"%d %d %s\\n\", near[p], near[q], self->m[1, q]); \
        @[p] = count(); @[q] = count(); q.x = 8; near[q] = 100; @[q] = count(); \
        @sum[*(struct point *)&p, \"x\"] = sum(near[q]); near[p] = 0; \
        printf(\"%d %d|\", near[p], near[q]); printa(\"%@d|\", @); printa(\"%@d\", @sum); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    // Different padding bytes do not make a different key.
    assert_eq!(o.out, "8 8 one\n0 100|1|2|100\n", "{o:?}");
    // A key is printed as trace() prints the struct.
    let o = dtrace(&[
        "-qn",
        "struct s { char c; int x; }; struct s v; BEGIN { v.c = 1; v.x = -2; @[v] = count(); exit(0); }",
    ]);
    assert!(o.out.contains("0: 01 00 00 00 fe ff ff ff "), "{o:?}");
    assert_eq!(o.out.trim_end().rsplit(' ').next(), Some("1"), "{o:?}");
    // A struct that cannot be read is no key, but a fault.
    let o = dtrace(&[
        "-qn",
        "struct s { long l[9]; }; BEGIN { @[*(struct s *)8] = count(); } BEGIN { exit(0); }",
    ])
    .code(0);
    assert!(o.err.contains("invalid address (0x8) in action #1"), "{o:?}");
    Pass
}
