//! The text of Prometheus.

use std::collections::BTreeSet;

use metrics::Prometheus;

use super::*;

fn text(fed: &Fed<Prometheus>) -> String {
    String::from_utf8(fed.sink.bytes()).unwrap()
}

/// The lines that are not the exporter's own.
fn lines(fed: &Fed<Prometheus>) -> Vec<String> {
    text(fed).lines().filter(|line| !line.contains("dtrace_exporter_")).map(String::from).collect()
}

#[test]
fn counts_are_counters_with_what_was_aggregated_since_the_start() {
    let mut fed = start(Prometheus::text());
    fed.named(0, AggFunc::Count, &[(b"cat", vec![7]), (b"dog", vec![1])]);
    fed.named(1, AggFunc::Count, &[(b"cat", vec![5])]);
    let expected = [
        "# HELP dtrace_lat_total @lat[execname] = count()",
        "# TYPE dtrace_lat_total counter",
        "dtrace_lat_total{execname=\"cat\"} 12",
        "dtrace_lat_total{execname=\"dog\"} 1",
    ];
    assert_eq!(lines(&fed), expected);
    assert!(text(&fed).contains("\ndtrace_exporter_time_seconds 1767323047.000\n"), "{}", text(&fed));
}

#[test]
fn a_sum_is_a_counter_only_if_no_value_can_be_negative() {
    let sum = |unsigned| {
        let mut fed = start(Prometheus::text());
        fed.unsigned = unsigned;
        fed.named(0, AggFunc::Sum, &[(b"cat", vec![-3i64 as u64])]);
        fed.named(1, AggFunc::Sum, &[(b"cat", vec![1])]);
        lines(&fed)[1..].join("\n")
    };
    assert_eq!(sum(false), "# TYPE dtrace_lat gauge\ndtrace_lat{execname=\"cat\"} -2");
    let wrapped = "# TYPE dtrace_lat_total counter\ndtrace_lat_total{execname=\"cat\"} 18446744073709551614";
    assert_eq!(sum(true), wrapped);
}

#[test]
fn least_greatest_and_mean_values_are_gauges_of_the_whole_time() {
    let of = |function, all: [Vec<u64>; 2]| {
        let mut fed = start(Prometheus::text());
        (0..).zip(all).for_each(|(n, words)| fed.second(n, function, &[(vec![], words)]));
        lines(&fed).pop().unwrap()
    };
    assert_eq!(of(AggFunc::Min, [vec![4], vec![9]]), "dtrace_lat 4");
    assert_eq!(of(AggFunc::Max, [vec![4], vec![-9i64 as u64]]), "dtrace_lat 4");
    assert_eq!(of(AggFunc::Avg, [vec![1, 10], vec![3, 2]]), "dtrace_lat 3");
    assert_eq!(of(AggFunc::Stddev, [vec![4, 14, 52, 0], vec![4, 26, 180, 0]]), "dtrace_lat 2");
}

#[test]
fn a_bucket_ends_with_its_greatest_integer() {
    let mut fed = start(Prometheus::text());
    let bucket = plane::desc::quantize_bucket;
    // -7…-4, 0, 4…7, and those of the greatest values.
    let words = [(bucket(-5), 2), (bucket(0), 1), (bucket(4), 3)];
    fed.second(0, AggFunc::Quantize, &[(vec![], spread(AggFunc::Quantize, &words))]);
    let expected = [
        "# TYPE dtrace_lat histogram",
        "dtrace_lat_bucket{le=\"-4\"} 2",
        "dtrace_lat_bucket{le=\"-2\"} 2",
        "dtrace_lat_bucket{le=\"-1\"} 2",
        "dtrace_lat_bucket{le=\"0\"} 3",
        "dtrace_lat_bucket{le=\"1\"} 3",
        "dtrace_lat_bucket{le=\"3\"} 3",
        "dtrace_lat_bucket{le=\"7\"} 6",
        "dtrace_lat_bucket{le=\"+Inf\"} 6",
    ];
    assert_eq!(lines(&fed)[1..], expected);
    let linear = AggFunc::Lquantize { base: 0, limit: 20, step: 10 };
    let mut fed = start(Prometheus::text());
    fed.named(0, linear, &[(b"cat", spread(linear, &[(0, 1), (3, 5)])), (b"dog", spread(linear, &[(1, 1)]))]);
    let expected = [
        "dtrace_lat_bucket{execname=\"cat\",le=\"-1\"} 1",
        "dtrace_lat_bucket{execname=\"cat\",le=\"9\"} 1",
        "dtrace_lat_bucket{execname=\"cat\",le=\"19\"} 1",
        "dtrace_lat_bucket{execname=\"cat\",le=\"+Inf\"} 6",
        "dtrace_lat_bucket{execname=\"dog\",le=\"-1\"} 0",
        "dtrace_lat_bucket{execname=\"dog\",le=\"9\"} 1",
        "dtrace_lat_bucket{execname=\"dog\",le=\"19\"} 1",
        "dtrace_lat_bucket{execname=\"dog\",le=\"+Inf\"} 1",
    ];
    assert_eq!(lines(&fed)[2..], expected);
}

