//! The consumer: turns records and snapshots into events.
//!
//! It receives batches of records in time order, decodes each, executes the actions on aggregations
//! and feeds a [`Sink`]. Three decisions shape it:
//!
//! - **Everything is an event.** Results, messages, effects and the newline after `^C` reach the
//!   sink in the order in which they happen. A record is one event; `printa()`, effects and changed
//!   options inside it are events between its parts.
//! - **One snapshot per batch.** `printa()` and `clear()` use a snapshot that begins after the
//!   batch was read, so it contains all data up to the batch. They are executed in record order on
//!   the consumer's table. A snapshot per record would cost a grace period each; without one the
//!   values would be older than the record that prints them. A batch without such actions takes no
//!   snapshot. The session waits for snapshots without the consumer
//!   ([`Consumer::before_snapshot`]), because a grace period may be long.
//! - **A record allocates nothing.** See [`crate::delivery`].

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, RwLock};

use events::{Event, Fault, Occasion, Probe, Sink, Start};
use plane::control::{DropDelta, DropKind};
use plane::desc::{AggDesc, AggId};
use plane::read::Batch;
use plane::stacks::Stack;
use proc::watcher::SharedWatcher;

use crate::delivery::{Delivery, Session, Snapshot};
use crate::faults::Counted;
use crate::intervals::Intervals;
use crate::merged::Merged;
use crate::options::Options;
use crate::outlet::Outlet;
use crate::raw::CallContext;
use crate::record::{Enabled, EnabledProbe, Layout, ProbeRow, Tables, is_named};
use crate::source::{RawRecord, Source};
use crate::state::{Advice, Delivered, State, read, write};
use crate::symbolizer::{Codes, Symbolizer};

/// See the [module](self).
pub struct Consumer<S: Sink> {
    out: Outlet<S>,
    tables: Arc<RwLock<Tables>>,
    state: State,
    /// Some record or key holds addresses of processes.
    user_addresses: bool,
    /// Some record prints or changes aggregations.
    uses_snapshots: bool,
    /// epid of the last record of each context.
    last: HashMap<CallContext, u32>,
}

impl<S: Sink> Consumer<S> {
    /// A consumer without probes.
    pub fn new(sink: S, symbols: Box<dyn Symbolizer>, options: Options) -> Self {
        Consumer {
            out: Outlet::new(sink, &options),
            tables: Arc::default(),
            state: State::new(symbols, options),
            user_addresses: false,
            uses_snapshots: false,
            last: HashMap::new(),
        }
    }

    /// Reports the start of the session, with the options.
    pub fn start(&mut self, mut start: Start<'_>) {
        start.settings = self.state.options.settings();
        self.out.start(start);
    }

    /// Registers an enabled probe.
    pub fn enable(&mut self, epid: u32, probe: EnabledProbe) {
        self.enable_all(epid, Arc::new([Some(probe.probe)]), probe.layout);
    }

    /// Registers the enabled probes from `first` on: a clause, and the probes that it may fire for.
    pub fn enable_all(&mut self, first: u32, probes: ProbeRow, layout: Option<Arc<Layout>>) {
        self.user_addresses |=
            layout.as_ref().is_some_and(|l| l.names_user_addresses(self.state.names_stacks));
        self.uses_snapshots |= layout.as_ref().is_some_and(|l| l.uses_snapshot);
        write(&self.tables).enable_all(first, probes, layout);
    }

    /// Adds what is asked after each fault that is an event, if there is anything to say; its text
    /// becomes a notice.
    pub fn advise(&mut self, advice: Option<Box<Advice>>) {
        self.state.advice.extend(advice);
    }

    /// Registers the enabled probes from `first` on: clauses with these layouts at one probe.
    pub fn enable_site(&mut self, first: u32, probe: Arc<Probe>, layouts: Arc<[Option<Arc<Layout>>]>) {
        self.user_addresses |=
            layouts.iter().flatten().any(|l| l.names_user_addresses(self.state.names_stacks));
        self.uses_snapshots |= layouts.iter().flatten().any(|l| l.uses_snapshot);
        write(&self.tables).enable_site(first, probe, layouts);
    }

