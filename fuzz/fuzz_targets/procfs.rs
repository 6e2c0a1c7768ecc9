//! Files of `/proc/PID`: names in them are chosen by processes, which may run in a kernel of
//! another version. What is read is consistent.
#![no_main]

use proc::maps;

libfuzzer_sys::fuzz_target!(|input: (&[u8], u64)| {
    let (bytes, addr) = input;
    let map = maps::parse(bytes);
    assert!(map.mappings.is_sorted_by_key(|m| m.start));
    for mapping in &map.mappings {
        assert!(mapping.backing.file().is_none_or(|n| (n as usize) < map.files.len()));
        if mapping.start < mapping.end {
            mapping.file_offset(mapping.start);
            mapping.file_offset(mapping.end - 1);
        }
    }
    if let Some(mapping) = maps::find(&map.mappings, addr) {
        assert!(mapping.start <= addr && addr < mapping.end);
    }
    let constant = maps::constant(bytes, maps::MAX_READ).unwrap_or_default();
    assert!(constant.len() <= maps::MAX_MAPPINGS);
    if let Some(stat) = proc::parse_stat(bytes) {
        assert!(stat.name.len() <= bytes.len());
    }
    proc::real_user(bytes);
    for name in ["CapEff", "Uid", "State", "NStgid"] {
        proc::field_in(bytes, name, 1);
    }
    symbols::process_ids(bytes);
    proc::is_in_cgroup(&String::from_utf8_lossy(bytes), "/user.slice");
});
