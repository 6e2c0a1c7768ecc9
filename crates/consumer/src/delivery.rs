//! Delivers a batch: records to events.
//!
//! **A record allocates nothing.** Fields borrow from the batch and from the tables, which live
//! longer than the delivery. So one list of fields, and one list of arguments for each `printf()`
//! of a record, serve all records of the batch: after an event they are emptied and used again.
//!
//! A record is delivered in one part, unless it contains `printa()`, an effect or a `setopt()` that
//! changes what the sink knows: these are events of their own, between the parts.
//!
//! With `-F`, the consumer decides which clause of a firing is an entry or a return, from the
//! previous and the next record of the same thread: the first clause of an `entry` probe, the last
//! clause of a `return` probe. A batch is then delivered thread by thread. (The original prints CPU
//! by CPU, which separates the calls of a thread that migrates.) Otherwise rows are in time order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use diagnostics::{control, system_text};
use events::{
    Action as EventAction, Argument, Change, Effect, Event, Field, Firing, Flow, Form, Occasion, Part, Probe,
    Record, Shape, Sink,
};
use plane::desc::{Action, AggId, Datum, FaultKind};
use plane::ring::{Fault, flags};

use crate::message::Aborted;
use crate::names::Names;
use crate::options::Options;
use crate::outlet::Outlet;
use crate::raw::CallContext;
use crate::record::{Arg, Decoder, Enabled, NamedStep, Step, Tables};
use crate::source::{RawRecord, Source};
use crate::state::{Delivered, State};
use crate::text::formatted;

/// What a delivery works with, and what it changes.
pub(crate) struct Session<'a, 'm, S: Sink> {
    pub(crate) tables: &'a Tables,
    pub(crate) state: &'m mut State,
    pub(crate) source: &'m mut dyn Source,
    pub(crate) out: &'m mut Outlet<S>,
    /// epid of the last record of each context.
    pub(crate) last: &'m mut HashMap<CallContext, u32>,
}

/// The snapshot that the actions on aggregations of a batch use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// It is taken when it is needed.
    Needed,
    /// It was taken.
    Taken,
}

/// The delivery of one batch.
pub(crate) struct Delivery<'a, 'm, S: Sink> {
    of: Session<'a, 'm, S>,
    snapshot: Snapshot,
    /// Fields of the record that are not delivered yet.
    fields: Vec<Field<'a>>,
    /// Lists of arguments that are not in use.
    spare: Vec<Vec<Argument<'a>>>,
}

/// The result of decoding a step.
#[derive(Clone, Copy)]
enum Done {
    /// A field was added to the record.
    Field,
    /// A change of an aggregation.
    Change(AggId, Change),
    /// `exit()`
    Exit(i32),
    /// An option is set.
    Setopt,
    /// An event of its own.
    Event,
    /// A packet with this protocol, which is no link type.
    UnknownLink(i64),
}

impl<'a, 'm, S: Sink> Delivery<'a, 'm, S> {
    pub(crate) fn new(of: Session<'a, 'm, S>, snapshot: Snapshot) -> Self {
        Delivery { of, snapshot, fields: Vec::new(), spare: Vec::new() }
    }

