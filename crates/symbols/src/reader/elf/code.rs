//! What a list of functions needs of a file: where its code is, the symbols in it, the bytes.

use super::{
    CHUNK, Elf, ElfError, Fields, MAX_SECTION_NAMES, SHT_DYNSYM, SHT_NOBITS, SHT_SYMTAB, Section, read,
};

/// `SHF_EXECINSTR`.
const EXECUTABLE: u64 = 4;

/// A part of a file that is machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// The first address, and the one after the last.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The offset of the first byte in the file.
    pub(crate) offset: u64,
}

/// A symbol of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeSymbol {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    /// Offset of the name in [`SymbolTable::names`].
    pub(crate) name: u32,
    pub(crate) is_local: bool,
    pub(crate) kind: SymbolKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function,
    /// `STT_GNU_IFUNC`.
    Indirect,
    /// `STT_NOTYPE`: a label of an assembler.
    Label,
}

/// The functions and labels of a symbol table, in the table's order.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    pub(crate) symbols: Vec<CodeSymbol>,
    /// Names of symbols that other files define.
    pub(crate) imports: Vec<u32>,
    pub(crate) names: Vec<u8>,
}

impl SymbolTable {
    /// The bytes of a name.
    pub(crate) fn name(&self, at: u32) -> &[u8] {
        let rest = self.names.get(at as usize..).unwrap_or_default();
        rest.split(|b| *b == 0).next().unwrap_or_default()
    }
}

/// A kind of symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKind {
    /// `.symtab`.
    Full,
    /// `.dynsym`.
    Dynamic,
}

impl Elf {
    /// True if a file has a full table.
    pub(crate) fn has_full_table(&self) -> bool {
        self.table_section(TableKind::Full).is_some()
    }

    pub(super) fn table_section(&self, kind: TableKind) -> Option<&Section> {
        let kind = match kind {
            TableKind::Full => SHT_SYMTAB,
            TableKind::Dynamic => SHT_DYNSYM,
        };
        self.sections.iter().find(|s| s.kind == kind && s.size >= 2 * self.entry())
    }

    /// The memory that [`Elf::functions`] needs, in bytes.
    pub(crate) fn functions_size(&self, kind: TableKind) -> u64 {
        let Some(section) = self.table_section(kind) else { return 0 };
        let names = self.sections.get(section.link as usize).map_or(0, |s| s.size);
        (section.size / self.entry()).saturating_mul(size_of::<CodeSymbol>() as u64).saturating_add(names)
    }

    /// The functions and labels of a table, if they need at most `most` bytes of memory.
    pub(crate) fn functions(&self, kind: TableKind, most: u64) -> Result<SymbolTable, ElfError> {
        let mut table = SymbolTable::default();
        let Some(section) = self.table_section(kind) else { return Ok(table) };
        let needed = self.functions_size(kind);
        if needed > most {
            return Err(ElfError::Large(needed));
        }
        let strings = self.sections.get(section.link as usize).filter(|s| s.kind != SHT_NOBITS);
        let strings = strings.ok_or(ElfError::Format)?;
        let end = section.offset.checked_add(section.size).ok_or(ElfError::Format)?;
        if section.kind == SHT_NOBITS || end > self.bytes.size() {
            return Err(ElfError::Format);
        }
        table.names = read(&*self.bytes, strings.offset, strings.size, most)?;
        let (entry, count) = (self.entry() as usize, section.size / self.entry());
        table.symbols.try_reserve_exact(count as usize).map_err(|_| ElfError::Large(needed))?;
        let mut buffer = vec![0; entry * CHUNK.min(count as usize)];
        let mut at = 0;
        while at < count {
            let here = (count - at).min(CHUNK as u64) as usize;
            let buffer = buffer.get_mut(..here * entry).unwrap_or_default();
            self.bytes.read(section.offset + at * entry as u64, buffer)?;
            table.symbols.extend(buffer.chunks_exact(entry).filter_map(|c| self.code_symbol(c)));
            table.imports.extend(buffer.chunks_exact(entry).filter_map(|c| self.import(c)));
            at += here as u64;
        }
        Ok(table)
    }

    /// The name of a symbol that another file defines.
    fn import(&self, entry: &[u8]) -> Option<u32> {
        let f = Fields(entry);
        let index = if self.is_64 { f.u16(6) } else { f.u16(14) };
        let name = f.u32(0) as u32;
        (index == 0 && name != 0).then_some(name)
    }

