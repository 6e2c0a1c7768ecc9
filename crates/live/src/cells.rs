//! The texts of values.

use events::{Int, Value};
use flame::escape;

/// The text of a column of a key.
pub(crate) fn text(value: &Value<'_>) -> String {
    match value {
        Value::Stack(stack) => match &stack.frames[..] {
            [] => "[no stack]".into(),
            [only] => escape::name(only.text().as_bytes()),
            [first, rest @ ..] => {
                format!("{} (+{})", escape::name(first.text().as_bytes()), rest.len())
            }
        },
        other => escape::value(other),
    }
}

/// The condition of D that an expression has a value. `None`: no value of its kind can be written.
pub(crate) fn condition(expression: &str, value: &Value<'_>) -> Option<String> {
    match value {
        Value::Int(int) if !int.signed && int.size == 8 => {
            Some(format!("(uint64_t)({expression}) == {}u", Int::value(*int)))
        }
        // The greatest magnitude is no constant of D with a sign before it.
        Value::Int(int) if Int::value(*int) == i128::from(i64::MIN) => {
            Some(format!("({expression}) == -9223372036854775807 - 1"))
        }
        Value::Int(int) => Some(format!("({expression}) == {}", Int::value(*int))),
        Value::Str { text, .. } | Value::Name { text, .. } => {
            Some(format!("({expression}) == \"{}\"", literal(text)))
        }
        _ => None,
    }
}

/// What stands between the quotation marks of a string of D.
fn literal(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            // `$` would begin a macro variable for who reads the text, not within a string.
            b' '..=b'~' => out.push(char::from(*byte)),
            // Three digits: what follows cannot belong to it.
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_the_value_as_d_writes_it() {
        let text = |bytes: &'static [u8]| Value::Str { text: bytes.into(), size: 64 };
        let cases = [
            (condition("execname", &text(b"a\"b\\c")), r#"(execname) == "a\"b\\c""#),
            (condition("s", &text(b"\x011\xff")), r#"(s) == "\0011\377""#),
            (condition("a / 2", &Value::Int(Int::new(7, 4, true))), "(a / 2) == 7"),
            (condition("x", &Value::Int(Int::new(u64::MAX, 8, true))), "(x) == -1"),
            (
                condition("x", &Value::Int(Int::new(u64::MAX, 8, false))),
                "(uint64_t)(x) == 18446744073709551615u",
            ),
        ];
        for (made, right) in cases {
            assert_eq!(made.as_deref(), Some(right));
        }
        assert_eq!(condition("s", &Value::Unknown), None);
    }
}
