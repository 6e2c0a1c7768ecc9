//! Lexer and parser must end for any text.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| exercise::stages::parse(text));
