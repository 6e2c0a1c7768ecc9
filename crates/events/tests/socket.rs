//! Events for whoever connects to a socket: what each reader gets, and what is said of the rest.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::borrow::Cow;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use events::{
    Action, Calls, Clock, Event, Field, Firing, Host, Part, Probe, ReadError, Reader, Record, Setting,
    SettingValue, Sink, SinkError, Socket, Start, Value,
};

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("dtrace-events-{name}-{}", std::process::id()))
}

fn start() -> Event<'static> {
    Event::Start(Start::new("1", Clock { time: 1, wall: 2 }, Host::new("h", "r", "m", 2)))
}

fn options() -> Event<'static> {
    Event::Options(vec![Setting { name: "quiet".into(), value: SettingValue::Flag(true) }])
}

/// A record with a number, and so many bytes.
fn record(n: u64, bytes: usize, part: Part) -> Event<'static> {
    let probe = Cow::Owned(Arc::new(Probe::new(1, [(); 4].map(|()| "p".into()), Calls::None)));
    let action = Action::Trace(Value::Bytes(vec![0; bytes].into()));
    let fields = vec![Field { name: "".into(), action }];
    Event::Record(Record { firing: Firing::new(n, 0, 1, probe), part, fields })
}

fn send(socket: &mut Socket, n: u64, bytes: usize) {
    socket.event(&record(n, bytes, Part::WHOLE)).unwrap();
    socket.batch_end().unwrap();
}

/// Connects, once the socket has the reader.
fn connect(socket: &Socket, name: &str) -> UnixStream {
    let before = socket.readers();
    let stream = UnixStream::connect(path(name)).unwrap();
    stream.set_read_timeout(Some(testing::HANG_LIMIT)).unwrap();
    testing::eventually("it is a reader", testing::HANG_LIMIT, || socket.readers() > before);
    stream
}

/// What a reader has got.
#[derive(Debug, Default)]
struct Got {
    /// Without the records.
    kinds: Vec<&'static str>,
    numbers: Vec<u64>,
    missing: Vec<u64>,
}

fn read(stream: UnixStream, counter: &AtomicU64) -> Got {
    let mut reader = Reader::new(stream);
    let mut got = Got::default();
    loop {
        let event = match reader.next_event() {
            Ok(Some(event)) => event,
            Ok(None) | Err(ReadError::Truncated) => return got,
            Err(e) => panic!("{e}"),
        };
        match event {
            Event::Record(record) => {
                got.numbers.push(record.firing.time);
                counter.fetch_add(1, Ordering::SeqCst);
            }
            Event::Notice(notice) => {
                got.kinds.push("notice");
                let number = notice.text.split(' ').next().unwrap().parse::<u64>();
                got.missing.extend(number.ok().filter(|_| notice.text.contains("missing here")));
            }
            Event::Report(_) => got.kinds.push("report"),
            Event::Start(_) => got.kinds.push("start"),
            Event::Options(_) => got.kinds.push("options"),
            Event::End { .. } => got.kinds.push("end"),
            other => panic!("{other:?}"),
        }
    }
}

fn reads(stream: UnixStream) -> (JoinHandle<Got>, Arc<AtomicU64>) {
    let counter = Arc::new(AtomicU64::new(0));
    let of_thread = counter.clone();
    (std::thread::spawn(move || read(stream, &of_thread)), counter)
}

#[test]
fn a_reader_that_joins_later_gets_the_start_and_the_options_first() {
    let mut socket = Socket::bind(path("later")).unwrap();
    socket.event(&Event::Report("a".into())).unwrap();
    let (first, _) = reads(connect(&socket, "later"));
    socket.event(&start()).unwrap();
    (0..100).for_each(|n| send(&mut socket, n, 10));
    let (second, _) = reads(connect(&socket, "later"));
    socket.event(&options()).unwrap();
    (100..150).for_each(|n| send(&mut socket, n, 10));
    let (third, _) = reads(connect(&socket, "later"));
    (150..160).for_each(|n| send(&mut socket, n, 10));
    socket.event(&Event::End { status: 0 }).unwrap();
    let [first, second, third] = [first, second, third].map(|thread| thread.join().unwrap());
    for got in [&first, &second, &third] {
        assert_eq!(got.kinds, ["report", "start", "options", "end"]);
    }
    assert_eq!(first.numbers, (0..160).collect::<Vec<u64>>());
    assert_eq!(second.numbers, (100..160).collect::<Vec<u64>>());
    assert_eq!(third.numbers, (150..160).collect::<Vec<u64>>());
    assert!(socket.losses().is_empty());
    assert!(!path("later").exists());
}

#[test]
fn a_result_in_parts_is_whole_or_not_there() {
    let mut socket = Socket::bind(path("parts")).unwrap();
    let [first, last] = [[true, false], [false, true]].map(|[first, last]| Part { first, last });
    let part = |socket: &mut Socket, n, part| {
        socket.event(&record(n, 10, part)).unwrap();
        socket.batch_end().unwrap();
    };
    part(&mut socket, 1, first);
    let (early, _) = reads(connect(&socket, "parts"));
    part(&mut socket, 1, last);
    part(&mut socket, 2, first);
    let (late, _) = reads(connect(&socket, "parts"));
    part(&mut socket, 2, last);
    socket.event(&Event::End { status: 0 }).unwrap();
    // The second one has joined before the record was complete.
    assert_eq!([early, late].map(|thread| thread.join().unwrap().numbers), [[2, 2], [2, 2]]);
}

