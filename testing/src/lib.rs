//! A test runner for tests that also run in guests, where there is no cargo; and golden tests.
//!
//! A test is a function that returns a [`Verdict`]. A panic is a failure. A test that this kernel
//! cannot run is skipped with a reason. The runner has the command line of Rust's own (`--list`,
//! `--exact`, `--skip`), because it is `libtest-mimic`; its tests run one after the other, because
//! each traces the whole machine. With `--workload WORDS`, the program is itself the workload that
//! a test traces.
//!
//! A test of Rust's own runner that cannot run here says so with [`skipped!`]. A test of this
//! runner that fails after the kernel suppressed firings is run again ([`suppressed`]). One that
//! measures its process has a process of its own ([`alone`]).
//!
//! ```text
//!  test e2e::fbt::functions_fire ... ignored (REASON)     a skip of this runner
//!  skipped crate::module::test: REASON                    a skip of a test of Rust's own runner
//!  repeated e2e::fbt::functions_fire: REASON          a test of this runner that is run again
//!  time e2e::fbt::functions_fire 1.234s                   with --report-time
//! ```
//!
//! `cargo xtask test` reads these lines and compares the skips with the lists in `testing/skips`.

pub mod alone;
pub mod dir;
pub mod elf;
mod eventually;
pub mod fuse;
pub mod golden;
pub mod json;
mod leftovers;
pub mod names;
pub mod rng;
pub mod server;
pub mod suppressed;

pub use eventually::{HANG_LIMIT, Poll, eventually};

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

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

/// Gives the signals by which a user ends a command their default actions. A process that was
/// started in the background may ignore them, and what it traces and starts would inherit that. To
/// be called before there is another thread.
pub fn heed_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Starts a program that this process has just written. A process that another thread forked
/// meanwhile holds the file open for writing until it executes its own program, and the kernel
/// executes no such file (`ETXTBSY`).
pub fn start_written(command: &mut std::process::Command) -> std::io::Result<std::process::Child> {
    eventually("the file's closing", HANG_LIMIT, || match command.spawn() {
        Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
        other => Some(other),
    })
}

/// The directory for files that must be in memory: the kernel has their paths in its caches,
/// whatever file system the root is (that of a guest asks a file server).
pub fn memory_dir() -> std::path::PathBuf {
    let dir = std::path::Path::new("/dev/shm");
    if dir.is_dir() { dir.to_path_buf() } else { std::env::temp_dir() }
}

/// The offset of an address of this executable in its file, for user probes.
pub fn offset_in_file(address: u64) -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (number(start)?, number(end)?, number(words.nth(1)?)?);
        (start..end).contains(&address).then(|| address - start + offset)
    })
}

/// The CPU time that a process has used; none if it is gone. How far its work is, whatever else the
/// machine does.
pub fn cpu_time(pid: u32) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the calls write to these two.
    let known = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    if known { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

/// True when this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Reports the calling test as skipped: `skipped!("reason {}", detail)`. The test then returns.
#[macro_export]
macro_rules! skipped {
    ($($reason:tt)+) => {{
        fn place() {}
        $crate::report_skip(std::any::type_name_of_val(&place), format_args!($($reason)+));
    }};
}

/// Prints the line of [`skipped!`]. `place` is the path of a function inside the test.
pub fn report_skip(place: &str, reason: std::fmt::Arguments<'_>) {
    let line = skip_line(place, reason);
    // Not by `println!`, whose text Rust's runner keeps to itself when a test passes.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

fn skip_line(place: &str, reason: std::fmt::Arguments<'_>) -> String {
    let test = place.trim_end_matches("::place").trim_end_matches("::{{closure}}");
    format!("skipped {test}: {}\n", one_line(&reason.to_string()))
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Runs the tests that the command line selects.
pub fn main(groups: &[&[Test]], workload: fn(&[String]) -> ExitCode) -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|a| a == "--workload") {
        return workload(words.get(2..).unwrap_or_default());
    }
    let (mut arguments, report_time) = arguments(words);
    arguments.test_threads = Some(1);
    let times: Times = Arc::default();
    let trials = groups.iter().copied().flatten().map(|t| trial(*t, times.clone())).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if report_time {
        for (name, took) in times.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            println!("time {name} {:.3}s", took.as_secs_f64());
        }
    }
    conclusion.exit_code()
}

/// The arguments of a runner, and whether times are to be reported. `--report-time` is an option of
/// Rust's own runner.
pub fn arguments(mut words: Vec<String>) -> (Arguments, bool) {
    let report_time = words.iter().any(|w| w == "--report-time");
    words.retain(|w| w != "--report-time");
    (Arguments::from_iter(words), report_time)
}

