//! Stacks of processes: what `ustack()` costs in a firing, walked by tables through a program
//! without frame pointers, beside the kernel's walk (`bpf_get_stack`) of the same program with them
//! and the peer; and what the tables of a large program cost a session at its start.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::run::{Running, Tools, figure, median, whole};

/// A call at the end of 26 frames. For each line of the standard input it measures, and prints the
/// nanoseconds of a call.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define OUT __attribute__((noinline, noclone))
static int order(const void *a, const void *b)
{
    double x = *(double *)a, y = *(double *)b;
    return x < y ? -1 : x > y;
}
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
OUT void measure(void)
{
    static double all[4000];
    int c, n;
    while ((c = getchar()) != EOF) {
        if (c != '\n')
            continue;
        double begun = now(), a;
        for (n = 0; n < 4000 && (a = now()) < begun + 4e8; n++) {
            for (int i = 0; i < 200; i++)
                syscall(SYS_getppid);
            all[n] = (now() - a) / 200;
        }
        qsort(all, n, sizeof *all, order);
        printf("%f\n", all[n / 20]);
        fflush(stdout);
    }
}
OUT void deep(int n)
{
    if (n)
        deep(n - 1);
    else
        measure();
    __asm__ volatile("");
}
int main(void)
{
    deep(19);
    return 0;
}
"#;

/// The directory of the programs.
struct Programs(PathBuf);

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One that runs.
struct Deep {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Deep {
    fn start(dir: &Path, flag: &str) -> Option<Deep> {
        let name = format!("deep{flag}");
        std::fs::write(dir.join("deep.c"), PROGRAM).ok()?;
        // Static, because the C library has no frame pointers behind which the kernel would find
        // the rest.
        let words = ["-O2", "-static", flag, "-o", &name, "deep.c"];
        let done = Command::new("cc").current_dir(dir).args(words).status();
        done.ok().filter(|status| status.success())?;
        let mut process =
            Command::new(dir.join(name)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let lines = BufReader::new(process.stdout.take()?);
        Some(Deep { process, lines })
    }

    /// Nanoseconds of a call.
    fn measure(&mut self) -> f64 {
        let mut line = String::new();
        let asked = self.process.stdin.as_mut().is_some_and(|input| input.write_all(b"\n").is_ok());
        let answered = asked && self.lines.read_line(&mut line).is_ok();
        line.trim().parse().ok().filter(|_| answered).unwrap_or(f64::NAN)
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Measures both.
pub(crate) fn stacks(tools: &Tools) {
    let dir = Programs(std::env::temp_dir().join(format!("dtrace-bench-stacks-{}", std::process::id())));
    if std::fs::create_dir_all(&dir.0).is_err() {
        return println!("\nstacks: no directory");
    }
    match (Deep::start(&dir.0, "-fomit-frame-pointer"), Deep::start(&dir.0, "-fno-omit-frame-pointer")) {
        (Some(without), Some(with)) => firings(tools, without, with),
        _ => println!("\nstacks: no C compiler, or no static library"),
    }
    tables(tools);
}

fn firings(tools: &Tools, mut without: Deep, mut with: Deep) {
    const ROUNDS: usize = 7;
    println!(
        "\nstacks of processes of 26 frames as a key (ns a firing, less one that counts; least of {ROUNDS} interleaved rounds)"
    );
    // `f64::min` prefers any number to NaN, and NaN is printed as not measured.
    let [mut counts, mut tables, mut kernel, mut peers] = [f64::NAN; 4];
    let mut count_of_peer = f64::NAN;
    let ours = |program: &Deep, words: &[&str], action: &str| {
        let pid = program.process.id();
        let script = format!(
            "BEGIN {{ printf(\"ready\\n\"); }} syscall::getppid:entry /pid == $target/ {{ {action} }}"
        );
        let pid = pid.to_string();
        Running::start(tools.dtrace(&[words, &["-p", &pid]].concat(), &script))
    };
    let theirs = |program: &Deep, action: &str| {
        let pid = program.process.id();
        let script = format!(
            "BEGIN {{ printf(\"ready\\n\"); }} tracepoint:syscalls:sys_enter_getppid /pid == {pid}/ {{ {action} }}"
        );
        tools.peer.as_ref().map(|peer| peer.command(&script)).and_then(Running::start)
    };
    for _ in 0..ROUNDS {
        if let Some(_tracer) = ours(&without, &[], "@ = count();") {
            counts = counts.min(without.measure());
        }
        if let Some(_tracer) = ours(&without, &[], "@[ustack(26)] = count();") {
            tables = tables.min(without.measure());
        }
        if let Some(_tracer) = ours(&with, &["-x", "unwindsize=0"], "@[ustack(26)] = count();") {
            kernel = kernel.min(with.measure());
        }
        if let Some(_tracer) = theirs(&with, "@ = count();") {
            count_of_peer = count_of_peer.min(with.measure());
        }
        if let Some(_tracer) = theirs(&with, "@[ustack(26)] = count();") {
            peers = peers.min(with.measure());
        }
    }
    let [tables, kernel, peers] = [tables - counts, kernel - counts, peers - count_of_peer];
    println!("  by tables, without frame pointers  {:>8}", figure(tables, 0));
    println!("  by the kernel, with them           {:>8}", figure(kernel, 0));
    println!("  peer, with them                    {:>8}", figure(peers, 0));
    println!(
        "  997 of the first a second are {} % of a CPU; the first to the second: {}",
        figure(997.0 * tables / 1e7, 2),
        figure(tables / kernel, 2)
    );
}

/// Measures sessions that have a large program as target.
fn tables(tools: &Tools) {
    const ROUNDS: usize = 7;
    println!(
        "\nstart to exit with a process of a program as target (ms, median and least of {ROUNDS} interleaved rounds)"
    );
    for (name, words) in [("sleep", &["1000"][..]), ("node", &["-e", "setInterval(() => {}, 1000)"])] {
        let Ok(mut process) = Command::new(name).args(words).stdout(Stdio::null()).spawn() else {
            println!("  {name:<8} none here");
            continue;
        };
        std::thread::sleep(std::time::Duration::from_secs(1));
        let pid = process.id().to_string();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for (all, action) in [(&mut without, "@ = count();"), (&mut with, "@[ustack()] = count();")] {
                let script =
                    format!("BEGIN {{ exit(0); }} syscall::getppid:entry /pid == $target/ {{ {action} }}");
                all.extend(whole(tools.dtrace(&["-p", &pid], &script)).map(|cost| cost.seconds * 1e3));
            }
        }
        let _ = process.kill();
        let _ = process.wait();
        let least = |all: &[f64]| all.iter().copied().fold(f64::NAN, f64::min);
        println!(
            "  {name:<8} without a stack {:>6} {:>6}; with one {:>6} {:>6}",
            figure(median(without.clone()), 0),
            figure(least(&without), 0),
            figure(median(with.clone()), 0),
            figure(least(&with), 0)
        );
    }
}