#[test]
fn what_has_no_series_is_counted_and_said() {
    let mut fed = start(Prometheus::text());
    fed.named(0, AggFunc::Quantize, &[(b"cat", spread(AggFunc::Quantize, &[(70, 9)]))]);
    fed.named(1, AggFunc::Quantize, &[(b"cat", spread(AggFunc::Quantize, &[(70, -1)]))]);
    fed.named(2, AggFunc::Quantize, &[(b"cat", spread(AggFunc::Quantize, &[(70, 1)]))]);
    (fed.name, fed.keys) = ("_", &["ustack()"]);
    fed.second(0, AggFunc::Count, &[(vec![Value::Stack(Stack::default())], vec![1])]);
    fed.name = "many";
    for n in 0..3 {
        let key = |key| (vec![Value::Int(Int::new(n * 4000 + key, 8, false))], vec![1]);
        fed.second(n, AggFunc::Count, &(0..4000).map(key).collect::<Vec<_>>());
    }
    fed.sink.event(&Event::Drop(Drop::new(DropKind::Aggregation, 0, 12))).unwrap();
    let text = text(&fed);
    assert!(!text.contains("dtrace_lat") && text.matches("dtrace_many_total{").count() == 9999);
    for (reason, rows) in [("negative", 2), ("stack", 1), ("limit", 2001)] {
        let line = format!("dtrace_exporter_left_out_total{{reason=\"{reason}\"}} {rows}\n");
        assert!(text.contains(&line), "{line}");
    }
    assert!(text.contains("dtrace_exporter_lost_total{kind=\"aggregation\"} 12\n"));
    let [negative, stack, limit] = &fed.said[..] else { panic!("{:?}", fed.said) };
    assert!(
        negative.starts_with("@lat[execname] = quantize() is left out: with negative weights"),
        "{negative}"
    );
    assert!(stack.starts_with("@[ustack()] = count() is left out: a stack is no label"), "{stack}");
    assert!(limit.starts_with("what is beyond 10000 series"), "{limit}");
}

#[test]
fn names_of_families_never_share_a_sample() {
    let mut fed = start(Prometheus::text());
    for name in ["_", "count", "x", "x_total", "x_bucket", "exporter_lost", "exporter_time_seconds", "1\n"] {
        fed.name = name;
        fed.named(0, AggFunc::Count, &[(b"", vec![1])]);
    }
    let names: Vec<String> = lines(&fed)
        .iter()
        .filter(|line| line.contains("{execname=\"\"}"))
        .map(|line| line[..12].into())
        .collect();
    let all =
        ["dtrace_count", "dtrace_count", "dtrace_x_tot", "dtrace_x_2_t", "dtrace_x_buc", "dtrace_n_1_t"];
    assert_eq!(names, all);
    assert!(text(&fed).contains("dtrace_exporter_lost_2_total{execname=\"\"} 1\n"));
    assert!(text(&fed).contains("dtrace_exporter_time_seconds_2_total{execname=\"\"} 1\n"));
}

