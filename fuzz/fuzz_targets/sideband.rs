//! Records of perf's side-band from any bytes, applied to the table of processes: nothing panics,
//! and each record is shorter than what is left.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let mut records = Vec::new();
    while let Some((record, after)) = proc::watcher::parse(rest) {
        assert!(after.len() < rest.len());
        records.push(record);
        rest = after;
    }
    proc::watcher::replay(records);
});
