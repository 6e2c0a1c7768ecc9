//! The compressed table of a stripped file: an ELF file in the section `.gnu_debugdata`, packed by
//! `xz`, with the symbols that `.dynsym` does not have. Distributions like Fedora put one into each
//! of their files.
//!
//! The packed and the unpacked bytes are bounded, and so is the unpacker's memory, which follows
//! the output.

use std::io::Read;
use std::rc::Rc;

use lzma_rust2::XzReader;

use super::elf::{Elf, SHT_NOBITS, read};

/// Packed bytes. Those of the largest programs have a few megabytes.
const MAX_PACKED: u64 = 16 << 20;
/// Unpacked bytes.
const MAX_UNPACKED: u64 = 64 << 20;

/// The ELF file in a file, if it has one. It needs at most `most` bytes of memory.
pub(crate) fn find(elf: &Elf, most: u64) -> Option<Elf> {
    let section = elf.section_named(b".gnu_debugdata").filter(|s| s.kind != SHT_NOBITS)?;
    let packed = read(&*elf.bytes, section.offset, section.size, MAX_PACKED.min(most / 4)).ok()?;
    // The unpacker's dictionary grows with the output, up to the same size.
    let most = MAX_UNPACKED.min(most / 6);
    let mut unpacked = Vec::new();
    let reader = XzReader::new(packed.as_slice(), false);
    reader.take(most + 1).read_to_end(&mut unpacked).ok()?;
    (unpacked.len() as u64 <= most).then(|| Elf::open(Rc::new(unpacked)).ok())?
}
