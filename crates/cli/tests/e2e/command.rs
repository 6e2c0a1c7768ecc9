//! The command: options, operands, messages, exit codes, interrupts.

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::machine::no_function_list;
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start, unread, workload};

tests! {
    usage_is_printed_without_arguments usage_is_printed_for_an_unknown_option the_version_is_printed
    syntax_errors_are_all_reported unknown_names_are_errors error_tags_are_printed_on_request
    words_of_bpftrace_get_the_way_of_d functions_that_cannot_be_traced_say_why
    a_description_that_matches_no_probe_is_an_error a_description_may_match_no_probe_with_z
    operands_are_macro_variables an_unreferenced_operand_is_an_error
    script_files_run_with_their_interpreter_line probes_are_listed_once_in_order
    ids_of_a_listing_select_probes output_is_appended_to_the_file_of_o
    compile_only_mode_enables_nothing intermediate_code_is_printed_on_request
    an_unreadable_script_is_an_error an_interrupt_runs_end_and_prints_aggregations
    a_second_interrupt_ends_at_once the_preprocessor_applies_definitions_of_the_command_line
    options_of_other_systems_say_what_to_use the_environment_of_a_target_is_that_of_dtrace_with_changes a_wrong_option_value_is_an_error
    a_destructive_program_is_rejected_without_w unsupported_providers_are_rejected_by_name
    probes_are_selected_by_field sigterm_ends_the_session_like_an_interrupt
    a_closed_reader_ends_the_run_without_a_panic a_reader_that_closes_early_is_not_an_error
    a_write_to_a_full_disk_is_an_error an_interrupt_ends_a_write_that_blocks
    a_program_without_probes_is_an_error the_match_message_quotes_the_description_only
    the_cpu_option_traces_one_cpu_only a_target_killed_by_a_signal_is_reported_with_its_name
    operands_and_scripts_may_contain_any_bytes probes_are_listed_by_globs
    a_closed_output_is_an_error a_limit_of_file_size_is_an_error
    texts_that_cannot_be_written_are_errors
}

fn usage_is_printed_without_arguments() -> Verdict {
    let o = dtrace(&[]).code(2);
    assert!(o.err.starts_with("Usage: dtrace "), "{o:?}");
    Pass
}

fn usage_is_printed_for_an_unknown_option() -> Verdict {
    let o = dtrace(&["-y"]).code(2);
    assert!(o.err.contains("invalid option -- 'y'"), "{o:?}");
    let o = dtrace(&["-l", "-V"]).code(2);
    assert!(o.err.contains("only one of the"), "{o:?}");
    Pass
}

fn the_version_is_printed() -> Verdict {
    let o = dtrace(&["-V"]).code(0);
    assert!(o.out.starts_with("dtrace: "), "{o:?}");
    Pass
}

fn syntax_errors_are_all_reported() -> Verdict {
    let script = "BEGIN { trace(; }\nEND { x = ; }\n";
    let path = std::env::temp_dir().join(format!("e2e-syntax-{}.d", std::process::id()));
    std::fs::write(&path, script).unwrap();
    let name = path.to_str().unwrap();
    let o = dtrace(&["-s", name]).code(1);
    // For programs: the first alone, in one line.
    let tagged = dtrace(&["-xerrtags", "-s", name]).code(1);
    let _ = std::fs::remove_file(&path);
    let line =
        format!("dtrace: failed to compile script {name}: [D_SYNTAX] line 1: syntax error near \";\"\n");
    assert_eq!(tagged.err, line);
    let errors: Vec<&str> =
        o.err.lines().filter(|l| l.starts_with("dtrace: failed to compile script ")).collect();
    assert_eq!(errors.len(), 2, "{o:?}");
    assert!(errors[0].contains("line 1: syntax") && errors[1].contains("line 2: syntax"), "{o:?}");
    assert!(o.err.contains("^"), "{o:?}");
    Pass
}

fn unknown_names_are_errors() -> Verdict {
    let o = dtrace(&["-n", "BEGIN { trace(execnam); }"]).code(1);
    assert!(o.err.contains("execnam") && o.err.contains("execname"), "{o:?}");
    let start = "dtrace: invalid probe specifier BEGIN { trace(execnam); }: in action list: failed to resolve execnam: ";
    assert!(o.err.starts_with(start), "{o:?}");
    let o = dtrace(&["-xerrtags", "-n", "BEGIN /x/ {}"]).code(1);
    assert!(o.err.contains(" {}: [D_IDENT_UNDEF] in predicate: failed to resolve x: "), "{o:?}");
    let o = dtrace(&["-n", "BEGIN { prinft(\"x\"); }"]).code(1);
    assert!(o.err.contains("prinft") && o.err.contains("printf"), "{o:?}");
    Pass
}

