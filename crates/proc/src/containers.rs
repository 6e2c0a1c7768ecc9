//! Containers and pods by the paths of control groups, as `containerid` and `poduid` know them
//! (`bpf-codegen/src/select/subr/container.rs` lists the forms; one test file has a path of each
//! for both). No daemon is asked.
//!
//! Who may make control groups chooses their names: a name says what a group is called, and proves
//! nothing. So what names a container is never guessed: [`Group`]s that have the same name are
//! several, and the user chooses.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Control groups that are looked at, at most.
const MOST: usize = 1 << 17;

/// Digits of an id that a manager of containers gives.
const ID: usize = 64;

/// True for the whole id that a manager of containers gives.
pub fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The last component of a path, and that before it.
fn last_two(path: &str) -> (&str, &str) {
    let mut parts = path.rsplit('/');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// The container whose own group has this path.
pub fn container_at(path: &str) -> Option<&str> {
    let (name, above) = last_two(path);
    let scope = name.strip_suffix(".scope");
    let by_id = || {
        let rest = scope.unwrap_or(name);
        let (before, id) = rest.split_at_checked(rest.len().checked_sub(ID)?)?;
        let apart = before.is_empty() || before.ends_with(['-', ':']);
        (apart && is_id(id) && !before.ends_with("conmon-")).then_some(id)
    };
    let in_scope = |prefix: &str| scope?.strip_prefix(prefix);
    let named = by_id()
        .or_else(|| name.strip_prefix("lxc.payload."))
        .or_else(|| in_scope("machine-").filter(|name| !name.starts_with("qemu\\x2d")))
        .or_else(|| in_scope("crun-"))
        .or_else(|| in_scope("runc-"))
        .or_else(|| name.strip_prefix("systemd-nspawn@")?.strip_suffix(".service"))
        .filter(|id| !id.is_empty());
    named.or_else(|| (matches!(above, "lxc" | "lxc.payload") && !name.is_empty()).then_some(name))
}

/// The uid of the pod whose own group has this path.
pub fn pod_at(path: &str) -> Option<String> {
    let (name, above) = last_two(path);
    if matches!(above, "kubepods" | "burstable" | "besteffort") {
        return Some(name.strip_prefix("pod")?.to_owned()).filter(|uid| !uid.is_empty());
    }
    let rest = name.split_once(":cri-containerd:").map_or(name, |(slice, _)| slice);
    let (before, uid) = rest.strip_suffix(".slice")?.rsplit_once("-pod")?;
    let of_pods =
        ["kubepods", "kubepods-burstable", "kubepods-besteffort"].iter().any(|end| before.ends_with(end));
    (of_pods && matches!(uid.len(), 32 | 36)).then(|| uid.replace('_', "-"))
}

/// A hierarchy of control groups by which a process can be in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// That of version 2.
    Unified,
    /// That of version 1 with the controller `pids`.
    Pids,
    /// That of version 1 with the controller `memory`.
    Memory,
}

/// A control group of the running system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its path from the root of its hierarchy.
    pub path: String,
    /// The number of groups above it.
    pub level: usize,
    /// Its number in the kernel.
    pub id: u64,
    /// Where it is.
    pub hierarchy: Hierarchy,
}

/// Where the hierarchies are mounted, for the text of `/proc/self/mounts`.
fn hierarchies(mounts: &str) -> Vec<(String, Hierarchy)> {
    let mut found: Vec<(String, Hierarchy)> = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let has = |controller: &str| kind == "cgroup" && options.split(',').any(|word| word == controller);
        let which = [
            (kind == "cgroup2", Hierarchy::Unified),
            (has("pids"), Hierarchy::Pids),
            (has("memory"), Hierarchy::Memory),
        ];
        for (_, which) in which.into_iter().filter(|(is, _)| *is) {
            if !found.iter().any(|(_, known)| *known == which) {
                found.push((at.to_owned(), which));
            }
        }
    }
    found
}

/// Every control group in which processes of a container may be. The error says why their numbers
/// cannot be known.
pub fn groups() -> Result<Vec<Group>, String> {
    let mounts = fs::read("/proc/self/mounts").unwrap_or_default();
    let hierarchies = hierarchies(&String::from_utf8_lossy(&mounts));
    if hierarchies.is_empty() {
        return Err("no control groups are mounted: they are in /sys/fs/cgroup".into());
    }
    let mut all = Vec::new();
    for (mount, hierarchy) in hierarchies {
        // The root of a hierarchy has the number 1: elsewhere levels are those of a namespace.
        if fs::metadata(&mount).ok().is_none_or(|m| m.ino() != 1) {
            return Err(format!(
                "{} is not the root of its hierarchy: the control groups of the host are needed",
                diagnostics::control::name(mount.as_bytes())
            ));
        }
        let mut rest = vec![(mount, String::new(), 0)];
        while let Some((dir, path, level)) = rest.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let Ok(meta) = entry.metadata() else { continue };
                if !meta.is_dir() {
                    continue;
                }
                if all.len() >= MOST {
                    return Err(format!("there are more than {MOST} control groups"));
                }
                let (dir, path) = (format!("{dir}/{name}"), format!("{path}/{name}"));
                all.push(Group { path: path.clone(), level: level + 1, id: meta.ino(), hierarchy });
                rest.push((dir, path, level + 1));
            }
        }
    }
    Ok(all)
}

