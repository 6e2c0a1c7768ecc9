//! pprof's `profile.proto`, written by hand: a dozen fields of a format that does not change,
//! against a dependency with a code generator.
//!
//! A frame is a location with one function; objects are mappings, and functions of an interpreter
//! have their file. Columns of the key are labels, by which pprof filters and groups (`-tagfocus`,
//! `-tagroot`). Each aggregation is a type of sample. What was lost is a comment
//! (`go tool pprof -comments`).

use std::collections::HashMap;

use protobuf::Message;

use crate::gzip;
use crate::loss::Loss;
use crate::profile::{Frame, KeyValue, Kind, Profile};
use crate::strings::Strings;

/// What is written so far.
struct Writer {
    out: Message,
    strings: Strings,
    /// Mappings by the name of the object; their numbers are from 1.
    mappings: HashMap<String, u64>,
    /// Locations by frame.
    locations: HashMap<Frame, u64>,
}

impl Writer {
    fn value_type(&mut self, profile: &Profile) -> Message {
        let mut of = Message::default();
        of.number(1, self.strings.number(&profile.name));
        // Whatever was aggregated: pprof shows numbers of this unit as they are.
        of.number(2, self.strings.number("count"));
        of
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        if let Some(known) = self.locations.get(frame) {
            return *known;
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(frame.clone(), id);
        let (container, function) = frame.parts();
        let container = container.unwrap_or_default();
        // The file of an interpreter's function is mapped nowhere.
        let mapping = self.mapping(if frame.kind == Kind::Interpreted { "" } else { container });
        let mut line = Message::default();
        line.number(1, id);
        let mut location = Message::default();
        location.number(1, id);
        location.number(2, mapping);
        location.message(4, &line);
        self.out.message(4, &location);
        let mut of = Message::default();
        of.number(1, id);
        of.number(2, self.strings.number(function));
        of.number(3, self.strings.number(&frame.name));
        of.number(4, self.strings.number(container));
        self.out.message(5, &of);
        id
    }

    fn mapping(&mut self, object: &str) -> u64 {
        if let Some(known) = self.mappings.get(object) {
            return *known;
        }
        let id = self.mappings.len() as u64 + 1;
        self.mappings.insert(object.to_string(), id);
        let mut of = Message::default();
        of.number(1, id);
        of.number(5, self.strings.number(object));
        // Its functions have names.
        of.number(7, 1);
        self.out.message(3, &of);
        id
    }

    fn label(&mut self, key: &str, text: &str) -> Message {
        let mut of = Message::default();
        of.number(1, self.strings.number(key));
        match KeyValue::of(key, text) {
            // A number that is 0 would not be written, and neither its label.
            KeyValue::Number(0) => of.number(2, self.strings.number("0")),
            KeyValue::Number(number) => of.number(3, number as u64),
            KeyValue::Text(value) => of.number(2, self.strings.number(value)),
        }
        of
    }
}

/// The profiles in one file.
pub(crate) fn write(profiles: &[&Profile], loss: &Loss) -> Vec<u8> {
    let strings = Strings::default();
    let mut w =
        Writer { out: Message::default(), strings, mappings: HashMap::new(), locations: HashMap::new() };
    // The first mapping is that of the main program, which no object is.
    w.mapping("");
    for profile in profiles {
        let of = w.value_type(profile);
        w.out.message(1, &of);
    }
    for (n, profile) in profiles.iter().enumerate() {
        samples(&mut w, profile, n, profiles.len());
    }
    for line in loss.lines() {
        let number = w.strings.number(&format!("lost: {line}"));
        w.out.number(13, number);
    }
    for text in w.strings.all() {
        w.out.bytes(6, text.as_bytes());
    }
    gzip::stored(w.out.encoded())
}

fn samples(w: &mut Writer, profile: &Profile, n: usize, count: usize) {
    // Each frame is looked up once.
    let ids: Vec<u64> = profile
        .frames()
        .iter()
        .map(|frame| if frame.kind == Kind::Key { 0 } else { w.location(frame) })
        .collect();
    for (path, value) in profile.each() {
        let mut sample = Message::default();
        let innermost_first = path.iter().rev().filter_map(|frame| ids.get(*frame as usize).copied());
        sample.packed(1, innermost_first.filter(|id| *id != 0));
        sample.packed(2, (0..count).map(|at| if at == n { value.min(i64::MAX as u64) } else { 0 }));
        let frames = path.iter().filter_map(|frame| profile.frames().get(*frame as usize));
        let keys = frames.filter(|frame| frame.kind == Kind::Key);
        for (key, frame) in profile.keys.iter().zip(keys) {
            let label = w.label(key, &frame.name);
            sample.message(3, &label);
        }
        w.out.message(2, &sample);
    }
}
