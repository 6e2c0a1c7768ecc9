//! Lexer and parser: whatever the text, they end.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| exercise::stages::parse(text));
