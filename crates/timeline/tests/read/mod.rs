//! A reader of the traces that are written, for tests: protocol buffers, then what they mean.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, HashMap};

/// A field of a message.
#[derive(Clone, Debug)]
pub enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message, in their order.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<(u64, Field)>);

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift).unwrap_or(0);
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than ten bytes");
}

impl Fields {
    pub fn of(mut bytes: &[u8]) -> Fields {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Number(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (field, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(field.to_vec())
                }
                other => panic!("wire type {other}"),
            };
            all.push((tag >> 3, field));
        }
        Fields(all)
    }

    pub fn number(&self, of: u64) -> Option<u64> {
        self.0.iter().find_map(|(field, value)| match value {
            Field::Number(number) if *field == of => Some(*number),
            _ => None,
        })
    }

    pub fn numbers(&self, of: u64) -> Vec<u64> {
        let number = |(field, value): &(u64, Field)| match value {
            Field::Number(number) if *field == of => Some(*number),
            _ => None,
        };
        self.0.iter().filter_map(number).collect()
    }

    pub fn all(&self, of: u64) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(move |(field, value)| match value {
            Field::Bytes(bytes) if *field == of => Some(&**bytes),
            _ => None,
        })
    }

    pub fn messages(&self, of: u64) -> Vec<Fields> {
        self.all(of).map(Fields::of).collect()
    }

    pub fn message(&self, of: u64) -> Option<Fields> {
        self.messages(of).into_iter().next()
    }

    pub fn text(&self, of: u64) -> Option<String> {
        self.all(of).next().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }
}

/// A track, as it was described last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    pub name: Option<String>,
    pub parent: Option<u64>,
    pub pid: Option<u64>,
    pub tid: Option<u64>,
    pub is_counter: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Begin,
    End,
    Instant,
    Counter,
}

/// An event.
#[derive(Clone, Debug)]
pub struct Happened {
    pub time: u64,
    pub kind: Kind,
    pub track: u64,
    pub name: Option<String>,
    pub value: Option<i64>,
    pub annotations: Vec<(String, String)>,
    /// The functions of the call stack, the outermost first.
    pub stack: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub track: u64,
    pub name: String,
    pub begin: u64,
    pub end: u64,
    /// How many slices it is in.
    pub depth: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub tracks: BTreeMap<u64, Track>,
    pub events: Vec<Happened>,
    /// Clocks and their times in the first packet.
    pub clocks: BTreeMap<u64, u64>,
}

/// The texts of the kinds: field of the kind and number.
type Texts = HashMap<(u64, u64), String>;

fn annotation(all: &Fields, texts: &Texts) -> (String, String) {
    let name = all.text(10).unwrap_or_else(|| texts[&(3, all.number(1).unwrap())].clone());
    let value = match (all.number(3), all.number(4), all.number(7)) {
        (Some(unsigned), ..) => unsigned.to_string(),
        (_, Some(signed), _) => (signed as i64).to_string(),
        (_, _, Some(pointer)) => format!("{pointer:#x}"),
        _ => all.text(6).unwrap(),
    };
    (name, value)
}

