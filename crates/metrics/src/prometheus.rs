//! The text that Prometheus reads, and OpenMetrics.
//!
//! A distribution has classic buckets. Each bucket's `le` is the greatest integer in it: values are
//! integers, so it is exact where the border of a native histogram, which is a power of two, would
//! be in the bucket below. (A reader computes with floating-point numbers: above 2^53 it rounds.)
//! There is no `_sum`, which a distribution does not know, and so no `_count`. Buckets below the
//! first and above the last one with a value of any key are left out.

use std::io::Write;

use events::{Event, Sink, SinkError};

use crate::model::{Family, Kind, Model, cumulative};

/// The last state of each series, as a text.
///
/// Counters and distributions have what was aggregated since the start, and gauges what text would
/// print now.
#[derive(Clone, Debug)]
pub struct Prometheus {
    model: Model,
    open: bool,
}

fn labels(_: Kind, names: &[String], values: &[String]) -> Vec<u8> {
    let mut out = String::new();
    for (name, value) in names.iter().zip(values) {
        out.push_str(if out.is_empty() { "" } else { "," });
        out.push_str(name);
        out.push_str("=\"");
        escape(&mut out, value, true);
        out.push('"');
    }
    out.into_bytes()
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

impl Prometheus {
    /// The form of files for the textfile collector of node_exporter, and of what is scraped.
    pub fn text() -> Prometheus {
        Prometheus { model: Model::new(labels), open: false }
    }

    /// OpenMetrics.
    pub fn open_metrics() -> Prometheus {
        Prometheus { model: Model::new(labels), open: true }
    }

    /// The text of the last state.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for family in self.model.families.iter().filter(|family| !family.series.is_empty()) {
            self.family(&mut out, family);
        }
        let seconds = self.model.time as f64 / 1e9;
        if self.model.time != 0 {
            self.head(&mut out, "exporter_time_seconds", "When the last interval ended.", "gauge", "");
            line(&mut out, format_args!("dtrace_exporter_time_seconds {seconds:.3}"));
        }
        if self.open {
            out.extend_from_slice(b"# EOF\n");
        }
        out
    }

    fn head(&self, out: &mut Vec<u8>, name: &str, title: &str, kind: &str, suffix: &str) {
        // OpenMetrics names the family, the older form its samples.
        let suffix = if self.open { "" } else { suffix };
        let mut help = String::new();
        escape(&mut help, title, self.open);
        line(out, format_args!("# HELP dtrace_{name}{suffix} {help}\n# TYPE dtrace_{name}{suffix} {kind}"));
    }

    fn family(&self, out: &mut Vec<u8>, family: &Family) {
        let (kind, suffix) = match family.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        let name = &family.name;
        self.head(out, name, &family.title, kind, suffix);
        let ends: Vec<(usize, String)> =
            family.ends().into_iter().map(|(n, end)| (n, end.to_string())).collect();
        for (labels, series) in &family.series {
            if family.kind == Kind::Histogram {
                histogram(out, name, labels, &series.total, &ends);
                continue;
            }
            out.extend_from_slice(b"dtrace_");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(suffix.as_bytes());
            if !labels.is_empty() {
                out.push(b'{');
                out.extend_from_slice(labels);
                out.push(b'}');
            }
            line(out, format_args!(" {}", family.number(&series.total)));
        }
    }
}

fn histogram(out: &mut Vec<u8>, name: &str, labels: &[u8], words: &[u64], ends: &[(usize, String)]) {
    let mut bucket = |end: &str, count: u64| {
        out.extend_from_slice(b"dtrace_");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"_bucket{");
        out.extend_from_slice(labels);
        out.extend_from_slice(if labels.is_empty() { b"le=\"" } else { b",le=\"" });
        out.extend_from_slice(end.as_bytes());
        line(out, format_args!("\"}} {count}"));
    };
    let all = ends.iter().map(|(_, end)| end.as_str()).chain(["+Inf"]);
    all.zip(cumulative(words, ends)).for_each(|(end, count)| bucket(end, count));
}

fn line(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes everything.
    let _ = out.write_fmt(text);
    out.push(b'\n');
}

impl Sink for Prometheus {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        // Only what is there since the start is of use.
        if let Some(family) = self.model.event(event) {
            self.model.settle(family);
        }
        self.model.complete()
    }
}
