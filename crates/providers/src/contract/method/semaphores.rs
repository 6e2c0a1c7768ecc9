//! The semaphores of places that several probes share.
//!
//! The kernel has one uprobe for a place in a file, with one semaphore or none. Whoever comes to
//! the place with another is refused (`EINVAL`). So all programs that this process attaches to a
//! place say the same: the first instruction of a function may be a site of USDT, which has a
//! semaphore, while an entry or a return by `uretprobe` has none of its own. What is attached to a
//! place before its semaphore is known stays without, and refuses those that come.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use files::real::RealInode;

use super::Method;

/// The semaphore of a place, and how many say so.
type HeldSemaphore = (u64, usize);

type Places = HashMap<u64, HashMap<RealInode, HeldSemaphore>>;

/// All that is held, by offset and file: the uprobes of a machine are the kernel's, whichever
/// session has made them.
static HELD: LazyLock<Mutex<Places>> = LazyLock::new(Mutex::default);

fn held() -> MutexGuard<'static, Places> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The semaphores of places that are attached to ([`SiteLink::semaphores`](super::SiteLink)), or
/// are about to be. While this value lives, [`semaphore_at`] knows them.
#[derive(Debug, Default)]
pub struct Semaphores(Vec<(RealInode, u64)>);

impl Semaphores {
    /// Those of all places that methods attach to.
    pub fn of<'m>(methods: impl Iterator<Item = &'m dyn Method>) -> Semaphores {
        let mut all = Semaphores::default();
        methods.for_each(|method| method.semaphores(&mut all));
        all
    }

    /// Adds places of a file, each with its semaphore. A file that is not held is none that others
    /// can know: another one may be in its place.
    pub fn add(&mut self, file: Option<RealInode>, places: impl Iterator<Item = (u64, u64)>) {
        let Some(file) = file else { return };
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
/// `file` is asked only where there may be one, and without the lock.
pub(super) fn semaphore_at(file: impl FnOnce() -> Option<RealInode>, offset: u64) -> u64 {
    if !held().contains_key(&offset) {
        return 0;
    }
    let known = |file| held().get(&offset)?.get(&file).map(|(semaphore, _)| *semaphore);
    file().and_then(known).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_the_semaphore_of_its_file_as_long_as_one_says_so() {
        let [one, other] = [1 << 40, (1 << 40) + 1].map(|inode| Some(RealInode { dev: (0, 0), inode }));
        let (mut first, mut second) = (Semaphores::default(), Semaphores::default());
        first.add(one, [(16, 7), (32, 9)].into_iter());
        second.add(one, [(16, 7)].into_iter());
        second.add(None, [(16, 8)].into_iter());
        assert_eq!([16, 32, 48].map(|offset| semaphore_at(|| one, offset)), [7, 9, 0]);
        assert_eq!([other, None].map(|file| semaphore_at(|| file, 16)), [0, 0]);
        // Another file may have this inode later.
        drop(first);
        assert_eq!([16, 32].map(|offset| semaphore_at(|| one, offset)), [7, 0]);
        drop(second);
        assert_eq!(semaphore_at(|| one, 16), 0);
    }
}
