//! Requests of OpenTelemetry with profiles, decoded.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::sync::{Arc, Mutex};

use events::{
    AggFunc, Clock, Column, Drop, DropKind, Event, Growth, Host, Interval, Part, Sink, Start, Value,
};
use flame::{Otlp, Unnamed};

use crate::common::{name, stack, value};

/// The requests that were written.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<Vec<u8>>>>);

impl Write for Requests {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The numbers and the messages at a path of fields.
fn at(bytes: &[u8], path: &[u64]) -> Vec<(u64, Vec<u8>)> {
    let Some((first, rest)) = path.split_first() else { return vec![(0, bytes.to_vec())] };
    let here = protobuf::fields(bytes).filter(|(field, _)| field == first);
    here.flat_map(|(_, value)| match value {
        protobuf::Value::Number(number) => vec![(number, Vec::new())],
        protobuf::Value::Bytes(inner) => at(inner, rest),
    })
    .collect()
}

/// The numbers of a packed list at a path.
fn list(bytes: &[u8], path: &[u64]) -> Vec<u64> {
    at(bytes, path).into_iter().flat_map(|(_, packed)| packed).map(u64::from).collect()
}

/// A profile: its type, begin and duration, what was lost, and its samples as lines.
type Read = (String, u64, u64, Vec<String>, Vec<String>);

struct Request {
    strings: Vec<String>,
    bytes: Vec<u8>,
}

impl Request {
    fn read(bytes: &[u8]) -> Request {
        let strings = at(bytes, &[2, 5]).into_iter().map(|(_, text)| String::from_utf8(text).unwrap());
        Request { strings: strings.collect(), bytes: bytes.to_vec() }
    }

    fn row(&self, table: u64, n: u64) -> Vec<u8> {
        at(&self.bytes, &[2, table])[n as usize].1.clone()
    }

    fn string(&self, n: u64) -> &str {
        &self.strings[n as usize]
    }

    fn attribute(&self, n: u64) -> String {
        let row = self.row(6, n);
        let text = at(&row, &[2, 1]).pop().map(|(_, text)| String::from_utf8(text).unwrap());
        let number = at(&row, &[2, 3]).pop().map(|(number, _)| number.to_string());
        format!("{}={}", self.string(at(&row, &[1])[0].0), text.or(number).unwrap())
    }

    fn frame(&self, n: u64) -> String {
        let location = self.row(2, n);
        let of = self.row(3, at(&location, &[3, 1])[0].0);
        let mapping = at(&location, &[1]).pop().map_or(String::new(), |(n, _)| {
            let file = at(&self.row(1, n), &[4])[0].0;
            self.string(file).to_owned()
        });
        let kind = list(&location, &[4]).first().map_or(String::new(), |n| self.attribute(*n));
        format!("{mapping}!{} {kind}", self.string(at(&of, &[1])[0].0))
    }

