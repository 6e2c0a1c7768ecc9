//! Faults that a test may have, each injected for real: the runner reports that one test and
//! finishes the others.
//!
//! The test program is a shell script with the command line of a test runner. The runner is the
//! real one, as it runs a plan here (`xtask agent PLAN`) or in a guest
//! (`xtask agent --kernel K PLAN`).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use testing::{is_root, skipped};

/// A test program: each test is a branch. The name of the test is the last word.
const PROGRAM: &str = r#"#!/bin/bash
for name; do :; done
case $name in
good_*) echo $name >$TMPDIR/file || exit 1 ;;
fails) echo "---- fails ----"; echo "left: 1"; echo "test fails ... FAILED"; exit 101 ;;
fails_once) [ -e $TMPDIR/../once ] || { : >$TMPDIR/../once; echo "not yet"; exit 101; } ;;
hangs) sleep 1000 ;;
hangs_uninterruptibly) exec python3 -c '
import ctypes
libc = ctypes.CDLL(None)
if libc.vfork() == 0:
    libc.setsid()
    libc.pause()
' ;;
leaves_a_daemon) setsid --fork sleep 1000 </dev/null >/dev/null 2>&1 ;;
leaves_a_hidden_daemon) env -i setsid --fork sleep 1001 </dev/null >/dev/null 2>&1 ;;
leaves_a_mount) mkdir $TMPDIR/m; mount -t tmpfs tmpfs $TMPDIR/m ;;
prints_100_mb) yes 0123456789 | head -c 100000000; echo ;;
aborts) kill -ABRT $$ ;;
fills_the_disk) dd if=/dev/zero of=$TMPDIR/big bs=1M 2>/dev/null; echo full; sleep 1000 ;;
ends_the_guest) echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger; sleep 1000 ;;
esac || exit
echo "test $name ... ok"
"#;

/// What the supervisor says of a process that only it has found.
const HIDDEN: &str = "failed: a test has left, hidden from the run: process ";

