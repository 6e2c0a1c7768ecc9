//! Decodes records, keeps aggregations and delivers events; DTrace's text. This crate knows neither
//! BPF nor providers.
//!
//! Records from the rings and slots from the aggregation tables become [typed events](events), and
//! a sink receives them. DTrace's text is one sink, JSON is another, and nothing is printed by
//! another way. The decision that shapes the crate: *the text sees only events*. It cannot look up
//! a symbol or a string of the session, so whatever it prints is in the events, and any other
//! program that reads them has the same information.
//!
//! ```text
//!  RawRecord ──record──> Raw ──names──┐
//!                                     ├──> Event ──> Sink (Text, events::Encoder, …)
//!        snapshot ──agg──> rows ──────┘
//!
//!  consumer    the interface: batches in, events out
//!  delivery    records to events; actions in the order of the records
//!  faults      which errors of clauses are events
//!  state       aggregations, stacks, symbols, options
//!  intervals   what intervals have added to aggregations
//!  merged      the aggregations of a session that cannot go on
//!  record      decodes bytes to values, with the table of enabled probes
//!  names       gives values their symbols
//!  agg         stores and sorts aggregations
//!  outlet      the consumer's side of a sink
//!  text        DTrace's text; control characters of names and, at a terminal, of strings are escaped
//!  json        one JSON object a line for each event
//!  output      destination of text; system(), freopen(), ftruncate()
//!  capture     files of freopen(): text or packets
//!  pcapng      the format of capture files
//!  message     events that are messages on standard error
//!  suppressions  which messages about suppressed firings there are
//!  symbolizer  interface to symbol lookup
//! ```
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! arch/x86_64
//! agg agg/value arch json/write message options pad pcapng raw symbolizer text/time
//! agg/store capture json/value names outlet source suppressions text/histogram text/net text/view
//! output stacks text/datum text/pretty
//! record text/csv text/packed text/printf text/table
//! agg/rows faults text
//! intervals json
//! state
//! delivery printer
//! merged
//! consumer
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod agg;
mod arch;
mod capture;
pub mod consumer;
mod delivery;
mod faults;
mod intervals;
mod json;
mod merged;
mod message;
mod names;
mod options;
mod outlet;
mod output;
mod pad;
mod pcapng;
mod printer;
mod raw;
mod record;
mod source;
mod stacks;
mod state;
mod suppressions;
mod symbolizer;
mod text;

pub use consumer::Consumer;
pub use json::Json;
pub use merged::Merged;
pub use message::{Aborted, Message, MessageKind};
pub use options::{Encoding, Options};
pub use output::{Effects, Output};
pub use printer::{AnyOutput, Printer};
pub use record::{EnabledProbe, Layout, ProbeRow, Tables};
pub use source::{RawRecord, SlotSink, Source};
pub use state::Advice;
pub use symbolizer::{Codes, KernelSymbols, NoSymbols, Process, Symbolizer, SystemSymbols};
pub use text::{Text, render, render_action, render_print};
