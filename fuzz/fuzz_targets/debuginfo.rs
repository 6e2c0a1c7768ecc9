//! Debug information of any bytes: an error, or an answer of well-formed types.
#![no_main]

use std::sync::Arc;

use debuginfo::{DebugTypes, Error, NameKind, Query};
use types::Types;
use types::btf::Btf;

/// A dictionary of CTF whose sections are these bytes, divided by the bytes of a number.
fn ctf_of(division: u64, bytes: &[u8]) -> Vec<u8> {
    let mut starts = vec![0; 5];
    for length in division.to_le_bytes().iter().take(5) {
        let at = starts.last().map_or(0, |at| at + 4 * u32::from(*length));
        starts.push(at.min(bytes.len() as u32));
    }
    let strings = bytes.len() as u32 / 4 * 3;
    let strings = strings.max(starts.last().copied().unwrap_or(0));
    starts.extend([strings, bytes.len() as u32 - strings]);
    let starts: Vec<u8> = starts.iter().flat_map(|word| word.to_le_bytes()).collect();
    [&[0xf2, 0xdf, 4, 2 | 8], &starts[..], bytes].concat()
}

libfuzzer_sys::fuzz_target!(|input: (&str, u64, bool, &[u8], &[u8], &[u8])| {
    let (name, key, shares, info, abbreviations, strings) = input;
    let load = |section: &str| {
        Ok::<_, Error>(match section {
            ".debug_info" => info.to_vec(),
            ".debug_abbrev" => abbreviations.to_vec(),
            ".debug_str" | ".debug_line_str" | ".debug_str_offsets" => strings.to_vec(),
            _ => Vec::new(),
        })
    };
    let (mut own, mut other) = (load, load);
    let read = match shares {
        true => DebugTypes::read(&mut own, Some(&mut other)),
        false => DebugTypes::read(&mut own, None),
    };
    let mut ctf = |section: &str| {
        Ok::<_, Error>(match section {
            ".ctf" if shares => ctf_of(key, info),
            ".ctf" => info.to_vec(),
            ".dynsym" | ".symtab" => abbreviations.to_vec(),
            _ => strings.to_vec(),
        })
    };
    let read = [read, DebugTypes::of_btf(info.to_vec()), DebugTypes::of_ctf(&mut ctf)];
    let queries = [
        Query::Name(NameKind::Struct, name.into()),
        Query::Name(NameKind::Typedef, name.into()),
        Query::Name(NameKind::Variable, name.into()),
        Query::Function { address: key, name: name.into() },
        Query::Entry(key),
        Query::Like(NameKind::Struct, name.into()),
    ];
    for (from, query) in read.iter().flatten().flat_map(|from| queries.iter().map(move |q| (from, q))) {
        let Ok(answer) = from.answer(query) else { continue };
        if let Some(found) = answer.found {
            let Ok(btf) = Btf::parse(answer.btf, None).map(Arc::new) else { continue };
            let types = Types::new();
            let ty = types.import(&btf, found);
            types.name(ty);
            types.size(ty);
            types.align(ty);
        }
    }
});