/// The pods whose logs are in this directory (`NAMESPACE_NAME_UID/`): NAMESPACE/NAME by uid. What
/// has other characters than Kubernetes allows is left out, so that they are safe in any text. Of
/// more than `most` those that came last.
pub fn pods(logs: &Path, most: usize) -> BTreeMap<String, String> {
    let is_plain = |text: &&str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
    };
    let of_directory = |name: &str| {
        let mut parts = name.splitn(3, '_');
        let mut next = || parts.next().filter(is_plain);
        let (namespace, name, uid) = (next()?, next()?, next()?);
        Some((uid.to_owned(), format!("{namespace}/{name}")))
    };
    let entries = fs::read_dir(logs).into_iter().flatten().flatten().take(MOST);
    let dated = |entry: fs::DirEntry| {
        let pod = of_directory(entry.file_name().to_str()?)?;
        Some((entry.metadata().and_then(|m| m.modified()).ok(), pod))
    };
    let mut all: Vec<_> = entries.filter_map(dated).collect();
    all.sort();
    all.into_iter().rev().take(most).map(|(_, pod)| pod).collect()
}

/// The ids of the containers that have this name in Docker's files (`ID/config.v2.json`).
pub fn of_docker(directory: &Path, name: &str) -> Vec<String> {
    let ids = fs::read_dir(directory).into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().into_string().ok()).filter(|id| is_id(id));
    let has_name = |id: &String| {
        let text = fs::read(directory.join(id).join("config.v2.json")).unwrap_or_default();
        member(&text, "Name").is_some_and(|found| found.strip_prefix('/').unwrap_or(&found) == name)
    };
    ids.take(MOST).filter(has_name).collect()
}

/// A string of the outermost object of a JSON document. Names of containers have no character that
/// is written otherwise than it is; of a string that has one nothing is returned.
fn member(json: &[u8], key: &str) -> Option<String> {
    let (mut depth, mut at, mut before) = (0_usize, 0, None);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let from = at;
                while *json.get(at)? != b'"' {
                    at += if json.get(at) == Some(&b'\\') { 2 } else { 1 };
                }
                let text = json.get(from..at)?;
                at += 1;
                if depth == 1 && before.take() == Some(key.as_bytes()) {
                    let text = std::str::from_utf8(text).ok()?;
                    return (!text.contains('\\')).then(|| text.to_owned());
                }
                // A key is followed by a colon.
                let rest = json.get(at..)?.trim_ascii_start();
                before = (depth == 1 && rest.first() == Some(&b':')).then_some(text);
            }
            b',' => before = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// The container of a path: that of its innermost group that is one's own. The same for a pod.
    fn of(path: &str) -> (Option<String>, Option<String>) {
        let path = path.replace("ID", ID);
        let ends = || path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
        let ups: Vec<&str> = ends().filter_map(|end| path.get(..end)).collect();
        let container = ups.iter().rev().find_map(|path| container_at(path));
        let pod = ups.iter().rev().find_map(|path| pod_at(path));
        (container.map(|id| id.replace(ID, "ID")), pod)
    }

    #[test]
    fn each_form_of_a_path_has_its_container_and_its_pod() {
        for line in include_str!("containers/forms.txt").lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.split_whitespace();
            let mut next = || parts.next().unwrap();
            let (path, id, pod) = (next(), next(), next());
            let some = |text: &str| (text != "-").then(|| text.to_owned());
            assert_eq!(of(path), (some(id), some(pod)), "{line}");
        }
    }

    #[test]
    fn hierarchies_are_the_unified_one_and_those_of_pids_and_memory() {
        use Hierarchy::{Memory, Pids, Unified};
        let v1 = "cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/pm cgroup rw,pids,memory 0 0\n\
                  cgroup2 /c/u cgroup2 rw 0 0\ncgroup2 /again cgroup2 rw 0 0\n";
        assert_eq!(
            hierarchies(v1),
            [("/c/pm".into(), Pids), ("/c/pm".into(), Memory), ("/c/u".into(), Unified)]
        );
        assert_eq!(hierarchies("proc /proc proc rw 0 0\n"), []);
    }

    #[test]
    fn a_name_is_that_of_the_outermost_object() {
        let text = br#"{"Config":{"Name":"/no"},"a":["Name","/no"], "b\"":"Name","Name" : "/web","c":1}"#;
        assert_eq!(member(text, "Name").as_deref(), Some("/web"));
        let wrong = [
            "",
            "{",
            "{\"Name\"",
            "{\"Name\":",
            "{\"Name\":1,\"x\":\"/y\"}",
            "}",
            "{\"Name\":\"\\",
            "{\"Name\":\"/a\\u0041\"}",
        ];
        for text in wrong {
            assert_eq!(member(text.as_bytes(), "Name"), None, "{text}");
        }
    }

    #[test]
    fn pods_have_the_names_of_their_logs() {
        let dir = std::env::temp_dir().join(format!("proc-pods-{}", std::process::id()));
        for name in
            ["kube-system_etcd-a.b_0123", "x_bad\"name_1", "short_2", "_empty_3", "ns_pod_", "a_b_c_d"]
        {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let (found, fewer) = (pods(&dir, 10), pods(&dir, 0));
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("0123".into(), "kube-system/etcd-a.b".into())]);
        assert!(fewer.is_empty() && pods(&dir, 10).is_empty());
    }

    #[test]
    fn containers_of_docker_have_the_names_of_their_files() {
        let dir = std::env::temp_dir().join(format!("proc-containers-{}", std::process::id()));
        let config = dir.join(ID);
        fs::create_dir_all(&config).unwrap();
        fs::create_dir_all(dir.join("other")).unwrap();
        fs::write(config.join("config.v2.json"), r#"{"Name":"/web"}"#).unwrap();
        assert_eq!((of_docker(&dir, "web"), of_docker(&dir, "we")), (vec![ID.to_owned()], vec![]));
        assert!(of_docker(&dir.join("none"), "web").is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }
}
