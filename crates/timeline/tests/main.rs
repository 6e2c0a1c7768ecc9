//! Timelines: what is in the bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contents;
mod cost;
#[path = "../../events/tests/generate/mod.rs"]
mod generate;
mod names;
mod read;
mod threads;
mod trees;

use std::borrow::Cow;
use std::sync::Arc;

use events::{
    Action, Calls, Clock, Event, Field, Firing, Host, Int, Part, Probe, Record, Sink, Start, Value,
};
use read::Trace;
use timeline::Timeline;

/// The time of the start.
const START: u64 = 5_000_000_000;

/// A timeline after the start, and functions that feed it.
struct Fed(Timeline<Vec<u8>>);

fn probe(text: &str, calls: Calls) -> Arc<Probe> {
    let names: Vec<Arc<str>> = text.split(':').map(Into::into).collect();
    Arc::new(Probe::new(1, names.try_into().unwrap(), calls))
}

fn int(value: i64) -> Value<'static> {
    Value::Int(Int::new(value as u64, 8, true))
}

fn string(bytes: &[u8]) -> Value<'static> {
    Value::Str { text: Cow::Owned(bytes.to_vec()), size: 256 }
}

fn traced(name: &str, value: Value<'static>) -> Field<'static> {
    Field { name: Cow::Owned(name.into()), action: Action::Trace(value) }
}

impl Fed {
    fn new() -> Fed {
        Fed::of(Timeline::new(Vec::new()))
    }

    fn of(mut timeline: Timeline<Vec<u8>>) -> Fed {
        // 2026-01-02 03:04:05 UTC
        let clock = Clock { time: START, wall: 1_767_323_045_000_000_000 };
        let start = Start::new("1", clock, Host::new("host", "7.0", "x86_64", 2));
        timeline.event(&Event::Start(start)).unwrap();
        Fed(timeline)
    }

    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event).unwrap();
    }

    /// A firing on CPU 0, at a time after the start.
    fn fire(&mut self, time: u64, thread: (u32, u32), probe: &Arc<Probe>, fields: Vec<Field<'static>>) {
        let mut firing = Firing::new(START + time, 0, 1, Cow::Borrowed(probe));
        (firing.pid, firing.tid) = (Some(thread.0), Some(thread.1));
        self.event(&Event::Record(Record { firing, part: Part::WHOLE, fields }));
    }

    /// The end, and what was written; times are those after the start.
    fn end(&mut self) -> Trace {
        self.event(&Event::End { status: 0 });
        self.0.batch_end().unwrap();
        let mut trace = Trace::read(self.0.output());
        assert_eq!(trace.clocks[&3], START);
        trace.events.iter_mut().for_each(|event| event.time -= START);
        trace
    }
}
