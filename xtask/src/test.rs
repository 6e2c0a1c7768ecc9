//! `cargo xtask test`: runs all tests on this machine's kernel, and those that need a kernel on the kernels of the matrix.
//!
//! On the host, `cargo test` runs all tests of the workspace. The tests that need a kernel (end to end, and the kernel side of
//! the `bpf-*` crates) run in three boots of each stock kernel, one boot at a time until the host is done. A guest whose kernel
//! dies is booted again once and counted, because QEMU's faults look the same; the end-to-end tests that passed in the dead
//! guest are not run again. Most end-to-end tests run in the guest of one kernel at most, and with `DTRACE_MATRIX=all` in each. Without
//! root, guests are not available: they are reported as skipped, with the reason. As root, kernels that cannot be fetched fail
//! the run; `--host` leaves the guests out.
//!
//! A few tests that failed on a machine are run again, alone: on the host when all guests have ended, for a guest in another
//! boot. If all of them pass, they have passed, and the end of the run names each with why it failed: the CPUs of a virtual
//! machine, emulated or not, can be taken away for seconds.
//!
//! The run also fails when a test fails, when a boot runs no test, when a test is skipped that is not expected to be ([`skips`]), and when a guest's kernel
//! log has a fault. It ends with its duration by part and its slowest tests.

mod host;
mod report;
mod skips;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use self::host::Host;
use self::report::Report;
use self::skips::Expected;
use crate::vm::{Ended, Guest};

/// A test program that is worth a run in each guest.
struct GuestProgram {
    package: &'static str,
    target: &'static str,
    /// Rounds of its generated cases: an emulated CPU is slow, and the host runs hundreds.
    rounds: u32,
    /// The beginning of the names of its tests that ask nothing of the kernel, if there are slow ones.
    skip: &'static str,
}

const fn program(package: &'static str, target: &'static str, rounds: u32) -> GuestProgram {
    GuestProgram { package, target, rounds, skip: "" }
}

/// The end-to-end tests come last.
const IN_GUEST: [GuestProgram; 15] = [
    // The end-to-end tests load the same members there.
    GuestProgram { package: "check", target: "translators", rounds: 0, skip: "every_member_of_every" },
    program("files", "files", 0),
    GuestProgram { package: "proc", target: "proc", rounds: 0, skip: "watcher::table::tests" },
    program("bpf-sys", "bpf_sys", 0),
    program("bpf-sys", "kernel", 0),
    program("text", "kernel", 0),
    program("bpf-runtime", "routines", 0),
    program("bpf-runtime", "refusal", 0),
    program("bpf-runtime", "unwind", 0),
    program("bpf-runtime", "big", 30),
    program("bpf-runtime", "differential", 6),
    program("exercise", "mutations", 10),
    program("exercise", "programs", 6),
    program("dtrace", "library", 0),
    program("cli", "e2e", 0),
];

/// What runs in one boot of a guest.
#[derive(Clone, Copy)]
enum Part {
    /// The end-to-end tests that the filter names.
    EndToEnd(&'static str),
    /// The end-to-end tests of this half, 1 or 2.
    Half(u8),
    /// The other test programs.
    Crates,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::EndToEnd(_) => "end to end",
            Part::Half(1) => "end to end, first half",
            Part::Half(_) => "end to end, second half",
            Part::Crates => "crates",
        }
    }
}

/// Each kernel is booted once for each of them. The end-to-end tests come when this machine has compiled their programs
/// ([`crate::compilers`]), and in halves, so that no CPU is idle for long at the end.
const PARTS: [Part; 3] = [Part::Crates, Part::Half(1), Part::Half(2)];

