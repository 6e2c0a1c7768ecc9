//! The semaphores of places that several probes share.
//!
//! The kernel has one uprobe for a place in a file, with one semaphore or none. Whoever comes to the place with another is refused
//! (`EINVAL`). So all programs of a session that are attached to a place say the same: the first instruction of a function
//! may be a site of USDT, which has a semaphore, while an entry or a return by `uretprobe` has none of its own.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;

use super::Method;

/// Device and inode.
type FileId = (u64, u64);

/// Where places have semaphores, by file and offset.
#[derive(Clone, Debug, Default)]
pub struct Semaphores(HashMap<u64, Vec<(FileId, u64)>>);

impl Semaphores {
    /// Those of all places that methods attach to.
    pub fn of<'m>(methods: impl Iterator<Item = &'m dyn Method>) -> Semaphores {
        let mut all = Semaphores::default();
        methods.for_each(|method| method.semaphores(&mut all));
        all
    }

    /// Adds places of the file at a path, each with its semaphore.
    pub fn add(&mut self, path: &OsStr, places: impl Iterator<Item = (u64, u64)>) {
        let mut places = places.peekable();
        let Some(file) = places.peek().and_then(|_| id(path)) else { return };
        for (offset, semaphore) in places {
            self.0.entry(offset).or_default().push((file, semaphore));
        }
    }

    /// Adds those of others.
    pub fn extend(&mut self, others: &Semaphores) {
        for (offset, known) in &others.0 {
            self.0.entry(*offset).or_default().extend(known);
        }
    }

    /// The semaphore of a place that has none of its own; 0: it has none.
    pub fn at(&self, path: &OsStr, offset: u64) -> u64 {
        let Some(known) = self.0.get(&offset) else { return 0 };
        let file = id(path);
        known.iter().find(|(of, _)| Some(*of) == file).map_or(0, |(_, semaphore)| *semaphore)
    }
}

fn id(path: &OsStr) -> Option<FileId> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_known_by_its_file_whatever_the_path() {
        let dir = std::env::temp_dir().join(format!("dt-semaphores-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [one, link, other] = ["one", "link", "other"].map(|name| dir.join(name).into_os_string());
        std::fs::write(&one, "").unwrap();
        std::fs::write(&other, "").unwrap();
        std::fs::hard_link(&one, &link).unwrap();
        let mut all = Semaphores::default();
        all.add(&one, [(16, 7), (32, 9)].into_iter());
        assert_eq!([16, 32, 48].map(|offset| all.at(&link, offset)), [7, 9, 0]);
        assert_eq!(all.at(&other, 16), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
