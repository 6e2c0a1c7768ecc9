//! Debug information of any bytes: an error, or a bounded list of functions and lines.
#![no_main]

use debuginfo::{Error, Lines, MAX_INLINED};

libfuzzer_sys::fuzz_target!(|input: ([u64; 4], bool, &[u8], &[u8], &[u8], &[u8], &[u8])| {
    let (addresses, shares, info, abbreviations, strings, lines, ranges) = input;
    let load = |section: &str| {
        Ok::<_, Error>(match section {
            ".debug_info" => info.to_vec(),
            ".debug_abbrev" => abbreviations.to_vec(),
            ".debug_str" | ".debug_line_str" | ".debug_str_offsets" => strings.to_vec(),
            ".debug_line" => lines.to_vec(),
            ".debug_ranges" | ".debug_rnglists" | ".debug_addr" | ".debug_aranges" => ranges.to_vec(),
            _ => Vec::new(),
        })
    };
    let (mut own, mut other) = (load, load);
    let read = match shares {
        true => Lines::read(&mut own, Some(&mut other), 1 << 24),
        false => Lines::read(&mut own, None, 1 << 24),
    };
    let Ok(mut lines) = read else { return };
    for address in addresses {
        if let Ok(frames) = lines.frames(address) {
            assert!(frames.len() <= MAX_INLINED);
        }
    }
});
