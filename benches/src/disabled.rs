//! What the probes of a program cost while nobody traces them: a header of `dtrace -h`, compiled as
//! C and as C++.

use std::process::Command;

use crate::built::Built;
use crate::run::{Tools, figure};

/// The most that a disabled probe with a test may take, in nanoseconds.
const MOST: f64 = 0.4;

const DEFINITION: &str =
    "provider bench { probe tested(int a, const char *b); probe plain(int a, const char *b); };";

/// Prints nanoseconds for each pass of an empty loop, of one with a tested probe, and of one with a
/// probe that is not tested.
const PROGRAM: &str = r#"
#include "bench.h"
#include <stdio.h>
#include <time.h>
#define PASSES 50000000L
#define LOOP(name, body) \
	static __attribute__((noinline)) double name(long n, const char *s) \
	{ \
		struct timespec a, b; \
		long i; \
		clock_gettime(CLOCK_MONOTONIC, &a); \
		for (i = 0; i < n; i++) { \
			__asm__ volatile("" : "+r"(i), "+r"(s)); \
			body; \
		} \
		clock_gettime(CLOCK_MONOTONIC, &b); \
		return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (double)n; \
	}
LOOP(empty, )
LOOP(tested, if (BENCH_TESTED_ENABLED()) BENCH_TESTED((int)i, s))
LOOP(plain, BENCH_PLAIN((int)i, s))
int main(int argc, char **argv)
{
	(void)argc;
	printf("%f ", empty(PASSES, argv[0]));
	printf("%f ", tested(PASSES, argv[0]));
	printf("%f\n", plain(PASSES, argv[0]));
	return 0;
}
"#;

pub(crate) fn disabled(_: &Tools) {
    const ROUNDS: usize = 15;
    println!("\na disabled probe with two arguments, over an empty loop (minimum of {ROUNDS})");
    for (compiler, file) in [("cc", "bench.c"), ("c++", "bench.cc")] {
        match measure(compiler, file, ROUNDS) {
            Err(e) => println!("  {compiler:<8} {e}"),
            Ok([empty, tested, plain]) => {
                let costs = [tested - empty, plain - empty].map(|c| c.max(0.0));
                let verdict = if costs[0] <= MOST { "reached" } else { "MISSED" };
                println!(
                    "  {compiler:<8} {:>6} ns tested ({verdict}: at most {MOST} ns) {:>6} ns not tested",
                    figure(costs[0], 2),
                    figure(costs[1], 2)
                );
            }
        }
    }
    crate::dynamic::dynamic();
}

/// The minimum of each loop.
fn measure(compiler: &str, file: &str, rounds: usize) -> Result<[f64; 3], String> {
    let built = Built::new("disabled", DEFINITION, (compiler, file, PROGRAM))?;
    let mut least = [f64::MAX; 3];
    for _ in 0..rounds {
        let out = Command::new(built.program()).output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        for (least, word) in least.iter_mut().zip(text.split_whitespace()) {
            *least = least.min(word.parse().map_err(|_| format!("printed {text}"))?);
        }
    }
    Ok(least)
}
