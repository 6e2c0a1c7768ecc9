//! Sequences of records and readings.

use super::super::changes::{Change, Cursor};
use super::super::record::BuildId;
use super::*;
use crate::maps::{MappedFile, Mapping as ReadMapping};

const S: u64 = 1_000_000_000;

fn table() -> Table {
    Table::new(Limits::default())
}

fn at(time: u64, event: Event) -> Record {
    Record { time, event }
}

fn fork(time: u64, pid: u32, ppid: u32) -> Record {
    at(time, Event::Fork { pid, tid: pid, ppid })
}

fn exec(time: u64, pid: u32, name: &str) -> Record {
    at(time, Event::Comm { pid, tid: pid, exec: true, name: name.into() })
}

fn exit(time: u64, pid: u32) -> Record {
    at(time, Event::Exit { pid, tid: pid })
}

fn map(time: u64, pid: u32, start: u64, end: u64, path: &str) -> Record {
    let file = FileIdentity::BuildId(BuildId::new(path.as_bytes()).unwrap());
    at(time, Event::Map { pid, start, end, offset: start, file, path: path.into() })
}

fn seen(start: u64, mappings: &[(u64, u64, &str)]) -> Observation {
    let mut seen = Observation { start, parent: 1, name: b"seen".to_vec(), ..Observation::default() };
    for (n, (start, end, path)) in mappings.iter().enumerate() {
        let (start, end, offset) = (*start, *end, *start);
        seen.map.mappings.push(ReadMapping {
            start,
            end,
            offset,
            backing: Backing::File(n as u32),
            is_code: true,
        });
        seen.map.files.push(MappedFile { dev: (8, 1), inode: n as u64 + 1, path: path.as_bytes().into() });
    }
    seen
}

/// The path at an address of the newest image that has it.
fn path(t: &Table, pid: u32, addr: u64) -> Option<String> {
    let found = t.images(pid).iter().rev().find_map(|i| i.find(addr))?;
    match &found.object {
        Object::File(file) => Some(String::from_utf8_lossy(&file.path).into_owned()),
        other => Some(format!("{other:?}")),
    }
}

#[test]
fn the_end_of_a_process_of_which_nothing_is_known_is_told_once() {
    let mut t = table();
    let mut cursor = Cursor::default();
    // One of its other threads, and its first one.
    for record in [at(S, Event::Exit { pid: 10, tid: 11 }), exit(2 * S, 10)] {
        t.apply(record);
    }
    let told = t.log.read(&mut cursor).list;
    assert!(matches!(told[..], [Change::Ended { pid: 10, image: NO_IMAGE }]), "{told:?}");
    assert!(t.images(10).is_empty());
}

#[test]
fn a_child_has_the_mappings_of_its_parent_until_it_executes_a_program() {
    let mut t = table();
    t.observed(10, seen(0, &[(100, 200, "/bin/sh")]), S);
    for record in [fork(S, 11, 10), exec(2 * S, 11, "ls"), map(2 * S, 11, 300, 400, "/bin/ls")] {
        t.apply(record);
    }
    assert_eq!(path(&t, 11, 150).as_deref(), Some("/bin/sh"));
    assert_eq!(path(&t, 11, 350).as_deref(), Some("/bin/ls"));
    assert_eq!(path(&t, 10, 350), None);
    let [before, after] = t.images(11) else { panic!("{:?}", t.images(11)) };
    assert_eq!((before.generation.execs, after.generation.execs), (0, 1));
    assert_eq!((before.ended, after.ended), (Some(2 * S), None));
    assert_eq!((before.parent, after.parent, &after.name[..]), (10, 10, &b"ls"[..]));
    assert_eq!(before.generation.start, after.generation.start);
}

#[test]
fn a_process_that_ended_keeps_its_mappings_and_a_reused_pid_has_its_own() {
    let mut t = table();
    for record in [fork(S, 11, 10), map(S, 11, 100, 200, "/one"), exit(2 * S, 11)] {
        t.apply(record);
    }
    assert_eq!(path(&t, 11, 100).as_deref(), Some("/one"));
    assert_eq!(t.running().count(), 0);
    for record in [fork(9 * S, 11, 10), map(9 * S, 11, 300, 400, "/two")] {
        t.apply(record);
    }
    assert_eq!(path(&t, 11, 100).as_deref(), Some("/one"));
    assert_eq!(path(&t, 11, 300).as_deref(), Some("/two"));
    assert_ne!(t.images(11)[0].generation, t.images(11)[1].generation);
}

