//! Generated executables, valid and damaged.

use testing::elf::{GLOBAL_FUNCTION, TEXT};

use super::*;

const LOCAL_FUNCTION: u8 = 0x02;
const WEAK_FUNCTION: u8 = 0x22;
const LOCAL_LABEL: u8 = 0x00;
const GLOBAL_DATA: u8 = 0x11;

fn test_elf(symbols: &[(&str, u64, u64, u8)]) -> testing::elf::Elf {
    let symbols = symbols.iter().map(|(name, at, size, info)| ((*name).into(), *at, *size, *info)).collect();
    testing::elf::Elf { code: vec![0x90; 0x1000], symbols, ..Default::default() }
}

fn open(elf: &testing::elf::Elf) -> Elf {
    Elf::open(Rc::new(elf.bytes())).unwrap()
}

#[test]
fn memory_behind_a_part_of_the_file_has_addresses_where_no_other_part_is() {
    // Program headers: flags 6 is writable.
    let header = |offset: u64, addr: u64, size: u64, in_memory: u64| -> Vec<u8> {
        let mut bytes = [1u32.to_le_bytes(), 6u32.to_le_bytes()].concat();
        for word in [offset, addr, addr, size, in_memory, 0x1000] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    };
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    bytes.resize(64, 0);
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(16, &3u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &2u16.to_le_bytes());
    put(58, &64u16.to_le_bytes());
    bytes.extend(header(0x1000, 0x8000, 0x100, 0x3000));
    bytes.extend(header(0x2000, 0x20_000, 0x100, 0x100));
    let elf = Elf::open(Rc::new(bytes)).unwrap();
    let at = |offset: u64| elf.address(offset);
    assert_eq!((at(0x1000), at(0x10ff), at(0x1100)), (Some(0x8000), Some(0x80ff), Some(0x8100)));
    assert_eq!((at(0x2000), at(0x2100), at(0x3fff)), (Some(0x20_000), Some(0x9100), Some(0xafff)));
    assert_eq!((at(0x4000), at(0xfff)), (None, None));
}

#[test]
fn the_symbol_that_holds_an_address_is_found_by_offset() {
    let elf = open(&test_elf(&[
        ("second", 0x100, 0x20, GLOBAL_FUNCTION),
        ("first", 0, 0x40, LOCAL_FUNCTION),
        ("with_version@@GLIBC_2.2.5", 0x200, 8, GLOBAL_FUNCTION),
        (&"x".repeat(300), 0x300, 8, GLOBAL_FUNCTION),
        (&"y".repeat(5000), 0x400, 8, GLOBAL_FUNCTION),
    ]));
    assert_eq!(elf.address(0x1010), Some(TEXT + 0x10));
    assert_eq!((elf.address(0xfff), elf.address(0x2000), elf.address(u64::MAX)), (None, None, None));
    let table = elf.table(1 << 20).unwrap();
    let found = |at: u64| table.find(TEXT + at).map(|(delta, name)| format!("{name}+{delta:#x}"));
    assert_eq!(found(0x3f).as_deref(), Some("first+0x3f"));
    assert_eq!(found(0x40), None);
    assert_eq!(found(0x110).as_deref(), Some("second+0x10"));
    assert_eq!(found(0x200).as_deref(), Some("with_version+0x0"));
    assert_eq!(table.find(TEXT + 0x304).unwrap().1.len(), 300);
    assert_eq!(table.find(TEXT + 0x404).unwrap().1.len(), MAX_NAME);
    assert_eq!((table.find(0), table.find(u64::MAX)), (None, None));
}

#[test]
fn sized_global_functions_are_preferred_when_symbols_overlap() {
    let elf = open(&test_elf(&[
        ("__write", 0, 0x20, GLOBAL_FUNCTION),
        ("write", 0, 0x20, WEAK_FUNCTION),
        ("__GI_write", 0, 0x20, LOCAL_FUNCTION),
        ("data", 0, 0x20, GLOBAL_DATA),
        ("label_inside", 8, 0, LOCAL_LABEL),
        ("whole", 0x100, 0x100, GLOBAL_FUNCTION),
        ("part", 0x140, 0x10, LOCAL_FUNCTION),
        ("without_size", 0x300, 0, GLOBAL_FUNCTION),
        ("next", 0x380, 0x10, GLOBAL_FUNCTION),
    ]));
    let table = elf.table(1 << 20).unwrap();
    let found = |at: u64| table.find(TEXT + at).map(|(_, name)| name).unwrap_or_default();
    assert_eq!(found(0), "write");
    assert_eq!(found(0x10), "write");
    assert_eq!((found(0x144), found(0x160)), ("part".into(), "whole".into()));
    // A symbol without a size ends at the next symbol or at the end of its section.
    assert_eq!((found(0x37f), found(0x38f), found(0x390)), ("without_size".into(), "next".into(), "".into()));
    assert_eq!(found(0x20), "label_inside");
}

#[test]
fn build_ids_and_debug_links_are_read() {
    let mut elf = test_elf(&[]);
    assert_eq!((open(&elf).build_id(), open(&elf).debug_link()), (None, None));
    elf.build_id = Some((0..20).collect());
    elf.debug_link = Some((b"name.debug".into(), 0x1234_5678));
    let read = open(&elf);
    assert_eq!((read.build_id(), read.debug_link()), (elf.build_id.clone(), elf.debug_link.clone()));
    assert_eq!(read.checksum().unwrap(), crc32fast::hash(&elf.bytes()));
}

#[test]
fn a_symbol_table_beyond_the_memory_limit_is_rejected_before_it_is_read() {
    let elf = open(&test_elf(&[("a", 0, 1, GLOBAL_FUNCTION), ("b", 1, 1, GLOBAL_FUNCTION)]));
    assert_eq!(elf.table_size(), 3 * 16);
    assert!(matches!(elf.table(47), Err(ElfError::Large(48))));
    assert!(elf.table(48).unwrap().memory() <= 48);
}

/// Calls every function on a damaged file. None may panic or allocate without bound.
fn read_everything(bytes: Vec<u8>) {
    let Ok(elf) = Elf::open(Rc::new(bytes)) else { return };
    let _ = (elf.build_id(), elf.debug_link(), elf.address(0x1000), elf.address(u64::MAX));
    if let Ok(table) = elf.table(1 << 20) {
        for addr in [0, 1, TEXT, TEXT + 0x10, u64::MAX] {
            let _ = table.find(addr);
        }
    }
}

#[test]
fn a_damaged_file_is_rejected_or_read_without_a_panic() {
    let mut elf = test_elf(&[("first", 0, 0x40, GLOBAL_FUNCTION), ("second", 0x40, 0, LOCAL_FUNCTION)]);
    elf.code.truncate(0x20);
    elf.build_id = Some(vec![7; 20]);
    elf.debug_link = Some((b"name".into(), 1));
    let bytes = elf.bytes();
    // The file header, the program header, and everything after the text section.
    let interesting = (0..120).chain(0x1000..bytes.len());
    for at in interesting {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            read_everything(damaged.clone());
            // Eight bytes of ones: maximum sizes and offsets.
            let end = (at + 8).min(damaged.len());
            damaged[at..end].fill(0xff);
            read_everything(damaged);
        }
        read_everything(bytes[..at].to_vec());
    }
}
