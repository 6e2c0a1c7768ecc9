//! Processes of pid namespaces below the tracer's. The tracer is in the initial namespace, or in
//! another one.

use std::path::Path;
use std::process::{Command, Stdio};

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::pid::{Programs, compiled};
use crate::pid_odd::CHILDREN;
use crate::targets::in_namespace;
use crate::tool::{Output, binary, finish};

tests! {
    a_process_of_a_namespace_below_has_its_numbers_here
    programs_that_enter_a_namespace_below_are_followed
    a_set_has_processes_of_namespaces_below
    processes_that_another_proc_shows_are_no_targets
}

/// Begins the program in a namespace below, and finds its number here: `below CALLS CHILDREN FILE`
/// sets `$t`.
const BELOW: &str = "
below() {
    unshare --pid --fork $program $* >/dev/null &
    parent=$! t=
    until grep -qsx program /proc/$t/comm; do
        sleep 0.01
        t=`cat /proc/$parent/task/$parent/children | tr -d ' '`
    done
}
";

/// Facts of each firing that hold where all numbers are those of one namespace, and how often they
/// do.
const FACTS: &str = "pid > 0 && tid == pid, ppid > 0, probeprov == strjoin(\"pid\", lltostr(pid)), progenyof($target), \
    curpsinfo->pr_pid == pid, curpsinfo->pr_ppid == ppid, curlwpsinfo->pr_lwpid == tid";
const HOLD: [&str; 7] = ["1"; 7];

/// Runs a script of the shell here and in a pid namespace, with `dtrace` in `$0`. `Err`: the test
/// is skipped.
fn in_both(dir: &Path, script: &str) -> Result<[Output; 2], Verdict> {
    let (place, go) = (dir.display(), dir.join("go"));
    let script = format!("program={place}/program go={}\n{BELOW}{script}", go.display());
    let here = Command::new("sh")
        .args(["-c", &script])
        .arg(binary())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let here = finish(here.unwrap()).code(0);
    let _ = std::fs::remove_file(&go);
    let there = in_namespace(&script).ok_or_else(|| Skip("no pid namespaces".into()))?;
    Ok([here, there.code(0)])
}

/// A test that needs namespaces and the set of processes.
fn program(name: &str) -> Result<(Programs, String), Verdict> {
    let made = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    match lacks(Facility::TpBtf) {
        Some(skip) => Err(skip),
        None if !made.is_ok_and(|status| status.success()) => Err(Skip("no pid namespaces".into())),
        None => Programs::new(name, ("cc", CHILDREN), &["-O2"]),
    }
}

fn words(o: &Output) -> Vec<Vec<&str>> {
    let lines = o.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| !words.is_empty()).collect()
}

fn a_process_of_a_namespace_below_has_its_numbers_here() -> Verdict {
    let (dir, _program) = compiled!(program("below"));
    let script = format!(
        "below 10 3 $go\n\"$0\" -qwx follow=fork -p $t -n 'BEGIN {{ system(\"touch '$go'\"); }}
        pid$target:a.out:add:entry {{ @[{FACTS}] = count(); @own[pid == $target, pid == '$t', ppid == '$parent'] = count();
            @by[ufunc(ucaller)] = count(); }}
        END {{ printa(@); printa(\"own %d %d %d %@d\\n\", @own); printa(\"by %A %@d\\n\", @by); }}'"
    );
    for o in compiled!(in_both(dir.path(), &script)) {
        let lines = words(&o);
        assert_eq!(lines[0], [&HOLD[..], &["40"]].concat(), "{o:?}");
        assert!(lines.contains(&vec!["own", "1", "1", "1", "10"]), "{o:?}");
        assert!(lines.contains(&vec!["own", "0", "0", "0", "30"]), "{o:?}");
        // A row for each process.
        let called = lines.iter().filter(|words| **words == ["by", "program`main", "10"]).count();
        assert_eq!(called, 4, "{o:?}");
    }
    Pass
}

fn programs_that_enter_a_namespace_below_are_followed() -> Verdict {
    let (dir, _program) = compiled!(program("enter"));
    let script = format!(
        "touch $go\n\"$0\" -Zqx follow=all -c \"unshare --pid --fork $program 10 3 $go\" -n '
        pid$target:program:add:entry {{ @[{FACTS}] = count(); @each[pid] = count(); }}
        END {{ printa(@); printa(\"each %d %@d\\n\", @each); }}'"
    );
    for o in compiled!(in_both(dir.path(), &script)) {
        let lines = words(&o);
        let each: Vec<_> = lines.iter().filter(|words| words[0] == "each").collect();
        assert!(lines.contains(&[&HOLD[..], &["40"]].concat()), "{o:?}");
        assert!(each.len() == 4 && each.iter().all(|words| words[2] == "10"), "{o:?}");
    }
    Pass
}

fn a_set_has_processes_of_namespaces_below() -> Verdict {
    let (dir, _program) = compiled!(program("sets"));
    // The last one is not meant.
    let script = "
        for n in 1 2 3 4 5 6 7 8 9 10 11; do
            below $n 0 $go
            test $n = 11 || { all=\"$all -p $t\"; echo wanted pid$t $n; }
        done
        \"$0\" -qw $all -n 'BEGIN { system(\"touch '$go'\"); }
            pid*:a.out:add:entry { @[probeprov, probeprov == strjoin(\"pid\", lltostr(pid))] = count(); }
            END { printa(\"%s %d %@d\\n\", @); }'";
    for o in compiled!(in_both(dir.path(), script)) {
        let lines = words(&o);
        let (wanted, mut counts): (Vec<_>, Vec<_>) = lines.iter().partition(|words| words[0] == "wanted");
        let mut wanted: Vec<Vec<&str>> = wanted.iter().map(|words| vec![words[1], "1", words[2]]).collect();
        wanted.sort();
        counts.sort();
        assert!(wanted.len() == 10 && wanted.iter().eq(counts), "{o:?}");
    }
    Pass
}

fn processes_that_another_proc_shows_are_no_targets() -> Verdict {
    // Without `--mount-proc`.
    let run = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork"]).arg(binary()).args(words).stdin(Stdio::null());
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let o = run(&["-qn", "BEGIN { trace(pid == $pid); exit(0); }"]);
    if o.err.contains("unshare:") {
        return Skip(o.err.trim().to_string());
    }
    assert_eq!(o.code(0).out.trim(), "1");
    for (words, says) in [(["-p", "1"], "failed to grab pid 1"), (["-c", "true"], "failed to execute true")] {
        let o = run(&[&words[..], &["-n", "BEGIN"]].concat()).code(1);
        let why = "/proc shows the processes of another pid namespace: mount -t proc proc /proc";
        assert_eq!(o.err, format!("dtrace: {says}: {why}\n"));
    }
    Pass
}
