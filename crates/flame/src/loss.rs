//! What is missing in the data: it is part of every picture.

use std::collections::BTreeMap;

use events::{Drop, DropKind, Event, Suppressed};

use crate::escape::thousands;

/// Drops and suppressed firings since the start.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    drops: BTreeMap<&'static str, (u64, &'static str, &'static str)>,
    suppressed: u64,
    faults: u64,
}

impl Loss {
    /// Adds what an event says was lost.
    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Drop(drop) => self.dropped(drop),
            Event::Suppressed(suppressed) => self.suppressed(suppressed),
            Event::Fault(fault) => self.faulted(fault.count),
            _ => {}
        }
    }

    fn dropped(&mut self, drop: &Drop) {
        if let Some(words) = DropKind::words(drop.kind) {
            let (count, ..) = self.drops.entry(words.tag).or_insert((0, words.one, words.many));
            *count = count.saturating_add(drop.count);
        }
    }

    fn suppressed(&mut self, suppressed: &Suppressed<'_>) {
        self.suppressed = self.suppressed.saturating_add(suppressed.count);
    }

    fn faulted(&mut self, count: u64) {
        self.faults = self.faults.saturating_add(count);
    }

    /// A line for each kind of loss.
    pub fn lines(&self) -> Vec<String> {
        let line = |n: u64, one: &str, many: &str| {
            (n > 0).then(|| format!("{} {}", thousands(n), if n == 1 { one } else { many }))
        };
        let drops = self.drops.values().filter_map(|(n, one, many)| line(*n, one, many));
        let suppressed =
            line(self.suppressed, "firing suppressed by the kernel", "firings suppressed by the kernel");
        let faults = line(self.faults, "error in a clause", "errors in clauses");
        drops.chain(suppressed).chain(faults).collect()
    }
}
