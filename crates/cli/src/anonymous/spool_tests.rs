//! What a session keeps, and how it ends.

use std::borrow::Cow;

use dtrace::events::{Action, Calls, Field, Firing, Part, Probe, Reader, Record, Value};

use super::*;

const NO: fn() -> bool = || false;

fn record(name: &str, part: Part, bytes: usize) -> Event<'static> {
    let names = ["test", "", "", name].map(std::sync::Arc::from);
    let probe = Cow::Owned(std::sync::Arc::new(Probe::new(1, names, Calls::None)));
    let action = Action::Trace(Value::Bytes(vec![7; bytes].into()));
    let fields = vec![Field { name: "".into(), action }];
    Event::Record(Record { firing: Firing::new(1, 3, 1, probe), part, fields })
}

fn part(name: &str, first: bool, last: bool) -> Event<'static> {
    record(name, Part { first, last }, CHUNK / 2)
}

/// The events that were kept, as the names of their probes, and the drops.
fn kept(places: &Places) -> (Vec<String>, u64) {
    let (mut file, _) = recordings::left(places).unwrap().unwrap();
    file.read_exact(&mut [0; super::super::head::LENGTH]).unwrap();
    let (mut reader, mut all, mut drops) = (Reader::new(file), Vec::new(), 0);
    while let Some(event) = reader.next_event().unwrap() {
        match event {
            Event::Record(record) => all.push(record.firing.probe.name.to_string()),
            Event::Drop(drop) => drops += drop.count,
            _ => {}
        }
    }
    (all, drops)
}

#[test]
fn a_result_in_many_parts_is_not_held_in_memory_and_is_kept_as_a_whole_or_counted() {
    let dir = testing::dir::Dir::new("spool-parts");
    let places = Places::under(&dir);
    let mut spool = Spool::new(&places, 1 << 20).unwrap();
    spool.event(&record("whole", Part::WHOLE, 8)).unwrap();
    // It fits.
    for n in 0..10 {
        spool.event(&part("fits", n == 0, n == 9)).unwrap();
        assert!(spool.encoder.get_ref().len() < 2 * CHUNK);
    }
    // It does not.
    for n in 0..100 {
        spool.event(&part("too long", n == 0, n == 99)).unwrap();
        assert!(spool.encoder.get_ref().len() < 2 * CHUNK);
        assert!(spool.shared.lock().log.space() <= (1 << 20) + CHUNK as u64);
    }
    // There is space again.
    spool.event(&record("after", Part::WHOLE, 8)).unwrap();
    spool.batch_end().unwrap();
    spool.finish_within(TURN, NO).unwrap();
    drop(spool);
    let (all, drops) = kept(&places);
    let fits = vec!["fits".to_owned(); 10];
    assert_eq!((all, drops), ([&["whole".to_owned()], &fits[..], &["after".to_owned()]].concat(), 1));
}

/// A claim, as far as the session sees it.
fn claim(places: &Places) -> UnixStream {
    let mut stream = UnixStream::connect(places.socket()).unwrap();
    stream.read_exact(&mut [0; super::super::head::LENGTH]).unwrap();
    stream.write_all(&[CLAIM]).unwrap();
    stream
}

#[test]
fn a_claim_that_reads_nothing_does_not_hold_up_the_end_of_the_system() {
    let dir = testing::dir::Dir::new("spool-stopped");
    let places = Places::under(&dir);
    let mut spool = Spool::new(&places, 64 << 20).unwrap();
    let stopped = claim(&places);
    // More than a socket has.
    for _ in 0..200 {
        spool.event(&record("more", Part::WHOLE, CHUNK)).unwrap();
    }
    testing::eventually("it is claimed", TURN * 30, || spool.shared.lock().claimed);
    let why = spool.finish_within(Duration::from_millis(50), || true).unwrap_err();
    assert!(why.contains("bytes that were recorded are lost"), "{why}");
    drop(stopped);
}

#[test]
fn a_disk_that_is_full_is_tried_less_and_less_often_and_one_that_is_not_there_is_not() {
    let mut pauses = vec![Duration::ZERO];
    for _ in 0..9 {
        pauses.push(pause_after(ErrorKind::StorageFull, *pauses.last().unwrap()));
    }
    assert_eq!(pauses.iter().map(Duration::as_secs).collect::<Vec<_>>(), [0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
    assert_eq!(pause_after(ErrorKind::ReadOnlyFilesystem, LONGEST_PAUSE), Duration::ZERO);
}
