//! Which processes are meant: by id, name, user and cgroup.
//!
//! ```text
//!  12,345            these processes
//!  name=GLOB         whose name is this: what D calls execname
//!  user=NAME         of this user, by name or number: what D calls uid
//!  cgroup=PATH       in this cgroup (v2), or in one below it
//! ```
//!
//! Terms of one kind widen a selection, and kinds narrow it, as in `pgrep`:
//! `name=a,name=b,user=www` are the processes of `www` with one of two names. A selection of
//! nothing is every process.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use diagnostics::glob::glob_matches;

use crate::stat::parse_stat;
use crate::survivor::thread_with_memory;

/// The processes that are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pids: Vec<u32>,
    names: Vec<String>,
    users: Vec<u32>,
    cgroups: Vec<String>,
    /// Groups of containers, which narrow those above.
    containers: Option<Vec<String>>,
}

impl Selection {
    /// The selection of these processes.
    pub fn of(pids: impl IntoIterator<Item = u32>) -> Selection {
        Selection { pids: pids.into_iter().collect(), ..Selection::default() }
    }

    /// Reads a selection. The error says what is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Selection, String> {
        let mut selection = Selection::default();
        for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            match term.split_once('=') {
                None => match term.parse() {
                    Ok(pid) if pid > 0 => selection.pids.push(pid),
                    _ => {
                        return Err(format!(
                            "\"{term}\" is no process id, and none of name=, user= and cgroup="
                        ));
                    }
                },
                Some((kind @ ("name" | "user" | "cgroup"), "")) => {
                    return Err(format!("{kind}= needs a value"));
                }
                Some(("name", name)) => selection.names.push(name.into()),
                Some(("user", user)) => selection.users.push(user_id(user)?),
                Some(("cgroup", path)) => selection.cgroups.push(cgroup(path)),
                Some((kind, _)) => {
                    return Err(format!(
                        "processes are not selected by \"{kind}\", but by name=, user=, cgroup= and process ids"
                    ));
                }
            }
        }
        Ok(selection)
    }

    /// Narrows it to the processes that are in one of these control groups, or in one below it.
    #[must_use]
    pub fn narrowed_to(self, groups: Vec<String>) -> Selection {
        Selection { containers: Some(groups), ..self }
    }

    /// True if every process is meant.
    pub fn is_empty(&self) -> bool {
        *self == Selection::default()
    }

    /// The processes that run now and are meant, in the order of their ids. Threads of the kernel,
    /// what has ended and this program are not among them, unless they are named by their ids.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let narrows = !(self.names.is_empty() && self.users.is_empty() && self.cgroups.is_empty())
            || self.containers.is_some();
        let mut found = match self.pids.is_empty() {
            false => self.pids.clone(),
            true => {
                let mut all = Vec::new();
                for entry in std::fs::read_dir("/proc")? {
                    let pid = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
                    all.extend(pid.filter(|pid| runs_a_program(*pid)));
                }
                all
            }
        };
        if narrows {
            found.retain(|pid| self.narrows_to(*pid).unwrap_or(false));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// True if a process has one of the names, is of one of the users and in one of the cgroups.
    fn narrows_to(&self, pid: u32) -> io::Result<bool> {
        let read = |file: &str| std::fs::read(Path::new("/proc").join(pid.to_string()).join(file));
        if !self.names.is_empty() {
            let comm = read("comm")?;
            let comm = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned();
            if !self.names.iter().any(|name| glob_matches(name, &comm)) {
                return Ok(false);
            }
        }
        if !self.users.is_empty() && !real_user(&read("status")?).is_some_and(|u| self.users.contains(&u)) {
            return Ok(false);
        }
        let of_cgroups = Some(&self.cgroups).filter(|paths| !paths.is_empty());
        for paths in [of_cgroups, self.containers.as_ref()].into_iter().flatten() {
            let text = read("cgroup")?;
            let text = String::from_utf8_lossy(&text);
            if !paths.iter().any(|path| is_in_cgroup(&text, path)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// True for a process that runs a program of its own: no thread of the kernel, nothing that has
/// ended, not this process or its reader of symbols.
fn runs_a_program(pid: u32) -> bool {
    let me = std::process::id();
    let of_this_program = || {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok().and_then(|text| parse_stat(&text));
        stat.is_some_and(|stat| stat.parent == me && stat.name == b"dtrace-symbols")
    };
    let exe = || std::fs::read_link(format!("/proc/{}/exe", thread_with_memory(pid)));
    pid != me && exe().is_ok() && !of_this_program()
}

/// The number of a user. Who is not in `/etc/passwd` may be known to a service of names (LDAP,
/// systemd): the C library's tool asks them, whose modules do not belong in this process.
fn user_id(user: &str) -> Result<u32, String> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let in_file = || listed(&std::fs::read("/etc/passwd").ok()?, user);
    let by_service = || {
        let mut command = Command::new("getent");
        command.args(["passwd", "--", user]).stdin(Stdio::null()).stderr(Stdio::null());
        listed(&bpf_sys::with_original_fd_limit(&mut command).output().ok()?.stdout, user)
    };
    in_file()
        .or_else(by_service)
        .ok_or_else(|| format!("there is no user \"{user}\"; the number of a user is taken too"))
}

/// The number of a user in lines of `/etc/passwd`.
pub(crate) fn listed(lines: &[u8], user: &str) -> Option<u32> {
    let text = String::from_utf8_lossy(lines);
    let line = text.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':'));
    line?.split(':').nth(1)?.parse().ok()
}

/// The path of a cgroup from the root of its hierarchy.
fn cgroup(path: &str) -> String {
    let mounts = std::fs::read("/proc/self/mounts").unwrap_or_default();
    below_mount(path, &String::from_utf8_lossy(&mounts))
}

/// The path of a cgroup, given by the path of its directory or from the root of its hierarchy.
fn below_mount(path: &str, mounts: &str) -> String {
    let below = |(at, _)| path.strip_prefix(at).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    // Of nested mounts the deepest.
    let path = cgroup_mounts(mounts).filter_map(below).min_by_key(|rest| rest.len()).unwrap_or(path);
    format!("/{}", path.trim_matches('/'))
}

/// Where hierarchies of cgroups are mounted, each with the kind of its file system.
fn cgroup_mounts(mounts: &str) -> impl Iterator<Item = (&str, &str)> {
    let of_line = |line| {
        let mut words = str::split(line, ' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        kind.starts_with("cgroup").then_some((at, kind))
    };
    mounts.lines().filter_map(of_line)
}

/// Where cgroups of version 2 are, or else those of one hierarchy.
pub(crate) fn cgroup_mount(mounts: &str) -> Option<String> {
    let of_kind =
        |kind: &str| cgroup_mounts(mounts).find(|(_, found)| *found == kind).map(|(at, _)| at.to_owned());
    of_kind("cgroup2").or_else(|| of_kind("cgroup"))
}

/// The user who started a process, from `/proc/PID/status`.
pub fn real_user(status: &[u8]) -> Option<u32> {
    let status = String::from_utf8_lossy(status);
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().next()?.parse().ok()
}

/// True if the lines of `/proc/PID/cgroup` have this path or one below it.
pub fn is_in_cgroup(lines: &str, path: &str) -> bool {
    lines.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|at| {
        let below = at.strip_prefix(path.trim_end_matches('/'));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_one_kind_widen_and_kinds_narrow() {
        let me = std::process::id();
        let name = std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_string();
        let selected = |text: &str| Selection::parse(text).unwrap().processes().unwrap();
        let uid = real_user(&std::fs::read("/proc/self/status").unwrap()).unwrap();
        assert_eq!(selected(&format!("{me}")), [me]);
        assert_eq!(selected(&format!("{me}, {me},1")), [1, me]);
        assert_eq!(selected(&format!("{me},1,name={name}")), [me]);
        assert_eq!(selected(&format!("{me},1,name=no,name={}*", &name[..name.len() - 1])), [me]);
        assert_eq!(selected(&format!("{me},user={uid},name={name}")), [me]);
        assert!(selected(&format!("{me},user={},name={name}", uid + 1)).is_empty());
        assert!(selected(&format!("{me},cgroup=/there/is/none")).is_empty());
        assert_eq!(selected(&format!("{me},cgroup=/")), [me]);
        assert_eq!(selected("user=root,1"), [1]);
        let narrowed = |groups: &[&str]| {
            let one = Selection::parse(&format!("{me},cgroup=/")).unwrap();
            one.narrowed_to(groups.iter().map(|path| (*path).into()).collect()).processes().unwrap()
        };
        assert_eq!((narrowed(&["/there/is/none", "/"]), narrowed(&["/there/is/none"])), (vec![me], vec![]));
        assert!(narrowed(&[]).is_empty());
    }

    #[test]
    fn every_process_is_one_that_runs_a_program_and_not_this_one() {
        let all = Selection::parse("").unwrap();
        assert!(all.is_empty() && Selection::of([]).is_empty());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let all = all.processes().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // The second process is the parent of the kernel's threads, except in a container.
        let threads = std::fs::read_link("/proc/2/exe").is_err();
        assert!(all.contains(&child.id()) && !all.contains(&std::process::id()));
        assert!(!threads || !all.contains(&2));
    }

    #[test]
    fn a_cgroup_is_that_of_a_process_or_above_it() {
        let lines = "1:cpu:/a\n0::/system.slice/x.service/deep\n";
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        for path in [
            "/sys/fs/cgroup/unified/system.slice/x.service",
            "system.slice",
            "/system.slice/x.service/deep/",
            "/",
            "/a",
        ] {
            assert!(is_in_cgroup(lines, &below_mount(path, mounts)), "{path}");
        }
        for path in ["/system.slice/x", "/system", "/b", "/system.slice/x.service/deep/er"] {
            assert!(!is_in_cgroup(lines, &below_mount(path, mounts)), "{path}");
        }
    }

    #[test]
    fn a_user_has_the_number_of_his_line() {
        let lines = b"root:x:0:0::/:/bin/sh\nro:x:7:7::/:/bin/sh\nodd:x:\n";
        assert_eq!(
            (listed(lines, "root"), listed(lines, "ro"), listed(lines, "odd")),
            (Some(0), Some(7), None)
        );
        assert_eq!(
            (listed(lines, "roo"), listed(lines, ""), user_id("4294967294")),
            (None, None, Ok(4_294_967_294))
        );
        assert!(user_id("-h").is_err() && user_id("4294967296").is_err());
    }

    #[test]
    fn what_is_no_selection_is_named() {
        for (text, why) in [
            ("12x", "\"12x\" is no process id"),
            ("0", "\"0\" is no process id"),
            ("name=", "name= needs a value"),
            ("zone=x", "not selected by \"zone\""),
            ("user=no such user", "no user \"no such user\""),
        ] {
            let error = Selection::parse(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