fn error_tags_are_printed_on_request() -> Verdict {
    for (script, tag) in [
        ("BEGIN { pid = 3; }", "D_OP_WRITE"),
        ("BEGIN { @a = count(); @a = sum(1); }", "D_AGG_REDEF"),
        ("BEGIN { trace(1 / 0); }", "D_DIV_ZERO"),
        ("BEGIN { trace(self->x); }", "D_VAR_UNDEF"),
        ("BEGIN { printf(\"%d %d\", 1); }", "D_PRINTF_ARG_PROTO"),
        ("BEGIN { printf(\"%d\", \"s\"); }", "D_PRINTF_ARG_TYPE"),
        ("BEGIN { trace(); }", "D_PROTO_LEN"),
        ("BEGIN /\"s\"/ { }", "D_PRED_SCALAR"),
        ("nosuch:::probe { }", "D_PDESC_ZERO"),
        ("a:b:c:d:e { }", "D_PDESC_INVAL"),
    ] {
        let o = dtrace(&["-xerrtags", "-n", script]).code(1);
        assert!(o.err.contains(&format!("[{tag}]")), "{script}: {o:?}");
    }
    Pass
}

fn words_of_bpftrace_get_the_way_of_d() -> Verdict {
    for (program, says) in [
        ("BEGIN { trace(comm); }", "in D it is `execname`"),
        ("BEGIN { trace(nsecs); }", "in D it is `timestamp`"),
        ("BEGIN { trace(kstack); }", "in D it is `stack()`"),
        ("BEGIN { trace(str(arg0)); }", "in D it is `copyinstr(address)`"),
        ("BEGIN { @x[pid] = hist(arg0); }", "in D it is `@a = quantize(x)`"),
        ("BEGIN { trace(args.path); }", "arguments have numbers: args[0] is the first"),
        ("tracepoint:syscalls:sys_enter_openat { @ = count(); }", "in D it is `syscall::openat:entry`"),
        ("interval:s:1 { @ = count(); }", "in D it is `profile:::tick-1s`"),
        ("kprobe:vfs_read { @ = count(); }", "`fbt::vfs_read:entry`"),
        ("uprobe:/bin/sh:main { @ = count(); }", "those of the provider `pid`: pid$target:a.out:main:entry"),
        ("usdt:/bin/sh:sh:start { @ = count(); }", "PROVIDER$target:::NAME"),
        ("syscall::openat", "did you mean `syscall::openat:entry`?"),
        ("profile:tick-1s", "did you mean `profile:::tick-1s`?"),
    ] {
        let o = dtrace(&["-en", program]).code(1);
        assert!(o.err.contains(says), "{program}: {o:?}");
    }
    // Only what would match is proposed.
    let o = dtrace(&["-en", "syscall::opennat:nosuch"]).code(1);
    assert!(!o.err.contains("did you mean"), "{o:?}");
    Pass
}

fn functions_that_cannot_be_traced_say_why() -> Verdict {
    if let Some(skip) = no_function_list() {
        return skip;
    }
    let o = dtrace(&["-en", "fbt::do_exit:return"]).code(1);
    assert!(o.err.contains("does not match any probes: do_exit never returns"), "{o:?}");
    let o = dtrace(&["-en", "fbt::vfs_write"]).code(1);
    assert!(o.err.contains("did you mean `fbt::vfs_write:entry`?"), "{o:?}");
    // Marked notrace.
    let o = dtrace(&["-en", "fbt::preempt_schedule_notrace:entry"]).code(1);
    let says = "preempt_schedule_notrace is a function of the kernel that cannot be traced";
    assert!(o.err.contains(says) || !o.err.contains("cannot be traced"), "{o:?}");
    Pass
}

// row description.no-match
fn a_description_that_matches_no_probe_is_an_error() -> Verdict {
    let o = dtrace(&["-n", "syscall::opennat:entry"]).code(1);
    assert!(o.err.contains("probe description syscall::opennat:entry does not match any probes"), "{o:?}");
    assert!(o.err.contains("openat"), "{o:?}");
    Pass
}

// row description.zdefs
fn a_description_may_match_no_probe_with_z() -> Verdict {
    let o = dtrace(&["-q", "-Z", "-n", "nosuch:::probe { trace(1); }", "-n", "BEGIN { exit(0); }"]).code(0);
    assert_eq!(o.out, "\n");
    Pass
}

