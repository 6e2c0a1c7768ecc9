//! Requests of OpenTelemetry, decoded.

use metrics::Otlp;

use super::*;
use crate::lines::Shared;

/// The fields of a message: number, and value or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if *first < 0x80 {
                break;
            }
        }
        value
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (value, length) = match tag & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (u64::from_le_bytes(bytes[..8].try_into().unwrap()), 8),
            2 => (0, varint(&mut bytes) as usize),
            other => panic!("{other}"),
        };
        let (inner, rest) = bytes.split_at(length);
        bytes = rest;
        all.push((tag >> 3, value, inner));
    }
    all
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
    assert_eq!(out.bytes(), first, "nothing has changed");
    fed.named(1, AggFunc::Count, &[(b"cat", vec![5])]);
    fed.sink.flush().unwrap();
    let second = &out.bytes()[first.len()..];
    let host = at(second, &[1, 1, 1]);
    assert_eq!(at(host[1], &[2, 1]), [b"my_host_example"]);
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
