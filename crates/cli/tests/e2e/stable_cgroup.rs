//! The providers cgroup and oom, with groups of the test's own.

use std::path::{Path, PathBuf};

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::blocks::run;
use crate::machine::{is_guest, no_types};
use crate::tool::{LIMIT, Output, dtrace, workload};

tests! {
    groups_are_made_entered_frozen_and_removed_once_each_by_path_id_and_level
    hierarchies_are_mounted_changed_and_unmounted_once_each_and_groups_are_renamed
    tasks_of_a_group_that_loses_its_cpus_are_transferred
    each_process_that_is_killed_for_memory_is_a_victim_once
    changes_of_the_score_have_the_process_and_the_score
}

/// A mounted hierarchy with one group of the test. It is removed at the end.
pub(crate) struct Hierarchy {
    mount: PathBuf,
    name: String,
}

impl Hierarchy {
    pub(crate) fn new(test: &str, options: &str) -> Result<Hierarchy, Verdict> {
        let name = format!("dt-{test}-{}", std::process::id());
        let mount = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&mount).unwrap();
        let it = Hierarchy { mount, name };
        let made = run(&format!("mount {options} none {}", it.mount.display()))
            .and_then(|_| run(&format!("mkdir {}", it.group().display())));
        made.map(|_| it).map_err(|why| Skip(format!("cgroups cannot be mounted: {why}")))
    }

    pub(crate) fn group(&self) -> PathBuf {
        self.mount.join(&self.name)
    }

    /// Runs dtrace while a shell runs `commands` in the group.
    fn trace(&self, commands: &str, script: &str) -> Output {
        trace_in(&self.group(), commands, script, &self.name)
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        let _ = run(&format!(
            "cd / ; for n in 1 2 3 4 5 6 7 8 9 10; do find {} -depth -type d -exec rmdir {{}} + 2>/dev/null; \
             [ -d {} ] || break; sleep 0.2; done",
            self.group().display(),
            self.group().display()
        ));
        let _ = run(&format!("umount {}", self.mount.display()));
        let _ = std::fs::remove_dir(&self.mount);
    }
}

fn trace_in(group: &Path, commands: &str, script: &str, name: &str) -> Output {
    let file = std::env::temp_dir().join(format!("{name}.sh"));
    // A condition that is waited for.
    let wait_for = "wait_for() { n=0; while ! eval \"$1\"; do n=$((n+1)); [ $n -lt 1000 ] || exit 9; sleep 0.05; done; }";
    std::fs::write(&file, format!("cd {} || exit 8\n{wait_for}\n{commands}\n", group.display())).unwrap();
    let command = format!("sh {}", file.display());
    let words = ["-q", "-c", &command, "-n", script, name];
    let o = dtrace(words.get(..if script.contains("$$1") { 6 } else { 5 }).unwrap_or_default());
    let _ = std::fs::remove_file(&file);
    o.code(0)
}

/// The lines of the output, sorted.
fn lines(o: &Output) -> Vec<&str> {
    let mut all: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    all.sort_unstable();
    all
}

