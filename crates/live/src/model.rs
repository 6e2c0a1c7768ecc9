//! What intervals have added: aggregations, their keys, and a history of each.

use std::collections::{HashMap, VecDeque};

use events::{AggFunc, AggValue, Growth, Interval, Value, is_histogram};
use flame::escape;

use crate::cells;

/// The most rows of an aggregation.
const MOST_ROWS: usize = 1 << 16;
/// How many intervals a row remembers.
pub(crate) const HISTORY: usize = 60;

/// A key of an aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Vec<Value<'static>>,
    /// The columns of the key as they are shown.
    pub(crate) texts: Vec<String>,
    pub(crate) total: AggValue<'static>,
    /// The numbers of the last intervals that have added something, with the intervals' numbers.
    history: VecDeque<(u64, i64)>,
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// With its `@`.
    pub(crate) name: String,
    pub(crate) function: AggFunc,
    /// The expressions of the columns of its key, as the program has them.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// The rows of a key's texts: different keys may look the same.
    numbers: HashMap<Vec<String>, Vec<usize>>,
    /// How often a key was not kept.
    pub(crate) others: u64,
    /// How many intervals have ended.
    pub(crate) intervals: u64,
    /// The length of the last one in nanoseconds.
    pub(crate) length: u64,
}

/// All aggregations, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) panels: Vec<Panel>,
}

impl Model {
    /// Receives what an interval has added. True if it is complete.
    pub(crate) fn add(&mut self, all: &Interval<'_>) -> bool {
        let name = all.column.title();
        let at = self.panels.iter().position(|panel| panel.name == name).unwrap_or_else(|| {
            self.panels.push(Panel::new(name, all.column.function));
            self.panels.len() - 1
        });
        if let Some(panel) = self.panels.get_mut(at) {
            panel.add(all);
        }
        all.part.last
    }
}

impl Panel {
    fn new(name: String, function: AggFunc) -> Panel {
        Panel {
            name,
            function,
            columns: Vec::new(),
            rows: Vec::new(),
            numbers: HashMap::new(),
            others: 0,
            intervals: 0,
            length: 0,
        }
    }

    fn add(&mut self, all: &Interval<'_>) {
        if all.part.first {
            self.intervals += 1;
            self.length = all.end.saturating_sub(all.begin);
        }
        if self.columns.is_empty() {
            self.columns = all.keys.iter().map(ToString::to_string).collect();
        }
        all.rows.iter().for_each(|growth| self.grow(growth));
    }

    fn grow(&mut self, growth: &Growth<'_>) {
        let texts: Vec<String> = growth.key.iter().map(cells::text).collect();
        let same = self.numbers.get(&texts).into_iter().flatten();
        let is_it = |n: &&usize| self.rows.get(**n).is_some_and(|row| row.key == growth.key);
        let at = same.copied().find(|n| is_it(&n));
        let at = at.or_else(|| {
            if self.rows.len() >= MOST_ROWS {
                self.others = self.others.saturating_add(1);
                return None;
            }
            let Growth { key, total, .. } = growth.clone().into_owned();
            self.numbers.entry(texts.clone()).or_default().push(self.rows.len());
            self.rows.push(Row { key, texts, total, history: VecDeque::new() });
            Some(self.rows.len() - 1)
        });
        let Some(row) = at.and_then(|at| self.rows.get_mut(at)) else { return };
        row.total = growth.total.clone().into_owned();
        if row.history.len() >= HISTORY {
            row.history.pop_front();
        }
        row.history.push_back((self.intervals, growth.increment.quantity()));
    }

    pub(crate) fn is_histogram(&self) -> bool {
        is_histogram(self.function)
    }

    /// What is aggregated: `@reads[execname] = sum()`.
    pub(crate) fn title(&self) -> String {
        let keys = match self.columns.is_empty() {
            true => String::new(),
            false => format!("[{}]", self.columns.join(", ")),
        };
        escape::name(format!("{}{keys} = {}()", self.name, self.function.name()).as_bytes())
    }
}

impl Row {
    /// What the last interval has added; `None` for nothing.
    pub(crate) fn last(&self, panel: &Panel) -> Option<i64> {
        let (interval, number) = self.history.back()?;
        (*interval == panel.intervals).then_some(*number)
    }

    /// What each of so many last intervals has added, the last one last.
    pub(crate) fn recent(&self, panel: &Panel, count: usize) -> Vec<i64> {
        let count = count.min(HISTORY);
        let mut all = vec![0; count];
        for (interval, number) in &self.history {
            let ago = panel.intervals.saturating_sub(*interval);
            let at = usize::try_from(ago).ok().and_then(|ago| count.checked_sub(ago + 1));
            if let Some(cell) = at.and_then(|at| all.get_mut(at)) {
                *cell = *number;
            }
        }
        all
    }
}
