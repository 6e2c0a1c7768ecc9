//! Text in XML and in JSON, whatever it has.

use events::Value;

/// The greatest number of characters of a name in a file. Names of templates can be much longer.
const LONGEST: usize = 1000;

/// A name: its control characters escaped, and not too long.
pub fn name(bytes: &[u8]) -> String {
    let text = diagnostics::control::name(bytes);
    cut(&text, LONGEST)
}

/// A value that is no stack: as text prints it, of memory the first bytes.
pub fn value(value: &Value<'_>) -> String {
    match value {
        Value::Int(int) => int.value().to_string(),
        Value::Str { text, .. } | Value::Name { text, .. } => name(text),
        Value::Symbol(symbol) => name(symbol.text().as_bytes()),
        Value::Bytes(bytes) => bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect(),
        _ => "?".into(),
    }
}

/// The text, or its beginning with an ellipsis if it has more than `most` characters.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Appends text to XML, also within an attribute in double quotes. The few characters that XML
/// cannot express become U+FFFD.
pub fn xml(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() || diagnostics::control::is_bidirectional(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// Appends a JSON string. It has none of the characters by which a script or a CDATA section could
/// end, and none that XML cannot express.
pub(crate) fn json(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '<' | '>' | '&' | '\'' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A number with a comma after every three digits.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_of_names_is_text() {
        let hostile = "</script>]]><b a='1' c=\"2\">&amp;\u{ffff}\u{2028}";
        let (mut markup, mut data) = (String::new(), String::new());
        xml(&mut markup, hostile);
        json(&mut data, hostile);
        assert!(!markup.contains(['<', '>', '"', '\'', '\u{ffff}']), "{markup}");
        assert!(!data.contains(['<', '>', '&', '\'', '\u{ffff}', '\u{2028}']), "{data}");
    }

    #[test]
    fn names_have_no_control_characters_and_are_bounded() {
        assert_eq!(name(b"a\x1b[31m\nb\xff"), "a\\033[31m\\nb\\377");
        let long = name("é".repeat(5000).as_bytes());
        assert_eq!(long.chars().count(), LONGEST);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn thousands_are_separated() {
        let all = [0, 999, 1000, 1_234_567].map(thousands);
        assert_eq!(all, ["0", "999", "1,000", "1,234,567"]);
    }
}
