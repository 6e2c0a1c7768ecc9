//! What probes that a program makes while it runs cost while nobody traces them: in C, C++ and
//! Rust, and in Python and Node.js where their packages can be built here.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use dtrace_usdt::{Probe, Provider, probe};

use crate::run::figure;

/// The most that a disabled dynamic probe may take in C, in nanoseconds.
const MOST_C: f64 = 1.0;
/// The same in Rust: what a probe with a test may take.
const MOST_RUST: f64 = 0.4;
const ROUNDS: usize = 15;
const PASSES: u64 = 50_000_000;

/// Prints nanoseconds for each pass of an empty loop, and of one with a probe.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <time.h>
#include "dtrace_usdt.h"
#define LOOP(name, body) \
	static __attribute__((noinline)) double name(long n, const char *s, const dtusdt_probe *probe) \
	{ \
		struct timespec a, b; \
		long i; \
		(void)probe; \
		clock_gettime(CLOCK_MONOTONIC, &a); \
		for (i = 0; i < n; i++) { \
			__asm__ volatile("" : "+r"(i), "+r"(s) : : "memory"); \
			body; \
		} \
		clock_gettime(CLOCK_MONOTONIC, &b); \
		return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (double)n; \
	}
LOOP(empty, )
LOOP(probed, DTUSDT_PROBE(probe, (int)i, s))
int main(int argc, char **argv)
{
	dtusdt_provider *provider = dtusdt_provider_new("bench");
	dtusdt_probe *probe = dtusdt_probe_add(provider, "request", "int id, char *path");
	(void)argc;
	if (dtusdt_provider_enable(provider, NULL) != 0)
		return 1;
	printf("%f ", empty(50000000L, argv[0], probe));
	printf("%f\n", probed(50000000L, argv[0], probe));
	return 0;
}
"#;

const PYTHON: &str = "
import time
from dtrace_usdt import Provider
provider = Provider('bench')
probe = provider.probe('request', 'int id, char *path')
provider.enable()
def loop(call):
    begun = time.perf_counter_ns()
    for i in range(1000000):
        call(i, '/index.html')
    return (time.perf_counter_ns() - begun) / 1e6
def empty(id, path):
    pass
print(loop(empty), loop(probe))
";

const NODE: &str = "
const { Provider } = require(process.argv[1]);
const provider = new Provider('bench');
const probe = provider.probe('request', 'int id, char *path');
provider.enable();
const time = (loop) => {
  const begun = process.hrtime.bigint();
  loop();
  return Number(process.hrtime.bigint() - begun) / 5e7;
};
const empty = () => { for (let i = 0; i < 5e7; i++); };
const probed = () => { for (let i = 0; i < 5e7; i++) probe.fire(i, '/index.html'); };
console.log(time(empty), time(probed));
";

/// Nanoseconds of a pass without the probe, and with it.
type Times = Result<[f64; 2], String>;

fn sources(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../usdt").join(part)
}

