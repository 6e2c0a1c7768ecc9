//! Packets as bytes, and the clock.
//!
//! All packets are of one sequence. The times of what records say are the differences to the
//! packet before, by a clock of the sequence. Other events, which are few and may be earlier or
//! later, have their time by the clock of the session.

use events::Clock;
use protobuf::Message;

use crate::field::{PACKET, clock, event, interned, packet, track};
use crate::names::Names;

/// The number of the sequence.
const SEQUENCE: u64 = 1;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// The name of an event: its number, or its text where there are too many.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    Number(u64),
    Text(Box<str>),
}

/// What happened on a track.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happening<'a> {
    pub(crate) kind: Kind,
    pub(crate) track: u64,
    pub(crate) name: Option<&'a Name>,
    /// Of a counter.
    pub(crate) value: i64,
    /// Further fields of the event: annotations, the call stack.
    pub(crate) more: Option<&'a Message>,
}

impl<'a> Happening<'a> {
    pub(crate) fn new(kind: Kind, track: u64, name: Option<&'a Name>) -> Happening<'a> {
        Happening { kind, track, name, value: 0, more: None }
    }
}

/// Writes packets.
#[derive(Debug)]
pub(crate) struct Packets {
    /// What is not written out.
    pub(crate) pending: Message,
    begun: bool,
    /// The time of the sequence's clock.
    time: u64,
    /// The time of the latest event.
    pub(crate) latest: u64,
    event_names: Names,
    tracks: u64,
    /// What the next packet says of numbers.
    pub(crate) fresh: Message,
    of_event: Message,
    of_packet: Message,
}

impl Packets {
    pub(crate) fn new() -> Packets {
        Packets {
            pending: Message::default(),
            begun: false,
            time: 0,
            latest: 0,
            event_names: Names::new(interned::EVENT_NAMES),
            tracks: 0,
            fresh: Message::default(),
            of_event: Message::default(),
            of_packet: Message::default(),
        }
    }

    /// The first packet: the clocks. Only the first call has an effect.
    pub(crate) fn begin(&mut self, now: Clock) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        (self.time, self.latest) = (now.time, now.time);
        let mut snapshot = Message::default();
        let all = [(clock::REALTIME, now.wall), (clock::MONOTONIC, now.time), (clock::OF_SEQUENCE, now.time)];
        for (id, time) in all {
            let mut one = Message::default();
            one.number(clock::ID, id);
            one.present(clock::TIMESTAMP, time);
            one.number(clock::IS_INCREMENTAL, u64::from(id == clock::OF_SEQUENCE));
            snapshot.message(clock::CLOCKS, &one);
        }
        snapshot.number(clock::PRIMARY, clock::MONOTONIC);
        let mut defaults = Message::default();
        defaults.number(packet::TIMESTAMP_CLOCK, clock::OF_SEQUENCE);
        let mut first = Message::default();
        first.number(packet::SEQUENCE, SEQUENCE);
        first.number(packet::FLAGS, packet::CLEARED);
        first.message(packet::CLOCK_SNAPSHOT, &snapshot);
        first.message(packet::DEFAULTS, &defaults);
        first.number(packet::FIRST_ON_SEQUENCE, 1);
        self.pending.message(PACKET, &first);
    }

    /// The name of an event.
    pub(crate) fn name(&mut self, text: &str) -> Name {
        match self.event_names.number(text, &mut self.fresh) {
            Some(number) => Name::Number(number),
            None => Name::Text(text.into()),
        }
    }

    /// The number of a new track.
    pub(crate) fn new_track(&mut self) -> u64 {
        self.tracks += 1;
        self.tracks
    }

    /// Describes a track, or describes it anew.
    pub(crate) fn describe(&mut self, track: u64, what: impl FnOnce(&mut Message)) {
        self.begin(Clock::default());
        self.of_event.clear();
        self.of_event.number(track::ID, track);
        what(&mut self.of_event);
        self.of_packet.clear();
        self.of_packet.number(packet::SEQUENCE, SEQUENCE);
        self.of_packet.message(packet::TRACK, &self.of_event);
        self.pending.message(PACKET, &self.of_packet);
    }

    /// A new track with a name.
    pub(crate) fn named_track(&mut self, name: &str) -> u64 {
        let track = self.new_track();
        self.describe(track, |out| out.bytes(track::NAME, name.as_bytes()));
        track
    }

    /// Something of a record. They come in the order of their times.
    pub(crate) fn event(&mut self, time: u64, all: Happening<'_>) {
        self.begin(Clock::default());
        let Some(passed) = time.checked_sub(self.time) else { return self.aside(time, all) };
        self.time = time;
        self.of_packet.clear();
        self.of_packet.present(packet::TIMESTAMP, passed);
        self.complete(time, all);
    }

    /// Something that has its time for itself.
    pub(crate) fn aside(&mut self, time: u64, all: Happening<'_>) {
        self.begin(Clock::default());
        self.of_packet.clear();
        self.of_packet.present(packet::TIMESTAMP, time);
        self.of_packet.number(packet::TIMESTAMP_CLOCK, clock::MONOTONIC);
        self.complete(time, all);
    }

    /// The rest of a packet behind its time.
    fn complete(&mut self, time: u64, all: Happening<'_>) {
        self.latest = self.latest.max(time);
        let Packets { pending, fresh, of_event, of_packet, .. } = self;
        of_packet.number(packet::SEQUENCE, SEQUENCE);
        of_packet.number(packet::FLAGS, packet::NEEDS);
        if !fresh.is_empty() {
            of_packet.message(packet::INTERNED, fresh);
            fresh.clear();
        }
        of_event.clear();
        of_event.number(event::KIND, all.kind as u64);
        of_event.number(event::TRACK, all.track);
        match all.name {
            Some(Name::Number(number)) => of_event.number(event::NAME_NUMBER, *number),
            Some(Name::Text(text)) => of_event.bytes(event::NAME, text.as_bytes()),
            None => {}
        }
        if all.kind == Kind::Counter {
            of_event.present(event::VALUE, all.value as u64);
        }
        all.more.iter().for_each(|more| of_event.extend(more));
        of_packet.message(packet::EVENT, of_event);
        pending.message(PACKET, of_packet);
    }
}
