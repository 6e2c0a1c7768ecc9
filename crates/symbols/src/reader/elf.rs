//! Symbol tables of ELF files, read by position and within bounds.
//!
//! Only headers and symbol entries are read, in pieces; names stay in the file and are read when they are wanted, one at a
//! time. A table is 16 bytes a symbol, sorted by address. What a header says is believed as far as the file reaches, and no
//! further than [`Limits`].
//!
//! **Which symbol.** Several often hold an address. One that has a size goes before one that has none (a label in the middle
//! of a function is not the function), then the one that begins last. Among those that begin together the original's order
//! decides: a function before data, global before local, fewest underscores in front, the shortest function, then the
//! alphabet.

use std::io;
use std::rc::Rc;

use diagnostics::control;

use crate::open::Contents;
use crate::wire::MAX_NAME;

/// Something that is read by position.
pub(crate) trait Bytes {
    /// How much there is.
    fn size(&self) -> u64;
    /// Fills a buffer from a position; what is not there is an error.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Bytes for Contents {
    fn size(&self) -> u64 {
        Contents::size(self)
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        Contents::read(self, at, into)
    }
}

impl Bytes for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = usize::try_from(at).ok().zip(usize::try_from(end).ok()).and_then(|(a, b)| self.get(a..b));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Why a file has no symbols for us.
#[derive(Debug)]
pub(crate) enum ElfError {
    /// The system says so, or a header points outside of the file.
    Io(io::Error),
    /// It is no ELF file of this machine's byte order, or makes no sense.
    Format,
    /// Its symbols take more memory than there may be: so many bytes.
    Large(u64),
}

impl From<io::Error> for ElfError {
    fn from(e: io::Error) -> Self {
        ElfError::Io(e)
    }
}

impl std::fmt::Display for ElfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ElfError::Io(e) => e.fmt(f),
            ElfError::Format => f.write_str("not a valid ELF file"),
            ElfError::Large(bytes) => write!(f, "its symbols need {bytes} bytes of memory"),
        }
    }
}

/// Sections that are looked at. An object file may have more, an executable has some 40.
const MAX_SECTIONS: u64 = 1 << 16;
/// Bytes of the names of sections.
const MAX_SECTION_NAMES: u64 = 1 << 20;
/// Bytes of a section of notes, and of a debug link.
const MAX_NOTES: u64 = 64 << 10;
/// Symbols read at once.
const CHUNK: usize = 1 << 15;
/// Symbols that are looked at before an address for one that holds it.
const NEAR: usize = 64;

const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;

#[derive(Clone, Copy, Debug)]
struct Load {
    offset: u64,
    addr: u64,
    size: u64,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    name: u32,
    kind: u32,
    addr: u64,
    offset: u64,
    size: u64,
    link: u32,
}

/// The headers of an ELF file.
pub(crate) struct Elf {
    bytes: Rc<dyn Bytes>,
    wide: bool,
    loads: Vec<Load>,
    sections: Vec<Section>,
    names: Vec<u8>,
}

/// Fields of a header, in the byte order of this machine.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u16(&self, at: usize) -> u64 {
        self.0.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, |b| u16::from_ne_bytes(b).into())
    }
    fn u32(&self, at: usize) -> u64 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, |b| u32::from_ne_bytes(b).into())
    }
    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }
    /// A word of the file's class, at its place in either.
    fn word(&self, wide: bool, at64: usize, at32: usize) -> u64 {
        if wide { self.u64(at64) } else { self.u32(at32) }
    }
}

fn read(bytes: &dyn Bytes, at: u64, length: u64, most: u64) -> Result<Vec<u8>, ElfError> {
    let end = at.checked_add(length).ok_or(ElfError::Format)?;
    if length > most || end > bytes.size() {
        return Err(ElfError::Format);
    }
    let mut out = Vec::new();
    out.try_reserve_exact(length as usize).map_err(|_| ElfError::Large(length))?;
    out.resize(length as usize, 0);
    bytes.read(at, &mut out)?;
    Ok(out)
}

