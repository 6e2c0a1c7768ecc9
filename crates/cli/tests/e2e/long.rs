//! Long scripts: many statements, many clauses, long strings, and named limits.

use std::fmt::Write;

use crate::Verdict::{self, Pass};
use crate::machine::is_guest;
use crate::tool::{dtrace, workload};

tests! {
    a_clause_of_three_hundred_statements_runs five_hundred_clauses_on_one_probe_run_in_order
    a_fault_in_a_long_clause_ends_that_clause many_clauses_of_error_run_for_a_fault
    strings_of_four_kilobytes_are_kept_whole many_clause_local_variables_keep_their_values
    stacks_in_three_hundred_clauses_agree
    two_hundred_aggregations_and_a_hundred_arrays_fit_one_program long_begin_and_end_clauses_run
    a_program_beyond_the_limits_is_rejected a_limit_that_is_exceeded_is_named
    thread_variables_use_their_memory_to_the_last_byte
}

/// Number of calls.
const CALLS: i64 = 3;

fn traced(script: &str, options: &[&str]) -> crate::tool::Output {
    let target = workload("getppid", CALLS as u32);
    let mut words = vec!["-q", "-c", &target];
    words.extend(options);
    words.extend(["-n", script]);
    dtrace(&words)
}

fn a_clause_of_three_hundred_statements_runs() -> Verdict {
    let mut script =
        "syscall::getppid:entry /pid == $target/ { this->n = 0; self->t = timestamp; self->n = 1; this->w = 7; "
            .to_owned();
    for i in 0..300 {
        let _ = match i % 15 {
            0 => write!(script, "@counts[{}] = count(); ", i / 15),
            1 => write!(script, "this->n += {i}; "),
            2 => write!(script, "g += this->n > {i} ? 1 : 2; "),
            3 => write!(script, "a[execname, {i}] = probefunc; "),
            4 => write!(script, "@q = quantize(this->n); "),
            5 => write!(script, "printf(\"L%d %s\\n\", {i}, a[execname, {}]); ", i - 2),
            6 => write!(script, "self->n = self->n + this->w; "),
            7 => write!(script, "text = strjoin(probefunc, \"{i}\"); "),
            8 => write!(script, "lengths += strlen(text); "),
            9 => write!(script, "@[execname, text] = sum(this->n); "),
            10 => write!(script, "same += timestamp == self->t || {i} > 20; "),
            11 => write!(script, "b[this->n] = 1; "),
            12 => write!(script, "trace({i}); "),
            13 => write!(script, "@m = min(-{i}); "),
            _ => write!(script, "this->w = (this->w * 3 + {i}) % 1000; "),
        };
    }
    script += "printf(\"\\nw %d\\n\", this->w); } \
               END { printf(\"\\ng %d\\nn %d\\nlengths %d\\nsame %d\\n\", g, 0, lengths, same); \
               printa(\"c %d %@d\\n\", @counts); printa(\"m %@d\\n\", @m); }";
    let o = traced(&script, &[]).code(0);
    let (mut n, mut g, mut w, mut lengths) = (0, 0, 7, 0);
    for i in 0..300 {
        match i % 15 {
            1 => n += i,
            2 => g += if n > i { 1 } else { 2 },
            7 => lengths += format!("getppid{i}").len() as i64,
            14 => w = (w * 3 + i) % 1000,
            _ => {}
        }
    }
    assert_eq!(o.value_of("w"), w, "{o:?}");
    assert_eq!(o.value_of("g"), g * CALLS, "{o:?}");
    assert_eq!(o.value_of("lengths"), lengths * CALLS, "{o:?}");
    assert_eq!(o.value_of("same"), 20 * CALLS, "{o:?}");
    assert_eq!(o.value_of("m"), -298, "{o:?}");
    for k in 0..20 {
        assert!(o.out.contains(&format!("c {k} {CALLS}\n")), "{o:?}");
        assert_eq!(o.out.matches(&format!("L{} getppid\n", 15 * k + 5)).count() as i64, CALLS, "{o:?}");
    }
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

fn five_hundred_clauses_on_one_probe_run_in_order() -> Verdict {
    // An emulated CPU takes a minute for five hundred.
    let many: i64 = if is_guest() { 120 } else { 500 };
    let mut script = "int x; ".to_owned();
    for i in 0..many {
        let _ = write!(
            script,
            "syscall::getppid:entry /pid == $target && {i} >= 0/ {{ this->n = x; x = this->n + 1; @[{i}] = count(); \
             printf(\"k %d\\n\", x); }} "
        );
    }
    script += "END { printf(\"x %d\\n\", x); }";
    let o = traced(&script, &[]).code(0);
    assert_eq!(o.value_of("x"), many * CALLS);
    for i in [1, many - 1, many, 2 * many, 3 * many] {
        assert!(o.out.contains(&format!("k {i}\n")), "{i}\n{o:?}");
    }
    let counted =
        o.out.lines().filter(|l| !l.starts_with('k') && l.split_whitespace().nth(1) == Some("3")).count();
    assert_eq!(counted as i64, many, "{o:?}");
    Pass
}

fn a_fault_in_a_long_clause_ends_that_clause() -> Verdict {
    let before: String = (0..300).map(|i| format!("x += {i}; @[{i}] = count(); ")).collect();
    let script = format!(
        "int y; syscall::getppid:entry /pid == $target/ {{ printf(\"never\"); {before} y = *(int *)8; z = 1; {before} }} \
         syscall::getppid:entry /pid == $target/ {{ next++; }} \
         ERROR {{ errors++; address = arg5; }} \
         END {{ printf(\"x %d\\nz %d\\nnext %d\\nerrors %d\\naddress %d\\n\", x, z, next, errors, address); }}"
    );
    let o = traced(&script, &[]).code(0);
    let sum: i64 = (0..300).sum();
    assert_eq!((o.value_of("x"), o.value_of("z")), (sum * CALLS, 0), "{o:?}");
    assert_eq!((o.value_of("next"), o.value_of("errors"), o.value_of("address")), (CALLS, CALLS, 8), "{o:?}");
    assert!(!o.out.contains("never"), "{o:?}");
    Pass
}

fn many_clauses_of_error_run_for_a_fault() -> Verdict {
    // Many clauses, of which one is split. Two clauses fault, and ERROR gets the arguments of the
    // second too.
    let many: i64 = if is_guest() { 40 } else { 300 };
    let mut script = "int y; syscall::getppid:entry /pid == $target/ { y = *(int *)8; } \
                      syscall::getppid:entry /pid == $target/ { y = 1; y = *(int *)9; } ERROR { "
        .to_owned();
    for i in 0..many {
        let _ = write!(
            script,
            "this->n{} = {i}; x += this->n{}; this->s = strjoin(probename, \"{i}\"); a[this->s, arg4] = arg5; ",
            i % 9,
            i % 9
        );
    }
    script += "printf(\"last %s %d %d\\n\", this->s, arg2, arg5); } ";
    for i in 0..many {
        let _ = write!(script, "ERROR {{ this->k = {i}; @[arg5, this->k] = count(); z += this->k; }} ");
    }
    script += "END { printf(\"x %d\\nz %d\\n\", x, z); }";
    let o = traced(&script, &[]).code(0);
    let sum = many * (many - 1) / 2;
    assert_eq!((o.value_of("x"), o.value_of("z")), (2 * CALLS * sum, 2 * CALLS * sum), "{o:?}");
    for (action, address) in [(1, 8), (2, 9)] {
        let line = format!("last ERROR{} {action} {address}\n", many - 1);
        assert_eq!(o.out.matches(&line).count() as i64, CALLS, "{o:?}");
        for i in [0, many - 1] {
            let keyed = |l: &&str| l.split_whitespace().eq([address, i, CALLS].map(|n| n.to_string()));
            assert_eq!(o.out.lines().filter(keyed).count(), 1, "{o:?}");
        }
    }
    Pass
}

fn strings_of_four_kilobytes_are_kept_whole() -> Verdict {
    // No self-> variables, because a kernel may allow less than 8 KiB for all context levels.
    let long = "0123456789".repeat(300);
    let script = format!(
        "BEGIN {{ s = \"{long}\"; this->a = s; t = this->a; n[s, t] = \"v\"; n[s, \"x\"] = this->a; \
         @[s, t, this->a, s, s, s, s, s] = count(); @[s, t, this->a, s, s, s, s, \"other\"] = sum(5); }}"
    );
    let script = script.replace("= sum(5)", "= count()");
    let script = format!(
        "{script} BEGIN {{ printf(\"[%s]\\nlen %d\\nsame %d\\nlast %d\\n\", n[s, \"x\"], strlen(strjoin(t, \"!!\")), \
         n[s, s] == \"v\", s == t); exit(0); }}"
    );
    let o = dtrace(&["-q", "-x", "strsize=4k", "-n", &script]).code(0);
    assert!(o.out.contains(&format!("[{long}]\n")), "{o:?}");
    assert_eq!((o.value_of("len"), o.value_of("same"), o.value_of("last")), (3002, 1, 1), "{o:?}");
    assert_eq!(o.out.matches(&long).count(), 1 + 8 + 7, "{o:?}");
    Pass
}

fn many_clause_local_variables_keep_their_values() -> Verdict {
    let set: String = (0..120).map(|i| format!("this->v{i} = {i} + arg0 * 0; ")).collect();
    let sum: Vec<String> = (0..120).map(|i| format!("this->v{i}")).collect();
    let script =
        format!("BEGIN {{ {set} }} BEGIN {{ printf(\"sum %d\\n\", {}); exit(0); }}", sum.join(" + "));
    let o = dtrace(&["-qn", &script]).code(0);
    assert_eq!(o.value_of("sum"), (0..120).sum::<i64>(), "{o:?}");
    Pass
}

fn stacks_in_three_hundred_clauses_agree() -> Verdict {
    // An emulated CPU takes a minute for more.
    let many: i64 = if is_guest() { 60 } else { 300 };
    let mut script = "int x; ".to_owned();
    for i in 0..many {
        let _ = write!(
            script,
            "syscall::getppid:entry /pid == $target && {i} >= 0/ {{ @k[stack()] = count(); @u[ustack(1)] = count(); \
             x += stackdepth > 0 && ustackdepth > 0; y += caller == 0; }} "
        );
    }
    // The last clause takes all stacks at once. They must equal those of the other clauses.
    script += "syscall::getppid:entry /pid == $target/ { @k[stack()] = count(); @u[ustack(1)] = count(); d = stackdepth; } \
               END { printf(\"x %d\\nd %d\\ny %d\\n\", x, d, y); printa(\"%kkernel %@d\\n\", @k); \
               printa(\"%kuser %@d\\n\", @u); }";
    let o = traced(&script, &[]).code(0);
    assert_eq!(o.value_of("x"), many * CALLS, "{o:?}");
    // Whether the kernel's stack has a caller depends on the kernel, but all clauses must agree.
    let depth = o.value_of("d");
    assert_eq!(o.value_of("y"), if depth > 1 { 0 } else { many * CALLS }, "{o:?}");
    let all = (many + 1) * CALLS;
    for whose in ["kernel", "user"] {
        let line = o.out.lines().find(|l| l.trim().starts_with(whose)).unwrap_or_default();
        assert_eq!(line.trim(), format!("{whose} {all}"), "{o:?}");
    }
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

fn two_hundred_aggregations_and_a_hundred_arrays_fit_one_program() -> Verdict {
    // More than the 64 maps that a program may use, and more than 256 functions, if each had its
    // own.
    let (aggs, arrays) = if is_guest() { (70, 40) } else { (200, 100) };
    let mut script = "int s; ".to_owned();
    let probe = "syscall::getppid:entry /pid == $target/";
    let (mut prints, mut lines, mut sum) = (String::new(), Vec::new(), 0);
    for i in 0..aggs {
        let key = ["", "[probefunc]", "[probefunc, pid]", "[stringof(probeprov), 7]", "[7]"][i % 5];
        let (function, value) =
            [("count()".to_owned(), 1), (format!("sum({i})"), i), (format!("max({i})"), i)][i % 3].clone();
        let _ = write!(script, "{probe} {{ @a{i}{key} = {function}; }} ");
        let _ = write!(prints, "printf(\"a {i}\"); printa(@a{i}); ");
        lines.push((i, if i % 3 == 2 { value } else { value * CALLS as usize }));
    }
    for i in 0..arrays {
        let element = format!("b{i}[{}]", ["1", "probefunc", "probefunc, 5"][i % 3]);
        let _ = match i % 2 {
            // A new element, an existing one, none.
            0 => write!(
                script,
                "{probe} {{ {element} = {i}; {element}++; s += {element}; {element} = 0; s += {element}; {element} = {i}; }} "
            ),
            _ => write!(
                script,
                "{probe} {{ {element} = probefunc; s += strlen({element}); {element} = 0; s += {element} == NULL; }} "
            ),
        };
        sum += if i % 2 == 0 { i + 1 } else { "getppid".len() + 1 };
    }
    let _ = write!(script, "END {{ printf(\"s %d\\n\", s); {prints} }}");
    let o = traced(&script, &[]).code(0);
    assert_eq!(o.value_of("s"), sum as i64 * CALLS, "{o:?}");
    // "a N" and, behind a key in the same line or the next, the value.
    let words: Vec<&str> = o.out.split_whitespace().collect();
    let mut groups = words.split(|w| *w == "a").skip(1);
    for (i, value) in lines {
        let group = groups.next().unwrap_or_default();
        let (first, last) = (i.to_string(), value.to_string());
        assert_eq!((group.first(), group.last()), (Some(&first.as_str()), Some(&last.as_str())), "{o:?}");
    }
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

fn long_begin_and_end_clauses_run() -> Verdict {
    let all: String = (0..400).map(|i| format!("x += {i}; printf(\"%d\\n\", x); ")).collect();
    let script = format!("BEGIN {{ {all} exit(0); }} END {{ {all} printf(\"x %d\\n\", x); }}");
    let o = dtrace(&["-qn", &script]).code(0);
    assert_eq!(o.value_of("x"), 2 * (0..400).sum::<i64>(), "{o:?}");
    assert_eq!(o.out.lines().filter(|l| !l.is_empty()).count(), 801);
    Pass
}

fn a_program_beyond_the_limits_is_rejected() -> Verdict {
    let all: String = (0..20_000).map(|i| format!("x += arg0 + {i}; ")).collect();
    let script = format!("syscall::getppid:entry {{ {all} }}");
    let path = std::env::temp_dir().join(format!("dtrace-long-{}.d", std::process::id()));
    std::fs::write(&path, script).unwrap();
    // The same with and without running the program. An emulated CPU needs a minute for the second.
    let modes: &[&str] = if is_guest() { &["-q"] } else { &["-q", "-e"] };
    for mode in modes {
        let o = dtrace(&[mode, "-s", path.to_str().unwrap()]).code(1);
        assert!(o.err.contains("line 1: too much for one probe: "), "{}", &o.err[..o.err.len().min(300)]);
    }
    let _ = std::fs::remove_file(&path);
    Pass
}

// row tag.D_UNKNOWN
fn a_limit_that_is_exceeded_is_named() -> Verdict {
    let refused = |mode: &str, script: &str, said: &str| {
        let o = dtrace(&["-x", "strsize=32k", "-xerrtags", mode, "-n", script]).code(1);
        assert!(o.err.contains("[D_UNKNOWN] ") && o.err.contains(said), "{o:?}");
        let o = dtrace(&["-x", "strsize=32k", mode, "-n", script]).code(1);
        assert!(o.err.contains(said) && o.err.contains("--> command line:1:"), "{o:?}");
    };
    let records = "trace(s); ".repeat(9);
    refused("-e", &format!("BEGIN {{ s = \"x\"; {records} }}"), "a record has 262144 at most");
    let key = ["s"; 9].join(", ");
    let o =
        dtrace(&["-x", "strsize=32k", "-en", &format!("BEGIN {{ s = \"x\"; @[{key}] = count(); }}")]).code(1);
    assert!(
        o.err.contains("has 9 keys of 294912 bytes, at most 48 keys and 262144 bytes are allowed"),
        "{o:?}"
    );
    let this: String = (0..40).map(|i| format!("this->s{i} = \"x\"; ")).collect();
    refused(
        "-e",
        &format!("BEGIN {{ {this} }}"),
        "bytes of memory with strsize=32768; it has 1048576 at most",
    );
    let arrays: String = (0..60).map(|i| format!("self->a{i}[0] = 1; ")).collect();
    refused("-e", &format!("BEGIN {{ {arrays} }}"), "associative arrays for one probe: they have ");
    refused("-q", "BEGIN { self->a = \"x\"; self->b = \"y\"; }", " at most");
    Pass
}

fn thread_variables_use_their_memory_to_the_last_byte() -> Verdict {
    let run = |strsize: u32| {
        let script = "BEGIN { self->a = \"kept\"; } BEGIN { trace(self->a); exit(0); }";
        dtrace(&["-q", "-x", &format!("strsize={strsize}"), "-n", script])
    };
    let o = run(32 << 10).code(1);
    let said = o.err.split("the self-> variables of a thread have 98312 bytes; ").nth(1);
    let most = said.and_then(|s| s.split(' ').next()?.parse::<u32>().ok()).unwrap_or(0);
    assert!((7 << 10..=60 << 10).contains(&most), "{o:?}");
    // An id, and the variable at three levels.
    let fits = (most - 8) / 3 / 8 * 8;
    let o = run(fits).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("kept\n", ""), "strsize={fits}");
    let o = run(fits + 8).code(1);
    assert!(o.err.contains(&format!("bytes; {most} at most")), "{o:?}");
    println!("{most} bytes");
    Pass
}
