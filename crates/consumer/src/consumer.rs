//! The consumer: turns records and snapshots into output and messages.
//!
//! It receives batches of records in time order, decodes each into an [`Event`], executes the
//! actions on aggregations and passes the other items to the renderer. Two decisions shape it:
//!
//! - **One snapshot per batch.** `printa()` and `clear()` use a snapshot that is taken after the batch was read, so it
//!   contains all data up to the batch. They are executed in record order on the consumer's table. A snapshot per record
//!   would cost a grace period each; without one the values would be older than the record that prints them. A batch
//!   without such actions takes no snapshot.
//! - **Output is buffered and written once per batch**, so a write error is handled in one place.
//!
//! With `-F`, the consumer decides which clause of a firing is an entry or a return, from the
//! previous and the next record of the same thread: the first clause of an `entry` probe, the last
//! clause of a `return` probe. A batch is then printed thread by thread. (The original prints CPU
//! by CPU, which separates the calls of a thread that migrates.) Otherwise rows are in time order.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use diagnostics::{control, system_text};
use plane::control::DropDelta;
use plane::desc::{AggDesc, AggId, FaultKind};
use plane::read::Batch;
use plane::ring::{Fault, flags};
use plane::stacks::Stack;

use crate::agg::store::Store;
use crate::message::{Aborted, DropReport, FaultReport, Message};
use crate::options::Options;
use crate::output::{Destination, Output};
use crate::record::{
    CallContext, Decoder, Enabled, EnabledProbe, Event, Flow, Item, Layout, Probe, ProbeRow, StackCache,
    Tables,
};
use crate::symbolizer::{Process, Symbolizer};
use crate::text::{Renderer, View, formatted};

/// A committed record as read from a ring.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// The CPU that recorded it.
    pub cpu: u32,
    /// Its time.
    pub time: u64,
    /// The enabled probe.
    pub epid: u32,
    /// [`plane::ring::flags`].
    pub flags: u16,
    /// The data after the header.
    pub data: &'a [u8],
}

impl RawRecord<'_> {
    /// The idle thread of a CPU has no id.
    fn context(&self) -> CallContext {
        match flags::thread(self.flags) {
            0 => CallContext::Cpu(self.cpu),
            thread => CallContext::Thread(thread),
        }
    }
}

/// Receives the slots of a snapshot: aggregation, CPU, key, value in the words of
/// [`plane::desc::AggFunc`]. A key may occur more than once (once per CPU).
pub type SlotSink<'a> = dyn FnMut(AggId, u32, &[u8], &[u64]) + 'a;

/// The source of data that is not in the records.
pub trait Source {
    /// Reads and clears what the kernel has aggregated since the last call.
    fn snapshot(&mut self, sink: &mut SlotSink<'_>) -> io::Result<()>;

    /// The stack of an id.
    fn stack(&mut self, id: u64) -> Option<Stack>;

    /// `setopt()`: sets an option of the session. Returns the new options, or the reason for the
    /// failure.
    fn set_option(&mut self, _name: &str, _value: Option<&str>) -> Result<Options, String> {
        Err("Operation illegal when tracing is active".into())
    }
}

/// See the [module](self).
pub struct Consumer<W: Output> {
    out: Destination<W>,
    tables: Tables,
    store: Store,
    stacks: StackCache,
    symbols: Box<dyn Symbolizer>,
    renderer: Box<dyn Renderer>,
    options: Options,
    messages: Vec<Message>,
    exit: Option<i32>,
    /// Some record or key holds addresses of processes.
    user_addresses: bool,
    /// epid of the last record of each context.
    last: HashMap<CallContext, u32>,
}

impl<W: Output> Consumer<W> {
    /// A consumer without probes.
    pub fn new(out: W, renderer: Box<dyn Renderer>, symbols: Box<dyn Symbolizer>, options: Options) -> Self {
        Consumer {
            out: Destination::new(out),
            tables: Tables::default(),
            store: Store::new(options.aggpercpu),
            stacks: StackCache::default(),
            symbols,
            renderer,
            options,
            messages: Vec::new(),
            exit: None,
            user_addresses: false,
            last: HashMap::new(),
        }
    }

    /// Registers an enabled probe.
    pub fn enable(&mut self, epid: u32, probe: EnabledProbe) {
        self.enable_all(epid, Arc::new([Some(probe.probe)]), probe.layout);
    }

