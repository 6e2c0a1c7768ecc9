//! The table of the kernel's symbols, and its parser.
//!
//! The file has 200,000 lines, so a line may cost some tens of nanoseconds. The parser examines
//! eight bytes at a time, and first tries the usual format (a fixed-length prefix, no module or the
//! module of the line before).

use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use crate::arch::NARROW_CALLS;

/// Start of kernel addresses. Lower ones are user addresses, or offsets of per-CPU symbols.
pub(super) const KERNEL_START: u64 = 1 << 63;

/// A symbol of the kernel or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// The address.
    pub addr: u64,
    /// The name.
    pub name: &'a str,
    /// `vmlinux` or the module.
    pub module: &'a str,
    /// The type letter of `nm`: `T`, `t`, `D`, …
    pub kind: char,
}

/// Bytes per chunk, and the maximum number of queued chunks.
const CHUNK: usize = 1 << 16;
const QUEUED: usize = 16;

/// Maximum size of a function. An address further from a text symbol is not part of it.
const MAX_TEXT: u64 = 1 << 20;

/// The same limit for data.
const MAX_DATA: u64 = 1 << 24;

/// Symbols that mark the end of a section and contain no address.
const END_MARKERS: &[&str] = &["_etext", "_end", "_einittext", "_edata", "__bss_stop", "__end_rodata"];

/// The module name of the kernel itself.
pub(super) const CORE: &str = "vmlinux";

/// A symbol in 16 bytes. The first write to fresh memory costs more than parsing a symbol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) addr: u64,
    /// Offset in the buffer of all names. A NUL ends the name.
    name: u32,
    pub(super) module: u16,
    pub(super) kind: u8,
}

#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: Arc<str>,
    pub(super) start: u64,
    pub(super) end: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) symbols: Vec<Symbol>,
    /// Symbols that are offsets: per-CPU variables, on kernels whose per-CPU addresses start at 0.
    pub(super) offsets: Vec<Symbol>,
    names: Vec<u8>,
    pub(super) modules: Vec<Module>,
    /// True when a symbol line was parsed, even if its address was 0.
    pub(super) has_lines: bool,
    /// The module of the last line.
    last: u16,
}

impl Table {
    /// Reads and parses all lines. The kernel formats them during the read, which takes longer than
    /// parsing. A second thread therefore reads while this one parses.
    pub(super) fn read(mut from: impl Read + Send) -> std::io::Result<Table> {
        let core = Module { name: CORE.into(), start: u64::MAX, end: 0 };
        let mut table = Table {
            symbols: Vec::with_capacity(1 << 17),
            offsets: Vec::new(),
            names: Vec::with_capacity(1 << 21),
            modules: vec![core],
            has_lines: false,
            last: 0,
        };
        let from = &mut from;
        let (full, filled) = sync_channel::<Vec<u8>>(QUEUED);
        let (empty, spare) = sync_channel::<Vec<u8>>(QUEUED);
        std::thread::scope(|scope| {
            let give = move |chunk| {
                let _ = full.send(chunk);
                spare.try_recv().unwrap_or_default()
            };
            let reader = threads::spawn_scoped(scope, "kallsyms", threads::LARGE_STACK, || {
                read_chunks(&mut *from, give)
            });
            let Ok(reader) = reader else { return None };
            for chunk in filled {
                table.lines(&chunk);
                let _ = empty.try_send(chunk);
            }
            reader.join().ok()
        })
        .unwrap_or_else(|| {
            // The thread could not be created, and nothing was read.
            read_chunks(from, |chunk| {
                table.lines(&chunk);
                chunk
            })
        })?;
        table.finish();
        Ok(table)
    }