pub(crate) fn dynamic() {
    println!("\na disabled probe that was made at run time, with two arguments (minimum of {ROUNDS})");
    let dir = std::env::temp_dir().join(format!("dt-bench-dynamic-{}", std::process::id()));
    let made = std::fs::create_dir_all(&dir).map_err(|e| e.to_string());
    let all: [(&str, Option<f64>, Times); 5] = [
        ("C", Some(MOST_C), made.clone().and_then(|()| compiled(&dir, "cc", "bench.c"))),
        ("C++", Some(MOST_C), made.clone().and_then(|()| compiled(&dir, "c++", "bench.cc"))),
        ("Rust", Some(MOST_RUST), rust().map_err(|e| e.to_string())),
        ("Python", None, made.clone().and_then(|()| python(&dir))),
        ("Node.js", None, made.and_then(|()| node(&dir))),
    ];
    for (name, most, result) in all {
        let [empty, probed] = match result {
            Ok(times) => times,
            Err(e) => {
                println!("  {name:<8} {e}");
                continue;
            }
        };
        // A call of Python has an empty function beside it, not an empty loop.
        let (cost, beside) = match name {
            "Python" => (probed, format!("a call of an empty function {} ns", figure(empty, 1))),
            _ => ((probed - empty).max(0.0), format!("the empty loop {} ns", figure(empty, 2))),
        };
        let verdict = most.map_or(String::new(), |most| {
            let verdict = if cost <= most { "reached" } else { "MISSED" };
            format!(" ({verdict}: at most {most} ns)")
        });
        println!("  {name:<8} {:>6} ns{verdict}, {beside}", figure(cost, 2));
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// The minimum of each figure that a program prints.
fn least(command: &mut Command) -> Times {
    let mut least = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        let out = command.output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if numbers.len() != least.len() {
            return Err(format!("printed {text}{}", String::from_utf8_lossy(&out.stderr)));
        }
        least.iter_mut().zip(numbers).for_each(|(least, number)| *least = least.min(number));
    }
    Ok(least)
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let out = command.output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

fn compiled(dir: &Path, compiler: &str, file: &str) -> Times {
    std::fs::write(dir.join(file), PROGRAM).map_err(|e| e.to_string())?;
    let c = sources("c");
    let mut command = Command::new(compiler);
    command.current_dir(dir).args(["-O2", file, "-o", "bench", "-I"]).arg(&c);
    succeeds(command.args(["-x", "c"]).arg(c.join("dtrace_usdt.c")))?;
    least(&mut Command::new(dir.join("bench")))
}

/// A shared object for an interpreter.
fn extension(to: &Path, from: &Path, include: &str) -> Result<(), String> {
    let c = sources("c");
    let mut command = Command::new("cc");
    command.args(["-O2", "-shared", "-fPIC", "-I", include, "-I"]).arg(&c).arg("-o").arg(to).arg(from);
    succeeds(command.arg(c.join("dtrace_usdt.c")))
}

fn said(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn python(dir: &Path) -> Times {
    let of = sources("python/src/dtrace_usdt");
    let package = dir.join("dtrace_usdt");
    std::fs::create_dir_all(&package).map_err(|e| e.to_string())?;
    std::fs::copy(of.join("__init__.py"), package.join("__init__.py")).map_err(|e| e.to_string())?;
    let include = said(
        Command::new("python3").args(["-c", "import sysconfig; print(sysconfig.get_paths()['include'])"]),
    )?;
    extension(&package.join("_native.so"), &of.join("_native.c"), &include)?;
    least(Command::new("python3").env("PYTHONPATH", dir).args(["-c", PYTHON]))
}

fn node(dir: &Path) -> Times {
    let build = dir.join("build/Release");
    std::fs::create_dir_all(&build).map_err(|e| e.to_string())?;
    std::fs::copy(sources("node/index.js"), dir.join("index.js")).map_err(|e| e.to_string())?;
    let place = "console.log(require('path').resolve(process.execPath, '../../include/node'))";
    let include = said(Command::new("node").args(["-e", place]))?;
    extension(&build.join("dtrace_usdt.node"), &sources("node/addon.c"), &include)?;
    least(Command::new("node").args(["-e", NODE]).arg(dir.join("index.js")))
}

#[inline(never)]
fn empty(path: &str) {
    for i in 0..PASSES {
        black_box((i, path));
    }
}

#[inline(never)]
fn probed(path: &str, request: &Probe) {
    for i in 0..PASSES {
        let (i, path) = black_box((i, path));
        probe!(request, i, path);
    }
}

fn rust() -> std::io::Result<[f64; 2]> {
    let mut provider = Provider::new("bench")?;
    let request = provider.probe("request", "int id, char *path")?;
    provider.enable()?;
    let time = |run: &dyn Fn()| {
        let begun = Instant::now();
        run();
        begun.elapsed().as_secs_f64() * 1e9 / PASSES as f64
    };
    let mut least = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        let times = [time(&|| empty("/index.html")), time(&|| probed("/index.html", &request))];
        least.iter_mut().zip(times).for_each(|(least, time)| *least = least.min(time));
    }
    Ok(least)
}
