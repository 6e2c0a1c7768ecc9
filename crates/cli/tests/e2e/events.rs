//! The events of a session for others: `-x events=unix:PATH`, `--format events=FILE` and `--events`.

use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dtrace::events::{Event, ReadError, Reader};
use testing::{HANG_LIMIT, eventually};

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, finish, printed, printed_more, signal, start, workload};

tests! {
    readers_have_the_events_of_a_session_from_when_they_join
    a_reader_that_stops_reading_loses_what_is_counted_and_the_session_goes_on
    a_socket_that_a_session_has_left_is_replaced
    what_no_socket_can_be_is_refused_at_the_start
    stored_events_are_printed_as_the_session_has_printed_them
}

/// A system call that nobody else makes: the id of a session that does not exist.
const NOBODY: i32 = 0x7ead_0000;

fn call(id: i32, times: u32) {
    // SAFETY: a plain system call, without an effect.
    (0..times).for_each(|_| _ = unsafe { libc::getsid(id) });
}

/// Counts calls, and ends at so many.
fn script(id: i32, action: &str, end: u32) -> String {
    format!(
        "syscall::getsid:entry /arg0 == {id}/ {{ this->n = n++; {action}; @calls = count(); }} \
         syscall::getsid:entry /arg0 == {id} && n == {end}/ {{ exit(0); }} BEGIN {{ printf(\"ready\"); }}"
    )
}

/// The length of the text of so many numbers from 0 on.
fn digits(numbers: u32) -> i32 {
    (0..numbers).map(|n| n.to_string().len() as i32).sum()
}

/// A reader that prints JSON, once it has the start of the session.
fn reader(address: &str) -> Child {
    let mut child = start(&["-q", "--format", "json", "--events", address]);
    printed(&mut child);
    child
}

