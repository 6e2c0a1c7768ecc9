//! What a client may take, and what a request costs.

use std::process::Command;

use super::*;

#[test]
fn too_few_descriptors_are_named_as_the_reason_why_there_are_no_symbols() {
    let text = cannot_begin(&io::Error::from_raw_os_error(libc::EMFILE));
    assert!(text.contains("(Too many open files: raise `ulimit -n`)"), "{text}");
    assert!(cannot_begin(&io::Error::other("x")).contains("symbols (x): addresses"));
}

#[test]
fn an_answer_of_more_bytes_than_half_the_memory_of_a_reader_is_refused() {
    let limits = |memory| Limits::of_time(Duration::from_secs(2), memory);
    let packet = Response::Frames(vec![7; 1000]).encode();
    let end = Response::End(None).encode();
    let bytes = 3 * packet.len() as u64 + end.len() as u64;
    let answered = |memory| {
        let packets = [&packet[..], &packet, &packet, &end];
        Reader::answered(limits(memory), &packets).unwrap().query(&Request::Frames(None), &[])
    };
    assert_eq!(answered(PART * bytes).unwrap().0.len(), 3);
    assert_eq!(answered(PART * bytes - 1).unwrap_err(), RequestError::Failed);
}

/// A reader that never answers, and runs this command of a shell.
fn silent(limits: Limits, command: &str) -> RequestError {
    let mut reader = Reader::answered(limits, &[]).unwrap();
    let child = Command::new("sh").args(["-c", command]).spawn().unwrap();
    reader.lease.as_mut().unwrap().process.as_mut().unwrap().child = Some(child);
    reader.query(&Request::Frames(None), &[]).unwrap_err()
}

#[test]
fn a_reader_that_works_is_ended_by_its_cpu_time_and_one_that_waits_by_the_time() {
    let (short, long) = (Duration::from_millis(20), Duration::from_secs(3600));
    let works = silent(Limits { work: short, wait: long, memory: 1 << 20 }, "while :; do :; done");
    assert_eq!(works, RequestError::Working);
    let waits = silent(Limits { work: long, wait: short, memory: 1 << 20 }, "exec sleep 3600");
    assert_eq!(waits, RequestError::Timeout);
    let limits = Limits::of_work(Duration::from_secs(2), 1 << 20);
    assert_eq!(limits.exceeded(works), "more than 2000 ms of CPU time (option symtimeout)");
    assert_eq!(limits.exceeded(waits), "longer than 20000 ms, 10 times the option symtimeout");
    assert_eq!(Limits::of_time(short, 1).exceeded(waits), "longer than 20 ms");
}

#[test]
fn work_costs_more_than_the_time_that_others_take() {
    let seconds = Duration::from_secs;
    let limits = Limits::of_work(seconds(2), 1);
    assert_eq!(limits.cost(seconds(20), seconds(1)), seconds(10));
    assert_eq!(limits.cost(seconds(2), seconds(2)), seconds(2));
    assert_eq!(Limits::of_time(seconds(2), 1).cost(seconds(2), seconds(1)), seconds(2));
}

#[test]
fn a_wait_for_a_reader_that_was_in_vain_costs_half_of_its_time() {
    let millis = Duration::from_millis;
    let mut reader = Reader::new(&Readers::new(), Limits::of_work(millis(20), 1 << 20));
    let need = Need { memory: 1 << 20, background: false, file: None };
    let pool = reader.readers.pool().clone();
    let held: Vec<Lease> = std::iter::from_fn(|| pool.clone().lease(need, || false)).collect();
    assert!(!held.is_empty());
    let (before, begun) = (reader.budget.left, Instant::now());
    assert_eq!(reader.query(&Request::Frames(None), &[]).unwrap_err(), RequestError::Unavailable);
    let spent = before - reader.budget.left;
    assert!(spent >= 0.1 && spent <= begun.elapsed().as_secs_f64() / 2.0, "{spent}");
}

#[test]
fn a_budget_is_spent_and_recovers_slowly() {
    let (deadline, begun) = (Duration::from_secs(2), Instant::now());
    let mut budget = Budget { refilled: begun, ..Budget::new(deadline) };
    let at = |seconds| begun + Duration::from_secs(seconds);
    for n in 0..10 {
        assert_eq!(budget.rest(deadline, begun), Some(Duration::from_secs(20 - 2 * n)));
        budget.spend(deadline);
    }
    assert_eq!(budget.rest(deadline, begun), None);
    // A wait of the free time costs nothing.
    assert_eq!(budget.rest(deadline, at(1)), None);
    assert!(budget.rest(deadline, at(3)).is_some());
    // Work that exceeds the refilled budget makes it negative.
    budget.spend(deadline);
    assert_eq!(budget.rest(deadline, at(4)), None);
    assert_eq!(budget.rest(deadline, at(58)), None);
    assert!(budget.rest(deadline, at(63)).is_some());
    // The budget never exceeds its initial value.
    assert_eq!(budget.rest(deadline, at(1_000_000)), Some(10 * deadline));
}

#[test]
fn waits_become_shorter_and_leave_budget_for_other_files() {
    let millis = Duration::from_millis;
    let limits = Limits::of_work(millis(100), 1 << 20);
    let mut reader = Reader::new(&Readers::new(), limits);
    let mut wait = || {
        let rest = reader.budget.rest(limits.work, reader.budget.refilled).unwrap();
        let wait = limits.wait.min(rest);
        reader.budget.spend(limits.cost(wait, millis(1)));
        wait.as_millis()
    };
    assert_eq!([wait(), wait(), wait(), wait()], [1000, 500, 250, 125]);
}