    /// Delivers all records of a batch.
    pub(crate) fn batch(mut self, batch: &[RawRecord<'a>]) -> io::Result<()> {
        let flowindent = self.of.state.options.flowindent;
        let by_context = if flowindent { by_context(batch) } else { Vec::new() };
        let batch = if flowindent { &by_context } else { batch };
        let next = if flowindent { next_of_context(batch) } else { Vec::new() };
        for (i, raw) in batch.iter().enumerate() {
            if raw.flags & flags::DISCARD != 0 && !self.of.state.options.discarded {
                continue;
            }
            if raw.flags & flags::FAULT != 0 {
                self.fault(raw);
                continue;
            }
            let following = next.get(i).copied().flatten();
            self.record(raw, following)?;
        }
        Ok(())
    }

    fn fault(&mut self, raw: &RawRecord<'_>) {
        let Some(fault) = Fault::read(raw.data) else {
            self.of
                .out
                .failure(format!("malformed fault record of enabled probe ID {}", raw.epid), Some(raw.time));
            return;
        };
        let kind = FaultKind::from_code(u64::from(fault.kind));
        let mut event = events::Fault::new(raw.time, raw.cpu, raw.epid, kind, fault.value);
        event.probe = self.of.tables.get(raw.epid).map(|enabled| Cow::Borrowed(enabled.probe));
        event.action = fault.action;
        event.offset = Some(fault.offset).filter(|offset| *offset != u32::MAX);
        let (state, key) = (&mut *self.of.state, self.of.tables.clause(raw.epid));
        if state.faults.add(state.options.all_faults, key, raw.time, || event.clone().into_owned()) {
            let advice = state.advice.iter_mut().find_map(|advice| advice(&event));
            self.of.out.report(&Event::Fault(event));
            if let Some(text) = advice {
                self.of.out.failure(text, Some(raw.time));
            }
        }
    }

    fn record(&mut self, raw: &RawRecord<'a>, following: Option<u32>) -> io::Result<()> {
        let Some(Enabled { probe, layout: Some(layout) }) = self.of.tables.get(raw.epid) else {
            self.of.out.failure(format!("record of unknown enabled probe ID {}", raw.epid), Some(raw.time));
            return Ok(());
        };
        let flow = match self.of.state.options.flowindent {
            true => {
                let previous = self.of.last.insert(raw.context(), raw.epid);
                flow(self.of.tables, raw.epid, probe, previous, following)
            }
            false => Flow::None,
        };
        if !layout.fits(raw.data) {
            self.of
                .out
                .failure(format!("record of enabled probe ID {} is too short", raw.epid), Some(raw.time));
            return Ok(());
        }
        let mut firing = Firing::new(raw.time, raw.cpu, raw.epid, Cow::Borrowed(probe));
        (firing.thread, firing.flow) = (raw.thread(), flow);
        if let Some(ids) = layout.process {
            firing.pid = id(raw.data, ids.pid);
            firing.tid = id(raw.data, ids.tid);
        }
        let mut first = true;
        for NamedStep { name, step } in &layout.steps {
            match self.field(name, step, raw) {
                Some(Done::Field) => {}
                Some(Done::Exit(status)) => self.push(name, EventAction::Exit(status)),
                Some(Done::Change(id, change)) => {
                    self.refresh()?;
                    if change == Change::Normalize(0) {
                        self.part(firing, &mut first, false)?;
                        return Err(io::Error::other(Aborted("Invalid normalization")));
                    }
                    let agg =
                        self.of.state.store().get(id).map_or(String::new(), |agg| agg.desc.name.clone());
                    self.push("", EventAction::Change { aggregation: agg.into(), change });
                    self.of.state.change(self.of.tables, self.of.source, id, change);
                }
                Some(Done::Setopt) => {
                    if let Some(new) = self.changed_options(step, raw, probe) {
                        self.part(firing.clone(), &mut first, false)?;
                        self.of.out.change_options(&mut self.of.state.options, new);
                    }
                }
                Some(Done::UnknownLink(n)) => {
                    self.failed(raw, probe, &format!("couldn't pcap(): {n} is not a link type"));
                }
                Some(Done::Event) => {
                    self.part(firing.clone(), &mut first, false)?;
                    self.event(step, raw, probe)?;
                }
                None => self
                    .of
                    .out
                    .failure(format!("record of enabled probe ID {} is malformed", raw.epid), Some(raw.time)),
            }
        }
        self.part(firing, &mut first, true)
    }

    fn push(&mut self, name: &'a str, action: EventAction<'a>) {
        self.fields.push(Field { name: Cow::Borrowed(name), action });
    }

    /// Takes a snapshot, once in a batch.
    fn refresh(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.snapshot, Snapshot::Taken) {
            Snapshot::Taken => Ok(()),
            Snapshot::Needed => {
                let Session { tables, state, source, out, .. } = &mut self.of;
                state.snapshot(tables, *source, out)
            }
        }
    }

    /// Delivers a part of the record: the fields so far.
    fn part(&mut self, firing: Firing<'a>, first: &mut bool, last: bool) -> io::Result<()> {
        if !*first && !last && self.fields.is_empty() {
            return Ok(());
        }
        let fields = std::mem::take(&mut self.fields);
        let part = Part { first: std::mem::replace(first, false), last };
        let event = Event::Record(Record { firing, part, fields });
        let sent = self.of.out.send(&event);
        if let Event::Record(Record { mut fields, .. }) = event {
            for field in &mut fields {
                if let EventAction::Printf { args, .. } = &mut field.action {
                    args.clear();
                    self.spare.push(std::mem::take(args));
                }
            }
            fields.clear();
            self.fields = fields;
        }
        sent
    }