/// The numbers of the records that were printed as JSON, and what the aggregation has.
fn of_json(text: &str) -> (Vec<u64>, String) {
    let number = |line: &str| {
        let rest = line.split_once("\"value\":")?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    // That of exit() has a number too.
    let is_record = |line: &&str| line.contains("\"event\":\"record\"") && !line.contains("\"exit\"");
    let records = text.lines().filter(is_record);
    let aggregations = text.lines().filter(|line| line.contains("\"event\":\"aggregation\""));
    (records.filter_map(number).collect(), aggregations.collect())
}

fn readers_have_the_events_of_a_session_from_when_they_join() -> Verdict {
    let dir = testing::dir::Dir::new("events-readers");
    let path = dir.join("socket");
    let address = format!("unix:{}", path.display());
    let mut session =
        start(&["-q", &format!("-xevents={address}"), "-n", &script(NOBODY, "trace(this->n)", 300)]);
    printed(&mut session);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let first = reader(&address);
    call(NOBODY, 100);
    let (mut killed, second) = (reader(&address), reader(&address));
    call(NOBODY, 100);
    // Readers have had what the session has printed: the first hundred numbers, and more.
    printed_more(&mut session, "ready".len() as i32 + digits(100));
    killed.kill().unwrap();
    finish(killed);
    let third = reader(&address);
    call(NOBODY, 100);
    let o = finish(session).code(0);
    assert_eq!((o.last_number(), o.err.as_str()), (300, ""), "{}", o.out);
    for (reader, least, most) in [(first, 0, 0), (second, 0, 100), (third, 100, 200)] {
        let o = finish(reader).code(0);
        let (numbers, aggregation) = of_json(&o.out);
        let from = numbers[0];
        // How much was delivered when it joined is not known; nothing is missing after that.
        assert!((least..=most).contains(&from), "{from}");
        assert_eq!(numbers, (from..300).collect::<Vec<u64>>(), "{}", o.err);
        assert!(aggregation.contains("300"), "{aggregation}");
        assert!(o.out.lines().next().unwrap().contains("\"event\":\"start\""), "{}", o.out);
        assert_eq!(o.err, "");
    }
    assert!(!path.exists());
    Pass
}

/// Reads all: the numbers of records, of those that are missing, and whether the end was there.
fn read_all(stream: UnixStream, counter: &AtomicU64) -> (u64, u64, bool) {
    let mut reader = Reader::new(stream);
    let (mut missing, mut has_ended) = (0, false);
    loop {
        match reader.next_event() {
            Ok(Some(Event::Record(_))) => _ = counter.fetch_add(1, Ordering::SeqCst),
            Ok(Some(Event::Notice(notice))) if notice.text.contains("missing here") => {
                missing += notice.text.split(' ').next().unwrap().parse::<u64>().unwrap();
            }
            Ok(Some(Event::End { .. })) => has_ended = true,
            Ok(Some(_)) => {}
            Ok(None) | Err(ReadError::Truncated) => break,
            Err(e) => panic!("{e}"),
        }
    }
    (counter.load(Ordering::SeqCst), missing, has_ended)
}

fn a_reader_that_stops_reading_loses_what_is_counted_and_the_session_goes_on() -> Verdict {
    const ALL: u32 = 900;
    let dir = testing::dir::Dir::new("events-slow");
    let path = dir.join("socket");
    let events = format!("-xevents=unix:{}", path.display());
    let id = NOBODY + 1;
    // 7.2 MB, of which 4 wait.
    let script = script(id, "tracemem(curthread, 8000)", ALL);
    let words = ["-xquiet", &events, "-xswitchrate=10ms", "-n", &script];
    let mut session = start(&words);
    printed(&mut session);
    // What it prints is read, too.
    let mut out = session.stdout.take().unwrap();
    let printed = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()).unwrap());
    // A reader has the head of its stream when it is one.
    let connect = || {
        let stream = UnixStream::connect(&path).unwrap();
        let mut head = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one element.
        eventually("it is a reader", HANG_LIMIT, || unsafe { libc::poll(&raw mut head, 1, 0) } == 1);
        stream
    };
    let (stopped, other) = (connect(), connect());
    let counts = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let reads = |stream, count: &Arc<AtomicU64>| {
        let count = count.clone();
        std::thread::spawn(move || read_all(stream, &count))
    };
    let other = reads(other, &counts[1]);
    let seen = |n: u32| {
        eventually("it is read", HANG_LIMIT, || counts[1].load(Ordering::SeqCst) >= u64::from(n));
    };
    for n in (50..ALL).step_by(50) {
        call(id, 50);
        seen(n);
    }
    let stopped = reads(stopped, &counts[0]);
    eventually("half of its queue is free", HANG_LIMIT, || counts[0].load(Ordering::SeqCst) > 280);
    call(id, 50);
    let (records, missing, has_ended) = other.join().unwrap();
    // The record of the end has a field, too.
    assert_eq!((records, missing, has_ended), (u64::from(ALL) + 1, 0, true));
    let (records, missing, has_ended) = stopped.join().unwrap();
    assert!(has_ended && missing > 200, "{records} and {missing}");
    assert_eq!(records + missing, u64::from(ALL) + 1);
    let o = finish(session).code(0);
    assert!(printed.join().unwrap() > 0);
    let said = o.err.matches("a reader takes too few events and loses some, which are counted").count();
    assert_eq!(said, 1, "{}", o.err);
    Pass
}

