//! What the parsers of others read.

use std::io::{BufRead, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use metrics::{Lines, Otlp, Prometheus, Protocol};

use super::*;

/// A Python that has a module.
fn python(module: &str) -> Option<&'static str> {
    let has = |python: &&str| {
        let words = ["-c", &format!("import {module}")];
        Command::new(python).args(words).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has)
}

/// What a command prints for an input.
fn filtered(command: &str, words: &[&str], input: &[u8]) -> (bool, String) {
    let (input_of, output_of) = (Stdio::piped(), Stdio::piped());
    let mut child = Command::new(command)
        .args(words)
        .stdin(input_of)
        .stdout(output_of)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let o = child.wait_with_output().unwrap();
    (
        o.status.success(),
        format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr)),
    )
}

/// All kinds of series, with nasty names.
fn everything<S: Sink>(sink: S) -> Fed<S> {
    let mut fed = start(sink);
    let all = |words: Vec<u64>| -> Vec<(&[u8], Vec<u64>)> {
        NASTY.iter().map(|name| (*name, words.clone())).collect()
    };
    let quantize = spread(AggFunc::Quantize, &[(0, 1), (60, 3), (63, 2), (80, 5), (126, 7)]);
    let linear = AggFunc::Lquantize { base: -10, limit: 20, step: 10 };
    let log = AggFunc::Llquantize { factor: 10, low: 0, high: 3, nsteps: 10 };
    let functions = [
        ("number", AggFunc::Count, vec![3]),
        ("amount", AggFunc::Sum, vec![u64::MAX]),
        ("least", AggFunc::Min, vec![-3i64 as u64]),
        ("mean", AggFunc::Avg, vec![3, 7]),
        ("deviation", AggFunc::Stddev, vec![2, 4, 16, 0]),
        ("spread", AggFunc::Quantize, quantize),
        ("linear", linear, spread(linear, &[(0, 1), (2, 3), (4, 5)])),
        ("steps", log, spread(log, &[(0, 1), (7, 3)])),
    ];
    for (name, function, words) in functions {
        fed.name = name;
        fed.keys = &["execname \"x\"\\ + 1"];
        fed.named(0, function, &all(words));
    }
    (fed.name, fed.unsigned) = ("difference", false);
    fed.named(0, AggFunc::Sum, &all(vec![-3i64 as u64]));
    fed
}

/// The names and labels of the samples as a parser of prometheus_client sees them.
const LISTED: &str = "
import sys
from PARSER import text_string_to_metric_families as parse
for f in parse(sys.stdin.buffer.read().decode()):
    for s in f.samples:
        print(f.name, f.type, s.name, repr(s.labels), float(s.value))
";

#[test]
fn the_parsers_of_prometheus_client_read_what_was_written() {
    let Some(python) = python("prometheus_client") else {
        return testing::skipped!("no package prometheus_client");
    };
    let parsers = [
        ("prometheus_client.openmetrics.parser", Prometheus::open_metrics()),
        ("prometheus_client.parser", Prometheus::text()),
    ];
    for (parser, sink) in parsers {
        let fed = everything(sink);
        let (read, listed) = filtered(python, &["-c", &LISTED.replace("PARSER", parser)], &fed.sink.bytes());
        assert!(read, "{listed}");
        let of = |family: &str| listed.lines().filter(|line| line.starts_with(family)).count();
        for (family, kind) in
            [("number", "counter"), ("amount", "counter"), ("least", "gauge"), ("spread", "histogram")]
        {
            assert!(of(&format!("dtrace_{family} {kind} ")) >= NASTY.len(), "{family}: {listed}");
        }
        assert_eq!((of("dtrace_number "), of("dtrace_difference gauge")), (NASTY.len(), NASTY.len()));
        // 5 buckets from -10 and one without an end, for each key.
        assert_eq!(of("dtrace_linear histogram dtrace_linear_bucket"), 5 * NASTY.len());
        assert!(
            listed.contains(
                "dtrace_least gauge dtrace_least {'execname_x_1': '<script>alert(1)</script>'} -3.0"
            ),
            "{listed}"
        );
        let quoted = r#"{'execname_x_1': 'a"b\\'} 3.0"#;
        assert!(listed.contains(quoted), "{listed}");
    }
}