    /// Decodes a step, and adds its field; `None` if the record does not have its data, which is a
    /// bug of dtrace.
    fn field(&mut self, name: &'a str, step: &'a Step, raw: &RawRecord<'a>) -> Option<Done> {
        let data = raw.data;
        let State { stacks, symbols, names_stacks, options, .. } = &mut *self.of.state;
        let (target, of_stacks) = (options.target, *names_stacks);
        let mut names = Names { symbols: symbols.as_mut(), target, time: Some(raw.time), of_stacks };
        let mut decoder = Decoder { tables: self.of.tables, stacks, source: self.of.source };
        let action = match step {
            Step::Plain(Action::Trace(field)) => {
                EventAction::Trace(decoder.named_value(data, *field, &mut names)?)
            }
            Step::Printf { format, args } => {
                let list = self.spare.pop().unwrap_or_default();
                let args = arguments(args, data, &mut decoder, &mut names, list);
                EventAction::Printf { format: Cow::Borrowed(format), args }
            }
            Step::Print { field, shape, functions } => {
                let (bytes, is_beyond) = decoder.printed(data, *field)?;
                let functions = if *functions { names.functions(shape, &bytes) } else { Vec::new() };
                let shape = match field.datum {
                    Datum::Whole { signed, .. } if is_beyond => {
                        let form = Form::Int { signed };
                        Cow::Owned(Arc::new(Shape { name: shape.name.clone(), size: 8, form }))
                    }
                    _ => Cow::Borrowed(shape),
                };
                EventAction::Print { shape, bytes, functions }
            }
            Step::Plain(Action::Tracemem { bytes, len }) => {
                EventAction::Dump(decoder.dumped(data, *bytes, *len)?.into())
            }
            Step::Plain(Action::Pcap { packet, protocol, time }) => {
                match decoder.packet(data, (*packet, *protocol, *time))? {
                    Ok(packet) => EventAction::Packet(packet),
                    Err(protocol) => return Some(Done::UnknownLink(protocol)),
                }
            }
            Step::Plain(Action::None) => EventAction::Nothing,
            Step::Plain(Action::Exit(field)) => {
                return Some(Done::Exit(decoder.number(data, *field)?.as_signed() as i32));
            }
            Step::Plain(Action::Snap(field)) => {
                EventAction::Snap(decoder.named_value(data, *field, &mut names)?)
            }
            Step::Plain(Action::Clear(id)) => return Some(Done::Change(*id, Change::Clear)),
            Step::Plain(Action::Trunc(id, count)) => {
                let count = match count {
                    Some(field) => decoder.number(data, *field)?.as_signed(),
                    None => 0,
                };
                return Some(Done::Change(*id, Change::Trunc(count)));
            }
            Step::Plain(Action::Normalize(id, by)) => {
                return Some(Done::Change(*id, Change::Normalize(decoder.number(data, *by)?.bits)));
            }
            Step::Plain(Action::Denormalize(id)) => return Some(Done::Change(*id, Change::Denormalize)),
            Step::Plain(Action::Setopt { .. }) => return Some(Done::Setopt),
            _ => return Some(Done::Event),
        };
        self.push(name, action);
        Some(Done::Field)
    }

