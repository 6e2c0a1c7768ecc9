//! Faults of clauses, so many as a reader can read.
//!
//! A clause may fault at each firing, thousands of times a second, and whoever makes it fire may be no friend. The first
//! [`FIRST`] faults of a clause are delivered as they are. The others are counted, and a second after the last one that was
//! delivered the first of them is delivered with their number; so is the rest at the end. Seconds are those of the
//! records.

use std::collections::HashMap;

use events::Fault;

use crate::record::ClauseKey;

/// How many faults of a clause are delivered as they are.
const FIRST: u32 = 5;
/// The least interval of the events of a clause after these, in nanoseconds.
const INTERVAL: u64 = 1_000_000_000;

#[derive(Debug, Default)]
struct Clause {
    delivered: u32,
    /// When a fault of it was last delivered.
    last: u64,
    /// The first of those that are not, with their number.
    counted: Option<Fault<'static>>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Faults {
    clauses: HashMap<ClauseKey, Clause>,
    /// Of how many clauses faults are counted.
    waiting: usize,
}

impl Faults {
    /// Takes a fault of a clause. Returns it if it is to be delivered as it is.
    pub(crate) fn add<'a>(&mut self, key: ClauseKey, fault: Fault<'a>) -> Option<Fault<'a>> {
        let clause = self.clauses.entry(key).or_default();
        if clause.delivered < FIRST {
            clause.delivered += 1;
            clause.last = fault.time;
            return Some(fault);
        }
        match &mut clause.counted {
            Some(counted) => counted.count = counted.count.saturating_add(1),
            None => {
                self.waiting += 1;
                clause.counted = Some(fault.into_owned());
            }
        }
        None
    }

    /// The faults that were counted for a second before `now`.
    pub(crate) fn due(&mut self, now: u64) -> Vec<Fault<'static>> {
        if self.waiting == 0 {
            return Vec::new();
        }
        let is_due = |clause: &&mut Clause| now.saturating_sub(clause.last) >= INTERVAL;
        let taken = self.clauses.values_mut().filter(is_due).filter_map(|clause| {
            let counted = clause.counted.take()?;
            clause.last = now;
            Some(counted)
        });
        let mut all: Vec<Fault<'static>> = taken.collect();
        self.waiting -= all.len();
        all.sort_by_key(|fault| (fault.time, fault.epid));
        all
    }

    /// All that were counted.
    pub(crate) fn rest(&mut self) -> Vec<Fault<'static>> {
        self.waiting = 0;
        let mut all: Vec<Fault<'static>> =
            self.clauses.values_mut().filter_map(|clause| clause.counted.take()).collect();
        all.sort_by_key(|fault| (fault.time, fault.epid));
        all
    }
}

#[cfg(test)]
mod tests {
    use events::FaultKind;

    use super::*;

    const MS: u64 = 1_000_000;

    fn fault(time: u64) -> Fault<'static> {
        Fault::new(time, 0, 7, FaultKind::BadAddr, time)
    }

    fn shown(all: Vec<Fault<'_>>) -> Vec<(u64, u64)> {
        all.into_iter().map(|fault| (fault.value, fault.count)).collect()
    }

    #[test]
    fn five_faults_of_a_clause_are_delivered_then_one_a_second_with_their_number_then_the_rest() {
        let mut faults = Faults::default();
        let (mut alone, mut later) = (0, Vec::new());
        // 1000 faults a second, for three seconds and a half.
        for time in (0..3500).map(|n| n * MS) {
            alone += u32::from(faults.add(ClauseKey::of_first(1), fault(time)).is_some());
            later.extend(shown(faults.due(time)));
        }
        assert_eq!(alone, FIRST);
        assert_eq!(later, [(5 * MS, 1000), (1005 * MS, 1000), (2005 * MS, 1000)]);
        assert_eq!(shown(faults.rest()), [(3005 * MS, 495)]);
        assert_eq!(shown(faults.rest()), []);
    }

    #[test]
    fn clauses_are_counted_apart() {
        let mut faults = Faults::default();
        for time in 0..8 {
            for clause in 1..4 {
                let alone = faults.add(ClauseKey::of_first(clause), fault(time)).is_some();
                assert_eq!(alone, time < 5);
            }
        }
        assert_eq!(shown(faults.due(4 + INTERVAL)), [(5, 3); 3]);
        assert_eq!(shown(faults.due(u64::MAX)), []);
    }
}
