//! Text to DIF: whatever the text, it is refused with a message or becomes code that the form's verifier accepts.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(fault) = exercise::stages::compile(text, 64, None) {
        panic!("{fault}");
    }
});
