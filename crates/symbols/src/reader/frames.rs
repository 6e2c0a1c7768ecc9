//! The tables by which stacks are walked: see [`unwind`].

use std::collections::BTreeSet;

use super::elf::Elf;
use crate::frames::{CodeLoad, FrameTable};
use runtimes::{Image, Instance};
use unwind::Sections;

/// The most bytes of a section, as a part of the reader's memory: rules take several times as much.
const PART: u64 = 8;

/// The table of a file. `None`: it has no call frame information, or is not of this processor.
pub(super) fn table(elf: &Elf, memory: u64) -> Option<FrameTable> {
    if !elf.is_native() && !elf.is_native_32() {
        return None;
    }
    let section = |name: &[u8]| elf.section(name, memory / PART);
    let address = |name: &[u8]| elf.section_named(name).map_or(0, |section| section.addr);
    let eh_frame = section(b".eh_frame").filter(|(_, bytes)| !bytes.is_empty());
    // Go's linker compresses it.
    let debug_frame = elf.contents(b".debug_frame", memory / PART).ok().filter(|bytes| !bytes.is_empty());
    let sections = Sections {
        eh_frame: eh_frame.as_ref().map(|(addr, bytes)| (*addr, &bytes[..])),
        debug_frame: debug_frame.as_deref(),
        text: address(b".text"),
        got: address(b".got"),
        is_narrow: !elf.is_64,
    };
    let table = unwind::read(&sections).filter(|table| !table.is_empty())?;
    let load = |(offset, size, addr)| CodeLoad { offset, size, addr };
    let loads = elf.code_loads().into_iter().map(load).collect();
    Some(FrameTable { table, loads, runtime: Instance::find(&OfElf(elf, memory)) })
}

/// What runtimes are found by.
struct OfElf<'a>(&'a Elf, u64);

impl Image for OfElf<'_> {
    fn section(&self, name: &str) -> Option<u64> {
        self.0.section_address(name.as_bytes())
    }

    fn word(&self, symbol: &str) -> Option<u64> {
        let OfElf(elf, memory) = self;
        let found = elf.named(&BTreeSet::from([symbol.to_owned()]), memory / PART).ok()?;
        let at = *found.get(symbol)?;
        let mut word = [0; 8];
        elf.read_at(elf.data_offset(at).or_else(|| elf.code_offset(at))?, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    }
}
