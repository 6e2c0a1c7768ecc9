//! What a name means, if that is one thing.

use std::collections::HashMap;
use std::hash::Hash;

/// One thing, or several that are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum One<T> {
    Is(T),
    Several,
}

impl<T: PartialEq + Copy> One<T> {
    /// Adds a meaning of a name.
    pub(super) fn add<K: Eq + Hash>(all: &mut HashMap<K, One<T>>, name: K, meaning: T) {
        let known = all.entry(name).or_insert(One::Is(meaning));
        if *known != One::Is(meaning) {
            *known = One::Several;
        }
    }
}