    /// Forgets the enabled probes that were registered together from `first` on. No record of them
    /// is to come.
    pub fn disable(&mut self, first: u32) {
        write(&self.tables).disable(first);
    }

    /// Sets an interned string.
    pub fn intern(&mut self, index: u32, text: impl Into<Arc<[u8]>>) {
        write(&self.tables).intern(index, text);
    }

    /// Sets the name of a provider of a family of processes: of the interned prefix and the process
    /// id. Columns name the provider by these two.
    pub fn intern_provider(&mut self, prefix: u32, pid: u32, name: impl Into<Arc<[u8]>>) {
        write(&self.tables).intern_provider(prefix, pid, name);
    }

    /// Adds the next aggregation of the session; ids count from 0 in order of definition.
    pub fn add_aggregation(&mut self, desc: AggDesc) -> AggId {
        self.user_addresses |= desc.key.iter().any(|f| is_named(f.datum, self.state.names_stacks));
        self.state.intervals.iter_mut().for_each(|intervals| intervals.add(&desc));
        self.state.store_mut().add(desc)
    }

    /// Sets the expressions of the columns of an aggregation's key; empty where they are not known.
    pub fn name_keys(&mut self, id: AggId, names: Vec<Arc<str>>) {
        let fresh = self.state.intervals.as_mut().and_then(|intervals| intervals.fresh.get_mut(id));
        fresh.into_iter().for_each(|agg| agg.key_names.clone_from(&names));
        if let Some(agg) = self.state.store_mut().get_mut(id) {
            agg.key_names = names;
        }
    }

    /// Says whether no value that is added to an aggregation can be negative, for the intervals.
    pub fn mark_unsigned(&mut self, id: AggId, unsigned: bool) {
        let fresh = self.state.intervals.as_mut().and_then(|intervals| intervals.fresh.get_mut(id));
        fresh.into_iter().for_each(|agg| agg.unsigned = unsigned);
    }

    /// From now on, before anything is registered, what each interval adds to the aggregations is
    /// an event. The first one begins at this time. The [`Source`] says when one ends.
    pub fn keep_intervals(&mut self, begin: u64) {
        self.state.intervals = Some(Intervals::new(begin));
    }

    /// Says whether frames of stacks get names, before anything is registered. Without names they
    /// are addresses.
    pub fn name_stacks(&mut self, named: bool) {
        self.state.names_stacks = named;
    }

    /// The aggregations, as whoever cannot ask the consumer any more can still print them.
    pub fn merged(&self) -> Merged {
        let options = Options { target: None, ..self.state.options.clone() };
        Merged::new(self.state.shared_store(), self.tables.clone(), options)
    }

    /// The current options.
    pub fn options(&self) -> &Options {
        &self.state.options
    }

    /// Changes the options; they may change between batches.
    pub fn set_options(&mut self, options: Options) {
        self.out.change_options(&mut self.state.options, options);
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        self.out.sink()
    }

    /// The sink.
    pub fn sink_mut(&mut self) -> &mut S {
        self.out.sink_mut()
    }

    /// The sink, without the consumer.
    pub fn into_sink(self) -> S {
        self.out.into_sink()
    }

    /// A clause whose probes are still to come may print addresses of processes: what helps to name
    /// them is to begin with the session.
    pub fn expect_user_addresses(&mut self) {
        self.user_addresses = true;
    }

    /// True in a session that prints addresses of processes.
    pub fn names_user_addresses(&self) -> bool {
        self.user_addresses
    }

    /// Reports drops that were counted at a time, and the stacks that the source did not have.
    pub fn dropped(&mut self, deltas: impl IntoIterator<Item = DropDelta>, time: Option<u64>) {
        let stacks = DropDelta { kind: DropKind::Stack, cpu: 0, count: self.state.stacks.take_lost() };
        let keys = self.state.store_mut().take_lost();
        let keys = keys + self.state.intervals.as_mut().map_or(0, Intervals::take_lost);
        let keys = DropDelta { kind: DropKind::Aggregation, cpu: 0, count: keys };
        let lost = [stacks, keys].into_iter().filter(|lost| lost.count > 0);
        for DropDelta { kind, cpu, count } in deltas.into_iter().chain(lost) {
            // The other kinds lose nothing.
            if kind.words().is_some() {
                let mut drop = events::Drop::new(kind, cpu, count);
                drop.time = time;
                self.out.report(&Event::Drop(drop));
            }
        }
    }

