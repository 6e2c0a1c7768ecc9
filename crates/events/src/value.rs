//! Typed values of records and keys.
//!
//! Strings and memory borrow from the record; names of symbols are shared with the tables that
//! they come from. So a value is created without an allocation, except for a symbol and for the
//! frames of a stack. Values are small, because records consist of them: what is large is shared or
//! boxed.

use std::borrow::Cow;
use std::sync::Arc;

use diagnostics::raw;
use plane::desc::AddrForm;
use plane::format::{self, FormatError, Piece};

/// A packet of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What its bytes begin with: a link type, one of the `DLT_` numbers of libpcap.
    pub protocol: u16,
    /// When it was recorded, in nanoseconds since 1970.
    pub time: u64,
    /// Its length. It has more bytes than were recorded if this is more than theirs.
    pub length: u32,
    /// The bytes that were recorded, from its start.
    pub bytes: Cow<'a, [u8]>,
}

impl Packet<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Packet<'static> {
        let Packet { protocol, time, length, bytes } = self;
        Packet { protocol, time, length, bytes: Cow::Owned(bytes.into_owned()) }
    }
}

/// An integer with its type in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int {
    /// The value, extended to 64 bits according to its type. That of a variable may be one that its
    /// type does not hold ([`Int::whole`]).
    pub bits: u64,
    /// The size in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// The type is signed.
    pub signed: bool,
}

impl Int {
    /// An integer from the low `size` bytes of `bits`.
    pub fn new(bits: u64, size: u8, signed: bool) -> Self {
        let shift = 64 - 8 * u32::from(size.clamp(1, 8));
        let bits = if signed { ((bits << shift) as i64 >> shift) as u64 } else { bits << shift >> shift };
        Int { bits, size, signed }
    }

    /// The value of a variable, which holds 64 bits: as [`Int::new`] if it is in the range of the
    /// type, be that read as signed or as unsigned, otherwise as it is.
    pub fn whole(bits: u64, size: u8, signed: bool) -> Self {
        let whole = Int { bits, size, signed };
        if whole.is_beyond() { whole } else { Int::new(bits, size, signed) }
    }

    /// The value is in the range neither of the signed nor of the unsigned type of its size.
    pub fn is_beyond(self) -> bool {
        [true, false].iter().all(|signed| Int::new(self.bits, self.size, *signed).bits != self.bits)
    }

    /// The value as a signed integer of its size.
    pub fn as_signed(self) -> i64 {
        Int::whole(self.bits, self.size, true).bits as i64
    }

    /// The value as an unsigned integer of its size.
    pub fn as_unsigned(self) -> u64 {
        Int::whole(self.bits, self.size, false).bits
    }

    /// The value by its type.
    pub fn value(self) -> i128 {
        if self.signed { i128::from(self.as_signed()) } else { i128::from(self.as_unsigned()) }
    }
}

/// One typed value of a record or key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A number.
    Int(Int),
    /// A string.
    Str {
        /// The bytes before its NUL.
        text: Cow<'a, [u8]>,
        /// The size in the record, including NULs.
        size: u32,
    },
    /// A name that a process has chosen (`execname`).
    Name {
        /// The bytes before its NUL.
        text: Cow<'a, [u8]>,
        /// The size in the record, including NULs.
        size: u32,
    },
    /// Memory.
    Bytes(Cow<'a, [u8]>),
    /// A stack.
    Stack(Stack),
    /// An address that is printed as a symbol.
    Symbol(Box<Symbol>),
    /// A value of a later version of the encoding, which this reader does not know.
    Unknown,
}

