//! Compiles any text to DIF: it is rejected with a message, or the DIF verifier accepts the code.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(fault) = exercise::stages::compile(text, 64, None) {
        panic!("{fault}");
    }
});
