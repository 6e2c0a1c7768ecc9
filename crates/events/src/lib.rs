//! The results of a session as typed, self-contained events, and their binary encoding.
//!
//! The consumer feeds a [`Sink`] of [`Event`]s. Nothing that a session reports takes another way:
//! records, aggregations, drops, faults, messages, redirections of the output, the end. DTrace's
//! text is one sink (`consumer::Text`), the [`Encoder`] is another, and a program that uses the
//! library writes its own.
//!
//! The decision that shapes the crate: *an event has no number that only the session understands*.
//! A string is its text and not an interned id, an address has its symbol, a stack is frames, a
//! probe has its four names and what its provider says of its calls. So an event that was written
//! to a file, or sent to another machine, means the same without the session; text that is rendered
//! from decoded events is the text that the session would have printed. (Names of hosts and ports
//! are the exception: only the session asks the resolver for them. Enabled-probe ids are in events
//! as information.)
//!
//! Events borrow: a record that is delivered 3 million times a second allocates nothing. What is
//! to be kept is made independent by `into_owned`.
//!
//! ```text
//!              ┌─ event ──────► Sink: text
//!  consumer ───┤                Sink: Encoder ──► bytes ──► Reader ──► Event ──► any Sink
//!              └─ batch_end,    Sink: a program's own
//!                 flush
//!
//!  event      what happened: record, aggregation, fault, drop, effect, notice, start, end
//!  value      typed values: integers, strings, bytes, symbols, stacks
//!  interval   what an interval has added to aggregations
//!  part       of what is delivered in more than one event
//!  aggregate  the value of an aggregation: printed number, buckets
//!  sink       the receiver of events
//!  wire       the byte layout, and its primitives
//!  encode     events to bytes
//!  decode     bytes to events
//!  socket     events for whoever connects
//! ```
//!
//! A stream of a session is: perhaps an [`Event::Report`] on the programs; one [`Event::Start`];
//! then anything; [`Event::Stop`], after which the aggregations that were not printed follow, and
//! messages about detaching; one [`Event::End`]. All drops and faults precede the stop. A stream
//! without an end was cut short.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! aggregate part value wire
//! interval
//! event
//! decode sink socket/place
//! encode
//! socket
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

// The tests within the crate use the generator of those outside of it.
#[cfg(test)]
extern crate self as events;
#[cfg(test)]
#[path = "../tests/generate/mod.rs"]
mod generate;

mod aggregate;
mod decode;
mod encode;
mod event;
mod interval;
mod part;
mod sink;
pub mod socket;
mod value;
mod wire;

pub use aggregate::{AggValue, Bucket, Column, buckets, is_histogram, normalized, scalar};
pub use decode::{ReadError, Reader};
pub use encode::Encoder;
pub use event::{
    Action, Aggregation, Argument, Calls, Change, Clock, Drop, Effect, Event, Fault, Field, Firing, Flow,
    Host, Notice, NoticeKind, Occasion, Probe, Record, Row, Setting, SettingValue, Start, Suppressed,
};
pub use interval::{Growth, Interval};
pub use part::Part;
pub use sink::{Needs, Sink, SinkError, ThreadName};
pub use socket::Socket;
pub use value::{Format, Int, Packet, Stack, Symbol, SymbolName, Value};
pub use wire::{FRAME_MAX, MAGIC, VERSION};

pub use plane::control::{DropKind, DropWords};
pub use plane::desc::{AddrForm, AggFunc, FaultKind};
pub use plane::format::{Amount, Conversion, ConversionArg, FormatError, Piece};
pub use plane::shape::{Form, Member, Shape};
