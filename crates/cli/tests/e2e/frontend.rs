//! The front end beyond clauses: libraries, `if` and `else`, pragmas, the preprocessor.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, workload};

tests! {
    if_and_else_select_their_blocks each_block_that_records_has_its_own_row
    a_fault_skips_the_later_blocks blocks_are_selected_in_each_of_many_firings pragmas_are_obeyed
    macro_variables_have_the_values_of_the_process an_operand_that_no_program_uses_is_an_error
    the_preprocessor_runs_with_c system_headers_can_be_included preprocessor_options_are_passed_on
    constants_of_the_d_libraries_are_defined libraries_of_the_user_are_loaded
    a_library_is_skipped_when_its_dependency_is_missing
    the_line_of_a_tagged_error_is_the_originals
}

/// An empty directory for this test.
fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("dtrace-e2e-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

// row if.blocks, if.nested
fn if_and_else_select_their_blocks() -> Verdict {
    let text = r#"
        BEGIN { x = 5; if (x > 3) printf("a"); else printf("b"); if (x > 7) printf("c"); else printf("d"); }
        BEGIN / x == 5 / {
            x = 6;
            if (x == 5) { printf("e"); } else if (x == 6) { printf("f"); if (x) { printf("g"); } else { printf("h"); } }
            else { printf("i"); }
            printf("j");
        }
        BEGIN / x == 5 / { if (1) printf("k"); else printf("l"); printf("m"); }
        BEGIN { if (pid == $pid) { @["n"] = count(); } else { @["o"] = count(); } if (x) exit(x); printf("p"); }
        END { if (x == 6) printf("q"); }"#;
    let o = dtrace(&["-qn", text]).code(6);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["adfgjq", "n", "1"], "{o:?}");
    Pass
}

/// Each block that records has its own row and id. An empty block has a row, a block that only
/// computes has none.
fn each_block_that_records_has_its_own_row() -> Verdict {
    let text = "BEGIN { trace(epid); if (pid) { trace(epid); y = 1; } if (y) { z = 1; } if (z) { } else { trace(0); } exit(0); }";
    let o = dtrace(&["-n", text]).code(0);
    let rows: Vec<&str> = o.out.lines().filter(|l| l.contains(":BEGIN")).map(|l| l[44..].trim()).collect();
    assert_eq!(rows.len(), 4, "{o:?}");
    let ids: Vec<u32> = rows[..2].iter().map(|r| r.parse().unwrap()).collect();
    assert!(ids[0] < ids[1], "{o:?}");
    assert_eq!(rows[2..], ["", ""], "{o:?}");
    assert!(o.err.contains("matched 1 probe\n"), "{o:?}");
    let o = dtrace(&["-Sen", text]).code(0);
    assert!(o.err.contains("this->%condition_1") && o.err.contains("this->%error"), "{o:?}");
    for words in [["-d", "-en"], ["-xtree=8", "-en"]] {
        let o = dtrace(&[words[0], words[1], text]).code(0);
        assert_eq!(o.err.matches("part of :::BEGIN").count(), 9, "{o:?}");
    }
    let o = dtrace(&["-xtree=1", "-en", text]).code(0);
    assert!(o.err.contains("description :::BEGIN") && !o.err.contains("part of"), "{o:?}");
    Pass
}

// row if.fault
fn a_fault_skips_the_later_blocks() -> Verdict {
    let text = r#"
        int zero;
        BEGIN { printf("a"); if (1) { printf("b"); x = 1 / zero; } printf("c"); if (1) printf("d"); }
        BEGIN { if (1 / zero) printf("e"); else printf("f"); printf("g"); }
        BEGIN / 1 / zero / { if (1) printf("h"); printf("i"); }
        BEGIN { if (1) printf("j"); exit(0); }
        ERROR { if (arg4 == DTRACEFLT_DIVZERO) printf("!"); else printf("?"); }"#;
    let o = dtrace(&["-qn", text]).code(0);
    assert_eq!(o.out, "a!!!j\n", "{o:?}");
    assert_eq!(o.err.matches("divide-by-zero in action #").count(), 2, "{o:?}");
    assert_eq!(o.err.matches("divide-by-zero in predicate").count(), 1, "{o:?}");
    Pass
}

