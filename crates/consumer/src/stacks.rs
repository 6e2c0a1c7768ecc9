//! The stacks that records and keys name.
//!
//! The source has a stack from the moment its id is recorded until it evicts the stack. Then it is
//! kept here while a record that is not yet consumed, or a key, may name it ([`plane::stacks`] says
//! why that is decidable). So the memory for evicted stacks is proportional to the keys of
//! aggregations, not to the duration of the session. An id that nobody has a stack for is counted:
//! its stack is printed empty, which must not look like the truth.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plane::stacks::Stack;

use crate::source::Source;

/// The empty stack, printed for a stack that could not be stored.
pub(crate) fn no_stack() -> Arc<Stack> {
    Arc::new(Stack::default())
}

/// A moment: when a stack was evicted, or until when everything is consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// The clock of the records.
    time: u64,
    /// Number of merged snapshots.
    snapshots: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct StackCache {
    /// Stacks that the source had when they were asked for. An id never means another stack.
    known: HashMap<u64, Arc<Stack>>,
    /// Stacks that the source has evicted, and when.
    evicted: HashMap<u64, (Arc<Stack>, Progress)>,
    /// Above this number of evicted stacks, those that nothing names are forgotten.
    limit: usize,
    /// Every record before this time has been consumed, and so many snapshots are merged.
    done: Progress,
    /// How often a stack was not found since the last call of [`StackCache::take_lost`].
    lost: u64,
}

impl StackCache {
    /// The maximum number of known stacks. They are forgotten when there are more: the source has
    /// them, or gives them to [`StackCache::keep`]. Also the least limit of evicted stacks.
    const MOST: usize = 1 << 16;
    /// The first snapshot that is merged after an eviction may have begun before it. The second one
    /// has begun after the first one was merged.
    const SNAPSHOTS: u64 = 2;

    pub(crate) fn get(&mut self, id: u64, source: &mut dyn Source) -> Arc<Stack> {
        if id == 0 {
            return no_stack();
        }
        if let Some(stack) = self.known.get(&id).or_else(|| Some(&self.evicted.get(&id)?.0)) {
            return stack.clone();
        }
        let Some(stack) = source.stack(id) else {
            self.lost += 1;
            return no_stack();
        };
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        let stack = Arc::new(stack);
        self.known.insert(id, stack.clone());
        stack
    }

    /// Keeps stacks that were evicted before the time `now`. `named` returns the ids in keys whose
    /// stacks were not fetched.
    pub(crate) fn keep(&mut self, stacks: Vec<(u64, Stack)>, now: u64, named: impl FnOnce() -> HashSet<u64>) {
        if self.evicted.len() + stacks.len() > self.limit.max(Self::MOST) {
            let (done, named) = (self.done, named());
            let settled =
                |then: &Progress| done.time > then.time && done.snapshots >= then.snapshots + Self::SNAPSHOTS;
            self.evicted.retain(|id, (_, then)| !settled(then) || named.contains(id));
            self.limit = 2 * self.evicted.len();
        }
        let evicted = Progress { time: now, ..self.done };
        for (id, stack) in stacks {
            let stack = self.known.remove(&id).unwrap_or_else(|| Arc::new(stack));
            self.evicted.insert(id, (stack, evicted));
        }
    }

    /// Every record before the time `until` has been consumed.
    pub(crate) fn drained(&mut self, until: u64) {
        self.done.time = self.done.time.max(until);
    }

    /// A snapshot has been merged.
    pub(crate) fn snapshotted(&mut self) {
        self.done.snapshots += 1;
    }

    /// How often a stack was not found since the last call.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::source::SlotSink;

    /// Has no stacks.
    struct Nothing;

    impl Source for Nothing {
        fn snapshot(&mut self, _: &mut SlotSink<'_>) -> io::Result<()> {
            Ok(())
        }

        fn stack(&mut self, _: u64) -> Option<Stack> {
            None
        }
    }

    fn stacks(ids: std::ops::Range<u64>) -> Vec<(u64, Stack)> {
        ids.map(|id| (id, Stack { tgid: 0, time: 0, pcs: vec![id], ..Stack::default() })).collect()
    }

    #[test]
    fn evicted_stacks_are_kept_until_no_record_or_key_names_them() {
        let most = StackCache::MOST as u64;
        let mut cache = StackCache::default();
        let has = |cache: &mut StackCache, id: u64| cache.get(id, &mut Nothing).pcs == [id];
        let none = HashSet::new;
        cache.keep(stacks(1..most + 1), 50, none);
        // Records that are not consumed yet may name all of them, however many drains there were.
        (0..5).for_each(|_| cache.drained(50));
        cache.snapshotted();
        cache.snapshotted();
        cache.keep(stacks(most + 1..most + 2), 60, none);
        assert!((1..most + 2).all(|id| has(&mut cache, id)));
        // Now only keys can, and the new ones are too new.
        cache.limit = 0;
        cache.drained(51);
        cache.keep(stacks(most + 2..most + 3), 70, || HashSet::from([7]));
        assert_eq!(cache.evicted.len(), 3);
        assert!(has(&mut cache, 7) && has(&mut cache, most + 1) && has(&mut cache, most + 2));
        assert_eq!(cache.take_lost(), 0);
        assert!(!has(&mut cache, 8));
        assert_eq!((cache.take_lost(), cache.take_lost()), (1, 0));
    }

    #[test]
    fn a_stack_is_kept_until_a_snapshot_that_began_after_its_eviction_is_merged() {
        let most = StackCache::MOST as u64;
        let mut cache = StackCache::default();
        cache.keep(stacks(1..most + 1), 50, HashSet::new);
        cache.drained(100);
        // This one may have begun before.
        cache.snapshotted();
        cache.keep(stacks(most + 1..most + 2), 100, HashSet::new);
        assert_eq!(cache.evicted.len(), StackCache::MOST + 1);
        cache.snapshotted();
        cache.limit = 0;
        cache.keep(stacks(most + 2..most + 3), 100, HashSet::new);
        assert_eq!(cache.evicted.len(), 2);
    }

    #[test]
    fn the_memory_of_evicted_stacks_is_bounded_when_no_key_names_them() {
        let mut cache = StackCache::default();
        for round in 0..40 {
            cache.keep(stacks(10_000 * round + 1..10_000 * round + 10_001), round, HashSet::new);
            cache.drained(round + 1);
            cache.snapshotted();
            assert!(cache.evicted.len() <= StackCache::MOST + 10_000, "{}", cache.evicted.len());
        }
    }
}
