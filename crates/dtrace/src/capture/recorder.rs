//! The sink of a session that captures: records become firings of a file.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use capture::{Content, Firing, Head, Place, Region, Snapshot, Word, Writer};
use dif::memory;
use events::{Action, DropKind, Event, Record, Sink, SinkError, Value};
use providers::Role;

use super::flight::Flight;
use super::instrument::{Kind, MATCHED, SUCCEEDED, Slot, TRIED, UNMATCHED};
use super::{Captured, names, role};
use crate::session::host;
use plane::ring::Policy;

/// Writes the firings of a session of [`super::compile`]. What else the session says goes to
/// another sink: drops, messages, the end.
pub struct Recorder<W: Write, S> {
    writer: Option<Writer<W>>,
    /// By `bufpolicy=ring`, what is written when.
    flight: Option<Flight<W>>,
    /// What was said of the window that was written last.
    snapshot: Snapshot,
    beside: S,
    /// The number of each probe by its id, and its role.
    probes: HashMap<u32, (u32, Role)>,
    /// The fields of the record of an enabled probe.
    slots: HashMap<u32, Vec<Option<Slot>>>,
    /// Firings at one time: another clause of them may follow.
    pending: Vec<Pending>,
    written: u64,
    /// The most bytes of a text that the script reads.
    longest: usize,
}

struct Pending {
    firing: Firing,
    /// The enabled probes whose clauses it has.
    epids: Vec<u32>,
    /// A predicate was true, or a clause faulted.
    matched: bool,
    /// Values of memory that had another one when the firing read it before.
    changed: u64,
}

/// What captures lack, as a replay says it: "the capture lacks 3 …".
const DROPPED: &str = "records that were dropped";
const UNASSIGNED: &str = "variables of the script for which there was no memory";
const STACKLESS: &str = "stacks for which there was no memory";
const SUPPRESSED: &str = "firings that the kernel suppressed";
const CHANGED: &str = "values of memory that changed while a firing read it: it has the first ones";

impl<W: Write + Send, S: Sink> Recorder<W, S> {
    /// Begins a file; by `bufpolicy=ring`, the one that is written at the end.
    pub fn new(out: W, captured: &Captured, beside: S) -> io::Result<Recorder<W, S>> {
        let system = &captured.program.system;
        let head = Head {
            tracer: env!("CARGO_PKG_VERSION").to_owned(),
            host: host::name(),
            release: system.release(),
            machine: std::env::consts::ARCH.to_owned(),
            cpus: system.online_cpus().iter().max().map_or(1, |last| last + 1),
            clock: (bpf_sys::monotonic_ns(), bpf_sys::wall_ns()),
            ..captured.head.clone()
        };
        let numbered = (0u32..).zip(&head.probes);
        let probes = numbered.map(|(at, (id, name))| (*id, (at, role(&captured.program, name)))).collect();
        let (writer, flight) = match captured.options.bufpolicy {
            Policy::Ring => (None, Some(Flight::new(head, captured.machine.clone(), out))),
            Policy::Switch | Policy::Fill => (Some(Writer::new(out, &head, &captured.machine)?), None),
        };
        let snapshot = Snapshot::default();
        let (slots, pending) = (HashMap::new(), Vec::new());
        let longest = captured.options.strsize.0.saturating_sub(1) as usize;
        Ok(Recorder { writer, flight, snapshot, beside, probes, slots, pending, written: 0, longest })
    }

    /// Firings that were written.
    pub fn written(&self) -> u64 {
        self.writer.as_ref().map_or(self.written, Writer::written)
    }

    /// By `bufpolicy=ring`: what [`Session::snapshot`](crate::Session::snapshot) delivers next goes
    /// to this file.
    pub fn begin_snapshot(&mut self, out: W) {
        if let Some(flight) = &mut self.flight {
            flight.begin(out);
        }
    }

    /// The file of a snapshot is complete. `reason`: why it was taken; without one, the first
    /// reason that `snap()` was called with since the snapshot before.
    pub fn end_snapshot(&mut self, reason: Option<&str>) -> io::Result<&Snapshot> {
        self.end_window(reason, 0)?;
        Ok(&self.snapshot)
    }

