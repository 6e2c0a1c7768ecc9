//! The encoding: every event is read as it was written, and no bytes do harm.

#![allow(clippy::unwrap_used, clippy::panic)]

mod generate;

use std::io::{self, Read, Write};

use events::{
    Action, Aggregation, Encoder, Event, FRAME_MAX, Field, MAGIC, NoticeKind, Occasion, ReadError, Reader,
    Row, Sink, VERSION, Value,
};
use generate::Generator;

fn encode(events: &[Event<'_>]) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    for event in events {
        encoder.event(event).unwrap();
    }
    encoder.into_inner().unwrap()
}

fn decode(bytes: &[u8]) -> Result<Vec<Event<'static>>, ReadError> {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    while let Some(event) = reader.next_event()? {
        all.push(event.into_owned());
    }
    Ok(all)
}

/// The frames of a stream: kind and body.
fn frames(bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut rest = &bytes[12..];
    let mut all = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (frame, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        all.push((u16::from_le_bytes([frame[0], frame[1]]), &frame[2..]));
        rest = after;
    }
    all
}

fn stream(frames: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    for (kind, body) in frames {
        out.extend((body.len() as u32 + 2).to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend_from_slice(body);
    }
    out
}

#[test]
fn events_are_read_as_they_were_written() {
    for seed in 0..4000 {
        let mut generator = Generator::new(seed);
        let events: Vec<Event<'_>> = (0..4).map(|_| generator.event()).collect();
        assert_eq!(decode(&encode(&events)).unwrap(), events, "seed {seed}");
    }
}

#[test]
fn encoding_what_was_read_gives_the_same_bytes() {
    for seed in 0..1000 {
        let mut generator = Generator::new(seed);
        let bytes = encode(&[generator.event(), generator.event()]);
        assert_eq!(encode(&decode(&bytes).unwrap()), bytes, "seed {seed}");
    }
}

/// Frames of later versions: more fields at the end of a body, and more kinds.
#[test]
fn unknown_kinds_and_unknown_fields_are_skipped() {
    let mut generator = Generator::new(7);
    let events: Vec<Event<'_>> = (0..50).map(|_| generator.event()).collect();
    let bytes = encode(&events);
    let longer: Vec<(u16, Vec<u8>)> =
        frames(&bytes).iter().map(|(kind, body)| (*kind, [body, &[1, 2, 3][..]].concat())).collect();
    let mut all: Vec<(u16, &[u8])> = vec![(999, b"later"), (0, b"")];
    all.extend(longer.iter().map(|(kind, body)| (*kind, &body[..])));
    all.push((99, b"x"));
    // A drop and a notice of kinds that are not known.
    all.extend([(9, &[200, 1, 1][..]), (11, &[200, 0])]);
    let bytes = stream(&all);
    let mut reader = Reader::new(&bytes[..]);
    for event in &events {
        assert_eq!(reader.next_event().unwrap().as_ref(), Some(event));
    }
    assert!(reader.next_event().unwrap().is_none());
    assert_eq!(reader.skipped(), 5);
}

#[test]
fn a_stream_that_is_cut_says_so() {
    let mut generator = Generator::new(3);
    let events = [generator.event(), Event::End { status: 3 }];
    let bytes = encode(&events);
    for end in 12..bytes.len() {
        let mut reader = Reader::new(&bytes[..end]);
        let error = loop {
            match reader.next_event() {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        let at_frame = stream(&frames(&bytes)[..1]).len() == end || end == 12;
        assert!(
            matches!((&error, at_frame), (None, true) | (Some(ReadError::Truncated), false)),
            "{error:?}"
        );
    }
}

#[test]
fn other_files_and_other_versions_are_rejected() {
    for bytes in [&b""[..], b"CPU     ID                    FUNCTION:NAME\n", &MAGIC] {
        assert!(matches!(decode(bytes), Err(ReadError::NotEvents)));
    }
    for other in [1, 2, 3, 5] {
        let stream = [&MAGIC[..], &u32::to_le_bytes(other)].concat();
        assert!(matches!(decode(&stream), Err(ReadError::Version(version)) if version == other));
        let text = decode(&stream).unwrap_err().to_string();
        assert_eq!(text, format!("events of version {other}; this reader knows version 4"));
    }
}

/// A source that says how much was asked of it.
struct Endless(u64);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0 += into.len() as u64;
        into.fill(0xff);
        Ok(into.len())
    }
}

/// A source that does not block: between any two bytes it has nothing.
struct Slow<'a>(&'a [u8], bool);

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
        (into[0], self.0) = (*first, rest);
        Ok(1)
    }
}