// row macro.operands, macro.strings
fn operands_are_macro_variables() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { printf(\"%d %s %d\\n\", $1, $$2, $3); exit($1); }", "7", "word", "-2"]);
    // getopt takes -2 for an option. Behind -- it is an operand.
    assert_eq!(o.code, Some(2));
    let o = dtrace(&["-qn", "BEGIN { printf(\"%d %s\\n\", $1, $$2); exit($1); }", "7", "word"]).code(7);
    assert_eq!(o.out, "7 word\n\n");
    let o = dtrace(&["-q", "-x", "defaultargs", "-n", "BEGIN { printf(\"%d[%s]\\n\", $1, $$2); exit(0); }"])
        .code(0);
    assert_eq!(o.out, "0[]\n\n");
    Pass
}

// row macro.unused
fn an_unreferenced_operand_is_an_error() -> Verdict {
    let o = dtrace(&["-n", "BEGIN { exit(0); }", "extra"]).code(1);
    assert!(o.err.contains("extraneous argument 'extra' ($1 is not referenced)"), "{o:?}");
    dtrace(&["-x", "argref", "-n", "BEGIN { exit(0); }", "extra"]).code(0);
    Pass
}

// row unit.interpreter-line
fn script_files_run_with_their_interpreter_line() -> Verdict {
    let path = std::env::temp_dir().join(format!("e2e-script-{}.d", std::process::id()));
    std::fs::write(&path, "#!/usr/sbin/dtrace -s\n#pragma D option quiet\n/* c */ BEGIN { printf(\"in %s\\n\", \"file\"); exit(0); }\n")
        .unwrap();
    let o = dtrace(&["-s", path.to_str().unwrap()]).code(0);
    let _ = std::fs::remove_file(&path);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("in file\n\n", ""));
    Pass
}

fn probes_are_listed_once_in_order() -> Verdict {
    let o = dtrace(&["-l"]).code(0);
    let lines: Vec<&str> = o.out.lines().collect();
    assert_eq!(lines[1], "    1     dtrace                                                     BEGIN");
    assert!(lines.len() > 600, "{} probes", lines.len());
    let o = dtrace(&["-l", "-P", "dtrace"]).code(0);
    assert_eq!(o.out.lines().count(), 4);
    let o = dtrace(&["-ln", "profile:::profile-1234"]).code(0);
    assert!(o.out.lines().nth(1).unwrap().ends_with(" profile-1234"), "{o:?}");
    let o = dtrace(&["-ln", "nosuch"]).code(1);
    assert_eq!(o.err, "dtrace: failed to match :::nosuch: No probe matches description\n");
    assert_eq!(o.out, format!("{}\n", lines[0]), "the heading stands alone");
    // In the order of the descriptions, each probe once.
    let o = dtrace(&["-l", "-n", "END", "-n", "BEGIN, END"]).code(0);
    let names: Vec<&str> = o.out.lines().filter_map(|l| l.split_whitespace().last()).collect();
    assert_eq!(names, ["NAME", "END", "BEGIN"]);
    Pass
}

fn ids_of_a_listing_select_probes() -> Verdict {
    let o = dtrace(&["-l", "-i", "3"]).code(0);
    assert!(o.out.contains("ERROR"), "{o:?}");
    let o = dtrace(&["-qi", "1{ printf(\"one\\n\"); exit(0); }"]).code(0);
    assert_eq!(o.out, "one\n\n");
    Pass
}

fn output_is_appended_to_the_file_of_o() -> Verdict {
    let path = std::env::temp_dir().join(format!("e2e-out-{}", std::process::id()));
    std::fs::write(&path, "before\n").unwrap();
    let o =
        dtrace(&["-q", "-o", path.to_str().unwrap(), "-n", "BEGIN { printf(\"x\\n\"); exit(0); }"]).code(0);
    let text = std::fs::read_to_string(&path).unwrap();
    let _ = std::fs::remove_file(&path);
    assert_eq!(o.out, "");
    assert_eq!(text, "before\nx\n\n");
    Pass
}

fn compile_only_mode_enables_nothing() -> Verdict {
    let o = dtrace(&["-e", "-n", "syscall:::entry { @[execname] = count(); }"]).code(0);
    assert_eq!(o.out, "");
    dtrace(&["-e", "-n", "BEGIN { x = ; }"]).code(1);
    // Nothing is nothing to enable: only the options are looked at.
    assert_eq!(dtrace(&["-b", "1k", "-e"]).code(0).err, "");
    dtrace(&["-b", "1x", "-e"]).code(1);
    Pass
}

fn intermediate_code_is_printed_on_request() -> Verdict {
    let o = dtrace(&["-Se", "-n", "BEGIN { trace(pid + 1); }"]).code(0);
    assert!(o.err.contains("add"), "{o:?}");
    Pass
}

