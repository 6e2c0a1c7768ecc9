//! The command over given firings: every script of the library's `tests/interpreted`, with the
//! same output, messages and status that a session has, as a user without privileges, with no call
//! of BPF. The command runs in a process of its own, which is this program with `--command`.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../dtrace/tests/given/mod.rs"]
mod given;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use cli::Engine;
use dtrace::interpreter::{Firing, Interpreter};
use given::{Given, without_privileges};
use libtest_mimic::{Failed, Trial};
use testing::json::{Value, lines};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--command", [firings, words @ ..])) =
        words.split_first().map(|(w, rest)| (w.as_str(), rest))
    {
        return ExitCode::from(command(firings, words));
    }
    testing::heed_signals();
    let mut all = vec![
        test("messages_name_the_program_and_its_matches", messages),
        test("an_interrupt_ends_the_command_with_its_results", interrupted),
        test("a_file_receives_the_output", to_a_file),
        test("errors_of_the_program_end_the_command_before_it_runs", errors),
        test("every_script_prints_valid_json_and_the_same_messages", json_lines),
        test("values_of_a_script_are_data_in_json", json_values),
        test("errors_before_the_start_are_on_standard_error_with_every_format", format_errors),
        test("csv_has_the_aggregations_of_a_script", csv),
        test(
            "a_fault_of_the_command_prints_the_error_and_the_last_aggregations",
            a_fault_of_the_command_prints_the_error_and_the_last_aggregations,
        ),
        test(
            "a_fault_of_the_command_ends_it_though_nobody_reads_the_error",
            a_fault_of_the_command_ends_it_though_nobody_reads_the_error,
        ),
        test("what_a_closed_pipe_does_not_take_is_no_error", closed),
    ];
    for script in testing::golden::inputs(&given::directory(), "d") {
        let name = format!("script::{}", script.file_stem().unwrap().to_string_lossy());
        all.push(Trial::test(name, move || caught(|| golden(&script))));
    }
    let (arguments, _) = testing::arguments(std::env::args().collect());
    libtest_mimic::run(&arguments, all).exit_code()
}

fn test(name: &str, body: fn()) -> Trial {
    Trial::test(name, move || caught(body))
}

fn caught(body: impl FnOnce()) -> Result<(), Failed> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).map_err(|_| "see above".into())
}

/// The command itself. The firings are those of a script, or endless.
fn command(firings: &str, words: &[String]) -> u8 {
    let given = match firings {
        "endless" => cli::Given {
            providers: Vec::new(),
            interpreter: Interpreter::new(
                (0..).map(|time| Firing { time, ..Firing::of("syscall::getpid:entry") }),
            ),
        },
        // 1000 firings, and then a fault of the command itself.
        "faulty" => cli::Given {
            providers: Vec::new(),
            interpreter: Interpreter::new((0..).map(|time| match time {
                1000 => panic!("a fault \u{1b}[2J"),
                time => Firing { time, ..Firing::of("syscall::getpid:entry") },
            })),
        },
        path => {
            let given = Given::of(&std::fs::read_to_string(path).unwrap());
            cli::Given { providers: given.providers(), interpreter: given.interpreter() }
        }
    };
    without_privileges();
    cli::command(words, Engine::Interpreter(given.into()))
}

#[track_caller]
fn start(firings: &str, words: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--command", firings]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Output, messages and status.
#[track_caller]
fn run(firings: &str, words: &[&str]) -> (String, String, Option<i32>) {
    let done = start(firings, words).wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(done.stdout), text(done.stderr), done.status.code())
}

/// A script of the directory, where any user can read it.
struct Copy(String);

