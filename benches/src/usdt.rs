//! USDT: what a firing costs, beside an empty program at the same site and the peer; how long it
//! takes to enable a provider in many processes, and when one that starts later is traced.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::built::Built;
use crate::run::{Cost, Running, Tools, figure, median, whole};
use crate::user::{empty, mark};

/// As many probes as PostgreSQL has.
const PROBES: usize = 57;
/// Processes of a server.
const PROCESSES: usize = 50;

const PROGRAM: &str = r#"
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}
static double measure(const char *text)
{
	static double all[200000];
	double begun = now();
	int count = 0, i;
	while (count < 200000 && now() - begun < 4e8) {
		double start = now();
		for (i = 0; i < 200; i++)
			BENCH_REQUEST(i, text);
		all[count++] = (now() - start) / 200;
	}
	qsort(all, count, sizeof *all, compare);
	return all[count / 20];
}
int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	char line[16];
	double begun = now();
	if (!strcmp(what, "once")) {
		BENCH_ONCE(0, what);
	} else if (!strcmp(what, "later")) {
		while (now() - begun < 1e8)
			BENCH_LATER((int)((now() - begun) / 1e3), what);
	} else if (!strcmp(what, "wait")) {
		puts("ready");
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			return 0;
		ALL
	} else {
		while (fgets(line, sizeof line, stdin)) {
			printf("%f\n", measure(argv[0]));
			fflush(stdout);
		}
	}
	return 0;
}
"#;

/// Builds the program.
fn build() -> Result<Built, String> {
    let others: String = (0..PROBES - 3).map(|n| format!("probe p{n}(int a, const char *b); ")).collect();
    let definition = format!(
        "provider bench {{ probe request(int a, const char *b); probe once(int a, const char *b); \
         probe later(int a, const char *b); {others} }};"
    );
    let fired: String = (0..PROBES - 3).map(|n| format!("BENCH_P{n}({n}, what); ")).collect();
    Built::new("usdt", &definition, ("cc", "bench.c", &PROGRAM.replace("ALL", &fired)))
}

/// Where the note of the first probe says that its site is. The program is linked so that offsets
/// in the file are these.
fn site(built: &Built) -> Option<u64> {
    let out = Command::new("readelf").arg("-n").arg(built.program()).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let note = text.split("Provider: bench").find(|note| note.contains("Name: request\n"))?;
    let place = note.split("Location: 0x").nth(1)?.split(',').next()?;
    u64::from_str_radix(place, 16).ok()
}