fn blocks_are_selected_in_each_of_many_firings() -> Verdict {
    let text = "syscall::getppid:entry /pid == $target/ { this->n = ++n; if (this->n % 3 == 0) { @[\"fizz\"] = count(); \
        if (this->n % 5 == 0) @[\"fizzbuzz\"] = count(); } else { if (this->n % 5 == 0) @[\"buzz\"] = count(); else @[\"none\"] = count(); } }";
    let o = dtrace(&["-q", "-c", &workload("getppid", 3000), "-n", text]).code(0);
    for (key, count) in [("fizz", 1000), ("fizzbuzz", 200), ("buzz", 400), ("none", 1600)] {
        assert_eq!(o.value_of(key), count, "{o:?}");
    }
    Pass
}

// row pragma.option, pragma.depends_on, pragma.error, pragma.line, pragma.other
// row tag.D_PRAGMA_OPTSET, tag.D_PRAGMA_DEPEND
fn pragmas_are_obeyed() -> Verdict {
    let dir = directory("pragmas");
    let script = |text: &str| write(&dir, "x.d", text);
    let o = dtrace(&[
        "-s",
        &script(
            "#pragma D option quiet\n#pragma D option strsize=16\nBEGIN { trace(sizeof (string)); exit(0); }\n",
        ),
    ]);
    assert_eq!(o.code(0).out, "16\n");
    for (line, says) in [
        (
            "#pragma D option quite",
            "[D_PRAGMA_OPTSET] line 1: failed to set option 'quite': Invalid option name",
        ),
        (
            "#pragma D option strsize=x",
            "[D_PRAGMA_OPTSET] line 1: failed to set option 'strsize' to 'x': Invalid value for specified option",
        ),
        (
            "#pragma D option nspec=-72",
            "[D_PRAGMA_OPTSET] line 1: failed to set option 'nspec' to '-72': Invalid value for specified option",
        ),
        (
            "#pragma D depends_on provider nothing",
            "[D_PRAGMA_DEPEND] line 1: program requires provider nothing",
        ),
        (
            "#pragma D depends_on module no_such_module",
            "[D_PRAGMA_DEPEND] line 1: program requires module no_such_module",
        ),
        (
            "#pragma D depends_on library signal.d",
            "[D_PRAGMA_DEPEND] line 1: main program may not explicitly depend on a library",
        ),
        (
            "#pragma D depends_on nothing syscall",
            "[D_PRAGMA_MALFORM] line 1: malformed #pragma depends_on <class> <name>",
        ),
        ("#pragma D nonsense", "[D_PRAGMA_INVAL] line 1: invalid D pragma: nonsense"),
        ("#error not for this system", "[D_PRAGERR] line 1: #error: not for this system"),
        ("#nonsense", "[D_PRAGCTL_INVAL] line 1: invalid control directive: #nonsense"),
    ] {
        let o = dtrace(&["-xerrtags", "-es", &script(&format!("{line}\nBEGIN {{ exit(0); }}\n"))]).code(1);
        assert!(o.err.contains(&format!("x.d: {says}")), "{line}: {o:?}");
    }
    // Also between clauses, and between a description and its clause.
    for text in [
        "BEGIN { x = 1; }\n#pragma D nonsense\nBEGIN { exit(0); }",
        "BEGIN\n#pragma D nonsense\n{ exit(0); }",
    ] {
        let o = dtrace(&["-xerrtags", "-es", &script(text)]).code(1);
        assert!(o.err.contains("x.d: [D_PRAGMA_INVAL] line 2: invalid D pragma: nonsense"), "{o:?}");
    }
    let o = dtrace(&["-xerrtags", "-es", &script("BEGIN { exit(0); }\n#pragma")]).code(1);
    let says = "[D_PRAGMA_MALFORM] line 2: end-of-file encountered before end of control line";
    assert!(o.err.contains(says), "{o:?}");
    let o =
        dtrace(&["-xerrtags", "-es", &script("#line 70 \"origin.d\"\nBEGIN { trace(nothing); }\n")]).code(1);
    assert!(o.err.contains("x.d: [D_IDENT_UNDEF] \"origin.d\", line 70: "), "{o:?}");
    dtrace(&["-es", &script("#pragma D depends_on provider syscall\n#pragma D depends_on module vmlinux\n#ident \"x\"\nBEGIN { exit(0); }\n")]).code(0);
    let _ = fs::remove_dir_all(&dir);
    Pass
}

