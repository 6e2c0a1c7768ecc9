//! Which functions the dynamic linker has chosen, and where functions begin by the tables of
//! unwinders.
//!
//! A symbol of an indirect function (`STT_GNU_IFUNC`) has the address of a resolver. A file that
//! calls its own indirect functions has a slot for each, and a relocation ([`IRELATIVE`]) that
//! names slot and resolver. In a running process the slot has the address of the implementation. A
//! process can write anything there, so an address counts only if a function begins at it: by a
//! symbol, or by the table in `.eh_frame_hdr`.

use crate::arch::IRELATIVE;

use super::{Elf, Fields, SHT_NOBITS, Section, read};

const SHT_RELA: u32 = 4;
/// Bytes of a table that is read.
const MAX_TABLE: u64 = 16 << 20;
/// How the table of unwinders begins: the version, and the encodings of the pointer, the count and
/// the table: 4 bytes each, the table's from the beginning of the section.
const USUAL: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

impl Elf {
    /// The slots of resolvers: the resolver's address, and that of the slot.
    pub(crate) fn slots(&self) -> Vec<(u64, u64)> {
        const ENTRY: usize = 24;
        if !self.is_native() {
            return Vec::new();
        }
        let tables = self.sections.iter().filter(|s| s.kind == SHT_RELA);
        let tables = tables.filter_map(|s| read(&*self.bytes, s.offset, s.size, MAX_TABLE).ok());
        let mut slots = Vec::new();
        for table in tables {
            let entries = table.chunks_exact(ENTRY).map(Fields);
            let chosen = entries.filter(|entry| entry.u32(8) == IRELATIVE);
            slots.extend(chosen.map(|entry| (entry.u64(16), entry.u64(0))));
        }
        slots.sort_unstable();
        slots
    }

    /// The size of the function that begins at an address by the unwinders' table.
    pub(crate) fn unwound_size(&self, addr: u64) -> Option<u64> {
        self.unwound(addr).filter(|(start, _)| *start == addr).map(|(_, size)| size)
    }

    /// The function that an address is in by the unwinders' table: its first address, and its size.
    pub(crate) fn unwound(&self, addr: u64) -> Option<(u64, u64)> {
        let header = self.section_named(b".eh_frame_hdr").filter(|s| s.kind != SHT_NOBITS)?;
        let table = read(&*self.bytes, header.offset, header.size, MAX_TABLE).ok()?;
        let entries = table.get(12..).filter(|_| table.starts_with(&USUAL))?;
        let at = |distance: u64| header.addr.wrapping_add((distance as u32 as i32) as u64);
        let (rows, _) = entries.as_chunks::<8>();
        let after = rows.partition_point(|row| at(Fields(row).u32(0)) <= addr);
        let row = Fields(rows.get(after.checked_sub(1)?)?);
        let (start, frame) = (at(row.u32(0)), at(row.u32(4)));
        // The length, the distance of the common part, the function's address from here, its size.
        let section = self.section_named(b".eh_frame")?;
        let mut bytes = [0; 16];
        self.read_in(section, frame, &mut bytes)?;
        let bytes = Fields(&bytes);
        let own = frame.wrapping_add(8).wrapping_add((bytes.u32(8) as u32 as i32) as u64);
        let size = bytes.u32(12);
        (own == start && addr.wrapping_sub(start) < size).then_some((start, size))
    }

    /// The functions of the unwinders' table, in the order of addresses: the first address and the
    /// size of each. The compiler describes each part of a function by itself. `None`: there is no
    /// table, or it needs more than `most` bytes of memory.
    pub(crate) fn unwound_ranges(&self, most: u64) -> Option<Vec<(u64, u64)>> {
        let header = self.section_named(b".eh_frame_hdr").filter(|s| s.kind != SHT_NOBITS)?;
        let section = self.section_named(b".eh_frame").filter(|s| s.kind != SHT_NOBITS)?;
        let needed = header.size.saturating_mul(3).saturating_add(section.size);
        if needed > most {
            return None;
        }
        let table = read(&*self.bytes, header.offset, header.size, MAX_TABLE).ok()?;
        let entries = table.get(12..).filter(|_| table.starts_with(&USUAL))?;
        let frames = read(&*self.bytes, section.offset, section.size, most).ok()?;
        let at = |distance: u64| header.addr.wrapping_add((distance as u32 as i32) as u64);
        let (rows, _) = entries.as_chunks::<8>();
        let range = |row: &[u8; 8]| {
            let (start, frame) = (at(Fields(row).u32(0)), at(Fields(row).u32(4)));
            let into = usize::try_from(frame.checked_sub(section.addr)?).ok()?;
            let bytes = Fields(frames.get(into..into.checked_add(16)?)?);
            let own = frame.wrapping_add(8).wrapping_add((bytes.u32(8) as u32 as i32) as u64);
            (own == start).then_some((start, bytes.u32(12)))
        };
        let mut ranges: Vec<(u64, u64)> = rows.iter().filter_map(range).collect();
        ranges.sort_unstable();
        Some(ranges)
    }

    fn read_in(&self, section: &Section, addr: u64, into: &mut [u8]) -> Option<()> {
        let into_section = addr.checked_sub(section.addr)?;
        let end = into_section.checked_add(into.len() as u64)?;
        if section.kind == SHT_NOBITS || end > section.size {
            return None;
        }
        self.bytes.read(section.offset.checked_add(into_section)?, into).ok()
    }
}
