//! Reads the state of a process: its identity, its mappings, and handles of the mapped files.

use std::collections::HashSet;

use super::perfmap;
use crate::wire::Identity;
use files::open::{Handle, ProcessDir, Root, RootKey};
use proc::maps::{self, Backing, Map, MappedFile, Mapping};

/// Maximum number of files, and of roots, that are recorded as sent.
const MAX_SENT: usize = 1 << 16;

/// The directories of a process in `/proc`.
struct Directories {
    process: ProcessDir,
    /// That of the thread which shows its memory, where the first one has ended.
    survivor: Option<ProcessDir>,
}

impl Directories {
    fn open(pid: u32) -> Option<Directories> {
        let process = ProcessDir::open(pid).ok()?;
        let thread = proc::thread_with_memory(pid);
        let survivor = if thread == pid { None } else { Some(ProcessDir::open(thread).ok()?) };
        Some(Directories { process, survivor })
    }

    /// That of the process's memory and files.
    fn memory(&self) -> &ProcessDir {
        self.survivor.as_ref().unwrap_or(&self.process)
    }

    /// The identity of the program that the process runs.
    fn identity(&self) -> Option<Identity> {
        let stat = |dir: &ProcessDir| proc::parse_stat(&dir.read("stat", 4096).ok()?);
        let proc::Stat { start, stack, .. } = stat(&self.process)?;
        let stack = self.survivor.as_ref().map_or(Some(stack), |dir| Some(stat(dir)?.stack))?;
        let exe = self.memory().follow("exe").and_then(|handle| handle.stat_cached());
        let exe = exe.map_or((0, 0, 0), |s| (s.dev.0, s.dev.1, s.inode));
        Some(Identity { start, stack, exe })
    }
}

/// The identity of the program that a process runs.
pub(super) fn identity_of(pid: u32) -> Option<Identity> {
    Directories::open(pid)?.identity()
}

/// The directory in which a process has its root and its files, if it began at this tick.
pub(super) fn begun_at(pid: u32, start: u64) -> Option<ProcessDir> {
    let all = Directories::open(pid)?;
    let is_it = all.identity()?.start == start;
    is_it.then(|| all.survivor.unwrap_or(all.process))
}

/// The state of a process.
pub(super) struct Process {
    pub(super) identity: Identity,
    pub(super) root: Option<(RootKey, Root)>,
    pub(super) map: Map,
    /// The handle of each mapped file; `None` for files that were sent before or cannot be opened.
    pub(super) files: Vec<Option<Handle>>,
    pub(super) perf_map: Option<(u32, Handle)>,
}

/// The files and roots that were sent to the session, which keeps their descriptors.
#[derive(Default)]
pub(super) struct SentObjects {
    files: HashSet<((u32, u32), u64)>,
    roots: HashSet<RootKey>,
}

impl SentObjects {
    /// Records a root as sent. True the first time.
    pub(super) fn root(&mut self, key: RootKey) -> bool {
        if self.roots.len() >= MAX_SENT {
            self.roots.clear();
        }
        self.roots.insert(key)
    }

    /// Records files as sent of which these handles are.
    fn files(&mut self, files: &[MappedFile], handles: &[Option<Handle>]) {
        for (file, _) in files.iter().zip(handles).filter(|(_, handle)| handle.is_some()) {
            if self.files.len() >= MAX_SENT {
                self.files.clear();
            }
            self.files.insert((file.dev, file.inode));
        }
    }
}

