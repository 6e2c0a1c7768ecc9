//! Reads any bytes as a capture: they are refused, or read to their end within the reader's limits.
//! What is read is the same when it is written again.
#![no_main]

use capture::{FIRING_MAX, Firing, Head, Item, Reader, Writer};

/// Bytes of a firing's memory.
fn memory(firing: &Firing) -> usize {
    firing.memory.iter().filter_map(|region| region.content.known()).map(|(bytes, _)| bytes.len()).sum()
}

fn firings(file: &[u8]) -> Option<(Head, Vec<u8>, Vec<Firing>)> {
    let mut reader = Reader::open(file, 1 << 16).ok()?;
    let mut all = Vec::new();
    while let Some(item) = reader.next_item().expect("memory is read") {
        all.extend(match item {
            Item::Firing(firing) => Some(firing),
            _ => None,
        });
    }
    Some((reader.head().clone(), reader.machine().to_vec(), all))
}

/// A file with these bytes as the contents of a block of each kind, whose sums are right: what an
/// attacker writes.
fn hostile(bytes: &[u8]) -> Vec<u8> {
    let head = Head { probes: vec![(1, "a:b:c:d".into())], ..Head::default() };
    let mut file =
        Writer::new(Vec::new(), &head, b"machine").expect("it is short").finish(0).expect("memory");
    file.extend((0..8).flat_map(|kind| capture::unchecked_block(kind, bytes)));
    file
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for file in [
        bytes.to_vec(),
        [&capture::MAGIC[..], &capture::VERSION.to_le_bytes(), bytes].concat(),
        hostile(bytes),
    ] {
        let Some((head, machine, all)) = firings(&file) else { continue };
        let mut writer = Writer::new(Vec::new(), &head, &machine).expect("it was as long");
        let mut kept = Vec::new();
        for firing in all {
            assert!(memory(&firing) <= FIRING_MAX);
            let before = writer.written();
            writer.firing(&firing).expect("memory");
            kept.extend(Some(firing).filter(|_| writer.written() > before));
        }
        let again = firings(&writer.finish(0).expect("memory"));
        assert_eq!(again, Some((head, machine, kept)));
    }
});