    fn profiles(&self) -> Vec<Read> {
        let read = |bytes: Vec<u8>| {
            let samples = at(&bytes, &[2]).into_iter().map(|(_, sample)| {
                let stack = self.row(7, at(&sample, &[1])[0].0);
                let frames: Vec<String> = list(&stack, &[1]).into_iter().map(|n| self.frame(n)).collect();
                let keys: Vec<String> = list(&sample, &[2]).into_iter().map(|n| self.attribute(n)).collect();
                format!("{} | {} | {:?}", keys.join(","), frames.join(";"), list(&sample, &[4]))
            });
            let lost = list(&bytes, &[11]).into_iter().map(|n| self.attribute(n)).collect();
            let kind = self.string(at(&bytes, &[1, 1])[0].0).to_owned();
            assert_eq!(self.string(at(&bytes, &[1, 2])[0].0), "count");
            assert_eq!(at(&bytes, &[7])[0].1.len(), 16);
            (kind, at(&bytes, &[3])[0].0, at(&bytes, &[4])[0].0, lost, samples.collect())
        };
        at(&self.bytes, &[1, 2, 2]).into_iter().map(|(_, bytes)| read(bytes)).collect()
    }
}

const SECOND: u64 = 1_000_000_000;

fn started() -> (Requests, Otlp<Requests>) {
    let out = Requests::default();
    let mut sink = Otlp::new(Unnamed::Unknown, out.clone());
    let start =
        Start::new("1", Clock { time: SECOND, wall: 100 * SECOND }, Host::new("web1", "6.12", "x86_64", 2));
    sink.event(&Event::Start(start)).unwrap();
    (out, sink)
}

fn interval(second: u64, name: &str, part: Part, rows: Vec<(Vec<Value<'static>>, u64)>) -> Event<'static> {
    let column = Column { name: name.to_string().into(), function: AggFunc::Count };
    let rows = rows.into_iter().map(|(key, n)| Growth {
        key,
        increment: value(AggFunc::Count, &[n]),
        total: value(AggFunc::Count, &[n + 1000]),
    });
    let mut all = Interval::new(second * SECOND, (second + 1) * SECOND, column, rows.collect());
    all.keys = vec!["execname".into(), "ustack()".into()];
    all.part = part;
    Event::Interval(all)
}

fn key(program: &str, frames: &[&str]) -> Vec<Value<'static>> {
    vec![name(program), stack(Some(3), frames)]
}

#[test]
fn each_interval_is_a_request_with_its_increments() {
    let (out, mut sink) = started();
    let rows = vec![(key("sh", &["libc`read", "sh`main"]), 5), (key("cat", &["libc`read", "sh`main"]), 7)];
    sink.event(&interval(1, "calls", Part::WHOLE, rows)).unwrap();
    // Without a flush between them.
    let rows = vec![(vec![name("sh"), stack(None, &["vmlinux`vfs_read"])], 2)];
    sink.event(&interval(2, "calls", Part::WHOLE, rows)).unwrap();
    sink.event(&interval(2, "_", Part::WHOLE, vec![(key("7", &["read"]), 3)])).unwrap();
    sink.flush().unwrap();
    sink.event(&interval(3, "calls", Part::WHOLE, Vec::new())).unwrap();
    sink.flush().unwrap();
    let all = out.0.lock().unwrap();
    let requests: Vec<Request> = all.iter().map(|bytes| Request::read(bytes)).collect();
    assert_eq!(requests.len(), 2, "nothing was aggregated in the last interval");
    let samples = [
        "execname=sh | libc!read profile.frame.type=native;sh!main profile.frame.type=native | [5]",
        "execname=cat | libc!read profile.frame.type=native;sh!main profile.frame.type=native | [7]",
    ];
    let samples = samples.map(String::from).to_vec();
    assert_eq!(requests[0].profiles(), [("calls".into(), 100 * SECOND, SECOND, vec![], samples)]);
    // Both stacks are one, and the first row of each table is empty.
    for (table, rows) in [(1, 3), (2, 3), (3, 3), (4, 1), (6, 4), (7, 2)] {
        let all = at(&requests[0].bytes, &[2, table]);
        assert_eq!((all.len(), all[0].1.len()), (rows, 0), "{table}");
    }
    assert_eq!(requests[0].string(0), "");
    let second = requests[1].profiles();
    let kernel = "execname=sh | vmlinux!vfs_read profile.frame.type=kernel | [2]";
    assert_eq!(second[0], ("calls".into(), 101 * SECOND, SECOND, vec![], vec![kernel.into()]));
    let number = "execname=7 | !read profile.frame.type=native | [3]";
    assert_eq!(second[1], ("count".into(), 101 * SECOND, SECOND, vec![], vec![number.into()]));
    let ids = requests.iter().flat_map(|request| at(&request.bytes, &[1, 2, 2, 7]));
    let mut ids: Vec<Vec<u8>> = ids.map(|(_, id)| id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let resource = at(&requests[0].bytes, &[1, 1, 1, 2, 1]);
    let resource: Vec<Vec<u8>> = resource.into_iter().map(|(_, text)| text).collect();
    assert_eq!(resource, [b"dtrace".to_vec(), b"web1".to_vec()]);
}

#[test]
fn parts_of_an_interval_are_each_written_once_with_their_columns() {
    let (out, mut sink) = started();
    let (first, last) = (Part { first: true, last: false }, Part { first: false, last: true });
    sink.event(&interval(1, "calls", first, vec![(key("sh", &["a`f"]), 5)])).unwrap();
    sink.batch_end().unwrap();
    sink.event(&Event::Drop(Drop::new(DropKind::Aggregation, 0, 3))).unwrap();
    sink.event(&interval(1, "calls", last, vec![(key("cat", &["a`f"]), 1)])).unwrap();
    sink.batch_end().unwrap();
    let all = out.0.lock().unwrap();
    let profiles: Vec<_> = all.iter().flat_map(|bytes| Request::read(bytes).profiles()).collect();
    let samples: Vec<&str> = profiles.iter().flat_map(|p| &p.4).map(String::as_str).collect();
    let of = |program, n| format!("execname={program} | a!f profile.frame.type=native | [{n}]");
    assert_eq!(samples, [of("sh", 5), of("cat", 1)]);
    assert!(profiles[0].3.is_empty());
    assert_eq!(profiles[1].3, ["dtrace.lost=3 aggregation drops"]);
}

#[test]
fn attributes_have_names_of_their_own_and_texts_stay_texts() {
    let (out, mut sink) = started();
    let Event::Interval(mut all) = interval(1, "calls", Part::WHOLE, Vec::new()) else { panic!() };
    all.keys = ["k", "k", "pid", "ustack()"].map(Into::into).to_vec();
    let number = Value::Int(events::Int::new(7, 4, true));
    all.rows.push(Growth {
        key: vec![name("k=foo"), name("0012"), number, stack(Some(3), &["a`f"])],
        increment: value(AggFunc::Count, &[1]),
        total: value(AggFunc::Count, &[1]),
    });
    sink.event(&Event::Drop(Drop::new(DropKind::Aggregation, 0, 3))).unwrap();
    sink.event(&Event::Drop(Drop::new(DropKind::Principal, 0, 1))).unwrap();
    sink.event(&Event::Interval(all)).unwrap();
    sink.event(&interval(1, "others", Part::WHOLE, vec![(key("sh", &["a`f"]), 1)])).unwrap();
    sink.flush().unwrap();
    let profiles = Request::read(&out.0.lock().unwrap()[0]).profiles();
    assert!(profiles[0].4[0].starts_with("k=k=foo,k_2=0012,pid=7 |"), "{:?}", profiles[0].4);
    let lost: Vec<usize> = profiles.iter().map(|profile| profile.3.len()).collect();
    assert_eq!(lost, [1, 0], "what was lost is told once");
    assert!(profiles[0].3[0].contains("aggregation drops; "), "{:?}", profiles[0].3);
}

#[test]
fn an_aggregation_with_negative_values_is_named_once_and_others_are_written() {
    let (out, mut sink) = started();
    let rows = || vec![(key("sh", &["a`f"]), -5i64 as u64 - 1000)];
    let negative = |event: Event<'static>| match event {
        Event::Interval(mut all) => {
            all.column.function = AggFunc::Sum;
            for row in &mut all.rows {
                row.increment = value(AggFunc::Sum, &[-5i64 as u64]);
            }
            Event::Interval(all)
        }
        other => other,
    };
    let said = sink.event(&negative(interval(1, "change", Part::WHOLE, rows()))).unwrap_err().to_string();
    assert_eq!(
        said,
        "@change is left out: an interval has added -5, and values of profiles are not negative"
    );
    // Another one is named too.
    let said = sink.event(&negative(interval(1, "other", Part::WHOLE, rows()))).unwrap_err().to_string();
    assert!(said.starts_with("@other is left out"), "{said}");
    sink.event(&interval(1, "calls", Part::WHOLE, vec![(key("sh", &["a`f"]), 5)])).unwrap();
    sink.flush().unwrap();
    sink.event(&negative(interval(2, "change", Part::WHOLE, rows()))).unwrap();
    sink.flush().unwrap();
    // What it adds later is no number of it.
    sink.event(&interval(3, "change", Part::WHOLE, vec![(key("sh", &["a`f"]), 1)])).unwrap();
    sink.flush().unwrap();
    let all = out.0.lock().unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(Request::read(&all[0]).profiles().len(), 1);
}

#[test]
fn what_is_lost_after_the_last_profile_is_in_a_request_of_its_own_at_the_end() {
    let (out, mut sink) = started();
    sink.event(&interval(1, "calls", Part::WHOLE, vec![(key("sh", &["libc`read"]), 5)])).unwrap();
    sink.flush().unwrap();
    sink.event(&Event::Drop(Drop::new(DropKind::Aggregation, 0, 3))).unwrap();
    sink.flush().unwrap();
    assert_eq!(out.0.lock().unwrap().len(), 1, "the next one may have it");
    sink.event(&Event::End { status: 0 }).unwrap();
    sink.flush().unwrap();
    let all = out.0.lock().unwrap();
    let [_, last] = &all[..] else { panic!("{}", all.len()) };
    let lost = vec!["dtrace.lost=3 aggregation drops".to_string()];
    assert_eq!(Request::read(last).profiles(), [("lost".into(), 100 * SECOND, SECOND, lost, Vec::new())]);
    // Nothing was lost.
    let (out, mut sink) = started();
    sink.event(&Event::End { status: 0 }).unwrap();
    assert!(out.0.lock().unwrap().is_empty());
}
