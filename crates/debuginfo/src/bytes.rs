//! Numbers and texts in the bytes of a section.

use crate::query::{Error, MAX_NAME};

pub(crate) fn malformed(what: &str) -> Error {
    Error::Malformed(what.into())
}

pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A string in a table, unless it is empty, long or no text.
pub(crate) fn text(strings: &[u8], at: u32) -> Option<&str> {
    let text = strings.get(at as usize..)?;
    let end = text.iter().take(MAX_NAME + 1).position(|b| *b == 0)?;
    std::str::from_utf8(text.get(..end)?).ok().filter(|text| !text.is_empty())
}
