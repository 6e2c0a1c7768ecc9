//! The files that programs know by their inodes ([`plane::unwind`]), and those that they have met
//! and do not know.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bpf_sys::{Map, Mmap, Update};
use plane::unwind::{Directory, FILE_KEY, FileRecord, UNKNOWN_FILE, UnknownFile, file_key};

/// After this time programs ask again for a file that was not found.
const AGAIN: Duration = Duration::from_secs(1);

/// The most inodes that are remembered of a file: an overlay's file may have several.
pub(super) const MAX_INODES: usize = 8;

/// The key of a file.
pub(super) type Inode = [u8; FILE_KEY as usize];

/// The maps that programs use.
#[derive(Clone)]
pub(super) struct FileMaps {
    pub(super) known: Arc<Map>,
    pub(super) unknown: Arc<Map>,
    /// The directory, which has the shares of the unknown files.
    pub(super) directory: Arc<Mmap>,
}

impl FileMaps {
    /// Programs may ask for a file again. What its process had of the files that are asked for is
    /// given back.
    fn answered(&self, inode: &Inode) {
        let mut value = [0; UNKNOWN_FILE as usize];
        if !self.unknown.lookup(inode, &mut value).unwrap_or(false) || self.unknown.delete(inode).is_err() {
            return;
        }
        let counters = Directory::new(self.directory.words()).and_then(Directory::counters);
        if let (Some(asked), Some(counters)) = (UnknownFile::decode(inode, &value), counters) {
            counters.give(asked.share, 1);
        }
    }
}

/// The files of the maps, by what the consumer knows them by.
pub(super) struct FileMap<K> {
    maps: FileMaps,
    inodes: HashMap<K, Vec<Inode>>,
    /// Those of which programs know an inode at least.
    published: HashSet<K>,
    /// Files that are being looked for, and until when they are not looked for again.
    looked_for: HashMap<Inode, Option<Instant>>,
}

impl<K: Copy + Eq + Hash> FileMap<K> {
    pub(super) fn new(maps: FileMaps) -> FileMap<K> {
        FileMap { maps, inodes: HashMap::new(), published: HashSet::new(), looked_for: HashMap::new() }
    }

    /// The files that programs ask for and that nobody looks for yet. Asks of before are forgotten
    /// when it is time to ask again.
    pub(super) fn unknown(&mut self, now: Instant) -> Vec<UnknownFile> {
        let maps = &self.maps;
        self.looked_for.retain(|inode, until| {
            let is_due = until.is_some_and(|until| until <= now);
            if is_due {
                maps.answered(inode);
            }
            !is_due
        });
        let all = self.maps.unknown.entries().unwrap_or_default();
        let asked = all.iter().filter_map(|(key, value)| UnknownFile::decode(key, value));
        asked.filter(|asked| !self.looked_for.contains_key(&file_key(asked.device, asked.inode))).collect()
    }

    /// When a file may be asked for again, if one may.
    pub(super) fn next(&self) -> Option<Instant> {
        self.looked_for.values().flatten().min().copied()
    }

    /// This file was asked for.
    pub(super) fn found(&mut self, asked: &UnknownFile, source: K, now: Instant) {
        let inode = file_key(asked.device, asked.inode);
        let inodes = self.inodes.entry(source).or_default();
        if !inodes.contains(&inode) {
            if inodes.len() >= MAX_INODES {
                let oldest = inodes.remove(0);
                let _ = self.maps.known.delete(&oldest);
                // Its place among those that are asked for is given back then. At once, more inodes
                // than are remembered would take turns without a pause.
                self.looked_for.insert(oldest, Some(now + AGAIN));
            }
            inodes.push(inode);
        }
        self.looked_for.insert(inode, None);
    }

    /// Nobody knows this file, or it cannot be given to programs.
    pub(super) fn not_found(&mut self, asked: &UnknownFile, now: Instant) {
        self.looked_for.insert(file_key(asked.device, asked.inode), Some(now + AGAIN));
    }

