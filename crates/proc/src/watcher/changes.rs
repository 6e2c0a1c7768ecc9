//! The changes that the watcher has seen, for those who follow them.
//!
//! ```text
//!  records, readings of /proc ──► backlog of the last changes ──► a reader, from its own cursor on
//!                                  older ones are dropped          missed: it reads the state instead
//! ```
//!
//! Any number of readers follow the changes independently. None of them can make the backlog grow:
//! a reader that is late learns that it missed changes, and takes the state from the watcher. The
//! backlog does not keep files alive.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::file::File;

/// Changes that are kept: about 1,000 processes that execute a program and end.
const MOST: usize = 8192;

/// What happened to a process. An image is given by its [number](super::Image::number).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Change {
    /// A process was forked, or was found running.
    Started { pid: u32, image: u64 },
    /// A process executes another program.
    Executed { pid: u32, image: u64 },
    /// A process has mapped a file. `first`: no image that is remembered had it mapped.
    Mapped { pid: u32, file: Arc<File>, first: bool },
    /// A program ended, by exec or exit. Its image is [`NO_IMAGE`] where nothing was known of it.
    Ended { pid: u32, image: u64 },
    /// The watcher does not remember an ended program any more.
    Forgotten { pid: u32, image: u64 },
}

/// The number of no image.
pub const NO_IMAGE: u64 = u64::MAX;

/// A change in the backlog.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Started { pid: u32, image: u64 },
    Executed { pid: u32, image: u64 },
    Mapped { pid: u32, file: Weak<File>, first: bool },
    Ended { pid: u32, image: u64 },
    Forgotten { pid: u32, image: u64 },
}

impl Entry {
    /// The change, unless it is a mapping of a file that no image has mapped any more.
    fn change(&self) -> Option<Change> {
        Some(match *self {
            Entry::Started { pid, image } => Change::Started { pid, image },
            Entry::Executed { pid, image } => Change::Executed { pid, image },
            Entry::Mapped { pid, ref file, first } => Change::Mapped { pid, file: file.upgrade()?, first },
            Entry::Ended { pid, image } => Change::Ended { pid, image },
            Entry::Forgotten { pid, image } => Change::Forgotten { pid, image },
        })
    }
}

/// How far a reader has read the changes.
#[derive(Clone, Debug, Default)]
pub struct Cursor(u64);

/// What a reader gets.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// In their order.
    pub list: Vec<Change>,
    /// There were more before these. The state is to be taken from the watcher.
    pub missed: bool,
}

/// The backlog.
#[derive(Debug, Default)]
pub(super) struct Log {
    list: VecDeque<Entry>,
    /// The number of the first one in the list.
    first: u64,
}

impl Log {
    pub(super) fn add(&mut self, entry: Entry) {
        if self.list.len() == MOST {
            self.list.pop_front();
            self.first += 1;
        }
        self.list.push_back(entry);
    }

    /// The cursor of a reader that follows from now on.
    pub(super) fn end(&self) -> Cursor {
        Cursor(self.first + self.list.len() as u64)
    }

    pub(super) fn read(&self, cursor: &mut Cursor) -> Changes {
        let missed = cursor.0 < self.first;
        let skip = usize::try_from(cursor.0.saturating_sub(self.first)).unwrap_or(usize::MAX);
        *cursor = self.end();
        Changes { list: self.list.iter().skip(skip).filter_map(Entry::change).collect(), missed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_late_learns_that_it_missed_changes() {
        let mut log = Log::default();
        let (mut early, mut late) = (log.end(), log.end());
        for image in 0..3 {
            log.add(Entry::Started { pid: 1, image });
        }
        let seen = log.read(&mut early);
        assert_eq!((seen.list.len(), seen.missed), (3, false));
        assert_eq!(log.read(&mut early).list, []);
        for image in 0..MOST as u64 {
            log.add(Entry::Ended { pid: 2, image });
        }
        let seen = log.read(&mut early);
        assert_eq!((seen.list.len(), seen.missed), (MOST, false));
        let seen = log.read(&mut late);
        assert_eq!((seen.list.len(), seen.missed), (MOST, true));
        assert!(!log.read(&mut late).missed);
    }
}
