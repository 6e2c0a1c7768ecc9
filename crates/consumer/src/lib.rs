//! Decodes records, keeps aggregations and formats output. This crate knows neither BPF nor providers.
//!
//! Records from the rings and slots from the aggregation tables become typed events and rows, and then text as DTrace
//! prints it. The decision that shapes the crate: *records are typed, and text is one renderer of them*. A consumer that
//! formats while it decodes is shorter, but cannot produce JSON or pass the data to a program.
//!
//! ```text
//!  RawRecord ──record──> Event ──┬──> Renderer (text) ──> bytes
//!                                │        ▲
//!        snapshot ──agg──────────┴─ rows ─┘
//!
//!  consumer    consumes batches, produces output and messages
//!  record      decodes bytes to typed events, with the table of enabled probes
//!  agg         stores and sorts aggregations
//!  text        DTrace's text; control characters of names and, at a terminal, of strings are escaped
//!  output      destination of text; system(), freopen(), ftruncate()
//!  message     faults and drops in DTrace's words
//!  symbolizer  interface to symbol lookup
//! ```

mod agg;
pub mod consumer;
mod message;
mod options;
mod output;
mod pad;
mod record;
mod symbolizer;
mod text;

pub use agg::rows::{Cell, Row};
pub use consumer::{Consumer, RawRecord, SlotSink, Source};
pub use message::{Aborted, DropReport, FaultReport, Message};
pub use options::{Encoding, Options};
pub use output::Output;
pub use record::{CallContext, EnabledProbe, Event, Flow, Int, Item, Layout, Probe, ProbeRow, Tables, Value};
pub use symbolizer::{KernelSymbols, NoSymbols, Process, Symbolizer, SystemSymbols};
pub use text::{Renderer, Text, View};
