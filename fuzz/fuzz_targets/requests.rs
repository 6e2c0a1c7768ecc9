//! Requests to the process that serves metrics, of any bytes: each has one answer or none yet, and
//! only one for the metrics has them.
#![no_main]

use metrics::request::{LONGEST, answer};

libfuzzer_sys::fuzz_target!(|input: (&[u8], bool)| {
    let (bytes, loopback) = input;
    let whole = answer(bytes, loopback);
    // Bytes that are no request are answered as soon as they are none.
    let mut first = None;
    for n in [bytes.len() / 3, bytes.len() / 2, bytes.len()] {
        first = first.or_else(|| answer(bytes.get(..n).unwrap_or_default(), loopback));
    }
    assert_eq!(first.is_some(), whole.is_some());
    assert!(whole.is_some() || bytes.len() < LONGEST);
    let Some(whole) = whole else { return };
    let head = whole.bytes(usize::MAX);
    assert!(head.starts_with(b"HTTP/1.1 ") && head.len() < 512);
    if whole.has_metrics() {
        assert!(bytes.windows(8).any(|part| part == b"/metrics") && head.starts_with(b"HTTP/1.1 200 "));
    }
});