#[test]
fn the_image_at_a_time_is_the_one_that_ran_then() {
    let mut t = table();
    for record in [
        fork(10, 11, 10),
        map(10, 11, 100, 200, "/same"),
        exec(20, 11, "b"),
        map(20, 11, 100, 200, "/same"),
        exit(30, 11),
        fork(9 * S, 11, 10),
    ] {
        t.apply(record);
    }
    let at = |t: &Table, time| {
        t.image_at(11, time).map(|i| (i.generation, i.find(150).is_some(), i.ended.is_some()))
    };
    let first = |execs| Generation { start: 10, execs };
    assert_eq!(at(&t, 9), None, "before the process");
    assert_eq!(at(&t, 10), Some((first(0), true, true)));
    assert_eq!(at(&t, 19), Some((first(0), true, true)));
    assert_eq!(at(&t, 20), Some((first(1), true, true)));
    assert_eq!(at(&t, 30), None, "between two processes of the pid");
    assert_eq!(at(&t, 10 * S), Some((Generation { start: 9 * S, execs: 0 }, false, false)));
    // An image whose beginning was not seen ran before.
    t.apply(map(40, 12, 100, 200, "/x"));
    assert!(t.image_at(12, 1).is_some());
    // One that was dropped is not taken for the next.
    t.limits.images = 1;
    t.trim(9 * S);
    assert_eq!(at(&t, 15), None);
}

#[test]
fn a_mapping_replaces_what_it_overlaps_and_the_parts_keep_their_offsets() {
    let mut t = table();
    for record in [map(1, 5, 0x1000, 0x9000, "/a"), map(2, 5, 0x3000, 0x5000, "/b")] {
        t.apply(record);
    }
    let list: Vec<_> = t.images(5)[0].mappings().map(|m| (m.start, m.end, m.offset)).collect();
    assert_eq!(list, [(0x1000, 0x3000, 0x1000), (0x3000, 0x5000, 0x3000), (0x5000, 0x9000, 0x5000)]);
    t.apply(map(3, 5, 0x2000, 0x6000, "/c"));
    t.apply(map(4, 5, 0, 0x1_0000, "/d"));
    let list: Vec<_> = t.images(5)[0].mappings().map(|m| (m.start, m.end)).collect();
    assert_eq!(list, [(0, 0x1_0000)]);
}

#[test]
fn a_child_inherits_what_its_parent_is_found_to_have_had_at_the_fork() {
    let mut t = table();
    for record in [fork(2 * S, 11, 10), map(2 * S + 1, 11, 300, 400, "/own"), exec(3 * S, 11, "x")] {
        t.apply(record);
    }
    assert!(!t.inherit(11, 10, 2 * S), "nothing is known of the parent");
    t.observed(10, seen(S, &[(100, 200, "/bin/sh"), (250, 350, "/lib")]), 4 * S);
    assert!(t.inherit(11, 10, 2 * S));
    let before = &t.images(11)[0];
    let starts: Vec<u64> = before.mappings().map(|m| m.start).collect();
    assert_eq!((starts, before.find(320).map(|m| m.start)), (vec![100, 250, 300], Some(300)));
    assert!(t.images(11)[1].mappings().next().is_none());
    // What the parent executes later is not the child's.
    for record in
        [fork(S, 20, 1), map(2 * S, 20, 300, 400, "/lib"), fork(5 * S, 12, 20), exec(6 * S, 20, "later")]
    {
        t.apply(record);
    }
    t.observed(20, seen(S, &[(100, 200, "/later")]), 7 * S);
    assert!(!t.inherit(12, 20, 5 * S), "what was mapped before the watch began is not known");
    assert_eq!((path(&t, 12, 150), path(&t, 12, 320).as_deref()), (None, Some("/lib")));
}

