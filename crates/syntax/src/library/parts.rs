//! The part of a library that says which probes it defines.

use super::scan::{ignored, is_declaration, is_word};

/// The provider blocks and the clauses of a library, without its other items, which are most of its
/// text.
pub(super) fn providers_and_clauses(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::new();
    // The first word of the current item, and where the item begins.
    let (mut depth, mut first, mut from) = (0u32, "", None);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..)
        && let Some(byte) = rest.first()
    {
        if let Some(len) = ignored(rest) {
            at += len;
            continue;
        }
        let start = if byte.is_ascii_whitespace() { from.unwrap_or(at) } else { *from.get_or_insert(at) };
        match byte {
            b'#' if first.is_empty() => {
                at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                from = None;
                continue;
            }
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            c if is_word(*c) => {
                let end = at + rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len());
                if first.is_empty() {
                    first = text.get(at..end).unwrap_or_default();
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
        let is_clause = !is_declaration(&[first]);
        // Of what begins as a clause, a declaration ends at a semicolon.
        if depth == 0 && !first.is_empty() && (*byte == b';' || *byte == b'}' && is_clause) {
            if first == "provider" || is_clause {
                out.push_str(text.get(start..at).unwrap_or_default());
                out.push('\n');
            }
            (first, from) = ("", None);
        } else if depth == 0 && first.is_empty() && *byte == b';' {
            from = None;
        }
    }
    out
}