/// A boot in which only some end-to-end tests run, because of its kernel command line.
const SPECIAL: [Boot<'static>; 1] = [("6.12", "lockdown=confidentiality", Part::EndToEnd("locked_down"))];

/// How many of the slowest tests are printed.
const SLOWEST: usize = 20;

/// How many lines of a failed test are printed again at the end.
const FAILURE_LINES: usize = 30;

/// What has been run: sums, breaches, times.
#[derive(Default)]
struct Run {
    /// Write the lists of skips anew instead of comparing.
    update: bool,
    passed: i64,
    failed: u64,
    skipped: u64,
    /// Tests that were run again, with their machine and the reason.
    repeated: Vec<String>,
    /// Tests that failed, with their machine, and the first lines of why.
    failures: Vec<String>,
    /// What makes the run fail.
    broken: Vec<String>,
    /// Each part with its time.
    parts: Vec<(String, Duration)>,
    /// Each test with its machine and seconds.
    times: Vec<(f64, String)>,
}

impl Run {
    fn add(&mut self, machine: &str, report: &Report) {
        self.passed += report.passed;
        self.failed += report.failed;
        self.skipped += report.skips.len() as u64;
        self.repeated.extend(report.repeated.iter().map(|line| format!("{machine}  {line}")));
        self.failures.extend(report.failures.iter().map(|f| {
            let text = f.text.iter().take(FAILURE_LINES).map(|l| format!("\n    {l}"));
            format!("{machine}  {}:{}", f.test, text.collect::<String>())
        }));
        self.times.extend(report.times.iter().map(|(test, s)| (*s, format!("{machine}  {test}"))));
    }

    /// Notes that no guest can run. Root can install what they need: then it is a failure.
    fn without_guests(&mut self, why: &str, root: bool, kernels: usize) {
        if root {
            self.broken
                .push(format!("the guests' kernels and programs cannot be fetched (--host: without): {why}"));
            return;
        }
        println!("skipped: the VM tier: not root: {why}");
        self.skipped += kernels as u64;
    }

    /// Compares the skips of a whole run on a machine with the machine's list.
    fn judge(&mut self, list: &Expected, report: &Report) -> Result<(), String> {
        if self.update {
            return Expected::update(&list.name, report);
        }
        for breach in list.breaches(report) {
            self.broken.push(format!("testing/skips/{}: {breach}", list.name));
        }
        Ok(())
    }

    /// The closing lines.
    fn print(&mut self) {
        println!("duration by part");
        for (part, took) in &self.parts {
            println!("  {:>5} s  {part}", took.as_secs());
        }
        println!("slowest tests");
        self.times.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (seconds, test) in self.times.iter().take(SLOWEST) {
            println!("  {seconds:>7.1} s  {test}");
        }
        for failure in &self.failures {
            println!("failed test: {failure}");
        }
        for line in &self.repeated {
            println!("repeated: {line}");
        }
        for what in &self.broken {
            println!("failed: {what}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
    }
}

/// What may be given besides kernels.
const OPTIONS: [&str; 3] = ["--host", "--vm", "--update-skips"];

/// `cargo xtask test [--host|--vm] [--update-skips] [KERNEL…]`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let given = |option: &str| args.iter().any(|a| a == option);
    let known =
        |word: &&String| OPTIONS.contains(&word.as_str()) || crate::kernels::NAMES.contains(&word.as_str());
    if let Some(word) = args.iter().find(|word| !known(word)) {
        return Err(format!("test: {word} is no kernel of the matrix and none of {}", OPTIONS.join(", ")));
    }
    let named: Vec<&str> = crate::kernels::NAMES.into_iter().filter(|k| given(k)).collect();
    let kernels = if named.is_empty() { crate::kernels::NAMES.to_vec() } else { named };
    let mut run = Run { update: given("--update-skips"), ..Run::default() };
    crate::compilers::link()?;
    let (host, vm, start) = (!given("--vm"), !given("--host"), Instant::now());
    // The tests here leave a CPU idle for most of their time.
    let host_runs = AtomicBool::new(host);
    let (host, vm) = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let result = if host { Host::run_tests().map(Some) } else { Ok(None) };
            host_runs.store(false, Ordering::Relaxed);
            result
        });
        let vm = if vm { Guests::run_tests(&kernels, &host_runs).map(Some) } else { Ok(None) };
        (host.join().unwrap_or_else(|_| Err("the thread of the tests here has panicked".into())), vm)
    });
    if let Some(mut host) = host? {
        host.repeat_failures()?;
        host.add_to(&mut run)?;
    }
    if let Some(vm) = vm? {
        vm.add_to(&mut run)?;
    }
    run.parts.push(("all".into(), start.elapsed()));
    run.print();
    Ok(u8::from(!run.broken.is_empty()))
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// The tests that need a kernel, on the kernels of the matrix.
struct Guests<'a> {
    programs: Programs,
    /// The time that this took.
    built: Duration,
    /// Each with how it ended, or why there are none.
    boots: Result<Vec<Outcome<'a>>, String>,
    kernels: usize,
}

