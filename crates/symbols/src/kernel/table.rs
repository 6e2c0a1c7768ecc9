//! The table of the kernel's symbols, and the reading of it.
//!
//! There are 200,000 lines, so a line may cost some tens of nanoseconds: eight bytes are looked at at a time, and what
//! nearly every line shares (its length before the name, no module or the one of the line before) is tried first.

use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::{KERNEL_START, KernelSymbol};

/// Bytes read before they are looked at, and how many such pieces may wait.
const PIECE: usize = 1 << 16;
const WAITING: usize = 16;

/// A function is never longer; an address further behind a symbol of text is in a hole.
const MAX_TEXT: u64 = 1 << 20;

/// Likewise for data.
const MAX_DATA: u64 = 1 << 24;

/// Symbols that only mark an end: nothing is inside them.
const END_MARKERS: &[&str] = &["_etext", "_end", "_einittext", "_edata", "__bss_stop", "__end_rodata"];

/// Name of the kernel itself as a module.
pub(super) const CORE: &str = "vmlinux";

/// 16 bytes, because memory that was never touched costs more to write than a symbol to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) addr: u64,
    /// Into the text of all names, where a NUL ends it.
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
    /// Symbols that are offsets: the variables that each CPU has its own of, on kernels that count these from 0.
    pub(super) offsets: Vec<Symbol>,
    names: Vec<u8>,
    pub(super) modules: Vec<Module>,
    /// A line was read, even if its address was 0.
    pub(super) seen: bool,
    /// Module of the last line.
    last: u16,
}

impl Table {
    /// Reads all lines. The kernel makes them as they are read, which takes longer than all else: a thread of its own
    /// asks for them, while this one looks at what has come.
    pub(super) fn read(mut from: impl Read + Send) -> std::io::Result<Table> {
        let core = Module { name: CORE.into(), start: u64::MAX, end: 0 };
        let mut table = Table {
            symbols: Vec::with_capacity(1 << 17),
            offsets: Vec::new(),
            names: Vec::with_capacity(1 << 21),
            modules: vec![core],
            seen: false,
            last: 0,
        };
        let from = &mut from;
        let (full, come) = sync_channel::<Vec<u8>>(WAITING);
        let (empty, spare) = sync_channel::<Vec<u8>>(WAITING);
        std::thread::scope(|scope| {
            let give = move |chunk| {
                let _ = full.send(chunk);
                spare.try_recv().unwrap_or_default()
            };
            let reader = std::thread::Builder::new().spawn_scoped(scope, || whole_lines(&mut *from, give));
            let Ok(reader) = reader else { return None };
            for chunk in come {
                table.lines(&chunk);
                let _ = empty.try_send(chunk);
            }
            reader.join().ok()
        })
        .unwrap_or_else(|| {
            // No thread to be had: nothing was read.
            whole_lines(from, |chunk| {
                table.lines(&chunk);
                chunk
            })
        })?;
        table.finish();
        Ok(table)
    }