impl Value<'_> {
    /// An integer, by its type.
    pub fn number(&self) -> Option<i128> {
        match self {
            Value::Int(int) => Some(int.value()),
            _ => None,
        }
    }

    /// A string or a name; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Str { text, .. } | Value::Name { text, .. } => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    /// The value without a borrow.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Int(int) => Value::Int(int),
            Value::Str { text, size } => Value::Str { text: Cow::Owned(text.into_owned()), size },
            Value::Name { text, size } => Value::Name { text: Cow::Owned(text.into_owned()), size },
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Stack(stack) => Value::Stack(stack),
            Value::Symbol(symbol) => Value::Symbol(symbol),
            Value::Unknown => Value::Unknown,
        }
    }
}

/// A stack, the innermost frame first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The process; `None` for a kernel stack.
    pub process: Option<u32>,
    /// The frames. A stack that could not be recorded has none.
    pub frames: Vec<Symbol>,
}

/// What contains an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymbolName {
    /// Kernel: `vmlinux` or the module. Process: the base name of the object.
    pub module: Option<Arc<str>>,
    /// The symbol. Without a module it is that of an [interpreted](SymbolName::interpreted)
    /// function, or [`SymbolName::INCOMPLETE`] and no symbol.
    pub symbol: Option<Arc<str>>,
    /// Offset in the symbol; 0 without a symbol.
    pub offset: u64,
    /// Without a symbol: the address in the file of a process's object, as the file's headers have
    /// it and `addr2line` takes it. `None` where it is not known.
    pub in_file: Option<u64>,
    /// The path of the object as its process sees it; `None` where there is no file, or none that
    /// is known.
    pub path: Option<Arc<str>>,
    /// The source file, if the symbolizer knows it.
    pub file: Option<Arc<str>>,
    /// The line in the source file, from 1, if the symbolizer knows it.
    pub line: Option<u32>,
    /// The function was put inline into that of the next frame, and has no code of its own at the
    /// address. Its offset is 0.
    pub inlined: bool,
    /// A function of an interpreter, which the function of the frame before it runs. It has no code
    /// at the address, which is that of the function that runs it, and no module. Its symbol, file
    /// and line are missing where they are not known.
    pub interpreted: bool,
}

impl SymbolName {
    /// Stands in the place of the outermost frames of a stack, where they are not known.
    pub const INCOMPLETE: &'static str = "[incomplete]";

    /// Stands in a stack of the kernel for those of a guest, which was interrupted.
    pub const GUEST: &'static str = "[guest]";

    /// Follows a stack of the kernel whose frames are not those that the kernel itself has found
    /// (`-x kstackwalk=check`).
    pub const DIFFERS: &'static str = "[differs]";

    /// The name of the frame that stands for frames that are not known.
    pub fn incomplete() -> Self {
        SymbolName::mark(SymbolName::INCOMPLETE)
    }

    /// The name of a frame that is no code.
    pub fn mark(text: &str) -> Self {
        SymbolName { symbol: Some(text.into()), ..SymbolName::default() }
    }

    /// True for the name of the frame that stands for frames that are not known.
    pub fn is_incomplete(&self) -> bool {
        !self.interpreted && self.module.is_none() && self.symbol.as_deref() == Some(SymbolName::INCOMPLETE)
    }

    /// A symbol of a module.
    pub fn new(module: Option<Arc<str>>, symbol: Option<Arc<str>>, offset: u64) -> Self {
        SymbolName { module, symbol, offset, ..SymbolName::default() }
    }
}

/// An address and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol {
    /// The address.
    pub address: u64,
    /// The process; `None` for an address of the kernel.
    pub process: Option<u32>,
    /// The form that the program asked for.
    pub form: AddrForm,
    /// Its name.
    pub name: SymbolName,
}

impl Symbol {
    /// An address of a process, or of the kernel, with its name.
    pub fn new(address: u64, process: Option<u32>, form: AddrForm, name: SymbolName) -> Self {
        Symbol { address, process, form, name }
    }