    /// The calls of `snap()` until now ask for no snapshot.
    pub fn pass_snaps(&mut self) {
        self.flight.iter_mut().for_each(Flight::pass);
    }

    /// By `bufpolicy=ring`, the last window that was written.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.flight.as_ref().map(|_| &self.snapshot)
    }

    fn end_window(&mut self, reason: Option<&str>, status: i32) -> io::Result<()> {
        let pending = self.write_pending();
        // Also after an error: the next window goes to another file.
        let writer = self.writer.take();
        if let Some(flight) = &mut self.flight {
            self.snapshot = flight.end(reason);
        }
        let Some(mut writer) = writer else { return pending };
        self.written = writer.written();
        pending?;
        if self.flight.is_some() {
            writer.snapshot(&self.snapshot)?;
        }
        writer.finish(status).map(drop)
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let of = &record.firing;
        let Some((probe, role)) = self.probes.get(&of.probe.id).copied() else { return Ok(()) };
        if let Some(flight) = &mut self.flight {
            if !flight.has(of.time, role) {
                return Ok(());
            }
            let is_complete = |field: &events::Field<'_>| {
                Slot::named(&field.name) == Some(Slot::Outcome)
                    && matches!(&field.action, Action::Trace(Value::Int(int)) if int.as_unsigned() == MATCHED)
            };
            for field in &record.fields {
                if let Action::Snap(reason) = &field.action
                    && record.fields.iter().any(is_complete)
                {
                    flight.snap(of.time, text(Some(reason)));
                }
            }
        }
        if self.pending.first().is_some_and(|pending| pending.firing.time != of.time) {
            self.write_pending()?;
        }
        let name = |field: &events::Field<'_>| Slot::named(&field.name);
        let slots = self.slots.entry(of.epid).or_insert_with(|| record.fields.iter().map(name).collect());
        // ERROR fires within the firing of the clause that faulted. A clause that comes again is
        // that of another firing.
        let is_error = role == Role::Error;
        let same = |p: &Pending| {
            p.firing.cpu == of.cpu && (is_error || p.firing.probe == probe && !p.epids.contains(&of.epid))
        };
        let at = match self.pending.iter().rposition(same) {
            Some(at) => at,
            None => {
                let firing = Firing { probe, time: of.time, cpu: of.cpu, ..Firing::default() };
                // The process of BEGIN and END is that of the tracer.
                let matched = matches!(role, Role::Begin | Role::End);
                self.pending.push(Pending { firing, epids: Vec::new(), matched, changed: 0 });
                self.pending.len() - 1
            }
        };
        let Some(pending) = self.pending.get_mut(at) else { return Ok(()) };
        pending.epids.push(of.epid);
        let values = record.fields.iter().map(|field| match &field.action {
            Action::Trace(value) => Some(value),
            _ => None,
        });
        pending.add(slots.iter().copied().zip(values), is_error, self.longest);
        Ok(())
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for Pending { firing, changed, .. } in pending.iter().filter(|pending| pending.matched) {
            if *changed > 0 {
                writer.loss(CHANGED, *changed);
            }
            writer.firing(firing)?;
        }
        Ok(())
    }

    fn lose(&mut self, time: Option<u64>, what: &'static str, count: u64) {
        self.flight.iter_mut().for_each(|flight| flight.lose(time, what, count));
        self.writer.iter_mut().for_each(|writer| writer.loss(what, count));
    }

    fn finish(&mut self, status: i32) -> io::Result<()> {
        // Of a session that has ended before it had a window.
        if self.writer.is_none() {
            self.window(bpf_sys::monotonic_ns(), 0)?;
        }
        self.end_window(Some("end"), status)
    }
}

