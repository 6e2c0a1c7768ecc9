//! Tools that look into processes, and those that count, measure and print any probe.

use std::io::{BufRead, Read, Write};
use std::process::{Command, ExitCode, Stdio};

use dtrace_usdt::{Provider, probe};

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{no_clock, no_functions};
use crate::pid::Programs;
use crate::tool::workload;
use crate::toolkit::{Held, Program, distribution, rows_with, run, start};

tests! {
    gethostlatency_prints_the_names_that_are_asked_for
    bashreadline_prints_lines_that_are_typed
    sslsniff_prints_plain_text
    memleak_counts_what_is_not_freed
    memleak_names_who_uses_the_operators_of_cpp
    dbslower_prints_queries_that_take_long
    dappprof_and_dapptrace_show_the_functions_of_a_program
    funccount_counts_calls_and_functions_of_a_process
    funclatency_measures_each_call
    funclatency_measures_calls_within_calls
    tools_for_any_probe_select_a_process
    argdist_shows_the_values_of_an_argument
    trace_and_stackcount_show_the_firings_of_a_probe
    functions_of_the_kernel_are_counted_and_measured
    hotstacks_finds_the_stacks_that_take_the_time
    probes_and_values_that_are_none_are_refused
}

/// The words of a command of this runner.
fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

fn gethostlatency_prints_the_names_that_are_asked_for() -> Verdict {
    let o = run("gethostlatency", &["getent", "ahosts", "localhost"]);
    if o.err.contains("getent") && o.code != Some(0) {
        return Skip("getent is not installed".into());
    }
    let lines = rows_with(&o.code(0), " getent ");
    assert!(lines.len() == 1 && lines[0].ends_with(" 0 localhost"), "{lines:?}");
    Pass
}

fn bashreadline_prints_lines_that_are_typed() -> Verdict {
    let Some((mut ours, theirs)) = crate::tool::pseudo_terminal(24, 80) else {
        return Skip("there are no pseudo-terminals here".into());
    };
    let end = || Stdio::from(theirs.try_clone().unwrap());
    let bash = Command::new("bash").args(["--norc", "-i"]).stdin(end()).stdout(end()).stderr(end()).spawn();
    let Ok(mut bash) = bash else { return Skip("bash is not installed".into()) };
    drop(theirs);
    // It reads a line when it has printed its prompt.
    let mut byte = [0; 1];
    while ours.read(&mut byte).is_ok_and(|n| n == 1) && byte[0] != b'$' && byte[0] != b'#' {}
    let tracing = start("bashreadline", &["-p", &bash.id().to_string()]);
    ours.write_all(b"echo typed-text\nexit\n").unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = ours.read_to_end(&mut all);
    });
    bash.wait().unwrap();
    let o = tracing.end().code(0);
    let _ = reader.join();
    let lines = rows_with(&o, &format!(" {} ", bash.id()));
    let typed: Vec<&str> = lines.iter().filter_map(|l| l.splitn(6, ' ').nth(5)).collect();
    assert_eq!(typed, ["echo typed-text", "exit"], "{o:?}");
    Pass
}