impl Trace {
    pub fn read(bytes: &[u8]) -> Trace {
        let mut trace = Trace::default();
        let mut now = 0;
        let mut texts = Texts::new();
        let mut frames: HashMap<u64, String> = HashMap::new();
        let mut stacks: HashMap<u64, Vec<String>> = HashMap::new();
        for (n, packet) in Fields::of(bytes).messages(1).iter().enumerate() {
            assert_eq!(packet.number(10), Some(1), "one sequence");
            if let Some(snapshot) = packet.message(6) {
                assert_eq!((n, packet.number(13)), (0, Some(1)));
                for clock in snapshot.messages(1) {
                    trace.clocks.insert(clock.number(1).unwrap(), clock.number(2).unwrap());
                }
                now = trace.clocks[&64];
                assert_eq!(packet.message(59).unwrap().number(58), Some(64), "the clock of all packets");
            }
            for new in packet.messages(12) {
                for kind in [2, 3, 5, 17] {
                    for entry in new.messages(kind) {
                        let before = texts.insert((kind, entry.number(1).unwrap()), entry.text(2).unwrap());
                        assert_eq!(before, None, "a number stands for one text");
                    }
                }
                for mapping in new.messages(19) {
                    assert!(texts.contains_key(&(17, mapping.number(7).unwrap())));
                }
                for frame in new.messages(6) {
                    let (function, path) = (frame.number(2).unwrap(), frame.number(3).unwrap());
                    let text = format!("{}`{}", texts[&(17, path)], texts[&(5, function)]);
                    frames.insert(frame.number(1).unwrap(), text);
                }
                for stack in new.messages(7) {
                    let of = stack.numbers(2).iter().map(|frame| frames[frame].clone()).collect();
                    stacks.insert(stack.number(1).unwrap(), of);
                }
            }
            if let Some(of) = packet.message(60) {
                let (process, thread) = (of.message(3), of.message(4));
                let new = Track {
                    name: (of.text(2))
                        .or(process.as_ref().and_then(|of| of.text(6)))
                        .or(thread.as_ref().and_then(|of| of.text(5))),
                    parent: of.number(5),
                    pid: process.or(thread.clone()).and_then(|of| of.number(1)),
                    tid: thread.and_then(|of| of.number(2)),
                    is_counter: of.message(8).is_some(),
                };
                trace.tracks.insert(of.number(1).unwrap(), new);
            }
            let Some(event) = packet.message(11) else { continue };
            assert_eq!(packet.number(13), Some(2));
            let time = match packet.number(58) {
                None => {
                    now += packet.number(8).unwrap();
                    now
                }
                Some(clock) => {
                    assert_eq!(clock, 3);
                    packet.number(8).unwrap()
                }
            };
            let track = event.number(11).unwrap();
            assert!(trace.tracks.contains_key(&track), "a track is described before its events");
            trace.events.push(Happened {
                time,
                kind: match event.number(9).unwrap() {
                    1 => Kind::Begin,
                    2 => Kind::End,
                    3 => Kind::Instant,
                    4 => Kind::Counter,
                    other => panic!("an event of type {other}"),
                },
                track,
                name: event.text(23).or(event.number(10).map(|number| texts[&(2, number)].clone())),
                value: event.number(30).map(|value| value as i64),
                annotations: event.messages(4).iter().map(|all| annotation(all, &texts)).collect(),
                stack: event.number(56).map(|number| stacks[&number].clone()).unwrap_or_default(),
            });
        }
        trace
    }

    /// All slices, in the order in which they begin. They nest, and all of them end.
    pub fn slices(&self) -> Vec<Slice> {
        let mut all: Vec<Slice> = Vec::new();
        let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
        for event in &self.events {
            let of_track = open.entry(event.track).or_default();
            match event.kind {
                Kind::Begin => {
                    let depth = of_track.len();
                    of_track.push(all.len());
                    let (track, name) = (event.track, event.name.clone().unwrap());
                    all.push(Slice { track, name, begin: event.time, end: 0, depth });
                }
                Kind::End => all[of_track.pop().expect("an end without a begin")].end = event.time,
                _ => {}
            }
        }
        assert!(open.values().all(Vec::is_empty), "all slices have ended");
        all
    }

    /// The slices by their names, with their depths and times.
    pub fn described(&self) -> Vec<(String, usize, u64, u64)> {
        self.slices().into_iter().map(|s| (s.name, s.depth, s.begin, s.end)).collect()
    }

    pub fn instants(&self) -> Vec<&Happened> {
        self.events.iter().filter(|event| event.kind == Kind::Instant).collect()
    }

    /// The values of the counter tracks with this name.
    pub fn counter(&self, name: &str) -> Vec<(u64, i64)> {
        let of = |track: &Track| track.is_counter && track.name.as_deref() == Some(name);
        let values = self.events.iter().filter(|event| of(&self.tracks[&event.track]));
        values.map(|event| (event.time, event.value.unwrap())).collect()
    }
}