    /// Passes an event of the session to the sink. If the sink fails, the next operation that
    /// returns an error returns it.
    pub fn report(&mut self, event: &Event<'_>) {
        self.out.report(event);
    }

    /// The session is about to wait, or it has ended: the sink writes everything.
    pub fn flush(&mut self) -> io::Result<()> {
        for text in self.state.symbols.take_messages() {
            self.out.failure(text, None);
        }
        self.out.flush()
    }

    /// The number of records of a batch from `from` on before the first that prints or changes an
    /// aggregation. Records of one firing are not separated.
    pub fn before_snapshot(&self, batch: &Batch, from: usize) -> usize {
        let records = batch.after(from);
        if !self.uses_snapshots {
            return records.len();
        }
        let tables = read(&self.tables);
        let uses =
            |epid| matches!(tables.get(epid), Some(Enabled { layout: Some(l), .. }) if l.uses_snapshot);
        let Some((at, first)) = records.iter().enumerate().find(|(_, r)| uses(r.epid)) else {
            return records.len();
        };
        let before = records.get(..at).unwrap_or_default();
        at - before.iter().rev().take_while(|r| r.time == first.time).count()
    }

    /// Consumes `count` records of a batch of the ring reader, from `from` on. The aggregations
    /// that these print or change are those of the last snapshot.
    pub fn consume_part(
        &mut self,
        batch: &Batch,
        from: usize,
        count: usize,
        source: &mut dyn Source,
    ) -> io::Result<()> {
        let records = batch.after(from).iter().take(count);
        let raw: Vec<RawRecord<'_>> = records
            .map(|r| RawRecord {
                cpu: u32::from(r.cpu),
                time: r.time,
                epid: r.epid,
                flags: r.flags,
                data: batch.data(r),
            })
            .collect();
        self.deliver_batch(&raw, source, Snapshot::Taken)
    }