fn an_unreadable_script_is_an_error() -> Verdict {
    let o = dtrace(&["-s", "/nonexistent/script.d"]).code(1);
    assert_eq!(o.err, "dtrace: failed to open /nonexistent/script.d: No such file or directory\n");
    let o = dtrace(&["-s", "/"]).code(1);
    assert_eq!(o.err, "dtrace: failed to open /: Is a directory\n");
    let path = std::env::temp_dir().join(format!("e2e-bytes-{}.d", std::process::id()));
    let run = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let o = dtrace(&["-q", "-s", path.to_str().unwrap()]);
        let _ = std::fs::remove_file(&path);
        o
    };
    // Texts may contain any bytes, where nothing interprets them.
    let o =
        run(b"/* \xe9 */\nBEGIN { printf(\"\xe9%s%d\", \"\xff\", strlen(\"\xe9\")); exit(0); }\n").code(0);
    assert_eq!(o.out, "\u{fffd}\u{fffd}1\n", "{o:?}");
    let o = run(b"/* fine */\nBEGIN { \xe9 = 1; }\n").code(1);
    assert!(o.err.contains(": line 2: syntax error near \"\\xe9\"\n"), "{o:?}");
    assert!(o.err.contains("bytes that are not UTF-8 may only stand in strings and comments"), "{o:?}");
    // The byte order mark and line ends that editors of other systems write.
    let o = run(b"\xef\xbb\xbfBEGIN\r\n{\r\n\ttrace(5);\r\n\texit(0);\r\n}\r\n").code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("5\n", ""));
    let o = dtrace(&["-s", "/tmp"]).code(1);
    assert!(o.err.contains("failed to open /tmp: Is a directory"), "{o:?}");
    let o = dtrace(&["-s", "/dev/zero"]).code(1);
    assert!(o.err.contains("failed to read /dev/zero: longer than 16 MiB"), "{o:?}");
    Pass
}

fn an_interrupt_runs_end_and_prints_aggregations() -> Verdict {
    let mut child = start(&[
        "-qn",
        "BEGIN { printf(\"begun\\n\"); } syscall:::entry { @[execname] = count(); } END { printf(\"end\\n\"); }",
    ]);
    printed(&mut child);
    signal(&child, libc::SIGINT);
    let o = finish(child).code(0);
    assert!(o.out.starts_with("begun\n\nend\n"), "{o:?}");
    assert!(o.out.contains("e2e"), "this runner makes system calls, too: {o:?}");
    Pass
}

fn a_second_interrupt_ends_at_once() -> Verdict {
    let mut child =
        start(&["-qn", "BEGIN { printf(\"y\"); } tick-1ms { printf(\"x\"); } END { printf(\"end\\n\"); }"]);
    printed(&mut child);
    signal(&child, libc::SIGINT);
    signal(&child, libc::SIGINT);
    let o = finish(child);
    assert!(o.code.is_some(), "{o:?}");
    Pass
}

fn sigterm_ends_the_session_like_an_interrupt() -> Verdict {
    let mut child = start(&["-qn", "BEGIN { printf(\"begin\\n\"); } END { printf(\"end\\n\"); }"]);
    printed(&mut child);
    signal(&child, libc::SIGTERM);
    let o = finish(child).code(0);
    assert!(o.out.contains("begin\n") && o.out.contains("end\n"), "{o:?}");
    Pass
}

/// When the reader has closed the pipe, the run ends without a panic.
fn a_closed_reader_ends_the_run_without_a_panic() -> Verdict {
    use std::os::unix::process::ExitStatusExt;
    for words in [
        &["-V"][..],
        &["-l"],
        &["-y"],
        &["-n", "syscall:::entry { printf(\"%s\\n\", execname); } tick-1s { exit(0); }"],
    ] {
        let mut child = start(words);
        drop((child.stdout.take(), child.stderr.take()));
        let status = child.wait().unwrap();
        // A panic exits with 101, or aborts in a release build.
        assert!(status.signal().is_none() && status.code() != Some(101), "{words:?}: {status}");
    }
    Pass
}

// row unit.preprocessor
fn the_preprocessor_applies_definitions_of_the_command_line() -> Verdict {
    if std::process::Command::new("cpp").arg("--version").output().is_err() {
        return Verdict::Skip("this machine has no C preprocessor".into());
    }
    let path = std::env::temp_dir().join(format!("e2e-cpp-{}.d", std::process::id()));
    std::fs::write(&path, "#ifdef WORD\nBEGIN { printf(\"%s\\n\", WORD); exit(0); }\n#endif\n").unwrap();
    let o = dtrace(&["-q", "-C", "-D", "WORD=\"defined\"", "-s", path.to_str().unwrap()]).code(0);
    let _ = std::fs::remove_file(&path);
    assert_eq!(o.out, "defined\n\n");
    Pass
}