impl<'a> Guests<'a> {
    /// Builds the programs and runs them. A failed build is an error; guests that this machine cannot run are no error.
    fn run_tests(kernels: &[&'a str], host_runs: &AtomicBool) -> Result<Guests<'a>, String> {
        let start = Instant::now();
        let programs = guest_programs()?;
        let built = start.elapsed();
        let boots = crate::kernels::fetch(kernels).map(|()| {
            let plain = PARTS.into_iter().flat_map(|part| kernels.iter().map(move |k| (*k, "", part)));
            let special = SPECIAL.into_iter().filter(|(k, ..)| kernels.contains(k));
            let boots: Vec<Boot<'a>> = plain.chain(special).collect();
            let booted = in_guests(&boots, &programs, host_runs);
            boots.into_iter().zip(booted).collect()
        });
        Ok(Guests { programs, built, boots, kernels: kernels.len() })
    }

    /// Adds the results to the run, and compares the skips with those that are expected of each guest.
    fn add_to(self, run: &mut Run) -> Result<(), String> {
        run.parts.push(("building for the guests".into(), self.built));
        let boots = match self.boots {
            Ok(boots) => boots,
            Err(why) => {
                run.without_guests(&why, is_root(), self.kernels);
                return Ok(());
            }
        };
        // By list: the reports of its boots; `None` when one has no end, so that skips are missing.
        let mut machines: Vec<(&str, Option<Report>)> = Vec::new();
        let mut deaths = 0;
        for ((kernel, words, part), booted) in boots {
            let Booted { ended, died, report, took } = booted?;
            let name = format!("kernel {kernel} {words}: {}", part.name());
            deaths += u32::from(died);
            run.add(kernel, &report);
            run.parts.push((name.clone(), took));
            let list = if words.is_empty() { kernel } else { "lockdown" };
            if !machines.iter().any(|(name, _)| *name == list) {
                machines.push((list, Some(Report::default())));
            }
            let sum = machines.iter_mut().find(|(name, _)| *name == list).map(|(_, sum)| sum);
            let ends = matches!(ended, Ended::Status(_) | Ended::Kernel(_));
            match sum {
                Some(Some(sum)) if ends => sum.add(&report),
                Some(sum) => *sum = None,
                None => {}
            }
            match ended {
                Ended::Status(0) => {
                    run.broken
                        .extend(self.programs.missing(part, &report).map(|why| format!("{name}: {why}")));
                }
                Ended::Status(code) => run.broken.push(format!("{name} (status {code})")),
                Ended::Kernel(findings) => {
                    println!("{findings}");
                    run.broken.push(format!("{name}: faults in the kernel's log"));
                }
                // Its console has been printed.
                Ended::Died(_) => run.broken.push(format!("{name} (two guests died)")),
                Ended::Lost(console) => {
                    println!("{console}");
                    run.broken.push(format!("{name} (no end)"));
                }
            }
        }
        for (name, report) in &machines {
            if let Some(report) = report {
                run.judge(&Expected::load(name)?, report)?;
            }
        }
        if deaths > 0 {
            println!(
                "{deaths} guest(s) died and were booted again: their consoles follow \"vm: the guest died\""
            );
        }
        Ok(())
    }
}

/// A built test program.
type TestProgram = (PathBuf, &'static GuestProgram);

/// What runs in a guest.
struct Programs {
    /// The release binary.
    dtrace: PathBuf,
    /// The path of each, with its options.
    tests: Vec<TestProgram>,
    /// The end-to-end tests among them.
    e2e: PathBuf,
}

impl Programs {
    /// Those that run in a part.
    fn of(&self, part: Part) -> impl Iterator<Item = &TestProgram> {
        let end_to_end = !matches!(part, Part::Crates);
        self.tests.iter().filter(move |t| (t.0 == self.e2e) == end_to_end)
    }

    /// Why a boot that ended well did not run all its tests.
    fn missing(&self, part: Part, report: &Report) -> Option<String> {
        let run = self.of(part).count();
        if report.programs != run {
            return Some(format!("{} of {run} test programs ended", report.programs));
        }
        (report.without_tests > 0).then(|| format!("{} test programs ran no test", report.without_tests))
    }
}

/// Builds the release binary and the test programs.
fn guest_programs() -> Result<Programs, String> {
    let cargo = |words: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(words).current_dir(crate::root());
        command.stderr(std::process::Stdio::inherit());
        let out = command.output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if out.status.success() { Ok(text) } else { Err(format!("cargo {} failed", words.join(" "))) }
    };
    cargo(&["build", "--release", "-q", "-p", "cli"])?;
    // All packages, as for the tests here: with fewer, features of dependencies differ, and everything is built twice.
    let artifacts = cargo(&["test", "--workspace", "--no-run", "--message-format=json", "-q"])?;
    let mut tests = Vec::new();
    for program in &IN_GUEST {
        let GuestProgram { package, target, .. } = program;
        let (manifest, name) = (format!("/{package}/Cargo.toml\""), format!("\"name\":\"{target}\""));
        let path = artifacts
            .lines()
            .filter(|l| l.contains(&manifest) && l.contains(&name))
            .find_map(|l| l.split_once("\"executable\":\"")?.1.split('"').next())
            .ok_or_else(|| format!("cargo built no test {target} of {package}"))?;
        tests.push((path.into(), program));
    }
    let e2e = tests.last().map_or_else(PathBuf::new, |(path, _): &(PathBuf, _)| path.clone());
    Ok(Programs { dtrace: target_dir().join("release/dtrace"), tests, e2e })
}

pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// A boot's kernel, words for its command line, what runs in it.
type Boot<'a> = (&'a str, &'a str, Part);

/// A boot with how it ended, or why it did not take place.
type Outcome<'a> = (Boot<'a>, Result<Booted, String>);

/// How a boot ended.
struct Booted {
    ended: Ended,
    /// A guest died, and this is the second one.
    died: bool,
    report: Report,
    took: Duration,
}

/// All boots, as many at once as there are CPUs: an emulated guest keeps one busy. While the tests run here, one fewer. What
/// a guest prints is shown when it has ended, in one piece.
fn in_guests(boots: &[Boot<'_>], programs: &Programs, host_runs: &AtomicBool) -> Vec<Result<Booted, String>> {
    let at_once = std::thread::available_parallelism().map_or(1, |n| n.get());
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<Booted, String>>>> = boots.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for number in 0..at_once {
            let (next, done) = (&next, &done);
            scope.spawn(move || {
                while number + 1 == at_once && host_runs.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                }
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(boot), Some(place)) = (boots.get(i), done.get(i)) else { break };
                    let (mut output, start) = (Vec::new(), Instant::now());
                    let booted = in_guest(*boot, programs, &mut output);
                    let took = start.elapsed();
                    let ((kernel, words, part), output) = (boot, String::from_utf8_lossy(&output));
                    println!("== kernel {kernel} {words}: {}, {} s\n{output}", part.name(), took.as_secs());
                    if let Ok(mut place) = place.lock() {
                        let of = |(ended, died, report)| Booted { ended, died, report, took };
                        *place = Some(booted.map(of));
                    }
                }
            });
        }
    });
    let lost = || Err("a boot was not run".to_owned());
    done.into_iter().map(|d| d.into_inner().ok().flatten().unwrap_or_else(lost)).collect()
}