fn macro_variables_have_the_values_of_the_process() -> Verdict {
    let text = r#"BEGIN { printf("%s|%d|%s|%s|%d|%s|%d\n", $$0, $1, $$1, $2, $3, $$4, $target); exit(0); }"#;
    let o = dtrace(&["-qn", text, "--", "12", "a b", "-7", "name"]).code(0);
    assert_eq!(o.out, "dtrace|12|12|a b|-7|name|0\n\n");
    // A macro name stays a macro, even in a field of a probe description.
    let o =
        dtrace(&["-qn", "$1::: { printf(\"%s %d\\n\", probe$2, $3); exit(0); }", "dtrace", "name", "0x1f"]);
    assert!(o.err.contains("syntax error") || o.code == Some(1), "{o:?}");
    let o = dtrace(&[
        "-qn",
        "dtrace:::$1 { printf(\"%s %d\\n\", $2, $3); exit(0); }",
        "BEGIN",
        "probename",
        "0x1f",
    ]);
    assert_eq!(o.code(0).out, "BEGIN 31\n\n");
    // SAFETY: no arguments, cannot fail.
    let (uid, gid, me, sid, group) =
        unsafe { (libc::getuid(), libc::getgid(), libc::getpid(), libc::getsid(0), libc::getpgid(0)) };
    let text =
        r#"BEGIN { printf("%d %d %d %d %d %d\n", $uid, $euid, $gid, $egid, $ppid, $pid == pid); exit(0); }"#;
    assert_eq!(dtrace(&["-qn", text]).code(0).out, format!("{uid} {uid} {gid} {gid} {me} 1\n\n"));
    let o = dtrace(&["-qn", "BEGIN { printf(\"%d %d\\n\", $sid, $pgid); exit(0); }"]).code(0);
    assert_eq!(o.out.trim(), format!("{sid} {group}"));
    let o = dtrace(&["-q", "-c", "true", "-n", "END { printf(\"%d\\n\", $target > 1); }"]).code(0);
    assert_eq!(o.out.trim(), "1");
    Pass
}

fn an_operand_that_no_program_uses_is_an_error() -> Verdict {
    let o = dtrace(&["-xerrtags", "-en", "BEGIN { trace($1); }", "1", "more"]).code(1);
    assert!(o.err.contains("[D_MACRO_UNUSED] extraneous argument 'more' ($2 is not referenced)"), "{o:?}");
    dtrace(&["-xargref", "-en", "BEGIN { trace($1); }", "1", "more"]).code(0);
    // It is enough that one of several programs uses an operand. Uses in libraries do not count.
    dtrace(&["-en", "BEGIN { trace($1); }", "-n", "BEGIN { trace($2 + SIGKILL); }", "1", "2"]).code(0);
    // A script can set the option itself, before it uses the operands.
    let dir = directory("operands");
    let script = write(
        &dir,
        "x.d",
        "#pragma D option defaultargs\n#pragma D option quiet\ninline int TOP = $1 ? $1 : 10;\nBEGIN / $2 == 0 / { printf(\"%d[%s]\", TOP, $$3); exit(0); }\n",
    );
    assert_eq!(dtrace(&["-s", &script]).code(0).out, "10[]\n");
    assert_eq!(dtrace(&["-s", &script, "7"]).code(0).out, "7[]\n");
    let script = write(&dir, "y.d", "#pragma D option argref\nBEGIN { exit(0); }\n");
    dtrace(&["-es", &script, "1", "2"]).code(0);
    let _ = fs::remove_dir_all(&dir);
    let o = dtrace(&["-xerrtags", "-en", "BEGIN { trace($2); }", "1"]).code(1);
    assert!(o.err.contains("[D_MACRO_UNDEF]") && o.err.contains("macro argument $2 is not defined"), "{o:?}");
    let o = dtrace(&["-xdefaultargs", "-qn", "BEGIN { printf(\"%d[%s]\\n\", $1, $$2); exit(0); }"]).code(0);
    assert_eq!(o.out, "0[]\n\n");
    let o = dtrace(&["-xerrtags", "-en", "BEGIN { trace($1); }", "99999999999999999999"]).code(1);
    assert!(o.err.contains("[D_MACRO_OFLOW]"), "{o:?}");
    Pass
}

