//! An index of names: ids by hash of the name, with open addressing. 0 is an empty slot.

/// The index.
pub(super) struct NameIndex {
    slots: Vec<u32>,
}

impl NameIndex {
    /// An index for so many ids.
    pub(super) fn new(count: usize) -> NameIndex {
        NameIndex { slots: vec![0; (count * 2).next_power_of_two().max(16)] }
    }

    /// Adds an id, whose name starts `tail` and ends with a NUL.
    pub(super) fn insert(&mut self, id: u32, tail: &[u8]) {
        let mask = self.slots.len() - 1;
        // Half of the slots are free, so one of them is found.
        let (before, after) = self.slots.split_at_mut(hash_tail(tail) & mask);
        if let Some(slot) = after.iter_mut().chain(before).find(|slot| **slot == 0) {
            *slot = id;
        }
    }

    /// Ids that may have the name. Types with equal names are in ascending order.
    pub(super) fn candidates(&self, name: &str) -> impl Iterator<Item = u32> {
        let mask = self.slots.len() - 1;
        let start = hash_bytes(name.bytes()) & mask;
        (0..=mask).map_while(move |i| self.slots.get((start + i) & mask).copied()).take_while(|id| *id != 0)
    }
}

fn hash_bytes(bytes: impl Iterator<Item = u8>) -> usize {
    // FNV-1a: names are short, and the index is used for one run only.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (hash ^ (hash >> 29)) as usize
}

fn hash_tail(tail: &[u8]) -> usize {
    hash_bytes(tail.iter().copied().take_while(|b| *b != 0))
}
