//! The last events of a session in the memory of a process that dies, and finding them in its core
//! file.
//!
//! Memory that the kernel shares with a tracer (the maps of BPF, a buffer of perf) is in no core
//! file. So what a session has recorded is written to ordinary anonymous memory of the process, by
//! the tracer that holds it, while a signal is about to end it:
//!
//! ```text
//!  session ── events ──► Log ── image ──► memory of the process ── the kernel's dump ──► core file ── find ──► events
//!                        newest bytes      head, events               any segment                  any sink
//! ```
//!
//! The decision that shapes the crate: *the memory holds encoded events* ([`events::Encoder`]), and
//! neither records of a ring nor text. An event means the same without the session, so the core
//! file needs no descriptions of records, no symbols and no kernel; and what is printed from it can
//! be text, JSON or tables, as in the session. (Records of a ring would need all tables of the
//! session beside them. Text would be twice as long, and could be nothing else.)
//!
//! A core file is hostile input, as are the events in it: [`find`] reads a bounded number of bytes
//! of any file, believes no number that it has not compared with the file, and never fails by a
//! panic.
//!
//! This crate reads and makes bytes. It knows neither processes nor sessions.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! core head
//! find log
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod core;
mod find;
mod head;
mod log;

pub use core::{CoreError, ReadAt};
pub use find::{CoreEvents, find};
pub use head::{HEAD, Head, blank};
pub use log::{Log, Totals};