fn have_cpp() -> bool {
    std::process::Command::new("cpp").arg("--version").output().is_ok()
}

// row cpp.predefines
fn the_preprocessor_runs_with_c() -> Verdict {
    if !have_cpp() {
        return Verdict::Skip("cpp: this machine has no C preprocessor".into());
    }
    let dir = directory("cpp");
    write(&dir, "x.h", "#define FROM_HEADER 7\n\n\n#define TWICE(x) ((x) + (x))\n");
    let names = "#if defined(__SUNW_D) && __SUNW_D_VERSION >= 0x01006000 && defined(__SUNW_D_64) && defined(__linux) && defined(__unix) && defined(__SVR4) && defined(__Linux)";
    let text = format!(
        "#!/usr/sbin/dtrace -qs\n#include \"x.h\"\n{names}\nBEGIN // a comment\n{{\n\tprintf(\"%d %d\\n\", FROM_HEADER, TWICE(FROM_D));\n\texit(0);\n}}\n#endif\n"
    );
    let script = write(&dir, "x.d", &text);
    let path = dir.display().to_string();
    let o = dtrace(&["-C", "-D", "FROM_D=4", "-I", &path, "-qs", &script]).code(0);
    assert_eq!(o.out, "7 8\n\n", "{o:?}");
    // Line numbers are those of the script, and those of the header.
    let script = write(&dir, "y.d", "#include \"x.h\"\nBEGIN\n{\n\ttrace(TWICE(nothing));\n}\n");
    let o = dtrace(&["-C", "-I", &path, "-es", &script]).code(1);
    assert!(o.err.contains("y.d: line 4: ") && o.err.contains("failed to resolve nothing"), "{o:?}");
    write(&dir, "bad.h", "\n\ninline int broken = ;\n");
    let script = write(&dir, "z.d", "#include \"bad.h\"\nBEGIN { exit(0); }\n");
    let o = dtrace(&["-C", "-I", &path, "-es", &script]).code(1);
    assert!(o.err.contains("bad.h: line 3: ") && o.err.contains("syntax error near \";\""), "{o:?}");
    let _ = fs::remove_dir_all(&dir);
    Pass
}

/// GNU C in the headers of the system, and parts of C that D does not have.
fn system_headers_can_be_included() -> Verdict {
    if !have_cpp() {
        return Verdict::Skip("cpp: this machine has no C preprocessor".into());
    }
    let dir = directory("headers");
    let path = dir.display().to_string();
    let header = "#ifdef __GNUC__\n#error GNU C\n#endif\n\
        typedef unsigned int id_t;\n\
        extern int raise (int __sig) __attribute__ ((__nothrow__ , __leaf__));\n\
        __extension__ typedef __signed__ char own_t;\n\
        static __inline int half (int x) { if (x) { return x / 2; } return 0; }\n\
        struct __attribute__((packed)) own { own_t a; int b[]; };\n";
    write(&dir, "own.h", header);
    let script = write(
        &dir,
        "own.d",
        "#include <own.h>\nBEGIN { printf(\"%d %d\\n\", sizeof (struct own), (own_t)255); }\n",
    );
    // Twice, because two scripts may include the same header.
    let end = "BEGIN { exit(0); }";
    let o = dtrace(&["-C", "-I", &path, "-qs", &script, "-s", &script, "-n", end]).code(0);
    assert_eq!(o.out, "4 -1\n4 -1\n\n", "{o:?}");
    if !std::path::Path::new("/usr/include/netinet/in.h").exists() {
        let _ = fs::remove_dir_all(&dir);
        return Pass;
    }
    let script = write(
        &dir,
        "system.d",
        "#include <sys/types.h>\n#include <sys/socket.h>\n#include <netinet/in.h>\n\
         BEGIN { printf(\"%d %d\\n\", sizeof (struct sockaddr_in), offsetof(struct sockaddr_in, sin_addr)); exit(0); }\n",
    );
    let o = dtrace(&["-C", "-qs", &script]).code(0);
    assert_eq!(o.out, "16 4\n\n", "{o:?}");
    let _ = fs::remove_dir_all(&dir);
    Pass
}

