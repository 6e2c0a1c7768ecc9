//! The default form of a value, as `trace()` and the keys of aggregations print it.

use diagnostics::control;
use events::{Int, Stack, Value};

use super::view::{View, symbol};
use crate::pad::{Base, Field, fill, signed, string, unsigned};
use crate::raw::{looks_like_text, printable};

/// Columns of a string in a record.
const TRACED: usize = 33;
/// Columns of a string or symbol in a key, and of a symbol in a record.
const KEYED: usize = 50;

/// `trace(value)`.
pub(super) fn traced(out: &mut Vec<u8>, value: &Value<'_>, view: View<'_>) {
    default(out, value, TRACED, view.options.quiet, view);
}

/// Prints a column of a key; `-q` has no effect on it.
pub(super) fn key(out: &mut Vec<u8>, value: &Value<'_>, view: View<'_>) {
    default(out, value, KEYED, false, view);
}

fn default(out: &mut Vec<u8>, value: &Value<'_>, columns: usize, quiet: bool, view: View<'_>) {
    match value {
        Value::Int(int) => {
            if quiet {
                signed(out, shown(*int), Field::default());
            } else {
                out.push(b' ');
                signed(out, shown(*int), Field::right(int_columns(int.size)));
            }
        }
        Value::Str { text, size } => {
            // A dump takes several lines, and a key is one line.
            let dumped = columns == TRACED && !text.iter().all(looks_like_text);
            if view.options.rawbytes || dumped {
                let mut bytes = text.to_vec();
                bytes.resize((*size as usize).max(text.len()), 0);
                hexdump(out, &bytes);
            } else {
                text_field(out, &view.data(text), columns, quiet);
            }
        }
        Value::Name { text, size } if view.options.rawbytes => {
            let mut bytes = text.to_vec();
            bytes.resize((*size as usize).max(text.len()), 0);
            hexdump(out, &bytes);
        }
        Value::Name { text, .. } => text_field(out, control::name(text).as_bytes(), columns, quiet),
        Value::Bytes(bytes) => match printable(bytes) {
            Some(text) if !view.options.rawbytes => text_field(out, &view.data(text), columns, quiet),
            _ => hexdump(out, bytes),
        },
        Value::Stack(stack) => {
            let indent = view.options.stackindent;
            frames(out, stack, indent, Field::default());
        }
        Value::Symbol(address) => text_field(out, &symbol(address), KEYED, false),
        // A value of a later version.
        _ => text_field(out, b"?", columns, quiet),
    }
}

/// The text of a string or symbol.
pub(super) fn words(value: &Value<'_>, view: View<'_>) -> Vec<u8> {
    match value {
        Value::Str { text, .. } => view.data(text).into_owned(),
        Value::Name { text, .. } => control::name(text).into_owned().into_bytes(),
        Value::Symbol(address) => symbol(address),
        _ => Vec::new(),
    }
}

/// Columns of an integer by its size.
pub(super) fn int_columns(size: u8) -> usize {
    match size {
        1 => 3,
        2 => 5,
        4 => 8,
        _ => 16,
    }
}

/// Integers of four and eight bytes are printed signed whatever their type, as in every DTrace;
/// shorter ones by their type.
fn shown(int: Int) -> i64 {
    if int.size >= 4 { int.as_signed() } else { int.bits as i64 }
}

fn text_field(out: &mut Vec<u8>, text: &[u8], columns: usize, quiet: bool) {
    if quiet {
        out.extend_from_slice(text);
    } else {
        out.extend_from_slice(b"  ");
        string(out, text, Field::left(columns));
    }
}

/// Prints sixteen bytes per row, with offsets and characters. The dump begins and ends with a
/// newline.
pub(super) fn hexdump(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    out.push(b'\n');
    fill(out, b' ', 11);
    for column in 0..16u64 {
        out.extend_from_slice(b"  ");
        unsigned(out, column, Base::LowerHex, Field::default());
    }
    out.extend_from_slice(b"  0123456789abcdef\n");
    for (row, chunk) in bytes.chunks(16).enumerate() {
        fill(out, b' ', 5);
        unsigned(out, row as u64 * 16, Base::LowerHex, Field::right(5));
        out.push(b':');
        for byte in chunk {
            out.push(b' ');
            unsigned(out, u64::from(*byte), Base::LowerHex, Field { zero: true, ..Field::right(2) });
        }
        fill(out, b' ', (16 - chunk.len()) * 3 + 2);
        out.extend(chunk.iter().map(|b| if (b' '..=b'~').contains(b) { *b } else { b'.' }));
        out.push(b'\n');
    }
}

