//! Symbol tables of ELF files, read with positioned and bounded reads.
//!
//! Only headers and symbol entries are read, in chunks. Names stay in the file and are read one at
//! a time, when a lookup needs them. A table takes 16 bytes per symbol and is sorted by address.
//! Offsets and sizes in headers are checked against the size of the file and the limits below. (ELF
//! libraries read from a slice of the whole file or allocate as much as its headers ask for. Files
//! of gigabytes are read here, and files that a traced process has prepared.)
//!
//! **Selection.** Several symbols often contain an address. A symbol with a size is preferred to
//! one without (a label inside a function is not the function), then the symbol with the highest
//! start. Among symbols with the same start the order is that of illumos: functions before data,
//! global before local, fewest leading underscores, smallest size, then alphabetical.

use std::io;
use std::rc::Rc;

use diagnostics::control;

use crate::arch;
use crate::wire::MAX_NAME;
use files::open::Contents;

/// A source of positioned reads: a file or a buffer.
pub(crate) trait ByteSource {
    /// The size in bytes.
    fn size(&self) -> u64;
    /// Fills a buffer from a position. A range beyond the end is an error.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

impl ByteSource for Contents {
    fn size(&self) -> u64 {
        Contents::size(self)
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        Contents::read(self, at, into)
    }
}

impl ByteSource for Vec<u8> {
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

/// Why the symbols of a file cannot be read.
#[derive(Debug)]
pub(crate) enum ElfError {
    /// A system call failed, or a header points outside of the file.
    Io(io::Error),
    /// Not a valid ELF file of this machine's byte order.
    Format,
    /// The symbols need this many bytes of memory, which exceeds the limit.
    Large(u64),
    /// A section is compressed in a way that is not read.
    Compression,
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
            ElfError::Compression => f.write_str("it is compressed otherwise than by zlib or zstd"),
        }
    }
}

/// Maximum number of sections. An executable has some 40; an object file may have more than this
/// limit.
const MAX_SECTIONS: u64 = 1 << 16;
/// Maximum size of the section names, in bytes.
const MAX_SECTION_NAMES: u64 = 1 << 20;
/// Maximum size of a note section and of a debug link section, in bytes.
const MAX_NOTES: u64 = 64 << 10;
/// Symbols per read.
const CHUNK: usize = 1 << 15;
/// The number of symbols before an address that are searched for one that contains it.
const NEAR: usize = 64;

const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
/// `SHF_COMPRESSED`.
const COMPRESSED: u64 = 1 << 11;
pub(super) const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;

#[derive(Clone, Copy, Debug)]
struct Load {
    offset: u64,
    addr: u64,
    /// Bytes in the file.
    size: u64,
    /// Bytes in memory: what the file does not have begins as zeros.
    in_memory: u64,
    is_code: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    name: u32,
    pub(super) kind: u32,
    flags: u64,
    pub(super) addr: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    link: u32,
}

/// The headers of an ELF file.
pub(crate) struct Elf {
    pub(super) bytes: Rc<dyn ByteSource>,
    pub(super) is_64: bool,
    /// The kind of processor.
    machine: u64,
    entry_point: u64,
    /// There is a `PT_INTERP` segment.
    has_interpreter: bool,
    loads: Vec<Load>,
    sections: Vec<Section>,
    names: Vec<u8>,
}

/// The bytes of a header, whose fields have the byte order of this machine.
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
    /// A word of the file's class; its offsets in the 64-bit and the 32-bit header.
    fn word(&self, is_64: bool, at64: usize, at32: usize) -> u64 {
        if is_64 { self.u64(at64) } else { self.u32(at32) }
    }
}