// row cpp.missing
fn preprocessor_options_are_passed_on() -> Verdict {
    let dir = directory("cppopts");
    let script = write(&dir, "x.d", "BEGIN { trace(1); }\n");
    // Without a preprocessor, the message names what is missing.
    let o = dtrace(&["-C", "-xcpppath=/nonexistent/cpp", "-es", &script]).code(1);
    assert!(o.err.contains("Preprocessor not found: /nonexistent/cpp"), "{o:?}");
    if !have_cpp() {
        return Pass;
    }
    let o = dtrace(&[
        "-C",
        "-D",
        "X",
        "-U",
        "X",
        "-qes",
        &write(&dir, "u.d", "#ifdef X\n#error defined\n#endif\nBEGIN { }\n"),
    ]);
    o.code(0);
    let o = dtrace(&["-C", "-es", &write(&dir, "e.d", "\n#error broken on purpose\n")]).code(1);
    assert!(o.err.contains("broken on purpose"), "{o:?}");
    write(&dir, "listed.h", "/* */\n");
    let path = dir.display().to_string();
    let o =
        dtrace(&["-C", "-H", "-I", &path, "-es", &write(&dir, "h.d", "#include \"listed.h\"\nBEGIN { }\n")])
            .code(0);
    assert!(o.err.contains("listed.h"), "{o:?}");
    // Traditional mode replaces macros within strings.
    let text = "#define hello bye\n#define S(x) \"x\"\nBEGIN { trace(S(hello)); exit(0); }\n";
    let script = write(&dir, "t.d", text);
    assert_eq!(dtrace(&["-C", "-Xs", "-qs", &script]).code(0).out.trim(), "hello");
    for mode in ["a", "c", "t"] {
        assert_eq!(dtrace(&["-C", "-X", mode, "-qs", &script]).code(0).out.trim(), "x");
    }
    dtrace(&["-C", "-Xq", "-qs", &script]).code(1);
    let _ = fs::remove_dir_all(&dir);
    Pass
}

fn constants_of_the_d_libraries_are_defined() -> Verdict {
    let text = r#"BEGIN { printf("%d %d %d %d %x", SIGKILL, EWOULDBLOCK, AF_INET6, TCP_STATE_LISTEN, O_CREAT | O_EXCL);
        printf(" %s\n", tcp_state_string[7]); exit(0); }"#;
    let o = dtrace(&["-qn", text]).code(0);
    assert_eq!(o.out, "9 11 10 10 c0 state-closed\n\n");
    let text = r#"BEGIN { printf("%d %d %d %d %d %d %d %d %d %d", CLD_EXITED, SI_USER, SI_QUEUE, DTRACEFLT_BADADDR, F_GETFL,
        IPPROTO_TCP, RW_READER, SRUN, TCP_STATE_ESTABLISHED, TH_SYN | TH_ACK); exit(0); }"#;
    assert_eq!(dtrace(&["-qn", text]).code(0).out.trim(), "1 0 -1 1 3 6 1 2 1 18");
    // A flag that Linux does not have is in no word, and a number that it does not have is none.
    let text = r#"BEGIN { printf("%x %x %x %x %d", MAP_SHARED | MAP_ANON | MAP_FIXED | MAP_NORESERVE, PROT_READ | PROT_EXEC,
        MAP_TEXT | MAP_INITDATA | MAP_ALIGN, S_IFMT & S_IFDIR, MADV_DONTNEED);
        printf(" %d %d %d %x %d %d %d", PF_INET6, SOL_SOCKET, SO_RCVBUF, MSG_DONTWAIT | MSG_PEEK, SHUT_RDWR, SIGLWP, ENOTACTIVE);
        exit(0); }"#;
    let says = "4031 5 0 4000 4 10 1 8 42 2 -1 -1";
    assert_eq!(dtrace(&["-qn", text]).code(0).out.trim(), says);
    let text = r#"BEGIN { printf("%d %d %d %d %d %d %d ", B_TRUE, B_FALSE, ARPHRD_ETHER, ARPHRD_LOOPBACK,
        sizeof (hrtime_t), sizeof (major_t), sizeof (caddr_t)); this->b = (boolean_t)1; self->z = (zoneid_t)-1;
        this->c = (caddr_t)0; printf("%d %d", this->b == B_TRUE, self->z); print(this->b); exit(0); }"#;
    assert_eq!(dtrace(&["-qn", text]).code(0).out.trim(), "1 0 1 772 8 4 8 1 -1boolean_t B_TRUE");
    // An error in the use of an inline is reported at the use, not in the library that defines it.
    let o = dtrace(&["-en", "BEGIN { printf(\"%d\", curpsinfo->pr_psargs); }"]).code(1);
    assert!(o.err.contains("command line:1:22") && !o.err.contains("procfs.d"), "{o:?}");
    let o = dtrace(&["-xnolibs", "-en", "BEGIN { trace(SIGKILL); }"]).code(1);
    assert!(o.err.contains("failed to resolve SIGKILL: Unknown variable name"), "{o:?}");
    Pass
}

