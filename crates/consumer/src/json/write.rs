//! The syntax of JSON: strings, numbers, members.

use diagnostics::control;

/// The byte in each byte of a word.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// True if some byte of a string may need an escape: a control character, `"`, `\`, DEL, and any
/// byte above ASCII, because U+0080 to U+009F are control characters.
fn may_need_escape(word: u64) -> bool {
    // The high bit is set where a byte is less than another; exact for the lowest such byte.
    let less = |word: u64, byte: u8| word.wrapping_sub(each(byte)) & !word;
    let equal = |byte: u8| less(word ^ each(byte), 1);
    (word | less(word, b' ') | equal(b'"') | equal(b'\\') | equal(0x7f)) & each(0x80) != 0
}

/// The bytes at the begin of a text of which none needs an escape.
fn plain(text: &str) -> usize {
    let (words, _) = text.as_bytes().as_chunks::<8>();
    let whole = 8 * words.iter().take_while(|word| !may_need_escape(u64::from_ne_bytes(**word))).count();
    let rest = text.as_bytes().get(whole..).unwrap_or_default();
    // Above ASCII are control characters and those for layout.
    let needs_escape = |b: &u8| *b < b' ' || matches!(b, b'"' | b'\\' | 0x7f..);
    whole + rest.iter().position(needs_escape).unwrap_or(rest.len())
}

/// Writes a string. Control characters are escaped, those above ASCII too, so that a terminal
/// interprets none, and those for layout.
pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text;
    loop {
        let (head, tail) = rest.split_at_checked(plain(rest)).unwrap_or((rest, ""));
        out.extend_from_slice(head.as_bytes());
        let Some(c) = tail.chars().next() else { break };
        rest = tail.get(c.len_utf8()..).unwrap_or_default();
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            c if c.is_control() || control::is_format(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(b"\\u");
                    hex(out, &unit.to_be_bytes());
                }
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Writes bytes as hexadecimal digits, two each.
pub(super) fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    for byte in bytes {
        out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

/// Writes an integer with all its digits.
pub(super) fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut count = 0;
    for place in digits.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
        count += 1;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - count..).unwrap_or_default());
}

/// Writes an integer with all its digits.
pub(super) fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    unsigned(out, value.unsigned_abs());
}

/// The name of a member as it is written, after another member. So it is written at once.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
pub(super) use key;

/// The members of an object that is being written.
pub(super) struct Object<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> Object<'o> {
    /// An object of which something is written.
    pub(super) fn of(out: &'o mut Vec<u8>) -> Self {
        Object { out, first: false }
    }

    /// Begins an object.
    pub(super) fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Object { out, first: true }
    }

    /// Begins a member; the value is to be written. The name is of [`key!`].
    pub(super) fn member(&mut self, key: &'static str) -> &mut Vec<u8> {
        let begun = std::mem::replace(&mut self.first, false);
        let key = key.as_bytes().get(usize::from(begun)..).unwrap_or_default();
        self.out.extend_from_slice(key);
        self.out
    }

    /// Begins a member whose name may be anything.
    pub(super) fn named(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        string(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        string(self.member(name), text);
    }

    /// A text, unless it is empty.
    pub(super) fn some_text(&mut self, name: &'static str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    pub(super) fn unsigned(&mut self, name: &'static str, value: impl Into<u64>) {
        unsigned(self.member(name), value.into());
    }

    pub(super) fn signed(&mut self, name: &'static str, value: impl Into<i64>) {
        signed(self.member(name), value.into());
    }

    /// A number, if there is one.
    pub(super) fn some_unsigned(&mut self, name: &'static str, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.unsigned(name, value);
        }
    }

    pub(super) fn flag(&mut self, name: &'static str, value: bool) {
        self.member(name).extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A member that is an object.
    pub(super) fn object(&mut self, name: &'static str, members: impl FnOnce(&mut Object<'_>)) {
        object(self.member(name), members);
    }

    /// A member that is a list.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        all: impl IntoIterator<Item = T>,
        one: impl FnMut(&mut Vec<u8>, T),
    ) {
        list(self.member(name), all, one);
    }

    /// Ends the object.
    pub(super) fn end(self) {
        self.out.push(b'}');
    }
}

/// Writes an object.
pub(super) fn object(out: &mut Vec<u8>, members: impl FnOnce(&mut Object<'_>)) {
    let mut object = Object::begin(out);
    members(&mut object);
    object.end();
}

/// Writes a list.
pub(super) fn list<T>(
    out: &mut Vec<u8>,
    all: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (n, item) in all.into_iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        one(out, item);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn control_characters_in_strings_are_escaped() {
        for (text, json) in [
            ("plain", "\"plain\""),
            ("", "\"\""),
            ("a\"b\\c\n\r\t", "\"a\\\"b\\\\c\\n\\r\\t\""),
            ("\0\x1b[m\x7f", "\"\\u0000\\u001b[m\\u007f\""),
            ("\u{80}\u{9b}\u{a0}\u{e9}\u{1f600}", "\"\\u0080\\u009b\u{a0}\u{e9}\u{1f600}\""),
        ] {
            assert_eq!(shown(|out| string(out, text)), json);
        }
    }

    #[test]
    fn integers_of_64_bits_have_all_their_digits() {
        for value in [0, 9, 10, 99, 1 << 53, (1 << 53) + 1, u64::MAX] {
            assert_eq!(shown(|out| unsigned(out, value)), value.to_string());
        }
        for value in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(shown(|out| signed(out, value)), value.to_string());
        }
    }
}