/// Prints a stack: a newline, then one frame per line. Functions of an interpreter have two more
/// columns before them, which count to the width of a frame, as those of ustack helpers in every
/// DTrace.
pub(super) fn frames(out: &mut Vec<u8>, stack: &Stack, indent: usize, field: Field) {
    out.push(b'\n');
    let mut name = Vec::new();
    for frame in &stack.frames {
        fill(out, b' ', indent);
        name.clear();
        if frame.name.interpreted {
            name.extend_from_slice(b"  ");
        }
        frame.write(&mut name);
        string(out, control::name(&name).as_bytes(), field);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn show(value: &Value<'_>, quiet: bool) -> String {
        let options = Options { quiet, ..Options::default() };
        let mut out = Vec::new();
        traced(&mut out, value, View { options: &options, terminal: false, resolves: true });
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn functions_of_an_interpreter_are_two_columns_behind_the_frames_of_a_stack() {
        let frame = |symbol: &str, interpreted: bool| {
            let mut name =
                events::SymbolName::new((!interpreted).then(|| "a".into()), Some(symbol.into()), 0);
            (name.file, name.line, name.interpreted) = (Some("x\n.py".into()), Some(3), interpreted);
            events::Symbol::new(1, Some(7), events::AddrForm::Address, name)
        };
        let stack = || Stack {
            process: Some(7),
            frames: vec![frame("f", false), frame("g", true), frame("h", false)],
        };
        let value = Value::Stack(stack());
        let (outer, inner) = (" ".repeat(14), " ".repeat(16));
        let expected =
            format!("\n{outer}a`f (x\\n.py:3)\n{inner}[ x\\n.py:3 (g) ]\n{outer}a`h (x\\n.py:3)\n");
        assert_eq!(show(&value, true), expected);
        // They count to the width of a frame (`%24k`).
        let mut out = Vec::new();
        frames(&mut out, &stack(), 0, Field::right(24));
        let expected =
            format!("\n{:>24}\n{:>24}\n{:>24}\n", "a`f (x\\n.py:3)", "[ x\\n.py:3 (g) ]", "a`h (x\\n.py:3)");
        assert_eq!(String::from_utf8_lossy(&out), expected);
        let mut out = Vec::new();
        frames(&mut out, &stack(), 0, Field::left(24));
        assert_eq!(
            String::from_utf8_lossy(&out).lines().nth(2).unwrap(),
            format!("{:<24}", "  [ x\\n.py:3 (g) ]")
        );
    }

    #[test]
    fn integers_take_columns_by_size() {
        let int = |bits: i64, size, signed| show(&Value::Int(Int::new(bits as u64, size, signed)), false);
        assert_eq!(int(42, 8, true), format!(" {:>16}", 42));
        assert_eq!(int(42, 4, true), format!(" {:>8}", 42));
        assert_eq!(int(42, 2, true), format!(" {:>5}", 42));
        assert_eq!(int(42, 1, true), format!(" {:>3}", 42));
        assert_eq!(int(-1, 4, false), format!(" {:>8}", -1));
        assert_eq!(int(200, 1, false), " 200");
        assert_eq!(int(200, 1, true), " -56");
        assert_eq!(show(&Value::Int(Int::new(7, 8, true)), true), "7");
    }

    #[test]
    fn strings_take_columns_unless_quiet() {
        let value = Value::Str { text: b"abc".into(), size: 8 };
        assert_eq!(show(&value, false), format!("  {:<33}", "abc"));
        assert_eq!(show(&value, true), "abc");
        assert_eq!(show(&Value::Str { text: b"".into(), size: 8 }, true), "");
    }

    #[test]
    fn strings_that_are_not_printable_are_dumped() {
        assert_eq!(show(&Value::Str { text: b"a\tb\n\x07\x08".into(), size: 8 }, true), "a\tb\n\x07\x08");
        let dump = show(&Value::Str { text: b"a\x01".into(), size: 8 }, false);
        assert!(dump.ends_with("0: 61 01 00 00 00 00 00 00                          a.......\n"), "{dump}");
        let e = Value::Str { text: "\u{e9}".as_bytes().into(), size: 4 };
        assert!(show(&e, true).contains(": c3 a9 00 00"));
        let mut out = Vec::new();
        key(&mut out, &e, View { options: &Options::default(), terminal: false, resolves: true });
        assert_eq!(String::from_utf8_lossy(&out).trim(), "\u{e9}");
    }

    #[test]
    fn printable_bytes_are_printed_as_text() {
        assert_eq!(show(&Value::Bytes(b"ab\0\0".into()), true), "ab");
        assert_eq!(show(&Value::Bytes(b"ab".into()), true), "ab");
        let dump = show(&Value::Bytes(b"ab\0c".into()), true);
        assert_eq!(
            dump,
            "\n             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n         \
             0: 61 62 00 63                                      ab.c\n"
        );
        assert!(show(&Value::Bytes(b"\0\0".into()), true).starts_with('\n'));
    }
}