    /// True if programs have asked for a file.
    pub(super) fn is_asked(&self, source: K) -> bool {
        self.inodes.contains_key(&source)
    }

    /// The files that take places of the map.
    pub(super) fn published(&self) -> impl Iterator<Item = K> + Clone {
        self.published.iter().copied()
    }

    /// Tells programs what a file has. False if there is no space for it.
    pub(super) fn publish(&mut self, source: K, record: &FileRecord) -> bool {
        let value = record.bytes();
        self.inodes.get(&source).into_iter().flatten().all(|inode| {
            let is_known = self.maps.known.update(inode, &value, Update::Any).is_ok();
            if is_known {
                self.published.insert(source);
                self.maps.answered(inode);
                self.looked_for.remove(inode);
            }
            is_known
        })
    }

    /// A file has nothing that programs could be told, for now.
    pub(super) fn postpone(&mut self, source: K, now: Instant) {
        for inode in self.inodes.get(&source).into_iter().flatten() {
            if let Some(until) = self.looked_for.get_mut(inode) {
                *until = Some(now + AGAIN);
            }
        }
    }

    /// Programs do not find a file any more. True if they have asked for it, so they may have found
    /// it.
    pub(super) fn remove(&mut self, source: K) -> bool {
        self.published.remove(&source);
        let Some(inodes) = self.inodes.remove(&source) else { return false };
        for inode in &inodes {
            let _ = self.maps.known.delete(inode);
            self.maps.answered(inode);
            self.looked_for.remove(inode);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bpf_sys::{MapSpec, SysError};
    use plane::shares::OTHERS;
    use plane::unwind::{DIRECTORY, FILE, SHARES_AT};

    use super::*;

    fn maps(places: u32) -> Result<FileMaps, SysError> {
        let hash = |size, most| Map::create(&MapSpec::hash("files", FILE_KEY, size, most));
        let directory = Map::create(&MapSpec::mmapable("directory", DIRECTORY, 1))?.mmap(true)?;
        let (known, unknown) = (hash(FILE, places)?, hash(UNKNOWN_FILE, 64)?);
        Ok(FileMaps { known: known.into(), unknown: unknown.into(), directory: directory.into() })
    }

    #[test]
    fn what_is_not_remembered_of_a_file_gives_its_place_back_and_so_does_what_was_never_published() {
        let maps = match maps(3) {
            Ok(maps) => maps,
            Err(e) if e.is_permission() => return testing::skipped!("{e}"),
            Err(e) => panic!("{e}"),
        };
        let all = MAX_INODES as u64 + 1;
        for inode in 0..all {
            let value: Vec<u8> = [1, 0, OTHERS].into_iter().flat_map(u64::to_ne_bytes).collect();
            maps.unknown.update(&file_key((8, 1), inode), &value, Update::Any).unwrap();
        }
        let others = &maps.directory.words()[(SHARES_AT / 8) as usize];
        others.store(all, Ordering::SeqCst);
        let (mut files, now) = (FileMap::new(maps.clone()), Instant::now());
        let asked = files.unknown(now);
        assert_eq!(asked.len() as u64, all);
        asked.iter().for_each(|asked| files.found(asked, 's', now));
        assert_eq!((files.unknown(now).len(), others.load(Ordering::SeqCst)), (0, all));
        // The first one is not remembered.
        assert_eq!(files.next(), Some(now + AGAIN));
        assert_eq!((files.unknown(now + AGAIN).len(), others.load(Ordering::SeqCst)), (0, all - 1));
        assert_eq!((files.next(), files.published().count()), (None, 0));
        // Some of its inodes have no place.
        assert!(!files.publish('s', &FileRecord::default()));
        assert_eq!(files.published().collect::<Vec<char>>(), ['s']);
        assert!(files.remove('s') && !files.remove('s'));
        assert_eq!((files.published().count(), others.load(Ordering::SeqCst)), (0, 0));
        assert!(maps.known.entries().unwrap().is_empty() && maps.unknown.entries().unwrap().is_empty());
    }
}
