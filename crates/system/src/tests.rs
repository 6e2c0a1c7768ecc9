//! Machines: what a value says of one, and that a record says the same.

use types::btf::synth::Builder;

use super::*;

/// A machine with a struct of one member, and these symbols, functions and events.
fn machine(member: &str, release: &str) -> Record {
    let mut b = Builder::default();
    let int = b.int("int", 4, 1);
    b.sou(false, "task_struct", 4, &[(member, int, 0)]);
    let types = vec![("vmlinux".to_owned(), Blob::new(b.finish()))];
    let features = bpf_sys::features::Answers {
        release: release.into(),
        facilities: vec![("raw_tp".into(), Ok(()))],
        ..Default::default()
    };
    let events = Ok(vec![("sched".into(), "sched_switch".into())]);
    let mut record = Record {
        types,
        features,
        events,
        functions: Ok(Blob::new(*b"vfs_read\nnfs_read [nfs]\n")),
        modules: ["nfs".to_owned()].into(),
        ..Record::default()
    };
    record.set_symbols("ffffffff91000000 T _text\nffffffff91000100 T vfs_read\nffffffff92000000 B _end\n");
    record.set_formats([("sched", "sched_switch", "ID: 7\nfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n")]);
    record
}

#[test]
fn two_systems_do_not_see_each_other() {
    let (old, new) = (System::synthetic(machine("old", "1.0")), System::synthetic(machine("new", "2.0")));
    let has = |system: &System, member: &str| {
        system.types().vmlinux().unwrap().field(&format!("task_struct.{member}")).is_some()
    };
    assert!(has(&old, "old") && !has(&old, "new") && has(&new, "new") && !has(&new, "old"));
    assert_eq!((old.release(), new.release()), ("1.0".to_owned(), "2.0".to_owned()));
    assert!(!old.is_live() && System::live().is_live());
    assert_ne!(System::live().release(), "1.0");
}

#[test]
fn a_recorded_machine_is_the_one_that_was_recorded() {
    let record = machine("member", "1.0");
    let system = System::recorded(&record.to_bytes()).unwrap();
    assert_eq!(system.record(&[]), record);
    assert_eq!(system.functions().unwrap(), "vfs_read\nnfs_read [nfs]\n");
    assert_eq!(system.events(), record.events);
    assert!(system.event_format("sched", "sched_switch").unwrap().starts_with("ID: 7"));
    assert_eq!(system.event_format("sched", "sched_wakeup"), None);
    assert_eq!(system.event_format("sched/../sched", "sched_switch"), None);
    assert!(system.has_module("nfs") && system.has_module("vmlinux") && !system.has_module("loop"));
    let mut symbols = system.symbols();
    assert_eq!(symbols.find(None, "vfs_read").map(|s| s.addr), Some(0xffff_ffff_8100_0100));
    assert_eq!(symbols.name(0xffff_ffff_8100_0104).to_string(), "vmlinux`vfs_read+0x4");
}

#[test]
fn what_is_not_known_says_so() {
    let system = System::synthetic(Record::default());
    assert!(system.functions().unwrap_err().contains("nothing is known"));
    assert!(system.types().vmlinux().is_err());
    assert!(matches!(system.symbols().load(), symbols::KernelStatus::Unavailable(_)));
    assert!(!system.features().has(bpf_sys::features::Facility::RawTp));
}

#[test]
fn addresses_of_functions_and_common_members_are_not_recorded() {
    let list = "ffffffff81002014 vfs_read\nffffffffc02ea9d0 ovl.isra.0\t[overlay]\nsixteen_letters_ [m]\n";
    assert_eq!(without_addresses(list), "vfs_read\novl.isra.0\t[overlay]\nsixteen_letters_ [m]\n");
    let format = "name: x\nID: 3\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                  \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\nprint fmt: \"field: %s\", REC->comm\n";
    assert_eq!(essence(format), "ID: 3\nfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n");
}

#[test]
fn the_running_machine_is_recorded_as_it_is() {
    let live = System::live();
    let counter = Counter { name: "x".into(), kind: 0, config: 0, user: true, kernel: true };
    let record = live.record(&[(counter.clone(), 1_000_000)]);
    let file = record.to_bytes();
    let system = System::recorded(&file).unwrap();
    println!("{} bytes: {record:?}", file.len());
    assert_eq!((system.release(), system.online_cpus()), (live.release(), live.online_cpus()));
    assert_eq!(system.lacks_counter(&counter, 1_000_000), live.lacks_counter(&counter, 1_000_000));
    for facility in bpf_sys::features::Facility::ALL {
        assert_eq!(system.features().why_not(*facility), live.features().why_not(*facility), "{facility:?}");
    }
    assert_eq!(system.events(), live.events());
    assert_eq!(system.functions(), live.functions().map(|text| without_addresses(&text)));
    let names = |system: &System| {
        let mut symbols = system.symbols();
        let all = symbols.symbols().filter(|s| s.module == "vmlinux");
        all.map(|s| (s.name.to_owned(), s.kind)).collect::<BTreeSet<_>>()
    };
    if record.symbols.is_ok() {
        let (here, there) = (names(&live), names(&system));
        let outside: Vec<_> = here.difference(&there).take(10).collect();
        println!("{} symbols of {}; left out: {outside:?}", there.len(), here.len());
        assert!(there.is_subset(&here) && there.len() * 100 > here.len() * 98);
    }
}