impl Elf {
    /// Reads the headers.
    pub(crate) fn open(bytes: Rc<dyn Bytes>) -> Result<Elf, ElfError> {
        let mut head = [0; 64];
        let length = bytes.size().min(64) as usize;
        bytes.read(0, &mut head[..length])?;
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if head[..4] != *b"\x7fELF" || !matches!(head[4], 1 | 2) || head[5] != order {
            return Err(ElfError::Format);
        }
        let wide = head[4] == 2;
        let h = Fields(&head);
        let (phoff, shoff) = (h.word(wide, 32, 28), h.word(wide, 40, 32));
        let at = |wide_at, at| if wide { h.u16(wide_at) } else { h.u16(at) };
        let (phsize, phnum) = (at(54, 42), at(56, 44));
        let (shsize, mut shnum, mut names) = (at(58, 46), at(60, 48), at(62, 50));
        let mut elf = Elf { bytes, wide, loads: Vec::new(), sections: Vec::new(), names: Vec::new() };
        if phnum > 0 && phsize == if wide { 56 } else { 32 } {
            let table = read(&*elf.bytes, phoff, phnum * phsize, u64::MAX)?;
            elf.loads = table.chunks_exact(phsize as usize).filter_map(|c| load(wide, c)).collect();
        }
        if shoff == 0 || shsize != if wide { 64 } else { 40 } {
            return Ok(elf);
        }
        if shnum == 0 || names == 0xffff {
            // More than fit: the first section says how many.
            let first = section(wide, &read(&*elf.bytes, shoff, shsize, u64::MAX)?);
            shnum = if shnum == 0 { first.size } else { shnum };
            names = if names == 0xffff { first.link.into() } else { names };
        }
        if shnum > MAX_SECTIONS {
            return Err(ElfError::Format);
        }
        let table = read(&*elf.bytes, shoff, shnum * shsize, u64::MAX)?;
        elf.sections = table.chunks_exact(shsize as usize).map(|c| section(wide, c)).collect();
        if let Some(s) = elf.sections.get(names as usize).filter(|s| s.kind != SHT_NOBITS) {
            elf.names = read(&*elf.bytes, s.offset, s.size, MAX_SECTION_NAMES).unwrap_or_default();
        }
        Ok(elf)
    }

