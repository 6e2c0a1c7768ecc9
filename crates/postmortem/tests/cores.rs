//! Events through the memory of a process and its core file, whole, cut and damaged.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use events::{Action, Calls, Clock, Event, Field, Host, Part, Probe, Reader, Record, Sink, SinkError, Start};
use events::{AggFunc, AggValue, Aggregation, Column, Firing, Int, Occasion, Row, Value};
use postmortem::{CoreError, HEAD, Head, Log, blank, find};
use proptest::prelude::*;

const PAGE: usize = 4096;

fn start() -> Event<'static> {
    Event::Start(Start::new("v", Clock { time: 0, wall: 0 }, Host::new("h", "r", "m", 1)))
}

/// A record whose time is `n`, with a string of this length.
fn record(n: u64, length: usize, part: Part) -> Event<'static> {
    let names = ["p", "m", "f", "n"].map(Arc::from);
    let probe = std::borrow::Cow::Owned(Arc::new(Probe::new(1, names, Calls::None)));
    let bytes = vec![b'x'; length];
    let value = Value::Str { text: bytes.into(), size: length as u32 + 1 };
    let fields = vec![Field { name: "trace".into(), action: Action::Trace(value) }];
    Event::Record(Record { firing: Firing::new(n, 0, 1, probe), part, fields })
}

/// The file that a kernel would write: these segments, each with the flags and the bytes.
fn core(segments: &[(u32, &[u8])]) -> Vec<u8> {
    let mut head = vec![0; 64];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    head[16..18].copy_from_slice(&4u16.to_le_bytes());
    head[32..40].copy_from_slice(&64u64.to_le_bytes());
    head[54..56].copy_from_slice(&56u16.to_le_bytes());
    head[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    let mut offset = (64 + segments.len() * 56).next_multiple_of(PAGE);
    let begin = offset;
    for (flags, bytes) in segments {
        let mut entry = vec![0; 56];
        entry[..4].copy_from_slice(&1u32.to_le_bytes());
        entry[4..8].copy_from_slice(&flags.to_le_bytes());
        entry[8..16].copy_from_slice(&(offset as u64).to_le_bytes());
        entry[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        head.extend(entry);
        offset += bytes.len();
    }
    head.resize(begin, 0);
    segments.iter().for_each(|(_, bytes)| head.extend_from_slice(bytes));
    head
}

fn memory(image: &[u8], size: usize) -> Vec<u8> {
    let mut memory = image.to_vec();
    memory.resize(size, 0);
    memory
}

fn logged(size: u64, events: impl IntoIterator<Item = Event<'static>>) -> Vec<u8> {
    let mut log = Log::new(size);
    events.into_iter().for_each(|event| log.add(&event));
    let totals = log.totals();
    let image = log.image(totals, Head { pid: 7, tid: 8, signal: 11, wall: 9, ..Head::default() });
    assert!(image.len() as u64 <= size, "{} of {size}", image.len());
    image
}

/// The times of the records, and the kinds of all events.
fn times(bytes: &[u8]) -> Vec<u64> {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        if let Event::Record(record) = event {
            all.push(record.firing.time);
        }
    }
    all
}

fn numbered(count: u64) -> impl Iterator<Item = Event<'static>> {
    [start()].into_iter().chain((0..count).map(|n| record(n, 8, Part::WHOLE)))
}

#[test]
fn the_newest_records_are_found_and_the_others_are_counted() {
    let image = logged(8192, numbered(1000));
    let file = core(&[(5, &[0; PAGE]), (6, &[1; PAGE]), (6, &memory(&image, 8192))]);
    let found = find(&&file[..]).unwrap();
    assert!(found.wrong.is_none());
    assert_eq!((found.head.pid, found.head.tid, found.head.signal, found.head.wall), (7, 8, 11, 9));
    let times = times(&found.events);
    assert_eq!(found.head.kept + found.head.cut, 1000);
    assert_eq!(times.len() as u64, found.head.kept);
    assert_eq!(times, (found.head.cut..1000).collect::<Vec<_>>());
    // It is well used.
    assert!(image.len() > 8000, "{}", image.len());
}

#[test]
fn memory_that_the_kernel_has_joined_with_another_mapping_is_found() {
    let joined = [vec![3; 5 * PAGE], memory(&logged(PAGE as u64, numbered(3)), PAGE)].concat();
    let file = core(&[(6, &joined)]);
    assert_eq!(times(&find(&&file[..]).unwrap().events), [0, 1, 2]);
}

