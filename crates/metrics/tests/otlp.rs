//! Requests of OpenTelemetry, decoded.

use metrics::{Otlp, rejected};

use super::*;
use crate::lines::Shared;

fn fields(bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let parts = |(field, value)| match value {
        protobuf::Value::Number(number) => (field, number, &[][..]),
        protobuf::Value::Bytes(bytes) => (field, 0, bytes),
    };
    protobuf::fields(bytes).map(parts).collect()
}

/// The messages at a path of fields.
fn at<'a>(bytes: &'a [u8], path: &[u64]) -> Vec<&'a [u8]> {
    let Some((first, rest)) = path.split_first() else { return vec![bytes] };
    fields(bytes).into_iter().filter(|(n, ..)| n == first).flat_map(|(.., inner)| at(inner, rest)).collect()
}

fn field(bytes: &[u8], number: u64) -> u64 {
    fields(bytes).into_iter().find(|(n, ..)| *n == number).unwrap().1
}

#[test]
fn a_request_has_what_has_grown_since_the_one_before() {
    let out = Shared::default();
    let mut fed = start(Otlp::new(out.clone()));
    fed.named(0, AggFunc::Count, &[(b"cat", vec![7]), (b"dog", vec![1])]);
    fed.sink.flush().unwrap();
    let first = out.bytes();
    fed.sink.flush().unwrap();
    fed.named(0, AggFunc::Count, &[]);
    fed.sink.flush().unwrap();
    assert_eq!(out.bytes(), first, "nothing has changed");
    fed.named(1, AggFunc::Count, &[(b"cat", vec![5])]);
    fed.sink.flush().unwrap();
    let second = &out.bytes()[first.len()..];
    let host = at(second, &[1, 1, 1]);
    assert_eq!(at(host[1], &[2, 1]), [b"my-host.example"]);
    let metrics = at(second, &[1, 2, 2]);
    let [metric] = metrics[..] else { panic!("{metrics:?}") };
    assert_eq!(at(metric, &[1]), [b"dtrace.lat"]);
    assert_eq!(at(metric, &[2]), [b"@lat[execname] = count()"]);
    let sum = at(metric, &[7])[0];
    assert_eq!((field(sum, 2), field(sum, 3)), (2, 1), "cumulative, monotonic");
    let points = at(sum, &[1]);
    let [point] = points[..] else { panic!("{points:?}") };
    assert_eq!(field(point, 2), 1_767_323_045 * SECOND);
    assert_eq!(field(point, 3), 1_767_323_047 * SECOND);
    assert_eq!(field(point, 6), 12);
    assert_eq!((at(point, &[7, 1])[0], at(point, &[7, 2, 1])[0]), (&b"execname"[..], &b"cat"[..]));
}

#[test]
fn a_sum_beyond_integers_with_a_sign_is_a_floating_point_number() {
    let point = |sum: u64| {
        let out = Shared::default();
        let mut fed = start(Otlp::new(out.clone()));
        fed.named(0, AggFunc::Sum, &[(b"cat", vec![sum])]);
        fed.sink.flush().unwrap();
        at(&out.bytes(), &[1, 2, 2, 7, 1])[0].to_vec()
    };
    assert_eq!(field(&point(i64::MAX as u64), 6), i64::MAX as u64);
    assert_eq!(f64::from_bits(field(&point(u64::MAX), 4)), 18_446_744_073_709_551_615.0);
    assert!(fields(&point(u64::MAX)).iter().all(|(n, ..)| *n != 6));
}