fn options_of_other_systems_say_what_to_use() -> Verdict {
    let why = "since Linux 5.11, ulimit -l does not limit the memory of BPF";
    let o = dtrace(&["-x", "lockmem=4m", "-n", "BEGIN { exit(0); }"]).code(1);
    assert_eq!(o.err, format!("dtrace: failed to set -x lockmem=4m: Invalid option name ({why})\n"));
    let o = dtrace(&["-qn", "\n#pragma D option lockmem=4m\nBEGIN { exit(0); }"]).code(1);
    assert!(o.err.contains("failed to set option 'lockmem' to '4m': Invalid option name"), "{o:?}");
    assert!(o.err.contains(&format!("= help: {why}\n")), "{o:?}");
    let o = dtrace(&["-x", "temporal=no", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("(it takes yes: records are always in the order of time)"), "{o:?}");
    Pass
}

fn the_environment_of_a_target_is_that_of_dtrace_with_changes() -> Verdict {
    let mut command = std::process::Command::new(crate::tool::binary());
    command.env_clear().env("PATH", "/usr/bin:/bin").env("KEPT", "1").env("GONE", "2").env("NEW", "old");
    command.args(["-q", "-x", "setenv=NEW=a b=c", "-x", "unsetenv=GONE", "-x", "unsetenv=NEW"]);
    command.args(["-x", "setenv=EMPTY=", "-c", "env", "-n", "BEGIN"]);
    let o = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&o.stdout),
        "EMPTY=\nKEPT=1\nNEW=a b=c\nPATH=/usr/bin:/bin\n\n",
        "{o:?}"
    );
    for (words, says) in [
        (&["-x", "setenv=A"][..], "(it takes a variable with its value, as in NAME=value)"),
        (&["-x", "unsetenv=A=b"], "(it takes the name of a variable)"),
        (&["-n", "#pragma D option setenv=A=b\nBEGIN"], "use -x setenv"),
        (
            &["-n", "#pragma D option unsetenv=A\nBEGIN"],
            "failed to set option 'unsetenv' to 'A': Operation illegal in a program",
        ),
    ] {
        let o = dtrace(&[words, &["-q", "-c", "true", "-n", "BEGIN { exit(0); }"]].concat()).code(1);
        assert!(o.err.contains(says), "{words:?}: {o:?}");
    }
    Pass
}

fn a_wrong_option_value_is_an_error() -> Verdict {
    for (words, says) in [
        (&["-x", "nosuch"][..], "failed to set -x nosuch: Invalid option name"),
        (&["-x", "bufsiz=1m"], "failed to set -x bufsiz=1m: Invalid option name (did you mean bufsize?)"),
        (&["-b", "1z"], "failed to set -b 1z: Invalid value for specified option"),
        (&["-x", "bufsize"], "failed to set -x bufsize: Invalid value for specified option"),
        (&["-x", "strsize=1g"], "failed to set -x strsize=1g: Invalid value for specified option"),
        (&["-x", "switchrate=0hz"], "failed to set -x switchrate=0hz: Invalid value for specified option"),
        (&["-x", "quiet=perhaps"], "failed to set -x quiet=perhaps: Invalid value for specified option"),
        (&["-x", "bufpolicy=best"], "failed to set -x bufpolicy=best: Invalid value for specified option"),
        (&["-X", "z"], "failed to set -X z: Invalid value for specified option"),
        (&["-x", "cpu=99999"], "failed to set option 'cpu': there is no CPU 99999 online"),
        (&["-p", "self"], "invalid pid: self"),
        (&["-x", "nspec=-1"], "failed to set -x nspec=-1: Invalid value for specified option"),
        (&["-i", "-3"], "invalid probe specifier -3: probe description :::-3 does not match any probes"),
        (&["-i", "i23"], "invalid probe specifier i23: probe description :::i23 does not match any probes"),
        (&["-i", "0"], "invalid probe specifier 0: invalid probe identifier 0: Unknown probe identifier"),
        (&["-c", ""], "failed to execute an empty command"),
        (&["-32"], "-32 is not supported yet"),
    ] {
        let o = dtrace(&[words, &["-q", "-n", "BEGIN { exit(0); }"]].concat()).code(1);
        assert!(o.err.starts_with(&format!("dtrace: {says}")), "{words:?}: {o:?}");
    }
    let o = dtrace(&["-q", "-x", "strsize=32k", "-n", "BEGIN { x = execname; y = x; trace(y); exit(0); }"])
        .code(0);
    assert_eq!(o.out, "dtrace\n", "{o:?}");
    let pragma = "#pragma D option bufsiz=1m\nBEGIN { exit(0); }";
    let o = dtrace(&["-xerrtags", "-n", pragma]).code(1);
    assert!(
        o.err.contains("[D_PRAGMA_OPTSET] failed to set option 'bufsiz' to '1m': Invalid option name"),
        "{o:?}"
    );
    let o = dtrace(&["-x", "evaltime=start", "-c", "true", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("evaltime"), "{o:?}");
    // The value is checked before descriptions are matched. A program that does not run is not
    // rejected.
    for words in
        [["-x", "cpu=4095", "-n", "nosuch:::probe"], ["-q", "-n", "#pragma D option cpu=4095\nBEGIN", "-Z"]]
    {
        let o = dtrace(&words).code(1);
        let says = "dtrace: failed to set option 'cpu': there is no CPU 4095 online\n";
        assert_eq!(o.err, says, "{words:?}");
    }
    dtrace(&["-x", "cpu=4095", "-e", "-n", "BEGIN"]).code(0);
    Pass
}

// row action.not-without-w
fn a_destructive_program_is_rejected_without_w() -> Verdict {
    let o = dtrace(&["-n", "BEGIN { raise(9); }"]).code(1);
    assert!(o.err.ends_with("could not enable tracing: Destructive actions not allowed\n"), "{o:?}");
    Pass
}

fn unsupported_providers_are_rejected_by_name() -> Verdict {
    let o = dtrace(&["-n", "sctp:::send { }"]).code(1);
    assert!(o.err.contains("`sctp` is not supported yet"), "{o:?}");
    Pass
}

fn probes_are_selected_by_field() -> Verdict {
    let o = dtrace(&["-l", "-f", "getppid"]).code(0);
    assert_eq!(o.out.lines().count(), 3, "{o:?}");
    let o = dtrace(&["-l", "-m", "syscall:vmlinux", "-P", "profile"]).code(0);
    assert!(o.out.lines().count() > 600, "{}", o.out.lines().count());
    Pass
}

fn a_reader_that_closes_early_is_not_an_error() -> Verdict {
    use std::io::BufRead;
    let mut child = start(&["-n", "tick-10ms { printf(\"x\\n\"); }", "-x", "switchrate=10ms"]);
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut err = child.stderr.take().unwrap();
    let status = child.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut err, &mut said).unwrap();
    assert_eq!(
        (status.code(), said.as_str()),
        (Some(0), "dtrace: description 'tick-10ms ' matched 1 probe\n")
    );
    Pass
}

