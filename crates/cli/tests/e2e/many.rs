//! Many processes at once: what `pid*` means, how they are selected, and their children.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;
use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{has, lacks};
use crate::pid::Programs;
use crate::tool::{LIMIT, Output, dtrace, finish, printed, start};

tests! {
    many_processes_share_a_link_and_each_has_its_count
    five_hundred_selected_processes_have_exact_counts
    programs_that_run_meanwhile_fire_nothing
    a_process_with_the_number_of_one_that_has_ended_is_not_counted
    processes_are_selected_by_name_user_and_cgroup
    several_p_options_are_what_a_glob_means
    one_file_below_two_overlays_fires_once
    children_are_followed_from_their_first_instruction
    what_does_not_fit_the_set_of_processes_is_counted
    what_no_process_runs_is_named
}

/// Calls `add` when its input ends: so often as the first argument says, in so many children as the
/// second says, all of which live at the same time, and then itself.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long add(long a, long b) { __asm__ volatile(""); return a + b; }
int main(int argc, char **argv)
{
    int calls = atoi(argv[1]), children = argc > 2 ? atoi(argv[2]) : 0, ends[2];
    char c;
    getchar();
    pipe(ends);
    for (int n = 0; n < children; n++) {
        if (fork())
            continue;
        for (int i = 0; i < calls; i++)
            add(i, 1);
        close(ends[1]);
        read(ends[0], &c, 1);
        _exit(0);
    }
    close(ends[1]);
    while (wait(NULL) > 0)
        ;
    for (int i = 0; i < calls; i++)
        add(i, 1);
    return 0;
}
"#;

fn program(name: &str) -> Result<(Programs, String), Verdict> {
    Programs::new(&format!("many-{name}"), ("cc", PROGRAM), &["-O2"])
}

/// A program that was compiled, or the end of a test that is skipped.
macro_rules! compiled {
    ($built:expr) => {
        match $built {
            Ok(program) => program,
            Err(verdict) => return verdict,
        }
    };
}

/// Processes that wait for the end of their input.
#[derive(Default)]
pub(crate) struct Waiting(Vec<Child>);

impl Waiting {
    pub(crate) fn add(&mut self, command: &mut Command) -> u32 {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        self.0.push(child);
        self.0.last().unwrap().id()
    }

    fn release(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        for child in &mut self.0 {
            child.wait().unwrap();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.kill()));
        self.release();
    }
}

/// Traces until the processes have ended. The script prints when its probes are enabled.
pub(crate) fn trace(waiting: &mut Waiting, words: &[&str]) -> Output {
    let mut child = start(words);
    printed(&mut child);
    waiting.release();
    crate::tool::signal(&child, libc::SIGINT);
    finish(child).code(0)
}

/// Numbers by the first word of their lines.
pub(crate) fn numbers(o: &Output) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_string(), words.next()?.parse().ok()?))
    };
    o.out.lines().filter_map(pair).collect()
}

/// Says what `-v` reports of how the probe is attached.
fn attached(words: &[&str], says: &str) {
    let script = "BEGIN { exit(0); } pid*:a.out:add:entry { trace(pid); }";
    let o = dtrace(&[&["-qv", "-n", script], words].concat());
    assert!(o.code == Some(0) && o.err.contains(says), "{words:?}: {o:?}");
}

const BY_PROVIDER: &str = "BEGIN { printf(\"on\\n\"); } pid*:a.out:add:entry { @[probeprov] = count(); }";

