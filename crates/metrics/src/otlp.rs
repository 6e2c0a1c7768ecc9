//! OpenTelemetry: the requests of OTLP over HTTP, in protobuf.
//!
//! A request has what the intervals since the last one have added to: counters and distributions
//! since the start (cumulative), gauges as they are. Buckets have explicit bounds, which OTLP
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
//! ```

use std::io::{self, Write};

use events::{Event, Sink, SinkError};

use crate::model::{Family, Kind, Model, Series, cumulative};

/// Writes a request with each write.
#[derive(Debug)]
pub struct Otlp<W> {
    model: Model,
    /// Something was added since the last request.
    changed: bool,
    out: W,
}

const CUMULATIVE: u64 = 2;
/// The fields of attributes of a number and of a distribution.
const OF_NUMBER: u8 = 7;
const OF_HISTOGRAM: u8 = 9;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    varint(out, value);
}

fn fixed(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn message(out: &mut Vec<u8>, field: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    bytes(out, field, &inner);
}

fn attribute(out: &mut Vec<u8>, field: u8, name: &str, value: &str) {
    message(out, field, |out| {
        bytes(out, 1, name.as_bytes());
        message(out, 2, |out| bytes(out, 1, value.as_bytes()));
    });
}

/// The attributes of a number, which those of a distribution are made of by [`attributes`].
fn labels(names: &[String], values: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    names.iter().zip(values).for_each(|(name, value)| attribute(&mut out, OF_NUMBER, name, value));
    out
}

/// Appends the attributes of a series as another field.
fn attributes(out: &mut Vec<u8>, field: u8, mut labels: &[u8]) {
    while let Some((_, rest)) = labels.split_first() {
        let (mut length, mut shift, mut used) = (0usize, 0, 0);
        for byte in rest.iter().take(5) {
            length |= usize::from(byte & 0x7f) << shift;
            (shift, used) = (shift + 7, used + 1);
            if *byte < 0x80 {
                break;
            }
        }
        let Some((one, others)) = rest.get(used..).and_then(|rest| rest.split_at_checked(length)) else {
            return;
        };
        bytes(out, field, one);
        labels = others;
    }
}

impl<W: Write + Send> Otlp<W> {
    /// Writes requests, each with one write and a flush.
    pub fn new(out: W) -> Otlp<W> {
        Otlp { model: Model::new(labels), changed: false, out }
    }

    /// A request with what has changed.
    fn request(&self) -> Vec<u8> {
        let Model { families, host, .. } = &self.model;
        let is_new = |family: &&Family| family.series.values().any(|series| !series.increment.is_empty());
        let mut out = Vec::new();
        message(&mut out, 1, |out| {
            message(out, 1, |out| {
                attribute(out, 1, "service.name", "dtrace");
                attribute(out, 1, "host.name", host);
            });
            message(out, 2, |out| {
                message(out, 1, |out| bytes(out, 1, b"dtrace"));
                for family in families.iter().filter(is_new) {
                    message(out, 2, |out| self.metric(out, family));
                }
            });
        });
        out
    }

    fn metric(&self, out: &mut Vec<u8>, family: &Family) {
        bytes(out, 1, format!("dtrace.{}", family.name).as_bytes());
        bytes(out, 2, family.title.as_bytes());
        let field = match family.kind {
            Kind::Gauge => 5,
            Kind::Counter => 7,
            Kind::Histogram => 9,
        };
        let bounds: Vec<(usize, i64)> = family
            .used(family.ranges())
            .into_iter()
            .filter_map(|(n, (_, greatest))| Some((n, greatest?)))
            .collect();
        message(out, field, |out| {
            for (labels, series) in family.series.iter().filter(|(_, series)| !series.increment.is_empty()) {
                message(out, 1, |out| self.point(out, family, labels, series, &bounds));
            }
            if family.kind != Kind::Gauge {
                number(out, 2, CUMULATIVE);
            }
            if family.kind == Kind::Counter {
                number(out, 3, 1);
            }
        });
    }

    fn point(
        &self,
        out: &mut Vec<u8>,
        family: &Family,
        labels: &[u8],
        series: &Series,
        bounds: &[(usize, i64)],
    ) {
        fixed(out, 2, self.model.start());
        fixed(out, 3, self.model.time);
        if family.kind != Kind::Histogram {
            // Its integers have a sign.
            let value = family.number(&series.total).min(i128::from(i64::MAX));
            fixed(out, 6, value as i64 as u64);
            out.extend_from_slice(labels);
            return;
        }
        let counts = cumulative(&series.total, bounds);
        fixed(out, 4, counts.last().copied().unwrap_or(0));
        let mut before = 0;
        let mut packed = Vec::new();
        for count in counts {
            packed.extend_from_slice(&(count - before).to_le_bytes());
            before = count;
        }
        bytes(out, 6, &packed);
        let packed: Vec<u8> = bounds.iter().flat_map(|(_, end)| (*end as f64).to_le_bytes()).collect();
        bytes(out, 7, &packed);
        attributes(out, OF_HISTOGRAM, labels);
    }
}

impl<W: Write + Send> Sink for Otlp<W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.changed |= self.model.event(event).is_some();
        self.model.complete()
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.changed) {
            let request = self.request();
            self.model.settle_all();
            self.out.write_all(&request)?;
        }
        self.out.flush()
    }
}