fn a_write_to_a_full_disk_is_an_error() -> Verdict {
    let says = "dtrace: processing aborted: failed to write the output: No space left on device\n";
    for words in [
        &["-q", "-n", "BEGIN { trace(1); exit(0); }"][..],
        &["-q", "-n", "BEGIN { exit(0); } END { @ = count(); }"],
        &["-q", "-v", "-n", "BEGIN { exit(0); }"],
        &["-l"],
        &["-lv", "-n", "BEGIN"],
    ] {
        let o = dtrace(&[&["-o", "/dev/full"], words].concat()).code(1);
        assert_eq!(o.err, says, "{words:?}");
    }
    let o = dtrace(&["-o", "/nonexistent/x", "-n", "BEGIN"]).code(1);
    assert_eq!(o.err, "dtrace: failed to open output file '/nonexistent/x': No such file or directory\n");
    Pass
}

fn a_program_without_probes_is_an_error() -> Verdict {
    let o = dtrace(&["-q"]).code(1);
    assert!(o.err.starts_with("dtrace: no probes specified"), "{o:?}");
    let o = dtrace(&["-n", "int x;"]).code(1);
    assert_eq!(o.err, "dtrace: description 'int x' matched 0 probes\ndtrace: no probes matched\n");
    let o = dtrace(&["-Zn", "nosuch", "-c", "true"]).code(0);
    assert!(o.err.starts_with("dtrace: description 'nosuch' matched 0 probes\n"), "{o:?}");
    Pass
}

fn the_match_message_quotes_the_description_only() -> Verdict {
    let words = ["-n", "int x; BEGIN { exit(x); }", "-n", "END/1/{}", "-n", "BEGIN,END{}", "-n", "dtrace:::"];
    let o = dtrace(&words).code(0);
    let titles =
        [("int x", "1 probe"), ("END", "1 probe"), ("BEGIN,END", "2 probes"), ("dtrace:::", "3 probes")];
    let said: String =
        titles.iter().map(|(text, n)| format!("dtrace: description '{text}' matched {n}\n")).collect();
    assert_eq!(o.err, said);
    Pass
}