#[test]
fn a_reader_continues_within_a_frame_after_its_input_had_nothing() {
    let mut generator = Generator::new(21);
    let events: Vec<Event<'_>> = (0..6).map(|_| generator.event()).collect();
    let bytes = encode(&events);
    let mut reader = Reader::new(Slow(&bytes, false));
    let mut found = Vec::new();
    loop {
        match reader.next_event() {
            Ok(Some(event)) => found.push(event.into_owned()),
            Ok(None) => break,
            Err(ReadError::Io(e)) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(found, events);
}

/// A file that is still being written.
struct Growing<'a>(&'a [u8], &'a std::cell::Cell<usize>, usize);

impl Read for Growing<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = (self.1.get() - self.2).min(into.len());
        into[..count].copy_from_slice(&self.0[self.2..self.2 + count]);
        self.2 += count;
        Ok(count)
    }
}

#[test]
fn a_stream_that_grows_is_read_to_its_new_end() {
    let bytes = encode(&[Event::Interrupt, Event::End { status: 7 }]);
    let end = std::cell::Cell::new(0);
    let mut reader = Reader::new(Growing(&bytes, &end, 0));
    let mut found = Vec::new();
    for length in 0..=bytes.len() {
        end.set(length);
        match reader.next_event() {
            Ok(event) => found.extend(event.map(Event::into_owned)),
            Err(ReadError::NotEvents) if length < 12 => {}
            Err(ReadError::Truncated) => {}
            Err(e) => panic!("{length}: {e}"),
        }
    }
    assert_eq!(found, [Event::Interrupt, Event::End { status: 7 }]);
}

#[test]
fn a_reader_without_a_place_to_continue_repeats_its_error() {
    let repeats = |bytes: &[u8], text: &str| {
        let mut reader = Reader::with_limit(bytes, 100);
        for _ in 0..3 {
            assert_eq!(reader.next_event().unwrap_err().to_string(), text);
        }
    };
    let good = encode(&[Event::Stop]);
    repeats(&[b"12345678\x03\0\0\0", &good[..]].concat(), "not a stream of events");
    repeats(
        &[&MAGIC[..], &9u32.to_le_bytes(), &good].concat(),
        "events of version 9; this reader knows version 4",
    );
    repeats(&[&good[..12], &[200, 0, 0, 0], &good[12..]].concat(), "a frame of 200 bytes is too long");
}

/// A record of a later version: an action that this one does not know, and a value.
#[test]
fn unknown_actions_and_values_are_read_as_unknown() {
    let Event::Record(mut record) = (0..).map(|seed| Generator::new(seed).event()).find(is_record).unwrap()
    else {
        unreachable!()
    };
    record.fields.clear();
    let bytes = encode(&[Event::Record(record.clone())]);
    let (kind, body) = frames(&bytes)[0];
    // One structure each: the name "", action 99; action 0 (trace) of a value 77.
    let fields: [&[u8]; 3] = [&[3], &[5, 0, 99, 1, 2, 3], &[5, 0, 0, 2, 77, 1]];
    let last: &[u8] = &[4, 1, b'x', 6, 250];
    let later = [&body[..body.len() - 1], &fields.concat(), last].concat();
    let found = decode(&stream(&[(kind, &later)])).unwrap();
    let field = |name: &'static str, action| Field { name: name.into(), action };
    record.fields = vec![
        field("", Action::Unknown),
        field("", Action::Trace(Value::Unknown)),
        field("x", Action::Nothing),
    ];
    assert_eq!(found, [Event::Record(record)]);
}

#[test]
fn a_long_frame_is_rejected_before_it_is_read() {
    let head = stream(&[]);
    let mut source = Read::chain(&head[..], Endless(0));
    let mut reader = Reader::new(&mut source);
    assert!(matches!(reader.next_event(), Err(ReadError::TooLong(u32::MAX))));
    drop(reader);
    assert!(source.get_ref().1.0 < 64);
    let long = ((FRAME_MAX + 1) as u32).to_le_bytes();
    assert!(matches!(decode(&[&head[..], &long].concat()), Err(ReadError::TooLong(_))));
    let bytes = [&head[..], &[100, 0, 0, 0]].concat();
    assert!(matches!(Reader::with_limit(&bytes[..], 99).next_event(), Err(ReadError::TooLong(100))));
    // A stated length does not allocate.
    let almost = [&head[..], &(FRAME_MAX as u32).to_le_bytes(), &[1, 0, 1]].concat();
    assert!(matches!(decode(&almost), Err(ReadError::Truncated)));
}

#[test]
fn reading_continues_after_a_malformed_frame() {
    let good = encode(&[Event::Interrupt, Event::Stop]);
    let good = frames(&good);
    let bytes = stream(&[good[0], (3, &[0xff; 20]), (6, &[]), good[1]]);
    let mut reader = Reader::new(&bytes[..]);
    assert_eq!(reader.next_event().unwrap(), Some(Event::Interrupt));
    assert!(matches!(reader.next_event(), Err(ReadError::Malformed { frame: 1, .. })));
    assert!(matches!(reader.next_event(), Err(ReadError::Malformed { frame: 2, at: 0, .. })));
    assert_eq!(reader.next_event().unwrap(), Some(Event::Stop));
    assert_eq!(reader.next_event().unwrap(), None);
}

