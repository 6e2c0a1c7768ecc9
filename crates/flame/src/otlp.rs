//! OpenTelemetry's profiles: what each interval adds to aggregations of stacks, as a request of
//! OTLP (`v1development`, as of version 1.10 of its protocol; its makers call it alpha and still
//! change it).
//!
//! A profile is the increment of one aggregation in one interval, so what is lost is made up for by
//! no later one. It has an id, by which a collector knows one that is sent twice. Each request has
//! the tables that it needs; the first row of each table is empty, and means none. What was lost
//! after the last request is in one of its own at the end: a profile without samples.
//!
//! ```text
//!  ExportProfilesServiceRequest  1 resource_profiles, 2 dictionary
//!  ResourceProfiles              1 resource (1 attributes), 2 scope_profiles
//!  ScopeProfiles                 1 scope (1 name), 2 profiles
//!  Profile                       1 sample_type, 2 samples, 3 time, 4 duration, 7 id, 11 attributes
//!  Sample                        1 stack, 2 attributes, 4 values
//!  ProfilesDictionary            1 mappings, 2 locations, 3 functions, 4 links, 5 strings,
//!                                6 attributes, 7 stacks
//!  Mapping                       4 file
//!  Location                      1 mapping, 3 lines (1 function), 4 attributes
//!  Function                      1 name, 2 name in the system, 3 file
//!  KeyValueAndUnit               1 key, 2 value (1 string_value, 3 int_value)
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};

use diagnostics::control;
use events::{Clock, Event, Sink, SinkError};
use protobuf::Message;

use crate::collect::{Flame, Refused, Unnamed};
use crate::loss::Loss;
use crate::profile::{Frame, KeyValue, Kind, Profile};
use crate::strings::Strings;

/// The attribute of a frame, as the semantic conventions of OpenTelemetry have it.
const FRAME_TYPE: &str = "profile.frame.type";
/// The attribute of a profile with what was lost.
const LOST: &str = "dtrace.lost";

/// Writes a request for each interval in which stacks were aggregated, with one write.
pub struct Otlp<W> {
    flame: Flame,
    /// The name of the machine.
    host: String,
    clock: Clock,
    /// The beginning and the end of the interval whose rows come: by the clock of `timestamp`.
    interval: (u64, u64),
    /// Its end, in nanoseconds since 1970.
    wall: u64,
    /// The aggregations that are left out: an increment was negative.
    refused: Vec<String>,
    /// The profiles so far; with `ids`, for those that come.
    written: u64,
    ids: [RandomState; 2],
    out: W,
}

/// A table of messages, the first of which is empty.
struct Table<K> {
    numbers: HashMap<K, u64>,
    all: Message,
    /// Of the dictionary.
    field: u64,
}

impl<K: Eq + std::hash::Hash> Table<K> {
    fn new(field: u64) -> Table<K> {
        let mut all = Message::default();
        all.message(field, &Message::default());
        Table { numbers: HashMap::new(), all, field }
    }

    fn find(&self, key: &K) -> Option<u64> {
        self.numbers.get(key).copied()
    }

    fn add(&mut self, key: K, message: &Message) -> u64 {
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(key, number);
        self.all.message(self.field, message);
        number
    }
}

/// What the profiles of a request refer to.
struct Dictionary {
    strings: Strings,
    /// By the name of the object.
    mappings: Table<String>,
    locations: Table<Frame>,
    functions: Table<(u64, u64)>,
    /// By key, value, and whether that is a number.
    attributes: Table<(String, String, bool)>,
    /// By locations, the innermost first.
    stacks: Table<Vec<u64>>,
}

impl Dictionary {
    fn new() -> Dictionary {
        Dictionary {
            strings: Strings::default(),
            mappings: Table::new(1),
            locations: Table::new(2),
            functions: Table::new(3),
            attributes: Table::new(6),
            stacks: Table::new(7),
        }
    }

    fn message(self) -> Message {
        let mut out = self.mappings.all;
        out.extend(&self.locations.all);
        out.extend(&self.functions.all);
        // No sample has a link.
        out.message(4, &Message::default());
        self.strings.all().iter().for_each(|text| out.bytes(5, text.as_bytes()));
        out.extend(&self.attributes.all);
        out.extend(&self.stacks.all);
        out
    }

