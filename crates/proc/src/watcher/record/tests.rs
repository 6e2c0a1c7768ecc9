//! Every kind of record, whole, cut short, and damaged.

use super::*;

/// The bytes of a record.
pub(crate) fn encode(time: u64, event: &Event) -> Vec<u8> {
    let mut misc = 0;
    let mut f: Vec<u8> = Vec::new();
    let mut words = |list: &[u32]| f.extend(list.iter().flat_map(|w| w.to_ne_bytes()));
    let kind = match event {
        Event::Fork { pid, tid, ppid } => {
            words(&[*pid, *ppid, *tid, *ppid, 7, 7]);
            FORK
        }
        Event::Exit { pid, tid } => {
            words(&[*pid, 1, *tid, 1, 7, 7]);
            EXIT
        }
        Event::Comm { pid, tid, exec, name } => {
            words(&[*pid, *tid]);
            string(&mut f, name);
            misc = if *exec { MISC_COMM_EXEC } else { 0 };
            COMM
        }
        Event::Map { pid, start, end, offset, file, path } => {
            words(&[*pid, *pid]);
            f.extend([*start, end - start, *offset].iter().flat_map(|w| w.to_ne_bytes()));
            match file {
                FileIdentity::BuildId(id) => {
                    misc = MISC_BUILD_ID;
                    f.extend([id.length, 0, 0, 0]);
                    f.extend(id.bytes);
                }
                FileIdentity::Inode((major, minor), inode) => {
                    f.extend([*major, *minor].iter().flat_map(|w| w.to_ne_bytes()));
                    f.extend([*inode, 0].iter().flat_map(|w| w.to_ne_bytes()));
                }
            }
            f.extend([0; 8]);
            string(&mut f, path);
            MMAP2
        }
        Event::Lost(count) => {
            f.extend([1, *count].iter().flat_map(|w| w.to_ne_bytes()));
            LOST
        }
        Event::Other => 99,
    };
    f.extend(time.to_ne_bytes());
    let mut record = kind.to_ne_bytes().to_vec();
    record.extend(misc.to_ne_bytes());
    record.extend(((HEADER + f.len()) as u16).to_ne_bytes());
    record.extend(f);
    record
}

fn string(into: &mut Vec<u8>, text: &[u8]) {
    into.extend(text);
    into.resize((into.len() + 1).next_multiple_of(8), 0);
}

fn events() -> Vec<Event> {
    let id = BuildId::new(&[0xab; 20]).unwrap();
    let map = |file| Event::Map {
        pid: 5,
        start: 0x7f00_0000_1000,
        end: 0x7f00_0000_3000,
        offset: 0x1000,
        file,
        path: b"/usr/lib/\xff x".to_vec(),
    };
    vec![
        Event::Fork { pid: 5, tid: 6, ppid: 4 },
        Event::Exit { pid: 5, tid: 5 },
        Event::Comm { pid: 5, tid: 5, exec: true, name: b"sh".to_vec() },
        Event::Comm { pid: 5, tid: 6, exec: false, name: b"a name of 15 by".to_vec() },
        map(FileIdentity::BuildId(id)),
        map(FileIdentity::BuildId(BuildId::new(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap())),
        map(FileIdentity::Inode((8, 1), 1234)),
        Event::Lost(17),
        Event::Other,
    ]
}

#[test]
fn every_kind_of_record_is_parsed() {
    let all: Vec<u8> = events().iter().zip(100..).flat_map(|(e, time)| encode(time, e)).collect();
    let mut rest = &all[..];
    for (event, time) in events().into_iter().zip(100..) {
        let (record, after) = parse(rest).unwrap();
        assert_eq!(record, Record { time, event });
        rest = after;
    }
    assert!(rest.is_empty());
}

#[test]
fn a_record_that_is_cut_short_is_not_parsed() {
    for event in events() {
        let whole = encode(1, &event);
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), None, "{event:?} {cut}");
        }
    }
}

#[test]
fn a_record_whose_size_excludes_its_fields_is_of_an_unknown_kind() {
    for event in events() {
        let whole = encode(1, &event);
        for size in 0..whole.len() {
            let mut short = whole.clone();
            short[6..8].copy_from_slice(&(size as u16).to_ne_bytes());
            match parse(&short) {
                None => assert!(size < HEADER),
                Some((record, rest)) => {
                    assert_eq!(rest.len(), whole.len() - size);
                    // A string may be shorter than it was; fields may not.
                    let is_text = matches!(record.event, Event::Comm { .. } | Event::Map { .. });
                    let is_whole = record.event == event;
                    assert!(record.event == Event::Other || is_text || is_whole, "{record:?}");
                }
            }
        }
    }
}

#[test]
fn impossible_fields_make_a_record_of_an_unknown_kind() {
    let map = &events()[4];
    let whole = encode(1, map);
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        parse(&bytes).unwrap().0.event
    };
    assert_eq!(changed(8, &5u32.to_ne_bytes()), *map);
    // A length of zero, one that exceeds the address space, a build id of 0 or 21 bytes.
    assert_eq!(changed(24, &0u64.to_ne_bytes()), Event::Other);
    assert_eq!(changed(24, &u64::MAX.to_ne_bytes()), Event::Other);
    assert_eq!(changed(40, &[0]), Event::Other);
    assert_eq!(changed(40, &[21]), Event::Other);
}

#[test]
fn damaged_bytes_never_panic() {
    let whole: Vec<u8> = events().iter().flat_map(|e| encode(1, e)).collect();
    for at in 0..whole.len() {
        for bits in [0xff, 0x80, 1, 0x10] {
            let mut damaged = whole.clone();
            damaged[at] ^= bits;
            let mut rest = &damaged[..];
            while let Some((_, after)) = parse(rest) {
                assert!(after.len() < rest.len());
                rest = after;
            }
        }
    }
}

#[test]
fn a_build_id_has_one_to_twenty_bytes() {
    assert_eq!(BuildId::new(&[]), None);
    assert_eq!(BuildId::new(&[0; 21]), None);
    let id = BuildId::new(&[1, 0xab]).unwrap();
    assert_eq!((id.as_bytes(), format!("{id:?}")), (&[1, 0xab][..], "01ab".to_owned()));
}