#[test]
fn a_distribution_has_bounds_that_are_the_greatest_integers_of_buckets() {
    let out = Shared::default();
    let mut fed = start(Otlp::new(out.clone()));
    let function = AggFunc::Lquantize { base: 0, limit: 20, step: 10 };
    fed.named(0, function, &[(b"cat", spread(function, &[(0, 2), (1, 3), (3, 1)]))]);
    fed.sink.flush().unwrap();
    let request = out.bytes();
    let point = at(&request, &[1, 2, 2, 9, 1])[0];
    let words = |number| -> Vec<u64> {
        at(point, &[number])[0].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    assert_eq!((field(point, 4), words(6)), (6, vec![2, 3, 0, 1]));
    assert_eq!(words(7).into_iter().map(f64::from_bits).collect::<Vec<_>>(), [-1.0, 9.0, 19.0]);
    assert_eq!((at(point, &[9, 1])[0], at(point, &[9, 2, 1])[0]), (&b"execname"[..], &b"cat"[..]));
}

#[test]
fn no_two_bounds_are_one_floating_point_number() {
    // With the largest values and the most steps that there are, and with steps below an integer.
    for function in [
        AggFunc::Quantize,
        AggFunc::Llquantize { factor: 2, low: 53, high: 53, nsteps: u16::MAX },
        AggFunc::Llquantize { factor: 2, low: 61, high: 61, nsteps: u16::MAX },
        AggFunc::Lquantize { base: i32::MAX - 1000, limit: i32::MAX, step: 1 },
        AggFunc::Llquantize { factor: 2, low: 0, high: 3, nsteps: 64 },
    ] {
        let out = Shared::default();
        let mut fed = start(Otlp::new(out.clone()));
        let buckets = function.value_size() as usize / 8;
        let all: Vec<(usize, i64)> = (0..buckets).map(|bucket| (bucket, 1)).collect();
        fed.named(0, function, &[(b"cat", spread(function, &all))]);
        fed.sink.flush().unwrap();
        let request = out.bytes();
        let point = at(&request, &[1, 2, 2, 9, 1])[0];
        let words = |number| -> Vec<u64> {
            at(point, &[number])[0].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
        };
        let bounds: Vec<f64> = words(7).into_iter().map(f64::from_bits).collect();
        assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        let counts = words(6);
        assert_eq!(counts.len(), bounds.len() + 1);
        assert_eq!((counts.iter().sum::<u64>(), field(point, 4)), (buckets as u64, buckets as u64));
    }
}

#[test]
fn everything_can_be_repeated() {
    let out = Shared::default();
    let mut fed = start(Otlp::new(out.clone()));
    fed.named(0, AggFunc::Count, &[(b"cat", vec![7]), (b"dog", vec![1])]);
    fed.named(1, AggFunc::Count, &[(b"cat", vec![5])]);
    fed.sink.flush().unwrap();
    let before = out.bytes().len();
    fed.sink.repeat().unwrap();
    let request = &out.bytes()[before..];
    let metrics = at(request, &[1, 2, 2]);
    let of_lat = metrics.iter().find(|metric| at(metric, &[1]) == [b"dtrace.lat"]).unwrap();
    let numbers: Vec<u64> = at(of_lat, &[7, 1]).into_iter().map(|point| field(point, 6)).collect();
    assert_eq!(numbers, [12, 1]);
}

#[test]
fn what_was_lost_is_a_request_without_an_interval() {
    let out = Shared::default();
    let mut fed = start(Otlp::new(out.clone()));
    fed.sink.event(&Event::Drop(Drop::new(DropKind::Principal, 0, 12))).unwrap();
    fed.sink.batch_end().unwrap();
    let request = out.bytes();
    let metrics = at(&request, &[1, 2, 2]);
    assert_eq!((metrics.len(), at(metrics[0], &[1])[0]), (1, &b"dtrace.exporter_lost"[..]));
    let point = at(metrics[0], &[7, 1])[0];
    assert_eq!((field(point, 6), field(point, 3)), (12, 1_767_323_045 * SECOND));
}

#[test]
fn an_answer_says_what_a_server_has_rejected() {
    let mut partial = protobuf::Message::default();
    partial.number(1, 7);
    partial.bytes(2, b"too\nold");
    let mut answer = protobuf::Message::default();
    answer.message(1, &partial);
    assert_eq!(rejected(answer.encoded()), Some((7, "too\\nold".into())));
    // A warning, nothing, and what is no message.
    let mut warning = protobuf::Message::default();
    warning.bytes(1, b"\x12\x01x");
    for answer in [warning.encoded(), b"", b"\xff\xff", b"{}"] {
        assert_eq!(rejected(answer), None, "{answer:?}");
    }
}

#[test]
fn no_point_ends_before_it_has_begun_where_the_clock_was_set_back() {
    let out = Shared::default();
    let mut fed = start(Otlp::new(out.clone()));
    let mut times = Vec::new();
    for (n, wall) in [(0, 1_767_323_046), (1, 1_767_319_447), (2, 1_767_319_448)] {
        let before = out.bytes().len();
        fed.wall = wall * SECOND;
        fed.named(n, AggFunc::Count, &[(b"cat", vec![1])]);
        fed.sink.flush().unwrap();
        let request = &out.bytes()[before..];
        let point = at(request, &[1, 2, 2, 7, 1])[0];
        times.push((field(point, 2) / SECOND, field(point, 3) / SECOND));
    }
    let expected =
        [(1_767_323_045, 1_767_323_046), (1_767_319_447, 1_767_319_447), (1_767_319_447, 1_767_319_448)];
    assert_eq!(times, expected);
}
