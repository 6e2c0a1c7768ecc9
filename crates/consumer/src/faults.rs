//! Errors of clauses, so many as a reader can read.
//!
//! A clause may fault at each firing, thousands of times a second, and whoever makes it fire may be
//! no friend; so may an action fail that the consumer performs. The first [`FIRST`] errors of a
//! clause are delivered as they are. The others are counted, and a second after the last one that
//! was delivered the first of them is delivered with their number; so is the rest at the end,
//! however tracing ends. Seconds are those of the clock of the records.

use std::collections::HashMap;

use crate::record::ClauseKey;

/// How many errors of a clause are delivered as they are.
const FIRST: u32 = 5;
/// The least interval of the events of a clause after these, in nanoseconds.
const INTERVAL: u64 = 1_000_000_000;

/// The first of several errors of a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted<T> {
    pub(crate) first: T,
    /// When it was.
    pub(crate) time: u64,
    /// How many they are.
    pub(crate) count: u64,
}

#[derive(Debug)]
struct Clause<T> {
    delivered: u32,
    /// When an error of it was last delivered.
    last: u64,
    /// Those that are not.
    counted: Option<Counted<T>>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Few<T> {
    clauses: HashMap<ClauseKey, Clause<T>>,
    /// Of how many clauses errors are counted.
    waiting: usize,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Few { clauses: HashMap::new(), waiting: 0 }
    }
}

impl<T> Few<T> {
    /// True if an error of a clause at this time is to be delivered as it is; `all` are, if that is
    /// wanted. Otherwise it is counted, and `error` is called if it is the first that is.
    pub(crate) fn add(&mut self, all: bool, key: ClauseKey, time: u64, error: impl FnOnce() -> T) -> bool {
        if all {
            return true;
        }
        let clause = self.clauses.entry(key).or_insert(Clause { delivered: 0, last: 0, counted: None });
        if clause.delivered < FIRST {
            clause.delivered += 1;
            clause.last = time;
            return true;
        }
        match &mut clause.counted {
            Some(counted) => counted.count = counted.count.saturating_add(1),
            None => {
                self.waiting += 1;
                clause.counted = Some(Counted { first: error(), time, count: 1 });
            }
        }
        false
    }

    /// The errors that were counted for a second before `now`.
    pub(crate) fn due(&mut self, now: u64) -> Vec<Counted<T>> {
        if self.waiting == 0 {
            return Vec::new();
        }
        self.take(|clause| {
            let is_due = now.saturating_sub(clause.last) >= INTERVAL;
            let counted = clause.counted.take_if(|_| is_due)?;
            clause.last = now;
            Some(counted)
        })
    }

    /// All that were counted.
    pub(crate) fn rest(&mut self) -> Vec<Counted<T>> {
        self.take(|clause| clause.counted.take())
    }

    fn take(&mut self, one: impl FnMut(&mut Clause<T>) -> Option<Counted<T>>) -> Vec<Counted<T>> {
        let mut all: Vec<Counted<T>> = self.clauses.values_mut().filter_map(one).collect();
        self.waiting = self.waiting.saturating_sub(all.len());
        all.sort_by_key(|counted| counted.time);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn shown(all: Vec<Counted<u64>>) -> Vec<(u64, u64)> {
        all.into_iter().map(|counted| (counted.first, counted.count)).collect()
    }

    #[test]
    fn five_errors_of_a_clause_are_delivered_then_one_a_second_with_their_number_then_the_rest() {
        let mut errors = Few::default();
        let (mut alone, mut later) = (0, Vec::new());
        // 1000 errors a second, for three seconds and a half.
        for time in (0..3500).map(|n| n * MS) {
            alone += u32::from(errors.add(false, ClauseKey::of_first(1), time, || time));
            later.extend(shown(errors.due(time)));
        }
        assert_eq!(alone, FIRST);
        assert_eq!(later, [(5 * MS, 1000), (1005 * MS, 1000), (2005 * MS, 1000)]);
        assert_eq!(shown(errors.rest()), [(3005 * MS, 495)]);
        assert_eq!(shown(errors.rest()), []);
    }

    #[test]
    fn clauses_are_counted_apart() {
        let mut errors = Few::default();
        for time in 0..8 {
            for clause in 1..4 {
                assert_eq!(errors.add(false, ClauseKey::of_first(clause), time, || time), time < 5);
            }
        }
        // What is delivered because all are is not counted.
        assert!(errors.add(true, ClauseKey::of_first(1), 9, || 9));
        assert_eq!(shown(errors.due(4 + INTERVAL)), [(5, 3); 3]);
        assert_eq!(shown(errors.due(u64::MAX)), []);
    }
}
