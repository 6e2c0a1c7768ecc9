//! Containers and pods by the names of control groups, with groups of the test's own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{no_clock, no_types};
use crate::stable_cgroup::Hierarchy;
use crate::tool::{dtrace, workload};

tests! {
    each_form_of_a_group_has_its_container_and_its_pod
    names_are_found_whatever_strings_hold
    a_container_of_a_hierarchy_of_version_1_is_found_beside_a_unit_of_the_unified_one
    a_container_without_a_form_is_the_root_of_its_namespace
    a_container_restricts_probes_to_what_runs_in_it
    clocks_fire_with_a_container_and_samples_are_those_of_its_threads
    what_fires_in_an_interrupt_is_in_no_container
    a_container_that_starts_later_is_traced_by_the_name_that_docker_has
}

/// What containers and pods the paths of groups are of.
const FORMS: &str = include_str!("../../../proc/src/containers/forms.txt");

pub(crate) const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The paths, each with its container and its pod, empty where there is none.
fn forms() -> Vec<[String; 3]> {
    let of_line = |line: &str| -> [String; 3] {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("ID", ID)).collect();
        let [path, id, pod] = words.try_into().unwrap();
        [path, id, pod].map(|word| if word == "-" { String::new() } else { word })
    };
    FORMS.lines().filter(|line| !line.starts_with('#')).map(of_line).collect()
}

/// How the hierarchies are mounted in which a process can be in a container: the unified one, and
/// those of version 1 that this machine has.
fn hierarchies() -> Vec<&'static str> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let has = |name: &str| own.lines().any(|line| line.split(':').nth(1) == Some(name));
    let old = [("pids", "-t cgroup -o pids"), ("memory", "-t cgroup -o memory")];
    let old = old.into_iter().filter(|(name, _)| has(name)).map(|(_, options)| options);
    std::iter::once("-t cgroup2").chain(old).collect()
}

/// A script in which programs run in groups, each with as many calls of getppid as it says. It is
/// removed at the end.
pub(crate) struct Script(PathBuf);

impl Script {
    pub(crate) fn new(test: &str, lines: impl IntoIterator<Item = (String, u32)>) -> Script {
        let file = std::env::temp_dir().join(format!("dt-{test}-{}.sh", std::process::id()));
        let line = |(dirs, count): (String, u32)| {
            format!(
                "mkdir -p {dirs} || exit 8\n\
                 sh -c 'for d; do echo 0 >\"$d/cgroup.procs\" || exit 7; done; exec {}' sh {dirs} || exit 7\n",
                workload("getppid", count)
            )
        };
        std::fs::write(&file, lines.into_iter().map(line).collect::<String>()).unwrap();
        Script(file)
    }

