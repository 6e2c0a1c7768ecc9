//! Which types of a blob were looked at.

use std::sync::atomic::{AtomicU64, Ordering};

/// A set of types, by their positions in a blob.
pub(super) struct Ids(Box<[AtomicU64]>);

impl Ids {
    /// The empty set for a blob of so many types.
    pub(super) fn new(count: usize) -> Ids {
        Ids((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds one.
    pub(super) fn note(&self, index: usize) {
        if let Some(word) = self.0.get(index / 64) {
            word.fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }

    /// True for one that was added.
    pub(super) fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (index % 64) & 1 != 0)
    }

    /// True if none was added.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }
}
