//! An ELF file with its debug file, the file of the types that it shares and its split debug
//! information, all of any bytes: what is read of them is bounded.
#![no_main]

use debuginfo::{MAX_INLINED, NameKind, Query};
use symbols::{Files, file_facts};

libfuzzer_sys::fuzz_target!(|input: (&[u8], &[u8], &[u8], &[u8], &str, u64)| {
    let (own, debug, supplement, split, name, addr) = input;
    let queries = [
        Query::Name(NameKind::Struct, name.into()),
        Query::Name(NameKind::Struct, "node".into()),
        Query::Function { address: addr, name: "reach".into() },
        Query::Name(NameKind::Variable, "list".into()),
        Query::Entry(addr),
        Query::Like(NameKind::Typedef, String::new()),
    ];
    const MEMORY: u64 = 16 << 20;
    let files = Files { own, debug, supplement, split };
    let Ok(facts) = file_facts(&files, MEMORY, &[addr, 0x1000, 0x40_1000, 0x1130], &queries) else { return };
    assert!(facts.lines.iter().all(|lines| lines.len() <= MAX_INLINED));
    assert!(facts.symbols.iter().flatten().all(|(_, name)| name.len() <= 4096));
    assert!(facts.probes.sites.len() <= 1 << 15);
});
