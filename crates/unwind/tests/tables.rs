//! Tables of real files have the rules of their call frame information, and damaged ones are no
//! danger.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use gimli::{BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection};
use plane::unwind::{CHUNK_WORDS, FramePointer, Kind, PAGE, PAGE_SHIFT, Rule};
use proptest::prelude::*;
use unwind::{Place, Sections, Table, read};

/// The sections of a file, by name: address and bytes.
fn sections(file: &[u8]) -> BTreeMap<String, (u64, &[u8])> {
    let number = |at: usize, size: usize| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&file[at..at + size]);
        u64::from_le_bytes(bytes) as usize
    };
    let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    let header = |n: usize| table + 64 * n;
    let names = number(header(names) + 24, 8);
    let name = |n| {
        let at = names + number(header(n), 4);
        let end = at + file[at..].iter().position(|b| *b == 0).unwrap();
        String::from_utf8(file[at..end].to_vec()).unwrap()
    };
    let bytes = |n| match number(header(n) + 4, 4) {
        8 => &[][..],
        _ => &file[number(header(n) + 24, 8)..][..number(header(n) + 32, 8)],
    };
    (0..count).map(|n| (name(n), (number(header(n) + 16, 8) as u64, bytes(n)))).collect()
}

/// This program and the libraries that it has mapped.
fn files() -> Vec<(String, Vec<u8>)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths: Vec<&str> = maps.lines().filter_map(|l| Some(&l[l.find('/')?..])).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.into_iter().map(|path| (path.into(), std::fs::read(path).unwrap())).collect()
}

fn of<'a>(file: &'a [u8]) -> Sections<'a> {
    let all = sections(file);
    Sections {
        eh_frame: all.get(".eh_frame").copied(),
        debug_frame: all.get(".debug_frame").map(|(_, bytes)| *bytes),
        text: all.get(".text").map_or(0, |s| s.0),
        got: all.get(".got").map_or(0, |s| s.0),
        is_narrow: false,
    }
}

#[test]
fn the_table_of_a_file_has_the_rules_of_its_functions() {
    let files = files();
    assert!(files.len() >= 3);
    for (path, file) in &files {
        let table = read(&of(file)).unwrap();
        let (addr, bytes) = of(file).eh_frame.unwrap();
        let (section, bases) =
            (EhFrame::new(bytes, LittleEndian), BaseAddresses::default().set_eh_frame(addr));
        let mut entries = section.entries(&bases);
        let (mut context, mut seen, mut unknown) = (UnwindContext::new(), 0, 0);
        while let Some(entry) = entries.next().unwrap() {
            let gimli::CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
            let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
            while let Some(row) = rows.next_row().unwrap() {
                let (start, end) = (row.start_address(), row.end_address().min(fde.end_address()));
                if start >= end {
                    continue;
                }
                let found = table.find(start);
                assert_eq!(found, table.find(end - 1), "{path} {start:x}");
                seen += 1;
                match (row.cfa(), found.kind) {
                    (_, Kind::End) => {
                        let ra = row.register(gimli::Register(16));
                        assert!(matches!(ra, None | Some(RegisterRule::Undefined)), "{path} {start:x}");
                    }
                    (_, Kind::Unknown) => unknown += 1,
                    (CfaRule::RegisterAndOffset { register, offset }, Kind::Register) => {
                        // The words of `struct pt_regs`.
                        const WORDS: [i64; 16] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0];
                        let expected = *offset * 16 + WORDS[usize::from(register.0)];
                        assert_eq!(i64::from(found.offset), expected, "{path} {start:x}");
                    }
                    (CfaRule::RegisterAndOffset { register, offset }, kind) => {
                        let number = match kind {
                            Kind::Sp => 7,
                            Kind::Bp => 6,
                            other => panic!("{path} {start:x}: {other:?}"),
                        };
                        assert_eq!(
                            (register.0, *offset),
                            (number, i64::from(found.offset)),
                            "{path} {start:x}"
                        );
                        if let Some(RegisterRule::Offset(at)) = row.register(gimli::Register(6)) {
                            assert_eq!(found.bp, FramePointer::AtCfa((at / 8) as i8), "{path} {start:x}");
                        }
                    }
                    (CfaRule::Expression(_), kind) => {
                        assert!(matches!(kind, Kind::Plt | Kind::Realigned | Kind::Signal), "{kind:?}");
                    }
                }
            }
        }
        assert!(seen > 0 && unknown * 50 <= seen, "{path}: {unknown} of {seen} unknown");
    }
}

#[test]
fn the_frame_of_a_signal_handler_and_the_linkage_table_of_libc_have_rules() {
    let files = files();
    let (_, libc) = files.iter().find(|(path, _)| path.contains("/libc.so")).unwrap();
    let table = read(&of(libc)).unwrap();
    let (base, text) = sections(libc)[".text"];
    // mov $15,%rax; syscall
    let restorer = text.windows(9).position(|w| w == [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]).unwrap();
    let restorer = base + restorer as u64;
    let rule = table.find(restorer - 1);
    assert_eq!((rule.kind, rule.offset), (Kind::Signal, 160));
    assert_eq!(table.find(restorer), rule);
    let (plt, _) = sections(libc)[".plt"];
    assert_eq!(table.find(plt + 16).kind, Kind::Plt);
}