    /// Parses a chunk of complete lines. The last one may lack its newline.
    fn lines(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let length = self.parse_usual_line(text).unwrap_or_else(|| {
                let end = text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
                self.parse_line(text.get(..end).unwrap_or_default());
                end + 1
            });
            text = text.get(length..).unwrap_or_default();
        }
    }

    /// Parses a line of the usual format: `ffffffff81000000 T _stext` with or without `\t[module]`.
    /// Returns the line's length. `None`: another format, for [`Table::parse_line`].
    fn parse_usual_line(&mut self, text: &[u8]) -> Option<usize> {
        const NAME: usize = 19;
        let (head, rest) = text.split_first_chunk::<NAME>()?;
        let [digits @ .., b' ', kind, b' '] = head else { return None };
        let addr = parse_address(digits.first_chunk()?)?;
        let end = word_end(rest)?;
        let (name, after) = rest.split_at_checked(end)?;
        let module = match after.split_first()? {
            (b'\n', _) => None,
            (_, tail) => {
                let (module, after) = tail.split_at_checked(word_end(tail)?)?;
                let [b'[', module @ .., b']'] = module else { return None };
                if after.first() != Some(&b'\n') {
                    return None;
                }
                Some(module)
            }
        };
        self.add(addr, *kind, name, module);
        Some(NAME + end + 1 + module.map_or(0, |m| m.len() + 3))
    }

    /// Parses a line of any format. A line that is not a symbol is skipped.
    fn parse_line(&mut self, line: &[u8]) {
        let mut addr = 0u64;
        let mut at = 0;
        let digit = |at: usize| HEX.get(usize::from(*line.get(at)?)).copied().filter(|d| *d < 16);
        while let Some(digit) = digit(at) {
            addr = addr << 4 | u64::from(digit);
            at += 1;
        }
        let (Some(b' '), Some(&kind), Some(b' ')) = (line.get(at), line.get(at + 1), line.get(at + 2)) else {
            return;
        };
        if at == 0 {
            return;
        }
        let rest = line.get(at + 3..).unwrap_or_default();
        let end = rest.iter().position(|b| matches!(b, b'\t' | b' ')).unwrap_or(rest.len());
        let (name, module) = rest.split_at_checked(end).unwrap_or_default();
        let module = match module.trim_ascii() {
            [b'[', module @ .., b']'] => Some(module),
            _ => None,
        };
        self.add(addr, kind, name, module);
    }

    fn add(&mut self, addr: u64, kind: u8, name: &[u8], module: Option<&[u8]>) {
        self.has_lines = true;
        if addr == 0 {
            return;
        }
        let Ok(start) = u32::try_from(self.names.len()) else { return };
        let module = module.map_or(0, |m| self.module(m));
        self.names.extend_from_slice(name);
        self.names.push(0);
        let symbol = Symbol { addr, name: start, module, kind };
        if addr < KERNEL_START { &mut self.offsets } else { &mut self.symbols }.push(symbol);
    }

    fn module(&mut self, name: &[u8]) -> u16 {
        // The lines of a module are consecutive.
        if self.modules.get(usize::from(self.last)).is_some_and(|m| m.name.as_bytes() == name) {
            return self.last;
        }
        let Ok(name) = std::str::from_utf8(name) else { return 0 };
        if let Some(i) = self.modules.iter().rposition(|m| *m.name == *name) {
            self.last = i as u16;
            return self.last;
        }
        if self.modules.len() > usize::from(u16::MAX) {
            return 0;
        }
        self.modules.push(Module { name: name.into(), start: u64::MAX, end: 0 });
        self.last = (self.modules.len() - 1) as u16;
        self.last
    }

    fn finish(&mut self) {
        // A stable sort keeps the order of the file for equal ranks. The input is nearly sorted by
        // address, which makes this sort fast. Ranks are compared only among symbols of one
        // address.
        self.symbols.sort_by_key(|s| s.addr);
        for aliases in self.symbols.chunk_by_mut(|x, y| x.addr == y.addr) {
            if aliases.len() > 1 {
                aliases.sort_by_cached_key(|s| rank(s.kind, bytes(&self.names, s)));
            }
        }
        for s in &self.symbols {
            if let Some(m) = self.modules.get_mut(usize::from(s.module)) {
                m.start = m.start.min(s.addr);
                m.end = m.end.max(s.addr);
            }
        }
        self.symbols.shrink_to_fit();
        self.offsets.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    pub(super) fn text(&self, symbol: &Symbol) -> &str {
        std::str::from_utf8(bytes(&self.names, symbol)).unwrap_or("?")
    }

    /// True when the symbol has this name.
    pub(super) fn is_named(&self, symbol: &Symbol, name: &str) -> bool {
        let text = self.names.get(symbol.name as usize..).and_then(|t| t.strip_prefix(name.as_bytes()));
        text.is_some_and(|after| after.first() == Some(&0))
    }

    pub(super) fn symbols(&self) -> impl Iterator<Item = KernelSymbol<'_>> {
        self.symbols.iter().map(|s| self.shown(s))
    }

    pub(super) fn shown(&self, s: &Symbol) -> KernelSymbol<'_> {
        KernelSymbol {
            addr: s.addr,
            name: self.text(s),
            module: self.modules.get(usize::from(s.module)).map_or(CORE, |m| &*m.name),
            kind: char::from(s.kind),
        }
    }

    pub(super) fn find(&self, addr: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|s| s.addr <= addr);
        let last = self.symbols.get(after.checked_sub(1)?)?;
        let first = self.symbols.partition_point(|s| s.addr < last.addr);
        let symbol = self.symbols.get(first)?;
        let offset = addr - symbol.addr;
        let text = matches!(symbol.kind | 0x20, b't' | b'w');
        let beyond = offset > if text { MAX_TEXT } else { MAX_DATA };
        let marker = offset > 0 && END_MARKERS.contains(&self.text(symbol));
        (!beyond && !marker).then_some(symbol)
    }
}