#[test]
fn the_last_of_several_sessions_is_found() {
    let of = |wall: u64, count| {
        let mut log = Log::new(PAGE as u64);
        numbered(count).for_each(|event| log.add(&event));
        let totals = log.totals();
        memory(&log.image(totals, Head { wall, ..Head::default() }), PAGE)
    };
    let file = core(&[(6, &of(5, 1)), (6, &of(6, 2)), (6, &of(4, 3))]);
    assert_eq!(times(&find(&&file[..]).unwrap().events).len(), 2);
}

#[test]
fn a_record_of_several_events_is_kept_or_cut_as_a_whole() {
    let parts = [(true, false), (false, false), (false, true)];
    let of = |n: u64| parts.into_iter().map(move |(first, last)| record(n, 100, Part { first, last }));
    let image = logged(2048, [start()].into_iter().chain((0..50).flat_map(of)));
    let times = times(&image[HEAD..]);
    assert!(times.len() > 3 && times.len().is_multiple_of(3), "{times:?}");
    assert_eq!(times[..3], [times[0]; 3]);
    // One that is longer than everything leaves nothing of itself, and does not disturb later ones.
    let long = (0..40).map(|n| record(7, 100, Part { first: n == 0, last: n == 39 }));
    let image = logged(2048, [start()].into_iter().chain(long).chain([record(8, 8, Part::WHOLE)]));
    assert_eq!(self::times(&image[HEAD..]), [8]);
}

#[test]
fn options_that_were_changed_stay_with_the_records_after_them() {
    let options = |quiet| {
        let value = events::SettingValue::Flag(quiet);
        Event::Options(vec![events::Setting { name: "quiet".into(), value }])
    };
    let all = [start(), options(false), options(true)].into_iter();
    let image = logged(2048, all.chain((0..500).map(|n| record(n, 8, Part::WHOLE))));
    let mut reader = Reader::new(&image[HEAD..]);
    assert!(matches!(reader.next_event(), Ok(Some(Event::Start(_)))));
    let Ok(Some(Event::Options(settings))) = reader.next_event() else { panic!("no options") };
    assert_eq!(settings[0].value, events::SettingValue::Flag(true));
}

#[test]
fn totals_are_at_most_half_and_a_message_says_what_is_left_out() {
    let rows = |count: u64, part| {
        let value = |n| AggValue {
            function: AggFunc::Count,
            words: vec![n].into(),
            normal: 1,
            cpus: Vec::new(),
            absent: false,
        };
        let row = |n: u64| Row { key: vec![Value::Int(Int::new(n, 8, false))], values: vec![value(n)] };
        let column = Column { name: "a".into(), function: AggFunc::Count };
        let mut all = Aggregation::new(Occasion::Demand, vec![column], (0..count).map(row).collect());
        all.part = part;
        Event::Aggregation(all)
    };
    let mut log = Log::new(8192);
    numbered(1000).for_each(|event| log.add(&event));
    let mut totals = log.totals();
    totals.add(&rows(10, Part::WHOLE));
    totals.add(&rows(20, Part { first: true, last: false }));
    totals.add(&rows(5000, Part { first: false, last: true }));
    let image = log.image(totals, Head::default());
    let mut reader = Reader::new(&image[HEAD..]);
    let (mut records, mut aggregations, mut notices) = (0, Vec::new(), Vec::new());
    while let Some(event) = reader.next_event().unwrap() {
        match event {
            Event::Record(_) => records += 1,
            Event::Aggregation(all) => aggregations.push((all.rows.len(), all.part.last)),
            Event::Notice(notice) => notices.push(notice.text.to_string()),
            _ => {}
        }
    }
    assert!(records > 30, "{records}");
    assert_eq!(aggregations, [(10, true), (20, false), (0, true)]);
    assert_eq!(
        notices,
        ["postmortem: 5000 rows of @a are left out: aggregations have at most half of the memory"]
    );
}

