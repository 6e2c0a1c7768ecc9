//! Options that the tests of other subjects do not cover: each has its effect.

use std::path::PathBuf;
use std::process::Command;

use crate::Verdict::{self, Pass, Skip};
use crate::stacks::BY_POINTERS;
use crate::tool::{dtrace, workload};

tests! {
    rows_are_sorted_by_the_chosen_column_and_aggregation stackframes_and_ustackframes_limit_stacks
    jstackstrsize_cuts_no_name drops_are_reported_at_statusrate quietresize_hides_lowered_sizes
    an_empty_program_is_permitted_by_empty definitions_come_from_libdir_and_syslibdir
    the_preprocessor_gets_its_options distributions_are_drawn_in_the_encoding
    a_program_may_ask_for_its_intermediate_form
}

/// A directory for one test.
fn place(test: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("e2e-options-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn rows_are_sorted_by_the_chosen_column_and_aggregation() -> Verdict {
    let script = "BEGIN { @a[\"b\", 1] = sum(1); @a[\"a\", 2] = sum(1); @b[\"b\", 1] = sum(5); @b[\"a\", 2] = sum(4); \
                  printa(\"%s%d\", @a); printf(\"|\"); printa(\"%s%@d%@d\", @a, @b); exit(0); }";
    for (options, expected) in [
        (&[][..], "a2b1|a14b15"),
        (&["-xaggsortkey"], "a2b1|a14b15"),
        (&["-xaggsortkey", "-xaggsortkeypos=1"], "b1a2|b15a14"),
        (&["-xaggsortpos=1"], "a2b1|a14b15"),
        (&["-xaggsortpos=1", "-xaggsortrev"], "b1a2|b15a14"),
    ] {
        let o = dtrace(&[options, &["-qn", script]].concat()).code(0);
        assert_eq!(o.out, format!("{expected}\n"), "{options:?}");
    }
    // Rows are left out when they are printed, at the end and by printa(); the aggregation stays.
    let script = "BEGIN { @a[\"x\"] = sum(1); @a[\"y\"] = sum(2); @a[\"z\"] = sum(0); printa(\"%s\", @a); \
                  setopt(\"aggtop\", \"0\"); printa(\"|%s\", @a); trunc(@a); exit(0); }";
    for (options, expected) in
        [(&[][..], "zxy|z|x|y"), (&["-xaggtop=1"], "y|z|x|y"), (&["-xaggnozero"], "xy|x|y")]
    {
        let o = dtrace(&[options, &["-qn", script]].concat()).code(0);
        assert_eq!(o.out, format!("{expected}\n"), "{options:?}");
    }
    // The values decide where they differ.
    let script = "BEGIN { @a[\"x\"] = sum(1); @a[\"y\"] = sum(2); @b[\"x\"] = sum(4); @b[\"y\"] = sum(3); \
                  printa(\"%s\", @a, @b); exit(0); }";
    for (options, expected) in [(&[][..], "xy"), (&["-xaggsortpos=1"], "yx"), (&["-xaggsortrev"], "yx")] {
        let o = dtrace(&[options, &["-qn", script]].concat()).code(0);
        assert_eq!(o.out, format!("{expected}\n"), "{options:?}");
    }
    Pass
}

fn stackframes_and_ustackframes_limit_stacks() -> Verdict {
    let lines = |option: &str, action: &str| {
        let script = format!("syscall::getppid:entry /pid == $target && !n++/ {{ {action}; }}");
        let o = dtrace(&["-q", BY_POINTERS, option, "-c", &workload("stacks", 1), "-n", &script]).code(0);
        o.out.lines().filter(|line| !line.trim().is_empty()).count()
    };
    for (option, action, one) in [
        ("stackframes", "stack()", 1),
        ("ustackframes", "ustack()", 1),
        ("jstackframes", "jstack()", 1),
        ("maxframes", "stack()", 1),
        ("maxframes", "ustack()", 1),
    ] {
        assert_eq!(lines(&format!("-x{option}=1"), action), one, "{option}");
        assert!(lines(&format!("-x{option}=20"), action) > one, "{option}");
    }
    Pass
}

fn jstackstrsize_cuts_no_name() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target && !n++/ { jstack(1); }";
    let run = |option: &str| dtrace(&["-q", option, "-c", &workload("getppid", 1), "-n", script]).code(0).out;
    let whole = run("-xjstackstrsize=512");
    // The offset in the function is the same, and all of the name.
    assert_eq!(run("-xjstackstrsize=1"), whole);
    assert!(whole.contains("+0x"), "{whole}");
    Pass
}

fn drops_are_reported_at_statusrate() -> Verdict {
    // On one CPU, because each has a report of its own. What the tracer writes to its standard
    // error are the reports.
    let clauses = "tick-50ms { trace(1); } ".repeat(200);
    let reports = |rate: &str, last: &str| {
        let script = format!(
            "int ticks, reports; syscall::write:entry /pid == $pid && arg0 == 2/ {{ reports++; }} \
             tick-50ms {{ ticks++; }} {clauses} tick-50ms /{last}/ {{ exit(0); }}"
        );
        let words = ["-q", "-b", "4k", "-x", "cpu=0", "-x", rate, "-x", "switchrate=10ms", "-n", &script];
        let o = dtrace(&words).code(0);
        o.err.lines().filter(|line| line.contains(" drops on CPU 0")).count()
    };
    assert!(reports("statusrate=10ms", "reports == 3") >= 3);
    assert_eq!(reports("statusrate=1h", "ticks > 6"), 1);
    Pass
}

