//! What the consumer keeps between batches: aggregations, stacks, symbols, options.
//!
//! The aggregations are behind a lock, which is held for writing only while they change, so that a
//! process that is about to end can still print them: see [`Merged`](crate::merged::Merged).

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use events::{Aggregation, Change, Clock, Column, Event, Format, Occasion, Part, Sink};
use plane::desc::AggId;

use crate::agg::rows::Rows;
use crate::agg::store::Store;
use crate::faults::Few;
use crate::intervals::Intervals;
use crate::names::Names;
use crate::options::Options;
use crate::outlet::Outlet;
use crate::raw::Space;
use crate::record::Tables;
use crate::source::Source;
use crate::stacks::StackCache;
use crate::symbolizer::Symbolizer;

/// Rows in one event. More rows are delivered in several, so that the symbols of all rows are not
/// in memory at once.
const ROWS: usize = 256;

/// Rows that are to be delivered.
pub(crate) struct Delivered<'a> {
    pub(crate) aggs: &'a [AggId],
    /// A format, and which columns of the key it prints as addresses.
    pub(crate) format: Option<&'a (Format, Vec<Option<Space>>)>,
    pub(crate) occasion: Occasion,
    /// When the aggregations had the values.
    pub(crate) time: Option<u64>,
}

/// What a lock holds is whole between any two statements, whoever has ended while holding it.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`read`].
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Says of a fault how a script can avoid it, once.
pub type Advice = dyn FnMut(&events::Fault<'_>) -> Option<String> + Send;

/// See the [module](self).
pub(crate) struct State {
    store: Arc<RwLock<Store>>,
    /// What intervals have added; `None` in a session without them.
    pub(crate) intervals: Option<Intervals>,
    pub(crate) stacks: StackCache,
    pub(crate) faults: Few<events::Fault<'static>>,
    /// What is said after a fault.
    pub(crate) advice: Vec<Box<Advice>>,
    /// Actions that failed, each with where and why.
    pub(crate) failures: Few<String>,
    pub(crate) symbols: Box<dyn Symbolizer>,
    /// Frames of stacks have names.
    pub(crate) names_stacks: bool,
    pub(crate) options: Options,
}

impl State {
    pub(crate) fn new(symbols: Box<dyn Symbolizer>, options: Options) -> Self {
        let (store, stacks) = (Store::new(options.aggpercpu), StackCache::default());
        let (faults, failures) = Default::default();
        let store = Arc::new(RwLock::new(store));
        let advice = Vec::new();
        let intervals = None;
        State { store, intervals, stacks, faults, advice, failures, symbols, names_stacks: true, options }
    }

    /// The aggregations.
    pub(crate) fn store(&self) -> RwLockReadGuard<'_, Store> {
        read(&self.store)
    }

    /// The aggregations, to change them.
    pub(crate) fn store_mut(&self) -> RwLockWriteGuard<'_, Store> {
        write(&self.store)
    }

    /// The aggregations, for others.
    pub(crate) fn shared_store(&self) -> Arc<RwLock<Store>> {
        self.store.clone()
    }

    /// Takes a snapshot. If it completes an interval, delivers what that has added.
    pub(crate) fn snapshot<S: Sink>(
        &mut self,
        tables: &Tables,
        source: &mut dyn Source,
        out: &mut Outlet<S>,
    ) -> io::Result<()> {
        self.merge_snapshot(source)?;
        match source.interval_end() {
            Some(end) => self.end_interval(end, tables, source, out),
            None => Ok(()),
        }
    }

    /// Delivers what the interval has added that ends at this time.
    pub(crate) fn end_interval<S: Sink>(
        &mut self,
        end: Clock,
        tables: &Tables,
        source: &mut dyn Source,
        out: &mut Outlet<S>,
    ) -> io::Result<()> {
        let State { store, intervals, stacks, symbols, names_stacks, options, .. } = self;
        let Some(intervals) = intervals else { return Ok(()) };
        for id in intervals.ids() {
            for key in intervals.fresh.unfetched(id) {
                intervals.fresh.fetch_stacks(id, &key, &mut |stack| stacks.get(stack, source));
            }
        }
        let (target, of_stacks) = (options.target, *names_stacks);
        let mut names = Names { symbols: symbols.as_mut(), target, time: None, of_stacks };
        let printed = |id| read(store).get(id).map_or(0, |agg| agg.entries.len());
        intervals.end(end, printed, tables, &mut names, options, out)
    }

    fn merge_snapshot(&mut self, source: &mut dyn Source) -> io::Result<()> {
        let State { store, intervals, stacks, symbols, names_stacks, .. } = self;
        let symbols = symbols.as_mut();
        // Stacks of new keys are fetched after the snapshot: while it runs, the source is busy with
        // it.
        let (mut wanted, mut wanted_fresh) = (Vec::new(), Vec::new());
        let mut merging = write(store);
        merging.begin_snapshot();
        match intervals {
            None => source.snapshot(&mut |id, cpu, key, words| {
                merging.merge(id, cpu, key, words, symbols, &mut wanted);
            })?,
            Some(Intervals { fresh, .. }) => {
                fresh.begin_snapshot();
                source.snapshot(&mut |id, cpu, key, words| {
                    merging.merge(id, cpu, key, words, symbols, &mut wanted);
                    fresh.merge(id, cpu, key, words, symbols, &mut wanted_fresh);
                })?;
            }
        }
        drop(merging);
        stacks.snapshotted();
        let mut seen = HashSet::new();
        for (id, key) in wanted {
            write(store).fetch_stacks(id, &key, &mut |id| {
                let stack = stacks.get(id, source);
                if *names_stacks && stack.tgid != 0 && seen.insert(stack.tgid) {
                    symbols.see(stack.tgid);
                }
                stack
            });
        }
        for (id, key) in wanted_fresh {
            let fresh = intervals.as_mut().map(|intervals| &mut intervals.fresh);
            fresh
                .into_iter()
                .for_each(|fresh| fresh.fetch_stacks(id, &key, &mut |id| stacks.get(id, source)));
        }
        Ok(())
    }

    /// Fetches the stacks of these keys.
    fn fetch(&mut self, source: &mut dyn Source, id: AggId, keys: &[Box<[u8]>]) {
        for key in keys {
            write(&self.store).fetch_stacks(id, key, &mut |id| self.stacks.get(id, source));
        }
    }

    /// Executes an action on an aggregation.
    pub(crate) fn change(&mut self, tables: &Tables, source: &mut dyn Source, id: AggId, change: Change) {
        match change {
            Change::Clear => self.store_mut().clear(id),
            Change::Trunc(count) => {
                let keys = self.store().undecided(id, count, tables);
                self.fetch(source, id, &keys);
                self.store_mut().trunc(id, count, tables);
            }
            Change::Normalize(by) => self.store_mut().normalize(id, by),
            Change::Denormalize => self.store_mut().normalize(id, 1),
        }
    }

    /// Delivers the rows of aggregations; true if there are any.
    pub(crate) fn deliver<S: Sink>(
        &mut self,
        tables: &Tables,
        source: &mut dyn Source,
        delivered: &Delivered<'_>,
        out: &mut Outlet<S>,
    ) -> io::Result<bool> {
        for id in delivered.aggs {
            let keys = self.store().unfetched(*id);
            self.fetch(source, *id, &keys);
        }
        let State { store, symbols, names_stacks, options, .. } = self;
        let (target, of_stacks) = (options.target, *names_stacks);
        let mut names = Names { symbols: symbols.as_mut(), target, time: None, of_stacks };
        deliver_rows(&read(store), tables, &mut names, options, delivered, out)
    }
}

