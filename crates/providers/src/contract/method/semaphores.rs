//! The semaphores of places that several probes share.
//!
//! The kernel has one uprobe for a place in a file, with one semaphore or none. Whoever comes to
//! the place with another is refused (`EINVAL`). So all programs that this process attaches to a
//! place say the same: the first instruction of a function may be a site of USDT, which has a
//! semaphore, while an entry or a return by `uretprobe` has none of its own. What is attached to a
//! place before its semaphore is known stays without, and refuses those that come.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::Method;

/// Device and inode.
type FileId = (u64, u64);

/// The semaphore of a place, and how many say so.
type HeldSemaphore = (u64, usize);

type Places = HashMap<u64, HashMap<FileId, HeldSemaphore>>;

/// All that is held, by offset and file: the uprobes of a machine are the kernel's, whichever
/// session has made them.
static HELD: LazyLock<Mutex<Places>> = LazyLock::new(Mutex::default);

fn held() -> MutexGuard<'static, Places> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The semaphores of places that are attached to ([`SiteLink::semaphores`](super::SiteLink)), or
/// are about to be. While this value lives, [`semaphore_at`] knows them.
#[derive(Debug, Default)]
pub struct Semaphores(Vec<(FileId, u64)>);

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
        let mut held = held();
        for (offset, semaphore) in places {
            held.entry(offset).or_default().entry(file).or_insert((semaphore, 0)).1 += 1;
            self.0.push((file, offset));
        }
    }
}

impl Drop for Semaphores {
    fn drop(&mut self) {
        let mut held = held();
        for (file, offset) in &self.0 {
            let Some(files) = held.get_mut(offset) else { continue };
            if let Some((_, uses)) = files.get_mut(file) {
                *uses -= 1;
                if *uses == 0 {
                    files.remove(file);
                }
            }
            if files.is_empty() {
                held.remove(offset);
            }
        }
    }
}

/// The semaphore of a place in a file that has none of its own; 0: nobody has said one.
pub(super) fn semaphore_at(path: &OsStr, offset: u64) -> u64 {
    if !held().contains_key(&offset) {
        return 0;
    }
    // Without the lock: a file system may let this wait.
    let Some(file) = id(path) else { return 0 };
    held().get(&offset).and_then(|files| files.get(&file)).map_or(0, |(semaphore, _)| *semaphore)
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
        let (mut first, mut second) = (Semaphores::default(), Semaphores::default());
        first.add(&one, [(16, 7), (32, 9)].into_iter());
        second.add(&link, [(16, 7)].into_iter());
        assert_eq!([16, 32, 48].map(|offset| semaphore_at(&link, offset)), [7, 9, 0]);
        assert_eq!(semaphore_at(&other, 16), 0);
        // Another file may have this inode later.
        drop(first);
        assert_eq!([16, 32].map(|offset| semaphore_at(&one, offset)), [7, 0]);
        drop(second);
        assert_eq!(semaphore_at(&one, 16), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