/// The options of test programs in a guest.
const WORDS: &str = "--test-threads=1 -Zunstable-options --report-time";

/// What a guest's shell runs, without the end-to-end tests that are `done`; its status is 1 when a program failed.
fn script(part: Part, programs: &Programs, done: &[String]) -> String {
    let filter = match part {
        Part::EndToEnd(filter) => filter,
        Part::Half(_) | Part::Crates => "",
    };
    script_of(
        part,
        programs,
        programs.of(part).map(|test| {
            let mut words = filter.to_owned();
            if !test.1.skip.is_empty() {
                words.push_str(&format!(" --skip {}", test.1.skip));
            }
            if !done.is_empty() {
                words.push_str(" --exact");
                done.iter().for_each(|name| words.push_str(&format!(" --skip {name}")));
            }
            (test, words)
        }),
    )
}

/// The same for some tests by their names, each in a process of its own. Programs that have no such test run none.
fn script_of_tests(part: Part, programs: &Programs, names: &[String]) -> String {
    let each =
        names.iter().flat_map(|name| programs.of(part).map(move |test| (test, format!("--exact {name}"))));
    script_of(part, programs, each)
}

/// The script for programs, each with the words that select its tests.
fn script_of<'a>(
    part: Part,
    programs: &Programs,
    tests: impl Iterator<Item = (&'a TestProgram, String)>,
) -> String {
    let dtrace = programs.dtrace.display();
    // As on this machine: see `host`.
    let each = if std::env::var_os("DTRACE_MATRIX").is_some_and(|which| which == "all") {
        " DTRACE_MATRIX=all"
    } else {
        ""
    };
    let half = if let Part::Half(number) = part { format!(" DTRACE_HALF={number}") } else { String::new() };
    let compilers = crate::compilers::dir();
    let mut script = format!(
        "export DTRACE_BIN={dtrace} RUSTC_BOOTSTRAP=1{each}{half} PATH={}:$PATH; bad=0\n{dtrace} -vV\n",
        compilers.display()
    );
    for ((path, GuestProgram { rounds, .. }), words) in tests {
        if *rounds > 0 {
            script.push_str(&format!("ROUNDS={rounds} "));
        }
        script.push_str(&format!("{} {WORDS} {words} || bad=1\n", path.display()));
    }
    script.push_str("exit $bad\n");
    script
}

