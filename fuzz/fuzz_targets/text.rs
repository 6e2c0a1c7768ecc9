//! Machine code from any bytes: nothing panics, and every place of a probe is an instruction.
#![no_main]

use text::{Function, Kernel, Uses};

libfuzzer_sys::fuzz_target!(|input: (u64, bool, u8, Vec<u16>, &[u8])| {
    let (address, accepts_nop10, arguments, inside, bytes) = input;
    let kernel = Kernel::tried(accepts_nop10, !accepts_nop10);
    let uses = (0..8).filter(|n| arguments >> n & 1 != 0).fold(Uses::NOTHING, Uses::and_argument);
    let entries: Vec<u64> = inside.iter().map(|offset| address.wrapping_add(u64::from(*offset))).collect();
    let function = Function::decode(bytes, address, &entries);
    for (offset, step) in function.offsets(kernel) {
        assert_eq!(function.offset(kernel, offset), Ok(step));
    }
    if let Ok(entry) = function.entry(kernel, uses) {
        assert!(function.targets().iter().all(|target| u64::from(*target) > entry.offset));
        assert!(entry.offset == 0 || function.find(entry.offset).is_some());
    }
    for site in function.returns(kernel).into_iter().flatten() {
        assert_eq!(function.offset(kernel, site.offset as u64), Ok(site.step));
    }
});