#[test]
fn records_before_the_fork_of_their_process_are_kept_when_it_arrives() {
    let mut t = table();
    t.apply(map(S, 10, 100, 200, "/parent"));
    for record in [map(S + 5, 11, 300, 400, "/own"), fork(S + 2, 11, 10)] {
        t.apply(record);
    }
    assert_eq!(t.images(11).len(), 1);
    assert_eq!(path(&t, 11, 150).as_deref(), Some("/parent"));
    assert_eq!(path(&t, 11, 350).as_deref(), Some("/own"));
}

#[test]
fn a_reading_and_the_records_of_the_same_time_agree_in_any_order() {
    let records = [fork(S, 11, 10), exec(S + 10, 11, "x"), map(S + 20, 11, 300, 400, "/x")];
    for split in 0..=records.len() {
        let mut t = table();
        records[..split].iter().for_each(|r| t.apply(r.clone()));
        // /proc shows the start to a clock tick.
        t.observed(11, seen(S - 7_000_000, &[(300, 400, "/x")]), S + 30);
        records[split..].iter().for_each(|r| t.apply(r.clone()));
        assert_eq!(path(&t, 11, 350).as_deref(), Some("/x"), "{split}");
        assert_eq!(t.running().count(), 1, "{split}");
        t.apply(exit(2 * S, 11));
        assert_eq!(t.running().count(), 0, "{split}");
    }
}

#[test]
fn a_reading_finds_an_exec_and_a_reused_pid_that_were_lost() {
    let mut t = table();
    t.apply(fork(S, 11, 10));
    t.apply(map(S, 11, 100, 200, "/one"));
    t.observed(11, seen(S, &[(500, 600, "/two")]), 2 * S);
    assert_eq!(t.images(11).len(), 2);
    assert_eq!(t.images(11)[1].generation.execs, 1);
    t.observed(11, seen(5 * S, &[(500, 600, "/two")]), 9 * S);
    assert_eq!(t.images(11).len(), 3);
    assert_eq!(t.images(11)[2].generation, Generation { start: 5 * S, execs: 0 });
    // The same program with one more library, and one that was unloaded.
    t.observed(11, seen(5 * S, &[(500, 600, "/two"), (700, 800, "/lib")]), 9 * S);
    t.observed(11, seen(5 * S, &[(500, 600, "/two")]), 9 * S);
    assert_eq!(t.images(11).len(), 3);
    assert_eq!(path(&t, 11, 750).as_deref(), Some("/lib"));
}

#[test]
fn a_process_whose_first_thread_has_ended_goes_on() {
    let mut t = table();
    for record in [fork(S, 11, 10), exit(2 * S, 11), map(3 * S, 11, 100, 200, "/later")] {
        t.apply(record);
    }
    assert_eq!(t.images(11).len(), 1);
    assert_eq!(t.running().count(), 1);
    // An exec of another thread: the first thread ends, the process has the program.
    for record in [exit(4 * S, 11), exec(4 * S, 11, "new")] {
        t.apply(record);
    }
    assert_eq!(t.images(11).len(), 2);
    assert_eq!(t.images(11)[1].generation, Generation { start: S, execs: 1 });
}

#[test]
fn a_process_whose_first_thread_has_ended_ends_with_its_last_thread() {
    let mut t = table();
    let other = |time| at(time, Event::Exit { pid: 11, tid: 12 });
    for record in [fork(S, 11, 10), other(2 * S), exit(3 * S, 11), map(4 * S, 11, 100, 200, "/later")] {
        t.apply(record);
    }
    assert_eq!(t.running().count(), 1);
    t.apply(other(5 * S));
    assert_eq!(t.running().count(), 0);
    // What another CPU had written before the end.
    t.apply(map(5 * S - 1, 11, 300, 400, "/late"));
    assert_eq!(t.running().count(), 0);
}

#[test]
fn threads_and_processes_of_other_namespaces_are_ignored() {
    let mut t = table();
    t.apply(at(1, Event::Fork { pid: 11, tid: 12, ppid: 11 }));
    t.apply(at(1, Event::Exit { pid: 11, tid: 12 }));
    for pid in [0, u32::MAX] {
        t.apply(fork(1, pid, 1));
        t.apply(map(1, pid, 100, 200, "/x"));
        t.apply(exec(1, pid, "x"));
        t.apply(exit(1, pid));
    }
    assert_eq!(t.processes.len(), 0);
}

