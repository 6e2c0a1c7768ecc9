//! The runner of tests that also run in guests, where there is no cargo; and files with answers beside them.
//!
//! A test is a function that returns a [`Verdict`]; a panic is a failure; what this kernel cannot run is skipped with its
//! reason. `PROGRAM [FILTER]` runs the tests whose name holds FILTER. With `--workload WORDS` the program is itself the
//! workload that a test traces.

pub mod elf;
pub mod fuse;
pub mod golden;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

/// How a test ended when it did not fail.
pub enum Verdict {
    /// It does what it should.
    Pass,
    /// This kernel or machine cannot run it: why.
    Skip(String),
}

/// A test: its name and what it does.
pub type Test = (&'static str, fn() -> Verdict);

/// Names the tests of a module.
#[macro_export]
macro_rules! tests {
    ($($name:ident)*) => {
        pub(crate) const TESTS: &[$crate::Test] = &[$((concat!(module_path!(), "::", stringify!($name)), $name),)*];
    };
}

/// True when this process is root's.
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Runs what the command line asks for; `suite` is the name of the whole.
pub fn main(suite: &str, groups: &[&[Test]], workload: fn(&[String]) -> ExitCode) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--workload") {
        return workload(&args[1..]);
    }
    // cargo test passes flags of its own runner; only a plain word is a filter.
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
