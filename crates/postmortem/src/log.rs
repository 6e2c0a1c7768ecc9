//! The newest events of a session, in a bounded number of bytes.
//!
//! Events are encoded as they come, and the oldest are forgotten. What belongs together stays
//! together: a record that is delivered in several events, with the rows that a `printa()` of it
//! has between them, is one entry. Effects (`system()`, `freopen()`) and the frame of the session
//! (its end, an interrupt) are not kept: nothing of a core file is ever executed.

use std::collections::VecDeque;

use events::{Aggregation, Encoder, Event, Notice, NoticeKind, Occasion, Sink};

use crate::head::{HEAD, Head};

/// The magic and the version of a stream.
const STREAM: usize = 12;

/// Encodes an event; empty if it is too long for a frame.
fn encode(encoder: &mut Encoder<Vec<u8>>, event: &Event<'_>) -> Vec<u8> {
    encoder.get_mut().clear();
    let done = encoder.event(event).is_ok() && encoder.flush().is_ok();
    if done { std::mem::take(encoder.get_mut()) } else { Vec::new() }
}

/// An event, or several that belong together.
#[derive(Clone, Copy, Debug)]
struct Entry {
    length: usize,
    /// Changed options: all later entries are printed with them.
    is_options: bool,
}

/// The newest events of a session.
#[derive(Debug)]
pub struct Log {
    /// Bytes of the events that are kept at most.
    most: usize,
    encoder: Encoder<Vec<u8>>,
    /// The head of a stream, the start of the session, and the last options that were forgotten.
    start: Vec<u8>,
    options: Vec<u8>,
    entries: VecDeque<Entry>,
    bytes: VecDeque<u8>,
    /// The last entry is not complete.
    open: bool,
    /// Events of the open entry are left out: it is longer than everything.
    skipping: bool,
    cut: u64,
}

impl Log {
    /// A log for memory of this size.
    pub fn new(size: u64) -> Log {
        let mut encoder = Encoder::new(Vec::new());
        // A `Vec` takes everything.
        let _ = encoder.flush();
        let start = std::mem::take(encoder.get_mut());
        debug_assert_eq!(start.len(), STREAM);
        Log {
            most: usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(HEAD),
            encoder,
            start,
            options: Vec::new(),
            entries: VecDeque::new(),
            bytes: VecDeque::new(),
            open: false,
            skipping: false,
            cut: 0,
        }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(_) => {
                let bytes = encode(&mut self.encoder, event);
                self.start.truncate(STREAM);
                self.start.extend(bytes);
            }
            Event::Record(record) => self.push(event, !record.part.last),
            // Within a record the record says where the entry ends.
            Event::Aggregation(rows) => {
                let open = match rows.occasion {
                    Occasion::Printa => self.open,
                    Occasion::End | Occasion::Demand => !rows.part.last,
                };
                self.push(event, open);
            }
            Event::Options(_)
            | Event::Fault(_)
            | Event::Drop(_)
            | Event::Suppressed(_)
            | Event::Notice(_) => {
                let open = self.open;
                self.push(event, open);
            }
            // Effects; a report of the programs; an interrupt, the end.
            _ => {}
        }
    }

    fn push(&mut self, event: &Event<'_>, open_after: bool) {
        let bytes = encode(&mut self.encoder, event);
        let continues = std::mem::replace(&mut self.open, open_after);
        if !continues {
            self.skipping = false;
            self.entries.push_back(Entry { length: 0, is_options: matches!(event, Event::Options(_)) });
        }
        if self.skipping {
            return;
        }
        self.bytes.extend(&bytes);
        if let Some(entry) = self.entries.back_mut() {
            entry.length += bytes.len();
        }
        while self.bytes.len() > self.space(0) && !self.entries.is_empty() {
            // The open entry is the last one.
            self.skipping = self.entries.len() == 1;
            self.forget();
        }
    }

    /// Bytes that the entries can take beside others.
    fn space(&self, others: usize) -> usize {
        self.most.saturating_sub(self.start.len() + self.options.len() + others)
    }

    /// Forgets the oldest entry.
    fn forget(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        let bytes = self.bytes.drain(..entry.length.min(self.bytes.len()));
        if entry.is_options {
            self.options = bytes.collect();
        } else {
            drop(bytes);
            self.cut += 1;
        }
    }

    /// What is written to the memory now: the head and the events, with the totals of the
    /// aggregations behind the others. `whom` has the process, the thread, the signal and the time.
    pub fn image(&mut self, totals: Totals, whom: Head) -> Vec<u8> {
        let totals = totals.finish();
        // They were the last to come. (Totals are at most a half.)
        while self.bytes.len() > self.space(totals.len()) && !self.entries.is_empty() {
            self.forget();
        }
        let (first, second) = self.bytes.as_slices();
        let events = [&self.start, &self.options, first, second, &totals].concat();
        let head = Head {
            length: events.len() as u64,
            crc: crc32fast::hash(&events),
            kept: self.entries.iter().filter(|entry| !entry.is_options).count() as u64,
            cut: self.cut,
            size: (self.most + HEAD) as u64,
            ..whom
        };
        [&head.bytes()[..], &events].concat()
    }

    /// An empty list of totals, of which as much is kept as half of the memory can hold.
    pub fn totals(&self) -> Totals {
        let most = (self.most / 2).min(self.space(0));
        Totals {
            most,
            bytes: Vec::new(),
            encoder: Encoder::new(Vec::new()),
            begun: false,
            has_rows: false,
            left_out: 0,
        }
    }
}