    /// Writes the name in its form: `` module`symbol+0x1c `` for [`AddrForm::Address`], without the
    /// offset for `Symbol` and `Function`, the module alone for `Module`; without a symbol
    /// `module+0x1f40` where the address in the file is known, else `` module`0x… ``; `0x…` where
    /// there is no name; `[incomplete]` for frames that are not known. An address has ` [inlined]`
    /// and its source line ` (file:12)` behind it, if there are. A function of an interpreter is `[
    /// file:12 (function) ]` in every form, without what is not known of it, and `[ ? ]` if that is
    /// everything. Control characters are not escaped.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.name.interpreted {
            return self.write_interpreted(out);
        }
        self.write_name(out);
        if self.form != AddrForm::Address {
            return;
        }
        if self.name.inlined {
            out.extend_from_slice(b" [inlined]");
        }
        if let (Some(file), Some(line)) = (&self.name.file, self.name.line) {
            out.extend_from_slice(format!(" ({file}:{line})").as_bytes());
        }
    }

    fn write_interpreted(&self, out: &mut Vec<u8>) {
        let SymbolName { symbol, file, line, .. } = &self.name;
        let place = file.as_ref().map(|file| match line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_string(),
        });
        let function = symbol.as_ref().map(|symbol| format!("({symbol})"));
        let text = match (place, function) {
            (Some(place), Some(function)) => format!("{place} {function}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => "?".into(),
        };
        out.extend_from_slice(format!("[ {text} ]").as_bytes());
    }

    fn write_name(&self, out: &mut Vec<u8>) {
        let SymbolName { module, symbol, offset, .. } = &self.name;
        let Some(module) = module else {
            return match symbol {
                Some(symbol) => out.extend_from_slice(symbol.as_bytes()),
                None => hex(out, self.address),
            };
        };
        out.extend_from_slice(module.as_bytes());
        if self.form == AddrForm::Module {
            return;
        }
        let (mark, number) = match (symbol, self.name.in_file) {
            (None, Some(address)) => (b'+', address),
            _ => (b'`', self.address),
        };
        out.push(mark);
        match symbol {
            Some(symbol) => out.extend_from_slice(symbol.as_bytes()),
            None => hex(out, number),
        }
        if self.form == AddrForm::Address && *offset != 0 {
            out.push(b'+');
            hex(out, *offset);
        }
    }

    /// The text of [`Symbol::write`].
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn hex(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        let digit = char::from_digit((value >> (4 * at) & 15) as u32, 16).unwrap_or('0');
        out.push(digit as u8);
    }
}

/// The format of `printf()` or `printa()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format(Arc<Parsed>);

#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    text: String,
    pieces: Vec<Piece>,
}