fn sslsniff_prints_plain_text() -> Verdict {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let server = Command::new("openssl")
        .args(["s_server", "-nocert", "-psk", "1234", "-accept", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut server) = server else { return Skip("openssl is not installed".into()) };
    let mut lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
    if !lines.by_ref().map_while(Result::ok).any(|l| l.starts_with("ACCEPT")) {
        let _ = server.kill();
        let _ = server.wait();
        return Skip("this openssl serves no connections without a certificate".into());
    }
    let tracing = start("sslsniff", &["-p", &server.id().to_string()]);
    let mut client = Command::new("openssl")
        .args(["s_client", "-psk", "1234", "-connect", &address, "-quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(b"plain text\n").unwrap();
    // The server prints what it has read.
    let came = lines.map_while(Result::ok).any(|l| l.contains("plain text"));
    let o = tracing.end().code(0);
    for child in [&mut client, &mut server] {
        let _ = child.kill();
        let _ = child.wait();
    }
    assert!(came, "{o:?}");
    let lines = rows_with(&o, "plain text");
    assert!(lines.len() == 1 && lines[0].ends_with(" openssl READ 11 plain text\\n"), "{o:?}");
    Pass
}

/// A workload: asks for blocks of 7,777 bytes, and frees one of them.
#[inline(never)]
pub(crate) fn leak(count: u32) {
    // SAFETY: blocks that nobody uses; one is freed once.
    unsafe {
        let first = libc::malloc(7777);
        (1..count).for_each(|_| _ = std::hint::black_box(libc::malloc(7777)));
        libc::free(first);
    }
}

fn memleak_counts_what_is_not_freed() -> Verdict {
    let command = workload("leaks", 10);
    let o = run("memleak", &words(&command)).code(0);
    // The function may be inlined where it is called.
    let rows = rows_with(&o, " 69993");
    assert!(rows.len() == 1 && rows[0].ends_with(" 9 69993"), "{o:?}");
    Pass
}

/// Two functions that leak, and one that does not.
const LEAKS: &str = r#"
struct Thing { char bytes[7777]; };
#define KEEP(p) asm volatile("" : : "r"(p) : "memory")
__attribute__((noinline)) void leak_thing() { Thing *t = new Thing; KEEP(t); }
__attribute__((noinline)) void leak_array() { char *t = new char[5555]; KEEP(t); }
__attribute__((noinline)) void freed() { Thing *t = new Thing; KEEP(t); delete t; }
int main() {
    for (int n = 0; n < 9; n++) leak_thing();
    for (int n = 0; n < 4; n++) leak_array();
    for (int n = 0; n < 3; n++) freed();
    return 0;
}
"#;

fn memleak_names_who_uses_the_operators_of_cpp() -> Verdict {
    let (_dir, program) = match Programs::new("leaks", ("c++", LEAKS), &["-O1"]) {
        Ok(made) => made,
        Err(skip) => return skip,
    };
    let o = run("memleak", &[&program]).code(0);
    for (name, row) in [("leak_thing", " 9 69993"), ("leak_array", " 4 22220")] {
        let rows = rows_with(&o, name);
        assert!(rows.len() == 1 && rows[0].ends_with(row), "{name}: {o:?}");
    }
    // What is freed has no row.
    assert!(rows_with(&o, "freed").is_empty() && rows_with(&o, " 0 0").is_empty(), "{o:?}");
    Pass
}

/// A workload: a server of a database that has its probes, and three queries.
pub(crate) fn queries() -> ExitCode {
    let run = || {
        let mut provider = Provider::new("tkdb")?;
        let start = provider.probe("query-start", "char *query")?;
        let done = provider.probe("query-done", "")?;
        provider.enable()?;
        println!("ready");
        std::io::stdin().read_line(&mut String::new())?;
        for (query, pause) in [(c"SELECT 1", 0), (c"SELECT slow", 30), (c"SELECT 2", 0)] {
            probe!(start, query);
            std::thread::sleep(std::time::Duration::from_millis(pause));
            probe!(done);
        }
        std::io::Result::Ok(())
    };
    run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn dbslower_prints_queries_that_take_long() -> Verdict {
    let program = Program::workload("tk");
    for (time, expected) in [("20", &["slow"][..]), ("0", &["1", "slow", "2"])] {
        let mut command = program.command(&["--workload", "queries", "1"]);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let tracing = start("dbslower", &["-p", &server.id().to_string(), time]);
        server.stdin.take().unwrap().write_all(b"\n").unwrap();
        server.wait().unwrap();
        let o = tracing.end().code(0);
        let rows = rows_with(&o, "SELECT ");
        let queries: Vec<&str> = rows.iter().filter_map(|l| Some(l.split_once("SELECT ")?.1)).collect();
        assert_eq!(queries, expected, "{o:?}");
    }
    Pass
}

/// A function that is called seven times.
const CALLS: &str = r"
#include <time.h>
__attribute__((noinline)) int work(long n) { struct timespec t = { 0, n }; return nanosleep(&t, 0) + 5; }
int main(void) { int sum = 0; for (int n = 0; n < 7; n++) sum += work(1000000); return sum != 35; }
";

fn dappprof_and_dapptrace_show_the_functions_of_a_program() -> Verdict {
    // Few functions: where each has a probe of its own, those of a library take minutes in a guest.
    let (_dir, program) = match Programs::new("calls", ("cc", CALLS), &["-O1"]) {
        Ok(made) => made,
        Err(skip) => return skip,
    };
    let calls = run("dappprof", &[&program]).code(0);
    let row = rows_with(&calls, "work ");
    let words: Vec<u64> = row[0].split(' ').skip(1).map(|w| w.parse().unwrap()).collect();
    assert!(row.len() == 1 && words[0] == 7 && words[1] >= 7_000_000, "{calls:?}");
    let each = run("dapptrace", &[&program]).code(0);
    let lines = rows_with(&each, " work ");
    assert_eq!(lines.len(), 14, "{lines:?}");
    for pair in lines.chunks(2) {
        assert!(pair[0].contains("-> work 0xf4240, ") && pair[1].ends_with("= 0x5"), "{lines:?}");
    }
    Pass
}

fn funccount_counts_calls_and_functions_of_a_process() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("funccount", &["syscall::getpp*:entry"]);
    program.run(&["--workload", "getppid", "5000"]);
    let o = tracing.end().code(0);
    let count = |o, of: &str| -> i64 {
        rows_with(o, of).iter().find_map(|l| l.strip_prefix(of)?.trim().parse().ok()).unwrap_or(0)
    };
    assert!(count(&o, "getppid ") >= 5000, "{o:?}");
    // A function of one process.
    let held = Held::new("for n in 1 2 3 4 5 6 7; do umask 022; done; exit 0");
    let tracing = start("funccount", &["-p", &held.id(), "libc:umask"]);
    held.run();
    let o = tracing.end().code(0);
    // Shells call it as often as they need for one command.
    let calls = count(&o, "umask ");
    assert!(calls > 0 && calls % 7 == 0, "{o:?}");
    Pass
}

fn funclatency_measures_each_call() -> Verdict {
    let program = Program::new("tkslp", Some("/bin/sleep"));
    let tracing = start("funclatency", &["-F", "-u", "syscall::clock_nanosleep:entry"]);
    program.run(&["0.3"]);
    let o = tracing.end().code(0);
    let rows = distribution(&o, "clock_nanosleep");
    // 300,000 microseconds; other programs sleep too.
    assert!(rows.iter().any(|(v, n)| v == "262144" && *n >= 1), "{o:?}");
    assert!(o.out.contains(" calls, microseconds"), "{o:?}");
    Pass
}

/// A function that calls itself, when there is a line to read.
const NESTED: &str = r"
#include <stdio.h>
__attribute__((noinline)) int within(int n) { return n ? within(n - 1) + n * 3 : 1; }
int main(void) { return getchar() == 'x' && within(9) == 0; }
";

fn funclatency_measures_calls_within_calls() -> Verdict {
    let (_dir, program) =
        match Programs::new("nested", ("cc", NESTED), &["-O1", "-fno-optimize-sibling-calls"]) {
            Ok(made) => made,
            Err(skip) => return skip,
        };
    let mut child = Command::new(program).stdin(Stdio::piped()).spawn().unwrap();
    let tracing = start("funclatency", &["-p", &child.id().to_string(), "a.out:within"]);
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    child.wait().unwrap();
    let o = tracing.end().code(0);
    assert_eq!(rows_with(&o, " calls, "), ["10 calls, nanoseconds"], "{o:?}");
    let sum: i64 = distribution(&o, " calls, ").iter().map(|(_, n)| n).sum();
    assert_eq!(sum, 10, "{o:?}");
    Pass
}

fn tools_for_any_probe_select_a_process() -> Verdict {
    let program = Program::workload("tk");
    let held = Held::new(&format!("exec {} --workload getppid 500", program.path().display()));
    let pid = held.id();
    let probe = "syscall::getppid:entry";
    let tools = [
        &["funccount", "-p", &pid, probe][..],
        &["funclatency", "-p", &pid, probe],
        &["argdist", "-c", "-p", &pid, probe, "pid"],
        &["trace", "-p", &pid, probe],
        &["stackcount", "-p", &pid, probe],
    ];
    let tracing = tools.map(|words| start(words[0], &words[1..]));
    program.run(&["--workload", "getppid", "70"]);
    held.run();
    let [counts, times, values, lines, stacks] = tracing.map(|t| t.end().code(0));
    // Before it executes the workload, a shell may call it once.
    let right = |n: usize| n == 500 || n == 501;
    let of = |o, start: &str| -> usize {
        let all = rows_with(o, start);
        all.iter().filter_map(|l| l.strip_prefix(start)?.split(' ').next()?.parse::<usize>().ok()).sum()
    };
    assert!(right(of(&counts, "getppid ")), "{counts:?}");
    let calls = rows_with(&times, " calls, ");
    assert!(
        calls.len() == 1 && calls[0].split(' ').next().is_some_and(|n| n.parse().is_ok_and(right)),
        "{times:?}"
    );
    let rows = rows_with(&values, &format!(" {pid} "));
    let row: Vec<&str> = rows.first().map(|l| l.split(' ').collect()).unwrap_or_default();
    assert!(rows.len() == 1 && row[2].parse().is_ok_and(right), "{values:?}");
    let shown = rows_with(&lines, " getppid ");
    let own = shown.iter().filter(|l| l.contains(&format!(" {pid} {pid} "))).count();
    assert!(right(own) && own == shown.len(), "{lines:?}");
    let counted = |l: &String| l.rsplit_once(": ")?.1.parse::<usize>().ok();
    assert!(right(rows_with(&stacks, ": ").iter().filter_map(counted).sum()), "{stacks:?}");
    Pass
}

fn argdist_shows_the_values_of_an_argument() -> Verdict {
    let program = Program::new("tkdd", Some("/bin/dd"));
    let counts = start("argdist", &["-cP", "syscall::write:entry", "arg2"]);
    let values = start("argdist", &["-P", "syscall::write:entry", "arg2"]);
    program.run(&["if=/dev/zero", "of=/dev/null", "bs=4321", "count=6", "status=none"]);
    let (counts, values) = (counts.end().code(0), values.end().code(0));
    assert_eq!(rows_with(&counts, &program.name), [format!("{} 4321 6", program.name)], "{counts:?}");
    assert_eq!(distribution(&values, &program.name), [("4096".to_string(), 6)], "{values:?}");
    Pass
}

fn trace_and_stackcount_show_the_firings_of_a_probe() -> Verdict {
    let program = Program::shell("tk");
    let file = program.file("file");
    let line = start("trace", &["-s", "1", "syscall::openat:entry"]);
    let [user, kernel] =
        [&["-u", "syscall::openat:entry"][..], &["syscall::openat:entry"]].map(|w| start("stackcount", w));
    let pid = program.run(&["-c", &format!("exec 7>{file}; exit 0")]);
    let (line, user, kernel) = (line.end().code(0), user.end().code(0), kernel.end().code(0));
    let rows = rows_with(&line, &format!("\"{file}\""));
    let [row] = &rows[..] else { panic!("{line:?}") };
    let start = format!("{pid} {pid} {} openat 0xffffff9c, 0x", program.name);
    assert!(row.contains(&start), "{line:?}");
    let of = |o| -> i64 {
        let start = format!("{}: ", program.name);
        rows_with(o, &start).iter().filter_map(|l| l.strip_prefix(&start)?.parse::<i64>().ok()).sum()
    };
    assert!(of(&user) >= 2 && of(&user) == of(&kernel), "{user:?} {kernel:?}");
    // Names of functions have a limit of time, which a guest may need for those of other programs.
    assert!(user.out.contains("libc.so.6`"), "{user:?}");
    Pass
}

fn functions_of_the_kernel_are_counted_and_measured() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let program = Program::workload("tk");
    let tools = [
        &["funccount", "vfs_write"][..],
        &["funclatency", "vfs_write"],
        &["stackcount", "vfs_write"],
        &["argdist", "-cP", "vfs_write", "arg2"],
    ];
    let tracing = tools.map(|words| start(words[0], &words[1..]));
    program.run(&["--workload", "write", "8"]);
    let [counts, times, stacks, values] = tracing.map(|t| t.end().code(0));
    let count = rows_with(&counts, "vfs_write ");
    let count = count.iter().find_map(|l| l.strip_prefix("vfs_write ")?.parse::<i64>().ok());
    assert!(count.is_some_and(|n| n >= 8), "{counts:?}");
    assert!(times.out.contains(" calls, nanoseconds"), "{times:?}");
    assert!(stacks.out.contains("write") && stacks.out.contains(&program.name), "{stacks:?}");
    // One write of each length from 1 to 128.
    for length in (0..8).map(|n| 1 << n) {
        assert!(values.out.contains(&program.name), "{values:?}");
        let row = format!("{} {length} 1", program.name);
        assert_eq!(
            rows_with(&values, &program.name).iter().filter(|l| **l == row).count(),
            1,
            "{row}: {values:?}"
        );
    }
    Pass
}

fn hotstacks_finds_the_stacks_that_take_the_time() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let program = Program::workload("tk");
    let tracing =
        [&["-u"][..], &["-k"], &[]].map(|w| start("hotstacks", &[w, &["-n", &program.name]].concat()));
    program.run(&["--workload", "cputime", "1000"]);
    for o in tracing.map(|t| t.end().code(0)) {
        let start = format!("{}: ", program.name);
        let rows = rows_with(&o, &start);
        let sum: i64 = rows.iter().filter_map(|l| l.strip_prefix(&start)?.parse::<i64>().ok()).sum();
        assert!(sum > 20, "{o:?}");
    }
    Pass
}

fn probes_and_values_that_are_none_are_refused() -> Verdict {
    for (tool, words, why) in [
        ("funccount", &[][..], "a probe is needed"),
        ("funccount", &["a:b:c"], "a description has four fields: a:b:c"),
        ("funccount", &["libc:malloc"], "a function of a file needs a process id: libc:malloc"),
        ("funclatency", &["syscall::read:return"], "the fourth field must be entry: return"),
        ("argdist", &["syscall::read:entry"], "a probe and a value are needed"),
        (
            "argdist",
            &["syscall::read:entry", "exit(0)"],
            "the value must be arg0 to arg9, errno, pid, tid, uid, cpu or timestamp: exit(0)",
        ),
        ("trace", &["syscall::read:entry", "x"], "unexpected operand: x"),
        ("stackcount", &["syscall::read:entry", "x"], "the number of seconds must be a number: x"),
        ("memleak", &[], "a process id or a command is needed"),
        ("dbslower", &[], "a process id is needed"),
    ] {
        let o = run(tool, words).code(2);
        assert!(o.out.is_empty() && o.err.starts_with(&format!("{tool}: {why}\n")), "{o:?}");
    }
    Pass
}
