//! Buffers to records to text; aggregations; printf. Knows neither BPF nor providers.
//!
//! What the kernel side leaves in rings and tables becomes typed events and rows here, and only then text, exactly as
//! DTrace prints. The decision that shapes the crate: *records are typed, text is one renderer of them*. A consumer that
//! formatted while it decoded would be shorter, and could never give the same data as JSON or to a program.
//!
//! ```text
//!  RawRecord ──record──> Event ──┬──> Renderer (text) ──> bytes
//!                                │        ▲
//!        snapshot ──agg──────────┴─ rows ─┘
//!
//!  consumer    the loop: batches in, output and messages out
//!  record      bytes to typed events, by the table of enabled probes
//!  agg         the consumer's own table of aggregations, sorting
//!  text        DTrace's text; control characters of names and, at a terminal, of strings are escaped
//!  output      where text goes: system(), freopen(), ftruncate()
//!  message     faults and drops in DTrace's words
//!  symbolizer  what is asked of whoever knows symbols
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
pub use record::{EnabledProbe, Event, Flow, Int, Item, Layout, Probe, ProbeRow, Strand, Tables, Value};
pub use symbolizer::{KernelSymbols, NoSymbols, Process, Symbolizer, SystemSymbols};
pub use text::{Renderer, Text, View};