/// The aggregations at the moment of the signal.
#[derive(Debug)]
pub struct Totals {
    most: usize,
    bytes: Vec<u8>,
    encoder: Encoder<Vec<u8>>,
    begun: bool,
    /// Rows of the current aggregation are there.
    has_rows: bool,
    /// Its rows that are left out.
    left_out: usize,
}

/// Bytes that are kept free for the end of an aggregation and the message about what is left out of
/// it, without names.
const ENDING: usize = 512;
/// Bytes of a name in them.
const LONGEST_NAME: usize = 128;

impl Totals {
    /// Adds rows of an aggregation; other events are not kept.
    pub fn add(&mut self, event: &Event<'_>) {
        let Event::Aggregation(rows) = event else { return };
        if !std::mem::replace(&mut self.begun, true) {
            // The head of the stream.
            let _ = self.encoder.flush();
        }
        if rows.part.first {
            (self.has_rows, self.left_out) = (false, 0);
        }
        let bytes = encode(&mut self.encoder, event);
        if self.left_out == 0 && self.fits(&bytes, ENDING + rows.columns.len() * LONGEST_NAME) {
            self.bytes.extend(bytes);
            self.has_rows = true;
            return;
        }
        self.left_out += rows.rows.len().max(1);
        if !rows.part.last {
            return;
        }
        if self.has_rows {
            let mut end = rows.clone();
            end.rows.clear();
            end.part.first = false;
            self.push(&Event::Aggregation(end));
        }
        let text = format!(
            "postmortem: {} rows of {} are left out: aggregations have at most half of the memory",
            self.left_out,
            names(rows)
        );
        self.push(&Event::Notice(Notice { kind: NoticeKind::Failure, text: text.into(), time: rows.time }));
    }

    fn fits(&self, bytes: &[u8], ending: usize) -> bool {
        !bytes.is_empty() && self.bytes.len() + bytes.len() + ending <= self.most
    }

    fn push(&mut self, event: &Event<'_>) {
        let bytes = encode(&mut self.encoder, event);
        if self.fits(&bytes, 0) {
            self.bytes.extend(bytes);
        }
    }

    fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The names of the aggregations of rows.
fn names(rows: &Aggregation<'_>) -> String {
    let name = |name: &str| format!("@{}", name.chars().take(32).collect::<String>());
    rows.columns.iter().map(|column| name(&column.name)).collect::<Vec<_>>().join(", ")
}
