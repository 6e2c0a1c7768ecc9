//! What is known of a file, and of an address space.

use std::collections::BTreeMap;
use std::time::Instant;

use plane::unwind::Range;
use proc::share::Owner;
use symbols::{FrameTable, MappedCode};
use unwind::Place;

/// The table of a file in the kernel.
pub(super) struct Loaded {
    pub(super) places: Vec<Place>,
    pub(super) base: u64,
    pub(super) pages: u32,
    pub(super) file: FrameTable,
}

/// A file.
pub(super) struct File {
    /// `None`: it has no table, or its table is not in the kernel.
    pub(super) loaded: Option<Loaded>,
    /// It has none, and needs not to be read again until then.
    pub(super) none_until: Option<Instant>,
    /// It has no table, and never will.
    pub(super) has_none: bool,
    /// What its contents were when the table was made ([`plane::unwind::contents`]).
    pub(super) contents: Option<u64>,
    /// When it was last asked for, in requests.
    pub(super) used: u64,
    /// Whose process asked for it first, or root's, if one did.
    pub(super) owner: Owner,
}

impl File {
    /// Words of its table.
    pub(super) fn words(&self) -> usize {
        let places = self.loaded.iter().flat_map(|loaded| &loaded.places);
        places.map(|place| place.words as usize).sum()
    }
}

/// A file that waits for its table.
pub(super) struct Waiting {
    /// When it was last asked for, in requests.
    pub(super) clock: u64,
    /// The most bytes of its code that a mapping has.
    pub(super) bytes: u64,
    /// It is being read elsewhere.
    pub(super) is_read: bool,
    /// What its contents were before it was read.
    pub(super) contents: Option<u64>,
    /// As in [`File`].
    pub(super) owner: Owner,
}

/// An address space.
pub(super) struct Space {
    /// What each process has mapped.
    pub(super) members: BTreeMap<u32, Vec<MappedCode>>,
    /// Whose it is.
    pub(super) owner: Owner,
    /// When it was last asked for, in requests.
    pub(super) used: u64,
    /// Its ranges in the directory, with that of its language runtime.
    pub(super) first: u32,
    pub(super) ranges: Vec<Range>,
}