/// Reads the state of a process. Retries if the process executes another program meanwhile, so that
/// the state belongs to one program.
pub(super) fn process(pid: u32, sent: &mut SentObjects) -> Option<Process> {
    let all = Directories::open(pid)?;
    let dir = all.memory();
    for _ in 0..3 {
        let before = all.identity()?;
        let mut map = maps::read(dir.maps().ok()?, maps::MAX_READ_ALL).ok()?;
        // A zombie or an exiting process has an empty map. The session keeps its last map.
        if map.mappings.is_empty() {
            return None;
        }
        let root = dir.root().ok().and_then(|root| Some((root.key().ok()?, root)));
        let root_path = dir.root_path().unwrap_or_default();
        map.files.iter_mut().for_each(|file| strip_root(&mut file.path, &root_path));
        let files = open_all(dir, root.as_ref().map(|(_, root)| root), &map, sent);
        if all.identity() == Some(before) {
            // Not before: what another look had opened is sent by this one.
            sent.files(&map.files, &files);
            let makes_code = map.mappings.iter().any(|m| m.backing == Backing::Anonymous);
            let perf_map = makes_code.then(|| perfmap::locate(dir, before.start)).flatten();
            return Some(Process { identity: before, root, map, files, perf_map });
        }
    }
    None
}

/// Converts a path of the address map into one relative to the process's root.
fn strip_root(path: &mut Vec<u8>, root: &[u8]) {
    if root != b"/"
        && let Some(rest) = path.strip_prefix(root).filter(|rest| rest.starts_with(b"/"))
    {
        *path = rest.to_vec();
    }
}

fn open_all(dir: &ProcessDir, root: Option<&Root>, map: &Map, sent: &SentObjects) -> Vec<Option<Handle>> {
    let mut of: Vec<Option<&Mapping>> = vec![None; map.files.len()];
    for mapping in &map.mappings {
        if let Backing::File(number) = mapping.backing
            && let Some(of) = of.get_mut(number as usize)
        {
            of.get_or_insert(mapping);
        }
    }
    let each = map.files.iter().zip(of);
    each.map(|(file, mapping)| {
        let key = (file.dev, file.inode);
        if file.inode == 0 || sent.files.contains(&key) {
            return None;
        }
        open(dir, root, file, mapping?)
    })
    .collect()
}

/// The handle of a mapped file. With CAP_CHECKPOINT_RESTORE, `map_files` leads to the mapped inode,
/// even of a deleted file. Otherwise the path is resolved and its inode compared. (Device numbers
/// differ on btrfs and overlayfs, inodes do not.)
pub(super) fn open(
    dir: &ProcessDir,
    root: Option<&Root>,
    file: &MappedFile,
    mapping: &Mapping,
) -> Option<Handle> {
    let exact = || dir.follow(&format!("map_files/{:x}-{:x}", mapping.start, mapping.end)).ok();
    let by_path = || {
        let handle = root?.find(&file.path).ok()?;
        (handle.stat_cached().ok()?.inode == file.inode).then_some(handle)
    };
    exact().or_else(by_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_the_root_is_removed_from_paths() {
        let seen = |path: &str, root: &str| {
            let mut path = path.as_bytes().to_vec();
            strip_root(&mut path, root.as_bytes());
            String::from_utf8(path).unwrap()
        };
        assert_eq!(seen("/usr/bin/x", "/"), "/usr/bin/x");
        assert_eq!(seen("/jail/usr/bin/x", "/jail"), "/usr/bin/x");
        assert_eq!(seen("/jailed/x", "/jail"), "/jailed/x");
        assert_eq!(seen("/x", ""), "/x");
    }

    #[test]
    fn files_of_a_look_that_was_repeated_are_sent() {
        // It executes the shell without end.
        let dir = testing::dir::Dir::new("observe");
        let script = dir.join("again");
        std::fs::write(&script, "exec /bin/sh \"$0\"\n").unwrap();
        let mut child = std::process::Command::new("/bin/sh").arg(&script).spawn().unwrap();
        let mut looks = 0;
        for _ in 0..2000 {
            let mut sent = SentObjects::default();
            let Some(seen) = process(child.id(), &mut sent) else { continue };
            looks += 1;
            for (file, handle) in seen.map.files.iter().zip(&seen.files) {
                let is_sent = sent.files.contains(&(file.dev, file.inode));
                assert_eq!(is_sent, handle.is_some(), "{}", String::from_utf8_lossy(&file.path));
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(looks > 0);
    }
}