/// Damaged streams are read or rejected; what is read is an event like any other.
#[test]
fn damaged_streams_are_rejected_or_read_without_a_panic() {
    let rounds: u64 = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let (mut read, mut rejected) = (0u64, 0u64);
    for seed in 0..rounds {
        let mut generator = Generator::new(seed);
        let mut bytes = encode(&[generator.event(), generator.event()]);
        for _ in 0..1 + generator.below(4) {
            generator.damage(&mut bytes, 12);
        }
        let mut reader = Reader::new(&bytes[..]);
        for _ in 0..64 {
            match reader.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => {
                    read += 1;
                    let event = event.into_owned();
                    assert_eq!(decode(&encode(std::slice::from_ref(&event))).unwrap(), [event]);
                }
                Err(ReadError::Malformed { .. }) => rejected += 1,
                Err(_) => break,
            }
        }
    }
    assert!(read > 0 && rejected > 0);
}

#[test]
fn many_rows_take_several_frames_and_are_the_same_rows() {
    let mut generator = Generator::new(11);
    let columns = [generator.columns(), generator.columns(), generator.columns()].concat();
    let rows: Vec<Row<'_>> = (0..20_000).map(|_| generator.row(&columns)).collect();
    let aggregation = Aggregation::new(Occasion::End, columns, rows);
    let bytes = encode(&[Event::Aggregation(aggregation.clone())]);
    let events = decode(&bytes).unwrap();
    assert!(events.len() > 1);
    let mut found = Vec::new();
    for (n, event) in events.iter().enumerate() {
        let Event::Aggregation(part) = event else { panic!("{event:?}") };
        assert_eq!((part.part.first, part.part.last), (n == 0, n + 1 == events.len()));
        found.extend(part.rows.clone());
    }
    assert_eq!(found, aggregation.rows);
}

#[test]
fn numbers_of_notices_and_drops_are_those_of_the_layout() {
    for (number, kind) in NoticeKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, number);
    }
    for (number, kind) in events::DropKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, number);
    }
}

/// Accepts some bytes, fails once, and then accepts everything.
struct Once {
    bytes: Vec<u8>,
    accepts: Option<usize>,
}

impl Write for Once {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = match self.accepts {
            None => bytes.len(),
            Some(0) => {
                self.accepts = None;
                return Err(io::Error::new(io::ErrorKind::StorageFull, "full"));
            }
            Some(left) => {
                let taken = bytes.len().min(left);
                self.accepts = Some(left - taken);
                taken
            }
        };
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn nothing_follows_a_frame_that_was_written_in_part() {
    let mut encoder = Encoder::new(Once { bytes: Vec::new(), accepts: Some(20) });
    encoder.event(&Event::End { status: 1 }).unwrap();
    encoder.event(&Event::End { status: 2 }).unwrap();
    let failed = encoder.batch_end().unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
    for _ in 0..2 {
        assert!(encoder.event(&Event::End { status: 3 }).is_err());
        assert_eq!(encoder.batch_end().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(encoder.flush().is_err());
    }
    assert_eq!(encoder.get_ref().bytes.len(), 20);
    assert!(encoder.into_inner().is_err());
}

/// Two strings that each fit a record, and together do not: in a record they are rejected, in the
/// keys of two rows they are not.
#[test]
fn strings_that_declare_more_than_a_record_has_are_rejected() {
    let size = 40 << 20;
    let string = |size| Value::Str { text: b"x"[..].into(), size };
    let record = |sizes: &[u32]| {
        let Event::Record(mut record) =
            (0..).map(|seed| Generator::new(seed).event()).find(is_record).unwrap()
        else {
            unreachable!()
        };
        record.fields = sizes
            .iter()
            .map(|size| Field { name: "".into(), action: Action::Trace(string(*size)) })
            .collect();
        Event::Record(record)
    };
    assert!(decode(&encode(&[record(&[size]), record(&[size])])).is_ok());
    let error = decode(&encode(&[record(&[size, size])])).unwrap_err();
    assert!(matches!(error, ReadError::Malformed { .. }), "{error}");
    let row = || Row { key: vec![string(size)], values: Vec::new() };
    let mut rows = Aggregation::new(Occasion::End, Vec::new(), vec![row(), row()]);
    rows.keys = vec!["a".into()];
    assert!(decode(&encode(&[Event::Aggregation(rows)])).is_ok());
}

fn is_record(event: &Event<'_>) -> bool {
    matches!(event, Event::Record(_))
}
