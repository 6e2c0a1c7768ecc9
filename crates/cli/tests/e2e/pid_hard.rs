//! Functions of processes that make it hard: other languages, many functions, signals, stops and
//! sudden ends.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::pid::Programs;
use crate::targets::wait_for_state;
use crate::tool::{dtrace, finish, printed, start};

tests! {
    a_go_program_behaves_as_untraced
    ten_thousand_functions_of_a_library_are_entered_and_return
    signals_are_handled_while_probes_come_and_go
    a_stopped_process_stays_stopped_and_is_traced_when_it_runs
    a_command_that_executes_another_program_ends_as_untraced
    a_command_whose_output_is_closed_ends_by_sigpipe
}

/// Goroutines whose stacks grow, and panics that are recovered.
const GO: &str = r#"package main
import ("errors"; "fmt"; "os"; "sync")
//go:noinline
func fib(n int) int { if n < 2 { return n }; return fib(n-1) + fib(n-2) }
//go:noinline
func deep(n int) int {
	var page [512]byte
	page[n%512] = byte(n)
	if n == 0 { return int(page[0]) }
	return deep(n-1) + 1 + int(page[n%512]) - int(page[n%512])
}
//go:noinline
func panics(n int) (err error) {
	defer func() { if r := recover(); r != nil { err = errors.New(fmt.Sprint(r)) } }()
	if n%3 == 0 { panic(n) }
	return nil
}
func main() {
	var group sync.WaitGroup
	sums := make([]int, 4)
	for g := range sums {
		group.Add(1)
		go func(g int) { defer group.Done(); sums[g] = fib(10) + deep(300) }(g)
	}
	group.Wait()
	caught := 0
	for i := 0; i < 30; i++ { if panics(i) != nil { caught++ } }
	fmt.Println(sums, caught)
	os.Exit(8)
}
"#;

