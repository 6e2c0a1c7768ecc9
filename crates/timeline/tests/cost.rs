//! The size of slices.

use std::borrow::Cow;
use std::sync::Arc;

use events::{Calls, Event, Firing, Part, Probe, Record, Sink};
use timeline::Timeline;

use crate::{Fed, START, probe};

/// The records of calls: 300 functions, 200 threads, 4 µs between two records.
fn feed(timeline: &mut Timeline<impl std::io::Write + Send>, slices: u64) {
    let function = |n: u64, name: &str| probe(&format!("syscall:vmlinux:function{n}:{name}"), Calls::System);
    let probes: Vec<[Arc<Probe>; 2]> =
        (0..300).map(|n| [function(n, "entry"), function(n, "return")]).collect();
    let mut time = START;
    for n in 0..slices {
        for (of_entry, probe) in probes[(n % 300) as usize].iter().enumerate() {
            time += 4000;
            let mut firing = Firing::new(time, 0, of_entry as u32, Cow::Borrowed(probe));
            let tid = 1000 + (n % 200) as u32;
            (firing.pid, firing.tid) = (Some(1000), Some(tid));
            let record = Record { firing, part: Part::WHOLE, fields: Vec::new() };
            timeline.event(&Event::Record(record)).unwrap();
        }
    }
    timeline.event(&Event::End { status: 0 }).unwrap();
    timeline.batch_end().unwrap();
}

#[test]
fn a_slice_takes_at_most_40_bytes() {
    let mut fed = Fed::new();
    feed(&mut fed.0, 20_000);
    let size = fed.0.output().len();
    assert_eq!(crate::read::Trace::read(fed.0.output()).slices().len(), 20_000);
    assert!(size <= 40 * 20_000, "{} bytes a slice", size as f64 / 20_000.0);
}