    /// Replaces its text.
    pub(crate) fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    pub(crate) fn command(&self) -> String {
        format!("sh {}", self.0.display())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn each_form_of_a_group_has_its_container_and_its_pod() -> Verdict {
    // row builtin.cgroupname, builtin.containerid, builtin.poduid
    if let Some(skip) = no_types() {
        return skip;
    }
    for options in hierarchies() {
        let hierarchy = match Hierarchy::new("forms", options) {
            Ok(hierarchy) => hierarchy,
            Err(skip) => return skip,
        };
        let (top, forms) = (hierarchy.group().display().to_string(), forms());
        let lines = forms.iter().zip(100..).map(|([path, ..], count)| (format!("'{top}{path}'"), count));
        let file = Script::new("forms", lines);
        let script = format!(
            "syscall::getppid:entry /progenyof($target)/ {{ @[cgroupname, containerid, poduid] = count(); }}
             syscall::getppid:entry /progenyof($target) && containerid == \"{ID}\"/ {{ @id = count(); }}
             syscall::getppid:entry /progenyof($target) && poduid != \"\"/ {{ @pods = count(); }}
             END {{ printa(\"%s|%s|%s|%@d\\n\", @); printa(\"id %@d\\n\", @id); printa(\"pods %@d\\n\", @pods); }}"
        );
        let o = dtrace(&["-q", "-c", &file.command(), "-n", &script]).code(0);
        let mut expected: BTreeMap<String, u32> = BTreeMap::new();
        let (mut of_id, mut of_pods) = (0, 0);
        for ([path, id, pod], count) in forms.iter().zip(100..) {
            let name = path.rsplit('/').next().unwrap();
            *expected.entry(format!("{name}|{id}|{pod}")).or_default() += count;
            of_id += if id == ID { count } else { 0 };
            of_pods += if pod.is_empty() { 0 } else { count };
        }
        for (key, count) in expected {
            let line = format!("{key}|{count}");
            assert!(o.out.lines().any(|l| l == line), "{options}: {line}: {o:?}");
        }
        for line in [format!("id {of_id}"), format!("pods {of_pods}")] {
            assert!(o.out.lines().any(|l| l == line), "{options}: {line}: {o:?}");
        }
    }
    Pass
}

fn names_are_found_whatever_strings_hold() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let hierarchy = match Hierarchy::new("strsize", "-t cgroup2") {
        Ok(hierarchy) => hierarchy,
        Err(skip) => return skip,
    };
    let path = format!(
        "{}/kubepods-burstable-pod0123abcd_4567_89ab_cdef_0123456789ab.slice:cri-containerd:{ID}",
        hierarchy.group().display()
    );
    let file = Script::new("strsize", [(path, 12)]);
    let script = "syscall::getppid:entry /progenyof($target)/ { @[containerid, poduid] = count(); }
        END { printa(\"%s %s %@d\\n\", @); }";
    for (strsize, id, pod) in
        [("20", &ID[..19], "0123abcd-4567-89ab-"), ("32", &ID[..31], "0123abcd-4567-89ab-cdef-0123456")]
    {
        let option = format!("strsize={strsize}");
        let o = dtrace(&["-qx", &option, "-c", &file.command(), "-n", script]).code(0);
        let line = format!("{id} {pod} 12");
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    Pass
}

fn a_container_of_a_hierarchy_of_version_1_is_found_beside_a_unit_of_the_unified_one() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    if !hierarchies().contains(&"-t cgroup -o pids") {
        return Skip("no hierarchy of version 1".into());
    }
    let (new, old) =
        match (Hierarchy::new("hybrid2", "-t cgroup2"), Hierarchy::new("hybrid1", "-t cgroup -o pids")) {
            (Ok(new), Ok(old)) => (new, old),
            (Err(skip), _) | (_, Err(skip)) => return skip,
        };
    let (unit, box_) = (
        format!("{}/engine.service", new.group().display()),
        format!("{}/docker/{ID}", old.group().display()),
    );
    let outside = format!("{}/outside", old.group().display());
    let lines = [(format!("{unit} {box_}"), 30), (format!("{unit} {outside}"), 4)];
    let file = Script::new("hybrid", lines);
    let script = "syscall::getppid:entry /progenyof($target)/ { @[cgroupname, containerid] = count(); }
        END { printa(\"%s|%s|%@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &file.command(), "-n", script]).code(0);
    for line in [format!("{ID}|{ID}|30"), "outside||4".into()] {
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    Pass
}

fn a_container_without_a_form_is_the_root_of_its_namespace() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let hierarchy = match Hierarchy::new("namespace", "-t cgroup2") {
        Ok(hierarchy) => hierarchy,
        Err(skip) => return skip,
    };
    let top = hierarchy.group().display().to_string();
    let file = std::env::temp_dir().join(format!("dt-namespace-{}.sh", std::process::id()));
    let line = |name: &str, count: u32| {
        format!(
            "mkdir {top}/{name} {top}/{name}/below || exit 8\n\
             sh -c 'echo 0 >{top}/{name}/cgroup.procs || exit 7
                 exec unshare --cgroup sh -c \"echo 0 >{top}/{name}/below/cgroup.procs || exit 7; exec {}\"' || exit 7\n",
            workload("getppid", count)
        )
    };
    std::fs::write(&file, line("box", 21) + &line("web.service", 9)).unwrap();
    let script = "syscall::getppid:entry /progenyof($target)/ { @[cgroupname, containerid] = count(); }
        END { printa(\"%s|%s|%@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &format!("sh {}", file.display()), "-n", script]);
    let _ = std::fs::remove_file(&file);
    if o.err.contains("unshare:") {
        return Skip("no namespace of control groups can be made".into());
    }
    let o = o.code(0);
    for line in ["below|box|21", "below||9"] {
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    Pass
}

const WAIT: &str = "exec cat >/dev/null";

/// A process that is in a group until it is dropped.
pub(crate) struct Waiting(pub(crate) Child);

impl Waiting {
    pub(crate) fn start(group: &str, command: &str) -> Waiting {
        let text = format!("echo 0 >\"$1/cgroup.procs\" && echo ready && {command}");
        let mut child = Command::new("sh")
            .args(["-c", &text, "sh", group])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Waiting(child)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_container_restricts_probes_to_what_runs_in_it() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let id = format!("{:08x}{}", std::process::id(), &ID[8..]);
    for options in hierarchies() {
        let hierarchy = match Hierarchy::new("restrict", options) {
            Ok(hierarchy) => hierarchy,
            Err(skip) => return skip,
        };
        let top = hierarchy.group().display().to_string();
        let (inside, outside) = (format!("{top}/docker-{id}.scope"), format!("{top}/docker-{ID}.scope"));
        for dir in [&inside, &outside] {
            std::fs::create_dir(dir).unwrap();
        }
        // The last one is made while it is traced.
        let lines = [(inside.clone(), 40), (outside.clone(), 7), (format!("{inside}/later/and/deeper"), 30)];
        let file = Script::new("restrict", lines);
        let script = "
            BEGIN { printf(\"begin\\n\"); }
            END, syscall::getppid:entry /execname != \"sh\"/ { @both[probename] = count(); }
            syscall::getppid:entry /execname != \"sh\"/ { @[cgroupname == \"deeper\"] = count(); }
            END { printa(\"%s %@d\\n\", @both); printa(\"deeper %d: %@d\\n\", @); }";
        let option = format!("container={}", &id[..12]);
        let o = dtrace(&["-qx", &option, "-c", &file.command(), "-n", script]).code(0);
        for line in ["begin", "entry 70", "END 1", "deeper 0: 40", "deeper 1: 30"] {
            assert!(o.out.lines().any(|l| l == line), "{options}: {line}: {o:?}");
        }
        // Functions of many processes are those of its processes.
        let (one, other) = (Waiting::start(&inside, WAIT), Waiting::start(&outside, WAIT));
        let of = |one: &Waiting| {
            let selection = format!("processes={}", one.0.id());
            let script = "BEGIN { exit(0); } pid*:libc.so.6:getpid:entry {}";
            dtrace(&["-qx", &selection, "-x", &option, "-n", script])
        };
        of(&one).code(0);
        let o = of(&other).code(1);
        assert!(o.err.contains("pid*:libc.so.6:getpid:entry"), "{options}: {o:?}");
        drop((one, other));
        // Two groups that have its name are never taken for one.
        std::fs::create_dir_all(format!("{top}/stranger/docker-{id}.scope")).unwrap();
        let o = dtrace(&["-x", &option, "-n", "BEGIN { exit(0); }"]).code(1);
        assert!(o.err.contains(&format!("\"{}\" names 2 control groups", &id[..12])), "{o:?}");
    }
    let o = dtrace(&["-x", "container=there-is-none", "-n", "BEGIN { exit(0); }"]).code(1);
    assert!(o.err.contains("no container \"there-is-none\" runs: take its id"), "{o:?}");
    Pass
}

fn clocks_fire_with_a_container_and_samples_are_those_of_its_threads() -> Verdict {
    if let Some(skip) = no_types().or_else(no_clock) {
        return skip;
    }
    let hierarchy = match Hierarchy::new("clock", "-t cgroup2") {
        Ok(hierarchy) => hierarchy,
        Err(skip) => return skip,
    };
    let id = format!("{:08x}{}", std::process::id(), &ID[8..]);
    let top = hierarchy.group().display().to_string();
    let (inside, outside) = (format!("{top}/docker-{id}.scope"), format!("{top}/docker-{ID}.scope"));
    for dir in [&inside, &outside] {
        std::fs::create_dir(dir).unwrap();
    }
    // Both take all the time that they get.
    let _spinning = [inside, outside].map(|dir| Waiting::start(&dir, "while :; do :; done"));
    let script = "profile-997 { @[containerid == $$1] = count(); samples++; }
        tick-10ms { ticks++; }
        tick-10ms /ticks > 5 && samples > 20/ { exit(0); }
        END { printa(\"inside %d %@d\\n\", @); }";
    let o = dtrace(&["-qx", &format!("container={id}"), "-n", script, &id]).code(0);
    assert!(o.out.contains("inside 1 ") && !o.out.contains("inside 0 "), "{o:?}");
    Pass
}

fn what_fires_in_an_interrupt_is_in_no_container() -> Verdict {
    if let Some(skip) = no_types().or_else(no_clock) {
        return skip;
    }
    let hierarchy = match Hierarchy::new("interrupt", "-t cgroup2") {
        Ok(hierarchy) => hierarchy,
        Err(skip) => return skip,
    };
    let id = format!("{:08x}{}", std::process::id(), &ID[8..]);
    let inside = format!("{}/docker-{id}.scope", hierarchy.group().display());
    std::fs::create_dir(&inside).unwrap();
    let _spinning = Waiting::start(&inside, "while :; do :; done");
    // Without the option they fire there.
    let script =
        "rawtp:timer::hrtimer_expire_entry /containerid == $$1/ { printf(\"level %d\", ipl); exit(0); }";
    let o = dtrace(&["-qn", script, &id]).code(0);
    if o.out.trim() == "level 0" {
        return Skip("this kernel does not tell what runs in an interrupt".into());
    }
    assert_eq!(o.out.trim(), "level 2", "{o:?}");
    let script = "rawtp:timer::hrtimer_expire_entry { interrupts++; } profile-997 { samples++; }
        tick-10ms /samples > 20/ { printf(\"interrupts %d\\n\", interrupts); exit(0); }";
    let o = dtrace(&["-qx", &format!("container={id}"), "-n", script]).code(0);
    assert_eq!(o.out.trim(), "interrupts 0", "{o:?}");
    Pass
}

/// A directory that is removed at the end, with those above it that it made.
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    pub(crate) fn new(path: &Path) -> Result<Made, Verdict> {
        let missing = path.ancestors().take_while(|dir| !dir.exists()).map(Path::to_path_buf).collect();
        let made = std::fs::create_dir_all(path).map(|()| Made(missing));
        made.map_err(|e| Skip(format!("{}: {e}", path.display())))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some((first, above)) = self.0.split_first() {
            let _ = std::fs::remove_dir_all(first);
            above.iter().for_each(|dir| _ = std::fs::remove_dir(dir));
        }
    }
}

fn a_container_that_starts_later_is_traced_by_the_name_that_docker_has() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let name = format!("dt-web-{}", std::process::id());
    let id = format!("d0c{:08x}{}", std::process::id(), &ID[11..]);
    let config = PathBuf::from("/var/lib/docker/containers").join(&id);
    let (_made, hierarchy) = match (Made::new(&config), Hierarchy::new("docker", "-t cgroup2")) {
        (Ok(made), Ok(hierarchy)) => (made, hierarchy),
        (Err(skip), _) | (_, Err(skip)) => return skip,
    };
    let text = format!(
        "{{\"StreamConfig\":{{}},\"Config\":{{\"Name\":\"/no\"}},\"ID\":\"{id}\",\"Name\":\"/{name}\"}}"
    );
    std::fs::write(config.join("config.v2.json"), text).unwrap();
    let of = |id: &str| format!("{}/docker-{id}.scope", hierarchy.group().display());
    let file = Script::new("docker", [(of(&id), 25), (of(ID), 9)]);
    let script = "syscall::getppid:entry /execname != \"sh\"/ { @[containerid] = count(); }
        END { printa(\"%s %@d\\n\", @); }";
    let option = format!("container={name}");
    let o = dtrace(&["-qx", &option, "-c", &file.command(), "-n", script]).code(0);
    assert_eq!(o.out.trim(), format!("{id} 25"), "{o:?}");
    Pass
}