    fn code_symbol(&self, entry: &[u8]) -> Option<CodeSymbol> {
        let f = Fields(entry);
        let (info, index) = if self.is_64 { (4, f.u16(6)) } else { (12, f.u16(14)) };
        let info = *entry.get(info)?;
        let kind = match info & 15 {
            0 => SymbolKind::Label,
            2 => SymbolKind::Function,
            10 => SymbolKind::Indirect,
            _ => return None,
        };
        // Undefined (SHN_UNDEF) and absolute (SHN_ABS) symbols are not in the code.
        let addr = f.word(self.is_64, 8, 4);
        (!matches!(index, 0 | 0xfff1) && addr != 0).then_some(CodeSymbol {
            addr,
            size: f.word(self.is_64, 16, 8),
            name: f.u32(0) as u32,
            is_local: info >> 4 == 0,
            kind,
        })
    }

    /// Where functions can be, in the order of addresses: the executable sections without those of
    /// stubs (`.plt`), as far as they are in an executable segment; the segments, if there are no
    /// sections.
    pub(crate) fn code_regions(&self) -> Vec<Region> {
        let loads = self.loads.iter().filter(|l| l.is_code && l.size > 0);
        let segments: Vec<Region> = loads
            .filter_map(|l| {
                let size = l.size.min(self.bytes.size().checked_sub(l.offset)?);
                Some(Region { start: l.addr, end: l.addr.checked_add(size)?, offset: l.offset })
            })
            .collect();
        let is_code = |s: &&Section| s.flags & EXECUTABLE != 0 && s.addr != 0 && s.kind != SHT_NOBITS;
        let mut regions: Vec<Region> = if self.sections.iter().any(|s| is_code(&s)) {
            let own = self.sections.iter().filter(is_code).filter(|s| !self.is_of_stubs(s));
            let inside = |s: &Section| {
                let end = s.addr.checked_add(s.size)?;
                let load = segments.iter().find(|l| (l.start..l.end).contains(&s.addr))?;
                let offset = load.offset + (s.addr - load.start);
                Some(Region { start: s.addr, end: end.min(load.end), offset })
            };
            own.filter_map(inside).collect()
        } else {
            segments
        };
        regions.retain(|r| r.start < r.end);
        regions.sort_by_key(|r| (r.start, r.end));
        // Regions that overlap would make one address two offsets.
        let mut end = 0;
        regions.retain_mut(|r| {
            let skip = u64::saturating_sub(end, r.start);
            (r.start, r.offset) = (r.start.saturating_add(skip), r.offset.saturating_add(skip));
            end = end.max(r.end);
            r.start < r.end
        });
        regions
    }

    /// Where the file has data that is loaded: offset and size of each section, without the tables
    /// of unwinders.
    pub(crate) fn data_sections(&self) -> Vec<(u64, u64)> {
        const ALLOCATED: u64 = 2;
        let is_data = |s: &&Section| s.flags & (ALLOCATED | EXECUTABLE) == ALLOCATED && s.kind != SHT_NOBITS;
        let is_plain = |s: &&Section| !self.section_name(s).starts_with(b".eh_frame");
        let data = self.sections.iter().filter(is_data).filter(is_plain);
        data.filter(|s| s.offset.checked_add(s.size).is_some_and(|end| end <= self.bytes.size()))
            .map(|s| (s.offset, s.size))
            .collect()
    }

    fn section_name(&self, section: &Section) -> &[u8] {
        debug_assert!(self.names.len() as u64 <= MAX_SECTION_NAMES);
        let rest = self.names.get(section.name as usize..).unwrap_or_default();
        rest.split(|b| *b == 0).next().unwrap_or_default()
    }

    fn is_of_stubs(&self, section: &Section) -> bool {
        let name = self.section_name(section);
        name == b".plt" || name.starts_with(b".plt.") || name == b".iplt"
    }

    /// True if code of Go was linked into the file, perhaps beside that of other languages.
    pub(crate) fn is_of_go(&self) -> bool {
        let all: [&[u8]; 4] =
            [b".gopclntab", b".data.rel.ro.gopclntab", b".go.buildinfo", b".note.go.buildid"];
        all.iter().any(|section| self.has_section(section))
    }

    /// True if the file has a section with this name.
    pub(crate) fn has_section(&self, name: &[u8]) -> bool {
        self.section_named(name).is_some()
    }

    /// True if the file is a program that the dynamic linker starts.
    pub(crate) fn has_interpreter(&self) -> bool {
        self.has_interpreter
    }

    /// True if the file says what its parts are.
    pub(crate) fn has_sections(&self) -> bool {
        !self.sections.is_empty()
    }

    /// The address of the entry point; 0 for none.
    pub(crate) fn entry_point(&self) -> u64 {
        self.entry_point
    }

    /// Fills a buffer from an offset of the file.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ElfError> {
        Ok(self.bytes.read(offset, into)?)
    }
}
