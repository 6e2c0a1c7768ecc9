//! ELF files of any bytes: a list of functions or an error, and every place of a probe is in its
//! function.
#![no_main]

use symbols::{FunctionQuery, Select, functions_of_bytes};
use text::{Kernel, Uses};

libfuzzer_sys::fuzz_target!(|input: (u8, bool, u64, &str, &[u8])| {
    let (kind, accepts_nop10, addr, pattern, bytes) = input;
    let select = match kind % 4 {
        0 => Select::All,
        1 => Select::Matching(vec![pattern.into()]),
        2 => Select::At(vec![addr]),
        _ => Select::Nothing,
    };
    let query = FunctionQuery {
        select,
        kernel: Kernel::tried(accepts_nop10, !accepts_nop10),
        entries: vec![Uses::NOTHING, Uses::NOTHING.and_registers()],
        returns: true,
        instructions: kind & 4 != 0,
    };
    const MEMORY: u64 = 32 << 20;
    let Ok(list) = functions_of_bytes(bytes.to_vec(), &query, MEMORY) else { return };
    let named = list.functions.iter().filter(|f| !f.names.is_empty()).count();
    assert!(named as u64 <= list.total);
    // By its address a function is found also without a symbol.
    assert!(named == list.functions.len() || matches!(query.select, Select::At(_)));
    for f in &list.functions {
        assert!(f.offset + f.size <= bytes.len() as u64);
        for entry in f.entries.iter().flatten() {
            assert!(entry.offset < f.size);
        }
        for site in f.returns.iter().flatten().flatten() {
            // A part of the function may be elsewhere.
            let at = f.offset.checked_add_signed(site.offset);
            assert!(at.is_some_and(|at| at < bytes.len() as u64));
        }
        for site in f.instructions.iter().flatten().flatten() {
            assert!(u64::from(site.offset) < f.size);
        }
    }
});
