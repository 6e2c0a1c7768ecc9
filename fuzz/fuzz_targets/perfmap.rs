//! Symbols of JIT code from any text: memory of at most three times its bytes, and each symbol
//! contains its address.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: ([u64; 3], &[u8])| {
    let (addresses, text) = input;
    // Addresses of the text are asked for too.
    let starts = text.split(|b| *b == b'\n' || *b == b' ').filter_map(|word| {
        u64::from_str_radix(std::str::from_utf8(word).ok()?.trim_start_matches("0x"), 16).ok()
    });
    let asked: Vec<u64> = starts.take(50).chain(addresses).collect();
    let (found, memory) = symbols::perf_map(text, &asked);
    assert!(memory <= 3 * text.len() as u64, "{memory} of {}", text.len());
    for (addr, symbol) in asked.iter().zip(found) {
        if let Some((into, name)) = symbol {
            assert!(into <= *addr && name.len() <= 4096);
        }
    }
});
