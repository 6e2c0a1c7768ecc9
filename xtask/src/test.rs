//! `cargo xtask test`: runs all tests on this machine's kernel, and those that need a kernel on the kernels of the matrix.
//!
//! On the host, `cargo test` runs all tests of the workspace. Then the tests that need a kernel (end to end, and the
//! kernel side of `bpf`) run again in two boots of each stock kernel. A guest that crashes by QEMU's fault is booted again and
//! counted. Where guests are not available (no root, no packages), they are reported as skipped, with the reason.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::vm::{Ended, Guest};

/// Test programs that are worth a run in each guest: package, target, and rounds of its generated cases (an emulated CPU is
/// slow). The end-to-end tests come last.
const IN_GUEST: [(&str, &str, u32); 11] = [
    ("check", "translators", 0),
    ("bpf", "bpf", 0),
    ("bpf", "kernel", 0),
    ("bpf", "routines", 0),
    ("bpf", "refusal", 0),
    ("bpf", "big", 60),
    ("bpf", "differential", 25),
    ("exercise", "mutations", 60),
    ("exercise", "programs", 25),
    ("dtrace", "library", 0),
    ("cli", "e2e", 0),
];

/// What runs in one boot of a guest.
#[derive(Clone, Copy)]
enum Part {
    /// The end-to-end tests that the filter names.
    EndToEnd(&'static str),
    /// The other test programs.
    Crates,
}

/// Each kernel is booted once for each of them: the longest first, so that no CPU is idle at the end.
const PARTS: [Part; 2] = [Part::EndToEnd(""), Part::Crates];

/// A boot in which only some end-to-end tests run, because of its kernel command line.
const SPECIAL: [Boot<'static>; 1] = [("6.12", "lockdown=confidentiality", Part::EndToEnd("locked_down"))];

/// Sums of the runners' closing lines.
#[derive(Default)]
struct Sums {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Sums {
    /// Adds what a runner's output says: libtest's "test result:" lines and our own closing line.
    fn add(&mut self, output: &str) {
        for line in output.lines() {
            let closing = line.starts_with("test result:") || is_own_closing(line);
            let number_before = |word: &str| {
                let at = line.find(word).filter(|_| closing)?;
                line[..at].split_whitespace().next_back()?.parse::<u64>().ok()
            };
            self.passed += number_before(" passed").unwrap_or(0);
            self.failed += number_before(" failed").unwrap_or(0);
            self.skipped += number_before(" skipped").unwrap_or(0);
        }
    }
}

fn is_own_closing(line: &str) -> bool {
    line.split_whitespace().nth(1) == Some("passed,")
}

/// A writer that copies its data to the terminal and keeps it.
struct Tee(Vec<u8>);

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        std::io::stdout().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

/// `cargo xtask test [--host|--vm] [KERNEL…]`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let host = !args.iter().any(|a| a == "--vm");
    let vm = !args.iter().any(|a| a == "--host");
    let named: Vec<&str> =
        crate::kernels::NAMES.into_iter().filter(|k| args.iter().any(|a| a == k)).collect();
    let kernels = if named.is_empty() { crate::kernels::NAMES.to_vec() } else { named };
    let mut sums = Sums::default();
    let mut broken = Vec::new();
    if host {
        println!("== this machine's kernel");
        let mut tee = Tee(Vec::new());
        let status =
            passing(Command::new("cargo").args(["test", "--workspace", "--no-fail-fast"]), &mut tee)?;
        sums.add(&String::from_utf8_lossy(&tee.0));
        if !status {
            broken.push("this machine's kernel".to_string());
        }
    }
    let mut deaths = 0;
    if vm {
        // A failed build is an error; a facility that this machine lacks is skipped.
        let programs = guest_programs()?;
        match crate::kernels::fetch(&kernels) {
            Err(why) => {
                println!("skipped: the VM tier: {why}");
                sums.skipped += kernels.len() as u64;
            }
            Ok(()) => {
                let plain = PARTS.into_iter().flat_map(|part| kernels.iter().map(move |k| (*k, "", part)));
                let special = SPECIAL.into_iter().filter(|(k, ..)| kernels.contains(k));
                let boots: Vec<_> = plain.chain(special).collect();
                for (boot, run) in boots.iter().zip(in_guests(&boots, &programs)) {
                    let (ended, died, output) = run?;
                    let kernel = boot.0;
                    deaths += died;
                    sums.add(&output);
                    match ended {
                        Ended::Status(0) => {}
                        Ended::Status(code) => broken.push(format!("kernel {kernel} (status {code})")),
                        Ended::Emulator(console) | Ended::Lost(console) => {
                            println!("{console}");
                            broken.push(format!("kernel {kernel} (no end)"));
                        }
                    }
                }
            }
        }
    }
    if deaths > 0 {
        println!("{deaths} guest(s) died of the emulator's fault and were booted again");
    }
    if !broken.is_empty() {
        println!("failed on: {}", broken.join(", "));
    }
    println!("{} passed, {} failed, {} skipped", sums.passed, sums.failed, sums.skipped);
    Ok(u8::from(!broken.is_empty()))
}

/// Runs a command, its standard output through `tee`; whether it succeeded.
fn passing(command: &mut Command, tee: &mut Tee) -> Result<bool, String> {
    let mut child = command
        .current_dir(crate::root())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(|e| format!("{command:?}: {e}"))?;
    if let Some(mut out) = child.stdout.take() {
        std::io::copy(&mut out, tee).map_err(|e| e.to_string())?;
    }
    child.wait().map(|s| s.success()).map_err(|e| e.to_string())
}

/// What runs in a guest.
struct Programs {
    /// The release binary.
    dtrace: PathBuf,
    /// Each with its rounds.
    tests: Vec<(PathBuf, u32)>,
    /// The end-to-end tests among them.
    e2e: PathBuf,
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
    let mut words = vec!["test", "--no-run", "--message-format=json", "-q"];
    for (package, ..) in IN_GUEST {
        words.extend(["-p", package]);
    }
    let artifacts = cargo(&words)?;
    let mut tests = Vec::new();
    for (package, target, rounds) in IN_GUEST {
        let (manifest, name) = (format!("/{package}/Cargo.toml\""), format!("\"name\":\"{target}\""));
        let path = artifacts
            .lines()
            .filter(|l| l.contains(&manifest) && l.contains(&name))
            .find_map(|l| l.split_once("\"executable\":\"")?.1.split('"').next())
            .ok_or_else(|| format!("cargo built no test {target} of {package}"))?;
        tests.push((path.into(), rounds));
    }
    let e2e = tests.last().map_or_else(PathBuf::new, |(path, _): &(PathBuf, u32)| path.clone());
    Ok(Programs { dtrace: target_dir().join("release/dtrace"), tests, e2e })
}

pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// A boot's kernel, words for its command line, what runs in it.
type Boot<'a> = (&'a str, &'a str, Part);

/// How a boot ended, how many guests died before of the emulator's fault, what was printed.
type Booted = Result<(Ended, u32, String), String>;

/// All boots, as many at once as there are CPUs: an emulated guest keeps one busy. What a guest prints is shown when it
/// has ended, in one piece.
fn in_guests(boots: &[Boot<'_>], programs: &Programs) -> Vec<Booted> {
    let at_once = std::thread::available_parallelism().map_or(1, |n| n.get()).min(boots.len().max(1));
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Booted>>> = boots.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(boot), Some(place)) = (boots.get(i), done.get(i)) else { break };
                    let (mut output, start) = (Vec::new(), Instant::now());
                    let ended = in_guest(*boot, programs, &mut output);
                    let text = String::from_utf8_lossy(&output).into_owned();
                    let what = match boot.2 {
                        Part::EndToEnd(_) => "end to end",
                        Part::Crates => "crates",
                    };
                    println!(
                        "== kernel {} {}: {what}, {} s\n{text}",
                        boot.0,
                        boot.1,
                        start.elapsed().as_secs()
                    );
                    if let Ok(mut place) = place.lock() {
                        *place = Some(ended.map(|(ended, died)| (ended, died, text)));
                    }
                }
            });
        }
    });
    let lost = || Err("a boot was not run".to_owned());
    done.into_iter().map(|d| d.into_inner().ok().flatten().unwrap_or_else(lost)).collect()
}