    fn attribute(&mut self, key: &str, value: KeyValue<'_>) -> u64 {
        let (mut of, mut any) = (Message::default(), Message::default());
        let (text, is_number) = match value {
            KeyValue::Number(number) => {
                any.present(3, number as u64);
                (number.to_string(), true)
            }
            KeyValue::Text(text) => {
                any.bytes(1, text.as_bytes());
                (text.to_owned(), false)
            }
        };
        let id = (key.to_owned(), text, is_number);
        if let Some(known) = self.attributes.find(&id) {
            return known;
        }
        of.number(1, self.strings.number(key));
        of.message(2, &any);
        self.attributes.add(id, &of)
    }

    fn mapping(&mut self, object: &str) -> u64 {
        if let Some(known) = self.mappings.find(&object.to_owned()) {
            return known;
        }
        let mut of = Message::default();
        of.number(4, self.strings.number(object));
        self.mappings.add(object.to_owned(), &of)
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        if let Some(known) = self.locations.find(frame) {
            return known;
        }
        let (container, function) = frame.parts();
        let of_function = (self.strings.number(&frame.name), self.strings.number(container.unwrap_or("")));
        let function = self.functions.find(&of_function).unwrap_or_else(|| {
            let mut of = Message::default();
            of.number(1, self.strings.number(function));
            of.number(2, of_function.0);
            of.number(3, of_function.1);
            self.functions.add(of_function, &of)
        });
        let (kind, mapped) = match frame.kind {
            Kind::Kernel => (Some("kernel"), true),
            Kind::User | Kind::Inlined => (Some("native"), true),
            // The file of an interpreter's function is mapped nowhere.
            Kind::Interpreted | Kind::Missing | Kind::Key => (None, false),
        };
        let (mut line, mut of) = (Message::default(), Message::default());
        line.number(1, function);
        if let Some(object) = container.filter(|_| mapped) {
            of.number(1, self.mapping(object));
        }
        of.message(3, &line);
        if let Some(kind) = kind {
            of.packed(4, [self.attribute(FRAME_TYPE, KeyValue::Text(kind))]);
        }
        self.locations.add(frame.clone(), &of)
    }

    fn stack(&mut self, locations: Vec<u64>) -> u64 {
        if let Some(known) = self.stacks.find(&locations) {
            return known;
        }
        let mut of = Message::default();
        of.packed(1, locations.iter().copied());
        self.stacks.add(locations, &of)
    }

    /// A profile of counts that has no samples yet.
    fn typed(&mut self, name: &str) -> Message {
        let (mut out, mut of) = (Message::default(), Message::default());
        of.number(1, self.strings.number(name));
        of.number(2, self.strings.number("count"));
        out.message(1, &of);
        out
    }

    /// The type and the samples.
    fn profile(&mut self, profile: &Profile) -> Message {
        let name = profile.name.trim_start_matches('@');
        let mut out = self.typed(if name.is_empty() { &profile.unit } else { name });
        // Each frame is looked up once.
        let locations: Vec<Option<u64>> = profile
            .frames()
            .iter()
            .map(|frame| (frame.kind != Kind::Key).then(|| self.location(frame)))
            .collect();
        let names = unlike(&profile.keys);
        for (path, value) in profile.each() {
            let innermost_first = path.iter().rev();
            let stack =
                innermost_first.filter_map(|frame| *locations.get(*frame as usize)?).collect::<Vec<u64>>();
            let keys = path.iter().filter_map(|frame| profile.frames().get(*frame as usize));
            let keys = keys.filter(|frame| frame.kind == Kind::Key).zip(&profile.keys).zip(&names);
            let attributes: Vec<u64> = keys
                .map(|((frame, key), name)| self.attribute(name, KeyValue::of(key, &frame.name)))
                .collect();
            let mut sample = Message::default();
            sample.number(1, self.stack(stack));
            if !attributes.is_empty() {
                sample.packed(2, attributes);
            }
            sample.packed(4, [value.min(i64::MAX as u64)]);
            out.message(2, &sample);
        }
        out
    }

    fn lost(&mut self, loss: &Loss) -> Option<u64> {
        let lines = loss.lines();
        (!lines.is_empty()).then(|| self.attribute(LOST, KeyValue::Text(&lines.join("; "))))
    }
}

