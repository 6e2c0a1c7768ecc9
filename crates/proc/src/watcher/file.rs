//! The files that processes have mapped, each once.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use super::record::BuildId;

/// A file that a process has mapped.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// A number that no other file of the watcher has.
    pub number: u64,
    /// The path from the root of the process that mapped it.
    pub path: Box<[u8]>,
    /// Device (major, minor) as processes see it; zero if only the build id is known.
    pub dev: (u32, u32),
    /// Inode as processes see it; zero if only the build id is known.
    pub inode: u64,
    /// The build id, if the kernel reported it.
    pub build_id: Option<BuildId>,
    /// The mount namespace in which the path is to be resolved; zero if it is not known.
    pub mount_namespace: u64,
}

/// Files by a hash of their identity, as long as a mapping refers to them. (If two have one hash,
/// the first may be taken for a new file later, which does no harm.)
#[derive(Debug, Default)]
pub(super) struct Files {
    known: HashMap<u64, Weak<File>>,
    hasher: RandomState,
    next: u64,
    /// Size of `known` at which unused entries are removed.
    sweep: usize,
}

/// What identifies a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileKey<'a> {
    pub(super) path: &'a [u8],
    pub(super) dev: (u32, u32),
    pub(super) inode: u64,
    pub(super) build_id: Option<BuildId>,
    pub(super) mount_namespace: u64,
}

impl Files {
    /// The file, and true if it was not known.
    pub(super) fn intern(&mut self, key: FileKey<'_>) -> (Arc<File>, bool) {
        let hash = self.hasher.hash_one(key);
        let FileKey { path, dev, inode, build_id, mount_namespace } = key;
        if let Some(file) = self.known.get(&hash).and_then(Weak::upgrade) {
            let File { number: _, path, dev, inode, build_id, mount_namespace } = &*file;
            let (dev, inode, build_id) = (*dev, *inode, *build_id);
            if key == (FileKey { path, dev, inode, build_id, mount_namespace: *mount_namespace }) {
                return (file, false);
            }
        }
        if self.known.len() >= self.sweep {
            self.known.retain(|_, file| file.strong_count() > 0);
            self.sweep = (self.known.len() * 2).max(1024);
        }
        self.next += 1;
        let file =
            Arc::new(File { number: self.next, path: path.into(), dev, inode, build_id, mount_namespace });
        self.known.insert(hash, Arc::downgrade(&file));
        (file, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_mapped_any_more_is_forgotten() {
        let mut files = Files::default();
        let paths: Vec<String> = (0..10_000).map(|n| format!("/{n}")).collect();
        let key = |path: &'static str| FileKey {
            path: path.as_bytes(),
            dev: (8, 1),
            inode: 1,
            build_id: None,
            mount_namespace: 0,
        };
        let (kept, first) = files.intern(key("/kept"));
        assert!(first);
        for path in &paths {
            files.intern(FileKey { path: path.as_bytes(), ..key("") });
        }
        assert!(files.known.len() <= 1024, "{}", files.known.len());
        assert_eq!(files.intern(key("/kept")), (kept.clone(), false));
        let other = files.intern(FileKey { inode: 2, ..key("/kept") });
        assert!(other.1 && other.0.number != kept.number);
    }
}