#[test]
fn ended_images_are_kept_for_a_limited_time_and_number() {
    let limits = Limits { images: 3, time: 10 * S, ..Limits::default() };
    let mut t = Table::new(limits);
    for pid in 1..=5 {
        t.apply(map(S, pid, 100, 200, "/x"));
        t.apply(exit(S, pid));
    }
    t.trim(S);
    let known: Vec<u32> = (1..=5).filter(|pid| !t.images(*pid).is_empty()).collect();
    assert_eq!(known, [3, 4, 5]);
    t.trim(12 * S);
    assert!(t.processes.is_empty());
    assert_eq!((t.ended.len(), t.bytes), (0, 0));
}

#[test]
fn a_process_that_executes_programs_without_end_forgets_its_own_and_an_image_has_an_eighth_of_the_bytes() {
    let most = Limits::default().programs;
    let mut t = table();
    t.apply(map(S, 1, 100, 200, "/of-another"));
    t.apply(exit(S, 1));
    for n in 0..2 * most as u64 {
        t.apply(map((n + 2) * S, 2, 100, 200, "/own"));
        t.apply(exec((n + 2) * S, 2, "again"));
    }
    assert_eq!((t.images(2).len(), path(&t, 1, 100).as_deref()), (most + 1, Some("/of-another")));

    let mut t = Table::new(Limits { bytes: 1 << 16, ..Limits::default() });
    t.apply(map(S, 1, 100, 200, "/of-another"));
    (1..1000).for_each(|n| t.apply(map(S, 2, n << 12, (n + 1) << 12, "/own")));
    let own = t.bytes - t.images(1)[0].bytes;
    assert!((1 << 12..=1 << 13).contains(&own), "{own}");
    assert_eq!(path(&t, 1, 100).as_deref(), Some("/of-another"));
}

#[test]
fn processes_whose_end_was_lost_are_ended_when_they_do_not_exist() {
    let mut t = table();
    for pid in [11, 12, 13] {
        t.apply(fork(S, pid, 10));
    }
    t.end_others(|pid| pid == 12, 2 * S);
    assert_eq!(t.running().map(|(pid, _)| pid).collect::<Vec<_>>(), [12]);
}

#[test]
fn a_file_is_reported_as_new_once_while_it_is_mapped() {
    let mut t = table();
    for pid in [11, 12] {
        t.apply(map(S, pid, 100, 200, "/x"));
    }
    let new: Vec<_> = t.log.read(&mut Cursor::default()).list.into_iter().filter_map(mapped).collect();
    assert_eq!(new, [(11, true), (12, false)]);
}

fn mapped(change: Change) -> Option<(u32, bool)> {
    match change {
        Change::Mapped { pid, first, .. } => Some((pid, first)),
        _ => None,
    }
}

/// What all images are charged for.
fn charged(t: &Table) -> usize {
    t.processes.values().flatten().map(|i| i.bytes).sum()
}

#[test]
fn mappings_with_long_paths_have_a_limit_in_bytes() {
    const LIMIT: usize = 1 << 20;
    let mut t = Table::new(Limits { bytes: LIMIT, ..Limits::default() });
    t.apply(map(1, 5, 0, 50, "/before"));
    t.apply(exit(2, 5));
    // Each path is a file of its own, of 4,000 bytes: 8 GB in total.
    for n in 0..2_000u64 {
        for pid in 10..30 {
            let path = format!("/{n}/{pid}/{}", "x".repeat(4000));
            let file = FileIdentity::Inode((8, 1), n);
            let event =
                Event::Map { pid, start: n * 100, end: n * 100 + 50, offset: 0, file, path: path.into() };
            t.apply(at(S, event));
        }
        assert!(t.bytes <= LIMIT, "{}", t.bytes);
    }
    assert_eq!(charged(&t), t.bytes);
    // An image has an eighth. What does not fit is counted, and ended images were dropped for it.
    assert!(t.images(10)[0].bytes <= LIMIT / 8);
    assert!(t.images(5).is_empty());
    assert!(t.take_refused() > 0);
    // A child is charged for what it shares, and has no mappings if that does not fit.
    let mut t = Table::new(Limits { bytes: 2000, ..Limits::default() });
    for n in 0..100 {
        t.apply(fork(S + n, 100 + n as u32, 10));
    }
    assert_eq!(charged(&t), t.bytes);
    for pid in 100..200 {
        t.apply(exit(2 * S, pid));
    }
    t.trim(2 * S);
    assert!(t.bytes <= 2000);
    assert_eq!(charged(&t), t.bytes);
}

