//! What intervals have added to aggregations, as counters: a track for each key.
//!
//! A counter has its value until the next one. So that of an interval is written at its begin, and
//! what was not counted in an interval is 0 in it. A minimum, maximum, average or deviation of
//! nothing is none, which a counter cannot show: it keeps its value.

use std::collections::HashMap;

use events::{AggFunc, Interval, Value};
use flame::escape;
use protobuf::Message;

use crate::field::track;
use crate::packets::{Happening, Kind, Packets};
use crate::stacks;

/// The most counters. Further keys are counted.
const MOST: usize = 1 << 12;

#[derive(Debug)]
struct Counter {
    group: u64,
    track: u64,
    value: i64,
    /// The end of the last interval that had it.
    seen: u64,
    /// It is 0 where nothing was aggregated.
    adds: bool,
}

/// The counters of a session.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The tracks of aggregations.
    groups: HashMap<String, u64>,
    numbers: HashMap<(u64, String), usize>,
    all: Vec<Counter>,
    /// The end of the last interval.
    end: u64,
    /// Values of keys that have no counter.
    pub(crate) lost: u64,
}

impl Counters {
    pub(crate) fn interval(&mut self, all: &Interval<'_>, packets: &mut Packets) {
        let name = escape::name(all.column.title().as_bytes());
        let group = match self.groups.get(&name) {
            Some(group) => *group,
            None if self.groups.len() >= MOST => {
                self.lost += all.rows.len() as u64;
                return;
            }
            None => {
                let group = packets.named_track(&name);
                self.groups.insert(name.clone(), group);
                group
            }
        };
        self.end = self.end.max(all.end);
        for row in &all.rows {
            let key: Vec<String> = row.key.iter().map(text).collect();
            let key = (group, escape::cut(&key.join(", "), 1000));
            let at = match self.numbers.get(&key) {
                Some(at) => *at,
                None if self.all.len() >= MOST => {
                    self.lost += 1;
                    continue;
                }
                None => {
                    let track = packets.new_track();
                    packets.describe(track, |out| {
                        let name = if key.1.is_empty() { &name } else { &key.1 };
                        out.bytes(track::NAME, name.as_bytes());
                        out.number(track::PARENT, group);
                        out.message(track::COUNTER, &Message::default());
                    });
                    let adds = !matches!(
                        all.column.function,
                        AggFunc::Min | AggFunc::Max | AggFunc::Avg | AggFunc::Stddev
                    );
                    self.numbers.insert(key, self.all.len());
                    self.all.push(Counter { group, track, value: 0, seen: 0, adds });
                    self.all.len() - 1
                }
            };
            let Some(counter) = self.all.get_mut(at) else { continue };
            let mut value = row.increment.quantity();
            // Another key that looks the same, as functions of two processes do.
            if std::mem::replace(&mut counter.seen, all.end) == all.end {
                value = match all.column.function {
                    AggFunc::Min => value.min(counter.value),
                    AggFunc::Max => value.max(counter.value),
                    _ if counter.adds => value.saturating_add(counter.value),
                    _ => value,
                };
            }
            counter.set(value, all.begin, packets);
        }
        if all.part.last {
            let of_group = self.all.iter_mut().filter(|counter| counter.group == group);
            let unseen = of_group.filter(|counter| counter.seen != all.end);
            unseen.for_each(|counter| counter.nothing(all.begin, packets));
        }
    }

    /// No interval follows.
    pub(crate) fn end(&mut self, packets: &mut Packets) {
        let end = self.end;
        self.all.iter_mut().for_each(|counter| counter.nothing(end, packets));
    }
}

impl Counter {
    fn set(&mut self, value: i64, time: u64, packets: &mut Packets) {
        self.value = value;
        let happening = Happening { value, ..Happening::new(Kind::Counter, self.track, None) };
        packets.aside(time, happening);
    }

    fn nothing(&mut self, time: u64, packets: &mut Packets) {
        if self.adds && self.value != 0 {
            self.set(0, time, packets);
        }
    }
}

/// The text of a column of a key.
fn text(value: &Value<'_>) -> String {
    match value {
        Value::Stack(stack) => stacks::text(stack).replace('\n', ";"),
        other => escape::value(other),
    }
}
