//! OpenTelemetry: the requests of OTLP over HTTP, in protobuf.
//!
//! A request has what the intervals since the last one have added to: counters and distributions
//! since the start (cumulative), gauges as they are. So the next point of a series, or a repetition
//! at the end, makes up for a request that was lost. Buckets have explicit bounds, which OTLP
//! includes as Prometheus does, so a bound is the greatest integer of its bucket.
//!
//! ```text
//!  ExportMetricsServiceRequest   1 resource_metrics
//!  ResourceMetrics               1 resource (1 attributes), 2 scope_metrics
//!  ScopeMetrics                  1 scope (1 name), 2 metrics
//!  Metric                        1 name, 2 description, 5 gauge, 7 sum, 9 histogram
//!  Gauge, Sum, Histogram         1 data_points, 2 aggregation_temporality, 3 is_monotonic
//!  NumberDataPoint               2 start, 3 time, 6 as_int, 7 attributes
//!  HistogramDataPoint            2 start, 3 time, 4 count, 6 bucket_counts, 7 explicit_bounds, 9 attributes
//!  KeyValue                      1 key, 2 value (1 string_value)
//!
//!  ExportMetricsServiceResponse  1 partial_success (1 rejected_data_points, 2 error_message)
//! ```

use std::io::{self, Write};

use diagnostics::control;
use events::{Event, Sink, SinkError};
use protobuf::{Message, Value, fields};

use crate::model::{Family, Kind, Model, Series, cumulative};

/// Writes a request with each write.
#[derive(Debug)]
pub struct Otlp<W> {
    model: Model,
    out: W,
}

const CUMULATIVE: u64 = 2;
/// The most characters that are shown of a server's message.
const LONGEST_MESSAGE: usize = 300;

fn attribute(out: &mut Message, field: u64, name: &str, value: &str) {
    let (mut all, mut of) = (Message::default(), Message::default());
    of.bytes(1, value.as_bytes());
    all.bytes(1, name.as_bytes());
    all.message(2, &of);
    out.message(field, &all);
}

/// The attributes of a point.
fn labels(kind: Kind, names: &[String], values: &[String]) -> Vec<u8> {
    let field = if kind == Kind::Histogram { 9 } else { 7 };
    let mut out = Message::default();
    names.iter().zip(values).for_each(|(name, value)| attribute(&mut out, field, name, value));
    out.encoded().to_vec()
}

/// What a server says in its answer to a request that it has not taken all of: how many points it
/// has rejected, and why.
pub fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let part = |bytes, field| fields(bytes).find_map(|(n, value)| (n == field).then_some(value));
    let Some(Value::Bytes(partial)) = part(answer, 1) else { return None };
    // The number has a sign.
    let Some(Value::Number(points @ 1..0x8000_0000_0000_0000)) = part(partial, 1) else { return None };
    let why = match part(partial, 2) {
        Some(Value::Bytes(text)) => control::name(text).chars().take(LONGEST_MESSAGE).collect(),
        _ => String::new(),
    };
    Some((points, why))
}

impl<W: Write + Send> Otlp<W> {
    /// Writes requests, each with one write and a flush.
    pub fn new(out: W) -> Otlp<W> {
        Otlp { model: Model::new(labels), out }
    }

    /// A request with what has changed, or with everything.
    fn request(&self, everything: bool) -> Message {
        let Model { families, host, .. } = &self.model;
        let (mut resource, mut scope, mut metrics) =
            (Message::default(), Message::default(), Message::default());
        attribute(&mut resource, 1, "service.name", "dtrace");
        attribute(&mut resource, 1, "host.name", host);
        scope.bytes(1, b"dtrace");
        metrics.message(1, &scope);
        let has_some = |family: &&Family| family.has_grown() || everything && !family.series.is_empty();
        for family in families.iter().filter(has_some) {
            metrics.message(2, &self.metric(family, everything));
        }
        let (mut all, mut out) = (Message::default(), Message::default());
        all.message(1, &resource);
        all.message(2, &metrics);
        out.message(1, &all);
        out
    }

    fn metric(&self, family: &Family, everything: bool) -> Message {
        let field = match family.kind {
            Kind::Gauge => 5,
            Kind::Counter => 7,
            Kind::Histogram => 9,
        };
        let bounds = family.ends();
        let (mut data, mut out) = (Message::default(), Message::default());
        let all = family.series.iter().filter(|(_, series)| everything || !series.increment.is_empty());
        for (labels, series) in all {
            data.message(1, &self.point(family, labels, series, &bounds));
        }
        if family.kind != Kind::Gauge {
            data.number(2, CUMULATIVE);
        }
        data.number(3, u64::from(family.kind == Kind::Counter));
        out.bytes(1, format!("dtrace.{}", family.name).as_bytes());
        out.bytes(2, family.title.as_bytes());
        out.message(field, &data);
        out
    }

    fn point(&self, family: &Family, labels: &[u8], series: &Series, bounds: &[(usize, i64)]) -> Message {
        let mut out = Message::default();
        let (start, time) = self.model.times();
        out.fixed(2, start);
        out.fixed(3, time);
        match family.kind {
            Kind::Histogram => {
                let counts = cumulative(&series.total, bounds);
                out.fixed(4, counts.last().copied().unwrap_or(0));
                let before = std::iter::once(0).chain(counts.iter().copied());
                out.packed_fixed(6, counts.iter().zip(before).map(|(count, before)| count - before));
                out.packed_fixed(7, bounds.iter().map(|(_, end)| (*end as f64).to_bits()));
            }
            // Its integers have a sign: a sum beyond them is a floating-point number.
            _ => {
                let number = family.number(&series.total);
                match i64::try_from(number) {
                    Ok(n) => out.fixed(6, n as u64),
                    Err(_) => out.fixed(4, (number as f64).to_bits()),
                }
            }
        }
        out.encode(labels);
        out
    }
}

impl<W: Write + Send> Sink for Otlp<W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.model.event(event);
        self.model.complete()
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        // A row may be of an aggregation that is refused.
        if std::mem::take(&mut self.model.grown) && self.model.families.iter().any(Family::has_grown) {
            let request = self.request(false);
            self.model.settle_all();
            self.out.write_all(request.encoded())?;
        }
        self.out.flush()
    }

    fn repeat(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.write_all(self.request(true).encoded())?;
        self.out.flush()
    }
}