    /// Consumes a batch of records in time order, with a snapshot of its own. Everything it needs
    /// from the kernel is read during the call.
    pub fn consume(&mut self, batch: &[RawRecord<'_>], source: &mut dyn Source) -> io::Result<()> {
        self.deliver_batch(batch, source, Snapshot::Needed)
    }

    fn deliver_batch(
        &mut self,
        batch: &[RawRecord<'_>],
        source: &mut dyn Source,
        snapshot: Snapshot,
    ) -> io::Result<()> {
        self.state.symbols.begin_batch();
        let Consumer { out, tables, state, last, .. } = self;
        let tables = read(tables);
        let session = Session { tables: &tables, state, source, out, last };
        let done = Delivery::new(session, snapshot).batch(batch);
        let ended = out.batch_end();
        done.and(ended)
    }

    /// Takes a snapshot outside a batch (`aggrate`).
    pub fn snapshot(&mut self, source: &mut dyn Source) -> io::Result<()> {
        self.state.symbols.begin_batch();
        let Consumer { out, tables, state, .. } = self;
        state.snapshot(&read(tables), source, out)
    }

    /// Keeps stacks that the source has evicted before the time `now`, as long as a record or key
    /// may name them.
    pub fn keep_stacks(&mut self, stacks: Vec<(u64, Stack)>, now: u64) {
        let store = self.state.shared_store();
        let State { intervals, stacks: kept, .. } = &mut self.state;
        kept.keep(stacks, now, || {
            let mut named = read(&store).named_stacks();
            named.extend(intervals.iter().flat_map(|intervals| intervals.fresh.named_stacks()));
            named
        });
    }

    /// Every record with a time before `until` has been consumed, and it is `now` by the clock of
    /// the records. What waits for a second to pass needs only the latter: `until` stays where it
    /// is while a speculation is open.
    pub fn drained(&mut self, until: u64, now: u64) {
        self.state.stacks.drained(until);
        let State { faults, failures, .. } = &mut self.state;
        let (faults, failures) = (faults.due(now), failures.due(now));
        self.report_errors(faults, failures);
    }

    /// Reports all errors of clauses that were only counted so far: nothing is known to come that
    /// would report them.
    pub fn report_counted(&mut self) {
        let State { faults, failures, .. } = &mut self.state;
        let (faults, failures) = (faults.rest(), failures.rest());
        self.report_errors(faults, failures);
    }

    /// Tracing has ended, and there is no [`Consumer::finish`], or it failed: reports what was
    /// counted until now.
    pub fn abort(&mut self) {
        self.report_counted();
        self.out.sink_mut().aborted();
    }

    fn report_errors(&mut self, faults: Vec<Counted<Fault<'static>>>, failures: Vec<Counted<String>>) {
        for Counted { mut first, count, .. } in faults {
            first.count = count;
            self.out.report(&Event::Fault(first));
        }
        for Counted { first, count, time } in failures {
            let text = match count {
                1 => format!("error {first}"),
                count => format!("{count} more errors of a clause, the first {first}"),
            };
            self.out.failure(text, Some(time));
        }
    }

    /// Registers a live process whose addresses may be printed; see [`Symbolizer::note`]. This has
    /// no cost in a session that prints no user addresses.
    pub fn note(&mut self, pid: u32) {
        if self.user_addresses {
            self.state.symbols.note(pid);
        }
    }

    /// True in a session that prints addresses of processes by name, which a watcher of processes
    /// helps with.
    pub fn wants_watcher(&self) -> bool {
        self.user_addresses && self.state.symbols.uses_watcher()
    }

    /// Uses what says how functions of an interpreter are called.
    pub fn set_codes(&mut self, codes: Codes) {
        self.state.symbols.set_codes(codes);
    }

    /// Uses a watcher of processes.
    pub fn set_watcher(&mut self, watcher: SharedWatcher) {
        self.state.symbols.set_watcher(watcher);
    }

    /// Takes what the watcher has seen; see [`Symbolizer::watch`].
    pub fn watch_processes(&mut self) -> bool {
        self.state.symbols.watch()
    }

    /// See [`Symbolizer::is_looking`].
    pub fn is_looking(&self) -> bool {
        self.state.symbols.is_looking()
    }

    /// The user has interrupted the session.
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.state.symbols.interrupt();
        self.out.send(&Event::Interrupt)?;
        self.out.batch_end()
    }

    /// Delivers the end: takes a last snapshot, which ends the last interval, and delivers the
    /// aggregations that no `printa()` has printed, and those that one has if the sink needs them.
    pub fn finish(&mut self, source: &mut dyn Source) -> io::Result<()> {
        self.snapshot(source)?;
        if let Some(end) = source.clock() {
            let Consumer { out, tables, state, .. } = self;
            state.end_interval(end, &read(tables), source, out)?;
        }
        self.dropped([], source.clock().map(|now| now.time));
        self.report_counted();
        self.out.send(&Event::Stop)?;
        self.deliver(source, Occasion::End)
    }

    /// Delivers all aggregations as they are now, whether or not they were printed. What follows is
    /// the same as without this call.
    pub fn deliver_aggregations(&mut self, source: &mut dyn Source) -> io::Result<()> {
        self.snapshot(source)?;
        self.deliver(source, Occasion::Demand)
    }

    /// Delivers the aggregations, each in an event of its own; at the end, those that were not
    /// printed, or that the sink needs.
    fn deliver(&mut self, source: &mut dyn Source, occasion: Occasion) -> io::Result<()> {
        let time = source.clock().map(|now| now.time);
        let mut ids: Vec<AggId> = (0..self.state.store().aggs.len() as u32).map(AggId).collect();
        if self.state.options.aggsortrev {
            ids.reverse();
        }
        let needs_printed = self.out.sink().needs().printed;
        for id in ids {
            let Some(printed) = self.state.store().get(id).map(|agg| agg.printed) else { continue };
            let occasion = match (occasion, printed) {
                (Occasion::End, true) if needs_printed => Occasion::Demand,
                (Occasion::End, true) => continue,
                (occasion, _) => occasion,
            };
            let rows = Delivered { aggs: &[id], format: None, occasion, time };
            self.state.deliver(&read(&self.tables), source, &rows, &mut self.out)?;
        }
        self.out.batch_end()
    }
}