impl Pending {
    /// Adds what a clause has read.
    fn add<'a, 'b: 'a>(
        &mut self,
        mut fields: impl Iterator<Item = (Option<Slot>, Option<&'a Value<'b>>)>,
        is_error: bool,
        longest: usize,
    ) {
        let number = |value: Option<&Value<'_>>| match value {
            Some(Value::Int(int)) => int.as_unsigned(),
            _ => 0,
        };
        while let Some((slot, value)) = fields.next() {
            match slot {
                // The arguments of ERROR are those of the fault.
                Some(Slot::Word(Word::Arg(_))) if is_error => {}
                Some(Slot::Word(word)) => {
                    if self.firing.words.iter().all(|(known, _)| *known != word) {
                        self.firing.words.push((word, number(value)));
                    }
                }
                Some(Slot::Execname) => {
                    let name = text(value);
                    let is_cut = name.len() >= longest && name.len() < EXECNAME;
                    self.firing.execname = Some(content(name, is_cut));
                }
                Some(Slot::Outcome) => self.matched |= number(value) != UNMATCHED,
                Some(Slot::Read(kind)) => {
                    let state = number(value);
                    let address = number(fields.next().and_then(|(_, value)| value));
                    let content = fields.next().and_then(|(_, value)| value);
                    let length = match kind {
                        Kind::Bytes(_, true) | Kind::Text(_, true) => {
                            fields.next().map(|(_, value)| number(value))
                        }
                        _ => None,
                    };
                    let region = match state {
                        SUCCEEDED => recorded(kind, address, content, (length, longest)),
                        TRIED => unread(kind, address),
                        _ => None,
                    };
                    self.changed += region.map_or(0, |region| add(&mut self.firing.memory, region));
                }
                Some(Slot::Stack(user)) => {
                    let stack = if user { &mut self.firing.ustack } else { &mut self.firing.stack };
                    if let Some(Value::Stack(new)) = value {
                        let known = stack.as_ref().map_or(0, Vec::len);
                        let new = names::frames(new);
                        // Of several the longest: it begins with the others.
                        if stack.is_none() || new.len() > known {
                            *stack = Some(new);
                        }
                    }
                }
                Some(Slot::Symbol) => {
                    if let Some(Value::Symbol(symbol)) = value {
                        let new = (symbol.process, names::stored(symbol));
                        if !self.firing.symbols.contains(&new) {
                            self.firing.symbols.push(new);
                        }
                    }
                }
                Some(Slot::Address | Slot::Value | Slot::Length | Slot::Exit | Slot::Snap) | None => {}
            }
        }
    }
}

/// The most bytes of `execname`.
const EXECNAME: usize = 15;

fn text(value: Option<&Value<'_>>) -> Vec<u8> {
    match value {
        Some(Value::Str { text, .. } | Value::Name { text, .. }) => text.to_vec(),
        _ => Vec::new(),
    }
}

fn content(bytes: Vec<u8>, is_cut: bool) -> Content {
    if is_cut { Content::Start(bytes) } else { Content::Bytes(bytes) }
}

/// Adds what was read, if it is new. Returns how many values it has of memory that had other ones
/// before: 0 or 1.
fn add(all: &mut Vec<Region>, new: Region) -> u64 {
    if all.contains(&new) {
        return 0;
    }
    let differs = |old: &&Region| old.place == new.place && differ(old, &new);
    let changed = all.iter().find(differs).is_some();
    all.push(new);
    u64::from(changed)
}

/// True if bytes that both have are not the same.
fn differ(a: &Region, b: &Region) -> bool {
    let (Some((x, _)), Some((y, _))) = (a.content.known(), b.content.known()) else { return false };
    let is_memory = matches!(a.place, Place::Kernel | Place::User);
    if !is_memory {
        return a.address == b.address && x != y;
    }
    let from = a.address.max(b.address);
    let rest = |region: &Region, bytes| -> &[u8] {
        let at = usize::try_from(from - region.address);
        at.ok().and_then(|at| <[u8]>::get(bytes, at..)).unwrap_or_default()
    };
    rest(a, x).iter().zip(rest(b, y)).any(|(x, y)| x != y)
}

