//! The wall clock of a recording: of a machine that boots it is often wrong, and is set later.
//!
//! A session adds one number to its clock to get the time since 1970, from its beginning to its
//! end. Its recording has by how much the clock was set since, so times since 1970 are corrected
//! when they are printed: the beginning of the session, from which formats derive the others,
//! packets, and each value whose expression is `walltimestamp`. What a program computes of it, or
//! keeps in a variable, is as it was recorded.

use dtrace::events::{Action, Event, Field, Start, Value};

use super::head::{self, Head};

/// The expression of a value that is a time since 1970.
const WALL: &str = "walltimestamp";

/// What is to be added to times since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Correction {
    nanoseconds: i64,
    /// The number that the session adds.
    began: i64,
}

impl Correction {
    /// For a session that began so, whose recording has this head.
    pub(crate) fn of(start: &Start<'_>, known: Head) -> Correction {
        Correction { nanoseconds: known.set, began: ahead(start.clock.wall, start.clock.time) }
    }

    /// Corrects the times of an event.
    pub(crate) fn apply(self, event: &mut Event<'_>) {
        if self.nanoseconds == 0 {
            return;
        }
        match event {
            Event::Start(start) => self.add(&mut start.clock.wall),
            // It was read when the interval ended: before the clock was set, or behind that.
            Event::Interval(all) if ahead(all.wall, all.end).abs_diff(self.began) < head::SET => {
                self.add(&mut all.wall);
            }
            Event::Record(record) => record.fields.iter_mut().for_each(|field| self.field(field)),
            _ => {}
        }
    }

    fn field(self, field: &mut Field<'_>) {
        match &mut field.action {
            Action::Trace(value) if field.name == WALL => self.value(value),
            Action::Printf { args, .. } => {
                let walls = args.iter_mut().filter(|arg| arg.name == WALL);
                walls.for_each(|arg| self.value(&mut arg.value));
            }
            Action::Packet(packet) => self.add(&mut packet.time),
            _ => {}
        }
    }

    fn value(self, value: &mut Value<'_>) {
        if let Value::Int(int) = value {
            self.add(&mut int.bits);
        }
    }

    fn add(self, wall: &mut u64) {
        *wall = wall.wrapping_add_signed(self.nanoseconds);
    }
}

/// How far a wall clock is ahead of the clock of `timestamp`.
fn ahead(wall: u64, time: u64) -> i64 {
    wall.wrapping_sub(time) as i64
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use dtrace::events::{
        AggFunc, Argument, Calls, Clock, Column, Firing, Format, Host, Int, Interval, Part, Probe, Record,
    };

    use super::*;

    const NEW_YEAR: u64 = 1_767_225_600_000_000_000;

    fn int(bits: u64) -> Value<'static> {
        Value::Int(Int::new(bits, 8, true))
    }

    fn field(name: &'static str, action: Action<'static>) -> Field<'static> {
        Field { name: name.into(), action }
    }

    #[test]
    fn times_since_1970_are_by_the_clock_as_it_was_last() {
        // The machine believed that it was 1970.
        let start = Start::new("1", Clock { time: 5, wall: 105 }, Host::new("h", "r", "m", 1));
        let known = Head { set: NEW_YEAR as i64 - 100 };
        let correction = Correction::of(&start, known);
        let mut begun = Event::Start(start.clone());
        correction.apply(&mut begun);
        assert!(matches!(&begun, Event::Start(s) if s.clock.wall == NEW_YEAR + 5 && s.clock.time == 5));
        let names = ["dtrace", "", "", "BEGIN"].map(Arc::from);
        let probe = Cow::Owned(Arc::new(Probe::new(1, names, Calls::None)));
        let argument = |name: &'static str| Argument { name: name.into(), value: int(107) };
        let args = vec![argument("walltimestamp"), argument("walltimestamp - 1"), argument("timestamp")];
        let format = Cow::Owned(Format::parse("%Y %d %d").unwrap());
        let fields = vec![
            field("walltimestamp", Action::Trace(int(107))),
            field("timestamp", Action::Trace(int(7))),
            field("", Action::Printf { format, args }),
        ];
        let mut event =
            Event::Record(Record { firing: Firing::new(7, 0, 1, probe), part: Part::WHOLE, fields });
        let before = event.clone();
        correction.apply(&mut event);
        let Event::Record(record) = &event else { panic!("{event:?}") };
        assert_eq!(record.fields[0].action, Action::Trace(int(NEW_YEAR + 7)));
        assert_eq!(record.fields[1].action, Action::Trace(int(7)));
        let Action::Printf { args, .. } = &record.fields[2].action else { panic!("{event:?}") };
        assert_eq!(
            args.iter().map(|arg| arg.value.clone()).collect::<Vec<_>>(),
            [int(NEW_YEAR + 7), int(107), int(107)]
        );
        // An interval that ended before the clock was set, and one that ended behind that.
        for (read, wall) in [(109, NEW_YEAR + 9), (NEW_YEAR + 9, NEW_YEAR + 9)] {
            let column = Column { name: "x".into(), function: AggFunc::Count };
            let mut all = Interval::new(5, 9, column, Vec::new());
            all.wall = read;
            let mut event = Event::Interval(all);
            correction.apply(&mut event);
            assert!(matches!(&event, Event::Interval(all) if all.wall == wall), "{event:?}");
        }
        // A clock that nobody has set.
        let mut same = before.clone();
        Correction::of(&start, Head::default()).apply(&mut same);
        assert_eq!(same, before);
    }
}