#[test]
fn a_pid_that_executes_programs_without_end_keeps_the_last_ones() {
    let mut t = Table::new(Limits { programs: 3, ..Limits::default() });
    t.apply(fork(S, 11, 10));
    for n in 0..1000 {
        t.apply(exec(S + n, 11, "x"));
    }
    let execs: Vec<u32> = t.images(11).iter().map(|i| i.generation.execs).collect();
    assert_eq!(execs, [997, 998, 999, 1000]);
    t.trim(S);
    assert_eq!(charged(&t), t.bytes);
}

#[test]
fn counters_at_their_end_do_not_overflow() {
    let mut t = table();
    t.apply(fork(u64::MAX, 11, 10));
    t.current_mut(11).unwrap().generation.execs = u32::MAX;
    t.apply(exit(u64::MAX, 11));
    t.apply(exec(u64::MAX - 1, 11, "x"));
    assert_eq!(t.images(11).last().unwrap().generation.execs, u32::MAX);
    t.apply(map(u64::MAX, 11, u64::MAX - 1, u64::MAX, "/x"));
    t.apply(map(u64::MAX, 11, 0, u64::MAX, "/y"));
    assert_eq!(path(&t, 11, u64::MAX - 1).as_deref(), Some("/y"));
}

#[test]
fn an_image_has_a_limited_number_of_mappings() {
    let mut t = Table::new(Limits { each: 10, ..Limits::default() });
    for n in 0..1000 {
        t.apply(map(S, 11, n * 100, n * 100 + 50, "/x"));
    }
    assert_eq!(t.images(11)[0].mappings().count(), 10);
}

/// Records with few pids and addresses, so that they meet, encoded and partly damaged.
fn random_records(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut bytes = Vec::new();
    for time in 0..200 {
        let (pid, other) = (next(5) as u32, next(5) as u32);
        let (start, length) = (next(64), next(16) + 1);
        let time = (time * S / 4).saturating_sub(next(2) * S);
        let record = match next(8) {
            0 => fork(time, pid, other),
            1 => at(time, Event::Fork { pid, tid: other, ppid: other }),
            2 => exit(time, pid),
            3 => exec(time, pid, "x"),
            _ => map(time, pid, start, start + length, ["/a", "/b", "//anon", "[vdso]"][next(4) as usize]),
        };
        let mut encoded = super::super::record::tests::encode(record.time, &record.event);
        if next(10) == 0 {
            let at = 8 + next(encoded.len() as u64 - 8) as usize;
            encoded[at] ^= next(256) as u8;
        }
        bytes.extend(encoded);
    }
    bytes
}

#[test]
fn any_records_leave_sorted_mappings_and_one_running_image_at_most() {
    for seed in 0..300 {
        let bytes = random_records(seed);
        let (mut rest, mut records) = (&bytes[..], Vec::new());
        while let Some((record, after)) = super::super::record::parse(rest) {
            records.push(record);
            rest = after;
        }
        for (pid, images) in super::super::replay(records) {
            assert!(!images.is_empty(), "{seed} {pid}");
            for (n, image) in images.iter().enumerate() {
                let charged: usize = image.mappings().map(bytes_of).sum();
                assert_eq!(image.bytes, size_of::<Image>() + charged, "{seed} {pid}");
                assert!(image.ended.is_some() || n + 1 == images.len(), "{seed} {pid}");
                let list: Vec<_> = image.mappings().collect();
                assert!(list.iter().all(|m| m.start < m.end), "{seed} {pid} {list:?}");
                assert!(list.windows(2).all(|w| w[0].end <= w[1].start), "{seed} {pid} {list:?}");
            }
        }
    }
}
