//! What an interval has added to an aggregation (`-x every`).
//!
//! Nothing is subtracted to know it: programs aggregate into tables that a snapshot empties, so
//! what the snapshots of an interval have *is* what was aggregated in it, the least and the
//! greatest value, the average and the deviation too. What `clear()` and `trunc()` remove from the
//! table that is printed is removed from nothing here.

use std::borrow::Cow;

use crate::aggregate::{AggValue, Column};
use crate::part::Part;
use crate::value::Value;

/// The rows of an aggregation to which an interval has added something. Each interval has an event
/// for each aggregation, also if there are no rows.
///
/// Many rows are delivered in several parts. Values are neither normalized nor divided by CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interval<'a> {
    /// When the interval began, by the clock of `timestamp`: the end of the one before.
    pub begin: u64,
    /// When it ended: what was aggregated until then is in it.
    pub end: u64,
    /// The same in nanoseconds since 1970 (UTC), read at that time; 0 where nobody has. The clock
    /// of the [start](crate::Start) does not say it: a machine sleeps, and its clock is set.
    pub wall: u64,
    /// Which part of the rows this is.
    pub part: Part,
    /// The expressions of the columns of the key; empty where they are not known.
    pub keys: Vec<Cow<'a, str>>,
    /// The aggregation.
    pub column: Column<'a>,
    /// No value that is added to it can be negative, by its type: a total of `sum()` never falls.
    pub unsigned: bool,
    /// The rows, in the order that the options select.
    pub rows: Vec<Growth<'a>>,
}

/// A key to which an interval has added something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth<'a> {
    /// The columns of the key.
    pub key: Vec<Value<'a>>,
    /// What was aggregated in the interval.
    pub increment: AggValue<'a>,
    /// What was aggregated since the start, with what was cleared and truncated.
    pub total: AggValue<'a>,
}

impl<'a> Interval<'a> {
    /// What the time from `begin` to `end` has added to an aggregation, in one part.
    pub fn new(begin: u64, end: u64, column: Column<'a>, rows: Vec<Growth<'a>>) -> Self {
        let (wall, keys) = (0, Vec::new());
        Interval { begin, end, wall, part: Part::WHOLE, keys, column, unsigned: false, rows }
    }

    /// Without a borrow.
    pub fn into_owned(self) -> Interval<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Interval {
            begin: self.begin,
            end: self.end,
            wall: self.wall,
            part: self.part,
            keys: self.keys.into_iter().map(owned).collect(),
            column: Column { name: owned(self.column.name), function: self.column.function },
            unsigned: self.unsigned,
            rows: self.rows.into_iter().map(Growth::into_owned).collect(),
        }
    }
}

impl Growth<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Growth<'static> {
        Growth {
            key: self.key.into_iter().map(Value::into_owned).collect(),
            increment: self.increment.into_owned(),
            total: self.total.into_owned(),
        }
    }
}
