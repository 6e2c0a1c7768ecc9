//! Runs the targets under `fuzz/` without libFuzzer: `cargo xtask fuzz` builds and starts it.
//!
//! ```text
//!  fuzz --seconds N [--seed S] [--jobs J] [TARGET…]     each target for so long
//!  fuzz --case FILE TARGET                              one stored input
//!
//!  this process ── one process a target ──► make an input ─► note it in shared memory ─► run ─► judge ─┐
//!       │                   ▲                    ▲                                                     │
//!       │                   └── the next one     └────────────── new code was reached (--features guided)
//!       └ reads what the process ran when it died or hung
//! ```
//!
//! The main design decision: no compiler of tomorrow, and no tool besides cargo. So inputs are real
//! files, changed; and what a sanitizer or libFuzzer would watch is watched here: panics, the
//! memory that an input takes ([`limits`]), its CPU time, the death of the process, and whether it
//! goes on. With counters of coverage compiled in, which stable compilers have, an input that
//! reaches new code becomes the beginning of others.
//!
//! What fails is made smaller and stored under `fuzz/cases`, which an ordinary test runs from then
//! on.

// A target fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// A target has the sessions too, by a path of its own.
#![allow(clippy::duplicate_mod)]

// The targets of the fuzzer call the macro by this name.
extern crate exercise as libfuzzer_sys;

#[cfg(feature = "guided")]
mod coverage;
mod limits;
#[path = "../../../fuzz/targets.rs"]
mod list;
mod seeds;
mod shared;
mod worker;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use exercise::fuzz::Target;
use exercise::fuzz::case::Case;
use list::TARGETS;
use shared::SharedMemory;

#[global_allocator]
static MEMORY: limits::Counting = limits::Counting;

/// An input that takes this long, on a machine that is as busy as may be, never ends.
const HANGS: Duration = Duration::from_secs(120);
/// The most findings of a target in one run.
const MOST: usize = 20;

/// The top directory of the repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn target_named(name: &str) -> Result<Target, String> {
    let found = TARGETS.iter().find(|(n, _)| *n == name);
    found.map(|(_, target)| *target).ok_or_else(|| {
        let all: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        format!("no target {name}; there are {}", all.join(", "))
    })
}

/// Stores a case. Returns its path.
fn store(target: &str, case: &Case) -> Result<PathBuf, String> {
    let text = case.text();
    let sum = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, b| (sum ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let dir = root().join("fuzz/cases").join(target);
    let path = dir.join(format!("{sum:016x}"));
    let stored = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, text));
    stored.map_err(|e| format!("{}: {e}", path.display())).map(|()| path)
}

/// What a run of a target has shown.
#[derive(Default)]
struct Outcome {
    inputs: u64,
    cpu: Duration,
    findings: Vec<String>,
}

/// What all targets share.
struct Campaign {
    seconds: f64,
    seed: u64,
    dir: PathBuf,
}

impl Campaign {
    /// Runs a target in processes of its own, one after the other until the time is over.
    fn run(&self, name: &str) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let shared = SharedMemory::create(&self.dir.join(name))?;
        let begun = Instant::now();
        let mut part = 0;
        loop {
            let left = self.seconds - begun.elapsed().as_secs_f64();
            if part > 0 && (left <= 0.0 || outcome.findings.len() >= MOST) {
                return Ok(outcome);
            }
            shared.begin();
            let numbers = [self.seed.wrapping_add(part << 32).to_string(), left.max(0.1).to_string()];
            let me = std::env::current_exe().map_err(|e| e.to_string())?;
            let mut child = Command::new(me)
                .args(["--worker", name, &numbers[0], &numbers[1]])
                .arg(&self.dir)
                .env("LLVM_PROFILE_FILE", "/dev/null")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|e| format!("{name}: {e}"))?;
            let (mut last, mut since) = (shared.count(), Instant::now());
            let (status, hung) = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break (Some(status), false),
                    Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                    Err(e) => return Err(format!("{name}: {e}")),
                }
                if shared.count() != last {
                    (last, since) = (shared.count(), Instant::now());
                }
                if since.elapsed() > HANGS {
                    let _ = child.kill();
                    let _ = child.wait();
                    break (None, true);
                }
            };
            outcome.inputs += shared.count();
            outcome.cpu += shared.cpu();
            let said = child.stdout.take().map(std::io::read_to_string);
            outcome.findings.extend(
                said.into_iter()
                    .flatten()
                    .flat_map(|text| text.lines().map(String::from).collect::<Vec<_>>()),
            );
            if !status.is_some_and(|status| status.success()) {
                let case = shared.case().unwrap_or_default();
                let path = store(name, &case)?;
                let how = if hung { "did not end".into() } else { format!("{status:?}") };
                outcome.findings.push(format!("{name}: the process {how}: {}", path.display()));
            }
            part += 1;
        }
    }
}