pub(super) fn read(bytes: &dyn ByteSource, at: u64, length: u64, most: u64) -> Result<Vec<u8>, ElfError> {
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
    pub(crate) fn open(bytes: Rc<dyn ByteSource>) -> Result<Elf, ElfError> {
        let mut head = [0; 64];
        let length = bytes.size().min(64) as usize;
        bytes.read(0, head.get_mut(..length).unwrap_or_default())?;
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if head[..4] != *b"\x7fELF" || !matches!(head[4], 1 | 2) || head[5] != order {
            return Err(ElfError::Format);
        }
        let is_64 = head[4] == 2;
        let h = Fields(&head);
        let (phoff, shoff) = (h.word(is_64, 32, 28), h.word(is_64, 40, 32));
        let at = |at_64, at| if is_64 { h.u16(at_64) } else { h.u16(at) };
        let (phsize, phnum) = (at(54, 42), at(56, 44));
        let (shsize, mut shnum, mut names) = (at(58, 46), at(60, 48), at(62, 50));
        let mut elf = Elf {
            bytes,
            is_64,
            machine: h.u16(18),
            entry_point: h.word(is_64, 24, 24),
            has_interpreter: false,
            loads: Vec::new(),
            sections: Vec::new(),
            names: Vec::new(),
        };
        if phnum > 0 && phsize == if is_64 { 56 } else { 32 } {
            let table = read(&*elf.bytes, phoff, phnum * phsize, u64::MAX)?;
            const INTERPRETER: u64 = 3;
            elf.has_interpreter =
                table.chunks_exact(phsize as usize).any(|c| Fields(c).u32(0) == INTERPRETER);
            elf.loads = table.chunks_exact(phsize as usize).filter_map(|c| load(is_64, c)).collect();
        }
        if shoff == 0 || shsize != if is_64 { 64 } else { 40 } {
            return Ok(elf);
        }
        if shnum == 0 || names == 0xffff {
            // The counts do not fit into the header. The first section holds them.
            let first = section(is_64, &read(&*elf.bytes, shoff, shsize, u64::MAX)?);
            shnum = if shnum == 0 { first.size } else { shnum };
            names = if names == 0xffff { first.link.into() } else { names };
        }
        if shnum > MAX_SECTIONS {
            return Err(ElfError::Format);
        }
        let table = read(&*elf.bytes, shoff, shnum * shsize, u64::MAX)?;
        elf.sections = table.chunks_exact(shsize as usize).map(|c| section(is_64, c)).collect();
        if let Some(s) = elf.sections.get(names as usize).filter(|s| s.kind != SHT_NOBITS) {
            elf.names = read(&*elf.bytes, s.offset, s.size, MAX_SECTION_NAMES).unwrap_or_default();
        }
        Ok(elf)
    }

    /// The virtual address of a file offset, or of one behind a part of the file, where the memory
    /// behind that part is meant: there the file has what is not loaded.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let within = |l: &&Load, size: u64| offset.checked_sub(l.offset).is_some_and(|into| into < size);
        let inside = self.loads.iter().find(|l| within(l, l.size));
        let found = inside.or_else(|| self.loads.iter().find(|l| within(l, l.in_memory)))?;
        Some(found.addr.wrapping_add(offset - found.offset))
    }

    /// The parts of the file that are loaded as code: offset, size and address.
    pub(crate) fn code_loads(&self) -> Vec<(u64, u64, u64)> {
        let loads = self.loads.iter().filter(|l| l.is_code && l.size > 0);
        loads.map(|l| (l.offset, l.size, l.addr)).collect()
    }

    /// A section of at most so many bytes, with its address.
    pub(crate) fn section(&self, name: &[u8], most: u64) -> Option<(u64, Vec<u8>)> {
        let section = self.section_named(name).filter(|s| s.flags & COMPRESSED == 0)?;
        Some((section.addr, read(&*self.bytes, section.offset, section.size, most).ok()?))
    }

    /// True if the machine code is that of this processor, in 64 bits.
    pub(crate) fn is_native(&self) -> bool {
        self.is_64 && self.machine == arch::EM
    }

    /// The same, of a process of 32 bits.
    pub(crate) fn is_native_32(&self) -> bool {
        !self.is_64 && self.machine == arch::EM_32
    }

    pub(super) fn section_named(&self, name: &[u8]) -> Option<&Section> {
        let named = |s: &&Section| {
            let rest = self.names.get(s.name as usize..).unwrap_or_default();
            rest.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
        };
        self.sections.iter().filter(|s| s.kind != SHT_NOBITS).find(named)
    }

    /// The GNU build id.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        self.sections.iter().filter(|s| s.kind == SHT_NOTE && s.size <= MAX_NOTES).find_map(|s| {
            let notes = read(&*self.bytes, s.offset, s.size, MAX_NOTES).ok()?;
            build_id_in(&notes)
        })
    }

    /// The contents of `.gnu_debuglink`: the name of the debug file, and its checksum.
    pub(crate) fn debug_link(&self) -> Option<(Vec<u8>, u32)> {
        let section = self.section_named(b".gnu_debuglink")?;
        let link = read(&*self.bytes, section.offset, section.size, MAX_NOTES).ok()?;
        let length = link.iter().position(|b| *b == 0)?;
        let sum = link.get((length + 4) & !3..)?.get(..4)?;
        Some((link.get(..length)?.to_vec(), u32::from_ne_bytes(sum.try_into().ok()?)))
    }

    /// The checksum of this file in a debug link.
    pub(crate) fn checksum(&self) -> io::Result<u32> {
        let mut sum = crc32fast::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.bytes.size() {
            let length = (self.bytes.size() - at).min(buffer.len() as u64) as usize;
            let buffer = buffer.get_mut(..length).unwrap_or_default();
            self.bytes.read(at, buffer)?;
            sum.update(buffer);
            at += length as u64;
        }
        Ok(sum.finalize())
    }

    /// Closes the file. Addresses of offsets are still known.
    pub(crate) fn close(&mut self) {
        self.bytes = Rc::new(Vec::new());
        self.names = Vec::new();
    }

    /// False if the file is closed.
    pub(crate) fn is_open(&self) -> bool {
        self.bytes.size() > 0
    }

    /// The size of the file.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.size()
    }

    /// The memory that [`Elf::table`] needs, in bytes.
    pub(crate) fn table_size(&self) -> u64 {
        self.symbols().map_or(0, |s| s.size / self.entry() * size_of::<Symbol>() as u64)
    }

    fn entry(&self) -> u64 {
        if self.is_64 { 24 } else { 16 }
    }

    /// The section of the full symbol table, otherwise of the dynamic one.
    fn symbols(&self) -> Option<&Section> {
        let of = |kind| self.sections.iter().find(|s| s.kind == kind && s.size >= 2 * self.entry());
        of(SHT_SYMTAB).or_else(|| of(SHT_DYNSYM))
    }

    /// Reads the symbols, if they need at most `most` bytes of memory.
    pub(crate) fn table(&self, most: u64) -> Result<Table, ElfError> {
        let mut table = Table { bytes: self.bytes.clone(), names: (0, 0), in_memory: 0, symbols: Vec::new() };
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
            let buffer = buffer.get_mut(..here * entry).unwrap_or_default();
            self.bytes.read(section.offset + at * entry as u64, buffer)?;
            table.symbols.extend(buffer.chunks_exact(entry).filter_map(|c| self.symbol(c)));
            at += here as u64;
        }
        table.sort();
        Ok(table)
    }

    fn symbol(&self, entry: &[u8]) -> Option<Symbol> {
        let f = Fields(entry);
        let (info, index) = if self.is_64 { (4, f.u16(6)) } else { (12, f.u16(14)) };
        let info = *entry.get(info)?;
        let (addr, size) = (f.word(self.is_64, 8, 4), f.word(self.is_64, 16, 8));
        // STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC; no undefined (SHN_UNDEF) or absolute
        // (SHN_ABS) symbols.
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

fn load(is_64: bool, header: &[u8]) -> Option<Load> {
    let h = Fields(header);
    let flags = if is_64 { h.u32(4) } else { h.u32(24) };
    let load = Load {
        offset: h.word(is_64, 8, 4),
        addr: h.word(is_64, 16, 8),
        size: h.word(is_64, 32, 16),
        in_memory: h.word(is_64, 40, 20),
        is_code: flags & 1 != 0,
    };
    (h.u32(0) == 1).then_some(load)
}

fn section(is_64: bool, header: &[u8]) -> Section {
    let h = Fields(header);
    Section {
        name: h.u32(0) as u32,
        kind: h.u32(4) as u32,
        flags: h.word(is_64, 8, 8),
        addr: h.word(is_64, 16, 12),
        offset: h.word(is_64, 24, 16),
        size: h.word(is_64, 32, 20),
        link: if is_64 { h.u32(40) } else { h.u32(24) } as u32,
    }
}

/// Finds `NT_GNU_BUILD_ID` (3). A note has the sizes of its name and content, its type, its name
/// and its content, both padded to four bytes.
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

/// A symbol in 16 bytes. The rank is stored in the upper three bits of the size; a symbol of 512 MB
/// or more would need them.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    addr: u64,
    size_and_rank: u32,
    name: u32,
}