/// How long each test took.
type Times = Arc<Mutex<Vec<(&'static str, Duration)>>>;

fn trial((name, test): Test, times: Times) -> Trial {
    Trial::ignorable_test(name, move || {
        if !is_root() {
            return Ok(Completion::ignored_with("tracing needs root"));
        }
        let start = Instant::now();
        let outcome = repeated(name, test, end_leftovers);
        times.lock().unwrap_or_else(PoisonError::into_inner).push((name, start.elapsed()));
        outcome
    })
}

/// How often a test is run again.
const REPEATS: usize = 3;

/// Runs a test, and runs it again when it fails after the kernel suppressed firings that it does
/// not take into account. `after_failure` is called after each failure.
fn repeated(name: &str, test: fn() -> Verdict, after_failure: fn()) -> Result<Completion, Failed> {
    for _ in 0..REPEATS {
        suppressed::take();
        let outcome = outcome(test);
        let Err(failed) = &outcome else { return outcome };
        after_failure();
        let reports = suppressed::take();
        if reports.is_empty() {
            return outcome;
        }
        println!("{}", repetition(name, &reports, failed));
    }
    outcome(test).inspect_err(|_| after_failure())
}

fn end_leftovers() {
    let left = leftovers::end();
    if left > 0 {
        println!("the test that failed had left processes: {left} killed");
    }
}

fn repetition(name: &str, reports: &[String], failed: &Failed) -> String {
    let (reports, failed) = (reports.join("; "), one_line(failed.message().unwrap_or_default()));
    format!("repeated {name}: {reports}; it failed: {failed}")
}

/// Runs a test. Its panic is its failure, with the place.
fn outcome(test: fn() -> Verdict) -> Result<Completion, Failed> {
    let place = Arc::new(Mutex::new(String::new()));
    let noted = place.clone();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = info.location() {
            *noted = format!("{at}: ");
        }
    }));
    let verdict = catch_unwind(AssertUnwindSafe(test));
    std::panic::set_hook(hook);
    match verdict {
        Ok(Verdict::Pass) => Ok(Completion::Completed),
        Ok(Verdict::Skip(why)) => Ok(Completion::ignored_with(one_line(&why))),
        Err(payload) => {
            let text = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_default();
            let place = place.lock().unwrap_or_else(PoisonError::into_inner);
            Err(format!("{place}{text}").into())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_skip_is_reported_in_one_line_with_the_path_of_its_test() {
        let inside = || {
            fn place() {}
            skip_line(std::any::type_name_of_val(&place), format_args!("no {}\n  or so\n", "BTF"))
        };
        let line = "skipped testing::tests::a_skip_is_reported_in_one_line_with_the_path_of_its_test: no BTF; or so\n";
        assert_eq!(inside(), line);
    }

    /// Runs a test of `repeated` alone: what is noted is global.
    fn runs(test: fn() -> Verdict) -> (bool, usize) {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        RUNS.store(0, Ordering::Relaxed);
        (repeated("a::test", test, || ()).is_ok(), RUNS.load(Ordering::Relaxed))
    }

    static RUNS: AtomicUsize = AtomicUsize::new(0);
    const REPORT: &str = "dtrace: up to 3 firings of syscall_entry suppressed by the kernel\n";

    #[test]
    fn a_test_is_repeated_only_when_it_fails_after_a_report_of_suppressed_firings() {
        assert_eq!(
            runs(|| {
                suppressed::note_messages("dtrace: 5 drops on CPU 0\n");
                panic!("{}", RUNS.fetch_add(1, Ordering::Relaxed))
            }),
            (false, 1)
        );
        assert_eq!(
            runs(|| {
                suppressed::note_messages(REPORT);
                assert!(RUNS.fetch_add(1, Ordering::Relaxed) == 2);
                Verdict::Pass
            }),
            (true, 3)
        );
        // It fails always.
        assert_eq!(
            runs(|| {
                suppressed::note_messages(REPORT);
                panic!("{}", RUNS.fetch_add(1, Ordering::Relaxed))
            }),
            (false, 4)
        );
        // It has taken the report into account.
        assert_eq!(
            runs(|| {
                suppressed::note_messages(REPORT);
                let missing = suppressed::count(REPORT, "");
                panic!("{missing} {}", RUNS.fetch_add(1, Ordering::Relaxed))
            }),
            (false, 1)
        );
        let line = repetition("a::b", &["up to 3".into()], &Failed::from("left: 1\n right: 2"));
        assert_eq!(line, "repeated a::b: up to 3; it failed: left: 1; right: 2");
    }

    #[test]
    fn the_cpu_time_of_a_process_grows_while_it_works_and_is_none_when_it_is_gone() {
        let before = cpu_time(std::process::id());
        eventually("some work", HANG_LIMIT, || cpu_time(std::process::id()) > before);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(cpu_time(pid), Duration::ZERO);
    }

    #[test]
    fn a_panic_is_a_failure_with_its_place_and_a_skip_has_its_reason() {
        let failed = outcome(|| panic!("five {}", 5));
        let Err(failed) = failed else { panic!("passed") };
        let text = failed.message().unwrap();
        assert!(text.starts_with("testing/src/lib.rs:") && text.ends_with(": five 5"), "{text}");
        assert!(matches!(outcome(|| Verdict::Pass), Ok(Completion::Completed)));
        let Ok(Completion::Ignored { reason }) = outcome(|| Verdict::Skip("no\nclock".into())) else {
            panic!("not skipped")
        };
        assert_eq!(reason.as_deref(), Some("no; clock"));
    }
}
