//! The types of an answer while it is made. It begins with one entry and has what that reaches,
//! nearest first. Behind [`MAX_BODIES`] structs the others are *cuts*: forward declarations with
//! the number of their entry.

use std::collections::{HashMap, VecDeque};

use crate::blob::{Blob, MAX_NAMES};
use crate::query::{Answer, Error};

/// The most structs and unions with their contents in one answer.
const MAX_BODIES: usize = 200;

/// The most types in one answer.
const MAX_TYPES: usize = 50_000;

/// Types, and the entries that they are made from.
pub(crate) struct Graph {
    pub(crate) blob: Blob,
    /// The types of entries.
    known: HashMap<u64, u32>,
    /// Types without contents, in the order of their distance.
    waiting: VecDeque<(u64, u32)>,
    /// The type of indexes of arrays.
    index_type: Option<u32>,
    bodies: usize,
    cuts: Vec<(u32, u64)>,
}

impl Graph {
    pub(crate) fn new() -> Graph {
        Graph {
            blob: Blob::new(),
            known: HashMap::new(),
            waiting: VecDeque::new(),
            index_type: None,
            bodies: 0,
            cuts: Vec::new(),
        }
    }

    /// The type of an entry.
    pub(crate) fn id(&mut self, key: u64) -> u32 {
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let id = self.blob.reserve();
        self.known.insert(key, id);
        self.waiting.push_back((key, id));
        id
    }

    /// The next entry without contents, and its type.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, u32)>, Error> {
        let next = self.waiting.pop_front();
        if next.is_some() && (self.blob.len() > MAX_TYPES || self.blob.strings_len() > MAX_NAMES) {
            return Err(Error::Large);
        }
        Ok(next)
    }

    /// True if an answer may have the contents of one more type. A cut is noted otherwise.
    pub(crate) fn has_space(&mut self, key: u64, id: u32) -> bool {
        self.bodies += 1;
        let has = self.bodies <= MAX_BODIES;
        if !has {
            self.cuts.push((id, key));
        }
        has
    }

    /// The type of indexes of arrays.
    pub(crate) fn index_type(&mut self) -> u32 {
        let blob = &mut self.blob;
        *self.index_type.get_or_insert_with(|| {
            let index = blob.reserve();
            blob.int(index, "unsigned long", 8, 0);
            index
        })
    }

    /// Puts the types into an answer.
    pub(crate) fn finish(self, answer: &mut Answer) {
        answer.cuts = self.cuts;
        answer.btf = self.blob.finish();
    }
}