#[test]
fn a_reader_that_stops_reading_loses_what_is_counted_and_another_has_everything() {
    const ALL: u64 = 1500;
    let mut socket = Socket::bind(path("slow")).unwrap();
    socket.event(&start()).unwrap();
    let stopped = connect(&socket, "slow");
    let (other, counter) = reads(connect(&socket, "slow"));
    let mut said = Vec::new();
    for n in 0..ALL {
        match socket.event(&record(n, 10_000, Part::WHOLE)) {
            Ok(()) => {}
            Err(SinkError::Effect(e)) => said.push(e.to_string()),
            Err(e) => panic!("{e}"),
        }
        socket.batch_end().unwrap();
        // The other one keeps up.
        testing::eventually("it is read", testing::HANG_LIMIT, || counter.load(Ordering::SeqCst) == n + 1);
    }
    assert_eq!(said.len(), 1, "{said:?}");
    // It goes on.
    let (stopped, counter) = reads(stopped);
    testing::eventually("half of its queue is free", testing::HANG_LIMIT, || {
        counter.load(Ordering::SeqCst) > 300
    });
    send(&mut socket, ALL, 1);
    socket.event(&Event::End { status: 0 }).unwrap();
    let [stopped, other] = [stopped, other].map(|thread| thread.join().unwrap());
    assert_eq!(other.numbers, (0..=ALL).collect::<Vec<u64>>());
    assert_eq!(other.kinds, ["start", "end"]);
    let missing: u64 = stopped.missing.iter().sum();
    assert_eq!(stopped.numbers.len() as u64 + missing, ALL + 1);
    // 4 MB of 15.
    assert!((300..450).contains(&stopped.numbers.len()), "{}", stopped.numbers.len());
    assert!(stopped.numbers.is_sorted() && stopped.kinds.ends_with(&["end"]), "{:?}", stopped.kinds);
    assert_eq!(socket.losses(), [format!("{missing} events were lost to readers that took too few")]);
}

#[test]
fn a_reader_that_takes_nothing_at_the_end_is_waited_for_for_a_second_and_counted() {
    const ALL: u64 = 300;
    let mut socket = Socket::bind(path("stalled")).unwrap();
    let stopped = connect(&socket, "stalled");
    (0..ALL).for_each(|n| send(&mut socket, n, 10_000));
    assert!(socket.losses().is_empty());
    socket.event(&Event::End { status: 0 }).unwrap();
    let [lost] = &socket.losses()[..] else { panic!() };
    let lost: u64 = lost.split(' ').next().unwrap().parse().unwrap();
    let got = read(stopped, &AtomicU64::new(0));
    // Of one that it has in part, and of the end.
    let (got, all) = (got.numbers.len() as u64, ALL + 1);
    assert!(lost > 0 && (all..all + 2).contains(&(got + lost)), "{got} + {lost}");
}

#[test]
fn a_reader_that_goes_is_no_loss_and_leaves_its_place() {
    let mut socket = Socket::bind(path("gone")).unwrap();
    let first = connect(&socket, "gone");
    (0..400).for_each(|n| send(&mut socket, n, 10_000));
    drop(first);
    testing::eventually("it is no reader", testing::HANG_LIMIT, || socket.readers() == 0);
    (400..2000).for_each(|n| send(&mut socket, n, 10_000));
    let all: Vec<_> = (0..16).map(|_| reads(connect(&socket, "gone")).0).collect();
    // One more is told so.
    let got = read(UnixStream::connect(path("gone")).unwrap(), &AtomicU64::new(0));
    assert_eq!((got.kinds, got.numbers.len()), (vec!["notice"], 0));
    send(&mut socket, 2000, 10);
    socket.event(&Event::End { status: 0 }).unwrap();
    assert!(all.into_iter().all(|thread| thread.join().unwrap().numbers == [2000]));
    assert!(socket.losses().is_empty());
}

#[test]
fn a_result_that_is_too_large_is_lost_and_those_before_and_after_it_are_not() {
    let mut socket = Socket::bind(path("large")).unwrap();
    let (thread, counter) = reads(connect(&socket, "large"));
    socket.event(&record(1, 10, Part::WHOLE)).unwrap();
    let part = |n| Part { first: n == 0, last: n == 70 };
    // More than 64 MB.
    let said: Vec<_> = (0..=70).map(|n| socket.event(&record(2, 1 << 20, part(n)))).collect();
    assert_eq!(said.iter().filter(|done| done.is_err()).count(), 1);
    send(&mut socket, 3, 10);
    testing::eventually("it is read", testing::HANG_LIMIT, || counter.load(Ordering::SeqCst) == 2);
    socket.event(&Event::End { status: 0 }).unwrap();
    let got = thread.join().unwrap();
    assert_eq!((got.numbers, got.missing), (vec![1, 3], vec![71]));
    assert_eq!(socket.losses(), ["71 events were lost to readers that took too few"]);
}