/// What the words of the kernel say of an address, found as a program does.
fn walk(table: &Table, words: &BTreeMap<u32, u64>, first: u32, addr: u64) -> Rule {
    let at = addr.wrapping_sub(table.base());
    if at >> PAGE_SHIFT >= u64::from(table.pages()) {
        return Rule::NONE;
    }
    let page = words[&(first + (at >> PAGE_SHIFT) as u32)];
    let (first, count) = (page as u32, (page >> 32) as u32);
    assert!(count == 0 || first / CHUNK_WORDS == (first + count - 1) / CHUNK_WORDS);
    let rows: Vec<u64> = (first..first + count).map(|word| words[&word]).collect();
    match rows.iter().rev().find(|row| *row & (PAGE - 1) <= at & (PAGE - 1)) {
        Some(row) => Rule::of_row(*row),
        None => Rule::NONE,
    }
}

/// The parts of a table, each in a chunk of its own.
fn place(table: &Table) -> (BTreeMap<u32, u64>, u32) {
    let places: Vec<Place> = table
        .parts()
        .iter()
        .zip(1..)
        .map(|(words, chunk)| Place { word: chunk * CHUNK_WORDS + 77, words: *words })
        .collect();
    let words = table.words(&places);
    let mut memory = BTreeMap::new();
    for (place, words) in places.iter().zip(&words) {
        assert_eq!(place.words as usize, words.len());
        assert!(words.len() as u32 <= CHUNK_WORDS - 77);
        memory.extend((place.word..).zip(words.iter().copied()));
    }
    (memory, places[0].word)
}

#[test]
fn the_words_of_the_kernel_give_the_rules_of_the_table() {
    for (path, file) in files() {
        let table = read(&of(&file)).unwrap();
        let (memory, first) = place(&table);
        let end = table.base() + (u64::from(table.pages()) << PAGE_SHIFT);
        for addr in (table.base().saturating_sub(10)..end + 10).step_by(7) {
            assert_eq!(walk(&table, &memory, first, addr), table.find(addr), "{path} {addr:x}");
        }
    }
}

#[test]
fn a_rule_that_the_page_before_ended_with_has_a_row_after_a_gap() {
    let mut builder = unwind::Builder::default();
    builder.add(0x7f00, 0x8000, Rule::END);
    builder.add(0x8001, 0x8100, Rule::END);
    let table = builder.finish().unwrap();
    let rules = [0x7fff, 0x8000, 0x8001, 0x80ff, 0x8100].map(|addr| table.find(addr));
    assert_eq!(rules, [Rule::END, Rule::NONE, Rule::END, Rule::END, Rule::NONE]);
}

fn spans() -> impl Strategy<Value = Vec<(u64, u64, i32)>> {
    prop::collection::vec((0u64..40_000, 1u64..9_000, 0i32..4), 0..40)
}

proptest! {
    #[test]
    fn each_address_has_the_rule_that_was_given_to_it(spans in spans()) {
        let mut builder = unwind::Builder::default();
        let rule = |n| match n {
            0 => Rule::NONE,
            1 => Rule::END,
            n => Rule { kind: Kind::Sp, offset: n, bp: FramePointer::AtCfa(-2) },
        };
        let mut expected: Vec<Option<(u64, i32)>> = vec![None; 50_000];
        for (start, length, n) in &spans {
            builder.add(*start, start + length, rule(*n));
            for addr in *start..start + length {
                let slot = &mut expected[addr as usize];
                if slot.is_none_or(|(before, _)| *start < before) {
                    *slot = Some((*start, *n));
                }
            }
        }
        let table = builder.finish().unwrap();
        let (memory, first) = place(&table);
        for (addr, found) in (0..).zip(&expected).step_by(3) {
            let found = found.map_or(Rule::NONE, |(_, n)| rule(n));
            // An earlier rule that ends uncovers a later one that began inside it, from there on:
            // the same start of both decides.
            prop_assert_eq!(table.find(addr), found, "{:x}", addr);
            prop_assert_eq!(walk(&table, &memory, first, addr), found);
        }
        prop_assert_eq!(Table::decode(&table.encode()), Some(table));
    }

    #[test]
    fn damaged_sections_and_tables_are_read_without_a_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
        cut in any::<prop::sample::Index>(),
        addr in any::<u64>(),
    ) {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let (_, bytes) = of(&file).eh_frame.unwrap();
        let mut bytes = bytes[..bytes.len().min(20_000)].to_vec();
        for (at, value) in &damage {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        let bytes = &bytes[..cut.index(bytes.len())];
        for sections in [
            Sections { eh_frame: Some((addr, bytes)), ..Sections::default() },
            Sections { debug_frame: Some(bytes), ..Sections::default() },
        ] {
            if let Some(table) = read(&sections) {
                table.find(addr);
                let mut encoded = table.encode();
                prop_assert_eq!(Table::decode(&encoded), Some(table.clone()));
                for (at, value) in &damage {
                    let at = at.index(encoded.len());
                    encoded[at] = *value;
                }
                if let Some(table) = Table::decode(&encoded) {
                    table.find(addr);
                    place(&table);
                }
            }
        }
    }
}