    /// Registers the enabled probes from `first` on: a clause, and the probes that it may fire for.
    pub fn enable_all(&mut self, first: u32, probes: ProbeRow, layout: Option<Arc<Layout>>) {
        self.user_addresses |= layout.as_ref().is_some_and(|l| l.names_user_addresses());
        self.tables.enable_all(first, probes, layout);
    }

    /// Sets an interned string.
    pub fn intern(&mut self, index: u32, text: impl Into<Arc<[u8]>>) {
        self.tables.intern(index, text);
    }

    /// Adds the next aggregation of the session; ids count from 0 in order of definition.
    pub fn add_aggregation(&mut self, desc: AggDesc) -> AggId {
        self.user_addresses |= desc.key.iter().any(|f| f.datum.is_user());
        self.store.add(desc)
    }

    /// The current options; they may change between batches.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// The initial output.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.out.first
    }

    /// The status of the last `exit()` among the records so far.
    pub fn exit_status(&self) -> Option<i32> {
        self.exit
    }

    /// The messages since the last call.
    pub fn take_messages(&mut self) -> Vec<Message> {
        let mut all = std::mem::take(&mut self.messages);
        all.extend(self.symbols.take_messages().into_iter().map(Message::Failure));
        all
    }

    /// True in a session that prints addresses of processes.
    pub fn names_user_addresses(&self) -> bool {
        self.user_addresses
    }

    /// Reports drops.
    pub fn dropped(&mut self, deltas: impl IntoIterator<Item = DropDelta>) {
        let tagged = self.options.droptags;
        let reports = deltas.into_iter().filter_map(|d| DropReport::new(d, tagged)).map(Message::Drop);
        self.messages.extend(reports);
    }

    /// Consumes a batch of the ring reader.
    pub fn consume_batch(&mut self, batch: &Batch, source: &mut dyn Source) -> io::Result<()> {
        let raw: Vec<RawRecord<'_>> = batch
            .iter()
            .map(|(r, data)| RawRecord {
                cpu: u32::from(r.cpu),
                time: r.time,
                epid: r.epid,
                flags: r.flags,
                data,
            })
            .collect();
        self.consume(&raw, source)
    }