/// Reads chunks of complete lines and passes each to `give`, which returns a buffer for reuse.
fn read_chunks(mut from: impl Read, mut give: impl FnMut(Vec<u8>) -> Vec<u8>) -> std::io::Result<()> {
    let mut chunk = Vec::new();
    let mut filled = 0;
    loop {
        chunk.resize(CHUNK, 0);
        let got = match from.read(chunk.get_mut(filled..).unwrap_or_default()) {
            Ok(got) => got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        filled += got;
        // The kernel returns at most a page per read.
        if got > 0 && filled < CHUNK / 2 {
            continue;
        }
        let full = chunk.get(..filled).unwrap_or_default();
        let whole = full.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        // A line longer than a chunk is not a symbol.
        let whole = if got == 0 || filled == CHUNK && whole == 0 { filled } else { whole };
        let rest = full.get(whole..).unwrap_or_default().to_vec();
        chunk.truncate(whole);
        chunk = give(chunk);
        if got == 0 {
            return Ok(());
        }
        chunk.clear();
        filled = rest.len();
        chunk.extend(rest);
    }
}

fn bytes<'n>(names: &'n [u8], symbol: &Symbol) -> &'n [u8] {
    let from = names.get(symbol.name as usize..).unwrap_or_default();
    from.split(|b| *b == 0).next().unwrap_or_default()
}

/// The rank of an alias; the lowest is chosen. See the module documentation of [`super`].
fn rank(kind: u8, name: &[u8]) -> u8 {
    let class = match kind {
        b'T' => 0,
        b'W' | b'V' => 1,
        b't' | b'w' => 2,
        b'A'..=b'Z' => 3,
        _ => 4,
    };
    if name.first() != Some(&b'_') {
        return class;
    }
    // Linker markers: `_text`, `_stext`, `__entry_text_start`, `__start_rodata`.
    let marker = matches!(name, b"_text" | b"_stext" | b"_etext" | b"_sinittext" | b"_einittext" | b"_end")
        || name.starts_with(b"__")
            && (name.ends_with(b"_start")
                || name.ends_with(b"_end")
                || name.ends_with(b"_begin")
                || name.starts_with(b"__start_")
                || name.starts_with(b"__stop_")
                || name.starts_with(b"__end_"));
    // A system call without arguments has one function for both tables. Users expect the 64-bit
    // name.
    let narrow = NARROW_CALLS.iter().any(|prefix| name.starts_with(prefix));
    class + 8 * u8::from(marker) + 5 * u8::from(narrow)
}

