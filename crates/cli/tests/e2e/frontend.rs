//! What the front end adds to clauses: libraries.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Verdict::{self, Pass};
use crate::tool::dtrace;

tests! {
    constants_of_the_libraries libraries_of_one_s_own libraries_depend_on_things
}

/// A directory of this test, empty.
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

fn constants_of_the_libraries() -> Verdict {
    let text = r#"BEGIN { printf("%d %d %d %d %x", SIGKILL, EWOULDBLOCK, AF_INET6, TCP_STATE_LISTEN, O_CREAT | O_EXCL);
        printf(" %s\n", tcp_state_string[7]); exit(0); }"#;
    let o = dtrace(&["-qn", text]).code(0);
    assert_eq!(o.out, "9 11 10 10 c0 state-closed\n\n");
    let o = dtrace(&["-xnolibs", "-en", "BEGIN { trace(SIGKILL); }"]).code(1);
    assert!(o.err.contains("failed to resolve SIGKILL: Unknown variable name"), "{o:?}");
    Pass
}

fn libraries_of_one_s_own() -> Verdict {
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
    let o = dtrace(&["-qn", "BEGIN { trace(FROM_B); }"]).code(1);
    assert!(o.err.contains("FROM_B"), "{o:?}");
    // A mistake in one is told, whoever uses it.
    write(&dir, "b.d", "inline int FROM_B =\n\t41 + nothing;\n");
    let o = dtrace(&["-L", &path, "-xerrtags", "-en", "BEGIN { trace(1); }"]).code(1);
    let expected = format!("dtrace: \"{path}/b.d\", line 2: [D_IDENT_UNDEF] failed to resolve nothing: ");
    assert!(o.err.contains(&expected), "{o:?}");
    let o = dtrace(&["-L", "/nonexistent", "-en", "BEGIN { trace(1); }"]).code(1);
    assert!(o.err.contains("failed to read D library '/nonexistent': No such file or directory"), "{o:?}");
    let _ = fs::remove_dir_all(&dir);
    Pass
}

fn libraries_depend_on_things() -> Verdict {
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
    assert!(o.err.contains("[D_PRAGMA_DEPEND] program requires library no.d"), "{o:?}");
    let _ = fs::remove_dir_all(&dir);
    Pass
}
