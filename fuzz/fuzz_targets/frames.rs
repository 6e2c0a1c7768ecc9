//! Call frame information of any bytes: a table or none, which is read back as it was and has a
//! rule at every address.
#![no_main]

use unwind::{Sections, Table, read};

libfuzzer_sys::fuzz_target!(|input: (u64, u64, &[u8], &[u8])| {
    let (base, addr, eh_frame, debug_frame) = input;
    let eh_frame = (!eh_frame.is_empty()).then_some((base, eh_frame));
    let debug_frame = (!debug_frame.is_empty()).then_some(debug_frame);
    let is_narrow = base & 1 == 1;
    let Some(table) = read(&Sections { eh_frame, debug_frame, text: base, got: addr, is_narrow }) else {
        return;
    };
    table.find(addr);
    assert_eq!(Table::decode(&table.encode()), Some(table));
    if let Some(table) = debug_frame.and_then(Table::decode) {
        table.find(addr);
        table.parts();
    }
});
