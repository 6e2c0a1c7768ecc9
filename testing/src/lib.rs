//! A test runner for tests that also run in guests, where there is no cargo; and golden tests.
//!
//! A test is a function that returns a [`Verdict`]. A panic is a failure. A test that this kernel
//! cannot run is skipped with a reason. `PROGRAM [FILTER]` runs the tests whose names contain
//! FILTER. With `--workload WORDS`, the program is itself the workload that a test traces.

pub mod elf;
pub mod fuse;
pub mod golden;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

/// The result of a test that did not fail.
pub enum Verdict {
    /// The test passed.
    Pass,
    /// This kernel or machine cannot run the test, for this reason.
    Skip(String),
}

/// A test: its name and its function.
pub type Test = (&'static str, fn() -> Verdict);

/// Defines the list of tests of a module.
#[macro_export]
macro_rules! tests {
    ($($name:ident)*) => {
        pub(crate) const TESTS: &[$crate::Test] = &[$((concat!(module_path!(), "::", stringify!($name)), $name),)*];
    };
}

/// True when this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Runs the tests that the command line selects. `suite` is the name of the test program.
pub fn main(suite: &str, groups: &[&[Test]], workload: fn(&[String]) -> ExitCode) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--workload") {
        return workload(&args[1..]);
    }
    // cargo test passes flags of its own runner. Only an argument without a dash is a filter.
    let filter = args.iter().find(|a| !a.starts_with('-')).cloned().unwrap_or_default();
    if args.iter().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let tests = groups.iter().copied().flatten().filter(|t| t.0.contains(&filter));
    if !is_root() {
        println!("skipped: {suite}: tracing needs root");
        println!("0 passed, 0 failed, {} skipped", tests.count());
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
