//! Containers of a manager, pods with names, and processes that do not want to be traced.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::container_names::{ID, Made, Script, Waiting};
use crate::machine::{no_clock, no_types};
use crate::pid::Programs;
use crate::stable_cgroup::Hierarchy;
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start, under, workload};
use crate::usdt::NOTES;

tests! {
    a_container_of_crun_has_its_id_or_its_name
    pods_have_the_names_of_their_logs
    many_pods_have_each_its_name
    files_that_only_a_container_has_are_traced_and_named_after_its_end
    processes_that_are_not_dumpable_and_of_user_namespaces_are_traced
}

/// A bundle of the Open Container Initiative whose program calls getppid so often, in this group.
fn bundle(group: &str, count: u32) -> String {
    let me = std::env::current_exe().unwrap().display().to_string();
    let bound = |(to, from): (&str, &str)| {
        let from = std::fs::canonicalize(from).ok()?;
        let from = from.display();
        Some(format!(r#",{{"destination":"{to}","type":"bind","source":"{from}","options":["rbind","ro"]}}"#))
    };
    let places = [("/usr", "/usr"), ("/lib", "/lib"), ("/lib64", "/lib64"), ("/workload", me.as_str())];
    let mounts: String = places.into_iter().filter_map(bound).collect();
    let command = workload("getppid", count);
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let args = words.iter().map(|word| format!(",\"{word}\"")).collect::<String>();
    format!(
        r#"{{"ociVersion":"1.0.2","process":{{"terminal":false,"user":{{"uid":0,"gid":0}},
"args":["/workload"{args}],"env":["PATH=/usr/bin"],"cwd":"/"}},
"root":{{"path":"root","readonly":false}},"mounts":[{{"destination":"/proc","type":"proc","source":"proc"}}{mounts}],
"linux":{{{group}"namespaces":[{{"type":"mount"}},{{"type":"uts"}},{{"type":"ipc"}},{{"type":"pid"}},{{"type":"cgroup"}}]}}}}"#
    )
}