    /// Consumes a batch of records in time order. Everything it needs from the kernel is read
    /// during the call.
    pub fn consume(&mut self, batch: &[RawRecord<'_>], source: &mut dyn Source) -> io::Result<()> {
        self.symbols.begin_batch();
        let done = self.records(batch, source);
        let flushed = self.out.flush();
        done.and(flushed)
    }

    fn records(&mut self, batch: &[RawRecord<'_>], source: &mut dyn Source) -> io::Result<()> {
        let by_context = if self.options.flowindent { by_context(batch) } else { Vec::new() };
        let batch = if self.options.flowindent { &by_context } else { batch };
        let next = if self.options.flowindent { next_of_context(batch) } else { Vec::new() };
        let mut fresh = false;
        for (i, raw) in batch.iter().enumerate() {
            if raw.flags & flags::DISCARD != 0 {
                continue;
            }
            if raw.flags & flags::FAULT != 0 {
                self.fault(raw);
                continue;
            }
            let following = next.get(i).copied().flatten().map(|n| batch[n].epid);
            self.record(raw, following, source, &mut fresh)?;
            self.out.hand_over_chunk()?;
        }
        Ok(())
    }

    /// Takes a snapshot outside a batch (`aggrate`).
    pub fn snapshot(&mut self, source: &mut dyn Source) -> io::Result<()> {
        self.symbols.begin_batch();
        snapshot(&mut self.store, &mut self.stacks, self.symbols.as_mut(), source)
    }

    /// Registers a live process whose addresses may be printed; see [`Symbolizer::note`]. This has
    /// no cost in a session that prints no user addresses.
    pub fn note(&mut self, process: Process) {
        if self.user_addresses {
            self.symbols.note(process);
        }
    }

    /// A newline, as after `^C`.
    pub fn newline(&mut self) -> io::Result<()> {
        self.out.pending.push(b'\n');
        self.out.flush()
    }

    /// Prints the end: takes a last snapshot, and prints a newline and the aggregations that no
    /// `printa()` has printed.
    pub fn finish(&mut self, source: &mut dyn Source) -> io::Result<()> {
        self.snapshot(source)?;
        self.out.pending.push(b'\n');
        let mut ids: Vec<AggId> = (0..self.store.aggs.len() as u32).map(AggId).collect();
        if self.options.aggsortrev {
            ids.reverse();
        }
        for id in ids {
            if self.store.get(id).is_none_or(|agg| agg.printed) {
                continue;
            }
            let keys = self.store.unfetched(id);
            fetch(&mut self.store, &mut self.stacks, source, id, &keys);
            let rows = self.store.sorted(&[id], &self.tables, &self.options);
            let mut view = View::new(&self.options, self.symbols.as_mut(), self.out.terminal);
            self.renderer.aggregations(&mut self.out.pending, &rows, &mut view);
            drop(rows);
            self.out.hand_over()?;
        }
        self.out.flush()
    }

    fn fault(&mut self, raw: &RawRecord<'_>) {
        let Some(fault) = Fault::read(raw.data) else {
            self.messages
                .push(Message::Failure(format!("malformed fault record of enabled probe ID {}", raw.epid)));
            return;
        };
        self.messages.push(Message::Fault(FaultReport {
            epid: raw.epid,
            probe: self.tables.get(raw.epid).map(|enabled| enabled.probe.clone()),
            kind: FaultKind::from_code(u64::from(fault.kind)),
            action: fault.action,
            offset: fault.offset,
            value: fault.value,
        }));
    }

    fn record(
        &mut self,
        raw: &RawRecord<'_>,
        following: Option<u32>,
        source: &mut dyn Source,
        fresh: &mut bool,
    ) -> io::Result<()> {
        let Consumer { tables, store, stacks, symbols, renderer, options, out, messages, exit, last, .. } =
            self;
        let Some(Enabled { probe, layout: Some(layout) }) = tables.get(raw.epid) else {
            messages.push(Message::Failure(format!("record of unknown enabled probe ID {}", raw.epid)));
            return Ok(());
        };
        let flow = if options.flowindent {
            let previous = last.insert(raw.context(), raw.epid);
            flow(tables, raw.epid, probe, previous, following)
        } else {
            Flow::None
        };
        let mut decoder = Decoder { tables, stacks, source };
        let Some(items) = decoder.items(layout, raw.data) else {
            messages.push(Message::Failure(format!("record of enabled probe ID {} is too short", raw.epid)));
            return Ok(());
        };
        let context = raw.context();
        let event = Event { cpu: raw.cpu, time: raw.time, epid: raw.epid, probe, flow, context, items };
        let failure = |text: String| Message::Failure(library_error(raw.epid, probe, &text));
        let mut view = View::new(options, symbols.as_mut(), out.terminal);
        renderer.begin(&mut out.pending, &event, &mut view);
        for item in &event.items {
            let on_aggregations = matches!(
                item,
                Item::Printa { .. }
                    | Item::Clear(_)
                    | Item::Trunc(..)
                    | Item::Normalize(..)
                    | Item::Denormalize(_)
            );
            if on_aggregations && !std::mem::replace(fresh, true) {
                snapshot(store, stacks, symbols.as_mut(), source)?;
            }
            let mut view = View::new(options, symbols.as_mut(), out.terminal);
            match item {
                Item::Printa { format, aggs } => {
                    for id in aggs.iter() {
                        let keys = store.unfetched(*id);
                        fetch(store, stacks, source, *id, &keys);
                    }
                    let rows = store.sorted(aggs, tables, view.options);
                    renderer.printa(&mut out.pending, *format, &rows, &mut view);
                    let shown = !rows.is_empty();
                    drop(rows);
                    for id in aggs.iter().filter(|_| shown) {
                        if let Some(agg) = store.get_mut(*id) {
                            agg.printed = true;
                        }
                    }
                }
                Item::Clear(id) => store.clear(*id),
                Item::Trunc(id, count) => {
                    let keys = store.undecided(*id, *count, tables);
                    fetch(store, stacks, source, *id, &keys);
                    store.trunc(*id, *count, tables);
                }
                Item::Normalize(_, 0) => {
                    return Err(io::Error::other(Aborted("Invalid normalization")));
                }
                Item::Normalize(id, by) => store.normalize(*id, *by),
                Item::Denormalize(id) => store.normalize(*id, 1),
                Item::Exit(status) => {
                    *exit = Some(*status);
                }
                Item::System { format, args } => {
                    let command = formatted(format, args, &mut view);
                    if let Err(e) = out.run(&command)? {
                        let command = control::name(&command);
                        messages.push(failure(format!("couldn't run \"{command}\": {}", system_text(&e))));
                    }
                }
                Item::Freopen { format, args } => {
                    let path = format.map(|format| formatted(format, args, &mut view));
                    if let Err(e) = out.reopen(path.as_deref())? {
                        let path = path.unwrap_or_default();
                        let path = control::name(&path);
                        messages.push(failure(format!("couldn't freopen() \"{path}\": {}", system_text(&e))));
                    }
                }
                Item::Ftruncate => out.truncate()?,
                Item::Setopt { name, value } => {
                    let name = String::from_utf8_lossy(name);
                    let value = value.map(String::from_utf8_lossy);
                    match source.set_option(&name, value.as_deref()) {
                        Ok(now) => *options = now,
                        Err(why) => {
                            let quoted = |text: &str| format!("\"{}\"", control::name(text.as_bytes()));
                            let to = value.map_or(String::new(), |v| format!(" to {}", quoted(&v)));
                            messages
                                .push(failure(format!("couldn't set option {}{to}: {why}", quoted(&name))));
                        }
                    }
                }
                other => renderer.item(&mut out.pending, other, &mut view),
            }
        }
        let mut view = View::new(options, symbols.as_mut(), out.terminal);
        renderer.end(&mut out.pending, &mut view);
        Ok(())
    }
}

/// The message for an action that failed, in the format of a fault.
fn library_error(epid: u32, p: &Probe, text: &str) -> String {
    format!("error on enabled probe ID {epid} (ID {}: {}): {text}", p.id, p.described())
}

/// Fetches the stacks of these keys.
fn fetch(store: &mut Store, stacks: &mut StackCache, source: &mut dyn Source, id: AggId, keys: &[Box<[u8]>]) {
    for key in keys {
        store.fetch_stacks(id, key, &mut |id| stacks.get(id, source));
    }
}

fn snapshot(
    store: &mut Store,
    stacks: &mut StackCache,
    symbols: &mut dyn Symbolizer,
    source: &mut dyn Source,
) -> io::Result<()> {
    // Stacks of new keys are fetched after the snapshot: while it runs, the source is busy with it.
    let mut wanted = Vec::new();
    store.begin_snapshot();
    source.snapshot(&mut |id, cpu, key, words| {
        store.merge(id, cpu, key, words, symbols, &mut wanted);
    })?;
    let mut seen = HashSet::new();
    for (id, key) in wanted {
        store.fetch_stacks(id, &key, &mut |id| {
            let stack = stacks.get(id, source);
            let process = Process { pid: stack.tgid, generation: stack.exec };
            if stack.tgid != 0 && seen.insert(process) {
                symbols.note(process);
            }
            stack
        });
    }
    Ok(())
}

/// Groups the records by context, in the order of their first records. Calls nest in a context, and
/// rows of other contexts between them would hide that.
fn by_context<'a>(batch: &[RawRecord<'a>]) -> Vec<RawRecord<'a>> {
    let mut begun: HashMap<CallContext, usize> = HashMap::new();
    for (i, raw) in batch.iter().enumerate() {
        begun.entry(raw.context()).or_insert(i);
    }
    let mut sorted = batch.to_vec();
    sorted.sort_by_key(|r| begun.get(&r.context()).copied());
    sorted
}

