//! Formats of lines: Graphite, StatsD, InfluxDB.
//!
//! At the end of an interval there is a line for each key that has grown in it, and for each bucket
//! of a distribution that has. Counters and distributions have what was aggregated since the start
//! (the next line of a key makes up for a lost one), of StatsD, which adds, what the interval has
//! added. Gauges (`min()`, `max()`, `avg()`, `stddev()`) have the interval's own value: that of all
//! days says nothing. A `sum()` that may fall is what it is since the start.
//!
//! Graphite keeps one number of a second. Of several intervals that end in one, each line has what
//! the second has added until then, so the last one, which stays, is that of the second.

use std::fmt::Write as _;
use std::io::{self, Write};

use events::{AggFunc, Event, Sink, SinkError};

use crate::model::{Family, Kind, Labels, Model, Series};

/// A format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `dtrace.HOST.NAME.KEY… VALUE SECONDS`
    Graphite,
    /// `dtrace.HOST.NAME.KEY…:VALUE|c`
    StatsD,
    /// `dtrace_NAME,host=HOST,LABEL=KEY value=VALUEi NANOSECONDS`
    Influx,
}

/// What an interval has added, as lines.
#[derive(Debug)]
pub struct Lines<W> {
    model: Model,
    /// The name of the host, as labels are written.
    host: String,
    protocol: Protocol,
    /// In which the last interval has ended, since 1970.
    second: u64,
    out: W,
}

/// What one line says.
struct Line<'a> {
    host: &'a str,
    family: &'a Family,
    labels: &'a str,
    /// Of a distribution.
    bucket: Option<&'a str>,
    value: i128,
    time: u64,
}

/// The columns of a key as parts of a path. What is no letter, digit, `-` or `_` is `_`: all else
/// means something to some server.
fn path(_: Kind, _: &[String], values: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        out.push(b'.');
        let part = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c as u8 } else { b'_' };
        out.extend(value.chars().map(part));
        if value.is_empty() {
            out.push(b'_');
        }
    }
    out
}

/// Tags of InfluxDB. A backslash would escape what follows, and cannot be escaped at the end.
fn tags(_: Kind, names: &[String], values: &[String]) -> Vec<u8> {
    let mut out = String::new();
    for (name, value) in names.iter().zip(values) {
        out.push(',');
        out.push_str(name);
        out.push('=');
        for c in value.chars() {
            out.push_str(if matches!(c, ',' | '=' | ' ') { "\\" } else { "" });
            out.push(if c == '\\' || c.is_control() { '_' } else { c });
        }
        out.push_str(if value.is_empty() { "_" } else { "" });
    }
    out.into_bytes()
}

impl Protocol {
    fn labels(self) -> Labels {
        match self {
            Protocol::Graphite | Protocol::StatsD => path,
            Protocol::Influx => tags,
        }
    }

    /// The name of the host, before the labels of a series.
    fn host(self, name: &str) -> String {
        let host = self.labels()(Kind::Counter, &["host".into()], &[name.into()]);
        String::from_utf8(host).unwrap_or_default()
    }

    fn write(self, out: &mut String, line: &Line<'_>) {
        let Line { host, family, labels, bucket, value, time } = line;
        let (name, end) = (&family.name, bucket.unwrap_or_default());
        let dot = if bucket.is_some() { "." } else { "" };
        // A string takes everything.
        let _ = match self {
            Protocol::Graphite => {
                let seconds = time / 1_000_000_000;
                writeln!(out, "dtrace{host}.{name}{labels}{dot}{end} {value} {seconds}")
            }
            Protocol::StatsD => {
                let (path, gauge) =
                    (format!("dtrace{host}.{name}{labels}{dot}{end}"), family.kind == Kind::Gauge);
                // A gauge with a sign would be added.
                if gauge && *value < 0 {
                    let _ = writeln!(out, "{path}:0|g");
                }
                writeln!(out, "{path}:{value}|{}", if gauge { 'g' } else { 'c' })
            }
            Protocol::Influx => {
                let tag = if bucket.is_some() { ",bucket=" } else { "" };
                // Its integers have 64 bits and a sign.
                let value = (*value).min(i128::from(i64::MAX));
                writeln!(out, "dtrace_{name}{host}{labels}{tag}{end} value={value}i {time}")
            }
        };
    }
}

impl<W: Write + Send> Lines<W> {
    /// Writes lines of this protocol.
    pub fn new(protocol: Protocol, out: W) -> Lines<W> {
        let model = Model::new(protocol.labels());
        Lines { host: protocol.host(""), model, protocol, second: 0, out }
    }

    /// Writes the exporter's own counters that have grown.
    fn own(&mut self) -> io::Result<()> {
        self.model.own().try_for_each(|at| self.write(at))
    }

    fn write(&mut self, at: usize) -> io::Result<()> {
        let lines = self.family(at, false);
        // What a second adds is added up.
        if self.protocol != Protocol::Graphite || Model::is_own(at) {
            self.model.settle(at);
        }
        self.out.write_all(lines.as_bytes())
    }

    /// The lines of a family that has grown, or of all that it has since the start.
    fn family(&self, at: usize, everything: bool) -> String {
        let mut out = String::new();
        let Some(family) = self.model.families.get(at) else { return out };
        let (host, (_, time)) = (&self.host, self.model.times());
        let ends = family.bucket_labels();
        let adds = self.protocol == Protocol::StatsD && family.kind != Kind::Gauge;
        let of_interval = adds || family.kind == Kind::Gauge && family.function != AggFunc::Sum;
        if everything && of_interval {
            return out;
        }
        for (labels, series) in &family.series {
            let Series { total, increment } = series;
            if increment.is_empty() && !everything {
                continue;
            }
            let labels = std::str::from_utf8(labels).unwrap_or_default();
            let words: &[u64] = if of_interval { increment } else { total };
            let mut line = Line { host, family, labels, bucket: None, value: family.number(words), time };
            if family.kind != Kind::Histogram {
                self.protocol.write(&mut out, &line);
                continue;
            }
            for (n, end) in &ends {
                let grown = if everything { total.get(*n) } else { increment.get(*n) };
                if grown.is_some_and(|word| *word != 0) {
                    line.value = words.get(*n).copied().unwrap_or(0).into();
                    line.bucket = Some(end);
                    self.protocol.write(&mut out, &line);
                }
            }
        }
        out
    }
}

impl<W: Write + Send> Sink for Lines<W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        if let Event::Interval(all) = event {
            let second = self.model.end(all) / 1_000_000_000;
            if std::mem::replace(&mut self.second, second) != second && self.protocol == Protocol::Graphite {
                self.model.settle_aggregations();
            }
        }
        let family = self.model.event(event);
        if let Event::Start(_) = event {
            self.host = self.protocol.host(&self.model.host);
        }
        if let Some(family) = family {
            self.own()?;
            self.write(family)?;
        }
        self.model.complete()
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        // What was lost has no interval.
        self.own()?;
        self.out.flush()
    }

    fn repeat(&mut self) -> io::Result<()> {
        self.flush()?;
        for at in 0..self.model.families.len() {
            self.out.write_all(self.family(at, true).as_bytes())?;
        }
        self.out.flush()
    }
}