/// The program as it runs.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(program: &Path, word: &str) -> Option<Process> {
        let mut command = Command::new(program);
        let mut child = command.arg(word).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let lines = BufReader::new(child.stdout.take()?);
        Some(Process { child, lines })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.lines.read_line(&mut line);
        line.trim().to_owned()
    }

    /// Nanoseconds of a probe.
    fn measure(&mut self) -> f64 {
        let asked = self.child.stdin.as_mut().is_some_and(|input| input.write_all(b"\n").is_ok());
        if asked { self.line().parse().unwrap_or(f64::NAN) } else { f64::NAN }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures all.
pub(crate) fn usdt(tools: &Tools) {
    match build() {
        Ok(built) => {
            firings(tools, &built);
            many(tools, &built);
            later(tools, &built);
        }
        Err(e) => println!("\nusdt: {e}"),
    }
}

fn firings(tools: &Tools, built: &Built) {
    const ROUNDS: usize = 7;
    let Some(mut process) = Process::start(&built.program(), "measure") else { return };
    let (pid, program) = (process.child.id(), built.program());
    println!("\ncost of a USDT probe with two arguments (ns, least of {ROUNDS} interleaved rounds)");
    let ready = "BEGIN { printf(\"ready\\n\"); }";
    let ours = format!("{ready} bench{pid}:::request {{ @ = count(); }}");
    let args = format!("{ready} bench{pid}:::request {{ @[arg0 & 1] = sum(arg1); }}");
    let all = format!("{ready} bench*:::request {{ @ = count(); }}");
    let place = format!("/proc/{pid}/root{}", program.display());
    let theirs = format!("{ready} usdt:{place}:bench:request {{ @ = count(); }}");
    let their_args = format!("{ready} usdt:{place}:bench:request {{ @[arg0 & 1] = sum(arg1); }}");
    let [mut bare, mut floor] = [f64::NAN; 2];
    let (mut mine, mut peers) = ([f64::NAN; 3], [f64::NAN; 2]);
    for _ in 0..ROUNDS {
        bare = bare.min(process.measure());
        // The site is one of some nops, of which each kernel has its quickest.
        for place in site(built).into_iter().flat_map(|site| [site, site + 1]) {
            if let Some(_link) = empty(&program, &[place], Some(pid), false) {
                floor = floor.min(process.measure());
            }
        }
        for (least, script) in mine.iter_mut().zip([&ours, &args, &all]) {
            if let Some(_tracer) = Running::start(tools.dtrace(&["-x", "switchrate=10ms"], script)) {
                *least = least.min(process.measure());
            }
        }
        for (least, script) in peers.iter_mut().zip([&theirs, &their_args]) {
            let peer = tools.peer.as_ref().map(|p| p.command(script));
            if let Some(_tracer) = peer.and_then(Running::start) {
                *least = least.min(process.measure());
            }
        }
    }
    println!("  bare {} ns, an empty program {} ns", figure(bare, 1), figure(floor, 0));
    for (what, mine, peer) in [
        ("@ = count()", mine[0], peers[0]),
        ("@[arg0 & 1] = sum(arg1)", mine[1], peers[1]),
        ("@ = count(), in all", mine[2], peers[0]),
    ] {
        let (above, ratio) = ((mine - bare) / (floor - bare), (mine - bare) / (peer - bare));
        let reached = mark(above <= 1.1 && (ratio.is_nan() || ratio <= 0.7));
        println!(
            "  {what:<26} dtrace {:>6} ns, peer {:>6} ns; of an empty program {:>5} (1.1), of the peer {:>5} (0.7)  {reached}",
            figure(mine, 0),
            figure(peer, 0),
            figure(above, 2),
            figure(ratio, 2),
        );
    }
}

fn many(tools: &Tools, built: &Built) {
    const ROUNDS: usize = 7;
    let start = || Process::start(&built.program(), "wait");
    let mut processes: Vec<Process> = (0..PROCESSES).filter_map(|_| start()).collect();
    processes.iter_mut().for_each(|process| _ = process.line());
    let of = |script: &str| -> Vec<Cost> {
        (0..ROUNDS).filter_map(|_| whole(tools.dtrace(&[], script))).collect()
    };
    let wall = |all: &[Cost]| median(all.iter().map(|cost| cost.seconds * 1e3).collect());
    let none = of("BEGIN { exit(0); }");
    let all = of("BEGIN { exit(0); } bench*::: { @[probename] = count(); }");
    println!("\n{PROBES} probes in {PROCESSES} processes, start to exit (median of {ROUNDS})");
    println!(
        "  {} ms, without probes {} ms: enabled and gone in 200 ms: {}",
        figure(wall(&all), 1),
        figure(wall(&none), 1),
        mark(wall(&all) <= 200.0)
    );
}

fn later(tools: &Tools, built: &Built) {
    const RUNS: u32 = 200;
    println!("\na process that starts later");
    let file = built.dir().join("script");
    let script = |commands: String| {
        let _ = std::fs::write(&file, commands);
        format!("sh {}", file.display())
    };
    let known = Process::start(&built.program(), "wait");
    let command = script(format!("for i in $(seq {RUNS}); do {} once; done", built.program().display()));
    let counts = "bench*:::once { @ = count(); } END { printa(\"%@d\", @); }";
    println!(
        "  first instructions of {RUNS} runs of a file that is known: {} traced",
        figure(printed(tools.dtrace(&["-c", &command], counts)), 0)
    );
    drop(known);
    // A copy of the program is another file.
    let mut latest: Vec<f64> = Vec::new();
    for round in 0..7 {
        let copy = built.dir().join(format!("copy{round}"));
        let (from, copy) = (built.program(), copy.display());
        let command = script(format!("sleep 0.5; cp {} {copy}; {copy} later", from.display()));
        let first = "bench*:::later { @ = min(arg0); } END { printa(\"%@d\", @); }";
        latest.push(printed(tools.dtrace(&["-Z", "-c", &command], first)) / 1e3);
    }
    let wait = median(latest);
    println!(
        "  a file that is new: {} ms after main began (at most 2): {}",
        figure(wait, 2),
        mark(wait <= 2.0)
    );
}

/// The number that a command prints.
fn printed(mut command: Command) -> f64 {
    let out = command.output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    out.trim().parse().unwrap_or(f64::NAN)
}
