//! The memory that this process may have: the limits of its cgroup and of those above it, and what
//! it has.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of memory that a cgroup has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLimit {
    /// Bytes.
    pub bytes: u64,
    /// Bytes that its processes have and that nothing takes from them. 0 where they can be swapped.
    pub held: u64,
    /// The file that has it.
    pub file: PathBuf,
}

/// The limit of memory that leaves least, of this process's cgroup and of those above it, in
/// cgroups of version 1 and 2. `None`: there is no limit.
pub fn cgroup_limit() -> Option<CgroupLimit> {
    let read = |name: &str| fs::read(format!("/proc/self/{name}")).unwrap_or_default();
    let (groups, mounts) = (read("cgroup"), read("mountinfo"));
    let files = limit_files(&String::from_utf8_lossy(&groups), &String::from_utf8_lossy(&mounts));
    let swaps = can_swap(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let limit = |file: PathBuf| {
        let bytes = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        let stat = || fs::read_to_string(file.with_file_name("memory.stat")).unwrap_or_default();
        let held = if swaps { 0 } else { held(&stat()) };
        // Version 1 has the greatest number of pages for none, version 2 a word.
        (bytes < i64::MAX as u64 / 2).then_some(CgroupLimit { bytes, held, file })
    };
    files.into_iter().filter_map(limit).min_by_key(|limit| limit.bytes.saturating_sub(limit.held))
}

/// Whether there is space for what is swapped, for the text of `/proc/meminfo`.
fn can_swap(meminfo: &str) -> bool {
    let free = meminfo.lines().find_map(|line| line.strip_prefix("SwapFree:"));
    free.is_some_and(|free| free.trim().trim_end_matches(" kB") != "0")
}

/// The bytes that the processes of a cgroup and of those below it have, for the text of its
/// `memory.stat`: memory of no file, files in memory alone, and what the kernel has for processes.
/// Files on disks and what the kernel can make anew give way. Version 1 does not say what the
/// kernel has. Maps of programs are not counted: a session counts its own.
fn held(stat: &str) -> u64 {
    const HELD: [&str; 8] = [
        "total_rss",
        "total_shmem",
        "anon",
        "shmem",
        "kernel_stack",
        "pagetables",
        "sock",
        "slab_unreclaimable",
    ];
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    // Version 1 has lines for the group alone too, and version 2 has none of those that begin with
    // "total".
    let is_first = stat.lines().any(|line| line.starts_with("total_rss "));
    let counts = |name: &str| HELD.contains(&name) && name.starts_with("total_") == is_first;
    let bytes = lines.filter(|(name, _)| counts(name)).filter_map(|(_, bytes)| bytes.trim().parse().ok());
    bytes.fold(0, u64::saturating_add)
}

/// The files that have the limits, for the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
/// Some may not exist.
fn limit_files(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (kind, name) = match controllers.split(',').any(|one| one == "memory") {
            true => ("cgroup", "memory.limit_in_bytes"),
            false if controllers.is_empty() => ("cgroup2", "memory.max"),
            false => continue,
        };
        for (at, root) in mounts.lines().filter_map(|line| mount(line, kind)) {
            // In a container the mount may begin at a group below the root.
            let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path.trim_start_matches('/')));
            let dirs = below.ancestors().map(|group| Path::new(at).join(group).join(name));
            all.extend(dirs);
        }
    }
    all
}

/// Where a line of `mountinfo` mounts groups of this kind with memory, and the group that is
/// mounted there.
fn mount<'a>(line: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let is_kind = after.next() == Some(kind);
    let has_memory = kind == "cgroup2" || after.nth(1)?.split(',').any(|one| one == "memory");
    let mut before = before.split(' ').skip(3);
    let (root, at) = (before.next()?, before.next()?);
    (is_kind && has_memory).then_some((at, root))
}

/// What this process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnMemory {
    /// Bytes of its address space, which `ulimit -v` limits.
    pub mapped: u64,
    /// Bytes that nothing but swapping takes from it.
    pub anonymous: u64,
}

/// The bytes that its address space may have (`ulimit -v`); `u64::MAX` for any number.
pub fn address_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    limit.rlim_cur
}

/// What this process has now.
pub fn own_memory() -> OwnMemory {
    of_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn of_status(status: &str) -> OwnMemory {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let of = |name| bytes(name).unwrap_or(0);
    OwnMemory { mapped: of("VmSize:"), anonymous: of("RssAnon:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_in_a_group_and_in_those_above_it() {
        let files = |groups: &str, mounts: &str| -> Vec<String> {
            limit_files(groups, mounts).iter().map(|file| file.display().to_string()).collect()
        };
        let v2 = "30 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(
            files("0::/a/b\n", v2),
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        let v1 = "35 31 0:32 /docker/x /sys/fs/cgroup/memory ro shared:1 - cgroup cgroup rw,memory\n\
                  36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(
            files("4:memory:/docker/x/y\n1:cpu:/docker/x/y\n0::/\n", v1),
            ["/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert!(files("", v2).is_empty() && files("0::/\nx\n", "x\n").is_empty());
    }

    #[test]
    fn what_a_group_holds_is_known_in_both_versions() {
        let first =
            "cache 900\nrss 1\nshmem 2\ntotal_cache 900\ntotal_rss 10\ntotal_rss_huge 5\ntotal_shmem 20\n";
        assert_eq!(held(first), 30);
        let second = "anon 1\nfile 900\nkernel 700\nkernel_stack 2\npagetables 4\nsec_pagetables 0\nsock 8\nvmalloc 600\n\
                      shmem 16\nfile_mapped 900\nanon_thp 900\nslab_reclaimable 900\nslab_unreclaimable 32\nslab 932\n";
        assert_eq!(held(second), 63);
        assert_eq!(held("anon x\n\nanon\nshmem 18446744073709551616\n"), 0);
        assert!(can_swap("MemFree: 0 kB\nSwapFree:        4 kB\n"));
        assert!(!can_swap("SwapTotal:   8 kB\nSwapFree:        0 kB\n") && !can_swap(""));
    }

    #[test]
    fn a_process_knows_what_it_has() {
        let own = own_memory();
        assert!(own.mapped > own.anonymous && own.anonymous > 0, "{own:?}");
        let read = of_status("VmSize:\t    2048 kB\nRssAnon:\t     16 kB\n");
        assert_eq!(read, OwnMemory { mapped: 2 << 20, anonymous: 16 << 10 });
        assert_eq!(of_status("VmSize: x kB\n"), OwnMemory::default());
    }
}