/// The report of the tests that need not run again after their guest died, and their names. A filter and `--exact` do not go
/// together, and of Rust's own runner no program would be left: there, all run again.
fn done(part: Part, dead: Option<&str>) -> (Report, Vec<String>) {
    match (part, dead) {
        (Part::Half(_), Some(dead)) => Report::of_killed_program(dead),
        _ => Default::default(),
    }
}

/// One boot: its test programs, one after the other. Also whether a guest died before.
fn in_guest(
    (kernel, words, part): Boot<'_>,
    programs: &Programs,
    output: &mut Vec<u8>,
) -> Result<(Ended, bool, Report), String> {
    let mut guest = Guest::new(kernel);
    guest.append = words.into();
    // Six times what a boot takes on two CPUs.
    guest.timeout = 1500;
    guest.cwd = crate::root();
    let command =
        |dead: Option<&str>| vec!["sh".into(), "-c".into(), script(part, programs, &done(part, dead).1)];
    let mut ran = crate::vm::run(&guest, output, &command)?;
    let mut report = Report::read(&ran.output);
    report.add(&done(part, ran.dead.as_deref()).0);
    let names = report.to_repeat();
    if matches!(ran.ended, Ended::Status(1)) && !names.is_empty() {
        writeln!(output, "== again: {}", names.join(" ")).map_err(|e| e.to_string())?;
        let again = script_of_tests(part, programs, &names);
        let second = crate::vm::run(&guest, output, &|_| vec!["sh".into(), "-c".into(), again.clone()])?;
        match second.ended {
            Ended::Status(0) => report.repeat(&Report::read(&second.output)),
            Ended::Status(_) => {}
            // What the kernel did is told.
            ended => ran.ended = ended,
        }
        if report.failed == 0 {
            ran.ended = Ended::Status(0);
        }
    }
    Ok((ran.ended, ran.dead.is_some(), report))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> Programs {
        const ROUTINES: GuestProgram = GuestProgram { skip: "table::tests", ..program("t", "routines", 0) };
        const PROGRAMS: GuestProgram = program("t", "programs", 25);
        const E2E: GuestProgram = program("t", "e2e", 0);
        let tests = [("/t/routines", &ROUTINES), ("/t/programs", &PROGRAMS), ("/t/e2e", &E2E)];
        let tests = tests.map(|(path, program)| (path.into(), program)).into();
        Programs { dtrace: "/t/dtrace".into(), tests, e2e: "/t/e2e".into() }
    }

    #[test]
    fn kernels_that_root_cannot_fetch_fail_the_run() {
        let mut run = Run::default();
        run.without_guests("no network", false, 3);
        assert_eq!((run.broken.len(), run.skipped), (0, 3));
        run.without_guests("no network", true, 3);
        assert_eq!((run.broken.len(), run.skipped), (1, 3));
    }

    #[test]
    fn a_program_that_ran_no_test_fails_the_run() {
        let programs = programs();
        let of = |passed: &[u32]| {
            let closing =
                |n: &u32| format!("test result: ok. {n} passed; 0 failed; 0 ignored; 9 filtered out\n");
            Report::read(&passed.iter().map(closing).collect::<String>())
        };
        assert_eq!(programs.missing(Part::Crates, &of(&[3, 1])), None);
        assert_eq!(programs.missing(Part::Half(1), &of(&[3])), None);
        for few in [&[3, 0][..], &[3]] {
            assert!(programs.missing(Part::Crates, &of(few)).is_some());
        }
        assert!(programs.missing(Part::EndToEnd("locked_down"), &of(&[0])).is_some());
    }

    #[test]
    fn each_program_runs_in_one_of_the_boots() {
        let programs = programs();
        let compilers = crate::compilers::dir();
        let head = format!(
            "export DTRACE_BIN=/t/dtrace RUSTC_BOOTSTRAP=1 PATH={}:$PATH; bad=0\n/t/dtrace -vV\n",
            compilers.display()
        );
        assert_eq!(
            script(Part::Crates, &programs, &[]),
            format!(
                "{head}/t/routines {WORDS}  --skip table::tests || bad=1\nROUNDS=25 /t/programs {WORDS}  || bad=1\nexit $bad\n"
            )
        );
        assert_eq!(
            script(Part::EndToEnd("locked_down"), &programs, &[]),
            format!("{head}/t/e2e {WORDS} locked_down || bad=1\nexit $bad\n")
        );
    }

    #[test]
    fn a_test_that_is_run_again_is_looked_for_in_each_program_of_its_part() {
        let script = script_of_tests(Part::Crates, &programs(), &["a::b".into(), "c".into()]);
        let of = |name: &str| {
            format!(
                "/t/routines {WORDS} --exact {name} || bad=1\nROUNDS=25 /t/programs {WORDS} --exact {name} || bad=1\n"
            )
        };
        assert!(script.ends_with(&format!("{}{}exit $bad\n", of("a::b"), of("c"))), "{script}");
    }

    #[test]
    fn tests_that_passed_in_a_guest_that_died_are_not_run_again() {
        let programs = programs();
        let dead = "test e2e::a::passes ... ok\ntest e2e::a::fails ... FAILED\ntest e2e::a::dies ... ";
        let (report, names) = done(Part::Half(2), Some(dead));
        assert_eq!(report.passed, 1);
        let script = script(Part::Half(2), &programs, &names);
        assert!(script.contains(" DTRACE_HALF=2 "), "{script}");
        assert!(
            script.contains(&format!("/t/e2e {WORDS}  --exact --skip e2e::a::passes || bad=1\n")),
            "{script}"
        );
        for (part, dead) in [(Part::Crates, Some(dead)), (Part::Half(1), None)] {
            assert!(done(part, dead).1.is_empty());
        }
    }
}
