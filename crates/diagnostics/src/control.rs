//! Control characters made visible.
//!
//! A process chooses its name, the names of its files and of its symbols, and a terminal obeys what they hold: an escape
//! sequence changes its title or its input, a newline forges a row. So two forms of text exist. A *name* is printed with
//! every control character escaped, wherever it goes. *Data* that a program asked for (`printf("%s")`, `trace()`, string
//! keys) is printed as it is to files and pipes, because another program reads them; a terminal gets it with its control
//! characters escaped, except tab and newline.
//!
//! The escapes are those of C: `\n`, `\033`. A backslash stays as it is. A text without control characters is not copied.

use std::borrow::Cow;

use crate::raw;

/// A name: C0 and C1 controls, DEL and bytes that are not UTF-8 are escaped.
pub fn name(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        // Nearly all names are of these bytes, which are compared many at a time: a listing has a hundred thousand names.
        Ok(text) if bytes.iter().all(|b| matches!(b, b' '..=b'~')) => Cow::Borrowed(text),
        Ok(text) if !text.contains(char::is_control) => Cow::Borrowed(text),
        _ => {
            let mut out = String::with_capacity(bytes.len() + 16);
            for chunk in bytes.utf8_chunks() {
                valid(&mut out, chunk.valid(), char::is_control);
                chunk.invalid().iter().for_each(|b| escape(&mut out, *b));
            }
            Cow::Owned(out)
        }
    }
}

/// [`name`] of a text that [`raw::text`] may have made.
pub fn name_text(text: &str) -> Cow<'_, str> {
    match raw::is_raw(text) {
        true => Cow::Owned(name(&raw::bytes(text)).into_owned()),
        false => name(text.as_bytes()),
    }
}

/// Lines of our own that quote text of others, for standard error: as [`name_text`], but tabs and newlines stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    if !text.contains(hidden) && !raw::is_raw(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for chunk in raw::bytes(text).utf8_chunks() {
        valid(&mut out, chunk.valid(), hidden);
        chunk.invalid().iter().for_each(|b| escape(&mut out, *b));
    }
    Cow::Owned(out)
}

/// Data for a terminal: controls other than tab and newline are escaped. Other bytes that are not UTF-8 stay, because the
/// terminal may have another character set.
pub fn terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.iter().all(|b| matches!(b, b'\t' | b'\n' | b' '..=b'~')) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        let mut text = String::new();
        valid(&mut text, chunk.valid(), hidden);
        out.extend_from_slice(text.as_bytes());
        for byte in chunk.invalid() {
            match byte {
                0x80..=0x9f => {
                    let mut text = String::new();
                    escape(&mut text, *byte);
                    out.extend_from_slice(text.as_bytes());
                }
                _ => out.push(*byte),
            }
        }
    }
    Cow::Owned(out)
}

/// Controls other than tab and newline.
fn hidden(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n')
}

/// Appends UTF-8, with some of its characters escaped.
fn valid(out: &mut String, text: &str, escaped: fn(char) -> bool) {
    for c in text.chars() {
        match escaped(c) {
            true => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| escape(out, b)),
            false => out.push(c),
        }
    }
}

fn escape(out: &mut String, byte: u8) {
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
    fn names_have_no_control_characters() {
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
    fn lines_keep_their_newlines_and_nothing_else() {
        assert_eq!(lines("a\n\tb"), "a\n\tb");
        assert_eq!(lines("a\x1bc\n\u{9b}"), "a\\033c\n\\302\\233");
        assert_eq!(lines(&raw::text(b"x\xe9\n".to_vec())), "x\\351\n");
    }

    #[test]
    fn a_terminal_gets_tabs_and_newlines_and_no_other_control() {
        assert_eq!(*terminal(b"a\tb\n"), *b"a\tb\n");
        assert_eq!(*terminal("\u{e9}\x1b]0;x\x07".as_bytes()), *"\u{e9}\\033]0;x\\a".as_bytes());
        assert_eq!(*terminal(b"\x9b1m\xe9"), *b"\\2331m\xe9");
        assert_eq!(*terminal("\u{9b}".as_bytes()), *b"\\302\\233");
    }
}