fn many_processes_share_a_link_and_each_has_its_count() -> Verdict {
    let (_dir, program) = compiled!(program("share"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let mut waiting = Waiting(Vec::new());
    let mut wanted = BTreeMap::new();
    for calls in 1..=20 {
        let pid = waiting.add(Command::new(&program).arg(calls.to_string()));
        wanted.insert(format!("pid{pid}"), calls);
    }
    let list: Vec<String> =
        waiting.0.iter().map(|child| child.id().to_string()).chain(["4194305".into()]).collect();
    // They run the same file and are not asked for. A process that is gone is no error.
    for _ in 0..5 {
        waiting.add(Command::new(&program).arg("1000"));
    }
    let selection = format!("processes={}", list.join(","));
    attached(&["-x", &selection], "a link for each of 1 files, for a set of 20 processes");
    let o = trace(&mut waiting, &["-qx", &selection, "-n", BY_PROVIDER]);
    assert_eq!(numbers(&o), wanted, "{o:?}");
    Pass
}

fn five_hundred_selected_processes_have_exact_counts() -> Verdict {
    const PROCESSES: u64 = 500;
    let (dir, program) = compiled!(program("hundreds"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    // The name of a process has 15 characters.
    let name = format!("dt-h{}", std::process::id());
    let selected = dir.0.join(&name).display().to_string();
    std::fs::copy(&program, &selected).unwrap();
    let mut waiting = Waiting(Vec::new());
    let mut wanted = BTreeMap::new();
    for n in 0..PROCESSES {
        let pid = waiting.add(Command::new(&selected).arg((n % 7 + 1).to_string()));
        wanted.insert(format!("pid{pid}"), n % 7 + 1);
        // They run another file with the same function, and have another name.
        if n % 100 == 0 {
            waiting.add(Command::new(&program).arg("1000"));
        }
    }
    let selection = format!("processes=name={name}");
    let o = trace(&mut waiting, &["-qx", &selection, "-n", BY_PROVIDER]);
    assert_eq!(numbers(&o), wanted, "{o:?}");
    Pass
}

/// The link of a process fires in that process only, whatever else runs the file.
fn programs_that_run_meanwhile_fire_nothing() -> Verdict {
    let (_dir, program) = compiled!(program("others"));
    let mut waiting = Waiting(Vec::new());
    let pid = waiting.add(Command::new(&program).arg("1"));
    let target = pid.to_string();
    testing::eventually("its C library", testing::HANG_LIMIT, || {
        std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("libc.so"))
    });
    // Where places are attached to one by one, the kernel takes minutes to detach from all, and the
    // next session waits for it.
    let functions = if has(Facility::UprobeMulti) { "" } else { "ex*" };
    let script = format!(
        "pid$target:libc:{functions}:entry {{ @[pid] = count(); @all[\"functions\", probefunc] = count(); }}"
    );
    let o = dtrace(&["-qv", "-p", &target, "-n", &format!("BEGIN {{ exit(0); }} {script}")]).code(0);
    let threads_have_links = has(Facility::UprobeMulti) && !has(Facility::UprobeProcess);
    let by = if threads_have_links { "a link for each of 1 files" } else { "functions by uprobe" };
    assert!(o.err.contains(by), "{o:?}");
    let mut child = start(&["-q", "-p", &target, "-n", &format!("BEGIN {{ printf(\"on\\n\"); }} {script}")]);
    printed(&mut child);
    for _ in 0..20 {
        assert!(Command::new(&program).arg("5").stdin(Stdio::null()).status().unwrap().success());
    }
    waiting.release();
    let o = finish(child).code(0);
    let mut counts = numbers(&o);
    let functions: Vec<&str> = o.out.lines().filter(|line| line.trim().starts_with("functions")).collect();
    counts.remove("functions");
    assert_eq!(counts.into_keys().collect::<Vec<_>>(), [target], "{o:?}");
    // It is woken in `read`, and ends.
    assert!(functions.iter().any(|line| line.contains(" exit ")), "{o:?}");
    Pass
}

/// Creates a process with a number that is free, which executes a program.
const NUMBERED: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
struct arguments { uint64_t flags, pidfd, child, parent, signal, stack, size, tls, ids, count, cgroup; };
int main(int argc, char **argv)
{
    int number = atoi(argv[1]), status;
    struct arguments how = { .signal = 17, .ids = (uintptr_t)&number, .count = 1 };
    long pid = syscall(435, &how, sizeof how);
    if (pid == 0) {
        execv(argv[2], argv + 2);
        _exit(126);
    }
    if (pid < 0) {
        perror("clone3");
        return 125;
    }
    waitpid(pid, &status, 0);
    return pid == number && WIFEXITED(status) ? WEXITSTATUS(status) : 124;
}
"#;

fn a_process_with_the_number_of_one_that_has_ended_is_not_counted() -> Verdict {
    let (_dir, program) = compiled!(program("number"));
    let (_other, numbered) = compiled!(Programs::new("many-numbered", ("cc", NUMBERED), &["-O1"]));
    let follows = lacks(Facility::TpBtf).is_none();
    for (follow, by_glob) in [("none", false), ("none", true), ("fork", true)] {
        if follow == "fork" && !follows {
            continue;
        }
        let mut waiting = Waiting(Vec::new());
        let pid = waiting.add(Command::new(&program).arg("3")).to_string();
        let provider = if by_glob { "pid*".to_string() } else { format!("pid{pid}") };
        let script = BY_PROVIDER.replace("pid*", &provider);
        let (selection, follow) = (format!("processes={pid}"), format!("follow={follow}"));
        let mut child = start(&["-qx", &selection, "-x", &follow, "-n", &script]);
        printed(&mut child);
        waiting.release();
        let again =
            Command::new(&numbered).args([&*pid, &*program, "1000"]).stdin(Stdio::null()).output().unwrap();
        crate::tool::signal(&child, libc::SIGINT);
        let o = finish(child).code(0);
        if !again.status.success() {
            return Skip(format!("no process gets the number of another: {again:?}"));
        }
        assert_eq!(numbers(&o), BTreeMap::from([(format!("pid{pid}"), 3)]), "{provider} {follow}: {o:?}");
    }
    Pass
}

fn processes_are_selected_by_name_user_and_cgroup() -> Verdict {
    let (dir, program) = compiled!(program("select"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let named = |name: &str| {
        let path = dir.0.join(name).display().to_string();
        std::fs::copy(&program, &path).unwrap();
        path
    };
    let (red, blue) = (named("dt-red"), named("dt-blue"));
    let mut waiting = Waiting(Vec::new());
    let first = waiting.add(Command::new(&red).arg("1"));
    let second = waiting.add(Command::new(&blue).arg("2"));
    let by_user = {
        use std::os::unix::process::CommandExt;
        waiting.add(Command::new(&blue).arg("3").uid(12345).current_dir("/"))
    };
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let Some(mount) = mount.and_then(|line| line.split(' ').nth(1)) else { return Skip("no cgroup2".into()) };
    let cgroup = format!("{mount}/dt-many-{}", std::process::id());
    let deeper = format!("{cgroup}/deeper");
    let moved = std::fs::create_dir_all(&deeper)
        .and_then(|()| std::fs::write(format!("{deeper}/cgroup.procs"), second.to_string()));
    let list = |selection: &str| {
        let words = ["-qx", selection, "-n", "pid*:a.out:add:entry"];
        let o = dtrace(&["-l", words[0], words[1], words[2], words[3]]);
        o.code == Some(0)
    };
    let mut rows: Vec<(String, Vec<u32>)> = vec![
        ("name=dt-red".into(), vec![first]),
        ("name=dt-*".into(), vec![first, second, by_user]),
        ("name=dt-*,user=12345".into(), vec![by_user]),
        (format!("{first},{by_user},name=dt-red"), vec![first]),
        (format!("name=dt-red,name=dt-blue,{second}"), vec![second]),
    ];
    if moved.is_ok() {
        rows.push((format!("cgroup={cgroup}"), vec![second]));
        rows.push((format!("cgroup={},name=dt-*", cgroup.trim_start_matches(mount)), vec![second]));
    }
    for (selection, pids) in &rows {
        let selection = format!("processes={selection}");
        let says = format!("for a set of {} processes", pids.len());
        attached(&["-x", &selection, "-x", "follow=fork"], &says);
    }
    let no_such = list("processes=name=dt-green");
    let narrowed = list(&format!("processes={first},name=dt-blue"));
    waiting.release();
    if moved.is_ok() {
        let _ = std::fs::remove_dir(&deeper);
        let _ = std::fs::remove_dir(&cgroup);
    }
    assert!(!no_such && !narrowed);
    match moved {
        Ok(()) => Pass,
        Err(e) => Skip(format!("no cgroup can be made: {e}")),
    }
}

fn several_p_options_are_what_a_glob_means() -> Verdict {
    let (_dir, program) = compiled!(program("several"));
    let mut waiting = Waiting(Vec::new());
    let pids: Vec<String> =
        (1..=3).map(|calls| waiting.add(Command::new(&program).arg(calls.to_string())).to_string()).collect();
    let script = "BEGIN { printf(\"target %d\\n\", $target); } pid*:a.out:add:entry { @[probeprov] = count(); } \
                  pid$target:a.out:add:entry { @[\"first\"] = count(); }";
    let mut child = start(&["-q", "-p", &pids[1], "-p", &pids[0], "-n", script]);
    printed(&mut child);
    waiting.release();
    // Tracing ends with the last of them.
    let o = finish(child).code(0);
    let mut wanted: BTreeMap<String, u64> =
        (0..2).map(|n| (format!("pid{}", pids[n]), n as u64 + 1)).collect();
    wanted.insert("first".into(), 2);
    wanted.insert("target".into(), pids[1].parse().unwrap());
    assert_eq!(numbers(&o), wanted, "{o:?}");
    Pass
}

fn one_file_below_two_overlays_fires_once() -> Verdict {
    let (dir, program) = compiled!(program("overlays"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let mut waiting = Waiting(Vec::new());
    let base = dir.0.display();
    for name in ["lower", "other", "one", "two"] {
        std::fs::create_dir(dir.0.join(name)).unwrap();
    }
    std::fs::copy(&program, dir.0.join("lower/program")).unwrap();
    for to in ["one", "two"] {
        let script = format!(
            "mount -t overlay -o lowerdir={base}/lower:{base}/other none {base}/{to} && exec {base}/{to}/program 7"
        );
        waiting.add(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    }
    waiting.add(Command::new(dir.0.join("lower/program")).arg("7"));
    for child in &mut waiting.0 {
        let exe = format!("/proc/{}/exe", child.id());
        let ended = eventually("a program of an overlay", LIMIT, || match child.try_wait().unwrap() {
            None if std::fs::read_link(&exe).is_ok_and(|exe| exe.ends_with("program")) => Some(None),
            ended => ended.map(Some),
        });
        if let Some(status) = ended {
            return Skip(format!("no overlay in a mount namespace: {status}"));
        }
    }
    let list: Vec<String> = waiting.0.iter().map(|child| child.id().to_string()).collect();
    let selection = format!("processes={}", list.join(","));
    attached(&["-x", &selection, "-x", "follow=fork"], "a link for each of 1 files");
    let o = trace(&mut waiting, &["-qx", &selection, "-x", "follow=fork", "-n", BY_PROVIDER]);
    let wanted: BTreeMap<String, u64> = list.iter().map(|pid| (format!("pid{pid}"), 7)).collect();
    assert_eq!(numbers(&o), wanted, "{o:?}");
    Pass
}

fn children_are_followed_from_their_first_instruction() -> Verdict {
    let (_dir, program) = compiled!(program("follow"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let script = "BEGIN { printf(\"on\\n\"); } pid$target:a.out:add:entry { @[\"all\"] = count(); @each[pid] = count(); } \
                  pid$target:a.out:add:entry /pid != $target && progenyof($target)/ { @[\"progeny\"] = count(); } \
                  END { printa(\"%s %@d\\n\", @); printa(\"each %@d\\n\", @each); }";
    let command = format!("{program} 3 500");
    let traced = |follow: &str| dtrace(&["-q", "-x", follow, "-c", &command, "-n", script]).code(0);
    let o = traced("follow=fork");
    let counts = numbers(&o);
    let each = o.out.lines().filter(|line| *line == "each 3").count();
    assert_eq!((counts["all"], counts["progeny"], each), (1503, 1500, 501), "{o:?}");
    let o = traced("follow=none");
    assert_eq!((numbers(&o)["all"], numbers(&o).get("progeny")), (3, None), "{o:?}");
    Pass
}

fn what_does_not_fit_the_set_of_processes_is_counted() -> Verdict {
    let (_dir, program) = compiled!(program("full"));
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let command = format!("{program} 3 20");
    let script = "pid$target:a.out:add:entry { @[pid] = count(); }";
    let words = ["-q", "-x", "follow=fork", "-x", "followmax=4", "-c", &command, "-n", script];
    let o = dtrace(&words).code(0);
    assert_eq!(numbers(&o).into_values().collect::<Vec<_>>(), [3; 5], "{o:?}");
    assert!(o.err.contains("dtrace: 16 forked processes not followed"), "{o:?}");
    Pass
}

fn what_no_process_runs_is_named() -> Verdict {
    let (_dir, program) = compiled!(program("names"));
    let mut waiting = Waiting(Vec::new());
    let pids: Vec<String> =
        (0..2).map(|_| waiting.add(Command::new(&program).arg("1")).to_string()).collect();
    let selection = format!("processes={}", pids.join(","));
    for (selection, description, says) in [
        (
            &*selection,
            "pid*:nothing::entry",
            "[D_PROC_LIB] probe description pid*:nothing::entry does not match any probes: of 2 processes none runs a file \"nothing\"",
        ),
        (&*selection, "pid*:a.out:nothing:entry", "no function \"nothing\" in program"),
        (&*selection, "pid999*:a.out:add:entry", "[D_PROC_GRAB]"),
        ("processes=name=no-such-name", "pid*:a.out:add:entry", "no process is selected"),
        (
            "processes=zone=x",
            "pid*:a.out:add:entry",
            "option processes: processes are not selected by \"zone\"",
        ),
    ] {
        let o = dtrace(&["-x", "errtags", "-x", selection, "-n", description]).code(1);
        assert!(o.err.contains(says), "{description}: {o:?}");
    }
    Pass
}