fn libraries_of_the_user_are_loaded() -> Verdict {
    let dir = directory("libs");
    let path = dir.display().to_string();
    write(
        &dir,
        "a.d",
        "inline int FROM_A = FROM_B + 1;\ntypedef struct pair { int x; char y[3]; } pair_t;\n",
    );
    write(&dir, "b.d", "inline int FROM_B = 41;\n");
    write(&dir, "not-a-library", "syntax error");
    let o =
        dtrace(&["-L", &path, "-qn", "BEGIN { printf(\"%d %d\\n\", FROM_A, sizeof (pair_t)); exit(0); }"]);
    assert_eq!(o.code(0).out, "42 7\n\n");
    write(
        &dir,
        "c.d",
        "#pragma D option quiet\n#pragma D option strsize=24\nBEGIN { printf(\"not enabled\"); }\n",
    );
    let o = dtrace(&["-L", &path, "-n", "BEGIN { printf(\"%d\\n\", sizeof (string)); exit(0); }"]).code(0);
    assert_eq!(o.out, "24\n\n", "{o:?}");
    let o = dtrace(&["-qn", "BEGIN { trace(FROM_B); }"]).code(1);
    assert!(o.err.contains("FROM_B"), "{o:?}");
    // A mistake in a library is reported, whichever program uses it.
    write(&dir, "b.d", "inline int FROM_B =\n\t41 + nothing;\n");
    let o = dtrace(&["-L", &path, "-xerrtags", "-en", "BEGIN { trace(1); }"]).code(1);
    let expected = format!("dtrace: [D_IDENT_UNDEF] \"{path}/b.d\", line 2: failed to resolve nothing: ");
    assert!(o.err.contains(&expected), "{o:?}");
    let o = dtrace(&["-L", "/nonexistent", "-en", "BEGIN { trace(1); }"]).code(1);
    assert!(o.err.contains("failed to read D library '/nonexistent': No such file or directory"), "{o:?}");
    let _ = fs::remove_dir_all(&dir);
    Pass
}