fn groups_are_made_entered_frozen_and_removed_once_each_by_path_id_and_level() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let group = match Hierarchy::new("cgroup", "-t cgroup2") {
        Ok(group) => group,
        Err(skip) => return skip,
    };
    // The kernel's part of a group that was removed ends later.
    let commands = "
        for n in 1 2 3 4 5 6 7 8 9; do mkdir c$n; done; stat -c 'inode %i' c9
        sleep 1000 & p=$!
        for n in 1 2 3 4 5 6 7 8 9; do echo $p > c$n/cgroup.procs; done
        for n in 1 2 3; do
            echo 1 > c9/cgroup.freeze; wait_for 'grep -q \"frozen 1\" c9/cgroup.events'
            echo 0 > c9/cgroup.freeze; wait_for 'grep -q \"frozen 0\" c9/cgroup.events'
        done
        kill -9 $p; wait_for 'grep -q \"populated 0\" cgroup.events'
        for n in 1 2 3 4 5 6 7 8 9; do rmdir c$n; done
        wait_for 'grep -q \"nr_dying_descendants 0\" cgroup.stat'
        echo pid $p";
    let script = "
        cgroup:::mkdir, cgroup:::rmdir, cgroup:::release, cgroup:::freeze, cgroup:::unfreeze, cgroup:::attach-task
        /strstr(args[1], $$1) != NULL/ { @[probename] = count(); @level[args[0]->cg_level, args[0]->cg_root] = count(); }
        cgroup:::mkdir /strstr(args[1], $$1) != NULL/
        { @right[basename(args[1]) == args[0]->cg_name && args[0]->cg_parent != 0] = count(); }
        cgroup:::mkdir /strstr(args[1], $$1) != NULL && basename(args[1]) == \"c9\"/ { printf(\"inode %d\\n\", args[0]->cg_id); }
        cgroup:::attach-task /strstr(args[1], $$1) != NULL/
        { @pid[args[3]->pr_pid, args[2]->pr_lwpid == args[3]->pr_pid, args[4]] = count(); }
        cgroup:::notify-frozen, cgroup:::notify-populated /strstr(args[1], $$1) != NULL/
        { @notify[probename, args[2], args[0]->cg_level] = count(); }
        END
        {
            printa(\"%s %@d\\n\", @); printa(\"level %d %d %@d\\n\", @level); printa(\"right %d %@d\\n\", @right);
            printa(\"pid %d %d %d %@d\\n\", @pid); printa(\"%s %d %d %@d\\n\", @notify);
        }";
    let o = group.trace(commands, script);
    let all = lines(&o);
    let starting = |word: &str| -> Vec<&str> {
        all.iter().filter_map(|l| l.strip_prefix(word)?.strip_prefix(' ')).collect()
    };
    for (probe, count) in [
        ("mkdir", "9"),
        ("rmdir", "9"),
        ("release", "9"),
        ("attach-task", "9"),
        ("freeze", "3"),
        ("unfreeze", "3"),
    ] {
        assert_eq!(starting(probe), [count], "{probe}: {o:?}");
    }
    assert_eq!(starting("level"), ["2 0 42"], "{o:?}");
    assert_eq!(starting("right"), ["1 9"], "{o:?}");
    let notified = ["notify-frozen 0 2 3", "notify-frozen 1 2 3"];
    assert!(notified.iter().all(|row| all.contains(row)), "{o:?}");
    let populated = [(0, 1, 1), (0, 2, 9), (1, 1, 1), (1, 2, 9)];
    for (value, level, count) in populated {
        let row = format!("notify-populated {value} {level} {count}");
        assert!(all.contains(&&*row), "{row}: {o:?}");
    }
    let inodes = starting("inode");
    assert!(inodes.len() == 2 && inodes[0] == inodes[1], "{o:?}");
    let pids = starting("pid");
    assert_eq!(pids.len(), 2, "{o:?}");
    assert_eq!(pids[1], format!("{} 1 1 9", pids[0]), "{o:?}");
    Pass
}

fn hierarchies_are_mounted_changed_and_unmounted_once_each_and_groups_are_renamed() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let name = format!("dt-root-{}", std::process::id());
    let mount = std::env::temp_dir().join(&name);
    std::fs::create_dir_all(&mount).unwrap();
    let at = mount.display();
    // Two hierarchies: that with groups is mounted several times, the other once.
    let (groups, options) = (format!("none,name={name}-groups"), format!("none,name={name}"));
    if let Err(why) = run(&format!("mount -t cgroup -o {groups} none {at}")) {
        let _ = std::fs::remove_dir(&mount);
        return Skip(format!("cgroups cannot be mounted: {why}"));
    }
    // A hierarchy remains while a group of it is not quite removed. It is destroyed at the next
    // chance.
    let commands = format!(
        "mkdir {at}/before; mv {at}/before {at}/after; rmdir {at}/after; umount {at}
        mount -t cgroup -o {options} none {at}; mount -o remount,{options} none {at}; umount {at}
        wait_for '! grep -q name={name}: /proc/self/cgroup'
        wait_for '! grep -q {name} /proc/self/cgroup || {{ mount -t cgroup -o {groups} none {at}; umount {at}; false; }}'"
    );
    let script = "
        cgroup:::setup-root, cgroup:::remount, cgroup:::destroy-root /args[1] == $$1/
        { @[probename, args[0]->cg_level, args[0]->cg_root > 0] = count(); }
        cgroup:::rename /args[1] == \"/after\"/ { @[probename, args[0]->cg_level, args[0]->cg_name == \"after\"] = count(); }
        END { printa(\"%s %d %d %@d\\n\", @); }";
    let o = trace_in(Path::new("/"), &commands, script, &name);
    let _ = std::fs::remove_dir(&mount);
    assert_eq!(
        lines(&o),
        ["destroy-root 0 1 1", "remount 0 1 1", "rename 1 1 1", "setup-root 0 1 1"],
        "{o:?}"
    );
    Pass
}

fn tasks_of_a_group_that_loses_its_cpus_are_transferred() -> Verdict {
    if !is_guest() {
        return Skip("in guests only: a CPU is taken away".into());
    }
    if let Some(skip) = no_types() {
        return skip;
    }
    let group = match Hierarchy::new("cpuset", "-t cgroup -o cpuset") {
        Ok(group) => group,
        Err(skip) => return skip,
    };
    let commands = "
        echo 1 > cpuset.cpus; echo 0 > cpuset.mems
        sleep 1000 & p=$!
        echo $p > cgroup.procs || exit 0
        echo 0 > /sys/devices/system/cpu/cpu1/online || exit 0
        wait_for '! grep -q . cgroup.procs'
        echo 1 > /sys/devices/system/cpu/cpu1/online
        kill -9 $p; echo pid $p";
    let script = "cgroup:::transfer-tasks /args[0]->cg_root > 0/ \
        { printf(\"%s %d %d %d\\n\", args[1], args[0]->cg_level, args[2]->pr_lwpid, args[3]->pr_pid); }";
    let o = group.trace(commands, script);
    let _ = std::fs::write("/sys/devices/system/cpu/cpu1/online", "1");
    let Some(pid) = o.out.lines().find_map(|l| l.strip_prefix("pid ")) else {
        return Skip("no CPU can be taken away here".into());
    };
    let moved = o.out.lines().filter(|l| l.starts_with('/')).collect::<Vec<_>>();
    assert_eq!(moved, [format!("/ 0 {pid} {pid}")], "{o:?}");
    Pass
}

/// A group whose memory is limited.
pub(crate) struct Memory(pub(crate) PathBuf);

impl Memory {
    /// To 16 MiB.
    pub(crate) fn new() -> Option<Memory> {
        Memory::limited("16M")
    }

    pub(crate) fn limited(most: &str) -> Option<Memory> {
        let name = format!("dt-oom-{}", std::process::id());
        let has = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
        if has.contains("memory") {
            let _ = std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
            let group = Memory(PathBuf::from("/sys/fs/cgroup").join(name));
            std::fs::create_dir(&group.0).ok()?;
            let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
            std::fs::write(group.0.join("memory.max"), most).ok()?;
            return Some(group);
        }
        let group = Memory(PathBuf::from("/sys/fs/cgroup/memory").join(name));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join("memory.limit_in_bytes"), most).ok()?;
        Some(group)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let is_gone = || std::fs::remove_dir(&self.0).is_ok() || !self.0.exists();
        // A test that fails does not wait, as a second panic would hide its message.
        if !is_gone() && !std::thread::panicking() {
            eventually("the end of the group", LIMIT, is_gone);
        }
    }
}

fn each_process_that_is_killed_for_memory_is_a_victim_once() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let Some(group) = Memory::new() else { return Skip("no memory cgroup can be made here".into()) };
    let eats = workload("eats", 64);
    let commands = format!(
        "stat -c 'inode %i' .; for n in 1 2 3; do sh -c 'echo $$ > cgroup.procs; exec {eats}' 2>/dev/null; done"
    );
    let probe = |name: &str| dtrace(&["-ln", name]).code == Some(0);
    assert!(probe("oom:::mark-victim"));
    let mark = "
        oom:::mark-victim /args[1]->pr_ppid == $target/
        { @[probename, args[0]->pr_lwpid == args[1]->pr_pid] = count(); @each[args[1]->pr_pid] = count(); }
        END { printa(\"%s %d %@d\\n\", @); printa(\"each %@d\\n\", @each); }";
    let kill = "
        oom:::kill /args[1]->pr_ppid == $target/
        {
            @[probename, args[0]->pr_lwpid == args[1]->pr_pid] = count();
            @memory[args[2]->oom_pages, args[2]->oom_points > 0 && args[2]->oom_order >= 0] = count();
            @inode[args[2]->oom_cgroup] = count();
        }
        END { printa(\"pages %d %d %@d\\n\", @memory); printa(\"inode %d\\n\", @inode); }";
    let both = format!("{mark} {kill}");
    let is_whole = probe("oom:::kill");
    let o = trace_in(
        &group.0,
        &commands,
        if is_whole { &both } else { mark },
        &format!("dt-oom-{}", std::process::id()),
    );
    let all = lines(&o);
    assert!(all.contains(&"mark-victim 1 3"), "{o:?}");
    assert_eq!(all.iter().filter(|l| **l == "each 1").count(), 3, "{o:?}");
    if is_whole {
        assert!(all.contains(&"kill 1 3") && all.contains(&"pages 4096 1 3"), "{o:?}");
        let inodes: Vec<&&str> = all.iter().filter(|l| l.starts_with("inode ")).collect();
        assert!(inodes.len() == 2 && inodes[0] == inodes[1], "{o:?}");
    }
    Pass
}

fn changes_of_the_score_have_the_process_and_the_score() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let commands = "n=1; while [ $n -le 50 ]; do echo $n > /proc/self/oom_score_adj; n=$((n+1)); done";
    let script = "oom:::score-adj-update /pid == $target/ \
        { printf(\"%d %d\\n\", args[0]->pr_lwpid == tid && args[1]->pr_pid == pid, args[2]); }";
    let o = trace_in(Path::new("/"), commands, script, &format!("dt-score-{}", std::process::id()));
    let expected: Vec<String> = (1..=50).map(|n| format!("1 {n}")).collect();
    let all: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    assert_eq!(all, expected, "{o:?}");
    Pass
}
