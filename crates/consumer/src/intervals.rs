//! What intervals have added to aggregations (`-x every`).
//!
//! ```text
//!                       ┌──> the table that is printed; clear() and trunc() change it
//!  slots of a snapshot ─┤
//!                       └──> fresh ── the interval ends ──> total; an event for each aggregation
//! ```
//!
//! A snapshot has what was aggregated since the one before, so the values of an interval are those
//! of its snapshots, and nothing is subtracted: the least value of an interval is exact too. A
//! session without intervals has none of this.

use std::borrow::Cow;
use std::io;

use events::{Clock, Column, Event, Growth, Interval, Part, Sink};
use plane::desc::{AggDesc, AggId};

use crate::agg::rows::Rows;
use crate::agg::store::Store;
use crate::names::Names;
use crate::options::Options;
use crate::outlet::Outlet;
use crate::record::Tables;

/// Keys of which totals are kept, or twice those of the table that is printed: keys that a program
/// has removed are more without end.
const TOTALS: usize = 1 << 18;
/// Rows in one event.
const ROWS: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Intervals {
    /// What the snapshots of this interval have.
    pub(crate) fresh: Store,
    /// What those of all intervals before have.
    total: Store,
    /// When this interval began.
    begin: u64,
}

impl Intervals {
    /// The first interval begins.
    pub(crate) fn new(begin: u64) -> Intervals {
        Intervals { fresh: Store::new(false), total: Store::new(false), begin }
    }

    /// Adds the next aggregation.
    pub(crate) fn add(&mut self, desc: &AggDesc) {
        self.fresh.add(desc.clone());
        self.total.add(desc.clone());
    }

    /// All aggregations.
    pub(crate) fn ids(&self) -> impl Iterator<Item = AggId> + use<> {
        (0..self.fresh.aggs.len() as u32).map(AggId)
    }

    /// The slots for whose keys there was no memory, since the last call.
    pub(crate) fn take_lost(&mut self) -> u64 {
        self.fresh.take_lost() + self.total.take_lost()
    }

    /// The interval ends: delivers what it has added. The stacks of its keys are fetched. `printed`
    /// is how many keys the table that is printed has.
    pub(crate) fn end<S: Sink>(
        &mut self,
        end: Clock,
        printed: impl Fn(AggId) -> usize,
        tables: &Tables,
        names: &mut Names<'_>,
        options: &Options,
        out: &mut Outlet<S>,
    ) -> io::Result<()> {
        let most = |id| TOTALS.max(2 * printed(id));
        self.total.absorb(&self.fresh, most);
        let begin = std::mem::replace(&mut self.begin, end.time);
        let mut done = Ok(());
        for id in self.ids() {
            // What is not delivered to a sink that fails must not be in the next interval.
            done = done.and_then(|()| self.deliver((begin, end), id, tables, names, options, out));
        }
        self.fresh.restart();
        done
    }

    fn deliver<S: Sink>(
        &self,
        (begin, end): (u64, Clock),
        id: AggId,
        tables: &Tables,
        names: &mut Names<'_>,
        options: &Options,
        out: &mut Outlet<S>,
    ) -> io::Result<()> {
        let Some(agg) = self.fresh.get(id) else { return Ok(()) };
        let rows = Rows::new(&self.fresh, &[id], tables);
        rows.prepare(names);
        let sorted = rows.sorted(options);
        let mut rest = &sorted[..];
        let mut first = true;
        loop {
            let (some, others) = rest.split_at_checked(ROWS).unwrap_or((rest, &[]));
            rest = others;
            let last = rest.is_empty();
            let growths: Vec<Growth<'_>> =
                some.iter().filter_map(|at| rows.growth(*at, &self.total, id, names)).collect();
            let column = Column { name: Cow::Borrowed(&agg.desc.name), function: agg.desc.func };
            let mut all = Interval::new(begin, end.time, column, growths);
            (all.wall, all.part) = (end.wall, Part { first, last });
            let keys = (0..agg.desc.key.len()).map(|n| agg.key_names.get(n).map_or("", |name| name));
            all.keys = keys.map(Cow::Borrowed).collect();
            all.unsigned = agg.unsigned;
            out.send(&Event::Interval(all))?;
            if last {
                return Ok(());
            }
            first = false;
        }
    }
}