fn the_cpu_option_traces_one_cpu_only() -> Verdict {
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        return Verdict::Skip("this machine has one CPU".into());
    }
    for (cpu, expected) in [(0, 100), (1, 0)] {
        // The target runs on the CPU of the command, and the command on the CPU of this thread.
        let run = move || {
            // SAFETY: an all-zero set is valid; the system call reads it.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
            }
            let script = "syscall::getppid:entry /pid == $target/ { n++; } END { printf(\"%d\", n); }";
            dtrace(&["-q", "-x", "cpu=0", "-n", script, "-c", &workload("getppid", 100)]).code(0)
        };
        let o = std::thread::spawn(run).join().unwrap();
        assert_eq!(o.out, format!("{expected}\n"), "on CPU {cpu}: {o:?}");
    }
    let script = "BEGIN, END { printf(\"%s \", probename); } BEGIN { exit(0); }";
    let o = dtrace(&["-q", "-x", "cpu=1", "-n", script]).code(0);
    assert_eq!(o.out, "BEGIN END \n", "the session's own probes fire anywhere");
    Pass
}

fn a_target_killed_by_a_signal_is_reported_with_its_name() -> Verdict {
    let path = std::env::temp_dir().join(format!("e2e-signal-{}.sh", std::process::id()));
    std::fs::write(&path, "kill -SEGV $$\n").unwrap();
    let o = dtrace(&["-n", "BEGIN", "-c", &format!("sh {}", path.display())]).code(0);
    let _ = std::fs::remove_file(&path);
    assert!(
        o.err.lines().any(|l| l.starts_with("dtrace: pid ") && l.ends_with(" terminated by SIGSEGV")),
        "{o:?}"
    );
    let o = dtrace(&["-n", "BEGIN", "-c", "false"]).code(0);
    assert!(o.err.lines().any(|l| l.ends_with(" exited with status 1")), "{o:?}");
    Pass
}

/// True while a thread of the process blocks in a write.
fn writes(child: &std::process::Child) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
    let calls = threads.filter_map(|t| std::fs::read_to_string(t.path().join("syscall")).ok());
    calls.into_iter().any(|call| call.starts_with(&format!("{} 0x", libc::SYS_write)))
}

/// The pipe is full and not read.
fn an_interrupt_ends_a_write_that_blocks() -> Verdict {
    let script = "BEGIN { n = 0; } tick-1ms { printf(\"%1000d\\n\", n++); } END { printf(\"end\"); }";
    let mut child = start(&["-q", "-n", script, "-x", "switchrate=10ms"]);
    let fd = std::os::fd::AsRawFd::as_raw_fd(child.stdout.as_ref().unwrap());
    // SAFETY: a plain system call on a descriptor of ours.
    unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, 4096) };
    // The pipe is full when a write blocks, whatever its size.
    eventually("a write that blocks", LIMIT, || unread(&child) > 0 && writes(&child));
    // The second one ends the process. Two that are alike could come as one.
    signal(&child, libc::SIGINT);
    signal(&child, libc::SIGTERM);
    let ended = eventually("the end", LIMIT, || child.try_wait().unwrap());
    let mut said = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert!(!said.is_empty() && !said.contains("end"), "{} bytes: {said}", said.len());
    assert_eq!(ended.code(), Some(1));
    Pass
}

fn operands_and_scripts_may_contain_any_bytes() -> Verdict {
    use std::os::unix::ffi::OsStrExt;
    let word = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
    let mut command = std::process::Command::new(crate::tool::binary());
    command.args([word(b"-qc"), word(b"echo a\xe9"), word(b"-n"), word(b"BEGIN { printf(\"%s|\", $$1); }")]);
    let o = command.arg(word(b"b\xff")).output().unwrap();
    assert!(o.stdout.windows(3).any(|w| w == b"b\xff|"), "{o:?}");
    assert!(o.stdout.windows(3).any(|w| w == b"a\xe9\n"), "{o:?}");
    let mut command = std::process::Command::new(crate::tool::binary());
    let o = command.args([word(b"-x"), word(b"libdir=\xe9"), word(b"-n"), word(b"BEGIN")]).output().unwrap();
    assert_eq!((o.status.code(), o.stderr.ends_with(b": it is not UTF-8\n")), (Some(1), true), "{o:?}");
    Pass
}