fn a_go_program_behaves_as_untraced() -> Verdict {
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    let dir = std::env::temp_dir().join(format!("dt-go-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("main.go"), GO).unwrap();
    let cache = dir.join("cache");
    let built = Command::new("go")
        .current_dir(&dir)
        .args(["build", "-o", "program", "main.go"])
        .env("GOCACHE", &cache)
        .env("GOFLAGS", "-mod=mod")
        .output();
    let program = dir.join("program").display().to_string();
    let verdict = match built {
        Err(e) => Skip(format!("no Go compiler: {e}")),
        Ok(o) => {
            assert!(o.status.success(), "{o:?}");
            let functions = "pid$target:a.out:main.fib:entry, pid$target:a.out:main.fib:return, \
                 pid$target:a.out:main.panics:entry, pid$target:a.out:main.panics:return \
                 { @[probefunc, probename] = count(); } END { printa(\"%s %s %@d\\n\", @); }";
            let o = dtrace(&["-qc", &program, "-n", functions]).code(0);
            // A panic that is recovered returns from the function that it went through.
            let expected = [
                "[355 355 355 355] 10",
                "main.fib entry 708",
                "main.fib return 708",
                "main.panics entry 30",
                "main.panics return 30",
            ];
            for line in expected {
                assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
            }
            let all = "pid$target:::entry, pid$target:::return { @ = count(); }";
            let o = dtrace(&["-c", &program, "-n", all]).code(0);
            assert!(o.out.contains("[355 355 355 355] 10\n") && o.last_number() > 10_000, "{o:?}");
            assert!(o.err.contains("exited with status 8"), "{o:?}");
            Pass
        }
    };
    let _ = std::fs::remove_dir_all(&dir);
    verdict
}

fn ten_thousand_functions_of_a_library_are_entered_and_return() -> Verdict {
    const FUNCTIONS: usize = 10_000;
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    let (dir, program) = match Programs::new("many", ("cc", "int main(void) { return 0; }"), &[]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let mut library = String::from("static volatile long sum;\n");
    for n in 0..FUNCTIONS {
        let _ = writeln!(library, "long f{n}(long a) {{ return sum += a; }}");
    }
    library += "long all(void) {\n";
    for n in 0..FUNCTIONS {
        let _ = writeln!(library, "f{n}({n});");
    }
    library += "return sum; }\n";
    std::fs::write(dir.path().join("many.c"), library).unwrap();
    let main = "long all(void); int main(void) { return all() == 49995000 ? 4 : 5; }";
    std::fs::write(dir.path().join("program.c"), main).unwrap();
    for words in [
        &["-O0", "-fPIC", "-fno-semantic-interposition", "-shared", "-o", "libmany.so", "many.c"][..],
        &["-O1", "-o", "program", "program.c", "-L.", "-lmany", "-Wl,-rpath,$ORIGIN"],
    ] {
        let o = Command::new("cc").args(words).current_dir(dir.path()).output().unwrap();
        assert!(o.status.success(), "{o:?}");
    }
    let script = "pid$target:libmany.so:f[0-9]*:entry { @n[probename] = count(); @sum = sum(arg0); }
        pid$target:libmany.so:f[0-9]*:return { @n[probename] = count(); }
        syscall::exit_group:entry /pid == $target/ { printf(\"status %d\\n\", arg0); }
        END { printa(\"%s %@d\\n\", @n); printa(\"sum %@d\\n\", @sum); }";
    let o = dtrace(&["-c", &program, "-qn", script]).code(0);
    for line in ["entry 10000", "return 10000", "sum 49995000", "status 4"] {
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    Pass
}

/// Signals come all the time, to a handler that calls a function, until the end of the input.
const SIGNALS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long add(long a, long b) { __asm__ volatile(""); return a + b; }
static volatile long handled, inside, outside;
static void handler(int unused) { handled = add(handled, 1); inside++; }
int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    struct itimerval often = { { 0, 300 }, { 0, 300 } };
    long sum = 0;
    char c;
    fcntl(0, F_SETFL, O_NONBLOCK);
    sigaction(SIGALRM, &action, NULL);
    puts("ready");
    fflush(stdout);
    setitimer(ITIMER_REAL, &often, NULL);
    while (read(0, &c, 1) != 0) {
        sum = add(sum, 2);
        outside++;
    }
    return sum == 2 * outside && handled == inside && handled > 10 ? 3 : 4;
}
"#;

fn signals_are_handled_while_probes_come_and_go() -> Verdict {
    let (_dir, program) = match Programs::new("signals", ("cc", SIGNALS), &["-O1"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let mut process = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let pid = process.id().to_string();
    let script = "pid$target:a.out:add:entry { @n[probename, probefunc] = count(); }
        pid$target:a.out:add:return /arg1 < arg0/ { @wrong = count(); }
        pid$target:a.out:handler:entry, pid$target:a.out:handler:return { @n[probename, probefunc] = count(); n++; }
        pid$target:a.out:handler:entry /n > 40/ { exit(0); }
        END { printa(\"%s %s %@d\\n\", @n); printa(\"wrong %@d\\n\", @wrong); }";
    for means in ["pidreturn=uretprobe", "pidreturn=ret", "pidreturn=auto"] {
        let o = dtrace(&["-x", means, "-qp", &pid, "-n", script]).code(0);
        for row in ["entry add ", "entry handler ", "return handler "] {
            assert!(o.out.lines().any(|l| l.starts_with(row)), "{row}: {o:?}");
        }
    }
    drop(process.stdin.take());
    assert_eq!(process.wait().unwrap().code(), Some(3));
    Pass
}

const WAITS: &str = r#"
#include <stdio.h>
__attribute__((noinline, noclone)) long add(long a, long b) { __asm__ volatile(""); return a + b; }
int main(int argc, char **argv)
{
    long n = getchar();
    for (int i = 0; i < 20; i++)
        n = add(n, i);
    return argc;
}
"#;

fn a_stopped_process_stays_stopped_and_is_traced_when_it_runs() -> Verdict {
    let (_dir, program) = match Programs::new("stopped", ("cc", WAITS), &["-O1"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let mut process = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
    let (pid, number) = (process.id().to_string(), process.id() as i32);
    wait_for_state(&pid, 'S');
    // SAFETY: a child that was not reaped.
    unsafe { libc::kill(number, libc::SIGSTOP) };
    wait_for_state(&pid, 'T');
    let script = "BEGIN { printf(\"on\\n\"); } pid$target:a.out:add:entry { @ = count(); }";
    let mut tracing = start(&["-qp", &pid, "-n", script]);
    printed(&mut tracing);
    // It is traced as long as it may load libraries.
    wait_for_state(&pid, 't');
    drop(process.stdin.take());
    // SAFETY: as above.
    unsafe { libc::kill(number, libc::SIGCONT) };
    assert_eq!(process.wait().unwrap().code(), Some(1));
    assert_eq!(finish(tracing).code(0).last_number(), 20);
    Pass
}

fn a_command_that_executes_another_program_ends_as_untraced() -> Verdict {
    let (_dir, program) = match Programs::new("executes", ("cc", WAITS), &["-O1"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    // The functions are those of the shell.
    let script =
        "pid$target:libc:execve:entry { @ = count(); } pid$target:libc::return { @r[probefunc] = count(); }";
    let command = format!("env -i {program} a b");
    let o = dtrace(&["-c", &command, "-n", script]).code(0);
    assert!(o.err.contains("exited with status 3"), "{o:?}");
    assert!(o.out.contains("execve") || o.last_number() > 0, "{o:?}");
    Pass
}

fn a_command_whose_output_is_closed_ends_by_sigpipe() -> Verdict {
    let script = "pid$target:libc:write:entry { @ = count(); }";
    let mut tracing = start(&["-c", "yes", "-n", script]);
    printed(&mut tracing);
    // The command has the standard output of dtrace.
    drop(tracing.stdout.take());
    let o = finish(tracing);
    assert!(o.err.contains("terminated by SIGPIPE"), "{o:?}");
    Pass
}
