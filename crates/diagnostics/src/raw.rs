//! Bytes as text that can be turned back.
//!
//! D's texts are bytes: a script may be in any encoding, and what stands in strings and comments is nobody's business. The
//! front end reads text, though, and its places are those of text. So a byte that is no part of a character becomes one of
//! 128 characters of a private plane, which the lexer refuses outside of strings and comments, and whatever makes bytes
//! of text again makes the byte. Such a character that the text had itself is taken for the bytes that it is.

use std::borrow::Cow;

/// The character of byte 0x80.
const FIRST: char = '\u{10ff80}';

fn byte(c: char) -> Option<u8> {
    (c >= FIRST).then(|| (c as u32 - FIRST as u32) as u8 | 0x80)
}

fn character(byte: u8) -> char {
    char::from_u32(FIRST as u32 + u32::from(byte & 0x7f)).unwrap_or(FIRST)
}

/// Bytes as text.
pub fn text(bytes: Vec<u8>) -> String {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) if !text.contains(|c| byte(c).is_some()) => return text,
        Ok(text) => text.into_bytes(),
        Err(e) => e.into_bytes(),
    };
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte(c) {
                None => out.push(c),
                Some(_) => out.extend(c.encode_utf8(&mut [0; 4]).bytes().map(character)),
            }
        }
        out.extend(chunk.invalid().iter().copied().map(character));
    }
    out
}

/// The bytes of a text that [`text`] may have made.
pub fn bytes(text: &str) -> Vec<u8> {
    if !is_raw(text) {
        return text.as_bytes().to_vec();
    }
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Some(b) => out.push(b),
        }
    }
    out
}

/// True when bytes that were no text are in it.
pub fn is_raw(text: &str) -> bool {
    // The first byte of every character of the plane.
    text.as_bytes().contains(&0xf4) && text.contains(|c| byte(c).is_some())
}

/// The text for a reader.
pub fn shown(text: &str) -> Cow<'_, str> {
    match is_raw(text) {
        true => text.replace(|c| byte(c).is_some(), "\u{fffd}").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_of_bytes_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let own = format!("a{}\u{10ffff}\u{e9}", character(0xc3)).into_bytes();
        for sequence in [all, own, b"plain".to_vec(), b"\xe9t\xe9 \xf4\x8f\xbe".to_vec(), Vec::new()] {
            let made = text(sequence.clone());
            assert_eq!(bytes(&made), sequence);
        }
    }

    #[test]
    fn characters_stay_and_a_reader_sees_a_mark() {
        assert_eq!(text("h\u{e9}".into()), "h\u{e9}");
        assert_eq!(shown(&text(b"h\xe9!".to_vec())), "h\u{fffd}!");
        assert!(!is_raw("h\u{e9}\u{1f600}"));
    }
}