fn a_library_is_skipped_when_its_dependency_is_missing() -> Verdict {
    let dir = directory("depends");
    let path = dir.display().to_string();
    write(&dir, "no.d", "#pragma D depends_on provider no_such_provider\ninline int GONE = 1;\n");
    write(&dir, "so.d", "#pragma D depends_on library no.d\ninline int GONE_TOO = 1;\n");
    write(
        &dir,
        "yes.d",
        "#pragma D depends_on provider syscall\n#pragma D depends_on module vmlinux\n#pragma D depends_on library errno.d\ninline int HERE = EPERM;\n",
    );
    let o = dtrace(&["-L", &path, "-qn", "BEGIN { printf(\"%d\\n\", HERE); exit(0); }"]).code(0);
    assert_eq!(o.out, "1\n\n");
    for word in ["GONE", "GONE_TOO"] {
        let o = dtrace(&["-L", &path, "-en", &format!("BEGIN {{ trace({word}); }}")]).code(1);
        assert!(o.err.contains(&format!("failed to resolve {word}: ")), "{o:?}");
    }
    let script = write(&dir, "script", "#pragma D depends_on library no.d\nBEGIN { exit(0); }\n");
    let o = dtrace(&["-L", &path, "-xerrtags", "-es", &script]).code(1);
    let says = "[D_PRAGMA_DEPEND] line 1: main program may not explicitly depend on a library";
    assert!(o.err.contains(says), "{o:?}");
    // A library that is nowhere, and those that need each other, are errors of their libraries.
    write(&dir, "no.d", "\n#pragma D depends_on library none.d\n");
    let o = dtrace(&["-L", &path, "-xerrtags", "-en", "BEGIN { exit(0); }"]).code(1);
    let says = format!("\"{path}/no.d\", line 2: Invalid library dependency in {path}/no.d: {path}/none.d");
    assert!(o.err.contains(&says) && o.err.contains("[D_PRAGMA_DEPEND]"), "{o:?}");
    write(&dir, "no.d", "#pragma D depends_on library on.d\n");
    write(&dir, "on.d", "#pragma D depends_on library so.d\n");
    let o = dtrace(&["-L", &path, "-en", "BEGIN { exit(0); }"]).code(1);
    let says = format!("\"{path}/no.d\", line 1: Cyclic dependency detected: {path}/on.d => {path}/no.d");
    assert!(o.err.contains(&says), "{o:?}");
    write(&dir, "no.d", "#pragma D depends_on library no.d\n");
    let o = dtrace(&["-L", &path, "-en", "BEGIN { exit(0); }"]).code(1);
    let says = format!("Cyclic dependency detected: {path}/no.d => {path}/no.d");
    assert!(o.err.contains(&says), "{o:?}");
    let _ = fs::remove_dir_all(&dir);
    Pass
}

fn the_line_of_a_tagged_error_is_the_originals() -> Verdict {
    let dir = directory("lines");
    for (text, says) in [
        ("BEGIN\n{\n\tx = 1;\n", "D_SYNTAX] line 4: syntax error near end of input"),
        ("BEGIN\n/(pid/\n\n{\n}\n", "D_SYNTAX] line 4: closing ) expected in predicate before /"),
        ("BEGIN\n/curthread->comm[0/\n{\n}\n", "D_SYNTAX] line 3: closing ] expected in predicate before /"),
        ("BEGIN { x =\n+\n; }\n", "D_SYNTAX] line 3: syntax error near \";\""),
        ("BEGIN { x = \"a\n\"; }\n", "D_STR_NL] line 2: newline encountered in string literal"),
        // An element is known at its bracket, a call at its parenthesis, an operator when the token
        // behind it is.
        ("BEGIN { x = curthread[\n1,\n2\n] +\n1; }\n", "] line 4: "),
        ("BEGIN { exit(1,\n2\n)\n; }\n", "D_PROTO_LEN] line 3: "),
        ("BEGIN\n/\"a\" && \"b\"/\n{\n}\n", "D_OP_SCALAR] line 3: "),
        ("BEGIN { x = 1 /\n0\n\n}\n", "D_DIV_ZERO] line 4: "),
        // What is checked as a whole is wrong where it ends.
        ("BEGIN\n/execname/\n{\nexit(0);\n}\n\n", "D_PRED_SCALAR] line 5: "),
        ("translator int\n< int x >\n{\n};\n\nBEGIN { }\n", "D_XLATE_SOU] line 4: "),
        (
            "struct o { int a; };\ntranslator struct o < int x >\n{\nb = x;\n};\n\nBEGIN { }\n",
            "D_XLATE_MEMB] line 5: ",
        ),
        ("enum e {\nA = 2147483648\n};\n", "D_DECL_ENOFLOW] line 3: "),
        ("long struct s\n{\nint i;\n} x;\n", "D_DECL_LONGINT] line 2: "),
        ("/* nothing */\n\n", "D_EMPTY] line 3: "),
    ] {
        let o = dtrace(&["-xerrtags", "-es", &write(&dir, "x.d", text)]).code(1);
        assert!(o.err.contains(says), "{text}: {o:?}");
    }
    // People are shown where it is.
    let o = dtrace(&["-es", &write(&dir, "x.d", "BEGIN\n/execname/\n{\n}\n")]).code(1);
    assert!(o.err.contains("line 2: predicate result must be of scalar type\n"), "{o:?}");
    let _ = fs::remove_dir_all(&dir);
    Pass
}
