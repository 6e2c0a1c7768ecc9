//! Containers and pods by the names of control groups, with groups of the test's own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::stable_cgroup::Hierarchy;
use crate::tool::{dtrace, workload};

tests! {
    each_form_of_a_group_has_its_container_and_its_pod
    names_are_found_whatever_strings_hold
    a_container_of_a_hierarchy_of_version_1_is_found_beside_a_unit_of_the_unified_one
    a_container_without_a_form_is_the_root_of_its_namespace
}

/// What containers and pods the paths of groups are of.
const FORMS: &str = include_str!("container_forms.txt");

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
