//! Heat maps: what is in a file, and what a browser shows of it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod browser;
mod files;
mod read;

use std::borrow::Cow;

use events::{AggFunc, AggValue, Clock, Column, Event, Growth, Host, Interval, Part, Sink, Start, Value};
use flame::Unnamed;
use heat::Heat;

const SECOND: u64 = 1_000_000_000;

/// A sink after the start, and functions that feed it.
struct Fed(Heat);

impl Fed {
    fn new() -> Fed {
        let mut heat = Heat::new(Unnamed::Unknown);
        // 2026-01-02 03:04:05 UTC
        let clock = Clock { time: 5 * SECOND, wall: 1_767_323_045 * SECOND };
        heat.event(&Event::Start(Start::new("1", clock, Host::new("host", "7.0", "x86_64", 2)))).unwrap();
        Fed(heat)
    }

    /// The second of this number has these values: key, bucket, count.
    fn second(&mut self, n: u64, function: AggFunc, all: &[(&str, usize, i64)]) {
        let begin = (5 + n) * SECOND;
        let column = Column { name: "lat".into(), function };
        let mut rows: Vec<Growth<'_>> = Vec::new();
        for chunk in all.chunk_by(|a, b| a.0 == b.0) {
            let mut words = vec![0; function.value_size() as usize / 8];
            chunk.iter().for_each(|(_, bucket, count)| words[*bucket] = *count as u64);
            let words = Cow::Owned(words);
            let value = AggValue { function, words, normal: 1, cpus: Vec::new(), absent: false };
            let text = chunk[0].0.as_bytes().to_vec();
            let size = text.len() as u32 + 1;
            let key = vec![Value::Str { text: text.into(), size }];
            rows.push(Growth { key, increment: value.clone(), total: value });
        }
        let mut all = Interval::new(begin, begin + SECOND, column, rows);
        all.keys = vec!["execname".into()];
        all.part = Part::WHOLE;
        self.0.event(&Event::Interval(all)).unwrap();
    }
}