    /// Executes a step that is an event between the parts of its record.
    fn event(&mut self, step: &'a Step, raw: &RawRecord<'a>, probe: &Probe) -> io::Result<()> {
        match step {
            Step::Printa { format, aggs } => {
                self.refresh()?;
                let Session { tables, state, source, out, .. } = &mut self.of;
                let (format, time) = (format.as_ref(), Some(raw.time));
                let rows = Delivered { aggs, format, occasion: Occasion::Printa, time };
                let shown = state.deliver(tables, *source, &rows, out)?;
                for id in aggs.iter().filter(|_| shown) {
                    if let Some(agg) = self.of.state.store_mut().get_mut(*id) {
                        agg.printed = true;
                    }
                }
            }
            Step::System { format, args } => {
                let command = self.formatted(format, args, raw);
                if let Err(e) = self.of.out.effect(&Event::Effect(Effect::System(Cow::Borrowed(&command))))? {
                    let command = control::name(&command);
                    self.failed(raw, probe, &format!("couldn't run \"{command}\": {}", system_text(&e)));
                }
            }
            Step::Freopen { format, args } => {
                let path = format.as_ref().map(|format| self.formatted(format, args, raw));
                let event = Event::Effect(Effect::Freopen(path.as_deref().map(Cow::Borrowed)));
                if let Err(e) = self.of.out.effect(&event)? {
                    let path = path.unwrap_or_default();
                    let path = control::name(&path);
                    self.failed(raw, probe, &format!("couldn't freopen() \"{path}\": {}", system_text(&e)));
                }
            }
            Step::Plain(Action::Ftruncate) => {
                if let Err(e) = self.of.out.effect(&Event::Effect(Effect::Ftruncate))? {
                    self.failed(raw, probe, &format!("couldn't ftruncate() the output: {}", system_text(&e)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Executes `setopt()`. The new options, if they differ in what the sink knows.
    fn changed_options(&mut self, step: &'a Step, raw: &RawRecord<'a>, probe: &Probe) -> Option<Options> {
        let Step::Plain(Action::Setopt { name, value }) = step else { return None };
        let State { stacks, .. } = &mut *self.of.state;
        let mut decoder = Decoder { tables: self.of.tables, stacks, source: self.of.source };
        let name = decoder.string(raw.data, *name).unwrap_or_default();
        let value = value.and_then(|value| decoder.string(raw.data, value));
        let name = String::from_utf8_lossy(&name);
        let value = value.as_deref().map(String::from_utf8_lossy);
        match self.of.source.set_option(&name, value.as_deref()) {
            Ok(new) => Some(new).filter(|new| *new != self.of.state.options),
            Err(why) => {
                let quoted = |text: &str| format!("\"{}\"", control::name(text.as_bytes()));
                // An option without a value is set to 1, as in the original.
                let to = value.as_deref().unwrap_or("1");
                let text = format!("couldn't set option {} to {}: {why}", quoted(&name), quoted(to));
                self.failed(raw, probe, &text);
                None
            }
        }
    }

    /// The text of a command or a file name.
    fn formatted(&mut self, format: &events::Format, args: &'a [Arg], raw: &RawRecord<'a>) -> Vec<u8> {
        let State { stacks, symbols, names_stacks, options, .. } = &mut *self.of.state;
        let (target, of_stacks) = (options.target, *names_stacks);
        let mut names = Names { symbols: symbols.as_mut(), target, time: Some(raw.time), of_stacks };
        let mut decoder = Decoder { tables: self.of.tables, stacks, source: self.of.source };
        let args = arguments(args, raw.data, &mut decoder, &mut names, Vec::new());
        formatted(format, &args, options)
    }

    /// Reports an action that failed, in the format of a fault.
    fn failed(&mut self, raw: &RawRecord<'_>, p: &Probe, text: &str) {
        let (epid, id) = (raw.epid, p.id);
        let (state, key) = (&mut *self.of.state, self.of.tables.clause(epid));
        let on = || format!("on enabled probe ID {epid} (ID {id}: {}): {text}", p.described());
        if state.failures.add(state.options.all_faults, key, raw.time, on) {
            self.of.out.failure(format!("error {}", on()), Some(raw.time));
        }
    }
}

/// The id of a process or a thread.
fn id(data: &[u8], field: plane::desc::Field) -> Option<u32> {
    let bytes = data.get(field.offset as usize..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The arguments of a format.
fn arguments<'a>(
    args: &'a [Arg],
    data: &'a [u8],
    decoder: &mut Decoder<'a, '_>,
    names: &mut Names<'_>,
    mut list: Vec<Argument<'a>>,
) -> Vec<Argument<'a>> {
    for Arg { field, address, name } in args {
        let value = match address {
            None => decoder.named_value(data, *field, names),
            address => decoder.value(data, *field).map(|raw| names.argument(raw, *address)),
        };
        if let Some(value) = value {
            list.push(Argument { name: Cow::Borrowed(name), value });
        }
    }
    list
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

/// For each record, the epid of the next one of its context that is neither discarded nor a fault.
fn next_of_context(batch: &[RawRecord<'_>]) -> Vec<Option<u32>> {
    let mut next = vec![None; batch.len()];
    let mut seen: HashMap<CallContext, u32> = HashMap::new();
    for (raw, next) in batch.iter().zip(&mut next).rev() {
        if raw.flags & (flags::DISCARD | flags::FAULT) == 0 {
            *next = seen.insert(raw.context(), raw.epid);
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
