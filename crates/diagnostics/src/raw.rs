//! A reversible encoding of arbitrary bytes as UTF-8 text.
//!
//! A D program is a sequence of bytes: a script may use any character set in strings and comments.
//! The front end works on UTF-8 text and on locations in it. So each byte that is not part of a
//! valid character is encoded as one of 128 private-use characters. The lexer rejects them outside
//! of strings and comments, and [`bytes`] decodes them. If the program contains such a character,
//! its bytes are encoded one by one.

/// The character that encodes byte 0x80.
const FIRST: char = '\u{10ff80}';

fn byte(c: char) -> Option<u8> {
    (c >= FIRST).then(|| (c as u32 - FIRST as u32) as u8 | 0x80)
}

fn character(byte: u8) -> char {
    char::from_u32(FIRST as u32 + u32::from(byte & 0x7f)).unwrap_or(FIRST)
}

/// Encodes bytes as text.
pub fn text(bytes: Vec<u8>) -> String {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) if !text.contains(is_raw_char) => return text,
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

/// Decodes a text that may be the result of [`text`].
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

/// True for a character that encodes a byte.
pub(crate) fn is_raw_char(c: char) -> bool {
    byte(c).is_some()
}

/// True if the text contains encoded bytes.
pub fn is_raw(text: &str) -> bool {
    // Byte 0xf4 is the first byte of all of these characters in UTF-8.
    text.as_bytes().contains(&0xf4) && text.contains(is_raw_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_sequence_is_restored_after_encoding() {
        let all: Vec<u8> = (0..=255).collect();
        let private_use = format!("a{}\u{10ffff}\u{e9}", character(0xc3)).into_bytes();
        for sequence in [all, private_use, b"plain".to_vec(), b"\xe9t\xe9 \xf4\x8f\xbe".to_vec(), Vec::new()]
        {
            let encoded = text(sequence.clone());
            assert_eq!(bytes(&encoded), sequence);
        }
    }

    #[test]
    fn valid_characters_are_unchanged_and_are_no_encoded_bytes() {
        assert_eq!(text("h\u{e9}".into()), "h\u{e9}");
        assert!(!is_raw("h\u{e9}\u{1f600}"));
    }
}
