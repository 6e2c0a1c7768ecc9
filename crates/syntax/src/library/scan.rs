//! A scanner that finds the names a library defines, without parsing it. It is also compiled into
//! the build script, which generates the index of the files in `lib/`.

pub(crate) fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_'
}

/// The words with which items begin that may have braces and end at a semicolon.
const ITEMS: [&str; 13] = [
    "typedef",
    "struct",
    "union",
    "enum",
    "translator",
    "provider",
    "inline",
    "const",
    "extern",
    "static",
    "volatile",
    "this",
    "self",
];

/// True for the words of an item that is no clause.
pub(crate) fn is_declaration(item: &[&str]) -> bool {
    item.first().is_some_and(|word| ITEMS.contains(word))
}

/// The length of a comment or a string, if the text begins with one. One that is not closed is
/// longer than the text.
pub(crate) fn ignored(text: &[u8]) -> Option<usize> {
    match text {
        [b'/', b'*', body @ ..] => {
            Some(2 + body.windows(2).position(|w| w == b"*/").map_or(body.len(), |n| n + 2))
        }
        [b'"', body @ ..] => {
            let mut end = 0;
            while let Some(byte) = body.get(end).filter(|b| **b != b'"') {
                end += if *byte == b'\\' { 2 } else { 1 };
            }
            Some(end + 2)
        }
        _ => None,
    }
}

/// Calls `found` with each name that a library defines: inlines, typedefs, tags, enumerators.
pub(crate) fn definitions(text: &str, mut found: impl FnMut(&str, bool)) {
    let bytes = text.as_bytes();
    // The words of the current item outside braces, and the position in the item.
    let mut item: Vec<&str> = Vec::new();
    let (mut depth, mut brackets, mut named) = (0u32, 0u32, false);
    let (mut in_enum, mut next_is_enumerator) = (false, false);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..)
        && let Some(first) = rest.first()
    {
        if let Some(len) = ignored(rest) {
            at += len;
            continue;
        }
        match first {
            b'#' if item.is_empty() => {
                at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                continue;
            }
            b'{' => {
                // The predicate of a clause may name a struct.
                if depth == 0 && is_declaration(&item) {
                    in_enum = item.contains(&"enum");
                    next_is_enumerator = in_enum;
                    let mut pairs = item.iter().zip(item.iter().skip(1));
                    let tag = pairs.find(|(word, _)| matches!(**word, "struct" | "union" | "enum"));
                    if let (Some((_, tag)), false) = (tag, item.first() == Some(&"translator")) {
                        found(tag, false);
                    }
                }
                depth += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                // A clause ends here, everything else at a semicolon.
                if depth == 0 && !is_declaration(&item) {
                    item.clear();
                    (named, in_enum, brackets) = (false, false, 0);
                }
            }
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
            c if is_word(*c) => {
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

/// Calls `found` with each probe that a provider block of a library declares: its provider, its
/// name in the source, and whether there is a provider for each process.
pub(crate) fn probes(text: &str, mut found: impl FnMut(&str, &str, bool)) {
    // The depth of braces, the word before, and the provider of the block.
    let (mut depth, mut before, mut provider, mut family) = (0u32, "", None, false);
    let mut at = 0;
    while let Some(rest) = text.as_bytes().get(at..)
        && let Some(first) = rest.first()
    {
        if let Some(len) = ignored(rest) {
            at += len;
            continue;
        }
        match first {
            b'#' => {
                at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                continue;
            }
            c if is_word(*c) => {
                let end = at + rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len());
                let word = text.get(at..end).unwrap_or_default();
                match (before, provider) {
                    ("provider", _) if depth == 0 => (provider, family) = (Some(word), false),
                    ("probe", Some(provider)) if depth == 1 => found(provider, word, family),
                    _ => {}
                }
                (before, at) = (word, end);
                continue;
            }
            b'[' if depth == 0 => family = provider.is_some(),
            b'{' => (depth, before) = (depth + 1, ""),
            b'}' => {
                (depth, before) = (depth.saturating_sub(1), "");
                if depth == 0 {
                    provider = None;
                }
            }
            _ => {}
        }
        at += 1;
    }
}