    /// The address, as the file counts, of what is at an offset of it.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let inside = |l: &&Load| offset.checked_sub(l.offset).is_some_and(|into| into < l.size);
        self.loads.iter().find(inside).map(|l| l.addr.wrapping_add(offset - l.offset))
    }

    fn section_named(&self, name: &[u8]) -> Option<&Section> {
        let named = |s: &&Section| {
            let rest = self.names.get(s.name as usize..).unwrap_or_default();
            rest.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
        };
        self.sections.iter().filter(|s| s.kind != SHT_NOBITS).find(named)
    }

    /// What tells this build from every other.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        self.sections.iter().filter(|s| s.kind == SHT_NOTE && s.size <= MAX_NOTES).find_map(|s| {
            let notes = read(&*self.bytes, s.offset, s.size, MAX_NOTES).ok()?;
            build_id_in(&notes)
        })
    }

    /// The name of a separate file with debug information, and its checksum.
    pub(crate) fn debug_link(&self) -> Option<(Vec<u8>, u32)> {
        let section = self.section_named(b".gnu_debuglink")?;
        let link = read(&*self.bytes, section.offset, section.size, MAX_NOTES).ok()?;
        let length = link.iter().position(|b| *b == 0)?;
        let sum = link.get((length + 4) & !3..)?.get(..4)?;
        Some((link.get(..length)?.to_vec(), u32::from_ne_bytes(sum.try_into().ok()?)))
    }

    /// The checksum that a debug link would have for this file.
    pub(crate) fn checksum(&self) -> io::Result<u32> {
        let mut sum = crc32fast::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.bytes.size() {
            let length = (self.bytes.size() - at).min(buffer.len() as u64) as usize;
            self.bytes.read(at, &mut buffer[..length])?;
            sum.update(&buffer[..length]);
            at += length as u64;
        }
        Ok(sum.finalize())
    }

    /// How large the file is.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.size()
    }

    /// Bytes of memory that reading the [`Elf::table`] takes.
    pub(crate) fn table_size(&self) -> u64 {
        self.symbols().map_or(0, |s| s.size / self.entry() * size_of::<Symbol>() as u64)
    }

    fn entry(&self) -> u64 {
        if self.wide { 24 } else { 16 }
    }

    /// The full symbol table, else the one for the dynamic linker.
    fn symbols(&self) -> Option<&Section> {
        let of = |kind| self.sections.iter().find(|s| s.kind == kind && s.size >= 2 * self.entry());
        of(SHT_SYMTAB).or_else(|| of(SHT_DYNSYM))
    }

    /// Reads the symbols, if they take no more than `most` bytes of memory.
    pub(crate) fn table(&self, most: u64) -> Result<Table, ElfError> {
        let mut table = Table { bytes: self.bytes.clone(), names: (0, 0), symbols: Vec::new() };
        let Some(section) = self.symbols() else { return Ok(table) };
        let strings = self.sections.get(section.link as usize).filter(|s| s.kind != SHT_NOBITS);
        let strings = strings.ok_or(ElfError::Format)?;
        table.names = (strings.offset, strings.size);
        let end = section.offset.checked_add(section.size).ok_or(ElfError::Format)?;
        if end > self.bytes.size() {
            return Err(ElfError::Format);
        }
        let needed = self.table_size();
        if needed > most {
            return Err(ElfError::Large(needed));
        }
        let (entry, count) = (self.entry() as usize, section.size / self.entry());
        table.symbols.try_reserve_exact(count as usize).map_err(|_| ElfError::Large(needed))?;
        let mut buffer = vec![0; entry * CHUNK.min(count as usize)];
        let mut at = 0;
        while at < count {
            let here = (count - at).min(CHUNK as u64) as usize;
            let buffer = &mut buffer[..here * entry];
            self.bytes.read(section.offset + at * entry as u64, buffer)?;
            table.symbols.extend(buffer.chunks_exact(entry).filter_map(|c| self.symbol(c)));
            at += here as u64;
        }
        table.sort();
        Ok(table)
    }

    fn symbol(&self, entry: &[u8]) -> Option<Symbol> {
        let f = Fields(entry);
        let (info, index) = if self.wide { (entry[4], f.u16(6)) } else { (entry[12], f.u16(14)) };
        let (addr, size) = (f.word(self.wide, 8, 4), f.word(self.wide, 16, 8));
        // STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC; not what is elsewhere (SHN_UNDEF) or no address (SHN_ABS).
        if !matches!(info & 15, 0 | 1 | 2 | 10) || matches!(index, 0 | 0xfff1) || addr == 0 {
            return None;
        }
        let section_end = self.sections.get(index as usize).map_or(addr, |s| s.addr.saturating_add(s.size));
        let mut rank = 0;
        rank |= u32::from(size == 0) << 2;
        rank |= u32::from(!matches!(info & 15, 2 | 10)) << 1;
        rank |= u32::from(info >> 4 == 0);
        let size = if size == 0 { section_end.saturating_sub(addr) } else { size };
        Some(Symbol::new(addr, size, rank, f.u32(0) as u32))
    }
}

fn load(wide: bool, header: &[u8]) -> Option<Load> {
    let h = Fields(header);
    let load = Load { offset: h.word(wide, 8, 4), addr: h.word(wide, 16, 8), size: h.word(wide, 32, 16) };
    (h.u32(0) == 1).then_some(load)
}

fn section(wide: bool, header: &[u8]) -> Section {
    let h = Fields(header);
    Section {
        name: h.u32(0) as u32,
        kind: h.u32(4) as u32,
        addr: h.word(wide, 16, 12),
        offset: h.word(wide, 24, 16),
        size: h.word(wide, 32, 20),
        link: if wide { h.u32(40) } else { h.u32(24) } as u32,
    }
}

/// Notes: sizes of name and content, a type, both padded to four bytes. `NT_GNU_BUILD_ID` is 3.
fn build_id_in(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let h = Fields(head);
        let (name, content, kind) = (h.u32(0) as usize, h.u32(4) as usize, h.u32(8));
        let (owner, rest) = rest.split_at_checked(name.checked_next_multiple_of(4)?)?;
        let (id, _) = rest.split_at_checked(content)?;
        if kind == 3 && owner.starts_with(b"GNU\0") && (2..=64).contains(&content) {
            return Some(id.to_vec());
        }
        notes = rest.get(content.checked_next_multiple_of(4)?..)?;
    }
}

