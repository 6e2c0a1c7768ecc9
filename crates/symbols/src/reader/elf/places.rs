//! What notes of probes need of a file: sections by name, offsets of addresses, addresses of names.

use std::collections::{BTreeMap, BTreeSet};

use super::code::TableKind;
use super::{CHUNK, Elf, ElfError, Fields, Load, SHT_NOBITS, read};

impl Elf {
    /// The bytes of a section of at most `most` bytes. `None`: the file has none.
    pub(crate) fn section_bytes(&self, name: &[u8], most: u64) -> Result<Option<Vec<u8>>, ElfError> {
        let Some(section) = self.section_named(name) else { return Ok(None) };
        read(&*self.bytes, section.offset, section.size, most).map(Some)
    }

    /// The address of a section.
    pub(crate) fn section_address(&self, name: &[u8]) -> Option<u64> {
        self.section_named(name).map(|section| section.addr)
    }

    /// The offset of an address of code.
    pub(crate) fn code_offset(&self, address: u64) -> Option<u64> {
        self.offset_in(address, |load| load.is_code)
    }

    /// The offset of an address of data that the file gives an initial value.
    pub(crate) fn data_offset(&self, address: u64) -> Option<u64> {
        self.offset_in(address, |load| !load.is_code)
    }

    fn offset_in(&self, address: u64, is_wanted: impl Fn(&Load) -> bool) -> Option<u64> {
        let loads = self.loads.iter().filter(|load| is_wanted(load));
        let into = |load: &Load| address.checked_sub(load.addr).filter(|into| *into < load.size);
        let offset = loads.filter_map(|load| load.offset.checked_add(into(load)?)).next()?;
        (offset < self.bytes.size()).then_some(offset)
    }

    /// The addresses of these symbols, if their names need at most `most` bytes of memory. Of
    /// several with one name it is the first of the full table.
    pub(crate) fn named(
        &self,
        names: &BTreeSet<String>,
        most: u64,
    ) -> Result<BTreeMap<String, u64>, ElfError> {
        let mut found = BTreeMap::new();
        for kind in [TableKind::Full, TableKind::Dynamic] {
            let Some(section) = self.table_section(kind) else { continue };
            let strings = self.sections.get(section.link as usize).filter(|s| s.kind != SHT_NOBITS);
            let strings = strings.ok_or(ElfError::Format)?;
            let strings = read(&*self.bytes, strings.offset, strings.size, most)?;
            let (entry, count) = (self.entry() as usize, section.size / self.entry());
            let end = section.offset.checked_add(section.size).ok_or(ElfError::Format)?;
            if end > self.bytes.size() {
                return Err(ElfError::Format);
            }
            let mut buffer = vec![0; entry * CHUNK.min(count as usize)];
            let mut at = 0;
            while at < count && found.len() < names.len() {
                let here = (count - at).min(CHUNK as u64) as usize;
                let buffer = buffer.get_mut(..here * entry).unwrap_or_default();
                self.bytes.read(section.offset + at * entry as u64, buffer)?;
                for (name, address) in buffer.chunks_exact(entry).filter_map(|c| self.placed(c)) {
                    let rest = strings.get(name..).unwrap_or_default();
                    let text = rest.split(|b| *b == 0).next().and_then(|b| std::str::from_utf8(b).ok());
                    if let Some(text) = text.filter(|text| names.contains(*text)) {
                        found.entry(text.to_owned()).or_insert(address);
                    }
                }
                at += here as u64;
            }
        }
        Ok(found)
    }

    /// Where the name of a symbol is, and its address, if it has a place in the process.
    fn placed(&self, entry: &[u8]) -> Option<(usize, u64)> {
        let f = Fields(entry);
        let (info, index) = if self.is_64 { (4, f.u16(6)) } else { (12, f.u16(14)) };
        // Neither undefined nor absolute nor of a thread (STT_TLS), and no section or file.
        let kind = *entry.get(info)? & 15;
        let address = f.word(self.is_64, 8, 4);
        let is_placed = !matches!(index, 0 | 0xfff1) && matches!(kind, 0 | 1 | 2 | 10) && address != 0;
        is_placed.then_some((f.u32(0) as usize, address))
    }
}
