//! Escaping of control characters.
//!
//! A traced process chooses its name, its file names and its symbol names. A terminal interprets
//! control characters in them: an escape sequence changes its title or its input, a newline forges
//! a row. So there are two rules. A *name* is printed with every control character escaped, to any
//! output. *Data* that a program prints (`printf("%s")`, `trace()`, string keys) is written
//! unchanged to files and pipes, because another program reads them. At a terminal, its control
//! characters are escaped, except tab and newline.
//!
//! Characters that Unicode has for layout are escaped as control characters are: a name with one
//! that turns the direction of text looks like another name, one that has no width makes two names
//! of one look, and a separator of lines forges a row ([`is_format`]). In data at a terminal, only
//! those are that change how the rest of the row looks ([`is_bidirectional`]): those without width
//! are part of the scripts of many languages.
//!
//! The escapes are those of C: `\n`, `\033`. A backslash is not escaped. A text without such
//! characters is not copied.

use std::borrow::Cow;

use crate::raw;

/// Characters that are not seen or change how others look, beside control characters: Unicode's
/// general categories Cf, Zl and Zp (16.0), and the code points that it says are ignored by
/// default.
const FORMAT: [(u32, u32); 25] = [
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x2028, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// True for a character for layout: one that turns the direction of text, has no width, tags text,
/// or separates lines and paragraphs.
pub fn is_format(c: char) -> bool {
    let c = u32::from(c);
    c >= 0xad && FORMAT.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// True for a character that turns the direction of the text behind it, or separates lines or
/// paragraphs.
pub fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// True for what is escaped in a name.
fn is_escaped_in_name(c: char) -> bool {
    c.is_control() || is_format(c)
}

/// Escapes a name: C0 and C1 controls, DEL, characters for layout, and bytes that are not UTF-8.
pub fn name(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        // Nearly all names are printable ASCII. This check is vectorized; a listing has 100,000
        // names.
        Ok(text) if bytes.iter().all(|b| matches!(b, b' '..=b'~')) => Cow::Borrowed(text),
        Ok(text) if !text.contains(is_escaped_in_name) => Cow::Borrowed(text),
        _ => {
            let mut out = String::with_capacity(bytes.len() + 16);
            for chunk in bytes.utf8_chunks() {
                push_valid(&mut out, chunk.valid(), is_escaped_in_name);
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

/// Escapes data for a terminal: controls other than tab and newline, and what turns the direction
/// of text. Other bytes that are not UTF-8 are kept, because the terminal may use another character
/// set.
pub fn terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.iter().all(|b| matches!(b, b'\t' | b'\n' | b' '..=b'~')) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        let mut text = String::new();
        push_valid(&mut text, chunk.valid(), is_escaped_in_data);
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

/// True for what is escaped in a message: what is in a name, other than tab and newline.
fn is_escaped(c: char) -> bool {
    is_escaped_in_name(c) && !matches!(c, '\t' | '\n')
}

/// True for what is escaped in data at a terminal.
fn is_escaped_in_data(c: char) -> bool {
    (c.is_control() || is_bidirectional(c)) && !matches!(c, '\t' | '\n')
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
    fn characters_for_layout_are_escaped_in_names_and_messages() {
        // A name that reads "txt.exe" backwards, one with nothing between its letters, tags, a mark
        // of byte order, and a new line.
        let hidden = "a\u{202e}b\u{200b}c\u{e0041}d\u{feff}e\u{2028}f\u{ad}g\u{2069}h\u{3164}i\u{fe0f}j";
        let shown = "a\\342\\200\\256b\\342\\200\\213c\\363\\240\\201\\201d\\357\\273\\277e\\342\\200\\250f\\302\\255g\\342\\201\\251h\\343\\205\\244i\\357\\270\\217j";
        assert_eq!((&*name(hidden.as_bytes()), &*lines(hidden)), (shown, shown));
        for c in (0..=0x10ffff).filter_map(char::from_u32) {
            let escaped = name(c.encode_utf8(&mut [0; 4]).as_bytes()).starts_with('\\') && c != '\\';
            assert_eq!(escaped, c.is_control() || is_format(c), "{c:?}");
            assert!(!is_bidirectional(c) || is_format(c), "{c:?}");
        }
        // Letters with accents that are characters of their own, of other scripts, and pictures.
        for text in [
            "e\u{301}",
            "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
            "\u{627}\u{644}",
            "\u{0939}\u{093f}",
            "\u{65e5}",
            "\u{1f980}",
        ] {
            assert_eq!(name(text.as_bytes()), text);
        }
    }

    #[test]
    fn the_table_of_characters_for_layout_is_in_order() {
        assert!(FORMAT.iter().all(|(first, last)| first <= last));
        assert!(FORMAT.windows(2).all(|pair| pair[0].1 < pair[1].0));
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
        // A family of pictures is joined by characters without width.
        let joined = "\u{1f468}\u{200d}\u{1f469}";
        assert_eq!(*terminal(joined.as_bytes()), *joined.as_bytes());
        assert_eq!(*terminal("a\u{202e}b\u{2067}".as_bytes()), *b"a\\342\\200\\256b\\342\\201\\247");
    }
}
