//! Aggregations as metrics, for sessions that run for days, and how servers get them.
//!
//! ```text
//!  Event::Interval ──> model: series by aggregation and labels ─┬─ prometheus: what is there now
//!  drops, faults   ──>        counters of the exporter's own    └─ lines, otlp: what an interval has added
//!
//!  names       names of metrics and labels, values of labels
//!  model       the series
//!  prometheus  the text of Prometheus, and OpenMetrics
//!  lines       Graphite, StatsD, InfluxDB
//!  otlp        requests of OpenTelemetry
//!  request     what who scrapes is answered
//!  scrape      the process that answers (-x listen)
//!  delivery    lines and requests to servers (-x graphite, -x otlp)
//! ```
//!
//! The decision that shapes the crate: *a series is what its labels say, as the format writes
//! them*. Two keys that a format cannot tell apart are one series with the sum of both (of `min()`
//! the lesser one, and so on), because a reader that finds a series twice rejects everything. So
//! the model adds increments, which can be added, and takes the totals from none.
//!
//! **What a number means** to a reader is its kind. A counter never falls: `count()`, and `sum()`
//! of values whose type has no sign. Whatever may fall is a gauge. Of a distribution only counts
//! are known.
//!
//! **The size is bounded**: 10,000 series, 32 MB of memory and 16 MB of text, in which a
//! distribution has a line for each bucket. Rows beyond are counted, in a counter of the
//! exporter's own, and said once: an event that brings them is an error of an
//! [effect](events::SinkError::Effect), after which the sink goes on. What was lost before is
//! counted too.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! names
//! model
//! lines otlp prometheus request
//! delivery/link delivery/server delivery/timed scrape/server
//! delivery/tls
//! delivery/http
//! delivery scrape
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod delivery;
mod lines;
mod model;
mod names;
mod otlp;
mod prometheus;
pub mod request;
pub mod scrape;

pub use lines::{Lines, Protocol};
pub use otlp::{Otlp, rejected};
pub use prometheus::Prometheus;