fn run_all(arguments: &[String]) -> Result<ExitCode, String> {
    let (mut seconds, mut seed, mut jobs, mut names) = (5.0, None, None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let not_number = |e: &dyn std::fmt::Display| format!("{word}: {e}");
        match word.as_str() {
            "--seconds" => seconds = value()?.parse().map_err(|e| not_number(&e))?,
            "--seed" => seed = Some(value()?.parse().map_err(|e| not_number(&e))?),
            "--jobs" => jobs = Some(value()?.parse::<usize>().map_err(|e| not_number(&e))?),
            name => {
                target_named(name)?;
                names.push(name.to_owned());
            }
        }
    }
    if names.is_empty() {
        names = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    let by_clock = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as u64 >> 10 & u64::from(u32::MAX))
    };
    let seed = seed.unwrap_or_else(by_clock);
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let dir = std::env::temp_dir().join(format!("dtrace-fuzz-{}", std::process::id()));
    seeds::Programs::compile(&dir.join("programs"));
    let campaign = Campaign { seconds, seed, dir: dir.clone() };
    println!("seed {seed}: {} targets, {seconds} s each", names.len());
    let queue: Mutex<VecDeque<String>> = Mutex::new(names.iter().cloned().collect());
    let total = Mutex::new((0u64, Vec::<String>::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(name) = queue.lock().ok().and_then(|mut queue| queue.pop_front()) {
                    let outcome = campaign.run(&name);
                    let Ok(mut total) = total.lock() else { return };
                    match outcome {
                        Ok(outcome) => {
                            let (inputs, cpu) = (outcome.inputs, outcome.cpu.as_secs_f64());
                            let found = outcome.findings.len();
                            println!(
                                "{name:12} {inputs:>9} inputs in {cpu:>6.1} s of CPU time, {found} findings"
                            );
                            outcome.findings.iter().for_each(|finding| println!("  {finding}"));
                            total.0 += inputs;
                            total.1.extend(outcome.findings);
                        }
                        Err(why) => total.1.push(why),
                    }
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(dir);
    let (inputs, findings) = total.into_inner().unwrap_or_default();
    println!("{inputs} inputs, {} findings (--seed {seed})", findings.len());
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

/// Runs a stored input with all that it prints.
fn replay(path: &str, target: &str) -> Result<ExitCode, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let case = Case::parse(&text).ok_or_else(|| format!("{path}: no case"))?;
    match worker::judge(&case, target_named(target)?) {
        Some(failure) => {
            println!("{failure}");
            Ok(ExitCode::FAILURE)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn main() -> ExitCode {
    // A second instance of this program would be the reader of symbols; none is started here.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--worker", name, seed, seconds, dir] => worker::run(name, seed, seconds, Path::new(dir)),
        ["--case", path, target] => replay(path, target),
        _ => run_all(&arguments),
    };
    done.unwrap_or_else(|why| {
        eprintln!("fuzz: {why}");
        ExitCode::FAILURE
    })
}
