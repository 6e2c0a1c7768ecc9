//! Observes a process: its identity, its mappings, and handles of the mapped files.

use std::collections::HashSet;

use super::perfmap;
use crate::maps::{self, Backing, Map, MappedFile, Mapping};
use crate::open::{Handle, ProcessDir, Root, RootKey};
use crate::wire::Identity;

/// Bytes of an address map that are read: 65,530 mappings with paths of 200 bytes.
const MAX_MAP: u64 = 16 << 20;

/// The maximum number of files and roots that are remembered as sent.
const MAX_TOLD: usize = 1 << 16;

/// What runs under a pid.
pub(super) fn identity(process: &ProcessDir) -> Option<Identity> {
    let stat = process.read("stat", 4096).ok()?;
    // The name in parentheses can hold anything; fields 22 and 28 are the 20th and the 26th after it.
    let after = stat.iter().rposition(|b| *b == b')')? + 1;
    let text = std::str::from_utf8(stat.get(after..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let start = fields.nth(19)?.parse().ok()?;
    let stack = fields.nth(5)?.parse().ok()?;
    let exe = process.follow("exe").and_then(|handle| handle.stat_cached());
    let exe = exe.map_or((0, 0, 0), |s| (s.dev.0, s.dev.1, s.inode));
    Some(Identity { start, stack, exe })
}

/// A process, looked at.
pub(super) struct Process {
    pub(super) identity: Identity,
    pub(super) root: Option<(RootKey, Root)>,
    pub(super) map: Map,
    /// The handle of each file of the map; `None` for files that were sent before or cannot be opened.
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
    /// True the first time.
    pub(super) fn root(&mut self, key: RootKey) -> bool {
        if self.roots.len() >= MAX_TOLD {
            self.roots.clear();
        }
        self.roots.insert(key)
    }
}

/// Looks at a process; at one program of it, even if it executes another meanwhile.
pub(super) fn process(pid: u32, sent: &mut SentObjects) -> Option<Process> {
    let dir = ProcessDir::open(pid).ok()?;
    for _ in 0..3 {
        let before = identity(&dir)?;
        let text = dir.read("maps", MAX_MAP).ok()?;
        // A zombie, or one that is just going, has an empty map: no better than what is known.
        if text.is_empty() {
            return None;
        }
        let root = dir.root().ok().and_then(|root| Some((root.key().ok()?, root)));
        let mut map = maps::parse(&text);
        let root_path = dir.root_path().unwrap_or_default();
        map.files.iter_mut().for_each(|file| as_the_process_sees(&mut file.path, &root_path));
        let files = open_all(&dir, root.as_ref().map(|(_, root)| root), &map, sent);
        if identity(&dir) == Some(before) {
            let makes_code = map.mappings.iter().any(|m| m.backing == Backing::Anonymous);
            let perf_map = makes_code.then(|| perfmap::locate(&dir, before.start)).flatten();
            return Some(Process { identity: before, root, map, files, perf_map });
        }
    }
    None
}

/// A path of the map, from the root of the process.
fn as_the_process_sees(path: &mut Vec<u8>, root: &[u8]) {
    if root != b"/"
        && let Some(rest) = path.strip_prefix(root).filter(|rest| rest.starts_with(b"/"))
    {
        *path = rest.to_vec();
    }
}

fn open_all(dir: &ProcessDir, root: Option<&Root>, map: &Map, sent: &mut SentObjects) -> Vec<Option<Handle>> {
    let mut of: Vec<Option<&Mapping>> = vec![None; map.files.len()];
    for mapping in &map.mappings {
        if let Backing::File(number) = mapping.backing {
            of[number as usize].get_or_insert(mapping);
        }
    }
    let each = map.files.iter().zip(of);
    each.map(|(file, mapping)| {
        let key = (file.dev, file.inode);
        if file.inode == 0 || sent.files.contains(&key) {
            return None;
        }
        let handle = open(dir, root, file, mapping?)?;
        if sent.files.len() >= MAX_TOLD {
            sent.files.clear();
        }
        sent.files.insert(key);
        Some(handle)
    })
    .collect()
}

/// The handle of a mapped file. `map_files` names exactly the mapped inode, also of a deleted file, to whoever has
/// CAP_CHECKPOINT_RESTORE; else the path is tried. (Device numbers differ on btrfs and overlayfs, inodes do not.)
fn open(dir: &ProcessDir, root: Option<&Root>, file: &MappedFile, mapping: &Mapping) -> Option<Handle> {
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
    fn paths_begin_at_the_root_of_the_process() {
        let seen = |path: &str, root: &str| {
            let mut path = path.as_bytes().to_vec();
            as_the_process_sees(&mut path, root.as_bytes());
            String::from_utf8(path).unwrap()
        };
        assert_eq!(seen("/usr/bin/x", "/"), "/usr/bin/x");
        assert_eq!(seen("/jail/usr/bin/x", "/jail"), "/usr/bin/x");
        assert_eq!(seen("/jailed/x", "/jail"), "/jailed/x");
        assert_eq!(seen("/x", ""), "/x");
    }
}
