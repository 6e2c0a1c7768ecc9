//! Messages of which there may be any number: the first few, and then how many more.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// The most messages that are known from others, by their hashes. Those beyond are not counted.
const KNOWN: usize = 1 << 14;

/// The first messages, each once, and the number of the others.
#[derive(Clone, Debug)]
pub struct Few {
    /// How many more are told as they are.
    left: usize,
    hasher: RandomState,
    known: HashSet<u64>,
    fresh: Vec<String>,
    more: usize,
    /// The number of others that was said last.
    said: usize,
    /// The number of others at which it is said again: twice that of the last time.
    next: usize,
}

/// Eight are told.
impl Default for Few {
    fn default() -> Few {
        Few::new(8)
    }
}

impl Few {
    /// So many are told as they are.
    pub fn new(most: usize) -> Few {
        Few {
            left: most,
            hasher: RandomState::new(),
            known: HashSet::new(),
            fresh: Vec::new(),
            more: 0,
            said: 0,
            next: 1,
        }
    }

    /// Adds a message.
    pub fn add(&mut self, text: String) {
        if self.known.len() >= KNOWN || !self.known.insert(self.hasher.hash_one(&text)) {
            return;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.fresh.push(text);
            }
            None => self.more = self.more.saturating_add(1),
        }
    }

    /// What is to be said, since the last call. `count` is the message for the number of all
    /// others, which is said again when it has doubled.
    pub fn take(&mut self, count: impl FnOnce(usize) -> String) -> Vec<String> {
        let mut said = std::mem::take(&mut self.fresh);
        if self.more >= self.next {
            said.push(count(self.more));
            self.said = self.more;
            self.next = self.more.saturating_mul(2);
        }
        said
    }

    /// What is to be said at the end: also the number of all others, if it is not what was said
    /// last.
    pub fn take_all(&mut self, count: impl FnOnce(usize) -> String) -> Vec<String> {
        if self.more > self.said {
            self.next = self.more;
        }
        self.take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_told_once_and_the_others_are_counted() {
        let mut few = Few::new(2);
        let count = |n: usize| format!("{n} more");
        ["a", "a", "b", "c", "d", "a"].iter().for_each(|text| few.add((*text).into()));
        assert_eq!(few.take(count), ["a", "b", "2 more"]);
        ["e", "b", "c", "d"].iter().for_each(|text| few.add((*text).into()));
        assert!(few.take(count).is_empty());
        few.add("f".into());
        assert_eq!(few.take(count), ["4 more"]);
        (0..1000).for_each(|n| few.add(n.to_string()));
        assert_eq!(few.take(count), ["1004 more"]);
        assert!(few.take(count).is_empty());
    }

    #[test]
    fn at_the_end_all_are_counted() {
        let mut few = Few::new(1);
        let count = |n: usize| format!("{n} more");
        ["a", "b", "c"].iter().for_each(|text| few.add((*text).into()));
        assert_eq!(few.take_all(count), ["a", "2 more"]);
        few.add("d".into());
        assert!(few.take(count).is_empty());
        assert_eq!(few.take_all(count), ["3 more"]);
        assert!(few.take_all(count).is_empty());
    }
}