/// The program's own memory is not captured: a replay makes it again.
fn is_outside(place: Place, address: u64) -> bool {
    place == Place::User || matches!(memory::place(address), memory::Place::Kernel | memory::Place::Invalid)
}

/// What was at an address.
fn recorded(
    kind: Kind,
    address: u64,
    value: Option<&Value<'_>>,
    (length, longest): (Option<u64>, usize),
) -> Option<Region> {
    let region = |place, content| is_outside(place, address).then_some(Region { place, address, content });
    let (place, bytes) = match kind {
        Kind::Number(place) => match value? {
            Value::Int(int) => {
                (place, int.as_unsigned().to_le_bytes().get(..usize::from(int.size))?.to_vec())
            }
            _ => return None,
        },
        // With the NUL, if it is not cut.
        Kind::Text(place, _) => {
            let mut text = text(value);
            let limit = length.and_then(|n| usize::try_from(n).ok()).map_or(longest, |n| n.min(longest));
            let is_cut = text.len() >= limit;
            if !is_cut {
                text.push(0);
            }
            return region(place, content(text, is_cut));
        }
        Kind::Arguments | Kind::Path(_) => {
            let place = if let Kind::Path(place) = kind { place } else { Place::Arguments };
            let text = text(value);
            let is_cut = text.len() >= longest;
            return region(place, content(text, is_cut));
        }
        Kind::Bytes(place, _) => match value? {
            Value::Bytes(bytes) => {
                let known = length.and_then(|n| usize::try_from(n).ok()).unwrap_or(bytes.len());
                (place, bytes.get(..known.min(bytes.len()))?.to_vec())
            }
            _ => return None,
        },
        Kind::NetworkAddress(place) => {
            let text = String::from_utf8(text(value)).ok()?;
            let four = text.parse::<Ipv4Addr>().map(|a| a.octets().to_vec());
            (place, four.or_else(|_| text.parse::<Ipv6Addr>().map(|a| a.octets().to_vec())).ok()?)
        }
        Kind::Descends => match value? {
            Value::Int(int) => (Place::Ancestor, vec![u8::from(int.bits != 0)]),
            _ => return None,
        },
    };
    region(place, Content::Bytes(bytes))
}

/// An address that could not be read.
fn unread(kind: Kind, address: u64) -> Option<Region> {
    let place = match kind {
        Kind::Number(place)
        | Kind::Text(place, _)
        | Kind::Path(place)
        | Kind::Bytes(place, _)
        | Kind::NetworkAddress(place) => place,
        Kind::Arguments => Place::Arguments,
        Kind::Descends => return None,
    };
    is_outside(place, address).then_some(Region { place, address, content: Content::Unreadable })
}

impl<W: Write + Send, S: Sink> Sink for Recorder<W, S> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        match event {
            Event::Record(record) => return Ok(self.record(record)?),
            // What the script does is done by a replay.
            Event::Aggregation(_) | Event::Interval(_) | Event::Effect(_) | Event::Fault(_) => return Ok(()),
            // They are of the text.
            Event::Interrupt | Event::Stop => return Ok(()),
            Event::Drop(drop) => match drop.kind {
                // Its clauses did nothing where there was no scratch memory.
                DropKind::Principal | DropKind::Scratch => self.lose(drop.time, DROPPED, drop.count),
                DropKind::Dynamic => self.lose(drop.time, UNASSIGNED, drop.count),
                DropKind::Stack => self.lose(drop.time, STACKLESS, drop.count),
                _ => {}
            },
            Event::Suppressed(suppressed) => {
                self.lose(None, SUPPRESSED, suppressed.count);
            }
            Event::End { status } => self.finish(*status)?,
            _ => {}
        }
        self.beside.event(event)
    }

    fn window(&mut self, from: u64, unread: u64) -> io::Result<()> {
        if let Some(flight) = self.flight.as_mut().filter(|_| self.writer.is_none()) {
            self.writer = flight.window(from, unread)?;
        }
        Ok(())
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.beside.batch_end()
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.flush()?;
        }
        self.beside.flush()
    }

    fn aborted(&mut self) {
        self.beside.aborted();
    }
}