/// Delivers the rows of aggregations whose stacks are fetched; true if there are any.
pub(crate) fn deliver_rows<S: Sink>(
    store: &Store,
    tables: &Tables,
    names: &mut Names<'_>,
    options: &Options,
    delivered: &Delivered<'_>,
    out: &mut Outlet<S>,
) -> io::Result<bool> {
    let Delivered { aggs, format, occasion, time } = *delivered;
    let rows = Rows::new(store, aggs, tables);
    rows.prepare(names);
    let sorted = rows.shown(options);
    let shown = rows.len() > 0;
    let (format, addresses) = match format {
        Some((format, addresses)) => (Some(format), &addresses[..]),
        None => (None, &[][..]),
    };
    let descs = aggs.iter().filter_map(|id| Some(&store.get(*id)?.desc));
    let columns: Vec<Column<'_>> =
        descs.map(|d| Column { name: Cow::Borrowed(&d.name), function: d.func }).collect();
    let keys = store.key_names(aggs);
    let mut rest = &sorted[..];
    let mut first = true;
    loop {
        let (some, others) = rest.split_at_checked(ROWS).unwrap_or((rest, &[]));
        rest = others;
        let rows = rows.named(some, addresses, names);
        let last = rest.is_empty();
        let mut all = Aggregation::new(occasion, columns.clone(), rows);
        all.part = Part { first, last };
        all.time = time;
        all.format = format.map(Cow::Borrowed);
        all.keys = keys.iter().map(|name| Cow::Borrowed(&**name)).collect();
        out.send(&Event::Aggregation(all))?;
        if last {
            return Ok(shown);
        }
        first = false;
    }
}
