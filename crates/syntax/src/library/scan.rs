//! A scanner that finds the names a library defines, without parsing it. It is also compiled into
//! the build script, which generates the index of the files in `lib/`.

pub(crate) fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_'
}

/// Calls `found` with each name that a library defines: inlines, typedefs, tags, enumerators.
pub(crate) fn definitions(text: &str, mut found: impl FnMut(&str, bool)) {
    let bytes = text.as_bytes();
    // The words of the current item outside braces, and the position in the item.
    let mut item: Vec<&str> = Vec::new();
    let (mut depth, mut brackets, mut named) = (0u32, 0u32, false);
    let (mut in_enum, mut next_is_enumerator) = (false, false);
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        match bytes[at] {
            b'/' if rest.starts_with(b"/*") => {
                at += 2 + text.get(at + 2..).and_then(|t| t.find("*/")).map_or(rest.len(), |n| n + 2);
                continue;
            }
            b'#' if item.is_empty() => {
                at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                continue;
            }
            b'"' => {
                let mut end = at + 1;
                while end < bytes.len() && bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                at = end + 1;
                continue;
            }
            b'{' => {
                if depth == 0 {
                    in_enum = item.contains(&"enum");
                    next_is_enumerator = in_enum;
                    let tag = item.windows(2).find(|w| matches!(w[0], "struct" | "union" | "enum"));
                    if let (Some(tag), false) = (tag, item.first() == Some(&"translator")) {
                        found(tag[1], false);
                    }
                }
                depth += 1;
            }
            b'}' => depth = depth.saturating_sub(1),
            b',' if in_enum && depth == 1 => next_is_enumerator = true,
            b'[' if depth == 0 => brackets += 1,
            b']' if depth == 0 => brackets = brackets.saturating_sub(1),
            // The value of an inline begins; its name has been found.
            b'=' if depth == 0 && !named => {
                named = true;
                if let (Some(&"inline"), Some(name)) = (item.first(), item.last()) {
                    found(name, false);
                }
            }
            b';' if depth == 0 => {
                if let (Some(&"typedef"), Some(name)) = (item.first(), item.last()) {
                    found(name, true);
                }
                item.clear();
                (named, in_enum, brackets) = (false, false, 0);
            }
            c if is_word(c) => {
                let end = at + rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len());
                let word = text.get(at..end).unwrap_or_default();
                if depth == 0 && brackets == 0 && !named {
                    item.push(word);
                } else if depth == 1 && std::mem::take(&mut next_is_enumerator) {
                    found(word, false);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}
