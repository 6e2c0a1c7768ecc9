//! End to end: the real binary on the real kernel, against workloads of known size.
//!
//! This is a test target with its own small runner, because it must also run inside a guest, where there is no cargo:
//! `DTRACE_BIN` names the binary there. A test is a function that returns [`Verdict`]; a panic is a failure; what this
//! kernel cannot run is skipped with its reason. `e2e [FILTER]` runs the tests whose name holds FILTER. With
//! `--workload NAME COUNT` the runner is itself the workload that a test traces.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Names the tests of a module.
macro_rules! tests {
    ($($name:ident)*) => {
        pub(crate) const TESTS: &[$crate::Test] = &[$((concat!(module_path!(), "::", stringify!($name)), $name),)*];
    };
}

mod aggregations;
mod basics;
mod command;
mod documents;
mod faults;
mod leaves_nothing;
mod profile;
mod restricted;
mod stability;
mod surroundings;
mod syscalls;
mod targets;
mod tool;
mod variables;
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
    if !tool::is_root() {
        println!("skipped: e2e: tracing needs root");
        println!("0 passed, 0 failed, {} skipped", all().count());
        return ExitCode::SUCCESS;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in all().filter(|(n, _)| n.contains(&filter)) {
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

fn all() -> impl Iterator<Item = Test> {
    let groups: [&[Test]; 12] = [
        basics::TESTS,
        command::TESTS,
        stability::TESTS,
        documents::TESTS,
        variables::TESTS,
        aggregations::TESTS,
        syscalls::TESTS,
        profile::TESTS,
        faults::TESTS,
        targets::TESTS,
        surroundings::TESTS,
        restricted::TESTS,
    ];
    groups.into_iter().flatten().copied().chain(leaves_nothing::TESTS.iter().copied())
}