/// A directory with the program, removed at the end.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str) -> Fixture {
        let dir = std::env::temp_dir().join(format!("xtask-faults-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("program"), PROGRAM).unwrap();
        std::fs::set_permissions(dir.join("program"), PermissionsExt::from_mode(0o755)).unwrap();
        Fixture(dir)
    }

    /// Writes a plan, a test a unit.
    fn plan(&self, tests: &[&str], deadline: u32) -> PathBuf {
        let dir = self.0.display();
        let unit = |test: &&str| format!("p\t{dir}/program\t/\t{deadline}\t0\t\t{test}\n");
        let plan = self.0.join("plan");
        std::fs::write(&plan, format!("dtrace /bin/true\n{}", tests.iter().map(unit).collect::<String>()))
            .unwrap();
        plan
    }

    /// Runs the runner: what became of each test, and all that was printed.
    fn run(&self, words: &[&str], directory: &Path) -> (BTreeMap<String, (String, String)>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let out = command.arg("agent").args(words).env("DTRACE_TEST_DIR", directory).output().unwrap();
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        // What hides from the run fails it in the end.
        assert_eq!(out.status.success(), !text.contains(HIDDEN), "{text}");
        let of = |line: &str| {
            let columns: Vec<&str> = line.strip_prefix("@result ")?.split('\t').collect();
            Some((columns[1].to_owned(), (columns[3].to_owned(), columns[4].to_owned())))
        };
        (text.lines().filter_map(of).collect(), text)
    }

    fn run_here(&self, tests: &[&str]) -> (BTreeMap<String, (String, String)>, String) {
        self.run(&[self.plan(tests, 2).to_str().unwrap()], &self.0)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test with a fault between two good ones: why it failed, and all that was printed.
fn with_fault(test: &str) -> (String, String) {
    let fixture = Fixture::new(test);
    let (results, text) = fixture.run_here(&["good_before", test, "good_behind"]);
    for good in ["good_before", "good_behind"] {
        assert_eq!(results.get(good).map(|r| r.0.as_str()), Some("passed"), "{text}");
    }
    let (outcome, why) = results.get(test).cloned().unwrap_or_default();
    assert_eq!(outcome, "failed", "{text}");
    (why, text)
}

fn processes_with(words: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").trim() == words).count()
}

#[test]
fn a_test_that_fails_is_reported_with_what_it_printed() {
    let (why, _) = with_fault("fails");
    assert!(why.contains("left: 1"), "{why}");
}

#[test]
fn a_test_that_passes_when_it_runs_again_is_flaky() {
    let fixture = Fixture::new("flaky");
    let (results, text) = fixture.run_here(&["fails_once", "good_behind"]);
    let (outcome, why) = &results["fails_once"];
    assert!(outcome == "flaky" && why.contains("not yet"), "{text}");
}

#[test]
fn a_test_that_hangs_is_killed_at_its_deadline_and_its_processes_are_told() {
    let (why, _) = with_fault("hangs");
    assert!(why.contains("no end after ") && why.contains("sleep 1000 state S"), "{why}");
}

#[test]
fn a_test_that_hangs_in_an_uninterruptible_wait_of_its_child_is_killed_with_the_child() {
    if Command::new("python3").arg("--version").output().is_err() {
        skipped!("no command python3");
        return;
    }
    let (why, text) = with_fault("hangs_uninterruptibly");
    assert!(why.contains("no end after ") && why.contains(" state D"), "{why}");
    assert!(!text.contains(HIDDEN), "{text}");
}

#[test]
fn a_daemon_that_a_test_leaves_is_its_failure_and_ends() {
    let (why, _) = with_fault("leaves_a_daemon");
    assert!(why.contains("it leaves process ") && why.contains("sleep 1000"), "{why}");
}

#[test]
fn a_daemon_that_hides_ends_with_the_run() {
    let fixture = Fixture::new("hidden");
    let (results, text) = fixture.run_here(&["leaves_a_hidden_daemon", "good_behind"]);
    assert_eq!(results["good_behind"].0, "passed");
    assert!(text.contains(HIDDEN) && text.contains("sleep 1001"), "{text}");
    assert_eq!(processes_with("sleep 1001"), 0);
}

#[test]
fn a_mount_that_a_test_leaves_is_its_failure_and_goes() {
    if !is_root() {
        skipped!("mounting needs root");
        return;
    }
    let (why, _) = with_fault("leaves_a_mount");
    assert!(why.contains("it leaves the mount "), "{why}");
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains("xtask-faults-leaves_a_mount"), "{mounts}");
}

#[test]
fn a_test_that_prints_100_mb_passes() {
    let fixture = Fixture::new("prints");
    let (results, text) = fixture.run_here(&["good_before", "prints_100_mb", "good_behind"]);
    assert_eq!(results.values().filter(|(outcome, _)| outcome == "passed").count(), 3);
    assert!(text.len() < 10_000);
}

#[test]
fn a_test_that_aborts_is_reported_with_its_signal() {
    let (why, _) = with_fault("aborts");
    assert!(why.contains("killed by signal 6"), "{why}");
}

#[test]
fn a_test_that_fills_the_disk_of_its_directory_is_killed_and_the_others_have_space() {
    if !is_root() {
        skipped!("mounting needs root");
        return;
    }
    let fixture = Fixture::new("disk");
    let small = fixture.0.join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |words: &[&str]| {
        assert!(Command::new(words[0]).args(&words[1..]).arg(&small).status().unwrap().success())
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs"]);
    let plan = fixture.plan(&["good_before", "fills_the_disk", "good_behind"], 60);
    let (results, text) = fixture.run(&[plan.to_str().unwrap()], &small);
    mount(&["umount"]);
    assert!(results["good_before"].0 == "passed" && results["good_behind"].0 == "passed", "{text}");
    let (outcome, why) = &results["fills_the_disk"];
    assert!(outcome == "failed" && why.contains("it has filled the disk"), "{text}");
}

#[test]
fn a_test_that_ends_two_guests_has_failed_and_the_others_run() {
    let kernels = std::env::var_os("DTRACE_VM_DIR").map(PathBuf::from);
    let kernels = kernels.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/vm"));
    if !is_root() || !kernels.join("kernels/6.12/.ok").exists() {
        skipped!("no guest: {} has no kernel 6.12, or not root", kernels.display());
        return;
    }
    let fixture = Fixture::new("guest");
    let plan = fixture.plan(&["good_before", "ends_the_guest", "good_behind"], 300);
    let (results, text) = fixture.run(&["--kernel", "6.12", plan.to_str().unwrap()], &fixture.0);
    assert!(results["good_before"].0 == "passed" && results["good_behind"].0 == "passed", "{text}");
    let (outcome, why) = &results["ends_the_guest"];
    assert!(outcome == "failed" && why.contains("two guests have ended while it ran"), "{text}");
    assert!(text.contains("sysrq"), "the console is shown: {text}");
}
