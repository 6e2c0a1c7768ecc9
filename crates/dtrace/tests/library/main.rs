//! The library on the real kernel: what takes a program around it, and so cannot be seen through the command.
//!
//! A test target with a runner of its own, because it also runs in a guest, where there is no cargo. A test is a function that
//! returns [`Verdict`]; a panic is a failure; what this kernel cannot run is skipped with its reason. `library [FILTER]` runs
//! the tests whose name holds FILTER. With `--workload` the runner is itself the workload.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod growing;
mod stress;
mod tool;
mod workload;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

/// How a test ended when it did not fail.
pub(crate) enum Verdict {
    /// It does what it should.
    Pass,
    /// This kernel or machine cannot run it: why.
    Skip(String),
}

/// A test: its name and what it does.
pub(crate) type Test = (&'static str, fn() -> Verdict);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--workload") {
        return workload::run(&args[1..]);
    }
    // cargo test passes flags of its own runner; only a plain word is a filter.
    let filter = args.iter().find(|a| !a.starts_with('-')).cloned().unwrap_or_default();
    if args.iter().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let tests = [growing::TESTS, stress::TESTS];
    let tests: Vec<Test> = tests.into_iter().flatten().filter(|t| t.0.contains(&filter)).copied().collect();
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: library: tracing needs root");
        println!("0 passed, 0 failed, {} skipped", tests.len());
        return ExitCode::SUCCESS;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in tests {
        let start = Instant::now();
        let verdict = catch_unwind(AssertUnwindSafe(test));
        let ms = start.elapsed().as_millis();
        match verdict {
            Ok(Verdict::Pass) => {
                passed += 1;
                println!("ok       {name} ({ms} ms)");
            }
            Ok(Verdict::Skip(why)) => {
                skipped += 1;
                println!("skipped  {name}: {why}");
            }
            Err(payload) => {
                failed += 1;
                let text = payload
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
                    .unwrap_or_default();
                println!("FAILED   {name} ({ms} ms)\n{text}\n");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