#[test]
fn what_has_no_records_is_refused_with_the_reason() {
    let tag = |bytes: &[u8]| find(&bytes).unwrap_err().tag();
    let other = core(&[(6, &[1; PAGE])]);
    assert_eq!(tag(&other), "D_CORE_NONE");
    assert_eq!(tag(&core(&[(6, &memory(&blank(4096), PAGE))])), "D_CORE_EMPTY");
    assert_eq!(tag(b""), "D_CORE_FORMAT");
    assert_eq!(tag(b"#!/bin/sh\n"), "D_CORE_FORMAT");
    assert_eq!(tag(b"\x28\xb5\x2f\xfd...."), "D_CORE_COMPRESSED");
    assert_eq!(tag(b"\x7fELF\x01\x01"), "D_CORE_MACHINE");
    assert_eq!(tag(&other[..20]), "D_CORE_TRUNCATED");
    assert_eq!(tag(&other[..100]), "D_CORE_TRUNCATED");
    assert_eq!(tag(&other[..other.len() - 1]), "D_CORE_TRUNCATED");
    let mut program = other.clone();
    program[16] = 2;
    assert_eq!(tag(&program), "D_CORE_FORMAT");
    program[16] = 4;
    program[54] = 57;
    assert_eq!(tag(&program), "D_CORE_MALFORMED");
    // A segment without its memory in the file.
    assert_eq!(tag(&core(&[(6, &[])])), "D_CORE_NONE");
    // Code is not looked at: the tracer itself can be in a core file.
    assert_eq!(tag(&core(&[(5, &memory(&logged(4096, numbered(1)), PAGE))])), "D_CORE_NONE");
}

#[test]
fn a_truncated_core_has_the_records_that_are_there() {
    let file = core(&[(6, &memory(&logged(8192, numbered(30)), 8192))]);
    let begin = file.len() - 8192;
    let found = find(&&file[..begin + 1000]).unwrap();
    assert!(matches!(found.wrong, Some(CoreError::Truncated(_, 872))), "{:?}", found.wrong);
    let mut reader = Reader::new(&found.events[..]);
    let mut count = 0;
    while let Ok(Some(_)) = reader.next_event() {
        count += 1;
    }
    assert!(count > 5, "{count}");
}

#[test]
fn damaged_records_are_told() {
    let mut file = core(&[(6, &memory(&logged(8192, numbered(30)), 8192))]);
    let at = file.len() - 8192 + HEAD + 500;
    file[at] ^= 1;
    assert!(matches!(find(&&file[..]).unwrap().wrong, Some(CoreError::Damaged)));
}

#[test]
fn more_segments_than_the_head_can_count() {
    let mut file = core(&[(6, &memory(&logged(4096, numbered(2)), PAGE))]);
    let at = file.len() as u64;
    file[56..58].copy_from_slice(&0xffffu16.to_le_bytes());
    file[40..48].copy_from_slice(&at.to_le_bytes());
    let mut section = [0; 64];
    section[44..48].copy_from_slice(&1u32.to_le_bytes());
    file.extend(section);
    assert_eq!(times(&find(&&file[..]).unwrap().events), [0, 1]);
}

/// Receives what can be read.
struct Nothing;

impl Sink for Nothing {
    fn event(&mut self, _: &Event<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

fn read_all(bytes: &[u8]) {
    if let Ok(found) = find(&bytes) {
        let mut reader = Reader::with_limit(&found.events[..], found.events.len());
        for _ in 0..1000 {
            match reader.next_event() {
                Ok(Some(event)) => _ = Nothing.event(&event),
                Ok(None) => break,
                Err(_) => {}
            }
        }
    }
}

#[test]
fn no_file_causes_a_panic() {
    proptest!(ProptestConfig::with_cases(300), |(bytes in prop::collection::vec(any::<u8>(), 0..300))| {
        read_all(&bytes);
        read_all(&[b"\x7fELF\x02\x01", &bytes[..]].concat());
    });
}

#[test]
fn no_damage_to_a_core_causes_a_panic() {
    let place = (0usize..130, any::<u8>());
    let whole = core(&[(6, &[0; 64]), (6, &memory(&logged(4096, numbered(9)), PAGE))]);
    let memory = whole.len() - PAGE;
    let config = ProptestConfig::with_cases(300);
    proptest!(config, |(places in prop::collection::vec(place, 1..6), length in 0usize..9000)| {
        let mut file = whole.clone();
        for (place, byte) in places {
            let (at, inside) = (place.min(119), memory + place);
            file[if byte & 1 == 0 { at } else { inside }] = byte;
        }
        read_all(&file);
        file.truncate(length);
        read_all(&file);
    });
}