fn probes_are_listed_by_globs() -> Verdict {
    let rows = |words: &[&str]| -> Vec<String> {
        let o = dtrace(&[&["-l"], words].concat()).code(0);
        o.out.lines().skip(1).map(String::from).collect()
    };
    let all = rows(&["-P", "syscall"]);
    let ids: Vec<u32> = all.iter().filter_map(|r| r.split_whitespace().next()?.parse().ok()).collect();
    assert!(ids.len() == all.len() && ids.windows(2).all(|w| w[0] + 1 == w[1]), "ids are dense");
    // Function and name are the last words of a row.
    let only = |wanted: &dyn Fn(&str, &str) -> bool| -> Vec<String> {
        let fits = |row: &&String| {
            let words: Vec<&str> = row.split_whitespace().collect();
            wanted(words[3], words[4])
        };
        all.iter().filter(fits).cloned().collect()
    };
    let path = std::env::temp_dir().join(format!("e2e-list-{}.d", std::process::id()));
    std::fs::write(&path, "syscall::open*:entry { trace(1); }").unwrap();
    let script = path.to_str().unwrap();
    for (words, expected) in [
        (&["-P", "sysc*l"] as &[&str], all.clone()),
        (&["-m", "syscall:vm*"], all.clone()),
        (&["-n", "syscall:::"], all.clone()),
        (&["-f", "syscall::rea?"], only(&|f, _| f.len() == 4 && f.starts_with("rea"))),
        (
            &["-n", "syscall::[!a-n]*:ent*"],
            only(&|f, n| !('a'..='n').any(|c| f.starts_with(c)) && n == "entry"),
        ),
        (&["-n", "syscall:*:*at:r*"], only(&|f, n| f.ends_with("at") && n == "return")),
        (&["-n", "syscall:vmlinux:read:entry"], only(&|f, n| f == "read" && n == "entry")),
        (&["-s", script], only(&|f, n| f.starts_with("open") && n == "entry")),
        (&["-i", &ids[3].to_string()], all[3..4].to_vec()),
    ] {
        assert!(!expected.is_empty());
        assert_eq!(rows(words), expected, "{words:?}");
    }
    let _ = std::fs::remove_file(&path);
    // Each option's description ends with its field.
    let o = dtrace(&["-l", "-P", "syscall:vmlinux"]).code(1);
    assert!(o.err.contains("Overspecified probe description"), "{o:?}");
    Pass
}

/// A shell that changes its surroundings and then runs the command.
fn in_shell<'a>(before: &'a str, words: &[&'a str]) -> Option<crate::tool::Output> {
    let script = format!("{before}; exec \"$0\" \"$@\"");
    crate::tool::under(&["sh", "-c", &script], words)
}

fn a_closed_output_is_an_error() -> Verdict {
    let says = "dtrace: failed to open the standard output: Bad file descriptor\n";
    for words in [&["-qn", "BEGIN { trace(1); exit(0); }"][..], &["-l", "-P", "dtrace"]] {
        let o = in_shell("exec >&-", words).unwrap().code(1);
        assert_eq!(o.err, says, "{words:?}");
        // Where the output is a file, nobody misses it.
        let path = std::env::temp_dir().join(format!("e2e-closed-{}", std::process::id()));
        let words = [&["-o", path.to_str().unwrap()], words].concat();
        in_shell("exec >&-", &words).unwrap().code(0);
        let _ = std::fs::remove_file(path);
    }
    // A null device is an output like any other, however it is opened.
    in_shell("exec 1<>/dev/null", &["-qn", "BEGIN { trace(1); exit(0); }"]).unwrap().code(0);
    Pass
}

fn texts_that_cannot_be_written_are_errors() -> Verdict {
    for (before, reason) in
        [("exec >&-", "Bad file descriptor"), ("exec >/dev/full", "No space left on device")]
    {
        for word in ["-V", "-vV", "--help", "--manual-page"] {
            let o = in_shell(before, &[word]).unwrap().code(1);
            let says = format!("dtrace: processing aborted: failed to write the output: {reason}\n");
            assert_eq!(o.err, says, "{before} {word}");
        }
    }
    Pass
}

fn a_limit_of_file_size_is_an_error() -> Verdict {
    let path = std::env::temp_dir().join(format!("e2e-size-{}", std::process::id()));
    let file = path.to_str().unwrap();
    let long = "BEGIN { printf(\"%9999s\\n\", \"x\"); exit(0); }";
    for words in [&["-o", file, "-qn", long][..], &["-o", file, "-l", "-P", "syscall"]] {
        let o = in_shell("ulimit -f 4", words).unwrap().code(1);
        let _ = std::fs::remove_file(&path);
        let says = "dtrace: processing aborted: failed to write the output: File too large\n";
        assert_eq!(o.err, says, "{words:?}");
    }
    // A command that is run has the signal as ever.
    let script = format!("BEGIN {{ system(\"head -c 9999 /dev/zero > {file}; echo $?\"); exit(0); }}");
    let o = in_shell("ulimit -f 4", &["-wqn", &script]).unwrap().code(0);
    let _ = std::fs::remove_file(&path);
    // 128 and the signal's number.
    assert_eq!(o.out, format!("{}\n\n", 128 + libc::SIGXFSZ), "{o:?}");
    Pass
}
