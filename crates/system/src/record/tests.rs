//! Records that are read as they were written, and files that are none.

use testing::rng::Rng;

use super::*;

fn record() -> Record {
    let mut record = Record {
        boot_id: "b".into(),
        online_cpus: vec![0, 2],
        possible_cpus: 4,
        facts: Facts { boottime: -5, page_size: 4096, cpus: vec![(0, 1), (-1, 0)], ..Facts::default() },
        clocks: vec![2000, -1],
        types: vec![("vmlinux".into(), Blob::new(*b"types")), ("nfs".into(), Blob::new(*b"more"))],
        functions: Ok(Blob::new(*b"vfs_read\n")),
        events: Ok(vec![("sched".into(), "sched_switch".into())]),
        absent_tracepoints: ["ghost".to_owned()].into(),
        missing_counters: [(0, 1), (4, u64::MAX)].into(),
        modules: ["nfs".to_owned(), "loop".to_owned()].into(),
        loaded_modules: ["nfs".to_owned()].into(),
        ..Record::default()
    };
    record.features.release = "6.1.0-x".into();
    record.features.facilities = vec![("btf".into(), Ok(())), ("fentry".into(), Err("not here".into()))];
    record.features.lockdown = Lockdown::Integrity;
    record.set_symbols("ffffffff91000000 T _text\nffffffff92000000 B _end\n");
    record.set_formats([("sched", "sched_switch", "ID: 1\n"), ("sched", "sched_wakeup", "ID: 2\n")]);
    record
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let record = record();
    let file = record.to_bytes();
    let again = Record::from_bytes(&file).unwrap();
    assert_eq!(again, record);
    assert_eq!(again.to_bytes(), file);
    let mut formats = Vec::new();
    let whole = Record::each_format(&again.formats.open().unwrap(), |_, name, text| {
        formats.push(format!("{name} {text}"))
    });
    assert!(whole);
    assert_eq!(formats, ["sched_switch ID: 1\n", "sched_wakeup ID: 2\n"]);
}

#[test]
fn what_is_no_record_is_said() {
    let file = record().to_bytes();
    let error = |bytes: &[u8]| Record::from_bytes(bytes).unwrap_err();
    assert_eq!(error(b""), RecordError::Foreign);
    assert_eq!(error(b"\x7fELF"), RecordError::Foreign);
    let mut later = file.clone();
    later[8] = 2;
    assert_eq!(error(&later), RecordError::Version(2));
    assert_eq!(error(&later).to_string(), "it is a record of version 2, and this dtrace reads version 1");
    assert_eq!(error(&vec![0; LARGEST_RECORD + 1]), RecordError::TooLarge);
}

#[test]
fn sections_of_later_versions_are_skipped() {
    let record = record();
    let mut w = Writer(record.to_bytes()[16..].to_vec());
    section(&mut w, 200, "later", &Blob::new(*b"unknown"));
    assert_eq!(Record::sections(&w.0), Ok(record));
}

#[test]
fn what_is_too_large_when_it_is_unpacked_and_what_is_there_twice_is_refused() {
    let sections = record().to_bytes()[16..].to_vec();
    let more = |all: &[(u8, &str, usize)]| {
        let mut w = Writer(sections.clone());
        all.iter().for_each(|(kind, name, size)| section(&mut w, *kind, name, &Blob::new(vec![0; *size])));
        Record::sections(&w.0).map(drop).map_err(|e| e.to_string())
    };
    const LARGE: &str = "it is damaged: it is too large when it is unpacked";
    let large = Err(LARGE.to_owned());
    let twice = Err("it is damaged: a section is there twice".to_owned());
    assert_eq!(more(&[(TYPES, "m", 60 << 20)]), Ok(()));
    assert_eq!(more(&["a", "b", "c", "d", "e"].map(|name| (TYPES, name, 60 << 20))), large);
    assert_eq!(
        more(&[(200, "x", 64 << 20), (201, "", 64 << 20), (202, "", 64 << 20), (203, "", 64 << 20)]),
        large
    );
    assert_eq!(more(&[(TYPES, "nfs", 1)]), twice);
    assert_eq!(more(&[(MACHINE, "", 1)]), twice);
    let mut w = Writer::default();
    section(&mut w, MACHINE, "", &Blob::new(vec![0; LARGEST_MACHINE as usize + 1]));
    assert_eq!(Record::sections(&w.0).unwrap_err().to_string(), LARGE);
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let file = record().to_bytes();
    for end in 0..file.len() {
        assert!(Record::from_bytes(&file[..end]).is_err(), "cut at {end}");
    }
    for bit in 0..file.len() * 8 {
        let mut wrong = file.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(Record::from_bytes(&wrong).is_err(), "bit {bit}");
    }
}

/// A file that somebody made has the right checksum: it is an error or a machine, never a panic.
#[test]
fn files_with_nonsense_inside_are_errors_or_machines() {
    let sections = record().to_bytes()[16..].to_vec();
    let mut machine = record().machine();
    let mut rng = Rng::new(27);
    let mut read = 0;
    for n in 0..20_000 {
        let mut wrong = sections.clone();
        if n % 2 == 0 {
            // Inside the packed section of the machine, which a change of the file would not reach.
            let mut changed = machine.clone();
            let at = rng.below(changed.len());
            changed[at] = rng.bits() as u8;
            let mut w = Writer::default();
            section(&mut w, MACHINE, "", &Blob::new(changed.clone()));
            wrong = w.0;
            if n % 64 == 0 {
                machine = record().machine();
            } else if n % 8 == 0 {
                machine = changed;
            }
        } else {
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(wrong.len());
                wrong[at] = rng.bits() as u8;
            }
            wrong.truncate(wrong.len() - rng.below(8).min(wrong.len()));
        }
        let Ok(record) = Record::sections(&wrong) else { continue };
        read += 1;
        let system = crate::System::synthetic(record);
        let _ = (system.functions(), system.events(), system.facts(), system.features().table());
        let _ = (system.event_format("sched", "sched_switch"), system.types().vmlinux().is_ok());
        let _ = system.symbols().load();
    }
    assert!(read > 100, "{read}");
}