/// What a guest's shell runs; its status is 1 when a program failed.
fn script(part: Part, programs: &Programs) -> String {
    let mut script = format!("export DTRACE_BIN={}; bad=0\n", programs.dtrace.display());
    let (end_to_end, filter) = match part {
        Part::EndToEnd(filter) => (true, filter),
        Part::Crates => (false, ""),
    };
    for (test, rounds) in programs.tests.iter().filter(|t| (t.0 == programs.e2e) == end_to_end) {
        if *rounds > 0 {
            script.push_str(&format!("ROUNDS={rounds} "));
        }
        script.push_str(&format!("{} --test-threads=1 {filter} || bad=1\n", test.display()));
    }
    script.push_str("exit $bad\n");
    script
}

/// One boot: its test programs, one after the other.
fn in_guest(
    (kernel, words, part): Boot<'_>,
    programs: &Programs,
    output: &mut Vec<u8>,
) -> Result<(Ended, u32), String> {
    let mut guest = Guest::new(kernel);
    guest.append = words.into();
    guest.timeout = 1800;
    guest.cwd = crate::root();
    crate::vm::run(&guest, &["sh".into(), "-c".into(), script(part, programs)], output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_runs_in_one_of_the_boots() {
        let tests = vec![("/t/routines".into(), 0), ("/t/programs".into(), 25), ("/t/e2e".into(), 0)];
        let programs = Programs { dtrace: "/t/dtrace".into(), tests, e2e: "/t/e2e".into() };
        let head = "export DTRACE_BIN=/t/dtrace; bad=0\n";
        assert_eq!(
            script(Part::Crates, &programs),
            format!(
                "{head}/t/routines --test-threads=1  || bad=1\nROUNDS=25 /t/programs --test-threads=1  || bad=1\n\
                 exit $bad\n"
            )
        );
        assert_eq!(
            script(Part::EndToEnd("locked_down"), &programs),
            format!("{head}/t/e2e --test-threads=1 locked_down || bad=1\nexit $bad\n")
        );
    }

    #[test]
    fn closing_lines_of_both_runners_are_added() {
        let mut s = Sums::default();
        s.add("test result: ok. 3 passed; 1 failed; 0 ignored; 0 measured\n5 passed, 2 failed, 7 skipped\nnot passed, no\n");
        assert_eq!((s.passed, s.failed, s.skipped), (8, 3, 7));
    }
}
