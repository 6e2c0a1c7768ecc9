//! Memory that is given away in parts: of the directory, and of chunks of tables.

use std::collections::BTreeMap;

/// Numbers that are free: the first of each part, and its length. Parts do not touch.
#[derive(Debug, Default)]
pub(super) struct Free(BTreeMap<u32, u32>);

impl Free {
    /// So many numbers from `first` on.
    pub(super) fn new(first: u32, count: u32) -> Free {
        Free(BTreeMap::from([(first, count)]))
    }

    /// Takes `count` numbers that follow each other. Returns the first.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let (first, length) = self.0.iter().find(|(_, length)| **length >= count).map(|(f, l)| (*f, *l))?;
        self.0.remove(&first);
        if length > count {
            self.0.insert(first + count, length - count);
        }
        Some(first)
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, first: u32, count: u32) {
        let (mut first, mut count) = (first, count);
        if let Some((before, length)) = self.0.range(..first).next_back().map(|(f, l)| (*f, *l))
            && before + length == first
        {
            self.0.remove(&before);
            (first, count) = (before, length + count);
        }
        if let Some(length) = self.0.remove(&(first + count)) {
            count += length;
        }
        if count > 0 {
            self.0.insert(first, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_can_be_taken_as_a_whole() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            let mut free = Free::new(10, 30);
            let parts: Vec<u32> = (0..3).map(|_| free.take(10).unwrap()).collect();
            assert_eq!(parts, [10, 20, 30]);
            assert_eq!(free.take(1), None);
            for part in order {
                free.give(parts[part], 10);
            }
            assert_eq!(free.take(30), Some(10), "{order:?}");
        }
    }

    #[test]
    fn the_first_part_that_suffices_is_taken() {
        let mut free = Free::new(0, 100);
        let first = free.take(10).unwrap();
        free.take(20).unwrap();
        free.give(first, 10);
        assert_eq!(
            (free.take(11), free.take(4), free.take(7), free.take(6)),
            (Some(30), Some(0), Some(41), Some(4))
        );
    }
}