#[test]
fn promtool_has_nothing_to_say() {
    let there =
        Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if there.is_err() {
        return testing::skipped!("no package prometheus");
    }
    let (checked, said) =
        filtered("promtool", &["check", "metrics"], &everything(Prometheus::text()).sink.bytes());
    assert!(checked, "{said}");
    assert_eq!(said, "");
}

/// A process that ends with the test.
struct Running(std::process::Child);

impl std::ops::Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_relay_of_carbon_passes_every_line_on() {
    let there = Command::new("carbon-c-relay").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if there.is_err() {
        return testing::skipped!("no package carbon-c-relay");
    }
    let carbon = TcpListener::bind("127.0.0.1:0").unwrap();
    // The port of a listener that is closed again: the relay takes no other.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "listen type linemode 127.0.0.1:{port} proto tcp;\ncluster out forward {} proto tcp;\nmatch * send to out stop;\n",
        carbon.local_addr().unwrap()
    );
    let file = std::env::temp_dir().join(format!("metrics-relay-{}", std::process::id()));
    std::fs::write(&file, config).unwrap();
    let mut relay = Command::new("carbon-c-relay");
    let relay = relay.arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let _relay = Running(relay.spawn().unwrap());
    let mut connection = None;
    testing::eventually("the relay listens", testing::HANG_LIMIT, || {
        connection = TcpStream::connect(("127.0.0.1", port)).ok();
        connection.is_some()
    });
    let out = crate::lines::Shared::default();
    let mut fed = start(Lines::new(Protocol::Graphite, out.clone()));
    let all: Vec<(&[u8], Vec<u64>)> = NASTY.iter().map(|name| (*name, vec![u64::from(u32::MAX)])).collect();
    (0..3).for_each(|n| fed.named(n, AggFunc::Count, &all));
    let mut sent: Vec<String> = out.text().lines().map(String::from).collect();
    connection.unwrap().write_all(out.text().as_bytes()).unwrap();
    let reader = std::io::BufReader::new(carbon.accept().unwrap().0);
    let mut received: Vec<String> = reader.lines().take(sent.len()).map(Result::unwrap).collect();
    let _ = std::fs::remove_file(file);
    sent.sort();
    received.sort();
    assert_eq!(received, sent);
}

/// What a request says, in lines.
const DECODED: &str = "
import sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
for r in ExportMetricsServiceRequest.FromString(sys.stdin.buffer.read()).resource_metrics:
    for s in r.scope_metrics:
        for m in s.metrics:
            kind = m.WhichOneof('data')
            of = getattr(m, kind)
            how = '' if kind == 'gauge' else of.aggregation_temporality
            for p in of.data_points:
                key = ','.join(a.key + '=' + a.value.string_value for a in p.attributes)
                value = (list(p.bucket_counts), list(p.explicit_bounds), p.count) if kind == 'histogram' else p.as_int
                print(m.name, kind, how, kind == 'sum' and of.is_monotonic, p.time_unix_nano - p.start_time_unix_nano, repr(key), value)
";

#[test]
fn the_descriptors_of_opentelemetry_read_what_was_written() {
    let Some(python) = python("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2") else {
        return testing::skipped!("no package opentelemetry-proto");
    };
    let out = crate::lines::Shared::default();
    let mut fed = everything(Otlp::new(out.clone()));
    fed.sink.flush().unwrap();
    let (read, listed) = filtered(python, &["-c", DECODED], &out.bytes());
    assert!(read, "{listed}");
    for name in ["number", "amount", "least", "mean", "deviation", "spread", "linear", "steps", "difference"]
    {
        let of = listed.lines().filter(|line| line.starts_with(&format!("dtrace.{name} "))).count();
        assert_eq!(of, NASTY.len(), "{name}: {listed}");
    }
    let script = "'execname_x_1=<script>alert(1)</script>'";
    for line in [
        format!("dtrace.number sum 2 True 1000000000 {script} 3"),
        format!("dtrace.difference gauge  False 1000000000 {script} -3"),
        format!(
            "dtrace.linear histogram 2 False 1000000000 {script} ([1, 0, 3, 0, 5], [-11.0, -1.0, 9.0, 19.0], 9)"
        ),
    ] {
        assert!(listed.contains(&line), "{line}\n{listed}");
    }
}