/// Values of hexadecimal digits; 255 for other bytes.
#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const HEX: [u8; 256] = {
    let mut table = [255; 256];
    let mut i = 0;
    while i < 16 {
        table[b"0123456789abcdef"[i] as usize] = i as u8;
        table[b"0123456789ABCDEF"[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// Parses sixteen lower-case hexadecimal digits.
fn parse_address(digits: &[u8; 16]) -> Option<u64> {
    let (words, _) = digits.as_chunks::<8>();
    let [high, low] = words else { return None };
    Some(parse_eight_digits(*high)? << 32 | parse_eight_digits(*low)?)
}

/// Parses eight lower-case hexadecimal digits in parallel.
fn parse_eight_digits(digits: [u8; 8]) -> Option<u64> {
    const ONES: u64 = u64::MAX / 255;
    let text = u64::from_be_bytes(digits);
    // Letters have bit 6 set. The value of a letter is its low four bits plus 9.
    let letters = text >> 6 & ONES;
    let values = (text & (ONES * 15)) + letters * 9;
    // Validates the digits by formatting the values again. Adding 6 carries into bit 4 for values
    // of 10 and more.
    let again =
        values + ONES * u64::from(b'0') + ((values + ONES * 6) >> 4 & ONES) * u64::from(b'a' - b'0' - 10);
    if again != text || values & (ONES * 0xf0) != 0 {
        return None;
    }
    let pairs = (values | values >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((fours | fours >> 16) & 0xffff_ffff)
}

/// The end of the first word: a blank, a tab or a newline. `None` if the text ends before.
fn word_end(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let (words, tail) = text.as_chunks::<8>();
    for (i, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        // Sets the top bit of each byte below 0x21. A borrow may set further bits above the lowest
        // one.
        let low = word.wrapping_sub(ONES * 0x21) & !word & (ONES << 7);
        if low != 0 {
            return Some(8 * i + low.trailing_zeros() as usize / 8);
        }
    }
    let end = tail.iter().position(|b| *b < 0x21)?;
    Some(8 * words.len() + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_sixteen_lower_case_digits() {
        for n in [0, 1, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX, 0xffff_ffff_8100_0000] {
            assert_eq!(parse_address(format!("{n:016x}").as_bytes().first_chunk().unwrap()), Some(n));
        }
        // Every byte, at each position.
        for at in 0..16 {
            for byte in 0..=255u8 {
                let mut digits = *b"0000000000000000";
                digits[at] = byte;
                let value = HEX[usize::from(byte)];
                let right = value < 16 && !byte.is_ascii_uppercase();
                assert_eq!(
                    parse_address(&digits),
                    right.then(|| u64::from(value) << (60 - 4 * at)),
                    "{byte:#x}"
                );
            }
        }
    }

    #[test]
    fn a_word_ends_at_the_first_blank_tab_or_newline() {
        assert_eq!(word_end(b"abc def"), Some(3));
        assert_eq!(word_end(b"a_long_name_of_32_bytes_and_more\t[m]\n"), Some(32));
        assert_eq!(word_end("straße_straße\n".as_bytes()), Some(15));
        assert_eq!(word_end(b"\n"), Some(0));
        assert_eq!(word_end(b"unfinished_unfinished"), None);
    }

    #[test]
    fn lines_of_unusual_format_are_parsed() {
        let text = "ffffffff81000000 T one\n81 t two\t[m]\nFFFFFFFF81000010 t three [m]\n\
                    ffffffff81000020 t four\t[m] \nffffffff81000030 t\nffffffff81000040 t five";
        let table = Table::read(text.as_bytes()).unwrap();
        let all: Vec<String> =
            table.symbols().map(|s| format!("{:x} {}`{}", s.addr, s.module, s.name)).collect();
        assert_eq!(
            all,
            [
                "ffffffff81000000 vmlinux`one",
                "ffffffff81000010 m`three",
                "ffffffff81000020 m`four",
                "ffffffff81000040 vmlinux`five"
            ]
        );
        assert_eq!(table.offsets.len(), 1);
    }
}