#[test]
fn a_family_is_called_the_same_whichever_has_rows_first() {
    let names = |first: &str| {
        let mut fed = start(Prometheus::text());
        let mut feed = |name: &'static str, rows: &[(&[u8], Vec<u64>)]| {
            fed.name = name;
            fed.named(0, AggFunc::Count, rows);
        };
        for name in ["x_total", "x"] {
            let rows = [(&b"cat"[..], vec![1])];
            feed(name, if name == first { &rows } else { &[] });
        }
        for (name, n) in [("x_total", 10), ("x", 20)] {
            feed(name, &[(b"cat", vec![n])]);
        }
        lines(&fed).into_iter().filter(|line| !line.starts_with('#')).collect::<BTreeSet<_>>()
    };
    let [one, two] = ["dtrace_x_2_total{execname=\"cat\"}", "dtrace_x_total{execname=\"cat\"}"];
    assert_eq!(names("x_total"), [format!("{one} 20"), format!("{two} 11")].into());
    assert_eq!(names("x"), [format!("{one} 21"), format!("{two} 10")].into());
}

#[test]
fn keys_that_are_written_alike_are_one_series() {
    let mut fed = start(Prometheus::text());
    fed.named(0, AggFunc::Count, &[(b"a\nb", vec![1]), (b"a\\nb", vec![2]), (b"a", vec![4])]);
    let expected = ["dtrace_lat_total{execname=\"a\"} 4", "dtrace_lat_total{execname=\"a\\\\nb\"} 3"];
    assert_eq!(lines(&fed)[2..], expected);
}

#[test]
fn ten_thousand_series_are_written_in_fifty_milliseconds() {
    let mut fed = start(Prometheus::text());
    for n in 0..10 {
        let key = |key| (vec![Value::Int(Int::new(n * 1000 + key, 8, false))], vec![key]);
        fed.second(n, AggFunc::Count, &(0..1000).map(key).collect::<Vec<_>>());
    }
    // The shortest of some: other tests run beside this one.
    let times = (0..10).map(|_| {
        let begun = std::time::Instant::now();
        assert!(fed.sink.bytes().len() > 300_000);
        begun.elapsed()
    });
    let least = times.min().unwrap();
    assert!(least.as_millis() < 50, "{least:?}");
}

#[test]
fn the_text_is_bounded_whatever_the_buckets_are() {
    let mut fed = start(Prometheus::text());
    let function = AggFunc::Lquantize { base: 0, limit: 2000, step: 1 };
    let row = |key: u64, bucket| {
        (vec![Value::Int(Int::new(key, 8, false))], spread(function, &[(1, 1), (bucket, 1)]))
    };
    // Each key has two buckets, until the range becomes that of all.
    fed.second(0, function, &(0..1000).map(|key| row(key, 2)).collect::<Vec<_>>());
    let before = fed.sink.bytes().len();
    assert!(before < 1 << 20 && fed.said.is_empty());
    fed.second(1, function, &(0..1000).map(|key| row(key, 2001)).collect::<Vec<_>>());
    assert!(fed.sink.bytes().len() < 16 << 20);
    assert!(
        fed.said[0].starts_with("what is beyond 10000 series, or 16 MB of text, is left out"),
        "{:?}",
        fed.said
    );
    assert!(text(&fed).contains("dtrace_exporter_left_out_total{reason=\"limit\"} 1000\n"));
    // What has no bucket is in the sum of all: no key has lost a count.
    let all = text(&fed);
    let infinite: Vec<&str> = all.lines().filter(|line| line.contains("le=\"+Inf\"")).collect();
    assert_eq!(infinite.len(), 1000);
    assert!(infinite.iter().all(|line| line.ends_with(" 4")), "{infinite:?}");
    // Some keys with all buckets are fewer lines.
    let mut fed = start(Prometheus::text());
    fed.second(0, function, &(0..50).map(|key| row(key, 2001)).collect::<Vec<_>>());
    assert_eq!(text(&fed).matches("dtrace_lat_bucket{").count(), 50 * 2001);
}