impl Format {
    /// Parses a format of a program, which is in the encoding of [`diagnostics::raw`].
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        Ok(Format(Arc::new(Parsed { text: text.to_owned(), pieces: format::parse(text)? })))
    }

    /// Parses the bytes of a format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Format, FormatError> {
        Format::parse(&raw::text(bytes.to_vec()))
    }

    /// The format as the program wrote it, escapes resolved.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        let text = &self.0.text;
        match raw::is_raw(text) {
            true => Cow::Owned(raw::bytes(text)),
            false => Cow::Borrowed(text.as_bytes()),
        }
    }

    /// Its texts and conversions. A text is in the encoding of [`diagnostics::raw`].
    pub fn pieces(&self) -> &[Piece] {
        &self.0.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_small() {
        assert!(size_of::<Value<'_>>() <= 40, "{}", size_of::<Value<'_>>());
        assert!(size_of::<crate::Field<'_>>() <= 96, "{}", size_of::<crate::Field<'_>>());
    }

    fn symbol(form: AddrForm, module: Option<&str>, name: Option<&str>, offset: u64) -> String {
        let name = SymbolName::new(module.map(Into::into), name.map(Into::into), offset);
        Symbol { address: 0xf00, process: None, form, name }.text()
    }

    #[test]
    fn symbols_are_written_in_the_form_that_was_asked_for() {
        assert_eq!(symbol(AddrForm::Address, Some("ext4"), Some("f"), 0x1c), "ext4`f+0x1c");
        assert_eq!(symbol(AddrForm::Address, Some("ext4"), Some("f"), 0), "ext4`f");
        assert_eq!(symbol(AddrForm::Symbol, Some("ext4"), Some("f"), 0x1c), "ext4`f");
        assert_eq!(symbol(AddrForm::Module, Some("ext4"), Some("f"), 0x1c), "ext4");
        assert_eq!(symbol(AddrForm::Symbol, Some("ext4"), None, 0), "ext4`0xf00");
        assert_eq!(symbol(AddrForm::Module, None, None, 0), "0xf00");
        let mut name = SymbolName::new(Some("a.out".into()), None, 0);
        name.in_file = Some(0x1f40);
        let text = |form| Symbol { address: 0xf00, process: Some(2), form, name: name.clone() }.text();
        assert_eq!(
            (text(AddrForm::Address), text(AddrForm::Symbol)),
            ("a.out+0x1f40".into(), "a.out+0x1f40".into())
        );
        assert_eq!(text(AddrForm::Module), "a.out");
        let missing = Symbol::new(1, Some(2), AddrForm::Address, SymbolName::incomplete());
        assert_eq!(missing.text(), "[incomplete]");
        let mut name = SymbolName::new(Some("a.out".into()), Some("f".into()), 0);
        (name.file, name.line, name.inlined) = (Some("/src/f.c".into()), Some(7), true);
        let text = |form| Symbol { address: 1, process: Some(2), form, name: name.clone() }.text();
        assert_eq!(text(AddrForm::Address), "a.out`f [inlined] (/src/f.c:7)");
        assert_eq!(text(AddrForm::Symbol), "a.out`f");
    }

    #[test]
    fn functions_of_an_interpreter_are_written_as_annotations_with_what_is_known_of_them() {
        let text = |symbol: Option<&str>, file: Option<&str>, line, form| {
            let mut name = SymbolName::new(None, symbol.map(Into::into), 0);
            (name.file, name.line, name.interpreted) = (file.map(Into::into), line, true);
            assert!(!name.is_incomplete());
            Symbol { address: 0xf00, process: Some(2), form, name }.text()
        };
        let of = |symbol, file, line| text(symbol, file, line, AddrForm::Address);
        assert_eq!(of(Some("C.f"), Some("/srv/app.py"), Some(12)), "[ /srv/app.py:12 (C.f) ]");
        assert_eq!(of(Some("C.f"), Some("/srv/app.py"), None), "[ /srv/app.py (C.f) ]");
        assert_eq!(of(None, Some("/srv/app.py"), Some(12)), "[ /srv/app.py:12 ]");
        assert_eq!(of(Some("C.f"), None, None), "[ (C.f) ]");
        assert_eq!(of(None, None, None), "[ ? ]");
        // A process chooses the names of its functions.
        assert_eq!(of(Some(SymbolName::INCOMPLETE), None, None), "[ ([incomplete]) ]");
        assert!(SymbolName::incomplete().is_incomplete() && !SymbolName::default().is_incomplete());
        for form in [AddrForm::Symbol, AddrForm::Function, AddrForm::Module] {
            assert_eq!(text(Some("f"), Some("a.py"), Some(1), form), "[ a.py:1 (f) ]");
        }
    }

    #[test]
    fn addresses_are_written_in_hexadecimal() {
        for value in [0, 1, 15, 16, 0xffff_ffff_8100_0000, u64::MAX] {
            let mut out = Vec::new();
            hex(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{value:#x}"));
        }
    }

    #[test]
    fn formats_keep_bytes_that_are_not_text() {
        let format = Format::from_bytes(b"a\xff%d%%\n").unwrap();
        assert_eq!(&*format.bytes(), b"a\xff%d%%\n");
        assert_eq!(format.pieces().len(), 3);
    }
}