/// Mask of the size of a [`Symbol`]. All bits set: that size or more.
const SIZE: u32 = (1 << 29) - 1;

impl Symbol {
    fn new(addr: u64, size: u64, rank: u32, name: u32) -> Symbol {
        Symbol { addr, size_and_rank: rank << 29 | size.min(SIZE.into()) as u32, name }
    }
    fn size(&self) -> u64 {
        (self.size_and_rank & SIZE).into()
    }
    /// Bits of the rank, most significant first: no size, not a function, local. The lowest rank is
    /// preferred.
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
    bytes: Rc<dyn ByteSource>,
    /// Offset and size of the string table.
    names: (u64, u64),
    /// Its bytes in memory, if `bytes` is that.
    in_memory: u64,
    symbols: Vec<Symbol>,
}

impl Table {
    /// The memory in use, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        (self.symbols.capacity() * size_of::<Symbol>()) as u64 + self.in_memory
    }

    /// The bytes of all names.
    pub(crate) fn names_size(&self) -> u64 {
        self.names.1
    }

    /// Reads the names into memory, if they and the symbols need at most `most` bytes. The file is
    /// not used any more.
    pub(crate) fn read_names(&mut self, most: u64) -> Result<(), ElfError> {
        let (offset, size) = self.names;
        let left = most.saturating_sub(self.memory());
        if size > left {
            return Err(ElfError::Large(size));
        }
        self.bytes = Rc::new(read(&*self.bytes, offset, size, left)?);
        (self.names, self.in_memory) = ((0, size), size);
        Ok(())
    }

    fn sort(&mut self) {
        self.symbols.sort_unstable_by_key(|s| (s.addr, s.rank(), s.name));
        // A symbol without a size ends at the next symbol.
        let mut next = u64::MAX;
        for at in (0..self.symbols.len()).rev() {
            let following = self.symbols.get(at + 1).map_or(u64::MAX, |s| s.addr);
            let Some(symbol) = self.symbols.get_mut(at) else { break };
            let addr = symbol.addr;
            next = if following > addr { following } else { next };
            if symbol.has_no_size() {
                *symbol = Symbol::new(addr, symbol.size().min(next - addr), symbol.rank(), symbol.name);
            }
        }
        self.symbols.shrink_to_fit();
    }

    /// The symbol that contains an address: the offset in it, and its mangled name.
    pub(crate) fn find(&self, addr: u64) -> Option<(u64, String)> {
        let after = self.symbols.partition_point(|s| s.addr <= addr);
        let near = self.symbols.get(after.saturating_sub(NEAR)..after)?;
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

    /// The name at an offset of the string table, without a symbol version.
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

/// Truncates a name to [`MAX_NAME`]. An escaped name may exceed it.
pub(super) fn shortened(name: &str) -> String {
    let end = (0..=name.len().min(MAX_NAME)).rev().find(|end| name.is_char_boundary(*end));
    name[..end.unwrap_or(0)].into()
}

pub(super) mod code;
mod contents;
mod places;
mod relocations;

#[cfg(test)]
pub(super) mod tests;