impl Copy {
    fn of(path: &Path) -> Copy {
        let (name, pid) = (path.file_name().unwrap().to_str().unwrap(), std::process::id());
        let copy = std::env::temp_dir()
            .join(format!("dt-interpreted-{pid}-{:?}-{name}", std::thread::current().id()));
        std::fs::write(&copy, std::fs::read(path).unwrap()).unwrap();
        std::fs::set_permissions(&copy, Permissions::from_mode(0o644)).unwrap();
        Copy(copy.into_os_string().into_string().unwrap())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The options of a script, as the command takes them.
fn settings(given: &Given) -> Vec<String> {
    let setting = |(name, value): &(String, Option<String>)| {
        value.as_ref().map_or(name.clone(), |v| format!("{name}={v}"))
    };
    given.options.iter().map(setting).collect()
}

fn golden(path: &Path) {
    let script = std::fs::read_to_string(path).unwrap();
    let given = Given::of(&script);
    let copy = Copy::of(path);
    let name = copy.0.as_str();
    let settings = settings(&given);
    let mut words = vec!["-s", name];
    settings.iter().for_each(|s| words.extend(["-x", s]));
    let (out, err, status) = run(name, &words);
    let shown = format!("dtrace: script '{name}' matched ");
    let messages: String = err
        .lines()
        .filter(|l| !l.starts_with(&shown))
        .map(|l| format!("{}\n", l.strip_prefix("dtrace: ").unwrap_or(l)))
        .collect();
    let all = format!("{out}== messages\n{messages}== status {}\n", status.unwrap());
    let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap();
    assert_eq!(without_ids(&given, script, all), expected);
}

/// The ids of the given probes depend on how many other probes there are.
fn without_ids(given: &Given, script: String, text: String) -> String {
    let source = dtrace::Source::Script("script".into(), script);
    let mut options = given.options();
    let program = dtrace::compile_with(
        &dtrace::System::live(),
        &[source],
        &dtrace::Macros::default(),
        &mut options,
        given.providers(),
    );
    given::without_ids(&program.ok().unwrap(), text)
}

fn messages() {
    let script = given::directory().join("counts.d");
    let script = script.to_str().unwrap();
    let probe = "syscall::close:entry { printf(\"%s\\n\", execname); }";
    let (out, err, status) = run(script, &["-x", "quiet=no", "-n", probe, "-n", "BEGIN"]);
    let expected = "dtrace: description 'syscall::close:entry ' matched 1 probe\n\
                    dtrace: description 'BEGIN' matched 1 probe\n";
    assert_eq!((err.as_str(), status), (expected, Some(0)));
    assert!(
        out.starts_with("CPU     ID ") && out.contains(":BEGIN") && out.contains("close:entry sh\n"),
        "{out}"
    );
}

/// The aggregations are those of the last snapshot, which is that of the `printa()`.
fn a_fault_of_the_command_prints_the_error_and_the_last_aggregations() {
    let script = "syscall::getpid:entry { @calls[probefunc] = count(); @last = max(timestamp); } \
                  syscall::getpid:entry /timestamp == 499/ { printa(@calls); }";
    let (out, err, code) = run("faulty", &["-q", "-n", script]);
    assert_eq!(
        (out.split_whitespace().collect::<Vec<_>>(), code),
        (vec!["getpid", "500"], Some(101)),
        "{err}"
    );
    assert!(err.starts_with("dtrace: internal error: panicked at "), "{err}");
    assert!(err.contains("a fault \\033[2J"), "{err}");
    assert!(err.split_whitespace().collect::<Vec<_>>().ends_with(&["getpid", "500", "499"]), "{err}");
}

/// The aggregations take more than a pipe holds.
fn a_fault_of_the_command_ends_it_though_nobody_reads_the_error() {
    let script = "syscall::getpid:entry { @[timestamp] = quantize(timestamp); } \
                  syscall::getpid:entry /timestamp == 999/ { printa(@); }";
    let mut child = start("faulty", &["-q", "-o", "/dev/null", "-n", script]);
    let mut ended = None;
    testing::eventually("the end", testing::HANG_LIMIT, || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(101));
}

/// The events of a script of the directory.
fn json(name: &str) -> Vec<Value> {
    let copy = Copy::of(&given::directory().join(name));
    let (out, _, _) = run(&copy.0, &["-q", "--format", "json", "-s", &copy.0]);
    lines(&out)
}

fn json_lines() {
    for script in testing::golden::inputs(&given::directory(), "d") {
        let copy = Copy::of(&script);
        let name = copy.0.as_str();
        let settings = settings(&Given::of(&std::fs::read_to_string(&script).unwrap()));
        let mut words = vec!["-s", name];
        settings.iter().for_each(|s| words.extend(["-x", s]));
        let (_, messages, text_status) = run(name, &words);
        words.push("--format=json");
        let (out, err, status) = run(name, &words);
        // Records with process ids are longer, so buffers are full earlier.
        if !name.ends_with("drops.d") {
            assert_eq!((&err, status), (&messages, text_status), "{name}");
        }
        let all = lines(&out);
        let event = |line: Option<&Value>| line.and_then(|l| l.get("event")?.as_str()).map(str::to_owned);
        assert_eq!(event(all.first()).as_deref(), Some("start"), "{name}");
        assert_eq!(event(all.last()).as_deref(), Some("end"), "{name}");
        let end = all.last().and_then(|l| l.get("status")?.as_i64());
        assert_eq!(end, status.map(i64::from), "{name}");
    }
}

/// The part of each line of a kind.
fn parts(all: &[Value], event: &str, path: &str) -> Vec<String> {
    let all = all.iter().filter(|line| line.get("event").is_some_and(|e| e == event));
    all.map(|line| line.pointer(path).map_or(String::new(), Value::to_string)).collect()
}

fn json_values() {
    let counts = json("counts.d");
    let keys = parts(&counts, "aggregation", "/keys");
    assert_eq!(keys, [r#"["execname","probefunc"]"#, r#"["probefunc"]"#, "[]"]);
    let values = parts(&counts, "aggregation", "/rows/0/values/0/value");
    assert_eq!(values, ["1", "200", "6"]);
    let stacks = json("stacks.d");
    let fields = parts(&stacks, "record", "/fields");
    let stack = concat!(
        r#"{"action":"trace","name":"stack(2)","value":{"stack":[{"address":"0xffffffff81001000","object":"vmlinux","#,
        r#""offset":0,"symbol":"vfs_read"},{"address":"0xffffffff81002010","object":"vmlinux","offset":16,"#,
        r#""symbol":"ksys_read"}]}}"#
    );
    assert!(fields.iter().any(|field| field.contains(stack)), "{fields:?}");
    // A session that prints JSON records process ids.
    assert!(parts(&stacks, "record", "/pid").contains(&"7".to_owned()));
    // So does one of which only the program says that it does.
    let copy = Copy::of(&given::directory().join("stacks.d"));
    let text = std::fs::read_to_string(&copy.0).unwrap();
    std::fs::write(&copy.0, format!("{text}\n#pragma D option oformat=json\n")).unwrap();
    let (out, _, _) = run(&copy.0, &["-q", "-s", &copy.0]);
    let of = |all: &[Value]| parts(all, "record", "/pid");
    assert_eq!(of(&lines(&out)), of(&stacks));
    let faults = json("faults.d");
    assert!(!parts(&faults, "fault", "/probe/name").is_empty());
}

fn csv() {
    let copy = Copy::of(&given::directory().join("counts.d"));
    let (out, _, _) = run(&copy.0, &["-q", "--format", "csv", "-s", &copy.0]);
    let expected = "execname,probefunc,@calls\nsh,read,1\ncat,write,2\ncat,read,3\n\n\
                    probefunc,@bytes\nwrite,200\nread,12289\n\n@all\n6\n";
    assert_eq!(out, expected);
}

fn format_errors() {
    let script = given::directory().join("counts.d");
    let script = script.to_str().unwrap();
    for format in ["json", "csv"] {
        let (out, err, status) = run(script, &["--format", format, "-n", "syscall::close:entry { trace(; }"]);
        assert_eq!((out.as_str(), status), ("", Some(1)));
        assert!(err.starts_with("dtrace: ") && err.contains("syntax error"), "{err}");
    }
    let (out, err, status) = run(script, &["--format", "xml", "-n", "BEGIN"]);
    assert_eq!((out.as_str(), status), ("", Some(1)));
    assert!(err.contains("--format xml"), "{err}");
    let (_, err, status) = run(script, &["-n", "BEGIN", "--format"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("option requires an argument -- 'format'"), "{err}");
}

fn interrupted() {
    let script = "syscall::getpid:entry { @n = count(); } \
                  syscall::getpid:entry /++n == 1000/ { printf(\"begun\\n\"); } END { printf(\"end\\n\"); }";
    let mut child = start("endless", &["-q", "-n", script]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let count = rest.strip_prefix("\nend\n\n").and_then(|n| n.trim().parse::<u64>().ok());
    assert!(count.is_some_and(|n| n >= 1000), "{rest:?}");
}

fn to_a_file() {
    let file = std::env::temp_dir().join(format!("dt-interpreted-{}", std::process::id()));
    std::fs::write(&file, "before\n").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let script = Copy::of(&given::directory().join("exit.d"));
    let script = script.0.as_str();
    let (out, err, status) = run(script, &["-q", "-o", file.to_str().unwrap(), "-s", script]);
    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!((out.as_str(), err.as_str(), status), ("", "", Some(3)));
    assert_eq!(written, "before\n1end\n");
}

fn errors() {
    let (out, err, status) = run("endless", &["-n", "BEGIN { printf(\"%d\\n\", no_such_name); }"]);
    assert!(out.is_empty() && status == Some(1), "{out} {status:?}");
    assert!(err.contains("no_such_name"), "{err}");
    let (_, err, status) = run("endless", &["-n", "BEGIN { raise(9); }"]);
    assert_eq!(status, Some(1));
    assert!(err.ends_with("could not enable tracing: Destructive actions not allowed\n"), "{err}");
    let (_, err, status) = run("endless", &["--no-such-option"]);
    assert!(status == Some(2) && !err.is_empty(), "{err} {status:?}");
}

fn closed() {
    let mut child =
        start("endless", &["-q", "-n", "syscall::getpid:entry { printf(\"%d\\n\", timestamp); }"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "0\n");
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