/// For each record, the next one of its context that is neither discarded nor a fault.
fn next_of_context(batch: &[RawRecord<'_>]) -> Vec<Option<usize>> {
    let mut next = vec![None; batch.len()];
    let mut seen: HashMap<CallContext, usize> = HashMap::new();
    for (i, raw) in batch.iter().enumerate().rev() {
        if raw.flags & (flags::DISCARD | flags::FAULT) == 0 {
            next[i] = seen.insert(raw.context(), i);
        }
    }
    next
}

/// The first record of a firing is the entry and the last one is the return; the others get no
/// arrow. As in the original, a heuristic recognizes records of one firing: adjacent records of one
/// context with the same probe and different epids.
fn flow(
    tables: &Tables,
    epid: u32,
    probe: &Arc<Probe>,
    previous: Option<u32>,
    following: Option<u32>,
) -> Flow {
    let of_this_firing = |other: Option<u32>| {
        other.is_some_and(|o| o != epid && tables.get(o).is_some_and(|e| e.probe.id == probe.id))
    };
    // "entry" or "…-entry", but not a name such as "carpentry".
    let named =
        |what: &str| probe.name.strip_suffix(what).is_some_and(|rest| rest.is_empty() || rest.ends_with('-'));
    if named("entry") && !of_this_firing(previous) {
        Flow::Entry
    } else if named("return") && !of_this_firing(following) {
        Flow::Return
    } else {
        Flow::None
    }
}
