//! The memory of sinks over many intervals.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;

use metrics::{Lines, Otlp, Prometheus, Protocol};

use super::*;

thread_local! {
    /// The bytes that this thread has allocated and not freed. Each test is a thread.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is passed on to the system's allocator; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Intervals of 10 ms for ten minutes, in which keys come and go.
fn ten_minutes<S: Sink>(sink: S, look: impl Fn(&S)) {
    let mut fed = start(sink);
    let mut after_a_hundredth = 0;
    for n in 0..60_000u64 {
        let key = |key: u64| vec![Value::Int(Int::new((n * 3 + key) % 500, 8, false))];
        (fed.name, fed.wall) = ("calls", (1_767_323_045 + n) * SECOND);
        fed.second(n, AggFunc::Count, &[(key(0), vec![n]), (key(1), vec![1]), (key(2), vec![0])]);
        fed.name = "spread";
        let words = spread(AggFunc::Quantize, &[(60 + n as usize % 40, 1)]);
        fed.second(n, AggFunc::Quantize, &[(key(n), words)]);
        fed.sink.event(&Event::Drop(Drop::new(DropKind::Principal, 0, 1))).unwrap();
        fed.sink.batch_end().unwrap();
        if n % 100 == 0 {
            fed.sink.flush().unwrap();
            look(&fed.sink);
        }
        if n == 600 {
            after_a_hundredth = HELD.get();
        }
    }
    let grown = HELD.get() - after_a_hundredth;
    // The buffers of the exporter may have doubled once; a series takes more.
    assert!(after_a_hundredth > 100_000 && grown < 16 << 10, "{after_a_hundredth} + {grown}");
}

#[test]
fn the_state_for_prometheus_is_as_large_after_60000_intervals() {
    ten_minutes(Prometheus::text(), |sink| drop(sink.bytes()));
}

#[test]
fn lines_hold_as_much_after_60000_intervals() {
    ten_minutes(Lines::new(Protocol::Graphite, io::sink()), |_| {});
}

#[test]
fn requests_hold_as_much_after_60000_intervals() {
    ten_minutes(Otlp::new(io::sink()), |_| {});
}
