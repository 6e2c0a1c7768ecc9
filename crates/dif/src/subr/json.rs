//! `json()`: one element of a document, as it stands there.
//!
//! The document is read once, byte by byte, by a small machine, because that is what can be done in the kernel; the
//! interpreter is the same machine, so that the two agree on malformed documents too. It is not a validator: it finds an
//! element, and gives up where the way to it makes no sense.

use super::{Call, Fault, number};
use crate::interp::Val;

/// What the next byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Nothing yet.
    Start,
    /// Before a key.
    Object,
    /// In a key.
    Key,
    /// Behind a key.
    Colon,
    /// Before a value.
    Value,
    /// In a string that is a value.
    Text,
    /// In an object or array that is taken or passed over as a whole.
    Whole,
    /// In a string in one.
    WholeText,
    /// In `true`, `false` or `null`.
    Word,
    /// In a number: before a point, behind it, behind an `e`.
    Number,
    Fraction,
    Exponent,
    /// Behind a value.
    Comma,
}

/// One element of a path like `a.b[2]`: where it ends, and where the next one starts.
struct Element {
    start: usize,
    end: usize,
    next: Option<usize>,
}

impl Element {
    fn at(path: &[u8], start: usize) -> Element {
        let separator = |b: &u8| matches!(b, b'.' | b'[' | b']');
        let end = path[start..].iter().position(separator).map_or(path.len(), |n| start + n);
        let mut next = end + usize::from(end < path.len());
        // `]` and what stands behind it are one separator.
        if path.get(end) == Some(&b']') && matches!(path.get(next), Some(b'.' | b'[')) {
            next += 1;
        }
        Element { start, end, next: (next < path.len()).then_some(next) }
    }

    fn number(&self, path: &[u8]) -> i64 {
        number::parse(&path[self.start..self.end], 10)
    }
}

pub(super) fn json(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (doc, path) = (call.text(0), call.text(1));
    Ok(find(doc, path).map_or(Val::Null, |found| Val::Str(found.to_vec())))
}

fn find<'d>(doc: &'d [u8], path: &[u8]) -> Option<&'d [u8]> {
    let mut element = Element::at(path, usize::from(path.first() == Some(&b'[')));
    let mut at = At::Start;
    let (mut array, mut position, mut wanted) = (false, 0i64, 0i64);
    // The value that comes, or is being read, is the element's.
    let mut found = false;
    let (mut start, mut braces, mut brackets) = (0, 0u32, 0u32);
    // Of an escape: 0 none, 5 the byte behind the backslash, else the digits that are left.
    let mut escape = 0;
    // Of a key: how much of the element it is so far.
    let mut same = Some(0);
    for (i, c) in doc.iter().copied().enumerate() {
        let blank = matches!(c, b' ' | b'\t'..=b'\r');
        if matches!(at, At::Key | At::Text | At::WholeText) {
            let plain = escape == 0;
            match (escape, c) {
                (0, b'\\') => escape = 5,
                (0, _) => {}
                (5, b'u') => escape = 4,
                (5, _) => escape = 0,
                (_, c) if c.is_ascii_hexdigit() => escape -= 1,
                _ => return None,
            }
            let ends = plain && c == b'"';
            match at {
                At::Key if ends => {
                    found = same == Some(element.end - element.start);
                    at = At::Colon;
                }
                At::Key => {
                    same = same.filter(|n| element.start + n < element.end && path[element.start + n] == c);
                    same = same.map(|n| n + 1);
                }
                At::Text if ends && found => {
                    return if element.next.is_some() { None } else { Some(&doc[start..i]) };
                }
                At::Text if ends => at = At::Comma,
                At::WholeText if ends => at = At::Whole,
                _ => {}
            }
            continue;
        }
        if at == At::Whole {
            match c {
                b'"' => at = At::WholeText,
                b'{' => braces += 1,
                b'[' => brackets += 1,
                b'}' => braces = braces.checked_sub(1)?,
                b']' => brackets = brackets.checked_sub(1)?,
                _ => {}
            }
            if braces == 0 && brackets == 0 {
                if found {
                    return Some(&doc[start..=i]);
                }
                at = At::Comma;
            }
            continue;
        }
        match (at, c) {
            (At::Word, b'a'..=b'z') => continue,
            (At::Number | At::Fraction | At::Exponent, b'0'..=b'9') => continue,
            (At::Number, b'.') => {
                at = At::Fraction;
                continue;
            }
            (At::Number | At::Fraction, b'e' | b'E') => {
                at = At::Exponent;
                continue;
            }
            (At::Exponent, b'+' | b'-') => continue,
            (At::Number | At::Fraction, b'+' | b'-') | (At::Number, b'x' | b'X') => return None,
            (At::Word | At::Number | At::Fraction | At::Exponent, _) => {
                if at == At::Word && !matches!(&doc[start..i], b"true" | b"false" | b"null") {
                    return None;
                }
                if found {
                    return if element.next.is_some() { None } else { Some(&doc[start..i]) };
                }
                at = At::Comma;
            }
            _ => {}
        }
        if blank {
            continue;
        }
        match (at, c) {
            (At::Start, b'{' | b'[') | (At::Value, b'{' | b'[')
                if at == At::Start || found && element.next.is_some() =>
            {
                if at == At::Value {
                    element = Element::at(path, element.next?);
                }
                array = c == b'[';
                at = if array { At::Value } else { At::Object };
                position = 0;
                wanted = element.number(path);
                found = array && wanted == 0;
            }
            (At::Object, b'"') => {
                at = At::Key;
                same = Some(0);
            }
            (At::Colon, b':') => at = At::Value,
            (At::Comma, b',') => {
                at = if array { At::Value } else { At::Object };
                if array {
                    position += 1;
                    // An element is found once: none behind it counts.
                    found = position == wanted;
                }
            }
            (At::Value, _) => {
                start = i;
                at = match c {
                    b'"' => {
                        start = i + 1;
                        At::Text
                    }
                    b'{' | b'[' => {
                        braces = u32::from(c == b'{');
                        brackets = u32::from(c == b'[');
                        At::Whole
                    }
                    b'a'..=b'z' => At::Word,
                    b'-' | b'0'..=b'9' => At::Number,
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    None
}
