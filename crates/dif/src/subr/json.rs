//! `json()`: extracts one element of a JSON document, unmodified.
//!
//! A small state machine reads the document once, byte by byte, because a program in the kernel can
//! do no more. The interpreter uses the same state machine, so that both agree on malformed
//! documents too. It does not validate: it finds an element, and gives up when the syntax before it
//! is malformed.

use super::call::{Call, Fault};
use super::number;
use crate::interp::Val;

/// The state: what the next byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing yet.
    Start,
    /// Before a key.
    Object,
    /// In a key.
    Key,
    /// After a key.
    Colon,
    /// Before a value.
    Value,
    /// In a string that is a value.
    Text,
    /// In an object or array that is copied or skipped as a whole.
    Whole,
    /// In a string within such an object or array.
    WholeText,
    /// In `true`, `false` or `null`.
    Word,
    /// In a number: before the point, after it, after an `e`.
    Number,
    Fraction,
    Exponent,
    /// After a value.
    Comma,
}

/// One element of a path like `a.b[2]`: its end, and the start of the next one.
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
        // `]` and the separator after it are one separator.
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
    let mut at = State::Start;
    let (mut array, mut position, mut wanted) = (false, 0i64, 0i64);
    // True when the next or current value is that of the wanted element.
    let mut found = false;
    let (mut start, mut braces, mut brackets) = (0, 0u32, 0u32);
    // State of an escape sequence: 0 none, 5 the byte after the backslash, otherwise the number of
    // remaining digits.
    let mut escape = 0;
    // Number of bytes of the current key that match the element so far.
    let mut same = Some(0);
    for (i, c) in doc.iter().copied().enumerate() {
        let blank = matches!(c, b' ' | b'\t'..=b'\r');
        if matches!(at, State::Key | State::Text | State::WholeText) {
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
                State::Key if ends => {
                    found = same == Some(element.end - element.start);
                    at = State::Colon;
                }
                State::Key => {
                    same = same.filter(|n| element.start + n < element.end && path[element.start + n] == c);
                    same = same.map(|n| n + 1);
                }
                State::Text if ends && found => {
                    return if element.next.is_some() { None } else { Some(&doc[start..i]) };
                }
                State::Text if ends => at = State::Comma,
                State::WholeText if ends => at = State::Whole,
                _ => {}
            }
            continue;
        }
        if at == State::Whole {
            match c {
                b'"' => at = State::WholeText,
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
                at = State::Comma;
            }
            continue;
        }
        match (at, c) {
            (State::Word, b'a'..=b'z') => continue,
            (State::Number | State::Fraction | State::Exponent, b'0'..=b'9') => continue,
            (State::Number, b'.') => {
                at = State::Fraction;
                continue;
            }
            (State::Number | State::Fraction, b'e' | b'E') => {
                at = State::Exponent;
                continue;
            }
            (State::Exponent, b'+' | b'-') => continue,
            (State::Number | State::Fraction, b'+' | b'-') | (State::Number, b'x' | b'X') => return None,
            (State::Word | State::Number | State::Fraction | State::Exponent, _) => {
                if at == State::Word && !matches!(&doc[start..i], b"true" | b"false" | b"null") {
                    return None;
                }
                if found {
                    return if element.next.is_some() { None } else { Some(&doc[start..i]) };
                }
                at = State::Comma;
            }
            _ => {}
        }
        if blank {
            continue;
        }
        match (at, c) {
            (State::Start, b'{' | b'[') | (State::Value, b'{' | b'[')
                if at == State::Start || found && element.next.is_some() =>
            {
                if at == State::Value {
                    element = Element::at(path, element.next?);
                }
                array = c == b'[';
                at = if array { State::Value } else { State::Object };
                position = 0;
                wanted = element.number(path);
                found = array && wanted == 0;
            }
            (State::Object, b'"') => {
                at = State::Key;
                same = Some(0);
            }
            (State::Colon, b':') => at = State::Value,
            (State::Comma, b',') => {
                at = if array { State::Value } else { State::Object };
                if array {
                    position += 1;
                    // An element is found only once; later ones do not count.
                    found = position == wanted;
                }
            }
            (State::Value, _) => {
                start = i;
                at = match c {
                    b'"' => {
                        start = i + 1;
                        State::Text
                    }
                    b'{' | b'[' => {
                        braces = u32::from(c == b'{');
                        brackets = u32::from(c == b'[');
                        State::Whole
                    }
                    b'a'..=b'z' => State::Word,
                    b'-' | b'0'..=b'9' => State::Number,
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    None
}