    /// Whole lines; the last one may lack its newline.
    fn lines(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let length = self.usual_line(text).unwrap_or_else(|| {
                let end = text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
                self.line(&text[..end]);
                text.len().min(end + 1)
            });
            text = &text[length..];
        }
    }

    /// The first line, where it is `ffffffff81000000 T _stext` with or without `\t[module]`, and what it takes. `None`
    /// leaves it to [`Table::line`].
    fn usual_line(&mut self, text: &[u8]) -> Option<usize> {
        const NAME: usize = 19;
        let (head, rest) = text.split_first_chunk::<NAME>()?;
        let [digits @ .., b' ', kind, b' '] = head else { return None };
        let addr = address(digits.first_chunk()?)?;
        let end = word_end(rest)?;
        let name = &rest[..end];
        let module = match rest[end] {
            b'\n' => None,
            _ => {
                let tail = &rest[end + 1..];
                let length = word_end(tail)?;
                let [b'[', module @ .., b']'] = &tail[..length] else { return None };
                if tail[length] != b'\n' {
                    return None;
                }
                Some(module)
            }
        };
        self.add(addr, *kind, name, module);
        Some(NAME + end + 1 + module.map_or(0, |m| m.len() + 3))
    }

    /// Any line; what does not look like one of a symbol is passed over.
    fn line(&mut self, line: &[u8]) {
        let mut addr = 0u64;
        let mut at = 0;
        while let Some(digit) = line.get(at).map(|b| HEX[usize::from(*b)]).filter(|d| *d < 16) {
            addr = addr << 4 | u64::from(digit);
            at += 1;
        }
        let (Some(b' '), Some(&kind), Some(b' ')) = (line.get(at), line.get(at + 1), line.get(at + 2)) else {
            return;
        };
        if at == 0 {
            return;
        }
        let rest = &line[at + 3..];
        let end = rest.iter().position(|b| matches!(b, b'\t' | b' ')).unwrap_or(rest.len());
        let module = match rest[end..].trim_ascii() {
            [b'[', module @ .., b']'] => Some(module),
            _ => None,
        };
        self.add(addr, kind, &rest[..end], module);
    }

    fn add(&mut self, addr: u64, kind: u8, name: &[u8], module: Option<&[u8]>) {
        self.seen = true;
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
        // The lines of a module stand together.
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
        // Stable, so that equal ranks stay in the order of the file; nearly sorted already, which this sort likes, and all
        // the more while it need not look at ranks.
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

    /// Whether a symbol has this name.
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

/// Reads into pieces of whole lines and gives each away, for an old piece to use again.
fn whole_lines(mut from: impl Read, mut give: impl FnMut(Vec<u8>) -> Vec<u8>) -> std::io::Result<()> {
    let mut piece = Vec::new();
    let mut filled = 0;
    loop {
        piece.resize(PIECE, 0);
        let got = match from.read(&mut piece[filled..]) {
            Ok(got) => got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        filled += got;
        // The kernel gives a page at a time.
        if got > 0 && filled < PIECE / 2 {
            continue;
        }
        let whole = piece[..filled].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        // A line longer than a piece is none of ours.
        let whole = if got == 0 || filled == PIECE && whole == 0 { filled } else { whole };
        let rest = piece[whole..filled].to_vec();
        piece.truncate(whole);
        piece = give(piece);
        if got == 0 {
            return Ok(());
        }
        piece.clear();
        filled = rest.len();
        piece.extend(rest);
    }
}

fn bytes<'n>(names: &'n [u8], symbol: &Symbol) -> &'n [u8] {
    let from = names.get(symbol.name as usize..).unwrap_or_default();
    from.split(|b| *b == 0).next().unwrap_or_default()
}

/// Better ones have less; see the head of [`super`].
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
    // A system call without arguments has one function for both tables; a reader expects the 64-bit one's name.
    let narrow = name.starts_with(b"__ia32_sys_") || name.starts_with(b"__pfx___ia32_sys_");
    class + 8 * u8::from(marker) + 5 * u8::from(narrow)
}

/// Values of hexadecimal digits; 255 for what is none.
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

/// The address that sixteen small digits are.
fn address(digits: &[u8; 16]) -> Option<u64> {
    let (words, _) = digits.as_chunks::<8>();
    let [high, low] = words else { return None };
    Some(half(*high)? << 32 | half(*low)?)
}

/// The number that eight small digits are, all at once.
fn half(digits: [u8; 8]) -> Option<u64> {
    const ONES: u64 = u64::MAX / 255;
    let text = u64::from_be_bytes(digits);
    // A letter has this bit, and is worth 9 more than its low half.
    let letters = text >> 6 & ONES;
    let values = (text & (ONES * 15)) + letters * 9;
    // Spelled again it must read the same: what is 10 or more has a carry into the upper half when 6 is added.
    let again =
        values + ONES * u64::from(b'0') + ((values + ONES * 6) >> 4 & ONES) * u64::from(b'a' - b'0' - 10);
    if again != text || values & (ONES * 0xf0) != 0 {
        return None;
    }
    let pairs = (values | values >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((fours | fours >> 16) & 0xffff_ffff)
}

/// Where the first word ends: at a blank, a tab or a newline. `None` where it goes on beyond the text.
fn word_end(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let (words, tail) = text.as_chunks::<8>();
    for (i, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        // The top bit of each byte below 0x21; above the lowest of them a borrow may set others.
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
    fn addresses_are_sixteen_small_digits() {
        for n in [0, 1, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX, 0xffff_ffff_8100_0000] {
            assert_eq!(address(format!("{n:016x}").as_bytes().first_chunk().unwrap()), Some(n));
        }
        // Every other byte, at each place.
        for at in 0..16 {
            for byte in 0..=255u8 {
                let mut digits = *b"0000000000000000";
                digits[at] = byte;
                let value = HEX[usize::from(byte)];
                let right = value < 16 && !byte.is_ascii_uppercase();
                assert_eq!(address(&digits), right.then(|| u64::from(value) << (60 - 4 * at)), "{byte:#x}");
            }
        }
    }

    #[test]
    fn words_end_at_blanks() {
        assert_eq!(word_end(b"abc def"), Some(3));
        assert_eq!(word_end(b"a_long_name_of_32_bytes_and_more\t[m]\n"), Some(32));
        assert_eq!(word_end("straße_straße\n".as_bytes()), Some(15));
        assert_eq!(word_end(b"\n"), Some(0));
        assert_eq!(word_end(b"unfinished_unfinished"), None);
    }

    #[test]
    fn unusual_lines_are_read_too() {
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