/// A symbol in 16 bytes: its rank is in the upper bits of its size, which a function of half a gigabyte would need.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    addr: u64,
    size_and_rank: u32,
    name: u32,
}

/// Bits of [`Symbol`]'s size; all set: that much or more.
const SIZE: u32 = (1 << 29) - 1;

impl Symbol {
    fn new(addr: u64, size: u64, rank: u32, name: u32) -> Symbol {
        Symbol { addr, size_and_rank: rank << 29 | size.min(SIZE.into()) as u32, name }
    }
    fn size(&self) -> u64 {
        (self.size_and_rank & SIZE).into()
    }
    /// Least first: no size, no function, local.
    fn rank(&self) -> u32 {
        self.size_and_rank >> 29
    }
    fn has_no_size(&self) -> bool {
        self.rank() & 4 != 0
    }
    fn holds(&self, addr: u64) -> bool {
        addr - self.addr < self.size()
    }
}

/// The symbols of a file, sorted by address.
pub(crate) struct Table {
    bytes: Rc<dyn Bytes>,
    /// Offset and size of the names.
    names: (u64, u64),
    symbols: Vec<Symbol>,
}

impl Table {
    /// Bytes of memory it takes.
    pub(crate) fn memory(&self) -> u64 {
        (self.symbols.capacity() * size_of::<Symbol>()) as u64
    }

    fn sort(&mut self) {
        self.symbols.sort_unstable_by_key(|s| (s.addr, s.rank(), s.name));
        // What has no size ends at the next symbol.
        let mut next = u64::MAX;
        for at in (0..self.symbols.len()).rev() {
            let addr = self.symbols[at].addr;
            let following = self.symbols.get(at + 1).map_or(u64::MAX, |s| s.addr);
            next = if following > addr { following } else { next };
            let symbol = &mut self.symbols[at];
            if symbol.has_no_size() {
                *symbol = Symbol::new(addr, symbol.size().min(next - addr), symbol.rank(), symbol.name);
            }
        }
        self.symbols.shrink_to_fit();
    }

    /// The symbol that holds an address: bytes from its start, and its name as the linker has it.
    pub(crate) fn find(&self, addr: u64) -> Option<(u64, String)> {
        let after = self.symbols.partition_point(|s| s.addr <= addr);
        let near = &self.symbols[after.saturating_sub(NEAR)..after];
        let sized = near.iter().rev().find(|s| !s.has_no_size() && s.holds(addr));
        let start = sized.or_else(|| near.iter().rev().find(|s| s.holds(addr)))?.addr;
        let aliases = near.iter().filter(|s| s.addr == start && s.holds(addr));
        let best = aliases.filter_map(|s| {
            let name = self.name(s.name)?;
            let underscores = name.bytes().take_while(|b| *b == b'_').count();
            Some((s.rank(), name.starts_with('$'), underscores, s.size(), name))
        });
        best.min().map(|(.., name)| (addr - start, name))
    }

    /// A name, without the version that the linker has put behind it.
    fn name(&self, at: u32) -> Option<String> {
        let (offset, size) = self.names;
        let left = size.checked_sub(at.into())?;
        for most in [128, MAX_NAME as u64] {
            let mut text = vec![0; left.min(most) as usize];
            self.bytes.read(offset.checked_add(at.into())?, &mut text).ok()?;
            let end = text.iter().position(|b| *b == 0);
            if end.is_none() && most < left && most < MAX_NAME as u64 {
                continue;
            }
            text.truncate(end.unwrap_or(text.len()));
            let name = control::name(&text);
            let name = name.split('@').next().unwrap_or_default();
            return (!name.is_empty()).then(|| shortened(name));
        }
        None
    }
}

/// A name within [`MAX_NAME`]: escapes are longer than what they stand for.
pub(super) fn shortened(name: &str) -> String {
    let end = (0..=name.len().min(MAX_NAME)).rev().find(|end| name.is_char_boundary(*end));
    name[..end.unwrap_or(0)].into()
}

#[cfg(test)]
pub(super) mod tests;