fn a_container_of_crun_has_its_id_or_its_name() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    if Command::new("crun").arg("--version").output().is_err() {
        return Skip("no package crun".into());
    }
    let name = format!("dt-box-{}", std::process::id());
    let parent = format!("dt-crun-{}", std::process::id());
    let by_id = format!("\"cgroupsPath\":\"/{parent}/{ID}\",");
    for (group, id) in [(by_id.as_str(), ID), ("", &name)] {
        let dir = testing::dir::Dir::new("crun");
        for part in ["root/dev", "state"] {
            std::fs::create_dir_all(dir.join(part)).unwrap();
        }
        std::fs::write(dir.join("config.json"), bundle(group, 33)).unwrap();
        // crun refuses groups of the first version, which a developer's machine may have.
        let text = format!(
            "[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup || exit 77\n\
             crun --cgroup-manager cgroupfs --root {0}/state run --bundle {0} {name}; status=$?\n\
             [ ! -d /sys/fs/cgroup/{parent} ] || rmdir /sys/fs/cgroup/{parent}; exit $status\n",
            dir.display()
        );
        std::fs::write(dir.join("run"), text).unwrap();
        let command = format!("unshare --mount --propagation private sh {}", dir.join("run").display());
        let script = "syscall::getppid:entry /progenyof($target) && execname == \"workload\"/
            { @[containerid, cgroupname] = count(); }
            END { printa(\"%s %s %@d\\n\", @); }";
        let o = dtrace(&["-q", "-c", &command, "-n", script]).code(0);
        if o.err.contains("status 77") {
            return Skip("cgroups cannot be mounted".into());
        }
        assert!(o.out.lines().any(|l| l == format!("{id} {id} 33")), "{o:?}");
    }
    Pass
}

/// A uid of a pod of this test's process.
fn pod_uid(number: usize) -> String {
    format!("{:08x}-4567-89ab-cdef-{number:012x}", std::process::id())
}

/// The group of a container of a pod, below that of a hierarchy.
fn group_of(hierarchy: &Hierarchy, uid: &str) -> String {
    let uid = uid.replace('-', "_");
    format!("{}/kubepods-pod{uid}.slice/cri-containerd-{ID}.scope", hierarchy.group().display())
}

fn pods_have_the_names_of_their_logs() -> Verdict {
    // row builtin.podname
    if let Some(skip) = no_types() {
        return skip;
    }
    let pod = format!("dt-pod-{}", std::process::id());
    let logs = PathBuf::from("/var/log/pods").join(format!("shop_{pod}_{}", pod_uid(0)));
    let (_made, hierarchy) = match (Made::new(&logs), Hierarchy::new("pods", "-t cgroup2")) {
        (Ok(made), Ok(hierarchy)) => (made, hierarchy),
        (Err(skip), _) | (_, Err(skip)) => return skip,
    };
    let (known, unknown) = (group_of(&hierarchy, &pod_uid(0)), group_of(&hierarchy, &pod_uid(1)));
    let file = Script::new("pods", [(known, 31), (unknown.clone(), 5)]);
    let hosts = Script::new("hosts", []);
    let more = format!(
        "{}\nunshare --uts sh -c 'echo 0 >\"$1/cgroup.procs\" && hostname dt-host && exec {}' sh '{unknown}'\n",
        file.command(),
        workload("getppid", 6)
    );
    hosts.write(&more);
    let script = "syscall::getppid:entry /progenyof($target) && poduid != \"\"/ { @[podname] = count(); }
        syscall::getppid:entry /podname == $$1/ { @one = count(); }
        END { printa(\"%s %@d\\n\", @); printa(\"one %@d\\n\", @one); }";
    let one = format!("shop/{pod}");
    let o = dtrace(&["-q", "-c", &hosts.command(), "-n", script, &one]).code(0);
    // The name of its host is not that of a pod in which there is none of its own.
    for line in [&format!("{one} 31"), "? 5", "?/dt-host 6", "one 31"] {
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    // Its groups are there still.
    for name in [&pod, &one, &pod_uid(0)] {
        let option = format!("container={name}");
        let o = dtrace(&["-qx", &option, "-c", &hosts.command(), "-n", script, &one]).code(0);
        assert_eq!(
            o.out.split_whitespace().collect::<Vec<_>>().join(" "),
            format!("{one} 31 one 31"),
            "{o:?}"
        );
    }
    Pass
}

/// As many as a machine has, unless it is told otherwise.
const PODS: usize = 110;

fn many_pods_have_each_its_name() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let logs = |n: usize| PathBuf::from("/var/log/pods").join(format!("ns-{n}_pod-{n}_{}", pod_uid(n)));
    let made: Result<Vec<Made>, Verdict> = (0..PODS).map(|n| Made::new(&logs(n))).collect();
    let (_made, hierarchy) = match (made, Hierarchy::new("many-pods", "-t cgroup2")) {
        // The first one made what is above all, and removes that.
        (Ok(made), Ok(hierarchy)) => (made.into_iter().rev().collect::<Vec<_>>(), hierarchy),
        (Err(skip), _) | (_, Err(skip)) => return skip,
    };
    let some = [0, 1, 54, 55, 108, 109];
    let lines = some.iter().map(|n| (group_of(&hierarchy, &pod_uid(*n)), 10 + *n as u32));
    let file = Script::new("many-pods", lines);
    let script = "syscall::getppid:entry /progenyof($target) && poduid != \"\"/ { @[podname] = count(); }
        END { printa(\"%s %@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &file.command(), "-n", script]).code(0);
    for n in some {
        let line = format!("ns-{n}/pod-{n} {}", 10 + n);
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    Pass
}

/// Calls functions for input, others at its end. One has a probe of its own.
const ONLY: &str = r#"
#include <unistd.h>
PLAIN long boxed(long n)
{
    __asm__ volatile("990: nop\n" NOTE("dtbox", "inside", "0", "-8@%0") :: "r"(n));
    return n + getppid();
}
PLAIN long later(long n) { return n + getpgrp(); }
int main(void)
{
    long sum = 0;
    getchar();
    for (int i = 0; i < 40; i++)
        sum += boxed(i);
    getchar();
    for (int i = 0; i < 30; i++)
        sum += later(i);
    return sum < 0;
}
"#;

fn files_that_only_a_container_has_are_traced_and_named_after_its_end() -> Verdict {
    if let Some(skip) = no_types().or_else(no_clock) {
        return skip;
    }
    let source = format!("{NOTES}{ONLY}");
    let (dir, program) = match Programs::new("onlyhere", ("cc", &source), &["-O1"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let hierarchy = match Hierarchy::new("onlyhere", "-t cgroup2") {
        Ok(hierarchy) => hierarchy,
        Err(skip) => return skip,
    };
    let id = format!("{:08x}{}", std::process::id(), &ID[8..]);
    let group = format!("{}/docker-{id}.scope", hierarchy.group().display());
    let place = dir.path().join("mount");
    for dir in [&PathBuf::from(&group), &place] {
        std::fs::create_dir(dir).unwrap();
    }
    let (place, own, output) = (place.display(), dir.path().join("own"), dir.path().join("output"));
    let text =
        format!("mount -t tmpfs none {place} && cp {program} {place}/onlyhere && exec {place}/onlyhere\n");
    std::fs::write(&own, text).unwrap();
    let command = format!("exec unshare --mount --propagation private sh {}", own.display());
    let mut boxed = Waiting::start(&group, &command);
    let exe = format!("/proc/{}/exe", boxed.0.id());
    eventually("the program runs", LIMIT, || {
        std::fs::read_link(&exe).is_ok_and(|path| path.ends_with("onlyhere"))
    });
    let script = "BEGIN { printf(\"on\\n\"); }
        pid*:onlyhere:boxed:entry, pid*:onlyhere:later:entry { @[probefunc, ustack(1)] = count(); }
        dtbox*:::inside { @inside = sum(arg0); }
        tick-20ms { printa(\"%s %k %@d\\n\", @); }
        END { printa(\"%s %k %@d\\n\", @); printa(\"inside %@d\\n\", @inside); }";
    let words = ["-qx", &format!("container={id}"), "-o", &output.display().to_string(), "-n", script];
    let tracing = start(&words);
    let printed = |what: &str| std::fs::read_to_string(&output).is_ok_and(|text| text.contains(what));
    eventually("the session has begun", LIMIT, || printed("on\n"));
    let stdin = boxed.0.stdin.as_mut().unwrap();
    std::io::Write::write_all(stdin, b"x").unwrap();
    // A process that ends within the first moments of a session is named by what the host has.
    eventually("its file is known", LIMIT, || printed("boxed"));
    drop(boxed.0.stdin.take());
    boxed.0.wait().unwrap();
    // Its namespace has ended with it, and with that the only mount of its file.
    signal(&tracing, libc::SIGINT);
    finish(tracing).code(0);
    let text = std::fs::read_to_string(&output).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    for line in
        [&["boxed", "onlyhere`boxed", "40"][..], &["later", "onlyhere`later", "30"], &["inside", "780"]]
    {
        assert!(words.windows(line.len()).any(|words| words == line), "{line:?}: {text}");
    }
    Pass
}

/// A program that forbids others of its user to look at it. With an argument in a namespace of
/// users of its own, where it is root.
const SECRET: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long secret(long n) { __asm__ volatile(""); return n + getppid(); }
int main(int argc, char **argv)
{
    long sum = 0;
    if ((argc > 1 && unshare(CLONE_NEWUSER)) || prctl(PR_SET_DUMPABLE, 0))
        return 77;
    puts("ready");
    fflush(stdout);
    getchar();
    for (int i = 0; i < 60; i++)
        sum += secret(i);
    return sum < 0;
}
"#;

fn processes_that_are_not_dumpable_and_of_user_namespaces_are_traced() -> Verdict {
    let (_dir, program) = match Programs::new("secret", ("cc", SECRET), &["-O1"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    for words in [&[][..], &["in a namespace"][..]] {
        let command = Command::new(&program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut secret = Waiting(command.unwrap());
        let mut line = String::new();
        BufReader::new(secret.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            return Skip("no user namespace can be made".into());
        }
        let script = "BEGIN { printf(\"on\\n\"); }
            pid$target:program:secret:entry { @ = count(); @stacks[ustack(1)] = count(); }
            END { printa(\"entered %@d\\n\", @); printa(@stacks); }";
        let mut tracing = start(&["-qp", &secret.0.id().to_string(), "-n", script]);
        printed(&mut tracing);
        drop(secret.0.stdin.take());
        secret.0.wait().unwrap();
        let o = finish(tracing).code(0);
        assert!(o.out.contains("entered 60\n") && o.out.contains("program`secret"), "{words:?}: {o:?}");
    }
    // Who is root in a namespace of users only may not trace.
    let o = under(&["unshare", "--user", "--map-root-user"], &["-n", "BEGIN { exit(0); }"]);
    let Some(o) = o.filter(|o| !o.err.contains("unshare:")) else { return Pass };
    assert!(o.code == Some(1) && o.err.contains("user namespace"), "{o:?}");
    Pass
}
