//! Metrics: what is in them, and what foreign parsers read.
#![allow(clippy::unwrap_used, clippy::panic)]

mod foreign;
mod lines;
mod memory;
mod otlp;
mod prometheus;

use std::borrow::Cow;

use events::{
    AggFunc, AggValue, Clock, Column, Drop, DropKind, Event, Growth, Host, Int, Interval, Sink, SinkError,
    Stack, Start, Value,
};
use testing::names::NASTY;

const SECOND: u64 = 1_000_000_000;

fn start<S: Sink>(mut sink: S) -> Fed<S> {
    // 2026-01-02 03:04:05 UTC
    let clock = Clock { time: 5 * SECOND, wall: 1_767_323_045 * SECOND };
    let host = Host::new("my-host.example", "7.0", "x86_64", 2);
    sink.event(&Event::Start(Start::new("1", clock, host))).unwrap();
    Fed { sink, name: "lat", keys: &["execname"], unsigned: true, wall: 0, said: Vec::new() }
}

/// A sink after the start, and what it is fed with.
struct Fed<S> {
    sink: S,
    name: &'static str,
    keys: &'static [&'static str],
    unsigned: bool,
    /// When intervals end, in nanoseconds since 1970.
    wall: u64,
    said: Vec<String>,
}

fn string(bytes: &[u8]) -> Value<'static> {
    Value::Str { text: bytes.to_vec().into(), size: bytes.len() as u32 + 1 }
}

impl<S: Sink> Fed<S> {
    /// The second of this number adds these words to keys.
    fn second(&mut self, n: u64, function: AggFunc, all: &[(Vec<Value<'static>>, Vec<u64>)]) {
        let begin = (5 + n) * SECOND;
        let value = |words: &Vec<u64>| {
            let words: Cow<'_, [u64]> = words.clone().into();
            AggValue { function, words, normal: 1, cpus: Vec::new(), absent: false }
        };
        let growth = |(key, words): &(Vec<Value<'static>>, Vec<u64>)| Growth {
            key: key.clone(),
            increment: value(words),
            total: value(words),
        };
        let column = Column { name: self.name.into(), function };
        let mut event = Interval::new(begin, begin + SECOND, column, all.iter().map(growth).collect());
        event.keys = self.keys.iter().map(|key| (*key).into()).collect();
        (event.unsigned, event.wall) = (self.unsigned, self.wall);
        if let Err(SinkError::Effect(e)) = self.sink.event(&Event::Interval(event)) {
            self.said.push(e.to_string());
        }
    }

    /// The same for keys of a string.
    fn named(&mut self, n: u64, function: AggFunc, all: &[(&[u8], Vec<u64>)]) {
        let all: Vec<_> = all.iter().map(|(key, words)| (vec![string(key)], words.clone())).collect();
        self.second(n, function, &all);
    }
}

/// The words of a distribution with these values.
fn spread(function: AggFunc, all: &[(usize, i64)]) -> Vec<u64> {
    let mut words = vec![0; function.value_size() as usize / 8];
    all.iter().for_each(|(bucket, count)| words[*bucket] = *count as u64);
    words
}