fn a_socket_that_a_session_has_left_is_replaced() -> Verdict {
    let dir = testing::dir::Dir::new("events-stale");
    let path = dir.join("socket");
    let events = format!("-xevents=unix:{}", path.display());
    for signalled in [libc::SIGKILL, libc::SIGINT] {
        let mut session = start(&["-q", &events, "-n", "BEGIN { trace(1); }"]);
        printed(&mut session);
        let address = format!("unix:{}", path.display());
        let reader = reader(&address);
        // The socket of a session that runs stays.
        let o = dtrace(&["-q", &events, "-n", "BEGIN { exit(0); }"]).code(1);
        assert!(o.err.contains("Address already in use"), "{}", o.err);
        signal(&session, signalled);
        finish(session);
        let o = finish(reader);
        let is_killed = signalled == libc::SIGKILL;
        assert_eq!(o.code, Some(i32::from(is_killed)), "{}", o.err);
        assert_eq!(o.err.contains("they end before the session does"), is_killed, "{}", o.err);
        assert_eq!(path.exists(), is_killed);
    }
    Pass
}

fn what_no_socket_can_be_is_refused_at_the_start() -> Verdict {
    let dir = testing::dir::Dir::new("events-refused");
    let path = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    let _listener = UnixListener::bind(path("there")).unwrap();
    std::fs::write(path("file"), "text").unwrap();
    let (long, there) = (path(&"x".repeat(120)), path("there"));
    let refused = |words: &[&str], said: &str| {
        let o = dtrace(&[&["-q", "-n", "BEGIN { @ = count(); trace(1); exit(0); }"], words].concat()).code(1);
        assert!(o.err.contains(said) && o.out.is_empty(), "{words:?}: {}", o.err);
    };
    let events = |path: &str| format!("-xevents=unix:{path}");
    refused(&[&events(&long)], "the path of a socket has at most 107 bytes");
    refused(&[&events(&path("no/socket"))], "No such file or directory");
    refused(&[&events(&path("file"))], "a file is there that is no socket");
    refused(&[&events(&there)], "Address already in use");
    refused(&["-xevents=there"], "it takes a socket, as in unix:/run/dtrace.events");
    let twice = "a file can be written once: name another one";
    refused(&[&events(&path("a")), &format!("-xlisten=unix:{}", path("a"))], twice);
    refused(&[&events(&path("a")), "-o", &path("a")], twice);
    refused(&[&events(&path("a")), "--format", &format!("json={}", path("a"))], twice);
    refused(&["--events", &path("file")], "--events prints the events of a session and traces nothing");
    assert_eq!(std::fs::read(path("file")).unwrap(), b"text");
    for (from, said) in [(path("file"), "not a stream of events"), (path("no"), "No such file or directory")]
    {
        let o = dtrace(&["--events", &from]).code(1);
        assert!(o.err.contains(&format!("failed to read the events of '{from}': {said}")), "{}", o.err);
    }
    Pass
}

fn stored_events_are_printed_as_the_session_has_printed_them() -> Verdict {
    let dir = testing::dir::Dir::new("events-stored");
    let path = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    let words = workload("getppid", 40);
    let script = "syscall::getppid:entry /pid == $target/ { this->n = n++; trace(this->n); @[this->n % 4] = count(); @q = quantize(this->n); }";
    let file = path("a.events");
    let json = format!("json={}", path("direct"));
    let session = dtrace(&["-q", "--to", &file, "--format", &json, "-c", &words, "-n", script]).code(0);
    let o = dtrace(&["-q", "--events", &file]).code(0);
    assert_eq!((&o.out, o.err.as_str()), (&session.out, ""));
    let again = format!("json={}", path("again"));
    let o = dtrace(&["-q", "--events", &file, "--format", "csv", "--format", &again]).code(0);
    assert_eq!(o.out.lines().filter(|line| line.contains("getppid")).count(), 40, "{}", o.out);
    assert_eq!(std::fs::read(path("again")).unwrap(), std::fs::read(path("direct")).unwrap());
    // The first half of them.
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(path("half"), &bytes[..bytes.len() / 2]).unwrap();
    let o = dtrace(&["-q", "--events", &path("half")]).code(1);
    assert!(o.err.contains("ends within a frame") || o.err.contains("they end before"), "{}", o.err);
    assert!(!o.out.is_empty() && session.out.starts_with(o.out.trim_end()), "{}", o.out);
    Pass
}