fn quietresize_hides_lowered_sizes() -> Verdict {
    // Of the size that is asked for, no machine has the memory.
    for (option, said) in [("quiet", true), ("quietresize", false)] {
        let words = ["-q", "-x", option, "-b", "1t", "-n", "BEGIN { exit(0); } tick-1h { trace(1); }"];
        let o = dtrace(&words).code(0);
        assert_eq!(o.err.starts_with("dtrace: buffer size lowered to "), said, "{option}: {o:?}");
        assert!(said || o.err.is_empty(), "{o:?}");
    }
    Pass
}

fn an_empty_program_is_permitted_by_empty() -> Verdict {
    let dir = place("empty");
    let script = dir.join("empty.d");
    std::fs::write(&script, "").unwrap();
    let script = script.to_str().unwrap();
    let rejected = dtrace(&["-q", "-Z", "-s", script, "-c", "true"]);
    let accepted = dtrace(&["-q", "-Z", "-x", "empty", "-s", script, "-c", "true"]);
    let _ = std::fs::remove_dir_all(&dir);
    assert!(rejected.code(1).err.contains("empty D program translation unit"));
    assert_eq!(accepted.code(0).err, "");
    Pass
}

fn definitions_come_from_libdir_and_syslibdir() -> Verdict {
    let dir = place("libraries");
    std::fs::write(dir.join("x.d"), "inline int DT_TEST = 77;\n").unwrap();
    let run = |option: &str| {
        let option = format!("-x{option}={}", dir.display());
        dtrace(&["-q", &option, "-n", "BEGIN { printf(\"%d\", DT_TEST); exit(0); }"])
    };
    let all = [run("libdir"), run("syslibdir"), run("incdir")];
    let _ = std::fs::remove_dir_all(&dir);
    let [libdir, syslibdir, other] = all;
    assert_eq!((libdir.code(0).out, syslibdir.code(0).out), ("77\n".into(), "77\n".into()));
    assert!(other.code(1).err.contains("DT_TEST"));
    Pass
}

fn the_preprocessor_gets_its_options() -> Verdict {
    if Command::new("cpp").arg("--version").output().is_err() {
        return Skip("this machine has no C preprocessor".into());
    }
    let dir = place("cpp");
    std::fs::create_dir_all(dir.join("include")).unwrap();
    std::fs::write(dir.join("include/five.h"), "#define FIVE 5\n").unwrap();
    let include = dir.join("include");
    let include = include.to_str().unwrap();
    let run = |text: &str, words: &[&str]| {
        let path = dir.join("x.d");
        std::fs::write(&path, text).unwrap();
        dtrace(&[&["-q", "-C"], words, &["-s", path.to_str().unwrap()]].concat())
    };
    let included = "#include <five.h>\nBEGIN { printf(\"%d\", FIVE + EXTRA); exit(0); }\n";
    let with =
        [run(included, &["-I", include, "-x", "cppargs=-DEXTRA=1"]), run(included, &["-D", "EXTRA=1"])];
    let headers = run(included, &["-I", include, "-DEXTRA=1", "-H"]);
    // Only a traditional preprocessor joins the words around a comment.
    let joined = "BE/**/GIN { printf(\"joined\"); exit(0); }\n";
    let joined = [run(joined, &["-X", "s"]), run(joined, &["-X", "a"])];
    let undefined = "#ifdef WORD\n#error defined\n#endif\nBEGIN { exit(0); }\n";
    let undefined = [run(undefined, &["-D", "WORD"]), run(undefined, &["-D", "WORD", "-U", "WORD"])];
    let _ = std::fs::remove_dir_all(&dir);
    let [with, without] = with;
    assert_eq!(with.code(0).out, "6\n");
    assert!(without.code(1).err.contains("five.h"));
    assert!(headers.code(0).err.contains("five.h"));
    let [traditional, standard] = joined;
    assert_eq!(traditional.code(0).out, "joined\n");
    standard.code(1);
    let [defined, undefined] = undefined;
    defined.code(1);
    undefined.code(0);
    Pass
}

fn distributions_are_drawn_in_the_encoding() -> Verdict {
    for (option, bar) in [("encoding=ascii", '@'), ("encoding=utf8", '█')] {
        let o = dtrace(&["-q", "-x", option, "-n", "BEGIN { @ = quantize(3); exit(0); }"]).code(0);
        assert_eq!(o.out.matches(bar).count(), 40, "{o:?}");
    }
    Pass
}

fn a_program_may_ask_for_its_intermediate_form() -> Verdict {
    let o = dtrace(&["-qn", "#pragma D option verbose\nBEGIN { exit(0); }"]).code(0);
    assert!(o.err.contains("clause \"clause_0\""), "{o:?}");
    Pass
}
