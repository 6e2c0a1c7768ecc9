//! Escaping of control characters.
//!
//! A traced process chooses its name, its file names and its symbol names. A terminal interprets
//! control characters in them: an escape sequence changes its title or its input, a newline forges
//! a row. So there are two rules. A *name* is printed with every control character escaped, to any
//! output. *Data* that a program prints (`printf("%s")`, `trace()`, string keys) is written
//! unchanged to files and pipes, because another program reads them. At a terminal, its control
//! characters are escaped, except tab and newline.
//!
//! The escapes are those of C: `\n`, `\033`. A backslash is not escaped. A text without control
//! characters is not copied.

use std::borrow::Cow;

use crate::raw;

/// Escapes a name: C0 and C1 controls, DEL, and bytes that are not UTF-8.
pub fn name(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        // Nearly all names are printable ASCII. This check is vectorized; a listing has 100,000
        // names.
        Ok(text) if bytes.iter().all(|b| matches!(b, b' '..=b'~')) => Cow::Borrowed(text),
        Ok(text) if !text.contains(char::is_control) => Cow::Borrowed(text),
        _ => {
            let mut out = String::with_capacity(bytes.len() + 16);
            for chunk in bytes.utf8_chunks() {
                push_valid(&mut out, chunk.valid(), char::is_control);
                chunk.invalid().iter().for_each(|b| push_escape(&mut out, *b));
            }
            Cow::Owned(out)
        }
    }
}

/// [`name`] for a text that may be the result of [`raw::text`].
pub fn name_text(text: &str) -> Cow<'_, str> {
    match raw::is_raw(text) {
        true => Cow::Owned(name(&raw::bytes(text)).into_owned()),
        false => name(text.as_bytes()),
    }
}

/// Escapes a message for standard error, which may quote names. As [`name_text`], but tabs and
/// newlines are kept.
pub fn lines(text: &str) -> Cow<'_, str> {
    if !text.contains(is_escaped) && !raw::is_raw(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for chunk in raw::bytes(text).utf8_chunks() {
        push_valid(&mut out, chunk.valid(), is_escaped);
        chunk.invalid().iter().for_each(|b| push_escape(&mut out, *b));
    }
    Cow::Owned(out)
}

/// Escapes data for a terminal: controls other than tab and newline. Other bytes that are not UTF-8
/// are kept, because the terminal may use another character set.
pub fn terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.iter().all(|b| matches!(b, b'\t' | b'\n' | b' '..=b'~')) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        let mut text = String::new();
        push_valid(&mut text, chunk.valid(), is_escaped);
        out.extend_from_slice(text.as_bytes());
        for byte in chunk.invalid() {
            match byte {
                0x80..=0x9f => {
                    let mut text = String::new();
                    push_escape(&mut text, *byte);
                    out.extend_from_slice(text.as_bytes());
                }
                _ => out.push(*byte),
            }
        }
    }
    Cow::Owned(out)
}

/// True for control characters other than tab and newline.
fn is_escaped(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n')
}

/// Appends valid UTF-8 and escapes the characters for which `escaped` is true.
fn push_valid(out: &mut String, text: &str, escaped: fn(char) -> bool) {
    for c in text.chars() {
        match escaped(c) {
            true => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| push_escape(out, b)),
            false => out.push(c),
        }
    }
}

/// Appends the escape sequence of a byte.
fn push_escape(out: &mut String, byte: u8) {
    let letter = match byte {
        7 => 'a',
        8 => 'b',
        9 => 't',
        10 => 'n',
        11 => 'v',
        12 => 'f',
        13 => 'r',
        _ => {
            out.push_str(&format!("\\{byte:03o}"));
            return;
        }
    };
    out.extend(['\\', letter]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_names_are_escaped() {
        assert_eq!(name(b"plain"), "plain");
        assert_eq!(name("d\u{e9}j\u{e0} \u{1f980}".as_bytes()), "d\u{e9}j\u{e0} \u{1f980}");
        assert_eq!(name(b"a\x1b[31m\n\t\r\x07\x08\x0b\x0c\x7f"), "a\\033[31m\\n\\t\\r\\a\\b\\v\\f\\177");
        assert_eq!(name("\u{9b}31m\u{85}".as_bytes()), "\\302\\23331m\\302\\205");
        assert_eq!(name(b"\x9b31m\xff\xc3"), "\\23331m\\377\\303");
        assert_eq!(name(b"C:\\dir"), "C:\\dir");
        assert_eq!(name_text(&raw::text(b"a\xe9\n".to_vec())), "a\\351\\n");
        for byte in 0..=255u8 {
            let shown = name(&[byte]).into_owned();
            assert!(!shown.contains(char::is_control), "{byte}: {shown:?}");
        }
    }

    #[test]
    fn messages_keep_tabs_and_newlines_and_escape_other_controls() {
        assert_eq!(lines("a\n\tb"), "a\n\tb");
        assert_eq!(lines("a\x1bc\n\u{9b}"), "a\\033c\n\\302\\233");
        assert_eq!(lines(&raw::text(b"x\xe9\n".to_vec())), "x\\351\n");
    }

    #[test]
    fn data_for_a_terminal_keeps_tabs_and_newlines_and_escapes_other_controls() {
        assert_eq!(*terminal(b"a\tb\n"), *b"a\tb\n");
        assert_eq!(*terminal("\u{e9}\x1b]0;x\x07".as_bytes()), *"\u{e9}\\033]0;x\\a".as_bytes());
        assert_eq!(*terminal(b"\x9b1m\xe9"), *b"\\2331m\xe9");
        assert_eq!(*terminal("\u{9b}".as_bytes()), *b"\\302\\233");
    }
}