/// The names of attributes for the columns of a key: no two are the same.
fn unlike(keys: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::with_capacity(keys.len());
    for (n, key) in keys.iter().enumerate() {
        let name = if all.contains(key) { format!("{key}_{}", n + 1) } else { key.clone() };
        all.push(name);
    }
    all
}

/// An attribute outside of the tables.
fn attribute(out: &mut Message, name: &str, value: &str) {
    let (mut all, mut of) = (Message::default(), Message::default());
    of.bytes(1, value.as_bytes());
    all.bytes(1, name.as_bytes());
    all.message(2, &of);
    out.message(1, &all);
}

impl<W: Write + Send> Otlp<W> {
    /// Writes requests, each with one write and a flush.
    pub fn new(unnamed: Unnamed, out: W) -> Otlp<W> {
        Otlp {
            flame: Flame::new(unnamed, None),
            host: String::new(),
            clock: Clock::default(),
            interval: (0, 0),
            wall: 0,
            refused: Vec::new(),
            written: 0,
            ids: Default::default(),
            out,
        }
    }

    /// Writes the profiles that have something. `is_last`: none follows, which could have what was
    /// lost.
    fn write(&mut self, is_last: bool) -> io::Result<()> {
        let profiles = self.flame.profiles();
        let is_written = |profile: &&Profile| profile.total() > 0 && !self.refused.contains(&profile.name);
        let profiles: Vec<&Profile> = profiles.into_iter().filter(is_written).collect();
        let (mut dictionary, mut of_scope) = (Dictionary::new(), Message::default());
        // It is of the interval and not of each profile.
        let mut lost = dictionary.lost(self.flame.loss());
        let mut all: Vec<Message> = Vec::new();
        for profile in profiles {
            all.push(dictionary.profile(profile));
        }
        if all.is_empty() && is_last && lost.is_some() {
            all.push(dictionary.typed("lost"));
        }
        if all.is_empty() {
            return Ok(());
        }
        let (mut resource, mut scope, mut of_resource) =
            (Message::default(), Message::default(), Message::default());
        attribute(&mut resource, "service.name", "dtrace");
        attribute(&mut resource, "host.name", &self.host);
        scope.bytes(1, b"dtrace");
        of_scope.message(1, &scope);
        let (begin, end) = self.interval;
        let duration = end.saturating_sub(begin);
        for mut of in all {
            of.fixed(3, self.wall.saturating_sub(duration));
            of.number(4, duration);
            self.written += 1;
            let id = self.ids.iter().flat_map(|half| half.hash_one(self.written).to_le_bytes());
            of.bytes(7, &id.collect::<Vec<u8>>());
            if let Some(lost) = lost.take() {
                of.packed(11, [lost]);
            }
            of_scope.message(2, &of);
        }
        of_resource.message(1, &resource);
        of_resource.message(2, &of_scope);
        let mut out = Message::default();
        out.message(1, &of_resource);
        out.message(2, &dictionary.message());
        self.flame.clear();
        self.out.write_all(out.encoded())
    }
}

impl<W: Write + Send> Sink for Otlp<W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        match event {
            Event::Start(start) => {
                self.host = start.host.name.clone().into_owned();
                self.clock = start.clock;
                self.wall = start.clock.wall;
            }
            // What was lost comes before it.
            Event::End { .. } => {
                self.write(false)?;
                self.write(true)?;
            }
            Event::Interval(all) => {
                if self.interval != (all.begin, all.end) {
                    self.write(false)?;
                }
                self.interval = (all.begin, all.end);
                self.wall = self.clock.wall_at_end(all);
                self.flame.interval(all);
                let is_new = |refused: &&Refused| !self.refused.contains(&refused.name);
                if let Some(Refused { name, value }) = self.flame.refused().find(is_new).cloned() {
                    let shown = control::name_text(&name);
                    let why = format!(
                        "{shown} is left out: an interval has added {value}, and values of profiles are not negative"
                    );
                    self.refused.push(name);
                    return Err(SinkError::Effect(io::Error::other(why)));
                }
            }
            // What an aggregation delivers is in the intervals.
            Event::Aggregation(_) => {}
            other => self.flame.event(other)?,
        }
        Ok(())
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write(false)?;
        self.out.flush()
    }
}
